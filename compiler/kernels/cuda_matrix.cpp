#include "compiler/kernels/cuda_matrix.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/kernels/tensor_types.h"
#include "compiler/sym/text.h"

namespace stridec::kernels {
namespace {

constexpr MatrixKernel kRows[] = {
#define STRIDEC_MATRIX_KERNEL(name, family, ...) {name, MatrixFamily::family, __VA_ARGS__},
#include "compiler/kernels/cuda_kernels.def"
#undef STRIDEC_MATRIX_KERNEL
};

// The rows of cuda_kernels.def, plus the tensor-core rows for other element sizes.
struct Table {
  std::deque<std::string> names;
  std::vector<MatrixKernel> kernels{std::begin(kRows), std::end(kRows)};

  Table() {
    for (const int bytes : {4, 1})
      for (const MatrixKernel& row : kRows) {
        if (!row.is_tensor()) continue;
        MatrixKernel& kernel = kernels.emplace_back(row);
        kernel.element_bytes = bytes;
        kernel.depth = row.depth * row.element_bytes / bytes;
        if (row.single) kernel.depth = std::min(kernel.depth, row.depth);
        const std::string depth = cat("x", row.depth);
        std::string& name = names.emplace_back(row.name);
        name.replace(name.rfind(depth), depth.size(), cat("x", kernel.depth));
        name += cat(".", 8 * bytes, "bit");
        kernel.name = name;
      }
  }
};

// Classes of types that tensor cores multiply with each other.
enum class Kind : uint8_t { kF16, kBF16, kTF32, kFp8, kBytes };
struct TensorType {
  DType dtype;
  Kind kind;
  std::string_view ptx;
};
constexpr TensorType kTensorTypes[] = {
    {DType::kF16, Kind::kF16, "f16"},     {DType::kBF16, Kind::kBF16, "bf16"},
    {DType::kTF32, Kind::kTF32, "tf32"},  {DType::kF8E4M3, Kind::kFp8, "e4m3"},
    {DType::kF8E5M2, Kind::kFp8, "e5m2"}, {DType::kI8, Kind::kBytes, "s8"},
    {DType::kU8, Kind::kBytes, "u8"},
};

const TensorType* tensor_type(DType dtype) {
  const auto* found = std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                                   [&](const TensorType& type) { return type.dtype == dtype; });
  return found == std::end(kTensorTypes) ? nullptr : found;
}

constexpr std::pair<std::string_view, std::vector<sym::Expr> MatrixPlan::*> kDims[] = {
    {"batch", &MatrixPlan::batch},
    {"rows", &MatrixPlan::rows},
    {"columns", &MatrixPlan::columns},
    {"depth", &MatrixPlan::depth},
};

int64_t number(const std::string& text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  STRIDEC_CHECK(value >= 1, text);
  return value;
}

}  // namespace

std::span<const MatrixKernel> matrix_kernels() {
  static const Table table;
  return table.kernels;
}

const MatrixKernel* find_matrix_kernel(std::string_view name) {
  const auto kernels = matrix_kernels();
  const auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) { return k.name == name; });
  return found == kernels.end() ? nullptr : &*found;
}

const MatrixKernel& general_kernel(const MatrixKernel& kernel) {
  const auto kernels = matrix_kernels();
  const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) {
    return k.single && !k.is_sliced() && k.element_bytes == kernel.element_bytes &&
           k.is_tensor() == kernel.is_tensor();
  });
  STRIDEC_CHECK(found != kernels.end(), kernel.name);
  return *found;
}

bool is_matrix(const loop::Schedule& schedule) { return find_matrix_kernel(schedule.kernel) != nullptr; }

loop::Schedule to_schedule(const MatrixPlan& plan) {
  loop::Schedule schedule{.kernel = std::string(plan.kernel->name)};
  for (const std::vector<sym::Expr>& merge : plan.merges) {
    loop::Directive& directive =
        schedule.directives.emplace_back(loop::Directive{.name = "merge", .args = {}});
    for (sym::Expr var : merge) directive.args.push_back(sym::to_string(var));
  }
  for (const auto& [name, member] : kDims) {
    loop::Directive directive{.name = std::string(name)};
    for (sym::Expr var : plan.*member) directive.args.push_back(sym::to_string(var));
    if (!directive.args.empty()) schedule.directives.push_back(std::move(directive));
  }
  if (plan.split > 1) schedule.directives.push_back({"split", {std::to_string(plan.split)}});
  for (const MatrixPlan::Fewer& fewer : plan.fewer) {
    loop::Directive below{
        "below", {std::to_string(fewer.below), std::string(fewer.kernel->name), std::to_string(fewer.split)}};
    if (fewer.turned) below.args.push_back("turned");
    schedule.directives.push_back(std::move(below));
  }
  return schedule;
}

