// What users add to a compilation: files of rules and of operators, and passes of their own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/extend/rule.h"

namespace stridec::extend {

struct OperatorFile;  // user_operator.h

// A program that reads a graph as text and writes one, or a plug-in that changes it.
struct UserPass {
  std::string after;    // the name of a pass on the graph
  std::string command;  // for /bin/sh, or the file of the plug-in
  bool plugin = false;
  std::string sha256;  // of the command's text, or of the plug-in's file
};

struct Extensions {
  std::vector<RuleFile> rules;
  std::vector<std::shared_ptr<const OperatorFile>> operators;  // files of --ops
  std::vector<UserPass> passes;
  double max_seconds = 0;   // of one run of a pass; 0: kPassSeconds
  uint64_t max_memory = 0;  // of its process; 0: kPassMemory
  bool explains = false;    // collect near misses of rules
  bool checks_ops = false;  // run all kernels of operators on drawn inputs before they are used

  bool empty() const { return rules.empty() && passes.empty() && operators.empty(); }
};

}  // namespace stridec::extend
