// ops, gradients, modes, options, passes, targets, exit-codes: prints what this build supports, from its own
// tables.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/output.h"
#include "cli/suggest.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/gpu_target.h"
#include "compiler/base/target.h"
#include "compiler/base/text.h"
#include "compiler/compile.h"
#include "compiler/extend/user_operator.h"
#include "compiler/frontend/import.h"
#include "compiler/frontend/pytorch_operators.h"
#include "compiler/ops/call.h"
#include "compiler/ops/op_table.h"
#include "compiler/passes/autocast.h"
#include "compiler/pipeline.h"
#include "compiler/train/losses.h"
#include "compiler/train/optimizers.h"

namespace stridec::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// The first row contains the column names.
int print(const Rows& rows, const Globals& globals) {
  if (!globals.json) {
    std::printf("%s", table(rows).c_str());
    return 0;
  }
  nlohmann::ordered_json json = nlohmann::json::array();
  for (size_t i = 1; i < rows.size(); ++i) {
    nlohmann::ordered_json row;
    for (size_t c = 0; c < rows[i].size(); ++c) row[rows[0][c]] = rows[i][c];
    json.push_back(std::move(row));
  }
  std::printf("%s\n", json.dump(2).c_str());
  return 0;
}

// Prints the operators as a documentation page.
int print_page(const Rows& rows) {
  size_t covered = 0;
  for (size_t i = 1; i < rows.size(); ++i) covered += !rows[i][1].empty();
  std::printf(
      "# Operators\n\n`stridec ops --format=md` writes this page: stridec %s compiles %zu of the %zu "
      "operators below. "
      "*Versions* are those of the operator's domain that are covered, `7-` for 7 and later. *Through*: a "
      "`row` of the "
      "importer's own tables, or the `function` that ONNX defines the operator by. *Types* are what ONNX "
      "allows at the "
      "newest version and this build has a dtype for (not complex numbers). Tensors have 256 dims at most "
      "and fewer than 2^47 bytes; docs/models.md says how tensors hold strings, sequences, optionals "
      "and maps. `stridec check` lists what in a model exceeds these limits.\n\n",
      STRIDEC_VERSION, covered, rows.size() - 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& cell : rows[i]) std::printf("| %s ", cell.c_str());
    std::printf(i == 0 ? "|\n|---|---|---|---|---|\n" : "|\n");
  }
  return 0;
}

// Prints the gradients as a documentation page.
int print_gradients_page(const Rows& rows) {
  std::printf(
      "# Gradients\n\n`stridec gradients --format=md` prints this page: how each primitive operation is "
      "differentiated. Composites (softmax, layer norm, attention, LSTM) are made of these and derive their "
      "gradients. *g* is the gradient of the result *y*; inputs have the names of "
      "compiler/graph/op_kind.def.\n\n");
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& cell : rows[i]) std::printf("| %s ", cell.c_str());
    std::printf(i == 0 ? "|\n|---|---|---|\n" : "|\n");
  }
  return 0;
}

// "T: f32 u8 i8 u16 i16 i32 i64 f16 f64 u32 u64 bf16" as "T: numbers": names for sets of types, so that a row
// fits a terminal. The types of a set that is there in part keep their names.
std::string brief_types(const std::string& types) {
  struct Set {
    const char* name;
    std::vector<std::string> types;
  };
  static const std::vector<Set> kSets = {
      {"floats", {"f16", "bf16", "f32", "f64"}},
      {"f8", {"f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"}},
      {"ints", {"i8", "i16", "i32", "i64"}},
      {"uints", {"u8", "u16", "u32", "u64"}},
      {"4-bit", {"i4", "u4"}},
      {"2-bit", {"i2", "u2"}},
  };
  std::istringstream words(types);
  std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
  std::string out;
  for (size_t at = 0; at < all.size();) {
    // One variable: "T:" and its types, up to the next variable. A ';' belongs to the last type.
    size_t end = at + 1;
    while (end < all.size() && !all[end].ends_with(':')) ++end;
    std::vector<std::string> group(all.begin() + static_cast<std::ptrdiff_t>(at),
                                   all.begin() + static_cast<std::ptrdiff_t>(end));
    std::string close;
    if (!group.back().empty() && (group.back().back() == ';' || group.back().back() == ','))
      close = group.back().substr(group.back().size() - 1), group.back().pop_back();
    for (const Set& set : kSets) {
      const bool whole = std::ranges::all_of(
          set.types, [&](const std::string& type) { return std::ranges::count(group, type) > 0; });
      if (!whole) continue;
      std::erase_if(group, [&](const std::string& word) { return std::ranges::count(set.types, word) > 0; });
      group.emplace_back(set.name);
    }
    out += cat(out.empty() ? "" : " ", join(group, " "), close);
    at = end;
  }
  return out;
}

