#include "compiler/codegen/cpu/build.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <unordered_map>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/parallel.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cpu/jit.h"
#include "compiler/codegen/cpu/routine.h"
#include "compiler/codegen/cpu/tile_and_fuse.h"
#include "compiler/codegen/embedded.h"
#include "compiler/codegen/object_cache.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "runtime/include/stridec/abi.h"

namespace stridec::codegen::cpu {
namespace {

// Collects kernels of all variants; equal ones are stored once.
class Kernels {
 public:
  explicit Kernels(std::vector<BuiltKernel>& list) : list_(list) {}

  int add(const Kernel& kernel, const CpuTarget& target, const std::string& nest) {
    for (const std::string& unit : kernel.support) add_text(unit, target, nest);
    for (const std::string& unit : kernel.c_support) add_text(unit, target, nest, true);
    return add_text(kernel.text, target, nest);
  }
  int add_text(const std::string& text, const CpuTarget& target, const std::string& nest, bool c = false) {
    const std::string symbol = kernel_symbol(text, target);
    auto [found, fresh] = by_symbol_.emplace(symbol, static_cast<int>(list_.size()));
    if (fresh)
      list_.push_back({.symbol = symbol, .cpu = target.name, .tune = target.tune, .text = text, .c = c});
    std::vector<std::string>& nests = list_[static_cast<size_t>(found->second)].nests;
    if (std::find(nests.begin(), nests.end(), nest) == nests.end()) nests.push_back(nest);
    return found->second;
  }

 private:
  std::vector<BuiltKernel>& list_;
  std::unordered_map<std::string, int> by_symbol_;
};

// The kernels of one object: the range [first, last) of the list.
struct Unit {
  size_t first, last;
};

bool is_supporting(const std::string& text) { return text.find(kAbiInclude) == std::string::npos; }

std::vector<Unit> units_of(const std::vector<BuiltKernel>& kernels, const BuildOptions& options) {
  std::vector<Unit> units;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const bool joins = !units.empty() && i - units.back().first < options.kernels_per_object &&
                       kernels[i].cpu == kernels[units.back().first].cpu && !is_supporting(kernels[i].text) &&
                       !is_supporting(kernels[i - 1].text);
    if (joins)
      units.back().last = i + 1;
    else
      units.push_back({i, i + 1});
  }
  return units;
}

std::string source_of(const std::vector<BuiltKernel>& kernels, const Unit& unit) {
  std::string out = source_file(kernels[unit.first]).second;
  // Each further kernel has a namespace for its types and helpers.
  for (size_t i = unit.first + 1; i < unit.last; ++i)
    out += cat("\n#undef KERNEL\n#define KERNEL ", kernels[i].symbol, "\nnamespace unit_", i, " {\n",
               kernels[i].text.substr(kernels[i].text.find(kAbiInclude) + kAbiInclude.size()), "}\n");
  return out;
}

// The host program, which is compiled in parallel with the kernels.
struct Host {
  const std::string& text;
  CompileOptions compile;
  std::string object;
};

// With `errors`, failures are recorded there and the other kernels are still compiled.
void compile_all(std::vector<BuiltKernel>& kernels, const BuildOptions& options, Host* host = nullptr,
                 std::vector<std::string>* errors = nullptr) {
  if (errors) errors->assign(kernels.size(), "");
  const ObjectCache cache(options.use_cache, options.cache_bytes);
  const std::vector<Unit> units = units_of(kernels, options);
  std::atomic<size_t> done{0};
  std::atomic<bool> stored{false};
  // The host program takes longest, so it starts first.
  const size_t hosts = host ? 1 : 0, jobs = hosts + units.size();
  for_each_parallel(jobs, options.threads, [&](size_t job) {
    if (job < hosts) {
      host->object = cached_object(cache, "host.cpp", host->text, host->compile, &stored);
    } else {
      const Unit& unit = units[job - hosts];
      BuiltKernel& kernel = kernels[unit.first];
      const std::string source = kernel.c ? kernel.text : options.prelude + source_of(kernels, unit);
      const CompileOptions compile{.cpu = kernel.cpu,
                                   .tune = kernel.tune,
                                   .optimize = options.optimize,
                                   .c = kernel.c,
                                   .lines = options.lines};
      try {
        kernel.object = cached_object(cache, source_file(kernel).first, source, compile, &stored);
      } catch (const Error& error) {
        if (!errors) throw;
        for (size_t i = unit.first; i < unit.last; ++i) (*errors)[i] = error.text;
      }
    }
    if (options.progress) options.progress(++done, jobs);
  });
  if (stored) cache.trim();
}

// Zeroed memory; untouched pages cost nothing. Large blocks use huge pages, because a page fault per 4 KB
// costs as much as writing the data.
std::shared_ptr<void> zeros(size_t bytes) {
  constexpr size_t kHuge = 4 << 20;
  if (bytes < kHuge) return {std::calloc(std::max<size_t>(bytes, 64), 1), std::free};
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_HUGEPAGE);  // only advice: failure is harmless
  return {memory, [bytes](void* mapped) { munmap(mapped, bytes); }};
}

