"""Arrays in and out: types, layouts, and what is refused instead of misread."""

import functools

import numpy as np
from onnx import TensorProto

import harness
import stridec
from harness import equal, expect, refused

TYPES = ["FLOAT", "FLOAT16", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL"]
NARROW = {"BFLOAT16": "bfloat16", "FLOAT8E4M3FN": "float8_e4m3fn", "FLOAT8E5M2": "float8_e5m2"}


@functools.lru_cache(maxsize=None)
def passing():
    """Gives each of its inputs back, in pieces of two columns swapped."""
    names = [*TYPES, *NARROW]
    nodes = [("Transpose", [f"x_{n}"], [f"y_{n}"], {"perm": [1, 0]}) for n in names]
    inputs = [(f"x_{n}", getattr(TensorProto, n), ["a", "b"]) for n in names]
    outputs = [(f"y_{n}", getattr(TensorProto, n), ["b", "a"]) for n in names]
    harness.write_onnx("passing.onnx", nodes, inputs, outputs)
    return stridec.compile("passing.onnx", threads=1)


@functools.lru_cache(maxsize=None)
def doubling():
    """y = 2 * x, z = x + 1 over [n, 3], f32."""
    nodes = [("Add", ["x", "x"], ["y"], {}), ("Constant", [], ["one"], {"value_float": 1.0}), ("Add", ["x", "one"], ["z"], {})]
    shape = ("x", TensorProto.FLOAT, ["n", 3])
    harness.write_onnx("doubling.onnx", nodes, [shape], [("y", *shape[1:]), ("z", *shape[1:])])
    return stridec.compile("doubling.onnx", threads=1)


def samples(shape):
    found = {}
    for value in passing().inputs:
        bits = np.random.default_rng(len(found)).integers(0, 2 if value.dtype.kind == "b" else 100, shape)
        found[value.name] = bits.astype(value.dtype)
    return found


def test_every_type_passes_unchanged():
    given = samples((2, 3))
    for name, result in zip(given, passing()(**given).values()):
        expect(result.dtype == given[name].dtype, f"{name}: {result.dtype}")
        expect(result.T.tobytes() == given[name].tobytes(), f"{name}: {result} {given[name]}")


def test_narrow_floats_pass_as_unsigned_integers():
    given = samples((2, 3))
    for name, own in NARROW.items():
        key = f"x_{name}"
        expect(given[key].dtype.name == own, f"{key} is {given[key].dtype}")
        given[key] = given[key].view(f"u{given[key].dtype.itemsize}")
    for name, result in zip(given, passing()(**given).values()):
        expect(result.T.tobytes() == given[name].tobytes(), name)


def test_layouts():
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    record = np.zeros(4, dtype=[("pad", "i1"), ("x", "f4", 3)])
    record["x"] = base[:, :3]
    read_only = base[:, :3].copy()
    read_only.flags.writeable = False
    cases = [base[:, ::2], base[::-1, 2::-1], base[:, :3], np.broadcast_to(base[0, :3], (5, 3)), base.T[:, :3], base[:0, :3],
             record["x"], read_only, np.asfortranarray(base[:, :3]), np.zeros((1, 3), np.float32)]
    for x in cases:
        for _ in range(2):  # the second call has a plan
            y, z = doubling()(x).values()
            equal(y, 2 * x, f"strides {x.strides}")
            equal(z, x + 1, f"strides {x.strides}")


def test_results_belong_to_the_caller():
    x = np.ones((2, 3), np.float32)
    first = doubling()(x)["y"]
    second = doubling()(5 * x)["y"]
    equal(first, 2 * x, "the first result after the second call")
    expect(first.flags.writeable and not np.shares_memory(first, second), "results share memory")


def test_out():
    x = np.ones((2, 3), np.float32)
    y, wide = np.zeros((3, 2), np.float32).T, np.zeros((2, 6), np.float32)
    results = doubling()(x, out=[y, wide[:, ::2]])
    expect(results["y"] is y, "the result is not what out gave")
    equal(y, 2 * x, "transposed out")
    equal(wide[:, ::2], x + 1, "strided out")
    equal(wide[:, 1::2], 0 * x, "between the strides")
    partly = doubling()(x, out=[None, y])
    equal(partly["y"], 2 * x, "no out")
    equal(y, x + 1, "one out")


def test_outputs_that_are_refused():
    x, good = np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32)
    read_only = good.copy()
    read_only.flags.writeable = False
    def run(y, z=None):
        return lambda: doubling()(x, out=[y, z])

    refused(run(read_only), "STRIDEC_INVALID_ARGUMENT", "out[0] is read-only")
    refused(run(good, good), "STRIDEC_INVALID_ARGUMENT", "out[1] shares memory with out[0]")
    refused(run(x), "STRIDEC_INVALID_ARGUMENT", "shares memory with input 0")
    refused(run(np.lib.stride_tricks.as_strided(good, (4, 3), (4, 4))), "STRIDEC_INVALID_ARGUMENT", "share memory")
    refused(run(good.astype(np.float64)), "STRIDEC_WRONG_TYPE")
    refused(run(good[:2]), "STRIDEC_WRONG_SHAPE")
    refused(run(good.astype(">f4")), "STRIDEC_WRONG_TYPE", "big-endian")
    refused(run([1.0]), "STRIDEC_WRONG_TYPE", "list")
    refused(lambda: doubling()(x, out=[good]), "STRIDEC_INVALID_ARGUMENT", "2 outputs")


