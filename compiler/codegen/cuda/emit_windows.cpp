// A thread does a block of neighbouring points of a nest of small windows: vectors along the dim that is contiguous in
// memory, a few points along one that windows slide over. Windows are unrolled; what several points of the block load is
// loaded once.
#include <algorithm>
#include <map>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/codegen/cuda/strip.h"
#include "compiler/kernels/point_window.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/schedule.h"

namespace stridec::codegen::cuda {
namespace {

using sym::Expr;

constexpr int kThreads = 128;
constexpr int64_t kMostBlocks = 1 << 24;  // more: threads take several

class WindowEmitter {
 public:
  WindowEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target)
      : program_(program),
        target_(target),
        plan_(schedule::parse_plan(original.schedule)),
        nest_(schedule::reshaped(program, original, plan_)),
        window_(kernels::match_point_window(program, nest_)),
        facts_(loop::facts_of(program, nest_)),
        text_(program, kCudaText),
        body_(text_, nest_) {
    for (const loop::Dim& dim : nest_.dims) {
      if (dim.var == plan_.points[0].dim) fast_ = dim;
      if (plan_.points.size() > 1 && dim.var == plan_.points[1].dim) along_ = dim;
    }
    if (along_) count_ = plan_.points[1].factor;
    for (const loop::Stmt& stmt : nest_.body)
      if (!std::holds_alternative<loop::Reduce>(stmt.node)) rest_.push_back(stmt);
  }

