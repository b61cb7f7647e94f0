"""Compiles .pt2 programs and compares what they compute with PyTorch's results, which lie beside them.

NAME.pt2 has its arrays in NAME.npz: i0, i1, ... (the tensors among the flattened inputs) and o0, ... (the tensors among the
flattened results); NAME.core.pt2, the program after run_decompositions(), uses the same file. bfloat16 is there as uint16.
Needs NumPy alone.
"""

import json
import os
import pathlib
import subprocess
import sys
import zipfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRIDEC = os.environ.get("stridec", str(ROOT / "build/stridec"))
OLD_PROGRAM = "serialized_exported_program.json"  # of releases up to 2.7
TOLERANCE = 1e-4
TOLERANCE_NARROW = 2e-2  # where a tensor of the program is float16 or bfloat16


def program(path):
    """The program's JSON."""
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if "/models/" in n and n.endswith(".json") or n == OLD_PROGRAM)
        return json.loads(archive.read(name))


def compiled(path, artifact, flags=(), seconds=300):
    """None, or the sentence why the program does not compile."""
    try:
        run = subprocess.run([STRIDEC, "compile", str(path), "-o", str(artifact), *flags], capture_output=True, text=True,
                             timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"compiling takes more than {seconds} s"
    if run.returncode == 0:
        return None
    lines = [line for line in run.stderr.splitlines() if line.startswith("error")]
    return f"exit {run.returncode}: {lines[0] if lines else run.stderr.strip()[-200:]}"


def tensor_inputs(graph):
    return sum("as_tensor" in spec.get("user_input", {}).get("arg", {}) for spec in graph["signature"]["input_specs"])


def arguments(path, inputs):
    """The artifact's inputs in order: arrays, and the values of integer inputs as the example had them, unless given."""
    graph = program(path)["graph_module"]
    arrays, given = iter(inputs), []
    for spec in graph["signature"]["input_specs"]:
        argument = spec.get("user_input", {}).get("arg", {})
        if "as_tensor" in argument:
            array = next(arrays)
            given.append(np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array)
        elif "as_sym_int" in argument and len(inputs) == tensor_inputs(graph):
            hint = graph["graph"]["sym_int_values"][argument["as_sym_int"]["as_name"]]["as_expr"]["hint"]
            given.append(np.int64(hint["as_int"]))
        elif "as_sym_int" in argument:
            given.append(next(arrays))
    return [np.asarray(a) for a in given]


def tensor_outputs(path):
    """Which of the artifact's outputs are tensors of the program's results."""
    specs = program(path)["graph_module"]["signature"]["output_specs"]
    kinds = [next(iter(s["user_output"]["arg"])) for s in specs if "user_output" in s]
    kept = [k for k in kinds if k not in ("as_none", "as_string")]
    return [i for i, kind in enumerate(kept) if kind == "as_tensor"]


def widened(array):
    if array.dtype == np.uint16:  # bfloat16
        return (array.astype(np.uint32) << 16).view(np.float32)
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def difference(expected, actual, dtype_name, floor=1.0):
    """The largest difference relative to the results' size; infinity if shapes, NaNs or infinities differ.

    Results whose largest element is below `floor` are compared absolutely, for those that rounding alone makes other than 0.
    Networks with random weights have results of any size, and a floor of their own.
    """
    expected = widened(expected) if dtype_name in ("bf16", "f32", "f64") else expected
    actual = widened(actual) if dtype_name == "bf16" else actual
    if expected.shape != actual.shape:
        return float("inf")
    if expected.dtype.kind in "biu":
        return float(np.any(expected.astype(np.int64) != actual.astype(np.int64)))
    expected, actual = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(np.nan_to_num(expected[~finite], nan=7), np.nan_to_num(actual[~finite], nan=7)):
        return float("inf")
    if not np.all(np.isfinite(actual[finite])):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = max(floor, np.abs(expected[finite]).max())
    return float(np.abs(expected[finite] - actual[finite]).max() / scale)


def run_one(path, arrays, artifact, floor=1.0):
    """Prints the largest difference. Runs in a process of its own."""
    sys.path.insert(0, str(ROOT / "python"))
    import stridec

    data = np.load(arrays)
    inputs = [data[f"i{k}"] for k in range(sum(name[0] == "i" for name in data))]
    expected = [data[f"o{k}"] for k in range(sum(name[0] == "o" for name in data))]
    model = stridec.Model(artifact)
    results = model.context(threads=1).run(*arguments(path, inputs))
    places = tensor_outputs(path)
    if len(places) != len(expected):
        raise SystemExit(f"{len(expected)} results are expected, {len(places)} are there")
    draws = any(state.name == "generator" for state in model.states)
    worst, at = 0.0, ""
    for place, value in zip(places, expected):
        if draws:  # its numbers are not PyTorch's; run.py compares distributions
            value, results[place] = np.zeros(value.shape), np.zeros(np.asarray(results[place]).shape)
        d = difference(value, results[place], model.outputs[place].dtype_name, float(floor))
        if d >= worst:
            worst, at = d, f"{model.outputs[place].name} {results[place].shape} {value.shape}"
    print(worst, at)


def tolerance_of(path):
    """Half-precision intermediates round differently in any other order of operations."""
    text = json.dumps(program(path)["graph_module"])
    return TOLERANCE_NARROW if '"dtype": 13' in text or '"dtype": 6' in text else TOLERANCE


def compare(path, arrays, artifact, floor=1.0):
    """(verdict, detail): agrees, differs, refused or fails."""
    tolerance = tolerance_of(path)
    reason = compiled(path, artifact)
    if reason:
        return "refused", reason
    return compared(path, arrays, artifact, tolerance, floor)


def compared(path, arrays, artifact, tolerance, floor=1.0):
    """(verdict, detail) of a run of the artifact in a process of its own."""
    run = subprocess.run([sys.executable, __file__, str(path), str(arrays), str(artifact), str(floor)], capture_output=True,
                         text=True)
    if run.returncode:
        return "fails", (run.stderr.strip().splitlines() or [f"signal {-run.returncode}"])[-1]
    worst, _, place = run.stdout.strip().partition(" ")
    return ("agrees" if float(worst) <= tolerance else "differs"), f"{float(worst):.1e} {place if float(worst) > tolerance else ''}"


if __name__ == "__main__":
    run_one(*sys.argv[1:5])
