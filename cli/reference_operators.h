// Operators that the application computes, in commands, which have none of its callbacks: each is computed by
// the reference that a file of --ops declares for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/library.h"
#include "compiler/extend/extensions.h"

namespace stridec::cli {

// --ops of commands that run an artifact.
void declare_reference_operators(CLI::App& app, std::vector<std::string>& files);

using OperatorFiles = std::vector<std::shared_ptr<const extend::OperatorFile>>;
// Throws Error for files that are wrong, or that declare one operator twice.
OperatorFiles read_operator_files(const std::vector<std::string>& files);

// Computes the artifact's operators by their references, and notes which these are. A run that needs an
// operator without one throws Error kUnsupported.
void use_references(Library& library, const OperatorFiles& files, const Globals& globals);

}  // namespace stridec::cli
