// Integer dot products of dynamically quantised rows (integers times one scale per block of k) and packed
// weights. vpdpbusd processes four bytes per lane, taking the weights in the order in which words hold them
// and the rows' integers in the same order. A block's sum is exact; its scale, zero point and the row's scale
// are applied in f32:
//
//   sum += (float(dot) - zero * float(sum of the row's integers)) * (scale * row scale)
#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction_block_quantized.h"
#include "compiler/kernels/block_quantized.h"

namespace stridec::codegen::cpu {
namespace {

constexpr std::string_view kUnroll = "#pragma clang loop unroll(full)";
constexpr std::string_view kEachRow = "for (int i = 0; i < R; ++i)";

int64_t vectors_of(const ContractionFrame& f) { return f.plan.panel / f.lanes; }
std::string each_vector(const ContractionFrame& f) {
  return cat("for (int64_t v = 0; v < ", vectors_of(f), "; ++v)");
}
std::string column_text(const ContractionFrame& f) { return cat("(v * ", f.lanes, ")"); }

// The lowest `bits` bits of each byte.
std::string_view byte_mask(int bits) {
  return bits == 8 ? "0xffffffffu" : bits == 4 ? "0x0f0f0f0fu" : "0x03030303u";
}

void unrolled_line(KernelText& text, const std::string& line) {
  text.line(std::string(kUnroll));
  text.line(line);
}
void open_unrolled(KernelText& text, std::string_view loop) {
  text.line(std::string(kUnroll));
  text.open(std::string(loop));
}

const loop::Let* let_of(const std::vector<const loop::Stmt*>& slice, loop::ValueId value, loop::ScalarOp op) {
  const std::vector<const loop::Stmt*> own = kernels::slice_of(slice, value);
  const auto* let = own.empty() ? nullptr : std::get_if<loop::Let>(&own.back()->node);
  return let && let->op == op ? let : nullptr;
}

}  // namespace

void CompactLayout::find_words() {
  if (shape_.plan.bytes == 0 || shape_.plan.bytes != block_ || depth_ % block_ != 0 || shape_.lanes != 16)
    return;
  const auto& slice = shape_.b->slice;
  Words words;
  loop::ValueId number = inner_;
  if (const loop::Let* less = let_of(slice, number, loop::ScalarOp::kSub)) {
    if (!same_in_block(less->args[1])) return;
    words.zero = less->args[1];
    number = less->args[0];
  }
  for (const loop::ScalarOp widening : {loop::ScalarOp::kCast, loop::ScalarOp::kCastSat})
    if (const loop::Let* wide = let_of(slice, number, widening)) number = wide->args[0];
  const loop::Let* bits = let_of(slice, number, loop::ScalarOp::kBitAnd);
  const loop::Let* shift = bits ? let_of(slice, bits->args[0], loop::ScalarOp::kShr) : nullptr;
  if (!shift) return;
  words.word = shift->args[0];
  words.bits = static_cast<int>(32 / word_);
  const auto mask = kernels::slice_of(slice, bits->args[1]);
  const auto* constant = mask.empty() ? nullptr : std::get_if<loop::Constant>(&mask.back()->node);
  const bool whole = constant && constant->value.i == (int64_t{1} << words.bits) - 1;
  if (whole && words.bits <= 8) words_ = words;
}

std::vector<sym::Expr> CompactLayout::bytes_scratch() const {
  const sym::Expr rows = shape_.block_limit, per_block = rows * (depth_ / block_ * byte_size(DType::kF32));
  return {rows * depth_, per_block, per_block};
}

void CompactColumns::print_bytes_start() {
  KernelText& text = f_.text;
  const std::vector<sym::Expr> pieces = bytes_scratch();
  text.line(cat("i8* const row_bytes = (i8*)", text.scratch(pieces[0]), ";"));
  text.line(cat("f32* const row_scales = (f32*)", text.scratch(pieces[1]), ";"));
  text.line(cat("f32* const row_sums = (f32*)", text.scratch(pieces[2]), ";"));
}

void CompactColumns::print_bytes_of_row() {
  KernelText& text = f_.text;
  const std::string floats = text.value_type(DType::kF32, f_.lanes),
                    ints = text.value_type(DType::kI32, f_.lanes),
                    bytes = text.value_type(DType::kI8, f_.lanes),
                    loose = text.unaligned_type(DType::kF32, f_.lanes),
                    loose_bytes = text.unaligned_type(DType::kI8, f_.lanes);
  text.line("const f32* x = a_rows[i];");
  text.line(cat("i8* to = row_bytes + row * ", depth_, ";"));
  text.open(cat("for (int64_t block = 0; block < ", depth_ / block_, "; ++block, x += ", block_,
                ", to += ", block_, ")"));
  const std::string each = cat("for (int64_t l = 0; l < ", block_, "; l += ", f_.lanes, ")");
  text.line(cat(floats, " most = (", floats, ")0;"));
  text.line(cat(each, " most = __builtin_elementwise_max(most, __builtin_elementwise_abs(*(const ", loose,
                "*)(x + l)));"));
  text.line("const f32 largest = __builtin_reduce_max(most), inverse = largest > 0 ? 127 / largest : 0;");
  text.line(cat(ints, " sum = (", ints, ")0;"));
  text.open(each);
  text.line(cat("const ", ints, " number = __builtin_convertvector(__builtin_elementwise_roundeven(*(const ",
                loose, "*)(x + l) * inverse), ", ints, ");"));
  text.line("sum += number;");
  // Part j of a word holds its elements j, j + parts, j + 2 * parts and j + 3 * parts.
  const int count = words_->count(), parts = count / 4;
  std::string order;
  for (int l = 0; l < f_.lanes; ++l)
    order += cat(l ? ", " : "", l / count * count + l % count / 4 + l % 4 * parts);
  text.line(cat("*(", loose_bytes,
                "*)(to + l) = __builtin_convertvector(__builtin_shufflevector(number, number, ", order, "), ",
                bytes, ");"));
  text.close();
  text.line(cat("row_scales[row * ", depth_ / block_, " + block] = largest / 127;"));
  text.line(cat("row_sums[row * ", depth_ / block_, " + block] = (f32)__builtin_reduce_add(sum);"));
  text.close();
}

void CompactColumns::print_byte_products() {
  KernelText& text = f_.text;
  const std::string floats = text.value_type(DType::kF32, f_.lanes);
  const int64_t blocks = depth_ / block_;
  text.open("const auto multiply = [=]<int R>(f32* tile, int64_t row) __attribute__((always_inline))");
  text.line(cat("const i8* const x = row_bytes + row * ", depth_, ";"));
  text.line(cat("const f32 *const x_scales = row_scales + row * ", blocks,
                ", *const x_sums = row_sums + row * ", blocks, ";"));
  text.line(cat("for (int64_t l = 0; l < R * ", f_.plan.panel, "; l += ", f_.lanes, ") *(", floats,
                "*)(tile + l) = (", floats, ")0;"));
  print_blocks([&](const std::string& block, int64_t words, int64_t) {
    print_ahead(false, block, "");
    print_dots(block, words);
    print_scaled_dots(block);
  });
  text.close(";");
  text.open("const auto products = [=](f32* tile, int64_t row, int64_t rows)");
  text.open("switch (rows)");
  const int rows = f_.plan.kernel->rows;
  for (int r = 1; r <= rows; ++r)
    text.line(cat(r < rows ? cat("case ", r, ":") : std::string("default:"),
                  " return multiply.template operator()<", r, ">(tile, row);"));
  text.close();
  text.close(";");
}

void CompactColumns::print_dots(const std::string& block, int64_t words) {
  KernelText& text = f_.text;
  const std::string ints = text.value_type(DType::kI32, f_.lanes), each = each_vector(f_);
  const int64_t vectors = vectors_of(f_);
  const int count = words_->count(), parts = count / 4;
  text.line(cat(ints, " dot[R][", vectors, "];"));
  unrolled_line(text, std::string(kEachRow));
  unrolled_line(text, cat("  ", each, " dot[i][v] = (", ints, ")0;"));
  print_words(block, words, 0, [&](const std::string& word, int64_t) {
    text.line(cat(ints, " word_of[", vectors, "];"));
    open_unrolled(text, each);
    Body body = lanes_at(column_text(f_), block, word);
    print_values(body, 0, words_->word);
    text.line(cat("word_of[v] = ", body.lanes(words_->word), ";"));
    text.close();
    open_unrolled(text, cat("for (int part = 0; part < ", parts, "; ++part)"));
    text.line(cat(ints, " numbers[", vectors, "];"));
    unrolled_line(text, cat(each, " numbers[v] = (word_of[v] >> (part * ", words_->bits, ")) & (", ints,
                            ")((i32)", byte_mask(words_->bits), ");"));
    open_unrolled(text, kEachRow);
    text.line("i32 four;");
    text.line(cat("__builtin_memcpy(&four, x + i * ", depth_, " + (", block, " * ", words, " + ", word,
                  ") * ", count, " + part * 4, 4);"));
    unrolled_line(text, cat(each, " dot[i][v] = __builtin_ia32_vpdpbusd512(dot[i][v], numbers[v], (", ints,
                            ")(four));"));
    text.close();
    text.close();
  });
}

void CompactColumns::print_scaled_dots(const std::string& block) {
  KernelText& text = f_.text;
  const std::string floats = text.value_type(DType::kF32, f_.lanes);
  const int64_t blocks = depth_ / block_;
  open_unrolled(text, each_vector(f_));
  Body body = lanes_at(column_text(f_), block, "0");
  std::string scale;
  for (loop::ValueId multiplier : multipliers_) {
    print_values(body, 0, multiplier);
    scale += cat(scale.empty() ? "" : " * ", body.lanes(multiplier));
  }
  text.line(cat("const ", floats, " scale = ", scale.empty() ? cat("(", floats, ")(1.0f)") : scale, ";"));
  if (words_->zero) {
    print_values(body, 0, *words_->zero);
    text.line(cat("const ", floats, " zero = ", body.lanes(*words_->zero), ";"));
  }
  open_unrolled(text, kEachRow);
  text.line(cat(floats, " sum = __builtin_convertvector(dot[i][v], ", floats, ");"));
  if (words_->zero)
    text.line(cat("sum = __builtin_elementwise_fma(zero, (", floats, ")(-x_sums[i * ", blocks, " + ", block,
                  "]), sum);"));
  text.line(
      cat(floats, "* const to = (", floats, "*)(tile + (i * ", vectors_of(f_), " + v) * ", f_.lanes, ");"));
  text.line(
      cat("*to = __builtin_elementwise_fma(sum, scale * x_scales[i * ", blocks, " + ", block, "], *to);"));
  text.close();
  text.close();
}

}  // namespace stridec::codegen::cpu
