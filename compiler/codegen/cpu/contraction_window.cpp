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

// An element of a that one or more outputs of a group read, relative to the group's first output.
struct Position {
  size_t line;                   // index into lines_
  int64_t shift;                 // distance from it in elements
  std::vector<int64_t> margins;  // added to each bound of the mask
  int output;                    // the first output that reads it
};

// Elements that are multiplied together, adjacent in a lane.
struct Beside {
  std::vector<size_t> positions;
  struct Use {
    int output, taps;  // taps: index of the taps' weights
  };
  std::vector<Use> uses;
};

// The positions and bounds of a window, from its nest and plan alone.
class WindowLayout {
 public:
  WindowLayout(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target)
      : program_(program), nest_(nest), plan_(kernels::to_window_plan(nest.schedule)) {
    auto matched = kernels::match_contraction(nest);
    STRIDEC_CHECK(matched.has_value(), nest.name);
    contraction_ = *std::move(matched);
    facts_ = kernels::facts_in(program, nest, contraction_);
    const size_t b_side = kernels::side_of_columns(contraction_, {plan_.along}, plan_.columns);
    const auto load = [&](size_t side, DType dtype) {
      const auto elements = kernels::as_elements(nest, contraction_.factors[side], dtype);
      STRIDEC_CHECK(elements && elements->load, nest.name);
      return elements->load;
    };
    a_ = load(1 - b_side, plan_.kernel->a);
    b_ = load(b_side, plan_.kernel->b);
    rows_ = kernels::dims_by_name(nest, contraction_, plan_.rows);
    taps_ = kernels::dims_by_name(nest, contraction_, plan_.taps);
    beside_ = kernels::dims_by_name(nest, contraction_, plan_.beside);
    along_ = kernels::dims_by_name(nest, contraction_, {plan_.along})[0];
    columns_ = kernels::dims_by_name(nest, contraction_, plan_.columns);
    const auto extent = [&](Expr var) {
      return sym::as_const(kernels::dims_by_name(nest, contraction_, {var})[0].extent).value();
    };
    count_ = extent(plan_.columns[0]);
    if (plan_.columns.size() > 1) outputs_of_group_ = extent(plan_.columns[1]);
    count_ *= outputs_of_group_;
    if (plan_.channel) inputs_of_group_ = extent(*plan_.channel);
    lanes_ = target.lanes(byte_size(plan_.kernel->dtype));
    STRIDEC_CHECK(plan_.lanes == lanes_ && plan_.panel <= lanes_, nest.name);
    inputs_ = plan_.panel / outputs_of_group_ * inputs_of_group_;
    const int group = plan_.kernel->group();
    elements_ = plan_.channels_beside() ? lanes_ * group : lanes_;
    channel_steps_ = plan_.channels_beside() ? inputs_of_group_ / group : inputs_of_group_;
    epilogue_ = epilogue_of(nest, contraction_);
    place();
  }

  // Elements of fill values, which outputs in the padding read; 0: there are none.
  int64_t padding() const { return bounds_.empty() ? 0 : (vectors() - 1) * inputs_ + elements_; }
  Expr padding_bytes() const { return padding() * byte_size(plan_.kernel->a); }

 protected:
  int64_t vectors() const { return (count_ + plan_.panel - 1) / plan_.panel; }

  const loop::Program& program_;
  const loop::Nest& nest_;
  kernels::WindowPlan plan_;
  kernels::Contraction contraction_;
  sym::Facts facts_;
  const loop::Load *a_, *b_;
  Dims rows_, columns_, taps_, beside_;
  loop::Dim along_;
  int64_t count_ = 0;  // number of columns
  int64_t outputs_of_group_ = 1, inputs_of_group_ = 1;
  int64_t inputs_ = 0;         // elements of a that a vector of columns reads
  int64_t channel_steps_ = 1;  // lanes of a group's inputs
  int elements_ = 0;           // per vector of a
  int lanes_ = 0;
  int weights_ = 0;  // vectors of weights per output and input channel
  std::vector<const loop::Stmt*> epilogue_;
  kernels::LinearForm address_;
  std::vector<kernels::LinearForm> bounds_;
  // Start offsets of sets of positions at constant distances: constants fit into an instruction, sizes take a
  // register each.
  std::vector<Expr> lines_;
  std::vector<Position> positions_;
  std::vector<Beside> products_;

