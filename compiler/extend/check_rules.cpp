#include "compiler/extend/check_rules.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "compiler/base/hash.h"
#include "compiler/base/number.h"
#include "compiler/base/numeric.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/base/ulps.h"
#include "compiler/extend/draw.h"
#include "compiler/extend/draw_values.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/rewrite.h"
#include "compiler/extend/show_values.h"
#include "compiler/extend/tolerance.h"
#include "compiler/extend/user_operator.h"
#include "compiler/graph/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/op_table.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::Graph;
using graph::ValueId;
using loop::HostTensor;

constexpr int kMostAttempts = 12000;
constexpr int kEnoughAttempts = 4000;  // if some instances were compared
constexpr int kEnoughInstances = 16;
constexpr size_t kUsualKinds = 4;  // of values, for which the instances that are asked for are enough
constexpr int kDrawsOfTypes = 12, kDrawsOfAttributes = 3;
// Values are drawn anew for one graph until so many elements were compared, or so many times.
constexpr int64_t kEnoughElements = 256, kMostDrawsOfValues = 8;
constexpr int64_t kMostWork = 100'000;  // of a part of an instance that is compared, in operations
constexpr int kMostFirings = 64;        // on the graph of a pattern
constexpr int kFiringInstances = 8;     // on which rules are tried out

// An instance of a rule: the types and values of its variables.
struct Instance {
  std::vector<graph::Type> types;                       // by variable
  std::vector<size_t> alias;                            // by variable: the one whose value it is
  std::vector<HostTensor> values;                       // by variable
  std::map<std::string, Attr, std::less<>> attributes;  // that were drawn
  bool extreme = false;                                 // the values of other than constants
};

struct Built {
  Graph graph;
  std::vector<ValueId> match, yield;
  Bindings bindings;
};

class Checker {
 public:
  Checker(const Rule& rule, const RuleCheck& how)
      : rule_(rule),
        how_(how),
        draws_(std::hash<std::string>{}(sha256(rule.text.data(), rule.text.size())) + how.seed),
        near_(landmarks_of(rule)) {
    verdict_.rule = &rule;
    verdict_.at = rule.at;
  }

  Verdict run() {
    std::string why;
    bool shaped = false;
    // A cast loses information for few of the types and values, and each kind of values needs some instances.
    const bool many = !near_.formats.empty() || kinds_of_values(rule_.check).size() > kUsualKinds;
    const int wanted = many ? 2 * how_.instances : how_.instances;
    for (int attempt = 0; attempt < kMostAttempts && verdict_.instances < wanted; ++attempt) {
      if (attempt > kEnoughAttempts && verdict_.instances >= kEnoughInstances) break;
      Built built;
      auto instance = draw(built, attempt, why);
      if (!instance) continue;
      shaped = true;
      if (!compare(*instance, built, attempt)) return std::move(verdict_);
    }
    if (!shaped || verdict_.instances == 0) {
      verdict_.problem = why.empty() ? "no random instance satisfies its conditions" : why;
      return std::move(verdict_);
    }
    return std::move(verdict_);
  }

  // Graphs of the match alone, for trying out rewriting.
  std::vector<Graph> matches(int count) {
    std::vector<Graph> graphs;
    std::vector<std::string> seen;
    std::string why;
    for (int attempt = 0; attempt < kMostAttempts / 2 && static_cast<int>(graphs.size()) < count; ++attempt) {
      Built built;
      if (!draw(built, 40 + attempt, why)) continue;
      const size_t outputs = built.graph.top.results.size();
      for (size_t i = 0; i < built.match.size(); ++i)
        Builder(built.graph, ops::shape_table()).output(cat("y", outputs + i), built.match[i]);
      graph::eliminate_dead_code(built.graph);
      const std::string text = graph::to_string(built.graph);
      if (std::ranges::count(seen, text) > 0) continue;
      seen.push_back(text);
      graphs.push_back(std::move(built.graph));
    }
    return graphs;
  }

 private:
  // Types that fit the match are kept for some draws of values and attributes, which conditions may refuse.
  std::optional<Instance> draw(Built& built, int attempt, std::string& why) {
    Instance instance;
    instance.types = draw_types(draws_, rule_, attempt / 12, near_);
    for (int draw = 0; draw < kDrawsOfTypes; ++draw) {
      draw_aliases(instance);
      draw_values(instance, attempt, true);
      built = {};
      try {
        build(instance, built, true, {});
      } catch (const Error& error) {
        if (why.empty()) why = cat("no random types fit the match: ", error.diagnostic.message);
        if (draw >= kDrawsOfAttributes) return std::nullopt;
        continue;
      }
      if (!meets_conditions(built, why)) continue;
      draw_values(instance, attempt, false);
      instance.attributes = built.bindings.attributes;
      return instance;
    }
    return std::nullopt;
  }

