"""Bad input to the functions of a training: each is refused with a sentence, and nothing that was there is lost."""

import json
import struct

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

TRAIN = "loss=cross_entropy,logits=y,labels=t,optimizer=adamw,lr=1e-2,functions=train_step+accumulate+eval"


def values(context):
    return {s.name: context.state(s.name).copy() for s in context.model.states}


def refused(c, name, context, sentence, *inputs, function="train_step", keeps=True):
    """The run is refused. `keeps`: states stay (after faults of the data alone they are unspecified)."""
    before = values(context)
    try:
        context.run(*inputs, function=function)
        c.expect(name, False, "the run succeeds")
    except c.stridec.Error as error:
        c.expect(name, sentence in str(error), str(error))
    if keeps:
        c.expect(f"{name}: states", all(np.array_equal(v, context.state(n)) for n, v in before.items()))


def label(c, cases):
    c.works("hostile", "compile", cases / "mlp.onnx", "-o", "h.so", "-q", "--train", TRAIN)
    model = c.stridec.Model(str(c.work / "h.so"))
    x = np.ones((3, 6), np.float32)
    for wrong in (4, -1, -101, 2**40):
        for function in ("train_step", "accumulate", "eval"):
            refused(c, f"label {wrong}, {function}", model.context(), f"label {wrong} of input 't' is not one of the 4 classes", x,
                    np.array([0, wrong, 1]), function=function, keeps=False)  # fmt: skip
    context = model.context()
    refused(c, "fewer labels", context, "dim 0 (batch) is 2, expected 3", x, np.zeros(2, np.int64))
    refused(c, "labels of 32 bits", context, "its dtype is i32; expected i64", x, np.zeros(3, np.int32))
    refused(c, "labels that are floats", context, "its dtype is f32; expected i64", x, np.zeros(3, np.float32))
    before = values(context)
    for n, ignored in ((3, np.full(3, -100)), (0, np.zeros(0, np.int64))):
        loss, norm = (float(v) for v in context.run(x[:n], ignored, function="train_step"))
        c.expect(f"{n} ignored labels", loss == norm == 0 and all(np.isfinite(v).all() for v in values(context).values()))
    c.expect("they count as steps", context.state("optimizer.step") == before["optimizer.step"] + 2)


def few_values(c):
    """Batch normalization of one value a channel has no variance."""
    tensors = [numpy_helper.from_array(np.full(4, v, np.float32), n) for n, v in (("s", 1), ("b", 0), ("m", 0), ("v", 1))]
    graph = h.make_graph([h.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])], "g",
                         [h.make_tensor_value_info("x", T.FLOAT, ["n", 4])], [h.make_tensor_value_info("y", T.FLOAT, ["n", 4])],
                         tensors)  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]), c.work / "norm.onnx")
    c.works("norm", "compile", "norm.onnx", "-o", "norm.so", "-q", "--train", "loss=mse,output=y,target=t,optimizer=sgd")
    context = c.stridec.Model(str(c.work / "norm.so")).context()
    for n in (0, 1):
        x = np.ones((n, 4), np.float32)
        refused(c, f"norm of {n}", context, f"dim 0 (n) is {n}; this artifact serves 2 and more", x, x)
        c.expect(f"predict of {n}", np.asarray(context.run(x, function="predict")[0]).shape == (n, 4))
    x = np.array([[0] * 4, [2] * 4], np.float32)
    context.run(x, x, function="train_step")
    c.expect("unbiased", np.allclose(context.state("v"), 0.9 + 0.1 * 2), str(context.state("v")))


def split(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header, data):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + data


