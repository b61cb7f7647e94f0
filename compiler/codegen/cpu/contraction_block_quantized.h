// The vectorised factor of a contraction that is computed from compact weights (kernels/block_quantized.h): the panels of its
// parts, turned into numbers in registers for a single row, in scratch for more.
//
// Variables of the generated text: block, of consecutive k that share what differs least often along k (a scale), and
// word, of the numbers in one word within the block.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/cpu/contraction_frame.h"

namespace stridec::codegen::cpu {

class CompactColumns {
 public:
  explicit CompactColumns(ContractionFrame& frame);

  void print_panel();  // pointers to the panel of the task, and the table
  void print_row();    // sums of the row a_rows[0] and the panel's columns, to `tile`
  void print_copy();   // the panel's elements, to `to`

  // -- products of bytes (GemmPlan::bytes), contraction_bytes.cpp
  bool multiplies_bytes() const { return words_.has_value(); }
  void print_bytes_start();   // room for the rows of a block
  void print_bytes_of_row();  // of a_rows[i], to row `row`
  void
  print_byte_products();  // a function of the panel: the sums of the tile's rows, the first of which is `row`, to `tile`

 private:
  struct Part {
    loop::BufferId buffer;
    int64_t step = 0;  // elements of k from one row of the panel to the next; 0: there is one row
    std::string pointer;
  };
  std::vector<loop::Stmt> at(sym::Expr k) const;
  bool same_in_block(loop::ValueId value) const;
  void find_multipliers();
  void find_table();
  Body lanes_at(const std::string& column, const std::string& block, const std::string& word) const;
  void print_values(Body& body, int64_t i, loop::ValueId value);
  void print_blocks(const std::function<void(const std::string& block, int64_t words, int64_t rest)>& inside);
  void print_words(const std::string& block, int64_t words, int64_t rest,
                   const std::function<void(const std::string& word, int64_t count)>& inside);
  void print_ahead(bool words, const std::string& block, const std::string& word);

  ContractionFrame& f_;
  std::vector<Part> parts_;
  sym::Expr block_var_, word_var_;
  sym::Facts facts_;
  int64_t depth_ = 0, block_ = 0, word_ = 0;  // k in all, in a block, in a word
  // The factor is the product of these, which are the same in a block, and of `inner_`.
  std::vector<loop::ValueId> multipliers_;
  loop::ValueId inner_;
  // Numbers of up to four bits: `looked_up` is a function of the lowest bits of `index` alone, so that a permutation of
  // the function's values gives it.
  struct Table {
    loop::ValueId index, number, looked_up;  // number: the bits without those above them
    int64_t mask = 0;
  };
  std::optional<Table> table_;
  // The numbers of a word, `zero` higher each than `inner_`.
  struct Words {
    loop::ValueId word;
    std::optional<loop::ValueId> zero;
    int bits = 0;
    int count() const { return 32 / bits; }
  };
  void find_words();
  std::optional<Words> words_;
};

}  // namespace stridec::codegen::cpu
