#include "compiler/codegen/cuda/matrix/matrix_side.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"

namespace stridec::codegen::cuda {

using sym::Expr;

MatrixSide::MatrixSide(MatrixFrame& frame, const std::string& name, bool vectors, bool engine)
    : f_(frame),
      name_(name),
      first_(name == "a" ? "first_row" : "first_column"),
      factor_(name == "a" ? *frame.a : *frame.b),
      dims_(name == "a" ? frame.rows : frame.columns),
      extent_(name == "a" ? frame.kernel.rows : frame.kernel.columns),
      element_(name == "a" ? frame.a_element : frame.b_element) {
  load_ = kernels::load_of(f_.program, factor_, element_);
  if (load_) {
    const auto form =
        kernels::linear_form(kernels::offset_of(f_.program, load_->access, f_.facts), vars_of(f_.depth));
    if (form && kernels::linear_form(form->rest, vars_of(f_.nest.dims)))
      form_ = *form;
    else
      load_ = nullptr;
  }
  if (load_) {
    for (size_t d = 0; d < f_.depth.size(); ++d) deeper_ += form_.coefficients[d] * f_.depth[d].var;
    step_ = kernels::merged_step(deeper_, f_.depth, f_.facts);
  }
  along_depth_ = kernels::along_depth(f_.program, factor_, dims_, f_.depth, f_.facts);
  if (vectors && load_) {
    const int lanes = 16 / f_.element_bytes();
    const Dims& dims = along_depth_ ? f_.depth : dims_;
    // If lines in shared memory run the other way, elements are copied one by one. A piece that crosses the
    // end of the only dim is cut off there; with several dims it would continue at another address.
    const bool cut = dims.size() == 1;
    const auto condition = dims.empty() || (f_.kernel.is_tensor() && is_turned())
                               ? std::nullopt
                               : contiguous(f_, load_->access, dims.back(), lanes, cut);
    if (condition) {
      lanes_ = lanes;
      condition_ = *condition;
      ragged_ = cut && f_.facts.known_divisor(dims.back().extent) % lanes != 0;
      if (engine) find_map();
    }
  }
  // With elements smaller than a register, a thread has too many for a pointer each.
  if (lanes_ * f_.element_bytes() < 4) step_.reset();
}

void MatrixSide::find_map() {
  if (!find_matrix()) find_windows();
  if (!map_) return;
  for (Expr extent : map_->dims) condition_ = sym::logical_and(condition_, sym::ge(extent, 1));
}

void MatrixSide::find_windows() {
  if (!along_depth_ && !f_.kernel.is_wgmma()) return;
  positions_ = along_depth_ ? dims_ : f_.depth;
  // A batch of images: a tile that ended within a line of the depth would continue in the next image.
  if (!along_depth_ && f_.batch.size() == 1 && sym::depends_on(load_->access.index[0], f_.batch[0].var) &&
      f_.facts.known_divisor(extent_of(f_.depth)) % f_.kernel.depth == 0)
    positions_.insert(positions_.begin(), f_.batch[0]);
  windows_ =
      kernels::match_im2col(f_.program, load_->access, positions_, along_depth_ ? f_.depth : dims_, f_.facts);
  if (!windows_) return;
  const loop::Buffer& buffer = f_.program[load_->access.buffer];
  TensorMap& map = map_.emplace(TensorMap{.buffer = load_->access.buffer, .dtype = element_});
  map.dims = {buffer.shape[windows_->channel]};
  map.element_strides = {1};
  for (const kernels::Im2col::Place& place : windows_->places) {
    map.dims.push_back(buffer.shape[place.dim]);
    map.strides.push_back(buffer.strides[place.dim] * f_.element_bytes());
    map.element_strides.push_back(place.step);
    map.lower.push_back(place.lower);
    map.upper.push_back(place.upper);
  }
  map.dims.push_back(positions_[0].extent);
  map.strides.push_back(buffer.strides[windows_->image] * f_.element_bytes());
  map.element_strides.push_back(1);
  map.swizzle = along_depth_ ? f_.kernel.depth * f_.element_bytes() : 128;
  map.box = {map.swizzle / f_.element_bytes(), along_depth_ ? extent_ : f_.kernel.depth};
}

// Matches a matrix in memory that may have batch dims.
bool MatrixSide::find_matrix() {
  constexpr size_t kMostDims = 5;
  if (!load_->access.mask.is_const(1)) return false;
  const Expr offset = kernels::offset_of(f_.program, load_->access, f_.facts);
  const auto batch = kernels::linear_form(offset, vars_of(f_.batch));
  if (!batch) return false;
  const auto row_step = kernels::merged_step(at_zero(batch->rest, f_.depth), dims_, f_.facts),
             depth_step = kernels::merged_step(at_zero(batch->rest, dims_), f_.depth, f_.facts);
  if (!row_step || !depth_step || !(along_depth_ ? *depth_step : *row_step).is_const(1)) return false;
  const Expr rest = at_zero(at_zero(batch->rest, dims_), f_.depth);
  const Expr rows = extent_of(dims_), depth = extent_of(f_.depth),
             line = along_depth_ ? *row_step : *depth_step;
  if (f_.facts.bounds(line).lo < 1) return false;
  TensorMap map{.buffer = load_->access.buffer, .offset = rest * f_.element_bytes(), .dtype = element_};
  map.dims = {along_depth_ ? depth : rows, along_depth_ ? rows : depth};
  map.strides = {line * f_.element_bytes()};
  const bool panels = f_.kernel.is_wgmma();  // panels of rows; simt threads read rows in memory order
  map.swizzle = along_depth_ ? f_.kernel.depth * f_.element_bytes() : panels ? 128 : 0;
  if (along_depth_)
    map.box = {f_.kernel.depth, extent_};
  else
    map.box = {panels ? map.swizzle / f_.element_bytes() : extent_, f_.kernel.depth};
  for (size_t d = 0; d < f_.batch.size(); ++d) {
    if (batch->coefficients[d].is_const(0)) continue;
    if (f_.facts.bounds(batch->coefficients[d]).lo < 1) return false;
    map.dims.push_back(f_.batch[d].extent);
    map.strides.push_back(batch->coefficients[d] * f_.element_bytes());
    map.box.push_back(1);
    map_batch_.push_back(f_.batch[d].var);
  }
  if (map.dims.size() > kMostDims) return false;
  map_ = std::move(map);
  return true;
}

void MatrixSide::print_boxes(const std::string& map) {
  if (windows_) return print_windows(map);
  const std::string deep = cat("(int)next * ", f_.kernel.depth), first = cat("(int)", first_);
  std::string batch;
  Body body = f_.body();
  for (Expr var : map_batch_) batch += cat(", (int)(", body.index(var), ")");
  const std::string call = cat("copy_box", map_->dims.size(), "(");
  if (along_depth_)
    return f_.text.line(cat(call, "fill_tile, &", map, ", full, ", deep, ", ", first, batch, ");"));
  for (int i = 0; i < extent_ / map_->box[0]; ++i)
    f_.text.line(cat(call, "fill_tile + ", i * f_.kernel.depth * 128, ", &", map, ", full, ", first, " + ",
                     i * 64, ", ", deep, batch, ");"));
}

// Copies the windows that this step needs. If windows run along the depth, a copy has the step's windows;
// otherwise each panel of rows has a copy with the step's taps and channels.
void MatrixSide::print_windows(const std::string& map) {
  KernelText& text = f_.text;
  text.line(cat("const ", f_.index_type(), " deep = (", f_.index_type(), ")next * ", f_.kernel.depth, ";"));
  if (along_depth_) return print_window(map, "fill_tile", first_);
  for (int i = 0; i < extent_ / map_->box[0]; ++i)
    print_window(map, cat("fill_tile + ", i * f_.kernel.depth * map_->swizzle),
                 cat(first_, " + ", i * map_->box[0]));
}

void MatrixSide::print_window(const std::string& map, const std::string& to, const std::string& row) {
  Body body = f_.body();
  f_.text.open("");
  f_.print_indices(dims_, row, body);
  f_.print_indices(f_.depth, "deep", body);
  const Expr channel = (along_depth_ ? f_.depth : dims_).back().var;
  std::string at = cat("(int)(", body.index(channel + windows_->first_channel), ")"), offsets;
  for (const kernels::Im2col::Place& place : windows_->places) {
    at += cat(", (int)(", body.index(place.row * place.step + place.lower), ")");
    offsets += cat(", (int)(", body.index(place.offset), ")");
  }
  f_.text.line(cat("copy_window", map_->dims.size(), "(", to, ", &", map, ", full, ", at, ", (int)(",
                   body.index(positions_[0].var), ")", offsets, ");"));
  f_.text.close();
}

std::optional<loop::BufferId> MatrixSide::buffer() const {
  return vector() ? std::optional(load_->access.buffer) : std::nullopt;
}

int MatrixSide::width() const { return along_depth_ ? f_.kernel.depth : extent_; }
int MatrixSide::lines() const { return along_depth_ ? extent_ : f_.kernel.depth; }
int MatrixSide::pieces() const {
  const int all = width() * lines() / lanes_, threads = f_.kernel.loaders();
  STRIDEC_CHECK((all % threads == 0 || threads % all == 0) &&
                    (threads % (width() / lanes_) == 0 || (width() / lanes_) % threads == 0),
                f_.kernel.name);
  return std::max(1, all / threads);
}

bool MatrixSide::is_scarce() const { return width() * lines() / lanes_ < f_.kernel.loaders(); }

int MatrixSide::tile_bytes() const {
  if (is_threads()) return f_.kernel.depth * pitch() * f_.element_bytes();
  return width() * lines() * f_.element_bytes();
}

// TMA writes boxes without gaps. Columns that threads store need gaps against bank conflicts.
int MatrixSide::pitch() const { return extent_ + (map_ && !is_staged() ? 0 : kernels::kSimtPadding); }

int MatrixSide::staged_bytes() const {
  return is_threads() && vector() && is_turned() ? width() * lines() * f_.element_bytes() : 0;
}

std::string MatrixSide::place(const std::string& line, const std::string& at) const {
  const int bytes = f_.element_bytes();
  if (is_threads()) return cat("((", line, ") * ", pitch(), " + (", at, ")) * ", bytes);
  // Neighbouring threads read neighbouring pieces of a line along the rows.
  if (f_.kernel.is_sliced() && !along_depth())
    return cat("((", line, ") * ", extent_, " + (", at, ")) * ", bytes);
  if (f_.kernel.is_wgmma() && !along_depth())  // panels of 64 rows
    return cat("(", at, ") / 64 * ", f_.kernel.depth * 128, " + swizzled<128>(", line, ", (", at,
               ") % 64 * 2)");
  const int width = along_depth() ? f_.kernel.depth : extent_;
  return cat("swizzled<", width * bytes, ">(", line, ", (", at, ") * ", bytes, ")");
}

// The place of a piece that a thread copies from memory.
std::string MatrixSide::place_taken(const std::string& line, const std::string& at) const {
  if (is_staged())
    return cat("swizzled<", width() * f_.element_bytes(), ">(", line, ", (", at, ") * ", f_.element_bytes(),
               ")");
  return is_turned() ? place(at, line) : place(line, at);
}

void MatrixSide::print_line() {
  const int per_line = width() / lanes_, threads = f_.kernel.loaders();
  STRIDEC_CHECK(threads % per_line == 0, f_.kernel.name);
  // For pieces that are transposed, a warp copies two from each of 16 lines: these are in one memory sector,
  // and their elements are in different banks.
  if (is_staged())
    return f_.text.line(cat("const int ", name_, "_at = (thread / 16 % 2 + thread / ", 2 * threads / per_line,
                            " * 2) * ", lanes_, ", ", name_, "_line = thread % 16 + thread / 32 % ",
                            threads / per_line / 16, " * 16;"));
  f_.text.line(cat("const int ", name_, "_at = thread % ", per_line, " * ", lanes_, ", ", name_,
                   "_line = thread / ", per_line, ";"));
}

// A thread's pieces have the same position in their lines, `stride` lines apart.
void MatrixSide::print_start() {
  KernelText& text = f_.text;
  const int per_line = width() / lanes_;
  print_line();
  const int count = along_depth_ ? pieces() : 1;
  const std::string type = f_.index_type(), i = count > 1 ? "[i]" : "";
  auto array = [&](const std::string& of, const std::string& name) {
    text.line(cat(of, " ", name_, "_", name, count > 1 ? cat("[", count, "]") : "", ";"));
  };
  array("bool", "inside");
  const std::string pointer = load_ ? cat("const ", text.storage_type(element_), "*") : "";
  if (load_) array(step_ ? pointer : "int64_t", step_ ? "from" : "base");
  for (size_t d = 0; d < dims_.size(); ++d) array(type, cat(d));
  if (count > 1) {
    text.line("#pragma unroll");
    text.open(cat("for (int i = 0; i < ", count, "; ++i)"));
  } else {
    text.open("");
  }
  const std::string extent = text.size(extent_of(dims_)),
                    row = along_depth_ ? cat(name_, "_line",
                                             count > 1 ? cat(" + i * ", f_.kernel.loaders() / per_line) : "")
                                       : name_ + "_at";
  text.line(cat("const ", type, " number = ", first_, " + (", type, ")(", row, ");"));
  text.line(cat(name_, "_inside", i, " = number < (", type, ")", extent, ";"));
  Body body = f_.body();
  f_.print_indices(dims_, cat("(", name_, "_inside", i, " ? number : 0)"), body);
  for (size_t d = 0; d < dims_.size(); ++d)
    text.line(cat(name_, "_", d, i, " = ", body.index(dims_[d].var), ";"));
  if (step_)
    text.line(cat(name_, "_from", i, " = ", text.pointer(load_->access.buffer), " + (",
                  body.index(form_.rest), " + (", text.size(*step_), ") * (begin * ", f_.kernel.depth, " + ",
                  name_, along_depth_ ? "_at" : "_line", "));"));
  else if (load_)
    text.line(cat(name_, "_base", i, " = ", body.index(form_.rest), ";"));
  text.close();
  if (!load_ || (!vector() && f_.element_bytes() < 4))
    text.line(cat(text.storage_type(element_), " ", name_, "_held[", pieces(), "];"));
}

// The mask of the load, in 32 bits if all its values fit, since index arithmetic is most of a copy's cost.
std::string MatrixSide::mask_text(Body& body, const std::string& i) {
  bool fits = f_.narrow;
  sym::for_each_node(load_->access.mask, [&](Expr node) {
    const sym::Interval range = f_.facts.bounds(node);
    if (range.lo < INT32_MIN / 2 || range.hi > INT32_MAX / 2) fits = false;
    if (node.is_var() && !sym::is_index(node)) fits = false;
  });
  if (!fits) return body.index(load_->access.mask);
  Body narrow = body;
  for (size_t d = 0; d < dims_.size(); ++d) narrow.set_index(dims_[d].var, cat("(int)", name_, "_", d, i));
  for (const loop::Dim& dim : f_.depth) narrow.set_index(dim.var, "(int)" + body.index(dim.var).substr(9));
  return narrow.index(load_->access.mask);
}

void MatrixSide::print_issue() {
  KernelText& text = f_.text;
  const int per_line = width() / lanes_, stride = f_.kernel.loaders() / per_line,
            bytes = lanes_ * f_.element_bytes();
  const bool held = !load_ || bytes < 4;
  const std::string type = f_.index_type(), extent = text.size(extent_of(f_.depth)),
                    i = along_depth_ && pieces() > 1 ? "[i]" : "";
  const bool whole = f_.facts.known_divisor(extent_of(f_.depth)) % f_.kernel.depth == 0;
  const bool masked = load_ && !load_->access.mask.is_const(1);
  Body body = f_.body();
  for (size_t d = 0; d < dims_.size(); ++d) body.set_index(dims_[d].var, cat("(int64_t)", name_, "_", d, i));
  auto print_depth = [&](const std::string& at) {
    text.line(
        cat("const ", type, " deep = (", type, ")next * ", f_.kernel.depth, " + (", type, ")(", at, ");"));
    if (!whole) text.line(cat("const bool within = deep < (", type, ")", extent, ";"));
    if (!step_ || masked) f_.print_indices(f_.depth, "deep", body);
    if (load_ && !step_) text.line(cat("const int64_t move = ", body.index(deeper_), ";"));
  };
  text.open("");
  if (along_depth_) print_depth(name_ + "_at");
  text.line("#pragma unroll");
  text.open(cat("for (int i = 0; i < ", pieces(), "; ++i)"));
  const std::string line = cat(name_, "_line + i * ", stride);
  if (!along_depth_) print_depth(line);
  std::string inside = cat(whole ? "" : "within && ", name_, "_inside", i);
  if (load_) {
    if (masked) inside += cat(" && (", mask_text(body, i), ")");
    text.line(cat("const bool live = ", inside, ";"));
    const std::string element =
        !step_         ? cat(text.pointer(load_->access.buffer), " + (", name_, "_base", i, " + move)")
        : along_depth_ ? cat(name_, "_from", i)
                       : cat(name_, "_from + (", text.size(*step_), ") * (i * ", stride, ")");
    const std::string to = cat("fill_tile + ", place_taken(line, name_ + "_at"));
    const std::string some = is_scarce() ? cat("if (", line, " < ", lines(), ") ") : "";
    if (!held && ragged_) {
      text.line(cat("const ", type, " left = ",
                    along_depth_ ? cat(extent, " - deep")
                                 : cat(text.size(extent_of(dims_)), " - ", first_, " - ", name_, "_at"),
                    ";"));
      text.line(cat(some, "copy_some<", bytes, ">(", to, ", ", element, ", live ? left < ", lanes_,
                    " ? (unsigned)left * ", f_.element_bytes(), " : ", bytes, " : 0);"));
    } else if (!held) {
      text.line(cat(some, "copy_async<", bytes, ">(", to, ", ", element, ", live);"));
    } else {
      text.line(cat(name_, "_held[i] = 0;"));
      text.line(cat("if (live) ", name_, "_held[i] = *(", element, ");"));
    }
  } else {
    text.line(cat(name_, "_held[i] = 0;"));
    text.open(cat("if (", inside, ")"));
    for (const loop::Stmt* stmt : factor_.slice) body.print(*stmt);
    std::string value = body.value(factor_.value).text;
    if (is_storage_float(element_)) {
      text.use(cat("to.", stridec::name(element_)));
      value = cat("sd_to_", stridec::name(element_), "(", value, ")");
    }
    text.line(cat(name_, "_held[i] = (", text.storage_type(element_), ")(", value, ");"));
    text.close();
  }
  text.close();
  if (step_) {
    const std::string on = cat("(", text.size(*step_), ") * ", f_.kernel.depth, "l");
    if (i.empty())
      text.line(cat(name_, "_from += ", on, ";"));
    else
      text.line(cat("for (int i = 0; i < ", pieces(), "; ++i) ", name_, "_from[i] += ", on, ";"));
  }
  text.close();
}

void MatrixSide::print_deposit() {
  if (load_ && lanes_ * f_.element_bytes() >= 4) return;
  const int stride = f_.kernel.loaders() / (width() / lanes_);
  f_.text.line("#pragma unroll");
  f_.text.line(
      cat("for (int i = 0; i < ", pieces(), "; ++i) ",
          is_scarce() ? cat("if (", name_, "_line < ", lines(), ") ") : "", "store_shared(fill_tile + ",
          place_taken(cat(name_, "_line + i * ", stride), name_ + "_at"), ", ", name_, "_held[i]);"));
}

void MatrixSide::print_turn() {
  if (!is_staged()) return;
  KernelText& text = f_.text;
  const int stride = f_.kernel.loaders() / (width() / lanes_);
  text.line("#pragma unroll");
  text.open(cat("for (int i = 0; i < ", pieces(), "; ++i)"));
  text.line(cat("alignas(16) ", text.value_type(element_), " piece[", lanes_, "];"));
  const std::string line = cat(name_, "_line + i * ", stride);
  text.line(cat("move_wide<16>(piece, shared + staged_tile + ", place_taken(line, name_ + "_at"), ");"));
  text.line("#pragma unroll");
  text.line(cat("for (int j = 0; j < ", lanes_, "; ++j) *(", text.value_type(element_),
                "*)(shared + turned_tile + ", place(name_ + "_at + j", line), ") = piece[j];"));
  text.close();
}

}  // namespace stridec::codegen::cuda
