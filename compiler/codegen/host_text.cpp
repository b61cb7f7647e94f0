#include "compiler/codegen/host.h"

#include <algorithm>
#include <functional>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/embedded.h"
#include "compiler/codegen/host_run.h"
#include "compiler/loop/build.h"
#include "compiler/loop/walk.h"
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

// The parts that all variants share: tables, bind, output_dims.
struct HostProgram {
  const loop::Program& program;
  HostNames names;
  HostMessages messages;
  std::string out;

  explicit HostProgram(const loop::Program& p) : program(p), names(p) {}

  std::string c(Expr e) const { return names.text(e, program.facts); }

  void values(const char* table, const std::vector<loop::BufferId>& ids) {
    if (ids.empty()) return;
    out += cat("static const stridec_abi_value ", table, "[] = {\n");
    for (loop::BufferId id : ids) out += cat("  ", value(program[id]), ",\n");
    out += "};\n";
  }
  std::string value(const loop::Buffer& b) const {
    return cat("{", c_string(b.name), ", ", info(b.dtype).onnx_type, ", ", b.shape.size(), ", 0, 0, ",
               b.shape.empty() ? "0" : c_string(dims_text(b.shape)), "}");
  }

  void symbols() {
    if (program.symbols.empty()) return;
    out += "static const stridec_abi_symbol symbols[] = {\n";
    for (const loop::Symbol& s : program.symbols) {
      const sym::Interval range = program.facts.bounds(s.var);
      const int64_t lo = std::max<int64_t>(range.lo, 0);
      out +=
          cat("  {", c_string(s.var.name()), ", ", lo, ", ", number(range.hi), ", ",
              std::max<int64_t>(program.facts.known_divisor(s.var), 1), ", ", s.input < 0 ? 1 : 0, ", 0},\n");
    }
    out += "};\n";
  }
  static std::string number(int64_t value) {
    return value == INT64_MIN ? "(-9223372036854775807l - 1)" : cat(value, "l");
  }

  // A table of states or parameters. `declared` has the model's types, this program the offsets of the
  // values.
  void stored(const std::string& table, const std::string& dims, const loop::Program& declared,
              const std::vector<loop::BufferId>& ids, const std::vector<loop::BufferId>& placed) {
    if (ids.empty()) return;
    std::string shapes, rows;
    for (size_t i = 0; i < ids.size(); ++i) {
      const loop::Buffer& b = declared[ids[i]];
      const std::string shape = b.shape.empty() ? "0" : cat(dims, "_", i);
      if (!b.shape.empty())
        shapes += cat("static const int64_t ", shape, "[] = {",
                      join(b.shape, ", ", [&](Expr e) { return c(e); }), "};\n");
      rows += cat("  {", value(b), ", ", shape, ", ", b.weight.size > 0 ? c(program[placed[i]].offset) : "-1",
                  "},\n");
    }
    out += shapes + cat("static const stridec_abi_state ", table, "[] = {\n", rows, "};\n");
  }

  void check(const std::string& condition, const std::string& sentence,
             const std::vector<std::string>& values) {
    std::string list;
    for (size_t i = 0; i < 4; ++i) list += cat(", ", i < values.size() ? values[i] : "0");
    out += cat("  if (!(", condition, ")) { stridec_abi_record(failure, ",
               messages.number(HostMessages::kGuard, sentence), list, "); return 1; }\n");
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
    out +=
        "static int32_t sizes_fit(const int64_t* v) {\n  (void)v;\n  int32_t overflow = 0;\n  int64_t most = "
        "0;\n";
    for (const Expr& bytes : sizes)
      out += cat("  most = sd_max(most, ", names.checked_text(bytes, program.facts), ");\n");
    out += cat("  return !overflow && most < ", kMost, ";\n}\n");
  }

