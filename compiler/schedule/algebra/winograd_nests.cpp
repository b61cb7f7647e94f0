#include "compiler/schedule/algebra/winograd_nests.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/nest_traits.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::Buffer;
using loop::BufferId;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using loop::ValueId;
using sym::Expr;
using Matrix = std::vector<std::vector<double>>;

struct Transforms {
  Matrix input, weight, output;  // B^T, G, A^T
};

const Transforms& transforms(int m) {
  static const Transforms f2 = {
      .input = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
      .weight = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}},
      .output = {{1, 1, 1, 0}, {0, 1, -1, -1}},
  };
  static const Transforms f4 = {
      .input = {{4, 0, -5, 0, 1, 0},
                {0, -4, -4, 1, 1, 0},
                {0, 4, -4, -1, 1, 0},
                {0, -2, -1, 2, 1, 0},
                {0, 2, -1, -2, 1, 0},
                {0, 4, 0, -5, 0, 1}},
      .weight = {{1.0 / 4, 0, 0},
                 {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                 {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                 {1.0 / 24, 1.0 / 12, 1.0 / 6},
                 {1.0 / 24, -1.0 / 12, 1.0 / 6},
                 {0, 0, 1}},
      .output = {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}},
  };
  STRIDEC_CHECK(m == 2 || m == 4);
  return m == 2 ? f2 : f4;
}

// ---- statements -------------------------------------------------------------------------------------------

// Appends statements on f32 scalars to a nest.
class Scalars {
 public:
  explicit Scalars(Nest& nest) : writer_{nest, nest.body} {}

  ValueId load(Access access) { return writer_.load(DType::kF32, std::move(access)); }
  void store(Access access, ValueId value) { writer_.store(std::move(access), value); }

  // matrix * values * matrix^T, by rows and columns.
  std::vector<std::vector<ValueId>> both_sides(const Matrix& matrix,
                                               const std::vector<std::vector<ValueId>>& values) {
    std::vector<std::vector<ValueId>> half(matrix.size()), out(matrix.size());
    for (size_t i = 0; i < matrix.size(); ++i)
      for (size_t j = 0; j < values.size(); ++j) {
        std::vector<ValueId> column;
        for (const auto& row : values) column.push_back(row[j]);
        half[i].push_back(combination(matrix[i], column));
      }
    for (size_t i = 0; i < matrix.size(); ++i)
      for (const auto& row : matrix) out[i].push_back(combination(row, half[i]));
    return out;
  }

 private:
  ValueId let(loop::ScalarOp op, ValueId a, ValueId b) { return writer_.let(op, DType::kF32, {a, b}); }
  ValueId scaled(double factor, ValueId value) {
    if (factor == 1) return value;
    const ValueId number = writer_.constant(loop::float_scalar(DType::kF32, factor));
    return let(loop::ScalarOp::kMul, value, number);
  }
  // The sum of factors[i] * values[i]; positive factors first, so that the others are subtracted.
  ValueId combination(const std::vector<double>& factors, const std::vector<ValueId>& values) {
    std::optional<ValueId> sum;
    for (bool positive : {true, false})
      for (size_t i = 0; i < factors.size(); ++i) {
        if (factors[i] == 0 || (factors[i] > 0) != positive) continue;
        if (!sum)
          sum = scaled(factors[i], values[i]);
        else
          sum = let(positive ? loop::ScalarOp::kAdd : loop::ScalarOp::kSub, *sum,
                    scaled(std::fabs(factors[i]), values[i]));
      }
    return *sum;
  }

  loop::Writer writer_;
};

// ---- the convolution --------------------------------------------------------------------------------------

bool moves(const Access& access, Expr var) {
  return sym::depends_on(access.mask, var) || std::any_of(access.index.begin(), access.index.end(),
                                                          [&](Expr e) { return sym::depends_on(e, var); });
}

// Whether the access depends on y and r only through y + r.
bool slides(const Access& access, Expr y, Expr r, const sym::Facts& facts) {
  const Expr by = sym::var("%by");
  auto same = [&](Expr e) {
    return sym::simplify(sym::substitute(e, r, by), facts) ==
           sym::simplify(sym::substitute(sym::substitute(e, r, 0), y, y + by), facts);
  };
  return moves(access, y) && moves(access, r) && same(access.mask) &&
         std::all_of(access.index.begin(), access.index.end(), same);
}

bool are_equal(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Dim& x, const Dim& y) { return x.var == y.var && x.extent == y.extent; });
}

