#include "compiler/schedule/fusion/distribute_loops.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/nest_traits.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::BufferId;
using loop::For;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using loop::ValueId;

constexpr double kFewPoints = 4096;  // points that a GPU shares among its multiprocessors
constexpr double kLongLoop = 2048;   // iterations that exceed what a thread group holds in registers
constexpr double kElements = 1 << 18;
constexpr double kFewBytes = 64;  // numbers of a point that may pass through memory

std::set<BufferId> stored_by(const Stmt& stmt) {
  std::set<BufferId> out;
  loop::for_each_stmt(Block{stmt}, [&](const Stmt& inner) {
    if (const auto* store = std::get_if<loop::Store>(&inner.node)) out.insert(store->access.buffer);
  });
  return out;
}

std::set<BufferId> loaded_by(const Stmt& stmt) {
  std::set<BufferId> out;
  loop::for_each_stmt(Block{stmt}, [&](const Stmt& inner) {
    if (const auto* load = std::get_if<loop::Load>(&inner.node)) out.insert(load->access.buffer);
  });
  return out;
}

bool meet(const std::set<BufferId>& a, const std::set<BufferId>& b) {
  return std::ranges::any_of(a, [&](BufferId id) { return b.contains(id); });
}

class Distributor {
 public:
  Distributor(Program& program, const Nest& nest, double shared_bytes)
      : program_(program), nest_(nest), shared_bytes_(shared_bytes) {
    look();
  }

  // The nests before, of, and after the first long loop; none if there is no such loop.
  std::vector<Nest> run() {
    if (!may_distribute()) return {};
    size_t at = 0;
    while (at < nest_.body.size() && !is_long(at)) ++at;
    if (at == nest_.body.size()) return {};
    find_after(at);
    if (!move_rows(at)) return {};
    find_cheap();
    Block after;
    std::vector<Nest> out(1, nest_);
    out[0].body.clear();
    for (size_t other = 0; other < nest_.body.size(); ++other)
      if (other != at) (after_.contains(other) ? after : out[0].body).push_back(nest_.body[other]);
    const auto& loop = std::get<For>(nest_.body[at].node);
    std::vector<loop::Dim> dims = nest_.dims;
    dims.insert(dims.end(), loop.dims.begin(), loop.dims.end());
    out.push_back(part(std::move(dims), loop.body, out[0]));
    if (!after.empty()) out.push_back(part(nest_.dims, after, out[0]));
    for (Nest& nest : out) loop::clean(program_, nest);
    return out;
  }

 private:
  void look() {
    stores_.clear(), loads_.clear();
    for (const Stmt& stmt : nest_.body) {
      stores_.push_back(stored_by(stmt));
      loads_.push_back(loaded_by(stmt));
      written_.insert(stores_.back().begin(), stores_.back().end());
    }
  }

