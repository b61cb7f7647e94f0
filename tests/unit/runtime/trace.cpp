#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

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

// The events of a file whose array may lack its end.
json events_of(const std::string& path) {
  std::string text = text_of(path);
  const size_t last = text.find_last_not_of(" \n");
  if (last == std::string::npos || text[last] != ']') text += "]";
  return json::parse(text);
}

std::vector<json> slices(const json& events, const std::string& category) {
  std::vector<json> found;
  for (const json& event : events)
    if (event.value("cat", "") == category) found.push_back(event);
  return found;
}

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
  REQUIRE(job.run(context) == STRIDEC_OK);         // not traced
  const json events = json::parse(text_of(path));  // whole: the trace has ended
  const std::vector<json> runs = slices(events, "run"), steps = slices(events, "step"),
                          parts = slices(events, "part");
  REQUIRE(runs.size() == 3);
  REQUIRE(steps.size() == 9);
  CHECK(parts.size() >= 9);
  CHECK(runs[1]["args"]["sizes"] == json{{"batch", 64}, {"n", 1000}});
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
  const std::vector<json> runs = slices(events_of(path), "run");
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

TEST_CASE("a small room for events loses none, and options that make no sense are refused") {
  const Folder folder;
  const std::string path = folder.file("t.json");
  Model model(scale());
  Context context(model, 2);
  stridec_trace_options options = options_of(path);
  options.events = 1;
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

#ifndef STRIDEC_UNDER_TSAN
TEST_CASE("a file parses after its process was killed at any moment") {
  const Folder folder;
  const std::string path = folder.file("t.json");
  size_t runs = 0;
  for (int i = 0; i < 25; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Model model(scale());
      Context context(model, 2);
      const stridec_trace_options options = options_of(path, STRIDEC_TRACE_PARTS);
      if (api().context_trace(context.handle, &options) != STRIDEC_OK) _exit(1);
      Job job(8, 16);
      for (;;) job.run(context);
    }
    while (text_of(path).empty()) usleep(200);
    usleep(static_cast<useconds_t>(1300 * i));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    json events;
    CHECK_NOTHROW(events = events_of(path));
    runs += slices(events, "run").size();
    std::filesystem::remove(path);
  }
  CHECK(runs > 25);
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
