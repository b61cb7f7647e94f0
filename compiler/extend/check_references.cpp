// Compares the bodies of operators with their references, on drawn inputs.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/base/ulps.h"
#include "compiler/extend/draw_call.h"
#include "compiler/extend/tolerance.h"
#include "compiler/extend/try_kernel.h"
#include "compiler/extend/user_operator.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/op_table.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::ValueId;
using loop::HostTensor;

constexpr int kInstances = 20, kDraws = 200;
constexpr int kLargeDraws = 20;                               // until one of them is large, and not too large
constexpr int64_t kLarge = 8192, kMostLargeWork = 5'000'000;  // in elements; operations of the reference

double element(const HostTensor& tensor, size_t i) {
  const auto* at = tensor.bytes.data() + i * static_cast<size_t>(byte_size(tensor.dtype));
  return is_float(tensor.dtype) ? read_float(tensor.dtype, at)
                                : static_cast<double>(read_integer(tensor.dtype, at));
}

uint64_t bits(const HostTensor& tensor, size_t i) {
  const auto width = static_cast<size_t>(byte_size(tensor.dtype));
  uint64_t out = 0;
  std::memcpy(&out, tensor.bytes.data() + i * width, width);
  return out;
}

// What the reference makes of drawn inputs.
class Expected {
 public:
  Expected(loop::Program program, const DrawnCall& drawn, const CallKind& kind)
      : program_(std::move(program)), drawn_(drawn), usual_(kind.values == Values::kPlain && !kind.large) {}

  std::vector<HostTensor> results;

  void compute() { results = loop::interpret(program_, drawn_.inputs); }

  int64_t work() const {
    int64_t most = 0;
    for (const loop::Nest& nest : program_.nests)
      if (const sym::Expr flops = loop::cost_of(program_, nest).flops; flops.is_const())
        most = std::max(most, flops.value());
    return most;
  }

  // Whether rounding of the inputs, or absorption by the largest of them, moves the reference as far: of
  // large numbers, or of many, little is left where they cancel, and rounding decides which exponentials
  // overflow.
  bool explains(size_t output, size_t i, double made, const OperatorReference& how) {
    if (usual_) return false;
    if (moved_.empty()) move();
    const HostTensor& result = results[output];
    const double expected = element(result, i);
    double most = 0;
    for (const std::vector<HostTensor>& there : moved_) {
      const double moved = element(there[output], i);
      if (is_near(made, moved, how.relative, how.absolute)) return true;
      most = std::max(most, std::abs(moved - expected));
    }
    if (!std::isfinite(most) || !is_float(result.dtype)) return false;
    return is_near(made, expected, how.relative,
                   how.absolute + 4 * most + machine_epsilon(result.dtype) * largest_);
  }

 private:
  void move() {
    constexpr int kMoves = 8;
    Draws draws(1);
    for (int m = 0; m < kMoves; ++m) {
      std::vector<HostTensor> inputs = drawn_.inputs;
      for (HostTensor& input : inputs)
        for (int64_t i = 0; i < loop::element_count(input) && is_float(input.dtype); ++i) {
          const double number = loop::get_number(input, i);
          if (std::isfinite(number)) largest_ = std::max(largest_, std::abs(number));
          loop::set_number(input, i, number * (1 + 2 * machine_epsilon(input.dtype) * draws.between(-1, 1)));
        }
      moved_.push_back(loop::interpret(program_, inputs));
    }
  }

  const loop::Program program_;
  const DrawnCall& drawn_;
  const bool usual_;
  double largest_ = 0;
  std::vector<std::vector<HostTensor>> moved_;
};

class Comparison {
 public:
  Comparison(const OperatorFile& file, const UserOperator& op, const KernelHost& host,
             const ReferenceCheck& how)
      : file_(file), op_(op), host_(host), how_(how) {}

