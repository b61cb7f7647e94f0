// Assembles the artifact: a shared library with the kernels, the host program, the runtime and the weights,
// and its manifest.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/base/files.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/codegen/cpu/link.h"
#include "compiler/codegen/cuda/build.h"
#include "compiler/package/manifest.h"

namespace stridec::package {

// Everything except the weights, in memory.
struct Artifact {
  std::string library;  // linked, with reserved space for the weights and the manifest
  std::string manifest;
  std::string images;        // GPU kernels: stridec_abi_images; may be empty
  std::string weights_file;  // file name of external weights; "": embedded
};

// The programs of all variants of all functions, which share one weights section.
using Programs = std::vector<const loop::Program*>;

// What the host program needs to know about the weights: their location and, for an external file, its hash.
codegen::HostOptions host_options(const Programs& programs, const std::string& weights_file);

// Sets `facts.glibc`. With symbols, a kernel's function has the name of the first nest that it computes, and
// the number of `inspect --stage=source`.
Artifact link(const codegen::cpu::Built& built, const codegen::cuda::Built& device, ManifestFacts facts,
              codegen::Symbols symbols);

// Writes the library to `path` and the manifest next to it, with the extension .json (and the weights, if
// external). Each is complete under a temporary name until publish() renames them all. If it is destroyed
// before that, no files remain. Both throw Error.
class StagedArtifact {
 public:
  StagedArtifact(const Artifact& artifact, const Programs& programs, const std::string& path);
  void publish();

 private:
  std::vector<std::unique_ptr<UnfinishedFile>> files_;
};

// The path of the manifest of a library: "model.so" -> "model.json".
std::string manifest_path(const std::string& library);
// The name, in the same folder, of the file of external weights.
std::string weights_name(const std::string& library);

}  // namespace stridec::package
