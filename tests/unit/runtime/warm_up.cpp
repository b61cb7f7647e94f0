#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/support/folder.h"
#include "tests/unit/runtime/harness.h"

using namespace fake;

namespace {

// Pages of a mapping of 1 MiB, and the tolerated number of unrelated faults. A sanitizer has pages of its
// own; ThreadSanitizer has more of them than the memory they describe.
#ifdef STRIDEC_UNDER_TSAN
constexpr long kPages = 256, kFew = 1 << 20;
#else
constexpr long kPages = 256, kFew = 128;
#endif

long faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

long threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator{});
}

// Untouched memory.
struct Fresh {
  size_t bytes;
  void* data;
  explicit Fresh(size_t bytes)
      : bytes(bytes), data(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    madvise(data, bytes, MADV_NOHUGEPAGE);
  }
  ~Fresh() { munmap(data, bytes); }
};

// scale() at its largest size: an arena of 1 MiB, and an output of 1 MiB.
struct Large {
  Array<float> x{{64, 4096}, 1.f}, scale{{4096}, 2.f};
  int64_t shape[2] = {64, 4096};
  Fresh memory{64 * 4096 * 4};
  stridec_tensor y = {.data = memory.data,
                      .device = {STRIDEC_DEVICE_CPU, 0},
                      .ndim = 2,
                      .dtype = dtype_of<float>(),
                      .shape = shape};
  std::vector<stridec_tensor> inputs = {x.tensor(), scale.tensor()}, outputs = {y, stridec_tensor{}};

  stridec_status reserve(Context& c) {
    return api().context_reserve(c.handle, inputs.data(), 2, outputs.data(), 2);
  }
  stridec_status warm_up(Context& c) {
    return api().context_warm_up(c.handle, inputs.data(), 2, outputs.data(), 2);
  }
  // Page faults of one run; also checks its results.
  long run_faults(Context& c) {
    std::vector<stridec_tensor> out = outputs;
    const long before = faults();
    const stridec_status status = run(c, inputs, out);
    const long during = faults() - before;
    CHECK(status == STRIDEC_OK);
    CHECK(static_cast<float*>(memory.data)[64 * 4096 - 1] == 2 + weights[0]);
    CHECK(elements<float>(out[1])[63] == 8192);
    return during;
  }
};

}  // namespace

TEST_CASE(
    "after a warm-up the first run meets pages that are there, in the context's memory and the caller's") {
  Model model(scale());
  stridec_context_options options = {
      .struct_size = sizeof options, .threads = 1, .flags = STRIDEC_CONTEXT_NO_HUGE_PAGES};
  {
    Large large;
    Context reserved(model.handle, &options);
    REQUIRE(large.reserve(reserved) == STRIDEC_OK);
    CHECK(large.run_faults(reserved) >= 2 * kPages);
    CHECK(large.run_faults(reserved) < kFew);
  }
  Large large;
  Context warm(model.handle, &options);
  REQUIRE(large.warm_up(warm) == STRIDEC_OK);
  CHECK(large.run_faults(warm) < kFew);

  const long before = faults();
  REQUIRE(large.warm_up(warm) == STRIDEC_OK);
  CHECK(faults() - before < kFew);
  CHECK(large.run_faults(warm) < kFew);
}

TEST_CASE("a warm-up reads the weights") {
  stridec::testing::Folder folder;
  constexpr size_t kBytes = 16 << 20;
  folder.write("weights", std::string(kBytes, 'w'));
  stridec_abi_module program = gather();
  const stridec_abi_weights_file file = {.mark = STRIDEC_ABI_WEIGHTS_MARK, .hash = 0, .name = "weights"};
  program.weights_file = &file;
  program.weights_bytes = kBytes;
  const std::string directory = folder.path.string();
  const stridec_model_options options = {.struct_size = sizeof options,
                                         .weights_dir = directory.c_str(),
                                         .flags = STRIDEC_MODEL_SKIP_WEIGHTS_HASH};
  auto faults_of_reading = [&](bool warm, int32_t threads) {
    Model model(program, &options);
    REQUIRE(model.status == STRIDEC_OK);
    Context context(model, threads);
    Array<float> table({2, 4}, 1.f);
    Array<int64_t> index({3}, int64_t{0});
    const stridec_tensor inputs[] = {table.tensor(), index.tensor()}, output = {};
    if (warm) REQUIRE(api().context_warm_up(context.handle, inputs, 2, &output, 1) == STRIDEC_OK);
    const stridec::runtime::Bytes& bytes = model.handle->blob.weights;
    const long before = faults();
    for (size_t at = 0; at < bytes.size; at += 4096)
      CHECK_UNARY(static_cast<const volatile char*>(bytes.data)[at] == 'w');
    return faults() - before;
  };
  const long cold = faults_of_reading(false, 1);
  for (int32_t threads : {1, 2, 5}) CHECK(faults_of_reading(true, threads) * 2 < cold);
}

