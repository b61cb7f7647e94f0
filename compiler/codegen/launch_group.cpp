#include "compiler/codegen/launch_group.h"

namespace stridec::codegen {

bool LaunchGroup::add(const DeviceNest& nest, bool concurrent) {
  LaunchGroup own;
  bool joins = concurrent;
  for (const DeviceChoice& choice : nest.choices) {
    joins = joins && choice.launches.size() == 1;
    for (const DeviceKernel& kernel : choice.launches) {
      own.workspace_ = own.workspace_ || !kernel.workspace_bytes.is_const(0);
      own.counters_ = own.counters_ || !kernel.counter_bytes.is_const(0);
      own.fails_ = own.fails_ || kernel.fails;
    }
  }
  joins =
      joins && !(own.workspace_ && workspace_) && !(own.counters_ && counters_) && !(own.fails_ && fails_);
  if (!joins) *this = {};
  workspace_ = workspace_ || own.workspace_;
  counters_ = counters_ || own.counters_;
  fails_ = fails_ || own.fails_;
  return joins;
}

}  // namespace stridec::codegen
