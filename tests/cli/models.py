"""Writes the small models that tests/cli works with into a folder: good ones, and one file for every way to be bad."""

import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def value(name, shape, dtype=F32):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, weights=(), opset=18, domains=()):
    graph = helper.make_graph(nodes, "test", inputs, outputs, [numpy_helper.from_array(w, n) for n, w in weights])
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="stridec tests")


def _weights(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def mlp():
    """y = relu(x @ w + b); p = x's rows where idx points; batch and k are symbols."""
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"], "dense/MatMul"),
            helper.make_node("Add", ["xw", "b"], ["h"], "dense/Add"),
            helper.make_node("Relu", ["h"], ["y"], "dense/Relu"),
        ],
        [value("x", ["batch", 4])],
        [value("y", ["batch", 8])],
        [("w", _weights(4, 8)), ("b", _weights(8))],
    )


# Of the outputs of `named`: two that are one value, with names that need quoting everywhere.
ODD_NAMES = ["a/b:0 c", "ü 'q' \"p\" [1]=2, {3} `4` \\n"]


def windows():
    """A convolution that Winograd's algorithm is for."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv/Conv", pads=[1, 1, 1, 1])
    return model([node], [value("x", [1, 64, 56, 56])], [value("y", None)], [("w", _weights(64, 64, 3, 3))])


def sized():
    """y: x in rows of the length n, which is an input."""
    return model(
        [helper.make_node("Concat", ["any", "n"], ["s"], axis=0), helper.make_node("Reshape", ["x", "s"], ["y"], "rows/Reshape")],
        [value("x", ["batch", 6]), value("n", [1], I64)],
        [value("y", None)],
        [("any", np.array([-1]))],
    )


def stepping():
    """d = c + x: an input that a run may get from the run before."""
    return model([helper.make_node("Add", ["c", "x"], ["d"], "sum/Add")], [value("c", [4]), value("x", [4])], [value("d", [4])])


def named():
    """Outputs x, which is the input x, w, which is a weight, and relu(x) twice."""
    return model(
        [helper.make_node("Relu", ["x"], ["r"])] + [helper.make_node("Identity", ["r"], [name]) for name in ODD_NAMES],
        [value("x", ["n", 3]), value("x_1", [2])],
        [value("x", ["n", 3]), value("w", [2]), value("x_1", [2])] + [value(name, ["n", 3]) for name in ODD_NAMES],
        [("w", np.array([5, 7], np.float32))],
    )


def unpooled():
    """x where it is largest in windows of 3 by 2 with steps of 2, zeros elsewhere; the sizes are symbols."""
    pool = dict(kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])
    return model(
        [
            helper.make_node("MaxPool", ["x"], ["p", "i"], **pool),
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("MaxUnpool", ["p", "i", "s"], ["y"], **pool),
        ],
        [value("x", ["n", 2, "h", "w"])],
        [value("y", ["n", 2, "h", "w"])],
    )


def scaled():
    """y = relu((x @ w + b) * s), which is relu(x @ (w * s) + b * s)."""
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"], "dense/MatMul"),
            helper.make_node("Add", ["xw", "b"], ["h"], "dense/Add"),
            helper.make_node("Mul", ["h", "s"], ["n"], "dense/Mul"),
            helper.make_node("Relu", ["n"], ["y"], "dense/Relu"),
        ],
        [value("x", ["batch", 4])],
        [value("y", ["batch", 8])],
        [("w", _weights(4, 8)), ("b", _weights(8)), ("s", _weights(8))],
    )


def rounded():
    """y = -tanh(relu(x)): the second node alone rounds."""
    return model(
        [
            helper.make_node("Relu", ["x"], ["a"], "exact/Relu"),
            helper.make_node("Tanh", ["a"], ["b"], "rounds/Tanh"),
            helper.make_node("Neg", ["b"], ["y"], "exact/Neg"),
        ],
        [value("x", ["batch", 64])],
        [value("y", ["batch", 64])],
    )


def counted():
    """Products with running sums of 0, 1, ... up to a number that only the run tells."""
    return model(
        [
            helper.make_node("Range", ["zero", "end", "one"], ["r"], "count/Range"),
            helper.make_node("Cast", ["r"], ["f"], "count/Cast", to=F32),
            helper.make_node("Unsqueeze", ["f", "last"], ["column"], "turn/Unsqueeze"),
            helper.make_node("CumSum", ["column", "first"], ["sums"], "sum/CumSum"),
            helper.make_node("MatMul", ["sums", "w"], ["made"], "mix/MatMul"),
            helper.make_node("Softmax", ["made"], ["y"], "mix/Softmax"),
        ],
        [value("end", [], I64)],
        [value("y", None)],
        [("zero", np.array(0)), ("one", np.array(1)), ("first", np.array(0)), ("last", np.array([1])), ("w", _weights(1, 8))],
    )


def frames():
    """The tensors of a sequence, whose length is said with --dim, one behind the other."""
    made = model([helper.make_node("ConcatFromSequence", ["frames"], ["y"], "join/Concat", axis=0)], [], [value("y", None)])
    made.graph.input.append(helper.make_tensor_sequence_value_info("frames", F32, ["n", 4]))
    return made


def parts():
    """What an artifact has parts with licenses of their own for: an image, a Fourier transform, numbers of NumPy's stream."""
    return model(
        [
            helper.make_node("ImageDecoder", ["bytes"], ["image"], "read/ImageDecoder"),
            helper.make_node("DFT", ["signal"], ["spectrum"], "turn/DFT"),
            helper.make_node("Dropout", ["x", "ratio", "training"], ["kept"], "drop/Dropout", seed=7),
        ],
        [value("bytes", ["n"], TensorProto.UINT8), value("signal", [2, 1024, 1]), value("x", ["m", 4])],
        [value("image", ["h", "w", 3], TensorProto.UINT8), value("spectrum", [2, 1024, 2]), value("kept", ["m", 4])],
        [("ratio", np.array(0.5, np.float32)), ("training", np.array(True))],
        opset=20,
    )


