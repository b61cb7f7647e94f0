// Loads of elements with a small constant stride by a few vector loads and permutations, and stores of such
// elements by one masked store.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// Whether a masked load of contiguous elements is one instruction per register: of any type with AVX-512, of
// 32 and 64 bits with AVX2.
bool has_masked_loads(const CpuTarget& target, DType dtype, int width);
// Adds the helper sd_mload to the kernel's text.
void use_masked_load(KernelText& text, DType dtype, int width);

// Whether such a load is available. `masked`: for some lanes only.
bool can_load_strided(const KernelText& text, DType dtype, int width, int64_t stride, bool masked);

// The elements pointer[base + stride * l], one in each lane l of a vector (storage_type(dtype, width)).
struct StridedElements {
  DType dtype;
  int width;
  int64_t stride;
  std::string pointer, base;
};

// Statements that load the elements to the vector `to`. Nothing before the first lane's element or after the
// last one's is read. With `bits` (a u64 of lanes, empty: all) no elements of masked-off lanes are read;
// those lanes become 0.
std::string load_strided(KernelText& text, const StridedElements& source, const std::string& to,
                         const std::string& bits);

// Whether such a store is available: one register must span its elements.
bool can_store_strided(const KernelText& text, DType dtype, int width, int64_t stride);

// The statement that stores the vector `from` to the elements; those in between are unchanged.
std::string store_strided(KernelText& text, const std::string& from, const StridedElements& to);

}  // namespace stridec::codegen
