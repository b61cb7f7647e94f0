"""Compiles TorchScript files and compares what they compute with PyTorch's results, which lie beside them.

NAME.npz has the flags of the compilation ("flags"), and for each run k the inputs ("k/in/NAME") and the results
("k/out/NAME") by the artifact's names. The runs follow one another in one context, so states carry over. Needs NumPy alone.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRIDEC = os.environ.get("stridec", str(ROOT / "build/stridec"))
TOLERANCE = 1e-4


def command(*arguments, seconds=300):
    """(exit code, standard output, standard error)."""
    try:
        run = subprocess.run([STRIDEC, *map(str, arguments)], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return 124, "", f"error: more than {seconds} s"
    return run.returncode, run.stdout, run.stderr


def difference(expected, actual, floor=1.0):
    """The largest difference relative to the results' size; infinity if shapes, NaNs or infinities differ.

    Results whose largest element is below `floor` are compared absolutely.
    """
    if expected.dtype.kind == "c":
        expected = np.stack([expected.real, expected.imag], -1)
    if expected.shape != actual.shape:
        return float("inf")
    if expected.dtype.kind in "biu":
        return float(np.any(expected != actual))
    expected, actual = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(np.nan_to_num(expected[~finite], nan=7), np.nan_to_num(actual[~finite], nan=7)):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = max(floor, np.abs(expected[finite]).max())
    return float(np.nan_to_num(np.abs(expected[finite] - actual[finite]), nan=np.inf).max() / scale)


def runs_of(data):
    """The runs of a file of arrays: pairs of dicts, inputs and results by name."""
    found = {}
    for key in data.files:
        if key != "flags":
            number, side, name = key.split("/", 2)
            found.setdefault(int(number), {"in": {}, "out": {}})[side][name] = data[key]
    return [(found[k]["in"], found[k]["out"]) for k in sorted(found)]


def compare(path, arrays, artifact, tolerance=TOLERANCE, floor=1.0):
    """(verdict, detail): agrees, differs, refused or fails."""
    sys.path.insert(0, str(ROOT / "python"))
    import stridec

    data = np.load(arrays)
    code, _, errors = command("compile", path, "-o", artifact, *(str(f) for f in data["flags"]))
    if code:
        lines = [line for line in errors.splitlines() if line.startswith("error")]
        return "refused", f"exit {code}: {lines[0] if lines else errors.strip()[-200:]}"
    model = stridec.Model(str(artifact))
    context = model.context(threads=1)
    worst, place = 0.0, ""
    for number, (inputs, expected) in enumerate(runs_of(data)):
        names = [i.name for i in model.inputs]
        if sorted(names) != sorted(inputs):
            return "differs", f"the inputs are {names}, not {sorted(inputs)}"
        try:
            results = dict(zip([o.name for o in model.outputs], context.run(*(inputs[n] for n in names))))
        except stridec.Error as error:
            return "fails", str(error)
        if sorted(results) != sorted(expected):
            return "differs", f"the outputs are {sorted(results)}, not {sorted(expected)}"
        for name, value in expected.items():
            d = difference(value, results[name], floor)
            if d >= worst:
                worst, place = d, f"run {number}, {name} {results[name].shape} {value.shape}"
    return ("agrees" if worst <= tolerance else "differs"), f"{worst:.1e} {place if worst > tolerance else ''}"
