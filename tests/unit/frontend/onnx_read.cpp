#include "compiler/frontend/onnx/read.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "tests/support/folder.h"
#include "tests/unit/frontend/onnx_bytes.h"

using namespace stridec;
using namespace stridec::onnx;
using namespace stridec::onnx::bytes;
using stridec::testing::Folder;

namespace {

Model read_bytes(const std::string& content) {
  Folder folder;
  return read_model(folder.write("m.onnx", content));
}

// The diagnostic of a file that must be rejected; code "" if it is accepted.
Diagnostic refused(const std::string& content) {
  try {
    read_bytes(content);
    return {};
  } catch (const Error& e) {
    return e.diagnostic;
  }
}

template <class T>
std::vector<T> values(const Tensor& t) {
  std::vector<T> out(t.bytes.size / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), t.bytes.data, t.bytes.size);
  return out;
}

GraphBytes relu() {
  return {.nodes = {node("Relu", {"x"}, {"y"}, {}, "", "act")},
          .inputs = {value_info("x", {2, -1})},
          .outputs = {value_info("y", {2, -1})}};
}

GraphBytes with_initializer(const std::string& tensor_bytes) {
  return {.nodes = {node("Add", {"x", "w"}, {"y"})},
          .initializers = {tensor_bytes},
          .inputs = {value_info("x", {1})},
          .outputs = {value_info("y", {1})}};
}

Tensor first_initializer(const std::string& tensor_bytes) {
  return read_bytes(model(with_initializer(tensor_bytes))).graph.initializers.at(0);
}

}  // namespace

TEST_CASE("a small model is read as it is") {
  const Model m = read_bytes(model(relu()));
  CHECK(m.ir_version == 8);
  CHECK(m.opset() == 17);
  REQUIRE(m.graph.nodes.size() == 1);
  CHECK(describe(m.graph.nodes[0]) == "node 0 'act'");
  CHECK(describe_op(m.graph.nodes[0]) == "Relu (domain ai.onnx, version 17)");
  CHECK(type_name(m.graph.inputs[0].type) == "f32[2,?]");
  CHECK(check_model(m).empty());
}

