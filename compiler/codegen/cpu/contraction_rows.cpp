#include "compiler/codegen/cpu/contraction_rows.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction_copy.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cpu {
namespace {

constexpr int kChunk = 8;  // rows whose addresses are computed at once

int64_t chunks(const ContractionFrame& f) { return (f.plan.kernel->rows + kChunk - 1) / kChunk; }

std::vector<std::string> row_names(const ContractionFrame& f) {
  std::vector<std::string> names;
  for (size_t d = 0; d < f.rows.size(); ++d) names.push_back(cat("row_", d));
  return names;
}

}  // namespace

ContractionRows::ContractionRows(ContractionFrame& frame, bool indices) : f_(frame), indices_(indices) {
  KernelText& text = f_.text;
  if (f_.plan.a == kernels::GemmPlan::A::kPack) {
    merged_ = true;
    // Vectors are stored past the end of a row, and rows must not be a multiple of 4 KB apart. Rows of tile registers are
    // whole lines of the cache.
    const int unit = f_.plan.kernel->tiles ? f_.step() : f_.lanes;
    const sym::Expr stride = sym::align_up(extent_of(f_.reduced), unit) + unit;
    pack_stride_ = text.size(stride);
    pack_ = text.scratch(stride * (f_.block_limit * f_.a_bytes()));
  } else if (f_.a->load && (local_ = f_.local_rows(f_.a->load->access.buffer))) {
    merged_ = true;
  } else {
    plan_direct();
  }
  STRIDEC_CHECK(merged_ || !f_.plan.kernel->tiles, "rows of tile registers lie at one distance");
  // Tables are read in whole chunks.
  const sym::Expr table_bytes = (f_.block_limit + kChunk * chunks(f_)) * 8;
  if (!merged_ && !general_) offsets_ = text.scratch(table_bytes);
  for (size_t c = 0; c < bounds_.size(); ++c) bound_tables_.push_back(text.scratch(table_bytes));
  if (indices_ || general_) {
    for (size_t d = 0; d < f_.rows.size(); ++d) index_tables_.push_back(text.scratch(table_bytes));
  }
  const bool by_segment = std::any_of(bounds_.begin(), bounds_.end(),
                                      [](const Bound& bound) { return sym::has_index(bound.segment); });
  const bool zero = f_.a->load && f_.a->load->fill.i == 0 && f_.a->load->fill.f == 0;
  if (by_segment && zero && tabled()) live_ = text.scratch(f_.plan.tiles * 16);
  if (!bounds_.empty() || !mask_.is_const(1)) zeros_ = text.scratch(extent_of(f_.run) * f_.a_bytes());
}

// Address and mask as sums of a part of the row and a part of the segment, where they are.
void ContractionRows::plan_direct() {
  const loop::Access& access = f_.a->load->access;
  const sym::Expr offset = at_zero(kernels::offset_of(f_.program, access, f_.facts), f_.run);
  const sym::Expr mask = sym::simplify(access.mask, f_.facts);
  STRIDEC_CHECK(!depends_on_any(mask, f_.run), "a mask along the run of a contraction");

  const std::vector<sym::Expr> segment_vars = vars_of(f_.segments);
  auto split = [&](sym::Expr e) -> std::optional<Bound> {
    const auto form = kernels::linear_form(e, segment_vars);
    if (!form) return std::nullopt;
    Bound bound{.row = form->rest, .segment = 0};
    for (size_t i = 0; i < segment_vars.size(); ++i) bound.segment += form->coefficients[i] * segment_vars[i];
    if (depends_on_any(bound.segment, f_.rows)) return std::nullopt;
    return bound;
  };
  const auto address = split(offset);
  general_ = !address;
  for (sym::Expr condition : loop::conjuncts(mask)) {
    const bool less = condition.op() == sym::Op::kLt;
    if (!less && condition.op() != sym::Op::kLe) {
      general_ = true;
      break;
    }
    const auto bound = split(condition.arg(1) - condition.arg(0) - (less ? 1 : 0));
    general_ = general_ || !bound;
    if (general_) break;
    bounds_.push_back(*bound);
  }
  if (general_) {
    bounds_.clear();
    offset_ = offset;
    mask_ = mask;
    return;
  }
  offset_ = address->row;
  segment_offset_ = address->segment;
  if (bounds_.empty()) {
    if (const auto step = kernels::merged_step(offset_, f_.rows, f_.facts)) {
      merged_ = true;
      step_ = *step;
    }
  }
}

