// What this build can do, as tables.
#include "compiler/compile.h"
#include "compiler/passes/pass_list.h"
#include "compiler/schedule/pass_list.h"

namespace stridec {

const std::vector<Mode>& modes() {
  static const std::vector<Mode> kModes = {
      {"default", "schedules by the analytical model, no measuring; what a compile in CI wants"},
  };
  return kModes;
}

const std::vector<OptionInfo>& options() {
  static const std::vector<OptionInfo> kOptions;
  return kOptions;
}

const std::vector<PassInfo>& pass_table() {
  static const std::vector<PassInfo> kPasses = [] {
    std::vector<PassInfo> all;
    append_info(all, passes::graph_passes());
    append_info(all, schedule::loop_passes());
    append_info(all, schedule::cpu_passes());
    return all;
  }();
  return kPasses;
}

}  // namespace stridec
