// The program that the tuner's tests use, on CPUs and GPUs.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "compiler/base/diagnostic.h"
#include "compiler/loop/rewrite.h"
#include "compiler/schedule/fusion/fusion.h"
#include "tests/unit/schedule/programs.h"

namespace stridec::testing {

// Two equal GEMMs with weights and a softmax, over a symbolic number of rows.
inline loop::Program program() {
  Pieces p("tuned");
  const loop::View x = p.input("x", {p.n, 48});
  const loop::View a = p.matmul(x, p.weight("a", {48, 48}, 1));
  const loop::View b = p.matmul(a, p.weight("b", {48, 48}, 2));
  p.output("y", p.softmax(b));
  schedule::fuse(p.program);
  for (loop::Nest& nest : p.program.nests) loop::renumber(nest);
  return std::move(p.program);
}

// The message of the error that the action throws; "" if it throws none.
inline std::string message(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.text;
  }
  return "";
}

}  // namespace stridec::testing
