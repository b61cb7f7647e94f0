#include "compiler/codegen/host.h"

#include <algorithm>
#include <functional>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/embedded.h"
#include "compiler/codegen/host_context.h"
#include "compiler/codegen/host_run.h"
#include "compiler/loop/build.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/sym/guard.h"
#include "compiler/sym/text.h"

namespace stridec::codegen {
namespace {

using sym::Expr;

std::string dims_text(const std::vector<Expr>& shape) {
  std::string out;
  for (const Expr& e : shape) out += sym::to_string(e) + '\0';
  return out;
}

// The parts of a function that all its variants share: tables, bind, output_dims.
struct HostProgram {
  const loop::Program& program;
  HostMessages& messages;
  std::string suffix;  // of all names
  HostNames names;
  std::string out;

  HostProgram(const loop::Program& p, HostMessages& m, std::string s)
      : program(p), messages(m), suffix(std::move(s)), names(p) {}

  std::string c(Expr e) const { return names.text(e, program.facts); }

  void values(const std::string& table, const std::vector<loop::BufferId>& ids) {
    if (ids.empty()) return;
    std::string rows;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string name = cat(table, suffix, "_", i);
      out += value_tables(program, program[ids[i]], name);
      rows += cat("  ", value(program[ids[i]], name), ",\n");
    }
    out += cat("static const stridec_abi_value ", table, suffix, "[] = {\n", rows, "};\n");
  }
  // The smallest and the largest size of each dim, and the order of the dims in memory if it was declared;
  // nothing at rank 0.
  static std::string value_tables(const loop::Program& program, const loop::Buffer& b,
                                  const std::string& name) {
    if (b.shape.empty()) return "";
    const std::vector<size_t> order = schedule::declared_order(b);
    return cat(order.empty() ? ""
                             : cat("static const int32_t ", name, "_order[] = {",
                                   join(order, ", ", [](size_t d) { return cat(d); }), "};\n"),
               "static const int64_t ", name, "_ranges[] = {",
               join(b.shape, ", ",
                    [&](Expr e) {
                      const sym::Interval range = program.facts.bounds(e);
                      return cat(std::max<int64_t>(range.lo, 0), ", ", number(range.hi));
                    }),
               "};\n");
  }
  static std::string value(const loop::Buffer& b, const std::string& name) {
    return cat("{", c_string(b.name), ", ", info(b.dtype).onnx_type, ", ", b.shape.size(), ", 0, 0, ",
               b.shape.empty() ? "0, 0" : cat(c_string(dims_text(b.shape)), ", ", name, "_ranges"), ", ",
               schedule::declared_order(b).empty() ? "0" : cat(name, "_order"), "}");
  }

  void symbols() {
    if (program.symbols.empty()) return;
    out += cat("static const stridec_abi_symbol symbols", suffix, "[] = {\n");
    for (const loop::Symbol& s : program.symbols) {
      const sym::Interval range = program.facts.bounds(s.var);
      const int64_t lo = std::max<int64_t>(range.lo, 0);
      out += cat("  {", c_string(s.var.name()), ", ", lo, ", ", number(range.hi), ", ",
                 std::max<int64_t>(program.facts.known_divisor(s.var), 1), ", ",
                 loop::is_bound_before_run(program, s) ? 0 : 1, ", ", is_shown(s.var) ? 1 : 0, "},\n");
    }
    out += "};\n";
  }
  bool is_shown(Expr symbol) const {
    const auto in = [&](const std::vector<loop::BufferId>& ids) {
      return std::any_of(ids.begin(), ids.end(), [&](loop::BufferId id) {
        return std::any_of(program[id].shape.begin(), program[id].shape.end(),
                           [&](Expr size) { return sym::depends_on(size, symbol); });
      });
    };
    return in(program.inputs) || in(program.outputs) || in(program.states);
  }
  static std::string number(int64_t value) {
    return value == INT64_MIN ? "(-9223372036854775807l - 1)" : cat(value, "l");
  }

  void check(const std::string& condition, const std::string& sentence,
             const std::vector<std::string>& values) {
    out += check_text(condition, sentence, values, messages);
  }