[[noreturn]] void out_of_memory(const loop::Nest& nest, size_t bytes) {
  Error error({.kind = ErrorKind::kOverBudget,
               .code = "out-of-memory",
               .message = cat("memory ran out: a constant of the model takes ", bytes, " bytes")});
  loop::add_provenance(error, nest);
  throw error;
}

}  // namespace

std::pair<std::string, std::string> source_file(const BuiltKernel& kernel) {
  if (kernel.c) return {kernel.symbol + ".c", kernel.text};
  Kernel only_text;
  only_text.text = kernel.text;
  return {kernel.symbol + ".cpp", translation_unit(only_text, kernel.symbol)};
}

std::vector<schedule::Scratch> scratch_of(const loop::Program& program, const CpuTarget& target) {
  const std::set<loop::NestId> parts = loop::launched_in_groups(program);
  std::vector<schedule::Scratch> all;
  std::set<schedule::LaunchKey> known;
  const auto add = [&](schedule::LaunchKey key, const auto& bytes_of) {
    if (known.insert(key).second) all.push_back({key, bytes_of()});
  };
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node); launch && !parts.contains(launch->nest))
      add(launch->nest, [&] { return kernel_scratch(program, program[launch->nest], target); });
    if (const auto* strips = std::get_if<loop::TiledGroup>(&step.node))
      add(strips, [&] { return tiled_group_scratch(program, *strips, target); });
    if (const auto* call = std::get_if<loop::Call>(&step.node); call && !loop::is_callback(call->routine))
      add(call, [&] { return routine_scratch(program, *call, target); });
  });
  return all;
}

namespace {

Kernel kernel_of(const Variant& variant, schedule::LaunchKey launch) {
  const loop::Program& program = variant.program;
  return std::visit(
      loop::Overloaded{
          [&](loop::NestId id) { return emit_kernel(program, program[id], variant.target); },
          [&](const loop::TiledGroup* group) { return emit_tiled_group(program, *group, variant.target); },
          [&](const loop::Call* call) { return emit_routine(program, *call, variant.target); },
      },
      launch);
}

std::string name_of(const loop::Program& program, schedule::LaunchKey launch) {
  return std::visit(loop::Overloaded{
                        [&](loop::NestId id) { return program[id].name; },
                        [&](const loop::TiledGroup* group) { return group->name; },
                        [&](const loop::Call* call) { return loop::label_of(call->routine); },
                    },
                    launch);
}

}  // namespace

std::map<schedule::LaunchKey, Kernel> emit(const Variant& variant) {
  std::map<schedule::LaunchKey, Kernel> kernels;
  for (const schedule::Scratch& scratch : variant.scratch) {
    const Kernel& kernel = kernels[scratch.launch] = kernel_of(variant, scratch.launch);
    STRIDEC_CHECK(kernel.scratch_bytes == scratch.bytes, cat("'", name_of(variant.program, scratch.launch),
                                                             "' needs other scratch than its plan says"));
  }
  return kernels;
}

