#include "compiler/codegen/cuda/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace stridec::codegen::cuda {
namespace {

template <class T>
bool read(std::string_view bytes, uint64_t at, T& out) {
  if (at > bytes.size() || bytes.size() - at < sizeof out) return false;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return true;
}

// Attribute records of .nv.info sections: format, number, and for format 4 (sized value) the bytes that
// follow.
constexpr uint8_t kSizedValue = 4, kFrameSize = 0x11, kMinStackSize = 0x12, kRegisterCount = 0x2f;

// Shared memory of a block that the system reserves before what the kernel declares. From Hopper on it is
// included in the sections of kernels that use shared memory, and a separate section indicates it.
constexpr int kReserved = 1024;
constexpr std::string_view kReservedSection = ".nv.shared.reserved.0";

// From Volta on instructions have 16 bytes, with the opcode in the low 12 bits.
constexpr uint64_t kInstruction = 16, kOpcode = 0xfff, kLoadLocal = 0x983, kStoreLocal = 0x387;

}  // namespace

Resources resources_of(std::string_view cubin, const std::string& symbol) {
  Resources out;
  Elf64_Ehdr header;
  if (!read(cubin, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return out;
  auto section = [&](int i, Elf64_Shdr& s) {
    return i < header.e_shnum &&
           read(cubin, header.e_shoff + static_cast<uint64_t>(i) * sizeof(Elf64_Shdr), s);
  };
  Elf64_Shdr names;
  if (!section(header.e_shstrndx, names)) return out;
  auto name_of = [&](const Elf64_Shdr& s) -> std::string {
    const uint64_t at = names.sh_offset + s.sh_name;
    if (at >= cubin.size()) return {};
    return std::string(cubin.substr(at, std::min<size_t>(cubin.size() - at, 4096)).data());
  };
  bool reserves = false;
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr s;
    if (!section(i, s)) break;
    const std::string name = name_of(s);
    reserves = reserves || name == kReservedSection;
    if (name == ".text." + symbol) {
      out.code_bytes = static_cast<int>(s.sh_size);
      if (!out.registers) out.registers = static_cast<int>(s.sh_info >> 24);
      for (uint64_t at = 0; at + kInstruction <= s.sh_size; at += kInstruction) {
        uint64_t word = 0;
        if (!read(cubin, s.sh_offset + at, word)) break;
        out.stack_loads += (word & kOpcode) == kLoadLocal;
        out.stack_stores += (word & kOpcode) == kStoreLocal;
      }
    } else if (name == ".nv.shared." + symbol) {
      out.shared_bytes = static_cast<int>(s.sh_size);
    } else if (name == ".nv.info") {
      for (uint64_t at = s.sh_offset; at + 4 <= s.sh_offset + s.sh_size;) {
        uint8_t format = 0, attribute = 0;
        uint16_t size = 0;
        if (!read(cubin, at, format) || !read(cubin, at + 1, attribute) || !read(cubin, at + 2, size)) break;
        if (format == kSizedValue) {
          uint32_t value = 0;
          if (size >= 8 && read(cubin, at + 8, value)) {
            if (attribute == kRegisterCount) out.registers = static_cast<int>(value);
            if (attribute == kMinStackSize || attribute == kFrameSize)
              out.stack_bytes = std::max(out.stack_bytes, static_cast<int>(value));
          }
          at += 4 + size;
        } else {
          at += 4;
        }
      }
    }
  }
  if (reserves) out.shared_bytes = std::max(out.shared_bytes - kReserved, 0);
  return out;
}

int resident_blocks(const Resources& resources, int threads, int dynamic_bytes, const GpuTarget& target) {
  // A warp's registers are allocated in units of 256.
  constexpr int kWarp = 32, kRegisters = 256, kShared = 128;
  const auto rounded = [](int n, int to) { return (n + to - 1) / to * to; };
  const int warps = rounded(threads, kWarp) / kWarp;
  const int registers = warps * rounded(std::max(resources.registers, 1) * kWarp, kRegisters);
  const int shared = rounded(resources.shared_bytes + dynamic_bytes + kReserved, kShared);
  return std::min({target.blocks_sm, target.threads_sm / (warps * kWarp), target.registers / registers,
                   target.shared_bytes_sm / shared});
}

}  // namespace stridec::codegen::cuda
