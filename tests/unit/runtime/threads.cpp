#include "runtime/src/threads.h"

#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/src/context.h"
#include "tests/unit/runtime/harness.h"

using namespace fake;
using stridec::runtime::Pool;

namespace {

struct Tally {
  std::atomic<int> parts[200] = {};
  static void body(void* arg, int32_t part) { ++static_cast<Tally*>(arg)->parts[part]; }
};

void check_once_each(Pool* pool, int32_t parts) {
  Tally tally;
  stridec::runtime::pool_run(pool, parts, Tally::body, &tally);
  for (int32_t i = 0; i < 200; ++i) CHECK(tally.parts[i] == (i < parts ? 1 : 0));
}

struct Scope {
  Pool* pool;
  Scope(int32_t threads, int32_t spin_us) : pool(stridec::runtime::pool_create(threads, spin_us)) {}
  ~Scope() { stridec::runtime::pool_destroy(pool); }
};

// For each part: the processors that its thread may use, and the one it runs on.
struct Masks {
  static constexpr int kWords = 128, kParts = 256;
  uint64_t of[kParts][kWords] = {};
  long bytes[kParts] = {};
  int processor[kParts] = {};
  pid_t thread[kParts] = {};

  static void body(void* arg, int32_t part) {
    auto& m = *static_cast<Masks*>(arg);
    if (part >= kParts) return;
    m.bytes[part] = syscall(SYS_sched_getaffinity, 0, sizeof m.of[part], m.of[part]);
    m.processor[part] = sched_getcpu();
    m.thread[part] = gettid();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // so that each thread does its own part
  }
  bool has(int part, int processor) const { return of[part][processor / 64] >> processor % 64 & 1; }
  int processors(int part) const {
    int count = 0;
    for (const uint64_t word : of[part]) count += std::popcount(word);
    return count;
  }
};

// The pool's threads, identified by their names.
void wait_until_all_sleep() {
  for (bool awake = true; awake; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    awake = false;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string text;
      std::getline(std::ifstream(task.path() / "stat"), text);
      const size_t name = text.find("(stridec)");
      awake = awake || (name != std::string::npos && text.substr(name + 10, 1) != "S");
    }
  }
}

// Moves the caller to one of its processors, then lifts the restriction.
void on_another_processor(const Masks& all, int turn) {
  std::vector<int> list;
  for (int p = 0; p < Masks::kWords * 64; ++p)
    if (all.has(0, p)) list.push_back(p);
  const int there = list[static_cast<size_t>(turn) % list.size()];
  uint64_t one[Masks::kWords] = {};
  one[there / 64] = uint64_t{1} << there % 64;
  syscall(SYS_sched_setaffinity, 0, all.bytes[0], one);
  syscall(SYS_sched_setaffinity, 0, all.bytes[0], all.of[0]);
}

// The exit status of the child; 100 if it did not exit by itself.
template <class F>
int in_child(F&& work) {
  pid_t child = fork();
  if (child == 0) {
    alarm(20);  // ends a child that hangs
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

}  // namespace

TEST_CASE("every part is done once, whatever the counts of parts and threads") {
  for (int32_t spin_us : {0, -1, 5})
    for (int32_t threads : {1, 2, 3, 7}) {
      Scope scope(threads, spin_us);
      for (int32_t parts : {0, 1, 2, 3, 6, 7, 8, 200}) check_once_each(scope.pool, parts);
    }
}

TEST_CASE("shares follow each other, and a part's first panel is that of its first task") {
  for (const int64_t tasks : {1, 7, 12, 100})
    for (const int64_t grain : {1, 5, 200}) {
      const int64_t parts = stridec_abi_parts(tasks, grain, 4);
      CHECK(parts == std::min<int64_t>(4, (tasks + grain - 1) / grain));
      CHECK(stridec_abi_share(tasks, parts, 0) == 0);
      CHECK(stridec_abi_share(tasks, parts, parts) == tasks);
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t own = stridec_abi_share(tasks, parts, part + 1) - stridec_abi_share(tasks, parts, part);
        CHECK(own >= tasks / parts);
        CHECK(own <= tasks / parts + 1);
      }
    }
  char weights[4 * 64];
  // Three blocks of rows by four panels, on two threads: the second starts with task 6.
  stridec_abi_ahead ahead = {weights, 64, 4, 1, 12, 1, 2};
  CHECK(stridec_abi_panel_ahead(&ahead, 0) == weights);
  CHECK(stridec_abi_panel_ahead(&ahead, 1) == weights + 2 * 64);  // 6 % 4, rows outer
  CHECK(stridec_abi_panel_ahead(&ahead, 2) == nullptr);
  ahead.run = 3, ahead.threads = 4;
  CHECK(stridec_abi_panel_ahead(&ahead, 3) == weights + 3 * 64);  // 9 / 3, columns outer
  ahead.grain = 6;
  CHECK(stridec_abi_panel_ahead(&ahead, 1) == weights + 2 * 64);
  CHECK(stridec_abi_panel_ahead(&ahead, 2) == nullptr);
}

