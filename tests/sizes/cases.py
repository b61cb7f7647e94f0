"""The operators of tests/sizes/run.py, each with inputs for any n. A dim that is n becomes a symbol of the model."""
import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

CASES = []
rng = np.random.default_rng(7)


class Weight:
    """An input that the model holds."""

    def __init__(self, array):
        self.array = np.asarray(array)


class Case:
    """`inputs(n)`: arrays, weights and None. `nodes(names of the inputs, prefix)` gives nodes and the outputs' names."""

    def __init__(self, name, nodes, inputs, opset, tolerance, reference):
        self.name, self.nodes, self.inputs, self.opset, self.tolerance, self.reference = name, nodes, inputs, opset, tolerance, reference

    def arrays(self, n):
        """The inputs at n: the same numbers whenever asked."""
        global rng
        rng = np.random.default_rng(n + 1)
        return self.inputs(n)


def case(name, inputs, outputs=1, opset=21, tolerance=1e-5, reference=(0, 1, 5), **attributes):
    """`name` begins with the operator; `reference`: at which n onnxruntime is asked."""
    kind = name.split()[0]

    def nodes(names, prefix):
        results = [f"{prefix}y{i}" for i in range(outputs)]
        return [helper.make_node(kind, names, results, **attributes)], results

    CASES.append(Case(name, nodes, inputs, opset, tolerance, reference))


def graph_case(name, inputs, opset=21, tolerance=1e-5):
    """A decorator of nodes(names, prefix)."""

    def add(nodes):
        CASES.append(Case(name, nodes, inputs, opset, tolerance, (0, 1, 5)))
        return nodes

    return add


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return (rng.random(shape) + 0.1).astype(np.float32)


def ints(low, high, *shape, dtype=np.int64):
    return rng.integers(low, max(high, low + 1), shape).astype(dtype)


def weight(*shape):
    return Weight(np.random.default_rng(shape).standard_normal(shape).astype(np.float32))


def const(*values, dtype=np.int64):
    return Weight(np.array(values, dtype))


def scalar(value, dtype=np.float32):
    return Weight(np.array(value, dtype))


def pointwise():
    for op in "Abs Ceil Erf Exp Gelu HardSigmoid Identity IsNaN Mish Neg Relu Round Sigmoid Sign Softplus Tanh".split():
        case(op, lambda n: [f32(n, 3)])
    case("Not", lambda n: [f32(n) > 0])
    case("Clip", lambda n: [f32(n, 3), scalar(-0.5), scalar(0.5)])
    case("Cast", lambda n: [f32(n, 3)], to=T.INT32)
    for op in "Add Sub Mul Div Max Min Mean Sum Equal Less".split():
        case(op, lambda n: [f32(n, 3), positive(n, 3)])
    case("Add row", lambda n: [f32(n, 3), weight(3)])
    case("Mul column", lambda n: [f32(n, 3), f32(n, 1)])
    case("Add outer", lambda n: [f32(n, 1), f32(1, n)])
    case("Pow", lambda n: [positive(n, 3), scalar(2.5)])
    case("Mod", lambda n: [ints(0, 9, n), const(4)])
    case("Where", lambda n: [f32(n, 3) > 0, f32(n, 3), scalar(0)])
    case("PRelu", lambda n: [f32(2, n), weight(1)])
    case("QuantizeLinear", lambda n: [f32(n, 3), scalar(0.1), scalar(3, np.uint8)])
    case("DequantizeLinear", lambda n: [ints(0, 255, n, 3, dtype=np.uint8), scalar(0.1), scalar(3, np.uint8)])
    case("DynamicQuantizeLinear", lambda n: [f32(n, 3)], outputs=3, reference=(1, 5))  # extremes of nothing are any numbers


