#include "compiler/ops/composite/block_quantization.h"

#include <array>

#include "compiler/base/text.h"
#include "compiler/ops/composite/quantization.h"
#include "compiler/ops/shapes.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

// Rounds x to integers of [-127, 127] times one scale per `block` elements of the last dim.
Term in_byte_blocks(Term x, int64_t block) {
  Shape blocks = x.shape();
  const sym::Expr count = sym::floordiv(blocks.back(), block);
  blocks.back() = count;
  blocks.push_back(block);
  const Term apart = reshape(x, blocks);
  const Term scale = reduce_max(abs(apart), {apart.rank() - 1}, kKeep) / 127;
  const Term numbers = select(equal(scale, 0), 0, apply(OpKind::kRound, apart / scale));
  return reshape(numbers * scale, x.shape());
}

double middle(int64_t bits) { return static_cast<double>(1 << (bits - 1)); }

void check_bits(int64_t bits) {
  if (bits != 2 && bits != 4 && bits != 8) does_not_fit(cat("weights of ", bits, " bits"));
}

// The weights [n, k] in f32.
Term dequantized(const BlockWeights& w) {
  Builder& b = w.packed.builder();
  const int64_t n = w.n, k = w.k, block = w.block, blocks = (k + block - 1) / block, per_byte = 8 / w.bits;
  const Term weights = cast(reshape(unpack(w.packed, w.bits), {n, blocks, block}), DType::kF32);
  Term zero = number(b, DType::kF32, middle(w.bits));
  const Term scale = cast(reshape(w.scales, {n, blocks, 1}), DType::kF32);
  if (w.zeros && is_float(w.zeros->dtype())) {
    zero = cast(reshape(*w.zeros, {n, blocks, 1}), DType::kF32);
  } else if (w.zeros) {
    const int64_t row_bytes = (blocks + per_byte - 1) / per_byte;
    const Term all = unpack(reshape(*w.zeros, {n, row_bytes}), w.bits);
    zero = cast(unsqueeze(slice(all, 1, 0, blocks), {2}), DType::kF32);
  }
  if (!w.block_of_column) return slice(reshape((weights - zero) * scale, {n, blocks * block}), 1, 0, k);
  const Term group = slice(cast(*w.block_of_column, DType::kI64), 0, 0, k);
  const auto of_column = [&](Term t) { return t.rank() ? gather(reshape(t, {n, blocks}), group, 1) : t; };
  const Term rows = slice(reshape(weights, {n, blocks * block}), 1, 0, k);
  return (rows - of_column(zero)) * of_column(scale);
}

}  // namespace

Term block_matmul(Term x, const BlockWeights& w, std::optional<Term> bias, bool bytes) {
  check_bits(w.bits);
  if (w.block < 1 || w.n < 0 || w.k < 0) does_not_fit("block_size, N or K is out of range");
  const Term weights = dequantized(w);
  // Not for half floats, which are used on GPUs, where this gains nothing.
  const bool rounds = bytes && x.dtype() == DType::kF32 && w.k > 0 && w.k % w.block == 0 &&
                      !w.block_of_column && x.rank() > 0 && x.dim(x.rank() - 1).is_const(w.k);
  // As in onnxruntime, dequantised weights have the data's dtype. The GEMM accumulates in f32.
  const Term a = rounds ? in_byte_blocks(x, w.block) : x;
  Term y(x.builder(), dot_general(x.builder(), a, transpose(cast(weights, x.dtype()), 0, 1),
                                  {{}, {}, {x.rank() - 1}, {0}, rounds ? w.block : 0}, DType::kF32));
  if (bias) y = y + cast(*bias, DType::kF32);
  return cast(y, x.dtype());
}

Term gather_blocks(const BlockTable& table, Term indices) {
  const bool packed = table.values.dtype() == DType::kU8;
  if (packed) check_bits(table.bits);
  const int64_t axis = table.rows_dim;
  if (axis == table.blocks_dim) does_not_fit("rows are gathered along the dim that is divided into blocks");
  const Term data = packed ? unpack(table.values, table.bits) : table.values;
  const auto rows = [&](Term t) { return gather(t, indices, axis); };
  const int64_t along = table.blocks_dim < axis ? table.blocks_dim : table.blocks_dim + indices.rank() - 1;
  const Term values = rows(data);
  const auto stretched = [&](Term t) {
    return repeat_blocks(t, along, table.block, values.shape()[static_cast<size_t>(along)]);
  };
  Term zero = number(indices.builder(), DType::kF32, packed ? middle(table.bits) : 0);
  if (table.zeros) {
    Term z = *table.zeros;
    if (z.dtype() == DType::kU8 && table.bits < 8)
      z = slice(unpack(z, table.bits), z.rank() - 1, 0, table.scales.dim(table.scales.rank() - 1));
    zero = stretched(cast(rows(z), DType::kF32));
  }
  const Term y = (cast(values, DType::kF32) - zero) * stretched(cast(rows(table.scales), DType::kF32));
  return cast(y, table.scales.dtype());
}

// ---- codes of four bits ----

namespace {

constexpr std::array<double, 16> kFp4 = {
    0,   5.208333333e-03,  0.66666667,  1.0,  0.33333333,  0.5,  0.16666667,  0.25,
    -0., -5.208333333e-03, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25};
constexpr std::array<double, 16> kNf4 = {-1.0,
                                         -0.6961928009986877,
                                         -0.5250730514526367,
                                         -0.39491748809814453,
                                         -0.28444138169288635,
                                         -0.18477343022823334,
                                         -0.09105003625154495,
                                         0.0,
                                         0.07958029955625534,
                                         0.16093020141124725,
                                         0.24611230194568634,
                                         0.33791524171829224,
                                         0.44070982933044434,
                                         0.5626170039176941,
                                         0.7229568362236023,
                                         1.0};

}  // namespace

Term four_bit_weights(Term given, Term scales, FourBitCode code, int64_t n, int64_t k, int64_t block) {
  Builder& b = given.builder();
  if (block < 1 || k < 1 || n < 1) does_not_fit("K, N and block_size are positive");
  const Term packed = reshape(given, {count(given.shape())});
  const int64_t codes = (n * k + 1) / 2 * 2, blocks = (n * k + block - 1) / block;
  b.require(sym::eq(packed.dim(0) * 2, codes), "{0} codes are given for {1} weights",
            {packed.dim(0) * 2, n * k});
  b.require(sym::eq(count(scales.shape()), blocks), "{0} scales are given for {1} blocks",
            {count(scales.shape()), blocks});
  const Term high = apply(OpKind::kShr, packed, number_like(packed, 4)),
             low = apply(OpKind::kBitAnd, packed, number_like(packed, 15));
  const Term all = reshape(concat({unsqueeze(high, {1}), unsqueeze(low, {1})}, 1), {codes});
  const auto& table = code == FourBitCode::kFp4 ? kFp4 : kNf4;
  const Term values =
      gather(float_table(b, {table.begin(), table.end()}, DType::kF32), cast(all, DType::kI64), 0);
  const Term each =
      reshape(expand(reshape(cast(scales, DType::kF32), {blocks, 1}), {blocks, block}), {blocks * block});
  return reshape(slice(values, 0, 0, n * k) * slice(each, 0, 0, n * k), {n, k});
}

}  // namespace stridec::ops
