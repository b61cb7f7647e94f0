#include "compiler/loop/vectorize_analysis.h"

#include <doctest/doctest.h>

#include "compiler/sym/text.h"

using namespace stridec;
using namespace stridec::loop;

namespace {

std::optional<Spread> spread(sym::Expr offset, int width) {
  sym::Facts facts;
  facts.set_index(strip(), 1000);
  facts.set_index(sym::var("%c"), 1000);
  return spread_of(offset, sym::var("%c"), width, facts);
}

}  // namespace

TEST_CASE("the lanes of a divided index share elements") {
  const sym::Expr c = sym::var("%c");
  const auto groups = spread(sym::floordiv(c, 4) + 7, 8);
  REQUIRE(groups);
  CHECK(groups->spread == std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(groups->base == strip() * 2 + 7);
  CHECK(groups->elements() == 2);
  CHECK(spread(sym::mod(c, 4), 8)->spread == std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(spread(10 - c, 4)->spread == std::vector<int64_t>{3, 2, 1, 0});
  CHECK(spread(10 - c, 4)->base == 7 - strip() * 4);
}

TEST_CASE("lanes at no constant distance have no spread") {
  const sym::Expr c = sym::var("%c");
  CHECK(!spread(sym::floordiv(c, 3), 8));  // a vector may start in the middle of a group
  CHECK(!spread(sym::max(c - 5, 0), 8));   // a vector may contain the clamped position
  CHECK(!spread(sym::floordiv(c, sym::var("n")), 8));
}

TEST_CASE("offsets that grow by at most one from lane to lane") {
  using sym::Expr;
  const Expr lane = sym::var("%lane"), i = sym::var("%i"), n = sym::var("n");
  const Expr at = i + lane;
  for (const Expr& offset : {sym::max(sym::min(at - 3, n - 1), 0), sym::mod(at + 5, n), n * i + at,
                             sym::min(sym::max(at, -at), 2 * n - sym::max(at, -at)), sym::mod(at, 8) - 3})
    CHECK_MESSAGE(grows_by_at_most_one(offset, lane, {}), sym::to_string(offset));
  for (const Expr& offset :
       {2 * at, n * lane, 7 - sym::mod(at, 8), sym::mod(-at, 8), 2 * sym::floordiv(at, 2),
        sym::select(sym::lt(at, n), at, 0), sym::mod(2 * lane, n), lane + sym::min(at, n)})
    CHECK_MESSAGE(!grows_by_at_most_one(offset, lane, {}), sym::to_string(offset));
}

TEST_CASE("offsets that grow by one at least from lane to lane") {
  using sym::Expr;
  const Expr lane = sym::var("%lane"), i = sym::var("%i"), n = sym::var("n"), m = sym::var("m");
  const Expr at = i + lane;
  sym::Facts facts;
  facts.set_range(n, 1, 1000);
  facts.set_range(m, 1, 1000);
  const auto digits = [&](Expr x, Expr size, Expr step) {
    return step * sym::floordiv(x, size) + sym::mod(x, size) + n * i;
  };
  for (const Expr& offset : {at + sym::floordiv(at, 4), digits(at, n, 5 * n),
                             digits(at, 8 * n * m, 24 * n * m), digits(at, 7, 11), 2 * at + sym::max(at, 3)})
    CHECK_MESSAGE(grows_by_at_least_one(offset, lane, facts), sym::to_string(offset));
  for (const Expr& offset : {sym::mod(at, n), digits(at, n, m), digits(at, 8 * n, 5 * n), digits(at, 11, 7),
                             digits(-at, n, 5 * n), sym::floordiv(at, 2), sym::max(at, 3)})
    CHECK_MESSAGE(!grows_by_at_least_one(offset, lane, facts), sym::to_string(offset));
}

TEST_CASE("offsets that never fall from lane to lane") {
  using sym::Expr;
  const Expr lane = sym::var("%lane"), i = sym::var("%i"), n = sym::var("n"), m = sym::var("m");
  const Expr at = i + lane;
  sym::Facts facts;
  facts.set_range(n, 1, 1000);
  facts.set_range(m, std::nullopt, std::nullopt);
  for (const Expr& offset :
       {sym::max(sym::min(sym::floordiv(at + 4, 8), n - 1), 0), sym::floordiv((2 * at + 1) * n - 7, 2 * n),
        n * lane, m * i + sym::floordiv(at, n)})
    CHECK_MESSAGE(never_falls(offset, lane, facts), sym::to_string(offset));
  for (const Expr& offset : {sym::mod(at, n), -lane, m * lane, sym::floordiv(at, m), sym::max(at, -at),
                             sym::floordiv(m * lane, n), sym::select(sym::lt(at, n), at, 0)})
    CHECK_MESSAGE(!never_falls(offset, lane, facts), sym::to_string(offset));
  CHECK(grows_by_at_most_one(sym::floordiv(at, 3), lane, facts));
  CHECK(!grows_by_at_most_one(sym::floordiv(3 * at, 2), lane, facts));
}

TEST_CASE("a loop whose rounds a dim decides has no lanes along it") {
  const sym::Expr i = sym::var("%i"), n = sym::var("n");
  const auto loop_of = [](sym::Expr extent) {
    return Block{{For{.dims = {{sym::var("%k"), extent}}, .body = {}}}};
  };
  CHECK(moves_extents(loop_of(sym::min(n - 4 * i, 4)), i));
  CHECK(moves_extents({{For{.dims = {{sym::var("%j"), n}}, .body = loop_of(i + 1)}}}, i));
  CHECK(!moves_extents(loop_of(n), i));
  CHECK(!moves_extents({}, i));
}
