#include "compiler/codegen/cpu/contraction_columns.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction_copy.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cpu {

ColumnsLayout::ColumnsLayout(const ContractionShape& shape, bool keep) : shape_(shape), keep_(keep) {
  using B = kernels::GemmPlan::B;
  if (shape_.plan.b == B::kWeights) return;
  if (shape_.plan.b == B::kCompact) compact_layout_.emplace(shape_);
  if (!compact_layout_) find_layout();
  if (keep_) find_keys();
  STRIDEC_CHECK(shape_.plan.b != B::kDirect || readable_, "b cannot be read in place");
  // Panels with fewer columns are always copied: vectors must not read past the end of the buffer.
  const auto known = sym::as_const(extent_of(shape_.columns));
  const bool whole = known && *known % shape_.plan.kernel->columns() == 0;
  if (compact_layout_ && compact_layout_->multiplies_bytes()) return;
  if (shape_.plan.b == B::kStage || compact_layout_ || !whole) {
    const int width = shape_.plan.kernel->columns();
    const sym::Expr columns = keep_ ? sym::align_up(extent_of(shape_.columns), width) : sym::Expr(width);
    stage_bytes_ = depth() * columns * shape_.b_bytes();
  }
}

std::vector<sym::Expr> ColumnsLayout::scratch() const {
  if (compact_layout_ && compact_layout_->multiplies_bytes()) return compact_layout_->bytes_scratch();
  return stage_bytes_ ? std::vector{*stage_bytes_} : std::vector<sym::Expr>();
}

void ColumnsLayout::find_layout() {
  const loop::Load* load = shape_.b->load;
  if (load && load->access.mask.is_const(1)) {
    const Dims& columns = shape_.columns;
    const sym::Expr offset = kernels::offset_of(shape_.program, load->access, shape_.facts);
    const auto column = kernels::merged_step(offset, columns, shape_.facts);
    const auto k = kernels::merged_step(at_zero(offset, columns), shape_.reduced, shape_.facts);
    turned_ = column && k && k->is_const(1) && !columns.empty() && !depends_on_any(*column, shape_.batch);
    if (turned_) column_step_ = *column;
    readable_ = column && k && (column->is_const(1) || columns.empty()) &&
                !depends_on_any(*k, shape_.batch) && shape_.group() == 1;
    if (readable_ || turned_) {
      offset_ = at_zero(at_zero(offset, columns), shape_.reduced);
      step_ = *k;
    }
  }
  if (!readable_ && !turned_) find_turned_slice();
}

ContractionColumns::ContractionColumns(ContractionFrame& frame, bool keep)
    : ColumnsLayout(frame, keep), f_(frame) {
  if (compact_layout_) compact_.emplace(f_, *compact_layout_);
  if (!stage_bytes_) return;
  stage_ = f_.text.scratch(*stage_bytes_);
  staged_ = f_.text.fresh("staged");
  for (size_t i = 0; i < keys_.size(); ++i) key_names_.push_back(f_.text.fresh("panels_of"));
}

// Padded k extent of a panel: a whole number of steps.
sym::Expr ColumnsLayout::depth() const { return sym::align_up(extent_of(shape_.reduced), shape_.step()); }

// Set if the slice's loads have a stride greater than one along the columns and one along the last reduced
// dim: vectors then run along that dim and are transposed.
void ColumnsLayout::find_turned_slice() {
  if (shape_.columns.empty() || shape_.reduced.empty()) return;
  const std::vector<sym::Expr> column = vars_of(shape_.columns), k = {shape_.reduced.back().var};
  turned_slice_ = true;
  bool loads = false;
  for (const loop::Stmt* stmt : shape_.b->slice) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    if (!load) continue;
    const sym::Expr offset = kernels::offset_of(shape_.program, load->access, shape_.facts);
    if (!depends_on_any(offset, shape_.columns)) continue;
    const auto along = kernels::linear_form(offset, column), step = kernels::linear_form(offset, k);
    loads = true;
    turned_slice_ = turned_slice_ && along && !along->coefficients.back().is_const(1) && step &&
                    step->coefficients[0].is_const(1);
  }
  turned_slice_ = turned_slice_ && loads;
}

