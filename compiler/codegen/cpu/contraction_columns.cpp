#include "compiler/codegen/cpu/contraction_columns.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction_copy.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cpu {

ContractionColumns::ContractionColumns(ContractionFrame& frame, bool keep) : f_(frame), keep_(keep) {
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
  if (!readable_ && !turned_) find_turned_slice();
  if (keep_) find_keys();
  STRIDEC_CHECK(f_.plan.b != B::kDirect || readable_, "b cannot be read in place");
  // Panels with fewer columns are copied whatever the plan says: vectors must not read behind the buffer.
  const auto known = sym::as_const(extent_of(f_.columns));
  const bool whole = known && *known % f_.plan.kernel->columns() == 0;
  if (f_.plan.b == B::kStage || !whole) {
    const int width = f_.plan.kernel->columns();
    const sym::Expr columns = keep_ ? sym::align_up(extent_of(f_.columns), width) : sym::Expr(width);
    stage_ = f_.text.scratch(extent_of(f_.reduced) * columns * f_.element_bytes());
    staged_ = f_.text.fresh("staged");
    for (size_t i = 0; i < keys_.size(); ++i) key_names_.push_back(f_.text.fresh("panels_of"));
  }
}

// The slice's loads that move along the columns do so by more than one element and along the last reduced dim by one:
// vectors run along that and are turned.
void ContractionColumns::find_turned_slice() {
  if (f_.columns.empty() || f_.reduced.empty()) return;
  const std::vector<sym::Expr> column = vars_of(f_.columns), k = {f_.reduced.back().var};
  turned_slice_ = true;
  bool loads = false;
  for (const loop::Stmt* stmt : f_.b->slice) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    if (!load) continue;
    const sym::Expr offset = kernels::offset_of(f_.program, load->access, f_.facts);
    if (!depends_on_any(offset, f_.columns)) continue;
    const auto along = kernels::linear_form(offset, column), step = kernels::linear_form(offset, k);
    loads = true;
    turned_slice_ = turned_slice_ && along && !along->coefficients.back().is_const(1) && step &&
                    step->coefficients[0].is_const(1);
  }
  turned_slice_ = turned_slice_ && loads;
}

// Of every expression in the slice, what is left without the columns and k; all batch dims where they mix.
void ContractionColumns::find_keys() {
  std::vector<sym::Expr> own = vars_of(f_.columns);
  for (const loop::Dim& dim : f_.reduced) own.push_back(dim.var);
  auto add = [&](sym::Expr key) {
    if (std::find(keys_.begin(), keys_.end(), key) == keys_.end()) keys_.push_back(key);
  };
  for (const loop::Stmt* stmt : f_.b->slice) {
    loop::for_each_expr(*stmt, [&](sym::Expr e) {
      if (!depends_on_any(e, f_.batch)) return;
      const auto form = kernels::linear_form(e, own);
      bool apart = form.has_value();
      if (form) {
        for (sym::Expr coefficient : form->coefficients)
          apart = apart && !depends_on_any(coefficient, f_.batch);
        apart = apart && !depends_on_any(form->rest, f_.columns) && !depends_on_any(form->rest, f_.reduced);
      }
      if (apart) return add(form->rest);
      for (const loop::Dim& dim : f_.batch) add(dim.var);
    });
  }
}

void ContractionColumns::print_start() {
  if (stage_.empty()) return;
  f_.text.line(cat("int64_t ", staged_, " = ", keep_ ? "0" : "-1", ";"));
  for (const std::string& name : key_names_) f_.text.line(cat("int64_t ", name, " = 0;"));
}

void ContractionColumns::print_change() {
  if (stage_.empty()) return;
  Body body = f_.body();
  std::string same, set;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const std::string now = body.index(keys_[i]);
    same += cat(i ? " || " : "", key_names_[i], " != ", now);
    set += cat(" ", key_names_[i], " = ", now, ";");
  }
  if (!keys_.empty()) f_.text.line(cat("if (", same, ") { ", staged_, " = 0;", set, " }"));
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
    std::string few;
    if (f_.plan.b != kernels::GemmPlan::B::kDirect) few = cat(" && block_rows <= ", 2 * f_.plan.kernel->rows);
    if (keep_) few += " && !keep_panels";
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