void ContractionRows::print_start() {
  KernelText& text = f_.text;
  const std::string type = f_.a_element();
  if (tabled()) {
    const sym::Expr bytes =
        (f_.plan.tiles * f_.plan.kernel->rows * extent_of(f_.segments) + kChunk * chunks(f_)) * 8;
    text.line(cat("const ", type, "** const tile_table = (const ", type, "**)", text.scratch(bytes), ";"));
  } else {
    text.line(cat("const ", type, "* a_rows[", f_.plan.kernel->rows, "];"));
  }
  if (!zeros_.empty()) {
    // What is read where the mask does not hold.
    text.line(cat("for (int64_t k = 0; k < ", text.size(extent_of(f_.run)), "; ++k) ((", type, "*)", zeros_,
                  ")[k] = ", f_.a->load->fill.i, ";"));
  }
}

void ContractionRows::print_block() {
  if (!offsets_.empty() || !bound_tables_.empty() || !index_tables_.empty()) print_table();
  if (f_.plan.a == kernels::GemmPlan::A::kPack) print_pack();
  if (!tabled()) return;
  KernelText& text = f_.text;
  text.open("for (int64_t t = first_tile, first_row = block_row; t < end_tile; ++t)");
  print_segments();
  text.line("first_row += tile_base + (t < longer_tiles);");
  text.close();
}

// The addresses are worth keeping for all panels that meet the block.
bool ContractionRows::tabled() const {
  if (f_.plan.a == kernels::GemmPlan::A::kPack || local_) return false;
  return !merged_ || !f_.segments.empty();
}

void ContractionRows::print_table() {
  KernelText& text = f_.text;
  const std::vector<std::string> names = row_names(f_);
  text.open("");
  f_.print_indices(f_.rows, "block_row", names);
  Body body = f_.body();
  for (size_t d = 0; d < names.size(); ++d) body.set_index(f_.rows[d].var, names[d]);
  std::vector<std::string> stores;
  auto entry = [&](const std::string& table, const std::string& value) {
    text.line(cat("((int64_t*)", table, ")[row] = ", value, ";"));
    stores.push_back(table);
  };
  text.open("for (int64_t row = 0; row < block_rows; ++row)");
  if (!offsets_.empty()) entry(offsets_, body.index(offset_));
  for (size_t c = 0; c < bounds_.size(); ++c) entry(bound_tables_[c], body.index(bounds_[c].row));
  for (size_t d = 0; d < index_tables_.size(); ++d) entry(index_tables_[d], names[d]);
  f_.print_increment(f_.rows, names);
  text.close();
  // Chunks read on behind the last row.
  text.open(cat("for (int64_t row = block_rows; row < block_rows + ", kChunk * chunks(f_), "; ++row)"));
  for (const std::string& table : stores) {
    text.line(cat("((int64_t*)", table, ")[row] = ((int64_t*)", table, ")[0];"));
  }
  text.close();
  text.close();
}

