#include "compiler/codegen/cuda/matrix/matrix_epilogue.h"

#include <algorithm>
#include <set>

#include "compiler/base/text.h"
#include "compiler/kernels/group_results.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cuda {

using sym::Expr;

namespace {

constexpr int kLanes = 8;
constexpr int kPieceWords = 24;       // registers for the sums and results of a piece
constexpr const char* kNow = "_now";  // ends the names of the set in use

}  // namespace

MatrixEpilogue::MatrixEpilogue(MatrixFrame& frame, bool vectors)
    : f_(frame), rows_(frame.results(frame.rows)), columns_(frame.results(frame.columns)) {
  // The statements around the sum that the stores depend on.
  std::set<loop::ValueId> wanted;
  for (size_t i = f_.nest.body.size(); i-- > 0;) {
    if (i == f_.contraction.at) continue;
    const loop::Stmt& stmt = f_.nest.body[i];
    bool keep = std::holds_alternative<loop::Store>(stmt.node), given = false;
    loop::for_each_result(stmt, [&](loop::ValueId id) {
      keep = keep || wanted.contains(id);
      given = f_.pair && id == f_.pair->second;
    });
    if (!keep || given) continue;
    loop::for_each_use(stmt, [&](loop::ValueId id) { wanted.insert(id); });
    statements_.insert(statements_.begin(), &stmt);
  }
  for (const loop::Stmt* stmt : statements_) {
    const auto* store = std::get_if<loop::Store>(&stmt->node);
    if (!store || f_.rows.empty()) continue;
    const auto linear =
        sym::linear_in(kernels::offset_of(f_.program, store->access, f_.facts), f_.rows.back().var);
    if (linear && linear->coefficient.is_const(1)) along_columns_ = false;
  }
  if (!vectors || f_.columns.empty() || f_.kernel.columns % kLanes) return;
  const Expr extent = columns_.back().extent;
  if (const auto known = sym::as_const(extent); known && *known % kLanes) return;
  for (const loop::Stmt* stmt : statements_) {
    const loop::Access* access = loop::access_of(*stmt);
    if (!access || has_conflict(*access)) continue;
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    const bool zeros = load && load->fill == loop::int_scalar(load->fill.dtype, 0);
    if (!access->mask.is_const(1) && !zeros) continue;
    const int bytes = byte_size(f_.program[access->buffer].dtype);
    const auto condition = contiguous(f_, *access, columns_.back(), std::min(kLanes, 16 / bytes));
    if (!condition) continue;
    wide_.push_back({access, std::holds_alternative<loop::Store>(stmt->node), f_.text.fresh("w")});
    condition_ = sym::logical_and(condition_, *condition);
  }
  if (wide_.empty()) return;
  lanes_ = kLanes;
  if (f_.facts.known_divisor(extent) % kLanes)
    condition_ = sym::logical_and(condition_, sym::eq(sym::mod(extent, kLanes), 0));
}

// Whether loads of the buffer may see other stores of the epilogue than those of their own point. Sums that
// are added in place load and store the same element.
bool MatrixEpilogue::has_conflict(const loop::Access& access) const {
  bool loaded = false, stored = false, differ = false;
  for (const loop::Stmt* stmt : statements_) {
    const loop::Access* other = loop::access_of(*stmt);
    if (!other || other->buffer != access.buffer) continue;
    (std::holds_alternative<loop::Store>(stmt->node) ? stored : loaded) = true;
    differ = differ || other->index != access.index;
  }
  return loaded && stored && differ;
}

std::vector<loop::BufferId> MatrixEpilogue::aligned() const {
  std::vector<loop::BufferId> out;
  for (const Wide& wide : wide_)
    if (std::find(out.begin(), out.end(), wide.access->buffer) == out.end())
      out.push_back(wide.access->buffer);
  return out;
}

int MatrixEpilogue::Lines::step() const { return stride * together; }

