"""Parts of training steps on a GPU: python tests/gpu/training_parts.py PROGRAM [norms|convolutions|attention...]

Gradients of one operator each, as artifacts of ONNX's Gradient operator, against PyTorch:
norms          of rows in bf16: their share of a device copy's rate, three tensors moved (the input, the gradient of the result, that
               of the input), as of PyTorch's eager mode and torch.compile, whose forward pass is not timed
convolutions   of ResNet-50 with 64 images in f16, channels last: the gradients of inputs and of weights against cuDNN's fastest
attention      the kernels of the backward pass in bf16 (--precision bf16) of a layer's training step, against PyTorch's fastest and
               its deterministic ones; tests/train compares the results
Results of the first two are compared with PyTorch's. All parts run as CUDA graphs. Needs torch and onnx; ends with "N passed, N failed".
"""

import concurrent.futures
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import onnx
import torch
from onnx import TensorProto as T
from onnx import helper as h

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
import stridec  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
N = h.make_node
results = []


def gradient(name, nodes, inputs, dtype, wanted):
    """The gradients of sum(y g) in the inputs `wanted`. inputs: name -> shape; the result of nodes is y, and g has its shape."""
    values = [h.make_tensor_value_info(key, dtype, shape) for key, shape in inputs.items()]
    outputs = [h.make_tensor_value_info("d" + key, dtype, inputs[key]) for key in wanted]
    more = [N("Mul", ["y", "g"], ["yg"]), N("ReduceSum", ["yg"], ["loss"], keepdims=0),
            N("Gradient", list(wanted), ["d" + key for key in wanted], domain="ai.onnx.preview.training",
              xs=list(wanted), y="loss")]  # fmt: skip
    graph = h.make_graph([*nodes, *more], name, values, outputs)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 23), h.make_opsetid("ai.onnx.preview.training", 1)], ir_version=11)


