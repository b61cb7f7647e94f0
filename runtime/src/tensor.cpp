#include "tensor.h"

#include <string.h>

#include "text.h"

namespace stridec::runtime {
namespace {

bool has_elements(const int64_t* dims, int32_t rank) {
  for (int32_t i = 0; i < rank; ++i)
    if (dims[i] == 0) return false;
  return true;
}

// Distance in bytes from the first element to the farthest, over all dims; -1 if it is not addressable.
int64_t reach_bytes(const stridec_tensor& t, int64_t element_bytes) {
  int64_t reach = 0;
  for (int32_t i = 0; i < t.ndim; ++i) {
    int64_t step, sum;
    if (t.strides[i] == INT64_MIN || __builtin_mul_overflow(magnitude(t.strides[i]), t.shape[i] - 1, &step) ||
        __builtin_mul_overflow(step, element_bytes, &step) || __builtin_add_overflow(reach, step, &sum))
      return -1;
    reach = sum;
  }
  return reach > INT64_MAX / 2 ? -1 : reach;
}

// The loops of a copy, without extents of 1.
int32_t simplify(const int64_t* dims, const int64_t* to, const int64_t* from, int32_t rank, CopyLoop* loops) {
  int32_t n = 0;
  for (int32_t i = 0; i < rank; ++i)
    if (dims[i] != 1) loops[n++] = {dims[i], to[i], from[i]};
  return merge(loops, n);
}

template <class T>
void copy_row(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t count) {
  if (to_stride == 1 && from_stride == 1)
    memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  else
    for (int64_t i = 0; i < count; ++i) memcpy(to + i * to_stride, from + i * from_stride, sizeof(T));
}

// Transposes 4 x 4 elements of 4 bytes in registers: lines of `from` become columns of `to`.
void transpose_block(char* to, int64_t to_line, const char* from, int64_t from_line) {
  typedef uint32_t Four __attribute__((vector_size(16)));
  Four a, b, c, d;
  memcpy(&a, from, sizeof a);
  memcpy(&b, from + from_line, sizeof b);
  memcpy(&c, from + 2 * from_line, sizeof c);
  memcpy(&d, from + 3 * from_line, sizeof d);
  const Four ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5), b = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
  c = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5), d = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
  memcpy(to, &a, sizeof a);
  memcpy(to + to_line, &b, sizeof b);
  memcpy(to + 2 * to_line, &c, sizeof c);
  memcpy(to + 3 * to_line, &d, sizeof d);
}

// Elements of 4 bytes that are adjacent along `along` in `from`, and along `lines` in `to`. Strides in bytes.
void transpose(char* to, const char* from, CopyLoop along, CopyLoop lines) {
  constexpr int64_t kTile = 16;  // elements of a cache line
  const int64_t whole_along = along.count / 4 * 4, whole_lines = lines.count / 4 * 4;
  for (int64_t l0 = 0; l0 < lines.count; l0 += kTile)
    for (int64_t a0 = 0; a0 < along.count; a0 += kTile) {
      const int64_t l1 = lines.count < l0 + kTile ? lines.count : l0 + kTile;
      const int64_t a1 = along.count < a0 + kTile ? along.count : a0 + kTile;
      for (int64_t a = a0; a < a1 && a < whole_along; a += 4)
        for (int64_t l = l0; l < l1 && l < whole_lines; l += 4)
          transpose_block(to + a * along.to + l * 4, along.to, from + l * lines.from + a * 4, lines.from);
      for (int64_t l = l0; l < l1; ++l)
        for (int64_t a = l < whole_lines && a0 < whole_along ? whole_along : a0; a < a1; ++a)
          memcpy(to + a * along.to + l * 4, from + l * lines.from + a * 4, 4);
    }
}

