// Passes as data, and the one runner of them: dumping, stopping, timing and verification happen here and
// nowhere else. What an IR is, the runner does not know; a list brings its IR's verifier and printer.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace stridec {

// A row: changes the IR in place, or throws Error. Names are unique among all lists.
template <class Ir, class... Context>
struct Pass {
  std::string_view name, summary;
  void (*run)(Ir& ir, Context... context);
};

// What makes the IR before the first row; without a name where the list goes on with an earlier list's.
struct PassOrigin {
  std::string_view name, summary;
};

template <class Ir, class... Context>
struct PassList {
  std::string_view stage;  // as progress and tables call it
  PassOrigin origin;
  std::span<const Pass<Ir, Context...>> rows;
  void (*verify)(const Ir& ir, std::string_view after);  // throws Error kInternal
  std::string (*print)(const Ir& ir);
};

struct PassInfo {
  std::string_view stage, name, summary;
};
template <class Ir, class... Context>
void append_info(std::vector<PassInfo>& to, const PassList<Ir, Context...>& list) {
  if (!list.origin.name.empty()) to.push_back({list.stage, list.origin.name, list.origin.summary});
  for (const auto& pass : list.rows) to.push_back({list.stage, pass.name, pass.summary});
}

struct PassTime {
  std::string_view stage, name;
  int runs = 0;
  double seconds = 0, verifying = 0;
};

struct PassDump {
  size_t ordinal;  // of the passes that ran, from 1
  std::string_view name, variant;
  std::string text;
};

#ifdef NDEBUG
inline constexpr bool kVerifyEachPass = false;
#else
inline constexpr bool kVerifyEachPass = true;
#endif

struct PassOptions {
  bool verify_each = kVerifyEachPass;   // false: what a list leaves behind, alone
  std::vector<std::string> dump_after;  // names of passes, or "all"
  std::string stop_after;               // a pass's name; "": none
  std::vector<std::string> skip;        // names of passes that do not run
  std::function<void(const PassDump&)> dump;
};

class PassRunner {
 public:
  using Tell = std::function<void(std::string_view stage, size_t done, size_t total, std::string_view what)>;
  explicit PassRunner(const PassOptions& options, Tell tell = {});

  // What the list works on was just made. False, here and below: `stop_after` names what was done, and nothing
  // should follow.
  template <class Ir, class... Context>
  bool made(const PassList<Ir, Context...>& list, const Ir& ir) {
    return after(list, list.origin.name, ir, {}, true);
  }

  // Runs the rows in order. `variant` tells dumps of the same pass apart.
  template <class Ir, class... Context>
  bool run(const PassList<Ir, Context...>& list, Ir& ir, std::string_view variant,
           std::type_identity_t<Context>... context) {
    for (size_t i = 0; i < list.rows.size(); ++i) {
      const auto& pass = list.rows[i];
      if (skips(pass.name) && i + 1 < list.rows.size())
        continue;  // the last one's place is where a list is verified
      if (tell_) tell_(list.stage, i, list.rows.size(), variant.empty() ? pass.name : variant);
      if (!skips(pass.name)) pass.run(ir, context...);
      if (!after(list, pass.name, ir, variant, i + 1 == list.rows.size())) return false;
    }
    return true;
  }

  // The time since the last pass or lap went into this; for work that is no pass.
  void lap(std::string_view stage);
  // In order of first run.
  const std::vector<PassTime>& times() const { return times_; }

 private:
  template <class Ir, class... Context>
  bool after(const PassList<Ir, Context...>& list, std::string_view name, const Ir& ir,
             std::string_view variant, bool last) {
    took(list.stage, name, &PassTime::seconds);
    ++ordinal_;
    if (wants_dump(name)) options_.dump({ordinal_, name, variant, list.print(ir)});
    start_ = Clock::now();
    const bool stop = name == options_.stop_after;
    if (last || stop || options_.verify_each) {
      list.verify(ir, name);
      took(list.stage, name, &PassTime::verifying);
    }
    return !stop;
  }
  bool wants_dump(std::string_view name) const;
  bool skips(std::string_view name) const;
  void took(std::string_view stage, std::string_view name, double PassTime::* what);

  using Clock = std::chrono::steady_clock;
  PassOptions options_;
  Tell tell_;
  Clock::time_point start_ = Clock::now();
  std::vector<PassTime> times_;
  size_t ordinal_ = 0;
};

}  // namespace stridec
