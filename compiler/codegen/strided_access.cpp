#include "compiler/codegen/strided_access.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "compiler/base/text.h"

namespace stridec::codegen {

bool has_masked_loads(const CpuTarget& target, DType dtype, int width) {
  const int bytes = byte_size(dtype);
  return target.avx512 || (target.avx2 && bytes >= 4 && width * bytes >= 16);
}

void use_masked_load(KernelText& text, DType dtype, int width) {
  text.use(cat(text.target().avx512 ? "mload." : "mload_avx2.", text.storage_type(dtype)), width);
}

bool can_load_strided(const KernelText& text, DType dtype, int width, int64_t stride, bool masked) {
  const int64_t step = std::llabs(stride);
  // Two-register byte shuffles are as slow as scalar accesses.
  if (width < 4 || step < 1 || step > 4 || byte_size(dtype) < 2) return false;
  return !masked || (stride > 0 && step * width <= 64 && has_masked_loads(text.target(), dtype, width));
}

std::string load_strided(KernelText& text, const StridedElements& source, const std::string& to,
                         const std::string& bits) {
  const auto& [dtype, width, stride, pointer, base] = source;
  const int64_t step = std::llabs(stride), last = (width - 1) * step, low = stride < 0 ? -last : 0;
  const std::string storage = text.storage_type(dtype, width);
  std::string out, elements;
  if (!bits.empty()) {
    uint64_t lanes = 0;
    for (int64_t l = 0; l < width; ++l) lanes |= uint64_t{1} << (l * step);
    elements = text.fresh("k");
    out = cat("const u64 ", elements, " = __builtin_ia32_pdep_di(", bits, ", ", lanes, "ul); ");
    use_masked_load(text, dtype, width);
  }
  std::string before;
  for (int64_t piece = 0; piece < step; ++piece) {
    const int64_t first = std::min(piece * width, last - (width - 1));
    const std::string near = text.fresh("r"), at = cat(pointer, " + ", base, " + ", first + low);
    out += bits.empty() ? cat("const ", storage, " ", near, " = *(const ", text.unaligned_type(dtype, width),
                              "*)(", at, "); ")
                        : cat("const ", storage, " ", near, " = sd_mload", width, "(", at, ", ", elements,
                              " >> ", first, "); ");
    // Lanes whose elements are in this piece are taken from it, the others from the result of earlier pieces.
    std::vector<int64_t> from;
    for (int64_t l = 0; l < width; ++l) {
      const int64_t place = l * stride - low, holder = std::min(place / width, step - 1);
      from.push_back(holder == piece ? (piece == 0 ? 0 : width) + place - first : holder < piece ? l : -1);
    }
    const std::string so_far = piece + 1 == step ? to : text.fresh("r");
    out += cat(piece + 1 == step ? "" : cat("const ", storage, " "), so_far, " = __builtin_shufflevector(",
               piece == 0 ? near : before, ", ", near, ", ",
               join(from, ", ", [](int64_t lane) { return cat(lane); }), "); ");
    before = so_far;
  }
  out.pop_back();
  return out;
}

bool can_store_strided(const KernelText& text, DType dtype, int width, int64_t stride) {
  return text.target().avx512 && stride > 1 &&
         (width - 1) * stride < text.target().vector_bytes / byte_size(dtype);
}

std::string store_strided(KernelText& text, const std::string& from, const StridedElements& to) {
  const auto& [dtype, width, stride, pointer, base] = to;
  int64_t span = width;
  while (span <= (width - 1) * stride) span *= 2;
  std::vector<int64_t> lanes(static_cast<size_t>(span), -1);
  uint64_t elements = 0;
  for (int64_t l = 0; l < width; ++l) {
    lanes[static_cast<size_t>(l * stride)] = l;
    elements |= uint64_t{1} << (l * stride);
  }
  text.use(cat("mstore.", text.storage_type(dtype)), static_cast<int>(span));
  return cat("sd_mstore(", pointer, " + ", base, ", ", elements, "ul, __builtin_shufflevector(", from, ", ",
             from, ", ", join(lanes, ", ", [](int64_t lane) { return cat(lane); }), "));");
}

}  // namespace stridec::codegen
