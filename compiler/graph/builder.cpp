#include "compiler/graph/builder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/graph/context_sizes.h"
#include "compiler/graph/long_sizes.h"
#include "compiler/sym/guard.h"
#include "compiler/sym/text.h"

namespace stridec::graph {

namespace {

constexpr size_t kSharedConstantBytes = 256;

void mix(size_t& seed, size_t value) { seed ^= value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2); }

size_t hash_of(const AttributeValue& value) {
  size_t seed = value.index();
  if (const auto* i = std::get_if<int64_t>(&value)) mix(seed, static_cast<size_t>(*i));
  if (const auto* d = std::get_if<double>(&value)) mix(seed, std::bit_cast<uint64_t>(*d));
  if (const auto* s = std::get_if<std::string>(&value)) mix(seed, std::hash<std::string>{}(*s));
  if (const auto* t = std::get_if<DType>(&value)) mix(seed, static_cast<size_t>(*t));
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value))
    for (int64_t i : *v) mix(seed, static_cast<size_t>(i));
  if (const auto* v = std::get_if<std::vector<double>>(&value))
    for (double d : *v) mix(seed, std::bit_cast<uint64_t>(d));
  if (const auto* e = std::get_if<sym::Expr>(&value)) mix(seed, e->hash());
  if (const auto* v = std::get_if<std::vector<sym::Expr>>(&value))
    for (sym::Expr e : *v) mix(seed, e.hash());
  return seed;
}

size_t hash_of(const Node& node) {
  size_t seed = static_cast<size_t>(node.kind);
  for (ValueId input : node.inputs) mix(seed, static_cast<size_t>(input.value));
  for (const auto& [key, value] : node.attributes.items()) {
    mix(seed, std::hash<std::string>{}(key));
    mix(seed, hash_of(value));
  }
  return seed;
}

size_t hash_of(const Type& type, const Data& data) {
  size_t seed = static_cast<size_t>(type.dtype);
  for (sym::Expr dim : type.shape) mix(seed, dim.hash());
  mix(seed, std::hash<std::string_view>{}({reinterpret_cast<const char*>(data.bytes), data.size}));
  return seed;
}

// Whether two nodes with equal inputs and attributes compute the same value.
bool is_pure(OpKind kind) {
  return kind != OpKind::kRandomUniform && kind != OpKind::kUpdateState && kind != OpKind::kSymbolOf &&
         kind != OpKind::kNonZero && kind != OpKind::kConstant;
}

std::optional<int64_t> element_count(const Shape& shape) {
  int64_t count = 1;
  bool empty = false, fits = true;
  for (sym::Expr dim : shape) {
    auto size = sym::as_const(dim);
    if (!size || *size < 0) return std::nullopt;
    empty = empty || *size == 0;
    fits = fits && (*size == 0 || count <= (int64_t{1} << 40) / *size);
    if (fits) count *= *size;
  }
  if (empty) return 0;
  return fits ? std::optional(count) : std::nullopt;
}

// Symbols with at most this many values are checked value by value: for example the axes of a tensor, counted
// from both ends.
constexpr int64_t kFewValues = 16;
// Prevents a small file from expanding to a graph that fills the memory.
constexpr size_t kMaxNodes = 2'000'000;

void check_sizes(const std::vector<Type>& types) {
  for (const Type& type : types) check_size(type);
}

}  // namespace

Builder::Builder(Graph& graph, const ShapeTable& shapes) : graph_(graph), shapes_(shapes), shared_(1) {
  for (const Symbol& symbol : graph.symbols)
    if (!is_bound_before_run(graph, symbol)) bound_in_run_.insert(symbol.var);
}

Region& Builder::current() { return open_.empty() ? graph_.top : open_.back().region; }

ValueId Builder::new_value(Type type) {
  graph_.values.emplace_back();
  graph_.values.back().type = std::move(type);
  return ValueId(static_cast<int64_t>(graph_.values.size()) - 1);
}

// ---- inputs, constants, states ---------------------------------------------------------------------------

