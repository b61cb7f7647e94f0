"""What a call costs the host: its time on the CPU with the device busy, so that nothing is waited for.

    python tests/gpu/host.py STRIDEC [TOOL]      TOOL: build/gpu_host_cost, beside STRIDEC if not given

Chains of small products (a kernel each, symbolic batch) of several lengths are called in modes default (a launch a kernel)
and reduce-overhead (a recorded graph), from C++ (the tool, tests/gpu/host_cost.cpp) beside what the bare driver takes for as
many launches, and from Python beside torch.compile's reduce-overhead of the same chain. Also: the first call at a new batch
within the declared range, and the device memory that the calls after it allocated.
"""

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

from bench import Runner

ROWS, WIDTH = 8, 256
LENGTHS = (1, 4, 16, 48)
CALLS = 15  # of at most 48 launches: far from the 1024 that a stream holds before a launch waits


def chain(length):
    rng = np.random.default_rng(0)
    weights = [nh.from_array((rng.standard_normal((WIDTH, WIDTH)) / 16).astype(np.float16), f"w{i}") for i in range(length)]
    nodes, x = [], "x"
    for i in range(length):
        y = "y" if i + 1 == length else f"h{i}"
        nodes += [h.make_node("MatMul", [x, f"w{i}"], [f"m{i}"]), h.make_node("Relu", [f"m{i}"], [y])]
        x = y
    value = lambda name: h.make_tensor_value_info(name, T.FLOAT16, ["batch", WIDTH])  # noqa: E731
    graph = h.make_graph(nodes, "chain", [value("x")], [value("y")], weights)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), weights


def host_us(call, rounds=60):
    """The median over rounds of a call's time, where the device is kept busy by something else meanwhile."""
    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        torch.cuda._sleep(4_000_000)
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
        torch.cuda.synchronize()
    return statistics.median(times)


class Chain(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.from_numpy(nh.to_array(w).copy()).cuda() for w in weights])

    def forward(self, x):
        for w in self.weights:
            x = torch.relu(x @ w)
        return x


def main():
    stridec = sys.argv[1]
    tool = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(stridec), "gpu_host_cost")
    with tempfile.TemporaryDirectory() as folder:
        artifacts = []
        for length in LENGTHS:
            model, weights = chain(length)
            source = os.path.join(folder, "chain.onnx")
            onnx.save(model, source)
            x = torch.randn(ROWS, WIDTH, device="cuda").half()
            want = Chain(weights)(x)
            row = []
            for mode in ("default", "reduce-overhead"):
                library = os.path.join(folder, f"{length}.{mode}.so")
                artifacts.append(f"{length}:{library}")
                subprocess.run([stridec, "compile", source, "-o", library, "--target", "cuda", "--gpu", "sm_90a", "--mode", mode,
                                "--dim", "batch=1..64", "--progress=none", "--quiet"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
                runner, y = Runner(library), torch.full_like(x, float("nan"))
                call = runner.bind([x], [y])
                call()
                torch.cuda.synchronize()
                off = ((y.float() - want.float()).norm() / want.float().norm()).item()
                row.append(host_us(call))
                other, out = torch.randn(33, WIDTH, device="cuda").half(), torch.empty(33, WIDTH, device="cuda").half()
                fresh = runner.bind([other], [out])
                torch.cuda.synchronize()
                start = time.perf_counter()
                fresh()
                first = (time.perf_counter() - start) * 1e6
                torch.cuda.synchronize()
                free = torch.cuda.mem_get_info()[0]
                for _ in range(20):
                    fresh()
                torch.cuda.synchronize()
                grown = free - torch.cuda.mem_get_info()[0]
                row += [first, grown, off]
            with torch.no_grad():
                theirs = torch.compile(Chain(weights), mode="reduce-overhead")
                for _ in range(3):
                    theirs(x)
                peer = host_us(lambda theirs=theirs: theirs(x), 20)
            print(f"from Python, {length:2} kernels: default {row[0]:6.1f} us a call, reduce-overhead {row[4]:6.1f}, "
                  f"torch.compile's {peer:6.1f}; first call at another batch {row[1]:.0f} and {row[5]:.0f} us, grown by {row[2]} "
                  f"and {row[6]} bytes; errors {row[3]:.0e}, {row[7]:.0e}", flush=True)  # fmt: skip
        subprocess.run([tool, str(ROWS), str(WIDTH), *artifacts], check=True)


if __name__ == "__main__":
    main()
