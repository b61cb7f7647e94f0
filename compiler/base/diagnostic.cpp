#include "compiler/base/diagnostic.h"

#include <stdexcept>

#include "compiler/base/check.h"
#include "compiler/base/printable.h"

namespace stridec {

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  Diagnostic d{.kind = ErrorKind::kInternal,
               .code = "internal",
               .message = "this is a defect of stridec: " + std::string(condition) + " does not hold"};
  d.notes.push_back(std::string(file) + ":" + std::to_string(line));
  if (!detail.empty()) d.notes.push_back(detail);
  d.help = "please report it with the model and the command line";
  throw Error(std::move(d));
}

void fail(ErrorKind kind, std::string code, std::string message, std::string help) {
  throw Error(
      {.kind = kind, .code = std::move(code), .message = std::move(message), .help = std::move(help)});
}

std::string render(const Diagnostic& d) {
  // Output of the kernel compiler and dumps of programs have several lines.
  const bool lines = d.kind == ErrorKind::kInternal || d.kind == ErrorKind::kToolchain;
  std::string out = "error[" + d.code + "]: " + printable(d.message, lines) + "\n";
  std::string at;
  for (const std::string* part : {&d.where.file, &d.where.node, &d.where.op, &d.where.tensor})
    if (!part->empty()) at += (at.empty() ? "" : ", ") + *part;
  if (!at.empty()) out += "  --> " + printable(at) + "\n";
  for (const auto& note : d.notes) out += "      " + printable(note, lines) + "\n";
  if (!d.help.empty()) out += "  help: " + printable(d.help, lines) + "\n";
  return out;
}

}  // namespace stridec
