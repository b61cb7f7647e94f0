#include <bit>
#include <cmath>
#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/loop/bytecode.h"
#include "compiler/loop/scalar_math.h"
#include "compiler/sym/guard.h"

namespace stridec::loop::bytecode {
namespace {

class Machine {
 public:
  Machine(const Program& program, Bytecode& tape, bool poison)
      : program_(program), tape_(tape), poison_(poison), counters_(tape.counter_count, 0) {
    cells_.resize(static_cast<size_t>(tape.slot_count) * tape.lanes);
    for (auto [slot, value] : tape.constants)
      for (int l = 0; l < tape.lanes; ++l) at(slot)[l] = value;
  }

  // Runs blocks of points, in order, until the domain is exhausted.
  void run() {
    std::vector<int64_t> point(tape_.dim_slots.size(), 0);
    bool more = settle(point, 0);
    while (more) {
      n_ = 0;
      while (more && n_ < tape_.lanes) {
        for (size_t d = 0; d < point.size(); ++d) at(tape_.dim_slots[d])[n_].i = point[d];
        ++n_;
        more = advance(point);
      }
      if (poison_)
        for (Bytecode::Local& local : tape_.locals)
          poison_memory(local.dtype, local.bytes.data(), local.bytes.size());
      run(tape_.body);
    }
  }

 private:
  Cell* at(int slot) { return &cells_[static_cast<size_t>(slot) * tape_.lanes]; }

  // ---- the domain

  int64_t extent(const std::vector<int64_t>& point, size_t dim) const {
    const Linear& e = tape_.dim_extents[dim];
    int64_t v = e.base;
    for (auto [slot, k] : e.slots)
      for (size_t d = 0; d < point.size(); ++d)
        if (tape_.dim_slots[d] == slot) v += k * point[d];
    return v;
  }

  // The first point at or after `point` whose dims from `dim` on are in range; earlier dims are in range
  // already.
  bool settle(std::vector<int64_t>& point, size_t dim) {
    while (dim < point.size()) {
      if (point[dim] < extent(point, dim)) {
        ++dim;
        continue;
      }
      if (dim == 0) return false;
      for (size_t d = dim; d < point.size(); ++d) point[d] = 0;
      ++point[--dim];
    }
    return true;
  }
  bool advance(std::vector<int64_t>& point) {
    if (point.empty()) return false;
    ++point.back();
    return settle(point, point.size() - 1);
  }

  // ---- instructions

  int64_t value(const Linear& l, int lane) {
    uint64_t v = static_cast<uint64_t>(l.base);
    for (auto [c, k] : l.counters) v += static_cast<uint64_t>(counters_[c]) * static_cast<uint64_t>(k);
    for (auto [s, k] : l.slots) v += static_cast<uint64_t>(at(s)[lane].i) * static_cast<uint64_t>(k);
    return static_cast<int64_t>(v);
  }

  void linear(const Linear& l, Cell* d) {
    int64_t base = l.base;
    for (auto [c, k] : l.counters) base += counters_[c] * k;
    for (int i = 0; i < n_; ++i) d[i].i = base;
    for (auto [s, k] : l.slots) {
      const Cell* a = at(s);
      for (int i = 0; i < n_; ++i) d[i].i += a[i].i * k;
    }
  }

  void index(sym::Op op, Cell* d, const Cell* a, const Cell* b, const Cell* c) {
    auto map = [&](auto f) {
      for (int l = 0; l < n_; ++l) d[l].i = f(a[l].i, b[l].i);
    };
    switch (op) {
      case sym::Op::kLe: return map([](int64_t x, int64_t y) { return x <= y; });
      case sym::Op::kLt: return map([](int64_t x, int64_t y) { return x < y; });
      case sym::Op::kAnd: return map([](int64_t x, int64_t y) { return x != 0 && y != 0; });
      default:
        for (int l = 0; l < n_; ++l) d[l].i = index_op(op, a[l].i, b[l].i, c[l].i);
    }
  }

