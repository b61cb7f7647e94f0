// What users add to a compilation: files of rules and of operators, and passes of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/extend/rule.h"

namespace stridec::extend {

struct OperatorFile;  // user_operator.h
struct KernelFile;    // kernel_file.h

// A program that reads a graph as text and writes one, or a plug-in that changes it.
struct UserPass {
  std::string after;    // the name of a pass on the graph
  std::string command;  // for /bin/sh, or the file of the plug-in
  bool plugin = false;
  std::string sha256;  // of the command's text, or of the plug-in's file
};

// Whether a subgraph that a kernel of --kernels matches is computed by it, and why.
struct KernelChoice {
  enum class Kind : uint8_t { kChosen, kSlower, kWrong, kFailed, kUntried };
  Kind kind = Kind::kUntried;
  std::string kernel, node;                  // node: the origin of the last operation
  std::string reason;                        // of all but kChosen and kSlower
  double own_seconds = 0, user_seconds = 0;  // of the compiler's kernels, and of the user's
};
std::string_view name(KernelChoice::Kind kind);  // "chosen", "slower", "wrong", "failed", "untried"

struct Extensions {
  std::vector<RuleFile> rules;
  std::vector<std::shared_ptr<const OperatorFile>> operators;  // files of --ops
  std::vector<std::shared_ptr<const KernelFile>> kernels;      // files of --kernels
  std::vector<UserPass> passes;
  double max_seconds = 0;   // of one run of a pass; 0: kPassSeconds
  uint64_t max_memory = 0;  // of its process; 0: kPassMemory
  bool explains = false;    // collect near misses of rules
  bool checks_ops = false;  // run all kernels of operators on drawn inputs before they are used

  bool empty() const { return rules.empty() && passes.empty() && operators.empty() && kernels.empty(); }
};

}  // namespace stridec::extend
