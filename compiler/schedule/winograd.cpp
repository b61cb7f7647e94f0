#include "compiler/schedule/winograd.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/blame.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/choose_contraction.h"
#include "compiler/schedule/memory_plan.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::Buffer;
using loop::BufferId;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Steps;
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

// ---- statements --------------------------------------------------------------------------------------------

// Appends statements on f32 scalars to a nest.
class Scalars {
 public:
  explicit Scalars(Nest& nest) : nest_(nest) {}

  ValueId load(Access access) {
    const ValueId id = fresh();
    nest_.body.push_back({loop::Load{id, std::move(access), loop::float_scalar(DType::kF32, 0)}});
    return id;
  }
  void store(Access access, ValueId value) {
    nest_.body.push_back({loop::Store{.access = std::move(access), .value = value}});
  }

  // matrix * values * matrix^T, rows and columns.
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
  ValueId fresh() { return loop::add_value(nest_, DType::kF32); }
  ValueId let(loop::ScalarOp op, ValueId a, ValueId b) {
    const ValueId id = fresh();
    nest_.body.push_back({loop::Let{id, op, {a, b}}});
    return id;
  }
  ValueId scaled(double factor, ValueId value) {
    if (factor == 1) return value;
    const ValueId number = fresh();
    nest_.body.push_back({loop::Constant{number, loop::float_scalar(DType::kF32, factor)}});
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

  Nest& nest_;
};

// ---- the convolution ---------------------------------------------------------------------------------------

struct Convolution {
  const loop::Reduce* reduce = nullptr;
  size_t at = 0;
  const loop::Load *data = nullptr, *weight = nullptr;
  Dim y, x;                   // of the output
  Expr r, s;                  // of the window
  std::vector<Dim> own;       // parallel dims that the data moves with, y and x among them
  std::vector<Dim> columns;   // those of the weight alone
  std::vector<Dim> shared;    // those of both (groups)
  std::vector<Dim> channels;  // reduced, but r and s
};

bool moves(const Access& access, Expr var) {
  return sym::depends_on(access.mask, var) || std::any_of(access.index.begin(), access.index.end(),
                                                          [&](Expr e) { return sym::depends_on(e, var); });
}

// The access looks at y + r and at neither alone.
bool slides(const Access& access, Expr y, Expr r, const sym::Facts& facts) {
  const Expr by = sym::var("%by");
  auto same = [&](Expr e) {
    return sym::simplify(sym::substitute(e, r, by), facts) ==
           sym::simplify(sym::substitute(sym::substitute(e, r, 0), y, y + by), facts);
  };
  return moves(access, y) && moves(access, r) && same(access.mask) &&
         std::all_of(access.index.begin(), access.index.end(), same);
}

std::optional<Convolution> match(const Program& program, const Nest& nest, std::string* reason) {
  auto refuse = [&](const char* why) {
    *reason = why;
    return std::nullopt;
  };
  const auto found = loop::classify_contraction(nest);
  if (!found || found->accumulate != DType::kF32 || !found->loose.empty())
    return refuse("no sum of f32 products");
  Convolution c{.reduce = found->reduce, .at = found->at};
  const bool swapped =
      found->a.plain && program[found->a.plain->access.buffer].storage == loop::Storage::kWeight;
  const loop::Operand &data = swapped ? found->b : found->a, &weight = swapped ? found->a : found->b;
  if (data.slice.size() != 1 || weight.slice.size() != 1) return refuse("an operand is computed");
  c.data = data.plain;
  c.weight = weight.plain;
  if (program[c.weight->access.buffer].storage != loop::Storage::kWeight ||
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
  if (!plain) return refuse("what follows the sum is no epilogue");
  return c;
}

class Splitter {
 public:
  Splitter(Program& program, const Nest& nest, const Convolution& conv, int m)
      : program_(program), nest_(nest), c_(conv), m_(m), t_(m + 2), tile_(transforms(m)) {
    auto tiled = [&](const Dim& dim) {
      return dim.var == c_.y.var || dim.var == c_.x.var ? Dim{dim.var, sym::ceildiv(dim.extent, m_)} : dim;
    };
    for (const Dim& dim : nest.dims) dims_.push_back(tiled(dim));
    for (const auto* list : {&c_.shared, &c_.own})
      for (const Dim& dim : *list) rows_.push_back(tiled(dim));
    position_ = sym::var("%q");
  }

  std::vector<Nest> run() {
    weights();
    std::vector<Nest> out = {input(), products(), output()};
    for (Nest& nest : out) loop::clean(program_, nest);
    return out;
  }

 private:
  Nest named(const std::string& suffix) const { return {.name = nest_.name + suffix, .nodes = nest_.nodes}; }

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
    const std::string name = program_[c_.weight->access.buffer].name + ".winograd";
    u_ = buffer(name, u_dims());
    program_[u_].storage = loop::Storage::kWeight;
    program_[u_].prepacked = true;
    Nest nest{.name = "pack " + name, .nodes = nest_.nodes};
    for (const auto* list : u_dims()) nest.dims.insert(nest.dims.end(), list->begin(), list->end());
    Scalars scalars(nest);
    std::vector<std::vector<ValueId>> window(3);
    for (int r = 0; r < 3; ++r)
      for (int s = 0; s < 3; ++s) {
        Access access = c_.weight->access;
        loop::substitute(access, {{c_.r, r}, {c_.s, s}});
        window[static_cast<size_t>(r)].push_back(scalars.load(std::move(access)));
      }
    store_all(scalars, scalars.both_sides(tile_.weight, window), u_, u_dims());
    loop::clean(program_, nest);
    program_.prepack.push_back(loop::add_nest(program_, std::move(nest)));
  }

  void store_all(Scalars& scalars, const std::vector<std::vector<ValueId>>& values, BufferId to,
                 const std::vector<const std::vector<Dim>*>& dims) {
    for (size_t i = 0; i < values.size(); ++i)
      for (size_t j = 0; j < values.size(); ++j)
        scalars.store(at(to, static_cast<int64_t>(i * values.size() + j), dims), values[i][j]);
  }

  // The element (i, j) of a tile, as y and x at the output that it is first of.
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
        // What no output needs may lie outside.
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
    nest.dims.insert(nest.dims.end(), dims_.begin(), dims_.end());
    Nest inner;  // its body is the reduction's
    inner.values = {};
    Scalars scalars(inner);
    const ValueId v = scalars.load(at(v_, position_, v_dims())),
                  u = scalars.load(at(u_, position_, u_dims()));
    const ValueId product = loop::add_value(inner, DType::kF32), sum = loop::add_value(inner, DType::kF32);
    inner.body.push_back({loop::Let{product, loop::ScalarOp::kMul, {v, u}}});
    nest.values = inner.values;
    nest.body.push_back(
        {loop::Reduce{c_.channels, std::move(inner.body), loop::Combine::kSum, {product}, {sum}}});
    Scalars(nest).store(at(m_buffer_, position_, m_dims()), sum);
    return nest;
  }