 private:
  // Splits address and mask into the row's part and the parts that outputs and taps add.
  void place() {
    std::vector<Expr> vars = {along_.var};
    const Dims beside = plan_.channels_beside() ? Dims() : beside_;
    Dims taps = taps_;
    taps.insert(taps.end(), beside.begin(), beside.end());
    for (const loop::Dim& tap : taps) vars.push_back(tap.var);
    const auto count = [](const Dims& dims) {
      return static_cast<int>(sym::as_const(extent_of(dims)).value());
    };
    const int group = plan_.channels_beside() ? 1 : plan_.kernel->group(), inner = count(beside);
    const int groups = (inner + group - 1) / group;  // per point of the outer taps
    weights_ = count(taps_) * groups;
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
    std::map<std::vector<size_t>, size_t> made;
    std::vector<int64_t> at(taps.size(), 0);
    const auto position = [&](int output) {
      auto value = [&](const kernels::LinearForm& form) {
        Expr sum = form.coefficients[0] * output;
        for (size_t d = 0; d < at.size(); ++d) sum += form.coefficients[d + 1] * at[d];
        return sum;
      };
      std::vector<int64_t> margins;
      for (const kernels::LinearForm& bound : bounds_) margins.push_back(sym::as_const(value(bound)).value());
      const Expr shift = value(address_);
      const auto [found, fresh] = known.emplace(std::pair(shift, margins), positions_.size());
      if (fresh) {
        const int64_t constant = constant_of(shift);
        positions_.push_back({line_at(shift - constant), constant, margins, output});
      }
      Position& p = positions_[found->second];
      p.output = std::min(p.output, output);
      return found->second;
    };
    for (int weights = 0; weights < weights_; ++weights) {
      std::vector<std::vector<size_t>> read(static_cast<size_t>(plan_.outputs));
      for (int k = weights % groups * group; k < std::min(inner, (weights % groups + 1) * group); ++k) {
        for (int output = 0; output < plan_.outputs; ++output)
          read[static_cast<size_t>(output)].push_back(position(output));
        for (size_t d = at.size(); d-- > 0;) {
          if (++at[d] < sym::as_const(taps[d].extent).value()) break;
          at[d] = 0;
        }
      }
      for (int output = 0; output < plan_.outputs; ++output) {
        const auto& positions = read[static_cast<size_t>(output)];
        const auto [found, fresh] = made.emplace(positions, products_.size());
        if (fresh) products_.push_back({positions, {}});
        products_[found->second].uses.push_back({output, weights});
      }
    }
  }
  static int64_t constant_of(Expr shift) {
    return sym::as_const(shift.op() == sym::Op::kAdd ? shift.args().back() : shift).value_or(0);
  }
  size_t line_at(Expr shift) {
    const auto known = std::find(lines_.begin(), lines_.end(), shift);
    if (known != lines_.end()) return static_cast<size_t>(known - lines_.begin());
    lines_.push_back(shift);
    return lines_.size() - 1;
  }

  struct Order {
    bool operator()(const std::pair<Expr, std::vector<int64_t>>& x,
                    const std::pair<Expr, std::vector<int64_t>>& y) const {
      const int order = sym::compare(x.first, y.first);
      return order != 0 ? order < 0 : x.second < y.second;
    }
  };
};

