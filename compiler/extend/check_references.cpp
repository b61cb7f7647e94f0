// Compares the bodies of operators with their references, on drawn inputs.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/base/ulps.h"
#include "compiler/extend/draw_values.h"
#include "compiler/extend/run_reference.h"
#include "compiler/extend/try_kernel.h"
#include "compiler/extend/user_operator.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/op_table.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::ValueId;
using loop::HostTensor;

constexpr int kInstances = 12, kDraws = 200;
constexpr int64_t kMostElements = 1 << 22;  // of a value
constexpr std::string_view kTooLarge = "too-large";

void check_extents(const graph::Type& type) {
  int64_t count = 1;
  for (const sym::Expr dim : type.shape) {
    if (dim.is_const(0)) return;
    if (!dim.is_const()) continue;
    if (dim.value() > kMostElements / count)
      fail(ErrorKind::kDoesNotFit, std::string(kTooLarge),
           cat("a value of ", graph::to_string(type), " has more than ", kMostElements, " elements"));
    count *= dim.value();
  }
}

// An attribute that has no default.
Attr usual_value(DeclaredAttribute::Kind kind) {
  using Kind = DeclaredAttribute::Kind;
  switch (kind) {
    case Kind::kInt: return sym::Expr(2);
    case Kind::kFloat: return 0.5;
    case Kind::kString: return std::string();
    case Kind::kType: return DType::kF32;
    case Kind::kInts: return std::vector<sym::Expr>{1};
    case Kind::kFloats: break;
  }
  return std::vector<double>{0.5};
}

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

class ReferenceCheck {
 public:
  ReferenceCheck(const OperatorFile& file, const UserOperator& op, const KernelHost& host, bool all)
      : file_(file), op_(op), host_(host), all_(all) {}

  void run() {
    int compared = 0;
    for (int i = 0; i < kDraws && compared < kInstances; ++i) compared += compare(i);
    if (compared == 0)
      refuse("no random inputs satisfy its declaration", last_,
             op_.reference ? "leave out the reference, or weaken the declaration" : "weaken the declaration");
  }

 private:
  [[noreturn]] void refuse(const std::string& what, std::vector<std::string> notes,
                           const std::string& help) const {
    throw Error({.kind = ErrorKind::kDoesNotFit,
                 .code = "wrong-operator",
                 .message = cat(file_.path, "#", op_.pointer, ": ", op_.name, ": ", what),
                 .where = {.file = file_.path},
                 .notes = std::move(notes),
                 .help = help});
  }

  std::vector<DType> allowed(const std::string& type) const { return types_of(op_, type); }

  // Sizes of names; terms are drawn likewise, and rounds whose sizes do not fit are left out.
  std::vector<graph::Type> draw_types(Draws& draws, int round) const {
    std::map<std::string, DType> types;
    std::map<std::string, std::vector<int64_t>> rests;
    Bindings sizes;
    const std::vector<int64_t> kSizes =
        round < 8 ? std::vector<int64_t>{2, 4, 6} : std::vector<int64_t>{0, 1, 2, 3, 4, 8};
    graph::Graph scratch;
    Builder builder(scratch, ops::shape_table());
    std::vector<graph::Type> out;
    for (const DeclaredTensor& input : op_.inputs)
      for (const DeclaredDim& each : input.shape)
        if (!each.rest && each.size.kind == Term::Kind::kName)
          sizes.attributes.emplace(each.size.name, sym::Expr(draws.any_of(kSizes)));
    for (const DeclaredAttribute& each : op_.attributes)
      sizes.attributes.emplace(each.name, each.otherwise ? *each.otherwise : usual_value(each.kind));
    for (const DeclaredTensor& input : op_.inputs) {
      const DType dtype = types.emplace(input.type, draws.any_of(allowed(input.type))).first->second;
      graph::Type type{dtype, {}};
      if (!input.has_shape)
        type.shape.assign(static_cast<size_t>(draws.below(3)), sym::Expr(draws.any_of(kSizes)));
      for (const DeclaredDim& each : input.shape) {
        if (!each.rest) {
          type.shape.push_back(drawn_size(each.size, Evaluator(builder, sizes).attribute(each.size)));
          continue;
        }
        std::vector<int64_t> dims(static_cast<size_t>(draws.below(3)));
        for (int64_t& dim : dims) dim = draws.any_of(kSizes);
        if (!each.rest_name.empty()) dims = rests.emplace(each.rest_name, dims).first->second;
        type.shape.insert(type.shape.end(), dims.begin(), dims.end());
      }
      check_extents(type);
      out.push_back(std::move(type));
    }
    return out;
  }

  static sym::Expr drawn_size(const Term& term, const Attr& size) {
    const auto* e = std::get_if<sym::Expr>(&size);
    if (!e || !e->is_const() || e->value() < 0)
      fail(ErrorKind::kDoesNotFit, "does-not-fit",
           cat("the size ", extend::to_string(term), " is ", extend::to_string(size)));
    return *e;
  }

  // The graph of a call.
  struct Built {
    graph::Graph graph;
    std::vector<ValueId> outputs;
  };
  Built built(const OperatorBody& body, const std::vector<graph::Type>& types) const {
    Built made;
    Builder builder(made.graph, ops::shape_table());
    graph::OperatorCall call{.name = op_.name, .arguments = {}, .outputs = op_.outputs.size()};
    for (size_t i = 0; i < types.size(); ++i)
      call.arguments.push_back({.name = {}, .tensor = builder.input(cat("x", i), types[i]), .value = {}});
    for (const DeclaredAttribute& each : op_.attributes)
      if (!each.otherwise)
        call.arguments.push_back(
            {.name = each.name, .tensor = {}, .value = to_graph(each.name, usual_value(each.kind))});
    made.outputs = build_operator(builder, op_, body, call, host_);
    for (size_t i = 0; i < made.outputs.size(); ++i) builder.output(cat("y", i), made.outputs[i]);
    for (const graph::Value& value : made.graph.values) check_extents(value.type);
    return made;
  }