// A transposition accesses one cache line per element on one side. Tiling keeps those lines in the cache.
template <class T>
void copy_tiled(T* to, const T* from, CopyLoop outer, CopyLoop inner) {
  if constexpr (sizeof(T) == 4) {
    const auto bytes = [](CopyLoop loop) { return CopyLoop{loop.count, loop.to * 4, loop.from * 4}; };
    auto* const target = reinterpret_cast<char*>(to);
    auto* const source = reinterpret_cast<const char*>(from);
    if (outer.count >= 4 && inner.count >= 4 && outer.from == 1 && inner.to == 1)
      return transpose(target, source, bytes(outer), bytes(inner));
    if (outer.count >= 4 && inner.count >= 4 && inner.from == 1 && outer.to == 1)
      return transpose(target, source, bytes(inner), bytes(outer));
  }
  constexpr int64_t kTile = 32;
  for (int64_t i0 = 0; i0 < outer.count; i0 += kTile)
    for (int64_t j0 = 0; j0 < inner.count; j0 += kTile) {
      int64_t height = outer.count - i0 < kTile ? outer.count - i0 : kTile;
      int64_t width = inner.count - j0 < kTile ? inner.count - j0 : kTile;
      for (int64_t i = i0; i < i0 + height; ++i)
        copy_row(to + i * outer.to + j0 * inner.to, inner.to, from + i * outer.from + j0 * inner.from,
                 inner.from, width);
    }
}

// Copies the last two loops together and iterates over the others with an odometer.
template <class T>
void copy_loops(T* to, const T* from, const CopyLoop* loops, int32_t n) {
  if (n == 0) {
    memcpy(to, from, sizeof(T));
    return;
  }
  CopyLoop inner = loops[n - 1];
  CopyLoop outer = n > 1 ? loops[n - 2] : CopyLoop{1, 0, 0};
  int64_t index[kMaxRank] = {};
  for (;;) {
    copy_tiled(to, from, outer, inner);
    int32_t d = n - 3;
    for (; d >= 0; --d) {
      to += loops[d].to;
      from += loops[d].from;
      if (++index[d] < loops[d].count) break;
      index[d] = 0;
      to -= loops[d].to * loops[d].count;
      from -= loops[d].from * loops[d].count;
    }
    if (d < 0) return;
  }
}

}  // namespace

int64_t compact_bytes(const int64_t* dims, int32_t rank, int64_t element_bytes) {
  if (!has_elements(dims, rank)) return 0;
  int64_t bytes = element_bytes;
  for (int32_t i = 0; i < rank; ++i)
    if (__builtin_mul_overflow(bytes, dims[i], &bytes)) return -1;
  return bytes > INT64_MAX / 2 ? -1 : bytes;
}

stridec_status check_tensor(const char* role, const stridec_abi_value& value, const DType& type,
                            const stridec_tensor& t, stridec_device device, bool need_data, Text& message) {
  auto sentence = [&]() -> Text& { return message << role << " '" << value.name << "': "; };
  bool on_device = t.device.type == device.type && t.device.id == device.id;
  if (t.device.type != STRIDEC_DEVICE_CPU && !on_device) {
    sentence() << "it is on a device of DLPack type " << t.device.type;
    if (device.type == STRIDEC_DEVICE_CPU)
      message << "; expected memory of the CPU (type 1)";
    else
      message << " (id " << t.device.id
              << "); expected memory of the CPU (type 1) or of the model's GPU (type 2, id " << device.id
              << ")";
    return STRIDEC_WRONG_TYPE;
  }
  if (!accepts(type, t.dtype)) {
    sentence() << "its dtype is " << t.dtype << "; expected " << type.name;
    return STRIDEC_WRONG_TYPE;
  }
  if (t.ndim != value.rank) {
    sentence() << "it has " << t.ndim << (t.ndim == 1 ? " dim" : " dims") << "; expected " << value.rank;
    return STRIDEC_WRONG_TYPE;
  }
  if (t.ndim && !t.shape) {
    sentence() << "its shape is null";
    return STRIDEC_INVALID_ARGUMENT;
  }
  for (int32_t i = 0; i < t.ndim; ++i)
    if (t.shape[i] < 0) {
      sentence() << "dim " << i << " is " << t.shape[i];
      return STRIDEC_WRONG_SHAPE;
    }
  bool elements = has_elements(t.shape, t.ndim);
  if (compact_bytes(t.shape, t.ndim, byte_size(type)) < 0) {
    sentence() << "its shape " << Dims{t.shape, t.ndim} << " is more than memory can hold";
    return STRIDEC_WRONG_SHAPE;
  }
  if (elements && t.strides && reach_bytes(t, byte_size(type)) < 0) {
    sentence() << "its strides reach further than memory can";
    return STRIDEC_WRONG_SHAPE;
  }
  if (need_data && elements && !t.data) {
    sentence() << "its data is null";
    return STRIDEC_INVALID_ARGUMENT;
  }
  return STRIDEC_OK;
}