bool ContractionColumns::continuous() const {
  return f_.plan.b == kernels::GemmPlan::B::kWeights && f_.plan.panel == f_.plan.kernel->columns();
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
  if (keep_) {
    text.line(cat("b = (const ", type, "*)", stage_, " + (keep_panels ? first_column : 0) * ",
                  text.size(extent_of(f_.reduced)), ";"));
    text.line(cat("b_stride = ", width, ";"));
    text.open(cat("if (!keep_panels || panel >= ", staged_, ")"));
    text.line(cat(staged_, " = panel + 1;"));
  } else {
    text.line(cat("b = (const ", type, "*)", stage_, ";"));
    text.line(cat("b_stride = ", width, ";"));
    text.open(cat("if (", staged_, " != batch * panels + panel)"));
    text.line(cat(staged_, " = batch * panels + panel;"));
  }
  text.line(cat(type, "* to = (", type, "*)b;"));
  print_copy();
  text.close();
}

// Vectors along the last reduced dim of as many columns, turned in registers.
void ContractionColumns::print_turned_slice() {
  KernelText& text = f_.text;
  const std::string type = f_.element(), vector = f_.element(f_.lanes);
  const int width = f_.plan.kernel->columns();
  Dims outer = f_.reduced;
  const loop::Dim inner = outer.back();
  outer.pop_back();
  Body body = f_.body();
  for (const loop::Dim& dim : f_.columns) body.set_index(dim.var, "0");
  f_.open_loops(outer, body);
  const std::string extent = text.size(inner.extent), turned = text.fresh("turned");
  auto strip = [&](const std::string& live, const std::string& count) {
    text.open(cat("for (int64_t j = 0; j < live_columns; j += ", f_.lanes, ")"));
    text.line(cat(vector, " ", turned, "[", f_.lanes, "];"));
    text.line("#pragma clang loop unroll(full)");
    text.open(cat("for (int l = 0; l < ", f_.lanes, "; ++l)"));
    text.line("const int64_t column = first_column + sd_min(j + l, live_columns - 1);");
    Body lanes = body;
    lanes.set_index(f_.columns.back().var, "column");
    lanes.set_index(inner.var, "k");
    lanes.set_lanes(inner.var, f_.lanes, live);
    for (const loop::Stmt* stmt : f_.b->slice) lanes.print(*stmt);
    text.line(cat(turned, "[l] = ", lanes.lanes(f_.b->value), ";"));
    text.close();
    print_turned_square(text, turned, f_.lanes);
    if (live.empty()) text.line("#pragma clang loop unroll(full)");
    text.line(cat("for (int l = 0; l < ", count, "; ++l) *(", vector, "*)(to + (k + l) * ", width,
                  " + j) = ", turned, "[l];"));
    text.close();
  };
  const auto known = sym::as_const(inner.extent);
  text.line("int64_t k = 0;");
  text.open(cat("for (; k + ", f_.lanes, " <= ", extent, "; k += ", f_.lanes, ")"));
  strip("", cat(f_.lanes));
  text.close();
  if (!known || *known % f_.lanes != 0) {
    text.open(cat("if (k < ", extent, ")"));
    text.line(cat("const uint64_t live = ((uint64_t)1 << (", extent, " - k)) - 1;"));
    strip("live", cat(extent, " - k"));
    text.close();
  }
  text.line(cat("to += ", extent, " * ", width, ";"));
  f_.close_loops(outer);
}

void ContractionColumns::print_copy() {
  KernelText& text = f_.text;
  if (turned_slice_) return print_turned_slice();
  const std::string type = f_.element();
  const int width = f_.plan.kernel->columns();
  const std::string loose = text.unaligned_type(f_.contraction.dtype, f_.lanes);
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
}

}  // namespace stridec::codegen::cpu
