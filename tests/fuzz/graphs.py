"""Random valid ONNX graphs: the operators as a table of functions, each of which knows what it needs and what it gives.

Every value has a known shape and dtype. `exact` says that its numbers are small multiples of a power of two and have
come about without rounding: only those go into operators that jump (Floor, Equal, ArgMax, Cast to integers), so that a
difference in the last place never becomes a difference of one.
"""
import dataclasses
import math
import random

import numpy as np
from onnx import TensorProto, helper, numpy_helper

F32, F64, F16 = np.dtype("float32"), np.dtype("float64"), np.dtype("float16")
I8, I16, I32, I64, BOOL = (np.dtype(n) for n in ("int8", "int16", "int32", "int64", "bool"))
U8, U16, U32, U64 = (np.dtype(n) for n in ("uint8", "uint16", "uint32", "uint64"))
FLOATS = (F32, F64)
INTEGERS = (I32, I64)
NUMBERS = FLOATS + INTEGERS
NARROW = (F16, I8, I16, U8, U16, U32, U64)  # moved, cast and quantised, but hardly computed with
ANY = NUMBERS + (BOOL,) + NARROW
MOST_ELEMENTS = 4096


@dataclasses.dataclass
class Value:
    name: str
    dtype: np.dtype
    shape: tuple
    exact: bool = True
    bound: float = 4.0  # of the magnitude, where exact

    @property
    def rank(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)


class Unfit(Exception):
    """The pool has nothing that the operator could take."""


class Graph:
    def __init__(self, seed, opset=21):
        self.random = random.Random(seed)
        self.opset = opset
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
        return f"{kind}{self.names}"

    def numbers(self, shape, dtype):
        n = np.random.default_rng(self.random.getrandbits(32))
        if dtype == BOOL:
            return np.asarray(n.integers(0, 2, shape), bool)
        if dtype.kind == "f":
            return np.asarray(n.integers(-8, 9, shape) / 4, dtype)
        return np.asarray(n.integers(0 if dtype.kind == "u" else -4, 5, shape), dtype)

    def add_input(self, dtype, shape, data=None):
        v = Value(self.name("x"), dtype, tuple(shape))
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

    def emit(self, op, inputs, outputs, domain="", **attributes):
        """outputs: (dtype, shape, exact, bound) each."""
        made = [Value(self.name(), np.dtype(o[0]), tuple(int(d) for d in o[1]), *o[2:]) for o in outputs]
        if any(v.size > MOST_ELEMENTS or v.rank > 6 for v in made):
            raise Unfit
        names = [i.name if isinstance(i, Value) else i for i in inputs]
        self.nodes.append(helper.make_node(op, names, [v.name for v in made], domain=domain, **attributes))
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


# ---- pointwise

def unary_exact(g):
    op, dtypes = g.choose((("Neg", NUMBERS), ("Abs", NUMBERS), ("Relu", FLOATS), ("Identity", ANY),
                           ("Not", (BOOL,)), ("Sign", NUMBERS), ("Floor", FLOATS), ("Ceil", FLOATS), ("Round", FLOATS)))
    jumps = op in ("Sign", "Floor", "Ceil", "Round")
    x = g.pick(dtypes, where=lambda v: v.exact or not jumps)
    g.emit(op, [x], [(x.dtype, x.shape, x.exact, x.bound + 1)])


def unary_smooth(g):
    op = g.choose(("Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Atan", "Softplus", "Softsign", "Exp", "Sqrt", "Log", "Elu",
                   "LeakyRelu", "Selu", "HardSigmoid", "HardSwish", "Gelu", "Mish", "Celu", "ThresholdedRelu", "Reciprocal"))
    x = g.pick((F32,), where=lambda v: v.bound <= 64)
    if op in ("Log", "Sqrt", "Reciprocal"):
        (x,) = g.emit("Abs", [x], [(x.dtype, x.shape, x.exact, x.bound)])
        (x,) = g.emit("Add", [x, g.constant(np.float32(0.5))], [(x.dtype, x.shape, x.exact, x.bound + 1)])
    if op == "ThresholdedRelu" and not x.exact:
        raise Unfit
    bound = {"Exp": math.exp(min(x.bound, 50)), "Reciprocal": 2, "Log": 5}.get(op, max(x.bound, 2))
    g.emit(op, [x], [(x.dtype, x.shape, False, bound)])


