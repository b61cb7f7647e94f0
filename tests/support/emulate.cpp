#include "tests/support/emulate.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cpu/jit.h"
#include "compiler/codegen/cuda/build.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/object_cache.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/flash.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/kernels/packed_weights.h"
#include "compiler/kernels/streamed_chain.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "tests/support/emulated_text.h"
#include "tests/support/race_check.h"

// Saves the stack pointer to *from and continues where `to` was saved, with the callee-saved registers. The C
// library's contexts also switch signal masks by a system call, which takes longer than most threads run.
extern "C" void sd_switch_stack(void** from, void* to);
asm(R"(
  .pushsection .text
  .local sd_switch_stack
  .type sd_switch_stack, @function
sd_switch_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
  .size sd_switch_stack, .-sd_switch_stack
  .popsection
)");

namespace stridec::test {
namespace {

// ---- blocks ----

// Not a power of two, so that the tops of the stacks map to different cache sets.
constexpr size_t kStack = (128 << 10) + 5 * 64;
constexpr int kSavedRegisters = 6;
constexpr uint64_t kGuard = 0x5ddca11ab1e57acc;

// The threads of a cluster of blocks take turns. Each runs until it ends or waits for its warp, its block,
// its cluster or a word.
struct Cluster {
  enum State : uint8_t { kReady, kWarp, kBlock, kCluster, kWord, kDone };
  struct Thread {
    void* stack = nullptr;  // saved stack pointer, while the thread waits
    State state = kReady;
    std::array<uint64_t, 2> values = {};  // of this exchange and the previous one, alternating
    unsigned exchanges = 0;
    uint32_t passed = 0;  // number of passed warp barriers
    const int* word = nullptr;
    int bit = 0;
  };
  // A barrier for some of a block's threads: number of threads that have arrived, and number of completed
  // phases.
  struct Named {
    int come = 0, times = 0;
  };

  static Cluster*& current() {
    static Cluster* cluster = nullptr;
    return cluster;
  }

  Machine machine;
  void (*entry)(const int64_t*) = nullptr;
  const int64_t* words = nullptr;
  std::vector<Thread> threads;
  std::vector<std::array<Named, 16>> named;  // per block
  std::unique_ptr<char[]> stacks;            // stack_count of them
  size_t stack_count = 0;
  RaceCheck check;
  std::pair<uintptr_t, uintptr_t> locked;  // bytes that threads write under a lock
  size_t now = 0;
  unsigned first_block = 0;
  void* scheduler = nullptr;  // its saved stack pointer, while a thread runs

  void wait(State state) {
    threads[now].state = state;
    sd_switch_stack(&threads[now].stack, scheduler);
  }
  static void barrier(int of) {
    Cluster& b = *current();
    b.wait(of == kOfCluster ? kCluster : of == kOfBlock ? kBlock : kWarp);
    b.threads[b.now].passed += of == kOfWarp;
  }
  static void await(const int* word, int bit) {
    Cluster& b = *current();
    b.threads[b.now].word = word;
    b.threads[b.now].bit = bit;
    if ((*word & 1) == bit) b.wait(kWord);
  }
  static void meet(int number, int count, int waits) {
    Cluster& b = *current();
    Named& barrier = b.named[b.machine.rank][static_cast<size_t>(number)];
    const int before = barrier.times & 1;
    if (++barrier.come == count) barrier.come = 0, ++barrier.times;
    if (waits) await(&barrier.times, before);
  }
  static void touch(void* address, int64_t bytes, int store) {
    Cluster& b = *current();
    const auto at = reinterpret_cast<uintptr_t>(address), own = reinterpret_cast<uintptr_t>(b.stacks.get());
    if ((at >= own && at < own + b.stack_count * kStack) || (at >= b.locked.first && at < b.locked.second))
      return;
    b.check.touch(at, static_cast<size_t>(bytes), store,
                  {static_cast<uint32_t>(b.now), b.threads[b.now].passed});
  }
  static void meet_at(void* counter) {
    Cluster& b = *current();
    b.check.meet_at(reinterpret_cast<uintptr_t>(counter),
                    {static_cast<uint32_t>(b.now), b.threads[b.now].passed});
  }
  static uint64_t exchange(uint64_t value, int distance) {
    Cluster& b = *current();
    const size_t me = b.now, other = me ^ static_cast<size_t>(distance), turn = b.threads[me].exchanges++ % 2;
    b.threads[me].values[turn] = value;
    // Values are double-buffered: a thread that reaches the next exchange has read this one's values, and
    // they are overwritten only in the exchange after it.
    b.wait(kWarp);
    return other < b.threads.size() ? b.threads[other].values[turn] : value;
  }
  // The last word of a stack, which an overflow overwrites first.
  uint64_t& guard(size_t t) { return *reinterpret_cast<uint64_t*>(stacks.get() + t * kStack); }
  static void begin() {
    Cluster& b = *current();
    b.entry(b.words);
    b.wait(kDone);
  }

