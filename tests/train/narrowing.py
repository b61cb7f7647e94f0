"""States in bf16: rounded at random, so that small updates add up, and the same way in every run."""

import json

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from command import CASES, TRAIN, samples, same_bytes
from exporting import outputs


def stored(path):
    """The tensors of a safetensors file, and their types. NumPy has no bf16."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, out, types = json.loads(data[8 : 8 + length]), {}, {}
    header.pop("__metadata__")
    for name, entry in header.items():
        raw, types[name] = data[8 + length :][slice(*entry["data_offsets"])], entry["dtype"]
        if entry["dtype"] == "BF16":
            out[name] = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])
        else:
            kind = {"F32": np.float32, "F64": np.float64, "I64": np.int64}[entry["dtype"]]
            out[name] = np.frombuffer(raw, kind).reshape(entry["shape"])
    return out, types


def add_up(c):
    """1 - lr for 100 steps, with lr a fortieth of the distance of neighbours: rounded to nearest, nothing would move."""
    graph = h.make_graph([h.make_node("Mul", ["x", "w"], ["y"])], "g", [h.make_tensor_value_info("x", T.FLOAT, ["n", 4096])],
                         [h.make_tensor_value_info("y", T.FLOAT, ["n", 4096])],
                         [numpy_helper.from_array(np.ones(4096, np.float32), "w")])  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), c.work / "line.onnx")
    np.save(c.work / "ones.npy", np.ones((8, 4096), np.float32))
    for momentum in (0, 0.5):
        rate = 1e-4 * (1 - momentum)
        c.works("compile", "compile", "line.onnx", "-o", f"line{momentum}.so", "-q", "--train",
                f"loss=output:y,reduction=sum,optimizer=sgd,momentum={momentum},lr={rate},states=bf16")  # fmt: skip
        c.works("train", "train", f"line{momentum}.so", "--data", "x=ones.npy", "--batch", 1, "--steps", 100, "--save", "line.safetensors")
        w = stored(c.work / "line.safetensors")[0]["w"]
        c.expect("the mean", abs(w.mean() - 0.99) < 5e-4 and 1e-3 < w.std() < 2e-2, f"{w.mean()} {w.std()}")
        c.expect("neighbours", len(np.unique(w)) < 40, str(np.unique(w)))


def train(c):
    samples(c.work)
    text = TRAIN + ",ema=0.9,clip_norm=1,states=bf16,functions=train_step+accumulate+apply+eval+predict"
    c.works("compile", "compile", CASES / "mlp.onnx", "-o", "n.so", "-q", "--train", text)
    data = ("--data", "x0=x.npy", "--data", "t=t.npy")
    c.works("whole", "train", "n.so", *data, "--steps", 40, "--save", "whole.safetensors", "--threads", 1)
    c.works("half", "train", "n.so", *data, "--steps", 20, "--save", "half.safetensors", "--threads", 2)
    c.works("resume", "train", "n.so", *data, "--steps", 20, "--resume", "half.safetensors", "--save", "half.safetensors", "--threads", 2)
    same_bytes(c, "resumed, and with two threads", "whole.safetensors", "half.safetensors")
    narrow, types = stored(c.work / "whole.safetensors")
    kept = {kind for name, kind in types.items() if name.endswith((".weight", ".bias")) and not name.startswith("gradient.")}
    c.expect("types", kept == {"BF16"} and types["gradient.first.weight"] == "F32", str(types))
    c.works("f32", "compile", CASES / "mlp.onnx", "-o", "w.so", "-q", "--train", text.replace(",states=bf16", ""))
    c.works("f32: train", "train", "w.so", *data, "--steps", 40, "--save", "wide.safetensors")
    wide = stored(c.work / "wide.safetensors")[0]
    start = {t.name: numpy_helper.to_array(t) for t in onnx.load(CASES / "mlp.onnx").graph.initializer}
    for name in ("first.weight", "second.weight"):
        far = np.linalg.norm(narrow[name] - wide[name]) / np.linalg.norm(wide[name] - start[name])
        c.expect(f"{name}: as in f32", far < 0.1, f"{far}")
    c.works("accumulate", "train", "n.so", *data, "--steps", 5, "--accumulate", 2)
    code, out, error = c.run("export", CASES / "mlp.onnx", "--state", "whole.safetensors", "-o", "n.onnx")
    c.expect("export", code == 0 and "from bf16 to f32" in error, error)
    context, x = c.stridec.Model(str(c.work / "n.so")).context(), np.load(c.work / "x.npy")[:5]
    y = outputs(c.work / "n.onnx", x)
    c.expect("another model", np.abs(y - np.asarray(context.run(x, function="predict")[0])).max() > 1e-2)
    for function in ("train_step", "eval"):
        c.works(f"verify {function}", "verify", CASES / "mlp.onnx", "n.so", "--function", function)
    c.refused("another type", 1, "write states=bf16", "compile", CASES / "mlp.onnx", "-o", "r.so", "--train", TRAIN + ",states=f16")


def mixed(c):
    """With adapters, and for bf16 weights, which the model goes on reading as they are."""
    c.works("adapters", "compile", CASES / "decoder.onnx", "-o", "a.so", "-q", "--train", TRAIN + ",states=bf16", "--lora",
            "targets=up*|qkv*")  # fmt: skip
    types = {state.name: state.dtype for state in c.stridec.Model(str(c.work / "a.so")).states}
    c.expect("states of adapters", "bf16" in str(types["qkv.weight.lora_A"]) or "bfloat" in str(types["qkv.weight.lora_A"]), str(types))
    weight = h.make_tensor("w", T.BFLOAT16, [8, 4], np.full(64, 0x3F, np.uint8).tobytes(), raw=True)
    graph = h.make_graph([h.make_node("MatMul", ["x", "w"], ["y"])], "g", [h.make_tensor_value_info("x", T.BFLOAT16, ["n", 8])],
                         [h.make_tensor_value_info("y", T.BFLOAT16, ["n", 4])], [weight])  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), c.work / "b.onnx")
    c.works("bf16 weights", "compile", "b.onnx", "-o", "b.so", "-q", "--train", "loss=mse,output=y,target=t,states=bf16")
    c.works("verify", "verify", "b.onnx", "b.so", "--function", "train_step")


def signs(c):
    """In bf16 a rounding decides the sign of some inputs of a relu, and with it whether a gradient passes: no fault."""
    shapes = {"a": (16, 64), "ab": (64,), "b": (64, 16), "c": (16, 5)}
    ends = [h.make_tensor_value_info(name, T.FLOAT, ["n", size]) for name, size in (("x", 16), ("y", 5))]
    for seed in (2, 4, 5):
        rng = np.random.default_rng(seed)
        weights = [numpy_helper.from_array((rng.standard_normal(s) * (0.3 if len(s) > 1 else 0.1)).astype(np.float32), name)
                   for name, s in shapes.items()]  # fmt: skip
        nodes = [h.make_node("MatMul", ["x", "a"], ["p"]), h.make_node("Add", ["p", "ab"], ["q"]), h.make_node("Relu", ["q"], ["r"]),
                 h.make_node("MatMul", ["r", "b"], ["s"]), h.make_node("Add", ["s", "x"], ["u"]), h.make_node("MatMul", ["u", "c"], ["y"])]  # fmt: skip
        graph = h.make_graph(nodes, "g", ends[:1], ends[1:], weights)
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), c.work / "s.onnx")
        c.works(f"bf16, seed {seed}", "compile", "s.onnx", "-o", "s.so", "-q", "--train", "loss=mse,output=y,target=t,optimizer=adamw,lr=1e-3",
                "--precision", "bf16")  # fmt: skip
        c.works(f"verify, seed {seed}", "verify", "s.onnx", "s.so", "--steps", 4)


def check(c):
    for test in (add_up, train, mixed, signs):
        test(c)
