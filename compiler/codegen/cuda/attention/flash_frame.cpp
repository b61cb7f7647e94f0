#include "compiler/codegen/cuda/attention/flash_frame.h"

#include <algorithm>
#include <numbers>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::Flash;
using loop::Stmt;
using sym::Expr;

Flash matched(const loop::Program& program, const loop::Nest& nest, bool assumes) {
  std::string reason;
  auto flash = kernels::match_flash(program, nest, &reason, assumes);
  STRIDEC_CHECK(flash.has_value(), cat("nest '", nest.name, "' is not an attention: ", reason));
  return *std::move(flash);
}

// The condition under which the expression is a multiple of `n` for all values of its index variables.
std::optional<Expr> multiple_of(Expr e, int64_t n, const sym::Facts& facts) {
  Expr condition = 1;
  const auto terms =
      e.op() == sym::Op::kAdd ? std::vector<Expr>(e.args().begin(), e.args().end()) : std::vector<Expr>{e};
  for (Expr term : terms) {
    const int64_t known = facts.known_divisor(term);
    if (known % n == 0) continue;
    Expr fixed = 1;
    const auto factors = term.op() == sym::Op::kMul
                             ? std::vector<Expr>(term.args().begin(), term.args().end())
                             : std::vector<Expr>{term};
    for (Expr factor : factors)
      if (!sym::has_index(factor)) fixed *= factor;
    if (fixed.is_const()) return std::nullopt;
    condition = sym::logical_and(condition, sym::eq(sym::mod(fixed, n), 0));
  }
  return condition;
}

}  // namespace

FlashFrame::FlashFrame(const loop::Program& program, const loop::Nest& nest, const kernels::FlashPlan& plan,
                       bool assumes, bool narrow)
    : program(program),
      plan(plan),
      narrow(narrow),
      flash(matched(program, nest, assumes)),
      text(program, kCudaText),
      scores_(text, flash.scores_nest()),
      rows_(text, flash.rows_nest()),
      values_(text, flash.values_nest()),
      seen_(flash, text) {
  scores_.wide_floats = true;
  score_statements_ = slice(flash.scores_nest().body, flash.scores().at, {flash.score->value}, false);
  value_statements_ = slice(flash.values_nest().body, flash.values().at, {}, true);
  for (const Stmt* stmt : score_statements_) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    if (!load) continue;
    const int bytes = byte_size(program[load->access.buffer].dtype);
    const auto at =
        sym::linear_in(kernels::offset_of(program, load->access,
                                          kernels::facts_in(program, flash.scores_nest(), flash.scores())),
                       flash.keys.var);
    if (bytes > 2 || !at || !at->coefficient.is_const(1)) continue;
    const int lanes = bytes == 2 && plan.keys % 32 == 0 ? 8 : 2;
    auto contiguous =
        load->access.mask.is_const(1) ? multiple_of(at->rest, lanes, program.facts) : std::nullopt;
    if (contiguous)
      contiguous = sym::simplify(
          sym::logical_and(*contiguous, sym::eq(sym::mod(flash.keys.extent, lanes), 0)), program.facts);
    early_.push_back({load, bytes, lanes, contiguous.value_or(0)});
  }
}

std::optional<Expr> FlashFrame::wide_condition() const {
  const int64_t lanes = 16 / flash.bytes();
  if (flash.depth % lanes || flash.width % lanes) return std::nullopt;
  std::vector<Expr> conditions;
  for (const Flash::Operand* operand : {&flash.q, &flash.k, &flash.v})
    for (Expr e : {operand->base, operand->line}) {
      const auto condition = multiple_of(e, lanes, program.facts);
      if (!condition) return std::nullopt;
      conditions.push_back(*condition);
    }
  for (const Stmt* stmt : value_statements_)
    if (const auto* store = std::get_if<loop::Store>(&stmt->node))
      if (const auto condition = store_condition(*store, 2)) conditions.push_back(*condition);
  if (flash.given) conditions.push_back(*flash.given);
  if (narrow) conditions.push_back(sym::le(batches() * row_tiles(), 0x3fff0000));
  return sym::simplify(sym::logical_and(conditions), program.facts);
}

