#include "compiler/frontend/pt2/input_names.h"

#include <set>

namespace stridec::pt2 {

using In = InputSpec::Kind;

InputNames input_names(const Program& program) {
  std::vector<Path> paths;
  if (!program.in_spec.empty())
    paths = argument_paths(program.in_spec, program.argument_names, program.namedtuple_fields);
  size_t count = 0;
  for (const InputSpec& spec : program.inputs) count += spec.kind == In::kUser || spec.kind == In::kFixed;
  InputNames out;
  out.names.resize(program.inputs.size());
  out.paths.resize(program.inputs.size());
  size_t at = 0;
  std::set<std::string> used;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const InputSpec& spec = program.inputs[i];
    if (spec.kind != In::kUser && spec.kind != In::kFixed) continue;
    const std::string own = spec.kind == In::kFixed ? spec.target : spec.argument.text;
    out.paths[i] = paths.size() == count ? paths[at] : Path{own};
    ++at;
    out.names[i] = joined(out.paths[i]);
    if (!used.insert(out.names[i]).second) out.names[i] = own, used.insert(own);
  }
  return out;
}

}  // namespace stridec::pt2
