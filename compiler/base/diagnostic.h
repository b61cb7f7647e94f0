// Diagnostics for users: what is wrong with their model, flags or machine.
//
// Errors are exceptions that carry one Diagnostic. Callers that know more (the node, the file) catch the
// Error, fill the empty fields of `where`, and rethrow. Messages start in lower case, have no full stop, name
// what was observed, and put the user's names in single quotes.
#pragma once

#include <exception>
#include <string>
#include <vector>

namespace stridec {

// One kind per documented exit code. The values are the exit codes (cli/exit_codes.h prints the table).
enum class ErrorKind {
  kUsage = 1,        // the command line
  kUnreadable = 2,   // missing file, permission
  kMalformed = 3,    // not a model, truncated, or violates the format
  kDoesNotFit = 4,   // contradictory shapes, types or guards
  kUnsupported = 5,  // a valid model that this build cannot compile
  kOverBudget = 6,   // time, memory, disk
  kToolchain = 7,    // code generation, linker, driver
  kMismatch = 8,     // verify, --frozen
  kInternal = 9,     // a defect of stridec
  kInterrupted = 130,
};

struct Location {
  std::string file;    // the model file
  std::string node;    // "node 412 'head/nms'"
  std::string op;      // "NonMaxSuppression (domain ai.onnx, version 11)"
  std::string tensor;  // the tensor the message is about
};

struct Diagnostic {
  ErrorKind kind = ErrorKind::kInternal;
  std::string code;     // stable short name, e.g. "unsupported-op"
  std::string message;  // one line
  Location where;
  std::vector<std::string> notes;  // facts, one line each ("inputs  boxes f32[batch,1000,5]")
  std::string help;                // what the user can do
};

struct Error : std::exception {
  Diagnostic diagnostic;
  std::string text;  // diagnostic.message, kept for what()

  explicit Error(Diagnostic d) : diagnostic(std::move(d)), text(diagnostic.message) {}
  const char* what() const noexcept override { return text.c_str(); }
};

[[noreturn]] void fail(ErrorKind kind, std::string code, std::string message, std::string help = {});

// Several lines: "error[code]: message", "  --> file, node, op", notes, help. No colours.
std::string render(const Diagnostic& diagnostic);

}  // namespace stridec
