#include "cli/memory_stage.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "cli/diagram.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "compiler/base/counted.h"
#include "compiler/base/number.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"
#include "compiler/loop/kernels.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

std::optional<int64_t> at_sizes(const loop::Program& program, sym::Expr e, int64_t threads) {
  const sym::Expr thread_count = loop::threads_of(program);
  return sym::evaluate(e, [&](sym::Expr var) -> std::optional<int64_t> {
    return var == thread_count ? threads : static_cast<int64_t>(schedule::typical(var, program.facts));
  });
}

// The first and the last step that touches each buffer.
std::map<loop::BufferId, std::pair<int, int>> lifetimes(const loop::Program& program) {
  std::map<loop::BufferId, std::pair<int, int>> lives;
  const auto touch = [&](loop::BufferId id, int step) {
    const auto [life, fresh] = lives.emplace(id, std::pair(step, step));
    life->second = {std::min(life->second.first, step), std::max(life->second.second, step)};
  };
  for (const loop::Kernel& kernel : loop::kernels_of(program))
    for (const loop::NestId nest : kernel.nests)
      for (const loop::BufferId id : loop::buffers_of(program[nest])) touch(id, kernel.step);
  for (const loop::Routine& routine : loop::routines_of(program))
    for (const auto* ids : {&routine.call->reads, &routine.call->writes})
      for (const loop::BufferId id : *ids) touch(id, routine.step);
  return lives;
}

// The buffer that each buffer is written over, element by element, in the step in which the former is read
// last. Two buffers that are alive at one step share no memory otherwise.
std::map<loop::BufferId, loop::BufferId> written_in_place(
    const loop::Program& program, const std::map<loop::BufferId, std::pair<int, int>>& lives) {
  std::unordered_map<sym::Expr, std::map<int, loop::BufferId>> dying;  // by offset and last step
  for (const auto& [id, life] : lives)
    if (program[id].storage == loop::Storage::kArena && life.first < life.second)
      dying[program[id].offset].emplace(life.second, id);
  std::map<loop::BufferId, loop::BufferId> over;
  for (const auto& [id, life] : lives) {
    const auto at = dying.find(program[id].offset);
    if (program[id].storage != loop::Storage::kArena || at == dying.end()) continue;
    if (const auto found = at->second.find(life.first); found != at->second.end() && found->second != id)
      over[id] = found->second;
  }
  return over;
}

// An expression of sizes as text; a number if it is one.
Json expression(sym::Expr e) {
  if (e.is_const()) return e.value();
  return sym::to_string(e);
}

sym::Expr bytes_of(const loop::Buffer& buffer) {
  return loop::element_count(buffer.shape) * byte_size(buffer.dtype);
}

// For a buffer with a data-dependent size: the operation that determines the size.
std::string size_known_after(const loop::Program& program, const loop::Buffer& buffer) {
  std::map<loop::BufferId, std::string> made_by;
  std::map<sym::Expr, std::string, sym::ExprLess> bound_by;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* bind = std::get_if<loop::BindSymbol>(&step.node))
      bound_by[bind->symbol] = made_by[bind->buffer];
    if (const auto* loop = std::get_if<loop::While>(&step.node)) bound_by[loop->iterations] = "its loop";
    if (const auto* call = std::get_if<loop::Call>(&step.node))
      for (loop::BufferId id : call->writes) made_by[id] = call->nodes.empty() ? "" : call->nodes.back();
    if (const auto* launch = std::get_if<loop::Launch>(&step.node)) {
      const loop::Nest& nest = program[launch->nest];
      loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
        if (const auto* store = std::get_if<loop::Store>(&stmt.node))
          made_by[store->access.buffer] = nest.nodes.empty() ? nest.name : nest.nodes.front();
      });
    }
  });
  std::string after;
  for (sym::Expr dim : buffer.shape)
    for (sym::Expr var : sym::free_vars(dim))
      if (const auto found = bound_by.find(var); found != bound_by.end() && !found->second.empty())
        after = found->second;
  return after;
}

