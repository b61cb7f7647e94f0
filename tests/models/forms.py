"""Models of unusual form: what the standard allows and few exporters write. Each is {name: (model, {input: array})}."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _value(name, shape, dtype=F32):
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(nodes, inputs, outputs, weights=(), opset=18):
    graph = helper.make_graph(nodes, "form", inputs, outputs, [numpy_helper.from_array(np.asarray(w), n) for n, w in weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3 if opset < 9 else 9)


def _numbers(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def _nested(depth, condition, x):
    """(nodes, name): an If whose branches hold an If, and so on."""
    if depth == 0:
        return [helper.make_node("Relu", [x], ["inner"])], "inner"
    nodes, made = _nested(depth - 1, condition, x)
    other = f"other{depth}"
    yes = helper.make_graph(nodes, f"then{depth}", [], [_value(made, None)])
    no = helper.make_graph([helper.make_node("Neg", [x], [other])], f"else{depth}", [], [_value(other, None)])
    return [helper.make_node("If", [condition], [f"if{depth}"], then_branch=yes, else_branch=no)], f"if{depth}"


def forms():
    node = helper.make_node
    relu = node("Relu", ["x"], ["y"])
    x, y = _value("x", ["n"]), _value("y", ["n"])
    line = {"x": _numbers(5)}
    nested, last = _nested(20, "c", "x")
    size = _numbers(2)
    old = [("s", size), ("b", size), ("m", size), ("v", np.ones(2, np.float32)), ("shape", np.array([-1, 72])), ("w", _numbers(72, 5)),
           ("c", _numbers(5))]  # fmt: skip
    deep = [node("Neg" if i % 2 else "Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(1000)]
    many = [f"x{i}" for i in range(200)]
    return {
        "no_inputs": (_model([node("Add", ["a", "b"], ["y"])], [], [_value("y", [3])], [("a", _numbers(3)), ("b", _numbers(3))]), {}),
        "output_is_input": (_model([relu], [x], [_value("x", ["n"]), y]), line),
        "unused_input": (_model([relu], [x, _value("z", ["m", 3], I64)], [y]), {**line, "z": np.ones((2, 3), np.int64)}),
        "output_twice": (_model([relu, node("Identity", ["y"], ["z"])], [x], [y, _value("z", ["n"])]), line),
        "weight_is_output": (_model([relu], [x], [y, _value("w", [2, 2])], [("w", _numbers(2, 2))]), line),
        "scalar": (_model([node("Add", ["x", "c"], ["y"])], [_value("x", [])], [_value("y", [])], [("c", np.float32(2))]),
                   {"x": np.array(3, np.float32)}),
        "no_columns": (_model([node("MatMul", ["x", "w"], ["y"])], [_value("x", ["n", 0])], [_value("y", ["n", 4])],
                              [("w", _numbers(0, 4))]), {"x": _numbers(3, 0)}),
        "no_rows": (_model([node("Softmax", ["x"], ["y"])], [_value("x", ["n", 4])], [_value("y", ["n", 4])]), {"x": _numbers(0, 4)}),
        "nested_20_deep": (_model([*nested, node("Identity", [last], ["y"])], [x, _value("c", [], BOOL)], [y]),
                           {**line, "c": np.array(True)}),
        "large_constant": (_model([node("Constant", [], ["w"], value=numpy_helper.from_array(_numbers(1000, 1000))),
                                   node("MatMul", ["x", "w"], ["y"])], [_value("x", ["n", 1000])], [_value("y", ["n", 1000])]),
                           {"x": _numbers(2, 1000)}),
        "opset_7": (_model([node("BatchNormalization", ["x", "s", "b", "m", "v"], ["a"]), node("Dropout", ["a"], ["d"], ratio=0.5),
                            node("Upsample", ["d"], ["u"], scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"),
                            node("Reshape", ["u", "shape"], ["q"]), node("Gemm", ["q", "w", "c"], ["g"]), node("Softmax", ["g"], ["y"])],
                           [_value("x", ["n", 2, 3, 3])] + [_value(k, [2]) for k in "sbmv"] +
                           [_value("shape", [2], I64), _value("w", [72, 5]), _value("c", [5])],  # as old files list them
                           [_value("y", ["n", 5])], old, opset=7), {"x": _numbers(2, 2, 3, 3)}),
        "names_of_all_kinds": (_model([node("Relu", ["größe/x:0"], ['名前 "q"\\']), node("Neg", ['名前 "q"\\'], ["a b <c>"])],
                                      [_value("größe/x:0", ["длина"])], [_value("a b <c>", ["длина"])]), {"größe/x:0": _numbers(4)}),
        "names_that_meet": (_model([node("Relu", ["a.b"], ["c.d"]), node("Neg", ["a_b"], ["c_d"]), node("Add", ["c.d", "c_d"], ["c/d"])],
                                   [_value("a.b", ["n.x"]), _value("a_b", ["n_x"])], [_value(k, None) for k in ("c.d", "c_d", "c/d")]),
                            {"a.b": _numbers(3), "a_b": _numbers(3)}),
        "sizes_without_names": (_model([relu], [_value("x", ["", None])], [_value("y", ["", None])]), {"x": _numbers(2, 3)}),
        "sizes_as_text": (_model([relu], [_value("x", ["2*n", "n", "floor(n/2)", "max(1, q)"])], [_value("y", None)]),
                          {"x": _numbers(6, 3, 1, 4)}),
        "absent_input": (_model([node("Clip", ["x", "", "most"], ["y"])], [x], [y], [("most", np.float32(0.5))]), line),
        "twelve_dims": (_model([node("Transpose", ["x"], ["y"], perm=list(range(11, -1, -1)))], [_value("x", ["n"] + [2] * 11)],
                               [_value("y", None)]), {"x": _numbers(3, *[2] * 11)}),
        "a_thousand_deep": (_model(deep, [_value("v0", ["n"])], [_value("v1000", ["n"])]), {"v0": _numbers(4)}),
        "two_hundred_inputs": (_model([node("Concat", many, ["y"], axis=0)], [_value(k, ["n"]) for k in many], [_value("y", None)]),
                               {k: _numbers(2) for k in many}),
        "loop_of_data": (_model([node("Loop", ["t", "", "x"], ["y"], body=helper.make_graph(
            [node("Add", ["v", "v"], ["w"]), node("Identity", ["go"], ["on"])], "body",
            [_value("i", [], I64), _value("go", [], BOOL), _value("v", ["n"])], [_value("on", [], BOOL), _value("w", ["n"])]))],
            [_value("t", [], I64), x], [y]), {**line, "t": np.array(5)}),
        "shape_of_data": (_model([node("Reshape", ["x", "s"], ["y"])], [_value("x", ["n", 4]), _value("s", [2], I64)], [_value("y", None)]),
                          {"x": _numbers(3, 4), "s": np.array([2, 6])}),
        "window_beyond_image": (_model([node("MaxPool", ["x"], ["y"], kernel_shape=[5, 5], pads=[2, 2, 2, 2])],
                                     [_value("x", ["n", 1, "h", "w"])], [_value("y", None)]), {"x": _numbers(1, 1, 1, 2)}),
    }  # fmt: skip
