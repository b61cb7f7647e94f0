"""Strings: compared, concatenated, moved, encoded."""
import numpy as np

from .graph import BOOL, I64, STRING, Unfit, broadcast_partner


def words(g, shape):
    count = int(np.prod(shape, dtype=int))
    return np.array([g.choose(("", "a", "b", "ab", "\u00e9", "stridec")) for _ in range(count)], object).reshape(shape)


def strings(g, shape):
    """Strings of this shape: an initializer, some of them chained together."""
    x = g.constant(words(g, shape))
    if g.chance(0.4) and g.opset >= 20:
        (x,) = g.emit("StringConcat", [x, g.constant(words(g, shape))], [(STRING, shape)])
        g.values.remove(x)
    elif g.chance(0.3):
        (x,) = g.emit("StringNormalizer", [g.constant(words(g, (max(1, shape[0]),)))], [(STRING, (max(1, shape[0]),))],
                      case_change_action=g.choose(("UPPER", "LOWER", "NONE")), locale="C")
        g.values.remove(x)
    return x


def string_equal(g):
    if g.opset < 19:
        raise Unfit
    shape = tuple(g.size() for _ in range(g.choose((1, 1, 2))))
    x = strings(g, shape)
    other, out = broadcast_partner(g, x.shape)
    g.emit("Equal", [x, g.constant(words(g, other))], [(BOOL, out)])


def string_lookup(g):
    x = strings(g, (g.size(),))
    g.emit("LabelEncoder", [x], [(I64, x.shape, True, 8)], domain="ai.onnx.ml", keys_strings=["a", "b", "AB", ""],
           values_int64s=[1, 2, 3, 4], default_int64=-1)


OPERATORS = ((1, string_equal), (1, string_lookup))