// Keys are the slice's expressions with columns and k removed; if an expression mixes them with batch dims,
// all batch dims are keys.
void ColumnsLayout::find_keys() {
  std::vector<sym::Expr> own = vars_of(shape_.columns);
  for (const loop::Dim& dim : shape_.reduced) own.push_back(dim.var);
  auto add = [&](sym::Expr key) {
    if (std::find(keys_.begin(), keys_.end(), key) == keys_.end()) keys_.push_back(key);
  };
  for (const loop::Stmt* stmt : shape_.b->slice) {
    loop::for_each_expr(*stmt, [&](sym::Expr e) {
      if (!depends_on_any(e, shape_.batch)) return;
      const auto form = kernels::linear_form(e, own);
      bool apart = form.has_value();
      if (form) {
        for (sym::Expr coefficient : form->coefficients)
          apart = apart && !depends_on_any(coefficient, shape_.batch);
        apart = apart && !depends_on_any(form->rest, shape_.columns) &&
                !depends_on_any(form->rest, shape_.reduced);
      }
      if (apart) return add(form->rest);
      for (const loop::Dim& dim : shape_.batch) add(dim.var);
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
  const std::string type = f_.b_element();
  const int width = f_.plan.kernel->columns();
  text.line(cat("const ", type, "* b;"));
  text.line("int64_t b_stride;");
  if (readable_) {
    Body body = f_.body();
    // Copying pays off if the panel is used many times.
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

// The elements of a single row must be contiguous.
bool ContractionColumns::computes() const {
  return compact_ && (f_.plan.a == kernels::GemmPlan::A::kPack || f_.segments.empty());
}

void ContractionColumns::print_row() {
  f_.text.open("");
  compact_->print_panel();
  compact_->print_row();
  f_.text.close();
}

bool ContractionColumns::continuous() const {
  return f_.plan.b == kernels::GemmPlan::B::kWeights && f_.plan.panel == f_.plan.kernel->columns();
}

std::optional<sym::Expr> ContractionColumns::panel_bytes() const {
  if (!continuous()) return std::nullopt;
  return depth() * f_.plan.panel * f_.b_bytes();
}

// Panels packed by schedule/layout/pack_weights.h: [batch dims][panel][k dims][panel's columns].
void ContractionColumns::print_weights() {
  KernelText& text = f_.text;
  const loop::Access& access = f_.b->load->access;
  const loop::Buffer& buffer = f_.program[access.buffer];
  const size_t own = f_.group() == 1 ? f_.reduced.size() + 2 : 4;  // panel, k, column, and the group's
  const size_t at = buffer.shape.size() - own;
  sym::Expr offset = 0;
  for (size_t d = 0; d < at; ++d) offset += access.index[d] * buffer.strides[d];
  const int64_t width = f_.plan.panel;
  std::string panel = "first_column", inside;
  if (width != f_.plan.kernel->columns()) {
    panel = cat("first_column / ", width, " * ", width);
    inside = cat(" + first_column % ", width, " * ", f_.group());
  }
  text.line(cat("const ", f_.b_element(), "* b = ", text.pointer(access.buffer), " + ",
                f_.body().index(offset), " + ", panel, " * ", text.size(depth()), inside, ";"));
  text.line(cat("const int64_t b_stride = ", width * f_.group(), ";"));
}

void ContractionColumns::print_stage() {
  KernelText& text = f_.text;
  const std::string type = f_.b_element();
  const int width = f_.plan.kernel->columns();
  if (keep_) {
    text.line(cat("b = (const ", type, "*)", stage_, " + (keep_panels ? first_column : 0) * ",
                  text.size(depth()), ";"));
    text.line(cat("b_stride = ", width * f_.group(), ";"));
    text.open(cat("if (!keep_panels || panel >= ", staged_, ")"));
    text.line(cat(staged_, " = panel + 1;"));
  } else {
    text.line(cat("b = (const ", type, "*)", stage_, ";"));
    text.line(cat("b_stride = ", width * f_.group(), ";"));
    text.open(cat("if (", staged_, " != batch * panels + panel)"));
    text.line(cat(staged_, " = batch * panels + panel;"));
  }
  text.line(cat(type, "* to = (", type, "*)b;"));
  print_blank_columns();
  print_copy();
  if (f_.step() > f_.group() && !f_.facts.holds(sym::eq(sym::mod(extent_of(f_.reduced), f_.step()), 0))) {
    // Zero the padding after the last group: the rows are zero there, but NaN times zero would be NaN.
    const sym::Expr filled = sym::align_up(extent_of(f_.reduced), f_.group());
    text.line(cat("for (int64_t i = ", text.size(filled * width), "; i < ", text.size(depth() * width),
                  "; ++i) ((", type, "*)b)[i] = 0;"));
  }
  text.close();
}

// Zeroes columns after the last one, which are multiplied too. Stale scratch contents may be subnormal, which
// cost Intel processors a hundred cycles each. Dot products of two or four elements flush subnormals to zero.
void ContractionColumns::print_blank_columns() {
  const int width = f_.plan.kernel->columns();
  const auto known = sym::as_const(extent_of(f_.columns));
  if (compact_ || f_.group() > 1 || (known && *known % width == 0)) return;
  // Copies along the columns always fill the last vector.
  const std::string first = cat("live_columns / ", f_.lanes, " * ", f_.lanes);
  KernelText& text = f_.text;
  text.open(cat("for (int64_t j = ", first, "; j < ", width, "; j += ", f_.lanes, ")"));
  text.line(cat("for (int64_t i = 0; i < ", text.size(depth()), "; ++i) *(",
                text.unaligned_type(f_.contraction.dtype, f_.lanes), "*)(to + i * ", width, " + j) = 0;"));
  text.close();
}

// Loads vectors along the last reduced dim for `lanes` columns and transposes them in registers.
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

// Packs groups of k: [k / group][column][group].
void ContractionColumns::print_grouped_copy() {
  KernelText& text = f_.text;
  const int group = f_.group(), width = f_.plan.kernel->columns(), lanes = f_.lanes;
  const std::string word = text.storage_type(DType::kU32);
  Dims outer = f_.reduced;
  const loop::Dim inner = outer.back();
  outer.pop_back();
  const bool whole = f_.facts.holds(sym::eq(sym::mod(inner.extent, group), 0));
  if (!whole && !outer.empty()) return print_scattered_groups();
  Body body = f_.body();
  for (const loop::Dim& dim : f_.columns) body.set_index(dim.var, "0");
  const std::string extent = text.size(inner.extent);
  f_.open_loops(outer, body);
  if (turned_ || turned_slice_) {
    // Load vectors along k, column by column; each group is a 32-bit word.
    text.open("for (int64_t j = 0; j < live_columns; ++j)");
    text.line("const int64_t column = first_column + j;");
    body.set_index(f_.columns.back().var, "column");
    auto strip = [&](const std::string& live) {
      Body along = body;
      along.set_index(inner.var, "k");
      along.set_lanes(inner.var, lanes, live);
      for (const loop::Stmt* stmt : f_.b->slice) along.print(*stmt);
      text.line(cat("alignas(64) ", f_.b_element(), " piece[", lanes, "];"));
      text.line(
          cat("*(", f_.b_element(lanes), "*)piece = ", f_.stored(along, f_.b->value, f_.b_dtype()), ";"));
      if (!live.empty()) {
        text.line(cat("for (int64_t l = ", extent, " - k; l < ", lanes, "; ++l) piece[l] = 0;"));
        text.line(cat("for (int64_t l = 0; l < ", extent, " - k; l += ", group, ")"));
      } else {
        text.line("#pragma clang loop unroll(full)");
        text.line(cat("for (int64_t l = 0; l < ", lanes, "; l += ", group, ")"));
      }
      text.line(cat("  __builtin_memcpy(to + (k + l) * ", width, " + j * ", group, ", piece + l, 4);"));
    };
    text.line("int64_t k = 0;");
    text.open(cat("for (; k + ", lanes, " <= ", extent, "; k += ", lanes, ")"));
    strip("");
    text.close();
    const auto known = sym::as_const(inner.extent);
    if (!known || *known % lanes != 0) {
      text.open(cat("if (k < ", extent, ")"));
      text.line(cat("const uint64_t live = ((uint64_t)1 << (", extent, " - k)) - 1;"));
      strip("live");
      text.close();
    }
    text.close();
    text.line(cat("to += (", extent, " + ", group - 1, ") / ", group, " * ", group * width, ";"));
    f_.close_loops(outer);
    return;
  }
  text.open(cat("for (int64_t k = 0; k < ", extent, "; k += ", group, ")"));
  auto strip = [&](const std::string& live) {
    text.line(cat(text.storage_type(DType::kU32, lanes), " words = (", text.storage_type(DType::kU32, lanes),
                  ")0;"));
    const DType bits = f_.b_bytes() == 1 ? DType::kU8 : DType::kU16;
    for (int g = 0; g < group; ++g) {
      text.open(whole ? std::string() : cat("if (k + ", g, " < ", extent, ")"));
      Body across = body;
      across.set_index(inner.var, g ? cat("(k + ", g, ")") : std::string("k"));
      if (!f_.columns.empty()) {
        across.set_index(f_.columns.back().var, "(first_column + j)");
        across.set_lanes(f_.columns.back().var, lanes, live);
      }
      for (const loop::Stmt* stmt : f_.b->slice) across.print(*stmt);
      text.line(cat("words |= __builtin_convertvector((", text.storage_type(bits, lanes), ")(",
                    f_.stored(across, f_.b->value, f_.b_dtype()), "), ",
                    text.storage_type(DType::kU32, lanes), ") << ", g * 8 * f_.b_bytes(), ";"));
      text.close();
    }
    text.line(cat("*(", text.unaligned_type(DType::kU32, lanes), "*)(to + j * ", group, ") = words;"));
  };
  print_column_strips(strip);
  text.line(cat("to += ", group * width, ";"));
  text.close();
  f_.close_loops(outer);
}

// Packs groups that cross the ends of the innermost dim, element by element.
void ContractionColumns::print_scattered_groups() {
  KernelText& text = f_.text;
  const int group = f_.group(), width = f_.plan.kernel->columns(), lanes = f_.lanes;
  const std::string k = text.size(extent_of(f_.reduced));
  text.line(cat("for (int64_t i = ", k, " / ", group, " * ", group * width, "; i < (", k, " + ", group - 1,
                ") / ", group, " * ", group * width, "; ++i) to[i] = 0;"));
  text.line("int64_t at = 0;");
  Body body = f_.body();
  f_.open_loops(f_.reduced, body);
  for (const loop::Dim& dim : f_.columns) body.set_index(dim.var, "0");
  print_column_strips([&](const std::string& live) {
    Body across = body;
    if (!f_.columns.empty()) {
      across.set_index(f_.columns.back().var, "(first_column + j)");
      across.set_lanes(f_.columns.back().var, lanes, live);
    }
    for (const loop::Stmt* stmt : f_.b->slice) across.print(*stmt);
    const std::string vector = text.fresh("piece");
    text.line(cat("const ", f_.b_element(lanes), " ", vector, " = ",
                  f_.stored(across, f_.b->value, f_.b_dtype()), ";"));
    text.line(cat("for (int l = 0; l < ", lanes, "; ++l) to[(at / ", group, " * ", width, " + j + l) * ",
                  group, " + at % ", group, "] = ", vector, "[l];"));
  });
  text.line("++at;");
  f_.close_loops(f_.reduced);
}

// Packs column by column with vectors of k: [k / group][column][group].
void ContractionColumns::print_deep_copy() {
  KernelText& text = f_.text;
  const int group = f_.group(), width = f_.plan.kernel->columns(), lanes = f_.lanes;
  const std::string depth = text.size(this->depth()),
                    to = cat("to[(at / ", group, " * ", width, " + j) * ", group, " + at % ", group, "]");
  text.open(cat("for (int64_t j = 0; j < ", width, "; ++j)"));
  text.line("int64_t at = 0;");
  text.open("if (j < live_columns)");
  Body body = f_.body();
  for (const loop::Dim& dim : f_.columns) body.set_index(dim.var, "0");
  if (!f_.columns.empty()) body.set_index(f_.columns.back().var, "(first_column + j)");
  Dims outer = f_.reduced;
  const loop::Dim inner = outer.back();
  // Vectors start at multiples of their lanes if all inner extents are multiples of them, or there is one
  // inner loop.
  const bool vectors = (turned_ || turned_slice_) &&
                       (outer.size() == 1 || f_.facts.holds(sym::eq(sym::mod(inner.extent, lanes), 0)));
  outer.pop_back();
  f_.open_loops(outer, body);
  const std::string extent = text.size(inner.extent);
  text.line("int64_t k = 0;");
  body.set_index(inner.var, "k");
  if (vectors) {
    text.open(cat("for (; k + ", lanes, " <= ", extent, "; k += ", lanes, ", at += ", lanes, ")"));
    Body along = body;
    along.set_lanes(inner.var, lanes, "");
    for (const loop::Stmt* stmt : f_.b->slice) along.print(*stmt);
    text.line(cat("*(", text.unaligned_type(f_.b_dtype(), lanes), "*)&", to, " = ",
                  f_.stored(along, f_.b->value, f_.b_dtype()), ";"));
    text.close();
  }
  text.open(cat("for (; k < ", extent, "; ++k, ++at)"));
  for (const loop::Stmt* stmt : f_.b->slice) body.print(*stmt);
  text.line(cat(to, " = ", f_.stored(body, f_.b->value, f_.b_dtype()), ";"));
  text.close();
  f_.close_loops(outer);
  text.close();
  text.line(cat("for (; at < ", depth, "; ++at) ", to, " = 0;"));
  text.close();
}

// Prints a vectorised loop over the live columns; `strip` receives the live lanes, "" for all.
void ContractionColumns::print_column_strips(const std::function<void(const std::string& live)>& strip) {
  KernelText& text = f_.text;
  text.line("int64_t j = 0;");
  text.open(cat("for (; j + ", f_.lanes, " <= live_columns; j += ", f_.lanes, ")"));
  strip("");
  text.close();
  text.open("if (j < live_columns)");
  text.line("const uint64_t live = ((uint64_t)1 << (live_columns - j)) - 1;");
  strip("live");
  text.close();
}

void ContractionColumns::print_copy() {
  KernelText& text = f_.text;
  if (compact_) {
    compact_->print_panel();
    return compact_->print_copy();
  }
  if (f_.plan.kernel->deep) return print_deep_copy();
  if (f_.group() > 1) return print_grouped_copy();
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
  print_column_strips(strip);
  text.line(cat("to += ", width, ";"));
  f_.close_loops(f_.reduced);
}

}  // namespace stridec::codegen::cpu
