#include "transfer.h"

namespace stridec::runtime {
namespace {

// A copy by several threads, in parts along one dim.
struct ParallelCopy {
  StridedCopy whole;
  int32_t split, parts;
};

void copy_part(void* argument, int32_t part) {
  const auto& [copy, split, parts] = *static_cast<const ParallelCopy*>(argument);
  const int64_t first = stridec_abi_share(copy.dims[split], parts, part);
  int64_t dims[kMaxRank];
  for (int32_t d = 0; d < copy.rank; ++d) dims[d] = copy.dims[d];
  dims[split] = stridec_abi_share(copy.dims[split], parts, part + 1) - first;
  copy_strided(copy.to + first * copy.to_strides[split] * copy.element_bytes, copy.to_strides,
               copy.from + first * copy.from_strides[split] * copy.element_bytes, copy.from_strides, dims,
               copy.rank, copy.element_bytes);
}

void copy_by_threads(const stridec_context& c, const StridedCopy& copy) {
  constexpr int64_t kWorthThreads = 64 << 10;  // bytes; below, waking threads takes longer
  ParallelCopy parallel = {copy, 0, 1};
  for (int32_t d = 1; d < copy.rank; ++d)
    if (copy.dims[d] > copy.dims[parallel.split]) parallel.split = d;
  if (copy.rank && compact_bytes(copy.dims, copy.rank, copy.element_bytes) >= kWorthThreads)
    parallel.parts = static_cast<int32_t>(stridec_abi_parts(copy.dims[parallel.split], 1, c.threads));
  if (parallel.parts > 1)
    run_parts(c, parallel.parts, copy_part, &parallel);
  else
    copy_strided(copy.to, copy.to_strides, copy.from, copy.from_strides, copy.dims, copy.rank,
                 copy.element_bytes);
}

// The strides of both sides of a copy.
struct Sides {
  int64_t compact[kMaxRank], own[kMaxRank];
  const int64_t* given;  // the tensor's; row-major over its shape if it has none

  Sides(const stridec_tensor& t, const Compact& memory) : given(t.strides ? t.strides : own) {
    strides_of(memory, compact);
    if (!t.strides) strides_of({t.shape, nullptr, t.ndim, 1}, own);
  }
  StridedCopy to_compact(char* to, const stridec_tensor& t, const Compact& memory) const {
    return {to, data_of(t), compact, given, memory.dims, memory.rank, memory.element_bytes};
  }
  StridedCopy from_compact(const char* from, const stridec_tensor& t, const Compact& memory) const {
    return {data_of(t), from, given, compact, memory.dims, memory.rank, memory.element_bytes};
  }
};

// Calls copy(block) with compact memory on the GPU, for the way between a tensor there and the host.
template <class Copy>
stridec_status copy_through_device(stridec_context& c, int64_t bytes, Text& message, const Copy& copy) {
  Block block = {};
  if (!grow(c.device_allocator, block, bytes))
    return out_of_memory(message, "a copy of a strided tensor", bytes);
  const stridec_status status = copy(block.data) ? STRIDEC_OK : device_error(c, message);
  release(c.device_allocator, block);
  return status;
}

}  // namespace

bool gather_on_device(stridec_context& c, const stridec_tensor& t, const Compact& memory, char* to) {
  return cuda_copy_strided(*c.cuda, Sides(t, memory).to_compact(to, t, memory));
}

bool scatter_on_device(stridec_context& c, const char* from, const stridec_tensor& t, const Compact& memory) {
  return cuda_copy_strided(*c.cuda, Sides(t, memory).from_compact(from, t, memory));
}

stridec_status gather(stridec_context& c, const stridec_tensor& t, const Compact& memory, char* to,
                      Text& message) {
  if (!on_device(t)) {
    copy_by_threads(c, Sides(t, memory).to_compact(to, t, memory));
    return STRIDEC_OK;
  }
  const int64_t bytes = compact_bytes(memory.dims, memory.rank, memory.element_bytes);
  return copy_through_device(c, bytes, message, [&](char* block) {
    return gather_on_device(c, t, memory, block) && cuda_download(*c.cuda, to, block, bytes);
  });
}

stridec_status scatter(stridec_context& c, const char* from, const stridec_tensor& t, const Compact& memory,
                       Text& message) {
  if (!on_device(t)) {
    copy_by_threads(c, Sides(t, memory).from_compact(from, t, memory));
    return STRIDEC_OK;
  }
  const int64_t bytes = compact_bytes(memory.dims, memory.rank, memory.element_bytes);
  return copy_through_device(c, bytes, message, [&](char* block) {
    return cuda_upload(*c.cuda, block, from, bytes) && scatter_on_device(c, block, t, memory) &&
           cuda_wait(*c.cuda);
  });
}

}  // namespace stridec::runtime