namespace {

// A launch of tasks that count themselves, on pool threads or by a parallel_for.
struct CountedTasks {
  static constexpr int64_t kTasks = 64;
  static constexpr int32_t kParts = 4;
  std::atomic<int> times[kTasks] = {};
  std::atomic<int> by[kParts] = {};
  int64_t longest_from = kTasks;  // tasks from here on take two milliseconds

  static void kernel(const stridec_abi_args* a, int64_t begin, int64_t end, int32_t part) {
    auto& counted = *static_cast<CountedTasks*>(a->buffers[0]);
    for (int64_t task = begin, last; (last = stridec_abi_take(a, part, task, end)) > task;)
      for (; task < last; ++task) {
        ++counted.times[task], ++counted.by[part];
        if (task >= counted.longest_from) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
  }

  void launch(stridec_context& context, int32_t parts, int64_t grain, bool movable = true) {
    stridec_abi_left left[kParts];
    context.threads = parts;
    context.left.data = reinterpret_cast<char*>(left);
    stridec_abi_failure failures[kParts] = {};
    stridec_abi_run run = {.failures = failures, .threads = parts, .context = &context};
    void* buffers[] = {this};
    const stridec_abi_args args = {buffers, nullptr, nullptr, 0, failures};
    CHECK(stridec::runtime::launch(&run, kernel, &args, kTasks, grain, -1, movable) == 0);
  }
  bool once_each() const {
    return std::all_of(std::begin(times), std::end(times), [](const auto& n) { return n == 1; });
  }
};

// Equivalent to a pool with one thread, but in reverse order of parts.
void backwards(void*, int32_t parts, void (*body)(void*, int32_t), void* arg) {
  for (int32_t part = parts; part-- > 0;) body(arg, part);
}

}  // namespace

TEST_CASE("tasks that differ in what they cost are done once each, most of them by whoever is free") {
  CountedTasks counted;
  counted.longest_from = CountedTasks::kTasks / 2;
  Scope scope(2, -1);
  stridec_context context = {};
  context.pool = scope.pool;
  counted.launch(context, 2, 1);
  CHECK(counted.once_each());
  // The first half takes no time: its thread steals some of the second half.
  CHECK(counted.by[0] + counted.by[1] == CountedTasks::kTasks);
  CHECK(counted.by[0] > CountedTasks::kTasks / 2);
}

TEST_CASE("whoever comes first takes over what others have not begun, but for what they take next") {
  stridec_context context = {};
  context.parallel_for = backwards;
  for (const int64_t grain : {1, 3, 8}) {
    CountedTasks counted;
    counted.launch(context, 4, grain);
    CHECK(counted.once_each());
    for (int part = 0; part < 3; ++part) {
      CHECK(counted.by[part] > 0);
      CHECK(counted.by[part] <= grain);
    }
  }
  CountedTasks fixed;  // some of its tasks could record a failure
  fixed.launch(context, 4, 1, false);
  CHECK(fixed.once_each());
  for (int part = 0; part < 4; ++part) CHECK(fixed.by[part] == CountedTasks::kTasks / 4);
}

TEST_CASE("threads that take tasks from each other do each once") {
  Scope scope(4, 1000);
  stridec_context context = {};
  context.pool = scope.pool;
  for (int i = 0; i < 2000; ++i) {
    CountedTasks counted;
    counted.launch(context, 4, 1 + i % 3);
    REQUIRE(counted.once_each());
  }
}

TEST_CASE("threads that went to sleep wake up, also when only some are needed") {
  Scope scope(4, 20);
  for (int i = 0; i < 30; ++i) {
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    check_once_each(scope.pool, 2 + i % 3);
  }
}

TEST_CASE("many short pieces of work") {
  Scope scope(3, -1);
  std::atomic<int64_t> sum = 0;
  auto body = [](void* arg, int32_t part) { *static_cast<std::atomic<int64_t>*>(arg) += part; };
  for (int i = 0; i < 3000; ++i) stridec::runtime::pool_run(scope.pool, 3, body, &sum);
  CHECK(sum == 9000);
}

TEST_CASE("threads may run wherever the one that started them may, but for its own processor") {
  for (const int32_t threads : {2, 5}) {
    Scope scope(threads, 0);
    Masks masks;
    stridec::runtime::pool_run(scope.pool, threads, Masks::body, &masks);
    for (int part = 1; part < threads; ++part) {
      CHECK(masks.bytes[part] == masks.bytes[0]);
      CHECK(std::equal(masks.of[part], masks.of[part] + Masks::kWords, masks.of[0],
                       [](uint64_t own, uint64_t all) { return (own & ~all) == 0; }));
      CHECK(masks.processors(0) - masks.processors(part) <= (threads <= masks.processors(0) ? 1 : 0));
    }
  }
}

// Checks affinity masks, not where threads happen to run.
TEST_CASE("a thread that is woken keeps off the processor of the one that wakes it, if each can have one") {
  Masks all;
  Masks::body(&all, 0);
  const int most = all.processors(0);
  for (const int32_t threads : {2, most + 1}) {
    Scope scope(threads, -1);
    Masks masks;
    stridec::runtime::pool_run(scope.pool, threads, Masks::body, &masks);  // all threads have started
    for (int turn = 0, seen = 0; turn < 40 && seen < 4; ++turn) {
      wait_until_all_sleep();
      on_another_processor(all, turn);
      const int before = sched_getcpu();
      stridec::runtime::pool_run(scope.pool, threads, Masks::body, &masks);
      if (masks.processor[0] != before) continue;  // moved in the meantime
      ++seen;
      for (int part = 1; part < threads; ++part)
        if (masks.thread[part] != masks.thread[0]) CHECK(masks.has(part, before) == (threads > most));
    }
  }
}

TEST_CASE("a nested call, and a call while another thread works, do their parts themselves") {
  Scope scope(3, 0);
  struct Nest {
    Pool* pool;
    std::atomic<int> inner = 0;
  } nest{scope.pool};
  auto outer = [](void* arg, int32_t) {
    auto inner = [](void* a, int32_t) { ++static_cast<Nest*>(a)->inner; };
    stridec::runtime::pool_run(static_cast<Nest*>(arg)->pool, 5, inner, arg);
  };
  stridec::runtime::pool_run(scope.pool, 4, outer, &nest);
  CHECK(nest.inner == 20);

  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        Tally tally;
        stridec::runtime::pool_run(scope.pool, 9, Tally::body, &tally);
        for (int p = 0; p < 9; ++p)
          if (tally.parts[p] != 1) abort();
      }
    });
  for (std::thread& t : callers) t.join();
}

