#include "compiler/codegen/cpu/chain_rows.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cpu {
namespace {

using loop::For;
using loop::Let;
using loop::Load;
using loop::Nest;
using loop::Reduce;
using loop::ScalarOp;
using loop::Stmt;
using loop::Store;
using loop::ValueId;

// Whether the access is unconditionally the row's element `var`.
bool is_element(const loop::Access& access, const loop::Dim& dim) {
  return access.mask.is_const(1) && access.index.size() == 1 && access.index[0] == dim.var;
}

// The row whose f32 elements the statement sums, and its dim.
struct RowSum {
  loop::BufferId row;
  loop::Dim dim;
};
std::optional<RowSum> row_sum(const Nest& nest, const Stmt& stmt) {
  const auto* reduce = std::get_if<Reduce>(&stmt.node);
  if (!reduce || reduce->combine != loop::Combine::kSum || reduce->dims.size() != 1 ||
      reduce->body.size() != 1 || reduce->results.size() != 1)
    return std::nullopt;
  const auto* load = std::get_if<Load>(&reduce->body[0].node);
  if (!load || reduce->yields[0] != load->result || !is_element(load->access, reduce->dims[0]) ||
      nest.values[load->result.value].dtype != DType::kF32)
    return std::nullopt;
  return RowSum{load->access.buffer, reduce->dims[0]};
}

bool is_zero(const Nest& nest, ValueId id) {
  return std::any_of(nest.body.begin(), nest.body.end(), [&](const Stmt& stmt) {
    const auto* constant = std::get_if<loop::Constant>(&stmt.node);
    return constant && constant->result == id && constant->value.f == 0;
  });
}

// Whether a top-level loop stores exponentials to the row.
bool holds_exponentials(const Nest& nest, loop::BufferId row) {
  for (const Stmt& stmt : nest.body) {
    const auto* loop = std::get_if<For>(&stmt.node);
    const auto* store = loop ? std::get_if<Store>(&loop->body.back().node) : nullptr;
    if (!store || store->access.buffer != row) continue;
    return std::any_of(loop->body.begin(), loop->body.end(), [&](const Stmt& inner) {
      const auto* let = std::get_if<Let>(&inner.node);
      return let && let->result == store->value && let->op == ScalarOp::kExp;
    });
  }
  return false;
}

// The statements that compute a top-level value of the nest; nothing if they need a buffer that the nest
// stores, or a loop.
std::optional<std::vector<const Stmt*>> of_row_alone(const Nest& nest, ValueId id) {
  std::set<loop::BufferId> stored;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    if (const auto* store = std::get_if<Store>(&stmt.node)) stored.insert(store->access.buffer);
  });
  std::set<ValueId> wanted = {id};
  std::vector<const Stmt*> slice;
  for (size_t at = nest.body.size(); at-- > 0;) {
    const Stmt& stmt = nest.body[at];
    bool makes = false;
    loop::for_each_result(stmt, [&](ValueId result) { makes = makes || wanted.erase(result) > 0; });
    if (!makes) continue;
    const auto* load = std::get_if<Load>(&stmt.node);
    if (loop::body_of(stmt) || (load && stored.contains(load->access.buffer))) return std::nullopt;
    loop::for_each_use(stmt, [&](ValueId used) { wanted.insert(used); });
    slice.insert(slice.begin(), &stmt);
  }
  if (!wanted.empty()) return std::nullopt;
  return slice;
}

