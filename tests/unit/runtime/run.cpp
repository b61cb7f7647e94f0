#include <stdlib.h>
#include <string.h>

#include <map>

#include "tests/unit/runtime/harness.h"

using namespace fake;

namespace {

struct Scale {
  Array<float> x, scale;
  explicit Scale(int64_t batch, int64_t n) : x({batch, n}), scale({n}) {
    for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<float>(i % 7) - 3;
    for (size_t i = 0; i < scale.data.size(); ++i) scale.data[i] = 0.25f * static_cast<float>(i % 5);
  }
  std::vector<stridec_tensor> inputs() { return {x.tensor(), scale.tensor()}; }
  std::vector<float> y() const {
    std::vector<float> out(x.data.size());
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = x.data[i] * scale.data[i % scale.data.size()] + weights[0];
    return out;
  }
};

const stridec_tensor kNothing = {};

}  // namespace

TEST_CASE("caller's compact memory is written in place") {
  Model model(scale());
  Context context(model);
  Scale s(3, 5);
  Array<float> y({3, 5}), total({3});
  std::vector<stridec_tensor> outputs = {y.tensor(), total.tensor()};
  REQUIRE(run(context, s.inputs(), outputs) == STRIDEC_OK);
  CHECK(y.data == s.y());
  CHECK(context.error() == "");
}

TEST_CASE("outputs without data get the context's memory, valid until the next run") {
  Model model(scale());
  Context context(model);
  Scale s(2, 4);
  std::vector<stridec_tensor> outputs = {kNothing, kNothing};
  REQUIRE(run(context, s.inputs(), outputs) == STRIDEC_OK);
  CHECK(shape_of(outputs[0]) == std::vector<int64_t>{2, 4});
  CHECK(outputs[0].strides == nullptr);
  CHECK(outputs[0].dtype.bits == 32);
  CHECK(elements<float>(outputs[0]) == s.y());
  CHECK(shape_of(outputs[1]) == std::vector<int64_t>{2});
}

TEST_CASE("strides of inputs are respected: transposed, reversed, broadcast, with a byte offset, unaligned") {
  Model model(scale());
  Context context(model);
  Scale s(3, 5);
  std::vector<stridec_tensor> outputs = {kNothing, kNothing};
  SUBCASE("transposed") {
    Array<float> t({3, 5});
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 5; ++j) t.data[j * 3 + i] = s.x.data[i * 5 + j];
    t.strides = {1, 3};
    REQUIRE(run(context, {t.tensor(), s.scale.tensor()}, outputs) == STRIDEC_OK);
    CHECK(elements<float>(outputs[0]) == s.y());
  }
  SUBCASE("reversed") {
    Array<float> t = s.x;
    for (int i = 0; i < 15; ++i) t.data[i] = s.x.data[14 - i];
    t.strides = {-5, -1};
    t.first = 14;
    REQUIRE(run(context, {t.tensor(), s.scale.tensor()}, outputs) == STRIDEC_OK);
    CHECK(elements<float>(outputs[0]) == s.y());
  }
  SUBCASE("broadcast") {
    Array<float> one({1}, 2.f);
    one.shape = {5};
    one.strides = {0};
    s.scale.data.assign(5, 2.f);
    REQUIRE(run(context, {s.x.tensor(), one.tensor()}, outputs) == STRIDEC_OK);
    CHECK(elements<float>(outputs[0]) == s.y());
  }
  SUBCASE("unaligned") {
    std::vector<char> bytes(15 * 4 + 1);
    memcpy(bytes.data() + 1, s.x.data.data(), 60);
    stridec_tensor t = s.x.tensor();
    t.data = bytes.data();
    t.byte_offset = 1;
    REQUIRE(run(context, {t, s.scale.tensor()}, outputs) == STRIDEC_OK);
    CHECK(elements<float>(outputs[0]) == s.y());
  }
  SUBCASE("strides that say compact cost no copy") {
    s.x.strides = {5, 1};
    REQUIRE(run(context, {s.x.tensor(), s.scale.tensor()}, outputs) == STRIDEC_OK);
    stridec_memory_info memory = {.struct_size = sizeof memory};
    api().context_memory(context.handle, &memory);
    CHECK(memory.staging_bytes == 128);  // the two outputs owned by the context
  }
}

