#include <charconv>
#include <cmath>
#include <unordered_map>

#include "compiler/base/diagnostic.h"
#include "compiler/base/hash.h"
#include "compiler/base/text.h"
#include "compiler/loop/cursor.h"
#include "compiler/loop/text.h"
#include "compiler/sym/text.h"

namespace stridec::loop {
namespace {

using sym::Expr;

constexpr int kMaxDepth = 100;  // indentation depth: nested bodies and branches

struct Line {
  int depth;
  int number;
  std::string_view text;
};

std::vector<Line> split(std::string_view text) {
  std::vector<Line> out;
  for (int number = 1; !text.empty(); ++number) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    size_t spaces = std::min(line.find_first_not_of(' '), line.size());
    line.remove_prefix(spaces);
    if (line.empty() || line[0] == '#') continue;
    Cursor at(line, number, spaces);
    if (spaces % 2 != 0) at.fail("expected indentation of two spaces per level");
    if (spaces / 2 > kMaxDepth) at.fail("too deeply nested");
    out.push_back({static_cast<int>(spaces / 2), number, line});
  }
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, const WeightSource& weights) : lines_(split(text)), weights_(weights) {}

  Program program() {
    if (lines_.empty()) fail(ErrorKind::kMalformed, "bad-program", "the text of a program is empty");
    Cursor first = next();
    first.expect("program");
    program_.name = first.name();
    end(first);
    bool steps_seen = false;
    while (more(1)) {
      Cursor c = next();
      if (c.accept("steps")) {
        steps_seen = true;
        end(c);
        program_.steps = steps(2);
      } else if (c.accept("prepack") || c.accept("unused")) {
        bool unused = lines_[at_ - 1].text[0] == 'u';
        end(c);
        for (Step& s : steps(2)) {
          auto* launch = std::get_if<Launch>(&s.node);
          if (!launch) c.fail("expected nests");
          if (!unused) program_.prepack.push_back(launch->nest);
        }
      } else {
        declaration(c);
        end(c);
      }
    }
    if (at_ < lines_.size()) next().fail("unexpected indentation");
    if (!steps_seen) first.fail("the program has no steps");
    finish_nests(first);
    return std::move(program_);
  }

 private:
  bool more(int depth) const { return at_ < lines_.size() && lines_[at_].depth == depth; }
  static Cursor cursor(const Line& l) { return {l.text, l.number, static_cast<size_t>(2 * l.depth)}; }
  Cursor next() {
    const Line& l = lines_[at_++];
    return cursor(l);
  }
  static void end(Cursor& c) {
    if (!c.done()) c.fail("unexpected text at the end of the line");
  }

  // ---- declarations

  void declaration(Cursor& c) {
    static constexpr std::string_view kStorage[] = {"input", "output", "weight", "state", "arena", "local"};
    if (c.accept("symbol")) return symbol(c);
    if (c.accept("assume")) return program_.facts.assume(c.expr());
    if (c.accept("guard")) {
      sym::Guard g{.condition = c.expr(), .sentence = {}, .values = {}};
      g.sentence = c.string();
      if (!c.done()) g.values = c.expr_list();
      program_.guards.push_back(std::move(g));
      return;
    }
    if (c.accept("inputs")) return void(program_.inputs = buffers(c));
    if (c.accept("outputs")) return void(program_.outputs = buffers(c));
    if (c.accept("states")) return void(program_.states = buffers(c));
    if (c.accept("parameters")) return void(program_.parameters = buffers(c));
    if (c.accept("arena_bytes")) return void(program_.arena_bytes = c.expr());
    if (c.accept("weight_bytes")) return void(program_.weight_bytes = c.integer());
    if (c.accept("replaceable_begin")) return void(program_.replaceable_begin = c.integer());
    for (size_t s = 0; s < std::size(kStorage); ++s)
      if (c.accept(kStorage[s])) return buffer(c, static_cast<Storage>(s));
    c.fail("expected a declaration");
  }

