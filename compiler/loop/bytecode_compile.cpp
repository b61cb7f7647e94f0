#include <algorithm>
#include <bit>
#include <unordered_map>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/bytecode.h"
#include "compiler/loop/scalar_math.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::loop::bytecode {
namespace {

using sym::Expr;

struct IndexRange {
  int64_t lo, hi;
};
using MaybeRange = std::optional<IndexRange>;

int64_t wrap_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t wrap_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

void add_to(std::vector<std::pair<int, int64_t>>& terms, int id, int64_t coefficient) {
  for (auto& [other, c] : terms)
    if (other == id) {
      c = wrap_add(c, coefficient);
      return;
    }
  terms.emplace_back(id, coefficient);
}

void add_to(Linear& to, const Linear& from, int64_t scale) {
  to.base = wrap_add(to.base, wrap_mul(from.base, scale));
  for (auto [id, c] : from.counters) add_to(to.counters, id, wrap_mul(c, scale));
  for (auto [id, c] : from.slots) add_to(to.slots, id, wrap_mul(c, scale));
}

class Compiler {
 public:
  Compiler(const Program& program, const Nest& nest, const Bindings& symbols,
           std::span<const BufferMemory> buffers)
      : program_(program), nest_(nest), symbols_(symbols), buffers_(buffers) {}

  Bytecode compile() {
    tape_.nest = &nest_;
    tape_.lanes = lanes_allowed();
    scopes_.emplace_back();
    tape_.slot_count = static_cast<int>(nest_.values.size());  // value id n has slot n
    slot_depth_.assign(tape_.slot_count, 0);
    slot_range_.assign(tape_.slot_count, std::nullopt);
    for (const Dim& dim : nest_.dims) {
      Linear extent = linear(dim.extent);
      MaybeRange r = range(extent);
      int slot = new_slot(0, r ? MaybeRange({0, std::max<int64_t>(r->hi - 1, 0)}) : std::nullopt);
      tape_.dim_extents.push_back(std::move(extent));
      tape_.dim_slots.push_back(slot);
      define(dim.var, Linear{.base = 0, .counters = {}, .slots = {{slot, 1}}});
    }
    // Extents of parallel dims are evaluated before any instruction runs.
    STRIDEC_CHECK(scopes_[0].code.empty(),
                  cat("nest ", nest_.name, ": extents of parallel dims are linear in outer dims"));
    block(nest_.body);
    tape_.body = std::move(scopes_[0].code);
    tape_.counter_count = static_cast<int>(counter_depth_.size());
    return std::move(tape_);
  }

 private:
  struct Scope {
    std::vector<Instr> code;
    std::unordered_map<Expr, Linear, sym::ExprHash> known;  // forms that this scope has computed
  };

  // The number of lanes for this nest. Lanes run in lockstep, so inner loops must have the same extents in
  // all of them; updates must happen in the order of the points; and local memory is bounded.
  int lanes_allowed() {
    std::vector<Expr> varying;
    for (const Dim& d : nest_.dims) varying.push_back(d.var);
    for_each_stmt(nest_.body, [&](const Stmt& s) {
      if (auto* bind = std::get_if<Bind>(&s.node)) varying.push_back(bind->var);
    });
    auto varies = [&](Expr e) {
      return std::any_of(varying.begin(), varying.end(), [&](Expr v) { return sym::depends_on(e, v); });
    };
    bool single = false;
    int64_t local_bytes = 0;
    std::vector<BufferId> locals;
    for (const Dim& d : nest_.dims) single = single || varies(d.extent);
    for_each_stmt(nest_.body, [&](const Stmt& s) {
      for (const Dim& d : dims_of(s)) single = single || varies(d.extent);
      if (auto* store = std::get_if<Store>(&s.node)) single = single || store->update;
      if (const Access* a = access_of(s)) {
        const Buffer& b = program_[a->buffer];
        if (b.storage == Storage::kLocal &&
            std::find(locals.begin(), locals.end(), a->buffer) == locals.end()) {
          locals.push_back(a->buffer);
          local_bytes += elements_of(b) * byte_size(b.dtype);
        }
      }
    });
    return single || local_bytes * kLanes > (int64_t{64} << 20) ? 1 : kLanes;
  }

