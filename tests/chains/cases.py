"""Chains of one operator or pattern: each step keeps the type of the tensor, so that it can be repeated any number of times.

A Chain has the sizes of its input ("h" and "w" stand for a size that may be a symbol; SIZES gives their values) and a function that
appends one step to a Drawing and returns the name of its result.
"""
import dataclasses
import typing

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = {"h": 8, "w": 8}
LARGEST = 2**62


class Drawing:
    """Nodes and constants of a graph under construction."""

    def __init__(self):
        self.nodes, self.constants = [], {}

    def constant(self, values, dtype=np.int64):
        array = np.array(values, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(array, f"c{len(self.constants)}")
        return self.constants[key].name

    def add(self, kind, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def reshape(self, x, *shape):
        return self.add("Reshape", x, self.constant(shape))

    def slice(self, x, axis, start, end, step=1):
        return self.add("Slice", x, *(self.constant([v]) for v in (start, end, axis, step)))

    def resize(self, x, scale, **attributes):
        return self.add("Resize", x, "", self.constant([1, 1, scale, scale], np.float32), **attributes)


@dataclasses.dataclass
class Chain:
    name: str
    sizes: tuple
    step: typing.Callable
    exact: bool = True  # values are moved, not computed
    longest: int = 1000  # sizes fit in 64 bits
    longest_symbols: int = 1000  # compiling more steps with symbols takes minutes
    nightly: bool = False


def turn(d, x):
    """No strides express a transpose between two reshapes that do not fit."""
    return d.reshape(d.add("Transpose", x), 3, -1)


def window_partition(d, x):
    x = d.reshape(x, 1, -1, 4, 2, 4, 2)
    return d.reshape(d.add("Transpose", x, perm=[0, 2, 4, 1, 3, 5]), 1, -1, 8, 8)


def rolled(d, x, axis, by):
    return d.add("Concat", d.slice(x, axis, by, LARGEST), d.slice(x, axis, 0, by), axis=axis)


def shifted_window(d, x):
    """Swin: a cyclic shift, windows of 4 x 4, pointwise work, and back."""
    x = d.reshape(rolled(d, x, 2, 2), 2, -1, 4, 2, 4)
    x = d.add("Tanh", d.reshape(d.add("Transpose", x, perm=[1, 3, 2, 4, 0]), -1, 16, 2))
    x = d.add("Transpose", d.reshape(x, -1, 2, 4, 4, 2), perm=[4, 0, 2, 1, 3])
    return d.reshape(x, 1, 2, -1, 8)


def roll(d, x):
    return rolled(d, rolled(d, x, 2, 3), 3, 1)


def split_concat(d, x):
    a, b = f"a{len(d.nodes)}", f"b{len(d.nodes)}"
    d.nodes.append(helper.make_node("Split", [x], [a, b], axis=1, num_outputs=2))
    return d.add("Concat", b, a, axis=1)


def slice_pad(d, x):
    x = d.slice(d.slice(x, 2, 1, LARGEST), 3, 0, -1)
    return d.add("Pad", x, d.constant([0, 0, 0, 1, 0, 0, 1, 0]))


def reflect_pad(d, x):
    x = d.add("Pad", x, d.constant([0, 0, 1, 1, 0, 0, 1, 1]), mode="reflect")
    return d.slice(d.slice(x, 2, 0, -2), 3, 2, LARGEST)


def edge_pad(d, x):
    x = d.add("Pad", x, d.constant([0, 0, 2, 0, 0, 0, 0, 2]), mode="edge")
    return d.slice(d.slice(x, 2, 1, -1), 3, 1, -1)


def growing_pad(mode):
    """Each step adds two columns, so that the sizes of two steps never are the same symbol."""
    def step(d, x):
        x = d.add("Pad", x, d.constant([0, 0, 1, 1, 0, 0, 1, 1]), mode=mode)
        return d.slice(x, 2, 1, -1)
    return step


def strided_slice(d, x):
    """Every second row, twice."""
    x = d.add("Tile", x, d.constant([1, 1, 2, 1]))
    return d.slice(x, 2, 1, LARGEST, 2)


def flip(d, x):
    return d.slice(d.slice(x, 2, -1, -LARGEST, -1), 3, -1, -LARGEST, -1)


def flip_transpose(d, x):
    return d.reshape(d.add("Transpose", d.slice(x, 2, -1, -LARGEST, -1), perm=[0, 2, 3, 1]), 1, 2, -1, 8)


def gather(d, x):
    return d.add("Gather", x, d.constant([5, 2, 7, 1, 0, 3, 6, 4]), axis=3)


def gather_rows(d, x):
    """Rows by indices that follow the size."""
    size = d.add("Gather", d.add("Shape", x), d.constant(2), axis=0)
    rows = d.add("Range", d.constant(0), size, d.constant(1))
    return d.add("Gather", x, d.add("Mod", d.add("Add", rows, d.constant(1)), size), axis=2)


def tile(d, x):
    x = d.reshape(d.add("Tile", x, d.constant([1, 1, 3, 1])), 1, 2, -1, 3, 8)
    return d.add("Squeeze", d.slice(x, 3, 1, 2), d.constant([3]))


def expand(d, x):
    x = d.add("Expand", d.add("Unsqueeze", x, d.constant([2])), d.constant([1, 2, 3, 1, 8]))
    x = d.reshape(d.add("Transpose", x, perm=[0, 1, 3, 2, 4]), 1, 2, -1, 8)
    return d.slice(x, 2, 1, LARGEST, 3)


def depth_to_space(d, x):
    return d.add("SpaceToDepth", d.add("DepthToSpace", d.reshape(x, 1, 4, -1, 4), blocksize=2, mode="CRD"), blocksize=2)


def shuffle(d, x):
    """Depth to space twice, with a channel shuffle between: no two steps cancel."""
    x = d.add("DepthToSpace", d.reshape(x, 1, 8, -1, 2), blocksize=2)
    return d.reshape(d.add("Transpose", x, perm=[0, 2, 3, 1]), 1, 2, -1, 8)


def channel_shuffle(d, x):
    x = d.reshape(x, 1, 2, 2, -1, 4)
    return d.reshape(d.add("Transpose", x, perm=[0, 2, 1, 3, 4]), 1, 2, -1, 8)


def resize(mode, **attributes):
    def step(d, x):
        x = d.resize(x, 1.5, mode=mode, **attributes)
        return d.slice(d.slice(x, 2, 1, 9), 3, 1, 9)
    return step


def resize_up_down(mode):
    return lambda d, x: d.resize(d.resize(x, 1.5, mode=mode), 0.75, mode=mode)


def conv_resize(d, x):
    w = d.constant(np.full((2, 2, 3, 3), 0.06), np.float32)
    return d.resize(d.add("Conv", x, w, pads=[1] * 4), 1.5, mode="nearest")


def conv(d, x):
    return d.add("Conv", x, d.constant(np.full((2, 2, 3, 3), 0.06), np.float32), pads=[1] * 4)


def conv_down_up(d, x):
    w = d.constant(np.full((2, 2, 3, 3), 0.06), np.float32)
    return d.resize(d.add("Conv", x, w, pads=[1] * 4, strides=[2, 2]), 2, mode="nearest")


def pool(kind):
    return lambda d, x: d.add(kind, x, kernel_shape=[3, 3], pads=[1] * 4)


def pool_down_up(d, x):
    return d.resize(d.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), 2, mode="nearest")


def im2col(d, x):
    """Windows of three rows as one dim, then the middle of each."""
    p = d.add("Pad", x, d.constant([0, 0, 1, 0, 0, 0, 1, 0]))
    parts = [d.add("Unsqueeze", d.slice(p, 2, k, LARGEST if k == 2 else k - 2), d.constant([2])) for k in range(3)]
    columns = d.add("Concat", *parts, axis=2)
    return d.add("Tanh", d.add("ReduceSum", columns, d.constant([2]), keepdims=0))


IMAGE = (1, 2, "h", 8)
PLANE = (1, 2, "h", "w")
CHAINS = [
    Chain("turn", (3, "h"), turn),
    Chain("window_partition", (1, "h", 8, 8), window_partition),
    Chain("shifted_window", IMAGE, shifted_window, exact=False, nightly=True),
    Chain("roll", IMAGE, roll),
    Chain("split_concat", (1, "h", 4, 4), split_concat, nightly=True),
    Chain("slice_pad", IMAGE, slice_pad, nightly=True),
    Chain("reflect_pad", IMAGE, reflect_pad),
    Chain("edge_pad", IMAGE, edge_pad, nightly=True),
    Chain("growing_pad_constant", PLANE, growing_pad("constant"), nightly=True),
    Chain("growing_pad_edge", PLANE, growing_pad("edge"), nightly=True),
    Chain("growing_pad_reflect", PLANE, growing_pad("reflect")),
    Chain("growing_pad_wrap", PLANE, growing_pad("wrap"), nightly=True),
    Chain("strided_slice", IMAGE, strided_slice, nightly=True),
    Chain("flip", PLANE, flip, nightly=True),
    Chain("flip_transpose", IMAGE, flip_transpose, nightly=True),
    Chain("gather", IMAGE, gather, nightly=True),
    Chain("gather_rows", IMAGE, gather_rows),
    Chain("tile", IMAGE, tile, nightly=True),
    Chain("expand", IMAGE, expand, nightly=True),
    Chain("depth_to_space", IMAGE, depth_to_space, nightly=True),
    Chain("shuffle", IMAGE, shuffle),
    Chain("channel_shuffle", IMAGE, channel_shuffle, nightly=True),
    Chain("resize_nearest", PLANE, resize("nearest"), longest_symbols=10),
    Chain("resize_linear", PLANE, resize("linear"), exact=False, longest_symbols=10, nightly=True),
    Chain("resize_cubic", PLANE, resize("cubic"), exact=False, longest_symbols=10, nightly=True),
    Chain("resize_align", PLANE, resize("linear", coordinate_transformation_mode="align_corners"), exact=False, longest_symbols=10, nightly=True),
    Chain("resize_sizes", PLANE, resize_up_down("nearest"), longest_symbols=100, nightly=True),
    Chain("resize_sizes_linear", PLANE, resize_up_down("linear"), exact=False, longest_symbols=100, nightly=True),
    Chain("conv", PLANE, conv, exact=False, nightly=True),
    Chain("conv_resize", PLANE, conv_resize, exact=False, longest=20),
    Chain("conv_down_up", PLANE, conv_down_up, exact=False, nightly=True),
    Chain("max_pool", PLANE, pool("MaxPool"), nightly=True),
    Chain("average_pool", PLANE, pool("AveragePool"), exact=False, nightly=True),
    Chain("pool_down_up", PLANE, pool_down_up),
    Chain("im2col", IMAGE, im2col, exact=False, nightly=True),
]


def model_of(chain, length, symbolic):
    """`length` steps of the chain, and a pointwise step at its end."""
    d = Drawing()
    x = "x"
    for _ in range(length):
        x = chain.step(d, x)
    d.nodes.append(helper.make_node("Neg", [x], ["y"]))
    sizes = [s if symbolic else SIZES.get(s, s) for s in chain.sizes]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)
    graph = helper.make_graph(d.nodes, "chain", [value], [onnx.ValueInfoProto(name="y")], list(d.constants.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def input_of(chain, number=0, sizes=SIZES):
    shape = [sizes.get(s, s) for s in chain.sizes]
    return np.random.default_rng(number).standard_normal(shape).astype(np.float32)