  Nest output() {
    Nest nest = named(" output");
    nest.dims = dims_;
    Scalars scalars(nest);
    std::vector<std::vector<ValueId>> tile(static_cast<size_t>(t_));
    for (int i = 0; i < t_; ++i)
      for (int j = 0; j < t_; ++j)
        tile[static_cast<size_t>(i)].push_back(scalars.load(at(m_buffer_, i * t_ + j, m_dims())));
    const auto sums = scalars.both_sides(tile_.output, tile);
    loop::Cloner cloner(nest);
    for (int i = 0; i < m_; ++i)
      for (int j = 0; j < m_; ++j) {
        cloner.forget();
        cloner.map(c_.reduce->results[0], sums[static_cast<size_t>(i)][static_cast<size_t>(j)]);
        const Expr y = c_.y.var * m_ + i, x = c_.x.var * m_ + j;
        cloner.map(c_.y.var, y);
        cloner.map(c_.x.var, x);
        const Expr exists = sym::logical_and(sym::lt(y, c_.y.extent), sym::lt(x, c_.x.extent));
        for (size_t k = 0; k < nest_.body.size(); ++k) {
          if (k == c_.at || !is_needed(nest_.body[k])) continue;
          Stmt stmt = cloner.clone(nest_, nest_.body[k]);
          if (Access* access = loop::access_of(stmt)) access->mask = sym::logical_and(access->mask, exists);
          nest.body.push_back(std::move(stmt));
        }
      }
    return nest;
  }
  // Not what the reduction alone uses.
  bool is_needed(const Stmt& stmt) const {
    return std::get_if<loop::Load>(&stmt.node) == nullptr ||
           (std::get_if<loop::Load>(&stmt.node) != c_.data &&
            std::get_if<loop::Load>(&stmt.node) != c_.weight);
  }

