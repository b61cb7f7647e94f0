"""Compiles the ten models, each once to one shared library that serves all its shapes, and compares with onnxruntime.

    python tests/models/run.py [--quick | --all] [name...]    the light models (default), all ten, or those named

Every model is filled with seeded weights, compiled with symbolic sizes, loaded through the package and run
on the cases of cases.json and on three shapes more. Each output must be within 1e-4 of onnxruntime's, relative to the
largest magnitude in it. A line per model tells what compiling cost. One model's files are on disk at a time; a model runs
in a process of its own, so that a crash is a failure of that model. The last line is "N passed, N failed".

Environment: stridec (the program, default build/stridec), build (for temporary files, default build).
"""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import models

TOLERANCE = 1e-4
SECONDS = 600


def needed_libraries(path):
    listing = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    return [line.split("[")[1].rstrip("]") for line in listing.splitlines() if "(NEEDED)" in line]


def compile_model(program, source, library, dims, target):
    """Facts about two compilations, the second with the first one's kernels; "error" among them where one failed."""
    command = [program, "compile", source, "-o", library, "--dim", dims, "--format=json", "--progress=none",
               "--verify-passes", "--target", target]  # fmt: skip
    settings = {**os.environ, "STRIDEC_CACHE": os.path.join(os.path.dirname(library), "cache")}
    seconds, reports = [], []
    for _ in range(2):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=settings)
        seconds.append(time.perf_counter() - start)
        if done.returncode != 0:
            return {"error": f"exit code {done.returncode}: {(done.stderr + done.stdout).strip()}"}
        reports.append(json.loads(done.stdout))
    facts = reports[0]
    size, weights = os.path.getsize(library), facts["weight_bytes"]
    return {"seconds": seconds[0], "again": seconds[1], "peak_mb": facts["peak_bytes"] / 1e6,
            "weights_mb": weights / 1e6, "beside_kb": (size - weights) / 1e3, "kernels": facts["kernels"],
            "launches": facts["launches"]}  # fmt: skip


def run_cases(library, source, name):
    """The dlopen time in ms and (label, worst difference, sentence) of every case."""
    import stridec

    start = time.perf_counter()
    handle = ctypes.CDLL(os.path.abspath(library))
    load_ms = (time.perf_counter() - start) * 1e3
    context = stridec.Model(library).context(threads=2)
    session = models.reference_session(source)
    results = []
    for label, arrays in models.cases(name):
        expected = session.run(None, models.feed(session, arrays))
        names = [value.name for value in session.get_outputs()]
        try:
            got = dict(zip([value.name for value in context.model.outputs], context.run(arrays)))
        except stridec.Error as error:
            results.append((label, float("inf"), str(error)))
            continue
        worst = max(models.difference(got[key], value) for key, value in zip(names, expected))
        shapes = [f"{key} {got[key].shape} instead of {value.shape}" for key, value in zip(names, expected)
                  if got[key].shape != value.shape]  # fmt: skip
        results.append((label, worst, "; ".join(shapes)))
    del handle
    return load_ms, results


def verify(program, source, library):
    """The library against the interpreter over the whole model, at sizes and inputs that stridec chooses."""
    command = [program, "verify", source, library, "--runs", "1", "--format=json", "--progress=none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if not done.stdout or done.returncode not in (0, 8):
        return ("stridec verify", float("inf"), f"exit code {done.returncode}: {done.stderr or done.stdout}")
    report = json.loads(done.stdout)
    return (f"stridec verify {report['runs'][-1]['sizes']}", report["runs"][-1]["difference"], report["failure"])


def test_model(name, program, folder, target):
    """Everything about one model, as a dict that goes through JSON."""
    source, library = models.fill_model(name, folder), os.path.join(folder, name + ".so")
    facts = compile_model(program, source, library, models.MODELS[name]["dims"], target)
    if "error" in facts:
        return {"compile": facts, "cases": []}
    needed = needed_libraries(library)
    if needed != ["libc.so.6"]:
        facts["error"] = f"needs {needed} instead of libc alone"
    facts["load_ms"], results = run_cases(library, source, name)
    if models.MODELS[name].get("verify"):
        results.append(verify(program, source, library))
    return {"compile": facts, "cases": results}


def print_model(name, report):
    """Counts of (passed, failed)."""
    facts = report["compile"]
    if "seconds" in facts:
        print(f"{name:14} compiled in {facts['seconds']:.1f} s, again in {facts['again']:.1f} s; {facts['peak_mb'] - facts['weights_mb']:5.0f} MB peak "
              f"beyond weights of {facts['weights_mb']:.1f} MB; {facts['launches']} launches, {facts['kernels']} kernels, "
              f"{facts['beside_kb']:.0f} KB beside weights, dlopen {facts['load_ms']:.2f} ms")  # fmt: skip
    passed = failed = 0
    if "error" in facts:
        failed += 1
        print(f"{name:14} FAIL {facts['error']}")
    for label, worst, sentence in report["cases"]:
        good = worst <= TOLERANCE
        passed, failed = passed + good, failed + (not good)
        print(f"  {'ok  ' if good else 'FAIL'} {worst:8.1e}  {label}{': ' if sentence else ''}{sentence}")
    sys.stdout.flush()
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--quick", action="store_true", help="the light models (the default)")
    parser.add_argument("--all", action="store_true", help="all ten")
    parser.add_argument("--target", default="cpu", help="of stridec compile")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    program = os.environ.get("stridec", "build/stridec")
    if flags.child:
        print(json.dumps(test_model(flags.names[0], program, flags.child, flags.target)))
        return 0
    unknown = [name for name in flags.names if name not in models.MODELS]
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(models.MODELS)}")
    names = flags.names or [name for name, row in models.MODELS.items() if flags.all or row.get("light")]
    parent = os.environ.get("build", "build")
    passed = failed = 0
    for name in names:
        folder = tempfile.mkdtemp(prefix="model-", dir=parent if os.path.isdir(parent) else None)
        try:
            child = subprocess.run([sys.executable, __file__, name, "--child", folder, "--target", flags.target], capture_output=True, text=True,
                                   timeout=SECONDS)  # fmt: skip
            if child.returncode == 0:
                report = json.loads(child.stdout.splitlines()[-1])
            else:
                report = {"compile": {"error": f"status {child.returncode}: {child.stderr[-2000:].strip()}"}, "cases": []}
        except subprocess.TimeoutExpired:
            report = {"compile": {"error": f"no end after {SECONDS} s"}, "cases": []}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        counts = print_model(name, report)
        passed, failed = passed + counts[0], failed + counts[1]
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
