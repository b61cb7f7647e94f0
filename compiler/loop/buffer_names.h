// An index of the names of a program's buffers, for code that adds thousands of buffers.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "compiler/loop/program.h"

namespace stridec::loop {

// While the index is in use, buffers may be added by any means, but keep their names.
class BufferNames {
 public:
  explicit BufferNames(const Program& program) : program_(program) {}
  // `name`, or the first unused one of stem_1, stem_2, ...
  std::string unused(const std::string& name, const std::string& stem);

 private:
  const Program& program_;
  size_t seen_ = 0;  // buffers whose names are in the index
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, size_t> next_;  // by stem: smaller numbers are in use
};

// The same as add_buffer() without an index, which visits all buffers of the program.
BufferId add_buffer(Program& program, Buffer buffer, BufferNames& names);

}  // namespace stridec::loop
