"""Errors of elementary functions and of compositions that models use, against long double: a table, and a bound for each.

    python tests/accuracy/run.py STRIDEC [name...]     only the cases of cases.py whose names begin with one of these

Each case is compiled for CPU levels that this machine can run, in f32 and f64, in two forms. Alone: each of its nodes is a
kernel, and gets rounded results from memory. Fused: its nodes are one kernel, behind a multiplication by 1 and before an addition
of 0, both unknown to the compiler. A bound that no column of its type comes within a third of does not bind, and is a fault too.
The last line is "N passed, N failed".
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[2] / "python")]
import stridec  # noqa: E402
from cases import CASES, L  # noqa: E402

# The bounds were measured on v2 and v3. Nightly runs compare v4 with them as well.
LEVELS = ("x86-64-v2", "x86-64-v3") + (("x86-64-v4",) if os.environ.get("STRIDEC_NIGHTLY") else ())
TYPES = {"f32": np.float32, "f64": np.float64}
LARGEST_EXPONENT = {"f32": 38, "f64": 300}
BINDS = 1 / 3  # of a bound
SMALL = 128  # times the smallest normal number: below, an intermediate result may be subnormal
np.seterr(all="ignore")


class Drawing:
    """Nodes and constants of a model."""

    def __init__(self, dtype):
        self.dtype, self.nodes, self.constants = dtype, [], []

    def _hold(self, array):
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def constant(self, value):
        return self._hold(np.array(value, self.dtype))

    def integers(self, *values):
        return self._hold(np.array(values, np.int64))

    def add(self, kind, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def points(name):
    """The whole range of the type: all exponents, and densely where functions bend."""
    most = LARGEST_EXPONENT[name]
    size = np.concatenate([np.logspace(-most, most, 3000), np.logspace(-4, 2, 1500)])
    return np.concatenate([-size, size, np.linspace(-40, 40, 4001), [0.0, np.inf, -np.inf, np.nan]]).astype(TYPES[name])


def input_of(case, name):
    if case.rows:
        return case.rows(np.random.default_rng(1)).astype(TYPES[name])
    values = points(name)
    return values[~((values < case.domain[0]) | (values > case.domain[1]))]


class Models:
    """Compiles for one level, and runs."""

    made = 0

    def __init__(self, program, folder, level):
        self.program, self.folder, self.level = program, folder, level

    def run(self, nodes, constants, feeds, outputs):
        Models.made += 1  # a path that is open already gives the library that was there first
        path = self.folder / f"m{Models.made}.onnx"
        inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()]
        graph = helper.make_graph(nodes, "accuracy", inputs, [onnx.ValueInfoProto(name=o) for o in outputs], constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)
        library = path.with_suffix(".so")
        subprocess.run([self.program, "compile", path, "-o", library, "-q", "--cpu", self.level], check=True)
        results = stridec.Model(str(library)).context(threads=1).run(*feeds.values())
        return [np.array(r) for r in results]


def prefixed(drawing, prefix):
    """The nodes and constants with a prefix for the names of this drawing."""

    def named(name):
        return name if name in ("one", "zero") else prefix + name

    nodes = []
    for node in drawing.nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = map(named, node.input)
        copy.output[:] = map(named, node.output)
        nodes.append(copy)
    constants = []
    for constant in drawing.constants:
        copy = onnx.TensorProto()
        copy.CopyFrom(constant)
        copy.name = named(constant.name)
        constants.append(copy)
    return nodes, constants


def fused(models, cases, name):
    """The results of the cases, from one model."""
    nodes, constants, feeds, outputs = [], [], {"one": np.array(1, TYPES[name]), "zero": np.array(0, TYPES[name])}, []
    for number, case in enumerate(cases):
        drawing = Drawing(TYPES[name])
        result = drawing.add("Add", case.build(drawing, drawing.add("Mul", "x", "one")), "zero")
        more = prefixed(drawing, f"p{number}_")
        nodes += more[0]
        constants += more[1]
        feeds[f"p{number}_x"] = input_of(case, name)
        outputs.append(f"p{number}_{result}")
    return models.run(nodes, constants, feeds, outputs)


def alone(models, cases, name):
    """Runs the first node of each case, then the second with what that gave, and so on."""
    drawings, values = [], []
    for number, case in enumerate(cases):
        drawing = Drawing(TYPES[name])
        case.build(drawing, "x")
        drawings.append(prefixed(drawing, f"p{number}_"))
        values.append({f"p{number}_x": input_of(case, name)})
    for step in range(max(len(nodes) for nodes, _ in drawings)):
        chosen = [i for i, (nodes, _) in enumerate(drawings) if len(nodes) > step]
        nodes = [drawings[i][0][step] for i in chosen]
        constants = [c for i in chosen for c in drawings[i][1] if c.name in drawings[i][0][step].input]
        feeds = {v: values[i][v] for i in chosen for v in dict.fromkeys(drawings[i][0][step].input) if v in values[i]}
        results = models.run(nodes, constants, feeds, [node.output[0] for node in nodes])
        for i, node, result in zip(chosen, nodes, results):
            values[i][node.output[0]] = result
    return [values[i][nodes[-1].output[0]] for i, (nodes, _) in enumerate(drawings)]


def worst_of(case, x, got, name):
    """The largest error and where it is; infinity where a result is out of bounds or not as finite as it should be."""
    with_type = TYPES[name]
    v = x.astype(L)
    exact = case.exact(v).astype(L).reshape(got.shape)
    rounded = exact.astype(with_type)
    finite = np.isfinite(rounded)
    scale = np.maximum(np.broadcast_to(case.scale(v if v.shape == got.shape else exact, exact), got.shape), SMALL * np.finfo(with_type).tiny)
    error = np.where(finite, np.abs(got.astype(L) - exact) / scale, 0)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    error = np.where(same, np.where(finite, error, 0), np.where(finite, error, np.inf))
    outside = (got < case.least) | (got > case.most) | (case.odd & (np.sign(got) * np.sign(x) < 0))
    error = np.where(np.isnan(error) | outside, np.inf, error)
    at = np.unravel_index(np.argmax(error), error.shape)
    return float(error[at]), f"at {x[at] if x.shape == got.shape else at}: {got[at]}, should be {rounded[at]}"


def runs_here(level):
    """Whether this machine runs code of the level: glibc knows."""
    done = subprocess.run(["/lib64/ld-linux-x86-64.so.2", "--help"], capture_output=True, text=True)
    return any(line.split()[:1] == [level] and "supported" in line for line in done.stdout.splitlines())


def main():
    program, *names = sys.argv[1:]
    cases = [c for c in CASES if not names or any(c.name.startswith(name) for name in names)]
    levels = [level for level in LEVELS if runs_here(level)]
    columns = [(name, level, form) for name in TYPES for level in levels for form in (alone, fused)]
    errors = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, level, form in columns:
            for case, got in zip(cases, form(Models(program, pathlib.Path(folder), level), cases, name)):
                errors[case.name, name, level, form] = worst_of(case, input_of(case, name), got, name)
    print("largest errors, with the bound of each type\n" + " " * 20 + "".join(
        f"{name + ' ' + level[7:] + ' ' + form.__name__:>14}" for name, level, form in columns) + "     bounds")  # fmt: skip
    failed = 0
    for case in cases:
        bounds = {"f32": case.f32, "f64": case.f64}
        print(f"{case.name:20}" + "".join(f"{errors[case.name, *column][0]:14.1e}" for column in columns) + f"   {case.f32:.1e} {case.f64:.1e}")
        faults = []
        for name, bound in bounds.items():
            found = {c: errors[case.name, *c] for c in columns if c[0] == name}
            faults += [f"{c[0]} {c[1]} {c[2].__name__}: {e:.2e} {where}" for c, (e, where) in found.items() if not e <= bound]
            if not faults and max(e for e, _ in found.values()) < BINDS * bound:
                faults.append(f"{name}: the bound {bound:.1e} does not bind")
        for fault in faults:
            print(f"  {case.name}: {fault}")
        failed += bool(faults)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
