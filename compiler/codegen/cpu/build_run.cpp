#include "compiler/codegen/cpu/build_run.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/strided.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/jit.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "compiler/schedule/memory/weight_plan.h"
#include "runtime/include/stridec/abi.h"

namespace stridec::codegen::cpu {
namespace {

// 64-byte aligned memory with guard zones on both sides that must stay unchanged.
class Memory {
 public:
  Memory(int64_t bytes, bool poison) : bytes_(bytes) {
    const size_t all = static_cast<size_t>((bytes + 63) / 64 * 64 + 2 * kFence);
    data_.reset(static_cast<char*>(std::aligned_alloc(64, all)));
    STRIDEC_CHECK(data_, "out of memory");
    std::memset(data_.get(), kFenceByte, all);
    std::memset(get(), poison ? 0xa5 : 0, static_cast<size_t>(bytes));
  }
  char* get() const { return data_.get() + kFence; }
  void check(const std::string& what) const {
    for (int64_t i = 0; i < kFence; ++i)
      STRIDEC_CHECK(data_.get()[i] == kFenceByte && get()[bytes_ + i] == kFenceByte,
                    cat("a kernel wrote beyond ", what));
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  static constexpr int64_t kFence = 256;
  static constexpr char kFenceByte = 0x5c;
  std::unique_ptr<char, Free> data_;
  int64_t bytes_;
};

}  // namespace

struct CompiledProgram::Impl {
  RunCompiledOptions options;
  std::vector<Variant> variants;
  Built built;
  Jit jit;
  const stridec_abi_module* module = nullptr;
  const stridec_abi_function* abi = nullptr;
  std::unique_ptr<Memory> weights;
  double seconds = 0;  // of the last run's steps

  const loop::Program& program() const { return variants[0].program; }

  Impl(loop::Program given, RunCompiledOptions o) : options(std::move(o)) {
    run_prepack(given, options.target, options.build);
    loop::Program* const all[] = {&given};
    schedule::plan_weights(all);
    variants.push_back({.target = options.target, .program = std::move(given)});
    lower_copies(variants[0].program);
    declare_symbols(variants[0].program);
    variants[0].scratch = scratch_of(variants[0].program, options.target);
    schedule::plan_memory(variants[0].program, schedule::InPlace::kSums, variants[0].scratch);
    variants[0].kernels = emit(variants[0]);
    built = build(variants, options.build);
    for (const BuiltKernel& kernel : built.kernels)
      if (!kernel.object.empty()) jit.add_object(kernel.object);
    jit.add_object(built.host_object);
    module = static_cast<const stridec_abi_module*>(jit.lookup("stridec_module"));
    abi = module->functions;
    const std::optional<int64_t> bytes = sym::as_const(program().weight_bytes);
    weights = std::make_unique<Memory>(bytes.value_or(0), false);
    for (const loop::Buffer& b : program().buffers)
      if (b.storage == loop::Storage::kParameter && !b.offset.is_const(-1) && b.weight.bytes)
        std::memcpy(weights->get() + b.offset.value(), b.weight.bytes, b.weight.size);
  }

  // ---- a run ----
  struct State {
    Impl* impl = nullptr;
    std::vector<loop::HostTensor> outputs;
    std::vector<std::unique_ptr<Memory>> output_memory;
    std::vector<void*> pointers;
    std::vector<std::unique_ptr<Memory>> state_memory;  // of the program's states
    std::vector<void*> state_pointers;
    std::vector<std::unique_ptr<Memory>> slots;  // memory that the run allocates
    std::vector<stridec_abi_failure> failures;   // of the parts
    bool out_of_memory = false;                  // a requested size overflowed 64 bits
    std::string unknown;                         // an operator of the application that has no reference
    std::exception_ptr thrown;                   // by a reference
  };

  [[noreturn]] void fail_with(const stridec_abi_failure& failure) const {
    const stridec_abi_message& message = module->messages[failure.code - 1];
    std::vector<sym::Expr> values(failure.values, failure.values + STRIDEC_ABI_VALUES);
    stridec::fail(ErrorKind::kDoesNotFit, message.kind == STRIDEC_ABI_GUARD ? "guard" : "data",
                  sym::render({.condition = 0, .sentence = message.text, .values = values}));
  }

