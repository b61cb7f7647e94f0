#include "compiler/own_kernels.h"

#include <sys/wait.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/extend/draw.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/kernel_file.h"
#include "compiler/extend/rewrite.h"
#include "compiler/kernel_host.h"
#include "compiler/ops/op_table.h"
#include "compiler/passes/autocast.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/sym/text.h"
#include "compiler/tune/child.h"
#include "compiler/tune/database.h"

namespace stridec {
namespace {

using codegen::cpu::CompiledProgram;
using extend::Attr;
using extend::Bindings;
using extend::KernelChoice;
using extend::OwnKernel;
using graph::Builder;
using graph::ValueId;
using loop::HostTensor;

constexpr double kSecondsOfTimes = 0.3;
constexpr int kLeastRounds = 5, kMostRounds = 200;
constexpr double kPatience = 30;  // seconds without a word from the child

bool covers(const CpuTarget& has, const CpuTarget& needed) {
  const auto at_least = [](bool a, bool b) { return a || !b; };
  return has.vector_bytes >= needed.vector_bytes && at_least(has.avx, needed.avx) &&
         at_least(has.f16c, needed.f16c) && at_least(has.fma, needed.fma) &&
         at_least(has.avx2, needed.avx2) && at_least(has.avx512, needed.avx512) &&
         at_least(has.avx512_bf16, needed.avx512_bf16) && at_least(has.avx512_fp16, needed.avx512_fp16) &&
         at_least(has.vnni, needed.vnni) && at_least(has.vbmi, needed.vbmi) &&
         at_least(has.amx_bf16, needed.amx_bf16) && at_least(has.amx_int8, needed.amx_int8);
}

// A call of the kernel at a place of the graph, whose operands may have symbols in their shapes.
struct Site {
  std::vector<graph::Type> types;
  std::vector<std::optional<graph::Data>> constants;  // contents of operands that are known
  std::vector<std::pair<std::string, Attr>> attributes;
};

Site site_of(const OwnKernel& kernel, const Builder& builder, const Bindings& bindings) {
  Site site;
  for (const extend::DeclaredTensor& input : kernel.op.inputs) {
    const ValueId value = bindings.values.at(input.name);
    site.types.push_back(builder.type(value));
    const graph::Data* data = builder.graph()[value].known_data();
    site.constants.push_back(data ? std::optional(*data) : std::nullopt);
  }
  for (const extend::DeclaredAttribute& each : kernel.op.attributes)
    if (const auto bound = bindings.attributes.find(each.name); bound != bindings.attributes.end())
      site.attributes.emplace_back(each.name, bound->second);
  return site;
}

graph::OperatorCall call_of(const OwnKernel& kernel, const Site& site, const std::vector<ValueId>& values) {
  graph::OperatorCall call{.name = kernel.op.name, .arguments = {}, .outputs = kernel.op.outputs.size()};
  for (size_t i = 0; i < values.size(); ++i)
    call.arguments.push_back({.name = kernel.op.inputs[i].name, .tensor = values[i], .value = {}});
  for (const auto& [name, value] : site.attributes)
    call.arguments.push_back({.name = name, .tensor = {}, .value = extend::to_graph(name, value)});
  return call;
}

// Values of the symbols at which a kernel is judged.
using Lookup = std::function<std::optional<int64_t>(sym::Expr)>;

int64_t value_at(sym::Expr e, const Lookup& lookup) {
  const auto value = sym::evaluate(e, lookup);
  if (!value || *value < 0)
    fail(ErrorKind::kDoesNotFit, "does-not-fit", cat("the size ", sym::to_string(e), " is not known"));
  return *value;
}

Site at_sizes(Site site, const Lookup& lookup) {
  for (graph::Type& type : site.types)
    for (sym::Expr& dim : type.shape) dim = value_at(dim, lookup);
  for (auto& [name, value] : site.attributes) {
    if (auto* e = std::get_if<sym::Expr>(&value); e && !e->is_const()) *e = value_at(*e, lookup);
    if (auto* list = std::get_if<std::vector<sym::Expr>>(&value))
      for (sym::Expr& each : *list)
        if (!each.is_const()) each = value_at(each, lookup);
  }
  return site;
}

graph::Graph graph_of(const OwnKernel& kernel, const extend::OperatorBody& body, const Site& site) {
  graph::Graph graph;
  Builder builder(graph, ops::shape_table());
  std::vector<ValueId> values;
  for (size_t i = 0; i < site.types.size(); ++i)
    values.push_back(site.constants[i] ? builder.constant("", site.types[i], *site.constants[i])
                                       : builder.input(kernel.op.inputs[i].name, site.types[i]));
  const auto results =
      extend::build_operator(builder, kernel.op, body, call_of(kernel, site, values), kernel_host());
  for (size_t i = 0; i < results.size(); ++i) builder.output(kernel.op.outputs[i].name, results[i]);
  return graph;
}

// Numbers around 0. Special ones have been compared with the interpreter before.
std::vector<HostTensor> inputs_of(const Site& site) {
  std::vector<HostTensor> inputs;
  extend::Draws draws(1);
  for (size_t i = 0; i < site.types.size(); ++i) {
    if (site.constants[i]) continue;
    std::vector<int64_t> shape;
    for (const sym::Expr dim : site.types[i].shape) shape.push_back(dim.value());
    HostTensor& tensor = inputs.emplace_back(loop::make_tensor(site.types[i].dtype, shape));
    for (int64_t e = 0; e < loop::element_count(tensor); ++e)
      loop::set_number(tensor, e,
                       is_float(tensor.dtype) ? draws.between(-1, 1) : static_cast<double>(draws.below(4)));
  }
  return inputs;
}

// "" if the results of the user's kernel are those of the compiler's.
std::string difference(const OwnKernel& kernel, const std::vector<HostTensor>& own,
                       const std::vector<HostTensor>& made) {
  for (size_t o = 0; o < own.size(); ++o) {
    if (own[o].shape != made[o].shape || own[o].dtype != made[o].dtype)
      return cat("output '", kernel.op.outputs[o].name, "' has another type");
    double most = 0;
    for (int64_t i = 0; i < loop::element_count(own[o]); ++i)
      if (const double a = std::abs(loop::get_number(own[o], i)); std::isfinite(a)) most = std::max(most, a);
    const double narrow = own[o].dtype == DType::kF64 ? 1e-9 : own[o].dtype == DType::kF32 ? 1e-4 : 1e-2;
    const double allowed =
        std::max(kernel.op.reference->relative, is_float(own[o].dtype) ? narrow : 0.0) * most +
        kernel.op.reference->absolute;
    for (int64_t i = 0; i < loop::element_count(own[o]); ++i) {
      const double a = loop::get_number(own[o], i), b = loop::get_number(made[o], i);
      if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= allowed) continue;
      return cat("element ", i, " of output '", kernel.op.outputs[o].name, "' is ", b, ", and should be ", a);
    }
  }
  return "";
}

// The graph's kernels for the first target.
Compilation scheduled(graph::Graph graph, const CompileOptions& options) {
  Module module{.options = options,
                .targets = select_targets(options.targets, options.cpus, options.gpus),
                .last = Stage::kSchedule,
                .functions = std::vector<ModuleFunction>(1),
                .build = {.use_cache = options.use_cache},
                .made = {}};
  module.made.functions.push_back({.source = {.name = "", .model = options.model}});
  module.functions[0].graph = std::move(graph);
  const DType factors = passes::precision(options.precision).factors;
  const Options values(options.settings);
  const PassContext context{.options = values, .factors = factors == DType::kTF32 ? DType::kF32 : factors};
  PassRunner runner(options.passes, [](std::string_view, size_t, size_t, std::string_view) {});
  stridec::run(pipeline_until(Stage::kSchedule), module, runner, context);
  return std::move(module.made);
}

class Chooser {
 public:
  Chooser(Module& module, size_t function)
      : m_(module), graph_(module.functions[function].graph), result_(module.made.functions[function]) {
    const auto& tuning = m_.options.tuning;
    if (!tuning.database.empty() || tuning.frozen || max_autotune(m_.options))
      database_.emplace(tuning.database.empty() ? tune::default_database() : tuning.database, tuning.frozen);
  }

