#include "compiler/codegen/cuda/matrix/matrix_rows.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kVector = kernels::kPrologueVector;

}  // namespace

MatrixRows::MatrixRows(MatrixFrame& frame, const MatrixSide& side, bool vectors)
    : f_(frame),
      side_(side),
      vectors_(vectors),
      depth_(f_.prologue->made().dims[0].extent.value()),
      vectors_of_thread_(kernels::prologue_vectors(f_.kernel, depth_)) {
  for (const loop::Stmt& stmt : f_.prologue->rows.body)
    if (const loop::Block* block = loop::body_of(stmt))
      find(*block, loop::dims_of(stmt)[0], std::holds_alternative<loop::For>(stmt.node));
}

sym::Expr MatrixRows::along() { return sym::var("%along"); }

loop::Access MatrixRows::by_place(const loop::Access& access, sym::Expr var) {
  loop::Access out = access;
  loop::substitute(out, {{var, along()}});
  return out;
}

bool MatrixRows::is_wide(const loop::Access& access) {
  const loop::Buffer& buffer = f_.program[access.buffer];
  if (!vectors_) return false;
  const loop::Dim dim{along(), depth_};
  Dims dims = f_.prologue->rows.dims;
  dims.push_back(dim);
  sym::Facts facts = f_.facts;
  facts.set_index(dim.var, dim.extent);
  const int64_t lanes = std::clamp(16 / byte_size(buffer.dtype), 1, kVector);
  const auto condition = kernels::contiguous(f_.program, dims, access, dim, lanes, false, facts);
  if (!condition) return false;
  // Sizes for which some rows cannot be vectors use the choice without conditions.
  condition_ = sym::logical_and(condition_, *condition);
  if (std::find(aligned_.begin(), aligned_.end(), access.buffer) == aligned_.end())
    aligned_.push_back(access.buffer);
  return true;
}

const MatrixRows::Held* MatrixRows::held_of(const loop::Access& access, sym::Expr var) const {
  const loop::Access at = by_place(access, var);
  for (const Held& held : held_)
    if (held.access.buffer == at.buffer && held.access.index == at.index) return &held;
  return nullptr;
}

void MatrixRows::find(const loop::Block& block, const loop::Dim& dim, bool made) {
  for (const loop::Stmt& stmt : block) {
    const loop::Access* access = loop::access_of(stmt);
    if (!access || !access->mask.is_const(1)) continue;
    const loop::Access at = by_place(*access, dim.var);
    if (std::holds_alternative<loop::Store>(stmt.node)) {
      if (!(access->buffer == f_.prologue->row)) is_wide(at);
      continue;
    }
    const bool moves = std::any_of(access->index.begin(), access->index.end(),
                                   [&](sym::Expr e) { return sym::depends_on(e, dim.var); });
    const bool known = std::any_of(held_.begin(), held_.end(), [&](const Held& held) {
      return held.access.buffer == at.buffer && held.access.index == at.index;
    });
    if (moves && !known) held_.push_back({at, f_.text.fresh("held"), is_wide(at), made});
  }
}

void MatrixRows::open_vectors(bool made) {
  KernelText& text = f_.text;
  text.line("#pragma unroll");
  text.open(cat("for (int i = 0; i < ", vectors_of_thread_, "; ++i)"));
  text.line(cat("const int at = (member + i * team) * ", kVector, ";"));
  const int step = f_.kernel.depth;
  text.open(made ? cat("if (has_row && at >= (int)begin * ", step, " && at < (int)end * ", step, ")")
                 : cat("if (has_row && at < ", depth_, ")"));
}

