"""The functions of tests/accuracy/run.py and the compositions of them that models use, with what they should give.

An exact value is computed in long double. The error of a value is relative to `scale`, which is the exact value itself unless rounded
intermediate results limit what a composition can give: 1 + erf(x) in floats is exact to an ulp of 1, however close to 0 it is.
"""
import dataclasses
import math
import typing

import numpy as np

L = np.longdouble
FINITE = (-1e37, np.inf)  # a product of minus infinity and 0 is NaN
ROOT_2 = math.sqrt(2)
TANH_A, TANH_B = math.sqrt(2 / math.pi), 0.044715


def erf(v):
    return np.vectorize(lambda x: L(math.erf(x)), otypes=[L])(v.astype(np.float64))


def erfc(v):
    return np.vectorize(lambda x: L(math.erfc(x)), otypes=[L])(v.astype(np.float64))


def sigmoid(v):
    e = np.exp(-np.abs(v))
    return np.where(v >= 0, 1, e) / (1 + e)


def softplus(v):
    return np.maximum(v, 0) + np.log1p(np.exp(-np.abs(v)))


def cdf(v):
    return erfc(-v / np.sqrt(L(2))) / 2


def times(v, share):
    """v * share, where share is 0 at minus infinity."""
    return np.where(np.isneginf(v), 0, v * share)


def gelu_tanh(v):
    return times(v, sigmoid(2 * L(TANH_A) * (v + L(TANH_B) * v**3)))


