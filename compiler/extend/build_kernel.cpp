// Builds a call of a kernel that the user gives, and what the interpreter runs in its place.
#include <algorithm>
#include <bit>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/run_reference.h"
#include "compiler/extend/user_operator.h"
#include "compiler/sym/text.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::ValueId;
using loop::RoutineBuffer;
using loop::UserArguments;
using loop::UserKernel;
using Parameter = UserKernel::Parameter;

// A value that kernels get as a size: its name in the declaration, and whether it is a double.
struct Size {
  std::string name;
  bool real;
};

// Computes a call by the reference, at its sizes.
struct ReferenceRun {
  UserOperator op;
  std::vector<Size> sizes;
  std::map<std::string, Attr, std::less<>> attributes;

  void operator()(const UserKernel& kernel, std::span<const RoutineBuffer> reads,
                  std::span<const RoutineBuffer> writes, const std::vector<int64_t>& arguments) const {
    const UserArguments places(kernel);
    std::vector<CallTensor> tensors;
    for (size_t t = 0; t < kernel.tensor_count(); ++t) {
      const UserKernel::Tensor& tensor = kernel.tensor(t);
      const RoutineBuffer& buffer = t < reads.size() ? reads[t] : writes[t - reads.size()];
      CallTensor& made = tensors.emplace_back(tensor.dtype);
      for (size_t d = 0; d < tensor.rank; ++d) {
        made.dims.push_back(arguments[places.dim(t, d)]);
        made.strides.push_back(arguments[places.stride(t, d)]);
      }
      made.data = buffer.data + arguments[places.offset(t)] * byte_size(tensor.dtype);
    }
    std::map<std::string, Attr, std::less<>> values;
    for (const DeclaredAttribute& each : op.attributes)
      values.emplace(each.name, value_of(each.name, places, arguments));
    const std::span all(tensors);
    run_reference(op, all.first(reads.size()), all.subspan(reads.size()), values);
  }

  Attr value_of(const std::string& name, const UserArguments& places,
                const std::vector<int64_t>& arguments) const {
    const auto size = std::ranges::find(sizes, name, &Size::name);
    if (size == sizes.end()) return attributes.at(name);
    const int64_t value = arguments[places.size(static_cast<size_t>(size - sizes.begin()))];
    return size->real ? Attr(std::bit_cast<double>(value)) : Attr(sym::Expr(value));
  }
};

std::string list_text(const Attr& value) {
  if (const auto* ints = std::get_if<std::vector<sym::Expr>>(&value))
    return join(*ints, ", ", [](sym::Expr e) { return e.is_const() ? cat(e.value(), "ll") : std::string(); });
  return join(std::get<std::vector<double>>(value), ", ", [](double number) {
    return cat("__builtin_bit_cast(double, ", std::bit_cast<int64_t>(number), "ll)");
  });
}

class KernelBuilder {
 public:
  KernelBuilder(Builder& builder, const UserOperator& op, const KernelBody& body, Bindings& bindings)
      : b_(builder), op_(op), body_(body), bindings_(bindings) {
    for (const auto& [name, value] : bindings.attributes) {
      if (name.starts_with("@")) continue;
      if (const auto* e = std::get_if<sym::Expr>(&value)) add_size(name, *e, false);
      if (const auto* number = std::get_if<double>(&value))
        add_size(name, std::bit_cast<int64_t>(*number), true);
    }
  }

