#include <string.h>

#include "context.h"
#include "context_api.h"
#include "fp_mode.h"
#include "parameters.h"
#include "trace.h"
#include "transfer.h"

namespace stridec::runtime {
namespace {

bool dims_known(const stridec_context& c, int32_t i) {
  for (int32_t d = 0; d < function_of(c).outputs[i].rank; ++d)
    if (c.frame->dims_of[i][d] < 0) return false;
  return true;
}

stridec_status check_count(const stridec_context& c, const char* role, int32_t expected,
                           const stridec_tensor* tensors, size_t given, Text& message) {
  if (given != static_cast<size_t>(expected)) {
    write_function(message, c) << " has " << expected << ' ' << role << (expected == 1 ? "" : "s") << "; "
                               << static_cast<uint64_t>(given) << " given";
    return STRIDEC_INVALID_ARGUMENT;
  }
  if (expected && !tensors) {
    message << "the array of " << role << "s is null";
    return STRIDEC_INVALID_ARGUMENT;
  }
  return STRIDEC_OK;
}

Compact input_memory(const stridec_context& c, int32_t i, const stridec_tensor& t) {
  return {t.shape, function_of(c).inputs[i].memory_order, t.ndim, byte_size(input_dtype(c, i))};
}

// Makes a compact copy of an input that is not compact, or is not on the model's device.
stridec_status gather_input(stridec_context& c, int32_t i, const stridec_tensor& t, Text& message) {
  const TracedCopy copy(c, false, i);
  char* to = c.staging.data + c.frame->staging_offset[i];
  c.frame->inputs[i] = to;
  const Compact memory = input_memory(c, i, t);
  if (!c.cuda) return gather(c, t, memory, to, message);
  int64_t bytes = compact_bytes(t.shape, t.ndim, memory.element_bytes);
  if (!bytes) return STRIDEC_OK;
  if (on_device(t)) return gather_on_device(c, t, memory, to) ? STRIDEC_OK : device_error(c, message);
  const char* from = data_of(t);
  if (!is_direct(t, memory)) {
    if (!grow(c.allocator, c.host_staging, bytes))
      return out_of_memory(message, "a compact copy of an input", bytes);
    stridec_status status = gather(c, t, memory, c.host_staging.data, message);
    if (status != STRIDEC_OK) return status;
    from = c.host_staging.data;
  }
  return cuda_upload(*c.cuda, to, from, bytes) ? STRIDEC_OK : device_error(c, message);
}

// Purpose of a call: only shapes, also memory, or a run, which needs all data.
enum class Aim { kShapes, kReserve, kRun };

// Checks the inputs, decides which need a compact copy, copies those that bind reads, and calls bind, which
// sets the symbols and the known part of output_dims.
stridec_status bind_inputs(stridec_context& c, const stridec_tensor* inputs, size_t count, Aim aim,
                           Text& message) {
  const stridec_abi_function& p = function_of(c);
  stridec_status status = check_count(c, "input", p.input_count, inputs, count, message);
  int64_t staged = 0;
  bool bind_reads_staged = false;
  for (int32_t i = 0; i < p.input_count && status == STRIDEC_OK; ++i) {
    const stridec_tensor& t = inputs[i];
    const DType& type = input_dtype(c, i);
    status = check_tensor("input", p.inputs[i], type, t, device_of(*c.model), aim == Aim::kRun, message);
    if (status != STRIDEC_OK) break;
    bool read = p.inputs[i].flags & STRIDEC_ABI_READ_BY_BIND;
    if (read && on_device(t)) {
      message << "input '" << p.inputs[i].name << "': sizes depend on its values; expected host memory";
      return STRIDEC_WRONG_TYPE;
    }
    c.frame->input_dims[i] = t.shape;
    c.frame->staging_offset[i] = -1;
    c.frame->inputs[i] = t.data ? data_of(t) : nullptr;
    c.frame->bind_data[i] = read ? c.frame->inputs[i] : nullptr;
    bool direct = is_direct(t, input_memory(c, i, t));
    if (direct && (!c.cuda || on_device(t))) continue;
    c.frame->staging_offset[i] = staged;
    int64_t bytes = compact_bytes(t.shape, t.ndim, byte_size(type));
    if (__builtin_add_overflow(staged, align_up(bytes), &staged))
      return out_of_memory(message, "inputs", bytes);
    bind_reads_staged |= read && t.data && !direct;
  }
  if (status != STRIDEC_OK) return status;
  if ((aim != Aim::kShapes || bind_reads_staged) && !grow(*c.memory, c.staging, staged))
    return out_of_memory(message, "compact copies of inputs", staged);
  for (int32_t i = 0; i < p.input_count && bind_reads_staged; ++i) {
    if (c.frame->staging_offset[i] < 0 || !c.frame->bind_data[i]) continue;
    status = gather_input(c, i, inputs[i], message);
    if (status != STRIDEC_OK) return status;
    c.frame->bind_data[i] = c.cuda ? c.host_staging.data : c.frame->inputs[i];
  }
  for (int32_t i = 0; p.context_sizes && i < p.symbol_count; ++i)
    if (p.context_sizes[i] >= 0) c.frame->symbols[i] = c.sizes[p.context_sizes[i]];
  stridec_abi_failure failure = {};
  if (p.bind(c.frame->input_dims, c.frame->bind_data, c.frame->symbols, &failure) != 0) {
    write_failure(message, *c.model->module, failure);
    return STRIDEC_WRONG_SHAPE;
  }
  p.output_dims(c.frame->symbols, c.frame->output_dims);
  return STRIDEC_OK;
}

stridec_status reserve_blocks(stridec_context& c, Text& message) {
  const stridec_abi_variant& v = *c.frame->function->variant;
  int64_t arena = v.workspace_bytes ? v.workspace_bytes(c.frame->symbols, c.threads) : 0;
  int64_t scratch = v.scratch_bytes ? v.scratch_bytes(c.frame->symbols) : 0;
  if (arena < 0 || !grow(*c.memory, c.arena, arena)) return out_of_memory(message, "the workspace", arena);
  if (scratch < 0 || !grow(*c.memory, c.scratch, scratch))
    return out_of_memory(message, "a kernel's workspace", scratch);
  return v.counter_bytes ? reserve_counters(c, v.counter_bytes(c.frame->symbols), message) : STRIDEC_OK;
}

// Checks and places the outputs. Outputs whose dims depend on data are checked only as far as the dims are
// known.
stridec_status place_outputs(stridec_context& c, const stridec_tensor* outputs, Text& message) {
  const stridec_abi_function& p = function_of(c);
  for (int32_t i = 0; i < p.output_count; ++i) {
    const DType& type = output_dtype(c, i);
    const stridec_tensor* given = outputs ? &outputs[i] : nullptr;
    if (given && given->data) {
      stridec_status status =
          check_tensor("output", p.outputs[i], type, *given, device_of(*c.model), true, message);
      if (status != STRIDEC_OK) return status;
      if (may_overlap_itself(*given)) {
        message << "output '" << p.outputs[i].name << "': its strides make elements overlap";
        return STRIDEC_INVALID_ARGUMENT;
      }
    }
    c.frame->outputs[i] = nullptr;
    c.frame->places[i] = Place::kUnknown;
    if (!dims_known(c, i)) continue;
    stridec_status status = place_output(c, i, given, message);
    if (status != STRIDEC_OK) return status;
  }
  return STRIDEC_OK;
}

bool overlap(Extent a, Extent b) { return a.begin < b.end && b.begin < a.end; }

stridec_status check_overlaps(const stridec_context& c, const stridec_tensor* inputs,
                              const stridec_tensor* outputs, Text& message) {
  const stridec_abi_function& p = function_of(c);
  for (int32_t o = 0; o < p.output_count; ++o) {
    if (!outputs[o].data) continue;
    Extent out = extent_of(outputs[o], byte_size(output_dtype(c, o)));
    for (int32_t i = 0; i < p.input_count; ++i) {
      if (!inputs[i].data || !overlap(out, extent_of(inputs[i], byte_size(input_dtype(c, i))))) continue;
      message << "output '" << p.outputs[o].name << "' and input '" << p.inputs[i].name << "' share memory";
      return STRIDEC_INVALID_ARGUMENT;
    }
    for (int32_t i = 0; i < o; ++i) {
      if (!outputs[i].data || !overlap(out, extent_of(outputs[i], byte_size(output_dtype(c, i))))) continue;
      message << "outputs '" << p.outputs[o].name << "' and '" << p.outputs[i].name << "' share memory";
      return STRIDEC_INVALID_ARGUMENT;
    }
  }
  return STRIDEC_OK;
}

// Does everything that can be computed and allocated before a run.
stridec_status prepare(stridec_context& c, const stridec_tensor* inputs, size_t input_count,
                       const stridec_tensor* outputs, size_t output_count, Aim aim, Text& message) {
  if (c.model->no_run) {
    message << "the artifact was opened with STRIDEC_MODEL_NO_RUN";
    return STRIDEC_UNSUPPORTED_DEVICE;
  }
  stridec_status status = bind_inputs(c, inputs, input_count, aim, message);
  if (status == STRIDEC_OK && (outputs || aim == Aim::kRun))
    status = check_count(c, "output", function_of(c).output_count, outputs, output_count, message);
  if (status == STRIDEC_OK) status = place_outputs(c, outputs, message);
  if (status == STRIDEC_OK) status = reserve_blocks(c, message);
  return status;
}

// Collects the addresses of everything that a GPU run reads and writes, except the weights, which do not
// move.
RunKey key_of(stridec_context& c) {
  const stridec_abi_function& p = function_of(c);
  int32_t n = 0;
  for (int32_t i = 0; i < p.input_count; ++i) c.frame->addresses[n++] = c.frame->inputs[i];
  for (int32_t i = 0; i < p.output_count; ++i) c.frame->addresses[n++] = c.frame->outputs[i];
  for (int32_t i = 0; i < c.model->module->state_count; ++i) c.frame->addresses[n++] = c.states[i];
  c.frame->addresses[n++] = c.parameters.data;
  c.frame->addresses[n++] = c.arena.data;
  c.frame->addresses[n++] = c.scratch.data;
  c.frame->addresses[n++] = c.counters.data;
  return {c.frame->symbols, c.frame->addresses, p.symbol_count, n};
}

stridec_status execute(stridec_context& c, Text& message) {
  if (stridec_status status = derive_parameters(c, message); status != STRIDEC_OK) return status;
  memset(c.failures.data, 0, static_cast<size_t>(c.failures.bytes));
  c.run_status = STRIDEC_OK;
  c.run = {.symbols = c.frame->symbols,
           .inputs = c.frame->inputs,
           .outputs = c.frame->outputs,
           .states = c.states,
           .weights = c.cuda ? cuda_weights(*c.model->cuda) : c.model->blob.weights.data,
           .parameters = parameters_of(c),
           .arena = c.arena.data,
           .failures = reinterpret_cast<stridec_abi_failure*>(c.failures.data),
           .threads = c.threads,
           .launch = launch,
           .resize_output = resize_output,
           .allocate = allocate_slot,
           .launch_device = launch_device,
           .read = read_device,
           .call = call_application,
           .context = &c};
  __atomic_store_n(&c.run.direct, !c.watched, __ATOMIC_SEQ_CST);
  if (c.cancelled.load()) c.run.direct = 0;
  if (c.cuda) {
    cuda_begin(*c.cuda, c.frame->function->index, key_of(c), !c.profiling);
    if (c.profiling) {
      collect_stamps(c);
      cuda_stamp(*c.cuda, kNobody);
    }
    if (cuda_replay(*c.cuda)) return STRIDEC_OK;
    if (c.frame->function->variant->run(&c.run)) return failed_run(c, message);
    return cuda_end(*c.cuda) ? STRIDEC_OK : device_error(c, message);
  }
  FpMode before = fp_mode();
  set_default_fp_mode();
  int32_t failed = c.frame->function->variant->run(&c.run);
  set_fp_mode(before);
  return failed ? failed_run(c, message) : STRIDEC_OK;
}

// Whether the run made the output in memory of the context, for a tensor of the GPU.
bool is_scattered(const stridec_context& c, int32_t i, const stridec_tensor& t) {
  return c.frame->places[i] == Place::kStaged && on_device(t);
}

// Copies an output of a GPU run to host memory.
stridec_status fetch_output(stridec_context& c, int32_t i, stridec_tensor& t, Text& message) {
  const TracedCopy copy(c, true, i);
  const Compact memory = output_memory(c, i);
  int64_t bytes = compact_bytes(memory.dims, memory.rank, memory.element_bytes);
  if (!bytes) return STRIDEC_OK;
  bool strided = c.frame->places[i] == Place::kStaged && !is_direct(t, memory);
  char* to = c.frame->places[i] == Place::kStaged ? data_of(t) : c.frame->fetched[i].data;
  if (strided) {
    if (!grow(c.allocator, c.frame->fetched[i], bytes))
      return out_of_memory(message, function_of(c).outputs[i].name, bytes);
    to = c.frame->fetched[i].data;
  }
  if (!cuda_download(*c.cuda, to, c.frame->owned[i].data, bytes)) return device_error(c, message);
  if (!strided) return STRIDEC_OK;
  return scatter(c, to, t, memory, message);
}

// The end of a GPU run. Waits, unless no output is wanted on the host and the caller asked for an
// asynchronous run.
stridec_status finish_device(stridec_context& c, stridec_tensor* outputs, Text& message) {
  bool fetches = false;
  for (int32_t i = 0; i < function_of(c).output_count; ++i) {
    if (is_scattered(c, i, outputs[i])) {
      const TracedCopy copy(c, true, i);
      if (!scatter_on_device(c, c.frame->owned[i].data, outputs[i], output_memory(c, i)))
        return device_error(c, message);
    } else {
      fetches |= c.frame->places[i] == Place::kStaged || c.frame->places[i] == Place::kFetched;
    }
  }
  if (c.asynchronous && !fetches) return STRIDEC_OK;
  if (!cuda_wait(*c.cuda)) return device_error(c, message);
  if (cuda_failure(*c.cuda).code) return failed_run(c, message);
  for (int32_t i = 0; i < function_of(c).output_count; ++i) {
    if (is_scattered(c, i, outputs[i])) continue;
    if (c.frame->places[i] != Place::kStaged && c.frame->places[i] != Place::kFetched) continue;
    stridec_status status = fetch_output(c, i, outputs[i], message);
    if (status != STRIDEC_OK) return status;
  }
  return STRIDEC_OK;
}

// In memory of the context; null: row-major.
int64_t* declared_strides(stridec_context& c, int32_t i) {
  const Compact memory = output_memory(c, i);
  if (!memory.order) return nullptr;
  int64_t* const strides = c.frame->output_strides + (memory.dims - c.frame->output_dims);
  strides_of(memory, strides);
  return strides;
}

// After a run: copies results to the caller's memory and fills the fields of the tensors.
stridec_status deliver(stridec_context& c, stridec_tensor* outputs, Text& message) {
  const stridec_abi_function& p = function_of(c);
  for (int32_t i = 0; i < p.output_count; ++i) {
    stridec_tensor& t = outputs[i];
    const DType& type = output_dtype(c, i);
    const int64_t* dims = c.frame->dims_of[i];
    int32_t rank = p.outputs[i].rank;
    switch (c.frame->places[i]) {
      case Place::kUnknown:
        message << "output '" << p.outputs[i].name << "' was never given its size by the generated code";
        return STRIDEC_BAD_ARTIFACT;
      case Place::kStaged: {
        if (c.cuda) break;  // done by fetch_output
        const TracedCopy copy(c, true, i);
        if (stridec_status status = scatter(c, c.frame->owned[i].data, t, output_memory(c, i), message);
            status != STRIDEC_OK)
          return status;
        break;
      }
      case Place::kFetched:
      case Place::kOwned:
        t.device =
            c.frame->places[i] == Place::kOwned ? device_of(*c.model) : stridec_device{STRIDEC_DEVICE_CPU, 0};
        t.data = c.frame->places[i] == Place::kOwned ? c.frame->owned[i].data : c.frame->fetched[i].data;
        t.byte_offset = 0;
        t.strides = declared_strides(c, i);
        t.dtype = type.dlpack;
        t.ndim = rank;
        if (!t.shape) t.shape = c.frame->dims_of[i];
        break;
      case Place::kDirect: break;
    }
    for (int32_t d = 0; d < rank; ++d) t.shape[d] = dims[d];
  }
  return STRIDEC_OK;
}

}  // namespace

stridec_status failed_run(stridec_context& c, Text& message) {
  const stridec_abi_module& p = *c.model->module;
  auto* failures = reinterpret_cast<const stridec_abi_failure*>(c.failures.data);
  if (c.run_status != STRIDEC_OK) return c.run_status;  // the message has been written
  if (c.cuda && cuda_failure(*c.cuda).code) {
    write_failure(message, p, cuda_failure(*c.cuda));
    cuda_reset_failure(*c.cuda);
    return STRIDEC_BAD_DATA;
  }
  for (int32_t part = 0; part < c.threads; ++part) {
    const stridec_abi_failure& f = failures[part];
    if (!f.code) continue;
    write_failure(message, p, f);
    bool guard = f.code >= 1 && f.code <= p.message_count && p.messages[f.code - 1].kind == STRIDEC_ABI_GUARD;
    return guard ? STRIDEC_WRONG_SHAPE : STRIDEC_BAD_DATA;
  }
  message << "the generated code failed without a reason";
  return STRIDEC_BAD_ARTIFACT;
}

void write_failure(Text& text, const stridec_abi_module& module, const stridec_abi_failure& failure) {
  if (failure.code < 1 || failure.code > module.message_count) {
    text << "the generated code reported the unknown failure " << failure.code;
    return;
  }
  for (const char* at = module.messages[failure.code - 1].text; *at; ++at) {
    if ((at[0] == '{' || at[0] == '}') && at[1] == at[0]) {  // a doubled brace stands for one brace
      text << *at++;
      continue;
    }
    bool place = at[0] == '{' && at[1] >= '0' && at[1] < '0' + STRIDEC_ABI_VALUES && at[2] == '}';
    if (!place) {
      text << *at;
      continue;
    }
    text << failure.values[at[1] - '0'];
    at += 2;
  }
}

stridec_status place_output(stridec_context& c, int32_t i, const stridec_tensor* given, Text& message) {
  const stridec_abi_value& value = function_of(c).outputs[i];
  int64_t element = byte_size(output_dtype(c, i));
  const int64_t* dims = c.frame->dims_of[i];
  int64_t bytes = compact_bytes(dims, value.rank, element);
  if (bytes < 0) {
    message << "output '" << value.name << "' would have shape " << Dims{dims, value.rank}
            << ", more than memory can hold";
    return STRIDEC_OUT_OF_MEMORY;
  }
  c.frame->places[i] = Place::kDirect;
  if (!given) return STRIDEC_OK;
  if (given->data) {
    for (int32_t d = 0; d < value.rank; ++d) {
      bool exact = d > 0 && !given->strides;
      if (given->shape[d] == dims[d] || (given->shape[d] > dims[d] && !exact)) continue;
      message << "output '" << value.name << "': its shape is " << Dims{given->shape, value.rank}
              << "; expected " << Dims{dims, value.rank};
      return STRIDEC_WRONG_SHAPE;
    }
    c.frame->outputs[i] = data_of(*given);
    if (is_direct(*given, output_memory(c, i)) && (!c.cuda || on_device(*given))) return STRIDEC_OK;
  }
  c.frame->places[i] = given->data                    ? Place::kStaged
                       : c.cuda && !on_device(*given) ? Place::kFetched
                                                      : Place::kOwned;
  // At least one byte: null means failure to generated code, and in a tensor it requests memory of the
  // context.
  if (!grow(*c.memory, c.frame->owned[i], bytes ? bytes : 1) ||
      (c.frame->places[i] == Place::kFetched && !grow(c.allocator, c.frame->fetched[i], bytes ? bytes : 1)))
    return out_of_memory(message, value.name, bytes);
  c.frame->outputs[i] = c.frame->owned[i].data;
  return STRIDEC_OK;
}

stridec_status context_function_output_shapes(stridec_context* c, int32_t function,
                                              const stridec_tensor* inputs, size_t input_count,
                                              stridec_tensor* outputs, size_t output_count) {
  if (!c) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  stridec_status status = select_function(*c, function, use.message);
  if (status == STRIDEC_OK) status = bind_inputs(*c, inputs, input_count, Aim::kShapes, use.message);
  if (status != STRIDEC_OK) return status;
  const stridec_abi_function& p = function_of(*c);
  status = check_count(*c, "output", p.output_count, outputs, output_count, use.message);
  if (status != STRIDEC_OK) return status;
  for (int32_t i = 0; i < p.output_count; ++i) {
    stridec_tensor& t = outputs[i];
    t.ndim = p.outputs[i].rank;
    t.dtype = output_dtype(*c, i).dlpack;
    for (int32_t d = 0; t.shape && d < t.ndim; ++d) t.shape[d] = c->frame->dims_of[i][d];
  }
  return STRIDEC_OK;
}

stridec_status reserve(stridec_context& c, const stridec_tensor* inputs, size_t input_count,
                       const stridec_tensor* outputs, size_t output_count, Text& message) {
  return prepare(c, inputs, input_count, outputs, output_count, Aim::kReserve, message);
}

stridec_status context_reserve_function(stridec_context* c, int32_t function, const stridec_tensor* inputs,
                                        size_t input_count, const stridec_tensor* outputs,
                                        size_t output_count) {
  if (!c) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  stridec_status status = select_function(*c, function, use.message);
  return status == STRIDEC_OK ? reserve(*c, inputs, input_count, outputs, output_count, use.message) : status;
}

namespace {

stridec_status run_selected(stridec_context& c, const stridec_tensor* inputs, size_t input_count,
                            stridec_tensor* outputs, size_t output_count, Text& message) {
  stridec_status status = prepare(c, inputs, input_count, outputs, output_count, Aim::kRun, message);
  if (status == STRIDEC_OK) status = check_overlaps(c, inputs, outputs, message);
  if (status != STRIDEC_OK) return status;
  if (c.cuda && cuda_failure(*c.cuda).code) return failed_run(c, message);  // of an earlier run
  for (int32_t i = 0; i < function_of(c).input_count && status == STRIDEC_OK; ++i)
    if (c.frame->staging_offset[i] >= 0 && (!c.frame->bind_data[i] || c.cuda))
      status = gather_input(c, i, inputs[i], message);
  if (status != STRIDEC_OK) return status;
  c.given_outputs = outputs;
  status = execute(c, message);
  if (status == STRIDEC_OK && c.cuda) status = finish_device(c, outputs, message);
  c.given_outputs = nullptr;
  return status == STRIDEC_OK ? deliver(c, outputs, message) : status;
}

}  // namespace

stridec_status context_run_function(stridec_context* c, int32_t function, const stridec_tensor* inputs,
                                    size_t input_count, stridec_tensor* outputs, size_t output_count) {
  if (!c) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  stridec_status status = select_function(*c, function, use.message);
  if (status != STRIDEC_OK) return status;
  if (c->trace) trace_run_begins(*c);
  if (c->pool) pool_begin_run(c->pool);
  status = run_selected(*c, inputs, input_count, outputs, output_count, use.message);
  if (c->pool) pool_end_run(c->pool);
  if (c->trace) trace_run_ends(*c, status);
  return status;
}

}  // namespace stridec::runtime
