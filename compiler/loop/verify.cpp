#include "compiler/loop/verify.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/capacity.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/loop/library.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::loop {
namespace {

using sym::Expr;
using Symbols = std::unordered_set<Expr>;

[[noreturn]] void reject(const std::string& message, const std::string& ir = {}) {
  Diagnostic d{.kind = ErrorKind::kInternal,
               .code = "bad-loops",
               .message = message,
               .where = {},
               .notes = {},
               .help = {}};
  for (size_t at = 0; at < ir.size();) {
    size_t end = std::min(ir.find('\n', at), ir.size());
    d.notes.push_back(ir.substr(at, end - at));
    at = end + 1;
  }
  throw Error(std::move(d));
}

// The operand dtypes that an operation accepts.
enum class Operands : uint8_t { kAny, kNumber, kFloat, kInteger, kBool };
Operands operands_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::kNot:
    case ScalarOp::kAnd:
    case ScalarOp::kOr:
    case ScalarOp::kXor: return Operands::kBool;
    case ScalarOp::kBitNot:
    case ScalarOp::kBitAnd:
    case ScalarOp::kBitOr:
    case ScalarOp::kBitXor:
    case ScalarOp::kShl:
    case ScalarOp::kShr: return Operands::kInteger;
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kSign:
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kTrunc:
    case ScalarOp::kRound:
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kMul:
    case ScalarOp::kDiv:
    case ScalarOp::kMod:
    case ScalarOp::kRem:
    case ScalarOp::kPow:
    case ScalarOp::kFma: return Operands::kNumber;
    case ScalarOp::kIsNan:
    case ScalarOp::kIsInf:
    case ScalarOp::kCast:
    case ScalarOp::kCastSat:
    case ScalarOp::kBitcast:
    case ScalarOp::kMin:
    case ScalarOp::kMax:
    case ScalarOp::kEq:
    case ScalarOp::kNe:
    case ScalarOp::kLt:
    case ScalarOp::kLe:
    case ScalarOp::kSelect: return Operands::kAny;
    default: return Operands::kFloat;
  }
}
bool accepts(Operands operands, DType type) {
  switch (operands) {
    case Operands::kAny: return true;
    case Operands::kNumber: return !is_bool(type);
    case Operands::kFloat: return is_float(type);
    case Operands::kInteger: return is_integer(type);
    case Operands::kBool: return is_bool(type);
  }
  return false;
}

class NestVerifier {
 public:
  NestVerifier(const Program& program, const Nest& nest, bool prepack, const Symbols* bound)
      : program_(program),
        nest_(nest),
        prepack_(prepack),
        bound_(bound),
        state_(nest.values.size(), State::kUnseen) {}

  void run() {
    sym::Facts facts = program_.facts;
    std::vector<Dim> loops;
    for (const Dim& d : nest_.dims) open(d, facts, loops);
    block(nest_.body, facts, loops);
  }

 private:
  enum class State : uint8_t { kUnseen, kInScope, kGone };

  void check(bool ok, const auto&... message) const {
    if (!ok) reject(cat("nest ", nest_.name, ": ", message...), to_string(program_, nest_));
  }

  // ---- scopes

