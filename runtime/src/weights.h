// Where the weights and the manifest are: in a segment appended to the artifact, or weights in a file beside
// it.
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
  void* mapping;  // of a separate weights file; null if there is none
  Block copy;     // of the weights, in huge pages; empty if there is none
};

// Finds both for a note loaded at `base`. The artifact's own note is artifact_note() at artifact_base().
// weights_dir null: the folder of the artifact. On failure a sentence is written and nothing stays open.
stridec_status find_blob(const stridec_abi_note& note, const char* base,
                         const stridec_abi_program& program, const char* weights_dir, bool check_hash,
                         Blob& blob, Text& message);
// Puts the weights into huge pages where there are such, and lets the file's pages go.
void copy_weights(Blob& blob);
void close_blob(Blob& blob);

const stridec_abi_note& artifact_note();
const char* artifact_base();

}  // namespace stridec::runtime
