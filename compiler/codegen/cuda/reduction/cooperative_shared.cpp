// Rows kept in shared memory: those that are too long for registers are loaded once.
//
// The first loop that loads a row stores it in shared memory, and later loops load it from there. The same
// thread loads chunk c of a row in every loop, so no synchronisation is needed. Occupancy follows from the
// row sizes: a launch requests as many bytes as its sizes need.
#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cuda {

void CooperativeEmitter::plan_shared() {
  if (!variant.shared) return;
  for (const loop::Stmt& stmt : nest.body) {
    if (!is_range(stmt)) continue;
    const Range range = range_of(stmt);
    for (const loop::Stmt& inner : *range.block) {
      if (!can_keep(range, inner)) continue;
      const loop::Access& access = *loop::access_of(inner);
      if (range.strip && covers(range, access)) continue;
      const std::string place = place_of(range, access);
      if (wanted_.at(place) < 2 || !shared_rows_.try_emplace(place, SharedRow{shared_bytes_}).second)
        continue;
      const int chunk = width * lanes * byte_size(program[access.buffer].dtype);
      shared_bytes_ += sym::align_up(range.chunks * chunk, 16);
    }
  }
}

std::string CooperativeEmitter::shared_place(const Range& range, const loop::Access& access) {
  if (range.edges) return "";
  const auto row = shared_rows_.find(place_of(range, access));
  if (row == shared_rows_.end()) return "";
  const std::string at = variant.columns ? cat("(", chunk_, " * ", lanes, " + lane)") : chunk_;
  return cat("(", text_.storage_type(program[access.buffer].dtype), "*)(kept + ",
             text_.size(row->second.offset), ") + ", at, width > 1 ? cat(" * ", width) : "");
}

bool CooperativeEmitter::is_filled(const Range& range, const loop::Access& access) const {
  const auto row = range.edges ? shared_rows_.end() : shared_rows_.find(place_of(range, access));
  return row != shared_rows_.end() && row->second.filled;
}

void CooperativeEmitter::fill_shared(const Range& range) {
  for (const loop::Stmt& stmt : *range.block) {
    if (!can_keep(range, stmt)) continue;
    const auto row = shared_rows_.find(place_of(range, *loop::access_of(stmt)));
    if (row != shared_rows_.end()) row->second.filled = true;
  }
}

}  // namespace stridec::codegen::cuda
