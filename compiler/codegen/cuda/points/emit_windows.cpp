// Emits one thread per block of neighbouring points, for nests of small windows: vectors along the dim that
// is contiguous in memory, and a few points along one or two dims that windows slide over. Windows are
// unrolled. Elements that several points of the block read are loaded once.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/common/vector_access.h"
#include "compiler/codegen/cuda/points/points.h"
#include "compiler/kernels/point_window.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::codegen::cuda {
namespace {

using sym::Expr;

constexpr int kThreads = 128;
constexpr int64_t kMostBlocks = 1 << 24;  // with more, threads take several

class WindowEmitter {
 public:
  // `points`: the plan's points that a thread computes at a time.
  WindowEmitter(const loop::Program& program, const loop::Nest& original, const schedule::LoopPlan& plan,
                const std::vector<schedule::LoopPlan::Split>& points, const GpuTarget& target)
      : program_(program),
        target_(target),
        points_(points),
        nest_(schedule::reshaped(program, original, plan)),
        window_(kernels::match_point_window(program, nest_)),
        facts_(loop::facts_of(program, nest_)),
        text_(program, kCudaText),
        body_(text_, nest_) {
    for (const loop::Dim& dim : nest_.dims)
      if (dim.var == points_[0].dim) fast_ = dim;
    for (size_t p = 1; p < points_.size(); ++p)
      for (const loop::Dim& dim : nest_.dims)
        if (dim.var == points_[p].dim) along_.push_back({dim, points_[p].factor, {}});
    for (const Along& along : along_) {
      std::vector<Point> all;
      for (const Point& point : block_)
        for (int64_t i = 0; i < along.count; ++i) {
          all.push_back(point);
          all.back().push_back(i);
        }
      block_ = std::move(all);
    }
    for (const loop::Stmt& stmt : nest_.body)
      if (!std::holds_alternative<loop::Reduce>(stmt.node)) rest_.push_back(stmt);
  }

  // Returns nothing if some access cannot be a vector; the nest then uses one thread per point.
  std::optional<DeviceChoice> emit() {
    if (!window_) return std::nullopt;
    // The loads of windows without their masks, which are the same for all lanes.
    loop::Block loads;
    for (const loop::Load* load : window_->loads) {
      const auto stride = loop::stride_of(program_, load->access, fast_.var, facts_);
      if (!stride || sym::depends_on(load->access.mask, fast_.var)) return std::nullopt;
      if (stride->is_const(0)) continue;
      loads.push_back({*load});
      std::get<loop::Load>(loads.back().node).access.mask = 1;
    }
    const int width = static_cast<int>(points_[0].factor);
    const auto ends = plan_strip(program_, nest_, rest_, fast_.var, fast_.extent, facts_, width);
    const auto inside = plan_strip(program_, nest_, loads, fast_.var, fast_.extent, facts_, width);
    if (!ends || !inside || inside->vectors.size() != loads.size()) return std::nullopt;
    strip_ = *ends;
    DeviceChoice choice;
    std::vector<Expr> conditions = ends->conditions;
    conditions.insert(conditions.end(), inside->conditions.begin(), inside->conditions.end());
    choice.condition = sym::logical_and(conditions);
    choice.aligned = ends->aligned;
    for (loop::BufferId id : inside->aligned)
      if (!std::count(choice.aligned.begin(), choice.aligned.end(), id)) choice.aligned.push_back(id);
    choice.launches.push_back(print());
    return choice;
  }

 private:
  // A dim with several points per block, and the name of the block's first index.
  struct Along {
    loop::Dim dim;
    int64_t count;
    std::string start;
  };
  using Point = std::vector<int64_t>;  // of the block: its position along each of these dims

