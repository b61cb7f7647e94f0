// Cooperating thread groups: reductions of columns and rows whose elements are read again.
#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "tests/unit/codegen_cuda/memory_bound.h"

namespace stridec::codegen::cuda {
namespace {

const Program kHalves = {"two rows of a local", R"(  input x T [d0] ordinal 0
  output y T [2, d0] ordinal 0
  local l T [2, d0]
  inputs (x)
  outputs (y)
  steps
    nest 0 halves ()
      for (%i<d0)
        %0 : T = load x[%i]
        %1 : T = add %0 %0
        store l[0, %i] %1
      for (%j<d0)
        %2 : T = load x[%j]
        %3 : T = mul %2 %2
        store l[1, %j] %3
      for (%r<2, %k<d0)
        %4 : T = load l[%r, %k]
        store y[%r, %k] %4
)"};

const Program kColumnDot = {"products of columns with a vector", R"(  input x T [d0, d1] ordinal 0
  input w T [d0] ordinal 1
  output y T [d1] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 dot (%j<d1)
      %0 : T = reduce sum (%i<d0)
        %1 : T = load x[%i, %j]
        %2 : T = load w[%i]
        %3 : T = mul %1 %2
        yield %3
      store y[%j] %0
)"};

const Program kColumnArgMax = {"argmax of columns, with a bias", R"(  input x T [d0, d1, d2] ordinal 0
  input b T [d2] ordinal 1
  output y T [d0, d2] ordinal 0
  output z i64 [d0, d2] ordinal 1
  inputs (x, b)
  outputs (y, z)
  steps
    nest 0 argmax (%a<d0, %j<d2)
      %0 : T = load b[%j]
      %1 : T, %2 : i64 = reduce argmax (%i<d1)
        %3 : T = load x[%a, %i, %j]
        %4 : T = add %3 %0
        %5 : i64 = index %i
        yield %4 %5
      store y[%a, %j] %1
      store z[%a, %j] %2
)"};

const Program kColumnSums = {"several sums of columns in one pass", R"(  input x T [d0, d1, d2] ordinal 0
  input b T [d2] ordinal 1
  output y T [d0, d2] ordinal 0
  output z T [d0, d2] ordinal 1
  output s T [d0, d2] ordinal 2
  inputs (x, b)
  outputs (y, z, s)
  steps
    nest 0 sums (%a<d0, %j<d2)
      %0 : T = load b[%j]
      %1 : T, %2 : T, %3 : T = reduce sum (%i<d1)
        %4 : T = load x[%a, %i, %j]
        %5 : T = sub %4 %0
        %6 : T = mul %4 %5
        yield %4 %5 %6
      store y[%a, %j] %1
      store z[%a, %j] %2
      store s[%a, %j] %3
)"};

const Program kRowSums = {"several sums of rows in one pass", R"(  input x T [d0, d1] ordinal 0
  output y T [d0] ordinal 0
  output z T [d0] ordinal 1
  inputs (x)
  outputs (y, z)
  steps
    nest 0 sums (%a<d0)
      %0 : T, %1 : T = reduce sum (%i<d1)
        %2 : T = load x[%a, %i]
        %3 : T = mul %2 %2
        yield %2 %3
      store y[%a] %0
      store z[%a] %1
)"};

const Program kColumnProducts = {"sums of products of columns, of several matrices",
                                 R"(  input x T [d0, d1, d2] ordinal 0
  input w T [d0, d1, d2] ordinal 1
  output y T [d0, d2] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 products (%a<d0, %j<d2)
      %0 : T = reduce sum (%i<d1)
        %1 : T = load x[%a, %i, %j]
        %2 : T = load w[%a, %i, %j]
        %3 : T = mul %1 %2
        yield %3
      store y[%a, %j] %0
)"};

const Program kColumnSpread = {"squares of distances of columns from a row", R"(  input x T [d0, d1] ordinal 0
  input w T [d1] ordinal 1
  output y T [d1] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 spread (%j<d1)
      %0 : T = reduce sum (%i<d0)
        %1 : T = load x[%i, %j]
        %2 : T = load w[%j]
        %3 : T = sub %1 %2
        %4 : T = mul %3 %3
        yield %4
      store y[%j] %0
)"};

const Program kMiddle = {"scale by the largest of the middle axis", R"(  input x T [d0, d1, d2] ordinal 0
  output y T [d0, d1, d2] ordinal 0
  local r T [d1]
  inputs (x)
  outputs (y)
  steps
    nest 0 middle (%a<d0, %j<d2)
      %0 : T = reduce max (%i<d1)
        %1 : T = load x[%a, %i, %j]
        yield %1
      for (%i2<d1)
        %2 : T = load x[%a, %i2, %j]
        %3 : T = sub %2 %0
        store r[%i2] %3
      %4 : T = reduce sum (%i3<d1)
        %5 : T = load r[%i3]
        yield %5
      for (%i4<d1)
        %6 : T = load r[%i4]
        %7 : T = add %6 %4
        store y[%a, %i4, %j] %7
)"};

const Program kMiddleWide = {"softmax of the middle axis in f32", R"(  input x T [d0, d1, d2] ordinal 0
  output y T [d0, d1, d2] ordinal 0
  local r f32 [d1]
  inputs (x)
  outputs (y)
  steps
    nest 0 middle (%a<d0, %j<d2)
      %0 : f32 = reduce max (%i<d1)
        %1 : T = load x[%a, %i, %j]
        %2 : f32 = cast %1
        yield %2
      for (%i2<d1)
        %3 : T = load x[%a, %i2, %j]
        %4 : f32 = cast %3
        %5 : f32 = sub %4 %0
        %6 : f32 = exp %5
        store r[%i2] %6
      %7 : f32 = reduce sum (%i3<d1)
        %8 : f32 = load r[%i3]
        yield %8
      for (%i4<d1)
        %9 : f32 = load r[%i4]
        %10 : f32 = div %9 %7
        %11 : T = cast_sat %10
        store y[%a, %i4, %j] %11
)"};

const Program kGroups = {"groups of channels, scaled by their largest and by channels",
                         R"(  input x T [d0, d1, d2] ordinal 0
  input w T [d1] ordinal 1
  output y T [d0, d1, d2] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 groups (%a<d0)
      %0 : T = reduce max (%c<d1, %j<d2)
        %1 : T = load x[%a, %c, %j]
        yield %1
      for (%c2<d1, %j2<d2)
        %2 : T = load x[%a, %c2, %j2]
        %3 : T = add %2 %0
        %4 : T = load w[%c2]
        %5 : T = mul %3 %4
        store y[%a, %c2, %j2] %5
)"};

const Program kLongRows = {"where the largest of a few long rows is, plus a bias",
                           R"(  input x T [d0, d1, d2] ordinal 0
  input b T [d0] ordinal 1
  output y T [d0] ordinal 0
  output z i64 [d0] ordinal 1
  inputs (x, b)
  outputs (y, z)
  steps
    nest 0 argmax (%a<d0)
      %0 : T, %1 : i64 = reduce argmax (%i<d1, %j<d2)
        %2 : T = load x[%a, %i, %j]
        %3 : i64 = index %i * 3 + %j
        yield %2 %3
      %4 : T = load b[%a]
      %5 : T = add %0 %4
      store y[%a] %5
      store z[%a] %1
)"};

const Program kWeighted = {"rows scaled by a sum of theirs and by a row that they share, and others added",
                           R"(  input x T [d0, d1] ordinal 0
  input w T [d1] ordinal 1
  input b T [d0, d1] ordinal 2
  output y T [d0, d1] ordinal 0
  output z f32 [d0] ordinal 1
  inputs (x, w, b)
  outputs (y, z)
  steps
    nest 0 norm (%i<d0)
      %0 : f32 = reduce sum (%j<d1)
        %1 : T = load x[%i, %j]
        %2 : f32 = cast %1
        yield %2
      for (%k<d1)
        %3 : T = load x[%i, %k]
        %4 : f32 = cast %3
        %5 : f32 = mul %4 %0
        %6 : T = cast_sat %5
        %7 : T = load w[%k]
        %8 : T = mul %6 %7
        %9 : T = load b[%i, %k]
        %10 : T = add %8 %9
        store y[%i, %k] %10
      store z[%i] %0
)"};

const Program kSum = {"the sum of everything", R"(  input x T [d0, d1, d2] ordinal 0
  output y T [] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 sum ()
      %0 : T = reduce max (%a<d0, %i<d1, %j<d2)
        %1 : T = load x[%a, %i, %j]
        yield %1
      store y[] %0
)"};

TEST_CASE("columns") {
  for (const char* dtype : {"f16", "bf16", "f32", "f64", "i32", "u8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{700, 72}, {2100, 24}, {65, 33}, {3, 8}, {0, 16}, {300, 0}})
      check(kColumnSum, dtype, {shape});
  for (const char* dtype : {"f16", "f32", "u8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{300, 33}, {77, 259}, {290, 7}, {1, 9}})
      for (const bool fixed : {false, true}) check(kColumnDot, dtype, {shape, fixed});
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{600, 64}, {100, 129}, {4000, 8}})
    check(kColumnSum, "f16", {shape, true});
  for (const char* dtype : {"f16", "f32", "i8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 300, 40}, {3, 70, 19}, {1, 1000, 16}})
      check(kColumnArgMax, dtype, {shape});
}

TEST_CASE("columns that begin in the middle of vectors") {
  for (const char* dtype : {"f16", "f32", "f64", "i8"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {300, 249}, {261, 255}, {1000, 131}, {9, 501}, {67, 1023}, {1, 257}, {66, 7}, {513, 1}})
      for (const bool fixed : {false, true}) check(kColumnSum, dtype, {shape, fixed});
  for (const char* dtype : {"bf16", "f32"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {3, 75, 249}, {2, 133, 127}, {5, 17, 300}, {4, 64, 1}, {0, 3, 129}})
      for (const bool fixed : {false, true}) check(kColumnProducts, dtype, {shape, fixed});
  for (const char* dtype : {"bf16", "f32", "i32"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {3, 75, 249}, {2, 133, 127}, {1, 600, 64}, {4, 64, 1}, {0, 3, 129}, {2, 0, 5}})
      for (const bool fixed : {false, true}) check(kColumnSums, dtype, {shape, fixed});
  for (const char* dtype : {"f16", "f32", "i64"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{3, 75}, {2, 4001}, {1, 70000}, {0, 3}, {5, 1}, {4, 0}})
      for (const bool fixed : {false, true}) check(kRowSums, dtype, {shape, fixed});
  for (const char* dtype : {"f16", "f32", "i8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{1, 301, 251}, {2, 77, 1023}, {3, 70, 19}})
      check(kColumnArgMax, dtype, {shape});
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{300, 251}, {67, 1023}})
    for (const bool fixed : {false, true}) check(kColumnSpread, "f16", {shape, fixed});
}

TEST_CASE("columns are loaded once, by aligned vectors, where a thread's rows begin alike") {
  const auto phased = [](const Program& p, const char* dtype, const std::vector<int64_t>& shape) {
    return first_text(parse(p, dtype, {shape, true})).find("const int phase") != std::string::npos;
  };
  CHECK(phased(kColumnSum, "bf16", {65537, 1023}));
  CHECK(phased(kColumnSum, "f32", {65537, 1023}));
  CHECK(phased(kColumnSum, "i8", {65537, 1023}));
  CHECK(phased(kColumnProducts, "f16", {2, 16387, 4095}));
  CHECK_FALSE(phased(kColumnSum, "bf16", {65536, 1024}));     // whole vectors
  CHECK_FALSE(phased(kColumnSum, "bf16", {65537, 63}));       // rows of a warp differ in alignment
  CHECK_FALSE(phased(kColumnSpread, "bf16", {65537, 1023}));  // a row that always has the same alignment
}

TEST_CASE("blocks that share sums of columns ask for an input's first rows before they wait") {
  const auto asks = [](const loop::Program& program) {
    const std::string text = first_text(program);
    REQUIRE(text.find("griddepcontrol.wait") != std::string::npos);
    return text.find("prefetch.global.L2") < text.find("griddepcontrol.wait");
  };
  const loop::Program sum = parse(kColumnSum, "bf16", {{16384, 4096}});
  CHECK(asks(sum));
  CHECK(asks(parse(kColumnSum, "f32", {{4096, 1024}, true})));
  CHECK_FALSE(asks(parse(kColumnSum, "bf16", {{65537, 1023}, true})));  // vectors with varying alignment
  // Data that the previous kernel may still be writing is not prefetched.
  loop::Program inner = sum;
  inner[inner.inputs[0]].storage = loop::Storage::kArena;
  CHECK_FALSE(asks(inner));
}

TEST_CASE("a middle axis stays in registers, or goes through memory") {
  for (const char* dtype : {"f16", "f32", "f64"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 100, 24}, {1, 256, 40}, {2, 257, 8}, {1, 70, 35}, {1, 600, 5}})
      for (const bool fixed : {false, true}) check(kMiddle, dtype, {shape, fixed});
}

TEST_CASE("a middle axis of narrow numbers stays in registers as such") {
  for (const char* dtype : {"f16", "bf16"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 100, 24}, {1, 256, 40}, {2, 257, 8}, {1, 70, 35}})
      check(kMiddleWide, dtype, {shape});
  const std::string text = first_text(parse(kMiddleWide, "bf16", {{2, 100, 24}}));
  // Three blocks per multiprocessor, whose threads keep x in 32 registers, without exponentials.
  CHECK(text.find("__launch_bounds__(256, 3)") != std::string::npos);
  CHECK(text.find("row0[") == std::string::npos);
}

TEST_CASE("what loops of other dims read in order is loaded once") {
  for (const char* dtype : {"f16", "f32"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 8, 16}, {3, 5, 7}, {1, 60, 56}, {1, 1, 3}, {0, 4, 4}})
      for (const bool fixed : {false, true}) check(kGroups, dtype, {shape, fixed});
  const std::string text = first_text(parse(kGroups, "f16", {{2, 8, 16}}));
  size_t loads = 0;
  for (size_t at = 0; (at = text.find("= sd_load<8>(p0", at)) != std::string::npos; ++at) ++loads;
  CHECK(loads == 1);
}

// Keys with many ties, NaNs and infinities.
const Program kRowArg = {"where a row's extreme is", R"(  input x T [d0, d1] ordinal 0
  output y T [d0] ordinal 0
  output z i64 [d0] ordinal 1
  inputs (x)
  outputs (y, z)
  steps
    nest 0 arg (%a<d0)
      %0 : T, %1 : i64 = reduce ARG (%i<d1)
        %2 : T = load x[%a, %i]
        %3 : T = floor %2
        %4 : T = log %3
        %5 : i64 = index 3 + %i * 2
        yield %4 %5
      store y[%a] %0
      store z[%a] %1
)"};

TEST_CASE("where an extreme is, of equals the first or the last, and of NaNs") {
  for (const char* arg : {"argmax", "argmin", "argmax_last", "argmin_last"}) {
    const Program p = {cat("where a row's ", arg, " is"), replaced(kRowArg.text, "ARG", arg)};
    for (const char* dtype : {"f16", "f32", "f64"})
      for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
               {40, 1}, {40, 2}, {9, 65}, {5, 300}, {3, 1024}, {2, 4097}, {1, 40000}})
        for (const bool fixed : {false, true}) check(p, dtype, {shape, fixed});
    const Program numbers = {p.name, replaced(replaced(p.text, "floor", "add"), "add %2", "add %2 %2")};
    const Program bytes = {p.name, replaced(numbers.text, "log %3", "max %3 %3")};
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{3, 700}, {17, 33}, {1, 9000}})
      check(bytes, "i8", {shape});
  }
  // Threads visit positions in order, so they compare keys only.
  const auto orders = [](const std::string& text) { return text.find("bool take") != std::string::npos; };
  CHECK(orders(first_text(parse({"", replaced(kRowArg.text, "ARG", "argmax")}, "f32", {{64, 1024}}))));
  CHECK(orders(first_text(parse(kColumnArgMax, "f32", {{2, 1024, 64}}))));
  const Program back = {"", replaced(replaced(kRowArg.text, "ARG", "argmax"), "%i * 2", "%i * -2")};
  CHECK_FALSE(orders(first_text(parse(back, "f32", {{64, 1024}}))));
  check(back, "f32", {{5, 300}});
}