  std::vector<const std::vector<Dim>*> u_dims() const { return {&c_.shared, &c_.channels, &c_.columns}; }
  std::vector<const std::vector<Dim>*> v_dims() const { return {&rows_, &c_.channels}; }
  std::vector<const std::vector<Dim>*> m_dims() const { return {&rows_, &c_.columns}; }

  Program& program_;
  const Nest& nest_;
  const Convolution& c_;
  const int m_, t_;
  const Transforms& tile_;
  std::vector<Dim> dims_;  // the nest's, y and x over tiles
  std::vector<Dim> rows_;  // those of the data
  Expr position_;          // in a tile
  BufferId u_, v_, m_buffer_;
};

// ---- cost --------------------------------------------------------------------------------------------------

// Cycles of one core, with figures of no machine in particular: what is chosen is the same for every variant.
constexpr double kFlops = 56;        // of a contraction, a cycle
constexpr double kBytes = 20;        // between neighbouring nests
constexpr double kWeightBytes = 10;  // weights come from further away
constexpr double kSumOverhead = 16;  // of the sums of a tile, as channels
constexpr double kLanes = 16;
constexpr int64_t kEnoughTiles = 16;  // few rows reuse little of what is loaded
constexpr double kMargin = 1.15;
// Of a cycle, so that expressions of whole numbers tell costs apart.
constexpr double kParts = 16;

// In kParts of a cycle, for so many images; m = 1: as it is.
Expr cycles(const Program& program, const Convolution& c, int m, Expr images) {
  const auto product = [&](const std::vector<Dim>& dims) {
    double count = 1;
    for (const Dim& dim : dims) count *= std::max(1.0, typical(dim.extent, program.facts));
    return count;
  };
  const auto times = [](double cost, Expr count) {
    return count * static_cast<int64_t>(std::ceil(std::min(cost * kParts, 1e15)));
  };
  const double groups = product(c.shared), in = product(c.channels), out = product(c.columns);
  const Expr pixels = c.y.extent * c.x.extent * images;
  if (m == 1)
    return times(2 * 9 * groups * in * out / kFlops, pixels) +
           times(4 * 9 * groups * in * out / kWeightBytes, 1);
  const double t = m + 2;
  const Expr tiles = sym::ceildiv(c.y.extent, m) * sym::ceildiv(c.x.extent, m) * images;
  const double products = 2 * t * t * groups * out * (in + kSumOverhead) / kFlops;
  const double moved = 4 * groups * (in + out) / kBytes;
  const double statements = groups * (std::ceil(in / kLanes) + std::ceil(out / kLanes)) * 3 * t * t;
  const double weights = 4 * t * t * groups * in * out / kWeightBytes;
  return times(products, sym::floordiv(tiles * kEnoughTiles, sym::min(kEnoughTiles, tiles + 2))) +
         times(moved, pixels) + times(moved * 2 * t * t + statements, tiles) + times(weights, 1);
}

