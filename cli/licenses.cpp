#include "cli/licenses.h"

#include "compiler/base/check.h"

// Defined by stridec_embed() in CMake.
extern "C" const char stridec_embedded_license[], stridec_embedded_license_end[];
extern "C" const char stridec_embedded_notice[], stridec_embedded_notice_end[];

namespace stridec::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == '\n' || text.front() == ' ')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

// The first line, which is taken off with its end.
std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view take_field(std::string_view& text, std::string_view name) {
  const std::string_view line = take_line(text);
  STRIDEC_CHECK(line.starts_with(name) && line.substr(name.size()).starts_with(": "), line);
  return line.substr(name.size() + 2);
}

Notice parse_section(std::string_view text) {
  Notice notice{.section = trimmed(text)};
  text = notice.section;
  notice.name = take_line(text);
  STRIDEC_CHECK(take_line(text).empty(), notice.name);
  notice.license = take_field(text, "License");
  notice.copyright = take_field(text, "Copyright");
  notice.source = take_field(text, "Source");
  for (std::string_view parts = take_field(text, "Part of"); !parts.empty();) {
    const size_t comma = parts.find(", ");
    notice.part_of.insert(parts.substr(0, comma));
    parts.remove_prefix(comma == std::string_view::npos ? parts.size() : comma + 2);
  }
  notice.used_for = take_field(text, "Used for");
  notice.text = trimmed(text);
  return notice;
}

}  // namespace

std::string_view license_text() { return {stridec_embedded_license, stridec_embedded_license_end}; }
std::string_view notice_text() { return {stridec_embedded_notice, stridec_embedded_notice_end}; }

std::vector<Notice> parse_notices(std::string_view text) {
  std::vector<Notice> notices;
  for (size_t at = text.find(kSectionLine); at != std::string_view::npos;) {
    const size_t begin = at + kSectionLine.size(), end = text.find(kSectionLine, begin);
    notices.push_back(parse_section(text.substr(begin, end - begin)));
    at = end;
  }
  return notices;
}

}  // namespace stridec::cli