// Nothing: single pieces in any order.
std::optional<MatrixEpilogue::Lines> MatrixEpilogue::lines(const Part& part) const {
  const int pieces = result_columns(part) / lanes_, rows = result_rows(part);
  if ((lanes_ == 1 && !along_columns_) || part.threads % pieces != 0) return std::nullopt;
  Lines out{.pieces = pieces, .stride = part.threads * sharers(part) / pieces};
  out.together = std::max(1, std::min(part.together, rows / out.stride));
  while (rows / out.stride % out.together) --out.together;
  return out;
}

std::string MatrixEpilogue::row_number(const Part& part, const std::string& at) const {
  const std::string type = f_.index_type();
  if (f_.pairs(f_.rows))
    return cat("(first_row + (", type, ")(", part.first_row, ")) / 2 + (", type, ")(", at, ")");
  return cat("first_row + (", type, ")(", part.first_row, " + ", at, ")");
}

std::string MatrixEpilogue::column_number(const Part& part, const std::string& at) const {
  const std::string type = f_.index_type();
  if (f_.pairs(f_.columns))
    return cat("(first_column + (", type, ")(", part.first_column, ")) / 2 + (", type, ")(", at, ")");
  return cat("first_column + (", type, ")(", part.first_column, " + ", at, ")");
}

std::string MatrixEpilogue::sum_at(const Part& part, bool second) const {
  constexpr int64_t kBlock = kernels::kPairBlock;
  const auto paired = [&](const char* name, bool pairs) {
    return pairs ? cat("(", name, " / ", kBlock, " * ", 2 * kBlock, " + ", name, " % ", kBlock,
                       second ? cat(" + ", kBlock) : "", ")")
                 : std::string(name);
  };
  return cat("sums + ", paired("line", f_.pairs(f_.rows)), " * ", part.columns + kernels::kSumPadding, " + ",
             paired("at", f_.pairs(f_.columns)));
}

// Number of blocks that process a part of the lines each.
int MatrixEpilogue::sharers(const Part& part) const { return part.given ? 1 : f_.sharers(); }

std::string MatrixEpilogue::thread_of(const Part& part) const {
  return sharers(part) > 1 ? cat("(", part.thread, " + rank * ", part.threads, ")")
                           : cat("(", part.thread, ")");
}

std::string MatrixEpilogue::first_line(const Part& part, const Lines& l) const {
  return cat(thread_of(part), " / ", l.pieces);
}

void MatrixEpilogue::open_columns(const Part& part, const Lines& l, Body& body) {
  KernelText& text = f_.text;
  const std::string type = f_.index_type();
  text.open("");
  text.line(cat("const int at = (", part.thread, ") % ", l.pieces, " * ", lanes_, ";"));
  text.line(cat("const ", type, " column = ", column_number(part, "at"), ";"));
  text.open(cat("if (column < (", type, ")", text.size(extent_of(columns_)), ")"));
  f_.print_indices(columns_, "column", body);
}

void MatrixEpilogue::open_line(const Part& part, const Lines& l, const std::string& first, Body& body) {
  KernelText& text = f_.text;
  const std::string type = f_.index_type();
  text.line("#pragma unroll");
  text.open(cat("for (int u = 0; u < ", l.together, "; ++u)"));
  text.line(cat("const int line = ", first, " + u * ", l.stride, ";"));
  text.line(cat("const ", type, " row = ", row_number(part, "line"), ";"));
  text.line(cat("const bool live = line < ", result_rows(part), " && row < (", type, ")",
                text.size(extent_of(rows_)), ";"));
  f_.print_indices(rows_, "(live ? row : 0)", body);
}

void MatrixEpilogue::print_loads(const Part& part) {
  const auto l = lines(part);
  if (!l || !has_loads()) return;
  declare_registers(*l, "");
  load_lines(part, *l, first_line(part, *l));
}

void MatrixEpilogue::load_lines(const Part& part, const Lines& l, const std::string& first) {
  KernelText& text = f_.text;
  Body body = f_.body();
  open_columns(part, l, body);
  for (const Wide& wide : wide_)
    if (!wide.store && !by_row(wide)) move(wide, body, wide.name, false);
  if (has_rows()) {
    open_line(part, l, first, body);
    for (const Wide& wide : wide_) {
      if (wide.store || !by_row(wide)) continue;
      text.open("if (live)");
      move(wide, body, cat(wide.name, "[u]"), false);
      text.close();
    }
    text.close();
  }
  text.close();
  text.close();
}

