#include "compiler/frontend/onnx/weight_editor.h"

#include <onnx/onnx-data.pb.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/proto.h"
#include "compiler/frontend/onnx/read.h"
#include "compiler/frontend/onnx/tensor_data.h"

namespace stridec::onnx {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::SparseTensorProto;
using ::onnx::TensorProto;

// Only initializers are moved to a file of external data, as ONNX's own writer does by default: not all
// readers look for attributes and parts of sparse tensors there.
enum class Role : uint8_t { kInitializer, kAttribute, kSparse };
using Visit = std::function<void(TensorProto&, Role)>;

void visit_tensors(GraphProto& graph, const Visit& visit);

void visit_tensors(SparseTensorProto& sparse, const Visit& visit) {
  visit(*sparse.mutable_values(), Role::kSparse);
  visit(*sparse.mutable_indices(), Role::kSparse);
}

void visit_tensors(NodeProto& node, const Visit& visit) {
  for (AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.has_t()) visit(*attribute.mutable_t(), Role::kAttribute);
    for (TensorProto& tensor : *attribute.mutable_tensors()) visit(tensor, Role::kAttribute);
    if (attribute.has_sparse_tensor()) visit_tensors(*attribute.mutable_sparse_tensor(), visit);
    for (auto& sparse : *attribute.mutable_sparse_tensors()) visit_tensors(sparse, visit);
    if (attribute.has_g()) visit_tensors(*attribute.mutable_g(), visit);
    for (GraphProto& graph : *attribute.mutable_graphs()) visit_tensors(graph, visit);
  }
}

// All tensors, those of nodes and subgraphs included.
void visit_tensors(GraphProto& graph, const Visit& visit) {
  for (TensorProto& tensor : *graph.mutable_initializer()) visit(tensor, Role::kInitializer);
  for (auto& sparse : *graph.mutable_sparse_initializer()) visit_tensors(sparse, visit);
  for (NodeProto& node : *graph.mutable_node()) visit_tensors(node, visit);
}

void visit_tensors(ModelProto& model, const Visit& visit) {
  visit_tensors(*model.mutable_graph(), visit);
  for (auto& function : *model.mutable_functions())
    for (NodeProto& node : *function.mutable_node()) visit_tensors(node, visit);
  for (auto& training : *model.mutable_training_info()) {
    if (training.has_initialization()) visit_tensors(*training.mutable_initialization(), visit);
    if (training.has_algorithm()) visit_tensors(*training.mutable_algorithm(), visit);
  }
}

bool is_external(const TensorProto& tensor) { return tensor.data_location() == TensorProto::EXTERNAL; }

bool is_constant(const NodeProto& node) {
  return node.op_type() == "Constant" && (node.domain().empty() || node.domain() == "ai.onnx") &&
         node.output_size() == 1 && node.attribute_size() == 1;
}

template <class Dims>
std::vector<int64_t> to_vector(const Dims& dims) {
  return {dims.begin(), dims.end()};
}

// The type of a Constant node's value; none: a string.
std::optional<WeightEditor::Weight> type_of(const AttributeProto& value) {
  const std::string& name = value.name();
  if (name == "value") return WeightEditor::Weight{value.t().data_type(), to_vector(value.t().dims())};
  if (name == "sparse_value")
    return WeightEditor::Weight{value.sparse_tensor().values().data_type(),
                                to_vector(value.sparse_tensor().dims())};
  if (name == "value_float") return WeightEditor::Weight{TensorProto::FLOAT, {}};
  if (name == "value_floats") return WeightEditor::Weight{TensorProto::FLOAT, {value.floats_size()}};
  if (name == "value_int") return WeightEditor::Weight{TensorProto::INT64, {}};
  if (name == "value_ints") return WeightEditor::Weight{TensorProto::INT64, {value.ints_size()}};
  return std::nullopt;
}