  void draw_aliases(Instance& instance) {
    instance.alias.clear();
    for (size_t v = 0; v < rule_.variables.size(); ++v) {
      instance.alias.push_back(v);
      for (size_t u = 0; u < v && instance.alias[v] == v; ++u)
        if (instance.types[u] == instance.types[v] &&
            rule_.variables[v].constant == rule_.variables[u].constant && draws_.chance(0.1))
          instance.alias[v] = instance.alias[u];
    }
  }

  // Of the constants, which a built graph contains, or of the other variables.
  void draw_values(Instance& instance, int attempt, bool constants) {
    const std::vector<Values> kinds = kinds_of_values(rule_.check);
    Values values = kinds[static_cast<size_t>(attempt) % kinds.size()];
    // Sums over nothing are 0, whatever is multiplied with them: close rules need not keep NaNs there.
    const auto is_empty = [](const graph::Type& type) {
      return std::ranges::any_of(type.shape, [](sym::Expr dim) { return dim.is_const(0); });
    };
    if (rule_.check.kind == Check::Kind::kClose && std::ranges::any_of(instance.types, is_empty))
      values = Values::kPlain;
    // What is added to a constant that large disappears, on the side that adds it.
    if (constants && is_extreme(values)) values = Values::kLarge;
    instance.extreme = is_extreme(values);
    instance.values.resize(rule_.variables.size());
    for (size_t v = 0; v < rule_.variables.size(); ++v) {
      const Variable& variable = rule_.variables[v];
      if (variable.constant != constants) continue;
      instance.values[v] =
          draw_tensor(draws_, instance.types[v], rule_.check, values, variable.constant, near_);
      if (constants) draw_limit(variable, instance.values[v]);
      for (size_t u = 0; u < v; ++u)
        if (instance.types[u] == instance.types[v] && rule_.variables[u].constant == constants &&
            draws_.chance(0.1))
          instance.values[v] = nearly_equal(instance.values[u]);
      if (instance.extreme && has_one_operand() && draws_.chance(0.3))
        instance.values[v] = negated(std::move(instance.values[v]));
    }
  }

  // Sides that associate sums of several operands differently overflow differently, unless all are positive.
  bool has_one_operand() const {
    return std::ranges::count(rule_.variables, false, &Variable::constant) == 1;
  }

  // Each number at the limits of the type in turn, in a part of the instances: a rule that only fails there
  // passes all others.
  void draw_limit(const Variable& variable, HostTensor& value) {
    const bool exact = rule_.check.kind == Check::Kind::kExact || rule_.check.kind == Check::Kind::kUlp;
    if (!exact || rule_.check.range || !bounds_contents(rule_, variable.name) || !draws_.chance(0.3)) return;
    if (const std::vector<double> limits = limits_of(value.dtype); !limits.empty())
      value = filled(std::move(value), limits[limit_++ % limits.size()]);
  }

  // The same values, but for the signs of zeros.
  HostTensor nearly_equal(HostTensor tensor) {
    for (int64_t i = 0; i < loop::element_count(tensor) && is_float(tensor.dtype); ++i)
      if (const double value = loop::get_number(tensor, i); value == 0 && draws_.chance(0.5))
        loop::set_number(tensor, i, -value);
    return tensor;
  }

  bool meets_conditions(Built& built, std::string& why) {
    try {
      Builder builder(built.graph, ops::shape_table());
      Evaluator evaluator(builder, built.bindings);
      evaluator.operators = how_.operators;
      evaluator.rule = &rule_;
      bool all = true;
      const auto check = [&](const Term& term) {
        try {
          if (evaluator.condition(term).is_const(1))
            met_.insert(&term);
          else
            all = false;
        } catch (const Error&) {
          if (all) throw;  // otherwise a condition before it guards it
        }
      };
      for (const Term& term : rule_.where) check(term);
      for (const Requirement& each : rule_.require) check(each.condition);
      if (!all) why = unmet_conditions();
      return all;
    } catch (const Error& error) {
      why = error.diagnostic.message;
      return false;
    }
  }