def reductions():
    for op in "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare".split():
        case(f"{op} rows", lambda n: [f32(n, 3), const(1)])
        if op not in ("ReduceMax", "ReduceMin", "ReduceMean"):  # of nothing
            case(f"{op} columns", lambda n: [f32(n, 3), const(0)])
            case(f"{op} all", lambda n: [f32(n, 3)])
    case("ReduceLogSum", lambda n: [positive(n, 3), const(1)])
    case("ReduceLogSumExp", lambda n: [f32(n, 3), const(1)])
    case("ReduceMax of nothing", lambda n: [f32(3, n), const(1)])
    # 0 / 0 is NaN, as in NumPy and PyTorch; onnxruntime gives 0.
    case("ReduceMean of nothing", lambda n: [f32(3, n), const(1)], reference=(1, 5))
    case("ArgMax rows", lambda n: [f32(n, 3)], axis=1)
    case("ArgMin of n", lambda n: [f32(3, n)], axis=1)
    case("CumSum", lambda n: [f32(n, 3), scalar(0, np.int64)])
    for op in "Softmax LogSoftmax Hardmax".split():
        case(f"{op} rows", lambda n: [f32(n, 3)])
        case(f"{op} of n", lambda n: [f32(3, n)])
    case("LayerNormalization", lambda n: [f32(n, 4), weight(4)])
    case("LayerNormalization of n", lambda n: [f32(2, n), f32(n)])
    case("RMSNormalization", lambda n: [f32(n, 4), weight(4)], opset=23)
    case("InstanceNormalization", lambda n: [f32(n, 2, 4), weight(2), weight(2)])
    case("GroupNormalization", lambda n: [f32(n, 4, 3), weight(4), weight(4)], num_groups=2)
    case("BatchNormalization", lambda n: [f32(n, 2, 3), weight(2), weight(2), weight(2), Weight(np.ones(2, np.float32))])
    case("LpNormalization", lambda n: [f32(n, 3)], axis=1)
    case("LRN", lambda n: [f32(n, 4, 3)], size=3)
    case("MeanVarianceNormalization", lambda n: [f32(n, 2, 3, 3)], axes=[2, 3])
    case("SoftmaxCrossEntropyLoss", lambda n: [f32(n, 3), ints(0, 3, n)], reduction="none")
    case("NegativeLogLikelihoodLoss", lambda n: [f32(n, 3), ints(0, 3, n)], reduction="sum")


def shapes():
    case("Transpose", lambda n: [f32(n, 3, 2)], perm=[2, 0, 1])
    case("Concat", lambda n: [f32(n, 2), f32(3, 2)], axis=0)
    case("Concat both", lambda n: [f32(n, 2), f32(n, 2)], axis=1)
    case("Split", lambda n: [f32(n, 4)], outputs=2, axis=1, num_outputs=2)
    case("Split of n", lambda n: [f32(n, 4)], outputs=2, axis=0, num_outputs=2)
    case("Split of n in 3", lambda n: [f32(n, 4)], outputs=3, axis=0, num_outputs=3)  # not of 1
    case("Slice", lambda n: [f32(n, 4), const(1), const(3), const(0)])
    case("Slice reversed", lambda n: [f32(n, 4), const(-1), const(-(2**62)), const(0), const(-1)])
    case("Slice by 2", lambda n: [f32(n, 4), const(0), const(2**62), const(0), const(2)])
    case("Slice far steps", lambda n: [f32(n, 4), const(-1, 0), const(-(2**63), 2**63 - 1), const(0, 1), const(-(2**63), 2**63 - 1)])
    for mode in ("constant", "edge", "reflect", "wrap"):
        case(f"Pad {mode}", lambda n: [f32(n, 4), const(0, 2, 0, 1)], mode=mode)
    case("Pad n", lambda n: [f32(n, 4), const(2, 0, 1, 0)])
    case("Pad n edge", lambda n: [f32(n, 4), const(2, 0, 1, 0)], mode="edge")
    case("Tile", lambda n: [f32(n, 2), const(2, 3)])
    case("Expand", lambda n: [f32(n, 1), const(2, 1, 3)])
    case("Reshape 0 -1", lambda n: [f32(n, 2, 2), const(0, -1)])
    case("Reshape -1 4", lambda n: [f32(n, 2, 2), const(-1, 4)])
    case("Reshape 0 0 -1", lambda n: [f32(n, 3, 4), const(0, 0, -1)])
    case("Reshape -1 0", lambda n: [f32(3, n), const(-1, 0)])
    case("Reshape 2 0 -1", lambda n: [f32(2, n, 6), const(2, 0, -1)])
    case("Flatten", lambda n: [f32(n, 2, 3)])
    case("Flatten n", lambda n: [f32(2, n, 3)], axis=2)
    case("Squeeze", lambda n: [f32(n, 1, 3), const(1)])
    case("Unsqueeze", lambda n: [f32(n, 3), const(0)])
    case("DepthToSpace", lambda n: [f32(n, 4, 2, 2)], blocksize=2)
    case("SpaceToDepth", lambda n: [f32(n, 1, 4, 4)], blocksize=2)
    case("Shape", lambda n: [f32(n, 3)])
    case("Size", lambda n: [f32(n, 3)])
    case("Trilu", lambda n: [f32(n, 3, 3)])
    case("EyeLike", lambda n: [f32(n, 3)])
    case("ReverseSequence", lambda n: [f32(4, n), np.full(n, 2, np.int64)])
    case("CenterCropPad", lambda n: [f32(n, 5), const(3)], axes=[1])

    def prefixed(*nodes):
        return lambda names, p: ([make(names, p) for make in nodes], [p + "y"])

    N = helper.make_node
    graph_case("Range to a size", lambda n: [f32(n), scalar(0, np.int64), scalar(2, np.int64), const(0)])(
        prefixed(lambda i, p: N("Shape", i[:1], [p + "s"]), lambda i, p: N("Squeeze", [p + "s", i[3]], [p + "e"]),
                 lambda i, p: N("Range", [i[1], p + "e", i[2]], [p + "y"])))  # fmt: skip
    graph_case("ConstantOfShape", lambda n: [f32(n, 2)])(
        prefixed(lambda i, p: N("Shape", i, [p + "s"]), lambda i, p: N("ConstantOfShape", [p + "s"], [p + "y"])))
    graph_case("Reshape to sizes", lambda n: [f32(n, 6), const(2, 3)])(
        prefixed(lambda i, p: N("Shape", i[:1], [p + "s"], end=1), lambda i, p: N("Concat", [p + "s", i[1]], [p + "t"], axis=0),
                 lambda i, p: N("Reshape", [i[0], p + "t"], [p + "y"])))  # fmt: skip
    graph_case("Reshape to sizes turned", lambda n: [f32(4, n), const(4)])(
        prefixed(lambda i, p: N("Shape", i[:1], [p + "s"], start=1), lambda i, p: N("Concat", [p + "s", i[1]], [p + "t"], axis=0),
                 lambda i, p: N("Reshape", [i[0], p + "t"], [p + "y"])))  # fmt: skip
    graph_case("Reshape to a size and the rest", lambda n: [f32(4, n), const(-1)])(
        prefixed(lambda i, p: N("Shape", i[:1], [p + "s"], start=1), lambda i, p: N("Concat", [p + "s", i[1]], [p + "t"], axis=0),
                 lambda i, p: N("Reshape", [i[0], p + "t"], [p + "y"])))  # fmt: skip


