"""Products by weights of few bits on the GPU of this machine, beside a copy of their bytes and PyTorch's product in f16.

    python tests/gpu/packed_weights.py STRIDEC FOLDER [name...]

Each case is a row of MatMulNBits or of DequantizeLinear and MatMul, as many as exceed the L2, compiled once for all numbers
of rows; results are compared with PyTorch's product of the same numbers in f32. Times are those of one product in the row.
`share` is the rate over the weights' bytes as they are in the file, over a copy's rate over bytes read and written.
"""

import os
import statistics
import subprocess
import sys

import numpy as np
import onnx
import torch
from onnx import TensorProto as T
from onnx import helper as h

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.argv, ARGUMENTS = sys.argv[:1], sys.argv[1:]
from bench import Runner  # noqa: E402

ROWS = (1, 4, 16, 64, 128, 512)
ROTATED = 160 << 20
# name: K, N, bits, block (0: one scale a column, QDQ), zero points, precision
CASES = {
    "4096x4096 int4/32 z": (4096, 4096, 4, 32, True, "fp16"),
    "4096x4096 int4/128": (4096, 4096, 4, 128, False, "fp16"),
    "4096x14336 int4/32": (4096, 14336, 4, 32, False, "fp16"),
    "14336x4096 int4/128 z": (14336, 4096, 4, 128, True, "fp16"),
    "4096x4096 int8 QDQ": (4096, 4096, 8, 0, False, "fp16"),
    "4096x14336 int8/64 z": (4096, 14336, 8, 64, True, "fp16"),
    "4096x4096 int2/64": (4096, 4096, 2, 64, False, "fp16"),
    "4096x14336 int4/64 bf16": (4096, 14336, 4, 64, False, "bf16"),
    "4096x14336 int8/64 bf16": (4096, 14336, 8, 64, False, "bf16"),
    "4096x14336 int4/32 f32": (4096, 14336, 4, 32, False, "fp32"),
    "4095x4094 int4/32 z": (4095, 4094, 4, 32, True, "fp16"),
}


def median_us(run, rounds=12):
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        torch.cuda._sleep(400_000)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def tensor(name, dtype, array):
    return h.make_tensor(name, dtype, array.shape, np.ascontiguousarray(array).tobytes(), raw=True)


