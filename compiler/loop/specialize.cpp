#include "compiler/loop/specialize.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {
namespace {

using sym::Expr;

sym::Substitution constants_of(const Program& program, const SymbolValues& values) {
  sym::Substitution constants;
  for (const auto& [name, value] : values) {
    const auto named = [&, &n = name](const Symbol& s) {
      return is_bound_before_run(program, s) && s.var.name() == n;
    };
    const auto symbol = std::find_if(program.symbols.begin(), program.symbols.end(), named);
    if (symbol == program.symbols.end())
      fail(ErrorKind::kUsage, "unknown-symbol",
           cat("'", name, "' is not a size of the model's inputs or states"),
           program.symbols.empty() ? "its sizes are all fixed"
                                   : cat("its sizes are ", join(program.symbols, ", ", [](const Symbol& s) {
                                           return s.var.name();
                                         })));
    const bool fits = program.facts.bounds(symbol->var).contains(value) &&
                      program.facts.with(sym::eq(symbol->var, value)).contradictory() == false;
    if (!fits)
      fail(ErrorKind::kUsage, "bad-size", cat(name, " = ", value, " is outside of what the model allows"),
           "'stridec check' lists its sizes");
    constants.emplace(symbol->var, value);
  }
  return constants;
}

}  // namespace

Program specialized(const Program& program, const SymbolValues& values) {
  const sym::Substitution constants = constants_of(program, values);
  Program out = program;
  for (const auto& [symbol, value] : constants) out.facts.set_range(symbol, value.value(), value.value());
  auto replace = [&](Expr& e) {
    if (!e.is_const()) e = sym::simplify(sym::substitute(e, constants), out.facts);
  };
  for (Buffer& buffer : out.buffers) {
    for (Expr& e : buffer.shape) replace(e);
    for (Expr& e : buffer.strides) replace(e);
    replace(buffer.offset);
  }
  for (Nest& nest : out.nests) {
    for (Dim& dim : nest.dims) replace(dim.extent);
    substitute(nest.body, constants);
    simplify(out, nest);
  }
  for_each_step(out.steps, [&](Step& step) {
    std::visit(Overloaded{[&](BindSymbol& s) {
                            replace(s.lower), replace(s.upper);
                            for (Expr& e : s.values) replace(e);
                          },
                          [&](If& s) { replace(s.condition); }, [&](While& s) { replace(s.trip_count); },
                          [&](TiledGroup& s) {
                            replace(s.points), replace(s.rounds);
                            for (TiledGroup::Size& size : s.sizes) replace(size.value), replace(size.total);
                            for (TiledGroup::Carried& each : s.carried) replace(each.base);
                          },
                          [&](Call& s) {
                            for (Expr& e : s.arguments) replace(e);
                          },
                          [](auto&) {}},
               step.node);
  });
  return out;
}

Expr condition_of(const SymbolValues& values) {
  std::vector<Expr> all;
  for (const auto& [name, value] : values) all.push_back(sym::eq(sym::var(name), value));
  return sym::logical_and(all);
}

}  // namespace stridec::loop
