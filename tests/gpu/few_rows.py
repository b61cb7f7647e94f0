"""Products of few rows by weights, one behind the other on inputs of their own: how near they come to a copy's rate.

    python tests/gpu/few_rows.py STRIDEC [KxN...]

Each shape is compiled twice: for one row, and for a symbolic number of them that runs at 1 to 32. Weights are random and
exceed the L2 together; results are compared with PyTorch in f32. The shares are of what a device copy reads and writes.
"""

import os
import subprocess
import sys
import tempfile

import onnx
import torch
from bench import Runner, error, median_us
from onnx import TensorProto as T
from onnx import helper as h

SHAPES = ["2048x3072", "2048x2048", "8192x2048", "4096x4096", "2048x16384", "4096x14336"]
TYPES = {torch.bfloat16: T.BFLOAT16, torch.float32: T.FLOAT}
BYTES, ROWS = 160 << 20, [1, 2, 4, 8, 16, 32]
TOLERANCE = 4e-3  # results rounded to bf16 are 1.7e-3 off


def build(stridec, folder, dtype, deep, wide, rows):
    """The library, being compiled, and its weights."""
    size, kind = dtype.itemsize, TYPES[dtype]
    weights = [torch.randn(wide, deep, device="cuda", dtype=dtype) * 0.02 for _ in range(max(2, min(16, BYTES // (size * deep * wide))))]
    base = os.path.join(folder, f"{deep}_{wide}_{size}_{rows}")
    nodes, tensors, ins, outs = [], [], [], []
    with open(base + ".data", "wb") as data:
        for i, weight in enumerate(weights):
            tensor = onnx.TensorProto(name=f"w{i}", data_type=kind, dims=(wide, deep), data_location=T.EXTERNAL)
            place = {"location": os.path.basename(base) + ".data", "offset": data.tell(), "length": size * deep * wide}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            data.write(weight.cpu().view(torch.uint8).numpy().tobytes())
            nodes.append(h.make_node("Gemm", [f"x{i}", f"w{i}"], [f"y{i}"], transB=1))
            ins.append(h.make_tensor_value_info(f"x{i}", kind, [rows, deep]))
            outs.append(h.make_tensor_value_info(f"y{i}", kind, [rows, wide]))
    graph = h.make_graph(nodes, "few_rows", ins, outs, tensors)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=10), base + ".onnx")
    command = [stridec, "compile", base + ".onnx", "-o", base + ".so", "--target", "cuda", "--gpu", "sm_90a", "--mode", "reduce-overhead",
               "--progress=none", "--quiet", *(["--dim", "m=1..64"] if rows == "m" else [])]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.DEVNULL), base + ".so", weights


def main():
    stridec, shapes = sys.argv[1], sys.argv[2:] or SHAPES
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = [(dtype, shape, rows) for dtype in TYPES for shape in shapes for rows in (1, "m")]
        built = [build(stridec, folder, dtype, *map(int, shape.split("x")), rows) for dtype, shape, rows in cases]
        a = torch.randn(1 << 28, device="cuda", dtype=torch.bfloat16)
        b = torch.empty_like(a)
        copy = 4 * a.numel() / median_us([lambda: b.copy_(a)], 20) / 1e6
        print(f"copy {copy:.2f} TB/s", flush=True)
        for (dtype, shape, rows), (process, library, weights) in zip(cases, built):
            if process.wait():
                sys.exit(f"{shape} does not compile")
            line = []
            for count in [1] if rows == 1 else ROWS:
                xs = [torch.randn(count, weights[0].shape[1], device="cuda", dtype=dtype) for _ in weights]
                ys = [torch.full((count, weights[0].shape[0]), float("nan"), device="cuda", dtype=dtype) for _ in weights]
                us = median_us([Runner(library).bind(xs, ys)], 30)
                off = max(error(y, x.float() @ w.float().t()) for x, y, w in zip(xs, ys, weights))
                rate = sum(w.nbytes for w in weights) / us / 1e6
                wrong += not off < TOLERANCE
                line.append(f"{count}: {us / len(weights):.2f} us, {rate / copy:.2f}{'' if off < TOLERANCE else f' WRONG {off:.1e}'}")
            print(f"{str(dtype)[6:]} {shape}, {rows} rows  {'; '.join(line)}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