std::vector<loop::BufferId> FlashFrame::buffers() const {
  std::vector<loop::BufferId> out;
  auto add = [&](loop::BufferId id) {
    if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
  };
  for (const Flash::Operand* operand : {&flash.q, &flash.k, &flash.v}) add(operand->load->access.buffer);
  for (const Stmt* stmt : value_statements_)
    if (const auto* store = std::get_if<loop::Store>(&stmt->node))
      if (store_condition(*store, 2)) add(store->access.buffer);
  for (const Early& early : early_) add(early.load->access.buffer);
  return out;
}

std::optional<Expr> FlashFrame::store_condition(const loop::Store& store, int64_t columns) const {
  if (byte_size(program[store.access.buffer].dtype) != 2 || !store.access.mask.is_const(1) || store.update)
    return std::nullopt;
  const auto column =
      sym::linear_in(kernels::offset_of(program, store.access,
                                        kernels::facts_in(program, flash.values_nest(), flash.values())),
                     flash.columns.var);
  if (!column || !column->coefficient.is_const(1)) return std::nullopt;
  return multiple_of(column->rest, columns, program.facts);
}

Expr FlashFrame::batches() const {
  Expr count = 1;
  for (const loop::Dim& dim : flash.chain.batch) count *= dim.extent;
  return count;
}

void FlashFrame::print_tile(const std::string& batch, const std::string& tile) {
  const std::string rows = text.size(flash.chain.row.extent), keys = text.size(flash.keys.extent);
  const std::string count = narrow ? "unsigned" : "int64_t";
  if (!flash.chain.batch.empty()) text.line(cat(count, " rest = ", batch, ";"));
  for (size_t d = flash.chain.batch.size(); d-- > 0;) {
    const loop::Dim& dim = flash.chain.batch[d];
    const std::string name = text.fresh("t"), extent = cat("(", count, ")", text.size(dim.extent));
    text.line(cat("const int64_t ", name, " = ", d ? cat("rest % ", extent) : "rest", ";"));
    if (d) text.line(cat("rest /= ", extent, ";"));
    for (Body* body : {&scores_, &rows_, &values_}) body->set_index(dim.var, name);
  }
  text.line(cat("const int64_t first_row = (int64_t)(", tile, ") * ", plan.rows, ";"));
  text.line(cat("const int row_count = (int)(", rows, " - first_row < ", plan.rows, " ? ", rows,
                " - first_row : ", plan.rows, ");"));
  seen_.print_lengths(scores_, {&rows_, &values_});
  if (!flash.skips) return text.line(cat("const int64_t key_end = ", keys, ";"));
  seen_.print_hides(scores_, "first_row");
  print_end("key_end", "(row_count - 1)");
}

void FlashFrame::print_most() {
  const sym::Expr row = flash.chain.row.extent;
  const auto used = seen_.batch_dims();
  Expr points = 1;
  for (const loop::Dim& dim : flash.chain.batch)
    if (used.contains(dim.var)) points *= dim.extent;
  text.line("int64_t keys_most = 0;");
  text.line("#pragma unroll 4");
  text.open(cat("for (unsigned point = lane_id; point < (unsigned)", text.size(points), "; point += 32)"));
  text.line("unsigned rest = point;");
  for (size_t d = flash.chain.batch.size(); d-- > 0;) {
    const loop::Dim& dim = flash.chain.batch[d];
    const std::string name = text.fresh("t"), extent = cat("(unsigned)", text.size(dim.extent));
    const bool own = used.contains(dim.var);
    text.line(cat("const int64_t ", name, " = ", own ? cat("rest % ", extent) : "0", ";"));
    if (own) text.line(cat("rest /= ", extent, ";"));
    scores_.set_index(dim.var, name);
  }
  seen_.print_lengths(scores_);
  seen_.print_hides(scores_, "(int64_t)0");
  seen_.print_end(scores_, "end", cat("(", text.size(row), " - 1)"));
  text.line("keys_most = keys_most < end ? end : keys_most;");
  text.close();
  text.line("#pragma unroll");
  text.open("for (int step = 16; step > 0; step /= 2)");
  text.line("const int64_t other = __shfl_xor_sync(~0u, keys_most, step);");
  text.line("keys_most = keys_most < other ? other : keys_most;");
  text.close();
}

