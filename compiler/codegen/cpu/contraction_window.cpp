#include "compiler/codegen/cpu/contraction_window.h"

#include <algorithm>
#include <map>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction_frame.h"
#include "compiler/kernels/window_plan.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cpu {
namespace {

using sym::Expr;

constexpr int64_t kGrain = int64_t{1} << 17;  // multiply-adds that are worth waking a thread for

// An element of a that one or more of the outputs of a group read, relative to the group's first output.
struct Position {
  Expr shift;                    // elements
  std::vector<int64_t> margins;  // added to each bound of the mask
  struct Use {
    int output, tap;
  };
  std::vector<Use> uses;
};

class Emitter {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target)
      : program_(program),
        nest_(nest),
        text_(program, target),
        plan_(kernels::to_window_plan(nest.schedule)) {
    auto matched = kernels::match_contraction(nest);
    STRIDEC_CHECK(matched.has_value(), nest.name);
    contraction_ = *std::move(matched);
    facts_ = kernels::facts_in(program, nest, contraction_);
    const bool swapped = contraction_.factors[1].vars.contains(plan_.along);
    a_ = contraction_.factors[swapped ? 1 : 0].load;
    b_ = contraction_.factors[swapped ? 0 : 1].load;
    STRIDEC_CHECK(a_ && b_, nest.name);
    rows_ = kernels::dims_by_name(nest, contraction_, plan_.rows);
    taps_ = kernels::dims_by_name(nest, contraction_, plan_.taps);
    along_ = kernels::dims_by_name(nest, contraction_, {plan_.along})[0];
    columns_ = kernels::dims_by_name(nest, contraction_, plan_.columns);
    const auto extent = [&](Expr var) {
      return sym::as_const(kernels::dims_by_name(nest, contraction_, {var})[0].extent).value();
    };
    count_ = extent(plan_.columns[0]);
    if (plan_.columns.size() > 1) outputs_of_group_ = extent(plan_.columns[1]);
    count_ *= outputs_of_group_;
    if (plan_.channel) inputs_of_group_ = extent(*plan_.channel);
    lanes_ = text_.target().lanes(byte_size(DType::kF32));
    STRIDEC_CHECK(plan_.lanes == lanes_ && plan_.panel <= lanes_, nest.name);
    inputs_ = plan_.panel / outputs_of_group_ * inputs_of_group_;
    epilogue_ = epilogue_of(nest, contraction_);
    place();
  }

  Kernel emit() {
    const Expr rows = extent_of(rows_);
    const int64_t vectors = (count_ + plan_.panel - 1) / plan_.panel;
    const int64_t groups = (vectors + plan_.vectors - 1) / plan_.vectors;
    text_.line(cat("const int64_t columns = ", count_, ", vectors = ", vectors, ", groups = ", groups, ";"));
    text_.line(cat("alignas(64) f32 tile[", plan_.outputs * lanes_, "];"));
    if (!bounds_.empty()) {
      const int64_t zeros = (vectors - 1) * inputs_ + lanes_;
      zeros_ = text_.scratch(zeros * byte_size(DType::kF32));
      text_.line(cat("for (int64_t k = 0; k < ", zeros, "; ++k) ((f32*)", zeros_, ")[k] = 0;"));
    }
    print_places();
    text_.open("for (int64_t task = begin; task < end; ++task)");
    print_task();
    text_.close();
    const Expr work = along_.extent * (plan_.vectors * lanes_ * inputs_of_group_ * tap_count_);
    return text_.finish(rows * groups, sym::max(1, sym::floordiv(kGrain, sym::max(work, 1))));
  }