def indexing():
    case("Gather", lambda n: [weight(5, 3), ints(0, 5, n)])
    case("Gather from n", lambda n: [f32(3, n, 2), const(1)])
    case("GatherElements", lambda n: [weight(5, 2), ints(0, 5, n, 2)])
    case("GatherND", lambda n: [weight(5, 3), ints(0, 5, n, 1)])
    case("ScatterElements", lambda n: [weight(5, 2), ints(0, 5, n, 2), f32(n, 2)], reduction="add", opset=18)
    case("ScatterND", lambda n: [weight(5, 2), ints(0, 5, n, 1), f32(n, 2)], reduction="add", opset=18)
    case("OneHot", lambda n: [ints(0, 4, n), scalar(4, np.int64), const(0, 1, dtype=np.float32)])
    case("NonZero", lambda n: [(f32(n, 3) > 0).astype(np.float32)])
    case("Compress", lambda n: [f32(n, 3), f32(n) > 0], axis=0)
    case("Unique", lambda n: [ints(0, 3, n)], outputs=4)
    case("TopK", lambda n: [f32(n, 4), const(2)], outputs=2)
    case("TopK of n", lambda n: [f32(3, n), const(1)], outputs=2)
    case("TensorScatter", lambda n: [f32(n, 4, 2), f32(n, 1, 2)], opset=24, axis=1)


