// Checks the caller's tensors, and copies between strided and compact memory.
#pragma once

#include "dtype.h"
#include "stridec/abi.h"
#include "stridec/runtime.h"

namespace stridec::runtime {

class Text;

constexpr int32_t kMaxRank = 64;

// The product of the dims and the element size; -1 on overflow.
int64_t compact_bytes(const int64_t* dims, int32_t rank, int64_t element_bytes);

// Checks device (host memory, or `device`), dtype, rank, that dims are not negative, that sizes and strides
// are addressable, and that data is not null if there are elements (unless need_data is false). `role` is
// "input" or "output". On failure one sentence is written.
stridec_status check_tensor(const char* role, const stridec_abi_value& value, const DType& type,
                            const stridec_tensor& tensor, stridec_device device, bool need_data,
                            Text& message);

inline char* data_of(const stridec_tensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

// The compact memory of a value that generated code works on.
struct Compact {
  const int64_t* dims;
  const int32_t* order;  // stridec_abi_value.memory_order
  int32_t rank;
  int64_t element_bytes;
};
void strides_of(const Compact& memory, int64_t* strides);

// Whether elements with these dims and the tensor's strides (null: row-major over its own shape) lie as in
// the compact memory, and are aligned as generated code requires.
bool is_direct(const stridec_tensor& tensor, const Compact& memory);

// Whether two index tuples may address the same element. Conservative: interleaved layouts that do not
// overlap also return true.
bool may_overlap_itself(const stridec_tensor& tensor);

// The first byte that the tensor's elements occupy and one past the last; equal if there are none.
struct Extent {
  const char* begin;
  const char* end;
};
Extent extent_of(const stridec_tensor& tensor, int64_t element_bytes);

// A copy of elements of 1, 2, 4 or 8 bytes between strided tensors. Strides are in elements.
struct StridedCopy {
  char* to;
  const char* from;
  const int64_t *to_strides, *from_strides, *dims;
  int32_t rank;
  int64_t element_bytes;
};

// One loop of such a copy.
struct CopyLoop {
  int64_t count, to, from;
};
inline int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }
// Merges adjacent loops, outermost first, that are contiguous on both sides. Returns how many are left.
int32_t merge(CopyLoop* loops, int32_t count);

// Copies dims[0..rank) elements of 1, 2, 4 or 8 bytes. Strides are in elements; null: compact over dims.
void copy_strided(char* to, const int64_t* to_strides, const char* from, const int64_t* from_strides,
                  const int64_t* dims, int32_t rank, int64_t element_bytes);

}  // namespace stridec::runtime
