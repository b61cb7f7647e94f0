#include "compiler/codegen/cuda/attention/flash_mma.h"

#include "compiler/base/text.h"

namespace stridec::codegen::cuda {
namespace {

// Moves four floats of a thread, in shared memory and in the workspace.
constexpr std::string_view kFours = R"(
#ifdef STRIDEC_EMULATE
static inline void load_four(float (&v)[4], unsigned from) { __builtin_memcpy(v, sd_shared + from, 16); }
static inline void store_four(unsigned to, float a, float b, float c, float d) {
  const float v[4] = {a, b, c, d};
  __builtin_memcpy(sd_shared + to, v, 16);
}
static inline void store_part(float* to, const float (&v)[4]) { __builtin_memcpy(to, v, 16); }
static inline void load_part(float (&v)[4], const float* from) { __builtin_memcpy(v, from, 16); }
#else
static inline void load_four(float (&v)[4], unsigned from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from) : "memory");
}
static inline void store_four(unsigned to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
static inline void store_part(float* to, const float (&v)[4]) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
static inline void load_part(float (&v)[4], const float* from) {
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "l"(from) : "memory");
}
#endif
)";

// Reads from another block of the cluster, at the same address of its shared memory; the cluster's barrier.
constexpr std::string_view kPeers = R"(
static inline void load_peer(float (&v)[4], unsigned from, int rank) {
  asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [a];\n}"
      : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from), "r"(rank) : "memory");
}
static inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
)";

}  // namespace

using sym::Expr;

void MmaEmitter::open_parts(int count) {
  text_.line("#pragma unroll");
  text_.open(cat("for (int i = 0; i < ", count, "; ++i)"));
}

void MmaEmitter::print_counts(int count, const Loading& load) {
  text_.line(cat("float kept[", count,
                 "][2], shift[2], m[2] = {-__builtin_inff(), -__builtin_inff()}, l[2] = {0, 0};"));
  text_.open("");
  text_.line(cat("float stats[", count, "][4];"));
  open_parts(count);
  load("stats[i]", "");
  text_.close();
  text_.line("#pragma unroll");
  text_.open("for (int h = 0; h < 2; ++h)");
  open_parts(count);
  text_.line("m[h] = fmaxf(m[h], stats[i][h]);");
  text_.close();
  f_.print_shift("m[h]");
  open_parts(count);
  text_.line(cat("kept[i][h] = ", f_.weight("stats[i][h]", "h"), ";"));
  if (f_.flash.fixes) text_.line("if (fix[h]) kept[i][h] = 1;");
  text_.line("l[h] += stats[i][2 + h] * kept[i][h];");
  text_.close();
  text_.close();
  text_.close();
}

void MmaEmitter::print_total(int count, const Loading& load) {
  text_.line(cat("float values[", count, "][4], total[4] = {};"));
  open_parts(count);
  load("values[i]", " + (own + 1) * 512");
  text_.close();
  open_parts(count);
  text_.line("#pragma unroll");
  text_.line("for (int e = 0; e < 4; ++e) total[e] += values[i][e] * kept[i][e / 2];");
  text_.close();
}

void MmaEmitter::print_meeting() {
  // all: bytes of a warp's results; those of the whole block follow the first warp's.
  const int blocks = across_ / 8, all = (blocks + 1) * 512;
  print_leave();
  text_.open("");
  print_block([&] { text_.line(cat("store_four(ours + ", all, ", m[0], m[1], l[0], l[1]);")); },
              [&] {
                text_.line(cat("store_four(ours + ", all,
                               " + (own + 1) * 512, total[0], total[1], total[2], total[3]);"));
              });
  text_.close();
  text_.line("meet_cluster();");
  const Loading load = [&](const std::string& to, const std::string& from) {
    text_.line(cat("load_peer(", to, ", ours + ", all, from, ", i);"));
  };
  text_.open("");
  print_counts(f_.plan.split, load);
  f_.print_factors("warp_row", "m", "l");
  text_.line("#pragma unroll 1");
  text_.open(cat("for (int own = warp * ", f_.plan.split, " + rank; own < ", blocks,
                 "; own += ", f_.plan.parts(), ")"));
  print_total(f_.plan.split, load);
  f_.print_values(
      blocks, "warp_row", wide_,
      [](const std::string&, const std::string& e) { return cat("total[", e, "]"); }, "own");
  text_.close();
  text_.close();
  text_.line("__syncwarp();");
  text_.line("meet_cluster();");  // no block exits while others read its shared memory
}

void MmaEmitter::print_leave() {
  const int blocks = across_ / 8;
  text_.line("__syncwarp();");
  text_.line("const unsigned mine = q_tile + lane_id * 16, ours = shared_address(shared) + lane_id * 16;");
  text_.line("store_four(mine, m[0], m[1], l[0], l[1]);");
  text_.line("#pragma unroll");
  text_.line(cat("for (int j = 0; j < ", blocks,
                 "; ++j) store_four(mine + (j + 1) * 512, o[j][0], o[j][1], o[j][2], o[j][3]);"));
  text_.line("__syncthreads();");
}

void MmaEmitter::print_block(const std::function<void()>& store_counts,
                             const std::function<void()>& store_total) {
  const Loading load = [&](const std::string& to, const std::string& from) {
    text_.line(cat("load_four(", to, ", ours + i * ", warp_bytes(), from, ");"));
  };
  print_counts(warps(), load);
  text_.open("if (warp == 0)");
  store_counts();
  text_.close();
  text_.line("#pragma unroll");
  text_.open(cat("for (int own = warp; own < ", across_ / 8, "; own += ", warps(), ")"));
  print_total(warps(), load);
  store_total();
  text_.close();
}

std::string_view fours_declarations() { return kFours; }

std::string_view peers_declarations() { return kPeers; }

}  // namespace stridec::codegen::cuda