void strides_of(const Compact& memory, int64_t* strides) {
  int64_t stride = 1;
  for (int32_t i = memory.rank; i-- > 0;) {
    const int32_t d = memory.order ? memory.order[i] : i;
    strides[d] = stride;
    stride *= memory.dims[d] > 0 ? memory.dims[d] : 1;
  }
}

bool is_direct(const stridec_tensor& t, const Compact& memory) {
  const int64_t* const dims = memory.dims;
  if (!has_elements(dims, t.ndim)) return true;
  if (reinterpret_cast<uintptr_t>(data_of(t)) % static_cast<uintptr_t>(memory.element_bytes)) return false;
  int64_t expected[kMaxRank], own[kMaxRank];
  strides_of(memory, expected);
  strides_of({t.shape, nullptr, t.ndim, memory.element_bytes}, own);
  for (int32_t i = 0; i < t.ndim; ++i)
    if (dims[i] != 1 && (t.strides ? t.strides[i] : own[i]) != expected[i]) return false;
  return true;
}

int32_t merge(CopyLoop* loops, int32_t count) {
  int32_t n = 0;
  for (int32_t i = 0; i < count; ++i) {
    const CopyLoop next = loops[i];
    if (n && loops[n - 1].to == next.to * next.count && loops[n - 1].from == next.from * next.count)
      loops[n - 1] = {loops[n - 1].count * next.count, next.to, next.from};
    else
      loops[n++] = next;
  }
  return n;
}

bool may_overlap_itself(const stridec_tensor& t) {
  if (!t.strides || !has_elements(t.shape, t.ndim)) return false;
  // In order of increasing stride, each stride must exceed the reach of the smaller ones.
  bool taken[kMaxRank] = {};
  int64_t reach = 0;
  for (int32_t n = 0; n < t.ndim; ++n) {
    int32_t least = -1;
    for (int32_t i = 0; i < t.ndim; ++i)
      if (!taken[i] && (least < 0 || magnitude(t.strides[i]) < magnitude(t.strides[least]))) least = i;
    taken[least] = true;
    if (t.shape[least] == 1) continue;
    if (magnitude(t.strides[least]) <= reach) return true;
    reach += magnitude(t.strides[least]) * (t.shape[least] - 1);
  }
  return false;
}

Extent extent_of(const stridec_tensor& t, int64_t element_bytes) {
  const char* first = data_of(t);
  if (!has_elements(t.shape, t.ndim)) return {first, first};
  if (!t.strides) return {first, first + compact_bytes(t.shape, t.ndim, element_bytes)};
  Extent extent = {first, first + element_bytes};
  for (int32_t i = 0; i < t.ndim; ++i) {
    int64_t reach = t.strides[i] * (t.shape[i] - 1) * element_bytes;
    (reach < 0 ? extent.begin : extent.end) += reach;
  }
  return extent;
}

void copy_strided(char* to, const int64_t* to_strides, const char* from, const int64_t* from_strides,
                  const int64_t* dims, int32_t rank, int64_t element_bytes) {
  if (!has_elements(dims, rank)) return;
  int64_t compact[kMaxRank];
  strides_of({dims, nullptr, rank, element_bytes}, compact);
  CopyLoop loops[kMaxRank];
  int32_t n =
      simplify(dims, to_strides ? to_strides : compact, from_strides ? from_strides : compact, rank, loops);
  // The loops may be in any order. The one that is contiguous on the strided side becomes the second
  // innermost.
  for (int32_t i = 0; i + 2 < n; ++i) {
    CopyLoop loop = loops[i];
    if (magnitude(loop.to) != 1 && magnitude(loop.from) != 1) continue;
    for (int32_t j = i; j + 2 < n; ++j) loops[j] = loops[j + 1];
    loops[n - 2] = loop;
    break;
  }
  // Only the element size matters: elements are copied with memcpy, so nothing is assumed about alignment or
  // aliasing.
  struct Two {
    char bytes[2];
  };
  struct Four {
    char bytes[4];
  };
  struct Eight {
    char bytes[8];
  };
  switch (element_bytes) {
    case 1: return copy_loops(to, from, loops, n);
    case 2: return copy_loops(reinterpret_cast<Two*>(to), reinterpret_cast<const Two*>(from), loops, n);
    case 4: return copy_loops(reinterpret_cast<Four*>(to), reinterpret_cast<const Four*>(from), loops, n);
    default: return copy_loops(reinterpret_cast<Eight*>(to), reinterpret_cast<const Eight*>(from), loops, n);
  }
}

}  // namespace stridec::runtime
