#include "tests/support/emulate.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cpu/jit.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/matrix.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/flash.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/effects.h"
#include "tests/support/race_check.h"

namespace stridec::test {
namespace {

#define STRIDEC_UNARY(X)                                                                                 \
  X(exp)                                                                                                 \
  X(exp2)                                                                                                \
  X(expm1) X(log) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) \
      X(acosh) X(atanh) X(erf)
#define STRIDEC_BINARY(X) X(pow) X(atan2) X(fmod)

struct Dim3 {
  unsigned x = 0, y = 0, z = 0;
};

// What the compiled text sees of its machine; the text declares the same.
struct Machine {
  Dim3 thread, block, size, grid;
  void (*barrier)(int of_block);
  uint64_t (*exchange)(uint64_t value, int distance);
  void (*touch)(void* address, int64_t bytes, int store);
#define X(name) float (*name##f_)(float) = std::name;
  STRIDEC_UNARY(X)
#undef X
#define X(name) double (*name##_)(double) = std::name;
  STRIDEC_UNARY(X)
#undef X
#define X(name) float (*name##f_)(float, float) = std::name;
  STRIDEC_BINARY(X)
#undef X
#define X(name) double (*name##_)(double, double) = std::name;
  STRIDEC_BINARY(X)
#undef X
};

std::string machine_text() {
  std::string out = R"(#define STRIDEC_EMULATE 1
struct sd_dim3 { unsigned x, y, z; };
struct sd_machine {
  sd_dim3 thread, block, size, grid;
  void (*barrier)(int);
  unsigned long (*exchange)(unsigned long, int);
  void (*touch)(void*, long, int);
)";
  std::string macros;
#define X(name)                              \
  out += "  float (*" #name "f_)(float);\n"; \
  macros += "#define " #name "f(x) (*sd_machine_now->" #name "f_)(x)\n";
  STRIDEC_UNARY(X)
#undef X
#define X(name)                               \
  out += "  double (*" #name "_)(double);\n"; \
  macros += "#define " #name "(x) (*sd_machine_now->" #name "_)(x)\n";
  STRIDEC_UNARY(X)
#undef X
#define X(name)                                     \
  out += "  float (*" #name "f_)(float, float);\n"; \
  macros += "#define " #name "f(x, y) (*sd_machine_now->" #name "f_)(x, y)\n";
  STRIDEC_BINARY(X)
#undef X
#define X(name)                                       \
  out += "  double (*" #name "_)(double, double);\n"; \
  macros += "#define " #name "(x, y) (*sd_machine_now->" #name "_)(x, y)\n";
  STRIDEC_BINARY(X)
#undef X
  return out + "};\nextern \"C\" sd_machine* sd_machine_now = nullptr;\n" + macros + R"(
#define threadIdx sd_machine_now->thread
#define blockIdx sd_machine_now->block
#define blockDim sd_machine_now->size
#define gridDim sd_machine_now->grid
#define __global__
#define __shared__ static
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __syncthreads() sd_machine_now->barrier(1)
#define __syncwarp(members) sd_machine_now->barrier(0)
#define __threadfence_system()
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
#define SD_UNSEEN __attribute__((disable_sanitizer_instrumentation))
extern "C" {
SD_UNSEEN void __tsan_func_entry(void*) {}
SD_UNSEEN void __tsan_func_exit() {}
#define SD_TOLD(name, bytes) \
  SD_UNSEEN void __tsan_read##name(void* at) { sd_machine_now->touch(at, bytes, 0); } \
  SD_UNSEEN void __tsan_write##name(void* at) { sd_machine_now->touch(at, bytes, 1); } \
  SD_UNSEEN void __tsan_unaligned_read##name(void* at) { sd_machine_now->touch(at, bytes, 0); } \
  SD_UNSEEN void __tsan_unaligned_write##name(void* at) { sd_machine_now->touch(at, bytes, 1); }
SD_TOLD(1, 1) SD_TOLD(2, 2) SD_TOLD(4, 4) SD_TOLD(8, 8) SD_TOLD(16, 16)
SD_UNSEEN void* __tsan_memcpy(void* to, void* from, unsigned long bytes) {
  sd_machine_now->touch(from, bytes, 0);
  sd_machine_now->touch(to, bytes, 1);
  return __builtin_memcpy(to, from, bytes);
}
SD_UNSEEN void* __tsan_memmove(void* to, void* from, unsigned long bytes) { return __tsan_memcpy(to, from, bytes); }
SD_UNSEEN void* __tsan_memset(void* to, int byte, unsigned long bytes) {
  sd_machine_now->touch(to, bytes, 1);
  return __builtin_memset(to, byte, bytes);
}
}
template <class T> static inline T __shfl_xor_sync(unsigned, T x, int distance) {
  unsigned long bits = 0;
  __builtin_memcpy(&bits, &x, sizeof(T));
  bits = sd_machine_now->exchange(bits, distance);
  __builtin_memcpy(&x, &bits, sizeof(T));
  return x;
}
static inline bool __any_sync(unsigned members, bool x) {
  for (int distance = 1; distance < 32; distance *= 2) x |= __shfl_xor_sync(members, x, distance);
  return x;
}
template <class T> SD_UNSEEN static inline T atomicCAS(T* at, T expected, T value) {
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}
template <class T> SD_UNSEEN static inline T atomicExch(T* at, T value) {
  const T old = *at;
  *at = value;
  return old;
}
template <class T, T... I> struct sd_numbers {};
template <class... A, int... I>
static inline void sd_apply(void (*kernel)(A...), const long* words, sd_numbers<int, I...>) {
  kernel((A)words[I]...);
}
template <class... A> static inline void sd_apply(void (*kernel)(A...), const long* words) {
  sd_apply(kernel, words, __make_integer_seq<sd_numbers, int, sizeof...(A)>());
}
#define KERNEL kernel
)";
}

