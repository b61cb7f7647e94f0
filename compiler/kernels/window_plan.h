// WindowPlan: schedules of depthwise convolutions and convolutions with few channels per group on the CPU.
// Channels run along the vector lanes, and a few neighbouring outputs are computed at a time in registers.
//
// The nest is a contraction in which both factors depend on the group dim and only the data factor a has
// further dims besides the taps. Columns of different groups share nothing, but every input vector serves
// several outputs of a row. A vector holds whole groups. If a group has several channels, a vector of the
// inputs of these groups is permuted once per input channel of a group, so that each lane gets its group's
// input.
//
// For products of bytes a conversion per tap would be too expensive: bytes of neighbouring taps are placed
// side by side in the 32 bits of a lane and multiplied by as many weights at once. Such vectors are built
// once for all outputs that read them, so the neighbouring taps are chosen along a dim that does not move
// along the outputs, if there is one. If a group has several channels per lane, their bytes are adjacent in
// memory already: input lanes are permuted, and nothing is converted. The same holds for pairs of 16-bit
// floats.
//
// Text form, of kernel "NAME.T" (a row of kernels.def, T outputs at a time):
//   rows %n %y      dims of a alone except the last, and dims that neither factor depends on
//   along %x        the dim of the T outputs
//   columns %g %c   the lanes: groups and, if they have several, their output channels
//   channel %k      the reduced dim of a group's input channels, if there are several
//   taps %s         the other reduced dims, of constant extent
//   beside %r       the reduced dims whose taps are side by side in a lane; %k: input channels are
//   b weights P     the taps of P channels are adjacent, packed at compile time; P: channels of the whole
//                   groups that fit a vector
//   lanes L         lanes of a vector, if more than P
//   vectors V       vectors of columns per task
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/kernels/contraction.h"

namespace stridec::kernels {

struct WindowKernel {
  std::string_view name;                    // "window.f32"
  DType a, b;                               // of the operands
  DType dtype;                              // of the sums
  bool CpuTarget::* instruction = nullptr;  // required CPU feature

  int group() const { return byte_size(dtype) / byte_size(b); }  // taps or channels per lane
  bool runs_on(const CpuTarget& target) const { return !instruction || target.*instruction; }
};

// The rows of kernels.def.
std::span<const WindowKernel> window_kernels();

struct WindowPlan {
  const WindowKernel* kernel = nullptr;
  int outputs = 8;
  std::vector<sym::Expr> rows, columns, taps, beside;
  sym::Expr along;
  std::optional<sym::Expr> channel;
  int64_t panel = 0;
  int lanes = 0;  // lanes of a vector: a panel, padded after its last group
  int64_t vectors = 1;

  bool channels_beside() const { return channel && beside.size() == 1 && beside[0] == *channel; }
};

bool is_window(const loop::Schedule& schedule);
loop::Schedule to_schedule(const WindowPlan& plan);
WindowPlan to_window_plan(const loop::Schedule& schedule);  // requires is_window(schedule)

// The panels of b that a schedule wants packed: [batch dims that b depends on][panel][k dims][columns of a
// panel]. With groups of k: [batch dims][panel][outer k dims][flattened k / group][columns of a
// panel][group], zero-padded after the last k. A panel has `panel` columns of the contraction, zero-padded to
// `width`. Only the other factor depends on the rows.
struct PanelLayout {
  std::vector<sym::Expr> batch, rows, columns, outer, k;
  std::optional<sym::Expr> along;  // a dim that b does not depend on, if both factors depend on the columns
  int64_t panel = 0, width = 0;
  DType element = DType::kF32;
  int group = 1;
  int step = 1;  // k per panel is a multiple of this
};
std::optional<PanelLayout> panels_of(const loop::Schedule& schedule);

}  // namespace stridec::kernels