def binary(g):
    op = g.choose(("Add", "Sub", "Mul", "Min", "Max", "PRelu", "Div"))
    x = g.pick({"PRelu": (F32,), "Div": FLOATS}.get(op, NUMBERS))
    other, shape = broadcast_partner(g, x.shape)
    y = g.operand(x.dtype, other)
    if op == "PRelu":
        y = g.constant(g.numbers((x.shape[-1],) if x.rank else (), x.dtype))
        shape = x.shape
    if op == "Div":
        y = g.constant(np.asarray(g.random.choice((0.5, 2.0, -4.0)) * np.ones(other), x.dtype))
    exact, bound = x.exact and y.exact, x.bound * 8 if op in ("Mul", "PRelu", "Div") else x.bound + y.bound
    if op == "Mul":
        bound = x.bound * y.bound
    if bound > 2 ** 12:
        raise Unfit  # exact no longer in f32 after a few steps
    pair = [x, y] if op == "PRelu" or op == "Div" or g.chance(0.5) else [y, x]
    g.emit(op, pair, [(x.dtype, shape, exact, bound)])


def integer_division(g):
    op = g.choose(("Div", "Mod"))
    x = g.pick(INTEGERS)
    other, shape = broadcast_partner(g, x.shape)
    y = g.constant(np.asarray(g.numbers(other, x.dtype) * 0 + g.random.choice((1, 2, 3, -2, 5)), x.dtype))
    if op == "Div":
        (x,) = g.emit("Abs", [x], [(x.dtype, x.shape, True, x.bound)])  # how negatives round is not settled
        y = g.constant(np.full(other, g.random.choice((1, 2, 3)), x.dtype))
    g.emit(op, [x, y], [(x.dtype, shape, True, x.bound + 5)], **({"fmod": g.random.choice((0, 1))} if op == "Mod" else {}))


