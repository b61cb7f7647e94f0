#include "compiler/frontend/common/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "compiler/base/diagnostic.h"

namespace stridec::frontend {

MappedFile::~MappedFile() {
  if (!bytes.empty()) munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
}

Descriptor::~Descriptor() {
  if (fd >= 0) close(fd);
}

std::shared_ptr<const MappedFile> map_descriptor(int fd, size_t size, const std::string& name) {
  if (size == 0) return std::make_shared<MappedFile>(nullptr, 0, name);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED)
    fail(ErrorKind::kUnreadable, "unreadable", "cannot map '" + name + "': " + std::strerror(errno));
  return std::make_shared<MappedFile>(static_cast<const std::byte*>(address), size, name);
}

std::shared_ptr<const MappedFile> map_file(const std::filesystem::path& path) {
  const std::string name = path.string();
  Descriptor file(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (file.fd < 0 || fstat(file.fd, &status) != 0)
    fail(ErrorKind::kUnreadable, "unreadable", "cannot open '" + name + "': " + std::strerror(errno));
  if (S_ISDIR(status.st_mode))
    fail(ErrorKind::kUnreadable, "unreadable", "'" + name + "' is a folder", "name the .onnx file in it");
  if (!S_ISREG(status.st_mode))
    fail(ErrorKind::kUnreadable, "unreadable", "'" + name + "' is not a regular file");
  return map_descriptor(file.fd, static_cast<size_t>(status.st_size), name);
}

std::shared_ptr<const MappedFile> map_zeros(size_t size) {
  if (size == 0) return std::make_shared<MappedFile>(nullptr, 0);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    fail(ErrorKind::kOverBudget, "tensor-size",
         "there is no address space for a tensor of " + std::to_string(size) + " bytes");
  return std::make_shared<MappedFile>(static_cast<const std::byte*>(address), size);
}

}  // namespace stridec::frontend
