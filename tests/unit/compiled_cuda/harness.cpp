// The grid of operators as CUDA kernels: every nest of every case is built by NVRTC for Hopper and as PTX, and what runs
// is the interpreter. With STRIDEC_TEST_GPU=1 the kernels run on the GPU of this machine, through the runtime
// (tests/gpu/run.sh).
#include "tests/unit/ops/harness.cpp"  // the same harness

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "compiler/codegen/cpu/build.h"
#include "compiler/codegen/cpu/jit.h"
#include "compiler/codegen/cuda/build.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/choose_gpu.h"
#include "compiler/schedule/memory_plan.h"
#include "runtime/src/context_api.h"
#include "runtime/src/model.h"

namespace stridec::ops::test {
namespace {

// What NVRTC does takes several times as long with a sanitizer's allocator, which learns nothing from it: there one
// program is built, and the others are printed alone.
#if defined(__has_feature)
constexpr bool kInstrumented = __has_feature(address_sanitizer);
#else
constexpr bool kInstrumented = false;
#endif

// Kernels wait until there are enough for one program of NVRTC: a program costs 15 ms before it does anything.
struct Batch {
  const codegen::cuda::Nvrtc nvrtc{""};
  std::set<std::string> seen;
  std::string text;
  size_t waiting = 0, built = 0;

  void add(const std::string& kernel) {
    if (!seen.insert(kernel).second) return;
    text += cat("namespace n", seen.size(), " {\n#define KERNEL k", seen.size(), "\n", kernel,
                "#undef KERNEL\n}\n");
    if (++waiting == 100) flush();
  }
  void flush() {
    if (!waiting) return;
    // PTX now and then: the front end is the same.
    for (const char* name : {"sm_90a", "ptx"})
      if (!(kInstrumented && built) && (name[0] == 's' || seen.size() % 1000 < 100)) {
        nvrtc.compile("kernels.cu", text, gpu_target(name));
        if (name[0] == 's') built += waiting;
      }
    text.clear();
    waiting = 0;
  }
};

Batch& batch() {
  static Batch current;
  return current;
}

std::vector<HostTensor> build_cuda(const loop::Program& given, const std::vector<HostTensor>& inputs) {
  const GpuTarget& target = gpu_target("sm_90a");
  loop::Program program = given;
  schedule::choose_gpu(program, target);
  for (const loop::Nest& nest : program.nests)
    for (const auto& choice : codegen::cuda::emit_nest(program, nest, target).choices)
      for (const auto& kernel : choice.launches) batch().add(kernel.code.text);
  return loop::interpret(given, inputs, {.poison = true});
}

// ---- on a device ----

[[noreturn]] void fail_with(const std::string& sentence) { fail(ErrorKind::kDoesNotFit, "run", sentence); }

std::vector<HostTensor> run_cuda(const loop::Program& given, const std::vector<HostTensor>& inputs) {
  using namespace codegen;
  std::vector<cuda::Variant> variants{{gpu_target("sm_90a"), given}};
  loop::Program& program = variants[0].program;
  schedule::choose_gpu(program, variants[0].target);
  schedule::plan_memory(program);
  cpu::run_prepack(program, cpu_target("native"), {.threads = 1});
  loop::Program* const all[] = {&program};
  schedule::plan_weights(all);
  cuda::Built device = cuda::emit(variants);
  cuda::compile(device, {.threads = 1});
  std::vector<cpu::Variant> none;
  cpu::BuildOptions build{.threads = 1};
  build.host.weights_bytes = static_cast<uint64_t>(program.weight_bytes);
  build.devices = device.host;
  const cpu::Built host = cpu::build(none, build);
  auto jit = std::make_unique<Jit>();
  jit->add_object(host.host_object);
  const std::string images = cuda::images(device);
  std::string weights(static_cast<size_t>(program.weight_bytes), '\0');
  for (const loop::Buffer& b : program.buffers)
    if (b.storage == loop::Storage::kWeight && !b.offset.is_const(-1) && b.weight.bytes)
      std::memcpy(weights.data() + b.offset.value(), b.weight.bytes, b.weight.size);

  stridec_abi_note note{};
  note.type = STRIDEC_ABI_VERSION;
  note.weights_address = reinterpret_cast<uint64_t>(weights.data());
  note.weights_bytes = weights.size();
  note.images_address = reinterpret_cast<uint64_t>(images.data());
  note.images_bytes = images.size();
  char message[512];
  stridec_model_options options{.struct_size = sizeof options, .device_type = STRIDEC_DEVICE_CUDA};
  static const stridec_model* kept = nullptr;  // the first stays, and with it the device's context
  stridec_model* model = nullptr;
  if (runtime::open_program(*static_cast<const stridec_abi_program*>(jit->lookup("stridec_program")), note,
                            nullptr, &options, &model, message, sizeof message) != STRIDEC_OK)
    fail_with(message);
  stridec_context* context = nullptr;
  if (runtime::context_create(model, nullptr, &context, message, sizeof message) != STRIDEC_OK)
    fail_with(message);
  std::vector<stridec_tensor> in, out(program.outputs.size());
  std::vector<HostTensor> copies = inputs;
  for (size_t i = 0; i < copies.size(); ++i) {
    HostTensor& t = copies[i];
    in.push_back({.data = t.bytes.data(),
                  .device = {STRIDEC_DEVICE_CPU, 0},
                  .ndim = static_cast<int32_t>(t.shape.size()),
                  .dtype = runtime::input_dtype(*model, static_cast<int32_t>(i)).dlpack,
                  .shape = t.shape.data(),
                  .strides = nullptr,
                  .byte_offset = 0});
  }
  const stridec_status status = runtime::context_run(context, in.data(), in.size(), out.data(), out.size());
  std::vector<HostTensor> results;
  const std::string sentence = status == STRIDEC_OK ? "" : context->error;
  for (size_t o = 0; status == STRIDEC_OK && o < out.size(); ++o) {
    HostTensor t =
        loop::make_tensor(program[program.outputs[o]].dtype, {out[o].shape, out[o].shape + out[o].ndim});
    if (!t.bytes.empty()) std::memcpy(t.bytes.data(), out[o].data, t.bytes.size());
    results.push_back(std::move(t));
  }
  runtime::context_destroy(context);
  if (kept)
    runtime::release(model);
  else
    kept = model, jit.release();
  if (status == STRIDEC_DEVICE_ERROR) {  // nothing works from here on
    std::fprintf(stderr, "%s\n", sentence.c_str());
    for (const auto& kernel : device.kernels) std::fprintf(stderr, "%s\n", kernel.text.c_str());
    std::_Exit(1);
  }
  if (status != STRIDEC_OK) fail_with(sentence);
  return results;
}

const bool kBuilt = [] {
  const char* gpu = std::getenv("STRIDEC_TEST_GPU");
  runner() = gpu && *gpu == '1' ? run_cuda : build_cuda;
  return true;
}();

TEST_SUITE("zz") {  // after everything else, where tests run in the order of suites
  TEST_CASE("the last kernels are built too") {
    CHECK_NOTHROW(batch().flush());
    std::printf("%zu kernels, %zu built by NVRTC %s\n", batch().seen.size(), batch().built,
                batch().nvrtc.version().c_str());
  }
}

}  // namespace
}  // namespace stridec::ops::test
