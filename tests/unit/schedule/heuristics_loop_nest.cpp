#include "compiler/schedule/heuristics/loop_nest.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"

using namespace stridec;
using namespace stridec::loop;

namespace {

// The schedule of the first nest.
std::string chosen(const std::string& text, const char* target) {
  Program program = parse_program(text);
  verify(program);
  schedule::choose_general(program, cpu_target(target));
  return to_string(program.nests[0].schedule);
}

// A row's loop over columns contains two loops, with the buffer `kept` between them.
std::string schedule_of(const std::string& kept) {
  return chosen(cat(R"(program rows
  input x f32 [64, 32] ordinal 0
  output y f32 [64, 32] ordinal 0
  local kept f32 )",
                    kept == "0" ? "[1]" : "[32]", R"(
  inputs (x)
  outputs (y)
  steps
    nest 0 rows (%i0<64)
      for (%i1<32)
        %0 : f32 = load x[%i0, %i1]
        for (%i2<3)
          store kept[)",
                    kept, R"(] %0
        %1 : f32 = reduce sum (%i3<3)
          %2 : f32 = load kept[)",
                    kept, R"(]
          yield %2
        %3 : f32 = exp %1
        store y[%i0, %i1] %3
)"),
                "x86-64-v3");
}

}  // namespace

TEST_CASE("lanes do not share what passes between loops inside of their loop") {
  CHECK(schedule_of("%i1").find("vectorize %i1") != std::string::npos);
  CHECK(schedule_of("0").find("vectorize %i1") == std::string::npos);
}

TEST_CASE("a wide element that all lanes share does not limit their number") {
  const auto schedule = [](const char* label) {
    return chosen(cat(R"(program one_hot
  input x f32 [64, 5000] ordinal 0
  input label i64 [5000] ordinal 1
  output y f32 [64, 5000] ordinal 0
  inputs (x, label)
  outputs (y)
  steps
    nest 0 one_hot (%i0<64, %i1<5000)
      %0 : f32 = load x[%i0, %i1]
      %1 : i64 = load label[)",
                      label, R"(]
      %2 : i64 = index %i1
      %3 : bool = eq %1 %2
      %4 : f32 = exp %0
      %5 : f32 = select %3 %0 %4
      store y[%i0, %i1] %5
)"),
                  "x86-64-v3");
  };
  CHECK(schedule("%i0").find("vectorize %i1 8") != std::string::npos);
  CHECK(schedule("%i1").find("vectorize %i1 4") != std::string::npos);
}

TEST_CASE("what walks from one place runs side by side, several vectors of it, and the rest point by point") {
  const auto schedule = [](const std::string& step) {
    return chosen(cat(R"(program walks
  input next u32 [300] ordinal 0
  input start u32 [40] ordinal 1
  input x f32 [200, 32] ordinal 2
  output y u32 [200, 40] ordinal 0
  inputs (next, start, x)
  outputs (y)
  steps
    nest 0 walk (%i0<200, %i1<40)
      %0 : u32 = load start[%i1]
      %1 : u32 = scan (%s0<6) [%2 = %0]
)",
                      step, R"(
        %5 : bool = lt %4 %4
        %6 : u32 = cast %5
        %7 : u32 = add %3 %6
        yield %7
      store y[%i0, %i1] %1
)"),
                  "x86-64-v4");
  };
  const std::string walk = schedule(R"(        bind %g0 < 300 = %2 clamp
        %3 : u32 = load next[%g0]
        bind %g1 < 32 = %3 clamp
        %4 : f32 = load x[%i0, %g1])");
  CHECK(walk.find("vectorize %i0 64") != std::string::npos);
  CHECK(walk.find("single %i0") != std::string::npos);
  const std::string no_walk = schedule(R"(        %3 : u32 = load next[%s0]
        %4 : f32 = load x[%i0, %s0])");
  CHECK(no_walk.find("single") == std::string::npos);
}

