// Writes ONNX files for tests byte by byte: the reader is tested against the format, not against another
// library's interpretation of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stridec::onnx::bytes {

inline std::string varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
  out.push_back(static_cast<char>(v));
  return out;
}
inline std::string number(int field, uint64_t v) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(v);
}
inline std::string text(int field, const std::string& body) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(body.size()) + body;
}
inline std::string real(int field, float f) {
  return varint(static_cast<uint64_t>(field) << 3 | 5) + std::string(reinterpret_cast<const char*>(&f), 4);
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A TensorProto; `data` is one of its data fields.
inline std::string tensor(const std::string& name, int type, const std::vector<int64_t>& dims,
                          const std::string& data) {
  std::string out;
  for (int64_t d : dims) out += number(1, static_cast<uint64_t>(d));
  return out + number(2, static_cast<uint64_t>(type)) + text(8, name) + data;
}
inline std::string raw_data(const std::string& bytes) { return text(9, bytes); }
inline std::string external(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = number(14, 1);
  for (const auto& [key, value] : entries) out += text(13, text(1, key) + text(2, value));
  return out;
}

inline std::string attribute_int(const std::string& name, int64_t value) {
  return text(1, name) + number(3, static_cast<uint64_t>(value)) + number(20, 2);
}
inline std::string attribute_float(const std::string& name, float value) {
  return text(1, name) + real(2, value) + number(20, 1);
}
inline std::string attribute_ints(const std::string& name, const std::vector<int64_t>& values) {
  std::string out = text(1, name);
  for (const int64_t value : values) out += number(8, static_cast<uint64_t>(value));
  return out + number(20, 7);
}
inline std::string attribute_graph(const std::string& name, const std::string& graph) {
  return text(1, name) + text(6, graph) + number(20, 5);
}
inline std::string attribute_tensor(const std::string& name, const std::string& tensor) {
  return text(1, name) + text(5, tensor) + number(20, 4);
}
inline std::string attribute_reference(const std::string& name, const std::string& from, int type) {
  return text(1, name) + text(21, from) + number(20, static_cast<uint64_t>(type));
}

inline std::string node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs,
                        const std::vector<std::string>& attributes = {}, const std::string& domain = "",
                        const std::string& name = "") {
  std::string out;
  for (const auto& i : inputs) out += text(1, i);
  for (const auto& o : outputs) out += text(2, o);
  if (!name.empty()) out += text(3, name);
  out += text(4, op);
  for (const auto& a : attributes) out += text(5, a);
  if (!domain.empty()) out += text(7, domain);
  return out;
}

// f32 by default; negative dims have no value.
inline std::string value_info(const std::string& name, const std::vector<int64_t>& dims, int type = 1) {
  std::string shape;
  for (int64_t d : dims) shape += text(1, d < 0 ? std::string() : number(1, static_cast<uint64_t>(d)));
  return text(1, name) + text(2, text(1, number(1, static_cast<uint64_t>(type)) + text(2, shape)));
}

struct GraphBytes {
  std::vector<std::string> nodes, initializers, inputs, outputs, value_infos = {};
  std::string encode() const {
    std::string out = text(2, "g");
    for (const auto& n : nodes) out += text(1, n);
    for (const auto& t : initializers) out += text(5, t);
    for (const auto& v : inputs) out += text(11, v);
    for (const auto& v : outputs) out += text(12, v);
    for (const auto& v : value_infos) out += text(13, v);
    return out;
  }
};

inline std::string opset(const std::string& domain, int version) {
  return text(8, text(1, domain) + number(2, static_cast<uint64_t>(version)));
}

inline std::string model(const GraphBytes& graph, int version = 17, const std::string& more = "",
                         int ir = 8) {
  return number(1, static_cast<uint64_t>(ir)) + opset("", version) + text(7, graph.encode()) + more;
}

}  // namespace stridec::onnx::bytes