void FlashFrame::print_end(const std::string& name, const std::string& row) {
  seen_.print_end(scores_, name, cat("(first_row + ", row, ")"));
}

std::string FlashFrame::base(const Flash::Operand& operand) {
  return (&operand == &flash.v ? values_ : scores_).index(operand.base);
}

std::string FlashFrame::query_base(const std::string& row) {
  Body there = scores_;
  there.set_index(flash.chain.row.var, row);
  return there.index(flash.q.base);
}

void FlashFrame::print_rows(const std::string& row) {
  text.line("int64_t row_at[2];");
  text.line("#pragma unroll");
  text.line(cat("for (int h = 0; h < 2; ++h) row_at[h] = first_row + (", row, " + h * 8 < row_count ? ", row,
                " + h * 8 : row_count - 1);"));
  for (Body* body : {&scores_, &rows_, &values_}) body->set_index(flash.chain.row.var, "row_at[h]");
  if (flash.visible) {
    Body body = scores_;
    text.line("int64_t seen_at[2];");
    text.line("#pragma unroll");
    text.line(cat("for (int h = 0; h < 2; ++h) seen_at[h] = ", body.index(*flash.visible), ";"));
  }
  if (!flash.fixes) return;
  text.line("bool fix[2];");
  text.line("float fixed[2];");
  text.line("#pragma unroll");
  text.open("for (int h = 0; h < 2; ++h)");
  Body body = rows_;
  print_slice(body, flash.row_statements);
  text.line(cat("fix[h] = ", body.value(*flash.fixes).text, ";"));
  text.line(cat("fixed[h] = ", body.value(*flash.fixed).text, ";"));
  text.close();
}

void FlashFrame::print_seen(const std::string& row) {
  Body first = scores_;
  first.set_index(flash.chain.row.var, cat("(first_row + ", row, ")"));
  text.line(cat("int64_t keys_seen = ", first.index(*flash.visible), ";"));
  text.line("keys_seen = keys_seen < 0 ? 0 : keys_seen;");
}

void FlashFrame::print_slice(Body& body, const std::vector<const Stmt*>& statements,
                             const std::vector<std::pair<loop::ValueId, bool>>& except) {
  for (const Stmt* stmt : statements) {
    bool own = false;
    loop::for_each_result(*stmt, [&](loop::ValueId id) {
      for (const auto& [value, truth] : except) own = own || id == value;
    });
    if (!own) body.print(*stmt);
  }
}