  std::vector<ValueId> build(const std::vector<ValueId>& inputs, const std::vector<graph::Type>& results,
                             const KernelHost& host) {
    UserKernel kernel{.name = op_.name};
    for (size_t i = 0; i < inputs.size(); ++i)
      kernel.reads.push_back(tensor(op_.inputs[i].name, b_.type(inputs[i])));
    std::vector<sym::Expr> shapes;
    for (size_t i = 0; i < results.size(); ++i) {
      kernel.writes.push_back(tensor(op_.outputs[i].name, results[i]));
      shapes.insert(shapes.end(), results[i].shape.begin(), results[i].shape.end());
    }
    kernel.sizes = sizes_.size();
    kernel.parallel = body_.parallel.has_value();
    kernel.threads = body_.threads;
    for (const auto& [name, value] : bindings_.attributes)
      if (const auto* dtype = std::get_if<DType>(&value); dtype && !name.starts_with("@"))
        kernel.types.emplace_back(name, *dtype);
    kernel.callback = body_.callback;
    for (size_t i = 0; i < sizes_.size() && body_.callback; ++i)
      if (std::ranges::count(op_.attributes, sizes_[i].name, &DeclaredAttribute::name) > 0)
        kernel.attributes.push_back({.kind = sizes_[i].real ? Parameter::Kind::kReal : Parameter::Kind::kSize,
                                     .index = i,
                                     .name = sizes_[i].name,
                                     .text = {}});
    if (body_.c) kernel.c = text(*body_.c, kernel);
    if (body_.cuda) kernel.cuda = text(*body_.cuda, kernel);
    kernel.key = key(kernel);
    if (op_.reference)
      kernel.run = ReferenceRun{op_, sizes_, bindings_.attributes};
    else if (body_.c)
      kernel.run = host.run;
    if (host.check) host.check(kernel);

    std::vector<sym::Expr> sizes = values_;
    sizes.push_back(body_.parallel ? size(*body_.parallel, "the parallel domain") : 1);
    sizes.push_back(body_.scratch ? size(*body_.scratch, "the scratch memory") : 0);
    for (size_t i = 0; i < 3; ++i)
      sizes.push_back(i < body_.grid.size() ? size(body_.grid[i], "the grid") : 1);
    sizes.push_back(body_.shared ? size(*body_.shared, "the shared memory") : 0);
    sizes.push_back(body_.flops ? cost(*body_.flops, "flops") : 0);
    sizes.push_back(body_.bytes ? cost(*body_.bytes, "bytes") : bytes_of(inputs, results));
    graph::Attributes attributes{{"sizes", sizes}};
    if (!shapes.empty()) attributes.set("shapes", shapes);
    attributes.set("kernel", loop::add_user_kernel(std::move(kernel)));
    return b_.add(graph::OpKind::kUserKernel, inputs, std::move(attributes));
  }

 private:
  void add_size(const std::string& name, sym::Expr value, bool real) {
    sizes_.push_back({name, real});
    values_.push_back(value);
  }

  UserKernel::Tensor tensor(const std::string& name, const graph::Type& type) const {
    const auto strides = body_.strides.find(name);
    const auto in_place = body_.in_place.find(name);
    return {.name = name,
            .dtype = type.dtype,
            .rank = type.shape.size(),
            .strides = strides == body_.strides.end() ? UserKernel::Strides::kDense : strides->second,
            .in_place = in_place == body_.in_place.end() ? std::nullopt : std::optional(in_place->second)};
  }

  // The value of an expression of the declaration, which has to be a size. `what` begins the message.
  sym::Expr expression(const Term& term, const std::string& what) {
    const Attr value = Evaluator(b_, bindings_).attribute(term);
    const auto* e = std::get_if<sym::Expr>(&value);
    if (!e)
      fail(ErrorKind::kDoesNotFit, "does-not-fit",
           cat(op_.name, ": ", what, " ", extend::to_string(value), ", not a size"));
    return *e;
  }

  sym::Expr size(const Term& term, const std::string& what) {
    const std::string text = extend::to_string(term);
    const sym::Expr e = expression(term, cat(what, " '", text, "' is"));
    b_.require(sym::ge(e, 0), cat(sym::escaped(op_.name), ": ", what, " ", sym::escaped(text), " is {0}"),
               {e});
    return e;
  }

  // No run depends on it, so that no run fails where it is negative.
  sym::Expr cost(const Term& term, const std::string& what) {
    return b_.simplify(
        sym::max(expression(term, cat("its ", what, " '", extend::to_string(term), "' are")), 0));
  }
  sym::Expr bytes_of(const std::vector<ValueId>& inputs, const std::vector<graph::Type>& results) {
    sym::Expr all = 0;
    const auto add = [&](const graph::Type& type) {
      sym::Expr bytes = byte_size(type.dtype);
      for (const sym::Expr dim : type.shape) bytes *= dim;
      all += bytes;
    };
    for (const ValueId input : inputs) add(b_.type(input));
    for (const graph::Type& type : results) add(type);
    return b_.simplify(all);
  }

