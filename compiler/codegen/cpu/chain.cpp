#include "compiler/codegen/cpu/chain.h"

#include <algorithm>
#include <map>
#include <memory>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/chain_rows.h"
#include "compiler/codegen/cpu/contraction_columns.h"
#include "compiler/codegen/cpu/contraction_epilogue.h"
#include "compiler/codegen/cpu/contraction_frame.h"
#include "compiler/codegen/cpu/contraction_rows.h"
#include "compiler/codegen/key_range.h"
#include "compiler/kernels/chain.h"
#include "compiler/kernels/chain_range.h"
#include "compiler/kernels/flash.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::codegen::cpu {
namespace {

using sym::Expr;

constexpr int64_t kGrain = int64_t{1} << 20;  // multiply-adds that are worth waking a thread for

// The chain, its blocks of rows and its local buffers, from its nest and plan alone.
class ChainLayout {
 public:
  ChainLayout(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target)
      : program_(program),
        nest_(nest),
        vector_bytes_(target.vector_bytes),
        plan_(kernels::to_chain_plan(nest.schedule)) {
    std::string reason;
    auto matched = kernels::match_chain(nest, &reason);
    STRIDEC_CHECK(matched && matched->row.var == plan_.row,
                  cat("nest '", nest.name, "' is not a chain: ", reason));
    chain_ = *std::move(matched);
    inner_ = schedule::parse_plan({.kernel = "", .directives = plan_.inner});
    if (auto attention = kernels::match_attention(program, nest, false); attention && attention->skips) {
      attention_ = std::move(attention);
      sums_ = {false, false, true};
    } else if ((range_ = kernels::chain_range(program, chain_))) {
      sums_ = range_->sums;
    }
    divided_ = divide_results(program, chain_);
    for (kernels::Chain::Part& part : chain_.parts)
      if (!part.link) sum_where_stored(part.nest);
    find_locals();
  }

  std::vector<Expr> scratch() const {
    const Expr limit = block_limit();
    std::vector<Expr> pieces;
    for (const Local& local : found_) pieces.push_back(local_bytes(local, limit));
    if (divided_) pieces.push_back(row_value_bytes(limit));
    size_t next = 0;
    for (const kernels::Chain::Part& part : chain_.parts) {
      if (!part.link) continue;
      ContractionShape shape(program_, part.nest, plan_of(part, next++));
      shape.block_limit = limit;
      for (const std::vector<Expr>& of_link :
           {RowsLayout(shape, false).scratch(), ColumnsLayout(shape, true).scratch()})
        pieces.insert(pieces.end(), of_link.begin(), of_link.end());
    }
    return pieces;
  }

 protected:
  struct Local {
    loop::BufferId buffer;
    bool of_block = false;  // used by several parts: a block keeps all of its rows
  };

  Expr row_stride(const Local& local) const {
    const loop::Buffer& buffer = program_[local.buffer];
    return scratch_stride(schedule::extent_in_elements(buffer), vector_bytes_ / byte_size(buffer.dtype));
  }

  // Maximum number of rows of a block: the plan's, or as many as fit in its cache budget.
  Expr block_limit() const {
    Expr bytes = 0;
    for (const Local& local : found_)
      if (local.of_block) bytes += row_stride(local) * byte_size(program_[local.buffer].dtype);
    int least = 1;
    for (const auto& link : plan_.links) least = std::max(least, link.kernel->rows);
    if (bytes.is_const(0)) return plan_.tile;
    return sym::max(least, sym::min(plan_.tile, sym::floordiv(plan_.bytes, bytes)));
  }

  Expr local_bytes(const Local& local, Expr limit) const {
    const Expr stride = row_stride(local);
    return (local.of_block ? stride * limit : stride) * byte_size(program_[local.buffer].dtype);
  }
  static Expr row_value_bytes(Expr limit) { return limit * byte_size(DType::kF32); }

  // The plan of a link, which is the `number`th of the schedule.
  kernels::GemmPlan plan_of(const kernels::Chain::Part& part, size_t number) const {
    STRIDEC_CHECK(number < plan_.links.size(), "a chain's schedule has too few links");
    return kernels::link_plan(chain_, part, plan_.links[number]);
  }

