#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "compiler/base/hash.h"
#include "compiler/base/text.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/quote.h"
#include "compiler/loop/text.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::loop {
namespace {

using sym::Expr;

std::string expr(Expr e) { return sym::to_string(e); }
std::string exprs(const std::vector<Expr>& list) { return "[" + join(list, ", ", expr) + "]"; }

class Printer {
 public:
  explicit Printer(const Program& program, bool with_origins = false)
      : program_(program), with_origins_(with_origins) {
    label_namesakes();
  }

  std::string program() {
    line(cat("program ", quoted_name(program_.name)));
    ++depth_;
    for (const Symbol& s : program_.symbols) symbol(s);
    for (Expr e : program_.facts.relations()) line("assume " + expr(e));
    for (const sym::Guard& g : program_.guards) {
      std::string values = g.values.empty() ? "" : " " + exprs(g.values);
      line(cat("guard ", expr(g.condition), " ", quoted(g.sentence), values));
    }
    for (const Buffer& b : program_.buffers) buffer(b);
    ids("inputs", program_.inputs);
    ids("outputs", program_.outputs);
    ids("states", program_.states);
    ids("parameters", program_.parameters);
    if (!program_.arena_bytes.is_const(0)) line("arena_bytes " + expr(program_.arena_bytes));
    if (program_.weight_bytes) line(cat("weight_bytes ", program_.weight_bytes));
    if (program_.replaceable_begin) line(cat("replaceable_begin ", program_.replaceable_begin));
    printed_.assign(program_.nests.size(), false);
    if (!program_.prepack.empty()) {
      line("prepack");
      ++depth_;
      for (NestId id : program_.prepack) launch(id);
      --depth_;
    }
    line("steps");
    steps(program_.steps);
    for (size_t i = 0; i < program_.nests.size(); ++i)
      if (!printed_[i]) {
        if (i == 0 || printed_[i - 1]) line("unused");
        ++depth_;
        launch(NestId(static_cast<int64_t>(i)));
        --depth_;
        printed_[i] = false;  // it is the next in the list
      }
    return std::move(out_);
  }

  std::string nest(const Nest& n, const std::string& prefix) {
    line(cat(prefix, quoted_name(n.name), " (", dims(n.dims), ")"));
    ++depth_;
    if (!n.nodes.empty())
      line("nodes " + join(n.nodes, ", ", [](const std::string& s) { return quoted(s); }));
    if (!(n.schedule == Schedule{})) line("schedule " + to_string(n.schedule));
    nest_ = &n;
    origins_ = with_origins_ && n.nodes.size() > 1 ? origins_of(n) : std::vector<Origin>();
    block(n.body);
    --depth_;
    return std::move(out_);
  }

 private:
  void line(const std::string& text) {
    out_.append(static_cast<size_t>(2 * depth_), ' ');
    out_ += text;
    out_ += '\n';
  }

  void symbol(const Symbol& s) {
    std::string text = "symbol " + expr(s.var);
    if (s.input >= 0) text += cat(" = input ", s.input, " dim ", s.dim);
    if (s.multiple != 1) text += cat(" times ", s.multiple);
    text += " in " + to_string(program_.facts.bounds(s.var));
    if (int64_t n = program_.facts.known_divisor(s.var); n > 1) text += cat(" divisible ", n);
    line(text);
  }

  void buffer(const Buffer& b) {
    static constexpr std::string_view kStorage[] = {"input", "output", "weight", "state", "arena", "local"};
    const std::string& label = label_of(BufferId(&b - program_.buffers.data()));
    std::string text = cat(kStorage[static_cast<int>(b.storage)], " ", quoted_name(label), " ",
                           stridec::name(b.dtype), " ", exprs(b.shape));
    if (label != b.name) text += " called " + quoted(b.name);
    if (b.strides != row_major(b.shape)) text += " strides " + exprs(b.strides);
    if (b.ordinal >= 0) text += cat(" ordinal ", b.ordinal);
    if (b.prepacked) text += " prepacked";
    if (b.replaceable) text += " replaceable";
    if (!b.offset.is_const(0)) text += " at " + expr(b.offset);
    if (b.weight.bytes) {
      char hash[17];
      std::snprintf(hash, sizeof(hash), "%016llx",
                    static_cast<unsigned long long>(hash_bytes(b.weight.bytes, b.weight.size)));
      text += cat(" bytes ", b.weight.size, " hash ", hash);
    }
    line(text);
  }