MatrixPlan plan_of(const MatrixPlan& plan, const MatrixPlan::Fewer& fewer) {
  MatrixPlan out = plan;
  out.kernel = fewer.kernel;
  out.split = fewer.split;
  if (fewer.turned) std::swap(out.rows, out.columns);
  out.fewer.clear();
  return out;
}

MatrixPlan to_matrix_plan(const loop::Schedule& schedule) {
  MatrixPlan plan;
  plan.kernel = find_matrix_kernel(schedule.kernel);
  STRIDEC_CHECK(plan.kernel, schedule.kernel);
  for (const loop::Directive& directive : schedule.directives) {
    const auto* dims = std::find_if(std::begin(kDims), std::end(kDims),
                                    [&](const auto& row) { return row.first == directive.name; });
    if (dims != std::end(kDims)) {
      for (const std::string& arg : directive.args) (plan.*dims->second).push_back(sym::parse(arg));
      continue;
    }
    if (directive.name == "merge") {
      std::vector<sym::Expr>& merge = plan.merges.emplace_back();
      for (const std::string& arg : directive.args) merge.push_back(sym::parse(arg));
      continue;
    }
    if (directive.name == "below") {
      STRIDEC_CHECK(directive.args.size() >= 3, "below");
      plan.fewer.push_back({.below = number(directive.args[0]),
                            .kernel = find_matrix_kernel(directive.args[1]),
                            .split = number(directive.args[2]),
                            .turned = directive.args.size() > 3});
      STRIDEC_CHECK(plan.fewer.back().kernel, directive.args[1]);
      continue;
    }
    STRIDEC_CHECK(directive.name == "split" && directive.args.size() == 1, directive.name);
    plan.split = number(directive.args[0]);
  }
  return plan;
}

DType element_of(const loop::Nest& nest, const Contraction& contraction, const Factor& factor) {
  for (const loop::Stmt* stmt : factor.slice) {
    const auto* let = std::get_if<loop::Let>(&stmt->node);
    if (!let || let->result != factor.value || let->op != loop::ScalarOp::kCast) continue;
    const DType from = nest.values[let->args[0].value].dtype;
    const TensorType* type = tensor_type(from);
    if (type && contraction.dtype == (type->kind == Kind::kBytes ? DType::kI32 : DType::kF32)) return from;
  }
  return contraction.dtype;
}

std::optional<std::array<DType, 2>> tensor_dtypes(const loop::Nest& nest, const Contraction& contraction) {
  std::array<DType, 2> dtypes;
  for (size_t side = 0; side < 2; ++side)
    dtypes[side] = element_of(nest, contraction, contraction.factors[side]);
  const TensorType *a = tensor_type(dtypes[0]), *b = tensor_type(dtypes[1]);
  if (!a || !b || a->kind != b->kind) return std::nullopt;
  return dtypes;
}

bool is_tensor_type(DType dtype) { return tensor_type(dtype) != nullptr; }

bool multiplies(const GpuTarget& target, const std::array<DType, 2>& dtypes) {
  return tensor_type(dtypes[0])->kind != Kind::kFp8 || target.fp8_mma;
}

bool adds_steps(const MatrixKernel& kernel, DType element) {
  return kernel.is_wgmma() && tensor_type(element)->kind == Kind::kFp8;
}

bool has_room(const MatrixKernel& kernel, DType element) {
  constexpr int kFile = 65536, kMost = 255, kOthers = 40;
  const int registers = std::min(kMost, kFile / (kernel.threads() * kernel.blocks_sm));
  return !adds_steps(kernel, element) || 2 * kernel.sums() + kOthers <= registers;
}

std::string_view ptx_type(DType dtype) {
  if (dtype == DType::kF32) return "f32";
  if (dtype == DType::kI32) return "s32";
  const TensorType* type = tensor_type(dtype);
  STRIDEC_CHECK(type, name(dtype));
  return type->ptx;
}

bool along_depth(const loop::Program& program, const Factor& factor, const std::vector<loop::Dim>& rows,
                 const std::vector<loop::Dim>& depth, const sym::Facts& facts) {
  auto contiguous = [&](const std::vector<loop::Dim>& dims) {
    return !dims.empty() &&
           std::any_of(factor.slice.begin(), factor.slice.end(), [&](const loop::Stmt* stmt) {
             const auto* load = std::get_if<loop::Load>(&stmt->node);
             if (!load) return false;
             const auto linear = sym::linear_in(offset_of(program, load->access, facts), dims.back().var);
             return linear && linear->coefficient.is_const(1);
           });
  };
  return contiguous(depth) || !contiguous(rows);
}