  void symbol(Cursor& c) {
    Symbol s{.var = c.variable()};
    if (c.accept("=")) {
      c.expect("input");
      s.input = static_cast<int>(small(c));
      c.expect("dim");
      s.dim = static_cast<int>(small(c));
    }
    if (c.accept("times")) s.multiple = positive(c);
    c.expect("in");
    std::optional<int64_t> lo, hi;
    if (!c.accept("any")) {
      if (!c.accept("..")) {
        lo = c.integer();
        c.expect("..");
      } else {
        hi = c.integer();
      }
      if (lo && !c.done() && !c.accept("divisible")) hi = c.integer();
    }
    program_.facts.set_range(s.var, lo, hi);
    // "in 1.. divisible 8": the range parser may have consumed the word already.
    if (!c.done()) {
      c.accept("divisible");
      program_.facts.set_divisible(s.var, positive(c));
    }
    program_.symbols.push_back(s);
  }
  static int64_t small(Cursor& c) {
    int64_t v = c.integer();
    if (v < 0 || v > 1 << 20) c.fail("out of range");
    return v;
  }
  int64_t positive(Cursor& c) {
    int64_t v = c.integer();
    if (v < 1) c.fail("expected a positive integer");
    return v;
  }

  DType dtype(Cursor& c) {
    std::string text = c.word();
    if (std::optional<DType> t = parse_dtype(text)) return *t;
    c.fail(cat("unknown dtype '", text, "'"));
  }

  void buffer(Cursor& c, Storage storage) {
    Buffer b{.name = c.name(), .shape = {}, .strides = {}, .storage = storage};
    b.dtype = dtype(c);
    b.shape = c.expr_list();
    const std::string label = b.name;
    if (c.accept("called")) b.name = c.string();
    b.strides = c.accept("strides") ? c.expr_list() : row_major(b.shape);
    if (b.strides.size() != b.shape.size()) c.fail("expected one stride per dim");
    if (c.accept("ordinal")) b.ordinal = static_cast<int>(small(c));
    b.prepacked = c.accept("prepacked");
    b.replaceable = c.accept("replaceable");
    if (c.accept("at")) b.offset = c.expr();
    if (c.accept("bytes")) weight(c, b);
    if (!buffers_.emplace(label, BufferId(static_cast<int64_t>(program_.buffers.size()))).second)
      c.fail(cat("a second buffer is named '", label, "'"));
    program_.buffers.push_back(std::move(b));
  }

  void weight(Cursor& c, Buffer& b) {
    int64_t size = c.integer();
    c.expect("hash");
    std::string_view hex = c.rest();
    uint64_t hash = 0;
    auto end = std::from_chars(hex.data(), hex.data() + hex.size(), hash, 16);
    if (hex.size() != 16 || end.ptr != hex.data() + 16) c.fail("expected a hash of 16 digits");
    if (!weights_) return;
    b.weight = weights_(b);
    if (b.weight.bytes &&
        (static_cast<int64_t>(b.weight.size) != size || hash_bytes(b.weight.bytes, b.weight.size) != hash))
      c.fail(cat("the bytes of weight '", b.name, "' are not those that the program was made with"));
  }

  BufferId buffer_id(Cursor& c) {
    std::string name = c.name();
    auto it = buffers_.find(name);
    if (it == buffers_.end()) c.fail(cat("unknown buffer '", name, "'"));
    return it->second;
  }
  std::vector<BufferId> buffers(Cursor& c) {
    std::vector<BufferId> out;
    c.expect("(");
    if (c.accept(")")) return out;
    do out.push_back(buffer_id(c));
    while (c.accept(","));
    c.expect(")");
    return out;
  }
  static std::vector<std::string> strings(Cursor& c) {
    std::vector<std::string> out;
    do out.push_back(c.string());
    while (c.accept(","));
    return out;
  }

  // ---- steps

  Steps steps(int depth) {
    Steps out;
    while (more(depth)) {
      Cursor c = next();
      out.push_back(step(c, depth));
    }
    return out;
  }

  Step step(Cursor& c, int depth) {
    const bool concurrent = c.accept("concurrent");
    if (c.accept("nest")) return {Launch{nest(c, depth + 1), concurrent}};
    if (c.accept("launch")) return {Launch{launched(c), concurrent}};
    if (concurrent) c.fail("only launches are concurrent");
    if (c.accept("bind")) return {bind_symbol(c)};
    if (c.accept("if")) return {if_step(c, depth)};
    if (c.accept("while")) return {while_step(c, depth)};
    if (c.accept("strips")) return {tiled_group(c, depth)};
    if (c.accept("call")) return {call(c)};
    if (c.accept("copy")) return {copy(c)};
    c.fail("expected a step");
  }

  NestId launched(Cursor& c) {
    int64_t id = small(c);
    used_.emplace_back(id, c);
    end(c);
    return NestId(id);
  }

