#include "compiler/codegen/cuda/matrix/matrix_frame.h"

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/prelude.h"

namespace stridec::codegen::cuda {

using sym::Expr;

MatrixFrame::MatrixFrame(const loop::Program& program, const loop::Nest& original,
                         const kernels::MatrixKernel& kernel, kernels::MatrixPlan given, bool narrow)
    : program(program),
      nest(original),
      kernel(kernel),
      narrow(narrow),
      text(program, kCudaText),
      plan(std::move(given)) {
  prologue = kernels::match_row_prologue(original);
  if (prologue) nest = prologue->product;
  pair = kernels::match_dual_gemm(nest);
  if (pair) nest = loop::Nest(pair->nest);
  auto matched = kernels::match_contraction(nest);
  STRIDEC_CHECK(matched.has_value(), cat("nest '", nest.name, "' is not a contraction"));
  contraction = *std::move(matched);
  facts = kernels::facts_in(program, nest, contraction);
  for (const loop::Dim& dim : contraction.reduce->dims) nest.dims.push_back(dim);
  auto named = [&](const std::vector<Expr>& vars) {
    Dims dims;
    for (Expr var : vars)
      for (const loop::Dim& dim : nest.dims)
        if (dim.var == var) dims.push_back(dim);
    STRIDEC_CHECK(dims.size() == vars.size(), "a schedule names dims that the nest does not have");
    return dims;
  };
  batch = named(plan.batch);
  rows = named(plan.rows);
  columns = named(plan.columns);
  depth = named(plan.depth);
  STRIDEC_CHECK(batch.size() + rows.size() + columns.size() + depth.size() == nest.dims.size(),
                cat("the schedule of nest '", nest.name, "' does not place every dim"));
  const size_t side = kernels::side_of_columns(contraction, plan.rows, plan.columns);
  a = &contraction.factors[1 - side];
  b = &contraction.factors[side];
  const auto element = [&](const kernels::Factor& factor) {
    return kernel.is_tensor() ? kernels::element_of(nest, contraction, factor) : contraction.dtype;
  };
  a_element = element(*a);
  // Packed weights are converted to the type that they are multiplied with.
  b_element = kernel.family == kernels::MatrixFamily::kWords ? a_element : element(*b);
  STRIDEC_CHECK(byte_size(a_element) == kernel.element_bytes && byte_size(b_element) == kernel.element_bytes,
                kernel.name);
  body_.emplace(text, nest);
}

Dims MatrixFrame::results(const Dims& dims) const {
  Dims out = dims;
  for (loop::Dim& dim : out)
    if (pair && dim.var == pair->dim) dim.extent = sym::floordiv(dim.extent, 2);
  return out;
}

void MatrixFrame::print_indices(const Dims& dims, const std::string& number,
                                const std::vector<std::string>& names) {
  if (dims.empty()) return;
  const std::string type = index_type();
  auto declare = [&](size_t d, const std::string& value) {
    if (!names[d].empty()) text.line(cat("const ", type, " ", names[d], " = ", value, ";"));
  };
  if (dims.size() == 1) return declare(0, number);
  const std::string rest = text.fresh("rest");
  text.line(cat(type, " ", rest, " = ", number, ";"));
  for (size_t d = dims.size(); d-- > 1;) {
    const std::string extent = cat("(", type, ")", text.size(dims[d].extent));
    declare(d, cat(rest, " % ", extent));
    text.line(cat(rest, " /= ", extent, ";"));
  }
  declare(0, rest);
}

void MatrixFrame::print_indices(const Dims& dims, const std::string& number, Body& body) {
  std::vector<std::string> names;
  for (const loop::Dim& dim : dims) {
    names.push_back(text.fresh("t"));
    body.set_index(dim.var, cat("(int64_t)", names.back()));
  }
  print_indices(dims, number, names);
}

void MatrixFrame::print_batch_indices() { print_indices(batch, "batch", *body_); }

void print_tile_counts(MatrixFrame& f) {
  const std::string type = f.index_type();
  f.text.line(
      cat("const ", type, " row_tiles = ", f.text.size(sym::ceildiv(extent_of(f.rows), f.kernel.rows)),
          ", column_tiles = ", f.text.size(sym::ceildiv(extent_of(f.columns), f.kernel.columns)), ";"));
}

// Blocks that run concurrently share rows and columns in L2: tiles are ordered in groups of 8 rows of tiles,
// column by column.
void print_tile_place(MatrixFrame& f, const std::string& block) {
  const std::string type = f.index_type();
  f.text.line(cat("const ", type, " batch = ", block, " / (row_tiles * column_tiles), tile = ", block,
                  " % (row_tiles * column_tiles);"));
  f.text.line(cat("const ", type, " band = tile / (8 * column_tiles), in_band = tile % (8 * column_tiles);"));
  f.text.line(cat("const ", type, " tall = row_tiles - band * 8 < 8 ? row_tiles - band * 8 : 8;"));
  f.text.line(cat("const ", type, " first_row = (band * 8 + in_band % tall) * ", f.kernel.rows,
                  ", first_column = in_band / tall * ", f.kernel.columns, ";"));
  f.print_batch_indices();
}

void print_steps(MatrixFrame& f) {
  const Expr steps = sym::ceildiv(extent_of(f.depth), f.kernel.depth);
  const std::string count = cat("(", f.index_type(), ")", f.text.size(steps));
  if (f.plan.split > 1)
    f.text.line(cat("const int64_t begin = (int64_t)", count, " * rank / ", f.plan.split, ", end = (int64_t)",
                    count, " * (rank + 1) / ", f.plan.split, ";"));
  else
    f.text.line(cat("const int64_t begin = 0, end = ", count, ";"));
}

std::optional<Expr> contiguous(const MatrixFrame& frame, const loop::Access& access, const loop::Dim& unit,
                               int64_t lanes, bool ragged) {
  return kernels::contiguous(frame.program, frame.nest.dims, access, unit, lanes, ragged, frame.facts);
}

}  // namespace stridec::codegen::cuda