TEST_CASE("strided outputs are scattered, and only their elements are written") {
  Model model(scale());
  Context context(model);
  Scale s(3, 5);
  Array<float> y({3, 5});
  y.data.assign(60, -1.f);
  y.strides = {2, -8};
  y.first = 40;
  Array<float> total({3});
  std::vector<stridec_tensor> outputs = {y.tensor(), total.tensor()};
  REQUIRE(run(context, s.inputs(), outputs) == STRIDEC_OK);
  std::vector<float> expected(60, -1.f);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 5; ++j) expected[40 + 2 * i - 8 * j] = s.y()[i * 5 + j];
  CHECK(y.data == expected);
}

TEST_CASE("large strided tensors are copied by any number of threads") {
  Model model(scale());
  Scale s(61, 1021);  // more bytes than one thread copies
  Array<float> x({61, 1021}), y({61, 1021}), total({61});
  x.strides = y.strides = {1, 61};
  for (int i = 0; i < 61; ++i)
    for (int j = 0; j < 1021; ++j) x.data[j * 61 + i] = s.x.data[i * 1021 + j];
  for (int32_t threads : {1, 2, 3, 8}) {
    Context context(model, threads);
    y.data.assign(y.data.size(), -1.f);
    std::vector<stridec_tensor> outputs = {y.tensor(), total.tensor()};
    REQUIRE(run(context, {x.tensor(), s.scale.tensor()}, outputs) == STRIDEC_OK);
    const std::vector<float> expected = s.y();
    int wrong = 0;
    for (int i = 0; i < 61; ++i)
      for (int j = 0; j < 1021; ++j) wrong += y.data[j * 61 + i] != expected[i * 1021 + j];
    CHECK(wrong == 0);
  }
}

TEST_CASE("tensors in the declared order are used where they are, others are copied into it") {
  const int32_t columns_first[] = {1, 0};
  stridec_abi_module program = scale();
  stridec_abi_function function = *program.functions;
  stridec_abi_value x_value = function.inputs[0], y_value = function.outputs[0];
  x_value.memory_order = y_value.memory_order = columns_first;
  stridec_abi_value inputs[] = {x_value, function.inputs[1]}, results[] = {y_value, function.outputs[1]};
  function.inputs = inputs, function.outputs = results, program.functions = &function;
  Model model(program);
  stridec_value_info info = {.struct_size = sizeof info};
  REQUIRE(api().model_input(model.handle, 0, &info) == STRIDEC_OK);
  CHECK(info.memory_order == columns_first);
  REQUIRE(api().model_input(model.handle, 1, &info) == STRIDEC_OK);
  CHECK(info.memory_order == nullptr);
  Context context(model);
  Scale s(4, 4);  // kernels multiply rows of memory, which are the columns of x
  std::vector<stridec_tensor> outputs = {kNothing, kNothing};
  SUBCASE("declared") {
    s.x.strides = {1, 4};
    REQUIRE(run(context, s.inputs(), outputs) == STRIDEC_OK);
    CHECK(elements<float>(outputs[0]) == s.y());
    REQUIRE(outputs[0].strides);
    CHECK(std::vector(outputs[0].strides, outputs[0].strides + 2) == std::vector<int64_t>{1, 4});
    CHECK(outputs[1].strides == nullptr);
    stridec_memory_info memory = {.struct_size = sizeof memory};
    api().context_memory(context.handle, &memory);
    CHECK(memory.staging_bytes == 128);  // the two outputs owned by the context
  }
  SUBCASE("row-major") {
    Array<float> t = s.x, y({4, 4}), total({4});
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) t.data[j * 4 + i] = s.x.data[i * 4 + j];
    outputs = {y.tensor(), total.tensor()};
    REQUIRE(run(context, {t.tensor(), s.scale.tensor()}, outputs) == STRIDEC_OK);
    const std::vector<float> expected = s.y();
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) CHECK(y.data[j * 4 + i] == expected[i * 4 + j]);
  }
}

