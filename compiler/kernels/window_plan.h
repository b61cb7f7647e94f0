// How a depthwise convolution, or one of groups of few channels, runs: channels along the lanes, a few neighbouring outputs
// at a time in registers.
//
// The nest is a contraction in which both factors keep the dim of the groups and only the data factor a has dims of its own
// but for the taps: nothing to share between columns of several groups, but every input vector serves several outputs of
// a row. A vector holds whole groups. Where these have several channels, a vector of the inputs of as many groups is
// permuted once for each of a group's input channels, so that each lane finds its group's.
//
// Products of bytes have no lane to spare for a conversion of each tap: bytes of neighbouring taps lie side by side in the
// 32 bits of a lane and are multiplied by as many weights at once. Such vectors are made once for all outputs that read
// them, so that taps beside each other are those that do not move along the outputs, where there are such. Where a group has
// several channels for each lane, these lie side by side already, in memory: lanes of the inputs are permuted, and nothing is
// converted. So do pairs of 16-bit floats.
//
// Text form, of kernel "NAME.T" (a row of kernels.def, T outputs at a time):
//   rows %n %y      dims of a alone but the last, and whatever neither factor has
//   along %x        the dim of the T outputs
//   columns %g %c   the lanes: groups and, where these have several, their output channels
//   channel %k      the reduced dim of a group's input channels, where these are several
//   taps %s         the other reduced dims, of constant extent
//   beside %r       and those whose taps lie side by side in a lane; %k: its channels do
//   b weights P     taps of P channels next to each other, made at compile time; whole groups, as many as a vector holds
//   lanes L         of a vector, where that is more than P
//   vectors V       of columns in a task
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/kernels/contraction.h"

namespace stridec::kernels {

struct WindowKernel {
  std::string_view name;                   // "window.f32"
  DType a, b;                              // of the operands
  DType dtype;                             // of the sums
  bool CpuTarget::*instruction = nullptr;  // that it cannot do without

  int group() const { return byte_size(dtype) / byte_size(b); }  // taps or channels in a lane
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
  int lanes = 0;  // of a vector: a panel with what is behind its last group
  int64_t vectors = 1;

  bool channels_beside() const { return channel && beside.size() == 1 && beside[0] == *channel; }
};

bool is_window(const loop::Schedule& schedule);
loop::Schedule to_schedule(const WindowPlan& plan);
WindowPlan to_window_plan(const loop::Schedule& schedule);  // of an is_window() schedule

// The panels of b that a schedule wants packed: [batch dims that b has][panel][k dims][columns of a panel], or of
// groups of k [batch dims][panel][outer k dims][flattened k / group][columns of a panel][group], with zeros behind the last
// k. A panel's columns are `panel` of the product's and zeros up to `width`. The other factor alone has the rows.
struct PanelLayout {
  std::vector<sym::Expr> batch, rows, columns, outer, k;
  std::optional<sym::Expr> along;  // a dim that b has not, where both factors have the columns
  int64_t panel = 0, width = 0;
  DType element = DType::kF32;
  int group = 1;
  int step = 1;  // of k, that a panel has whole ones of
};
std::optional<PanelLayout> panels_of(const loop::Schedule& schedule);

}  // namespace stridec::kernels