void FlashFrame::print_early(int blocks, Keys which) {
  const bool edge = which == Keys::kEdge;
  for (size_t i = 0; i < early_.size(); ++i) {
    const auto& [load, bytes, lanes, contiguous] = early_[i];
    const bool masked = !load->access.mask.is_const(1);
    const std::string pair = bytes == 2 ? "unsigned" : "unsigned short", name = cat("early", i);
    text.line(cat(pair, " ", name, "[", 2 * blocks, "];"));
    const auto open = [&](const char* loop, int count) {
      text.line("#pragma unroll");
      text.open(cat("for (int ", loop, " = 0; ", loop, " < ", count, "; ++", loop, ")"));
    };
    // Declares `from`: a pointer to the first existing key at or after `at`.
    const auto print_from = [&](const char* at) {
      text.line(cat("const int at = ", at, ";"));
      if (edge) text.line("const int left = key_count - at;");
      Body body = scores_;
      body.set_index(flash.keys.var, edge && !masked ? "(n0 + (left > 0 ? at : 0))" : "(n0 + at)");
      text.line(cat("const auto* const from = ", text.pointer(load->access.buffer), " + (",
                    body.offset(load->access), ");"));
    };
    const auto element = [&](const std::string& past) {
      if (!masked) return cat("from[", edge ? cat("(left > ", past, " ? ", past, " : 0)") : past, "]");
      Body there = scores_;
      there.set_index(flash.keys.var, cat("(n0 + at + ", past, ")"));
      return cat("(", edge ? cat("left > ", past, " && ") : "", there.condition(load->access), " ? from[",
                 past, "] : ", "(", bytes == 2 ? "unsigned short" : "unsigned char", ")",
                 there.stored_fill(*load), ")");
    };
    if (!contiguous.is_const(0)) {
      if (!contiguous.is_const(1)) text.open(cat("if (", text.size(contiguous), ")"));
      open(lanes == 8 ? "part" : "j", lanes == 8 ? blocks / 4 : blocks);
      open("h", 2);
      if (lanes == 8) {
        print_from("part * 32 + lane_id % 4 * 8");
        text.line("unsigned words[4];");
        text.line("load_words(words, from);");
        text.line("#pragma unroll");
        text.line(cat("for (int i = 0; i < 4; ++i) ", name, "[(part * 4 + i) * 2 + h] = words[i];"));
      } else {
        print_from("j * 8 + lane_id % 4 * 2");
        text.line(cat(name, "[j * 2 + h] = ", bytes == 2 ? "*(const unsigned*)from;" : "load_pair(from);"));
      }
      text.close();
      text.close();
      if (!contiguous.is_const(1)) text.close(" else {");
    }
    if (contiguous.is_const(1)) continue;
    open("j", blocks);
    open("h", 2);
    print_from("j * 8 + lane_id % 4 * 2");
    text.line(
        cat(name, "[j * 2 + h] = (", pair, ")(", element("0"), " | ", element("1"), " << ", 8 * bytes, ");"));
    text.close();
    text.close();
    if (!contiguous.is_const(0)) text.line("}");
  }
}

// Transposes the eight keys that each of four threads has loaded, so that each thread gets those that it has
// scores for.
void FlashFrame::print_turns(int blocks) {
  for (size_t i = 0; i < early_.size(); ++i) {
    const auto& [load, bytes, lanes, contiguous] = early_[i];
    if (lanes != 8 || contiguous.is_const(0)) continue;
    const std::string name = cat("early", i);
    if (!contiguous.is_const(1)) text.open(cat("if (", text.size(contiguous), ")"));
    text.line("#pragma unroll");
    text.open(cat("for (int i = 0; i < ", blocks / 2, "; ++i)"));
    text.line("const int part = i / 2 * 8, h = i % 2;");
    text.line(cat("unsigned words[4] = {", name, "[part + h], ", name, "[part + 2 + h], ", name,
                  "[part + 4 + h], ", name, "[part + 6 + h]};"));
    text.line("turn(words, lane_id);");
    text.line("#pragma unroll");
    text.line(cat("for (int w = 0; w < 4; ++w) ", name, "[part + w * 2 + h] = words[w];"));
    text.close();
    if (!contiguous.is_const(1)) text.close();
  }
}

