#include "compiler/extend/draw.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace stridec::extend {
namespace {

using graph::OpKind;
using graph::ValueId;

constexpr int64_t kMostElements = 256, kMostOfLarge = 2048;  // of a variable

int64_t draw_size(Draws& d, int size) {
  static const std::vector<int64_t> kSmall = {1, 2, 3, 2, 1, 0}, kLarger = {1, 2, 3, 5, 4, 8, 0, 17};
  return size < 2 ? d.any_of(kSmall) : d.any_of(kLarger);
}

// The dims of `...`: like those of other variables, broadcast against them, or others. `sizes`: of other
// dims, which operators may want again.
std::vector<int64_t> draw_rest(Draws& d, const std::vector<int64_t>& base, const std::vector<int64_t>& sizes,
                               int size) {
  std::vector<int64_t> dims = base;
  double kind = d.between(0, 1);
  if (!sizes.empty() && d.chance(0.3)) {
    dims.resize(static_cast<size_t>(d.below(6)));
    for (int64_t& dim : dims) dim = d.chance(0.6) ? d.any_of(sizes) : draw_size(d, size);
    return dims;
  }
  if (kind < 0.55) return dims;
  if (kind < 0.7) {
    for (int64_t& dim : dims)
      if (d.chance(0.5)) dim = 1;
  } else if (kind < 0.85) {
    dims.erase(dims.begin(), dims.begin() + d.below(static_cast<int64_t>(dims.size()) + 1));
  } else if (!dims.empty()) {
    dims[static_cast<size_t>(d.below(static_cast<int64_t>(dims.size())))] = draw_size(d, size);
  }
  return dims;
}

DType draw_dtype(Draws& d, const Variable& variable, DType preferred) {
  return std::ranges::count(variable.dtypes, preferred) > 0 && !d.chance(0.05) ? preferred
                                                                               : d.any_of(variable.dtypes);
}

}  // namespace

std::vector<graph::Type> draw_types(Draws& d, const Rule& rule, int size, const Landmarks& near) {
  std::vector<graph::Type> types;
  if (rule.variables.empty()) return types;
  const DType preferred = d.any_of(d.any_of(rule.variables).dtypes);
  std::vector<int64_t> base(static_cast<size_t>(d.below(std::min(size, 3) + 1)));
  // Many elements at once, or sizes of which one may be 0.
  const bool many = size > 1 && d.chance(0.3);
  for (int64_t& dim : base) dim = many ? d.any_of<int64_t>({3, 4, 5, 8, 17}) : draw_size(d, size);
  // A dim may be large: counters of narrow types end there, and conditions may ask for it.
  const bool large = size > 1 && d.chance(0.1);
  const int64_t most = large || !near.sizes.empty() ? kMostOfLarge : kMostElements;
  const auto draw_dim = [&] {
    if (!near.sizes.empty() && d.chance(0.4)) return d.any_of(near.sizes);
    return large && d.chance(0.4) ? d.any_of<int64_t>({40, 130, 300}) : draw_size(d, size);
  };
  if (large && !base.empty() && d.chance(0.5)) base.back() = draw_dim();
  std::map<std::string, int64_t> named;
  std::vector<int64_t> sizes;
  for (const Variable& variable : rule.variables) {
    graph::Type type{.dtype = draw_dtype(d, variable, preferred), .shape = {}};
    for (const Dim& dim : variable.dims) {
      if (dim.kind == Dim::Kind::kSize) type.shape.push_back(dim.size);
      if (dim.kind == Dim::Kind::kName) {
        const auto found = named.find(dim.name);
        type.shape.push_back(found != named.end() ? found->second
                                                  : named.emplace(dim.name, draw_dim()).first->second);
      }
      if (dim.kind == Dim::Kind::kRest)
        for (const int64_t each : draw_rest(d, base, sizes, size)) type.shape.push_back(each);
    }
    int64_t count = 1;
    for (sym::Expr& dim : type.shape) {
      if (dim.value() > 8 && count * dim.value() > most) dim = 1;  // named dims then disagree
      count *= std::max<int64_t>(dim.value(), 1);
      sizes.push_back(dim.value());
    }
    types.push_back(std::move(type));
  }
  return types;
}

// ---- attributes ------------------------------------------------------------------------------------------

namespace {

using Sizes = std::vector<sym::Expr>;

Sizes draw_list(Draws& d, size_t count, const std::vector<int64_t>& among) {
  Sizes list;
  for (size_t i = 0; i < count; ++i) list.push_back(d.any_of(among));
  return list;
}

Sizes draw_subset(Draws& d, int rank) {
  Sizes dims;
  for (int64_t i = 0; i < rank; ++i)
    if (d.chance(0.5)) dims.push_back(i);
  if (dims.empty() && rank > 0) dims.push_back(d.below(rank));
  return dims;
}

Sizes draw_permutation(Draws& d, int rank) {
  Sizes order;
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(d.below(static_cast<int64_t>(i)))]);
  return order;
}