ValueId Builder::input(std::string name, Type type) {
  STRIDEC_CHECK(open_.empty());
  check_sizes({type});
  const int ordinal = static_cast<int>(graph_.input_names.size());
  for (size_t d = 0; d < type.shape.size(); ++d) {
    // The dim is multiple * symbol with a new symbol, so this dim determines the symbol.
    const auto vars = sym::free_vars(type.shape[d]);
    if (vars.size() != 1) continue;
    const auto linear = sym::linear_in(type.shape[d], vars[0]);
    const auto multiple = linear ? sym::as_const(linear->coefficient) : std::nullopt;
    if (!multiple || *multiple < 1 || !linear->rest.is_const(0)) continue;
    const bool known = std::any_of(graph_.symbols.begin(), graph_.symbols.end(),
                                   [&](const Symbol& s) { return s.var == vars[0]; });
    if (known) continue;
    graph_.symbols.push_back(
        {.var = vars[0], .input = ordinal, .dim = static_cast<int>(d), .multiple = *multiple});
    if (!graph_.facts.bounds(vars[0]).has_lo()) graph_.facts.set_range(vars[0], 0, std::nullopt);
  }
  const ValueId id = new_value(std::move(type));
  graph_[id].name = name;
  graph_.top.parameters.insert(graph_.top.parameters.begin() + ordinal, id);
  graph_.input_names.push_back(std::move(name));
  return id;
}

ValueId Builder::state(std::string name, Type type, std::optional<Data> initial) {
  STRIDEC_CHECK(open_.empty());
  const ValueId id = new_value(std::move(type));
  graph_[id].name = name;
  graph_.top.parameters.push_back(id);
  graph_.states.push_back({.name = std::move(name), .value = id, .initial = std::move(initial)});
  return id;
}

ValueId Builder::constant(std::string name, Type type, Data data) {
  const auto count = element_count(type.shape);
  STRIDEC_CHECK(count && data.size == static_cast<size_t>(*count * byte_size(type.dtype)),
                cat("constant '", name, "' of ", to_string(type), " has ", data.size, " bytes"));
  if (data.size == 0) data = own({});
  const bool parameter = replaceable_ && !name.empty() && replaceable_(name, type);
  const bool share = data.size <= kSharedConstantBytes && !parameter;
  const size_t hash = share ? hash_of(type, data) : 0;
  if (share) {
    for (NodeId id : shared_[0][hash]) {
      const ValueId value = graph_[id].outputs[0];
      const Value& candidate = graph_[value];
      if (graph_[id].kind != OpKind::kConstant || candidate.type != type) continue;
      if (data.size && std::memcmp(candidate.data->bytes, data.bytes, data.size) != 0) continue;
      set_name(value, std::move(name));
      return value;
    }
  }
  Node node{.kind = OpKind::kConstant,
            .inputs = {},
            .outputs = {},
            .attributes = {},
            .regions = {},
            .origin = origin_};
  const ValueId value = append(std::move(node), {std::move(type)}, /*to_top=*/true)[0];
  graph_[value].name = std::move(name);
  graph_[value].data = std::move(data);
  graph_[value].replaceable = parameter;
  if (share) shared_[0][hash].push_back(graph_[value].producer);
  return value;
}

ValueId Builder::scalar(DType dtype, double value) {
  std::vector<uint8_t> bytes(static_cast<size_t>(byte_size(dtype)));
  if (is_float(dtype))
    write_float(dtype, value, bytes.data());
  else
    write_integer(dtype, static_cast<int64_t>(value), bytes.data());
  return constant("", {dtype, {}}, own(std::move(bytes)));
}

ValueId Builder::integers(const std::vector<int64_t>& values, DType dtype) {
  return elements({values.begin(), values.end()}, {static_cast<int64_t>(values.size())}, dtype);
}