def compare(g):
    op = g.choose(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    x = g.pick(NUMBERS, where=lambda v: v.exact)
    other, shape = broadcast_partner(g, x.shape)
    y = g.operand(x.dtype, other)
    if not y.exact:
        raise Unfit
    g.emit(op, [x, y], [(BOOL, shape)])


def logical(g):
    x = g.pick((BOOL,))
    other, shape = broadcast_partner(g, x.shape)
    g.emit(g.choose(("And", "Or", "Xor")), [x, g.operand(BOOL, other)], [(BOOL, shape)])


def where(g):
    x = g.pick(NUMBERS)
    other, shape = broadcast_partner(g, x.shape)
    y = g.operand(x.dtype, other)
    condition_shape, shape = broadcast_partner(g, shape)
    condition = g.operand(BOOL, condition_shape)
    g.emit("Where", [condition, x, y], [(x.dtype, shape, x.exact and y.exact, max(x.bound, y.bound))])


def cast(g):
    x = g.pick(ANY)
    to = g.choose((F32, F64, I32, I64, BOOL) + (NARROW if g.chance(0.3) else ()))
    if to.kind != "f" and not x.exact:
        raise Unfit
    if to in NARROW and x.dtype != BOOL:
        if x.bound > 100 or not x.exact:
            raise Unfit
        if to.kind == "u" and x.dtype.kind != "u":
            if x.dtype not in NUMBERS:
                raise Unfit
            (x,) = g.emit("Abs", [x], [(x.dtype, x.shape, x.exact, x.bound)])  # wrapping is not settled
    bound = x.bound if x.dtype != BOOL else 1
    g.emit("Cast", [x], [(to, x.shape, x.exact, bound)], to=helper.np_dtype_to_tensor_dtype(to))


def clip(g):
    x = g.pick(FLOATS + INTEGERS)
    low, high = g.constant(np.asarray(-1, x.dtype)), g.constant(np.asarray(2, x.dtype))
    which = g.random.choice(([low.name, high.name], [low.name], ["", high.name]))
    g.emit("Clip", [x] + which, [(x.dtype, x.shape, x.exact, x.bound)])


def variadic(g):
    x = g.pick(FLOATS)
    shapes = [broadcast_partner(g, x.shape)[0] for _ in range(g.random.randrange(0, 3))]
    try:
        np.broadcast_shapes(x.shape, *shapes)
    except ValueError:
        raise Unfit from None
    operands = [x] + [g.operand(x.dtype, s) for s in shapes]
    op = g.choose(("Sum", "Max", "Min", "Mean"))
    exact = op != "Mean" and all(v.exact for v in operands)
    g.emit(op, operands, [(x.dtype, np.broadcast_shapes(x.shape, *(v.shape for v in operands)), exact,
                           sum(v.bound for v in operands))])


# ---- views

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


# ---- indexing

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


# ---- reductions

def reduce(g):
    op = g.choose(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceSumSquare",
                   "ReduceL2", "ReduceLogSumExp"))
    x = g.pick((F32,) if op not in ("ReduceSum", "ReduceMax", "ReduceMin") else (F32, I32, I64, F64), rank=(0, 5))
    if x.bound > 64 or (op == "ReduceProd" and (x.bound > 4 or x.size > 24)):
        raise Unfit
    axes = g.random.sample(range(x.rank), g.random.randrange(0, x.rank + 1))
    reduced = axes or range(x.rank)
    if op in ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceLogSumExp") and any(x.shape[a] == 0 for a in reduced):
        raise Unfit
    if x.size == 0 and x.rank > 1:
        raise Unfit  # onnxruntime keeps the sizes of reduced dims where there are no elements
    keep = g.random.choice((0, 1))
    shape = [1 if i in reduced else d for i, d in enumerate(x.shape)] if keep else \
        [d for i, d in enumerate(x.shape) if i not in reduced]
    exact = x.exact and op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare")
    bound = {"ReduceMax": x.bound, "ReduceMin": x.bound}.get(op, x.bound * x.bound * max(1, x.size))
    if op == "ReduceProd":
        bound = 1e6
    given = [g.integers(*(a - (x.rank if g.chance(0.3) else 0) for a in axes))] if axes else []
    if op == "ReduceSum" and not axes and g.chance(0.5):  # of no axes: nothing is reduced
        g.emit(op, [x] + ([g.integers()] if g.chance(0.5) else []), [(x.dtype, x.shape, x.exact, x.bound)],
               keepdims=keep, noop_with_empty_axes=1)
        return
    g.emit(op, [x] + given, [(x.dtype, shape, exact, bound)], keepdims=keep)


def arg_reduce(g):
    x = g.pick((F32, I32), rank=(1, 5), where=lambda v: v.exact and v.size > 0)
    axis = g.random.randrange(x.rank)
    keep = g.random.choice((0, 1))
    shape = x.shape[:axis] + ((1,) if keep else ()) + x.shape[axis + 1:]
    g.emit(g.choose(("ArgMax", "ArgMin")), [x], [(I64, shape, True, 20)], axis=axis, keepdims=keep,
           select_last_index=g.random.choice((0, 1)))


def cum_sum(g):
    x = g.pick((F32, F64, I32, I64), rank=(1, 4))
    axis = g.random.randrange(x.rank)
    g.emit("CumSum", [x, g.constant(np.int64(axis))], [(x.dtype, x.shape, x.exact, x.bound * max(1, x.shape[axis]))],
           exclusive=g.random.choice((0, 1)), reverse=g.random.choice((0, 1)))


