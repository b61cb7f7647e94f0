#include "trace.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "context.h"
#include "step_nodes.h"
#include "trace_file.h"

namespace stridec::runtime {

struct Slice {
  int64_t begin, end;
  int32_t step, part;  // part -1: a step
  int64_t thread;
};

struct Trace {
  stridec_sink sink;
  void* user;
  uint32_t flags;
  int64_t runs_left;  // -1: no limit
  int64_t run;
  const Function* function;  // of the run in progress
  int64_t run_begin;
  int64_t thread;  // the caller's, of the run in progress
  Slice* slices;
  int32_t count, room;
  Slice* parts;      // of the step in progress, one per part
  StepNodes* nodes;  // per function
  int32_t function_count;
  int64_t named[64];  // threads that have a name in the file
  int32_t named_count;
  TraceFile file;
};

namespace {

constexpr int32_t kEvents = 16384;
constexpr int32_t kRunsOfEnvironment = 100;
constexpr size_t kName = 400;  // bytes of a name in the file
constexpr size_t kHash = 64;   // of a model

int64_t this_thread() { return syscall(SYS_gettid); }

void free_trace(Trace* t) {
  trace_file_flush(t->file);
  trace_file_close(t->file);
  for (int32_t i = 0; t->nodes && i < t->function_count; ++i) free(t->nodes[i].steps);
  free(t->nodes);
  free(t->slices);
  free(t->parts);
  free(t);
}

void tell(const Trace& t, int32_t kind, bool ends, int64_t time, int32_t step, int32_t part,
          stridec_status status = STRIDEC_OK) {
  if (!t.sink) return;
  const stridec_event event = {
      .struct_size = sizeof event,
      .kind = kind,
      .ends = ends,
      .time = time,
      .run = t.run,
      .function = t.function->index,
      .step = step,
      .part = part,
      .status = status,
      .name = step < 0 ? t.function->abi->name : t.function->step_names[step],
  };
  t.sink(t.user, &event);
}

// Microseconds with three decimals, as the format wants them.
void write_time(Text& line, int64_t nanoseconds) {
  line << nanoseconds / 1000 << '.';
  for (int64_t digit = 100; digit; digit /= 10) line << static_cast<char>('0' + nanoseconds / digit % 10);
}

// The beginning of a slice up to its arguments.
void write_slice(Text& line, const char* category, const char* name, int64_t begin, int64_t end,
                 int64_t thread) {
  line << "{\"name\":\"";
  write_escaped(line, name, kName);
  line << "\",\"cat\":\"" << category << "\",\"ph\":\"X\",\"ts\":";
  write_time(line, begin);
  line << ",\"dur\":";
  write_time(line, end - begin);
  line << ",\"pid\":" << static_cast<int64_t>(getpid()) << ",\"tid\":" << thread << ",\"args\":{";
}

void name_thread(Trace& t, int64_t thread) {
  for (int32_t i = 0; i < t.named_count; ++i)
    if (t.named[i] == thread) return;
  if (thread == t.thread || t.named_count == 64) return;
  t.named[t.named_count++] = thread;
  char text[256];
  Text line(text, sizeof text);
  line << "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":" << static_cast<int64_t>(getpid())
       << ",\"tid\":" << thread << ",\"args\":{\"name\":\"stridec worker\"}}";
  trace_file_add(t.file, text);
}

void write_slices(Trace& t) {
  char text[kTracePage - 8];
  for (int32_t i = 0; i < t.count; ++i) {
    const Slice& s = t.slices[i];
    if (s.part >= 0) name_thread(t, s.thread);
    Text line(text, sizeof text);
    write_slice(line, s.part < 0 ? "step" : "part", t.function->step_names[s.step], s.begin, s.end, s.thread);
    line << "\"run\":" << t.run << ",\"step\":" << s.step;
    if (s.part >= 0) {
      line << ",\"part\":" << s.part;
    } else {
      line << ",\"nodes\":\"";
      write_nodes(line, t.nodes[t.function->index], s.step);
      line << '"';
    }
    line << "}}";
    trace_file_add(t.file, text);
  }
  t.count = 0;
}

void add(Trace& t, const Slice& slice) {
  if (t.file.fd < 0) return;
  if (t.count == t.room) write_slices(t);
  t.slices[t.count++] = slice;
}

void write_run(Trace& t, const stridec_context& c, int64_t end, stridec_status status) {
  char text[kTracePage - 8];
  Text line(text, sizeof text);
  const stridec_abi_function& f = *t.function->abi;
  write_slice(line, "run", f.name, t.run_begin, end, t.thread);
  line << "\"run\":" << t.run << ",\"threads\":" << c.threads
       << ",\"status\":" << static_cast<int32_t>(status);
  if (const JsonString model = t.nodes[t.function->index].model; model.size) {
    line << ",\"model\":\"";
    write_escaped(line, model, kHash);
    line << '"';
  }
  line << ",\"sizes\":{";
  size_t used = 0;
  bool first = true;
  for (int32_t i = 0; i < f.symbol_count && used < 2000; ++i) {
    if (!f.symbols[i].shown || c.frame->symbols[i] < 0) continue;
    line << (first ? "\"" : ",\"");
    write_escaped(line, f.symbols[i].name, 100);
    line << "\":" << c.frame->symbols[i];
    used += strlen(f.symbols[i].name) + 24;
    first = false;
  }
  line << "}}}";
  trace_file_add(t.file, text);
}

void name_process(Trace& t, const char* name) {
  char text[1024];
  Text line(text, sizeof text);
  line << "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" << static_cast<int64_t>(getpid())
       << ",\"args\":{\"name\":\"";
  write_escaped(line, name, kName);
  line << "\"}}";
  trace_file_add(t.file, text);
  trace_file_flush(t.file);
}

}  // namespace

stridec_status trace_start(stridec_context& c, const stridec_trace_options& options, bool shared,
                           Text& message) {
  if (options.runs < 0 || options.events < 0 || (options.flags & ~uint32_t{STRIDEC_TRACE_PARTS})) {
    message << "the trace options have a negative number or an unknown flag";
    return STRIDEC_INVALID_ARGUMENT;
  }
  auto* t = static_cast<Trace*>(calloc(1, sizeof(Trace)));
  if (!t) return out_of_memory(message, "the trace", sizeof(Trace));
  t->file.fd = -1;
  t->sink = options.sink;
  t->user = options.user;
  t->flags = options.flags;
  t->runs_left = options.runs ? options.runs : -1;
  t->room = options.events ? options.events : kEvents;
  t->slices = options.path ? make_array<Slice>(t->room) : nullptr;
  t->parts = make_array<Slice>(c.threads);
  t->function_count = c.model->module->function_count;
  t->nodes = make_array<StepNodes>(t->function_count);
  bool made = t->parts && t->nodes && (t->slices || !options.path);
  for (int32_t i = 0; made && options.path && i < t->function_count; ++i)
    made = find_nodes(*c.model, i, t->nodes[i]);
  if (!made) {
    free_trace(t);
    return out_of_memory(message, "the trace", 0);
  }
  if (options.path && !trace_file_open(t->file, options.path, shared)) {
    message << "the trace file '" << options.path << "' cannot be written: error " << errno;
    free_trace(t);
    return STRIDEC_INVALID_ARGUMENT;
  }
  if (options.path) name_process(*t, c.model->module->name);
  trace_stop(c);
  c.trace = t;
  c.watched = true;
  return STRIDEC_OK;
}

void trace_stop(stridec_context& c) {
  if (c.trace) free_trace(c.trace);
  c.trace = nullptr;
  c.watched = c.profiling;
}

void trace_from_environment(stridec_context& c) {
  char path[4096], sentence[256];
  Text text(path, sizeof path), message(sentence, sizeof sentence);
  if (!trace_path(c.model->module->name, text)) return;
  const char* const runs = secure_getenv("STRIDEC_PROFILE_RUNS");
  stridec_trace_options options = {
      .struct_size = sizeof options, .flags = STRIDEC_TRACE_PARTS, .runs = kRunsOfEnvironment, .path = path};
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
  t.thread = this_thread();
  t.count = 0;
  t.run_begin = now_ns();
  tell(t, STRIDEC_EVENT_RUN, false, t.run_begin, -1, -1);
}

void trace_run_ends(stridec_context& c, stridec_status status) {
  Trace& t = *c.trace;
  const int64_t end = now_ns();
  tell(t, STRIDEC_EVENT_RUN, true, end, -1, -1, status);
  if (t.file.fd >= 0) {
    write_run(t, c, end, status);
    write_slices(t);
    trace_file_flush(t.file);
  }
  ++t.run;
  if (t.runs_left > 0 && --t.runs_left == 0) trace_stop(c);
}

void trace_step_begins(Trace& t, int32_t step, int64_t time) {
  tell(t, STRIDEC_EVENT_STEP, false, time, step, -1);
}

void trace_step_ends(Trace& t, int32_t step, int64_t begin, int64_t end, int32_t parts) {
  tell(t, STRIDEC_EVENT_STEP, true, end, step, -1);
  add(t, {begin, end, step, -1, t.thread});
  for (int32_t part = 0; (t.flags & STRIDEC_TRACE_PARTS) && part < parts; ++part) add(t, t.parts[part]);
}

bool trace_has_parts(const Trace& t) { return t.flags & STRIDEC_TRACE_PARTS; }

void trace_part_begins(Trace& t, int32_t step, int32_t part) {
  t.parts[part] = {now_ns(), 0, step, part, this_thread()};
  tell(t, STRIDEC_EVENT_PART, false, t.parts[part].begin, step, part);
}

void trace_part_ends(Trace& t, int32_t step, int32_t part) {
  t.parts[part].end = now_ns();
  tell(t, STRIDEC_EVENT_PART, true, t.parts[part].end, step, part);
}

}  // namespace stridec::runtime
