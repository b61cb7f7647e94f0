#include "compiler/graph/serialize.h"

#include <cstring>
#include <limits>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/graph/guards.h"
#include "compiler/graph/verify.h"
#include "compiler/sym/text.h"
#include "schemas/graph.pb.h"

namespace stridec::graph {

namespace {

constexpr uint8_t kMagic[8] = {'S', 'D', 'G', 'R', 'A', 'P', 'H', 1};
constexpr size_t kAlign = 64, kHeader = 16;

[[noreturn]] void malformed(const std::string& what) {
  fail(ErrorKind::kMalformed, "bad-graph", cat("not a serialized graph: ", what));
}

size_t aligned(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

// ---- writing ---------------------------------------------------------------------------------------------

struct Writer {
  const Graph& graph;
  schema::Graph out;
  std::vector<Data> contents;
  size_t offset = 0;

  void data(const Data& from, schema::Data* to) {
    to->set_offset(offset);
    to->set_size(from.size);
    offset += aligned(from.size);
    contents.push_back(from);
  }
  template <class Strings>
  static void exprs(const std::vector<sym::Expr>& from, Strings* to) {
    for (sym::Expr e : from) to->Add(sym::to_string(e));
  }
  template <class Ids, class Id>
  static void ids(const std::vector<Id>& from, Ids* to) {
    for (Id id : from) to->Add(static_cast<uint32_t>(id.value));
  }
  void region(const Region& from, schema::Region* to) {
    ids(from.parameters, to->mutable_parameters());
    ids(from.nodes, to->mutable_nodes());
    ids(from.results, to->mutable_results());
  }
  static void attribute(const std::string& name, const AttributeValue& from, schema::Attribute* to) {
    to->set_name(name);
    if (const auto* i = std::get_if<int64_t>(&from)) to->set_integer(*i);
    if (const auto* d = std::get_if<double>(&from)) to->set_number(*d);
    if (const auto* s = std::get_if<std::string>(&from)) to->set_text(*s);
    if (const auto* t = std::get_if<DType>(&from)) to->set_dtype(std::string(stridec::name(*t)));
    if (const auto* v = std::get_if<std::vector<int64_t>>(&from))
      to->mutable_integers()->mutable_items()->Assign(v->begin(), v->end());
    if (const auto* v = std::get_if<std::vector<double>>(&from))
      to->mutable_numbers()->mutable_items()->Assign(v->begin(), v->end());
    if (const auto* e = std::get_if<sym::Expr>(&from)) to->set_expression(sym::to_string(*e));
    if (const auto* v = std::get_if<std::vector<sym::Expr>>(&from))
      exprs(*v, to->mutable_expressions()->mutable_items());
    // An empty list still records its element type.
    if (std::holds_alternative<std::vector<int64_t>>(from)) to->mutable_integers();
  }

  void write() {
    out.set_name(graph.name);
    for (const Symbol& s : graph.symbols) {
      schema::Symbol* to = out.add_symbols();
      const sym::Interval bounds = graph.facts.bounds(s.var);
      to->set_name(s.var.name());
      if (bounds.has_lo()) to->set_lower(bounds.lo);
      if (bounds.has_hi()) to->set_upper(bounds.hi);
      to->set_divisor(graph.facts.known_divisor(s.var));
      to->set_from_input(s.input >= 0);
      to->set_input(s.input);
      to->set_dim(s.dim);
      to->set_multiple(s.multiple);
    }
    for (const sym::Guard& g : graph.guards) {
      schema::Guard* to = out.add_guards();
      to->set_condition(sym::to_string(g.condition));
      to->set_sentence(g.sentence);
      exprs(g.values, to->mutable_values());
    }
    for (const Value& v : graph.values) {
      schema::Value* to = out.add_values();
      to->set_name(v.name);
      to->set_dtype(std::string(stridec::name(v.type.dtype)));
      exprs(v.type.shape, to->mutable_shape());
      if (v.data) data(*v.data, to->mutable_data());
      to->set_replaceable(v.replaceable);
      to->set_has_elements(v.elements.has_value());
      if (v.elements) exprs(*v.elements, to->mutable_elements());
    }
    for (const Node& n : graph.nodes) {
      schema::Node* to = out.add_nodes();
      to->set_op(std::string(name(n.kind)));
      ids(n.inputs, to->mutable_inputs());
      ids(n.outputs, to->mutable_outputs());
      for (const auto& [key, value] : n.attributes.items()) attribute(key, value, to->add_attributes());
      for (const Region& r : n.regions) region(r, to->add_regions());
      to->set_origin(n.origin);
    }
    region(graph.top, out.mutable_top());
    for (const std::string& name : graph.input_names) out.add_input_names(name);
    for (const std::string& name : graph.output_names) out.add_output_names(name);
    for (const State& s : graph.states) {
      schema::State* to = out.add_states();
      to->set_name(s.name);
      to->set_value(static_cast<uint32_t>(s.value.value));
      if (s.initial) data(*s.initial, to->mutable_initial());
    }
  }
};

// ---- reading ---------------------------------------------------------------------------------------------

struct Reader {
  const schema::Graph& in;
  const Data& file;
  size_t contents;  // offset of the contents in the file
  Graph graph;

  sym::Expr expr(const std::string& text) const { return sym::parse(text); }
  template <class Strings>
  std::vector<sym::Expr> exprs(const Strings& from) const {
    std::vector<sym::Expr> out;
    for (const std::string& text : from) out.push_back(expr(text));
    return out;
  }
  DType dtype(const std::string& text) const {
    const auto type = parse_dtype(text);
    if (!type) malformed(cat("'", text.substr(0, 40), "' is not a dtype"));
    return *type;
  }
  Data data(const schema::Data& from) const {
    const uint64_t room = file.size - contents;
    if (from.offset() > room || from.size() > room - from.offset() || from.offset() % kAlign != 0)
      malformed("a constant is outside the file");
    return {.owner = file.owner,
            .bytes = file.bytes + contents + from.offset(),
            .size = static_cast<size_t>(from.size())};
  }
  template <class Id, class Ids>
  static std::vector<Id> ids(const Ids& from, size_t limit) {
    std::vector<Id> out;
    for (uint32_t id : from) {
      if (id >= limit) malformed(cat("id ", id, " is out of range"));
      out.push_back(Id(static_cast<int64_t>(id)));
    }
    return out;
  }
  Region region(const schema::Region& from) const {
    return {.parameters = ids<ValueId>(from.parameters(), graph.values.size()),
            .nodes = ids<NodeId>(from.nodes(), static_cast<size_t>(in.nodes_size())),
            .results = ids<ValueId>(from.results(), graph.values.size())};
  }
  AttributeValue attribute(const schema::Attribute& from) const {
    switch (from.value_case()) {
      case schema::Attribute::kInteger: return static_cast<int64_t>(from.integer());
      case schema::Attribute::kNumber: return from.number();
      case schema::Attribute::kText: return from.text();
      case schema::Attribute::kDtype: return dtype(from.dtype());
      case schema::Attribute::kIntegers:
        return std::vector<int64_t>(from.integers().items().begin(), from.integers().items().end());
      case schema::Attribute::kNumbers:
        return std::vector<double>(from.numbers().items().begin(), from.numbers().items().end());
      case schema::Attribute::kExpression: return expr(from.expression());
      case schema::Attribute::kExpressions: return exprs(from.expressions().items());
      case schema::Attribute::VALUE_NOT_SET: break;
    }
    malformed(cat("attribute '", from.name().substr(0, 40), "' has no value"));
  }

  void read() {
    graph.name = in.name();
    for (const schema::Symbol& s : in.symbols()) {
      if (s.name().empty() || s.name()[0] == '%') malformed("a symbol without a name");
      if (s.has_lower() && s.has_upper() && s.lower() > s.upper())
        malformed(cat("symbol ", s.name().substr(0, 40), " lies between ", s.lower(), " and ", s.upper()));
      const sym::Expr var = sym::var(s.name());
      graph.symbols.push_back({.var = var,
                               .input = s.from_input() ? s.input() : -1,
                               .dim = s.from_input() ? s.dim() : -1,
                               .multiple = s.multiple()});
      graph.facts.set_range(var, s.has_lower() ? std::optional<int64_t>(s.lower()) : std::nullopt,
                            s.has_upper() ? std::optional<int64_t>(s.upper()) : std::nullopt);
      if (s.divisor() > 1) graph.facts.set_divisible(var, s.divisor());
    }
    for (const schema::Guard& g : in.guards()) {
      graph.guards.push_back(
          {.condition = expr(g.condition()), .sentence = g.sentence(), .values = exprs(g.values())});
      if (const std::string problem = problem_of_guard(graph.guards.back()); !problem.empty())
        malformed(problem);
      graph.facts.assume(graph.guards.back().condition);
    }
    for (const schema::Value& v : in.values()) {
      Value& value = graph.values.emplace_back();
      value.name = v.name();
      value.type = {dtype(v.dtype()), exprs(v.shape())};
      if (v.has_data()) value.data = data(v.data());
      value.replaceable = v.replaceable() && value.data;
      if (v.has_elements()) value.elements = exprs(v.elements());
    }
    for (const schema::Node& n : in.nodes()) {
      const auto kind = parse_op(n.op());
      if (!kind) malformed(cat("'", n.op().substr(0, 40), "' is not an op of this build"));
      const NodeId id(static_cast<int64_t>(graph.nodes.size()));
      Node& node = graph.nodes.emplace_back();
      node.kind = *kind;
      node.inputs = ids<ValueId>(n.inputs(), graph.values.size());
      node.outputs = ids<ValueId>(n.outputs(), graph.values.size());
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        graph[node.outputs[i]].producer = id;
        graph[node.outputs[i]].output = static_cast<int>(i);
      }
      for (const schema::Attribute& a : n.attributes()) node.attributes.set(a.name(), attribute(a));
      for (const schema::Region& r : n.regions()) node.regions.push_back(region(r));
      node.origin = n.origin();
    }
    graph.top = region(in.top());
    graph.input_names.assign(in.input_names().begin(), in.input_names().end());
    graph.output_names.assign(in.output_names().begin(), in.output_names().end());
    for (const schema::State& s : in.states()) {
      if (s.value() >= graph.values.size()) malformed("a state's value is out of range");
      graph.states.push_back(
          {.name = s.name(), .value = ValueId(static_cast<int64_t>(s.value())), .initial = {}});
      if (s.has_initial()) graph.states.back().initial = data(s.initial());
    }
  }
};

uint64_t read_u64(const uint8_t* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, 8);
  return value;
}

}  // namespace