  BindSymbol bind_symbol(Cursor& c) {
    BindSymbol s;
    s.symbol = c.variable();
    c.expect("=");
    s.buffer = buffer_id(c);
    c.expect("in");
    std::vector<Expr> range = c.expr_list();
    if (range.size() != 2) c.fail("expected a range [lower, upper]");
    s.lower = range[0];
    s.upper = range[1];
    s.sentence = c.string();
    if (!c.done()) s.values = c.expr_list();
    if (s.values.size() > 4) c.fail("a sentence can have four values at most");
    end(c);
    return s;
  }

  If if_step(Cursor& c, int depth) {
    If s{.condition = c.expr(), .then_steps = {}, .else_steps = {}};
    end(c);
    s.then_steps = steps(depth + 1);
    if (more(depth) && lines_[at_].text == "else") {
      ++at_;
      s.else_steps = steps(depth + 1);
    }
    return s;
  }

  While while_step(Cursor& c, int depth) {
    While s{.counter = c.variable(), .trip_count = {}, .condition = {}, .iterations = {}, .body = {}};
    c.expect("<");
    s.trip_count = c.expr();
    if (c.accept("on")) s.condition = buffer_id(c);
    if (c.accept("into")) s.iterations = c.variable();
    end(c);
    s.body = steps(depth + 1);
    return s;
  }

  TiledGroup tiled_group(Cursor& c, int depth) {
    TiledGroup s;
    s.name = c.name();
    s.first = c.variable();
    s.size = c.variable();
    c.expect("in");
    s.least = small(c);
    c.expect("..");
    s.most = small(c);
    if (c.accept("finest")) s.finest = small(c);
    c.expect("of");
    s.points = c.expr();
    if (c.accept("for")) {
      s.round = c.variable();
      c.expect("<");
      s.rounds = c.expr();
    }
    while (c.accept("with")) s.sizes.push_back(group_size(c));
    while (c.accept("carry")) s.carried.push_back(carried(c));
    c.expect("own");
    s.own = buffers(c);
    end(c);
    set_ranges(program_.facts, s);
    s.body = steps(depth + 1);
    return s;
  }

  static TiledGroup::Size group_size(Cursor& c) {
    TiledGroup::Size size;
    size.symbol = c.variable();
    c.expect("=");
    size.value = c.expr();
    if (c.accept("up")) {
      c.expect("to");
      size.most = small(c);
      c.expect("in");
      c.expect("all");
      size.total = c.expr();
    }
    return size;
  }

  TiledGroup::Carried carried(Cursor& c) {
    TiledGroup::Carried each;
    each.buffer = buffer_id(c);
    c.expect("along");
    each.dim = static_cast<size_t>(small(c));
    c.expect("by");
    each.per = small(c);
    c.expect("from");
    each.base = c.expr();
    c.expect("of");
    each.at = c.variable();
    each.rows = c.variable();
    return each;
  }

  Call call(Cursor& c) {
    Call s{.routine = c.word(), .reads = {}, .writes = {}, .arguments = {}, .nodes = {}};
    s.reads = buffers(c);
    s.writes = buffers(c);
    s.arguments = c.expr_list();
    if (c.accept("nodes")) s.nodes = strings(c);
    end(c);
    return s;
  }

  Copy copy(Cursor& c) {
    Copy s;
    s.from = buffer_id(c);
    s.to = buffer_id(c);
    end(c);
    return s;
  }

  // ---- nests

  NestId nest(Cursor& c, int depth) {
    int64_t id = small(c);
    nest_ = {};
    nest_.name = c.name();
    nest_.dims = dims(c);
    end(c);
    size_t last = at_;
    while (last < lines_.size() && lines_[last].depth >= depth) ++last;
    value_limit_ = 10000 + 100 * (last - at_);  // ids may have gaps; memory stays proportional to the text
    if (more(depth) && lines_[at_].text.starts_with("nodes ")) {
      Cursor line = next();
      line.expect("nodes");
      nest_.nodes = strings(line);
      end(line);
    }
    if (more(depth) && lines_[at_].text.starts_with("schedule ")) {
      Cursor line = next();
      line.expect("schedule");
      nest_.schedule = parse_schedule(line.rest());
    }
    nest_.body = block(depth, nullptr);
    if (!nests_.emplace(id, std::move(nest_)).second) c.fail(cat("a second nest ", id));
    return NestId(id);
  }