  static int32_t launch(stridec_abi_run* run, stridec_abi_kernel kernel, const stridec_abi_args* args,
                        int64_t tasks, int64_t, int32_t, int32_t) {
    const int64_t parts = std::min<int64_t>(run->threads, tasks);
    int32_t failed = 0;
    // In reverse order, since results must not depend on the order of parts.
    for (int64_t p = parts; p-- > 0;) {
      kernel(args, tasks * p / parts, tasks * (p + 1) / parts, static_cast<int32_t>(p));
      failed |= run->failures[p].code;
    }
    return failed;
  }
  static void place(State& state, int32_t output, const int64_t* dims) {
    const loop::Program& program = state.impl->program();
    const loop::Buffer& b = program[program.outputs[static_cast<size_t>(output)]];
    loop::HostTensor& tensor = state.outputs[static_cast<size_t>(output)];
    tensor.dtype = b.dtype;
    tensor.shape.assign(dims, dims + b.shape.size());
    int64_t bytes = byte_size(b.dtype);
    for (int64_t d : tensor.shape) bytes *= d;
    state.output_memory[static_cast<size_t>(output)] =
        std::make_unique<Memory>(bytes, state.impl->options.poison);
    state.pointers[static_cast<size_t>(output)] = state.output_memory[static_cast<size_t>(output)]->get();
    tensor.bytes.resize(static_cast<size_t>(bytes));
  }
  static void* resize_output(stridec_abi_run* run, int32_t output, const int64_t* dims) {
    State& state = *static_cast<State*>(run->context);
    place(state, output, dims);
    return state.pointers[static_cast<size_t>(output)];
  }
  static void* allocate(stridec_abi_run* run, int32_t slot, int64_t bytes) {
    State& state = *static_cast<State*>(run->context);
    auto& memory = state.slots[static_cast<size_t>(slot)];
    state.out_of_memory = bytes < 0;
    if (state.out_of_memory) return nullptr;
    if (memory) memory->check("a buffer allocated during the run");
    memory = std::make_unique<Memory>(bytes, state.impl->options.poison);
    return memory->get();
  }

  // Computes an operator of the application by its reference.
  static int32_t call(stridec_abi_run* run, const stridec_abi_call* call) {
    State& state = *static_cast<State*>(run->context);
    const stridec_abi_module& m = *state.impl->module;
    const char* name = m.callbacks;
    for (int32_t i = 0; i < call->callback; ++i) name += std::strlen(name) + 1;
    state.unknown = name;
    std::shared_ptr<const loop::UserKernel> kernel;
    loop::for_each_step(state.impl->program().steps, [&](const loop::Step& step) {
      const auto* each = std::get_if<loop::Call>(&step.node);
      const auto one = each ? loop::find_user_kernel(each->routine) : nullptr;
      if (one && one->name == name && fits(*one, *call)) kernel = one;
    });
    if (!kernel || !kernel->run) return 1;
    std::vector<loop::RoutineBuffer> reads, writes;
    std::vector<int64_t> arguments;
    for (int32_t t = 0; t < call->read_count + call->write_count; ++t) {
      const stridec_abi_tensor& each = call->tensors[t];
      arguments.push_back(0);
      arguments.insert(arguments.end(), each.dims, each.dims + 2 * each.rank);
      (t < call->read_count ? reads : writes)
          .push_back({kernel->tensor(static_cast<size_t>(t)).dtype, static_cast<uint8_t*>(each.data), 0});
    }
    std::vector<int64_t> sizes(kernel->sizes + loop::UserArguments::kLastCount, 0);
    for (size_t i = 0; i < kernel->attributes.size(); ++i)
      sizes[kernel->attributes[i].index] = call->attributes[i].real
                                               ? std::bit_cast<int64_t>(call->attributes[i].number)
                                               : call->attributes[i].integer;
    arguments.insert(arguments.end(), sizes.begin(), sizes.end());
    state.unknown.clear();
    try {
      kernel->run(*kernel, reads, writes, arguments);
    } catch (...) {
      state.thrown = std::current_exception();
    }
    return state.thrown ? 1 : 0;
  }
  static bool fits(const loop::UserKernel& kernel, const stridec_abi_call& call) {
    bool fits = kernel.tensor_count() == static_cast<size_t>(call.read_count + call.write_count);
    for (size_t t = 0; fits && t < kernel.tensor_count(); ++t)
      fits = info(kernel.tensor(t).dtype).onnx_type == call.dtypes[t] &&
             kernel.tensor(t).rank == static_cast<size_t>(call.tensors[t].rank);
    return fits;
  }

