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
    columns_ = kernels::dims_by_name(nest, contraction_, {plan_.columns})[0];
    lanes_ = text_.target().lanes(byte_size(DType::kF32));
    STRIDEC_CHECK(plan_.panel == lanes_, nest.name);
    epilogue_ = epilogue_of(nest, contraction_);
    place();
  }

  Kernel emit() {
    const Expr rows = extent_of(rows_), vectors = sym::ceildiv(columns_.extent, lanes_);
    const Expr groups = sym::ceildiv(vectors, plan_.vectors);
    text_.line(cat("const int64_t columns = ", text_.size(columns_.extent), ", vectors = (columns + ",
                   lanes_ - 1, ") / ", lanes_, ", groups = (vectors + ", plan_.vectors - 1, ") / ",
                   plan_.vectors, ";"));
    text_.line(cat("alignas(64) f32 tile[", plan_.outputs * lanes_, "];"));
    if (!bounds_.empty()) {
      zeros_ = text_.scratch(vectors * (lanes_ * byte_size(DType::kF32)));
      text_.line(cat("for (int64_t k = 0; k < columns; ++k) ((f32*)", zeros_, ")[k] = 0;"));
    }
    text_.open("for (int64_t task = begin; task < end; ++task)");
    print_task();
    text_.close();
    const Expr work = along_.extent * (plan_.vectors * lanes_ * tap_count_);
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
    const auto address = kernels::linear_form(sym::substitute(offset, columns_.var, 0), vars);
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
    text_.line(cat("const int64_t column = vector * ", lanes_, ";"));
    text_.line(
        cat("const f32* w = ", text_.pointer(b_->access.buffer), " + vector * ", tap_count_ * lanes_, ";"));
    const auto known = sym::as_const(columns_.extent);
    const bool tail = !known || *known % lanes_ != 0;
    if (tail) text_.open(cat("if (column + ", lanes_, " <= columns)"));
    text_.open("if (inside)");
    print_sums([&](size_t p) { return cat("a + ", text_.size(positions_[p].shift), " + column"); }, "");
    text_.close(" else {");
    text_.open("");
    print_sums([&](size_t p) { return cat("at[", p, "] + column"); }, "");
    text_.close();
    text_.line("}");
    print_epilogue(body, "");
    if (tail) {
      text_.close(" else {");
      text_.open("");
      text_.line("const uint64_t live = ((uint64_t)1 << (columns - column)) - 1;");
      print_sums([&](size_t p) { return cat("at[", p, "] + column"); }, "live");
      print_epilogue(body, "live");
      text_.close();
      text_.line("}");
    }
    text_.close();
    text_.close();
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
    for (int t = 0; t < tap_count_; ++t) {
      text_.line(cat("const ", vector, " tap_", t, " = *(const ", loose, "*)(w + ", t * lanes_, ");"));
    }
    for (int o = 0; o < plan_.outputs; ++o) text_.line(cat(vector, " sum_", o, " = (", vector, ")0;"));
    for (size_t p = 0; p < positions_.size(); ++p) {
      text_.open("");
      if (live.empty()) {
        text_.line(cat("const ", vector, " v = *(const ", loose, "*)(", address(p), ");"));
      } else if (text_.target().avx512) {
        text_.use(cat("mload.", text_.storage_type(DType::kF32)), lanes_);
        text_.line(cat("const ", vector, " v = sd_mload", lanes_, "(", address(p), ", ", live, ");"));
      } else {
        text_.line(cat(vector, " v = (", vector, ")0;"));
        text_.line(cat("for (int l = 0; l < ", lanes_, "; ++l) if (", live, " >> l & 1) v[l] = (", address(p),
                       ")[l];"));
      }
      for (const Position::Use& use : positions_[p].uses) {
        const std::string sum = cat("sum_", use.output), tap = cat("tap_", use.tap);
        text_.line(text_.target().fma ? cat(sum, " = __builtin_elementwise_fma(v, ", tap, ", ", sum, ");")
                                      : cat(sum, " += v * ", tap, ";"));
      }
      text_.close();
    }
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
    body.set_index(columns_.var, "column");
    body.set_lanes(columns_.var, lanes_, live);
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
  Dims rows_, taps_;
  loop::Dim along_, columns_;
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