  int64_t evaluate(Expr e) {
    std::optional<int64_t> v = sym::evaluate(e, [&](Expr s) -> std::optional<int64_t> {
      auto it = symbols_.find(s);
      if (it == symbols_.end()) return std::nullopt;
      return it->second;
    });
    if (!v)
      fail(ErrorKind::kInternal, "unbound-size",
           cat("nest ", nest_.name, ": ", sym::to_string(e), " has no value"));
    return *v;
  }

  int64_t elements_of(const Buffer& b) {
    int64_t count = 1;
    for (size_t d = 0; d < b.shape.size(); ++d) {
      int64_t extent = evaluate(b.shape[d]);
      if (extent <= 0) return 0;
      count += (extent - 1) * evaluate(b.strides[d]);
    }
    return count;
  }

  // ---- slots, counters, ranges

  int new_slot(int depth, MaybeRange r = std::nullopt) {
    slot_depth_.push_back(depth);
    slot_range_.push_back(r);
    return tape_.slot_count++;
  }
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  void define(Expr var, Linear value) { scopes_.back().known[var] = std::move(value); }

  int depth_of(const Linear& l) const {
    int d = 0;
    for (auto [c, k] : l.counters) d = std::max(d, counter_depth_[c]);
    for (auto [s, k] : l.slots) d = std::max(d, slot_depth_[s]);
    return d;
  }

  MaybeRange range(const Linear& l) const {
    __int128 lo = l.base, hi = l.base;
    auto add = [&](const MaybeRange& r, int64_t k) {
      if (!r) return false;
      __int128 a = static_cast<__int128>(r->lo) * k, b = static_cast<__int128>(r->hi) * k;
      lo += std::min(a, b);
      hi += std::max(a, b);
      return true;
    };
    for (auto [c, k] : l.counters)
      if (!add(counter_range_[c], k)) return std::nullopt;
    for (auto [s, k] : l.slots)
      if (!add(slot_range_[s], k)) return std::nullopt;
    constexpr __int128 kLimit = __int128{1} << 62;
    if (lo < -kLimit || hi > kLimit) return std::nullopt;
    return IndexRange{static_cast<int64_t>(lo), static_cast<int64_t>(hi)};
  }

  static MaybeRange op_range(sym::Op op, MaybeRange a, MaybeRange b, MaybeRange c) {
    switch (op) {
      case sym::Op::kEq:
      case sym::Op::kNe:
      case sym::Op::kLt:
      case sym::Op::kLe:
      case sym::Op::kAnd:
      case sym::Op::kOr: return IndexRange{0, 1};
      case sym::Op::kSelect:
        return b && c ? MaybeRange({std::min(b->lo, c->lo), std::max(b->hi, c->hi)}) : std::nullopt;
      case sym::Op::kMod: return b && b->lo > 0 ? MaybeRange({0, b->hi - 1}) : std::nullopt;
      default: break;
    }
    if (!a || !b) return std::nullopt;
    switch (op) {
      case sym::Op::kMin: return IndexRange{std::min(a->lo, b->lo), std::min(a->hi, b->hi)};
      case sym::Op::kMax: return IndexRange{std::max(a->lo, b->lo), std::max(a->hi, b->hi)};
      case sym::Op::kFloorDiv:
        if (b->lo != b->hi || b->lo <= 0) return std::nullopt;
        return IndexRange{index_op(op, a->lo, b->lo, 0), index_op(op, a->hi, b->lo, 0)};
      default: return std::nullopt;
    }
  }

  // The slot that holds a linear form; it is computed in the outermost scope where all its inputs are known.
  int slot_of(const Linear& l) {
    if (l.base == 0 && l.counters.empty() && l.slots.size() == 1 && l.slots[0].second == 1)
      return l.slots[0].first;
    int d = depth_of(l);
    Instr in{.code = Code::kLinear};
    in.dst = new_slot(d, range(l));
    in.extra = static_cast<int>(tape_.linears.size());
    tape_.linears.push_back(l);
    scopes_[d].code.push_back(in);
    return in.dst;
  }

