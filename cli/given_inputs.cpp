#include "cli/given_inputs.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/npz.h"
#include "cli/random_values.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/sym/text.h"

namespace stridec::cli {

void declare_drawn_inputs(CLI::App& app, std::vector<std::string>& inputs, std::string& dims) {
  app.add_option("-i,--input", inputs,
                 "name=file.npy, or all.npz (inputs that are not given are random, within the ranges of the "
                 "manifest)")
      ->type_name("[NAME=]FILE");
  app.add_option("--dim", dims, "sizes: batch=1,sequence=128 (default: the smallest that the model allows)")
      ->join(',')
      ->type_name("NAME=SIZE,...");
}

bool has_size(const Library& library, const std::string& name) {
  const auto symbols = library.symbols();
  return std::any_of(symbols.begin(), symbols.end(), [&](const auto& symbol) { return symbol.name == name; });
}

Sizes parse_sizes(const std::string& text) {
  Sizes sizes;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    const size_t equals = item.find('=');
    char* rest = nullptr;
    const long long value =
        equals == std::string::npos ? -1 : std::strtoll(item.c_str() + equals + 1, &rest, 10);
    if (equals == std::string::npos || equals == 0 || value < 0 || *rest)
      fail(ErrorKind::kUsage, "bad-dim", cat("'", item, "' is not of the form name=size"),
           "write --dim batch=2,sequence=128");
    sizes[item.substr(0, equals)] = value;
    at = end + 1;
  }
  return sizes;
}

std::vector<std::string> names_of(const std::vector<ValueDeclaration>& values) {
  std::vector<std::string> names;
  for (const auto& value : values) names.push_back(value.name);
  return names;
}

namespace {

// Replaces a flag that is only an archive by one for each of its arrays: "x=all.npz:x".
std::vector<std::string> with_archives_opened(const std::vector<std::string>& given) {
  std::vector<std::string> all;
  for (const std::string& text : given) {
    if (!text.ends_with(".npz") || text.find('=') != std::string::npos) {
      all.push_back(text);
      continue;
    }
    for (const std::string& name : npz_names(text)) all.push_back(cat(name, "=", text, ":", name));
  }
  return all;
}

}  // namespace

std::vector<std::string> assign_files(const std::vector<std::string>& given,
                                      const std::vector<std::string>& names, const std::string& what) {
  std::vector<std::string> files(names.size());
  for (const auto& text : with_archives_opened(given)) {
    // A name may contain '='; the longest matching name is used.
    const std::string* name = nullptr;
    for (const std::string& one : names)
      if (text.starts_with(one + "=") && (!name || one.size() > name->size())) name = &one;
    if (name) {
      // Outputs may share a name if they are the same value.
      for (size_t i = 0; i < names.size(); ++i)
        if (names[i] == *name) files[i] = text.substr(name->size() + 1);
      continue;
    }
    const size_t equals = text.find('=');
    const auto free = std::find(files.begin(), files.end(), "");
    if (equals != std::string::npos || free == files.end())
      fail(ErrorKind::kUsage, "unknown-" + what,
           equals == std::string::npos ? cat("more ", what, "s are given than the model has: ", names.size())
                                       : cat("the model has no ", what, " '", text.substr(0, equals), "'"),
           cat("its ", what, "s are ", join(names, ", ")));
    *free = text;
  }
  return files;
}

std::vector<std::string> files_named(const std::vector<std::string>& given) {
  std::vector<std::string> files;
  for (const std::string& text : given) {
    files.push_back(file_of(text));
    for (size_t at = text.find('='); at != std::string::npos; at = text.find('=', at + 1))
      files.push_back(file_of(text.substr(at + 1)));
  }
  return files;
}

