#include "compiler/codegen/cpu/routine.h"

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/codegen/emit_text.h"
#include "compiler/codegen/sort.h"
#include "compiler/loop/library.h"

namespace stridec::codegen::cpu {

Kernel emit_routine(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  const bool sort = call.routine == "sort";
  if (!sort && call.routine != "topk")
    fail(ErrorKind::kUnsupported, "no-routine", cat("the CPU backend has no routine '", call.routine, "'"));
  KernelText text(program, target);
  print_sort(text, program, call, "for (int64_t task = begin; task < end; ++task)");
  return text.finish(call.arguments[0] * call.arguments[2], 1);
}

}  // namespace stridec::codegen::cpu
