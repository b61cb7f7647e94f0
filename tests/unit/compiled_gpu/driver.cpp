// GPU artifacts on a fake driver (tests/support/fake_cuda.h): staging, error messages, fallback to CPU code,
// and runs recorded as graphs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/graph/builder.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/op_table.h"
#include "tests/support/fake_cuda.h"
#include "tests/unit/compiled_gpu/harness.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

// y = x times a matrix of 16-bit floats; tensor maps describe the operands.
graph::Graph wide_model() {
  constexpr int64_t kWide = 256;
  graph::Graph g;
  g.name = "wide";
  graph::Builder b(g, ops::shape_table());
  const graph::ValueId x = b.input("x", {DType::kF16, {sym::var("rows"), kWide}});
  std::vector<uint8_t> bytes(2 * kWide * kWide, 0x38);
  const graph::ValueId w = b.constant("w", {DType::kF16, {kWide, kWide}}, graph::own(std::move(bytes)));
  b.output("y", ops::matmul(b, x, w));
  return g;
}

// Attention with one query per sequence, whose keys are split among blocks.
graph::Graph attention_model() {
  graph::Graph g;
  g.name = "attention";
  graph::Builder b(g, ops::shape_table());
  const sym::Expr n = sym::var("sequences"), t = sym::var("keys");
  const graph::ValueId q = b.input("q", {DType::kF16, {n, 8, 1, 64}}),
                       k = b.input("k", {DType::kF16, {n, 8, t, 64}}),
                       v = b.input("v", {DType::kF16, {n, 8, t, 64}});
  const graph::ValueId scores = ops::mul(b, ops::matmul(b, q, ops::swap_dims(b, k, 2, 3)), 0.125);
  b.output("o", ops::matmul(b, ops::softmax({b, scores}, {3}), v));
  return g;
}

// Two products of different operands, whose results meet in the last kernel.
graph::Graph branches() {
  graph::Graph g;
  g.name = "branches";
  graph::Builder b(g, ops::shape_table());
  const graph::ValueId x = b.input("x", {DType::kF32, {sym::var("rows"), kWidth}});
  graph::ValueId sums[2];
  for (int side = 0; side < 2; ++side) {
    std::vector<uint8_t> bytes(sizeof(float) * kWidth * kWidth, static_cast<uint8_t>(1 + side));
    const graph::ValueId w =
        b.constant(cat("w", side), {DType::kF32, {kWidth, kWidth}}, graph::own(std::move(bytes)));
    const graph::ValueId a = b.add1(side ? graph::OpKind::kNeg : graph::OpKind::kExp, {x});
    sums[side] = ops::softmax({b, ops::matmul(b, a, w)}, {1});
  }
  b.output("y", ops::mul(b, sums[0], sums[1]));
  return g;
}

// Runs attention_model(), whose kernel counts in its last parameter.
struct Attention : Running {
  using Running::Running;
  static constexpr int64_t kKeys = 5120;
  unsigned* counters = nullptr;
  std::vector<unsigned> found;  // by the kernel
  unsigned left = 0;            // counts left by the kernel if it does not finish

  stridec_status run(int64_t sequences) {
    found.clear();
    fake_cuda_register(
        nullptr,
        [](const FakeLaunch* launch, void* user) {
          auto& self = *static_cast<Attention*>(user);
          std::memcpy(&self.counters, launch->parameters + launch->parameter_bytes - 8, 8);
          self.found.assign(self.counters, self.counters + launch->grid[0]);
          *self.counters = self.left;
        },
        this);
    int64_t q_shape[] = {sequences, 8, 1, 64}, k_shape[] = {sequences, 8, kKeys, 64};
    std::vector<uint16_t> q(static_cast<size_t>(sequences * 8 * 64)), k(q.size() * kKeys), o(q.size());
    stridec_tensor in[3] = {}, out{};
    for (stridec_tensor* t : {in, in + 1, in + 2, &out}) {
      const bool keys = t == in + 1 || t == in + 2;
      t->data = t == &out ? o.data() : keys ? k.data() : q.data();
      t->device = {STRIDEC_DEVICE_CPU, 0};
      t->ndim = 4;
      t->dtype = {STRIDEC_DTYPE_FLOAT, 16, 1};
      t->shape = keys ? k_shape : q_shape;
    }
    return api->context_run(context, in, 3, &out, 1);
  }
  bool found_zeros() const { return !found.empty() && found == std::vector<unsigned>(found.size()); }
};

