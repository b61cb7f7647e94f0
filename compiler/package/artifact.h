// The artifact: one shared library with the kernels, the host program, the runtime and the weights, and its
// manifest.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/base/files.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/codegen/cuda/build.h"
#include "compiler/package/manifest.h"

namespace stridec::package {

// Everything but the weights, in memory.
struct Artifact {
  std::string library;  // linked, with an empty place for the weights and the manifest
  std::string manifest;
  std::string images;        // GPU kernels: stridec_abi_images; may be empty
  std::string weights_file;  // a name beside the library; "": within it
};

// The programs of all variants; the inputs, outputs and weights' places are the same in all of them.
using Programs = std::vector<const loop::Program*>;

// What the host program has to know of the weights: where they are and, of a separate file, its hash.
codegen::HostOptions host_options(const Programs& programs, const std::string& weights_file);

// `facts.glibc` is filled in here.
Artifact link(const Programs& programs, const codegen::cpu::Built& built, const codegen::cuda::Built& device,
              ManifestFacts facts);

// The library at `path` and, beside it, the manifest with the ending .json (and the weights where they have a file of
// their own), each whole under a temporary name until publish() renames them all. Destroyed before, it leaves nothing. Both throw Error.
class StagedArtifact {
 public:
  StagedArtifact(const Artifact& artifact, const Programs& programs, const std::string& path);
  void publish();

 private:
  std::vector<std::unique_ptr<UnfinishedFile>> files_;
};

// Where the manifest of a library goes: "model.so" -> "model.json".
std::string manifest_path(const std::string& library);

}  // namespace stridec::package