TEST_CASE("a scan runs on several adjacent vectors where they are contiguous in memory") {
  const auto schedule = [](const std::string& at) {
    return chosen(cat(R"(program sums
  input x f32 [256, 256] ordinal 0
  output y f32 [256, 256] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 sums (%i0<256)
      %0 : f32 = constant 0
      %1 : f32 = scan (%s0<256) [%2 = %0]
        %3 : f32 = load x[)",
                      at, R"(]
        %4 : f32 = add %2 %3
        store y[)",
                      at, R"(] %4
        yield %4
)"),
                  "x86-64-v4");
  };
  CHECK(schedule("%s0, %i0").find("vectorize %i0 64") != std::string::npos);
  CHECK(schedule("%i0, %s0").find("vectorize %i0 64") == std::string::npos);
}

TEST_CASE("lanes do not run along a size that may be one where another dim has enough points") {
  const auto schedule = [](const std::string& range) {
    // Weights are strided along the columns and constant along the batch, along which the other operand is
    // strided.
    return chosen(cat(R"(program products
  symbol batch = input 0 dim 0 in )",
                      range, R"(
  input x f32 [batch, 64] ordinal 0
  input w f32 [64, 4, 9] ordinal 1
  output y f32 [batch, 64] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 products (%i0<batch, %i1<64)
      %0 : f32 = reduce sum (%i2<4)
        %1 : f32 = load x[%i0, %i2]
        %2 : f32 = load w[%i1, %i2, 3]
        %3 : f32 = load w[%i1, %i2, 5]
        %4 : f32 = fma %1 %2 %3
        yield %4
      store y[%i0, %i1] %0
)"),
                  "x86-64-v4");
  };
  CHECK(schedule("1..64").find("vectorize %i1") != std::string::npos);
  CHECK(schedule("64..64").find("vectorize %i0") != std::string::npos);
}

TEST_CASE(
    "lanes lie where elements are near each other, or a line apart, rather than a page, however few there "
    "may be") {
  // Converts an image from planes to channels and looks up its columns. For a single pixel this takes almost
  // no time.
  const std::string text = R"(program show
  symbol h = input 0 dim 1 in 1..256
  symbol w = input 0 dim 2 in 1..256
  input x f32 [64, h, w] ordinal 0
  output y f32 [h, 2*w, 64] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 show (%i0<h, %i1<2*w, %i2<64)
      %0 : f32 = load x[%i2, %i0, min((%i1 + 1)//2, w - 1)]
      store y[%i0, %i1, %i2] %0
)";
  const std::string schedule = chosen(text, "x86-64-v4");
  CHECK_MESSAGE(schedule.find("vectorize %i1") != std::string::npos, schedule);
}

TEST_CASE("long rows that may be few are shared out in pieces") {
  const auto schedule = [](const std::string& range) {
    return chosen(cat(R"(program rows
  symbol batch = input 0 dim 0 in )",
                      range, R"(
  input x f32 [batch, 60000] ordinal 0
  output y f32 [batch, 50000] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 rows (%i0<batch, %i1<50000)
      %0 : f32 = load x[%i0, %i1]
      %1 : f32 = exp %0
      store y[%i0, %i1] %1
)"),
                  "x86-64-v4");
  };
  CHECK(schedule("1..64").find("tasks %i0 %i1; chunk") != std::string::npos);
  CHECK(schedule("32..64").find("tasks %i0 %i1; chunk") == std::string::npos);
}

TEST_CASE("products without a micro-kernel do several rows together, where these share what they load") {
  const auto schedule = [](const char* dtype, const std::string& rows, const char* shared) {
    std::string text = cat(R"(program products
  symbol m = input 0 dim 0 in )",
                           rows, R"(
  input x DTYPE [m, 64] ordinal 0
  input w DTYPE [64, 64, 64] ordinal 1
  output y DTYPE [m, 64] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 product (%i0<m, %i1<64)
      %0 : DTYPE = reduce sum (%r0<64)
        %1 : DTYPE = load x[%i0, %r0]
        %2 : DTYPE = load w[)",
                           shared, R"(, %r0, %i1]
        %3 : DTYPE = mul %1 %2
        yield %3
      store y[%i0, %i1] %0
)");
    return chosen(replaced(text, "DTYPE", dtype), "x86-64-v4");
  };
  for (const char* dtype : {"i32", "i64"})
    CHECK(schedule(dtype, "1..4096", "0").find("points %i0 4") != std::string::npos);
  // Each row has its own weights; then: too few rows.
  CHECK(schedule("i32", "1..64", "%i0").find("points") == std::string::npos);
  CHECK(schedule("i32", "1..3", "0").find("points") == std::string::npos);
}