// The same elements in other dims: some are merged, some of size 1 are added.
Sizes draw_reshape(Draws& d, const graph::Shape& shape) {
  Sizes out;
  for (const sym::Expr dim : shape) {
    if (d.chance(0.2)) out.push_back(1);
    if (!out.empty() && d.chance(0.3))
      out.back() = out.back() * dim;
    else
      out.push_back(dim);
  }
  return out;
}

Sizes draw_expansion(Draws& d, const graph::Shape& shape) {
  Sizes out = draw_list(d, d.chance(0.3) ? 1 : 0, {1, 2, 3});
  for (const sym::Expr dim : shape)
    out.push_back(dim.is_const(1) ? d.any_of<sym::Expr>({1, 1, 2, 2, 3, 3, 0}) : dim);
  return out;
}

}  // namespace

Attr draw_attribute(Draws& d, const graph::Builder& b, OpKind kind, const std::string& attribute,
                    const std::vector<ValueId>& inputs) {
  const graph::Shape shape = inputs.empty() ? graph::Shape() : b.shape(inputs[0]);
  const int rank = static_cast<int>(shape.size());
  const size_t dims = shape.size(), spatial = dims > 2 ? dims - 2 : 0;
  // Of one rank in all attributes of one operation.
  const bool pooling =
      kind == OpKind::kReduceWindow || kind == OpKind::kWindowArgMax || kind == OpKind::kAveragePool;
  const bool windows = pooling || kind == OpKind::kConv || kind == OpKind::kConvTranspose;
  if (attribute == "dims") return draw_subset(d, rank);
  if (attribute == "dim") return sym::Expr(d.below(std::max(rank, 1)));
  if (attribute == "order") return draw_permutation(d, rank);
  if (attribute == "shape")
    return kind == OpKind::kExpand ? draw_expansion(d, shape) : draw_reshape(d, shape);
  if (attribute == "to")
    return d.any_of<DType>({DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI32, DType::kI64,
                            DType::kU8, DType::kI8, DType::kBool});
  if (attribute == "accumulate") return d.any_of<DType>({DType::kF32, DType::kF64, b.dtype(inputs[0])});
  if (attribute == "mode") return d.any_of<std::string>({"constant", "edge", "reflect", "wrap"});
  if (attribute == "kind") return d.any_of<std::string>({"sum", "max", "min", "prod"});
  if (attribute == "reduction") return d.any_of<std::string>({"none", "add", "mul", "max", "min"});
  if (attribute == "starts") return draw_list(d, dims, {0, 0, 0, 1, 2});
  if (attribute == "steps")
    return d.chance(0.7) ? draw_list(d, dims, {1}) : draw_list(d, dims, {1, 1, 2, -1});
  if (attribute == "extents") {
    Sizes extents;
    for (const sym::Expr dim : shape)
      extents.push_back(d.chance(0.5) ? dim.value() : d.below(dim.value() + 1));
    return extents;
  }
  if (attribute == "before" || attribute == "after") {
    if (windows) return draw_list(d, spatial, {0, 0, 1, 2});
    Sizes pads =
        draw_list(d, dims, d.chance(0.25) ? std::vector<int64_t>{0, 1, -1} : std::vector<int64_t>{0, 1, 2});
    if (dims > 2 && d.chance(0.5)) pads[0] = pads[1] = 0;
    return pads;
  }
  if (attribute == "strides" || attribute == "dilations")
    return draw_list(d, windows ? spatial : static_cast<size_t>(1 + d.below(2)), {1, 1, 2});
  if (attribute == "window") return draw_list(d, spatial, {1, 2, 3});
  if (attribute == "extra") return draw_list(d, spatial, {0, 0, 1});
  if (attribute == "groups") return sym::Expr(d.chance(0.7) ? 1 : 2);
  if (attribute == "k") return sym::Expr(d.below(3));
  if (attribute == "contract_a") return Sizes{d.below(std::max(rank, 1))};
  if (attribute == "contract_b")
    return Sizes{d.below(std::max<int64_t>(inputs.size() > 1 ? b.rank(inputs[1]) : 1, 1))};
  if (attribute == "batch_a" || attribute == "batch_b") return Sizes{};
  if (attribute == "batch_dims") return sym::Expr(0);
  return sym::Expr(d.below(2));  // a flag
}

Attr draw_parameter(Draws& d, const std::string& parameter, int rank) {
  if (parameter == "dims") return Sizes{d.below(std::max(rank, 1))};
  if (parameter == "first" || parameter == "second") return sym::Expr(d.below(std::max(rank, 1)));
  if (parameter == "form") return d.any_of<std::string>({"erf", "tanh"});
  return d.any_of<double>({1e-5, 1e-3, 0.1, 1.0});
}

}  // namespace stridec::extend
