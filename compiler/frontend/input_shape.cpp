#include "compiler/frontend/input_shape.h"

#include <algorithm>
#include <charconv>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::frontend {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-';
}

// A number that fits, or a name that does not start with a digit.
bool is_size(std::string_view text) {
  if (text.empty() || !std::ranges::all_of(text, is_word)) return false;
  if (!is_digit(text[0])) return text[0] != '-' && text[0] != '.';
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

InputShape parse_input_shape(std::string_view text) {
  const auto bad = [&] {
    fail(ErrorKind::kUsage, "bad-shape",
         cat("'", text, "' is not of the form name=size,size or name=dtype[size,size]"),
         "write --shape image=batch,3,224,224, --shape image=1x3x224x224 or --shape 'ids=i64[batch,time]'; "
         "a scalar is f32[]");
  };
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) bad();
  InputShape out{.name = std::string(text.substr(0, equals)), .dtype = {}, .sizes = {}};
  std::string_view rest = trimmed(text.substr(equals + 1));
  const size_t open = rest.find('[');
  const bool bracketed = open != std::string_view::npos;
  if (bracketed) {
    if (!rest.ends_with(']')) bad();
    if (open > 0) {
      out.dtype = parse_dtype(trimmed(rest.substr(0, open)));
      if (!out.dtype)
        fail(ErrorKind::kUsage, "bad-shape", cat("'", text, "': unknown dtype '", rest.substr(0, open), "'"),
             "the dtypes are f32, f16, bf16, f64, i64, i32, bool and others: write 'ids=i64[batch,time]'");
    }
    rest = trimmed(rest.substr(open + 1, rest.size() - open - 2));
    if (rest.empty()) return out;
  }
  // Between numbers alone, 'x' separates as well.
  const bool crossed = std::ranges::all_of(rest, [](char c) { return is_digit(c) || c == 'x'; });
  const char separator = crossed ? 'x' : ',';
  while (true) {
    const size_t end = std::min(rest.find(separator), rest.size());
    const std::string_view size = trimmed(rest.substr(0, end));
    if (!is_size(size)) bad();
    out.sizes.emplace_back(size);
    if (end == rest.size()) return out;
    rest.remove_prefix(end + 1);
  }
}

std::string to_string(const InputShape& shape) {
  return cat(name(shape.dtype.value_or(DType::kF32)), "[", join(shape.sizes, ","), "]");
}

}  // namespace stridec::frontend
