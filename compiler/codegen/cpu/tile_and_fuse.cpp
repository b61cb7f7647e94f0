#include "compiler/codegen/cpu/tile_and_fuse.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/dispatch.h"
#include "compiler/codegen/emit_text.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/memory/tiled_group_memory.h"
#include "compiler/sym/text.h"

namespace stridec::codegen::cpu {
namespace {

using sym::Expr;

const loop::Nest& nest_of(const loop::Program& program, const loop::Step& step) {
  return program[std::get<loop::Launch>(step.node).nest];
}

// The scratch that the group's kernels share, since a thread runs one of them at a time: enough for the
// largest tile.
Expr parts_scratch(const loop::Program& program, const loop::TiledGroup& strips, const CpuTarget& target) {
  sym::Substitution most{{strips.size, strips.most}};
  for (const loop::TiledGroup::Size& size : strips.sizes)
    if (size.most) most[size.symbol] = *size.most;
  Expr scratch = 0;
  for (const loop::Step& step : strips.body)
    scratch =
        sym::max(scratch, sym::substitute(kernel_scratch(program, nest_of(program, step), target), most));
  return scratch;
}

class Emitter {
 public:
  Emitter(const loop::Program& program, const loop::TiledGroup& strips, const CpuTarget& target)
      : program_(program), strips_(strips), text_(program, target) {}

  Kernel emit() {
    std::vector<Kernel> parts;
    for (const loop::Step& step : strips_.body) {
      const loop::Nest& nest = nest_of(program_, step);
      parts.push_back(emit_kernel(program_, nest, text_.target()));
      STRIDEC_CHECK(parts.back().scratch_bytes == kernel_scratch(program_, nest, text_.target()), nest.name);
    }
    const schedule::ArenaPlan own = schedule::own_memory(program_, strips_);
    const std::string own_bytes = text_.scratch(own.bytes);
    for (size_t i = 0; i < strips_.own.size(); ++i)
      own_[strips_.own[i]] = cat("(", own_bytes, " + ", text_.size(own.offsets[i]), ")");
    const std::string private_bytes = text_.scratch(parts_scratch(program_, strips_, text_.target()));

    text_.line(cat("const int64_t points = ", text_.size(strips_.points),
                   ", strips = ", text_.size(strips_.count_of_round()), ";"));
    for (size_t k = 0; k < strips_.carried.size(); ++k)
      text_.line(cat("int64_t end", k, " = 0, base", k, " = 0;"));
    text_.open_tasks("strip");
    const bool rounds = strips_.round.is_var();
    if (rounds) text_.line("const int64_t round = strip / strips, at = strip % strips;");
    const std::string at = rounds ? "at" : "strip";
    text_.line(cat("const int64_t first = points * ", at, " / strips, size = points * (", at,
                   " + 1) / strips - first;"));
    text_.line("(void)first;");
    variables_ = {{strips_.first, "first"}, {strips_.size, "size"}};
    if (rounds) variables_[strips_.round] = "round";
    for (const loop::TiledGroup::Size& size : strips_.sizes) {
      const std::string name = text_.fresh("size_");
      text_.line(cat("int64_t ", name, " = ", c(size.value), ";"));
      text_.line(cat("(void)", name, ";"));
      variables_[size.symbol] = name;
      for (size_t k = 0; k < strips_.carried.size(); ++k)
        if (strips_.carried[k].rows == size.symbol) print_carried(k, at);
    }
    for (const Kernel& part : parts) print_part(part, private_bytes);
    text_.close_tasks();

    Kernel kernel = text_.finish(strips_.count(), 1);
    std::set<std::string> symbols;
    for (const Kernel& part : parts) symbols.insert(kernel_symbol(part.text, text_.target()));
    std::string declarations;
    for (const std::string& symbol : symbols)
      declarations += cat("extern \"C\" __attribute__((visibility(\"hidden\"))) void ", symbol,
                          "(const stridec_abi_args*, int64_t, int64_t, int32_t);\n");
    kernel.text.insert(kernel.text.find("extern \"C\""), declarations);
    for (Kernel& part : parts) {
      for (std::string& unit : part.support) kernel.support.push_back(std::move(unit));
      kernel.support.push_back(std::move(part.text));
    }
    return kernel;
  }

