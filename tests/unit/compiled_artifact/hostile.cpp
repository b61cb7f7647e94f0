// Calls an artifact with invalid or unusual tensors: it must report an error or compute the right result.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/op_table.h"
#include "tests/unit/compiled_artifact/harness.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

// rows[k, n] = table[index[k], n]
graph::Graph lookup() {
  graph::Graph g;
  g.name = "lookup";
  graph::Builder b(g, ops::shape_table());
  const sym::Expr m = sym::var("m"), n = sym::var("n"), k = sym::var("k");
  const graph::ValueId table = b.input("table", {DType::kF32, {m, n}});
  const graph::ValueId index = b.input("index", {DType::kI64, {k}});
  b.output("rows", ops::gather(b, table, index, 0));
  return g;
}

struct Tensors {
  std::vector<float> table = std::vector<float>(64), rows = std::vector<float>(64);
  std::vector<int64_t> index = {0, 2, 1};
  int64_t table_shape[2] = {3, 4}, index_shape[1] = {3}, rows_shape[2] = {3, 4};
  int64_t table_strides[2] = {4, 1}, index_strides[1] = {1}, rows_strides[2] = {4, 1};
  stridec_tensor inputs[2] = {}, output = {};

  Tensors() {
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
    const stridec_device cpu = {STRIDEC_DEVICE_CPU, 0};
    inputs[0] = {table.data(), cpu, 2, {STRIDEC_DTYPE_FLOAT, 32, 1}, table_shape, table_strides, 0};
    inputs[1] = {index.data(), cpu, 1, {STRIDEC_DTYPE_INT, 64, 1}, index_shape, index_strides, 0};
    output = {rows.data(), cpu, 2, {STRIDEC_DTYPE_FLOAT, 32, 1}, rows_shape, rows_strides, 0};
  }
};

struct Artifact {
  Folder folder;
  std::string path;
  Artifact() : path(folder.file("lookup.so")) {
    const Compilation made = compile({.model = write_graph(folder, lookup())});
    package::StagedArtifact(made.artifact, made.programs(), path).publish();
  }
};

const Artifact& artifact() {
  static const Artifact made;
  return made;
}

// The run's error message; "" on success.
std::string run(Loaded& loaded, Tensors& t) {
  const auto status = loaded.api->context_run(loaded.context, t.inputs, 2, &t.output, 1);
  return status == STRIDEC_OK ? "" : loaded.api->context_error(loaded.context);
}

}  // namespace

TEST_CASE("an artifact whose file was altered is refused where its hash is to be checked") {
  const auto open = [](const std::string& path, std::string& said) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(handle, dlerror());
    const auto get_api = reinterpret_cast<stridec_get_api_fn>(dlsym(handle, "stridec_get_api"));
    const stridec_api* api = get_api(STRIDEC_API_VERSION);
    const stridec_model_options options = {.struct_size = sizeof options, .flags = STRIDEC_MODEL_CHECK_HASH};
    stridec_model* model = nullptr;
    char message[256] = "";
    const stridec_status status = api->model_open(&options, &model, message, sizeof message);
    api->model_close(model);
    said = message;
    return status;
  };
  std::string said;
  CHECK(open(artifact().path, said) == STRIDEC_OK);
  std::string bytes = read_file(artifact().path);
  bytes[bytes.rfind("lookup")] = 'L';  // in the manifest
  const Folder folder;
  write_file(folder.file("altered.so"), bytes);
  CHECK(open(folder.file("altered.so"), said) == STRIDEC_BAD_ARTIFACT);
  CHECK(said.find("was altered since stridec wrote it") != said.npos);
}

