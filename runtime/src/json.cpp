#include "json.h"

#include <string.h>

namespace stridec::runtime {
namespace {

Json past_space(Json j) {
  while (j && (*j.at == ' ' || *j.at == '\n' || *j.at == '\t' || *j.at == '\r')) ++j.at;
  return j;
}

Json past_string(Json j) {
  for (++j.at; j && *j.at != '"'; ++j.at)
    if (*j.at == '\\' && ++j.at == j.end) return j;
  if (j) ++j.at;
  return j;
}

// What follows the value. Brackets are counted, so that nesting needs no stack.
Json past_value(Json j) {
  int64_t depth = 0;
  while (j) {
    const char c = *j.at;
    if (c == '"') {
      j = past_string(j);
      if (!depth) return j;
      continue;
    }
    if (c == ',' && !depth) return j;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') {
      if (!depth) return j;
      if (!--depth) return {j.at + 1, j.end};
    }
    ++j.at;
  }
  return j;
}

// The value after a comma, if there is one.
Json past_comma(Json j) {
  j = past_space(j);
  if (!j || *j.at != ',') return {};
  ++j.at;
  return past_space(j);
}

Json inside(Json j, char open, char close) {
  if (!j || *j.at != open) return {};
  ++j.at;
  j = past_space(j);
  return j && *j.at != close ? j : Json();
}

}  // namespace

Json json_document(const char* text, size_t bytes) { return past_space({text, text + bytes}); }

Json json_member(Json object, const char* key) {
  for (Json at = inside(object, '{', '}'); at; at = past_comma(past_value(at))) {
    if (*at.at != '"') return {};
    const bool found = json_equals(at, key);
    at = past_space(past_string(at));
    if (!at || *at.at != ':') return {};
    ++at.at;
    at = past_space(at);
    if (found) return at;
  }
  return {};
}

Json json_first(Json array) { return inside(array, '[', ']'); }

Json json_next(Json element) { return past_comma(past_value(element)); }

int64_t json_integer(Json value, int64_t otherwise) {
  int64_t number = 0;
  int digits = 0;
  for (; value && *value.at >= '0' && *value.at <= '9' && digits < 18; ++value.at, ++digits)
    number = 10 * number + (*value.at - '0');
  return digits ? number : otherwise;
}

JsonString json_string(Json value) {
  if (!value || *value.at != '"') return {nullptr, 0};
  const char* const begin = value.at + 1;
  const char* const after = past_string(value).at;
  return {begin, after > begin ? static_cast<size_t>(after - begin - 1) : 0};
}

bool json_equals(Json string, const char* text) {
  const JsonString s = json_string(string);
  return s.data && s.size == strlen(text) && strncmp(s.data, text, s.size) == 0;
}

}  // namespace stridec::runtime
