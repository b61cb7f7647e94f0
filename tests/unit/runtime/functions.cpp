// Several functions over one set of states.
#include "tests/unit/runtime/harness.h"

using namespace fake;

namespace {

stridec_status run_function(Context& context, int32_t function, std::vector<stridec_tensor> inputs,
                            stridec_tensor& output) {
  output = {};
  return api().context_run_function(context.handle, function, inputs.data(), inputs.size(), &output, 1);
}

}  // namespace

TEST_CASE("functions are listed with values of their own") {
  Model model(functions());
  REQUIRE(model.status == STRIDEC_OK);
  stridec_model_info info{.struct_size = sizeof info};
  REQUIRE(api().model_info(model.handle, &info) == STRIDEC_OK);
  CHECK(info.function_count == 2);
  CHECK(info.input_count == 1);  // of function 0
  stridec_function_info clear{.struct_size = sizeof clear};
  REQUIRE(api().model_function(model.handle, 1, &clear) == STRIDEC_OK);
  CHECK(std::string(clear.name) == "clear");
  CHECK(clear.input_count == 0);
  CHECK(clear.step_count == 1);
  stridec_value_info output{.struct_size = sizeof output};
  REQUIRE(api().model_function_output(model.handle, 1, 0, &output) == STRIDEC_OK);
  CHECK(std::string(output.name) == "calls");
  CHECK(api().model_function_output(model.handle, 1, 1, &output) == STRIDEC_INVALID_ARGUMENT);
  CHECK(api().model_function_input(model.handle, 1, 0, &output) == STRIDEC_INVALID_ARGUMENT);
  CHECK(api().model_function(model.handle, 2, &clear) == STRIDEC_INVALID_ARGUMENT);
  CHECK(api().model_function(model.handle, -1, &clear) == STRIDEC_INVALID_ARGUMENT);
}

TEST_CASE("functions read and write the same states, and their results are memory of their own") {
  Model model(functions());
  Context context(model);
  REQUIRE(context.status == STRIDEC_OK);
  Array<float> x({4}, 1.f);
  stridec_tensor sum, calls;
  for (int i = 0; i < 3; ++i) REQUIRE(run_function(context, 0, {x.tensor()}, sum) == STRIDEC_OK);
  REQUIRE(run_function(context, 1, {}, calls) == STRIDEC_OK);
  CHECK(elements<int64_t>(calls) == std::vector<int64_t>{3});
  CHECK(elements<float>(sum) == std::vector<float>{3.5f, 13.f, 23.f, 33.f});  // still valid
  std::vector<stridec_tensor> outputs(1);
  REQUIRE(run(context, {x.tensor()}, outputs) == STRIDEC_OK);  // context_run is about function 0
  REQUIRE(run_function(context, 1, {}, calls) == STRIDEC_OK);
  CHECK(elements<int64_t>(calls) == std::vector<int64_t>{1});
}

TEST_CASE("a function that is not there is refused in a sentence by every call that names one") {
  Model model(functions());
  Context context(model);
  stridec_tensor out{};
  stridec_step_profile step{.struct_size = sizeof step};
  for (int32_t bad : {-1, 2}) {
    CHECK(run_function(context, bad, {}, out) == STRIDEC_INVALID_ARGUMENT);
    CHECK(context.error() == "there is no function " + std::to_string(bad) + "; the model has 2");
    CHECK(api().context_reserve_function(context.handle, bad, nullptr, 0, nullptr, 0) ==
          STRIDEC_INVALID_ARGUMENT);
    CHECK(api().context_warm_up_function(context.handle, bad, nullptr, 0, nullptr, 0) ==
          STRIDEC_INVALID_ARGUMENT);
    CHECK(api().context_function_output_shapes(context.handle, bad, nullptr, 0, &out, 1) ==
          STRIDEC_INVALID_ARGUMENT);
    CHECK(api().context_function_step(context.handle, bad, 0, &step) == STRIDEC_INVALID_ARGUMENT);
  }
  CHECK(run_function(context, 1, {Array<float>({4}).tensor()}, out) == STRIDEC_INVALID_ARGUMENT);
  CHECK(context.error() == "function 'clear' has 0 inputs; 1 given");
  CHECK(run_function(context, 1, {}, out) == STRIDEC_OK);  // the context is usable after a refusal
}

TEST_CASE("each function has a profile and steps of its own") {
  Model model(functions());
  Context context(model);
  REQUIRE(api().context_profile(context.handle, 1) == STRIDEC_OK);
  stridec_step_profile step{.struct_size = sizeof step};
  CHECK(api().context_step(context.handle, 0, &step) == STRIDEC_INVALID_ARGUMENT);  // counter has none
  REQUIRE(api().context_function_step(context.handle, 1, 0, &step) == STRIDEC_OK);
  CHECK(std::string(step.name) == "clear");
  CHECK(api().context_function_step(context.handle, 1, 1, &step) == STRIDEC_INVALID_ARGUMENT);
}

TEST_CASE("a reservation for one function does not disturb the other") {
  Model model(functions());
  Context context(model);
  Array<float> x({4}, 1.f);
  const stridec_tensor in = x.tensor();
  REQUIRE(api().context_reserve_function(context.handle, 0, &in, 1, nullptr, 0) == STRIDEC_OK);
  REQUIRE(api().context_warm_up_function(context.handle, 1, nullptr, 0, nullptr, 0) == STRIDEC_OK);
  stridec_tensor out;
  REQUIRE(run_function(context, 0, {in}, out) == STRIDEC_OK);
  CHECK(elements<float>(out) == std::vector<float>{1.5f, 11.f, 21.f, 31.f});
}
