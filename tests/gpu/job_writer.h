// Writes matrix products and convolutions as cubins, with their launches, for tests/gpu/matrix.py.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"
#include "tests/support/matrix_cases.h"

namespace stridec::test {

using nlohmann::json;
using Sizes = std::map<std::string, int64_t>;

class JobWriter {
 public:
  explicit JobWriter(std::string folder) : folder_(std::move(folder)), nvrtc_("") {}

  // `kernel`: "" for the one that the model ranks first, a number for the rank.
  void add(const MatrixCase& c, const std::string& kernel, const std::vector<Sizes>& shapes,
           const json& reference, bool time, int64_t split = 0);

  // Those that the model expects to take at most `most` times the best one's cycles.
  void add_plans(const MatrixCase& c, const json& reference, double most, size_t count = SIZE_MAX,
                 const GpuTarget& target = gpu_target("sm_90a"));

  // Adds the schedules that the cost model ranks high for `fixed`, with the texts of `c`, the same case with
  // symbolic sizes: each tile that is not much too tall, with at most as many splits.
  void add_at(const MatrixCase& c, const MatrixCase& fixed, const Sizes& sizes, const json& reference,
              double most, size_t count);

  // What is chosen for `c`, at each of these sizes.
  void add_chosen(const MatrixCase& c, const std::vector<Sizes>& shapes, const json& reference);
  void finish();

 private:
  void write(const MatrixCase& c, const loop::Program& program, const codegen::DeviceChoice& choice,
             int number, const Sizes& sizes, const json& reference, bool time);
  std::string cubin(const std::string& text, const std::string& name);

  std::string folder_;
  codegen::cuda::Nvrtc nvrtc_;
  std::map<std::string, std::string> cubins_;
  std::map<std::string, std::pair<loop::Program, codegen::DeviceNest>> at_;
  json jobs_ = json::array();
};

}  // namespace stridec::test
