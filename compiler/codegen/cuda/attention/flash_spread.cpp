#include "compiler/codegen/cuda/attention/flash_mma.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/matrix/matrix.h"

namespace stridec::codegen::cuda {

using sym::Expr;

DeviceKernel MmaEmitter::emit_spread(const GpuTarget& target) {
  print_spread(target);
  Geometry geometry{
      .grid = {shares(target).blocks(), 1, 1}, .threads = threads(), .blocks_sm = f_.plan.spread};
  geometry.shared_bytes = kernels::shared_bytes(f_.plan, f_.flash);
  geometry.dependent_launch = target.dependent_launch;
  geometry.workspace_bytes = slots(target) * kernels::part_bytes(f_.flash);
  geometry.counters = slots(target) * spread_levels(target);
  return finish(f_.text, std::move(geometry), cat(declarations(), arrive_declarations()));
}

int MmaEmitter::spread_levels(const GpuTarget& target) const {
  int levels = 0;
  for (int parts = f_.plan.spread * target.multiprocessors; parts > 1; ++levels)
    parts = (parts + kTogether - 1) / kTogether;
  return std::max(1, levels);
}

void MmaEmitter::print_shares(const GpuTarget& target) {
  Shares by = shares(target);
  std::function<std::string(Expr)> number = [&](Expr e) { return text_.size(e); };
  if (f_.flash.asks_memory()) {
    f_.print_most();
    text_.line(cat("const int64_t steps = keys_most > ", stride(), " ? (keys_most + ", stride() - 1, ") / ",
                   stride(), " : 1, room = gridDim.x;"));
    by.steps = sym::var("%steps");
    by.room = sym::var("%room");
    f_.set_index(by.steps, "steps");
    f_.set_index(by.room, "room");
    number = [&](Expr e) { return f_.batch_index(e); };
  }
  text_.line(cat("const unsigned row_tiles = (unsigned)", text_.size(f_.row_tiles()), ", points = (unsigned)",
                 text_.size(points()), ", pitch = (unsigned)", number(by.pitch()), ", share = (unsigned)",
                 number(by.share()), ";"));
}

void MmaEmitter::print_spread(const GpuTarget& target) {
  text_.line("extern __shared__ __align__(1024) unsigned char shared[];");
  text_.line("const int thread = threadIdx.x, lane_id = thread % 32, warp = thread / 32;");
  if (target.dependent_launch) text_.line("launch_dependents();");
  // Lengths may be computed by the preceding kernel.
  const bool early = target.dependent_launch && !f_.flash.asks_memory();
  if (target.dependent_launch && !early) text_.line("wait_predecessor();");
  print_shares(target);
  text_.line("const unsigned all = points * pitch;");
  text_.line("unsigned unit = blockIdx.x * share;");
  text_.line("const unsigned last_unit = unit + share < all ? unit + share : all;");
  if (early) text_.line("bool begun = false;");
  text_.line("#pragma unroll 1");
  text_.open("while (unit < last_unit)");
  text_.line("const unsigned point = unit / pitch, step = unit % pitch;");
  text_.line("const unsigned count = pitch - step < last_unit - unit ? pitch - step : last_unit - unit;");
  text_.line("unit += count;");
  f_.print_tile("point / row_tiles", "point % row_tiles");
  print_operands();
  text_.line(cat("const int64_t start = (int64_t)step * ", stride(), " + warp * ", keys(),
                 ", reach = (int64_t)(step + count) * ", stride(),
                 ", stop = reach < key_end ? reach : key_end;"));
  if (early) {
    text_.open("if (!begun)");
    print_prefetch("start", "stop", 1);
    text_.line("wait_predecessor();");
    text_.line("begun = true;");
    text_.close();
  }
  print_walk("start", "stop");
  print_leave();
  print_own();
  print_gathering();
  text_.open("if (whole)");
  print_result();
  text_.close();
  text_.line("__syncthreads();");
  text_.close();
}

void MmaEmitter::print_own() {
  const int pitch = own_pitch();
  text_.line(cat("float* const rows = (float*)(shared + ", (across_ / 8 + 1) * 512, ");"));
  text_.open("");
  print_block(
      [&] {
        text_.line("#pragma unroll");
        text_.open("for (int h = 0; h < 2; ++h)");
        text_.line("float all = l[h];");
        text_.line("all += __shfl_xor_sync(~0u, all, 1);");
        text_.line("all += __shfl_xor_sync(~0u, all, 2);");
        // Rows with fixed weights use the same maximum for all parts, so that no part is scaled down.
        const char* const most = f_.flash.fixes ? "fix[h] ? 0.0f : m[h]" : "m[h]";
        text_.line(cat("if (lane_id % 4 == 0) *(float2*)(rows + (warp_row + h * 8) * ", pitch, " + ", across_,
                       ") = make_float2(", most, ", all);"));
        text_.close();
      },
      [&] {
        text_.line(cat("float* const at = rows + warp_row * ", pitch, " + own * 8 + lane_id % 4 * 2;"));
        text_.line("*(float2*)at = make_float2(total[0], total[1]);");
        text_.line(cat("*(float2*)(at + ", 8 * pitch, ") = make_float2(total[2], total[3]);"));
      });
  text_.close();
  text_.line("__syncthreads();");
}

void MmaEmitter::print_gathering() {
  const int quads = across_ / 4, line = part_pitch(), bytes = kernels::part_bytes(f_.flash);
  text_.line(
      "const unsigned first_block = point * pitch / share, first_part = first_block + point, slots = "
      "gridDim.x + points;");
  text_.line(
      "unsigned parts = ((point + 1) * pitch - 1) / share - first_block + 1, part = blockIdx.x - "
      "first_block;");
  text_.line("unsigned apart = 1;");  // slots from one part to the next
  text_.line("unsigned* counter = counters + first_part;");
  text_.line("bool whole = true;");
  text_.line("#pragma unroll 1");
  text_.open("while (parts > 1)");
  text_.line(
      cat("float* const to = (float*)(workspace + (int64_t)(first_part + part * apart) * ", bytes, ");"));
  text_.open(cat("for (int i = thread; i < row_count * ", quads + 1, "; i += ", threads(), ")"));
  text_.line("float v[4];");
  text_.line(cat("load_four(v, shared_address(rows + i / ", quads + 1, " * ", own_pitch(), " + i % ",
                 quads + 1, " * 4));"));
  text_.line("store_part(to + i * 4, v);");
  text_.close();
  text_.line(cat("const unsigned head = part / ", kTogether, " * ", kTogether, ", left = parts - head;"));
  text_.line(cat("const unsigned members = left < ", kTogether, " ? left : ", kTogether, ";"));
  text_.line("__syncthreads();");
  text_.line("whole = __syncthreads_or(thread == 0 && comes_last(counter + head * apart, members));");
  text_.line("if (!whole) break;");
  text_.line(cat("const char* const from = workspace + (int64_t)(first_part + head * apart) * ", bytes, ";"));
  text_.open(cat("for (int i = thread; i < row_count * ", quads, "; i += ", threads(), ")"));
  text_.line(cat("const int row = i / ", quads, ", at = i % ", quads, " * 4;"));
  text_.line("float sum[4] = {}, most = -__builtin_inff(), all = 0;");
  text_.line("#pragma unroll 1");
  text_.open(cat("for (unsigned first = 0; first < members; first += ", kAhead, ")"));
  text_.line(cat("float stats[", kAhead, "][4], values[", kAhead, "][4];"));
  open_parts(kAhead);
  // All loads are issued before the first one is used.
  text_.line("const unsigned member = first + i < members ? first + i : members - 1;");
  text_.line(cat("const float* const line = (const float*)(from + (int64_t)(member * apart) * ", bytes,
                 ") + row * ", line, ";"));
  text_.line(cat("load_part(stats[i], line + ", across_, ");"));
  text_.line("load_part(values[i], line + at);");
  text_.close();
  text_.line("const int h = 0;");
  text_.line("float shift[1], top = most;");
  open_parts(kAhead);
  text_.line("if (first + i >= members) stats[i][0] = -__builtin_inff();");
  text_.line("top = fmaxf(top, stats[i][0]);");
  text_.close();
  f_.print_shift("top");
  text_.line(cat("const float before = ", f_.weight("most", "h"), ";"));
  text_.line("most = top;");
  text_.line("all *= before;");
  text_.line("#pragma unroll");
  text_.line("for (int e = 0; e < 4; ++e) sum[e] *= before;");
  open_parts(kAhead);
  text_.line(cat("const float kept = ", f_.weight("stats[i][0]", "h"), ";"));
  text_.line("all += stats[i][1] * kept;");
  text_.line("#pragma unroll");
  text_.line("for (int e = 0; e < 4; ++e) sum[e] += values[i][e] * kept;");
  text_.close();
  text_.close();
  text_.line(cat("float* const own_row = rows + row * ", own_pitch(), ";"));
  text_.line("store_four(shared_address(own_row + at), sum[0], sum[1], sum[2], sum[3]);");
  text_.line(cat("if (at == 0) *(float2*)(own_row + ", across_, ") = make_float2(most, all);"));
  text_.close();
  text_.line("__syncthreads();");
  text_.line(cat("part = head / ", kTogether, ";"));
  text_.line(cat("parts = (parts + ", kTogether - 1, ") / ", kTogether, ";"));
  text_.line(cat("apart *= ", kTogether, ";"));
  text_.line("counter += slots;");
  text_.close();
}

void MmaEmitter::print_result() {
  const int pitch = own_pitch();
  const std::string row = cat("rows[(warp_row + h * 8) * ", pitch, " + ");
  text_.line("#pragma unroll");
  text_.line(cat("for (int h = 0; h < 2; ++h) l[h] = lane_id % 4 ? 0.0f : ", row, across_ + 1, "];"));
  f_.print_factors("warp_row", "m", "l");
  text_.line("#pragma unroll 1");
  text_.open(cat("for (int own = warp; own < ", across_ / 8, "; own += ", warps(), ")"));
  f_.print_values(
      across_ / 8, "warp_row", wide_,
      [&](const std::string& j, const std::string&) { return cat(row, j, " * 8 + lane_id % 4 * 2 + w]"); },
      "own");
  text_.close();
}

}  // namespace stridec::codegen::cuda