TEST_CASE("a larger output takes the result at its beginning, and its shape is set") {
  Model model(scale());
  Context context(model);
  Scale s(2, 3);
  Array<float> total({2});
  SUBCASE("more rows, compact") {
    Array<float> y({4, 3}, -1.f);
    std::vector<stridec_tensor> outputs = {y.tensor(), total.tensor()};
    REQUIRE(run(context, s.inputs(), outputs) == STRIDEC_OK);
    CHECK(y.shape == std::vector<int64_t>{2, 3});
    CHECK(std::vector<float>(y.data.begin(), y.data.begin() + 6) == s.y());
    CHECK(y.data[6] == -1.f);
  }
  SUBCASE("more columns need strides") {
    Array<float> y({2, 4}, -1.f);
    std::vector<stridec_tensor> outputs = {y.tensor(), total.tensor()};
    CHECK(run(context, s.inputs(), outputs) == STRIDEC_WRONG_SHAPE);
    CHECK(context.error() == "output 'y': its shape is [2, 4]; expected [2, 3]");
    y.strides = {4, 1};
    outputs[0] = y.tensor();
    REQUIRE(run(context, s.inputs(), outputs) == STRIDEC_OK);
    CHECK(y.data[3] == -1.f);
    CHECK(y.data[4] == s.y()[3]);
  }
}

TEST_CASE("guards and bad arguments answer with a status and a sentence") {
  Model model(scale());
  Context context(model);
  Scale s(2, 3);
  Array<float> y({2, 3}), total({2});
  std::vector<stridec_tensor> inputs = s.inputs(), outputs = {y.tensor(), total.tensor()};
  auto fails = [&](stridec_status status, const char* sentence) {
    CHECK(run(context, inputs, outputs) == status);
    CHECK(context.error() == sentence);
  };
  SUBCASE("guard") {
    Scale big(65, 3);
    inputs = big.inputs();
    fails(STRIDEC_WRONG_SHAPE, "input 'x': dim 0 (batch) is 65; this artifact serves 1..64");
  }
  SUBCASE("guard with two values") {
    Array<float> other({4});
    inputs[1] = other.tensor();
    fails(STRIDEC_WRONG_SHAPE, "input 'scale': dim 0 is 4; it must equal n, which is 3");
  }
  SUBCASE("rank") {
    inputs[0].ndim = 1;
    fails(STRIDEC_WRONG_TYPE, "input 'x': it has 1 dim; expected 2");
  }
  SUBCASE("dtype") {
    inputs[0].dtype = {STRIDEC_DTYPE_INT, 32, 1};
    fails(STRIDEC_WRONG_TYPE, "input 'x': its dtype is i32; expected f32");
  }
  SUBCASE("odd dtype") {
    inputs[0].dtype = {5, 64, 2};
    fails(STRIDEC_WRONG_TYPE, "input 'x': its dtype is DLPack code 5 with 64 bits and 2 lanes; expected f32");
  }
  SUBCASE("device") {
    inputs[0].device.type = 2;
    fails(STRIDEC_WRONG_TYPE,
          "input 'x': it is on a device of DLPack type 2; expected memory of the CPU (type 1)");
  }
  SUBCASE("null data") {
    inputs[1].data = nullptr;
    fails(STRIDEC_INVALID_ARGUMENT, "input 'scale': its data is null");
  }
  SUBCASE("null shape") {
    inputs[1].shape = nullptr;
    fails(STRIDEC_INVALID_ARGUMENT, "input 'scale': its shape is null");
  }
  SUBCASE("negative dim") {
    s.x.shape[1] = -3;
    fails(STRIDEC_WRONG_SHAPE, "input 'x': dim 1 is -3");
  }
  SUBCASE("sizes beyond memory") {
    s.x.shape = {int64_t{1} << 40, int64_t{1} << 40};
    inputs[0] = s.x.tensor();
    fails(STRIDEC_WRONG_SHAPE,
          "input 'x': its shape [1099511627776, 1099511627776] is more than memory can hold");
  }
  SUBCASE("strides beyond memory") {
    s.x.strides = {INT64_MIN, 1};
    inputs[0] = s.x.tensor();
    fails(STRIDEC_WRONG_SHAPE, "input 'x': its strides reach further than memory can");
  }
  SUBCASE("counts") {
    inputs.pop_back();
    fails(STRIDEC_INVALID_ARGUMENT, "the model has 2 inputs; 1 given");
  }
  SUBCASE("null array") {
    CHECK(api().context_run(context.handle, nullptr, 2, outputs.data(), 2) == STRIDEC_INVALID_ARGUMENT);
    CHECK(context.error() == "the array of inputs is null");
    CHECK(api().context_run(context.handle, inputs.data(), 2, nullptr, 2) == STRIDEC_INVALID_ARGUMENT);
    CHECK(context.error() == "the array of outputs is null");
  }
  SUBCASE("output too small") {
    Array<float> small({1, 3});
    outputs[0] = small.tensor();
    fails(STRIDEC_WRONG_SHAPE, "output 'y': its shape is [1, 3]; expected [2, 3]");
  }
  SUBCASE("output dtype") {
    Array<double> wide({2, 3});
    outputs[0] = wide.tensor();
    fails(STRIDEC_WRONG_TYPE, "output 'y': its dtype is f64; expected f32");
  }
  SUBCASE("overlapping output strides") {
    y.strides = {1, 1};
    outputs[0] = y.tensor();
    fails(STRIDEC_INVALID_ARGUMENT, "output 'y': its strides make elements overlap");
  }
  SUBCASE("output over input") {
    outputs[0] = s.x.tensor();
    fails(STRIDEC_INVALID_ARGUMENT, "output 'y' and input 'x' share memory");
  }
  SUBCASE("outputs over each other") {
    outputs[1] = y.tensor();
    outputs[1].ndim = 1;
    fails(STRIDEC_INVALID_ARGUMENT, "outputs 'total' and 'y' share memory");
  }
  // After any failure, the context can be used for the next run.
  Scale good(2, 3);
  std::vector<stridec_tensor> fine = {kNothing, kNothing};
  CHECK(run(context, good.inputs(), fine) == STRIDEC_OK);
  CHECK(context.error() == "");
}