  // Nothing where some access does not go by vectors: a thread per point does the nest then.
  std::optional<DeviceChoice> emit() {
    if (!window_) return std::nullopt;
    // The loads of windows, without their masks, which no lane changes.
    loop::Block loads;
    for (const loop::Load* load : window_->loads) {
      const auto stride = loop::stride_of(program_, load->access, fast_.var, facts_);
      if (!stride || sym::depends_on(load->access.mask, fast_.var)) return std::nullopt;
      if (stride->is_const(0)) continue;
      loads.push_back({*load});
      std::get<loop::Load>(loads.back().node).access.mask = 1;
    }
    const int width = static_cast<int>(plan_.points[0].factor);
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
  DeviceKernel print() {
    Expr count = 1;
    std::vector<std::pair<Expr, Expr>> dims;  // what threads are numbered by, the fastest last
    for (const loop::Dim& dim : nest_.dims) {
      if (dim.var == fast_.var || (along_ && dim.var == along_->var)) continue;
      dims.emplace_back(dim.var, dim.extent);
    }
    if (along_) dims.emplace_back(along_->var, sym::ceildiv(along_->extent, count_));
    dims.emplace_back(fast_.var, sym::floordiv(fast_.extent, strip_.width));
    for (const auto& [var, extent] : dims) count *= extent;
    const std::string n = body_.index(count);
    text_.open(cat("for (int64_t point = blockIdx.x * (int64_t)", kThreads, " + threadIdx.x; point < ", n,
                   "; point += gridDim.x * (int64_t)", kThreads, ")"));
    text_.line("int64_t rest = point;");
    for (size_t d = dims.size(); d-- > 0;) {
      const std::string name = text_.fresh("i"), extent = body_.index(dims[d].second);
      const int64_t step = dims[d].first == fast_.var               ? strip_.width
                           : along_ && dims[d].first == along_->var ? count_
                                                                    : 1;
      text_.line(cat("const int64_t ", name, " = ", d ? cat("rest % ", extent) : "rest",
                     step > 1 ? cat(" * ", step) : "", ";"));
      if (d) text_.line(cat("rest /= ", extent, ";"));
      body_.set_index(dims[d].first, name);
      if (dims[d].first == fast_.var) first_ = name;
      if (along_ && dims[d].first == along_->var) start_ = name;
    }
    for (const loop::Reduce* reduce : window_->reduces) print_reduce(*reduce);
    for (int64_t q = 0; q < count_; ++q) {
      text_.open(is_ragged() && q ? cat("if (", start_, " + ", q, " < ", body_.index(along_->extent), ")")
                                  : "");
      if (along_) body_.set_index(along_->var, cat("(", start_, " + ", q, ")"));
      for (const loop::Reduce* reduce : window_->reduces)
        for (size_t p = 0; p < reduce->results.size(); ++p) {
          const DType dtype = nest_.values[reduce->results[p].value].dtype;
          const std::string sum = cat(sums_.at({reduce, p}), "[", q, "][u]");
          body_.set_value(reduce->results[p],
                          {is_storage_float(dtype) ? body_.rounded(sum, dtype, 1) : sum, dtype, 1});
        }
      print_strip(text_, body_, program_, rest_, strip_, first_);
      text_.close();
    }
    text_.close();
    const Expr blocks = sym::min(sym::ceildiv(count, kThreads), kMostBlocks);
    return finish(text_, {.grid = {blocks, 1, 1}, .threads = kThreads, .waits = target_.dependent_launch},
                  std::string(strip_declarations()));
  }

  bool is_ragged() const { return along_ && facts_.known_divisor(along_->extent) % count_ != 0; }

  void print_reduce(const loop::Reduce& reduce) {
    std::vector<DType> dtypes;
    std::vector<std::string> sums;
    for (size_t p = 0; p < reduce.results.size(); ++p) {
      dtypes.push_back(nest_.values[reduce.results[p].value].dtype);
      sums.push_back(sums_[{&reduce, p}] = text_.fresh("sum"));
      text_.line(cat(text_.value_type(dtypes[p]), " ", sums[p], "[", count_, "][", strip_.width, "];"));
    }
    text_.line("#pragma unroll");
    text_.open(cat("for (int u = 0; u < ", strip_.width, "; ++u)"));
    for (size_t p = 0; p < sums.size(); ++p)
      for (int64_t q = 0; q < count_; ++q)
        text_.line(cat(sums[p], "[", q, "][u] = ", body_.identity(reduce.combine, dtypes[p], p), ";"));
    text_.close();
    std::vector<const loop::Load*> loads;
    for (const loop::Stmt& stmt : reduce.body)
      if (const auto* load = std::get_if<loop::Load>(&stmt.node)) loads.push_back(load);
    const std::vector<std::vector<int64_t>> taps = kernels::taps_of(reduce);
    std::vector<Elements> elements(loads.size());
    std::vector<Elements::value_type*> uses;  // by tap, point of the block and load, in this order
    for (const std::vector<int64_t>& tap : taps)
      for (int64_t q = 0; q < count_; ++q)
        for (size_t l = 0; l < loads.size(); ++l) {
          auto& element = *elements[l].try_emplace(moved(*loads[l], reduce, tap, q), Element{q, {}}).first;
          element.second.point = std::min(element.second.point, q);
          uses.push_back(&element);
        }
    size_t next = 0, use = 0;
    for (const std::vector<int64_t>& tap : taps) {
      for (int64_t q = 0; q < count_; ++q)
        for (const loop::Load* load : loads) print_load(*load, *uses[next++]);
      text_.line("#pragma unroll");
      text_.open(cat("for (int u = 0; u < ", strip_.width, "; ++u)"));
      body_.set_index(fast_.var, cat("(", first_, " + u)"));
      for (size_t d = 0; d < tap.size(); ++d) body_.set_index(reduce.dims[d].var, cat(tap[d]));
      for (int64_t q = 0; q < count_; ++q) {
        if (along_) body_.set_index(along_->var, cat("(", start_, " + ", q, ")"));
        for (const loop::Stmt& stmt : reduce.body) {
          if (const auto* load = std::get_if<loop::Load>(&stmt.node))
            body_.set_stored(load->result, uses[use++]->second.text, program_[load->access.buffer].dtype);
          else
            body_.print(stmt);
        }
        std::vector<std::string> into, from;
        for (size_t p = 0; p < sums.size(); ++p) {
          into.push_back(cat(sums[p], "[", q, "][u]"));
          from.push_back(body_.value(reduce.yields[p]).text);
        }
        body_.print_combine(reduce.combine, into, from, dtypes, 1);
      }
      text_.close();
      body_.set_index(fast_.var, first_);
      if (along_) body_.set_index(along_->var, start_);
    }
  }

  loop::Access moved(const loop::Load& load, const loop::Reduce& reduce, const std::vector<int64_t>& tap,
                     int64_t q) const {
    return kernels::access_at(load.access, reduce, tap, along_ ? along_->var : fast_.var, q, facts_);
  }

  // An element that points of the block load, of lane u.
  struct Element {
    int64_t point;     // the first that loads it: where that is beyond the end, so are the others
    std::string text;  // "": not loaded yet
  };
  using Elements = std::map<loop::Access, Element, kernels::AccessLess>;

  void print_load(const loop::Load& load, Elements::value_type& of) {
    const loop::Access& access = of.first;
    Element& element = of.second;
    if (!element.text.empty()) return;
    const bool uniform = loop::stride_of(program_, load.access, fast_.var, facts_)->is_const(0);
    const std::string name = text_.fresh("at"), storage = text_.storage_type(program_[access.buffer].dtype);
    std::string condition;
    for (const Expr& part : loop::conjuncts(access.mask))
      condition += cat(condition.empty() ? "" : " && ", "(", body_.index(part), ")");
    if (is_ragged() && element.point && sym::depends_on(loop::offset_of(program_, access), along_->var))
      condition += cat(condition.empty() ? "" : " && ", start_, " + ", element.point, " < ",
                       body_.index(along_->extent));
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

  const loop::Program& program_;
  const GpuTarget& target_;
  const schedule::LoopPlan plan_;
  const loop::Nest nest_;  // after reshapes
  const std::optional<kernels::PointWindow> window_;
  const sym::Facts facts_;
  KernelText text_;
  Body body_;
  loop::Dim fast_;
  std::optional<loop::Dim> along_;
  int64_t count_ = 1;  // points along it
  loop::Block rest_;   // what is no reduce
  Strip strip_;        // of the rest
  std::string first_, start_;
  std::map<std::pair<const loop::Reduce*, size_t>, std::string> sums_;
};

}  // namespace

DeviceNest emit_windows(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  if (auto choice = WindowEmitter(program, nest, target).emit()) {
    out.choices.push_back(std::move(*choice));
    if (out.is_complete()) return out;
  }
  DeviceNest points = emit_points(program, nest, target);
  std::move(points.choices.begin(), points.choices.end(), std::back_inserter(out.choices));
  return out;
}

}  // namespace stridec::codegen::cuda