struct Launches {
  std::vector<std::string> parameters;
  std::vector<int> replayed;
  Launches() {
    fake_cuda_register(
        nullptr,
        [](const FakeLaunch* launch, void* user) {
          auto& self = *static_cast<Launches*>(user);
          self.parameters.emplace_back(launch->parameters, launch->parameter_bytes);
          self.replayed.push_back(launch->replayed);
        },
        this);
  }
  ~Launches() { fake_cuda_reset(); }
  bool mentions(const void* address) const {
    for (const std::string& bytes : parameters)
      for (size_t at = 0; at + 8 <= bytes.size(); at += 8)
        if (!std::memcmp(bytes.data() + at, &address, 8)) return true;
    return false;
  }
};

}  // namespace

TEST_CASE("tensors of the host are staged, those of the device are used where they are") {
  const Artifact artifact(0, {"cuda"});
  {
    Running running(artifact);
    REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
    register_negation(2 * kWidth);
    std::vector<float> x(2 * kWidth, 3.0f), y;
    REQUIRE(running.run(x, y, STRIDEC_DEVICE_CPU) == STRIDEC_OK);
    CHECK(y == std::vector<float>(2 * kWidth, -3.0f));
    CHECK(fake_cuda_counts()->uploads == 1);
    CHECK(fake_cuda_counts()->downloads == 1);
    x[0] = 5;
    REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
    CHECK(y[0] == -5);
    CHECK(fake_cuda_counts()->uploads == 1);
    CHECK(fake_cuda_counts()->downloads == 1);
  }
  CHECK(fake_cuda_counts()->allocations == 0);
}

TEST_CASE("no device, another device, no memory: a status and a sentence") {
  const Artifact none(1, {"cuda"}), other(1, {"cuda"}), small(1, {"cuda"});
  fake_cuda()->devices = 0;
  Running on_none(none);
  CHECK(on_none.status == STRIDEC_UNSUPPORTED_DEVICE);
  CHECK(std::string(on_none.message).find("no CUDA-capable device is detected") != std::string::npos);
  fake_cuda_reset();
  fake_cuda()->capability = 75;
  Running on_other(other);
  CHECK(on_other.status == STRIDEC_UNSUPPORTED_DEVICE);
  CHECK(std::string(on_other.message).find("Fake GPU has compute capability 7.5") != std::string::npos);
  fake_cuda_reset();
  fake_cuda()->memory_bytes = 16;
  Running on_small(small);
  CHECK(on_small.status == STRIDEC_OUT_OF_MEMORY);
  CHECK(std::string(on_small.message).find("no memory on GPU 0 for the weights") != std::string::npos);
  fake_cuda_reset();
}

// The events of one kind, in the order in which the sink received them.
struct GpuEvents {
  std::vector<stridec_event> all;
  static void add(void* user, const stridec_event* event) {
    if (event->kind == STRIDEC_EVENT_KERNEL || event->kind == STRIDEC_EVENT_REPLAY)
      static_cast<GpuEvents*>(user)->all.push_back(*event);
  }
  int64_t of(int32_t kind, int64_t run) const {
    return std::ranges::count_if(all, [&](auto& e) { return e.ends && e.kind == kind && e.run == run; });
  }
};

