#include "cli/refused.h"

namespace stridec::cli {

nlohmann::ordered_json refused_json(const std::vector<const tune::Tuned*>& refused) {
  auto list = nlohmann::ordered_json::array();
  for (const tune::Tuned* kernel : refused)
    list.push_back({{"kernel", kernel->entry.kernel},
                    {"nodes", kernel->nodes},
                    {"target", kernel->entry.key.target},
                    {"reason", kernel->refused}});
  return list;
}

}  // namespace stridec::cli
