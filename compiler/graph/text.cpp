#include "compiler/graph/text.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/graph/guards.h"
#include "compiler/sym/text.h"

namespace stridec::graph {

namespace {

constexpr size_t kInlineElements = 16;

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string out(buffer, end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string exprs(const std::vector<sym::Expr>& list) {
  return cat("$[", join(list, ", ", [](sym::Expr e) { return sym::to_string(e); }), "]");
}

std::string text_of_attribute(const AttributeValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return cat(*i);
  if (const auto* d = std::get_if<double>(&value)) return number(*d);
  if (const auto* s = std::get_if<std::string>(&value)) return quoted(*s);
  if (const auto* t = std::get_if<DType>(&value)) return std::string(name(*t));
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value))
    return cat("[", join(*v, ", ", [](int64_t i) { return std::to_string(i); }), "]");
  if (const auto* v = std::get_if<std::vector<double>>(&value)) return cat("#[", join(*v, ", ", number), "]");
  if (const auto* e = std::get_if<sym::Expr>(&value)) return cat("$(", sym::to_string(*e), ")");
  return exprs(std::get<std::vector<sym::Expr>>(value));
}

// ---- printing --------------------------------------------------------------------------------------------

class Printer {
 public:
  Printer(const Graph& graph, const NameContents& name_contents)
      : graph_(graph), name_contents_(name_contents) {}

  std::string print() {
    line(0, cat("graph ", quoted(graph_.name)));
    for (const Symbol& s : graph_.symbols) {
      const int64_t multiple = graph_.facts.known_divisor(s.var);
      std::string text =
          cat("symbol ", sym::to_string(s.var), " ", sym::to_string(graph_.facts.bounds(s.var)));
      if (multiple > 1) text += cat(" multiple ", multiple);
      if (s.input >= 0) text += cat(" = input ", s.input, " dim ", s.dim);
      if (s.input >= 0 && s.multiple != 1) text += cat(" by ", s.multiple);
      line(1, text);
    }
    for (const sym::Guard& g : graph_.guards)
      line(1, cat("guard $(", sym::to_string(g.condition), "): ", quoted(g.sentence), " ", exprs(g.values)));
    const size_t inputs = graph_.input_names.size();
    for (size_t i = 0; i < graph_.top.parameters.size(); ++i) {
      const ValueId value = graph_.top.parameters[i];
      std::string text = cat(i < inputs ? "input " : "state ", define(value), head(value));
      if (i >= inputs && graph_.states[i - inputs].initial)
        text += " = " + contents(graph_[value].type, *graph_.states[i - inputs].initial);
      line(1, text);
    }
    nodes(graph_.top, 1);
    for (size_t i = 0; i < graph_.top.results.size(); ++i)
      line(1, cat("output ", quoted(graph_.output_names[i]), " ", use(graph_.top.results[i])));
    return std::move(out_);
  }

 private:
  void line(int depth, const std::string& text) {
    out_.append(static_cast<size_t>(depth) * 2, ' ').append(text) += '\n';
  }
  std::string define(ValueId id) {
    numbers_[id] = static_cast<int>(numbers_.size());
    return use(id);
  }
  std::string use(ValueId id) const {
    auto it = numbers_.find(id);
    return it == numbers_.end() ? cat("%?", id.value) : cat("%", it->second);
  }
  // name, type and known elements, after the value's number
  std::string head(ValueId id) const {
    const Value& value = graph_[id];
    std::string out = value.name.empty() ? "" : " " + quoted(value.name);
    out += " : " + graph::to_string(value.type);
    if (value.elements) out += " " + exprs(*value.elements);
    return out;
  }
  std::string contents(const Type& type, const Data& data) const {
    const size_t width = static_cast<size_t>(byte_size(type.dtype)), count = data.size / width;
    bool named = count > kInlineElements;
    for (size_t i = 0; i < count && !named && name_contents_ && is_float(type.dtype); ++i)
      named = std::isnan(read_float(type.dtype, data.bytes + i * width));
    if (named) return cat(data.size, " bytes", name_contents_ ? cat(" @", name_contents_(data)) : "");
    std::string out = "[";
    for (size_t i = 0; i < count; ++i) {
      if (i) out += ", ";
      const uint8_t* at = data.bytes + i * width;
      out += is_float(type.dtype) ? number(read_float(type.dtype, at)) : cat(read_integer(type.dtype, at));
    }
    return out + "]";
  }
  void nodes(const Region& region, int depth) {
    for (NodeId id : region.nodes) {
      const Node& node = graph_[id];
      std::string text;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (i) text += ", ";
        text += define(node.outputs[i]);
        text += head(node.outputs[i]);
      }
      if (!node.outputs.empty()) text += " = ";
      text += name(node.kind);
      if (node.kind == OpKind::kConstant) {
        const Value& value = graph_[node.outputs[0]];
        text += cat(value.replaceable ? " replaceable " : " ", contents(value.type, *value.data));
      }
      for (ValueId input : node.inputs) text += " " + use(input);
      if (!node.attributes.items().empty())
        text += cat(" {",
                    join(node.attributes.items(), ", ",
                         [](const auto& item) { return item.first + "=" + text_of_attribute(item.second); }),
                    "}");
      if (!node.origin.empty()) text += " from " + quoted(node.origin);
      line(depth, text);
      for (const Region& inner : node.regions) {
        std::string header = "region";
        if (!inner.parameters.empty())
          header += cat(" (",
                        join(inner.parameters, ", ",
                             [&](ValueId p) {
                               auto number = define(p);
                               return number + head(p);
                             }),
                        ")");
        line(depth + 1, header);
        nodes(inner, depth + 2);
        line(depth + 2, "yield" + join(inner.results, "", [&](ValueId r) { return " " + use(r); }));
      }
    }
  }

