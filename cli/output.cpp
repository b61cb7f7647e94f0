#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/terminal.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"

namespace stridec::cli {

std::string error_json(const Diagnostic& d) {
  const nlohmann::ordered_json json = {{"error",
                                        {{"code", d.code},
                                         {"exit_code", static_cast<int>(d.kind)},
                                         {"message", d.message},
                                         {"file", d.where.file},
                                         {"node", d.where.node},
                                         {"op", d.where.op},
                                         {"tensor", d.where.tensor},
                                         {"notes", d.notes},
                                         {"help", d.help}}}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void print_error(const Diagnostic& d, const Globals& globals) {
  if (globals.json) {
    const std::string text = error_json(d);
    std::fputs(text.c_str(), stdout);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) std::fputs(text.c_str(), stderr);
    return;
  }
  std::string text = render(d);
  if (has_colour(STDERR_FILENO))
    text = "\033[1;31m" + text.substr(0, text.find(':')) + "\033[0m" + text.substr(text.find(':'));
  std::fprintf(stderr, "%s", text.c_str());
}

void note(std::string_view text, const Globals& globals) {
  if (!globals.quiet) std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

std::string warning_text(const Diagnostic& warning) {
  return printable(cat(warning.where.tensor, warning.where.tensor.empty() ? "" : ": ", warning.message,
                       warning.help.empty() ? "" : "; ", warning.help));
}

void print_warnings(const std::vector<Diagnostic>& warnings, const Globals& globals) {
  for (const Diagnostic& warning : warnings)
    note(cat("warning[", warning.code, "]: ", warning_text(warning)), globals);
}

namespace {

int first_failure = 0;  // the errno of the first write to stdout that failed

// The write function of a cookie stream: fewer bytes than `size` set the stream's error flag.
ssize_t write_out(void*, const char* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t written = write(STDOUT_FILENO, bytes + done, size - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      if (first_failure == 0) first_failure = written < 0 ? errno : EIO;
      break;
    }
    done += static_cast<size_t>(written);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

void watch_output() {
  std::FILE* const watched =
      fopencookie(nullptr, "w", {.read = {}, .write = write_out, .seek = {}, .close = {}});
  if (!watched) return;
  std::setvbuf(watched, nullptr, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
  stdout = watched;
}

void finish_output() {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return;
  const int reason = first_failure;
  if (reason == EPIPE || reason == ECONNRESET) return;  // the reader has closed the pipe or the socket
  const bool space = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
  fail(space ? ErrorKind::kOverBudget : ErrorKind::kUnreadable, space ? "no-space" : "cannot-write",
       cat("standard output could not be written", reason ? cat(": ", std::strerror(reason)) : ""));
}

namespace {

constexpr size_t kGap = 2;  // between columns

// Columns of a terminal that the text takes: its code points.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// The text in lines of at most `width` columns, split after spaces and commas, or anywhere in a longer word.
std::vector<std::string> lines_of(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::string rest = text;
  while (width_of(rest) > width) {
    size_t at = 0, used = 0, split = 0;  // bytes, columns, and the byte after the last space or comma
    while (at < rest.size()) {
      size_t next = at + 1;
      while (next < rest.size() && (static_cast<unsigned char>(rest[next]) & 0xC0) == 0x80) ++next;
      if (rest[at] != ' ' && used == width) break;
      used += rest[at] != ' ' || used < width;
      if (rest[at] == ' ' || rest[at] == ',') split = next;
      at = next;
    }
    if (split == 0) split = at;
    std::string line = rest.substr(0, split);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(line);
    rest.erase(0, split);
  }
  lines.push_back(rest);
  return lines;
}

// Narrows the widest columns until the table fits.
void fit(std::vector<size_t>& widths, const std::vector<bool>& numbers, size_t most) {
  constexpr size_t kLeast = 12;
  size_t total = kGap * (widths.empty() ? 0 : widths.size() - 1);
  for (const size_t width : widths) total += width;
  while (total > most) {
    size_t widest = widths.size(), next = kLeast;
    for (size_t i = 0; i < widths.size(); ++i) {
      if (numbers[i] || widths[i] <= kLeast) continue;
      if (widest == widths.size() || widths[i] > widths[widest]) {
        if (widest != widths.size()) next = std::max(next, widths[widest]);
        widest = i;
      } else {
        next = std::max(next, widths[i]);
      }
    }
    if (widest == widths.size()) return;
    const size_t by = std::clamp<size_t>(widths[widest] - next, 1, total - most);
    widths[widest] -= by, total -= by;
  }
}

}  // namespace

std::string table(const std::vector<std::vector<std::string>>& given, const std::string& indent) {
  std::vector<std::vector<std::string>> rows = given;
  for (auto& row : rows)
    for (std::string& cell : row) cell = printable(cell);
  std::vector<size_t> widths;
  std::vector<bool> numbers;  // per column; the first row may be a heading
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t i = 0; i < rows[r].size(); ++i) {
      const std::string& cell = rows[r][i];
      if (i == widths.size()) widths.push_back(0), numbers.push_back(true);
      widths[i] = std::max(widths[i], width_of(cell));
      if ((r > 0 || rows.size() == 1) && !cell.empty() && !std::isdigit(static_cast<unsigned char>(cell[0])))
        numbers[i] = false;
    }
  fit(widths, numbers, columns() - std::min(columns(), indent.size()));
  std::string out;
  for (const auto& row : rows) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t i = 0; i < row.size(); ++i) {
      cells.push_back(lines_of(row[i], std::max<size_t>(1, widths[i])));
      height = std::max(height, cells.back().size());
    }
    for (size_t h = 0; h < height; ++h) {
      std::string line = indent;
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string cell = h < cells[i].size() ? cells[i][h] : "";
        const std::string pad(widths[i] - std::min(widths[i], width_of(cell)), ' ');
        line += numbers[i] ? pad + cell : cell + (i + 1 < row.size() ? pad : "");
        if (i + 1 < row.size()) line += std::string(kGap, ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
  }
  return out;
}

std::string wrapped(const std::string& text, size_t indent, size_t at, size_t width) {
  std::istringstream words(text);
  std::string out;
  size_t column = at;
  for (std::string word; words >> word;) {
    const bool begins = column == at && out.empty();
    if (!begins && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!begins) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

void print_lines(const std::string& text, size_t indent) {
  if (!isatty(STDOUT_FILENO)) {
    std::printf("%s", text.c_str());
    return;
  }
  const size_t width = columns();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::string first = lines_of(line, width).front();
    const std::string rest = line.substr(first.size());
    std::printf("%s\n", first.c_str());
    const size_t begins = rest.find_first_not_of(' ');
    if (begins == std::string::npos) continue;
    for (const std::string& more : lines_of(rest.substr(begins), width - std::min(width / 2, indent)))
      std::printf("%*s%s\n", static_cast<int>(indent), "", more.c_str());
  }
}

std::string formatted(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string human_seconds(double seconds) {
  char text[32];
  if (seconds >= 1)
    std::snprintf(text, sizeof(text), "%.2f s", seconds);
  else if (seconds >= 1e-3)
    std::snprintf(text, sizeof(text), "%.2f ms", seconds * 1e3);
  else
    std::snprintf(text, sizeof(text), "%.1f us", seconds * 1e6);
  return text;
}

}  // namespace stridec::cli