  DeviceKernel print() {
    Expr count = 1;
    struct Numbered {
      Expr var, extent;
      int64_t step;
      std::string* name;
    };
    std::vector<Numbered> dims;  // the dims that thread numbers decompose into, the fastest last
    const auto number = [&](Along& along) {
      dims.push_back({along.dim.var, sym::ceildiv(along.dim.extent, along.count), along.count, &along.start});
    };
    for (const loop::Dim& dim : nest_.dims) {
      const auto along =
          std::ranges::find_if(along_, [&](const Along& each) { return each.dim.var == dim.var; });
      if (dim.var == fast_.var || (!along_.empty() && along == along_.begin())) continue;
      if (along != along_.end())
        number(*along);
      else
        dims.push_back({dim.var, dim.extent, 1, nullptr});
    }
    if (!along_.empty()) number(along_[0]);
    dims.push_back({fast_.var, sym::floordiv(fast_.extent, strip_.width), strip_.width, &first_});
    for (const Numbered& dim : dims) count *= dim.extent;
    const std::string n = body_.index(count);
    text_.open(cat("for (int64_t point = blockIdx.x * (int64_t)", kThreads, " + threadIdx.x; point < ", n,
                   "; point += gridDim.x * (int64_t)", kThreads, ")"));
    text_.line("int64_t rest = point;");
    for (size_t d = dims.size(); d-- > 0;) {
      const std::string name = text_.fresh("i"), extent = body_.index(dims[d].extent);
      text_.line(cat("const int64_t ", name, " = ", d ? cat("rest % ", extent) : "rest",
                     dims[d].step > 1 ? cat(" * ", dims[d].step) : "", ";"));
      if (d) text_.line(cat("rest /= ", extent, ";"));
      body_.set_index(dims[d].var, name);
      if (dims[d].name) *dims[d].name = name;
    }
    for (const loop::Reduce* reduce : window_->reduces) print_reduce(*reduce);
    for (size_t q = 0; q < block_.size(); ++q) {
      const std::string inside = inside_of(block_[q]);
      text_.open(inside.empty() ? "" : cat("if (", inside, ")"));
      set_point(block_[q]);
      set_results(window_->reduces, q);
      print_strip(text_, body_, rest_, strip_, first_);
      text_.close();
    }
    text_.close();
    const Expr blocks = sym::min(sym::ceildiv(count, kThreads), kMostBlocks);
    return finish(text_, {.grid = {blocks, 1, 1}, .threads = kThreads, .waits = target_.dependent_launch},
                  std::string(strip_declarations()));
  }

  // Of point q of the block, for lane u.
  void set_results(std::span<const loop::Reduce* const> reduces, size_t q) {
    for (const loop::Reduce* reduce : reduces)
      for (size_t p = 0; p < reduce->results.size(); ++p) {
        const DType dtype = nest_.values[reduce->results[p].value].dtype;
        const std::string sum = cat(sums_.at({reduce, p}), "[", q, "][u]");
        body_.set_value(reduce->results[p],
                        {is_storage_float(dtype) ? body_.rounded(sum, dtype, 1) : sum, dtype, 1});
      }
  }

  void set_point(const Point& point) {
    for (size_t a = 0; a < along_.size(); ++a)
      body_.set_index(along_[a].dim.var, cat("(", along_[a].start, " + ", point[a], ")"));
  }

  bool is_ragged(const Along& along) const {
    return facts_.known_divisor(along.dim.extent) % along.count != 0;
  }

  // Condition that a point of the block exists; "": always.
  std::string inside_of(const Point& point) {
    std::string out;
    for (size_t a = 0; a < along_.size(); ++a)
      if (point[a] && is_ragged(along_[a]))
        out += cat(out.empty() ? "" : " && ", along_[a].start, " + ", point[a], " < ",
                   body_.index(along_[a].dim.extent));
    return out;
  }