  std::vector<HostTensor> results(const OperatorBody& body, const std::vector<graph::Type>& types,
                                  const std::vector<HostTensor>& inputs) const {
    return loop::interpret(ops::lower(built(body, types).graph), inputs);
  }

  std::vector<HostTensor> kernel_results(const std::vector<graph::Type>& types,
                                         const std::vector<HostTensor>& inputs,
                                         const KernelTrial& trial) const {
    const Built made = built(op_.body, types);
    return try_kernel(made.graph, made.outputs, inputs, trial, host_);
  }

  bool is_kernel() const { return op_.body.kernel.has_value(); }

  bool compare(int round) {
    Draws draws(static_cast<uint64_t>(round) + 1);
    std::vector<graph::Type> types;
    std::vector<HostTensor> inputs, made, expected;
    try {
      types = draw_types(draws, round);
      for (const graph::Type& type : types)
        inputs.push_back(draw_tensor(draws, type, {}, Values::kPlain, false));
      if (op_.reference) expected = results(op_.reference->body, types, inputs);
      if (is_kernel()) built(op_.body, types);
    } catch (const Error& error) {
      if (error.diagnostic.kind == ErrorKind::kInternal || error.diagnostic.kind == ErrorKind::kMalformed)
        throw;
      last_ = {error.diagnostic.message};
      return false;
    }
    std::vector<std::string> notes;
    for (size_t i = 0; i < types.size(); ++i)
      notes.push_back(cat(op_.inputs[i].name, " = ", shown(types[i], inputs[i])));
    try {
      made = is_kernel() ? kernel_results(types, inputs, {}) : results(op_.body, types, inputs);
    } catch (const Error& error) {
      last_ = {error.diagnostic.message};
      if (error.diagnostic.code == kTooLarge) return false;
      if (is_kernel()) refuse_kernel(error, std::move(notes));
      refuse(cat("the body fails where the reference does not: ", error.diagnostic.message), notes, "");
    }
    if (op_.reference)
      for (size_t o = 0; o < made.size(); ++o) differ(o, made[o], expected[o], notes);
    if (is_kernel() && all_) vary(types, inputs, made, notes);
    return true;
  }

  [[noreturn]] void refuse_kernel(const Error& error, std::vector<std::string> notes) const {
    std::string what = error.diagnostic.message;
    if (what.starts_with(cat(op_.name, ": "))) what = what.substr(op_.name.size() + 2);
    refuse(what, std::move(notes), "");
  }

  // What no result may depend on.
  void vary(const std::vector<graph::Type>& types, const std::vector<HostTensor>& inputs,
            const std::vector<HostTensor>& made, const std::vector<std::string>& notes) const {
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
        other = kernel_results(types, inputs, each.trial);
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

  static std::string shown(const graph::Type& type, const HostTensor& tensor) {
    constexpr size_t kMost = 8;
    const size_t count = tensor.bytes.size() / static_cast<size_t>(byte_size(type.dtype));
    std::string out = cat(graph::to_string(type), " [");
    for (size_t i = 0; i < std::min(count, kMost); ++i) out += cat(i ? ", " : "", element(tensor, i));
    return cat(out, count > kMost ? ", ...]" : "]");
  }

  bool near(const HostTensor& made, const HostTensor& expected, size_t i) const {
    const OperatorReference& reference = *op_.reference;
    if (!reference.ulps || !is_float(made.dtype)) {
      const double a = element(made, i), b = element(expected, i);
      const double relative = reference.ulps ? 0 : reference.relative;
      return std::abs(a - b) <=
             (reference.ulps ? 0 : reference.absolute) + relative * std::max(std::abs(a), std::abs(b));
    }
    return ulps_between(made.dtype, bits(made, i), bits(expected, i)) <=
           static_cast<uint64_t>(*reference.ulps);
  }

  void differ(size_t output, const HostTensor& made, const HostTensor& expected,
              std::vector<std::string> notes) const {
    const std::string& name = op_.outputs[output].name;
    if (made.dtype != expected.dtype || made.bytes.size() != expected.bytes.size())
      refuse(cat("output '", name, "' has another type or size than the reference's"), std::move(notes), "");
    const size_t count = made.bytes.size() / static_cast<size_t>(byte_size(made.dtype));
    for (size_t i = 0; i < count; ++i) {
      const double a = element(made, i), b = element(expected, i);
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      if (near(made, expected, i)) continue;
      refuse(cat("output '", name, "' differs from the reference: ", a, " and ", b, " at element ", i),
             std::move(notes),
             "'relative' and 'absolute', or 'ulp', of the reference say how near the results have to be");
    }
  }

  const OperatorFile& file_;
  const UserOperator& op_;
  const KernelHost& host_;
  bool all_;
  std::vector<std::string> last_;  // why the last drawn instance does not fit
};

}  // namespace

// A kernel in CUDA alone does not run here.
void check_references(const OperatorFile& file, const KernelHost& host, bool all) {
  for (const UserOperator& op : file.operators) {
    const bool kernel = op.body.kernel.has_value();
    if (!(kernel ? op.body.kernel->c && (op.reference || all) : op.reference.has_value())) continue;
    if (!op.variadic) {
      ReferenceCheck(file, op, host, all).run();
      continue;
    }
    for (const size_t count : {1, 2, 3}) {
      const UserOperator instance = op.variadic->instance(count, count);
      ReferenceCheck(file, instance, host, all).run();
    }
  }
}

}  // namespace stridec::extend