struct Choice {
  int m = 1;           // tiles; 1: none
  int percent = 100;   // of the time without them that the better tiles would take, at sizes in the middle
  int small = 1;       // tiles of sizes at which those of m outputs are slower
  Expr condition = 1;  // that they are not, where the sizes may be such ones
};

Choice choose(const Program& program, const Convolution& c) {
  // Weights are read once for an image: one is the case that decides, where sizes do not.
  Expr images = 1, fewest = 1;
  for (const Dim& dim : c.own) {
    if (dim.var == c.y.var || dim.var == c.x.var) continue;
    images = images * dim.extent;
    fewest = fewest * std::max<int64_t>(1, program.facts.bounds(dim.extent).lo);
  }
  const auto at = [&](int m, auto&& size) {
    const auto value = sym::evaluate(cycles(program, c, m, fewest), size);
    return value ? static_cast<double>(*value) : 1e18;
  };
  const auto middle = [&](Expr var) {
    return std::optional(static_cast<int64_t>(typical(var, program.facts)));
  };
  const auto modest = [&](Expr var) {
    const sym::Interval range = program.facts.bounds(var);
    return std::optional(std::clamp<int64_t>(kModestSize, range.has_lo() ? range.lo : 1,
                                             range.has_hi() ? std::max<int64_t>(range.hi, 1) : kModestSize));
  };
  const double direct = at(1, middle), two = at(2, middle), four = at(4, middle);
  Choice choice;
  choice.percent = static_cast<int>(100 * std::min(two, four) / direct);
  if (std::min(two, four) >= direct / kMargin) return choice;
  choice.m = four < two ? 4 : 2;
  choice.small = choice.m == 4 && at(2, modest) < at(1, modest) / kMargin ? 2 : 1;
  if (at(choice.small, modest) * kMargin < at(choice.m, modest))
    choice.condition =
        sym::simplify(sym::le(cycles(program, c, choice.m, images), cycles(program, c, choice.small, images)),
                      program.facts);
  return choice;
}

std::string said(const Choice& choice) {
  if (choice.m == 1) return cat("it would take ", choice.percent, " % of the time");
  const auto tiles = [](int m) { return m == 1 ? std::string("none") : cat(m, "x", m); };
  return cat(
      "tiles of ", tiles(choice.m),
      choice.condition.is_const(1) ? "" : cat(", and ", tiles(choice.small), " where sizes are small"));
}

}  // namespace

std::vector<Nest> winograd(Program& program, const Nest& nest, int m, std::string* reason) {
  const auto conv = match(program, nest, reason);
  if (!conv) return {};
  return Splitter(program, nest, *conv, m).run();
}

void apply_winograd(Program& program, std::vector<Decision>* decisions) {
  const auto replace = [&](const Nest& nest, const loop::Step& step) -> Steps {
    std::string reason;
    const auto conv = match(program, nest, &reason);
    if (!conv) return {step};
    const Choice choice = choose(program, *conv);
    if (decisions) decisions->push_back({nest.name, "winograd", choice.m > 1, said(choice)});
    if (choice.m == 1) return {step};
    const auto tiles = [&](int m) -> Steps {
      if (m == 1) return {step};
      Steps steps;
      for (Nest& part : Splitter(program, nest, *conv, m).run())
        steps.push_back({loop::Launch{loop::add_nest(program, std::move(part))}});
      return steps;
    };
    if (choice.condition.is_const(1)) return tiles(choice.m);
    return {{loop::If{
        .condition = choice.condition, .then_steps = tiles(choice.m), .else_steps = tiles(choice.small)}}};
  };
  loop::for_each_block(program.steps, [&](Steps& steps) {
    Steps out;
    for (loop::Step& step : steps) {
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      if (!launch) {
        out.push_back(std::move(step));
        continue;
      }
      const Nest nest = program[launch->nest];  // the program's nests may move
      for (loop::Step& each : loop::blaming(nest, [&] { return replace(nest, step); }))
        out.push_back(std::move(each));
    }
    steps = std::move(out);
  });
  loop::compact(program);
}

}  // namespace stridec::schedule