  void open(const Dim& d, sym::Facts& facts, std::vector<Dim>& loops) {
    in_scope(d.extent, "an extent");
    define(d.var);
    facts.set_index(d.var, d.extent);
    loops.push_back(d);
  }
  void define(Expr var) {
    check(var.is_var() && sym::is_index(var), var, " is not an index variable");
    check(seen_.insert(var).second, "the index variable ", var, " is defined twice");
    scope_.push_back(var);
  }
  void in_scope(Expr e, const char* what) const {
    if (e.is_const()) return;
    for (Expr v : sym::free_vars(e)) {
      if (sym::is_index(v))
        check(std::find(scope_.begin(), scope_.end(), v) != scope_.end(), what, " uses ", v,
              " outside of its scope");
      else
        check(!bound_ || bound_->count(v), what, " uses the symbol ", v, ", which has no value here");
    }
  }
  DType type_of(ValueId v) const { return nest_.values[v.value].dtype; }
  void use(ValueId v) const {
    check(v.valid() && static_cast<size_t>(v.value) < state_.size(), "no value %", v.value);
    check(state_[v.value] == State::kInScope, "%", v.value, " is used outside of its scope");
  }
  void define(ValueId v, std::vector<ValueId>& defined) {
    check(v.valid() && static_cast<size_t>(v.value) < state_.size(), "no value %", v.value);
    check(state_[v.value] == State::kUnseen, "%", v.value, " is defined twice");
    state_[v.value] = State::kInScope;
    defined.push_back(v);
  }

  // ---- statements

  void block(const Block& stmts, sym::Facts facts, const std::vector<Dim>& loops,
             const std::vector<ValueId>& carried = {}, const std::vector<ValueId>& yields = {}) {
    std::vector<ValueId> defined;
    size_t indices = scope_.size();
    for (ValueId v : carried) define(v, defined);
    for (const Stmt& s : stmts) {
      std::visit([&](const auto& node) { statement(node, facts, loops); }, s.node);
      if (auto* bind = std::get_if<Bind>(&s.node)) {
        define(bind->var);
        add_facts(facts, s);
      }
      for_each_result(s, [&](ValueId v) { define(v, defined); });
    }
    for (ValueId v : yields) use(v);
    for (ValueId v : defined) state_[v.value] = State::kGone;
    scope_.resize(indices);
  }

