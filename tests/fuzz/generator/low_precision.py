"""Formats of 16, 8 and 4 bits that onnxruntime hardly computes with: cast, moved, cast back."""
import numpy as np
from onnx import helper

from .graph import BF16, F8, F16, F32, I4, U4, Unfit


def moved(g, x, kind):
    """x, of a format that leaves the graph by a cast alone, through some views."""
    shape = x.shape
    for _ in range(g.random.randrange(0, 3)):
        op = g.choose(("Reshape", "Transpose", "Unsqueeze", "Squeeze"))
        if op == "Reshape" and x.size:
            shape = g.choose(((x.size,), (1, x.size), (x.size, 1), x.shape))
            (x,) = g.emit(op, [x, g.integers(*shape)], [(kind, shape)])
        elif op == "Transpose" and x.rank:
            (x,) = g.emit(op, [x], [(kind, x.shape[::-1])])
        elif op == "Unsqueeze" and x.rank < 5:
            (x,) = g.emit(op, [x, g.integers(0)], [(kind, (1,) + x.shape)])
        elif op == "Squeeze" and x.rank and x.shape[0] == 1:
            (x,) = g.emit(op, [x, g.integers(0)], [(kind, x.shape[1:])])
        else:
            continue
        g.values.remove(x)
    return x


def through(g, x, kind, bound, **attributes):
    """x cast to a format and back."""
    (y,) = g.emit("Cast", [x], [(kind, x.shape)], to=helper.np_dtype_to_tensor_dtype(kind), **attributes)
    g.values.remove(y)
    y = moved(g, y, kind)
    g.emit("Cast", [y], [(F32, y.shape, True, bound)], to=helper.np_dtype_to_tensor_dtype(F32))


def sixteen_bits(g):
    """Rounding: what lies between two numbers of the format, and in the middle. Products by 1 + k / 2^n are exact in f32."""
    kind, bits = g.choose(((BF16, 7), (F16, 10)))
    x = g.pick((F32,) if kind == F16 else (F32, F16), where=lambda v: v.exact and v.bound < 1024)
    if x.dtype == F32 and g.chance(0.7):
        factor = 1 + g.choose((1, 2, 3, 6)) * 0.5 ** (bits + 2)
        (x,) = g.emit("Mul", [x, g.constant(np.float32(factor))], [(F32, x.shape, True, x.bound * 1.01)])
        g.values.remove(x)
    through(g, x, kind, x.bound * 1.01)


def eighth_float(g):
    """Rounding, and saturation or the lack of it, of the four formats of 8 bits."""
    x = g.pick((F32,), where=lambda v: v.exact)
    through(g, x, g.choose(F8), 1e5, **({"saturate": g.choose((0, 1))} if g.opset >= 19 else {}))


def four_bits(g):
    if g.opset < 21:
        raise Unfit
    x = g.pick((F32,), where=lambda v: v.exact)
    kind, low, high = g.choose(((I4, -8, 7), (U4, 0, 15)))
    (x,) = g.emit("Clip", [x, g.constant(np.float32(low)), g.constant(np.float32(high))], [(F32, x.shape, True, high)])
    (x,) = g.emit("Round", [x], [(F32, x.shape, True, high)])
    through(g, x, kind, 15)


def four_bit_weights(g):
    """Blocks of a weight of four bits with a scale and a zero point each."""
    if g.opset < 21:
        raise Unfit
    kind = g.choose((I4, U4))
    block, blocks, rows = g.choose((2, 4, 16)), g.choose((1, 2, 3)), g.choose((1, 3, 8))
    weight = g.constant(np.asarray(g.numbers((rows, block * blocks), np.dtype(np.uint8)) % 8).astype(kind))
    scale = g.constant(np.asarray([g.choose((0.25, 0.5, 1.0)) for _ in range(rows * blocks)], np.float32).reshape(rows, blocks))
    zero = [g.constant((g.numbers((rows, blocks), np.dtype(np.uint8)) % 4).astype(kind))] if g.chance(0.6) else []
    g.emit("DequantizeLinear", [weight, scale] + zero, [(F32, (rows, block * blocks), True, 16)], axis=1, block_size=block)


OPERATORS = ((1, sixteen_bits), (1, eighth_float), (1, four_bits), (1, four_bit_weights))
