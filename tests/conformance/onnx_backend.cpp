// The public ONNX backend suite, on the interpreter or on compiled code: every test is imported, run and
// compared as ONNX's own runner compares (dtype and shape exactly, numbers with rtol 1e-3 and atol 1e-7).
//
//   onnx_backend DATA [--engine interpreter|compiled] [--list] [--failures FILE] [--jobs N] [name...]
//
// DATA holds node/, simple/, light/, pytorch-*/. A test's file `tolerance` holds a relative and an
// absolute tolerance of its own. --list prints the tests that do not pass, with the reason;
// --failures writes them to a file, name and reason with a tab between. A test runs in a process of its own,
// so that a crash or endless loop is one failure. Inputs that an operator needs at compile time (axes,
// scales) are bound as constants in a second attempt; such passes are counted apart. The last line is "N
// passed, N failed".
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/compile.h"
#include "compiler/frontend/onnx/import.h"
#include "compiler/frontend/onnx/read.h"
#include "compiler/loop/interpret.h"

namespace fs = std::filesystem;
using namespace stridec;

namespace {

constexpr double kRelative = 1e-3, kAbsolute = 1e-7;
constexpr unsigned kSeconds = 120;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

onnx::Value read_value(const fs::path& path, const onnx::Type& type) {
  const std::string content = read_file(path);
  return onnx::parse_value({reinterpret_cast<const std::byte*>(content.data()), content.size()}, type);
}

// Strings as the artifact takes them: u8 [shape..., bytes], padded with zero bytes.
loop::HostTensor host_strings(const onnx::Tensor& t) {
  size_t width = 0;
  for (const std::string& s : t.strings) width = std::max(width, s.size());
  loop::HostTensor out{
      .dtype = DType::kU8, .shape = t.dims, .bytes = std::vector<uint8_t>(width * t.strings.size())};
  out.shape.push_back(static_cast<int64_t>(width));
  for (size_t i = 0; i < t.strings.size(); ++i)
    std::copy(t.strings[i].begin(), t.strings[i].end(),
              out.bytes.begin() + static_cast<ptrdiff_t>(i * width));
  return out;
}

loop::HostTensor host(const onnx::Tensor& t) {
  if (t.elem_type == onnx::kElemString) return host_strings(t);
  const auto type = t.dtype();
  if (!type) fail(ErrorKind::kUnsupported, "unsupported-dtype", onnx::elem_type_name(t.elem_type) + " data");
  loop::HostTensor out{.dtype = *type, .shape = t.dims, .bytes = std::vector<uint8_t>(t.bytes.size)};
  if (t.bytes.size) std::memcpy(out.bytes.data(), t.bytes.data, t.bytes.size);
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return "[" + join(shape, ",", [](int64_t d) { return std::to_string(d); }) + "]";
}

// Empty: equal within the tolerance.
std::string difference(const loop::HostTensor& got, const loop::HostTensor& want, double relative,
                       double absolute) {
  if (got.dtype != want.dtype) return cat("dtype ", name(got.dtype), ", expected ", name(want.dtype));
  if (got.shape != want.shape)
    return cat("shape ", shape_text(got.shape), ", expected ", shape_text(want.shape));
  for (int64_t i = 0; i < loop::element_count(want); ++i) {
    const double a = loop::get_number(got, i), b = loop::get_number(want, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!(std::fabs(a - b) <= absolute + relative * std::fabs(b)))
      return cat("element ", i, " is ", a, ", expected ", b);
  }
  return {};
}

std::string string_difference(loop::HostTensor got, const onnx::Tensor& want) {
  if (got.dtype != DType::kU8 || got.shape.empty())
    return cat("dtype ", name(got.dtype), ", expected strings");
  const auto width = static_cast<size_t>(got.shape.back());
  got.shape.pop_back();
  if (got.shape != want.dims)
    return cat("shape ", shape_text(got.shape), ", expected ", shape_text(want.dims));
  for (size_t i = 0; i < want.strings.size(); ++i) {
    std::string text(got.bytes.begin() + static_cast<ptrdiff_t>(i * width),
                     got.bytes.begin() + static_cast<ptrdiff_t>((i + 1) * width));
    text.resize(std::min(text.find('\0'), text.size()));
    if (text != want.strings[i])
      return cat("element ", i, " is '", text, "', expected '", want.strings[i], "'");
  }
  return {};
}

struct Test {
  std::string name;
  fs::path model;
  std::vector<fs::path> data_sets;  // none: a light model
  fs::path light_output;
  double relative = kRelative, absolute = kAbsolute;
};

struct Data {
  std::vector<onnx::Value> inputs, outputs;  // of the model, in its order
};

Data load(const Test& test, const fs::path& folder, const onnx::Model& model) {
  Data out;
  if (!test.light_output.empty()) {
    const auto& shape = *model.graph.inputs.at(0).type.shape;
    onnx::Tensor x{.name = "", .elem_type = 1, .dims = {}, .bytes = {}, .strings = {}};
    int64_t n = 1;
    for (const onnx::Dim& d : shape) {
      x.dims.push_back(d.value.value_or(1));
      n *= x.dims.back();
    }
    auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      (*values)[static_cast<size_t>(i)] = static_cast<float>(static_cast<double>(i) / static_cast<double>(n));
    x.bytes = {values, reinterpret_cast<const std::byte*>(values->data()), values->size() * 4};
    out.inputs.push_back({.tensors = {std::move(x)}});
    out.outputs.push_back(read_value(test.light_output, model.graph.outputs.at(0).type));
    return out;
  }
  for (size_t i = 0; fs::exists(folder / cat("input_", i, ".pb")); ++i)
    out.inputs.push_back(read_value(folder / cat("input_", i, ".pb"), model.graph.inputs.at(i).type));
  for (size_t i = 0; fs::exists(folder / cat("output_", i, ".pb")); ++i)
    out.outputs.push_back(read_value(folder / cat("output_", i, ".pb"), model.graph.outputs.at(i).type));
  return out;
}

std::string summary(const Diagnostic& d) {
  return cat(d.message, d.where.op.empty() ? "" : cat(" (", d.where.op, ")"));
}

// The reason of failure, or empty.
std::string attempt(const Test& test, const onnx::Model& model, const Data& data,
                    const onnx::ImportOptions& options, bool compiled) {
  onnx::Imported imported = onnx::import_model(model, options);
  if (!imported.problems.empty()) return "import: " + summary(imported.problems[0]);
  const std::vector<std::string> input_names = imported.graph.input_names;
  const CompileOptions flags{.passes = {.verify_each = true}};
  const Compilation made =
      compile(std::move(imported.graph), flags, compiled ? Stage::kSchedule : Stage::kLoops);
  std::vector<loop::HostTensor> inputs;
  for (const std::string& name : input_names)
    for (size_t i = 0; i < model.graph.inputs.size(); ++i) {
      const auto& tensors = data.inputs.at(i).tensors;
      const bool sequence = model.graph.inputs[i].type.kind != onnx::Type::Kind::kTensor;
      for (size_t k = 0; k < tensors.size(); ++k)
        if (name == (model.graph.inputs[i].name) ||
            (sequence && name == cat(model.graph.inputs[i].name, "[", k, "]")))
          inputs.push_back(host(tensors[k]));
    }
  const auto outputs = compiled ? codegen::cpu::run_compiled(made.variants.front().program, inputs)
                                : loop::interpret(made.loops, inputs, {.poison = true});
  std::vector<onnx::Tensor> wanted;
  for (const onnx::Value& v : data.outputs) wanted.insert(wanted.end(), v.tensors.begin(), v.tensors.end());
  if (outputs.size() != wanted.size()) return cat(outputs.size(), " outputs, expected ", wanted.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string why = wanted[i].elem_type == onnx::kElemString
                                ? string_difference(outputs[i], wanted[i])
                                : difference(outputs[i], host(wanted[i]), test.relative, test.absolute);
    if (!why.empty()) return cat("output ", i, ": ", why);
  }
  return {};
}

// What sequences and optionals hold is said at compile time.
onnx::ImportOptions with_items(const onnx::Model& model, const Data& data) {
  onnx::ImportOptions options;
  for (size_t i = 0; i < std::min(model.graph.inputs.size(), data.inputs.size()); ++i) {
    const onnx::ValueInfo& input = model.graph.inputs[i];
    if (input.type.kind == onnx::Type::Kind::kTensor) continue;
    onnx::InputItems& items = options.items[input.name];
    items.present = data.inputs[i].present;
    for (const onnx::Tensor& t : data.inputs[i].tensors) {
      items.shapes.emplace_back().emplace();
      for (int64_t d : t.dims) items.shapes.back()->push_back({.value = d, .param = ""});
    }
  }
  return options;
}

// Inputs small enough to be parameters rather than data: axes, sizes, scales, regions, flags.
bool bind_constants(const onnx::Model& model, const Data& data, onnx::ImportOptions& options) {
  for (size_t i = 0; i < std::min(model.graph.inputs.size(), data.inputs.size()); ++i) {
    const auto& input = model.graph.inputs[i];
    if (input.type.kind != onnx::Type::Kind::kTensor) continue;
    const onnx::Tensor& t = data.inputs[i].tensors.at(0);
    const bool parameter = i > 0 || (t.dims.empty() && !is_float(t.dtype().value_or(DType::kF32)));
    if (parameter && t.dtype() && t.count() <= 16) options.constants[input.name] = t;
  }
  return !options.constants.empty();
}

// "pass", "constants" (passes with inputs bound), or the reason.
std::string run(const Test& test, bool compiled) {
  try {
    const onnx::Model model = onnx::read_model(test.model);
    bool bound = false;
    std::vector<fs::path> folders = test.data_sets;
    if (folders.empty()) folders.emplace_back();
    for (const fs::path& folder : folders) {
      const Data data = load(test, folder, model);
      if (data.inputs.size() < model.graph.inputs.size()) return "test data of another type than tensors";
      std::string why;
      try {
        why = attempt(test, model, data, with_items(model, data), compiled);
      } catch (const Error& e) {
        why = summary(e.diagnostic);
      }
      if (why.empty()) continue;
      onnx::ImportOptions options = with_items(model, data);
      if (!bind_constants(model, data, options)) return why;
      std::string again;
      try {
        again = attempt(test, model, data, options, compiled);
      } catch (const Error& e) {
        again = summary(e.diagnostic);
      }
      if (!again.empty()) return again == why ? why : again + "; without constants: " + why;
      bound = true;
    }
    return bound ? "constants" : "pass";
  } catch (const Error& e) {
    return summary(e.diagnostic);
  } catch (const std::exception& e) {
    return cat("exception: ", e.what());
  }
}

// A test in a process of its own.
struct Child {
  size_t test;
  pid_t pid;
  int from;
  std::string said;
};

Child start(const std::vector<Test>& tests, size_t index, bool compiled) {
  int ends[2];
  if (pipe(ends) != 0) fail(ErrorKind::kInternal, "pipe", "there are no more pipes");
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    alarm(kSeconds);
    const std::string result = run(tests[index], compiled);
    [[maybe_unused]] const auto written = write(ends[1], result.data(), result.size());
    _exit(0);
  }
  close(ends[1]);
  return {.test = index, .pid = pid, .from = ends[0], .said = {}};
}

