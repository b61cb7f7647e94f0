#include "compiler/codegen/cpu/dispatch.h"

#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/chain.h"
#include "compiler/codegen/cpu/contraction.h"
#include "compiler/codegen/cpu/contraction_window.h"
#include "compiler/codegen/cpu/emit.h"
#include "compiler/codegen/embedded.h"
#include "compiler/kernels/chain.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/kernels/window_plan.h"
#include "compiler/loop/provenance.h"

namespace stridec::codegen::cpu {

sym::Expr kernel_scratch(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return loop::with_provenance(nest, [&] {
    if (kernels::is_gemm(nest.schedule)) return contraction_scratch(program, nest);
    if (kernels::is_chain(nest.schedule)) return chain_scratch(program, nest, target);
    if (kernels::is_window(nest.schedule)) return window_scratch(program, nest, target);
    return loops_scratch(program, nest);
  });
}

Kernel emit_kernel(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return loop::with_provenance(nest, [&] {
    if (kernels::is_gemm(nest.schedule)) return emit_contraction(program, nest, target);
    if (kernels::is_chain(nest.schedule)) return emit_chain(program, nest, target);
    if (kernels::is_window(nest.schedule)) return emit_window(program, nest, target);
    return emit_loops(program, nest, target);
  });
}

std::string kernel_symbol(const std::string& text, const CpuTarget& target) {
  const std::string all = cat(target.name, "\n", text);
  return "k_" + sha256(all.data(), all.size()).substr(0, 16);
}

std::string translation_unit(const Kernel& kernel, const std::string& symbol) {
  std::string out = cat("#define KERNEL ", symbol, "\n#define STRIDEC_ABI_FREESTANDING\n");
  const size_t at = kernel.text.find(kAbiInclude);
  if (at == std::string::npos) return kernel.text;  // a supporting unit: functions with names of their own
  out += kernel.text.substr(0, at);
  out += abi_header();
  out += "\n" + kernel.text.substr(at + kAbiInclude.size());
  return out;
}

}  // namespace stridec::codegen::cpu
