#include "compiler/codegen/cpu/contraction_block_quantized.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/kernels/block_quantized.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cpu {
namespace {

// Prefetch distance for words of the panel, in k: a few kilobytes, to cover memory latency.
constexpr int64_t kAhead = 128;
// Unroll factor for parts that have one value per k.
constexpr int64_t kUnroll = 4;

const loop::Stmt* definition(const std::vector<const loop::Stmt*>& slice, loop::ValueId value) {
  const std::vector<const loop::Stmt*> own = kernels::slice_of(slice, value);
  return own.empty() ? nullptr : own.back();
}

}  // namespace

CompactLayout::CompactLayout(const ContractionShape& shape)
    : shape_(shape), block_var_(sym::var("%block")), word_var_(sym::var("%word")), facts_(shape.facts) {
  const auto depth = sym::as_const(extent_of(shape_.reduced));
  STRIDEC_CHECK(depth && !shape_.columns.empty(), shape_.nest.name);
  depth_ = *depth;
  const sym::Expr column = shape_.columns.back().var;
  for (const loop::Stmt* stmt : shape_.b->slice) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    if (!load || std::none_of(load->access.index.begin(), load->access.index.end(),
                              [&](sym::Expr e) { return sym::depends_on(e, column); }))
      continue;
    const sym::Expr row = load->access.index[load->access.index.size() - 2];
    parts_.push_back(
        {load->access.buffer, kernels::step_along({row}, shape_.reduced), cat("part_", parts_.size())});
  }
  // A word is the smallest step of a part; a block the smallest step of the others, if it is a multiple of
  // words.
  word_ = depth_;
  for (const Part& part : parts_)
    if (part.step > 0) word_ = std::min(word_, part.step);
  block_ = std::max<int64_t>(1, depth_ / word_) * word_;
  for (const Part& part : parts_)
    if (part.step > word_) block_ = std::min(block_, part.step);
  const bool nested = std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    return part.step == 0 || part.step == word_ || (part.step % block_ == 0 && block_ % word_ == 0);
  });
  if (!nested) word_ = block_ = 1;
  if (word_ == 1 && block_ % kUnroll == 0) word_ = kUnroll;
  facts_.set_index(column, shape_.plan.panel);
  facts_.set_index(block_var_, depth_ / block_ + 1);
  facts_.set_index(word_var_, std::max<int64_t>(1, block_ / word_));
  find_multipliers();
  find_words();
}

CompactColumns::CompactColumns(ContractionFrame& frame, const CompactLayout& layout)
    : CompactLayout(layout), f_(frame) {
  if (!words_) find_table();
}

// The factor's statements for the panel's columns at the given k.
std::vector<loop::Stmt> CompactColumns::at(sym::Expr k) const {
  sym::Substitution to;
  kernels::unflatten(k, f_.reduced, to);
  for (size_t d = 0; d + 1 < f_.columns.size(); ++d) to[f_.columns[d].var] = 0;
  std::vector<loop::Stmt> statements;
  for (const loop::Stmt* stmt : f_.b->slice) {
    statements.push_back(*stmt);
    loop::for_each_expr(statements.back(),
                        [&](sym::Expr& e) { e = sym::simplify(sym::substitute(e, to), facts_); });
  }
  return statements;
}

bool CompactLayout::same_in_block(loop::ValueId value) const {
  const sym::Expr within = sym::var("%within");
  sym::Facts facts = facts_;
  facts.set_index(within, block_);
  sym::Substitution to;
  kernels::unflatten(block_var_ * block_ + within, shape_.reduced, to);
  bool same = true;
  for (const loop::Stmt* stmt : kernels::slice_of(shape_.b->slice, value))
    loop::for_each_expr(*stmt, [&](sym::Expr e) {
      same = same && !sym::depends_on(sym::simplify(sym::substitute(e, to), facts), within);
    });
  return same;
}

