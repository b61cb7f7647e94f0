#include "cli/training_data.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "cli/given_inputs.h"
#include "cli/npz.h"
#include "compiler/base/counted.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
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

bool has_fixed_first_dim(const ValueDeclaration& input) {
  return !input.sizes.empty() && input.sizes[0] >= 0;
}

// Whether the first dim of most inputs is a symbol: a dim of a fixed size then counts no samples.
bool batch_is_symbol(const std::vector<ValueDeclaration>& inputs) {
  int64_t symbols = 0, all = 0;
  for (const ValueDeclaration& input : inputs) {
    if (input.rank == 0) continue;
    ++all;
    symbols += !has_fixed_first_dim(input);
  }
  return 2 * symbols > all;
}

// A bound of the values of an input, if it is a number.
std::optional<int64_t> bound(const nlohmann::ordered_json& input, const char* name) {
  const auto range = input.find("range");
  if (range == input.end() || !range->contains(name) || !range->at(name).is_number()) return std::nullopt;
  return range->at(name).get<int64_t>();
}

}  // namespace

void TrainingData::read(const ValueDeclaration& declared, Input input) {
  Array array = read_array(input.file, declared.dtype);
  if (array.dtype != declared.dtype)
    fail(ErrorKind::kDoesNotFit, "wrong-type",
         cat("input '", input.name, "' is ", name(declared.dtype), ", the file has ", name(array.dtype)));
  if (!input.whole) {
    if (array.shape.empty())
      fail(ErrorKind::kDoesNotFit, "no-samples", cat("'", input.file, "' is a single number"),
           "the first dim of an array counts samples");
    if (batch_ == 0 && !declared.sizes.empty()) batch_ = std::max<int64_t>(0, declared.sizes[0]);
    const auto before = std::ranges::find(inputs_, false, &Input::whole);
    if (before != inputs_.end() && array.shape[0] != samples_)
      fail(ErrorKind::kDoesNotFit, "samples-differ",
           cat("input '", input.name, "' has ", counted(array.shape[0], "sample"), ", '", before->name,
               "' has ", samples_));
    samples_ = array.shape[0];
  }
  arrays_.push_back(std::move(array));
  inputs_.push_back(std::move(input));
}

TrainingData::TrainingData(const Library& library, const std::vector<std::string>& files,
                           const std::vector<std::string>& fixed, const std::vector<std::string>& whole,
                           int64_t batch, uint64_t seed)
    : batch_(batch), seed_(seed) {
  const auto manifest = library.function_manifest();
  std::vector<ValueDeclaration> inputs;
  std::vector<nlohmann::ordered_json> facts;
  for (size_t i = 0; i < library.inputs().size(); ++i)
    if (std::ranges::count(fixed, library.inputs()[i].name) == 0) {
      inputs.push_back(library.inputs()[i]);
      facts.push_back(manifest["inputs"].at(i));
    }
  const auto assigned = assign_files(files, names_of(inputs), "input");
  const bool symbol = batch_is_symbol(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueDeclaration& input = inputs[i];
    if (assigned[i].empty())
      fail(ErrorKind::kUsage, "missing-input", cat("input '", input.name, "' is not given"),
           cat("give --data ", input.name, "=file.npy"));
    const bool is_whole = input.rank == 0 || std::ranges::count(whole, input.name) > 0 ||
                          (symbol && has_fixed_first_dim(input));
    read(input, {.name = input.name,
                 .file = assigned[i],
                 .whole = is_whole,
                 .least = bound(facts[i], "minimum"),
                 .most = bound(facts[i], "maximum")});
  }
  if (samples_ < 0) samples_ = batch_ = std::max<int64_t>(batch_, 1);  // each step has the same inputs
  if (samples_ == 0)
    fail(ErrorKind::kDoesNotFit, "no-samples", "the data has no samples",
         "the first dim of an array counts samples");
  if (batch_ == 0) batch_ = std::min(kUsualBatch, samples_);
  if (samples_ < batch_ || batch_ < 1)
    fail(ErrorKind::kDoesNotFit, "too-few-samples",
         cat(counted(samples_, "sample"), samples_ == 1 ? " does" : " do", " not fill a batch of ", batch_),
         "give a smaller --batch");
  current_ = arrays_;
  for (size_t i = 0; i < current_.size(); ++i) {
    if (inputs_[i].whole) continue;
    Array& array = current_[i];
    array.shape[0] = batch_;
    array.bytes.resize(array.bytes.size() / static_cast<size_t>(samples_) * static_cast<size_t>(batch_));
  }
}

const std::vector<Array>& TrainingData::at(int64_t step) {
  const int64_t steps = samples_ / batch_, epoch = step / steps;
  first_ = step % steps * batch_;
  if (std::exchange(epoch_, epoch) != epoch) {
    order_.resize(static_cast<size_t>(samples_));
    std::iota(order_.begin(), order_.end(), 0);
    uint64_t state = seed_ * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(epoch);
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[next(state) % i]);
  }
  for (size_t a = 0; a < arrays_.size(); ++a) {
    if (inputs_[a].whole) continue;
    const size_t row = arrays_[a].bytes.size() / static_cast<size_t>(samples_);
    if (row == 0) continue;
    for (int64_t i = 0; i < batch_; ++i)
      std::memcpy(
          current_[a].bytes.data() + static_cast<size_t>(i) * row,
          arrays_[a].bytes.data() + static_cast<size_t>(order_[static_cast<size_t>(first_ + i)]) * row, row);
  }
  return current_;
}

std::optional<TrainingData::Place> TrainingData::find(int64_t value) const {
  for (size_t a = 0; a < current_.size(); ++a) {
    const Input& input = inputs_[a];
    const Array& array = current_[a];
    if (is_float(array.dtype) || (!input.least && !input.most)) continue;
    if ((!input.least || value >= *input.least) && (!input.most || value <= *input.most)) continue;
    const auto size = static_cast<int64_t>(byte_size(array.dtype));
    for (int64_t i = 0; i < array.count(); ++i) {
      if (read_integer(array.dtype, array.bytes.data() + i * size) != value) continue;
      Place place{.input = input.name, .file = input.file, .sample = -1, .element = {}};
      int64_t left = i;
      for (size_t d = array.shape.size(); d-- > 0;) {
        place.element.insert(place.element.begin(), left % array.shape[d]);
        left /= array.shape[d];
      }
      if (!input.whole) {
        place.sample = order_[static_cast<size_t>(first_ + place.element.front())];
        place.element.erase(place.element.begin());
      }
      return place;
    }
  }
  return std::nullopt;
}

}  // namespace stridec::cli
