#include "compiler/kernels/integer_range.h"

#include <algorithm>

#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Stmt;

std::optional<Range> of_type(DType dtype) {
  if (is_bool(dtype)) return Range{0, 1};
  if (!is_integer(dtype) || info(dtype).bits > 16) return std::nullopt;
  const int bits = info(dtype).bits;
  if (!is_signed(dtype)) return Range{0, (int64_t{1} << bits) - 1};
  return Range{-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
}

bool fits(Range r, DType dtype) {
  const auto whole = dtype == DType::kI32 ? Range{INT32_MIN, INT32_MAX} : of_type(dtype);
  return whole && r.low >= whole->low && r.high <= whole->high;
}

// Ranges of weights that nests of Program::prepack compute, each evaluated once.
class Stored {
 public:
  explicit Stored(const Program* program) : program_(program) {
    if (!program_) return;
    for (loop::NestId id : program_->prepack)
      for (const Stmt& stmt : (*program_)[id].body)
        if (const auto* store = std::get_if<loop::Store>(&stmt.node))
          stores_[store->access.buffer].push_back({&(*program_)[id], store});
  }
  std::optional<Range> of_buffer(BufferId id);
  Ranges of(const Nest& nest, const std::vector<const Stmt*>& statements);

 private:
  struct From {
    const Nest* nest;
    const loop::Store* store;
  };
  std::optional<Range> of_statement(const Nest& nest, const Stmt& stmt, const Ranges& known);

  const Program* program_;
  std::map<BufferId, std::vector<From>> stores_;
  std::map<BufferId, std::optional<Range>> known_;
};

std::optional<Range> Stored::of_buffer(BufferId id) {
  const auto writers = stores_.find(id);
  if (writers == stores_.end()) return std::nullopt;
  const auto [known, fresh] = known_.emplace(id, std::nullopt);
  if (!fresh) return known->second;
  std::optional<Range> all;
  for (const From& from : writers->second) {
    std::vector<const Stmt*> statements;
    for (const Stmt& stmt : from.nest->body) statements.push_back(&stmt);
    const Ranges ranges = of(*from.nest, statements);
    const auto range = ranges.find(from.store->value);
    if (from.store->update || range == ranges.end()) return std::nullopt;
    all = all ? Range{std::min(all->low, range->second.low), std::max(all->high, range->second.high)}
              : range->second;
  }
  // Elements that no nest stores are zero.
  if (all) known_[id] = Range{std::min<int64_t>(all->low, 0), std::max<int64_t>(all->high, 0)};
  return known_[id];
}

Ranges Stored::of(const Nest& nest, const std::vector<const Stmt*>& statements) {
  Ranges ranges;
  for (const Stmt* stmt : statements) {
    loop::for_each_result(*stmt, [&](loop::ValueId id) {
      if (const auto range = of_statement(nest, *stmt, ranges)) ranges[id] = *range;
    });
  }
  return ranges;
}

std::optional<Range> Stored::of_statement(const Nest& nest, const Stmt& stmt, const Ranges& known) {
  const auto type_of = [&](loop::ValueId id) { return nest.values[id.value].dtype; };
  if (const auto* load = std::get_if<loop::Load>(&stmt.node)) {
    const DType dtype = type_of(load->result);
    if (is_float(dtype)) return std::nullopt;
    const auto range = of_buffer(load->access.buffer);
    if (!range) return of_type(dtype);
    return Range{std::min(range->low, load->fill.i), std::max(range->high, load->fill.i)};
  }
  if (const auto* constant = std::get_if<loop::Constant>(&stmt.node)) {
    if (is_float(constant->value.dtype)) return std::nullopt;
    return Range{constant->value.i, constant->value.i};
  }
  const auto* let = std::get_if<loop::Let>(&stmt.node);
  if (!let) return std::nullopt;
  const DType dtype = type_of(let->result);
  std::vector<Range> args;
  for (loop::ValueId arg : let->args) {
    const auto found = known.find(arg);
    if (found != known.end()) args.push_back(found->second);
  }
  std::optional<Range> r;
  if (let->op == loop::ScalarOp::kSelect && args.size() == 3) {
    r = Range{std::min(args[1].low, args[2].low), std::max(args[1].high, args[2].high)};
  } else if (args.size() != let->args.size()) {
    return of_type(dtype);
  } else if (let->op == loop::ScalarOp::kCast || let->op == loop::ScalarOp::kCastSat) {
    r = args[0];
  } else if (let->op == loop::ScalarOp::kSub) {
    r = Range{args[0].low - args[1].high, args[0].high - args[1].low};
  } else if (let->op == loop::ScalarOp::kAdd) {
    r = Range{args[0].low + args[1].low, args[0].high + args[1].high};
  } else if (let->op == loop::ScalarOp::kBitAnd && args[0].low >= 0 && args[1].low >= 0) {
    r = Range{0, std::min(args[0].high, args[1].high)};
  } else if (let->op == loop::ScalarOp::kShr && args[0].low >= 0 && args[1].low >= 0 && args[1].low < 32) {
    r = Range{0, args[0].high >> args[1].low};
  }
  return r && fits(*r, dtype) ? r : of_type(dtype);
}

}  // namespace

Ranges integer_ranges(const Nest& nest, const std::vector<const Stmt*>& statements, const Program* program) {
  return Stored(program).of(nest, statements);
}

}  // namespace stridec::kernels
