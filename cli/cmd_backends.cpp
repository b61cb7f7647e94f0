// backends: what computes each operation on each device, from the tables of kernels and routines.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/suggest.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/gpu_target.h"
#include "compiler/base/target.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/graph/text.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/gemm.h"
#include "compiler/kernels/tensor_types.h"
#include "compiler/loop/library.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
using graph::OpKind;
using kernels::GemmKernel;

// What computes an operation on a device.
struct Cell {
  std::string by;
  std::string why;  // it is not computed in the best way of the table, or not at all; "": it is
  bool operator==(const Cell&) const = default;
};
struct Row {
  std::string operation, types;  // types: of the factors and the sum; "": of any
  std::vector<Cell> cells;       // by device
};

constexpr const char *kLoops = "loops", *kRoutine = "routine", *kRefused = "refused";

std::vector<std::string> devices() {
  std::vector<std::string> names;
  for (const CpuTarget& target : cpu_targets()) names.push_back(target.name);
  for (const GpuTarget& target : gpu_targets()) names.push_back(target.name);
  return names;
}

std::vector<Cell> everywhere(const Cell& cpu, const Cell& gpu) {
  std::vector<Cell> cells(cpu_targets().size(), cpu);
  cells.insert(cells.end(), gpu_targets().size(), gpu);
  return cells;
}

// The element types of a product.
struct Product {
  DType a, b, sum;
  std::string text() const { return cat(name(a), " x ", name(b), " -> ", name(sum)); }
};

DType sum_of(DType factor) {
  if (is_float(factor)) return factor == DType::kF64 ? DType::kF64 : DType::kF32;
  return byte_size(factor) <= byte_size(DType::kI32) && factor != DType::kU32 ? DType::kI32 : factor;
}

std::vector<Product> products() {
  constexpr DType kTypes[] = {
#define STRIDEC_DTYPE(id, ...) DType::id,
#include "compiler/base/dtype.def"
#undef STRIDEC_DTYPE
  };
  std::vector<Product> all;
  for (const DType type : kTypes)
    if (info(type).bits >= 8 && type != DType::kF8E8M0) all.push_back({type, type, sum_of(type)});
  for (const GemmKernel& kernel : kernels::gemm_kernels()) {
    const Product product{kernel.a, kernel.b, kernel.dtype};
    const auto same = [&](const Product& other) { return other.text() == product.text(); };
    if (kernel.a != kernel.b && std::ranges::none_of(all, same)) all.push_back(product);
  }
  return all;
}

// Whether each value of the first type is one of the second.
bool holds(DType type, DType wider) {
  if (type == wider) return true;
  if (is_float(type) != is_float(wider)) return false;
  if (is_float(type)) return is_storage_float(type) && (wider == DType::kF32 || wider == DType::kF64);
  const bool sign_fits = is_signed(wider) || !is_signed(type);
  return sign_fits && info(type).bits + (is_signed(wider) && !is_signed(type) ? 1 : 0) <= info(wider).bits;
}

// "gemm.f32" of "gemm.f32.6x16"
std::string family(const GemmKernel& kernel) {
  return std::string(kernel.name.substr(0, kernel.name.rfind('.')));
}

Cell product_on(const CpuTarget& target, const Product& product) {
  const GemmKernel* wide = nullptr;
  for (const GemmKernel& kernel : kernels::gemm_kernels()) {
    if (kernel.dtype != product.sum || !kernel.runs_on(target)) continue;
    if (kernel.a == product.a && kernel.b == product.b && !kernel.pairs) return {family(kernel), ""};
    const auto bytes = [](const GemmKernel& each) { return byte_size(each.a) + byte_size(each.b); };
    if (!kernel.pairs && holds(product.a, kernel.a) && holds(product.b, kernel.b) &&
        (!wide || bytes(kernel) < bytes(*wide)))
      wide = &kernel;
  }
  if (!wide)
    return {kLoops,
            cat("no kernel for ", target.vector_bytes, "-byte vectors sums products in ", name(product.sum))};
  return {family(*wide),
          cat("no kernel for these instructions multiplies ", name(product.a), " by ", name(product.b),
              "; the factors are read as ", name(wide->a), " and ", name(wide->b))};
}

Cell product_on(const GpuTarget& target, const Product& product) {
  const bool tensor = kernels::is_tensor_type(product.a) && kernels::is_tensor_type(product.b);
  if (tensor && kernels::multiplies(target, {product.a, product.b})) {
    if (target.wgmma) return {"wgmma", ""};
    return {"mma", target.tcgen05 ? "there are no kernels for tcgen05 instructions" : ""};
  }
  if (product.sum == DType::kF64) return {"simt", ""};
  if (product.sum != DType::kF32)
    return {kLoops, cat("no kernel multiplies ", name(product.a), " by ", name(product.b))};
  if (product.a == DType::kF32)
    return {"simt", "tensor cores multiply f32 only where it is rounded: --precision tf32"};
  return {"simt", cat("the GPU has no instruction that multiplies ", name(product.a),
                      "; the factors are read as f32")};
}

