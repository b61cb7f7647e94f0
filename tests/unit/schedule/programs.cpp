#include "tests/unit/schedule/programs.h"

#include <cmath>
#include <random>
#include <utility>

#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/verify.h"

namespace stridec::testing {

using namespace loop;
using sym::Expr;

Pieces::Pieces(std::string name) : n(sym::var("n")), m(sym::var("m")) {
  program.name = std::move(name);
  for (Expr s : {n, m}) program.facts.set_range(s, 0, 1 << 20);
}

View Pieces::input(const std::string& name, std::vector<Expr> shape, DType dtype) {
  Buffer buffer{.name = name, .dtype = dtype, .shape = std::move(shape), .storage = Storage::kInput};
  buffer.ordinal = static_cast<int>(program.inputs.size());
  for (size_t d = 0; d < buffer.shape.size(); ++d)
    for (Expr s : {n, m}) {
      const bool bound = std::any_of(program.symbols.begin(), program.symbols.end(),
                                     [&](const Symbol& symbol) { return symbol.var == s; });
      if (buffer.shape[d] == s && !bound)
        program.symbols.push_back({.var = s, .input = buffer.ordinal, .dim = static_cast<int>(d)});
    }
  program.inputs.push_back(add_buffer(program, std::move(buffer)));
  return whole(program, program.inputs.back());
}

View Pieces::weight(const std::string& name, const std::vector<int64_t>& shape, uint32_t seed) {
  Buffer buffer{.name = name, .dtype = DType::kF32, .storage = Storage::kParameter};
  int64_t count = 1;
  for (int64_t d : shape) buffer.shape.push_back(d), count *= d;
  auto data = std::make_shared<std::vector<float>>(static_cast<size_t>(count));
  std::mt19937 random(seed);
  for (float& f : *data) f = std::uniform_real_distribution<float>(-1, 1)(random);
  buffer.weight = {data, reinterpret_cast<const uint8_t*>(data->data()), data->size() * sizeof(float)};
  return whole(program, add_buffer(program, std::move(buffer)));
}

View Pieces::temporary(const std::string& name, std::vector<Expr> shape, DType dtype) {
  return whole(program, add_buffer(program, {.name = name, .dtype = dtype, .shape = std::move(shape)}));
}

void Pieces::output(const std::string& name, const View& value) {
  Buffer buffer{.name = name, .dtype = value.dtype, .shape = value.shape, .storage = Storage::kOutput};
  buffer.ordinal = static_cast<int>(program.outputs.size());
  program.outputs.push_back(add_buffer(program, std::move(buffer)));
  const View to = whole(program, program.outputs.back());
  NestBuilder nest(program, name);
  const auto at = nest.dims(value.shape);
  nest.store(to, at, nest.load(value, at));
  nest.finish();
}

View Pieces::map(const std::string& name, const std::vector<View>& operands, const Function& f, DType dtype) {
  const View out = temporary(name, operands[0].shape, dtype);
  NestBuilder nest(program, name);
  const auto at = nest.dims(out.shape);
  std::vector<Value> values;
  for (const View& operand : operands)
    values.push_back(nest.load(expand(operand, out.shape, program.facts), at));
  nest.store(out, at, f(values));
  nest.finish();
  return out;
}

View Pieces::reduce_last(const View& x, Combine combine) {
  std::vector<Expr> shape = x.shape;
  const Expr length = shape.back();
  shape.back() = 1;
  const View out = temporary(cat("reduce", program.nests.size()), shape);
  NestBuilder nest(program, std::string(name(combine)));
  auto at = nest.dims({shape.begin(), shape.end() - 1});
  const Value sum = nest.reduce(combine, {length}, [&](const std::vector<Expr>& k) {
    auto full = at;
    full.push_back(k[0]);
    return nest.load(x, full);
  });
  at.push_back(0);
  nest.store(out, at, sum);
  nest.finish();
  return out;
}

View Pieces::reduce_first(const View& x) {
  const View out = temporary(cat("columns", program.nests.size()), {x.shape.begin() + 1, x.shape.end()});
  NestBuilder nest(program, "column_sum");
  const auto at = nest.dims(out.shape);
  const Value sum = nest.reduce(Combine::kSum, {x.shape[0]}, [&](const std::vector<Expr>& k) {
    std::vector<Expr> full = {k[0]};
    full.insert(full.end(), at.begin(), at.end());
    return nest.load(x, full);
  });
  nest.store(out, at, sum);
  nest.finish();
  return out;
}

View Pieces::softmax(const View& x) {
  const View largest = reduce_last(x, Combine::kMax);
  const View shifted = map("shift", {x, largest}, [](auto v) { return v[0] - v[1]; });
  const View e = map("exp", {shifted}, [](auto v) { return unary(ScalarOp::kExp, v[0]); });
  const View total = reduce_last(e, Combine::kSum);
  return map("divide", {e, total}, [](auto v) { return v[0] / v[1]; });
}

View Pieces::matmul(const View& a, const View& b) {
  const View out = temporary(cat("product", program.nests.size()), {a.shape[0], b.shape[1]});
  NestBuilder nest(program, "matmul");
  const auto at = nest.dims(out.shape);
  const Value sum = nest.reduce(Combine::kSum, {a.shape[1]}, [&](const std::vector<Expr>& k) {
    return nest.load(a, {at[0], k[0]}) * nest.load(b, {k[0], at[1]});
  });
  nest.store(out, at, sum);
  nest.finish();
  return out;
}

View Pieces::product(const View& x, int64_t depth, int64_t columns, uint32_t seed) {
  return matmul(x, weight(cat("w", seed), {depth, columns}, seed));
}

View Pieces::concat(const std::vector<View>& parts) {
  Expr width = 0;
  for (const View& part : parts) width += part.shape[1];
  const View out = temporary(cat("concat", program.nests.size()), {parts[0].shape[0], width});
  Expr offset = 0;
  for (const View& part : parts) {
    const View into = slice(out, 1, offset, part.shape[1], 1);
    NestBuilder nest(program, "copy");
    const auto at = nest.dims(part.shape);
    nest.store(into, at, nest.load(part, at));
    nest.finish();
    offset += part.shape[1];
  }
  return out;
}

View Pieces::gather(const View& table, const View& ids) {
  const View out = temporary(cat("gather", program.nests.size()), {ids.shape[0], table.shape[1]});
  NestBuilder nest(program, "gather");
  const auto at = nest.dims(out.shape);
  Bind options;
  options.wrap_negative = true;
  options.sentence = "index {0} is outside {1} rows";
  const Expr row = nest.bind(nest.load(ids, {at[0]}), table.shape[0], options);
  nest.store(out, at, nest.load(table, {row, at[1]}));
  nest.finish();
  return out;
}

View permute_copy(Pieces& pieces, const View& x) {
  const View turned = permute(x, {1, 0});
  const View out = pieces.temporary(cat("transposed", pieces.program.nests.size()), turned.shape);
  NestBuilder nest(pieces.program, "transpose");
  const auto at = nest.dims(out.shape);
  nest.store(out, at, nest.load(turned, at));
  nest.finish();
  return out;
}

Pieces random_program(uint32_t seed) {
  std::mt19937 random(seed);
  Pieces p(cat("random", seed));
  // All values are [n, 4]; results of other shapes are converted back.
  std::vector<View> values = {p.input("x", {p.n, 4}), p.input("y", {p.n, 4})};
  const View square = p.input("w", {4, 4}), row = p.input("row", {4});
  auto pick = [&]() -> const View& { return values[random() % values.size()]; };
  const int count = 3 + static_cast<int>(random() % 8);
  for (int i = 0; i < count; ++i) {
    switch (random() % 9) {
      case 0: values.push_back(p.map("add", {pick(), pick()}, [](auto v) { return v[0] + v[1]; })); break;
      case 1: values.push_back(p.map("scale", {pick(), row}, [](auto v) { return v[0] * v[1]; })); break;
      case 2:
        values.push_back(p.map("tanh", {pick()}, [](auto v) { return unary(ScalarOp::kTanh, v[0]); }));
        break;
      case 3: values.push_back(p.softmax(pick())); break;
      case 4: values.push_back(p.matmul(pick(), square)); break;
      case 5: {
        const View stat = p.reduce_last(pick(), random() % 2 ? Combine::kSum : Combine::kMax);
        values.push_back(p.map("centre", {pick(), stat}, [](auto v) { return v[0] - v[1]; }));
        break;
      }
      case 6: {
        const View column = p.reduce_first(pick());
        values.push_back(p.map("shift", {pick(), column}, [](auto v) { return max(v[0], v[1]); }));
        break;
      }
      case 7: values.push_back(permute(permute_copy(p, pick()), {1, 0})); break;
      case 8: {
        const View joined = p.concat({pick(), pick()});
        values.push_back(slice(joined, 1, 2, 4, 1));
        break;
      }
    }
  }
  const int outputs = 1 + static_cast<int>(random() % 2);
  for (int i = 0; i < outputs; ++i)
    p.output(cat("out", i), values[values.size() - 1 - static_cast<size_t>(i)]);
  return p;
}

Program planes_of_products(int64_t in, int64_t out) {
  constexpr int64_t kPlanes = 6;
  Pieces p("planes");
  const Expr images = p.m, points = p.n - (kPlanes - 1);
  p.program.facts.set_range(images, 0, 64);
  p.program.facts.set_range(p.n, kPlanes, 4096);
  const View x = p.input("x", {images, p.n, in}), w = p.weight("w", {kPlanes, in, out}, 3),
             v = p.temporary("v", {kPlanes, images, points, in}),
             m = p.temporary("products", {kPlanes, images, points, out}),
             y = p.temporary("y", {images, points, out});
  {
    NestBuilder nest(p.program, "spread");
    const std::vector<Expr> at = nest.dims({images, points, in});
    for (int64_t q = 0; q < kPlanes; ++q)
      nest.store(
          v, {q, at[0], at[1], at[2]},
          nest.load(x, {at[0], at[1] + q, at[2]}) - nest.load(x, {at[0], at[1] + (q + 2) % kPlanes, at[2]}));
    nest.finish();
  }
  {
    NestBuilder nest(p.program, "product");
    const std::vector<Expr> at = nest.dims({kPlanes, images, points, out});
    const Value sum = nest.reduce(Combine::kSum, {in}, [&](const std::vector<Expr>& k) {
      return nest.load(v, {at[0], at[1], at[2], k[0]}) * nest.load(w, {at[0], k[0], at[3]});
    });
    nest.store(m, at, sum);
    nest.finish();
  }
  NestBuilder nest(p.program, "gather");
  const std::vector<Expr> at = nest.dims({images, points, out});
  Value sum = nest.index_value(at[1], DType::kF32);
  for (int64_t q = 0; q < kPlanes; ++q) sum = sum + nest.load(m, {q, at[0], at[1], at[2]});
  nest.store(y, at, sum);
  nest.finish();
  p.output("out", y);
  return p.program;
}

Program convolutions(int64_t width, int64_t in, const std::vector<Layer>& layers) {
  Pieces p("convolutions");
  p.program.facts.set_range(p.m, 0, 64);
  p.program.facts.set_range(p.n, 5, 4096);
  std::vector<View> made = {p.input("x", {p.m, p.n, width, in})};
  for (const Layer& layer : layers) {
    const std::string number = std::to_string(made.size());
    const View& x = layer.from < 0 ? made.back() : made[static_cast<size_t>(layer.from)];
    const View w = p.weight("w" + number, {layer.out, layer.taps, layer.taps, *sym::as_const(x.shape[3])}, 7);
    const View padded =
        *pad(x, {0, layer.pad, layer.pad, 0}, {0, layer.pad, layer.pad, 0}, float_scalar(DType::kF32, 0));
    const auto size = [&](Expr e) {
      return sym::floordiv(e + 2 * layer.pad - (layer.taps - 1) * layer.dilation - 1, layer.stride) + 1;
    };
    const std::vector<Expr> shape = {p.m, size(x.shape[1]), size(x.shape[2]), layer.out};
    View y;
    if (made.size() < layers.size()) {
      y = p.temporary("t" + number, shape);
    } else {
      p.program.outputs = {add_buffer(
          p.program,
          {.name = "out", .dtype = DType::kF32, .shape = shape, .storage = Storage::kOutput, .ordinal = 0})};
      y = whole(p.program, p.program.outputs[0]);
    }
    NestBuilder nest(p.program, "conv" + number);
    const std::vector<Expr> at = nest.dims(y.shape);
    Value sum =
        nest.reduce(Combine::kSum, {x.shape[3], layer.taps, layer.taps}, [&](const std::vector<Expr>& k) {
          return nest.load(padded, {at[0], at[1] * layer.stride + k[1] * layer.dilation,
                                    at[2] * layer.stride + k[2] * layer.dilation, k[0]}) *
                 nest.load(w, {at[3], k[1], k[2], k[0]});
        });
    if (layer.adds >= 0) sum = sum + nest.load(made[static_cast<size_t>(layer.adds)], at);
    nest.store(y, at, max(sum, nest.constant(DType::kF32, 0)));
    nest.finish();
    made.push_back(y);
  }
  return p.program;
}

Program with_first_nest_replaced(
    Program program, const std::function<std::vector<loop::Nest>(Program&, const loop::Nest&)>& parts_of) {
  bool first = true;
  loop::replace_nests(program, [&](const loop::Nest& nest) {
    return std::exchange(first, false) ? parts_of(program, nest) : std::vector<loop::Nest>();
  });
  loop::verify(program);
  return program;
}

std::vector<HostTensor> random_inputs(const Program& program, const Bindings& sizes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<HostTensor> inputs;
  for (BufferId id : program.inputs) {
    std::vector<int64_t> shape;
    for (Expr dim : program[id].shape)
      shape.push_back(*sym::evaluate(dim, [&](Expr v) -> std::optional<int64_t> { return sizes.at(v); }));
    HostTensor tensor = make_tensor(program[id].dtype, shape);
    for (int64_t i = 0; i < element_count(tensor); ++i)
      set_number(tensor, i,
                 is_float(tensor.dtype) ? std::uniform_real_distribution<double>(-2, 2)(random)
                                        : static_cast<double>(random() % 4));
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

bool close(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b, double relative) {
  if (a.size() != b.size()) return false;
  for (size_t o = 0; o < a.size(); ++o) {
    if (a[o].shape != b[o].shape || a[o].dtype != b[o].dtype) return false;
    for (int64_t i = 0; i < element_count(a[o]); ++i) {
      const double x = get_number(a[o], i), y = get_number(b[o], i);
      if (std::isnan(x) && std::isnan(y)) continue;
      if (!(std::abs(x - y) <= relative * std::max(1.0, std::abs(x)))) return false;
    }
  }
  return true;
}

bool same_results(const Program& before, const Program& after, const Bindings& sizes, uint32_t seed) {
  const auto inputs = random_inputs(before, sizes, seed);
  return close(interpret(before, inputs, {.poison = true}),
               interpret(after, inputs, {.poison = true, .planned = true}), 1e-5);
}

}  // namespace stridec::testing
