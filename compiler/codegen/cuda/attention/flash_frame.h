// What the attention kernels share: the parts of the nest, index variables, and the printing of the nest's
// statements.
//
// Generated variables:
//   batch, first_row, row_count   the tile's batch point, first row and number of rows
//   key_end      keys from here on are hidden from the tile or do not exist
//   hides        whether keys from key_end on are hidden: some key is visible to all rows of the tile;
//                declared only if that depends on memory
//   row_at[h]    indices of the two rows of a thread
//   seen_at[h]   number of keys that the index mask leaves visible to each row
//   fix[h], fixed[h]   whether all weights of the row are equal, and their value
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/codegen/body.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/codegen/key_range.h"
#include "compiler/kernels/flash.h"

namespace stridec::codegen::cuda {

struct FlashFrame {
  // `assumes`: as for match_flash(). `narrow`: tiles are counted in 32 bits.
  FlashFrame(const loop::Program& program, const loop::Nest& nest, const kernels::FlashPlan& plan,
             bool assumes, bool narrow);
  FlashFrame(const FlashFrame&) = delete;

  const loop::Program& program;
  kernels::FlashPlan plan;
  const bool narrow;
  kernels::Flash flash;
  KernelText text;

  // The condition on sizes under which every factor is loaded 16 bytes at a time; the buffers have to begin
  // at multiples of 16 bytes too. Nothing if no sizes satisfy it.
  std::optional<sym::Expr> wide_condition() const;
  std::vector<loop::BufferId> buffers() const;  // buffers of the factors

  sym::Expr row_tiles() const { return sym::ceildiv(flash.chain.row.extent, plan.rows); }
  sym::Expr batches() const;

  // Declares first_row, row_count, key_end and the batch dims' indices, from `batch` and the C expression
  // `tile`. Rows with the most keys come first.
  void print_tile(const std::string& batch, const std::string& tile);
  // Declares keys_most, the most keys of any tile, if lengths come from memory. One whole warp has to execute
  // it.
  void print_most();
  // Sets the text of an index variable in the batch's index expressions.
  void set_index(sym::Expr var, const std::string& text) { scores_.set_index(var, text); }
  // Declares `name` as the number of keys that are visible to row `row` of the tile; keys from there on are
  // hidden or do not exist.
  void print_end(const std::string& name, const std::string& row);
  // Element offset of the operand at line 0 of the batch point.
  std::string base(const kernels::Flash::Operand& operand);
  // The queries' offset at row `row` (a C expression) of all rows, if their rows are scattered.
  std::string query_base(const std::string& row);
  // Text of an expression over the batch dims' indices.
  std::string batch_index(sym::Expr e) { return scores_.index(e); }
  // Declares row_at, and fix and fixed if the nest has them. `row`: the first of a thread's two rows in the
  // tile; the other one is 8 rows below.
  void print_rows(const std::string& row);
  // Declares keys_seen: the number of keys that the index mask shows to all rows of the tile from `row` on;
  // at least 0.
  void print_seen(const std::string& row);
  // Turns element(j, 2 * h + w), for `blocks` blocks of 8 keys, into the score: applies the nest's statements
  // for key n0 + j * 8 + lane_id % 4 * 2 + w. kEdge: keys from key_count on get -inf. kSeen: the index mask
  // hides no key.
  enum class Keys { kEdge, kAll, kSeen };
  using Element = std::function<std::string(const std::string& j, const std::string& e)>;
  // `early`: the loads of print_early() are available.
  void print_scores(int blocks, Keys which, const Element& element, bool early = false);
  // Declares early0, early1, ...: per-key loads of the score statements, issued before the sums are complete.
  // Two keys at a time where sizes allow it.
  void print_early(int blocks, Keys which);
  // C expression: the exponential of the score `x` minus the maximum that print_shift() put into shift[h].
  std::string weight(const std::string& x, const std::string& h) const;
  void print_shift(const std::string& most);  // sets shift[h]
  // C expression: a difference of scores as an exponent of two.
  std::string powers(const std::string& difference) const;
  // After the last key: declares factor[h] from each thread's share of the sums, sums[h], and stores the
  // rows' statistics if the nest does. most[h]: the maximum that the weights are relative to; `row`: as for
  // print_rows().
  void print_factors(const std::string& row, const std::string& most, const std::string& sums);
  // Prints the statements and stores after the second sum, for columns j * 8 + lane_id % 4 * 2 + w; `row` as
  // above. `pairs`: stores two 16-bit elements at a time, if wide_condition() holds, or eight, which four
  // threads transpose among themselves. `own`: a C expression for the only j to print; empty: all j.
  void print_values(int blocks, const std::string& row, bool pairs, const Element& element,
                    const std::string& own = {});

 private:
  void print_scaled(int blocks, Keys which, const Element& element);
  void print_turns(int blocks);
  std::string power_text() const;
  // Whether weights are computed with the accuracy of other f32 kernels.
  bool exact() const { return flash.dtype == DType::kF32; }
  // The argument of weight()'s exponential.
  std::string exponent(const std::string& x, const std::string& h) const;
  void print_slice(Body& body, const std::vector<const loop::Stmt*>& statements,
                   const std::vector<std::pair<loop::ValueId, bool>>& except = {});
  // The condition under which the store writes this many neighbouring columns at a time; nothing if no sizes
  // allow it.
  std::optional<sym::Expr> store_condition(const loop::Store& store, int64_t columns) const;
  void print_wide_values(int blocks, const std::string& row, const std::vector<const loop::Store*>& stores,
                         const Element& element);
  // Prints the statements for column `at` of row h, whose sum is `sum`; the value of stores[i] goes to
  // pair`i`[w].
  void print_value(const std::vector<const loop::Store*>& stores, const std::string& sum);

  struct Early {
    const loop::Load* load;
    int bytes;             // per element
    int lanes;             // keys that a thread loads at a time: 2, or 8 that four threads transpose
    sym::Expr contiguous;  // the condition under which these keys are contiguous and aligned
  };

  Body scores_, rows_, values_;
  const SeenKeys seen_;
  std::vector<Early> early_;
  std::vector<const loop::Stmt*> score_statements_, value_statements_;
};

// Device functions: exp2, and operations on pairs of 16-bit floats.
std::string flash_declarations(DType dtype);

}  // namespace stridec::codegen::cuda
