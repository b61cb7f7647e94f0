"""Operators that move elements."""
import math

import numpy as np

from .graph import ANY, F32, F64, FLOATS, I32, I64, INTEGERS, NUMBERS, Unfit


def reshape(g):
    x = g.pick(ANY)
    if x.size == 0:
        raise Unfit
    rest, shape = x.size, []
    for _ in range(g.random.randrange(0, 5)):
        d = g.choose([k for k in range(1, rest + 1) if rest % k == 0])
        shape.append(d)
        rest //= d
    if rest != 1 or g.chance(0.3):
        shape.insert(g.random.randrange(len(shape) + 1), rest)
    given = list(shape)
    if given and g.chance(0.4):
        given[g.random.randrange(len(given))] = -1
    g.emit("Reshape", [x, g.integers(*given)], [(x.dtype, shape, x.exact, x.bound)])


def transpose(g):
    x = g.pick(ANY)
    perm = list(range(x.rank))
    g.random.shuffle(perm)
    given = {"perm": perm} if perm else {}
    g.emit("Transpose", [x], [(x.dtype, [x.shape[p] for p in perm], x.exact, x.bound)], **given)


def squeeze(g):
    x = g.pick(ANY, where=lambda v: 1 in v.shape)
    axis = g.choose([i for i, d in enumerate(x.shape) if d == 1])
    g.emit("Squeeze", [x, g.integers(axis - (x.rank if g.chance(0.5) else 0))],
           [(x.dtype, x.shape[:axis] + x.shape[axis + 1:], x.exact, x.bound)])


def unsqueeze(g):
    x = g.pick(ANY, rank=(0, 5))
    axis = g.random.randrange(x.rank + 1)
    g.emit("Unsqueeze", [x, g.integers(axis)], [(x.dtype, x.shape[:axis] + (1,) + x.shape[axis:], x.exact, x.bound)])


def flatten(g):
    x = g.pick(NUMBERS)
    axis = g.random.randrange(x.rank + 1)
    g.emit("Flatten", [x], [(x.dtype, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), x.exact, x.bound)], axis=axis)


def expand(g):
    x = g.pick(ANY)
    other = [d if d != 1 or g.chance(0.5) else g.random.choice((2, 3)) for d in x.shape]
    if len(other) < 5 and g.chance(0.3):
        other = [2] + other
    if not other:
        raise Unfit
    g.emit("Expand", [x, g.integers(*other)], [(x.dtype, other, x.exact, x.bound)])


def slice_(g):
    x = g.pick(ANY, rank=(1, 6))
    axes = sorted(g.random.sample(range(x.rank), g.random.randrange(1, min(x.rank, 3) + 1)))
    starts, ends, steps, shape = [], [], [], list(x.shape)
    for a in axes:
        step = g.random.choice((1, 1, 1, 2, -1, -2, 3))
        start, end = (g.random.choice((None, *range(-x.shape[a] - 1, x.shape[a] + 2))) for _ in range(2))
        shape[a] = len(range(*slice(start, end, step).indices(x.shape[a])))
        big = 2 ** 40 if g.chance(0.5) else 2 ** 63 - 1
        starts.append((0 if step > 0 else big) if start is None else start)
        ends.append((big if step > 0 else -big) if end is None else end)
        steps.append(step)
    g.emit("Slice", [x, g.integers(*starts), g.integers(*ends), g.integers(*axes), g.integers(*steps)],
           [(x.dtype, shape, x.exact, x.bound)])