// Reads what the child has to say; its result once it has ended.
std::optional<std::string> listen(Child& child) {
  char buffer[4096];
  const ssize_t n = read(child.from, buffer, sizeof(buffer));
  if (n > 0) {
    child.said.append(buffer, static_cast<size_t>(n));
    return std::nullopt;
  }
  close(child.from);
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGALRM ? cat("more than ", kSeconds, " s") : cat("signal ", WTERMSIG(status));
  return child.said.empty() ? "no result" : child.said;
}

// One result a test.
std::vector<std::string> run_all(const std::vector<Test>& tests, bool compiled, size_t jobs) {
  std::vector<std::string> results(tests.size());
  std::vector<Child> children;
  size_t next = 0;
  while (next < tests.size() || !children.empty()) {
    while (children.size() < jobs && next < tests.size()) children.push_back(start(tests, next++, compiled));
    std::vector<pollfd> waiting;
    for (const Child& child : children) waiting.push_back({.fd = child.from, .events = POLLIN, .revents = 0});
    poll(waiting.data(), waiting.size(), -1);
    for (size_t i = children.size(); i-- > 0;) {
      if (!waiting[i].revents) continue;
      if (auto result = listen(children[i])) {
        results[children[i].test] = std::move(*result);
        children.erase(children.begin() + static_cast<ptrdiff_t>(i));
      }
    }
  }
  return results;
}

