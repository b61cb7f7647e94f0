"""What a user of `--lora` sees: trained adapters beside weights that stay constants. run.py compares the training itself."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from command import CASES, TRAIN, states
from exporting import outputs, write_safetensors

SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "samples" / "train"
ALL = TRAIN.replace("lr=1e-2", "lr=0.05") + ",functions=train_step+accumulate+apply+eval+predict"
LAYERS = ["qkv", "out", "up"]


def tokens(work):
    random = np.random.default_rng(3)
    np.save(work / "tokens.npy", random.integers(0, 23, (12, 9)))
    np.save(work / "next.npy", random.integers(0, 23, (12, 9)))
    return np.load(work / "tokens.npy")[:3]


def train_and_export(c):
    x, model = tokens(c.work), CASES / "decoder.onnx"
    flags = ("--lora", f"rank=2,alpha=6,targets={'|'.join(f'{layer}.weight' for layer in LAYERS)}", "--train", ALL)
    c.works("compile", "compile", model, "-o", "adapted.so", "-q", *flags)
    artifact = c.stridec.Model(str(c.work / "adapted.so"))
    want = {f"{layer}.weight.lora_{matrix}" for layer in LAYERS for matrix in "AB"}
    names = {state.name for state in artifact.states}
    c.expect("states", {n for n in names if not n.startswith(("optimizer.", "gradient"))} == want, str(names))
    context = artifact.context()
    a = {layer: context.state(f"{layer}.weight.lora_A") for layer in LAYERS}
    c.expect("A", all(0.5 / 4 < np.abs(each).max() <= 1 / np.sqrt(each.shape[1]) and abs(each.mean()) < 0.1 for each in a.values()))
    c.expect("another A for each", not np.allclose(a["qkv"], a["up"]))
    c.expect("B", not context.state("qkv.weight.lora_B").any())
    c.expect("nothing changes at first", np.abs(np.asarray(context.run(x, function="predict")[0]) - outputs(model, x)).max() < 1e-5)
    data = ("--data", "x0=tokens.npy", "--data", "t=next.npy", "--batch", 4)
    c.works("train", "train", "adapted.so", *data, "--steps", 10, "--save", "adapted.safetensors")
    for name, value in states(c, "adapted.safetensors").items():
        context.write_state(name, value)
    got = np.asarray(context.run(x, function="predict")[0])
    c.works("export", "export", model, "--state", "adapted.safetensors", "-o", "merged.onnx")
    far = np.abs(outputs(c.work / "merged.onnx", x) - got).max()
    c.expect("merged", far < 2e-5 and np.abs(outputs(model, x) - got).max() > 0.05, f"{far}")
    c.works("accumulate", "train", "adapted.so", *data, "--steps", 2, "--accumulate", 2, "--save", "two.safetensors")
    moved = states(c, "two.safetensors")["qkv.weight.lora_B"]
    c.expect("apply", np.abs(moved).max() > 1e-3)
    return got, x


def write_for_peft(c):
    c.works("peft", "export", CASES / "decoder.onnx", "--state", "adapted.safetensors", "-o", "adapter", "--lora-form", "peft")
    config = json.loads((c.work / "adapter" / "adapter_config.json").read_text())
    c.expect("config", config["peft_type"] == "LORA" and config["r"] == 2 and config["lora_alpha"] == 6 and
             sorted(config["target_modules"]) == sorted(LAYERS), str(config))  # fmt: skip
    data = (c.work / "adapter" / "adapter_model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    c.expect("keys", header["base_model.model.qkv.lora_A.weight"]["shape"] == [2, 16] and
             header["base_model.model.qkv.lora_B.weight"]["shape"] == [48, 2] and len(header) == 7, str(header))  # fmt: skip


def adapt_pytorch_file(c):
    """A .pt2 file is not written again, but PEFT's files are."""
    program = SAMPLES.parents[1] / "tests" / "pt2" / "programs" / "checkpoint.core.pt2"
    c.works("pt2", "compile", program, "-o", "p.so", "-q", "--lora", "rank=2,alpha=8,targets=*", "--train",
            "loss=mse,output=output,target=t")  # fmt: skip
    artifact = c.stridec.Model(str(c.work / "p.so"))
    context = artifact.context()
    state = {s.name: context.state(s.name) for s in artifact.states if ".lora_" in s.name and not s.name.startswith("optimizer.")}
    c.expect("states", sorted(state) == ["l.weight.lora_A", "l.weight.lora_B"], str(list(state)))
    write_safetensors(c.work / "p.safetensors", state)
    save = ("--state", "p.safetensors", "--lora-alpha", 8)
    c.works("peft of pt2", "export", program, *save, "-o", "pt2_adapter", "--lora-form", "peft")
    config = json.loads((c.work / "pt2_adapter" / "adapter_config.json").read_text())
    c.expect("modules", len(config["target_modules"]) == len(state) // 2 and config["lora_alpha"] == 8, str(config))
    c.refused("not ONNX", 5, "load_state_dict", "export", program, *save, "-o", "no.onnx")
    write_safetensors(c.work / "other.safetensors", {"x.lora_A": np.ones((2, 3), np.float32), "x.lora_B": np.ones((3, 2), np.float32)})
    c.refused("another model's", 4, "do not fit the model", "export", program, "--state", "other.safetensors", "-o", "a", "--lora-form",
              "peft", "--lora-alpha", 8)  # fmt: skip


def merge_transposed(c):
    """Square matrices as ONNX's MatMul has them, [in, out], and a window; the file does not say which alpha."""
    random = np.random.default_rng(5)
    shapes = {"conv": (8, 2, 3, 3), "w": (8, 8), "v": (8, 8)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [h.make_node("Conv", ["x", "conv"], ["a"], pads=[1, 1, 1, 1]), h.make_node("ReduceMean", ["a"], ["m"], axes=[2, 3], keepdims=0),
             h.make_node("MatMul", ["m", "w"], ["b"]), h.make_node("Gemm", ["b", "v"], ["y"], transB=1)]  # fmt: skip
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["n", 2, 5, 5])],
                         [h.make_tensor_value_info("y", T.FLOAT, ["n", 8])],
                         [numpy_helper.from_array(value, name) for name, value in weights.items()])  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), c.work / "square.onnx")
    c.works("square", "compile", "square.onnx", "-o", "square.so", "-q", "--lora", "rank=2,alpha=3,targets=*", "--train",
            "loss=mse,output=y,target=t")  # fmt: skip
    context = c.stridec.Model(str(c.work / "square.so")).context()
    state = {}
    for name, value in weights.items():
        for matrix in "AB":
            full = f"{name}.lora_{matrix}"
            state[full] = random.standard_normal(context.state(full).shape).astype(np.float32)
            context.write_state(full, state[full])
    c.expect("shapes", state["conv.lora_A"].shape == (2, 2, 3, 3) and state["conv.lora_B"].shape == (8, 2, 1, 1))
    write_safetensors(c.work / "square.safetensors", state)
    c.refused("no alpha", 1, "--lora-alpha", "export", "square.onnx", "--state", "square.safetensors", "-o", "merged.onnx")
    c.works("merge", "export", "square.onnx", "--state", "square.safetensors", "-o", "both.onnx", "--lora-alpha", 3)
    x = random.standard_normal((3, 2, 5, 5)).astype(np.float32)
    got, want = np.asarray(context.run(x, function="predict")[0]), outputs(c.work / "both.onnx", x)
    c.expect("both ways", np.abs(got - want).max() < 1e-5 * np.abs(want).max(), f"{got} {want}")
    by_hand = weights["w"] + 1.5 * (state["w.lora_B"] @ state["w.lora_A"]).T
    merged = {t.name: numpy_helper.to_array(t) for t in onnx.load(c.work / "both.onnx").graph.initializer}
    c.expect("the formula", np.allclose(merged["w"], by_hand, atol=1e-5))
    del state["w.lora_B"]
    write_safetensors(c.work / "square.safetensors", state)
    c.refused("half", 4, "'w.lora_B' is missing", "export", "square.onnx", "--state", "square.safetensors", "-o", "no.onnx",
              "--lora-alpha", 3)  # fmt: skip


