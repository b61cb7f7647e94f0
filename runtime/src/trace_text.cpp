#include "trace_text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "step_nodes.h"

namespace stridec::runtime {
namespace {

constexpr size_t kName = 400;  // bytes of a name in the file
constexpr size_t kHash = 64;   // of a model
constexpr size_t kEvents = sizeof TraceText::events;

// An event that is being written to the end of `events`.
struct Line {
  char* at;

  void add(const char* text, size_t bytes) {
    memcpy(at, text, bytes);
    at += bytes;
  }
  void add(const char* text) { add(text, strlen(text)); }
  void add(int64_t value) {
    char digits[24];
    char* first = digits + sizeof digits;
    uint64_t left = value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    do *--first = static_cast<char>('0' + left % 10);
    while (left /= 10);
    if (value < 0) *--first = '-';
    add(first, static_cast<size_t>(digits + sizeof digits - first));
  }
  // Microseconds with three decimals, as the format wants them.
  void add_time(int64_t nanoseconds) {
    add(nanoseconds / 1000);
    const auto rest = static_cast<int32_t>(nanoseconds % 1000);
    const char decimals[] = {'.', static_cast<char>('0' + rest / 100),
                             static_cast<char>('0' + rest / 10 % 10), static_cast<char>('0' + rest % 10)};
    add(decimals, sizeof decimals);
  }
};

void flush(TraceText& t) {
  if (t.used) trace_file_append(t.file, t.events, t.used);
  t.used = 0;
}

Line begin_line(TraceText& t) {
  if (t.used + kTraceEvent + 1 > kEvents) flush(t);
  return {t.events + t.used};
}

void end_line(TraceText& t, Line line) {
  line.add("\n");
  t.used = static_cast<size_t>(line.at - t.events);
}

void add_event(TraceText& t, const char* event) {
  Line line = begin_line(t);
  line.add(event);
  end_line(t, line);
}

void name_process(TraceText& t, const char* name) {
  char event[kTraceEvent];
  Text text(event, sizeof event);
  text << "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" << t.process << ",\"args\":{\"name\":\"";
  write_escaped(text, name, kName);
  text << "\"}}";
  add_event(t, event);
}

void name_thread(TraceText& t, int32_t thread) {
  if (thread == t.thread || t.named_count == 64) return;
  for (int32_t i = 0; i < t.named_count; ++i)
    if (t.named[i] == thread) return;
  t.named[t.named_count++] = thread;
  char event[256];
  Text text(event, sizeof event);
  text << "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":" << t.process << ",\"tid\":" << thread
       << ",\"args\":{\"name\":\"stridec worker\"}}";
  add_event(t, event);
}

// The beginning of a slice, up to its name.
Line begin_slice(TraceText& t, const char* category, int64_t begin, int64_t end, int32_t thread) {
  Line line = begin_line(t);
  line.add("{\"ph\":\"X\",\"cat\":\"");
  line.add(category);
  line.add("\",\"ts\":");
  line.add_time(begin);
  line.add(",\"dur\":");
  line.add_time(end - begin);
  line.add(",\"tid\":");
  line.add(thread);
  return line;
}

void end_slice(TraceText& t, Line line) {
  line.add(",\"run\":");
  line.add(t.run);
  line.add("}}");
  end_line(t, line);
}

void write_step(TraceText& t, const TraceRecord& r) {
  const StepText& step = t.functions[t.function].steps[r.step];
  Line line = begin_slice(t, "step", r.begin, r.end, r.thread);
  line.add(step.text, step.whole);
  end_slice(t, line);
}

// A part of a step, or a wait for other parts.
void write_part(TraceText& t, const TraceRecord& r) {
  name_thread(t, r.thread);
  const bool waits = r.kind == STRIDEC_EVENT_WAIT;
  const StepText& step = t.functions[t.function].steps[r.step];
  Line line = begin_slice(t, waits ? "wait" : "part", r.begin, r.end, r.thread);
  line.add(step.text, step.head);
  line.add(",\"part\":");
  line.add(r.part);
  end_slice(t, line);
}

// The rest of a slice with a name from the model, up to its arguments.
void add_name(TraceText& t, Line& line, const char* name) {
  char room[kTraceEvent - 400];
  Text text(room, sizeof room);
  text << ",\"name\":\"";
  write_escaped(text, name, kName);
  text << "\",\"pid\":" << t.process << ",\"args\":{";
  line.add(room);
}

const stridec_abi_function& traced_function(const TraceText& t) {
  return *t.context->frames[t.function].function->abi;
}

void write_copy(TraceText& t, const TraceRecord& r) {
  const stridec_abi_function& f = traced_function(t);
  Line line = begin_slice(t, "copy", r.begin, r.end, r.thread);
  add_name(t, line, r.part ? f.outputs[r.step].name : f.inputs[r.step].name);
  line.add(r.part ? "\"to\":\"output\"" : "\"from\":\"input\"");
  end_slice(t, line);
}

void add_size(TraceText& t, const TraceRecord& r) {
  const size_t used = strlen(t.sizes);
  if (used > sizeof t.sizes - 700) return;  // a name of 100 bytes that are all escaped has 600
  Text text(t.sizes + used, sizeof t.sizes - used);
  text << (used ? ",\"" : "\"");
  write_escaped(text, traced_function(t).symbols[r.step].name, 100);
  text << "\":" << r.begin;
}

void write_run(TraceText& t, const TraceRecord& r) {
  Line line = begin_slice(t, "run", t.run_begin, r.end, r.thread);
  add_name(t, line, traced_function(t).name);
  line.add("\"threads\":");
  line.add(t.context->threads);
  line.add(",\"status\":");
  line.add(r.step);
  if (const JsonString model = t.functions[t.function].model; model.size && model.size <= kHash) {
    line.add(",\"model\":\"");
    line.add(model.data, model.size);
    line.add("\"");
  }
  if (t.sizes[0]) {
    line.add(",\"sizes\":{");
    line.add(t.sizes);
    line.add("}");
  }
  t.sizes[0] = 0;
  end_slice(t, line);
  ++t.run;
}

// A kernel on a GPU or the replay of a graph.
void write_gpu_work(TraceText& t, const TraceRecord& r) {
  const bool replay = r.kind == STRIDEC_EVENT_REPLAY;
  Line line = begin_slice(t, replay ? "replay" : "kernel", r.begin, r.end, t.stream);
  if (r.step >= 0) {
    const StepText& step = t.functions[r.part].steps[r.step];
    line.add(step.text, step.whole);
  } else {
    add_name(t, line, t.context->frames[r.part].function->abi->name);
    line.add("\"function\":");
    line.add(r.part);
  }
  line.add(",\"run\":");
  line.add(r.thread);
  line.add("}}");
  end_line(t, line);
}

bool make_step(const TraceText& t, const char* name, const StepNodes& nodes, int32_t step, StepText& made) {
  char room[kTraceEvent - 300];
  Text text(room, sizeof room);
  text << ",\"name\":\"";
  write_escaped(text, name, kName);
  text << "\",\"pid\":" << t.process << ",\"args\":{\"step\":" << step;
  made.head = strlen(room);
  text << ",\"nodes\":\"";
  write_nodes(text, nodes, step);
  text << '"';
  made.whole = strlen(room);
  made.text = make_array<char>(static_cast<int64_t>(made.whole));
  if (made.text) memcpy(made.text, room, made.whole);
  return made.text;
}

bool make_function(const TraceText& t, int32_t function, FunctionText& made) {
  const Function& f = *t.context->frames[function].function;
  const int32_t count = f.variant->step_count;
  made.steps = make_array<StepText>(count);
  StepNodes nodes = {};
  bool all = made.steps && find_nodes(*t.context->model, function, nodes);
  for (int32_t i = 0; all && i < count; ++i) all = make_step(t, f.step_names[i], nodes, i, made.steps[i]);
  made.model = nodes.model;
  free(nodes.steps);
  return all;
}

}  // namespace

bool trace_text_start(TraceText& t, const stridec_context& context) {
  const int32_t count = context.model->module->function_count;
  t.context = &context;
  t.process = getpid();
  t.functions = make_array<FunctionText>(count);
  for (int32_t i = 0; i < count; ++i)
    if (!t.functions || !make_function(t, i, t.functions[i])) return false;
  name_process(t, context.model->module->name);
  flush(t);
  return true;
}

void trace_text_gpu(TraceText& t, int32_t device, int64_t error) {
  // Not the number of a thread; each trace of the process has another file descriptor.
  constexpr int32_t kStreams = 1000000000;
  t.stream = kStreams + t.file.fd;
  char event[256];
  Text text(event, sizeof event);
  text << "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":" << t.process << ",\"tid\":" << t.stream
       << ",\"args\":{\"name\":\"GPU " << device << ", a stream\",\"clock_error_nanoseconds\":" << error
       << "}}";
  add_event(t, event);
}

void trace_text_write(TraceText& t, const TraceRecord* records, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    const TraceRecord& r = records[i];
    switch (r.kind) {
      case kRunBegins:
        t.function = r.step;
        t.thread = r.thread;
        t.run_begin = r.begin;
        break;
      case kSize: add_size(t, r); break;
      case STRIDEC_EVENT_RUN: write_run(t, r); break;
      case STRIDEC_EVENT_STEP: write_step(t, r); break;
      case STRIDEC_EVENT_COPY: write_copy(t, r); break;
      case STRIDEC_EVENT_KERNEL:
      case STRIDEC_EVENT_REPLAY: write_gpu_work(t, r); break;
      default: write_part(t, r); break;
    }
  }
  flush(t);
}

void trace_text_stop(TraceText& t) {
  trace_file_close(t.file);
  if (!t.functions) return;
  for (int32_t f = 0; f < t.context->model->module->function_count; ++f) {
    StepText* const steps = t.functions[f].steps;
    const int32_t count = t.context->frames[f].function->variant->step_count;
    for (int32_t i = 0; steps && i < count; ++i) free(steps[i].text);
    free(steps);
  }
  free(t.functions);
}

}  // namespace stridec::runtime
