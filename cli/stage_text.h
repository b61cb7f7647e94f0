// What `inspect --stage=STAGE` prints of a compilation, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "compiler/compilation.h"

namespace stridec::cli {

struct StageView {
  std::string stage;    // "": what the model is, and its graph
  int kernel = 0;       // of the stage source, starting at 1; 0: all
  int64_t threads = 1;  // of the run whose memory is shown
};

// Whether the stage is one text of the whole compilation; others have a text for each function.
bool is_whole(const std::string& stage);

// The whole text: of the functions one after the other.
std::string stage_text(const Compilation& made, const StageView& view);
std::string stage_text(const FunctionResult& made, const StageView& view);
nlohmann::ordered_json stage_json(const Compilation& made, const StageView& view);

}  // namespace stridec::cli
