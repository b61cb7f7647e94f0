// Serialises requests to a process that measures on a GPU. Both ends are the same program.
#pragma once

#include <string>
#include <vector>

#include "compiler/tune/subject.h"

namespace stridec::tune {

std::string pack(const std::vector<Subject>& subjects, const std::vector<bool>& alive,
                 const MeasureOptions& options);

struct Request {
  std::vector<Subject> subjects;
  std::vector<bool> alive;
  MeasureOptions options;
};
// The data of weights point into `bytes`.
Request unpack(const std::string& bytes);

}  // namespace stridec::tune
