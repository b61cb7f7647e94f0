#include <string.h>

#include "runtime/src/context.h"
#include "tests/unit/runtime/harness.h"

using namespace fake;

TEST_CASE("a model tells its inputs, outputs, symbols and steps") {
  Model model(scale());
  REQUIRE(model.status == STRIDEC_OK);
  CHECK(std::string(model.message) == "");
  stridec_model_info info = {.struct_size = sizeof info};
  CHECK(api().model_info(model.handle, &info) == STRIDEC_OK);
  CHECK(std::string(info.name) == "scale");
  CHECK(std::string(info.variant) == "baseline");
  CHECK(info.input_count == 2);
  CHECK(info.output_count == 2);
  CHECK(info.step_count == 3);
  CHECK(info.weights_bytes == sizeof weights);

  stridec_value_info value = {.struct_size = sizeof value};
  CHECK(api().model_input(model.handle, 0, &value) == STRIDEC_OK);
  CHECK(std::string(value.name) == "x");
  CHECK(std::string(value.shape) == "[batch, n]");
  CHECK(std::string(value.dtype_name) == "f32");
  CHECK(value.rank == 2);
  CHECK(api().model_output(model.handle, 1, &value) == STRIDEC_OK);
  CHECK(std::string(value.name) == "total");
  CHECK(std::string(value.shape) == "[batch]");
  CHECK(api().model_output(model.handle, 2, &value) == STRIDEC_INVALID_ARGUMENT);
  CHECK(api().model_input(model.handle, -1, &value) == STRIDEC_INVALID_ARGUMENT);

  stridec_symbol_info symbol = {.struct_size = sizeof symbol};
  CHECK(api().model_symbol(model.handle, 0, &symbol) == STRIDEC_OK);
  CHECK(std::string(symbol.name) == "batch");
  CHECK(symbol.maximum == 64);

  const char* json = nullptr;
  size_t bytes = 0;
  CHECK(api().model_manifest(model.handle, &json, &bytes) == STRIDEC_BAD_ARTIFACT);  // none was appended
}

TEST_CASE("a rank-0 value prints as []") {
  Model model(expand());
  stridec_value_info value = {.struct_size = sizeof value};
  CHECK(api().model_input(model.handle, 1, &value) == STRIDEC_OK);
  CHECK(std::string(value.shape) == "[]");
}

TEST_CASE("an older caller's shorter structs are honoured, and nothing is written beyond them") {
  Model model(scale());
  stridec_value_info value;
  memset(&value, 0x5a, sizeof value);
  value.struct_size = offsetof(stridec_value_info, dtype);
  CHECK(api().model_input(model.handle, 0, &value) == STRIDEC_OK);
  CHECK(std::string(value.name) == "x");
  CHECK(value.rank == 0x5a5a5a5a);
}

TEST_CASE("options that this version does not know are refused, unless they are zero") {
  struct {
    stridec_context_options known;
    uint64_t later;
  } options = {};
  options.known.struct_size = sizeof options;
  options.known.threads = 1;
  Model model(scale());
  CHECK(Context(model.handle, &options.known).status == STRIDEC_OK);
  options.later = 1;
  CHECK(Context(model.handle, &options.known).status == STRIDEC_INVALID_ARGUMENT);
  options.known.struct_size = 0;
  CHECK(Context(model.handle, &options.known).status == STRIDEC_INVALID_ARGUMENT);
}

TEST_CASE("options whose size is absurd are refused unread") {
  stridec_context_options options = {.struct_size = SIZE_MAX / 2};
  Model model(scale());
  stridec_context* context = nullptr;
  CHECK(api().context_create(model.handle, &options, &context, nullptr, 0) == STRIDEC_INVALID_ARGUMENT);
  CHECK(!context);
}

TEST_CASE("a doubled brace in a sentence is a brace, as when it is rendered at compile time") {
  const stridec_abi_message messages[] = {{STRIDEC_ABI_GUARD, "input 'a{{0}}': dim is {0}, not {1}"}};
  const stridec_abi_module program = {.message_count = 1, .messages = messages};
  char out[100];
  stridec::runtime::Text text(out, sizeof out);
  stridec::runtime::write_failure(text, program, {.code = 1, .values = {5, 6}});
  CHECK(std::string(out) == "input 'a{0}': dim is 5, not 6");
}

