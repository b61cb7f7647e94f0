#include "compiler/codegen/cpu/contraction_epilogue.h"

#include <algorithm>
#include <set>

#include "compiler/base/text.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cpu {

using loop::Stmt;
using loop::ValueId;

EpilogueLayout::EpilogueLayout(const ContractionShape& shape) {
  // Statements that do not depend on the column run once per row, up to the first store.
  std::set<ValueId> by_column = {shape.contraction.reduce->results[0]};
  Dims column_dims = shape.columns;  // and index variables bound to values that depend on them
  bool stored = false;
  for (const Stmt* kept : epilogue_of(shape.nest, shape.contraction)) {
    const Stmt& stmt = *kept;
    stored = stored || std::holds_alternative<loop::Store>(stmt.node);
    bool depends = stored;
    loop::for_each_use(stmt, [&](ValueId id) { depends = depends || by_column.contains(id); });
    loop::for_each_expr(stmt, [&](sym::Expr e) { depends = depends || depends_on_any(e, column_dims); });
    if (depends) loop::for_each_result(stmt, [&](ValueId id) { by_column.insert(id); });
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node); bind && depends)
      column_dims.push_back({bind->var, bind->extent});
    (depends ? column_ : row_).push_back(&stmt);
  }
  merge_ = shape.rows.size() < 2 || rows_merge(shape);
}

// Whether every access treats the row dims as one merged dim.
bool EpilogueLayout::rows_merge(const ContractionShape& shape) const {
  for (const auto* list : {&row_, &column_}) {
    for (const Stmt* stmt : *list) {
      if (const loop::Access* access = loop::access_of(*stmt)) {
        if (depends_on_any(access->mask, shape.rows)) return false;
        if (!kernels::merged_step(kernels::offset_of(shape.program, *access, shape.facts), shape.rows,
                                  shape.facts))
          return false;
      } else {
        bool depends = false;
        loop::for_each_expr(*stmt, [&](sym::Expr e) { depends = depends || depends_on_any(e, shape.rows); });
        if (depends) return false;
      }
    }
  }
  return true;
}

void ContractionEpilogue::print_ahead(const ContractionRows& rows) {
  std::vector<const loop::Access*> own;
  for (const Stmt* stmt : column_) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    if (!load || !load->access.mask.is_const(1) ||
        f_.program[load->access.buffer].storage == loop::Storage::kLocal || f_.columns.empty())
      continue;
    const auto form =
        kernels::linear_form(kernels::offset_of(f_.program, load->access, f_.facts), {f_.columns.back().var});
    if (form && form->coefficients[0].is_const(1) && depends_on_any(form->rest, f_.rows))
      own.push_back(&load->access);
  }
  if (own.empty()) return;
  KernelText& text = f_.text;
  text.open("for (int64_t i = 0; i < tile_rows; ++i)");
  Body body = row_body(rows);
  for (size_t d = 0; d + 1 < f_.columns.size(); ++d) body.set_index(f_.columns[d].var, "0");
  body.set_index(f_.columns.back().var, "first_column");
  for (const loop::Access* access : own) {
    const std::string line = text.fresh("line");
    const int bytes = f_.plan.kernel->columns() * byte_size(f_.program[access->buffer].dtype);
    text.line(cat("const char* const ", line, " = (const char*)(", text.pointer(access->buffer), " + ",
                  body.offset(*access), ");"));
    for (int at = 0; at < bytes; at += 64) text.line(cat("__builtin_prefetch(", line, " + ", at, ", 0, 3);"));
  }
  text.close();
}

void ContractionEpilogue::print(const ContractionRows& rows) {
  f_.text.open("for (int64_t i = 0; i < tile_rows; ++i)");
  print_row(rows, false);
  f_.text.close();
}

void ContractionEpilogue::print_row(const ContractionRows& rows, bool straight) {
  KernelText& text = f_.text;
  Body body = row_body(rows);
  for (const Stmt* stmt : row_) body.print(*stmt);
  const auto known = sym::as_const(extent_of(f_.columns));
  text.line("int64_t j = 0;");
  const bool whole = known && *known % f_.plan.kernel->columns() == 0;
  if (straight && whole) text.line("#pragma clang loop unroll(full)");
  text.open(cat("for (; j + ", f_.lanes,
                " <= ", straight && whole ? cat(f_.plan.kernel->columns()) : std::string("live_columns"),
                "; j += ", f_.lanes, ")"));
  print_columns(body, "");
  text.close();
  if (!known || *known % f_.lanes != 0 || f_.plan.kernel->deep) {
    text.open("if (j < live_columns)");
    text.line("const uint64_t live = ((uint64_t)1 << (live_columns - j)) - 1;");
    print_columns(body, "live");
    text.close();
  }
}

int ContractionEpilogue::operations() const {
  return static_cast<int>(std::count_if(column_.begin(), column_.end(), [](const Stmt* stmt) {
    return std::holds_alternative<loop::Let>(stmt->node) || std::holds_alternative<loop::Load>(stmt->node);
  }));
}

Body ContractionEpilogue::row_body(const ContractionRows& rows) {
  KernelText& text = f_.text;
  Body body = f_.body();
  for (size_t d = 0; d < f_.rows.size(); ++d) {
    if (!merge_) {
      const std::string name = cat("row_", d);
      text.line(cat("const int64_t ", name, " = ", rows.row_index(d, "i"), ";"));
      body.set_index(f_.rows[d].var, name);
    } else if (d + 1 < f_.rows.size()) {
      body.set_index(f_.rows[d].var, "0");
    } else {
      text.line("const int64_t row = first_row + i;");
      body.set_index(f_.rows[d].var, "row");
    }
  }
  if (merge_) f_.set_local_row(body, "row - block_row");
  return body;
}

void ContractionEpilogue::print_columns(Body body, const std::string& live) {
  KernelText& text = f_.text;
  for (size_t d = 0; d + 1 < f_.columns.size(); ++d) body.set_index(f_.columns[d].var, "0");
  text.line("const int64_t column = first_column + j;");
  if (!f_.columns.empty()) {
    body.set_index(f_.columns.back().var, "column");
    body.set_lanes(f_.columns.back().var, f_.lanes, live);
  }
  const std::string vector = f_.element(f_.lanes);
  const std::string at = cat("tile + i * ", f_.plan.kernel->line(), " + j");
  const bool scalar = f_.columns.empty();
  text.line(scalar ? cat("const ", f_.element(), " sum = *(", at, ");")
                   : cat("const ", vector, " sum = *(const ", vector, "*)(", at, ");"));
  body.set_value(f_.contraction.reduce->results[0],
                 {.text = "sum", .dtype = f_.contraction.dtype, .width = scalar ? 1 : f_.lanes});
  for (const Stmt* stmt : column_) body.print(*stmt);
}

}  // namespace stridec::codegen::cpu