def quantised_model(path, random):
    """A convolution and two matrices of 4 and 8 bits; their values in floats, by name."""
    window, four, eight = random.integers(-9, 9, (16, 8, 3, 3)), random.integers(0, 16, (128, 2, 32)), random.integers(-9, 9, (128, 24))
    scales = random.random((128, 2)).astype(np.float32) / 64
    columns = np.linspace(0.01, 0.02, 24, dtype=np.float32)
    constants = {"conv.weight": window.astype(np.int8), "conv.scale": np.float32(0.02), "four.weight_Q4": four[..., ::2] | four[..., 1::2] << 4,
                 "four.scales": scales.reshape(-1), "eight.qweight": eight.astype(np.int8), "eight.scale": columns}  # fmt: skip
    constants["four.weight_Q4"] = constants["four.weight_Q4"].astype(np.uint8)
    nodes = [h.make_node("DequantizeLinear", ["conv.weight", "conv.scale"], ["w"]), h.make_node("Conv", ["x", "w"], ["a"]),
             h.make_node("Reshape", ["a", "shape"], ["b"]),
             h.make_node("MatMulNBits", ["b", "four.weight_Q4", "four.scales"], ["d"], domain="com.microsoft", K=64, N=128, bits=4, block_size=32),
             h.make_node("DequantizeLinear", ["eight.qweight", "eight.scale"], ["v"], axis=1), h.make_node("MatMul", ["d", "v"], ["y"])]  # fmt: skip
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (*constants.items(), ("shape", np.array([-1, 64])))]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["n", 8, 4, 4])],
                         [h.make_tensor_value_info("y", T.FLOAT, ["n", 24])], tensors)  # fmt: skip
    opsets = [h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)]
    onnx.save(h.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return window * 0.02, ((four - 8) * scales[..., None]).reshape(128, 64).T, eight * columns


def adapt_quantised(c):
    """Adapters beside quantised weights: the first step of SGD, by formulas in f64."""
    random = np.random.default_rng(8)
    window, four, eight = quantised_model(c.work / "bits.onnx", random)
    flags = ("--lora", "rank=3,alpha=6,targets=*", "--train", "loss=mse,output=y,target=t,optimizer=sgd,lr=0.5")
    c.works("quantised", "compile", "bits.onnx", "-o", "bits.so", "-q", *flags)
    context = c.stridec.Model(str(c.work / "bits.so")).context()
    names = ["conv.weight", "four.weight_Q4", "eight.qweight"]
    state = {f"{name}.lora_{matrix}": context.state(f"{name}.lora_{matrix}").copy() for name in names for matrix in "AB"}
    c.expect("shapes", [state[f"{name}.lora_A"].shape for name in names] == [(3, 8, 3, 3), (3, 64), (3, 128)], str(list(state)))
    for name in names[1:]:
        state[f"{name}.lora_B"] = random.standard_normal(state[f"{name}.lora_B"].shape).astype(np.float32) * 0.1
        context.write_state(f"{name}.lora_B", state[f"{name}.lora_B"])
    x, t = random.standard_normal((5, 8, 4, 4)).astype(np.float32), random.standard_normal((5, 24)).astype(np.float32)
    patches = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5).reshape(5, 4, 72)
    b = (patches @ window.reshape(16, 72).T).transpose(0, 2, 1).reshape(5, 64)
    full = [w + 2 * (state[f"{n}.lora_B"] @ state[f"{n}.lora_A"]).T for w, n in zip((four, eight), names[1:])]
    y = b @ full[0] @ full[1]
    slope = 2 * (y - t) / y.size
    loss = context.run(x, t, function="train_step")[0]
    c.expect("loss", abs(loss - np.mean((y - t) ** 2)) < 1e-5 * abs(loss), f"{loss}")
    for name, inner, outer in ((names[1], b, slope @ full[1].T), (names[2], b @ full[0], slope)):
        want = state[f"{name}.lora_B"] - 0.5 * 2 * outer.T @ inner @ state[f"{name}.lora_A"].T
        got = context.state(f"{name}.lora_B")
        c.expect(name, np.abs(got - want).max() < 1e-4 * np.abs(want).max(), f"{np.abs(got - want).max()}")
    c.expect("conv", np.abs(context.state("conv.weight.lora_B")).max() > 0)
    write_safetensors(c.work / "bits.safetensors", state)
    save = ("export", "bits.onnx", "--state", "bits.safetensors", "--lora-alpha", 6)
    c.refused("merge", 1, "--lora-form peft", *save, "-o", "merged.onnx")
    c.works("peft of bits", *save, "-o", "bits", "--lora-form", "peft")
    config = json.loads((c.work / "bits" / "adapter_config.json").read_text())
    c.expect("modules of bits", sorted(config["target_modules"]) == ["conv", "eight", "four"], str(config))
    c.refused("scales", 1, "belongs to weight 'four.weight_Q4'", "compile", "bits.onnx", "-o", "no.so", *flags[2:],
              "--lora", "targets=four.scales")  # fmt: skip


