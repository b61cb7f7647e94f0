#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/extend/check_names.h"
#include "compiler/extend/json_place.h"
#include "compiler/extend/kernel_header.h"
#include "compiler/extend/parse_operator.h"
#include "compiler/extend/requirement.h"
#include "compiler/extend/user_operator.h"

namespace stridec::extend {
namespace {

using Json = JsonPlace::Json;
using Kind = DeclaredAttribute::Kind;

struct AttributeKind {
  std::string_view name;
  Kind kind;
};
constexpr AttributeKind kAttributeKinds[] = {{"int", Kind::kInt},     {"float", Kind::kFloat},
                                             {"text", Kind::kString}, {"type", Kind::kType},
                                             {"ints", Kind::kInts},   {"floats", Kind::kFloats}};

constexpr const char* kGrammar = "docs/operators.md has the grammar of formulas";

// Runs `parse` on a text of the file; what it throws names the place of the text.
template <class Parse>
auto parsed(const JsonPlace& at, Parse&& parse) {
  try {
    return parse(at.text(), at.place());
  } catch (Error& error) {
    error.diagnostic.code = "bad-operator";
    error.diagnostic.help = kGrammar;
    throw;
  }
}

class OperatorParser {
 public:
  explicit OperatorParser(const JsonPlace& at) : at_(at), names_([this](auto... args) { refuse(args...); }) {}

  UserOperator parse() {
    at_.allow({"domain", "name", "description", "types", "inputs", "outputs", "attributes", "require", "body",
               "reference", "gradient", "cost"});
    made_.pointer = at_.pointer();
    const std::string all = at_.value().dump(-1, ' ', false, Json::error_handler_t::replace);
    made_.hash = sha256(all.data(), all.size());
    made_.name = cat(domain(at_.at("domain")), "::", at_.at("name").identifier());
    if (const auto types = at_.find("types"))
      for (const auto& [name, each] : types->members()) type_variable(name, each);
    if (const auto attributes = at_.find("attributes"))
      for (const auto& [name, each] : attributes->members()) attribute(name, each);
    for (const JsonPlace& each : at_.at("inputs").items()) made_.inputs.push_back(tensor(each, true));
    for (const JsonPlace& each : at_.at("outputs").items()) made_.outputs.push_back(tensor(each, false));
    if (made_.outputs.empty()) at_.at("outputs").fail("an operator needs an output");
    bind_dims();
    if (const auto all = at_.find("require"))
      for (const JsonPlace& each : all->items()) requirement(each);
    at_.at("body").allow({"formula", "point", "nest", "kernel", "callback"});
    made_.body = body(at_.at("body"));
    if (const auto own = at_.find("cost")) cost(*own);
    if (const auto other = at_.find("reference")) made_.reference = reference(*other);
    if (const auto formula = at_.find("gradient")) gradient(*formula);
    return std::move(made_);
  }

 private:
  [[noreturn]] void refuse(Position at, const std::string& what, const std::string& help) const {
    rule_error(text_, place_, at, what, help);
  }

  static std::string domain(const JsonPlace& at) {
    const std::string name = at.text();
    const bool fits = !name.empty() && std::ranges::all_of(name, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
    });
    if (!fits) at.fail(cat("'", name, "' is not a name of letters, digits, '_', '-' and '.'"));
    return name;
  }

  // Types, attributes, dims and tensors have different names, since formulas use all of them.
  void declare(const JsonPlace& at, const std::string& name) {
    if (is_word(name) || !declared_.insert(name).second)
      at.fail(is_word(name) ? cat("'", name, "' has a meaning in formulas; choose another name")
                            : cat("'", name, "' is declared twice"));
  }

  void type_variable(const std::string& name, const JsonPlace& at) {
    TypeVariable made{.name = name, .dtypes = {}};
    declare(at, name);
    for (const JsonPlace& each : at.items()) {
      const std::vector<DType> known = dtypes_named(each.text());
      if (known.empty()) each.fail(cat("'", each.text(), "' is not a type"));
      made.dtypes.insert(made.dtypes.end(), known.begin(), known.end());
    }
    if (made.dtypes.empty()) at.fail("a type variable needs at least one type");
    names_.bound.insert(name);
    made_.types.push_back(std::move(made));
  }

