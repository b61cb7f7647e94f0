#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "runtime/src/clock.h"
#include "runtime/src/json.h"
#include "runtime/src/trace_file.h"
#include "tests/support/folder.h"
#include "tests/unit/runtime/harness.h"

using namespace fake;
using nlohmann::json;
using stridec::testing::Folder;

namespace {

// scale() with a batch of rows.
struct Job {
  Array<float> x, scale;
  std::vector<stridec_tensor> inputs, outputs{2};
  explicit Job(int64_t batch, int64_t n = 1000)
      : x({batch, n}, 1.5f), scale({n}, 2.f), inputs{x.tensor(), scale.tensor()} {}
  stridec_status run(Context& c) {
    outputs.assign(2, {});
    return api().context_run(c.handle, inputs.data(), 2, outputs.data(), 2);
  }
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

json events_of(const std::string& path) { return json::parse(text_of(path)); }

std::vector<json> slices(const json& events, const std::string& category) {
  std::vector<json> found;
  for (const json& event : events)
    if (event.value("cat", "") == category) found.push_back(event);
  return found;
}

int turns = 1000;  // of a step's loop

// Not inlined: all measurements run the same machine code, because the address of a loop changes its speed.
[[gnu::noinline]] void work(const stridec_abi_args* args, int64_t, int64_t, int32_t) {
  auto* out = static_cast<volatile float*>(args->buffers[0]);
  for (int i = 0; i < turns; ++i) out[i % 64] = static_cast<float>(i);
}

int32_t run_many(stridec_abi_run* run) {
  void* buffers[] = {run->outputs[0]};
  const stridec_abi_args args = {.buffers = buffers, .failures = run->failures};
  for (int32_t step = 0; step < 34; ++step)
    if (run->direct)
      work(&args, 0, 1, 0);
    else if (run->launch(run, work, &args, 1, 1, step, 0))
      return 1;
  return 0;
}

// scale() in as many steps as a small recommender has.
struct ManySteps {
  std::string names;
  stridec_abi_variant variant;
  stridec_abi_function function = scale().functions[0];
  stridec_abi_module module = scale();

