#include "compiler/package/artifact.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/codegen/embedded.h"
#include "compiler/package/elf.h"
#include "compiler/package/symbols.h"
#include "runtime/include/stridec/abi.h"
#include "runtime/include/stridec/xxh64.h"

namespace stridec::package {
namespace {

using codegen::cpu::Built;

// The weights and initial states of all variants, by offset, without repeats.
std::vector<WeightPiece> pieces_of(const Programs& programs) {
  std::vector<WeightPiece> pieces;
  for (const loop::Program* program : programs)
    for (const auto& buffer : program->buffers) {
      const auto offset = sym::as_const(buffer.offset);
      const bool stored =
          buffer.storage == loop::Storage::kParameter || buffer.storage == loop::Storage::kState;
      if (!stored || !offset || *offset < 0 || buffer.weight.size == 0) continue;
      pieces.push_back({static_cast<uint64_t>(*offset),
                        {reinterpret_cast<const char*>(buffer.weight.bytes), buffer.weight.size}});
    }
  std::sort(pieces.begin(), pieces.end(),
            [](const WeightPiece& a, const WeightPiece& b) { return a.offset < b.offset; });
  const auto same = [](const WeightPiece& a, const WeightPiece& b) { return a.offset == b.offset; };
  pieces.erase(std::unique(pieces.begin(), pieces.end(), same), pieces.end());
  return pieces;
}

uint64_t weight_bytes(const Programs& programs) {
  return static_cast<uint64_t>(programs.front()->weight_bytes);
}

// Calls `take` for consecutive ranges of the whole section, with zeros for gaps.
template <class Take>
void for_each_byte_range(const std::vector<WeightPiece>& pieces, uint64_t total, Take&& take) {
  static constexpr char kZeros[4096] = {};
  uint64_t at = 0;
  auto fill_to = [&](uint64_t end) {
    while (at < end) {
      const uint64_t n = std::min<uint64_t>(end - at, sizeof(kZeros));
      take(std::string_view(kZeros, n));
      at += n;
    }
  };
  for (const WeightPiece& piece : pieces) {
    fill_to(piece.offset);
    take(piece.bytes);
    at += piece.bytes.size();
  }
  fill_to(total);
}

}  // namespace

codegen::HostOptions host_options(const Programs& programs, const std::string& weights_file) {
  codegen::HostOptions options{.weights_file = weights_file, .weights_bytes = weight_bytes(programs)};
  if (weights_file.size() >= sizeof stridec_abi_weights_file::name)
    fail(ErrorKind::kUsage, "long-name", cat("'", weights_file, "' is too long for the name of a file"));
  if (!weights_file.empty()) {
    stridec_xxh64_state hash = stridec_xxh64_begin(0);
    for_each_byte_range(pieces_of(programs), options.weights_bytes, [&](std::string_view bytes) {
      stridec_xxh64_add(&hash, bytes.data(), bytes.size());
    });
    options.weights_hash = stridec_xxh64_end(&hash);
  }
  return options;
}

Artifact link(const Built& built, const codegen::cuda::Built& device, ManifestFacts facts,
              codegen::Symbols symbols) {
  std::vector<codegen::LinkInput> inputs = {{"runtime", codegen::runtime_object()},
                                            {"host", built.host_object}};
  std::map<std::string, std::string> names;
  size_t number = device.kernels.size();
  for (const auto& kernel : built.kernels) {
    inputs.push_back({kernel.symbol, kernel.object});
    names[kernel.symbol] = function_name(kernel.nests.empty() ? "" : kernel.nests.front(), ++number);
  }
  inputs.push_back({.name = "image", .object = codegen::image_object(), .if_needed = true});
  Artifact artifact{
      .library = name_functions(codegen::link_shared(inputs, {.soname = "", .symbols = symbols}), names),
      .images = codegen::cuda::images(device),
      .weights_file = facts.weights_file};
  facts.glibc = loader_needs(artifact.library).glibc;
  artifact.manifest = manifest(facts);
  return artifact;
}

StagedArtifact::StagedArtifact(const Artifact& artifact, const Programs& programs, const std::string& path) {
  const auto pieces = pieces_of(programs);
  const uint64_t bytes = weight_bytes(programs);
  const bool separate = !artifact.weights_file.empty();
  const std::string weights_path =
      (std::filesystem::path(path).parent_path() / artifact.weights_file).string();
  // Checks everything that could make a rename fail before the first rename.
  for (const std::string& target : {path, manifest_path(path), separate ? weights_path : path})
    check_replaceable(target);
  const auto file = [&](const std::string& target) -> UnfinishedFile& {
    return *files_.emplace_back(std::make_unique<UnfinishedFile>(target));
  };
  Payload payload{.manifest = artifact.manifest, .images = artifact.images};
  if (!separate) payload.weights = pieces, payload.weights_bytes = bytes;
  write_artifact(file(path), artifact.library, payload);
  file(manifest_path(path)).write(artifact.manifest.data(), artifact.manifest.size());
  if (!separate) return;
  UnfinishedFile& weights = file(weights_path);
  for_each_byte_range(pieces, bytes,
                      [&](std::string_view range) { weights.write(range.data(), range.size()); });
}

void StagedArtifact::publish() {
  for (const auto& file : files_) file->commit();
}

std::string manifest_path(const std::string& library) {
  return std::filesystem::path(library).replace_extension(".json").string();
}

std::string weights_name(const std::string& library) {
  return std::filesystem::path(library).stem().string() + ".weights";
}

}  // namespace stridec::package
