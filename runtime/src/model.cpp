#include "model.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <new>

#include "cpu_features.h"
#include "machine.h"
#include "memory.h"
#include "tensor.h"
#include "text.h"
#include "threads.h"
#include "trace_file.h"

namespace stridec::runtime {
namespace {

const char* next_text(const char* text) { return text + strlen(text) + 1; }

void write_shape(Text& text, const stridec_abi_value& value) {
  text << '[';
  const char* dim = value.dims;
  for (int32_t i = 0; i < value.rank; ++i, dim = next_text(dim)) text << (i ? ", " : "") << dim;
  text << ']';
}

size_t shape_bytes(const stridec_abi_value& value) {
  const char* end = value.dims;
  for (int32_t i = 0; i < value.rank; ++i) end = next_text(end);
  return static_cast<size_t>(end - value.dims) + static_cast<size_t>(value.rank) + 3;
}

void free_texts(ValueTexts& texts, int32_t count) {
  for (int32_t i = 0; texts.shapes && i < count; ++i) free(texts.shapes[i]);
  for (int32_t i = 0; texts.dims && i < count; ++i) free(texts.dims[i]);
  free(texts.shapes);
  free(texts.dims);
  free(texts.dtypes);
}

void destroy(stridec_model* model) {
  cuda_close(model->cuda);
  close_blob(model->blob);
  const stridec_abi_module& m = *model->module;
  for (int32_t i = 0; model->functions && i < m.function_count; ++i) {
    Function& f = model->functions[i];
    free_texts(f.inputs, f.abi ? f.abi->input_count : 0);
    free_texts(f.outputs, f.abi ? f.abi->output_count : 0);
    free(f.step_names);
    free(f.shown_symbols);
  }
  free(model->functions);
  free_texts(model->states, m.state_count);
  free_texts(model->parameters, m.parameter_count);
  free(model);
}

stridec_status no_memory(Text& message) {
  message << "no memory for the description of the model";
  return STRIDEC_OUT_OF_MEMORY;
}

// The symbols that sizes may name: `shown` are indices into them; null: all.
struct Symbols {
  const stridec_abi_symbol* all;
  const int32_t* shown;
  int32_t count;
};

// Returns null if memory is exhausted.
stridec_dim* make_dims(const stridec_abi_value& value, const Symbols& symbols) {
  auto* dims = make_array<stridec_dim>(value.rank);
  const char* text = value.dims;
  for (int32_t i = 0; dims && i < value.rank; ++i, text = next_text(text)) {
    dims[i] = {
        .minimum = value.ranges[2 * i], .maximum = value.ranges[2 * i + 1], .symbol = -1, .text = text};
    for (int32_t s = 0; s < symbols.count; ++s)
      if (!strcmp(symbols.all[symbols.shown ? symbols.shown[s] : s].name, text)) dims[i].symbol = s;
  }
  return dims;
}

// Values are an array of stridec_abi_value, or the beginnings of larger structs of `stride` bytes.
stridec_status describe(const stridec_abi_value* values, int32_t count, size_t stride, const Symbols& symbols,
                        ValueTexts& texts, Text& message) {
  texts.dtypes = make_array<const DType*>(count);
  texts.shapes = make_array<char*>(count);
  texts.dims = make_array<stridec_dim*>(count);
  if (!texts.dtypes || !texts.shapes || !texts.dims) return no_memory(message);
  for (int32_t i = 0; i < count; ++i) {
    const auto& value = *reinterpret_cast<const stridec_abi_value*>(reinterpret_cast<const char*>(values) +
                                                                    stride * static_cast<size_t>(i));
    texts.dtypes[i] = find_dtype(value.dtype);
    if (!texts.dtypes[i] || value.rank < 0 || value.rank > kMaxRank) {
      message << "'" << value.name << "' has dtype number " << value.dtype << " and rank " << value.rank
              << ", which this runtime does not know";
      return STRIDEC_BAD_ARTIFACT;
    }
    size_t room = shape_bytes(value);
    texts.shapes[i] = make_array<char>(static_cast<int64_t>(room));
    texts.dims[i] = make_dims(value, symbols);
    if (!texts.shapes[i] || !texts.dims[i]) return no_memory(message);
    Text text(texts.shapes[i], room);
    write_shape(text, value);
  }
  return STRIDEC_OK;
}

stridec_status describe(const stridec_abi_state* stored, int32_t count, const stridec_abi_module& m,
                        ValueTexts& texts, Text& message) {
  return describe(count ? &stored->value : nullptr, count, sizeof(stridec_abi_state),
                  {m.sizes, nullptr, m.size_count}, texts, message);
}

stridec_status describe(Function& f, Text& message) {
  const stridec_abi_function& abi = *f.abi;
  f.shown_symbols = make_array<int32_t>(abi.symbol_count);
  if (!f.shown_symbols) return no_memory(message);
  for (int32_t i = 0; i < abi.symbol_count; ++i)
    if (abi.symbols[i].shown) f.shown_symbols[f.symbol_count++] = i;
  const Symbols symbols = {abi.symbols, f.shown_symbols, f.symbol_count};
  stridec_status status =
      describe(abi.inputs, abi.input_count, sizeof(stridec_abi_value), symbols, f.inputs, message);
  if (status == STRIDEC_OK)
    status = describe(abi.outputs, abi.output_count, sizeof(stridec_abi_value), symbols, f.outputs, message);
  if (status != STRIDEC_OK) return status;
  f.step_names = make_array<const char*>(f.variant->step_count);
  if (!f.step_names) return no_memory(message);
  for (int32_t i = 0; i < abi.output_count; ++i) f.output_dim_count += abi.outputs[i].rank;
  const char* name = f.variant->step_names;
  for (int32_t i = 0; i < f.variant->step_count; ++i, name = next_text(name)) f.step_names[i] = name;
  return STRIDEC_OK;
}

// Describes all functions, with their code for the chosen target, the states and the parameters.
stridec_status describe_module(stridec_model& model, Text& message) {
  const stridec_abi_module& m = *model.module;
  const auto target = model.target - m.targets;
  model.functions = make_array<Function>(m.function_count);
  if (!model.functions) return no_memory(message);
  stridec_status status = STRIDEC_OK;
  for (int32_t i = 0; i < m.function_count && status == STRIDEC_OK; ++i) {
    model.functions[i].abi = &m.functions[i];
    model.functions[i].variant = &m.functions[i].variants[target];
    model.functions[i].index = i;
    status = describe(model.functions[i], message);
  }
  if (status == STRIDEC_OK) status = describe(m.states, m.state_count, m, model.states, message);
  if (status == STRIDEC_OK) status = describe(m.parameters, m.parameter_count, m, model.parameters, message);
  return status;
}

// Whether the caller's options allow the target.
bool allowed(const stridec_abi_target& v, const stridec_model_options& options) {
  const int32_t type = v.device == STRIDEC_ABI_CUDA ? STRIDEC_DEVICE_CUDA : STRIDEC_DEVICE_CPU;
  return (options.device_type == 0 || options.device_type == type) &&
         (!options.variant || strcmp(options.variant, v.name) == 0);
}

// Whether the machine can run code for the target; writes the reason if not.
bool usable(const stridec_model& model, const stridec_abi_target& v, Text& reason) {
  if (v.device == STRIDEC_ABI_CUDA) return cuda_usable(v, model.device_id, reason);
  uint64_t missing = v.features & ~model.cpu;
  if (!missing) return true;
  reason << "it lacks ";
  list_features(reason, missing);
  return false;
}

// The first target, starting at number `first`, that the options allow and the machine can run; null: none.
const stridec_abi_target* find_target(const stridec_model& model, const stridec_model_options& options,
                                      int32_t first) {
  const stridec_abi_module& p = *model.module;
  Text nowhere(nullptr, 0);
  for (int32_t i = first; i < p.target_count; ++i)
    if (allowed(p.targets[i], options) && usable(model, p.targets[i], nowhere)) return &p.targets[i];
  return nullptr;
}

// Writes one sentence on why the variant that the caller named cannot be used.
stridec_status explain_named(const stridec_model& model, const stridec_model_options& options,
                             Text& message) {
  const stridec_abi_module& p = *model.module;
  for (int32_t i = 0; i < p.target_count; ++i) {
    const stridec_abi_target& v = p.targets[i];
    if (strcmp(options.variant, v.name) != 0) continue;
    const bool gpu = v.device == STRIDEC_ABI_CUDA;
    if (!allowed(v, options)) {
      message << "the variant '" << v.name << "' is code for " << (gpu ? "a GPU" : "a CPU")
              << ", and device_type " << options.device_type << " asks for " << (gpu ? "a CPU" : "a GPU");
      return STRIDEC_INVALID_ARGUMENT;
    }
    if (gpu)
      message << "the GPU variant '" << v.name << "' does not run here: ";
    else
      message << "this processor does not run the CPU variant '" << v.name << "': ";
    usable(model, v, message);
    return gpu ? STRIDEC_UNSUPPORTED_DEVICE : STRIDEC_UNSUPPORTED_CPU;
  }
  message << "the artifact has no variant '" << options.variant << "'; it has ";
  for (int32_t i = 0; i < p.target_count; ++i) message << (i ? ", " : "") << p.targets[i].name;
  return STRIDEC_INVALID_ARGUMENT;
}

// Writes one sentence on why no CPU variant can be used.
stridec_status explain_no_cpu(const stridec_model& model, Text& message) {
  const stridec_abi_module& p = *model.module;
  int32_t count = 0;
  for (int32_t i = 0; i < p.target_count; ++i) {
    const stridec_abi_target& v = p.targets[i];
    if (v.device != STRIDEC_ABI_CPU) continue;
    message << (count++ ? "; " : "this processor runs none of the artifact's CPU variants: ") << v.name
            << " needs ";
    list_features(message, v.features & ~model.cpu);
  }
  if (count)
    message << ". Compile it with --cpu for this machine";
  else
    message << "a CPU was asked for, and the artifact has no code for one; compile it with --target cpu,cuda";
  return STRIDEC_UNSUPPORTED_CPU;
}

// Writes one sentence on why no GPU variant can be used.
stridec_status explain_no_device(const stridec_model& model, Text& message) {
  const stridec_abi_module& p = *model.module;
  int32_t count = 0;
  for (int32_t i = 0; i < p.target_count; ++i) {
    const stridec_abi_target& v = p.targets[i];
    if (v.device != STRIDEC_ABI_CUDA) continue;
    if (count++ == 0) {
      message << "no GPU runs this artifact: ";
      usable(model, v, message);
      message << "; it has code for ";
    }
    message << (count > 1 ? ", " : "") << v.name;
  }
  if (!count)
    message << "a GPU was asked for, and the artifact has no code for one; compile it with --target cuda";
  return STRIDEC_UNSUPPORTED_DEVICE;
}

stridec_status explain_none(const stridec_model& model, const stridec_model_options& options, Text& message) {
  if (options.variant) return explain_named(model, options, message);
  bool cpu = options.device_type == STRIDEC_DEVICE_CPU;
  for (int32_t i = 0; i < model.module->target_count; ++i)
    cpu |= model.module->targets[i].device == STRIDEC_ABI_CPU && allowed(model.module->targets[i], options);
  return cpu ? explain_no_cpu(model, message) : explain_no_device(model, message);
}

stridec_status open_device(stridec_model& model, Text& message) {
  if (model.target->device != STRIDEC_ABI_CUDA) return STRIDEC_OK;
  int32_t first = 0;
  for (const stridec_abi_target* v = model.module->targets; v != model.target; ++v) first += v->kernel_count;
  return cuda_open(*model.target, first, model.device_id, model.blob.images, model.blob.weights, &model.cuda,
                   message);
}

// Opens the selected target. If the driver cannot load it (the driver may be older than the code), tries the
// next ones: PTX, which the driver compiles itself, or CPU code. The error message is about the best one.
stridec_status open_target(stridec_model& model, const stridec_model_options& options, Text& message) {
  const stridec_abi_module& p = *model.module;
  const stridec_status status = open_device(model, message);
  if (status != STRIDEC_UNSUPPORTED_DEVICE) return status;
  Text nowhere(nullptr, 0);
  for (;;) {
    cuda_close(model.cuda);
    model.cuda = nullptr;
    model.target = find_target(model, options, static_cast<int32_t>(model.target - p.targets) + 1);
    if (!model.target) return status;
    const stridec_status next = open_device(model, nowhere);
    if (next != STRIDEC_UNSUPPORTED_DEVICE) return next;
  }
}

// Tells the caller's log which variant runs, and for each better one that the options allow, why not that.
void log_choice(const stridec_model& model, const stridec_model_options& options) {
  char sentence[512];
  for (const stridec_abi_target* v = model.module->targets; v != model.target; ++v) {
    if (!allowed(*v, options)) continue;
    Text text(sentence, sizeof sentence);
    text << "'" << model.module->name << "' does not use its variant '" << v->name << "': ";
    if (usable(model, *v, text)) text << "the driver cannot load its code";
    options.log(options.log_user, sentence);
  }
  Text text(sentence, sizeof sentence);
  text << "'" << model.module->name << "' uses its variant '" << model.target->name << "'";
  options.log(options.log_user, sentence);
}

// Tells the caller's log that STRIDEC_PROFILE names a file, and whether contexts can write it.
void log_trace(const stridec_model& model, const stridec_model_options& options) {
  char path[4096], sentence[4200];
  Text name(path, sizeof path), text(sentence, sizeof sentence);
  if (!trace_path(model.module->name, name)) return;
  text << "STRIDEC_PROFILE: '" << path
       << (trace_file_test(path) ? "' gets a trace" : "' cannot be written, so runs are not traced");
  options.log(options.log_user, sentence);
}

// Tells the caller's log that STRIDEC_THREADS has no effect.
void log_threads(const stridec_model_options& options) {
  const char* const given = getenv("STRIDEC_THREADS");
  if (!given || !*given || wished_threads(kMaxThreads)) return;
  char sentence[512], shown[64];
  Text start(shown, sizeof shown), text(sentence, sizeof sentence);
  start << given;
  text << "STRIDEC_THREADS is '" << shown << "', which is not a number from 1 to " << kMaxThreads
       << ": without a number of threads of their own, contexts have as many as this process may use";
  options.log(options.log_user, sentence);
}

stridec_status fill(stridec_model& model, const stridec_model_options& options, const stridec_abi_note& note,
                    const char* base, Text& message) {
  const stridec_abi_module& p = *model.module;
  const int32_t type = options.device_type;
  if (type != 0 && type != STRIDEC_DEVICE_CPU && type != STRIDEC_DEVICE_CUDA) {
    message << "device_type is " << type << "; expected 0 (any), 1 (CPU) or 2 (CUDA)";
    return STRIDEC_INVALID_ARGUMENT;
  }
  constexpr uint32_t kFlags = STRIDEC_MODEL_SKIP_WEIGHTS_HASH | STRIDEC_MODEL_COPY_WEIGHTS |
                              STRIDEC_MODEL_NO_RUN | STRIDEC_MODEL_CHECK_HASH;
  if (options.flags & ~kFlags) {
    message << "the model's flags have unknown bits: " << uint64_t{options.flags & ~kFlags};
    return STRIDEC_INVALID_ARGUMENT;
  }
  model.device_id = options.device_id;
  uint64_t asked = 0;
  for (int32_t i = 0; i < p.target_count; ++i) asked |= p.targets[i].features;
  model.cpu = cpu_features(asked & STRIDEC_CPU_AMX_TILE);
  model.target = find_target(model, options, 0);
  model.no_run = options.flags & STRIDEC_MODEL_NO_RUN;
  if (model.no_run && !model.target) model.target = &p.targets[0];
  if (!model.target) return explain_none(model, options, message);
  if (options.flags & STRIDEC_MODEL_CHECK_HASH) {
    const stridec_status intact = check_seal(message);
    if (intact != STRIDEC_OK) return intact;
  }
  stridec_status status = find_blob(note, base, p, options.weights_dir,
                                    !(options.flags & STRIDEC_MODEL_SKIP_WEIGHTS_HASH), model.blob, message);
  if (status == STRIDEC_OK && !model.no_run) status = open_target(model, options, message);
  if (status == STRIDEC_OK) status = describe_module(model, message);
  if (status != STRIDEC_OK) return status;
  if ((options.flags & STRIDEC_MODEL_COPY_WEIGHTS) && model.target->device == STRIDEC_ABI_CPU)
    copy_weights(model.blob);
  if (options.log) log_choice(model, options), log_trace(model, options), log_threads(options);
  return STRIDEC_OK;
}

}  // namespace

constexpr size_t kLargestOptions = 4096;

bool take_options(void* out, size_t out_bytes, const void* given) {
  memset(out, 0, out_bytes);
  if (!given) return true;
  size_t bytes;
  memcpy(&bytes, given, sizeof bytes);
  // An uninitialised size is usually absurd, so the struct is not read if the size is out of range.
  if (bytes < sizeof bytes || bytes > kLargestOptions) return false;
  auto* surplus = static_cast<const char*>(given);
  for (size_t i = out_bytes; i < bytes; ++i)
    if (surplus[i]) return false;
  memcpy(out, given, bytes < out_bytes ? bytes : out_bytes);
  return true;
}

stridec_status give_info(void* given, const void* info, size_t info_bytes) {
  size_t bytes;
  memcpy(&bytes, given, sizeof bytes);
  if (bytes < sizeof bytes) return STRIDEC_INVALID_ARGUMENT;
  if (bytes > info_bytes) bytes = info_bytes;
  memcpy(static_cast<char*>(given) + sizeof bytes, static_cast<const char*>(info) + sizeof bytes,
         bytes - sizeof bytes);
  return STRIDEC_OK;
}

stridec_status open_module(const stridec_abi_module& module, const stridec_abi_note& note, const char* base,
                           const stridec_model_options* given, stridec_model** model, char* message_out,
                           size_t message_bytes) {
  Text message(message_out, message_out ? message_bytes : 0);
  if (!model) {
    message << "model is null: there is nowhere to put the handle";
    return STRIDEC_INVALID_ARGUMENT;
  }
  *model = nullptr;
  stridec_model_options options;
  if (!take_options(&options, sizeof options, given)) {
    message << "the options are not those of this version of the API: set struct_size, and zero the rest";
    return STRIDEC_INVALID_ARGUMENT;
  }
  if (module.abi_version != STRIDEC_ABI_VERSION || module.struct_size != sizeof module) {
    message << "the artifact's code and runtime are of different versions";
    return STRIDEC_BAD_ARTIFACT;
  }
  void* memory = calloc(1, sizeof(stridec_model));
  if (!memory) {
    message << "no memory for the model";
    return STRIDEC_OUT_OF_MEMORY;
  }
  auto* made = new (memory) stridec_model{.references = 1, .module = &module};
  stridec_status status = fill(*made, options, note, base, message);
  if (status != STRIDEC_OK) {
    destroy(made);
    return status;
  }
  *model = made;
  return STRIDEC_OK;
}

void retain(stridec_model* model) { model->references.fetch_add(1, std::memory_order_relaxed); }

void release(stridec_model* model) {
  if (model && model->references.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(model);
}

}  // namespace stridec::runtime