  void resume(size_t t) {
    now = t;
    machine.thread.x = static_cast<unsigned>(t) % machine.size.x;
    machine.rank = static_cast<unsigned>(t) / machine.size.x;
    machine.block.x = first_block + machine.rank;
    Thread& thread = threads[t];
    thread.state = kReady;
    if (!thread.stack) {
      // The initial stack looks as if the thread had been suspended at the start of begin(): return address,
      // with the saved registers below.
      void** top = reinterpret_cast<void**>(stacks.get() + (t + 1) * kStack) - 2;
      *top = reinterpret_cast<void*>(begin);
      thread.stack = top - kSavedRegisters;
      guard(t) = kGuard;
    }
    sd_switch_stack(&scheduler, thread.stack);
  }

  // Resumes the threads in [first, last) if each of them waits for `state` or has ended.
  void release(size_t first, size_t last, State state) {
    for (size_t t = first; t < last; ++t)
      if (threads[t].state != state && threads[t].state != kDone) return;
    if (state != kWarp) check.pass_barrier();
    for (size_t t = first; t < last; ++t)
      if (threads[t].state == state) threads[t].state = kReady;
  }

  // Runs `blocks` blocks from number `first` on.
  void run(unsigned first, size_t blocks) {
    current() = this;
    const size_t size = machine.size.x, count = blocks * size;
    first_block = first;
    threads.assign(count, {});
    named.assign(blocks, {});
    if (stack_count < count) {
      stack_count = count;
      stacks.reset(new char[count * kStack]);
    }
    check.begin_block();
    for (bool ran = true; ran;) {
      ran = false;
      for (size_t t = 0; t < count; ++t)
        while (threads[t].state == kReady) {
          ran = true;
          resume(t);
          if (threads[t].state == kReady) STRIDEC_CHECK(false, "a thread gave up its turn for nothing");
        }
      for (size_t w = 0; w < count; w += 32) release(w, std::min(count, w + 32), kWarp);
      for (size_t b = 0; b < blocks; ++b) release(b * size, (b + 1) * size, kBlock);
      release(0, count, kCluster);
      for (Thread& thread : threads)
        if (thread.state == kWord && (*thread.word & 1) != thread.bit) thread.state = kReady;
      for (const Thread& thread : threads) ran = ran || thread.state == kReady;
    }
    for (size_t t = 0; t < count; ++t) {
      STRIDEC_CHECK(threads[t].state == kDone, "threads of a block wait for each other for ever");
      STRIDEC_CHECK(guard(t) == kGuard, "a thread takes more stack than there is");
    }
  }
};

// ---- programs ----

struct Code {
  codegen::Jit jit;
  void (*entry)(const int64_t*) = nullptr;
  Machine** machine = nullptr;
};

// Checking each access is slow under a sanitizer, and other builds find the same races.
constexpr bool kLooksForRaces = !__has_feature(address_sanitizer);

// Objects are cached on disk by their text, like those of kernels. Most kernels run for less time than clang
// would take to optimise them; `tiles`: kernels with emulated tensor cores run longer and are optimised.
std::string object_of(const std::string& text, bool tells, bool tiles) {
  static const codegen::ObjectCache cache(true, codegen::cuda::BuildOptions().cache_bytes);
  const codegen::CompileOptions how{.optimize = tiles ? 1 : 0, .tell_accesses = tells};
  std::string object = codegen::cached_object(cache, "kernel.cu", text, how);
  cache.trim();
  return object;
}

Code& code_of(const std::string& text, bool tells, bool tiles) {
  static std::unordered_map<std::string, std::unique_ptr<Code>> built;
  std::unique_ptr<Code>& known = built[text];
  if (known) return *known;
  auto code = std::make_unique<Code>();
  code->jit.add_object(object_of(text, tells, tiles));
  code->entry = reinterpret_cast<void (*)(const int64_t*)>(code->jit.lookup("sd_entry"));
  code->machine = static_cast<Machine**>(code->jit.lookup("sd_machine_now"));
  known = std::move(code);
  return *known;
}

// Ready to run blocks of the kernel.
Cluster& cluster_of(const Code& code, int threads, Dim3 grid, const int64_t* words) {
  static Cluster block;
  *code.machine = &block.machine;
  block.machine.barrier = Cluster::barrier;
  block.machine.await = Cluster::await;
  block.machine.named = Cluster::meet;
  block.machine.exchange = Cluster::exchange;
  block.machine.touch = kLooksForRaces ? Cluster::touch : +[](void*, int64_t, int) {};
  block.machine.meet_at = Cluster::meet_at;
  block.entry = code.entry;
  block.words = words;
  block.machine.size = {static_cast<unsigned>(threads), 1, 1};
  block.machine.grid = grid;
  return block;
}

// Blocks may run in any order: a stride coprime to their number visits each block once.
unsigned stride_through(unsigned blocks) {
  unsigned step = blocks * 5 / 8 + 1;
  while (std::gcd(step, blocks) != 1) ++step;
  return step;
}

class Run {
 public:
  Run(const loop::Program& program, const std::vector<loop::HostTensor>& inputs) : program_(program) {
    for (const loop::Symbol& symbol : program.symbols)
      if (symbol.input >= 0)
        symbols_[symbol.var] =
            inputs[static_cast<size_t>(symbol.input)].shape[static_cast<size_t>(symbol.dim)] /
            symbol.multiple;
    memory_.resize(program.buffers.size());
    make_room();
    for (size_t b = 0; b < memory_.size(); ++b) {
      const loop::Buffer& buffer = program.buffers[b];
      if (buffer.storage == loop::Storage::kParameter && buffer.weight.bytes)
        std::memcpy(at(b), buffer.weight.bytes, buffer.weight.size);
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!inputs[i].bytes.empty())
        std::memcpy(at(static_cast<size_t>(program.inputs[i].value)), inputs[i].bytes.data(),
                    inputs[i].bytes.size());
  }

