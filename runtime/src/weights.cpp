#include "weights.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stridec/xxh64.h"
#include "text.h"

extern "C" {
extern const stridec_abi_note stridec_note __attribute__((visibility("hidden")));

// Defined by the linker: the address of the file's first byte.
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
}

namespace stridec::runtime {
namespace {

// A mapping may extend past the end of a truncated file, and an access there raises SIGBUS. The kernel can do
// the read instead: with an invalid `how`, rt_sigprocmask first copies the 8 bytes and then fails.
bool readable(const char* address) {
  auto word = reinterpret_cast<uintptr_t>(address) & ~uintptr_t{7};
  return syscall(SYS_rt_sigprocmask, ~0, word, nullptr, 8) != 0 && errno != EFAULT;
}

bool whole(Bytes bytes) {
  return !bytes.size || (readable(bytes.data) && readable(bytes.data + bytes.size - 1));
}

struct OwnObject {
  const char* address;
  char path[4096];
};

int match_object(dl_phdr_info* info, size_t, void* argument) {
  auto& own = *static_cast<OwnObject*>(argument);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    auto* begin = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    if (own.address < begin || own.address >= begin + segment.p_memsz) continue;
    Text(own.path, sizeof own.path) << info->dlpi_name;
    return 1;
  }
  return 0;
}

// The folder that the artifact was loaded from.
void own_folder(char* out, size_t room) {
  char path[4096];
  own_path(path, sizeof path);
  char* slash = strrchr(path, '/');
  if (slash) slash[slash == path ? 1 : 0] = 0;
  Text(out, room) << (slash ? path : ".");
}

stridec_status open_file(const stridec_abi_module& module, const char* folder, bool check_hash, Blob& blob,
                         Text& message) {
  const char* name = module.weights_file->name;
  if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..")) {
    message << "the artifact names '" << name << "' as its weights file; expected a plain file name";
    return STRIDEC_BAD_ARTIFACT;
  }
  auto sentence = [&]() -> Text& { return message << "weights file '" << folder << '/' << name << "': "; };
  int directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int fd = directory < 0 ? -1 : openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  int error = errno;
  if (directory >= 0) close(directory);
  if (fd < 0) {
    if (error == ELOOP)
      sentence() << "it is a symbolic link, which is not followed";
    else if (error == ENOENT || error == ENOTDIR)
      sentence() << "it does not exist; put it next to the artifact, or name its folder in weights_dir";
    else
      sentence() << "cannot be opened (errno " << error << ")";
    return STRIDEC_BAD_WEIGHTS;
  }
  // By system call: the symbol fstat requires glibc 2.33.
  struct stat status;
  if (syscall(SYS_fstat, fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    sentence() << "it is not a regular file";
    return STRIDEC_BAD_WEIGHTS;
  }
  auto size = static_cast<uint64_t>(status.st_size);
  if (size != module.weights_bytes) {
    close(fd);
    sentence() << "it has " << size << " bytes, this artifact's weights have " << module.weights_bytes;
    return STRIDEC_BAD_WEIGHTS;
  }
  void* mapping = size ? mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0) : nullptr;
  close(fd);
  if (mapping == MAP_FAILED) {
    sentence() << "cannot be mapped into memory (" << size << " bytes)";
    return STRIDEC_OUT_OF_MEMORY;
  }
  if (check_hash && stridec_xxh64(mapping, size, 0) != module.weights_file->hash) {
    if (mapping) munmap(mapping, size);
    sentence() << "its contents are not this artifact's weights (the hash differs)";
    return STRIDEC_BAD_WEIGHTS;
  }
  blob.mapping = mapping;
  blob.weights = {static_cast<const char*>(mapping), size};
  return STRIDEC_OK;
}

constexpr Allocator kHugePages = {.huge_pages = true};
constexpr uint64_t kChunk = kHugePage;  // copied before the same part of the file is released

bool huge_pages_on_request() {
  char modes[64] = {};
  const int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool told = read(fd, modes, sizeof modes - 1) > 0;
  close(fd);
  return told && (strchr(modes, '[') == nullptr || strncmp(strchr(modes, '['), "[never]", 7) != 0);
}

}  // namespace

const stridec_abi_note& artifact_note() { return stridec_note; }
const char* artifact_base() { return __ehdr_start; }

void own_path(char* out, size_t room) {
  OwnObject own = {artifact_base(), {}};
  dl_iterate_phdr(match_object, &own);
  Text(out, room) << own.path;
}

stridec_status find_blob(const stridec_abi_note& note, const char* base, const stridec_abi_module& module,
                         const char* weights_dir, bool check_hash, Blob& blob, Text& message) {
  blob = {};
  if (note.weights_bytes) blob.weights = {base + note.weights_address, note.weights_bytes};
  if (note.manifest_bytes) blob.manifest = {base + note.manifest_address, note.manifest_bytes};
  if (note.images_bytes) blob.images = {base + note.images_address, note.images_bytes};
  if (!whole(blob.weights) || !whole(blob.manifest) || !whole(blob.images)) {
    message << "the artifact's file is truncated: its weights or manifest are incomplete";
    return STRIDEC_BAD_ARTIFACT;
  }
  if (module.weights_file) {
    char folder[4096];
    if (!weights_dir) own_folder(folder, sizeof folder);
    return open_file(module, weights_dir ? weights_dir : folder, check_hash, blob, message);
  }
  if (blob.weights.size != module.weights_bytes) {
    message << "the artifact holds " << blob.weights.size << " bytes of weights, but was made for "
            << module.weights_bytes;
    return STRIDEC_BAD_ARTIFACT;
  }
  return STRIDEC_OK;
}

void copy_weights(Blob& blob) {
  const Bytes file = blob.weights;
  Allocator allocator = kHugePages;
  if (file.size < kChunk || !huge_pages_on_request() ||
      !grow(allocator, blob.copy, static_cast<int64_t>(file.size)))
    return;
  // Each chunk of the file is released after it is copied, so memory never holds both copies as a whole.
  for (uint64_t at = 0; at < file.size; at += kChunk) {
    const uint64_t bytes = file.size - at < kChunk ? file.size - at : kChunk;
    memcpy(blob.copy.data + at, file.data + at, bytes);
    madvise(const_cast<char*>(file.data) + at, bytes, MADV_DONTNEED);
  }
  if (blob.mapping) munmap(blob.mapping, file.size);
  blob.mapping = nullptr;
  blob.weights.data = blob.copy.data;
}

void close_blob(Blob& blob) {
  if (blob.mapping) munmap(blob.mapping, blob.weights.size);
  Allocator allocator = kHugePages;
  release(allocator, blob.copy);
  blob = {};
}

}  // namespace stridec::runtime
