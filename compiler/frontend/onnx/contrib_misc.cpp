// Operators of onnxruntime's com.microsoft domain that vary ONNX's operators: channels-last layouts,
// distances.
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/window.h"
#include "compiler/ops/composite/linear_algebra.h"

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

Outputs cdist(Context& c) {
  const std::string metric = c.text("metric", "sqeuclidean");
  if (metric != "euclidean" && metric != "sqeuclidean") c.unsupported("CDist with metric '" + metric + "'");
  return {metric == "euclidean" ? distances(c.in(0), c.in(1)) : squared_distances(c.in(0), c.in(1))};
}

constexpr Row kRows[] = {
    {"CDist", cdist, 1, kAnyLater, kMicrosoft},
    {"ExpandDims", expand_dims, 1, kAnyLater, kMicrosoft},
    {"Pad", contrib_pad, 1, kAnyLater, kMicrosoft},
    {"NhwcConv", nhwc_conv, 1, kAnyLater, kMicrosoft},
    {"NhwcFusedConv", nhwc_conv, 1, kAnyLater, kMicrosoft},
};

}  // namespace

std::span<const Row> contrib_misc_rows() { return kRows; }

}  // namespace stridec::onnx
