// Sentences in fixed memory: what does not fit is cut off, the zero byte is always there.
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

// "[2, 3]"; a dim not known (-1) as "?".
Text& operator<<(Text& text, Dims dims);

}  // namespace stridec::runtime
