"""The loss ctc at sizes that the run decides, against all paths that spell the labels. run.py compares its training with PyTorch."""

import itertools

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper


def spelled(path, blank):
    return [c for i, c in enumerate(path) if c != blank and (i == 0 or c != path[i - 1])]


def by_enumeration(logits, label, blank):
    """-log of the probability that the steps [steps, classes] spell the label."""
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    total = 0.0
    for path in itertools.product(range(logits.shape[1]), repeat=len(logits)):
        if spelled(path, blank) == list(label):
            total += np.exp(sum(logs[i, c] for i, c in enumerate(path)))
    return -np.log(total) if total > 0 else np.inf


def check(c):
    random = np.random.default_rng(8)
    graph = h.make_graph([h.make_node("MatMul", ["x", "w"], ["y"])], "g", [h.make_tensor_value_info("x", T.FLOAT, ["steps", "batch", 3])],
                         [h.make_tensor_value_info("y", T.FLOAT, ["steps", "batch", 3])],
                         [numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")])  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), c.work / "steps.onnx")
    text = "loss=ctc,logits=y,labels=t,input_lengths=n,target_lengths=m,blank=2,functions=eval"
    c.works("compile", "compile", "steps.onnx", "-o", "steps.so", "-q", "--train", text)
    c.works("sum", "compile", "steps.onnx", "-o", "sum.so", "-q", "--train", text + ",zero_infinity=true,reduction=sum")
    mean, total = (c.stridec.Model(str(c.work / f"{name}.so")).context() for name in ("steps", "sum"))
    for steps, labels, used, sizes in (
        (5, [[0, 1, -1], [1, 1, 0], [7, 7, 7]], [5, 5, 4], [2, 3, 0]),  # what is after a row's labels may be anything
        (4, [[0, 0]], [4], [2]),
        (1, [[1]], [1], [1]),
        (3, [[0, 0], [0, 1]], [2, 3], [2, 2]),  # two equal labels need three steps
        (2, np.zeros((2, 0)), [2, 1], [0, 0]),
    ):
        x = random.standard_normal((steps, len(used), 3)).astype(np.float32)
        each = [by_enumeration(x[:used[i], i].astype(np.float64), labels[i][: sizes[i]], 2) for i in range(len(used))]
        inputs = [x, np.asarray(labels, np.int64), np.asarray(used), np.asarray(sizes)]
        got, want = float(mean.run(*inputs, function="eval")[0]), np.mean([e / max(s, 1) for e, s in zip(each, sizes)])
        c.expect(f"{steps} steps, mean", np.allclose(got, want, rtol=1e-5), f"{got} {want}")
        got, want = float(total.run(*inputs, function="eval")[0]), sum(e for e in each if np.isfinite(e))
        c.expect(f"{steps} steps, sum without infinite ones", np.allclose(got, want, rtol=1e-5), f"{got} {want}")
    c.refused("layout", 1, "write layout=TNC", "compile", "steps.onnx", "-o", "r.so", "--train", text + ",layout=CNT")
    c.refused("blank", 1, "blank is 3, and the output has 3 classes", "compile", "steps.onnx", "-o", "r.so", "--train",
              text.replace("blank=2", "blank=3"))  # fmt: skip
    x = random.standard_normal((5, 2, 3)).astype(np.float32)
    for what, labels, sizes, sentence in (
        ("a class too many", [[0, 1], [3, 1]], [2, 2], "label 3 of input 't' is not one of the 3 classes"),
        ("a negative label", [[0, 1], [0, -1]], [2, 2], "label -1 of input 't' is not one of the 3 classes"),
        ("a row that is too long", [[0, 1], [0, 1]], [2, 3], "input 'm' has a row longer than the labels"),
        ("a negative length", [[0, 1], [0, 1]], [2, -1], "input 'm' has a row"),
    ):
        try:
            got = mean.run(x, np.asarray(labels), np.asarray([5, 5]), np.asarray(sizes), function="eval")
            c.expect(what, False, f"it gives {got[0]}")
        except c.stridec.Error as error:
            c.expect(what, sentence in str(error), str(error))
