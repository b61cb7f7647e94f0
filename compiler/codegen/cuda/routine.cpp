// Sort, top-k, suppression of boxes and Fourier transforms: a thread per row, pairs of key and index in the workspace.
// Stable, so equal elements keep their order in either direction. Short rows are sorted by a block in shared memory, and a
// block looks for the few best of a long one.
#include <functional>
#include <vector>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/codegen/fourier.h"
#include "compiler/codegen/sort.h"
#include "compiler/codegen/suppress.h"

namespace stridec::codegen::cuda {

bool has_routine(std::string_view routine) {
  return routine == "sort" || routine == "topk" || routine == "suppress" || routine == "fourier";
}

namespace {

constexpr int kSortThreads = 256, kSelectThreads = 512;
constexpr int64_t kSorted = 4096, kSelected = 128;  // elements of a row; of its best

// Items are pairs of key and index in one number, in the order of the result: no two are equal.
struct RowSorter {
  const loop::Program& program;
  const loop::Call& call;
  const GpuTarget& target;
  const bool sort = call.routine == "sort";
  const DType dtype = program[call.reads[0]].dtype;
  const sym::Expr n = call.arguments[1], kept = sort ? n : call.arguments[3];
  KernelText text{program, kCudaText};

  void open_rows() {
    const sym::Expr rows = call.arguments[0] * call.arguments[2];
    text.line(cat("const int64_t n = ", text.size(n), ", inner = ", text.size(call.arguments[2]),
                  ", kept = ", text.size(kept), ";"));
    text.line(cat("const u32 flip = ", text.size(call.arguments[sort ? 3 : 4]), " ? ",
                  sort_key(dtype).everything(), " : 0;"));
    text.open(cat("for (int64_t row = blockIdx.x; row < ", text.size(rows), "; row += gridDim.x)"));
    text.line(cat("const ", text.storage_type(dtype), "* x = ", text.pointer(call.reads[0]),
                  " + row / inner * n * inner + row % inner;"));
    print_sort_key(text, dtype);
    text.line("const auto item_at = [=](int64_t i) { return (u64)key_at(i) << 32 | (u64)i; };");
  }
  // The result's element number j is the row's that the item tells.
  void print_result(const std::string& j, const std::string& item) {
    text.line(cat("const int64_t to = (row / inner * kept + ", j, ") * inner + row % inner, from = (u32)",
                  item, ";"));
    text.line(cat(text.pointer(call.writes[0]), "[to] = x[from * inner];"));
    text.line(cat(text.pointer(call.writes[1]), "[to] = from;"));
  }
  DeviceKernel close_rows(int threads) {
    text.close();
    const sym::Expr rows = call.arguments[0] * call.arguments[2];
    return finish(
        text,
        {.grid = {sym::min(rows, 1 << 24), 1, 1}, .threads = threads, .waits = target.dependent_launch});
  }

  // Batcher's bitonic sort (1968); numbers behind the row's end are the largest.
  DeviceKernel emit_sort() {
    text.line(cat("__shared__ u64 items[", kSorted, "];"));
    open_rows();
    const std::string each = cat(" += ", kSortThreads, ")");
    text.line("int size = 1;");
    text.line("while (size < n) size *= 2;");
    text.line(cat("for (int j = threadIdx.x; j < size; j", each, " items[j] = j < n ? item_at(j) : ~0ul;"));
    text.line("__syncthreads();");
    text.open("for (int length = 2; length <= size; length *= 2)");
    text.open("for (int step = length / 2; step > 0; step /= 2)");
    text.open(cat("for (int pair = threadIdx.x; pair < size / 2; pair", each));
    text.line("const int a = pair + (pair & -step), b = a + step;");
    text.line("const u64 low = items[a], high = items[b];");
    text.line("if ((low > high) == !(a & length)) items[a] = high, items[b] = low;");
    text.close();
    text.line("__syncthreads();");
    text.close();
    text.close();
    text.open(cat("for (int j = threadIdx.x; j < kept; j", each));
    print_result("j", "items[j]");
    text.close();
    text.line("__syncthreads();");
    return close_rows(kSortThreads);
  }