ValueId Builder::elements(const std::vector<sym::Expr>& values, Shape shape, DType dtype) {
  STRIDEC_CHECK(element_count(shape) == static_cast<int64_t>(values.size()) && !is_float(dtype));
  const bool constant = std::all_of(values.begin(), values.end(), [](sym::Expr e) { return e.is_const(); });
  if (constant) {
    const size_t width = static_cast<size_t>(byte_size(dtype));
    std::vector<uint8_t> bytes(values.size() * width);
    for (size_t i = 0; i < values.size(); ++i)
      write_integer(dtype, values[i].value(), bytes.data() + i * width);
    return this->constant("", {dtype, std::move(shape)}, own(std::move(bytes)));
  }
  Node node{.kind = OpKind::kElements,
            .inputs = {},
            .outputs = {},
            .attributes = {},
            .regions = {},
            .origin = origin_};
  node.attributes.set("elements", values);
  node.attributes.set("shape", std::vector<sym::Expr>(shape));
  node.attributes.set("dtype", dtype);
  if (auto found = find_shared(node)) return graph_[*found].outputs[0];
  // Symbols that are bound during the run may belong to the open region. Sizes of the inputs are valid
  // everywhere.
  const bool to_top =
      std::none_of(values.begin(), values.end(), [&](sym::Expr e) { return is_bound_in_run(e); });
  const size_t hash = hash_of(node);
  const ValueId value = append(std::move(node), {{dtype, std::move(shape)}}, to_top)[0];
  graph_[value].elements = values;
  shared_[to_top ? 0 : shared_.size() - 1][hash].push_back(graph_[value].producer);
  return value;
}

// ---- nodes -----------------------------------------------------------------------------------------------

std::optional<NodeId> Builder::find_shared(const Node& node) const {
  const size_t hash = hash_of(node);
  for (auto scope = shared_.rbegin(); scope != shared_.rend(); ++scope) {
    auto it = scope->find(hash);
    if (it == scope->end()) continue;
    for (NodeId id : it->second) {
      const Node& other = graph_[id];
      if (other.kind == node.kind && other.inputs == node.inputs && other.attributes == node.attributes)
        return id;
    }
  }
  return std::nullopt;
}

