#include "compiler/package/read_manifest.h"

#include <doctest/doctest.h>

#include "compiler/base/diagnostic.h"

using namespace stridec;
using package::read_manifest;

namespace {

nlohmann::ordered_json smallest() {
  return nlohmann::ordered_json::parse(R"({
    "schema_version": "1.0", "compiler": "stridec", "name": "m",
    "model": {"file": "m.onnx", "sha256": ""}, "mode": "default", "options": null,
    "inputs": [{"name": "x", "dtype": "f32", "shape": ["n", 3]}], "outputs": [], "states": [],
    "symbols": [{"name": "n", "minimum": 0, "multiple": 1, "from": {"input": "x", "dim": 0}}],
    "guards": [], "memory": {"weights_bytes": 0, "weights_file": null, "workspace_bytes": "64*n"},
    "targets": [{"device": "cpu", "architecture": "x86-64", "variants": ["x86-64-v3"]}],
    "requires": {"libraries": ["libc.so.6"], "glibc": "2.17"}, "kernels": []})");
}

std::string refusal(const std::string& text) {
  try {
    read_manifest(text, "m.json");
  } catch (const Error& error) {
    CHECK(error.diagnostic.kind == ErrorKind::kMalformed);
    CHECK(error.diagnostic.code == "bad-manifest");
    const std::string begin = "'m.json' does not hold a manifest of stridec: ";
    CHECK(error.diagnostic.message.starts_with(begin));
    return error.diagnostic.message.substr(begin.size());
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a manifest with all that the schema requires is taken; keys of a later version are dropped") {
  auto json = smallest();
  json["schema_version"] = "1.9";
  json["later"] = {{"schedule", 3}};
  json["requires"]["later"] = 1;
  const auto manifest = read_manifest(json.dump(), "m.json");
  CHECK(manifest["inputs"][0]["shape"] == json["inputs"][0]["shape"]);
  CHECK(!manifest.contains("later"));
  CHECK(!manifest["requires"].contains("later"));
}

TEST_CASE("what a reader would trip over is refused with its place") {
  CHECK(refusal("") == "it is not JSON");
  CHECK(refusal("{} {}") == "it is not JSON");
  CHECK(refusal("[]") == "the manifest is not of the type \"object\"");
  CHECK(refusal("{}") == "the manifest lacks \"schema_version\"");
  CHECK(refusal(std::string(1 << 20, '[')) == "it is nested too deep");
  auto json = smallest();
  json["schema_version"] = "2.0";
  CHECK(refusal(json.dump()) == "its version is \"2.0\"; this stridec reads 1");
  json = smallest();
  json["inputs"][0].erase("dtype");
  CHECK(refusal(json.dump()) == "the manifest.inputs[0] lacks \"dtype\"");
  json = smallest();
  json["inputs"][0]["shape"][1] = 2.5;
  CHECK(refusal(json.dump()) ==
        "the manifest.inputs[0].shape[1] is not of the type [\"integer\",\"string\"]");
  json = smallest();
  json["memory"]["weights_bytes"] = -1;
  CHECK(refusal(json.dump()) == "the manifest.memory.weights_bytes is too small");
  json = smallest();
  json["symbols"][0]["from"] = "luck";
  CHECK(refusal(json.dump()) == "the manifest.symbols[0].from has none of the allowed forms");
  json = smallest();
  json["options"] = {{"winograd", 1}};
  CHECK(refusal(json.dump()) == "the manifest.options.winograd is not of the type \"string\"");
}
