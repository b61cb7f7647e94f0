"""What the tuner finds on the GPU of this machine: kernels by their gain, and whole models with default and tuned schedules.

    python tests/gpu/tune.py STRIDEC [name...]      products, resnet50, bert_base, ... of tests/models

Each model is tuned at one shape in fp16 (stridec tune), compiled with the default schedules and with those of its database,
both with CUDA graphs, and run by turns on device tensors. Outputs of both are compared.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import torch
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from bench import Runner, each, error, median_us

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def products():
    """The four products of a BERT-base layer, with what follows them there but for attention."""
    rng = np.random.default_rng(0)
    nodes, tensors = [], []

    def dense(x, y, columns, rows, *after):
        tensors.append(nh.from_array(rng.standard_normal((rows, columns), np.float32) * np.float32(rows**-0.5), f"w{y}"))
        tensors.append(nh.from_array(rng.standard_normal(columns, np.float32), f"b{y}"))
        nodes.append(h.make_node("MatMul", [x, f"w{y}"], [f"m{y}"]))
        nodes.append(h.make_node("Add", [f"m{y}", f"b{y}"], [f"s{y}" if after else y]))
        nodes.extend(after)

    dense("x", "qkv", 2304, 768)
    dense("qkv", "attended", 768, 2304)
    dense("attended", "wide", 3072, 768, h.make_node("Gelu", ["swide"], ["wide"]))
    dense("wide", "narrow", 768, 3072, h.make_node("Add", ["snarrow", "attended"], ["narrow"]))
    graph = h.make_graph(nodes, "products", [h.make_tensor_value_info("x", T.FLOAT, ["batch", 128, 768])],
                         [h.make_tensor_value_info("narrow", T.FLOAT, ["batch", 128, 768])], tensors)  # fmt: skip
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9)


def text():
    ids = torch.randint(0, 30000, (32, 128), device="cuda")
    return [ids, torch.ones_like(ids), torch.zeros_like(ids)]


# name: (--dim, --tune-shape, inputs at it, shapes of the outputs)
IMAGE = ("batch=1..64", "batch=32", lambda: [torch.randn(32, 3, 224, 224, device="cuda")], [(32, 1000)])
MODELS = {
    "products": ("batch=1..64", "batch=32", lambda: [torch.randn(32, 128, 768, device="cuda")], [(32, 128, 768)]),
    **dict.fromkeys(("resnet50", "mobilenet_v2", "convnext_tiny", "vit_b_16"), IMAGE),
    "bert_base": ("batch=1..64,sequence=1..512", "batch=32,sequence=128", text, [(32, 128, 768)]),
}


def brief(schedule):
    """Without the lines that say which dims are what."""
    parts = [part for part in schedule.split("; ") if part.split()[0] not in ("rows", "columns", "depth", "merge", "reorder", "batch")]
    kernel = schedule.split(":")[0] if ":" in schedule else ""
    return "; ".join([kernel, *(part for part in parts if not part.startswith(f"{kernel}:"))] if kernel else parts)[:110]


def build(stridec, folder, name):
    """Tunes, prints what came of it, and compiles: the artifact with default schedules and the one with the tuned ones."""
    source, database = os.path.join(folder, name + ".onnx"), os.path.join(folder, name + ".tuning")
    if name == "products":
        onnx.save(products(), source)
    else:
        fill, light = os.path.join(ROOT, "samples", "models", "fill.py"), os.path.join(ROOT, "tests", "models", name + ".onnx")
        subprocess.run([sys.executable, fill, light, source], check=True)
    dims, shape = MODELS[name][:2]
    flags = [source, "--target", "cuda", "--gpu", "sm_90a", "--precision", "fp16", "--dim", dims]
    tuning = ["--tune-shape", shape, "--tune-db", database]
    start = time.perf_counter()
    done = subprocess.run([stridec, "tune", *flags, *tuning, "--progress=none", "--format=json"], stdout=subprocess.PIPE)
    if done.returncode:
        raise RuntimeError(f"stridec tune: exit code {done.returncode}")
    kernels = json.loads(done.stdout)
    trials = [trial for kernel in kernels for trial in kernel.get("trials", [])]
    problems = [trial for trial in trials if "problem" in trial]
    print(f"{name}: {len(kernels)} kernels, {len(trials)} trials in {time.perf_counter() - start:.1f} s, {len(problems)} without a "
          "time", flush=True)  # fmt: skip
    for trial in problems[:8]:
        print(f"  {trial['problem'][:100]}: {trial['schedule'][:100]}")
    for kernel in sorted(kernels, key=lambda kernel: kernel["microseconds"] - kernel["default_microseconds"]):
        print(f"  {kernel['default_microseconds']:7.1f} -> {kernel['microseconds']:7.1f} us, noise {kernel['noise_percent']:3.1f} %, "
              f"{kernel['schedules_tried']:3} tried  {kernel['kernel'][:30]:30} {brief(kernel['schedule'])}")  # fmt: skip
    modes = {"default": ["--mode", "reduce-overhead"], "tuned": ["--mode", "reduce-overhead", *tuning]}
    libraries = {which: os.path.join(folder, f"{name}.{which}.so") for which in modes}
    for which, library in libraries.items():
        command = [stridec, "compile", *flags, *modes[which], "-o", library, "--progress=none", "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return libraries


def compare(stridec, folder, name, rounds=7):
    libraries = build(stridec, folder, name)
    inputs, shapes = MODELS[name][2](), MODELS[name][3]
    runners = {which: Runner(library) for which, library in libraries.items()}
    outs = {which: [torch.full(shape, float("nan"), device="cuda") for shape in shapes] for which in runners}
    calls = {which: runner.bind(inputs, outs[which]) for which, runner in runners.items()}
    times = {which: [] for which in calls}
    for _ in range(rounds):
        for which, call in calls.items():
            times[which].append(median_us([call], 30))
    medians = {which: statistics.median(each) for which, each in times.items()}
    ratio = statistics.median(tuned / default for tuned, default in zip(times["tuned"], times["default"]))
    off = max(error(tuned, default) for tuned, default in zip(outs["tuned"], outs["default"]))
    print(f"{name}: default {medians['default'] / 1e3:.3f} ms, tuned {medians['tuned'] / 1e3:.3f} ms, ratio {ratio:.3f}, outputs differ "
          f"by {off:.1e}{'' if off < 2e-2 else '  WRONG'}", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stridec")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(MODELS)} (products, resnet50)")
    flags = parser.parse_args()

    def run(name):
        with tempfile.TemporaryDirectory() as folder:
            compare(flags.stridec, folder, name)

    each(flags.names or ("products", "resnet50"), run)


if __name__ == "__main__":
    main()
