#include "cli/random_inputs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/guard.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using sym::Expr;

// Values in [lo, hi].
struct Range {
  int64_t lo = 0, hi = 2;
};
constexpr int64_t kNoLimit = INT64_MAX;

std::function<std::optional<int64_t>(Expr)> lookup_in(const Sizes& sizes) {
  return [&sizes](Expr var) -> std::optional<int64_t> {
    const auto found = sizes.find(var.name());
    return found == sizes.end() ? std::nullopt : std::optional(found->second);
  };
}

// ---- what the integers of a buffer are used for ----

// Ranges flow from uses to where values come from, against the order of the run: a gather's bind limits the value, the
// value the buffer that it is loaded from, that buffer the value stored there.
class Uses {
 public:
  Uses(const loop::Program& program, const Sizes& sizes) : sizes_(sizes) {
    std::vector<const loop::Step*> steps;
    loop::for_each_step(program.steps, [&](const loop::Step& step) { steps.push_back(&step); });
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      if (const auto* bind = std::get_if<loop::BindSymbol>(&(*step)->node)) {
        const auto lower = value_of(bind->lower), upper = value_of(bind->upper);
        limit(buffers_[bind->buffer], {lower.value_or(0), upper.value_or(kNoLimit)});
      } else if (const auto* copy = std::get_if<loop::Copy>(&(*step)->node)) {
        if (buffers_.count(copy->to)) limit(buffers_[copy->from], buffers_[copy->to].range);
      } else if (const auto* launch = std::get_if<loop::Launch>(&(*step)->node)) {
        visit(program[launch->nest]);
      }
    }
  }

  Range of(loop::BufferId id) const {
    const auto found = buffers_.find(id);
    if (found == buffers_.end()) return {};
    const Use& use = found->second;
    if (!use.limited) return {0, use.other ? 2 : 1};
    // Where nothing reasonable says how large a size may be: a few.
    constexpr int64_t kReasonable = int64_t{1} << 24;
    const int64_t lo = use.range.lo < -kReasonable ? 0 : use.range.lo;
    return {lo, use.range.hi > kReasonable ? lo + 3 : use.range.hi};
  }

 private:
  struct Use {
    Range range{INT64_MIN, kNoLimit};
    bool limited = false;
    bool other = false;  // used for more than comparing and turning into floats
  };

  std::optional<int64_t> value_of(Expr e) const { return sym::evaluate(e, lookup_in(sizes_)); }

  static void limit(Use& use, Range range) {
    use.limited = true;
    use.range = {std::max(use.range.lo, range.lo), std::min(use.range.hi, range.hi)};
  }

  void visit(const loop::Nest& nest) {
    std::vector<const loop::Stmt*> stmts;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) { stmts.push_back(&stmt); });
    std::vector<Use> values(nest.values.size());
    const auto pass = [&](loop::ValueId from, loop::ValueId to) {
      const Use use = values[from.value];
      if (use.limited) limit(values[to.value], use.range);
      values[to.value].other |= use.other;
    };
    for (auto stmt = stmts.rbegin(); stmt != stmts.rend(); ++stmt) {
      if (const auto* bind = std::get_if<loop::Bind>(&(*stmt)->node)) {
        const auto extent = value_of(bind->extent);
        limit(values[bind->value.value], {0, std::max<int64_t>(0, extent.value_or(3) - 1)});
      } else if (const auto* store = std::get_if<loop::Store>(&(*stmt)->node)) {
        const auto found = buffers_.find(store->access.buffer);
        Use& value = values[store->value.value];
        if (found != buffers_.end() && found->second.limited) limit(value, found->second.range);
        value.other |= found == buffers_.end() || found->second.other;
      } else if (const auto* load = std::get_if<loop::Load>(&(*stmt)->node)) {
        Use& buffer = buffers_[load->access.buffer];
        const Use& value = values[load->result.value];
        if (value.limited) limit(buffer, value.range);
        buffer.other |= value.other;
      } else if (const auto* let = std::get_if<loop::Let>(&(*stmt)->node)) {
        visit(nest, *let, values, pass);
      } else {
        loop::for_each_use(**stmt, [&](loop::ValueId id) { values[id.value].other = true; });
      }
    }
  }

  template <class Pass>
  void visit(const loop::Nest& nest, const loop::Let& let, std::vector<Use>& values, const Pass& pass) {
    using loop::ScalarOp;
    const DType result = nest.values[let.result.value].dtype;
    switch (let.op) {
      case ScalarOp::kCast:
        if (!is_float(result) && !is_bool(result)) pass(let.result, let.args[0]);
        return;
      case ScalarOp::kSelect:  // an index that counts from the end: select(i < 0, i + n, i)
        pass(let.result, let.args[1]);
        pass(let.result, let.args[2]);
        return;
      case ScalarOp::kEq:
      case ScalarOp::kNe:
      case ScalarOp::kLt:
      case ScalarOp::kLe: return;
      default:
        for (loop::ValueId arg : let.args) values[arg.value].other = true;
    }
  }

  const Sizes& sizes_;
  std::map<loop::BufferId, Use> buffers_;
};