TEST_CASE("hostile tensors: a right result or a sentence, and the context serves the next run") {
  Loaded loaded(artifact().path);
  Tensors t;
  std::string expected;  // the error message; "": the result is right
  SUBCASE("nothing unusual") {}
  SUBCASE("rows upside down") {
    t.inputs[0].byte_offset = 8 * sizeof(float);
    t.table_strides[0] = -4;
  }
  SUBCASE("both dims backwards, from the last element") {
    t.inputs[0].byte_offset = 11 * sizeof(float);
    t.table_strides[0] = -4;
    t.table_strides[1] = -1;
  }
  SUBCASE("every row the same memory") { t.table_strides[0] = 0; }
  SUBCASE("a byte beside an element's place") {
    std::memmove(reinterpret_cast<char*>(t.table.data()) + 1, t.table.data(), 12 * sizeof(float));
    t.inputs[0].byte_offset = 1;
    t.output.byte_offset = 3;
  }
  SUBCASE("indices apart, the last first") {
    t.index = {1, 9, 2, 9, 0};
    t.inputs[1].data = t.index.data();
    t.inputs[1].byte_offset = 4 * sizeof(int64_t);
    t.index_strides[0] = -2;
  }
  SUBCASE("an index beyond the table") {
    t.index[1] = 3;
    expected = "gather: index 3 is outside a dim of size 3";
  }
  SUBCASE("an index before it") {
    t.index[1] = -4;
    expected = "gather: index -4 is outside a dim of size 3";
  }
  SUBCASE("the largest index") {
    t.index[2] = INT64_MAX;
    expected = "gather: index 9223372036854775807 is outside a dim of size 3";
  }
  SUBCASE("the least index") {
    t.index[0] = INT64_MIN;
    expected = "gather: index -9223372036854775808 is outside a dim of size 3";
  }
  SUBCASE("the bits of a NaN as an index") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::memcpy(&t.index[0], &nan, sizeof nan);
    expected = "gather: index 9221120237041090560 is outside a dim of size 3";
  }
  SUBCASE("an empty table") {
    t.table_shape[0] = 0;
    expected = "gather: index 0 is outside a dim of size 0";
  }
  SUBCASE("no data") {
    t.inputs[0].data = nullptr;
    expected = "input 'table': its data is null";
  }
  SUBCASE("no shape") {
    t.inputs[1].shape = nullptr;
    expected = "input 'index': its shape is null";
  }
  SUBCASE("a negative extent") {
    t.table_shape[1] = -4;
    expected = "input 'table': dim 1 is -4";
  }
  SUBCASE("an extent of 2^62") {
    t.table_shape[0] = int64_t{1} << 62;
    expected = "input 'table': its shape [4611686018427387904, 4] is more than memory can hold";
  }
  SUBCASE("a result of 2^62 bytes, from inputs that share one element") {
    t.table_shape[1] = int64_t{1} << 40;
    t.index_shape[0] = int64_t{1} << 20;
    t.table_strides[0] = t.table_strides[1] = t.index_strides[0] = 0;
    t.output.data = nullptr;
    expected = "no memory for compact copies of inputs (13194147921920 bytes)";
  }
  SUBCASE("strides that reach around the address space") {
    t.table_strides[0] = INT64_MAX;
    expected = "input 'table': its strides reach further than memory can";
  }
  SUBCASE("the stride that has no magnitude") {
    t.table_strides[0] = INT64_MIN;
    expected = "input 'table': its strides reach further than memory can";
  }
  SUBCASE("a rank of a billion") {
    t.inputs[0].ndim = 1 << 30;
    expected = "input 'table': it has 1073741824 dims; expected 2";
  }
  SUBCASE("a rank below zero") {
    t.inputs[0].ndim = -1;
    expected = "input 'table': it has -1 dims; expected 2";
  }
  SUBCASE("another type") {
    t.inputs[1].dtype.bits = 32;
    expected = "input 'index': its dtype is i32; expected i64";
  }
  SUBCASE("memory of a GPU") {
    t.inputs[0].device.type = STRIDEC_DEVICE_CUDA;
    expected = "input 'table': it is on a device of DLPack type 2; expected memory of the CPU (type 1)";
  }
  SUBCASE("an output over itself") {
    t.rows_strides[0] = 1;
    expected = "output 'rows': its strides make elements overlap";
  }
  SUBCASE("an output over an input") {
    t.output.data = t.table.data() + 2;
    expected = "output 'rows' and input 'table' share memory";
  }
  SUBCASE("an output backwards over an input") {
    t.output.data = t.table.data() + 16;  // its last row is the table's
    t.rows_strides[0] = -4;
    expected = "output 'rows' and input 'table' share memory";
  }
  SUBCASE("an output too small") {
    t.rows_shape[0] = 2;
    expected = "output 'rows': its shape is [2, 4]; expected [3, 4]";
  }
  SUBCASE("an output of negative size") {
    t.rows_shape[0] = -3;
    expected = "output 'rows': dim 0 is -3";
  }
  const std::string sentence = run(loaded, t);
  REQUIRE(sentence == expected);
  if (expected.empty()) {
    const auto* from = static_cast<const char*>(t.inputs[0].data) + t.inputs[0].byte_offset;
    const auto* at = reinterpret_cast<const char*>(t.inputs[1].data) + t.inputs[1].byte_offset;
    const auto* made = static_cast<const char*>(t.output.data) + t.output.byte_offset;
    for (int64_t k = 0; k < 3; ++k)
      for (int64_t j = 0; j < 4; ++j) {
        int64_t row;
        std::memcpy(&row, at + k * t.index_strides[0] * 8, sizeof row);
        CHECK(std::memcmp(made + (k * 4 + j) * 4,
                          from + (row * t.table_strides[0] + j * t.table_strides[1]) * 4, 4) == 0);
      }
  }
  Tensors good;
  CHECK(run(loaded, good) == "");
}

