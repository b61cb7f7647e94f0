// Chooses which cases of a large grid of tests run on every change. A nightly run (STRIDEC_NIGHTLY) has all.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "runtime/include/stridec/xxh64.h"

namespace stridec::test {

// How many cases were asked for and how many run; printed when the process ends (tests/unit.sh reads it).
struct SampleCount {
  long asked = 0, run = 0;
  ~SampleCount() {
    if (asked) std::printf("sample: %ld of %ld cases\n", run, asked);
  }
};

// Whether one in `one_in` cases includes this one, by a hash of the text that says what the case is. The
// choice is the same in every run and does not depend on other cases.
inline bool is_one_in(std::string_view what, uint64_t one_in) {
  static const bool all = std::getenv("STRIDEC_NIGHTLY") != nullptr;
  return all || stridec_xxh64(what.data(), what.size(), 0) % one_in == 0;
}

// The same, for a unit test: counts the cases, for the report of tests/unit.sh.
inline bool in_sample(std::string_view what, uint64_t one_in) {
  static SampleCount count;
  const bool runs = is_one_in(what, one_in);
  ++count.asked;
  count.run += runs;
  return runs;
}

}  // namespace stridec::test
