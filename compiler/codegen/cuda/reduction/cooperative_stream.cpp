// Streams the weights that a warp's points reduce through shared memory.
//
// The weights that a thread group reads do not depend on the previous launches, and their addresses are known
// before anything is computed. So each warp has a ring of stages; its first lane has TMA fill them in the
// order in which the warp's points use them. The ring is requested before the kernel waits for its
// predecessor, and each stage again once it is used up. This keeps memory busy while kernels begin and end,
// and loads in flight take no registers.
#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"

#include <algorithm>
#include <set>

#include "compiler/base/check.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/loop/analysis.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kLanes = 32;
constexpr int kStreamWarps = 8;
// Per block: three times what memory delivers during the latency of one copy.
constexpr int64_t kRingBytes = 96 << 10;
constexpr int64_t kMostStages = 32;    // per warp
constexpr int kMostTogether = 8;       // vectors of a thread per stage
constexpr int64_t kLeastBytes = 1024;  // per stage
constexpr int kRowWords = 32;          // registers for rows that all points read

}  // namespace

const std::string_view kStreamDeclarations = R"(#ifdef STRIDEC_EMULATE
static inline void sd_stage_init(unsigned char*) {}
static inline void sd_stages_ready() {}
static inline void sd_stage_fill(unsigned char* to, const void* from, int bytes, unsigned char*) { __builtin_memcpy(to, from, bytes); }
static inline void sd_stage_wait(unsigned char*, unsigned) {}
#else
static inline unsigned sd_shared(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
static inline void sd_stage_init(unsigned char* bar) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(sd_shared(bar)) : "memory"); }
static inline void sd_stages_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
static inline void sd_stage_fill(unsigned char* to, const void* from, int bytes, unsigned char* bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(sd_shared(bar)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(sd_shared(to)), "l"(from), "r"(bytes), "r"(sd_shared(bar)) : "memory");
}
static inline void sd_stage_wait(unsigned char* bar, unsigned parity) {
  int done;
  do asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(sd_shared(bar)), "r"(parity) : "memory");
  while (!done);
}
#endif
)";

int CooperativeEmitter::stream_warps() const { return kStreamWarps; }

int64_t CooperativeEmitter::stage_bytes() const {
  int64_t most = 0;
  for (const Run& run : stream_) most = std::max(most, run.stage_bytes);
  return most;
}

int64_t CooperativeEmitter::stream_stages() const {
  return std::min(kMostStages, kRingBytes / (teams * stage_bytes()));
}

int64_t CooperativeEmitter::stream_bytes() const { return teams * stream_stages() * (stage_bytes() + 8); }

void CooperativeEmitter::plan_stream() {
  if (variant.columns || variant.keep || team != kLanes || !target.tma || !target.dependent_launch ||
      width == 1)
    return;
  for (size_t at = common_; at < nest.body.size(); ++at) {
    const loop::Stmt& top = nest.body[at];
    const auto* reduce = std::get_if<loop::Reduce>(&top.node);
    if (!reduce || reduce->dims.size() != 1) continue;
    const Range range = range_of(top);
    const auto chunks = sym::as_const(range.chunks);
    if (!chunks || !range.strip) continue;
    Run run{.top = &top, .loads = {}, .together = 1, .chunks = *chunks, .stage_bytes = 0};
    for (const loop::Stmt* stmt : range.strip->vectors) {
      const auto* load = std::get_if<loop::Load>(&stmt->node);
      if (!load || program[load->access.buffer].storage != loop::Storage::kParameter ||
          !load->access.mask.is_const(1))
        continue;
      // Weights that differ per point, whose address depends only on the point and on the range's variable.
      std::set<sym::Expr, sym::ExprLess> vars;
      for (const sym::Expr& index : load->access.index)
        for (const sym::Expr& var : sym::free_vars(index)) vars.insert(var);
      const bool of_points = std::all_of(nest.dims.begin(), nest.dims.end(), [&](const loop::Dim& dim) {
        return dim.extent.is_const(1) || vars.erase(dim.var) > 0;
      });
      vars.erase(reduce->dims[0].var);
      if (!of_points || nest.dims.empty() || !vars.empty()) continue;
      run.loads.push_back(stmt);
      run.stage_bytes =
          std::max<int64_t>(run.stage_bytes, kLanes * width * byte_size(program[load->access.buffer].dtype));
    }
    if (run.loads.empty()) continue;
    // The largest number that divides the range, unless that is small.
    const int64_t rounds = (*chunks - 1) / kLanes + 1;
    const int most = static_cast<int>(std::min<int64_t>(rounds, kMostTogether / run.loads.size()));
    if (most == 0) continue;
    run.together = most;
    for (int count = most; count > most / 2; --count)
      if (*chunks % (count * kLanes) == 0) {
        run.together = count;
        break;
      }
    run.stage_bytes *= run.together;
    if (run.stage_bytes < kLeastBytes) continue;
    stream_.push_back(std::move(run));
  }
}

