#include "compiler/codegen/cuda/common/vector_access.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cuda {
namespace {

using sym::Expr;

constexpr int kMostWidth = 8;

// Whether e is a multiple of n for all values of the indices; may add conditions on sizes.
bool divides(Expr e, int64_t n, const sym::Facts& facts, std::vector<Expr>& conditions) {
  if (facts.known_divisor(e) % n == 0) return true;
  std::vector<Expr> terms = {e};
  if (e.op() == sym::Op::kAdd) terms.assign(e.args().begin(), e.args().end());
  for (const Expr& term : terms) {
    if (facts.known_divisor(term) % n == 0) continue;
    Expr size = 1;  // the factors without indices
    if (term.op() == sym::Op::kMul) {
      for (const Expr& factor : term.args())
        if (!sym::has_index(factor)) size *= factor;
    } else if (!sym::has_index(term)) {
      size = term;
    }
    if (size.is_const()) return false;
    conditions.push_back(sym::eq(sym::mod(size, n), 0));
  }
  return true;
}

// Whether the mask is the same for all n elements that begin at a multiple of n, because each bound on the
// index is a multiple of n.
bool is_uniform(Expr mask, Expr var, int n, const sym::Facts& facts) {
  for (const Expr& part : loop::conjuncts(mask)) {
    if (!sym::depends_on(part, var)) continue;
    if (part.op() != sym::Op::kLe && part.op() != sym::Op::kLt) return false;
    const auto distance = sym::linear_in(part.args()[1] - part.args()[0], var);
    if (!distance || sym::depends_on(distance->rest, var)) return false;
    // 0 <= var + rest: lower bound -rest; 0 <= rest - var: upper bound rest.
    const Expr rest = part.op() == sym::Op::kLe ? distance->rest : distance->rest - 1;
    const bool from = distance->coefficient.is_const(1);
    if (!from && !distance->coefficient.is_const(-1)) return false;
    const Expr bound = sym::simplify(from ? rest : rest + 1, facts);
    if (!bound.is_const(0) && facts.known_divisor(bound) % n != 0) return false;
  }
  return true;
}

}  // namespace

bool is_updated_in_place(const loop::Nest& nest, loop::BufferId id) {
  const loop::Access* first = nullptr;
  bool in_place = true, stored = false;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    const loop::Access* access = loop::access_of(stmt);
    if (!access || access->buffer != id) return;
    if (!first) first = access;
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    in_place = in_place && access->index == first->index && access->mask.is_const(1) &&
               !(store && store->update) && (store || !stored);
    stored = stored || store;
  });
  return in_place;
}