def concat(g):
    x = g.pick(ANY, rank=(1, 6))
    axis = g.random.randrange(x.rank)
    parts = [x]
    for _ in range(g.random.randrange(0, 3)):
        shape = list(x.shape)
        shape[axis] = g.size()
        parts.append(x if g.chance(0.2) else g.operand(x.dtype, shape))
    g.random.shuffle(parts)
    shape = list(x.shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    g.emit("Concat", parts, [(x.dtype, shape, all(p.exact for p in parts), max(p.bound for p in parts))],
           axis=axis - (x.rank if g.chance(0.3) else 0))


def split(g):
    x = g.pick(ANY, rank=(1, 6))
    axis = g.random.randrange(x.rank)
    cuts = sorted(g.random.randrange(x.shape[axis] + 1) for _ in range(g.random.randrange(1, 3)))
    sizes = [b - a for a, b in zip([0] + cuts, cuts + [x.shape[axis]])]
    g.emit("Split", [x, g.integers(*sizes)],
           [(x.dtype, x.shape[:axis] + (s,) + x.shape[axis + 1:], x.exact, x.bound) for s in sizes], axis=axis)


def tile(g):
    x = g.pick(ANY, rank=(1, 5))
    repeats = [g.random.choice((1, 1, 2, 3)) for _ in x.shape]
    g.emit("Tile", [x, g.integers(*repeats)], [(x.dtype, [d * r for d, r in zip(x.shape, repeats)], x.exact, x.bound)])


def pad(g):
    x = g.pick(FLOATS + INTEGERS, rank=(1, 5))
    mode = g.choose(("constant", "constant", "reflect", "edge", "wrap") if x.size else ("constant",))
    most = [2 if mode == "constant" else max(0, d - 1) for d in x.shape]
    low, high = ([g.random.randrange(0, min(m, 2) + 1) for m in most] for _ in range(2))
    if mode == "constant" and g.chance(0.3):  # negative pads cut
        a = g.random.randrange(x.rank)
        low[a] = -min(1, x.shape[a])
    shape = [d + a + b for d, a, b in zip(x.shape, low, high)]
    if min(shape) < 0:
        raise Unfit
    value = [g.constant(np.asarray(1, x.dtype)).name] if mode == "constant" and g.chance(0.5) else []
    g.emit("Pad", [x, g.integers(*low, *high)] + value, [(x.dtype, shape, x.exact, x.bound)], mode=mode)


def trilu(g):
    x = g.pick((F32, F64, I32, I64), rank=(2, 5))
    k = [g.constant(np.int64(g.random.randrange(-3, 4))).name] if g.chance(0.5) else []
    g.emit("Trilu", [x] + k, [(x.dtype, x.shape, x.exact, x.bound)], upper=g.random.choice((0, 1)))


def depth_to_space(g):
    x = g.operand(F32, (g.random.choice((1, 2)), 4 * g.random.choice((1, 2)), g.size(), g.size()))
    n, c, h, w = x.shape
    g.emit("DepthToSpace", [x], [(x.dtype, (n, c // 4, 2 * h, 2 * w), x.exact, x.bound)], blocksize=2,
           mode=g.choose(("DCR", "CRD")))


def space_to_depth(g):
    x = g.operand(g.choose((F32, F64)), (g.choose((1, 2)), g.choose((1, 3)), 2 * g.choose((1, 2)), 2 * g.size()))
    n, c, h, w = x.shape
    g.emit("SpaceToDepth", [x], [(x.dtype, (n, 4 * c, h // 2, w // 2), x.exact, x.bound)], blocksize=2)


def reverse_sequence(g):
    x = g.pick((F32, I64), rank=(2, 4), where=lambda v: v.size > 0)
    batch = g.choose((0, 1))
    lengths = np.array([g.random.randrange(1, x.shape[1 - batch] + 1) for _ in range(x.shape[batch])], np.int64)
    lengths = g.constant(lengths) if g.chance(0.5) else g.add_input(I64, lengths.shape, lengths)
    g.emit("ReverseSequence", [x, lengths], [(x.dtype, x.shape, x.exact, x.bound)], batch_axis=batch, time_axis=1 - batch)


def center_crop_pad(g):
    x = g.pick((F32, I64), rank=(1, 4), where=lambda v: v.size > 0)
    axes = sorted(g.random.sample(range(x.rank), g.random.randrange(1, x.rank + 1)))
    sizes = [g.size() or 1 for _ in axes]
    shape = list(x.shape)
    for a, s in zip(axes, sizes):
        shape[a] = s
    g.emit("CenterCropPad", [x, g.integers(*sizes)], [(x.dtype, shape, x.exact, x.bound)], axes=axes)


def eye_like(g):
    x = g.pick((F32, I64, I32), rank=(2, 2))
    g.emit("EyeLike", [x], [(x.dtype, x.shape)], k=g.random.randrange(-2, 3))


OPERATORS = ((3, reshape), (4, transpose), (1, squeeze), (2, unsqueeze), (1, flatten), (2, expand), (4, slice_), (3, concat),
             (2, split), (1, tile), (2, pad), (1, trilu), (1, depth_to_space), (1, space_to_depth), (1, reverse_sequence),
             (1, center_crop_pad), (1, eye_like))