void add_products(OpKind op, std::vector<Row>& rows) {
  for (const Product& product : products()) {
    Row row{std::string(graph::name(op)), product.text(), {}};
    for (const CpuTarget& target : cpu_targets()) row.cells.push_back(product_on(target, product));
    for (const GpuTarget& target : gpu_targets()) row.cells.push_back(product_on(target, product));
    rows.push_back(std::move(row));
  }
}

std::vector<Cell> cells_of(const codegen::cuda::Routine& routine) {
  return everywhere({kRoutine, ""},
                    routine.emit ? Cell{kRoutine, ""} : Cell{kRefused, std::string(routine.reason)});
}

// What is no nest and no routine.
std::vector<Cell> cells_of(OpKind op) {
  switch (op) {
    case OpKind::kConstant:
    case OpKind::kStopGradient:
    case OpKind::kAsSoftmax:
    case OpKind::kUserGradient: return everywhere({"no code", ""}, {"no code", ""});
    case OpKind::kIf:
    case OpKind::kSymbolOf: return everywhere({"host program", ""}, {"host program", ""});
    case OpKind::kLoop:
      return everywhere({"host program", ""},
                        {"host program", "refused where a loop without a bound collects rows"});
    case OpKind::kUserKernel:
      return everywhere({"the user's C", ""}, {"the user's CUDA", "refused where it is written in C alone"});
    default: return everywhere({kLoops, ""}, {kLoops, ""});
  }
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (int kind = 0; kind < graph::kOpCount; ++kind) {
    const auto op = static_cast<OpKind>(kind);
    const std::string name(graph::name(op));
    if (op == OpKind::kCall) continue;  // its routines have rows
    if (op == OpKind::kDotGeneral || op == OpKind::kConv || op == OpKind::kConvTranspose)
      add_products(op, rows);
    else if (!loop::find_routine(name))
      rows.push_back({name, "", cells_of(op)});
  }
  for (const codegen::cuda::Routine& routine : codegen::cuda::routines())
    rows.push_back({std::string(routine.name), "", cells_of(routine)});
  return rows;
}

// A line for the devices with equal cells, in the order of the first.
void print_text(const std::vector<Row>& rows) {
  const std::vector<std::string> names = devices();
  std::vector<std::vector<std::string>> lines = {
      {"operation", "types", "computed by", "on", "why not faster"}};
  for (const Row& row : rows) {
    std::vector<Cell> told;
    for (const Cell& cell : row.cells) {
      if (std::ranges::count(told, cell) > 0) continue;
      std::vector<std::string> on;
      for (size_t d = 0; d < names.size(); ++d)
        if (row.cells[d] == cell) on.push_back(names[d]);
      const bool first = told.empty();
      lines.push_back({first ? row.operation : "", first ? row.types : "", cell.by,
                       on.size() == names.size() ? "all" : join(on, " "), cell.why});
      told.push_back(cell);
    }
  }
  std::printf("%s", table(lines).c_str());
}

void print_json(const std::vector<Row>& rows) {
  const std::vector<std::string> names = devices();
  Json all = Json::array();
  for (const Row& row : rows) {
    Json json = {{"operation", row.operation}, {"types", row.types}, {"devices", Json::object()}};
    for (size_t d = 0; d < names.size(); ++d)
      json["devices"][names[d]] = {{"by", row.cells[d].by}, {"why_not_faster", row.cells[d].why}};
    all.push_back(std::move(json));
  }
  std::printf("%s\n", all.dump(2).c_str());
}

int run(const std::vector<std::string>& wanted, const Globals& globals) {
  std::vector<Row> rows = all_rows();
  std::vector<std::string> names;
  for (const Row& row : rows) names.push_back(row.operation);
  for (const std::string& name : wanted)
    if (std::ranges::count(names, name) == 0)
      fail(ErrorKind::kUsage, "unknown-op", cat("there is no operation '", name, "'"),
           cat(did_you_mean(name, names), "'stridec backends' lists them"));
  if (!wanted.empty())
    std::erase_if(rows, [&](const Row& row) { return std::ranges::count(wanted, row.operation) == 0; });
  globals.json ? print_json(rows) : print_text(rows);
  return 0;
}

}  // namespace

std::function<int()> declare_backends(CLI::App& app, const Globals& globals) {
  auto wanted = std::make_shared<std::vector<std::string>>();
  app.add_option("operations", *wanted, "show these alone: primitive operations, as in graphs, or routines");
  return [wanted, &globals] { return run(*wanted, globals); };
}

}  // namespace stridec::cli
