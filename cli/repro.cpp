#include "cli/repro.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/npz.h"
#include "cli/shell_text.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/graph/serialize.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// The flags that decide what is compiled, but for sizes and what names parts of the model.
std::string flags_text(const CompileFlags& flags) {
  std::string out;
  const auto add = [&](const std::string& flag, const std::string& value) {
    out += cat(" ", flag, " ", shell_word(value));
  };
  if (flags.precision != "fp32") add("--precision", flags.precision);
  if (!flags.cpus.empty()) add("--cpu", flags.cpus);
  if (flags.mode != "default") add("--mode", flags.mode);
  for (const std::string& setting : flags.settings) add("-O", setting);
  for (const std::string& file : flags.rewrites) add("--rewrites", fs::absolute(file).string());
  for (const std::string& file : flags.ops) add("--ops", fs::absolute(file).string());
  for (const auto& [after, command] : flags.passes) add(cat("--pass ", shell_word(after)), command);
  for (const auto& [after, file] : flags.plugins)
    add(cat("--plugin ", shell_word(after)), fs::absolute(file).string());
  return out;
}

std::vector<std::pair<std::string, Array>> arrays_of(const std::vector<std::string>& names,
                                                     const Tensors& tensors) {
  std::vector<std::pair<std::string, Array>> arrays;
  for (size_t i = 0; i < tensors.size(); ++i)
    arrays.emplace_back(names[i], Array{tensors[i].dtype, tensors[i].shape, tensors[i].bytes});
  return arrays;
}

std::string type_text(const loop::HostTensor& tensor) {
  return cat(name(tensor.dtype), "[", join(tensor.shape, ", ", [](int64_t d) { return cat(d); }), "]");
}

// JSON has no NaN and no infinities.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(cat(value)); }

constexpr const char* kModel = "model.graph";
constexpr const char* kInputs = "inputs.npz";
constexpr const char* kExpected = "expected.npz";
constexpr const char* kFacts = "repro.json";

std::string in(const std::string& folder, const char* name) { return (fs::path(folder) / name).string(); }

// Makes the folder, without the files of an earlier failure.
void prepare(const std::string& folder) {
  fs::create_directories(folder);
  for (const std::string& file : repro_files(folder)) fs::remove(file);
}

void write_json(const std::string& folder, const Json& json) {
  write_file(in(folder, kFacts), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace

std::vector<std::string> repro_files(const std::string& folder) {
  return {in(folder, kModel), in(folder, kInputs), in(folder, kExpected), in(folder, kFacts)};
}

Json difference_json(const graph::Graph& graph, const FirstDifference& found) {
  const graph::Node& node = graph[found.node];
  Json json = {{"node", node.origin}, {"op", graph::name(node)}, {"inputs", Json::array()}};
  for (const graph::ValueId input : node.inputs) {
    const auto value = found.values.find(input);
    Json row = {{"name", graph[input].name}, {"declared", graph::to_string(graph[input].type)}};
    if (value != found.values.end()) row["type"] = type_text(value->second);
    json["inputs"].push_back(std::move(row));
  }
  const Difference& difference = found.difference;
  json["output"] = difference.output;
  json["declared"] = graph::to_string(graph[node.outputs[difference.output]].type);
  json["type"] = type_text(found.want);
  if (!found.error.empty()) {
    json["error"] = found.error;
    return json;
  }
  json["element"] = position(found.want, difference.element);
  json["expected"] = number(difference.want);
  json["got"] = number(difference.got);
  json["difference"] = number(difference.error);
  return json;
}

Json write_repro(const std::string& folder, const DifferenceSearch& search, const FirstDifference& found,
                 const CompileFlags& flags) {
  const SmallestPart part = smallest_part(search, found);
  prepare(folder);
  const std::string model = in(folder, kModel), inputs = in(folder, kInputs);
  UnfinishedFile file(model);
  graph::serialize(part.graph, [&](const uint8_t* bytes, size_t size) { file.write(bytes, size); });
  file.commit();
  std::string command = cat("stridec verify ", shell_word(model));
  if (!part.inputs.empty()) {
    write_npz(inputs, arrays_of(part.graph.input_names, part.inputs));
    command += cat(" --input ", shell_word(inputs));
  }
  write_npz(in(folder, kExpected), arrays_of(part.graph.output_names, part.expected));
  Json shapes = Json::object();
  for (size_t i = 0; i < part.inputs.size(); ++i)
    shapes[part.graph.input_names[i]] = type_text(part.inputs[i]);
  Json json = {{"model", flags.model},
               {"difference", difference_json(search.made.main().graph, found)},
               {"nodes", part.nodes},
               {"inputs", std::move(shapes)},
               {"command", command + flags_text(flags)}};
  write_json(folder, json);
  return json;
}

Json write_repro(const std::string& folder, const std::string& artifact,
                 const std::vector<std::string>& names, const Tensors& inputs, const CompileFlags& flags) {
  prepare(folder);
  const std::string file = in(folder, kInputs);
  std::string command = cat("stridec verify ", shell_word(flags.model));
  if (!artifact.empty()) command += cat(" ", shell_word(artifact));
  if (!inputs.empty()) {
    write_npz(file, arrays_of(names, inputs));
    command += cat(" --input ", shell_word(file));
  }
  Json json = {{"model", flags.model},
               {"artifact", artifact},
               {"inputs", Json::object()},
               {"command", command + flags_text(flags)}};
  for (size_t i = 0; i < inputs.size(); ++i) json["inputs"][names[i]] = type_text(inputs[i]);
  write_json(folder, json);
  return json;
}

}  // namespace stridec::cli
