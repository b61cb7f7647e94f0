// Which accesses of blocks that synchronise by a counter the emulator reports as races.
#include <doctest/doctest.h>

#include "tests/support/race_check.h"

namespace stridec::test {
namespace {

constexpr uintptr_t kData = 1 << 20, kCounter = 1 << 21, kOther = kCounter + 4;

// One block stores and then accesses its counter; another block accesses a counter and then loads.
struct Meeting {
  RaceCheck check;
  Meeting() { check.begin_launch({{kData, kData + 64}}); }
  void store(uint32_t thread) { check.touch(kData, 4, true, {thread, 0}); }
  bool load(uint32_t thread) {
    check.touch(kData, 4, false, {thread, 0});
    return check.race().has_value();
  }
};

TEST_CASE(
    "writes before a barrier and a counter are visible to other blocks after the counter and a barrier") {
  Meeting m;
  m.store(7);
  m.check.pass_barrier();
  m.check.meet_at(kCounter, {0, 0});
  m.check.begin_block();
  m.check.meet_at(kCounter, {0, 0});
  SUBCASE("in the thread that came to it at once") { CHECK_FALSE(m.load(0)); }
  SUBCASE("in another one behind a barrier") {
    m.check.pass_barrier();
    CHECK_FALSE(m.load(40));
  }
  SUBCASE("not before") { CHECK(m.load(40)); }
  SUBCASE("and so does who meets that one") {
    m.check.meet_at(kOther, {0, 0});
    m.check.begin_block();
    m.check.meet_at(kOther, {0, 0});
    CHECK_FALSE(m.load(0));
  }
  SUBCASE("but no one in the next block without a counter") {
    m.check.begin_block();
    CHECK(m.load(0));
  }
}

TEST_CASE(
    "writes after a block's last barrier or its arrival are not ordered, nor are those of another counter") {
  Meeting m;
  SUBCASE("no barrier") {
    m.store(7);
    m.check.meet_at(kCounter, {0, 0});
  }
  SUBCASE("after it came") {
    m.check.meet_at(kCounter, {0, 0});
    m.check.pass_barrier();
    m.store(7);
  }
  SUBCASE("another counter") {
    m.store(7);
    m.check.pass_barrier();
    m.check.meet_at(kOther, {0, 0});
  }
  m.check.begin_block();
  m.check.meet_at(kCounter, {0, 0});
  m.check.pass_barrier();
  CHECK(m.load(3));
}

}  // namespace
}  // namespace stridec::test
