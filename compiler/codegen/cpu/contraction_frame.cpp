#include "compiler/codegen/cpu/contraction_frame.h"

#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/kernels/gemm_lines.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cpu {

sym::Expr scratch_stride(sym::Expr extent, int unit) { return sym::align_up(extent, 2 * unit) + unit; }

ContractionShape::ContractionShape(const loop::Program& program, const loop::Nest& nest,
                                   kernels::GemmPlan contraction_plan)
    : program(program), nest(nest), plan(std::move(contraction_plan)) {
  auto matched = kernels::match_contraction(nest);
  STRIDEC_CHECK(matched.has_value(), cat("nest '", nest.name, "' is not a contraction"));
  contraction = *std::move(matched);
  facts = kernels::facts_in(program, nest, contraction);
  auto named = [&](const std::vector<sym::Expr>& vars) {
    return kernels::dims_by_name(nest, contraction, vars);
  };
  batch = named(plan.batch);
  rows = named(plan.rows);
  columns = named(plan.columns);
  segments = named(plan.segments);
  run = named(plan.run);
  reduced = segments;
  reduced.insert(reduced.end(), run.begin(), run.end());
  STRIDEC_CHECK(batch.size() + rows.size() + columns.size() == nest.dims.size() &&
                    reduced.size() == contraction.reduce->dims.size(),
                cat("the schedule of nest '", nest.name, "' does not place every dim"));
  const size_t side = kernels::side_of_columns(contraction, plan.rows, plan.columns);
  elements_[0] = kernels::as_elements(nest, contraction.factors[1 - side], plan.kernel->a);
  elements_[1] = kernels::as_elements(nest, contraction.factors[side], plan.kernel->b);
  STRIDEC_CHECK(elements_[0] && elements_[1],
                cat(plan.kernel->name, " does not hold the factors of '", nest.name, "'"));
  a = &*elements_[0];
  b = &*elements_[1];
  lanes = plan.kernel->lanes();
  block_limit = plan.tiles * plan.kernel->rows;
}

ContractionShape::Images ContractionShape::images() const {
  if (plan.a != kernels::GemmPlan::A::kLines) return {1, extent_of(rows)};
  const auto lines = kernels::match_lines(a->load->access, rows, segments.at(0), facts);
  STRIDEC_CHECK(lines.has_value(), nest.name);
  const auto image = rows.begin() + static_cast<std::ptrdiff_t>(lines->row);
  return {extent_of(Dims(rows.begin(), image)), extent_of(Dims(image, rows.end()))};
}

bool ContractionShape::reads_local(const kernels::Factor& factor) const {
  return factor.load && program[factor.load->access.buffer].storage == loop::Storage::kLocal;
}

ContractionFrame::ContractionFrame(KernelText& text, const loop::Program& program, const loop::Nest& nest,
                                   kernels::GemmPlan plan, const loop::Nest* points)
    : ContractionShape(program, nest, std::move(plan)), text(text) {
  body_.emplace(text, points ? *points : nest);
  for (const loop::Dim& dim : nest.dims) body_->add_dim(dim);
}

std::string ContractionFrame::stored(Body& body, loop::ValueId value, DType dtype) {
  const std::string lanes = body.lanes(value);
  if (nest.values[value.value].dtype == dtype) return body.to_storage(lanes, dtype, body.width());
  if (body.width() == 1) return cat("(", text.storage_type(dtype), ")(", lanes, ")");
  return cat("__builtin_convertvector(", lanes, ", ", text.storage_type(dtype, body.width()), ")");
}

std::string ContractionFrame::print_declaration() {
  const std::string name = kernels::gemm_symbol(*plan.kernel, text.target());
  text.line(cat("void ", name, "(int64_t, int64_t, int64_t, const ", a_element(), "* const*, const ",
                b_element(), "*, int64_t, ", element(), "*, int64_t, const char*, int64_t) __asm__(\"", name,
                "\") __attribute__((visibility(\"hidden\")));"));
  if (plan.kernel->tiles) {
    const std::string shape = kernels::gemm_shape_symbol(*plan.kernel, text.target());
    text.line(
        cat("void ", shape, "(int64_t) __asm__(\"", shape, "\") __attribute__((visibility(\"hidden\")));"));
  }
  return name;
}