def counting():
    """What has been added up so far: past becomes present, as a state does."""
    return model(
        [helper.make_node("Add", ["past", "x"], ["present"], "count/Add"), helper.make_node("Mul", ["present", "present"], ["y"])],
        [value("past", [3]), value("x", [3])],
        [value("present", [3]), value("y", [3])],
    )


def repeated():
    """x doubled as often as the run says."""
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "v"], ["twice"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [value("i", [], I64), value("go", [], TensorProto.BOOL), value("v", ["n"])],
        [value("on", [], TensorProto.BOOL), value("twice", ["n"])],
    )
    loop = helper.make_node("Loop", ["times", "", "x"], ["y"], "repeat/Loop", body=body)
    return model([loop], [value("times", [], I64), value("x", ["n"])], [value("y", ["n"])])


def layers(count=3):
    """x through equal layers: matrix product and Tanh."""
    nodes, weights, at = [], [], "x"
    for i in range(count):
        weights.append((f"w{i}", _weights(16, 16) + i))
        nodes.append(helper.make_node("MatMul", [at, f"w{i}"], [f"h{i}"], f"layer{i}/MatMul"))
        at = "y" if i + 1 == count else f"y{i}"
        nodes.append(helper.make_node("Tanh", [f"h{i}"], [at], f"layer{i}/Tanh"))
    return model(nodes, [value("x", ["batch", 16])], [value("y", ["batch", 16])], weights)


def fated():
    """Nodes of every fate, named after it. y = exp(x + relu(w))^T * exp(...)^T once per row; `best` needs a sort; only the run
    knows which branch makes `z`."""
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], [out], f"kernel/{op}")], op, [], [value(out, None)])
        for op, out in (("Neg", "n"), ("Abs", "a"))
    ]
    return model(
        [
            helper.make_node("Relu", ["w"], ["c"], "constant/Relu"),
            helper.make_node("Add", ["x", "c"], ["h"], "kernel/Add"),
            helper.make_node("Exp", ["h"], ["e"], "kernel/Exp"),
            helper.make_node("Exp", ["h"], ["e2"], "rewritten/Exp"),
            helper.make_node("Transpose", ["e"], ["t"], "view/Transpose"),
            helper.make_node("Transpose", ["e2"], ["t2"], "rewritten/Transpose"),
            helper.make_node("Identity", ["t2"], ["t3"], "view/Identity"),
            helper.make_node("Mul", ["t", "t3"], ["m"], "kernel/Mul"),
            helper.make_node("Shape", ["m"], ["s"], "size/Shape"),
            helper.make_node("Reshape", ["m", "s"], ["y"], "view/Reshape"),
            helper.make_node("Neg", ["m"], ["unused"], "dead/Neg"),
            helper.make_node("TopK", ["x", "k"], ["best", "at"], "routine/TopK"),
            helper.make_node("If", ["flag"], ["z"], "kernel/If", then_branch=branches[0], else_branch=branches[1]),
        ],
        [value("x", ["batch", 4]), value("flag", [], TensorProto.BOOL)],
        [value("y", None), value("best", None), value("z", None)],
        [("w", _weights(4)), ("k", np.array([2]))],
    )


