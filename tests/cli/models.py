"""Writes the small models that tests/cli works with into a folder: good ones, and one file for every way to be bad."""

import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def value(name, shape, dtype=F32):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, weights=(), opset=18, domains=()):
    graph = helper.make_graph(nodes, "test", inputs, outputs, [numpy_helper.from_array(w, n) for n, w in weights])
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="stridec tests")


def _weights(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def mlp():
    """y = relu(x @ w + b); p = x's rows where idx points; batch and k are symbols."""
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"], "dense/MatMul"),
            helper.make_node("Add", ["xw", "b"], ["h"], "dense/Add"),
            helper.make_node("Relu", ["h"], ["y"], "dense/Relu"),
        ],
        [value("x", ["batch", 4])],
        [value("y", ["batch", 8])],
        [("w", _weights(4, 8)), ("b", _weights(8))],
    )


def scaled():
    """y = relu((x @ w + b) * s), which is relu(x @ (w * s) + b * s)."""
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"], "dense/MatMul"),
            helper.make_node("Add", ["xw", "b"], ["h"], "dense/Add"),
            helper.make_node("Mul", ["h", "s"], ["n"], "dense/Mul"),
            helper.make_node("Relu", ["n"], ["y"], "dense/Relu"),
        ],
        [value("x", ["batch", 4])],
        [value("y", ["batch", 8])],
        [("w", _weights(4, 8)), ("b", _weights(8)), ("s", _weights(8))],
    )


def gather():
    """picked = table[index]; total = left + right, of which each may have one row or as many as the other."""
    return model(
        [
            helper.make_node("Gather", ["table", "index"], ["picked"], "pick/Gather", axis=0),
            helper.make_node("Add", ["left", "right"], ["total"], "sum/Add"),
        ],
        [
            value("table", ["rows", 4]),
            value("index", ["k"], I64),
            value("left", ["n", 2]),
            value("right", ["m", 2]),
        ],
        [value("picked", ["k", 4]), value("total", ["t", 2])],
    )


def tower(layers=24):
    """Many kernels that differ, so that compiling takes a while: for interruptions."""
    nodes, weights, last = [], [], "x"
    for i in range(layers):
        weights.append((f"w{i}", _weights(32 + i, 33 + i)))
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"], f"layer{i}/MatMul"))
        nodes.append(helper.make_node(("Tanh", "Sigmoid", "Erf", "Softplus")[i % 4], [f"m{i}"], [f"y{i}"], f"layer{i}/f"))
        last = f"y{i}"
    return model(nodes, [value("x", ["batch", 32])], [value(last, ["batch", 32 + layers])], weights)


def chain(*nodes, shape=("batch", 4), weights=(), **more):
    """A model of nodes that each read the one before."""
    made, last = [], "x"
    for i, (op, attributes) in enumerate(nodes):
        made.append(helper.make_node(op, [last], [f"t{i}"], f"block/{op}", **attributes))
        last = f"t{i}"
    return model(made, [value("x", list(shape))], [value(last, None)], weights, **more)


def _external(location, length=128):
    """mlp with its weight in another file: 4 x 8 floats at offset 0."""
    made = mlp()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "0"), ("length", str(length))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    return made