  // The conditions that no instance so far has met; if each was met by some, all of them.
  std::string unmet_conditions() const {
    std::vector<std::string> never, all;
    const auto add = [&](const char* clause, const Term& term) {
      all.push_back(cat(clause, " ", to_string(term)));
      if (!met_.contains(&term)) never.push_back(all.back());
    };
    for (const Term& term : rule_.where) add("where", term);
    for (const Requirement& each : rule_.require) add("require", each.condition);
    return cat("no random instance satisfies ",
               never.empty() ? cat("together ", join(all, " and ")) : join(never, " and "));
  }

  // The match. `floats`: the type in place of every float type of a variable.
  void build(const Instance& instance, Built& built, bool draws, std::optional<DType> floats) {
    Builder builder(built.graph, ops::shape_table());
    for (size_t v = 0; v < rule_.variables.size(); ++v) {
      const Variable& variable = rule_.variables[v];
      graph::Type type = instance.types[v];
      if (floats && is_float(type.dtype)) type.dtype = *floats;
      if (instance.alias[v] != v)
        built.bindings.values[variable.name] =
            built.bindings.values.at(rule_.variables[instance.alias[v]].name);
      else if (variable.constant)
        built.bindings.values[variable.name] =
            builder.constant("", type, graph::own(converted(instance.values[v], type.dtype).bytes));
      else
        built.bindings.values[variable.name] = builder.input(variable.name, type);
      bind_dims(variable, type, built.bindings);
    }
    Evaluator evaluator(builder, built.bindings);
    if (draws) {
      evaluator.draw = [&](graph::OpKind kind, const std::string& attribute,
                           const std::vector<ValueId>& inputs) {
        return draw_attribute(draws_, builder, kind, attribute, inputs);
      };
      evaluator.draw_parameter = [&](const std::string&, const std::string& parameter, int rank) {
        return draw_parameter(draws_, parameter, rank);
      };
    } else {
      built.bindings.attributes = instance.attributes;
    }
    built.match = evaluator.side(rule_.match);
  }

  static void bind_dims(const Variable& variable, const graph::Type& type, Bindings& bindings) {
    size_t at = 0;
    for (size_t i = 0; i < variable.dims.size(); ++i) {
      const Dim& dim = variable.dims[i];
      if (dim.kind == Dim::Kind::kRest) {
        at = type.shape.size() - (variable.dims.size() - i - 1);
        continue;
      }
      const auto [bound, fresh] = dim.kind == Dim::Kind::kName
                                      ? bindings.attributes.emplace(dim.name, type.shape[at])
                                      : std::pair(bindings.attributes.end(), true);
      if (!fresh && bound->second != Attr(type.shape[at]))
        fail(ErrorKind::kDoesNotFit, "does-not-fit", "dims of one name differ");
      ++at;
    }
  }

  static HostTensor converted(const HostTensor& from, DType to) {
    if (from.dtype == to) return from;
    HostTensor out = loop::make_tensor(to, from.shape);
    for (int64_t i = 0; i < loop::element_count(from); ++i)
      loop::set_number(out, i, loop::get_number(from, i));
    return out;
  }

  // False: verdict_ has the problem.
  bool compare(Instance& instance, Built& built, int attempt) {
    Builder builder(built.graph, ops::shape_table());
    try {
      built.yield = replacement_of(builder, rule_, built.bindings, how_.operators);
    } catch (const Error& error) {
      return refuse(instance,
                    cat("the replacement does not fit where the match does: ", error.diagnostic.message));
    }
    for (size_t i = 0; i < built.match.size(); ++i) {
      const graph::Type &was = builder.type(built.match[i]), &is = builder.type(built.yield[i]);
      if (was != is)
        return refuse(instance, cat("the match is ", graph::to_string(was), ", the replacement ",
                                    graph::to_string(is)));
    }
    if (rule_.check.kind == Check::Kind::kTrusted) {
      ++verdict_.instances;
      return true;
    }
    for (const auto* side : {&built.match, &built.yield})
      for (const ValueId value : *side) builder.output(cat("y", built.graph.output_names.size()), value);
    const loop::Program program = ops::lower(built.graph);
    int64_t work = 1;  // elements or operations of the largest part
    for (const HostTensor& value : instance.values) work = std::max(work, loop::element_count(value));
    for (const loop::Nest& nest : program.nests) {
      const sym::Expr flops = loop::cost_of(program, nest).flops;
      work = std::max(work, flops.is_const() ? flops.value() : kEnoughElements);
    }
    if (work > kMostWork) return true;
    const int64_t times = std::clamp<int64_t>(kEnoughElements / work, 1, kMostDrawsOfValues);
    bool compared = false;
    for (int64_t time = 0; time < times; ++time) {
      if (time > 0) draw_values(instance, attempt + static_cast<int>(time), false);
      const auto equal = compare(instance, program, built.match.size());
      if (equal && !*equal) return false;
      compared = compared || equal;
    }
    if (compared) ++verdict_.instances;
    return true;
  }

