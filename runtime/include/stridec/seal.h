/* stridec/seal.h: the hash of a whole artifact, which its seal holds (stridec_abi_seal in abi.h). The
 * packager writes it; the program and the runtime compare it. Detects damage, not forgery. */
#ifndef STRIDEC_SEAL_H
#define STRIDEC_SEAL_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "abi.h"
#include "xxh64.h"

#define STRIDEC_SEAL_MOST_SEGMENTS 64 /* an artifact has about a dozen */

/* Continues a hash over the bytes of the blob up to the hash in its seal. */
typedef uint64_t (*stridec_seal_blob)(void* user, uint64_t seed);

/* Hashes an ELF file, which may have any contents, and stores where the seal is. The blob is the last
 * PT_LOAD, which the packager appended; with `blob` its bytes come from elsewhere. Returns 0 if the file is
 * cut short. */
static inline int stridec_seal_hash(const char* file, uint64_t file_bytes, stridec_seal_blob blob, void* user,
                                    uint64_t* hash, uint64_t* seal_offset) {
  Elf64_Ehdr header;
  Elf64_Phdr segments[STRIDEC_SEAL_MOST_SEGMENTS];
  uint64_t table, headers;
  int i, last = -1;
  if (file_bytes < sizeof header) return 0;
  memcpy(&header, file, sizeof header);
  table = (uint64_t)header.e_phnum * sizeof(Elf64_Phdr);
  if (header.e_phnum > STRIDEC_SEAL_MOST_SEGMENTS || header.e_phoff > file_bytes ||
      table > file_bytes - header.e_phoff)
    return 0;
  headers = header.e_phoff + table;
  memcpy(segments, file + header.e_phoff, (size_t)table);
  for (i = 0; i < header.e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD) last = i;
  if (last < 0 || segments[last].p_filesz < sizeof(stridec_abi_seal)) return 0;
  *seal_offset = segments[last].p_offset + segments[last].p_filesz - sizeof(stridec_abi_seal);
  *hash = 0;
  for (i = 0; i < header.e_phnum; ++i) {
    const Elf64_Phdr* s = &segments[i];
    const uint64_t facts[] = {s->p_type, s->p_flags, s->p_vaddr, s->p_filesz, s->p_memsz};
    const int whole = s->p_offset <= file_bytes && s->p_filesz <= file_bytes - s->p_offset;
    /* `strip` rewrites the offsets in the headers. */
    const uint64_t begin = s->p_offset == 0 ? (headers < s->p_filesz ? headers : s->p_filesz) : 0;
    *hash = stridec_xxh64(facts, sizeof facts, *hash);
    if (s->p_type != PT_LOAD) continue;
    if (i == last && blob)
      *hash = blob(user, *hash);
    else if (!whole)
      return 0;
    else if (i == last)
      *hash = stridec_xxh64(file + s->p_offset, (size_t)(s->p_filesz - sizeof(uint64_t)), *hash);
    else
      *hash = stridec_xxh64(file + s->p_offset + begin, (size_t)(s->p_filesz - begin), *hash);
  }
  return 1;
}

enum { STRIDEC_SEAL_INTACT, STRIDEC_SEAL_CUT_SHORT, STRIDEC_SEAL_ALTERED };

/* Compares a file in memory with the hash that it names. */
static inline int stridec_seal_check(const char* file, uint64_t file_bytes) {
  uint64_t hash, offset;
  stridec_abi_seal seal;
  if (!stridec_seal_hash(file, file_bytes, 0, 0, &hash, &offset)) return STRIDEC_SEAL_CUT_SHORT;
  memcpy(&seal, file + offset, sizeof seal);
  return !memcmp(seal.mark, STRIDEC_ABI_SEAL_MARK, sizeof seal.mark) && seal.hash == hash
             ? STRIDEC_SEAL_INTACT
             : STRIDEC_SEAL_ALTERED;
}

#endif /* STRIDEC_SEAL_H */