  // Checks that the byte count of every tensor fits in 64 bits. Size arithmetic here and in the kernels
  // relies on it: no index within a tensor overflows.
  void sizes_fit() {
    constexpr int64_t kMost = int64_t{1} << 61;
    std::vector<Expr> sizes;
    for (const loop::Buffer& b : program.buffers) {
      Expr bytes = byte_size(b.dtype);
      for (const Expr& extent : b.shape) bytes = bytes * sym::max(extent, 1);
      const sym::Interval range = program.facts.bounds(bytes);
      if (!names.from_data(bytes) && !(range.has_hi() && range.hi < kMost) &&
          std::find(sizes.begin(), sizes.end(), bytes) == sizes.end())
        sizes.push_back(bytes);
    }
    out += cat("static int32_t sizes_fit", suffix,
               "(const int64_t* v) {\n  (void)v;\n  int32_t overflow = 0;\n  int64_t most = 0;\n");
    for (const Expr& bytes : sizes)
      out += cat("  most = sd_max(most, ", names.checked_text(bytes, program.facts), ");\n");
    out += cat("  return !overflow && most < ", kMost, ";\n}\n");
  }

  void bind() {
    sizes_fit();
    out +=
        cat("static int32_t bind", suffix,
            "(const int64_t* const* in, const void* const*, int64_t* v, stridec_abi_failure* failure) {\n");
    for (size_t i = 0; i < program.symbols.size(); ++i) {
      const loop::Symbol& s = program.symbols[i];
      if (loop::is_context_size(program, s.var)) continue;
      if (s.input < 0) {
        out += cat("  v[", i, "] = -1;\n");
        continue;
      }
      const std::string dim = cat("in[", s.input, "][", s.dim, "]"),
                        who = cat("input '", sym::escaped(program[program.inputs[s.input]].name), "': dim ",
                                  s.dim);
      if (s.multiple != 1)
        check(cat(dim, " % ", s.multiple, " == 0"), cat(who, " is {0}, not a multiple of {1}"),
              {dim, cat(s.multiple)});
      out += cat("  v[", i, "] = ", dim, s.multiple != 1 ? cat(" / ", s.multiple) : "", ";\n");
      const sym::Interval range = program.facts.bounds(s.var);
      const std::string given =
          cat(who, " (", sym::escaped(s.var.name()), s.multiple != 1 ? cat(", in units of ", s.multiple) : "",
              ") is {0}; this artifact serves ");
      const std::string v = cat("v[", i, "]");
      if (range.lo > 0 || range.has_hi())
        check(cat(v, " >= ", std::max<int64_t>(range.lo, 0),
                  range.has_hi() ? cat(" && ", v, " <= ", range.hi, "l") : ""),
              cat(given, range.has_hi() ? "{1}..{2}" : "{1} and more"),
              {v, cat(std::max<int64_t>(range.lo, 0)), range.has_hi() ? cat(range.hi, "l") : "0"});
      if (const int64_t divisor = program.facts.known_divisor(s.var); divisor > 1)
        check(cat(v, " % ", divisor, " == 0"), cat(given, "multiples of {1}"), {v, cat(divisor)});
    }
    check(cat("sizes_fit", suffix, "(v)"),
          "these input shapes make a tensor of more bytes than can be addressed", {});
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      const loop::Buffer& b = program[program.inputs[i]];
      for (size_t d = 0; d < b.shape.size(); ++d) {
        const bool defines =
            std::any_of(program.symbols.begin(), program.symbols.end(), [&](const loop::Symbol& s) {
              return s.input == static_cast<int>(i) && s.dim == static_cast<int>(d) &&
                     b.shape[d] == s.var * s.multiple && !loop::is_context_size(program, s.var);
            });
        if (defines) continue;
        const std::string dim = cat("in[", i, "][", d, "]");
        check(cat(dim, " == ", c(b.shape[d])),
              cat("input '", sym::escaped(b.name), "': dim ", d,
                  b.shape[d].is_const() ? "" : cat(" (", sym::escaped(sym::to_string(b.shape[d])), ")"),
                  of_context(b.shape[d]) ? " is {0}; the context was created for {1}"
                                         : " is {0}, expected {1}"),
              {dim, c(b.shape[d])});
      }
    }
    for (const sym::Guard& guard : program.guards) {
      if (names.from_data(guard.condition)) continue;
      std::vector<std::string> list;
      for (const Expr& e : guard.values) list.push_back(c(e));
      check(c(guard.condition), guard.sentence, list);
    }
    out += "  return 0;\n}\n";
  }