  void run() {
    int compared = 0;
    for (int i = 0; i < kDraws && compared < kInstances; ++i)
      compared += compare({.round = i, .values = values_of(i)});
    for (int i = 0; i < kLargeDraws && compared > 0; ++i)
      if (compare({.round = kDraws + i, .large = true})) break;
    if (compared == 0)
      refuse("no random inputs satisfy its declaration", last_,
             op_.reference ? "leave out the reference, or weaken the declaration" : "weaken the declaration");
  }

 private:
  // In every other round what bodies disagree on that agree on small numbers. Without a reference there is
  // nothing to compare with, and the declaration says nothing about the inputs.
  Values values_of(int round) const {
    if (!op_.reference || round % 2 == 0) return Values::kPlain;
    const std::vector<Values> unusual = unusual_inputs(op_.reference->inputs);
    return unusual[static_cast<size_t>(round / 2) % unusual.size()];
  }

  [[noreturn]] void refuse(const std::string& what, std::vector<std::string> notes,
                           const std::string& help) const {
    throw Error({.kind = ErrorKind::kDoesNotFit,
                 .code = "wrong-operator",
                 .message = cat(file_.path, "#", op_.pointer, ": ", op_.name, ": ", what),
                 .where = {.file = file_.path},
                 .notes = std::move(notes),
                 .help = help});
  }

  // The graph of a call.
  struct Built {
    graph::Graph graph;
    std::vector<ValueId> outputs;
  };
  Built built(const OperatorBody& body, const DrawnCall& drawn) const {
    Built made;
    Builder builder(made.graph, ops::shape_table());
    graph::OperatorCall call{.name = op_.name, .arguments = {}, .outputs = op_.outputs.size()};
    for (size_t i = 0; i < drawn.types.size(); ++i)
      call.arguments.push_back(
          {.name = {}, .tensor = builder.input(cat("x", i), drawn.types[i]), .value = {}});
    for (const auto& [name, value] : drawn.attributes)
      call.arguments.push_back({.name = name, .tensor = {}, .value = to_graph(name, value)});
    made.outputs = build_operator(builder, op_, body, call, host_);
    for (size_t i = 0; i < made.outputs.size(); ++i) builder.output(cat("y", i), made.outputs[i]);
    for (const graph::Value& value : made.graph.values) check_extents(value.type);
    return made;
  }

  // nullopt: the sizes do not fit the body; last_ says why.
  std::optional<Built> built_if_it_fits(const OperatorBody& body, const DrawnCall& drawn, bool& too_large) {
    try {
      return built(body, drawn);
    } catch (const Error& error) {
      if (error.diagnostic.kind == ErrorKind::kInternal || error.diagnostic.kind == ErrorKind::kMalformed)
        throw;
      last_ = {error.diagnostic.message};
      too_large = too_large || error.diagnostic.code == kTooLarge;
      return std::nullopt;
    }
  }

  bool is_kernel() const { return op_.body.kernel.has_value(); }

  static bool is_large(const DrawnCall& drawn) {
    return std::ranges::any_of(drawn.inputs,
                               [](const HostTensor& input) { return loop::element_count(input) > kLarge; });
  }