def bad_models():
    """name: model; each is refused."""
    add = helper.make_node
    cyclic = model(
        [
            add("Add", ["x", "c"], ["a"], "loop/Add"),
            add("Relu", ["a"], ["b"], "loop/Relu"),
            add("Neg", ["b"], ["c"], "loop/Neg"),
        ],
        [value("x", [4])],
        [value("c", [4])],
    )
    wrong_bytes = mlp()
    wrong_bytes.graph.initializer[0].raw_data = wrong_bytes.graph.initializer[0].raw_data[:100]
    negative = mlp()
    negative.graph.initializer[0].dims[0] = -4
    huge_weight = mlp()
    huge_weight.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]
    return {
        "unknown_op": chain(("Relu", {}), ("RotatedNMS", {"domain": "com.acme"}), domains=["com.acme"]),
        "two_unknown": chain(("Sparkle", {}), ("Relu", {}), ("RotatedNMS", {"domain": "com.acme"}), domains=["com.acme"]),
        "cyclic": cyclic,
        "matmul_mismatch": model(
            [add("MatMul", ["x", "w"], ["y"], "dense/MatMul")],
            [value("x", ["batch", 5])],
            [value("y", ["batch", 8])],
            [("w", _weights(4, 8))],
        ),
        "add_mismatch": model(
            [add("Add", ["x", "w"], ["y"], "bias/Add")], [value("x", [2, 3])], [value("y", [2, 3])], [("w", _weights(4))]
        ),
        "wrong_declared_output": model(
            [add("Relu", ["x"], ["y"], "act/Relu")], [value("x", [2, 3])], [value("y", [2, 4])]
        ),
        "type_mismatch": model(
            [add("Add", ["x", "i"], ["y"], "mix/Add")], [value("x", [4]), value("i", [4], I64)], [value("y", [4])]
        ),
        "overflowing_dims": model(
            [add("Relu", ["x"], ["y"], "act/Relu")], [value("x", [1 << 40, 1 << 40])], [value("y", [1 << 40, 1 << 40])]
        ),
        "overflowing_product": model(
            [add("Reshape", ["x", "shape"], ["y"], "flat/Reshape"), add("Expand", ["y", "wide"], ["z"], "wide/Expand")],
            [value("x", ["batch"])],
            [value("z", None)],
            [("shape", np.array([-1, 1, 1])), ("wide", np.array([1, 1 << 40, 1 << 40]))],
        ),
        "undefined_input": model(
            [add("Add", ["x", "ghost"], ["y"], "haunted/Add")], [value("x", [4])], [value("y", [4])]
        ),
        "defined_twice": model(
            [add("Relu", ["x"], ["y"], "first/Relu"), add("Neg", ["x"], ["y"], "second/Neg")],
            [value("x", [4])],
            [value("y", [4])],
        ),
        "output_not_made": model([add("Relu", ["x"], ["y"], "act/Relu")], [value("x", [4])], [value("nowhere", [4])]),
        "missing_attribute": chain(("Cast", {})),
        "wrong_attribute": chain(("Softmax", {"axis": "two"})),
        "axis_outside": chain(("Softmax", {"axis": 5})),
        "too_few_inputs": model([add("MatMul", ["x"], ["y"], "dense/MatMul")], [value("x", [4, 4])], [value("y", [4, 4])]),
        "opset_of_the_future": chain(("Relu", {}), opset=4000),
        "weight_cut_short": wrong_bytes,
        "weight_of_negative_size": negative,
        "weight_of_huge_size": huge_weight,
        "outside_folder": _external("../outside.bin"),
        "absolute_path": _external("/etc/hostname", 4),
        "symlink": _external("link.bin"),
        "data_cut_short": _external("short.bin"),
        "data_of_wrong_length": _external("whole.bin", 100),
        "data_missing": _external("missing.bin"),
    }


def bad_files(good):
    """name: bytes of files that are no models; `good` is the bytes of a model."""
    rng = np.random.default_rng(3)
    return {
        "empty.onnx": b"",
        "truncated.onnx": good[: len(good) * 2 // 3],
        "random.onnx": rng.integers(0, 256, 5000, np.uint8).tobytes(),
        "zeros.onnx": bytes(4096),
        "text.onnx": b"This is not the model you are looking for.\n" * 10,
        "picture.onnx": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(100),
        "archive.onnx": b"PK\x03\x04\x14\0\0\0\0\0" + bytes(100),
        "program.onnx": b"\x7fELF\x02\x01\x01\0" + bytes(100),
        "html.onnx": b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n",
        "lfs.onnx": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 438000000\n",
        "pickle.onnx": b"\x80\x02}q\0X\x05\0\0\0stateq\x01." + bytes(50),
    }


def write_all(folder):
    def path(*names):
        return os.path.join(folder, *names)

    def write(name, data):
        with open(path(name), "wb") as file:
            file.write(data)

    for name, made in {"mlp": mlp(), "scaled": scaled(), "gather": gather(), "tower": tower(), **bad_models()}.items():
        write(name + ".onnx", made.SerializeToString())
    for name, data in bad_files(mlp().SerializeToString()).items():
        write(name, data)
    weight = _weights(4, 8).tobytes()
    write("whole.bin", weight)
    write("short.bin", weight[:64])
    os.symlink("whole.bin", path("link.bin"))
    os.makedirs(path("folder.onnx"))
    os.makedirs(path("taken.so"))
    onnx.save(_external("whole.bin"), path("external.onnx"))