std::vector<ValueId> Builder::append(Node node, std::vector<Type> types, bool to_top) {
  const auto name = [&](sym::Expr lower, sym::Expr upper) { return fresh_symbol("size", lower, upper); };
  for (Type& type : types)
    for (sym::Expr& dim : type.shape) dim = short_size(graph_, simplify(dim), origin_, name);
  const NodeId id(static_cast<int64_t>(graph_.nodes.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    const ValueId value = new_value(std::move(types[i]));
    graph_[value].producer = id;
    graph_[value].output = static_cast<int>(i);
    node.outputs.push_back(value);
  }
  std::vector<ValueId> outputs = node.outputs;
  graph_.nodes.push_back(std::move(node));
  (to_top ? graph_.top : current()).nodes.push_back(id);
  return outputs;
}

// Adds to the error what the model's author needs to see: the node and the types of its inputs.
void Builder::explain(Error& error, const Node& node) const {
  if (error.diagnostic.kind == ErrorKind::kInternal || !error.diagnostic.where.node.empty()) return;
  error.diagnostic.where.node = origin_;
  if (error.diagnostic.where.op.empty()) error.diagnostic.where.op = std::string(graph::name(node));
  for (ValueId input : node.inputs)
    if (input.valid())
      error.diagnostic.notes.push_back(
          cat(graph_[input].name.empty() ? "" : "input ", display(input), " ", to_string(type(input))));
}

std::string Builder::display(ValueId value) const {
  const std::string& name = graph_[value].name;
  return name.empty() ? "an intermediate value" : cat("'", name, "'");
}

std::vector<ValueId> Builder::add(OpKind kind, std::vector<ValueId> inputs, Attributes attributes) {
  Node node{.kind = kind,
            .inputs = std::move(inputs),
            .outputs = {},
            .attributes = std::move(attributes),
            .regions = {},
            .origin = origin_};
  skip_views(node);
  rotate_pieces(node);
  const bool pure = is_pure(node.kind);
  if (pure)
    if (auto found = find_shared(node)) return graph_[*found].outputs;
  const ShapeFn shape = shapes_.fns[static_cast<int>(node.kind)];
  STRIDEC_CHECK(shape, cat("no shape function for ", graph::name(node.kind)));
  Inferred inferred;
  try {
    inferred = shape(*this, node);
    check_sizes(inferred.types);
    if (graph_.nodes.size() >= kMaxNodes)
      fail(ErrorKind::kUnsupported, "model-too-large",
           cat("the model becomes a graph of more than ", kMaxNodes, " operations"));
  } catch (Error& error) {
    explain(error, node);
    throw;
  }
  if (auto same = same_as(node, inferred)) return {*same};
  const bool folds = inferred.types.size() == 1 && !inferred.elements.empty() && inferred.elements[0] &&
                     pure && !is_float(inferred.types[0].dtype) && element_count(inferred.types[0].shape);
  if (folds) {
    for (sym::Expr& e : *inferred.elements[0]) e = simplify(e);
    return {elements(*inferred.elements[0], inferred.types[0].shape, inferred.types[0].dtype)};
  }
  const size_t hash = pure ? hash_of(node) : 0;
  std::vector<ValueId> outputs = append(std::move(node), std::move(inferred.types), false);
  for (size_t i = 0; i < inferred.elements.size(); ++i)
    if (element_count(graph_[outputs[i]].type.shape))  // an empty tensor may have other dims that are unknown
      graph_[outputs[i]].elements = std::move(inferred.elements[i]);
  const NodeId id(static_cast<int64_t>(graph_.nodes.size()) - 1);
  if (pure) shared_.back()[hash].push_back(id);
  return outputs;
}

ValueId Builder::add1(OpKind kind, std::vector<ValueId> inputs, Attributes attributes) {
  std::vector<ValueId> outputs = add(kind, std::move(inputs), std::move(attributes));
  STRIDEC_CHECK(outputs.size() == 1);
  return outputs[0];
}

// ---- regions ---------------------------------------------------------------------------------------------

void Builder::begin_region(const std::vector<Type>& parameters, sym::Expr assumption) {
  Open open{.region = {}, .assumed = assumed_.size(), .given = {}};
  for (const Type& type : parameters) open.region.parameters.push_back(new_value(type));
  open_.push_back(std::move(open));
  shared_.emplace_back();
  if (!assumption.is_const(1)) assumed_.push_back(assumption);
}

std::vector<ValueId> Builder::parameters() const {
  STRIDEC_CHECK(!open_.empty());
  return open_.back().region.parameters;
}

Region Builder::end_region(std::vector<ValueId> results) {
  STRIDEC_CHECK(!open_.empty());
  Open open = std::move(open_.back());
  open_.pop_back();
  shared_.pop_back();
  assumed_.resize(open.assumed);
  for (ValueId value : open.given) graph_[value].elements.reset();
  open.region.results = std::move(results);
  return std::move(open.region);
}

std::vector<ValueId> Builder::add_with_regions(OpKind kind, std::vector<ValueId> inputs,
                                               Attributes attributes, std::vector<Region> regions) {
  Node node{.kind = kind,
            .inputs = std::move(inputs),
            .outputs = {},
            .attributes = std::move(attributes),
            .regions = std::move(regions),
            .origin = origin_};
  Inferred inferred;
  try {
    inferred = shapes_.fns[static_cast<int>(node.kind)](*this, node);
    check_sizes(inferred.types);
  } catch (Error& error) {
    explain(error, node);
    throw;
  }
  return append(std::move(node), std::move(inferred.types), false);
}

void Builder::output(std::string name, ValueId value) {
  STRIDEC_CHECK(open_.empty());
  graph_.top.results.push_back(value);
  graph_.output_names.push_back(std::move(name));
}

// ---- facts -----------------------------------------------------------------------------------------------

std::optional<std::vector<sym::Expr>> Builder::known(ValueId id) const {
  const Value& value = graph_[id];
  if (value.elements) return value.elements;
  if (!is_float(value.type.dtype) && element_count(value.type.shape) == 0)
    return std::optional<std::vector<sym::Expr>>(std::in_place);
  const Data* const data = value.known_data();
  if (!data || is_float(value.type.dtype)) return std::nullopt;
  const size_t width = static_cast<size_t>(byte_size(value.type.dtype));
  const size_t count = data->size / width;
  if (count > static_cast<size_t>(kMaxElements)) return std::nullopt;
  std::vector<sym::Expr> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) out.push_back(read_integer(value.type.dtype, data->bytes + i * width));
  return out;
}

