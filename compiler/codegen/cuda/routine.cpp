// Emits sort, top-k, NMS, and routines that run a task a thread. The fallback of sort and top-k uses one
// thread per row, with pairs of key and index in the workspace. Sorts are stable: equal elements keep their
// order in either direction. A block sorts short rows in shared memory. For long rows it selects the best few
// one by one, or finds the last of many digit by digit. A warp selects the best few of a row that fits its
// registers.
#include <algorithm>
#include <functional>
#include <iterator>
#include <vector>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/eigen.h"
#include "compiler/codegen/fourier.h"
#include "compiler/codegen/nms.h"
#include "compiler/codegen/philox.h"
#include "compiler/codegen/sort.h"
#include "compiler/codegen/user_kernel.h"
#include "compiler/loop/user_kernel.h"

namespace stridec::codegen::cuda {

namespace {

constexpr int kSortThreads = 256, kSelectThreads = 512, kDigitThreads = 1024;
constexpr int64_t kSorted = 4096;  // elements of a row that a block sorts
constexpr int64_t kSelected = 4;   // most results that are selected one by one
constexpr int64_t kDigits = 2048;  // most results that are found by digits
constexpr int kOwn = 32;           // elements of a row per thread of a warp
constexpr int64_t kFewBest = 16;   // most results of such a row
constexpr int kDigitBits = 11;

// Items are pairs of key and index in one integer, in result order; no two are equal.
struct RowSorter {
  const loop::Program& program;
  const loop::Call& call;
  const GpuTarget& target;
  const DType dtype = program[call.reads[0]].dtype;
  const SortArguments at{call};
  KernelText text{program, kCudaText};

  sym::Expr rows() const { return call.arguments[0] * call.arguments[2]; }

  // Opens the loop over rows; `teams` thread groups of a block have one row each.
  void open_rows(int teams = 1) {
    text.line(cat("const int64_t n = ", text.size(at.n), ", inner = ", text.size(at.inner),
                  ", kept = ", text.size(at.kept), ";"));
    text.line(
        cat("const u32 flip = ", text.size(at.descending), " ? ", sort_key(dtype).everything(), " : 0;"));
    const std::string step = teams == 1 ? "gridDim.x" : cat("gridDim.x * (int64_t)", teams);
    text.open(cat("for (int64_t row = blockIdx.x",
                  teams == 1 ? "" : cat(" * (int64_t)", teams, " + threadIdx.x / 32"), "; row < ",
                  text.size(rows()), "; row += ", step, ")"));
    text.line(cat("const ", text.storage_type(dtype), "* x = ", text.pointer(call.reads[0]),
                  " + row / inner * n * inner + row % inner;"));
    print_sort_key(text, dtype);
    text.line("const auto item_at = [=](int64_t i) { return (u64)key_at(i) << 32 | (u64)i; };");
  }
  // Stores as result element j the element of the row that the item refers to.
  void print_result(const std::string& j, const std::string& item) {
    text.line(cat("const int64_t to = (row / inner * kept + ", j, ") * inner + row % inner, from = (u32)",
                  item, ";"));
    text.line(cat(text.pointer(call.writes[0]), "[to] = x[from * inner];"));
    text.line(cat(text.pointer(call.writes[1]), "[to] = from;"));
  }
  DeviceKernel close_rows(int threads, int teams = 1) {
    text.close();
    return finish(text, {.grid = {sym::min(sym::ceildiv(rows(), teams), 1 << 24), 1, 1},
                         .threads = threads,
                         .waits = target.dependent_launch});
  }

  void print_size(const std::string& count) {
    text.line("int size = 1;");
    text.line(cat("while (size < ", count, ") size *= 2;"));
  }

  // Batcher's bitonic sort (1968) of items[0 .. size), and the store of the first results.
  void print_sorted(int threads) {
    const std::string each = cat(" += ", threads, ")");
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
  }

  // Positions beyond the row's end get the largest value.
  DeviceKernel emit_sort() {
    text.line(cat("__shared__ u64 items[", kSorted, "];"));
    open_rows();
    print_size("n");
    text.line(cat("for (int j = threadIdx.x; j < size; j += ", kSortThreads,
                  ") items[j] = j < n ? item_at(j) : ~0ul;"));
    print_sorted(kSortThreads);
    return close_rows(kSortThreads);
  }