  std::optional<int64_t> known(sym::Expr e) const {
    return sym::evaluate(e, [&](sym::Expr var) -> std::optional<int64_t> {
      const auto found = symbols_.find(var);
      if (found == symbols_.end()) return std::nullopt;
      return found->second;
    });
  }
  int64_t of(sym::Expr e) const {
    const auto value = known(e);
    STRIDEC_CHECK(value.has_value());
    return *value;
  }

  // Binds a symbol to a size from data, or to a counter.
  void bind(sym::Expr symbol, int64_t value) {
    symbols_[symbol] = value;
    make_room();
  }
  int64_t integer(loop::BufferId id) {
    const DType dtype = program_[id].dtype;
    const uint8_t* element = at(static_cast<size_t>(id.value));
    return is_bool(dtype) ? *element : static_cast<int64_t>(read_integer(dtype, element));
  }
  void copy(const loop::Copy& copy) {
    std::memcpy(at(static_cast<size_t>(copy.to.value)), at(static_cast<size_t>(copy.from.value)),
                static_cast<size_t>(bytes_of(program_[copy.from]).value()));
  }

  // `schedule`: that of the kernel's nest.
  bool launch(const loop::Schedule& schedule, const codegen::DeviceKernel& kernel,
              std::vector<char>& workspace) {
    const bool matrix = kernels::is_matrix(schedule),
               flash = kernels::is_flash(schedule) || schedule.kernel == kernels::kStreamedChain ||
                       (schedule.kernel == kernels::kFlashBackward && !kernel.maps.empty());
    if (kernels::is_packed_weights(schedule) && !kernel.maps.empty()) return false;
    std::vector<int64_t> words;
    const std::vector<EmulatedMap> maps = maps_of(kernel);
    for (const EmulatedMap& map : maps) words.push_back(reinterpret_cast<int64_t>(&map));
    for (loop::BufferId id : kernel.code.buffers)
      words.push_back(reinterpret_cast<int64_t>(at(static_cast<size_t>(id.value))));
    for (const sym::Expr& size : kernel.code.sizes) words.push_back(of(size));
    for (size_t m = 0; m < kernel.code.messages.size(); ++m) words.push_back(static_cast<int64_t>(m));
    int64_t failure[8] = {};
    if (kernel.fails) words.push_back(reinterpret_cast<int64_t>(failure));
    const size_t bytes = static_cast<size_t>(of(kernel.workspace_bytes));
    if (workspace.size() < bytes) workspace.resize(bytes, '\xff');
    if (!kernel.workspace_bytes.is_const(0)) words.push_back(reinterpret_cast<int64_t>(workspace.data()));
    std::vector<unsigned> counters(static_cast<size_t>(of(kernel.counter_bytes)) / sizeof(unsigned));
    if (!counters.empty()) words.push_back(reinterpret_cast<int64_t>(counters.data()));
    // The race check does not know the ordering rules of warp groups and clusters.
    const bool tells = kernel.cluster == 1 && kernel.code.text.find("wgmma") == std::string::npos;
    Code& code = code_of(emulated_text(kernel, matrix || flash), tells, matrix || flash);
    const Dim3 grid = {static_cast<unsigned>(of(kernel.grid[0])), static_cast<unsigned>(of(kernel.grid[1])),
                       static_cast<unsigned>(of(kernel.grid[2]))};
    Cluster& block = cluster_of(code, kernel.threads, grid, words.data());
    std::map<uintptr_t, uintptr_t> memory;
    for (const std::vector<uint8_t>& bytes : memory_) add_range(memory, bytes.data(), bytes.size());
    add_range(memory, workspace.data(), workspace.size());
    block.check.begin_launch(std::move(memory));
    const auto failing = reinterpret_cast<uintptr_t>(&failure);
    block.locked = {failing, failing + sizeof(failure)};
    const auto cluster = static_cast<unsigned>(kernel.cluster);
    const unsigned clusters = block.machine.grid.x / cluster, step = stride_through(clusters);
    for (unsigned i = 0, x = 0; i < clusters; ++i, x = (x + step) % clusters) block.run(x * cluster, cluster);
    if (const auto race = block.check.race()) {
      block.check.forget();
      fail(ErrorKind::kMismatch, "race", sentence_of(*race), kernel.code.text);
    }
    STRIDEC_CHECK(std::all_of(counters.begin(), counters.end(), [](unsigned count) { return count == 0; }));
    return true;
  }