def contractions():
    case("MatMul rows", lambda n: [f32(n, 4), weight(4, 5)])
    case("MatMul inner", lambda n: [f32(3, n), f32(n, 5)])
    case("MatMul batch", lambda n: [f32(n, 3, 4), f32(n, 4, 2)])
    case("MatMul vector", lambda n: [f32(n, 4), weight(4)])
    case("Gemm", lambda n: [f32(n, 4), weight(4, 5), weight(5)])
    case("Gemm inner", lambda n: [f32(n, 3), f32(n, 5), weight(5)], transA=1)
    case("Einsum", lambda n: [f32(n, 3), f32(n, 2)], equation="ab,ac->bc")
    # A dim of size 1 broadcasts, also if it is known at run time only: of an ellipsis, a batch and a sum. n = 0 is refused.
    for equation in ("...ij,...jk->...ik", "bij,bjk->bik", "...i,...i->..."):
        case(f"Einsum {equation} left", lambda n: [f32(n, 2, 2), f32(5, 2, 2)], equation=equation)
        case(f"Einsum {equation} right", lambda n: [f32(5, 2, 2), f32(n, 2, 2)], equation=equation)
    case("Einsum sum left", lambda n: [f32(2, 3, n), f32(2, 5, 4)], equation="bij,bjk->bik")
    case("Einsum sum right", lambda n: [f32(2, 3, 5), f32(2, n, 4)], equation="bij,bjk->bik")
    case("MatMulInteger", lambda n: [ints(0, 255, n, 4, dtype=np.uint8), Weight(np.arange(20, dtype=np.int8).reshape(4, 5)), scalar(3, np.uint8)])
    case("Conv", lambda n: [f32(n, 3, 6, 6), weight(4, 3, 3, 3)], pads=[1] * 4, tolerance=1e-4)
    case("Conv 1d", lambda n: [f32(1, 2, n), weight(4, 2, 3)], pads=[2, 2], tolerance=1e-4)
    case("ConvTranspose", lambda n: [f32(n, 3, 4, 4), weight(3, 2, 2, 2)], strides=[2, 2], tolerance=1e-4)
    case("MaxPool", lambda n: [f32(n, 2, 6, 6)], kernel_shape=[2, 2], strides=[2, 2])
    case("AveragePool", lambda n: [f32(n, 2, 6, 6)], kernel_shape=[3, 3], pads=[1] * 4)
    case("GlobalAveragePool", lambda n: [f32(n, 2, 4, 4)])
    case("GlobalMaxPool", lambda n: [f32(n, 2, 4, 4)])
    case("LpPool", lambda n: [f32(n, 2, 4, 4)], kernel_shape=[2, 2])
    case("Resize", lambda n: [f32(n, 2, 3, 3), None, const(1, 1, 2, 2, dtype=np.float32)], mode="linear")
    case("GridSample", lambda n: [f32(n, 2, 4, 4), f32(n, 3, 3, 2)])
    case("GridSample points", lambda n: [f32(1, 2, 4, 4), f32(1, n, 3, 2)])
    for mode in ("avg", "max"):
        for ratio in (0, 2):
            case(f"RoiAlign {mode} {ratio}", lambda n: [weight(1, 2, 8, 8), np.concatenate([positive(n, 2), positive(n, 2) * 6 + 1], 1), np.zeros(n, np.int64)],
                 mode=mode, sampling_ratio=ratio, output_height=2, output_width=3, tolerance=1e-4)  # fmt: skip
    case("NonMaxSuppression", lambda n: [np.sort(positive(1, n, 2, 2), 2).reshape(1, n, 4), positive(1, 2, n), scalar(5, np.int64), scalar(0.5)])
    case("DFT", lambda n: [f32(n, 8, 1)], opset=20)
    case("Attention queries", lambda n: [f32(1, 2, n, 4), weight(1, 2, 3, 4), weight(1, 2, 3, 4)], opset=23)
    case("Attention keys", lambda n: [weight(1, 2, 3, 4), f32(1, 2, n, 4), f32(1, 2, n, 4)], opset=23)
    case("Attention batch", lambda n: [f32(n, 2, 3, 4), f32(n, 2, 3, 4), f32(n, 2, 3, 4)], opset=23)


def recurrence():
    # onnxruntime aborts the process in an LSTM or a GRU of no steps or of an empty batch.
    for kind, gates, sizes in (("LSTM", 4, (1, 5)), ("GRU", 3, (1, 5)), ("RNN", 1, (0, 1, 5))):
        for direction, d in (("forward", 1), ("bidirectional", 2)):
            weights = [weight(d, gates * 2, 3), weight(d, gates * 2, 2), weight(d, gates * 4)]
            case(f"{kind} steps {direction}", lambda n, w=weights: [f32(n, 2, 3), *w], outputs=2, hidden_size=2, direction=direction, reference=sizes, tolerance=1e-4)
            case(f"{kind} batch {direction}", lambda n, w=weights: [f32(4, n, 3), *w], outputs=2, hidden_size=2, direction=direction, reference=sizes, tolerance=1e-4)
        case(f"{kind} lengths", lambda n, g=gates: [f32(n, 2, 3), weight(1, g * 2, 3), weight(1, g * 2, 2), None, Weight(np.array([0, 0], np.int32))],
             outputs=2, hidden_size=2, reference=sizes, tolerance=1e-4)  # fmt: skip


