// Kernels of users: calls of routines that are in no table of this compiler (loop/user_kernel.h).
#include "compiler/loop/user_kernel.h"

#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

using loop::UserKernel;
using Strides = UserKernel::Strides;

// The text of a kernel is in the user's own file, never in that of a model or of a graph.
std::shared_ptr<const UserKernel> kernel_of(const Node& node) {
  auto kernel = loop::find_user_kernel(node.attributes.text("kernel"));
  if (!kernel)
    does_not_fit(
        cat("user_kernel: no file of --ops declares the kernel '", node.attributes.text("kernel"), "'"));
  return kernel;
}

Inferred kernel_shape(Builder& b, const Node& node) {
  const auto kernel = kernel_of(node);
  expect_inputs(node, kernel->reads.size(), kernel->reads.size());
  for (size_t i = 0; i < kernel->reads.size(); ++i) {
    const UserKernel::Tensor& declared = kernel->reads[i];
    const Type& type = b.type(node.inputs[i]);
    if (type.dtype != declared.dtype || type.shape.size() != declared.rank)
      does_not_fit(cat(kernel->name, ": input '", declared.name, "' is ", graph::to_string(type)));
  }
  const bool dims = node.attributes.find("shapes") != nullptr;
  const std::vector<sym::Expr> shapes = dims ? node.attributes.exprs("shapes") : std::vector<sym::Expr>();
  size_t ranks = 0;
  for (const UserKernel::Tensor& each : kernel->writes) ranks += each.rank;
  const size_t sizes = kernel->sizes + loop::UserArguments::kLastCount;
  if (shapes.size() != ranks || node.attributes.exprs("sizes").size() != sizes)
    does_not_fit(cat(kernel->name, ": the node has other sizes than the kernel takes"));
  Inferred out;
  auto next = shapes.begin();
  for (const UserKernel::Tensor& each : kernel->writes) {
    const auto end = next + static_cast<std::ptrdiff_t>(each.rank);
    out.types.push_back({each.dtype, {next, end}});
    next = end;
  }
  return out;
}

// A view as the kernel takes it.
struct Placed {
  sym::Expr offset;
  std::vector<sym::Expr> strides;
};

std::optional<Placed> placed(const loop::Program& program, const loop::View& view) {
  const loop::Buffer& buffer = program[view.buffer];
  if (!view.mask.is_const(1) || buffer.dtype != view.dtype) return std::nullopt;
  Placed out;
  sym::Expr at = 0;
  for (size_t d = 0; d < view.index.size(); ++d) at += view.index[d] * buffer.strides[d];
  for (size_t d = 0; d < view.coords.size(); ++d) {
    const auto linear = sym::linear_in(at, view.coords[d]);
    if (!linear || sym::has_index(linear->coefficient)) return std::nullopt;
    out.strides.push_back(sym::simplify(linear->coefficient, program.facts));
    at = linear->rest;
  }
  if (sym::has_index(at)) return std::nullopt;
  out.offset = sym::simplify(at, program.facts);
  return out;
}

bool suits(const loop::Program& program, const loop::View& view, const Placed& place, Strides declared) {
  if (declared == Strides::kAny || view.shape.empty()) return true;
  const auto same = [&](sym::Expr a, sym::Expr b) { return program.facts.holds(sym::eq(a, b)); };
  if (declared == Strides::kRows) return same(place.strides.back(), 1) || same(view.shape.back(), 1);
  const std::vector<sym::Expr> dense = loop::row_major(view.shape);
  for (size_t d = 0; d < dense.size(); ++d)
    if (!same(place.strides[d], dense[d]) && !same(view.shape[d], 1)) return false;
  return true;
}

// user_kernel: reads -> writes
void kernel_lower(Lowering& l, const Node& node) {
  const auto kernel = kernel_of(node);
  loop::Call call{.routine = kernel->routine, .reads = {}, .writes = {}, .arguments = {}, .nodes = {}};
  const auto pass = [&](const loop::View& view, const Placed& place) {
    call.arguments.push_back(place.offset);
    call.arguments.insert(call.arguments.end(), view.shape.begin(), view.shape.end());
    call.arguments.insert(call.arguments.end(), place.strides.begin(), place.strides.end());
    return view.buffer;
  };
  // Outputs that take the memory of an input; both are this view. It is dense.
  std::vector<std::optional<loop::View>> changed(node.inputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (const auto read = kernel->writes[i].in_place)
      changed[*read] = l.changed(node.inputs[*read], node.outputs[i], kernel->writes[i].name);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const UserKernel::Tensor& declared = kernel->reads[i];
    loop::View view = changed[i] ? *changed[i] : l.view(node.inputs[i]);
    std::optional<Placed> place = placed(l.program(), view);
    if (!place || !suits(l.program(), view, *place, declared.strides)) {
      const loop::View dense = l.temporary({view.dtype, view.shape}, declared.name);
      l.copy(view, dense, declared.name);
      view = dense;
      place = placed(l.program(), view);
    }
    call.reads.push_back(pass(view, *place));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (const auto read = kernel->writes[i].in_place) {
      call.writes.push_back(pass(*changed[*read], *placed(l.program(), *changed[*read])));
      continue;
    }
    const bool dense = kernel->writes[i].strides == Strides::kDense;
    const loop::View view = dense ? l.define(node.outputs[i]) : l.define_part(node.outputs[i]);
    call.writes.push_back(pass(view, *placed(l.program(), view)));
  }
  const std::vector<sym::Expr> sizes = node.attributes.exprs("sizes");
  call.arguments.insert(call.arguments.end(), sizes.begin(), sizes.end());
  if (!node.origin.empty()) call.nodes.push_back(node.origin);
  l.steps().push_back({std::move(call)});
}

Ids kernel_gradient(Builder&, const Node& node, const Ids&) {
  no_gradient(node, cat(kernel_of(node)->name, " has a kernel, which has no gradient; declare 'gradient'"));
}

}  // namespace

const OpDef def_kUserKernel{
    kernel_shape, kernel_lower,
    Gradient::by(kernel_gradient, "none", "the operator's 'gradient' in the file of --ops stands for it")};

}  // namespace stridec::ops
