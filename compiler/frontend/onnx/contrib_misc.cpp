// Operators of onnxruntime's com.microsoft domain that vary ONNX's operators: channels-last layouts, GEMMs of
// transposed operands, weights in bitsandbytes' 4-bit codes, distances.
#include <array>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/window.h"
#include "compiler/ops/composite/contraction.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMicrosoft = "com.microsoft";

Outputs expand_dims(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.integers_of(1, "axis").at(0);
  return {unsqueeze(x, {c.axis(axis, x.rank() + 1)})};
}

// x [n, spatial..., channels]; weights in Conv's layout.
Outputs nhwc_conv(Context& c) {
  Node conv = c.node;
  conv.op_type = conv.op_type == "NhwcConv" ? "Conv" : "FusedConv";
  conv.domain = conv.op_type == "Conv" ? "" : kMicrosoft;
  conv.version = conv.op_type == "Conv" ? 11 : 1;
  std::vector<Slot> inputs;
  for (size_t i = 0; i < conv.inputs.size(); ++i)
    inputs.push_back(!c.has(i) ? Slot() : i == 0 || i == 3 ? Slot(channels_second(c.in(i))) : c.slot(i));
  return {channels_last({c.b, c.importer().import_as(c, conv, std::move(inputs)).at(0).tensor})};
}

// Pads may also have shape [1, 2 * rank].
Outputs contrib_pad(Context& c) {
  Node node = c.node;
  node.domain = "";
  node.version = 13;
  std::vector<Slot> inputs{c.slot(0), Slot(reshape(c.in(1), {count(c.in(1).shape())}))};
  if (c.has(2)) inputs.push_back(c.slot(2));
  return c.importer().import_as(c, node, std::move(inputs));
}

// 4-bit codes, two per byte, high bits first. They encode the transposed weights [N, K] in blocks with one
// scale each.
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

Outputs matmul_bnb4(Context& c) {
  const Term a = c.in(0), packed = reshape(c.in(1), {count(c.in(1).shape())}), scales = c.in(2);
  const int64_t k = c.integer("K"), n = c.integer("N"), block = c.integer("block_size"),
                kind = c.integer("quant_type");
  if (kind != 0 && kind != 1) c.does_not_fit(cat("quant_type is ", kind, ", not 0 (FP4) or 1 (NF4)"));
  if (block < 1 || k < 1 || n < 1) c.does_not_fit("K, N and block_size are positive");
  const int64_t codes = (n * k + 1) / 2 * 2, blocks = (n * k + block - 1) / block;
  c.b.require(sym::eq(packed.dim(0) * 2, codes), "{0} codes are given for {1} weights",
              {packed.dim(0) * 2, n * k});
  c.b.require(sym::eq(count(scales.shape()), blocks), "{0} scales are given for {1} blocks",
              {count(scales.shape()), blocks});
  const Term high = apply(OpKind::kShr, packed, number_like(packed, 4)),
             low = apply(OpKind::kBitAnd, packed, number_like(packed, 15));
  const Term all = reshape(concat({unsqueeze(high, {1}), unsqueeze(low, {1})}, 1), {codes});
  const auto& table = kind == 0 ? kFp4 : kNf4;
  const Term values =
      gather(float_table(c.b, {table.begin(), table.end()}, DType::kF32), cast(all, DType::kI64), 0);
  const Term each =
      reshape(expand(reshape(cast(scales, DType::kF32), {blocks, 1}), {blocks, block}), {blocks * block});
  const Term weights = reshape(slice(values, 0, 0, n * k) * slice(each, 0, 0, n * k), {n, k});
  const Term w = cast(transpose(weights, 0, 1), a.dtype());
  const Term y = c.integer("transB", 1) ? matmul(a, w) : matmul(a, transpose(w, 0, 1));
  return {c.has(3) ? y + c.in(3) : y};
}

// Distances between the rows of a [m, k] and b [n, k].
Outputs cdist(Context& c) {
  const Term a = unsqueeze(c.in(0), {1}), b = unsqueeze(c.in(1), {0});
  const std::string metric = c.text("metric", "sqeuclidean");
  if (metric != "euclidean" && metric != "sqeuclidean") c.unsupported("CDist with metric '" + metric + "'");
  const Term squares = reduce_sum(square(a - b), {2});
  return {metric == "euclidean" ? sqrt(squares) : squares};
}

constexpr Row kRows[] = {
    {"CDist", cdist, 1, kAnyLater, kMicrosoft},
    {"ExpandDims", expand_dims, 1, kAnyLater, kMicrosoft},
    {"MatMulBnb4", matmul_bnb4, 1, kAnyLater, kMicrosoft},
    {"Pad", contrib_pad, 1, kAnyLater, kMicrosoft},
    {"NhwcConv", nhwc_conv, 1, kAnyLater, kMicrosoft},
    {"NhwcFusedConv", nhwc_conv, 1, kAnyLater, kMicrosoft},
};

}  // namespace

std::span<const Row> contrib_misc_rows() { return kRows; }

}  // namespace stridec::onnx