def control_flow():
    N, vi = helper.make_node, helper.make_tensor_value_info

    def body(nodes, inputs, outputs):
        return helper.make_graph(nodes, "body", inputs, outputs)

    def trips(names, p):
        return [N("Shape", [names[0]], [p + "s"], end=1), N("Squeeze", [p + "s"], [p + "m"])]

    @graph_case("Loop over rows", lambda n: [f32(n, 2), weight(2)])
    def _(i, p):
        b = body([N("Gather", [i[0], "j"], ["row"]), N("Add", ["c", "row"], ["co"]), N("Identity", ["co"], ["q"]), N("Identity", ["t"], ["to"])],
                 [vi("j", T.INT64, []), vi("t", T.BOOL, []), vi("c", T.FLOAT, [2])],
                 [vi("to", T.BOOL, []), vi("co", T.FLOAT, [2]), vi("q", T.FLOAT, [2])])  # fmt: skip
        return [*trips(i, p), N("Loop", [p + "m", "", i[1]], [p + "f", p + "y"], body=b)], [p + "f", p + "y"]

    @graph_case("Loop of sliced rows", lambda n: [f32(n, 2), const(0), const(1)])
    def _(i, p):
        b = body([N("Unsqueeze", ["j", i[1]], ["at"]), N("Add", ["at", i[2]], ["to"]), N("Slice", [i[0], "at", "to"], ["part"]),
                  N("Squeeze", ["part", i[1]], ["row"]), N("Identity", ["t"], ["more"])],
                 [vi("j", T.INT64, []), vi("t", T.BOOL, [])],
                 [vi("more", T.BOOL, []), vi("row", T.FLOAT, [2])])  # fmt: skip
        return [*trips(i, p), N("Loop", [p + "m", ""], [p + "y"], body=b)], [p + "y"]

    @graph_case("Loop that stacks rows of n", lambda n: [f32(n), scalar(3, np.int64)])
    def _(i, p):
        b = body([N("Mul", [i[0], i[0]], ["row"]), N("Identity", ["t"], ["more"])],
                 [vi("j", T.INT64, []), vi("t", T.BOOL, [])], [vi("more", T.BOOL, []), vi("row", T.FLOAT, ["k"])])  # fmt: skip
        return [N("Loop", [i[1], ""], [p + "y"], body=b)], [p + "y"]

    @graph_case("Loop that grows", lambda n: [f32(n, 2), weight(1, 2)])
    def _(i, p):
        b = body([N("Concat", ["c", i[1]], ["co"], axis=0), N("Identity", ["t"], ["more"])],
                 [vi("j", T.INT64, []), vi("t", T.BOOL, []), vi("c", T.FLOAT, ["k", 2])], [vi("more", T.BOOL, []), vi("co", T.FLOAT, ["k1", 2])])  # fmt: skip
        return [*trips(i, p), N("Loop", [p + "m", "", i[1]], [p + "y"], body=b)], [p + "y"]

    for direction in (0, 1):

        @graph_case(f"Scan over rows {direction}", lambda n: [weight(2), f32(n, 2)])
        def _(i, p, direction=direction):
            b = body([N("Add", ["c", "row"], ["co"]), N("Mul", ["co", "row"], ["q"])],
                     [vi("c", T.FLOAT, [2]), vi("row", T.FLOAT, [2])], [vi("co", T.FLOAT, [2]), vi("q", T.FLOAT, [2])])  # fmt: skip
            return [N("Scan", i, [p + "f", p + "y"], num_scan_inputs=1, body=b, scan_input_directions=[direction])], [p + "f", p + "y"]

    @graph_case("If on a size", lambda n: [f32(n, 2), scalar(0, np.int64)])
    def _(i, p):
        then, otherwise = (helper.make_graph([N(op, [i[0]], [f"z{op}"])], op, [], [vi(f"z{op}", T.FLOAT, ["k", 2])]) for op in ("Neg", "Abs"))
        return [*trips(i, p), N("Greater", [p + "m", i[1]], [p + "c"]), N("If", [p + "c"], [p + "y"], then_branch=then, else_branch=otherwise)], [p + "y"]


FAMILIES = (pointwise, reductions, shapes, indexing, contractions, recurrence, control_flow)
for family in FAMILIES:
    family()