  void statement(const Let& s, const sym::Facts&, const std::vector<Dim>&) const {
    const ScalarOpInfo& op = info(s.op);
    check(static_cast<int>(s.args.size()) == op.arity, op.name, " takes ", op.arity, " values");
    for (ValueId a : s.args) use(a);
    DType operand = type_of(s.args.back()), result = type_of(s.result);
    for (size_t i = 0; i < s.args.size(); ++i) {
      DType expected = s.op == ScalarOp::kSelect && i == 0 ? DType::kBool : operand;
      check(type_of(s.args[i]) == expected, "%", s.result.value, ": ", op.name, " of ",
            name(type_of(s.args[i])), " and ", name(expected));
    }
    check(accepts(operands_of(s.op), operand), "%", s.result.value, ": ", op.name, " of ", name(operand));
    if (op.result == ResultRule::kSame)
      check(result == operand, "%", s.result.value, " is not ", name(operand));
    if (op.result == ResultRule::kBool) check(is_bool(result), "%", s.result.value, " is not bool");
    if (s.op == ScalarOp::kBitcast)
      check(stridec::info(result).bits == stridec::info(operand).bits, "%", s.result.value,
            " has another width");
  }
  void statement(const Constant& s, const sym::Facts&, const std::vector<Dim>&) const {
    check(s.value.dtype == type_of(s.result), "%", s.result.value, ": the constant has another dtype");
  }
  void statement(const IndexValue& s, const sym::Facts&, const std::vector<Dim>&) const {
    in_scope(s.expr, "an index value");
  }
  void statement(const Load& s, const sym::Facts& facts, const std::vector<Dim>& loops) const {
    access(s.access, facts, loops);
    const Buffer& b = program_[s.access.buffer];
    check(type_of(s.result) == b.dtype, "%", s.result.value, " is not ", name(b.dtype), ", the dtype of ",
          b.name);
    if (!s.access.mask.is_const(1))
      check(s.fill.dtype == b.dtype, "the fill of ", b.name, " has another dtype");
  }
  void statement(const Store& s, const sym::Facts& facts, const std::vector<Dim>& loops) const {
    access(s.access, facts, loops);
    use(s.value);
    const Buffer& b = program_[s.access.buffer];
    check(type_of(s.value) == b.dtype, "stores ", name(type_of(s.value)), " to ", b.name, ", which holds ",
          name(b.dtype));
    bool writable = b.storage == Storage::kOutput || b.storage == Storage::kState ||
                    b.storage == Storage::kArena || b.storage == Storage::kLocal ||
                    (b.storage == Storage::kParameter && b.prepacked && prepack_);
    check(writable, "stores to ", b.name, ", which is read only here");
    check(!s.update || arity(s.combine) == 1, "updates with ", name(s.combine));
  }
  void statement(const Bind& s, const sym::Facts&, const std::vector<Dim>&) const {
    use(s.value);
    check(is_integer(type_of(s.value)), "binds ", name(type_of(s.value)));
    in_scope(s.extent, "a bind's extent");
  }
  void statement(const Reduce& s, sym::Facts facts, std::vector<Dim> loops) {
    check(!s.dims.empty(), "a reduce has no dims");
    size_t arity = static_cast<size_t>(loop::arity(s.combine));
    check(s.yields.size() == s.results.size(), "a reduce yields ", s.yields.size(), " values for ",
          s.results.size(), " results");
    check(arity == 1 ? !s.yields.empty() : s.yields.size() == arity, "reduce ", name(s.combine), " yields ",
          arity);
    nested(s.dims, s.body, facts, loops, {}, s.yields);
    DType type = type_of(s.results[0]);
    for (size_t i = 0; i < s.results.size(); ++i) {
      check(type_of(s.yields[i]) == type_of(s.results[i]), "%", s.results[i].value,
            " has another dtype than what is reduced");
      check(arity != 1 || type_of(s.results[i]) == type, "a reduce of several values has several dtypes");
    }
    bool logical = s.combine == Combine::kAnd || s.combine == Combine::kOr;
    bool arithmetic = s.combine == Combine::kSum || s.combine == Combine::kProd;
    check(!logical || is_bool(type), "reduce ", name(s.combine), " of ", name(type));
    check(!arithmetic || !is_bool(type), "reduce ", name(s.combine), " of bool");
    if (arity == 2)
      check(type_of(s.results[1]) == DType::kI64, "the place of an ", name(s.combine), " is i64");
  }
  void statement(const For& s, sym::Facts facts, std::vector<Dim> loops) {
    nested(s.dims, s.body, facts, loops);
  }
  void statement(const Scan& s, sym::Facts facts, std::vector<Dim> loops) {
    size_t n = s.init.size();
    check(s.carried.size() == n && s.yields.size() == n && s.results.size() == n, "a scan carries ", n,
          " values");
    for (ValueId v : s.init) use(v);
    nested({s.dim}, s.body, facts, loops, s.carried, s.yields);
    for (size_t i = 0; i < n; ++i)
      for (ValueId v : {s.carried[i], s.yields[i], s.results[i]})
        check(type_of(v) == type_of(s.init[i]), "%", v.value,
              " has another dtype than what the scan starts with");
  }
  void nested(const std::vector<Dim>& dims, const Block& body, sym::Facts& facts, std::vector<Dim>& loops,
              const std::vector<ValueId>& carried = {}, const std::vector<ValueId>& yields = {}) {
    size_t indices = scope_.size();
    for (const Dim& d : dims) open(d, facts, loops);
    block(body, facts, loops, carried, yields);
    scope_.resize(indices);
  }

  // ---- memory

  void access(const Access& a, const sym::Facts& facts, const std::vector<Dim>& loops) const {
    check(a.buffer.valid() && static_cast<size_t>(a.buffer.value) < program_.buffers.size(), "no buffer ",
          a.buffer.value);
    const Buffer& b = program_[a.buffer];
    check(a.index.size() == b.shape.size(), "indexes ", b.name, " of rank ", b.shape.size(), " with ",
          a.index.size());
    for (Expr e : a.index) in_scope(e, "an index");
    in_scope(a.mask, "a mask");
    if (!a.mask.is_const(1)) return;
    for (size_t d = 0; d < a.index.size(); ++d) {
      bool inside = within(a.index[d], b.shape[d], facts, loops);
      check(inside, "dim ", d, " of ", b.name, ", of extent ", b.shape[d], ", is indexed with ", a.index[d]);
    }
  }