  void attribute(const std::string& name, const JsonPlace& at) {
    at.allow({"type", "default", "description"});
    const std::string kind = at.at("type").text();
    const auto known = std::ranges::find(kAttributeKinds, kind, &AttributeKind::name);
    if (known == std::end(kAttributeKinds))
      at.at("type").fail(cat("'", kind, "' is not one of ", join(kAttributeKinds, ", ", [](const auto& each) {
                               return std::string(each.name);
                             })));
    declare(at, name);
    DeclaredAttribute made{.name = name, .kind = known->kind, .otherwise = {}};
    if (const auto value = at.find("default")) made.otherwise = default_of(known->kind, *value);
    names_.bound.insert(name);
    made_.attributes.push_back(std::move(made));
  }

  static Attr default_of(Kind kind, const JsonPlace& at) {
    switch (kind) {
      case Kind::kInt:
        if (at.value().is_boolean()) return sym::Expr(at.value().get<bool>() ? 1 : 0);
        return sym::Expr(at.integer());
      case Kind::kFloat: return at.number();
      case Kind::kString: return at.text();
      case Kind::kType: {
        const auto dtype = parse_dtype(at.text());
        if (!dtype) at.fail(cat("'", at.text(), "' is not a type"));
        return *dtype;
      }
      case Kind::kInts: {
        std::vector<sym::Expr> list;
        for (const JsonPlace& each : at.items()) list.emplace_back(each.integer());
        return list;
      }
      case Kind::kFloats: break;
    }
    std::vector<double> list;
    for (const JsonPlace& each : at.items()) list.push_back(each.number());
    return list;
  }

  DeclaredTensor tensor(const JsonPlace& at, bool input) {
    if (input)
      at.allow({"name", "type", "shape", "default", "description"});
    else
      at.allow({"name", "type", "shape", "description"});
    DeclaredTensor made{.name = at.at("name").identifier(), .type = at.at("type").text()};
    declare(at.at("name"), made.name);
    const bool variable = std::ranges::count(made_.types, made.type, &TypeVariable::name) > 0;
    if (!variable && dtypes_named(made.type).empty())
      at.at("type").fail(cat("'", made.type, "' is neither a type nor a member of 'types'"));
    if (const auto otherwise = at.find("default")) made.otherwise = otherwise->number();
    if (input) names_.tensors.insert(made.name);
    if (const auto shape = at.find("shape")) {
      made.has_shape = true;
      bool rest = false;
      for (const JsonPlace& each : shape->items()) {
        made.shape.push_back(dim(each));
        if (rest && made.shape.back().rest) each.fail("'...' occurs twice among the dims");
        rest = rest || made.shape.back().rest;
      }
    }
    return made;
  }

  static DeclaredDim dim(const JsonPlace& at) {
    DeclaredDim made;
    if (at.value().is_number()) {
      made.size = {.kind = Term::Kind::kNumber, .number = static_cast<double>(at.integer()), .integer = true};
      return made;
    }
    const std::string text = at.text();
    made.rest = text.starts_with("...");
    if (made.rest)
      made.rest_name = text.substr(3);
    else
      made.size = parsed(at, parse_expression);
    return made;
  }

  // A dim of an input that is a plain name binds the name. All other dims are terms over bound names.
  void bind_dims() {
    for (const DeclaredTensor& input : made_.inputs)
      for (const DeclaredDim& each : input.shape) {
        const std::string& name = each.rest ? each.rest_name : each.size.name;
        const bool bare = each.rest ? !name.empty() : each.size.kind == Term::Kind::kName;
        if (!bare || names_.bound.contains(name)) continue;
        if (input.otherwise)
          at_.at("inputs").fail(
              cat("only input '", input.name, "' binds '", name, "', and it may be left out"));
        declare(at_.at("inputs"), name);
        names_.bound.insert(name);
      }
    const auto check = [&](const JsonPlace& list, const std::vector<DeclaredTensor>& tensors) {
      for (size_t t = 0; t < tensors.size(); ++t)
        for (size_t d = 0; d < tensors[t].shape.size(); ++d) {
          const DeclaredDim& each = tensors[t].shape[d];
          const JsonPlace at = list.items()[t].at("shape").items()[d];
          if (each.rest && !each.rest_name.empty() && !names_.bound.contains(each.rest_name))
            at.fail(cat("'", each.rest_name, "' is not bound"));
          if (!each.rest && at.value().is_string()) condition(at, each.size);
        }
    };
    check(at_.at("inputs"), made_.inputs);
    check(at_.at("outputs"), made_.outputs);
  }

