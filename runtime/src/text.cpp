#include "text.h"

namespace stridec::runtime {

Text& Text::operator<<(char c) {
  if (used_ + 1 < room_) {
    out_[used_++] = c;
    out_[used_] = 0;
  }
  return *this;
}

Text& Text::operator<<(const char* s) {
  while (*s) *this << *s++;
  return *this;
}

Text& Text::operator<<(uint64_t value) {
  char digits[20];
  int n = 0;
  do digits[n++] = static_cast<char>('0' + value % 10);
  while (value /= 10);
  while (n) *this << digits[--n];
  return *this;
}

Text& Text::operator<<(int64_t value) {
  if (value < 0) *this << '-';
  return *this << (value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value));
}

Text& operator<<(Text& text, Dims dims) {
  text << '[';
  for (int32_t i = 0; i < dims.rank; ++i) {
    if (i) text << ", ";
    if (dims.data[i] < 0)
      text << '?';
    else
      text << dims.data[i];
  }
  return text << ']';
}

}  // namespace stridec::runtime