class Splitter {
 public:
  Splitter(Program& program, const std::vector<Sibling>& siblings, int m)
      : program_(program),
        siblings_(siblings),
        c_(siblings[0].conv),
        m_(m),
        t_(m + 2),
        tile_(transforms(m)),
        columns_(joined_columns(siblings)) {
    for (const auto* list : {&c_.shared, &c_.own})
      for (const Dim& dim : *list) rows_.push_back(tiled(dim));
    position_ = sym::var("%q");
  }

  std::vector<Nest> run() {
    weights();
    std::vector<Nest> out = {input(), products()};
    Expr first = 0;  // first of the sibling's columns
    const auto attribute_to = [](const Sibling& sibling, Nest& nest) {
      loop::attribute(nest, loop::node_of(sibling.nest, sibling.conv.reduce->results[0]));
    };
    for (Nest& nest : out) attribute_to(siblings_[0], nest);
    for (const Sibling& sibling : siblings_) {
      out.push_back(output(sibling, first));
      attribute_to(sibling, out.back());
      if (siblings_.size() > 1) first = first + sibling.conv.columns[0].extent;
    }
    for (Nest& nest : out) loop::clean(program_, nest);
    return out;
  }

 private:
  Dim tiled(const Dim& dim) const {
    return dim.var == c_.y.var || dim.var == c_.x.var ? Dim{dim.var, sym::ceildiv(dim.extent, m_)} : dim;
  }

  Nest named(const std::string& suffix) const {
    Nest nest{.name = name_of(siblings_) + suffix};
    for (const Sibling& sibling : siblings_) join_nodes(nest, sibling.nest.nodes);
    return nest;
  }

  BufferId buffer(const std::string& name, const std::vector<const std::vector<Dim>*>& dims) {
    Buffer made{.name = name, .dtype = DType::kF32};
    made.shape.push_back(t_ * t_);
    for (const auto* list : dims)
      for (const Dim& dim : *list) made.shape.push_back(dim.extent);
    return loop::add_buffer(program_, std::move(made));
  }
  static Access at(BufferId id, Expr position, const std::vector<const std::vector<Dim>*>& dims) {
    Access access{.buffer = id};
    access.index.push_back(position);
    for (const auto* list : dims)
      for (const Dim& dim : *list) access.index.push_back(dim.var);
    return access;
  }

  void weights() {
    u_ = buffer(program_[c_.weight->access.buffer].name + ".winograd", {&c_.shared, &c_.channels, &columns_});
    program_[u_].storage = loop::Storage::kParameter;
    program_[u_].prepacked = true;
    Expr first = 0;
    for (const Sibling& sibling : siblings_) {
      weights(sibling, first);
      if (siblings_.size() > 1) first = first + sibling.conv.columns[0].extent;
    }
  }

  void weights(const Sibling& sibling, Expr first) {
    const Access& weight = sibling.conv.weight->access;
    Nest nest{.name = cat("pack ", program_[weight.buffer].name, ".winograd"), .nodes = sibling.nest.nodes};
    const std::vector<const std::vector<Dim>*> dims = {&c_.shared, &c_.channels, &sibling.conv.columns};
    for (const auto* list : dims) nest.dims.insert(nest.dims.end(), list->begin(), list->end());
    Scalars scalars(nest);
    std::vector<std::vector<ValueId>> window(3);
    for (int r = 0; r < 3; ++r)
      for (int s = 0; s < 3; ++s) {
        Access access = weight;
        loop::substitute(access, {{c_.r, r}, {c_.s, s}});
        window[static_cast<size_t>(r)].push_back(scalars.load(std::move(access)));
      }
    store_all(scalars, scalars.both_sides(tile_.weight, window), u_, dims, first);
    loop::clean(program_, nest);
    program_.prepack.push_back(loop::add_nest(program_, std::move(nest)));
  }

  // `first`: where the columns begin, which are the last of these dims.
  void store_all(Scalars& scalars, const std::vector<std::vector<ValueId>>& values, BufferId to,
                 const std::vector<const std::vector<Dim>*>& dims, Expr first = 0) {
    for (size_t i = 0; i < values.size(); ++i)
      for (size_t j = 0; j < values.size(); ++j) {
        Access access = at(to, static_cast<int64_t>(i * values.size() + j), dims);
        access.index.back() = access.index.back() + first;
        scalars.store(std::move(access), values[i][j]);
      }
  }