  void finish_nests(const Cursor& first) {
    for (const auto& [id, c] : used_)
      if (!nests_.count(id)) c.fail(cat("no nest ", id));
    for (size_t i = 0; i < nests_.size(); ++i) {
      auto it = nests_.find(static_cast<int64_t>(i));
      if (it == nests_.end()) first.fail(cat("nest ", i, " is missing"));
      program_.nests.push_back(std::move(it->second));
    }
  }

  std::vector<Dim> dims(Cursor& c) {
    std::vector<Dim> out;
    c.expect("(");
    if (c.accept(")")) return out;
    do {
      Dim d{.var = c.variable(), .extent = {}};
      if (!sym::is_index(d.var)) c.fail("an index variable must start with %");
      c.expect("<");
      d.extent = c.expr();
      out.push_back(d);
    } while (c.accept(","));
    c.expect(")");
    return out;
  }

  ValueId define(Cursor& c, DType dtype, ValueId id) {
    if (static_cast<size_t>(id.value) >= value_limit_) c.fail("the number of the value is too large");
    if (static_cast<size_t>(id.value) >= nest_.values.size())
      nest_.values.resize(static_cast<size_t>(id.value) + 1);
    nest_.values[id.value] = {dtype};
    return id;
  }
  std::vector<ValueId> results(Cursor& c) {
    std::vector<ValueId> out;
    do {
      ValueId id = c.value();
      c.expect(":");
      out.push_back(define(c, dtype(c), id));
    } while (c.accept(","));
    return out;
  }
  DType type_of(Cursor& c, ValueId v) {
    if (static_cast<size_t>(v.value) >= nest_.values.size()) c.fail(cat("%", v.value, " is not defined"));
    return nest_.values[v.value].dtype;
  }

  Scalar scalar(Cursor& c, DType dtype) {
    if (!is_float(dtype)) return {.dtype = dtype, .f = 0, .i = c.integer()};
    Scalar out{.dtype = dtype, .f = 0, .i = 0};
    if (c.accept("nan"))
      out.f = NAN;
    else if (c.accept("inf"))
      out.f = HUGE_VAL;
    else if (c.accept("-inf"))
      out.f = -HUGE_VAL;
    else {
      std::string_view text = c.to_space();
      auto end = std::from_chars(text.data(), text.data() + text.size(), out.f);
      if (end.ec != std::errc() || end.ptr != text.data() + text.size()) c.fail("expected a number");
    }
    return out;
  }

  Access element(Cursor& c) {
    Access a{.buffer = buffer_id(c), .index = {}};
    a.index = c.expr_list();
    return a;
  }

  // Parses statements at this depth; `yields` (for a reduce or scan) receives the closing yield.
  Block block(int depth, std::vector<ValueId>* yields) {
    Block out;
    while (more(depth)) {
      Cursor c = next();
      if (c.accept("yield")) {
        if (!yields || !yields->empty() || more(depth))
          c.fail("only a reduce or a scan can yield, as its last statement");
        while (!c.done()) yields->push_back(c.value());
        return out;
      }
      out.push_back(statement(c, depth));
    }
    if (yields && at_ > 0) cursor(lines_[at_ - 1]).fail("expected a yield after this");
    return out;
  }

  Stmt statement(Cursor& c, int depth) {
    if (c.accept("store")) return store(c, false);
    if (c.accept("update")) return store(c, true);
    if (c.accept("bind")) return bind(c);
    if (c.accept("for")) {
      For s;
      s.dims = dims(c);
      end(c);
      s.body = block(depth + 1, nullptr);
      return {std::move(s)};
    }
    std::vector<ValueId> defined;
    if (!c.accept("scan")) {
      defined = results(c);
      c.expect("=");
      if (c.accept("reduce")) return reduce(c, depth, std::move(defined));
      if (!c.accept("scan")) {
        if (defined.size() != 1) c.fail("expected reduce or scan");
        Stmt s = scalar_statement(c, defined[0]);
        origin(c, defined);
        end(c);
        return s;
      }
    }
    return scan(c, depth, std::move(defined));
  }

