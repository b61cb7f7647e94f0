#include "compiler/schedule/memory/compaction_copy.h"

#include <algorithm>
#include <map>

#include "compiler/loop/build.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Launch;
using loop::Nest;
using loop::Program;
using sym::Expr;

int readers_behind(const Program& program, const Flow& flow, int after, BufferId id) {
  int readers = 0;
  for (size_t at = static_cast<size_t>(after) + 1; at < program.steps.size(); ++at)
    readers += reads(flow.effects(at), id);
  return readers;
}

}  // namespace

std::vector<Part> parts_read(const Program& program, const Flow& flow) {
  std::vector<Part> parts;
  std::map<BufferId, Part> last;
  for (size_t at = 0; at < program.steps.size(); ++at)
    for (BufferId id : flow.effects(at).reads) {
      const loop::Buffer& buffer = program[id];
      if (!made_once(program, flow, id)) continue;
      Part part{.from = id, .after = static_cast<int>(at), .dims = {}, .shape = {}, .bytes = 0};
      if (const Nest* nest = nest_at(program, program.steps, static_cast<int>(at));
          nest && last.contains(id)) {
        const auto read = accesses_along(program, *nest, id, false);
        for (size_t d = 0; d < buffer.shape.size(); ++d) {
          const auto& along = read[d];
          const bool strided = along && along->scale > 1 && along->low == along->high && along->low >= 0;
          part.dims.push_back(strided ? *along : Along{});
          part.shape.push_back(strided ? sym::ceildiv(buffer.shape[d] - along->low, along->scale)
                                       : buffer.shape[d]);
        }
        part.bytes = sym::simplify(loop::element_count(part.shape) * byte_size(buffer.dtype), program.facts);
        part.after = last.at(id).after;
      }
      // If several steps read parts, the last one counts; the ones before it count as readers of the rest.
      if (!part.dims.empty()) parts.push_back(part);
      part.after = static_cast<int>(at);
      last.insert_or_assign(id, std::move(part));
    }
  std::erase_if(parts, [&](const Part& part) {
    const bool strided =
        std::any_of(part.dims.begin(), part.dims.end(), [](const Along& dim) { return dim.scale > 1; });
    return !strided || last.at(part.from).shape != part.shape ||
           readers_behind(program, flow, part.after, part.from) != 1;
  });
  return parts;
}

void copy_part(Program& program, const Flow& flow, const Part& part, int after) {
  const BufferId to = add_part(program, part.from, part.shape);
  loop::Steps copy;
  loop::NestBuilder nest(program, "part");
  const std::vector<Expr> at = nest.dims(part.shape);
  std::vector<Expr> source;
  for (size_t d = 0; d < at.size(); ++d) source.push_back(at[d] * part.dims[d].scale + part.dims[d].low);
  nest.store(loop::whole(program, to), at, nest.load(loop::whole(program, part.from), source));
  for (size_t p = static_cast<size_t>(after) + 1; p < program.steps.size(); ++p) {
    if (!reads(flow.effects(p), part.from)) continue;
    Nest& reader = program[std::get<Launch>(program.steps[p].node).nest];
    nest.nest().nodes = reader.nodes;
    loop::for_each_stmt(reader.body, [&](loop::Stmt& stmt) {
      Access* access = loop::access_of(stmt);
      if (!access || access->buffer != part.from) return;
      if (const auto* load = std::get_if<loop::Load>(&stmt.node))
        loop::attribute(nest.nest(), loop::node_of(reader, load->result));
      access->buffer = to;
      for (size_t d = 0; d < part.dims.size(); ++d)
        if (part.dims[d].scale > 1) access->index[d] = part.dims[d].var;
    });
  }
  nest.finish(&copy);
  program.steps.insert(program.steps.begin() + after + 1, copy[0]);
}

}  // namespace stridec::schedule
