#include "compiler/codegen/cpu/contraction_rows.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cpu {
namespace {

constexpr int kChunk = 8;  // rows whose addresses are computed at once

int64_t chunks(const ContractionShape& f) { return (f.plan.kernel->rows + kChunk - 1) / kChunk; }

}  // namespace

std::vector<std::string> row_names(const ContractionFrame& f) {
  std::vector<std::string> names;
  for (size_t d = 0; d < f.rows.size(); ++d) names.push_back(cat("row_", d));
  return names;
}

RowsLayout::RowsLayout(const ContractionShape& shape, bool indices) : shape_(shape), indices_(indices) {
  if (shape_.plan.a == kernels::GemmPlan::A::kLines) {
    merged_ = true;
    plan_lines();
  } else if (shape_.plan.a == kernels::GemmPlan::A::kPack) {
    merged_ = true;
    const int unit = std::max(shape_.lanes, shape_.step());  // a cache line for tile registers
    stride_ = scratch_stride(extent_of(shape_.reduced), unit);
    copy_bytes_ = {*stride_ * (shape_.block_limit * shape_.a_bytes())};
  } else if (shape_.reads_local(*shape_.a)) {
    merged_ = read_local_ = true;
  } else {
    plan_direct();
  }
  STRIDEC_CHECK(merged_ || !shape_.plan.kernel->tiles, "rows of tile registers lie at one distance");
  const int64_t tile_rows = shape_.plan.kernel->rows;
  // Tables are read in whole chunks.
  table_bytes_ = (shape_.block_limit + kChunk * chunks(shape_)) * 8;
  const bool by_segment = std::any_of(bounds_.begin(), bounds_.end(),
                                      [](const Bound& bound) { return sym::has_index(bound.segment); });
  const loop::Load* load = shape_.a->load;
  const bool zero = load && load->fill.i == 0 && load->fill.f == 0;
  if (by_segment && zero && tabled()) live_bytes_ = shape_.plan.tiles * 16;
  if (!bounds_.empty() || !mask_.is_const(1)) zeros_bytes_ = extent_of(shape_.run) * shape_.a_bytes();
  if (tabled())
    addresses_bytes_ =
        (shape_.plan.tiles * tile_rows * extent_of(shape_.segments) + kChunk * chunks(shape_)) * 8;
}

std::vector<sym::Expr> RowsLayout::scratch() const {
  std::vector<sym::Expr> pieces = copy_bytes_;
  const size_t tables = (has_offsets() ? 1 : 0) + bounds_.size() + index_tables();
  pieces.insert(pieces.end(), tables, table_bytes_);
  for (const auto& bytes : {live_bytes_, zeros_bytes_, addresses_bytes_})
    if (bytes) pieces.push_back(*bytes);
  return pieces;
}

ContractionRows::ContractionRows(ContractionFrame& frame, bool indices)
    : RowsLayout(frame, indices), f_(frame) {
  KernelText& text = f_.text;
  if (read_local_) {
    local_ = f_.local_rows(f_.a->load->access.buffer);
    STRIDEC_CHECK(local_ != nullptr, f_.nest.name);
  }
  if (stride_) stride_text_ = text.size(*stride_);
  for (sym::Expr bytes : copy_bytes_) copies_.push_back(text.scratch(bytes));
  if (has_offsets()) offsets_ = text.scratch(table_bytes_);
  for (size_t c = 0; c < bounds_.size(); ++c) bound_tables_.push_back(text.scratch(table_bytes_));
  for (size_t d = 0; d < index_tables(); ++d) index_tables_.push_back(text.scratch(table_bytes_));
  if (live_bytes_) live_ = text.scratch(*live_bytes_);
  if (zeros_bytes_) zeros_ = text.scratch(*zeros_bytes_);
}

// Splits address and mask into sums of a row part and a segment part, if possible.
void RowsLayout::plan_direct() {
  const loop::Access& access = shape_.a->load->access;
  const sym::Expr offset = at_zero(kernels::offset_of(shape_.program, access, shape_.facts), shape_.run);
  const sym::Expr mask = sym::simplify(access.mask, shape_.facts);
  STRIDEC_CHECK(!depends_on_any(mask, shape_.run), "a mask along the run of a contraction");

  const std::vector<sym::Expr> segment_vars = vars_of(shape_.segments);
  auto split = [&](sym::Expr e) -> std::optional<Bound> {
    const auto form = kernels::linear_form(e, segment_vars);
    if (!form) return std::nullopt;
    Bound bound{.row = form->rest, .segment = 0};
    for (size_t i = 0; i < segment_vars.size(); ++i) bound.segment += form->coefficients[i] * segment_vars[i];
    if (depends_on_any(bound.segment, shape_.rows)) return std::nullopt;
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
    if (const auto step = kernels::merged_step(offset_, shape_.rows, shape_.facts)) {
      merged_ = true;
      step_ = *step;
    }
  }
}

void ContractionRows::print_start() {
  KernelText& text = f_.text;
  const std::string type = f_.a_element();
  if (addresses_bytes_) {
    text.line(cat("const ", type, "** const tile_table = (const ", type, "**)",
                  text.scratch(*addresses_bytes_), ";"));
  } else {
    const sym::Expr segments = lines_ ? extent_of(f_.segments) : sym::Expr(1);
    text.line(cat("const ", type, "* a_rows[", text.size(segments * f_.plan.kernel->rows), "];"));
  }
  print_lines_start();
  if (!zeros_.empty()) {
    // The row of fill values for masked-off elements.
    text.line(cat("for (int64_t k = 0; k < ", text.size(extent_of(f_.run)), "; ++k) ((", type, "*)", zeros_,
                  ")[k] = ", f_.a->load->fill.i, ";"));
  }
}

void ContractionRows::print_block() {
  if (!offsets_.empty() || !bound_tables_.empty() || !index_tables_.empty()) print_table();
  if (f_.plan.a == kernels::GemmPlan::A::kPack) print_pack();
  if (lines_) print_lines();
  if (!tabled()) return;
  KernelText& text = f_.text;
  text.open("for (int64_t t = first_tile, first_row = block_row; t < end_tile; ++t)");
  print_segments();
  text.line("first_row += tile_base + (t < longer_tiles);");
  text.close();
}

bool RowsLayout::tabled() const {
  if (shape_.plan.a != kernels::GemmPlan::A::kDirect || read_local_) return false;
  return !merged_ || !shape_.segments.empty();
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
  // Chunks read past the last row.
  text.open(cat("for (int64_t row = block_rows; row < block_rows + ", kChunk * chunks(f_), "; ++row)"));
  for (const std::string& table : stores) {
    text.line(cat("((int64_t*)", table, ")[row] = ((int64_t*)", table, ")[0];"));
  }
  text.close();
  text.close();
}

void ContractionRows::print_tile() {
  if (lines_) return print_lines_tile();
  KernelText& text = f_.text;
  const int max_rows = f_.plan.kernel->rows;
  const std::string type = f_.a_element();
  if (f_.plan.a == kernels::GemmPlan::A::kPack) {
    text.line(cat("for (int64_t i = 0; i < ", max_rows, "; ++i) a_rows[i] = (const ", type, "*)", copies_[0],
                  " + (first_row - block_row + i) * ", stride_text_, ";"));
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