namespace {

// Adds the variant's kernels to the table. Returns its launches, and calls `added` with each kernel's index.
std::map<schedule::LaunchKey, LaunchedKernel> add_kernels(
    const Variant& variant, Kernels& table, const std::vector<BuiltKernel>& kernels,
    const std::function<void(schedule::LaunchKey, const Kernel&, int)>& added) {
  std::map<schedule::LaunchKey, LaunchedKernel> launches;
  for (const schedule::Scratch& scratch : variant.scratch) {
    const Kernel& kernel = variant.kernels.at(scratch.launch);
    const int number = table.add(kernel, variant.target, name_of(variant.program, scratch.launch));
    launches[scratch.launch] = {kernels[static_cast<size_t>(number)].symbol, &kernel, scratch};
    if (added) added(scratch.launch, kernel, number);
  }
  return launches;
}

HostVariant host_variant(const Variant& variant, Kernels& table, const std::vector<BuiltKernel>& kernels,
                         std::vector<Built::Launch>& launches) {
  launches.resize(variant.program.nests.size());
  HostVariant row{.name = variant.target.name, .when = variant.when, .program = &variant.program};
  row.launches = add_kernels(variant, table, kernels,
                             [&](const schedule::LaunchKey& launch, const Kernel& kernel, int number) {
                               if (const auto* id = std::get_if<loop::NestId>(&launch))
                                 launches[static_cast<size_t>(id->value)] = {number, kernel};
                             });
  return row;
}

}  // namespace

Built assemble(const std::vector<FunctionVariants>& functions, const std::vector<DeviceTable>& tables,
               const BuildOptions& options) {
  Built built;
  Kernels kernels(built.kernels);
  std::vector<HostFunction> host;
  for (const FunctionVariants& function : functions) {
    HostFunction& rows = host.emplace_back(function.devices);
    for (const Variant& variant : function.cpu)
      rows.push_back(host_variant(variant, kernels, built.kernels, built.launches.emplace_back()));
  }
  for (HostFunction& function : host)
    for (HostVariant& row : function) {
      const auto found = options.derivations.find(row.program);
      if (found == options.derivations.end()) continue;
      row.derivation = &found->second->program;
      row.derivation_launches = add_kernels(*found->second, kernels, built.kernels, {});
    }
  built.host_text = host_text(host, tables, options.host);
  return built;
}

void compile(Built& built, const BuildOptions& options) {
  // The host program must run on any x86-64 machine, because it reports missing instruction sets.
  Host program{built.host_text, {"x86-64", "generic", std::min(options.optimize, 1), false}, {}};
  compile_all(built.kernels, options, &program);
  built.host_object = std::move(program.object);
}

Built build(const std::vector<Variant>& variants, const BuildOptions& options) {
  Built built = assemble({{variants}}, {}, options);
  compile(built, options);
  return built;
}

KernelObjects build_kernels(const std::vector<Kernel>& kernels, const CpuTarget& target,
                            const BuildOptions& options) {
  KernelObjects built;
  Kernels table(built.kernels);
  for (const Kernel& kernel : kernels) {
    std::vector<int>& uses = built.uses.emplace_back();
    uses.push_back(table.add(kernel, target, ""));
    for (const std::string& unit : kernel.support) uses.push_back(table.add_text(unit, target, ""));
    for (const std::string& unit : kernel.c_support) uses.push_back(table.add_text(unit, target, "", true));
  }
  compile_all(built.kernels, options, nullptr, &built.errors);
  return built;
}