def test_inputs_that_are_refused():
    x = np.ones((2, 3), np.float32)
    refused(lambda: doubling()(x.astype(">f4")), "STRIDEC_WRONG_TYPE", "big-endian", "'x'")
    refused(lambda: doubling()(x.astype(np.float64)), "STRIDEC_WRONG_TYPE", "x")
    refused(lambda: doubling()(x.astype(object)), "STRIDEC_WRONG_TYPE", "object")
    refused(lambda: doubling()(x[:, :2]), "STRIDEC_WRONG_SHAPE", "x")
    refused(lambda: doubling()(x, x), "STRIDEC_INVALID_ARGUMENT", "1 arguments")
    refused(lambda: doubling()(), "STRIDEC_INVALID_ARGUMENT", "'x' is missing")
    refused(lambda: doubling()(w=x), "STRIDEC_INVALID_ARGUMENT", "no argument 'w'")
    refused(lambda: doubling()(x, x=x), "STRIDEC_INVALID_ARGUMENT", "twice")
    refused(lambda: doubling()([[0.5, 1, 2j]]), "STRIDEC_WRONG_TYPE")
    equal(doubling()(x)["y"], 2 * x, "after refusals")


def test_numbers_and_lists_take_the_declared_type():
    equal(doubling()([[1, 2, 3.5]])["y"], np.array([[2, 4, 7]], np.float32), "a list")


class Lent:
    """What another library's array is: __dlpack__ and nothing else."""

    def __init__(self, array, versions=True):
        self.array, self.versions = array, versions

    def __dlpack__(self, **options):
        if not self.versions and "max_version" in options:
            raise TypeError("unexpected keyword argument")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    x = np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2]
    for versions in (True, False):
        equal(doubling()(Lent(x, versions))["y"], 2 * x, f"versions {versions}")
        out = np.zeros((2, 3), np.float32)
        doubling()(x, out=[Lent(out, versions), None])
        equal(out, 2 * x, "out")
    given = samples((2, 3))
    narrow = given["x_BFLOAT16"]
    result = passing()(**{**given, "x_BFLOAT16": Lent(narrow.view(np.uint16))})["y_BFLOAT16"]
    expect(result.T.tobytes() == narrow.tobytes(), "bfloat16 as unsigned integers by DLPack")
    locked = np.zeros((2, 3), np.float32)
    locked.flags.writeable = False
    refused(lambda: doubling()(x, out=[Lent(locked), None]), "STRIDEC_INVALID_ARGUMENT", "read-only")
