"""Times single layers against onnxruntime: convolutions with few output channels, recurrent layers with 8-bit weights, and
products of few rows by 8-bit weights.

    python tests/bench/layers.py [convolutions] [grid] [recurrent] [products] [--only TEXT...] [--every COUNT] [--threads 1,2]
                                 [--rounds 5] [--bits 8] [--steps]

Both engines run in this process by turns, with equal numbers of threads; of one thread, processor time is taken. Convolutions are measured alone and
with a Slice and a Transpose before them (an image with its channels last). The grid: kernels of 1 to 7, strides of 1 and 2, 16 to 128
channels to 1 to 8, images of 16 to 224; --every 4 takes every fourth case. Recurrent layers: DynamicQuantizeLSTM over
hidden sizes, batches and numbers of steps, and a Scan whose steps multiply by MatMulInteger or DynamicQuantizeMatMul.
Products: MatMulInteger, DynamicQuantizeMatMul and QLinearMatMul of 1 and 8 rows. A ratio is onnxruntime's time over
stridec's, the median over rounds; the last lines have the geometric mean and the worst. The difference of outputs is
relative to the largest output; the size is that of the library over the model's.

Environment: stridec (the program, default build/stridec), build (for temporary files, default build).
"""

import argparse
import concurrent.futures
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import arguments
import ops

FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8
MICROSOFT = "com.microsoft"
# input channels, output channels, kernel, height, width
CONVOLUTIONS = [
    *((64, out, (kernel, kernel), size, size) for size in (56, 112, 224) for kernel in (1, 3, 5) for out in (1, 2, 4, 8, 16)),
    *((64, out, (3, 9), 172, 264) for out in (1, 2, 3, 4, 6, 8, 12, 16)),
    *((channels, 8, (3, 3), 172, 264) for channels in (3, 16, 64)),
    (64, 8, (5, 5), 172, 264),
    (64, 3, (3, 3), 40, 64),
    (128, 8, (1, 1), 172, 264),
    (32, 1, (1, 1), 256, 256),
    (32, 4, (1, 7), 1, 16000),
]
HIDDEN, BATCHES, STEPS = (64, 128, 256, 512, 1024), (1, 8), (1, 32, 128)
SCAN_STEPS = 50
PRODUCTS = ((64, 256), (256, 1024), (512, 512), (512, 2048), (1024, 4096))


class Layer:
    def __init__(self, name, model, given, flops):
        self.name, self.model, self.given, self.flops = name, model, given, flops


def model(nodes, x, constants, dtype=FLOAT, result=FLOAT):
    x = [helper.make_tensor_value_info("x", dtype, x)]
    y = [helper.make_tensor_value_info("y", result, None)]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "layer", x, y, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)], ir_version=8)


# ---- convolutions ----