void MatrixEpilogue::print(const Part& part, const std::optional<Part>& after, const std::string& more) {
  KernelText& text = f_.text;
  const auto l = lines(part);
  if (!l) return print_pieces(part);
  // A thread keeps its columns and processes several lines at a time. While it does so, and while it waits
  // for other threads' sums, the loads of the next lines are in flight, if there are registers for two sets
  // of operands; otherwise they are issued after these lines.
  const bool loads = has_loads(), early = loads && 2 * load_words(*l) + kPieceWords <= part.free;
  const int times = (result_rows(part) + l->step() - 1) / l->step();
  const auto load_next = [&] {
    if (!loads) return;
    if (times > 1) {
      text.open(cat("if (time < ", times - 1, ")"));
      load_lines(part, *l, cat("first + ", l->step()));
      text.close();
    }
    if (!after) return;
    text.open(cat("if (", times > 1 ? cat("time == ", times - 1, " && ") : "", "(", more, "))"));
    load_lines(*after, *l, first_line(*after, *l));
    text.close();
  };
  text.line("#pragma unroll 1");
  text.open(cat("for (int first = ", first_line(part, *l), ", time = 0; time < ", times,
                "; ++time, first += ", l->step(), ")"));
  if (early) {
    declare_registers(*l, kNow);
    for (const Wide& wide : wide_) {
      if (wide.store) continue;
      const std::string at = by_row(wide) ? "[u]" : "";
      if (by_row(wide)) text.line("#pragma unroll");
      text.line(cat(by_row(wide) ? cat("for (int u = 0; u < ", l->together, "; ++u) ") : "", "move_wide<",
                    lanes_ * byte_size(f_.program[wide.access->buffer].dtype), ">(", wide.name, kNow, at,
                    ", ", wide.name, at, ");"));
    }
    load_next();
  }
  Body body = f_.body();
  open_columns(part, *l, body);
  open_line(part, *l, "first", body);
  text.open("if (live)");
  declare_wide(body, [&](const Wide& wide) { return wide.store; });
  print_piece(part, body, "[u]", early ? kNow : "");
  text.close();
  text.close();
  text.close();
  text.close();
  if (!early) load_next();
  text.close();
}

// Processes single pieces, along the side on which stores are contiguous.
void MatrixEpilogue::print_pieces(const Part& part) {
  KernelText& text = f_.text;
  const int pieces = result_columns(part) / lanes_, rows = result_rows(part),
            all = part.threads * sharers(part);
  const std::string type = f_.index_type();
  text.line("#pragma unroll 1");
  text.open(cat("for (int piece = ", thread_of(part), "; piece < ", rows * pieces, "; piece += ", all, ")"));
  if (lanes_ == 1 && !along_columns_)
    text.line(cat("const int line = piece % ", rows, ", at = piece / ", rows, ";"));
  else
    text.line(cat("const int line = piece / ", pieces, ", at = piece % ", pieces, " * ", lanes_, ";"));
  text.line(cat("const ", type, " row = ", row_number(part, "line"), ", column = ", column_number(part, "at"),
                ";"));
  text.line(cat("if (row >= (", type, ")", text.size(extent_of(rows_)), " || column >= (", type, ")",
                text.size(extent_of(columns_)), ") continue;"));
  Body body = f_.body();
  f_.print_indices(columns_, "column", body);
  f_.print_indices(rows_, "row", body);
  declare_wide(body, [](const Wide&) { return true; });
  print_piece(part, body, "", "");
  text.close();
}

bool MatrixEpilogue::has_loads() const {
  return std::any_of(wide_.begin(), wide_.end(), [](const Wide& wide) { return !wide.store; });
}

bool MatrixEpilogue::has_rows() const {
  return std::any_of(wide_.begin(), wide_.end(),
                     [&](const Wide& wide) { return !wide.store && by_row(wide); });
}

