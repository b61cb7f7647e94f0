"""--layout: inputs, outputs and states whose dims lie in another order in memory, by the commands and in Python."""

import itertools
import json
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness import ROOT, contents, expect, stridec
from models import model, value

F32, I64, F16, U8, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT16, TensorProto.UINT8, TensorProto.BOOL


def module():
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import stridec as package

    return package


def in_order(array, order):
    """The same elements, with the dims in this order in memory."""
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def image():
    """A convolution of an image of any size, its Relu, and the means of its channels."""
    weight = np.random.default_rng(1).standard_normal((5, 3, 3, 3)).astype(np.float32)
    return model(
        [
            helper.make_node("Conv", ["image", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["pixels"], "relu"),
            helper.make_node("GlobalAveragePool", ["pixels"], ["means"], "pool"),
        ],
        [value("image", ["n", 3, "h", "w"])],
        [value("pixels", None), value("means", None)],
        [("w", weight)],
    )


def expected_image(x):
    weight = np.random.default_rng(1).standard_normal((5, 3, 3, 3)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    pixels = np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight), 0)
    return pixels, pixels.mean((2, 3), keepdims=True)


def passing(kinds):
    """Outputs y0, y1, ... are inputs x0, x1, ... with two dims changed places."""
    nodes = [helper.make_node("Transpose", [f"x{i}"], [f"y{i}"], f"turn{i}", perm=[1, 0, *range(2, len(shape))])
             for i, (_, shape) in enumerate(kinds)]  # fmt: skip
    inputs = [value(f"x{i}", shape, dtype) for i, (dtype, shape) in enumerate(kinds)]
    return model(nodes, inputs, [value(f"y{i}", None, dtype) for i, (dtype, _) in enumerate(kinds)])


def test_orders_of_images():
    """Every order of dims of input and output, by its letters or numbers, with sizes of 0 and 1; other strides still work."""
    onnx.save(image(), "image.onnx")
    draw = np.random.default_rng(2)
    orders = [order for order in itertools.permutations(range(4)) if order != (0, 1, 2, 3)]
    for number, order in enumerate(orders[::3]):
        word = "".join("nchw"[d] for d in order)
        layouts = {"image": word, "pixels": order[::-1]} if number % 2 else {"image": list(order)}
        with module().compile("image.onnx", layouts=layouts) as artifact:
            context = artifact.context()
            expect(artifact.inputs[0].memory_order == order, artifact.inputs[0].memory_order)
            for shape in ((2, 3, 7, 9), (1, 3, 8, 1), (0, 3, 4, 4), (1, 3, 33, 40)):
                x = draw.standard_normal(shape).astype(np.float32)
                pixels, means = expected_image(x)
                for given in (in_order(x, order), x, x[:, :, ::-1][:, :, ::-1], in_order(x, (1, 3, 0, 2))):
                    got = context.run(given)
                    expect(np.allclose(got[0], pixels, atol=1e-4) and np.allclose(got[1], means, atol=1e-4, equal_nan=True), (order, shape))
                if "pixels" in layouts and x.size:
                    wanted = in_order(pixels, order[::-1]).strides
                    expect(all(a == b for a, b, size in zip(got[0].strides, wanted, pixels.shape) if size > 1), got[0].strides)
                out = [np.empty(pixels.shape, np.float32), None]
                got = context.run(x, out=out)
                expect(np.allclose(out[0], pixels, atol=1e-4), "row-major memory for the output")


def test_types_and_ranks():
    """Of 1, 2 and 8 bytes and of 2 to 6 dims, one of them data that the run decides the size of."""
    kinds = [(U8, [3, "a", 5]), (F16, ["a", 4]), (I64, [2, 3, "a", 1, 4]), (F32, ["a", 2, 3, 2, 2, 3]), (BOOL, [4, "a"])]
    onnx.save(passing(kinds), "passing.onnx")
    layouts = {"x0": "nwc", "y0": [1, 2, 0], "x1": [1, 0], "y1": [1, 0], "x2": "ndhwc", "y2": "ncdhw", "x3": [5, 4, 3, 2, 1, 0],
               "y3": [0, 5, 1, 4, 2, 3], "x4": [1, 0]}  # fmt: skip
    draw = np.random.default_rng(3)
    with module().compile("passing.onnx", layouts=layouts) as artifact:
        for a in (1, 6, 0):
            given = [draw.integers(0, 2, [a if size == "a" else size for size in shape]).astype(helper.tensor_dtype_to_np_dtype(dtype))
                     for dtype, shape in kinds]  # fmt: skip
            for x, y in zip(given, artifact.context().run(*given)):
                expect(np.array_equal(x.swapaxes(0, 1), y), (x.shape, x.dtype))