def softmax(g):
    op = g.choose(("Softmax", "LogSoftmax", "Hardmax"))
    x = g.pick((F32,) if op == "Hardmax" else (F32, F64), rank=(1, 5), where=lambda v: v.size > 0 and v.bound < 1e4 and (v.exact or op != "Hardmax"))
    g.emit(op, [x], [(x.dtype, x.shape, False, 2 if op != "LogSoftmax" else x.bound * 2)],
           axis=g.random.randrange(-x.rank, x.rank))


def layer_norm(g):
    x = g.pick((F32,), rank=(1, 4), where=lambda v: v.size > 0 and v.bound < 1e3)
    axis = g.random.randrange(x.rank)
    scale, bias = (g.constant(g.numbers(x.shape[axis:], F32)) for _ in range(2))
    g.emit("LayerNormalization", [x, scale, bias], [(F32, x.shape, False, 64)], axis=axis - (x.rank if g.chance(0.3) else 0),
           epsilon=0.1)


# ---- contractions and windows

def matmul(g):
    x = g.pick((F32, F64, I32), rank=(1, 4), where=lambda v: v.bound <= 256 and v.rank > 0)
    k, n = x.shape[-1], g.size()
    if k == 0 and x.dtype != F32:
        raise Unfit  # onnxruntime leaves sums over nothing unset
    batch = broadcast_partner(g, x.shape[:-2])[0] if g.chance(0.5) else ()
    y = g.operand(x.dtype, (k,) if g.chance(0.15) else batch + (k, n))
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


def batch_norm(g):
    x = g.pick((F32,), rank=(2, 5), where=lambda v: v.bound < 1e4)
    scale, bias, mean = (g.constant(g.numbers((x.shape[1],), F32)) for _ in range(3))
    var = g.constant(np.abs(g.numbers((x.shape[1],), F32)) + np.float32(0.5))
    g.emit("BatchNormalization", [x, scale, bias, mean, var], [(F32, x.shape, False, x.bound * 4 + 8)])


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


def instance_norm(g):
    x = g.pick((F32,), rank=(3, 5), where=lambda v: v.size > 0 and v.bound < 1e3)
    scale, bias = (g.constant(g.numbers((x.shape[1],), F32)) for _ in range(2))
    g.emit("InstanceNormalization", [x, scale, bias], [(F32, x.shape, False, 64)], epsilon=0.1)


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


# ---- quantised

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


# ---- sizes and data-dependent sizes

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


# ---- control flow

def subgraph(g, name, outputs_like, outer, steps=3):
    """A body that sees the outer values; its results have the types of outputs_like."""
    inner = Graph(g.random.getrandbits(32), g.opset)
    inner.names = g.names + 1000 * (1 + g.random.randrange(1000))
    inner.values = [dataclasses.replace(v) for v in outer if v.size <= 512]
    inner.add_input = lambda dtype, shape, data=None: inner.constant(inner.numbers(shape, dtype) if data is None else data)
    results = []
    for like in outputs_like:
        start = [v for v in inner.values if v.dtype == like.dtype and v.shape == like.shape]
        value = inner.random.choice(start) if start else inner.constant(inner.numbers(like.shape, like.dtype))
        for _ in range(steps):
            op = inner.random.choice(("Add", "Sub", "Max", "Neg", "Mul") if like.dtype != BOOL else ("And", "Or", "Xor", "Not"))
            others = [v for v in inner.values if v.dtype == like.dtype and v.shape in (like.shape, ()) and v.bound < 64]
            other = inner.random.choice(others) if others and op != "Mul" else inner.constant(np.asarray(
                1 if op != "Mul" else 0.5 if like.dtype.kind == "f" else 1, like.dtype))
            operands = [value] if op in ("Neg", "Not") else [value, other]
            (value,) = inner.emit(op, operands, [(like.dtype, like.shape, value.exact and other.exact, value.bound + 64)])
        results.append(value)
    infos = [helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for v in results]
    return inner, results, infos


