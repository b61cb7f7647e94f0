"""What a user of `stridec export` sees: the model file with trained weights."""

import json
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from command import CASES, TRAIN, states


def outputs(path, x):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def structure(path):
    """The model without the data of its tensors."""
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for field in ("raw_data", "float_data", "int32_data", "external_data", "data_location"):
            tensor.ClearField(field)
    return model


def write_safetensors(path, tensors):
    header, at, names = {}, 0, {"float32": "F32", "float16": "F16", "int64": "I64", "float64": "F64"}
    for name, array in tensors.items():
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in tensors.values()))


def train_and_export(c):
    """Convolutions with batch normalization: the exported file computes what `predict` does, also the averaged weights."""
    random = np.random.default_rng(1)
    np.save(c.work / "image.npy", random.standard_normal((24, 3, 13, 11)).astype(np.float32))
    np.save(c.work / "class.npy", random.integers(0, 4, 24))
    model = CASES / "residual.onnx"
    for name, extra in (("plain", ""), ("average", ",ema=0.7")):
        c.works(f"compile {name}", "compile", model, "-o", f"{name}.so", "-q", "--train", TRAIN + extra)
        c.works(f"train {name}", "train", f"{name}.so", "--data", "x0=image.npy", "--data", "t=class.npy", "--batch", 6, "--steps", 8,
                "--save", f"{name}.safetensors")  # fmt: skip
        report = json.loads(c.works(f"export {name}", "export", model, "--state", f"{name}.safetensors", "-o", f"{name}.onnx",
                                    "--format", "json"))  # fmt: skip
        c.expect(f"report {name}", len(report["replaced"]) == 13 and report["averages"] == (9 if extra else 0), str(report))
        context = c.stridec.Model(str(c.work / f"{name}.so")).context()
        for state, value in states(c, f"{name}.safetensors").items():
            context.write_state(state, value)
        x = np.load(c.work / "image.npy")[:5]
        want = np.asarray(context.run(x, function="predict")[0])
        far = np.abs(outputs(c.work / f"{name}.onnx", x) - want).max()
        c.expect(f"predict {name}", far < 1e-5 and np.abs(outputs(model, x) - want).max() > 1e-2, f"{far}")
        c.expect(f"the rest {name}", structure(c.work / f"{name}.onnx") == structure(model))
    c.works("weights", "export", model, "--state", "average.safetensors", "-o", "raw.onnx", "--without-averages")
    raw = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(c.work / "raw.onnx").graph.initializer}
    saved = states(c, "average.safetensors")
    c.expect("without averages", all((raw[name] == saved[name]).all() for name in raw if name in saved))


def place_data(c):
    """External data stays external, and --weights moves it; tensors of a few bytes stay in the model."""
    state = {"w": np.full((64, 64), 2, np.float32), "optimizer.exp_avg.w": np.zeros((64, 64), np.float32)}
    write_safetensors(c.work / "w.safetensors", state)
    kept = np.arange(4096, dtype=np.float32).reshape(64, 64)
    nodes = [h.make_node("MatMul", ["x", "w"], ["a"]), h.make_node("MatMul", ["a", "kept"], ["b"]),
             h.make_node("Constant", [], ["square"], value=numpy_helper.from_array(np.zeros((64, 64), np.float32))),
             h.make_node("Add", ["square", "bias"], ["shift"]), h.make_node("ReduceMean", ["shift"], ["row"], axes=[0]),
             h.make_node("Add", ["b", "row"], ["y"])]  # fmt: skip
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, [2, 64])],
                         [h.make_tensor_value_info("y", T.FLOAT, [2, 64])],
                         [numpy_helper.from_array(kept + 1, "w"), numpy_helper.from_array(kept, "kept"),
                          numpy_helper.from_array(np.ones(64, np.float32), "bias")])  # fmt: skip
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, c.work / "inside.onnx")
    onnx.save(model, c.work / "outside.onnx", save_as_external_data=True, location="other.bin", size_threshold=100)
    x = np.ones((2, 64), np.float32)
    want = x @ state["w"] @ kept + 1
    for source, flags, external in (("inside", (), 0), ("outside", (), 3), ("inside", ("--weights", "external"), 2),
                                    ("outside", ("--weights", "embed"), 0)):  # fmt: skip
        name = f"{source} {' '.join(flags)}"
        (c.work / "t.onnx.data").unlink(missing_ok=True)
        c.works(name, "export", f"{source}.onnx", "--state", "w.safetensors", "-o", "t.onnx", *flags)
        written = onnx.load(c.work / "t.onnx", load_external_data=False)
        count = sum(tensor.data_location == T.EXTERNAL for tensor in written.graph.initializer)
        inner = [a.t for node in written.graph.node for a in node.attribute if a.HasField("t")]
        c.expect(f"{name}: attributes", all(tensor.data_location != T.EXTERNAL for tensor in inner))
        c.expect(f"{name}: external tensors", count == external and (c.work / "t.onnx.data").exists() == (external > 0), str(count))
        c.expect(f"{name}: results", np.allclose(outputs(c.work / "t.onnx", x), want, rtol=1e-5))
    before = (c.work / "outside.onnx").read_bytes(), (c.work / "other.bin").read_bytes()
    c.refused("in place", 1, "would overwrite 'outside.onnx', which is an input", "export", "outside.onnx", "--state", "w.safetensors",
              "-o", "outside.onnx")  # fmt: skip
    onnx.save(onnx.load(c.work / "inside.onnx"), c.work / "data.onnx", save_as_external_data=True, location="t2.onnx.data", size_threshold=100)
    c.refused("its data", 1, "would overwrite 't2.onnx.data', which is an input", "export", "data.onnx", "--state", "w.safetensors",
              "-o", "t2.onnx")  # fmt: skip
    c.expect("in place: the files", before == ((c.work / "outside.onnx").read_bytes(), (c.work / "other.bin").read_bytes()))