namespace {

// Of a size without symbols.
int64_t constant(sym::Expr e) {
  const std::optional<int64_t> value = sym::evaluate(e, [](sym::Expr) { return std::nullopt; });
  STRIDEC_CHECK(value, "a prepacked weight's size is constant");
  return *value;
}

// How many statements a nest of constant extents runs.
double statements_of(const loop::Block& block) {
  double sum = static_cast<double>(block.size());
  for (const loop::Stmt& stmt : block)
    if (const loop::Block* body = loop::body_of(stmt)) {
      double each = statements_of(*body);
      for (const loop::Dim& dim : loop::dims_of(stmt)) each *= static_cast<double>(constant(dim.extent));
      sum += each;
    }
  return sum;
}
double statements_of(const loop::Nest& nest) {
  double each = statements_of(nest.body);
  for (const loop::Dim& dim : nest.dims) each *= static_cast<double>(constant(dim.extent));
  return each;
}

void allocate_results(loop::Program& program, const loop::Nest& nest) {
  for (loop::BufferId id : schedule::effects_of(nest).writes) {
    loop::Buffer& buffer = program[id];
    if (buffer.weight.bytes || buffer.storage == loop::Storage::kLocal) continue;
    const size_t bytes = static_cast<size_t>(constant(schedule::extent_in_elements(buffer))) *
                         static_cast<size_t>(byte_size(buffer.dtype));
    const std::shared_ptr<void> memory = zeros(bytes);  // padding is zero as well
    if (!memory) out_of_memory(nest, bytes);
    buffer.weight = {memory, static_cast<const uint8_t*>(memory.get()), bytes};
  }
}

uint8_t* memory_of(const loop::Program& program, loop::BufferId id) {
  return const_cast<uint8_t*>(program[id].weight.bytes);
}

void interpret_packing_nest(const loop::Program& program, const loop::Nest& nest) {
  std::vector<loop::BufferMemory> buffers(program.buffers.size());
  for (loop::BufferId id : loop::buffers_of(nest))
    if (program[id].storage != loop::Storage::kLocal)
      buffers[static_cast<size_t>(id.value)] = {memory_of(program, id),
                                                constant(schedule::extent_in_elements(program[id]))};
  loop::interpret(program, nest, {}, buffers);
}

void run_packing_kernel(const loop::Program& program, const loop::Nest& nest, const Kernel& kernel,
                        stridec_abi_kernel function, int threads) {
  std::vector<void*> buffers;
  for (loop::BufferId id : kernel.buffers) buffers.push_back(memory_of(program, id));
  std::vector<int64_t> sizes;
  for (const sym::Expr& e : kernel.sizes) sizes.push_back(constant(e));
  for (size_t m = 0; m < kernel.messages.size(); ++m) sizes.push_back(static_cast<int64_t>(m));
  const int64_t tasks = constant(kernel.tasks), scratch = constant(sym::align_up(kernel.scratch_bytes, 64));
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(threads > 0 ? threads : processors(), tasks));
  std::unique_ptr<char, void (*)(void*)> memory(
      static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(scratch * parts + 64))), std::free);
  if (!memory) out_of_memory(nest, static_cast<size_t>(scratch * parts));
  std::vector<stridec_abi_failure> failures(static_cast<size_t>(parts));
  const stridec_abi_args args{buffers.data(), sizes.data(), memory.get(), scratch, failures.data()};
  for_each_parallel(static_cast<size_t>(parts), static_cast<int>(parts), [&](size_t part) {
    const int64_t p = static_cast<int64_t>(part);
    function(&args, tasks * p / parts, tasks * (p + 1) / parts, static_cast<int32_t>(p));
  });
  for (const stridec_abi_failure& failure : failures)
    if (failure.code)
      loop::with_provenance(nest, [&] {
        fail(ErrorKind::kDoesNotFit, "bad-weights",
             sym::render({.condition = 0,
                          .sentence = kernel.messages[static_cast<size_t>(failure.code - 1)],
                          .values = {failure.values[0], failure.values[1]}}));
      });
}

// Whether the nest checks data, whose failures kernels report.
bool can_fail(const loop::Nest& nest) {
  bool found = false;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    found = found || std::holds_alternative<loop::Bind>(stmt.node);
  });
  return found;
}

}  // namespace

void run_prepack(loop::Program& program, const CpuTarget& target, const BuildOptions& options) {
  std::vector<BuiltKernel> kernels;
  Kernels table(kernels);
  std::map<loop::NestId, std::pair<Kernel, int>> compiled;  // with the index of the kernel
  // Weights that may be replaced are derived by kernels of the artifact: the same code gives the same bits.
  const double interpreted = program.parameters.empty() ? options.interpreted_statements : 0;
  for (loop::NestId id : program.prepack) {
    const loop::Nest& nest = program[id];
    if (statements_of(nest) <= interpreted && !can_fail(nest)) continue;
    Kernel kernel = emit_kernel(program, nest, target);
    const int number = table.add(kernel, target, nest.name);
    compiled.emplace(id, std::pair(std::move(kernel), number));
  }
  compile_all(kernels, options);
  Jit jit;
  for (const BuiltKernel& kernel : kernels)
    if (!kernel.object.empty()) jit.add_object(kernel.object);
  for (loop::NestId id : program.prepack) {
    const loop::Nest& nest = program[id];
    allocate_results(program, nest);
    const auto found = compiled.find(id);
    if (found == compiled.end()) {
      interpret_packing_nest(program, nest);
      continue;
    }
    const auto& [kernel, number] = found->second;
    const auto function =
        reinterpret_cast<stridec_abi_kernel>(jit.lookup(kernels[static_cast<size_t>(number)].symbol));
    run_packing_kernel(program, nest, kernel, function, options.threads);
  }
}

}  // namespace stridec::codegen::cpu