void clear_data(TensorProto& tensor) {
  tensor.clear_raw_data();
  tensor.clear_float_data();
  tensor.clear_double_data();
  tensor.clear_int32_data();
  tensor.clear_int64_data();
  tensor.clear_uint64_data();
  tensor.clear_external_data();
  tensor.clear_data_location();
}

// A file of external data under construction.
class DataFile {
 public:
  explicit DataFile(const std::filesystem::path& model)
      : path_(WeightEditor::data_path(model)), name_(std::filesystem::path(path_).filename().string()) {
    check_replaceable(path_);
  }

  void store(TensorProto& tensor, std::string_view bytes) {
    if (!file_) file_.emplace(path_);
    const uint64_t begin = (size_ + kPage - 1) / kPage * kPage;
    const std::string gap(begin - size_, '\0');
    file_->write(gap.data(), gap.size());
    file_->write(bytes.data(), bytes.size());
    size_ = begin + bytes.size();
    clear_data(tensor);
    tensor.set_data_location(TensorProto::EXTERNAL);
    const auto add = [&](const char* key, const std::string& value) {
      auto* entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("location", name_);
    add("offset", std::to_string(begin));
    add("length", std::to_string(bytes.size()));
  }

  // Its path; "": nothing was stored.
  std::string commit() {
    if (!file_) return "";
    file_->commit();
    return path_;
  }

 private:
  static constexpr uint64_t kPage = 4096;  // as ONNX recommends, so that readers can map a tensor

  std::string path_, name_;
  std::optional<UnfinishedFile> file_;
  uint64_t size_ = 0;
};

std::string_view view(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data), bytes.size}; }

}  // namespace

struct WeightEditor::File {
  TensorSource source;
  ModelProto model;
  std::unordered_map<std::string, TensorProto*> tensors;  // those that are dense already
  std::unordered_map<const TensorProto*, Bytes> replaced;

  // The tensor of this name, as a dense one.
  TensorProto& dense(const std::string& name, const Weight& weight) {
    if (const auto found = tensors.find(name); found != tensors.end()) return *found->second;
    TensorProto* made = nullptr;
    for (NodeProto& node : *model.mutable_graph()->mutable_node()) {
      if (!is_constant(node) || node.output(0) != name) continue;
      node.clear_attribute();
      AttributeProto* value = node.add_attribute();
      value->set_name("value");
      value->set_type(AttributeProto::TENSOR);
      made = value->mutable_t();
    }
    if (!made) {
      auto& sparse = *model.mutable_graph()->mutable_sparse_initializer();
      const auto at = std::find_if(sparse.begin(), sparse.end(),
                                   [&](const auto& each) { return each.values().name() == name; });
      STRIDEC_CHECK(at != sparse.end(), name);
      sparse.erase(at);
      made = model.mutable_graph()->add_initializer();
      made->set_name(name);
    }
    made->set_data_type(weight.elem_type);
    for (int64_t dim : weight.dims) made->add_dims(dim);
    return *(tensors[name] = made);
  }

  // Moves one tensor's data to where `place` says.
  void put(TensorProto& tensor, Role role, DataPlace place, DataFile& data) {
    if (role == Role::kSparse) place = DataPlace::kEmbedded;
    if (role == Role::kAttribute && place == DataPlace::kExternal) place = DataPlace::kAsBefore;
    const auto found = replaced.find(&tensor);
    const bool outside = place == DataPlace::kExternal ? tensor.data_type() != TensorProto::STRING
                                                       : place == DataPlace::kAsBefore && is_external(tensor);
    if (found == replaced.end() && !outside && !is_external(tensor)) return;
    const Bytes bytes = found == replaced.end() ? stored_data(tensor, source) : found->second;
    if (outside && (is_external(tensor) || bytes.size >= kSmallest)) return data.store(tensor, view(bytes));
    clear_data(tensor);
    tensor.set_raw_data(bytes.data, bytes.size);
  }

