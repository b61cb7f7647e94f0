"""Compiles the networks of architectures.py, each once for all its sizes, and compares with onnxruntime at three; then the
models of forms.py, at one.

    python tests/models/run_architectures.py [name...]       architectures, or "forms"

Every network is made with seeded weights, compiled with symbolic sizes, verified against the interpreter at sizes that
stridec chooses, and run on three cases; outputs must be within 1e-4 of onnxruntime's, relative to the largest magnitude.
A network runs in a process of its own. The last line is "N passed, N failed".

Environment: stridec (the program, default build/stridec).
"""

import os
import subprocess
import sys
import tempfile

import models
from architectures import ARCHITECTURES, arrays_of

TOLERANCE = 1e-4
QUANTUM = 0.05  # where values are rounded to steps: one on the border of two may go to either
SECONDS = 120


def test(name, program, folder):
    """Counts of (passed, failed); prints what failed."""
    import stridec
    from net import onnx

    function, dims, cases = ARCHITECTURES[name]
    tolerance = QUANTUM if name == "quantised" else TOLERANCE
    net = function()
    source, library = os.path.join(folder, name + ".onnx"), os.path.join(folder, name + ".so")
    onnx.save(net.model(), source)
    session = models.reference_session(source)
    passed = failed = 0
    for command in (["compile", source, "-o", library, "--dim", dims, "--quiet", "--verify-passes"],
                    ["verify", source, library, "--runs", "1", "--tolerance", str(tolerance)]):  # fmt: skip
        done = subprocess.run([program, *command], capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            print(f"{name}: stridec {command[0]}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
            failed += 1
            if command[0] == "compile":
                return passed, failed + len(cases) + 1
        else:
            passed += 1
    context = stridec.Model(library).context(threads=2)
    names = [value.name for value in session.get_outputs()]
    for number, values in enumerate(cases):
        arrays = arrays_of(net, dims, values, number)
        expected = session.run(None, models.feed(session, arrays))
        try:
            got = dict(zip([value.name for value in context.model.outputs], context.run(arrays)))
        except stridec.Error as error:
            print(f"{name} {values}: {error}")
            failed += 1
            continue
        worst = {key: models.difference(got[key], value) for key, value in zip(names, expected)}
        if max(worst.values()) <= tolerance:
            passed += 1
        else:
            print(f"{name} {values}: {worst}")
            failed += 1
    return passed, failed


def test_forms(program, folder):
    """Counts of (passed, failed); prints what failed."""
    import onnx
    import stridec
    from forms import forms

    passed = failed = 0
    for name, (model, arrays) in forms().items():
        source, library = os.path.join(folder, name + ".onnx"), os.path.join(folder, name + ".so")
        onnx.save(model, source)
        expected = models.reference_session(source).run(None, arrays)
        done = subprocess.run([program, "compile", source, "-o", library, "--quiet", "--verify-passes"], capture_output=True,
                              text=True, timeout=SECONDS)  # fmt: skip
        try:
            if done.returncode != 0:
                raise stridec.Error(f"stridec compile: exit code {done.returncode}: {done.stderr}")
            got = stridec.Model(library).context(threads=2).run(arrays)
            worst = max(models.difference(a, b) for a, b in zip(got, expected, strict=True))
            if worst > TOLERANCE:
                raise stridec.Error(f"differs by {worst}")
            passed += 1
        except stridec.Error as error:
            print(f"{name}: {error}")
            failed += 1
    return passed, failed


def main(arguments):
    program = os.path.abspath(os.environ.get("stridec", "build/stridec"))
    if arguments[:1] == ["--child"]:
        counts = test_forms(program, arguments[2]) if arguments[1] == "forms" else test(arguments[1], program, arguments[2])
        print("%d passed, %d failed" % counts)
        return 0
    passed = failed = 0
    for name in arguments or [*ARCHITECTURES, "forms"]:
        with tempfile.TemporaryDirectory(prefix="stridec-architectures-") as folder:
            done = subprocess.run([sys.executable, __file__, "--child", name, folder], capture_output=True, text=True)
        lines = done.stdout.splitlines()
        if done.returncode == 0:
            counts = lines.pop().split()
            passed, failed = passed + int(counts[0]), failed + int(counts[2])
            print("\n".join([*lines, f"{name:20} {counts[0]} passed, {counts[2]} failed"]), flush=True)
        else:
            failed += 1
            print(f"{name:20} status {done.returncode}: {done.stdout}{done.stderr}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