 private:
  // Takes address and mask apart: what a row gives, what outputs and taps add.
  void place() {
    std::vector<Expr> vars = {along_.var};
    tap_count_ = 1;
    for (const loop::Dim& tap : taps_) {
      vars.push_back(tap.var);
      tap_count_ *= static_cast<int>(sym::as_const(tap.extent).value());
    }
    const Expr offset = kernels::offset_of(program_, a_->access, facts_);
    Expr first = at_zero(offset, columns_);
    if (plan_.channel) first = sym::substitute(first, *plan_.channel, 0);
    const auto address = kernels::linear_form(first, vars);
    STRIDEC_CHECK(address.has_value(), nest_.name);
    address_ = *address;
    for (Expr condition : loop::conjuncts(sym::simplify(a_->access.mask, facts_))) {
      const bool less = condition.op() == sym::Op::kLt;
      STRIDEC_CHECK(less || condition.op() == sym::Op::kLe, nest_.name);
      bounds_.push_back(
          kernels::linear_form(condition.arg(1) - condition.arg(0) - (less ? 1 : 0), vars).value());
    }
    std::map<std::pair<Expr, std::vector<int64_t>>, size_t, Order> known;
    std::vector<int64_t> at(taps_.size(), 0);
    for (int tap = 0; tap < tap_count_; ++tap) {
      for (int output = 0; output < plan_.outputs; ++output) {
        auto value = [&](const kernels::LinearForm& form) {
          Expr sum = form.coefficients[0] * output;
          for (size_t d = 0; d < at.size(); ++d) sum += form.coefficients[d + 1] * at[d];
          return sum;
        };
        std::vector<int64_t> margins;
        for (const kernels::LinearForm& bound : bounds_)
          margins.push_back(sym::as_const(value(bound)).value());
        const Expr shift = value(address_);
        const auto [found, fresh] = known.emplace(std::pair(shift, margins), positions_.size());
        if (fresh) positions_.push_back({shift, margins, {}});
        positions_[found->second].uses.push_back({output, tap});
      }
      for (size_t d = at.size(); d-- > 0;) {
        if (++at[d] < sym::as_const(taps_[d].extent).value()) break;
        at[d] = 0;
      }
    }
  }
  struct Order {
    bool operator()(const std::pair<Expr, std::vector<int64_t>>& x,
                    const std::pair<Expr, std::vector<int64_t>>& y) const {
      const int order = sym::compare(x.first, y.first);
      return order != 0 ? order < 0 : x.second < y.second;
    }
  };

  void print_task() {
    Body body(text_, nest_);
    text_.line(
        "const int64_t first_vector = task % groups * vectors / groups, "
        "end_vector = (task % groups + 1) * vectors / groups;");
    text_.line("int64_t row = task / groups;");
    for (size_t d = rows_.size(); d-- > 0;) {
      const std::string name = cat("row_", d), extent = text_.size(rows_[d].extent);
      if (d == 0) {
        text_.line(cat("const int64_t ", name, " = row;"));
      } else {
        text_.line(cat("const int64_t ", name, " = row % ", extent, ";"));
        text_.line(cat("row /= ", extent, ";"));
      }
      body.set_index(rows_[d].var, name);
    }
    text_.line(
        cat("const f32* a_row = ", text_.pointer(a_->access.buffer), " + ", body.index(address_.rest), ";"));
    for (size_t c = 0; c < bounds_.size(); ++c) {
      text_.line(cat("const int64_t bound_row_", c, " = ", body.index(bounds_[c].rest), ";"));
    }
    const std::string extent = text_.size(along_.extent);
    text_.open(cat("for (int64_t x = 0; x < ", extent, "; x += ", plan_.outputs, ")"));
    text_.line(cat("const int64_t outputs = ", extent, " - x < ", plan_.outputs, " ? ", extent,
                   " - x : ", plan_.outputs, ";"));
    text_.line(cat("const f32* a = a_row + x * ", text_.size(address_.coefficients[0]), ";"));
    std::string inside = cat("outputs == ", plan_.outputs);
    for (size_t c = 0; c < bounds_.size(); ++c) {
      text_.line(cat("const int64_t bound_", c, " = bound_row_", c, " + x * ",
                     text_.size(bounds_[c].coefficients[0]), ";"));
      int64_t least = 0;
      for (const Position& p : positions_) least = std::min(least, p.margins[c]);
      inside += cat(" && bound_", c, " >= ", -least);
    }
    text_.line(cat("const bool inside = ", inside, ";"));
    print_addresses();
    text_.open("for (int64_t vector = first_vector; vector < end_vector; ++vector)");
    text_.line(cat("const int64_t column = vector * ", plan_.panel, ", input = vector * ", inputs_, ";"));
    text_.line(cat("const f32* w = ", text_.pointer(b_->access.buffer), " + vector * ",
                   inputs_of_group_ * tap_count_ * lanes_, ";"));
    const bool tail = count_ % plan_.panel != 0;
    if (tail) text_.open(cat("if (column + ", plan_.panel, " <= columns)"));
    const std::string live = plan_.panel < lanes_ ? "live" : "",
                      live_inputs = inputs_ < lanes_ ? "live_inputs" : "";
    print_live(cat(plan_.panel), live, live_inputs);
    text_.open("if (inside)");
    print_sums([&](size_t p) { return cat("a + ", text_.size(positions_[p].shift), " + input"); },
               live_inputs);
    text_.close(" else {");
    text_.open("");
    print_sums([&](size_t p) { return cat("at[", p, "] + input"); }, live_inputs);
    text_.close();
    text_.line("}");
    print_epilogue(body, live);
    if (tail) {
      text_.close(" else {");
      text_.open("");
      print_live("(columns - column)", "live", "live_inputs");
      print_sums([&](size_t p) { return cat("at[", p, "] + input"); }, "live_inputs");
      print_epilogue(body, "live");
      text_.close();
      text_.line("}");
    }
    text_.close();
    text_.close();
  }

