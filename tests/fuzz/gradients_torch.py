"""Gradients of random graphs by ONNX's Gradient operator against PyTorch's autograd.

    python tests/fuzz/gradients_torch.py [--count 40] [--seed 1] [--nodes 8] [--keep FOLDER]

Each graph is a chain of operators over f64 tensors of one shape. Its loss is differentiated in all inputs by a compiled
artifact and by PyTorch. The seed of a graph that differs is printed, and --keep leaves its files. Needs torch and onnx;
without torch it prints that it is skipped. Environment: stridec (the program, default build/stridec). The last line is
"N passed, N failed".
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STRIDEC = os.environ.get("stridec", os.path.join(ROOT, "build", "stridec"))
SHAPE = (2, 3, 4)
INPUTS = {"x": SHAPE, "y": SHAPE, "w": (4, 4), "k": (3, 3, 3), "s": (4,)}
TOLERANCE = 1e-8
TRAINING = "ai.onnx.preview.training"


class Graph:
    """An ONNX graph and the same as PyTorch tensors."""

    def __init__(self, tensors):
        self.nodes, self.constants, self.count = [], [], 0
        self.tensors = tensors

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op, inputs, value, **attributes):
        self.count += 1
        name = f"t{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.tensors[name] = value
        return name


def choices(torch):
    """Functions of (graph, two values of SHAPE, a random generator) that add nodes and return a value of SHAPE."""
    f = torch.nn.functional

    def unary(op, function):
        return lambda g, a, b, rng: g.add(op, [a], function(g.tensors[a]))

    def binary(op, function):
        return lambda g, a, b, rng: g.add(op, [a, b], function(g.tensors[a], g.tensors[b]))

    def bounded(g, a):
        return g.add("Tanh", [a], torch.tanh(g.tensors[a]))

    def power(g, a, b, rng):
        t = bounded(g, a)
        two = g.add("Add", [t, g.constant(np.float64(2))], g.tensors[t] + 2)
        return g.add("Pow", [two, b], g.tensors[two] ** g.tensors[b])

    def divide(g, a, b, rng):
        t = g.add("Exp", [bounded(g, b)], torch.exp(torch.tanh(g.tensors[b])))
        return g.add("Div", [a, t], g.tensors[a] / g.tensors[t])

    def softmax(g, a, b, rng):
        axis = rng.randrange(3)
        log = rng.random() < 0.5
        function = f.log_softmax if log else f.softmax
        return g.add("LogSoftmax" if log else "Softmax", [a], function(g.tensors[a], axis), axis=axis)

    def reduced(g, a, b, rng):
        axis = rng.randrange(3)
        op, function = rng.choice([("ReduceSum", torch.sum), ("ReduceMean", torch.mean), ("ReduceMax", torch.amax), ("ReduceLogSumExp", torch.logsumexp)])
        r = g.add(op, [a, g.constant(np.array([axis]))], function(g.tensors[a], axis, keepdim=True), keepdims=1)
        return g.add("Sub", [b, r], g.tensors[b] - g.tensors[r])

    def product(g, a, b, rng):
        axis = rng.randrange(3)
        r = g.add("ReduceProd", [a, g.constant(np.array([axis]))], g.tensors[a].prod(axis, keepdim=True), keepdims=1)
        return g.add("Add", [b, r], g.tensors[b] + g.tensors[r])

    def cumulative(g, a, b, rng):
        axis = rng.randrange(3)
        return g.add("CumSum", [a, g.constant(np.int64(axis))], torch.cumsum(g.tensors[a], axis))

    def matmul(g, a, b, rng):
        return g.add("MatMul", [a, "w"], g.tensors[a] @ g.tensors["w"])

    def conv(g, a, b, rng):
        return g.add("Conv", [a, "k"], f.conv1d(g.tensors[a], g.tensors["k"], padding=1), pads=[1, 1])

    def strided_conv(g, a, b, rng):
        c = g.add("Conv", [a, "k"], f.conv1d(g.tensors[a], g.tensors["k"], padding=1, stride=2), pads=[1, 1], strides=[2])
        sizes = g.constant(np.array(SHAPE))
        mode = rng.choice(["nearest", "linear"])
        value = f.interpolate(g.tensors[c], size=4, mode=mode, **({"align_corners": False} if mode == "linear" else {}))
        options = {"coordinate_transformation_mode": "half_pixel"} if mode == "linear" else {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return g.add("Resize", [c, "", "", sizes], value, mode=mode, **options)

    def layer_norm(g, a, b, rng):
        value = f.layer_norm(g.tensors[a], (4,), g.tensors["s"], eps=float(np.float32(1e-5)))  # ONNX's attribute is f32
        return g.add("LayerNormalization", [a, "s"], value, axis=-1)

    def pool(g, a, b, rng):
        if rng.random() < 0.5:
            return g.add("MaxPool", [a], f.max_pool1d(g.tensors[a], 3, 1, 1), kernel_shape=[3], pads=[1, 1])
        return g.add("AveragePool", [a], f.avg_pool1d(g.tensors[a], 3, 1, 1), kernel_shape=[3], pads=[1, 1], count_include_pad=1)

    def padded(g, a, b, rng):
        mode, name = rng.choice([("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")])
        p = g.add("Pad", [a, g.constant(np.array([0, 0, 2, 0, 0, 1]))], f.pad(g.tensors[a], (2, 1), mode=name), mode=mode)
        q = g.add("Mul", [p, p], g.tensors[p] ** 2)
        start = rng.randrange(4)
        ends, axes = g.constant(np.array([start + 4])), g.constant(np.array([2]))
        return g.add("Slice", [q, g.constant(np.array([start])), ends, axes], g.tensors[q][:, :, start : start + 4])

    def gathered(g, a, b, rng):
        axis = rng.randrange(3)
        places = np.array([rng.randrange(SHAPE[axis]) for _ in range(SHAPE[axis])])
        return g.add("Gather", [a, g.constant(places)], g.tensors[a].index_select(axis, torch.tensor(places)), axis=axis)

    def scattered(g, a, b, rng):
        axis = rng.randrange(3)
        places = np.random.default_rng(rng.randrange(1000)).integers(0, SHAPE[axis], SHAPE)
        op, reduce = rng.choice([("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")])
        value = g.tensors[a].scatter_reduce(axis, torch.tensor(places), g.tensors[b], reduce)
        return g.add("ScatterElements", [a, g.constant(places), b], value, axis=axis, reduction=op)

    def chosen(g, a, b, rng):
        c = g.add("Less", [a, b], g.tensors[a] < g.tensors[b])
        s = g.add("Sin", [a], torch.sin(g.tensors[a]))
        return g.add("Where", [c, s, b], torch.where(g.tensors[c], g.tensors[s], g.tensors[b]))

    def turned(g, a, b, rng):
        t = g.add("Transpose", [a], g.tensors[a].permute(2, 0, 1), perm=[2, 0, 1])
        r = g.add("Reshape", [t, g.constant(np.array(SHAPE))], g.tensors[t].reshape(SHAPE))
        return g.add("Mul", [r, b], g.tensors[r] * g.tensors[b])

    return [
        unary("Sin", torch.sin),
        unary("Tanh", torch.tanh),
        unary("Sigmoid", torch.sigmoid),
        unary("Erf", torch.erf),
        unary("Relu", torch.relu),
        unary("Softplus", f.softplus),
        unary("Abs", torch.abs),
        unary("HardSwish", f.hardswish),
        binary("Add", torch.add),
        binary("Sub", torch.sub),
        binary("Mul", torch.mul),
        binary("Max", torch.maximum),
        binary("Min", torch.minimum),
        *(power, divide, softmax, reduced, product, cumulative, matmul, conv, strided_conv, layer_norm, pool, padded, gathered, scattered),
        *(chosen, turned),
    ]


def compared(torch, seed, nodes, folder):
    """The largest relative difference of a gradient from PyTorch's, and the operators."""
    rng = random.Random(seed)
    arrays = {name: np.random.default_rng([seed, i]).standard_normal(shape) for i, (name, shape) in enumerate(INPUTS.items())}
    leaves = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    g = Graph(dict(leaves))
    values = ["x", "y"]
    functions = choices(torch)
    for _ in range(nodes):
        made = rng.choice(functions)(g, values[-1], rng.choice(values), rng)
        if g.tensors[made].detach().abs().max() > 20:
            made = g.add("Tanh", [made], torch.tanh(g.tensors[made]))
        values.append(made)
    weights = np.random.default_rng([seed, 99]).standard_normal(SHAPE)
    weighted = g.add("Mul", [values[-1], g.constant(weights)], g.tensors[values[-1]] * torch.tensor(weights))
    loss = g.add("ReduceSum", [weighted], g.tensors[weighted].sum(), keepdims=0)
    names = list(INPUTS)
    wanted = torch.autograd.grad(g.tensors[loss], [leaves[name] for name in names], allow_unused=True)
    g.nodes.append(helper.make_node("Gradient", names, ["d" + name for name in names], domain=TRAINING, xs=names, y=loss))
    graph = helper.make_graph(
        g.nodes,
        "gradients",
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name, shape in INPUTS.items()],
        [helper.make_tensor_value_info("d" + name, TensorProto.DOUBLE, shape) for name, shape in INPUTS.items()],
        g.constants,
    )
    path = os.path.join(folder, "model.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(TRAINING, 1)]), path)
    subprocess.run([STRIDEC, "compile", path, "-o", path + ".so", "--quiet"], check=True, capture_output=True, text=True)
    command = [STRIDEC, "run", path + ".so"]
    for name, array in arrays.items():
        np.save(os.path.join(folder, name + ".npy"), array)
        command += ["--input", f"{name}={folder}/{name}.npy", "--output", f"d{name}={folder}/d{name}.npy"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    worst = 0.0
    for name, want in zip(names, wanted):
        want = np.zeros(INPUTS[name]) if want is None else want.numpy()
        got = np.load(os.path.join(folder, f"d{name}.npy"))
        worst = max(worst, float(np.max(np.abs(got - want)) / max(1.0, float(np.max(np.abs(want))))))
    return worst, [node.op_type for node in g.nodes[:-3]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--keep", default="")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("skipped: PyTorch is not installed\n0 passed, 0 failed")
        return 0
    passed = failed = 0
    for seed in range(options.seed, options.seed + options.count):
        with tempfile.TemporaryDirectory() as folder:
            if options.keep:
                folder = options.keep
                os.makedirs(folder, exist_ok=True)
            try:
                worst, operators = compared(torch, seed, options.nodes, folder)
                good = worst <= TOLERANCE
                if not good:
                    print(f"seed {seed}: differs by {worst:.2e}: {' '.join(operators)}", flush=True)
            except subprocess.CalledProcessError as error:
                good = False
                print(f"seed {seed}: {error.stderr or error.stdout}", flush=True)
        passed, failed = passed + good, failed + (not good)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
