#include "compiler/ops/composite/torch_random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>
#include <vector>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/ops/call.h"
#include "compiler/ops/composite/random.h"
#include "compiler/ops/nodes.h"

namespace stridec::ops {

using graph::OpKind;
using graph::ValueId;

namespace {

constexpr const char *kMersenne = "mersenne_draw", *kPhilox = "philox_draw";
// What a call draws (loop/library.def). The first two are the same for both routines.
constexpr int64_t kWords = 0, kWideWords = 1, kPermutation = 2, kNormals = 3;
constexpr int64_t kCudaNormals = 2, kCudaWideNormals = 3, kCudaLogarithms = 4, kCudaExponentials = 5,
                  kCudaFirstWords = 6;

const graph::State* state_of(const graph::Graph& graph) {
  const auto found = std::ranges::find(graph.states, std::string(kGenerator), &graph::State::name);
  return found == graph.states.end() ? nullptr : &*found;
}
// The state after the last draw.
ValueId current_state(const graph::Graph& graph) {
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const graph::Node& node = graph.nodes[i];
    if (node.kind != OpKind::kCall) continue;
    const std::string routine = node.attributes.text_or("routine", "");
    if (routine == kMersenne || routine == kPhilox) return node.outputs[1];
  }
  return state_of(graph)->value;
}

Term draw(Builder& b, sym::Expr what, sym::Expr count, sym::Expr layout = 0) {
  STRIDEC_CHECK(has_torch_generator(b.graph()));
  const graph::Graph& graph = b.graph();
  graph::Attributes attributes{{"what", what}, {"count", count}};
  const bool cuda = has_cuda_generator(graph);
  if (cuda) attributes.set("layout", layout);
  const ValueId drawn =
      add_call(b, cuda ? kPhilox : kMersenne, {current_state(graph)}, std::move(attributes))[0];
  if (graph.top.nodes.empty() || graph.top.nodes.back() != graph[drawn].producer)
    fail(ErrorKind::kUnsupported, "unsupported-op",
         "a random draw in a branch or a loop that the run decides, with -O fallback_random",
         "draw the numbers before it");
  return {b, drawn};
}

int mantissa_bits(DType dtype) {
  if (dtype == DType::kF64) return 53;
  if (dtype == DType::kF16) return 11;
  return dtype == DType::kBF16 ? 8 : 24;
}
DType computed_as(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// The low bits of words as numbers in [0, 1).
Term as_uniform(Term words, DType dtype) {
  const int bits = mantissa_bits(dtype);
  const Term low = apply(OpKind::kBitAnd, words, static_cast<double>((int64_t{1} << bits) - 1));
  return cast(low, computed_as(dtype), false) * (1.0 / static_cast<double>(int64_t{1} << bits));
}

// ---- normals of 16 and more elements ---------------------------------------------------------------------

Term multiply_add(Term x, Operand y, Operand z) {
  const auto term = [&](const Operand& o) {
    return o.is_term ? Term(x.builder(), o.term) : number_like(x, o.number);
  };
  return fma(x, term(y), term(z));
}
template <size_t N>
Term polynomial(Term x, const std::array<float, N>& coefficients) {
  Term y = number_like(x, coefficients[0]);
  for (size_t i = 1; i < N; ++i) y = multiply_add(y, x, coefficients[i]);
  return y;
}

// PyTorch's vectorised functions (native/cpu/avx_mathfun.h, after the Cephes library) with the roundings of
// its builds for AVX2. log of f32 in (0, 1].
Term vector_log(Term x) {
  Builder& b = x.builder();
  const Term bits = bitcast(x, DType::kI32);
  const Term fraction = apply(OpKind::kBitOr, apply(OpKind::kBitAnd, bits, 0x007FFFFF), 0x3F000000);
  const Term exponent = apply(OpKind::kShr, bits, 23) - 126;
  const Term half = bitcast(fraction, DType::kF32);
  const Term is_low = less(half, 0.707106781186547524f);
  const Term m = half - 1.0 + select(is_low, half, 0.0);
  const Term e = cast(exponent - cast(is_low, DType::kI32), DType::kF32);
  const Term z = m * m;
  const Term q = polynomial(m, std::array{7.0376836292E-2f, -1.1514610310E-1f, 1.1676998740E-1f,
                                          -1.2420140846E-1f, 1.4249322787E-1f, -1.6668057665E-1f,
                                          2.0000714765E-1f, -2.4999993993E-1f, 3.3333331174E-1f});
  Term y = fma(q * m, z, e * static_cast<double>(-2.12194440e-4f));
  y = fma(z, number(b, DType::kF32, -0.5), y);
  return multiply_add(e, 0.693359375, m + y);
}

// sin and cos of f32 in [0, 2 pi].
std::pair<Term, Term> vector_sincos(Term angle) {
  const Term octant = apply(OpKind::kBitAnd,
                            cast(angle * static_cast<double>(1.27323954473516f), DType::kI32, false) + 1, -2);
  const Term n = cast(octant, DType::kF32);
  Term x = angle;
  for (const float part : {0.78515625f, 2.4187564849853515625e-4f, 3.77489497744594108e-8f})
    x = fma(n, number_like(x, -part), x);
  const Term z = x * x;
  const Term c =
      polynomial(z, std::array{2.443315711809948E-005f, -1.388731625493765E-003f, 4.166664568298827E-002f}) *
      z;
  const Term cosine = fma(c, z, z * -0.5) + 1.0;
  const Term s = polynomial(z, std::array{-1.9515295891E-4f, 8.3321608736E-3f, -1.6666654611E-1f}) * z;
  const Term sine = fma(s, x, x);
  const auto bit = [&](Term of, double mask) { return equal(apply(OpKind::kBitAnd, of, mask), 0.0); };
  const Term even = bit(octant, 2);
  const Term turned = select(even, sine, cosine), other = select(even, cosine, sine);
  return {select(bit(octant, 4), turned, -turned), select(bit(octant - 2.0, 4), -other, other)};
}

struct Polar {
  Term radius, sine, cosine;
};
// The pair of Box and Muller from uniforms, each operation rounded to the dtype; u1 is in (0, 1].
Polar polar(Term u1, Term u2, DType dtype) {
  if (dtype == DType::kF32) {
    const auto [sine, cosine] = vector_sincos(u2 * static_cast<double>(2 * std::numbers::pi_v<float>));
    return {sqrt(vector_log(u1) * -2.0), sine, cosine};
  }
  // f16 and bf16: the functions of f32, which are those of f64 but for the last rounding.
  const auto rounded = [&](Term x) {
    return dtype == DType::kF64 ? x : cast(cast(cast(x, DType::kF32), dtype), DType::kF64);
  };
  const Term x = cast(u1, DType::kF64), turn = cast(u2, DType::kF64);
  const Term radius = rounded(sqrt(rounded(rounded(log(x)) * -2.0)));
  const Term angle = rounded(turn * (2 * std::numbers::pi));
  return {radius, rounded(apply(OpKind::kSin, angle)), rounded(apply(OpKind::kCos, angle))};
}

// Blocks of 16: 8 radii with 8 angles give 8 cosines, then 8 sines. The last 16 elements of a number that is
// no multiple of 16 are a block of their own, with words after all others.
Term normal_blocks(Builder& b, sym::Expr count, DType dtype, double mean, double deviation) {
  const sym::Expr whole = b.simplify(sym::floordiv(count, 16)), rest = b.simplify(count - whole * 16);
  const sym::Expr tail = b.simplify(sym::min(rest, 1));
  const Term words = torch_words(b, b.simplify(count + tail * 16), dtype == DType::kF64);
  const Term first = slice(words, 0, 0, whole * 16), last = slice(words, 0, count, tail * 16);
  const sym::Expr blocks = b.simplify(whole + tail);
  const Term u = as_uniform(reshape(concat({first, last}, 0), {blocks, 2, 8}), dtype);
  const Term u1 = subtract_from(1, slice(u, 1, 0, 1)), u2 = slice(u, 1, 1, 1);
  const auto [radius, sine, cosine] = polar(u1, u2, dtype);
  const auto scaled = [&](Term x) {
    if (dtype == DType::kF32 || dtype == DType::kF64) return multiply_add(radius * x, deviation, mean);
    const auto narrow = [&](Term y) { return cast(cast(y, DType::kF32), dtype); };
    const auto wide = [&](Term y) { return cast(y, DType::kF64); };
    const Term product = wide(narrow(radius * x));
    const Term given = wide(narrow(product * wide(number(b, dtype, deviation))));
    return wide(narrow(given + wide(number(b, dtype, mean))));
  };
  const Term all = reshape(concat({scaled(cosine), scaled(sine)}, 1), {blocks * 16});
  const sym::Expr kept = b.simplify(count - tail * 16);
  return cast(concat({slice(all, 0, 0, kept), slice(all, 0, whole * 16, tail * 16)}, 0), dtype);
}

}  // namespace

// ---- the state -------------------------------------------------------------------------------------------

void add_torch_generator(Builder& b, const TorchGenerator& generator) {
  constexpr int64_t kDefaultSeed = 67280421310721;  // c10::default_rng_seed_val
  std::vector<int64_t> state{kDefaultSeed, 0, generator.threads};
  if (generator.threads == 0) {
    state = {-1, kDefaultSeed};
    state.resize(kMersenneState);
  }
  std::vector<uint8_t> bytes(state.size() * sizeof(int64_t));
  std::memcpy(bytes.data(), state.data(), bytes.size());
  b.state(kGenerator, {DType::kI64, {std::ssize(state)}}, graph::own(std::move(bytes)));
}

bool has_torch_generator(const graph::Graph& graph) {
  const graph::State* state = state_of(graph);
  return state && graph[state->value].type.shape.size() == 1;
}
bool has_cuda_generator(const graph::Graph& graph) {
  const graph::State* state = state_of(graph);
  return state && graph[state->value].type == graph::Type{DType::kI64, {kPhiloxState}};
}

void finish_torch_generator(Builder& b) {
  graph::Graph& graph = b.graph();
  const ValueId first = state_of(graph)->value, last = current_state(graph);
  if (first != last) {
    b.add(OpKind::kUpdateState, {first, last});
    return;
  }
  std::erase(graph.top.parameters, first);
  std::erase_if(graph.states, [](const graph::State& state) { return state.name == kGenerator; });
}

// ---- distributions ---------------------------------------------------------------------------------------

Term torch_words(Builder& b, sym::Expr count, sym::Expr wide) {
  return draw(b, b.simplify(sym::select(wide, kWideWords, kWords)), b.simplify(count));
}
namespace {

// Numbers are sorted by random keys of so few bits that keys are equal in one of ten permutations. Then the
// first position of each run of equal keys is a thread, which shuffles the run (PyTorch's Randperm.cuh). A
// run of more than five does not occur.
Term cuda_permutation(Builder& b, int64_t n) {
  const double size = static_cast<double>(n);
  const double wanted = std::ceil(std::log2(size - (6 * size * size + 1) / (12 * std::log(0.9))));
  const int bits = std::min(64, static_cast<int>(wanted));
  const Term range = Term(b, b.elements({bits <= 32 ? int64_t{0xFFFFFFFF} : int64_t{-1}}, {}));
  const Term keys =
      apply(OpKind::kMod, bitcast(draw(b, kWideWords, n), DType::kU64), bitcast(range, DType::kU64));
  // The high bits, which do not count, are shifted out.
  const Ordered sorted = sort(apply(OpKind::kShl, keys, 64 - bits), 0);
  const Term first = search_sorted(sorted.values, sorted.values);
  const Term last = search_sorted(sorted.values, sorted.values, true) - 1.0;
  const Term words = reshape(draw(b, kCudaFirstWords, 4 * n, -4), {n, 4});
  const Term at = index_along(b, {n}, 0, DType::kI64);
  Term out = sorted.indices;
  for (int64_t step = 0; step < 4; ++step) {
    const Term end = last - static_cast<double>(step), count = maximum(end - first + 1.0, 1.0);
    const Term word = gather(squeeze(slice(words, 1, step, 1), {1}), first, 0);
    const Term other = first + apply(OpKind::kMod, word, count);
    const Term from = select(equal(at, end), other, select(equal(at, other), end, at));
    out = gather(out, select(greater(end, first), from, at), 0);
  }
  return out;
}

}  // namespace

Term torch_permutation(Builder& b, sym::Expr given) {
  const sym::Expr size = b.simplify(given);
  if (!has_cuda_generator(b.graph())) return draw(b, kPermutation, size);
  if (!size.is_const())
    fail(ErrorKind::kUnsupported, "unsupported-op",
         "a permutation of a size that the run decides, on a GPU with -O fallback_random");
  return size.is_const(0) ? filled(b, {0}, DType::kI64, 0) : cuda_permutation(b, size.value());
}

Term torch_uniform(Builder& b, const Shape& shape, DType dtype) {
  if (has_cuda_generator(b.graph())) return cuda_uniform(b, shape, dtype, 0);
  return as_uniform(reshape(torch_words(b, count(shape), dtype == DType::kF64), shape), dtype);
}

Term torch_uniform(Builder& b, const Shape& shape, DType dtype, double low, double high) {
  const auto rounded = [&](double x) { return cast(number(b, dtype, x), computed_as(dtype)); };
  const Term from = rounded(low), range = cast(number(b, dtype, high) - number(b, dtype, low), from.dtype());
  const Term drawn = cast(fma(torch_uniform(b, shape, dtype), range, from), dtype, false);
  if (!has_cuda_generator(b.graph())) return drawn;
  return select(equal(drawn, number(b, dtype, high)), number(b, dtype, low), drawn);
}

Term torch_normal_pairs(Builder& b, const Shape& shape, double mean, double deviation) {
  const sym::Expr n = b.simplify(count(shape));
  const Term drawn = draw(b, kNormals, n);
  const auto row = [&](int64_t i) { return squeeze(slice(drawn, 0, i, 1), {0}); };
  const Term u1 = cast(row(0), DType::kF64) * 0x1p-53, u2 = cast(row(1), DType::kF64) * 0x1p-53;
  const Term radius = sqrt(apply(OpKind::kLog1p, -u2) * -2.0), angle = u1 * (2 * std::numbers::pi);
  const Term turned = select(equal(row(2), 1.0), apply(OpKind::kSin, angle), apply(OpKind::kCos, angle));
  const Term value = select(equal(row(2), 2.0), bitcast(row(0), DType::kF64), radius * turned);
  return reshape(multiply_add(value, deviation, mean), shape);
}

Term torch_normal(Builder& b, const Shape& shape, DType dtype, double mean, double deviation, bool dense) {
  if (has_cuda_generator(b.graph())) return cuda_normal(b, shape, dtype, mean, deviation);
  const sym::Expr n = b.simplify(count(shape));
  if (!dense || b.holds(sym::lt(n, 16))) return cast(torch_normal_pairs(b, shape, mean, deviation), dtype);
  if (b.holds(sym::ge(n, 16))) return reshape(normal_blocks(b, n, dtype, mean, deviation), shape);
  // One of the two has no elements.
  const sym::Expr few = b.simplify(sym::select(sym::lt(n, 16), n, 0));
  const Term pairs = cast(torch_normal_pairs(b, {few}, mean, deviation), dtype);
  const Term blocks = normal_blocks(b, b.simplify(n - few), dtype, mean, deviation);
  return reshape(concat({pairs, blocks}, 0), shape);
}

Term torch_integers(Builder& b, const Shape& shape, sym::Expr low, sym::Expr high) {
  const sym::Expr range = b.simplify(high - low);
  const Term words = reshape(torch_words(b, count(shape), sym::ge(range, int64_t{1} << 28)), shape);
  const Term number =
      apply(OpKind::kMod, bitcast(words, DType::kU64), bitcast(size_as(b, DType::kI64, range), DType::kU64));
  return bitcast(number, DType::kI64) + size_as(b, DType::kI64, low);
}

// ---- of the generator on GPUs ----------------------------------------------------------------------------

Term cuda_uniform(Builder& b, const Shape& shape, DType dtype, sym::Expr layout) {
  const sym::Expr n = b.simplify(count(shape));
  if (dtype != DType::kF64) {
    const Term words = draw(b, kWords, n, layout);
    return reshape(cast(words, DType::kF32, false) * 0x1p-32 + 0x1p-33, shape);
  }
  const Term words = bitcast(draw(b, kWideWords, n, layout), DType::kU64);
  const Term low = apply(OpKind::kShr, apply(OpKind::kShl, words, 32), 11);
  const Term bits = bitcast(apply(OpKind::kBitXor, apply(OpKind::kShr, words, 32), low), DType::kI64);
  return reshape(cast(bits, DType::kF64, false) * 0x1p-53 + 0x1p-54, shape);
}

Term cuda_normal(Builder& b, const Shape& shape, DType dtype, double mean, double deviation) {
  const Term z = draw(b, dtype == DType::kF64 ? kCudaWideNormals : kCudaNormals, b.simplify(count(shape)));
  return cast(reshape(multiply_add(z, deviation, mean), shape), dtype, false);
}

Term cuda_logarithm(Builder& b, const Shape& shape, DType dtype) {
  if (dtype == DType::kF64) return log(cuda_uniform(b, shape, dtype, 0));
  return reshape(draw(b, kCudaLogarithms, b.simplify(count(shape))), shape);
}

Term cuda_exponential(Builder& b, const Shape& shape, DType dtype, double rate) {
  constexpr double kHalf = 0x1p-53;  // of the epsilon of f64
  Term logs = number(b, dtype, 0);
  if (dtype == DType::kF64) {
    const Term u = cuda_uniform(b, shape, dtype, 0);
    logs = select(greater_equal(u, 1 - kHalf), -kHalf, log(u));
  } else {
    logs = reshape(draw(b, kCudaExponentials, b.simplify(count(shape))), shape);
  }
  return cast(logs * divide_into(-1, number_like(logs, rate)), dtype, false);
}

}  // namespace stridec::ops