  // With the values of the instance; nullopt: the match has no result.
  std::optional<bool> compare(const Instance& instance, const loop::Program& program, size_t results) {
    std::vector<HostTensor> outputs;
    try {
      outputs = loop::interpret(program, inputs_of(instance));
    } catch (const Error& error) {
      if (!has_result(instance)) return std::nullopt;  // an index out of range, for example
      return refuse(instance,
                    cat("the replacement fails where the match does not: ", error.diagnostic.message));
    }
    for (size_t r = 0; r < results; ++r)
      if (first_difference(instance, outputs[r], outputs[results + r], r) >= 0) {
        shrink(instance, program, r, results);
        return false;
      }
    return true;
  }

  // Whether the match alone can be computed.
  bool has_result(const Instance& instance) {
    Built built;
    build(instance, built, false, {});
    for (const ValueId value : built.match)
      Builder(built.graph, ops::shape_table()).output(cat("y", built.graph.output_names.size()), value);
    try {
      loop::interpret(ops::lower(built.graph), inputs_of(instance));
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  std::vector<HostTensor> inputs_of(const Instance& instance) const {
    std::vector<HostTensor> inputs;
    for (size_t v = 0; v < rule_.variables.size(); ++v)
      if (instance.alias[v] == v && !rule_.variables[v].constant) inputs.push_back(instance.values[v]);
    return inputs;
  }

  // ---- comparing
  // The first element that differs; -1: none.
  int64_t first_difference(const Instance& instance, const HostTensor& match, const HostTensor& yield,
                           size_t result) {
    std::optional<Exact> reference;
    for (int64_t i = 0; i < loop::element_count(match); ++i) {
      if (same(match, yield, i)) continue;
      if (rule_.check.kind == Check::Kind::kExact || !is_float(match.dtype)) return i;
      if (rule_.check.kind == Check::Kind::kUlp) {
        if (ulps_between(match.dtype, bits(match, i), bits(yield, i)) >
            static_cast<uint64_t>(rule_.check.ulps))
          return i;
        continue;
      }
      const double a = loop::get_number(match, i), b = loop::get_number(yield, i);
      const bool finite = std::isfinite(a) && std::isfinite(b);
      if (instance.extreme && is_at_overflow(match.dtype, a, b)) continue;
      // With an assumed range a narrow type may overflow where the exact result does not.
      if (!finite && !(rule_.check.range && std::isfinite(b))) return i;
      if (instance.extreme && underflows(instance, result, match, yield, i)) return i;
      if (is_near(a, b, rule_.check.relative, rule_.check.absolute)) continue;
      if (!reference) reference = exact(instance, result, match.dtype);
      if (!reference || !within_noise(instance, match.dtype, a, b, *reference, i)) return i;
    }
    return -1;
  }
  static uint64_t bits(const HostTensor& x, int64_t i) {
    const auto width = static_cast<size_t>(byte_size(x.dtype));
    uint64_t out = 0;
    std::memcpy(&out, x.bytes.data() + static_cast<size_t>(i) * width, width);
    return out;
  }
  static bool same(const HostTensor& x, const HostTensor& y, int64_t i) {
    const size_t width = static_cast<size_t>(byte_size(x.dtype)), at = static_cast<size_t>(i) * width;
    if (std::memcmp(x.bytes.data() + at, y.bytes.data() + at, width) == 0) return true;
    return is_float(x.dtype) && std::isnan(loop::get_number(x, i)) && std::isnan(loop::get_number(y, i));
  }
  // Whether rounding decides which of the two is infinite.
  bool is_at_overflow(DType dtype, double a, double b) const {
    const double finite = std::isfinite(a) ? a : b, other = std::isfinite(a) ? b : a;
    return std::isinf(other) && finite * other > 0 &&
           std::abs(finite) * (1 + rule_.check.relative + 8 * unit_of(dtype)) > largest_finite(dtype);
  }
  // Whether one side is zero for want of small exponents alone, where the other is a normal number. The
  // absolute tolerance is for zeros that cancellation leads to.
  bool underflows(const Instance& instance, size_t result, const HostTensor& match, const HostTensor& yield,
                  int64_t i) {
    const double a = loop::get_number(match, i), b = loop::get_number(yield, i);
    const FloatFormat& format = format_of(match.dtype);
    if ((a == 0) == (b == 0) || std::abs(a + b) < std::ldexp(1.0, format.least + format.bits - 1))
      return false;
    try {
      return loop::get_number(with_more_exponents(instance, result, match.dtype, a == 0), i) != 0;
    } catch (const Error&) {  // it has no form in the other type
      return false;
    }
  }
  // A side in a type that has the exponents of products of such values and at most as many digits, so that
  // what cancels does so here too. Of double precision, at values whose exponents are an eighth.
  HostTensor with_more_exponents(const Instance& instance, size_t result, DType dtype, bool match) {
    const DType wide = dtype == DType::kF16 ? DType::kBF16 : DType::kF64;
    Built built;
    build(instance, built, false, wide);
    Builder builder(built.graph, ops::shape_table());
    builder.output(
        "y", (match ? built.match : replacement_of(builder, rule_, built.bindings, how_.operators))[result]);
    std::vector<HostTensor> inputs = inputs_of(instance);
    for (HostTensor& input : inputs) {
      if (!is_float(input.dtype)) continue;
      input = converted(input, wide);
      for (int64_t i = 0; i < loop::element_count(input) && dtype == wide; ++i)
        if (const double number = loop::get_number(input, i); number != 0)
          loop::set_number(input, i, std::copysign(std::pow(std::abs(number), 0.125), number));
    }
    return loop::interpret(ops::lower(built.graph), inputs)[0];
  }
  // The match in double precision, and how far it moves if the inputs move by their rounding errors.
  struct Exact {
    HostTensor value;
    std::vector<double> noise;
  };
  static double unit_of(DType dtype) {
    switch (dtype) {
      case DType::kF16: return 0x1p-10;
      case DType::kBF16: return 0x1p-7;
      case DType::kF64: return 0x1p-52;
      default: return 0x1p-23;
    }
  }
  bool within_noise(const Instance& instance, DType dtype, double match, double yield, const Exact& reference,
                    int64_t i) const {
    const double exact = loop::get_number(reference.value, i), unit = unit_of(dtype);
    const double least = dtype == DType::kF16 ? 0x1p-14 : 0x1p-120;
    if (!std::isfinite(exact)) return false;
    // A match that overflows says nothing about how much error rounding explains.
    const double error = std::isfinite(match) ? std::abs(match - exact) : 0;
    return std::abs(yield - exact) <= absorbed(instance, unit) + rule_.check.absolute +
                                          (rule_.check.relative + 8 * unit) * std::abs(exact) + 4 * error +
                                          8 * unit * least + 4 * reference.noise[static_cast<size_t>(i)];
  }
  // What disappears if it is added to an extreme value, in double precision too.
  static double absorbed(const Instance& instance, double unit) {
    double largest = 0;
    for (const HostTensor& value : instance.values)
      for (int64_t i = 0; i < loop::element_count(value) && instance.extreme; ++i)
        largest = std::max(largest, std::abs(loop::get_number(value, i)));
    return unit * largest;
  }
  std::optional<Exact> exact(const Instance& instance, size_t result, DType dtype) {
    try {
      Built built;
      build(instance, built, false, DType::kF64);
      Builder(built.graph, ops::shape_table()).output("y", built.match[result]);
      const loop::Program program = ops::lower(built.graph);
      std::vector<HostTensor> inputs = inputs_of(instance);
      for (HostTensor& input : inputs)
        if (is_float(input.dtype)) input = converted(input, DType::kF64);
      Exact out{.value = loop::interpret(program, inputs)[0], .noise = {}};
      out.noise.resize(static_cast<size_t>(loop::element_count(out.value)));
      constexpr int kPerturbations = 4;
      for (int p = 0; p < kPerturbations; ++p) {
        std::vector<HostTensor> moved = inputs;
        for (HostTensor& input : moved)
          for (int64_t i = 0; i < loop::element_count(input) && is_float(input.dtype); ++i)
            loop::set_number(input, i,
                             loop::get_number(input, i) * (1 + 2 * unit_of(dtype) * draws_.between(-1, 1)));
        const HostTensor there = loop::interpret(program, moved)[0];
        for (size_t i = 0; i < out.noise.size(); ++i)
          out.noise[i] =
              std::max(out.noise[i], std::abs(loop::get_number(there, static_cast<int64_t>(i)) -
                                              loop::get_number(out.value, static_cast<int64_t>(i))));
      }
      return out;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // ---- counterexamples
  // Replaces elements by 1 as long as the sides differ.
  void shrink(Instance instance, const loop::Program& program, size_t r, size_t results) {
    std::vector<HostTensor> outputs;
    const auto differ = [&](const Instance& tried) -> int64_t {
      try {
        outputs = loop::interpret(program, inputs_of(tried));
      } catch (const Error&) {
        return -1;
      }
      return first_difference(tried, outputs[r], outputs[results + r], r);
    };
    int budget = 40;
    for (size_t v = 0; v < instance.values.size(); ++v)
      for (int64_t i = 0; i < loop::element_count(instance.values[v]) && budget > 0; ++i) {
        if (instance.alias[v] != v || rule_.variables[v].constant) continue;
        if (rule_.check.range && (rule_.check.range->first > 1 || rule_.check.range->second < 1)) continue;
        Instance simpler = instance;
        loop::set_number(simpler.values[v], i, 1);
        --budget;
        if (differ(simpler) >= 0) instance = std::move(simpler);
      }
    const int64_t at = differ(instance);
    const HostTensor &match = outputs[r], &yield = outputs[results + r];
    refuse(instance, cat("the sides differ: ", number(match, at), " and ", number(yield, at),
                         match.shape.empty() ? std::string() : cat(" at ", place(match, at))));
    verdict_.notes.push_back(cat("match       = ", shown(match)));
    verdict_.notes.push_back(cat("replacement = ", shown(yield)));
  }
  bool refuse(const Instance& instance, std::string problem) {
    verdict_.problem = std::move(problem);
    verdict_.notes.clear();
    for (size_t v = 0; v < rule_.variables.size(); ++v)
      verdict_.notes.push_back(
          cat(rule_.variables[v].name, " = ",
              instance.alias[v] == v ? shown(instance.values[v]) : rule_.variables[instance.alias[v]].name));
    for (const auto& [name, value] : instance.attributes)
      if (name.find('@') == std::string::npos) verdict_.notes.push_back(cat(name, " = ", to_string(value)));
    return false;
  }

  const Rule& rule_;
  std::set<const Term*> met_;  // conditions that some instance met
  const RuleCheck& how_;
  Draws draws_;
  const Landmarks near_;
  size_t limit_ = 0;
  Verdict verdict_;
};

}  // namespace

Verdict check_rule(const RuleFile& file, const Rule& rule, const RuleCheck& how) {
  Checker checker(rule, how);
  Verdict verdict = checker.run();
  if (!verdict.problem.empty()) return verdict;
  for (Graph& graph : Checker(rule, how).matches(kFiringInstances)) {
    const Rewritten made =
        rewrite(graph, {{&file, &rule}},
                {.explains = false, .most = kMostFirings, .throws = false, .operators = how.operators});
    verdict.fires = verdict.fires || made.changed();
    if (static_cast<int>(made.trace.size()) < kMostFirings) continue;
    verdict.problem = cat("it fires on its own replacement, without end: ", cycle_of(made.trace));
    verdict.notes = {"'once' after its name keeps it from what it made: rule " + rule.name + " once:"};
    return verdict;
  }
  return verdict;
}

std::string find_loop(const std::vector<RuleFile>& files, const RuleCheck& how) {
  for (const RuleFile& file : files)
    for (const Rule& rule : file.rules) {
      const std::vector<RuleOf> together = rules_at(files, rule.at_pass);
      for (Graph& graph : Checker(rule, how).matches(kFiringInstances / 2)) {
        const Rewritten made =
            rewrite(graph, together,
                    {.explains = false, .most = kMostFirings, .throws = false, .operators = how.operators});
        if (static_cast<int>(made.trace.size()) >= kMostFirings)
          return cat("rules fire in turn, without end: ", cycle_of(made.trace));
      }
    }
  return "";
}

}  // namespace stridec::extend