  UserKernel::Text text(const KernelBody::Text& declared, const UserKernel& kernel) const {
    UserKernel::Text made{.source = declared.source,
                          .place = declared.place,
                          .function = declared.function,
                          .returns = declared.returns,
                          .parameters = {}};
    for (const std::string& name : declared.parameters) made.parameters.push_back(parameter(name, kernel));
    return made;
  }

  Parameter parameter(const std::string& name, const UserKernel& kernel) const {
    using Kind = Parameter::Kind;
    const std::pair<std::string_view, Kind> kOfTensors[] = {
        {"", Kind::kData}, {"_dims", Kind::kDims}, {"_strides", Kind::kStrides}, {"_rank", Kind::kRank}};
    for (const auto& [suffix, kind] : kOfTensors)
      for (size_t t = 0; t < kernel.tensor_count(); ++t)
        if (cat(kernel.tensor(t).name, suffix) == name)
          return {.kind = kind, .index = t, .name = name, .text = {}};
    for (size_t i = 0; i < sizes_.size(); ++i)
      if (sizes_[i].name == name)
        return {.kind = sizes_[i].real ? Kind::kReal : Kind::kSize, .index = i, .name = name, .text = {}};
    if (name == "begin") return {.kind = Kind::kBegin, .name = name, .text = {}};
    if (name == "end") return {.kind = Kind::kEnd, .name = name, .text = {}};
    if (name == "scratch") return {.kind = Kind::kScratch, .name = name, .text = {}};
    const bool counts = name.ends_with("_count") && !bindings_.attributes.contains(name);
    const Attr& value = bindings_.attributes.at(counts ? name.substr(0, name.size() - 6) : name);
    const auto* ints = std::get_if<std::vector<sym::Expr>>(&value);
    if (ints && !std::ranges::all_of(*ints, [](sym::Expr e) { return e.is_const(); }))
      fail(ErrorKind::kDoesNotFit, "does-not-fit",
           cat(op_.name, ": attribute '", name, "' is ", extend::to_string(value),
               "; a kernel takes lists that are known when compiling"));
    const size_t count = ints ? ints->size() : std::get<std::vector<double>>(value).size();
    if (counts) return {.kind = Kind::kCount, .index = count, .name = name, .text = {}};
    return {.kind = Kind::kNumbers, .index = count, .name = name, .text = list_text(value), .real = !ints};
  }

  // Everything but sizes and numbers, which calls pass.
  std::string key(const UserKernel& kernel) const {
    std::string out = op_.hash;
    for (size_t t = 0; t < kernel.tensor_count(); ++t)
      out += cat(" ", stridec::name(kernel.tensor(t).dtype), ":", kernel.tensor(t).rank);
    for (const auto& [name, value] : bindings_.attributes)
      if (!std::holds_alternative<sym::Expr>(value) && !std::holds_alternative<double>(value) &&
          std::ranges::count(op_.attributes, name, &DeclaredAttribute::name) +
                  std::ranges::count(op_.types, name, &TypeVariable::name) >
              0)
        out += cat("\n", name, "=", extend::to_string(value));
    return out;
  }

  Builder& b_;
  const UserOperator& op_;
  const KernelBody& body_;
  Bindings& bindings_;
  std::vector<Size> sizes_;
  std::vector<sym::Expr> values_;
};

}  // namespace

std::vector<ValueId> build_kernel(Builder& builder, const UserOperator& op, const KernelBody& body,
                                  const std::vector<ValueId>& inputs, Bindings& bindings,
                                  const std::vector<graph::Type>& results, const KernelHost& host) {
  return KernelBuilder(builder, op, body, bindings).build(inputs, results, host);
}

}  // namespace stridec::extend
