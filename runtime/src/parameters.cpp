#include "parameters.h"

#include <string.h>

#include "context_api.h"
#include "fp_mode.h"

namespace stridec::runtime {
namespace {

int64_t begin_of(const stridec_context& c) {
  return static_cast<int64_t>(c.model->module->parameters_begin);
}

// The address to which the offsets of parameters are added, for a block that holds them alone.
char* base_of(const stridec_context& c, const Block& block) {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(block.data) -
                                 static_cast<uintptr_t>(begin_of(c)));
}

// Gives the context its own values of parameters: those of the artifact at first.
stridec_status own_parameters(stridec_context& c, Text& message) {
  if (c.parameters.data) return STRIDEC_OK;
  const Bytes weights = c.model->blob.weights;
  const int64_t begin = begin_of(c), bytes = static_cast<int64_t>(weights.size) - begin;
  if (begin < 0 || bytes <= 0) {
    message << "the parameters are not within the weights";
    return STRIDEC_BAD_ARTIFACT;
  }
  if (c.cuda && !grow(*c.memory, c.device_parameters, bytes))
    return out_of_memory(message, "parameters", bytes);
  if (!grow(c.allocator, c.parameters, bytes)) return out_of_memory(message, "parameters", bytes);
  memcpy(c.parameters.data, weights.data + begin, static_cast<size_t>(bytes));
  return STRIDEC_OK;
}

// A state or a parameter.
struct Stored {
  const stridec_abi_state* entry;
  const DType* dtype;
  int32_t state;  // its index; -1: a parameter
  int64_t bytes;
};

stridec_status find(const stridec_context& c, const char* name, Stored& out, Text& message) {
  const stridec_abi_module& p = *c.model->module;
  if (!name) {
    message << "the name of the state is null";
    return STRIDEC_INVALID_ARGUMENT;
  }
  out = {nullptr, nullptr, -1, 0};
  for (int32_t i = 0; i < p.state_count && !out.entry; ++i)
    if (!strcmp(p.states[i].value.name, name)) out = {&p.states[i], &state_dtype(*c.model, i), i, 0};
  for (int32_t i = 0; i < p.parameter_count && !out.entry; ++i)
    if (!strcmp(p.parameters[i].value.name, name))
      out = {&p.parameters[i], c.model->parameters.dtypes[i], -1, 0};
  if (!out.entry) {
    message << "there is no state or replaceable parameter '" << name << "'";
    return STRIDEC_INVALID_ARGUMENT;
  }
  out.bytes = compact_bytes(out.entry->dims, out.entry->value.rank, byte_size(*out.dtype));
  if (out.bytes < 0 ||
      (out.state < 0 && (out.entry->initial < begin_of(c) ||
                         static_cast<uint64_t>(out.entry->initial) + static_cast<uint64_t>(out.bytes) >
                             c.model->blob.weights.size))) {
    message << "'" << name << "' is not within the weights";
    return STRIDEC_BAD_ARTIFACT;
  }
  return STRIDEC_OK;
}

stridec_status check(const stridec_context& c, const Stored& stored, const stridec_tensor& t, Text& message) {
  const stridec_abi_value& value = stored.entry->value;
  stridec_status status =
      check_tensor("state", value, *stored.dtype, t, device_of(*c.model), /*need_data=*/true, message);
  for (int32_t d = 0; status == STRIDEC_OK && d < value.rank; ++d)
    if (t.shape[d] != stored.entry->dims[d]) {
      message << "state '" << value.name << "': its shape is " << Dims{stored.entry->dims, value.rank} << "; "
              << Dims{t.shape, value.rank} << " given";
      status = STRIDEC_WRONG_SHAPE;
    }
  return status;
}

bool on_device(const stridec_tensor& t) { return t.device.type == STRIDEC_DEVICE_CUDA; }

// A copy in host memory of the bytes that a tensor on the device spans.
struct Span {
  stridec_context& c;
  Block block = {};
  stridec_tensor image = {};