  const loop::Program& program_;
  const loop::Nest& nest_;
  const int vector_bytes_;
  kernels::ChainPlan plan_;
  kernels::Chain chain_;
  std::optional<kernels::Flash> attention_;   // set if its mask hides keys from whole blocks of rows
  std::optional<kernels::ChainRange> range_;  // set if positions hide columns in another chain
  std::vector<bool> sums_;  // of either: by part, whether a link sums over columns and does not fill them
  std::optional<DividedResults> divided_;
  schedule::LoopPlan inner_;
  std::vector<Local> found_;

 private:
  void find_locals() {
    std::map<loop::BufferId, size_t> seen_in;
    for (size_t i = 0; i < chain_.parts.size(); ++i)
      for (const loop::BufferId id : loop::buffers_of(chain_.parts[i].nest)) {
        if (program_[id].storage != loop::Storage::kLocal) continue;
        const auto [seen, fresh] = seen_in.emplace(id, i);
        if (fresh) found_.push_back({id, chain_.parts[i].link != nullptr});
        if (seen->second == i) continue;
        for (Local& local : found_) local.of_block = local.of_block || local.buffer == id;
      }
  }
};

// The emitters of one link.
struct Link {
  Link(KernelText& text, const loop::Program& program, const kernels::Chain::Part& part,
       kernels::GemmPlan plan, const loop::Nest& points, Expr block_limit,
       const std::vector<LocalRows>& locals, const std::optional<RowValue>& value)
      : frame(text, program, part.nest, std::move(plan), &points), epilogue(frame) {
    frame.block_limit = block_limit;
    frame.locals = locals;
    frame.row_value = value;
    rows.emplace(frame, false);
    columns.emplace(frame, true);
  }
  ContractionFrame frame;
  ContractionEpilogue epilogue;
  std::optional<ContractionRows> rows;
  std::optional<ContractionColumns> columns;
};

class Emitter : ChainLayout {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target)
      : ChainLayout(program, nest, target), text_(program, target) {}

  Kernel emit() {
    const Expr rows = chain_.row.extent;
    const Expr limit = block_limit();
    const Expr blocks = sym::ceildiv(rows, limit);
    declare_locals(limit);
    if (divided_)
      row_value_ = {.value = divided_->sum,
                    .pointer = cat("((float*)", text_.scratch(row_value_bytes(limit)), ")")};
    size_t next = 0;
    for (const kernels::Chain::Part& part : chain_.parts) {
      links_.push_back(nullptr);
      if (!part.link) continue;
      links_.back() = std::make_unique<Link>(text_, program_, part, plan_of(part, next++), nest_, limit,
                                             locals_, value_for(links_.size() - 1));
    }

    text_.line(cat("const int64_t rows = ", text_.size(rows), ", blocks = ", text_.size(blocks), ";"));
    text_.line("const bool keep_panels = blocks > 1;");
    for (const auto& link : links_)
      if (link) link->columns->print_start();
    text_.open_tasks();
    text_.line("const int64_t block = task % blocks, batch = task / blocks;");
    text_.line("const int64_t block_row = rows * block / blocks;");
    text_.line("const int64_t block_rows = rows * (block + 1) / blocks - block_row;");
    print_batch();
    if (attention_) print_seen();
    if (range_) print_range();
    for (size_t i = 0; i < chain_.parts.size(); ++i)
      links_[i] ? print_link(*links_[i], chain_.parts[i]) : print_rows(chain_.parts[i]);
    text_.close_tasks();

    Expr work = 1;
    for (const auto& link : links_)
      if (link) work += extent_of(link->frame.reduced) * extent_of(link->frame.columns);
    work = work * sym::min(rows, limit);
    Expr tasks = blocks;
    for (const loop::Dim& dim : chain_.batch) tasks = tasks * dim.extent;
    Kernel kernel = text_.finish(tasks, sym::max(1, sym::floordiv(kGrain, work)));
    std::vector<const kernels::GemmKernel*> made;
    for (const auto& link : links_) {
      if (!link || std::find(made.begin(), made.end(), link->frame.plan.kernel) != made.end()) continue;
      made.push_back(link->frame.plan.kernel);
      kernel.support.push_back(kernels::gemm_text(*made.back(), text_.target()));
    }
    return kernel;
  }

 private:
  void declare_locals(Expr limit) {
    for (const Local& local : found_) {
      const loop::Buffer& buffer = program_[local.buffer];
      const std::string name = text_.fresh("l"), type = text_.storage_type(buffer.dtype);
      text_.line(
          cat(type, "* const ", name, " = (", type, "*)", text_.scratch(local_bytes(local, limit)), ";"));
      locals_.push_back({local.buffer, name, local.of_block ? text_.size(row_stride(local)) : std::string()});
    }
  }