  void condition(const JsonPlace& at, const Term& term) {
    enter(at);
    parsed(at, [&](const std::string&, const std::string&) {
      names_.condition(term);
      return 0;
    });
  }
  void enter(const JsonPlace& at) {
    text_ = at.text();
    place_ = at.place();
  }

  void requirement(const JsonPlace& at) {
    at.allow({"condition", "sentence"});
    made_.require.push_back(
        {.condition = parsed(at.at("condition"), parse_expression), .sentence = at.at("sentence").text()});
    condition(at.at("condition"), made_.require.back().condition);
    if (!is_sentence(made_.require.back().sentence, made_.require.back().condition.args.size()))
      at.at("sentence")
          .fail(
              "a sentence can name the sides of the comparison by {0} and {1}, and cannot have other braces");
  }

  OperatorReference reference(const JsonPlace& at) {
    at.allow({"formula", "point", "nest", "relative", "absolute", "ulp", "assume"});
    OperatorReference made;
    if (const auto number = at.find("relative")) made.relative = made.absolute = tolerance(*number);
    if (const auto number = at.find("absolute")) made.absolute = tolerance(*number);
    if (const auto number = at.find("ulp")) {
      if (at.find("relative") || at.find("absolute"))
        number->fail("'ulp' cannot be combined with 'relative' or 'absolute'");
      made.ulps = number->integer();
      if (*made.ulps < 0) number->fail("a number of units in the last place cannot be negative");
    }
    if (const auto inputs = at.find("assume")) assume(*inputs, made.inputs);
    made.body = body(at);
    return made;
  }

  static void assume(const JsonPlace& at, Check& inputs) {
    if (!at.value().is_array()) {
      if (at.text() != "finite") at.fail("expected \"finite\", or the least and the largest number");
      inputs.finite = true;
      return;
    }
    const std::vector<JsonPlace> ends = at.items();
    if (ends.size() != 2 || !(ends[0].number() < ends[1].number()))
      at.fail("a range must have two numbers, the least one first");
    inputs.range = {ends[0].number(), ends[1].number()};
  }

  OperatorBody body(const JsonPlace& at) {
    body_ = {};
    size_t forms = 0;
    for (const char* form : {"formula", "point", "nest", "kernel", "callback"})
      forms += at.find(form).has_value();
    if (forms != 1) at.fail("a body must have exactly one of formula, point, nest, kernel and callback");
    if (const auto own = at.find("callback")) {
      callback(*own);
      return std::move(body_);
    }
    if (const auto own = at.find("kernel")) {
      kernel(*own);
      return std::move(body_);
    }
    body_.nest = at.find("nest").has_value();
    if (const auto text = at.find(body_.nest ? "nest" : "point"))
      point(*text);
    else
      formula(at.at("formula"));
    return std::move(body_);
  }

  // The text of a JSON string, or of an array of strings, one for each line.
  static std::string lines(const JsonPlace& at) {
    return join(at.lines(), "\n", [](const JsonPlace& line) { return line.text(); });
  }

  void point(const JsonPlace& at) {
    std::vector<std::string> types;
    for (const TypeVariable& each : made_.types) types.push_back(each.name);
    try {
      body_.point = parse_c_function(lines(at), at.place(), types);
    } catch (Error& error) {
      error.diagnostic.code = "bad-operator";
      throw;
    }
    check_parameters(at, *body_.point);
    if (body_.nest) check_nest(at);
  }