void MatrixRows::print_loads(bool weights) {
  KernelText& text = f_.text;
  for (const Held& held : held_) {
    if (held.weight(f_.program) != weights) continue;
    const DType dtype = f_.program[held.access.buffer].dtype;
    text.line(cat("alignas(16) ", text.storage_type(dtype), " ", held.name, "[", vectors_of_thread_, "][",
                  kVector, "];"));
    open_vectors(held.made);
    Body body(text, f_.prologue->rows);
    body.add_dim({along(), depth_});
    f_.print_indices(f_.prologue->rows.dims, "of_team", body);
    if (held.wide) {
      body.set_index(along(), "(int64_t)at");
      text.line(cat("move_wide<", kVector * byte_size(dtype), ">(", held.name, "[i], ",
                    text.pointer(held.access.buffer), " + ", body.offset(held.access), ");"));
    } else {
      body.set_index(along(), "(int64_t)(at + j)");
      text.line("#pragma unroll");
      text.line(cat("for (int j = 0; j < ", kVector, "; ++j) ", held.name, "[i][j] = *(",
                    text.pointer(held.access.buffer), " + ", body.offset(held.access), ");"));
    }
    text.close();
    text.close();
  }
}

// A group has as many threads as there are per row, a power of two.
void MatrixRows::print_weights() {
  KernelText& text = f_.text;
  const int threads = f_.kernel.threads();
  text.line(cat("const int row_count = (int)", text.size(extent_of(f_.prologue->rows.dims)), ";"));
  text.line(cat("int team = ", threads, ";"));
  text.line(cat("while (team * row_count > ", threads, ") team /= 2;"));
  text.line("const int of_team = (int)threadIdx.x / team, member = (int)threadIdx.x % team;");
  text.line("const bool has_row = of_team < row_count;");
  print_loads(true);
}

void MatrixRows::print(const std::string& at) {
  KernelText& text = f_.text;
  const loop::Nest& rows = f_.prologue->rows;
  print_loads(false);
  Body body(text, rows);
  f_.print_indices(rows.dims, "(has_row ? of_team : 0)", body);
  for (const loop::Stmt& stmt : rows.body) {
    if (const auto* reduce = std::get_if<loop::Reduce>(&stmt.node))
      print_statistic(body, *reduce);
    else if (const auto* loop = std::get_if<loop::For>(&stmt.node))
      print_row(body, *loop, at);
    else
      body.print(stmt);
  }
}

// Each thread has a sum per position in its vectors. Sums are combined by shuffles within a thread group, and
// by shared memory across warps.
void MatrixRows::print_statistic(Body& body, const loop::Reduce& reduce) {
  KernelText& text = f_.text;
  const loop::Dim& dim = reduce.dims[0];
  const DType dtype = f_.prologue->rows.values[reduce.results[0].value].dtype;
  const std::string sum = text.fresh("statistic"), type = text.value_type(dtype),
                    warps = text.fresh("of_warps");
  const auto combine = [&](const std::string& into, const std::string& from) {
    body.print_combine(reduce.combine, {into}, {from}, {dtype}, 1);
  };
  text.line(cat(type, " ", sum, "[", kVector, "];"));
  text.line("#pragma unroll");
  text.line(cat("for (int j = 0; j < ", kVector, "; ++j) ", sum,
                "[j] = ", body.identity(reduce.combine, dtype, 0), ";"));
  open_vectors(false);
  Body inside = body;
  inside.add_dim(dim);
  inside.set_index(dim.var, "(int64_t)(at + j)");
  inside.place = [&](const loop::Access& access) {
    const Held* held = held_of(access, dim.var);
    return held ? held->name + "[i][j]" : std::string();
  };
  text.line("#pragma unroll");
  text.open(cat("for (int j = 0; j < ", kVector, "; ++j)"));
  for (const loop::Stmt& stmt : reduce.body) inside.print(stmt);
  combine(sum + "[j]", inside.value(reduce.yields[0]).text);
  text.close();
  text.close();
  text.close();
  for (int step = kVector / 2; step > 0; step /= 2)
    for (int j = 0; j < step; ++j) combine(cat(sum, "[", j, "]"), cat(sum, "[", j + step, "]"));
  const std::string own = sum + "[0]";
  text.line("#pragma unroll");
  text.open("for (int step = 16; step > 0; step /= 2)");
  text.line(cat("const ", type, " other = __shfl_xor_sync(~0u, ", own, ", step);"));
  text.open("if (step < team)");
  combine(own, "other");
  text.close();
  text.close();
  text.line(cat("__shared__ ", type, " ", warps, "[", f_.kernel.threads() / 32, "];"));
  text.open("if (team > 32)");
  text.line(cat("if (threadIdx.x % 32 == 0) ", warps, "[threadIdx.x / 32] = ", own, ";"));
  text.line("__syncthreads();");
  text.line(cat(own, " = ", warps, "[of_team * (team / 32)];"));
  text.line("#pragma unroll");
  text.line(cat("for (int w = 1; w < ", f_.kernel.threads() / 32, "; ++w)"));
  text.open("  if (w < team / 32)");
  combine(own, cat(warps, "[of_team * (team / 32) + w]"));
  text.close();
  text.close();
  body.set_value(reduce.results[0], {.text = own, .dtype = dtype});
}

