// Whether the artifact's file is what stridec wrote (stridec_abi_seal).
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stridec/xxh64.h"
#include "text.h"
#include "weights.h"

namespace stridec::runtime {
namespace {

constexpr int kMostSegments = 64;  // an artifact has about a dozen

// A file of any contents, mapped.
struct File {
  const char* data;
  uint64_t size;

  bool holds(uint64_t offset, uint64_t bytes) const { return offset <= size && bytes <= size - offset; }
};

// The hash of the file's parts, in the order of stridec_abi_seal; false if the file is cut short. The last
// PT_LOAD is the blob, whose last bytes are the seal.
bool hash_of(const File& file, uint64_t& hash, uint64_t& sealed) {
  Elf64_Ehdr header;
  if (!file.holds(0, sizeof header)) return false;
  memcpy(&header, file.data, sizeof header);
  const uint64_t table = static_cast<uint64_t>(header.e_phnum) * sizeof(Elf64_Phdr);
  if (header.e_phnum > kMostSegments || !file.holds(header.e_phoff, table)) return false;
  Elf64_Phdr segments[kMostSegments];
  memcpy(segments, file.data + header.e_phoff, table);
  int blob = -1;
  for (int i = 0; i < header.e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD) blob = i;
  hash = 0;
  for (int i = 0; i < header.e_phnum; ++i) {
    const Elf64_Phdr& s = segments[i];
    const uint64_t facts[] = {s.p_type, s.p_flags, s.p_vaddr, s.p_filesz, s.p_memsz};
    hash = stridec_xxh64(facts, sizeof facts, hash);
    if (s.p_type != PT_LOAD) continue;
    if (!file.holds(s.p_offset, s.p_filesz)) return false;
    uint64_t begin = 0, end = s.p_filesz;
    if (i == blob) {
      stridec_abi_seal seal;
      if (end < sizeof seal) return false;
      memcpy(&seal, file.data + s.p_offset + end - sizeof seal, sizeof seal);
      if (memcmp(seal.mark, STRIDEC_ABI_SEAL_MARK, sizeof seal.mark) != 0) return false;
      sealed = seal.hash;
      end -= sizeof seal.hash;
    } else if (s.p_offset == 0) {
      begin = header.e_phoff + table < end ? header.e_phoff + table : end;
    }
    hash = stridec_xxh64(file.data + s.p_offset + begin, end - begin, hash);
  }
  return blob >= 0;
}

}  // namespace

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
  uint64_t hash = 0, sealed = 0;
  const bool intact = hash_of({static_cast<const char*>(mapping), size}, hash, sealed) && hash == sealed;
  munmap(mapping, size);
  if (intact) return STRIDEC_OK;
  message << "the artifact's file was altered since stridec wrote it: its contents do not have the hash that "
             "it names";
  return STRIDEC_BAD_ARTIFACT;
}

}  // namespace stridec::runtime
