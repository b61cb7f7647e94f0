#include "compiler/schedule/algebra/invariants.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/algebra/constants.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::NestId;
using loop::Program;
using loop::Stmt;
using loop::Store;
using sym::Expr;

bool is_const(const std::vector<Expr>& shape) {
  return std::all_of(shape.begin(), shape.end(), [](Expr size) { return size.is_const(); });
}

// A buffer that a nest writes, and which of its dims the nest's dim indexes.
struct Result {
  BufferId buffer;
  size_t component;
  bool operator==(const Result&) const = default;
};

class Shrinker {
 public:
  explicit Shrinker(Program& program)
      : program_(program), writers_(program.buffers.size()), readers_(program.buffers.size()) {
    loop::for_each_step(program.steps, [&](const loop::Step& step) {
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      const Effects effects = effects_of(program, step);
      for (const auto* list : {&effects.reads, &effects.writes})
        for (BufferId id : *list) {
          if (!launch)
            fixed_.insert(id);
          else
            (list == &effects.reads ? readers_ : writers_)[id.value].insert(launch->nest);
        }
      if (launch) nests_.insert(launch->nest);
    });
  }

  void run() {
    // Shrinking a buffer can make its readers independent of the dim as well.
    for (bool changed = true; changed;) {
      changed = false;
      for (NestId id : nests_)
        for (size_t d = program_[id].dims.size(); d-- > 0;)
          if (const auto results = made_alike(program_[id], program_[id].dims[d]))
            shrink(program_[id], program_[id].dims[d].var, *results), changed = true;
    }
  }

 private:
  // The buffers that the nest writes, if all are indexed by the dim and nothing else depends on it.
  std::optional<std::vector<Result>> made_alike(const Nest& nest, const loop::Dim& dim) const {
    if (!nest.schedule.kernel.empty() || dim.extent.is_const()) return std::nullopt;
    for (const loop::Dim& other : nest.dims)
      if (&other != &dim && !other.extent.is_const()) return std::nullopt;
    std::vector<Result> results;
    bool ok = true;
    loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      const auto* store = std::get_if<Store>(&stmt.node);
      const bool local = access && program_[access->buffer].storage == loop::Storage::kLocal;
      int uses = 0;
      loop::for_each_expr(stmt, [&](Expr e) { uses += sym::depends_on(e, dim.var); });
      if (!store || local) {
        ok = ok && uses == 0 && (!access || local || is_const(program_[access->buffer].shape));
        return;
      }
      const auto at = std::find(access->index.begin(), access->index.end(), dim.var);
      ok = ok && uses == 1 && at != access->index.end() && !store->update;
      if (!ok) return;
      const Result result{access->buffer, static_cast<size_t>(at - access->index.begin())};
      ok = may_shrink(result, dim.extent);
      if (std::find(results.begin(), results.end(), result) == results.end()) results.push_back(result);
    });
    if (!ok || results.empty()) return std::nullopt;
    return results;
  }

  bool may_shrink(const Result& result, Expr extent) const {
    const loop::Buffer& buffer = program_[result.buffer];
    return buffer.storage == loop::Storage::kArena && !fixed_.contains(result.buffer) &&
           writers_[result.buffer.value].size() == 1 && buffer.strides == loop::row_major(buffer.shape) &&
           program_.facts.holds(sym::eq(extent, buffer.shape[result.component]));
  }

  void shrink(Nest& nest, Expr var, const std::vector<Result>& results) {
    std::erase_if(nest.dims, [&](const loop::Dim& dim) { return dim.var == var; });
    loop::substitute(nest.body, {{var, 0}});
    for (const Result& result : results) {
      loop::Buffer& buffer = program_[result.buffer];
      buffer.shape[result.component] = 1;
      buffer.strides = loop::row_major(buffer.shape);
      for (NestId reader : readers_[result.buffer.value]) {
        loop::for_each_stmt(program_[reader].body, [&](Stmt& stmt) {
          if (loop::Access* access = loop::access_of(stmt); access && access->buffer == result.buffer)
            access->index[result.component] = 0;
        });
        loop::clean(program_, program_[reader]);
      }
    }
  }

  Program& program_;
  std::set<NestId> nests_;
  std::vector<std::set<NestId>> writers_, readers_;  // by buffer: launched nests
  std::set<BufferId> fixed_;                         // buffers that other steps read or write
};

}  // namespace

void shrink_invariants(Program& program) { Shrinker(program).run(); }

void fold_constants(Program& program) {
  shrink_invariants(program);
  hoist_constants(program);
  make_affine(program);
}

}  // namespace stridec::schedule