void FlashFrame::print_scores(int blocks, Keys which, const Element& element, bool early) {
  const bool edge = which == Keys::kEdge;
  if (flash.visible && which != Keys::kSeen) {
    text.line("int limit[2];");
    text.line("#pragma unroll");
    text.open("for (int h = 0; h < 2; ++h)");
    text.line("const int64_t left = seen_at[h] - n0;");
    text.line(cat("limit[h] = left < 0 ? 0 : left < ", 8 * blocks, " ? (int)left : ", 8 * blocks, ";"));
    text.close();
  }
  if (flash.scale) return print_scaled(blocks, which, element);
  if (early) print_turns(blocks);
  text.line("#pragma unroll");
  text.open(cat("for (int j = 0; j < ", blocks, "; ++j)"));
  text.line("#pragma unroll");
  text.open("for (int e = 0; e < 4; ++e)");
  text.line("const int h = e / 2, at = j * 8 + lane_id % 4 * 2 + e % 2;");
  if (edge) text.line("const bool live = at < key_count;");
  text.line(cat("float& score = ", element("j", "e"), ";"));
  Body body = scores_;
  body.set_index(flash.keys.var, edge ? "(n0 + (live ? at : 0))" : "(n0 + at)");
  body.set_value(flash.scores().reduce->results[0], {.text = "score", .dtype = DType::kF32});
  body.place = [&](const loop::Access& access) -> std::string {
    for (size_t i = 0; early && i < early_.size(); ++i)
      if (&early_[i].load->access == &access)
        return cat(early_[i].bytes == 2 ? "(unsigned short)" : "(unsigned char)", "(early", i,
                   "[j * 2 + h] >> e % 2 * ", 8 * early_[i].bytes, ")");
    return {};
  };
  for (const auto& [value, truth] : flash.shown)
    body.set_value(value, {.text = which == Keys::kSeen ? (truth ? "true" : "false")
                                   : truth              ? "(at < limit[h])"
                                                        : "(at >= limit[h])",
                           .dtype = DType::kBool});
  print_slice(body, score_statements_, flash.shown);
  const std::string made = body.value(flash.score->value).text;
  if (edge)
    text.line(cat("score = live ? ", made, " : -__builtin_inff();"));
  else if (made != "score")
    text.line(cat("score = ", made, ";"));
  text.close();
  text.close();
}

// If the sums are the scores, only sets hidden ones to -inf.
void FlashFrame::print_scaled(int blocks, Keys which, const Element& element) {
  const bool edge = which == Keys::kEdge, masked = flash.visible && which != Keys::kSeen;
  if (!edge && !masked) return;
  if (!masked) text.open(cat("if (key_count < ", 8 * blocks, ")"));
  text.line("int ends[2];");
  text.line("#pragma unroll");
  text.line(cat("for (int h = 0; h < 2; ++h) ends[h] = (",
                edge && masked ? "limit[h] < key_count ? limit[h] : key_count"
                : edge         ? "key_count"
                               : "limit[h]",
                ") - lane_id % 4 * 2;"));
  text.line("#pragma unroll");
  text.open(cat("for (int j = 0; j < ", blocks, "; ++j)"));
  text.line("#pragma unroll");
  text.line(cat("for (int e = 0; e < 4; ++e) if (j * 8 + e % 2 >= ends[e / 2]) ", element("j", "e"),
                " = -__builtin_inff();"));
  text.close();
  if (!masked) text.close();
}

std::string FlashFrame::power_text() const {
  return float_literal(static_cast<float>(flash.scale.value_or(1) * std::numbers::log2e), true);
}

// Scaled sums are finite, or the row is invalid anyway, so one FMA is enough. Other scores may be the lowest
// value of the dtype, whose scaled value is not finite.
std::string FlashFrame::weight(const std::string& x, const std::string& h) const {
  if (exact()) return cat("expf(", exponent(x, h), ")");
  if (flash.scale) return cat("exp2_of(fmaf(", x, ", ", power_text(), ", -shift[", h, "]))");
  return cat("exp2_of((", x, " - shift[", h, "]) * ", power_text(), ")");
}

void FlashFrame::print_shift(const std::string& most) {
  text.line(cat("shift[h] = ", most, " == -__builtin_inff() ? 0.0f : ", most,
                flash.scale && !exact() ? cat(" * ", power_text()) : "", ";"));
}

// Subtracts first: the subtraction's rounding error is small where it matters.
std::string FlashFrame::exponent(const std::string& x, const std::string& h) const {
  const std::string unscaled = cat("(", x, " - shift[", h, "])");
  return flash.scale ? cat(unscaled, " * ", float_literal(static_cast<float>(*flash.scale), true)) : unscaled;
}

std::string FlashFrame::powers(const std::string& difference) const {
  return cat("(", difference, ") * ", power_text());
}