std::vector<sym::Expr> Builder::elements_of(ValueId id, const std::string& hint, sym::Expr lower,
                                            sym::Expr upper) {
  if (auto elements = known(id)) return *elements;
  const Type type = this->type(id);
  const auto count = element_count(type.shape);
  if (is_float(type.dtype) || !count || *count > kMaxElements)
    fail(ErrorKind::kUnsupported, "sizes-from-data",
         cat(hint, " is given by ", display(id), " of ", to_string(type),
             ", whose number of elements is not known"));
  ValueId flat = id;
  if (type.shape.size() != 1) flat = add1(OpKind::kReshape, {id}, {{"shape", Shape{*count}}});
  std::vector<sym::Expr> symbols;
  for (int64_t i = 0; i < *count; ++i) {
    ValueId one =
        add1(OpKind::kSlice, {flat}, {{"starts", Shape{i}}, {"extents", Shape{1}}, {"steps", Shape{1}}});
    one = add1(OpKind::kReshape, {one}, {{"shape", Shape{}}});
    symbols.push_back(symbol_of(one, hint, lower, upper));
  }
  graph_[id].elements = symbols;
  if (!open_.empty()) open_.back().given.push_back(id);
  return symbols;
}

sym::Expr Builder::symbol_of(ValueId scalar, const std::string& hint, sym::Expr lower, sym::Expr upper) {
  const sym::Expr symbol = fresh_symbol(hint, lower, upper);
  const auto limit = [](sym::Expr e, const char* place) { return e.is_const() ? sym::to_string(e) : place; };
  add(OpKind::kSymbolOf, {scalar},
      {{"symbol", symbol},
       {"lower", lower},
       {"upper", upper},
       {"sentence", cat(hint, " is {0}, outside ", limit(lower, "{1}"), "..", limit(upper, "{2}"))}});
  return symbol;
}

sym::Expr Builder::fresh_symbol(const std::string& hint, sym::Expr lower, sym::Expr upper) {
  std::string name = hint;
  auto taken = [&] {
    return std::any_of(graph_.symbols.begin(), graph_.symbols.end(),
                       [&](const Symbol& s) { return s.var.name() == name; });
  };
  while (taken()) name = cat(hint, ".", next_symbol_++);
  const sym::Expr symbol = sym::var(name);
  graph_.symbols.push_back({.var = symbol});
  bound_in_run_.insert(symbol);
  graph_.facts.set_range(
      symbol,
      graph_.facts.bounds(lower).has_lo() ? std::optional(graph_.facts.bounds(lower).lo) : std::nullopt,
      graph_.facts.bounds(upper).has_hi() ? std::optional(graph_.facts.bounds(upper).hi) : std::nullopt);
  if (!lower.is_const()) graph_.facts.assume(sym::le(lower, symbol));
  if (!upper.is_const()) graph_.facts.assume(sym::le(symbol, upper));
  return symbol;
}

bool Builder::is_bound_in_run(sym::Expr e) const {
  for (sym::Expr v : sym::free_vars(e))
    if (bound_in_run_.contains(v)) return true;
  return false;
}

sym::Facts Builder::known_facts() const {
  sym::Facts facts = graph_.facts;
  for (sym::Expr condition : assumed_) facts.assume(condition);
  return facts;
}