// Rows that lie next to each other in memory, k by k.
bool ContractionRows::print_turned_pack() {
  const loop::Load* load = f_.a->load;
  if (!load || !load->access.mask.is_const(1) || f_.rows.empty() || f_.local_rows(load->access.buffer) ||
      f_.group() > 1)
    return false;
  const sym::Expr offset = kernels::offset_of(f_.program, load->access, f_.facts);
  const auto row = kernels::merged_step(offset, f_.rows, f_.facts);
  const auto k = kernels::merged_step(at_zero(offset, f_.rows), f_.reduced, f_.facts);
  if (!row || !row->is_const(1) || !k || depends_on_any(*k, f_.batch)) return false;
  KernelText& text = f_.text;
  text.open("");
  text.line(cat("const ", f_.a_element(), "* from = ", text.pointer(load->access.buffer), " + ",
                f_.body().index(at_zero(at_zero(offset, f_.rows), f_.reduced)), " + block_row;"));
  print_transposed_copy(text,
                        {.dtype = f_.a_dtype(),
                         .to = cat("(", f_.a_element(), "*)", pack_),
                         .to_step = pack_stride_,
                         .from = "from",
                         .from_step = text.size(*k),
                         .rows = "block_rows",
                         .columns = text.size(extent_of(f_.reduced))},
                        f_.lanes);
  text.close();
  return true;
}

// Dims of k, innermost last, that a holds next to each other; where none is, the innermost of few places at one distance,
// such as the taps of a dilated window.
ContractionRows::Run ContractionRows::even_run() const {
  Run run;
  if (!f_.a->load || f_.local_rows(f_.a->load->access.buffer) || f_.reduced.empty()) return run;
  const sym::Expr offset = kernels::offset_of(f_.program, f_.a->load->access, f_.facts);
  for (size_t d = f_.reduced.size(); d-- > 0;) {
    Dims longer(f_.reduced.begin() + static_cast<std::ptrdiff_t>(d), f_.reduced.end());
    const auto step = kernels::merged_step(offset, longer, f_.facts);
    if (!step || !step->is_const(1)) break;
    run.dims = std::move(longer);
  }
  const auto step = kernels::merged_step(offset, {f_.reduced.back()}, f_.facts);
  const std::optional<int64_t> known = step ? sym::as_const(*step) : std::nullopt;
  const auto count = sym::as_const(f_.reduced.back().extent);
  if (run.dims.empty() && known && count && *count < f_.lanes)
    run = {.dims = {f_.reduced.back()}, .step = *known};
  return run;
}

// A condition under which the mask holds for the whole run at the outer dims that `body` stands at; nothing
// where it has no such form.
std::optional<std::string> ContractionRows::whole_run_inside(const Dims& run, Body& body) const {
  std::string all;
  for (sym::Expr condition : loop::conjuncts(sym::simplify(f_.a->load->access.mask, f_.facts))) {
    const bool less = condition.op() == sym::Op::kLt;
    if (!less && condition.op() != sym::Op::kLe) return std::nullopt;
    const auto form =
        kernels::linear_form(condition.arg(1) - condition.arg(0) - (less ? 1 : 0), vars_of(run));
    if (!form) return std::nullopt;
    sym::Expr least = form->rest;
    for (size_t d = 0; d < run.size(); ++d) {
      const auto slope = sym::as_const(form->coefficients[d]);
      if (!slope) return std::nullopt;
      if (*slope < 0) least += *slope * (run[d].extent - 1);
    }
    all += cat(all.empty() ? "" : " && ", "(", body.index(least), ") >= 0");
  }
  return all;
}

