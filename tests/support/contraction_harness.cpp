#include "tests/support/contraction_harness.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cpu/jit.h"
#include "compiler/codegen/embedded.h"
#include "compiler/codegen/object_cache.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"
#include "runtime/include/stridec/abi.h"
#include "tests/support/tiles.h"

namespace stridec::test {
namespace {

std::string source_of(const std::string& text, const std::string& name, const CpuTarget& target) {
  const std::string include = "#include \"stridec/abi.h\"\n";
  std::string out = text;
  if (const size_t at = out.find(include); at != std::string::npos) {
    out.replace(at, include.size(),
                cat("#define STRIDEC_ABI_FREESTANDING\n#define KERNEL ", name, "\n", codegen::abi_header()));
  }
  // Emulates tile registers that the target has and this machine lacks.
  if (target.amx_bf16 && !cpu_target(target.name).amx_bf16) out = tiles_prelude() + out;
  return out;
}

// Objects are cached on disk by their text, like those of kernels: recompiling them under a sanitizer would
// check nothing new.
std::string object_of(const std::string& text, const CpuTarget& target) {
  static std::map<std::string, std::string> built;
  static const codegen::ObjectCache cache(true, codegen::cpu::BuildOptions().cache_bytes);
  const std::string source = source_of(text, "kernel_under_test", target);
  std::string& object = built[target.name + source];
  if (!object.empty()) return object;
  object = codegen::cached_object(cache, "kernel", source, {.cpu = target.name, .tune = target.tune});
  cache.trim();
  return object;
}

void fill(DType dtype, std::vector<uint8_t>& bytes, std::mt19937& random) {
  std::uniform_real_distribution<double> number(-1, 1);
  loop::HostTensor tensor = loop::make_tensor(dtype, {static_cast<int64_t>(bytes.size()) / byte_size(dtype)});
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    loop::set_number(tensor, i, is_float(dtype) ? number(random) : std::round(number(random) * 8));
  }
  bytes = tensor.bytes;
}

}  // namespace

loop::View buffer(loop::Program& program, const std::string& name, std::vector<sym::Expr> shape,
                  loop::Storage storage, DType dtype, std::vector<sym::Expr> strides) {
  return loop::whole(program, loop::add_buffer(program, {.name = name,
                                                         .dtype = dtype,
                                                         .shape = std::move(shape),
                                                         .strides = std::move(strides),
                                                         .storage = storage}));
}

loop::View weight(loop::Program& program, const std::string& name, std::vector<int64_t> shape, DType dtype) {
  loop::HostTensor tensor = loop::make_tensor(dtype, shape);
  for (int64_t i = 0; i < loop::element_count(tensor); ++i) {
    const double value = static_cast<double>((i * 37 + 11) % 101);
    loop::set_number(tensor, i, is_float(dtype) ? value / 64 - 0.75 : value - 50);
  }
  auto bytes = std::make_shared<std::vector<uint8_t>>(std::move(tensor.bytes));
  loop::Buffer buffer{.name = name, .dtype = dtype, .storage = loop::Storage::kParameter};
  for (int64_t extent : shape) buffer.shape.push_back(extent);
  buffer.weight = {bytes, bytes->data(), bytes->size()};
  return loop::whole(program, loop::add_buffer(program, std::move(buffer)));
}

std::vector<sym::Expr> strides_of(const std::vector<sym::Expr>& shape, bool channels_last) {
  std::vector<sym::Expr> strides = loop::row_major(shape);
  if (!channels_last) return strides;
  strides[1] = 1;
  sym::Expr step = shape[1];
  for (size_t d = shape.size(); d-- > 2;) {
    strides[d] = step;
    step *= shape[d];
  }
  strides[0] = step;
  return strides;
}

sym::Expr symbol(loop::Program& program, const std::string& name, int64_t lo, int64_t hi) {
  const sym::Expr var = sym::var(name);
  program.symbols.push_back({.var = var});
  program.facts.set_range(var, lo, hi);
  return var;
}

int64_t value_of(sym::Expr e, const loop::Bindings& symbols) {
  const auto value = sym::evaluate(e, [&](sym::Expr var) -> std::optional<int64_t> {
    const auto found = symbols.find(var);
    return found == symbols.end() ? std::nullopt : std::optional(found->second);
  });
  if (!value) throw std::runtime_error("no value: " + sym::to_string(e));
  return *value;
}

CompiledKernel::CompiledKernel(const codegen::Kernel& kernel, const CpuTarget& target) : kernel_(kernel) {
  auto jit = std::make_shared<codegen::Jit>();
  jit->add_object(object_of(kernel.text, target));
  for (const std::string& text : kernel.support) jit->add_object(object_of(text, target));
  function_ =
      reinterpret_cast<void (*)(const void*, int64_t, int64_t, int32_t)>(jit->lookup("kernel_under_test"));
  code_ = jit;
}

int64_t CompiledKernel::tasks(const loop::Bindings& symbols) const {
  return value_of(kernel_.tasks, symbols);
}

void CompiledKernel::run(const loop::Program&, const loop::Bindings& symbols,
                         const std::vector<loop::BufferMemory>& memory, int parts) const {
  run_in(std::vector<uint16_t>(scratch_words(symbols, parts), 0x7f7f), symbols, memory, parts);
}

bool CompiledKernel::meets_subnormals(const loop::Bindings& symbols,
                                      const std::vector<loop::BufferMemory>& memory, int parts) const {
  // An element of 1, 2, 4 or 8 bytes with this content is subnormal.
  std::vector<uint16_t> scratch(scratch_words(symbols, parts), 1);
#ifdef __SSE__
  constexpr unsigned kSubnormalOperand = 2;  // of MXCSR
  _mm_setcsr(_mm_getcsr() & ~kSubnormalOperand);
  run_in(std::move(scratch), symbols, memory, parts);
  return _mm_getcsr() & kSubnormalOperand;
#else
  run_in(std::move(scratch), symbols, memory, parts);
  return false;
#endif
}

