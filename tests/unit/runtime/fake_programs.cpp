#include "tests/unit/runtime/fake_programs.h"

namespace fake {

float weights[4] = {0.5f, 10.f, 20.f, 30.f};

namespace {

enum { kF32 = 1, kU4 = 21, kI64 = 7, kBF16 = 16 };

// Ranges for the tests that do not look at them.
constexpr int64_t any_size[] = {0, INT64_MAX, 0, INT64_MAX};
constexpr int64_t scale_sizes[] = {1, 64, 1, 4096};

bool out_of(int64_t value, int64_t low, int64_t high) { return value < low || value > high; }

int32_t fail(stridec_abi_failure* failure, int32_t message, int64_t v0 = 0, int64_t v1 = 0) {
  stridec_abi_record(failure, message, v0, v1, 0, 0);
  return 1;
}

stridec_abi_args arguments(stridec_abi_run* run, void* const* buffers, const int64_t* sizes) {
  return {buffers, sizes, nullptr, 0, run->failures};
}

// ---- scale

const stridec_abi_symbol scale_symbols[] = {{"batch", 1, 64, 1, 0, 1}, {"n", 1, 4096, 1, 0, 1}};
const stridec_abi_value scale_inputs[] = {{"x", kF32, 2, 0, 0, "batch\0n\0", scale_sizes},
                                          {"scale", kF32, 1, 0, 0, "n\0", any_size}};
const stridec_abi_value scale_outputs[] = {{"y", kF32, 2, 0, 0, "batch\0n\0", any_size},
                                           {"total", kF32, 1, 0, 0, "batch\0", any_size}};
const stridec_abi_message scale_messages[] = {
    {STRIDEC_ABI_GUARD, "input 'x': dim 0 (batch) is {0}; this artifact serves 1..64"},
    {STRIDEC_ABI_GUARD, "input 'x': dim 1 (n) is {0}; this artifact serves 1..4096"},
    {STRIDEC_ABI_GUARD, "input 'scale': dim 0 is {0}; it must equal n, which is {1}"},
};

int32_t scale_bind(const int64_t* const* dims, const void* const*, int64_t* symbols,
                   stridec_abi_failure* failure) {
  symbols[0] = dims[0][0];
  symbols[1] = dims[0][1];
  if (out_of(symbols[0], 1, 64)) return fail(failure, 0, symbols[0]);
  if (out_of(symbols[1], 1, 4096)) return fail(failure, 1, symbols[1]);
  if (dims[1][0] != symbols[1]) return fail(failure, 2, dims[1][0], symbols[1]);
  return 0;
}

void scale_output_dims(const int64_t* symbols, int64_t* dims) {
  dims[0] = symbols[0];
  dims[1] = symbols[1];
  dims[2] = symbols[0];
}

// The product, followed by 64 bytes per thread for its sum.
int64_t scale_sums(const int64_t* symbols) { return (symbols[0] * symbols[1] * 4 + 63) / 64 * 64; }
int64_t scale_workspace(const int64_t* symbols, int64_t threads) {
  return scale_sums(symbols) + 64 * threads;
}

// One task per row. buffers: x, scale, product; sizes: n.
void multiply(const stridec_abi_args* a, int64_t begin, int64_t end, int32_t) {
  auto* x = static_cast<const float*>(a->buffers[0]);
  auto* scale = static_cast<const float*>(a->buffers[1]);
  auto* out = static_cast<float*>(a->buffers[2]);
  int64_t n = a->sizes[0];
  for (int64_t i = begin; i < end; ++i)
    for (int64_t j = 0; j < n; ++j) out[i * n + j] = x[i * n + j] * scale[j];
}

// One task per element. buffers: product, bias, y.
void add(const stridec_abi_args* a, int64_t begin, int64_t end, int32_t part) {
  auto* x = static_cast<const float*>(a->buffers[0]);
  auto* bias = static_cast<const float*>(a->buffers[1]);
  auto* y = static_cast<float*>(a->buffers[2]);
  for (int64_t i = begin, last; (last = stridec_abi_take(a, part, i, end)) > i;)
    for (; i < last; ++i) y[i] = x[i] + *bias;
}

// One task per row; the sum accumulates in the part's scratch. buffers: product, total; sizes: n.
void sum(const stridec_abi_args* a, int64_t begin, int64_t end, int32_t part) {
  auto* x = static_cast<const float*>(a->buffers[0]);
  auto* total = static_cast<float*>(a->buffers[1]);
  auto* scratch = reinterpret_cast<float*>(stridec_abi_scratch(a, part));
  int64_t n = a->sizes[0];
  for (int64_t i = begin; i < end; ++i) {
    *scratch = 0;
    for (int64_t j = 0; j < n; ++j) *scratch += x[i * n + j];
    total[i] = *scratch;
  }
}

int32_t scale_run(stridec_abi_run* run) {
  int64_t batch = run->symbols[0], n = run->symbols[1];
  void* multiply_buffers[] = {const_cast<void*>(run->inputs[0]), const_cast<void*>(run->inputs[1]),
                              run->arena};
  stridec_abi_args multiply_args = arguments(run, multiply_buffers, &n);
  if (run->launch(run, multiply, &multiply_args, batch, 1, 0, 0)) return 1;
  void* add_buffers[] = {run->arena, const_cast<char*>(run->weights), run->outputs[0]};
  stridec_abi_args add_args = arguments(run, add_buffers, nullptr);
  if (run->launch(run, add, &add_args, batch * n, 16, 1, 1)) return 1;
  void* sum_buffers[] = {run->arena, run->outputs[1]};
  stridec_abi_args sum_args = arguments(run, sum_buffers, &n);
  sum_args.scratch = run->arena + scale_sums(run->symbols);
  sum_args.scratch_stride = 64;
  return run->launch(run, sum, &sum_args, batch, 1, 2, 0);
}

const stridec_abi_variant scale_variants[] = {
    {scale_workspace, nullptr, nullptr, scale_run, 3, 0, "multiply\0add\0sum\0"}};

// ---- nonzero

const stridec_abi_symbol nonzero_symbols[] = {{"n", 0, INT64_MAX, 1, 0, 1}, {"count", 0, INT64_MAX, 1, 1, 1}};
const stridec_abi_value nonzero_inputs[] = {{"x", kF32, 1, 0, 0, "n\0", any_size}};
const stridec_abi_value nonzero_outputs[] = {{"index", kI64, 1, 0, 0, "count\0", any_size}};

int32_t nonzero_bind(const int64_t* const* dims, const void* const*, int64_t* symbols, stridec_abi_failure*) {
  symbols[0] = dims[0][0];
  symbols[1] = -1;
  return 0;
}

void nonzero_output_dims(const int64_t* symbols, int64_t* dims) { dims[0] = symbols[1]; }

int32_t nonzero_run(stridec_abi_run* run) {
  auto* x = static_cast<const float*>(run->inputs[0]);
  auto* found = static_cast<int64_t*>(run->allocate(run, 0, run->symbols[0] * 8));
  if (!found) return 1;
  int64_t count = 0;
  for (int64_t i = 0; i < run->symbols[0]; ++i)
    if (x[i] != 0) found[count++] = i;
  run->symbols[1] = count;
  auto* index = static_cast<int64_t*>(run->resize_output(run, 0, &count));
  if (!index) return 1;
  for (int64_t i = 0; i < count; ++i) index[i] = found[i];
  return 0;
}

const stridec_abi_variant nonzero_variants[] = {{nullptr, nullptr, nullptr, nonzero_run, 0, 0, nullptr}};

// ---- gather

const stridec_abi_symbol gather_symbols[] = {{"rows", 1, INT64_MAX, 1, 0, 1}, {"k", 0, INT64_MAX, 1, 0, 1}};
const stridec_abi_value gather_inputs[] = {{"table", kF32, 2, 0, 0, "rows\0004\0", any_size},
                                           {"index", kI64, 1, 0, 0, "k\0", any_size}};
const stridec_abi_value gather_outputs[] = {{"out", kF32, 2, 0, 0, "k\0004\0", any_size}};
const stridec_abi_message gather_messages[] = {
    {STRIDEC_ABI_GUARD, "input 'table': dim 1 is {0}; this artifact takes 4"},
    {STRIDEC_ABI_DATA, "Gather 'g': index {1} at position {0} is outside [-{2}, {2})"},
};

int32_t gather_bind(const int64_t* const* dims, const void* const*, int64_t* symbols,
                    stridec_abi_failure* failure) {
  symbols[0] = dims[0][0];
  symbols[1] = dims[1][0];
  return dims[0][1] == 4 ? 0 : fail(failure, 0, dims[0][1]);
}

void gather_output_dims(const int64_t* symbols, int64_t* dims) {
  dims[0] = symbols[1];
  dims[1] = 4;
}

void gather_rows(const stridec_abi_args* a, int64_t begin, int64_t end, int32_t part) {
  auto* table = static_cast<const float*>(a->buffers[0]);
  auto* index = static_cast<const int64_t*>(a->buffers[1]);
  auto* out = static_cast<float*>(a->buffers[2]);
  int64_t rows = a->sizes[0];
  for (int64_t i = begin; i < end; ++i) {
    int64_t row = index[i] < 0 ? index[i] + rows : index[i];
    if (row < 0 || row >= rows) return stridec_abi_fail(a, part, 1, i, index[i], rows, 0);
    for (int j = 0; j < 4; ++j) out[i * 4 + j] = table[row * 4 + j];
  }
}

int32_t gather_run(stridec_abi_run* run) {
  void* buffers[] = {const_cast<void*>(run->inputs[0]), const_cast<void*>(run->inputs[1]), run->outputs[0]};
  stridec_abi_args args = arguments(run, buffers, &run->symbols[0]);
  return run->launch(run, gather_rows, &args, run->symbols[1], 1, 0, 0);
}

const stridec_abi_variant gather_variants[] = {{nullptr, nullptr, nullptr, gather_run, 1, 0, "gather\0"}};

// ---- counter

const int64_t four[] = {4};
const stridec_abi_value counter_inputs[] = {{"x", kF32, 1, 0, 0, "4\0", any_size}};
const stridec_abi_value counter_outputs[] = {{"sum", kF32, 1, 0, 0, "4\0", any_size}};
const stridec_abi_state counter_states[] = {{{"total", kF32, 1, 0, 0, "4\0", any_size}, four, 0},
                                            {{"calls", kI64, 0, 0, 0, nullptr, nullptr}, nullptr, -1}};
const stridec_abi_message counter_messages[] = {
    {STRIDEC_ABI_GUARD, "input 'x': dim 0 is {0}; this artifact takes 4"}};

int32_t counter_bind(const int64_t* const* dims, const void* const*, int64_t*, stridec_abi_failure* failure) {
  return dims[0][0] == 4 ? 0 : fail(failure, 0, dims[0][0]);
}

void counter_output_dims(const int64_t*, int64_t* dims) { dims[0] = 4; }

int32_t counter_run(stridec_abi_run* run) {
  auto* x = static_cast<const float*>(run->inputs[0]);
  auto* out = static_cast<float*>(run->outputs[0]);
  auto* total = static_cast<float*>(run->states[0]);
  for (int i = 0; i < 4; ++i) out[i] = total[i] += x[i];
  ++*static_cast<int64_t*>(run->states[1]);
  return 0;
}

const stridec_abi_variant counter_variants[] = {{nullptr, nullptr, nullptr, counter_run, 0, 0, nullptr}};

// ---- expand

const stridec_abi_symbol expand_symbols[] = {{"a", 0, 100, 1, 0, 1}, {"b", 0, 100, 1, 0, 1}};
const stridec_abi_value expand_inputs[] = {{"shape", kI64, 1, STRIDEC_ABI_READ_BY_BIND, 0, "2\0", any_size},
                                           {"x", kF32, 0, 0, 0, nullptr}};
const stridec_abi_value expand_outputs[] = {{"y", kF32, 2, 0, 0, "a\0b\0", any_size}};
const stridec_abi_message expand_messages[] = {
    {STRIDEC_ABI_GUARD, "input 'shape': dim 0 is {0}; this artifact takes 2"},
    {STRIDEC_ABI_GUARD, "input 'shape': element {0} is {1}; this artifact serves 0..100"},
};

int32_t expand_bind(const int64_t* const* dims, const void* const* data, int64_t* symbols,
                    stridec_abi_failure* failure) {
  if (dims[0][0] != 2) return fail(failure, 0, dims[0][0]);
  auto* shape = static_cast<const int64_t*>(data[0]);
  for (int i = 0; i < 2; ++i) {
    symbols[i] = shape ? shape[i] : -1;
    if (shape && out_of(shape[i], 0, 100)) return fail(failure, 1, i, shape[i]);
  }
  return 0;
}

void expand_output_dims(const int64_t* symbols, int64_t* dims) {
  dims[0] = symbols[0];
  dims[1] = symbols[1];
}

int64_t expand_workspace(const int64_t* symbols, int64_t) {
  int64_t a = symbols[0] < 0 ? 100 : symbols[0], b = symbols[1] < 0 ? 100 : symbols[1];
  return a * b * 4;
}

int32_t expand_run(stridec_abi_run* run) {
  auto* y = static_cast<float*>(run->outputs[0]);
  for (int64_t i = 0; i < run->symbols[0] * run->symbols[1]; ++i)
    y[i] = *static_cast<const float*>(run->inputs[1]);
  return 0;
}

const stridec_abi_variant expand_variants[] = {
    {expand_workspace, nullptr, nullptr, expand_run, 0, 0, nullptr}};

// ---- narrow

const stridec_abi_symbol narrow_symbols[] = {{"n", 0, INT64_MAX, 1, 0, 1}, {"m", 0, INT64_MAX, 1, 0, 1}};
const stridec_abi_value narrow_inputs[] = {{"x", kBF16, 1, 0, 0, "n\0", any_size},
                                           {"q", kU4, 1, 0, 0, "m\0", any_size}};
const stridec_abi_value narrow_outputs[] = {{"y", kBF16, 1, 0, 0, "n\0", any_size},
                                            {"r", kU4, 1, 0, 0, "m\0", any_size}};

int32_t narrow_bind(const int64_t* const* dims, const void* const*, int64_t* symbols, stridec_abi_failure*) {
  symbols[0] = dims[0][0];
  symbols[1] = dims[1][0];
  return 0;
}

void narrow_output_dims(const int64_t* symbols, int64_t* dims) {
  dims[0] = symbols[0];
  dims[1] = symbols[1];
}

int32_t narrow_run(stridec_abi_run* run) {
  for (int64_t i = 0; i < run->symbols[0]; ++i)
    static_cast<uint16_t*>(run->outputs[0])[i] = static_cast<const uint16_t*>(run->inputs[0])[i];
  for (int64_t i = 0; i < run->symbols[1]; ++i)
    static_cast<uint8_t*>(run->outputs[1])[i] = static_cast<const uint8_t*>(run->inputs[1])[i];
  return 0;
}

const stridec_abi_variant narrow_variants[] = {{nullptr, nullptr, nullptr, narrow_run, 0, 0, nullptr}};

// ---- variants

constexpr uint64_t kImpossible = STRIDEC_CPU_BIT(63);
const stridec_abi_target many_targets[] = {{"future", kImpossible | STRIDEC_CPU_SSE3}, {"baseline", 0}};
const stridec_abi_variant many_variants[] = {
    {scale_workspace, nullptr, nullptr, scale_run, 3, 0, "multiply\0add\0sum\0"},
    {scale_workspace, nullptr, nullptr, scale_run, 3, 0, "multiply\0add\0sum\0"}};

constexpr stridec_abi_function nonzero_function = {.name = "nonzero",
                                                   .symbol_count = 2,
                                                   .input_count = 1,
                                                   .output_count = 1,
                                                   .slot_count = 1,
                                                   .symbols = nonzero_symbols,
                                                   .inputs = nonzero_inputs,
                                                   .outputs = nonzero_outputs,
                                                   .variants = nonzero_variants,
                                                   .bind = nonzero_bind,
                                                   .output_dims = nonzero_output_dims};
constexpr stridec_abi_function gather_function = {.name = "gather",
                                                  .symbol_count = 2,
                                                  .input_count = 2,
                                                  .output_count = 1,
                                                  .symbols = gather_symbols,
                                                  .inputs = gather_inputs,
                                                  .outputs = gather_outputs,
                                                  .variants = gather_variants,
                                                  .bind = gather_bind,
                                                  .output_dims = gather_output_dims};
constexpr stridec_abi_function counter_function = {.name = "counter",
                                                   .input_count = 1,
                                                   .output_count = 1,
                                                   .inputs = counter_inputs,
                                                   .outputs = counter_outputs,
                                                   .variants = counter_variants,
                                                   .bind = counter_bind,
                                                   .output_dims = counter_output_dims};
constexpr stridec_abi_function expand_function = {.name = "expand",
                                                  .symbol_count = 2,
                                                  .input_count = 2,
                                                  .output_count = 1,
                                                  .symbols = expand_symbols,
                                                  .inputs = expand_inputs,
                                                  .outputs = expand_outputs,
                                                  .variants = expand_variants,
                                                  .bind = expand_bind,
                                                  .output_dims = expand_output_dims};
constexpr stridec_abi_function narrow_function = {.name = "narrow",
                                                  .symbol_count = 2,
                                                  .input_count = 2,
                                                  .output_count = 2,
                                                  .symbols = narrow_symbols,
                                                  .inputs = narrow_inputs,
                                                  .outputs = narrow_outputs,
                                                  .variants = narrow_variants,
                                                  .bind = narrow_bind,
                                                  .output_dims = narrow_output_dims};

// ---- clear: another function over the states of counter

const stridec_abi_value clear_outputs[] = {{"calls", kI64, 0, 0, 0, nullptr, nullptr}};

int32_t clear_bind(const int64_t* const*, const void* const*, int64_t*, stridec_abi_failure*) { return 0; }
void clear_output_dims(const int64_t*, int64_t*) {}
int32_t clear_run(stridec_abi_run* run) {
  auto* calls = static_cast<int64_t*>(run->states[1]);
  *static_cast<int64_t*>(run->outputs[0]) = *calls;
  *calls = 0;
  return 0;
}
const stridec_abi_variant clear_variants[] = {{nullptr, nullptr, nullptr, clear_run, 1, 0, "clear\0"}};

constexpr stridec_abi_function counter_and_clear[] = {counter_function,
                                                      {.name = "clear",
                                                       .output_count = 1,
                                                       .outputs = clear_outputs,
                                                       .variants = clear_variants,
                                                       .bind = clear_bind,
                                                       .output_dims = clear_output_dims}};

constexpr stridec_abi_function scale_function(const stridec_abi_variant* variants) {
  return {.name = "scale",
          .symbol_count = 2,
          .input_count = 2,
          .output_count = 2,
          .symbols = scale_symbols,
          .inputs = scale_inputs,
          .outputs = scale_outputs,
          .variants = variants,
          .bind = scale_bind,
          .output_dims = scale_output_dims};
}
constexpr stridec_abi_function scale_alone = scale_function(scale_variants);
constexpr stridec_abi_function scale_on_many = scale_function(many_variants);

const stridec_abi_target baseline[] = {{"baseline", 0}};

constexpr stridec_abi_module module_of(const stridec_abi_function* functions, int32_t count = 1) {
  return {.abi_version = STRIDEC_ABI_VERSION,
          .struct_size = sizeof(stridec_abi_module),
          .name = functions[0].name,
          .compiler = "by hand",
          .function_count = count,
          .target_count = 1,
          .functions = functions,
          .targets = baseline};
}
constexpr stridec_abi_module with_messages(stridec_abi_module module, const stridec_abi_message* messages,
                                           int32_t count) {
  module.messages = messages;
  module.message_count = count;
  return module;
}
constexpr stridec_abi_module with_weights(stridec_abi_module module) {
  module.weights_bytes = sizeof weights;
  return module;
}
constexpr stridec_abi_module with_states(stridec_abi_module module) {
  module.states = counter_states;
  module.state_count = 2;
  return with_weights(with_messages(module, counter_messages, 1));
}
constexpr stridec_abi_module scale_of(const stridec_abi_function* function, const stridec_abi_target* targets,
                                      int32_t count) {
  stridec_abi_module module = with_weights(with_messages(module_of(function), scale_messages, 3));
  module.targets = targets;
  module.target_count = count;
  module.metadata = "author\0me\0empty\0\0";
  module.metadata_count = 2;
  return module;
}

constexpr stridec_abi_module nonzero_module = module_of(&nonzero_function);
constexpr stridec_abi_module gather_module = with_messages(module_of(&gather_function), gather_messages, 2);
constexpr stridec_abi_module counter_module = with_states(module_of(&counter_function));
constexpr stridec_abi_module functions_module = with_states(module_of(counter_and_clear, 2));
constexpr stridec_abi_module expand_module = with_messages(module_of(&expand_function), expand_messages, 2);
constexpr stridec_abi_module narrow_module = module_of(&narrow_function);
constexpr stridec_abi_module variants_module = scale_of(&scale_on_many, many_targets, 2);
constexpr stridec_abi_module scale_module = scale_of(&scale_alone, baseline, 1);

}  // namespace

const stridec_abi_module& scale() { return scale_module; }
const stridec_abi_module& nonzero() { return nonzero_module; }
const stridec_abi_module& gather() { return gather_module; }
const stridec_abi_module& counter() { return counter_module; }
const stridec_abi_module& functions() { return functions_module; }
const stridec_abi_module& expand() { return expand_module; }
const stridec_abi_module& narrow() { return narrow_module; }
const stridec_abi_module& variants() { return variants_module; }

}  // namespace fake

// Without weights: an object that the packager did not make has no place for them.
constexpr stridec_abi_module stridec_module = fake::gather_module;