TEST_CASE("output shapes are known before a run where they do not depend on data") {
  Model model(scale());
  Context context(model);
  Scale s(7, 9);
  std::vector<stridec_tensor> inputs = s.inputs();
  for (stridec_tensor& t : inputs) t.data = nullptr;
  int64_t y[2] = {}, total[1] = {};
  stridec_tensor outputs[2] = {};
  outputs[0].shape = y;
  outputs[1].shape = total;
  REQUIRE(api().context_output_shapes(context.handle, inputs.data(), 2, outputs, 2) == STRIDEC_OK);
  CHECK(outputs[0].ndim == 2);
  CHECK(outputs[0].dtype.bits == 32);
  CHECK(y[0] == 7);
  CHECK(y[1] == 9);
  CHECK(total[0] == 7);
}

TEST_CASE("sizes that depend on data: unknown before, real after, in the context's or the caller's memory") {
  Model model(nonzero());
  Context context(model);
  Array<float> x({6}, std::vector<float>{0, 1, 0, 2, 3, 0});
  std::vector<stridec_tensor> inputs = {x.tensor()};
  int64_t dims[1] = {7};
  stridec_tensor shape_only = {};
  shape_only.shape = dims;
  REQUIRE(api().context_output_shapes(context.handle, inputs.data(), 1, &shape_only, 1) == STRIDEC_OK);
  CHECK(dims[0] == -1);
  std::vector<int64_t> found = {1, 3, 4};
  SUBCASE("the context's") {
    std::vector<stridec_tensor> outputs = {kNothing};
    REQUIRE(run(context, inputs, outputs) == STRIDEC_OK);
    CHECK(elements<int64_t>(outputs[0]) == found);
  }
  SUBCASE("the caller's, compact") {
    Array<int64_t> index({6}, -1);
    std::vector<stridec_tensor> outputs = {index.tensor()};
    REQUIRE(run(context, inputs, outputs) == STRIDEC_OK);
    CHECK(index.shape[0] == 3);
    CHECK(index.data == std::vector<int64_t>{1, 3, 4, -1, -1, -1});
  }
  SUBCASE("the caller's, strided") {
    Array<int64_t> index({6});
    index.data.assign(12, -1);
    index.strides = {2};
    std::vector<stridec_tensor> outputs = {index.tensor()};
    REQUIRE(run(context, inputs, outputs) == STRIDEC_OK);
    CHECK(std::vector<int64_t>(index.data.begin(), index.data.begin() + 6) ==
          std::vector<int64_t>{1, -1, 3, -1, 4, -1});
  }
  SUBCASE("the caller's, too small") {
    Array<int64_t> index({2}, -1);
    std::vector<stridec_tensor> outputs = {index.tensor()};
    CHECK(run(context, inputs, outputs) == STRIDEC_WRONG_SHAPE);
    CHECK(context.error() == "output 'index': its shape is [2]; expected [3]");
    CHECK(index.data == std::vector<int64_t>{-1, -1});
  }
  SUBCASE("none found") {
    x.data.assign(6, 0.f);
    std::vector<stridec_tensor> outputs = {kNothing};
    REQUIRE(run(context, inputs, outputs) == STRIDEC_OK);
    CHECK(shape_of(outputs[0]) == std::vector<int64_t>{0});
    CHECK(outputs[0].data != nullptr);
  }
}