#ifndef STRIDEC_UNDER_TSAN
TEST_CASE("a child made by fork gets threads of its own and may destroy what it inherited") {
  Scope scope(3, 0);
  check_once_each(scope.pool, 3);
  CHECK(in_child([&] {
          Tally tally;
          stridec::runtime::pool_run(scope.pool, 3, Tally::body, &tally);
          return tally.parts[0] + tally.parts[1] + tally.parts[2] == 3 ? 0 : 1;
        }) == 0);
  CHECK(in_child([&] {
          stridec::runtime::pool_destroy(scope.pool);
          return 0;
        }) == 0);
  // Forks in a body that runs on the pool: the child must not inherit the parent's lock.
  struct Middle {
    Pool* pool;
    int status = -1;
  } middle{scope.pool};
  auto body = [](void* arg, int32_t part) {
    auto& m = *static_cast<Middle*>(arg);
    if (part == 0)
      m.status = in_child([&] {
        Tally tally;
        stridec::runtime::pool_run(m.pool, 3, Tally::body, &tally);
        return tally.parts[2] == 1 ? 0 : 1;
      });
  };
  stridec::runtime::pool_run(scope.pool, 3, body, &middle);
  CHECK(middle.status == 0);
  check_once_each(scope.pool, 3);
}

TEST_CASE("a context inherited by a child runs there") {
  Model model(scale());
  Context context(model, 3);
  Array<float> x({64, 100}, 1.f), s({100}, 2.f);
  std::vector<stridec_tensor> outputs(2);
  REQUIRE(run(context, {x.tensor(), s.tensor()}, outputs) == STRIDEC_OK);
  CHECK(in_child([&] {
          std::vector<stridec_tensor> mine(2);
          bool ok = run(context, {x.tensor(), s.tensor()}, mine) == STRIDEC_OK &&
                    elements<float>(mine[1])[63] == 200;
          return ok ? 0 : 1;
        }) == 0);
}
#endif

