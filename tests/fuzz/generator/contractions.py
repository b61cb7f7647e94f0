"""Matrix products, convolutions, windows, recurrent layers."""
import math

import numpy as np

from .graph import F32, F64, I32, Unfit, broadcast_partner


def matmul(g):
    x = g.pick((F32, F64, I32), rank=(1, 4), where=lambda v: v.bound <= 256 and v.rank > 0)
    k, n = x.shape[-1], g.size()
    batch = broadcast_partner(g, x.shape[:-2])[0] if g.chance(0.5) else ()
    shape = (k,) if g.chance(0.15) else batch + (k, n)
    if k == 0 and (x.dtype != F32 or len(shape) != 2):
        raise Unfit  # onnxruntime leaves sums over nothing unset, in float32 those of all matrices but the first
    y = g.operand(x.dtype, shape)
    if y.bound > 256:
        raise Unfit
    shape = np.broadcast_shapes(x.shape[:-2], y.shape[:-2]) + (x.shape[-2:-1]) + (y.shape[-1:] if y.rank > 1 else ())
    g.emit("MatMul", [x, y], [(x.dtype, shape, x.exact and y.exact, x.bound * y.bound * max(k, 1))])


def gemm(g):
    x = g.pick((F32,), rank=(2, 2), where=lambda v: v.bound <= 256)
    ta, tb = g.random.choice((0, 1)), g.random.choice((0, 1))
    (m, k), n = (x.shape[::-1] if ta else x.shape), g.size()
    y = g.operand(F32, (n, k) if tb else (k, n))
    c = [g.operand(F32, g.choose(((n,), (1, n), (m, 1), (m, n), (), (1,))))] if g.chance(0.6) else []
    if y.bound > 256:
        raise Unfit
    g.emit("Gemm", [x, y] + c, [(F32, (m, n), all(v.exact for v in [x, y] + c), x.bound * y.bound * max(k, 1) + 256)],
           transA=ta, transB=tb, alpha=g.choose((1.0, 0.5, 2.0)),
           beta=g.choose((1.0, 0.5) if k else (1.0,)))  # onnxruntime leaves beta out where there is nothing to sum


def einsum(g):
    letters = "abcd"
    a = "".join(g.random.sample(letters, g.random.randrange(1, 4)))
    b = "".join(g.random.sample(letters, g.random.randrange(1, 4)))
    sizes = {c: g.random.choice((1, 2, 3, 5)) for c in letters}
    out = "".join(c for c in g.random.sample(letters, 4) if c in a + b and g.chance(0.6))
    x, y = (g.operand(F32, [sizes[c] for c in s]) for s in (a, b))
    if max(x.bound, y.bound) > 64:
        raise Unfit
    g.emit("Einsum", [x, y], [(F32, [sizes[c] for c in out], x.exact and y.exact, x.bound * y.bound * 100)],
           equation=f"{a},{b}->{out}")


