#include "cli/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

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
    std::printf("%s", error_json(d).c_str());
    return;
  }
  std::string text = render(d);
  if (isatty(STDERR_FILENO))
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

// Whether stdout is a pipe or a socket that nobody reads any more.
bool reader_is_gone() {
  pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

void finish_output() {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout) return;
  // An earlier write may have failed, whose errno is lost.
  if (errno == EPIPE || reader_is_gone()) return;
  const bool space = errno == ENOSPC;
  fail(space ? ErrorKind::kOverBudget : ErrorKind::kUnreadable, space ? "no-space" : "cannot-write",
       cat("standard output could not be written", errno ? cat(": ", std::strerror(errno)) : ""));
}

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
      widths[i] = std::max(widths[i], cell.size());
      if ((r > 0 || rows.size() == 1) && !cell.empty() && !std::isdigit(static_cast<unsigned char>(cell[0])))
        numbers[i] = false;
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      line += numbers[i] ? pad + row[i] : row[i] + (i + 1 < row.size() ? pad : "");
      if (i + 1 < row.size()) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
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