  Linear apply(sym::Op op, const Linear& a, const Linear& b, const Linear& c) {
    if (a.is_constant() && b.is_constant() && c.is_constant())
      return {.base = index_op(op, a.base, b.base, c.base), .counters = {}, .slots = {}};
    MaybeRange r = op_range(op, range(a), range(b), range(c));
    Instr in{.code = Code::kIndexOp, .op = static_cast<uint8_t>(op)};
    in.a = slot_of(a);
    in.b = slot_of(b);
    in.c = slot_of(c);
    int d = std::max({depth_of(a), depth_of(b), depth_of(c)});
    in.dst = new_slot(d, r);
    scopes_[d].code.push_back(in);
    return {.base = 0, .counters = {}, .slots = {{in.dst, 1}}};
  }

  Linear linear(Expr e) {
    if (e.is_const()) return {.base = e.value(), .counters = {}, .slots = {}};
    for (size_t d = scopes_.size(); d-- > 0;)
      if (auto it = scopes_[d].known.find(e); it != scopes_[d].known.end()) return it->second;
    Linear out = compute(e);
    scopes_[depth_of(out)].known.emplace(e, out);
    return out;
  }

  Linear compute(Expr e) {
    switch (e.op()) {
      case sym::Op::kVar: {
        STRIDEC_CHECK(!sym::is_index(e),
                      cat("nest ", nest_.name, ": ", sym::to_string(e), " is not in scope"));
        return {.base = evaluate(e), .counters = {}, .slots = {}};
      }
      case sym::Op::kAdd: {
        Linear out;
        for (Expr arg : e.args()) add_to(out, linear(arg), 1);
        return out;
      }
      case sym::Op::kMul: {
        Linear out{.base = 1, .counters = {}, .slots = {}};
        for (Expr arg : e.args()) {
          Linear factor = linear(arg);
          if (!out.is_constant() && !factor.is_constant()) {
            out = apply(sym::Op::kMul, out, factor, {});
          } else {
            const Linear& constant = out.is_constant() ? out : factor;
            Linear scaled;
            add_to(scaled, out.is_constant() ? factor : out, constant.base);
            out = scaled;
          }
        }
        return out;
      }
      case sym::Op::kSelect: return apply(e.op(), linear(e.arg(0)), linear(e.arg(1)), linear(e.arg(2)));
      default: {
        Linear out = linear(e.arg(0));
        for (size_t i = 1; i < e.args().size(); ++i) out = apply(e.op(), out, linear(e.arg(i)), {});
        return out;
      }
    }
  }

  // ---- statements

  void emit(Instr in) { scopes_.back().code.push_back(in); }

  void block(const Block& stmts) {
    for (const Stmt& s : stmts) std::visit([&](const auto& node) { statement(node); }, s.node);
  }

  int value_slot(ValueId v, bool defines = false) {
    STRIDEC_CHECK(v.valid() && v.value < static_cast<int>(nest_.values.size()));
    if (defines) slot_depth_[v.value] = depth();
    return v.value;
  }
  DType type_of(ValueId v) const { return nest_.values[v.value].dtype; }

  void statement(const Let& s) {
    Instr in{.code = Code::kScalar, .op = static_cast<uint8_t>(s.op), .type = type_of(s.args.back())};
    if (s.op == ScalarOp::kCast || s.op == ScalarOp::kCastSat || s.op == ScalarOp::kBitcast) {
      in.code = s.op == ScalarOp::kBitcast ? Code::kBitcast : Code::kConvert;
      in.flag = s.op == ScalarOp::kCastSat;
      in.type = type_of(s.result);
      in.from = type_of(s.args[0]);
    }
    in.a = value_slot(s.args[0]);
    in.b = value_slot(s.args[s.args.size() > 1 ? 1 : 0]);
    in.c = value_slot(s.args.back());
    in.dst = value_slot(s.result, true);
    emit(in);
  }

  void statement(const Constant& s) {
    tape_.constants.emplace_back(value_slot(s.result, true), to_cell(s.value));
  }