  struct Sums {
    const loop::Reduce& reduce;
    const std::vector<std::string>& names;
    const std::vector<DType>& dtypes;
  };
  // The row of elements that a row loop is at.
  struct Row {
    kernels::RowLoop by;
    std::string name;
    int64_t taps;  // extent of the window's first dim
    // Condition that points r further along the dim `across` have a tap for the row.
    std::string reaches(int64_t r) const {
      return cat(r * by.step, " <= ", name, " && ", name, " < ", taps + r * by.step);
    }
  };

  void print_reduce(const loop::Reduce& reduce) {
    std::vector<DType> dtypes;
    std::vector<std::string> sums;
    for (size_t p = 0; p < reduce.results.size(); ++p) {
      dtypes.push_back(nest_.values[reduce.results[p].value].dtype);
      sums.push_back(sums_[{&reduce, p}] = text_.fresh("sum"));
      text_.line(
          cat(text_.value_type(dtypes[p]), " ", sums[p], "[", block_.size(), "][", strip_.width, "];"));
    }
    text_.line("#pragma unroll");
    text_.open(cat("for (int u = 0; u < ", strip_.width, "; ++u)"));
    for (size_t p = 0; p < sums.size(); ++p)
      for (size_t q = 0; q < block_.size(); ++q)
        text_.line(cat(sums[p], "[", q, "][u] = ", body_.identity(reduce.combine, dtypes[p], p), ";"));
    text_.close();
    const Sums of{reduce, sums, dtypes};
    std::vector<Expr> along;
    for (const Along& each : along_) along.push_back(each.dim.var);
    if (const auto rows =
            kernels::window_row_loop(reduce, along, static_cast<int64_t>(block_.size()) * strip_.width))
      return print_rows(of, *rows);
    Elements elements;
    std::vector<Group> groups;
    for (const std::vector<int64_t>& tap : kernels::taps_of(reduce))
      groups.push_back(group_of(reduce, {tap.begin(), tap.end()}, all_points(), elements));
    for (const Group& group : groups) print_group(of, group);
  }

