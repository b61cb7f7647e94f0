"""Tensors of a GPU in other memory orders than the model's, declared (--layout) or not: results, and what they cost.

    python tests/gpu/layouts.py STRIDEC [--times]

A convolution, an activation and a mean run with image and result in each order of dims, in f32 and f16, with device tensors in
the declared order, in the model's and in neither; PyTorch says what is right. --times: the rate at which strided tensors are
copied, beside PyTorch's own copy of a tensor in one piece; and the networks of tests/bench/strides.py with a channels-last image
or result, declared, undeclared, and contiguous, by turns. A ratio is the time over the contiguous case's, the median over
rounds; a declared one is bound by NOISE, another by COPIES times the contiguous time and a copy at RATE of the device's rate.
The last line is "N passed, N failed".
"""

import concurrent.futures
import itertools
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import torch
from bench import Runner

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))

SHAPES = ((2, 3, 17, 33), (1, 3, 8, 1), (4, 3, 64, 64))
TYPES = {"f32": (torch.float32, 1e-4), "f16": (torch.float16, 4e-3)}
NHWC = (0, 2, 3, 1)
NOISE, COPIES, RATE, ROUNDS, RUNS = 1.05, 1.1, 0.9, 9, 60
passed = failed = 0


def judge(name, right, words=""):
    global passed, failed
    passed, failed = passed + bool(right), failed + (not right)
    if not right:
        print(f"  {name} {words or 'differs'}", flush=True)


def compile(program, source, library, *flags):
    subprocess.run([program, "compile", source, "-o", library, "--target", "cuda", "--gpu", "sm_90a", "--progress=none", "--quiet", *flags],
                   check=True)  # fmt: skip


def in_order(tensor, order):
    """The same elements, with the dims in this order in memory."""
    return tensor.permute(order).contiguous().permute(tuple(np.argsort(order)))


# ---- results ----


def image(dtype):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    element = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16}[dtype]
    weight = np.random.default_rng(1).standard_normal((5, 3, 3, 3)).astype({"f32": np.float32, "f16": np.float16}[dtype])
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["pixels"]),
        helper.make_node("GlobalAveragePool", ["pixels"], ["means"]),
    ]
    value = lambda name, dims: helper.make_tensor_value_info(name, element, dims)  # noqa: E731
    graph = helper.make_graph(nodes, "image", [value("image", ["n", 3, "h", "w"])],
                              [value("pixels", ["n", 5, "h", "w"]), value("means", ["n", 5, 1, 1])], [numpy_helper.from_array(weight, "w")])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), onnx, torch.tensor(weight).cuda()


def results(program, folder):
    orders = list(itertools.permutations(range(4)))
    pairs = [(order, orders[(7 * i + 5) % len(orders)]) for i, order in enumerate(orders)][::2]
    work = []
    for dtype in TYPES:
        model, onnx, weight = image(dtype)
        source = os.path.join(folder, f"image-{dtype}.onnx")
        onnx.save(model, source)
        work += [(dtype, weight, source, *pair) for pair in pairs]

    def build(job):
        dtype, _, source, given, made = job
        words = [",".join(map(str, order)) for order in (given, made)]
        library = f"{source}-{words[0]}-{words[1]}.so"
        compile(program, source, library, "--layout", f"image={words[0]}", "--layout", f"pixels={words[1]}")
        return library

    with concurrent.futures.ThreadPoolExecutor() as pool:
        libraries = list(pool.map(build, work))
    for (dtype, weight, _, given, made), library in zip(work, libraries):
        element, tolerance = TYPES[dtype]
        runner = Runner(library)
        for shape in SHAPES:
            x = torch.randn(shape, device="cuda").to(element)
            pixels = torch.relu(torch.nn.functional.conv2d(x.float(), weight.float(), padding=1))
            wide = torch.empty(*shape[:3], 2 * shape[3], dtype=element, device="cuda")[..., ::2].copy_(x)
            for what, tensor in {"declared": in_order(x, given), "contiguous": x, "of wider rows": wide}.items():
                poisoned = torch.full_like(pixels, float("nan"), dtype=element)
                got, means = in_order(poisoned, made) if what != "contiguous" else poisoned, torch.empty(*shape[:1], 5, 1, 1, dtype=element, device="cuda")
                run = runner.bind([tensor], [got, means])
                for _ in range(3):  # the later ones replay
                    run()
                torch.cuda.synchronize()
                right = torch.allclose(got.float(), pixels, rtol=tolerance, atol=tolerance) and torch.allclose(
                    means.float(), pixels.mean((2, 3), keepdim=True), rtol=tolerance, atol=tolerance)  # fmt: skip
                judge(f"{dtype} {shape}, image {given} {what}, pixels {made}", right)


# ---- times ----


def milliseconds(run):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(RUNS):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / RUNS


