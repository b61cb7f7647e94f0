// What the attention kernels share: an attention taken apart, indices, and the nest's statements at their places.
//
// Generated variables: batch, first_row, row_count (of the tile), key_end (keys beyond are hidden from the tile, or are
// none), hides (they are hidden: some key is seen by all of the tile's rows, where memory says whether), row_at[h] (of the two rows of a thread), seen_at[h] (keys that the mask of indices leaves it), fix[h] and
// fixed[h] (rows whose weights are all alike).
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
  // `assumes`: of match_flash(). `narrow`: tiles are counted in 32 bits.
  FlashFrame(const loop::Program& program, const loop::Nest& nest, const kernels::FlashPlan& plan,
             bool assumes, bool narrow);
  FlashFrame(const FlashFrame&) = delete;

  const loop::Program& program;
  kernels::FlashPlan plan;
  const bool narrow;
  kernels::Flash flash;
  KernelText text;

  // 16 bytes of every factor at a time: under this condition, with the buffers on multiples of 16 bytes. Nothing where
  // no sizes allow it.
  std::optional<sym::Expr> wide_condition() const;
  std::vector<loop::BufferId> buffers() const;  // of the factors

  sym::Expr row_tiles() const { return sym::ceildiv(flash.chain.row.extent, plan.rows); }
  sym::Expr batches() const;

  // From `tile`, a C expression: first_row, row_count, key_end, and the batch dims' indices from `batch`. The rows
  // with the most keys come first.
  void print_tile(const std::string& batch, const std::string& tile);
  // keys_most: the most keys of a tile, where lengths come from memory, by a warp that is one.
  void print_most();
  // What stands for an index variable in indices of the batch.
  void set_index(sym::Expr var, const std::string& text) { scores_.set_index(var, text); }
  // Declares a number of keys: those beyond are hidden from row `row` of the tile, or are none.
  void print_end(const std::string& name, const std::string& row);
  // Element offset of the operand at line 0 of the batch.
  std::string base(const kernels::Flash::Operand& operand);
  // Of the queries: the same of row `row` of all, a C expression, where they are scattered.
  std::string query_base(const std::string& row);
  // An expression over the batch dims' indices.
  std::string batch_index(sym::Expr e) { return scores_.index(e); }
  // Declares row_at, and fix and fixed where there are some; `row`: the first of a thread's two rows in the tile, the
  // other is 8 below.
  void print_rows(const std::string& row);
  // keys_seen: keys that no row of the tile from `row` on misses by the mask of indices; 0 at least.
  void print_seen(const std::string& row);
  // element(j, 2 * h + w) for `blocks` of 8 keys becomes the score: the nest's statements at key n0 + j * 8 +
  // lane_id % 4 * 2 + w. kEdge: those from key_count on become -inf. kSeen: the mask of indices hides none of them.
  enum class Keys { kEdge, kAll, kSeen };
  using Element = std::function<std::string(const std::string& j, const std::string& e)>;
  // `early`: print_early() stands before it.
  void print_scores(int blocks, Keys which, const Element& element, bool early = false);
  // Declares early0.., what the scores take from memory key by key, for loads to be on their way before the sums are
  // there. Two keys at a time, where sizes allow it.
  void print_early(int blocks, Keys which);
  // C expression: the exponential of how far `x`, a score, lies above the maximum that shift[h] was made of by
  // print_shift().
  std::string weight(const std::string& x, const std::string& h) const;
  void print_shift(const std::string& most);  // into shift[h]
  // C expression: a difference of scores in powers of two.
  std::string powers(const std::string& difference) const;
  // After the keys: factor[h] from what each thread has of the sums, sums[h].
  void print_factors(const std::string& sums);
  // The statements behind the second sum and the stores, for columns j * 8 + lane_id % 4 * 2 + w; `row` as above.
  // `pairs`: two elements of 16 bits are stored at a time, where wide_condition() says so, or eight: four threads turn
  // what they have of a row. `own`: a C expression of the only j that there is; all of them where it is empty.
  void print_values(int blocks, const std::string& row, bool pairs, const Element& element,
                    const std::string& own = {});

 private:
  void print_scaled(int blocks, Keys which, const Element& element);
  void print_turns(int blocks);
  std::string power_text() const;
  // Weights of f32 are as exact as those of other kernels.
  bool exact() const { return flash.dtype == DType::kF32; }
  std::string exponent(const std::string& x, const std::string& h) const;  // of weight()
  void print_slice(Body& body, const std::vector<const loop::Stmt*>& statements,
                   const std::vector<std::pair<loop::ValueId, bool>>& except = {});
  // The condition under which a store takes so many neighbouring columns at a time; nothing where none does.
  std::optional<sym::Expr> store_condition(const loop::Store& store, int64_t columns) const;
  void print_wide_values(int blocks, const std::string& row, const std::vector<const loop::Store*>& stores,
                         const Element& element);
  // The statements for column `at` of row h, whose sum is sum: what stores[i] stores goes to pair`i`[w].
  void print_value(const std::vector<const loop::Store*>& stores, const std::string& sum);

  struct Early {
    const loop::Load* load;
    int bytes;             // of an element
    int lanes;             // keys that a thread loads at a time: 2, or 8 that four threads turn
    sym::Expr contiguous;  // the condition under which so many lie on a multiple of so many elements
  };

  Body scores_, rows_, values_;
  const SeenKeys seen_;
  std::vector<Early> early_;
  std::vector<const loop::Stmt*> score_statements_, value_statements_;
};

// exp2 and pairs of 16-bit floats.
std::string flash_declarations(DType dtype);

}  // namespace stridec::codegen::cuda