TEST_CASE("tensors without elements may have no data") {
  Model model(nonzero());
  Context context(model);
  Array<float> x({0});
  stridec_tensor t = x.tensor();
  t.data = nullptr;
  std::vector<stridec_tensor> outputs = {kNothing};
  REQUIRE(run(context, {t}, outputs) == STRIDEC_OK);
  CHECK(outputs[0].shape[0] == 0);
}

TEST_CASE("shapes that depend on an input's values are read before the run, also through strides") {
  Model model(expand());
  Context context(model);
  Array<int64_t> shape({2}, std::vector<int64_t>{3, 9, 2});
  shape.strides = {2};
  Array<float> x({}, 4.f);
  std::vector<stridec_tensor> inputs = {shape.tensor(), x.tensor()};
  int64_t dims[2];
  stridec_tensor shape_only = {};
  shape_only.shape = dims;
  REQUIRE(api().context_output_shapes(context.handle, inputs.data(), 2, &shape_only, 1) == STRIDEC_OK);
  CHECK(dims[0] == 3);
  CHECK(dims[1] == 2);
  std::vector<stridec_tensor> outputs = {kNothing};
  REQUIRE(run(context, inputs, outputs) == STRIDEC_OK);
  CHECK(elements<float>(outputs[0]) == std::vector<float>(6, 4.f));

  inputs[0].data = nullptr;
  REQUIRE(api().context_output_shapes(context.handle, inputs.data(), 2, &shape_only, 1) == STRIDEC_OK);
  CHECK(dims[0] == -1);
  REQUIRE(api().context_reserve(context.handle, inputs.data(), 2, nullptr, 0) == STRIDEC_OK);
  stridec_memory_info memory = {.struct_size = sizeof memory};
  api().context_memory(context.handle, &memory);
  CHECK(memory.arena_bytes >= 100 * 100 * 4);  // sized by the maximum

  shape.data[2] = 101;
  inputs[0] = shape.tensor();
  CHECK(run(context, inputs, outputs) == STRIDEC_WRONG_SHAPE);
  CHECK(context.error() == "input 'shape': element 1 is 101; this artifact serves 0..100");
}

TEST_CASE("bad data in a kernel is an error with a sentence, the same for every number of threads") {
  Model model(gather());
  Array<float> table({5, 4}, 1.f);
  Array<int64_t> index({1000}, 2);
  for (int64_t bad : {17, 300, 301, 999}) index.data[bad] = 5 + bad;
  for (int32_t threads : {1, 2, 3, 8}) {
    Context context(model, threads);
    std::vector<stridec_tensor> outputs = {kNothing};
    for (int repeat = 0; repeat < 20; ++repeat) {
      CHECK(run(context, {table.tensor(), index.tensor()}, outputs) == STRIDEC_BAD_DATA);
      CHECK(context.error() == "Gather 'g': index 22 at position 17 is outside [-5, 5)");
    }
  }
}

