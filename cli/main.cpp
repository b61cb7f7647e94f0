// stridec: an ahead-of-time model compiler. Parses the command line, runs one command, and converts errors to
// messages and exit codes.
#include <exception>
#include <new>

#include "cli/commands.h"
#include "cli/exit_owner.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/response_file.h"
#include "compiler/base/diagnostic.h"

namespace stridec::cli {
namespace {

int report(const Diagnostic& diagnostic, const CommandLine& line) {
  own_exit();
  print_error(diagnostic, line.globals);
  if (line.chosen == "compile") note("nothing was written", line.globals);
  return static_cast<int>(diagnostic.kind);
}

int run(const std::vector<std::string>& arguments) {
  CommandLine line;
  try {
    const bool acts = parse(line, expand_response_files(arguments));
    const int code = acts ? line.action() : 0;
    own_exit();
    finish_output();
    return code;
  } catch (const Error& error) {
    return report(error.diagnostic, line);
  } catch (const std::bad_alloc&) {
    return report({.kind = ErrorKind::kOverBudget,
                   .code = "out-of-memory",
                   .message = "memory ran out",
                   .where = {.file = named_work()}},
                  line);
  } catch (const std::exception& error) {
    return report({.kind = ErrorKind::kInternal, .code = "internal", .message = error.what()}, line);
  }
}

}  // namespace
}  // namespace stridec::cli

int main(int argc, char** argv) {
  stridec::cli::handle_interrupts();
  stridec::cli::watch_output();
  return stridec::cli::run({argv + (argc > 0 ? 1 : 0), argv + argc});
}