// In a loop over a row: the division of the element by its sum, one of `sums`. The result is stored, possibly
// converted, and possibly as `isnan(quotient) ? 0 : quotient`, or with 0 selected by a condition on the whole
// row.
struct Division {
  const Let *divide = nullptr, *is_nan = nullptr, *select = nullptr, *hide = nullptr;
  std::vector<const Stmt*> hides;  // the statements that compute the condition
};
std::optional<Division> division(const Nest& nest, const For& loop, const std::map<ValueId, RowSum>& sums) {
  Division found;
  std::map<ValueId, loop::BufferId> elements;
  std::set<ValueId> quotients;
  auto divides = [&](const Let& let) {
    if (found.divide || let.op != ScalarOp::kDiv || nest.values[let.result.value].dtype != DType::kF32)
      return false;
    const auto element = elements.find(let.args[0]);
    const auto sum = sums.find(let.args[1]);
    return element != elements.end() && sum != sums.end() && sum->second.row == element->second &&
           sum->second.dim.extent == loop.dims[0].extent && holds_exponentials(nest, element->second);
  };
  for (const Stmt& stmt : loop.body) {
    if (const auto* load = std::get_if<Load>(&stmt.node)) {
      if (!is_element(load->access, loop.dims[0])) return std::nullopt;
      elements[load->result] = load->access.buffer;
    } else if (const auto* store = std::get_if<Store>(&stmt.node)) {
      if (store->update || !is_element(store->access, loop.dims[0]) || !quotients.contains(store->value))
        return std::nullopt;
    } else if (const auto* let = std::get_if<Let>(&stmt.node)) {
      if (divides(*let)) {
        found.divide = let;
      } else if (let->op == ScalarOp::kIsNan && found.divide && !found.is_nan &&
                 let->args[0] == found.divide->result) {
        found.is_nan = let;
        continue;
      } else if (let->op == ScalarOp::kSelect && found.is_nan && !found.select &&
                 let->args[0] == found.is_nan->result && is_zero(nest, let->args[1]) &&
                 let->args[2] == found.divide->result) {
        found.select = let;
      } else if (let->op == ScalarOp::kSelect && found.divide && !found.hide && is_zero(nest, let->args[1]) &&
                 let->args[2] == (found.select ? found.select : found.divide)->result) {
        auto hides = of_row_alone(nest, let->args[0]);
        if (!hides) return std::nullopt;
        found.hide = let;
        found.hides = *std::move(hides);
      } else if (let->op != ScalarOp::kCast || !quotients.contains(let->args[0])) {
        return std::nullopt;
      }
      quotients.insert(let->result);
    } else {
      return std::nullopt;
    }
  }
  if (!found.divide || (found.is_nan && !found.select)) return std::nullopt;
  return found;
}

// Number of loads from the buffer in the whole nest.
int count_loads(const Nest& nest, loop::BufferId buffer) {
  int count = 0;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    const auto* load = std::get_if<Load>(&stmt.node);
    count += load && load->access.buffer == buffer;
  });
  return count;
}

// Whether the buffer is the link's broadcast factor, with `count` elements per sum, and has no other reader.
bool multiplies(const kernels::Chain& chain, size_t link, loop::BufferId row, sym::Expr count) {
  const kernels::Chain::Part& part = chain.parts[link];
  const kernels::Contraction& contraction = part.link->contraction;
  const Load* load = part.link->row_factor().load;
  const loop::Dim& summed = contraction.reduce->dims[0];
  if (!load || load->access.buffer != row || contraction.reduce->dims.size() != 1 ||
      !is_element(load->access, summed) || summed.extent != count || contraction.dtype != DType::kF32)
    return false;
  for (size_t i = link; i < chain.parts.size(); ++i)
    if (count_loads(chain.parts[i].nest, row) != (i == link)) return false;
  return true;
}

}  // namespace

