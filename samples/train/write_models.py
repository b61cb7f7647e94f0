"""Writes the models that the samples train: python write_models.py FOLDER

gpt.onnx: a decoder of two layers over bytes. resnet.onnx: a residual network for small images. lstm.onnx: a recurrent network for
sequences. Their weights are random; stridec needs nothing but the files. A model from PyTorch does as well.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Collects nodes and weights by name."""

    def __init__(self, seed):
        self.nodes, self.weights, self.random, self.count = [], [], np.random.default_rng(seed), 0

    def add(self, op, inputs, **attributes):
        self.count += 1
        self.nodes.append(helper.make_node(op, inputs, [f"v{self.count}"], **attributes))
        return f"v{self.count}"

    def constant(self, value):
        """A value that is not trained."""
        return self.add("Constant", [], value=numpy_helper.from_array(np.asarray(value), ""))

    def weight(self, name, shape, scale=None, fill=None):
        value = np.full(shape, fill) if fill is not None else self.random.standard_normal(shape) * scale
        self.weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def linear(self, x, name, size_in, size_out):
        y = self.add("MatMul", [x, self.weight(f"{name}.weight", (size_in, size_out), size_in**-0.5)])
        return self.add("Add", [y, self.weight(f"{name}.bias", (size_out,), fill=0)])

    def save(self, path, inputs, output, shape):
        self.nodes.append(helper.make_node("Identity", [output], ["y"]))
        given = [helper.make_tensor_value_info(name, kind, dims) for name, kind, dims in inputs]
        results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, path.stem, given, results, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def write_gpt(path, length=64, width=64, heads=4, layers=2):
    net = Net(1)

    def norm(x, name):
        scale, bias = net.weight(f"{name}.weight", (width,), fill=1), net.weight(f"{name}.bias", (width,), fill=0)
        return net.add("LayerNormalization", [x, scale, bias], axis=-1)

    mask = net.constant(np.triu(np.full((length, length), -1e9, np.float32), 1))
    x = net.add("Gather", [net.weight("embedding.weight", (256, width), 0.02), "tokens"])
    x = net.add("Add", [x, net.weight("position.weight", (length, width), 0.02)])
    for layer in range(layers):
        name = f"layer{layer}"
        h = norm(x, f"{name}.norm1")
        parts = []
        for part in ("query", "key", "value"):
            each = net.linear(h, f"{name}.{part}", width, width)
            each = net.add("Reshape", [each, net.constant([0, length, heads, width // heads])])
            parts.append(net.add("Transpose", [each], perm=[0, 2, 3, 1] if part == "key" else [0, 2, 1, 3]))
        scores = net.add("Mul", [net.add("MatMul", parts[:2]), net.constant(np.float32((width // heads) ** -0.5))])
        shares = net.add("Softmax", [net.add("Add", [scores, mask])], axis=-1)
        mixed = net.add("Transpose", [net.add("MatMul", [shares, parts[2]])], perm=[0, 2, 1, 3])
        mixed = net.add("Reshape", [mixed, net.constant([0, length, width])])
        x = net.add("Add", [x, net.linear(mixed, f"{name}.out", width, width)])
        h = net.add("Relu", [net.linear(norm(x, f"{name}.norm2"), f"{name}.up", width, 4 * width)])
        x = net.add("Add", [x, net.linear(h, f"{name}.down", 4 * width, width)])
    logits = net.linear(norm(x, "norm"), "head", width, 256)
    net.save(path, [("tokens", TensorProto.INT64, ["batch", length])], logits, ["batch", length, 256])


def write_resnet(path, classes=4):
    net = Net(2)

    def conv(x, name, size_in, size_out, kernel=3, stride=1):
        weight = net.weight(f"{name}.conv.weight", (size_out, size_in, kernel, kernel), (2 / (size_in * kernel**2)) ** 0.5)
        x = net.add("Conv", [x, weight], strides=[stride] * 2, pads=[kernel // 2] * 4, kernel_shape=[kernel] * 2)
        fills = {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1}
        norm = [net.weight(f"{name}.norm.{part}", (size_out,), fill=fill) for part, fill in fills.items()]
        return net.add("BatchNormalization", [x, *norm])

    x = net.add("Relu", [conv("image", "stem", 3, 16)])
    size = 16
    for block, (size_out, stride) in enumerate([(16, 1), (32, 2), (64, 2)]):
        name = f"block{block}"
        h = net.add("Relu", [conv(x, f"{name}.first", size, size_out, stride=stride)])
        h = conv(h, f"{name}.second", size_out, size_out)
        if stride > 1:
            x = conv(x, f"{name}.shortcut", size, size_out, kernel=1, stride=stride)
        x, size = net.add("Relu", [net.add("Add", [x, h])]), size_out
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x])])
    net.save(path, [("image", TensorProto.FLOAT, ["batch", 3, 24, 24])], net.linear(x, "head", size, classes), ["batch", classes])


def write_lstm(path, length=32, width=32):
    net = Net(3)
    weights = [net.weight("lstm.w", (1, 4 * width, 2), 0.5), net.weight("lstm.r", (1, 4 * width, width), width**-0.5),
               net.weight("lstm.b", (1, 8 * width), fill=0)]  # fmt: skip
    steps = net.add("Transpose", ["sequence"], perm=[1, 0, 2])
    net.nodes.append(helper.make_node("LSTM", [steps, *weights], ["", "last"], hidden_size=width))
    last = net.add("Squeeze", ["last", net.constant([0])])
    net.save(path, [("sequence", TensorProto.FLOAT, ["batch", length, 2])], net.linear(last, "head", width, 1), ["batch", 1])


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_gpt(folder / "gpt.onnx")
    write_resnet(folder / "resnet.onnx")
    write_lstm(folder / "lstm.onnx")


main()
