// Traversal of statements and steps, for all code that reads or rewrites bodies. Callbacks of the mutable
// forms may change their argument.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

// The body of a reduce, for or scan; null for other statements.
Block* body_of(Stmt& stmt);
const Block* body_of(const Stmt& stmt);

// The dims of a reduce, for or scan; empty for other statements.
std::vector<Dim> dims_of(const Stmt& stmt);

// Every statement of the block, outer before inner, in order.
void for_each_stmt(Block& block, const std::function<void(Stmt&)>& visit);
void for_each_stmt(const Block& block, const std::function<void(const Stmt&)>& visit);

// Values that the statement defines in its enclosing block (not those that its body defines, nor a scan's
// carried values).
void for_each_result(Stmt& stmt, const std::function<void(ValueId&)>& visit);
void for_each_result(const Stmt& stmt, const std::function<void(ValueId)>& visit);
// The statement of this block (not of nested loops) that defines the value, or null.
const Stmt* definition(const Block& block, ValueId id);
// Values that the statement itself uses: arguments, stored and bound values, a scan's init, and its body's
// yields.
void for_each_use(Stmt& stmt, const std::function<void(ValueId&)>& visit);
void for_each_use(const Stmt& stmt, const std::function<void(ValueId)>& visit);
// Expressions that the statement itself holds: indices, masks, index values, extents. Variables that it
// defines are not included.
void for_each_expr(Stmt& stmt, const std::function<void(sym::Expr&)>& visit);
void for_each_expr(const Stmt& stmt, const std::function<void(sym::Expr)>& visit);

// The memory access of a load or store; null for other statements.
Access* access_of(Stmt& stmt);
const Access* access_of(const Stmt& stmt);

// Index variables that the statement defines: dims of a loop, the variable of a bind.
void for_each_index(Stmt& stmt, const std::function<void(sym::Expr&)>& visit);
void for_each_index(const Stmt& stmt, const std::function<void(sym::Expr)>& visit);

// Visits steps in order, including both branches of ifs and the bodies of whiles and tiled groups.
void for_each_step(Steps& steps, const std::function<void(Step&)>& visit);
void for_each_step(const Steps& steps, const std::function<void(const Step&)>& visit);

// Every list of steps; the lists of branches and bodies come before the list that contains them.
void for_each_block(Steps& steps, const std::function<void(Steps&)>& visit);

// The program's tiled groups, and the nests that their kernels run.
std::vector<const TiledGroup*> tiled_groups_of(const Program& program);
std::set<NestId> launched_in_groups(const Program& program);

// The buffers that the nest touches, in order of first appearance.
std::vector<BufferId> buffers_of(const Nest& nest);

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace stridec::loop