const CooperativeEmitter::Run* CooperativeEmitter::run_of(const loop::Block& block) const {
  const auto run = std::find_if(stream_.begin(), stream_.end(),
                                [&](const Run& r) { return loop::body_of(*r.top) == &block; });
  return run == stream_.end() ? nullptr : &*run;
}

void CooperativeEmitter::print_stream(const std::string& number, const std::string& first,
                                      const std::string& count) {
  const int64_t stages = stream_stages(), stage = stage_bytes();
  STRIDEC_CHECK(stages > 0, nest.name);
  text_.append(dynamic_shared("stages", stream_bytes(), 128));
  text_.line(cat("unsigned char* const ring = stages + threadIdx.x / 32 * ", stages * stage, ";"));
  text_.line(cat("unsigned char* const bars = stages + ", teams * stages * stage, " + threadIdx.x / 32 * ",
                 stages * 8, ";"));
  text_.line("int slot = 0, slot_ahead = 0, stage_ahead = 0;");
  text_.line("unsigned parity = 0;");
  text_.line(cat(number, " point_ahead = ", first, ";"));
  text_.open("const auto fill = [&]");
  text_.line(cat("if (point_ahead >= ", count, ") return;"));
  text_.line("int64_t rest = point_ahead;");
  print_indices(text_, body_, grid_dims());
  text_.line("const void* from = nullptr;");
  text_.line("int bytes = 0;");
  int64_t begin = 0;
  for (const Run& run : stream_) {
    for (size_t i = 0; i < run.loads.size(); ++i) {
      const loop::Access& access = *loop::access_of(*run.loads[i]);
      const int64_t elements = int64_t{run.together} * kLanes * width, last = run.chunks * width % elements,
                    size = byte_size(program[access.buffer].dtype);
      const auto e = static_cast<int64_t>(run.loads.size()), end = begin + run.stages();
      const std::string mine = e > 1 ? cat(" && (stage_ahead - ", begin, ") % ", e, " == ", i) : "";
      text_.open(cat("if (stage_ahead >= ", begin, " && stage_ahead < ", end, mine, ")"));
      text_.line(cat("const int64_t at = (stage_ahead - ", begin, ") / ", e, " * ", elements, ";"));
      body_.set_index(std::get<loop::Reduce>(run.top->node).dims[0].var, "at");
      text_.line(cat("from = ", text_.pointer(access.buffer), " + ", body_.offset(access), ";"));
      text_.line(cat("bytes = ", last ? cat("stage_ahead >= ", end - e, " ? ", last * size, " : ") : "",
                     elements * size, ";"));
      text_.close();
    }
    begin += run.stages();
  }
  text_.line(cat("sd_stage_fill(ring + slot_ahead * ", stage, ", from, bytes, bars + slot_ahead * 8);"));
  text_.line(cat("if (++slot_ahead == ", stages, ") slot_ahead = 0;"));
  text_.open(cat("if (++stage_ahead == ", begin, ")"));
  text_.line("stage_ahead = 0;");
  text_.line(cat("point_ahead += ", teams, ";"));
  text_.close();
  text_.close(";");
  text_.open("if (threadIdx.x % 32 == 0)");
  text_.line(cat("for (int i = 0; i < ", stages, "; ++i) sd_stage_init(bars + i * 8);"));
  text_.line("sd_stages_ready();");
  text_.line(cat("for (int i = 0; i < ", stages, "; ++i) fill();"));
  text_.close();
  text_.line("__syncwarp(members);");
}