  std::vector<loop::HostTensor> outputs() {
    std::vector<loop::HostTensor> out;
    for (loop::BufferId id : program_.outputs) {
      const loop::Buffer& buffer = program_[id];
      std::vector<int64_t> shape;
      for (const sym::Expr& e : buffer.shape) shape.push_back(of(e));
      out.push_back(loop::make_tensor(buffer.dtype, shape));
      if (!out.back().bytes.empty())
        std::memcpy(out.back().bytes.data(), at(static_cast<size_t>(id.value)), out.back().bytes.size());
    }
    return out;
  }

 private:
  // What the driver requires: cuTensorMapEncodeTiled and ..Im2col of cuda.h.
  static void check_map(const EmulatedMap& map) {
    STRIDEC_CHECK(reinterpret_cast<uintptr_t>(map.base) % 16 == 0, "a map begins on no multiple of 16 bytes");
    const int line = map.box[0] * map.element;
    STRIDEC_CHECK(line % 16 == 0 && (map.swizzle == 0 || line <= map.swizzle),
                  "a box's lines are of a wrong size");
    for (int d = 0; d < map.rank; ++d) {
      STRIDEC_CHECK(map.dims[d] >= 1 && map.dims[d] <= int64_t{1} << 32,
                    "a map's dim is empty, or too large");
      STRIDEC_CHECK(
          d == 0 || (map.strides[d] % 16 == 0 && map.strides[d] > 0 && map.strides[d] < int64_t{1} << 40),
          "a map's stride is not a multiple of 16 bytes, or too large");
      STRIDEC_CHECK(map.windows || (map.box[d] >= 1 && map.box[d] <= 256), "a box is too large");
      STRIDEC_CHECK(map.steps[d] >= 1 && map.steps[d] <= 8, "a map's steps are too large");
    }
  }