def convert(c):
    """Typed data, f16, sparse initializers and Constant nodes; floats are converted, with a remark."""
    sparse = h.make_sparse_tensor(h.make_tensor("s", T.FLOAT, [2], [1.0, 2.0]), h.make_tensor("i", T.INT64, [2], [0, 3]), [4])
    nodes = [
        h.make_node("Constant", [], ["k"], value=h.make_tensor("", T.FLOAT, [4], [1, 2, 3, 4])),
        h.make_node("Constant", [], ["f"], value_floats=[1.0, 1.0, 1.0, 1.0]),
        h.make_node("Cast", ["half"], ["wide"], to=T.FLOAT),
        h.make_node("Mul", ["x", "typed"], ["a"]), h.make_node("Add", ["a", "k"], ["b"]), h.make_node("Mul", ["b", "f"], ["d"]),
        h.make_node("Add", ["d", "s"], ["e"]), h.make_node("Mul", ["e", "wide"], ["y"]),
    ]  # fmt: skip
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, [4])], [h.make_tensor_value_info("y", T.FLOAT, [4])],
                         [h.make_tensor("typed", T.FLOAT, [4], [1, 1, 1, 1]),
                          h.make_tensor("half", T.FLOAT16, [4], np.ones(4, np.float16))])  # fmt: skip
    graph.sparse_initializer.append(sparse)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), c.work / "kinds.onnx")
    state = {name: np.array([2, 3, 4, 5], np.float32) + i for i, name in enumerate(("typed", "k", "f", "s", "half"))}
    write_safetensors(c.work / "kinds.safetensors", state)
    code, out, error = c.run("export", "kinds.onnx", "--state", "kinds.safetensors", "-o", "new.onnx")
    c.expect("kinds", code == 0 and "'half' from f32 to f16" in error, error)
    x = np.array([1, -1, 2, 0.5], np.float32)
    c.expect("kinds: results", np.allclose(
        outputs(c.work / "new.onnx", x), ((x * state["typed"] + state["k"]) * state["f"] + state["s"]) * state["half"]))  # fmt: skip


def refuse(c):
    write_safetensors(c.work / "bad.safetensors", {"w": np.ones((64, 63), np.float32), "v": np.ones(3, np.float32),
                                                   "bias": np.ones(64, np.int64), "optimizer.step": np.ones(1)})  # fmt: skip
    code, out, error = c.run("export", "inside.onnx", "--state", "bad.safetensors", "-o", "no.onnx")
    c.expect("all problems", code == 4 and all(text in error for text in (
        "the model has no weight 'v'", "'w' is f32[64, 63], the model's is f32[64, 64]", "'bias' is i64[64]")), error)  # fmt: skip
    c.expect("nothing is written", not (c.work / "no.onnx").exists())
    write_safetensors(c.work / "none.safetensors", {"optimizer.step": np.ones(1)})
    c.refused("no weight", 4, "no weight of the model", "export", "inside.onnx", "--state", "none.safetensors", "-o", "no.onnx")
    archive = pathlib.Path(c.work / "p.pt2")
    archive.write_bytes(b"PK\x03\x04" + bytes(40))
    c.refused("pt2", 5, "load_state_dict", "export", archive, "--state", "w.safetensors", "-o", "no.onnx")


def check(c):
    for test in (train_and_export, place_data, convert, refuse):
        test(c)