  // False if a corner of the iteration space is provably out of bounds. Checking corners is sound if the
  // index is linear in every loop and all enclosing loops provably run.
  bool within(Expr index, Expr extent, const sym::Facts& facts, const std::vector<Dim>& loops) const {
    Expr lo = index, hi = index;
    for (size_t l = loops.size(); l-- > 0;) {
      const Dim& d = loops[l];
      for (Expr* end : {&lo, &hi}) {
        if (!sym::depends_on(*end, d.var)) continue;
        std::optional<sym::Linear> linear = sym::linear_in(*end, d.var);
        if (!linear || !linear->coefficient.is_const()) return true;
        bool top = (linear->coefficient.value() > 0) == (end == &hi);
        *end = linear->rest + (top ? linear->coefficient * (d.extent - 1) : Expr(0));
      }
    }
    if (sym::has_index(lo) || sym::has_index(hi)) return true;  // indices bound by data are not checked
    sym::Facts outside = program_.facts;
    if (!outside.holds(sym::lt(lo, 0)) && !outside.holds(sym::ge(hi, extent))) return true;
    for (const Dim& d : loops)
      if (sym::has_index(d.extent) || !outside.holds(sym::ge(d.extent, 1))) return true;
    return facts.contradictory();
  }

  const Program& program_;
  const Nest& nest_;
  bool prepack_;
  const Symbols* bound_;  // null: unknown
  std::vector<State> state_;
  std::vector<Expr> scope_;
  Symbols seen_;
};

class ProgramVerifier {
 public:
  explicit ProgramVerifier(const Program& program)
      : program_(program), launched_(program.nests.size(), false) {}

  void run() {
    buffers();
    for (const Symbol& s : program_.symbols) {
      check(s.var.is_var() && !sym::is_index(s.var), s.var, " is not a symbol");
      check(s.multiple >= 1, s.var, " has no multiple");
      if (is_bound_before_run(program_, s)) bound_.insert(s.var);
      if (s.input < 0) continue;
      check(s.input < static_cast<int>(program_.inputs.size()), s.var, " comes from no input");
      const Buffer& b = program_[program_.inputs[s.input]];
      check(s.dim >= 0 && s.dim < static_cast<int>(b.shape.size()), s.var, " comes from no dim of ", b.name);
    }
    for (NestId id : program_.prepack) nest(id, true);
    steps(program_.steps);
    for (size_t i = 0; i < launched_.size(); ++i)
      check(launched_[i], "nest ", i, " (", program_.nests[i].name, ") is never launched");
  }

 private:
  void check(bool ok, const auto&... message) const {
    if (!ok) reject(cat("program ", program_.name, ": ", message...));
  }
  const Buffer& buffer(BufferId id) const {
    check(id.valid() && static_cast<size_t>(id.value) < program_.buffers.size(), "no buffer ", id.value);
    return program_[id];
  }
  void known(Expr e, const char* what) const {
    if (e.is_const()) return;
    for (Expr v : sym::free_vars(e))
      check(bound_.count(v) != 0, what, " uses ", v, ", which has no value here");
  }

