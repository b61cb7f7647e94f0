#include "tests/gpu/job_writer.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <string_view>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/cubin.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/heuristics/cuda_contraction.h"
#include "compiler/schedule/layout/order_weights.h"
#include "compiler/sym/text.h"

namespace stridec::test {
namespace {

constexpr size_t kMostTiles = 9;

int64_t value_of(sym::Expr e, const Sizes& sizes) {
  const auto value = sym::evaluate(e, [&](sym::Expr var) -> std::optional<int64_t> {
    const auto found = sizes.find(std::string(var.name()));
    return found == sizes.end() ? std::nullopt : std::optional(found->second);
  });
  STRIDEC_CHECK(value.has_value(), sym::to_string(e));
  return *value;
}

}  // namespace

void JobWriter::add(const MatrixCase& c, const std::string& kernel, const std::vector<Sizes>& shapes,
                    const json& reference, bool time, int64_t split) {
  const GpuTarget& target = gpu_target("sm_90a");
  const loop::Program parsed = loop::parse_program(c.text);
  loop::Program program = parsed;
  if (time) program.buffers[1].storage = loop::Storage::kParameter;
  loop::Nest& nest = program.nests[0];
  bool found = false;
  for (const auto& ranked : schedule::matrix_plans(program, nest, target)) {
    if (!kernel.empty() && ranked.plan.kernel->name != kernel) continue;
    if (split && ranked.plan.split != split) continue;
    nest.schedule = kernels::to_schedule(ranked.plan);
    found = true;
    break;
  }
  if (!found) {
    std::cerr << c.name << ": no plan for " << kernel << "\n";
    return;
  }
  const codegen::DeviceNest device = codegen::cuda::emit_nest(program, nest, target);
  for (const Sizes& sizes : shapes)
    for (size_t i = 0; i < device.choices.size(); ++i) {
      if (!value_of(device.choices[i].condition, sizes)) continue;
      write(c, program, device.choices[i], static_cast<int>(i), sizes, reference, time);
      if (time) break;
    }
}

void JobWriter::add_plans(const MatrixCase& c, const json& reference, double most, size_t count,
                          const GpuTarget& target) {
  loop::Program program = loop::parse_program(c.text);
  program.buffers[1].storage = loop::Storage::kParameter;
  const auto ranked = schedule::matrix_plans(program, program.nests[0], target);
  for (const auto& [plan, cycles] : ranked) {
    if (cycles > most * ranked[0].cycles || count-- == 0) break;
    loop::Program planned = program;
    planned.nests[0].schedule = kernels::to_schedule(plan);
    schedule::order_weights(planned);
    const auto device = codegen::cuda::emit_nest(planned, planned.nests[0], target);
    write(c, planned, device.choices[0], 0, {}, reference, true);
    jobs_.back()["cycles"] = std::round(cycles);
  }
}

void JobWriter::add_at(const MatrixCase& c, const MatrixCase& fixed, const Sizes& sizes,
                       const json& reference, double most, size_t count) {
  const GpuTarget& target = gpu_target("sm_90a");
  const auto parsed = [](const MatrixCase& of) {
    loop::Program program = loop::parse_program(of.text);
    program.buffers[1].storage = loop::Storage::kParameter;
    return program;
  };
  const loop::Program known = parsed(fixed);
  const auto ranked = schedule::matrix_plans(known, known.nests[0], target);
  const int64_t rows = sizes.at("m");
  std::map<std::string_view, size_t> times;
  for (const auto& [plan, cycles] : ranked) {
    const kernels::MatrixKernel& kernel = *plan.kernel;
    if (cycles > most * ranked[0].cycles) break;
    if (!kernel.is_tensor() && kernel.rows > std::max<int64_t>(kernel.is_sliced() ? 8 : 32, rows)) continue;
    if (times[kernel.name]++ >= count || times.size() > kMostTiles) continue;
    const loop::Schedule schedule = kernels::to_schedule(plan);
    const auto [found, fresh] = at_.try_emplace(cat(c.text, loop::to_string(schedule)));
    auto& [program, device] = found->second;
    if (fresh) {
      program = parsed(c);
      program.nests[0].schedule = schedule;
      schedule::order_weights(program);
      device = codegen::cuda::emit_nest(program, program.nests[0], target);
    }
    const auto choice = std::find_if(device.choices.begin(), device.choices.end(),
                                     [&](const auto& each) { return value_of(each.condition, sizes); });
    write(c, program, *choice, static_cast<int>(choice - device.choices.begin()), sizes, reference, true);
    jobs_.back()["cycles"] = std::round(cycles);
  }
}

void JobWriter::add_chosen(const MatrixCase& c, const std::vector<Sizes>& shapes, const json& reference) {
  const GpuTarget& target = gpu_target("sm_90a");
  loop::Program program = loop::parse_program(c.text);
  program.buffers[1].storage = loop::Storage::kParameter;
  const auto schedule = schedule::choose_cuda_contraction(program, program.nests[0], target);
  if (!schedule) {
    std::cerr << c.name << ": a thread per point\n";
    return;
  }
  program.nests[0].schedule = *schedule;
  schedule::order_weights(program);
  const auto device = codegen::cuda::emit_nest(program, program.nests[0], target);
  for (const Sizes& sizes : shapes) {
    const auto choice = std::find_if(device.choices.begin(), device.choices.end(),
                                     [&](const auto& each) { return value_of(each.condition, sizes); });
    write(c, program, *choice, static_cast<int>(choice - device.choices.begin()), sizes, reference, true);
  }
}

void JobWriter::finish() {
  std::ofstream(folder_ + "/jobs.json") << jobs_.dump(0);
  std::cout << jobs_.size() << " jobs, " << cubins_.size() << " cubins\n";
}

void JobWriter::write(const MatrixCase& c, const loop::Program& program, const codegen::DeviceChoice& choice,
                      int number, const Sizes& sizes, const json& reference, bool time) {
  json job = {{"case", c.name},         {"schedule", loop::to_string(program.nests[0].schedule)},
              {"choice", number},       {"sizes", sizes},
              {"reference", reference}, {"time", time}};
  for (const loop::Buffer& b : program.buffers) {
    std::vector<int64_t> shape;
    for (sym::Expr e : b.shape) shape.push_back(value_of(e, sizes));
    job["buffers"].push_back({{"name", b.name},
                              {"dtype", std::string(name(b.dtype))},
                              {"shape", shape},
                              {"output", b.storage == loop::Storage::kOutput}});
  }
  for (loop::NestId id : program.prepack) {  // ordered copies of weights
    const auto& from = std::get<loop::Load>(program[id].body[0].node).access;
    const auto& to = std::get<loop::Store>(program[id].body[1].node).access;
    std::vector<size_t> order;
    for (sym::Expr index : to.index)
      order.push_back(
          static_cast<size_t>(std::find(from.index.begin(), from.index.end(), index) - from.index.begin()));
    job["buffers"][to.buffer.value]["from"] = from.buffer.value;
    job["buffers"][to.buffer.value]["order"] = order;
  }
  for (const codegen::DeviceKernel& k : choice.launches) {
    json launch = {{"cubin", cubin(k.code.text, cat(c.name, " ", program.nests[0].schedule.kernel))},
                   {"threads", k.threads},
                   {"dependent", k.dependent_launch},
                   {"cluster", k.cluster},
                   {"shared", value_of(k.shared_bytes, sizes)},
                   {"workspace", value_of(k.workspace_bytes, sizes)},
                   {"counters", value_of(k.counter_bytes, sizes)}};
    for (sym::Expr e : k.grid) launch["grid"].push_back(value_of(e, sizes));
    launch["maps"] = json::array(), launch["buffers"] = json::array(), launch["sizes"] = json::array();
    for (const codegen::TensorMap& m : k.maps) {
      json map = {{"buffer", m.buffer.value},
                  {"offset", value_of(m.offset, sizes)},
                  {"dtype", std::string(name(m.dtype))},
                  {"box", m.box},
                  {"swizzle", m.swizzle},
                  {"steps", m.element_strides},
                  {"lower", m.lower},
                  {"upper", m.upper},
                  {"l2", m.l2_promotion}};
      for (sym::Expr e : m.dims) map["dims"].push_back(value_of(e, sizes));
      for (sym::Expr e : m.strides) map["strides"].push_back(value_of(e, sizes));
      launch["maps"].push_back(map);
    }
    for (loop::BufferId b : k.code.buffers) launch["buffers"].push_back(b.value);
    for (sym::Expr e : k.code.sizes) launch["sizes"].push_back(value_of(e, sizes));
    job["launches"].push_back(launch);
  }
  jobs_.push_back(job);
}

std::string JobWriter::cubin(const std::string& text, const std::string& name) {
  auto found = cubins_.find(text);
  if (found != cubins_.end()) return found->second;
  const std::string file = cat(cubins_.size(), ".cubin");
  const std::string bytes = nvrtc_.compile(name, cat("#define KERNEL kernel\n", text), gpu_target("sm_90a"));
  const auto info = codegen::cuda::resources_of(bytes, "kernel");
  if (info.stack_bytes)
    std::cerr << name << ": " << info.registers << " registers, stack " << info.stack_bytes << "\n";
  std::ofstream(folder_ + "/" + file) << bytes;
  return cubins_[text] = file;
}

}  // namespace stridec::test