  bool of_context(Expr e) const {
    const auto symbols = sym::free_vars(e);
    return !symbols.empty() &&
           std::ranges::all_of(symbols, [&](Expr symbol) { return loop::is_context_size(program, symbol); });
  }

  // Of each symbol, its place among the sizes of the context.
  void context_sizes(const std::vector<Expr>& sizes) {
    std::string rows;
    for (const loop::Symbol& s : program.symbols) {
      const auto at = std::ranges::find(sizes, s.var) - sizes.begin();
      rows += cat(rows.empty() ? "" : ", ", loop::is_context_size(program, s.var) ? at : -1);
    }
    out += cat("static const int32_t context_sizes", suffix, "[] = {", rows, "};\n");
  }

  void output_dims() {
    out += cat("static void output_dims", suffix,
               "(const int64_t* v, int64_t* dims) {\n  (void)v; (void)dims;\n");
    size_t at = 0;
    for (loop::BufferId id : program.outputs)
      for (const Expr& e : program[id].shape) {
        const std::string unknown = names.unknown(e);
        out += cat("  dims[", at++, "] = ", unknown.empty() ? "" : cat(unknown, " ? -1 : "), c(e), ";\n");
      }
    out += "}\n";
  }
};

}  // namespace

std::string c_string(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char ch = static_cast<unsigned char>(text[i]);
    if (ch == '"' || ch == '\\') {
      out += '\\';
      out += static_cast<char>(ch);
    } else if (ch < 0x20 || ch >= 0x7f || ch == '?') {
      // Three octal digits, so that following characters cannot extend the escape.
      const char digits[] = {'\\', static_cast<char>('0' + (ch >> 6)), static_cast<char>('0' + (ch >> 3 & 7)),
                             static_cast<char>('0' + (ch & 7)), 0};
      out += digits;
    } else {
      out += static_cast<char>(ch);
    }
  }
  return out + '"';
}

// Dispatch functions of a variant with size-specialised programs: they select the first program whose
// condition holds.
// `number`: the suffix of the general program's names.
static std::string choice_text(const std::vector<HostVariant>& variants, size_t general, size_t end,
                               size_t number, const std::string& suffix) {
  const loop::Program& program = *variants[general].program;
  const HostNames names(program);
  auto function = [&](const std::string& type, const std::string& name, const std::string& parameter,
                      const std::string& argument) {
    std::string out = cat("static ", type, " ", name, "_", suffix, "(", parameter, ") {\n");
    if (argument == "run") out += "  const int64_t* const v = run->symbols;\n";
    for (size_t i = general + 1; i < end; ++i)
      out += cat("  if (", names.text(variants[i].when, program.facts), ") return ", name, "_v",
                 number + i - general, "(", argument, ");\n");
    return out + cat("  return ", name, "_v", number, "(", argument, ");\n}\n");
  };
  return function("int64_t", "workspace", "const int64_t* v, int64_t threads", "v, threads") +
         function("int32_t", "run", "stridec_abi_run* run", "run");
}

// run_<suffix> and workspace_<suffix> of a variant's derivation.
static std::string derivation_text(const HostVariant& variant, const std::string& suffix,
                                   HostMessages& messages, const loop::ModuleValues& states,
                                   const HostOptions& options, int& slot_count) {
  const HostVariant derivation{
      .name = variant.name, .program = variant.derivation, .launches = variant.derivation_launches};
  HostRun run(derivation, suffix, messages, states, options, 0);
  const std::string text = run.text();
  slot_count = std::max(slot_count, run.slot_count);
  return text;
}

// The same for the derivations of several programs of a variant, one after the other.
static std::string all_derivations_text(const std::vector<std::string>& suffixes, const std::string& suffix) {
  std::string run = cat("static int32_t run_", suffix, "(stridec_abi_run* run) {\n"),
              bytes = cat("static int64_t workspace_", suffix,
                          "(const int64_t* v, int64_t threads) {\n  int64_t bytes = 0;\n");
  for (const std::string& each : suffixes) {
    run += cat("  if (run_", each, "(run)) return 1;\n");
    bytes += cat("  bytes = sd_max(bytes, workspace_", each, "(v, threads));\n");
  }
  return run + "  return 0;\n}\n" + bytes + "  return bytes;\n}\n";
}

