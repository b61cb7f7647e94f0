"""What a call costs beyond its work: python tests/python/overhead.py (needs PyTorch)

torch.compile(backend="stridec") against a backend that does nothing, in the same process and in turn: at most 5 us + 1 us a
tensor more. stridec.load(...) against the C API's context_run: at most 3 us + 1 us a tensor more. Shortest of many rounds of 20
calls. By hand: it measures microseconds, on a machine that others may use. The last line is "N passed, N failed".
"""

import ctypes
import sys
import tempfile
import time

import numpy as np
import torch
from torch._dynamo.backends.common import aot_autograd

import harness
import stridec
import stridec._context
import stridec.torch_backend

ROUNDS, CALLS = 100, 20


def shortest(*calls):
    """Microseconds of each call."""
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for at, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[at] = min(best[at], (time.perf_counter() - start) / CALLS)
    return [1e6 * seconds for seconds in best]


def nothing(graph, examples):
    """A compiled graph that gives the same tensors at each call."""
    output = next(node for node in graph.graph.nodes if node.op == "output")
    made = [torch.zeros(tuple(value.meta["val"].shape)) for value in output.args[0]]

    def call(args):
        args.clear()
        return list(made)

    call._boxed_call = True
    return call


class Sum(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.parts = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(4)) for _ in range(count)])

    def forward(self, x):
        x = x * 2
        for part in self.parts:
            x = x + part
        return x


def compare_backends(count):
    torch._dynamo.reset()
    module, x = Sum(count), torch.ones(4)
    idle = aot_autograd(fw_compiler=nothing, inference_compiler=nothing, keep_inference_input_mutations=True)
    with torch.no_grad():
        floor = torch.compile(module, backend=idle)
        ours = torch.compile(module, backend=stridec.torch_backend.backend, options={"threads": 1})
        floor(x), ours(x)
        low, high = shortest(lambda: floor(x), lambda: ours(x))
    return report(f"torch.compile, {count} parameters", low, high, 5 + count + 2)


def compare_load():
    model = stridec.compile(harness.PROGRAMS / "plain.pt2", threads=1)
    x = np.ones((2, 3), np.float32)
    context = model.context(threads=1)
    native = context.prepare(x, x)
    model(x, x)
    # A call through ctypes with five arguments, and the preparation's own work, are not part of context_run.
    empty = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(("stridec_get_api", model._api.library))
    low, high, call = shortest(native, lambda: model(x, x), lambda: empty(1, 2, 3, 4, 5))
    return report("stridec.load", max(low - call, 0.0), high, 3 + 3)


def report(what, low, high, allowed):
    good = high - low <= allowed
    print(f"{what:32} floor {low:6.1f} us, ours {high:6.1f} us: {high - low:5.1f} more, at most {allowed}: {'ok' if good else 'FAILED'}")
    return good


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        harness.os.environ["STRIDEC_CACHE"] = folder
        results = [compare_backends(count) for count in (0, 1, 10, 100)] + [compare_load()]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
