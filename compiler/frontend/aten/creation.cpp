// Operators that make tensors: filled ones, ranges, triangles.
#include <cmath>

#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/bessel.h"
#include "compiler/ops/composite/creation.h"
#include "compiler/ops/composite/special.h"

namespace stridec::aten {
namespace {

using namespace ops;

bool complex_wanted(const Context& c) {
  return c.has("dtype") && c.arg("dtype").kind == Value::Kind::kDType && c.arg("dtype").complex_dtype;
}

DType wanted(const Context& c, DType otherwise) {
  if (complex_wanted(c)) c.unsupported("complex numbers are not supported here");
  return c.names("dtype") ? c.dtype("dtype").value_or(otherwise) : otherwise;
}

// The dtype of the tensor given as `self`, if there is one.
DType default_dtype(const Context& c) {
  if (c.names("self") && c.arg("self").is_tensor()) return c.in("self").dtype();
  return DType::kF32;
}

Shape shape_wanted(const Context& c) {
  Shape out = c.names("size") ? c.sizes("size") : c.in("self").shape();
  for (sym::Expr& dim : out) dim = c.b.simplify(dim);
  return out;
}

template <int value>
Results constant(Context& c) {
  return {filled(c.b, shape_wanted(c), wanted(c, default_dtype(c)), value)};
}
Results full(Context& c) {
  const Value& v = c.arg("fill_value");
  DType otherwise = c.names("self") && c.arg("self").is_tensor() ? c.in("self").dtype() : DType::kF32;
  if (!c.names("self")) otherwise = v.is_tensor() ? read(c.b, v.tensor).dtype() : dtype_of_number(v);
  if (!c.names("self") && v.is_tensor() && is_float(otherwise)) otherwise = DType::kF32;
  const DType to = wanted(c, otherwise);
  return {expand(scalar_of(c.b, v, to), shape_wanted(c))};
}
Results scalar_tensor(Context& c) {
  const Value& v = c.arg("s");
  DType otherwise = v.is_tensor() ? read(c.b, v.tensor).dtype() : dtype_of_number(v);
  if (is_float(otherwise)) otherwise = DType::kF32;
  return {scalar_of(c.b, v, wanted(c, otherwise))};
}

bool is_whole(const Value& v) { return v.kind == Value::Kind::kInt || v.kind == Value::Kind::kBool; }

// The integer that a number is, whatever its type; none if it is another one or not known at compile time.
std::optional<int64_t> whole_number(const Context& c, const Value& v) {
  if (v.kind == Value::Kind::kFloat) {
    const auto n = static_cast<int64_t>(v.number);
    return static_cast<double>(n) == v.number ? std::optional(n) : std::nullopt;
  }
  const sym::Expr e = c.b.simplify(v.integer);
  return is_whole(v) && e.is_const() ? std::optional(e.value()) : std::nullopt;
}
bool known(const Context& c, const Value& start, const Value& end) {
  const auto is_known = [&](const Value& v) {
    return v.kind == Value::Kind::kFloat || (is_whole(v) && c.b.simplify(v.integer).is_const());
  };
  return is_known(start) && is_known(end);
}
// A bound of a range with a size that only the run knows.
sym::Expr whole_size(const Context& c, const Value& v) {
  if (is_whole(v)) return v.integer;
  const auto n = whole_number(c, v);
  if (!n) c.unsupported("arange of floats whose bounds are not known at compile time");
  return *n;
}

Results arange(Context& c) {
  const Value none = Value::integer_of(0), one = Value::integer_of(1);
  const Value& start = c.names("start") ? c.arg("start") : none;
  const Value& step = c.names("step") ? c.arg("step") : one;
  const Value& end = c.arg("end");
  const bool whole = is_whole(start) && is_whole(step) && is_whole(end);
  const DType to = wanted(c, whole ? DType::kI64 : DType::kF32);
  sym::Expr count = 0;
  if (whole) {
    const sym::Expr by = c.b.simplify(step.integer);
    if (!by.is_const() || by.is_const(0))
      c.unsupported("arange with a step that is not known at compile time");
    const sym::Expr length = by.value() > 0 ? sym::ceildiv(end.integer - start.integer, by)
                                            : sym::ceildiv(start.integer - end.integer, -by.value());
    count = c.b.holds(sym::ge(length, 0)) ? length : sym::max(length, 0);
  } else if (const auto by = whole_number(c, step); by && *by != 0 && !known(c, start, end)) {
    const sym::Expr length = *by > 0 ? sym::ceildiv(whole_size(c, end) - whole_size(c, start), *by)
                                     : sym::ceildiv(whole_size(c, start) - whole_size(c, end), -*by);
    count = c.b.holds(sym::ge(length, 0)) ? length : sym::max(length, 0);
  } else {
    const auto number = [&](const Value& v) -> double {
      if (v.kind == Value::Kind::kFloat) return v.number;
      const sym::Expr e = c.b.simplify(v.integer);
      if (!is_whole(v) || !e.is_const())
        c.unsupported("arange of floats whose bounds are not known at compile time");
      return static_cast<double>(e.value());
    };
    count = static_cast<int64_t>(std::max(std::ceil((number(end) - number(start)) / number(step)), 0.0));
  }
  const DType counted = is_float(to) && to != DType::kF64 ? DType::kF32 : to;
  if (is_bool(to)) c.unsupported("arange of bools");
  Term out = index_along(c.b, {c.b.simplify(count)}, 0, is_float(to) ? DType::kI64 : counted);
  if (is_float(to)) out = cast(out, counted, false);
  const auto is_number = [](const Value& v, int64_t n) {
    return (is_whole(v) && v.integer.is_const(n)) ||
           (v.kind == Value::Kind::kFloat && v.number == static_cast<double>(n));
  };
  if (!is_number(step, 1)) out = out * scalar_of(c.b, step, out.dtype());
  if (!is_number(start, 0)) out = out + scalar_of(c.b, start, out.dtype());
  return {cast(out, to, false)};
}

// Numbers at equal distances from start to end, which are rounded to the dtype first, in f32 or f64; integers
// are spaced in f64.
Term spaced(Context& c, DType to) {
  const sym::Expr steps = c.size("steps");
  const DType w = is_float(to) && to != DType::kF64 ? DType::kF32 : DType::kF64;
  const auto bound = [&](const char* name) {
    return cast(cast(c.scalar(name, is_float(to) ? w : DType::kI64), is_float(to) ? to : DType::kI64, false),
                w, false);
  };
  const Term start = bound("start"), end = bound("end");
  if (steps.is_const(1)) return expand(start, {1});
  // From both ends, as PyTorch: the last element is exactly `end`.
  const Term i = index_along(c.b, {steps}, 0, DType::kI64), back = size_as(c.b, DType::kI64, steps - 1) - i;
  const Term by = (end - start) / cast(size_as(c.b, DType::kI64, steps - 1), w, false);
  const Term low = cast(i, w, false) * by + start, high = end - cast(back, w, false) * by;
  return select(less(i, size_as(c.b, DType::kI64, sym::floordiv(steps, 2))), low, high);
}
Results linspace(Context& c) {
  const DType to = wanted(c, DType::kF32);
  if (is_bool(to)) c.unsupported("linspace of bools");
  return {cast(spaced(c, to), to, false)};
}
Results logspace(Context& c) {
  const DType to = wanted(c, DType::kF32);
  if (is_bool(to)) c.unsupported("logspace of bools");
  const Term exponent = spaced(c, to);
  const Term base = expand(number(c.b, exponent.dtype(), c.number("base")), exponent.shape());
  return {cast(pow(base, exponent), to, false)};
}

Results eye(Context& c) {
  const sym::Expr n = c.size("n"), m = c.names("m") ? c.size("m") : n;
  return {cast(ops::eye(c.b, {n, m}, 0), wanted(c, DType::kF32), false)};
}

template <bool upper>
Results triangle(Context& c) {
  const Term x = c.in("self");
  if (x.rank() < 2) c.does_not_fit("a matrix must have two dims");
  const Shape shape{x.dim(x.rank() - 2), x.dim(x.rank() - 1)};
  const Term row = index_along(c.b, shape, 0, DType::kI64) + scalar_of(c.b, c.arg("diagonal"), DType::kI64),
             column = index_along(c.b, shape, 1, DType::kI64);
  const Term keep = upper ? greater_equal(column, row) : less_equal(column, row);
  if (is_bool(x.dtype())) return {logical_and(x, keep)};
  return {select(keep, x, 0)};
}

// A window of signal processing: `formula` of the positions 0, 1, ... and of their number over a period.
template <class F>
Results window(Context& c, F&& formula) {
  const int64_t n = c.integer("window_length");
  const bool periodic = !c.names("periodic") || c.flag("periodic");
  const DType to = wanted(c, DType::kF32);
  if (n == 1) return {filled(c.b, {1}, to, 1)};
  const Term i = cast(index_along(c.b, {n}, 0, DType::kI64), to == DType::kF64 ? to : DType::kF32, false);
  return {cast(formula(i, static_cast<double>(periodic ? n : n - 1)), to, false)};
}
Term cosine(Term i, double step) { return apply(OpKind::kCos, i * step); }

Results hann_window(Context& c) {
  return window(c, [](Term i, double n) { return subtract_from(0.5, cosine(i, 2 * M_PI / n) * 0.5); });
}
Results hamming_window(Context& c) {
  const double alpha = c.names("alpha") ? c.number("alpha") : 0.54,
               beta = c.names("beta") ? c.number("beta") : 0.46;
  return window(c, [&](Term i, double n) { return subtract_from(alpha, cosine(i, 2 * M_PI / n) * beta); });
}
Results blackman_window(Context& c) {
  return window(c, [](Term i, double n) {
    return subtract_from(0.42, cosine(i, 2 * M_PI / n) * 0.5) + cosine(i, 4 * M_PI / n) * 0.08;
  });
}
Results bartlett_window(Context& c) {
  return window(c, [](Term i, double n) { return subtract_from(1, abs(i * (2 / n) - 1)); });
}
Results kaiser_window(Context& c) {
  const double beta = c.names("beta") ? c.number("beta") : 12;
  return window(c, [&](Term i, double n) {
    const auto bessel = [](Term x) { return scaled_bessel_i(x, 0) * exp(abs(x)); };
    const Term at = cast(i, DType::kF64, false) * (2 / n) - 1;
    const Term all = bessel(sqrt(maximum(subtract_from(1, square(at)), 0)) * beta);
    return cast(all / bessel(number_like(all, beta)), i.dtype(), false);
  });
}

// The frequencies of n samples that lie d apart: of a real transform from 0 on, of a complex one with the
// negative ones behind.
template <bool real>
Results fft_frequencies(Context& c) {
  const DType to = wanted(c, DType::kF32);
  const int64_t n = c.integer("n");
  const Term i = index_along(c.b, {real ? n / 2 + 1 : n}, 0, DType::kI64);
  const double length = static_cast<double>(n), behind = static_cast<double>((n + 1) / 2);
  const Term at = real ? i : select(less(i, behind), i, i - length);
  return {cast(at, to, false) * (1 / (length * c.number("d")))};
}

constexpr Row kRows[] = {
    {"arange", arange},
    {"bartlett_window", bartlett_window},
    {"blackman_window", blackman_window},
    {"empty", constant<0>},
    {"empty_like", constant<0>},
    {"empty_permuted", constant<0>},
    {"empty_strided", constant<0>},
    {"eye", eye},
    {"fft_fftfreq", fft_frequencies<false>},
    {"fft_rfftfreq", fft_frequencies<true>},
    {"full", full},
    {"full_like", full},
    {"hamming_window", hamming_window},
    {"hann_window", hann_window},
    {"kaiser_window", kaiser_window},
    {"linspace", linspace},
    {"logspace", logspace},
    {"new_empty", constant<0>},
    {"new_empty_strided", constant<0>},
    {"new_full", full},
    {"new_ones", constant<1>},
    {"new_zeros", constant<0>},
    {"ones", constant<1>},
    {"ones_like", constant<1>},
    {"scalar_tensor", scalar_tensor},
    {"tril", triangle<false>},
    {"triu", triangle<true>},
    {"zeros", constant<0>},
    {"zeros_like", constant<0>},
};

}  // namespace

std::span<const Row> creation_rows() { return kRows; }

}  // namespace stridec::aten
