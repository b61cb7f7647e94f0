#include "compiler/schedule/layout/align_rows.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "compiler/loop/analysis.h"
#include "compiler/loop/build.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {
namespace {

using loop::Buffer;
using loop::BufferId;
using loop::Contraction;
using loop::Nest;
using loop::Program;
using sym::Expr;

constexpr int64_t kRowBytes = 16;
constexpr int64_t kLeastGrowth = 4;  // rows of known length grow by at most a quarter
// Least number of results that read an element of an input. From then on a GEMM gains more by aligned rows
// than the copy takes (4 TB/s of memory; 120 TFLOP/s with gathered tiles, 600 with boxes).
constexpr int64_t kReadsWorthCopy = 128;

// Strides that align the rows of the matrix that the GEMM reads to kRowBytes. Empty if they are aligned
// already, or should not be.
std::vector<Expr> padded_strides(const Program& program, const Contraction& contraction,
                                 const loop::Access& access) {
  const Buffer& buffer = program[access.buffer];
  const int64_t bytes = byte_size(buffer.dtype);
  if (bytes > 4) return {};
  const int64_t elements = kRowBytes / bytes;
  const auto contiguous = innermost_first(buffer);
  if (!contiguous || contiguous->empty()) return {};
  const std::vector<size_t>& order = *contiguous;
  // A row is the contiguous part of the depth, or of the points.
  const auto in_depth = [&](size_t d) { return loop::is_var_of(access.index[d], contraction.reduce->dims); };
  const auto is_var = [&](size_t d) {
    return in_depth(d) || loop::is_var_of(access.index[d], contraction.m) ||
           loop::is_var_of(access.index[d], contraction.n) ||
           loop::is_var_of(access.index[d], contraction.batch);
  };
  Expr row = 1;
  size_t inner = 0;
  for (; inner < order.size() && is_var(order[inner]) && in_depth(order[inner]) == in_depth(order[0]);
       ++inner)
    row = row * buffer.shape[order[inner]];
  if (inner == 0 || inner == order.size() || program.facts.known_divisor(row) % elements == 0) return {};
  const Expr pitch = sym::align_up(row, elements);
  if (row.is_const() && (pitch.value() - row.value()) * kLeastGrowth > row.value()) return {};
  std::vector<Expr> strides = buffer.strides;
  Expr stride = pitch;
  for (size_t i = inner; i < order.size(); ++i) {
    strides[order[i]] = stride;
    stride = stride * buffer.shape[order[i]];
  }
  return strides;
}

class Padder {
 public:
  explicit Padder(Program& program) : program_(program), fixed_(fixed_buffers(program)) {}

  // Returns the nest with its factors in padded rows, after the copies it needs. Returns nothing if no factor
  // gets another buffer.
  std::vector<Nest> pad(const Nest& nest) {
    std::vector<Nest> out;
    const auto contraction = loop::classify_contraction(nest);
    if (!contraction || contraction->m.empty() || contraction->n.empty()) return {};
    std::map<loop::ValueId, BufferId> turned;
    for (const auto* operand : {&contraction->a, &contraction->b}) {
      if (!operand->plain) continue;
      const loop::Access& access = operand->plain->access;
      const std::vector<Expr> strides = padded_strides(program_, *contraction, access);
      if (strides.empty()) continue;
      switch (program_[access.buffer].storage) {
        case loop::Storage::kArena:
          if (!fixed_.contains(access.buffer)) program_[access.buffer].strides = strides;
          break;
        case loop::Storage::kParameter:
          turned[operand->plain->result] = weight(access.buffer, strides);
          break;
        case loop::Storage::kInput:
          if (worth_copy(*contraction, access))
            turned[operand->plain->result] = input(access.buffer, strides, out);
          break;
        default: break;
      }
    }
    if (turned.empty()) return {};
    loop::for_each_stmt(out.emplace_back(nest).body, [&](loop::Stmt& stmt) {
      auto* load = std::get_if<loop::Load>(&stmt.node);
      if (load && turned.contains(load->result)) load->access.buffer = turned.at(load->result);
    });
    return out;
  }

 private:
  bool worth_copy(const Contraction& contraction, const loop::Access& access) const {
    const Buffer& buffer = program_[access.buffer];
    if (!is_float(buffer.dtype) || byte_size(buffer.dtype) != 2) return false;
    Expr reads = 1;
    for (const auto* dims : {&contraction.m, &contraction.n, &contraction.loose})
      for (const loop::Dim& dim : *dims) {
        const bool own = std::any_of(access.index.begin(), access.index.end(),
                                     [&](Expr index) { return sym::depends_on(index, dim.var); });
        if (!own) reads = reads * dim.extent;
      }
    return program_.facts.bounds(reads).lo >= kReadsWorthCopy;
  }

  BufferId weight(BufferId from, const std::vector<Expr>& strides) {
    for (const Made& made : made_)
      if (made.from == from && program_[made.to].strides == strides) return made.to;
    const BufferId id = add_buffer(from, strides, loop::Storage::kParameter);
    made_.push_back({from, id});
    program_.prepack.push_back(loop::add_nest(program_, copy(from, id)));
    return id;
  }

  // The copy is for this nest alone: another nest may run where this one does not.
  BufferId input(BufferId from, const std::vector<Expr>& strides, std::vector<Nest>& copies) {
    const BufferId id = add_buffer(from, strides, loop::Storage::kArena);
    copies.push_back(copy(from, id));
    return id;
  }

  BufferId add_buffer(BufferId from, const std::vector<Expr>& strides, loop::Storage storage) {
    Buffer buffer{.name = program_[from].name + ".padded",
                  .dtype = program_[from].dtype,
                  .shape = program_[from].shape,
                  .strides = strides,
                  .storage = storage};
    buffer.prepacked = storage == loop::Storage::kParameter;
    return loop::add_buffer(program_, std::move(buffer));
  }

  Nest copy(BufferId from, BufferId to) {
    loop::NestBuilder copy(program_, "pad " + program_[from].name);
    const std::vector<Expr> at = copy.dims(program_[from].shape);
    copy.store(loop::whole(program_, to), at, copy.load(loop::whole(program_, from), at));
    return copy.nest();
  }

  Program& program_;
  const std::set<BufferId> fixed_;
  struct Made {
    BufferId from, to;
  };
  std::vector<Made> made_;  // weights
};

}  // namespace

void align_rows(Program& program) {
  Padder padder(program);
  loop::replace_nests(program, [&](const Nest& nest) {
    return nest.schedule.kernel.empty() ? padder.pad(nest) : std::vector<Nest>();
  });
}

}  // namespace stridec::schedule