  ManySteps() {
    for (int i = 0; i < 34; ++i) names += "step" + std::to_string(i) + std::string(1, '\0');
    variant = {.run = run_many, .step_count = 34, .step_names = names.data()};
    function.variants = &variant;
    module.functions = &function;
  }
  ManySteps(const ManySteps&) = delete;
};

// The options point into the path, which has to live as long.
stridec_trace_options options_of(const std::string& path, uint32_t flags = 0) {
  return {.struct_size = sizeof(stridec_trace_options), .flags = flags, .path = path.c_str()};
}
stridec_trace_options options_of(std::string&& path, uint32_t flags = 0) = delete;

// What the sink saw.
struct Log {
  std::mutex mutex;
  std::vector<stridec_event> events;
  std::set<std::thread::id> threads;
  static void add(void* user, const stridec_event* event) {
    auto& log = *static_cast<Log*>(user);
    const std::lock_guard lock(log.mutex);
    log.events.push_back(*event);
    log.threads.insert(std::this_thread::get_id());
  }
};

}  // namespace

TEST_CASE("a trace file has the runs with their sizes, the steps in them and the parts in the steps") {
  const Folder folder;
  const std::string path = folder.file("trace.json");
  Model model(scale());
  Context context(model, 3);
  Job job(64);
  const stridec_trace_options options = options_of(path, STRIDEC_TRACE_PARTS);
  REQUIRE(api().context_trace(context.handle, &options) == STRIDEC_OK);
  for (int i = 0; i < 3; ++i) REQUIRE(job.run(context) == STRIDEC_OK);
  REQUIRE(api().context_trace(context.handle, nullptr) == STRIDEC_OK);
  REQUIRE(job.run(context) == STRIDEC_OK);  // not traced
  const json events = events_of(path);
  const std::vector<json> runs = slices(events, "run"), steps = slices(events, "step"),
                          parts = slices(events, "part");
  REQUIRE(runs.size() == 3);
  REQUIRE(steps.size() == 9);
  CHECK(parts.size() >= 9);
  CHECK(runs[0]["args"]["sizes"] == json{{"batch", 64}, {"n", 1000}});
  CHECK(!runs[1]["args"].contains("sizes"));
  CHECK(runs[2]["args"]["run"] == 2);
  CHECK(runs[2]["args"]["status"] == 0);
  const char* names[] = {"multiply", "add", "sum"};
  const auto inside = [](const json& inner, const json& outer) {
    const double a = inner["ts"], b = outer["ts"];
    return a >= b - 1e-6 && a + inner["dur"].get<double>() <= b + outer["dur"].get<double>() + 1e-3;
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    CHECK(steps[i]["name"] == names[i % 3]);
    CHECK(steps[i]["args"]["step"] == i % 3);
    CHECK(steps[i]["tid"] == runs[0]["tid"]);
    CHECK(inside(steps[i], runs[i / 3]));
    if (i % 3)
      CHECK(steps[i - 1]["ts"].get<double>() + steps[i - 1]["dur"].get<double>() <=
            steps[i]["ts"].get<double>() + 1e-3);
  }
  for (const json& part : parts) {
    const size_t step = part["args"]["run"].get<size_t>() * 3 + part["args"]["step"].get<size_t>();
    CHECK(inside(part, steps[step]));
  }
}

TEST_CASE("traced runs give the same bits and allocate nothing, and a failed run has its status") {
  const Folder folder;
  Model model(scale());
  Context plain(model, 3), traced(model, 3);
  Job a(17), b(17);
  REQUIRE(a.run(plain) == STRIDEC_OK);
  REQUIRE(b.run(traced) == STRIDEC_OK);
  stridec_memory_info before = {.struct_size = sizeof before}, after = before;
  const std::string path = folder.file("t.json");
  const stridec_trace_options options = options_of(path, STRIDEC_TRACE_PARTS);
  REQUIRE(api().context_trace(traced.handle, &options) == STRIDEC_OK);
  api().context_memory(traced.handle, &before);
  REQUIRE(b.run(traced) == STRIDEC_OK);
  api().context_memory(traced.handle, &after);
  CHECK(before.allocations == after.allocations);
  REQUIRE(a.run(plain) == STRIDEC_OK);
  CHECK(memcmp(a.outputs[0].data, b.outputs[0].data, 17 * 1000 * 4) == 0);
  CHECK(memcmp(a.outputs[1].data, b.outputs[1].data, 17 * 4) == 0);
  Job large(65);
  CHECK(large.run(traced) == STRIDEC_WRONG_SHAPE);
  const std::vector<json> runs = slices(events_of(path), "run");  // a failure is written at once
  REQUIRE(runs.size() == 2);
  CHECK(runs[1]["args"]["status"] == STRIDEC_WRONG_SHAPE);
}

TEST_CASE("the sink sees each beginning and end, in order, on the threads that work") {
  Model model(scale());
  Context context(model, 3);
  Job job(64, 4000);
  Log log;
  const stridec_trace_options options = {
      .struct_size = sizeof options, .flags = STRIDEC_TRACE_PARTS, .runs = 2, .sink = Log::add, .user = &log};
  REQUIRE(api().context_trace(context.handle, &options) == STRIDEC_OK);
  for (int i = 0; i < 4; ++i) REQUIRE(job.run(context) == STRIDEC_OK);
  std::map<int32_t, int> counts;
  int64_t last = 0;
  int open_runs = 0, open_steps = 0, open_parts = 0;
  for (const stridec_event& event : log.events) {
    ++counts[event.kind * 2 + event.ends];
    CHECK(event.run < 2);
    CHECK(event.name != nullptr);
    int& open = event.kind == STRIDEC_EVENT_RUN    ? open_runs
                : event.kind == STRIDEC_EVENT_STEP ? open_steps
                                                   : open_parts;
    open += event.ends ? -1 : 1;
    CHECK((event.step < 0) == (event.kind == STRIDEC_EVENT_RUN));
    CHECK((event.part < 0) == (event.kind != STRIDEC_EVENT_PART));
    CHECK(open_steps <= open_runs);
    CHECK(open_parts <= 3 * open_steps);
    if (event.kind != STRIDEC_EVENT_PART) {
      CHECK(event.time >= last);
      last = event.time;
    }
  }
  CHECK((open_runs == 0 && open_steps == 0 && open_parts == 0));
  CHECK(counts[STRIDEC_EVENT_RUN * 2] == 2);
  CHECK(counts[STRIDEC_EVENT_STEP * 2 + 1] == 6);
  CHECK(counts[STRIDEC_EVENT_PART * 2] == counts[STRIDEC_EVENT_PART * 2 + 1]);
}

TEST_CASE("waits begin with the end of a thread's last part, and copies have the names of tensors") {
  const Folder folder;
  const std::string path = folder.file("t.json");
  Model model(scale());
  Context context(model, 3);
  Job job(64, 1000);
  Array<float> y({64, 2000}), wide({64, 2000}, 1.5f);
  y.strides = wide.strides = {2000, 2};
  y.shape = wide.shape = {64, 1000};
  job.inputs[0] = wide.tensor();
  Log log;
  stridec_trace_options options =
      options_of(path, STRIDEC_TRACE_PARTS | STRIDEC_TRACE_WAITS | STRIDEC_TRACE_COPIES);
  options.sink = Log::add;
  options.user = &log;
  REQUIRE(api().context_trace(context.handle, &options) == STRIDEC_OK);
  for (int i = 0; i < 20; ++i) {
    stridec_tensor outputs[2] = {y.tensor(), {}};
    REQUIRE(api().context_run(context.handle, job.inputs.data(), 2, outputs, 2) == STRIDEC_OK);
  }
  api().context_trace(context.handle, nullptr);
  const json events = events_of(path);
  const std::vector<json> copies = slices(events, "copy"), waits = slices(events, "wait"),
                          parts = slices(events, "part"), steps = slices(events, "step");
  REQUIRE(copies.size() == 40);
  CHECK(copies[0]["name"] == "x");
  CHECK(copies[1]["name"] == "y");
  REQUIRE(!waits.empty());
  const auto end_of = [](const json& slice) {
    return std::llround(1e3 * (slice["ts"].get<double>() + slice["dur"].get<double>()));
  };
  for (const json& wait : waits) {
    const json& args = wait["args"];
    CHECK(end_of(wait) == end_of(steps[args["run"].get<size_t>() * 3 + args["step"].get<size_t>()]));
    for (const json& part : parts)
      if (part["args"] == args) {
        CHECK(part["tid"] == wait["tid"]);
        CHECK(end_of(part) == std::llround(1e3 * wait["ts"].get<double>()));
      }
  }
  CHECK(std::ranges::count_if(log.events, [](auto& e) { return e.kind == STRIDEC_EVENT_COPY; }) == 80);
  for (const stridec_event& event : log.events)
    if (event.kind == STRIDEC_EVENT_COPY) CHECK((event.name == std::string("x") || event.name[0] == 'y'));
}

TEST_CASE("a trace costs little in a run of 36 microseconds that has 34 steps") {
  const Folder folder;
  const std::string path = folder.file("t.json");
  const ManySteps program;
  Model model(program.module);
  Context context(model, 1);
  Job job(1, 64);
  const auto timed = [&] {
    const int64_t begin = stridec::runtime::now_ns();
    REQUIRE(job.run(context) == STRIDEC_OK);
    return stridec::runtime::now_ns() - begin;
  };
  const auto median = [](std::vector<int64_t>& of) {
    std::ranges::nth_element(of, of.begin() + static_cast<ptrdiff_t>(of.size() / 2));
    return static_cast<double>(of[of.size() / 2]);
  };
  std::vector<int64_t> first(500);
  std::ranges::generate(first, timed);
  turns = static_cast<int>(36000 / median(first) * turns);
  int64_t seen = 0;
  const stridec_sink count = [](void* user, const stridec_event*) { ++*static_cast<int64_t*>(user); };
  const stridec_trace_options options[] = {
      {}, options_of(path), {.struct_size = sizeof(stridec_trace_options), .sink = count, .user = &seen}};
  std::vector<int64_t> times[3];
  for (int round = 0; round < 90; ++round) {
    const int kind = round % 3;
    REQUIRE(api().context_trace(context.handle, kind ? &options[kind] : nullptr) == STRIDEC_OK);
    timed();  // its records are written at once
    for (int i = 0; i < 100; ++i) times[kind].push_back(timed());
  }
  CHECK(seen == 30 * 101 * 2 * 35);
  const double off = median(times[0]), file = median(times[1]) / off, sink = median(times[2]) / off;
  MESSAGE("a run takes " << off << " ns, " << file << " times that with a file, " << sink << " with a sink");
#ifdef NDEBUG
  // On quiet machines 1.02 to 1.04; others run beside the tests. Text written within the run made it 3 to 4.
  CHECK(file < 1.25);
  CHECK(sink < 1.25);
#endif
}

TEST_CASE("a small room for events loses none, and options that make no sense are refused") {
  const Folder folder;
  const std::string path = folder.file("t.json");
  Model model(scale());
  Context context(model, 2);
  stridec_trace_options options = options_of(path);
  options.events = 1;  // each record is written when the next one comes
  REQUIRE(api().context_trace(context.handle, &options) == STRIDEC_OK);
  Job job(3);
  for (int i = 0; i < 5; ++i) REQUIRE(job.run(context) == STRIDEC_OK);
  CHECK(slices(events_of(path), "step").size() == 15);
  options.runs = -1;
  CHECK(api().context_trace(context.handle, &options) == STRIDEC_INVALID_ARGUMENT);
  const std::string nowhere = "/no/such/folder/t.json";
  options = options_of(nowhere);
  CHECK(api().context_trace(context.handle, &options) == STRIDEC_INVALID_ARGUMENT);
  CHECK(context.error().find("/no/such/folder/t.json") != std::string::npos);
  options = options_of(path, 64);
  CHECK(api().context_trace(context.handle, &options) == STRIDEC_INVALID_ARGUMENT);
  CHECK(job.run(context) == STRIDEC_OK);  // the first trace goes on
  CHECK(slices(events_of(path), "step").size() == 18);
}

TEST_CASE("a trace for which there is no room is an error when it begins, or when it ends") {
  const Folder folder;
  Model model(scale());
  Context context(model, 1);
  Job job(3);
  stridec_trace_options options = {.struct_size = sizeof options, .path = "/dev/full"};
  CHECK(api().context_trace(context.handle, &options) == STRIDEC_OUT_OF_MEMORY);
  CHECK(context.error().find("'/dev/full' cannot be written: there is no room") != std::string::npos);
  const std::string path = folder.file("t.json");
  options.path = path.c_str();
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old = signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {2000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const stridec_status began = api().context_trace(context.handle, &options);
  stridec_status ran = STRIDEC_OK;
  for (int i = 0; i < 20 && ran == STRIDEC_OK; ++i) ran = job.run(context);
  const stridec_status ended = api().context_trace(context.handle, nullptr);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, old);
  CHECK(began == STRIDEC_OK);
  CHECK(ran == STRIDEC_OK);  // without its trace
  CHECK(ended == STRIDEC_OUT_OF_MEMORY);
  CHECK(context.error().find("there is no room for it") != std::string::npos);
  CHECK(events_of(path).is_array());
  CHECK(api().context_trace(context.handle, nullptr) == STRIDEC_OK);
  CHECK(job.run(context) == STRIDEC_OK);
}

#ifndef STRIDEC_UNDER_TSAN
TEST_CASE("a file parses after its process was killed at any moment") {
  const Folder folder;
  const std::string path = folder.file("t.json");
  size_t runs = 0;
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Model model(scale());
      Context context(model, 2);
      stridec_trace_options options = options_of(path, STRIDEC_TRACE_PARTS);
      options.events = i % 2 ? 40 : 0;  // often in the middle of a write
      if (api().context_trace(context.handle, &options) != STRIDEC_OK) _exit(1);
      Job job(8, 16);
      for (;;) job.run(context);
    }
    while (!std::filesystem::exists(path)) usleep(200);
    usleep(static_cast<useconds_t>(61 * i));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    json events;
    CHECK_NOTHROW(events = events_of(path));
    runs += slices(events, "run").size();
    if (i % 3) std::filesystem::remove(path);  // otherwise the next process replaces it
  }
  CHECK(runs > 100);
}