std::optional<Strip> plan_strip(const loop::Program& program, const loop::Nest& nest,
                                const loop::Block& block, Expr var, Expr extent, const sym::Facts& facts,
                                int width) {
  // In a loop that a thread group shares, threads without an iteration of their own load what others store.
  const bool points = &block == &nest.body;
  const loop::Effects effects = loop::effects_of(nest);
  auto both = [&](loop::BufferId id) {
    return std::count(effects.reads.begin(), effects.reads.end(), id) &&
           std::count(effects.writes.begin(), effects.writes.end(), id) &&
           !(points && is_updated_in_place(nest, id));
  };
  // Elements at data-dependent indices: the index may be known only within the block, and there may be no
  // such element.
  std::vector<Expr> bound;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node)) bound.push_back(bind->var);
  });
  auto from_data = [&](const loop::Access& access) {
    return std::any_of(access.index.begin(), access.index.end(), [&](Expr index) {
      return std::any_of(bound.begin(), bound.end(), [&](Expr v) { return sym::depends_on(index, v); });
    });
  };
  Strip strip{.var = var};
  int least = 16;
  for (const loop::Stmt& stmt : block) {
    const loop::Access* access = loop::access_of(stmt);
    if (!access) continue;
    const loop::Buffer& buffer = program[access->buffer];
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if ((store && (store->update || !access->mask.is_const(1))) || buffer.storage == loop::Storage::kLocal ||
        both(access->buffer) || from_data(*access))
      continue;
    const auto stride = loop::stride_of(program, *access, var, facts);
    if (!stride || !stride->is_const(1)) continue;
    strip.vectors.push_back(&stmt);
    least = std::min(least, byte_size(buffer.dtype));
  }
  if (strip.vectors.empty() && !width) return std::nullopt;
  strip.width = width ? width : std::min(16 / least, kMostWidth);
  if (!divides(extent, strip.width, facts, strip.conditions)) return std::nullopt;
  std::erase_if(strip.vectors, [&](const loop::Stmt* stmt) {
    const loop::Access& access = *loop::access_of(*stmt);
    if (!is_uniform(access.mask, var, strip.width, facts)) return true;
    const Expr start = sym::simplify(sym::substitute(loop::offset_of(program, access), var, 0), facts);
    std::vector<Expr> conditions;
    if (!divides(start, strip.width, facts, conditions)) return true;
    strip.conditions.insert(strip.conditions.end(), conditions.begin(), conditions.end());
    if (is_callers(program, access.buffer) &&
        !std::count(strip.aligned.begin(), strip.aligned.end(), access.buffer))
      strip.aligned.push_back(access.buffer);
    return false;
  });
  if (strip.vectors.empty() && !width) return std::nullopt;
  std::sort(strip.conditions.begin(), strip.conditions.end(), sym::ExprLess());
  strip.conditions.erase(std::unique(strip.conditions.begin(), strip.conditions.end()),
                         strip.conditions.end());
  return strip;
}

void print_strip(KernelText& text, Body& body, const loop::Block& block, const Strip& strip,
                 const std::string& first, const StripOptions& options) {
  const loop::Program& program = text.program();
  std::vector<std::string> names;
  body.set_index(strip.var, first);
  for (const loop::Stmt* stmt : strip.vectors) {
    const loop::Access& access = *loop::access_of(*stmt);
    const std::string storage = text.storage_type(program[access.buffer].dtype);
    names.push_back(text.fresh("vec"));
    if (std::holds_alternative<loop::Store>(stmt->node)) {
      text.line(cat("Vec<", storage, ", ", strip.width, "> ", names.back(), ";"));
      continue;
    }
    if (const std::string vector = options.held ? options.held(*stmt) : ""; !vector.empty()) {
      names.back() = vector;
      continue;
    }
    const std::string type = cat("Vec<", storage, ", ", strip.width, ">");
    const std::string loaded =
        cat("sd_load<", strip.width, ">(", text.pointer(access.buffer), " + ", body.offset(access), ")");
    const std::string condition = body.condition(access);
    if (condition.empty()) {
      text.line(cat("const ", type, " ", names.back(), " = ", loaded, ";"));
      continue;
    }
    const std::string fill = body.stored_fill(std::get<loop::Load>(stmt->node));
    text.line(cat(type, " ", names.back(), ";"));
    text.line(cat("if (", condition, ") ", names.back(), " = ", loaded, ";"));
    text.line(cat("else for (int e = 0; e < ", strip.width, "; ++e) ", names.back(), ".e[e] = ", fill, ";"));
  }
  const std::string u = "u";
  text.line("#pragma unroll");
  text.open(options.down ? cat("for (int ", u, " = ", strip.width - 1, "; ", u, " >= 0; --", u, ")")
                         : cat("for (int ", u, " = 0; ", u, " < ", strip.width, "; ++", u, ")"));
  body.set_index(strip.var, cat("(", first, " + ", u, ")"));
  for (const loop::Stmt& stmt : block) {
    const auto found = std::find(strip.vectors.begin(), strip.vectors.end(), &stmt);
    if (found == strip.vectors.end()) {
      body.print(stmt);
      continue;
    }
    const std::string element = cat(names[static_cast<size_t>(found - strip.vectors.begin())], ".e[", u, "]");
    const DType dtype = program[loop::access_of(stmt)->buffer].dtype;
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (load && dtype == DType::kBF16 && strip.width % 2 == 0) {
      const std::string name = text.fresh("v");
      text.line(cat("const ", text.value_type(dtype), " ", name, " = sd_widened(",
                    names[static_cast<size_t>(found - strip.vectors.begin())], ", ", u, ");"));
      body.set_value(load->result, {.text = name, .dtype = dtype, .width = 1, .stored = element});
    } else if (load)
      body.set_stored(load->result, element, dtype);
    else
      text.line(cat(element, " = ",
                    body.to_storage(body.value(std::get<loop::Store>(stmt.node).value), dtype), ";"));
  }
  if (options.each) options.each();
  text.close();
  body.set_index(strip.var, first);
  for (size_t i = 0; i < strip.vectors.size(); ++i)
    if (const auto* store = std::get_if<loop::Store>(&strip.vectors[i]->node))
      text.line(cat("sd_store<", strip.width, ">(", text.pointer(store->access.buffer), " + ",
                    body.offset(store->access), ", ", names[i],
                    options.when.empty() ? "" : ", " + options.when, ");"));
}

