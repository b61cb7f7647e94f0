#include "compiler/schedule/pass_list.h"

#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/algebra/delinearize.h"
#include "compiler/schedule/algebra/flatten.h"
#include "compiler/schedule/algebra/invariants.h"
#include "compiler/schedule/algebra/materialize_upsample.h"
#include "compiler/schedule/algebra/merge_groups.h"
#include "compiler/schedule/algebra/nonzero_padding.h"
#include "compiler/schedule/algebra/polyphase.h"
#include "compiler/schedule/algebra/row_cse.h"
#include "compiler/schedule/algebra/split_reduction.h"
#include "compiler/schedule/algebra/widen_weights.h"
#include "compiler/schedule/algebra/winograd.h"
#include "compiler/schedule/fusion/block_fusion.h"
#include "compiler/schedule/fusion/depth_first.h"
#include "compiler/schedule/fusion/dual_gemm.h"
#include "compiler/schedule/fusion/gemm_prologue.h"
#include "compiler/schedule/fusion/gemv_epilogue.h"
#include "compiler/schedule/fusion/gemv_fusion.h"
#include "compiler/schedule/fusion/gpu_attention.h"
#include "compiler/schedule/fusion/horizontal_fusion.h"
#include "compiler/schedule/fusion/merge_extrema.h"
#include "compiler/schedule/fusion/merge_gemms.h"
#include "compiler/schedule/fusion/norm_prologue.h"
#include "compiler/schedule/fusion/pack_low_bit_weights.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "compiler/schedule/layout/align_rows.h"
#include "compiler/schedule/layout/concat_aliasing.h"
#include "compiler/schedule/layout/contiguous_windows.h"
#include "compiler/schedule/layout/layout.h"
#include "compiler/schedule/layout/narrow_storage.h"
#include "compiler/schedule/layout/operand_layout.h"
#include "compiler/schedule/layout/pad_inputs.h"

