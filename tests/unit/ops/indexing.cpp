#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/term.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using graph::OpKind;
using Ids = std::vector<ValueId>;

TEST_CASE("gather along a dim, with batch dims, negative indices, empty indices") {
  const HostTensor x = sample(DType::kF32, {3, 4, 5});
  auto wrap = [](double i, int64_t n) { return i < 0 ? int64_t(i) + n : int64_t(i); };
  for (DType dtype : {DType::kI64, DType::kI32, DType::kU8}) {
    const HostTensor i =
        tensor(dtype, {2, 2},
               dtype == DType::kU8 ? std::vector<double>{0, 3, 1, 1} : std::vector<double>{0, -1, 1, -4});
    check({.name = "gather",
           .inputs = {x, i},
           .build = [](Builder& b, const Ids& in) { return Ids{ops::gather(b, in[0], in[1], 1)}; },
           .expected = {compute(DType::kF32, {3, 2, 2, 5}, [&](const At& o) {
             return at(x, {o[0], wrap(at(i, {o[1], o[2]}), 4), o[3]});
           })}});
  }
  const HostTensor i = tensor(DType::kI64, {3, 2}, {0, 1, 2, 3, -1, -2});
  check({.name = "gather with batch dims",
         .inputs = {x, i},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::gather(b, in[0], in[1], 1, 1)}; },
         .expected = {compute(DType::kF32, {3, 2, 5}, [&](const At& o) {
           return at(x, {o[0], wrap(at(i, {o[0], o[1]}), 4), o[2]});
         })}});
  check({.name = "gather of one known index is a view",
         .inputs = {x, tensor(DType::kI64, {}, {-1})},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::gather(b, in[0], in[1], 2)}; },
         .expected = {compute(DType::kF32, {3, 4}, [&](const At& o) { return at(x, {o[0], o[1], 4}); })},
         .constant = {1}});
  check({.name = "gather of nothing",
         .inputs = {x, tensor(DType::kI64, {0}, {})},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::gather(b, in[0], in[1], 0)}; },
         .expected = {compute(DType::kF32, {0, 4, 5}, [](const At&) { return 0.0; })}});
  const Case outside{.name = "",
                     .inputs = {x, tensor(DType::kI64, {1}, {4})},
                     .build =
                         [](Builder& b, const Ids& in) {
                           b.set_origin("node 7 'lookup'");
                           return Ids{ops::gather(b, in[0], in[1], 1)};
                         },
                     .expected = {}};
  CHECK(failure(outside, false) == "node 7 'lookup': gather: index 4 is outside a dim of size 4");
  CHECK(failure(outside, true) == "node 7 'lookup': gather: index 4 is outside a dim of size 4");
}

TEST_CASE("gather and scatter of elements") {
  const HostTensor x = sample(DType::kF32, {3, 4}), i = tensor(DType::kI64, {2, 3}, {0, 1, -1, 3, 2, -4}),
                   u = sample(DType::kF32, {2, 3}, 9);
  auto column = [&](const At& o) { return int64_t(at(i, o)) + (at(i, o) < 0 ? 4 : 0); };
  check({.name = "gather_elements",
         .inputs = {x, i},
         .build =
             [](Builder& b, const Ids& in) {
               return Ids{b.add1(OpKind::kGatherElements, {in[0], in[1]}, {{"dim", int64_t{1}}})};
             },
         .expected = {compute(DType::kF32, {2, 3}, [&](const At& o) { return at(x, {o[0], column(o)}); })}});
  const HostTensor same = tensor(DType::kI64, {2, 3}, {0, 0, 0, 1, 2, 1});
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    const std::string r = reduction;
    const HostTensor& indices = r == "none" ? i : same;
    HostTensor want = x;
    for_each({2, 3}, [&](const At& o) {
      const int64_t c = int64_t(at(indices, o)) + (at(indices, o) < 0 ? 4 : 0), flat = o[0] * 4 + c;
      const double old = get_number(want, flat), v = at(u, o);
      set_number(want, flat,
                 r == "none"  ? v
                 : r == "add" ? old + v
                 : r == "mul" ? old * v
                 : r == "max" ? std::max(old, v)
                              : std::min(old, v));
    });
    check({.name = "scatter_elements " + r,
           .inputs = {x, indices, u},
           .build =
               [r](Builder& b, const Ids& in) {
                 return Ids{b.add1(OpKind::kScatterElements, {in[0], in[1], in[2]},
                                   {{"dim", int64_t{1}}, {"reduction", r}})};
               },
           .expected = {want}});
  }
}

