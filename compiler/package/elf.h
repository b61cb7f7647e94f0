// The artifact as a file: a linked shared object with the weights and the manifest appended as one read-only
// segment.
//
// The runtime reserves a PT_NOTE (stridec_abi_note in abi.h). The bytes are appended to the linked file,
// page-aligned. The note receives their addresses, and its program header becomes a PT_LOAD over them, so the
// loader maps them like any other segment: lazily, shared between processes, at a cost independent of size. A
// section header covers them, so `strip` keeps them. The payload ends with a hash of everything that is
// loaded. The hash detects a damaged artifact; it does not protect against forgery.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/files.h"

namespace stridec::package {

// Bytes at an offset of the weights section, which is a multiple of 4096 in memory. They may be in a mapped
// file: nothing is copied before it is written.
struct WeightPiece {
  uint64_t offset = 0;
  std::string_view bytes;
};

struct Payload {
  // In ascending order, without overlap. Gaps and the rest are zeros.
  std::span<const WeightPiece> weights;
  uint64_t weights_bytes = 0;  // of the whole section
  std::string_view manifest;
  std::string_view images;  // stridec_abi_images and the images it lists; may be empty
  std::function<void(uint64_t done, uint64_t total)> progress;  // may be empty; called every half megabyte
};

// Writes the whole artifact into an empty file, which the caller commits. `shared_object` is the result of
// codegen::link_shared, with the runtime among its inputs. Equal arguments give equal bytes. Throws like
// UnfinishedFile.
void write_artifact(UnfinishedFile& file, std::string_view shared_object, const Payload& payload);

// Offsets in the file. Size 0: absent.
struct ArtifactLayout {
  uint64_t weights_offset = 0, weights_bytes = 0;
  uint64_t manifest_offset = 0, manifest_bytes = 0;
  uint64_t images_offset = 0, images_bytes = 0;
};

// Parses a whole file in memory, which may have any contents. Throws a kMalformed Error if it is not an
// artifact of this version, is truncated, or differs in any byte that the loader maps.
ArtifactLayout artifact_layout(std::string_view file);

// Replaces bytes of the weights section of a whole artifact in memory, which has this layout.
void replace_weights(std::string& file, const ArtifactLayout& layout, uint64_t offset,
                     std::string_view bytes);

// Names another file of external weights in a whole artifact in memory, which has this layout, no weights of
// its own, and a name of such a file; with the manifest that says so. Throws a kUnsupported Error if the
// artifact's format does not allow that.
void replace_weights_file(std::string& file, const ArtifactLayout& layout, const std::string& name,
                          uint64_t hash, std::string_view manifest);

// What the dynamic section requires from the dynamic loader.
struct LoaderNeeds {
  std::string soname;
  std::vector<std::string> libraries;  // DT_NEEDED
  std::vector<std::string> versions;   // "GLIBC_2.14", ...
  std::string glibc;                   // the highest glibc version among them: "2.17"
};

// Throws a kMalformed Error if the bytes are not a 64-bit x86 shared object.
LoaderNeeds loader_needs(std::string_view file);

}  // namespace stridec::package
