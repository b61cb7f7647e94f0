"""Loss scaling for f16: a step whose gradients overflow changes the scale alone."""

import json

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from command import CASES, TRAIN

MSE = "loss=mse,output=y,target=t,optimizer=adamw,lr=1e-2,ema=0.9"


def all_states(context, artifact):
    return {state.name: context.state(state.name) for state in artifact.states}


def changed(before, after):
    return {name for name in before if not np.array_equal(before[name], after[name])}


def set_scale(context, scale, good=0):
    context.write_state("loss_scale", np.array(scale, np.float32))
    context.write_state("loss_scale.good_steps", np.array(good, np.float32))


def skip_and_grow(c):
    c.works("compile", "compile", CASES / "mlp.onnx", "-o", "scaled.so", "-q", "--train", MSE + ",loss_scale=dynamic")
    c.works("plain", "compile", CASES / "mlp.onnx", "-o", "plain.so", "-q", "--train", MSE)
    artifact, random = c.stridec.Model(str(c.work / "scaled.so")), np.random.default_rng(0)
    context, plain = artifact.context(), c.stridec.Model(str(c.work / "plain.so")).context()
    x, t = random.standard_normal((7, 6)).astype(np.float32), random.standard_normal((7, 4)).astype(np.float32)
    c.expect("initial", context.state("loss_scale") == 65536)
    overflow = ("overflow", 3e38, x, t * 1e4, np.float32(3e38) / 2)
    for name, scale, data, target, halved in (overflow, ("nan", 8, x * np.nan, t, 4), ("floor", 1, x * np.inf, t * np.inf, 1)):
        set_scale(context, scale, 7)
        before = all_states(context, artifact)
        norm = float(context.run(data, target, function="train_step")[1])
        after = all_states(context, artifact)
        c.expect(name, not np.isfinite(norm) and after["loss_scale"] == halved and after["loss_scale.good_steps"] == 0 and
                 changed(before, after) <= {"loss_scale", "loss_scale.good_steps"}, f"{norm} {changed(before, after)}")  # fmt: skip
    set_scale(context, 1024)
    for _ in range(3):
        got, want = context.run(x, t, function="train_step"), plain.run(x, t, function="train_step")
        c.expect("unscaled", np.allclose([float(v) for v in got], [float(v) for v in want], rtol=1e-5), f"{got} {want}")
    c.expect("the same weights", np.allclose(context.state("first.weight"), plain.state("first.weight"), atol=1e-6))
    c.expect("counted", context.state("loss_scale.good_steps") == 3 and context.state("loss_scale") == 1024)
    set_scale(context, 1024, 1999)
    context.run(x, t, function="train_step")
    c.expect("doubled", context.state("loss_scale.good_steps") == 0 and context.state("loss_scale") == 2048)


def skip_statistics(c):
    """The running statistics of batch normalization too."""
    c.works("residual", "compile", CASES / "residual.onnx", "-o", "rs.so", "-q", "--train", TRAIN + ",loss_scale=dynamic")
    artifact = c.stridec.Model(str(c.work / "rs.so"))
    context, x = artifact.context(), np.random.default_rng(0).standard_normal((6, 3, 13, 11)).astype(np.float32)
    before = all_states(context, artifact)
    context.run(x * np.nan, np.zeros(6, np.int64), function="train_step")
    c.expect("statistics stay", changed(before, all_states(context, artifact)) == {"loss_scale"})
    context.run(x, np.zeros(6, np.int64), function="train_step")
    c.expect("statistics move", {"norm.running_mean", "norm.running_var"} <= changed(before, all_states(context, artifact)))


def accumulate(c):
    c.works("parts", "compile", CASES / "mlp.onnx", "-o", "parts.so", "-q", "--train",
            MSE + ",loss_scale=dynamic,functions=accumulate+apply+predict")  # fmt: skip
    artifact = c.stridec.Model(str(c.work / "parts.so"))
    context, x, t = artifact.context(), np.ones((7, 6), np.float32), np.ones((7, 4), np.float32)
    before = all_states(context, artifact)
    context.run(x * np.inf, t, function="accumulate")
    context.run(x, t, function="accumulate")
    context.run(function="apply")
    c.expect("skipped", changed(before, all_states(context, artifact)) == {"loss_scale"})
    context.run(x, t, function="accumulate")
    context.run(function="apply")
    c.expect("applied", "first.weight" in changed(before, all_states(context, artifact)))


def decide(c):
    """--precision fp16 and weights in f16 scale the loss, others do not."""
    graph = h.make_graph([h.make_node("MatMul", ["x", "w"], ["y"])], "g", [h.make_tensor_value_info("x", T.FLOAT16, ["n", 8])],
                         [h.make_tensor_value_info("y", T.FLOAT16, ["n", 4])],
                         [numpy_helper.from_array(np.ones((8, 4), np.float16), "w")])  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), c.work / "half.onnx")
    for name, model, flags, want in (
        ("f32", CASES / "mlp.onnx", (), False),
        ("f16 weights", "half.onnx", (), True),
        ("fp16", CASES / "mlp.onnx", ("--precision", "fp16"), True),
        ("bf16", CASES / "mlp.onnx", ("--precision", "bf16"), False),
        ("none", "half.onnx", ("--train", "loss_scale=none"), False),
    ):
        out = c.works(name, "check", model, "--train", MSE, *flags, "--format", "json")
        c.expect(f"{name}: scaled", json.loads(out)["training"]["scales_loss"] == want, out)
    c.refused("another value", 1, "loss_scale=dynamic or", "check", "half.onnx", "--train", MSE + ",loss_scale=1024")
    c.works("compile half", "compile", "half.onnx", "-o", "half.so", "-q", "--train", "loss=mse,output=y,target=t,optimizer=sgd,lr=0.1")
    np.save(c.work / "half.npy", np.random.default_rng(0).standard_normal((64, 8)).astype(np.float16))
    np.save(c.work / "zero.npy", np.zeros((64, 4), np.float32))
    out = json.loads(c.works("train half", "train", "half.so", "--data", "x=half.npy", "--data", "t=zero.npy", "--steps", 60,
                             "--format", "json"))  # fmt: skip
    c.expect("it learns", out["losses"][-1] < 0.2 * out["losses"][0], str(out["losses"]))


def check(c):
    for test in (skip_and_grow, skip_statistics, accumulate, decide):
        test(c)
