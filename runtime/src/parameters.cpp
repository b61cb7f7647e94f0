#include "parameters.h"

#include <string.h>

#include "context_api.h"
#include "fp_mode.h"
#include "transfer.h"

namespace stridec::runtime {
namespace {

int64_t begin_of(const stridec_context& c) { return static_cast<int64_t>(c.model->module->parameters_begin); }

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
  const int64_t* dims;
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
  out = {nullptr, nullptr, nullptr, -1, 0};
  for (int32_t i = 0; i < p.state_count && !out.entry; ++i)
    if (!strcmp(p.states[i].value.name, name))
      out = {&p.states[i], c.dims_of_state[i], &state_dtype(*c.model, i), i, 0};
  for (int32_t i = 0; i < p.parameter_count && !out.entry; ++i)
    if (!strcmp(p.parameters[i].value.name, name))
      out = {&p.parameters[i], p.parameters[i].dims, c.model->parameters.dtypes[i], -1, 0};
  if (!out.entry) {
    message << "there is no state or replaceable parameter '" << name << "'";
    return STRIDEC_INVALID_ARGUMENT;
  }
  out.bytes = compact_bytes(out.dims, out.entry->value.rank, byte_size(*out.dtype));
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
    if (t.shape[d] != stored.dims[d]) {
      message << "state '" << value.name << "': its shape is " << Dims{stored.dims, value.rank} << "; "
              << Dims{t.shape, value.rank} << " given";
      if (!stored.entry->dims) {
        const char* size = value.dims;
        for (int32_t i = 0; i < d; ++i) size += strlen(size) + 1;
        message << "; dim " << d << " (" << size << ") is " << stored.dims[d] << " in this context";
      }
      status = STRIDEC_WRONG_SHAPE;
    }
  return status;
}

// The state or parameter of this name, whose type and shape the tensor must have.
stridec_status find(const stridec_context& c, const char* name, const stridec_tensor& tensor, Stored& out,
                    Text& message) {
  const stridec_status status = find(c, name, out, message);
  return status == STRIDEC_OK ? check(c, out, tensor, message) : status;
}

Compact memory_of(const Stored& stored) {
  const stridec_abi_value& value = stored.entry->value;
  return {stored.dims, value.memory_order, value.rank, byte_size(*stored.dtype)};
}
stridec_status read(stridec_context& c, const stridec_tensor& from, const Stored& stored, char* to,
                    Text& message) {
  return gather(c, from, memory_of(stored), to, message);
}
stridec_status write(stridec_context& c, const char* from, const Stored& stored, const stridec_tensor& to,
                     Text& message) {
  return scatter(c, from, to, memory_of(stored), message);
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
  stridec_status status = find(c, name, *tensor, stored, use.message);
  if (status != STRIDEC_OK || !stored.bytes) return status;
  if (stored.state < 0) {
    status = own_parameters(c, use.message);
    if (status != STRIDEC_OK) return status;
    c.parameters_written = true;
    return read(c, *tensor, stored, base_of(c, c.parameters) + stored.entry->initial, use.message);
  }
  void* const state = c.states[stored.state];
  if (!c.cuda) return read(c, *tensor, stored, static_cast<char*>(state), use.message);
  if (on_device(*tensor)) {
    const bool done =
        gather_on_device(c, *tensor, memory_of(stored), static_cast<char*>(state)) && cuda_wait(*c.cuda);
    return done ? STRIDEC_OK : device_error(c, use.message);
  }
  Block compact = {};
  if (!grow(c.allocator, compact, stored.bytes)) return out_of_memory(use.message, "a copy", stored.bytes);
  status = read(c, *tensor, stored, compact.data, use.message);
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
  stridec_status status = find(c, name, *tensor, stored, use.message);
  if (status != STRIDEC_OK || !stored.bytes) return status;
  if (stored.state < 0) {
    const char* const base = c.parameters.data ? base_of(c, c.parameters) : c.model->blob.weights.data;
    return write(c, base + stored.entry->initial, stored, *tensor, use.message);
  }
  const char* const state = static_cast<const char*>(c.states[stored.state]);
  if (!c.cuda) return write(c, state, stored, *tensor, use.message);
  if (on_device(*tensor)) {
    const bool done = scatter_on_device(c, state, *tensor, memory_of(stored)) && cuda_wait(*c.cuda);
    return done ? STRIDEC_OK : device_error(c, use.message);
  }
  Block compact = {};
  if (!grow(c.allocator, compact, stored.bytes)) return out_of_memory(use.message, "a copy", stored.bytes);
  status =
      cuda_download(*c.cuda, compact.data, state, stored.bytes) ? STRIDEC_OK : device_error(c, use.message);
  if (status == STRIDEC_OK) status = write(c, compact.data, stored, *tensor, use.message);
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