int print_pytorch(const std::vector<std::string>& wanted, const Globals& globals) {
  Rows rows = {{"operator", "overloads", "limits"}};
  std::vector<std::string> names;
  for (const auto& info : frontend::pytorch_operators()) {
    names.push_back(info.name);
    if (!wanted.empty() && std::ranges::count(wanted, info.name) == 0) continue;
    if (wanted.empty() && info.versions.empty()) continue;
    rows.push_back({info.name, info.versions.empty() ? "not supported" : info.versions, info.limits});
  }
  for (const std::string& name : wanted)
    if (std::ranges::count(names, name) == 0)
      fail(ErrorKind::kUsage, "unknown-op", cat("PyTorch has no operator '", name, "'"),
           cat(did_you_mean(name, names), "'stridec ops --pytorch' lists those that are supported"));
  return print(rows, globals);
}

// A variadic tensor, the last two, is one that any number may be.
std::string shown(std::vector<extend::DeclaredTensor> tensors, bool variadic) {
  if (variadic) {
    tensors.pop_back();
    std::string& name = tensors.back().name;
    name = cat(name.substr(0, name.size() - 2), "@...");
  }
  return join(tensors, ", ", [](const extend::DeclaredTensor& each) {
    const std::string shape = join(each.shape, ", ", [](const extend::DeclaredDim& dim) {
      return dim.rest ? cat("...", dim.rest_name) : extend::to_string(dim.size);
    });
    return cat(each.name, ": ", each.type, each.has_shape ? cat("[", shape, "]") : "",
               each.otherwise ? cat(" = ", *each.otherwise) : "");
  });
}

std::string form_of(const extend::OperatorBody& body) {
  if (body.kernel && body.kernel->callback) return "callback";
  if (body.kernel)
    return cat("kernel (", body.kernel->c ? "C" : "", body.kernel->c && body.kernel->cuda ? ", " : "",
               body.kernel->cuda ? "CUDA" : "", ")");
  if (body.nest) return "nest";
  return body.point ? "point" : "formula";
}

std::string gradient_of(const extend::UserOperator& op) {
  if (!op.gradient.empty()) return "declared";
  return op.body.kernel ? "none" : "derived";
}

// The operators of files of --ops.
int print_declared(const std::vector<std::string>& files, const std::vector<std::string>& wanted,
                   const Globals& globals) {
  Rows rows = {{"operator", "body", "inputs", "outputs", "attributes", "gradient", "reference", "file"}};
  std::vector<std::string> names;
  for (const std::string& file : files)
    for (const extend::UserOperator& op : extend::read_operators(file).operators) {
      names.push_back(op.name);
      if (!wanted.empty() && std::ranges::count(wanted, op.name) == 0) continue;
      rows.push_back({op.name, form_of(op.body), shown(op.inputs, op.variadic && op.variadic->input),
                      shown(op.outputs, op.variadic && op.variadic->output),
                      join(op.attributes, ", ", [](const auto& each) { return each.name; }), gradient_of(op),
                      op.reference ? form_of(op.reference->body) : "none", file});
    }
  for (const std::string& name : wanted)
    if (std::ranges::count(names, name) == 0)
      fail(ErrorKind::kUsage, "unknown-op", cat("the files of --ops declare no operator '", name, "'"),
           did_you_mean(name, names));
  return print(rows, globals);
}

}  // namespace

std::function<int()> declare_ops(CLI::App& app, const Globals& globals) {
  auto wanted = std::make_shared<std::vector<std::string>>();
  auto pytorch = std::make_shared<bool>(false);
  app.add_option("operators", *wanted, "names of operators; without them, all");
  auto files = std::make_shared<std::vector<std::string>>();
  app.add_flag("--pytorch", *pytorch, "operators of PyTorch programs (.pt2) with their overloads");
  app.add_option("--ops", *files, "operators that a file of your own declares")->type_name("FILE");
  return [&globals, wanted, pytorch, files] {
    if (!files->empty()) return print_declared(*files, *wanted, globals);
    if (*pytorch) return print_pytorch(*wanted, globals);
    Rows rows = {{"operator", "versions", "through", "types", "limits"}};
    std::vector<std::string> names;
    for (const auto& info : frontend::operators()) {
      names.push_back(info.name);
      if (!wanted->empty() && std::ranges::count(*wanted, info.name) == 0) continue;
      rows.push_back({info.name, info.versions, info.through.empty() ? "not supported" : info.through,
                      globals.json || globals.markdown ? info.types : brief_types(info.types), info.limits});
    }
    for (const std::string& name : *wanted)
      if (std::ranges::count(names, name) == 0)
        fail(ErrorKind::kUsage, "unknown-op", cat("there is no operator '", name, "'"),
             cat(did_you_mean(name, names), "'stridec ops' lists them"));
    if (globals.markdown) return print_page(rows);
    return print(rows, globals);
  };
}