  const Graph& graph_;
  const NameContents& name_contents_;
  std::unordered_map<ValueId, int> numbers_;
  std::string out_;
};

// ---- parsing ---------------------------------------------------------------------------------------------

class Parser {
 public:
  Parser(std::string_view text, const Contents& contents) : rest_(text), contents_(contents) {}

  Graph parse() {
    next_line();
    if (accept("stridec-graph 1")) next_line();  // the header of a graph that a pass reads
    expect("graph");
    graph_.name = string();
    next_line();
    header();
    region(graph_.top, 1);
    while (!done_ && accept("output")) {
      graph_.output_names.push_back(string());
      graph_.top.results.push_back(use());
      next_line();
    }
    if (!done_) error("unexpected line");
    return std::move(graph_);
  }

 private:
  [[noreturn]] void error(const std::string& what) const {
    fail(ErrorKind::kMalformed, "bad-graph",
         cat("line ", line_number_, ": ", what, ", at '", line_.substr(0, 40), "'"));
  }

  // -- lines and tokens
  void next_line() {
    if (!line_.empty()) error("text after the end");
    do {
      if (rest_.empty()) {
        done_ = true;
        return;
      }
      const size_t end = rest_.find('\n');
      line_ = rest_.substr(0, end);
      rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
      ++line_number_;
      const size_t indent = line_.find_first_not_of(' ');
      if (indent == std::string_view::npos) {
        line_ = {};
        continue;
      }
      depth_ = static_cast<int>(indent / 2);
      line_ = line_.substr(indent);
    } while (line_.empty());
  }
  void space() {
    while (!line_.empty() && line_[0] == ' ') line_.remove_prefix(1);
  }
  static bool in_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' || c == '+';
  }
  bool accept(std::string_view token) {
    space();
    if (!line_.starts_with(token)) return false;
    if (in_word(token.back()) && line_.size() > token.size() && in_word(line_[token.size()])) return false;
    line_.remove_prefix(token.size());
    space();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) error(cat("'", token, "' expected"));
  }
  std::string_view word() {
    space();
    size_t n = 0;
    while (n < line_.size() && in_word(line_[n])) ++n;
    if (n == 0) error("expected a word");
    const std::string_view out = line_.substr(0, n);
    line_.remove_prefix(n);
    space();
    return out;
  }
  int64_t integer() {
    const std::string_view text = word();
    int64_t value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || end != text.data() + text.size()) error("expected an integer");
    return value;
  }
  static bool is_integer_text(std::string_view text) {
    return !text.empty() && text.find_first_not_of("-0123456789") == std::string_view::npos;
  }
  double real(std::string_view text) {
    double value = 0;
    if (text == "nan") return std::nan("");
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || end != text.data() + text.size()) error("expected a number");
    return value;
  }
  std::string string() {
    space();
    if (!line_.starts_with('"')) error("expected a quoted string");
    std::string out;
    size_t i = 1;
    for (; i < line_.size() && line_[i] != '"'; ++i) {
      if (line_[i] == '\\' && i + 1 < line_.size())
        out += line_[++i] == 'n' ? '\n' : line_[i];
      else
        out += line_[i];
    }
    if (i >= line_.size()) error("a string is not closed");
    line_.remove_prefix(i + 1);
    space();
    return out;
  }
  // Parses an expression up to one of `ends` outside brackets and backticks.
  sym::Expr expr(std::string_view ends) {
    int open = 0;
    bool quoted = false;
    size_t n = 0;
    for (; n < line_.size(); ++n) {
      const char c = line_[n];
      if (c == '`') quoted = !quoted;
      if (quoted) continue;
      if (open == 0 && ends.find(c) != std::string_view::npos) break;
      if (c == '(') ++open;
      if (c == ')') --open;
    }
    const sym::Expr out = sym::parse(line_.substr(0, n));
    line_.remove_prefix(n);
    return out;
  }
  std::vector<sym::Expr> expr_list(std::string_view close) {
    std::vector<sym::Expr> out;
    space();
    if (accept(close)) return out;
    do out.push_back(expr(cat(",", close)));
    while (accept(","));
    expect(close);
    return out;
  }

  // -- values
  ValueId define() {
    expect("%");
    const int64_t number = integer();
    const ValueId id(static_cast<int64_t>(graph_.values.size()));
    if (!values_.emplace(number, id).second) error("a value is defined twice");
    Value value;
    space();
    if (line_.starts_with('"')) value.name = string();
    expect(":");
    value.type.dtype = dtype(word());
    expect("[");
    value.type.shape = expr_list("]");
    if (accept("$[")) value.elements = expr_list("]");
    graph_.values.push_back(std::move(value));
    return id;
  }
  ValueId use() {
    expect("%");
    auto it = values_.find(integer());
    if (it == values_.end()) error("a value is used before it is defined");
    return it->second;
  }
  DType dtype(std::string_view text) {
    const auto type = parse_dtype(text);
    if (!type) error(cat("'", text, "' is not a dtype"));
    return *type;
  }
  Data data(const Value& value) {
    const size_t width = static_cast<size_t>(byte_size(value.type.dtype));
    if (!accept("[")) {
      const int64_t size = integer();
      expect("bytes");
      if (size < 0) error("a negative size");
      std::string name;
      if (accept("@")) {
        const size_t end = std::min(line_.find(' '), line_.size());
        name = line_.substr(0, end);
        line_.remove_prefix(end);
        space();
      }
      if (contents_) return contents_(value, static_cast<size_t>(size), name);
      if (size > (int64_t{1} << 32)) error("a constant without contents is too large");
      return own(std::vector<uint8_t>(static_cast<size_t>(size)));
    }
    std::vector<uint8_t> bytes;
    if (accept("]")) return own({});
    do {
      bytes.resize(bytes.size() + width);
      uint8_t* at = bytes.data() + bytes.size() - width;
      if (is_float(value.type.dtype))
        write_float(value.type.dtype, real(word()), at);
      else
        write_integer(value.type.dtype, integer(), at);
    } while (accept(","));
    expect("]");
    return own(std::move(bytes));
  }

  // -- parts
  void header() {
    for (; !done_; next_line()) {
      if (accept("symbol")) {
        symbol();
      } else if (accept("guard")) {
        expect("$(");
        sym::Guard guard;
        guard.condition = expr(")");
        expect(")");
        expect(":");
        guard.sentence = string();
        expect("$[");
        guard.values = expr_list("]");
        if (const std::string problem = problem_of_guard(guard); !problem.empty()) error(problem);
        graph_.facts.assume(guard.condition);
        graph_.guards.push_back(std::move(guard));
      } else if (accept("input")) {
        const ValueId id = define();
        graph_.top.parameters.push_back(id);
        graph_.input_names.push_back(graph_[id].name);
      } else if (accept("state")) {
        const ValueId id = define();
        graph_.top.parameters.push_back(id);
        State state{.name = graph_[id].name, .value = id, .initial = {}};
        if (accept("=")) state.initial = data(graph_[id]);
        graph_.states.push_back(std::move(state));
      } else {
        return;
      }
    }
  }
  void symbol() {
    Symbol symbol;
    space();
    symbol.var = expr(" ");
    if (!symbol.var.is_var()) error("expected a symbol");
    const std::string_view range = word();
    if (range != "any") {
      const size_t dots = range.find("..");
      auto bound = [&](std::string_view text) {
        if (text.empty()) return std::optional<int64_t>();
        int64_t value = 0;
        const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (status != std::errc() || end != text.data() + text.size()) error("expected a range");
        return std::optional(value);
      };
      if (dots == std::string_view::npos) {
        const auto point = bound(range);
        graph_.facts.set_range(symbol.var, point, point);
      } else {
        graph_.facts.set_range(symbol.var, bound(range.substr(0, dots)), bound(range.substr(dots + 2)));
      }
    }
    if (accept("multiple")) {
      const int64_t multiple = integer();
      if (multiple < 1) error("a multiple of less than 1");
      graph_.facts.set_divisible(symbol.var, multiple);
    }
    if (accept("=")) {
      expect("input");
      symbol.input = static_cast<int>(integer());
      expect("dim");
      symbol.dim = static_cast<int>(integer());
      if (accept("by")) symbol.multiple = integer();
    }
    graph_.symbols.push_back(symbol);
  }
  void region(Region& region, int depth) {
    if (depth > 64) error("regions are nested too deeply");
    while (!done_ && depth_ == depth && !line_.starts_with("output") && !line_.starts_with("yield")) {
      const NodeId id(static_cast<int64_t>(graph_.nodes.size()));
      graph_.nodes.emplace_back();
      region.nodes.push_back(id);
      if (line_.starts_with('%')) {
        do {
          const ValueId output = define();
          graph_[output].producer = id;
          graph_[output].output = static_cast<int>(graph_[id].outputs.size());
          graph_[id].outputs.push_back(output);
        } while (accept(","));
        expect("=");
      }
      node(id);
      next_line();
      while (!done_ && depth_ == depth + 1 && accept("region")) {
        Region inner;
        if (accept("(")) {
          do inner.parameters.push_back(define());
          while (accept(","));
          expect(")");
        }
        next_line();
        this->region(inner, depth + 2);
        expect("yield");
        while (line_.starts_with('%')) inner.results.push_back(use());
        next_line();
        graph_[id].regions.push_back(std::move(inner));
      }
    }
  }
  void node(NodeId id) {
    const std::string_view op = word();
    const auto kind = parse_op(op);
    if (!kind) error(cat("'", op, "' is not an op"));
    Node& node = graph_[id];
    node.kind = *kind;
    if (*kind == OpKind::kConstant) {
      if (node.outputs.size() != 1) error("a constant has one output");
      graph_[node.outputs[0]].replaceable = accept("replaceable");
      graph_[node.outputs[0]].data = data(graph_[node.outputs[0]]);
    }
    while (line_.starts_with('%')) node.inputs.push_back(use());
    if (accept("{")) {
      do {
        std::string key(word());
        expect("=");
        node.attributes.set(std::move(key), attribute());
      } while (accept(","));
      expect("}");
    }
    if (accept("from")) node.origin = string();
  }
  AttributeValue attribute() {
    space();
    if (line_.starts_with('"')) return string();
    if (accept("$(")) {
      const sym::Expr e = expr(")");
      expect(")");
      return e;
    }
    if (accept("$[")) return expr_list("]");
    const bool reals = accept("#[");
    if (reals || accept("[")) {
      std::vector<int64_t> ints;
      std::vector<double> numbers;
      if (!accept("]")) {
        do {
          if (reals)
            numbers.push_back(real(word()));
          else
            ints.push_back(integer());
        } while (accept(","));
        expect("]");
      }
      return reals ? AttributeValue(std::move(numbers)) : AttributeValue(std::move(ints));
    }
    if (!line_.empty() && std::isalpha(static_cast<unsigned char>(line_[0])) && !line_.starts_with("inf") &&
        !line_.starts_with("nan"))
      return dtype(word());
    const std::string_view text = word();
    if (!is_integer_text(text)) return real(text);
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
      error("an integer out of range");
    return value;
  }

  std::string_view rest_, line_;
  const Contents& contents_;
  int line_number_ = 0, depth_ = 0;
  bool done_ = false;
  Graph graph_;
  std::unordered_map<int64_t, ValueId> values_;
};

}  // namespace

std::string to_string(const Graph& graph) { return to_string(graph, {}); }
std::string to_string(const Graph& graph, const NameContents& name_contents) {
  return Printer(graph, name_contents).print();
}
Graph parse(std::string_view text, const Contents& contents) { return Parser(text, contents).parse(); }

}  // namespace stridec::graph