def gather():
    """picked = table[index]; total = left + right, of which each may have one row or as many as the other."""
    return model(
        [
            helper.make_node("Gather", ["table", "index"], ["picked"], "pick/Gather", axis=0),
            helper.make_node("Add", ["left", "right"], ["total"], "sum/Add"),
        ],
        [
            value("table", ["rows", 4]),
            value("index", ["k"], I64),
            value("left", ["n", 2]),
            value("right", ["m", 2]),
        ],
        [value("picked", ["k", 4]), value("total", ["t", 2])],
    )


def ranged():
    """The scale with which bytes cover x, and 1 / scale."""
    return model(
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["bytes", "scale", "zero"], "cover/DynamicQuantizeLinear"),
            helper.make_node("Reciprocal", ["scale"], ["steps"], "turn/Reciprocal"),
        ],
        [value("x", ["n", 4])],
        [value("bytes", ["n", 4], TensorProto.UINT8), value("scale", []), value("zero", [], TensorProto.UINT8), value("steps", [])],
    )


def tower(layers=24):
    """Many kernels that differ, so that compiling takes a while: for interruptions."""
    nodes, weights, last = [], [], "x"
    for i in range(layers):
        weights.append((f"w{i}", _weights(32 + i, 33 + i)))
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"], f"layer{i}/MatMul"))
        nodes.append(helper.make_node(("Tanh", "Sigmoid", "Erf", "Softplus")[i % 4], [f"m{i}"], [f"y{i}"], f"layer{i}/f"))
        last = f"y{i}"
    return model(nodes, [value("x", ["batch", 32])], [value(last, ["batch", 32 + layers])], weights)


def chain(*nodes, shape=("batch", 4), weights=(), **more):
    """A model of nodes that each read the one before."""
    made, last = [], "x"
    for i, (op, attributes) in enumerate(nodes):
        made.append(helper.make_node(op, [last], [f"t{i}"], f"block/{op}", **attributes))
        last = f"t{i}"
    return model(made, [value("x", list(shape))], [value(last, None)], weights, **more)


def bytes_of():
    """Numbers and the bytes that stand for them: many nests of one operator."""
    made = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"], "quantize")
    back = helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], "dequantize")
    return model([made, back], [value("x", ["batch", 4])], [value("y", None)])


def _external(location, length=128):
    """mlp with its weight in another file: 4 x 8 floats at offset 0."""
    made = mlp()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "0"), ("length", str(length))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    return made


