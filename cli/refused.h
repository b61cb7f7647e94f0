// JSON report of tuned schedules that do not apply, for `compile` and `inspect --stage=schedule`.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/compile.h"

namespace stridec::cli {

// The list under "refused", described by schemas/refused.schema.json. Empty if all schedules apply.
nlohmann::ordered_json refused_json(const std::vector<const tune::Tuned*>& refused);

}  // namespace stridec::cli