  // Every output of a nest has the same shape, with one dim for each index of the function.
  void check_nest(const JsonPlace& at) const {
    const DeclaredTensor& first = made_.outputs[0];
    for (const DeclaredTensor& each : made_.outputs) {
      if (!each.has_shape || std::ranges::count(each.shape, true, &DeclaredDim::rest) > 0)
        at.fail(cat("output '", each.name, "' of a nest must declare a shape without '...'"));
      if (each.shape.size() != body_.indices.size())
        at.fail(cat("output '", each.name, "' has ", each.shape.size(), " dims, but the function has ",
                    body_.indices.size(), " indices"));
      for (size_t d = 0; d < each.shape.size(); ++d)
        if (to_string(each.shape[d].size) != to_string(first.shape[d].size))
          at.fail("the outputs of a nest must have one shape");
    }
  }

  // A parameter has the name of an input, an attribute, a dim or, as a pointer, an output.
  void check_parameters(const JsonPlace& at, const CFunction& function) {
    const auto output = [&](const std::string& name) {
      return std::ranges::count(made_.outputs, name, &DeclaredTensor::name) > 0;
    };
    std::set<std::string> seen;
    for (const CParameter& each : function.parameters) {
      if (!seen.insert(each.name).second) at.fail(cat("parameter '", each.name, "' occurs twice"));
      if (!body_.nest && each.indices > 0)
        at.fail(cat("parameter '", each.name, "' is an array: arrays are for a nest, a point takes numbers"));
      const bool known = names_.tensors.contains(each.name) || names_.bound.contains(each.name);
      if (body_.nest && !each.pointer && each.indices == 0 && !known) {
        body_.indices.push_back(each.name);
        continue;
      }
      if (each.pointer ? !output(each.name)
                       : !names_.tensors.contains(each.name) && !names_.bound.contains(each.name))
        at.fail(cat("parameter '", each.name, "' is not an ",
                    each.pointer ? "output" : "input, attribute or dim", " of the operator"));
    }
    const bool returns = function.result != "void";
    if (returns && made_.outputs.size() != 1)
      at.fail("with several outputs each must be a parameter: void f(float x, float* y, float* z)");
    if (!returns)
      for (const DeclaredTensor& each : made_.outputs)
        if (!seen.contains(each.name))
          at.fail(cat("the function has no parameter for output '", each.name, "'"));
    if (returns && std::ranges::any_of(function.parameters, &CParameter::pointer))
      at.fail("a function with outputs among its parameters must return void");
  }

  // ---- kernels
  void kernel(const JsonPlace& at) {
    at.allow({"c", "cuda", "strides", "in_place", "parallel", "scratch"});
    KernelBody made;
    if (!at.find("c") && !at.find("cuda")) at.fail("a kernel needs a text in C ('c') or in CUDA ('cuda')");
    check_shapes(at, "a kernel");
    if (const auto list = at.find("strides")) strides(*list, made);
    if (const auto list = at.find("in_place")) in_place(*list, made);
    if (const auto points = at.find("parallel")) made.parallel = size_term(*points);
    if (const auto bytes = at.find("scratch")) made.scratch = size_term(*bytes);
    if (const auto text = at.find("c")) made.c = kernel_text(*text, made, false);
    if (const auto cuda = at.find("cuda")) {
      cuda->allow({"text", "grid", "threads", "shared"});
      made.cuda = kernel_text(cuda->at("text"), made, true);
      for (const JsonPlace& each : cuda->at("grid").items()) made.grid.push_back(size_term(each));
      if (made.grid.empty() || made.grid.size() > 3)
        cuda->at("grid").fail("a grid must have 1, 2 or 3 sizes");
      if (const auto threads = cuda->find("threads")) {
        if (threads->integer() < 1 || threads->integer() > 1024)
          threads->fail(cat("a block can have 1 to 1024 threads, not ", threads->integer()));
        made.threads = static_cast<int>(threads->integer());
      }
      if (const auto shared = cuda->find("shared")) made.shared = size_term(*shared);
    }
    body_.kernel = std::move(made);
  }

  void callback(const JsonPlace& at) {
    at.allow({"strides", "in_place"});
    check_shapes(at, "a callback");
    for (const DeclaredAttribute& each : made_.attributes)
      if (each.kind != Kind::kInt && each.kind != Kind::kFloat)
        at.fail(cat("attribute '", each.name, "' is not a number, but a callback takes only numbers"));
    KernelBody made{.callback = true};
    if (const auto list = at.find("strides")) strides(*list, made);
    if (const auto list = at.find("in_place")) in_place(*list, made);
    body_.kernel = std::move(made);
  }

