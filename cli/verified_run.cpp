#include "cli/verified_run.h"

#include "compiler/base/counted.h"
#include "compiler/base/text.h"

namespace stridec::cli {

void judge(VerifiedRun& run, const graph::Graph& graph, const Tolerance& tolerance, bool outputs_given,
           ProgressPrinter& progress) {
  if (run.got.size() != run.want.size())
    fail(ErrorKind::kMismatch, "output-count",
         cat("the artifact has ", counted(run.got.size(), "output"), ", the model ", run.want.size()));
  run.differences = compare(run.got, run.want);
  run.allowed.assign(run.want.size(), {tolerance.relative, tolerance.relative});
  // The interpreter is slow, so it finds out what roundings can change only where this matters.
  if (!run.failed()) return;
  const auto reference_run = [&](const graph::Graph& each) {
    return interpret(reference_of(each), run.inputs, progress);
  };
  const Tensors own = !outputs_given || !tolerance.quantized ? run.want : reference_run(graph);
  run.allowed = allowed_differences(graph, own, tolerance, reference_run);
}

std::string failure_text(const VerifiedRun& run, const Difference& worst, const std::string& output) {
  const loop::HostTensor &got = run.got[worst.output], &want = run.want[worst.output];
  const Allowed& allowed = run.allowed[worst.output];
  if (got.shape != want.shape || got.dtype != want.dtype)
    return cat("output '", output, "': its shape or type differs");
  return cat("output '", output, "': ", worst.error, " at ", position(want, worst.element), " (expected ",
             worst.want, ", got ", worst.got, "), mean ", worst.mean, "; allowed ", allowed.largest,
             ", mean ", allowed.mean);
}

}  // namespace stridec::cli