// ---- tiles of matrix products: copies come at once, and shared addresses are offsets in one array

constexpr std::string_view kSharedArray = "extern __shared__ __align__(1024) unsigned char shared[];";

constexpr std::string_view kMemory = R"(
struct alignas(8) float2 { float x, y; };
struct alignas(8) int2 { int x, y; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
#define fmaf(a, b, c) __builtin_fmaf(a, b, c)
#define fmaxf(a, b) __builtin_fmaxf(a, b)
#define fma(a, b, c) __builtin_fma(a, b, c)
#define __cvta_generic_to_shared(p) ((const unsigned char*)(p) - sd_shared)
template <int kBytes> static inline unsigned swizzled(int line, int at) {
  const int turn = kBytes >= 128 ? line & 7 : kBytes == 64 ? line >> 1 & 3 : kBytes == 32 ? line >> 2 & 1 : 0;
  return line * kBytes + ((at >> 4 ^ turn) << 4 | (at & 15));
}
template <int kBytes> static inline void copy_some(unsigned to, const void* from, unsigned bytes) {
  __builtin_memcpy(sd_shared + to, from, bytes);
  __builtin_memset(sd_shared + to + bytes, 0, kBytes - bytes);
}
template <int kBytes> static inline void copy_async(unsigned to, const void* from, bool live) {
  copy_some<kBytes>(to, from, live ? kBytes : 0);
}
static inline void launch_dependents() {}
static inline void wait_predecessor() {}
static inline void commit_copies() {}
static inline void wait_all_copies() {}
template <int kGroups> static inline void wait_copies() {}
template <class T> static inline void store_shared(unsigned to, T v) { __builtin_memcpy(sd_shared + to, &v, sizeof(T)); }
static inline void prefetch(const void*) {}
static inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
template <int kBytes> static inline void move_wide(void* to, const void* from) { __builtin_memcpy(to, from, kBytes); }
)";