TEST_CASE("results are the same bits for every number of threads, pools, and a caller's parallel_for") {
  Model model(scale());
  Array<float> x({37, 211}), s({211});
  for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = 1.f / static_cast<float>(i + 1);
  for (size_t i = 0; i < s.data.size(); ++i) s.data[i] = static_cast<float>(i) * 0.37f;
  std::vector<float> y, total;
  auto check = [&](Context& context) {
    std::vector<stridec_tensor> outputs(2);
    REQUIRE(run(context, {x.tensor(), s.tensor()}, outputs) == STRIDEC_OK);
    if (y.empty()) {
      y = elements<float>(outputs[0]);
      total = elements<float>(outputs[1]);
    }
    CHECK(elements<float>(outputs[0]) == y);
    CHECK(elements<float>(outputs[1]) == total);
  };
  for (int32_t threads : {1, 2, 3, 16}) {
    Context context(model, threads);
    CHECK(api().context_threads(context.handle) == threads);
    check(context);
  }
  stridec_pool_options pool_options = {.struct_size = sizeof pool_options, .threads = 3};
  stridec_pool* pool = nullptr;
  REQUIRE(api().pool_create(&pool_options, &pool, nullptr, 0) == STRIDEC_OK);
  CHECK(api().pool_threads(pool) == 3);
  stridec_context_options options = {.struct_size = sizeof options,
                                     .threads = 3,
                                     .parallel_for = api().pool_parallel_for,
                                     .parallel_user = pool};
  {
    Context one(model.handle, &options), two(model.handle, &options);
    check(one);
    check(two);
  }
  api().pool_destroy(pool);

  int calls = 0;
  options.parallel_user = &calls;
  options.parallel_for = [](void* user, int32_t parts, void (*body)(void*, int32_t), void* arg) {
    ++*static_cast<int*>(user);
    for (int32_t part = parts; part-- > 0;) body(arg, part);  // in reverse order
  };
  Context hooked(model.handle, &options);
  check(hooked);
  CHECK(calls == 3);
}