  void bind() {
    sizes_fit();
    out +=
        "static int32_t bind(const int64_t* const* in, const void* const*, int64_t* v, stridec_abi_failure* "
        "failure) {\n";
    for (size_t i = 0; i < program.symbols.size(); ++i) {
      const loop::Symbol& s = program.symbols[i];
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
    check("sizes_fit(v)", "these input shapes make a tensor of more bytes than can be addressed", {});
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      const loop::Buffer& b = program[program.inputs[i]];
      for (size_t d = 0; d < b.shape.size(); ++d) {
        const bool defines =
            std::any_of(program.symbols.begin(), program.symbols.end(), [&](const loop::Symbol& s) {
              return s.input == static_cast<int>(i) && s.dim == static_cast<int>(d) &&
                     b.shape[d] == s.var * s.multiple;
            });
        if (defines) continue;
        const std::string dim = cat("in[", i, "][", d, "]");
        check(cat(dim, " == ", c(b.shape[d])),
              cat("input '", sym::escaped(b.name), "': dim ", d,
                  b.shape[d].is_const() ? "" : cat(" (", sym::escaped(sym::to_string(b.shape[d])), ")"),
                  " is {0}, expected {1}"),
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

  void output_dims() {
    out += "static void output_dims(const int64_t* v, int64_t* dims) {\n  (void)v; (void)dims;\n";
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
static std::string choice_text(const std::vector<HostVariant>& variants, size_t general, size_t end,
                               const std::string& suffix) {
  const loop::Program& program = *variants[general].program;
  const HostNames names(program);
  auto function = [&](const std::string& type, const std::string& name, const std::string& parameter,
                      const std::string& argument) {
    std::string out = cat("static ", type, " ", name, "_", suffix, "(", parameter, ") {\n");
    if (argument == "run") out += "  const int64_t* const v = run->symbols;\n";
    for (size_t i = general + 1; i < end; ++i)
      out += cat("  if (", names.text(variants[i].when, program.facts), ") return ", name, "_v", i, "(",
                 argument, ");\n");
    return out + cat("  return ", name, "_v", general, "(", argument, ");\n}\n");
  };
  return function("int64_t", "workspace", "const int64_t* v, int64_t threads", "v, threads") +
         function("int32_t", "run", "stridec_abi_run* run", "run");
}

// run_<suffix> and workspace_<suffix> of a variant's derivation.
static std::string derivation_text(const HostVariant& variant, const std::string& suffix,
                                   HostMessages& messages, const HostOptions& options, int& slot_count) {
  const HostVariant derivation{
      .name = variant.name, .program = variant.derivation, .launches = variant.derivation_launches};
  HostRun run(derivation, suffix, messages, options, 0);
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

std::string host_text(const std::vector<HostVariant>& variants, const HostOptions& options) {
  STRIDEC_CHECK(!variants.empty());
  const loop::Program& program = *variants[0].program;
  HostProgram host(program);
  host.symbols();
  host.values("inputs", program.inputs);
  host.values("outputs", program.outputs);
  const loop::Program& declared = options.declared ? *options.declared : program;
  host.stored("states", "state_dims", program, program.states, program.states);
  host.stored("parameters", "parameter_dims", declared, declared.parameters, program.parameters);
  host.bind();
  host.output_dims();
  std::string rows;
  int slot_count = 0, row_count = 0;
  for (size_t i = 0; i < variants.size(); ++row_count) {
    const size_t general = i;
    std::vector<std::string> names;
    std::vector<std::string> derivations;
    do {
      HostRun run(variants[i], cat("v", i), host.messages, options, names.size());
      host.out += run.text();
      slot_count = std::max(slot_count, run.slot_count);
      names.insert(names.end(), run.step_names.begin(), run.step_names.end());
      if (!variants[i].derivation) continue;
      derivations.push_back(cat("d", i));
      host.out += derivation_text(variants[i], derivations.back(), host.messages, options, slot_count);
    } while (++i < variants.size() && !variants[i].when.is_const(1));
    const std::string suffix = i - general == 1 ? cat("v", general) : cat("of_", general);
    if (i - general > 1) host.out += choice_text(variants, general, i, suffix);
    std::string feature = "STRIDEC_CPU_", device;
    for (char ch : variants[general].name)
      feature += ch == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(ch)));
    if (const GpuTarget* gpu = variants[general].gpu) {
      feature = "0";
      device = cat(", STRIDEC_ABI_CUDA, ", gpu->capability, ", ",
                   gpu->ptx     ? 2
                   : gpu->exact ? 1
                                : 0,
                   ", ", variants[general].rows.size(), ", ",
                   variants[general].rows.empty() ? "0" : cat("kernels_v", general));
    }
    if (derivations.size() > 1) {
      host.out += all_derivations_text(derivations, cat("all_", general));
      derivations = {cat("all_", general)};
    }
    if (variants[general].gpu == nullptr && !derivations.empty()) device = ", STRIDEC_ABI_CPU, 0, 0, 0, 0";
    if (!derivations.empty()) device += cat(", run_", derivations[0], ", workspace_", derivations[0]);
    rows += cat("  {", c_string(variants[general].name), ", ", feature, ", workspace_", suffix, ", ",
                variants[general].gpu ? cat("scratch_", suffix, ", counters_", suffix) : "0, 0", ", run_",
                suffix, ", ", names.size(), ", ", variants[general].gpu ? options.graphs : 0, ", ",
                c_string(join(names, "", [](const std::string& s) { return s + '\0'; })), device, "},\n");
  }
  std::string out =
      "// The host program of '" + std::string(program.name) + "'.\n#define STRIDEC_ABI_FREESTANDING\n";
  out += abi_header();
  out += "\nextern \"C\" void* memcpy(void*, const void*, unsigned long);\n";
  out += sym::c_helpers();
  out += sym::checked_c_helpers();
  out += host.out;
  out += "static const stridec_abi_variant variants[] = {\n" + rows + "};\n";
  if (!host.messages.list.empty()) {
    out += "static const stridec_abi_message messages[] = {\n";
    for (const auto& [kind, text] : host.messages.list)
      out += cat("  {", kind == HostMessages::kGuard ? "STRIDEC_ABI_GUARD" : "STRIDEC_ABI_DATA", ", ",
                 c_string(text), "},\n");
    out += "};\n";
  }
  auto table = [](bool present, const char* name) { return present ? name : "0"; };
  out +=
      cat("extern \"C\" const stridec_abi_program stridec_program __attribute__((visibility(\"hidden\"))) = "
          "{\n  STRIDEC_ABI_VERSION, "
          "sizeof(stridec_abi_program), ",
          c_string(program.name), ", \"stridec " STRIDEC_VERSION "\",\n  ", program.symbols.size(), ", ",
          program.inputs.size(), ", ", program.outputs.size(), ", ", program.states.size(), ", ",
          program.parameters.size(), ", ", host.messages.list.size(), ", ", slot_count, ", ", row_count, ", ",
          options.spin_us, ",\n  ", table(!program.symbols.empty(), "symbols"), ", ",
          table(!program.inputs.empty(), "inputs"), ", ", table(!program.outputs.empty(), "outputs"), ", ",
          table(!program.states.empty(), "states"), ", ", table(!program.parameters.empty(), "parameters"),
          ", ", table(!host.messages.list.empty(), "messages"), ", variants,\n  bind, output_dims, ",
          options.weights_file.empty() ? "0" : c_string(options.weights_file), ", ", options.weights_bytes,
          "ul, ", options.weights_hash, "ul, ", program.replaceable_begin, "ul};\n");
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