def compile_all(models, folder):
    """models: name -> (model, flags)"""

    def one(item):
        name, (model, flags) = item
        path = pathlib.Path(folder) / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        command = [PROGRAM, "compile", str(path), "-o", str(path.with_suffix(".so")), "-q", "--target", "cuda", "--gpu", "sm_90a",
                   "--mode", "reduce-overhead", *flags]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        return name, done.stderr.strip() if done.returncode else None

    with concurrent.futures.ThreadPoolExecutor(max(1, os.cpu_count() // 2)) as pool:
        return dict(pool.map(one, models.items()))


def microseconds(call, row=10, samples=7):
    """The time of a call in a row of calls that are one CUDA graph; of stridec, whose runs are graphs of their own, in a row."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(samples):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(row):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / row)
    return statistics.median(times)


class Captured:
    """The kernels of PyTorch's backward pass as a graph: those of backward(forward())."""

    def __init__(self, forward, backward):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # a backward pass runs on the stream of its forward pass
            y = forward()
            for _ in range(3):
                backward(y)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.made = backward(y)

    def results(self):
        self.graph.replay()
        torch.cuda.synchronize()
        return [t.clone() for t in self.made]

    def microseconds(self):
        return microseconds(self.graph.replay)


class Part:
    """An artifact on the inputs, with the outputs in the memory order of `like`."""

    def __init__(self, path, inputs, like):
        self.context = stridec.Model(str(path)).context(stream=torch.cuda.current_stream().cuda_stream)
        self.out = [torch.full_like(t, float("nan")) for t in like]
        self.run = self.context.prepare(*inputs, out=self.out)


def judge(what, ours, theirs, limit):
    worst = max(((a.float() - b.float()).norm() / b.float().norm()).item() for a, b in zip(ours, theirs))
    results.append(worst < limit)
    if not results[-1]:
        print(f"FAILED {what}: differs from PyTorch's by {worst:.1e}", flush=True)


def copy_rate():
    x = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.numel() / microseconds(lambda: y.copy_(x)) / 1e6  # TB/s


def norms(folder):
    F = torch.nn.functional
    sizes = [(16384, 1024), (8192, 4096), (65536, 768)]
    kinds = {  # nodes, inputs after x, PyTorch's
        "layernorm": ([N("LayerNormalization", ["x", "w", "b"], ["y"], axis=-1)], ["w", "b"],
                      lambda x, w, b: F.layer_norm(x, w.shape, w, b)),
        "rmsnorm": ([N("RMSNormalization", ["x", "w"], ["y"], axis=-1)], ["w"], lambda x, w: F.rms_norm(x, w.shape, w, 1e-5)),
        "softmax": ([N("Softmax", ["x"], ["y"], axis=-1)], [], lambda x: F.softmax(x, -1)),
        "gelu": ([N("Gelu", ["x"], ["y"])], [], lambda x: F.gelu(x)),
    }  # fmt: skip
    models = {}
    for kind, (nodes, beside, _) in kinds.items():
        for rows, columns in sizes:
            inputs = {"x": [rows, columns], **{key: [columns] for key in beside}, "g": [rows, columns]}
            models[f"{kind}_{rows}_{columns}"] = gradient(kind, nodes, inputs, T.BFLOAT16, ["x", *beside]), []
    refused = compile_all(models, folder)
    rate = copy_rate()
    print(f"a copy moves {rate:.2f} TB/s\nnorm, rows x columns        us   of copy    PyTorch eager, compiled: of copy")
    for kind, (_, beside, torchs) in kinds.items():
        for rows, columns in sizes:
            name = f"{kind}_{rows}_{columns}"
            if refused[name]:
                results.append(False)
                print(f"FAILED {name}: {refused[name]}", flush=True)
                continue
            x, g = (torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            own = [torch.randn(columns, device="cuda", dtype=torch.bfloat16) for _ in beside]
            leaves = [t.requires_grad_() for t in (x, *own)]
            share = {}
            for peer in ("eager", "compile"):
                torch._dynamo.reset()
                function = torch.compile(torchs) if peer == "compile" else torchs
                graph = Captured(lambda function=function: function(*leaves),
                                 lambda y: torch.autograd.grad(y, leaves, g, retain_graph=True))  # fmt: skip
                share[peer] = 3 * 2 * x.numel() / graph.microseconds() / 1e6 / rate
                if peer == "eager":
                    theirs = graph.results()
            detached = [t.detach() for t in leaves]
            part = Part(pathlib.Path(folder) / f"{name}.so", [*detached, g], detached)
            us = microseconds(part.run)
            judge(name, part.out, theirs, 2e-2)
            print(f"{kind:10} {rows:6} x {columns:5} {us:9.1f} {3 * 2 * x.numel() / us / 1e6 / rate:9.2f} {share['eager']:9.2f} "
                  f"{share['compile']:6.2f}", flush=True)  # fmt: skip


def layers():
    """ResNet-50's: channels in, size, channels out, kernel, stride."""
    yield 3, 224, 64, 7, 2
    for channels, size, stride, before in ((64, 56, 1, 64), (128, 28, 2, 256), (256, 14, 2, 512), (512, 7, 2, 1024)):
        yield before, size * stride, channels, 1, 1
        yield channels, size * stride, channels, 3, stride
        yield channels, size, 4 * channels, 1, 1
        yield before, size * stride, 4 * channels, 1, stride
        yield 4 * channels, size, channels, 1, 1
        if stride > 1:
            yield channels, size, channels, 3, 1


def convolutions(folder):
    torch.backends.cudnn.benchmark = True
    batch, models, cases = 64, {}, sorted(set(layers()))
    for ci, size, co, kernel, stride in cases:
        out = (size + 2 * (kernel // 2) - kernel) // stride + 1
        inputs = {"x": [batch, ci, size, size], "w": [co, ci, kernel, kernel], "g": [batch, co, out, out]}
        nodes = [N("Conv", ["x", "w"], ["y"], pads=[kernel // 2] * 4, strides=[stride] * 2, kernel_shape=[kernel] * 2)]
        for wanted in ("x", "w"):
            flags = [part for key in (*inputs, "d" + wanted) for part in ("--layout", f"{key}=nhwc")]
            models[f"{ci}_{size}_{co}_{kernel}_{stride}_{wanted}"] = gradient("conv", nodes, inputs, T.FLOAT16, [wanted]), flags
    refused = compile_all(models, folder)
    ratios = {"x": [], "w": []}
    print("convolution (64 images)            gradient of     us   PyTorch us   times as fast")
    for ci, size, co, kernel, stride in cases:
        if ci == 3:
            wanted_here = ["w"]
        else:
            wanted_here = ["x", "w"]
        like = dict(device="cuda", dtype=torch.float16)
        last = torch.channels_last
        x = torch.randn(batch, ci, size, size, **like).to(memory_format=last).requires_grad_()
        w = (torch.randn(co, ci, kernel, kernel, **like) / math.sqrt(ci * kernel * kernel)).to(memory_format=last).requires_grad_()
        conv = torch.nn.functional.conv2d
        g = torch.randn_like(conv(x, w, stride=stride, padding=kernel // 2))
        for wanted in wanted_here:
            name = f"{ci}_{size}_{co}_{kernel}_{stride}_{wanted}"
            if refused[name]:
                results.append(False)
                print(f"FAILED {name}: {refused[name]}", flush=True)
                continue
            leaf = x if wanted == "x" else w
            graph = Captured(lambda: conv(x, w, stride=stride, padding=kernel // 2),
                             lambda y, leaf=leaf: torch.autograd.grad(y, leaf, g, retain_graph=True))  # fmt: skip
            theirs = graph.microseconds()
            part = Part(pathlib.Path(folder) / f"{name}.so", [x.detach(), w.detach(), g], [leaf.detach()])
            us = microseconds(part.run)
            judge(name, part.out, graph.results(), 1e-2)
            ratios[wanted].append(theirs / us)
            print(f"{ci:5} -> {co:4}, {size:3}x{size:<3}, {kernel}x{kernel} by {stride}   {'input ' if wanted == 'x' else 'weight'} "
                  f"{us:12.1f} {theirs:12.1f} {theirs / us:10.2f}", flush=True)  # fmt: skip
            del part, graph
    for wanted, name in (("x", "inputs"), ("w", "weights")):
        if ratios[wanted]:
            mean = math.exp(statistics.fmean(map(math.log, ratios[wanted])))
            print(f"gradients of {name}: {mean:.2f} times as fast in the geometric mean, least {min(ratios[wanted]):.2f}")


class Attend(torch.nn.Module):
    """Attention of a network: between products, of rows of 64."""

    def __init__(self, heads, shared, size, causal):
        super().__init__()
        self.parts = (heads, shared, shared)
        self.into, self.out = torch.nn.Linear(64, (heads + 2 * shared) * size), torch.nn.Linear(heads * size, 64)
        self.options = dict(is_causal=causal, enable_gqa=heads != shared)

    def forward(self, x):
        y = self.into(x).unflatten(2, (sum(self.parts), -1)).transpose(1, 2)
        y = torch.nn.functional.scaled_dot_product_attention(*y.split(self.parts, 1), **self.options)
        return self.out(y.transpose(1, 2).flatten(2))


def attention(folder):
    shapes = [(8, 12, 12, 512, 64), (8, 16, 16, 2048, 64), (4, 16, 16, 4096, 128), (1, 32, 8, 8192, 128), (32, 12, 12, 197, 64)]
    print("attention: sequences x heads/shared x length x size      us  TFLOP/s  PyTorch us, deterministic   ratio to each")
    for shape in shapes:
        for causal in (False, True):
            batch, heads, shared, length, size = shape
            module, x = Attend(heads, shared, size, causal), torch.randn(batch, length, 64)
            path = pathlib.Path(folder) / f"attention_{batch}_{length}_{size}_{causal}.pt2"
            torch.export.save(torch.export.export(module.train(), (x,)), path)
            command = [PROGRAM, "compile", str(path), "-o", str(path.with_suffix(".so")), "-q", "--target", "cuda", "--gpu", "sm_90a",
                       "--precision", "bf16", "--train", "loss=mse,output=output,target=t,optimizer=sgd,functions=train_step"]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if done.returncode:
                results.append(False)
                print(f"FAILED {path.name}: {done.stderr.strip()}", flush=True)
                continue
            context = stridec.Model(str(path.with_suffix(".so"))).context(stream=torch.cuda.current_stream().cuda_stream)
            run = context.prepare(x.cuda(), x.cuda())
            for _ in range(3):
                run()
            torch.cuda.synchronize()
            context.profile()
            for _ in range(10):
                run()
            torch.cuda.synchronize()
            rows = [(name, 1e6 * seconds / calls) for name, calls, seconds in context.steps() if calls]
            us = sum(t for name, t in rows if "attention_backward" in name)
            del context, run
            one = lambda n: torch.randn(batch, n, length, size, device="cuda", dtype=torch.bfloat16)  # noqa: E731
            leaves = [one(n).requires_grad_() for n in module.parts]
            g = one(heads)
            times = []
            for deterministic in (False, True):
                torch.use_deterministic_algorithms(deterministic, warn_only=True)
                attend = torch.nn.functional.scaled_dot_product_attention
                graph = Captured(lambda: attend(*leaves, **module.options),
                                 lambda y: torch.autograd.grad(y, leaves, g, retain_graph=True))  # fmt: skip
                times.append(graph.microseconds())
            torch.use_deterministic_algorithms(False)
            flops = 10 * batch * heads * length * length * size * (0.5 if causal else 1)
            print(f"{batch:3} x {heads}/{shared} x {length} x {size}{', causal' if causal else '        '} {us:14.1f} {flops / max(us, 1) / 1e6:7.0f} "
                  f"{times[0]:10.1f} {times[1]:9.1f} {times[0] / max(us, 1):10.2f} {times[1] / max(us, 1):5.2f}", flush=True)  # fmt: skip
            results.append(us > 0)
            if not us:
                print("FAILED: no kernel of the backward pass: " + ", ".join(f"{name} {t:.1f}" for name, t in rows), flush=True)


def main():
    parts = {"norms": norms, "convolutions": convolutions, "attention": attention}
    for name in sys.argv[2:] or parts:
        with tempfile.TemporaryDirectory() as folder:
            parts[name](folder)
        torch.cuda.empty_cache()
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(not all(results))


main()