  // The row value that the link after a divided row part uses.
  std::optional<RowValue> value_for(size_t link) const {
    return divided_ && link == divided_->part + 1 ? row_value_ : std::nullopt;
  }

  void print_batch() {
    if (!chain_.batch.empty()) text_.line("int64_t rest = batch;");
    for (size_t d = chain_.batch.size(); d-- > 0;) {
      const std::string name = cat("batch_", d), extent = text_.size(chain_.batch[d].extent);
      text_.line(d > 0 ? cat("const int64_t ", name, " = rest % ", extent, ";")
                       : cat("const int64_t ", name, " = rest;"));
      if (d > 0) text_.line(cat("rest /= ", extent, ";"));
    }
  }

  // Keys that the mask hides from the last row of a block are hidden from all of its rows and have weight
  // zero: scores, softmax and sums stop before them, rounded up to a whole vector and a whole step of the
  // micro-kernel.
  void print_seen() {
    const loop::Dim& keys = attention_->keys;
    Body scores(text_, attention_->scores_nest(), {});
    for (size_t d = 0; d < chain_.batch.size(); ++d) scores.set_index(chain_.batch[d].var, cat("batch_", d));
    const int unit = column_unit();
    const SeenKeys seen(*attention_, text_);
    seen.print_lengths(scores);
    seen.print_hides(scores, "block_row");
    seen.print_end(scores, "seen", "(block_row + block_rows - 1)");
    text_.line(cat("const int64_t column_end = sd_min(", text_.size(keys.extent), ", (sd_max(seen, 1) + ",
                   unit - 1, ") / ", unit, " * ", unit, ");"));
  }

  // The multiple to which column ranges are rounded: a vector, and a step of each micro-kernel.
  int column_unit() const {
    int unit = text_.target().vector_bytes / 4;
    for (const auto& link : links_)
      if (link) unit = std::max(unit, link->frame.step());
    return unit;
  }

  bool begins() const { return range_ && range_->first; }

  // The range of columns that some row of the block has, rounded to whole units and at least one unit long.
  void print_range() {
    const int unit = column_unit();
    const std::string extent = text_.size(range_->extent);
    if (begins())
      text_.line(cat("const int64_t column_begin = sd_max(0, sd_min(", extent, " - 1, block_row + ",
                     text_.size(*range_->first), ")) / ", unit, " * ", unit, ";"));
    const std::string last =
        range_->end ? cat("sd_max(1, block_row + block_rows - 1 + ", text_.size(*range_->end), ")") : extent;
    text_.line(cat("const int64_t column_end = sd_min(", extent, ", (", last, " + ", unit - 1, ") / ", unit,
                   " * ", unit, ");"));
  }

  // The row statements with loops from column_begin to column_end.
  loop::Nest limited(const loop::Nest& nest) const {
    loop::Nest out = nest;
    loop::for_each_stmt(out.body, [&](loop::Stmt& stmt) {
      if (auto* loop = std::get_if<loop::For>(&stmt.node)) {
        loop->dims[0].extent = begins() ? column_end_ - column_begin_ : column_end_;
        if (begins()) loop::substitute(loop->body, {{loop->dims[0].var, loop->dims[0].var + column_begin_}});
      }
      if (auto* reduce = std::get_if<loop::Reduce>(&stmt.node); reduce && attention_)
        reduce->dims[0].extent = column_end_;
    });
    return out;
  }

