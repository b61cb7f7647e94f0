#include "cli/mapped_text.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/base/files.h"

namespace stridec::cli {

MappedText::MappedText(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
    const auto size = static_cast<size_t>(status.st_size);
    void* map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    mapped_ = map != MAP_FAILED;
    if (mapped_) text_ = {static_cast<const char*>(map), size};
  }
  if (file >= 0) close(file);
  if (!mapped_) text_ = read_ = read_file(path);
}

MappedText::~MappedText() {
  if (mapped_) munmap(const_cast<char*>(text_.data()), text_.size());
}

}  // namespace stridec::cli