  void run(const std::vector<Instr>& code) {
    for (const Instr& in : code) switch (in.code) {
        case Code::kLinear: linear(tape_.linears[in.extra], at(in.dst)); break;
        case Code::kIndexOp:
          index(static_cast<sym::Op>(in.op), at(in.dst), at(in.a), at(in.b), at(in.c));
          break;
        case Code::kScalar:
          scalar_op(static_cast<ScalarOp>(in.op), in.type, at(in.dst), at(in.a), at(in.b), at(in.c), n_);
          break;
        case Code::kConvert:
        case Code::kIndexValue: convert(in.from, in.type, in.flag, at(in.dst), at(in.a), n_); break;
        case Code::kBitcast: bitcast(in.from, in.type, at(in.dst), at(in.a), n_); break;
        case Code::kLoad: load(tape_.accesses[in.extra], at(in.dst)); break;
        case Code::kStore: store(in, tape_.accesses[in.extra], at(in.a)); break;
        case Code::kBind: bind(tape_.binds[in.extra]); break;
        case Code::kLoop: loop(tape_.loops[in.extra]); break;
      }
  }

  // ---- memory

  void check(const AccessPlan& p, const Cell* mask) {
    for (const AccessPlan::Check& c : p.checks)
      for (int l = 0; l < n_; ++l) {
        if (mask && !mask[l].i) continue;
        int64_t i = value(c.index, l);
        if (i < 0 || i >= c.extent)
          fail(ErrorKind::kInternal, "out-of-bounds",
               cat("nest ", tape_.nest->name, ": index ", i, " in dim ", c.dim, " of ",
                   program_[p.buffer].name, ", whose extent is ", c.extent));
      }
  }

  // Calls f(lane, element) for lanes whose mask is true.
  template <class F>
  void elements(const AccessPlan& p, const Cell* mask, F f) {
    int64_t base = p.offset.base;
    for (auto [c, k] : p.offset.counters) base += counters_[c] * k;
    const Cell* varying = p.offset.slots.empty() ? nullptr : at(p.offset.slots[0].first);
    if (varying && !mask && p.lane_stride == 0) {
      for (int l = 0; l < n_; ++l) f(l, varying[l].i + base);
      return;
    }
    for (int l = 0; l < n_; ++l)
      if (!mask || mask[l].i) f(l, base + l * p.lane_stride + (varying ? varying[l].i : 0));
  }

  void load(const AccessPlan& p, Cell* d) {
    const Cell* mask = p.mask < 0 ? nullptr : at(p.mask);
    if (!p.checks.empty()) check(p, mask);
    if (mask)
      for (int l = 0; l < n_; ++l) d[l] = p.fill;
    const uint8_t* data = p.data;
    auto typed = [&]<class T>(T) {
      elements(p, mask, [&](int l, int64_t e) {
        T v;
        std::memcpy(&v, data + e * static_cast<int64_t>(sizeof(T)), sizeof(T));
        if constexpr (std::is_floating_point_v<T>)
          d[l].f = v;
        else
          d[l].i = static_cast<int64_t>(v);
      });
    };
    switch (p.dtype) {
      case DType::kF32: return typed(float{});
      case DType::kF64: return typed(double{});
      case DType::kI64: return typed(int64_t{});
      case DType::kI32: return typed(int32_t{});
      case DType::kI8: return typed(int8_t{});
      case DType::kU8: return typed(uint8_t{});
      case DType::kBF16:
        elements(p, mask, [&](int l, int64_t e) {
          uint16_t bits;
          std::memcpy(&bits, data + 2 * e, 2);
          d[l].f = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
        });
        return;
      default: {
        int bytes = byte_size(p.dtype);
        elements(p, mask, [&](int l, int64_t e) { d[l] = load_cell(p.dtype, data + e * bytes); });
      }
    }
  }

  void store(const Instr& in, const AccessPlan& p, const Cell* a) {
    const Cell* mask = p.mask < 0 ? nullptr : at(p.mask);
    if (!p.checks.empty()) check(p, mask);
    int bytes = byte_size(p.dtype);
    if (in.flag) {
      elements(p, mask, [&](int l, int64_t e) {
        Cell now = load_cell(p.dtype, p.data + e * bytes);
        combine_lanes(static_cast<Combine>(in.op), p.dtype, &now, &a[l], 1);
        round_lanes(p.dtype, &now, 1);
        store_cell(p.dtype, p.data + e * bytes, now);
      });
    } else if (p.dtype == DType::kF32) {
      elements(p, mask, [&](int l, int64_t e) {
        float v = static_cast<float>(a[l].f);
        std::memcpy(p.data + 4 * e, &v, 4);
      });
    } else {
      elements(p, mask, [&](int l, int64_t e) { store_cell(p.dtype, p.data + e * bytes, a[l]); });
    }
  }