  // Binds the sizes of the context among the symbols; returns the dims of all states.
  std::vector<int64_t> bind_context(const std::vector<loop::HostTensor>& inputs,
                                    std::vector<int64_t>& symbols) const {
    const loop::Program& p = program();
    std::vector<int64_t> sizes(static_cast<size_t>(module->size_count) + 1), dims;
    for (size_t i = 0; i < p.symbols.size() && abi->context_sizes; ++i) {
      if (abi->context_sizes[i] < 0) continue;
      const loop::Symbol& symbol = p.symbols[i];
      const auto given = options.context_sizes.find(symbol.var.name());
      if (given == options.context_sizes.end() && symbol.input < 0)
        stridec::fail(ErrorKind::kDoesNotFit, "size-missing",
                      cat("the size '", symbol.var.name(), "' of a state is not given"));
      symbols[i] = given != options.context_sizes.end()
                       ? given->second
                       : inputs[static_cast<size_t>(symbol.input)].shape[static_cast<size_t>(symbol.dim)] /
                             symbol.multiple;
      sizes[static_cast<size_t>(abi->context_sizes[i])] = symbols[i];
    }
    for (int32_t s = 0; s < module->state_count; ++s) {
      const stridec_abi_state& state = module->states[s];
      for (int32_t d = 0; d < state.value.rank; ++d) dims.push_back(state.dims ? state.dims[d] : 0);
    }
    stridec_abi_failure failure{};
    if (module->bind_context && module->bind_context(sizes.data(), dims.data(), &failure)) fail_with(failure);
    return dims;
  }

  void bind_inputs(const std::vector<loop::HostTensor>& inputs, std::vector<int64_t>& symbols) const {
    std::vector<const int64_t*> dims;
    for (const loop::HostTensor& input : inputs) dims.push_back(input.shape.data());
    const std::vector<const void*> unread(inputs.size(), nullptr);
    stridec_abi_failure failure{};
    if (abi->bind(dims.data(), unread.data(), symbols.data(), &failure)) fail_with(failure);
  }

  // Places the outputs whose sizes the symbols determine; the run places the others.
  void place_outputs(State& state, const std::vector<int64_t>& symbols) const {
    const loop::Program& p = program();
    size_t rank = 0;
    for (loop::BufferId id : p.outputs) rank += p[id].shape.size();
    std::vector<int64_t> dims(rank + 1);
    abi->output_dims(symbols.data(), dims.data());
    state.outputs.resize(p.outputs.size());
    state.output_memory.resize(p.outputs.size());
    state.pointers.resize(p.outputs.size() + 1);
    size_t at = 0;
    for (size_t o = 0; o < p.outputs.size(); ++o) {
      const size_t n = p[p.outputs[o]].shape.size();
      if (std::all_of(&dims[at], &dims[at] + n, [](int64_t d) { return d >= 0; }))
        place(state, static_cast<int32_t>(o), &dims[at]);
      at += n;
    }
  }

  // The bytes of a row-major value in its memory order; and back.
  static std::vector<uint8_t> in_memory_order(const stridec_abi_value& value,
                                              const std::vector<int64_t>& dims,
                                              std::span<const uint8_t> bytes, DType dtype) {
    if (!value.memory_order) return {bytes.begin(), bytes.end()};
    const std::span order(value.memory_order, dims.size());
    return scattered(bytes, dims, strides_in_order(dims, order), byte_size(dtype));
  }
  static void take(const stridec_abi_value& value, const Memory& memory, loop::HostTensor& tensor) {
    std::copy_n(memory.get(), tensor.bytes.size(), tensor.bytes.data());
    if (!value.memory_order) return;
    const std::span order(value.memory_order, tensor.shape.size());
    tensor.bytes =
        gathered(tensor.bytes, tensor.shape, strides_in_order(tensor.shape, order), byte_size(tensor.dtype));
  }

  // `dims`: of all states. `given`: their values before the run, or null.
  void place_states(State& state, const std::vector<int64_t>& dims,
                    const std::vector<loop::HostTensor>* given) const {
    const loop::Program& p = program();
    const int64_t* dim = dims.data();
    state.state_pointers.resize(1);
    for (size_t s = 0; s < p.states.size(); ++s) {
      const loop::Buffer& b = p[p.states[s]];
      int64_t bytes = byte_size(b.dtype);
      for (size_t d = 0; d < b.shape.size(); ++d) bytes *= *dim++;
      state.state_memory.push_back(std::make_unique<Memory>(bytes, false));
      void* const memory = state.state_memory[s]->get();
      if (given && s < given->size())
        std::ranges::copy(
            in_memory_order(module->states[s].value, (*given)[s].shape, (*given)[s].bytes, b.dtype),
            static_cast<char*>(memory));
      state.state_pointers.insert(state.state_pointers.end() - 1, memory);
    }
  }