  std::vector<EmulatedMap> maps_of(const codegen::DeviceKernel& kernel) {
    std::vector<EmulatedMap> out;
    for (const codegen::TensorMap& map : kernel.maps) {
      EmulatedMap& to = out.emplace_back(EmulatedMap{});
      to.base = at(static_cast<size_t>(map.buffer.value)) + of(map.offset);
      to.rank = static_cast<int>(map.dims.size());
      to.element = byte_size(map.dtype);
      to.swizzle = map.swizzle;
      to.windows = !map.lower.empty();
      for (size_t d = 0; d < map.dims.size(); ++d) {
        to.dims[d] = of(map.dims[d]);
        to.strides[d] = d ? of(map.strides[d - 1]) : to.element;
        to.steps[d] = map.element_strides.empty() ? 1 : map.element_strides[d];
      }
      std::copy(map.box.begin(), map.box.end(), to.box);
      std::copy(map.lower.begin(), map.lower.end(), to.lower);
      std::copy(map.upper.begin(), map.upper.end(), to.upper);
      check_map(to);
    }
    return out;
  }

  static void add_range(std::map<uintptr_t, uintptr_t>& ranges, const void* from, size_t bytes) {
    const auto at = reinterpret_cast<uintptr_t>(from);
    if (bytes) ranges[at] = at + bytes;
  }

  std::string sentence_of(const RaceCheck::Race& race) const {
    std::string where = "shared memory or the workspace";
    for (size_t b = 0; b < memory_.size(); ++b) {
      const auto from = reinterpret_cast<uintptr_t>(memory_[b].data());
      if (race.address >= from && race.address < from + memory_[b].size()) where = program_.buffers[b].name;
    }
    return cat("a race: thread ", race.first, race.first_stored ? " stores to " : " loads from ", where,
               " what thread ", race.second, race.second_stored ? " stores" : " loads",
               race.of_one_block ? "" : " in another block", ", and no barrier lies between");
  }

  std::optional<int64_t> bytes_of(const loop::Buffer& buffer) const {
    const auto count = known(schedule::extent_in_elements(buffer));
    return count ? std::optional(*count * byte_size(buffer.dtype)) : std::nullopt;
  }

  // Allocates buffers whose sizes have become known or have grown. Addresses are aligned only as the runtime
  // guarantees. Unwritten elements are NaN.
  void make_room() {
    for (size_t b = 0; b < memory_.size(); ++b) {
      if (program_.buffers[b].storage == loop::Storage::kLocal) continue;
      const auto bytes = bytes_of(program_.buffers[b]);
      if (!bytes || memory_[b].size() >= static_cast<size_t>(*bytes) + 64) continue;
      const std::vector<uint8_t> before = std::move(memory_[b]);
      memory_[b].assign(static_cast<size_t>(*bytes) + 64, 0xff);
      if (!before.empty()) std::memcpy(at(b), aligned(before.data()), before.size() - 64);
    }
  }