def convolution(rng, channels, out, kernel, height, width, last=False, stride=1):
    """A convolution and its Relu; `last`: of an image with one channel more, the channels last."""
    weight = (rng.standard_normal((out, channels, *kernel)) * 0.05).astype(np.float32)
    pads = [kernel[0] // 2, kernel[1] // 2] * 2
    conv = helper.make_node("Conv", ["z" if last else "x", "w"], ["c"], pads=pads, strides=[stride, stride])
    nodes = [conv, helper.make_node("Relu", ["c"], ["y"])]
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
    name = f"{channels} to {out}, {kernel[0]}x{kernel[1]}, {height}x{width}{f', stride {stride}' if stride > 1 else ''}{', Slice, Transpose' if last else ''}"
    given = {"x": rng.standard_normal(shape).astype(np.float32)}
    results = -(-height // stride) * -(-width // stride)
    return Layer(name, model(nodes, shape, constants), given, 2 * results * weight.size)


def convolutions(rng):
    return [convolution(rng, *shape, last) for shape in CONVOLUTIONS for last in (False, True)]


def grid(rng):
    return [
        convolution(rng, channels, out, (kernel, kernel), size, size, stride=stride)
        for kernel in (1, 3, 5, 7)
        for stride in (1, 2)
        for channels in (16, 32, 64, 128)
        for out in (1, 2, 4, 8)
        for size in (16, 56, 112, 224)
    ]


# ---- recurrent layers ----


BITS = [8]


def quantized(rng, *shape):
    """Weights of the whole range of BITS, most of them small, as of trained layers."""
    half = 1 << (BITS[0] - 1)
    return np.clip(np.round(rng.standard_normal(shape) * half * 0.234), -half, half - 1).astype(np.int8)


def lstm(rng, hidden, batch, steps):
    inputs = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node("DynamicQuantizeLSTM", inputs, ["y"], domain=MICROSOFT, hidden_size=hidden)
    scale, zero = np.full(1, 1 / 30 / hidden**0.5, np.float32), np.zeros(1, np.int8)
    weights = {"w": quantized(rng, 1, hidden, 4 * hidden), "r": quantized(rng, 1, hidden, 4 * hidden)}
    given = {"x": rng.standard_normal((steps, batch, hidden)).astype(np.float32)}
    case = model([node], [steps, batch, hidden], {**weights, "ws": scale, "wz": zero, "rs": scale, "rz": zero})
    return Layer(f"DynamicQuantizeLSTM {hidden}, {batch}x{steps}", case, given, 16 * steps * batch * hidden**2)


def scan(rng, hidden, fused):
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
    start = {"scale": np.full(1, 1 / 30 / hidden**0.5, np.float32), "h0": np.zeros((1, hidden), np.float32)}
    given = {"x": rng.standard_normal((SCAN_STEPS, 1, hidden)).astype(np.float32)}
    name = f"Scan of {'DynamicQuantizeMatMul' if fused else 'MatMulInteger'} {hidden}, 1x{SCAN_STEPS}"
    return Layer(name, model([node], [SCAN_STEPS, 1, hidden], {**weights, **start}), given, 12 * SCAN_STEPS * hidden**2)


def recurrent(rng):
    layers = [lstm(rng, hidden, batch, steps) for hidden in HIDDEN for batch in BATCHES for steps in STEPS]
    return layers + [scan(rng, hidden, fused) for hidden in HIDDEN for fused in (False, True)]


# ---- products ----


def product(rng, op, rows, k, n):
    weights = {"w": quantized(rng, k, n)}
    scale, zero = np.full(1, 1 / 30 / k**0.5, np.float32), np.zeros(1, np.int8)
    dtype, result, domain = UINT8, TensorProto.INT32, ""
    if op == "MatMulInteger":
        inputs, weights = ["x", "w", "xz"], {**weights, "xz": np.full((), 121, np.uint8)}
    elif op == "DynamicQuantizeMatMul":
        inputs, weights = ["x", "w", "ws", "wz"], {**weights, "ws": scale, "wz": zero}
        dtype, result, domain = FLOAT, FLOAT, MICROSOFT
    else:
        inputs, result = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], UINT8
        weights.update(ws=scale, wz=zero, xs=np.full(1, 0.02, np.float32), xz=np.full(1, 121, np.uint8))
        weights.update(ys=np.full(1, 0.01, np.float32), yz=np.full(1, 128, np.uint8))
    x = rng.standard_normal((rows, k)).astype(np.float32) if dtype == FLOAT else rng.integers(0, 256, (rows, k)).astype(np.uint8)
    case = model([helper.make_node(op, inputs, ["y"], domain=domain)], [rows, k], weights, dtype, result)
    return Layer(f"{op} {rows}x{k}x{n}", case, {"x": x}, 2 * rows * k * n)


def products(rng):
    ops_of = ("MatMulInteger", "DynamicQuantizeMatMul", "QLinearMatMul")
    return [product(rng, op, rows, k, n) for op in ops_of for rows in BATCHES for k, n in PRODUCTS]


KINDS = {"convolutions": convolutions, "grid": grid, "recurrent": recurrent, "products": products}


# ---- measuring ----


def compile_layer(program, folder, number, layer):
    # A name of its own for each: a library that is loaded already would be taken for it.
    path, library = os.path.join(folder, f"{number}.onnx"), os.path.join(folder, f"{number}.so")
    with open(path, "wb") as file:
        file.write(layer.model.SerializeToString())
    subprocess.run([program, "compile", path, "-o", library, "--quiet", "--progress=none"], check=True)
    return path, library


def block_of(run, threads, seconds):
    """Seconds of a run. Of one thread it is processor time, in which other processes of the machine have no part."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    start = clock()
    run()
    count = max(1, int(seconds / max(clock() - start, 1e-7)))
    start = clock()
    for _ in range(count):
        run()
    return (clock() - start) / count


def race(runs, threads, flags):
    """Medians over rounds of each engine's time, and of onnxruntime's over stridec's."""
    rounds = {name: [] for name in runs}
    for number in range(flags.rounds):
        for name in list(runs) if number % 2 else list(runs)[::-1]:
            time.sleep(ops.PAUSE)
            rounds[name].append(block_of(runs[name], threads, flags.block))
    ratio = statistics.median(b / a for a, b in zip(rounds["stridec"], rounds["onnxruntime"]))
    return {name: statistics.median(times) for name, times in rounds.items()}, ratio


def measure(layer, path, library, threads, flags):
    """Prints the layer's line; the ratio."""
    runs, outputs, held = {}, {}, []
    for name, engine, file in (("stridec", ops.ours, library), ("onnxruntime", ops.theirs, path)):
        runs[name], outputs[name], kept = engine(file, layer.given, threads)
        held.append(kept)
    got, expected = (np.asarray(outputs[name][0], np.float64) for name in ("stridec", "onnxruntime"))
    difference = abs(got - expected).max() / max(abs(expected).max(), 1e-30)
    size = os.path.getsize(library) / os.path.getsize(path)
    medians, ratio = race(runs, threads, flags)
    rate = layer.flops / medians["stridec"] / 1e9
    print(
        f"{layer.name:52}{threads:2}{medians['onnxruntime'] * 1e6:12.1f}{medians['stridec'] * 1e6:12.1f}"
        f"{rate:9.1f}{size:7.2f}{difference:9.1e}{ratio:7.2f}",
        flush=True,
    )
    if flags.steps:
        context = held[0]
        context.profile(True)
        for _ in range(5):
            runs["stridec"]()
        steps = sorted(((seconds / 5, calls // 5, name) for name, calls, seconds in context.steps() if calls), reverse=True)
        for seconds, calls, name in steps[:8]:
            print(f"    {seconds * 1e6:10.1f} us in {calls:4} calls  {name}")
        context.profile(False)
    return ratio


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], metavar="kind", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="layers whose names have one of these texts")
    parser.add_argument("--every", type=arguments.count, default=1, help="measures one of so many layers")
    parser.add_argument("--threads", default="1", metavar="COUNT,...")
    parser.add_argument("--rounds", type=arguments.count, default=5)
    parser.add_argument("--block", type=arguments.positive, default=0.02, help="seconds of each engine in each round")
    parser.add_argument("--bits", type=int, choices=[7, 8], default=8,
                        help="of weights; 7: as onnxruntime's quantisation with reduce_range makes them")
    parser.add_argument("--steps", action="store_true", help="the slowest kernels of each layer below it")
    flags = parser.parse_args()
    try:
        flags.threads = [arguments.count(text) for text in flags.threads.split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --threads: {error}")
    flags.program = arguments.stridec_program(parser)
    return flags


def main():
    flags = parse_flags()
    BITS[0] = flags.bits
    parent = os.environ.get("build", "build")
    for kind in flags.kinds or KINDS:
        rng = np.random.default_rng(0)
        layers = [layer for layer in KINDS[kind](rng) if any(text in layer.name for text in flags.only)][:: flags.every]
        if not layers:
            continue
        ratios = {threads: [] for threads in flags.threads}
        with tempfile.TemporaryDirectory(prefix="layers-", dir=parent if os.path.isdir(parent) else None) as folder:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                built = list(pool.map(lambda pair: compile_layer(flags.program, folder, *pair), enumerate(layers)))
            print(f"{kind:52}{'T':>2}{'onnxrt us':>12}{'stridec us':>12}{'GFLOP/s':>9}{'size':>7}{'differs':>9}{'ratio':>7}")
            for layer, made in zip(layers, built):
                for threads in flags.threads:
                    ratios[threads].append((measure(layer, *made, threads, flags), layer.name))
        for threads, all_of in ratios.items():
            mean, worst = statistics.geometric_mean(ratio for ratio, _ in all_of), min(all_of)
            print(f"{kind}, {threads} threads: geometric mean {mean:.2f}, worst {worst[0]:.2f} ({worst[1]})")


if __name__ == "__main__":
    main()
