// Samples for training: arrays whose first dim counts samples, in batches of a shuffled order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/npy.h"

namespace stridec::cli {

class TrainingData {
 public:
  // Reads the inputs of the library's function from `name=file.npy` and `all.npz` flags. `fixed`: inputs that
  // the files do not have. `batch` 0: what the model's shapes fix, or 32. Throws Error if an input has no
  // file, or the arrays do not have equally many samples.
  TrainingData(const Library& library, const std::vector<std::string>& files,
               const std::vector<std::string>& fixed, int64_t batch, uint64_t seed);

  int64_t batch() const { return batch_; }
  int64_t samples() const { return samples_; }
  // The batch of a step, in the order of the inputs, without the fixed ones. Every epoch has an order of its
  // own, which depends on the seed alone; samples that do not fill a batch are left out of the epoch.
  const std::vector<Array>& at(int64_t step);

 private:
  std::vector<Array> arrays_, current_;
  std::vector<int64_t> order_;
  int64_t batch_ = 0, samples_ = 0, epoch_ = -1;
  uint64_t seed_;
};

}  // namespace stridec::cli
