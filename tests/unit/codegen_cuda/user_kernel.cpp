// Kernels of users in CUDA, emulated: strides, narrow types, sizes of 0, shared memory.
#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/user_kernel.h"
#include "tests/support/emulate.h"

using namespace stridec;
using loop::UserKernel;

namespace {

std::string added(DType dtype, const std::string& source) {
  using Kind = UserKernel::Parameter::Kind;
  UserKernel kernel{.name = "acme::Op", .key = cat(name(dtype), source)};
  kernel.reads = {{.name = "x", .dtype = dtype, .rank = 2, .strides = UserKernel::Strides::kAny}};
  kernel.writes = {{.name = "y", .dtype = dtype, .rank = 2, .strides = UserKernel::Strides::kAny}};
  kernel.sizes = 1;
  kernel.types = {{"T", dtype}};
  kernel.threads = 32;
  kernel.cuda =
      UserKernel::Text{.source = source,
                       .place = "acme.json#/operators/0/body/kernel/cuda/text",
                       .function = "f",
                       .parameters = {{.kind = Kind::kData, .index = 0, .name = "x", .text = {}},
                                      {.kind = Kind::kStrides, .index = 0, .name = "x_strides", .text = {}},
                                      {.kind = Kind::kData, .index = 1, .name = "y", .text = {}},
                                      {.kind = Kind::kStrides, .index = 1, .name = "y_strides", .text = {}},
                                      {.kind = Kind::kSize, .index = 0, .name = "n", .text = {}}}};
  return loop::add_user_kernel(std::move(kernel));
}

}  // namespace

TEST_CASE("a kernel of the user writes the transpose of what it reads") {
  const std::string plain =
      "__global__ __launch_bounds__(\n  32) void f(const T* x, const int64_t* x_strides, T* y,\n"
      "    const int64_t* y_strides, int64_t n) {\n"
      "  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;\n"
      "  if (i >= 6 * n) return;\n"
      "  y[i / 6 * y_strides[0] + i % 6 * y_strides[1]] = x[i / 6 * x_strides[0] + i % 6 * x_strides[1]] * "
      "2;\n}\n";
  const std::string shared =
      "__global__ void f(const T* x, const int64_t* x_strides, T* y, const int64_t* y_strides, int64_t n) {\n"
      "  __shared__ float held[32];\n"
      "  const int64_t i = blockIdx.x * (int64_t)32 + threadIdx.x;\n"
      "  held[threadIdx.x] = i < 6 * n ? (float)x[i / 6 * x_strides[0] + i % 6 * x_strides[1]] : 0;\n"
      "  __syncthreads();\n"
      "  const int64_t j = blockIdx.x * (int64_t)32 + 31 - threadIdx.x;\n"
      "  if (j < 6 * n) y[j / 6 * y_strides[0] + j % 6 * y_strides[1]] = held[31 - threadIdx.x] * 2;\n}\n";
  for (const std::string& source : {plain, shared})
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kI64}) {
      INFO(name(dtype));
      const std::string routine = added(dtype, source);
      const loop::Program program = loop::parse_program(
          cat("program p\n  symbol n = input 0 dim 0 in 0..\n  input x ", name(dtype),
              " [n, 6] ordinal 0\n  output y ", name(dtype),
              " [6, n] ordinal 0\n  inputs (x)\n  outputs (y)\n  steps\n    call ", routine,
              " (x) (y) [0, n, 6, 6, 1, 0, n, 6, 1, n, n, 1, 0, (6*n + 31)//32, 1, 1, 0]\n"));
      for (const int64_t n : {7, 1, 0}) {
        loop::HostTensor x = loop::make_tensor(dtype, {n, 6});
        for (int64_t i = 0; i < 6 * n; ++i) loop::set_number(x, i, static_cast<double>(i - 8));
        size_t choices = 0;
        const auto made = test::emulate(program, {x}, gpu_target("sm_90a"), 0, &choices);
        REQUIRE(made.has_value());
        for (int64_t i = 0; i < 6 * n; ++i)
          CHECK(loop::get_number((*made)[0], i % 6 * n + i / 6) == 2 * static_cast<double>(i - 8));
      }
    }
}
