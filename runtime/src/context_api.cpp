#include "context.h"

#include <string.h>

#include <initializer_list>
#include <new>

#include "context_api.h"
#include "machine.h"

namespace stridec::runtime {
namespace {

void destroy(stridec_context* c) {
  const stridec_abi_program& p = *c->model->program;
  pool_destroy(c->pool);
  cuda_context_destroy(c->cuda);  // waits for outstanding work
  for (Block* block : {&c->arena, &c->scratch, &c->staging, &c->state, &c->device_parameters, &c->counters})
    release(*c->memory, *block);
  for (Block* block : {&c->failures, &c->left, &c->host_staging, &c->parameters})
    release(c->allocator, *block);
  for (int32_t i = 0; c->owned && i < p.output_count; ++i) release(*c->memory, c->owned[i]);
  for (int32_t i = 0; c->fetched && i < p.output_count; ++i) release(c->allocator, c->fetched[i]);
  for (int32_t i = 0; c->slots && i < p.slot_count; ++i) release(*c->memory, c->slots[i]);
  void* const arrays[] = {c->owned,     c->slots,     c->fetched,        c->symbols,     c->input_dims,
                          c->bind_data, c->inputs,    c->staging_offset, c->outputs,     c->places,
                          c->states,    c->addresses, c->dims_of,        c->output_dims, c->steps};
  for (void* array : arrays) free(array);
  release(c->model);
  free(c);
}

bool make_tables(stridec_context& c) {
  const stridec_abi_program& p = *c.model->program;
  c.owned = make_array<Block>(p.output_count);
  c.slots = make_array<Block>(p.slot_count);
  c.fetched = make_array<Block>(p.output_count);
  c.symbols = make_array<int64_t>(p.symbol_count);
  c.input_dims = make_array<const int64_t*>(p.input_count);
  c.bind_data = make_array<const void*>(p.input_count);
  c.inputs = make_array<const void*>(p.input_count);
  c.staging_offset = make_array<int64_t>(p.input_count);
  c.outputs = make_array<void*>(p.output_count);
  c.places = make_array<Place>(p.output_count);
  c.states = make_array<void*>(p.state_count);
  c.addresses = make_array<const void*>(p.input_count + p.output_count + p.state_count + 4);
  c.dims_of = make_array<int64_t*>(p.output_count);
  c.output_dims = make_array<int64_t>(c.model->output_dim_count);
  if (!c.owned || !c.slots || !c.fetched || !c.symbols || !c.input_dims || !c.bind_data || !c.inputs ||
      !c.staging_offset || !c.outputs || !c.places || !c.states || !c.addresses || !c.dims_of ||
      !c.output_dims)
    return false;
  int64_t* dims = c.output_dims;
  for (int32_t i = 0; i < p.output_count; dims += p.outputs[i++].rank) c.dims_of[i] = dims;
  return true;
}

int64_t state_bytes(const stridec_context& c, int32_t i) {
  const stridec_abi_state& s = c.model->program->states[i];
  return compact_bytes(s.dims, s.value.rank, byte_size(state_dtype(*c.model, i)));
}

stridec_status reset_one_state(stridec_context& c, int32_t i, Text& message) {
  const stridec_abi_state& s = c.model->program->states[i];
  auto bytes = static_cast<uint64_t>(state_bytes(c, i));
  bool done = true;
  if (s.initial < 0) {
    if (c.cuda)
      done = cuda_fill_zero(*c.cuda, c.states[i], static_cast<int64_t>(bytes));
    else
      memset(c.states[i], 0, bytes);
    return done ? STRIDEC_OK : device_error(c, message);
  }
  Bytes weights = c.model->blob.weights;
  if (bytes > weights.size || static_cast<uint64_t>(s.initial) > weights.size - bytes) {
    message << "the initial value of state '" << s.value.name << "' is not within the weights";
    return STRIDEC_BAD_ARTIFACT;
  }
  if (c.cuda)
    done = cuda_upload(*c.cuda, c.states[i], weights.data + s.initial, static_cast<int64_t>(bytes));
  else
    memcpy(c.states[i], weights.data + s.initial, bytes);
  return done ? STRIDEC_OK : device_error(c, message);
}

stridec_status make_states(stridec_context& c, Text& message) {
  const stridec_abi_program& p = *c.model->program;
  int64_t total = 0;
  for (int32_t i = 0; i < p.state_count; ++i) {
    int64_t bytes = state_bytes(c, i);
    if (bytes < 0 || __builtin_add_overflow(total, align_up(bytes), &total)) {
      message << "state '" << p.states[i].value.name << "' is larger than memory can be";
      return STRIDEC_BAD_ARTIFACT;
    }
  }
  if (total && !grow(*c.memory, c.state, total)) return out_of_memory(message, "state", total);
  int64_t offset = 0;
  stridec_status status = STRIDEC_OK;
  for (int32_t i = 0; i < p.state_count && status == STRIDEC_OK; ++i) {
    c.states[i] = c.state.data + offset;
    offset += align_up(state_bytes(c, i));
    status = reset_one_state(c, i, message);
  }
  return status;
}

stridec_status make_threads(stridec_context& c, const stridec_context_options& options, Text& message) {
  stridec_status status = check_threads(options.threads, options.spin_us, message);
  if (status != STRIDEC_OK) return status;
  c.threads = c.cuda ? 1 : options.threads ? options.threads : usable_processors();
  if (c.threads > kMaxThreads) c.threads = kMaxThreads;
  c.parallel_for = options.parallel_for;
  c.parallel_user = options.parallel_user;
  if (!c.parallel_for && c.threads > 1) {
    // The program's setting applies only if spinning threads do not take processors from each other.
    const int32_t wish = c.threads <= usable_processors() ? c.model->program->spin_us : 0;
    c.pool = pool_create(c.threads, options.spin_us ? options.spin_us : wish);
    if (!c.pool) return out_of_memory(message, "threads", 0);
  }
  int64_t bytes = c.threads * static_cast<int64_t>(sizeof(stridec_abi_failure));
  if (!grow(c.allocator, c.failures, bytes)) return out_of_memory(message, "failure slots", bytes);
  bytes = c.threads * static_cast<int64_t>(sizeof(stridec_abi_left));
  if (!grow(c.allocator, c.left, bytes)) return out_of_memory(message, "shares of work", bytes);
  return STRIDEC_OK;
}

stridec_status fill(stridec_context& c, const stridec_context_options& options, Text& message) {
  if (!options.allocate != !options.release) {
    message << "allocate and release are given both or neither";
    return STRIDEC_INVALID_ARGUMENT;
  }
  c.allocator = {options.allocate, options.release, options.memory_user,
                 !(options.flags & STRIDEC_CONTEXT_NO_HUGE_PAGES), 0};
  if (c.model->cuda) {
    c.device_allocator = cuda_allocator(*c.model->cuda);
    c.memory = &c.device_allocator;
    c.asynchronous = options.flags & STRIDEC_CONTEXT_ASYNC;
    stridec_status status = cuda_context_create(*c.model->cuda, options.stream, &c.cuda, message);
    if (status != STRIDEC_OK) return status;
  }
  if (!make_tables(c)) return out_of_memory(message, "tables", 0);
  stridec_status status = make_threads(c, options, message);
  return status == STRIDEC_OK ? make_states(c, message) : status;
}

}  // namespace

stridec_status reserve_counters(stridec_context& c, int64_t bytes, Text& message) {
  if (bytes >= 0 && bytes <= c.counters.bytes) return STRIDEC_OK;
  if (bytes < 0 || !grow(*c.memory, c.counters, bytes))
    return out_of_memory(message, "a kernel's counters", bytes);
  return cuda_fill_zero(*c.cuda, c.counters.data, c.counters.bytes) ? STRIDEC_OK : device_error(c, message);
}

stridec_status device_error(stridec_context& c, Text& message) {
  cuda_write_error(*c.cuda, message);
  release(*c.memory, c.counters);
  return STRIDEC_DEVICE_ERROR;
}

stridec_status out_of_memory(Text& message, const char* what, int64_t bytes) {
  message << "no memory for " << what;
  if (bytes < 0)
    message << " (more bytes than 64 bits count)";
  else if (bytes)
    message << " (" << bytes << " bytes)";
  return STRIDEC_OUT_OF_MEMORY;
}

stridec_status check_threads(int32_t threads, int32_t spin_us, Text& message) {
  if (threads < 0 || threads > kMaxThreads) {
    message << "threads is " << threads << "; 0 (as many as the process may use) to " << kMaxThreads
            << " expected";
    return STRIDEC_INVALID_ARGUMENT;
  }
  if (spin_us < -1) {
    message << "spin_us is " << spin_us << "; -1 (none), 0 (the default) or microseconds expected";
    return STRIDEC_INVALID_ARGUMENT;
  }
  return STRIDEC_OK;
}

stridec_status context_create(stridec_model* model, const stridec_context_options* given,
                              stridec_context** context, char* message_out, size_t message_bytes) {
  Text message(message_out, message_out ? message_bytes : 0);
  if (!model || !context) {
    message << (model ? "context" : "model") << " is null";
    return STRIDEC_INVALID_ARGUMENT;
  }
  *context = nullptr;
  stridec_context_options options;
  if (!take_options(&options, sizeof options, given)) {
    message << "the options are not those of this version of the API: set struct_size, and zero the rest";
    return STRIDEC_INVALID_ARGUMENT;
  }
  void* memory = calloc(1, sizeof(stridec_context));
  if (!memory) return out_of_memory(message, "the context", 0);
  auto* made = new (memory) stridec_context{.model = model};
  made->memory = &made->allocator;
  retain(model);
  stridec_status status = fill(*made, options, message);
  if (status != STRIDEC_OK) {
    destroy(made);
    return status;
  }
  *context = made;
  return STRIDEC_OK;
}

void context_destroy(stridec_context* context) {
  if (context) destroy(context);
}

stridec_status context_state(stridec_context* c, int32_t index, stridec_tensor* view) {
  if (!c || !view) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  const stridec_abi_program& p = *c->model->program;
  if (index < 0 || index >= p.state_count) {
    use.message << "there is no state " << index << "; the model has " << p.state_count;
    return STRIDEC_INVALID_ARGUMENT;
  }
  const stridec_abi_state& s = p.states[index];
  *view = {.data = c->states[index],
           .device = device_of(*c->model),
           .ndim = s.value.rank,
           .dtype = state_dtype(*c->model, index).dlpack,
           .shape = const_cast<int64_t*>(s.dims),  // DLTensor has no const; callers read it
           .strides = nullptr,
           .byte_offset = 0};
  return STRIDEC_OK;
}

stridec_status context_reset_state(stridec_context* c, int32_t index) {
  if (!c) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  int32_t count = c->model->program->state_count;
  if (index < -1 || index >= count) {
    use.message << "there is no state " << index << "; the model has " << count;
    return STRIDEC_INVALID_ARGUMENT;
  }
  stridec_status status = STRIDEC_OK;
  for (int32_t i = 0; i < count && status == STRIDEC_OK; ++i)
    if (index < 0 || i == index) status = reset_one_state(*c, i, use.message);
  return status;
}

stridec_status context_profile(stridec_context* c, int32_t enable) {
  if (!c) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  int32_t count = c->model->variant->step_count;
  if (enable && !c->steps) {
    c->steps = make_array<Step>(count);
    if (!c->steps) return out_of_memory(use.message, "the profile", 0);
  }
  if (c->cuda && c->steps) collect_profile(*c);
  if (enable) memset(c->steps, 0, sizeof(Step) * static_cast<size_t>(count));
  c->profiling = enable != 0;
  return STRIDEC_OK;
}

stridec_status context_step(stridec_context* c, int32_t index, stridec_step_profile* profile) {
  if (!c || !profile) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  if (index < 0 || index >= c->model->variant->step_count) {
    use.message << "there is no step " << index << "; the model has " << c->model->variant->step_count;
    return STRIDEC_INVALID_ARGUMENT;
  }
  if (c->cuda && c->steps) collect_profile(*c);
  Step step = c->steps ? c->steps[index] : Step{};
  stridec_step_profile info = {.name = c->model->step_names[index],
                               .calls = step.calls,
                               .nanoseconds = step.nanoseconds,
                               .minimum = step.minimum};
  give_info(profile, &info, sizeof info);
  return STRIDEC_OK;
}

stridec_status context_memory(stridec_context* c, stridec_memory_info* given) {
  if (!c || !given) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  const stridec_abi_program& p = *c->model->program;
  stridec_memory_info info = {};
  info.arena_bytes = static_cast<uint64_t>(c->arena.bytes);
  info.scratch_bytes = static_cast<uint64_t>(c->scratch.bytes + c->counters.bytes);
  info.staging_bytes = static_cast<uint64_t>(c->staging.bytes);
  info.state_bytes = static_cast<uint64_t>(c->state.bytes);
  for (int32_t i = 0; i < p.output_count; ++i) info.staging_bytes += static_cast<uint64_t>(c->owned[i].bytes);
  for (int32_t i = 0; i < p.slot_count; ++i) info.arena_bytes += static_cast<uint64_t>(c->slots[i].bytes);
  info.allocations = c->allocator.allocations + c->device_allocator.allocations;
  give_info(given, &info, sizeof info);
  return STRIDEC_OK;
}

}  // namespace stridec::runtime