  // The minimum of `best` over a warp's threads.
  void print_least(int from) {
    text.line("#pragma unroll");
    text.open(cat("for (int d = ", from, "; d > 0; d >>= 1)"));
    text.line("const u64 other = __shfl_xor_sync(~0u, best, d);");
    text.line("best = other < best ? other : best;");
    text.close();
  }

  // One warp per row, whose items stay in registers; an item that is taken is moved to the end.
  DeviceKernel emit_own() {
    constexpr int kTeams = kSortThreads / 32, kGroup = 8;
    open_rows(kTeams);
    const auto groups = [&](const char* statement) {
      text.line("#pragma unroll");
      text.open(cat("for (int g = 0; g < ", kOwn, "; g += ", kGroup, ")"));
      text.open("if (g * 32 < n)");
      text.line("#pragma unroll");
      text.open(cat("for (int u = g; u < g + ", kGroup, "; ++u)"));
      text.line(statement);
      for (int i = 0; i < 3; ++i) text.close();
    };
    text.line("const int lane = threadIdx.x % 32;");
    text.line(cat("u64 own[", kOwn, "];"));
    groups("own[u] = lane + u * 32 < n ? item_at(lane + u * 32) : ~0ul;");
    text.open("for (int j = 0; j < kept; ++j)");
    text.line("u64 best = ~0ul;");
    groups("best = own[u] < best ? own[u] : best;");
    print_least(16);
    groups("own[u] = own[u] == best ? ~0ul : own[u];");
    text.open("if (lane == 0)");
    print_result("j", "best");
    text.close();
    text.close();
    return close_rows(kSortThreads, kTeams);
  }

  // Finds the last of the best items from its highest digit down: among the items that match its digits so
  // far, counts each value of the next digit. Lower digits are not needed once all items with that digit
  // belong to the best. Then sorts all items that are not larger.
  DeviceKernel emit_digits() {
    constexpr int kBins = 1 << kDigitBits, kEach = kBins / kDigitThreads;
    const std::string each = cat(" += ", kDigitThreads, ")");
    const int bits = 32 + 8 * sort_key(dtype).bytes;
    text.line(cat("__shared__ u64 items[", kDigits, "];"));
    text.line(cat("__shared__ unsigned counts[", kBins, "], sums[32], found[3], taken;"));
    open_rows();
    text.line("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;");
    text.line("if (threadIdx.x == 0) taken = 0;");
    text.line("unsigned wanted = (unsigned)kept;");
    text.line("u64 digits = 0;");
    text.line(cat("int top = ", bits, ";  // `digits` holds the bits from this one on"));
    text.open("for (int low; top > 0; top = low)");
    text.line(cat("low = top > ", kDigitBits, " ? top - ", kDigitBits, " : 0;"));
    text.open("if (top <= 32 && (n - 1) >> low == 0)");  // index digits that are always zero
    text.line("digits <<= top - low;");
    text.line("continue;");
    text.close();
    text.line(cat("for (int b = threadIdx.x; b < ", kBins, "; b", each, " counts[b] = 0;"));
    text.line("__syncthreads();");
    text.line("#pragma unroll 4");
    text.open(cat("for (int64_t i = threadIdx.x; i < n; i", each));
    text.line("const u64 item = item_at(i);");
    text.line(
        cat("if (top == ", bits,
            " || item >> top == digits) atomicAdd(&counts[(item >> low) & ((1 << (top - low)) - 1)], 1u);"));
    text.close();
    text.line("__syncthreads();");
    // Number of items before a thread's bins.
    text.line(cat("unsigned own = 0;"));
    text.line("#pragma unroll");
    text.line(cat("for (int e = 0; e < ", kEach, "; ++e) own += counts[threadIdx.x * ", kEach, " + e];"));
    const auto running = [&](const char* sum) {
      text.line("#pragma unroll");
      text.open("for (int d = 1; d < 32; d *= 2)");
      text.line(cat("const unsigned before = __shfl_sync(~0u, ", sum, ", lane >= d ? lane - d : lane);"));
      text.line(cat(sum, " += lane >= d ? before : 0;"));
      text.close();
    };
    text.line("unsigned sum = own;");
    running("sum");
    text.line("if (lane == 31) sums[warp] = sum;");
    text.line("__syncthreads();");
    text.line("unsigned all = sums[lane];");
    running("all");
    text.line("const unsigned warps = __shfl_sync(~0u, all, warp > 0 ? warp - 1 : 0);");
    text.line("unsigned before = sum - own + (warp > 0 ? warps : 0);");
    text.line("#pragma unroll");
    text.open(cat("for (int e = 0; e < ", kEach, "; ++e)"));
    text.line(cat("const unsigned count = counts[threadIdx.x * ", kEach, " + e];"));
    text.line(cat("if (before < wanted && wanted <= before + count) found[0] = threadIdx.x * ", kEach,
                  " + e, found[1] = before, found[2] = count;"));
    text.line("before += count;");
    text.close();
    text.line("__syncthreads();");
    text.line("digits = digits << (top - low) | found[0];");
    text.line("wanted -= found[1];");
    text.open("if (found[2] == wanted)");
    text.line("top = low;");
    text.line("break;");
    text.close();
    text.close();
    print_size("kept");
    text.line(cat("for (int64_t j = kept + threadIdx.x; j < size; j", each, " items[j] = ~0ul;"));
    text.line("#pragma unroll 4");
    text.open(cat("for (int64_t i = threadIdx.x; i < n; i", each));
    text.line("const u64 item = item_at(i);");
    text.line("if (item >> top <= digits) items[atomicAdd(&taken, 1u)] = item;");
    text.close();
    print_sorted(kDigitThreads);
    return close_rows(kDigitThreads);
  }