const loop::Load* load_of(const loop::Program& program, const Factor& factor, DType element) {
  const loop::Load* load = nullptr;
  for (const loop::Stmt* stmt : factor.slice) {
    if (const auto* l = std::get_if<loop::Load>(&stmt->node)) {
      if (load) return nullptr;
      load = l;
    } else {
      const auto* let = std::get_if<loop::Let>(&stmt->node);
      if (!let || let->op != loop::ScalarOp::kCast) return nullptr;
    }
  }
  if (!load || program[load->access.buffer].dtype != element) return nullptr;
  // A second cast might round.
  if (factor.slice.size() > 2) return nullptr;
  const bool zero = load->fill.f == 0 && load->fill.i == 0 && !std::signbit(load->fill.f);
  return load->access.mask.is_const(1) || zero ? load : nullptr;
}

std::optional<sym::Expr> contiguous(const loop::Program& program, const std::vector<loop::Dim>& dims,
                                    const loop::Access& access, const loop::Dim& unit, int64_t lanes,
                                    bool ragged, const sym::Facts& facts) {
  if (sym::depends_on(access.mask, unit.var)) return std::nullopt;
  std::vector<sym::Expr> vars;
  for (const loop::Dim& dim : dims) vars.push_back(dim.var);
  const auto form = linear_form(offset_of(program, access, facts), vars);
  if (!form) return std::nullopt;
  sym::Expr condition = 1;
  auto divides = [&](sym::Expr e) {
    if (const auto value = sym::as_const(e)) return *value % lanes == 0;
    const int64_t divisor = facts.known_divisor(e);
    if (divisor % lanes != 0) condition = sym::logical_and(condition, sym::eq(sym::mod(e, lanes), 0));
    return true;
  };
  for (size_t d = 0; d < vars.size(); ++d) {
    if (vars[d] == unit.var) {
      if (!form->coefficients[d].is_const(1)) return std::nullopt;
    } else if (!dims[d].extent.is_const(1) && !divides(form->coefficients[d])) {
      return std::nullopt;
    }
  }
  if ((!ragged && !divides(unit.extent)) || !divides(form->rest)) return std::nullopt;
  return condition;
}

bool loads_16_bytes(const loop::Program& program, const std::vector<loop::Dim>& dims, const Factor& factor,
                    const std::vector<loop::Dim>& rows, const std::vector<loop::Dim>& depth, DType element,
                    const sym::Facts& facts) {
  const loop::Load* load = load_of(program, factor, element);
  if (!load) return false;
  const bool deep = along_depth(program, factor, rows, depth, facts);
  if (!deep && tensor_type(element) && byte_size(element) != 2) return false;  // wants_depth()
  const std::vector<loop::Dim>& unit = deep ? depth : rows;
  return !unit.empty() && contiguous(program, dims, load->access, unit.back(), 16 / byte_size(element),
                                     unit.size() == 1, facts);
}

namespace {

// Bytes of the ring and of the held steps next to it.
int64_t ring_bytes(const MatrixKernel& k) {
  if (k.held_steps)
    return (int64_t{k.stages} * k.rows + int64_t{k.held_steps} * k.columns) * k.depth * k.element_bytes;
  return int64_t{k.stages} * k.depth * (k.rows + k.columns) * k.element_bytes;
}
int64_t given_bytes(const MatrixKernel& k) { return int64_t{k.rows} * (k.columns + kSumPadding) * 4; }

}  // namespace

int64_t given_at(const MatrixKernel& k) {
  // Bytes of shared memory: kShared per multiprocessor, kOthers per block for barriers and the driver.
  constexpr int64_t kShared = 227 << 10, kOthers = 1 << 10;
  const bool room = (ring_bytes(k) + given_bytes(k) + kOthers) * k.blocks_sm <= kShared;
  return room ? ring_bytes(k) : 0;
}

int64_t shared_bytes(const MatrixKernel& k, int64_t split) {
  if (k.is_wgmma() && split > 1) return std::max(ring_bytes(k), given_at(k) + given_bytes(k));
  const int64_t sum_bytes = std::max(4, k.element_bytes);
  // Thread-tiled kernels transpose tiles that run along the depth, into two more tiles after the ring.
  const bool threads = k.family == MatrixFamily::kSimt && !k.is_sliced();
  const int64_t line = k.rows + k.columns + (threads ? 2 * kSimtPadding : 0),
                ring = int64_t{k.stages + (threads ? 2 : 0)} * k.depth * line * k.element_bytes;
  if (k.is_wgmma() && split == 1) return ring_bytes(k) + int64_t{k.rows} * (k.chunk() + kSumPadding) * 4;
  return std::max(ring, int64_t{k.rows} * (k.columns + kSumPadding) * sum_bytes * k.slices);
}

}  // namespace stridec::kernels