  bool compare(const CallKind& kind) {
    Draws draws(static_cast<uint64_t>(kind.round) + 1);
    std::string why;
    const auto drawn = draw_call(draws, op_, how_.conditions, kind, why);
    if (!drawn) {
      last_ = {why};
      return false;
    }
    if (kind.large && !is_large(*drawn)) return false;
    std::vector<std::string> notes;
    for (size_t i = 0; i < drawn->types.size(); ++i)
      notes.push_back(cat(op_.inputs[i].name, " = ", shown(drawn->types[i], drawn->inputs[i])));
    for (const auto& [name, value] : drawn->attributes)
      notes.push_back(cat(name, " = ", extend::to_string(value)));
    bool too_large = false;
    std::optional<Built> reference;
    if (op_.reference) reference = built_if_it_fits(op_.reference->body, *drawn, too_large);
    const auto body = built_if_it_fits(op_.body, *drawn, too_large);
    if (too_large || (!body && !reference)) return false;
    if (!body) {
      if (is_kernel()) return false;
      refuse(cat("the body fails where the reference does not: ", last_.at(0)), notes, "");
    }
    if (op_.reference && !reference) {
      if (how_.narrow) return false;
      refuse(cat("the reference does not fit where the declaration does: ", last_.at(0)), notes,
             "mend the reference, or say in 'require' which sizes the operator takes");
    }
    std::optional<Expected> expected;
    try {
      if (reference) expected.emplace(ops::lower(reference->graph), *drawn, kind);
      if (kind.large && expected && expected->work() > kMostLargeWork) return false;
      if (expected) expected->compute();
    } catch (const Error& error) {  // of the drawn values: an index out of range, for example
      if (error.diagnostic.kind == ErrorKind::kInternal) throw;
      last_ = {error.diagnostic.message};
      return false;
    }
    std::vector<HostTensor> made;
    try {
      made = is_kernel() ? kernel_results(*body, drawn->inputs, {})
                         : loop::interpret(ops::lower(body->graph), drawn->inputs);
    } catch (const Error& error) {
      last_ = {error.diagnostic.message};
      if (is_kernel()) refuse_kernel(error, std::move(notes));
      refuse(cat("the body fails where the reference does not: ", error.diagnostic.message), notes, "");
    }
    if (expected)
      for (size_t o = 0; o < made.size(); ++o) differ(o, made[o], *expected, notes);
    if (is_kernel() && how_.all) {
      vary(*body, drawn->inputs, made, notes);
      if (op_.body.kernel->parallel) share(*body, drawn->inputs, notes);
    }
    return true;
  }

  std::vector<HostTensor> kernel_results(const Built& call, const std::vector<HostTensor>& inputs,
                                         const KernelTrial& trial) const {
    return try_kernel(call.graph, call.outputs, inputs, trial, host_);
  }

  [[noreturn]] void refuse_kernel(const Error& error, std::vector<std::string> notes) const {
    std::string what = error.diagnostic.message;
    if (what.starts_with(cat(op_.name, ": "))) what = what.substr(op_.name.size() + 2);
    refuse(what, std::move(notes), "");
  }

  // What no result may depend on.
  void vary(const Built& call, const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& made,
            const std::vector<std::string>& notes) const {
    struct Variation {
      KernelTrial trial;
      const char* why;
    };
    const Variation variations[] = {
        {{.at_start = true, .fill = 0x3c}, "is not written there, or depends on what its memory held before"},
        {{.strided = true}, "depends on the strides, which the declaration leaves open"},
        {{.parts = 3}, "depends on the number of calls that share the parallel domain"},
    };
    for (const Variation& each : variations) {
      std::vector<HostTensor> other;
      try {
        other = kernel_results(call, inputs, each.trial);
      } catch (const Error& error) {
        refuse_kernel(error, notes);
      }
      for (size_t o = 0; o < made.size(); ++o) {
        const auto bytes = static_cast<size_t>(byte_size(made[o].dtype));
        const auto [at, unused] = std::ranges::mismatch(made[o].bytes, other[o].bytes);
        if (at == made[o].bytes.end()) continue;
        refuse(cat("element ", static_cast<size_t>(at - made[o].bytes.begin()) / bytes, " of output '",
                   op_.outputs[o].name, "' ", each.why),
               notes, "");
      }
    }
  }

