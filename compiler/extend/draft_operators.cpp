// Drafts a file of operators from the calls that a model has.
#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "compiler/base/text.h"
#include "compiler/extend/user_operator.h"
#include "compiler/sym/text.h"

namespace stridec::extend {
namespace {

using Json = nlohmann::ordered_json;
using graph::UnknownCall;

// Names for sizes: what is equal in all calls of an operator has one name, that of the model if it has one.
class DimNames {
 public:
  std::string name(const std::vector<sym::Expr>& sizes) {
    std::string key;
    for (const sym::Expr size : sizes) key += cat(sym::to_string(size), ";");
    auto [found, fresh] = names_.emplace(key, "");
    if (fresh) found->second = fresh_name(sizes);
    return found->second;
  }

 private:
  std::string fresh_name(const std::vector<sym::Expr>& sizes) {
    const bool one = std::ranges::all_of(sizes, [&](sym::Expr size) { return size == sizes[0]; });
    if (one && sizes[0].is_var()) {
      std::string name;
      for (const char c : std::string(sizes[0].name()))
        name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      if (!name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) && !is_word(name)) return name;
    }
    return cat("d", ++count_);
  }

  std::map<std::string, std::string> names_;
  int count_ = 0;
};

// What the calls have at one place.
using Types = std::vector<std::optional<graph::Type>>;

std::string type_name(const Types& types) {
  std::string out;
  for (const auto& type : types) {
    if (!type) continue;
    const std::string own(stridec::name(type->dtype));
    if (!out.empty() && out != own) return "number";
    out = own;
  }
  return out.empty() ? "any" : out;
}

void add_tensor(Json& list, const std::string& name, const Types& types, DimNames& dims) {
  Json tensor = {{"name", name}, {"type", type_name(types)}};
  std::vector<graph::Shape> shapes;
  for (const auto& type : types)
    if (type) shapes.push_back(type->shape);
  const bool one_rank = !shapes.empty() && std::ranges::all_of(shapes, [&](const graph::Shape& shape) {
    return shape.size() == shapes[0].size();
  });
  if (one_rank) {
    tensor["shape"] = Json::array();
    for (size_t d = 0; d < shapes[0].size(); ++d) {
      std::vector<sym::Expr> sizes;
      for (const graph::Shape& shape : shapes) sizes.push_back(shape[d]);
      tensor["shape"].push_back(dims.name(sizes));
    }
  } else {
    tensor["shape"] = {"..."};
  }
  list.push_back(std::move(tensor));
}

Json attribute(const graph::AttributeValue& given) {
  const Attr value = from_graph(given);
  if (const auto* e = std::get_if<sym::Expr>(&value)) {
    if (!e->is_const()) return {{"type", "int"}};
    return {{"type", "int"}, {"default", e->value()}};
  }
  if (const auto* d = std::get_if<double>(&value)) return {{"type", "float"}, {"default", *d}};
  if (const auto* text = std::get_if<std::string>(&value)) return {{"type", "text"}, {"default", *text}};
  if (const auto* dtype = std::get_if<DType>(&value))
    return {{"type", "type"}, {"default", stridec::name(*dtype)}};
  if (const auto* list = std::get_if<std::vector<double>>(&value))
    return {{"type", "floats"}, {"default", *list}};
  Json numbers = Json::array();
  for (const sym::Expr e : std::get<std::vector<sym::Expr>>(value)) {
    if (!e.is_const()) return {{"type", "ints"}};
    numbers.push_back(e.value());
  }
  return {{"type", "ints"}, {"default", numbers}};
}

Json draft(const std::vector<const UnknownCall*>& calls) {
  const UnknownCall& first = *calls[0];
  const size_t colons = first.name.rfind("::");
  Json out = {{"domain", first.name.substr(0, colons)},
              {"name", first.name.substr(colons + 2)},
              {"inputs", Json::array()},
              {"outputs", Json::array()}};
  DimNames dims;
  std::vector<std::string> names;
  for (size_t i = 0, at = 0; i < first.arguments.size(); ++i) {
    const UnknownCall::Argument& argument = first.arguments[i];
    if (!argument.tensor) continue;
    Types types;
    for (const UnknownCall* call : calls)
      types.push_back(i < call->arguments.size() ? call->arguments[i].type : std::nullopt);
    names.push_back(argument.name.empty() ? cat("x", at) : argument.name);
    add_tensor(out["inputs"], names.back(), types, dims);
    ++at;
  }
  const size_t results = std::max<size_t>(first.results.size(), 1);
  std::vector<std::string> formula;
  for (size_t i = 0; i < results; ++i) {
    Types types;
    for (const UnknownCall* call : calls)
      types.push_back(i < call->results.size() ? call->results[i] : std::nullopt);
    const std::string name = results == 1 ? "y" : cat("y", i);
    add_tensor(out["outputs"], name, types, dims);
    if (std::ranges::none_of(types, [](const auto& type) { return type.has_value(); }))
      out["outputs"].back().erase("shape");
    formula.push_back(cat(name, " = ", names.empty() ? "..." : names[0]));
  }
  for (const UnknownCall* call : calls)
    for (size_t i = 0; i < call->arguments.size(); ++i) {
      const UnknownCall::Argument& argument = call->arguments[i];
      if (argument.tensor || !argument.value) continue;
      out["attributes"].emplace(argument.name.empty() ? cat("a", i) : argument.name,
                                attribute(*argument.value));
    }
  out["body"] = {{"formula", formula}};
  return out;
}

}  // namespace

std::string draft_operators(const std::vector<UnknownCall>& calls) {
  std::vector<std::vector<const UnknownCall*>> by_name;
  std::map<std::string_view, size_t> places;
  for (const UnknownCall& call : calls) {
    const auto [place, fresh] = places.emplace(call.name, by_name.size());
    if (fresh) by_name.emplace_back();
    by_name[place->second].push_back(&call);
  }
  Json operators = Json::array();
  for (const auto& each : by_name) operators.push_back(draft(each));
  return Json{{"operators", std::move(operators)}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace stridec::extend