// into[index[k]] = from[k] for indices cast from floats, as in a model that computes its indices; and from +
// from.
TEST_CASE("indices of a scatter that are not indices, and two outputs in one place") {
  graph::Graph g;
  g.name = "scatter";
  graph::Builder b(g, ops::shape_table());
  const sym::Expr n = sym::var("n"), k = sym::var("k");
  const graph::ValueId into = b.input("into", {DType::kF32, {n}}),
                       index = b.input("index", {DType::kF32, {k}}),
                       from = b.input("from", {DType::kF32, {k}});
  b.output("made", b.add1(graph::OpKind::kScatterElements, {into, ops::cast(b, index, DType::kI64), from},
                          {{"dim", int64_t{0}}, {"reduction", std::string("none")}}));
  b.output("more", b.add1(graph::OpKind::kAdd, {from, from}));
  const Folder folder;
  const Compilation made = compile({.model = write_graph(folder, std::move(g))});
  const std::string path = folder.file("scatter.so");
  package::StagedArtifact(made.artifact, made.programs(), path).publish();
  Loaded loaded(path);

  std::vector<float> data = {1, 2, 3, 4}, at = {0, 2}, values = {8, 9}, out(8), more(8);
  int64_t four[1] = {4}, two[1] = {2};
  const stridec_device cpu = {STRIDEC_DEVICE_CPU, 0};
  const auto tensor = [&](float* memory, int64_t* shape) {
    return stridec_tensor{memory, cpu, 1, {STRIDEC_DTYPE_FLOAT, 32, 1}, shape, nullptr, 0};
  };
  const auto answer = [&](float* second) -> std::string {
    stridec_tensor inputs[] = {tensor(data.data(), four), tensor(at.data(), two), tensor(values.data(), two)};
    stridec_tensor outputs[] = {tensor(out.data(), four), tensor(second, two)};
    return loaded.api->context_run(loaded.context, inputs, 3, outputs, 2) == STRIDEC_OK
               ? ""
               : loaded.api->context_error(loaded.context);
  };
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {4.0F, -5.0F, 1e30F, -infinity, infinity, std::nanf("")}) {
    at[1] = bad;
    const std::string sentence = answer(more.data());
    INFO(bad, ": ", sentence);
    CHECK(sentence.find("is outside a dim of size 4") != std::string::npos);
  }
  at[1] = -1;
  CHECK(answer(out.data() + 3) == "outputs 'more' and 'made' share memory");
  CHECK(answer(more.data()) == "");
  CHECK(std::vector<float>(out.begin(), out.begin() + 4) == std::vector<float>{8, 2, 3, 9});
  CHECK(more[1] == 18);
}

TEST_CASE("eight threads with a context each, some of them given bad indices") {
  Loaded loaded(artifact().path);
  std::vector<std::thread> threads;
  std::vector<int> wrong(8, 0);
  for (size_t n = 0; n < wrong.size(); ++n)
    threads.emplace_back([&, n] {
      stridec_context_options options = {};
      options.struct_size = sizeof options;
      options.threads = n % 2 ? 2 : 1;
      stridec_context* context = nullptr;
      if (loaded.api->context_create(loaded.model, &options, &context, nullptr, 0) != STRIDEC_OK) {
        wrong[n] = 1000;
        return;
      }
      for (int i = 0; i < 200; ++i) {
        Tensors t;
        const bool bad = i % 3 == static_cast<int>(n % 3);
        if (bad) t.index[1] = 3 + i;
        const auto status = loaded.api->context_run(context, t.inputs, 2, &t.output, 1);
        if (status != (bad ? STRIDEC_BAD_DATA : STRIDEC_OK)) ++wrong[n];
        if (!bad && (t.rows[0] != t.table[0] || t.rows[4] != t.table[8] || t.rows[11] != t.table[7]))
          ++wrong[n];
      }
      loaded.api->context_destroy(context);
    });
  for (auto& thread : threads) thread.join();
  for (int count : wrong) CHECK(count == 0);
}
