#include "compiler/base/diagnostic.h"

#include <doctest/doctest.h>

#include "compiler/base/check.h"
#include "compiler/base/dtype.h"

using namespace stridec;

TEST_CASE("a diagnostic renders what, where and what to do") {
  Diagnostic d{
      .kind = ErrorKind::kUnsupported, .code = "unsupported-op", .message = "operator 'x' is unknown"};
  d.where = {.file = "m.onnx", .node = "node 4 'head'", .op = {}, .tensor = {}};
  d.notes = {"inputs  boxes f32[batch,4]"};
  d.help = "cut the graph there";
  CHECK(render(d) ==
        "error[unsupported-op]: operator 'x' is unknown\n"
        "  --> m.onnx, node 4 'head'\n"
        "      inputs  boxes f32[batch,4]\n"
        "  help: cut the graph there\n");
}

TEST_CASE("a broken invariant is an internal error and evaluates its detail only then") {
  int evaluated = 0;
  auto detail = [&] { return ++evaluated, std::string("the IR"); };
  STRIDEC_CHECK(true, detail());
  CHECK(evaluated == 0);
  try {
    STRIDEC_CHECK(1 == 2, detail());
    FAIL("not reached");
  } catch (const Error& e) {
    CHECK(e.diagnostic.kind == ErrorKind::kInternal);
    CHECK(e.diagnostic.message == "this is a defect of stridec: 1 == 2 does not hold");
    CHECK(e.diagnostic.notes.back() == "the IR");
  }
}

TEST_CASE("every dtype parses back from its name and its ONNX number, but for tf32, which files have not") {
#define STRIDEC_DTYPE(id, ...)                        \
  CHECK(parse_dtype(name(DType::id)) == DType::id); \
  CHECK((dtype_from_onnx(info(DType::id).onnx_type) == DType::id || DType::id == DType::kTF32));
#include "compiler/base/dtype.def"
#undef STRIDEC_DTYPE
  CHECK(!parse_dtype("f33"));
}
