#include <stddef.h>
#include <string.h>

#include "clock.h"
#include "context.h"
#include "fp_mode.h"
#include "trace.h"
#include "trace_state.h"

namespace stridec::runtime {
namespace {

struct TaskRange {
  int64_t begin, end;
};

// Steals the later half of the tasks that a part has not begun. The next tasks of the part stay with it,
// because their data are in its cache.
TaskRange take_over(stridec_abi_left& part, int64_t grain) {
  uint64_t left = __atomic_load_n(&part.tasks, __ATOMIC_RELAXED);
  for (;;) {
    const auto begin = static_cast<int64_t>(left >> 32), end = static_cast<int64_t>(left & UINT32_MAX);
    if (end - begin <= grain) return {0, 0};
    const int64_t from = end - (end - begin) / 2;
    if (__atomic_compare_exchange_n(&part.tasks, &left, stridec_abi_tasks(begin, from), true,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return {from, end};
  }
}

struct Job {
  stridec_abi_kernel kernel;
  stridec_abi_args args;
  int64_t tasks;
  int32_t parts;
  std::atomic<uint32_t> failed;
};

void do_part(void* argument, int32_t part) {
  Job& job = *static_cast<Job*>(argument);
  job.kernel(&job.args, stridec_abi_share(job.tasks, job.parts, part),
             stridec_abi_share(job.tasks, job.parts, part + 1), part);
  if (stridec_abi_left* const left = job.args.left) {
    for (int32_t i = 1; i < job.parts; ++i) {
      stridec_abi_left& other = left[(part + i) % job.parts];
      for (TaskRange r; (r = take_over(other, job.args.grain)).end > 0;) {
        __atomic_store_n(&left[part].tasks, stridec_abi_tasks(r.begin, r.end), __ATOMIC_RELAXED);
        job.kernel(&job.args, r.begin, r.end, part);
      }
    }
  }
  if (job.args.failures[part].code) job.failed.store(1, std::memory_order_relaxed);
}

// For threads of the application: sets the floating-point mode and restores it.
void do_foreign_part(void* argument, int32_t part) {
  FpMode before = fp_mode();
  set_default_fp_mode();
  do_part(argument, part);
  set_fp_mode(before);
}

struct TracedJob {
  void (*body)(void* arg, int32_t part);
  Job* job;
  Trace* trace;
  int32_t step;
};

void do_traced_part(void* argument, int32_t part) {
  const TracedJob& traced = *static_cast<TracedJob*>(argument);
  trace_part_begins(*traced.trace, traced.step, part);
  traced.body(traced.job, part);
  trace_part_ends(*traced.trace, traced.step, part);
}

void record(Step& step, int64_t elapsed) {
  if (!step.calls || elapsed < step.minimum) step.minimum = elapsed;
  ++step.calls;
  step.nanoseconds += elapsed;
}

stridec_context& context_of(stridec_abi_run* run) { return *static_cast<stridec_context*>(run->context); }

bool is_watched(const stridec_context& c, int32_t step) {
  return c.watched && step >= 0 && step < c.frame->function->variant->step_count;
}

// The same as trace_step_begins(), inline where a file or a sink alone takes the step.
int64_t begin_traced_step(Trace& t, int32_t step, int32_t parts) {
  if (!t.boundary || (t.sink && !t.to_sink_alone) || t.ranges) [[unlikely]]
    return trace_step_begins(t, step, parts);
  if (t.to_sink_alone) trace_tell_step(t, false, t.boundary, step);
  return t.boundary;
}

// The same as trace_step_ends(), inline where a sink alone takes the step.
int64_t end_traced_step(Trace& t, int32_t step, int32_t parts) {
  if (!t.to_sink_alone) return trace_step_ends(t, step, parts);
  t.boundary = trace_time(t);
  trace_tell_step(t, true, t.boundary, step);
  return t.boundary;
}

int64_t begin_step(stridec_context& c, int32_t step, int32_t parts) {
  if (c.trace) [[likely]]
    return begin_traced_step(*c.trace, step, parts);
  return now_ns();
}

void end_step(stridec_context& c, int32_t step, int64_t begin, int32_t parts) {
  const int64_t end = c.trace ? end_traced_step(*c.trace, step, parts) : now_ns();
  if (c.profiling) record(c.frame->steps[step], end - begin);
}

// Runs the parts with the clock read around them.
void run_watched(stridec_context& c, Job& job, void (*body)(void* arg, int32_t part), int32_t step) {
  const int64_t begin = begin_step(c, step, job.parts);
  TracedJob traced = {body, &job, c.trace, step};
  if (c.trace && trace_has_parts(*c.trace))
    run_parts(c, job.parts, do_traced_part, &traced);
  else
    run_parts(c, job.parts, body, &job);
  end_step(c, step, begin, job.parts);
}

// Ends the run with its status. Returns 1, for the caller.
[[gnu::noinline]] int32_t cancel(stridec_context& c) {
  Text message(c.error, sizeof c.error);
  message << "the run was cancelled";
  c.run_status = STRIDEC_CANCELLED;
  return 1;
}

// One part, on the caller's thread. Steps of less than a microsecond come here when they are watched.
[[gnu::always_inline]] inline int32_t run_alone(stridec_context& c, stridec_abi_kernel kernel,
                                                const stridec_abi_args* args, int64_t tasks, int32_t step) {
  if (!is_watched(c, step)) [[unlikely]] {
    kernel(args, 0, tasks, 0);
    return args->failures[0].code != 0;
  }
  const int64_t begin = begin_step(c, step, 1);
  kernel(args, 0, tasks, 0);
  end_step(c, step, begin, 1);
  return args->failures[0].code != 0;
}

// A launch that several threads may share. It is a function of its own, because launch() would otherwise save
// its registers in runs on one thread too.
[[gnu::noinline]] int32_t launch_shared(stridec_abi_run* run, stridec_abi_kernel kernel,
                                        const stridec_abi_args* args, int64_t tasks, int64_t grain,
                                        int32_t step, int32_t movable) {
  stridec_context& c = context_of(run);
  const auto parts = static_cast<int32_t>(stridec_abi_parts(tasks, grain, run->threads));
  if (parts == 1) return run_alone(c, kernel, args, tasks, step);
  Job job = {kernel, *args, tasks, parts, {0}};
  if (movable && tasks <= UINT32_MAX) {
    job.args.left = reinterpret_cast<stridec_abi_left*>(c.left.data);
    job.args.grain = grain;
    for (int32_t p = 0; p < parts; ++p)
      __atomic_store_n(
          &job.args.left[p].tasks,
          stridec_abi_tasks(stridec_abi_share(tasks, parts, p), stridec_abi_share(tasks, parts, p + 1)),
          __ATOMIC_RELAXED);
  }
  const auto body = c.parallel_for ? do_foreign_part : do_part;
  if (is_watched(c, step))
    run_watched(c, job, body, step);
  else
    run_parts(c, parts, body, &job);
  return static_cast<int32_t>(job.failed.load(std::memory_order_relaxed));
}

}  // namespace

bool is_cancelled(stridec_context& c) { return c.cancelled.load(std::memory_order_relaxed) && cancel(c); }

void run_parts(const stridec_context& c, int32_t parts, void (*body)(void* arg, int32_t part), void* arg) {
  if (parts == 1)
    body(arg, 0);
  else if (c.parallel_for)
    c.parallel_for(c.parallel_user, parts, body, arg);
  else
    pool_run(c.pool, parts, body, arg);
}

// With one thread, no branch is taken between the call of launch() and that of the kernel: processors predict
// the kernel's address from the branches taken before.
int32_t launch(stridec_abi_run* run, stridec_abi_kernel kernel, const stridec_abi_args* args, int64_t tasks,
               int64_t grain, int32_t step, int32_t movable) {
  stridec_context& c = context_of(run);
  if (c.cancelled.load(std::memory_order_relaxed)) [[unlikely]]
    return cancel(c);
  if (tasks <= 0) [[unlikely]]
    return 0;
  if (run->threads != 1) [[unlikely]]
    return launch_shared(run, kernel, args, tasks, grain, step, movable);
  return run_alone(c, kernel, args, tasks, step);
}

const char* callback_name(const stridec_abi_module& m, int32_t index) {
  if (index >= m.callback_count) return nullptr;
  const char* name = m.callbacks;
  while (index-- > 0) name += strlen(name) + 1;
  return name;
}

// The tensors and attributes of generated code are those of the API, but for the types.
int32_t call_application(stridec_abi_run* run, const stridec_abi_call* call) {
  static_assert(sizeof(stridec_abi_tensor) == sizeof(stridec_tensor) &&
                offsetof(stridec_abi_tensor, rank) == offsetof(stridec_tensor, ndim) &&
                offsetof(stridec_abi_tensor, dtype) == offsetof(stridec_tensor, dtype) &&
                offsetof(stridec_abi_tensor, dims) == offsetof(stridec_tensor, shape) &&
                offsetof(stridec_abi_tensor, strides) == offsetof(stridec_tensor, strides) &&
                sizeof(stridec_abi_attribute) == sizeof(stridec_attribute));
  stridec_context& c = context_of(run);
  if (is_cancelled(c)) return 1;
  const char* name = callback_name(*c.model->module, call->callback);
  const Callback& callback = c.callbacks[call->callback];
  if (!callback.function) {
    Text message(c.error, sizeof c.error);
    message << "operator '" << name << "' is computed by the application, which has set no callback for it";
    c.run_status = STRIDEC_INVALID_ARGUMENT;
    return 1;
  }
  for (int32_t i = 0; i < call->read_count + call->write_count; ++i) {
    const stridec_dtype type = find_dtype(call->dtypes[i])->dlpack;
    memcpy(&call->tensors[i].dtype, &type, sizeof type);
  }
  const auto* tensors = reinterpret_cast<const stridec_tensor*>(call->tensors);
  char text[512] = "";
  const stridec_call given = {.struct_size = sizeof(stridec_call),
                              .name = name,
                              .inputs = tensors,
                              .outputs = tensors + call->read_count,
                              .attributes = reinterpret_cast<const stridec_attribute*>(call->attributes),
                              .input_count = static_cast<size_t>(call->read_count),
                              .output_count = static_cast<size_t>(call->write_count),
                              .attribute_count = static_cast<size_t>(call->attribute_count),
                              .message = text,
                              .message_bytes = sizeof text};
  const bool watched = is_watched(c, call->step);
  const int64_t begin = watched ? begin_step(c, call->step, 0) : 0;
  const int32_t code = callback.function(callback.user, &given);
  if (watched) end_step(c, call->step, begin, 0);
  if (!code) return 0;
  text[sizeof text - 1] = 0;
  Text message(c.error, sizeof c.error);
  message << "operator '" << name << "': the callback returned " << code;
  if (text[0]) message << ": " << text;
  c.run_status = STRIDEC_BAD_DATA;
  return 1;
}

int32_t launch_device(stridec_abi_run* run, const stridec_abi_device_launch* l) {
  stridec_context& c = context_of(run);
  if (is_cancelled(c)) return 1;
  Text message(c.error, sizeof c.error);
  // A collected launch may use the memory that growing frees.
  if ((l->workspace_bytes > c.scratch.bytes || l->counter_bytes > c.counters.bytes) && !cuda_flush(*c.cuda)) {
    c.run_status = device_error(c, message);
    return 1;
  }
  if (l->workspace_bytes && !grow(*c.memory, c.scratch, l->workspace_bytes)) {
    c.run_status = out_of_memory(message, "a kernel's workspace", l->workspace_bytes);
    return 1;
  }
  c.run_status = reserve_counters(c, l->counter_bytes, message);
  if (c.run_status != STRIDEC_OK) return 1;
  if (cuda_launch(*c.cuda, *l, c.scratch.data, c.counters.data) != 0) {
    c.run_status = device_error(c, message);
    return 1;
  }
  if (c.profiling) cuda_stamp(*c.cuda, l->step >= 0 ? l->step : kSame);
  return 0;
}

void collect_stamps(stridec_context& c) {
  struct Call {
    stridec_context& c;
    StampOwner owner;
    int64_t elapsed;
    int32_t launches;
    void end() {
      if (owner.tag >= 0 && c.profiling) record(c.frames[owner.function].steps[owner.tag], elapsed);
    }
  } call = {c, {kNobody, 0, 0}, 0, 0};
  const auto add = [](void* user, const Stamped& work) {
    auto& call = *static_cast<Call*>(user);
    const Frame& frame = call.c.frames[work.owner.function];
    if (work.owner.tag >= frame.function->variant->step_count) return;
    if (work.owner.tag != kSame) {
      call.end();
      call.owner = work.owner;
      call.elapsed = call.launches = 0;
    }
    call.elapsed += work.nanoseconds;
    if (call.c.trace)
      trace_gpu_work(*call.c.trace, call.owner, call.launches, work.end - work.nanoseconds, work.end);
    ++call.launches;
  };
  cuda_read_stamps(*c.cuda, add, &call);
  call.end();
}

int32_t read_device(stridec_abi_run* run, void* to, const void* from, int64_t bytes) {
  stridec_context& c = context_of(run);
  if (c.trace) trace_pause(*c.trace);
  if (cuda_flush(*c.cuda) && cuda_download(*c.cuda, to, from, bytes)) {
    if (c.profiling) cuda_stamp(*c.cuda, kNobody);
    return 0;
  }
  Text message(c.error, sizeof c.error);
  c.run_status = device_error(c, message);
  return 1;
}

void* resize_output(stridec_abi_run* run, int32_t output, const int64_t* dims) {
  stridec_context& c = context_of(run);
  if (c.trace) trace_pause(*c.trace);
  const stridec_abi_value& value = function_of(c).outputs[output];
  for (int32_t i = 0; i < value.rank; ++i) c.frame->dims_of[output][i] = dims[i];
  Text message(c.error, sizeof c.error);
  if (c.cuda && !cuda_flush(*c.cuda)) {
    c.run_status = device_error(c, message);
    return nullptr;
  }
  c.run_status = place_output(c, output, &c.given_outputs[output], message);
  return c.run_status == STRIDEC_OK ? c.frame->outputs[output] : nullptr;
}

void* allocate_slot(stridec_abi_run* run, int32_t slot, int64_t bytes) {
  stridec_context& c = context_of(run);
  if (c.trace) trace_pause(*c.trace);
  if (c.cuda && !cuda_flush(*c.cuda)) {
    Text message(c.error, sizeof c.error);
    c.run_status = device_error(c, message);
    return nullptr;
  }
  if (bytes >= 0 && grow(*c.memory, c.frame->slots[slot], bytes ? bytes : 1))
    return c.frame->slots[slot].data;
  Text message(c.error, sizeof c.error);
  c.run_status = out_of_memory(message, "a buffer whose size depends on data", bytes);
  return nullptr;
}

}  // namespace stridec::runtime
