#include "compiler/schedule/algebra/row_blocks.h"

#include <doctest/doctest.h>

#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using sym::Expr;
using testing::Pieces;

namespace {

struct Head {
  Expr rows = 2100;
  int64_t classes = 8200, width = 2;
  bool keeps = false;      // the logits are an output as well
  bool across = false;     // each row needs the one before
  bool multiplies = true;  // the gradient in h is needed
  bool turned = false;     // the logits are [classes, rows]
};

// The gradient of sum over rows of log sum exp(h w), in h and in w.
Program head_of(const Head& m) {
  Pieces p("head");
  const View h = p.input("h", {m.rows, m.width}), w = p.input("w", {m.classes, m.width});
  const auto product = [&](const char* name, std::vector<Expr> shape, Expr depth, auto&& term) {
    const View out = p.temporary(name, shape);
    NestBuilder nest(p.program, name);
    const auto at = nest.dims(shape);
    nest.store(out, at, nest.reduce(Combine::kSum, {depth}, [&](const std::vector<Expr>& k) {
      return term(nest, at, k[0]);
    }));
    nest.finish();
    return out;
  };
  const auto place = [&](Expr row, Expr column) {
    return m.turned ? std::vector{column, row} : std::vector{row, column};
  };
  const View y = product("y", place(m.rows, m.classes), m.width, [&](NestBuilder& n, const auto& at, Expr k) {
    return n.load(h, {at[m.turned ? 1 : 0], k}) * n.load(w, {at[m.turned ? 0 : 1], k});
  });
  const View e = p.map("e", {y}, [](const auto& v) { return unary(ScalarOp::kExp, v[0]); });
  const View s = product("s", {m.rows}, m.classes,
                         [&](NestBuilder& n, const auto& at, Expr k) { return n.load(e, place(at[0], k)); });
  const View g = p.temporary("g", place(m.rows, m.classes));
  NestBuilder divide(p.program, "g");
  const auto i = divide.dims(g.shape);
  const Expr own = i[m.turned ? 1 : 0], row = m.across ? sym::max(own - 1, 0) : own;
  divide.store(g, i, divide.load(e, i) / divide.load(s, {row}));
  divide.finish();
  const View logs = p.map("logs", {s}, [](const auto& v) { return unary(ScalarOp::kLog, v[0]); });
  const View loss =
      product("loss", {1}, m.rows, [&](NestBuilder& n, const auto&, Expr k) { return n.load(logs, {k}); });
  if (m.multiplies) {
    const View dh = product("dh", {m.rows, m.width}, m.classes, [&](NestBuilder& n, const auto& at, Expr k) {
      return n.load(g, place(at[0], k)) * n.load(w, {k, at[1]});
    });
    p.output("dh", dh);
  }
  const View dw = product("dw", {m.classes, m.width}, m.rows, [&](NestBuilder& n, const auto& at, Expr k) {
    return n.load(g, place(k, at[0])) * n.load(h, {k, at[1]});
  });
  p.output("loss", loss);
  p.output("dw", dw);
  if (m.keeps) p.output("logits", y);
  return p.program;
}

const While* loop_of(const Program& program) {
  for (const Step& step : program.steps)
    if (const auto* loop = std::get_if<While>(&step.node)) return loop;
  return nullptr;
}

Program in_blocks(const Head& head, const schedule::RowBlocks& limits = schedule::kCpuRowBlocks) {
  Program program = head_of(head);
  verify(program);
  schedule::block_rows(program, limits);
  CAPTURE(to_string(program));
  verify(program);
  return program;
}

}  // namespace

TEST_CASE("a loss over many classes runs in blocks of rows, of which one is in memory") {
  for (const int64_t rows : {2100, 2099}) {  // equal blocks, and a shorter last one
    const Program before = head_of({.rows = rows}), after = in_blocks({.rows = rows});
    const While* loop = loop_of(after);
    REQUIRE(loop);
    for (const Buffer& buffer : after.buffers)
      if (buffer.storage == Storage::kArena && buffer.shape.size() == 2 && buffer.shape[1].is_const(8200))
        CHECK(buffer.shape[0].value() <= 1024);
    if (rows % 2 == 0) continue;
    const auto inputs = testing::random_inputs(before, {}, 1);
    CHECK(testing::close(interpret(before, inputs), interpret(after, inputs), 1e-4));
  }
}

TEST_CASE("rows come first in the nests and tensors of a block, so that nests over rows merge") {
  const Head head = {.rows = 2099, .turned = true};
  const Program before = head_of(head), after = in_blocks(head);
  REQUIRE(loop_of(after));
  for (const Buffer& buffer : after.buffers)
    if (buffer.storage == Storage::kArena && buffer.shape.size() == 2 && buffer.shape[1].is_const(8200))
      CHECK(buffer.shape[0].value() <= 1024);
  for_each_step(loop_of(after)->body, [&](const Step& step) {
    const auto* launch = std::get_if<Launch>(&step.node);
    if (!launch || after[launch->nest].dims.size() != 2 || after[launch->nest].name == "dw") return;
    CHECK(!after[launch->nest].dims[0].extent.is_const());
  });
  const auto inputs = testing::random_inputs(before, {}, 1);
  CHECK(testing::close(interpret(before, inputs), interpret(after, inputs), 1e-4));
}

TEST_CASE("sums may take a share of the tensor's memory") {
  schedule::RowBlocks limits = schedule::kCpuRowBlocks;
  limits.sums = 0.5;
  CHECK(loop_of(in_blocks({.rows = 2100, .width = 1000}, limits)));
  CHECK(!loop_of(in_blocks({.rows = 2100, .width = 1100}, limits)));
  CHECK(loop_of(in_blocks({.rows = 2100, .width = 1100})));
}

TEST_CASE("blocks have fewer rows where there would be too few of them") {
  const schedule::RowBlocks limits = {
      .bytes = 64 << 20, .least_rows = 256, .rows = 1024, .blocks = 4, .sums = 1};
  const auto rows_of = [&](int64_t rows) -> int64_t {
    const Program program = in_blocks({.rows = rows, .classes = 16400}, limits);
    const While* loop = loop_of(program);
    return loop ? (rows + loop->trip_count.value() - 1) / loop->trip_count.value() : 0;
  };
  CHECK(rows_of(8192) == 1024);
  CHECK(rows_of(2048) == 512);
  CHECK(rows_of(1024) == 256);
  CHECK(rows_of(1000) == 0);
}

TEST_CASE("rows stay together where logits are kept, where a row needs another, or where they are few") {
  CHECK(!loop_of(in_blocks({.across = true})));
  CHECK(loop_of(in_blocks({.multiplies = false})));
  CHECK(!loop_of(in_blocks({.width = 4096, .multiplies = false})));
  CHECK(!loop_of(in_blocks({.rows = 700, .classes = 30000})));
  CHECK(!loop_of(in_blocks({.rows = 2100, .classes = 1000})));
}
