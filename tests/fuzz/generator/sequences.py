"""Sequences and optionals of known length and presence."""
import numpy as np

from .graph import F32, I64


class Hidden:
    """A sequence or an optional: a name that is not a tensor."""

    def __init__(self, g, op, inputs, **attributes):
        self.name = g.name("s")
        g.nodes.append(g.node(op, inputs, [self.name], **attributes))


def parts(g):
    x = g.pick((F32, I64), rank=(1, 4))
    values = [x] + [g.operand(x.dtype, x.shape) for _ in range(g.random.randrange(0, 3))]
    return values, max(v.bound for v in values), all(v.exact for v in values)


def sequence(g):
    values, bound, exact = parts(g)
    like = values[0]
    made = Hidden(g, "SequenceConstruct", values)
    if g.chance(0.4):
        at = g.random.randrange(len(values) + 1)
        values.insert(at, g.operand(like.dtype, like.shape))
        made = Hidden(g, "SequenceInsert", [made, values[at], g.constant(np.int64(at))])
    if g.chance(0.4) and len(values) > 1:
        at = g.random.randrange(-len(values), len(values))
        del values[at]
        made = Hidden(g, "SequenceErase", [made, g.constant(np.int64(at))])
    bound, exact = max(v.bound for v in values), all(v.exact for v in values)
    what = g.random.randrange(3)
    if what == 0:
        g.emit("SequenceLength", [made], [(I64, (), True, 8)])
    elif what == 1:
        at = g.constant(np.int64(g.random.randrange(-len(values), len(values))))
        g.emit("SequenceAt", [made, at], [(like.dtype, like.shape, exact, bound)])
    else:
        axis, new = g.random.randrange(like.rank), g.choose((0, 1))
        shape = list(like.shape)
        if new:
            shape.insert(axis, len(values))
        else:
            shape[axis] *= len(values)
        g.emit("ConcatFromSequence", [made], [(like.dtype, shape, exact, bound)], axis=axis, new_axis=new)


def split_to_sequence(g):
    """Into pieces of given sizes: how many pieces of one size there are, a size with a name would leave open."""
    x = g.pick((F32, I64), rank=(1, 4), where=lambda v: v.size > 0)
    axis = g.random.randrange(x.rank)
    first = g.random.randrange(0, x.shape[axis] + 1)
    sizes = [first, x.shape[axis] - first]
    made = Hidden(g, "SplitToSequence", [x, g.integers(*sizes)], axis=axis)
    at = g.random.randrange(2)
    shape = x.shape[:axis] + (sizes[at],) + x.shape[axis + 1:]
    g.emit("SequenceAt", [made, g.constant(np.int64(at))], [(x.dtype, shape, x.exact, x.bound)])


def optional(g):
    x = g.pick((F32, I64))
    made = Hidden(g, "Optional", [x])
    g.emit("OptionalGetElement", [made], [(x.dtype, x.shape, x.exact, x.bound)])


OPERATORS = ((1, sequence), (1, split_to_sequence), (1, optional))
