// Imports models given as bytes (onnx_bytes.h).
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/import.h"
#include "compiler/frontend/onnx/read.h"
#include "tests/support/folder.h"
#include "tests/unit/frontend/onnx_bytes.h"

namespace stridec::onnx::bytes {

// An f32 input with named or fixed dims: "batch", "8*h", "3".
inline std::string symbolic_input(const std::string& name, const std::vector<std::string>& dims,
                                  int type = 1) {
  std::string shape;
  for (const auto& d : dims) {
    const bool fixed = !d.empty() && d.find_first_not_of("0123456789") == std::string::npos;
    shape += text(1, fixed ? number(1, static_cast<uint64_t>(std::stoull(d))) : text(2, d));
  }
  return text(1, name) + text(2, text(1, number(1, static_cast<uint64_t>(type)) + text(2, shape)));
}

// A declaration without a rank.
inline std::string of_any_rank(const std::string& name, int type = 1) {
  return text(1, name) + text(2, text(1, number(1, static_cast<uint64_t>(type))));
}

inline Imported import_bytes(const std::string& content, const ImportOptions& options = {}) {
  testing::Folder folder;
  return import_model(read_model(folder.write("m.onnx", content)), options);
}

inline std::string output_type(const Imported& m, size_t i = 0) {
  REQUIRE(m.problems.empty());
  return graph::to_string(m.graph[m.graph.top.results.at(i)].type);
}

inline std::string ints(const std::string& name, const std::vector<int64_t>& values) {
  return tensor(name, 7, {static_cast<int64_t>(values.size())}, raw_data(raw(values)));
}

}  // namespace stridec::onnx::bytes