TEST_CASE("traces have GPU kernels and replays of graphs, which stay recorded") {
  const Artifact artifact(2, {"cuda"}, "reduce-overhead");
  Running running(artifact);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  // A kernel takes 50 microseconds.
  fake_cuda_register(nullptr, [](const FakeLaunch*, void*) { fake_cuda()->clock += 49; }, nullptr);
  const std::string path = artifact.folder.file("t.json");
  GpuEvents seen;
  const stridec_trace_options options = {.struct_size = sizeof options,
                                         .flags = STRIDEC_TRACE_KERNELS,
                                         .path = path.c_str(),
                                         .sink = GpuEvents::add,
                                         .user = &seen};
  REQUIRE(running.api->context_trace(running.context, &options) == STRIDEC_OK);
  std::vector<float> x(2 * kWidth, 3.0f), y;
  for (int i = 0; i < 5; ++i) REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  const FakeCounts counts = *fake_cuda_counts();
  REQUIRE(running.api->context_trace(running.context, nullptr) == STRIDEC_OK);
  CHECK(counts.replays == 4);
  REQUIRE(counts.launches >= 2);
  CHECK(seen.of(STRIDEC_EVENT_KERNEL, 0) == counts.launches);  // the first run is not recorded
  for (int run = 1; run < 5; ++run) {
    CHECK(seen.of(STRIDEC_EVENT_KERNEL, run) == 0);
    CHECK(seen.of(STRIDEC_EVENT_REPLAY, run) == 1);
  }
  const nlohmann::json events = nlohmann::json::parse(read_file(path));
  double end = 0;
  int64_t kernels = 0, replays = 0, stream = 0;
  for (const auto& event : events) {
    if (event["name"] == "thread_name" && event["args"].contains("clock_error_nanoseconds"))
      stream = event["tid"].get<int64_t>();
    const std::string kind = event.value("cat", "");
    if (kind != "kernel" && kind != "replay") continue;
    CHECK(event["tid"].get<int64_t>() == stream);
    CHECK(event["ts"].get<double>() >= end - 0.0005);
    end = event["ts"].get<double>() + event["dur"].get<double>();
    const auto work = static_cast<double>(kind == "kernel" ? 1 : counts.launches);
    CHECK(std::abs(event["dur"].get<double>() - 50 * work) < 0.1);
    kernels += kind == "kernel", replays += kind == "replay";
    CHECK(event["args"].contains(kind == "kernel" ? "nodes" : "function"));
  }
  CHECK(kernels == counts.launches);
  CHECK(replays == 4);
  // Without the trace nothing is timed; with a profile, too, each kernel is.
  seen.all.clear();
  REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  CHECK(seen.all.empty());
  REQUIRE(running.api->context_profile(running.context, 1) == STRIDEC_OK);
  REQUIRE(running.api->context_trace(running.context, &options) == STRIDEC_OK);
  for (int i = 0; i < 3; ++i) REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  stridec_step_profile step = {.struct_size = sizeof step};
  REQUIRE(running.api->context_step(running.context, 0, &step) == STRIDEC_OK);
  CHECK(step.calls == 3);
  CHECK(seen.of(STRIDEC_EVENT_KERNEL, 2) == counts.launches);
  REQUIRE(running.api->context_trace(running.context, nullptr) == STRIDEC_OK);
  fake_cuda_reset();
}

