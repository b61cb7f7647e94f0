#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "compiler/base/number.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/algebra/invariants.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using sym::Expr;

constexpr int64_t kMostElements = 1 << 14;
constexpr int64_t kMostPoints = 1 << 16;  // of a nest that is run at compile time
// Masks have an element for each pair of positions, and replacing one saves loading it in each run.
constexpr int64_t kMostBools = 1 << 22;
int64_t most_elements(DType dtype) { return is_bool(dtype) ? kMostBools : kMostElements; }
int64_t most_points(DType dtype) { return is_bool(dtype) ? kMostBools : kMostPoints; }
constexpr int64_t kMostMagnitude = int64_t{1} << 31;

// The number of elements if there are few; otherwise nothing.
std::optional<int64_t> count_of(const loop::Buffer& buffer) {
  const auto count = sym::as_const(loop::element_count(buffer.shape));
  if (!count || *count < 1 || *count > most_elements(buffer.dtype) ||
      buffer.strides != loop::row_major(buffer.shape) ||
      (!is_bool(buffer.dtype) && info(buffer.dtype).bits % 8 != 0))
    return std::nullopt;
  return count;
}

// A lower bound on the iterations of the block, for nests whose sizes are constants.
int64_t points(const Block& block) {
  int64_t sum = 1;
  for (const Stmt& stmt : block)
    if (const Block* body = loop::body_of(stmt)) {
      int64_t each = points(*body);
      for (const loop::Dim& dim : loop::dims_of(stmt))
        each = std::min(each * sym::as_const(dim.extent).value_or(kMostBools), 2 * kMostBools);
      sum += each;
    }
  return std::min(sum, 2 * kMostBools);
}

class Contents {
 public:
  explicit Contents(Program& program) : program_(program), known_(program.buffers.size()) {}

  // The bytes of a weight, or null if there are many or they take long to compute.
  const std::vector<uint8_t>* of(BufferId id) {
    std::optional<std::vector<uint8_t>>& known = known_[id.value];
    if (!known) known = read(id);
    return known->empty() ? nullptr : &*known;
  }

 private:
  std::vector<uint8_t> read(BufferId id) {
    const loop::Buffer& buffer = program_[id];
    const auto count = count_of(buffer);
    if (!loop::is_constant(buffer) || !count) return {};
    const auto size = static_cast<size_t>(*count * byte_size(buffer.dtype));
    if (!buffer.prepacked) {
      if (buffer.weight.size != size) return {};
      return {buffer.weight.bytes, buffer.weight.bytes + size};
    }
    std::vector<uint8_t> bytes(size);
    for (loop::NestId nest : program_.prepack)
      if (writes(effects_of(program_[nest]), id) && !run(program_[nest], id, bytes)) return {};
    return bytes;
  }

  bool run(const Nest& nest, BufferId id, std::vector<uint8_t>& bytes) {
    const Effects effects = effects_of(nest);
    if (reads(effects, id)) return false;
    int64_t all = points(nest.body);
    for (const loop::Dim& dim : nest.dims)
      all = std::min(all * sym::as_const(dim.extent).value_or(kMostBools), 2 * kMostBools);
    if (all > most_points(program_[id].dtype)) return false;
    std::vector<loop::BufferMemory> memory(program_.buffers.size());
    for (BufferId from : effects.reads) {
      if (program_[from].storage == loop::Storage::kLocal) continue;
      const auto* given = of(from);
      if (!given) return false;
      memory[from.value] = {const_cast<uint8_t*>(given->data()),  // only read
                            static_cast<int64_t>(given->size()) / byte_size(program_[from].dtype)};
    }
    std::vector<std::vector<uint8_t>> others;  // its other results
    for (BufferId to : effects.writes) {
      const loop::Buffer& buffer = program_[to];
      if (to == id || buffer.storage == loop::Storage::kLocal) continue;
      const auto count = count_of(buffer);
      if (!count || reads(effects, to)) return false;
      others.emplace_back(static_cast<size_t>(*count * byte_size(buffer.dtype)));
      memory[to.value] = {others.back().data(), *count};
    }
    memory[id.value] = {bytes.data(), static_cast<int64_t>(bytes.size()) / byte_size(program_[id].dtype)};
    loop::interpret(program_, nest, {}, memory);
    return true;
  }

  Program& program_;
  std::vector<std::optional<std::vector<uint8_t>>> known_;  // by buffer; empty: not available
};

// c0 and the integer factor of each component. For floats, which have to be all equal, the value itself.
// For bools that are not all equal, the element is `below` where the sum is less than 0, else the opposite.
struct Formula {
  std::optional<loop::Scalar> number;
  int64_t start = 0;
  std::vector<int64_t> factors;
  std::optional<bool> below = {};
};

// Compares bits, since -0 is not 0.
std::optional<Formula> number_of(const loop::Buffer& buffer, const std::vector<uint8_t>& bytes) {
  const auto size = static_cast<ptrdiff_t>(byte_size(buffer.dtype));
  if (!std::equal(bytes.begin() + size, bytes.end(), bytes.begin())) return std::nullopt;
  const double value = read_float(buffer.dtype, bytes.data());
  if (std::isnan(value)) return std::nullopt;  // its bits would get lost
  return Formula{.number = loop::float_scalar(buffer.dtype, value), .factors = {}};
}

