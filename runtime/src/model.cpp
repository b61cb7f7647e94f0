#include "model.h"

#include <stdlib.h>
#include <string.h>

#include <new>

#include "cpu_features.h"
#include "memory.h"
#include "tensor.h"
#include "text.h"

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

int32_t value_count(const stridec_abi_program& p) {
  return p.input_count + p.output_count + p.state_count + p.parameter_count;
}

void destroy(stridec_model* model) {
  cuda_close(model->cuda);
  close_blob(model->blob);
  const stridec_abi_program& p = *model->program;
  if (model->shapes)
    for (int32_t i = 0; i < value_count(p); ++i) free(model->shapes[i]);
  free(model->shapes);
  free(model->dtypes);
  free(model->step_names);
  free(model);
}

stridec_status describe_values(stridec_model& model, Text& message) {
  const stridec_abi_program& p = *model.program;
  const int32_t count = value_count(p);
  model.dtypes = make_array<const DType*>(count);
  model.shapes = make_array<char*>(count);
  model.step_names = make_array<const char*>(model.variant->step_count);
  bool enough = model.dtypes && model.shapes && model.step_names;
  for (int32_t i = 0; enough && i < count; ++i) {
    const stridec_abi_value& value =
        i < p.input_count                    ? p.inputs[i]
        : i < p.input_count + p.output_count ? p.outputs[i - p.input_count]
        : i < p.input_count + p.output_count + p.state_count
            ? p.states[i - p.input_count - p.output_count].value
            : p.parameters[i - p.input_count - p.output_count - p.state_count].value;
    model.dtypes[i] = find_dtype(value.dtype);
    if (!model.dtypes[i] || value.rank < 0 || value.rank > kMaxRank) {
      message << "'" << value.name << "' has dtype number " << value.dtype << " and rank " << value.rank
              << ", which this runtime does not know";
      return STRIDEC_BAD_ARTIFACT;
    }
    size_t room = shape_bytes(value);
    model.shapes[i] = make_array<char>(static_cast<int64_t>(room));
    enough = model.shapes[i] != nullptr;
    if (!enough) break;
    Text text(model.shapes[i], room);
    write_shape(text, value);
  }
  if (!enough) {
    message << "no memory for the description of the model";
    return STRIDEC_OUT_OF_MEMORY;
  }
  for (int32_t i = 0; i < p.output_count; ++i) model.output_dim_count += p.outputs[i].rank;
  const char* name = model.variant->step_names;
  for (int32_t i = 0; i < model.variant->step_count; ++i, name = next_text(name)) model.step_names[i] = name;
  return STRIDEC_OK;
}

// Whether the caller's options allow the variant.
bool allowed(const stridec_abi_variant& v, const stridec_model_options& options) {
  const int32_t type = v.device == STRIDEC_ABI_CUDA ? STRIDEC_DEVICE_CUDA : STRIDEC_DEVICE_CPU;
  return (options.device_type == 0 || options.device_type == type) &&
         (!options.variant || strcmp(options.variant, v.name) == 0);
}

// Whether the machine can run the variant; writes the reason if not.
bool usable(const stridec_model& model, const stridec_abi_variant& v, Text& reason) {
  if (v.device == STRIDEC_ABI_CUDA) return cuda_usable(v, model.device_id, reason);
  uint64_t missing = v.features & ~model.cpu;
  if (!missing) return true;
  reason << "it lacks ";
  list_features(reason, missing);
  return false;
}

// The first variant, starting at number `first`, that the options allow and the machine can run; null: none.
const stridec_abi_variant* find_variant(const stridec_model& model, const stridec_model_options& options,
                                        int32_t first) {
  const stridec_abi_program& p = *model.program;
  Text nowhere(nullptr, 0);
  for (int32_t i = first; i < p.variant_count; ++i)
    if (allowed(p.variants[i], options) && usable(model, p.variants[i], nowhere)) return &p.variants[i];
  return nullptr;
}

