#include "compiler/frontend/torchscript/layouts.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace stridec::torchscript {
namespace {

using Strides = std::vector<sym::Expr>;
using Given = std::vector<aten::NamedValue>;

struct View {
  aten::Builder& b;
  const aten::Schema& schema;
  const Given& given;
  Strides strides;  // of the tensor that is viewed
  aten::Shape shape;
  const aten::Tensor& result;

  const aten::Value* argument(std::string_view name) const {
    for (size_t i = 0; i < given.size(); ++i) {
      const std::string& own = given[i].name.empty() ? schema.arguments[i].name : given[i].name;
      if (own == name) return &given[i].value;
    }
    return nullptr;
  }
  std::optional<size_t> dim(std::string_view name, int64_t without = 0, int64_t extra = 0) const {
    const aten::Value* v = argument(name);
    int64_t d = without;
    if (v) {
      if (v->kind != aten::Value::Kind::kInt || !v->integer.is_const()) return std::nullopt;
      d = v->integer.value();
    }
    const int64_t rank = static_cast<int64_t>(strides.size()) + extra;
    if (d < 0) d += rank;
    if (d < 0 || d >= rank) return std::nullopt;
    return static_cast<size_t>(d);
  }
};

Strides contiguous_strides(const aten::Shape& shape) {
  Strides out(shape.size());
  sym::Expr next = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    out[d] = next;
    next = next * shape[d];
  }
  return out;
}

std::optional<Strides> same(const View& v) { return v.strides; }
std::optional<Strides> reversed(const View& v) { return Strides(v.strides.rbegin(), v.strides.rend()); }
std::optional<Strides> swapped(const View& v) {
  const auto a = v.dim(v.schema.arguments[1].name), c = v.dim(v.schema.arguments[2].name);
  if (!a || !c) return std::nullopt;
  Strides out = v.strides;
  std::swap(out[*a], out[*c]);
  return out;
}
std::optional<Strides> permuted(const View& v) {
  const aten::Value* dims = v.argument("dims");
  if (!dims || dims->items.size() != v.strides.size()) return std::nullopt;
  Strides out;
  for (const aten::Value& item : dims->items) {
    if (!item.integer.is_const()) return std::nullopt;
    const int64_t d = item.integer.value(), rank = std::ssize(v.strides);
    if (d < -rank || d >= rank) return std::nullopt;
    out.push_back(v.strides[static_cast<size_t>(d < 0 ? d + rank : d)]);
  }
  return out;
}
std::optional<Strides> without_dim(const View& v) {
  const auto d = v.dim("dim");
  if (!d) return std::nullopt;
  Strides out = v.strides;
  out.erase(out.begin() + static_cast<ptrdiff_t>(*d));
  return out;
}
std::optional<Strides> stepped(const View& v) {
  const auto d = v.dim("dim");
  if (!d) return std::nullopt;
  Strides out = v.strides;
  if (const aten::Value* step = v.argument("step")) out[*d] = out[*d] * step->integer;
  return out;
}
std::optional<Strides> with_dim(const View& v) {
  const auto d = v.dim("dim", 0, 1);
  if (!d) return std::nullopt;
  Strides out = v.strides;
  const sym::Expr stride = *d < out.size() ? v.shape[*d] * out[*d] : sym::Expr(1);
  out.insert(out.begin() + static_cast<ptrdiff_t>(*d), stride);
  return out;
}
std::optional<Strides> expanded(const View& v) {
  const aten::Shape to = aten::shape_of(v.b, v.result);
  if (to.size() < v.strides.size()) return std::nullopt;
  const size_t added = to.size() - v.strides.size();
  Strides out(to.size(), sym::Expr(0));
  for (size_t d = 0; d < v.strides.size(); ++d)
    if (to[d + added] == v.shape[d]) out[d + added] = v.strides[d];
  return out;
}
std::optional<Strides> squeezed(const View& v) {
  const size_t rank = aten::shape_of(v.b, v.result).size();
  if (rank == v.strides.size()) return v.strides;
  if (const auto d = v.dim("dim", -1); v.argument("dim") && d && rank + 1 == v.strides.size())
    return without_dim(v);
  Strides out;
  for (size_t d = 0; d < v.strides.size(); ++d)
    if (!v.shape[d].is_const(1)) out.push_back(v.strides[d]);
  return out;
}

struct Row {
  std::string_view name;
  std::optional<Strides> (*strides)(const View& v);
};
constexpr Row kRows[] = {
    {"T", reversed},         {"alias", same},
    {"chunk", same},         {"detach", same},
    {"expand", expanded},    {"expand_as", expanded},
    {"mT", reversed},        {"narrow", same},
    {"numpy_T", reversed},   {"permute", permuted},
    {"select", without_dim}, {"slice", stepped},
    {"split", same},         {"split_with_sizes", same},
    {"squeeze", squeezed},   {"swapaxes", swapped},
    {"swapdims", swapped},   {"t", reversed},
    {"tensor_split", same},  {"transpose", swapped},
    {"unbind", without_dim}, {"unsqueeze", with_dim},
};

}  // namespace

void note_layout(aten::Builder& b, const aten::Schema& schema, const Given& given,
                 std::vector<aten::Value>& results) {
  const auto row = std::ranges::find_if(kRows, [&](const Row& r) { return r.name == schema.name; });
  if (row == std::end(kRows) || given.empty() || !given[0].value.is_tensor()) return;
  const aten::Tensor& from = given[0].value.tensor;
  const aten::Shape shape = aten::shape_of(b, from);
  Strides strides = from.strides.value_or(contiguous_strides(shape));
  if (strides.size() != shape.size()) return;
  const auto note = [&](aten::Value& to) {
    if (!to.is_tensor()) return;
    auto found = row->strides(View{b, schema, given, strides, shape, to.tensor});
    if (found && found->size() == aten::shape_of(b, to.tensor).size()) to.tensor.strides = std::move(found);
  };
  for (aten::Value& result : results) {
    note(result);
    for (aten::Value& item : result.items) note(item);
  }
}

}  // namespace stridec::torchscript
