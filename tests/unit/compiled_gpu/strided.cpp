// Strided tensors on a fake driver: the kernel of the artifact that copies them is emulated.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/build.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/graph/builder.h"
#include "compiler/ops/op_table.h"
#include "tests/support/emulate.h"
#include "tests/support/fake_cuda.h"
#include "tests/unit/compiled_gpu/harness.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

// Emulates the kernel that copies strided tensors.
void register_copies() {
  static const codegen::DeviceKernel kernel = codegen::cuda::emit_copy();
  static const std::string symbol = codegen::cuda::named(kernel, gpu_target("sm_90a")).symbol;
  fake_cuda_register(
      symbol.c_str(),
      [](const FakeLaunch* launch, void*) {
        std::vector<int64_t> words(launch->parameter_bytes / 8);
        std::memcpy(words.data(), launch->parameters, launch->parameter_bytes);
        test::emulate_launch(kernel, launch->grid[0], words.data());
      },
      nullptr);
}

// A tensor of bytes in random memory: dims in a random order, with gaps, backwards, and for inputs repeated.
struct Scattered {
  std::vector<uint8_t> bytes;
  std::vector<int64_t> dims, strides;
  int64_t first = 0, width;  // bytes

  Scattered(const std::vector<int64_t>& dims, int64_t width, bool repeats, std::mt19937& draw)
      : dims(dims), strides(dims.size()), width(width) {
    std::vector<size_t> order(dims.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), draw);
    int64_t reach = 1 + draw() % 3 / 2;
    for (const size_t d : order) {
      strides[d] = reach;
      reach *= dims[d] + draw() % 4 / 3;
      if (repeats && draw() % 8 == 0) strides[d] = 0;
    }
    first = static_cast<int64_t>(draw() % 5);
    if (draw() % 3) first *= width;
    for (size_t d = 0; d < dims.size(); ++d)
      if (draw() % 4 == 0) {
        first += strides[d] * std::max<int64_t>(dims[d] - 1, 0) * width;
        strides[d] = -strides[d];
      }
    bytes.resize(static_cast<size_t>((reach + 8) * width + first));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(draw());
  }
  // Calls visit(offset in bytes) for each element, in the order of the dims.
  template <class Visit>
  void each(const Visit& visit) const {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, at = first;
      for (size_t d = dims.size(); d-- > 0; rest /= dims[d]) at += rest % dims[d] * strides[d] * width;
      visit(static_cast<size_t>(at));
    }
  }
  std::vector<uint8_t> compact() const {
    std::vector<uint8_t> out;
    each([&](size_t at) {
      out.insert(out.end(), bytes.begin() + static_cast<ptrdiff_t>(at),
                 bytes.begin() + static_cast<ptrdiff_t>(at) + width);
    });
    return out;
  }
  stridec_tensor tensor(stridec_dtype dtype) {
    stridec_tensor t{};
    t.data = bytes.data();
    t.byte_offset = static_cast<uint64_t>(first);
    t.device = {STRIDEC_DEVICE_CUDA, 0};
    t.ndim = static_cast<int32_t>(dims.size());
    t.dtype = dtype;
    t.shape = dims.data();
    t.strides = strides.data();
    return t;
  }
};

// y = |x|, of any type and rank. The tests' kernel copies bytes.
graph::Graph same_shape(DType dtype, size_t rank) {
  graph::Graph g;
  g.name = "same";
  graph::Builder b(g, ops::shape_table());
  std::vector<sym::Expr> dims;
  for (size_t d = 0; d < rank; ++d) dims.push_back(sym::var(cat("d", d)));
  b.output("y", b.add1(graph::OpKind::kAbs, {b.input("x", {dtype, dims})}));
  return g;
}

}  // namespace

