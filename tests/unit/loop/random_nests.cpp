// Random nests: clean-up, renumbering, cloning and printing followed by parsing must not change results.
#include <doctest/doctest.h>

#include <random>

#include "compiler/base/text.h"
#include "compiler/loop/build.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"

using namespace stridec;
using namespace stridec::loop;
using sym::Expr;

namespace {

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {
    n_ = symbol("n", 0, 0);
    m_ = symbol("m", 0, 1);
    x_ = buffer(Storage::kInput, "x", DType::kF32, {n_, m_});
    k_ = buffer(Storage::kInput, "k", DType::kI32, {m_});
    y_ = buffer(Storage::kOutput, "y", DType::kF32, {n_, m_});
    z_ = buffer(Storage::kOutput, "z", DType::kF32, {n_});
    row_ = buffer(Storage::kLocal, "row", DType::kF32, {m_});
  }

  Program program() {
    NestBuilder b(program_, "random");
    Expr i = b.dim(n_);
    std::vector<Value> floats = {b.load(x_, {i, 0})};
    b.loop({m_}, [&](auto j) { b.store(row_, j, b.load(x_, {i, j[0]})); });
    for (int s = 0; s < 4; ++s) floats.push_back(statement(b, i, floats));
    b.store(z_, {i}, pick(floats));
    b.loop({m_}, [&](auto j) {
      std::vector<Value> inner = floats;
      inner.push_back(b.load(row_, j));
      for (int s = 0; s < 4; ++s) inner.push_back(scalar(b, i, j[0], inner));
      b.store(y_, {i, j[0]}, pick(inner));
    });
    b.finish();
    return program_;
  }

 private:
  Expr symbol(const char* name, int input, int dim) {
    Expr e = sym::var(name);
    program_.facts.set_range(e, 1, 100);
    program_.symbols.push_back({.var = e, .input = input, .dim = dim});
    return e;
  }
  View buffer(Storage storage, const char* name, DType dtype, std::vector<Expr> shape) {
    BufferId id = add_buffer(
        program_,
        {.name = name, .dtype = dtype, .shape = std::move(shape), .strides = {}, .storage = storage});
    if (storage == Storage::kInput) program_.inputs.push_back(id);
    if (storage == Storage::kOutput) program_.outputs.push_back(id);
    return whole(program_, id);
  }
  int roll(int sides) { return static_cast<int>(random_() % static_cast<unsigned>(sides)); }
  Value pick(const std::vector<Value>& values) {
    return values[static_cast<size_t>(roll(static_cast<int>(values.size())))];
  }

  Value scalar(NestBuilder& b, Expr i, Expr j, const std::vector<Value>& values) {
    switch (roll(9)) {
      case 0: return b.constant(DType::kF32, roll(3));
      case 1: return pick(values) + pick(values);
      case 2: return pick(values) * b.constant(DType::kF32, roll(3));
      case 3: return max(pick(values), pick(values));
      case 4: return b.cast(b.cast(pick(values), roll(2) ? DType::kF16 : DType::kF64), DType::kF32);
      case 5: {
        Value c = lt(b.index_value(i + roll(3)), b.index_value(roll(2) ? j + roll(2) : n_));
        return select(c, pick(values), pick(values));
      }
      case 6: {
        Access a = access(x_, {i, j - 1});
        a.mask = roll(2) ? sym::ge(j, 1) : sym::logical_and(sym::ge(j, 1), sym::lt(j, m_ - roll(2)));
        return b.load(a, float_scalar(DType::kF32, roll(2)));
      }
      case 7: {
        Value at = b.load(k_, {j});
        Bind::OutOfRange mode = roll(2) ? Bind::OutOfRange::kClamp : Bind::OutOfRange::kSkip;
        return b.load(x_, {i, b.bind(at, m_, {.wrap_negative = roll(2) == 0, .mode = mode})});
      }
      default: return b.load(row_, {roll(2) ? j : m_ - 1 - j});
    }
  }

  Value statement(NestBuilder& b, Expr i, std::vector<Value>& values) {
    switch (roll(4)) {
      case 0: {
        Combine c = roll(2) ? Combine::kSum : Combine::kMax;
        return b.reduce(c, {m_}, [&](auto j) {
          std::vector<Value> inner = values;
          inner.push_back(b.load(x_, {i, j[0]}));
          inner.push_back(scalar(b, i, j[0], inner));
          return pick(inner);
        });
      }
      case 1:
        return b.reduce(Combine::kMin, {roll(3), 2},
                        [&](auto r) { return b.load(x_, {i, sym::mod(r[0] + r[1], m_)}); });
      case 2:
        return b.scan(m_, roll(2), {pick(values)}, [&](Expr j, const std::vector<Value>& carried) {
          return std::vector<Value>{scalar(b, i, j, {carried[0], pick(values)})};
        })[0];
      default: return scalar(b, i, sym::mod(i, m_), values);
    }
  }

  std::mt19937 random_;
  Program program_;
  Expr n_, m_;
  View x_, k_, y_, z_, row_;
};

std::vector<std::vector<uint8_t>> outputs(const Program& program, int64_t n, int64_t m) {
  HostTensor x = make_tensor(DType::kF32, {n, m}), k = make_tensor(DType::kI32, {m});
  for (int64_t e = 0; e < n * m; ++e) set_number(x, e, static_cast<double>((e * 7) % 13 - 6) / 4);
  for (int64_t e = 0; e < m; ++e) set_number(k, e, static_cast<double>((e * 5) % 9 - 4));
  std::vector<std::vector<uint8_t>> out;
  for (HostTensor& t : interpret(program, {x, k}, {.poison = true})) out.push_back(std::move(t.bytes));
  return out;
}

}  // namespace

TEST_CASE("random nests mean the same after every rewriting") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Program program = Generator(seed).program();
    verify(program);
    auto expected = outputs(program, 5, 7), expected_one = outputs(program, 1, 1);
    std::string before = to_string(program);

    Program parsed = parse_program(before);
    CHECK(to_string(parsed) == before);

    Program cleaned = program;
    for (int round = 0; round < 2; ++round) {
      clean(cleaned, cleaned.nests[0]);
      CAPTURE(before);
      CAPTURE(to_string(cleaned));
      verify(cleaned);
      CHECK(outputs(cleaned, 5, 7) == expected);
      CHECK(outputs(cleaned, 1, 1) == expected_one);
    }
    renumber(cleaned.nests[0]);
    verify(cleaned);
    CHECK(outputs(cleaned, 5, 7) == expected);

    Program cloned = program;
    Nest copy = program.nests[0];
    Cloner cloner(copy);
    copy.body = cloner.clone(program.nests[0], program.nests[0].body);
    cloned.nests[0] = copy;
    CHECK(outputs(cloned, 5, 7) == expected);
  }
}