TEST_CASE("weights of any size keep their values, and large ones stay in the file") {
  for (size_t count : {1u, 255u, 256u, 257u, 100'000u}) {
    std::vector<float> w(count);
    for (size_t i = 0; i < count; ++i) w[i] = static_cast<float>(i) * 0.5f;
    const Tensor t = first_initializer(tensor("w", 1, {static_cast<int64_t>(count)}, raw_data(raw(w))));
    CHECK(values<float>(t) == w);
  }
}

TEST_CASE("large tensors in attributes and subgraphs are found as well") {
  const std::vector<int64_t> big(1000, 7);
  const std::string constant =
      node("Constant", {}, {"c"}, {attribute_tensor("value", tensor("", 7, {1000}, raw_data(raw(big))))});
  GraphBytes branch{.nodes = {constant}, .outputs = {value_info("c", {1000}, 7)}};
  GraphBytes g{.nodes = {node("If", {"x"}, {"y"},
                              {attribute_graph("then_branch", branch.encode()),
                               attribute_graph("else_branch", branch.encode())})},
               .inputs = {value_info("x", {}, 9)},
               .outputs = {value_info("y", {1000}, 7)}};
  const Model m = read_bytes(model(g));
  const Node& inner = m.graph.nodes[0].find("else_branch")->graphs[0].nodes[0];
  CHECK(values<int64_t>(inner.find("value")->tensors[0]) == big);
  CHECK(inner.version == 17);
  CHECK(check_model(m).empty());
}

TEST_CASE("typed data of every kind") {
  CHECK(values<float>(first_initializer(tensor("w", 1, {2}, text(4, raw<float>({1.5f, -2}))))) ==
        std::vector<float>{1.5f, -2});
  CHECK(values<int8_t>(first_initializer(tensor("w", 3, {2}, text(5, varint(3) + varint(~uint64_t{0}))))) ==
        std::vector<int8_t>{3, -1});
  CHECK(values<uint16_t>(first_initializer(tensor("w", 10, {1}, text(5, varint(0x3c00))))) ==
        std::vector<uint16_t>{0x3c00});
  CHECK(values<int64_t>(first_initializer(tensor("w", 7, {2}, text(7, varint(5) + varint(~uint64_t{1}))))) ==
        std::vector<int64_t>{5, -2});
  CHECK(values<double>(first_initializer(tensor("w", 11, {1}, text(10, raw<double>({0.25}))))) ==
        std::vector<double>{0.25});
  CHECK(values<uint32_t>(first_initializer(tensor("w", 12, {1}, text(11, varint(4'000'000'000))))) ==
        std::vector<uint32_t>{4'000'000'000});
  CHECK(first_initializer(tensor("w", 8, {2}, text(6, "a") + text(6, "bc"))).strings ==
        std::vector<std::string>{"a", "bc"});
  CHECK(first_initializer(tensor("w", 1, {0, 3}, "")).bytes.size == 0);
}

TEST_CASE("values narrower than a byte take a byte each") {
  // low bits first; three i4 in two bytes, five u2 in two bytes
  CHECK(values<int8_t>(first_initializer(tensor("w", 22, {3}, raw_data("\x7f\x08")))) ==
        std::vector<int8_t>{-1, 7, -8});
  CHECK(values<uint8_t>(first_initializer(tensor("w", 21, {3}, text(5, varint(0x7f) + varint(8))))) ==
        std::vector<uint8_t>{15, 7, 8});
  CHECK(values<uint8_t>(first_initializer(tensor("w", 25, {5}, raw_data("\xe4\x02")))) ==
        std::vector<uint8_t>{0, 1, 2, 3, 2});
  CHECK(values<int8_t>(first_initializer(tensor("w", 26, {4}, raw_data("\xe4")))) ==
        std::vector<int8_t>{0, 1, -2, -1});
}

TEST_CASE("values of six bits are packed four in three bytes, or take an entry each") {
  const std::vector<uint8_t> want{1, 2, 63, 32, 5};
  for (int type : {27, 28}) {
    CHECK(values<uint8_t>(first_initializer(tensor("w", type, {5}, raw_data("\x81\xf0\x83\x05")))) == want);
    std::string entries;
    for (uint8_t v : want) entries += varint(v);
    CHECK(values<uint8_t>(first_initializer(tensor("w", type, {5}, text(5, entries)))) == want);
  }
  CHECK(refused(model(with_initializer(tensor("w", 27, {5}, raw_data("\x81\xf0\x83"))))).code ==
        "tensor-size");
}

TEST_CASE("tensors that contradict themselves are refused by name") {
  const auto code = [&](const std::string& t) { return refused(model(with_initializer(t))); };
  CHECK(code(tensor("w", 1, {3}, raw_data("1234"))).message ==
        "tensor 'w' takes 12 bytes, but its raw_data has 4");
  CHECK(code(tensor("w", 1, {-1}, raw_data("1234"))).code == "tensor-size");
  CHECK(code(tensor("w", 1, {1ll << 40, 1ll << 40}, raw_data("1234"))).code == "tensor-size");
  CHECK(code(tensor("w", 1, {1ll << 61}, raw_data("1234"))).code == "tensor-size");
  CHECK(code(tensor("w", 99, {1}, raw_data("1234"))).code == "unsupported-dtype");
  CHECK(code(tensor("w", 0, {1}, raw_data("1234"))).code == "tensor-type");
  CHECK(code(tensor("w", 1, {5}, "")).code == "missing-data");
  CHECK(code(tensor("w", 1, {5}, "")).where.tensor == "initializer 'w'");
  CHECK(code(tensor("w", 1, {1}, text(3, number(1, 0) + number(2, 4)))).code == "segmented-tensor");
}

TEST_CASE("initializers that are listed as inputs are constants") {
  GraphBytes g = with_initializer(tensor("w", 1, {1}, raw_data("1234")));
  g.inputs.insert(g.inputs.begin(), value_info("w", {1}));
  const Model m = read_bytes(model(g, 9, "", 3));
  REQUIRE(m.graph.inputs.size() == 1);
  CHECK(m.graph.inputs[0].name == "x");
}

TEST_CASE("nodes are put in order, and names are checked") {
  GraphBytes g = relu();
  g.nodes = {node("Relu", {"b"}, {"y"}), node("Neg", {"a"}, {"b"}), node("Abs", {"x"}, {"a"})};
  const Model m = read_bytes(model(g));
  CHECK(m.graph.nodes[0].op_type == "Abs");
  CHECK(m.graph.nodes[2].op_type == "Relu");
  CHECK(m.graph.nodes[2].index == 0);

  g.nodes = {node("Relu", {"b"}, {"y"}, {}, "", "r"), node("Neg", {"y"}, {"b"}, {}, "", "n")};
  const Diagnostic cycle = refused(model(g));
  CHECK(cycle.code == "cyclic-graph");
  CHECK(cycle.notes == std::vector<std::string>{"node 0 'r' Relu waits for node 1 'n'",
                                                "node 1 'n' Neg waits for node 0 'r'"});

  g.nodes = {node("Relu", {"nowhere"}, {"y"})};
  CHECK(refused(model(g)).message ==
        "reads 'nowhere', which is not an input, no initializer and no node's output");
  g.nodes = {node("Relu", {"x"}, {"y"}), node("Abs", {"x"}, {"y"})};
  CHECK(refused(model(g)).code == "duplicate-name");
  g.nodes = {node("Relu", {"x"}, {"x"})};
  CHECK(refused(model(g)).code == "duplicate-name");
  g.nodes = {node("Relu", {"x"}, {"z"})};
  CHECK(refused(model(g)).message == "output 'y' of graph 'g' is computed by no node");
}

TEST_CASE(
    "hostile bytes: every prefix and thousands of changed bytes end in an error or a model, never in a "
    "crash") {
  const std::vector<float> w(400, 1.0f);
  GraphBytes g = with_initializer(tensor("w", 1, {400}, raw_data(raw(w))));
  g.nodes.push_back(node("LeakyRelu", {"y"}, {"z"}, {attribute_float("alpha", 0.5f)}));
  const std::string good = model(g);
  REQUIRE(refused(good).code.empty());
  for (size_t n = 0; n < good.size(); n += n < 64 ? 1 : 37)
    CHECK_FALSE(refused(good.substr(0, n)).code.empty());
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 1 + i % 3; ++k) {
      const size_t at = i % 2 ? random() % 80 : random() % bad.size();
      bad[at] = static_cast<char>(random());
    }
    refused(bad);
  }
}

TEST_CASE("hostile lengths and nesting") {
  CHECK(refused(number(1, 8) + "\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").code == "truncated-model");
  CHECK(refused(number(1, 8) + "\x3a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01").code == "malformed-model");
  CHECK(refused(number(1, 8) + text(7, "\x0a\x20zz") + std::string(64, '\0')).code == "malformed-model");
  std::string nested = text(2, "g");
  for (int i = 0; i < 300; ++i)
    nested = text(1, node("If", {}, {}, {attribute_graph("then_branch", nested)}));
  CHECK(refused(number(1, 8) + text(7, nested)).code == "malformed-model");
}

TEST_CASE("files that are something else are called by their name") {
  const auto looks = [](const std::string& content) { return refused(content).message; };
  CHECK(looks("") == "the file is empty");
  CHECK(looks("\x89PNG\r\n\x1a\n....") == "the file is not an ONNX model: it looks like a PNG image");
  CHECK(looks("<!DOCTYPE html><html>") == "the file is not an ONNX model: it looks like a web page (HTML)");
  CHECK(looks("version https://git-lfs.github.com/spec/v1\noid sha256:00\n") ==
        "the file is not an ONNX model: it looks like a git-lfs pointer, not the file it stands for");
  CHECK(looks("PK\x03\x04....archive/data.pkl") ==
        "the file is not an ONNX model: it looks like a PyTorch checkpoint (torch.save)");
  CHECK(looks(std::string(4096, '\0')) ==
        "the file is not an ONNX model: it looks like nothing but zero bytes");
  CHECK(refused(tensor("t", 1, {1}, raw_data("1234"))).code == "not-a-model");
  CHECK_THROWS_AS(read_model("/nonexistent/model.onnx"), Error);
  CHECK_THROWS_AS(read_model("/"), Error);
}

TEST_CASE("external data is read from the model's folder alone") {
  Folder folder;
  const std::vector<float> w{1, 2, 3, 4};
  folder.write("sub/w.bin", std::string(8, '\0') + raw(w));
  folder.write("w.bin", raw(w));
  Folder outside;
  const auto secret = outside.write("secret", raw(w));
  std::filesystem::create_symlink(secret, folder.path / "link");
  std::filesystem::create_directory_symlink(outside.path, folder.path / "linked");
  std::filesystem::create_hard_link(secret, outside.path / "twice");
  std::filesystem::rename(outside.path / "twice", folder.path / "hard");

  using Entries = std::vector<std::pair<std::string, std::string>>;
  const auto read = [&](const Entries& entries) {
    const auto file = folder.write("m.onnx", model(with_initializer(tensor("w", 1, {4}, external(entries)))));
    return values<float>(read_model(file).graph.initializers.at(0));
  };
  const auto why = [&](const Entries& entries) -> Diagnostic {
    try {
      read(entries);
      return {};
    } catch (const Error& e) {
      return e.diagnostic;
    }
  };
  CHECK(read({{"location", "sub/w.bin"}, {"offset", "8"}, {"length", "16"}}) == w);
  CHECK(read({{"location", "w.bin"}}) == w);
  CHECK(read({{"location", "./w.bin"}, {"checksum", "00"}}) == w);

  CHECK(why({{"location", "../" + outside.path.filename().string() + "/secret"}})
            .message.ends_with("leads out of the model's folder"));
  CHECK(why({{"location", secret}}).message.ends_with("is an absolute path"));
  const std::string link = "' is or passes through a symbolic link out of the model's folder";
  CHECK(why({{"location", "link"}}).message == cat("external data file 'link", link, ", to '", secret, "'"));
  CHECK(why({{"location", "linked/secret"}}).message == cat("external data file 'linked/secret", link));
  CHECK(why({{"location", "link"}}).help.find("folder of the model's real file") != std::string::npos);
  CHECK(why({{"location", "hard"}}).message ==
        "external data file 'hard' has another name too (a hard link)");
  CHECK(why({{"location", "sub"}}).message == "external data file 'sub' is not a regular file");
  CHECK(why({{"location", std::string("w.bin\0x", 7)}}).message.ends_with("has a zero byte in its name"));
  CHECK(why({{"location", "none.bin"}}).kind == ErrorKind::kUnreadable);
  CHECK(why({{"location", "none.bin"}}).where.tensor == "tensor 'w'");
  CHECK(why({{"location", ""}}).code == "external-data");
  CHECK(why({}).message == "tensor 'w': external data names no file");
  CHECK(why({{"location", "w.bin"}, {"offset", "-1"}}).message ==
        "tensor 'w': external data offset '-1' is not a non-negative number");
  CHECK(why({{"location", "w.bin"}, {"offset", "99999999999999999999"}}).code == "external-data");
  CHECK(why({{"location", "w.bin"}, {"offset", "18446744073709551615"}}).code == "missing-data");
  CHECK(why({{"location", "w.bin"}, {"length", "1000000000000"}}).code == "external-data");
  CHECK(why({{"location", "w.bin"}, {"offset", "4"}}).message ==
        "tensor 'w': file 'w.bin' ends at 16; bytes 4..20 are asked for");
  CHECK(why({{"location", "w.bin"}, {"__class__", "x"}}).message ==
        "tensor 'w': external data has an unknown key '__class__'");
}

TEST_CASE("links to external data are followed to the folders that may hold it, and no further") {
  namespace fs = std::filesystem;
  Folder cache;
  const std::vector<float> w{1, 2, 3, 4};
  const std::string bytes =
      model(with_initializer(tensor("w", 1, {4}, external({{"location", "model.onnx_data"}}))));
  for (const char* folder : {"blobs", "snapshots/0a1b", "elsewhere", "plain/below"})
    fs::create_directories(cache.path / folder);
  cache.write("blobs/aa11", bytes);
  cache.write("blobs/bb22", raw(w));
  cache.write("elsewhere/cc33", raw(w));
  const fs::path snapshot = cache.path / "snapshots/0a1b";
  const auto lay = [&](const fs::path& folder, const fs::path& model_link, const fs::path& data_link) {
    for (const char* name : {"model.onnx", "model.onnx_data"}) fs::remove(folder / name);
    const std::string at = fs::relative(folder, cache.path).string();
    if (model_link.empty())
      cache.write(at + "/model.onnx", bytes);
    else
      fs::create_symlink(model_link, folder / "model.onnx");
    if (!data_link.empty()) fs::create_symlink(data_link, folder / "model.onnx_data");
    return folder / "model.onnx";
  };
  const auto reads = [&](const fs::path& file) {
    const Model read = read_model(file);
    CHECK(read.external_files.size() == 1);
    return values<float>(read.graph.initializers.at(0)) == w;
  };
  const auto refused_with = [&](const fs::path& file) -> std::string {
    try {
      read_model(file);
      return "";
    } catch (const Error& e) {
      return e.diagnostic.message;
    }
  };
  // Both links lead into the blobs; the model alone is a file, in a snapshot.
  CHECK(reads(lay(snapshot, "../../blobs/aa11", "../../blobs/bb22")));
  CHECK(reads(lay(snapshot, "", "../../blobs/bb22")));
  // Links within the model's folder and below it; a chain of links; a link on the way to the folder.
  const fs::path plain = cache.path / "plain";
  cache.write("plain/below/data", raw(w));
  CHECK(reads(lay(plain, "", "below/data")));
  fs::create_symlink("below/data", plain / "first");
  CHECK(reads(lay(plain, "", "first")));
  fs::create_directory_symlink(plain, cache.path / "other");
  CHECK(reads(cache.path / "other/model.onnx"));
  // The folder of the model's real file has the data; the folder of the path as given does not.
  cache.write("elsewhere/model.onnx", bytes);
  cache.write("elsewhere/model.onnx_data", raw(w));
  CHECK(reads(lay(plain, "../elsewhere/model.onnx", "")));
  // Refused: a folder called blobs without a snapshot next to it, any other folder, and blobs that is itself
  // a link.
  CHECK(refused_with(lay(plain, "", "../blobs/bb22")).find("symbolic link out of") != std::string::npos);
  CHECK(refused_with(lay(snapshot, "", "../../elsewhere/cc33")).find("symbolic link out of") !=
        std::string::npos);
  CHECK(
      refused_with(lay(snapshot, "../../blobs/aa11", "../../elsewhere/cc33")).find("symbolic link out of") !=
      std::string::npos);
  fs::rename(cache.path / "blobs", cache.path / "moved");
  fs::create_directory_symlink("moved", cache.path / "blobs");
  CHECK(refused_with(lay(snapshot, "", "../../blobs/bb22")).find("symbolic link out of") !=
        std::string::npos);
  // Links that lead nowhere, or in a circle.
  CHECK(refused_with(lay(plain, "", "none")).find("is missing") != std::string::npos);
  CHECK(refused_with(lay(plain, "", "model.onnx_data")).find("leads nowhere") != std::string::npos);
}

TEST_CASE("local functions are inlined") {
  // scale(x) = x * alpha-leaky, called twice by outer, which is called once
  const auto function = [](const std::string& name, const std::string& in, const std::string& out,
                           const std::vector<std::string>& nodes, const std::string& more = "") {
    std::string f = text(1, name) + text(4, in) + text(5, out) + text(10, "local") + more;
    for (const auto& n : nodes) f += text(7, n);
    return text(25, f + text(9, text(1, "") + number(2, 16)) + text(9, text(1, "local") + number(2, 1)));
  };
  const std::string leaky = function(
      "leaky", "a", "b", {node("LeakyRelu", {"a"}, {"b"}, {attribute_reference("alpha", "slope", 1)})},
      text(6, "slope"));
  const std::string twice =
      function("twice", "p", "q",
               {node("leaky", {"p"}, {"t"}, {attribute_float("slope", 0.25f)}, "local", "one"),
                node("leaky", {"t"}, {"q"}, {}, "local", "two")});
  GraphBytes g = relu();
  g.nodes = {node("twice", {"x"}, {"y"}, {}, "local", "call")};
  const Model m = read_bytes(model(g, 17, opset("local", 1) + leaky + twice));
  REQUIRE(m.graph.nodes.size() == 2);
  const Node& one = m.graph.nodes[0];
  CHECK(one.op_type == "LeakyRelu");
  CHECK(one.version == 16);
  CHECK(one.inputs == std::vector<std::string>{"x"});
  CHECK(one.outputs == std::vector<std::string>{"call/t"});
  CHECK(one.find("alpha")->floats[0] == 0.25f);
  CHECK(one.name == "call/one/LeakyRelu");
  CHECK(one.index == 0);
  CHECK(m.graph.nodes[1].find("alpha") == nullptr);
  CHECK(m.graph.nodes[1].outputs == std::vector<std::string>{"y"});
  CHECK(check_model(m).empty());

  const std::string endless = function("endless", "p", "q", {node("endless", {"p"}, {"q"}, {}, "local")});
  g.nodes = {node("endless", {"x"}, {"y"}, {}, "local", "call")};
  CHECK(refused(model(g, 17, opset("local", 1) + endless)).message == "function 'endless' calls itself");
  const std::string pass = function("pass", "p", "p", {});
  g.nodes = {node("pass", {"x"}, {"y"}, {}, "local", "call")};
  CHECK(read_bytes(model(g, 17, opset("local", 1) + pass)).graph.nodes.at(0).op_type == "Identity");
}

TEST_CASE("functions that multiply end at the budget") {
  std::string more = opset("local", 1);
  for (int level = 0; level < 30; ++level) {
    const std::string inner = level == 0 ? "" : "f" + std::to_string(level - 1);
    std::string f = text(1, "f" + std::to_string(level)) + text(4, "a") + text(5, "c") + text(10, "local");
    f += text(7, level == 0 ? node("Relu", {"a"}, {"b"}) : node(inner, {"a"}, {"b"}, {}, "local"));
    f += text(7, level == 0 ? node("Relu", {"b"}, {"c"}) : node(inner, {"b"}, {"c"}, {}, "local"));
    more += text(25, f + text(9, text(1, "") + number(2, 17)));
  }
  GraphBytes g = relu();
  g.nodes = {node("f29", {"x"}, {"y"}, {}, "local")};
  CHECK(refused(model(g, 17, more)).code == "model-too-large");
}

TEST_CASE("sparse initializers become dense") {
  const std::string sparse = text(1, tensor("w", 1, {2}, raw_data(raw<float>({5, 6})))) +
                             text(2, tensor("", 7, {2, 2}, raw_data(raw<int64_t>({0, 1, 1, 0})))) +
                             number(3, 2) + number(3, 2);
  GraphBytes g = with_initializer(tensor("unused", 1, {1}, raw_data("1234")));
  const std::string content = number(1, 8) + opset("", 17) + text(7, g.encode() + text(15, sparse));
  const Model m = read_bytes(content);
  CHECK(values<float>(m.graph.initializers.at(1)) == std::vector<float>{0, 5, 6, 0});
  const std::string outside = text(1, tensor("w", 1, {1}, raw_data(raw<float>({5})))) +
                              text(2, tensor("", 7, {1}, raw_data(raw<int64_t>({4})))) + number(3, 2) +
                              number(3, 2);
  CHECK(refused(number(1, 8) + opset("", 17) + text(7, g.encode() + text(15, outside))).code ==
        "sparse-tensor");
  const std::string bomb = text(1, tensor("w", 1, {1}, raw_data(raw<float>({5})))) +
                           text(2, tensor("", 7, {1}, raw_data(raw<int64_t>({4})))) + number(3, 1ull << 40);
  CHECK(refused(number(1, 8) + opset("", 17) + text(7, g.encode() + text(15, bomb))).kind ==
        ErrorKind::kOverBudget);
}