TEST_CASE("several contexts of one model run at once from several threads; one context does not") {
  Model model(scale());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Context context(model, 1 + t % 2);
      for (int i = 0; i < 50; ++i) {
        int64_t batch = 1 + (i * 7 + t) % 64, n = 1 + (i * 31 + t) % 300;
        Array<float> x({batch, n}, 1.f), s({n}, static_cast<float>(t)), y({batch, n}), total({batch});
        std::vector<stridec_tensor> outputs = {y.tensor(), total.tensor()};
        if (run(context, {x.tensor(), s.tensor()}, outputs) != STRIDEC_OK) ++wrong;
        for (float v : y.data) wrong += v != static_cast<float>(t) + weights[0];
        for (float v : total.data) wrong += v != static_cast<float>(t * n);
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);

  // A parallel_for that uses the same context again during a run.
  struct Again {
    Context* context = nullptr;
    std::string sentence;
    stridec_status status = STRIDEC_OK;
  } again;
  stridec_context_options options = {.struct_size = sizeof options, .threads = 2, .parallel_user = &again};
  options.parallel_for = [](void* user, int32_t parts, void (*body)(void*, int32_t), void* arg) {
    auto& a = *static_cast<Again*>(user);
    a.status = api().context_run(a.context->handle, nullptr, 0, nullptr, 0);
    a.sentence = a.context->error();
    for (int32_t part = 0; part < parts; ++part) body(arg, part);
  };
  Context context(model.handle, &options);
  again.context = &context;
  Array<float> x({8, 8}, 1.f), s({8}, 1.f);
  std::vector<stridec_tensor> outputs(2);
  CHECK(run(context, {x.tensor(), s.tensor()}, outputs) == STRIDEC_OK);
  CHECK(again.status == STRIDEC_BUSY);
  CHECK(again.sentence.find("another thread is using the context") == 0);
}

TEST_CASE("bad thread options are refused with a sentence") {
  Model model(scale());
  stridec_context_options options = {.struct_size = sizeof options, .threads = -1};
  Context negative(model.handle, &options);
  CHECK(negative.status == STRIDEC_INVALID_ARGUMENT);
  CHECK(std::string(negative.message) ==
        "threads is -1; expected 0 (as many as the process may use) to 1024");
  options = {.struct_size = sizeof options, .spin_us = -7};
  Context spin(model.handle, &options);
  CHECK(std::string(spin.message) == "spin_us is -7; expected -1 (none), 0 (the default) or microseconds");
  options = {.struct_size = sizeof options,
             .allocate = [](void*, size_t, size_t) -> void* { return nullptr; }};
  Context half(model.handle, &options);
  CHECK(std::string(half.message) == "allocate and release must be given together");
  Context standard(model.handle, nullptr);
  CHECK(api().context_threads(standard.handle) >= 1);
}

TEST_CASE("a cancelled run ends before its next step, and the next run is whole") {
  Model model(scale());
  struct User {
    Context* context = nullptr;
    int launches = 0;
    bool cancel = true;
  } user;
  for (const int32_t threads : {1, 2}) {
    stridec_context_options options = {
        .struct_size = sizeof options, .threads = threads, .parallel_user = &user};
    options.parallel_for = [](void* given, int32_t parts, void (*body)(void*, int32_t), void* arg) {
      User& u = *static_cast<User*>(given);
      ++u.launches;
      for (int32_t part = 0; part < parts; ++part) body(arg, part);
      if (u.cancel) api().context_cancel(u.context->handle);
    };
    Context context(model.handle, &options);
    user = {.context = &context};
    Array<float> x({8, 8}, 1.f), s({8}, 2.f);
    std::vector<stridec_tensor> outputs(2);
    // Between runs a cancellation has no effect.
    api().context_cancel(context.handle);
    user.cancel = threads > 1;
    CHECK(run(context, {x.tensor(), s.tensor()}, outputs) == (threads > 1 ? STRIDEC_CANCELLED : STRIDEC_OK));
    if (threads == 1) continue;
    CHECK(context.error() == "the run was cancelled");
    CHECK(user.launches == 1);
    user.cancel = false;
    outputs = std::vector<stridec_tensor>(2);
    CHECK(run(context, {x.tensor(), s.tensor()}, outputs) == STRIDEC_OK);
    CHECK(elements<float>(outputs[1])[0] != 0);
  }
  api().context_cancel(nullptr);
}

TEST_CASE("without a pool the caller's thread does the work") {
  std::vector<int32_t> parts;
  api().pool_parallel_for(
      nullptr, 3, [](void* arg, int32_t part) { static_cast<std::vector<int32_t>*>(arg)->push_back(part); },
      &parts);
  CHECK(parts == std::vector<int32_t>{0, 1, 2});
}
