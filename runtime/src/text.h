// Text in a fixed-size buffer. Text that does not fit is truncated; the buffer is always zero-terminated.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace stridec::runtime {

class Text {
 public:
  Text(char* out, size_t room) : out_(out), room_(room) {
    if (room_) out_[0] = 0;
  }

  Text& operator<<(char c);
  Text& operator<<(const char* s);
  Text& operator<<(uint64_t value);
  Text& operator<<(int64_t value);
  Text& operator<<(int32_t value) { return *this << static_cast<int64_t>(value); }

 private:
  char* out_;
  size_t room_;
  size_t used_ = 0;
};

struct Dims {
  const int64_t* data;
  int32_t rank;
};

// "[2, 3]"; an unknown dim (-1) is "?".
Text& operator<<(Text& text, Dims dims);

}  // namespace stridec::runtime
