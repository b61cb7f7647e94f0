"""--activation-memory-budget: less memory, the same bits."""

import json

import numpy as np
import onnx
from onnx import helper, numpy_helper

from command import CASES

FIXED = ("--dim", "batch=128")
LABELS = "loss=cross_entropy,logits=y,labels=t,optimizer=adamw,lr=1e-2,functions=train_step+eval"


def batch_of(case, size):
    """The first batch of a case, repeated to `size` samples."""
    stored = np.load(CASES / f"{case}.npz")
    return [np.resize(stored[key][0], (size, *stored[key][0].shape[1:])) for key in stored.files if key.startswith("in.")]


def memory_of(c, artifact):
    """What a run needs according to the manifest, with two threads, and what was computed again."""
    whole = json.loads((c.work / f"{artifact}.json").read_text())
    memory = next((f["memory"] for f in whole.get("functions", []) if f["name"] == "train_step"), whole["memory"])
    return memory["workspace_bytes"], memory.get("recomputation", {"tensors": []})


def trained(c, artifact, data):
    model = c.stridec.Model(str(c.work / f"{artifact}.so"))
    context = model.context(threads=2)
    outputs = [[np.asarray(value) for value in context.run(*data, function="train_step")] for _ in range(3)]
    return outputs, {state.name: context.state(state.name) for state in model.states}, context.memory()["arena_bytes"]


def same(a, b):
    return all(np.array_equal(x, y) for step, other in zip(a[0], b[0]) for x, y in zip(step, other)) and all(
        np.array_equal(value, b[1][name]) for name, value in a[1].items()
    )


def budgets_agree(c):
    """The outputs and states of three steps have equal bits; the context takes what the manifest says, and less for less."""
    for name in ("decoder", "residual"):
        data = batch_of(name, 128)
        want, arenas, recomputed = None, [], []
        for budget in ("1", "0.5", "0.1", "0"):
            artifact = f"{name}{budget}"
            c.works(f"{name} {budget}", "compile", CASES / f"{name}.onnx", "-o", f"{artifact}.so", "-q", *FIXED,
                    "--train", LABELS, "--activation-memory-budget", budget)  # fmt: skip
            got = trained(c, artifact, data)
            want = want or got
            workspace, recomputation = memory_of(c, artifact)
            c.expect(f"{name} {budget}: the same bits", same(want, got))
            c.expect(f"{name} {budget}: as planned", eval(workspace, {"threads": 2}) == got[2], f"{workspace} {got[2]}")
            arenas.append(got[2])
            recomputed.append(len(recomputation["tensors"]))
        c.expect(f"{name}: less for less", arenas == sorted(arenas, reverse=True), str(arenas))
        c.expect(f"{name}: less", name != "decoder" or arenas[-1] < 0.8 * arenas[0], str(arenas))
        c.expect(f"{name}: the report", recomputed[0] == 0 and recomputed == sorted(recomputed), str(recomputed))


def budgets_in_bytes(c):
    flags = ("compile", CASES / "decoder.onnx", "-o", "bytes.so", "--train", LABELS, "--activation-memory-budget")
    c.refused("open sizes", 1, "in bytes needs known sizes", *flags, "1MB")
    c.refused("out of reach", 6, "for tensors at least, more than the 1000 of", *flags, "1kB", *FIXED)
    for text in ("1.5", "-1", "half", "12", "1e30GB"):
        c.refused(text, 1, "does not take '" + text, *flags, text)
    c.works("all", *flags, "1GB", *FIXED)
    most = memory_of(c, "bytes")[1].get("keeping_all_bytes")
    c.expect("nothing is computed again", most is None)
    _, out, error = c.run(*flags, "0.5", *FIXED)
    c.expect("the line", " of tensors, " in out + error and " are computed again" in out + error, out + error)
    planned = memory_of(c, "bytes")[1]
    c.works("promised", *flags, f"{planned['bytes']}B", *FIXED)
    c.expect("kept", memory_of(c, "bytes")[1]["bytes"] <= planned["bytes"] < planned["keeping_all_bytes"], str(planned))
    c.works("verify", "verify", CASES / "decoder.onnx", "bytes.so", "--steps", "2")


def head_of(classes, width):
    """tanh(x) w + b: the logits of many classes."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((width, classes)), "b": rng.standard_normal(classes)}
    nodes = [("Tanh", "x", "h"), ("MatMul", "h w", "p"), ("Add", "p b", "y")]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs.split(), [output]) for kind, inputs, output in nodes],
        "head",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 257, width])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 257, classes])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def heads_in_blocks(c):
    """The logits of many classes are in memory for a block of rows, with known and with open sizes."""
    classes, batch, width = 20011, 8, 8
    model = head_of(classes, width)
    onnx.save(model, c.work / "head.onnx")
    rng = np.random.default_rng(1)
    data = [rng.standard_normal((batch, 257, width)).astype(np.float32), rng.integers(0, classes, (batch, 257))]
    w, b = (numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer)
    logits = np.tanh(data[0].astype(np.float64)) @ w + b
    of_labels = np.take_along_axis(logits, data[1][..., None], -1)[..., 0]
    want = np.mean(np.log(np.sum(np.exp(logits), -1)) - of_labels)
    states = []
    for name, flags in (("fixed", ("--dim", f"batch={batch}")), ("open", ())):
        c.works(f"head {name}", "compile", "head.onnx", "-o", f"{name}.so", "--train", LABELS, "-q", *flags)
        outputs, trained_states, arena = trained(c, name, data)
        c.expect(f"head {name}: a block", arena < 0.6 * logits.size * 4, f"{arena} {logits.size * 4}")
        c.expect(f"head {name}: loss", np.allclose(outputs[0][0], want, rtol=1e-5), f"{outputs[0][0]} {want}")
        states.append(trained_states)
    # The gradients of both agree, so that Adam's moments do.
    c.expect("head: states agree", all(np.allclose(value, states[1][name], rtol=1e-3, atol=1e-6) for name, value in states[0].items()))


def check(c):
    budgets_agree(c)
    heads_in_blocks(c)
    budgets_in_bytes(c)