  void run() {
    std::vector<extend::RuleOf> rules;
    std::vector<extend::RuleFile> files;  // for their names
    files.reserve(m_.options.extensions.kernels.size());
    for (const auto& file : m_.options.extensions.kernels) {
      files.push_back({.path = file->path, .name = file->name});
      for (const OwnKernel& kernel : file->kernels)
        rules.push_back(
            {&files.back(), &kernel.rule, [this, &kernel](Builder& builder, const Bindings& bindings) {
               return build(kernel, builder, bindings);
             }});
    }
    extend::rewrite(graph_, rules, {.throws = false});
    if (thrown_) std::rethrow_exception(thrown_);
    list_unmatched();
  }

 private:
  // Lists each kernel that no part of the graph matches, which a report would otherwise not mention.
  void list_unmatched() {
    for (const auto& file : m_.options.extensions.kernels)
      for (const OwnKernel& kernel : file->kernels)
        if (std::ranges::find(result_.kernels, kernel.op.name, &KernelChoice::kernel) ==
            result_.kernels.end()) {
          result_.kernels.push_back(
              untried("no part of the graph is what it computes, for its types and 'where'"));
          result_.kernels.back().kernel = kernel.op.name;
        }
  }

  // Keeps the first error that does not depend on the place, such as a kernel that does not compile. It ends
  // the compilation after rewriting.
  std::vector<ValueId> build(const OwnKernel& kernel, Builder& builder, const Bindings& bindings) {
    try {
      return replacement(kernel, builder, bindings);
    } catch (const Error& error) {
      const ErrorKind kind = error.diagnostic.kind;
      const bool here = kind == ErrorKind::kDoesNotFit || kind == ErrorKind::kUnsupported;
      if (!here && !thrown_) thrown_ = std::current_exception();
      throw;
    }
  }