std::vector<Test> find_tests(const fs::path& data) {
  std::vector<Test> out;
  for (const char* family : {"node", "simple", "pytorch-converted", "pytorch-operator"}) {
    if (!fs::exists(data / family)) continue;
    for (const auto& entry : fs::directory_iterator(data / family)) {
      if (!fs::exists(entry.path() / "model.onnx")) continue;
      Test test{.name = cat(family, "/", entry.path().filename().string()),
                .model = entry.path() / "model.onnx",
                .data_sets = {},
                .light_output = {}};
      if (std::ifstream tolerance(entry.path() / "tolerance"); tolerance)
        tolerance >> test.relative >> test.absolute;
      for (const auto& set : fs::directory_iterator(entry.path()))
        if (set.is_directory()) test.data_sets.push_back(set.path());
      out.push_back(std::move(test));
    }
  }
  if (fs::exists(data / "light"))
    for (const auto& entry : fs::directory_iterator(data / "light")) {
      if (entry.path().extension() != ".onnx") continue;
      const std::string stem = entry.path().stem().string();
      out.push_back({.name = "real/" + stem,
                     .model = entry.path(),
                     .data_sets = {},
                     .light_output = data / "light" / (stem + "_output_0.pb"),
                     .relative = stem == "light_densenet121" ? 2e-3 : kRelative});
    }
  std::sort(out.begin(), out.end(), [](const Test& a, const Test& b) { return a.name < b.name; });
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names;
  bool list = false, compiled = false;
  size_t jobs = 1;
  fs::path data, failures;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const std::string next = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "--list")
      list = true;
    else if (arg == "--engine")
      compiled = next == "compiled", ++i;
    else if (arg == "--failures")
      failures = next, ++i;
    else if (arg == "--jobs")
      jobs = std::max<size_t>(1, std::stoul(next)), ++i;
    else if (data.empty())
      data = arg;
    else
      names.push_back(arg);
  }
  if (data.empty() || !fs::exists(data)) {
    std::cerr
        << "usage: onnx_backend DATA [--engine interpreter|compiled] [--list] [--failures FILE] [--jobs N] "
           "[name...]\n";
    return 2;
  }
  std::vector<Test> tests = find_tests(data);
  if (!names.empty())
    std::erase_if(tests, [&](const Test& test) {
      return std::none_of(names.begin(), names.end(),
                          [&](const std::string& n) { return test.name.find(n) != std::string::npos; });
    });
  const std::vector<std::string> results = run_all(tests, compiled, jobs);
  int passed = 0, bound = 0;
  std::ofstream file;
  if (!failures.empty()) file.open(failures);
  for (size_t i = 0; i < tests.size(); ++i) {
    const bool ok = results[i] == "pass" || results[i] == "constants";
    passed += ok;
    bound += results[i] == "constants";
    if (ok) continue;
    std::string line = results[i];
    std::replace(line.begin(), line.end(), '\n', ' ');
    if (list) std::cout << tests[i].name << ": " << line << "\n";
    file << tests[i].name << "\t" << line << "\n";
  }
  const int failed = static_cast<int>(tests.size()) - passed;
  if (bound) std::cout << bound << " of them with inputs bound as constants\n";
  std::cout << passed << " passed, " << failed << " failed\n";
  return failed ? 1 : 0;
}