def checkpoint(c, cases):
    """--resume with files that are not a save of this training. The file of --save stays as it is."""
    np.save(c.work / "hx.npy", np.random.default_rng(1).standard_normal((40, 6)).astype(np.float32))
    np.save(c.work / "ht.npy", np.arange(40) % 4)
    data = ("--data", "x0=hx.npy", "--data", "t=ht.npy")
    c.works("a save", "train", "h.so", *data, "--steps", 2, "--save", "good.safetensors")
    header, tail = split(c.work / "good.safetensors")
    name, other = "first.weight", "second.weight"

    def entry(**fields):
        return {**header, name: {**header[name], **fields}}

    begin, end = header[name]["data_offsets"]
    whole = (c.work / "good.safetensors").read_bytes()
    cases_of = {
        "nothing": (b"", 3, "fewer than 8 bytes"),
        "a length alone": (whole[:8], 3, "header is truncated"),
        "half a header": (whole[:100], 3, "header is truncated"),
        "half of the data": (whole[: len(whole) - len(tail) // 2], 3, "data_offsets"),
        "one byte less": (whole[:-1], 3, "data_offsets"),
        "one byte more": (whole + b"\0", 3, "belong to no tensor"),
        "a long header": (struct.pack("<Q", 2**63) + whole[8:], 3, "header is truncated"),
        "not JSON": (joined("{" + " " * 20, tail), 3, "not a JSON object"),
        "a list": (joined("[]", tail), 3, "not a JSON object"),
        "deep": (joined("[" * 100_000, tail), 3, "not a JSON object"),
        "an entry that is not an object": (joined({**header, name: 3}, tail), 3, "lacks dtype, shape or data_offsets"),
        "no offsets": (joined({**header, name: {"dtype": "F32", "shape": [5, 6]}}, tail), 3, "lacks dtype"),
        "overlapping": (joined({**header, name: header[name], other: {**header[other], "data_offsets": [begin, begin + 80]}}, tail),
                        3, "overlaps another one"),
        "offsets beyond the file": (joined(entry(data_offsets=[begin + 2**40, end + 2**40]), tail), 3, "data_offsets"),
        "negative offsets": (joined(entry(data_offsets=[-120, 0]), tail), 3, "data_offsets"),
        "offsets that are not integers": (joined(entry(data_offsets=[0.5, 120.5]), tail), 3, "data_offsets"),
        "offsets in the wrong order": (joined(entry(data_offsets=[end, begin]), tail), 3, "data_offsets"),
        "a shape larger than its data": (joined(entry(shape=[50, 6]), tail), 3, "data_offsets"),
        "a huge shape": (joined(entry(shape=[2**40, 2**40]), tail), 3, "too large for memory"),
        "a negative shape": (joined(entry(shape=[-5, -6]), tail), 3, "a dim that is not a size"),
        "an unknown type": (joined(entry(dtype="F33"), tail), 3, "unknown type 'F33'"),
        "another shape": (joined(entry(shape=[6, 5]), tail), 4, "'first.weight' is f32[6, 5], the artifact's is f32[5, 6]"),
        "another type": (joined(entry(dtype="I32"), tail), 4, "'first.weight' is i32[5, 6]"),
        "another rank": (joined(entry(shape=[30]), tail), 4, "'first.weight' is f32[30]"),
        "a tensor less": (joined({n + ("." if n == name else ""): e for n, e in header.items()}, tail), 4, "'first.weight' is missing"),
    }
    for what, (content, code, sentence) in cases_of.items():
        (c.work / "bad.safetensors").write_bytes(content)
        (c.work / "kept.safetensors").write_bytes(whole)
        c.refused(f"resume: {what}", code, sentence, "train", "h.so", *data, "--steps", 1, "--resume", "bad.safetensors", "--save",
                  "kept.safetensors")  # fmt: skip
        c.expect(f"resume: {what}: the save", (c.work / "kept.safetensors").read_bytes() == whole)
    c.refused("resume: no file", 2, "none.safetensors", "train", "h.so", *data, "--resume", "none.safetensors")
    np.save(c.work / "hnan.npy", np.full((40, 6), np.nan, np.float32))
    np.save(c.work / "hfar.npy", np.full(40, -1))
    for what, x, t, sentence in (("NaN", "hnan.npy", "ht.npy", "the loss of step 3 is nan"), ("labels", "hx.npy", "hfar.npy", "label -1 of input 't'")):
        c.refused(f"{what} after a save", 4, sentence, "train", "h.so", "--data", f"x0={x}", "--data", f"t={t}", "--resume",
                  "good.safetensors", "--save", "kept.safetensors")  # fmt: skip
        c.expect(f"{what}: the save", (c.work / "kept.safetensors").read_bytes() == whole)


def states(c):
    """A state that is written with a wrong shape or type stays as it is."""
    context = c.stridec.Model(str(c.work / "h.so")).context()
    before = values(context)
    for what, name, value in (("shape", "first.weight", np.ones((6, 5), np.float32)), ("type", "first.weight", np.ones((5, 6), np.int64)),
                              ("rank", "optimizer.step", np.ones(1)), ("name", "third.weight", np.ones((5, 6), np.float32))):
        try:
            context.write_state(name, value)
            c.expect(f"state of another {what}", False, "it is written")
        except (c.stridec.Error, ValueError, TypeError, KeyError) as error:
            c.expect(f"state of another {what}", name in str(error), str(error))
    c.expect("the states", all(np.array_equal(v, context.state(n)) for n, v in before.items()))


def check(c, cases):
    label(c, cases)
    few_values(c)
    checkpoint(c, cases)
    states(c)
