#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction_copy.h"
#include "compiler/codegen/cpu/contraction_rows.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cpu {

// Packs rows that are contiguous across rows instead of along k: a transposing copy.
bool ContractionRows::print_turned_pack() {
  const loop::Load* load = f_.a->load;
  if (!load || f_.local_rows(load->access.buffer) || f_.a_dtype() != f_.contraction.dtype) return false;
  const auto k = kernels::stride_of_transposed_rows(f_.program, load->access, f_.rows, f_.reduced, f_.facts);
  if (!k || depends_on_any(*k, f_.batch)) return false;
  const sym::Expr offset = kernels::offset_of(f_.program, load->access, f_.facts);
  KernelText& text = f_.text;
  text.open("");
  text.line(cat("const ", f_.a_element(), "* from = ", text.pointer(load->access.buffer), " + ",
                f_.body().index(at_zero(at_zero(offset, f_.rows), f_.reduced)), " + block_row;"));
  print_transposed_copy(text,
                        {.dtype = f_.a_dtype(),
                         .to = cat("(", f_.a_element(), "*)", copies_[0]),
                         .to_step = stride_text_,
                         .from = "from",
                         .from_step = text.size(*k),
                         .rows = "block_rows",
                         .columns = text.size(extent_of(f_.reduced))},
                        f_.lanes);
  if (has_step_tail()) {
    text.open("for (int64_t row = 0; row < block_rows; ++row)");
    text.line(cat(f_.a_element(), "* to = (", f_.a_element(), "*)", copies_[0], " + row * ", stride_text_,
                  " + ", text.size(extent_of(f_.reduced)), ";"));
    print_step_tail("to");
    text.close();
  }
  text.close();
  return true;
}

// The innermost dims of k that are contiguous in a; if there are none, the innermost dim if its stride is
// constant and its extent small, such as the taps of a dilated window.
ContractionRows::Run ContractionRows::even_run(const Dims& k) const {
  Run run;
  if (!f_.a->load || f_.local_rows(f_.a->load->access.buffer) || k.empty()) return run;
  const sym::Expr offset = kernels::offset_of(f_.program, f_.a->load->access, f_.facts);
  for (size_t d = k.size(); d-- > 0;) {
    Dims longer(k.begin() + static_cast<std::ptrdiff_t>(d), k.end());
    const auto step = kernels::merged_step(offset, longer, f_.facts);
    if (!step || !step->is_const(1)) break;
    run.dims = std::move(longer);
  }
  const auto step = kernels::merged_step(offset, {k.back()}, f_.facts);
  const std::optional<int64_t> known = step ? sym::as_const(*step) : std::nullopt;
  const auto count = sym::as_const(k.back().extent);
  if (run.dims.empty() && known && count && *count < f_.lanes) run = {.dims = {k.back()}, .step = *known};
  return run;
}

// A condition under which the mask holds for the whole run, at the outer indices set in `body`; nothing if
// the mask has no such form.
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

// Copies the run's elements from `from` to `to`, reading nothing else.
void ContractionRows::print_copy(const Run& run) {
  KernelText& text = f_.text;
  const sym::Expr count = extent_of(run.dims);
  const auto known = sym::as_const(count);
  if (run.step != 1) {
    for (int64_t k = 0; k < *known; ++k) text.line(cat("to[", k, "] = from[", k * run.step, "];"));
    return;
  }
  // One load if a register can hold the run. The elements stored past its end are overwritten later or are in
  // the padding vector at the end of a packed row.
  int whole = f_.lanes;
  while (known && whole < *known && 2 * whole * f_.a_bytes() <= text.target().vector_bytes) whole *= 2;
  if (known && *known < whole && whole - *known < f_.lanes && text.target().avx512) {
    text.use(cat("mload.", text.storage_type(f_.a_dtype())), whole);
    text.line(cat("*(", text.unaligned_type(f_.a_dtype(), whole), "*)to = sd_mload", whole, "(from, ",
                  (int64_t{1} << *known) - 1, ");"));
    return;
  }
  print_vectors(count, [&](const std::string& at, int lanes) {
    if (lanes == 1) return cat("from[", at, "]");
    return cat("*(const ", text.unaligned_type(f_.a_dtype(), lanes), "*)(from + ", at, ")");
  });
}

// Stores the fill value for a masked-off run.
void ContractionRows::print_fill(const sym::Expr& count) {
  const std::string fill = f_.body().stored_fill(*f_.a->load);
  print_vectors(count, [&](const std::string&, int lanes) {
    return lanes == 1 ? fill : cat("(", f_.a_element(lanes), ")(", fill, ")");
  });
}