def if_(g):
    likes = [g.pick((F32, I64)) for _ in range(g.random.randrange(1, 3))]
    condition = g.operand(BOOL, ())
    branches = {}
    exact = True
    for which in ("then_branch", "else_branch"):
        inner, results, infos = subgraph(g, which, likes, g.values)
        exact &= all(r.exact for r in results)
        branches[which] = helper.make_graph(inner.nodes, which, [], infos, inner.initializers)
    g.emit("If", [condition], [(v.dtype, v.shape, exact, v.bound + 512) for v in likes], **branches)


def loop(g):
    carried = [g.pick((F32, I64), where=lambda v: v.size <= 256 and v.bound < 256)]
    trip = g.random.randrange(0, 4)
    inner_likes = [dataclasses.replace(v, name=g.name("carried")) for v in carried]
    inner, results, infos = subgraph(g, "body", inner_likes, g.values + inner_likes)
    number, going = g.name("i"), g.name("going")
    inner.nodes.append(helper.make_node("Identity", [going], [going + "_out"]))
    scan = []
    if g.chance(0.5) and trip:
        inner.nodes.append(helper.make_node("Identity", [results[0].name], [results[0].name + "_row"]))
        scan.append(results[0].name + "_row")
    inputs = [helper.make_tensor_value_info(number, TensorProto.INT64, ()),
              helper.make_tensor_value_info(going, TensorProto.BOOL, ())]
    inputs += [helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for v in inner_likes]
    outputs = [helper.make_tensor_value_info(going + "_out", TensorProto.BOOL, ())] + infos
    outputs += [helper.make_tensor_value_info(s, helper.np_dtype_to_tensor_dtype(results[0].dtype), results[0].shape)
                for s in scan]
    body = helper.make_graph(inner.nodes, "body", inputs, outputs, inner.initializers)
    bound = carried[0].bound + 1e4
    made = [(v.dtype, v.shape, False, bound) for v in carried]
    if scan:
        made.append((results[0].dtype, (trip,) + results[0].shape, False, bound))
    g.emit("Loop", [g.constant(np.int64(trip)), ""] + carried, made, body=body)


def growing_loop(g):
    """A carried value that gets longer by a constant in each iteration."""
    x = g.pick((F32, I64), rank=(1, 3), where=lambda v: v.size <= 64)
    axis, trip = g.random.randrange(x.rank), g.random.randrange(0, 4)
    more = [d if i != axis else g.choose((1, 2)) for i, d in enumerate(x.shape)]
    part = g.constant(g.numbers(more, x.dtype))
    number, going, held, longer, out = (g.name(n) for n in ("i", "going", "held", "longer", "out"))
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [helper.make_node("Identity", [going], [out]),
             helper.make_node("Concat", [held, part.name] if g.chance(0.7) else [part.name, held], [longer], axis=axis)]
    free = [None if i == axis else d for i, d in enumerate(x.shape)]
    body = helper.make_graph(nodes, "body", [info(number, TensorProto.INT64, ()), info(going, TensorProto.BOOL, ()),
                                             info(held, kind, free)],
                             [info(out, TensorProto.BOOL, ()), info(longer, kind, free)])
    if g.chance(0.3):
        trips = g.add_input(I64, (), np.int64(trip))
        g.values.remove(trips)
    else:
        trips = g.constant(np.int64(trip))
    shape = list(x.shape)
    shape[axis] += trip * more[axis]
    g.emit("Loop", [trips, "", x], [(x.dtype, shape, x.exact, max(x.bound, 4))], body=body)


