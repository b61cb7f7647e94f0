"""The decode step of Llama-3.2-1B's shape (bf16, a cache of 2,048 slots for each sequence of the batch) on the GPU of this machine, beside torch.compile.

    python tests/gpu/decode.py STRIDEC [--layers 16] [--batch 1] [--position 1024] [--folder FOLDER] [--flags "..."]
    python tests/gpu/decode.py --model FILE.onnx [--layers 2]           # writes the model alone; no GPU, no PyTorch needed

One step takes a token of each sequence and its position, writes its keys and values into the caches (TensorScatter) and gives logits. Caches
are states of the artifact. Weights are random bf16. Logits are compared with PyTorch in f32 (Frobenius norm), over several
steps: a cache that is not kept, or written at the wrong place, shows in the second.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

HIDDEN, HEADS, KV, HEAD, FFN, VOCABULARY, THETA = 2048, 32, 8, 64, 8192, 128256, 500000.0
EPSILON = 1e-5


def shapes(layers, vocabulary):
    """name: (shape, standard deviation, mean) of every weight, in the file's order"""
    out = {"embedding": ((vocabulary, HIDDEN), 1.0, 0), "norm": ((HIDDEN,), 0.1, 1), "head": ((HIDDEN, vocabulary), 0.02, 0)}
    for i in range(layers):
        out |= {f"q{i}": ((HIDDEN, HEADS * HEAD), 0.03, 0), f"k{i}": ((HIDDEN, KV * HEAD), 0.03, 0), f"v{i}": ((HIDDEN, KV * HEAD), 0.03, 0),
                f"o{i}": ((HEADS * HEAD, HIDDEN), 0.02, 0), f"gate{i}": ((HIDDEN, FFN), 0.02, 0), f"up{i}": ((HIDDEN, FFN), 0.02, 0),
                f"down{i}": ((FFN, HIDDEN), 0.02, 0), f"norm1_{i}": ((HIDDEN,), 0.1, 1), f"norm2_{i}": ((HIDDEN,), 0.1, 1)}  # fmt: skip
    return out


def make_model(path, layers, slots, vocabulary, weights, batch=1):
    """The model's file; `weights` gives bf16 bytes by name, shape, deviation and mean."""
    import onnx
    from onnx import TensorProto as T
    from onnx import helper as h
    from onnx import numpy_helper as nh

    nodes, tensors, made = [], [], 0

    def node(op, *inputs, outputs=1, name=None, **attributes):
        nonlocal made
        made += 1
        names = [name or f"t{made}"] if outputs == 1 else [f"t{made}_{i}" for i in range(outputs)]
        nodes.append(h.make_node(op, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(name, array):
        tensors.append(nh.from_array(array, name))
        return name

    offset = 0
    with open(path + ".data", "wb") as data:
        for name, (shape, deviation, mean) in shapes(layers, vocabulary).items():
            tensor = onnx.TensorProto(name=name, data_type=T.BFLOAT16, dims=shape, data_location=T.EXTERNAL)
            length = 2 * int(np.prod(shape))
            for key, value in {"location": os.path.basename(path) + ".data", "offset": offset, "length": length}.items():
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            data.write(weights(name, shape, deviation, mean))
            offset += length
    cos, sin = rope(slots)
    for name, table in (("cos", cos), ("sin", sin)):
        tensors.append(h.make_tensor(name, T.BFLOAT16, table.shape, table.astype(np.float32).ravel()))
    constant("one", np.array([1], np.int64))
    constant("heads_q", np.array([batch, 1, HEADS, HEAD], np.int64))
    constant("heads_kv", np.array([batch, 1, KV, HEAD], np.int64))
    constant("flat", np.array([batch, 1, HEADS * HEAD], np.int64))
    constant("place", np.array([batch, 1], np.int64))

    ids = node("Reshape", "position", "place")
    length = node("Add", "position", "one")
    x = node("Gather", "embedding", "token")
    outputs = []
    inputs = [h.make_tensor_value_info("token", T.INT64, [batch, 1]), h.make_tensor_value_info("position", T.INT64, [batch])]
    cache = [batch, KV, slots, HEAD]
    for i in range(layers):
        n = node("RMSNormalization", x, f"norm1_{i}", epsilon=EPSILON, axis=-1)
        q, k, v = (node("Transpose", node("Reshape", node("MatMul", n, f"{w}{i}"), shape), perm=[0, 2, 1, 3])
                   for w, shape in (("q", "heads_q"), ("k", "heads_kv"), ("v", "heads_kv")))  # fmt: skip
        q, k = (node("RotaryEmbedding", t, "cos", "sin", ids) for t in (q, k))
        present = []
        for what, new in (("key", k), ("value", v)):
            inputs.append(h.make_tensor_value_info(f"past_{what}_{i}", T.BFLOAT16, cache))
            outputs.append(h.make_tensor_value_info(f"present_{what}_{i}", T.BFLOAT16, cache))
            present.append(node("TensorScatter", f"past_{what}_{i}", new, "position", axis=2, name=f"present_{what}_{i}"))
        a = node("Attention", q, *present, "", "", "", length)
        a = node("Reshape", node("Transpose", a, perm=[0, 2, 1, 3]), "flat")
        x = node("Add", x, node("MatMul", a, f"o{i}"))
        n = node("RMSNormalization", x, f"norm2_{i}", epsilon=EPSILON, axis=-1)
        gate, up = node("MatMul", n, f"gate{i}"), node("MatMul", n, f"up{i}")
        x = node("Add", x, node("MatMul", node("Mul", node("Mul", gate, node("Sigmoid", gate)), up), f"down{i}"))
    n = node("RMSNormalization", x, "norm", epsilon=EPSILON, axis=-1)
    node("MatMul", n, "head", name="logits")
    outputs.insert(0, h.make_tensor_value_info("logits", T.BFLOAT16, [batch, 1, vocabulary]))
    graph = h.make_graph(nodes, "llama_1b_decode", inputs, outputs, tensors)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 24)], ir_version=11), path)


