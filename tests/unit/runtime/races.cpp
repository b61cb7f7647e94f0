// Many threads use, create and destroy models, contexts and pools concurrently; tests/threads.sh runs this
// with the runtime under ThreadSanitizer.
#include <atomic>
#include <thread>

#include "tests/unit/runtime/harness.h"

using namespace fake;

namespace {

// Runs work(thread) on this many threads concurrently.
template <class F>
void on_threads(int count, F&& work) {
  std::atomic<int> ready = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < count) std::this_thread::yield();
      work(t);
    });
  for (std::thread& thread : threads) thread.join();
}

// Number of wrong elements in scale()'s outputs for x = 1 and scale = factor.
int wrong_scale(Context& context, int64_t batch, int64_t n, float factor) {
  Array<float> x({batch, n}, 1.f), s({n}, factor), y({batch, n}), total({batch});
  std::vector<stridec_tensor> outputs = {y.tensor(), total.tensor()};
  if (run(context, {x.tensor(), s.tensor()}, outputs) != STRIDEC_OK) return 1;
  int wrong = 0;
  for (float v : y.data) wrong += v != factor + weights[0];
  for (float v : total.data) wrong += v != factor * static_cast<float>(n);
  return wrong;
}

// The same for gather(). With `bad`, an index is out of range, and any other status or message is wrong.
int wrong_gather(Context& context, int64_t rows, bool bad) {
  Array<float> table({rows, 4}, 2.5f);
  Array<int64_t> index({3}, {0, rows - 1, bad ? rows : 0});
  std::vector<stridec_tensor> outputs(1);
  const stridec_status status = run(context, {table.tensor(), index.tensor()}, outputs);
  if (bad)
    return status != STRIDEC_BAD_DATA || context.error().find(std::to_string(rows)) == std::string::npos;
  if (status != STRIDEC_OK) return 1;
  int wrong = 0;
  for (float v : elements<float>(outputs[0])) wrong += v != 2.5f;
  return wrong;
}

}  // namespace

TEST_CASE("eight threads with contexts on one model, pools of one to four threads") {
  Model model(scale());
  std::atomic<int> wrong = 0;
  on_threads(8, [&](int t) {
    Context context(model, 1 + t % 4);
    for (int i = 0; i < 40; ++i)
      wrong += wrong_scale(context, 1 + (i * 7 + t) % 64, 1 + (i * 31 + t) % 300, static_cast<float>(t));
  });
  CHECK(wrong == 0);
}

TEST_CASE("runs fail while others succeed, and the failing contexts serve the next run") {
  Model model(gather());
  std::atomic<int> wrong = 0;
  on_threads(8, [&](int t) {
    Context context(model, 1 + t % 3);
    for (int i = 0; i < 60; ++i) wrong += wrong_gather(context, 2 + (i + t) % 50, t % 2 && i % 3 == t % 3);
  });
  CHECK(wrong == 0);
}

TEST_CASE("models and contexts made and destroyed while others run") {
  Model shared(scale());
  std::atomic<int> wrong = 0;
  on_threads(8, [&](int t) {
    for (int i = 0; i < 15; ++i) {
      Model own(t % 2 ? scale() : nonzero());
      Context on_shared(shared, 1 + (t + i) % 3), second(shared);
      wrong += wrong_scale(on_shared, 5, 64, 3);
      if (t % 2) {
        Context on_own(own, 2);
        wrong += wrong_scale(on_own, 3, 17, 0.5f);
      }
      wrong += wrong_scale(second, 2, 9, 1);
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("contexts of two models share a pool, others have pools of their own that come and go") {
  Model scaled(scale()), gathered(gather());
  stridec_pool_options shared_options = {.struct_size = sizeof shared_options, .threads = 3};
  stridec_pool* shared = nullptr;
  REQUIRE(api().pool_create(&shared_options, &shared, nullptr, 0) == STRIDEC_OK);
  std::atomic<int> wrong = 0;
  on_threads(8, [&](int t) {
    for (int round = 0; round < 6; ++round) {
      stridec_pool* pool = shared;
      stridec_pool_options options = {.struct_size = sizeof options, .threads = 1 + (t + round) % 5};
      if (t >= 4 && api().pool_create(&options, &pool, nullptr, 0) != STRIDEC_OK) ++wrong;
      stridec_context_options context_options = {.struct_size = sizeof context_options,
                                                 .threads = 1 + (t + round) % 4,
                                                 .parallel_for = api().pool_parallel_for,
                                                 .parallel_user = pool};
      {
        Context scales(scaled.handle, &context_options), gathers(gathered.handle, &context_options);
        for (int i = 0; i < 10; ++i) {
          wrong += wrong_scale(scales, 1 + i * 6, 50 + t, static_cast<float>(i));
          wrong += wrong_gather(gathers, 5 + i, i % 4 == 1);
        }
      }
      if (pool != shared) api().pool_destroy(pool);
    }
  });
  api().pool_destroy(shared);
  CHECK(wrong == 0);
}

TEST_CASE("a context that eight threads want at once: each run is whole, or says that the context is busy") {
  Model model(scale());
  Context context(model, 2);
  std::atomic<int> wrong = 0, ran = 0;
  on_threads(8, [&](int t) {
    for (int i = 0; i < 60; ++i) {
      const auto factor = static_cast<float>(t + i);
      Array<float> x({4, 33}, 1.f), s({33}, factor), y({4, 33}), total({4});
      std::vector<stridec_tensor> outputs = {y.tensor(), total.tensor()};
      const stridec_status status = run(context, {x.tensor(), s.tensor()}, outputs);
      if (status == STRIDEC_BUSY) continue;
      ++ran;
      if (status != STRIDEC_OK) ++wrong;
      for (float v : y.data) wrong += v != factor + weights[0];
    }
  });
  CHECK(wrong == 0);
  CHECK(ran > 0);
}
