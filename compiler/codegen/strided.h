// Loads of elements a small constant stride apart, as a few vector loads whose lanes are then put in order.
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

}  // namespace stridec::codegen
