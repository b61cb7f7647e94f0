#include "compiler/ops/copy_nodes.h"

#include "compiler/base/check.h"
#include "compiler/ops/region.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::NodeId;
using graph::Region;

ValueId NodeCopier::at(ValueId value) const {
  const auto found = values_.find(value);
  return found == values_.end() ? value : found->second;
}

std::vector<ValueId> NodeCopier::at(const std::vector<ValueId>& values) const {
  std::vector<ValueId> out;
  for (ValueId v : values) out.push_back(at(v));
  return out;
}

// New symbols are never among the old ones, so the order of substitution does not matter.
sym::Expr NodeCopier::at(sym::Expr size) const {
  for (const auto& [from, to] : symbols_) size = sym::substitute(size, from, to);
  return size;
}

Type NodeCopier::at(const Type& type) const {
  Type out = type;
  for (sym::Expr& size : out.shape) size = at(size);
  return out;
}

Attributes NodeCopier::at(const Attributes& attributes) const {
  Attributes out;
  for (const auto& [name, value] : attributes.items()) {
    if (const auto* e = std::get_if<sym::Expr>(&value)) {
      out.set(name, at(*e));
    } else if (const auto* es = std::get_if<std::vector<sym::Expr>>(&value)) {
      std::vector<sym::Expr> sizes;
      for (sym::Expr e : *es) sizes.push_back(at(e));
      out.set(name, std::move(sizes));
    } else {
      out.set(name, value);
    }
  }
  return out;
}

sym::Expr NodeCopier::bind(sym::Expr symbol, const std::string& hint, sym::Expr lower, sym::Expr upper) {
  const sym::Expr fresh = builder_.fresh_symbol(hint, lower, upper);
  symbols_.emplace_back(symbol, fresh);
  return fresh;
}

Region NodeCopier::copy(const Region& region, const std::vector<Type>& parameters, sym::Expr assumption) {
  OpenRegion open(builder_, parameters, assumption);
  const std::vector<ValueId> fresh = builder_.parameters();
  for (size_t i = 0; i < fresh.size(); ++i) map(region.parameters[i], fresh[i]);
  copy(region.nodes);
  return open.close(at(region.results));
}

std::vector<ValueId> NodeCopier::copy_loop(const Node& node) {
  const sym::Expr trips = at(node.attributes.expr("trip_count"));
  const sym::Expr counter = bind(node.attributes.expr("counter"), "iteration", 0, sym::max(trips - 1, 0));
  bind(node.attributes.expr("iterations"), "iterations", 0, trips);
  std::vector<Type> types;
  for (ValueId parameter : node.regions[0].parameters) types.push_back(at(builder_.type(parameter)));
  std::vector<Region> regions;
  regions.push_back(copy(node.regions[0], types, sym::lt(counter, trips)));
  return builder_.add_with_regions(node.kind, at(node.inputs), at(node.attributes), std::move(regions));
}

std::vector<ValueId> NodeCopier::outputs_of_copy(const Node& node) {
  Builder& b = builder_;
  switch (node.kind) {
    case OpKind::kConstant: return node.outputs;
    case OpKind::kElements: {
      const Attributes attributes = at(node.attributes);
      return {b.elements(attributes.exprs("elements"), attributes.exprs("shape"), attributes.dtype("dtype"))};
    }
    case OpKind::kSymbolOf:
      bind(node.attributes.expr("symbol"), "size", at(node.attributes.expr("lower")),
           at(node.attributes.expr("upper")));
      break;
    case OpKind::kNonZero:
      bind(node.attributes.expr("count"), "count", 0, element_count(b.shape(at(node.inputs[0]))));
      break;
    case OpKind::kIf: {
      const sym::Expr condition = at(node.attributes.expr("condition"));
      std::vector<Region> regions;
      regions.push_back(copy(node.regions[0], {}, condition));
      regions.push_back(copy(node.regions[1], {}, sym::logical_not(condition)));
      return b.add_with_regions(node.kind, {}, at(node.attributes), std::move(regions));
    }
    case OpKind::kLoop: return copy_loop(node);
    default: STRIDEC_CHECK(node.regions.empty());
  }
  return b.add(node.kind, at(node.inputs), at(node.attributes));
}

void NodeCopier::copy(NodeId id) {
  const Node& node = builder_.graph()[id];
  const std::vector<ValueId> before = node.outputs, after = outputs_of_copy(node);
  STRIDEC_CHECK(before.size() == after.size());
  for (size_t i = 0; i < before.size(); ++i) map(before[i], after[i]);
}

void NodeCopier::copy(const std::vector<NodeId>& nodes) {
  for (NodeId id : nodes) copy(id);
}

}  // namespace stridec::ops