def refuse_quantised(c):
    """A quantised weight that one product reads transposed, and one whose scale comes behind the product."""
    eight = np.random.default_rng(4).integers(-9, 9, (64, 64)).astype(np.int8)
    models = {
        "both_ways": [h.make_node("DequantizeLinear", ["w", "s"], ["f"]), h.make_node("MatMul", ["x", "f"], ["a"]),
                      h.make_node("Transpose", ["f"], ["g"]), h.make_node("MatMul", ["a", "g"], ["y"])],
        "scaled_late": [h.make_node("Cast", ["w"], ["f"], to=T.FLOAT), h.make_node("MatMul", ["x", "f"], ["a"]),
                        h.make_node("Mul", ["a", "s"], ["y"])],
    }  # fmt: skip
    for (name, nodes), sentence in zip(models.items(), ("another one transposed", "not a matrix of a product")):
        graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["n", 64])], [h.make_tensor_value_info("y", T.FLOAT, ["n", 64])],
                             [numpy_helper.from_array(eight, "w"), numpy_helper.from_array(np.array(0.01, np.float32), "s")])  # fmt: skip
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), c.work / f"{name}.onnx")
        c.refused(name, 1, sentence, "compile", f"{name}.onnx", "-o", "no.so", "--train", "loss=mse,output=y,target=t", "--lora", "targets=w")