// A warp's lanes see each other's words; instructions are what PTX ISA says of their fragments.
constexpr std::string_view kMma = R"(
static unsigned sd_words[32][6][32];
static inline void load_rows(unsigned (&r)[4], unsigned from, bool turned) {
  unsigned (*words)[32] = sd_words[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  words[0][lane] = from;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const auto row = [&](int line) { return sd_shared + words[0][i * 8 + line]; };
    if (!turned) {
      r[i] = *(const unsigned*)(row(lane / 4) + lane % 4 * 4);
    } else {
      r[i] = ((const unsigned short*)row(lane % 4 * 2))[lane / 4] |
             (unsigned)((const unsigned short*)row(lane % 4 * 2 + 1))[lane / 4] << 16;
    }
  }
  __syncwarp();
}
static inline void load_matrices(unsigned (&r)[4], unsigned from) { load_rows(r, from, false); }
static inline void load_transposed(unsigned (&r)[4], unsigned from) { load_rows(r, from, true); }
// Numbers of a word.
static inline float sd_small(unsigned b, int mantissa, int bias) {
  const int exponent = (b & 127) >> mantissa, fraction = b & ((1 << mantissa) - 1);
  const float size = exponent ? (float)((1 << mantissa) + fraction) : (float)fraction;
  const int power = (exponent ? exponent : 1) - bias - mantissa;
  const float scale = __builtin_bit_cast(float, (unsigned)(127 + power) << 23);
  return b & 128 ? -size * scale : size * scale;
}
static inline float sd_f16(unsigned w, int i) { return (float)__builtin_bit_cast(_Float16, (unsigned short)(w >> 16 * i)); }
static inline float sd_bf16(unsigned w, int i) { return __builtin_bit_cast(float, w >> 16 * i << 16); }
static inline float sd_tf32(unsigned w, int) { return __builtin_bit_cast(float, w & 0xffffe000u); }
static inline float sd_e4m3(unsigned w, int i) { return sd_small(w >> 8 * i & 255, 3, 7); }
static inline float sd_e5m2(unsigned w, int i) { return sd_small(w >> 8 * i & 255, 2, 15); }
static inline int sd_s8(unsigned w, int i) { return (signed char)(w >> 8 * i); }
static inline int sd_u8(unsigned w, int i) { return (unsigned char)(w >> 8 * i); }
template <class T, class A, class B>
static inline void multiply(T (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int count, A a_of, B b_of) {
  unsigned (*words)[32] = sd_words[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) words[i][lane] = a[i];
  words[4][lane] = b0, words[5][lane] = b1;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int c = 0; c < 8; ++c)
      for (int e = 0; e < count; ++e)
        d[i] += a_of(words[row / 8 + c / 4 * 2][row % 8 * 4 + c % 4], e) * b_of(words[4 + c / 4][column * 4 + c % 4], e);
  }
  __syncwarp();
}
)";

// The text with tiles' device functions as this machine has them.
std::string emulated_tiles(std::string text, int64_t shared_bytes) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    if (at == std::string::npos) return false;
    text.replace(at, from.size(), to);
    return true;
  };
  replace(std::string(kSharedArray), "unsigned char* const shared = sd_shared;");
  STRIDEC_CHECK(
      replace(codegen::cuda::memory_declarations(), cat("alignas(1024) static unsigned char sd_shared[",
                                                        std::max<int64_t>(shared_bytes, 1), "];", kMemory)));
  constexpr DType kTypes[] = {DType::kF16,    DType::kBF16, DType::kTF32, DType::kF8E4M3,
                              DType::kF8E5M2, DType::kI8,   DType::kU8};
  for (const DType a : kTypes)
    for (const DType b : kTypes) {
      if (byte_size(a) != byte_size(b) || is_float(a) != is_float(b)) continue;
      const bool whole = !is_float(a);
      const std::string sum = whole ? "int" : "float";
      if (replace(
              codegen::cuda::mma_declarations(a, b, whole ? DType::kI32 : DType::kF32),
              cat(kMma, "static inline void multiply(", sum,
                  " (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) { multiply(d, a, b0, b1, ",
                  4 / byte_size(a), ", sd_", kernels::ptx_type(a), ", sd_", kernels::ptx_type(b), "); }\n")))
        return text;
    }
  return text;
}

constexpr std::string_view kEntry =
    "extern \"C\" void sd_entry(const long* words) { sd_apply(kernel, words); }\n";

// ---- a block ----

constexpr size_t kStack = 128 << 10;