  // Throws Error if the compiler's own kernels stay.
  std::vector<ValueId> replacement(const OwnKernel& kernel, Builder& builder, const Bindings& bindings) {
    const Site site = site_of(kernel, builder, bindings);
    KernelChoice choice = choose(kernel, site);
    choice.kernel = kernel.op.name, choice.node = builder.origin();
    const bool known = std::ranges::any_of(result_.kernels, [&](const KernelChoice& each) {
      return each.kernel == choice.kernel && each.node == choice.node;
    });
    if (!known) {
      warn(choice);
      result_.kernels.push_back(choice);
    }
    if (choice.kind != KernelChoice::Kind::kChosen)
      fail(ErrorKind::kDoesNotFit, "not-chosen", cat(extend::name(choice.kind), ": ", choice.reason));
    std::vector<ValueId> values;
    for (const extend::DeclaredTensor& input : kernel.op.inputs)
      values.push_back(bindings.values.at(input.name));
    return extend::build_operator(builder, kernel.op, kernel.op.body, call_of(kernel, site, values),
                                  kernel_host());
  }

  void warn(const KernelChoice& choice) const {
    if (choice.kind != KernelChoice::Kind::kWrong && choice.kind != KernelChoice::Kind::kFailed) return;
    result_.warnings.push_back({.kind = ErrorKind::kDoesNotFit,
                                .code = kOwnKernel,
                                .message = cat("kernel '", choice.kernel, "' is not used: ", choice.reason),
                                .where = {.node = choice.node}});
  }

  KernelChoice choose(const OwnKernel& kernel, const Site& site) {
    const CpuTarget& native = cpu_target("native");
    if (!m_.targets.gpus.empty()) return untried("it runs on CPUs, and a GPU is a target");
    for (const CpuTarget& target : m_.targets.cpus)
      if (!kernel.cpu.empty() && !covers(target, cpu_target(kernel.cpu)))
        return untried(cat("it needs ", kernel.cpu, ", and ", target.name, " is a target"));
    const auto target =
        std::ranges::find_if(m_.targets.cpus, [&](const CpuTarget& t) { return covers(native, t); });
    if (target == m_.targets.cpus.end()) return untried("no target of the compilation runs here");
    std::vector<Site> sites;
    try {
      for (const Lookup& lookup : lookups()) sites.push_back(at_sizes(site, lookup));
    } catch (const Error& error) {
      return untried(error.diagnostic.message);
    }
    const std::string key = key_of(kernel, sites, *target);
    if (const auto known = choices_.find(key); known != choices_.end()) return known->second;
    KernelChoice made = stored(key);
    if (made.kind == KernelChoice::Kind::kUntried) made = measured(kernel, sites, *target);
    if (database_ && !m_.options.tuning.frozen)
      database_->append(tune::Extension{key, entry_of(kernel, made)});
    return choices_[key] = made;
  }

  static KernelChoice untried(std::string why) {
    return {.kind = KernelChoice::Kind::kUntried, .kernel = "", .node = "", .reason = std::move(why)};
  }

