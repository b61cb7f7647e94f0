// Schedules of the tuning database that do not apply, as `compile` and `inspect --stage=schedule` tell of them in JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/compile.h"

namespace stridec::cli {

// The list under "refused", as schemas/refused.schema.json describes it; empty where all apply.
nlohmann::ordered_json refused_json(const Compilation& made);

}  // namespace stridec::cli