TEST_CASE("a process that exits without ending its trace has all runs in the file") {
  const Folder folder;
  const std::string path = folder.file("t.json");
  fflush(nullptr);  // or the child writes it too
  const pid_t child = fork();
  if (child == 0) {
    static Model model(scale());
    static Context context(model, 2);
    const stridec_trace_options options = options_of(path);
    if (api().context_trace(context.handle, &options) != STRIDEC_OK) _exit(1);
    Job job(8, 16);
    for (int i = 0; i < 5; ++i) job.run(context);
    const pid_t grandchild = fork();  // shares the file, and leaves it alone
    if (grandchild == 0) job.run(context), exit(0);
    waitpid(grandchild, nullptr, 0);
    exit(0);
  }
  waitpid(child, nullptr, 0);
  CHECK(slices(events_of(path), "run").size() == 5);
}

TEST_CASE("STRIDEC_PROFILE traces every context of the process to one file, for a number of runs") {
  const Folder folder;
  const std::string path = folder.file("of-42-%.json");
  const pid_t child = fork();
  if (child == 0) {
    folder.write("of-42-%.json", "an old file");
    setenv("STRIDEC_PROFILE", folder.file("of-42-%%.json").c_str(), 1);
    setenv("STRIDEC_PROFILE_RUNS", "2", 1);
    Model model(scale());
    Context a(model, 2), b(model, 2);
    Job job(4);
    for (int i = 0; i < 3; ++i) job.run(a), job.run(b);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  const json events = events_of(path);
  CHECK(slices(events, "run").size() == 4);
  CHECK(slices(events, "step").size() == 12);
  CHECK(events[0]["pid"] == child);
}
#endif

TEST_CASE("a file in which pages end anywhere has every event") {
  using namespace stridec::runtime;
  const Folder folder;
  const std::string path = folder.file("t.json");
  TraceFile file;
  REQUIRE(trace_file_open(file, path.c_str(), false));
  std::string events;
  std::vector<size_t> sizes;
  for (size_t i = 0; i < 400; ++i) {
    const std::string text(i % 7 ? i * 37 % 500 : kTraceEvent - 8, 'x');
    const std::string event = json{{"x", text}}.dump();
    REQUIRE(event.size() <= kTraceEvent);
    sizes.push_back(text.size());
    trace_file_append(file, (event + "\n").c_str(), event.size() + 1);
    CHECK(json::accept(text_of(path)));
  }
  trace_file_close(file);
  const json read = events_of(path);
  REQUIRE(read.size() == sizes.size() + 1);
  for (size_t i = 0; i < sizes.size(); ++i)
    CHECK(read[i + 1]["x"].get_ref<const std::string&>().size() == sizes[i]);
}

TEST_CASE("a trace goes to a pipe in order, and a link to an old file stays a link") {
  const Folder folder;
  const std::string pipe = folder.file("pipe"), link = folder.file("link.json"),
                    old = folder.file("old.json");
  Model model(scale());
  Context context(model, 2);
  Job job(4);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int end = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  stridec_trace_options options = options_of(pipe);
  REQUIRE(api().context_trace(context.handle, &options) == STRIDEC_OK);
  REQUIRE(job.run(context) == STRIDEC_OK);
  api().context_trace(context.handle, nullptr);
  std::string text(65536, ' ');
  REQUIRE(read(end, text.data(), text.size()) > 0);
  close(end);
  CHECK(slices(json::parse(text), "run").size() == 1);
  folder.write("old.json", "[\"an old file\"]");
  std::filesystem::create_symlink(old, link);
  options = options_of(link);
  REQUIRE(api().context_trace(context.handle, &options) == STRIDEC_OK);
  REQUIRE(job.run(context) == STRIDEC_OK);
  api().context_trace(context.handle, nullptr);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(slices(events_of(old), "run").size() == 1);
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(old).parent_path()))
    CHECK(entry.path().filename().string().find(".new-") == std::string::npos);
}

