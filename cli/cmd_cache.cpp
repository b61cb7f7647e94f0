// cache: shows, clears and limits the cache of compiled kernels.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/codegen/object_cache.h"
#include "compiler/tune/database.h"

namespace stridec::cli {
namespace {

struct Flags {
  uint64_t limit = 0;
  CLI::App *show, *clear, *set;
};

int print_use(const codegen::CacheUse& use, const Globals& globals) {
  const std::string database = tune::default_database();
  if (globals.json) {
    const nlohmann::ordered_json json = {{"folder", use.folder},
                                         {"kernels", use.objects},
                                         {"bytes", use.bytes},
                                         {"limit_bytes", use.limit},
                                         {"database", database}};
    std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return 0;
  }
  const std::string limit =
      use.limit > 0 ? human_bytes(static_cast<uint64_t>(use.limit)) : std::string("the default, 256 MiB");
  std::printf("%s", table({{"folder", use.folder},
                           {"kernels", cat(use.objects, ", ", human_bytes(static_cast<uint64_t>(use.bytes)))},
                           {"limit", limit},
                           {"tuning", database}})
                        .c_str());
  return 0;
}

// Why a size without a unit is refused: '2' would empty the cache.
std::string without_unit(const std::string& text) {
  const bool plain =
      text != "0" && !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
  return plain ? cat("'", text, "' has no unit: write ", text, "MB or ", text, "GB") : "";
}

}  // namespace

std::function<int()> declare_cache(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  app.require_subcommand(0, 1);
  flags->show = app.add_subcommand("show", "folder, number of kernels, bytes and limit (the default)");
  flags->clear = app.add_subcommand("clear", "remove all compiled kernels; the tuning database stays");
  flags->set = app.add_subcommand("limit", "keep at most this many bytes from now on");
  flags->set->add_option("size", flags->limit, "500MB, 2GB; 0: the default")
      ->required()
      ->transform(CLI::Validator(to_bytes, "", "size"))
      ->transform(CLI::Validator([](std::string& text) { return without_unit(text); }, "", "unit"))
      ->type_name("SIZE");
  for (CLI::App* sub : {flags->show, flags->clear, flags->set}) sub->fallthrough();
  return [flags, &globals] {
    if (flags->clear->parsed()) {
      const codegen::CacheUse before = codegen::clear_cache();
      note(cat(before.folder, ": ", before.objects, " kernels removed, ",
               human_bytes(static_cast<uint64_t>(before.bytes))),
           globals);
      return 0;
    }
    if (flags->set->parsed()) {
      codegen::set_cache_limit(static_cast<int64_t>(flags->limit));
      return globals.quiet ? 0 : print_use(codegen::cache_use(), globals);
    }
    return print_use(codegen::cache_use(), globals);
  };
}

}  // namespace stridec::cli
