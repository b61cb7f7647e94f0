"""Memory-bound operators of many kinds on the GPU of this machine, every size symbolic, beside a copy of as many bytes.

    python tests/gpu/operators.py STRIDEC [name...]
    python tests/gpu/operators.py STRIDEC --build FOLDER [name...]     # where there is no GPU and no PyTorch
    python tests/gpu/operators.py FOLDER[,FOLDER...] [name...]         # what was built so; further folders are other builds

Each operator is compiled once for all its sizes. Outputs are poisoned and compared with PyTorch's in f32 (bf16 results
differ by their rounding; indices are equal but where values are). Bytes are those of inputs and outputs, or what an operator
touches of them. Times are medians of rows of runs over rotated buffers (bench.py); eager: PyTorch's own kernels.
"""

import concurrent.futures
import math
import os
import subprocess
import sys
import tempfile

import bench
from bench import FOLDERS, ROTATE_BYTES, ROW, TOLERANCE, Runner, each, error, mean, medians_us

if FOLDERS and not os.path.isdir(FOLDERS[0]):
    import numpy as np
    from onnx import TensorProto as T
    from onnx import helper as h
    from onnx import numpy_helper as nh
if "--build" not in sys.argv:
    import torch

BF16, F32, I64 = "bfloat16", "float32", "int64"
ROWS = [(16384, 1024), (16384, 4096), (16387, 4095), (65537, 1023), (2048, 32000), (524288, 65)]
SMALL = [(128, 1024), (2048, 768), (32, 50257)]
CUBES = [(64, 1024, 512), (256, 256, 1024), (61, 255, 1023)]
IMAGES = [(32, 256, 56, 56), (32, 64, 112, 112), (7, 96, 55, 55)]


def node(kind, ins, out="y", **attributes):
    """Of names; what is not a name is a constant of it."""
    names, constants = [], []
    for i, value in enumerate(ins):
        if not isinstance(value, str):
            name = f"c{i}_{out}"
            array = np.array(value)
            constants.append(nh.from_array(array.astype(np.float32 if array.dtype.kind == "f" else np.int64), name))
            value = name
        names.append(value)
    return h.make_node(kind, names, out.split(), **attributes), constants