namespace {
int64_t scratch_stride(int64_t bytes) { return (bytes + 127) / 64 * 64; }
}  // namespace

size_t CompiledKernel::scratch_words(const loop::Bindings& symbols, int parts) const {
  return static_cast<size_t>(scratch_stride(value_of(kernel_.scratch_bytes, symbols)) * parts + 64) / 2;
}

void CompiledKernel::run_in(std::vector<uint16_t> scratch, const loop::Bindings& symbols,
                            const std::vector<loop::BufferMemory>& memory, int parts) const {
  std::vector<void*> buffers;
  for (loop::BufferId id : kernel_.buffers) buffers.push_back(memory[static_cast<size_t>(id.value)].data);
  std::vector<int64_t> sizes;
  for (sym::Expr e : kernel_.sizes) sizes.push_back(value_of(e, symbols));
  for (size_t i = 0; i < kernel_.messages.size(); ++i) sizes.push_back(static_cast<int64_t>(i));
  const int64_t stride = scratch_stride(value_of(kernel_.scratch_bytes, symbols));
  char* first = reinterpret_cast<char*>(scratch.data());
  char* aligned = first + (64 - reinterpret_cast<uintptr_t>(first) % 64) % 64;
  std::vector<stridec_abi_failure> failures(static_cast<size_t>(parts));
  const stridec_abi_args args{buffers.data(), sizes.data(), aligned, stride, failures.data()};
  const int64_t tasks = value_of(kernel_.tasks, symbols);
  for (int part = 0; part < parts; ++part)
    function_(&args, tasks * part / parts, tasks * (part + 1) / parts, part);
}

double CompiledKernel::seconds(const loop::Bindings& symbols, const std::vector<loop::BufferMemory>& memory,
                               int threads, int repeats) const {
  std::vector<void*> buffers;
  for (loop::BufferId id : kernel_.buffers) buffers.push_back(memory[static_cast<size_t>(id.value)].data);
  std::vector<int64_t> sizes;
  for (sym::Expr e : kernel_.sizes) sizes.push_back(value_of(e, symbols));
  const int64_t stride = (value_of(kernel_.scratch_bytes, symbols) + 4095) / 64 * 64;
  std::vector<char> scratch(static_cast<size_t>(stride * threads) + 64);
  char* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  std::vector<stridec_abi_failure> failures(static_cast<size_t>(threads));
  const stridec_abi_args args{buffers.data(), sizes.data(), aligned, stride, failures.data()};
  const int64_t tasks = value_of(kernel_.tasks, symbols);
  std::atomic<int> arrived{0}, finished{0};
  auto share = [&](int part, int round) {
    ++arrived;
    while (arrived.load() < threads * (round + 1)) {
    }
    function_(&args, tasks * part / threads, tasks * (part + 1) / threads, part);
    ++finished;
  };
  std::vector<std::thread> others;
  for (int part = 1; part < threads; ++part) {
    others.emplace_back([&, part] {
      for (int r = 0; r < repeats; ++r) share(part, r);
    });
  }
  double best = 1e9;
  for (int r = 0; r < repeats; ++r) {
    while (arrived.load() < threads * r + threads - 1) {
    }
    const auto start = std::chrono::steady_clock::now();
    share(0, r);
    while (finished.load() < threads * (r + 1)) {
    }
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  for (std::thread& thread : others) thread.join();
  return best;
}

Memory::Memory(const loop::Program& program, const loop::Bindings& symbols, unsigned seed) {
  std::mt19937 random(seed);
  for (const loop::Buffer& buffer : program.buffers) {
    int64_t elements = 1;
    for (size_t d = 0; d < buffer.shape.size(); ++d) {
      elements +=
          std::max<int64_t>(0, value_of(buffer.shape[d], symbols) - 1) * value_of(buffer.strides[d], symbols);
    }
    element_bytes.push_back(byte_size(buffer.dtype));
    bytes.emplace_back(static_cast<size_t>(elements * byte_size(buffer.dtype)));
    fill(buffer.dtype, bytes.back(), random);
    // What a plan knows of a weight must hold.
    if (buffer.weight.bytes && buffer.weight.size == bytes.back().size())
      std::copy_n(buffer.weight.bytes, buffer.weight.size, bytes.back().begin());
  }
}

std::vector<loop::BufferMemory> Memory::views() {
  std::vector<loop::BufferMemory> out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    out.push_back({bytes[i].data(), static_cast<int64_t>(bytes[i].size()) / element_bytes[i]});
  }
  return out;
}

double difference(const loop::Program& program, const loop::Nest& nest, Memory& x, Memory& y) {
  double worst = 0, largest = 1e-30;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (!store) return;
    const auto i = static_cast<size_t>(store->access.buffer.value);
    const DType dtype = program.buffers[i].dtype;
    const auto count = static_cast<int64_t>(x.bytes[i].size()) / byte_size(dtype);
    const loop::HostTensor a{dtype, {count}, x.bytes[i]}, b{dtype, {count}, y.bytes[i]};
    for (int64_t e = 0; e < count; ++e) {
      const double u = loop::get_number(a, e), v = loop::get_number(b, e);
      if (std::isnan(u) != std::isnan(v)) worst = INFINITY;
      if (std::isnan(u) || u == v) continue;
      worst = std::max(worst, std::abs(u - v));
      largest = std::max(largest, std::abs(v));
    }
  });
  return worst / largest;
}

}  // namespace stridec::test