  // The substitution for element (i, j) of a tile: y and x become those of the output whose window begins
  // there.
  sym::Substitution inside_tile(int i, int j) const {
    return {{c_.y.var, c_.y.var * m_ + i}, {c_.x.var, c_.x.var * m_ + j}, {c_.r, 0}, {c_.s, 0}};
  }

  Nest input() {
    v_ = buffer("", v_dims());
    Nest nest = named(" input");
    for (const auto* list : v_dims()) nest.dims.insert(nest.dims.end(), list->begin(), list->end());
    Scalars scalars(nest);
    std::vector<std::vector<ValueId>> tile(static_cast<size_t>(t_));
    for (int i = 0; i < t_; ++i)
      for (int j = 0; j < t_; ++j) {
        Access access = c_.data->access;
        loop::substitute(access, inside_tile(i, j));
        // Elements that no output needs may be out of range.
        const Expr needed = sym::logical_and(sym::lt(c_.y.var * m_ + i, c_.y.extent + 2),
                                             sym::lt(c_.x.var * m_ + j, c_.x.extent + 2));
        access.mask = sym::logical_and(access.mask, needed);
        tile[static_cast<size_t>(i)].push_back(scalars.load(std::move(access)));
      }
    store_all(scalars, scalars.both_sides(tile_.input, tile), v_, v_dims());
    return nest;
  }

  Nest products() {
    m_buffer_ = buffer("", m_dims());
    Nest nest = named("");
    nest.dims.push_back({position_, t_ * t_});
    for (const Dim& dim : siblings_[0].nest.dims) {
      const auto column = std::find_if(columns_.begin(), columns_.end(),
                                       [&](const Dim& other) { return other.var == dim.var; });
      nest.dims.push_back(column == columns_.end() ? tiled(dim) : *column);
    }
    Nest inner;  // its body becomes the reduction's
    inner.values = {};
    Scalars scalars(inner);
    const ValueId v = scalars.load(at(v_, position_, v_dims())),
                  u = scalars.load(at(u_, position_, {&c_.shared, &c_.channels, &columns_}));
    const ValueId product = loop::add_value(inner, DType::kF32), sum = loop::add_value(inner, DType::kF32);
    inner.body.push_back({loop::Let{product, loop::ScalarOp::kMul, {v, u}}});
    nest.values = inner.values;
    nest.body.push_back(
        {loop::Reduce{c_.channels, std::move(inner.body), loop::Combine::kSum, {product}, {sum}}});
    Scalars(nest).store(at(m_buffer_, position_, m_dims()), sum);
    return nest;
  }

  Nest output(const Sibling& sibling, Expr first) {
    const Nest& from = sibling.nest;
    const Convolution& conv = sibling.conv;
    Nest nest{.name = from.name + " output", .nodes = from.nodes};
    for (const Dim& dim : from.dims) nest.dims.push_back(tiled(dim));
    Scalars scalars(nest);
    std::vector<std::vector<ValueId>> tile(static_cast<size_t>(t_));
    for (int i = 0; i < t_; ++i)
      for (int j = 0; j < t_; ++j) {
        Access access = at(m_buffer_, i * t_ + j, m_dims());
        access.index.back() = access.index.back() + first;
        tile[static_cast<size_t>(i)].push_back(scalars.load(std::move(access)));
      }
    const auto sums = scalars.both_sides(tile_.output, tile);
    loop::Cloner cloner(nest);
    for (int i = 0; i < m_; ++i)
      for (int j = 0; j < m_; ++j) {
        cloner.forget();
        cloner.map(conv.reduce->results[0], sums[static_cast<size_t>(i)][static_cast<size_t>(j)]);
        const Expr y = c_.y.var * m_ + i, x = c_.x.var * m_ + j;
        cloner.map(c_.y.var, y);
        cloner.map(c_.x.var, x);
        const Expr exists = sym::logical_and(sym::lt(y, c_.y.extent), sym::lt(x, c_.x.extent));
        for (size_t k = 0; k < from.body.size(); ++k) {
          if (k == conv.at || !is_needed(conv, from.body[k])) continue;
          Stmt stmt = cloner.clone(from, from.body[k]);
          if (Access* access = loop::access_of(stmt)) access->mask = sym::logical_and(access->mask, exists);
          nest.body.push_back(std::move(stmt));
        }
      }
    return nest;
  }
  // Whether more than the reduction uses the statement.
  static bool is_needed(const Convolution& conv, const Stmt& stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    return !load || (load != conv.data && load != conv.weight);
  }