TEST_CASE("a pipe whose reader leaves ends the trace, and one without a reader is refused") {
  const Folder folder;
  const std::string pipe = folder.file("pipe");
  Model model(scale());
  Context context(model, 2);
  Job job(4);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  stridec_trace_options options = options_of(pipe);
  CHECK(api().context_trace(context.handle, &options) == STRIDEC_INVALID_ARGUMENT);
  const int end = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  CHECK(stridec::runtime::trace_file_test(pipe.c_str()));
  char byte = 0;
  CHECK(read(end, &byte, 1) == 0);  // nobody has written, and nobody has left either
  options.events = 16;
  REQUIRE(api().context_trace(context.handle, &options) == STRIDEC_OK);
  REQUIRE(job.run(context) == STRIDEC_OK);
  close(end);
  alarm(60);  // more events than a pipe holds
  for (int run = 0; run < 2000; ++run) REQUIRE(job.run(context) == STRIDEC_OK);
  CHECK(api().context_trace(context.handle, nullptr) == STRIDEC_OK);
  alarm(0);
}

TEST_CASE("a child that is forked while traces begin and end in another thread can trace") {
  const Folder folder;
  Model model(scale());
  std::atomic<bool> over = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i)
    others.emplace_back([&] {
      Context context(model, 1);
      stridec_trace_options options = {.struct_size = sizeof options};
      while (!over) api().context_trace(context.handle, &options);
    });
  for (int i = 0; i < 300; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      Context context(model, 1);
      stridec_trace_options options = {.struct_size = sizeof options};
      const stridec_status status = api().context_trace(context.handle, &options);
      api().context_trace(context.handle, nullptr);
      _exit(status);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    if (status != 0) break;
  }
  over = true;
  for (std::thread& other : others) other.join();
}