  void bind(const BindPlan& p) {
    Cell* d = at(p.dst);
    const Cell* v = at(p.value);
    for (int l = 0; l < n_; ++l) {
      int64_t extent = value(p.extent, l), i = v[l].i;
      if (p.is_unsigned && i < 0) i = std::numeric_limits<int64_t>::max();
      if (!p.is_unsigned && i < 0 && p.bind->wrap_negative) i += extent;
      bool inside = i >= 0 && i < extent;
      if (p.valid >= 0) at(p.valid)[l].i = inside;
      if (!inside) {
        if (p.bind->mode == Bind::OutOfRange::kError)
          fail(ErrorKind::kDoesNotFit, "out-of-range",
               sym::render({.condition = 0, .sentence = p.bind->sentence, .values = {v[l].i, extent}}));
        i = p.bind->mode == Bind::OutOfRange::kSkip || i < 0 || extent == 0 ? 0 : extent - 1;
      }
      d[l].i = i;
    }
  }

  // ---- loops

  template <class F>
  void iterate(const LoopPlan& p, size_t dim, const F& body) {
    if (dim == p.counters.size()) return body();
    int64_t extent = value(p.extents[dim], 0);
    int64_t& counter = counters_[p.counters[dim]];
    for (int64_t i = 0; i < extent; ++i) {
      counter = p.reverse ? extent - 1 - i : i;
      iterate(p, dim + 1, body);
    }
  }

  void copy(int to, int from) { std::memcpy(at(to), at(from), sizeof(Cell) * n_); }

  void loop(const LoopPlan& p) {
    switch (p.kind) {
      case LoopPlan::Kind::kFor: return iterate(p, 0, [&] { run(p.body); });
      case LoopPlan::Kind::kScan:
        for (size_t i = 0; i < p.init.size(); ++i) copy(p.carried[i], p.init[i]);
        iterate(p, 0, [&] {
          run(p.body);
          for (size_t i = 0; i < p.yields.size(); ++i) copy(p.spare[i], p.yields[i]);
          for (size_t i = 0; i < p.yields.size(); ++i) copy(p.carried[i], p.spare[i]);
        });
        for (size_t i = 0; i < p.results.size(); ++i) copy(p.results[i], p.carried[i]);
        return;
      case LoopPlan::Kind::kReduce: return reduce(p);
    }
  }

  void reduce(const LoopPlan& p) {
    const bool pair = arity(p.combine) == 2;
    Cell start = to_cell(identity(p.combine, p.types[0]));
    for (size_t r = 0; r < p.results.size(); ++r)
      for (int l = 0; l < n_; ++l) at(p.results[r])[l] = r == 0 || !pair ? start : Cell{.i = 0};
    bool first = true;  // a pair has no identity element: the first pair initialises the result
    iterate(p, 0, [&] {
      run(p.body);
      if (!pair) {
        for (size_t r = 0; r < p.results.size(); ++r)
          combine_lanes(p.combine, p.types[0], at(p.results[r]), at(p.yields[r]), n_);
      } else if (first) {
        copy(p.results[0], p.yields[0]);
        copy(p.results[1], p.yields[1]);
        first = false;
      } else {
        combine_pairs(p.combine, p.types[0], at(p.results[0]), at(p.results[1]), at(p.yields[0]),
                      at(p.yields[1]), n_);
      }
    });
    for (size_t r = 0; r < (pair ? 1 : p.results.size()); ++r) round_lanes(p.types[0], at(p.results[r]), n_);
  }

  const Program& program_;
  Bytecode& tape_;
  bool poison_;
  int n_ = 0;  // lanes in use
  std::vector<Cell> cells_;
  std::vector<int64_t> counters_;
};

}  // namespace

void poison_memory(DType dtype, uint8_t* data, size_t size) {
  if (size > 0) std::memset(data, is_float(dtype) ? 0xff : 0xab, size);  // data may be null if size is 0
}

void run(const Program& program, Bytecode& tape, bool poison) { Machine(program, tape, poison).run(); }

}  // namespace stridec::loop::bytecode