std::string_view strip_declarations() {
  return R"(template <class T, int N> struct Vec { T e[N]; };
template <int B> struct sd_piece;
template <> struct sd_piece<16> { typedef uint4 type; };
template <> struct sd_piece<8> { typedef uint2 type; };
template <> struct sd_piece<4> { typedef unsigned type; };
template <> struct sd_piece<2> { typedef unsigned short type; };
template <> struct sd_piece<1> { typedef unsigned char type; };
template <class T, int N> struct sd_pieces {
  static constexpr int bytes = sizeof(T) * N, piece = bytes < 16 ? bytes : 16, count = bytes / piece;
  typedef typename sd_piece<piece>::type type;
  type p[count];
};
template <int N, class T> static inline Vec<T, N> sd_load(const T* from) {
  sd_pieces<T, N> raw;
#pragma unroll
  for (int i = 0; i < raw.count; ++i) raw.p[i] = ((const typename sd_pieces<T, N>::type*)from)[i];
  return __builtin_bit_cast(Vec<T, N>, raw);
}
template <class T, int N> struct sd_words {
  static constexpr int count = sizeof(T) * N / 4;
  unsigned w[count];
};
// Widens a bf16 in its 32-bit word: one instruction; widening a separate element takes two.
template <int N> static inline float sd_widened(const Vec<unsigned short, N>& from, int at) {
  const unsigned word = __builtin_bit_cast(sd_words<unsigned short, N>, from).w[at / 2];
  return __builtin_bit_cast(float, at % 2 ? word & 0xffff0000u : word << 16);
}
// Inline assembly, since the compiler splits a packed store into stores of single elements.
template <int N, class T> static inline void sd_store(T* to, const Vec<T, N>& value) {
#ifndef STRIDEC_EMULATE
  if constexpr (sizeof(T) * N % 16 == 0) {
    const sd_words<T, N> raw = __builtin_bit_cast(sd_words<T, N>, value);
#pragma unroll
    for (int i = 0; i < raw.count; i += 4)
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"((char*)to + 4 * i), "r"(raw.w[i]),
                   "r"(raw.w[i + 1]), "r"(raw.w[i + 2]), "r"(raw.w[i + 3]));
    return;
  } else if constexpr (sizeof(T) * N == 8) {
    const sd_words<T, N> raw = __builtin_bit_cast(sd_words<T, N>, value);
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(raw.w[0]), "r"(raw.w[1]));
    return;
  }
#endif
  const sd_pieces<T, N> raw = __builtin_bit_cast(sd_pieces<T, N>, value);