def seconds_to_copy(size):
    """Of so many bytes, by PyTorch."""
    source = torch.empty(size // 4, device="cuda")
    target = torch.empty_like(source)
    return min(milliseconds(lambda: target.copy_(source)) for _ in range(5)) / 1e3


def copies(program, folder):
    """What a run of y = -x takes longer for a strided x, as a share of what PyTorch takes for a copy in one piece."""
    import onnx
    from onnx import TensorProto, helper

    print(f"{'type':6}{'strided input of y = -x':36}{'MB':>8}{'us':>9}{'of copy':>9}")
    for dtype, element in (("f32", TensorProto.FLOAT), ("f16", TensorProto.FLOAT16)):
        value = lambda name: helper.make_tensor_value_info(name, element, list("abcd"))  # noqa: E731, B023
        graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "neg", [value("x")], [value("y")])
        source = os.path.join(folder, f"neg-{dtype}.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), source)
        compile(program, source, source + ".so")
        runner = Runner(source + ".so")
        new = lambda *shape: torch.randn(shape, device="cuda").to(TYPES[dtype][0])  # noqa: E731, B023
        forms = {
            "channels last, 3 channels": in_order(new(32, 3, 512, 512), NHWC),
            "channels last, 64 channels": in_order(new(32, 64, 112, 112), NHWC),
            "two dims transposed": new(1, 1, 8192, 4096).transpose(2, 3),
            "heads behind positions": new(8, 1024, 32, 128).transpose(1, 2),
            "columns of wider rows": new(1, 64, 1024, 1040)[..., 8:-8],
            "odd columns of wider rows": new(1, 64, 1024, 1027)[..., 3:],
            "every other row": new(1, 64, 1024, 512)[:, :, ::2],
            "every third column": new(1, 64, 256, 3072)[..., ::3],
            "one row for all": new(1, 1, 1, 1024).expand(1, 64, 1024, 1024),
        }
        for name, x in forms.items():
            contiguous, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device="cuda")
            plain, strided = runner.bind([contiguous], [y]), runner.bind([x], [y])
            for run in (strided, plain):
                run(), run()
            rounds = [(milliseconds(plain), milliseconds(strided)) for _ in range(5)]
            took = statistics.median(b - a for a, b in rounds) / 1e3
            size = contiguous.nbytes
            print(f"{dtype:6}{name:36}{size / 1e6:8.1f}{took * 1e6:9.1f}{seconds_to_copy(size) / took:9.2f}", flush=True)


def times(program, folder):
    import strides

    rate = (1 << 28) / seconds_to_copy(1 << 28)
    print(f"the device copies {rate / 1e9:.0f} GB/s (as many are read)")

    flags = {"plain": (), "input": ("--layout", "image=nhwc"), "output": ("--layout", "pixels=nhwc")}
    jobs = [(name, kind) for name in strides.NETWORKS for kind in flags if kind != "output" or name == "segformer"]
    for name in strides.NETWORKS:
        with open(os.path.join(folder, name + ".onnx"), "wb") as file:
            file.write(strides.NETWORKS[name]().SerializeToString())

    def build(job):
        library = os.path.join(folder, "-".join(job) + ".so")
        compile(program, os.path.join(folder, job[0] + ".onnx"), library, *flags[job[1]])
        return Runner(library)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        runners = dict(zip(jobs, pool.map(build, jobs)))
    print(f"{'network, batch':18}{'case':32}{'plain ms':>9}{'ratio':>8}{'bound':>8}")
    for name in strides.NETWORKS:
        for batch in (1, 8):
            x = torch.randn(batch, 3, strides.SIZE, strides.SIZE, device="cuda")
            (side,) = {strides.SIZE // 4} if name == "segformer" else {0}
            y = torch.empty((batch, 150, side, side) if side else (batch, 1000, 1, 1), device="cuda")
            if not side and name == "mobilenet_v2":
                y = y.reshape(batch, 1000)
            plain = runners[name, "plain"].bind([x], [y])
            cases = {"contiguous": plain, "channels-last input": runners[name, "plain"].bind([in_order(x, NHWC)], [y]),
                     "declared channels-last input": runners[name, "input"].bind([in_order(x, NHWC)], [y])}  # fmt: skip
            if side:
                last = in_order(y, NHWC)
                cases["channels-last output"] = runners[name, "plain"].bind([x], [last])
                cases["declared channels-last output"] = runners[name, "output"].bind([x], [last])
            for run in cases.values():
                for _ in range(5):
                    run()
            torch.cuda.synchronize()
            for case, run in cases.items():
                rounds = [(milliseconds(plain), milliseconds(run)) for _ in range(ROUNDS)]
                contiguous, ratio = statistics.median(a for a, _ in rounds), statistics.median(b / a for a, b in rounds)
                size = 0 if case.startswith(("contiguous", "declared")) else (x if "input" in case else y).nbytes
                bound = COPIES * (1 + 1e3 * size / (RATE * rate) / contiguous) if size else NOISE
                print(f"{name + ', ' + str(batch):18}{case:32}{contiguous:9.3f}{ratio:8.3f}{bound:8.3f}", flush=True)
                judge(f"{name}, {batch}: {case}", ratio <= bound, f"takes {ratio:.3f}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        results(sys.argv[1], folder)
        if "--times" in sys.argv:
            copies(sys.argv[1], folder)
            times(sys.argv[1], folder)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