// The names of buffers that each thread has for itself, for a strip of a tiled-and-fused group.
std::set<std::string> own_buffers(const loop::Program& program) {
  std::set<std::string> own;
  for (const loop::TiledGroup* strips : loop::tiled_groups_of(program))
    for (loop::BufferId id : strips->own) own.insert(program[id].name);
  return own;
}

// The buffers of a run that have no place in the plan.
Json unplanned(const loop::Program& program, int64_t threads) {
  const std::set<std::string> own = own_buffers(program);
  Json buffers = Json::array();
  for (const auto& buffer : program.buffers) {
    const bool strip = own.contains(buffer.name);
    if (buffer.storage != loop::Storage::kArena || (!strip && !buffer.offset.is_const(-1))) continue;
    Json json = {{"name", buffer.name}, {"dtype", name(buffer.dtype)}, {"offset", nullptr}};
    if (strip)
      json["strip"] = true;
    else
      json["allocated_after"] = size_known_after(program, buffer);
    if (const auto bytes = at_sizes(program, bytes_of(buffer), threads); strip && bytes)
      json["bytes"] = *bytes;
    json["bytes_expression"] = expression(bytes_of(buffer));
    buffers.push_back(std::move(json));
  }
  return buffers;
}

Json sizes_of(const loop::Program& program, int64_t threads) {
  Json sizes = Json::object();
  for (const loop::Symbol& symbol : program.symbols)
    sizes[symbol.var.name()] = static_cast<int64_t>(schedule::typical(symbol.var, program.facts));
  sizes[loop::threads_of(program).name()] = threads;
  return sizes;
}

std::string place_text(const Json& buffer) {
  if (buffer["offset"].is_number()) return cat(buffer["offset"].get<int64_t>());
  if (buffer.contains("strip")) return "a thread's own, for a strip";
  const auto after = buffer["allocated_after"].get<std::string>();
  return after.empty() ? "allocated during the run"
                       : cat("allocated during the run, size known after ", after);
}

std::string steps_text(const Json& buffer) {
  if (!buffer.contains("first_step")) return "";
  const auto first = buffer["first_step"].get<int64_t>(), last = buffer["last_step"].get<int64_t>();
  return first == last ? cat(first) : cat(first, "..", last);
}

}  // namespace

Json planned_memory(const loop::Program& program, int64_t threads) {
  Json buffers = Json::array();
  const auto lives = lifetimes(program);
  const auto in_place = written_in_place(program, lives);
  for (const auto& [id, life] : lives) {
    const loop::Buffer& buffer = program[id];
    if (buffer.storage != loop::Storage::kArena || buffer.offset.is_const(-1)) continue;
    const sym::Expr size = bytes_of(buffer);
    const auto offset = at_sizes(program, buffer.offset, threads), bytes = at_sizes(program, size, threads);
    if (!offset || !bytes) continue;
    buffers.push_back({{"name", buffer.name},
                       {"dtype", name(buffer.dtype)},
                       {"offset", *offset},
                       {"bytes", *bytes},
                       {"first_step", life.first},
                       {"last_step", life.second}});
    if (!buffer.offset.is_const()) buffers.back()["offset_expression"] = expression(buffer.offset);
    if (!size.is_const()) buffers.back()["bytes_expression"] = expression(size);
    if (const auto over = in_place.find(id); over != in_place.end())
      buffers.back()["in_place_of"] = program[over->second].name;
  }
  Json json = {{"weight_bytes", program.weight_bytes}, {"buffers", std::move(buffers)}};
  if (const auto arena = at_sizes(program, program.arena_bytes, threads)) json["arena_bytes"] = *arena;
  json["arena"] = expression(program.arena_bytes);
  return json;
}

Json memory_json(const loop::Program& program, int64_t threads) {
  Json json = {{"stage", "memory"}, {"sizes", sizes_of(program, threads)}};
  json.update(planned_memory(program, threads));
  for (Json& buffer : unplanned(program, threads)) json["buffers"].push_back(std::move(buffer));
  return json;
}