  // One round for each of the best: the smallest item that is larger than the round's before.
  DeviceKernel emit_selection() {
    text.line(cat("__shared__ u64 bests[", kSelectThreads / 32, "];"));
    open_rows();
    text.line("u64 last = 0;");
    text.open("for (int64_t j = 0; j < kept; ++j)");
    text.line("u64 best = ~0ul;");
    text.line("#pragma unroll 8");
    text.open(cat("for (int64_t i = threadIdx.x; i < n; i += ", kSelectThreads, ")"));
    text.line("const u64 item = item_at(i);");
    text.line("best = (item > last || j == 0) && item < best ? item : best;");
    text.close();
    const auto meet = [&](int from) {
      text.line("#pragma unroll");
      text.open(cat("for (int d = ", from, "; d > 0; d >>= 1)"));
      text.line("const u64 other = __shfl_xor_sync(~0u, best, d);");
      text.line("best = other < best ? other : best;");
      text.close();
    };
    meet(16);
    text.line("if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;");
    text.line("__syncthreads();");
    text.line(cat("best = bests[threadIdx.x % ", kSelectThreads / 32, "];"));
    meet(kSelectThreads / 64);
    text.line("last = best;");
    text.open("if (threadIdx.x == 0)");
    print_result("j", "best");
    text.close();
    text.line("__syncthreads();");
    text.close();
    return close_rows(kSelectThreads);
  }
};

// A thread a row, for rows of any length.
DeviceKernel emit_tasks(const loop::Program& program, const loop::Call& call, const GpuTarget& target) {
  const bool suppresses = call.routine == "suppress", fourier = call.routine == "fourier";
  KernelText text(program, kCudaText);
  const sym::Expr rows = suppresses || fourier ? call.arguments[0] : call.arguments[0] * call.arguments[2];
  const std::string tasks = text.size(rows);
  const std::string loop = cat("for (int64_t task = blockIdx.x * (int64_t)64 + threadIdx.x; task < ", tasks,
                               "; task += gridDim.x * (int64_t)64)");
  if (suppresses)
    print_suppress(text, call, loop);
  else if (fourier)
    print_fourier(text, program, call, loop, 1);
  else
    print_sort(text, program, call, loop);
  const sym::Expr blocks = sym::min(sym::ceildiv(rows, 64), 4 * target.multiprocessors);
  Geometry geometry{.grid = {blocks, 1, 1}, .threads = 64};
  geometry.waits = target.dependent_launch;
  geometry.scratch_owners = blocks * 64;
  geometry.scratch_owner = "blockIdx.x * (int64_t)64 + threadIdx.x";
  return finish(text, std::move(geometry));
}

}  // namespace

DeviceNest emit_routine(const loop::Program& program, const loop::Call& call, const GpuTarget& target) {
  STRIDEC_CHECK(has_routine(call.routine), call.routine);
  DeviceNest out;
  const bool sort = call.routine == "sort";
  const auto add = [&](const std::vector<sym::Expr>& conditions, const std::function<DeviceKernel()>& emit) {
    const sym::Expr condition = sym::simplify(sym::logical_and(conditions), program.facts);
    if (condition.is_const(0) || out.is_complete()) return;
    out.choices.push_back({condition, {}, {}});
    out.choices.back().launches.push_back(emit());
  };
  if ((sort || call.routine == "topk") && sort_key(program[call.reads[0]].dtype).bytes <= 4) {
    const sym::Expr n = call.arguments[1];
    add({sym::le(n, kSorted)}, [&] { return RowSorter{program, call, target}.emit_sort(); });
    if (!sort)
      add({sym::le(call.arguments[3], kSelected), sym::lt(n, int64_t{1} << 32)}, [&] {
        return RowSorter{program, call, target}.emit_selection();
      });
  }
  add({}, [&] { return emit_tasks(program, call, target); });
  return out;
}

}  // namespace stridec::codegen::cuda
