// The parts of a TorchScript archive: pickles, sources, and shapes on the command line.
#include <doctest/doctest.h>

#include <string>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/input_shape.h"
#include "compiler/frontend/torchscript/parser.h"
#include "compiler/frontend/torchscript/pickle.h"

namespace stridec::torchscript {
namespace {

using namespace std::string_literals;
using EK = Expression::Kind;
using SK = Statement::Kind;

std::string code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.diagnostic.code;
  }
  return "";
}
ItemRef pickled(const std::string& body) { return read_pickle("\x80\x02" + body + ".", "a pickle"); }
std::string refused(const std::string& body) {
  return code_of([&] { pickled(body); });
}

TEST_CASE("pickle: values") {
  CHECK(pickled("K\x07")->integer == 7);
  CHECK(pickled("J\xfe\xff\xff\xff")->integer == -2);
  CHECK(pickled("\x8a\x05\x00\x00\x00\x00\x80"s)->integer == -(int64_t{1} << 39));
  CHECK(pickled("G\x3f\xe0\x00\x00\x00\x00\x00\x00"s)->number == 0.5);
  CHECK(pickled("\x88")->kind == Item::Kind::kBool);
  const ItemRef list = pickled(
      "](K\x01K\x02"
      "e");
  CHECK(list->items.size() == 2);
  const ItemRef dict = pickled(
      "}(X\x01\x00\x00\x00"
      "aNu"s);
  CHECK(dict->items.at(0)->text == "a");
}

TEST_CASE("pickle: what is shared stays one item") {
  const ItemRef pair = pickled("]q\x00h\x00\x86"s);
  CHECK(pair->items.at(0) == pair->items.at(1));
}

TEST_CASE("pickle: a tensor is a view of a storage") {
  const ItemRef t = pickled(
      "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"
      "3X\x03\x00\x00\x00"
      "cpuK\x06tQK\x02(K\x02K\x01t(K\x01K\x05t\x89}tR"s);
  REQUIRE(t->kind == Item::Kind::kTensor);
  CHECK(t->tensor.storage == "3");
  CHECK(t->tensor.element_type == 6);
  CHECK(t->tensor.offset == 2);
  CHECK(t->tensor.sizes == std::vector<int64_t>{2, 1});
  CHECK(t->tensor.strides == std::vector<int64_t>{1, 5});
}

TEST_CASE("pickle: objects of the program are data, and nothing else is built") {
  const ItemRef object = pickled("c__torch__.a\nNet\n)\x81}(X\x01\x00\x00\x00nK\x03ub"s);
  CHECK(object->kind == Item::Kind::kObject);
  CHECK(object->text == "__torch__.a.Net");
  CHECK(pickled("c__torch__\nColor\nK\x02R")->kind == Item::Kind::kCall);  // an enum's member
  CHECK(refused("cos\nsystem\n(X\x02\x00\x00\x00lstR"s) == "pickled-object");
  CHECK(refused("cos\npath\n)\x81") == "pickled-object");
  CHECK(refused("\x95\x00\x00\x00\x00\x00\x00\x00\x00"s) == "pickled-object");  // FRAME, of protocol 4
}

TEST_CASE("pickle: damage is refused") {
  CHECK(refused("X\xff\xff\xff\x7f") == "bad-archive");
  CHECK(refused("h\x05") == "bad-archive");
  CHECK(refused("t") == "bad-archive");
  CHECK(refused("\x85") == "bad-archive");
  CHECK(refused("N(") == "bad-archive");
  CHECK(refused("c__torch__\nM\n)\x81q\x00}(X\x01\x00\x00\x00"
                "ah\x00ub"s) == "bad-archive");  // a cycle
  CHECK(code_of([] { read_pickle("\x80\x02K", "a pickle"); }) == "bad-archive");
}

Source parsed(const std::string& text) { return parse_source(text, "__torch__.m"); }
std::vector<Statement> body_of(const std::string& statements) {
  return parsed("def f(x: Tensor,\n    n: int=3) -> Tensor:\n" + statements).functions.at("f").body;
}

TEST_CASE("parser: functions and parameters") {
  const Source s = parsed("def f(x: Tensor,\n    n: Optional[int]=None) -> Tensor:\n  return x\n");
  const Function& f = s.functions.at("f");
  REQUIRE(f.parameters.size() == 2);
  CHECK(f.parameters[1].name == "n");
  CHECK(f.parameters[1].default_value->kind == EK::kNone);
  CHECK(f.body.at(0).kind == SK::kReturn);
}

