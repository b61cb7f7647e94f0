#include "compiler/frontend/pt2/tree_spec.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/schema.h"
#include "compiler/frontend/pt2/json.h"

namespace stridec::pt2 {
namespace {

constexpr size_t kMostLeaves = 100'000;
constexpr int kDeepest = 64;

// Contexts are JSON in a string. Those of a class of the user's may be anything.
Json parsed_context(const Json& node) {
  const Json* context = optional_member(node, "context");
  if (!context || !context->is_string()) return nullptr;
  return Json::parse(context->get_ref<const std::string&>(), nullptr, /*allow_exceptions=*/false);
}

// The classes of operators with named results: torch.return_types.max, or torch.return_types.max_out.
constexpr std::string_view kReturnTypes = "torch.return_types.";

// The names that the schema of an operator gives its results.
Path result_names(std::string_view name, size_t count) {
  if (name.ends_with("_out")) name.remove_suffix(4);
  for (const aten::Schema* schema : aten::overloads("aten", name))
    if (schema->return_names.size() == count &&
        !std::count(schema->return_names.begin(), schema->return_names.end(), ""))
      return schema->return_names;
  return {};
}

// The names of a node's children, if its type or context gives them.
Path names_of(const Json& node, const std::string& type, size_t count,
              const std::map<std::string, Path>& fields) {
  if (type.starts_with(kReturnTypes)) return result_names(type.substr(kReturnTypes.size()), count);
  if (type == "collections.namedtuple") {
    const Json* context = optional_member(node, "context");
    if (context && context->is_string())
      if (const auto found = fields.find(context->get<std::string>()); found != fields.end())
        return found->second;
    return {};
  }
  if (type == "builtins.tuple" || type == "builtins.list") return {};
  // A list of keys, or a list whose first element is one.
  Json context = parsed_context(node);
  if (context.is_array() && !context.empty() && context[0].is_array()) {
    Json keys = context[0];
    context = std::move(keys);
  }
  Path out;
  if (context.is_array() && context.size() == count)
    for (const Json& key : context) out.push_back(key.is_string() ? key.get<std::string>() : key.dump());
  return out;
}

void walk(const Json& node, Path& path, const std::map<std::string, Path>& fields, std::vector<Path>& out) {
  if (path.size() > static_cast<size_t>(kDeepest)) malformed("a tree spec is nested too deeply");
  const Json* type = optional_member(node, "type");
  const Json& children = array_of(member(node, "children_spec"), "children_spec");
  if (!type) {
    if (out.size() >= kMostLeaves) malformed("a tree spec has too many leaves");
    out.push_back(path);
    return;
  }
  const Path names = names_of(node, string_of(*type, "type"), children.size(), fields);
  for (size_t i = 0; i < children.size(); ++i) {
    path.push_back(i < names.size() ? names[i] : std::to_string(i));
    walk(children[i], path, fields, out);
    path.pop_back();
  }
}

Json root_of(std::string_view spec) {
  Json json = parse_json(spec, "a tree spec");
  if (!json.is_array() || json.size() != 2) malformed("a tree spec is not a version and a tree");
  Json root = json[1];
  return root;
}

}  // namespace

std::vector<Path> leaf_paths(std::string_view spec, const std::map<std::string, Path>& fields) {
  std::vector<Path> out;
  Path path;
  walk(root_of(spec), path, fields, out);
  return out;
}

std::vector<Path> argument_paths(std::string_view spec, const Path& names,
                                 const std::map<std::string, Path>& fields) {
  std::vector<Path> out = leaf_paths(spec, fields);
  for (Path& path : out) {  // "0" and "1" are the positional and the keyword arguments
    if (path.size() < 2) malformed("a tree spec of arguments is not a tuple and a dict");
    const bool positional = path[0] == "0";
    path.erase(path.begin());
    if (!positional) continue;
    size_t at = 0;
    for (char c : path[0]) at = at * 10 + static_cast<size_t>(c - '0');
    if (at < names.size()) path[0] = names[at];
  }
  return out;
}

std::string joined(const Path& path) { return join(path, "."); }

}  // namespace stridec::pt2
