#include "compiler/tuned_schedules.h"

#include <doctest/doctest.h>

#include "compiler/tune/tune.h"

using namespace stridec;

TEST_CASE("the time for measuring is shared by the programs, and ends with the limit") {
  const double usual = tune::Options().seconds;
  const auto tuning = [](double seconds, double limit) {
    Tuning made;
    made.seconds = seconds;
    made.limit = limit;
    return made;
  };
  // Nothing is asked for: the usual time for each, within the limit.
  CHECK(measuring_seconds(tuning(0, 0), 100, 2) == usual);
  CHECK(measuring_seconds(tuning(0, 1000), 0, 2) == usual);
  CHECK(measuring_seconds(tuning(0, 10), 0, 2) == 5);
  CHECK(measuring_seconds(tuning(0, 10), 6, 1) == 4);
  CHECK(measuring_seconds(tuning(0, 10), 12, 1) == 0);
  // A time for all programs: what the first did not use is the others'.
  CHECK(measuring_seconds(tuning(90, 0), 0, 3) == 30);
  CHECK(measuring_seconds(tuning(90, 0), 10, 2) == 40);
  CHECK(measuring_seconds(tuning(90, 20), 10, 2) == 5);
  CHECK(measuring_seconds(tuning(90, 0), 95, 1) == 0);
}
