// The vectorised factor of a contraction with block-quantised weights (kernels/block_quantized.h). The panels
// of its parts are dequantised in registers for a single row, and into scratch for several rows.
//
// Variables of the generated text: `block`, the index of a block of consecutive k that share the value that
// varies least along k (a scale); `word`, the index within the block of a 32-bit word of packed weights.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/cpu/contraction_frame.h"

namespace stridec::codegen::cpu {

// The parts, blocks and words of the packed weights, from the decomposed nest alone.
class CompactLayout {
 public:
  explicit CompactLayout(const ContractionShape& shape);

  bool multiplies_bytes() const { return words_.has_value(); }
  // The pieces of scratch for quantised rows: their bytes, scales and sums.
  std::vector<sym::Expr> bytes_scratch() const;

 protected:
  struct Part {
    loop::BufferId buffer;
    int64_t step = 0;  // elements of k per row of the panel; 0: there is one row
    std::string pointer;
  };
  // The quantised values of a word; each exceeds `inner_` by `zero`.
  struct Words {
    loop::ValueId word;
    std::optional<loop::ValueId> zero;
    int bits = 0;
    int count() const { return 32 / bits; }
  };

  const ContractionShape& shape_;
  std::vector<Part> parts_;
  sym::Expr block_var_, word_var_;
  sym::Facts facts_;
  int64_t depth_ = 0, block_ = 0, word_ = 0;  // k in total, per block, per word
  // The factor is `inner_` times these values, which are uniform within a block.
  std::vector<loop::ValueId> multipliers_;
  loop::ValueId inner_;
  std::optional<Words> words_;

 private:
  bool same_in_block(loop::ValueId value) const;
  void find_multipliers();
  void find_words();
};

class CompactColumns : public CompactLayout {
 public:
  CompactColumns(ContractionFrame& frame, const CompactLayout& layout);

  void print_panel();  // declares pointers to the task's panel, and the lookup table
  void print_row();    // sums of the row a_rows[0] times the panel's columns, to `tile`
  void print_copy();   // dequantises the panel to `to`

  // -- integer dot products (GemmPlan::bytes), contraction_bytes.cpp
  void print_bytes_start();   // scratch for the quantised rows of a block
  void print_bytes_of_row();  // quantises a_rows[i] into row `row`
  // Prints a function of the panel: the sums of the tile's rows, the first of which is `row`, to `tile`.
  void print_byte_products();

 private:
  std::vector<loop::Stmt> at(sym::Expr k) const;
  void find_table();
  Body lanes_at(const std::string& column, const std::string& block, const std::string& word) const;
  void print_values(Body& body, int64_t i, loop::ValueId value);
  void print_blocks(const std::function<void(const std::string& block, int64_t words, int64_t rest)>& inside);
  void print_words(const std::string& block, int64_t words, int64_t rest,
                   const std::function<void(const std::string& word, int64_t count)>& inside);
  void print_ahead(bool words, const std::string& block, const std::string& word);
  // Declares `dot`, a block's integer sums of products.
  void print_dots(const std::string& block, int64_t words);
  // Scales `dot` and adds it to the tile.
  void print_scaled_dots(const std::string& block);

  ContractionFrame& f_;
  // Dequantisation by table for up to four bits: `looked_up` is a function of only the lowest bits of
  // `index`, so a permutation of the function's values computes it.
  struct Table {
    loop::ValueId index, number, looked_up;  // number: index & mask
    int64_t mask = 0;
  };
  std::optional<Table> table_;
};

}  // namespace stridec::codegen::cpu