// A target of the module, as a general variant of any function states it.
static std::string target_row(const HostVariant& variant, const std::vector<DeviceTable>& tables,
                              int graphs) {
  std::string feature = "STRIDEC_CPU_";
  for (char ch : variant.name)
    feature += ch == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(ch)));
  const GpuTarget* gpu = variant.gpu;
  if (!gpu) return cat("  {", c_string(variant.name), ", ", feature, "},\n");
  const auto table = std::find_if(tables.begin(), tables.end(),
                                  [&](const DeviceTable& t) { return t.target == variant.name; });
  const size_t kernels = table == tables.end() ? 0 : table->rows.size();
  return cat("  {", c_string(variant.name), ", 0, STRIDEC_ABI_CUDA, ", gpu->capability, ", ",
             gpu->ptx     ? 2
             : gpu->exact ? 1
                          : 0,
             ", ", graphs, ", ", kernels, ", ", table == tables.end() ? 0 : table->copy, ", ",
             kernels == 0 ? "0" : cat("kernels_", table - tables.begin()), "},\n");
}

static std::string kernel_tables(const std::vector<DeviceTable>& tables) {
  std::string out;
  for (size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].rows.empty()) continue;
    out += cat("static const stridec_abi_device_kernel kernels_", t, "[] = {\n");
    for (const DeviceRow& row : tables[t].rows)
      out += cat("  {", c_string(row.symbol), ", ", row.threads, ", ", row.cluster, ", ",
                 row.dynamic_shared ? 1 : 0, ", ", row.dependent ? 1 : 0, "},\n");
    out += "};\n";
  }
  return out;
}

namespace {

// The module: what all functions share, and the rows of its tables.
struct HostModule {
  const std::vector<HostFunction>& functions;
  const HostOptions& options;
  loop::ModuleValues states = {};
  HostMessages messages = {};
  std::string out = {}, rows = {};
  std::vector<Expr> context_sizes = {};
  size_t variant = 0;  // over all functions: the suffix of its names

  void add(size_t number) {
    const HostFunction& variants = functions[number];
    STRIDEC_CHECK(!variants.empty());
    const loop::Program& program = *variants[0].program;
    const std::string suffix = number ? cat("_", number) : "";
    HostProgram host(program, messages, suffix);
    host.symbols();
    host.values("inputs", program.inputs);
    host.values("outputs", program.outputs);
    host.bind();
    host.output_dims();
    const bool sized = std::ranges::any_of(
        program.symbols, [&](const loop::Symbol& s) { return loop::is_context_size(program, s.var); });
    if (sized) host.context_sizes(context_sizes);
    out += host.out;
    int slots = 0;
    const std::string variant_rows = add_variants(variants, slots);
    out += cat("static const stridec_abi_variant variants", suffix, "[] = {\n", variant_rows, "};\n");
    const auto table = [&](bool present, const char* name) { return present ? cat(name, suffix) : "0"; };
    rows += cat("  {", c_string(program.name), ", ", program.symbols.size(), ", ", program.inputs.size(),
                ", ", program.outputs.size(), ", ", slots, ", ", table(!program.symbols.empty(), "symbols"),
                ", ", table(!program.inputs.empty(), "inputs"), ", ",
                table(!program.outputs.empty(), "outputs"), ", variants", suffix, ", bind", suffix,
                ", output_dims", suffix, ", ", table(sized, "context_sizes"), "},\n");
  }