  void ids(const char* what, const std::vector<BufferId>& list) {
    if (!list.empty()) line(cat(what, " ", buffers(list)));
  }
  // The buffer's name, or an unused one if an earlier input, output or state has that name.
  const std::string& label_of(BufferId id) const {
    const auto found = labels_.find(id);
    return found == labels_.end() ? program_[id].name : found->second;
  }
  void label_namesakes() {
    std::vector<BufferId> again;
    std::set<std::string_view> used;
    for (const auto* list : {&program_.inputs, &program_.outputs, &program_.states, &program_.parameters})
      for (BufferId id : *list)
        if (!used.insert(program_[id].name).second) again.push_back(id);
    if (again.empty()) return;
    std::set<std::string> taken;
    for (const Buffer& b : program_.buffers) taken.insert(b.name);
    for (BufferId id : again) {
      size_t n = 1;
      while (taken.contains(cat(program_[id].name, "_", n))) ++n;
      labels_.emplace(id, *taken.insert(cat(program_[id].name, "_", n)).first);
    }
  }
  std::string buffer_name(BufferId id) const { return quoted_name(label_of(id)); }
  std::string buffers(const std::vector<BufferId>& list) const {
    return "(" + join(list, ", ", [&](BufferId id) { return buffer_name(id); }) + ")";
  }

  // ---- steps

  void launch(NestId id, const char* how = "") {
    if (printed_[id.value]) return line(cat(how, "launch ", id.value));
    printed_[id.value] = true;
    std::string text = std::move(out_);
    out_.clear();
    text += nest(program_[id], cat(how, "nest ", id.value, " "));
    out_ = std::move(text);
  }

  void steps(const Steps& list) {
    ++depth_;
    for (const Step& step : list) std::visit([&](const auto& s) { this->step(s); }, step.node);
    --depth_;
  }
  void step(const Launch& s) { launch(s.nest, s.concurrent ? "concurrent " : ""); }
  void step(const BindSymbol& s) {
    line(cat("bind ", expr(s.symbol), " = ", buffer_name(s.buffer), " in [", expr(s.lower), ", ",
             expr(s.upper), "] ", quoted(s.sentence),
             s.values.empty() ? "" : cat(" [", join(s.values, ", ", [&](Expr e) { return expr(e); }), "]")));
  }
  void step(const If& s) {
    line("if " + expr(s.condition));
    steps(s.then_steps);
    if (s.else_steps.empty()) return;
    line("else");
    steps(s.else_steps);
  }
  void step(const While& s) {
    std::string text = cat("while ", expr(s.counter), " < ", expr(s.trip_count));
    if (s.condition.valid()) text += " on " + buffer_name(s.condition);
    if (s.iterations.is_var()) text += " into " + expr(s.iterations);
    line(text);
    steps(s.body);
  }
  void step(const TiledGroup& s) {
    std::string text =
        cat("strips ", quoted_name(s.name), " ", expr(s.first), " ", expr(s.size), " in ", s.least, "..",
            s.most, s.finest ? cat(" finest ", s.finest) : "", " of ", expr(s.points));
    if (s.round.is_var()) text += cat(" for ", expr(s.round), " < ", expr(s.rounds));
    for (const TiledGroup::Size& size : s.sizes) {
      text += cat(" with ", expr(size.symbol), " = ", expr(size.value));
      if (size.most) text += cat(" up to ", *size.most, " in all ", expr(size.total));
    }
    for (const TiledGroup::Carried& each : s.carried)
      text += cat(" carry ", buffer_name(each.buffer), " along ", each.dim, " by ", each.per, " from ",
                  expr(each.base), " of ", expr(each.at), " ", expr(each.rows));
    line(cat(text, " own ", buffers(s.own)));
    steps(s.body);
  }
  void step(const Call& s) {
    std::string text =
        cat("call ", s.routine, " ", buffers(s.reads), " ", buffers(s.writes), " ", exprs(s.arguments));
    if (!s.nodes.empty())
      text += " nodes " + join(s.nodes, ", ", [](const std::string& n) { return quoted(n); });
    line(text);
  }
  void step(const Copy& s) { line(cat("copy ", buffer_name(s.from), " ", buffer_name(s.to))); }

  // ---- statements

  std::string dims(const std::vector<Dim>& list) const {
    return join(list, ", ", [](const Dim& d) { return cat(expr(d.var), "<", expr(d.extent)); });
  }
  static std::string use(ValueId v) { return cat("%", v.value); }
  static std::string uses(const std::vector<ValueId>& list) { return join(list, " ", use); }
  std::string result(ValueId v) const {
    return cat("%", v.value, " : ", stridec::name(nest_->values[v.value].dtype));
  }
  std::string results(const std::vector<ValueId>& list) const {
    return join(list, ", ", [&](ValueId v) { return result(v); });
  }
  // In nests of several nodes: the position of the value's node, and the number of the value there.
  std::string from(ValueId v) const {
    if (origins_.empty() || !origins_[v.value].node.valid()) return "";
    const Origin& origin = origins_[v.value];
    const auto at = std::ranges::find(nest_->nodes, text_of(origin.node));
    if (at == nest_->nodes.end()) return "";
    return cat(" from ", at - nest_->nodes.begin(), origin.part ? cat(".", origin.part) : "");
  }
  std::string element(const Access& a) const { return buffer_name(a.buffer) + exprs(a.index); }
  std::string mask(const Access& a) const { return a.mask.is_const(1) ? "" : " if " + expr(a.mask); }