void serialize(const Graph& graph, const Sink& sink) {
  Writer writer{.graph = graph, .out = {}, .contents = {}};
  writer.write();
  std::string message;
  STRIDEC_CHECK(writer.out.SerializeToString(&message), "the graph is too large for one message");
  const uint64_t size = message.size();
  uint8_t header[kHeader];
  std::memcpy(header, kMagic, 8);
  std::memcpy(header + 8, &size, 8);
  const uint8_t zeros[kAlign] = {};
  sink(header, kHeader);
  sink(reinterpret_cast<const uint8_t*>(message.data()), message.size());
  sink(zeros, aligned(kHeader + message.size()) - kHeader - message.size());
  for (const Data& data : writer.contents) {
    sink(data.bytes, data.size);
    sink(zeros, aligned(data.size) - data.size);
  }
}

bool is_serialized(const uint8_t* bytes, size_t size) {
  return size >= 8 && std::memcmp(bytes, kMagic, 7) == 0;
}

Graph deserialize(const Data& file, const ShapeTable& shapes) {
  if (!is_serialized(file.bytes, file.size)) malformed("it does not begin with SDGRAPH");
  if (file.bytes[7] != kMagic[7])
    malformed(cat("version ", int{file.bytes[7]}, ", this build reads ", int{kMagic[7]}));
  if (file.size < kHeader) malformed("it is truncated");
  const uint64_t size = read_u64(file.bytes + 8);
  if (size > file.size - kHeader || size > static_cast<uint64_t>(std::numeric_limits<int>::max()))
    malformed("it is truncated");
  schema::Graph message;
  if (!message.ParseFromArray(file.bytes + kHeader, static_cast<int>(size)))
    malformed("the message is damaged");
  Reader reader{
      .in = message, .file = file, .contents = std::min(aligned(kHeader + size), file.size), .graph = {}};
  try {
    reader.read();
    const std::vector<std::string> found = problems(reader.graph, shapes);
    if (!found.empty()) malformed(join(found, "; "));
  } catch (Error& error) {
    // Here a broken invariant of a shape function is an error of the file.
    if (error.diagnostic.kind == ErrorKind::kInternal) malformed(error.diagnostic.message);
    throw;
  }
  return std::move(reader.graph);
}

}  // namespace stridec::graph
