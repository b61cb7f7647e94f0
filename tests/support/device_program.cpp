#include "tests/support/device_program.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/codegen/cpu/jit.h"
#include "compiler/schedule/memory/weight_plan.h"
#include "runtime/src/context_api.h"
#include "runtime/src/model.h"

namespace stridec::test {
namespace {

[[noreturn]] void fail_with(const std::string& sentence) { fail(ErrorKind::kDoesNotFit, "run", sentence); }

}  // namespace

struct DeviceProgram::Impl {
  std::vector<codegen::cuda::Variant> variants;
  codegen::cuda::Built device;
  std::unique_ptr<codegen::Jit> jit = std::make_unique<codegen::Jit>();
  std::string images, weights;
  stridec_model* model = nullptr;

  loop::Program& program() { return variants[0].program; }
};

DeviceProgram::DeviceProgram(codegen::cuda::Variant variant) : impl_(std::make_unique<Impl>()) {
  using namespace codegen;
  Impl& m = *impl_;
  m.variants.push_back(std::move(variant));
  loop::Program& program = m.program();
  cpu::run_prepack(program, cpu_target("native"), {.threads = 1});
  loop::Program* const all[] = {&program};
  schedule::plan_weights(all);
  lower_copies(program);
  declare_symbols(program);
  m.device = cuda::emit({&m.variants.front()});
  cuda::compile(m.device, {.threads = 1});
  const std::vector<cpu::Variant> none;
  cpu::BuildOptions build{.threads = 1};
  build.host.weights_bytes = static_cast<uint64_t>(program.weight_bytes);
  cpu::Built host = cpu::assemble({{none, m.device.host}}, m.device.tables, build);
  cpu::compile(host, build);
  m.jit->add_object(host.host_object);
  m.images = cuda::images(m.device);
  m.weights.resize(static_cast<size_t>(program.weight_bytes));
  for (const loop::Buffer& b : program.buffers)
    if (b.storage == loop::Storage::kParameter && !b.offset.is_const(-1) && b.weight.bytes)
      std::memcpy(m.weights.data() + b.offset.value(), b.weight.bytes, b.weight.size);

  stridec_abi_note note{};
  note.type = STRIDEC_ABI_VERSION;
  note.weights_address = reinterpret_cast<uint64_t>(m.weights.data());
  note.weights_bytes = m.weights.size();
  note.images_address = reinterpret_cast<uint64_t>(m.images.data());
  note.images_bytes = m.images.size();
  char message[512];
  stridec_model_options options{.struct_size = sizeof options, .device_type = STRIDEC_DEVICE_CUDA};
  if (runtime::open_module(*static_cast<const stridec_abi_module*>(m.jit->lookup("stridec_module")), note,
                           nullptr, &options, &m.model, message, sizeof message) != STRIDEC_OK)
    fail_with(message);
}

DeviceProgram::~DeviceProgram() {
  if (!impl_->model) return;
  // The first is kept alive, and with it the device's context, which is slow to create.
  static Impl* kept = nullptr;
  if (kept)
    runtime::release(impl_->model);
  else
    kept = impl_.release();
}

std::vector<loop::HostTensor> DeviceProgram::run(const std::vector<loop::HostTensor>& inputs) {
  Impl& m = *impl_;
  char message[512];
  stridec_context* context = nullptr;
  if (runtime::context_create(m.model, nullptr, &context, message, sizeof message) != STRIDEC_OK)
    fail_with(message);
  std::vector<stridec_tensor> in, out(m.program().outputs.size());
  std::vector<loop::HostTensor> copies = inputs;
  for (size_t i = 0; i < copies.size(); ++i) {
    loop::HostTensor& t = copies[i];
    in.push_back({.data = t.bytes.data(),
                  .device = {STRIDEC_DEVICE_CPU, 0},
                  .ndim = static_cast<int32_t>(t.shape.size()),
                  .dtype = runtime::input_dtype(*context, static_cast<int32_t>(i)).dlpack,
                  .shape = t.shape.data(),
                  .strides = nullptr,
                  .byte_offset = 0});
  }
  const stridec_status status =
      runtime::context_run_function(context, 0, in.data(), in.size(), out.data(), out.size());
  std::vector<loop::HostTensor> results;
  const std::string sentence = status == STRIDEC_OK ? "" : context->error;
  for (size_t o = 0; status == STRIDEC_OK && o < out.size(); ++o) {
    loop::HostTensor t = loop::make_tensor(m.program()[m.program().outputs[o]].dtype,
                                           {out[o].shape, out[o].shape + out[o].ndim});
    if (!t.bytes.empty()) std::memcpy(t.bytes.data(), out[o].data, t.bytes.size());
    results.push_back(std::move(t));
  }
  runtime::context_destroy(context);
  if (status == STRIDEC_DEVICE_ERROR) {
    std::fprintf(stderr, "%s\n", sentence.c_str());
    for (const auto& kernel : m.device.kernels) std::fprintf(stderr, "%s\n", kernel.text.c_str());
    std::_Exit(1);
  }
  if (status != STRIDEC_OK) fail_with(sentence);
  return results;
}

}  // namespace stridec::test