  // Only kernels and callbacks declare a cost: that of other bodies is counted from their operations.
  void cost(const JsonPlace& at) {
    at.allow({"flops", "bytes"});
    if (!made_.body.kernel)
      at.fail(
          "'cost' is only for kernels and callbacks: the cost of other bodies follows from their operations");
    if (const auto flops = at.find("flops")) made_.body.kernel->flops = size_term(*flops);
    if (const auto bytes = at.find("bytes")) made_.body.kernel->bytes = size_term(*bytes);
  }

  // The shapes of outputs are known before a kernel or a callback is called, so every output declares one.
  void check_shapes(const JsonPlace& at, const std::string& what) const {
    for (const DeclaredTensor& output : made_.outputs)
      if (!output.has_shape || std::ranges::any_of(output.shape, [](const DeclaredDim& each) {
            return each.rest && each.rest_name.empty();
          }))
        at.fail(
            cat("output '", output.name, "' of ", what, " must declare a shape, in which '...' has a name"));
  }

  Term size_term(const JsonPlace& at) {
    if (at.value().is_number())
      return {.kind = Term::Kind::kNumber, .number = static_cast<double>(at.integer()), .integer = true};
    Term term = parsed(at, parse_expression);
    condition(at, term);
    return term;
  }

  bool is_output(std::string_view name) const {
    return std::ranges::count(made_.outputs, name, &DeclaredTensor::name) > 0;
  }
  // Whether `name`, which begins with `tensor`, is the tensor or one of its properties, such as `x_dims`.
  static bool names_tensor(std::string_view name, std::string_view tensor) {
    const std::string_view rest = name.substr(tensor.size());
    return rest.empty() || rest == "_dims" || rest == "_strides" || rest == "_rank";
  }
  bool is_tensor(std::string_view name) const {
    return std::ranges::count(made_.inputs, name, &DeclaredTensor::name) > 0 ||
           std::ranges::count(made_.outputs, name, &DeclaredTensor::name) > 0;
  }

  // Either one word for all tensors, or an object with a word for some tensors.
  void strides(const JsonPlace& at, KernelBody& made) const {
    using Strides = loop::UserKernel::Strides;
    const auto read = [](const JsonPlace& word) {
      const std::string text = word.text();
      if (text != "any" && text != "rows" && text != "dense")
        word.fail(cat("'", text, "' is not one of any, rows, dense"));
      return text == "any" ? Strides::kAny : text == "rows" ? Strides::kRows : Strides::kDense;
    };
    if (at.value().is_string()) {
      const Strides one = read(at);
      for (const auto* list : {&made_.inputs, &made_.outputs})
        for (const DeclaredTensor& each : *list) made.strides[each.name] = one;
      return;
    }
    for (const auto& [name, word] : at.members()) {
      if (!is_tensor(name)) word.fail(cat("'", name, "' is neither an input nor an output"));
      made.strides[name] = read(word);
    }
  }

  // {"output": "input"}: the output takes the input's memory, so that both are dense and of one type.
  void in_place(const JsonPlace& at, KernelBody& made) const {
    const auto shape_of = [](const DeclaredTensor& tensor) {
      return join(tensor.shape, ", ", [](const DeclaredDim& dim) {
        return dim.rest ? cat("...", dim.rest_name) : extend::to_string(dim.size);
      });
    };
    std::set<size_t> taken;
    for (const auto& [name, word] : at.members()) {
      const auto output = std::ranges::find(made_.outputs, name, &DeclaredTensor::name);
      if (output == made_.outputs.end()) word.fail(cat("'", name, "' is not an output"));
      const auto input = std::ranges::find(made_.inputs, word.text(), &DeclaredTensor::name);
      if (input == made_.inputs.end()) word.fail(cat("'", word.text(), "' is not an input"));
      if (input->otherwise || input->type != output->type || !input->has_shape ||
          shape_of(*input) != shape_of(*output))
        word.fail(cat("'", name, "' cannot take the memory of '", input->name,
                      "': both need the same type and the same declared shape, and no default"));
      const auto index = static_cast<size_t>(input - made_.inputs.begin());
      if (!taken.insert(index).second) word.fail(cat("two outputs take the memory of '", input->name, "'"));
      made.in_place[name] = index;
    }
  }