  void statement(const IndexValue& s) {
    Instr in{.code = Code::kIndexValue, .type = type_of(s.result), .from = DType::kI64};
    in.a = slot_of(linear(s.expr));
    in.dst = value_slot(s.result, true);
    emit(in);
  }

  int plan(const Access& access) {
    const Buffer& b = program_[access.buffer];
    STRIDEC_CHECK(access.index.size() == b.shape.size(), cat("nest ", nest_.name, ": access of ", b.name));
    AccessPlan p{.buffer = access.buffer, .dtype = b.dtype};
    if (b.storage == Storage::kLocal) {
      int64_t elements = elements_of(b);
      p.data = local(access.buffer, elements);
      if (tape_.lanes > 1) p.lane_stride = elements;
    } else {
      p.data = buffers_[access.buffer.value].data;
    }
    Linear offset, varying;
    for (size_t d = 0; d < b.shape.size(); ++d) {
      Linear index = linear(access.index[d]);
      int64_t extent = evaluate(b.shape[d]);
      MaybeRange r = range(index);
      if (!r || r->lo < 0 || r->hi >= extent) p.checks.push_back({static_cast<int>(d), index, extent});
      add_to(offset, index, evaluate(b.strides[d]));
    }
    std::swap(varying.slots, offset.slots);
    if (!varying.slots.empty()) offset.slots = {{slot_of(varying), 1}};
    p.offset = std::move(offset);
    Linear mask = linear(access.mask);
    for (auto [var, valid] : skips_) {
      bool uses = sym::depends_on(access.mask, var);
      for (const Expr& e : access.index) uses = uses || sym::depends_on(e, var);
      if (uses)
        mask = apply(sym::Op::kAnd, mask, Linear{.base = 0, .counters = {}, .slots = {{valid, 1}}}, {});
    }
    if (!mask.is_constant() || mask.base == 0) p.mask = slot_of(mask);
    tape_.accesses.push_back(std::move(p));
    return static_cast<int>(tape_.accesses.size()) - 1;
  }

  uint8_t* local(BufferId id, int64_t elements) {
    if (auto it = locals_.find(id.value); it != locals_.end()) return it->second;
    DType dtype = program_[id].dtype;
    tape_.locals.push_back(
        {dtype, std::vector<uint8_t>(static_cast<size_t>(elements * byte_size(dtype) * tape_.lanes))});
    return locals_[id.value] = tape_.locals.back().bytes.data();
  }

  void statement(const Load& s) {
    Instr in{.code = Code::kLoad, .type = type_of(s.result)};
    in.extra = plan(s.access);
    tape_.accesses[in.extra].fill = to_cell(s.fill);
    in.dst = value_slot(s.result, true);
    emit(in);
  }

  void statement(const Store& s) {
    Instr in{.code = Code::kStore,
             .op = static_cast<uint8_t>(s.combine),
             .type = type_of(s.value),
             .flag = s.update};
    in.extra = plan(s.access);
    in.a = value_slot(s.value);
    emit(in);
  }

  void statement(const Bind& s) {
    BindPlan p{.bind = &s};
    p.is_unsigned = !is_signed(type_of(s.value));
    p.value = value_slot(s.value);
    p.extent = linear(s.extent);
    MaybeRange r = range(p.extent);
    p.dst = new_slot(depth(), r ? MaybeRange({0, std::max<int64_t>(r->hi - 1, 0)}) : std::nullopt);
    if (s.mode == Bind::OutOfRange::kSkip) {
      p.valid = new_slot(depth(), IndexRange{0, 1});
      skips_.emplace_back(s.var, p.valid);
    }
    define(s.var, Linear{.base = 0, .counters = {}, .slots = {{p.dst, 1}}});
    Instr in{.code = Code::kBind};
    in.extra = static_cast<int>(tape_.binds.size());
    tape_.binds.push_back(std::move(p));
    emit(in);
  }

  int new_counter(const Linear& extent) {
    MaybeRange r = range(extent);
    counter_depth_.push_back(depth());
    counter_range_.push_back(r ? MaybeRange({0, std::max<int64_t>(r->hi - 1, 0)}) : std::nullopt);
    return static_cast<int>(counter_depth_.size()) - 1;
  }

