#include "compiler/frontend/onnx/read.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/external_data.h"
#include "compiler/frontend/onnx/inline_functions.h"
#include "compiler/frontend/onnx/node_list.h"
#include "compiler/frontend/onnx/proto.h"
#include "compiler/frontend/onnx/protobuf_wire.h"
#include "compiler/frontend/onnx/schema.h"
#include "compiler/frontend/onnx/sniff.h"
#include "compiler/frontend/onnx/validate.h"

namespace stridec::onnx {
namespace {

constexpr int64_t kNewestIrVersion = 14;

Model parse(const std::filesystem::path& path, const ReadOptions& options) {
  TensorSource source{
      .file = frontend::map_file(path),
      .folders =
          options.external_data.empty() ? DataFolders::of_model(path) : DataFolders(options.external_data),
      .zero_when_missing = options.missing_weights_are_zero,
  };
  if (source.file->bytes.empty()) fail(ErrorKind::kMalformed, "empty-file", "the file is empty");
  if (const FileLooks looks = sniff(source.file->bytes); !looks.what.empty())
    fail(ErrorKind::kMalformed, "not-a-model", "the file is not an ONNX model: it looks like " + looks.what,
         looks.help);
  Model model = parse_model(split_weights(source.file->bytes), source);
  for (const auto& [location, file] : source.external) model.external_files.push_back(file->path.string());
  if (model.ir_version < 3 && model.opsets.empty()) model.opsets[""] = 1;
  if (options.operators)
    std::erase_if(model.functions, [&](const Function& each) {
      return options.operators->has(cat(each.domain.empty() ? "ai.onnx" : each.domain, "::", each.name));
    });
  place_nodes(model);
  inline_functions(model);
  validate(model);
  return model;
}

void check_nodes(const Graph& g, std::vector<Diagnostic>& out) {
  for (const Node& n : g.nodes) {
    if (auto problem = check_node(n)) out.push_back(std::move(*problem));
    for (const Attribute& a : n.attributes)
      for (const Graph& inner : a.graphs) check_nodes(inner, out);
  }
}

}  // namespace

Model read_model(const std::filesystem::path& path, const ReadOptions& options) {
  try {
    Model model = parse(path, options);
    model.file = path.string();
    return model;
  } catch (Error& e) {
    e.diagnostic.where.file = path.string();
    throw;
  }
}

std::vector<Diagnostic> check_model(const Model& model) {
  std::vector<Diagnostic> out;
  if (model.ir_version > kNewestIrVersion)
    out.push_back({.kind = ErrorKind::kUnsupported,
                   .code = "unsupported-ir-version",
                   .message = cat("the model has IR version ", model.ir_version, "; this build reads up to ",
                                  kNewestIrVersion),
                   .help = "export it with an older onnx package, or use a newer stridec"});
  for (const auto& [domain, version] : model.opsets) {
    const int newest = newest_version(domain);
    if (newest > 0 && version > newest)
      out.push_back({.kind = ErrorKind::kUnsupported,
                     .code = "unsupported-opset",
                     .message = cat("the model uses version ", version, " of ",
                                    domain.empty() ? "ai.onnx" : domain, "; this build knows up to ", newest),
                     .help = "export it with an older opset, or use a newer stridec"});
  }
  check_nodes(model.graph, out);
  for (Diagnostic& d : out) d.where.file = model.file;
  return out;
}

}  // namespace stridec::onnx