// The run's elements from `from` to `to`, reading no other.
void ContractionRows::print_copy(const Run& run) {
  KernelText& text = f_.text;
  const sym::Expr count = extent_of(run.dims);
  const auto known = sym::as_const(count);
  if (run.step != 1) {
    for (int64_t k = 0; k < *known; ++k) text.line(cat("to[", k, "] = from[", k * run.step, "];"));
    return;
  }
  const std::string unaligned = text.unaligned_type(f_.a_dtype(), f_.lanes);
  // One load where a register holds the run. What is stored behind it in the packed row is written later, or lies in the
  // vector that a row is longer than its elements.
  int whole = f_.lanes;
  while (known && whole < *known && 2 * whole * f_.a_bytes() <= text.target().vector_bytes) whole *= 2;
  if (known && *known < whole && whole - *known < f_.lanes && text.target().avx512) {
    text.use(cat("mload.", text.storage_type(f_.a_dtype())), whole);
    text.line(cat("*(", text.unaligned_type(f_.a_dtype(), whole), "*)to = sd_mload", whole, "(from, ",
                  (int64_t{1} << *known) - 1, ");"));
    return;
  }
  if (!known || *known < f_.lanes) {
    text.line(cat("for (int64_t k = 0; k < ", text.size(count), "; ++k) to[k] = from[k];"));
    return;
  }
  auto vector = [&](const std::string& at) {
    text.line(cat("*(", unaligned, "*)(to + ", at, ") = *(const ", unaligned, "*)(from + ", at, ");"));
  };
  if (*known < 8 * f_.lanes) {
    for (int64_t k = 0; k + f_.lanes < *known; k += f_.lanes) vector(cat(k));
  } else {
    text.open(cat("for (int64_t k = 0; k + ", f_.lanes, " < ", *known, "; k += ", f_.lanes, ")"));
    vector("k");
    text.close();
  }
  vector(cat(*known - f_.lanes));  // overlaps the one before
}

void ContractionRows::print_pack() {
  if (print_turned_pack()) return;
  KernelText& text = f_.text;
  const std::vector<std::string> names = row_names(f_);
  const std::string type = f_.a_element();
  text.open("");
  f_.print_indices(f_.rows, "block_row", names);
  text.open("for (int64_t row = 0; row < block_rows; ++row)");
  text.line(cat(type, "* to = (", type, "*)", pack_, " + row * ", pack_stride_, ";"));
  Body body = f_.body();
  for (size_t d = 0; d < names.size(); ++d) body.set_index(f_.rows[d].var, names[d]);
  f_.set_local_row(body, "row");
  // Runs that the mask only cuts at the border are copied as one where they are whole: those of most rows all are.
  const Run run = even_run();
  const bool fast = !run.dims.empty() && depends_on_any(f_.a->load->access.mask, run.dims);
  const Dims outer(f_.reduced.begin(), f_.reduced.end() - static_cast<std::ptrdiff_t>(
                                                              fast ? run.dims.size() : f_.reduced.size()));
  const auto print_whole_run = [&](Body first) {
    for (const loop::Dim& dim : run.dims) first.set_index(dim.var, "0");
    const sym::Expr offset = kernels::offset_of(f_.program, f_.a->load->access, f_.facts);
    text.line(cat("const ", type, "* from = ", text.pointer(f_.a->load->access.buffer), " + ",
                  first.index(at_zero(offset, run.dims)), ";"));
    print_copy(run);
    text.line(cat("to += ", text.size(extent_of(run.dims)), ";"));
  };
  const auto all_inside = fast && !outer.empty() ? whole_run_inside(f_.reduced, body) : std::nullopt;
  if (all_inside) {
    text.open(cat("if (", *all_inside, ")"));
    Body whole = body;
    f_.open_loops(outer, whole);
    print_whole_run(whole);
    f_.close_loops(outer);
    text.close(" else {");
    text.open("");
  }
  f_.open_loops(outer, body);
  const auto inside = fast ? whole_run_inside(run.dims, body) : std::nullopt;
  if (inside) {
    text.open(cat("if (", *inside, ")"));
    print_whole_run(body);
    text.close(" else {");
    text.open("");
  }
  print_packed_elements(fast ? run.dims : f_.reduced, body);
  if (inside) {
    text.close();
    text.line("}");
  }
  f_.close_loops(outer);
  if (all_inside) {
    text.close();
    text.line("}");
  }
  print_step_tail("to");
  f_.print_increment(f_.rows, names);
  text.close();
  text.close();
}

// Zeros from the C pointer `end` of a row to the end of its last step.
void ContractionRows::print_step_tail(const std::string& end) {
  const sym::Expr k = extent_of(f_.reduced);
  if (f_.step() == 1 || f_.facts.holds(sym::eq(sym::mod(k, f_.step()), 0))) return;
  f_.text.line(
      cat("for (int64_t k = ", f_.text.size(k), "; k % ", f_.step(), " != 0; ++k) *", end, "++ = 0;"));
}