TEST_CASE("an asynchronous context tells kernels when the trace ends, and a driver without events none") {
  const Artifact artifact(2, {"cuda"}, "reduce-overhead");
  Running running(artifact);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  stridec_context_options options = {.struct_size = sizeof options, .flags = STRIDEC_CONTEXT_ASYNC};
  stridec_context* context = nullptr;
  char message[256];
  REQUIRE(running.api->context_create(running.model, &options, &context, message, sizeof message) ==
          STRIDEC_OK);
  std::swap(context, running.context);
  GpuEvents seen;
  stridec_trace_options traced = {
      .struct_size = sizeof traced, .flags = STRIDEC_TRACE_KERNELS, .sink = GpuEvents::add, .user = &seen};
  std::vector<float> x(2 * kWidth, 3.0f), y;
  REQUIRE(running.api->context_trace(running.context, &traced) == STRIDEC_OK);
  fake_cuda()->fail_call = "cuEventQuery";
  fake_cuda()->fail_status = 600;  // not ready
  for (int i = 0; i < 3; ++i) REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  CHECK(seen.all.empty());
  REQUIRE(running.api->context_trace(running.context, nullptr) == STRIDEC_OK);  // waits
  CHECK(seen.of(STRIDEC_EVENT_REPLAY, 2) == 1);
  seen.all.clear();
  traced.runs = 2;  // the end of the last run does not wait for long
  REQUIRE(running.api->context_trace(running.context, &traced) == STRIDEC_OK);
  CHECK(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  CHECK(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  CHECK(seen.all.empty());
  fake_cuda_reset();
  seen.all.clear();
  fake_cuda()->fail_call = "cuEventRecord";
  fake_cuda()->fail_status = 1;
  REQUIRE(running.api->context_trace(running.context, &traced) == STRIDEC_OK);
  CHECK(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  REQUIRE(running.api->context_trace(running.context, nullptr) == STRIDEC_OK);
  CHECK(seen.all.empty());
  fake_cuda_reset();
  running.api->context_destroy(context);
}

TEST_CASE("launches that the driver refuses end the run, not the context") {
  const Artifact artifact(1, {"cuda"});
  Running running(artifact);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  fake_cuda()->fail_call = "cuLaunchKernelEx";
  fake_cuda()->fail_status = 700;
  std::vector<float> x(kWidth, 1.0f), y;
  CHECK(running.run(x, y, STRIDEC_DEVICE_CPU) == STRIDEC_DEVICE_ERROR);
  CHECK(running.error().find("an illegal memory access was encountered") != std::string::npos);
  fake_cuda()->fail_call = nullptr;
  CHECK(running.run(x, y, STRIDEC_DEVICE_CPU) == STRIDEC_OK);
}

TEST_CASE("counters are zeros of the context's own, after a kernel that did not end as well") {
  const Artifact artifact(attention_model(), {"cuda"});
  Attention first(artifact), second(artifact);
  REQUIRE_MESSAGE(first.status == STRIDEC_OK, first.message);
  REQUIRE_MESSAGE(second.status == STRIDEC_OK, second.message);
  REQUIRE(first.run(1) == STRIDEC_OK);
  CHECK(first.found_zeros());
  REQUIRE(second.run(1) == STRIDEC_OK);
  CHECK(second.found_zeros());
  CHECK(first.counters != second.counters);
  REQUIRE(first.run(3) == STRIDEC_OK);  // more elements
  CHECK(first.found_zeros());
  first.left = 5;
  fake_cuda()->fail_call = "cuStreamSynchronize";
  fake_cuda()->fail_status = 700;
  CHECK(first.run(1) == STRIDEC_DEVICE_ERROR);
  fake_cuda()->fail_call = nullptr;
  REQUIRE(first.run(1) == STRIDEC_OK);
  CHECK(first.found_zeros());
  fake_cuda_reset();
}

TEST_CASE("tensor maps are made in the model's context, whatever the caller's is") {
  const Artifact artifact(wide_model(), {"cuda"});
  Running running(artifact);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  std::vector<uint16_t> x(512 * 256), y(x.size());
  int64_t shape[] = {512, 256};
  stridec_tensor in{}, out{};
  in.device = out.device = {STRIDEC_DEVICE_CPU, 0};
  in.ndim = out.ndim = 2;
  in.dtype = out.dtype = {STRIDEC_DTYPE_FLOAT, 16, 1};
  in.shape = out.shape = shape;
  in.data = x.data(), out.data = y.data();
  CHECK_MESSAGE(running.api->context_run(running.context, &in, 1, &out, 1) == STRIDEC_OK, running.error());
  fake_cuda()->fail_call = "cuTensorMapEncodeTiled";
  fake_cuda()->fail_status = 801;
  shape[0] = 500;
  CHECK(running.api->context_run(running.context, &in, 1, &out, 1) == STRIDEC_DEVICE_ERROR);
  CHECK(running.error().find("(CUDA error 801)") != std::string::npos);
  fake_cuda_reset();
}

TEST_CASE("without a device that fits, the CPU's code of the same artifact runs") {
  const Artifact artifact(1, {"cpu", "cuda"});
  fake_cuda()->capability = 61;
  Running running(artifact, 0);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  std::vector<float> x(3 * kWidth, 1.0f), y;
  REQUIRE(running.run(x, y, STRIDEC_DEVICE_CPU) == STRIDEC_OK);
  CHECK(y == std::vector<float>(3 * kWidth, -4.0f));
  CHECK(fake_cuda_counts()->launches == 0);
  fake_cuda_reset();
}

TEST_CASE("what the driver does not load another variant does without, where the caller allows it") {
  const Artifact both(1, {"cpu", "cuda"}), texts(1, {"cuda"}, "default", {"sm_90a", "ptx"});
  fake_cuda()->fail_call = "cuModuleLoadData";
  fake_cuda()->fail_status = 222;
  Running anywhere(both, 0);
  REQUIRE_MESSAGE(anywhere.status == STRIDEC_OK, anywhere.message);
  CHECK(anywhere.message == std::string());
  std::vector<float> x(3 * kWidth, 1.0f), y;
  REQUIRE(anywhere.run(x, y, STRIDEC_DEVICE_CPU) == STRIDEC_OK);
  CHECK(y == std::vector<float>(3 * kWidth, -4.0f));
  for (const char* variant : {static_cast<const char*>(nullptr), "sm_90a"}) {
    Running refused(both, variant ? 0 : STRIDEC_DEVICE_CUDA, variant);
    CHECK(refused.status == STRIDEC_UNSUPPORTED_DEVICE);
    CHECK(std::string(refused.message).find("the NVIDIA driver, of CUDA 12.0, does not load GPU kernel k_") ==
          0);
  }
  fake_cuda_reset();
  const auto variant_of = [](const Running& running) {
    stridec_model_info info{.struct_size = sizeof info};
    running.api->model_info(running.model, &info);
    return std::string(info.variant);
  };
  const Running best(texts);
  CHECK(variant_of(best) == "sm_90a");
  fake_cuda()->refuse_cubins = 1;
  const Running text(texts);
  REQUIRE_MESSAGE(text.status == STRIDEC_OK, text.message);
  CHECK(variant_of(text) == "ptx");
  fake_cuda_reset();
}

TEST_CASE("a device that the artifact has no code for, and a variant of another device") {
  const Artifact gpu(1, {"cuda"}), both(1, {"cpu", "cuda"});
  const Running on_cpu(gpu, STRIDEC_DEVICE_CPU);
  CHECK(on_cpu.status == STRIDEC_UNSUPPORTED_CPU);
  CHECK(std::string(on_cpu.message) ==
        "a CPU was asked for, and the artifact has no code for one; compile it with --target cpu,cuda");
  const Running other(both, STRIDEC_DEVICE_CPU, "sm_90a");
  CHECK(other.status == STRIDEC_INVALID_ARGUMENT);
  CHECK(std::string(other.message) ==
        "the variant 'sm_90a' is code for a GPU, and device_type 1 asks for a CPU");
}

TEST_CASE("a shape's runs are one graph from the second on, with the parameters of each run") {
  const Artifact artifact(3, {"cuda"}, "reduce-overhead");
  Running running(artifact);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  std::vector<float> x(2 * kWidth, 1.0f), y, moved = x, z(5 * kWidth, 1.0f);
  FakeCounts& counts = *fake_cuda_counts();
  REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);  // seen once: no graph yet
  CHECK(counts.captures == 0);
  const int64_t kernels = counts.launches;
  REQUIRE(kernels >= 2);
  REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  CHECK(counts.captures == 1);
  CHECK(counts.replays == 1);
  CHECK(counts.launches == kernels);
  const int64_t before = counts.pushes;
  REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  CHECK(counts.replays == 2);
  CHECK(counts.updates == 0);
  const int64_t same = counts.pushes - before;
  {
    Launches seen;
    FakeCounts& now = *fake_cuda_counts();
    REQUIRE(running.run(moved, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);  // another input buffer
    CHECK(now.replays == 3);
    CHECK(now.captures == 1);
    CHECK(now.updates >= 1);
    CHECK(now.updates < kernels);
    CHECK(seen.mentions(moved.data()));
    CHECK_FALSE(seen.mentions(x.data()));
    CHECK(seen.replayed == std::vector<int>(static_cast<size_t>(kernels), 1));
    CHECK(same < now.pushes);  // unchanged addresses: the graph was launched before any launch was prepared
  }
  {
    Launches seen;
    REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);  // and back
    CHECK(seen.mentions(x.data()));
    CHECK_FALSE(seen.mentions(moved.data()));
    REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
    CHECK(fake_cuda_counts()->replays == 2);
  }
  REQUIRE(running.run(z, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);  // another shape starts again
  CHECK(fake_cuda_counts()->replays == 0);
  CHECK(fake_cuda_counts()->launches == kernels);
}

// The fake driver runs the last of the launches that may run.
TEST_CASE("launches that do not depend on each other have no edge between them") {
  const Artifact artifact(branches(), {"cuda"}, "reduce-overhead");
  Running running(artifact);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  std::vector<float> x(2 * kWidth, 1.0f), y;
  const auto parameters = [&] {
    Launches seen;
    REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
    return seen.parameters;
  };
  const std::vector<std::string> direct = parameters();
  parameters();
  const std::vector<std::string> graph = parameters();
  REQUIRE(direct.size() >= 3);
  REQUIRE(graph.size() == direct.size());
  CHECK(graph != direct);
  CHECK(std::is_permutation(graph.begin(), graph.end(), direct.begin()));
  CHECK(graph.back() == direct.back());
}

TEST_CASE("more shapes than are kept; a driver that does not record") {
  const Artifact artifact(3, {"cuda"}, "reduce-overhead");
  Running running(artifact);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  std::vector<float> y;
  for (int round = 0; round < 2; ++round)
    for (size_t rows = 1; rows <= 8; ++rows) {
      std::vector<float> x(rows * kWidth, 1.0f);
      REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
    }
  CHECK(fake_cuda_counts()->captures == 8);
  std::vector<float> more(9 * kWidth, 1.0f), first(kWidth, 1.0f), last(8 * kWidth, 1.0f);
  REQUIRE(running.run(more, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);  // replaces the first one
  REQUIRE(running.run(last, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  CHECK(fake_cuda_counts()->replays == 9);
  REQUIRE(running.run(first, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  CHECK(fake_cuda_counts()->captures == 8);
  CHECK(fake_cuda_counts()->replays == 9);

  Running refused(artifact);
  fake_cuda_reset();
  fake_cuda()->fail_call = "cuStreamBeginCapture";
  fake_cuda()->fail_status = 801;
  for (int i = 0; i < 4; ++i) REQUIRE(refused.run(first, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  CHECK(fake_cuda_counts()->replays == 0);
  CHECK(fake_cuda_counts()->launches >= 8);
  fake_cuda_reset();
}

TEST_CASE("without graphs every launch goes to the stream") {
  const Artifact artifact(3, {"cuda"}, "default");
  Running running(artifact);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  std::vector<float> x(kWidth, 1.0f), y;
  for (int i = 0; i < 3; ++i) REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA) == STRIDEC_OK);
  CHECK(fake_cuda_counts()->captures == 0);
  CHECK(fake_cuda_counts()->replays == 0);
}

TEST_CASE("each function has graphs of its own") {
  std::vector<graph::Graph> graphs = {model(3), model(3), model(2)};
  graphs[0].name = "three", graphs[1].name = "again", graphs[2].name = "two";
  const Artifact artifact(graphs, "reduce-overhead");
  Running running(artifact);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  std::vector<float> x(2 * kWidth, 1.0f), y;
  FakeCounts& counts = *fake_cuda_counts();
  std::vector<int64_t> launches;
  for (int32_t function : {0, 1, 2}) {
    const int64_t before = counts.launches;
    REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA, function) == STRIDEC_OK);
    launches.push_back(counts.launches - before);
  }
  CHECK(launches[0] == launches[1]);
  CHECK(launches[2] < launches[0]);
  for (int32_t function : {0, 1, 2}) REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA, function) == STRIDEC_OK);
  CHECK(counts.captures == 3);
  // In turn, at one shape: no graph replaces that of another function.
  for (int i = 0; i < 4; ++i)
    for (int32_t function : {2, 0, 1})
      REQUIRE(running.run(x, y, STRIDEC_DEVICE_CUDA, function) == STRIDEC_OK);
  CHECK(counts.captures == 3);
  CHECK(counts.replays == 15);
}

TEST_CASE("kernels of equal functions are one") {
  std::vector<graph::Graph> graphs = {model(2), model(2)};
  graphs[0].name = "first", graphs[1].name = "second";
  const Folder folder;
  CompileOptions options{.targets = {"cuda"}, .gpus = {"sm_90a"}};
  for (const graph::Graph& graph : graphs)
    options.functions.push_back({graph.name, write_graph(folder, graph)});
  const Compilation two = compile(options, Stage::kSource);
  const Compilation one =
      compile(model(2), {.model = "one", .targets = {"cuda"}, .gpus = {"sm_90a"}}, Stage::kSource);
  REQUIRE(two.device.tables.size() == 1);
  CHECK(two.device.tables[0].rows.size() == one.device.tables[0].rows.size());
  CHECK(two.device.kernels.size() == one.device.kernels.size());
}