  void print_link(Link& link, const kernels::Chain::Part& part) {
    ContractionFrame& f = link.frame;
    const kernels::GemmKernel& kernel = *f.plan.kernel;
    text_.open("");
    for (size_t d = 0; d < chain_.batch.size(); ++d) f.set_batch_index(chain_.batch[d].var, cat("batch_", d));
    const std::string multiply = f.print_declaration();
    f.print_shape_start();
    text_.line(cat("alignas(64) ", f.element(), " tile[", kernel.rows * kernel.line(), "];"));
    const bool sums = !sums_.empty() && sums_[static_cast<size_t>(&part - chain_.parts.data())],
               fills = !sums_.empty() && !sums;
    text_.line(cat("const int64_t columns = ", text_.size(extent_of(f.columns)), ", panels = (",
                   fills ? "column_end" : "columns", " + ", kernel.columns() - 1, ") / ", kernel.columns(),
                   ";"));
    text_.line(cat("const int64_t tiles = (block_rows + ", kernel.rows - 1, ") / ", kernel.rows, ";"));
    text_.line("const int64_t tile_base = block_rows / tiles, longer_tiles = block_rows % tiles;");
    link.rows->print_start();
    link.rows->print_block();
    for (size_t d = 0; d + 1 < part.link->columns.size(); ++d) {
      const std::string name = text_.fresh("outer");
      text_.open(cat("for (int64_t ", name, " = 0; ", name, " < ", text_.size(part.link->columns[d].extent),
                     "; ++", name, ")"));
      f.set_batch_index(part.link->columns[d].var, name);
    }
    link.columns->print_change();
    text_.open(cat("for (int64_t panel = ",
                   fills && begins() ? cat("column_begin / ", kernel.columns()) : std::string("0"),
                   "; panel < panels; ++panel)"));
    text_.line(cat("const int64_t first_column = panel * ", kernel.columns(), ";"));
    text_.line(cat("const int64_t live_columns = sd_min(columns - first_column, ", kernel.columns(), ");"));
    link.columns->print_panel();
    text_.line("int64_t first_row = block_row;");
    text_.open("for (int64_t t = 0; t < tiles; ++t)");
    text_.line("const int64_t tile_rows = tile_base + (t < longer_tiles);");
    link.rows->print_tile();
    f.print_shape();
    std::string run = text_.size(sym::align_up(extent_of(f.reduced), f.step())), b = "b";
    if (sums) {
      const int step = f.step();
      run = cat("(column_end + ", step - 1, ") / ", step, " * ", step);
      if (begins()) {
        run += " - column_begin";
        b = cat("b + column_begin / ", step, " * b_stride");
        text_.line(cat("for (int64_t i = 0; i < ", kernel.rows, "; ++i) a_rows[i] += column_begin;"));
      }
    }
    text_.line(cat(multiply, "(tile_rows, 1, ", run, ", a_rows, ", b, ", b_stride, tile, 0, 0, 0);"));
    link.epilogue.print(*link.rows);
    text_.line("first_row += tile_rows;");
    text_.close();
    text_.close();
    for (size_t d = 0; d + 1 < part.link->columns.size(); ++d) text_.close();
    f.print_shape_end();
    text_.close();
  }

  void print_rows(const kernels::Chain::Part& part) {
    text_.open("for (int64_t row = block_row; row < block_row + block_rows; ++row)");
    const loop::Nest nest = sums_.empty() ? part.nest : limited(part.nest);
    Body body(text_, nest, {inner_.width, inner_.accumulators});
    body.set_index(column_begin_, "column_begin");
    body.set_index(column_end_, "column_end");
    for (size_t d = 0; d < chain_.batch.size(); ++d) body.set_index(chain_.batch[d].var, cat("batch_", d));
    body.set_index(chain_.row.var, "row");
    for (const LocalRows& local : locals_) {
      const std::string at = local.stride.empty() ? "" : cat(" + (row - block_row) * ", local.stride);
      body.set_buffer(local.buffer, cat("(", local.pointer, at, ")"), program_[local.buffer].strides);
    }
    body.print(nest.body);
    if (const auto value = value_for(static_cast<size_t>(&part - chain_.parts.data()) + 1)) {
      const std::string sum = body.value(value->value).text;
      const bool some = program_.facts.holds(sym::le(1, divided_->count));
      // If NaN quotients count as 0, the result is 0 for such a row; it is also 0 if the sum has no terms.
      std::string divisor = sum;
      if (divided_->guarded)
        divisor = cat(sum, " > 0 && ", sum, " < __builtin_inff() ? ", sum, " : __builtin_nanf(\"\")");
      else if (!some)
        divisor = cat(text_.size(divided_->count), " > 0 ? ", sum, " : 1.0f");
      text_.line(cat(value->pointer, "[row - block_row] = ", divisor, ";"));
    }
    text_.close();
  }

  KernelText text_;
  const Expr column_begin_ = sym::var("%column_begin"), column_end_ = sym::var("%column_end");
  std::optional<RowValue> row_value_;
  std::vector<LocalRows> locals_;
  std::vector<std::unique_ptr<Link>> links_;  // by part; null: row statements
};

}  // namespace

Kernel emit_chain(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return Emitter(program, nest, target).emit();
}

Expr chain_scratch(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return scratch_bytes(ChainLayout(program, nest, target).scratch());
}

}  // namespace stridec::codegen::cpu