TEST_CASE("strided and offset tensors, of the host and of the device") {
  const Artifact artifact(0, {"cuda"});
  Running running(artifact);
  REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
  register_negation(2 * kWidth);
  register_copies();
  struct Form {
    const char* name;
    int64_t first, strides[2];  // in elements
  };
  constexpr Form kForms[] = {{"in one piece", 0, {kWidth, 1}},
                             {"behind other elements", 3, {kWidth, 1}},
                             {"every other row", 0, {2 * kWidth, 1}},
                             {"every third column", 5, {3 * kWidth, 3}},
                             {"transposed", 0, {1, 2}},
                             {"backwards", 2 * kWidth - 1, {-kWidth, -1}},
                             {"one row for all", 4, {0, 1}}};
  int64_t downloads = 0;
  const auto at = [](const Form& form, int64_t i) {
    return static_cast<size_t>(form.first + i / kWidth * form.strides[0] + i % kWidth * form.strides[1]);
  };
  for (const int device : {STRIDEC_DEVICE_CPU, STRIDEC_DEVICE_CUDA})
    for (const Form& from : kForms)
      for (const Form& to : kForms) {
        INFO("from ", from.name, ", to ", to.name, device == STRIDEC_DEVICE_CUDA ? ", on the device" : "");
        std::vector<float> x(8 * kWidth), y(8 * kWidth, 99.0f);
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
        int64_t in_shape[] = {2, kWidth}, out_shape[] = {2, kWidth};
        std::vector<float> two(2 * kWidth);
        stridec_tensor in = Running::tensor(two, in_shape, device), out = in;
        out.shape = out_shape;
        int64_t in_strides[] = {from.strides[0], from.strides[1]},
                out_strides[] = {to.strides[0], to.strides[1]};
        in.data = x.data(), in.strides = in_strides,
        in.byte_offset = sizeof(float) * static_cast<size_t>(from.first);
        out.data = y.data(), out.strides = out_strides,
        out.byte_offset = sizeof(float) * static_cast<size_t>(to.first);
        const stridec_status status = running.api->context_run(running.context, &in, 1, &out, 1);
        if (!to.strides[0]) {
          CHECK(status == STRIDEC_INVALID_ARGUMENT);
          CHECK(running.error().find("overlap") != std::string::npos);
          continue;
        }
        REQUIRE_MESSAGE(status == STRIDEC_OK, running.error());
        std::vector<float> want(y.size(), 99.0f);
        for (int64_t i = 0; i < 2 * kWidth; ++i) want[at(to, i)] = -x[at(from, i)];
        CHECK(y == want);
        if (device == STRIDEC_DEVICE_CUDA) CHECK(fake_cuda_counts()->downloads == downloads);
        downloads = fake_cuda_counts()->downloads;
      }
  fake_cuda_reset();
}

TEST_CASE("the kernel that copies strided tensors: every width, many ranks, any order, misaligned") {
  struct Kind {
    DType dtype;
    stridec_dtype given;
    std::vector<std::vector<int64_t>> shapes;
  };
  const Kind kinds[] = {
      {DType::kU8,
       {STRIDEC_DTYPE_UINT, 8, 1},
       {{2, 1, 3, 2, 2, 3, 1, 2, 2, 3, 2, 2}, {3, 2, 2, 2, 3, 1, 2, 2, 2, 3, 2, 3}}},
      {DType::kF16,
       {STRIDEC_DTYPE_FLOAT, 16, 1},
       {{2, 3, 33, 17}, {1, 70, 1, 33}, {5, 4, 3, 2}, {2, 3, 0, 5}}},
      {DType::kF32, {STRIDEC_DTYPE_FLOAT, 32, 1}, {{2, 70, 66}, {1, 1, 1}, {2, 1, 1300}}},
      {DType::kI64, {STRIDEC_DTYPE_INT, 64, 1}, {{}}},
      {DType::kF64, {STRIDEC_DTYPE_FLOAT, 64, 1}, {{33}, {1030}}},
  };  // fmt: skip
  std::mt19937 draw(7);
  for (const Kind& kind : kinds) {
    const Artifact artifact(same_shape(kind.dtype, kind.shapes[0].size()), {"cuda"});
    Running running(artifact);
    REQUIRE_MESSAGE(running.status == STRIDEC_OK, running.message);
    static size_t bytes;
    fake_cuda_register(
        nullptr,
        [](const FakeLaunch* launch, void*) {
          void* ends[2];
          std::memcpy(ends, launch->parameters, sizeof ends);
          std::memcpy(ends[1], ends[0], bytes);
        },
        nullptr);
    register_copies();
    for (const std::vector<int64_t>& shape : kind.shapes)
      for (int trial = 0; trial < 3; ++trial) {
        const int64_t width = byte_size(kind.dtype);
        Scattered x(shape, width, true, draw), y(shape, width, false, draw);
        const std::vector<uint8_t> values = x.compact();
        std::vector<uint8_t> want = y.bytes;
        size_t next = 0;
        y.each([&](size_t at) {
          std::copy_n(values.begin() + static_cast<ptrdiff_t>(next), width,
                      want.begin() + static_cast<ptrdiff_t>(at));
          next += static_cast<size_t>(width);
        });
        bytes = values.size();
        stridec_tensor in = x.tensor(kind.given), out = y.tensor(kind.given);
        REQUIRE_MESSAGE(running.api->context_run(running.context, &in, 1, &out, 1) == STRIDEC_OK,
                        running.error());
        CHECK(y.bytes == want);
      }
    CHECK(fake_cuda_counts()->downloads == 0);
    CHECK(fake_cuda_counts()->uploads == 0);
  }
  fake_cuda_reset();
}
