"""What the tests of the Python package share: expectations, the package on the path, models, and the list of tests."""

import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/pt2/programs"
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("STRIDEC_PROGRAM", os.path.abspath(os.environ.get("stridec", ROOT / "build/stridec")))

import stridec  # noqa: E402


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def equal(actual, expected, message):
    good = np.array_equal(np.asarray(actual), np.asarray(expected)) and np.shape(actual) == np.shape(expected)
    expect(good, f"{message}: {actual} instead of {expected}")


def refused(call, code, *words):
    """The error, which must have the code and contain the words."""
    try:
        call()
    except stridec.Error as error:
        expect(error.code == code, f"code {error.code} instead of {code}: {error}")
        for word in words:
            expect(word in str(error), f"'{word}' is not in: {error}")
        return error
    raise AssertionError(f"nothing is refused; expected {code}")


def arrays(name):
    """Inputs and results of a program of tests/pt2, in order."""
    data = np.load(PROGRAMS / f"{name}.npz")
    return ([data[f"i{k}"] for k in range(sum(key[0] == "i" for key in data))],
            [data[f"o{k}"] for k in range(sum(key[0] == "o" for key in data))])


def write_onnx(path, nodes, inputs, outputs, weights=None):
    """An ONNX model: inputs and outputs are (name, TensorProto type, dims), weights are arrays by name."""
    import onnx
    from onnx import helper, numpy_helper

    values = [[helper.make_tensor_value_info(*value) for value in values] for values in (inputs, outputs)]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph([helper.make_node(op, i, o, **a) for op, i, o, a in nodes], "test", *values, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def own_tests(module):
    """The functions of a module whose names begin with `test_`, in the order of the source."""
    found = [f for name, f in vars(module).items() if name.startswith("test_")]
    return sorted(found, key=lambda f: f.__code__.co_firstlineno)
