#include "compiler/codegen/cuda/common/frame.h"

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/prelude.h"

namespace stridec::codegen::cuda {
namespace {

// arrive: returns how many of `count` blocks came before; the last one resets the counter to 0 for the next
// launch. The last block reads, after arrive() and a barrier of its own, what the others wrote before their
// barriers and arrive().
constexpr std::string_view kArrive = R"(
#ifdef STRIDEC_EMULATE
static inline unsigned arrive(unsigned* counter, unsigned count) { return atomicInc(counter, count - 1); }
#else
static inline unsigned arrive(unsigned* counter, unsigned count) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(count - 1) : "memory");
  return before;
}
#endif
static inline bool comes_last(unsigned* counter, unsigned count) { return arrive(counter, count) == count - 1; }
)";

}  // namespace

std::string_view arrive_declarations() { return kArrive; }

std::string dynamic_shared(std::string_view name, int64_t most, int alignment) {
  return cat("#ifdef STRIDEC_EMULATE\n  alignas(", alignment, ") static unsigned char ", name, "[", most,
             "];\n#else\n  extern __shared__ __align__(", alignment, ") unsigned char ", name,
             "[];\n#endif\n");
}

void print_indices(KernelText& text, Body& body, const std::vector<loop::Dim>& dims) {
  Body* const one[] = {&body};
  print_indices(text, one, dims);
}

void print_indices(KernelText& text, std::span<Body* const> bodies, const std::vector<loop::Dim>& dims) {
  for (size_t d = dims.size(); d-- > 0;) {
    std::string name = "rest";
    if (d > 0) {
      const std::string extent = bodies[0]->index(dims[d].extent);
      name = text.fresh("t");
      text.line(cat("const int64_t ", name, " = rest % ", extent, ";"));
      text.line(cat("rest /= ", extent, ";"));
    }
    for (Body* body : bodies) body->set_index(dims[d].var, name);
  }
}

std::string wait_text(const std::string& ahead) {
  return cat(
      "#ifndef STRIDEC_EMULATE\n  asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n",
      ahead, "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n#endif\n");
}

DeviceKernel finish(KernelText& text, Geometry geometry, const std::string& declarations) {
  DeviceKernel out;
  std::string scratch;
  STRIDEC_CHECK(text.scratch_bytes() == geometry.scratch_bytes,
                "a kernel needs other scratch than its plan says");
  if (!text.scratch_offsets().empty()) {
    const sym::Expr start = sym::align_up(geometry.workspace_bytes, 256),
                    one = sym::align_up(geometry.scratch_bytes, 64);
    scratch = cat("  char* const scratch = workspace + ", text.size(start), " + (", geometry.scratch_owner,
                  ") * ", text.size(one), ";\n");
    for (size_t i = 0; i < text.scratch_offsets().size(); ++i)
      scratch += cat("  char* const scratch", i, " = scratch + ", text.scratch_offsets()[i], ";\n");
    geometry.workspace_bytes = start + one * geometry.scratch_owners;
  }
  out.code = text.arguments();
  out.grid = geometry.grid;
  out.threads = geometry.threads;
  out.cluster = geometry.cluster;
  out.shared_bytes = geometry.shared_bytes;
  out.maps = std::move(geometry.maps);
  // A launch passes no workspace of size 0, which sizes of 0 could otherwise cause.
  if (!scratch.empty() || !geometry.workspace_bytes.is_const(0))
    out.workspace_bytes = sym::max(geometry.workspace_bytes, 64);
  if (!geometry.counters.is_const(0)) out.counter_bytes = sym::max(geometry.counters * 4, 64);
  out.fails = !out.code.messages.empty();
  out.dependent_launch = geometry.dependent_launch || geometry.waits;

  std::vector<std::string> parameters;
  for (size_t i = 0; i < out.maps.size(); ++i)
    parameters.push_back(cat("const __grid_constant__ TensorMap map", i));
  for (size_t i = 0; i < out.code.buffers.size(); ++i) parameters.push_back(text.parameter(i));
  for (size_t i = 0; i < out.code.sizes.size(); ++i) parameters.push_back(cat("const int64_t s", i));
  for (size_t i = 0; i < out.code.messages.size(); ++i) parameters.push_back(cat("const int64_t m", i));
  if (out.fails) parameters.push_back("sd_failure* failures");
  if (!out.workspace_bytes.is_const(0)) parameters.push_back("char* __restrict workspace");
  if (!out.counter_bytes.is_const(0)) parameters.push_back("unsigned* counters");

  std::string& all = out.code.text;
  all = std::string(prelude()) + text.preamble();
  if (!out.maps.empty()) all += "struct alignas(64) TensorMap { unsigned long words[16]; };\n";
  all += declarations;
  all += "extern \"C\" __global__ void ";
  if (out.cluster > 1) all += cat("__cluster_dims__(", out.cluster, ", 1, 1) ");
  all += cat("__launch_bounds__(", out.threads, geometry.blocks_sm ? cat(", ", geometry.blocks_sm) : "",
             ") KERNEL(", join(parameters, ", "), ") {\n");
  if (geometry.waits) all += wait_text();
  all += scratch + text.statements() + "}\n";
  return out;
}

bool is_callers(const loop::Program& program, loop::BufferId id) {
  const loop::Storage storage = program[id].storage;
  return storage == loop::Storage::kInput || storage == loop::Storage::kOutput;
}

DeviceNest only(DeviceKernel kernel) {
  DeviceNest out;
  out.choices.emplace_back();
  out.choices.back().launches.push_back(std::move(kernel));
  return out;
}

}  // namespace stridec::codegen::cuda
