"""What networks consist of: products and convolutions large enough for full register tiles, with what is fused behind and
before them; attention; layers of quantised numbers.
"""
import math

import numpy as np

from .graph import F16, F32, F64, I8, I64, U8, Unfit, broadcast_partner

LONG = (12, 16, 17, 24, 31, 32, 33, 48, 64, 100)  # whole tiles, and what they leave over


def number(g, value, dtype=F32):
    return g.constant(np.asarray(value, dtype))


def hidden(g, op, inputs, like, **attributes):
    """A step whose result only the next step sees."""
    (v,) = g.emit(op, inputs, [like], **attributes)
    g.values.remove(v)
    return v


def epilogue(g, x):
    """Some of: a scale, a bias, an activation, a residual; x is of the graph's values afterwards."""
    shape, dtype = x.shape, x.dtype
    for _ in range(g.random.randrange(0, 4)):
        if g.chance(0.5):
            other = g.operand(dtype, broadcast_partner(g, shape)[0] if g.chance(0.6) else shape[-1:])
            if np.broadcast_shapes(shape, other.shape) != shape or other.bound > 256:
                continue
            x = hidden(g, g.choose(("Add", "Add", "Sub", "Mul")), [x, other], (dtype, shape, False, x.bound * 64 + 64))
        elif dtype == F32:
            op = g.choose(("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Clip", "Erf"))
            x = hidden(g, op, [x] + [number(g, v) for v in ((-4, 4) if op == "Clip" else ())], (dtype, shape, False, x.bound))
    x.exact, x.bound = False, min(x.bound, 1e6)
    if x not in g.values:
        g.values.append(x)


def long_matmul(g):
    """Of matrices and of batches of them; a factor may be transposed, sliced or gathered before."""
    dtype = g.choose((F32, F32, F32, F64, F16))
    m, k, n = (g.random.choice(LONG + (1, 3)) for _ in range(3))
    batch = g.choose(((), (), (2,), (1, 3)))
    if math.prod(batch) * max(m * k, m * n) > 4096 or k * n > 4096:
        raise Unfit
    a = g.operand(dtype, batch + (k, m) if g.chance(0.3) else batch + (m, k))
    if a.shape[-2:] != (m, k):
        a = hidden(g, "Transpose", [a], (dtype, batch + (m, k)), perm=[*range(len(batch)), len(batch) + 1, len(batch)])
    b = g.operand(dtype, (n, k) if g.chance(0.3) else (k, n))
    if b.shape != (k, n):
        b = hidden(g, "Transpose", [b], (dtype, (k, n)), perm=[1, 0])
    if max(a.bound, b.bound) > 16:
        raise Unfit
    x = hidden(g, "MatMul", [a, b], (dtype, batch + (m, n), False, a.bound * b.bound * k))
    if dtype == F16:
        g.values.append(x)
    else:
        epilogue(g, x)


def attention_block(g):
    """Scores, a mask, softmax, values: what becomes one kernel."""
    b, h, q, k, d, v = g.choose((1, 2)), g.choose((1, 3)), g.choose((1, 4, 17, 32)), g.choose((1, 5, 16, 33)), 8, g.choose((4, 8, 16))
    query, key, value = g.operand(F32, (b, h, q, d)), g.operand(F32, (b, h, k, d)), g.operand(F32, (b, h, k, v))
    if max(query.bound, key.bound, value.bound) > 8:
        raise Unfit
    key = hidden(g, "Transpose", [key], (F32, (b, h, d, k)), perm=[0, 1, 3, 2])
    x = hidden(g, "MatMul", [query, key], (F32, (b, h, q, k), False, 512))
    x = hidden(g, g.choose(("Mul", "Div")), [x, number(g, g.choose((0.25, 2.0)))], (F32, (b, h, q, k), False, 512))
    if g.chance(0.5):
        mask = g.operand(F32, g.choose(((q, k), (b, 1, 1, k), (b, 1, q, k))))
        if mask.bound > 64:
            raise Unfit
        x = hidden(g, "Add", [x, mask], (F32, (b, h, q, k), False, 1024))
    x = hidden(g, "Softmax", [x], (F32, (b, h, q, k), False, 1), axis=-1)
    x = hidden(g, "MatMul", [x, value], (F32, (b, h, q, v), False, value.bound))
    if g.chance(0.5):
        x = hidden(g, "Transpose", [x], (F32, (b, q, h, v), False, value.bound), perm=[0, 2, 1, 3])
        x = hidden(g, "Reshape", [x, g.integers(b, q, h * v)], (F32, (b, q, h * v), False, value.bound))
    g.values.append(x)