  Stmt scalar_statement(Cursor& c, ValueId result) {
    if (c.accept("constant")) return {Constant{result, scalar(c, type_of(c, result))}};
    if (c.accept("index")) return {IndexValue{result, c.expr()}};
    if (c.accept("load")) {
      Load s{.result = result, .access = element(c), .fill = {}};
      DType type = program_[s.access.buffer].dtype;
      s.fill = int_scalar(type, 0);
      if (c.accept("if")) {
        s.access.mask = c.expr();
        c.expect("else");
        s.fill = scalar(c, type);
      }
      return {std::move(s)};
    }
    std::string op = c.word();
    std::optional<ScalarOp> known = parse_scalar_op(op);
    if (!known) c.fail(cat("unknown operation '", op, "'"));
    Let s{.result = result, .op = *known, .args = {}};
    while (!c.done() && !origin(c, {result})) s.args.push_back(c.value());
    return {std::move(s)};
  }

  // "from 1.3": of the values. Returns false if there is none.
  bool origin(Cursor& c, const std::vector<ValueId>& values) {
    if (!c.accept("from")) return false;
    const int64_t node = c.integer(), part = c.accept(".") ? c.integer() : 0;
    if (node < 0 || node >= static_cast<int64_t>(nest_.nodes.size()))
      c.fail(cat("the nest has no node ", node));
    if (part < 0 || part > INT32_MAX) c.fail("the number of the node's value is out of range");
    for (const ValueId value : values)
      nest_.values[value.value].origin = {node_of(nest_.nodes[static_cast<size_t>(node)]),
                                          static_cast<int32_t>(part)};
    return true;
  }

  Combine combine(Cursor& c) {
    std::string text = c.word();
    if (std::optional<Combine> known = parse_combine(text)) return *known;
    c.fail(cat("unknown combine '", text, "'"));
  }

  Stmt store(Cursor& c, bool update) {
    Store s{.access = {}, .value = {}, .update = update};
    if (update) s.combine = combine(c);
    s.access = element(c);
    s.value = c.value();
    if (c.accept("if")) s.access.mask = c.expr();
    end(c);
    return {std::move(s)};
  }

  Stmt bind(Cursor& c) {
    Bind s{.var = c.variable(), .value = {}, .extent = {}, .sentence = {}};
    c.expect("<");
    s.extent = c.expr();
    c.expect("=");
    s.value = c.value();
    s.wrap_negative = c.accept("wrap");
    if (c.accept("error"))
      s.mode = Bind::OutOfRange::kError;
    else if (c.accept("clamp"))
      s.mode = Bind::OutOfRange::kClamp;
    else if (c.accept("skip"))
      s.mode = Bind::OutOfRange::kSkip;
    else
      c.fail("expected error, clamp or skip");
    if (!c.done()) s.sentence = c.string();
    end(c);
    return {std::move(s)};
  }

  Stmt reduce(Cursor& c, int depth, std::vector<ValueId> results) {
    Reduce s{.dims = {}, .body = {}, .combine = combine(c), .yields = {}, .results = std::move(results)};
    if (c.accept("bytes")) s.byte_blocks = c.integer();
    s.dims = dims(c);
    origin(c, s.results);
    end(c);
    s.body = block(depth + 1, &s.yields);
    return {std::move(s)};
  }

  Stmt scan(Cursor& c, int depth, std::vector<ValueId> results) {
    Scan s;
    s.results = std::move(results);
    s.reverse = c.accept("reverse");
    std::vector<Dim> dim = dims(c);
    if (dim.size() != 1) c.fail("a scan must have one dim");
    s.dim = dim[0];
    c.expect("[");
    if (!c.accept("]")) {
      do {
        ValueId carried = c.value();
        c.expect("=");
        s.init.push_back(c.value());
        s.carried.push_back(define(c, type_of(c, s.init.back()), carried));
      } while (c.accept(","));
      c.expect("]");
    }
    origin(c, s.results);
    end(c);
    s.body = block(depth + 1, s.carried.empty() ? nullptr : &s.yields);
    return {std::move(s)};
  }

  std::vector<Line> lines_;
  size_t at_ = 0;
  const WeightSource& weights_;
  Program program_;
  std::unordered_map<std::string, BufferId> buffers_;
  std::unordered_map<int64_t, Nest> nests_;
  std::vector<std::pair<int64_t, Cursor>> used_;
  Nest nest_;  // the nest being parsed
  size_t value_limit_ = 0;
};

}  // namespace

Program parse_program(std::string_view text, const WeightSource& weights) {
  return Parser(text, weights).program();
}

}  // namespace stridec::loop