// The threads of a block take turns; each runs until it waits for its warp or its block, or ends.
struct Block {
  enum State : uint8_t { kReady, kWarp, kBlock, kDone };
  struct Thread {
    ucontext_t start;
    jmp_buf at;
    bool begun = false;
    State state = kReady;
    uint64_t value = 0;
    uint32_t passed = 0;  // barriers of its warp
  };

  static Block*& current() {
    static Block* block = nullptr;
    return block;
  }

  Machine machine;
  void (*entry)(const int64_t*) = nullptr;
  const int64_t* words = nullptr;
  std::vector<Thread> threads;
  std::vector<char> stacks;
  RaceCheck check;
  std::pair<uintptr_t, uintptr_t> locked;  // bytes that threads write one at a time
  size_t now = 0;
  jmp_buf scheduler;

  void wait(State state) {
    threads[now].state = state;
    if (!_setjmp(threads[now].at)) _longjmp(scheduler, 1);
  }
  static void barrier(int of_block) {
    Block& b = *current();
    b.wait(of_block ? kBlock : kWarp);
    b.threads[b.now].passed += !of_block;
  }
  static void touch(void* address, int64_t bytes, int store) {
    Block& b = *current();
    const auto at = reinterpret_cast<uintptr_t>(address), own = reinterpret_cast<uintptr_t>(b.stacks.data());
    if ((at >= own && at < own + b.stacks.size()) || (at >= b.locked.first && at < b.locked.second)) return;
    b.check.touch(at, static_cast<size_t>(bytes), store,
                  {static_cast<uint32_t>(b.now), b.threads[b.now].passed});
  }
  static uint64_t exchange(uint64_t value, int distance) {
    Block& b = *current();
    const size_t me = b.now;
    b.threads[me].value = value;
    b.wait(kWarp);
    const size_t other = me ^ static_cast<size_t>(distance);
    const uint64_t got = other < b.threads.size() ? b.threads[other].value : value;
    b.wait(kWarp);
    return got;
  }
  static void begin() {
    Block& b = *current();
    b.entry(b.words);
    b.threads[b.now].state = kDone;
    _longjmp(b.scheduler, 1);
  }

  void resume(size_t t) {
    now = t;
    machine.thread.x = static_cast<unsigned>(t);
    Thread& thread = threads[t];
    thread.state = kReady;
    if (_setjmp(scheduler)) return;
    if (thread.begun) _longjmp(thread.at, 1);
    thread.begun = true;
    getcontext(&thread.start);
    thread.start.uc_stack.ss_sp = stacks.data() + t * kStack;
    thread.start.uc_stack.ss_size = kStack;
    thread.start.uc_link = nullptr;
    makecontext(&thread.start, begin, 0);
    setcontext(&thread.start);
  }

  // Lets those of [first, last) go on that all wait for `state`, or have ended.
  void release(size_t first, size_t last, State state) {
    for (size_t t = first; t < last; ++t)
      if (threads[t].state != state && threads[t].state != kDone) return;
    if (state == kBlock) check.pass_barrier();
    for (size_t t = first; t < last; ++t)
      if (threads[t].state == state) threads[t].state = kReady;
  }

  void run(size_t count) {
    current() = this;
    threads.assign(count, {});
    if (stacks.size() < count * kStack) stacks.resize(count * kStack);
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
      release(0, count, kBlock);
      for (const Thread& thread : threads) ran = ran || thread.state == kReady;
    }
    for (const Thread& thread : threads)
      STRIDEC_CHECK(thread.state == kDone, "threads of a block wait for each other for ever");
  }
};

// ---- a program ----

struct Code {
  codegen::Jit jit;
  void (*entry)(const int64_t*) = nullptr;
  Machine** machine = nullptr;
};

// Under a sanitizer a look at each access is slow, and what it finds other builds find.
constexpr bool kLooksForRaces = !__has_feature(address_sanitizer);