TEST_CASE("rows that neither registers nor L2 have room for are loaded once, into shared memory") {
  GpuTarget without_l2 = gpu_target("sm_90a");
  without_l2.l2_bytes = 0;
  for (const char* dtype : {"f16", "bf16", "f32"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{3, 20000}, {2, 20001}, {1, 33000}})
      for (const bool fixed : {false, true}) check(kNorm, dtype, {shape, fixed}, 0, "", without_l2);
  for (const char* dtype : {"f16", "f32"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{2, 1100, 24}, {1, 700, 35}})
      for (const bool fixed : {false, true}) check(kMiddleWide, dtype, {shape, fixed}, 0, "", without_l2);
  const auto kept = [](const Program& p, const char* dtype, const std::vector<int64_t>& shape) {
    loop::Program program = parse(p, dtype, {shape, true});
    schedule::choose_gpu(program, gpu_target("sm_90a"));
    const DeviceNest made = emit_nest(program, program.nests[0], gpu_target("sm_90a"));
    const DeviceKernel& first = made.choices[0].launches[0];
    size_t loads = 0;
    for (size_t at = 0; (at = first.code.text.find("(p0 + ", at)) != std::string::npos; ++at) ++loads;
    const auto bytes = sym::as_const(first.shared_bytes);
    REQUIRE(bytes.has_value());
    // Loads: a batch of vectors, and the last vector.
    if (*bytes > 0) CHECK(loads == 2);
    return *bytes;
  };
  CHECK(kept(kNorm, "bf16", {1024, 32000}) == 64000);
  CHECK(kept(kNorm, "f32", {1024, 32000}) == 128000);
  CHECK(kept(kNorm, "bf16", {64, 32000}) == 0);     // L2 keeps them
  CHECK(kept(kNorm, "bf16", {4096, 8192}) == 0);    // registers keep them
  CHECK(kept(kNorm, "bf16", {1024, 131072}) == 0);  // more than a block's shared memory
  CHECK(kept(kMiddleWide, "bf16", {64, 1024, 512}) == 128 << 10);
}