  // Replaces local rows that more than one of the nests uses by arena buffers. Returns false if one of them
  // is worth keeping in shared memory, and fits: then the nest stays whole.
  bool move_rows(size_t at) {
    const auto part_of = [&](size_t other) { return other == at ? 1 : after_.contains(other) ? 2 : 0; };
    std::map<BufferId, std::set<int>> parts;
    for (size_t other = 0; other < nest_.body.size(); ++other)
      for (const auto* touched : {&stores_[other], &loads_[other]})
        for (const BufferId id : *touched)
          if (program_[id].storage == loop::Storage::kLocal) parts[id].insert(part_of(other));
    const bool along_points = runs_along_points();
    std::map<BufferId, BufferId> moved;
    for (const auto& [id, used] : parts) {
      if (used.size() < 2) continue;
      const loop::Buffer& row = program_[id];
      const double bytes = typical_bytes(program_, id);
      // If memory runs along the points, a block takes tens of them, whose rows do not fit together.
      if (bytes > kFewBytes && !along_points && bytes <= shared_bytes_) return false;
      loop::Buffer buffer{.name = "", .dtype = row.dtype, .shape = row.shape};
      for (const loop::Dim& dim : nest_.dims) buffer.shape.push_back(dim.extent);
      if (!along_points) {
        std::vector<size_t> order(buffer.shape.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::ranges::rotate(order, order.begin() + static_cast<std::ptrdiff_t>(row.shape.size()));
        buffer.strides = dense_strides(buffer.shape, order);
      }
      moved[id] = loop::add_buffer(program_, std::move(buffer));
    }
    if (moved.empty()) return true;
    loop::for_each_stmt(nest_.body, [&](Stmt& stmt) {
      Access* access = loop::access_of(stmt);
      const auto to = access ? moved.find(access->buffer) : moved.end();
      if (to == moved.end()) return;
      access->buffer = to->second;
      for (const loop::Dim& dim : nest_.dims) access->index.push_back(dim.var);
    });
    look();
    return true;
  }

  // Whether what the nest reads is contiguous along its last dim.
  bool runs_along_points() const {
    bool along = false;
    loop::for_each_stmt(nest_.body, [&](const Stmt& stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (!load || program_[load->access.buffer].strides.size() < 2) return;
      const loop::Buffer& buffer = program_[load->access.buffer];
      for (size_t d = 0; d < buffer.strides.size(); ++d)
        along = along || (buffer.strides[d].is_const(1) && !buffer.shape[d].is_const(1) &&
                          load->access.index[d] == nest_.dims.back().var);
    });
    return along;
  }

  bool may_distribute() const {
    if (is_contraction(nest_) || !nest_.schedule.kernel.empty()) return false;
    const bool reduces = std::ranges::any_of(
        nest_.body, [](const Stmt& stmt) { return std::holds_alternative<loop::Reduce>(stmt.node); });
    if (!reduces || typical_points(nest_.dims, program_.facts) >= kFewPoints) return false;
    for (const loop::Dim& dim : nest_.dims)
      if (sym::has_index(dim.extent)) return false;
    bool plain = true;
    loop::for_each_stmt(nest_.body, [&](const Stmt& stmt) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      plain = plain && !std::holds_alternative<loop::Bind>(stmt.node) &&
              !std::holds_alternative<loop::Scan>(stmt.node) && !(store && store->update);
    });
    return plain;
  }

  bool is_long(size_t at) const {
    const auto* loop = std::get_if<For>(&nest_.body[at].node);
    if (!loop) return false;
    for (const loop::Dim& dim : loop->dims)
      if (sym::has_index(dim.extent)) return false;
    const auto points = [&](const std::vector<loop::Dim>& dims) {
      return typical_points(dims, program_.facts);
    };
    const double iterations = points(loop->dims) * longest_loops(loop->body, points);
    return iterations >= kLongLoop && iterations * typical_points(nest_.dims, program_.facts) >= kElements;
  }

  // The statements that have to run after the loop: they read or replace what it stores, replace what it
  // reads, or depend on such statements.
  void find_after(size_t at) {
    std::set<BufferId> stored = stores_[at], loaded = loads_[at];
    std::set<ValueId> values;
    for (size_t other = at + 1; other < nest_.body.size(); ++other) {
      bool after =
          meet(stored, loads_[other]) || meet(stored, stores_[other]) || meet(loaded, stores_[other]);
      const Block one = {nest_.body[other]};
      loop::for_each_stmt(one, [&](const Stmt& stmt) {
        loop::for_each_use(stmt, [&](ValueId id) { after = after || values.contains(id); });
      });
      if (!after) continue;
      after_.insert(other);
      stored.insert(stores_[other].begin(), stores_[other].end());
      loaded.insert(loads_[other].begin(), loads_[other].end());
      loop::for_each_result(nest_.body[other], [&](ValueId id) { values.insert(id); });
    }
  }

