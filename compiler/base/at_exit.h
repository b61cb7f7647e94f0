// Calls a function at the end of a scope, also when an exception leaves it.
#pragma once

#include <utility>

namespace stridec {

template <class F>
class AtExit {
 public:
  explicit AtExit(F f) : f_(std::move(f)) {}
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit() { f_(); }

 private:
  F f_;
};

}  // namespace stridec