// Arithmetic on sizes (clamped slices, broadcasts) has special cases at sizes 0 and 1. A condition that is
// neither proven nor refuted is therefore checked twice per symbol: at its minimum, and above it. A symbol
// that is bound during the run to one of a few values (an axis, a flag) is checked at each value.
sym::Answer Builder::prove(sym::Expr condition) const {
  const sym::Facts facts = known_facts();
  const sym::Answer answer = facts.prove(condition);
  if (answer != sym::Answer::kUnknown) return answer;
  for (sym::Expr v : sym::free_vars(condition)) {
    const sym::Interval bounds = facts.bounds(v);
    if (!bounds.has_lo() || bounds.is_point()) continue;
    if (bound_in_run_.contains(v) && bounds.has_hi() && bounds.hi - bounds.lo < kFewValues) {
      bool always = true;
      for (int64_t value = bounds.lo; value <= bounds.hi && always; ++value)
        always = facts.holds(sym::substitute(condition, v, value));
      if (always) return sym::Answer::kYes;
      continue;
    }
    if (bounds.lo < 0) continue;  // not a size
    if (facts.holds(sym::substitute(condition, v, bounds.lo)) &&
        facts.with_range(v, bounds.lo + 1, std::nullopt).holds(condition))
      return sym::Answer::kYes;
  }
  return sym::Answer::kUnknown;
}

// Likewise: uses a shorter form that is valid above a symbol's minimum if it is also valid at the minimum.
sym::Expr Builder::simplify(sym::Expr e) const {
  if (e.is_const() || e.is_var()) return e;
  e = sym::simplify(e, graph_.facts);
  for (sym::Expr v : sym::free_vars(e)) {
    const sym::Interval bounds = graph_.facts.bounds(v);
    if (!bounds.has_lo() || bounds.lo < 0 || bounds.is_point()) continue;
    const sym::Expr above = sym::simplify(e, graph_.facts.with_range(v, bounds.lo + 1, std::nullopt));
    if (above.size() < e.size() && sym::simplify(sym::substitute(above, v, bounds.lo), graph_.facts) ==
                                       sym::simplify(sym::substitute(e, v, bounds.lo), graph_.facts))
      e = above;
  }
  return e;
}

void Builder::require(sym::Expr condition, std::string sentence, std::vector<sym::Expr> values) {
  // A region that never runs has no requirements.
  if (std::any_of(assumed_.begin(), assumed_.end(), [](sym::Expr e) { return e.is_const(0); })) return;
  const sym::Answer answer = prove(condition);
  if (answer == sym::Answer::kYes) return;
  sym::Guard guard{
      .condition = simplify(condition), .sentence = std::move(sentence), .values = std::move(values)};
  if (answer == sym::Answer::kNo) fail(ErrorKind::kDoesNotFit, "does-not-fit", sym::render(guard));
  if (open_.empty() && !is_bound_in_run(guard.condition)) {
    graph_.facts.assume(guard.condition);
    if (!origin_.empty()) guard.sentence = cat(sym::escaped(origin_), ": ", guard.sentence);
    graph_.guards.push_back(std::move(guard));
    return;
  }
  // Checked when the run reaches it: a scalar that must be 1. What it implies holds for later nodes but not
  // for earlier ones, so it is not a fact of the graph.
  assumed_.push_back(guard.condition);
  const ValueId holds = elements({guard.condition}, {}, DType::kBool);
  Node node{.kind = OpKind::kSymbolOf,
            .inputs = {holds},
            .outputs = {},
            .attributes = {},
            .regions = {},
            .origin = origin_};
  const sym::Expr symbol = fresh_symbol("check", 1, 1);
  node.attributes = {{"symbol", symbol},
                     {"lower", sym::Expr(1)},
                     {"upper", sym::Expr(1)},
                     {"sentence", cat(origin_.empty() ? "" : sym::escaped(origin_) + ": ", guard.sentence)},
                     {"check", int64_t{1}}};
  if (!guard.values.empty()) node.attributes.set("values", Shape(guard.values.begin(), guard.values.end()));
  append(std::move(node), {}, false);
}

void Builder::set_name(ValueId value, std::string name) {
  if (graph_[value].name.empty()) graph_[value].name = std::move(name);
}

}  // namespace stridec::graph