// The factor's statements for every k of `dims`, a vector of the innermost at a time, to `to`, which moves
// on.
void ContractionRows::print_packed_elements(const Dims& dims, Body body) {
  KernelText& text = f_.text;
  Dims outer = dims;
  const loop::Dim inner = outer.back();
  outer.pop_back();
  f_.open_loops(outer, body);
  const std::string extent = text.size(inner.extent);
  const std::string unaligned = text.unaligned_type(f_.a_dtype(), f_.lanes);
  auto strip = [&](const std::string& live) {
    Body lanes = body;
    lanes.set_index(inner.var, "k");
    lanes.set_lanes(inner.var, f_.lanes, live);
    for (const loop::Stmt* stmt : f_.a->slice) lanes.print(*stmt);
    text.line(cat("*(", unaligned, "*)(to + k) = ", f_.stored(lanes, f_.a->value, f_.a_dtype()), ";"));
  };
  const auto known = sym::as_const(inner.extent);
  text.line("int64_t k = 0;");
  text.open(cat("for (; k + ", f_.lanes, " <= ", extent, "; k += ", f_.lanes, ")"));
  strip("");
  text.close();
  if (!known || *known % f_.lanes != 0) {
    text.open(cat("if (k < ", extent, ")"));
    text.line(cat("const uint64_t live = ((uint64_t)1 << (", extent, " - k)) - 1;"));
    strip("live");
    text.close();
  }
  text.line(cat("to += ", extent, ";"));
  f_.close_loops(outer);
}

void ContractionRows::print_tile() {
  KernelText& text = f_.text;
  const int max_rows = f_.plan.kernel->rows;
  const std::string type = f_.a_element();
  if (f_.plan.a == kernels::GemmPlan::A::kPack) {
    text.line(cat("for (int64_t i = 0; i < ", max_rows, "; ++i) a_rows[i] = (const ", type, "*)", pack_,
                  " + (first_row - block_row + i) * ", pack_stride_, ";"));
    return;
  }
  if (local_) {
    const sym::Expr first = at_zero(kernels::offset_of(f_.program, f_.a->load->access, f_.facts), f_.run);
    text.line(cat("for (int64_t i = 0; i < ", max_rows, "; ++i) a_rows[i] = ", local_->pointer, " + ",
                  f_.body().index(first), " + (first_row - block_row + i) * ", local_->stride, ";"));
    return;
  }
  if (!tabled()) {
    Body body = f_.body();
    for (const loop::Dim& dim : f_.rows) body.set_index(dim.var, "0");
    if (!f_.rows.empty()) body.set_index(f_.rows.back().var, "first_row");
    text.line(cat("const ", type, "* a = ", text.pointer(f_.a->load->access.buffer), " + ",
                  body.index(at_zero(offset_, f_.rows)), " + first_row * ", text.size(step_), ";"));
    text.line(
        cat("for (int64_t i = 0; i < ", max_rows, "; ++i) a_rows[i] = a + i * ", text.size(step_), ";"));
    return;
  }
  text.line(cat("const ", type, "** const a_rows = tile_table + (t - first_tile) * ", max_rows, " * ",
                text.size(extent_of(f_.segments)), ";"));
  if (!skips_segments()) return;
  const std::string live = cat("((const int64_t*)", live_, ")[2 * (t - first_tile)");
  text.line(cat("const int64_t live_first = ", live, "], live_segments = ", live, " + 1];"));
}