def keep_apart(c):
    """Two weights of the same bytes, which are one constant otherwise, have adapters of their own."""
    nodes = [h.make_node("MatMul", ["x", "first"], ["a"]), h.make_node("MatMul", ["a", "second"], ["y"])]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["n", 4])], [h.make_tensor_value_info("y", T.FLOAT, ["n", 4])],
                         [numpy_helper.from_array(np.eye(4, dtype=np.float32), name) for name in ("first", "second")])  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), c.work / "twins.onnx")
    report = json.loads(c.works("twins", "check", "twins.onnx", "--train", "loss=mse,output=y,target=t", "--lora", "targets=*",
                                "--format", "json"))["training"]  # fmt: skip
    c.expect("both", report["adapted"] == ["first", "second"] and report["parameters"] == [], str(report))


def pass_loops(c):
    """Beside a loop: its weights have the gradients that they have without the adapter, which is 0 at first."""
    subprocess.run([sys.executable, SAMPLES / "write_models.py", c.work], check=True)
    text, random = "loss=mse,output=y,target=t,optimizer=sgd,lr=0.5", np.random.default_rng(0)
    x, t = random.standard_normal((5, 32, 2)).astype(np.float32), random.standard_normal((5, 1)).astype(np.float32)
    after = []
    for name, flags in (("adapted", ("--trainable", "lstm*", "--lora", "rank=4,targets=head.weight")), ("plain", ("--freeze", "head*"))):
        c.works(name, "compile", "lstm.onnx", "-o", f"loop_{name}.so", "-q", "--train", text, *flags)
        context = c.stridec.Model(str(c.work / f"loop_{name}.so")).context()
        before = context.state("lstm.r")
        context.run(x, t, function="train_step")
        after.append(context.state("lstm.r"))
        c.expect(f"{name}: it moves", np.abs(after[-1] - before).max() > 1e-3)
    c.expect("the same step", np.allclose(*after, atol=1e-6), str(np.abs(after[0] - after[1]).max()))
    c.works("verify", "verify", "lstm.onnx", "loop_adapted.so", "--function", "train_step")
    c.works("bf16", "compile", "lstm.onnx", "-o", "loop_bf16.so", "-q", "--train", text + ",states=bf16")
    c.works("verify bf16", "verify", "lstm.onnx", "loop_bf16.so", "--function", "train_step")
    context = c.stridec.Model(str(c.work / "loop_bf16.so")).context()
    losses = [float(context.run(x, t, function="train_step")[0]) for _ in range(30)]
    c.expect("it learns", losses[-1] < 0.5 * losses[0], str(losses))