  std::vector<const std::vector<Dim>*> v_dims() const { return {&rows_, &c_.channels}; }
  std::vector<const std::vector<Dim>*> m_dims() const { return {&rows_, &columns_}; }

  Program& program_;
  const std::vector<Sibling>& siblings_;
  const Convolution& c_;  // the first; all siblings read its data
  const int m_, t_;
  const Transforms& tile_;
  const std::vector<Dim> columns_;  // of all siblings
  std::vector<Dim> rows_;           // dims of the data; y and x count tiles
  Expr position_;                   // position in a tile
  BufferId u_, v_, m_buffer_;
};

}  // namespace

std::optional<Convolution> match_winograd(const Program& program, const Nest& nest, std::string* reason) {
  auto refuse = [&](const char* why) {
    *reason = why;
    return std::nullopt;
  };
  const auto found = loop::classify_contraction(nest);
  if (!found || found->accumulate != DType::kF32 || !found->loose.empty())
    return refuse("no sum of f32 products");
  Convolution c{.reduce = found->reduce, .at = found->at};
  const bool swapped =
      found->a.plain && program[found->a.plain->access.buffer].storage == loop::Storage::kParameter;
  const loop::Operand &data = swapped ? found->b : found->a, &weight = swapped ? found->a : found->b;
  if (data.slice.size() != 1 || weight.slice.size() != 1) return refuse("an operand is computed");
  c.data = data.plain;
  c.weight = weight.plain;
  if (program[c.weight->access.buffer].storage != loop::Storage::kParameter ||
      !c.weight->access.mask.is_const(1))
    return refuse("the weights are not constant");
  if (c.data->fill.f != 0 || c.data->fill.i != 0) return refuse("the padding is not zero");
  c.own = swapped ? found->n : found->m;
  c.columns = swapped ? found->m : found->n;
  c.shared = found->batch;
  if (c.columns.empty()) return refuse("the weights have no dim of their own");
  const sym::Facts& facts = program.facts;
  std::vector<std::pair<Dim, Expr>> windows;
  for (const Dim& k : found->k) {
    const Dim* slid = nullptr;
    if (k.extent.is_const(3))
      for (const Dim& own : c.own)
        if (slides(c.data->access, own.var, k.var, facts)) slid = &own;
    if (slid)
      windows.emplace_back(*slid, k.var);
    else
      c.channels.push_back(k);
  }
  if (windows.size() != 2 || windows[0].first.var == windows[1].first.var)
    return refuse("the window is not 3x3, stride 1");
  if (c.channels.empty()) return refuse("there are no channels to sum over");
  std::tie(c.y, c.r) = windows[0];
  std::tie(c.x, c.s) = windows[1];
  for (Expr var : sym::free_vars(loop::element_count(program[c.weight->access.buffer].shape)))
    if (!sym::is_index(var)) return refuse("the weights have a symbolic size");
  bool plain = true;
  for (const Stmt& stmt : nest.body) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    plain = plain && !std::holds_alternative<loop::Bind>(stmt.node) && !(store && store->update);
  }
  if (!plain) return refuse("the statements after the sum are not an epilogue");
  return c;
}

bool are_siblings(const Convolution& a, const Convolution& b) {
  const auto sliding = [](const Convolution& c) { return std::vector<Expr>{c.y.var, c.x.var, c.r, c.s}; };
  const Access &x = a.data->access, &y = b.data->access;
  return x.buffer == y.buffer && x.index == y.index && x.mask == y.mask && are_equal(a.own, b.own) &&
         are_equal(a.shared, b.shared) && are_equal(a.channels, b.channels) && sliding(a) == sliding(b) &&
         a.columns.size() == 1 && b.columns.size() == 1 && a.columns[0].var == b.columns[0].var;
}

std::vector<Dim> joined_columns(const std::vector<Sibling>& siblings) {
  std::vector<Dim> columns = siblings[0].conv.columns;
  for (size_t i = 1; i < siblings.size(); ++i)
    columns[0].extent = columns[0].extent + siblings[i].conv.columns[0].extent;
  return columns;
}

std::string name_of(const std::vector<Sibling>& siblings) {
  Nest joined = siblings[0].nest;
  for (size_t i = 1; i < siblings.size(); ++i) joined.name = fused_name(joined, siblings[i].nest);
  return joined.name;
}

std::vector<Nest> winograd_nests(Program& program, const std::vector<Sibling>& siblings, int m) {
  return Splitter(program, siblings, m).run();
}

}  // namespace stridec::schedule