// Stores values to `to`, with the widest vectors that registers and the count allow.
void ContractionRows::print_vectors(const sym::Expr& count,
                                    const std::function<std::string(const std::string&, int)>& value) {
  KernelText& text = f_.text;
  constexpr int kUnrolled = 8;
  const auto known = sym::as_const(count);
  if (!known || *known < f_.lanes)
    return text.line(
        cat("for (int64_t k = 0; k < ", text.size(count), "; ++k) to[k] = ", value("k", 1), ";"));
  int lanes = f_.lanes;
  while (2 * lanes <= *known && 2 * lanes * f_.a_bytes() <= text.target().vector_bytes) lanes *= 2;
  const std::string type = text.unaligned_type(f_.a_dtype(), lanes);
  auto vector = [&](const std::string& at) {
    text.line(cat("*(", type, "*)(to + ", at, ") = ", value(at, lanes), ";"));
  };
  if (*known < kUnrolled * lanes) {
    for (int64_t k = 0; k + lanes < *known; k += lanes) vector(cat(k));
  } else {
    text.open(cat("for (int64_t k = 0; k + ", lanes, " < ", *known, "; k += ", lanes, ")"));
    vector("k");
    text.close();
  }
  vector(cat(*known - lanes));  // overlaps the previous one
}

void ContractionRows::print_pack() {
  if (print_turned_pack()) return;
  print_packed_rows({.rows = f_.rows, .k = f_.reduced, .to = copies_[0], .count = "block_rows"}, f_.body());
}

void ContractionRows::print_packed_rows(const Copy& copy, Body body) {
  KernelText& text = f_.text;
  const std::vector<std::string> names = row_names(f_);
  const std::string type = f_.a_element();
  text.open("");
  f_.print_indices(f_.rows, "block_row", names);
  text.open(cat("for (int64_t row = 0; row < ", copy.count, "; ++row)"));
  text.line(cat(type, "* to = (", type, "*)", copy.to, " + row * ", stride_text_, ";"));
  for (size_t d = 0; d < names.size(); ++d) body.set_index(f_.rows[d].var, names[d]);
  f_.set_local_row(body, "row");
  // Runs that the mask cuts only at the border are copied whole where the mask holds throughout, as it does
  // for most rows.
  const Run run = even_run(copy.k);
  const bool fast = !run.dims.empty() && depends_on_any(f_.a->load->access.mask, run.dims);
  const Dims outer(copy.k.begin(),
                   copy.k.end() - static_cast<std::ptrdiff_t>(fast ? run.dims.size() : copy.k.size()));
  const auto all_inside = fast && !outer.empty() ? whole_run_inside(copy.k, body) : std::nullopt;
  if (all_inside) {
    text.open(cat("if (", *all_inside, ")"));
    Body whole = body;
    f_.open_loops(outer, whole);
    print_run(run, whole);
    f_.close_loops(outer);
    text.close(" else {");
    text.open("");
  }
  f_.open_loops(outer, body);
  const auto inside = fast ? whole_run_inside(run.dims, body) : std::nullopt;
  if (inside) {
    text.open(cat("if (", *inside, ")"));
    print_run(run, body);
    text.close(" else {");
    text.open("");
  }
  if (!fast || !print_masked_runs(run, body)) print_packed_elements(fast ? run.dims : copy.k, body);
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
  f_.print_increment(copy.rows, names);
  text.close();
  text.close();
}

// Copies the run that starts at `body`'s indices to `to`, which advances.
void ContractionRows::print_run(const Run& run, Body body) {
  KernelText& text = f_.text;
  for (const loop::Dim& dim : run.dims) body.set_index(dim.var, "0");
  const sym::Expr offset = kernels::offset_of(f_.program, f_.a->load->access, f_.facts);
  text.line(cat("const ", f_.a_element(), "* from = ", text.pointer(f_.a->load->access.buffer), " + ",
                body.index(at_zero(offset, run.dims)), ";"));
  print_copy(run);
  text.line(cat("to += ", text.size(extent_of(run.dims)), ";"));
}

// Splits a run that the mask cuts into shorter runs on which the mask is uniform; false if there are none.
bool ContractionRows::print_masked_runs(const Run& run, Body body) {
  KernelText& text = f_.text;
  if (run.step != 1) return false;
  size_t outer = run.dims.size();
  while (outer > 0 && !sym::depends_on(f_.a->load->access.mask, run.dims[outer - 1].var)) --outer;
  const auto cut = run.dims.begin() + static_cast<std::ptrdiff_t>(outer);
  const Dims around(run.dims.begin(), cut);
  const Run inner{.dims = Dims(cut, run.dims.end()), .step = 1};
  if (inner.dims.empty()) return false;
  f_.open_loops(around, body);
  text.open(cat("if (", body.index(sym::simplify(f_.a->load->access.mask, f_.facts)), ")"));
  print_run(inner, body);
  text.close(" else {");
  text.open("");
  print_fill(extent_of(inner.dims));
  text.line(cat("to += ", text.size(extent_of(inner.dims)), ";"));
  text.close();
  text.line("}");
  f_.close_loops(around);
  return true;
}