def bad_models():
    """name: model; each is refused."""
    add = helper.make_node
    cyclic = model(
        [
            add("Add", ["x", "c"], ["a"], "loop/Add"),
            add("Relu", ["a"], ["b"], "loop/Relu"),
            add("Neg", ["b"], ["c"], "loop/Neg"),
        ],
        [value("x", [4])],
        [value("c", [4])],
    )
    wrong_bytes = mlp()
    wrong_bytes.graph.initializer[0].raw_data = wrong_bytes.graph.initializer[0].raw_data[:100]
    negative = mlp()
    negative.graph.initializer[0].dims[0] = -4
    huge_weight = mlp()
    huge_weight.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]
    return {
        "unknown_op": chain(("Relu", {}), ("RotatedNMS", {"domain": "com.acme"}), domains=["com.acme"]),
        "two_unknown": chain(("Sparkle", {}), ("Relu", {}), ("RotatedNMS", {"domain": "com.acme"}), domains=["com.acme"]),
        "cyclic": cyclic,
        "matmul_mismatch": model(
            [add("MatMul", ["x", "w"], ["y"], "dense/MatMul")],
            [value("x", ["batch", 5])],
            [value("y", ["batch", 8])],
            [("w", _weights(4, 8))],
        ),
        "add_mismatch": model(
            [add("Add", ["x", "w"], ["y"], "bias/Add")], [value("x", [2, 3])], [value("y", [2, 3])], [("w", _weights(4))]
        ),
        "wrong_declared_output": model(
            [add("Relu", ["x"], ["y"], "act/Relu")], [value("x", [2, 3])], [value("y", [2, 3], I64)]
        ),
        "type_mismatch": model(
            [add("Add", ["x", "i"], ["y"], "mix/Add")], [value("x", [4]), value("i", [4], I64)], [value("y", [4])]
        ),
        "overflowing_dims": model(
            [add("Relu", ["x"], ["y"], "act/Relu")], [value("x", [1 << 40, 1 << 40])], [value("y", [1 << 40, 1 << 40])]
        ),
        "overflowing_product": model(
            [add("Reshape", ["x", "shape"], ["y"], "flat/Reshape"), add("Expand", ["y", "wide"], ["z"], "wide/Expand")],
            [value("x", ["batch"])],
            [value("z", None)],
            [("shape", np.array([-1, 1, 1])), ("wide", np.array([1, 1 << 40, 1 << 40]))],
        ),
        "undefined_input": model(
            [add("Add", ["x", "ghost"], ["y"], "haunted/Add")], [value("x", [4])], [value("y", [4])]
        ),
        "defined_twice": model(
            [add("Relu", ["x"], ["y"], "first/Relu"), add("Neg", ["x"], ["y"], "second/Neg")],
            [value("x", [4])],
            [value("y", [4])],
        ),
        "output_not_made": model([add("Relu", ["x"], ["y"], "act/Relu")], [value("x", [4])], [value("nowhere", [4])]),
        "missing_attribute": chain(("Cast", {})),
        "wrong_attribute": chain(("Softmax", {"axis": "two"})),
        "names_that_act": model([add("Spark\x1b[2Jle", ["x"], ["y"], "a\nproblems   none")], [value("x", [4])], [value("y", [4])]),
        "step_of_zero": model([add("Range", ["zero", "end", "zero"], ["y"], "count/Range")], [value("end", [], I64)],
                              [value("y", None)], [("zero", np.array(0))]),
        "ranks_of_branches": model([
            add("If", ["c"], ["y"], "choose/If",
                then_branch=helper.make_graph([add("Squeeze", ["x", "last"], ["a"])], "then", [], [value("a", None)]),
                else_branch=helper.make_graph([add("Identity", ["x"], ["b"])], "else", [], [value("b", None)]))],
            [value("c", [], TensorProto.BOOL), value("x", ["n", 1])], [value("y", None)], [("last", np.array([1]))]),
        "axis_outside": chain(("Softmax", {"axis": 5})),
        "indices_outside": indices_outside(),
        "drawn": drawn(),
        "too_few_inputs": model([add("MatMul", ["x"], ["y"], "dense/MatMul")], [value("x", [4, 4])], [value("y", [4, 4])]),
        "opset_of_the_future": chain(("Relu", {}), opset=4000),
        "weight_cut_short": wrong_bytes,
        "weight_of_negative_size": negative,
        "weight_of_huge_size": huge_weight,
        "outside_folder": _external("../outside.bin"),
        "absolute_path": _external("/etc/hostname", 4),
        "symlink": _external("link.bin"),
        "data_cut_short": _external("short.bin"),
        "data_of_wrong_length": _external("whole.bin", 100),
        "data_missing": _external("missing.bin"),
    }


def indices_outside():
    """Constant indices that no run can use, and one that an input's size decides on."""
    add, row = helper.make_node, np.arange(6, dtype=np.float32).reshape(2, 3)
    far, near = np.array([[0, 3, -4]]), np.zeros((1, 3), np.int64)
    tuples = np.array([[0, 0], [1, -3], [2, 1]])
    return model(
        [
            add("Gather", ["x", "many"], ["a"], "rows/Gather", axis=1),
            add("GatherElements", ["x", "far"], ["b"], "elements/GatherElements", axis=1),
            add("GatherND", ["row", "tuples"], ["c"], "tuples/GatherND"),
            add("ScatterElements", ["x", "far", "row1"], ["d"], "put/ScatterElements", axis=1),
            add("ScatterND", ["row", "tuples", "u"], ["e"], "put/ScatterND"),
            add("GatherElements", ["x", "near"], ["f"], "inside/GatherElements", axis=0),
        ],
        [value("x", ["n", 3]), value("u", [3])],
        [value(name, None) for name in "abcdef"],
        [("many", np.arange(-3, 1500)), ("far", far), ("near", near), ("tuples", tuples), ("row", row), ("row1", row[:1])],
    )


def drawn():
    """What is sorted loses elements by NumPy's random stream: one of the two steps does not run on GPUs."""
    return model(
        [
            helper.make_node("TopK", ["x", "k"], ["sorted", "at"], "order/TopK", axis=1),
            helper.make_node("Dropout", ["sorted", "ratio", "training"], ["y"], "noise/Dropout", seed=1),
        ],
        [value("x", ["n", 64])],
        [value("y", None)],
        [("k", np.array([64])), ("ratio", np.array(0.5, np.float32)), ("training", np.array(True))],
        opset=20,
    )