def test_routines_and_sizes_of_data():
    """Routines take row-major memory (TopK), and sizes may depend on data (NonZero)."""
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["best", "places"], "top", axis=1),
        helper.make_node("NonZero", ["x"], ["found"], "found"),
    ]
    outputs = [value("best", None), value("places", None, I64), value("found", None, I64)]
    onnx.save(model(nodes, [value("x", ["n", 50])], outputs, [("k", np.array([3]))]), "routines.onnx")
    x = np.round(np.random.default_rng(4).standard_normal((7, 50))).astype(np.float32)
    with module().compile("routines.onnx", layouts=dict.fromkeys(("x", "best", "places", "found"), [1, 0])) as artifact:
        for _ in range(2):
            best, places, found = artifact.context().run(np.asfortranarray(x))
            expect(np.array_equal(best, -np.sort(-x, 1)[:, :3]), best)
            expect(np.array_equal(np.take_along_axis(x, places, 1), best), places)
            expect(np.array_equal(found, np.nonzero(x)) and found.strides[0] == 8, found)


def test_states():
    """A state keeps the values, whatever order it is in; its initial value, reading and writing are the model's dims."""
    node = helper.make_node("Add", ["past", "x"], ["present"], "add")
    outputs = [value("y", None), value("present", None)]
    nodes = [node, helper.make_node("Mul", ["present", "two"], ["y"], "mul")]
    inputs = [value("x", [2, 3, 4, 5]), value("past", [2, 3, 4, 5])]
    onnx.save(model(nodes, inputs, outputs, [("two", np.array(2, np.float32))]), "summing.onnx")
    x = np.random.default_rng(5).standard_normal((2, 3, 4, 5)).astype(np.float32)
    with module().compile("summing.onnx", states={"past": "present"}, layouts={"past": "nhwc", "y": "chwn"}) as artifact:
        context = artifact.context()
        expect(artifact.states[0].memory_order == (0, 2, 3, 1), artifact.states[0].memory_order)
        for step in (1, 2):
            (y,) = context.run(x)
            expect(np.allclose(y, 2 * step * x), f"step {step}")
            expect(np.allclose(context.state("past"), step * x), f"the state after step {step}")
        context.write_state("past", -x)
        expect(not context.run(x)[0].any(), "a written state")
        context.reset_state()
        expect(np.allclose(context.run(x)[0], 2 * x), "reset")


def test_commands():
    """check, inspect, run, bench and verify; what is wrong is named, and leaves nothing."""
    onnx.save(image(), "image.onnx")
    stridec("compile image.onnx -o image.so --layout image=nhwc --layout pixels=0,2,3,1", 0)
    manifest = json.loads(stridec("inspect image.so --format=json", 0).stdout)
    expect([v.get("memory_order") for v in (*manifest["inputs"], *manifest["outputs"])] == [[0, 2, 3, 1], [0, 2, 3, 1], None], manifest["inputs"])
    expect("[n, h, w, 3] in memory" in (text := stridec("inspect image.so", 0).stdout), text)
    x = np.random.default_rng(6).standard_normal((2, 3, 6, 5)).astype(np.float32)
    np.save("image.npy", x)
    stridec("run image.so -i image=image.npy -o pixels=pixels.npy", 0)
    expect(np.allclose(np.load("pixels.npy"), expected_image(x)[0], atol=1e-4), "run")
    stridec("verify image.onnx image.so --dim n=2,h=9,w=8", 0)
    stridec("verify image.onnx --layout image=nhwc --layout pixels=chwn --dim n=2,h=9,w=8", 0)
    stridec("bench image.so --dim n=2,h=32,w=32 --seconds 0.05", 0)
    stridec("compile image.onnx -o image.so --layout image=nhwc --specialize n=1 --specialize h=8", 0)
    stridec("verify image.onnx image.so --dim n=1,h=8,w=8", 0)
    stridec("compile image.onnx -o image.so --layout image=nchw", 0)
    expect("memory_order" not in json.loads(stridec("inspect image.so --format=json", 0).stdout)["inputs"][0], "the order of the model")
    before = contents()
    for layout, words in (
        ("image", "is not of the form name=order"),
        ("image=nhw", "'image' has 4 dims, nchw"),
        ("image=nhcc", "'image' has 4 dims, nchw"),
        ("image=ndhwc", "'image' has 4 dims, nchw"),
        ("image=0,2,3", "'image' has 4 dims"),
        ("image=0,2,3,3", "'image' has 4 dims"),
        ("image=0,1,2,x", "'image' has 4 dims"),
        ("picture=nhwc", "the model has no such input, output or state"),
        ("image=nhwc --layout image=nchw", "names 'image' twice"),
    ):
        error = stridec(f"compile image.onnx -o never.so --layout {layout}", 1).stderr
        expect(words in error, f"{layout}: {error}")
    expect(contents() == before, "files are left")


def test_functions():
    """A layout is of each function that has the name, or of one; a state that functions share has one."""
    onnx.save(image(), "image.onnx")
    both = "compile --function a=image.onnx --function b=image.onnx -o both.so"
    stridec(f"{both} --layout b:image=nhwc --layout pixels=nhwc", 0)
    functions = json.loads(stridec("inspect both.so --format=json", 0).stdout)["functions"]
    expect(["memory_order" in f["inputs"][0] for f in functions] == [False, True], functions[0]["inputs"])
    expect(all("memory_order" in f["outputs"][0] for f in functions), functions[0]["outputs"])
    expect("no function's model has 'q'" in stridec(f"{both} --layout q=nhwc", 1).stderr, "an unknown name")
