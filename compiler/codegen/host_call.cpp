// Calls of functions of the application, in the host program.
#include "compiler/base/text.h"
#include "compiler/codegen/host_run.h"
#include "compiler/loop/user_kernel.h"

namespace stridec::codegen {
using sym::Expr;

void HostRun::call_application(const loop::Call& call) {
  const auto kernel = loop::find_user_kernel(call.routine);
  const loop::UserArguments at(*kernel);
  const size_t step = first_step_ + step_names.size();
  step_names.push_back(kernel->name);
  line(cat("{  ", line_comment(kernel->name)));
  ++depth_;
  std::vector<std::string> tensors, types, attributes;
  for (size_t t = 0; t < kernel->tensor_count(); ++t) {
    const size_t own = t - call.reads.size();
    const loop::BufferId buffer = t < call.reads.size() ? call.reads[t] : call.writes[own];
    const size_t rank = kernel->tensor(t).rank;
    std::vector<std::string> sizes;
    for (size_t d = 0; d < 2 * rank; ++d) sizes.push_back(c(call.arguments[at.dim(t, d)]));
    line(cat("const int64_t d", t, "[] = {", sizes.empty() ? "0" : join(sizes, ", "), "};"));
    const Expr bytes = call.arguments[at.offset(t)] * byte_size(kernel->tensor(t).dtype);
    tensors.push_back(cat("{(char*)(", pointer(buffer), ") + ", c(bytes), ", 1, 0, ", rank, ", 0, d", t,
                          ", d", t, " + ", rank, ", 0}"));
    types.push_back(cat(info(kernel->tensor(t).dtype).onnx_type));
  }
  for (const loop::UserKernel::Parameter& each : kernel->attributes) {
    const std::string value = c(call.arguments[at.size(each.index)]);
    const bool real = each.kind == loop::UserKernel::Parameter::Kind::kReal;
    attributes.push_back(cat("{", c_string(each.name), ", ", real ? 1 : 0, ", 0, ", real ? "0" : value, ", ",
                             real ? cat("__builtin_bit_cast(double, (int64_t)", value, ")") : "0", "}"));
  }
  line(cat("stridec_abi_tensor t[] = {", join(tensors, ", "), "};"));
  line(cat("const int32_t types[] = {", join(types, ", "), "};"));
  if (!attributes.empty())
    line(cat("const stridec_abi_attribute attributes[] = {", join(attributes, ", "), "};"));
  line(cat("const stridec_abi_call call = {", messages_.callback(kernel->name), ", ", step, ", ",
           call.reads.size(), ", ", call.writes.size(), ", ", attributes.size(), ", 0, t, types, ",
           attributes.empty() ? "0" : "attributes", "};"));
  line("if (run->call(run, &call)) return 1;");
  --depth_;
  line("}");
}

}  // namespace stridec::codegen