std::string memory_text(const loop::Program& program, int64_t threads) {
  const Json memory = memory_json(program, threads);
  std::vector<std::vector<std::string>> rows = {{"buffer", "type", "offset", "bytes", "steps"}};
  for (const Json& buffer : memory["buffers"])
    rows.push_back({buffer["name"].get<std::string>(), buffer["dtype"].get<std::string>(), place_text(buffer),
                    buffer.contains("bytes") ? buffer["bytes"].dump() : "", steps_text(buffer)});
  const std::string arena = memory.contains("arena_bytes") ? cat(memory["arena_bytes"].dump(), " bytes")
                                                           : memory["arena"].get<std::string>();
  std::string sizes;
  for (const loop::Symbol& symbol : program.symbols) {
    const std::string name = symbol.var.name();
    sizes += cat(name, "=", memory["sizes"][name].dump(), ", ");
  }
  // Weights have their places at the end of a compilation alone.
  const std::string weights =
      program.weight_bytes == 0
          ? ""
          : cat("weights ", human_bytes(static_cast<uint64_t>(program.weight_bytes)), "; ");
  const std::string head =
      cat(weights, "arena ", arena, " at ", sizes, counted(static_cast<size_t>(threads), "thread"));
  return cat(" ", wrapped(head, 3, 1, columns()), "\n", table(rows));
}

std::string memory_svg(const Json& planned, const std::string& id) {
  int64_t steps = 1, top = std::max<int64_t>(planned.value("arena_bytes", int64_t{0}), 1);
  for (const Json& b : planned["buffers"]) {
    steps = std::max(steps, b["last_step"].get<int64_t>() + 1);
    top = std::max(top, b["offset"].get<int64_t>() + b["bytes"].get<int64_t>());
  }
  constexpr int kWidth = 1000, kHeight = 360, kLine = 12, kCharacter = 7;
  std::string out = cat("<svg", id.empty() ? "" : cat(" id=\"", id, "\""),
                        " xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth, "\" height=\"", kHeight,
                        "\"><style>rect.m{fill:#9bd;stroke:#246;stroke-width:.5}rect.m.over{fill:#fc8}"
                        "text.m{font:11px monospace}</style>\n");
  for (const Json& b : planned["buffers"]) {
    const auto first = b["first_step"].get<int64_t>(), last = b["last_step"].get<int64_t>();
    const auto offset = b["offset"].get<int64_t>(), bytes = b["bytes"].get<int64_t>();
    const auto across = [&](int64_t step) { return step * kWidth / steps; };
    const auto up = [&](int64_t at) { return static_cast<int64_t>(double(at) / double(top) * kHeight); };
    const int64_t x = across(first), width = std::max<int64_t>(1, across(last + 1) - x);
    const int64_t y = kHeight - up(offset + bytes),
                  height = std::max<int64_t>(1, up(offset + bytes) - up(offset));
    const std::string name = printable(b["name"].get<std::string>());
    const std::string over = b.contains("in_place_of") ? printable(b["in_place_of"].get<std::string>()) : "";
    out +=
        cat("<rect class=\"m", over.empty() ? "" : " over", "\" x=\"", x, "\" y=\"", y, "\" width=\"", width,
            "\" height=\"", height, "\"><title>", escape_markup(name), " ", b["dtype"].get<std::string>(),
            ", ", human_bytes(static_cast<uint64_t>(bytes)), " at ", offset, ", steps ", first, " to ", last,
            over.empty() ? "" : cat(", in place of ", escape_markup(over)), "</title></rect>\n");
    if (id.empty() && height >= kLine && width >= kCharacter * static_cast<int64_t>(name.size() + 1))
      out += cat("<text class=\"m\" x=\"", x + 3, "\" y=\"", y + kLine - 2, "\">", escape_markup(name),
                 "</text>\n");
  }
  return out + "</svg>\n";
}

}  // namespace stridec::cli
