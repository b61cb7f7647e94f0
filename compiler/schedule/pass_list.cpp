#include "compiler/schedule/pass_list.h"

#include "compiler/loop/rewrite.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/algebra/delinearize.h"
#include "compiler/schedule/algebra/flatten.h"
#include "compiler/schedule/algebra/invariants.h"
#include "compiler/schedule/algebra/loop_weights.h"
#include "compiler/schedule/algebra/materialize_upsample.h"
#include "compiler/schedule/algebra/merge_groups.h"
#include "compiler/schedule/algebra/narrow_updates.h"
#include "compiler/schedule/algebra/nonzero_padding.h"
#include "compiler/schedule/algebra/polyphase.h"
#include "compiler/schedule/algebra/row_blocks.h"
#include "compiler/schedule/algebra/row_cse.h"
#include "compiler/schedule/algebra/split_reduction.h"
#include "compiler/schedule/algebra/widen_weights.h"
#include "compiler/schedule/algebra/winograd.h"
#include "compiler/schedule/fusion/attention_backward.h"
#include "compiler/schedule/fusion/block_fusion.h"
#include "compiler/schedule/fusion/depth_first.h"
#include "compiler/schedule/fusion/distribute_loops.h"
#include "compiler/schedule/fusion/dual_gemm.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/fusion/gemm_prologue.h"
#include "compiler/schedule/fusion/gemv_epilogue.h"
#include "compiler/schedule/fusion/gemv_fusion.h"
#include "compiler/schedule/fusion/gpu_attention.h"
#include "compiler/schedule/fusion/horizontal_fusion.h"
#include "compiler/schedule/fusion/joint_reductions.h"
#include "compiler/schedule/fusion/merge_extrema.h"
#include "compiler/schedule/fusion/merge_gemms.h"
#include "compiler/schedule/fusion/norm_prologue.h"
#include "compiler/schedule/fusion/pack_low_bit_weights.h"
#include "compiler/schedule/fusion/recompute_operands.h"
#include "compiler/schedule/fusion/rematerialize.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"
#include "compiler/schedule/heuristics/choose.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "compiler/schedule/heuristics/concurrent_launches.h"
#include "compiler/schedule/heuristics/gemm_pairs.h"
#include "compiler/schedule/layout/align_rows.h"
#include "compiler/schedule/layout/concat_aliasing.h"
#include "compiler/schedule/layout/contiguous_windows.h"
#include "compiler/schedule/layout/forward_stores.h"
#include "compiler/schedule/layout/layout.h"
#include "compiler/schedule/layout/loop_operands.h"
#include "compiler/schedule/layout/narrow_storage.h"
#include "compiler/schedule/layout/operand_layout.h"
#include "compiler/schedule/layout/pad_inputs.h"
#include "compiler/schedule/memory/early_updates.h"
#include "compiler/schedule/memory/memory_plan.h"