TEST_CASE("state starts at its initial value, lives across runs, is saved, restored and reset") {
  Model model(counter());
  Context context(model), other(model);
  Array<float> x({4}, 1.f);
  Array<float> sum({4});
  std::vector<stridec_tensor> outputs = {sum.tensor()};
  REQUIRE(run(context, {x.tensor()}, outputs) == STRIDEC_OK);
  CHECK(sum.data == std::vector<float>{1.5f, 11.f, 21.f, 31.f});
  REQUIRE(run(context, {x.tensor()}, outputs) == STRIDEC_OK);
  CHECK(sum.data[0] == 2.5f);

  stridec_tensor total = {}, calls = {};
  REQUIRE(api().context_state(context.handle, 0, &total) == STRIDEC_OK);
  REQUIRE(api().context_state(context.handle, 1, &calls) == STRIDEC_OK);
  CHECK(shape_of(total) == std::vector<int64_t>{4});
  CHECK(calls.ndim == 0);
  CHECK(elements<int64_t>(calls) == std::vector<int64_t>{2});
  std::vector<float> saved = elements<float>(total);

  // Contexts are independent.
  REQUIRE(run(other, {x.tensor()}, outputs) == STRIDEC_OK);
  CHECK(sum.data[0] == 1.5f);

  REQUIRE(api().context_reset_state(context.handle, 1) == STRIDEC_OK);
  CHECK(elements<int64_t>(calls) == std::vector<int64_t>{0});
  CHECK(elements<float>(total) == saved);
  REQUIRE(api().context_reset_state(context.handle, -1) == STRIDEC_OK);
  CHECK(elements<float>(total) == std::vector<float>(weights, weights + 4));
  memcpy(total.data, saved.data(), 16);
  REQUIRE(run(context, {x.tensor()}, outputs) == STRIDEC_OK);
  CHECK(sum.data[0] == 3.5f);

  CHECK(api().context_state(context.handle, 2, &total) == STRIDEC_INVALID_ARGUMENT);
  CHECK(context.error() == "there is no state 2; the model has 2");
  CHECK(api().context_reset_state(context.handle, -2) == STRIDEC_INVALID_ARGUMENT);
  stridec_value_info value = {.struct_size = sizeof value};
  CHECK(api().model_state(model.handle, 0, &value) == STRIDEC_OK);
  CHECK(std::string(value.name) == "total");
}

TEST_CASE("types that NumPy lacks come as unsigned integers, narrow ones a byte each") {
  Model model(narrow());
  Context context(model);
  Array<uint16_t> x({3}, std::vector<uint16_t>{0x3f80, 0x4000, 0x7fc0}), y({3});
  Array<uint8_t> q({2}, std::vector<uint8_t>{15, 7}), r({2});
  std::vector<stridec_tensor> outputs = {y.tensor(), r.tensor()};
  REQUIRE(run(context, {x.tensor(), q.tensor()}, outputs) == STRIDEC_OK);
  CHECK(y.data == x.data);
  CHECK(r.data == q.data);
  stridec_tensor bf16 = x.tensor();
  bf16.dtype = {STRIDEC_DTYPE_BFLOAT, 16, 1};
  CHECK(run(context, {bf16, q.tensor()}, outputs) == STRIDEC_OK);
  stridec_tensor packed = q.tensor();
  packed.dtype.bits = 4;  // DLPack's u4: two per byte
  CHECK(run(context, {bf16, packed}, outputs) == STRIDEC_WRONG_TYPE);
  CHECK(context.error() == "input 'q': its dtype is DLPack code 1 with 4 bits; expected u4");
}

namespace {

// Counts allocations, and refuses them beyond a limit.
struct Counted {
  std::map<void*, size_t> live;
  size_t calls = 0, limit = SIZE_MAX;
  static void* allocate(void* user, size_t bytes, size_t alignment) {
    auto& self = *static_cast<Counted*>(user);
    ++self.calls;
    if (bytes > self.limit) return nullptr;
    void* memory = aligned_alloc(alignment, bytes);
    self.live[memory] = bytes;
    return memory;
  }
  static void release(void* user, void* memory, size_t bytes) {
    auto& self = *static_cast<Counted*>(user);
    CHECK(self.live.at(memory) == bytes);
    self.live.erase(memory);
    free(memory);
  }
  stridec_context_options options() {
    return {.struct_size = sizeof(stridec_context_options),
            .threads = 2,
            .allocate = allocate,
            .release = release,
            .memory_user = this};
  }
};

}  // namespace