namespace {

bool breaks_guard(const nlohmann::ordered_json& manifest, const Sizes& sizes) {
  return std::ranges::any_of(manifest["guards"], [&](const auto& guard) {
    const sym::Expr condition = sym::parse(guard["condition"].template get<std::string>());
    return sym::evaluate(condition, [&](sym::Expr v) -> std::optional<int64_t> {
             const auto found = sizes.find(v.name());
             return found == sizes.end() ? std::nullopt : std::optional(found->second);
           }) == 0;
  });
}

// Completes the sizes with the smallest supported ones, or with larger ones if those violate a guard.
Sizes complete_sizes(const Library& library, const nlohmann::ordered_json& manifest, const Sizes& given) {
  const auto symbols = library.symbols();
  for (const auto& [name, size] : given)
    if (!has_size(library, name) && std::ranges::count(library.context_sizes(), name) == 0)
      fail(ErrorKind::kUsage, "unknown-dim",
           cat("no input or state of the artifact has the size '", name, "'"),
           symbols.empty()
               ? "all its sizes are fixed"
               : cat("its sizes are ", join(symbols, ", ", [](const auto& s) { return s.name; })));
  const auto at_least = [&](int64_t wanted) {
    Sizes sizes = given;
    for (const auto& symbol : symbols) {
      const int64_t least = std::max(symbol.minimum, wanted),
                    multiple = std::max<int64_t>(symbol.multiple, 1);
      sizes.emplace(symbol.name, std::min(symbol.maximum, (least + multiple - 1) / multiple * multiple));
    }
    return sizes;
  };
  for (const int64_t wanted : {1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024})
    if (Sizes sizes = at_least(wanted); !breaks_guard(manifest, sizes)) return sizes;
  return at_least(1);
}

std::vector<sym::Expr> dims_of(const ValueDeclaration& declaration) {
  std::vector<sym::Expr> dims;
  const std::string text = declaration.shape_text.substr(1, declaration.shape_text.size() - 2);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(", ", at), text.size());
    dims.push_back(sym::parse(text.substr(at, end - at)));
    at = end + 2;
  }
  return dims;
}

// Sizes, and of those that a file gives where it does: "dim 0 of 'x.npy'".
struct FoundSizes {
  Sizes sizes;
  std::map<std::string, std::string> sources;
};

[[noreturn]] void refuse_size(const FoundSizes& found, const std::string& name, int64_t size,
                              const std::string& source) {
  const auto by = found.sources.find(name);
  const bool given = by == found.sources.end();
  const std::string other =
      given ? cat("it is ", found.sizes.at(name)) : cat(by->second, " gives ", found.sizes.at(name));
  fail(ErrorKind::kUsage, "bad-size", cat(source, " gives ", name, " ", size, ", where ", other),
       given ? "leave it out of --dim, or give other files"
             : cat("the model has one size for both, '", name, "': give other files"));
}

// Adds the sizes that an array determines. The runtime rejects what does not match the declaration.
void add_sizes(const Library& library, const ValueDeclaration& declaration, const Array& array,
               const std::string& file, FoundSizes& found) {
  const std::vector<sym::Expr> dims = dims_of(declaration);
  for (size_t d = 0; d < std::min(dims.size(), array.shape.size()); ++d) {
    const std::vector<sym::Expr> symbols = sym::free_vars(dims[d]);
    const auto linear = symbols.size() == 1 ? sym::linear_in(dims[d], symbols[0]) : std::nullopt;
    if (!linear || !linear->coefficient.is_const() || !linear->rest.is_const() ||
        !has_size(library, symbols[0].name()))
      continue;
    const int64_t times = linear->coefficient.value(), over = array.shape[d] - linear->rest.value();
    if (times == 0 || over % times != 0) continue;
    const std::string name = symbols[0].name(), source = cat("dim ", d, " of '", file, "'");
    const auto [size, fresh] = found.sizes.emplace(name, over / times);
    if (fresh) found.sources.emplace(name, source);
    if (size->second != over / times) refuse_size(found, name, over / times, source);
  }
}

