"""The library given nonsense through its C API: the sentences that it answers with."""

import difflib
import os
import subprocess
import sys

import numpy as np

from harness import GOLDEN, ROOT, SECONDS, expect

sys.path.insert(0, os.path.join(ROOT, "python"))


def sentences():
    """What the library answers to bad arguments, one line each."""
    import ctypes

    import stridec as api
    from stridec import _arrays, _capi

    def tensor(array):
        found = _capi.Tensor()
        _arrays.describe(found, array)
        return found

    def answer(what, call):
        try:
            call()
            return f"{what}: accepted\n"
        except api.Error as error:
            return f"{what}: {error}\n"

    mlp, gather = api.Model("mlp.so").context(threads=1), api.Model("gather.so").context(threads=1)
    x = np.ones((2, 4), np.float32)
    table, index = np.ones((3, 4), np.float32), np.array([0, 2])
    two, three = np.ones((2, 2), np.float32), np.ones((3, 2), np.float32)
    good = [table, index, two, two]

    def raw(change, inputs=1, outputs=1):
        """context_run with a tensor that `change` spoils."""
        given, made = (_capi.Tensor * 1)(tensor(x)), (_capi.Tensor * 1)()
        change(given[0], made[0])
        mlp._check(mlp._api.context_run(mlp._handle, given, inputs, made, outputs))

    def null_data(given, made):
        given.data = None

    def null_shape(given, made):
        given.shape = None

    def negative_size(given, made):
        given.shape = (ctypes.c_int64 * 2)(-2, 4)

    def other_device(given, made):
        given.device.type = 2

    def two_lanes(given, made):
        given.dtype.lanes = 2

    def far_strides(given, made):
        given.strides = (ctypes.c_int64 * 2)(2**62, 1)

    def nothing(given, made):
        pass

    run = mlp._api.context_run
    tensors = ctypes.POINTER(_capi.Tensor)
    text = "".join(
        [
            answer("rank 1", lambda: mlp.run(x[0])),
            answer("int64", lambda: mlp.run(x.astype(np.int64))),
            answer("f64", lambda: mlp.run(x.astype(np.float64))),
            answer("five columns", lambda: mlp.run(np.ones((2, 5), np.float32))),
            answer("batch 9", lambda: mlp.run(np.ones((9, 4), np.float32))),
            answer("batch 0", lambda: mlp.run(np.ones((0, 4), np.float32))),
            answer("an output too small", lambda: mlp.run(x, out=[np.zeros((1, 8), np.float32)])),
            answer("an output of another type", lambda: mlp.run(x, out=[np.zeros((2, 8), np.int32)])),
            answer("no inputs", lambda: raw(nothing, inputs=0)),
            answer("no outputs", lambda: raw(nothing, outputs=0)),
            answer("data null", lambda: raw(null_data)),
            answer("shape null", lambda: raw(null_shape)),
            answer("size -2", lambda: raw(negative_size)),
            answer("device 2", lambda: raw(other_device)),
            answer("two lanes", lambda: raw(two_lanes)),
            answer("strides too large", lambda: raw(far_strides)),
            answer("inputs null", lambda: mlp._check(run(mlp._handle, tensors(), 1, tensors(), 1))),
            answer("index outside", lambda: gather.run(table, np.array([0, 3]), two, two)),
            answer("index far outside", lambda: gather.run(table, np.array([-(2**62)]), two, two)),
            answer("rows that do not broadcast", lambda: gather.run(table, index, two, three)),
            answer("rows that broadcast", lambda: gather.run(table, index, two[:1], three)),
            answer("all good", lambda: gather.run(*good)),
        ]
    )
    library, given = mlp._api, (_capi.Tensor * 1)(tensor(x))
    text += answer("outputs null", lambda: mlp._check(run(mlp._handle, given, 1, tensors(), 1)))
    model, info = api.Model("mlp.so"), _capi.ValueInfo()
    handle = model._handle
    name = library.status_name
    for what, status in (
        ("context null", run(None, tensors(), 0, tensors(), 0)),
        ("model null", library.model_input(None, 0, ctypes.byref(info))),
        ("input 1 of 1", library.model_input(handle, 1, ctypes.byref(info))),
        ("output -1", library.model_output(handle, -1, ctypes.byref(info))),
        ("info null", library.model_input(handle, 0, None)),
        ("state 0 of none", library.context_state(mlp._handle, 0, ctypes.byref(given[0]))),
    ):
        text += f"{what}: {name(status).decode()}\n"
    return text


def check(update):
    """In a process of its own: a crash is a failure of this test alone."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=SECONDS)
    expect(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
    path = os.path.join(GOLDEN, "runtime.txt")
    if update:
        with open(path, "w", encoding="utf-8") as file:
            file.write(done.stdout)
    with open(path, encoding="utf-8") as file:
        expected = file.read()
    lines = difflib.unified_diff(expected.splitlines(), done.stdout.splitlines(), "golden/cli/runtime.txt", "now", "", "", 2, "")
    expect(done.stdout == expected, "\n".join(lines))


if __name__ == "__main__":
    print(sentences(), end="")
