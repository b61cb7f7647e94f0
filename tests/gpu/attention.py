"""Attention on a GPU: artifacts of many forms against PyTorch in f64, and their speed beside PyTorch's own attention.

    python tests/gpu/attention.py make STRIDEC FOLDER [name...]    models and artifacts; needs no GPU
    python tests/gpu/attention.py check FOLDER [name...]           runs them at odd and at usual sizes
    python tests/gpu/attention.py bench FOLDER [name...]
    python tests/gpu/attention.py decode FOLDER [name...]          # one query a sequence: shares of a copy's rate
"""

import os
import subprocess
import sys

import numpy as np

def forms():
    """The models, as ONNX. A description says how PyTorch computes the same."""
    import onnx
    from onnx import TensorProto as T
    from onnx import helper as h
    from onnx import numpy_helper as nh

    N = h.make_node
    out = {}

    def add(name, dtype, heads, kv, depth, width, scale=True, mask=None, causal=None, guard=False, flat=False, rows="s"):
        D = {"f16": T.FLOAT16, "bf16": T.BFLOAT16, "f32": T.FLOAT}[dtype]
        scalar = lambda n, v, t=D: h.make_tensor(n, t, [], [v])  # noqa: E731
        nodes, weights = [], []
        q = ["b", heads, rows, depth] if not flat else ["b", rows, heads * depth]
        k = ["b", kv, "t", depth] if not flat else ["b", "t", kv * depth]
        v = ["b", kv, "t", width] if not flat else ["b", "t", kv * width]
        inputs = [("q", D, q), ("k", D, k), ("v", D, v)]
        Q, K, V = "q", "k", "v"
        if flat:
            for x, n, size in (("q", heads, depth), ("k", kv, depth), ("v", kv, width)):
                weights.append(nh.from_array(np.array([0, 0, n, size], np.int64), x + "_shape"))
                nodes.append(N("Reshape", [x, x + "_shape"], [x + "_4"]))
                nodes.append(N("Transpose", [x + "_4"], [x + "_h"], perm=[0, 2, 1, 3]))
            Q, K, V = "q_h", "k_h", "v_h"
        if kv != heads:
            weights += [nh.from_array(np.array([2], np.int64), "two")]
            for x, n, size in ((K, "k", depth), (V, "v", width)):
                weights += [nh.from_array(np.array([1, 1, heads // kv, 1, 1], np.int64), n + "_times"),
                            nh.from_array(np.array([0, heads, -1, size], np.int64), n + "_merged")]
                nodes += [N("Unsqueeze", [x, "two"], [n + "_5"]), N("Expand", [n + "_5", n + "_times"], [n + "_e"]),
                          N("Reshape", [n + "_e", n + "_merged"], [n + "_g"])]
            K, V = "k_g", "v_g"
        nodes += [N("Transpose", [K], ["kt"], perm=[0, 1, 3, 2]), N("MatMul", [Q, "kt"], ["s0"])]
        s = "s0"
        if scale:
            weights.append(scalar("scale", float(np.float16(1 / np.sqrt(depth)))))
            nodes.append(N("Mul", [s, "scale"], ["s1"]))
            s = "s1"
        if mask == "float":
            inputs.append(("m", D, ["b", 1, "s", "t"]))
            nodes.append(N("Add", [s, "m"], ["s2"]))
            s = "s2"
        if mask == "bool":
            inputs.append(("m", T.BOOL, ["b", 1, 1, "t"]))
            weights += [scalar("low", -np.inf), scalar("zero", 0.0)]
            nodes += [N("Where", ["m", "zero", "low"], ["bias"]), N("Add", [s, "bias"], ["s2"])]
            s = "s2"
        if causal is not None:  # bottom right
            I = lambda n, *v: nh.from_array(np.array(v, np.int64), n)  # noqa: E731,E741
            weights += [I("one", 1), I("i0", 0), nh.from_array(np.int64(0), "z"), nh.from_array(np.int64(1), "step"),
                        scalar("far", causal), scalar("near", 0.0)]
            axis = 1 if flat else 2
            nodes += [N("Shape", ["q"], ["sh"], start=axis, end=axis + 1), N("Shape", ["k"], ["th"], start=axis, end=axis + 1),
                      N("Squeeze", ["sh"], ["sn"]), N("Squeeze", ["th"], ["tn"]), N("Range", ["z", "sn", "step"], ["si"]),
                      N("Range", ["z", "tn", "step"], ["ti"]), N("Sub", ["tn", "sn"], ["past"]), N("Add", ["si", "past"], ["sp"]),
                      N("Unsqueeze", ["sp", "one"], ["sc"]), N("Unsqueeze", ["ti", "i0"], ["tc"]),
                      N("LessOrEqual", ["tc", "sc"], ["seen"]), N("Where", ["seen", "near", "far"], ["cb"]),
                      N("Add", [s, "cb"], ["s3"])]  # fmt: skip
            s = "s3"
        nodes.append(N("Softmax", [s], ["p0"], axis=-1))
        p = "p0"
        if guard:
            weights.append(scalar("nothing", 0.0))
            nodes += [N("IsNaN", ["p0"], ["bad"]), N("Where", ["bad", "nothing", "p0"], ["p1"])]
            p = "p1"
        nodes.append(N("MatMul", [p, V], ["o" if not flat else "o4"]))
        o = ["b", heads, rows, width]
        if flat:
            o = ["b", rows, heads * width]
            weights.append(nh.from_array(np.array([0, 0, heads * width], np.int64), "o_shape"))
            nodes += [N("Transpose", ["o4"], ["ot"], perm=[0, 2, 1, 3]), N("Reshape", ["ot", "o_shape"], ["o"])]
        value = lambda v: h.make_tensor_value_info(*v)  # noqa: E731
        graph = h.make_graph(nodes, name, list(map(value, inputs)), [value(("o", D, o))], weights)
        out[name] = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)

    def add_op(name, dtype, heads, kv, depth, causal):
        """ONNX's operator. Its causal mask begins at the first row and key."""
        D = {"f16": T.FLOAT16, "bf16": T.BFLOAT16, "f32": T.FLOAT}[dtype]
        value = lambda x, n, length: h.make_tensor_value_info(x, D, ["b", n, length, depth])  # noqa: E731
        inputs = [value("q", heads, "s"), value("k", kv, "t"), value("v", kv, "t")]
        graph = h.make_graph([N("Attention", ["q", "k", "v"], ["o"], is_causal=int(causal))], name, inputs, [value("o", heads, "s")])
        out[name] = h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=11)

    for dtype in ("f16", "bf16", "f32"):
        add_op(f"{dtype}_128_op", dtype, 16, 16, 128, False)
        add_op(f"{dtype}_128_op_causal", dtype, 16, 16, 128, True)
        add_op(f"{dtype}_64_op_causal", dtype, 12, 12, 64, True)
        add_op(f"{dtype}_128_grouped_op_causal", dtype, 32, 8, 128, True)
        low = -65504.0 if dtype == "f16" else -3.38e38
        add(f"{dtype}_64", dtype, 12, 12, 64, 64)
        add(f"{dtype}_128", dtype, 16, 16, 128, 128)
        add(f"{dtype}_128_causal", dtype, 16, 16, 128, 128, causal=-np.inf)
        add(f"{dtype}_64_causal", dtype, 12, 12, 64, 64, causal=low)
        for head in (64, 128):
            add(f"{dtype}_{head}_grouped", dtype, 32, 8, head, head)
            add(f"{dtype}_{head}_grouped_causal", dtype, 32, 8, head, head, causal=-np.inf)
            add(f"{dtype}_{head}_one", dtype, 12 if head == 64 else 16, 12 if head == 64 else 16, head, head, rows=1)
            add(f"{dtype}_{head}_grouped_one", dtype, 32, 8, head, head, rows=1)
        add(f"{dtype}_64_mask", dtype, 4, 4, 64, 64, mask="float")
        add(f"{dtype}_64_flat_bool_guard", dtype, 4, 4, 64, 64, mask="bool", guard=True, flat=True)
    add("f16_128_bool_guard_causal", "f16", 4, 2, 128, 128, mask="bool", guard=True, causal=-np.inf)
    for depth, width in [(16, 16), (33, 17), (40, 40), (72, 80), (80, 72), (96, 96), (160, 32), (192, 128), (256, 256)]:
        add(f"f16_{depth}x{width}", "f16", 2, 2, depth, width, scale=depth != 33)
    return out


def describe(name):
    """heads, kv heads, depth, width, mask, causal, flat: from a name"""
    parts = name.split("_")
    sizes = parts[1].split("x")
    depth, width = int(sizes[0]), int(sizes[-1])
    heads, kv = {"64": (12, 12), "128": (16, 16)}.get(parts[1], (2, 2))
    if "grouped" in parts:
        heads, kv = 32, 8
    if "mask" in parts or "bool" in parts:
        heads, kv = (4, 2) if "causal" in parts else (4, 4)
    return heads, kv, depth, width, "mask" if "mask" in parts else "bool" if "bool" in parts else "", "causal" in parts, "flat" in parts


def make(stridec, folder, names):
    import onnx

    os.makedirs(folder, exist_ok=True)
    for name, proto in forms().items():
        if names and name not in names:
            continue
        path = os.path.join(folder, name)
        onnx.save(proto, path + ".onnx")
        subprocess.run([stridec, "compile", path + ".onnx", "-o", path + ".so", "--target", "cuda", "--gpu", "sm_90a",
                        "--progress=none"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip


class Case:
    def __init__(self, torch, name, b, s, t, scale=1.0):
        heads, kv, depth, width, mask, causal, flat = describe(name)
        self.dims = heads, kv, depth, width, mask, causal, flat
        self.op = "_op" in name
        finite = -65504.0 if name.startswith("f16") else -3.38e38
        self.low = finite if name.endswith("_64_causal") else float("-inf")
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[name.split("_")[0]]
        r = lambda *shape: (torch.randn(*shape, device="cuda") * scale).to(dtype)  # noqa: E731
        if flat:
            self.inputs = [r(b, s, heads * depth), r(b, t, kv * depth), r(b, t, kv * width)]
            split = lambda x, n: x.view(b, x.shape[1], n, -1).transpose(1, 2)  # noqa: E731
            self.q, self.k, self.v = split(self.inputs[0], heads), split(self.inputs[1], kv), split(self.inputs[2], kv)
            self.out = torch.full((b, s, heads * width), float("nan"), device="cuda", dtype=dtype)
        else:
            self.inputs = [r(b, heads, s, depth), r(b, kv, t, depth), r(b, kv, t, width)]
            self.q, self.k, self.v = self.inputs
            self.out = torch.full((b, heads, s, width), float("nan"), device="cuda", dtype=dtype)
        self.bias = None
        if mask == "mask":
            self.bias = r(b, 1, s, t)
            self.inputs.append(self.bias)
        if mask == "bool":
            keep = torch.rand(b, 1, 1, t, device="cuda") > 0.3
            if b > 1:
                keep[-1] = False  # rows without any key
            self.inputs.append(keep)
            self.bias = torch.zeros(b, 1, 1, t, device="cuda").masked_fill(~keep, float("-inf")).expand(b, 1, s, t)
        self.b, self.s, self.t, self.torch = b, s, t, torch

    def reference(self):
        torch = self.torch
        heads, kv, depth, width, mask, causal, flat = self.dims
        k, v = (x.double().repeat_interleave(heads // kv, 1) for x in (self.k, self.v))
        x = self.q.double() @ k.transpose(-1, -2)
        if depth != 33:
            x = x * (1 / np.sqrt(depth) if self.op else float(np.float16(1 / np.sqrt(depth))))
        if self.bias is not None:
            x = x + self.bias.double()
        if causal:
            i, j = torch.arange(self.s, device="cuda")[:, None], torch.arange(self.t, device="cuda")
            hidden = j > i + (0 if self.op else self.t - self.s)
            x = (x.float() + torch.where(hidden, self.low, 0.0)).double()  # f32 decides what is left beside the lowest
        p = torch.softmax(x, -1)
        if mask == "bool":
            p = torch.nan_to_num(p, nan=0.0)
        o = p @ v
        return o.transpose(1, 2).reshape(self.out.shape) if flat else o


def check(folder, names):
    import torch

    from bench import Runner

    torch.manual_seed(0)
    wrong = 0
    for file in sorted(os.listdir(folder)):
        name = file[:-3]
        if not file.endswith(".so") or (names and name not in names):
            continue
        runner, text = Runner(os.path.join(folder, file)), []
        causal = describe(name)[5]
        for b, s, t in [(1, 1, 1), (2, 64, 64), (1, 128, 256), (2, 77, 77), (3, 5, 200), (1, 200, 333), (2, 129, 1025), (1, 1, 700),
                        (1, 200, 77), (3, 500, 700), (9, 300, 300), (1, 3, 9001), (5, 1, 4100)]:
            for scale in (1.0, 4.0):
                case = Case(torch, name, b, 1 if name.endswith("_one") else s, t, scale)
                runner.bind(case.inputs, [case.out])()
                torch.cuda.synchronize()
                want, got = case.reference(), case.out.double()
                bad = bool((want.isnan() != got.isnan()).any())
                want, got = want.nan_to_num(), got.nan_to_num()
                off = ((got - want).norm() / want.norm().clamp_min(1e-9)).item()
                # Scores of 16-bit models are rounded: by 2^-11 or 2^-8 of their size.
                spread = 6 if "33" in name else 1
                limit = {"f16": 3e-3, "bf16": 2.4e-2, "f32": 1e-6}[name.split("_")[0]] * scale * scale * spread
                bad = bad or not off < limit
                wrong += bad
                if bad or (s, t) in ((77, 77), (200, 333)):
                    text.append(f"{b}x{s}x{t}:{off:.0e}{' WRONG' if bad else ''}")
        print(f"{name:28} {' '.join(text)}", flush=True)
    print("all right" if not wrong else f"{wrong} WRONG", flush=True)
    return wrong


def interleaved_us(runs, rounds=11, row=1):
    """Medians; the runs take turns, so that they find the same clocks. `row`: so many one behind the other, as in a stream of
    work."""
    import torch

    times = [[] for _ in runs]
    for i in range(rounds + 2):
        for run, out in zip(runs, times):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(100000 * row)  # the launches are enqueued before the device gets to them
            start.record()
            for _ in range(row):
                run()
            end.record()
            torch.cuda.synchronize()
            if i >= 2:
                out.append(start.elapsed_time(end) * 1e3 / row)
    return [float(np.median(t)) for t in times]


def bench(folder, names):
    import torch

    from bench import Runner

    tokens = 32768
    shapes = {f"bf16_{head}{form}": [(tokens // s, s, s) for s in (512, 1024, 2048, 4096, 8192, 16384)]
              for head in (64, 128) for form in ("", "_causal", "_grouped", "_grouped_causal")}  # fmt: skip
    judged = set(shapes)
    for name in ("bf16_64_op_causal", "bf16_128_op", "bf16_128_op_causal", "bf16_128_grouped_op_causal"):
        shapes[name] = [(tokens // s, s, s) for s in (512, 2048, 8192)]
    for name in ("f32_64", "f32_64_causal", "f32_128", "f32_128_causal", "f32_64_grouped"):
        shapes[name] = [(tokens // 4 // s, s, s) for s in (512, 2048, 8192)] + [(32, 197, 197)]
    shapes["bf16_64_mask"] = [(32, 512, 512), (8, 2048, 2048)]
    shapes["bf16_64_flat_bool_guard"] = [(32, 512, 512), (8, 2048, 2048)]
    shapes["bf16_128_grouped_causal"] += [(2, 4000, 4000)]
    shapes["f16_256x256"] = [(16, 2048, 2048)]
    ratios = {}
    for name, sizes in shapes.items():
        path = os.path.join(folder, name + ".so")
        if (names and name not in names) or not os.path.exists(path):
            continue
        runner = Runner(path)
        for b, s, t in sizes:
            case = Case(torch, name, b, s, t)
            heads, kv, depth, width, mask, causal, flat = case.dims
            sdpa = torch.nn.functional.scaled_dot_product_attention
            bias = None if case.bias is None else case.bias.to(case.q.dtype)
            us, theirs = interleaved_us([
                runner.bind(case.inputs, [case.out]),
                lambda: sdpa(case.q, case.k, case.v, attn_mask=bias, is_causal=causal and s == t, enable_gqa=heads != kv)])
            flops = 2 * b * heads * s * t * (depth + width) * (0.5 if causal else 1)
            ratio = theirs / us
            if name in judged:
                ratios[f"{name} {b}x{s}x{t}"] = ratio
            print(f"{name:28} {b}x{s}x{t}: {us:9.1f} us {flops / us * 1e-6:6.0f} TFLOP/s, PyTorch {theirs:9.1f} us "
                  f"{flops / theirs * 1e-6:6.0f}, ratio {ratio:.2f}", flush=True)  # fmt: skip
            del case
    if ratios:
        worst = min(ratios, key=ratios.get)
        print(f"geometric mean of {len(ratios)}: {np.exp(np.mean(np.log(list(ratios.values())))):.3f}, "
              f"{sum(r < 1 for r in ratios.values())} under 1, worst {ratios[worst]:.2f} of {worst}")  # fmt: skip


def decode(folder, names):
    """A step of a decoder: K and V pass once. The copy moves as many bytes as a large one does in the same time."""
    import torch

    from bench import Runner

    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    rate = 2 * x.numel() / interleaved_us([lambda: y.copy_(x)])[0]
    del x, y
    print(f"a copy's rate: {rate * 1e-6:.2f} TB/s")
    forms = [f"bf16_{head}{form}" for head in (64, 128) for form in ("_grouped_one", "_one", "_grouped", "")]
    for name in forms:
        path = os.path.join(folder, name + ".so")
        if (names and name not in names) or not os.path.exists(path):
            continue
        runner = Runner(path)
        heads, kv, depth, width = describe(name)[:4]
        for b, t in [(1, 8192), (1, 16384), (1, 32768), (4, 8192), (4, 32768), (16, 8192), (64, 8192)]:
            bytes_read = b * kv * t * (depth + width) * 2
            cases = [Case(torch, name, b, 1, t) for _ in range(max(2, -(-(200 << 20) // bytes_read)))]  # more than the L2
            turns = [0, 0]

            def turn(which, runs):
                turns[which] += 1
                runs[turns[which] % len(runs)]()

            ours = [runner.bind(case.inputs, [case.out]) for case in cases]
            theirs = [lambda c=case: torch.nn.functional.scaled_dot_product_attention(c.q, c.k, c.v, enable_gqa=heads != kv)
                      for case in cases]  # fmt: skip
            us, peer = interleaved_us([lambda: turn(0, ours), lambda: turn(1, theirs)], 5, 16)
            print(f"{name:28} {b}x{t}: {us:9.1f} us {bytes_read / us * 1e-6:6.2f} TB/s, {bytes_read / us / rate:.2f} of a copy, "
                  f"PyTorch {peer:9.1f} us, ratio {peer / us:.2f}", flush=True)  # fmt: skip
            del cases, ours, theirs
    return 0


if __name__ == "__main__":
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "make":
        make(rest[0], rest[1], rest[2:])
    else:
        sys.exit({"check": check, "bench": bench, "decode": decode}[what](rest[0], rest[1:]))
