// LICENSE and NOTICE as the program carries them, and what of NOTICE holds for one artifact.
#pragma once

#include <set>
#include <string_view>
#include <vector>

namespace stridec::cli {

// A section of NOTICE. All are views of the embedded file.
struct Notice {
  std::string_view name, license, copyright, source, used_for;
  std::set<std::string_view> part_of;  // "program", "runtime", "image", ...: NOTICE says what they are
  std::string_view section;            // all of it, from its name on
  std::string_view text;               // what stands below its fields
};

// The line between sections of NOTICE.
inline constexpr std::string_view kSectionLine =
    "\n========================================================================\n";

std::string_view license_text();  // LICENSE
std::string_view notice_text();   // NOTICE

// The sections of a text in NOTICE's format. A field that a section lacks is a broken invariant.
std::vector<Notice> parse_notices(std::string_view text);

}  // namespace stridec::cli
