#include "compiler/codegen/host_context.h"

#include <algorithm>
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/sym/guard.h"
#include "compiler/sym/text.h"

namespace stridec::codegen {
namespace {

using sym::Expr;

struct SymbolRange {
  int64_t lo = 0, hi = INT64_MAX, multiple = 1;
};

class Context {
 public:
  Context(std::span<const loop::Program* const> programs, const loop::ModuleValues& states,
          HostMessages& messages, const std::vector<Expr>& sizes)
      : programs_(programs), states_(states), messages_(messages), sizes_(sizes) {}

  std::string text() {
    for (size_t i = 0; i < sizes_.size(); ++i) range(i);
    fit();
    guards();
    dims();
    return cat("static const stridec_abi_symbol module_sizes[] = {\n", rows_,
               "};\nstatic int32_t bind_context(const int64_t* v, int64_t* dims, stridec_abi_failure* "
               "failure) {\n  (void)dims;\n",
               body_, "  return 0;\n}\n");
  }

 private:
  std::string name(Expr symbol) const {
    return cat("v[", std::ranges::find(sizes_, symbol) - sizes_.begin(), "]");
  }
  std::string c(Expr e, const sym::Facts& facts) const {
    return sym::to_c(e, [&](Expr symbol) { return name(symbol); }, facts);
  }
  bool known(Expr e) const {
    return std::ranges::all_of(sym::free_vars(e),
                               [&](Expr symbol) { return std::ranges::count(sizes_, symbol) > 0; });
  }
  void check(const std::string& condition, const std::string& sentence,
             const std::vector<std::string>& values) {
    const std::string text = check_text(condition, sentence, values, messages_);
    if (body_.find(text) == std::string::npos) body_ += text;
  }

  // The range and the divisor of the size that all functions with this size accept.
  void range(size_t i) {
    SymbolRange all;
    for (const loop::Program* program : programs_) {
      if (std::ranges::count(program->symbols, sizes_[i], &loop::Symbol::var) == 0) continue;
      const sym::Interval own = program->facts.bounds(sizes_[i]);
      all.lo = std::max(all.lo, own.lo), all.hi = std::min(all.hi, own.hi);
      all.multiple = std::lcm(all.multiple, std::max<int64_t>(1, program->facts.known_divisor(sizes_[i])));
    }
    const std::string v = cat("v[", i, "]"), given = cat("a context with ", sym::escaped(sizes_[i].name()),
                                                         " {0}; this artifact serves ");
    const bool bounded = all.hi != INT64_MAX;
    check(cat(v, " >= ", all.lo, bounded ? cat(" && ", v, " <= ", all.hi, "l") : ""),
          cat(given, bounded ? "{1}..{2}" : "{1} and more"),
          {v, cat(all.lo), bounded ? cat(all.hi, "l") : "0"});
    if (all.multiple > 1)
      check(cat(v, " % ", all.multiple, " == 0"), cat(given, "multiples of {1}"), {v, cat(all.multiple)});
    rows_ +=
        cat("  {", c_string(sizes_[i].name()), ", ", all.lo, ", ", all.hi, "l, ", all.multiple, ", 0, 1},\n");
  }

  // Checks that the bytes of all states together fit into the address space.
  void fit() {
    constexpr int64_t kMost = int64_t{1} << 61;
    Expr bytes = 0;
    const sym::Facts none;
    for (const loop::ModuleValues::Value& state : states_.all) {
      const loop::Buffer& b = (*state.program)[state.buffer];
      Expr own = byte_size(b.dtype);
      for (const Expr& extent : b.shape) own = own * sym::max(extent, 1);
      bytes = bytes + own;
    }
    body_ += cat("  int32_t overflow = 0;\n  const int64_t bytes = ",
                 sym::to_checked_c(bytes, [&](Expr symbol) { return name(symbol); }, none), ";\n");
    check(cat("!overflow && bytes < ", kMost, "l"),
          "these sizes make states of more bytes than can be addressed", {});
  }

  void guards() {
    for (const loop::Program* program : programs_)
      for (const sym::Guard& guard : program->guards) {
        if (!known(guard.condition) || !std::ranges::all_of(guard.values, [&](Expr e) { return known(e); }))
          continue;
        std::vector<std::string> values;
        for (const Expr& e : guard.values) values.push_back(c(e, program->facts));
        check(c(guard.condition, program->facts), guard.sentence, values);
      }
  }

  void dims() {
    size_t at = 0;
    for (const loop::ModuleValues::Value& state : states_.all)
      for (const Expr& e : (*state.program)[state.buffer].shape)
        body_ += cat("  dims[", at++, "] = ", c(e, state.program->facts), ";\n");
  }

  std::span<const loop::Program* const> programs_;
  const loop::ModuleValues& states_;
  HostMessages& messages_;
  const std::vector<Expr>& sizes_;
  std::string rows_, body_;
};

}  // namespace

std::string check_text(const std::string& condition, const std::string& sentence,
                       std::span<const std::string> values, HostMessages& messages) {
  std::string list;
  for (size_t i = 0; i < 4; ++i) list += cat(", ", i < values.size() ? values[i] : "0");
  return cat("  if (!(", condition, ")) { stridec_abi_record(failure, ",
             messages.number(HostMessages::kGuard, sentence), list, "); return 1; }\n");
}

ContextText context_text(std::span<const loop::Program* const> programs, const loop::ModuleValues& states,
                         HostMessages& messages) {
  ContextText out{.text = "", .sizes = loop::context_sizes(programs)};
  if (!out.sizes.empty()) out.text = Context(programs, states, messages, out.sizes).text();
  return out;
}

}  // namespace stridec::codegen
