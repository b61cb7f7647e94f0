"""Known sizes and symbols for them give the same answers: every case of cases.py at n = 0, 1 and 5, and with a symbol for n.

    python tests/sizes/run.py STRIDEC [name...]     only the cases whose names begin with one of these

The cases of a family are one model in four forms: n fixed at each size, and a symbol, compiled once and run at all of them.
Compiled code is compared with onnxruntime where that runs, form with form, and by `stridec verify` with the interpreter.
A model that is refused is taken apart into its cases: those must be refused in both forms. One line for each fault; the
last line is "N passed, N failed". Takes a minute on two cores with kernels in the cache, three without.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[2] / "python")]
import stridec  # noqa: E402
from cases import CASES, Weight  # noqa: E402

SIZES = (0, 1, 5)
CASES_IN_A_MODEL = 16
onnxruntime.set_default_logger_severity(4)


class Refused(Exception):
    pass


def shape_of(case, at, n):
    """The shape of input `at` with "n" for the dims that follow n; n none: at no size in particular."""
    small, large = (np.shape(case.arrays(k)[at]) for k in (5, 6))
    return [("n" if n is None else n) if a != b else a for a, b in zip(small, large)]


def model_of(cases, n):
    """A model of these cases, n fixed or, for none, a symbol; with the names of each case's outputs."""
    nodes, inputs, weights, outputs, names = [], [], [], [], {}
    for number, case in enumerate(cases):
        prefix, arguments = f"c{number}_", []
        for at, value in enumerate(case.arrays(5)):
            arguments.append("" if value is None else f"{prefix}x{at}")
            if isinstance(value, Weight):
                weights.append(numpy_helper.from_array(value.array, arguments[-1]))
            elif value is not None:
                kind = helper.np_dtype_to_tensor_dtype(value.dtype)
                inputs.append(helper.make_tensor_value_info(arguments[-1], kind, shape_of(case, at, n)))
        made, results = case.nodes(arguments, prefix)
        nodes += made
        names[case.name] = results
        outputs += [onnx.ValueInfoProto(name=r) for r in results]
    opset = max(case.opset for case in cases)
    graph = helper.make_graph(nodes, "sizes", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), names


def feeds_of(cases, n):
    return {f"c{number}_x{at}": value for number, case in enumerate(cases)
            for at, value in enumerate(case.arrays(n)) if value is not None and not isinstance(value, Weight)}  # fmt: skip


def typed(model):
    """onnxruntime wants types of outputs; stridec infers them."""
    return onnx.shape_inference.infer_shapes(model)


def run_onnxruntime(case, n):
    if n not in case.reference:
        return None
    model, _ = model_of([case], None)
    try:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(typed(model).SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, feeds_of([case], n))
    except Exception:  # noqa: BLE001: onnxruntime has an exception type for each of its statuses
        return None


def command(*arguments):
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, errors="replace", timeout=300)
    if done.returncode:
        raise Refused(f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[:300]}")


class Form:
    """The cases compiled with n fixed or, for none, a symbol. Raises Refused."""

    made = 0

    def __init__(self, program, folder, cases, n):
        self.model, self.names = model_of(cases, n)
        # A path that is open already gives the library that was there first.
        Form.made += 1
        self.path, self.cases, self.program, self.folder = folder / f"form{Form.made}.onnx", cases, program, folder
        onnx.save(typed(self.model), self.path)
        library = self.path.with_suffix(".so")
        command(program, "compile", self.path, "-o", library, *(["--dim", "n=0..64"] if n is None else []))
        self.context = stridec.Model(str(library)).context(threads=1)

    def run(self, n):
        feeds = feeds_of(self.cases, n)
        given = [np.ascontiguousarray(feeds[i.name]) for i in self.model.graph.input]
        try:
            results = [np.array(r) for r in self.context.run(*given)]
        except stridec.Error as error:
            raise Refused(str(error)) from error
        by_name = dict(zip((o.name for o in self.model.graph.output), results))
        return {case.name: [by_name[name] for name in self.names[case.name]] for case in self.cases}

    def verify(self, n):
        """Against the interpreter."""
        arguments = []
        for name, value in feeds_of(self.cases, n).items():
            np.save(self.folder / f"{name}.npy", value)
            arguments += ["--input", f"{name}={self.folder / name}.npy"]
        command(self.program, "verify", self.path, self.path.with_suffix(".so"), *arguments, "--tolerance", 1e-4)


def difference(got, want, tolerance):
    """A sentence, or none where they are the same."""
    for i, (g, w) in enumerate(zip(got, want)):
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"output {i} is {g.dtype}{list(g.shape)}, should be {w.dtype}{list(w.shape)}"
        close = np.allclose(g, w, tolerance, tolerance, equal_nan=True) if g.dtype.kind == "f" else np.array_equal(g, w)
        if not close:
            return f"output {i} differs: {g.ravel()[:4]}, should be {w.ravel()[:4]}"
    return None


def outcome(program, folder, cases, fixed, sizes):
    """{n: results} of one form at these sizes; a sentence in place of results where it is refused."""
    try:
        form = Form(program, folder, cases, sizes[0] if fixed else None)
    except Refused as refused:
        return {n: str(refused) for n in sizes}
    out = {}
    for n in sizes:
        try:
            out[n] = form.run(n)
            form.verify(n)
        except Refused as refused:
            out[n] = str(refused)
    return out


def faults_of(program, folder, cases):
    """(case, n, sentence) of what is wrong; where the cases together are refused, of each alone."""
    symbolic = outcome(program, folder, cases, False, SIZES)
    fixed = {n: outcome(program, folder, cases, True, [n])[n] for n in SIZES}
    if len(cases) > 1 and any(isinstance(r, str) for r in [*symbolic.values(), *fixed.values()]):
        return [fault for case in cases for fault in faults_of(program, folder, [case])]
    faults = []
    for n in SIZES:
        a, b = symbolic[n], fixed[n]
        if isinstance(a, str) or isinstance(b, str):
            refusals = [r if isinstance(r, str) else "an answer" for r in (a, b)]
            wanted = run_onnxruntime(cases[0], n) is not None
            if isinstance(a, str) != isinstance(b, str) or wanted:
                faults.append((cases[0].name, n, f"symbol: {refusals[0]}; fixed: {refusals[1]}"))
            continue
        for case in cases:
            sentence = difference(b[case.name], a[case.name], case.tolerance)
            if sentence:
                faults.append((case.name, n, f"fixed against symbol: {sentence}"))
                continue
            want = run_onnxruntime(case, n)
            sentence = want and difference(a[case.name], want, case.tolerance)
            if sentence:
                faults.append((case.name, n, f"against onnxruntime: {sentence}"))
    return faults


def main():
    program, *names = sys.argv[1:]
    chosen = [c for c in CASES if not names or any(c.name.startswith(name) for name in names)]
    faults = []
    by_opset = {}
    for case in chosen:
        by_opset.setdefault(case.opset, []).append(case)
    with tempfile.TemporaryDirectory() as folder:
        for cases in by_opset.values():
            for first in range(0, len(cases), CASES_IN_A_MODEL):
                faults += faults_of(program, pathlib.Path(folder), cases[first : first + CASES_IN_A_MODEL])
    for name, n, sentence in faults:
        print(f"{name}, n = {n}: {sentence}")
    failed = len({name for name, _, _ in faults})
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