def overflowing_models():
    """name: model; sizes whose elements or bytes do not fit in 64 bits, and other sizes that cannot be."""
    add, big = helper.make_node, 1 << 40

    def one(nodes, shape, **constants):
        weights = [(name, np.array(data)) for name, data in constants.items()]
        return model(nodes, [value("x", shape)], [value("y", None)], weights)

    image, ones = [1, 1, 4, 4], np.ones((1, 1, 3, 3), np.float32)
    doubled = [add("Shape", ["x"], ["t0"], "shape/Shape")]
    for i in range(70):
        doubled.append(add("Mul", [f"t{i}", f"t{i}"], [f"t{i + 1}"], f"power/Mul{i}"))
    range_nodes = [
        add("Range", ["zero", "end", "one"], ["r"], "count/Range"),
        add("Cast", ["r"], ["f"], "count/Cast", to=F32),
        add("Add", ["x", "f"], ["y"], "sum/Add"),
    ]
    return {
        "size_of_expand": one([add("Expand", ["x", "s"], ["y"], "wide/Expand")], ["batch", 1, 1], s=[1, big, big]),
        "size_inside": one(
            [add("Expand", ["x", "s"], ["t"], "wide/Expand"), add("ReduceSum", ["t"], ["y"], "sum/ReduceSum", keepdims=0)],
            [1, 1],
            s=[big, big],
        ),
        "size_of_tile": one([add("Tile", ["x", "s"], ["y"], "wide/Tile")], [4, 4], s=[big, big]),
        "size_of_pad": one([add("Pad", ["x", "s"], ["y"], "wide/Pad")], [4, 4], s=[big] * 4),
        "size_of_one_pad": one([add("Pad", ["x", "s"], ["y"], "wide/Pad")], [4], s=[2**63 - 1, 2**63 - 1]),
        "size_of_constant_negative": one(
            [add("ConstantOfShape", ["s"], ["c"], "no/ConstantOfShape"), add("Add", ["x", "c"], ["y"], "sum/Add")], [1], s=[-2]
        ),
        "size_beyond_memory": one([add("Expand", ["x", "s"], ["y"], "wide/Expand")], [1], s=[1 << 46]),
        "size_negative": one([add("Pad", ["x", "s"], ["y"], "wide/Pad")], [4], s=[-3, -3]),
        "size_of_resize": one([add("Resize", ["x", "", "", "s"], ["y"], "up/Resize")], image, s=[1, 1, big, big]),
        "scale_of_resize": one(
            [add("Resize", ["x", "", "s"], ["y"], "up/Resize")], image, s=np.array([1, 1, 1e30, 1], np.float32)
        ),
        "size_of_reshape": one([add("Reshape", ["x", "s"], ["y"], "flat/Reshape")], ["batch", 4], s=[big, big]),
        "reshape_contradicts": one([add("Reshape", ["x", "s"], ["y"], "flat/Reshape")], [3, 4], s=[5, -1]),
        "size_of_constant": one(
            [add("ConstantOfShape", ["s"], ["c"], "big/ConstantOfShape"), add("Add", ["x", "c"], ["y"], "sum/Add")],
            [1, 1],
            s=[big, big],
        ),
        "size_of_range": one(range_nodes, [1], zero=0, end=1 << 62, one=1),
        "size_of_float_range": one(
            range_nodes, [1], zero=np.float32(0), end=np.float32(1e20), one=np.float32(1)
        ),
        "size_of_outer": one(
            [add("Unsqueeze", ["x", "a"], ["t"], "turn/Unsqueeze"), add("Add", ["x", "t"], ["y"], "outer/Add")],
            [1 << 33],
            a=[1],
        ),
        "size_of_dilation": one([add("Conv", ["x", "w"], ["y"], "c/Conv", dilations=[1 << 62] * 2)], image, w=ones),
        "size_of_padding": one([add("Conv", ["x", "w"], ["y"], "c/Conv", pads=[1 << 62] * 4)], image, w=ones),
        "power_of_size": one([*doubled, add("Expand", ["x", "t70"], ["y"], "wide/Expand")], ["b"]),
        "rank_of_reshape": one([add("Reshape", ["x", "s"], ["y"], "flat/Reshape")], ["b"], s=[-1] + [1] * 1000),
    }