TEST_CASE("parser: classes") {
  const Source s = parsed(
      "class M(Module):\n  __parameters__ = [\"w\", ]\n  w : Tensor\n  n : Final[int] = 3\n"
      "  __annotations__[\"0\"] = __torch__.a.B\n  def forward(self: __torch__.m.M) -> int:\n    return 1\n"
      "class E(Enum):\n  A = 1\n");
  const Class& m = s.classes.at("M");
  CHECK(m.name == "__torch__.m.M");
  CHECK(m.parameters == std::vector<std::string>{"w"});
  CHECK(m.attributes.back().first == "0");
  CHECK(m.constants.at("n").integer == 3);
  CHECK(m.methods.contains("forward"));
  CHECK(s.classes.at("E").constants.at("A").integer == 1);
}

TEST_CASE("parser: statements") {
  const auto body = body_of(
      "  a, b, = x\n  c, = x\n  c0, d = a, b\n  self.n = 1\n  if n:\n    pass\n  else:\n    y = 1\n"
      "  for i in range(3):\n    z = i\n  while c:\n    c = False\n  v : List[int] = [1]\n  return x\n");
  REQUIRE(body.size() == 9);
  CHECK(body[0].targets == std::vector<std::string>{"a", "b"});
  CHECK(body[1].unpacks);
  CHECK(body[2].value.kind == EK::kTuple);
  CHECK(body[3].kind == SK::kAttribute);
  CHECK(body[4].body.empty());
  CHECK(body[4].otherwise.size() == 1);
  CHECK(body[5].kind == SK::kFor);
  CHECK(body[6].kind == SK::kWhile);
  CHECK(body[7].targets == std::vector<std::string>{"v"});
}

TEST_CASE("parser: expressions") {
  const auto value = [](const std::string& text) { return body_of("  y = " + text + "\n").at(0).value; };
  CHECK(value("\"a\\n\\\"\\033\\x41\"").text == "a\n\"\033A");
  CHECK(value("-3").kind == EK::kNegative);
  CHECK(value("1.0000000000000001e-05").number == 1e-5);
  CHECK(value("9223372036854775807").integer == INT64_MAX);
  CHECK(value("(x)[0]").kind == EK::kIndex);
  CHECK(value("(1,)").kind == EK::kTuple);
  CHECK(value("()").items.empty());
  CHECK(value("{\"a\": 1, \"b\": 2}").items.size() == 4);
  const Expression call = value("torch.add(x, 1, alpha=2)");
  CHECK(call.names == std::vector<std::string>{"", "", "alpha"});
  CHECK(value("(self).forward(x, )").items.size() == 2);
  CHECK(value("[1, 2,\n    3]").items.size() == 3);
}

TEST_CASE("parser: what is not a source is refused with its line") {
  for (const std::string& text :
       {"def f(:\n", "def f(x)\n", "class M(Module):\n", "x = 1\n", "def f() -> int:\n  y = \"a\n",
        "def f() -> int:\n    return 1\n  return 2\n", "def f() -> int:\n  y = 1 $ 2\n",
        "def f() -> int:\n  y = 99999999999999999999\n", "def f() -> int:\n  f(1) = 2\n"})
    CHECK(code_of([&] { parsed(text); }) == "bad-source");
  CHECK(code_of([] { body_of("  y = " + std::string(100'000, '(') + "\n"); }) == "bad-source");
  CHECK(code_of([] { body_of("  y = " + std::string(100'000, '-') + "1\n"); }) == "bad-source");
  CHECK(code_of([] { body_of("  y = x" + std::string(1000, '.') + "\n"); }) == "bad-source");
}

TEST_CASE("--shape: forms of a type") {
  using frontend::parse_input_shape;
  const auto read = [](const std::string& text) {
    const frontend::InputShape shape = parse_input_shape(text);
    return shape.name + " " + frontend::to_string(shape);
  };
  CHECK(read("image=batch,3,h,w") == "image f32[batch,3,h,w]");
  CHECK(read("image=1x3x224x224") == "image f32[1,3,224,224]");
  CHECK(read("ids=i64[batch, time]") == "ids i64[batch,time]");
  CHECK(read("past.0=[4]") == "past.0 f32[4]");
  CHECK(read("s=f16[]") == "s f16[]");
  CHECK(read("x=hxw") == "x f32[hxw]");  // a name: 'x' separates numbers alone
  for (const std::string& bad :
       {"image", "=1", "a=", "a=1,,2", "a=-1", "a=f32[1", "a=q32[1]", "a=1 2", "a=99999999999999999999"})
    CHECK(code_of([&] { parse_input_shape(bad); }) == "bad-shape");
}

}  // namespace
}  // namespace stridec::torchscript
