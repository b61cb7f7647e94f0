// A loaded artifact, for `run`, `bench` and `verify`: opened with dlopen, called through the C API.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/npy.h"
#include "compiler/base/diagnostic.h"
#include "compiler/tune/gpu_device.h"
#include "runtime/include/stridec/runtime.h"

namespace CLI {
class App;
}

namespace stridec::cli {

struct ValueDeclaration {
  std::string name, shape_text;
  DType dtype;
  int rank = 0;
  std::vector<int64_t> sizes =
      {};  // [rank], -1 for a size of the run; empty: the artifact does not list them
  std::vector<int32_t> memory_order = {};  // of the dims, outermost first; empty: row-major
};

// A size that the inputs or the context determine, and the range that the artifact supports.
struct SymbolDeclaration {
  std::string name;
  int64_t minimum, maximum, multiple;  // maximum: INT64_MAX if there is none
  bool of_context;                     // contexts are created with it
};

// Values of the names in declared shapes ("[batch, 3, 2*h]"), given as `batch=2,h=40`.
using Sizes = std::map<std::string, int64_t>;

// Loads an artifact, which stays loaded. Throws Error if the file is not a whole artifact that this version
// reads.
const stridec_api* load_api(const std::string& path);
// How a status of the C API ends a command.
ErrorKind kind_of(stridec_status status);
// Formats that NumPy lacks are unsigned integers of their size.
stridec_dtype dlpack_dtype(DType dtype);

// --threads, --function and --variant.
void declare_library_flags(CLI::App& app, int& threads, std::string& function, std::string& variant);

// A loaded model with one context, and one of its functions. A failed API call throws an Error with the
// runtime's message. If its states have sizes that contexts are created with, bind_context() comes before
// everything that needs a context.
class Library {
 public:
  // Selects the first function.
  Library(const std::string& path, int threads, const std::string& variant = {});
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // The names of all functions, in order.
  const std::vector<std::string>& functions() const { return functions_; }
  // Selects the function that the calls below are about; "": the first. Throws a usage Error for a name that
  // the artifact does not have.
  void select(const std::string& function);
  const std::string& function() const { return functions_[static_cast<size_t>(function_)]; }

  const std::vector<ValueDeclaration>& inputs() const { return inputs_; }
  const std::vector<ValueDeclaration>& outputs() const { return outputs_; }
  std::vector<SymbolDeclaration> symbols() const;
  // Names of the sizes that contexts are created with, of all functions.
  std::vector<std::string> context_sizes() const;
  // Makes the context with those of the sizes, unless it has them. States get their initial values. Sizes
  // that only states of other functions have are the smallest that are served, if they are not given.
  void bind_context(const Sizes& sizes);
  std::string manifest() const;  // of the artifact
  // The part of the manifest about the function.
  nlohmann::ordered_json function_manifest() const;
  std::string variant() const;
  stridec_device device() const { return device_; }  // the device that the model runs on

  std::vector<Array> run(const std::vector<Array>& inputs);
  // The operators that the application computes. set_operator() registers a function that computes one; an
  // exception from it ends the run.
  std::vector<std::string> operators() const;
  using Operator = std::function<void(const stridec_call&)>;
  void set_operator(const std::string& name, Operator function);

  void reset_state();  // to the initial values
  // The states of all functions, with the context's sizes; and reading and writing one.
  std::vector<ValueDeclaration> states() const;
  Array read_state(const ValueDeclaration& state) const;
  void write_state(const std::string& name, const Array& value);

  // For timed runs: copies the inputs to the device of the artifact; outputs are in memory of the context.
  void place(std::vector<Array> inputs);
  // Makes the first run as fast as later ones, if the artifact supports it.
  void warm_up();
  // Seconds per run. On a CPU: wall time. On a GPU: device time, over `row` runs in a row.
  double timed_run(int row = 1);
  // On a GPU: the minimum host time to enqueue one of them.
  double enqueue_seconds() const { return enqueue_seconds_; }
  tune::GpuDevice* gpu() const { return gpu_.get(); }  // null: the model runs on a CPU

  struct Step {
    std::string name;
    int64_t calls, nanoseconds, minimum;  // minimum: of one call
  };
  void profile(bool enable);
  std::vector<Step> steps() const;
  // Traces the following runs; null: no longer. Throws Error for artifacts whose runtime is too old for it.
  void trace(const stridec_trace_options* options);
  stridec_memory_info memory() const;
  int threads() const;

 private:
  stridec_context* context() const;
  void check(stridec_status status) const;
  void register_operator(const std::string& name);
  static int32_t call_operator(void* user, const stridec_call* call);
  bool has_functions() const;  // of the API: artifacts of earlier compilers have one
  stridec_function_info function_info() const;
  stridec_tensor describe(Array& array) const;
  // The inputs' arrays, put into the memory orders that were declared, and tensors of them.
  struct Inputs {
    std::vector<Array> arrays;
    std::vector<std::vector<int64_t>> strides;
    std::vector<stridec_tensor> tensors;
  };
  Inputs in_memory_order(std::vector<Array> arrays) const;
  std::vector<stridec_tensor> outputs_in_place() const;
  void run_in_place();
  void check_run(const std::vector<stridec_tensor>& inputs, std::vector<stridec_tensor>& outputs) const;

  const stridec_api* api_ = nullptr;
  stridec_model* model_ = nullptr;
  stridec_context* context_ = nullptr;  // null: bind_context() was not called yet
  bool traces_to_file_ = false;
  int threads_ = 0;
  std::vector<SymbolDeclaration> context_sizes_;
  Sizes bound_;  // of the context
  std::vector<std::string> functions_;
  int32_t function_ = 0;
  std::vector<ValueDeclaration> inputs_, outputs_;

  std::map<std::string, Operator, std::less<>> operators_;
  mutable std::exception_ptr thrown_;  // by an operator in the last run

  Inputs placed_;
  stridec_device device_{STRIDEC_DEVICE_CPU, 0};
  std::unique_ptr<tune::GpuDevice> gpu_;  // set once something was placed on a GPU
  double enqueue_seconds_ = 0;
};

}  // namespace stridec::cli