  // Calls that share the parallel domain write different elements: each computes its own points.
  void share(const Built& call, const std::vector<HostTensor>& inputs,
             const std::vector<std::string>& notes) const {
    constexpr uint8_t kFills[] = {0xa5, 0x3c};
    std::vector<HostTensor> left[2][2];  // by call and by what the memory held before
    for (const size_t part : {0, 1})
      for (const size_t fill : {0, 1}) try {
          left[part][fill] = kernel_results(
              call, inputs, {.fill = kFills[fill], .parts = 2, .part = static_cast<int64_t>(part)});
        } catch (const Error& error) {
          refuse_kernel(error, notes);
        }
    for (size_t o = 0; o < op_.outputs.size(); ++o)
      for (size_t at = 0; at < left[0][0][o].bytes.size(); ++at) {
        const auto in_place = op_.body.kernel->in_place.find(op_.outputs[o].name);
        const auto writes = [&](size_t part) {
          if (in_place != op_.body.kernel->in_place.end())
            return left[part][0][o].bytes[at] != inputs[in_place->second].bytes[at];
          return left[part][0][o].bytes[at] != kFills[0] || left[part][1][o].bytes[at] != kFills[1];
        };
        if (!writes(0) || !writes(1)) continue;
        refuse(cat("element ", at / static_cast<size_t>(byte_size(left[0][0][o].dtype)), " of output '",
                   op_.outputs[o].name, "' is written by two calls that share the parallel domain"),
               notes, "a call computes the points from 'begin' to 'end', and no others");
      }
  }

  static std::string shown(const graph::Type& type, const HostTensor& tensor) {
    constexpr size_t kMost = 8;
    const size_t count = tensor.bytes.size() / static_cast<size_t>(byte_size(type.dtype));
    std::string out = cat(graph::to_string(type), " [");
    for (size_t i = 0; i < std::min(count, kMost); ++i) out += cat(i ? ", " : "", element(tensor, i));
    return cat(out, count > kMost ? ", ...]" : "]");
  }

  bool near(size_t output, const HostTensor& made, Expected& all, size_t i) const {
    const OperatorReference& reference = *op_.reference;
    const HostTensor& expected = all.results[output];
    if (!reference.ulps)
      return is_near(element(made, i), element(expected, i), reference.relative, reference.absolute) ||
             all.explains(output, i, element(made, i), reference);
    if (!is_float(made.dtype)) return element(made, i) == element(expected, i);
    return ulps_between(made.dtype, bits(made, i), bits(expected, i)) <=
           static_cast<uint64_t>(*reference.ulps);
  }

  void differ(size_t output, const HostTensor& made, Expected& all, std::vector<std::string> notes) const {
    const HostTensor& expected = all.results[output];
    const std::string& name = op_.outputs[output].name;
    if (made.dtype != expected.dtype || made.bytes.size() != expected.bytes.size())
      refuse(cat("output '", name, "' has another type or size than the reference's"), std::move(notes), "");
    const size_t count = made.bytes.size() / static_cast<size_t>(byte_size(made.dtype));
    for (size_t i = 0; i < count; ++i) {
      const double a = element(made, i), b = element(expected, i);
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      if (near(output, made, all, i)) continue;
      refuse(cat("output '", name, "' differs from the reference: ", a, " and ", b, " at element ", i),
             std::move(notes),
             "'relative' and 'absolute', or 'ulp', of the reference say how near the results have to be; "
             "'assume', \"finite\" or a range, says for which inputs");
    }
  }

  const OperatorFile& file_;
  const UserOperator& op_;
  const KernelHost& host_;
  const ReferenceCheck& how_;
  std::vector<std::string> last_;  // why the last drawn instance does not fit
};

}  // namespace

// A kernel in CUDA alone does not run here.
void check_references(const OperatorFile& file, const KernelHost& host, const ReferenceCheck& how) {
  for (const UserOperator& op : file.operators) {
    const bool kernel = op.body.kernel.has_value();
    if (!(kernel ? op.body.kernel->c && (op.reference || how.all) : op.reference.has_value())) continue;
    if (!op.variadic) {
      Comparison(file, op, host, how).run();
      continue;
    }
    for (const size_t count : {1, 2, 3}) {
      const UserOperator instance = op.variadic->instance(count, count);
      Comparison(file, instance, host, how).run();
    }
  }
}

}  // namespace stridec::extend
