#include "compiler/codegen/null/null.h"

#include <algorithm>
#include <set>

#include "compiler/loop/walk.h"

namespace stridec::codegen::null {

std::vector<Source> emit(const loop::Program& program,
                         const std::function<Kernel(const loop::Nest& nest)>& kernel_of) {
  std::vector<Source> out;
  std::set<loop::NestId> seen;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch || !seen.insert(launch->nest).second) return;
    const loop::Nest& nest = program[launch->nest];
    Kernel kernel = kernel_of(nest);
    auto found =
        std::find_if(out.begin(), out.end(), [&](const Source& s) { return s.kernel.text == kernel.text; });
    if (found == out.end()) found = out.insert(out.end(), Source{{}, std::move(kernel)});
    found->nests.push_back(nest.name);
  });
  return out;
}

}  // namespace stridec::codegen::null
