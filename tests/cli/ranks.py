"""Models whose ranks, or the meaning of whose sizes, depend on a size that the run tells: compiled code gives what onnxruntime
gives, or ends with a sentence. Models that leave a rank open are refused."""

import numpy as np
import onnxruntime
from onnx import helper

from harness import expect, stridec
from models import F32, I64, model, value

N = helper.make_node
ZERO, ONE, UNIT = ("zero", np.array([0])), ("one", np.array([1])), ("unit", np.array(1))


def numbers(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def branches(declared):
    """torch.squeeze(x, 0) as its exporter writes it."""
    then = helper.make_graph([N("Squeeze", ["x", "zero"], ["t"])], "then", [], [value("t", None)])
    otherwise = helper.make_graph([N("Identity", ["x"], ["e"])], "else", [], [value("e", None)])
    nodes = [
        N("Shape", ["x"], ["s"]),
        N("Gather", ["s", "zero"], ["d"]),
        N("Equal", ["d", "one"], ["c"]),
        N("If", ["c"], ["q"], then_branch=then, else_branch=otherwise),
        N("Relu", ["q"], ["y"]),
    ]
    return model(nodes, [value("x", ["b", 3, 4])], [value("y", declared)], [ZERO, ONE])


def squeezed(shape, declared, *behind):
    return model([N("Squeeze", ["x"], ["q"]), *(behind or [N("Identity", ["q"], ["y"])])], [value("x", shape)], [value("y", declared)], [ZERO])


def declared_inside(model_of, shape):
    model_of.graph.value_info.append(value("q", shape))
    return model_of


MEAN = N("ReduceMean", ["q"], ["y"], axes=[0], keepdims=0)


def old(made):
    """Axes of reductions are attributes."""
    made.opset_import[0].version = 17
    return made


def row(declared):
    return model(
        [N("Slice", ["x", "zero", "one", "zero"], ["s"]), N("Squeeze", ["s"], ["y"])],
        [value("x", ["b", 3, 4])],
        [value("y", declared)],
        [ZERO, ONE],
    )


def found(declared):
    return model([N("NonZero", ["x"], ["n"]), N("Squeeze", ["n"], ["y"])], [value("x", ["b"])], [value("y", declared, I64)])


def with_parameter(node, shape, *weights):
    return model([node], [value("x", shape)], [value("y", None)], weights)


def addressed(declared):
    return model([N("GatherND", ["x", "i"], ["y"])], [value("x", [4, 5]), value("i", ["n", "b"], I64)], [value("y", declared)])


def parts():
    made = model([N("Split", ["x"], ["y", "z"], axis=1)], [value("x", [2, "b"])], [value("y", None), value("z", None)])
    made.opset_import[0].version = 13
    return made


def of_x(*shape):
    """Inputs by b: x with b where the shape has None."""
    return lambda b: {"x": numbers(*(b if size is None else size for size in shape))}


# A size that a guard fixes has a range of one number, and the run ends there.
SERVES_ONE, SERVES_TWO = "(b) is 2; this artifact serves 1..1", "(b) is 1; this artifact serves 2..2"

# name: model, inputs by b, and for b = 1 and b = 2 either None (what onnxruntime gives) or words of the sentence
CASES = {
    "kept": (squeezed(["b", 1, 4], ["b", 4]), of_x(None, 1, 4), "Squeeze keeps dim 0", None),
    "removed": (squeezed(["b", 1, 4], [4]), of_x(None, 1, 4), None, SERVES_ONE),
    "one_of_two": (squeezed(["b", "n", 4], [None, 4]), lambda b: {"x": numbers(b, 3 - b, 4)}, None, None),
    "both_kept": (squeezed(["b", "n", 4], [None, None, 4]), lambda b: {"x": numbers(b, 3, 4)}, "Squeeze keeps dim 0", None),
    "value_info": (declared_inside(squeezed(["b", 1, 4], None, N("Relu", ["q"], ["y"])), ["b", 4]), of_x(None, 1, 4), "Squeeze keeps dim 0", None),
    "read_by_relu": (squeezed(["b", 1, 4], [4], N("Relu", ["q"], ["y"])), of_x(None, 1, 4), None, SERVES_ONE),
    "mean": (old(squeezed(["b", 3, 4], None, MEAN)), of_x(None, 3, 4), None, SERVES_ONE),
    "mean_of_declared": (old(declared_inside(squeezed(["b", 3, 4], None, MEAN), ["b", 3, 4])), of_x(None, 3, 4), "Squeeze keeps dim 0", None),
    "row": (row(None), of_x(None, 3, 4), None, None),
    "other_is_one": (squeezed(["b", 1, 4], None), of_x(None, 1, 4), "Squeeze keeps dim 0", None),
    "found": (found([None]), lambda b: {"x": np.arange(b + 1, dtype=np.float32)}, "Squeeze keeps dim 1", None),
    "found_one": (found([]), lambda b: {"x": np.arange(b + 1, dtype=np.float32)}, None, "Squeeze removes dim 1"),
    "branch_kept": (branches(["b", 3, 4]), of_x(None, 3, 4), "takes the then_branch, which is left out", None),
    "branch_removed": (branches([3, 4]), of_x(None, 3, 4), None, SERVES_ONE),
    "prelu": (with_parameter(N("PRelu", ["x", "p"], ["y"]), [3, "b"], ("p", numbers(2))), of_x(3, None), SERVES_TWO, None),
    "gemm": (with_parameter(N("Gemm", ["x", "w", "p"], ["y"]), ["b", 3], ("w", numbers(3, 4)), ("p", numbers(2, 4))), of_x(None, 3), SERVES_TWO, None),
    "layer_norm": (with_parameter(N("LayerNormalization", ["x", "p"], ["y"]), [3, "b"], ("p", numbers(2))), of_x(3, None), SERVES_TWO, None),
    "batch_norm": (
        with_parameter(N("BatchNormalization", ["x", "p", "p", "p", "v"], ["y"]), [3, "b", 2], ("p", numbers(2)), ("v", np.abs(numbers(2)))),
        of_x(3, None, 2),
        SERVES_TWO,
        None,
    ),
    "gather_rows": (addressed([None, 5]), lambda b: {"x": numbers(4, 5), "i": np.ones((3, b), np.int64)}, None, SERVES_ONE),
    "gather_numbers": (addressed([None]), lambda b: {"x": numbers(4, 5), "i": np.ones((3, b), np.int64)}, SERVES_TWO, None),
    "parts": (parts(), of_x(2, None), "does not divide into 2 equal parts", None),
}


def test_ranks_that_sizes_decide():
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for name, (made, inputs, at_one, at_two) in CASES.items():
        with open("rank.onnx", "wb") as file:
            file.write(made.SerializeToString())
        stridec("check rank.onnx", 0)
        stridec("compile rank.onnx -o rank.so", 0)
        for b, words in ((1, at_one), (2, at_two)):
            given = inputs(b)
            arguments = ["run", "rank.so", "--output", "y=y.npy"]
            for key, array in given.items():
                np.save(f"{key}.npy", array)
                arguments += ["--input", f"{key}={key}.npy"]
            done = stridec(arguments, 4 if words else 0)
            if words:
                expect(words in done.stderr, f"{name}, b = {b}: {done.stderr}")
                continue
            session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
            wanted, got = session.run(["y"], given)[0], np.load("y.npy")
            expect(wanted.shape == got.shape, f"{name}, b = {b}: {got.shape} instead of {wanted.shape}")
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_open_ranks_are_refused():
    for made in (squeezed(["b", "n", 4], None), squeezed(["b", "n", 4], None, N("Relu", ["q"], ["y"]))):
        with open("rank.onnx", "wb") as file:
            file.write(made.SerializeToString())
        for command in ("check rank.onnx", "compile rank.onnx -o rank.so"):
            done = stridec(command, 5)
            text = done.stdout + done.stderr
            expect("Squeeze has no axes" in text and "--dim b=1" in text and "'q'" in text, text)
    stridec("compile rank.onnx -o rank.so --dim b=2..8,n=1", 0)
    np.save("x.npy", numbers(2, 1, 4))
    stridec("run rank.so --input x=x.npy --output y=y.npy", 0)
    expect(np.load("y.npy").shape == (2, 4), np.load("y.npy").shape)
