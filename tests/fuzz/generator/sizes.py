"""Sizes as data, and sizes that depend on data."""
import math

import numpy as np
from onnx import TensorProto, helper

from .graph import BOOL, F32, I64, NUMBERS, Unfit


def shape_chain(g):
    """Sizes computed from a shape and used to reshape: they have to vanish at compile time."""
    x = g.pick(NUMBERS, rank=(1, 5))
    (shape,) = g.emit("Shape", [x], [(I64, (x.rank,))])
    g.values.remove(shape)
    axis = g.random.randrange(x.rank)
    (one,) = g.emit("Gather", [shape, g.integers(axis)], [(I64, (1,))])
    g.values.remove(one)
    if math.prod(x.shape) == 0:
        raise Unfit
    (target,) = g.emit("Concat", [one, g.integers(-1)], [(I64, (2,))], axis=0)
    g.values.remove(target)
    g.emit("Reshape", [x, target], [(x.dtype, (x.shape[axis], x.size // x.shape[axis]), x.exact, x.bound)])


def fill(g):
    shape = g.shape(g.random.choice((1, 2, 3)))
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [g.choose((0.0, 1.5))])
    g.emit("ConstantOfShape", [g.integers(*shape)], [(F32, shape)], value=value)


def range_(g):
    start, count, step = g.random.randrange(-3, 3), g.random.randrange(0, 6), g.random.choice((1, 2, -1))
    limits = [g.constant(np.int64(v)) for v in (start, start + count * step, step)]
    g.emit("Range", limits, [(I64, (count,), True, 16)])


def non_zero_sum(g):
    """What is found has a size that only the run tells; a sum over it has a known one."""
    x = g.pick((F32, I64, BOOL), rank=(1, 3), where=lambda v: v.exact)
    (found,) = g.emit("NonZero", [x], [(I64, (x.rank, 0))])
    g.values.remove(found)
    g.emit("ReduceSum", [found, g.integers(1)], [(I64, (x.rank,), True, 1000)], keepdims=0)


def compress(g):
    x = g.pick((F32, I64), rank=(1, 3), where=lambda v: v.size > 0)
    axis = g.random.randrange(x.rank)
    keep = g.operand(BOOL, (x.shape[axis],))
    (found,) = g.emit("Compress", [x, keep], [(x.dtype, x.shape)], axis=axis)
    g.values.remove(found)
    shape = [1 if i == axis else d for i, d in enumerate(x.shape)]
    g.emit("ReduceSum", [found, g.integers(axis)], [(x.dtype, shape, x.exact, x.bound * x.shape[axis])])


def sizes_of(g, x):
    """x's shape, cut into numbers that further nodes put together again."""
    (shape,) = g.emit("Shape", [x], [(I64, (x.rank,))])
    g.values.remove(shape)
    return shape


def expand_to_shape(g):
    """What broadcasts with x, at x's shape, which is only known from x."""
    x = g.pick(NUMBERS, rank=(1, 4))
    shape = sizes_of(g, x)
    if g.chance(0.5):
        value = helper.make_tensor("value", TensorProto.FLOAT, [1], [g.choose((0.0, -2.0))])
        g.emit("ConstantOfShape", [shape], [(F32, x.shape)], value=value)
        return
    y = g.operand(x.dtype, [1 if g.chance(0.5) else d for d in x.shape])
    g.emit("Expand", [y, shape], [(x.dtype, x.shape, y.exact, y.bound)])


def half_of(g):
    """The first half of an axis, whose end is computed from the size."""
    x = g.pick(NUMBERS, rank=(1, 4), where=lambda v: v.size > 0)
    axis = g.random.randrange(x.rank)
    (n,) = g.emit("Gather", [sizes_of(g, x), g.integers(axis)], [(I64, (1,))])
    (half,) = g.emit("Div", [n, g.integers(2)], [(I64, (1,))])
    g.values.remove(n)
    g.values.remove(half)
    starts, ends = (g.integers(0), half) if g.chance(0.5) else (half, g.integers(2 ** 31))
    m = x.shape[axis] // 2 if ends is half else x.shape[axis] - x.shape[axis] // 2
    g.emit("Slice", [x, starts, ends, g.integers(axis)],
           [(x.dtype, x.shape[:axis] + (m,) + x.shape[axis + 1:], x.exact, x.bound)])


def slice_at_run_time(g):
    """Where it starts is an input's value, of which no shape is known before the run; a sum over it is."""
    x = g.pick((F32, I64), rank=(1, 3), where=lambda v: v.size > 0 and v.bound < 1e4)
    axis = g.random.randrange(x.rank)
    n = x.shape[axis]
    start = g.add_input(I64, (1,), np.array([g.random.randrange(-n, n + 1)], np.int64), parameter=True)
    g.values.remove(start)
    (part,) = g.emit("Slice", [x, start, g.integers(2 ** 31), g.integers(axis)], [(x.dtype, x.shape)])
    g.values.remove(part)
    g.emit("ReduceSum", [part, g.integers(axis)],
           [(x.dtype, [1 if i == axis else d for i, d in enumerate(x.shape)], x.exact, x.bound * n)])


OPERATORS = ((2, shape_chain), (1, expand_to_shape), (1, half_of), (1, slice_at_run_time), (1, fill), (1, range_),
             (1, non_zero_sum), (1, compress))
