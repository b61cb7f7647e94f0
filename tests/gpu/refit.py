"""Weights replaced in artifacts for a GPU: `stridec refit`, and context_write_state during a run, against artifacts that were
compiled with the other weights as constants.

    python tests/gpu/refit.py STRIDEC|FOLDER     a folder is one that this made elsewhere: refit.py STRIDEC --build FOLDER

Networks: products in f16 and f32, a convolution with batch norm, 4-bit weights. The last line is "N passed, N failed".
"""

import os
import subprocess
import sys
import tempfile

NETWORKS = {"mlp_f16": 2e-3, "mlp_f32": 1e-5, "convolution": 2e-5, "words": 2e-3}  # tolerances relative to the largest result
ROWS = 37


def network(name, seed):
    import numpy as np
    from onnx import TensorProto as T
    from onnx import helper as h
    from onnx import numpy_helper

    random = np.random.default_rng(seed)
    half = np.float16 if name in ("mlp_f16", "words") else np.float32
    kind = T.FLOAT16 if half is np.float16 else T.FLOAT
    weights, nodes = [], []

    def weight(label, *shape, scale=None, dtype=half):
        scale = scale or 1 / np.sqrt(np.prod(shape[1:]))
        weights.append(numpy_helper.from_array((random.standard_normal(shape) * scale).astype(dtype), label))
        return label

    x_shape, y_shape, domain = ["n", 256], ["n", 256], ""
    if name.startswith("mlp"):
        nodes = [h.make_node("Gemm", ["x", weight("up", 512, 256), weight("b", 512, scale=1)], ["u"], transB=1),
                 h.make_node("Relu", ["u"], ["r"]),
                 h.make_node("MatMul", ["r", weight("down", 512, 256)], ["y"])]  # fmt: skip
    elif name == "convolution":
        x_shape, y_shape = ["n", 16, 20, 20], ["n", 32, 20, 20]
        weights.append(numpy_helper.from_array((0.5 + random.random(32)).astype(np.float32), "var"))
        nodes = [h.make_node("Conv", ["x", weight("w", 32, 16, 3, 3)], ["t"], pads=[1, 1, 1, 1]),
                 h.make_node("BatchNormalization", ["t", *(weight(n, 32, scale=1) for n in ("s", "b", "m")), "var"], ["v"]),
                 h.make_node("Relu", ["v"], ["y"])]  # fmt: skip
    else:
        domain = "com.microsoft"
        packed = random.integers(0, 256, (256, 8, 16), dtype=np.uint8)
        weights.append(numpy_helper.from_array(packed, "q"))
        weight("scales", 256 * 8, scale=0.02)
        nodes = [h.make_node("MatMulNBits", ["x", "q", "scales"], ["y"], domain=domain, K=256, N=256, bits=4, block_size=32)]
    value = lambda n, shape: h.make_tensor_value_info(n, kind, shape)  # noqa: E731
    graph = h.make_graph(nodes, name, [value("x", x_shape)], [value("y", y_shape)], weights)
    domains = [h.make_opsetid("", 18)] + ([h.make_opsetid(domain, 1)] if domain else [])
    return h.make_model(graph, opset_imports=domains, ir_version=9), {w.name: numpy_helper.to_array(w) for w in weights}


def build(stridec, folder):
    import numpy as np
    import onnx

    os.makedirs(folder, exist_ok=True)
    gpu = ["--target", "cuda", "--gpu", "sm_90a", "--progress=none", "--quiet"]
    for name in NETWORKS:
        path = os.path.join(folder, name)
        for seed, label in ((1, "first"), (2, "other")):
            model, weights = network(name, seed)
            onnx.save(model, f"{path}.{label}.onnx")
        np.savez(f"{path}.npz", **weights)
        run = lambda *arguments: subprocess.run([stridec, *arguments], check=True)  # noqa: E731
        run("compile", f"{path}.first.onnx", "-o", f"{path}.first.so", "--refit", "*", *gpu)
        run("compile", f"{path}.other.onnx", "-o", f"{path}.other.so", *gpu)
        run("refit", f"{path}.first.so", "--parameters", f"{path}.other.onnx", "-o", f"{path}.refit.so", "--quiet")


def check(folder):
    import numpy as np
    import torch
    from bench import Runner

    passed = failed = 0

    def judge(name, got, want, tolerance):
        nonlocal passed, failed
        error = ((got - want).abs().max() / want.abs().max()).item()
        right = error <= tolerance
        passed, failed = passed + right, failed + (not right)
        print(f"  {name}: {error:.1e}{'' if right else ', more than ' + str(tolerance)}", flush=True)

    for name, tolerance in NETWORKS.items():
        path = os.path.join(folder, name)
        other = Runner(f"{path}.other.so")
        dtype = torch.float16 if name in ("mlp_f16", "words") else torch.float32
        x = torch.randn((ROWS, 16, 20, 20) if name == "convolution" else (ROWS, 256), device="cuda", dtype=dtype)
        want, got = [torch.empty((ROWS, 32, 20, 20) if name == "convolution" else (ROWS, 256), device="cuda", dtype=dtype)
                     for _ in range(2)]  # fmt: skip
        other.bind([x], [want])()
        torch.cuda.synchronize()

        refit = Runner(f"{path}.refit.so")
        refit.bind([x], [got.fill_(float("nan"))])()
        torch.cuda.synchronize()
        judge(f"{name}, refit", got, want, tolerance)

        first = Runner(f"{path}.first.so")
        run = first.bind([x], [got])
        run()
        torch.cuda.synchronize()
        before = got.clone()
        for i, (label, array) in enumerate(np.load(f"{path}.npz").items()):
            on_device = i % 2 and array.dtype != np.uint8
            first.context.write_state(label, torch.from_numpy(array).cuda() if on_device else array)
        torch.cuda.synchronize()
        run()
        torch.cuda.synchronize()
        judge(f"{name}, written", got, want, tolerance)
        again = Runner(f"{path}.first.so")
        again.bind([x], [got])()
        torch.cuda.synchronize()
        judge(f"{name}, another context", got, before, 0)
    print(f"{passed} passed, {failed} failed")
    return failed


def main():
    if "--build" in sys.argv:
        return build(sys.argv[1], sys.argv[3])
    if os.path.isdir(sys.argv[1]):
        return check(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        build(sys.argv[1], folder)
        return check(folder)


if __name__ == "__main__":
    sys.exit(bool(main()))
