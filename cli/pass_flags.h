// The flags that inspect a compilation: --dump-after, --dump-dir, --stop-after, --time-passes,
// --verify-passes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "compiler/compile.h"

namespace stridec::cli {

struct PassFlags {
  std::string dump_after, dump_folder, stop_after;
  bool times = false, verify = false;

  void declare(CLI::App& app);
  // Throws a usage Error. Dumps are written to files of the folder ("02-fusion.txt"), or to stdout if there
  // is not a folder, or with --format=json to `dumps`.
  PassOptions options(const Globals& globals, std::vector<PassDump>* dumps) const;
};

void print_times(const std::vector<PassTime>& times);
nlohmann::ordered_json times_as_json(const std::vector<PassTime>& times);

}  // namespace stridec::cli
