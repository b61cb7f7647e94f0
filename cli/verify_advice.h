// What to do about a difference that verify finds: whether compiling again helps, or what does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/first_difference.h"
#include "cli/library.h"

namespace stridec::cli {

// What an artifact was made of, where it is not what the command has; "": it is the same.
struct Origin {
  std::string model;  // "'a.so' was compiled from 'b.onnx' (sha256 8f2c...), not from 'c.onnx' (sha256 ...)"
  std::string compiler;  // "'a.so' was compiled by stridec 0.1.0, manifest 1.4; this is ..."
};

// `model`: the file of the command, whose hash is `sha256`.
Origin origin_of(const Library& artifact, const std::string& path, const std::string& model,
                 const std::string& sha256);
// What to do about it. `same`: what to say if model and compiler are the same.
std::string remedy(const Origin& origin, const std::string& same);

struct CausedBy {
  std::string artifact, mode;         // of the command
  std::vector<std::string> expected;  // its flags --expect
  const Library* library;             // null: there is no artifact
  const Origin& origin;
  std::string within;  // the default tolerance, if it allows the difference: "0.0001 (f32)"
};
// "; first difference at NODE", or what this build's code says about the failure if `first` is none; and what
// helps.
std::string cause_text(const CausedBy& of, const std::optional<FirstDifference>& first);

}  // namespace stridec::cli