TEST_CASE("output channels of a convolution share its vectors, as loops of a task") {
  const auto schedule = [](int channels) {
    return chosen(replaced(R"(program convolution
  input x f32 [64, 40, 264] ordinal 0
  output y f32 [N, 40, 264] ordinal 0
  input w f32 [N, 64, 3, 9] ordinal 1
  inputs (x, w)
  outputs (y)
  steps
    nest 0 conv (%i0<N, %i1<40, %i2<264)
      %0 : f32 = reduce sum (%r0<64, %r1<3, %r2<9)
        %1 : f32 = load x[%r0, %i1 + %r1 - 1, %i2 + %r2 - 4] if 1 <= %i1 + %r1 && %i1 + %r1 <= 40 && 4 <= %i2 + %r2 && %i2 + %r2 <= 267 else 0
        %2 : f32 = load w[%i0, %r0, %r1, %r2]
        %3 : f32 = mul %1 %2
        yield %3
      store y[%i0, %i1, %i2] %0
)",
                           "N", cat(channels)),
                  "x86-64-v3");
  };
  for (const auto& [channels, together] : {std::pair(8, 4), {6, 3}, {4, 4}, {3, 3}, {2, 2}}) {
    CAPTURE(channels);
    CHECK(schedule(channels).find(cat("tasks %i1; ")) != std::string::npos);
    CHECK(schedule(channels).find(cat("points %i0 ", together)) != std::string::npos);
    CHECK(schedule(channels).find("vectorize %i2") != std::string::npos);
  }
  CHECK(schedule(1).find("points") == std::string::npos);
}

TEST_CASE("lanes go along results two elements apart, not along a window shorter than a vector") {
  const auto schedule = [](int channels, int taps) {
    std::string text = R"(program convolution
  input x f32 [32, 112, 112] ordinal 0
  output y f32 [N, 112, 50] ordinal 0
  input w f32 [N, 32, T] ordinal 1
  inputs (x, w)
  outputs (y)
  steps
    nest 0 conv (%i0<N, %i1<112, %i2<50)
      %0 : f32 = reduce sum (%r0<32, %r1<T)
        %1 : f32 = load x[%r0, %i1, 2 * %i2 + %r1 - 1] if 1 <= 2 * %i2 + %r1 else 0
        %2 : f32 = load w[%i0, %r0, %r1]
        %3 : f32 = mul %1 %2
        yield %3
      store y[%i0, %i1, %i2] %0
)";
    return chosen(replaced(replaced(text, "N", cat(channels)), "T", cat(taps)), "x86-64-v3");
  };
  for (const int taps : {3, 5, 7}) {
    CAPTURE(taps);
    CHECK(schedule(1, taps).find("vectorize %i2") != std::string::npos);
    CHECK(schedule(4, taps).find("points %i0 4; vectorize %i2 16") != std::string::npos);
  }
}

TEST_CASE("transpositions go by tiles where no cache holds them") {
  const auto schedule = [](int64_t rows) {
    return chosen(
        cat("program turn\n  input x f32 [", rows, ", 2048] ordinal 0\n  output y f32 [2048, ", rows,
            "] ordinal 0\n  inputs (x)\n  outputs (y)\n  steps\n    nest 0 turn (%i0<2048, %i1<", rows,
            ")\n      %0 : f32 = load x[%i1, %i0]\n      store y[%i0, %i1] %0\n"),
        "x86-64-v4");
  };
  CHECK(schedule(2048).find("tile %i0 512") != std::string::npos);
  CHECK(schedule(512).find("tile") == std::string::npos);
}