  void loop(LoopPlan plan, const std::vector<Dim>& dims, const Block& body,
            const std::vector<ValueId>& carried = {}) {
    scopes_.emplace_back();
    for (const Dim& d : dims) {
      Linear extent = linear(d.extent);
      // An extent that is not linear in the loop's own outer dims would be computed inside the body, which is
      // too late.
      STRIDEC_CHECK(scopes_.back().code.empty(), cat("nest ", nest_.name, ": the extent ",
                                                     sym::to_string(d.extent), " is not linear in its loop"));
      int counter = new_counter(extent);
      plan.counters.push_back(counter);
      plan.extents.push_back(std::move(extent));
      define(d.var, Linear{.base = 0, .counters = {{counter, 1}}, .slots = {}});
    }
    for (ValueId c : carried) plan.carried.push_back(value_slot(c, true));
    block(body);
    plan.body = std::move(scopes_.back().code);
    scopes_.pop_back();
    for (int r : plan.results) slot_depth_[r] = depth();
    Instr in{.code = Code::kLoop};
    in.extra = static_cast<int>(tape_.loops.size());
    tape_.loops.push_back(std::move(plan));
    emit(in);
  }

  void results(LoopPlan& plan, const std::vector<ValueId>& yields, const std::vector<ValueId>& results) {
    for (ValueId y : yields) plan.yields.push_back(value_slot(y));
    for (ValueId r : results) {
      plan.results.push_back(value_slot(r));
      plan.types.push_back(type_of(r));
    }
  }

  void statement(const Reduce& s) {
    LoopPlan plan{.kind = LoopPlan::Kind::kReduce, .combine = s.combine};
    results(plan, s.yields, s.results);
    loop(std::move(plan), s.dims, s.body);
  }
  void statement(const For& s) { loop({}, s.dims, s.body); }
  void statement(const Scan& s) {
    LoopPlan plan{.kind = LoopPlan::Kind::kScan, .reverse = s.reverse};
    results(plan, s.yields, s.results);
    for (ValueId v : s.init) {
      plan.init.push_back(value_slot(v));
      plan.spare.push_back(new_slot(depth()));
    }
    loop(std::move(plan), {s.dim}, s.body, s.carried);
  }

  const Program& program_;
  const Nest& nest_;
  const Bindings& symbols_;
  std::span<const BufferMemory> buffers_;
  Bytecode tape_;
  std::vector<Scope> scopes_;
  std::vector<int> slot_depth_, counter_depth_;
  std::vector<MaybeRange> slot_range_, counter_range_;
  std::vector<std::pair<Expr, int>> skips_;
  std::unordered_map<int32_t, uint8_t*> locals_;
};

}  // namespace

int64_t index_op(sym::Op op, int64_t a, int64_t b, int64_t c) {
  switch (op) {
    case sym::Op::kMul: return wrap_mul(a, b);
    case sym::Op::kFloorDiv: {
      if (b == 0) return 0;
      if (b == -1) return wrap_mul(a, -1);
      int64_t q = a / b;
      return q - ((a % b != 0) && ((a < 0) != (b < 0)));
    }
    case sym::Op::kMod: {
      if (b == 0 || b == -1) return 0;
      int64_t r = a % b;
      return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
    }
    case sym::Op::kMin: return std::min(a, b);
    case sym::Op::kMax: return std::max(a, b);
    case sym::Op::kSelect: return a != 0 ? b : c;
    case sym::Op::kEq: return a == b;
    case sym::Op::kNe: return a != b;
    case sym::Op::kLt: return a < b;
    case sym::Op::kLe: return a <= b;
    case sym::Op::kAnd: return a != 0 && b != 0;
    case sym::Op::kOr: return a != 0 || b != 0;
    default: break;
  }
  check_failed(__FILE__, __LINE__, "an operator of index expressions", {});
}

Bytecode compile(const Program& program, const Nest& nest, const Bindings& symbols,
                 std::span<const BufferMemory> buffers) {
  return Compiler(program, nest, symbols, buffers).compile();
}

}  // namespace stridec::loop::bytecode