  // Which lanes of a vector with so many columns count, and which of its inputs; "": all, or nobody asks.
  void print_live(const std::string& columns, const std::string& live, const std::string& live_inputs) {
    if (!live.empty()) text_.line(cat("const uint64_t live = ((uint64_t)1 << ", columns, ") - 1;"));
    if (live_inputs.empty()) return;
    text_.line(cat("const uint64_t live_inputs = ((uint64_t)1 << ", columns, " / ", outputs_of_group_, " * ",
                   inputs_of_group_, ") - 1;"));
  }

  bool permutes() const { return outputs_of_group_ > 1 || inputs_of_group_ > 1; }

  // The place of a lane's input in a vector of inputs: its group's first.
  void print_places() {
    if (!permutes()) return;
    std::vector<int64_t> places;
    for (int64_t lane = 0; lane < lanes_; ++lane)
      places.push_back(lane < plan_.panel ? lane / outputs_of_group_ * inputs_of_group_ : 0);
    const std::string vector = text_.value_type(DType::kI32, lanes_);
    text_.line(
        cat("const ", vector, " places = {", join(places, ", ", [](int64_t at) { return cat(at); }), "};"));
  }

  // Where each position is, or the zeros: outside of the mask, or of no output that counts.
  void print_addresses() {
    text_.line(cat("const f32* at[", positions_.size(), "];"));
    for (size_t p = 0; p < positions_.size(); ++p) {
      std::string valid;
      for (size_t c = 0; c < bounds_.size(); ++c) {
        valid += cat(valid.empty() ? "" : " & ", "(bound_", c, " >= ", -positions_[p].margins[c], ")");
      }
      int first = plan_.outputs;
      for (const Position::Use& use : positions_[p].uses) first = std::min(first, use.output);
      if (first > 0) valid += cat(valid.empty() ? "" : " & ", "(outputs > ", first, ")");
      // Without a mask every element that counts is there; what does not count reads the first one instead.
      const std::string elsewhere = bounds_.empty() ? std::string("a") : cat("(const f32*)", zeros_);
      const std::string address = cat("a + ", text_.size(positions_[p].shift));
      text_.line(cat("at[", p, "] = ",
                     valid.empty() ? address : cat("(", valid, ") ? ", address, " : ", elsewhere), ";"));
    }
  }