  explicit Span(stridec_context& context) : c(context) {}
  ~Span() { release(c.allocator, block); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  stridec_status fetch(const stridec_tensor& t, int64_t element, Text& message) {
    const Extent extent = extent_of(t, element);
    const int64_t bytes = extent.end - extent.begin;
    if (!grow(c.allocator, block, bytes ? bytes : 1)) return out_of_memory(message, "a copy", bytes);
    image = t;
    image.data = block.data + (data_of(t) - extent.begin);
    image.byte_offset = 0;
    return !bytes || cuda_download(*c.cuda, block.data, extent.begin, bytes) ? STRIDEC_OK
                                                                             : device_error(c, message);
  }
};

// Copies the tensor to compact host memory.
stridec_status gather(stridec_context& c, const Stored& stored, const stridec_tensor& t, char* to,
                      Text& message) {
  const int64_t element = byte_size(*stored.dtype);
  Span span(c);
  if (on_device(t))
    if (stridec_status status = span.fetch(t, element, message); status != STRIDEC_OK) return status;
  const stridec_tensor& from = on_device(t) ? span.image : t;
  copy_strided(to, nullptr, data_of(from), from.strides, stored.entry->dims, stored.entry->value.rank,
               element);
  return STRIDEC_OK;
}

// Copies compact host memory to the tensor.
stridec_status scatter(stridec_context& c, const Stored& stored, const char* from, const stridec_tensor& t,
                       Text& message) {
  const int64_t element = byte_size(*stored.dtype);
  const int32_t rank = stored.entry->value.rank;
  int64_t strides[kMaxRank], stride = 1;  // without strides: row-major
  for (int32_t d = rank; d-- > 0; stride *= t.shape[d]) strides[d] = stride;
  const int64_t* places = t.strides ? t.strides : strides;
  if (!on_device(t)) {
    copy_strided(data_of(t), places, from, nullptr, stored.entry->dims, rank, element);
    return STRIDEC_OK;
  }
  Span span(c);
  if (stridec_status status = span.fetch(t, element, message); status != STRIDEC_OK) return status;
  copy_strided(data_of(span.image), places, from, nullptr, stored.entry->dims, rank, element);
  const Extent extent = extent_of(t, element);
  const bool done =
      cuda_upload(*c.cuda, const_cast<char*>(extent.begin), span.block.data, extent.end - extent.begin) &&
      cuda_wait(*c.cuda);
  return done ? STRIDEC_OK : device_error(c, message);
}

// The run of a derivation, whose memory is the host's.
struct Derivation {
  stridec_abi_run run;  // first: callbacks get its address
  Allocator* allocator;
  Block* slots;
};

void* allocate(stridec_abi_run* run, int32_t slot, int64_t bytes) {
  auto& derivation = *reinterpret_cast<Derivation*>(run);
  if (bytes < 0 || !grow(*derivation.allocator, derivation.slots[slot], bytes ? bytes : 1)) return nullptr;
  return derivation.slots[slot].data;
}

// Runs the derivation of a variant of function `p`.
stridec_status derive(stridec_context& c, const stridec_abi_function& p, const stridec_abi_variant& variant,
                      Text& message) {
  if (!variant.derive) return STRIDEC_OK;
  auto* symbols = make_array<int64_t>(p.symbol_count);
  auto* slots = make_array<Block>(p.slot_count);
  Block arena = {};
  const int64_t bytes =
      symbols && variant.derivation_bytes ? variant.derivation_bytes(symbols, c.threads) : 0;
  stridec_status status = STRIDEC_OK;
  if (!symbols || !slots || bytes < 0 || !grow(c.allocator, arena, bytes ? bytes : 1))
    status = out_of_memory(message, "deriving parameters", bytes);
  if (status == STRIDEC_OK) {
    memset(c.failures.data, 0, static_cast<size_t>(c.failures.bytes));
    c.run_status = STRIDEC_OK;
    const bool profiling = c.profiling;
    c.profiling = false;  // its steps are not those of the profile
    Derivation derivation = {{.symbols = symbols,
                              .weights = c.model->blob.weights.data,
                              .parameters = base_of(c, c.parameters),
                              .arena = arena.data,
                              .failures = reinterpret_cast<stridec_abi_failure*>(c.failures.data),
                              .threads = c.threads,
                              .direct = 1,
                              .launch = launch,
                              .allocate = allocate,
                              .context = &c},
                             &c.allocator,
                             slots};
    const FpMode before = fp_mode();
    set_default_fp_mode();
    const int32_t failed = variant.derive(&derivation.run);
    set_fp_mode(before);
    c.profiling = profiling;
    if (failed) status = failed_run(c, message);
  }
  for (int32_t i = 0; slots && i < p.slot_count; ++i) release(c.allocator, slots[i]);
  release(c.allocator, arena);
  free(slots);
  free(symbols);
  return status;
}

}  // namespace

char* parameters_of(const stridec_context& c) {
  if (c.parameters.data) return base_of(c, c.cuda ? c.device_parameters : c.parameters);
  return const_cast<char*>(c.cuda ? cuda_weights(*c.model->cuda) : c.model->blob.weights.data);
}

stridec_status derive_parameters(stridec_context& c, Text& message) {
  if (!c.parameters_written) return STRIDEC_OK;
  stridec_status status = STRIDEC_OK;
  for (int32_t f = 0; f < c.model->module->function_count && status == STRIDEC_OK; ++f)
    status = derive(c, *c.model->functions[f].abi, *c.model->functions[f].variant, message);
  if (status == STRIDEC_OK && c.cuda &&
      !(cuda_wait(*c.cuda) &&
        cuda_upload(*c.cuda, c.device_parameters.data, c.parameters.data, c.parameters.bytes)))
    status = device_error(c, message);
  if (status == STRIDEC_OK) c.parameters_written = false;
  return status;
}

stridec_status context_write_state(stridec_context* context, const char* name, const stridec_tensor* tensor) {
  if (!context || !tensor) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*context);
  if (!use) return STRIDEC_BUSY;
  stridec_context& c = *context;
  Stored stored;
  stridec_status status = find(c, name, stored, use.message);
  if (status == STRIDEC_OK) status = check(c, stored, *tensor, use.message);
  if (status != STRIDEC_OK || !stored.bytes) return status;
  if (stored.state < 0) {
    status = own_parameters(c, use.message);
    if (status != STRIDEC_OK) return status;
    c.parameters_written = true;
    return gather(c, stored, *tensor, base_of(c, c.parameters) + stored.entry->initial, use.message);
  }
  void* const state = c.states[stored.state];
  if (!c.cuda) return gather(c, stored, *tensor, static_cast<char*>(state), use.message);
  Block compact = {};
  if (!grow(c.allocator, compact, stored.bytes)) return out_of_memory(use.message, "a copy", stored.bytes);
  status = gather(c, stored, *tensor, compact.data, use.message);
  if (status == STRIDEC_OK &&
      !(cuda_wait(*c.cuda) && cuda_upload(*c.cuda, state, compact.data, stored.bytes) && cuda_wait(*c.cuda)))
    status = device_error(c, use.message);
  release(c.allocator, compact);
  return status;
}