def scan(g):
    """A running sum along an axis, and its last value."""
    x = g.pick((F32, I64), rank=(1, 4), where=lambda v: v.size <= 512 and v.bound < 64)
    axis = g.random.randrange(x.rank)
    row = x.shape[:axis] + x.shape[axis + 1:]
    start = g.operand(x.dtype, row)
    if start.bound > 64:
        raise Unfit
    held, one, total, out = (g.name(n) for n in ("held", "one", "total", "out"))
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(x.dtype)
    op = g.choose(("Add", "Max", "Sub"))
    body = helper.make_graph([helper.make_node(op, [held, one], [total]), helper.make_node("Identity", [total], [out])],
                             "body", [info(held, kind, row), info(one, kind, row)],
                             [info(total, kind, row), info(out, kind, row)])
    exact, bound = x.exact and start.exact, start.bound + x.bound * max(1, x.shape[axis])
    to = g.random.randrange(len(row) + 1)
    g.emit("Scan", [start, x], [(x.dtype, row, exact, bound), (x.dtype, row[:to] + (x.shape[axis],) + row[to:], exact, bound)],
           body=body, num_scan_inputs=1, scan_input_axes=[axis], scan_output_axes=[to],
           scan_input_directions=[g.random.choice((0, 1))], scan_output_directions=[g.random.choice((0, 1))])


OPERATORS = (
    (3, unary_exact), (4, unary_smooth), (6, binary), (2, integer_division), (2, compare), (1, logical), (2, where),
    (2, cast), (1, clip), (1, variadic), (3, reshape), (4, transpose), (1, squeeze), (2, unsqueeze), (1, flatten),
    (2, expand), (4, slice_), (3, concat), (2, split), (1, tile), (2, pad), (1, trilu), (1, depth_to_space), (3, gather),
    (1, gather_elements), (1, scatter_elements), (1, gather_nd), (1, one_hot), (1, top_k), (4, reduce), (2, arg_reduce),
    (1, cum_sum), (2, softmax), (2, layer_norm), (4, matmul), (2, gemm), (2, einsum), (3, conv), (2, pool),
    (1, batch_norm), (2, shape_chain), (1, fill), (1, range_), (1, non_zero_sum), (2, if_), (2, loop),
    (1, conv_transpose), (1, instance_norm), (1, resize), (1, recurrent), (2, quantize), (1, matmul_integer),
    (1, conv_integer), (1, qlinear_matmul), (1, compress), (1, growing_loop), (1, scan))


def random_graph(seed, most_nodes=12):
    g = Graph(seed)
    for _ in range(g.random.randrange(1, 4)):
        g.add_input(g.choose((F32, F32, F32, F32, F64, I32, I64, BOOL, g.choose(NARROW))), g.shape())
    wanted = g.random.randrange(1, most_nodes + 1)
    weights, functions = zip(*OPERATORS)
    for _ in range(20 * wanted):
        if len(g.nodes) >= wanted:
            break
        before = len(g.nodes), len(g.values), len(g.inputs), len(g.initializers)
        try:
            g.random.choices(functions, weights)[0](g)
        except Unfit:
            for v in g.inputs[before[2]:]:
                del g.data[v.name]
            del g.nodes[before[0]:], g.values[before[1]:], g.inputs[before[2]:], g.initializers[before[3]:]
    return g


def to_model(g):
    read = {i for n in g.nodes for i in n.input}
    produced = {o for n in g.nodes for o in n.output}
    for n in g.nodes:  # what bodies read
        for a in n.attribute:
            if a.g.node:
                read |= {i for inner in a.g.node for i in inner.input} | {o.name for o in a.g.output}
    inputs = [v for v in g.inputs if v.name in read]
    outputs = [v for v in g.values if v.name in produced and (v.name not in read or g.chance(0.1))]
    # Some sizes have names: equal sizes often the same one.
    named = {d: f"n{d}" for d in range(20) if g.chance(0.4)} if g.chance(0.4) else {}
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        g.nodes, "random",
        [info(v.name, helper.np_dtype_to_tensor_dtype(v.dtype), [named.get(d, d) for d in v.shape]) for v in inputs],
        [info(v.name, helper.np_dtype_to_tensor_dtype(v.dtype), [None] * v.rank) for v in outputs],
        [i for i in g.initializers if i.name in read])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=10)
    return model, {v.name: g.data[v.name] for v in inputs}