#pragma unroll
  for (int i = 0; i < raw.count; ++i) ((typename sd_pieces<T, N>::type*)to)[i] = raw.p[i];
}
// A pointer to global memory, opaque to the compiler, which would recompute the address for each element.
template <class T> static inline T* sd_opaque(T* at) {
#ifndef STRIDEC_EMULATE
  asm("" : "+l"(at));
  __builtin_assume(__isGlobal(at));
#endif
  return at;
}
// Predicated stores. With a branch the compiler would also move the computation of the value into it.
template <class T> static inline void sd_put(T* to, T value, unsigned there) {
#ifndef STRIDEC_EMULATE
  if constexpr (sizeof(T) == 8)
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.u64 [%0], %1; }" ::"l"(to),
                 "l"(__builtin_bit_cast(unsigned long, value)), "r"(there) : "memory");
  else if constexpr (sizeof(T) == 4)
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.u32 [%0], %1; }" ::"l"(to),
                 "r"(__builtin_bit_cast(unsigned, value)), "r"(there) : "memory");
  else if constexpr (sizeof(T) == 2)
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.u16 [%0], %1; }" ::"l"(to),
                 "h"(__builtin_bit_cast(unsigned short, value)), "r"(there) : "memory");
  else
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.u8 [%0], %1; }" ::"l"(to),
                 "r"((unsigned)__builtin_bit_cast(unsigned char, value)), "r"(there) : "memory");
#else
  if (there) *to = value;
#endif
}
template <int N, class T> static inline void sd_store(T* to, const Vec<T, N>& value, bool there) {
#ifndef STRIDEC_EMULATE
  if constexpr (sizeof(T) * N % 16 == 0) {
    const sd_words<T, N> raw = __builtin_bit_cast(sd_words<T, N>, value);
#pragma unroll
    for (int i = 0; i < raw.count; i += 4)
      asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p st.global.v4.u32 [%0], {%1, %2, %3, %4}; }" ::"l"((char*)to + 4 * i),
                   "r"(raw.w[i]), "r"(raw.w[i + 1]), "r"(raw.w[i + 2]), "r"(raw.w[i + 3]), "r"((unsigned)there));
    return;
  }