TEST_CASE("after a run at a shape, runs at it and at smaller ones allocate nothing; all is given back") {
  Counted counted;
  {
    Model model(scale());
    stridec_context_options options = counted.options();
    Context context(model.handle, &options);
    REQUIRE(context.status == STRIDEC_OK);
    Scale s(8, 100), smaller(3, 10), larger(64, 4096);
    s.x.strides = {1, 8};  // staged
    std::vector<stridec_tensor> outputs = {kNothing, kNothing};
    REQUIRE(run(context, s.inputs(), outputs) == STRIDEC_OK);
    size_t calls = counted.calls;
    for (int i = 0; i < 5; ++i) {
      outputs.assign(2, kNothing);
      REQUIRE(run(context, i % 2 ? smaller.inputs() : s.inputs(), outputs) == STRIDEC_OK);
    }
    CHECK(counted.calls == calls);

    larger.x.strides = {1, 64};
    REQUIRE(api().context_reserve(context.handle, larger.inputs().data(), 2,
                                  std::vector<stridec_tensor>(2, kNothing).data(), 2) == STRIDEC_OK);
    calls = counted.calls;
    outputs.assign(2, kNothing);
    REQUIRE(run(context, larger.inputs(), outputs) == STRIDEC_OK);
    CHECK(counted.calls == calls);
    stridec_memory_info memory = {.struct_size = sizeof memory};
    REQUIRE(api().context_memory(context.handle, &memory) == STRIDEC_OK);
    CHECK(memory.allocations == calls);
    CHECK(memory.arena_bytes == 64 * 4096 * 4 + 64 * options.threads);
  }
  CHECK(counted.live.empty());
}

TEST_CASE("no memory is a status and a sentence, and a smaller run still works") {
  Counted counted;
  counted.limit = 4096;
  Model model(scale());
  stridec_context_options options = counted.options();
  Context context(model.handle, &options);
  Scale big(64, 4096), small(2, 3);
  Array<float> y({64, 4096}), total({64});
  std::vector<stridec_tensor> outputs = {y.tensor(), total.tensor()};
  CHECK(run(context, big.inputs(), outputs) == STRIDEC_OUT_OF_MEMORY);
  CHECK(context.error() == "no memory for the workspace (1048704 bytes)");
  outputs = {kNothing, kNothing};
  CHECK(run(context, small.inputs(), outputs) == STRIDEC_OK);
}

TEST_CASE("the profile counts calls and time of each step") {
  Model model(scale());
  Context context(model);
  Scale s(4, 1000);
  std::vector<stridec_tensor> outputs = {kNothing, kNothing};
  stridec_step_profile step = {.struct_size = sizeof step};
  REQUIRE(run(context, s.inputs(), outputs) == STRIDEC_OK);
  CHECK(api().context_step(context.handle, 0, &step) == STRIDEC_OK);
  CHECK(step.calls == 0);
  REQUIRE(api().context_profile(context.handle, 1) == STRIDEC_OK);
  for (int i = 0; i < 3; ++i) run(context, s.inputs(), outputs);
  REQUIRE(api().context_profile(context.handle, 0) == STRIDEC_OK);
  run(context, s.inputs(), outputs);
  const char* names[] = {"multiply", "add", "sum"};
  for (int i = 0; i < 3; ++i) {
    REQUIRE(api().context_step(context.handle, i, &step) == STRIDEC_OK);
    CHECK(std::string(step.name) == names[i]);
    CHECK(step.calls == 3);
    CHECK(step.nanoseconds >= step.minimum * 3);
    CHECK(step.minimum > 0);
  }
  CHECK(api().context_step(context.handle, 3, &step) == STRIDEC_INVALID_ARGUMENT);
}

#if defined(__x86_64__)
TEST_CASE("kernels compute in the default floating-point mode, and the caller's comes back") {
  Model model(scale());
  Context context(model);
  Array<float> x({1, 1}, 1e-39f), scale_by({1}, 1.f);  // a denormal
  std::vector<stridec_tensor> outputs = {kNothing, kNothing};
  uint32_t before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | 0x8040);  // flush to zero
  stridec_status status = run(context, {x.tensor(), scale_by.tensor()}, outputs);
  uint32_t after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  REQUIRE(status == STRIDEC_OK);
  CHECK((after & 0x8040) == 0x8040);
  CHECK(elements<float>(outputs[1])[0] == 1e-39f);
}
#endif
