"""Memory-bound operators and a plain matrix product on the GPU of this machine, beside PyTorch eager and a device copy.

    python tests/gpu/bench.py STRIDEC [name...]
    python tests/gpu/bench.py STRIDEC --build FOLDER [name...]     # where there is no GPU and no PyTorch
    python tests/gpu/bench.py FOLDER [name...]                     # what was built so

Each operator is compiled once with a symbolic number of rows. Inputs are random, outputs poisoned and compared with
PyTorch in f32; times are medians of events over rotated buffers that exceed the L2.
"""

import ctypes as c
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np

if len(sys.argv) > 1 and not os.path.isdir(sys.argv[1]):
    import onnx
    from onnx import TensorProto as T
    from onnx import helper as h
    from onnx import numpy_helper as nh
if "--build" not in sys.argv:
    import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "samples", "python")]
import stridec as s  # noqa: E402

ROTATE_BYTES = 400 << 20


class Options(c.Structure):
    _fields_ = [*s._ContextOptions._fields_, ("stream", c.c_void_p)]


def tensor(t):
    dims = c.c_int64 * t.dim()
    code = {torch.bfloat16: 4, torch.bool: 6}.get(t.dtype, 2 if t.is_floating_point() else 0)
    return s._Tensor(t.data_ptr(), s._Device(2, t.device.index or 0), t.dim(), s._DType(code, t.element_size() * 8, 1),
                     dims(*t.shape), dims(*t.stride()))


class Runner:
    """An artifact on device tensors, in the order of PyTorch's current stream."""

    def __init__(self, path):
        self.model, self.handle = s.Model(path), c.c_void_p()
        message = c.create_string_buffer(512)
        options = Options(struct_size=c.sizeof(Options), flags=2, stream=torch.cuda.current_stream().cuda_stream)
        create = self.model._api.context_create
        if create(self.model._handle, c.cast(c.byref(options), c.POINTER(s._ContextOptions)), self.handle, message, 512):
            raise s.Error(message.value.decode())

    def bind(self, inputs, outputs):
        ins, outs = (s._Tensor * len(inputs))(*map(tensor, inputs)), (s._Tensor * len(outputs))(*map(tensor, outputs))
        api = self.model._api

        def run():
            if api.context_run(self.handle, ins, len(inputs), outs, len(outputs)):
                raise s.Error(api.context_error(self.handle).decode())

        return run


def model(name, nodes, ins, outs, weights=()):
    value = lambda v: h.make_tensor_value_info(*v)  # noqa: E731
    graph = h.make_graph(nodes, name, list(map(value, ins)), list(map(value, outs)), list(weights))
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)


def weights(columns):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(columns).astype(np.float16) for _ in range(2)]


def models(columns):
    """name: model"""
    D, C, N = T.FLOAT16, columns, h.make_node
    wn, bn = weights(columns)
    x, y = ("x", D, ["n", C]), ("y", D, ["n", C])
    W, B = nh.from_array(wn, "w"), nh.from_array(bn, "b")
    axis = lambda a: nh.from_array(np.array([a], np.int64), "axis")  # noqa: E731
    return {
        "add": model("add", [N("Add", ["x", "b"], ["y"])], [x], [y], [B]),
        "gelu": model("gelu", [N("Add", ["x", "b"], ["t"]), N("Mul", ["t", "r"], ["u"]), N("Erf", ["u"], ["e"]),
                               N("Add", ["e", "one"], ["f"]), N("Mul", ["t", "f"], ["y"])], [x], [y],
                      [B, nh.from_array(np.float16(0.7071), "r"), nh.from_array(np.float16(1), "one")]),
        "softmax": model("softmax", [N("Softmax", ["x"], ["y"], axis=-1)], [x], [y]),
        "layernorm": model("layernorm", [N("LayerNormalization", ["x", "w", "b"], ["y"], axis=-1)], [x], [y], [W, B]),
        "rowsum": model("rowsum", [N("ReduceSum", ["x", "axis"], ["y"], keepdims=0)], [x], [("y", D, ["n"])], [axis(1)]),
        "colsum": model("colsum", [N("ReduceSum", ["x", "axis"], ["y"], keepdims=0)], [x], [("y", D, [C])], [axis(0)]),
        "transpose": model("transpose", [N("Transpose", ["x"], ["y"], perm=[1, 0])], [x], [("y", D, [C, "n"])]),
    }  # fmt: skip