void FlashFrame::print_factors(const std::string& row, const std::string& most, const std::string& sums) {
  text.line("float factor[2];");
  text.line("bool dead[2];");
  text.line("#pragma unroll");
  text.open("for (int h = 0; h < 2; ++h)");
  text.line(cat("float all = ", sums, "[h];"));
  text.line("all += __shfl_xor_sync(~0u, all, 1);");
  text.line("all += __shfl_xor_sync(~0u, all, 2);");
  if (!flash.statistics.empty()) {
    text.open(cat("if (lane_id % 4 == 0 && ", row, " + h * 8 < row_count)"));
    const std::string scale =
        flash.scale ? cat(" * ", float_literal(static_cast<float>(*flash.scale), true)) : std::string();
    for (size_t i = 0; i < flash.statistics.size(); ++i) {
      const auto& [store, maximum, log_sum] = flash.statistics[i];
      text.line(cat("const float statistic", i, " = ", maximum ? cat(most, "[h]", scale) : "",
                    maximum && log_sum ? " + " : "", log_sum ? "logf(all)" : "", ";"));
      Body body = rows_;
      body.set_value(store->value, {.text = cat("statistic", i), .dtype = DType::kF32});
      body.print({*store});
    }
    text.close();
  }
  // Without keys, the sum is 0.
  text.line(cat("dead[h] = ", text.size(flash.keys.extent), " == 0", flash.guarded ? " || !(all > 0.0f)" : "",
                ";"));
  text.line("factor[h] = 1.0f / all;");
  if (flash.fixes) {
    text.open("if (fix[h])");
    text.line("dead[h] = false;");
    text.line("factor[h] = fixed[h];");
    text.close();
  }
  text.close();
}

void FlashFrame::print_value(const std::vector<const loop::Store*>& stores, const std::string& sum) {
  text.line(cat("const float sum = dead[h] ? 0.0f : ", sum, " * factor[h];"));
  Body body = values_;
  body.set_index(flash.columns.var, "(int64_t)at");
  body.set_value(flash.values().reduce->results[0], {.text = "sum", .dtype = DType::kF32});
  body.place = [&](const loop::Access& access) -> std::string {
    for (size_t i = 0; i < stores.size(); ++i)
      if (&stores[i]->access == &access) return cat("pair", i, "[w]");
    return {};
  };
  print_slice(body, value_statements_);
}

void FlashFrame::print_wide_values(int blocks, const std::string& row,
                                   const std::vector<const loop::Store*>& stores, const Element& element) {
  text.line("#pragma unroll");
  text.open("for (int h = 0; h < 2; ++h)");
  text.line("#pragma unroll");
  text.open(cat("for (int part = 0; part < ", blocks / 4, "; ++part)"));
  for (size_t i = 0; i < stores.size(); ++i) text.line(cat("unsigned words", i, "[4];"));
  text.line("#pragma unroll");
  text.open("for (int i = 0; i < 4; ++i)");
  for (size_t i = 0; i < stores.size(); ++i) text.line(cat("unsigned short pair", i, "[2];"));
  text.line("#pragma unroll");
  text.open("for (int w = 0; w < 2; ++w)");
  text.line("const int j = part * 4 + i, at = j * 8 + lane_id % 4 * 2 + w;");
  print_value(stores, element("j", "2 * h + w"));
  text.close();
  for (size_t i = 0; i < stores.size(); ++i)
    text.line(cat("words", i, "[i] = pair", i, "[0] | (unsigned)pair", i, "[1] << 16;"));
  text.close();
  for (size_t i = 0; i < stores.size(); ++i) text.line(cat("turn(words", i, ", lane_id);"));
  text.open(cat("if (", row, " + h * 8 < row_count)"));
  for (size_t i = 0; i < stores.size(); ++i) {
    Body there = values_;
    there.set_index(flash.columns.var, "(int64_t)(part * 32 + lane_id % 4 * 8)");
    text.line(cat("store_words(", text.pointer(stores[i]->access.buffer), " + (",
                  there.offset(stores[i]->access), "), words", i, ");"));
  }
  text.close();
  text.close();
  text.close();
}

