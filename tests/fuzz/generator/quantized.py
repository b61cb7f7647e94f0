"""Quantised operators."""
import math

import numpy as np

from .graph import F32, I8, I32, U8


def quantize(g):
    """Scales are powers of two, so that rounding is the same wherever it is done."""
    x = g.pick((F32,), rank=(0, 4), where=lambda v: v.exact and v.bound < 1e4)
    to = g.choose((U8, I8))
    axis = g.random.randrange(x.rank) if x.rank and g.chance(0.4) else None
    count = () if axis is None else (x.shape[axis],)
    scale = g.constant(np.asarray([g.choose((0.25, 0.5, 1.0, 2.0)) for _ in range(math.prod(count))],
                                  np.float32).reshape(count))
    zero = g.constant(np.asarray(g.numbers(count, to), to))
    given = {} if axis is None else {"axis": axis}
    (q,) = g.emit("QuantizeLinear", [x, scale, zero], [(to, x.shape, True, 255)], **given)
    if g.chance(0.7):
        g.emit("DequantizeLinear", [q, scale, zero], [(F32, x.shape, True, 512)], **given)


def matmul_integer(g):
    m, k, n = g.size(), g.choose((1, 3, 8, 17)), g.size()
    a, b = g.operand(g.choose((U8, I8)), g.shape(g.choose((0, 1))) + (m, k)), g.operand(g.choose((U8, I8)), (k, n))
    zeros = [g.constant(np.asarray(g.numbers((), v.dtype), v.dtype)) for v in (a, b)] if g.chance(0.6) else []
    g.emit("MatMulInteger", [a, b] + zeros, [(I32, a.shape[:-1] + (n,), True, 1e7)])


def conv_integer(g):
    x = g.operand(U8, (1, g.choose((1, 2, 4)), g.choose((3, 5)), g.choose((3, 4))))
    w = g.operand(g.choose((U8, I8)), (g.choose((1, 3)), x.shape[1], g.choose((1, 3)), g.choose((1, 2))))
    zero = [g.constant(np.uint8(g.choose((0, 3))))] if g.chance(0.5) else []
    shape = (1, w.shape[0], x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1)
    g.emit("ConvInteger", [x, w] + zero, [(I32, shape, True, 1e7)])


def qlinear_matmul(g):
    m, k, n = g.size(), g.choose((1, 3, 8)), g.size()
    to = g.choose((U8, I8))
    a, b = g.operand(to, (m, k)), g.operand(to, (k, n))
    number = lambda v: g.constant(np.asarray(v, np.float32))  # noqa: E731
    zero = lambda: g.constant(np.asarray(g.choose((0, 1, 3)), to))  # noqa: E731
    g.emit("QLinearMatMul", [a, number(0.5), zero(), b, number(0.25), zero(), number(g.choose((1.0, 4.0))), zero()],
           [(to, (m, n), True, 255)])


OPERATORS = ((2, quantize), (1, matmul_integer), (1, conv_integer), (1, qlinear_matmul))