stridec_status context_read_state(stridec_context* context, const char* name, stridec_tensor* tensor) {
  if (!context || !tensor) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*context);
  if (!use) return STRIDEC_BUSY;
  stridec_context& c = *context;
  Stored stored;
  stridec_status status = find(c, name, stored, use.message);
  if (status == STRIDEC_OK) status = check(c, stored, *tensor, use.message);
  if (status != STRIDEC_OK || !stored.bytes) return status;
  if (stored.state < 0) {
    const char* const base = c.parameters.data ? base_of(c, c.parameters) : c.model->blob.weights.data;
    return scatter(c, stored, base + stored.entry->initial, *tensor, use.message);
  }
  const char* const state = static_cast<const char*>(c.states[stored.state]);
  if (!c.cuda) return scatter(c, stored, state, *tensor, use.message);
  Block compact = {};
  if (!grow(c.allocator, compact, stored.bytes)) return out_of_memory(use.message, "a copy", stored.bytes);
  status =
      cuda_download(*c.cuda, compact.data, state, stored.bytes) ? STRIDEC_OK : device_error(c, use.message);
  if (status == STRIDEC_OK) status = scatter(c, stored, compact.data, *tensor, use.message);
  release(c.allocator, compact);
  return status;
}

stridec_status context_parameters(stridec_context* context, uint64_t* offset, const void** bytes,
                                  uint64_t* count) {
  if (!context || !offset || !bytes || !count) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*context);
  if (!use) return STRIDEC_BUSY;
  stridec_context& c = *context;
  const stridec_abi_module& p = *c.model->module;
  *offset = *count = 0;
  *bytes = nullptr;
  if (!p.parameter_count) return STRIDEC_OK;
  stridec_status status = own_parameters(c, use.message);
  // Each variant of each function has derived parameters of its own.
  for (int32_t f = 0; f < p.function_count; ++f)
    for (int32_t i = 0; i < p.target_count && status == STRIDEC_OK; ++i)
      status = derive(c, p.functions[f], p.functions[f].variants[i], use.message);
  if (status != STRIDEC_OK) return status;
  *offset = p.parameters_begin;
  *bytes = c.parameters.data;
  *count = static_cast<uint64_t>(c.parameters.bytes);
  return STRIDEC_OK;
}

}  // namespace stridec::runtime