def rope(slots):
    angles = np.arange(slots)[:, None] * THETA ** (-np.arange(0, HEAD, 2) / HEAD)
    return np.cos(angles), np.sin(angles)


def random_bytes(name, shape, deviation, mean):
    """Without PyTorch: a block of numbers, again and again."""
    block = np.random.default_rng(len(name)).standard_normal(65537).astype(np.float32) * deviation + mean
    return np.resize((block.view(np.uint32) >> 16).astype(np.uint16), int(np.prod(shape))).tobytes()


def compile_command(stridec, path, library, flags):
    return [stridec, "compile", path, "-o", library, "--target", "cuda", "--gpu", "sm_90a", "--mode", "reduce-overhead",
            "--state", "past_key_*=present_key_*", "--state", "past_value_*=present_value_*",
            "--progress=none", "--quiet", *flags.split()]  # fmt: skip


def step_of(torch, weights, layers, position, caches, dtype):
    """The step in PyTorch, as torch.compile gets it: arithmetic in dtype, norms and softmax in f32. Caches change in place."""
    F = torch.nn.functional
    w = weights
    cos, sin = w["cos"], w["sin"]

    def norm(x, scale):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPSILON)).to(dtype) * scale

    def rotate(x, c, s):
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    def step(token, position):
        c, s = cos[position], sin[position]
        x = w["embedding"][token]
        mask = torch.arange(caches[0][0].shape[2], device=token.device)[None, None, None] <= position
        for i in range(layers):
            n = norm(x, w[f"norm1_{i}"])
            q, k, v = ((n @ w[f"{name}{i}"]).view(len(token), 1, -1, HEAD).transpose(1, 2) for name in "qkv")
            q, k = rotate(q, c, s), rotate(k, c, s)
            keys, values = caches[i]
            keys.index_copy_(2, position, k)
            values.index_copy_(2, position, v)
            a = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
            x = x + a.transpose(1, 2).reshape(len(token), 1, -1) @ w[f"o{i}"]
            n = norm(x, w[f"norm2_{i}"])
            x = x + (F.silu(n @ w[f"gate{i}"]) * (n @ w[f"up{i}"])) @ w[f"down{i}"]
        return norm(x, w["norm"]) @ w["head"]

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stridec", nargs="?")
    parser.add_argument("--model", help="write this file and no more")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--slots", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    parser.add_argument("--position", type=int, default=1024)
    parser.add_argument("--folder", help="keeps the files")
    parser.add_argument("--flags", default="", help="more flags of stridec compile")
    parser.add_argument("--no-peer", action="store_true", help="without torch.compile")
    flags = parser.parse_args()
    if flags.model:
        return make_model(flags.model, flags.layers, flags.slots, flags.vocabulary, random_bytes, flags.batch)
    with tempfile.TemporaryDirectory() as made:
        run(flags, flags.folder or made)