TEST_CASE("a warm-up starts the threads, or asks the caller's parallel_for once") {
  Model model(scale());
  Large large;
  {
    Context context(model, 3);
    const long before = threads();
    REQUIRE(large.reserve(context) == STRIDEC_OK);
    CHECK(threads() == before);
    REQUIRE(large.warm_up(context) == STRIDEC_OK);
    CHECK(threads() == before + 2);
    large.run_faults(context);
    CHECK(threads() == before + 2);
  }
  int calls = 0;
  const stridec_context_options options = {
      .struct_size = sizeof options,
      .threads = 5,
      .parallel_for =
          [](void* user, int32_t parts, void (*body)(void*, int32_t), void* arg) {
            ++*static_cast<int*>(user);
            while (parts-- > 0) body(arg, parts);
          },
      .parallel_user = &calls};
  Context hooked(model.handle, &options);
  REQUIRE(large.warm_up(hooked) == STRIDEC_OK);
  CHECK(calls == 1);
  large.run_faults(hooked);
}

TEST_CASE("a warm-up takes the caller's memory for the context, and afterwards nothing is allocated") {
  struct Count {
    int allocations = 0, live = 0;
  } count;
  const stridec_context_options options = {.struct_size = sizeof options,
                                           .threads = 2,
                                           .allocate =
                                               [](void* user, size_t bytes, size_t alignment) {
                                                 auto& c = *static_cast<Count*>(user);
                                                 ++c.allocations, ++c.live;
                                                 return aligned_alloc(alignment, bytes);
                                               },
                                           .release =
                                               [](void* user, void* memory, size_t) {
                                                 --static_cast<Count*>(user)->live;
                                                 free(memory);
                                               },
                                           .memory_user = &count};
  {
    Model model(scale());
    Context context(model.handle, &options);
    Large large;
    large.x.strides = {1, 64};  // staged
    large.inputs[0] = large.x.tensor();
    REQUIRE(large.warm_up(context) == STRIDEC_OK);
    const int allocations = count.allocations;
    REQUIRE(large.warm_up(context) == STRIDEC_OK);
    large.run_faults(context);
    CHECK(count.allocations == allocations);
  }
  CHECK(count.live == 0);
}

TEST_CASE("a warm-up leaves state and tensors alone, needs no data, and fails as a reservation does") {
  Model model(counter());
  Context context(model);
  Array<float> x({4}, 1.f), sum({4}, 7.f);
  stridec_tensor input = x.tensor(), output = sum.tensor();
  input.data = nullptr;
  REQUIRE(api().context_warm_up(context.handle, &input, 1, &output, 1) == STRIDEC_OK);
  REQUIRE(api().context_warm_up(context.handle, &input, 1, nullptr, 0) == STRIDEC_OK);
  CHECK(sum.data == std::vector<float>(4, 7.f));
  std::vector<stridec_tensor> outputs = {sum.tensor()};
  REQUIRE(run(context, {x.tensor()}, outputs) == STRIDEC_OK);
  CHECK(sum.data == std::vector<float>{1.5f, 11.f, 21.f, 31.f});

  Model other(scale());
  Context small(other);
  Array<float> wide({65, 2}), scale({2});
  const stridec_tensor inputs[] = {wide.tensor(), scale.tensor()};
  CHECK(api().context_warm_up(small.handle, inputs, 2, nullptr, 0) == STRIDEC_WRONG_SHAPE);
  const std::string sentence = small.error();
  CHECK(api().context_reserve(small.handle, inputs, 2, nullptr, 0) == STRIDEC_WRONG_SHAPE);
  CHECK(small.error() == sentence);
  CHECK(api().context_warm_up(small.handle, inputs, 1, nullptr, 0) == STRIDEC_INVALID_ARGUMENT);
  CHECK(api().context_warm_up(nullptr, inputs, 2, nullptr, 0) == STRIDEC_INVALID_ARGUMENT);
}

TEST_CASE("contexts of one model warm up at once, while others run") {
  Model model(scale());
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t)
    all.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        Context context(model, 1 + t % 3);
        Large large;
        CHECK(large.warm_up(context) == STRIDEC_OK);
        large.run_faults(context);
      }
    });
  for (std::thread& t : all) t.join();
}

#ifndef STRIDEC_UNDER_TSAN
TEST_CASE("a child made by fork warms up a context that it inherited") {
  Model model(scale());
  Context context(model, 3);
  Large large;
  REQUIRE(large.warm_up(context) == STRIDEC_OK);
  large.run_faults(context);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const long before = threads();
    const bool warm = large.warm_up(context) == STRIDEC_OK && threads() == before + 2;
    _exit(warm && large.run_faults(context) < kFew ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
#endif
