#include "compiler/schedule/memory/weight_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "compiler/base/check.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/loop/module_values.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/sym/text.h"

namespace stridec::schedule {
namespace {

using loop::Buffer;
using loop::BufferId;
using loop::Program;
using loop::Storage;
using sym::Expr;

constexpr int64_t kAlignment = 64;
// Alignment of large weights, where the padding is negligible: a GPU's copies that begin between its cache
// lines of 128 bytes take a third longer.
constexpr int64_t kWeightAlignment = 256;

// A hash of a few samples: equal contents have equal fingerprints.
uint64_t fingerprint(const loop::WeightData& data) {
  uint64_t hash = data.size;
  const size_t step = std::max<size_t>(1, data.size / 64);
  for (size_t i = 0; i < data.size; i += step) hash = hash * 0x9e3779b97f4a7c15u + data.bytes[i];
  return hash;
}

// Reserves memory for the buffer at the end of the weights.
int64_t place_bytes(const Buffer& buffer, int64_t& total) {
  const auto count = sym::as_const(extent_in_elements(buffer));
  STRIDEC_CHECK(count.has_value(), buffer.name);
  const int64_t bytes = *count * byte_size(buffer.dtype);
  if (bytes >= 16 * kWeightAlignment)
    total = (total + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
  const int64_t place = total;
  total += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return place;
}

// The parameters that runs read, in the order of first use, then those that derivations read and write.
std::vector<BufferId> parameters_read(const Program& program) {
  std::vector<BufferId> out;
  const auto add = [&](const std::vector<BufferId>& ids) {
    for (BufferId id : ids)
      if (program[id].storage == Storage::kParameter) out.push_back(id);
  };
  loop::for_each_step(program.steps, [&](const loop::Step& step) { add(effects_of(program, step).reads); });
  for (loop::NestId id : program.prepack) {
    const Effects effects = effects_of(program[id]);
    const bool derives = std::any_of(effects.writes.begin(), effects.writes.end(),
                                     [&](BufferId to) { return program[to].replaceable; });
    if (derives) add(effects.reads), add(effects.writes);
  }
  return out;
}

// Describes how derived parameters are computed, so that those of two programs with equal descriptions have
// equal bytes: the text of the nest, in which parameters and constants are named by their places and derived
// parameters by their descriptions.
class Derivations {
 public:
  // `named`: names of the parameters that are not derived.
  Derivations(const Program& program, std::map<BufferId, std::string> named)
      : program_(program), named_(std::move(named)) {
    for (loop::NestId nest : program.prepack)
      for (BufferId id : effects_of(program[nest]).writes) writers_[id].push_back(nest);
  }

  // Nothing if several nests write it, or if it depends on such a parameter.
  std::optional<std::string> describe(BufferId id) {
    const auto [known, fresh] = known_.try_emplace(id, std::nullopt);
    if (fresh) {
      auto text = text_of(id);  // one that depends on itself has none
      known_[id] = std::move(text);
    }
    return known_[id];
  }

 private:
  std::optional<std::string> text_of(BufferId id) {
    const auto writers = writers_.find(id);
    if (writers == writers_.end() || writers->second.size() != 1) return std::nullopt;
    loop::Nest nest = program_[writers->second.front()];
    nest.name.clear();
    nest.nodes.clear();
    loop::renumber(nest);
    const Effects effects = effects_of(nest);
    std::map<BufferId, std::string> names;
    for (BufferId read : effects.reads) {
      auto name = writes(effects, read) ? std::nullopt : name_of(read);
      if (!name) return std::nullopt;
      names[read] = *std::move(name);
    }
    for (size_t i = 0; i < effects.writes.size(); ++i)
      names[effects.writes[i]] = cat("result ", i, effects.writes[i] == id ? ", this one" : "");
    std::vector<std::string> layouts;
    for (const auto& [buffer, name] : names) {
      program_[buffer].name = name;
      layouts.push_back(layout(buffer));
    }
    std::ranges::sort(layouts);  // ids differ between programs
    const std::string text = cat(join(layouts, ""), loop::to_string(program_, nest));
    return sha256(text.data(), text.size());
  }

  std::optional<std::string> name_of(BufferId id) {
    if (const auto found = named_.find(id); found != named_.end()) return found->second;
    const Buffer& buffer = program_[id];
    if (buffer.storage != Storage::kParameter) return std::nullopt;
    if (!loop::is_constant(buffer)) {
      const auto source = describe(id);
      return source ? std::optional(cat("{", *source, "}")) : std::nullopt;
    }
    if (buffer.offset == Expr(-1)) return std::nullopt;
    return cat("constant ", sym::to_string(buffer.offset));
  }

  std::string layout(BufferId id) const {
    const Buffer& buffer = program_[id];
    std::string text = cat(buffer.name, " ", name(buffer.dtype));
    for (Expr size : buffer.shape) text += cat(" ", sym::to_string(size));
    for (Expr stride : buffer.strides) text += cat(" by ", sym::to_string(stride));
    return cat(text, "\n");
  }

  Program program_;  // with other names of buffers
  const std::map<BufferId, std::string> named_;
  std::map<BufferId, std::vector<loop::NestId>> writers_;
  std::map<BufferId, std::optional<std::string>> known_;
};

// Places replaceable parameters, and those derived from them, after all constants. A named parameter has one
// place for all programs, and so have those that are derived from it equally.
void place_replaceable(std::span<Program* const> programs, int64_t& total) {
  std::map<loop::ValueKey, Expr> named;
  std::map<std::string, Expr> derived;
  for (Program* program : programs) {
    const std::vector<loop::ValueKey> keys = loop::value_keys(*program, program->parameters);
    std::map<BufferId, std::string> names;
    for (size_t i = 0; i < keys.size(); ++i) {
      Buffer& buffer = (*program)[program->parameters[i]];
      const auto [found, fresh] = named.try_emplace(keys[i], -1);
      if (fresh) found->second = place_bytes(buffer, total);
      buffer.offset = found->second;
      names[program->parameters[i]] = cat("parameter ", sym::to_string(buffer.offset));
    }
    Derivations derivations(*program, std::move(names));
    for (BufferId id : parameters_read(*program)) {
      Buffer& buffer = (*program)[id];
      if (buffer.offset != Expr(-1)) continue;
      const auto how = derivations.describe(id);
      if (const auto found = how ? derived.find(*how) : derived.end(); found != derived.end()) {
        buffer.offset = found->second;
        continue;
      }
      buffer.offset = place_bytes(buffer, total);
      if (how) derived.emplace(*how, buffer.offset);
    }
  }
}

}  // namespace

void plan_weights(std::span<Program* const> programs, EqualWeights equal) {
  int64_t total = 0;
  // Equal bytes: the same memory, or packed equally for two variants.
  std::map<const uint8_t*, int64_t> by_address;
  std::multimap<std::pair<size_t, uint64_t>, const Buffer*> by_contents;
  const auto compared = [&](const Buffer& buffer) {
    return buffer.prepacked || equal == EqualWeights::kByContents;
  };
  auto same = [&](const Buffer& buffer) -> std::optional<int64_t> {
    const auto& data = buffer.weight;
    if (const auto found = by_address.find(data.bytes); found != by_address.end() && data.size > 0)
      return found->second;
    if (!compared(buffer) || data.size == 0) return std::nullopt;
    const auto [first, last] = by_contents.equal_range({data.size, fingerprint(data)});
    for (auto it = first; it != last; ++it)
      if (std::memcmp(it->second->weight.bytes, data.bytes, data.size) == 0)
        return sym::as_const(it->second->offset);
    return std::nullopt;
  };
  for (Program* program : programs) {
    for (Buffer& buffer : program->buffers)
      if (buffer.storage == Storage::kParameter || buffer.storage == Storage::kState) buffer.offset = -1;
    auto place = [&](BufferId id) {
      Buffer& buffer = (*program)[id];
      if (buffer.offset != Expr(-1)) return;
      if (const auto shared = same(buffer)) {
        buffer.offset = *shared;
        return;
      }
      buffer.offset = place_bytes(buffer, total);
      by_address[buffer.weight.bytes] = buffer.offset.value();
      if (compared(buffer))
        by_contents.emplace(std::pair(buffer.weight.size, fingerprint(buffer.weight)), &buffer);
    };
    for (BufferId id : parameters_read(*program))
      if (loop::is_constant((*program)[id])) place(id);
    for (BufferId id : program->states)
      if ((*program)[id].weight.size > 0) place(id);
  }
  for (Program* program : programs) program->weight_bytes = total, program->replaceable_begin = 0;
  if (std::ranges::all_of(programs, [](const Program* program) { return program->parameters.empty(); }))
    return;
  const int64_t begin = total = (total + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
  place_replaceable(programs, total);
  for (Program* program : programs) program->weight_bytes = total, program->replaceable_begin = begin;
}

}  // namespace stridec::schedule
