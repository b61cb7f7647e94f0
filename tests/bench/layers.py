"""Times single layers against onnxruntime: convolutions with few output channels, and recurrent layers with 8-bit weights.

    python tests/bench/layers.py [convolutions] [recurrent] [--threads 1] [--seconds 1] [--program build/stridec]

Both engines run in this process, by turns, with equal numbers of threads; the figures are medians. Convolutions are
measured in GFLOP/s, alone and with a Slice and a Transpose before them (an image with its channels last).
Recurrent layers take 50 steps: DynamicQuantizeLSTM, and a Scan whose steps multiply by MatMulInteger or by
DynamicQuantizeMatMul; their library is shown with its size over the model's. The last column is onnxruntime's time over
stridec's. The largest difference of outputs is relative to the largest output.

Environment: stridec (the program, default build/stridec).
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
import stridec  # noqa: E402

FLOAT = TensorProto.FLOAT
MICROSOFT = "com.microsoft"
# input channels, output channels, kernel, height, width
CONVOLUTIONS = [
    *((64, out, (3, 9), 172, 264) for out in (1, 2, 3, 4, 6, 8, 12, 16)),
    *((channels, 8, (3, 3), 172, 264) for channels in (3, 16, 64)),
    (64, 8, (5, 5), 172, 264),
    (64, 3, (3, 3), 40, 64),
    (128, 8, (1, 1), 172, 264),
    (32, 1, (1, 1), 256, 256),
    (32, 4, (1, 7), 1, 16000),
]
HIDDEN = (128, 512)
STEPS = 50


def model(nodes, x, constants):
    y = [helper.make_tensor_value_info("y", FLOAT, None)]
    x = [helper.make_tensor_value_info("x", FLOAT, x)]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "layer", x, y, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)], ir_version=8)


def convolution(channels, out, kernel, height, width, last):
    """A convolution and its Relu; `last`: of an image with one channel more, the channels last."""
    rng = np.random.default_rng(0)
    weight = (rng.standard_normal((out, channels, *kernel)) * 0.05).astype(np.float32)
    pads = [kernel[0] // 2, kernel[1] // 2] * 2
    nodes = [helper.make_node("Conv", ["z" if last else "x", "w"], ["c"], pads=pads), helper.make_node("Relu", ["c"], ["y"])]
    constants = {"w": weight}
    shape = [1, channels, height, width]
    if last:
        shape = [1, height, width, channels + 1]
        constants.update(first=np.array([1]), end=np.array([channels + 1]), axis=np.array([3]))
        nodes = [
            helper.make_node("Slice", ["x", "first", "end", "axis"], ["s"]),
            helper.make_node("Transpose", ["s"], ["z"], perm=[0, 3, 1, 2]),
            *nodes,
        ]
    flops = 2 * height * width * weight.size
    return model(nodes, shape, constants), rng.standard_normal(shape).astype(np.float32), flops


def quantized(rng, *shape):
    return rng.integers(-64, 64, shape).astype(np.int8)


def lstm(hidden, rng):
    inputs = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node("DynamicQuantizeLSTM", inputs, ["y"], domain=MICROSOFT, hidden_size=hidden)
    scale, zero = np.full(1, 0.003, np.float32), np.zeros(1, np.int8)
    weights = {"w": quantized(rng, 1, hidden, 4 * hidden), "r": quantized(rng, 1, hidden, 4 * hidden)}
    return model([node], [STEPS, 1, hidden], {**weights, "ws": scale, "wz": zero, "rs": scale, "rz": zero})


def scan(hidden, rng, fused):
    """A gated cell whose two products are of dynamically quantised values by 8-bit weights."""

    def product(x, weights, name):
        if fused:
            return [helper.make_node("DynamicQuantizeMatMul", [x, weights, "scale"], [name], domain=MICROSOFT)]
        quantize = helper.make_node("DynamicQuantizeLinear", [x], [name + "q", name + "s", name + "z"])
        multiply = helper.make_node("MatMulInteger", [name + "q", weights, name + "z"], [name + "i"])
        cast = helper.make_node("Cast", [name + "i"], [name + "f"], to=FLOAT)
        both = helper.make_node("Mul", [name + "s", "scale"], [name + "b"])
        return [quantize, multiply, cast, both, helper.make_node("Mul", [name + "f", name + "b"], [name])]

    cell = [
        *product("xs", "w", "a"),
        *product("h", "r", "b"),
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Split", ["sum"], ["g0", "g1", "g2"], axis=1),
        helper.make_node("Sigmoid", ["g0"], ["gate"]),
        helper.make_node("Tanh", ["g1"], ["new"]),
        helper.make_node("Sigmoid", ["g2"], ["keep"]),
        helper.make_node("Mul", ["gate", "new"], ["in"]),
        helper.make_node("Mul", ["keep", "h"], ["kept"]),
        helper.make_node("Add", ["in", "kept"], ["ho"]),
        helper.make_node("Identity", ["ho"], ["row"]),
    ]
    info = lambda *names: [helper.make_tensor_value_info(n, FLOAT, [1, hidden]) for n in names]  # noqa: E731
    body = helper.make_graph(cell, "step", info("h", "xs"), info("ho", "row"))
    node = helper.make_node("Scan", ["h0", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    weights = {"w": quantized(rng, hidden, 3 * hidden), "r": quantized(rng, hidden, 3 * hidden)}
    start = {"scale": np.full(1, 0.003, np.float32), "h0": np.zeros((1, hidden), np.float32)}
    return model([node], [STEPS, 1, hidden], {**weights, **start})


def race(case, x, flags, folder):
    """Median times of onnxruntime and stridec, the difference of their outputs, and the library's size over the model's."""
    import onnxruntime

    # A name of its own for each: a library that is loaded already would be taken for it.
    path, library = os.path.join(folder, "layer.onnx"), os.path.join(folder, f"layer{len(os.listdir(folder))}.so")
    onnx.save(case, path)
    subprocess.run([flags.program, "compile", path, "-o", library, "--quiet", "--progress=none"], check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = flags.threads, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    compiled = stridec.load(library, threads=flags.threads)
    engines = [lambda: session.run(["y"], {"x": x})[0], lambda: np.asarray(compiled(x)["y"])]
    expected, got = engines[0](), engines[1]().copy()
    times = [[], []]
    end = time.perf_counter() + flags.seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for engine, taken in zip(engines, times):
            start = time.perf_counter()
            engine()
            taken.append(time.perf_counter() - start)
    difference = abs(got - expected).max() / abs(expected).max()
    size = os.path.getsize(library) / os.path.getsize(path)
    return *map(statistics.median, times), difference, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["convolutions", "recurrent", []])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--program", default=os.environ.get("stridec", "build/stridec"))
    flags = parser.parse_args()
    what = flags.what or ["convolutions", "recurrent"]
    with tempfile.TemporaryDirectory() as folder:
        if "convolutions" in what:
            print(f"{'convolution':40} {'onnxruntime':>12} {'stridec':>9} GFLOP/s  differ  ratio")
            for shape in CONVOLUTIONS:
                for last in (False, True):
                    case, x, flops = convolution(*shape, last)
                    theirs, ours, difference, _ = race(case, x, flags, folder)
                    channels, out, kernel, height, width = shape
                    name = f"{channels} to {out}, {kernel[0]}x{kernel[1]}, {height}x{width}{', Slice, Transpose' if last else ''}"
                    print(f"{name:40} {flops / theirs / 1e9:12.1f} {flops / ours / 1e9:9.1f} {difference:15.1e} {theirs / ours:6.2f}")
        if "recurrent" in what:
            print(f"{'recurrent layer':40} {'onnxruntime':>12} {'stridec':>9} ms  size  differ  ratio")
            for hidden in HIDDEN:
                rng = np.random.default_rng(0)
                x = rng.standard_normal((STEPS, 1, hidden)).astype(np.float32)
                for name, case in (
                    ("DynamicQuantizeLSTM", lstm(hidden, rng)),
                    ("Scan of MatMulInteger", scan(hidden, rng, False)),
                    ("Scan of DynamicQuantizeMatMul", scan(hidden, rng, True)),
                ):
                    theirs, ours, difference, size = race(case, x, flags, folder)
                    print(f"{name + f', {hidden}':40} {theirs * 1e3:12.2f} {ours * 1e3:9.2f} {size:8.2f} {difference:7.1e} {theirs / ours:6.2f}")


if __name__ == "__main__":
    main()
