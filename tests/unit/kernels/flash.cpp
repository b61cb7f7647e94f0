#include "compiler/kernels/flash.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/sym/text.h"
#include "tests/support/flash_cases.h"

namespace stridec::kernels {
namespace {

using test::FlashCase;

struct Matched {
  loop::Program program;
  std::optional<Flash> flash;
  std::string reason;
};

Matched match(const FlashCase& c) {
  Matched out{.program = loop::parse_program(test::flash_text(c)), .flash = {}, .reason = {}};
  loop::verify(out.program);
  out.flash = match_flash(out.program, out.program.nests[0], &out.reason);
  return out;
}

TEST_CASE("attention: factors, head sizes and what its rows do") {
  const Matched plain = match({.dtype = "bf16", .depth = 72, .width = 40, .group = 4});
  REQUIRE_MESSAGE(plain.flash, plain.reason);
  CHECK(plain.flash->dtype == DType::kBF16);
  CHECK(plain.flash->depth == 72);
  CHECK(plain.flash->width == 40);
  CHECK(plain.flash->chain.row.var.name() == "%i2");
  CHECK(sym::to_string(plain.flash->k.line) == "72");
  CHECK(sym::to_string(plain.flash->v.line) == "40");
  CHECK_FALSE(plain.flash->guarded);
  CHECK_FALSE(plain.flash->fixes);
  CHECK_FALSE(plain.flash->visible);
  CHECK(match({.guard = true}).flash->guarded);
  const Matched fixed = match({.bias = "causal", .guard = true, .fixed = true});
  REQUIRE(fixed.flash);
  CHECK(fixed.flash->guarded);
  CHECK(fixed.flash->fixes);
  CHECK(fixed.flash->row_statements.size() >= 2);
  CHECK(fixed.flash->visible);
  CHECK_FALSE(fixed.flash->skips);  // a row whose weights are all equal sees every key
  const Matched hidden = match({.bias = "causal", .hidden = true});
  REQUIRE(hidden.flash);
  CHECK(hidden.flash->fixes);
  CHECK(hidden.flash->skips);
}

TEST_CASE("keys that a mask of indices hides from a row and from all before it") {
  for (const char* bias : {"causal", "lowest"}) {
    const Matched hidden = match({.bias = bias});
    REQUIRE(hidden.flash);
    REQUIRE(hidden.flash->visible);
    CHECK(hidden.flash->skips);
    CHECK(hidden.flash->scale == 0.125);
    CHECK(sym::to_string(*hidden.flash->visible) == "%i2 + past + 1");
  }
  // Intermediate rounding of scores is ignored.
  CHECK(match({.rounded = true}).flash->scale == 0.125);
  CHECK(match({.zeros = true}).flash->scale == 0.125);
  CHECK(match({.bias = "causal", .rounded = true, .zeros = true}).flash->scale == 0.125);
  const Matched rounded = match({.bias = "causal", .rounded = true});
  CHECK(rounded.flash->skips);
  CHECK(rounded.flash->scale == 0.125);
  // With another added term, the scores are no longer just scaled sums.
  const Matched both = match({.bias = "both"});
  REQUIRE(both.flash);
  REQUIRE(both.flash->visible);
  CHECK(both.flash->skips);
  CHECK_FALSE(both.flash->scale);
  // A finite mask value hides no key from a row whose keys are all masked.
  const Matched late = match({.bias = "late"});
  CHECK_FALSE(match({.bias = "lowest"}).flash->given);
  REQUIRE(late.flash->given);
  CHECK(sym::to_string(*late.flash->given) == "1 <= past");
  CHECK(late.flash->skips);
  CHECK(late.flash->scale == 0.125);
  const auto every = match_flash(late.program, late.program.nests[0], nullptr, false);
  CHECK_FALSE(every->given);
  CHECK_FALSE(every->skips);
  CHECK_FALSE(every->scale);
  // The lowest value hides keys only if the row has another key: here the row's own key is in its sequence.
  REQUIRE(match({.bias = "own"}).flash);
  CHECK(match({.bias = "own"}).flash->skips);
  REQUIRE(match({.bias = "other"}).flash);
  CHECK(match({.bias = "other"}).flash->visible);
  CHECK_FALSE(match({.bias = "other"}).flash->skips);
  CHECK_FALSE(match({.bias = "after"}).flash->visible);
  CHECK_FALSE(match({.bias = "after"}).flash->scale);
  CHECK_FALSE(match({.bias = "load"}).flash->visible);
  CHECK_FALSE(match({.bias = "load"}).flash->scale);
}

TEST_CASE("keys that lengths from memory hide, and masks that are memory in part") {
  const Matched length = match({.bias = "length"});
  REQUIRE_MESSAGE(length.flash, length.reason);
  REQUIRE(length.flash->visible);
  CHECK(sym::to_string(*length.flash->visible) == "%length0");
  CHECK(length.flash->lengths.size() == 1);
  CHECK(length.flash->skips);
  CHECK(length.flash->scale == 0.125);
  CHECK_FALSE(length.flash->asks);
  CHECK_FALSE(length.flash->triangular());
  const Matched row = match({.bias = "row length"});
  CHECK(sym::to_string(*row.flash->visible) == "%i2 + %length0 + 1");
  CHECK(row.flash->triangular());
  const Matched both = match({.bias = "length and causal"});
  CHECK(both.flash->shown.size() == 2);
  CHECK(both.flash->scale == 0.125);
  // A finite mask value hides no key from a row whose keys are all masked.
  const Matched low = match({.bias = "low length"});
  CHECK(low.flash->skips);
  CHECK(low.flash->asks);
  CHECK_FALSE(low.flash->others);
  CHECK_FALSE(low.flash->given);
  CHECK_FALSE(low.flash->scale);
  const Matched padded = match({.bias = "padded"});
  CHECK(padded.flash->skips);
  CHECK(padded.flash->asks);
  CHECK(padded.flash->others);
  CHECK(sym::to_string(*padded.flash->visible) == "%i2 + past + 1");
  // A mask that differs between neighbouring rows gives no bound for later rows.
  CHECK(match({.bias = "padded rows"}).flash->visible);
  CHECK_FALSE(match({.bias = "padded rows"}).flash->skips);
  CHECK_FALSE(match({.bias = "padded", .fixed = true}).flash->skips);
}

TEST_CASE("attention of 32 bits: tiles and what they hold") {
  for (const auto& [name, dtype] : {std::pair("f32", DType::kF32), {"tf32", DType::kTF32}}) {
    const Matched words = match({.dtype = name, .bias = "causal"});
    REQUIRE_MESSAGE(words.flash, words.reason);
    CHECK(words.flash->dtype == dtype);
    CHECK(words.flash->skips);
    CHECK_FALSE(fits_warp_groups({.wgmma = true, .rows = 128, .keys = 64}, *words.flash));
    const auto plan = mma_plan(*words.flash, 227 << 10);
    REQUIRE(plan);
    CHECK(plan->rows == 128);
    CHECK(plan->keys == 32);
    CHECK(shared_bytes(*plan, *words.flash) == (128 + 4 * 32) * 64 * 4);
  }
  const Matched wide = match({.dtype = "f32", .depth = 256, .width = 256});
  REQUIRE(wide.flash);
  CHECK(mma_plan(*wide.flash, 227 << 10)->rows == 64);
  CHECK_FALSE(mma_plan(*wide.flash, 99 << 10));
}

TEST_CASE("heads of one row that share no keys are attention of one row") {
  const Matched single = match({.bias = "causal", .single = true});
  REQUIRE(single.flash);
  CHECK(single.flash->chain.batch.size() == 2);
  CHECK(single.flash->chain.row.extent == sym::Expr(1));
  CHECK(single.flash->skips);
  CHECK_FALSE(match_chain(single.program.nests[0]));
}

TEST_CASE("what is not an attention for these kernels") {
  CHECK(match({.bias = "own"}).flash->scale == std::nullopt);
  std::string mixed = replaced(test::flash_text({.dtype = "f32"}), "input k f32", "input k f16");
  mixed = replaced(mixed, "%6 : f32 = load k", "%6 : f16 = load k");
  const loop::Program program = loop::parse_program(mixed);
  std::string reason;
  CHECK_FALSE(match_flash(program, program.nests[0], &reason));
  CHECK(reason == "its factors are not 16-bit floats, tf32 or f32 of one kind");
  CHECK(match({.depth = 257}).reason == "its head size is not fixed, or over 256");
  CHECK(match({.transposed = true}).reason == "a factor is computed, or not contiguous along the head");
  CHECK(match({.exp_dtype = "f16"}).reason == "its row statements are not a softmax");
}

TEST_CASE("tiles that take the fewest waves of the device") {
  // Rows of the chosen tile on 132 multiprocessors, with 8 heads per batch.
  int keys = 0;
  const auto taken = [&](const test::FlashCase& c, int rows, int64_t batch, int64_t queries,
                         int64_t past = 1000) {
    const Matched m = match(c);
    for (const FlashChoice& choice :
         wgmma_choices({.wgmma = true, .rows = rows, .keys = 128}, *m.flash, gpu_target("sm_90a"))) {
      const auto holds = sym::evaluate(choice.condition, [&](sym::Expr var) -> std::optional<int64_t> {
        return var.name() == "b" ? batch : var.name() == "s" ? queries : past;
      });
      keys = choice.plan.keys;
      if (*holds) return choice.plan.rows;
    }
    return 0;
  };
  CHECK(taken({}, 192, 1, 1024) == 64);
  CHECK(taken({}, 192, 2, 1024) == 128);
  CHECK(taken({}, 192, 3, 2048) == 192);
  CHECK(taken({}, 192, 100, 4096) == 192);
  CHECK(taken({.bias = "causal"}, 192, 1, 512) == 64);
  CHECK(taken({.bias = "causal"}, 192, 4, 1024) == 128);
  CHECK(taken({.bias = "causal"}, 192, 12, 512) == 256);
  CHECK(taken({.bias = "causal"}, 192, 48, 1024) == 256);
  CHECK(taken({.bias = "causal"}, 192, 24, 2048) == 192);
  CHECK(taken({.depth = 128, .width = 128}, 128, 1, 1024) == 64);
  CHECK(taken({.depth = 128, .width = 128}, 128, 2, 1024) == 128);
  CHECK(keys == 128);
  CHECK(taken({.depth = 128, .width = 128}, 128, 1, 4096, 4096) == 128);
  CHECK(keys == 176);
}

TEST_CASE("the text form of a plan") {
  for (const FlashPlan& plan : {FlashPlan{.wgmma = false, .rows = 64, .keys = 32}, FlashPlan{true, 128, 176},
                                FlashPlan{false, 16, 32, 8},
                                FlashPlan{.rows = 16, .keys = 16, .spread = 2, .warps = 8, .stages = 3}}) {
    const FlashPlan back = to_flash_plan(loop::parse_schedule(loop::to_string(to_schedule(plan))));
    CHECK(back.wgmma == plan.wgmma);
    CHECK(back.rows == plan.rows);
    CHECK(back.keys == plan.keys);
    CHECK(back.split == plan.split);
    CHECK(back.spread == plan.spread);
    CHECK(back.warps == plan.warps);
    CHECK(back.stages == plan.stages);
  }
}

}  // namespace
}  // namespace stridec::kernels