 private:
  // A size as C: a variable of the tile, or an argument of the launch.
  std::string c(Expr e) {
    const std::vector<Expr> vars = sym::free_vars(e);
    if (std::none_of(vars.begin(), vars.end(), [&](Expr var) { return variables_.contains(var); }))
      return text_.size(e);
    return sym::to_c(
        e,
        [&](Expr var) {
          const auto own = variables_.find(var);
          return own == variables_.end() ? text_.size(var) : own->second;
        },
        program_.facts);
  }

  // Moves the halo that the previous tile computed to its place in this tile, so that it is not recomputed.
  void print_carried(size_t k, const std::string& strip) {
    const loop::TiledGroup::Carried& each = strips_.carried[k];
    const loop::Buffer& buffer = program_[each.buffer];
    const Expr row = buffer.strides[each.dim] * byte_size(buffer.dtype), block = row * buffer.shape[each.dim];
    const std::string at = variables_.at(each.at), rows = variables_.at(each.rows), have = cat("have", k),
                      end = cat("end", k), base = cat("base", k);
    text_.line(cat("const int64_t place", k, " = ", c(each.base), ";"));
    text_.line(cat("int64_t ", have, " = ", strip, " == 0 ? 0 : ", end, " - ", at, ";"));
    text_.line(cat(have, " = ", have, " > ", rows, " ? ", rows, " : ", have, ";"));
    text_.open(cat("if (", have, " > 0)"));
    text_.open(cat("for (int64_t block = 0; block < ",
                   c(schedule::extent_in_elements(buffer) * byte_size(buffer.dtype)), "; block += ", c(block),
                   ")"));
    const std::string first =
        cat("(char*)", own_.at(each.buffer), " + block + ", c(row), " * (", each.per, " * ", at, " - ");
    text_.line(cat("__builtin_memmove(", first, "place", k, "), ", first, base, "), ", c(row), " * ",
                   each.per, " * ", have, ");"));
    text_.close();
    text_.line(cat(at, " += ", have, ", ", rows, " -= ", have, ";"));
    text_.close();
    text_.line(cat(end, " = ", at, " + ", rows, ", ", base, " = place", k, ";"));
  }

  void print_part(const Kernel& part, const std::string& scratch) {
    text_.open("");
    text_.line(cat("void* const b[] = {",
                   join(part.buffers, ", ",
                        [&](loop::BufferId id) {
                          const auto own = own_.find(id);
                          return cat("(void*)", own == own_.end() ? text_.pointer(id) : own->second);
                        }),
                   "};"));
    std::vector<std::string> sizes;
    for (Expr e : part.sizes) sizes.push_back(c(e));
    for (const std::string& sentence : part.messages) sizes.push_back(text_.message(sentence));
    if (!sizes.empty()) text_.line(cat("const int64_t z[] = {", join(sizes, ", "), "};"));
    text_.line(cat("const stridec_abi_args a = {b, ", sizes.empty() ? "0" : "z", ", ", scratch,
                   ", 0, args->failures};"));
    text_.line(cat(kernel_symbol(part.text, text_.target()), "(&a, 0, ", c(part.tasks), ", part);"));
    text_.close();
  }

  const loop::Program& program_;
  const loop::TiledGroup& strips_;
  KernelText text_;
  std::map<loop::BufferId, std::string> own_;
  std::unordered_map<Expr, std::string, sym::ExprHash> variables_;
};

}  // namespace

Kernel emit_tiled_group(const loop::Program& program, const loop::TiledGroup& strips,
                        const CpuTarget& target) {
  return Emitter(program, strips, target).emit();
}

Expr tiled_group_scratch(const loop::Program& program, const loop::TiledGroup& strips,
                         const CpuTarget& target) {
  const Expr pieces[] = {schedule::own_memory(program, strips).bytes, parts_scratch(program, strips, target)};
  return scratch_bytes(pieces);
}

}  // namespace stridec::codegen::cpu
