"""Operators that choose elements by index."""
import math

import numpy as np

from .graph import ANY, F32, FLOATS, I32, I64, NUMBERS


def gather(g):
    x = g.pick(ANY, rank=(1, 5), where=lambda v: v.size > 0)
    axis = g.random.randrange(x.rank)
    shape = g.shape(g.random.choice((0, 1, 1, 2)))
    n = x.shape[axis]
    data = np.array([g.random.randrange(-n, n) for _ in range(math.prod(shape))], g.choose((np.int32, np.int64))).reshape(shape)
    indices = g.constant(data) if g.chance(0.5) else g.add_input(data.dtype, shape, data)
    g.emit("Gather", [x, indices], [(x.dtype, x.shape[:axis] + shape + x.shape[axis + 1:], x.exact, x.bound)], axis=axis)


def gather_elements(g):
    x = g.pick(NUMBERS, rank=(1, 4), where=lambda v: v.size > 0)
    axis = g.random.randrange(x.rank)
    shape = tuple(g.random.randrange(1, d + 1) if i != axis else g.size() for i, d in enumerate(x.shape))
    n = x.shape[axis]
    data = np.array([g.random.randrange(-n, n) for _ in range(math.prod(shape))], np.int64).reshape(shape)
    g.emit("GatherElements", [x, g.constant(data)], [(x.dtype, shape, x.exact, x.bound)], axis=axis)


def scatter_elements(g):
    x = g.pick((F32, I32, I64), rank=(1, 4), where=lambda v: v.size > 0)
    axis = g.random.randrange(x.rank)
    shape = tuple(g.random.randrange(1, d + 1) for d in x.shape)
    reduction = g.choose(("none", "add", "max", "min"))
    one = np.array(g.random.sample(range(x.shape[axis]), shape[axis]), np.int64)  # no element twice
    data = np.broadcast_to(one.reshape([-1 if i == axis else 1 for i in range(x.rank)]), shape)
    updates = g.operand(x.dtype, shape)
    g.emit("ScatterElements", [x, g.constant(np.ascontiguousarray(data)), updates],
           [(x.dtype, x.shape, x.exact and updates.exact, x.bound + updates.bound)], axis=axis, reduction=reduction)


def gather_nd(g):
    x = g.pick(NUMBERS, rank=(1, 4), where=lambda v: v.size > 0)
    k = g.random.randrange(1, x.rank + 1)
    outer = g.shape(g.random.choice((0, 1, 2)))
    data = np.array([[g.random.randrange(d) for d in x.shape[:k]] for _ in range(math.prod(outer))], np.int64)
    g.emit("GatherND", [x, g.constant(data.reshape(outer + (k,)))], [(x.dtype, outer + x.shape[k:], x.exact, x.bound)])


def one_hot(g):
    shape = g.shape(g.random.choice((1, 2)))
    x = g.operand(I64, shape)
    depth = g.random.randrange(1, 6)
    axis = g.random.randrange(-x.rank - 1, x.rank + 1)
    out = list(x.shape)
    out.insert(axis if axis >= 0 else axis + x.rank + 1, depth)
    g.emit("OneHot", [x, g.constant(np.int64(depth)), g.constant(np.array([0, 1], np.float32))], [(F32, out)], axis=axis)


def top_k(g):
    x = g.pick(FLOATS + (I64, I32), rank=(1, 4), where=lambda v: v.exact and v.size > 0)
    axis = g.random.randrange(x.rank)
    k = g.random.randrange(0 if g.chance(0.1) else 1, x.shape[axis] + 1)
    shape = x.shape[:axis] + (k,) + x.shape[axis + 1:]
    # Equal keys: the lower index comes first.
    g.emit("TopK", [x, g.integers(k)], [(x.dtype, shape, True, x.bound), (I64, shape, True, 20)], axis=axis,
           largest=g.random.choice((0, 1)), sorted=1)


def scatter_nd(g):
    """Places are distinct, so that their order means nothing."""
    x = g.pick((F32, I64), rank=(1, 4), where=lambda v: 0 < v.size <= 512)
    k = g.random.randrange(1, x.rank + 1)
    places = list(np.ndindex(*x.shape[:k]))
    chosen = g.random.sample(places, g.random.randrange(1, min(6, len(places)) + 1))
    data = np.array([[i - d if g.chance(0.3) else i for i, d in zip(place, x.shape)] for place in chosen], np.int64)
    indices = g.constant(data) if g.chance(0.5) else g.add_input(I64, data.shape, data, parameter=True)
    updates = g.operand(x.dtype, (len(chosen),) + x.shape[k:])
    g.emit("ScatterND", [x, indices, updates], [(x.dtype, x.shape, x.exact and updates.exact, x.bound + updates.bound)],
           reduction=g.choose(("none", "add", "max", "min")))


def unique(g):
    """Sorted distinct values: how many there are, is data; the inverse has a known size."""
    x = g.pick((F32, I64), rank=(1, 3), where=lambda v: v.exact and v.size > 0)
    made = g.emit("Unique", [x], [(x.dtype, x.shape, True, x.bound), (I64, x.shape), (I64, (x.size,), True, x.size),
                                  (I64, x.shape)], sorted=1)
    for i in (0, 1, 3):
        g.values.remove(made[i])
    (total,) = g.emit("ReduceSum", [made[g.choose((1, 3))], g.integers(0)], [(I64, (), True, 1e6)], keepdims=0)


def non_max_suppression(g):
    """Boxes of whole coordinates; what is left over is counted and summed."""
    n = g.choose((1, 3, 6))
    corner = g.numbers((1, n, 2), F32)
    boxes = np.concatenate([corner, corner + np.float32(2) + np.abs(g.numbers((1, n, 2), F32))], axis=2)
    scores = (np.array(g.random.sample(range(64), 2 * n), np.float32) / 64).reshape(1, 2, n)
    most = g.constant(np.array([g.choose((1, 2, 9))], np.int64))
    (kept,) = g.emit("NonMaxSuppression", [g.add_input(F32, boxes.shape, boxes), g.constant(scores), most,
                                           g.constant(np.array([0.3], np.float32)), g.constant(np.array([0.25], np.float32))],
                     [(I64, (0, 3))])
    g.values.remove(kept)
    g.emit("ReduceSum", [kept, g.integers(0)], [(I64, (3,), True, 1000)], keepdims=0)


OPERATORS = ((3, gather), (1, gather_elements), (1, scatter_elements), (1, scatter_nd), (1, gather_nd), (1, one_hot), (1, top_k),
             (1, unique), (1, non_max_suppression))
