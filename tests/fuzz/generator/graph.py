"""A graph under construction: values of known shape and dtype, and the choices that operators make among them.

Every value has a known shape and dtype. `exact` says that its numbers are small multiples of a power of two and have
come about without rounding: only those go into operators that jump (Floor, Equal, ArgMax, Cast to integers), so that a
difference in the last place never becomes a difference of one.
"""
import dataclasses
import math
import random

import ml_dtypes
import numpy as np
from onnx import helper, numpy_helper

F32, F64, F16 = np.dtype("float32"), np.dtype("float64"), np.dtype("float16")
I8, I16, I32, I64, BOOL = (np.dtype(n) for n in ("int8", "int16", "int32", "int64", "bool"))
U8, U16, U32, U64 = (np.dtype(n) for n in ("uint8", "uint16", "uint32", "uint64"))
BF16 = np.dtype(ml_dtypes.bfloat16)
I4, U4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)
F8 = tuple(np.dtype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2,
                                 ml_dtypes.float8_e5m2fnuz))
STRING = np.dtype(object)
FLOATS = (F32, F64)
INTEGERS = (I32, I64)
NUMBERS = FLOATS + INTEGERS
SIGNED, UNSIGNED = (I8, I16, I32, I64), (U8, U16, U32, U64)
NARROW = (F16, I8, I16, U8, U16, U32, U64)
ANY = NUMBERS + (BOOL,) + NARROW
MOST_ELEMENTS = 4096


@dataclasses.dataclass
class Value:
    name: str
    dtype: np.dtype
    shape: tuple
    exact: bool = True
    bound: float = 4.0  # of the magnitude, where exact
    parameter: bool = False  # an input that says where or how much: its own sizes have no names

    @property
    def rank(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)


class Unfit(Exception):
    """The pool has nothing that the operator could take."""


class Graph:
    def __init__(self, seed, opset=21, prefix=""):
        self.random = random.Random(seed)
        self.opset = opset
        self.prefix = prefix  # of all names
        self.nodes, self.initializers, self.inputs, self.values = [], [], [], []
        self.data = {}
        self.names = 0

    # -- choosing
    def choose(self, items):
        items = list(items)
        if not items:
            raise Unfit
        return self.random.choice(items)

    def chance(self, p):
        return self.random.random() < p

    def pick(self, dtypes=NUMBERS, rank=(0, 6), where=lambda v: True):
        found = [v for v in self.values if v.dtype in dtypes and rank[0] <= v.rank <= rank[1] and where(v)]
        # Later values more often: graphs grow deep.
        return self.choose(found[-4:] if self.chance(0.6) else found)

    def size(self):
        return self.random.choice((0, 1, 1, 2, 3, 3, 4, 5, 7, 8, 17) if self.chance(0.1) else (1, 2, 3, 3, 4, 5, 8))

    def shape(self, rank=None):
        rank = self.random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6)) if rank is None else rank
        while True:
            shape = tuple(self.size() for _ in range(rank))
            if math.prod(shape) <= MOST_ELEMENTS:
                return shape

    # -- making
    def name(self, kind="v"):
        self.names += 1
        return f"{self.prefix}{kind}{self.names}"

    def numbers(self, shape, dtype):
        n = np.random.default_rng(self.random.getrandbits(32))
        if dtype == BOOL:
            return np.asarray(n.integers(0, 2, shape), bool)
        if dtype.kind == "f":
            return np.asarray(n.integers(-8, 9, shape) / 4, dtype)
        return np.asarray(n.integers(0 if dtype.kind == "u" else -4, 5, shape), dtype)

    def add_input(self, dtype, shape, data=None, parameter=False):
        v = Value(self.name("x"), dtype, tuple(shape), parameter=parameter)
        self.data[v.name] = self.numbers(shape, dtype) if data is None else np.asarray(data, dtype)
        self.inputs.append(v)
        self.values.append(v)
        return v

    def constant(self, array):
        array = np.asarray(array)
        name = self.name("c")
        self.initializers.append(numpy_helper.from_array(array, name))
        return Value(name, array.dtype, array.shape)

    def integers(self, *numbers):
        return self.constant(np.array(numbers, np.int64)).name

    def operand(self, dtype, shape):
        """A value of this type: of the pool, or new as input or initializer."""
        found = [v for v in self.values if v.dtype == dtype and v.shape == tuple(shape)]
        if found and self.chance(0.7):
            return self.random.choice(found)
        if self.chance(0.5):
            return self.constant(self.numbers(shape, dtype))
        return self.add_input(dtype, shape)

    def node(self, op, inputs, outputs, **attributes):
        return helper.make_node(op, [i if isinstance(i, str) else i.name for i in inputs], outputs, **attributes)

    def emit(self, op, inputs, outputs, domain="", **attributes):
        """outputs: (dtype, shape, exact, bound) each."""
        made = [Value(self.name(), np.dtype(o[0]), tuple(int(d) for d in o[1]), *o[2:]) for o in outputs]
        if any(v.size > MOST_ELEMENTS or v.rank > 6 for v in made):
            raise Unfit
        self.nodes.append(self.node(op, inputs, [v.name for v in made], domain=domain, **attributes))
        self.values += made
        return made


def broadcast_partner(g, shape):
    """A shape that broadcasts with this one, and what both give."""
    other = [d if g.chance(0.7) else 1 for d in shape]
    other = other[g.random.randrange(len(other) + 1) if g.chance(0.3) and other else 0:]
    if len(shape) < 4 and g.chance(0.15):
        other = [1] * (len(shape) - len(other)) + other
        other = [g.random.choice((1, 2, 3))] + other
    return tuple(other), np.broadcast_shapes(shape, tuple(other))