// Factors that are uniform within a block are applied to the block's sum.
void CompactLayout::find_multipliers() {
  inner_ = shape_.b->value;
  if (block_ == word_) return;
  while (const loop::Stmt* stmt = definition(shape_.b->slice, inner_)) {
    const auto* let = std::get_if<loop::Let>(&stmt->node);
    if (!let || let->op != loop::ScalarOp::kMul) return;
    const bool first = same_in_block(let->args[0]), second = same_in_block(let->args[1]);
    if (first == second) return;
    multipliers_.push_back(let->args[first ? 0 : 1]);
    inner_ = let->args[first ? 1 : 0];
  }
}

void CompactColumns::find_table() {
  const CpuTarget& target = f_.text.target();
  if (f_.contraction.dtype != DType::kF32 || f_.lanes != 16 || target.vector_bytes != 64) return;
  const auto& slice = f_.b->slice;
  auto let_of = [&](loop::ValueId value, loop::ScalarOp op) -> const loop::Let* {
    const loop::Stmt* stmt = definition(slice, value);
    const auto* let = stmt ? std::get_if<loop::Let>(&stmt->node) : nullptr;
    return let && let->op == op ? let : nullptr;
  };
  for (const loop::Stmt* stmt : slice) {
    const auto* let = std::get_if<loop::Let>(&stmt->node);
    if (!let) continue;
    if (!table_) {
      if (let->op != loop::ScalarOp::kBitAnd || !let_of(let->args[0], loop::ScalarOp::kShr)) continue;
      const loop::Stmt* mask = definition(slice, let->args[1]);
      const auto* constant = mask ? std::get_if<loop::Constant>(&mask->node) : nullptr;
      if (!constant || constant->value.dtype != DType::kI32) continue;
      const int64_t bits = constant->value.i;
      if (bits < 1 || bits > 15 || (bits & (bits + 1)) != 0) continue;
      table_ = Table{.index = let->args[0], .number = let->result, .looked_up = {}, .mask = bits};
      continue;
    }
    if (f_.nest.values[let->result.value].dtype != DType::kF32) continue;
    const std::vector<const loop::Stmt*> own = kernels::slice_of(slice, let->result),
                                         below = kernels::slice_of(slice, table_->number);
    const bool contains = std::find(own.begin(), own.end(), below.back()) != own.end();
    const bool alone = std::all_of(own.begin(), own.end(), [&](const loop::Stmt* part) {
      return std::find(below.begin(), below.end(), part) != below.end() ||
             std::holds_alternative<loop::Let>(part->node) ||
             std::holds_alternative<loop::Constant>(part->node);
    });
    if (contains && alone) table_->looked_up = let->result;
  }
  if (table_ && !table_->looked_up.valid()) table_.reset();
}

void CompactColumns::print_panel() {
  KernelText& text = f_.text;
  if (table_) {
    // Tabulate the function for all values of the bits.
    Body body = lanes_at("0", "0", "0");
    std::string numbers;
    for (int lane = 0; lane < f_.lanes; ++lane) numbers += cat(lane ? ", " : "", lane & table_->mask);
    const std::string type = text.value_type(DType::kI32, f_.lanes);
    text.line(cat("const ", type, " numbers = {", numbers, "};"));
    body.set_value(table_->number, {.text = "numbers", .dtype = DType::kI32, .width = f_.lanes});
    const std::vector<const loop::Stmt*> below = kernels::slice_of(f_.b->slice, table_->number);
    for (const loop::Stmt* stmt : kernels::slice_of(f_.b->slice, table_->looked_up))
      if (std::find(below.begin(), below.end(), stmt) == below.end() ||
          std::holds_alternative<loop::Constant>(stmt->node))
        body.print(*stmt);
    text.line(cat("const ", f_.element(f_.lanes), " table = ", body.lanes(table_->looked_up), ";"));
  }
  for (const Part& part : parts_) {
    const loop::Buffer& buffer = f_.program[part.buffer];
    const size_t own = buffer.shape.size() - 3;
    sym::Expr offset = 0;
    for (const loop::Stmt* stmt : f_.b->slice) {
      const auto* load = std::get_if<loop::Load>(&stmt->node);
      if (!load || load->access.buffer != part.buffer) continue;
      offset = 0;
      for (size_t d = 0; d < own; ++d) offset += load->access.index[d] * buffer.strides[d];
    }
    text.line(cat("const ", text.storage_type(buffer.dtype), "* const ", part.pointer, " = ",
                  text.pointer(part.buffer), " + ", f_.body().index(offset), " + panel * ",
                  text.size(buffer.strides[own]), ";"));
  }
}