def numbers(K, N, bits, block, zeros, dtype):
    """The tensors of a case by name, their axis of columns, and the factor [N, K] in f32 on the GPU."""
    rng, scale_type = np.random.default_rng(0), np.float16 if dtype == T.FLOAT16 else np.float32
    gpu = lambda a: torch.from_numpy(a).cuda()  # noqa: E731
    if block == 0:
        w = rng.integers(-127, 128, (K, N), np.int8)
        s = ((rng.random(N) + 0.5) * 4e-2 / 127).astype(scale_type)
        return {"w": (T.INT8, w, 1), "s": (dtype, s, 0)}, gpu(w).t().float() * gpu(s).float()[:, None]
    blocks, per = -(-K // block), 8 // bits
    w = rng.integers(0, 256, (N, blocks, block // per), np.uint8)
    s = ((rng.random((N, blocks)) + 0.5) * 4e-2 / 2**bits).astype(scale_type)
    made = {"w": (T.UINT8, w, 0), "s": (dtype, s, 0)}
    unpack = lambda a: torch.stack([gpu(a) >> (bits * j) & (2**bits - 1) for j in range(per)], -1).flatten(-2).float()  # noqa: E731
    z = 2 ** (bits - 1)
    if zeros:
        made["z"] = (T.UINT8, rng.integers(0, 256, (N, -(-blocks // per)), np.uint8), 0)
        z = unpack(made["z"][1])[:, :blocks, None]
    return made, ((unpack(w) - z) * gpu(s).float()[..., None]).flatten(1)[:, :K]


def build(stridec, folder, name):
    """The library, bytes of a product's weights, the factor (of the i-th product: rolled by i columns), the process."""
    K, N, bits, block, zeros, precision = CASES[name]
    dtype = T.FLOAT16 if precision == "fp16" else T.FLOAT
    tensors, factor = numbers(K, N, bits, block, zeros, dtype)
    count = max(2, min(16, ROTATED // (K * N * bits // 8)))
    nodes, inits = [], []
    for i in range(count):
        for key, (kind, array, axis) in tensors.items():
            array = np.roll(array, i, axis)
            shape = array.shape if key == "w" or block == 0 else [array.size]
            inits.append(h.make_tensor(f"{key}{i}", kind, shape, np.ascontiguousarray(array).tobytes(), raw=True))
        given = [f"{key}{i}" for key in tensors]
        if block:
            nodes.append(h.make_node("MatMulNBits", [f"x{i}", *given], [f"y{i}"], domain="com.microsoft", K=K, N=N, bits=bits, block_size=block))
        else:
            nodes.append(h.make_node("DequantizeLinear", given, [f"f{i}"], axis=1))
            nodes.append(h.make_node("MatMul", [f"x{i}", f"f{i}"], [f"y{i}"]))
    values = [[h.make_tensor_value_info(f"{v}{i}", dtype, ["m", width]) for i in range(count)] for v, width in (("x", K), ("y", N))]
    path = os.path.join(folder, name.replace(" ", "_").replace("/", "_"))
    opsets = [h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)]
    onnx.save(h.make_model(h.make_graph(nodes, "g", *values, inits), opset_imports=opsets, ir_version=10), path + ".onnx")
    command = [stridec, "compile", path + ".onnx", "-o", path + ".so", "--target", "cuda", "--gpu", "sm_90a", "--precision", precision]
    process = subprocess.Popen([*command, "--dim", "m=1..4096", "--progress=none", "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return path + ".so", sum(array.nbytes for _, array, _ in tensors.values()), factor, count, process


def measure(name, library, size, factor, count, copy):
    K, N, _, _, _, precision = CASES[name]
    dtype = torch.float16 if precision == "fp16" else torch.float32
    runner, line, wrong = Runner(library), [], 0
    halves = [factor.roll(i, 0).half() for i in range(min(count, 6))]
    for rows in ROWS:
        xs = [torch.randn(rows, K, device="cuda").to(dtype) for _ in range(count)]
        ys = [torch.full((rows, N), float("nan"), device="cuda", dtype=dtype) for _ in xs]
        call = runner.bind(xs, ys)
        us = median_us(call) / count
        allowed, off = {"fp16": 2e-3, "bf16": 1e-2, "fp32": 1e-5}[precision], 0
        for i in (0, count - 1):
            exact = xs[i].double() @ factor.roll(i, 0).double().t()
            error = ((ys[i].double() - exact).abs().max() / exact.abs().max()).item()
            off = error if not error <= off else off
        wrong += not off <= allowed
        half = [x.half() for x in xs]
        theirs = median_us(lambda: [torch.mm(x, w.t()) for x, w in zip(half, halves)]) / len(halves)
        share = f" {size / us / copy:.2f}" if rows <= 64 else ""
        line.append(f"{rows}: {us:.2f} us ({theirs:.2f}){share}{'' if off <= allowed else f' WRONG {off:.1e}'}")
    print(f"{name}: {'; '.join(line)}", flush=True)
    return wrong


def main():
    stridec, folder, *names = ARGUMENTS
    a = torch.randn(1 << 28, device="cuda").bfloat16()
    b = torch.empty_like(a)
    copy = 4 * a.numel() / median_us(lambda: b.copy_(a))  # bytes a microsecond
    print(f"copy {copy / 1e6:.2f} TB/s; rows: us a product (PyTorch's f16 product), share of the copy's rate")
    del a, b
    building = [(name, *build(stridec, folder, name)) for name in names or CASES]
    wrong = 0
    for name, library, size, factor, count, process in building:
        out = process.communicate()[0].decode()
        if process.returncode:
            print(f"{name}: FAILED {out[-300:]}")
            wrong += 1
            continue
        wrong += measure(name, library, size, factor, count, copy)
        os.remove(library)
        os.remove(library[:-3] + ".onnx")
    sys.exit(f"{wrong} wrong" if wrong else 0)


if __name__ == "__main__":
    main()