  // One round per result: selects the smallest item that is larger than the previous round's.
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
    print_least(16);
    text.line("if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;");
    text.line("__syncthreads();");
    text.line(cat("best = bests[threadIdx.x % ", kSelectThreads / 32, "];"));
    print_least(kSelectThreads / 64);
    text.line("last = best;");
    text.open("if (threadIdx.x == 0)");
    print_result("j", "best");
    text.close();
    text.line("__syncthreads();");
    text.close();
    return close_rows(kSelectThreads);
  }
};

// One thread per row, for rows of any length. print(text, loop) prints the rows' computation in the loop, for
// which a thread has `scratch`.
template <class Print>
DeviceKernel emit_tasks(const loop::Program& program, sym::Expr rows, const std::vector<sym::Expr>& scratch,
                        const GpuTarget& target, Print&& print) {
  KernelText text(program, kCudaText);
  const std::string tasks = text.size(rows);
  const std::string loop = cat("for (int64_t task = blockIdx.x * (int64_t)64 + threadIdx.x; task < ", tasks,
                               "; task += gridDim.x * (int64_t)64)");
  print(text, loop);
  const sym::Expr blocks = sym::min(sym::ceildiv(rows, 64), 4 * target.multiprocessors);
  Geometry geometry{.grid = {blocks, 1, 1}, .threads = 64};
  geometry.waits = target.dependent_launch;
  geometry.scratch_bytes = scratch_bytes(scratch);
  geometry.scratch_owners = sym::min(sym::max(rows, 1), blocks * 64);  // the others have no task
  geometry.scratch_owner = "blockIdx.x * (int64_t)64 + threadIdx.x";
  return finish(text, std::move(geometry));
}

// The user's kernel, with the grid that the user gives.
DeviceKernel emit_user(const loop::Program& program, const loop::Call& call, const loop::UserKernel& user,
                       const GpuTarget& target) {
  using Last = loop::UserArguments;
  const loop::UserArguments at(user);
  KernelText text(program, kCudaText);
  for (const char* snippet : {"to.f16", "from.f16", "to.bf16", "from.bf16"}) text.use(snippet);
  std::vector<std::string> data, sizes;
  for (size_t t = 0; t < user.tensor_count(); ++t) {
    const size_t own = t - call.reads.size();
    const loop::BufferId buffer = t < call.reads.size() ? call.reads[t] : call.writes[own];
    data.push_back(cat(text.pointer(buffer), " + ", text.size(call.arguments[at.offset(t)])));
  }
  for (size_t i = 0; i < at.last(Last::kPoints); ++i) sizes.push_back(text.size(call.arguments[i]));
  const UserCudaText made = user_kernel_cuda(user, data, sizes);
  text.append(made.call);
  const auto last = [&](Last::Last which) { return call.arguments[at.last(which)]; };
  Geometry geometry{.grid = {last(Last::kGridX), last(Last::kGridY), last(Last::kGridZ)},
                    .threads = user.threads,
                    .shared_bytes = last(Last::kSharedBytes)};
  geometry.waits = target.dependent_launch;
  return finish(text, std::move(geometry), made.declarations);
}

DeviceNest emit_sort(const loop::Program& program, const loop::Call& call, const GpuTarget& target) {
  DeviceNest out;
  const auto add = [&](const std::vector<sym::Expr>& conditions, const std::function<DeviceKernel()>& emit) {
    const sym::Expr condition = sym::simplify(sym::logical_and(conditions), program.facts);
    if (condition.is_const(0) || out.is_complete()) return;
    out.choices.push_back({condition, {}, {}});
    out.choices.back().launches.push_back(emit());
  };
  if (sort_key(program[call.reads[0]].dtype).bytes <= 4) {
    const auto emit = [&](DeviceKernel (RowSorter::*kernel)()) {
      return [&, kernel] { return (RowSorter{program, call, target}.*kernel)(); };
    };
    const SortArguments at(call);
    const sym::Expr n = at.n, kept = at.kept;
    const sym::Expr fits = sym::lt(n, int64_t{1} << 32), some = sym::ge(kept, 1);
    if (!at.all) add({sym::le(n, kOwn * 32), sym::le(kept, kFewBest)}, emit(&RowSorter::emit_own));
    // A few results of a long row are found faster than the row is sorted.
    add({sym::le(n, kSorted), sym::logical_or({{sym::le(n, kSorted / 4), sym::gt(4 * kept, n)}})},
        emit(&RowSorter::emit_sort));
    if (!at.all) {
      add({sym::le(kept, kSelected), fits}, emit(&RowSorter::emit_selection));
      add({sym::le(kept, kDigits), some, fits}, emit(&RowSorter::emit_digits));
    }
  }
  add({}, [&] {
    return emit_tasks(
        program, call.arguments[0] * call.arguments[2], sort_scratch(program, call), target,
        [&](KernelText& text, const std::string& loop) { print_sort(text, program, call, loop); });
  });
  return out;
}

DeviceNest emit_suppress(const loop::Program& program, const loop::Call& call, const GpuTarget& target) {
  return only(
      emit_tasks(program, call.arguments[0], {suppress_scratch(call)}, target,
                 [&](KernelText& text, const std::string& loop) { print_suppress(text, call, loop); }));
}

DeviceNest emit_fourier(const loop::Program& program, const loop::Call& call, const GpuTarget& target) {
  return only(emit_tasks(
      program, call.arguments[0], {fourier_scratch(program, call, 1)}, target,
      [&](KernelText& text, const std::string& loop) { print_fourier(text, program, call, loop, 1); }));
}

DeviceNest emit_philox_draw(const loop::Program& program, const loop::Call& call, const GpuTarget& target) {
  return only(
      emit_tasks(program, philox_tasks(call), {}, target,
                 [&](KernelText& text, const std::string& loop) { print_philox_draw(text, call, loop); }));
}

DeviceNest emit_eigen(const loop::Program& program, const loop::Call& call, const GpuTarget& target) {
  return only(
      emit_tasks(program, call.arguments[0], {eigen_scratch(call)}, target,
                 [&](KernelText& text, const std::string& loop) { print_eigen(text, program, call, loop); }));
}

constexpr const char* kHostCodecs = "the codecs of runtime/image are functions of the host";
constexpr Routine kRoutines[] = {
    {"sort", emit_sort},
    {"topk", emit_sort},
    {"suppress", emit_suppress},
    {"fourier", emit_fourier},
    {"image_size", nullptr, kHostCodecs},
    {"image_decode", nullptr, kHostCodecs},
    {"mersenne_uniform", nullptr, "each number of the stream depends on those before it"},
    {"mersenne_draw", nullptr, "each number of the stream depends on those before it"},
    {"philox_draw", emit_philox_draw},
    {"eigen", emit_eigen},
};

const Routine* find_routine(std::string_view name) {
  const auto found = std::ranges::find(kRoutines, name, &Routine::name);
  return found == std::end(kRoutines) ? nullptr : found;
}

}  // namespace

std::span<const Routine> routines() { return kRoutines; }

bool has_routine(std::string_view routine) {
  if (const auto user = loop::find_user_kernel(routine)) return user->cuda.has_value();
  const Routine* found = find_routine(routine);
  return found && found->emit;
}

DeviceNest emit_routine(const loop::Program& program, const loop::Call& call, const GpuTarget& target) {
  STRIDEC_CHECK(has_routine(call.routine), call.routine);
  if (const auto user = loop::find_user_kernel(call.routine))
    return only(emit_user(program, call, *user, target));
  return find_routine(call.routine)->emit(program, call, target);
}

}  // namespace stridec::codegen::cuda