// ---- sizes ----

const sym::Guard* broken_guard(const loop::Program& program, const Sizes& sizes) {
  for (const auto& guard : program.guards)
    if (sym::evaluate(guard.condition, lookup_in(sizes)) == 0) return &guard;
  return nullptr;
}

double work(const loop::Program& program, const Sizes& sizes) {
  double flops = 0;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node)) {
      const auto lookup = [&](Expr var) -> std::optional<int64_t> {
        const auto found = sizes.find(var.name());
        return found == sizes.end() ? 4 : found->second;
      };
      flops += static_cast<double>(
          sym::evaluate(loop::cost_of(program, program[launch->nest]).flops, lookup).value_or(0));
    }
  });
  return flops;
}

}  // namespace

Sizes choose_sizes(const loop::Program& program, const std::vector<frontend::DimRange>& dims, int run) {
  constexpr int64_t kSmall[] = {2, 3, 5, 4};
  constexpr double kMuchWork = 1.5e9;  // some seconds of the interpreter
  struct Choice {
    std::string name;
    int64_t least, most, multiple;
    int64_t at_least(int64_t wanted) const {
      const int64_t value = (std::max(wanted, least) + multiple - 1) / multiple * multiple;
      return value > most ? most / multiple * multiple : value;
    }
  };
  std::vector<Choice> choices;
  for (const auto& symbol : program.symbols) {
    if (symbol.input < 0) continue;
    const sym::Interval range = program.facts.bounds(symbol.var);
    Choice choice{symbol.var.name(), std::max<int64_t>(range.lo, 1), range.hi,
                  std::max<int64_t>(1, program.facts.known_divisor(symbol.var))};
    for (const auto& dim : dims)
      if (dim.name == choice.name) {
        choice.least = dim.lower == 0 && dim.upper == 0 ? 0 : std::max(choice.least, dim.lower.value_or(1));
        choice.most = std::min(choice.most, dim.upper.value_or(choice.most));
        choice.multiple = std::max(choice.multiple, dim.multiple);
        if (dim.lower && dim.lower == dim.upper) choice = {choice.name, *dim.lower, *dim.lower, 1};
      }
    choices.push_back(std::move(choice));
  }
  const auto sizes_by = [&](const std::function<int64_t(size_t)>& wanted) {
    Sizes sizes;
    for (size_t i = 0; i < choices.size(); ++i) sizes[choices[i].name] = choices[i].at_least(wanted(i));
    return sizes;
  };
  std::vector<Sizes> candidates = {
      sizes_by([&](size_t i) { return kSmall[(i + static_cast<size_t>(run)) % std::size(kSmall)]; }),
      sizes_by([&](size_t) { return run + 2; }), sizes_by([](size_t) { return 1; }),
      sizes_by([](size_t) { return 16; })};
  if (work(program, candidates[0]) > kMuchWork)
    std::rotate(candidates.begin(), candidates.begin() + 2, candidates.end());
  for (const Sizes& sizes : candidates)
    if (!broken_guard(program, sizes)) return sizes;
  fail(ErrorKind::kDoesNotFit, "sizes-needed",
       sym::render(*broken_guard(program, candidates[0]), lookup_in(candidates[0])),
       "give sizes that fit: --dim name=size,...");
}

loop::HostTensor random_input(const loop::Program& program, size_t input, const Sizes& sizes, uint64_t seed) {
  const loop::BufferId id = program.inputs[input];
  const loop::Buffer& buffer = program[id];
  std::vector<int64_t> shape;
  for (Expr dim : buffer.shape) shape.push_back(sym::evaluate(dim, lookup_in(sizes)).value_or(1));
  loop::HostTensor tensor = loop::make_tensor(buffer.dtype, shape);
  Range range;
  if (is_bool(buffer.dtype))
    range = {0, 1};
  else if (!is_float(buffer.dtype))
    range = Uses(program, sizes).of(id);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const size_t item = static_cast<size_t>(byte_size(buffer.dtype));
  const uint64_t span = static_cast<uint64_t>(std::max<int64_t>(0, range.hi - range.lo)) + 1;
  for (int64_t i = 0; i < loop::element_count(tensor); ++i) {
    uint8_t* at = tensor.bytes.data() + static_cast<size_t>(i) * item;
    if (is_float(buffer.dtype))
      write_float(buffer.dtype, normal(random), at);
    else
      write_integer(buffer.dtype, range.lo + static_cast<int64_t>(random() % span), at);
  }
  return tensor;
}

}  // namespace stridec::cli
