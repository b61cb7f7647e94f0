// Whether the artifact's file is what stridec wrote (stridec_abi_seal).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stridec/seal.h"
#include "text.h"
#include "weights.h"

namespace stridec::runtime {

stridec_status check_seal(Text& message) {
  char path[4096];
  own_path(path, sizeof path);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat status;
  // By system call: the symbol fstat requires glibc 2.33.
  if (fd < 0 || syscall(SYS_fstat, fd, &status) != 0 || status.st_size <= 0) {
    if (fd >= 0) close(fd);
    message << "the artifact's file '" << path << "' cannot be opened to check its hash";
    return STRIDEC_BAD_ARTIFACT;
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  void* mapping = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (mapping == MAP_FAILED) {
    message << "the artifact's file cannot be mapped into memory (" << size << " bytes)";
    return STRIDEC_OUT_OF_MEMORY;
  }
  const int found = stridec_seal_check(static_cast<const char*>(mapping), size);
  munmap(mapping, size);
  if (found == STRIDEC_SEAL_INTACT) return STRIDEC_OK;
  message << "the artifact's file was altered since stridec wrote it: its contents do not have the hash that "
             "it names";
  return STRIDEC_BAD_ARTIFACT;
}

}  // namespace stridec::runtime