  std::string add_variants(const HostFunction& variants, int& slots) {
    std::string out_rows;
    for (size_t i = 0; i < variants.size();) {
      const size_t general = i, first = variant;
      std::vector<std::string> names, derivations;
      do {
        HostRun run(variants[i], cat("v", variant), messages, states, options, names.size());
        out += run.text();
        slots = std::max(slots, run.slot_count);
        names.insert(names.end(), run.step_names.begin(), run.step_names.end());
        if (variants[i].derivation) {
          derivations.push_back(cat("d", variant));
          out += derivation_text(variants[i], derivations.back(), messages, states, options, slots);
        }
        ++variant;
      } while (++i < variants.size() && !variants[i].when.is_const(1));
      const std::string name = i - general == 1 ? cat("v", first) : cat("of_", first);
      if (i - general > 1) out += choice_text(variants, general, i, first, name);
      if (derivations.size() > 1) {
        out += all_derivations_text(derivations, cat("all_", first));
        derivations = {cat("all_", first)};
      }
      const bool gpu = variants[general].gpu;
      out_rows += cat(
          "  {workspace_", name, ", ", gpu ? cat("scratch_", name, ", counters_", name) : "0, 0", ", run_",
          name, ", ", names.size(), ", 0, ",
          c_string(join(names, "", [](const std::string& s) { return s + '\0'; })),
          derivations.empty() ? "" : cat(", run_", derivations[0], ", workspace_", derivations[0]), "},\n");
    }
    return out_rows;
  }
};

// A table of stridec_abi_state. `offsets`: where their initial values are in the weights, if they have some.
std::string stored_table(const std::string& table, const std::string& dims_name,
                         const loop::ModuleValues& values, const std::vector<Expr>& offsets) {
  if (values.all.empty()) return "";
  std::string dims, rows;
  for (size_t i = 0; i < values.all.size(); ++i) {
    const loop::Program& program = *values.all[i].program;
    const loop::Buffer& b = program[values.all[i].buffer];
    const HostNames names(program);
    const auto c = [&](Expr e) { return names.text(e, program.facts); };
    const bool fixed = std::ranges::all_of(b.shape, [](Expr e) { return e.is_const(); });
    if (fixed && !b.shape.empty())
      dims += cat("static const int64_t ", dims_name, "_", i, "[] = {", join(b.shape, ", ", c), "};\n");
    dims += HostProgram::value_tables(program, b, cat(dims_name, "_of_", i));
    rows += cat("  {", HostProgram::value(b, cat(dims_name, "_of_", i)), ", ",
                fixed && !b.shape.empty() ? cat(dims_name, "_", i) : "0", ", ",
                b.weight.size > 0 ? c(offsets[i]) : "-1", "},\n");
  }
  return cat(dims, "static const stridec_abi_state ", table, "[] = {\n", rows, "};\n");
}

std::string state_table(const loop::ModuleValues& states) {
  std::vector<Expr> offsets;
  for (const loop::ModuleValues::Value& state : states.all)
    offsets.push_back((*state.program)[state.buffer].offset);
  return stored_table("states", "state_dims", states, offsets);
}

// `declared`: the programs whose parameters have the model's types; `placed`: those of the same functions in
// which they have offsets.
std::string parameter_table(const loop::ModuleValues& parameters,
                            const std::vector<const loop::Program*>& declared,
                            const std::vector<const loop::Program*>& placed) {
  std::vector<Expr> offsets;
  for (const loop::ModuleValues::Value& parameter : parameters.all) {
    const auto function = std::find(declared.begin(), declared.end(), parameter.program) - declared.begin();
    const loop::Program& program = *placed[static_cast<size_t>(function)];
    offsets.push_back(program[program.parameters[parameter.place]].offset);
  }
  return stored_table("parameters", "parameter_dims", parameters, offsets);
}

std::string message_table(const HostMessages& messages) {
  if (messages.list.empty()) return "";
  std::string out = "static const stridec_abi_message messages[] = {\n";
  for (const auto& [kind, text] : messages.list)
    out += cat("  {", kind == HostMessages::kGuard ? "STRIDEC_ABI_GUARD" : "STRIDEC_ABI_DATA", ", ",
               c_string(text), "},\n");
  return out + "};\n";
}

}  // namespace