// Writes one sentence on why the variant that the caller named cannot be used.
stridec_status explain_named(const stridec_model& model, const stridec_model_options& options,
                             Text& message) {
  const stridec_abi_program& p = *model.program;
  for (int32_t i = 0; i < p.variant_count; ++i) {
    const stridec_abi_variant& v = p.variants[i];
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
  for (int32_t i = 0; i < p.variant_count; ++i) message << (i ? ", " : "") << p.variants[i].name;
  return STRIDEC_INVALID_ARGUMENT;
}

// Writes one sentence on why no CPU variant can be used.
stridec_status explain_no_cpu(const stridec_model& model, Text& message) {
  const stridec_abi_program& p = *model.program;
  int32_t count = 0;
  for (int32_t i = 0; i < p.variant_count; ++i) {
    const stridec_abi_variant& v = p.variants[i];
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
  const stridec_abi_program& p = *model.program;
  int32_t count = 0;
  for (int32_t i = 0; i < p.variant_count; ++i) {
    const stridec_abi_variant& v = p.variants[i];
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
  for (int32_t i = 0; i < model.program->variant_count; ++i)
    cpu |=
        model.program->variants[i].device == STRIDEC_ABI_CPU && allowed(model.program->variants[i], options);
  return cpu ? explain_no_cpu(model, message) : explain_no_device(model, message);
}

stridec_status open_device(stridec_model& model, Text& message) {
  if (model.variant->device != STRIDEC_ABI_CUDA) return STRIDEC_OK;
  int32_t first = 0;
  for (const stridec_abi_variant* v = model.program->variants; v != model.variant; ++v)
    first += v->kernel_count;
  return cuda_open(*model.variant, first, model.device_id, model.blob.images, model.blob.weights, &model.cuda,
                   message);
}

// Opens the selected variant. If the driver cannot load it (the driver may be older than the code), tries the
// next variants: PTX, which the driver compiles itself, or CPU code. The error message is about the best
// variant.
stridec_status open_variant(stridec_model& model, const stridec_model_options& options, Text& message) {
  const stridec_abi_program& p = *model.program;
  const stridec_status status = open_device(model, message);
  if (status != STRIDEC_UNSUPPORTED_DEVICE) return status;
  Text nowhere(nullptr, 0);
  for (;;) {
    cuda_close(model.cuda);
    model.cuda = nullptr;
    model.variant = find_variant(model, options, static_cast<int32_t>(model.variant - p.variants) + 1);
    if (!model.variant) return status;
    const stridec_status next = open_device(model, nowhere);
    if (next != STRIDEC_UNSUPPORTED_DEVICE) return next;
  }
}

stridec_status fill(stridec_model& model, const stridec_model_options& options, const stridec_abi_note& note,
                    const char* base, Text& message) {
  const stridec_abi_program& p = *model.program;
  const int32_t type = options.device_type;
  if (type != 0 && type != STRIDEC_DEVICE_CPU && type != STRIDEC_DEVICE_CUDA) {
    message << "device_type is " << type << "; 0 (any), 1 (CPU) or 2 (CUDA) expected";
    return STRIDEC_INVALID_ARGUMENT;
  }
  model.device_id = options.device_id;
  uint64_t asked = 0;
  for (int32_t i = 0; i < p.variant_count; ++i) asked |= p.variants[i].features;
  model.cpu = cpu_features(asked & STRIDEC_CPU_AMX_TILE);
  model.variant = find_variant(model, options, 0);
  model.no_run = options.flags & STRIDEC_MODEL_NO_RUN;
  if (model.no_run && !model.variant) model.variant = &p.variants[0];
  if (!model.variant) return explain_none(model, options, message);
  stridec_status status = find_blob(note, base, p, options.weights_dir,
                                    !(options.flags & STRIDEC_MODEL_SKIP_WEIGHTS_HASH), model.blob, message);
  if (status == STRIDEC_OK && !model.no_run) status = open_variant(model, options, message);
  if (status == STRIDEC_OK) status = describe_values(model, message);
  if (status != STRIDEC_OK) return status;
  if ((options.flags & STRIDEC_MODEL_COPY_WEIGHTS) && model.variant->device == STRIDEC_ABI_CPU)
    copy_weights(model.blob);
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

void give_info(void* given, const void* info, size_t info_bytes) {
  size_t bytes;
  memcpy(&bytes, given, sizeof bytes);
  if (bytes > info_bytes) bytes = info_bytes;
  if (bytes <= sizeof bytes) return;
  memcpy(static_cast<char*>(given) + sizeof bytes, static_cast<const char*>(info) + sizeof bytes,
         bytes - sizeof bytes);
}

stridec_status open_program(const stridec_abi_program& program, const stridec_abi_note& note,
                            const char* base, const stridec_model_options* given, stridec_model** model,
                            char* message_out, size_t message_bytes) {
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
  if (program.abi_version != STRIDEC_ABI_VERSION || program.struct_size != sizeof program) {
    message << "the artifact's code and runtime are of different versions";
    return STRIDEC_BAD_ARTIFACT;
  }
  void* memory = calloc(1, sizeof(stridec_model));
  if (!memory) {
    message << "no memory for the model";
    return STRIDEC_OUT_OF_MEMORY;
  }
  auto* made = new (memory) stridec_model{.references = 1, .program = &program};
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
