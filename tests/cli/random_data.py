"""Random inputs are valid ones: `verify`, `bench` and `run --random` go through for whatever an input may index or size."""

import json

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness import expect, stridec
from models import F32, I64, model, value

BOOL, I32, U8 = TensorProto.BOOL, TensorProto.INT32, TensorProto.UINT8


def _ints(*values):
    return np.array(values, np.int64)


def _n(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def _loop():
    body = helper.make_graph(
        [_n("Identity", "c", "d"), _n("Add", "s one", "t")],
        "body",
        [value("i", [], I64), value("c", [], BOOL), value("s", [], F32)],
        [value("d", [], BOOL), value("t", [], F32)],
    )
    return model([_n("Loop", "m keep zero", "y", body=body)], [value("m", [], I64)], [value("y", None)],
                 [("one", np.float32(1)), ("zero", np.float32(0)), ("keep", np.array(True))])  # fmt: skip


TABLE = ("table", np.arange(20, dtype=np.float32).reshape(2, 10))
ROWS = ("rows", np.arange(300, dtype=np.float32).reshape(100, 3))

# The model, and the range of each input that the manifest is to give (none: any will do).
MODELS = {
    "gather": (model([_n("Gather", "table i", "y")], [value("i", ["n"], I64)], [value("y", None)], [TABLE]), {"i": (0, 1)}),
    "gather_i32": (model([_n("Gather", "table i", "y", axis=1)], [value("i", ["n", 2], I32)], [value("y", None)], [TABLE]), {"i": (0, 9)}),
    "gather_of_input": (model([_n("Gather", "x i", "y")], [value("x", ["rows", 4]), value("i", ["n"], I64)], [value("y", None)]), {"i": (0, "rows - 1")}),
    "cast_and_add": (model([_n("Cast", "i", "j", to=I64), _n("Add", "j two", "k"), _n("Unsqueeze", "k axis", "u"), _n("Gather", "rows u", "y")],
                           [value("i", ["n"], I32)], [value("y", None)], [ROWS, ("two", _ints(2)), ("axis", _ints(0))]), {"i": (-2, 97)}),
    "from_the_end": (model([_n("Less", "i zero", "b"), _n("Add", "i count", "j"), _n("Where", "b j i", "k"), _n("Gather", "rows k", "y")],
                           [value("i", ["n"], I64)], [value("y", None)], [ROWS, ("zero", _ints(0)), ("count", _ints(100))]), {"i": (0, 99)}),
    "fields": (model([_n("Add", "i offsets", "k"), _n("Gather", "rows k", "y")], [value("i", ["n", 3], I64)], [value("y", None)], [ROWS, ("offsets", _ints(0, 40, 70))]), {"i": (0, 29)}),
    "positions": (model([_n("Cast", "m", "c", to=I64), _n("CumSum", "c one", "s"), _n("Sub", "s first", "p"), _n("Gather", "rows p", "y")],
                        [value("m", ["n", "t"], I64)], [value("y", None)], [ROWS, ("one", np.array(1)), ("first", _ints(1))]), {}),
    "elements": (model([_n("GatherElements", "x i", "y", axis=1)], [value("x", ["n", 5]), value("i", ["n", 3], I64)], [value("y", None)]), {"i": (0, 4)}),
    "nd": (model([_n("GatherND", "rows i", "y")], [value("i", ["n", 2], I64)], [value("y", None)], [ROWS]), {"i": (0, 2)}),
    "scatter_elements": (model([_n("ScatterElements", "x i u", "y", axis=1)], [value("x", ["n", 5]), value("i", ["n", 1], I64), value("u", ["n", 1])], [value("y", None)]), {"i": (0, 4)}),
    "scatter_nd": (model([_n("ScatterND", "x i u", "y")], [value("x", ["n", 5]), value("i", [1, 1], I64), value("u", [1, 5])], [value("y", None)]), {"i": (0, "n - 1")}),
    "one_hot": (model([_n("OneHot", "i depth values", "y")], [value("i", ["n"], I64), value("depth", [], I64)], [value("y", None)], [("values", np.array([0, 1], np.float32))]), {}),
    "top_k": (model([_n("TopK", "x k", "v i")], [value("x", ["n", 7]), value("k", [1], I64)], [value("v", None), value("i", None, I64)]), {}),
    "range": (model([_n("Range", "a b c", "y")], [value(name, [], I64) for name in "abc"], [value("y", None, I64)]), {}),
    "slice": (model([_n("Slice", "x s e", "y")], [value("x", ["n", 7]), value("s", [1], I64), value("e", [1], I64)], [value("y", None)]), {}),
    "pad": (model([_n("Pad", "x p", "y")], [value("x", ["n", 7]), value("p", [4], I64)], [value("y", None)]), {}),
    "reshape": (model([_n("Reshape", "x s", "y")], [value("x", ["n", 6]), value("s", [2], I64)], [value("y", None)]), {}),
    "expand": (model([_n("Expand", "x s", "y")], [value("x", ["n", 1]), value("s", [2], I64)], [value("y", None)]), {}),
    "tile": (model([_n("Tile", "x r", "y")], [value("x", ["n", 3]), value("r", [2], I64)], [value("y", None)]), {}),
    "filled": (model([_n("ConstantOfShape", "s", "y")], [value("s", [2], I64)], [value("y", None)]), {}),
    "trips": (_loop(), {}),
    "lengths": (model([_n("LSTM", "x w r b l", "y", hidden_size=3)], [value("x", ["t", "n", 2]), value("l", ["n"], I32)], [value("y", None)],
                      [("w", np.full((1, 12, 2), 0.1, np.float32)), ("r", np.full((1, 12, 3), 0.1, np.float32)), ("b", np.zeros((1, 24), np.float32))]), {}),
    "masked": (model([_n("Compress", "x c", "y", axis=0)], [value("x", [4, 3]), value("c", [4], BOOL)], [value("y", None)]), {}),
    "picture": (model([_n("ImageDecoder", "x", "y")], [value("x", ["bytes"], U8)], [value("y", None, U8)], opset=20), {}),
    "logarithm": (model([_n("Log", "x", "y")], [value("x", ["n"])], [value("y", None)]), {"x": (0, None)}),
}  # fmt: skip


def test_random_data_is_valid():
    for name, (made, ranges) in MODELS.items():
        onnx.save(made, "made.onnx")
        stridec("compile made.onnx -o made.so", 0)
        more = " --dim bytes=500" if name == "picture" else ""
        for command in ("verify made.onnx --runs 2", "verify made.onnx made.so --runs 2", "bench made.so --seconds 0.01", "run made.so --random"):
            done = stridec(command + more)
            expect(done.returncode == 0, f"{name}: {command}: {done.stdout}{done.stderr}")
        inputs = {each["name"]: each for each in json.loads(stridec("inspect made.so --format=json", 0).stdout)["inputs"]}
        for given, (least, most) in ranges.items():
            range_ = inputs[given].get("range", {})
            expect((range_.get("minimum"), range_.get("maximum")) == (least, most), f"{name}: {given}: {range_}")
    # Few sizes fit: each element 1 or the dim's size, which is beyond what is drawn.
    shape = _n("Expand", "x s", "y")
    onnx.save(model([shape], [value("x", ["n", 9, 8, 7]), value("s", [4], I64)], [value("y", None)]), "shape.onnx")
    stridec("compile shape.onnx -o shape.so", 0)
    for seed in range(3):
        stridec(f"run shape.so --random --dim n=11 --seed {seed}", 0)
        stridec(f"verify shape.onnx shape.so --dim n=11 --runs 1 --seed {seed}", 0)
    text = stridec("inspect made.so", 0).stdout
    expect("x  f32  [n]  0.." in text, text)