  // Values at the top of the nest that need no loop, from memory that the nest leaves alone.
  void find_cheap() {
    for (const Stmt& stmt : nest_.body) {
      if (loop::body_of(stmt) || std::holds_alternative<loop::Store>(stmt.node)) continue;
      bool cheap = true;
      if (const auto* load = std::get_if<loop::Load>(&stmt.node))
        cheap = !written_.contains(load->access.buffer);
      loop::for_each_use(stmt, [&](ValueId id) { cheap = cheap && cheap_.contains(id); });
      if (cheap) loop::for_each_result(stmt, [&](ValueId id) { cheap_.insert(id); });
    }
  }

  // The place in memory from which later nests load a value: where the first one stores it anyway, or a new
  // buffer.
  Access place_of(ValueId id, Nest& first) {
    for (const auto& [known, access] : passed_)
      if (known == id) return access;
    Access access;
    for (const loop::Dim& dim : nest_.dims) access.index.push_back(dim.var);
    for (size_t at = 0; at < nest_.body.size(); ++at) {
      const auto* store = std::get_if<loop::Store>(&nest_.body[at].node);
      if (!store || store->value != id || !store->access.mask.is_const(1) || after_.contains(at) ||
          store->access.index != access.index)
        continue;
      const auto others = std::ranges::count_if(
          stores_, [&](const std::set<BufferId>& stored) { return stored.contains(store->access.buffer); });
      if (others > 1 || program_[store->access.buffer].storage != loop::Storage::kArena) continue;
      passed_.emplace_back(id, store->access);
      return store->access;
    }
    loop::Buffer buffer{.name = "", .dtype = nest_.values[id.value].dtype};
    for (const loop::Dim& dim : nest_.dims) buffer.shape.push_back(dim.extent);
    access.buffer = loop::add_buffer(program_, std::move(buffer));
    first.body.push_back({loop::Store{.access = access, .value = id}});
    passed_.emplace_back(id, access);
    return access;
  }

  // A nest of some of the statements. Other values that they use are computed again if they are cheap, and
  // loaded otherwise.
  Nest part(std::vector<loop::Dim> dims, const Block& body, Nest& first) {
    Nest out = nest_;
    out.dims = std::move(dims);
    out.body.clear();
    std::set<ValueId> inside, used;
    loop::for_each_stmt(body, [&](const Stmt& stmt) {
      loop::for_each_result(stmt, [&](ValueId id) { inside.insert(id); });
      loop::for_each_use(stmt, [&](ValueId id) { used.insert(id); });
    });
    for (const Stmt& stmt : nest_.body) {
      bool cheap = false;
      loop::for_each_result(stmt, [&](ValueId id) {
        cheap = cheap_.contains(id) && !inside.contains(id);
        if (cheap || inside.contains(id) || !used.contains(id)) return;
        const DType dtype = nest_.values[id.value].dtype;
        out.body.push_back({loop::Load{id, place_of(id, first), loop::float_scalar(dtype, 0)}});
      });
      if (cheap) out.body.push_back(stmt);
    }
    out.body.insert(out.body.end(), body.begin(), body.end());
    return out;
  }

  Program& program_;
  Nest nest_;  // a copy: new buffers may move the program's nests
  const double shared_bytes_;
  std::vector<std::set<BufferId>> stores_, loads_;  // by statement
  std::set<BufferId> written_;
  std::set<size_t> after_;  // statements
  std::set<ValueId> cheap_;
  std::vector<std::pair<ValueId, Access>> passed_;
};

}  // namespace

void distribute_loops(Program& program, const GpuTarget& target, std::vector<Decision>* decisions) {
  loop::replace_nests(program, [&](const Nest& nest) {
    std::vector<Nest> done, open(1, nest);  // open: the next nest last
    while (!open.empty()) {
      Nest next = std::move(open.back());
      open.pop_back();
      std::vector<Nest> parts = Distributor(program, next, target.shared_bytes).run();
      if (parts.empty()) done.push_back(std::move(next));
      std::move(parts.rbegin(), parts.rend(), std::back_inserter(open));
    }
    if (done.size() == 1) return std::vector<Nest>{};
    if (decisions)
      decisions->push_back(decision_about(nest, "its long loops", false, "too few points to occupy the GPU"));
    return done;
  });
}

}  // namespace stridec::schedule