  KernelBody::Text kernel_text(const JsonPlace& at, const KernelBody& body, bool cuda) const {
    KernelBody::Text made{.source = lines(at), .place = at.place(), .function = {}, .parameters = {}};
    KernelHeader header;
    try {
      header = parse_kernel_header(made.source, made.place);
      const auto words = cat(" ", header.result, " ");
      const auto has = [&](std::string_view word) {
        return words.find(cat(" ", word, " ")) != std::string::npos;
      };
      made.function = header.function;
      made.returns = !cuda && !has("void");
      const bool fits = cuda ? has("__global__") && has("void")
                             : !has("*") && (has("void") || has("int") || has("int32_t"));
      if (!fits)
        rule_error(
            made.source, made.place, header.at,
            cuda ? cat("'", header.function, "' is not a '__global__ void'")
                 : cat("'", header.function, "' must return void, or an int that is 0 if nothing failed"));
      std::set<std::string> seen;
      for (const KernelHeader::Parameter& each : header.parameters) {
        if (const std::string problem = parameter_problem(each.name, body, cuda); !problem.empty())
          rule_error(made.source, made.place, each.at, problem);
        if (!seen.insert(each.name).second)
          rule_error(made.source, made.place, each.at, cat("parameter '", each.name, "' occurs twice"));
        made.parameters.push_back(each.name);
      }
      for (const DeclaredTensor& each : made_.outputs)
        if (!seen.contains(each.name))
          rule_error(made.source, made.place, header.at,
                     cat("'", header.function, "' has no parameter for output '", each.name, "'"));
      for (const char* name : {"begin", "end"})
        if (body.parallel && !cuda && !seen.contains(name))
          rule_error(
              made.source, made.place, header.at,
              cat("'", header.function, "' has no parameter '", name,
                  "': the kernel is 'parallel', so that a call computes the points from begin to end"));
    } catch (Error& error) {
      error.diagnostic.code = "bad-operator";
      error.diagnostic.help = "docs/operators.md says which parameters a kernel may have";
      throw;
    }
    return made;
  }

  // Why a kernel cannot have a parameter of this name; "": it can. A parameter has the name of a tensor, a
  // number or a dim of the declaration, or such a name with a suffix for a property, such as `x_strides`.
  std::string parameter_problem(const std::string& name, const KernelBody& body, bool cuda) const {
    for (const auto& [output, input] : body.in_place)
      if (name.starts_with(made_.inputs[input].name) && !is_output(name) &&
          names_tensor(name, made_.inputs[input].name))
        return cat("input '", made_.inputs[input].name, "' is updated in place: its contents are those of '",
                   output, "' before the call");
    if (is_tensor(name)) return "";
    for (const std::string_view suffix : {"_dims", "_strides", "_rank"})
      if (name.ends_with(suffix) && is_tensor(name.substr(0, name.size() - suffix.size())))
        return cuda && suffix != "_rank" && !has_rank(name.substr(0, name.size() - suffix.size()))
                   ? cat("'", name, "' of a kernel in CUDA needs a shape without '...'")
                   : "";
    const std::string counted = name.ends_with("_count") ? name.substr(0, name.size() - 6) : name;
    const auto attribute = std::ranges::find(made_.attributes, counted, &DeclaredAttribute::name);
    if (attribute != made_.attributes.end()) {
      const bool list = attribute->kind == Kind::kInts || attribute->kind == Kind::kFloats;
      if (counted != name && !list) return cat("attribute '", counted, "' is not a list");
      if (list || attribute->kind == Kind::kInt || attribute->kind == Kind::kFloat) return "";
      return cat("attribute '", name, "' is not a number: kernels cannot take texts");
    }
    if (name == "begin" || name == "end")
      return body.parallel && !cuda ? "" : cat("'", name, "' needs a 'parallel' domain of the kernel in C");
    if (name == "scratch")
      return body.scratch && !cuda ? "" : "'scratch' needs the bytes that the kernel in C asks for";
    if (std::ranges::count(made_.types, name, &TypeVariable::name) > 0) return cat("'", name, "' is a type");
    for (const DeclaredTensor& input : made_.inputs)
      for (const DeclaredDim& each : input.shape) {
        if (each.rest && each.rest_name == name)
          return cat("'", name, "' is a list of dims; take ", input.name, "_dims");
        if (!each.rest && each.size.kind == Term::Kind::kName && each.size.name == name) return "";
      }
    return cat("parameter '", name, "' is not an input, output, attribute or dim of the operator");
  }

