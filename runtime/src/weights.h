// Locates the weights and the manifest: in a segment appended to the artifact, or the weights in an external
// file.
#pragma once

#include "memory.h"
#include "stridec/abi.h"
#include "stridec/runtime.h"

namespace stridec::runtime {

class Text;

struct Bytes {
  const char* data;
  uint64_t size;
};

struct Blob {
  Bytes weights;
  Bytes manifest;
  Bytes images;   // stridec_abi_images
  void* mapping;  // of an external weights file; null if there is none
  Block copy;     // of the weights, in huge pages; empty if not used
};

// Finds weights and manifest for a note loaded at `base`. The artifact's own note is artifact_note() at
// artifact_base(). weights_dir null: the folder of the artifact. On failure it writes a sentence and leaves
// nothing open.
stridec_status find_blob(const stridec_abi_note& note, const char* base, const stridec_abi_module& module,
                         const char* weights_dir, bool check_hash, Blob& blob, Text& message);
// Compares the contents of the artifact's file with the hash that it carries (stridec_abi_seal).
stridec_status check_seal(Text& message);
// Copies the weights into huge pages if they are available, and then releases the pages of the file.
void copy_weights(Blob& blob);
void close_blob(Blob& blob);

const stridec_abi_note& artifact_note();
const char* artifact_base();
// The path that the artifact was loaded from, as passed to the loader: a relative path stays relative.
void own_path(char* out, size_t room);

}  // namespace stridec::runtime