void CooperativeEmitter::print_run(const Range& range, const Run& run, const std::function<void()>& inside) {
  const int64_t step = int64_t{run.together} * kLanes, whole = run.chunks / step;
  // The rows that the weights are multiplied by are in shared memory and are loaded as vectors too.
  Range whole_range = range;
  std::vector<const loop::Stmt*> rows;
  for (const loop::Stmt& stmt : *range.block)
    if (is_row_vector(range, stmt)) {
      rows.push_back(&stmt);
      whole_range.strip->vectors.push_back(&stmt);
    }
  const auto batch = [&](const std::string& from, bool full) {
    for (const loop::Stmt* stmt : rows) {
      const loop::Access& access = *loop::access_of(*stmt);
      if (const auto held = rows_.find(place_of(range, access)); held != rows_.end()) {
        kept_[held->first] = held->second;
        continue;
      }
      const std::string storage = text_.storage_type(program[access.buffer].dtype),
                        held = text_.fresh("held"), j = text_.fresh("j");
      kept_[place_of(range, access)] = held;
      text_.line(cat("Vec<", storage, ", ", width, "> ", held, "[", run.together, "];"));
      text_.line("#pragma unroll");
      text_.open(cat("for (int ", j, " = 0; ", j, " < ", run.together, "; ++", j, ")"));
      const std::string at = cat("(", from, " + ", j, " * ", kLanes, ")");
      body_.set_index(
          range.strip->var,
          cat("((int64_t)", full ? at : cat("(", at, " < ", chunks_, " ? ", at, " : 0)"), " * ", width, ")"));
      text_.line(cat(held, "[", j, "] = sd_load<", width, ">(", local_.at(access.buffer), " + ",
                     body_.offset(access), ");"));
      text_.close();
    }
    for (const loop::Stmt* stmt : run.loads) {
      const loop::Access& access = *loop::access_of(*stmt);
      const std::string storage = text_.storage_type(program[access.buffer].dtype),
                        held = text_.fresh("held"), j = text_.fresh("j");
      kept_[place_of(range, access)] = held;
      text_.line(cat("Vec<", storage, ", ", width, "> ", held, "[", run.together, "];"));
      text_.line("sd_stage_wait(bars + slot * 8, parity);");
      text_.line("#pragma unroll");
      text_.line(cat("for (int ", j, " = 0; ", j, " < ", run.together, "; ++", j, ") ", held, "[", j,
                     "] = sd_load<", width, ">((const ", storage, "*)(ring + slot * ", stage_bytes(), ") + (",
                     j, " * ", kLanes, " + row) * ", width, ");"));
      text_.open(cat("if (++slot == ", stream_stages(), ")"));
      text_.line("slot = 0;");
      text_.line("parity ^= 1;");
      text_.close();
    }
    ways_ = kWays;
    print_batch(whole_range, {}, from, run.together, full, inside);
    ways_ = 1;
    kept_.clear();
    // After the values have been used: TMA does not wait for pending reads.
    text_.line("__syncwarp(members);");
    text_.open("if (row == 0)");
    for (size_t i = 0; i < run.loads.size(); ++i) text_.line("fill();");
    text_.close();
  };
  if (whole > 0) {
    const std::string b = text_.fresh("b"), from = text_.fresh("c");
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int ", b, " = 0; ", b, " < ", whole, "; ++", b, ")"));
    text_.line(cat("const int ", from, " = ", b, " * ", step, " + row;"));
    batch(from, true);
    text_.close();
  }
  if (run.chunks % step) {
    text_.open("");
    const std::string from = text_.fresh("c");
    text_.line(cat("const int ", from, " = ", whole * step, " + row;"));
    batch(from, false);
    text_.close();
  }
}

void CooperativeEmitter::print_rows() {
  int words = 0;
  for (const Run& run : stream_) {
    const int64_t together = int64_t{run.together} * kLanes;
    if (run.chunks > together) continue;
    const Range range = range_of(*run.top);
    for (const loop::Stmt& stmt : *range.block) {
      if (!is_row_vector(range, stmt)) continue;
      const loop::Access& access = *loop::access_of(stmt);
      if (loop::depends_on_any(loop::offset_of(program, access), nest.dims)) continue;
      const int more = run.together * width * byte_size(program[access.buffer].dtype) / 4;
      if (words + more > kRowWords) continue;
      const auto [found, fresh] = rows_.try_emplace(place_of(range, access));
      if (!fresh) continue;
      words += more;
      found->second = text_.fresh("held");
      text_.line(cat("Vec<", text_.storage_type(program[access.buffer].dtype), ", ", width, "> ",
                     found->second, "[", run.together, "];"));
      text_.line("#pragma unroll");
      text_.open(cat("for (int j = 0; j < ", run.together, "; ++j)"));
      const std::string at = cat("(threadIdx.x % 32 + j * ", kLanes, ")");
      body_.set_index(
          range.strip->var,
          cat("((int64_t)", run.chunks == together ? at : cat("(", at, " < ", run.chunks, " ? ", at, " : 0)"),
              " * ", width, ")"));
      text_.line(cat(found->second, "[j] = sd_load<", width, ">(", local_.at(access.buffer), " + ",
                     body_.offset(access), ");"));
      text_.close();
    }
  }
}

bool CooperativeEmitter::is_row_vector(const Range& range, const loop::Stmt& stmt) const {
  const auto* load = std::get_if<loop::Load>(&stmt.node);
  if (!load || !load->access.mask.is_const(1)) return false;
  const loop::Buffer& buffer = program[load->access.buffer];
  if (buffer.storage != loop::Storage::kLocal || !local_.contains(load->access.buffer) ||
      width * byte_size(buffer.dtype) % 16 != 0)
    return false;
  const auto stride = loop::stride_of(program, load->access, range.strip->var, facts_);
  const sym::Expr start =
      sym::simplify(sym::substitute(loop::offset_of(program, load->access), range.strip->var, 0), facts_);
  return stride && stride->is_const(1) && (start.is_const(0) || facts_.known_divisor(start) % width == 0);
}

}  // namespace stridec::codegen::cuda