std::optional<DividedResults> divide_results(const loop::Program& program, kernels::Chain& chain) {
  for (size_t at = 0; at + 1 < chain.parts.size(); ++at) {
    kernels::Chain::Part &rows = chain.parts[at], &link = chain.parts[at + 1];
    if (rows.link || !link.link || rows.nest.body.empty()) continue;
    std::map<ValueId, RowSum> sums;
    for (const Stmt& stmt : rows.nest.body)
      if (const auto sum = row_sum(rows.nest, stmt))
        sums.emplace(std::get<Reduce>(stmt.node).results[0], *sum);
    auto* loop = std::get_if<For>(&rows.nest.body.back().node);
    if (!loop || loop->dims.size() != 1) continue;
    const auto found = division(rows.nest, *loop, sums);
    const auto* store = std::get_if<Store>(&loop->body.back().node);
    if (!found || !store || program[store->access.buffer].storage != loop::Storage::kLocal ||
        !multiplies(chain, at + 1, store->access.buffer, loop->dims[0].extent))
      continue;

    const kernels::Contraction& contraction = link.link->contraction;
    const ValueId sum = contraction.reduce->results[0];
    const auto after = link.nest.body.begin() + static_cast<std::ptrdiff_t>(contraction.at) + 1;
    loop::Block epilogue(std::make_move_iterator(after), std::make_move_iterator(link.nest.body.end()));
    link.nest.body.erase(after, link.nest.body.end());
    // The link's value ids are still those of the original nest, so the new statement can use them.
    const Let divide = *found->divide;
    ValueId result = divide.result;
    link.nest.body.push_back({Let{.result = result, .op = ScalarOp::kDiv, .args = {sum, divide.args[1]}}});
    // Add row-level values unless the link defines them already.
    const auto add_row_values = [&](const std::vector<const Stmt*>& slice) {
      std::set<ValueId> made;
      for (const Stmt& stmt : link.nest.body)
        loop::for_each_result(stmt, [&](ValueId id) { made.insert(id); });
      for (const Stmt* stmt : slice) {
        bool known = false;
        loop::for_each_result(*stmt, [&](ValueId id) { known = known || !made.insert(id).second; });
        if (!known) link.nest.body.push_back(*stmt);
      }
    };
    if (found->select) {
      Let is_nan = *found->is_nan, select = *found->select;
      result = select.result;
      is_nan.args[0] = divide.args[1];
      add_row_values(*of_row_alone(rows.nest, select.args[1]));
      link.nest.body.push_back({is_nan});
      link.nest.body.push_back({select});
    }
    if (found->hide) {
      Let hide = *found->hide;
      add_row_values(found->hides);
      add_row_values(*of_row_alone(rows.nest, hide.args[1]));
      hide.args[2] = result;
      result = hide.result;
      link.nest.body.push_back({hide});
    }
    loop::replace_uses(epilogue, sum, result);
    std::move(epilogue.begin(), epilogue.end(), std::back_inserter(link.nest.body));
    link.link = kernels::match_link(link.nest, link.link->columns);

    const DividedResults divided{at, divide.args[1], loop->dims[0].extent, found->select != nullptr};
    const std::set<const Let*> moved = {found->divide, found->is_nan, found->select, found->hide};
    loop::Block kept;
    for (Stmt& stmt : loop->body)
      if (!moved.contains(std::get_if<Let>(&stmt.node)) || !std::holds_alternative<Let>(stmt.node))
        kept.push_back(std::move(stmt));
    loop->body = std::move(kept);
    loop::replace_uses(loop->body, result, divide.args[0]);
    loop::replace_uses(loop->body, divide.result, divide.args[0]);
    const auto* first = std::get_if<Load>(&loop->body.front().node);
    const bool copies_itself = loop->body.size() == 2 && first &&
                               first->access.buffer == std::get<Store>(loop->body.back().node).access.buffer;
    if (copies_itself) rows.nest.body.pop_back();
    return divided;
  }
  return std::nullopt;
}

void sum_where_stored(Nest& rows) {
  for (size_t at = 0; at + 1 < rows.body.size(); ++at) {
    auto* loop = std::get_if<For>(&rows.body[at].node);
    const auto sum = row_sum(rows, rows.body[at + 1]);
    if (!loop || !sum || loop->dims.size() != 1 || loop->dims[0].extent != sum->dim.extent) continue;
    const auto* store = std::get_if<Store>(&loop->body.back().node);
    if (!store || store->update || store->access.buffer != sum->row ||
        !is_element(store->access, loop->dims[0]) || rows.values[store->value.value].dtype != DType::kF32)
      continue;
    auto& reduce = std::get<Reduce>(rows.body[at + 1].node);
    reduce.yields = {store->value};
    reduce.dims = std::move(loop->dims);
    reduce.body = std::move(loop->body);
    rows.body.erase(rows.body.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace stridec::codegen::cpu
