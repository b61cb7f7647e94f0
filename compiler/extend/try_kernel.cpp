#include "compiler/extend/try_kernel.h"

#include <algorithm>
#include <cstring>

#include "compiler/base/check.h"
#include "compiler/base/strided.h"

namespace stridec::extend {
namespace {

using loop::HostTensor;
using loop::RoutineBuffer;
using loop::UserKernel;

// A tensor in memory of its own: dense, or with all that its declaration leaves open.
struct Laid {
  std::vector<uint8_t> memory;
  int64_t offset = 0;
  std::vector<int64_t> dims, strides;
  size_t width = 1;

  Laid(const UserKernel::Tensor& tensor, const std::vector<int64_t>& shape, bool strided)
      : dims(shape), strides(shape.size()), width(static_cast<size_t>(byte_size(tensor.dtype))) {
    const bool any = strided && tensor.strides == UserKernel::Strides::kAny;
    const bool rows = strided && tensor.strides != UserKernel::Strides::kDense;
    int64_t step = any ? 2 : 1;
    for (size_t d = dims.size(); d-- > 0;) {
      strides[d] = step;
      step = step * std::max<int64_t>(dims[d], 1) + (rows ? 3 : 0);
    }
    // The first dim runs backwards, where it is not the one that has to be dense.
    if (any && !dims.empty() && dims[0] > 0) {
      offset = (dims[0] - 1) * strides[0];
      strides[0] = -strides[0];
    }
    memory.assign(static_cast<size_t>(step) * width, 0x5a);
  }

  template <class Visit>
  void for_each(const Visit& visit) {
    for_each_place(dims, strides, offset, [&](int64_t element, int64_t place) {
      visit(static_cast<size_t>(element) * width, static_cast<size_t>(place) * width);
    });
  }
};

}  // namespace

std::vector<HostTensor> try_kernel(const graph::Graph& graph, const std::vector<graph::ValueId>& outputs,
                                   const std::vector<HostTensor>& inputs, const KernelTrial& trial,
                                   const KernelHost& host) {
  const graph::Node& node = *std::ranges::find(graph.nodes, graph::OpKind::kUserKernel, &graph::Node::kind);
  const auto kernel = loop::find_user_kernel(node.attributes.text("kernel"));
  STRIDEC_CHECK(kernel != nullptr);
  std::vector<Laid> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    all.emplace_back(kernel->reads[i], inputs[i].shape, trial.strided);
    all.back().for_each([&](size_t element, size_t place) {
      std::memcpy(&all.back().memory[place], &inputs[i].bytes[element], all.back().width);
    });
  }
  std::vector<HostTensor> made;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<int64_t> shape;
    for (const sym::Expr dim : graph[outputs[i]].type.shape) shape.push_back(dim.value());
    all.emplace_back(kernel->writes[i], shape, trial.strided);
    if (const auto read = kernel->writes[i].in_place)
      all.back().for_each([&](size_t element, size_t place) {
        std::memcpy(&all.back().memory[place], &inputs[*read].bytes[element], all.back().width);
      });
    made.push_back(loop::make_tensor(kernel->writes[i].dtype, shape));
  }
  std::vector<int64_t> arguments;
  std::vector<RoutineBuffer> reads, writes;
  for (size_t t = 0; t < all.size(); ++t) {
    Laid& each = all[t];
    arguments.push_back(each.offset);
    arguments.insert(arguments.end(), each.dims.begin(), each.dims.end());
    arguments.insert(arguments.end(), each.strides.begin(), each.strides.end());
    const RoutineBuffer buffer{kernel->tensor(t).dtype, each.memory.data(),
                               static_cast<int64_t>(each.memory.size() / each.width)};
    (t < inputs.size() ? reads : writes).push_back(buffer);
  }
  for (const sym::Expr size : node.attributes.exprs("sizes")) arguments.push_back(size.value());
  host.trial(*kernel, reads, writes, arguments, trial);
  for (size_t i = 0; i < made.size(); ++i) {
    Laid& each = all[inputs.size() + i];
    each.for_each([&](size_t element, size_t place) {
      std::memcpy(&made[i].bytes[element], &each.memory[place], each.width);
    });
  }
  return made;
}

}  // namespace stridec::extend