// The range of an input's values from the manifest.
DrawnRange range_of(const nlohmann::ordered_json& input,
                    const std::function<std::optional<int64_t>(sym::Expr)>& size) {
  const auto bound = [&](const char* name) -> std::optional<sym::Expr> {
    const auto range = input.find("range");
    if (range == input.end() || !range->contains(name)) return std::nullopt;
    const auto& value = range->at(name);
    return value.is_string() ? sym::parse(value.get<std::string>()) : sym::Expr(value.get<int64_t>());
  };
  return range_at(bound("minimum"), bound("maximum"), input.value("content", "") == "image", size);
}

Array random_array(const ValueDeclaration& declaration, const nlohmann::ordered_json& input,
                   const Sizes& sizes, uint64_t seed, int attempt) {
  const auto size_of = [&](sym::Expr v) -> std::optional<int64_t> {
    const auto found = sizes.find(v.name());
    return found == sizes.end() ? 1 : found->second;
  };
  Array array;
  array.dtype = declaration.dtype;
  for (sym::Expr dim : dims_of(declaration)) array.shape.push_back(sym::evaluate(dim, size_of).value_or(1));
  array.bytes.resize(static_cast<size_t>(array.count()) * static_cast<size_t>(byte_size(array.dtype)));
  DrawnRange range = range_of(input, size_of);
  range.attempt = attempt;
  fill_random(array.dtype, range, seed, array.count(), array.bytes.data());
  return array;
}

}  // namespace

GivenInputs read_inputs(const Library& library, const std::vector<std::string>& files_given, Sizes given,
                        bool random, Draw draw) {
  const auto& declared = library.inputs();
  const auto files = assign_files(files_given, names_of(declared), "input");
  std::vector<Array> arrays(declared.size());
  FoundSizes found{.sizes = std::move(given), .sources = {}};
  for (size_t i = 0; i < declared.size(); ++i) {
    if (files[i].empty()) continue;
    arrays[i] = read_array(files[i], declared[i].dtype);
    add_sizes(library, declared[i], arrays[i], files[i], found);
  }
  const auto missing = std::find(files.begin(), files.end(), "");
  if (missing != files.end() && !random) {
    const ValueDeclaration& input = declared[static_cast<size_t>(missing - files.begin())];
    fail(ErrorKind::kUsage, "missing-input",
         cat("input '", input.name, "' ", name(input.dtype), input.shape_text, " is not given"),
         cat("give --input ", input.name, "=file.npy, or --random with --dim for sizes"));
  }
  for (const std::string& name : library.context_sizes())
    if (!random && !found.sizes.contains(name) && has_size(library, name))
      fail(ErrorKind::kUsage, "missing-size",
           cat("the size '", name, "' of the artifact's states is not given"),
           cat("give --dim ", name, "=NUMBER"));
  const auto manifest = library.function_manifest();
  Sizes sizes = complete_sizes(library, manifest, found.sizes);
  const uint64_t number = static_cast<uint64_t>(draw.attempt) + kDraws * draw.seed;
  for (size_t i = 0; i < declared.size(); ++i)
    if (files[i].empty())
      arrays[i] = random_array(declared[i], manifest["inputs"].at(i), sizes, i + 100 * number, draw.attempt);
  return {std::move(arrays), std::move(sizes)};
}

void with_inputs(Library& library, const std::vector<std::string>& files, const Sizes& sizes, bool random,
                 const std::function<void(GivenInputs)>& use, uint64_t seed) {
  const auto assigned = assign_files(files, names_of(library.inputs()), "input");
  const bool all_given = std::ranges::count(assigned, "") == 0;
  std::optional<Error> first;
  for (int attempt = 0; attempt < kDraws; ++attempt) {
    try {
      GivenInputs given = read_inputs(library, files, sizes, random, {seed, attempt});
      library.bind_context(given.sizes);
      return use(std::move(given));
    } catch (const Error& error) {
      if (error.diagnostic.kind != ErrorKind::kDoesNotFit || all_given) throw;
      if (!first) first = error;
    }
  }
  throw *first;
}

}  // namespace stridec::cli
