// Output of commands: results on stdout, everything else on stderr, colour only on a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "compiler/base/diagnostic.h"

namespace stridec::cli {

// {"error": {...}} with a newline.
std::string error_json(const Diagnostic& diagnostic);
// "error[code]: ..." on stderr, or {"error": {...}} with --format=json: on stdout, and on stderr where stdout
// cannot be written.
void print_error(const Diagnostic& diagnostic, const Globals& globals);
// A remark on stderr; silent with --quiet.
void note(std::string_view text, const Globals& globals);
// "output 'y': the model declares f32[1, 6], but computes f32[n, 6]; the artifact has the computed shape".
std::string warning_text(const Diagnostic& warning);
// A line on stderr for each; silent with --quiet.
void print_warnings(const std::vector<Diagnostic>& warnings, const Globals& globals);

// Makes stdout keep the errno of the first write that fails, which stdio drops. Called before any output.
void watch_output();

// Throws Error if output to stdout was not written completely. A reader that closes the pipe
// (`| head`) is not an error.
void finish_output();

// Pads columns to the widest cell. Cells of wide columns are wrapped where the table is wider than columns()
// (terminal.h). Numeric columns (all cells except a heading start with a digit) are
// right-aligned.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::string& indent = " ");

// Wraps at spaces. Every line after the first begins with `indent` spaces; `at`: the columns that are used on
// the first line. A word that is too long has a line of its own.
std::string wrapped(const std::string& text, size_t indent, size_t at, size_t width);

// Prints lines for people. On a terminal those that are wider are wrapped and go on at `indent`; elsewhere
// they stay whole for other programs.
void print_lines(const std::string& text, size_t indent);

std::string human_seconds(double seconds);                // "47.1 ms"
std::string formatted(double value, const char* format);  // of printf, for one double

}  // namespace stridec::cli
