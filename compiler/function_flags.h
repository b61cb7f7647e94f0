// The flags of a compilation that name sizes, inputs, states and weights of models, divided among its
// functions.
//
// With several functions, a name applies to each function that has it, and `prefill:batch` to the function
// `prefill` alone, where it overrides the flag for `batch`.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>

#include "compiler/compilation.h"

namespace stridec {

// What applies to one function, by the names of its model.
struct FunctionFlags {
  std::vector<frontend::DimRange> dims;
  std::vector<frontend::InputShape> shapes;
  std::vector<frontend::InputValue> input_values;
  std::vector<frontend::StatePattern> states;
  std::vector<std::string> refit;
  std::vector<Layout> layouts;
};
FunctionFlags flags_of(const CompileOptions& options, const FunctionModel& function);

// What the import needs to know of a training.
frontend::TrainingImport training_import(const train::Settings& settings, bool training_form);

// Throws a usage Error for a flag that no function can use. `absent`: what frontend::ImportOptions::absent
// recorded, per function.
void check_used(const CompileOptions& options, const std::vector<std::set<std::string>>& absent);

// Imports the models of all functions into `made`. Throws like check_used().
std::vector<graph::Graph> import_functions(const CompileOptions& options, Compilation& made);

// The sizes of --specialize or --tune-shape that apply to the program of a function. With one function, all
// of them.
loop::SymbolValues sizes_of(const loop::Program& program, const loop::SymbolValues& sizes,
                            const CompileOptions& options);
// Gives inputs, outputs and states of all functions the orders of --layout. Throws a usage Error for a layout
// that does not fit its tensor, or whose tensor no function has.
void declare_layouts(const CompileOptions& options, std::span<const FunctionModel> functions,
                     std::span<loop::Program* const> programs);
// Throws a usage Error for a size that no function has, or that is outside its range.
void check_sizes(const CompileOptions& options, std::span<const loop::Program* const> programs);

}  // namespace stridec
