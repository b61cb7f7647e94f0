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

TEST_CASE("a rank-0 value prints as [] and has no dims") {
  Model model(expand());
  stridec_value_info value = {.struct_size = sizeof value};
  CHECK(api().model_input(model.handle, 1, &value) == STRIDEC_OK);
  CHECK(std::string(value.shape) == "[]");
  CHECK(value.dims == nullptr);
}

TEST_CASE("sizes are ranges, symbols and texts") {
  Model model(scale());
  stridec_value_info value = {.struct_size = sizeof value};
  REQUIRE(api().model_input(model.handle, 0, &value) == STRIDEC_OK);
  CHECK(value.dims[0].minimum == 1);
  CHECK(value.dims[0].maximum == 64);
  CHECK(value.dims[0].symbol == 0);
  CHECK(std::string(value.dims[0].text) == "batch");
  CHECK(value.dims[1].maximum == 4096);
  CHECK(value.dims[1].symbol == 1);
  Model table(gather());
  REQUIRE(api().model_input(table.handle, 0, &value) == STRIDEC_OK);
  CHECK(value.dims[0].symbol == 0);
  CHECK(value.dims[1].symbol == -1);
  CHECK(std::string(value.dims[1].text) == "4");
}

TEST_CASE("symbols that no shape has are not listed, and do not count") {
  stridec_abi_symbol symbols[] = {{"inner", 0, 9, 1, 1, 0}, {"batch", 1, 64, 1, 0, 1}, {"n", 1, 64, 1, 0, 1}};
  stridec_abi_function function = scale().functions[0];
  function.symbols = symbols;
  function.symbol_count = 3;
  stridec_abi_module module = scale();
  module.functions = &function;
  Model model(module);
  stridec_model_info info = {.struct_size = sizeof info};
  REQUIRE(api().model_info(model.handle, &info) == STRIDEC_OK);
  CHECK(info.symbol_count == 2);
  stridec_symbol_info symbol = {.struct_size = sizeof symbol};
  CHECK(api().model_symbol(model.handle, 0, &symbol) == STRIDEC_OK);
  CHECK(std::string(symbol.name) == "batch");
  CHECK(api().model_symbol(model.handle, 2, &symbol) == STRIDEC_INVALID_ARGUMENT);
  stridec_value_info value = {.struct_size = sizeof value};
  REQUIRE(api().model_input(model.handle, 0, &value) == STRIDEC_OK);
  CHECK(value.dims[1].symbol == 1);
}

TEST_CASE("inputs and outputs are found by name") {
  Model model(scale());
  CHECK(api().model_find_input(model.handle, 0, "scale") == 1);
  CHECK(api().model_find_input(model.handle, 0, "y") == -1);
  CHECK(api().model_find_input(model.handle, 1, "scale") == -1);
  CHECK(api().model_find_input(model.handle, 0, nullptr) == -1);
  CHECK(api().model_find_output(model.handle, 0, "total") == 1);
  CHECK(api().model_find_output(nullptr, 0, "total") == -1);
}

TEST_CASE("metadata is listed by index") {
  Model model(scale());
  const char *key = nullptr, *text = nullptr;
  CHECK(api().model_metadata(model.handle, 0, &key, &text) == STRIDEC_OK);
  CHECK(std::string(key) == "author");
  CHECK(std::string(text) == "me");
  CHECK(api().model_metadata(model.handle, 1, &key, &text) == STRIDEC_OK);
  CHECK(std::string(key) == "empty");
  CHECK(std::string(text) == "");
  CHECK(api().model_metadata(model.handle, 2, &key, &text) == STRIDEC_INVALID_ARGUMENT);
  Model none(gather());
  CHECK(api().model_metadata(none.handle, 0, &key, &text) == STRIDEC_INVALID_ARGUMENT);
}

TEST_CASE("a struct to fill whose size is not set is refused") {
  Model model(scale());
  stridec_model_info info = {};
  CHECK(api().model_info(model.handle, &info) == STRIDEC_INVALID_ARGUMENT);
  stridec_value_info value = {};
  CHECK(api().model_input(model.handle, 0, &value) == STRIDEC_INVALID_ARGUMENT);
  stridec_symbol_info symbol = {};
  CHECK(api().model_symbol(model.handle, 0, &symbol) == STRIDEC_INVALID_ARGUMENT);
  Context context(model);
  stridec_memory_info memory = {};
  CHECK(api().context_memory(context.handle, &memory) == STRIDEC_INVALID_ARGUMENT);
  CHECK(context.error().starts_with("struct_size is less than"));
  CHECK(api().context_reset_state(context.handle, -1) == STRIDEC_OK);
  CHECK(context.error() == "");
  stridec_step_profile step = {};
  CHECK(api().context_step(context.handle, 0, &step) == STRIDEC_INVALID_ARGUMENT);
  CHECK(context.error().starts_with("struct_size is less than"));
}

TEST_CASE("unknown flags are refused by name, known ones are taken") {
  stridec_model_options options = {.struct_size = sizeof options, .flags = 64 | STRIDEC_MODEL_NO_RUN};
  Model refused(scale(), &options);
  CHECK(refused.status == STRIDEC_INVALID_ARGUMENT);
  CHECK(std::string(refused.message) == "the model's flags have unknown bits: 64");
  options.flags = STRIDEC_MODEL_SKIP_WEIGHTS_HASH | STRIDEC_MODEL_COPY_WEIGHTS | STRIDEC_MODEL_NO_RUN;
  Model taken(scale(), &options);
  CHECK(taken.status == STRIDEC_OK);
  stridec_context_options of_context = {.struct_size = sizeof of_context, .threads = 1, .flags = 8};
  const Context context(taken.handle, &of_context);
  CHECK(context.status == STRIDEC_INVALID_ARGUMENT);
  CHECK(std::string(context.message) == "the context's flags have unknown bits: 8");
}

TEST_CASE("the log says which variant is used, and why a better one is not") {
  std::string log;
  stridec_model_options options = {
      .struct_size = sizeof options,
      .log = [](void* user,
                const char* message) { *static_cast<std::string*>(user) += std::string(message) + "\n"; },
      .log_user = &log};
  Model model(variants(), &options);
  REQUIRE(model.status == STRIDEC_OK);
  CHECK(log.find("' uses its variant '") != log.npos);
  stridec_model_info info = {.struct_size = sizeof info};
  REQUIRE(api().model_info(model.handle, &info) == STRIDEC_OK);
  CHECK(log.find(info.variant) != log.npos);
}

TEST_CASE("the log says that STRIDEC_THREADS is not a number of threads") {
  std::string log;
  stridec_model_options options = {
      .struct_size = sizeof options,
      .log = [](void* user,
                const char* message) { *static_cast<std::string*>(user) += std::string(message) + "\n"; },
      .log_user = &log};
  for (const char* text : {"abc", "-3", "0", "999999"}) {
    setenv("STRIDEC_THREADS", text, 1);
    log.clear();
    const Model model(variants(), &options);
    CHECK(log.find(std::string("STRIDEC_THREADS is '") + text + "', which is not a number from 1 to 1024") !=
          log.npos);
  }
  for (const char* text : {"3", ""}) {
    setenv("STRIDEC_THREADS", text, 1);
    log.clear();
    const Model model(variants(), &options);
    CHECK(log.find("STRIDEC_THREADS") == log.npos);
  }
  unsetenv("STRIDEC_THREADS");
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
