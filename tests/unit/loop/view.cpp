#include "compiler/loop/view.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/sym/text.h"

using namespace stridec;
using namespace stridec::loop;
using sym::Expr;

namespace {

// A buffer of this shape, and the buffer index that a view of it reads at its coordinates %c0, %c1, ...
struct Fixture {
  Program program;
  Fixture() {
    for (const char* s : {"B", "S", "h", "q", "k", "n", "m"})
      program.facts.set_range(sym::var(s), 0, 1 << 20);
  }
  View buffer(const std::vector<std::string>& shape) {
    return whole(program, add_buffer(program, {.name = "x", .shape = exprs(shape), .strides = {}}));
  }
  static std::vector<Expr> exprs(const std::vector<std::string>& texts) {
    std::vector<Expr> out;
    for (const std::string& t : texts) out.push_back(sym::parse(t));
    return out;
  }
  std::string reshaped(const std::vector<std::string>& from, const std::vector<std::string>& to) {
    return index(reshape(buffer(from), exprs(to), program.facts));
  }
  static std::string index(const View& v) {
    std::string out = join(v.index, ", ", [](Expr e) { return sym::to_string(e); });
    return v.mask.is_const(1) ? out : out + " if " + sym::to_string(v.mask);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "reshape splits and merges dims with plain indices where they divide evenly") {
  CHECK(reshaped({"768"}, {"12", "64"}) == "64*%c0 + %c1");
  CHECK(reshaped({"B", "S", "768"}, {"B", "S", "12", "64"}) == "%c0, %c1, 64*%c2 + %c3");
  CHECK(reshaped({"B", "S", "12", "64"}, {"B", "S", "768"}) == "%c0, %c1, %c2//64, mod(%c2, 64)");
  CHECK(reshaped({"h", "q", "k"}, {"h*q", "k"}) == "%c0//q, mod(%c0, q), %c1");
  CHECK(reshaped({"B*S", "768"}, {"B", "S", "768"}) == "%c0*S + %c1, %c2");
  CHECK(reshaped({"B", "S", "768"}, {"B*S", "12", "64"}) == "%c0//S, mod(%c0, S), 64*%c1 + %c2");
  CHECK(reshaped({"B", "1", "S"}, {"B", "S", "1"}) == "%c0, 0, %c1");
  CHECK(reshaped({"2", "3", "4"}, {"24"}) == "%c0//12, mod(%c0//4, 3), mod(%c0, 4)");
  CHECK(reshaped({"S", "12", "64"}, {"12*S", "64"}) == "%c0//12, mod(%c0, 12), %c1");
}

TEST_CASE_FIXTURE(Fixture, "reshape of scalars, of nothing, and of unprovable sizes") {
  CHECK(reshaped({}, {"1", "1"}) == "");
  CHECK(reshaped({"1", "1"}, {}) == "0, 0");
  CHECK(reshaped({"B", "0"}, {"0", "7"}) == "0, 0");
  // The caller adds a guard for m == h*q; the last dims match in any case.
  CHECK(reshaped({"h", "q", "k"}, {"m", "k"}) == "%c0//q, mod(%c0, q), %c1");
  CHECK(reshaped({"B", "n"}, {"B", "h", "m"}) == "%c0, %c1*m + %c2");
}

TEST_CASE_FIXTURE(Fixture, "reshape of a permuted view composes") {
  View x = permute(buffer({"B", "S", "12", "64"}), {0, 2, 1, 3});
  CHECK(x.shape == exprs({"B", "12", "S", "64"}));
  CHECK(index(x) == "%c0, %c2, %c1, %c3");
  CHECK(index(reshape(x, exprs({"12*B", "S", "64"}), program.facts)) == "%c0//12, %c1, mod(%c0, 12), %c2");
}

TEST_CASE_FIXTURE(Fixture, "slices, flips, dims of one, broadcasts") {
  View x = buffer({"S", "n"});
  CHECK(index(slice(x, 1, 5, 3, 2)) == "%c0, 2*%c1 + 5");
  CHECK(index(slice(x, 0, sym::var("S") - 1, sym::var("S"), -1)) == "S - %c0 - 1, %c1");
  CHECK(index(drop_dim(buffer({"1", "n"}), 0)) == "0, %c0");
  CHECK(index(expand(buffer({"1", "n"}), exprs({"B", "S", "n"}), program.facts)) == "0, %c2");
  CHECK(index(expand(buffer({"m"}), exprs({"n"}), program.facts)) == "select(m == 1, 0, %c0)");
  program.facts.set_range(sym::var("m"), 2, 100);
  CHECK(index(expand(buffer({"m"}), exprs({"n"}), program.facts)) == "%c0");
}

TEST_CASE_FIXTURE(Fixture, "pad masks, crops, and refuses a second fill") {
  View x = buffer({"n"});
  std::optional<View> p = pad(x, {1}, {2}, float_scalar(DType::kF32, 7));
  REQUIRE(p);
  CHECK(p->shape == exprs({"n + 3"}));
  CHECK(index(*p) == "%c0 - 1 if %c0 <= n && 1 <= %c0");
  CHECK(p->fill.f == 7);
  CHECK(index(*pad(x, {-1}, {-2}, float_scalar(DType::kF32, 0))) == "%c0 + 1");
  CHECK(!pad(*p, {1}, {0}, float_scalar(DType::kF32, 0)));
  CHECK(index(*pad(*p, {1}, {0}, float_scalar(DType::kF32, 7))) ==
        "%c0 - 2 if %c0 <= n + 1 && 1 <= %c0 && 2 <= %c0");
  CHECK(index(*pad(*p, {0}, {-1}, float_scalar(DType::kF32, 0))) == "%c0 - 1 if %c0 <= n && 1 <= %c0");
  Access a = access(*p, {sym::var("%i")});
  CHECK(a.index[0] == sym::var("%i") - 1);
}
