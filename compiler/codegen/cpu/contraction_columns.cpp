#include "compiler/codegen/cpu/contraction_columns.h"

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction_copy.h"

namespace stridec::codegen::cpu {

ContractionColumns::ContractionColumns(ContractionFrame& frame) : f_(frame) {
  using B = kernels::GemmPlan::B;
  if (f_.plan.b == B::kWeights) return;
  if (f_.b->load && f_.b->load->access.mask.is_const(1)) {
    const sym::Expr offset = kernels::offset_of(f_.program, f_.b->load->access, f_.facts);
    const auto column = kernels::merged_step(offset, f_.columns, f_.facts);
    const auto k = kernels::merged_step(at_zero(offset, f_.columns), f_.reduced, f_.facts);
    turned_ = column && k && k->is_const(1) && !f_.columns.empty() && !depends_on_any(*column, f_.batch);
    if (turned_) column_step_ = *column;
    readable_ = column && k && (column->is_const(1) || f_.columns.empty()) && !depends_on_any(*k, f_.batch);
    if (readable_ || turned_) {
      offset_ = at_zero(at_zero(offset, f_.columns), f_.reduced);
      step_ = *k;
    }
  }
  STRIDEC_CHECK(f_.plan.b != B::kDirect || readable_, "b cannot be read in place");
  // Panels with fewer columns are copied whatever the plan says: vectors must not read behind the buffer.
  const auto known = sym::as_const(extent_of(f_.columns));
  const bool whole = known && *known % f_.plan.kernel->columns() == 0;
  if (f_.plan.b == B::kStage || !whole) {
    stage_ = f_.text.scratch(extent_of(f_.reduced) * (f_.plan.kernel->columns() * f_.element_bytes()));
  }
}

void ContractionColumns::print_start() {
  if (!stage_.empty()) f_.text.line("int64_t staged = -1;");
}

void ContractionColumns::print_panel() {
  KernelText& text = f_.text;
  if (f_.plan.b == kernels::GemmPlan::B::kWeights) return print_weights();
  const std::string type = f_.element();
  const int width = f_.plan.kernel->columns();
  text.line(cat("const ", type, "* b;"));
  text.line("int64_t b_stride;");
  if (readable_) {
    Body body = f_.body();
    // Copying pays off when the panel is used again and again.
    const std::string few = f_.plan.b == kernels::GemmPlan::B::kDirect
                                ? std::string()
                                : cat(" && block_rows <= ", 2 * f_.plan.kernel->rows);
    if (!stage_.empty()) text.open(cat("if (live_columns == ", width, few, ")"));
    text.line(
        cat("b = ", text.pointer(f_.b->load->access.buffer), " + ", body.index(offset_), " + first_column;"));
    text.line(cat("b_stride = ", text.size(step_), ";"));
    if (stage_.empty()) return;
    text.close(" else {");
    text.open("");
  }
  print_stage();
  if (readable_) {
    text.close();
    text.line("}");
  }
}

// Panels made by schedule/pack_weights.h: [batch dims][panel][k dims][panel's columns].
void ContractionColumns::print_weights() {
  KernelText& text = f_.text;
  const loop::Access& access = f_.b->load->access;
  const loop::Buffer& buffer = f_.program[access.buffer];
  const size_t at = buffer.shape.size() - f_.reduced.size() - 2;
  sym::Expr offset = 0;
  for (size_t d = 0; d < at; ++d) offset += access.index[d] * buffer.strides[d];
  const int64_t width = f_.plan.panel;
  std::string panel = "first_column", inside;
  if (width != f_.plan.kernel->columns()) {
    panel = cat("first_column / ", width, " * ", width);
    inside = cat(" + first_column % ", width);
  }
  text.line(cat("const ", f_.element(), "* b = ", text.pointer(access.buffer), " + ", f_.body().index(offset),
                " + ", panel, " * ", text.size(extent_of(f_.reduced)), inside, ";"));
  text.line(cat("const int64_t b_stride = ", width, ";"));
}

void ContractionColumns::print_stage() {
  KernelText& text = f_.text;
  const std::string type = f_.element();
  const int width = f_.plan.kernel->columns();
  const std::string loose = text.unaligned_type(f_.contraction.dtype, f_.lanes);
  text.line(cat("b = (const ", type, "*)", stage_, ";"));
  text.line(cat("b_stride = ", width, ";"));
  text.open("if (staged != batch * panels + panel)");
  text.line("staged = batch * panels + panel;");
  text.line(cat(type, "* to = (", type, "*)", stage_, ";"));
  Body body = f_.body();
  if (turned_) {
    const std::string step = text.size(column_step_);
    text.line(cat("const ", type, "* from = ", text.pointer(f_.b->load->access.buffer), " + ",
                  body.index(offset_), " + first_column * ", step, ";"));
    print_transposed_copy(text,
                          {.dtype = f_.contraction.dtype,
                           .to = "to",
                           .to_step = cat(width),
                           .from = "from",
                           .from_step = step,
                           .rows = text.size(extent_of(f_.reduced)),
                           .columns = "live_columns"},
                          f_.lanes);
    text.close();
    return;
  }
  f_.open_loops(f_.reduced, body);
  for (const loop::Dim& dim : f_.columns) body.set_index(dim.var, "0");
  auto strip = [&](const std::string& live) {
    Body lanes = body;
    if (!f_.columns.empty()) {
      lanes.set_index(f_.columns.back().var, "(first_column + j)");
      lanes.set_lanes(f_.columns.back().var, f_.lanes, live);
    }
    for (const loop::Stmt* stmt : f_.b->slice) lanes.print(*stmt);
    text.line(cat("*(", loose, "*)(to + j) = ", lanes.lanes(f_.b->value), ";"));
  };
  text.line("int64_t j = 0;");
  text.open(cat("for (; j + ", f_.lanes, " <= live_columns; j += ", f_.lanes, ")"));
  strip("");
  text.close();
  text.open("if (j < live_columns)");
  text.line("const uint64_t live = ((uint64_t)1 << (live_columns - j)) - 1;");
  strip("live");
  text.close();
  text.line(cat("to += ", width, ";"));
  f_.close_loops(f_.reduced);
  text.close();
}

}  // namespace stridec::codegen::cpu