void MatrixRows::print_row(Body& body, const loop::For& loop, const std::string& to) {
  KernelText& text = f_.text;
  const loop::Dim& dim = loop.dims[0];
  body.add_dim(dim);
  body.set_index(dim.var, "(int64_t)(at + j)");
  std::vector<std::pair<const loop::Store*, std::string>> stored;
  for (const loop::Stmt& stmt : loop.body)
    if (const auto* store = std::get_if<loop::Store>(&stmt.node))
      stored.emplace_back(store, text.fresh("made"));
  body.place = [&](const loop::Access& access) -> std::string {
    for (const auto& [store, name] : stored)
      if (store->access.buffer == access.buffer) return name + "[j]";
    const Held* held = held_of(access, dim.var);
    return held ? held->name + "[i][j]" : "";
  };
  open_vectors(true);
  for (const auto& [store, name] : stored)
    text.line(cat("alignas(16) ", text.storage_type(f_.program[store->access.buffer].dtype), " ", name, "[",
                  kVector, "];"));
  text.line("#pragma unroll");
  text.open(cat("for (int j = 0; j < ", kVector, "; ++j)"));
  for (const loop::Stmt& stmt : loop.body) body.print(stmt);
  text.close();
  const int step = f_.kernel.depth;
  for (const auto& [store, name] : stored) {
    if (store->access.buffer == f_.prologue->row)
      text.line(cat("move_wide<", kVector * f_.element_bytes(), ">(shared + ", to, " + (at / ", step,
                    " - (int)begin) * ", side_.tile_bytes(), " + ",
                    side_.place("of_team", cat("at % ", step)), ", ", name, ");"));
    else
      print_stored(body, *store, dim, name);
  }
  text.close();
  text.close();
  body.place = nullptr;
}

// Stores row values that other nests read too; only the first block, or the first cluster, does so.
void MatrixRows::print_stored(Body& body, const loop::Store& store, const loop::Dim& dim,
                              const std::string& name) {
  KernelText& text = f_.text;
  const DType dtype = f_.program[store.access.buffer].dtype;
  text.open(cat("if (blockIdx.x < ", f_.plan.split, ")"));
  if (is_wide(by_place(store.access, dim.var))) {
    body.set_index(dim.var, "(int64_t)at");
    text.line(cat("move_wide<", kVector * byte_size(dtype), ">(", text.pointer(store.access.buffer), " + ",
                  body.offset(store.access), ", ", name, ");"));
  } else {
    text.line(cat("for (int j = 0; j < ", kVector, "; ++j) *(", text.pointer(store.access.buffer), " + ",
                  body.offset(store.access), ") = ", name, "[j];"));
  }
  text.close();
  body.set_index(dim.var, "(int64_t)(at + j)");
}

}  // namespace stridec::codegen::cuda