def conv(g):
    rank = g.choose((1, 2, 2, 3))
    found = [v for v in g.values if v.dtype == F32 and v.rank == rank + 2 and v.size and v.bound <= 64]
    x = g.random.choice(found) if found else g.operand(F32, (g.choose((1, 2)), g.choose((1, 2, 4, 6)),
                                                             *(g.choose((3, 4, 5, 8)) for _ in range(rank))))
    channels = x.shape[1]
    group = g.choose([k for k in range(1, channels + 1) if channels % k == 0])
    out = group * g.choose((1, 2, 3))
    kernel = [g.choose((1, 2, 3)) for _ in range(rank)]
    strides, dilations = [g.choose((1, 1, 2)) for _ in range(rank)], [g.choose((1, 1, 2)) for _ in range(rank)]
    pads = [g.choose((0, 0, 1, 2)) for _ in range(2 * rank)]
    space = [(d + pads[i] + pads[i + rank] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
             for i, d in enumerate(x.shape[2:])]
    if min(space) < 1:
        raise Unfit
    w = g.operand(F32, (out, channels // group, *kernel))
    b = [g.operand(F32, (out,))] if g.chance(0.5) else []
    if w.bound > 64:
        raise Unfit
    g.emit("Conv", [x, w] + b, [(F32, (x.shape[0], out, *space), x.exact and w.exact and all(v.exact for v in b),
                                 x.bound * w.bound * math.prod(w.shape[1:]) + 64)],
           group=group, strides=strides, dilations=dilations, pads=pads, kernel_shape=kernel)


def pool(g):
    op = g.choose(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    x = g.pick((F32,), rank=(3, 5), where=lambda v: v.size > 0 and v.bound < 1e4)
    rank = x.rank - 2
    if op.startswith("Global"):
        g.emit(op, [x], [(F32, x.shape[:2] + (1,) * rank, op == "GlobalMaxPool" and x.exact, x.bound)])
        return
    kernel = [g.choose((1, 2, 3)) for _ in range(rank)]
    strides = [g.choose((1, 2)) for _ in range(rank)]
    pads = [g.random.randrange(0, k) for k in kernel] + [g.random.randrange(0, k) for k in kernel]
    space = [(d + pads[i] + pads[i + rank] - kernel[i]) // strides[i] + 1 for i, d in enumerate(x.shape[2:])]
    if min(space) < 1:
        raise Unfit
    extra = {"count_include_pad": g.random.choice((0, 1))} if op == "AveragePool" else {}
    g.emit(op, [x], [(F32, x.shape[:2] + tuple(space), op == "MaxPool" and x.exact, x.bound)], kernel_shape=kernel,
           strides=strides, pads=pads, **extra)


def conv_transpose(g):
    rank = g.choose((1, 2))
    group = g.choose((1, 1, 2))
    x = g.operand(F32, (g.choose((1, 2)), group * g.choose((1, 2)), *(g.choose((1, 3, 4)) for _ in range(rank))))
    kernel, strides = [g.choose((1, 2, 3)) for _ in range(rank)], [g.choose((1, 2, 3)) for _ in range(rank)]
    dilations = [g.choose((1, 1, 2)) for _ in range(rank)]
    extra = [g.random.randrange(0, s) for s in strides]
    pads = [g.choose((0, 0, 1)) for _ in range(2 * rank)]
    space = [(d - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + extra[i] - pads[i] - pads[i + rank]
             for i, d in enumerate(x.shape[2:])]
    if min(space) < 1:
        raise Unfit
    w = g.operand(F32, (x.shape[1], g.choose((1, 2)), *kernel))
    if max(w.bound, x.bound) > 64:
        raise Unfit
    g.emit("ConvTranspose", [x, w], [(F32, (x.shape[0], w.shape[1] * group, *space), x.exact and w.exact,
                                      x.bound * w.bound * w.size)],
           group=group, strides=strides, dilations=dilations, pads=pads, output_padding=extra, kernel_shape=kernel)


def resize(g):
    x = g.operand(F32, (g.choose((1, 2)), g.choose((1, 3)), g.choose((1, 2, 3, 5)), g.choose((2, 3, 4))))
    scales = [1.0, 1.0, g.choose((0.5, 1.0, 2.0, 3.0)), g.choose((0.5, 1.0, 2.0, 1.5))]
    shape = [math.floor(d * s) for d, s in zip(x.shape, scales)]
    if min(shape) < 1:
        raise Unfit
    mode = g.choose(("nearest", "linear", "cubic"))
    how = {"nearest_mode": g.choose(("floor", "round_prefer_floor"))} if mode == "nearest" else {}
    # Where scales leave a fraction, ONNX's reference aligns the corners of a fractional size, onnxruntime of a whole one.
    whole = all((d * k).is_integer() for d, k in zip(x.shape, scales))
    g.emit("Resize", [x, "", g.constant(np.array(scales, np.float32))], [(F32, shape, mode == "nearest", x.bound * 2)],
           mode=mode, coordinate_transformation_mode=g.choose(("half_pixel", "asymmetric") + ("align_corners",) * whole), **how)


def recurrent(g):
    op, gates = g.choose((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    steps, batch, width, hidden = g.choose((1, 3, 5)), g.choose((1, 2)), g.choose((1, 3)), g.choose((1, 4))
    direction, n = g.choose((("forward", 1), ("reverse", 1), ("bidirectional", 2)))
    x = g.operand(F32, (steps, batch, width))
    if x.bound > 16:
        raise Unfit
    w, r = (g.constant(g.numbers((n, gates * hidden, k), F32)) for k in (width, hidden))
    b = [g.constant(g.numbers((n, 2 * gates * hidden), F32))] if g.chance(0.5) else []
    outputs = [(F32, (steps, n, batch, hidden), False, 2), (F32, (n, batch, hidden), False, 2)]
    g.emit(op, [x, w, r] + b, outputs, hidden_size=hidden, direction=direction)


def lp_pool(g):
    x = g.pick((F32,), rank=(3, 4), where=lambda v: v.size > 0 and v.bound < 64)
    (x,) = g.emit("Abs", [x], [(F32, x.shape, x.exact, x.bound)])
    if g.chance(0.3):
        g.emit("GlobalLpPool", [x], [(F32, x.shape[:2] + (1,) * (x.rank - 2), False, x.bound * x.size)], p=g.choose((1, 2)))
        return
    kernel = [g.choose([k for k in (1, 2, 3) if k <= d]) for d in x.shape[2:]]
    space = tuple(d - k + 1 for d, k in zip(x.shape[2:], kernel))
    g.emit("LpPool", [x], [(F32, x.shape[:2] + space, False, x.bound * 9)], kernel_shape=kernel, p=g.choose((1, 2)))


def grid_sample(g):
    x = g.operand(F32, (g.choose((1, 2)), g.choose((1, 3)), g.choose((2, 3, 5)), g.choose((2, 4))))
    if g.opset < 20 or x.bound > 64:
        raise Unfit
    n, c, h, w = x.shape
    oh, ow = g.choose((1, 3)), g.choose((2, 4))
    # Places that lie a little beside the middle between two elements: nearest has no ties.
    grid = g.numbers((n, oh, ow, 2), F32) * np.float32(0.37) + np.float32(0.013)
    g.emit("GridSample", [x, g.add_input(F32, grid.shape, grid, parameter=True)], [(F32, (n, c, oh, ow), False, x.bound * 2)],
           mode=g.choose(("linear", "nearest", "cubic")), padding_mode=g.choose(("zeros", "border", "reflection")),
           align_corners=g.choose((0, 1)))


def attention(g):
    """Of opset 23, in its form of 4 dims, with fewer heads of keys than of queries."""
    if g.opset < 23:
        raise Unfit
    b, heads, kv, q, k, d = g.choose((1, 2)), g.choose((2, 4)), g.choose((1, 2)), g.choose((1, 3)), g.choose((1, 5)), g.choose((2, 4))
    query, key, value = g.operand(F32, (b, heads, q, d)), g.operand(F32, (b, kv, k, d)), g.operand(F32, (b, kv, k, d))
    if max(query.bound, key.bound, value.bound) > 8:
        raise Unfit
    mask = [g.constant(g.numbers((q, k), F32))] if g.chance(0.4) else []
    g.emit("Attention", [query, key, value] + mask, [(F32, (b, heads, q, d), False, 16)],
           **({"is_causal": 1} if not mask and q <= k and g.chance(0.4) else {}))


OPERATORS = ((4, matmul), (2, gemm), (2, einsum), (3, conv), (2, pool), (1, lp_pool), (1, conv_transpose), (1, resize),
             (1, grid_sample), (1, recurrent), (1, attention))
