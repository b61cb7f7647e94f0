#include "compiler/extend/run_reference.h"

#include <algorithm>
#include <cstring>

#include "compiler/base/check.h"
#include "compiler/base/strided.h"
#include "compiler/base/text.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/op_table.h"

namespace stridec::extend {
namespace {

using loop::HostTensor;

// visit(bytes of the dense tensor, bytes of the strided one) for each element.
template <class Visit>
void for_each_element(const CallTensor& tensor, HostTensor& dense, const Visit& visit) {
  const auto bytes = static_cast<std::ptrdiff_t>(byte_size(tensor.dtype));
  for_each_place(tensor.dims, tensor.strides, 0, [&](int64_t element, int64_t place) {
    visit(dense.bytes.data() + element * bytes, tensor.data + place * bytes);
  });
}

// Kernels get the default of an input that the model leaves out as a tensor without dims.
bool is_left_out(const DeclaredTensor& input, const CallTensor& given) {
  return input.otherwise && given.dims.empty() &&
         std::ranges::count(input.shape, false, &DeclaredDim::rest) > 0;
}

}  // namespace

void run_reference(const UserOperator& op, std::span<const CallTensor> reads,
                   std::span<const CallTensor> writes,
                   const std::map<std::string, Attr, std::less<>>& attributes) {
  graph::Graph graph;
  graph::Builder builder(graph, ops::shape_table());
  graph::OperatorCall call{.name = op.name, .arguments = {}, .outputs = op.outputs.size()};
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < reads.size(); ++i) {
    if (is_left_out(op.inputs[i], reads[i])) {
      call.arguments.push_back({.name = op.inputs[i].name});
      continue;
    }
    HostTensor dense = loop::make_tensor(reads[i].dtype, reads[i].dims);
    for_each_element(reads[i], dense, [&](uint8_t* to, const uint8_t* from) {
      std::memcpy(to, from, static_cast<size_t>(byte_size(reads[i].dtype)));
    });
    graph::Type type{reads[i].dtype, {}};
    for (const int64_t dim : reads[i].dims) type.shape.emplace_back(dim);
    call.arguments.push_back(
        {.name = op.inputs[i].name, .tensor = builder.input(op.inputs[i].name, type), .value = {}});
    inputs.push_back(std::move(dense));
  }
  for (const DeclaredAttribute& each : op.attributes)
    call.arguments.push_back(
        {.name = each.name, .tensor = {}, .value = to_graph(each.name, attributes.at(each.name))});
  const std::vector<graph::ValueId> outputs = build_operator(builder, op, op.reference->body, call);
  for (size_t i = 0; i < outputs.size(); ++i) builder.output(op.outputs[i].name, outputs[i]);
  std::vector<HostTensor> made = loop::interpret(ops::lower(graph), inputs);
  for (size_t i = 0; i < made.size(); ++i) {
    STRIDEC_CHECK(made[i].shape == writes[i].dims && made[i].dtype == writes[i].dtype, op.name);
    for_each_element(writes[i], made[i], [&](const uint8_t* from, uint8_t* to) {
      std::memcpy(to, from, static_cast<size_t>(byte_size(writes[i].dtype)));
    });
  }
}

std::vector<DType> types_of(const UserOperator& op, const std::string& type) {
  const auto variable = std::ranges::find(op.types, type, &TypeVariable::name);
  return variable == op.types.end() ? dtypes_named(type) : variable->dtypes;
}

}  // namespace stridec::extend
