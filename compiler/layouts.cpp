#include "compiler/layouts.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/strided.h"
#include "compiler/base/text.h"
#include "compiler/loop/build.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec {
namespace {

using loop::BufferId;
using loop::Program;
using loop::Storage;

// What people call the dims of a tensor of this rank, in the models' order; "": nothing.
std::string_view letters_of(size_t rank) {
  constexpr std::string_view kLetters[] = {"ncw", "nchw", "ncdhw"};
  return rank >= 3 && rank <= 5 ? kLetters[rank - 3] : "";
}

bool is_word(std::string_view order) {
  return !order.empty() && std::ranges::all_of(order, [](char c) { return c >= 'a' && c <= 'z'; });
}

std::vector<size_t> numbers_of(std::string_view order) {
  std::vector<size_t> numbers;
  for (size_t at = 0; at <= order.size();) {
    const size_t end = std::min(order.find(',', at), order.size());
    size_t number = 0;
    const auto [stop, error] = std::from_chars(order.data() + at, order.data() + end, number);
    if (error != std::errc() || stop != order.data() + end) return {};
    numbers.push_back(number);
    at = end + 1;
  }
  return numbers;
}

bool is_permutation_of_dims(std::vector<size_t> order, size_t rank) {
  std::ranges::sort(order);
  for (size_t d = 0; d < order.size(); ++d)
    if (order[d] != d) return false;
  return order.size() == rank;
}

std::vector<size_t> order_of(const Layout& layout, size_t rank) {
  const auto refuse = [&](const std::string& why, const std::string& help) {
    fail(ErrorKind::kUsage, "bad-layout", cat("--layout ", layout.name, "=", layout.order, ": ", why), help);
  };
  const std::string has = cat("'", layout.name, "' has ", rank, rank == 1 ? " dim" : " dims");
  std::vector<size_t> order;
  if (is_word(layout.order)) {
    const std::string_view letters = letters_of(rank);
    for (const char letter : layout.order) order.push_back(std::min(letters.find(letter), rank));
    if (!is_permutation_of_dims(order, rank))
      refuse(letters.empty() ? cat(has, ", which have no letters") : cat(has, ", ", letters),
             "write each dim once, outermost first: nhwc of n, c, h, w, or numbers such as 0,2,3,1");
    return order;
  }
  order = numbers_of(layout.order);
  if (!is_permutation_of_dims(order, rank))
    refuse(has, "write the number of each dim once, outermost first, such as 0,2,3,1 of four dims");
  return order;
}

// Of a state with an initial value, all of whose sizes are known.
std::vector<int64_t> constants(const std::vector<sym::Expr>& all) {
  std::vector<int64_t> values;
  for (const sym::Expr e : all) values.push_back(sym::as_const(e).value_or(-1));
  return values;
}

// The bytes of the initial value, in the order of the strides.
loop::WeightData in_order(const loop::Buffer& state) {
  const std::vector<int64_t> dims = constants(state.shape), strides = constants(state.strides);
  auto bytes = std::make_shared<std::vector<uint8_t>>(
      scattered({state.weight.bytes, state.weight.size}, dims, strides, byte_size(state.dtype)));
  return {bytes, bytes->data(), bytes->size()};
}

// Moves the value to a buffer of its own; the given one becomes a row-major copy of it.
void keep_apart(Program& program, BufferId& value) {
  const BufferId inside = value;
  value = loop::add_buffer(program, program[inside]);
  loop::Buffer& copy = program[inside];
  const Storage storage = copy.storage;
  copy.storage = Storage::kArena;
  copy.ordinal = -1;
  copy.weight = {};
  const auto add_copy = [&](BufferId from, BufferId to) {
    const loop::View source = loop::whole(program, from), target = loop::whole(program, to);
    loop::NestBuilder nest(program, "layout");
    const std::vector<sym::Expr> at = nest.dims(target.shape);
    nest.store(target, at, nest.load(source, at));
    nest.finish(&program.steps);
  };
  if (storage != Storage::kOutput) {
    add_copy(value, inside);
    std::ranges::rotate(program.steps, program.steps.end() - 1);
  }
  if (storage != Storage::kInput) add_copy(inside, value);
}

}  // namespace

std::vector<Layout> parse_layouts(const std::vector<std::string>& texts) {
  std::vector<Layout> all;
  std::set<std::string> names;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      fail(ErrorKind::kUsage, "bad-layout", cat("'", text, "' is not of the form name=order"),
           "write --layout image=nhwc or --layout image=0,2,3,1");
    all.push_back({text.substr(0, equals), text.substr(equals + 1)});
    if (!names.insert(all.back().name).second)
      fail(ErrorKind::kUsage, "bad-layout", cat("--layout names '", all.back().name, "' twice"),
           "write each name once");
  }
  return all;
}

bool declare_layout(Program& program, const Layout& layout) {
  const std::set<BufferId> fixed = schedule::fixed_buffers(program);
  bool found = false;
  for (auto* list : {&program.inputs, &program.outputs, &program.states})
    for (BufferId& id : *list) {
      if (program[id].name != layout.name) continue;
      found = true;
      const std::vector<size_t> order = order_of(layout, program[id].shape.size());
      if (std::ranges::is_sorted(order)) continue;
      if (fixed.contains(id)) keep_apart(program, id);
      loop::Buffer& buffer = program[id];
      buffer.strides = schedule::dense_strides(buffer.shape, order);
      if (buffer.weight.size) buffer.weight = in_order(buffer);
    }
  return found;
}

std::vector<std::string> value_names(const Program& program) {
  std::vector<std::string> names;
  for (const auto* list : {&program.inputs, &program.outputs, &program.states})
    for (const BufferId id : *list) names.push_back(cat("'", program[id].name, "'"));
  return names;
}

}  // namespace stridec