bool MatrixEpilogue::has_prefetch() const {
  return std::any_of(wide_.begin(), wide_.end(), [&](const Wide& wide) {
    return !wide.store && by_row(wide) && wide.access->mask.is_const(1);
  });
}

void MatrixEpilogue::print_prefetch(const std::string& thread) {
  constexpr int kLine = 128;  // bytes per L2 line
  KernelText& text = f_.text;
  const std::string type = f_.index_type();
  const Part tile{
      .rows = f_.kernel.rows, .columns = f_.kernel.columns, .first_row = "0", .first_column = "0"};
  text.line(cat("const ", type, " row = ", row_number(tile, thread), ";"));
  text.open(cat("if (", thread, " < ", result_rows(tile), " && row < (", type, ")",
                text.size(extent_of(rows_)), ")"));
  Body body = f_.body();
  f_.print_indices(rows_, "row", body);
  for (const Wide& wide : wide_) {
    if (wide.store || !by_row(wide) || !wide.access->mask.is_const(1)) continue;
    const int all = result_columns(tile),
              columns = std::min(all, kLine / byte_size(f_.program[wide.access->buffer].dtype));
    text.line("#pragma unroll");
    text.open(cat("for (int at = 0; at < ", all, "; at += ", columns, ")"));
    text.line(cat("const ", type, " column = ", column_number(tile, "at"), ";"));
    text.open(cat("if (column < (", type, ")", text.size(extent_of(columns_)), ")"));
    f_.print_indices(columns_, "column", body);
    text.line(cat("prefetch(", text.pointer(wide.access->buffer), " + (", body.offset(*wide.access), "));"));
    text.close();
    text.close();
  }
  text.close();
}

bool MatrixEpilogue::by_row(const Wide& wide) const {
  return wide.store || depends_on_any(kernels::offset_of(f_.program, *wide.access, f_.facts), f_.rows) ||
         depends_on_any(wide.access->mask, f_.rows);
}

// Declares registers for all loads, whose names end with `end`; loads per row have a copy for each line that
// is processed together.
void MatrixEpilogue::declare_registers(const Lines& l, const std::string& end) {
  for (const Wide& wide : wide_) {
    if (wide.store) continue;
    const std::string storage = f_.text.storage_type(f_.program[wide.access->buffer].dtype);
    f_.text.line(cat("alignas(16) ", storage, " ", wide.name, end,
                     by_row(wide) ? cat("[", l.together, "]") : "", "[", lanes_, "];"));
  }
}

// The number of 32-bit registers that declare_registers() declares.
int MatrixEpilogue::load_words(const Lines& l) const {
  int bytes = 0;
  for (const Wide& wide : wide_)
    if (!wide.store)
      bytes += lanes_ * byte_size(f_.program[wide.access->buffer].dtype) * (by_row(wide) ? l.together : 1);
  return bytes / 4;
}

// Moves the access to or from memory; masked elements are loaded as zeros.
void MatrixEpilogue::move(const Wide& wide, Body body, const std::string& registers, bool store, int lanes) {
  KernelText& text = f_.text;
  const DType dtype = f_.program[wide.access->buffer].dtype;
  const std::string memory = cat("(", text.storage_type(dtype), "*)", text.pointer(wide.access->buffer),
                                 " + (", body.offset(*wide.access), ")");
  if (!lanes) lanes = lanes_;
  const Expr mask = wide.access->mask;
  const bool masked = !mask.is_const(1);
  if (masked) text.line(cat("if (", body.index(mask), ")"));
  text.line(cat(masked ? "  " : "", "move_wide<", lanes * byte_size(dtype), ">(", store ? memory : registers,
                ", ", store ? registers : memory, ");"));
  if (masked) text.line("else");
  if (masked) text.line(cat("  for (int lane = 0; lane < ", lanes, "; ++lane) ", registers, "[lane] = 0;"));
}