namespace stridec::schedule {
namespace {

using loop::Program;
using Context = PassContext;

constexpr RunsOn kLoops = RunsOn::kLoops, kCpuLoops = RunsOn::kCpuLoops, kCpu = RunsOn::kCpu,
                 kGpu = RunsOn::kGpu;
constexpr std::string_view kStage = "scheduling";
constexpr bool kLeavesDead = true;

// For passes that do more than epilogue fusion: -O epilogue_fusion=false does not turn off the rest.
bool epilogues(const Context& c) { return c.options.flag("epilogue_fusion", true); }

// Schedules name dims: equal nests get equal names, so that they are one kernel.
void rename_dims(Program& program, const Context&) {
  for (loop::Nest& nest : program.nests) loop::renumber(nest);
}

// Constants come first, so that fusion does not pull work on weights into the run; layouts come after
// fusion, when the nests that ask for one are final.
constexpr Pass kLoopPasses[] = {
    {"constants", kStage, kLoops, "Compute what depends on weights alone when compiling.",
     [](Program& program, const Context&) { fold_constants(program); }, "", "", kLeavesDead},
    {"flattening", kStage, kLoops, "Collapse adjacent dimensions that every access treats as one.",
     [](Program& program, const Context&) { flatten(program); }},
    {"row_blocks", kStage, kLoops,
     "Run the steps around tensors that are too large to keep, such as logits, in blocks of rows.",
     [](Program& program, const Context& c) {
       block_rows(program, c.any_gpu ? kGpuRowBlocks : kCpuRowBlocks);
     },
     "row_blocks", "Keep these tensors whole."},
    {"fusion", kStage, kLoops, "Fuse nests that share elements or dimensions.",
     [](Program& program, const Context& c) {
       const FusionOptions options{.decisions = c.decisions, .epilogues = epilogues(c)};
       fuse(program, options);
       if (!sink_weights(program)) return;
       fuse(program, options);
       lift_weights(program);
     }},
    {"rematerialize", kStage, kLoops,
     "Compute large elementwise results again from memory where that costs less than storing them.",
     [](Program& program, const Context& c) { rematerialize(program, c.decisions); }, "", "", kLeavesDead},
    {"recompute_operands", kStage, kLoops,
     "Compute elementwise operands of late steps, such as weight gradients, again to save memory.",
     [](Program& program, const Context& c) { recompute_operands(program, c.decisions); },
     "recompute_operands", "Keep them in memory.", kLeavesDead},
    {"joint_reductions", kStage, kLoops, "Join reductions that read one large tensor into one pass over it.",
     [](Program& program, const Context& c) { join_reductions(program, c.decisions); }, "", "", kLeavesDead},
    {"narrow_updates", kStage, kLoops,
     "Restrict in-place additions to the index at which they add something.",
     [](Program& program, const Context&) { narrow_updates(program); }},
    {"refolding", kStage, kLoops, "Fold constants again, in what fusion has brought together.",
     [](Program& program, const Context&) { fold_constants(program); }, "", "", kLeavesDead},
    {"delinearize", kStage, kLoops, "Replace div and mod of a flat index by one loop for each dimension.",
     [](Program& program, const Context&) { delinearize(program); }},
    {"polyphase", kStage, kLoops, "Polyphase decomposition: one nest for each residue of a constant stride.",
     [](Program& program, const Context& c) { decompose_polyphase(program, c.decisions); }},
    {"winograd", kStage, kLoops,
     "Use Winograd's algorithm for 3x3 convolutions: fewer multiplications, and rounding "
     "errors up to 2e-5 of the largest output.",
     [](Program& program, const Context& c) { apply_winograd(program, c.decisions); }, "winograd",
     "Compute 3x3 convolutions directly.", kLeavesDead},
    {"layouts", kStage, kLoops, "Choose the order of each intermediate tensor's dimensions in memory.",
     [](Program& program, const Context&) { choose_layouts(program); }},
    {"pad_inputs", kStage, kLoops, "Copy the input of convolutions with few channels into a padded buffer.",
     [](Program& program, const Context& c) { pad_inputs(program, Few::kChannels, c.decisions); }},
    {"names", kStage, kLoops, "Give equal nests equal dimension names, so that they share a kernel.",
     rename_dims},
};

constexpr Pass kCpuLoopPasses[] = {
    {"widening", kStage, kCpuLoops, "Replace tf32, which only GPUs compute in, by f32.",
     [](Program& program, const Context&) { widen_tf32(program); }},
    {"row_cse", kStage, kCpuLoops,
     "Hoist computations that several outputs of a row share (row-wise CSE; separable resize).",
     [](Program& program, const Context& c) { eliminate_common_rows(program, c.decisions); }},
    {"split_reductions", kStage, kCpuLoops,
     "Split long reductions with few outputs into partial sums and a combine step.",
     [](Program& program, const Context& c) { split_reductions(program, Sharing::kThreads, c.decisions); }},
    {"attention_backward", kStage, kCpuLoops,
     "Compute attention's probabilities again in its backward pass, without scores in memory.",
     [](Program& program, const Context& c) { chain_attention_backward(program, c.decisions); },
     "attention_fusion", "Keep the probabilities in memory.", kLeavesDead},
    {"attention", kStage, kCpuLoops, "Fuse GEMM-softmax-GEMM (attention) into one kernel.",
     [](Program& program, const Context& c) { chain(program, c.decisions); }, "attention_fusion",
     "Run attention as three kernels."},
    {"early_updates", kStage, kCpuLoops, "Update states right after their new values are known.",
     [](Program& program, const Context&) { update_early(program); }},
    {"tile_and_fuse", kStage, kCpuLoops,
     "Tile and fuse convolution chains and Winograd stages so that intermediate tensors stay in cache.",
     [](Program& program, const Context& c) {
       fuse_depth_first(program, c.decisions);
       tile_and_fuse(program, c.decisions);
     },
     "tile_and_fuse", "Write these intermediate tensors to memory."},
    {"pad_rows", kStage, kCpuLoops,
     "Copy the input of convolutions to few channels into a padded buffer if its rows are contiguous.",
     [](Program& program, const Context& c) { pad_inputs(program, Few::kResults, c.decisions); }},
    {"merge_gemms", kStage, kCpuLoops,
     "Merge GEMMs that share their left operand where that reduces traffic.",
     [](Program& program, const Context& c) { merge_gemms(program, c.decisions); }, "merge_gemms",
     "Run each GEMM by itself.", kLeavesDead},
    {"gemm_prologue", kStage, kCpuLoops, "Fuse elementwise producers into the GEMM's packing step.",
     [](Program& program, const Context& c) { fuse_gemm_prologues(program, c.decisions); }, "prologue_fusion",
     "Run them as kernels of their own.", kLeavesDead},
    {"loop_operands", kStage, kCpuLoops,
     "Copy matrices that the products of a loop read again and again into panels, once.",
     [](Program& program, const Context&) { pack_loop_operands(program); }},
    {"horizontal_fusion", kStage, kCpuLoops, "Merge small kernels with equal iteration spaces.",
     [](Program& program, const Context& c) { fuse_horizontally(program, c.decisions); }, "horizontal_fusion",
     "Launch each of them.", kLeavesDead},
    {"concat_aliasing", kStage, kCpuLoops, "Let inputs of Concat alias its output instead of copying them.",
     [](Program& program, const Context& c) { alias_concats(program, c.decisions); }, "concat_aliasing",
     "Copy inputs of Concat.", kLeavesDead},
};

constexpr Pass kCpuPasses[] = {
    {"widen_weights", kStage, kCpu,
     "Multiply dequantised weights in f32 without rounding them to 16 bits first.",
     [](Program& program, const Context&) { widen_weights(program); }},
    {"schedules", kStage, kCpu,
     "Choose a template, tiles, vectors and tasks for each nest, and pack weights.",
     [](Program& program, const Context& c) { choose(program, *c.cpu, *c.chosen); }},
};

constexpr Pass kCpuMemoryPasses[] = {
    {"memory", kStage, kCpu, "Place intermediate tensors and the kernels' scratch in one arena.",
     [](Program& program, const Context& c) { plan_memory(program, InPlace::kSums, *c.scratch); }},
};

constexpr Pass kGpuLoopPasses[] = {
    {"gpu column_fusion", kStage, kGpu, "Fuse column reductions with consumers that read the same columns.",
     [](Program& program, const Context& c) {
       fuse_columns(program, {.decisions = c.decisions, .epilogues = epilogues(c)});
     },
     "", "", kLeavesDead},
    {"gpu distribute_loops", kStage, kGpu,
     "Run long elementwise loops of few points, such as channels, as kernels of their own.",
     [](Program& program, const Context& c) { distribute_loops(program, *c.gpu, c.decisions); }},
    {"gpu split_reductions", kStage, kGpu,
     "Split reductions with few outputs into partial sums and a combine step.",
     [](Program& program, const Context& c) { split_reductions(program, Sharing::kBlocks, c.decisions); }},
    {"gpu grouped_query", kStage, kGpu,
     "Grouped-query attention: query heads of one KV head become GEMM rows, which allows split-K over keys.",
     [](Program& program, const Context&) { group_query_heads(program); }, "grouped_query",
     "Treat each query head by itself."},
    {"gpu attention_backward", kStage, kGpu,
     "Fuse attention's backward pass into one kernel, which computes the probabilities again.",
     [](Program& program, const Context& c) { fuse_attention_backward(program, *c.gpu, c.decisions); },
     "attention_fusion", "Keep the probabilities in memory.", kLeavesDead},
    {"gpu attention", kStage, kGpu, "Fuse GEMM-softmax-GEMM (attention) into one kernel.",
     [](Program& program, const Context& c) { chain_gpu(program, *c.gpu, c.decisions); }, "attention_fusion",
     "Run attention as three kernels."},
    {"gpu store_forwarding", kStage, kGpu, "Store results where a copy would put them.",
     [](Program& program, const Context& c) { forward_stores(program, c.decisions); }, "", "", kLeavesDead},
    {"gpu narrow_storage", kStage, kGpu, "Keep intermediate tensors in the type of --precision.",
     [](Program& program, const Context& c) { narrow_storage(program, c.factors); }, "narrow_storage",
     "Keep them in f32.", kLeavesDead},
    {"gpu split_deep_gemms", kStage, kGpu,
     "Split the depth of GEMMs of few results, such as weight gradients, into partial sums.",
     [](Program& program, const Context& c) { split_deep_gemms(program, c.decisions); }},
    {"gpu merge_extrema", kStage, kGpu,
     "Merge separable max-pool stages where one pass over memory is cheaper.",
     [](Program& program, const Context& c) { merge_extrema(program, *c.gpu); }, "", "", kLeavesDead},
    {"gpu concat_aliasing", kStage, kGpu, "Let inputs of Concat alias its output instead of copying them.",
     [](Program& program, const Context& c) { alias_concats(program, c.decisions, 16); }, "concat_aliasing",
     "Copy inputs of Concat.", kLeavesDead},
    {"gpu merge_groups", kStage, kGpu,
     "Merge small convolution groups into larger ones, padding the weights with zeros.",
     [](Program& program, const Context& c) { merge_groups(program, *c.gpu); }},
    {"gpu upsample", kStage, kGpu, "Materialise the upsampled or zero-inserted input of a convolution.",
     [](Program& program, const Context& c) { materialize_upsamples(program, *c.gpu); }},
    {"gpu operand_layout", kStage, kGpu, "Lay out GEMM operands as row-major matrices.",
     [](Program& program, const Context&) { lay_out_operands(program); }},
    {"gpu shape_padding", kStage, kGpu, "Align the rows of GEMM operands to 16 bytes, by copying if needed.",
     [](Program& program, const Context&) { align_rows(program); }, "shape_padding",
     "Keep the rows as the model's sizes make them."},
    {"gpu contiguous_windows", kStage, kGpu,
     "Copy the input of convolutions with few channels so that a window's row is contiguous.",
     [](Program& program, const Context&) { make_windows_contiguous(program); }},
    {"gpu nonzero_padding", kStage, kGpu,
     "Pad integer convolutions with zeros, and add what other padding contributes from a table.",
     [](Program& program, const Context& c) { remove_nonzero_padding(program, *c.gpu); }},
    {"gpu packed_weights", kStage, kGpu, "Let GEMMs read 2-, 4- and 8-bit weights directly.",
     [](Program& program, const Context& c) { pack_low_bit_weights(program, *c.gpu); }, "packed_weights",
     "Dequantise them when compiling.", kLeavesDead},
    {"gpu dual_gemm", kStage, kGpu,
     "Fuse two GEMMs of one operand that meet in one result (gate and up projection), with interleaved "
     "weights.",
     [](Program& program, const Context& c) {
       if (epilogues(c)) fuse_dual_gemm(program, *c.gpu);
     },
     "", "", kLeavesDead},
    {"gpu gemv_fusion", kStage, kGpu, "Merge sibling GEMVs, and fuse the producer of their row.",
     [](Program& program, const Context&) { fuse_gemvs(program); }, "gemv_fusion", "Run separate kernels.",
     kLeavesDead},
    {"gpu norm_prologue", kStage, kGpu,
     "Recompute the normalisation of few rows in each block of the GEMM that reads them.",
     [](Program& program, const Context& c) { fuse_norm_prologues(program, *c.gpu, c.decisions); }, "", "",
     kLeavesDead},
    {"gpu block_fusion", kStage, kGpu, "Merge consecutive small kernels into one thread block.",
     [](Program& program, const Context&) { fuse_in_block(program); }, "horizontal_fusion",
     "Launch each of them.", kLeavesDead},
    {"gpu gemv_epilogue", kStage, kGpu,
     "Run a small consumer as the epilogue of the GEMV that produces its input.",
     [](Program& program, const Context& c) {
       if (epilogues(c)) fuse_gemv_epilogues(program);
       fuse_in_block(program);  // small kernels that are left
     },
     "gemv_epilogue", "Run it as a kernel of its own.", kLeavesDead},
    {"gpu names", kStage, kGpu, "Give equal nests equal dimension names, so that they share a kernel.",
     rename_dims},
};

constexpr Pass kGpuPasses[] = {
    {"gpu schedules", kStage, kGpu, "Choose a template, thread groups and vectors for each nest.",
     [](Program& program, const Context& c) { choose_gpu(program, *c.gpu, *c.chosen); }},
    {"gpu early_updates", kStage, kGpu,
     "Sum the gradients of biases and norms right after they are known, so that they do not take memory.",
     [](Program& program, const Context&) { free_early(program); }},
    {"gpu gemm_pairs", kStage, kGpu,
     "With CUDA graphs: let two independent GEMMs of few tiles share the GPU, instead of splitting both.",
     [](Program& program, const Context& c) {
       if (c.graphs) pair_gemms(program, *c.gpu, *c.chosen);
     },
     "concurrent_launches", "Run one kernel after another."},
    {"gpu concurrent_launches", kStage, kGpu,
     "With CUDA graphs: order launches that do not depend on each other as groups, which run at the same "
     "time.",
     [](Program& program, const Context& c) {
       if (c.graphs) group_launches(program);
     },
     "concurrent_launches", "Run one kernel after another."},
};

constexpr Pass kGpuMemoryPasses[] = {
    {"gpu memory", kStage, kGpu, "Place intermediate tensors in one arena.",
     [](Program& program, const Context&) { plan_memory(program); }},
};

}  // namespace

std::span<const Pass> loop_passes() { return kLoopPasses; }
std::span<const Pass> cpu_loop_passes() { return kCpuLoopPasses; }
std::span<const Pass> cpu_passes() { return kCpuPasses; }
std::span<const Pass> cpu_memory_passes() { return kCpuMemoryPasses; }
std::span<const Pass> gpu_loop_passes() { return kGpuLoopPasses; }
std::span<const Pass> gpu_passes() { return kGpuPasses; }
std::span<const Pass> gpu_memory_passes() { return kGpuMemoryPasses; }

void run_on_program(const Pass& pass, Program& program, const PassContext& context) {
  std::get<Pass::OnProgram>(pass.run)(program, context);
  if (pass.leaves_dead) loop::eliminate_dead_code(program);
}

void run_cpu_passes(Program& program, const CpuTarget& target) {
  const Options options;
  const Chosen none;
  const Context context{.options = options, .cpu = &target, .chosen = &none};
  for (const auto& rows : {loop_passes(), cpu_loop_passes(), cpu_passes()})
    for (const Pass& pass : rows) {
      run_on_program(pass, program, context);
      loop::verify(program);
    }
}

}  // namespace stridec::schedule
