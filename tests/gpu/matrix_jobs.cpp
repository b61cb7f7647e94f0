// Writes what tests/gpu/matrix.py runs on a device: GEMMs and convolutions as cubins, with the launches of
// every shape. Needs NVRTC and no GPU.
//
//   gpu_matrix_jobs FOLDER [check] [time] [elements] [strict] [epilogues] [sizes] [chosen] [close]
//                   [plans [I N]]
//
//   strict      every tile of f32
//   sizes       times these tiles with symbolic sizes, from one row on
//   chosen      times the default schedules with symbolic sizes
//   elements    tf32, int8 and fp8, checked and timed; the other jobs have 16-bit floats and f32
//   epilogues   times epilogues at the shapes of transformers
//   plans       times what the cost model ranks high for some shapes (only the I-th N-th of them), with the
//               cycles that it expects: for fitting it
//   close       the same for shapes of networks, for `race` of tests/gpu/matrix.py
#include <set>

#include "compiler/base/text.h"
#include "compiler/kernels/cuda_matrix.h"
#include "tests/gpu/job_writer.h"

namespace stridec::test {
namespace {

json matmul(bool transposed, Behind behind) {
  return {{"op", "matmul"},
          {"transposed", transposed},
          {"gelu", behind == Behind::kGelu || behind == Behind::kGeluAndResidual},
          {"quantized", behind == Behind::kQuantized},
          {"residual", behind == Behind::kGeluAndResidual}};
}

json convolution(const Conv& c) {
  return {{"op", "conv"},           {"stride", c.stride}, {"pad", c.pad},
          {"dilation", c.dilation}, {"groups", c.groups}, {"channels_last", c.channels_last},
          {"relu", c.relu}};
}

void check(JobWriter& w) {
  const std::vector<Sizes> odd = {{{"m", 1}, {"n", 1}, {"k", 1}},
                                  {{"m", 77}, {"n", 93}, {"k", 131}},
                                  {{"m", 128}, {"n", 256}, {"k", 64}},
                                  {{"m", 257}, {"n", 264}, {"k", 72}},
                                  {{"m", 300}, {"n", 1000}, {"k", 520}}};
  for (const kernels::MatrixKernel& kernel : kernels::matrix_kernels()) {
    if (kernels::wants_depth(kernel)) continue;
    const std::string dtype = kernel.element_bytes == 2 ? "f16" : kernel.element_bytes == 8 ? "f64" : "f32";
    for (const bool transposed : {false, true})
      if (transposed || kernel.columns % 64 == 0)
        w.add(matmul_case(dtype, "m", "n", "k", transposed), std::string(kernel.name), odd,
              matmul(transposed, Behind::kGeluAndResidual), false);
  }
  for (const char* dtype : {"bf16", "f16"}) {
    const std::vector<Sizes> shapes = {{{"b", 3}, {"m", 200}, {"n", 264}, {"k", 72}}};
    w.add(matmul_case(dtype, "m", "n", "k", true, "b"), "wgmma.64x128x64", shapes,
          matmul(true, Behind::kGeluAndResidual), false);
    w.add(matmul_case(dtype, "m", "n", "k", false, "b", Behind::kNothing), "wgmma.128x128x64", shapes,
          matmul(false, Behind::kNothing), false);
  }
  for (const int split : {2, 4})
    for (const char* kernel : {"wgmma.64x64x64", "wgmma.128x128x64", "wgmma.64x16x64"})
      w.add(matmul_case("bf16", "m", "n", "4096", true), kernel,
            {{{"m", 100}, {"n", 136}}, {{"m", 9}, {"n", 520}}}, matmul(true, Behind::kGeluAndResidual), false,
            split);
  const std::vector<Sizes> batched = {{{"b", 3}, {"m", 70}, {"n", 88}, {"k", 96}},
                                      {{"b", 5}, {"m", 33}, {"n", 41}, {"k", 57}}};
  w.add(matmul_case("bf16", "m", "n", "k", true, "b"), "mma.64x64x64", batched,
        matmul(true, Behind::kGeluAndResidual), false);
  w.add(matmul_case("f32", "m", "n", "k", false, "b"), "simt.64x64x16", batched,
        matmul(false, Behind::kGeluAndResidual), false);
  for (const int split : {2, 4})
    for (const char* deep : {"4096", "1031"}) {
      const std::vector<Sizes> shapes = {{{"m", 100}, {"n", 136}}, {{"m", 64}, {"n", 33}}};
      w.add(matmul_case("bf16", "m", "n", deep, false), "mma.64x64x64", shapes,
            matmul(false, Behind::kGeluAndResidual), false, split);
      w.add(matmul_case("f32", "m", "n", deep, true), "simt.64x64x16", shapes,
            matmul(true, Behind::kGeluAndResidual), false, split);
    }
  for (const char* dtype : {"f16", "f32"})
    for (const Conv& c : convolutions())
      w.add(convolution_case(dtype, c), "", {{{"n", 3}}}, convolution(c), false);
  // Gathers into rings of every depth.
  for (const Conv& c : convolutions())
    if (c.in % 8 == 0)
      for (const char* kernel :
           {"wgmma.128x256x64", "wgmma.128x128x64", "wgmma.128x64x64", "wgmma.64x128x64", "wgmma.64x64x64"})
        w.add(convolution_case("f16", c), kernel, {{{"n", 3}}}, convolution(c), false);
}

struct Shape {
  int m, n, k;
};

// From a row of activations to what fills the device.
constexpr Shape kShapes[] = {{1, 4096, 4096},    {16, 4096, 4096},    {64, 4096, 14336},  {256, 4096, 4096},
                             {512, 3072, 768},   {1024, 1024, 1024},  {2048, 2048, 2048}, {6304, 768, 768},
                             {4096, 4096, 4096}, {2048, 2048, 32768}, {8192, 8192, 8192}};

void time(JobWriter& w) {
  for (const Shape& s : kShapes) {
    const Sizes sizes;
    for (const bool transposed : {true, false})
      w.add(matmul_case("bf16", cat(s.m), cat(s.n), cat(s.k), transposed, "", Behind::kGelu), "", {sizes},
            matmul(transposed, Behind::kGelu), true);
  }
  w.add(matmul_case("f32", "2048", "2048", "2048", false), "", {Sizes{}},
        matmul(false, Behind::kGeluAndResidual), true);
  for (const char* dtype : {"f16", "f32"})
    for (const Conv& c : {Conv{"r56_3x3", "32", 56, 56, 64, 64, 3, 1, 1, 1, 1, true, true},
                          Conv{"r56_1x1", "32", 56, 56, 64, 256, 1, 1, 1, 0, 1, true, true},
                          Conv{"r28_3x3", "32", 28, 28, 128, 128, 3, 1, 1, 1, 1, true, true},
                          Conv{"r14_3x3", "32", 14, 14, 256, 256, 3, 1, 1, 1, 1, true, true},
                          Conv{"r7_3x3", "32", 7, 7, 512, 512, 3, 1, 1, 1, 1, true, true},
                          Conv{"r14_1x1", "32", 14, 14, 1024, 256, 1, 1, 1, 0, 1, true, true},
                          Conv{"stem", "32", 224, 224, 3, 64, 7, 2, 1, 3, 1, true, true}}) {
      if (dtype[1] == '3' && c.name != "r28_3x3") continue;
      const json reference = convolution(c);
      w.add(convolution_case(dtype, c), "", {Sizes{}}, reference, true);
      // Others than the model's first, so that the model can be judged.
      if (dtype[1] == '1' && c.in > 3)
        for (const char* kernel :
             {"wgmma.128x128x64", "wgmma.64x128x64", "wgmma.128x64x64", "wgmma.64x64x64", "mma.128x64x64"})
          for (const int split : {1, 2})
            if (split == 1 || c.height < 28)
              w.add(convolution_case(dtype, c), kernel, {Sizes{}}, reference, true, split);
    }
}

// Elements of 32 and 8 bits.
void elements(JobWriter& w) {
  const std::vector<Sizes> odd = {{{"m", 1}, {"n", 1}, {"k", 1}},
                                  {{"m", 77}, {"n", 93}, {"k", 131}},
                                  {{"m", 257}, {"n", 264}, {"k", 80}},
                                  {{"m", 300}, {"n", 1000}, {"k", 528}}};
  // Every tile, and every pair of types on one tile of each family.
  for (const kernels::MatrixKernel& kernel : kernels::matrix_kernels()) {
    if (!kernels::wants_depth(kernel)) continue;
    const bool wide = kernel.element_bytes == 4;
    std::vector<std::string> dtypes = {wide ? "tf32" : "u8*i8"};
    if (!wide && (kernel.name.starts_with("wgmma.128x128x128.8") || kernel.name.starts_with("mma.64x64x")))
      dtypes = {"u8*u8", "u8*i8", "i8*u8", "i8", "f8e4m3fn", "f8e4m3fn*f8e5m2", "f8e5m2*f8e4m3fn", "f8e5m2"};
    for (const std::string& dtype : dtypes)
      w.add(matmul_case(dtype, "m", "n", "k", true), std::string(kernel.name), odd,
            matmul(true, Behind::kGeluAndResidual), false);
  }
  for (const char* dtype : {"tf32", "u8*i8", "f8e4m3fn"}) {
    // Factors that lie along the rows.
    w.add(matmul_case(dtype, "m", "n", "k", false), "", odd, matmul(false, Behind::kGeluAndResidual), false);
    w.add(matmul_case(dtype, "m", "n", "k", true, "b"), "", {{{"b", 3}, {"m", 200}, {"n", 264}, {"k", 96}}},
          matmul(true, Behind::kGeluAndResidual), false);
    for (const int split : {2, 4})
      for (const char* kernel : {"wgmma.64x64x", "mma.64x64x"})
        w.add(matmul_case(dtype, "m", "n", "4096", true),
              cat(kernel, dtype[0] == 't' ? "32.32bit" : "128.8bit"),
              {{{"m", 100}, {"n", 136}}, {{"m", 9}, {"n", 520}}}, matmul(true, Behind::kGeluAndResidual),
              false, split);
    for (const Conv& c : convolutions())
      w.add(convolution_case(dtype, c), "", {{{"n", 3}}}, convolution(c), false);
  }
  w.add(matmul_case("u8*i8", "m", "n", "k", true, "", Behind::kQuantized), "", odd,
        matmul(true, Behind::kQuantized), false);
  for (const Shape& s : {Shape{4096, 4096, 4096}, {6304, 768, 768}, {1024, 1024, 1024}, {16, 4096, 4096}})
    for (const char* dtype : {"tf32", "i8", "f8e4m3fn"}) {
      const Behind behind = dtype[0] == 'i' ? Behind::kQuantized : Behind::kNothing;
      w.add_plans(matmul_case(dtype, cat(s.m), cat(s.n), cat(s.k), true, "", behind), matmul(true, behind),
                  1.4, 6);
    }
  for (const char* dtype : {"tf32", "u8*i8"})
    for (const Conv& c : {Conv{"r28_3x3", "32", 28, 28, 128, 128, 3, 1, 1, 1, 1, true, true},
                          Conv{"r14_3x3", "32", 14, 14, 256, 256, 3, 1, 1, 1, 1, true, true}})
      w.add_plans(convolution_case(dtype, c), convolution(c), 1.4, 4);
}

// Products and convolutions of f32, every tile of each.
void strict(JobWriter& w) {
  for (const Shape& s : {Shape{4096, 4096, 4096},
                         {2048, 2048, 2048},
                         {1024, 1024, 1024},
                         {512, 768, 3072},
                         {512, 3072, 768},
                         {512, 768, 768},
                         {128, 768, 768},
                         {128, 3072, 768},
                         {6304, 768, 768},
                         {6304, 3072, 768},
                         {256, 4096, 4096},
                         {64, 4096, 4096}})
    w.add_plans(matmul_case("f32", cat(s.m), cat(s.n), cat(s.k), false, "", Behind::kNothing),
                matmul(false, Behind::kNothing), 1.8, 8);
  GpuTarget copies = gpu_target("sm_90a");  // by threads
  copies.tma = false;
  for (const Shape& s : {Shape{2048, 2048, 2048}, {1024, 1024, 1024}, {6304, 768, 768}}) {
    MatrixCase c = matmul_case("f32", cat(s.m), cat(s.n), cat(s.k), false, "", Behind::kNothing);
    c.name += "_copies";
    w.add_plans(c, matmul(false, Behind::kNothing), 1.5, 3, copies);
  }
  for (const char* batch : {"1", "32"})
    for (const Conv& c : {Conv{"r56_3x3", batch, 56, 56, 64, 64, 3, 1, 1, 1, 1, true, true},
                          Conv{"r56_1x1", batch, 56, 56, 64, 256, 1, 1, 1, 0, 1, true, true},
                          Conv{"r28_3x3", batch, 28, 28, 128, 128, 3, 1, 1, 1, 1, true, true},
                          Conv{"r14_3x3", batch, 14, 14, 256, 256, 3, 1, 1, 1, 1, true, true},
                          Conv{"r7_3x3", batch, 7, 7, 512, 512, 3, 1, 1, 1, 1, true, true},
                          Conv{"r14_1x1", batch, 14, 14, 1024, 256, 1, 1, 1, 0, 1, true, true},
                          Conv{"stem", batch, 224, 224, 3, 64, 7, 2, 1, 3, 1, true, true}})
      w.add_plans(convolution_case("f32", c), convolution(c), 1.8, 4);
  const std::vector<Sizes> odd = {{{"m", 1}, {"n", 1}, {"k", 1}},
                                  {{"m", 77}, {"n", 93}, {"k", 131}},
                                  {{"m", 257}, {"n", 264}, {"k", 72}},
                                  {{"m", 300}, {"n", 1000}, {"k", 520}}};
  for (const kernels::MatrixKernel& kernel : kernels::matrix_kernels()) {
    if (kernel.is_tensor()) continue;
    for (const bool transposed : {false, true})
      w.add(matmul_case(kernel.element_bytes == 8 ? "f64" : "f32", "m", "n", "k", transposed),
            std::string(kernel.name), odd, matmul(transposed, Behind::kGeluAndResidual), false);
    if (kernel.element_bytes == 4)
      w.add(matmul_case("f32", "m", "n", "4096", true), std::string(kernel.name), {{{"m", 100}, {"n", 136}}},
            matmul(true, Behind::kGeluAndResidual), false, 2);
  }
  for (const Conv& c : convolutions())
    w.add(convolution_case("f32", c), "", {{{"n", 3}}}, convolution(c), false);
}

void sizes(JobWriter& w) {
  const auto add = [&](const char* dtype, int m, int n, int k, double most, size_t count) {
    const bool few = m <= 256, half = dtype[0] == 'b';
    w.add_at(matmul_case(dtype, "m", few ? cat(n) : "n", few ? cat(k) : "k", half, "", Behind::kNothing),
             matmul_case(dtype, cat(m), cat(n), cat(k), half, "", Behind::kNothing),
             {{"m", m}, {"n", n}, {"k", k}}, matmul(half, Behind::kNothing), most, count);
  };
  constexpr std::pair<int, int> kWeights[] = {{2048, 2048}, {3072, 2048},  {2048, 8192},
                                              {4096, 4096}, {14336, 4096}, {4096, 14336}};
  for (const auto& [n, k] : kWeights)
    for (const int m : {1, 16, 32, 64})
      if (m != 64 || n == 4096) add("f32", m, n, k, 2.5, 2);
  add("f32", 256, 4096, 4096, 2, 2);
  for (const Shape& s :
       {Shape{512, 3072, 768}, {512, 768, 3072}, {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096}})
    add("f32", s.m, s.n, s.k, 2, 2);
  for (const auto& [n, k] : kWeights)
    for (const int m : {32, 64}) add("bf16", m, n, k, 1.5, 1);
}

void chosen(JobWriter& w) {
  const auto add = [&](const char* dtype, int n, int k, const std::vector<int>& rows) {
    std::vector<Sizes> shapes;
    for (const int m : rows) shapes.push_back({{"m", m}, {"n", n}, {"k", k}});
    const bool half = dtype[0] == 'b';
    w.add_chosen(matmul_case(dtype, "m", cat(n), cat(k), half, "", Behind::kNothing), shapes,
                 matmul(half, Behind::kNothing));
  };
  const std::vector<int> few = {1, 2, 4, 8, 16, 32, 64};
  for (const auto& [n, k] : {std::pair{3072, 2048},
                             {2048, 2048},
                             {2048, 8192},
                             {4096, 4096},
                             {16384, 2048},
                             {14336, 4096},
                             {4096, 14336}})
    add("f32", n, k, few);
  add("f64", 2048, 2048, few);
  add("f64", 4096, 4096, few);
  add("bf16", 4096, 14336, {32});
  add("bf16", 14336, 4096, {32});
  add("bf16", 4096, 4096, {64});
  std::vector<Sizes> many;
  for (const Shape& s : {Shape{512, 3072, 768},
                         {1024, 1024, 1024},
                         {1000, 1001, 333},
                         {1001, 1003, 2051},
                         {4099, 4097, 513},
                         {4096, 4096, 4096}})
    many.push_back({{"m", s.m}, {"n", s.n}, {"k", s.k}});
  for (const char* dtype : {"f32", "f64"})
    w.add_chosen(matmul_case(dtype, "m", "n", "k", false, "", Behind::kNothing), many,
                 matmul(false, Behind::kNothing));
}

// What follows a product, by the plans that the model ranks first.
void epilogues(JobWriter& w) {
  constexpr size_t kPlans = 3;
  constexpr double kMost = 1.3;
  for (const kernels::MatrixKernel& kernel : kernels::matrix_kernels())
    if (kernel.is_wgmma() && kernel.element_bytes == 2) {
      w.add(matmul_case("bf16", "m", "n", "k", true, "", Behind::kGelu), std::string(kernel.name),
            {{{"m", 300}, {"n", 1000}, {"k", 520}}, {{"m", 129}, {"n", 264}, {"k", 72}}},
            matmul(true, Behind::kGelu), false, 1);
      for (const bool beside : {false, true})
        w.add(paired_case("bf16", "m", "520", "k", true, beside), std::string(kernel.name),
              {{{"m", 300}, {"k", 520}}, {{"m", 129}, {"k", 72}}},
              {{"op", "paired"}, {"transposed", true}, {"beside", beside}}, false, 1);
    }
  for (const auto& [shape, behind] : {std::pair{Shape{2048, 8192, 2048}, Behind::kNothing},
                                      {Shape{2048, 3072, 2048}, Behind::kNothing},
                                      {Shape{4096, 4096, 4096}, Behind::kNothing},
                                      {Shape{4096, 768, 768}, Behind::kNothing},
                                      {Shape{4096, 3072, 768}, Behind::kGelu},
                                      {Shape{6304, 2304, 768}, Behind::kNothing},
                                      {Shape{512, 3072, 768}, Behind::kGelu},
                                      {Shape{100352, 384, 96}, Behind::kGelu}})
    w.add_plans(matmul_case("bf16", cat(shape.m), cat(shape.n), cat(shape.k), false, "", behind),
                matmul(false, behind), kMost, kPlans);
  for (const int rows : {2048, 128}) {
    w.add_plans(gated_case("bf16", cat(rows), "8192", "2048"), {{"op", "gated"}, {"transposed", false}},
                kMost, kPlans);
    w.add_plans(paired_case("bf16", cat(rows), "8192", "2048", false, false),
                {{"op", "paired"}, {"transposed", false}, {"beside", false}}, kMost, kPlans);
    w.add_plans(matmul_case("bf16", cat(rows), "8192", "2048", false, "", Behind::kNothing),
                matmul(false, Behind::kNothing), kMost, 1);
  }
}

void plans(JobWriter& w, int part, int parts) {
  int at = 0;
  auto mine = [&] { return at++ % parts == part; };
  for (const int rows : {128, 512, 1600, 2048, 4096, 6304, 8192})
    for (const auto& [columns, depth] :
         {std::pair{768, 768}, std::pair{3072, 768}, std::pair{768, 3072}, std::pair{8192, 2048}})
      if (mine()) {
        const Behind behind = columns == 3072 ? Behind::kGelu : Behind::kNothing;
        w.add_plans(matmul_case("f16", cat(rows), cat(columns), cat(depth), false, "", behind),
                    matmul(false, behind), 1.7);
      }
  for (const Shape& s : kShapes)
    if (mine())
      w.add_plans(matmul_case("bf16", cat(s.m), cat(s.n), cat(s.k), false, "", Behind::kGelu),
                  matmul(false, Behind::kGelu), 1.7);
  for (const Shape& s :
       {Shape{100352, 384, 96}, {25088, 768, 192}, {6272, 1536, 384}, {100352, 96, 384}, {25088, 192, 768}})
    if (mine()) {
      const Behind behind = s.n > s.k ? Behind::kGelu : Behind::kNothing;
      w.add_plans(matmul_case("f16", cat(s.m), cat(s.n), cat(s.k), false, "", behind), matmul(false, behind),
                  1.7);
    }
  struct Layer {
    int side, in, out, kernel;
  };
  // Of ResNet-50 and MobileNet-V2.
  for (const char* batch : {"1", "32"})
    for (const Layer& l : {Layer{56, 64, 64, 3},
                           {28, 128, 128, 3},
                           {14, 256, 256, 3},
                           {7, 512, 512, 3},
                           {56, 64, 256, 1},
                           {28, 512, 128, 1},
                           {14, 1024, 256, 1},
                           {7, 512, 2048, 1},
                           {112, 16, 96, 1},
                           {56, 144, 24, 1},
                           {28, 32, 192, 1},
                           {14, 384, 64, 1}})
      if (mine()) {
        const Conv c{cat(l.side, "_", l.in, "_", l.out, "_", l.kernel),
                     batch,
                     l.side,
                     l.side,
                     l.in,
                     l.out,
                     l.kernel,
                     1,
                     1,
                     l.kernel / 2,
                     1,
                     true,
                     true};
        w.add_plans(convolution_case("f16", c), convolution(c), 2.2);
      }
}

// Adds what the cost model ranks high for GEMMs of networks and of few rows: cases that it cannot tell apart.
void close(JobWriter& w) {
  for (const auto& [shape, behind] : {std::pair{Shape{6304, 768, 768}, Behind::kNothing},
                                      {Shape{6304, 2304, 768}, Behind::kNothing},
                                      {Shape{6304, 3072, 768}, Behind::kNothing},
                                      {Shape{6304, 3072, 768}, Behind::kGelu},
                                      {Shape{6304, 768, 3072}, Behind::kNothing},
                                      {Shape{4096, 2304, 768}, Behind::kNothing},
                                      {Shape{4096, 3072, 768}, Behind::kGelu},
                                      {Shape{4096, 768, 3072}, Behind::kNothing},
                                      {Shape{4096, 4096, 4096}, Behind::kNothing},
                                      {Shape{4096, 4096, 4096}, Behind::kGelu},
                                      {Shape{2048, 8192, 2048}, Behind::kNothing},
                                      {Shape{2048, 3072, 2048}, Behind::kNothing},
                                      {Shape{2048, 2048, 8192}, Behind::kNothing}})
    w.add_plans(matmul_case("bf16", cat(shape.m), cat(shape.n), cat(shape.k), false, "", behind),
                matmul(false, behind), 1.35, 6);
  for (const int rows : {4096, 1024})
    w.add_plans(matmul_case("f8e4m3fn", cat(rows), "4096", "4096", true, "", Behind::kNothing),
                matmul(true, Behind::kNothing), 1.2, 2);
  for (const auto& [n, k] :
       {std::pair{2048, 2048}, {3072, 2048}, {2048, 8192}, {4096, 4096}, {14336, 4096}, {4096, 14336}})
    w.add_plans(matmul_case("bf16", "32", cat(n), cat(k), true, "", Behind::kNothing),
                matmul(true, Behind::kNothing), 1.35, 5);
}

}  // namespace
}  // namespace stridec::test

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  stridec::test::JobWriter writer(argv[1]);
  const std::set<std::string> parts(argv + 2, argv + argc);
  if (parts.empty() || parts.count("check")) stridec::test::check(writer);
  if (parts.empty() || parts.count("time")) stridec::test::time(writer);
  if (parts.empty() || parts.count("elements")) stridec::test::elements(writer);
  if (parts.count("strict")) stridec::test::strict(writer);
  if (parts.count("sizes")) stridec::test::sizes(writer);
  if (parts.count("chosen")) stridec::test::chosen(writer);
  if (parts.count("epilogues")) stridec::test::epilogues(writer);
  if (parts.count("close")) stridec::test::close(writer);
  if (parts.count("plans"))
    stridec::test::plans(writer, argc > 4 ? std::stoi(argv[3]) : 0, argc > 4 ? std::stoi(argv[4]) : 1);
  writer.finish();
}