// Declares registers of the accesses and issues the loads.
void MatrixEpilogue::declare_wide(Body& body, const std::function<bool(const Wide&)>& wanted) {
  for (const Wide& wide : wide_) {
    if (!wanted(wide)) continue;
    const std::string storage = f_.text.storage_type(f_.program[wide.access->buffer].dtype);
    f_.text.line(cat("alignas(16) ", storage, " ", wide.name, "[", lanes_, "];"));
    if (!wide.store) move(wide, body, wide.name, false);
  }
}

// `which`: index of the line among those processed together; `set` ends the names of the loads' registers.
void MatrixEpilogue::print_piece(const Part& part, const Body& piece, const std::string& which,
                                 const std::string& set) {
  Body body = piece;
  KernelText& text = f_.text;
  const std::string sum_type = text.value_type(f_.contraction.dtype);
  const int split = sharers(part);
  const auto print_sums = [&](const char* name, bool second) {
    const std::string at = sum_at(part, second);
    text.line(cat("alignas(16) ", sum_type, " ", name, "[", lanes_, "];"));
    if (part.given)
      text.line(cat("sum_given<", part.given, ", ", lanes_, ", ",
                    part.rows * (part.columns + kernels::kSumPadding), ">(", name, ", ", at, ");"));
    else if (split > 1)
      text.line(cat("sum_peers<", split, ", ", lanes_, ">(", name, ", ", at, ");"));
    else if (lanes_ > 1)
      text.line(cat("move_wide<", lanes_ * byte_size(f_.contraction.dtype), ">(", name, ", ", at, ");"));
    else
      text.line(cat(name, "[0] = *(", at, ");"));
  };
  print_sums("totals", false);
  if (f_.pair) print_sums("seconds", true);
  if (lanes_ > 1) {
    text.line("#pragma unroll");
    text.open(cat("for (int lane = 0; lane < ", lanes_, "; ++lane)"));
    // Within a piece only the last of the flattened column dims changes.
    body.set_index(columns_.back().var, cat("(", body.index(columns_.back().var), " + lane)"));
    body.place = [&](const loop::Access& access) -> std::string {
      for (const Wide& wide : wide_)
        if (wide.access == &access)
          return cat(wide.name, wide.store ? "" : set, !wide.store && by_row(wide) ? which : "", "[lane]");
      return {};
    };
  }
  const char* const lane = lanes_ > 1 ? "[lane]" : "[0]";
  print_statements(body, cat("totals", lane), cat("seconds", lane));
  if (lanes_ == 1) return;
  text.close();
  for (const Wide& wide : wide_)
    if (wide.store) move(wide, piece, wide.name, true);
}

// `sum` and `second` (of a dual GEMM) are C expressions.
void MatrixEpilogue::print_statements(Body& body, const std::string& sum, const std::string& second) {
  KernelText& text = f_.text;
  const std::string type = text.value_type(f_.contraction.dtype);
  const auto declare = [&](const char* name, const std::string& value, loop::ValueId id) {
    text.line(cat("const ", type, " ", name, " = ", value, ";"));
    body.set_value(id, {.text = name, .dtype = f_.contraction.dtype, .width = 1});
  };
  declare("sum", sum, f_.contraction.reduce->results[0]);
  if (f_.pair) declare("second", second, f_.pair->second);
  for (const loop::Stmt* stmt : statements_) body.print(*stmt);
}

// ---- results in registers

const MatrixEpilogue::Wide& MatrixEpilogue::stored() const {
  return *std::find_if(wide_.begin(), wide_.end(), [](const Wide& wide) { return wide.store; });
}

// Results take at most half as much shared memory as sums.
bool MatrixEpilogue::in_registers() const {
  if (lanes_ == 1 || f_.pairs(f_.rows) || !kernels::results_in_registers(f_.program, statements_, f_.rows))
    return false;
  return std::all_of(statements_.begin(), statements_.end(), [&](const loop::Stmt* stmt) {
    const loop::Access* access = loop::access_of(*stmt);
    if (!access) return true;
    const bool wide =
        std::any_of(wide_.begin(), wide_.end(), [&](const Wide& w) { return w.access == access; });
    const bool by_column = std::any_of(access->index.begin(), access->index.end(),
                                       [&](Expr index) { return loop::depends_on_any(index, f_.columns); }) ||
                           loop::depends_on_any(access->mask, f_.columns);
    return wide || (!std::holds_alternative<loop::Store>(stmt->node) && !by_column);
  });
}