  void buffers() {
    std::unordered_set<std::string_view> names;
    for (const Buffer& b : program_.buffers) {
      // Inputs, outputs, states and parameters have the model's names, which others may share.
      const bool of_model = b.ordinal >= 0;
      check(of_model || names.insert(b.name).second, "two buffers are called '", b.name, "'");
      check(b.strides.size() == b.shape.size(), "buffer ", b.name, " has ", b.strides.size(),
            " strides for rank ", b.shape.size());
      for (Expr e : b.shape) check(!sym::has_index(e), "the shape of ", b.name, " uses an index variable");
    }
    auto all = [&](const std::vector<BufferId>& ids, Storage storage) {
      for (BufferId id : ids)
        check(buffer(id).storage == storage, buffer(id).name, " is listed with other storage");
    };
    all(program_.inputs, Storage::kInput);
    all(program_.outputs, Storage::kOutput);
    all(program_.states, Storage::kState);
    all(program_.parameters, Storage::kParameter);
    for (BufferId id : program_.parameters)
      check(buffer(id).replaceable && !buffer(id).prepacked, buffer(id).name,
            " is listed as a parameter, but is not replaceable");
  }

  void nest(NestId id, bool prepack) {
    check(id.valid() && static_cast<size_t>(id.value) < program_.nests.size(), "no nest ", id.value);
    launched_[id.value] = true;
    NestVerifier(program_, program_[id], prepack, &bound_).run();
  }