// A body whose lanes start at the given column of the panel.
Body CompactColumns::lanes_at(const std::string& column, const std::string& block,
                              const std::string& word) const {
  Body body = f_.body();
  const sym::Expr var = f_.columns.back().var;
  body.add_dim({var, f_.plan.panel});
  body.add_dim({block_var_, depth_ / block_ + 1});
  body.add_dim({word_var_, std::max<int64_t>(1, block_ / word_)});
  body.set_index(block_var_, block);
  body.set_index(word_var_, word);
  body.set_index(var, column);
  body.set_lanes(var, f_.lanes, "", true);
  for (const Part& part : parts_) {
    std::vector<sym::Expr> strides = f_.program[part.buffer].strides;
    for (size_t d = 0; d + 2 < strides.size(); ++d) strides[d] = 0;
    body.set_buffer(part.buffer, part.pointer, std::move(strides));
  }
  return body;
}

// Prints the statements that compute `value` for element i of the word.
void CompactColumns::print_values(Body& body, int64_t i, loop::ValueId value) {
  const std::vector<const loop::Stmt*> wanted = kernels::slice_of(f_.b->slice, value);
  const std::vector<loop::Stmt> statements = at(block_var_ * block_ + word_var_ * word_ + i);
  auto among = [](const std::vector<const loop::Stmt*>& list, const loop::Stmt* stmt) {
    return std::find(list.begin(), list.end(), stmt) != list.end();
  };
  std::vector<const loop::Stmt*> index, looked_up;
  if (table_) {
    index = kernels::slice_of(f_.b->slice, table_->index);
    looked_up = kernels::slice_of(f_.b->slice, table_->looked_up);
    if (!among(wanted, looked_up.back())) index.clear(), looked_up.clear();
  }
  for (size_t s = 0; s < statements.size(); ++s) {
    const loop::Stmt* stmt = f_.b->slice[s];
    const bool constant = std::holds_alternative<loop::Constant>(stmt->node);
    if (!among(wanted, stmt) || (among(looked_up, stmt) && !among(index, stmt) && !constant)) {
      if (!looked_up.empty() && stmt == looked_up.back())
        body.set_value(table_->looked_up,
                       {.text = cat("((", f_.element(f_.lanes), ")__builtin_ia32_permvarsf512(table, ",
                                    body.lanes(table_->index), "))"),
                        .dtype = DType::kF32,
                        .width = f_.lanes});
      continue;
    }
    body.print(statements[s]);
  }
}

// Calls `inside` in a loop over whole blocks and once for the remaining k: whole words and single elements.
void CompactColumns::print_blocks(
    const std::function<void(const std::string& block, int64_t words, int64_t rest)>& inside) {
  KernelText& text = f_.text;
  const int64_t blocks = depth_ / block_, left = depth_ % block_;
  if (blocks > 0) {
    text.open(cat("for (int64_t block = 0; block < ", blocks, "; ++block)"));
    inside("block", block_ / word_, 0);
    text.close();
  }
  if (left == 0) return;
  text.open("");
  text.line(cat("const int64_t block = ", blocks, ";"));
  inside("block", left / word_, left % word_);
  text.close();
}

void CompactColumns::print_words(const std::string& block, int64_t words, int64_t rest,
                                 const std::function<void(const std::string& word, int64_t count)>& inside) {
  KernelText& text = f_.text;
  if (words > 0) {
    text.open(cat("for (int64_t word = 0; word < ", words, "; ++word)"));
    print_ahead(true, block, "word");
    inside("word", word_);
    text.close();
  }
  if (rest == 0) return;
  text.open("");
  text.line(cat("const int64_t word = ", words, ";"));
  inside("word", rest);
  text.close();
}

