"""Times operators, one realistic shape each (op_cases.py), compiled and in onnxruntime, and names those that are slow.

    python tests/bench/ops.py [name...] [--threads 2] [--rounds 5] [--block 0.008] [--json FILE] [--limit 2] [--steps]

Each case is a model of one node. Both engines run in this process by turns, a block of runs each, with a pause between
in which an idle pool stops spinning; a ratio is the median over rounds of the ratio of a round's medians. Both write to
memory that stays (onnxruntime through an IO binding), outputs are compared: a wrong answer is never a fast one. What
onnxruntime has no kernel for is timed alone. Cases under 10 us are calls, not kernels, and are marked.

Environment: stridec (the program, default build/stridec), build (for temporary files, default build).
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", name) for name in ("models", "conformance")] + [os.path.join(HERE, "..", "..", "python")]
import arguments  # noqa: E402
import models  # noqa: E402
import op_cases  # noqa: E402

PAUSE = 0.003  # longer than either engine's idle threads spin
SPIN = {"session.intra_op.spin_duration_us": "1000"}  # of onnxruntime's; by itself 1.31 spins for 35 ms, in our blocks
CALL = 10e-6


def compile_case(program, folder, number, item):
    """(library or None, what is given, message)"""
    model, given = op_cases.model_of(item)
    path = os.path.join(folder, f"{number}.onnx")
    with open(path, "wb") as file:
        file.write(model.SerializeToString())
    library = os.path.join(folder, f"{number}.so")
    made = subprocess.run([program, "compile", path, "-o", library, "--progress=none", "--quiet"], capture_output=True, text=True)
    return (path, library if made.returncode == 0 else None, given, made.stderr.strip().split("\n")[0])


def ours(library, given, threads):
    import stridec

    model = stridec.Model(library)
    context = model.context(threads=threads)
    inputs = [given[value.name] for value in model.inputs]
    outputs = [np.array(y) for y in context.run(*inputs)]
    return context.prepare(*inputs), outputs, context


def theirs(path, given, threads):
    import onnxruntime

    session = models.reference_session(path, threads, SPIN)
    names = [value.name for value in session.get_outputs()]
    feeds = {value.name: given[value.name] for value in session.get_inputs()}
    # Of one thread: on several, its ScatterND with a reduction loses updates (it adds to one element from two threads).
    outputs = models.reference_session(path, 1).run(None, feeds)
    binding = session.io_binding()
    for value in session.get_inputs():
        binding.bind_cpu_input(value.name, np.ascontiguousarray(given[value.name]))
    keep = [onnxruntime.OrtValue.ortvalue_from_numpy(y) for y in outputs]
    for name, value in zip(names, keep):
        binding.bind_ortvalue_output(name, value)
    run = session.run_with_iobinding
    return lambda: run(binding), outputs, (session, keep)


def block_of(run, seconds):
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def race(runs, flags):
    """Medians of each engine, and the median over rounds of the first's over the second's."""
    rounds = {name: [] for name in runs}
    for run in runs.values():
        run()
    for number in range(flags.rounds):
        order = list(runs) if number % 2 else list(runs)[::-1]
        for name in order:
            time.sleep(PAUSE)
            rounds[name].append(block_of(runs[name], flags.block))
    return {name: statistics.median(times) for name, times in rounds.items()}, rounds


def different(got, expected):
    if len(got) != len(expected):
        return float("inf")
    worst = 0.0
    for a, b in zip(got, expected):
        a = a.view(b.dtype) if a.dtype != b.dtype and a.dtype.itemsize == b.dtype.itemsize else a
        worst = max(worst, models.difference(a, b))
    return worst


def measure(item, built, flags):
    path, library, given, message = built
    result = {"label": item.label, "op": item.op, "domain": item.domain}
    runs, held, outputs = {}, [], {}
    if library:
        try:
            runs["stridec"], outputs["stridec"], kept = ours(library, given, flags.threads)
            held.append(kept)
        except Exception as error:  # whatever stops an engine is its result
            message = str(error)
    if "stridec" not in runs:
        result["error"] = message
    try:
        runs["onnxruntime"], outputs["onnxruntime"], kept = theirs(path, given, flags.threads)
        held.append(kept)
    except Exception as error:
        result["peer_error"] = str(error).replace("\n", " ")[:120]
    if len(outputs) == 2:
        result["difference"] = different(outputs["stridec"], outputs["onnxruntime"])
        result["wrong"] = not result["difference"] <= item.tolerance
    medians, rounds = race(runs, flags)
    result["seconds"] = medians
    if len(runs) == 2:
        result["ratio"] = statistics.median(a / b for a, b in zip(rounds["stridec"], rounds["onnxruntime"]))
    if flags.steps and "stridec" in runs:
        context = held[0]
        context.profile(True)
        for _ in range(5):
            runs["stridec"]()
        result["steps"] = sorted(((seconds / calls, name) for name, calls, seconds in context.steps() if calls), reverse=True)[:4]
        context.profile(False)
    return result


def line_of(result):
    def cell(name):
        seconds = result["seconds"].get(name)
        return f"{seconds * 1e6:11.1f}" if seconds is not None else f"{'-':>11}"

    ratio = f"{result['ratio']:8.2f}" if "ratio" in result else f"{'-':>8}"
    notes = []
    if "error" in result:
        notes.append(f"stridec: {result['error']}")
    if result.get("wrong"):
        notes.append(f"WRONG by {result['difference']:.1e}")
    if max(result["seconds"].values(), default=0) < CALL:
        notes.append("call")
    return f"{result['label']:38}{cell('stridec')}{cell('onnxruntime')}{ratio}  {'; '.join(notes)}".rstrip()


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help="cases whose label begins so (default: all)")
    parser.add_argument("--threads", type=arguments.count, default=2)
    parser.add_argument("--rounds", type=arguments.count, default=5)
    parser.add_argument("--block", type=arguments.positive, default=0.008, help="seconds of each engine in each round")
    parser.add_argument("--limit", type=arguments.positive, default=2.0, help="what is slower than that is named, and the status is 1")
    parser.add_argument("--steps", action="store_true", help="the slowest kernels of each case beside it")
    parser.add_argument("--json", metavar="FILE")
    flags = parser.parse_args()
    flags.cases = list(op_cases.all_cases())
    for name in flags.names:
        if not any(item.label.startswith(name) for item in flags.cases):
            parser.error(f"no case begins with {name}; there are {', '.join(sorted({item.op for item in flags.cases}))}")
    if flags.names:
        flags.cases = [item for item in flags.cases if item.label.startswith(tuple(flags.names))]
    flags.program = arguments.stridec_program(parser)
    return flags


def main():
    flags = parse_flags()
    program, parent, cases = flags.program, os.environ.get("build", "build"), flags.cases
    results, started = [], time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ops-", dir=parent if os.path.isdir(parent) else None) as folder:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            built = list(pool.map(lambda pair: compile_case(program, folder, *pair), enumerate(cases)))
        compiled = time.perf_counter()
        for item, made in zip(cases, built):
            results.append(measure(item, made, flags))
    results.sort(key=lambda result: -result.get("ratio", 0))
    print(f"{'case':38}{'stridec us':>11}{'peer us':>11}{'ratio':>8}")
    for result in results:
        print(line_of(result))
        for seconds, name in result.get("steps", []):
            print(f"    {seconds * 1e6:9.1f}  {name}")
    slow = [r for r in results if r.get("ratio", 0) > flags.limit]
    wrong = [r for r in results if r.get("wrong") or "error" in r]
    ratios = [r["ratio"] for r in results if "ratio" in r]
    if ratios:
        print(f"\n{len(results)} cases, {len(ratios)} with onnxruntime: geometric mean {statistics.geometric_mean(ratios):.2f}, worst {max(ratios):.2f}")
    print(f"compiled in {compiled - started:.0f} s, measured in {time.perf_counter() - compiled:.0f} s")
    print(f"slower than {flags.limit:g}x: " + (", ".join(f"{r['label']} ({r['ratio']:.1f})" for r in slow) or "none"))
    print("wrong or not compiled: " + (", ".join(r["label"] for r in wrong) or "none"))
    if flags.json:
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump({"threads": flags.threads, "results": results}, file, indent=1)
    return 1 if slow or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