def norm_and_residual(g):
    """LayerNormalization as graphs had it before the operator: means, differences, a root."""
    x = g.pick((F32,), rank=(2, 4), where=lambda v: v.size > 0 and v.bound < 256)
    row = x.shape[:-1] + (1,)
    axes = [g.integers(-1)] if g.opset >= 18 else []
    mean = hidden(g, "ReduceMean", [x] + axes, (F32, row, False, x.bound), keepdims=1)
    apart = hidden(g, "Sub", [x, mean], (F32, x.shape, False, 2 * x.bound))
    square = hidden(g, "Mul", [apart, apart], (F32, x.shape, False, 4 * x.bound ** 2))
    var = hidden(g, "ReduceMean", [square] + axes, (F32, row, False, 4 * x.bound ** 2), keepdims=1)
    root = hidden(g, "Sqrt", [hidden(g, "Add", [var, number(g, 0.25)], (F32, row, False, 1e5))], (F32, row, False, 1e3))
    x = hidden(g, "Div", [apart, root], (F32, x.shape, False, 64))
    epilogue(g, x)


def conv_block(g):
    """A convolution of some size, plain, grouped or depthwise; normalisation, activation and a pool behind it."""
    channels, space = g.choose((1, 3, 8, 16)), (g.choose((5, 8, 14)), g.choose((6, 9, 16)))
    x = g.operand(F32, (g.choose((1, 2)), channels, *space))
    if x.size > 4096 or x.bound > 16:
        raise Unfit
    kernel, stride, pad = g.choose((1, 3, 3, 5)), g.choose((1, 1, 2)), g.choose((0, 1, 2))
    group = g.choose((1, channels)) if channels > 1 else 1
    out = channels * g.choose((1, 2)) if group > 1 else g.choose((3, 8, 16, 24))
    size = [(d + 2 * pad - kernel) // stride + 1 for d in space]
    if min(size) < 1:
        raise Unfit
    w = g.constant(g.numbers((out, channels // group, kernel, kernel), F32))
    shape = (x.shape[0], out, *size)
    y = hidden(g, "Conv", [x, w], (F32, shape, False, x.bound * 4 * kernel * kernel * channels // group), group=group,
               strides=[stride] * 2, pads=[pad] * 4, kernel_shape=[kernel] * 2)
    if g.chance(0.4):
        scale, bias, mean = (g.constant(g.numbers((out,), F32)) for _ in range(3))
        var = g.constant(np.abs(g.numbers((out,), F32)) + np.float32(0.5))
        y = hidden(g, "BatchNormalization", [y, scale, bias, mean, var], (F32, shape, False, y.bound * 4 + 8))
    if g.chance(0.3):
        y = hidden(g, "Relu", [y], (F32, shape, False, y.bound))
        y = hidden(g, "GlobalAveragePool", [y], (F32, shape[:2] + (1, 1), False, y.bound))
    epilogue(g, y)


def quantized_layer(g):
    """Products of dequantised numbers, whose scales are powers of two: exact in f32 as in integers."""
    m, k, n = g.choose((1, 3, 16, 33)), g.choose((4, 16, 17, 64)), g.choose((1, 8, 32, 48))
    to = g.choose((U8, I8))
    scale = number(g, 0.25)
    x = g.operand(F32, (m, k))
    if not x.exact or x.bound > 8:
        raise Unfit
    zero = number(g, g.choose((0, 2)) if to == I8 else 64, to)
    q = hidden(g, "QuantizeLinear", [x, scale, zero], (to, (m, k)))
    x = hidden(g, "DequantizeLinear", [q, scale, zero], (F32, (m, k)))
    w, many = g.constant(g.numbers((k, n), I8)), g.chance(0.5)
    scales = number(g, [g.choose((0.25, 0.5, 1.0)) for _ in range(n)] if many else 0.5)
    zeros = g.constant(np.zeros((n,) if many else (), np.int8))
    w = hidden(g, "DequantizeLinear", [w, scales, zeros], (F32, (k, n)), **({"axis": 1} if many else {}))
    y = hidden(g, "MatMul", [x, w], (F32, (m, n), True, 8 * 4 * k))
    if g.chance(0.5):
        y = hidden(g, "Relu", [y], (F32, (m, n), True, y.bound))
    g.values.append(y)


def embedding(g):
    """Rows of a table by tokens, with positions added."""
    rows, width, shape = g.choose((3, 8)), g.choose((4, 16, 17)), (g.choose((1, 2)), g.choose((1, 5, 16)))
    table = g.operand(F32, (rows, width))
    tokens = g.add_input(I64, shape, np.array([g.random.randrange(rows) for _ in range(math.prod(shape))]).reshape(shape))
    g.values.remove(tokens)
    x = hidden(g, "Gather", [table, tokens], (F32, shape + (width,), table.exact, table.bound))
    y = g.operand(F32, (shape[1], width))
    g.emit("Add", [x, y], [(F32, shape + (width,), table.exact and y.exact, table.bound + y.bound)])


OPERATORS = ((5, long_matmul), (2, attention_block), (2, norm_and_residual), (3, conv_block), (2, quantized_layer),
             (1, embedding))