  template <class Address>
  void print_sums(Address&& address, const std::string& live) {
    const std::string vector = text_.value_type(DType::kF32, lanes_),
                      loose = text_.unaligned_type(DType::kF32, lanes_);
    for (int o = 0; o < plan_.outputs; ++o) text_.line(cat(vector, " sum_", o, " = (", vector, ")0;"));
    std::string taps = "w";
    if (inputs_of_group_ > 1) {
      text_.line("#pragma clang loop unroll(disable)");
      text_.open(cat("for (int channel = 0; channel < ", inputs_of_group_, "; ++channel)"));
      taps = cat("w + channel * ", tap_count_ * lanes_);
    }
    for (int t = 0; t < tap_count_; ++t) {
      text_.line(
          cat("const ", vector, " tap_", t, " = *(const ", loose, "*)(", taps, " + ", t * lanes_, ");"));
    }
    if (permutes()) {
      text_.line(cat("const ", text_.value_type(DType::kI32, lanes_), " from = places",
                     inputs_of_group_ > 1 ? " + channel" : "", ";"));
    }
    for (size_t p = 0; p < positions_.size(); ++p) {
      text_.open("");
      if (live.empty()) {
        text_.line(cat(vector, " v = *(const ", loose, "*)(", address(p), ");"));
      } else if (text_.target().avx512) {
        text_.use(cat("mload.", text_.storage_type(DType::kF32)), lanes_);
        text_.line(cat(vector, " v = sd_mload", lanes_, "(", address(p), ", ", live, ");"));
      } else {
        text_.line(cat(vector, " v = (", vector, ")0;"));
        text_.line(cat("for (int l = 0; l < ", lanes_, "; ++l) if (", live, " >> l & 1) v[l] = (", address(p),
                       ")[l];"));
      }
      if (permutes()) text_.line(cat("v = __builtin_ia32_permvarsf", lanes_ * 32, "(v, from);"));
      for (const Position::Use& use : positions_[p].uses) {
        const std::string sum = cat("sum_", use.output), tap = cat("tap_", use.tap);
        text_.line(text_.target().fma ? cat(sum, " = __builtin_elementwise_fma(v, ", tap, ", ", sum, ");")
                                      : cat(sum, " += v * ", tap, ";"));
      }
      text_.close();
    }
    if (inputs_of_group_ > 1) text_.close();
    for (int o = 0; o < plan_.outputs; ++o)
      text_.line(cat("*(", vector, "*)(tile + ", o * lanes_, ") = sum_", o, ";"));
  }

  void print_epilogue(const Body& row_body, const std::string& live) {
    Body body = row_body;
    const std::string vector = text_.value_type(DType::kF32, lanes_);
    text_.open("for (int64_t i = 0; i < outputs; ++i)");
    text_.line("const int64_t output = x + i;");
    text_.line(cat("const ", vector, " sum = *(const ", vector, "*)(tile + i * ", lanes_, ");"));
    body.set_index(along_.var, "output");
    if (columns_.size() > 1) body.set_index(columns_[0].var, "0");
    body.set_index(columns_.back().var, "column");
    body.set_lanes(columns_.back().var, lanes_, live);
    body.set_value(contraction_.reduce->results[0], {.text = "sum", .dtype = DType::kF32, .width = lanes_});
    for (const loop::Stmt* stmt : epilogue_) body.print(*stmt);
    text_.close();
  }

  const loop::Program& program_;
  const loop::Nest& nest_;
  KernelText text_;
  kernels::WindowPlan plan_;
  kernels::Contraction contraction_;
  sym::Facts facts_;
  const loop::Load *a_, *b_;
  Dims rows_, columns_, taps_;
  loop::Dim along_;
  int64_t count_ = 0;  // of columns
  int64_t outputs_of_group_ = 1, inputs_of_group_ = 1;
  int64_t inputs_ = 0;  // elements of a that a vector of columns reads
  int lanes_ = 0, tap_count_ = 0;
  std::vector<const loop::Stmt*> epilogue_;
  kernels::LinearForm address_;
  std::vector<kernels::LinearForm> bounds_;
  std::vector<Position> positions_;
  std::string zeros_;
};

}  // namespace

Kernel emit_window(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return Emitter(program, nest, target).emit();
}

}  // namespace stridec::codegen::cpu