  // A loop over the rows that are loaded. Elements that several rows of points read are loaded first; then
  // each row of points that has a tap for the loaded row adds its products. Each point visits its taps in
  // order.
  void print_rows(const Sums& of, const kernels::RowLoop& by) {
    const loop::Reduce& reduce = of.reduce;
    loop::Reduce inner = reduce;
    inner.dims.erase(inner.dims.begin());
    const Expr row = sym::var("%row");
    row_ = {.by = by, .name = text_.fresh("row"), .taps = reduce.dims[0].extent.value()};
    const int64_t rows = by.step ? along_[by.across].count : 1;
    std::vector<std::vector<Group>> turns;
    Elements elements;
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<size_t> points = all_points();
      if (rows > 1) std::erase_if(points, [&](size_t q) { return block_[q][by.across] != r; });
      turns.emplace_back();
      for (const std::vector<int64_t>& tap : kernels::taps_of(inner)) {
        std::vector<Expr> taps = {row - r * by.step};
        taps.insert(taps.end(), tap.begin(), tap.end());
        turns.back().push_back(group_of(reduce, std::move(taps), points, elements));
      }
    }
    body_.set_index(row, row_->name);
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int ", row_->name, " = 0; ", row_->name, " < ", row_->taps + (rows - 1) * by.step,
                   "; ++", row_->name, ")"));
    for (auto& element : elements)
      if (rows > 1 && std::ranges::any_of(element.second.points, [&](const Point& point) {
            return point[by.across] != (*element.second.points.begin())[by.across];
          }))
        print_load(element);
    for (int64_t r = 0; r < rows; ++r) {
      text_.open(rows > 1 ? cat("if (", row_->reaches(r), ")") : "");
      for (const Group& group : turns[static_cast<size_t>(r)]) print_group(of, group);
      text_.close();
    }
    text_.close();
    row_.reset();
  }

  // An element that points of the block load, for lane u.
  struct Element {
    const loop::Load* load;
    std::set<Point> points;  // it is not loaded if all of these are beyond the end
    std::string text;        // "": not loaded yet
  };
  struct Less {
    bool operator()(const std::pair<const loop::Load*, loop::Access>& a,
                    const std::pair<const loop::Load*, loop::Access>& b) const {
      return a.first != b.first ? std::less<>()(a.first, b.first) : kernels::AccessLess()(a.second, b.second);
    }
  };
  using Elements = std::map<std::pair<const loop::Load*, loop::Access>, Element, Less>;

  // Points of the block that process a tap together, and the loads of the body for each of them in turn.
  struct Group {
    std::vector<Expr> tap;
    std::vector<size_t> points;
    std::vector<Elements::value_type*> uses;
  };

  Group group_of(const loop::Reduce& reduce, std::vector<Expr> tap, std::vector<size_t> points,
                 Elements& elements) const {
    Group out{std::move(tap), std::move(points), {}};
    for (const size_t q : out.points)
      for (const loop::Stmt& stmt : reduce.body) {
        const auto* load = std::get_if<loop::Load>(&stmt.node);
        if (!load) continue;
        kernels::Indices indices;
        for (size_t d = 0; d < out.tap.size(); ++d) indices.emplace_back(reduce.dims[d].var, out.tap[d]);
        for (size_t a = 0; a < along_.size(); ++a)
          indices.emplace_back(along_[a].dim.var, along_[a].dim.var + block_[q][a]);
        const std::pair key(load, kernels::access_at(load->access, indices, facts_));
        auto& element = *elements.try_emplace(key, Element{load, {}, {}}).first;
        element.second.points.insert(block_[q]);
        out.uses.push_back(&element);
      }
    return out;
  }

  void print_group(const Sums& of, const Group& group) {
    for (Elements::value_type* element : group.uses) print_load(*element);
    text_.line("#pragma unroll");
    text_.open(cat("for (int u = 0; u < ", strip_.width, "; ++u)"));
    body_.set_index(fast_.var, cat("(", first_, " + u)"));
    for (size_t d = 0; d < group.tap.size(); ++d)
      body_.set_index(of.reduce.dims[d].var, cat("(", body_.index(group.tap[d]), ")"));
    const auto end = std::ranges::find(window_->reduces, &of.reduce);
    const std::span earlier(window_->reduces.begin(), end);
    size_t use = 0;
    for (const size_t q : group.points) {
      set_point(block_[q]);
      set_results(earlier, q);
      for (const loop::Stmt* stmt : window_->given) body_.print(*stmt);
      for (const loop::Stmt& stmt : of.reduce.body) {
        if (const auto* load = std::get_if<loop::Load>(&stmt.node))
          body_.set_stored(load->result, group.uses[use++]->second.text, program_[load->access.buffer].dtype);
        else
          body_.print(stmt);
      }
      std::vector<std::string> into, from;
      for (size_t p = 0; p < of.names.size(); ++p) {
        into.push_back(cat(of.names[p], "[", q, "][u]"));
        from.push_back(body_.value(of.reduce.yields[p]).text);
      }
      body_.print_combine(of.reduce.combine, into, from, of.dtypes, 1);
    }
    text_.close();
    body_.set_index(fast_.var, first_);
    for (const Along& along : along_) body_.set_index(along.dim.var, along.start);
  }

  // Condition that some point of the block that loads the element exists; "": always.
  std::string needed(const Element& element) {
    const bool by_row = row_ && row_->by.step && is_ragged(along_[row_->by.across]);
    std::set<std::string> alternatives;
    for (const Point& point : element.points) {
      const auto nearer = [&](const Point& other) {  // exists wherever `point` does
        return other != point && (!by_row || other[row_->by.across] == point[row_->by.across]) &&
               std::ranges::equal(other, point, std::less_equal());
      };
      if (std::ranges::any_of(element.points, nearer)) continue;
      std::string inside = inside_of(point);
      if (by_row) inside += cat(inside.empty() ? "" : " && ", row_->reaches(point[row_->by.across]));
      alternatives.insert(std::move(inside));
    }
    std::string out;
    for (const std::string& each : alternatives) {
      if (each.empty()) return "";
      out += cat(out.empty() ? "" : " || ", "(", each, ")");
    }
    return cat("(", out, ")");
  }

  void print_load(Elements::value_type& of) {
    const loop::Access& access = of.first.second;
    Element& element = of.second;
    if (!element.text.empty()) return;
    const loop::Load& load = *element.load;
    const bool uniform = loop::stride_of(program_, load.access, fast_.var, facts_)->is_const(0);
    const std::string name = text_.fresh("at"), storage = text_.storage_type(program_[access.buffer].dtype);
    std::string condition;
    for (const Expr& part : loop::conjuncts(access.mask))
      condition += cat(condition.empty() ? "" : " && ", "(", body_.index(part), ")");
    if (const std::string inside = needed(element); !inside.empty())
      condition += cat(condition.empty() ? "" : " && ", inside);
    const std::string from = cat(text_.pointer(access.buffer), " + ", body_.offset(access));
    if (uniform) {
      text_.line(cat("const ", storage, " ", name, " = ",
                     condition.empty() ? "" : cat("!(", condition, ") ? ", body_.stored_fill(load), " : "),
                     "(", from, ")[0];"));
      element.text = name;
      return;
    }
    const std::string type = cat("Vec<", storage, ", ", strip_.width, ">");
    const std::string value = cat("sd_load<", strip_.width, ">(", from, ")");
    if (condition.empty()) {
      text_.line(cat("const ", type, " ", name, " = ", value, ";"));
    } else {
      text_.line(cat(type, " ", name, ";"));
      text_.line("#pragma unroll");
      text_.line(cat("for (int u = 0; u < ", strip_.width, "; ++u) ", name,
                     ".e[u] = ", body_.stored_fill(load), ";"));
      text_.line(cat("if (", condition, ") ", name, " = ", value, ";"));
    }
    element.text = name + ".e[u]";
  }

  std::vector<size_t> all_points() const {
    std::vector<size_t> out(block_.size());
    std::iota(out.begin(), out.end(), 0);
    return out;
  }

  const loop::Program& program_;
  const GpuTarget& target_;
  const std::vector<schedule::LoopPlan::Split> points_;
  const loop::Nest nest_;  // after reshapes
  const std::optional<kernels::PointWindow> window_;
  const sym::Facts facts_;
  KernelText text_;
  Body body_;
  loop::Dim fast_;
  std::vector<Along> along_;
  std::vector<Point> block_ = {{}};
  loop::Block rest_;  // statements other than reductions
  Strip strip_;       // for rest_
  std::string first_;
  std::optional<Row> row_;
  std::map<std::pair<const loop::Reduce*, size_t>, std::string> sums_;
};

}  // namespace

DeviceNest emit_windows(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  const schedule::LoopPlan plan = schedule::parse_plan(nest.schedule);
  Expr points = 1;
  for (const loop::Dim& dim : nest.dims) points *= dim.extent;
  const auto add = [&](const std::vector<schedule::LoopPlan::Split>& block, Expr enough) {
    auto choice = WindowEmitter(program, nest, plan, block, target).emit();
    if (!choice) return;
    choice->condition =
        sym::simplify(sym::logical_and(std::vector<Expr>{enough, choice->condition}), program.facts);
    out.choices.push_back(std::move(*choice));
  };
  add(plan.points, plan.few ? sym::ge(points, plan.few) : Expr(1));
  if (plan.few) add(plan.few_points, 1);
  if (out.is_complete()) return out;
  DeviceNest single = emit_points(program, nest, target);
  std::move(single.choices.begin(), single.choices.end(), std::back_inserter(out.choices));
  return out;
}

}  // namespace stridec::codegen::cuda