  // The sizes of --tune-shape, or typical ones.
  std::vector<Lookup> lookups() const {
    const sym::Facts& facts = graph_.facts;
    const auto typical = [&facts](sym::Expr var) -> std::optional<int64_t> {
      return static_cast<int64_t>(schedule::typical(var, facts));
    };
    std::vector<Lookup> all;
    for (const tune::Sizes& sizes : m_.options.tuning.shapes)
      all.push_back([typical, sizes](sym::Expr var) {
        const auto given = sizes.find(std::string(var.name()));
        return given == sizes.end() ? typical(var) : std::optional(given->second);
      });
    if (all.empty()) all.push_back(typical);
    return all;
  }

  // What decides: the kernel, the operands, the processor and this compiler.
  std::string key_of(const OwnKernel& kernel, const std::vector<Site>& sites, const CpuTarget& target) const {
    std::string all = cat(kernel.op.hash, "\n", target.name, "\n", tune::this_compiler());
    for (const Site& site : sites) {
      for (size_t i = 0; i < site.types.size(); ++i)
        all += cat("\n", graph::to_string(site.types[i]), site.constants[i] ? " constant" : "");
      for (const auto& [name, value] : site.attributes) all += cat("\n", name, "=", extend::to_string(value));
    }
    return sha256(all.data(), all.size());
  }

  static std::string entry_of(const OwnKernel& kernel, const KernelChoice& choice) {
    return cat("kernel ", kernel.op.name, " ", extend::name(choice.kind));
  }

  // What the database says; kUntried: nothing. Throws Error if it has to.
  KernelChoice stored(const std::string& key) const {
    KernelChoice choice;
    if (!database_) return choice;
    for (const tune::Extension& each : database_->contents().extensions) {
      if (each.sha256 != key) continue;
      for (const auto kind : {KernelChoice::Kind::kChosen, KernelChoice::Kind::kSlower,
                              KernelChoice::Kind::kWrong, KernelChoice::Kind::kFailed})
        if (each.name.ends_with(cat(" ", extend::name(kind)))) choice.kind = kind;
      choice.reason = "the tuning database says so";
    }
    if (choice.kind == KernelChoice::Kind::kUntried && m_.options.tuning.frozen)
      throw Error({.kind = ErrorKind::kMismatch,
                   .code = "frozen-kernel",
                   .message = "the tuning database does not say whether a kernel of --kernels is faster",
                   .where = {.file = database_->file()},
                   .help = "leave out --frozen, or record it: compile with this --tune-db"});
    return choice;
  }

  KernelChoice measured(const OwnKernel& kernel, const std::vector<Site>& sites, const CpuTarget& target) {
    if (std::string wrong = wrong_at_drawn_inputs(kernel, sites.at(0)); !wrong.empty())
      return {.kind = KernelChoice::Kind::kWrong, .kernel = "", .node = "", .reason = std::move(wrong)};
    KernelChoice all{.kind = KernelChoice::Kind::kChosen};
    for (const Site& site : sites) {
      KernelChoice here = measured_at(kernel, site, target);
      all.own_seconds += here.own_seconds, all.user_seconds += here.user_seconds;
      if (all.kind == KernelChoice::Kind::kChosen || here.kind > KernelChoice::Kind::kSlower)
        all.kind = here.kind, all.reason = here.reason;
    }
    return all;
  }

  // Against the interpreter, once for each kernel and the attributes of a site. "": nothing is wrong.
  const std::string& wrong_at_drawn_inputs(const OwnKernel& kernel, const Site& site) {
    std::string attributes;
    extend::ReferenceCheck how{.all = true, .conditions = {.where = kernel.rule.where}, .narrow = true};
    for (const extend::Variable& each : kernel.rule.variables)
      how.conditions.constant.push_back(each.constant);
    for (const auto& [name, value] : site.attributes) {
      attributes += cat(name, "=", extend::to_string(value), "\n");
      how.conditions.attributes.emplace(name, value);
    }
    const auto [found, fresh] = wrong_.emplace(std::pair(&kernel, attributes), "");
    if (!fresh) return found->second;
    try {
      extend::check_references({.path = kernel.path, .operators = {kernel.op}}, kernel_host(), how);
    } catch (const Error& error) {
      if (error.diagnostic.kind == ErrorKind::kMalformed) throw;
      found->second = error.diagnostic.message;
      for (const std::string& note : error.diagnostic.notes) found->second += cat("; ", note);
    }
    return found->second;
  }

