// Data for training: samples, which are arrays whose first dim counts them, in batches of a shuffled order;
// and inputs that are the same in each step, such as class weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/npy.h"

namespace stridec::cli {

class TrainingData {
 public:
  // Reads the inputs of the library's function from `name=file.npy` and `all.npz` flags. `fixed`: inputs that
  // the files do not have. `whole`: inputs without a dim of samples; so are those of rank 0, and those whose
  // first dim has a fixed size where it has a symbol in most. `batch` 0: what the model's shapes fix, or 32.
  // Throws Error if an input has no file, or the arrays do not have equally many samples.
  TrainingData(const Library& library, const std::vector<std::string>& files,
               const std::vector<std::string>& fixed, const std::vector<std::string>& whole, int64_t batch,
               uint64_t seed);

  int64_t batch() const { return batch_; }
  int64_t samples() const { return samples_; }
  // The batch of a step, in the order of the inputs, without the fixed ones. Every epoch has an order of its
  // own, which depends on the seed alone; samples that do not fill a batch are left out of the epoch.
  const std::vector<Array>& at(int64_t step);

  // An integer of the batch that at() returned last.
  struct Place {
    std::string input, file;
    int64_t sample;                // in the file; -1: the input is the same in each step
    std::vector<int64_t> element;  // within the sample, or within the whole input
  };
  // Where the batch has this value outside the range of its input; nullopt: nowhere.
  std::optional<Place> find(int64_t value) const;

 private:
  struct Input {
    std::string name, file;
    bool whole;
    std::optional<int64_t> least, most;  // of its values, as the manifest has them
  };
  void read(const ValueDeclaration& declared, Input input);

  std::vector<Input> inputs_;
  std::vector<Array> arrays_, current_;
  std::vector<int64_t> order_;
  int64_t batch_ = 0, samples_ = -1, epoch_ = -1, first_ = 0;
  uint64_t seed_;
};

}  // namespace stridec::cli