  static constexpr size_t kSmallest = 1024;  // smaller tensors stay in the model, as with ONNX's own writer
};

WeightEditor::WeightEditor(const std::filesystem::path& path) : file_(std::make_unique<File>()) {
  read_model(path);  // checks it
  file_->source = {.file = frontend::map_file(path), .folders = DataFolders::of_model(path)};
  const auto bytes = file_->source.file->bytes;
  if (bytes.size() > INT32_MAX || !file_->model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    throw Error({.kind = ErrorKind::kOverBudget,
                 .code = "model-too-large",
                 .message = "the file has 2 GB or more, which protobuf cannot write again",
                 .where = {.file = path.string()},
                 .help = "save the model with external data"});
  GraphProto& graph = *file_->model.mutable_graph();
  for (TensorProto& tensor : *graph.mutable_initializer()) {
    weights_[tensor.name()] = {tensor.data_type(), to_vector(tensor.dims())};
    file_->tensors[tensor.name()] = &tensor;
  }
  for (const auto& sparse : graph.sparse_initializer())
    weights_[sparse.values().name()] = {sparse.values().data_type(), to_vector(sparse.dims())};
  for (NodeProto& node : *graph.mutable_node()) {
    if (!is_constant(node)) continue;
    const auto type = type_of(node.attribute(0));
    if (type) weights_[node.output(0)] = *type;
    if (type && node.attribute(0).has_t())
      file_->tensors[node.output(0)] = node.mutable_attribute(0)->mutable_t();
  }
}

WeightEditor::~WeightEditor() = default;

Bytes WeightEditor::data(const std::string& name) {
  const auto found = file_->tensors.find(name);
  if (found == file_->tensors.end())
    fail(ErrorKind::kUnsupported, "sparse-weight",
         cat("weight '", name, "' is stored as a sparse tensor or a list"),
         "save the model with a dense one");
  return stored_data(*found->second, file_->source);
}

void WeightEditor::replace(const std::string& name, Bytes bytes) {
  const Weight& weight = weights_.at(name);
  const auto needed = stored_bytes(weight.elem_type, element_count(weight.dims).value_or(-1));
  STRIDEC_CHECK(needed == bytes.size, name);
  file_->replaced[&file_->dense(name, weight)] = std::move(bytes);
}

std::string WeightEditor::data_path(const std::filesystem::path& output) { return output.string() + ".data"; }

std::vector<std::string> WeightEditor::data_files() const {
  std::set<std::string> names;
  visit_tensors(file_->model, [&](TensorProto& tensor, Role) {
    if (!is_external(tensor)) return;
    for (const auto& entry : tensor.external_data())
      if (entry.key() == "location") names.insert(entry.value());
  });
  std::vector<std::string> paths;
  for (const std::string& name : names)
    for (const std::filesystem::path& folder : {file_->source.folders.given, file_->source.folders.real})
      paths.push_back((folder / name).string());
  return paths;
}

std::string WeightEditor::write(const std::filesystem::path& output, DataPlace place) {
  check_replaceable(output.string());
  DataFile data(output);
  uint64_t embedded = 0;
  visit_tensors(file_->model, [&](TensorProto& tensor, Role role) {
    file_->put(tensor, role, place, data);
    embedded += tensor.raw_data().size();
    if (embedded > INT32_MAX)
      fail(ErrorKind::kOverBudget, "model-too-large",
           cat("the weights take 2 GB or more, which a file of protobuf cannot hold"), "--weights external");
  });
  std::string text;
  if (!file_->model.SerializeToString(&text))
    fail(ErrorKind::kOverBudget, "model-too-large", "protobuf cannot write a model of 2 GB or more",
         "--weights external");
  UnfinishedFile file(output.string());
  file.write(text.data(), text.size());
  const std::string beside = data.commit();
  file.commit();
  return beside;
}

}  // namespace stridec::onnx
