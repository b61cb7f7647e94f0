// The reference interpreter of the loop IR: the oracle of tests and `verify`, and the constant folder.
//
// Statements run in written order, and every value is rounded to its dtype after every operation. Float sums
// and products accumulate in double and are rounded at the end, which is closer to the exact result than any
// summation order in f32. Every access is checked. Schedules are ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

// A tensor in host memory: dense, row-major.
struct HostTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};
HostTensor make_tensor(DType dtype, std::vector<int64_t> shape);  // zeros
int64_t element_count(const HostTensor& tensor);

// An element as a double, for any dtype.
double get_number(const HostTensor& tensor, int64_t element);
void set_number(HostTensor& tensor, int64_t element, double value);

using Bindings = std::unordered_map<sym::Expr, int64_t, sym::ExprHash>;

// Memory of one buffer as a nest sees it: data[0] is the element at index 0, ..., 0.
struct BufferMemory {
  uint8_t* data = nullptr;
  int64_t elements = 0;  // number of elements that the strides can reach
};

// Runs one nest. `buffers` has an entry per buffer of the program; entries of buffers that the nest does not
// touch may be empty, and kLocal buffers are allocated here. Throws Error kDoesNotFit with the sentence of a
// failing bind, and kInternal if an access is out of bounds.
void interpret(const Program& program, const Nest& nest, const Bindings& symbols,
               std::span<const BufferMemory> buffers, bool poison = false);

// A run in progress, as observers see it.
struct RunState {
  const Program& program;
  const Bindings& symbols;
  const std::function<HostTensor(BufferId)> read;  // the current contents of a buffer
};

struct RunOptions {
  bool poison = false;   // fresh memory holds NaNs and odd integers instead of zeros
  bool planned = false;  // arena buffers are at their planned offsets in one arena
  // By position in Program::states, read and written; absent: zeros.
  std::vector<HostTensor>* states = nullptr;
  std::function<void(const Step& step, const RunState& state)> after_step;
  // Of the context (context_sizes.h), by name. Those that are absent come from the inputs.
  std::map<std::string, int64_t> context_sizes = {};
};

// Runs a program: binds symbols, checks guards, returns the outputs. Throws Error kDoesNotFit if the inputs
// contradict the program (with the guard's sentence) or a data check fails.
std::vector<HostTensor> interpret(const Program& program, const std::vector<HostTensor>& inputs,
                                  const RunOptions& options = {});

// Runs Program::prepack and returns the bytes of every prepacked weight, by BufferId; other entries are
// empty. The compiler runs compiled nests instead; this is their oracle.
std::vector<std::vector<uint8_t>> interpret_prepack(const Program& program);

}  // namespace stridec::loop
