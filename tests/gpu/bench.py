"""Memory-bound operators in bf16 and a plain matrix product on the GPU of this machine, beside a device copy and torch.compile.

    python tests/gpu/bench.py STRIDEC [name...]
    python tests/gpu/bench.py STRIDEC --build FOLDER [name...]     # where there is no GPU and no PyTorch
    python tests/gpu/bench.py FOLDER[,FOLDER...] [name...]         # what was built so; further folders are peers (other builds)

Each operator is compiled once a width, with a symbolic number of rows. Inputs are random, outputs poisoned; ours and theirs
are compared with PyTorch in f32. Times are medians of rows of runs one behind the other over rotated buffers that exceed
the L2, ours, the copy's and the peers' by turns: what a stream of work sees, without the host's part. The peers are
torch.compile for each size (static) and for all (dynamic); their compilations run ahead in processes of their own. `fixed`
is stridec's own artifact for the case's number of rows alone: what it costs that the number is a symbol.
"""

import concurrent.futures
import ctypes as c
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

FOLDERS = sys.argv[1].split(",") if len(sys.argv) > 1 else []
if FOLDERS and FOLDERS != ["--warm"] and not os.path.isdir(FOLDERS[0]):
    import onnx
    from onnx import TensorProto as T
    from onnx import helper as h
    from onnx import numpy_helper as nh
if "--build" not in sys.argv:
    import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")]
import stridec as s  # noqa: E402
from stridec import _capi  # noqa: E402

ROTATE_BYTES = 400 << 20
SHAPES = [(16384, 1024), (16384, 4096), (65536, 4096), (16387, 4095), (65537, 1023)]
EPSILON = 1e-5
ROW, SAMPLES = 24, 5  # runs one behind the other; how often
TOLERANCE = 4e-3  # results rounded to bf16 are 1.7e-3 off
WARMERS = 10


def tensor(t):
    dims = c.c_int64 * t.dim()
    code = {torch.bfloat16: 4, torch.bool: 6}.get(t.dtype, 2 if t.is_floating_point() else 0)
    device, dtype = _capi.Device(_capi.CUDA, t.device.index or 0), _capi.DType(code, t.element_size() * 8, 1)
    return _capi.Tensor(t.data_ptr(), device, t.dim(), dtype, dims(*t.shape), dims(*t.stride()))


class Runner:
    """An artifact on device tensors, in the order of PyTorch's current stream."""

    def __init__(self, path):
        self.context = s.Model(path).context(stream=torch.cuda.current_stream().cuda_stream)

    def bind(self, inputs, outputs):
        ins, outs = (_capi.Tensor * len(inputs))(*map(tensor, inputs)), (_capi.Tensor * len(outputs))(*map(tensor, outputs))
        native, handle = self.context._native(self.context.model.function()), self.context._handle

        def run():
            self.context._check(native(handle, ins, len(inputs), outs, len(outputs)))

        return run


def each(names, run):
    """Runs each name; one that fails is printed, the others are worth their run, and the process ends with what failed."""
    failed = []
    for name in names:
        try:
            run(name)
        except Exception as problem:
            failed.append(name)
            print(f"  {name} FAILED {type(problem).__name__}: {str(problem)[:500]}", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def model(name, nodes, ins, outs, weights=()):
    value = lambda v: h.make_tensor_value_info(*v)  # noqa: E731
    graph = h.make_graph(nodes, name, list(map(value, ins)), list(map(value, outs)), list(weights))
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=11)


def weights(columns):
    """Bits of bf16."""
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(columns).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for _ in range(2)]