// Prefetches rows of the parts that have one row per word (`words`) or per block.
void CompactColumns::print_ahead(bool words, const std::string& block, const std::string& word) {
  KernelText& text = f_.text;
  for (const Part& part : parts_) {
    if (part.step == 0 || (part.step <= word_) != words) continue;
    const int64_t row = f_.plan.panel * byte_size(f_.program[part.buffer].dtype);
    const int64_t rows = std::max<int64_t>(1, (words ? word_ : block_) / part.step);
    const std::string k = words ? cat("(", block, " * ", block_, " + ", word, " * ", word_, ")")
                                : cat("(", block, " * ", block_, ")");
    text.line(cat("for (int64_t line = 0; line < ", row * rows,
                  "; line += 64) __builtin_prefetch((const char*)", part.pointer, " + (", k, " + ", kAhead,
                  ") / ", part.step, " * ", row, " + line, 0, 3);"));
  }
}

void CompactColumns::print_row() {
  KernelText& text = f_.text;
  const std::string vector = f_.element(f_.lanes);
  const int64_t vectors = f_.plan.panel / f_.lanes;
  const std::string each = cat("for (int64_t v = 0; v < ", vectors, "; ++v)"),
                    unroll = "#pragma clang loop unroll(full)";
  const std::string column = cat("(v * ", f_.lanes, ")");
  auto multiply_add = [&](const std::string& a, const std::string& b, const std::string& sum) {
    text.line(text.target().fma ? cat(sum, " = __builtin_elementwise_fma(", a, ", ", b, ", ", sum, ");")
                                : cat(sum, " += ", a, " * ", b, ";"));
  };
  const bool parts = !multipliers_.empty();
  text.line(cat(vector, " sums[", vectors, "];"));
  text.line(unroll);
  text.line(cat(each, " sums[v] = (", vector, ")0;"));
  text.line(cat("const ", f_.a_element(), "* x = a_rows[0];"));
  print_blocks([&](const std::string& block, int64_t words, int64_t rest) {
    print_ahead(false, block, "");
    if (parts) {
      text.line(cat(vector, " of_block[", vectors, "];"));
      text.line(unroll);
      text.line(cat(each, " of_block[v] = (", vector, ")0;"));
    }
    print_words(block, words, rest, [&](const std::string& word, int64_t count) {
      text.line(unroll);
      text.open(each);
      for (int64_t i = 0; i < count; ++i) {
        text.open("");
        Body body = lanes_at(column, block, word);
        print_values(body, i, inner_);
        multiply_add(cat("(", vector, ")(x[", i, "])"), body.lanes(inner_),
                     parts ? "of_block[v]" : "sums[v]");
        text.close();
      }
      text.close();
      text.line(cat("x += ", count, ";"));
    });
    if (!parts) return;
    text.line(unroll);
    text.open(each);
    Body body = lanes_at(column, block, "0");
    std::string sum = "of_block[v]";
    for (size_t m = 0; m < multipliers_.size(); ++m) {
      print_values(body, 0, multipliers_[m]);
      if (m + 1 < multipliers_.size()) sum = cat("(", sum, " * ", body.lanes(multipliers_[m]), ")");
    }
    multiply_add(body.lanes(multipliers_.back()), sum, "sums[v]");
    text.close();
  });
  text.line(unroll);
  text.line(cat(each, " *(", vector, "*)(tile + v * ", f_.lanes, ") = sums[v];"));
}

void CompactColumns::print_copy() {
  KernelText& text = f_.text;
  const std::string loose = text.unaligned_type(f_.contraction.dtype, f_.lanes);
  print_blocks([&](const std::string& block, int64_t words, int64_t rest) {
    print_ahead(false, block, "");
    print_words(block, words, rest, [&](const std::string& word, int64_t count) {
      text.open(cat("for (int64_t j = 0; j < ", f_.plan.panel, "; j += ", f_.lanes, ")"));
      for (int64_t i = 0; i < count; ++i) {
        text.open("");
        Body body = lanes_at("j", block, word);
        print_values(body, i, f_.b->value);
        text.line(cat("*(", loose, "*)(to + ", i * f_.plan.panel, " + j) = ", body.lanes(f_.b->value), ";"));
        text.close();
      }
      text.close();
      text.line(cat("to += ", count * f_.plan.panel, ";"));
    });
  });
}

}  // namespace stridec::codegen::cpu