int MatrixEpilogue::cost() const { return kernels::cost_of(statements_); }

int MatrixEpilogue::line_bytes(const Part& part) const {
  return result_columns(part) * byte_size(f_.program[stored().access->buffer].dtype);
}

void MatrixEpilogue::open_block(const Part& part, Body& body) {
  KernelText& text = f_.text;
  const std::string type = f_.index_type();
  text.line("#pragma unroll");
  text.open(cat("for (int j = 0; j < ", result_columns(part) / 8, "; ++j)"));
  text.line(cat("const ", type, " column = ", column_number(part, "j * 8 + lane_id % 4 * 2"), ";"));
  f_.print_indices(columns_, "column", body);
}

void MatrixEpilogue::print_fragment_loads(const Part& part, bool declare) {
  if (!has_loads()) return;
  KernelText& text = f_.text;
  for (const Wide& wide : wide_)
    if (!wide.store && declare)
      text.line(cat("alignas(8) ", text.storage_type(f_.program[wide.access->buffer].dtype), " ", wide.name,
                    "[", result_columns(part) / 8, "][2];"));
  Body body = f_.body();
  open_block(part, body);
  text.open(cat("if (column < (", f_.index_type(), ")", text.size(extent_of(columns_)), ")"));
  for (const Wide& wide : wide_)
    if (!wide.store) move(wide, body, cat(wide.name, "[j]"), false, 2);
  text.close();
  text.close();
}

// Registers 4j.. of a half hold columns 8j.. of two rows.
void MatrixEpilogue::print_fragments(const Part& part, const std::string& lines) {
  KernelText& text = f_.text;
  Body body = f_.body();
  open_block(part, body);
  const Wide& store = stored();
  const int bytes = byte_size(f_.program[store.access->buffer].dtype), block = f_.pair ? 8 : 4;
  text.line("#pragma unroll");
  text.open("for (int h = 0; h < 2; ++h)");
  text.line(
      cat("alignas(8) ", text.storage_type(f_.program[store.access->buffer].dtype), " ", store.name, "[2];"));
  text.line("#pragma unroll");
  text.open("for (int lane = 0; lane < 2; ++lane)");
  body.set_index(columns_.back().var, cat("(", body.index(columns_.back().var), " + lane)"));
  body.place = [&](const loop::Access& access) -> std::string {
    for (const Wide& wide : wide_)
      if (wide.access == &access) return cat(wide.name, wide.store ? "" : "[j]", "[lane]");
    return {};
  };
  const std::string at = cat("v[j * ", block, " + 2 * h + lane");
  print_statements(body, at + "]", at + " + 4]");
  text.close();
  text.line(cat("move_wide<", 2 * bytes, ">(", lines, " + swizzled<", line_bytes(part),
                ">(thread / 32 % 4 * 16 + lane_id / 4 + h * 8, (j * 8 + lane_id % 4 * 2) * ", bytes, "), ",
                store.name, ");"));
  text.close();
  text.close();
}

void MatrixEpilogue::print_stores(const Part& part, const std::string& lines) {
  KernelText& text = f_.text;
  const int pieces = result_columns(part) / lanes_, stride = part.threads / pieces;
  const Lines l{.pieces = pieces, .stride = stride, .together = std::max(1, part.rows / stride)};
  Body body = f_.body();
  open_columns(part, l, body);
  open_line(part, l, first_line(part, l), body);
  text.open("if (live)");
  const int bytes = byte_size(f_.program[stored().access->buffer].dtype);
  move(stored(), body, cat(lines, " + swizzled<", line_bytes(part), ">(line, at * ", bytes, ")"), true);
  text.close();
  text.close();
  text.close();
  text.close();
}

}  // namespace stridec::codegen::cuda
