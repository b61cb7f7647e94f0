#include "trace.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "context.h"
#include "nvtx.h"
#include "trace_state.h"

namespace stridec::runtime {

// Of the step in progress. Threads write their own, so each has its cache line.
struct alignas(64) Part {
  int64_t begin, end;
  Owner thread;
};

namespace {

constexpr int32_t kEvents = 16384;
constexpr int32_t kRunsOfEnvironment = 100;
// Records of a process that is killed are lost if they are younger.
constexpr int64_t kWriteEvery = 20000000;
// Records that are written after a run: few enough that their memory stays in the processor's cache.
constexpr int32_t kWritten = 2048;
constexpr int64_t kAlignEvery = 1000000;
constexpr uint32_t kFlags =
    STRIDEC_TRACE_PARTS | STRIDEC_TRACE_WAITS | STRIDEC_TRACE_COPIES | STRIDEC_TRACE_KERNELS;
constexpr int64_t kAnchorEvery = 1000000000;
// Stamps of asynchronous runs that are kept until the GPU has done its work.
constexpr int32_t kPending = 4096;

// The traces of this artifact, and the process whose thread changes the list, 0: none. After a fork that
// thread may not exist: a child that finds its parent's number begins a list of its own, since the parent's
// may be half changed.
Trace* traces;
std::atomic<int32_t> traces_locked;
uint32_t list_number;  // of the list that traces are in

// Takes the lock if no thread of this process has it.
bool lock_traces() {
  const int32_t self = getpid();
  int32_t holder = 0;
  if (traces_locked.compare_exchange_strong(holder, self, std::memory_order_acquire)) return true;
  if (holder == self || !traces_locked.compare_exchange_strong(holder, self, std::memory_order_acquire))
    return false;
  traces = nullptr;
  ++list_number;
  return true;
}
void unlock_traces() { traces_locked.store(0, std::memory_order_release); }

struct TracesLock {
  TracesLock() {
    while (!lock_traces()) syscall(SYS_sched_yield);
  }
  ~TracesLock() { unlock_traces(); }
};

void list(Trace& t) {
  const TracesLock lock;
  t.list = list_number;
  t.next = traces;
  if (traces) traces->previous = &t;
  traces = &t;
}

void unlist(Trace& t) {
  const TracesLock lock;
  if (t.list != list_number) return;
  if (t.next) t.next->previous = t.previous;
  (t.previous ? t.previous->next : traces) = t.next;
}

void write_records(Trace& t) {
  trace_text_write(t.text, t.records, t.count);
  t.count = 0;
}

// At the end of the process or when the artifact is unloaded: contexts that were not destroyed have
// records. One whose context is in use goes without, since its thread may be writing records.
[[gnu::destructor]] void write_all() {
  if (!lock_traces()) return;
  for (Trace* t = traces; t; t = t->next) {
    if (t->context->busy.exchange(1, std::memory_order_acquire)) continue;
    if (t->to_file) write_records(*t);
    t->context->busy.store(0, std::memory_order_release);
  }
  unlock_traces();
}

// Registers the names of all steps with the tool that takes ranges.
bool make_ranges(Trace& t, const stridec_context& c) {
  const int32_t functions = c.model->module->function_count;
  t.ranges = make_array<void**>(functions);
  for (int32_t i = 0; t.ranges && i < functions; ++i) {
    const Function& f = *c.frames[i].function;
    t.ranges[i] = make_array<void*>(f.variant->step_count);
    if (!t.ranges[i]) return false;
    for (int32_t s = 0; s < f.variant->step_count; ++s) t.ranges[i][s] = nvtx_register(f.step_names[s]);
  }
  return t.ranges;
}

// Returns the errno of a write to its file that failed, or 0.
int32_t free_trace(Trace* t, int32_t function_count) {
  if (t->to_file) write_records(*t);
  trace_text_stop(t->text);
  const int32_t error = t->text.file.error;
  for (int32_t i = 0; t->sizes && i < function_count; ++i) free(t->sizes[i]);
  for (int32_t i = 0; t->ranges && i < function_count; ++i) free(t->ranges[i]);
  free(t->ranges);
  free(t->sizes);
  free(t->records);
  free(t->parts);
  free(t);
  return error;
}

int32_t number_of(Owner& owner) {
  const pthread_t self = pthread_self();
  if (!owner.number || owner.self != self) owner = {self, static_cast<int32_t>(syscall(SYS_gettid))};
  return owner.number;
}

void add(Trace& t, const TraceRecord& record) {
  if (!t.to_file) return;
  if (t.count == t.room) [[unlikely]]
    write_records(t);
  t.records[t.count++] = record;
}

struct Told {
  int32_t kind, step = -1, part = -1;
  const char* name;
  stridec_status status = STRIDEC_OK;
};

void tell(const Trace& t, bool ends, int64_t time, const Told& told) {
  const stridec_event event = {
      .struct_size = sizeof event,
      .kind = told.kind,
      .ends = ends,
      .time = time,
      .run = t.run,
      .function = t.function->index,
      .step = told.step,
      .part = told.part,
      .status = told.status,
      .name = told.name,
  };
  t.sink(t.user, &event);
}

void tell_step(const Trace& t, bool ends, int64_t time, int32_t kind, int32_t step, int32_t part) {
  if (t.sink)
    tell(t, ends, time, {.kind = kind, .step = step, .part = part, .name = t.function->step_names[step]});
}

// Whether no other part that the same thread did ends later.
bool is_last_of_thread(const Trace& t, int32_t part, int32_t parts) {
  const Part& p = t.parts[part];
  for (int32_t i = 0; i < parts; ++i)
    if (t.parts[i].thread.number == p.thread.number &&
        (t.parts[i].end > p.end || (t.parts[i].end == p.end && i > part)))
      return false;
  return true;
}

// A thread that has no more parts waits for the others.
void add_waits(Trace& t, int32_t step, int64_t end, int32_t parts) {
  for (int32_t i = 0; i < parts; ++i) {
    const Part& part = t.parts[i];
    if (part.end >= end || !is_last_of_thread(t, i, parts)) continue;
    add(t, {part.end, end, STRIDEC_EVENT_WAIT, step, i, part.thread.number});
    if (part.thread.number != t.thread.number) continue;
    tell_step(t, false, part.end, STRIDEC_EVENT_WAIT, step, i);
    tell_step(t, true, end, STRIDEC_EVENT_WAIT, step, i);
  }
}

// Counters of two processors may differ by some nanoseconds, but parts lie in their step.
void add_parts(Trace& t, int32_t step, int64_t begin, int64_t end, int32_t parts) {
  for (int32_t i = 0; i < parts; ++i) {
    Part& part = t.parts[i];
    if (part.begin < begin) part.begin = begin;
    if (part.end > end) part.end = end;
    if (part.end < part.begin) part.end = part.begin;
    if (!(t.flags & STRIDEC_TRACE_PARTS)) continue;
    add(t, {part.begin, part.end, STRIDEC_EVENT_PART, step, i, part.thread.number});
  }
  if (t.flags & STRIDEC_TRACE_WAITS) add_waits(t, step, end, parts);
}

// Adds the sizes of the run if they are not those of the function's last run in the file.
void add_sizes(Trace& t, const Frame& frame) {
  const stridec_abi_function& f = *t.function->abi;
  int64_t* const before = t.sizes[t.function->index];
  bool same = true;
  for (int32_t i = 0; i < f.symbol_count; ++i) {
    same = same && before[i] == frame.symbols[i];
    before[i] = frame.symbols[i];
  }
  if (same) return;
  for (int32_t i = 0; i < f.symbol_count; ++i)
    if (f.symbols[i].shown && frame.symbols[i] >= 0)
      add(t, {frame.symbols[i], 0, kSize, i, 0, t.thread.number});
}

// Makes what a trace needs besides its file.
bool make_tables(Trace& t, const stridec_context& c, const stridec_trace_options& options) {
  const int32_t functions = c.model->module->function_count;
  t.room = options.events ? options.events : kEvents;
  t.records = options.path ? make_array<TraceRecord>(t.room) : nullptr;
  const auto begin = reinterpret_cast<const char*>(t.records);
  if (t.records) populate(begin, t.room * static_cast<int64_t>(sizeof(TraceRecord)), Access::kWrite);
  t.sizes = make_array<int64_t*>(functions);
  void* parts = nullptr;
  const size_t bytes = sizeof(Part) * static_cast<size_t>(c.threads);
  if (posix_memalign(&parts, alignof(Part), bytes) != 0) return false;
  memset(parts, 0, bytes);
  t.parts = static_cast<Part*>(parts);
  for (int32_t i = 0; t.sizes && i < functions; ++i) {
    const auto count = static_cast<size_t>(c.frames[i].function->abi->symbol_count);
    t.sizes[i] = make_array<int64_t>(static_cast<int64_t>(count));
    if (!t.sizes[i]) return false;
    memset(t.sizes[i], 0x80, count * sizeof(int64_t));  // no size has this value
  }
  return t.sizes && (t.records || !options.path) && (!nvtx_attached() || make_ranges(t, c));
}

bool has_kernels(const stridec_context& c) {
  return c.cuda && c.trace && (c.trace->flags & STRIDEC_TRACE_KERNELS);
}

// Relates the GPU's clock to the host's. Without that there are no kernels in the trace.
void anchor(stridec_context& c, bool wait) {
  Trace& t = *c.trace;
  const int64_t error = cuda_anchor(*c.cuda, wait);
  if (error < 0) t.flags &= ~static_cast<uint32_t>(STRIDEC_TRACE_KERNELS);
  if (error >= 0 && !t.anchored && t.to_file) trace_text_gpu(t.text, cuda_device(*c.model->cuda), error);
  t.anchored = now_ns();
}

// Before a run whose launches are timed. An asynchronous run must not wait for the GPU.
void time_kernels(stridec_context& c) {
  if (cuda_stamps_ready(*c.cuda, 0)) {
    collect_stamps(c);
    if (c.trace->last - c.trace->anchored > kAnchorEvery) anchor(c, false);
  }
  const bool has_room = cuda_stamp_count(*c.cuda) < kPending;
  cuda_time_launches(*c.cuda, has_kernels(c) && has_room && !c.profiling, c.trace->run);
}

// At the end of a run.
void finish_kernels(stridec_context& c, bool last) {
  if (!c.asynchronous) {
    collect_stamps(c);
  } else if (last && !cuda_stamps_ready(*c.cuda, kWriteEvery)) {
    cuda_discard_stamps(*c.cuda);
  }
}

}  // namespace

stridec_status trace_start(stridec_context& c, const stridec_trace_options& options, bool shared,
                           Text& message) {
  if (options.runs < 0 || options.events < 0 || (options.flags & ~kFlags)) {
    message << "the trace options have a negative number or an unknown flag";
    return STRIDEC_INVALID_ARGUMENT;
  }
  auto* t = static_cast<Trace*>(calloc(1, sizeof(Trace)));
  if (!t) return out_of_memory(message, "the trace", sizeof(Trace));
  const int32_t functions = c.model->module->function_count;
  t->text.file.fd = -1;
  t->sink = options.sink;
  t->user = options.user;
  t->flags = options.flags;
  t->runs_left = options.runs ? options.runs : -1;
  t->context = &c;
  if (!make_tables(*t, c, options)) {
    free_trace(t, functions);
    return out_of_memory(message, "the trace", 0);
  }
  if (options.path && !trace_file_open(t->text.file, options.path, shared)) {
    const int32_t error = errno;
    free_trace(t, functions);
    return trace_file_failed(message, options.path, error);
  }
  if (options.path && !trace_text_start(t->text, c)) {
    free_trace(t, functions);
    return out_of_memory(message, "the trace", 0);
  }
  t->to_file = options.path;
  t->to_sink_alone = t->sink && !t->to_file && !t->ranges && !trace_has_parts(*t);
  ticks_start(t->ticks);
  trace_stop(c);
  list(*t);
  c.trace = t;
  c.watched = true;
  if (has_kernels(c)) anchor(c, true);
  return STRIDEC_OK;
}

stridec_status trace_file_failed(Text& message, const char* path, int32_t error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  message << "the trace file ";
  if (path) message << "'" << path << "' ";
  message << "cannot be written: " << (full ? "there is no room for it, " : "") << "error " << error;
  return full ? STRIDEC_OUT_OF_MEMORY : STRIDEC_INVALID_ARGUMENT;
}

int32_t trace_stop(stridec_context& c) {
  int32_t error = 0;
  if (has_kernels(c)) {
    collect_stamps(c);
    cuda_time_launches(*c.cuda, false, 0);
  }
  if (c.trace) {
    unlist(*c.trace);
    error = free_trace(c.trace, c.model->module->function_count);
  }
  c.trace = nullptr;
  c.watched = c.profiling;
  return error;
}

void trace_for_ranges(stridec_context& c) {
  char sentence[256];
  Text message(sentence, sizeof sentence);
  if (nvtx_attached()) trace_start(c, {.struct_size = sizeof(stridec_trace_options)}, false, message);
}

void trace_from_environment(stridec_context& c) {
  char path[4096], sentence[256];
  Text text(path, sizeof path), message(sentence, sizeof sentence);
  if (!trace_path(c.model->module->name, text)) {
    trace_for_ranges(c);
    return;
  }
  const char* const runs = secure_getenv("STRIDEC_PROFILE_RUNS");
  stridec_trace_options options = {
      .struct_size = sizeof options, .flags = kFlags, .runs = kRunsOfEnvironment, .path = path};
  if (runs) {
    options.runs = 0;
    for (const char* c = runs; *c >= '0' && *c <= '9' && options.runs < 100000000; ++c)
      options.runs = 10 * options.runs + (*c - '0');
  }
  trace_start(c, options, true, message);
}

void trace_run_begins(stridec_context& c) {
  Trace& t = *c.trace;
  t.function = c.frame->function;
  t.step_names = t.function->step_names;
  t.step = {.struct_size = sizeof t.step,
            .kind = STRIDEC_EVENT_STEP,
            .run = t.run,
            .function = t.function->index,
            .part = -1};
  number_of(t.thread);
  t.boundary = 0;
  int64_t begin = trace_time(t);
  if (begin - t.ticks.time > kAlignEvery) {
    ticks_align(t.ticks);
    begin = trace_time(t);
  }
  if (has_kernels(c)) time_kernels(c);
  add(t, {begin, 0, kRunBegins, t.function->index, 0, t.thread.number});
  if (t.sink) tell(t, false, begin, {.kind = STRIDEC_EVENT_RUN, .name = t.function->abi->name});
  if (t.ranges) nvtx_push(nullptr, t.function->abi->name);
}

void trace_run_ends(stridec_context& c, stridec_status status) {
  Trace& t = *c.trace;
  if (t.ranges) nvtx_pop();
  const int64_t end = trace_time(t);
  if (t.sink)
    tell(t, true, end, {.kind = STRIDEC_EVENT_RUN, .name = t.function->abi->name, .status = status});
  if (t.to_file) {
    add_sizes(t, *c.frame);
    add(t, {0, end, STRIDEC_EVENT_RUN, status, 0, t.thread.number});
  }
  if (has_kernels(c)) finish_kernels(c, t.runs_left == 1);
  if (t.to_file) {
    if (t.count > kWritten || t.count > t.room / 2 || end >= t.write_at || status != STRIDEC_OK) {
      write_records(t);
      t.write_at = end + kWriteEvery;
    }
  }
  t.function = nullptr;
  ++t.run;
  if (t.runs_left > 0 && --t.runs_left == 0) {
    trace_stop(c);
    trace_for_ranges(c);
  }
}

int64_t trace_step_begins(Trace& t, int32_t step, int32_t parts) {
  if (!t.boundary) t.boundary = trace_time(t);
  if (t.sink) trace_tell_step(t, false, t.boundary, step);
  if (t.ranges) nvtx_push(t.ranges[t.function->index][step], t.function->step_names[step]);
  if (parts == 1 && (t.flags & STRIDEC_TRACE_PARTS))
    tell_step(t, false, t.boundary, STRIDEC_EVENT_PART, step, 0);
  return t.boundary;
}

int64_t trace_step_ends(Trace& t, int32_t step, int32_t parts) {
  const int64_t begin = t.boundary, end = trace_time(t);
  t.boundary = end;
  if (t.ranges) [[unlikely]]
    nvtx_pop();
  add(t, {begin, end, STRIDEC_EVENT_STEP, step, -1, t.thread.number});
  if (parts == 1 && (t.flags & STRIDEC_TRACE_PARTS)) {
    add(t, {begin, end, STRIDEC_EVENT_PART, step, 0, t.thread.number});
    tell_step(t, true, end, STRIDEC_EVENT_PART, step, 0);
  } else if (parts > 1 && trace_has_parts(t)) [[unlikely]] {
    add_parts(t, step, begin, end, parts);
  }
  if (t.sink) trace_tell_step(t, true, end, step);
  return end;
}

void trace_pause(Trace& t) { t.boundary = 0; }

bool trace_has_parts(const Trace& t) { return t.flags & (STRIDEC_TRACE_PARTS | STRIDEC_TRACE_WAITS); }

void trace_part_begins(Trace& t, int32_t step, int32_t part) {
  Part& p = t.parts[part];
  number_of(p.thread);
  p.begin = ticks_now(t.ticks);
  if (t.flags & STRIDEC_TRACE_PARTS) tell_step(t, false, p.begin, STRIDEC_EVENT_PART, step, part);
}

void trace_part_ends(Trace& t, int32_t step, int32_t part) {
  Part& p = t.parts[part];
  p.end = ticks_now(t.ticks);
  if (t.flags & STRIDEC_TRACE_PARTS) tell_step(t, true, p.end, STRIDEC_EVENT_PART, step, part);
}

void trace_gpu_work(Trace& t, const StampOwner& owner, int32_t launch, int64_t begin, int64_t end) {
  if (!(t.flags & STRIDEC_TRACE_KERNELS)) return;
  // Durations are known more exactly than ends. Work of one stream does not overlap.
  if (begin < t.gpu_end) begin = t.gpu_end;
  if (end < begin) end = begin;
  t.gpu_end = end;
  const int32_t kind = owner.tag == kReplay ? STRIDEC_EVENT_REPLAY : STRIDEC_EVENT_KERNEL;
  const int32_t step = owner.tag >= 0 ? owner.tag : -1;
  add(t, {begin, end, kind, step, owner.function, static_cast<int32_t>(owner.run)});
  if (!t.sink) return;
  const Function& f = *t.context->frames[owner.function].function;
  stridec_event event = {.struct_size = sizeof event,
                         .kind = kind,
                         .time = begin,
                         .run = owner.run,
                         .function = owner.function,
                         .step = step,
                         .part = step < 0 ? -1 : launch,
                         .name = step < 0 ? f.abi->name : f.step_names[step]};
  t.sink(t.user, &event);
  event.ends = 1;
  event.time = end;
  t.sink(t.user, &event);
}

TracedCopy::TracedCopy(stridec_context& c, bool output, int32_t index)
    : trace_(c.trace && c.trace->function && (c.trace->flags & STRIDEC_TRACE_COPIES) ? c.trace : nullptr),
      output_(output),
      index_(index) {
  if (!trace_) return;
  begin_ = trace_time(*trace_);
  const stridec_abi_function& f = *trace_->function->abi;
  if (trace_->sink)
    tell(*trace_, false, begin_,
         {.kind = STRIDEC_EVENT_COPY, .name = (output ? f.outputs : f.inputs)[index].name});
}

TracedCopy::~TracedCopy() {
  if (!trace_) return;
  const int64_t end = trace_time(*trace_);
  add(*trace_, {begin_, end, STRIDEC_EVENT_COPY, index_, output_, trace_->thread.number});
  const stridec_abi_function& f = *trace_->function->abi;
  if (trace_->sink)
    tell(*trace_, true, end,
         {.kind = STRIDEC_EVENT_COPY, .name = (output_ ? f.outputs : f.inputs)[index_].name});
}

}  // namespace stridec::runtime