  bool has_rank(std::string_view tensor) const {
    for (const auto* list : {&made_.inputs, &made_.outputs})
      for (const DeclaredTensor& each : *list)
        if (each.name == tensor)
          return each.has_shape && std::ranges::count(each.shape, true, &DeclaredDim::rest) == 0;
    return false;
  }

  void gradient(const JsonPlace& at) {
    names_.formula = true;
    const auto tensors = names_.tensors;
    const auto declared = declared_;
    for (const auto* list : {&made_.inputs, &made_.outputs})
      for (const DeclaredTensor& each : *list)
        if (const std::string name = gradient_name(each.name); declared_.contains(name))
          at.fail(cat("'", name, "' is the gradient of '", each.name, "'; rename the other one"));
    for (const DeclaredTensor& each : made_.outputs) {
      names_.tensors.insert(each.name);
      names_.tensors.insert(gradient_name(each.name));
    }
    body_ = {};
    definitions_of(at);
    made_.gradient = std::move(body_.formula);
    const bool any = std::ranges::any_of(made_.inputs, [&](const DeclaredTensor& each) {
      return names_.tensors.contains(gradient_name(each.name));
    });
    for (const Definition& each : made_.gradient)
      for (const std::string& name : each.names)
        if (name.starts_with(gradient_name("")) && !is_gradient_of_input(name))
          at.fail(cat("'", name, "' is the gradient of no input"));
    if (!any)
      at.fail(cat("the formulas must define a gradient, such as '",
                  gradient_name(made_.inputs.empty() ? "x" : made_.inputs[0].name), "'"));
    names_.tensors = tensors;
    declared_ = declared;
  }

  bool is_gradient_of_input(const std::string& name) const {
    return std::ranges::any_of(made_.inputs,
                               [&](const DeclaredTensor& each) { return gradient_name(each.name) == name; });
  }

  void definitions_of(const JsonPlace& at) {
    for (const JsonPlace& line : at.lines()) definitions(line);
  }

  void formula(const JsonPlace& at) {
    names_.formula = true;
    const auto declared = declared_;
    const auto tensors = names_.tensors;
    definitions_of(at);
    for (const DeclaredTensor& output : made_.outputs)
      if (!names_.tensors.contains(output.name))
        at.fail(cat("the formula does not define '", output.name, "'"), kGrammar);
    declared_ = declared;
    names_.tensors = tensors;
  }

  // A name is defined once, before its first use.
  void definitions(const JsonPlace& at) {
    for (Definition& each : parsed(at, parse_definitions)) {
      if (each.names.empty()) at.fail("a formula must define names: y = x * 2", kGrammar);
      enter(at);
      parsed(at, [&](const std::string&, const std::string&) {
        names_.tensor(each.term, false);
        return 0;
      });
      const auto output = [&](const std::string& name) {
        return std::ranges::count(made_.outputs, name, &DeclaredTensor::name) > 0;
      };
      for (const std::string& name : each.names) {
        if (!output(name)) declare(at, name);
        if (!names_.tensors.insert(name).second) at.fail(cat("'", name, "' is defined twice"), kGrammar);
      }
      body_.formula.push_back(std::move(each));
    }
  }

  JsonPlace at_;
  UserOperator made_;
  OperatorBody body_;  // being parsed
  TermNames names_;
  std::set<std::string> declared_;
  std::string text_, place_;  // that names_ checks
};

}  // namespace

double tolerance(const JsonPlace& at) {
  const double number = at.number();
  if (!(number >= 0 && std::isfinite(number))) at.fail("a tolerance must be finite, and cannot be negative");
  return number;
}

UserOperator parse_operator(const JsonPlace& declaration) { return OperatorParser(declaration).parse(); }

}  // namespace stridec::extend
