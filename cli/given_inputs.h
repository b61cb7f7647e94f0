// Inputs of the runs of a command: read from files, or drawn at random.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/npy.h"

namespace CLI {
class App;
}

namespace stridec::cli {

// Declares --input and --dim for commands that draw the inputs that are not given.
void declare_drawn_inputs(CLI::App& app, std::vector<std::string>& inputs, std::string& dims);

// Whether the selected function has a size of this name that its inputs or the context determine.
bool has_size(const Library& library, const std::string& name);

Sizes parse_sizes(const std::string& text);

// Assigns `name=file` flags to names; "" for names without a file. A flag that is only a file is assigned
// to the next name without one; a .npz file is assigned to the names of its arrays. `what` ("input") is for
// messages.
std::vector<std::string> assign_files(const std::vector<std::string>& given,
                                      const std::vector<std::string>& names, const std::string& what);
std::vector<std::string> names_of(const std::vector<ValueDeclaration>& values);
// The paths that `[NAME=]FILE` flags may mean, a NAME with a '=' in it too.
std::vector<std::string> files_named(const std::vector<std::string>& given);

// One array per input, and the sizes that they determine.
struct GivenInputs {
  std::vector<Array> arrays;
  Sizes sizes;
};
// Which random inputs: those of a seed, at an attempt to draw ones that fit each other (DrawnRange).
struct Draw {
  uint64_t seed = 0;
  int attempt = 0;
};
// Reads the inputs from `name=file` flags. If `random`, draws the others from the ranges in the manifest,
// with the same result for the same `draw`. Sizes that neither a file nor `sizes` sets are the smallest
// supported, but at least 1 and as large as the guards require; without `random`, sizes of the context have
// to be given. Throws Error (kUsage) for sizes that contradict each other or that the library does not have,
// and for missing inputs.
GivenInputs read_inputs(const Library& library, const std::vector<std::string>& files, Sizes sizes,
                        bool random, Draw draw);
// Binds the context and calls `use` with the inputs. Random inputs may contradict each other in ways that no
// range of a single input describes (a reshape target). If `use` throws kDoesNotFit, inputs are drawn again
// a few times; then the first Error is rethrown. The same `seed` gives the same values.
void with_inputs(Library& library, const std::vector<std::string>& files, const Sizes& sizes, bool random,
                 const std::function<void(GivenInputs)>& use, uint64_t seed = 0);

}  // namespace stridec::cli
