// An artifact as `run`, `bench` and `verify` use it: loaded with dlopen, called through the C API.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/npy.h"
#include "compiler/tune/gpu_device.h"
#include "runtime/include/stridec/runtime.h"

namespace stridec::cli {

struct ValueDeclaration {
  std::string name, shape_text;
  DType dtype;
  int rank = 0;
};

// A size that the inputs give, and what the artifact serves.
struct SymbolDeclaration {
  std::string name;
  int64_t minimum, maximum, multiple;  // maximum: INT64_MAX where there is none
};

// One loaded model with one context. Every failure of the API becomes an Error with the runtime's sentence.
class Library {
 public:
  Library(const std::string& path, int threads, const std::string& variant = {});
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const std::vector<ValueDeclaration>& inputs() const { return inputs_; }
  const std::vector<ValueDeclaration>& outputs() const { return outputs_; }
  std::vector<SymbolDeclaration> symbols() const;
  std::string manifest() const;
  std::string variant() const;
  stridec_device device() const { return device_; }  // where it runs

  std::vector<Array> run(const std::vector<Array>& inputs);
  void reset_state();  // to the initial values

  // For runs whose time counts: inputs that stay where the artifact runs; outputs belong to the context.
  void place(std::vector<Array> inputs);
  // Makes the first run as fast as later ones, where the artifact knows how to.
  void warm_up();
  // Seconds of one run: on the CPU as the clock goes, on a GPU by its own clock, of so many runs in a row.
  double timed_run(int row = 1);
  // On a GPU, the least that the host took to enqueue one of them.
  double enqueue_seconds() const { return enqueue_seconds_; }
  tune::GpuDevice* gpu() const { return gpu_.get(); }  // null: it runs on the CPU

  struct Step {
    std::string name;
    int64_t calls, nanoseconds, minimum;  // minimum: of one call
  };
  void profile(bool enable);
  std::vector<Step> steps() const;
  stridec_memory_info memory() const;
  int threads() const;

 private:
  void check(stridec_status status) const;
  void describe(Array& array, stridec_tensor& tensor) const;
  std::vector<stridec_tensor> outputs_in_place() const;
  void run_in_place();

  void* handle_ = nullptr;
  const stridec_api* api_ = nullptr;
  stridec_model* model_ = nullptr;
  stridec_context* context_ = nullptr;
  std::vector<ValueDeclaration> inputs_, outputs_;

  std::vector<Array> arrays_;  // what `placed_` refers to
  std::vector<stridec_tensor> placed_;
  stridec_device device_{STRIDEC_DEVICE_CPU, 0};
  std::unique_ptr<tune::GpuDevice> gpu_;  // once something was placed there
  double enqueue_seconds_ = 0;
};

// Whether its inputs give a size of that name.
bool has_size(const Library& library, const std::string& name);

// What the names in a declared shape ("[batch, 3, 2*h]") are given as: `batch=2,h=40`.
using Sizes = std::map<std::string, int64_t>;
Sizes parse_sizes(const std::string& text);

// `name=file` flags as a file for each name, "" where there is none; a file alone is for the next name without one. `what`
// ("input") is for messages.
std::vector<std::string> assign_files(const std::vector<std::string>& given,
                                      const std::vector<std::string>& names, const std::string& what);
std::vector<std::string> names_of(const std::vector<ValueDeclaration>& values);

// An array for each input, and the sizes that they give.
struct GivenInputs {
  std::vector<Array> arrays;
  Sizes sizes;
};
// From `name=file` flags and, where `random`, drawn for the others from the ranges in the manifest, the same for each
// `draw`. Sizes that neither a file nor `sizes` gives are the least that it serves, but 1 or more, and as large as its
// guards ask. Throws Error (kUsage) for sizes that contradict each other or that the library does not have, and for inputs
// that are missing.
GivenInputs read_inputs(const Library& library, const std::vector<std::string>& files, Sizes sizes,
                        bool random, uint64_t draw);
// Calls `use` with them. Random inputs may contradict each other in a way that no range of one of them tells (a target of a
// reshape): where `use` throws kDoesNotFit, others are drawn, some times, and then the first Error is thrown.
void with_inputs(const Library& library, const std::vector<std::string>& files, const Sizes& sizes,
                 bool random, const std::function<void(GivenInputs)>& use);

}  // namespace stridec::cli
