#include "compiler/codegen/key_range.h"

#include "compiler/base/text.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen {

using loop::Stmt;
using sym::Expr;

std::vector<const Stmt*> slice(const loop::Block& body, size_t except, std::set<loop::ValueId> wanted,
                               bool stores) {
  std::vector<const Stmt*> out;
  for (size_t i = body.size(); i-- > 0;) {
    if (i == except) continue;
    bool keep = stores && std::holds_alternative<loop::Store>(body[i].node);
    loop::for_each_result(body[i], [&](loop::ValueId id) { keep = keep || wanted.contains(id); });
    if (!keep) continue;
    loop::for_each_use(body[i], [&](loop::ValueId id) { wanted.insert(id); });
    out.insert(out.begin(), &body[i]);
  }
  return out;
}

SeenKeys::SeenKeys(const kernels::Flash& flash, KernelText& text) : flash_(flash), text_(text) {
  std::set<loop::ValueId> values;
  for (const auto& [var, value] : flash.lengths) values.insert(value);
  lengths_ = slice(flash.scores_nest().body, flash.scores().at, values, false);
  if (flash.others)
    others_ = slice(flash.scores_nest().body, flash.scores().at, {flash.others->first}, false);
}

void SeenKeys::print_lengths(Body& scores, const std::vector<Body*>& others) const {
  if (flash_.lengths.empty()) return;
  Body body = scores;
  for (const Stmt* stmt : lengths_) body.print(*stmt);
  for (const auto& [var, value] : flash_.lengths) {
    const std::string name = text_.fresh("length");
    text_.line(cat("const int64_t ", name, " = ", body.value(value).text, ";"));
    scores.set_index(var, name);
    for (Body* other : others) other->set_index(var, name);
  }
}

void SeenKeys::print_hides(const Body& scores, const std::string& first_row) const {
  if (!flash_.asks) return;
  const std::string keys = text_.size(flash_.keys.extent);
  Body first = scores;
  first.set_index(flash_.chain.row.var, first_row);
  text_.line(cat("int64_t all_see = ", first.index(*flash_.visible), ";"));
  text_.line(cat("all_see = all_see < ", keys, " ? all_see : ", keys, ";"));
  if (!flash_.others) return text_.line("const bool hides = all_see > 0;");
  text_.line("bool hides = false;");
  text_.line("#pragma unroll");
  text_.open("for (int i = 0; i < 2; ++i)");
  text_.open("if (all_see > 0)");
  text_.line("const int64_t key = i ? all_see - 1 : 0;");
  first.set_index(flash_.keys.var, "key");
  for (const Stmt* stmt : others_) first.print(*stmt);
  const auto& [value, truth] = *flash_.others;
  text_.line(cat("hides = hides || ", truth ? "" : "!", "(", first.value(value).text, ");"));
  text_.close();
  text_.close();
}

void SeenKeys::print_end(const Body& scores, const std::string& name, const std::string& row) const {
  const std::string keys = text_.size(flash_.keys.extent);
  Body last = scores;
  last.set_index(flash_.chain.row.var, row);
  text_.line(cat("int64_t ", name, " = ", last.index(*flash_.visible), ";"));
  text_.line(cat(name, " = ", name, " < 0 ? 0 : ", name, " < ", keys, " ? ", name, " : ", keys, ";"));
  if (flash_.asks) text_.line(cat("if (!hides) ", name, " = ", keys, ";"));
}

std::set<Expr, sym::ExprLess> SeenKeys::batch_dims() const {
  std::set<Expr, sym::ExprLess> out;
  const auto add = [&](Expr e) {
    for (const loop::Dim& dim : flash_.chain.batch)
      if (sym::depends_on(e, dim.var)) out.insert(dim.var);
  };
  for (const auto* statements : {&lengths_, &others_})
    for (const Stmt* stmt : *statements) loop::for_each_expr(*stmt, add);
  add(*flash_.visible);
  return out;
}

}  // namespace stridec::codegen