def operators(columns):
    """name: (PyTorch's way in f32, bytes beside the input over the input's, shape of the output)"""
    C, F = columns, torch.nn.functional
    w, b = (torch.tensor(t, device="cuda") for t in weights(columns))
    return {
        "add": (lambda v: v + b, 1, 0),
        "gelu": (lambda v: (v + b) * (1 + torch.erf((v + b) * 0.7071)), 1, 0),
        "softmax": (lambda v: F.softmax(v, -1), 1, 0),
        "layernorm": (lambda v: F.layer_norm(v, (C,), w.to(v.dtype), b.to(v.dtype)), 1, 0),
        "rowsum": (lambda v: v.sum(1), 0, 1),
        "colsum": (lambda v: v.sum(0), 0, 2),
        "transpose": (lambda v: v.t().contiguous(), 1, 3),
    }


def median_us(runs, repeats=60):
    for run in runs:
        run()
    torch.cuda.synchronize()
    times = []
    for i in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(100000)  # the launch is enqueued before the device gets to it
        start.record()
        runs[i % len(runs)]()
        end.record()
        times.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in times) * 1e3


def error(got, want):
    got, want = got.double(), want.double()
    return ((got - want).norm() / want.norm()).item()


SHAPES = [(16384, 1024), (16384, 4096), (65536, 4096), (16387, 4095), (65537, 1023)]


def product():
    return model("gemm", [h.make_node("MatMul", ["a", "b"], ["c"])], [("a", T.FLOAT, ["m", "k"]), ("b", T.FLOAT, ["k", "n"])],
                 [("c", T.FLOAT, ["m", "n"])])  # fmt: skip


def build(stridec, folder, wanted):
    protos = {f"{name}{c}": proto for c in sorted({c for _, c in SHAPES}) for name, proto in models(c).items()
              if not wanted or name in wanted}  # fmt: skip
    if not wanted or "gemm" in wanted:
        protos["gemm"] = product()
    for name, proto in protos.items():
        source, library = os.path.join(folder, name + ".onnx"), os.path.join(folder, name + ".so")
        onnx.save(proto, source)
        command = [stridec, "compile", source, "-o", library, "--target", "cuda", "--gpu", "sm_90a", "--progress=none"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def memory_bound(folder, wanted):
    for rows, columns in SHAPES:
        size = rows * columns * 2
        count = max(2, ROTATE_BYTES // size)
        xs = [torch.randn(rows, columns, device="cuda").half() for _ in range(count)]
        ys = [torch.empty_like(x) for x in xs]
        copy = 2 * size / median_us([lambda x=x, y=y: y.copy_(x) for x, y in zip(xs, ys)]) / 1e6
        print(f"{rows}x{columns}: copy {copy:.2f} TB/s", flush=True)
        for name, (eager, written, kind) in operators(columns).items():
            if wanted and name not in wanted:
                continue
            try:
                runner = Runner(os.path.join(folder, f"{name}{columns}.so"))
                shape = [(rows, columns), (rows,), (columns,), (columns, rows)][kind]
                outs = [torch.full(shape, float("nan"), device="cuda", dtype=torch.half) for _ in xs]
                runs = [runner.bind([x], [y]) for x, y in zip(xs, outs)]
                us = median_us(runs)
                moved = (1 + written) * size
                off = error(outs[0], eager(xs[0].float()))
                theirs = median_us([lambda x=x: eager(x) for x in xs], 30)
                print(f"  {name:10} {moved / us / 1e6:5.2f} TB/s {moved / us / 1e6 / copy:5.2f} of copy   {us:8.1f} us, eager "
                      f"{theirs:8.1f} us, error {off:.1e}{'' if off < 4e-3 else '  WRONG'}", flush=True)  # fmt: skip
            except s.Error as problem:
                print(f"  {name:10} FAILED {problem}", flush=True)


def products(folder):
    runner = Runner(os.path.join(folder, "gemm.so"))
    torch.backends.cuda.matmul.allow_tf32 = False
    for m, n, k in [(1024, 1024, 1024), (4096, 4096, 4096), (512, 3072, 768), (1000, 1001, 333)]:
        a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
        out = torch.full((m, n), float("nan"), device="cuda")
        us, theirs = median_us([runner.bind([a, b], [out])], 20), median_us([lambda: a @ b], 20)
        off = error(out, a.double() @ b.double())
        print(f"  f32 gemm {m}x{n}x{k}: {2e-6 * m * n * k / us:6.1f} TFLOP/s, cuBLAS {2e-6 * m * n * k / theirs:6.1f}, error {off:.1e}"
              f"{'' if off < 1e-5 else '  WRONG'}", flush=True)  # fmt: skip


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    if rest[:1] == ["--build"]:
        os.makedirs(rest[1], exist_ok=True)
        return build(what, rest[1], rest[2:])
    with tempfile.TemporaryDirectory() as made:
        folder = what
        if not os.path.isdir(what):
            build(what, made, rest)
            folder = made
        memory_bound(folder, rest)
        if not rest or "gemm" in rest:
            products(folder)


if __name__ == "__main__":
    main()
