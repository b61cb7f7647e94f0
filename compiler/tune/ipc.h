// What a process that measures on a GPU is asked, as bytes: both ends are one program.
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
// Data of weights point into `bytes`.
Request unpack(const std::string& bytes);

}  // namespace stridec::tune
