#include "compiler/codegen/cuda/build.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "compiler/base/parallel.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/codegen/object_cache.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"
#include "runtime/include/stridec/abi.h"

namespace stridec::codegen::cuda {
namespace {

// Deduplicates kernels per kind of GPU.
class Tables {
 public:
  explicit Tables(Built& built) : built_(built) {}

  LaunchedNest add(DeviceNest made, const GpuTarget& target, const std::string& nest) {
    const size_t table = table_of(target);
    LaunchedNest out;
    built_.launches.push_back(std::move(made));
    out.nest = &built_.launches.back();
    for (const DeviceChoice& choice : out.nest->choices) {
      out.kernels.emplace_back();
      for (const DeviceKernel& kernel : choice.launches)
        out.kernels.back().push_back(row_of(table, kernel, kernel_of(kernel, target, nest)));
    }
    return out;
  }

  // The number of a kernel that the runtime launches by itself.
  int add_own(const DeviceKernel& kernel, const GpuTarget& target, const std::string& what) {
    return row_of(table_of(target), kernel, kernel_of(kernel, target, what));
  }

  // Of a target without kernels too: the runtime counts the kernels of all targets.
  size_t table_of(const GpuTarget& target) {
    for (size_t t = 0; t < built_.tables.size(); ++t)
      if (built_.tables[t].target == target.name) return t;
    built_.tables.push_back({.target = target.name, .rows = {}});
    built_.rows.emplace_back();
    return built_.tables.size() - 1;
  }

 private:
  int kernel_of(const DeviceKernel& kernel, const GpuTarget& target, const std::string& nest) {
    BuiltKernel made = named(kernel, target);
    const auto [found, fresh] = by_symbol_.emplace(made.symbol, static_cast<int>(built_.kernels.size()));
    if (fresh) built_.kernels.push_back(std::move(made));
    std::vector<std::string>& nests = built_.kernels[static_cast<size_t>(found->second)].nests;
    if (std::find(nests.begin(), nests.end(), nest) == nests.end()) nests.push_back(nest);
    return found->second;
  }

  int row_of(size_t table, const DeviceKernel& kernel, int number) {
    std::vector<int>& rows = built_.rows[table];
    const bool dynamic = !kernel.shared_bytes.is_const(0);
    const auto found = std::find(rows.begin(), rows.end(), number);
    const auto at = found - rows.begin();
    if (found == rows.end()) {
      rows.push_back(number);
      built_.tables[table].rows.push_back({built_.kernels[static_cast<size_t>(number)].symbol, kernel.threads,
                                           kernel.cluster, dynamic, kernel.dependent_launch});
    }
    DeviceRow& row = built_.tables[table].rows[static_cast<size_t>(at)];
    row.dynamic_shared = row.dynamic_shared || dynamic;
    return static_cast<int>(at);
  }

  Built& built_;
  std::map<std::string, int> by_symbol_;
};

}  // namespace

Built emit(const std::vector<const Variant*>& variants) {
  Built built;
  Tables tables(built);
  built.host.resize(variants.size());
  for (size_t v = 0; v < variants.size(); ++v) {
    const loop::Program& program = variants[v]->program;
    const GpuTarget& target = variants[v]->target;
    HostVariant& host = built.host[v];
    host.name = target.name;
    host.program = &program;
    host.gpu = &target;
    tables.table_of(target);
    loop::for_each_step(program.steps, [&](const loop::Step& step) {
      if (const auto* launch = std::get_if<loop::Launch>(&step.node)) {
        if (host.device_nests.count(launch->nest)) return;
        const loop::Nest& nest = program[launch->nest];
        host.device_nests[launch->nest] = tables.add(
            loop::with_provenance(nest, [&] { return emit_nest(program, nest, target); }), target, nest.name);
      } else if (const auto* call = std::get_if<loop::Call>(&step.node)) {
        host.device_routines[call] =
            tables.add(emit_routine(program, *call, target), target, loop::label_of(call->routine));
      }
    });
  }
  const DeviceKernel copy = emit_copy();
  for (const Variant* variant : variants) {
    const int row = tables.add_own(copy, variant->target, "copies of strided tensors");
    built.tables[tables.table_of(variant->target)].copy = row;
  }
  return built;
}

BuiltKernel named(const DeviceKernel& kernel, const GpuTarget& target) {
  const std::string all = cat(target.name, "\n", kernel.code.text);
  return {.symbol = "k_" + sha256(all.data(), all.size()).substr(0, 16),
          .target = target,
          .text = kernel.code.text,
          .threads = kernel.threads,
          .dynamic_shared = kernel.shared_bytes};
}

std::vector<std::optional<Diagnostic>> compile_kernels(const std::vector<BuiltKernel*>& kernels,
                                                       const BuildOptions& options) {
  std::vector<std::optional<Diagnostic>> errors(kernels.size());
  if (kernels.empty()) return errors;
  const Nvrtc nvrtc(options.nvrtc);
  const ObjectCache cache(options.use_cache, options.cache_bytes);
  std::atomic<size_t> done{0};
  std::atomic<bool> stored{false};
  for_each_parallel(kernels.size(), options.threads, [&](size_t i) {
    BuiltKernel& kernel = *kernels[i];
    const std::string text = cat("#define KERNEL ", kernel.symbol, "\n", kernel.text);
    const std::string what =
        cat("stridec " STRIDEC_VERSION " nvrtc ", nvrtc.version(), " ", kernel.target.name, "\n", text);
    const std::string key = sha256(what.data(), what.size());
    if (std::optional<std::string> image = cache.find(key)) {
      kernel.image = std::move(*image);
    } else {
      try {
        kernel.image = nvrtc.compile(kernel.symbol + ".cu", text, kernel.target);
      } catch (const Error& error) {
        errors[i] = error.diagnostic;
        return;
      }
      cache.store(key, kernel.image);
      stored = true;
    }
    kernel.resources = resources_of(kernel.image, kernel.symbol);
    if (options.progress) options.progress(++done, kernels.size());
  });
  if (stored) cache.trim();
  return errors;
}

void prepare(Built& built, const BuildOptions& options) {
  if (!built.kernels.empty()) built.driver = Nvrtc(options.nvrtc).driver_floor();
}

void compile(Built& built, const BuildOptions& options) {
  std::vector<BuiltKernel*> kernels;
  for (BuiltKernel& kernel : built.kernels) kernels.push_back(&kernel);
  for (const std::optional<Diagnostic>& error : compile_kernels(kernels, options))
    if (error) throw Error(*error);
}

std::string images(const Built& built) {
  uint64_t count = 0;
  for (const std::vector<int>& rows : built.rows) count += rows.size();
  if (count == 0) return {};
  std::string out(sizeof(stridec_abi_images) + count * 16, '\0');
  std::memcpy(out.data(), &count, sizeof count);
  std::map<int, uint64_t> placed;
  uint64_t row = 0;
  for (const std::vector<int>& rows : built.rows)
    for (int number : rows) {
      const std::string& image = built.kernels[static_cast<size_t>(number)].image;
      auto found = placed.find(number);
      if (found == placed.end()) {
        out.resize((out.size() + 15) / 16 * 16);
        found = placed.emplace(number, out.size()).first;
        out += image;
      }
      const uint64_t entry[2] = {found->second, image.size()};
      std::memcpy(out.data() + sizeof(stridec_abi_images) + 16 * row++, entry, sizeof entry);
    }
  return out;
}

}  // namespace stridec::codegen::cuda