void FlashFrame::print_values(int blocks, const std::string& row, bool pairs, const Element& element,
                              const std::string& own) {
  std::vector<const loop::Store*> paired, stores;
  bool wide = pairs && own.empty() && flash.width % 32 == 0;
  for (const Stmt* stmt : value_statements_)
    if (const auto* store = std::get_if<loop::Store>(&stmt->node)) {
      stores.push_back(store);
      if (pairs && store_condition(*store, 2)) paired.push_back(store);
      const auto condition = store_condition(*store, 8);
      wide = wide && condition && condition->is_const(1);
    }
  if (wide) return print_wide_values(blocks, row, stores, element);
  text.line("#pragma unroll");
  text.open("for (int h = 0; h < 2; ++h)");
  text.open(cat("if (", row, " + h * 8 < row_count)"));
  if (own.empty()) {
    text.line("#pragma unroll");
    text.open(cat("for (int j = 0; j < ", blocks, "; ++j)"));
  } else {
    text.open("");
    text.line(cat("const int j = ", own, ";"));
  }
  text.line("const int first = j * 8 + lane_id % 4 * 2;");
  if (flash.width % 16) text.open(cat("if (first < ", flash.width, ")"));
  for (size_t i = 0; i < paired.size(); ++i) text.line(cat("unsigned short pair", i, "[2];"));
  text.line("#pragma unroll");
  text.open("for (int w = 0; w < 2; ++w)");
  text.line("const int at = first + w;");
  if (flash.width % 2) text.open(cat("if (at < ", flash.width, ")"));
  print_value(paired, element("j", "2 * h + w"));
  if (flash.width % 2) text.close();
  text.close();
  for (size_t i = 0; i < paired.size(); ++i) {
    Body there = values_;
    there.set_index(flash.columns.var, "(int64_t)first");
    text.line(cat("*(unsigned*)(", text.pointer(paired[i]->access.buffer), " + (",
                  there.offset(paired[i]->access), ")) = pair", i, "[0] | (unsigned)pair", i, "[1] << 16;"));
  }
  if (flash.width % 16) text.close();
  text.close();
  text.close();
  text.close();
}

std::string flash_declarations(DType dtype) {
  const bool half = dtype == DType::kF16;
  return cat(
      "#ifdef STRIDEC_EMULATE\nstatic inline float exp2_of(float x) { return exp2f(x); }\n"
      "static inline unsigned pair_of(float low, float high) {\n  const auto bits = [](float x) { return ",
      half ? "(unsigned)__builtin_bit_cast(unsigned short, (_Float16)x)"
           : "(__builtin_bit_cast(unsigned, x) + 0x7fff + (__builtin_bit_cast(unsigned, x) >> 16 & 1)) >> 16",
      "; };\n  return bits(low) | bits(high) << 16;\n}\n",
      R"(static inline unsigned short load_pair(const void* from) { return *(const unsigned short*)from; }
static inline void load_words(unsigned (&w)[4], const void* from) { __builtin_memcpy(w, from, 16); }
static inline void store_words(void* to, const unsigned (&w)[4]) { __builtin_memcpy(to, w, 16); }
#else
)",
      "static inline float exp2_of(float x) { float y; asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : "
      "\"f\"(x)); return y; }\n"
      "static inline unsigned pair_of(float low, float high) { unsigned r; asm(\"cvt.rn.",
      half ? "f16x2" : "bf16x2", ".f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(high), \"f\"(low)); return r; }\n",
      R"(static inline unsigned short load_pair(const void* from) {
  unsigned short r;
  asm volatile("ld.global.nc.b16 %0, [%1];" : "=h"(r) : "l"(from));
  return r;
}
static inline void load_words(unsigned (&w)[4], const void* from) {
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from));
}
static inline void store_words(void* to, const unsigned (&w)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" :: "l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}
#endif
// Transposes words across four neighbouring lanes: lane l gets word l of each.
static inline void turn(unsigned (&w)[4], int lane) {
  #pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const bool upper = lane & step;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & step) continue;
      const unsigned a = w[i], b = w[i + step], got = __shfl_xor_sync(~0u, upper ? a : b, step);
      w[i] = upper ? got : a;
      w[i + step] = upper ? b : got;
    }
  }
}
)");
}

}  // namespace stridec::codegen::cuda