  void steps(const Steps& list) {
    for (Expr capacity : capacities_of(program_, list)) bound_.insert(capacity);
    for (const Step& s : list) std::visit([&](const auto& node) { step(node); }, s.node);
    groups(list);
  }
  // Concurrent launches follow a launch, and none touches what another one of their group writes.
  void groups(const Steps& list) const {
    std::set<BufferId> read, written;
    for (size_t at = 0; at < list.size(); ++at) {
      const auto* launch = std::get_if<Launch>(&list[at].node);
      if (!launch || !launch->concurrent) read.clear(), written.clear();
      if (!launch) continue;
      const Nest& nest = program_[launch->nest];
      check(!launch->concurrent || (at > 0 && std::holds_alternative<Launch>(list[at - 1].node)), nest.name,
            " is concurrent with no launch");
      const Effects effects = effects_of(nest);
      for (BufferId id : effects.writes)
        check(!read.contains(id) && !written.contains(id), nest.name, " writes '", buffer(id).name,
              "', which a concurrent launch touches");
      for (BufferId id : effects.reads)
        check(!written.contains(id), nest.name, " reads '", buffer(id).name,
              "', which a concurrent launch writes");
      read.insert(effects.reads.begin(), effects.reads.end());
      written.insert(effects.writes.begin(), effects.writes.end());
    }
  }
  void step(const Launch& s) { nest(s.nest, false); }
  void step(const BindSymbol& s) {
    const Buffer& b = buffer(s.buffer);
    check(is_integer(b.dtype) || is_bool(b.dtype), s.symbol, " is bound from ", name(b.dtype));
    known(s.lower, "a bound");
    known(s.upper, "a bound");
    for (Expr value : s.values) known(value, "a value of a sentence");
    check(s.values.size() <= 4, "a sentence of ", s.values.size(), " values");
    check(s.symbol.is_var() && !sym::is_index(s.symbol), s.symbol, " is not a symbol");
    bound_.insert(s.symbol);
  }
  void step(const If& s) {
    known(s.condition, "a condition");
    steps(s.then_steps);
    steps(s.else_steps);
  }
  void step(const While& s) {
    if (const auto capacity = capacity_of(program_, s)) {
      check(s.condition.valid(), s.counter, " counts the iterations of a loop that nothing ends");
      // Elements stay in place when the memory grows.
      for (BufferId id : growing_buffers(program_, *capacity))
        for (sym::Expr stride : buffer(id).strides)
          check(!sym::depends_on(stride, *capacity), buffer(id).name, " has a stride that grows");
    }
    known(s.trip_count, "a trip count");
    if (s.condition.valid())
      check(is_bool(buffer(s.condition).dtype), "a loop's condition is ", name(buffer(s.condition).dtype));
    bound_.insert(s.counter);
    steps(s.body);
    if (s.iterations.is_var()) bound_.insert(s.iterations);
  }
  void step(const TiledGroup& s) {
    known(s.points, "a number of points");
    known(s.rounds, "a number of rounds");
    check(s.finest >= 0 && s.finest <= s.most, s.name, " has strips as short as ", s.finest, " of ", s.most);
    check(s.least >= 1 && s.least <= s.most, s.name, " has strips of ", s.least, " to ", s.most, " points");
    for (Expr symbol : s.symbols()) {
      check(symbol.is_var() && !sym::is_index(symbol), symbol, " is not a symbol");
      for (const TiledGroup::Size& size : s.sizes)
        if (size.symbol == symbol)
          known(size.value, "a size of a strip"), known(size.total, "a sum of sizes");
      bound_.insert(symbol);
    }
    for (BufferId id : s.own)
      check(buffer(id).storage == Storage::kArena, buffer(id).name,
            " is not local to the strips: it has other storage");
    for (const TiledGroup::Carried& each : s.carried) {
      const auto is_size = [&](Expr symbol) {
        return std::any_of(s.sizes.begin(), s.sizes.end(),
                           [&](const TiledGroup::Size& size) { return size.symbol == symbol; });
      };
      known(each.base, "the place of a carried row");
      check(std::find(s.own.begin(), s.own.end(), each.buffer) != s.own.end() && is_size(each.at) &&
                is_size(each.rows) && each.per >= 1 && each.dim < buffer(each.buffer).shape.size(),
            s.name, " carries rows of ", buffer(each.buffer).name, " that no strip makes");
    }
    for (const Step& inner : s.body)
      check(std::holds_alternative<Launch>(inner.node), s.name, " has a step that is not a launch");
    steps(s.body);
    for (Expr symbol : s.symbols()) bound_.erase(symbol);
  }
  void step(const Call& s) {
    const LibraryRoutine* routine = find_routine(s.routine);
    const auto kernel = find_user_kernel(s.routine);
    check(routine || kernel, "no routine is called '", s.routine, "'");
    const auto takes = [&](size_t reads, size_t writes, size_t arguments) {
      return s.reads.size() == reads && s.writes.size() == writes && s.arguments.size() == arguments;
    };
    check(kernel ? takes(kernel->reads.size(), kernel->writes.size(), UserArguments(*kernel).total)
                 : takes(static_cast<size_t>(routine->reads), static_cast<size_t>(routine->writes),
                         static_cast<size_t>(routine->arguments)),
          s.routine, " is called with other arguments than it takes");
    for (size_t i = 0; kernel && i < s.writes.size(); ++i)
      check(!kernel->writes[i].in_place || s.reads[*kernel->writes[i].in_place] == s.writes[i], s.routine,
            " does not change ", kernel->writes[i].name, " in place");
    for (BufferId id : s.reads) buffer(id);
    for (BufferId id : s.writes)
      check(buffer(id).storage != Storage::kInput && buffer(id).storage != Storage::kParameter, s.routine,
            " writes ", buffer(id).name);
    for (Expr e : s.arguments) known(e, "an argument");
  }
  void step(const Copy& s) {
    const Buffer &from = buffer(s.from), &to = buffer(s.to);
    check(from.dtype == to.dtype && from.shape.size() == to.shape.size(), "copies ", from.name, " to ",
          to.name);
    for (size_t d = 0; d < from.shape.size(); ++d)
      check(program_.facts.prove(sym::eq(from.shape[d], to.shape[d])) != sym::Answer::kNo, "copies ",
            from.name, " to ", to.name, " of another shape");
    check(to.storage != Storage::kInput && to.storage != Storage::kParameter, "copies to ", to.name);
  }

  const Program& program_;
  Symbols bound_;
  std::vector<bool> launched_;
};

}  // namespace

void verify(const Program& program) { ProgramVerifier(program).run(); }

void verify(const Program& program, const Nest& nest, bool prepack) {
  NestVerifier(program, nest, prepack, nullptr).run();
}

}  // namespace stridec::loop