def models(columns):
    """name: model"""
    D, C, N = T.BFLOAT16, columns, h.make_node
    x, y = ("x", D, ["n", C]), ("y", D, ["n", C])
    W, B = (h.make_tensor(name, D, [C], bits.tobytes(), raw=True) for name, bits in zip("wb", weights(columns)))
    scalar = lambda name, v: h.make_tensor(name, D, [], [v])  # noqa: E731
    axis = lambda a: nh.from_array(np.array([a], np.int64), "axis")  # noqa: E731
    return {
        "add": model("add", [N("Add", ["x", "b"], ["y"])], [x], [y], [B]),
        "gelu": model("gelu", [N("Add", ["x", "b"], ["t"]), N("Mul", ["t", "r"], ["u"]), N("Erf", ["u"], ["e"]),
                               N("Add", ["e", "one"], ["f"]), N("Mul", ["t", "f"], ["y"])], [x], [y],
                      [B, scalar("r", 0.7071), scalar("one", 1)]),
        "softmax": model("softmax", [N("Softmax", ["x"], ["y"], axis=-1)], [x], [y]),
        "layernorm": model("layernorm", [N("LayerNormalization", ["x", "w", "b"], ["y"], axis=-1)], [x], [y], [W, B]),
        "rmsnorm": model("rmsnorm", [N("RMSNormalization", ["x", "w"], ["y"], axis=-1)], [x], [y], [W]),
        "rowsum": model("rowsum", [N("ReduceSum", ["x", "axis"], ["y"], keepdims=0)], [x], [("y", D, ["n"])], [axis(1)]),
        "colsum": model("colsum", [N("ReduceSum", ["x", "axis"], ["y"], keepdims=0)], [x], [("y", D, [C])], [axis(0)]),
        "transpose": model("transpose", [N("Transpose", ["x"], ["y"], perm=[1, 0])], [x], [("y", D, [C, "n"])]),
    }  # fmt: skip


def operators():
    """name: (PyTorch's way, bytes beside the input over the input's, shape of the output)"""
    F = torch.nn.functional
    return {
        "add": (lambda v, w, b: v + b, 1, 0),
        "gelu": (lambda v, w, b: (v + b) * (1 + torch.erf((v + b) * 0.7071)), 1, 0),
        "softmax": (lambda v, w, b: F.softmax(v, -1), 1, 0),
        "layernorm": (lambda v, w, b: F.layer_norm(v, w.shape, w, b, EPSILON), 1, 0),
        "rmsnorm": (lambda v, w, b: F.rms_norm(v, w.shape, w, EPSILON), 1, 0),
        "rowsum": (lambda v, w, b: v.sum(1), 0, 1),
        "colsum": (lambda v, w, b: v.sum(0), 0, 2),
        "transpose": (lambda v, w, b: v.t().contiguous(), 1, 3),
    }


# ---- torch.compile ----


def peers(wanted):
    """(name, dynamic): compiled function; each has code of its own, so that what one compiles does not count for another."""
    import torch._dynamo

    for limit in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit", "accumulated_cache_size_limit"):
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 10000)
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # instead of running eagerly without a word
    out = {}
    for name, (function, _, _) in operators().items():
        for dynamic in (False, True):
            if not wanted or name in wanted:
                space = {"function": function}
                exec(f"def {name}_{dynamic}(v, w, b): return function(v, w, b)", space)
                out[name, dynamic] = torch.compile(space[f"{name}_{dynamic}"], dynamic=dynamic)
    return out


def parameters(columns):
    return [torch.tensor(bits.view(np.int16), device="cuda").view(torch.bfloat16) for bits in weights(columns)]


def views(tensors, dynamic):
    """Of their own for each peer: marks stay on a tensor and tell on all that see it."""
    out = [t.view(t.shape) for t in tensors]
    for t in out:
        for d in range(t.dim() if dynamic else 0):
            torch._dynamo.mark_dynamic(t, d)
    return out


def warm(part, parts, wanted):
    """Compiles every so-many-th of the peers' functions into PyTorch's cache."""
    functions = peers(wanted)
    jobs = [(key, [shape]) for key in functions for shape in SHAPES if not key[1]]
    jobs[:0] = [(key, SHAPES) for key in functions if key[1]]
    for key, shapes in jobs[part::parts]:
        for shape in shapes:
            x = torch.zeros(shape, device="cuda", dtype=torch.bfloat16)
            functions[key](*views([x, *parameters(shape[1])], key[1]))


# ---- measuring ----