  void block(const Block& stmts) {
    for (const Stmt& s : stmts) std::visit([&](const auto& node) { statement(node); }, s.node);
  }
  void body(const Block& stmts, const std::vector<ValueId>& yields = {}) {
    ++depth_;
    block(stmts);
    if (!yields.empty()) line("yield " + uses(yields));
    --depth_;
  }

  void statement(const Let& s) {
    line(cat(result(s.result), " = ", info(s.op).name, " ", uses(s.args), from(s.result)));
  }
  void statement(const Constant& s) {
    line(cat(result(s.result), " = constant ", to_string(s.value), from(s.result)));
  }
  void statement(const IndexValue& s) {
    line(cat(result(s.result), " = index ", expr(s.expr), from(s.result)));
  }
  void statement(const Load& s) {
    std::string fill = s.access.mask.is_const(1) ? "" : " else " + to_string(s.fill);
    line(cat(result(s.result), " = load ", element(s.access), mask(s.access), fill, from(s.result)));
  }
  void statement(const Store& s) {
    std::string verb = s.update ? cat("update ", name(s.combine)) : "store";
    line(cat(verb, " ", element(s.access), " ", use(s.value), mask(s.access)));
  }
  void statement(const Bind& s) {
    static constexpr std::string_view kModes[] = {"error", "clamp", "skip"};
    std::string text = cat("bind ", expr(s.var), " < ", expr(s.extent), " = ", use(s.value),
                           s.wrap_negative ? " wrap " : " ", kModes[static_cast<int>(s.mode)]);
    if (!s.sentence.empty()) text += " " + quoted(s.sentence);
    line(text);
  }
  void statement(const Reduce& s) {
    line(cat(results(s.results), " = reduce ", name(s.combine),
             s.byte_blocks ? cat(" bytes ", s.byte_blocks) : std::string(), " (", dims(s.dims), ")",
             from(s.results.front())));
    body(s.body, s.yields);
  }
  void statement(const For& s) {
    line(cat("for (", dims(s.dims), ")"));
    body(s.body);
  }
  void statement(const Scan& s) {
    std::vector<size_t> places(s.init.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = i;
    std::string carried =
        join(places, ", ", [&](size_t i) { return cat(use(s.carried[i]), " = ", use(s.init[i])); });
    line(cat(results(s.results), s.results.empty() ? "scan " : " = scan ", s.reverse ? "reverse (" : "(",
             dims({s.dim}), ") [", carried, "]", s.results.empty() ? "" : from(s.results.front())));
    body(s.body, s.yields);
  }

  const Program& program_;
  const bool with_origins_;
  const Nest* nest_ = nullptr;
  std::vector<Origin> origins_;  // of its values
  std::string out_;
  int depth_ = 0;
  std::vector<bool> printed_;
  std::map<BufferId, std::string> labels_;  // for buffers whose name an earlier one has
};

}  // namespace

std::string to_string(const Program& program) { return Printer(program).program(); }
std::string to_string(const Program& program, const Nest& nest) {
  return Printer(program).nest(nest, "nest ");
}

std::string to_string_with_origins(const Program& program) { return Printer(program, true).program(); }
std::string to_string_with_origins(const Program& program, const Nest& nest) {
  return Printer(program, true).nest(nest, "nest ");
}

std::string to_string(const Scalar& scalar) {
  if (!is_float(scalar.dtype)) return std::to_string(scalar.i);
  if (std::isnan(scalar.f)) return "nan";
  if (std::isinf(scalar.f)) return scalar.f < 0 ? "-inf" : "inf";
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), scalar.f);
  return {buffer, end.ptr};
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      char hex[5];
      std::snprintf(hex, sizeof(hex), "\\x%02x", byte);
      out += hex;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

bool is_plain_name(std::string_view name) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || !letter(name[0])) return false;
  for (char c : name)
    if (!letter(c) && c != '.' && c != '+' && !(c >= '0' && c <= '9')) return false;
  return true;
}

std::string quoted_name(std::string_view name) {
  return is_plain_name(name) ? std::string(name) : quoted(name);
}

}  // namespace stridec::loop
