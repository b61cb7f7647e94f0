// Races on a fake driver (tests/support/fake_cuda.h), whose kernels are functions of this test.
#include "compiler/tune/measure.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <deque>

#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/tune/gpu.h"
#include "tests/support/fake_cuda.h"

using namespace stridec;
using namespace stridec::tune;
using Kind = Outcome::Kind;

namespace {

constexpr int64_t kElements = 64;
constexpr int kIllegalAddress = 700;

// What a subject's kernel does: y = x, or something else.
struct Behaviour {
  double microseconds = 10;
  float adds = 0;      // added to the last element
  int faults_at = -1;  // the launch that faults
  bool hangs = false, refuses_data = false;
  int launches = 0;
};

void run(const FakeLaunch* launch, void* user) {
  auto& behaviour = *static_cast<Behaviour*>(user);
  float *x, *y;
  stridec_abi_failure* failure;
  std::memcpy(&x, launch->parameters, sizeof x);
  std::memcpy(&y, launch->parameters + 8, sizeof y);
  std::memcpy(&failure, launch->parameters + 16, sizeof failure);
  std::memcpy(y, x, kElements * sizeof *y);
  y[kElements - 1] += behaviour.adds;
  fake_cuda()->clock += behaviour.microseconds - 1;
  if (behaviour.launches++ == behaviour.faults_at) fake_cuda()->fault = kIllegalAddress;
  if (behaviour.refuses_data) failure->code = 1;
  while (behaviour.hangs) pause();
}

struct Race {
  std::deque<Behaviour> behaviours;
  std::vector<Subject> subjects;
  const GpuTarget& target = gpu_target("sm_90a");

  Race() { fake_cuda_reset(); }
  ~Race() { fake_cuda_reset(); }

  void add(const std::string& name, const Behaviour& behaviour) {
    static const codegen::cuda::Nvrtc nvrtc("");
    Subject::Launch launch{
        .symbol = name,
        .image = nvrtc.compile(
            name + ".cu",
            "extern \"C\" __global__ void " + name + "(const float* x, float* y, void* failure) { *y = *x; }",
            target),
        .threads = 32,
        .fails = true,
        .grid = {1, 1, 1},
        .arguments = {0, 1}};
    subjects.push_back({.arguments = {{.bytes = kElements * 4, .dtype = DType::kF32},
                                      {.bytes = kElements * 4, .dtype = DType::kF32, .written = true}},
                        .launches = {std::move(launch)}});
    behaviours.push_back(behaviour);
    fake_cuda_register(subjects.back().launches[0].symbol.c_str(), run, &behaviours.back());
  }
};

}  // namespace

TEST_CASE("kernels of a GPU are timed by its clock, relative to the first") {
  Race race;
  race.add("first", {.microseconds = 10});
  race.add("half", {.microseconds = 5});
  race.add("slow", {.microseconds = 40});
  Gpu gpu(race.target);
  REQUIRE(gpu.problem() == "");
  CHECK(gpu.name() == "Fake_GPU");
  for (int again = 0; again < 2; ++again) {  // in the same process
    const auto outcomes = measure(race.subjects, {.seconds = 0.05}, &gpu);
    REQUIRE(outcomes.size() == 3);
    for (const Outcome& outcome : outcomes) CHECK_MESSAGE(outcome.kind == Kind::kTimed, outcome.reason);
    CHECK(outcomes[0].seconds == doctest::Approx(10e-6).epsilon(0.01));
    CHECK(outcomes[1].ratio == doctest::Approx(0.5).epsilon(0.01));
    CHECK(outcomes[2].ratio == doctest::Approx(4).epsilon(0.01));
    CHECK(outcomes[2].rounds < outcomes[1].rounds);
  }
  CHECK(fake_cuda_counts()->launches == 0);  // none in this process
}

TEST_CASE(
    "a fault, a hang, wrong results and failed checks of a GPU's kernels are results; others are measured") {
  Race race;
  race.add("first", {.microseconds = 10});
  race.add("fault", {.faults_at = 0});
  race.add("wrong", {.microseconds = 1, .adds = 0.5f});
  race.add("rounded", {.microseconds = 9, .adds = 1e-7f});
  race.add("hang", {.hangs = true});
  race.add("check", {.refuses_data = true});
  race.add("later", {.faults_at = 30});
  race.add("half", {.microseconds = 5});
  Gpu gpu(race.target);
  const auto outcomes = measure(race.subjects, {.seconds = 0.05, .hang_seconds = 1}, &gpu);
  REQUIRE(outcomes.size() == 8);
  CHECK(outcomes[0].kind == Kind::kTimed);
  CHECK(outcomes[1].kind == Kind::kCrashed);
  CHECK_MESSAGE(outcomes[1].reason.find("CUDA error 700") != std::string::npos, outcomes[1].reason);
  CHECK(outcomes[2].kind == Kind::kWrong);
  CHECK(outcomes[3].kind == Kind::kTimed);
  CHECK(outcomes[4].kind == Kind::kHung);
  CHECK(outcomes[5].kind == Kind::kFailed);
  CHECK(outcomes[6].kind == Kind::kCrashed);
  CHECK(outcomes[7].kind == Kind::kTimed);
  CHECK(outcomes[7].ratio == doctest::Approx(0.5).epsilon(0.01));
  // The next race runs in a new process.
  race.subjects.resize(1);
  CHECK(measure(race.subjects, {.seconds = 0.05}, &gpu)[0].kind == Kind::kTimed);
}

TEST_CASE("a default that faults, and code that the driver does not load") {
  Race race;
  race.add("fault", {.faults_at = 0});
  race.add("good", {});
  Gpu gpu(race.target);
  const auto outcomes = measure(race.subjects, {.seconds = 0.05}, &gpu);
  CHECK(outcomes[0].kind == Kind::kCrashed);
  CHECK(outcomes[1].kind == Kind::kFailed);

  Race other;
  other.add("first", {});
  other.add("second", {});
  fake_cuda()->fail_call = "cuModuleGetFunction", fake_cuda()->fail_after = 1, fake_cuda()->fail_status = 500;
  Gpu another(other.target);
  const auto refused = measure(other.subjects, {.seconds = 0.05}, &another);
  CHECK(refused[0].kind == Kind::kTimed);
  CHECK(refused[1].kind == Kind::kFailed);
  CHECK_MESSAGE(refused[1].reason.find("does not load GPU kernel second") != std::string::npos,
                refused[1].reason);
}

TEST_CASE("a GPU that is lost between two faults ends the race with the reason") {
  Race race;
  race.add("first", {});
  Gpu gpu(race.target);
  REQUIRE(gpu.problem() == "");
  gpu.end(true);
  fake_cuda()->devices = 0;
  const auto outcomes = measure(race.subjects, {.seconds = 0.05}, &gpu);
  CHECK(outcomes[0].kind == Kind::kFailed);
  CHECK(outcomes[0].reason.find("cannot be initialised") != std::string::npos);
  fake_cuda()->devices = 1;
  CHECK(measure(race.subjects, {.seconds = 0.05}, &gpu)[0].kind == Kind::kTimed);
}

TEST_CASE("what prevents measuring on a GPU is a sentence") {
  Race race;
  fake_cuda()->capability = 80;
  CHECK(Gpu(race.target).problem().find("compute capability 8.0") != std::string::npos);
  fake_cuda()->devices = 0;
  CHECK(Gpu(race.target).problem().find("cannot be initialised") != std::string::npos);
}
