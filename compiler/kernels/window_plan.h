// How a depthwise convolution runs: channels along the lanes, a few neighbouring outputs at a time in
// registers.
//
// The nest is a contraction in which both factors keep the dim of the lanes and only the data factor a has
// dims of its own: nothing to share between columns, but every input vector serves several outputs of a row.
//
// Text form, of kernel "window.f32.T" (T outputs at a time):
//   rows %n %y      dims of a alone but the last, and whatever neither factor has
//   along %x        the dim of the T outputs
//   columns %c      the lanes
//   taps %r %s      reduced dims, of constant extent
//   b weights P     taps of P channels next to each other, made at compile time
//   vectors V       of columns in a task
#pragma once

#include <vector>

#include "compiler/kernels/contraction.h"

namespace stridec::kernels {

struct WindowPlan {
  int outputs = 8;
  std::vector<sym::Expr> rows, taps;
  sym::Expr along, columns;
  int64_t panel = 0;
  int64_t vectors = 1;
};

bool is_window(const loop::Schedule& schedule);
loop::Schedule to_schedule(const WindowPlan& plan);
WindowPlan to_window_plan(const loop::Schedule& schedule);  // of an is_window() schedule

// The panels of b that a schedule wants packed: [batch dims that b has][panel][k dims][columns of a panel], or of
// groups of k [batch dims][panel][flattened k / group][columns of a panel][group], with zeros behind the last k.
struct PanelLayout {
  std::vector<sym::Expr> batch, columns, k;
  std::optional<sym::Expr> along;  // a dim that b has not, where both factors have the columns
  int64_t panel = 0;
  DType element = DType::kF32;
  int group = 1;
  int step = 1;  // of k, that a panel has whole ones of
};
std::optional<PanelLayout> panels_of(const loop::Schedule& schedule);

}  // namespace stridec::kernels