std::string host_text(const std::vector<HostFunction>& functions, const std::vector<DeviceTable>& tables,
                      const HostOptions& options) {
  STRIDEC_CHECK(!functions.empty() && !functions[0].empty());
  std::vector<const loop::Program*> programs;
  for (const HostFunction& function : functions) programs.push_back(function[0].program);
  HostModule module{.functions = functions, .options = options, .states = loop::module_states(programs)};
  const auto& declared = options.declared.empty() ? programs : options.declared;
  const loop::ModuleValues parameters = loop::module_parameters(declared);
  module.out = state_table(module.states) + parameter_table(parameters, declared, programs);
  const ContextText context = context_text(programs, module.states, module.messages);
  module.context_sizes = context.sizes;
  module.out += context.text;
  for (size_t f = 0; f < functions.size(); ++f) module.add(f);
  std::string targets;
  size_t target_count = 0;
  for (const HostVariant& variant : functions[0])
    if (variant.when.is_const(1)) targets += target_row(variant, tables, options.graphs), ++target_count;
  std::string metadata;
  for (const auto& [key, text] : options.metadata) metadata += key + '\0' + text + '\0';
  std::string out = line_comment(cat("The host program of '", programs[0]->name, "'."));
  out += "\n#define STRIDEC_ABI_FREESTANDING\n";
  out += abi_header();
  out += "\nextern \"C\" void* memcpy(void*, const void*, unsigned long);\n";
  out += sym::c_helpers();
  out += sym::checked_c_helpers();
  out += module.out;
  out += kernel_tables(tables);
  out += "static const stridec_abi_target targets[] = {\n" + targets + "};\n";
  out += "static const stridec_abi_function functions[] = {\n" + module.rows + "};\n";
  out += message_table(module.messages);
  if (!options.weights_file.empty())
    out += cat("static const stridec_abi_weights_file weights_file = {STRIDEC_ABI_WEIGHTS_MARK, ",
               options.weights_hash, "ul, ", c_string(options.weights_file), "};\n");
  out +=
      cat("extern \"C\" const stridec_abi_module stridec_module __attribute__((visibility(\"hidden\"))) = "
          "{\n  STRIDEC_ABI_VERSION, sizeof(stridec_abi_module), ",
          c_string(programs[0]->name), ", \"stridec " STRIDEC_VERSION "\",\n  ", functions.size(), ", ",
          target_count, ", ", module.states.all.size(), ", ", parameters.all.size(), ", ",
          module.messages.list.size(), ", ", options.spin_us, ", ", options.metadata.size(), ", 0, ",
          options.metadata.empty() ? "0" : c_string(metadata), ",\n  functions, targets, ",
          module.states.all.empty() ? "0" : "states", ", ", parameters.all.empty() ? "0" : "parameters", ", ",
          module.messages.list.empty() ? "0" : "messages", ",\n  ",
          options.weights_file.empty() ? "0" : "&weights_file", ", ", options.weights_bytes, "ul, ",
          programs[0]->replaceable_begin, "ul, ",
          module.messages.callbacks.empty()
              ? "0"
              : c_string(join(module.messages.callbacks, "", [](const std::string& s) { return s + '\0'; })),
          ", ", module.messages.callbacks.size(), ", ", context.sizes.size(),
          context.sizes.empty() ? ", 0, 0" : ", module_sizes, bind_context", "};\n");
  return out;
}

void lower_copies(loop::Program& program) {
  std::vector<loop::Step*> copies;
  loop::for_each_step(program.steps, [&](loop::Step& step) {
    if (std::holds_alternative<loop::Copy>(step.node)) copies.push_back(&step);
  });
  for (loop::Step* step : copies) {
    const loop::Copy copy = std::get<loop::Copy>(step->node);
    loop::NestBuilder builder(program, "copy " + program[copy.to].name);
    const std::vector<sym::Expr> at = builder.dims(program[copy.to].shape);
    builder.store(loop::whole(program, copy.to), at, builder.load(loop::whole(program, copy.from), at));
    loop::Steps launch;
    builder.finish(&launch);
    *step = launch[0];
  }
}

void declare_symbols(loop::Program& program) {
  auto declare = [&](sym::Expr var) {
    if (!var.is_var()) return;
    for (const loop::Symbol& s : program.symbols)
      if (s.var == var) return;
    program.symbols.push_back({.var = var});
  };
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* bind = std::get_if<loop::BindSymbol>(&step.node)) declare(bind->symbol);
    if (const auto* loop = std::get_if<loop::While>(&step.node)) {
      declare(loop->counter);
      declare(loop->iterations);
    }
  });
}

}  // namespace stridec::codegen