def run(flags, folder):
    import torch

    from bench import Runner, error, median_us

    os.makedirs(folder, exist_ok=True)
    path, library = os.path.join(folder, "decode.onnx"), os.path.join(folder, "decode.so")
    torch.manual_seed(0)
    weights = {}

    def random(name, shape, deviation, mean):
        weights[name] = torch.randn(shape, dtype=torch.bfloat16, device="cuda") * deviation + mean
        return memoryview(weights[name].cpu().view(torch.uint8).numpy()).cast("B")

    start = time.perf_counter()
    make_model(path, flags.layers, flags.slots, flags.vocabulary, random, flags.batch)
    print(f"model written in {time.perf_counter() - start:.1f} s", flush=True)
    start = time.perf_counter()
    subprocess.run(compile_command(flags.stridec, path, library, flags.flags), check=True, stdout=subprocess.DEVNULL)
    print(f"compiled in {time.perf_counter() - start:.1f} s", flush=True)

    for name, table in zip(("cos", "sin"), rope(flags.slots)):
        weights[name] = torch.tensor(table, dtype=torch.bfloat16, device="cuda")
    runner = Runner(library)
    states = states_of(runner)
    tokens = [torch.arange(first, first + flags.batch, device="cuda")[:, None] for first in (4242 % (flags.vocabulary // 2), 17, 99)]
    initial = {name: torch.randn_like(state) for name, state in states.items()}
    for name, state in states.items():
        state.copy_(initial[name])
    out = torch.full((flags.batch, 1, flags.vocabulary), float("nan"), dtype=torch.bfloat16, device="cuda")

    def fresh(dtype):
        return [[initial[f"past_{what}_{i}"].to(dtype, copy=True) for what in ("key", "value")] for i in range(flags.layers)]

    def steps(call, results):
        for i, token in enumerate(tokens):
            results.append(call(token, torch.tensor([flags.position + i], device="cuda")).float().clone())

    with torch.no_grad():
        exact, narrow, ours = [], [], []
        wide = {name: w.float() for name, w in weights.items()}
        steps(step_of(torch, wide, flags.layers, flags.position, fresh(torch.float32), torch.float32), exact)
        del wide
        eager = step_of(torch, weights, flags.layers, flags.position, fresh(torch.bfloat16), torch.bfloat16)
        steps(eager, narrow)

        def call(token, position):
            out.fill_(float("nan"))
            runner.bind([token, position.repeat(flags.batch)], [out])()
            return out

        steps(call, ours)
        for i in range(len(tokens)):
            off, peer = error(ours[i], exact[i]), error(narrow[i], exact[i])
            print(f"step {i}: error {off:.1e}, PyTorch in bf16 {peer:.1e}{'' if off < max(5e-2, 1.5 * peer) else '  WRONG'}", flush=True)
        position = torch.tensor([flags.position], device="cuda")
        places = position.repeat(flags.batch)
        us = median_us([runner.bind([tokens[0], places], [out])], 200)
        read = 2 * sum(w.numel() for name, w in weights.items() if name != "embedding")
        read += 4 * KV * HEAD * flags.position * flags.layers * flags.batch
        print(f"stridec reduce-overhead {us / 1e3:8.3f} ms, {read / us / 1e6:.2f} TB/s of weights and cache", flush=True)
        if not flags.no_peer:
            torch._dynamo.reset()
            caches = fresh(torch.bfloat16)
            eager = step_of(torch, weights, flags.layers, flags.position, caches, torch.bfloat16)
            for t in [*weights.values(), *(t for pair in caches for t in pair)]:  # as parameters are: not copied for a graph
                torch._dynamo.mark_static_address(t)
            compiled = torch.compile(eager, mode="reduce-overhead")
            theirs = median_us([lambda: compiled(tokens[0], position)], 100)
            print(f"torch.compile           {theirs / 1e3:8.3f} ms, {theirs / us:.2f} times stridec's", flush=True)
    profile(runner.bind([tokens[0], places], [out]))


class Memory:
    """Device memory as PyTorch takes it."""

    def __init__(self, pointer, shape):
        self.__cuda_array_interface__ = {"data": (pointer, False), "shape": shape, "typestr": "<i2", "version": 3}


def states_of(runner):
    """name: the state's memory as a tensor"""
    import ctypes as c

    import torch
    from bench import s

    out = {}
    for i, value in enumerate(runner.model.states):
        view = s._Tensor()
        if runner.model._api.context_state(runner.handle, i, c.byref(view)):
            raise s.Error(runner.model._api.context_error(runner.handle).decode())
        assert view.device.type == 2, "the state is not on the device"
        shape = tuple(view.shape[d] for d in range(view.ndim))
        out[value.name] = torch.as_tensor(Memory(view.data, shape), device="cuda").view(torch.bfloat16)
    return out


def profile(run):
    """Kernels of one step in their order, as the driver's profiler sees them: the first layers' and the last ones'."""
    import torch
    from torch.profiler import ProfilerActivity

    try:
        with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as seen:
            run()
            torch.cuda.synchronize()
    except RuntimeError as problem:
        return print(f"no profile: {problem}")
    kernels = sorted((e for e in seen.events() if e.name.startswith("k_")), key=lambda e: e.time_range.start)
    if not kernels:
        return print("the profiler saw no kernel")
    start = kernels[0].time_range.start
    print(f"one step under the profiler: {len(kernels)} kernels, {kernels[-1].time_range.end - start:.1f} us")
    for i, e in enumerate(kernels):
        if i < 16 or i >= len(kernels) - 3:
            print(f"  {i:4} at {e.time_range.start - start:8.1f} for {e.time_range.end - e.time_range.start:7.1f} us  {e.name[:32]}")


if __name__ == "__main__":
    sys.exit(main())
