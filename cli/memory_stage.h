// A run's memory at sizes: what `inspect --stage=memory`, the report and the folder of a trace show.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "compiler/loop/program.h"

namespace stridec::cli {

// The buffers with a place in the arena, with offset, bytes, and the first and the last step that touch them,
// at typical sizes; what depends on sizes also as expressions.
// {"weight_bytes", "buffers", "arena_bytes", "arena"}
nlohmann::ordered_json planned_memory(const loop::Program& program, int64_t threads = 1);

// planned_memory() with the sizes that it is for, and the buffers that have no fixed place.
nlohmann::ordered_json memory_json(const loop::Program& program, int64_t threads);
std::string memory_text(const loop::Program& program, int64_t threads);

// A rectangle for each planned buffer: steps of the run from left to right, addresses from bottom to top.
// `id`: of the element; "": none, and the larger rectangles show the names of their buffers.
std::string memory_svg(const nlohmann::ordered_json& planned, const std::string& id);

}  // namespace stridec::cli
