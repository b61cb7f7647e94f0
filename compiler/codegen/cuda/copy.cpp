#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/emit.h"
#include "runtime/include/stridec/abi.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kThreads = 256;

// A thread copies every kThreads-th element of a tile, numbered along one of the two loops first. It divides
// once: the next element is a constant distance away, or that and a row's.
constexpr std::string_view kTile = R"(
struct Loop { int64_t count, to, from; };
struct alignas(16) Sixteen { unsigned long long words[2]; };

// The column and the row of a thread's element, in rows of `size` elements.
struct Position {
  int column, row;
  const int size, columns, rows;  // columns, rows: to the thread's next element
  Position(int size) : column(threadIdx.x % size), row(threadIdx.x / size), size(size),
                       columns(THREADS % size), rows(THREADS / size) {}
  // Returns whether the next element is in one row more.
  bool advance() {
    column += columns;
    const bool wraps = column >= size;
    if (wraps) column -= size;
    return wraps;
  }
};

// The element's offset in memory.
template <class Offset>
struct Walk {
  Offset offset;
  const Offset step, carry;  // carry: in addition, for one row more
  Walk(const Position& at, Offset column, Offset row)
      : offset(at.column * column + at.row * row), step(at.columns * column + at.rows * row),
        carry(row - at.size * column) {}
  void advance(bool wraps) { offset += wraps ? step + carry : step; }
};

// Copies the thread's elements of a tile.
template <class T, class To, class From>
static inline void copy_elements(T* __restrict to, Walk<To> write, const T* __restrict from, Walk<From> read, Position at,
                                 int count) {
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += THREADS) {
    to[write.offset] = from[read.offset];
    const bool wraps = at.advance();
    write.advance(wraps);
    read.advance(wraps);
  }
}

// An odd pitch spreads a column over the banks.
template <class T>
static inline void transpose_tile(T* to, const T* from, Loop a, Loop b, Position at_a, Position at_b, T* shared) {
  const int count = (int)(a.count * b.count), pitch = (int)b.count | 1;
  copy_elements<T, int, int64_t>(shared, {at_b, 1, pitch}, from, {at_b, b.from, a.from}, at_b, count);
  __syncthreads();
  copy_elements<T, int64_t, int>(to, {at_a, a.to, b.to}, shared, {at_a, pitch, 1}, at_a, count);
}

template <class T>
static inline void copy(char* to, const char* from, bool staged, Loop a, Loop b, int64_t at_to, int64_t at_from,
                        Position at_a, Position at_b, unsigned char* shared) {
  T* const target = (T*)to + at_to;
  const T* const source = (const T*)from + at_from;
  if (staged)
    transpose_tile<T>(target, source, a, b, at_a, at_b, (T*)shared);
  else
    copy_elements<T, int64_t, int64_t>(target, {at_a, a.to, b.to}, source, {at_a, a.from, b.from}, at_a,
                                       (int)(a.count * b.count));
}

// Takes the tile's index in the loop from the number of the block.
static inline int64_t take(unsigned& number, int64_t count) {
  if (count == 1) return 0;
  const unsigned index = number % (unsigned)count;
  number /= (unsigned)count;
  return index;
}

// The part of a loop that is in the tile. Adds the offsets of its first element.
static inline Loop part(Loop loop, int64_t size, unsigned& number, int64_t& to, int64_t& from) {
  const int64_t first = take(number, (loop.count + size - 1) / size) * size;
  to += first * loop.to;
  from += first * loop.from;
  const int64_t left = loop.count - first;
  return {left < size ? left : size, loop.to, loop.from};
}
)";

std::string word(int number) { return cat("w", number); }
std::string loop(int first) {
  return cat("{", word(first), ", ", word(first + 1), ", ", word(first + 2), "}");
}

}  // namespace

DeviceKernel emit_copy() {
  DeviceKernel out;
  out.threads = kThreads;
  std::string& text = out.code.text;
  text = cat(prelude(), "#define THREADS ", kThreads, kTile);
  text +=
      cat("extern \"C\" __global__ void __launch_bounds__(", kThreads, ") KERNEL(char* to, const char* from");
  for (int i = STRIDEC_ABI_COPY_ELEMENT; i < STRIDEC_ABI_COPY_WORDS; ++i)
    text += cat(", const int64_t ", word(i));
  text += cat(") {\n  alignas(16) __shared__ unsigned char shared[", int{STRIDEC_ABI_COPY_SHARED}, "];\n",
              "  unsigned number = blockIdx.x;\n  int64_t at_to = 0, at_from = 0;\n");
  for (const auto& [name, first, size] : {std::tuple("a", STRIDEC_ABI_COPY_A, STRIDEC_ABI_COPY_TILE_A),
                                          std::tuple("b", STRIDEC_ABI_COPY_B, STRIDEC_ABI_COPY_TILE_B)})
    text +=
        cat("  const Loop ", name, " = part(", loop(first), ", ", word(size), ", number, at_to, at_from);\n");
  for (int i = 0; i < STRIDEC_ABI_COPY_OUTER; ++i)
    text += cat("  part(", loop(STRIDEC_ABI_COPY_LOOPS + 3 * i), ", 1, number, at_to, at_from);\n");
  text += "  const Position at_a((int)a.count), at_b((int)b.count);\n";
  text += cat("  const bool staged = ", word(STRIDEC_ABI_COPY_STAGED), ";\n  switch (",
              word(STRIDEC_ABI_COPY_ELEMENT), ") {\n");
  for (const auto& [bytes, type] :
       {std::pair(1, "unsigned char"), {2, "unsigned short"}, {4, "unsigned"}, {8, "unsigned long long"}})
    text += cat("    case ", bytes, ": copy<", type,
                ">(to, from, staged, a, b, at_to, at_from, at_a, at_b, shared); break;\n");
  text += "    case 16: copy<Sixteen>(to, from, false, a, b, at_to, at_from, at_a, at_b, shared);\n  }\n}\n";
  return out;
}

}  // namespace stridec::codegen::cuda
