// Decoding of images: library routines that read the size from the encoded bytes at run time.
#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

constexpr int64_t kMostImageSize = 65535;  // per dim, the limit of runtime/image
constexpr const char* kFormats[] = {"rgb", "bgr", "grayscale"};

int64_t format_of(const Node& node) {
  const std::string& format = node.attributes.text("format");
  for (int64_t i = 0; i < 3; ++i)
    if (format == kFormats[i]) return i;
  STRIDEC_CHECK(false, format);
}

void expect_bytes(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const Type& type = b.type(node.inputs[0]);
  if (type.dtype != DType::kU8 || type.shape.size() != 1)
    does_not_fit(cat("an encoded image is u8 of one dim, not ", graph::to_string(type)));
}

void call(Lowering& l, const Node& node, const char* routine, std::vector<sym::Expr> arguments) {
  const loop::View bytes = l.materialise(l.view(node.inputs[0]), "image_bytes");
  arguments.insert(arguments.begin(), bytes.shape[0]);
  loop::Call call{.routine = routine,
                  .reads = {bytes.buffer},
                  .writes = {},
                  .arguments = std::move(arguments),
                  .nodes = {}};
  for (ValueId output : node.outputs) call.writes.push_back(l.define(output).buffer);
  if (!node.origin.empty()) call.nodes.push_back(node.origin);
  l.steps().push_back({std::move(call)});
}

Inferred size_shape(Builder& b, const Node& node) {
  expect_bytes(b, node);
  return {{{DType::kI64, {2}}}, {}};
}

void size_lower(Lowering& l, const Node& node) { call(l, node, "image_size", {}); }

Inferred decode_shape(Builder& b, const Node& node) {
  expect_bytes(b, node);
  const Shape shape{node.attributes.expr("height"), node.attributes.expr("width"),
                    format_of(node) == 2 ? 1 : 3};
  return {{{DType::kU8, shape}, {DType::kI64, {}}}, {}};
}

void decode_lower(Lowering& l, const Node& node) {
  call(l, node, "image_decode",
       {node.attributes.expr("height"), node.attributes.expr("width"), format_of(node)});
}

}  // namespace

const OpDef def_kImageSize{size_shape, size_lower, Gradient::none("bytes and integers")};
const OpDef def_kImageDecode{decode_shape, decode_lower, Gradient::none("bytes")};

Term decode_image(Term bytes, const std::string& format) {
  Builder& b = bytes.builder();
  const Term size(b, b.add1(OpKind::kImageSize, {bytes}));
  std::vector<sym::Expr> sizes;
  for (int64_t i : {0, 1}) {
    sizes.push_back(b.fresh_symbol(i == 0 ? "height" : "width", 1, kMostImageSize));
    b.add(OpKind::kSymbolOf, {reshape(slice(size, 0, i, 1), {})},
          {{"symbol", sizes.back()},
           {"lower", sym::Expr(1)},
           {"upper", sym::Expr(kMostImageSize)},
           {"sentence", std::string("the bytes are not an image of a supported form")}});
  }
  const auto decoded =
      b.add(OpKind::kImageDecode, {bytes}, {{"height", sizes[0]}, {"width", sizes[1]}, {"format", format}});
  b.require(sym::eq(b.elements_of(decoded[1], "whole", 0, 1)[0], 1), "the image is damaged");
  return {b, decoded[0]};
}

}  // namespace stridec::ops