namespace stridec::schedule {
namespace {

using loop::Program;
using Decisions = std::vector<Decision>;

// Constants first, so that fusion does not pull work on weights into the run; layouts after fusion, when the
// nests that wish for one are the final ones.
constexpr Pass<Program, const FusionOptions&> kLoopPasses[] = {
    {"constants", "what depends on weights alone is computed at compile time",
     [](Program& program, const FusionOptions&) { fold_constants(program); }},
    {"flattening", "dims taken apart for one operation are one again, as before and after it",
     [](Program& program, const FusionOptions&) { flatten(program); }},
    {"fusion", "nests that share elements or dims become one", fuse},
    {"refolding", "constants again, of what fusion has brought together",
     [](Program& program, const FusionOptions&) { fold_constants(program); }},
    {"dims", "loops over flattened tensors run over their dims",
     [](Program& program, const FusionOptions&) { delinearize(program); }},
    {"phases", "nests that divide by constant strides become one for each remainder",
     [](Program& program, const FusionOptions& options) { decompose_polyphase(program, options.decisions); }},
    {"winograd", "convolutions of 3x3 windows with fewer multiplications, between transforms",
     [](Program& program, const FusionOptions& options) { apply_winograd(program, options.decisions); }},
    {"layouts", "the order of each scratch buffer's dims in memory",
     [](Program& program, const FusionOptions&) { choose_layouts(program); }},
    {"padding", "convolutions of few channels read padded copies",
     [](Program& program, const FusionOptions& options) { pad_inputs(program, options.decisions); }},
    {"names", "schedules name dims: those of equal nests are called the same",
     [](Program& program, const FusionOptions&) {
       for (loop::Nest& nest : program.nests) loop::renumber(nest);
     }},
};

constexpr Pass<Program, Decisions*> kCpuLoopPasses[] = {
    {"widening", "tf32, which a GPU beside takes, is f32",
     [](Program& program, Decisions*) { widen_tf32(program); }},
    {"rows", "what several points compute from one row of what they read is computed once for each row",
     eliminate_common_rows},
    {"reductions", "long reductions of few points become partial results and their combination",
     [](Program& program, Decisions* decisions) { split_reductions(program, Sharing::kThreads, decisions); }},
    {"chains", "contractions that pass rows on become one kernel that keeps them in cache", chain},
    {"strips",
     "products between transforms, and convolutions one after the other, work in strips that stay in a "
     "thread's cache",
     [](Program& program, Decisions* decisions) {
       fuse_depth_first(program, decisions);
       tile_and_fuse(program, decisions);
     }},
    {"narrow_products", "products of one value with several weights become one where they share enough",
     merge_gemms},
    {"prologue_fusion", "what makes a product's rows element by element runs where the product copies them",
     fuse_gemm_prologues},
    {"joins", "small nests over the same dims are one kernel", fuse_horizontally},
    {"slices", "what several concatenations hold, or one of another, is stored once",
     [](Program& program, Decisions* decisions) { alias_concats(program, decisions); }},
};

constexpr Pass<Program, const CpuTarget&, const Chosen&> kCpuPasses[] = {
    {"rounding", "weights of few bits are multiplied in f32 without being rounded to 16 bits",
     [](Program& program, const CpuTarget&, const Chosen&) { widen_weights(program); }},
    {"schedules", "templates, tiles, lanes and tasks for each nest, packed weights", choose},
};

constexpr Pass<Program, std::span<Scratch>> kCpuMemoryPasses[] = {
    {"memory", "where each scratch buffer lives, and what each kernel's threads need",
     [](Program& program, std::span<Scratch> scratch) { plan_memory(program, InPlace::kSums, scratch); }},
};

constexpr Pass<Program, const GpuTarget&, const GpuRules&> kGpuLoopPasses[] = {
    {"gpu columns", "columns that are reduced are gone through again by the same blocks",
     [](Program& program, const GpuTarget&, const GpuRules& rules) {
       fuse_columns(program, {.decisions = rules.decisions, .epilogues = rules.epilogues});
     }},
    {"gpu reductions", "those of few points and several loops become partial results and their combination",
     [](Program& program, const GpuTarget&, const GpuRules& rules) {
       split_reductions(program, Sharing::kBlocks, rules.decisions);
     }},
    {"gpu groups", "heads that share keys are rows of a product, and blocks may share its keys",
     [](Program& program, const GpuTarget&, const GpuRules&) { group_query_heads(program); }},
    {"gpu chains", "attention becomes one kernel, whose scores stay in registers",
     [](Program& program, const GpuTarget& target, const GpuRules& rules) {
       chain_gpu(program, target, rules.decisions);
     }},
    {"gpu storage", "what kernels pass on is stored in the type that products take (--precision)",
     [](Program& program, const GpuTarget&, const GpuRules& rules) {
       narrow_storage(program, rules.factors);
     }},
    {"gpu extrema", "windows that go along one dim after the other are one where that saves memory's time",
     [](Program& program, const GpuTarget& target, const GpuRules&) { merge_extrema(program, target); }},
    {"gpu slices", "what several concatenations hold, or one of another, is stored once",
     [](Program& program, const GpuTarget&, const GpuRules& rules) {
       alias_concats(program, rules.decisions, 16);
     }},
    {"gpu channels",
     "convolutions of groups of few channels are those of fewer groups, with zeros among their weights",
     [](Program& program, const GpuTarget& target, const GpuRules&) { merge_groups(program, target); }},
    {"gpu spreading", "convolutions of an image that is spread out read it spread out",
     [](Program& program, const GpuTarget& target, const GpuRules&) {
       materialize_upsamples(program, target);
     }},
    {"gpu rows", "what products read lies in memory as the matrices that they take it for",
     [](Program& program, const GpuTarget&, const GpuRules&) { lay_out_operands(program); }},
    {"gpu shape_padding", "rows of matrices that products read begin at multiples of 16 bytes",
     [](Program& program, const GpuTarget&, const GpuRules&) { align_rows(program); }},
    {"gpu windows", "convolutions of few channels read copies in which a window's rows are runs of memory",
     [](Program& program, const GpuTarget&, const GpuRules&) { make_windows_contiguous(program); }},
    {"gpu borders",
     "padding that is not 0 is added to sums of products from a table, and what is read is padded by 0",
     [](Program& program, const GpuTarget& target, const GpuRules&) {
       remove_nonzero_padding(program, target);
     }},
    {"gpu words", "weights of few bits stay as small as they are, in the words that products take apart",
     [](Program& program, const GpuTarget& target, const GpuRules&) {
       pack_low_bit_weights(program, target);
     }},
    {"gpu pairs",
     "two products of one value that meet in one result are one kernel, with their weights interleaved",
     [](Program& program, const GpuTarget& target, const GpuRules& rules) {
       if (rules.epilogues) fuse_dual_gemm(program, target);
     }},
    {"gpu products", "products of one row by weights are one kernel with what makes the row",
     [](Program& program, const GpuTarget&, const GpuRules&) { fuse_gemvs(program); }},
    {"gpu prologues",
     "what makes few rows, by whole rows, is done by each block of the products that read them",
     [](Program& program, const GpuTarget& target, const GpuRules& rules) {
       fuse_norm_prologues(program, target, rules.decisions);
     }},
    {"gpu joins", "small nests one after the other are one kernel",
     [](Program& program, const GpuTarget&, const GpuRules&) { fuse_in_block(program); }},
    {"gpu results", "a small nest behind a product of one row is done by who makes what it reads",
     [](Program& program, const GpuTarget&, const GpuRules& rules) {
       if (rules.epilogues) fuse_gemv_epilogues(program);
       fuse_in_block(program);  // with what was left of these
     }},
    {"gpu names", "schedules name dims: those of equal nests are called the same",
     [](Program& program, const GpuTarget&, const GpuRules&) {
       for (loop::Nest& nest : program.nests) loop::renumber(nest);
     }},
};

constexpr Pass<Program, const GpuTarget&, const Chosen&> kGpuPasses[] = {
    {"gpu schedules", "templates, teams of threads and vectors for each nest", choose_gpu},
    {"gpu memory", "where each scratch buffer lives",
     [](Program& program, const GpuTarget&, const Chosen&) { plan_memory(program); }},
};

void verify(const Program& program, std::string_view) { loop::verify(program); }
std::string print(const Program& program) { return loop::to_string(program); }

}  // namespace

const PassList<Program, const FusionOptions&>& loop_passes() {
  static const PassList<Program, const FusionOptions&> kList = {.stage = "scheduling",
                                                                .origin = {"lower", "one nest an operation"},
                                                                .rows = kLoopPasses,
                                                                .verify = verify,
                                                                .print = print};
  return kList;
}

const PassList<Program, Decisions*>& cpu_loop_passes() {
  static const PassList<Program, Decisions*> kList = {
      .stage = "scheduling", .origin = {}, .rows = kCpuLoopPasses, .verify = verify, .print = print};
  return kList;
}

const PassList<Program, const CpuTarget&, const Chosen&>& cpu_passes() {
  static const PassList<Program, const CpuTarget&, const Chosen&> kList = {
      .stage = "scheduling", .origin = {}, .rows = kCpuPasses, .verify = verify, .print = print};
  return kList;
}

const PassList<Program, std::span<Scratch>>& cpu_memory_passes() {
  static const PassList<Program, std::span<Scratch>> kList = {
      .stage = "scheduling", .origin = {}, .rows = kCpuMemoryPasses, .verify = verify, .print = print};
  return kList;
}

const PassList<Program, const GpuTarget&, const GpuRules&>& gpu_loop_passes() {
  static const PassList<Program, const GpuTarget&, const GpuRules&> kList = {
      .stage = "scheduling", .origin = {}, .rows = kGpuLoopPasses, .verify = verify, .print = print};
  return kList;
}

const PassList<Program, const GpuTarget&, const Chosen&>& gpu_passes() {
  static const PassList<Program, const GpuTarget&, const Chosen&> kList = {
      .stage = "scheduling", .origin = {}, .rows = kGpuPasses, .verify = verify, .print = print};
  return kList;
}

}  // namespace stridec::schedule
