// DCE: removes nests and buffers that are unreachable.
#include <algorithm>

#include "compiler/loop/provenance.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {
namespace {

void for_each_buffer(Nest& nest, const std::function<void(BufferId&, bool stores)>& visit) {
  for_each_stmt(nest.body, [&](Stmt& s) {
    if (Access* a = access_of(s)) visit(a->buffer, std::holds_alternative<Store>(s.node));
  });
}

void for_each_buffer(Step& step, const std::function<void(BufferId&)>& visit) {
  std::visit(Overloaded{[&](BindSymbol& s) { visit(s.buffer); },
                        [&](While& s) {
                          if (s.condition.valid()) visit(s.condition);
                        },
                        [&](TiledGroup& s) {
                          for (BufferId& id : s.own) visit(id);
                          for (TiledGroup::Carried& each : s.carried) visit(each.buffer);
                        },
                        [&](Call& s) {
                          for (BufferId& id : s.reads) visit(id);
                          for (BufferId& id : s.writes) visit(id);
                        },
                        [&](Copy& s) {
                          visit(s.from);
                          visit(s.to);
                        },
                        [](auto&) {}},
             step.node);
}

}  // namespace

void eliminate_dead_code(Program& program) {
  std::vector<bool> nests(program.nests.size(), false), buffers(program.buffers.size(), false);
  auto keep_nest = [&](NestId id) {
    nests[id.value] = true;
    for_each_buffer(program[id], [&](BufferId& b, bool) { buffers[b.value] = true; });
  };
  for (auto* ids : {&program.inputs, &program.outputs, &program.states, &program.parameters})
    for (BufferId id : *ids) buffers[id.value] = true;
  for_each_step(program.steps, [&](Step& step) {
    if (auto* launch = std::get_if<Launch>(&step.node)) keep_nest(launch->nest);
    for_each_buffer(step, [&](BufferId& id) { buffers[id.value] = true; });
  });
  // Backwards, since a prepack nest may read what an earlier one writes.
  for (size_t i = program.prepack.size(); i-- > 0;) {
    bool wanted = false;
    for_each_buffer(program[program.prepack[i]],
                    [&](BufferId& b, bool stores) { wanted = wanted || (stores && buffers[b.value]); });
    if (wanted) keep_nest(program.prepack[i]);
  }

  auto places = [](const std::vector<bool>& kept) {
    std::vector<int64_t> out;
    int64_t next = 0;
    for (bool k : kept) out.push_back(k ? next++ : -1);
    return out;
  };
  std::vector<int64_t> new_nest = places(nests), new_buffer = places(buffers);
  auto move_buffer = [&](BufferId& id) { id = BufferId(new_buffer[id.value]); };
  for (size_t i = 0; i < program.nests.size(); ++i)
    if (nests[i]) for_each_buffer(program.nests[i], [&](BufferId& id, bool) { move_buffer(id); });
  for_each_step(program.steps, [&](Step& step) {
    if (auto* launch = std::get_if<Launch>(&step.node)) launch->nest = NestId(new_nest[launch->nest.value]);
    for_each_buffer(step, move_buffer);
  });
  std::erase_if(program.prepack, [&](NestId id) { return !nests[id.value]; });
  for (NestId& id : program.prepack) id = NestId(new_nest[id.value]);
  for (auto* ids : {&program.inputs, &program.outputs, &program.states, &program.parameters})
    for (BufferId& id : *ids) move_buffer(id);

  auto squeeze = [](auto& items, const std::vector<bool>& kept) {
    size_t next = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!kept[i]) continue;
      if (next != i) items[next] = std::move(items[i]);
      ++next;
    }
    items.resize(next);
  };
  squeeze(program.nests, nests);
  squeeze(program.buffers, buffers);
}

void replace_nests(Program& program, const std::function<std::vector<Nest>(const Nest& nest)>& parts_of) {
  // New buffers would not be among those that a tiled group passes on.
  const std::set<NestId> grouped = launched_in_groups(program);
  for_each_block(program.steps, [&](Steps& steps) {
    Steps out;
    for (Step& step : steps) {
      std::vector<Nest> parts;
      const auto* launch = std::get_if<Launch>(&step.node);
      if (launch && !grouped.contains(launch->nest)) {
        const Nest nest = program[launch->nest];  // a copy: the program's nests may be reallocated
        parts = with_provenance(nest, [&] { return parts_of(nest); });
      }
      for (Nest& part : parts) out.push_back({Launch{add_nest(program, std::move(part))}});
      if (parts.empty()) out.push_back(std::move(step));
    }
    steps = std::move(out);
  });
  eliminate_dead_code(program);
}

}  // namespace stridec::loop
