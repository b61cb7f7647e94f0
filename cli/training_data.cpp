#include "cli/training_data.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "cli/given_inputs.h"
#include "cli/npz.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

constexpr int64_t kUsualBatch = 32;

// Steele et al. 2014, "Fast splittable pseudorandom number generators": SplitMix64.
uint64_t next(uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

TrainingData::TrainingData(const Library& library, const std::vector<std::string>& files,
                           const std::vector<std::string>& fixed, int64_t batch, uint64_t seed)
    : batch_(batch), seed_(seed) {
  std::vector<ValueDeclaration> inputs;
  for (const ValueDeclaration& input : library.inputs())
    if (std::ranges::count(fixed, input.name) == 0) inputs.push_back(input);
  const auto assigned = assign_files(files, names_of(inputs), "input");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (assigned[i].empty())
      fail(ErrorKind::kUsage, "missing-input", cat("input '", inputs[i].name, "' is not given"),
           cat("give --data ", inputs[i].name, "=file.npy"));
    Array& array = arrays_.emplace_back(read_array(assigned[i], inputs[i].dtype));
    if (array.dtype != inputs[i].dtype)
      fail(ErrorKind::kDoesNotFit, "wrong-type",
           cat("input '", inputs[i].name, "' is ", name(inputs[i].dtype), ", the file has ",
               name(array.dtype)));
    if (array.shape.empty())
      fail(ErrorKind::kDoesNotFit, "no-samples", cat("'", assigned[i], "' is a single number"),
           "the first dim of an array counts samples");
    if (batch_ == 0 && !inputs[i].sizes.empty()) batch_ = std::max<int64_t>(0, inputs[i].sizes[0]);
    if (i > 0 && array.shape[0] != samples_)
      fail(ErrorKind::kDoesNotFit, "samples-differ",
           cat("input '", inputs[i].name, "' has ", array.shape[0], " samples, '", inputs[0].name, "' has ",
               samples_));
    samples_ = array.shape[0];
  }
  if (samples_ == 0)
    fail(ErrorKind::kDoesNotFit, "no-samples", "the data has no samples",
         "the first dim of an array counts samples");
  if (batch_ == 0) batch_ = std::min(kUsualBatch, samples_);
  if (samples_ < batch_ || batch_ < 1)
    fail(ErrorKind::kDoesNotFit, "too-few-samples", cat(samples_, " samples do not fill a batch of ", batch_),
         "give a smaller --batch");
  current_ = arrays_;
  for (Array& array : current_) {
    array.shape[0] = batch_;
    array.bytes.resize(array.bytes.size() / static_cast<size_t>(samples_) * static_cast<size_t>(batch_));
  }
}

const std::vector<Array>& TrainingData::at(int64_t step) {
  const int64_t steps = samples_ / batch_, epoch = step / steps, first = step % steps * batch_;
  if (std::exchange(epoch_, epoch) != epoch) {
    order_.resize(static_cast<size_t>(samples_));
    std::iota(order_.begin(), order_.end(), 0);
    uint64_t state = seed_ * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(epoch);
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[next(state) % i]);
  }
  for (size_t a = 0; a < arrays_.size(); ++a) {
    const size_t row = arrays_[a].bytes.size() / static_cast<size_t>(samples_);
    if (row == 0) continue;
    for (int64_t i = 0; i < batch_; ++i)
      std::memcpy(current_[a].bytes.data() + static_cast<size_t>(i) * row,
                  arrays_[a].bytes.data() + static_cast<size_t>(order_[static_cast<size_t>(first + i)]) * row,
                  row);
  }
  return current_;
}

}  // namespace stridec::cli
