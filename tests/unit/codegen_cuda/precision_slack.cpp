#include "compiler/codegen/precision_slack.h"

#include <doctest/doctest.h>

#include "compiler/loop/build.h"
#include "compiler/loop/walk.h"

using namespace stridec;
using codegen::Slack;
using loop::NestBuilder;
using loop::ScalarOp;
using loop::Value;

namespace {

// The allowed error of `op` in a nest that applies `build` to x and stores the result as `to`.
std::vector<Slack> of(ScalarOp op, DType to, const std::function<Value(NestBuilder&, Value)>& build) {
  loop::Program program;
  const auto view = [&](const char* name, DType dtype) {
    return loop::whole(program, loop::add_buffer(program, {.name = name, .dtype = dtype, .shape = {8}}));
  };
  const loop::View x = view("x", DType::kF32), y = view("y", to);
  NestBuilder nest(program, "test");
  const auto at = nest.dims({8});
  const Value made = build(nest, nest.load(x, at));
  nest.store(y, at, to == DType::kF32 ? made : nest.cast(made, to));
  nest.finish();
  const loop::Nest& done = program.nests.back();
  const std::vector<Slack> slack = codegen::slack_of(done);
  std::vector<Slack> found;
  loop::for_each_stmt(done.body, [&](const loop::Stmt& stmt) {
    if (const auto* let = std::get_if<loop::Let>(&stmt.node); let && let->op == op)
      found.push_back(slack[static_cast<size_t>(let->result.value)]);
  });
  return found;
}

Value number(NestBuilder& nest, double value) { return nest.constant(DType::kF32, value); }

Value gelu(NestBuilder& nest, Value x) {
  const Value erf = unary(ScalarOp::kErf, x / number(nest, 1.4142135));
  return x * (erf + number(nest, 1)) * number(nest, 0.5);
}

}  // namespace

TEST_CASE("values have slack where nothing but roundings sees them") {
  CHECK(of(ScalarOp::kDiv, DType::kF16, gelu) == std::vector{Slack::kFew});
  CHECK(of(ScalarOp::kErf, DType::kBF16, gelu) == std::vector{Slack::kFew});  // the sum may cancel
  CHECK(of(ScalarOp::kMul, DType::kF16, gelu) == std::vector{Slack::kCoarse, Slack::kCoarse});
  const auto silu = [](NestBuilder&, Value x) { return x * unary(ScalarOp::kSigmoid, x); };
  CHECK(of(ScalarOp::kSigmoid, DType::kF16, silu) == std::vector{Slack::kCoarse});
}

TEST_CASE("no slack for what is stored wide, compared, made whole or summed") {
  CHECK(of(ScalarOp::kDiv, DType::kF32, gelu) == std::vector{Slack::kNone});
  const auto none = [](ScalarOp op, const std::function<Value(NestBuilder&, Value)>& build) {
    CHECK(of(op, DType::kF16, build) == std::vector{Slack::kNone});
  };
  none(ScalarOp::kDiv,
       [](NestBuilder& nest, Value x) { return unary(ScalarOp::kFloor, x / number(nest, 3)); });
  none(ScalarOp::kDiv, [](NestBuilder& nest, Value x) {
    const Value third = x / number(nest, 3);
    return select(lt(third, x), third, x);
  });
  none(ScalarOp::kExp, [](NestBuilder& nest, Value x) {
    return nest.reduce(loop::Combine::kSum, {4}, [&](const auto&) { return unary(ScalarOp::kExp, x); });
  });
}