  template <class T>
  static T* aligned(T* bytes) {
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(bytes) + 63) / 64 * 64);
  }
  uint8_t* at(size_t buffer) { return aligned(memory_[buffer].data()); }

  const loop::Program& program_;
  loop::Bindings symbols_;
  std::vector<std::vector<uint8_t>> memory_;
};

}  // namespace

std::optional<std::vector<loop::HostTensor>> emulate(const loop::Program& program,
                                                     const std::vector<loop::HostTensor>& inputs,
                                                     const GpuTarget& target, size_t choice,
                                                     size_t* choices) {
  if (!program.prepack.empty()) return std::nullopt;
  Run run(program, inputs);
  std::vector<char> workspace;
  *choices = 0;
  const std::function<bool(const loop::Steps&)> steps = [&](const loop::Steps& list) {
    for (const loop::Step& step : list) {
      if (const auto* branch = std::get_if<loop::If>(&step.node)) {
        if (!steps(run.of(branch->condition) ? branch->then_steps : branch->else_steps)) return false;
        continue;
      }
      if (const auto* bind = std::get_if<loop::BindSymbol>(&step.node)) {
        const int64_t value = run.integer(bind->buffer);
        if (value < run.of(bind->lower) || value > run.of(bind->upper))
          fail(ErrorKind::kDoesNotFit, "out-of-range", bind->sentence);
        run.bind(bind->symbol, value);
        continue;
      }
      if (const auto* loop = std::get_if<loop::While>(&step.node)) {
        const int64_t trips = run.of(loop->trip_count);
        int64_t i = 0;
        for (; i < trips && !(loop->condition.valid() && run.integer(loop->condition) == 0); ++i) {
          run.bind(loop->counter, i);
          if (!steps(loop->body)) return false;
        }
        if (loop->iterations.is_var()) run.bind(loop->iterations, i);
        continue;
      }
      if (const auto* copy = std::get_if<loop::Copy>(&step.node)) {
        run.copy(*copy);
        continue;
      }
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      const auto* call = std::get_if<loop::Call>(&step.node);
      if (!call && !launch) return false;
      const codegen::DeviceNest made = call
                                           ? codegen::cuda::emit_routine(program, *call, target)
                                           : codegen::cuda::emit_nest(program, program[launch->nest], target);
      std::vector<const codegen::DeviceChoice*> open;
      for (const codegen::DeviceChoice& c : made.choices)
        if (run.of(c.condition)) open.push_back(&c);
      STRIDEC_CHECK(!open.empty(), "no choice is left");
      *choices = std::max(*choices, open.size());
      for (const codegen::DeviceKernel& kernel : open[std::min(choice, open.size() - 1)]->launches)
        if (!run.launch(call ? loop::Schedule() : program[launch->nest].schedule, kernel, workspace))
          return false;
    }
    return true;
  };
  if (!steps(program.steps)) return std::nullopt;
  return run.outputs();
}

void emulate_launch(const codegen::DeviceKernel& kernel, unsigned blocks, const int64_t* words) {
  Cluster& block =
      cluster_of(code_of(emulated_text(kernel, false), true, false), kernel.threads, {blocks, 1, 1}, words);
  block.check.begin_launch({});
  block.locked = {};
  const unsigned step = stride_through(blocks);
  for (unsigned i = 0, x = 0; i < blocks; ++i, x = (x + step) % blocks) block.run(x, 1);
  if (block.check.race()) {
    block.check.forget();
    fail(ErrorKind::kMismatch, "race", "threads of the kernel store and load without a barrier between",
         kernel.code.text);
  }
}

}  // namespace stridec::test