  CompiledProgram program_of(graph::Graph graph, const CpuTarget& target) const {
    CompileOptions options = m_.options;
    options.extensions = {}, options.edit_pipeline = {}, options.progress = {}, options.stage_begins = {};
    options.functions.clear(), options.training.reset(), options.specialize.clear();
    options.targets = {"cpu"}, options.cpus = {target.name}, options.mode = "default";
    options.settings.erase("max_autotune"), options.tuning = {}, options.memory_budget.reset();
    options.passes = {};
    Compilation made = scheduled(std::move(graph), options);
    return CompiledProgram(
        std::move(made.functions[0].variants[0].program),
        {.target = target, .build = {.use_cache = options.use_cache}, .parts = 1, .poison = false});
  }

  KernelChoice measured_at(const OwnKernel& kernel, const Site& site, const CpuTarget& target) {
    KernelChoice choice{.kind = KernelChoice::Kind::kFailed};
    try {
      CompiledProgram own = program_of(graph_of(kernel, kernel.op.reference->body, site), target);
      CompiledProgram made = program_of(graph_of(kernel, kernel.op.body, site), target);
      compete(kernel, own, made, inputs_of(site), choice);
    } catch (const Error& error) {
      if (error.diagnostic.kind == ErrorKind::kInternal) throw;
      choice.reason = error.diagnostic.message;
    }
    return choice;
  }

  // Times both kernels by turns, in a child process.
  void compete(const OwnKernel& kernel, CompiledProgram& own, CompiledProgram& made,
               const std::vector<HostTensor>& inputs, KernelChoice& choice) const {
    using tune::Event;
    const tune::Child child = tune::start_child([&](int descriptor) {
      const auto send = [&](const Event& event) { tune::send_all(descriptor, &event, sizeof event); };
      const auto expected = own.run(inputs);
      send(tune::event_of(Event::Kind::kBegin, 1));
      try {
        const std::string wrong = difference(kernel, expected, made.run(inputs));
        if (!wrong.empty()) return send(tune::event_of(Event::Kind::kWrong, 1, wrong.c_str()));
      } catch (const Error& error) {
        return send(tune::event_of(Event::Kind::kFailed, 1, error.diagnostic.message.c_str()));
      }
      double spent = 0;
      for (int round = 0; round < kMostRounds && (round < kLeastRounds || spent < kSecondsOfTimes); ++round)
        for (const size_t subject : {0, 1}) {
          Event event = tune::event_of(Event::Kind::kSample, subject);
          event.seconds = (subject == 0 ? own : made).time(inputs);
          spent += event.seconds;
          send(event);
        }
      send(tune::event_of(Event::Kind::kEnd, 0));
    });
    Event event;
    double least[2] = {INFINITY, INFINITY};
    bool ended = false;
    int got = 0;
    while (!ended && (got = tune::next_event(child.descriptor, event, kPatience)) > 0) {
      if (event.kind == Event::Kind::kSample)
        least[event.subject] = std::min(least[event.subject], event.seconds);
      ended = event.kind != Event::Kind::kSample && event.kind != Event::Kind::kBegin;
    }
    const int status = tune::end_child(child, !ended);
    choice.own_seconds = std::isfinite(least[0]) ? least[0] : 0;
    choice.user_seconds = std::isfinite(least[1]) ? least[1] : 0;
    if (!ended) {
      choice.reason = got < 0               ? cat("it does not end within ", kPatience, " s")
                      : WIFSIGNALED(status) ? cat("it ends its process by signal ", WTERMSIG(status))
                                            : "it ends its process";
      return;
    }
    choice.reason = event.reason;
    choice.kind = event.kind == Event::Kind::kWrong                            ? KernelChoice::Kind::kWrong
                  : event.kind == Event::Kind::kFailed                         ? KernelChoice::Kind::kFailed
                  : choice.user_seconds < kOwnKernelShare * choice.own_seconds ? KernelChoice::Kind::kChosen
                                                                               : KernelChoice::Kind::kSlower;
  }

  Module& m_;
  graph::Graph& graph_;
  FunctionResult& result_;
  std::optional<tune::Database> database_;
  std::map<std::string, KernelChoice> choices_;
  std::map<std::pair<const OwnKernel*, std::string>, std::string> wrong_;
  std::exception_ptr thrown_;
};

}  // namespace

void run_own_kernels(Module& module, const PassContext&) {
  for (size_t f = 0; f < module.functions.size(); ++f) Chooser(module, f).run();
}

}  // namespace stridec
