#include "cli/option_docs.h"

#include <CLI/CLI.hpp>

#include "cli/compile_flags.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

// CLI11 writes "TEXT:{text,json}" and "INT:INT in [1 - 100000]".
std::string value_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  if (colon == std::string::npos) return type;
  return type[colon + 1] == '{' ? type.substr(colon + 1) : type.substr(0, colon);
}

std::string default_of(const CLI::Option& option) {
  const std::string text = option.get_default_str();
  const bool says_nothing = text.empty() || text == "0" || text == "-1" || text[0] == '[' || text[0] == '{';
  if (says_nothing || option.get_description().find("default:") != std::string::npos) return "";
  return cat(" (default: ", text, ")");
}

OptionDoc document(const CLI::Option& option) {
  OptionDoc doc;
  doc.positional = option.get_positional();
  if (doc.positional) doc.names = {option.get_name(true, false)};
  for (const std::string& name : option.get_snames()) doc.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) doc.names.push_back("--" + name);
  doc.value = value_of(option);
  if (doc.value.starts_with('{')) doc.choices = split_list(doc.value.substr(1, doc.value.size() - 2));
  doc.help = option.get_description() + default_of(option);
  doc.group = option.get_group();
  doc.required = option.get_required();
  doc.repeated = option.get_items_expected_max() > 1;
  return doc;
}

}  // namespace

std::vector<OptionDoc> options_of(const CLI::App& app) {
  std::vector<OptionDoc> docs;
  for (const bool positional : {true, false})
    for (const CLI::Option* option : app.get_options())
      if (!option->get_group().empty() && option->get_positional() == positional)
        docs.push_back(document(*option));
  return docs;
}

const std::vector<EnvironmentVariable>& environment_variables() {
  static const std::vector<EnvironmentVariable> kVariables = {
      {"STRIDEC_CACHE", "the folder of the kernel cache and of this user's tuning database"},
      {"XDG_CACHE_HOME", "without STRIDEC_CACHE: the folder is 'stridec' in it (default: ~/.cache)"},
      {"STRIDEC_THREADS", "how many threads an artifact uses if the caller gives no number"},
      {"STRIDEC_PROFILE",
       "a file for a trace of the runs of artifacts, also in applications; %p: process, %m: model"},
      {"STRIDEC_PROFILE_RUNS", "how many runs of each context it has (default: 100; 0: all)"},
      {"STRIDEC_NVRTC", "the library that compiles GPU kernels, or its folder; --nvrtc comes first"},
      {"STRIDEC_CUPTI", "the library that 'profile --cupti' records kernels with, or its folder"},
      {"NO_COLOR", "set to anything: no colours"},
      {"TERM", "dumb: neither colours nor a progress bar"},
      {"COLUMNS", "the width of tables where output is not a terminal (default: 100)"},
  };
  return kVariables;
}

}  // namespace stridec::cli