TEST_CASE("rows") {
  for (const char* dtype : {"f16", "f32", "f64"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{3, 1024}, {2, 1025}, {9, 72}, {2, 4100}, {0, 8}, {2, 0}})
      for (const bool fixed : {false, true}) check(kRows, dtype, {shape, fixed});
}

TEST_CASE("short rows, several a warp") {
  for (const char* dtype : {"f16", "f32", "f64"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{67, 96}, {33, 64}, {5, 61}, {129, 8}, {1, 300}})
      for (const int team : {4, 8, 16})
        for (const bool fixed : {false, true}) check(kRows, dtype, {shape, fixed}, team);
}

TEST_CASE("few long rows are several blocks' work") {
  for (const char* dtype : {"f16", "f32", "u8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{3, 5, 8000}, {2, 3, 13337}, {1, 40000, 1}, {200, 3, 5}})
      for (const bool fixed : {false, true}) {
        check(kLongRows, dtype, {shape, fixed});
        check(kSum, dtype, {shape, fixed});
      }
}

TEST_CASE("rows of odd widths go by vectors") {
  const auto has = [](const Program& p, const std::vector<int64_t>& shape, const std::string& what) {
    return first_text(parse(p, "bf16", {shape, true})).find(what) != std::string::npos;
  };
  CHECK(has(kColumnSum, {4097, 1023}, "sd_load<8>("));
  CHECK(has(kColumnSpread, {4097, 1023}, "sd_load_cover<8>("));
  // Elements before and after a row's aligned vectors are handled one by one.
  CHECK(has(kRows, {64, 1023}, "const int head = 7 & "));
  CHECK(has(kRows, {64, 1023}, "sd_store<8>("));
  CHECK_FALSE(has(kRows, {64, 1024}, "const int head"));
  // Short rows share their first and last vector with neighbouring rows; a warp has several rows.
  CHECK(has(kRows, {64, 65}, "sd_load_near<8>("));
  CHECK(has(kRows, {64, 65}, "threadIdx.x % 32 / 4;"));
  CHECK(has(kRows, {64, 129}, "threadIdx.x % 32 / 8;"));
  CHECK_FALSE(has(kRows, {64, 64}, "sd_load_near<8>("));
  for (const char* dtype : {"f16", "bf16"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {9, 1}, {9, 7}, {17, 15}, {9, 61}, {65, 65}, {7, 249}, {5, 1023}, {3, 4095}, {2, 9001}, {3, 0}})
      for (const bool fixed : {false, true}) {
        check(kRows, dtype, {shape, fixed});
        check(kWeighted, dtype, {shape, fixed});
      }
}

TEST_CASE("rows that are assembled and read as a whole are complete before they are read") {
  loop::Program program = parse(kHalves, "f32", {{20}, true});
  program.nests[0].schedule = loop::parse_schedule("team 64");
  const std::string text = first_text(program);
  const size_t second = text.find("+ 20] ="), read = text.find("= l0[", second);
  REQUIRE(second != std::string::npos);
  REQUIRE(read != std::string::npos);
  CHECK(text.substr(second, read - second).find("__syncthreads") != std::string::npos);
  for (const bool fixed : {false, true}) check(kHalves, "f32", {{20}, fixed});
}

TEST_CASE("rows whose length is not known have teams for all lengths") {
  auto widest = [](const Sizes& sizes) {
    loop::Program program = parse(kRows, "bf16", sizes);
    schedule::choose_gpu(program, gpu_target("sm_90a"));
    int threads = 0;
    for (const DeviceChoice& choice : emit_nest(program, program.nests[0], gpu_target("sm_90a")).choices)
      threads = std::max(threads, choice.launches[0].threads);
    return threads;
  };
  CHECK(widest({{64, 1024}}) == 512);
  CHECK(widest({{64, 1024}, true}) == 256);
}

}  // namespace
}  // namespace stridec::codegen::cuda
