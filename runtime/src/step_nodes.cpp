#include "step_nodes.h"

#include <stdlib.h>

#include "memory.h"
#include "trace_file.h"

namespace stridec::runtime {
namespace {

constexpr int64_t kMostNodes = 4;   // that are written for a step
constexpr size_t kNodeBytes = 250;  // of each

Json at_index(Json array, int64_t index) {
  Json at = json_first(array);
  while (at && index-- > 0) at = json_next(at);
  return at;
}

int64_t count_of(Json array) {
  int64_t count = 0;
  for (Json at = json_first(array); at; at = json_next(at)) ++count;
  return count;
}

// Kernels of one program. Another variant than the manifest's best may have other steps, so names are
// compared.
void add_kernels(Json kernels, const Function& function, StepNodes& nodes) {
  for (Json kernel = json_first(kernels); kernel; kernel = json_next(kernel)) {
    const Json texts = json_member(kernel, "nodes"), name = json_member(kernel, "name");
    Json launch = json_first(json_member(kernel, "launch_nodes"));
    for (Json at = json_first(json_member(kernel, "steps")); at; at = json_next(at)) {
      const int64_t step = json_integer(at, -1);
      if (step >= 0 && step < function.variant->step_count && json_equals(name, function.step_names[step]))
        nodes.steps[step] = {texts, launch};
      if (launch) launch = json_next(launch);
    }
  }
}

// The routines of the library.
void add_routines(Json groups, const Function& function, StepNodes& nodes) {
  for (Json group = json_first(groups); group; group = json_next(group))
    for (Json at = json_first(json_member(group, "steps")); at; at = json_next(at)) {
      const int64_t step = json_integer(at, -1);
      if (step >= 0 && step < function.variant->step_count &&
          json_equals(json_member(group, "by"), function.step_names[step]))
        nodes.steps[step] = {json_member(group, "nodes"), {}};
    }
}

}  // namespace

bool find_nodes(const stridec_model& model, int32_t index, StepNodes& nodes) {
  const Function& function = model.functions[index];
  nodes.steps = make_array<StepNodes::Entry>(function.variant->step_count);
  if (!nodes.steps) return false;
  Json manifest = json_document(model.blob.manifest.data, model.blob.manifest.size);
  if (const Json functions = json_member(manifest, "functions")) manifest = at_index(functions, index);
  nodes.model = json_string(json_member(json_member(manifest, "model"), "sha256"));
  add_kernels(json_member(manifest, "kernels"), function, nodes);
  for (Json special = json_first(json_member(manifest, "specializations")); special;
       special = json_next(special))
    add_kernels(json_member(special, "kernels"), function, nodes);
  add_routines(json_member(json_member(manifest, "nodes"), "without_kernel"), function, nodes);
  return true;
}

void write_nodes(Text& line, const StepNodes& nodes, int32_t step) {
  if (!nodes.steps) return;
  const auto [texts, indices] = nodes.steps[step];
  const int64_t count = count_of(indices ? indices : texts);
  Json next = json_first(indices ? indices : texts);
  for (int64_t i = 0; next && i < kMostNodes; ++i, next = json_next(next)) {
    if (i) line << ", ";
    write_escaped(line, json_string(indices ? at_index(texts, json_integer(next, 0)) : next), kNodeBytes);
  }
  if (count > kMostNodes) line << ", " << count - kMostNodes << " more";
}

}  // namespace stridec::runtime