# name: (inputs as (name, type, its dims' names, beyond which indices are not), outputs as (name, type, rank), nodes, in PyTorch,
#        values of the dims, bytes or None)
def operators():
    F, x, xw = (torch.nn.functional if "torch" in globals() else None), ("x", BF16, "n c"), ("w", BF16, "c")
    y2, y1 = ("y", BF16, 2), ("y", BF16, 1)
    image, y4 = ("x", BF16, "n c h w"), ("y", BF16, 4)
    cube, y3 = ("x", BF16, "b s c"), ("y", BF16, 3)
    touched = lambda rows: lambda d: 4 * math.prod(d[k] for k in rows)  # noqa: E731
    return {
        "softmax": ([x], [y2], lambda: [node("Softmax", ["x"], axis=-1)], lambda x: F.softmax(x, -1), ROWS + SMALL, None),
        "logsoftmax": ([x], [y2], lambda: [node("LogSoftmax", ["x"], axis=-1)], lambda x: F.log_softmax(x, -1), ROWS, None),
        "layernorm": ([x, xw, ("b", BF16, "c")], [y2], lambda: [node("LayerNormalization", ["x", "w", "b"], axis=-1)],
                      lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5), ROWS + SMALL, None),
        "rmsnorm": ([x, xw], [y2], lambda: [node("RMSNormalization", ["x", "w"], axis=-1)],
                    lambda x, w: F.rms_norm(x, w.shape, w, 1e-5), ROWS + SMALL, None),
        "add": ([x, ("z", BF16, "n c")], [y2], lambda: [node("Add", ["x", "z"])], lambda x, z: x + z, ROWS + SMALL, None),
        "add row": ([x, xw], [y2], lambda: [node("Add", ["x", "w"])], lambda x, w: x + w, ROWS + SMALL, None),
        "add column": ([x, ("w", BF16, "n 1")], [y2], lambda: [node("Mul", ["x", "w"])], lambda x, w: x * w, ROWS, None),
        "gelu": ([x], [y2], lambda: [node("Gelu", ["x"])], lambda x: F.gelu(x), ROWS + SMALL, None),
        "swiglu": ([x], [y2], lambda: [node("Split", ["x"], "a b", axis=1, num_outputs=2), node("Sigmoid", ["a"], "s"),
                                       node("Mul", ["a", "s"], "t"), node("Mul", ["t", "b"])],
                   lambda x: F.silu(x[:, :x.shape[1] // 2]) * x[:, x.shape[1] // 2:],
                   [(16384, 2048), (16384, 8192), (8192, 11008 * 2)], None),
        "cast": ([x], [("y", F32, 2)], lambda: [node("Cast", ["x"], to=1)], lambda x: x.float(), ROWS[:4], None),
        "row sum": ([x], [y1], lambda: [node("ReduceSum", ["x", [1]], keepdims=0)], lambda x: x.sum(1), ROWS + SMALL, None),
        "row max": ([x], [y1], lambda: [node("ReduceMax", ["x", [1]], keepdims=0)], lambda x: x.amax(1), ROWS, None),
        "column sum": ([x], [y1], lambda: [node("ReduceSum", ["x", [0]], keepdims=0)], lambda x: x.sum(0), ROWS + SMALL, None),
        "column max": ([x], [y1], lambda: [node("ReduceMax", ["x", [0]], keepdims=0)], lambda x: x.amax(0), ROWS, None),
        "sum": ([x], [("y", BF16, 0)], lambda: [node("ReduceSum", ["x", [0, 1]], keepdims=0)], lambda x: x.sum(), ROWS, None),
        "argmax": ([x], [("y", I64, 1)], lambda: [node("ArgMax", ["x"], axis=1, keepdims=0)], lambda x: x.argmax(1),
                   ROWS + SMALL, None),
        "argmax column": ([x], [("y", I64, 1)], lambda: [node("ArgMax", ["x"], axis=0, keepdims=0)], lambda x: x.argmax(0),
                          ROWS, None),
        "cumsum": ([x], [y2], lambda: [node("CumSum", ["x", 1])], lambda x: x.cumsum(1), ROWS + SMALL, None),
        "cumsum column": ([x], [y2], lambda: [node("CumSum", ["x", 0])], lambda x: x.cumsum(0), ROWS[:3], None),
        "topk": ([x], [("y", BF16, 2), ("i", I64, 2)], lambda: [node("TopK", ["x", [8]], "y i", axis=-1)],
                 lambda x: x.topk(8, -1), [(16384, 256), (4096, 1024), (32, 50257)], None),
        "topk of 50": ([x], [("y", BF16, 2), ("i", I64, 2)], lambda: [node("TopK", ["x", [50]], "y i", axis=-1)],
                       lambda x: x.topk(50, -1), [(4096, 4096), (64, 128256)], None),
        "topk of 1000": ([x], [("y", BF16, 2), ("i", I64, 2)], lambda: [node("TopK", ["x", [1000]], "y i", axis=-1)],
                         lambda x: x.topk(1000, -1), [(16, 50257), (1, 268000)], None),
        "sort": ([x], [("y", BF16, 2), ("i", I64, 2)], lambda: [node("TopK", ["x", [256]], "y i", axis=-1)],
                 lambda x: x.sort(-1, descending=True), [(16384, 256)], None),
        "gather rows": ([x, ("i", I64, "m", "n")], [y2], lambda: [node("Gather", ["x", "i"], axis=0)], lambda x, i: x[i],
                        [(32000, 1024, 32768), (50257, 768, 32768), (30001, 1023, 32771)], touched("mc"), "ncm"),
        "gather elements": ([x, ("i", I64, "n m", "c")], [y2], lambda: [node("GatherElements", ["x", "i"], axis=1)],
                            lambda x, i: x.gather(1, i), [(16384, 1024, 1024)], lambda d: 12 * d["n"] * d["m"], "ncm"),
        "scatter rows": ([x, ("i", I64, "m 1", "n"), ("u", BF16, "m c")], [y2], lambda: [node("ScatterND", ["x", "i", "u"])],
                         lambda x, i, u: x.index_copy(0, i[:, 0], u), [(32768, 1024, 16384)],
                         lambda d: 4 * (d["n"] + d["m"]) * d["c"], "ncm"),
        "concat columns": ([x, ("z", BF16, "n d")], [y2], lambda: [node("Concat", ["x", "z"], axis=1)],
                           lambda x, z: torch.cat([x, z], 1), [(16384, 1024, 1024), (16384, 1023, 513), (65536, 512, 256)],
                           None, "ncd"),
        "concat rows": ([x, ("z", BF16, "d c")], [y2], lambda: [node("Concat", ["x", "z"], axis=0)],
                        lambda x, z: torch.cat([x, z], 0), [(16384, 1024, 8192), (16383, 1023, 8191)], None, "ncd"),
        "slice columns": ([x], [y2], lambda: [node("Slice", ["x", [128], [100000], [1]])], lambda x: x[:, 128:],
                          ROWS[:4], lambda d: 4 * d["n"] * (d["c"] - 128)),
        "pad": ([x], [y2], lambda: [node("Pad", ["x", [0, 3, 0, 5]])], lambda x: F.pad(x, (3, 5)),
                ROWS[:4], None),
        "transpose": ([x], [y2], lambda: [node("Transpose", ["x"], perm=[1, 0])], lambda x: x.t().contiguous(), ROWS, None),
        "heads": ([("x", BF16, "b s h d")], [y4], lambda: [node("Transpose", ["x"], perm=[0, 2, 1, 3])],
                  lambda x: x.transpose(1, 2).contiguous(), [(32, 1024, 16, 64), (16, 2048, 8, 128), (31, 127, 12, 80)], None,
                  "bshd"),
        "nchw to nhwc": ([image], [y4], lambda: [node("Transpose", ["x"], perm=[0, 2, 3, 1])],
                         lambda x: x.permute(0, 2, 3, 1).contiguous(), IMAGES, None),
        "middle softmax": ([cube], [y3], lambda: [node("Softmax", ["x"], axis=1)], lambda x: F.softmax(x, 1), CUBES, None),
        "middle sum": ([cube], [("y", BF16, 2)], lambda: [node("ReduceSum", ["x", [1]], keepdims=0)], lambda x: x.sum(1),
                       CUBES, None),
        "groupnorm": ([image, xw, ("b", BF16, "c")], [y4], lambda: [node("GroupNormalization", ["x", "w", "b"], num_groups=32)],
                      lambda x, w, b: F.group_norm(x, 32, w, b, 1e-5), IMAGES, None),
        "groupnorm of 256": ([("x", BF16, "n 256 h w"), ("w", BF16, "256"), ("b", BF16, "256")], [y4],
                             lambda: [node("GroupNormalization", ["x", "w", "b"], num_groups=32)],
                             lambda x, w, b: F.group_norm(x, 32, w, b, 1e-5), [(32, 56, 56), (8, 16, 16), (1, 64, 64), (7, 55, 55)],
                             None, "nhw"),
        "instancenorm": ([image, xw, ("b", BF16, "c")], [y4], lambda: [node("InstanceNormalization", ["x", "w", "b"])],
                         lambda x, w, b: F.instance_norm(x, None, None, w, b, True, 0.0, 1e-5), IMAGES, None),
        "batchnorm relu": ([image] + [(k, BF16, "c") for k in "wbmv"], [y4],
                           lambda: [node("Abs", ["v"], "a"), node("BatchNormalization", ["x", "w", "b", "m", "a"], "t"),
                                    node("Relu", ["t"])],
                           lambda x, w, b, m, v: F.relu(F.batch_norm(x, m, v.abs(), w, b)), IMAGES, None),
        "average pool": ([image], [y4], lambda: [node("GlobalAveragePool", ["x"])], lambda x: x.mean((2, 3), keepdim=True),
                         IMAGES, None),
        "max pool": ([image], [y4], lambda: [node("MaxPool", ["x"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)],
                     lambda x: F.max_pool2d(x, 3, 2, 1), IMAGES, None),
        "upsample": ([image], [y4], lambda: [node("Resize", ["x", "", [1.0, 1.0, 2.0, 2.0]], mode="nearest",
                                                  coordinate_transformation_mode="asymmetric", nearest_mode="floor")],
                     lambda x: F.interpolate(x, scale_factor=2), [(16, 128, 56, 56), (7, 96, 55, 55)], None),
        "bilinear": ([image], [y4], lambda: [node("Resize", ["x", "", [1.0, 1.0, 2.0, 2.0]], mode="linear")],
                     lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [(16, 128, 56, 56), (7, 96, 55, 55)], None),
        "rope": ([("x", BF16, "b h s 128"), ("k", BF16, "s 64"), ("l", BF16, "s 64")], [y4],
                 lambda: [node("Split", ["x"], "p q", axis=3, num_outputs=2), node("Mul", ["p", "k"], "pk"),
                          node("Mul", ["q", "l"], "ql"), node("Mul", ["p", "l"], "pl"), node("Mul", ["q", "k"], "qk"),
                          node("Sub", ["pk", "ql"], "a"), node("Add", ["pl", "qk"], "z"), node("Concat", ["a", "z"], axis=-1)],
                 lambda x, k, l: torch.cat([x[..., :64] * k - x[..., 64:] * l, x[..., :64] * l + x[..., 64:] * k], -1),
                 [(4, 32, 2048)], None, "bhs"),
        "where": ([x, ("z", BF16, "n c")], [y2], lambda: [node("Greater", ["x", "z"], "g"), node("Where", ["g", "x", "z"])],
                  lambda x, z: torch.where(x > z, x, z), ROWS[:4], None),
    }  # fmt: skip


def dims_of(entry, sizes):
    names = entry[6] if len(entry) > 6 else {2: "nc", 3: "bsc", 4: "nchw"}[len(sizes)]
    return dict(zip(names, sizes))


def shape_of(text, dims):
    return [int(d) if d.isdigit() else dims[d] for d in text.split()]


def library_of(name):
    return name.replace(" ", "_") + ".so"


def build(stridec, folder, wanted):
    types = {BF16: T.BFLOAT16, F32: T.FLOAT, I64: T.INT64}

    def one(name):
        ins, outs, nodes = operators()[name][:3]
        made, constants = [], []
        for n, c in nodes():
            made.append(n)
            constants += c
        graph = h.make_graph(
            made, "g",
            [h.make_tensor_value_info(i[0], types[i[1]], [int(d) if d.isdigit() else d for d in i[2].split()]) for i in ins],
            [h.make_tensor_value_info(n, types[t], [None] * rank) for n, t, rank in outs], constants)  # fmt: skip
        import onnx

        path = os.path.join(folder, library_of(name))
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=11), path + ".onnx")
        done = subprocess.run([stridec, "compile", path + ".onnx", "-o", path, "--target", "cuda", "--gpu", "sm_90a",
                               "--progress=none"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
        if done.returncode:
            print(f"  {name} does not compile: {done.stderr.strip()[:300]}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(one, [name for name in operators() if not wanted or name in wanted]))


def agree(got, want, dtype, x):
    """An error; indices may differ where what they point at is equal."""
    if dtype != I64:
        return error(got, want)
    if torch.equal(got, want):
        return 0.0
    axis = 0 if got.dim() == 1 and got.shape[0] == x.shape[1] else 1
    pick = lambda i: x.gather(axis, i.unsqueeze(axis) if i.dim() < x.dim() else i)  # noqa: E731
    return 0.0 if 0 <= got.min() and got.max() < x.shape[axis] and torch.equal(pick(got), pick(want)) else 1.0


def measure(folders, name, shares):
    entry = operators()[name]
    ins, outs, _, function, cases, moved = entry[:6]
    runners = {f: Runner(os.path.join(f, library_of(name))) for f in folders if os.path.exists(os.path.join(f, library_of(name)))}
    for sizes in cases:
        dims = dims_of(entry, sizes)

        def tensors():
            out = []
            for _, dtype, shape, *limit in ins:
                dims_here = shape_of(shape, dims)
                if limit and len(dims_here) > 1 and dims_here[1] == 1 or limit and len(dims_here) == 1:
                    out.append(torch.randperm(max(dims[limit[0]], dims_here[0]), device="cuda")[:dims_here[0]]
                               .remainder(dims[limit[0]]).view(dims_here))  # fmt: skip
                elif limit:
                    out.append(torch.randint(0, dims[limit[0]], dims_here, device="cuda"))
                else:
                    out.append(torch.randn(dims_here, device="cuda", dtype=getattr(torch, dtype)))
            return out

        sample = tensors()
        tuples = lambda v: list(v) if isinstance(v, (tuple, list)) else [v]  # noqa: E731
        want = tuples(function(*[t.float() if t.is_floating_point() else t for t in sample]))
        size = sum(t.numel() * t.element_size() for t in sample)
        size += sum(w.numel() * getattr(torch, o[1]).itemsize for w, o in zip(want, outs))
        count = max(2, ROTATE_BYTES // size)
        sets = [sample] + [tensors() for _ in range(min(count, 12) - 1)]
        moves = moved(dims) if moved else size
        a = [torch.randn(moves // 4, device="cuda").bfloat16() for _ in range(min(count, 8))]
        b = [torch.empty_like(v) for v in a]
        contestants = {"copy": [lambda x=x, y=y: y.copy_(x) for x, y in zip(a, b)],
                       "eager": [lambda s=s: function(*s) for s in sets]}  # fmt: skip
        kept, text = [], f"  {name} {'x'.join(map(str, sizes))}"
        for folder, runner in runners.items():
            made = [[torch.full(w.shape, -1 if o[1] == I64 else float("nan"), device="cuda", dtype=getattr(torch, o[1]))
                     for w, o in zip(want, outs)] for _ in sets]  # fmt: skip
            runs = [runner.bind(s, m) for s, m in zip(sets, made)]
            runs[0]()
            contestants[folder] = runs
            worst = max(agree(m, w, o[1], sample[0]) for m, w, o in zip(made[0], want, outs))
            kept.append((made, worst))
        times = medians_us(contestants, max(8, ROW * 2**27 // max(2**27, size)), 3)
        text = f"{text:34} {moves / 1e6:7.1f} MB copy {moves / times['copy'] / 1e6:5.2f} TB/s;"
        for folder, (_, worst) in zip(runners, kept):
            share = times["copy"] / times[folder]
            text += f" {times[folder]:7.1f} us {share:4.2f} of copy{'' if worst < 2 * TOLERANCE else f'  WRONG {worst:.1e}'};"
            if folder == folders[0]:
                shares.append((share, f"{name} {'x'.join(map(str, sizes))}"))
        print(text + f" eager {times['copy'] / times['eager']:4.2f}", flush=True)


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    if rest[:1] == ["--build"]:
        os.makedirs(rest[1], exist_ok=True)
        return build(what, rest[1], rest[2:])
    with tempfile.TemporaryDirectory() as made:
        folders = FOLDERS
        if not os.path.isdir(folders[0]):
            build(what, made, rest)
            folders = [made]
        shares = []
        each([name for name in operators() if not rest or name in rest], lambda name: measure(folders, name, shares))
        if shares:
            print(f"share of copy {mean([v for v, _ in shares]):.2f}, at worst:")
            for share, case in sorted(shares)[:12]:
                print(f"  {share:4.2f} {case}")


if __name__ == "__main__":
    main()