// A mask that shows each row the positions up to a bound, which is the same for all rows (padding) or moves
// by one from row to row (causal).
std::optional<Formula> mask_of(const loop::Buffer& buffer, const std::vector<uint8_t>& bytes) {
  std::vector<size_t> dims;  // that are longer than 1
  for (size_t d = 0; d < buffer.shape.size(); ++d)
    if (buffer.shape[d].value() > 1) dims.push_back(d);
  if (dims.empty()) return std::nullopt;
  const int64_t count = static_cast<int64_t>(bytes.size()), columns = buffer.shape[dims.back()].value();
  const auto at = [&](int64_t element) { return bytes[static_cast<size_t>(element)] != 0; };
  for (const int64_t step : {1, 0})
    for (const bool below : {true, false}) {
      if (step == 1 && dims.size() < 2) continue;
      const int64_t rows = step ? buffer.shape[dims[dims.size() - 2]].value() : 1;
      // The bound within some row.
      std::optional<int64_t> bound;
      for (int64_t row = 0; row < rows && !bound; ++row) {
        int64_t seen = 0;
        while (seen < columns && at(row * columns + seen) == below) ++seen;
        if (seen > 0 && seen < columns) bound = seen - step * row;
      }
      bool fits = bound.has_value();
      for (int64_t element = 0; element < count && fits; ++element) {
        const int64_t column = element % columns, line = element / columns % rows;
        fits = at(element) == ((column < *bound + step * line) == below);
      }
      if (!fits) continue;
      Formula formula{
          .number = {}, .start = -*bound, .factors = std::vector<int64_t>(buffer.shape.size(), 0)};
      formula.factors[dims.back()] = 1;
      if (step) formula.factors[dims[dims.size() - 2]] = -1;
      formula.below = below;
      return formula;
    }
  return std::nullopt;
}

std::optional<Formula> formula_of(const loop::Buffer& buffer, const std::vector<uint8_t>& bytes) {
  if (is_float(buffer.dtype)) return number_of(buffer, bytes);
  if (is_bool(buffer.dtype) &&
      std::any_of(bytes.begin(), bytes.end(), [&](uint8_t b) { return b != bytes[0]; }))
    return mask_of(buffer, bytes);
  const auto at = [&](int64_t element) {
    return read_integer(buffer.dtype, bytes.data() + element * byte_size(buffer.dtype));
  };
  Formula formula{.number = {}, .start = at(0), .factors = std::vector<int64_t>(buffer.shape.size(), 0)};
  const int64_t count = static_cast<int64_t>(bytes.size()) / byte_size(buffer.dtype);
  for (size_t d = 0; d < buffer.shape.size(); ++d)
    if (buffer.shape[d].value() > 1) formula.factors[d] = at(buffer.strides[d].value()) - formula.start;
  for (int64_t element = 0; element < count; ++element) {
    const int64_t value = at(element);
    if (value > kMostMagnitude || value < -kMostMagnitude) return std::nullopt;
    int64_t rest = element, expected = formula.start;
    for (size_t d = 0; d < buffer.shape.size(); ++d) {
      expected += rest / buffer.strides[d].value() * formula.factors[d];
      rest %= buffer.strides[d].value();
    }
    if (value != expected) return std::nullopt;
  }
  return formula;
}

class Rewriter {
 public:
  explicit Rewriter(Program& program) : program_(program), contents_(program) {}

  // `reduced`: the block is in a reduction. Floats stay loads there, since a GEMM multiplies by them.
  bool rewrite(Block& block, bool reduced = false) {
    bool changed = false;
    for (Stmt& stmt : block) {
      if (Block* body = loop::body_of(stmt))
        changed = rewrite(*body, reduced || std::holds_alternative<loop::Reduce>(stmt.node)) || changed;
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (!load || !load->access.mask.is_const(1)) continue;
      const auto* formula = of(load->access.buffer);
      if (!formula) continue;
      if (formula->number) {
        if (reduced) continue;
        stmt = {loop::Constant{load->result, *formula->number}};
        changed = true;
        continue;
      }
      Expr value = formula->start;
      for (size_t d = 0; d < formula->factors.size(); ++d)
        value += load->access.index[d] * formula->factors[d];
      if (formula->below) value = *formula->below ? sym::lt(value, 0) : sym::ge(value, 0);
      stmt = {loop::IndexValue{load->result, value}};
      changed = true;
    }
    return changed;
  }

 private:
  const Formula* of(BufferId id) {
    if (program_[id].storage != loop::Storage::kParameter) return nullptr;
    const auto found = formulas_.find(id);
    if (found != formulas_.end()) return found->second ? &*found->second : nullptr;
    const auto* bytes = contents_.of(id);
    auto& made = formulas_[id] = bytes ? formula_of(program_[id], *bytes) : std::nullopt;
    return made ? &*made : nullptr;
  }

  Program& program_;
  Contents contents_;
  std::map<BufferId, std::optional<Formula>> formulas_;
};

}  // namespace

void make_affine(Program& program) {
  Rewriter rewriter(program);
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch || !program[launch->nest].schedule.kernel.empty()) return;
    if (rewriter.rewrite(program[launch->nest].body)) loop::clean(program, program[launch->nest]);
  });
}

}  // namespace stridec::schedule
