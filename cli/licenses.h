// The texts of LICENSE and NOTICE, which are embedded in the program, and the sections of NOTICE.
#pragma once

#include <set>
#include <string_view>
#include <vector>

namespace stridec::cli {

// A section of NOTICE. All members are views of the parsed text.
struct Notice {
  std::string_view name, license, copyright, source, used_for;
  std::set<std::string_view> part_of;  // "program", "runtime", "image", ...: the head of NOTICE explains them
  std::string_view section;            // the whole section, from its name on
  std::string_view text;               // the license text, which follows the fields
};

// The line between sections of NOTICE.
inline constexpr std::string_view kSectionLine =
    "\n========================================================================\n";

std::string_view license_text();  // LICENSE
std::string_view notice_text();   // NOTICE

// The sections of a text in NOTICE's format. Fails a STRIDEC_CHECK if a section lacks a field.
std::vector<Notice> parse_notices(std::string_view text);

}  // namespace stridec::cli