void ContractionFrame::print_shape_start() {
  if (plan.kernel->tiles) text.line("int64_t shaped = 0;");
}

void ContractionFrame::print_shape() {
  if (!plan.kernel->tiles) return;
  text.line(cat("if (shaped != tile_rows) ", kernels::gemm_shape_symbol(*plan.kernel, text.target()),
                "(shaped = tile_rows);"));
}

void ContractionFrame::print_shape_end() {
  if (plan.kernel->tiles) text.line(cat(kernels::gemm_shape_symbol(*plan.kernel, text.target()), "(0);"));
}

void ContractionFrame::set_local_row(Body& body, const std::string& row) const {
  for (const LocalRows& local : locals) {
    const std::string at = local.stride.empty() ? "" : cat(" + (", row, ") * ", local.stride);
    body.set_buffer(local.buffer, cat("(", local.pointer, at, ")"), program[local.buffer].strides);
  }
  if (row_value)
    body.set_value(row_value->value, {.text = cat(row_value->pointer, "[", row, "]"), .dtype = DType::kF32});
}

const LocalRows* ContractionFrame::local_rows(loop::BufferId buffer) const {
  for (const LocalRows& local : locals)
    if (local.buffer == buffer) return &local;
  return nullptr;
}

void ContractionFrame::print_batch_indices() {
  std::vector<std::string> names;
  for (size_t d = 0; d < batch.size(); ++d) names.push_back(cat("batch_", d));
  print_indices(batch, "batch", names);
  for (size_t d = 0; d < batch.size(); ++d) body_->set_index(batch[d].var, names[d]);
}

void ContractionFrame::print_indices(const Dims& dims, const std::string& number,
                                     const std::vector<std::string>& names) {
  if (dims.empty()) return;
  if (dims.size() == 1) return text.line(cat("int64_t ", names[0], " = ", number, ";"));
  const std::string rest = text.fresh("rest");
  text.line(cat("int64_t ", rest, " = ", number, ";"));
  for (size_t d = dims.size(); d-- > 1;) {
    const std::string extent = text.size(dims[d].extent);
    text.line(cat("int64_t ", names[d], " = ", rest, " % ", extent, ";"));
    text.line(cat(rest, " /= ", extent, ";"));
  }
  text.line(cat("int64_t ", names[0], " = ", rest, ";"));
}

void ContractionFrame::print_increment(const Dims& dims, const std::vector<std::string>& names) {
  if (dims.empty()) return;
  for (size_t d = dims.size(); d-- > 1;) {
    text.open(cat("if (++", names[d], " == ", text.size(dims[d].extent), ")"));
    text.line(cat(names[d], " = 0;"));
  }
  text.line(cat("++", names[0], ";"));
  for (size_t d = 1; d < dims.size(); ++d) text.close();
}

void ContractionFrame::open_loops(const Dims& dims, Body& body) {
  for (const loop::Dim& dim : dims) {
    const std::string name = text.fresh("k");
    text.open(cat("for (int64_t ", name, " = 0; ", name, " < ", text.size(dim.extent), "; ++", name, ")"));
    body.set_index(dim.var, name);
  }
}

void ContractionFrame::close_loops(const Dims& dims) {
  for (size_t d = 0; d < dims.size(); ++d) text.close();
}

std::vector<const loop::Stmt*> epilogue_of(const loop::Nest& nest, const kernels::Contraction& contraction) {
  std::set<loop::ValueId> wanted;
  std::vector<const loop::Stmt*> kept;
  for (size_t i = nest.body.size(); i-- > 0;) {
    if (i == contraction.at) continue;
    const loop::Stmt& stmt = nest.body[i];
    bool keep = std::holds_alternative<loop::Store>(stmt.node);
    loop::for_each_result(stmt, [&](loop::ValueId id) { keep = keep || wanted.contains(id); });
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node))
      for (const loop::Stmt* later : kept)
        loop::for_each_expr(*later, [&](sym::Expr e) { keep = keep || sym::depends_on(e, bind->var); });
    if (!keep) continue;
    loop::for_each_use(stmt, [&](loop::ValueId id) { wanted.insert(id); });
    kept.push_back(&stmt);
  }
  return {kept.rbegin(), kept.rend()};
}

}  // namespace stridec::codegen::cpu
