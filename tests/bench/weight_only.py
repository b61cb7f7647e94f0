"""A decoder's step with weights of a few bits, against a copy of memory in the same race.

    python tests/bench/weight_only.py [--layers 25] [--bits 4] [--block 32] [--accuracy 0] [--past 128] [--threads 2] ...

A Llama-style model (RMS norm, rotary positions, grouped queries, gated linear units, cache as inputs) whose linear
layers are MatMulNBits with random numbers: by default one gigabyte of them with their scales. One token is decoded; every
weight is read once, so that the time is that of memory at best. Beside it stands the engine "copy": NumPy copies as many
bytes of a large array, on as many threads; its bandwidth counts bytes read and bytes written.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import types

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import arguments  # noqa: E402
import race  # noqa: E402

HIDDEN, HEADS, KEY_HEADS, HEAD, INNER, VOCABULARY = 2048, 32, 8, 64, 8192, 32000
COPIED = 256 << 20


class Writer:
    """Nodes and initializers of the model."""

    def __init__(self, bits, block, accuracy):
        self.bits, self.block, self.accuracy = bits, block, accuracy
        self.nodes, self.initializers, self.weight_bytes = [], [], 0
        self.random = np.random.default_rng(0)

    def constant(self, array):
        from onnx import numpy_helper

        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, kind, *inputs, count=1, name=None, **attributes):
        from onnx import helper

        outputs = [name or f"v{len(self.nodes)}"] if count == 1 else [f"v{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, **attributes))
        return outputs[0] if count == 1 else outputs

    def linear(self, x, depth, columns):
        blocks = depth // self.block
        numbers = self.random.integers(0, 256, (columns, blocks, self.block * self.bits // 8), np.uint8)
        scales = (self.random.random(columns * blocks, np.float32) - 0.5) * (0.3 / 2**self.bits / depth**0.5 * 12)
        self.weight_bytes += numbers.nbytes + scales.nbytes
        attributes = {"K": depth, "N": columns, "bits": self.bits, "block_size": self.block, "accuracy_level": self.accuracy}
        return self.node(
            "MatMulNBits", x, self.constant(numbers), self.constant(scales), domain="com.microsoft", **attributes
        )

    def norm(self, x):
        mean = self.node("ReduceMean", self.node("Mul", x, x), self.constant(np.int64([-1])))
        root = self.node("Sqrt", self.node("Add", mean, self.constant(np.float32(1e-5))))
        return self.node("Mul", self.node("Div", x, root), self.constant(np.ones(HIDDEN, np.float32)))

    def heads(self, x, count):
        shaped = self.node("Reshape", x, self.constant(np.int64([0, 0, count, HEAD])))
        return self.node("Transpose", shaped, perm=[0, 2, 1, 3])

    def rotated(self, x):
        low, high = self.node("Split", x, count=2, axis=-1, num_outputs=2)
        turned = self.node("Concat", self.node("Neg", high), low, axis=-1)
        return self.node("Add", self.node("Mul", x, "cos"), self.node("Mul", turned, "sin"))

    def grouped(self, x):
        """Every head of keys or values beside the queries that share it."""
        wide = self.node("Unsqueeze", x, self.constant(np.int64([2])))
        wide = self.node("Expand", wide, self.constant(np.int64([1, 1, HEADS // KEY_HEADS, 1, 1])))
        return self.node("Reshape", wide, self.constant(np.int64([0, HEADS, -1, HEAD])))

    def layer(self, x, number):
        y = self.norm(x)
        q = self.rotated(self.heads(self.linear(y, HIDDEN, HEADS * HEAD), HEADS))
        k = self.rotated(self.heads(self.linear(y, HIDDEN, KEY_HEADS * HEAD), KEY_HEADS))
        v = self.heads(self.linear(y, HIDDEN, KEY_HEADS * HEAD), KEY_HEADS)
        k = self.node("Concat", f"past_key_{number}", k, axis=2, name=f"key_{number}")
        v = self.node("Concat", f"past_value_{number}", v, axis=2, name=f"value_{number}")
        scores = self.node("MatMul", q, self.node("Transpose", self.grouped(k), perm=[0, 1, 3, 2]))
        shares = self.node("Softmax", self.node("Mul", scores, self.constant(np.float32(HEAD**-0.5))), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", shares, self.grouped(v)), perm=[0, 2, 1, 3])
        mixed = self.node("Reshape", mixed, self.constant(np.int64([0, 0, HEADS * HEAD])))
        x = self.node("Add", x, self.linear(mixed, HEADS * HEAD, HIDDEN))
        y = self.norm(x)
        gate = self.linear(y, HIDDEN, INNER)
        gate = self.node("Mul", gate, self.node("Sigmoid", gate))
        return self.node("Add", x, self.linear(self.node("Mul", gate, self.linear(y, HIDDEN, INNER)), INNER, HIDDEN))


def write_model(path, flags):
    """The bytes of its numbers and scales."""
    import onnx
    from onnx import TensorProto, helper

    writer = Writer(flags.bits, flags.block, flags.accuracy)
    x = "x"
    for number in range(flags.layers):
        x = writer.layer(x, number)
    writer.linear(writer.norm(x), HIDDEN, VOCABULARY)
    writer.nodes[-1].output[0] = "logits"

    def value(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    each = range(flags.layers)
    past = [value(f"past_{kind}_{i}", [1, KEY_HEADS, "past", HEAD]) for i in each for kind in ("key", "value")]
    made = [value(f"{kind}_{i}", [1, KEY_HEADS, "total", HEAD]) for i in each for kind in ("key", "value")]
    inputs = [value("x", [1, 1, HIDDEN]), value("cos", [1, 1, 1, HEAD]), value("sin", [1, 1, 1, HEAD]), *past]
    outputs = [value("logits", [1, 1, VOCABULARY]), *made]
    graph = helper.make_graph(writer.nodes, "decoder", inputs, outputs, writer.initializers)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return writer.weight_bytes


def inputs_of(flags):
    rng = np.random.default_rng(1)
    angles = flags.past * 10000 ** (-np.arange(HEAD) % (HEAD // 2) / (HEAD // 2))
    arrays = {"x": rng.standard_normal((1, 1, HIDDEN), np.float32)}
    arrays["cos"], arrays["sin"] = (np.float32(f(angles)).reshape(1, 1, 1, HEAD) for f in (np.cos, np.sin))
    for i in range(flags.layers):
        for kind in ("key", "value"):
            arrays[f"past_{kind}_{i}"] = rng.standard_normal((1, KEY_HEADS, flags.past, HEAD), np.float32)
    return arrays


def copy_engine(_files, _arrays, threads, _engine):
    source, target = np.ones(COPIED, np.uint8), np.zeros(COPIED, np.uint8)
    shares = list(zip(np.split(source, threads), np.split(target, threads)))

    def run():
        others = [threading.Thread(target=np.copyto, args=(to, share)) for share, to in shares[1:]]
        for other in others:
            other.start()
        np.copyto(shares[0][1], shares[0][0])
        for other in others:
            other.join()

    return run, dict


race.ENGINES["copy"] = copy_engine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=arguments.count, default=25)
    parser.add_argument("--bits", type=int, default=4, choices=[2, 4, 8])
    parser.add_argument("--block", type=int, default=32, choices=[16, 32, 64, 128, 256])
    parser.add_argument("--accuracy", type=int, default=0, choices=range(5), help="accuracy_level: 4 lets onnxruntime round x to bytes")
    parser.add_argument("--past", type=arguments.from_zero, default=128, help="tokens in the cache")
    parser.add_argument("--threads", type=arguments.count, default=2)
    parser.add_argument("--rounds", type=arguments.count, default=5)
    parser.add_argument("--seconds", type=arguments.positive, default=1.0)
    parser.add_argument("--engines", default="stridec,copy,onnxruntime")
    flags = parser.parse_args()
    engines = flags.engines.split(",")
    for engine in engines:
        race.check_engine(parser, engine)
    program, parent = arguments.stridec_program(parser), os.environ.get("build", "build")
    folder = tempfile.mkdtemp(prefix="weights-", dir=parent if os.path.isdir(parent) else None)
    try:
        names = {"model": "model.onnx", "library": "%s.so", "outputs": "%s.npz"}
        files = {what: os.path.join(folder, name) for what, name in names.items()}
        weights = write_model(files["model"], flags)
        if "stridec" in engines:
            command = [program, "compile", files["model"], "-o", files["library"] % "stridec", "--dim", "past=0..4096"]
            subprocess.run([*command, "--progress=none", "--quiet"], check=True)
        settings = types.SimpleNamespace(
            engines=engines, threads=flags.threads, rounds=flags.rounds, seconds=flags.seconds
        )
        result = race.race(files, inputs_of(flags), settings)["engines"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{flags.layers} layers, {flags.bits} bits, blocks of {flags.block}: {weights / 1e9:.2f} GB; {flags.threads} threads")
    moved = {engine: 2 * COPIED if engine == "copy" else weights for engine in engines}
    ratios = result.get("stridec", {}).get("ratios", {})
    for engine, entry in result.items():
        if "error" in entry:
            print(f"{engine:12} {entry['error']}")
            continue
        seconds = entry["median_seconds"]
        print(f"{engine:12} {seconds * 1e3:9.2f} ms {moved[engine] / seconds / 1e9:7.1f} GB/s", end="")
        if engine in ratios:
            share = moved["stridec"] / moved[engine] / ratios[engine]
            print(f"   stridec moves {share:.2f} of its bytes a second", end="")
        print(f"   others took {entry['others_share']:.0%}" if entry["others_share"] > race.FOREIGN_LIMIT else "")
    difference = result.get("stridec", {}).get("differences", {}).get("onnxruntime")
    if difference is not None:
        print(f"differs from onnxruntime by {difference:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
