#include "context.h"

#include <string.h>

#include <initializer_list>
#include <new>

#include "context_api.h"
#include "machine.h"
#include "trace.h"

namespace stridec::runtime {
namespace {

void release_frame(stridec_context& c, Frame& f) {
  if (!f.function) return;
  const stridec_abi_function& p = *f.function->abi;
  for (int32_t i = 0; f.owned && i < p.output_count; ++i) release(*c.memory, f.owned[i]);
  for (int32_t i = 0; f.fetched && i < p.output_count; ++i) release(c.allocator, f.fetched[i]);
  for (int32_t i = 0; f.slots && i < p.slot_count; ++i) release(*c.memory, f.slots[i]);
  void* const arrays[] = {f.owned,     f.slots,   f.fetched,        f.symbols,        f.input_dims,
                          f.bind_data, f.inputs,  f.staging_offset, f.outputs,        f.places,
                          f.addresses, f.dims_of, f.output_dims,    f.output_strides, f.steps};
  for (void* array : arrays) free(array);
}

void destroy(stridec_context* c) {
  trace_stop(*c);
  pool_destroy(c->pool);
  cuda_context_destroy(c->cuda);  // waits for outstanding work
  for (Block* block : {&c->arena, &c->scratch, &c->staging, &c->state, &c->device_parameters, &c->counters})
    release(*c->memory, *block);
  for (Block* block : {&c->failures, &c->left, &c->host_staging, &c->parameters})
    release(c->allocator, *block);
  for (int32_t i = 0; c->frames && i < c->model->module->function_count; ++i) release_frame(*c, c->frames[i]);
  free(c->frames);
  free(c->states);
  free(c->sizes);
  free(c->state_dims);
  free(c->state_strides);
  free(c->dims_of_state);
  free(c->callbacks);
  release(c->model);
  free(c);
}

bool make_frame(const Function& function, int32_t state_count, Frame& f) {
  const stridec_abi_function& p = *function.abi;
  f.function = &function;
  f.owned = make_array<Block>(p.output_count);
  f.slots = make_array<Block>(p.slot_count);
  f.fetched = make_array<Block>(p.output_count);
  f.symbols = make_array<int64_t>(p.symbol_count);
  f.input_dims = make_array<const int64_t*>(p.input_count);
  f.bind_data = make_array<const void*>(p.input_count);
  f.inputs = make_array<const void*>(p.input_count);
  f.staging_offset = make_array<int64_t>(p.input_count);
  f.outputs = make_array<void*>(p.output_count);
  f.places = make_array<Place>(p.output_count);
  f.addresses = make_array<const void*>(p.input_count + p.output_count + state_count + 4);
  f.dims_of = make_array<int64_t*>(p.output_count);
  f.output_dims = make_array<int64_t>(function.output_dim_count);
  f.output_strides = make_array<int64_t>(function.output_dim_count);
  if (!f.owned || !f.slots || !f.fetched || !f.symbols || !f.input_dims || !f.bind_data || !f.inputs ||
      !f.staging_offset || !f.outputs || !f.places || !f.addresses || !f.dims_of || !f.output_dims ||
      !f.output_strides)
    return false;
  int64_t* dims = f.output_dims;
  for (int32_t i = 0; i < p.output_count; dims += p.outputs[i++].rank) f.dims_of[i] = dims;
  return true;
}

bool make_tables(stridec_context& c) {
  const stridec_abi_module& m = *c.model->module;
  c.states = make_array<void*>(m.state_count);
  c.frames = make_array<Frame>(m.function_count);
  c.frame = c.frames;
  c.callbacks = make_array<Callback>(m.callback_count);
  if (!c.states || !c.frames || !c.callbacks) return false;
  for (int32_t i = 0; i < m.function_count; ++i)
    if (!make_frame(c.model->functions[i], m.state_count, c.frames[i])) return false;
  return true;
}

int64_t state_bytes(const stridec_context& c, int32_t i) {
  const stridec_abi_state& s = c.model->module->states[i];
  return compact_bytes(c.dims_of_state[i], s.value.rank, byte_size(state_dtype(*c.model, i)));
}

stridec_status reset_one_state(stridec_context& c, int32_t i, Text& message) {
  const stridec_abi_state& s = c.model->module->states[i];
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

// Takes the sizes that the caller gives.
stridec_status take_sizes(stridec_context& c, const stridec_context_options& options, Text& message) {
  const stridec_abi_module& p = *c.model->module;
  if (options.size_count && !options.sizes) {
    message << "the array of sizes is null";
    return STRIDEC_INVALID_ARGUMENT;
  }
  for (int32_t s = 0; s < p.size_count; ++s) c.sizes[s] = -1;
  for (size_t i = 0; i < options.size_count; ++i) {
    const stridec_size& given = options.sizes[i];
    int32_t s = 0;
    while (s < p.size_count && !(given.name && !strcmp(p.sizes[s].name, given.name))) ++s;
    if (s == p.size_count) {
      message << "no state of the model has the size '" << (given.name ? given.name : "(null)") << "'";
      for (s = 0; s < p.size_count; ++s)
        message << (s ? ", '" : "; its states have '") << p.sizes[s].name << "'";
      return STRIDEC_INVALID_ARGUMENT;
    }
    if (given.value < 0 || c.sizes[s] >= 0) {
      message << "the size '" << given.name << (given.value < 0 ? "' is negative" : "' is given twice");
      return STRIDEC_INVALID_ARGUMENT;
    }
    c.sizes[s] = given.value;
  }
  int32_t missing = 0;
  for (int32_t s = 0; s < p.size_count; ++s)
    if (c.sizes[s] < 0)
      message << (missing++ ? ", '" : "states have sizes that a context is created with: '")
              << p.sizes[s].name << "'";
  if (!missing) return STRIDEC_OK;
  message << (missing == 1 ? " is" : " are") << " not given (stridec_context_options.sizes)";
  return STRIDEC_INVALID_ARGUMENT;
}

// Computes the dims of all states.
stridec_status bind_states(stridec_context& c, const stridec_context_options& options, Text& message) {
  const stridec_abi_module& p = *c.model->module;
  int64_t rank = 0;
  for (int32_t i = 0; i < p.state_count; ++i) rank += p.states[i].value.rank;
  c.sizes = make_array<int64_t>(p.size_count);
  c.state_dims = make_array<int64_t>(rank);
  c.state_strides = make_array<int64_t>(rank);
  c.dims_of_state = make_array<const int64_t*>(p.state_count);
  if (!c.sizes || !c.state_dims || !c.state_strides || !c.dims_of_state)
    return out_of_memory(message, "tables", 0);
  int64_t* dims = c.state_dims;
  for (int32_t i = 0; i < p.state_count; ++i) {
    c.dims_of_state[i] = dims;
    for (int32_t d = 0; d < p.states[i].value.rank; ++d) *dims++ = p.states[i].dims ? p.states[i].dims[d] : 0;
  }
  // Without runs there is no need for states: those of such sizes have no elements.
  if (c.model->no_run && !options.size_count) return STRIDEC_OK;
  stridec_status status = take_sizes(c, options, message);
  stridec_abi_failure failure = {};
  if (status == STRIDEC_OK && p.bind_context && p.bind_context(c.sizes, c.state_dims, &failure)) {
    write_failure(message, p, failure);
    status = STRIDEC_WRONG_SHAPE;
  }
  return status;
}

stridec_status make_states(stridec_context& c, Text& message) {
  const stridec_abi_module& p = *c.model->module;
  int64_t total = 0;
  for (int32_t i = 0; i < p.state_count; ++i) {
    int64_t bytes = state_bytes(c, i);
    if (bytes < 0 || __builtin_add_overflow(total, align_up(bytes), &total)) {
      message << "state '" << p.states[i].value.name << "' is too large for memory";
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
  c.threads = c.cuda ? 1 : options.threads ? options.threads : default_threads(kMaxThreads);
  c.parallel_for = options.parallel_for;
  c.parallel_user = options.parallel_user;
  if (!c.parallel_for && c.threads > 1) {
    // The module's setting applies only if spinning threads do not take processors from each other.
    const int32_t wish = c.threads <= usable_processors() ? c.model->module->spin_us : 0;
    c.pool = pool_create(c.threads, options.spin_us ? options.spin_us : wish);
    if (!c.pool) return out_of_memory(message, "threads", 0);
  }
  int64_t bytes = c.threads * static_cast<int64_t>(sizeof(stridec_abi_failure));
  if (!grow(c.allocator, c.failures, bytes)) return out_of_memory(message, "failure slots", bytes);
  bytes = c.threads * static_cast<int64_t>(sizeof(stridec_abi_left));
  if (!grow(c.allocator, c.left, bytes)) return out_of_memory(message, "shares of work", bytes);
  return STRIDEC_OK;
}

// give_info() with a sentence for context_error().
stridec_status give(InUse& use, void* given, const void* info, size_t bytes) {
  const stridec_status status = give_info(given, info, bytes);
  if (status != STRIDEC_OK)
    use.message << "struct_size is less than the size of itself: set it before the call";
  return status;
}

stridec_status fill(stridec_context& c, const stridec_context_options& options, Text& message) {
  constexpr uint32_t kFlags = STRIDEC_CONTEXT_NO_HUGE_PAGES | STRIDEC_CONTEXT_ASYNC;
  if (options.flags & ~kFlags) {
    message << "the context's flags have unknown bits: " << uint64_t{options.flags & ~kFlags};
    return STRIDEC_INVALID_ARGUMENT;
  }
  if (!options.allocate != !options.release) {
    message << "allocate and release must be given together";
    return STRIDEC_INVALID_ARGUMENT;
  }
  c.allocator = {options.allocate, options.release, options.memory_user,
                 !(options.flags & STRIDEC_CONTEXT_NO_HUGE_PAGES), 0};
  if (c.model->cuda) {
    c.device_allocator = cuda_allocator(*c.model->cuda);
    c.memory = &c.device_allocator;
    c.asynchronous = options.flags & STRIDEC_CONTEXT_ASYNC;
    stridec_status status = cuda_context_create(*c.model->cuda, c.model->module->function_count,
                                                options.stream, &c.cuda, message);
    if (status != STRIDEC_OK) return status;
  }
  if (!make_tables(c)) return out_of_memory(message, "tables", 0);
  stridec_status status = bind_states(c, options, message);
  if (status == STRIDEC_OK) status = make_threads(c, options, message);
  return status == STRIDEC_OK ? make_states(c, message) : status;
}

}  // namespace

Text& write_function(Text& text, const stridec_context& c) {
  if (c.model->module->function_count == 1) return text << "the model";
  return text << "function '" << function_of(c).name << "'";
}

stridec_status select_function(stridec_context& c, int32_t function, Text& message) {
  const int32_t count = c.model->module->function_count;
  if (function < 0 || function >= count) {
    message << "there is no function " << function << "; the model has " << count;
    return STRIDEC_INVALID_ARGUMENT;
  }
  Frame* const frame = &c.frames[function];
  // Time stamps name steps of the function that recorded them.
  if (frame != c.frame && c.cuda && c.frame->steps) collect_stamps(c);
  c.frame = frame;
  return STRIDEC_OK;
}

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
    message << "threads is " << threads << "; expected 0 (as many as the process may use) to " << kMaxThreads;
    return STRIDEC_INVALID_ARGUMENT;
  }
  if (spin_us < -1) {
    message << "spin_us is " << spin_us << "; expected -1 (none), 0 (the default) or microseconds";
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
  trace_from_environment(*made);
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
  const stridec_abi_module& p = *c->model->module;
  if (index < 0 || index >= p.state_count) {
    use.message << "there is no state " << index << "; the model has " << p.state_count;
    return STRIDEC_INVALID_ARGUMENT;
  }
  const stridec_abi_state& s = p.states[index];
  const int64_t* const dims = c->dims_of_state[index];
  int64_t* const strides = c->state_strides + (dims - c->state_dims);
  strides_of({dims, s.value.memory_order, s.value.rank, 1}, strides);
  *view = {.data = c->states[index],
           .device = device_of(*c->model),
           .ndim = s.value.rank,
           .dtype = state_dtype(*c->model, index).dlpack,
           .shape = const_cast<int64_t*>(dims),  // DLTensor has no const; callers read it
           .strides = s.value.memory_order ? strides : nullptr,
           .byte_offset = 0};
  return STRIDEC_OK;
}

stridec_status context_reset_state(stridec_context* c, int32_t index) {
  if (!c) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  int32_t count = c->model->module->state_count;
  if (index < -1 || index >= count) {
    use.message << "there is no state " << index << "; the model has " << count;
    return STRIDEC_INVALID_ARGUMENT;
  }
  stridec_status status = STRIDEC_OK;
  for (int32_t i = 0; i < count && status == STRIDEC_OK; ++i)
    if (index < 0 || i == index) status = reset_one_state(*c, i, use.message);
  return status;
}

stridec_status context_set_callback(stridec_context* c, const char* name, stridec_callback callback,
                                    void* user) {
  if (!c || !name) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  const stridec_abi_module& m = *c->model->module;
  for (int32_t i = 0; i < m.callback_count; ++i)
    if (!strcmp(callback_name(m, i), name)) {
      c->callbacks[i] = {callback, user};
      return STRIDEC_OK;
    }
  use.message << "the model has no operator '" << name << "' that the application computes";
  for (int32_t i = 0; i < m.callback_count; ++i)
    use.message << (i ? ", '" : "; it has '") << callback_name(m, i) << "'";
  return STRIDEC_INVALID_ARGUMENT;
}

stridec_status context_profile(stridec_context* c, int32_t enable) {
  if (!c) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  if (c->cuda && c->frame->steps) collect_stamps(*c);
  for (int32_t i = 0; enable && i < c->model->module->function_count; ++i) {
    Frame& f = c->frames[i];
    const int32_t count = f.function->variant->step_count;
    if (!f.steps) f.steps = make_array<Step>(count);
    if (!f.steps) return out_of_memory(use.message, "the profile", 0);
    memset(f.steps, 0, sizeof(Step) * static_cast<size_t>(count));
  }
  c->profiling = enable != 0;
  c->watched = c->profiling || c->trace;
  return STRIDEC_OK;
}

stridec_status context_trace(stridec_context* c, const stridec_trace_options* given) {
  if (!c) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  if (!given) {
    const int32_t error = trace_stop(*c);
    trace_for_ranges(*c);
    return error ? trace_file_failed(use.message, nullptr, error) : STRIDEC_OK;
  }
  stridec_trace_options options;
  if (!take_options(&options, sizeof options, given)) {
    use.message << "the options are not those of this version of the API: set struct_size, and zero the rest";
    return STRIDEC_INVALID_ARGUMENT;
  }
  return trace_start(*c, options, false, use.message);
}

stridec_status context_function_step(stridec_context* c, int32_t function, int32_t index,
                                     stridec_step_profile* profile) {
  if (!c || !profile) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  stridec_status status = select_function(*c, function, use.message);
  if (status != STRIDEC_OK) return status;
  const Function& f = *c->frame->function;
  if (index < 0 || index >= f.variant->step_count) {
    use.message << "there is no step " << index << "; ";
    write_function(use.message, *c) << " has " << f.variant->step_count;
    return STRIDEC_INVALID_ARGUMENT;
  }
  if (c->cuda && c->frame->steps) collect_stamps(*c);
  Step step = c->frame->steps ? c->frame->steps[index] : Step{};
  stridec_step_profile info = {.name = f.step_names[index],
                               .calls = step.calls,
                               .nanoseconds = step.nanoseconds,
                               .minimum = step.minimum};
  return give(use, profile, &info, sizeof info);
}

stridec_status context_memory(stridec_context* c, stridec_memory_info* given) {
  if (!c || !given) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  stridec_memory_info info = {};
  info.arena_bytes = static_cast<uint64_t>(c->arena.bytes);
  info.scratch_bytes = static_cast<uint64_t>(c->scratch.bytes + c->counters.bytes);
  info.staging_bytes = static_cast<uint64_t>(c->staging.bytes);
  info.state_bytes = static_cast<uint64_t>(c->state.bytes);
  for (int32_t i = 0; i < c->model->module->function_count; ++i) {
    const Frame& f = c->frames[i];
    for (int32_t o = 0; o < f.function->abi->output_count; ++o)
      info.staging_bytes += static_cast<uint64_t>(f.owned[o].bytes);
    for (int32_t slot = 0; slot < f.function->abi->slot_count; ++slot)
      info.arena_bytes += static_cast<uint64_t>(f.slots[slot].bytes);
  }
  info.allocations = c->allocator.allocations + c->device_allocator.allocations;
  return give(use, given, &info, sizeof info);
}

}  // namespace stridec::runtime