class Emitter : WindowLayout {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target)
      : WindowLayout(program, nest, target), text_(program, target) {}

  Kernel emit() {
    const Expr rows = extent_of(rows_);
    const int64_t vectors = this->vectors();
    const int64_t groups = (vectors + plan_.vectors - 1) / plan_.vectors;
    text_.line(cat("const int64_t columns = ", count_, ", vectors = ", vectors, ", groups = ", groups, ";"));
    text_.line(
        cat("alignas(64) ", text_.value_type(plan_.kernel->dtype), " tile[", plan_.outputs * lanes_, "];"));
    if (!bounds_.empty()) {
      padding_ = cat("((", a_type(), "*)", text_.scratch(padding_bytes()), ")");
      text_.line(cat("for (int64_t k = 0; k < ", padding(), "; ++k) ", padding_,
                     "[k] = ", Body(text_, nest_).stored_fill(*a_), ";"));
    }
    print_places();
    if (plan_.kernel->b == DType::kBF16)
      text_.line(cat("typedef __bf16 pairs __attribute__((ext_vector_type(", elements_, ")));"));
    text_.open_tasks();
    print_task();
    text_.close_tasks();
    const Expr work = along_.extent * (plan_.vectors * lanes_ * channel_steps_ * weights_);
    return text_.finish(rows * groups, sym::max(1, sym::floordiv(kGrain, sym::max(work, 1))));
  }

 private:
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
    text_.line(cat("const ", a_type(), "* a_row = ", text_.pointer(a_->access.buffer), " + ",
                   body.index(address_.rest), ";"));
    for (size_t c = 0; c < bounds_.size(); ++c) {
      text_.line(cat("const int64_t bound_row_", c, " = ", body.index(bounds_[c].rest), ";"));
    }
    const std::string extent = text_.size(along_.extent);
    text_.open(cat("for (int64_t x = 0; x < ", extent, "; x += ", plan_.outputs, ")"));
    text_.line(cat("const int64_t outputs = ", extent, " - x < ", plan_.outputs, " ? ", extent,
                   " - x : ", plan_.outputs, ";"));
    text_.line(cat("const ", a_type(), "* a = a_row + x * ", text_.size(address_.coefficients[0]), ";"));
    for (size_t l = 0; l < lines_.size(); ++l)
      text_.line(cat("const ", a_type(), "* line_", l, " = a + ", text_.size(lines_[l]), ";"));
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
    text_.line(cat("const ", text_.storage_type(plan_.kernel->b), "* w = ", text_.pointer(b_->access.buffer),
                   " + vector * ", channel_steps_ * weights_ * weights_of_vector(), ";"));
    const bool tail = count_ % plan_.panel != 0;
    if (tail) text_.open(cat("if (column + ", plan_.panel, " <= columns)"));
    print_vector(body, cat(plan_.panel), plan_.panel < lanes_ ? "live" : "",
                 inputs_ < elements_ ? "live_inputs" : "");
    if (tail) {
      text_.close(" else {");
      text_.open("");
      print_vector(body, "(columns - column)", "live", "live_inputs");
      text_.close();
      text_.line("}");
    }
    text_.close();
    text_.close();
  }

  // Prints the outputs of a vector of `columns` columns. Most groups of outputs are inside the image, where
  // addresses need no check.
  void print_vector(const Body& row_body, const std::string& columns, const std::string& live,
                    const std::string& live_inputs) {
    print_live(columns, live, live_inputs);
    text_.open("if (inside)");
    print_sums([&](size_t p) { return cat(address_of(positions_[p]), " + input"); }, live_inputs);
    print_epilogue(row_body, live, true);
    text_.close(" else {");
    text_.open("");
    print_sums([&](size_t p) { return cat("at[", p, "] + input"); }, live_inputs);
    text_.open(cat("if (outputs == ", plan_.outputs, ")"));
    print_epilogue(row_body, live, true);
    text_.close(" else {");
    text_.open("");
    print_epilogue(row_body, live, false);
    text_.close();
    text_.line("}");
    text_.close();
    text_.line("}");
  }

  // Declares the live lanes of a vector of `columns` columns, and its live inputs; "": all, or unused.
  void print_live(const std::string& columns, const std::string& live, const std::string& live_inputs) {
    if (!live.empty()) text_.line(cat("const uint64_t live = ((uint64_t)1 << ", columns, ") - 1;"));
    if (live_inputs.empty()) return;
    text_.line(cat("const uint64_t live_inputs = ((uint64_t)1 << ", columns, " / ", outputs_of_group_, " * ",
                   inputs_of_group_, ") - 1;"));
  }

  std::string address_of(const Position& p) const { return cat("line_", p.line, " + ", p.shift); }
  std::string a_type() { return text_.storage_type(plan_.kernel->a); }
  int weights_of_vector() const { return lanes_ * plan_.kernel->group(); }
  bool permutes() const { return outputs_of_group_ > 1 || inputs_of_group_ > 1; }

  // The index of each lane's input in a vector of inputs: that of its group's first input.
  void print_places() {
    if (!permutes()) return;
    std::vector<int64_t> places;
    for (int64_t lane = 0; lane < lanes_; ++lane)
      places.push_back(lane < plan_.panel ? lane / outputs_of_group_ * channel_steps_ : 0);
    const std::string vector = text_.value_type(DType::kI32, lanes_);
    text_.line(
        cat("const ", vector, " places = {", join(places, ", ", [](int64_t at) { return cat(at); }), "};"));
  }

  // The address of each position, or the padding row if it is masked off or belongs to no live output.
  void print_addresses() {
    text_.line(cat("const ", a_type(), "* at[", positions_.size(), "];"));
    text_.open("if (!inside)");
    for (size_t p = 0; p < positions_.size(); ++p) {
      std::string valid;
      for (size_t c = 0; c < bounds_.size(); ++c) {
        valid += cat(valid.empty() ? "" : " & ", "(bound_", c, " >= ", -positions_[p].margins[c], ")");
      }
      const int first = positions_[p].output;
      if (first > 0) valid += cat(valid.empty() ? "" : " & ", "(outputs > ", first, ")");
      // Without a mask every live element exists; dead positions read the first element instead.
      const std::string elsewhere = bounds_.empty() ? std::string("a") : padding_;
      const std::string address = address_of(positions_[p]);
      text_.line(cat("at[", p, "] = ",
                     valid.empty() ? address : cat("(", valid, ") ? ", address, " : ", elsewhere), ";"));
    }
    text_.close();
  }

  template <class Address>
  void print_sums(Address&& address, const std::string& live) {
    const DType dtype = plan_.kernel->dtype;
    const std::string vector = text_.value_type(dtype, lanes_);
    for (int o = 0; o < plan_.outputs; ++o) text_.line(cat(vector, " sum_", o, " = (", vector, ")0;"));
    const bool loops = channel_steps_ > 1;
    std::string taps = "w";
    // The weights of channels are nested inside those of taps if channels are adjacent in lanes, and outside
    // otherwise.
    const int64_t tap_step = (plan_.channels_beside() ? channel_steps_ : 1) * weights_of_vector();
    if (loops) {
      text_.line("#pragma clang loop unroll(disable)");
      text_.open(cat("for (int channel = 0; channel < ", channel_steps_, "; ++channel)"));
      taps = cat("w + channel * ", (plan_.channels_beside() ? 1 : weights_) * weights_of_vector());
    }
    for (int t = 0; t < weights_; ++t) {
      text_.line(cat("const ", vector, " tap_", t, " = *(const ", text_.unaligned_type(dtype, lanes_), "*)(",
                     taps, " + ", t * tap_step, ");"));
    }
    if (permutes()) {
      text_.line(cat("const ", text_.value_type(DType::kI32, lanes_), " from = places",
                     loops ? " + channel" : "", ";"));
    }
    const DType lane = plan_.kernel->group() > 1 ? DType::kI32 : dtype;
    const std::string lanes = text_.value_type(lane, lanes_);
    for (const Beside& beside : products_) {
      text_.open("");
      std::vector<std::string> elements;
      for (size_t p : beside.positions) {
        elements.push_back(cat("a_", elements.size()));
        print_elements(elements.back(), address(p), live);
      }
      std::string v = elements[0];
      if (plan_.channels_beside()) {
        if (byte_size(plan_.kernel->a) != byte_size(plan_.kernel->b))
          v = cat("__builtin_convertvector(", v, ", ", text_.storage_type(plan_.kernel->b, elements_), ")");
        v = cat("__builtin_bit_cast(", lanes, ", ", v, ")");
      } else if (plan_.kernel->group() > 1 && elements.size() == 1) {
        v = cat("__builtin_convertvector(", v, ", ", lanes, ")");
      } else if (elements.size() > 1) {
        text_.use(cat("beside.", plan_.kernel->group()), lanes_);
        v = cat("sd_beside_", plan_.kernel->group(), "(",
                join(elements, ", ", [](const std::string& name) { return name; }), ")");
      }
      if (permutes())
        v = cat("__builtin_ia32_permvar", is_float(lane) ? "sf" : "si", lanes_ * 32, "(", v, ", from)");
      text_.line(cat("const ", lanes, " v = ", v, ";"));
      for (const Beside::Use& use : beside.uses)
        print_product(cat("sum_", use.output), cat("tap_", use.taps));
      text_.close();
    }
    if (loops) text_.close();
    for (int o = 0; o < plan_.outputs; ++o)
      text_.line(cat("*(", vector, "*)(tile + ", o * lanes_, ") = sum_", o, ";"));
  }

  void print_elements(const std::string& name, const std::string& address, const std::string& live) {
    const DType dtype = plan_.kernel->a;
    if (!is_storage_float(dtype) || plan_.channels_beside()) return print_loads(name, address, live);
    print_loads(name + "_stored", address, live);
    text_.line(cat("const ", text_.value_type(dtype, lanes_), " ", name, " = ",
                   Body(text_, nest_).from_storage(name + "_stored", dtype, lanes_), ";"));
  }
  void print_loads(const std::string& name, const std::string& address, const std::string& live) {
    const DType dtype = plan_.kernel->a;
    const std::string vector = text_.storage_type(dtype, elements_);
    if (live.empty()) {
      text_.line(cat("const ", vector, " ", name, " = *(const ", text_.unaligned_type(dtype, elements_),
                     "*)(", address, ");"));
    } else if (text_.target().avx512) {
      text_.use(cat("mload.", text_.storage_type(dtype)), elements_);
      text_.line(cat("const ", vector, " ", name, " = sd_mload", elements_, "(", address, ", ", live, ");"));
    } else {
      text_.line(cat(vector, " ", name, " = (", vector, ")0;"));
      text_.line(cat("for (int l = 0; l < ", lanes_, "; ++l) if (", live, " >> l & 1) ", name, "[l] = (",
                     address, ")[l];"));
    }
  }

  // Adds v times the taps' weights to the sum.
  void print_product(const std::string& sum, const std::string& taps) {
    const int bits = text_.target().vector_bytes * 8;
    if (plan_.kernel->b == DType::kI8) {
      text_.line(cat(sum, " = __builtin_ia32_vpdpbusd", bits, "(", sum, ", v, ", taps, ");"));
    } else if (plan_.kernel->b == DType::kI16) {  // clang selects the single instruction if the target has it
      const std::string words = text_.value_type(DType::kI16, 2 * lanes_);
      text_.line(cat(sum, " += (", text_.value_type(DType::kI32, lanes_), ")__builtin_ia32_pmaddwd", bits,
                     "(__builtin_bit_cast(", words, ", v), __builtin_bit_cast(", words, ", ", taps, "));"));
    } else if (plan_.kernel->b == DType::kBF16) {
      text_.line(cat(sum, " = __builtin_ia32_dpbf16ps_", bits, "(", sum, ", __builtin_bit_cast(pairs, v), ",
                     "__builtin_bit_cast(pairs, ", taps, "));"));
    } else {
      text_.line(text_.target().fma ? cat(sum, " = __builtin_elementwise_fma(v, ", taps, ", ", sum, ");")
                                    : cat(sum, " += v * ", taps, ";"));
    }
  }

  // With `all`, all outputs are live. Otherwise sums are kept in memory: if each store had its own condition,
  // the compiler would sink the multiplications below it, and they would become sequential dependence chains.
  void print_epilogue(const Body& row_body, const std::string& live, bool all) {
    Body body = row_body;
    const DType dtype = plan_.kernel->dtype;
    const std::string vector = text_.value_type(dtype, lanes_);
    text_.line(cat("#pragma clang loop unroll(", all ? "full" : "disable", ")"));
    text_.open(cat("for (int64_t i = 0; i < ", all ? cat(plan_.outputs) : "outputs", "; ++i)"));
    text_.line("const int64_t output = x + i;");
    text_.line(cat("const ", vector, " sum = *(const ", vector, "*)(tile + i * ", lanes_, ");"));
    body.set_index(along_.var, "output");
    if (columns_.size() > 1) body.set_index(columns_[0].var, "0");
    body.set_index(columns_.back().var, "column");
    body.set_lanes(columns_.back().var, lanes_, live);
    body.set_value(contraction_.reduce->results[0], {.text = "sum", .dtype = dtype, .width = lanes_});
    for (const loop::Stmt* stmt : epilogue_) body.print(*stmt);
    text_.close();
  }

  KernelText text_;
  std::string padding_;
};

}  // namespace

Kernel emit_window(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return Emitter(program, nest, target).emit();
}

Expr window_scratch(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  const Expr padding = WindowLayout(program, nest, target).padding_bytes();
  return scratch_bytes({&padding, 1});
}

}  // namespace stridec::codegen::cpu
