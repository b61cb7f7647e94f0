// Loads of elements a small constant stride apart, as a few vector loads whose lanes are then put in order, and stores of
// such elements, as a masked one.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// Is there such a load? `masked`: of some lanes alone.
bool can_load_strided(const KernelText& text, DType dtype, int width, int64_t stride, bool masked);

// Statements that set the vector `to` (storage_type(dtype, width)) to pointer[base + stride * l] of lane l. Nothing before
// the first lane's element or behind the last one's is read, and with `bits` (a u64 of lanes, empty: all) nothing of lanes
// that are off; those become 0.
std::string load_strided(KernelText& text, DType dtype, int width, int64_t stride, const std::string& to,
                         const std::string& pointer, const std::string& base, const std::string& bits);

// Is there such a store? A register has to span its elements.
bool can_store_strided(const KernelText& text, DType dtype, int width, int64_t stride);

// The statement that sets pointer[base + stride * l] to lane l of the vector `from` (storage_type(dtype, width)), and
// nothing between them.
std::string store_strided(KernelText& text, DType dtype, int width, int64_t stride, const std::string& from,
                          const std::string& pointer, const std::string& base);

}  // namespace stridec::codegen