def softmax(v):
    e = np.exp(v - v.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_sum(v):
    most = v.max(-1, keepdims=True)
    return most + np.log(np.exp(v - most).sum(-1, keepdims=True))


def normalised(v):
    return (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + L(1e-5))


@dataclasses.dataclass
class Case:
    """`build(d, x)` appends nodes to a Drawing and returns the result's name. `f32`, `f64`: the largest error allowed."""

    name: str
    build: typing.Callable
    exact: typing.Callable
    f32: float
    f64: float
    domain: tuple = (-np.inf, np.inf)
    scale: typing.Callable = lambda v, exact: np.abs(exact)
    least: float = -np.inf  # of all results
    most: float = np.inf
    odd: bool = False  # no result has another sign than x
    rows: typing.Callable | None = None  # rng -> an input of rows, in place of points of the whole range


def op(kind, **attributes):
    return lambda d, x: d.add(kind, x, **attributes)


def one(v, exact):
    return np.maximum(np.abs(exact), 1)


def argument(v, exact):
    return np.maximum(np.abs(exact), np.abs(v))


def gelu_by(scale, of_x_first):
    """The five nodes that exporters write for x * (1 + erf(x / sqrt(2))) / 2, in their two orders."""

    def build(d, x):
        arg = d.add("Div", x, d.constant(ROOT_2)) if scale == "Div" else d.add("Mul", x, d.constant(1 / ROOT_2))
        sum_ = d.add("Add", d.add("Erf", arg), d.constant(1))
        half = d.constant(0.5)
        return d.add("Mul", d.add("Mul", x, half), sum_) if of_x_first else d.add("Mul", d.add("Mul", x, sum_), half)

    return build


def gelu_of_tanh(d, x):
    cube = d.add("Mul", d.add("Pow", x, d.constant(3)), d.constant(TANH_B))
    t = d.add("Tanh", d.add("Mul", d.add("Add", x, cube), d.constant(TANH_A)))
    return d.add("Mul", d.add("Mul", x, d.constant(0.5)), d.add("Add", t, d.constant(1)))


def tanh_of_exp(d, x):
    up, down = d.add("Exp", x), d.add("Exp", d.add("Neg", x))
    return d.add("Div", d.add("Sub", up, down), d.add("Add", up, down))


def layer_norm(d, x):
    axes = d.integers(-1)
    centred = d.add("Sub", x, d.add("ReduceMean", x, axes))
    variance = d.add("ReduceMean", d.add("Mul", centred, centred), axes)
    return d.add("Div", centred, d.add("Sqrt", d.add("Add", variance, d.constant(1e-5))))


def around(mean, spread):
    return lambda rng: rng.standard_normal((40, 64)) * spread + mean


def binary(kind, left, right):
    """`left` and `right`: functions of (d, x), or numbers."""

    def build(d, x):
        return d.add(kind, *(side(d, x) if callable(side) else d.constant(side) for side in (left, right)))

    return build


def of(kind, inner):
    return lambda d, x: d.add(kind, inner(d, x))


def itself(d, x):
    return x


CASES = [
    Case("exp", op("Exp"), np.exp, 9e-8, 1.7e-16, least=0),
    Case("log", op("Log"), np.log, 8.9e-8, 1.6e-16),
    Case("sqrt", op("Sqrt"), np.sqrt, 7.1e-8, 1.4e-16, least=0),
    Case("reciprocal", op("Reciprocal"), lambda v: 1 / v, 7e-8, 1.4e-16),
    Case("sin", op("Sin"), np.sin, 1.2e-7, 2.2e-16, domain=(-1e6, 1e6), least=-1, most=1),
    Case("cos", op("Cos"), np.cos, 1.4e-7, 2.3e-16, domain=(-1e6, 1e6), least=-1, most=1),
    Case("tan", op("Tan"), np.tan, 2.1e-7, 4.1e-16, domain=(-1e6, 1e6)),
    Case("asin", op("Asin"), np.arcsin, 7.1e-8, 4.2e-16, odd=True),
    Case("acos", op("Acos"), np.arccos, 7e-8, 2.3e-16, least=0),
    Case("atan", op("Atan"), np.arctan, 7.1e-8, 2.8e-16, odd=True),
    Case("sinh", op("Sinh"), np.sinh, 2.1e-7, 4e-16, odd=True),
    Case("cosh", op("Cosh"), np.cosh, 2.1e-7, 3.9e-16, least=1),
    Case("tanh", op("Tanh"), np.tanh, 1.7e-7, 4.2e-16, least=-1, most=1, odd=True),
    Case("asinh", op("Asinh"), np.arcsinh, 7e-8, 3.6e-16, odd=True),
    Case("acosh", op("Acosh"), np.arccosh, 7.1e-8, 3.6e-16, least=0),
    Case("atanh", op("Atanh"), np.arctanh, 7e-8, 3.4e-16, odd=True),
    Case("erf", op("Erf"), erf, 2.4e-7, 2.7e-16, least=-1, most=1, odd=True),
    Case("sigmoid", op("Sigmoid"), sigmoid, 1.8e-7, 3.6e-16, least=0, most=1),
    Case("x^2.5", binary("Pow", itself, 2.5), lambda v: v ** L(2.5), 7.1e-8, 1.8e-16),
    Case("x^-3", binary("Pow", itself, -3), lambda v: 1 / v**3, 7.1e-8, 2e-16),
    Case("1 / sqrt(x)", of("Reciprocal", op("Sqrt")), lambda v: 1 / np.sqrt(v), 1.1e-7, 2e-16),
    # Activations.
    Case("Elu", op("Elu"), lambda v: np.where(v > 0, v, np.expm1(np.minimum(v, 0))), 9.2e-8, 2.2e-16, least=-1),
    Case("Softplus", op("Softplus"), softplus, 2.1e-7, 4.8e-16, least=0),
    Case("Softsign", op("Softsign"), lambda v: np.where(np.isinf(v), np.sign(v), v / (1 + np.abs(v))), 1.4e-7, 2.4e-16),
    Case("Gelu", op("Gelu"), lambda v: times(v, cdf(v)), 1.6e-7, 3.2e-16, scale=argument, least=-0.17, odd=True),
    Case("Gelu tanh", op("Gelu", approximate="tanh"), gelu_tanh, 1.5e-7, 2.4e-16, scale=argument, least=-0.1701, odd=True),
    Case("Mish", op("Mish"), lambda v: times(v, np.tanh(softplus(v))), 3e-7, 5.9e-16, least=-0.309, odd=True),
    # What exporters write in several nodes.
    Case("erf(x) + 1", binary("Add", op("Erf"), 1), lambda v: erfc(-v), 2.1e-7, 2.4e-16, scale=one, least=0, most=2),
    Case("1 - erf(x)", binary("Sub", 1, op("Erf")), erfc, 2.1e-7, 2.4e-16, scale=one, least=0, most=2),
    Case("gelu / sqrt 2", gelu_by("Div", False), lambda v: times(v, cdf(v)), 1.5e-7, 2.7e-16, domain=FINITE, scale=argument, least=-0.17, odd=True),
    Case("gelu * sqrt 0.5", gelu_by("Mul", True), lambda v: times(v, cdf(v)), 1.4e-7, 2.7e-16, domain=FINITE, scale=argument, least=-0.17, odd=True),
    Case("gelu of tanh", gelu_of_tanh, gelu_tanh, 1.2e-7, 3e-16, domain=FINITE, scale=argument, least=-0.1701, odd=True),
    Case("x * sigmoid(x)", binary("Mul", itself, op("Sigmoid")), lambda v: times(v, sigmoid(v)), 2.2e-7, 4.4e-16, domain=FINITE, least=-0.2785, odd=True),
    Case("log(sigmoid(x))", of("Log", op("Sigmoid")), lambda v: -softplus(-v), 1.5e-7, 2.7e-16, domain=(-80, np.inf), scale=one, most=0),
    Case("1 - sigmoid(x)", binary("Sub", 1, op("Sigmoid")), lambda v: sigmoid(-v), 1.1e-7, 2e-16, scale=one, least=0, most=1),
    Case("1 - tanh(x)", binary("Sub", 1, op("Tanh")), lambda v: 2 * sigmoid(-2 * v), 9.3e-8, 3.2e-16, scale=one, least=0, most=2),
    Case("log(1 + exp(x))", of("Log", binary("Add", op("Exp"), 1)), softplus, 1.5e-7, 2.7e-16, domain=(-np.inf, 88), scale=one, least=0),
    Case("log(1 + x)", of("Log", binary("Add", itself, 1)), np.log1p, 1.2e-7, 2.6e-16, domain=(-0.99, np.inf), scale=one),
    Case("exp(x) - 1", binary("Sub", op("Exp"), 1), np.expm1, 1.2e-7, 2.6e-16, scale=one, least=-1),
    Case("tanh of exp", tanh_of_exp, np.tanh, 1.7e-7, 3.2e-16, domain=(-40, 40), scale=one, least=-1, most=1),
    Case("x * tanh(softplus)", binary("Mul", itself, of("Tanh", op("Softplus"))), lambda v: times(v, np.tanh(softplus(v))), 3e-7, 5.9e-16,
         domain=FINITE, least=-0.309, odd=True),
    # Rows.
    Case("Softmax", op("Softmax", axis=-1), softmax, 4.7e-6, 9.2e-15, rows=around(0, 20), least=0, most=1),
    Case("LogSoftmax", op("LogSoftmax", axis=-1), lambda v: v - log_sum(v), 1.5e-7, 4.4e-16, scale=one, rows=around(0, 20), most=0),
    Case("log(softmax(x))", of("Log", op("Softmax", axis=-1)), lambda v: v - log_sum(v), 1.7e-7, 2.9e-16, scale=one, rows=around(0, 5), most=0),
    Case("ReduceLogSumExp", lambda d, x: d.add("ReduceLogSumExp", x, d.integers(-1)), log_sum, 6.5e-8, 1.4e-16, rows=around(0, 3)),
    Case("layer norm", layer_norm, normalised, 2.8e-7, 4.4e-16, scale=one, rows=around(3, 2)),
    Case("layer norm, far", layer_norm, normalised, 8.7e-5, 1.7e-13, scale=one, rows=around(1000, 1)),
]  # fmt: skip