bool ContractionRows::has_step_tail() const {
  return f_.step() > 1 && !f_.facts.holds(sym::eq(sym::mod(extent_of(f_.reduced), f_.step()), 0));
}

// Zeroes a row from the C pointer `end` to the end of its last step.
void ContractionRows::print_step_tail(const std::string& end) {
  if (!has_step_tail()) return;
  f_.text.line(cat("for (int64_t k = ", f_.text.size(extent_of(f_.reduced)), "; k % ", f_.step(),
                   " != 0; ++k) *", end, "++ = 0;"));
}

// Prints the factor's statements for every k of `dims`, vectorised along the innermost, to `to`, which
// advances.
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

// ---- lines

void RowsLayout::plan_lines() {
  STRIDEC_CHECK(shape_.a->load && !shape_.segments.empty() && !shape_.reads_local(*shape_.a),
                shape_.nest.name);
  lines_ = kernels::match_lines(shape_.a->load->access, shape_.rows, shape_.segments[0], shape_.facts);
  STRIDEC_CHECK(lines_.has_value(), shape_.nest.name);
  copied_k_ = Dims(shape_.reduced.begin() + 1, shape_.reduced.end());
  // The row stride is a whole number of cache lines, and an odd one if known: rows then start in all cache
  // sets.
  sym::Expr stride = extent_of(copied_k_);
  const int step = shape_.step();
  if (const auto known = sym::as_const(stride); !known || *known / step % 2 == 0) stride += step;
  stride_ = stride;
  const auto [images, rows] = shape_.images();
  const sym::Expr image_tiles = sym::max(sym::ceildiv(rows, shape_.plan.kernel->rows), 1),
                  most_images = sym::min(images, sym::ceildiv(shape_.plan.tiles, image_tiles) + 1);
  for (const kernels::Lines::Copy& copy : lines_->copies) {
    const sym::Expr more = most_images * (line_rows() * copy.lines);
    // Vectors are stored past the end of the last row.
    copy_bytes_.push_back((stride * (shape_.block_limit + more) + step) * shape_.a_bytes());
  }
}

sym::Expr RowsLayout::line_rows() const {
  return extent_of(
      Dims(shape_.rows.begin() + static_cast<std::ptrdiff_t>(lines_->row) + 1, shape_.rows.end()));
}

bool RowsLayout::several_images() const { return !shape_.images().count.is_const(1); }

void ContractionRows::print_lines_start() {
  if (lines_ && several_images()) f_.text.line("int64_t first_image = 0;");
}

void ContractionRows::print_lines() {
  KernelText& text = f_.text;
  const bool several = several_images();
  if (several) text.line("first_image = block_row / image_rows;");
  text.line(cat("const int64_t block_images = ",
                several ? "(block_row + block_rows - 1) / image_rows - first_image + 1" : "1", ";"));
  for (size_t c = 0; c < lines_->copies.size(); ++c) {
    const kernels::Lines::Copy& copy = lines_->copies[c];
    Dims rows = f_.rows;
    rows[lines_->row].extent += copy.lines;
    Body body = f_.body();
    body.set_index(f_.segments[0].var, cat(copy.tap));
    print_packed_rows({.rows = rows,
                       .k = copied_k_,
                       .to = copies_[c],
                       .count = cat("block_rows + block_images * ", text.size(line_rows() * copy.lines))},
                      body);
  }
}

void ContractionRows::print_lines_tile() {
  KernelText& text = f_.text;
  const std::string type = f_.a_element(),
                    others = text.size(extent_of(Dims(f_.segments.begin() + 1, f_.segments.end())));
  const int rows = f_.plan.kernel->rows;
  text.line("int64_t segment = 0;");
  if (several_images()) text.line("const int64_t images = first_row / image_rows - first_image;");
  for (const kernels::Lines::Tap& tap : lines_->taps) {
    const sym::Expr passed = line_rows() * lines_->copies[tap.copy].lines;
    text.open(cat("for (int64_t other = 0; other < ", others, "; ++other, ++segment)"));
    text.line(cat("const ", type, "** const to = a_rows + segment * ", rows, ";"));
    text.line(cat("to[0] = (const ", type, "*)", copies_[tap.copy], " + (first_row - block_row + ",
                  text.size(line_rows() * tap.shift),
                  several_images() ? cat(" + images * ", text.size(passed)) : std::string(), ") * ",
                  stride_text_, " + other * ", text.size(extent_of(f_.run)), ";"));
    text.line(cat("to[1] = to[0] + ", stride_text_, ";"));
    text.close();
  }
}

}  // namespace stridec::codegen::cpu
