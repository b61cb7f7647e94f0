"""Chains of operators compile in a time that grows with no more than their length to the power of 1.5, and compute the same.

    python tests/chains/run.py STRIDEC [name...] [--lengths N,N,...] [--table]    only the chains of cases.py with these names

Each chain is compiled with known sizes and with symbols, as far as the texts of kernels, at each length (10 and 100; in a nightly
run, and 1000). At the shortest length it is built as well, and its results are compared with onnxruntime's at two sizes.
One line for each fault; --table prints the times. Without STRIDEC_NIGHTLY, the chains marked `nightly` are left out. The last
line is "N passed, N failed".
"""
import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[2] / "python")]
import stridec  # noqa: E402
from cases import CHAINS, SIZES, input_of, model_of  # noqa: E402

FORMS = {"known": False, "symbols": True}
OTHER_SIZES = {"h": 16, "w": 12}
EXPONENT = 1.5
SHORT_SECONDS = 0.25  # times below are taken for this: start-up and noise
LONGEST_SECONDS = 120  # of one compilation
BUILT_LENGTH = 10
onnxruntime.set_default_logger_severity(4)


def compile_seconds(program, path, *flags):
    """The processor's time, which other load on the machine does not change. Raises RuntimeError with the reason where it fails."""
    command = [program, "compile", path, "-o", path.with_suffix(".so"), *flags]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_CPU, (LONGEST_SECONDS, LONGEST_SECONDS)))  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode < 0:
        raise RuntimeError(f"signal {-done.returncode}: no end within {LONGEST_SECONDS} s")
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[-400:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def times_of(program, folder, chain, form, lengths):
    """{length: seconds}"""
    times = {}
    for length in lengths:
        path = folder / f"{chain.name}_{form}_{length}.onnx"
        onnx.save(model_of(chain, length, FORMS[form]), path)
        times[length] = compile_seconds(program, path, "--stop-after", "kernels", "--no-cache")
    return times


def growth_fault(times):
    """A sentence where a longer chain took too long for its length, else none."""
    lengths = list(times)
    for shorter, longer in zip(lengths, lengths[1:]):
        most = max(times[shorter], SHORT_SECONDS) * (longer / shorter) ** EXPONENT
        if times[longer] > most:
            return f"{times[shorter]:.2f} s for {shorter} steps, {times[longer]:.2f} s for {longer}: at most {most:.2f} s"
    return None


def onnxruntime_result(model, value):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": value})[0]


def value_fault(program, folder, chain, form):
    model = model_of(chain, BUILT_LENGTH, FORMS[form])
    path = folder / f"{chain.name}_{form}.onnx"
    onnx.save(model, path)
    compile_seconds(program, path)
    context = stridec.Model(str(path.with_suffix(".so"))).context(threads=1)
    for number, sizes in enumerate([SIZES, OTHER_SIZES] if FORMS[form] else [SIZES]):
        value = input_of(chain, number, sizes)
        got, want = np.array(context.run(value)[0]), onnxruntime_result(model, value)
        if got.shape != want.shape:
            return f"sizes {sizes}: {got.shape}, should be {want.shape}"
        same = np.array_equal(got, want) if chain.exact else np.allclose(got, want, 1e-4, 1e-4)
        if not same:
            return f"sizes {sizes}: {got.ravel()[:4]}, should be {want.ravel()[:4]}"
    return None


def main():
    nightly = bool(os.environ.get("STRIDEC_NIGHTLY"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--lengths", default="10,100,1000" if nightly else "10,100")
    parser.add_argument("--table", action="store_true")
    flags = parser.parse_args()
    lengths = [int(n) for n in flags.lengths.split(",")]
    chains = [c for c in CHAINS if c.name in flags.names or (not flags.names and (nightly or not c.nightly))]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for chain in chains:
            for form in FORMS:
                times, fault = {}, None
                try:
                    longest = min(chain.longest, chain.longest_symbols) if FORMS[form] else chain.longest
                    times = times_of(flags.program, folder, chain, form, [n for n in lengths if n <= longest])
                    fault = growth_fault(times) or value_fault(flags.program, folder, chain, form)
                except (RuntimeError, stridec.Error) as error:
                    fault = str(error)
                if flags.table:
                    print(f"{chain.name:22}{form:9}" + "".join(f"{n:6}: {t:6.2f} s" for n, t in times.items()), flush=True)
                if fault:
                    print(f"{chain.name}, {form}: {fault}", flush=True)
                passed, failed = passed + (fault is None), failed + (fault is not None)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