TEST_CASE("gather_nd and scatter_nd") {
  const HostTensor x = sample(DType::kF32, {3, 4, 2}), i = tensor(DType::kI64, {3, 2}, {0, 1, 2, -1, 0, 1});
  check({.name = "gather_nd",
         .inputs = {x, i},
         .build = [](Builder& b, const Ids& in) { return Ids{b.add1(OpKind::kGatherNd, {in[0], in[1]})}; },
         .expected = {compute(DType::kF32, {3, 2},
                              [&](const At& o) {
                                return at(x, {int64_t(at(i, {o[0], 0})), (int64_t(at(i, {o[0], 1})) + 4) % 4,
                                              o[1]});
                              })},
         .fixed = {1}});
  check({.name = "gather_nd with a batch dim",
         .inputs = {x, tensor(DType::kI64, {3, 1}, {3, 0, -2})},
         .build =
             [](Builder& b, const Ids& in) {
               return Ids{b.add1(OpKind::kGatherNd, {in[0], in[1]}, {{"batch_dims", int64_t{1}}})};
             },
         .expected = {compute(DType::kF32, {3, 2},
                              [&](const At& o) {
                                return at(x, {o[0], o[0] == 0 ? 3 : o[0] == 1 ? 0 : 2, o[1]});
                              })},
         .fixed = {1}});
  const HostTensor u = sample(DType::kF32, {3, 2}, 4);
  HostTensor want = x;
  for_each({3, 2}, [&](const At& o) {
    const int64_t row = int64_t(at(i, {o[0], 0})), column = (int64_t(at(i, {o[0], 1})) + 4) % 4,
                  flat = (row * 4 + column) * 2 + o[1];
    set_number(want, flat, get_number(want, flat) + at(u, o));
  });
  check({.name = "scatter_nd adds duplicates",
         .inputs = {x, i, u},
         .build =
             [](Builder& b, const Ids& in) {
               return Ids{
                   b.add1(OpKind::kScatterNd, {in[0], in[1], in[2]}, {{"reduction", std::string("add")}})};
             },
         .expected = {want},
         .fixed = {1}});
}

TEST_CASE("constant indices are judged while building: refused, or a guard on the size that they need") {
  graph::Graph g;
  Builder b(g, ops::shape_table());
  const sym::Expr n = sym::var("n");
  const ValueId x = b.input("x", {DType::kF32, {n, 4}}), u = b.input("u", {DType::kF32, {2, 2}});
  auto message = [&](OpKind kind, const std::vector<sym::Expr>& indices, DType dtype = DType::kI64) {
    std::vector<ValueId> inputs = {x, b.elements(indices, {2, 2}, dtype)};
    graph::Attributes attributes;
    if (kind == OpKind::kScatterElements) inputs.push_back(u);
    if (kind == OpKind::kScatterNd)
      inputs.push_back(b.add1(OpKind::kReduceSum, {u}, {{"dims", ops::Dims{1}}}));
    if (kind != OpKind::kGatherNd && kind != OpKind::kScatterNd) attributes.set("dim", int64_t{1});
    try {
      b.add(kind, inputs, attributes);
      return std::string();
    } catch (const Error& error) {
      return error.diagnostic.message;
    }
  };
  for (OpKind kind : {OpKind::kGather, OpKind::kGatherElements, OpKind::kScatterElements, OpKind::kGatherNd,
                      OpKind::kScatterNd}) {
    const std::string name(graph::name(kind));
    CHECK(message(kind, {0, 3, 1, -4}) == "");
    CHECK(message(kind, {0, 4, 1, 0}) == name + ": index 4 is outside a dim of size 4");
    CHECK(message(kind, {0, 0, 1, -5}) == name + ": index -5 is outside a dim of size 4");
    CHECK(message(kind, {0, -1, 1, 0}, DType::kU64) == name + ": index -1 is outside a dim of size 4");
  }
  CHECK(b.holds(sym::ge(n, 2)));  // the tuples address rows 0 and 1
}

TEST_CASE("nonzero binds its size during the run, and what follows uses it") {
  const HostTensor x = tensor(DType::kF32, {2, 3}, {0, 1, 0, 2, 0, 3});
  auto build = [](Builder& b, const Ids& in) {
    const graph::Shape shape = b.shape(in[0]);
    const sym::Expr count = b.fresh_symbol("nonzero", 0, shape[0] * shape[1]);
    const ValueId where = b.add1(OpKind::kNonZero, {in[0]}, {{"count", count}});
    const ValueId picked = b.add1(OpKind::kGatherNd, {in[0], ops::permute(b, where, {1, 0})});
    return Ids{where, ops::add(b, picked, 1.0), ops::size_tensor(b, {count})};
  };
  check({.name = "nonzero",
         .inputs = {x},
         .build = build,
         .expected = {tensor(DType::kI64, {2, 3}, {0, 1, 1, 1, 0, 2}), tensor(DType::kF32, {3}, {2, 3, 4}),
                      tensor(DType::kI64, {1}, {3})}});
  check({.name = "nonzero of one element that is zero",  // the only index in range must not be written
         .inputs = {tensor(DType::kF32, {1, 1}, {0})},
         .build = build,
         .expected = {tensor(DType::kI64, {2, 0}, {}), tensor(DType::kF32, {0}, {}),
                      tensor(DType::kI64, {1}, {0})}});
  check({.name = "nonzero of nothing",
         .inputs = {tensor(DType::kF32, {2, 0}, {})},
         .build = build,
         .expected = {tensor(DType::kI64, {2, 0}, {}), tensor(DType::kF32, {0}, {}),
                      tensor(DType::kI64, {1}, {0})}});
}

TEST_CASE("sizes from data are symbols of the run, checked where they are used") {
  const Case c{
      .name = "slice by data",
      .inputs = {sample(DType::kF32, {6}), tensor(DType::kI64, {1}, {4})},
      .build =
          [](Builder& b, const Ids& in) {
            b.set_origin("node 3 'crop'");
            const auto end = b.elements_of(in[1], "end", 0, 100);
            return Ids{ops::slice(b, in[0], 0, 0, end[0])};
          },
      .expected = {compute(DType::kF32, {4}, [](const At& i) { return at(sample(DType::kF32, {6}), i); })},
      .fixed = {1}};
  check(c);
  Case far = c;
  far.inputs[1] = tensor(DType::kI64, {1}, {7});
  CHECK(failure(far, false).starts_with("node 3 'crop': slice: "));
}