def bombs():
    """name: model; small files that ask for much at compile time."""
    add, nodes = helper.make_node, []
    for i in range(12):  # 16 KB of weights become 256 GB, a factor of four at a time
        nodes.append(add("Concat", [f"t{i}"] * 4, [f"t{i + 1}"], f"grow/Concat{i}", axis=0))
    nodes.append(add("MatMul", ["x", "t12"], ["y"], "dense/MatMul"))
    growing = model(nodes, [value("x", ["batch", 64 * 4**12])], [value("y", None)], [("t0", _weights(64, 64))])
    step = helper.make_graph(
        [add("Identity", ["going"], ["goes"]), add("Add", ["v", "v"], ["twice"]), add("Identity", ["v"], ["row"])],
        "step",
        [value("i", [], I64), value("going", [], TensorProto.BOOL), value("v", ["batch"])],
        [value("goes", [], TensorProto.BOOL), value("twice", ["batch"]), value("row", ["batch"])],
    )
    looping = model(
        [add("Loop", ["n", "", "x"], ["last", "y"], "forever/Loop", body=step)],
        [value("x", ["batch"])],
        [value("y", None)],
        [("n", np.array(1 << 40))],
    )
    split = [
        add("SplitToSequence", ["x"], ["s"], "rows/SplitToSequence", axis=0),
        add("ConcatFromSequence", ["s"], ["y"], "rows/ConcatFromSequence", axis=0),
    ]
    opset = [helper.make_opsetid("bomb", 1)]
    calling = model([add("f40", ["x"], ["y"], "boom", domain="bomb")], [value("x", [4])], [value("y", [4])], domains=["bomb"])
    for i in range(1, 41):
        body = [add(f"f{i - 1}", ["a"], ["b"], domain="bomb"), add(f"f{i - 1}", ["b"], ["c"], domain="bomb")]
        calling.functions.append(helper.make_function("bomb", f"f{i}", ["a"], ["c"], body, opset))
    relu = [add("Relu", ["a"], ["c"])]
    calling.functions.append(helper.make_function("bomb", "f0", ["a"], ["c"], relu, [helper.make_opsetid("", 18)]))
    return {
        "growing": growing,
        "looping": looping,
        "splitting": model(split, [value("x", [1 << 24, 2])], [value("y", None)]),
        "calling": calling,
    }


def bad_files(good):
    """name: bytes of files that are not models; `good` is the bytes of a model."""
    rng = np.random.default_rng(3)
    return {
        "empty.onnx": b"",
        "truncated.onnx": good[: len(good) * 2 // 3],
        "random.onnx": rng.integers(0, 256, 5000, np.uint8).tobytes(),
        "zeros.onnx": bytes(4096),
        "text.onnx": b"This is not the model you are looking for.\n" * 10,
        "picture.onnx": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(100),
        "archive.onnx": b"PK\x03\x04\x14\0\0\0\0\0" + bytes(100),
        "program.onnx": b"\x7fELF\x02\x01\x01\0" + bytes(100),
        "html.onnx": b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n",
        "lfs.onnx": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 438000000\n",
        "pickle.onnx": b"\x80\x02}q\0X\x05\0\0\0stateq\x01." + bytes(50),
    }


def write_all(folder):
    def path(*names):
        return os.path.join(folder, *names)

    def write(name, data):
        with open(path(name), "wb") as file:
            file.write(data)

    good = {"mlp": mlp(), "scaled": scaled(), "rounded": rounded(), "counted": counted(), "counting": counting(), "gather": gather(), "tower": tower(),
            "frames": frames(), "parts": parts(), "repeated": repeated(), "ranged": ranged(),
            "softmax": chain(("Softmax", {"axis": -1})), "bytes": bytes_of(), "named": named(), "unpooled": unpooled(), "windows": windows(), "sized": sized(), "stepping": stepping(), "fated": fated(), "layers": layers()}  # fmt: skip
    for name, made in {**good, **bad_models(), **overflowing_models(), **bombs()}.items():
        write(name + ".onnx", made.SerializeToString())
    for name, data in bad_files(mlp().SerializeToString()).items():
        write(name, data)
    weight = _weights(4, 8).tobytes()
    write("whole.bin", weight)
    write("short.bin", weight[:64])
    os.symlink(os.path.join("..", "outside.bin"), path("link.bin"))
    os.makedirs(path("folder.onnx"))
    os.makedirs(path("taken.so"))
    onnx.save(_external("whole.bin"), path("external.onnx"))