TEST_CASE("JSON is read in place, and damaged JSON gives nothing") {
  using namespace stridec::runtime;
  const std::string text = R"( {"a" : [1, 22, {"b": "x\"]y"}], "c": {"d": []}, "e": "f"} )";
  const Json document = json_document(text.data(), text.size());
  const Json second = json_next(json_first(json_member(document, "a")));
  CHECK(json_integer(second, -1) == 22);
  const JsonString string = json_string(json_member(json_next(second), "b"));
  CHECK(std::string(string.data, string.size) == R"(x\"]y)");
  CHECK(!json_next(json_next(second)));
  CHECK(!json_first(json_member(json_member(document, "c"), "d")));
  CHECK(json_equals(json_member(document, "e"), "f"));
  CHECK(!json_member(document, "g"));
  for (size_t cut = 0; cut < text.size(); ++cut) {
    const std::string part = text.substr(0, cut);
    const Json j = json_document(part.data(), part.size());
    for (Json at = json_first(json_member(j, "a")); at; at = json_next(at)) json_string(json_member(at, "b"));
    json_member(json_member(j, "c"), "d");
  }
}

TEST_CASE("names from a model are escaped, and cut between characters") {
  using namespace stridec::runtime;
  char room[256];
  Text line(room, sizeof room);
  write_escaped(line, "a\"b\\c\n\x01</script>\xff ü \xed\xa0\x80 \xf0\x9f\x98\x80", 200);
  const std::string parsed = json::parse("\"" + std::string(room) + "\"");
  CHECK(parsed == "a\"b\\c\n\x01</script>? ü ??? \xf0\x9f\x98\x80");
  const std::string escaped = R"(node 1 '\u00e9\\ü' (Op))";
  for (size_t limit = 0; limit < 40; ++limit) {
    Text cut(room, sizeof room);
    write_escaped(cut, JsonString{escaped.data(), escaped.size()}, limit);
    CHECK(json::accept("\"" + std::string(room) + "\""));
  }
}