def select(c):
    """A pattern leaves out what cannot have an adapter; a whole name is refused."""
    model, train = CASES / "decoder.onnx", ("--train", TRAIN)
    report = json.loads(c.works("check", "check", model, *train, "--lora", "targets=*", "--format", "json"))["training"]
    c.expect("matrices", sorted(report["adapted"]) == ["down.weight", "out.weight", "qkv.weight", "up.weight"] and
             report["parameters"] == [], str(report))  # fmt: skip
    report = json.loads(c.works("both", "check", model, *train, "--lora", "targets=*", "--trainable", "*norm*", "--format", "json"))
    c.expect("norms too", len(report["training"]["parameters"]) == 4, str(report))
    for name, lora, sentence in (
        ("table", "targets=embedding.weight", "gather reads it"),
        ("none", "targets=*.bias", "no weight that"),
        ("no targets", "rank=3", "names no targets"),
        ("rank", "rank=0,targets=*", "rank is 0"),
        ("setting", "dropout=1,targets=*", "no setting 'dropout'"),
    ):
        c.refused(name, 1, sentence, "compile", model, "-o", "r.so", *train, "--lora", lora)
    c.refused("twice", 1, "is trained and has an adapter", "compile", model, "-o", "r.so", *train, "--lora", "targets=up*",
              "--trainable", "*")  # fmt: skip
    c.refused("groups", 1, "has groups", "compile", CASES / "residual.onnx", "-o", "r.so", *train, "--lora", "targets=inner.weight")
    c.refused("alone", 1, "add --train", "compile", model, "-o", "r.so", "--lora", "targets=*")
    lora = {"targets": ["up*", "qkv*"], "rank": 4}
    (c.work / "lora.json").write_text(json.dumps({"loss": "cross_entropy", "logits": "y", "labels": "t", "lora": lora}))
    c.works("config", "compile", model, "-o", "j.so", "-q", "--train-config", "lora.json")
    text = json.loads((c.work / "j.json").read_text())["options"]["train"]
    c.expect("its text", "lora=up*|qkv*(alpha=4,rank=4,seed=0)" in text and "trainable" not in text, text)
    c.works("verify", "verify", model, "j.so", "--function", "train_step")


def check(c):
    for test in (train_and_export, write_for_peft, adapt_pytorch_file, merge_transposed, adapt_quantised, refuse_quantised, keep_apart, pass_loops, select):
        test(c)