Code& code_of(const std::string& text) {
  static std::unordered_map<std::string, std::unique_ptr<Code>> built;
  std::unique_ptr<Code>& known = built[text];
  if (known) return *known;
  auto code = std::make_unique<Code>();
  code->jit.add_object(codegen::compile_to_object("kernel.cu", cat(machine_text(), text, kEntry),
                                                  {.optimize = 1, .tell_accesses = kLooksForRaces}));
  code->entry = reinterpret_cast<void (*)(const int64_t*)>(code->jit.lookup("sd_entry"));
  code->machine = static_cast<Machine**>(code->jit.lookup("sd_machine_now"));
  known = std::move(code);
  return *known;
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
      if (buffer.storage == loop::Storage::kWeight && buffer.weight.bytes)
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

  // A size that comes from the data, or a counter.
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

  // `schedule`: of the nest that the kernel does.
  bool launch(const loop::Schedule& schedule, const codegen::DeviceKernel& kernel, std::vector<char>& workspace) {
    if (kernel.cluster > 1 || !kernel.maps.empty()) return false;
    std::string text = kernel.code.text;
    const bool matrix = kernels::is_matrix(schedule);
    if (matrix && kernels::to_matrix_plan(schedule).kernel->is_wgmma()) return false;
    if (matrix || kernels::is_flash(schedule))
      text = emulated_tiles(std::move(text), of(kernel.shared_bytes));
    std::vector<int64_t> words;
    for (loop::BufferId id : kernel.code.buffers)
      words.push_back(reinterpret_cast<int64_t>(at(static_cast<size_t>(id.value))));
    for (const sym::Expr& size : kernel.code.sizes) words.push_back(of(size));
    for (size_t m = 0; m < kernel.code.messages.size(); ++m) words.push_back(static_cast<int64_t>(m));
    int64_t failure[8] = {};
    if (kernel.fails) words.push_back(reinterpret_cast<int64_t>(failure));
    const size_t bytes = static_cast<size_t>(of(kernel.workspace_bytes));
    if (workspace.size() < bytes) workspace.resize(bytes, '\xff');
    if (!kernel.workspace_bytes.is_const(0)) words.push_back(reinterpret_cast<int64_t>(workspace.data()));
    Code& code = code_of(text);
    static Block block;
    *code.machine = &block.machine;
    block.machine.barrier = Block::barrier;
    block.machine.exchange = Block::exchange;
    block.machine.touch = Block::touch;
    block.entry = code.entry;
    block.words = words.data();
    block.machine.size = {static_cast<unsigned>(kernel.threads), 1, 1};
    block.machine.grid = {static_cast<unsigned>(of(kernel.grid[0])),
                          static_cast<unsigned>(of(kernel.grid[1])),
                          static_cast<unsigned>(of(kernel.grid[2]))};
    std::map<uintptr_t, uintptr_t> memory;
    for (const std::vector<uint8_t>& bytes : memory_) add_range(memory, bytes.data(), bytes.size());
    add_range(memory, workspace.data(), workspace.size());
    block.check.begin_launch(std::move(memory));
    const auto failing = reinterpret_cast<uintptr_t>(&failure);
    block.locked = {failing, failing + sizeof(failure)};
    for (unsigned x = 0; x < block.machine.grid.x; ++x) {
      block.machine.block = {x, 0, 0};
      block.run(static_cast<size_t>(kernel.threads));
    }
    if (const auto race = block.check.race()) {
      block.check.forget();
      fail(ErrorKind::kMismatch, "race", sentence_of(*race), kernel.code.text);
    }
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

  // Buffers whose sizes are known by now, or have grown. Not on a multiple of anything but what the runtime promises;
  // unwritten elements are no numbers.
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
      const codegen::DeviceNest made = call ? codegen::cuda::emit_routine(program, *call, target)
                                            : codegen::cuda::emit_nest(program, program[launch->nest], target);
      std::vector<const codegen::DeviceChoice*> open;
      for (const codegen::DeviceChoice& c : made.choices)
        if (run.of(c.condition)) open.push_back(&c);
      STRIDEC_CHECK(!open.empty(), "no choice is left");
      *choices = std::max(*choices, open.size());
      for (const codegen::DeviceKernel& kernel : open[std::min(choice, open.size() - 1)]->launches)
        if (!run.launch(call ? loop::Schedule() : program[launch->nest].schedule, kernel, workspace)) return false;
    }
    return true;
  };
  if (!steps(program.steps)) return std::nullopt;
  return run.outputs();
}

}  // namespace stridec::test