  void throw_if_failed(const State& state) const {
    for (const stridec_abi_failure& f : state.failures)
      if (f.code) fail_with(f);
    if (state.out_of_memory)
      fail(ErrorKind::kDoesNotFit, "too-large", "a buffer whose size depends on data does not fit in memory");
    if (state.thrown) std::rethrow_exception(state.thrown);
    if (!state.unknown.empty())
      fail(ErrorKind::kUnsupported, "no-reference",
           cat("operator '", state.unknown, "' is computed by the application, and has no reference"),
           "declare a 'reference' in the file of --ops");
  }

  void take_results(State& state, std::vector<loop::HostTensor>* states) const {
    const loop::Program& p = program();
    for (size_t o = 0; o < p.outputs.size(); ++o) {
      state.output_memory[o]->check("output '" + p[p.outputs[o]].name + "'");
      take(abi->outputs[o], *state.output_memory[o], state.outputs[o]);
    }
    for (size_t s = 0; s < p.states.size(); ++s) {
      state.state_memory[s]->check("state '" + p[p.states[s]].name + "'");
      if (states && s < states->size()) take(module->states[s].value, *state.state_memory[s], (*states)[s]);
    }
  }

  std::vector<loop::HostTensor> run(const std::vector<loop::HostTensor>& inputs,
                                    std::vector<loop::HostTensor>* states) {
    std::vector<int64_t> symbols(static_cast<size_t>(abi->symbol_count) + 1);
    const std::vector<int64_t> state_dims = bind_context(inputs, symbols);
    bind_inputs(inputs, symbols);
    State state;
    state.impl = this;
    state.slots.resize(static_cast<size_t>(abi->slot_count));
    state.failures.resize(static_cast<size_t>(options.parts));
    place_outputs(state, symbols);
    place_states(state, state_dims, states);
    const stridec_abi_variant& variant = abi->variants[0];
    const Memory arena(variant.workspace_bytes(symbols.data(), options.parts), options.poison);
    std::vector<const void*> data;
    std::vector<std::vector<uint8_t>> ordered(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const loop::HostTensor& input = inputs[i];
      if (abi->inputs[i].memory_order)
        ordered[i] = in_memory_order(abi->inputs[i], input.shape, input.bytes, input.dtype);
      data.push_back(abi->inputs[i].memory_order ? ordered[i].data() : input.bytes.data());
    }
    stridec_abi_run run{};
    run.symbols = symbols.data();
    run.inputs = data.data();
    run.outputs = state.pointers.data();
    run.states = state.state_pointers.data();
    run.weights = weights->get();
    run.parameters = weights->get();
    run.arena = arena.get();
    run.failures = state.failures.data();
    run.threads = options.parts;
    run.launch = launch;
    run.resize_output = resize_output;
    run.allocate = allocate;
    run.call = call;
    run.context = &state;
    const auto start = std::chrono::steady_clock::now();
    const int32_t status = variant.run(&run);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    arena.check("the arena");
    for (const auto& slot : state.slots)
      if (slot) slot->check("a buffer allocated during the run");
    throw_if_failed(state);
    STRIDEC_CHECK(status == 0, "run() failed without a failure");
    take_results(state, states);
    return std::move(state.outputs);
  }
};

CompiledProgram::CompiledProgram(loop::Program program, RunCompiledOptions options)
    : impl_(std::make_unique<Impl>(std::move(program), std::move(options))) {}
CompiledProgram::~CompiledProgram() = default;

std::vector<loop::HostTensor> CompiledProgram::run(const std::vector<loop::HostTensor>& inputs,
                                                   std::vector<loop::HostTensor>* states) {
  return impl_->run(inputs, states);
}
double CompiledProgram::time(const std::vector<loop::HostTensor>& inputs) {
  impl_->run(inputs, nullptr);
  return impl_->seconds;
}
const Built& CompiledProgram::built() const { return impl_->built; }
const loop::Program& CompiledProgram::program() const { return impl_->program(); }

std::vector<loop::HostTensor> run_compiled(const loop::Program& program,
                                           const std::vector<loop::HostTensor>& inputs,
                                           const RunCompiledOptions& options) {
  return CompiledProgram(program, options).run(inputs);
}

}  // namespace stridec::codegen::cpu