std::function<int()> declare_gradients(CLI::App& app, const Globals& globals) {
  auto wanted = std::make_shared<std::vector<std::string>>();
  app.add_option("operations", *wanted, "names of primitive operations; without them, all");
  return [&globals, wanted] {
    Rows rows = {{"operation", "gradient", "note"}};
    std::vector<std::string> names;
    const auto add = [&](std::string_view name, const ops::Gradient& gradient) {
      names.emplace_back(name);
      if (!wanted->empty() && std::ranges::count(*wanted, name) == 0) return;
      rows.push_back({names.back(), gradient.formula(), gradient.note()});
    };
    for (int kind = 0; kind < graph::kOpCount; ++kind) {
      const auto op = static_cast<graph::OpKind>(kind);
      add(graph::name(op), ops::op_def(op).gradient);
      if (op == graph::OpKind::kCall)
        for (const ops::CallDef& each : ops::call_defs()) add(each.routine, each.gradient);
    }
    for (const std::string& name : *wanted)
      if (std::ranges::count(names, name) == 0)
        fail(ErrorKind::kUsage, "unknown-op", cat("there is no operation '", name, "'"),
             cat(did_you_mean(name, names), "'stridec gradients' lists them"));
    return globals.markdown ? print_gradients_page(rows) : print(rows, globals);
  };
}

std::function<int()> declare_modes(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"mode", "meaning"}};
    for (const Mode& mode : modes()) rows.push_back({std::string(mode.name), std::string(mode.meaning)});
    return print(rows, globals);
  };
}

std::function<int()> declare_options(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"option", "values", "default", "meaning"}};
    for (const OptionInfo& o : options())
      rows.push_back(
          {std::string(o.name), std::string(o.values), std::string(o.initially), std::string(o.meaning)});
    return print(rows, globals);
  };
}

std::function<int()> declare_passes(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"pass", "stage", "option", "meaning"}};
    for (const Pass& pass : default_pipeline())
      rows.push_back({std::string(pass.name), std::string(pass.stage), std::string(pass.option),
                      std::string(pass.summary)});
    return print(rows, globals);
  };
}

std::function<int()> declare_precisions(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"operation"}};
    for (const passes::Precision& precision : passes::precisions()) rows[0].emplace_back(precision.name);
    for (int kind = 0; kind < graph::kOpCount; ++kind) {
      const auto op = static_cast<graph::OpKind>(kind);
      rows.push_back({std::string(graph::name(op))});
      for (const passes::Precision& precision : passes::precisions())
        rows.back().push_back(passes::computes_in(op, precision));
    }
    return print(rows, globals);
  };
}

std::function<int()> declare_targets(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"target", "kind", "here"}};
    for (const CpuTarget& target : cpu_targets())
      rows.push_back({target.name, "cpu", target.name == cpu_target("native").name ? "this machine" : ""});
    for (const GpuTarget& target : gpu_targets()) rows.push_back({target.name, "cuda", ""});
    return print(rows, globals);
  };
}

namespace {

// "lr=1e-3 weight_decay=0.01"; settings that have to be given without a value.
std::string settings_text(std::span<const train::Setting> settings) {
  std::string text;
  for (const train::Setting& setting : settings)
    text += cat(text.empty() ? "" : " ", setting.name, setting.standard.empty() ? "" : "=", setting.standard);
  return text;
}

}  // namespace

std::function<int()> declare_losses(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"loss", "settings", "formula"}};
    for (const train::Loss& loss : train::losses())
      rows.push_back({std::string(loss.name), settings_text(loss.settings), std::string(loss.formula)});
    return print(rows, globals);
  };
}

std::function<int()> declare_optimizers(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"optimizer", "settings", "formula"}};
    for (const train::Optimizer& optimizer : train::optimizers())
      rows.push_back(
          {std::string(optimizer.name), settings_text(optimizer.settings), std::string(optimizer.formula)});
    return print(rows, globals);
  };
}

std::function<int()> declare_exit_codes(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"code", "name", "meaning"}};
    for (const ExitCode& code : exit_codes())
      rows.push_back({std::to_string(code.code), std::string(code.name), std::string(code.meaning)});
    return print(rows, globals);
  };
}

}  // namespace stridec::cli