def median_us(runs, repeats=60):
    """Microseconds of a call by itself, with its launches, where medians_us() has calls one behind the other."""
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


def sample_us(runs, row, host):
    """Time of a run in a row of them; `host` seconds is what the host takes to enqueue one."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(2.2e9 * row * host) + 100000)  # all of them are enqueued before the device gets to the first
    start.record()
    for i in range(row):
        runs[i % len(runs)]()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / row


def medians_us(contestants, row=ROW, samples=SAMPLES):
    """name: microseconds of a run, of name: runs; by turns."""
    hosts, times = {}, {name: [] for name in contestants}
    for name, runs in contestants.items():
        for run in runs:
            run()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for i in range(8):
            runs[i % len(runs)]()
        hosts[name] = (time.perf_counter() - begin) / 8
        torch.cuda.synchronize()
    for _ in range(samples):
        for name, runs in contestants.items():
            times[name].append(sample_us(runs, row, hosts[name]))
    return {name: statistics.median(t) for name, t in times.items()}


def error(got, want):
    got, want = got.double(), want.double()
    return ((got - want).norm() / want.norm()).item()


def product():
    return model("gemm", [h.make_node("MatMul", ["a", "b"], ["c"])], [("a", T.FLOAT, ["m", "k"]), ("b", T.FLOAT, ["k", "n"])],
                 [("c", T.FLOAT, ["m", "n"])])  # fmt: skip


def fixed_library(name, rows, columns):
    return f"{name}{columns}.{rows}"


def build(stridec, folder, wanted):
    protos = {f"{name}{c}": proto for c in sorted({c for _, c in SHAPES}) for name, proto in models(c).items()
              if not wanted or name in wanted}  # fmt: skip
    jobs = [(name, name, []) for name in protos]  # model, library, flags
    jobs += [(f"{name}{c}", fixed_library(name, rows, c), ["--dim", f"n={rows}"]) for rows, c in SHAPES for name in models(c)
             if f"{name}{c}" in protos]  # fmt: skip
    if not wanted or "gemm" in wanted:
        protos["gemm"] = product()
        jobs.append(("gemm", "gemm", []))
    for name, proto in protos.items():
        onnx.save(proto, os.path.join(folder, name + ".onnx"))

    def one(job):
        name, library, flags = job
        source, library = os.path.join(folder, name + ".onnx"), os.path.join(folder, library + ".so")
        command = [stridec, "compile", source, "-o", library, "--target", "cuda", "--gpu", "sm_90a", "--progress=none", *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(one, jobs))


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")


def memory_bound(folders, wanted):
    functions, shares, gains = peers(wanted), [], {}
    for rows, columns in SHAPES:
        size = rows * columns * 2
        count = max(2, ROTATE_BYTES // size)
        xs = [torch.randn(rows, columns, device="cuda").bfloat16() for _ in range(count)]
        ys = [torch.empty_like(x) for x in xs]
        parameter = parameters(columns)
        for name, (function, written, kind) in operators().items():
            if wanted and name not in wanted:
                continue
            want = function(xs[0].float(), *(p.float() for p in parameter))
            shape = [(rows, columns), (rows,), (columns,), (columns, rows)][kind]
            contestants, off = {"copy": [lambda x=x, y=y: y.copy_(x) for x, y in zip(xs, ys)]}, {}
            kept = []  # outputs live on, so that all write to rotated memory
            libraries = {folder: os.path.join(folder, f"{name}{columns}.so") for folder in folders}
            libraries["fixed"] = os.path.join(folders[0], fixed_library(name, rows, columns) + ".so")
            for who, library in libraries.items():
                if who != folders[0] and not os.path.exists(library):
                    continue
                try:
                    runner = Runner(library)
                    outs = [torch.full(shape, float("nan"), device="cuda", dtype=torch.bfloat16) for _ in xs]
                    runs = [runner.bind([x], [y]) for x, y in zip(xs, outs)]
                    runs[0]()
                    off[who] = error(outs[0], want)
                    contestants[who] = runs
                    kept.append((runner, outs))
                except s.Error as problem:
                    print(f"  {name:10} {who} FAILED {problem}", flush=True)
            for kind_of, dynamic in (("static", False), ("dynamic", True)):
                outs, ins = [None] * count, views(xs, dynamic)

                def run(i, outs=outs, ins=ins, compiled=functions[name, dynamic], own=views(parameter, dynamic)):
                    outs[i] = compiled(ins[i], *own)
                    return outs[i]

                try:
                    off[kind_of] = error(run(0), want)
                    contestants[kind_of] = [lambda i=i, run=run: run(i) for i in range(count)]
                except Exception as problem:  # of many classes
                    print(f"  {name:10} {kind_of} torch.compile FAILED {str(problem)[:200]}", flush=True)
            times = medians_us(contestants, max(8, ROW * 2**27 // max(2**27, size)))
            moved, case = (1 + written) * size / 1e6, f"{name} {rows}x{columns}"
            copy = 2 * size / 1e6 / times["copy"]  # TB/s
            text = f"  {case:21} copy {copy:4.2f} TB/s"
            for folder in folders:
                if folder in times:
                    rate = moved / times[folder]
                    text += f"; {rate:4.2f} {rate / copy:4.2f} of copy {times[folder]:6.1f} us error {off[folder]:.1e}"
                    if folder == folders[0]:
                        shares.append((rate / copy, case))
            for kind_of in [kind for kind in ("fixed", "static", "dynamic") if kind in times]:
                text += f"; {kind_of} {moved / times[kind_of]:4.2f}"
                if folders[0] in times:
                    gains.setdefault(kind_of, []).append((times[kind_of] / times[folders[0]], case))
            wrong = [who for who, e in off.items() if not e < TOLERANCE]
            print(text + (f"  WRONG: {', '.join(wrong)}" if wrong else ""), flush=True)
            del contestants, kept, want

    def say(what, of):
        print(f"{what} {mean([v for v, _ in of]):.2f}, at worst {min(of)[0]:.2f} ({min(of)[1]})")

    for odd in (False, True):
        of = [share for share in shares if (int(share[1].rsplit("x")[-1]) % 8 != 0) == odd]
        if of:
            say(f"share of copy, {'odd' if odd else 'even'} widths:", of)
    for kind_of, of in gains.items():
        say(f"times of {'stridec for fixed rows' if kind_of == 'fixed' else kind_of + ' torch.compile'} over ours:", of)


def products(folder):
    runner = Runner(os.path.join(folder, "gemm.so"))
    torch.backends.cuda.matmul.allow_tf32 = False
    for m, n, k in [(1024, 1024, 1024), (4096, 4096, 4096), (512, 3072, 768), (1000, 1001, 333)]:
        a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
        out = torch.full((m, n), float("nan"), device="cuda")
        us = medians_us({"ours": [runner.bind([a, b], [out])], "theirs": [lambda: a @ b]}, 4, 3)
        off = error(out, a.double() @ b.double())
        rate = {who: 2e-6 * m * n * k / time for who, time in us.items()}
        print(f"  f32 gemm {m}x{n}x{k}: {rate['ours']:6.1f} TFLOP/s, cuBLAS {rate['theirs']:6.1f}, "
              f"error {off:.1e}{'' if off < 1e-5 else '  WRONG'}", flush=True)  # fmt: skip


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "--warm":
        return warm(int(rest[0]), int(rest[1]), rest[2:])
    if rest[:1] == ["--build"]:
        os.makedirs(rest[1], exist_ok=True)
        return build(what, rest[1], rest[2:])
    with tempfile.TemporaryDirectory() as made:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(made, "inductor")
        warmers = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--warm", str(i), str(WARMERS), *rest])
                   for i in range(WARMERS)]  # fmt: skip
        folders = FOLDERS
        if not os.path.isdir(FOLDERS[0]):
            build(what, made, rest)
            folders = [made]
        for warmer in warmers:
            warmer.wait()
        memory_bound(folders, rest)
        if not rest or "gemm" in rest:
            products(folders[0])


if __name__ == "__main__":
    main()