void ContractionRows::print_segments() {
  KernelText& text = f_.text;
  const std::string type = f_.a_element(), vector = text.value_type(DType::kI64, kChunk);
  const std::string loose = text.unaligned_type(DType::kI64, kChunk);
  const std::string pointer = text.pointer(f_.a->load->access.buffer);
  const bool masked = !zeros_.empty();
  Body body = f_.body();
  text.line(cat("int64_t* to = (int64_t*)tile_table + (t - first_tile) * ", f_.plan.kernel->rows, " * ",
                text.size(extent_of(f_.segments)), ";"));
  if (merged_) {
    text.line(cat("const ", vector, " lane = {0, 1, 2, 3, 4, 5, 6, 7};"));
    text.line(cat("const int64_t start = (int64_t)(", pointer, " + ", body.index(at_zero(offset_, f_.rows)),
                  " + first_row * ", text.size(step_), ");"));
  } else {
    text.line(cat("const int64_t start = (int64_t)", pointer, ";"));
  }
  if (skips_segments()) {
    text.line("int64_t segment = 0, live_first = 0, live_end = 0;");
    text.line("const int64_t own_rows = tile_base + (t < longer_tiles);");
    if (!merged_) text.line(cat("const ", vector, " lane = {0, 1, 2, 3, 4, 5, 6, 7};"));
  }
  f_.open_loops(f_.segments, body);
  if (general_) {
    text.open(cat("for (int64_t i = 0; i < ", f_.plan.kernel->rows, "; ++i)"));
    for (size_t d = 0; d < f_.rows.size(); ++d) {
      text.line(
          cat("const int64_t row_", d, " = ((int64_t*)", index_tables_[d], ")[first_row - block_row + i];"));
      body.set_index(f_.rows[d].var, cat("row_", d));
    }
    const std::string address = cat("start + (", body.index(offset_), ") * ", f_.a_bytes());
    text.line(masked ? cat("to[i] = ", body.index(mask_), " ? ", address, " : (int64_t)", zeros_, ";")
                     : cat("to[i] = ", address, ";"));
    text.close();
  } else {
    text.line(cat("const int64_t shift = start + (", body.index(segment_offset_), ") * ", f_.a_bytes(), ";"));
    if (skips_segments()) text.line(cat(vector, " live = (", vector, ")0;"));
    for (int64_t c = 0; c < chunks(f_); ++c) {
      const std::string at = cat("first_row - block_row + ", c * kChunk);
      std::string address, inside;
      if (merged_) {
        address =
            cat("(lane + ", c * kChunk, ") * ", "(", text.size(step_), " * ", f_.a_bytes(), ") + shift");
      } else {
        address =
            cat("*(const ", loose, "*)((int64_t*)", offsets_, " + ", at, ") * ", f_.a_bytes(), " + shift");
      }
      for (size_t b = 0; b < bounds_.size(); ++b) {
        inside += cat(b ? " & " : "", "(*(const ", loose, "*)((int64_t*)", bound_tables_[b], " + ", at,
                      ") >= -(", body.index(bounds_[b].segment), "))");
      }
      if (masked) {
        text.line(cat("const ", vector, " inside_", c, " = ", inside, ";"));
        address = cat("inside_", c, " ? ", address, " : (", vector, ")(int64_t)", zeros_);
      }
      if (skips_segments()) text.line(cat("live |= inside_", c, " & (lane + ", c * kChunk, " < own_rows);"));
      text.line(cat("*(", loose, "*)(to + ", c * kChunk, ") = ", address, ";"));
    }
  }
  text.line(cat("to += ", f_.plan.kernel->rows, ";"));
  if (skips_segments()) {
    text.open("if (__builtin_reduce_or(live) != 0)");
    text.line("if (live_end == 0) live_first = segment;");
    text.line("live_end = segment + 1;");
    text.close();
    text.line("++segment;");
  }
  f_.close_loops(f_.segments);
  if (!skips_segments()) return;
  text.line(cat("((int64_t*)", live_, ")[2 * (t - first_tile)] = live_first;"));
  text.line(cat("((int64_t*)", live_, ")[2 * (t - first_tile) + 1] = live_end - live_first;"));
}

std::string ContractionRows::row_index(size_t d, const std::string& i) const {
  return cat("((int64_t*)", index_tables_[d], ")[first_row - block_row + ", i, "]");
}

}  // namespace stridec::codegen::cpu
