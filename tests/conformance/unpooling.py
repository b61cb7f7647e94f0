"""MaxPool whose indices MaxUnpool takes, for contrib.py: dims, padding, strides, dilations, sizes that windows do not cover."""

import numpy as np
from onnx import helper


def pooled(output_shape, between, unpool, **pool):
    """Nodes that pool x0 and put the values back where they were; `output_shape`: "x1", x0's own, or none. `unpool`: of
    these attributes."""

    def nodes(names, results):
        made = [helper.make_node("MaxPool", [names[0]], ["pooled", "where"], **pool)]
        inputs = ["pooled", "where"]
        if between:  # the indices stay MaxPool's
            made += [helper.make_node("Identity", ["where"], ["same"]), helper.make_node("Neg", ["pooled"], ["other"])]
            inputs = ["other", "same"]
        if output_shape == "own":
            made.append(helper.make_node("Shape", [names[0]], ["shape"]))
        if output_shape:
            inputs.append("shape" if output_shape == "own" else output_shape)
        return [*made, helper.make_node("MaxUnpool", inputs, results, **unpool)]

    return nodes


def cases(case, rng):
    def pool(name, shape, output_shape="own", given=(), between=False, **attributes):
        x = rng.standard_normal(shape).astype(np.float32)
        same = {k: attributes[k] for k in ("kernel_shape", "strides", "pads") if k in attributes}
        # onnxruntime refuses an output_shape that is smaller than what the attributes give; they decide nothing else.
        small = {"kernel_shape": [1] * (len(shape) - 2)}
        reference = pooled(output_shape, between, small, **attributes) if output_shape else None
        case(f"unpool_{name}", "MaxUnpool", [x, *given], domain="", nodes=pooled(output_shape, between, same, **attributes),
             reference=reference, given=range(1, 1 + len(given)))  # fmt: skip

    two = dict(kernel_shape=[2, 2], strides=[2, 2])
    pool("even", (2, 3, 6, 8), None, **two)
    pool("odd", (2, 3, 7, 5), **two)
    pool("odd_between", (2, 3, 7, 5), between=True, **two)
    pool("odd_1d", (2, 3, 7), kernel_shape=[2], strides=[2])
    pool("odd_3d", (2, 2, 5, 7, 3), kernel_shape=[2, 3, 2], strides=[2, 3, 2])
    pool("pads", (2, 3, 7, 6), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    pool("pads_uneven", (1, 3, 7, 6), kernel_shape=[3, 2], strides=[2, 2], pads=[0, 1, 1, 0])
    pool("pads_inferred", (2, 3, 7, 7), None, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    pool("overlapping", (2, 2, 8, 9), kernel_shape=[3, 3], strides=[1, 2])
    pool("dilated", (2, 2, 9, 8), kernel_shape=[2, 2], strides=[2, 2], dilations=[2, 3])
    pool("ceil", (2, 2, 7, 9), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    pool("ceil_inferred", (1, 1, 8, 8), None, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    pool("columns", (2, 3, 7, 5), storage_order=1, **two)
    pool("columns_3d", (2, 2, 5, 7, 3), storage_order=1, kernel_shape=[2, 3, 2], strides=[2, 3, 2])
    pool("wanted", (1, 2, 5, 5), "x1", [np.array([1, 2, 7, 6])], **two)
    pool("wanted_1d", (2, 3, 7), "x1", [np.array([2, 3, 9])], kernel_shape=[2], strides=[2])
    pool("same_upper", (2, 2, 7, 5), auto_pad="SAME_UPPER", **two)
    values, where = rng.standard_normal((2, 2, 2, 3)).astype(np.float32), rng.permutation(2 * 2 * 4 * 6)[:24].reshape(2, 2, 2, 3)
    case("unpool_given", "MaxUnpool", [values, where], domain="", **two)
