#include "compiler/schedule/layout/narrow_storage.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::NestId;

constexpr double kLarge = 1 << 16;  // elements
constexpr double kWindow = 64;      // most terms of a sum over neighbours, such as that of pooling

struct Uses {
  std::set<NestId> readers, writers;
  bool other = false;  // used by steps other than launches
};

class Narrowing {
 public:
  Narrowing(loop::Program& program, DType to) : program_(program), to_(to), uses_(program.buffers.size()) {}

  void run() {
    find_uses();
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      const BufferId id{static_cast<int32_t>(b)};
      if (may_narrow(id)) narrow(id);
    }
    for (NestId id : touched_) loop::clean(program_, program_[id]);
    for (NestId id : touched_) store_once(program_[id].body);
    // Rounding a value that is rounded already is now a copy, so readers of the copy can read the original.
    for (const loop::Step& step : program_.steps)
      if (const auto* launch = std::get_if<loop::Launch>(&step.node);
          launch && touched_.contains(launch->nest))
        read_original(launch->nest);
    std::erase_if(program_.steps, [&](const loop::Step& step) {
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      return launch && dropped_.contains(launch->nest);
    });
  }

 private:
  void find_uses() {
    loop::for_each_step(program_.steps, [&](const loop::Step& step) {
      auto other = [&](BufferId id) {
        if (id.valid()) uses_[id.value].other = true;
      };
      std::visit(loop::Overloaded{
                     [&](const loop::Launch& launch) {
                       ++launches_[launch.nest];
                       const loop::Effects effects = loop::effects_of(program_[launch.nest]);
                       for (BufferId id : effects.reads) uses_[id.value].readers.insert(launch.nest);
                       for (BufferId id : effects.writes) uses_[id.value].writers.insert(launch.nest);
                     },
                     [&](const loop::BindSymbol& bind) { other(bind.buffer); }, [&](const loop::If&) {},
                     [&](const loop::While& loop) { other(loop.condition); }, [&](const loop::TiledGroup&) {},
                     [&](const loop::Call& call) {
                       for (BufferId id : call.reads) other(id);
                       for (BufferId id : call.writes) other(id);
                     },
                     [&](const loop::Copy& copy) { other(copy.from), other(copy.to); }},
                 step.node);
    });
    for (const loop::Step& step : program_.steps)
      if (const auto* launch = std::get_if<loop::Launch>(&step.node)) ++on_top_[launch->nest];
  }

  bool may_narrow(BufferId id) const {
    const loop::Buffer& buffer = program_[id];
    const Uses& uses = uses_[id.value];
    if (buffer.dtype != DType::kF32 || buffer.storage != loop::Storage::kArena || uses.other ||
        uses.writers.empty() || uses.readers.empty())
      return false;
    if (typical(loop::element_count(buffer.shape), program_.facts) < kLarge) return false;
    for (NestId writer : uses.writers)
      if (uses.readers.contains(writer) || !makes_elements(program_[writer], id)) return false;
    if (std::ranges::any_of(uses.readers, [&](NestId reader) { return changes_state(program_[reader]); }))
      return false;
    bool exact = true;
    for (NestId reader : uses.readers)
      loop::for_each_stmt(program_[reader].body, [&](const loop::Stmt& stmt) {
        const auto* load = std::get_if<loop::Load>(&stmt.node);
        if (load && load->access.buffer == id)
          exact = exact && loop::float_scalar(to_, load->fill.f).f == load->fill.f;
      });
    return exact;
  }

  // Whether the nest computes a state's new value from its old one, other than as an epilogue: rounding what
  // it reads would add up over runs.
  bool changes_state(const loop::Nest& nest) const {
    if (loop::classify_contraction(nest)) return false;
    const loop::Effects effects = loop::effects_of(nest);
    return std::ranges::any_of(effects.writes, [&](BufferId id) {
      return program_[id].storage == loop::Storage::kState && std::ranges::count(effects.reads, id) > 0;
    });
  }

  // Whether the nest's stores to the buffer are final results, not partial sums.
  bool makes_elements(const loop::Nest& nest, BufferId id) const {
    if (!nest.schedule.kernel.empty()) return false;
    const bool contraction = loop::classify_contraction(nest).has_value();
    bool plain = true, reduces = false;
    for (const loop::Stmt& stmt : nest.body) {
      if (const auto* reduce = std::get_if<loop::Reduce>(&stmt.node))
        reduces = reduces || !is_window(nest, *reduce);
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (store && store->access.buffer == id && reduces && !contraction) plain = false;
    }
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      if (std::holds_alternative<loop::Scan>(stmt.node)) plain = false;
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (store && store->update) plain = false;
    });
    return plain;
  }

  // Whether the reduction combines a few neighbours of its point, as pooling does.
  bool is_window(const loop::Nest& nest, const loop::Reduce& reduce) const {
    double points = 1;
    for (const loop::Dim& dim : reduce.dims) {
      const sym::Interval range = program_.facts.bounds(dim.extent);
      points *= range.has_hi() ? static_cast<double>(range.hi) : std::numeric_limits<double>::infinity();
    }
    bool beside = true;
    loop::for_each_stmt(reduce.body, [&](const loop::Stmt& stmt) {
      if (const auto* load = std::get_if<loop::Load>(&stmt.node))
        for (const sym::Expr index : load->access.index)
          beside =
              beside && (!loop::depends_on_any(index, reduce.dims) || loop::depends_on_any(index, nest.dims));
    });
    return beside && points <= kWindow;
  }

  void narrow(BufferId id) {
    program_[id].dtype = to_;
    for (const std::set<NestId>* nests : {&uses_[id.value].readers, &uses_[id.value].writers})
      for (NestId nest : *nests) {
        convert(program_[nest], program_[nest].body, id);
        touched_.insert(nest);
      }
  }

  void convert(loop::Nest& nest, loop::Block& block, BufferId id) {
    loop::Block out;
    for (loop::Stmt& stmt : block) {
      if (loop::Block* body = loop::body_of(stmt)) convert(nest, *body, id);
      const loop::Access* access = loop::access_of(stmt);
      if (!access || access->buffer != id) {
        out.push_back(std::move(stmt));
        continue;
      }
      if (auto* load = std::get_if<loop::Load>(&stmt.node)) {
        const loop::ValueId wide = load->result, stored = loop::add_value(nest, to_);
        load->result = stored;
        load->fill = loop::float_scalar(to_, load->fill.f);
        out.push_back(std::move(stmt));
        out.push_back({loop::Let{wide, loop::ScalarOp::kCast, {stored}}});
      } else {
        auto& store = std::get<loop::Store>(stmt.node);
        const loop::ValueId stored = loop::add_value(nest, to_);
        out.push_back({loop::Let{stored, loop::ScalarOp::kCast, {store.value}}});
        store.value = stored;
        out.push_back(std::move(stmt));
      }
    }
    block = std::move(out);
  }

  // If a block stores the same values in the same places of two buffers, keeps only one of them.
  void store_once(loop::Block& block) {
    for (size_t i = 0; i < block.size(); ++i) {
      if (auto* loop = std::get_if<loop::For>(&block[i].node)) store_once(loop->body);
      const auto* kept = std::get_if<loop::Store>(&block[i].node);
      if (!kept) continue;
      for (size_t j = block.size(); j-- > i + 1;) {
        const auto* other = std::get_if<loop::Store>(&block[j].node);
        if (!other || !are_equal(*kept, *other)) continue;
        const BufferId from = other->access.buffer, to = kept->access.buffer;
        for (NestId reader : uses_[from.value].readers)
          loop::for_each_stmt(program_[reader].body, [&](loop::Stmt& stmt) {
            if (loop::Access* access = loop::access_of(stmt); access && access->buffer == from)
              access->buffer = to;
          });
        uses_[to.value].readers.merge(uses_[from.value].readers);
        uses_[from.value] = {};
        block.erase(block.begin() + static_cast<std::ptrdiff_t>(j));
      }
    }
  }

  bool is_own(BufferId id) const {
    const Uses& uses = uses_[id.value];
    return program_[id].storage == loop::Storage::kArena && uses.writers.size() == 1 && !uses.other;
  }

  void read_original(NestId id) {
    const loop::Nest& nest = program_[id];
    if (nest.body.size() != 2) return;
    const auto* load = std::get_if<loop::Load>(&nest.body[0].node);
    const auto* store = std::get_if<loop::Store>(&nest.body[1].node);
    if (!load || !store || store->value != load->result || store->update || !load->access.mask.is_const(1) ||
        !store->access.mask.is_const(1))
      return;
    const BufferId from = load->access.buffer, to = store->access.buffer;
    if (!is_own(from) || !is_own(to) || from == to || !launched_once_on_top(id) ||
        !launched_once_on_top(*uses_[from.value].writers.begin()))
      return;
    std::set<sym::Expr, sym::ExprLess> dims;
    for (const loop::Dim& dim : nest.dims) dims.insert(dim.var);
    for (sym::Expr index : store->access.index)
      if (!dims.erase(index)) return;
    if (!dims.empty()) return;
    const loop::Access read = load->access, written = store->access;
    for (NestId reader : uses_[to.value].readers) {
      const sym::Facts facts = loop::facts_of(program_, program_[reader]);
      loop::for_each_stmt(program_[reader].body, [&](loop::Stmt& stmt) {
        loop::Access* access = loop::access_of(stmt);
        if (!access || access->buffer != to) return;
        sym::Substitution at;
        for (size_t d = 0; d < written.index.size(); ++d) at[written.index[d]] = access->index[d];
        access->buffer = from;
        access->index = read.index;
        for (sym::Expr& index : access->index) index = sym::simplify(sym::substitute(index, at), facts);
      });
    }
    uses_[from.value].readers.erase(id);
    uses_[from.value].readers.merge(uses_[to.value].readers);
    uses_[to.value] = {};
    dropped_.insert(id);
  }

  // Whether the nest runs only once, outside of loops and branches, so that what it wrote stays.
  bool launched_once_on_top(NestId id) const {
    const auto top = on_top_.find(id);
    return launches_.at(id) == 1 && top != on_top_.end() && top->second == 1;
  }

  bool are_equal(const loop::Store& a, const loop::Store& b) const {
    const loop::Buffer &x = program_[a.access.buffer], &y = program_[b.access.buffer];
    return a.value == b.value && !a.update && !b.update && a.access.buffer != b.access.buffer &&
           is_own(a.access.buffer) && is_own(b.access.buffer) && x.dtype == y.dtype && x.shape == y.shape &&
           a.access.index == b.access.index && a.access.mask == b.access.mask;
  }

  loop::Program& program_;
  const DType to_;
  std::vector<Uses> uses_;
  // Number of steps that launch a nest: all of them, and those outside of branches and loops.
  std::map<NestId, int> launches_, on_top_;
  std::set<NestId> touched_, dropped_;
};

}  // namespace

void widen_tf32(loop::Program& program) {
  const auto widen = [](DType& dtype) {
    const bool is = dtype == DType::kTF32;
    if (is) dtype = DType::kF32;
    return is;
  };
  for (loop::Buffer& buffer : program.buffers) widen(buffer.dtype);
  for (loop::Nest& nest : program.nests) {
    bool any = false;
    for (loop::ValueInfo& value : nest.values) any = widen(value.dtype) || any;
    loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
      if (auto* load = std::get_if<loop::Load>(&stmt.node)) any = widen(load->fill.dtype) || any;
      if (auto* constant = std::get_if<loop::Constant>(&stmt.node)) any = widen(constant->value.dtype) || any;
    });
    if (any) loop::clean(program, nest);
  }
}

void narrow_storage(loop::Program& program, DType factors) {
  if (byte_size(factors) >= byte_size(DType::kF32)) return;
  Narrowing(program, factors).run();
}

}  // namespace stridec::schedule