#endif
  if (there) sd_store<N>(to, value);
}
// The two aligned 16-byte vectors that contain N consecutive elements.
template <class T, int N> struct Cover { uint4 low, high; };
// The end in the type of an index. For an int it is at most 2^30: elements from there on are unused.
template <class I> static inline I sd_end(int64_t end) { return sizeof(I) == 4 && end > 1 << 30 ? 1 << 30 : (I)end; }
// Loads the vectors that contain elements [at, at+N) of `end`. A vector past the last whole one is replaced by that one, so
// that no load depends on a branch.
template <int N, class T, class I> static inline Cover<T, N> sd_load_cover(const T* from, I at, int64_t end) {
  const I low = at & -N, last = (sd_end<I>(end) & -N) - N;
  return {*(const uint4*)(from + (low < last ? low : last)), *(const uint4*)(from + (low + N < last ? low + N : last))};
}
static inline unsigned sd_funnel(unsigned low, unsigned high, int bits) {
#ifdef STRIDEC_EMULATE
  return (unsigned)(((unsigned long)high << 32 | low) >> bits);
#else
  return __funnelshift_r(low, high, bits);
#endif
}
// Returns the N elements; elements past the end are unspecified.
template <int N, class T, class I> static inline Vec<T, N> sd_uncover(const Cover<T, N>& cover, const T* from, I at, int64_t end) {
  const I last = sd_end<I>(end);
  if ((at & -N) + 2 * N > (last & -N)) {
    Vec<T, N> out;
    for (int e = 0; e < N; ++e) out.e[e] = from[at + e < last ? at + e : last - 1];
    return out;
  }
  unsigned w[8] = {cover.low.x, cover.low.y, cover.low.z, cover.low.w, cover.high.x, cover.high.y, cover.high.z, cover.high.w};
  const int bytes = (int)(at & (N - 1)) * (int)sizeof(T);
#pragma unroll
  for (int i = 0; i < 6; ++i) w[i] = bytes & 8 ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = bytes & 4 ? w[i + 1] : w[i];
  if (sizeof(T) < 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = sd_funnel(w[i], w[i + 1], bytes % 4 * 8);
  }
  return __builtin_bit_cast(Vec<T, N>, uint4{w[0], w[1], w[2], w[3]});
}
// Loads an aligned vector; elements from `end` on are unspecified. The loop shifts the elements into registers, since an array
// would be placed in local memory.
template <int N, class T> static inline sd_words<T, N> sd_load_head(const T* from, int64_t at, int64_t end) {
  typedef typename sd_piece<sizeof(T) < 4 ? sizeof(T) : 4>::type word;
  constexpr int count = sizeof(T) / sizeof(word), bits = 8 * sizeof(word);
  sd_words<T, N> words = {};
#pragma unroll 1
  for (int i = N * count - 1; i >= 0; --i) {
    const int64_t here = at + i / count;
    const unsigned x = ((const word*)(from + (here < end ? here : end - 1)))[i % count];
#pragma unroll
    for (int w = words.count - 1; w > 0; --w)
      words.w[w] = bits == 32 ? words.w[w - 1] : sd_funnel(words.w[w - 1], words.w[w], 32 - bits);
    words.w[0] = bits == 32 ? x : words.w[0] << bits % 32 | x;
  }
  return words;
}
// Loads a vector that may extend past `end`.
template <int N, class T> static inline Vec<T, N> sd_load_within(const T* from, int64_t at, int64_t end) {
  if (at + N <= end) return sd_load<N>(from + at);
  return __builtin_bit_cast(Vec<T, N>, sd_load_head<N>(from, at, end));
}
// The same in two steps, so that no load depends on a branch: sd_load_near loads the last whole vector in place of one that
// extends past the end, and sd_mended then replaces it. `last`: start of the last whole vector; `end`: end of the valid
// elements; both relative to `from`.
static inline int sd_last(int64_t from, int64_t elements, int width) {
  const int64_t last = (elements & -width) - width - from;
  return last < 1 << 30 ? (int)last : 1 << 30;
}
template <int N, class T> static inline sd_words<T, N> sd_load_near(const T* from, int at, int last) {
  return __builtin_bit_cast(sd_words<T, N>, sd_load<N>(from + (at < last ? at : last)));
}
template <int N, class T> static inline sd_words<T, N> sd_mended(const sd_words<T, N>& near, const T* from, int at, int last, int end) {
  return at <= last ? near : sd_load_head<N>(from, at, end);
}
// Bit mask of the lanes of the vector at `at` that lie in the row of `count` elements; the first and last vector may overlap
// neighbouring rows.
template <int N, class I> static inline unsigned sd_part(I at, I count) {
  const unsigned behind = at < 0 ? ~0u << -(int)at : ~0u;
  return behind & (count - at < N ? (1u << (int)(count - at)) - 1 : (1u << N) - 1);
}
template <int N, class T> static inline void sd_store(T* to, const Vec<T, N>& value, unsigned part) {
  if (part == (1u << N) - 1) return sd_store<N>(to, value);
#pragma unroll
  for (int e = 0; e < N; ++e) sd_put(to + e, value.e[e], part & 1u << e);
}
template <int N, class T> static inline void sd_store_shared(T* to, const Vec<T, N>& value) {
#ifndef STRIDEC_EMULATE
  if constexpr (sizeof(T) * N % 16 == 0) {
    const sd_words<T, N> raw = __builtin_bit_cast(sd_words<T, N>, value);
#pragma unroll
    for (int i = 0; i < raw.count; i += 4)
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"((unsigned)__cvta_generic_to_shared(to) + 4 * i),
                   "r"(raw.w[i]), "r"(raw.w[i + 1]), "r"(raw.w[i + 2]), "r"(raw.w[i + 3]) : "memory");
    return;
  }
#endif
  const sd_pieces<T, N> raw = __builtin_bit_cast(sd_pieces<T, N>, value);
#pragma unroll
  for (int i = 0; i < raw.count; ++i) ((typename sd_pieces<T, N>::type*)to)[i] = raw.p[i];
}
)";
}

}  // namespace stridec::codegen::cuda