TEST_CASE("the best variant that the machine runs is chosen; others are named with what is missing") {
  Model model(variants());
  REQUIRE(model.status == STRIDEC_OK);
  stridec_model_info info = {.struct_size = sizeof info};
  api().model_info(model.handle, &info);
  CHECK(std::string(info.variant) == "baseline");
  int32_t usable = -1;
  CHECK(std::string(api().model_variant(model.handle, 0, &usable)) == "future");
  CHECK(usable == 0);
  CHECK(std::string(api().model_variant(model.handle, 1, &usable)) == "baseline");
  CHECK(usable == 1);
  CHECK(api().model_variant(model.handle, 2, &usable) == nullptr);

  stridec_model_options options = {.struct_size = sizeof options, .variant = "future"};
  Model future(variants(), &options);
  CHECK(future.status == STRIDEC_UNSUPPORTED_CPU);
  CHECK(std::string(future.message) ==
        "this processor does not run the CPU variant 'future': it lacks a feature that this runtime does not "
        "know");
  options.variant = "znver9";
  Model unknown(variants(), &options);
  CHECK(unknown.status == STRIDEC_INVALID_ARGUMENT);
  CHECK(std::string(unknown.message) == "the artifact has no variant 'znver9'; it has future, baseline");
}

TEST_CASE("a machine that fits no variant gets a sentence") {
  stridec_abi_module program = variants();
  program.target_count = 1;
  Model model(program);
  CHECK(model.status == STRIDEC_UNSUPPORTED_CPU);
  CHECK(model.handle == nullptr);
  CHECK(std::string(model.message) ==
        "this processor runs none of the artifact's CPU variants: future needs a feature that this runtime "
        "does "
        "not know. Compile it with --cpu for this machine");
}

TEST_CASE("a program of another ABI, or with dtypes and ranks unknown, is refused") {
  stridec_abi_module program = scale();
  program.abi_version = 99;
  CHECK(Model(program).status == STRIDEC_BAD_ARTIFACT);
  program = scale();
  stridec_abi_function function = program.functions[0];
  stridec_abi_value input = function.inputs[0];
  input.dtype = 8;  // ONNX string
  function.inputs = &input;
  function.input_count = 1;
  program.functions = &function;
  Model model(program);
  CHECK(model.status == STRIDEC_BAD_ARTIFACT);
  CHECK(std::string(model.message) == "'x' has dtype number 8 and rank 2, which this runtime does not know");
}

TEST_CASE("a model lives until its last context is gone, and null handles are answered") {
  auto* model = new Model(scale());
  Context context(*model);
  delete model;
  Array<float> x({1, 2}, std::vector<float>{1, 2}), s({2}, 1.f), y({1, 2}), total({1});
  std::vector<stridec_tensor> outputs = {y.tensor(), total.tensor()};
  CHECK(run(context, {x.tensor(), s.tensor()}, outputs) == STRIDEC_OK);

  api().model_close(nullptr);
  api().context_destroy(nullptr);
  api().pool_destroy(nullptr);
  CHECK(api().context_run(nullptr, nullptr, 0, nullptr, 0) == STRIDEC_INVALID_ARGUMENT);
  CHECK(api().model_info(nullptr, nullptr) == STRIDEC_INVALID_ARGUMENT);
  CHECK(api().model_open(nullptr, nullptr, nullptr, 0) == STRIDEC_INVALID_ARGUMENT);
  CHECK(api().context_create(nullptr, nullptr, nullptr, nullptr, 0) == STRIDEC_INVALID_ARGUMENT);
  CHECK(std::string(api().context_error(nullptr)) == "context is null");
}

TEST_CASE("the exported function answers for its version only") {
  CHECK(stridec_get_api(STRIDEC_API_VERSION) != nullptr);
  CHECK(stridec_get_api(0) == nullptr);
  CHECK(stridec_get_api(STRIDEC_API_VERSION + 1) == nullptr);
  CHECK(std::string(api().status_name(STRIDEC_WRONG_SHAPE)) == "STRIDEC_WRONG_SHAPE");
  CHECK(std::string(api().status_name(77)) == "unknown status");
  stridec_model* model = nullptr;
  CHECK(api().model_open(nullptr, &model, nullptr, 0) == STRIDEC_OK);
  api().model_close(model);
}
