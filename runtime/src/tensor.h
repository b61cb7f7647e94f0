// Callers' tensors: checks, and copies between strided and compact memory.
#pragma once

#include "dtype.h"
#include "stridec/abi.h"
#include "stridec/runtime.h"

namespace stridec::runtime {

class Text;

constexpr int32_t kMaxRank = 64;

// Product of the dims times bytes each; -1 where it overflows.
int64_t compact_bytes(const int64_t* dims, int32_t rank, int64_t element_bytes);

// Device (host memory, or `device`), dtype, rank, non-negative dims, sizes and strides that a machine can address, data where there are
// elements (unless need_data is false). `role` is "input" or "output". On failure one sentence is written.
stridec_status check_tensor(const char* role, const stridec_abi_value& value, const DType& type,
                            const stridec_tensor& tensor, stridec_device device, bool need_data,
                            Text& message);

inline char* data_of(const stridec_tensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

// Whether elements of these dims, placed by the tensor's strides (null: row-major over its own shape), lie as
// compact and aligned as generated code wants them.
bool is_direct(const stridec_tensor& tensor, const int64_t* dims, int64_t element_bytes);

// Whether two index tuples may name one element; interleaved layouts that do not overlap also count as
// overlapping.
bool may_overlap_itself(const stridec_tensor& tensor);

// First and one past the last byte that the tensor's elements occupy; equal where there are none.
struct Extent {
  const char* begin;
  const char* end;
};
Extent extent_of(const stridec_tensor& tensor, int64_t element_bytes);

// Copies dims[0..rank) elements of 1, 2, 4 or 8 bytes; strides count elements, null: compact over dims.
void copy_strided(char* to, const int64_t* to_strides, const char* from, const int64_t* from_strides,
                  const int64_t* dims, int32_t rank, int64_t element_bytes);

}  // namespace stridec::runtime
