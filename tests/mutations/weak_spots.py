"""Gives three tests that once passed whatever happened a fault that they must find.

    python tests/mutations/weak_spots.py [name...]

    conformance   a mode whose list of known failures is gone
    samples       a Python without NumPy, on which the sample of the Python package runs
    compiled_cuda CUDA kernels that subtract where they add, where no GPU runs them

Each has a control: the same test without the fault passes. Environment: build (a build folder with onnx_backend, test_runtime
and test_compiled_cuda; default build). The last line is "N passed, N failed".
"""

import os
import shutil
import subprocess
import sys
import tempfile

from mutant import BUILD, ROOT, Test

SECONDS = 900
CASES = "binary functions*"  # of compiled_cuda; a nightly run emulates the kernels of all of them
ADDITION = ('wrapping(a, "+", b)', 'wrapping(a, "-", b)')


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False, **more)


def conformance(folder):
    """A mode without its list, in a copy of the folder: one test in 400 of the interpreter's."""
    copy = os.path.join(folder, "tests", "conformance")
    shutil.copytree(os.path.join(ROOT, "tests", "conformance"), copy)
    build = os.path.join(folder, "build")
    os.makedirs(build)
    os.symlink(os.path.join(BUILD, "onnx_backend"), os.path.join(build, "onnx_backend"))
    unpacked = os.path.join(BUILD, "conformance", "data")
    if os.path.exists(unpacked):
        os.makedirs(os.path.join(build, "conformance"))
        os.symlink(unpacked, os.path.join(build, "conformance", "data"))
        with open(os.path.join(build, "conformance", ".unpacked"), "w", encoding="utf-8"):
            pass
    command = ["bash", os.path.join(copy, "run.sh"), "interpreter"]
    more = {"env": {**os.environ, "build": build, "sample": "400"}, "cwd": folder}
    whole = run(command, **more)
    os.remove(os.path.join(copy, "open", "interpreter.txt"))
    return whole, run(command, **more)


def samples(folder):
    """A Python that finds no NumPy."""
    own = os.environ.get("python") or os.path.join(os.environ.get("STRIDEC_CACHE", os.path.expanduser("~/.cache/stridec")), "python/bin/python")
    without = os.path.join(folder, "python")
    with open(without, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {own} -S -I "$@"\n')
    os.chmod(without, 0o755)
    command = [os.path.join(BUILD, "test_runtime"), "-tc=Python: NumPy*"]
    return run(command, cwd=ROOT, env={**os.environ, "python": own}), run(command, cwd=ROOT, env={**os.environ, "python": without})


def compiled_cuda(folder):
    """Kernels that subtract where they add."""
    source = "compiler/codegen/body_ops.cpp"
    with open(os.path.join(ROOT, source), encoding="utf-8") as file:
        text = file.read()
    changed = text.replace(*ADDITION)
    assert changed != text, f"{source} does not have {ADDITION[0]!r} any more"
    test = Test("test_compiled_cuda")
    made = test.build(source, source, changed, folder)
    assert made, "the mutant does not compile"
    more = {"cwd": ROOT, "env": {**os.environ, "STRIDEC_NIGHTLY": "1"}}
    return run([os.path.join(BUILD, "test_compiled_cuda"), f"-tc={CASES}"], **more), run([made, f"-tc={CASES}"], **more)


FAULTS = {"conformance": conformance, "samples": samples, "compiled_cuda": compiled_cuda}


def main():
    passed = failed = 0
    for name in sys.argv[1:] or FAULTS:
        with tempfile.TemporaryDirectory() as folder:
            whole, faulty = FAULTS[name](folder)
        good = whole.returncode == 0 and faulty.returncode != 0
        if whole.returncode:
            print(f"{name}: fails without the fault\n{whole.stdout[-2000:]}{whole.stderr[-2000:]}")
        print("caught:" if good else "SURVIVED:", name, flush=True)
        passed, failed = passed + good, failed + (not good)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
