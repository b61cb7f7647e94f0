"""Traces and profiles of runs on a GPU: kernels and replays on the host's clock, recorded graphs that stay recorded, NVTX ranges;
kernels' times by events and by CUPTI (STRIDEC_CUPTI, or where CUDA has it; without it that part is left out).

    python tests/gpu/traces.py STRIDEC [FAKE_NVTX]    (python: numpy, onnx; FAKE_NVTX: build/tests/libfake_nvtx.so)

The last line is "N passed, N failed".
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

PYTHON = pathlib.Path(__file__).resolve().parent.parent.parent / "python"
RUNS = 8
# In a process of its own, since the environment is read when the artifact is opened.
PROGRAM = """
import ctypes, sys
import numpy as np
import stridec
with stridec.load(sys.argv[1]) as model:
    context = model.context()
    x, y = np.ones((64, 1024), np.float32), [np.empty((64, 1024), np.float32)]
    for _ in range(int(sys.argv[2])):
        context.run(x, out=y)
    np.save(sys.argv[3], y[0])
if len(sys.argv) > 4:
    tool = ctypes.CDLL(sys.argv[4])
    tool.fake_nvtx_seen.restype = ctypes.c_char_p
    print(tool.fake_nvtx_seen().decode())
"""


def expect(condition, sentence):
    if not condition:
        raise AssertionError(sentence)


def make_model(path):
    import numpy as np
    import onnx
    from onnx import TensorProto as T
    from onnx import helper as h
    from onnx import numpy_helper

    random = np.random.default_rng(1)
    weights = [numpy_helper.from_array((random.standard_normal((1024, 1024)) / 32).astype(np.float32), f"w{i}") for i in range(4)]
    nodes, last = [], "x"
    for i in range(4):
        nodes += [h.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]), h.make_node("Softmax", [f"m{i}"], [f"s{i}"])]
        last = f"s{i}"
    value = lambda name: h.make_tensor_value_info(name, T.FLOAT, ["n", 1024])  # noqa: E731
    graph = h.make_graph(nodes, "chain", [value("x")], [value(last)], weights)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), path)


def run(artifact, result, runs=RUNS, nvtx=None, **environment):
    more = {"PYTHONPATH": str(PYTHON), **environment}
    command = [sys.executable, "-c", PROGRAM, artifact, str(runs), result, *([nvtx] if nvtx else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **more})
    expect(done.returncode == 0, done.stderr)
    return done.stdout


def events_of(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def check_clock(events, kinds):
    """The GPU's work lies in its runs, as far as the clocks are known to agree, and does not overlap."""
    (stream,) = [event for event in events if event["name"] == "thread_name" and "clock_error_nanoseconds" in event["args"]]
    error = stream["args"]["clock_error_nanoseconds"] / 1000
    expect(0 < error < 1000, f"the clocks differ by up to {error} us")
    runs = {event["args"]["run"]: event for event in events if event.get("cat") == "run"}
    expect(len(runs) == RUNS, f"{len(runs)} runs")
    work = [event for event in events if event.get("cat") in ("kernel", "replay")]
    expect({event["cat"] for event in work} == kinds, f"{ {event['cat'] for event in work} } instead of {kinds}")
    end = 0
    for event in work:
        outer = runs[event["args"]["run"]]
        expect(event["tid"] == stream["tid"] and event["dur"] > 0, f"{event}")
        expect(event["ts"] >= end - 0.002, f"{event} begins before {end}")
        end = event["ts"] + event["dur"]
        slack = error + 20  # an event waits for the launch behind it
        expect(outer["ts"] - slack <= event["ts"] and end <= outer["ts"] + outer["dur"] + slack, f"{event} is not in {outer}; error {error} us")
    print(f"  {len(work)} slices, clocks known to {error:.1f} us")
    return work


def test_launches(folder):
    """Without recorded graphs each kernel is a slice with the model's nodes."""
    trace = os.path.join(folder, "launches.json")
    run(os.path.join(folder, "plain.so"), os.path.join(folder, "a.npy"), STRIDEC_PROFILE=trace)
    work = check_clock(events_of(trace), {"kernel"})
    expect(len(work) % RUNS == 0 and all("node" in event["args"]["nodes"] for event in work), f"{len(work)} kernels: {work[:2]}")


def test_replays(folder):
    """Recorded graphs stay on: the first run has kernels, the later ones one slice each. The results are the same."""
    trace, artifact = os.path.join(folder, "replays.json"), os.path.join(folder, "graphs.so")
    a, b = os.path.join(folder, "a.npy"), os.path.join(folder, "b.npy")
    run(artifact, a)
    run(artifact, b, STRIDEC_PROFILE=trace)
    work = check_clock(events_of(trace), {"kernel", "replay"})
    replays = sorted(event["args"]["run"] for event in work if event["cat"] == "replay")
    expect(replays == list(range(1, RUNS)), f"replays of runs {replays}")
    with open(a, "rb") as first, open(b, "rb") as second:
        expect(first.read() == second.read(), "a trace changes results")


def test_ranges(folder):
    """A tool named by NVTX_INJECTION64_PATH gets a range of each run."""
    if len(sys.argv) < 3:
        print("  without a library that takes ranges: skipped")
        return
    tool = os.path.abspath(sys.argv[2])
    seen = run(os.path.join(folder, "graphs.so"), os.path.join(folder, "a.npy"), nvtx=tool, NVTX_INJECTION64_PATH=tool).strip()
    expect(seen.count("(") == seen.count(")") >= RUNS, seen[:300])


def profile(artifact, *more, code=0):
    command = [sys.argv[1], "profile", artifact, "--dim", "n=64", "--group", "step", "--seconds", "1", "--format=json", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    expect(done.returncode == code, f"exit code {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return json.loads(done.stdout)


def test_profiles(folder):
    """Rows add up to the device's time, and steps have the times that a trace of launches one by one has."""
    for name in ("plain", "graphs"):
        done = profile(os.path.join(folder, name + ".so"), "--trace", os.path.join(folder, "profile.json"))
        rows = done["rows"]
        expect(sum(row["nanoseconds"] for row in rows) == done["nanoseconds"] > 0, f"{rows}")
        between = next(row for row in rows if row["name"] == "between kernels")
        print(f"  {name}: {done['nanoseconds'] / done['runs'] / 1000:.1f} us a run, {100 * between['nanoseconds'] / done['nanoseconds']:.1f} % between kernels")
        kernels = [event for event in events_of(os.path.join(folder, "profile.json")) if event.get("cat") == "kernel"]
        for row in rows:
            times = sorted(event["dur"] for event in kernels if [event["args"]["step"]] == row["steps"])
            expect(not times or 0.3 < times[len(times) // 2] / (row["p50_nanoseconds"] / 1000) < 3, f"{row}: {times[:5]}")


def test_cupti(folder):
    """Kernels inside replays: the steps and calls are those of launches one by one, and no kernel takes longer than there."""
    artifact = os.path.join(folder, "graphs.so")
    apart = profile(artifact)
    try:
        done = profile(artifact, "--cupti")
    except AssertionError as error:
        if "no-cupti" not in str(error):
            raise
        print(f"  skipped: {error}")
        return
    calls = sum(row["calls"] for row in done["rows"] if row["steps"])
    expect(done["kernels_in_graphs"] >= 0.9 * calls, f"{done['kernels_in_graphs']} of {calls} calls in graphs")
    by_step = {tuple(row["steps"]): row for row in done["rows"] if row["steps"]}
    for row in apart["rows"]:
        if not row["steps"]:
            continue
        other = by_step[tuple(row["steps"])]
        expect(other["calls"] * apart["runs"] == row["calls"] * done["runs"], f"calls: {row} and {other}")
        expect(0 < other["p50_nanoseconds"] < 1.2 * row["p50_nanoseconds"] + 1000, f"by events {row}, by CUPTI {other}")
        print(f"  step {row['steps'][0]}: {row['p50_nanoseconds'] / 1000:.2f} us by events, {other['p50_nanoseconds'] / 1000:.2f} us by CUPTI")


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "chain.onnx")
        make_model(model)
        for name, mode in (("plain", "default"), ("graphs", "reduce-overhead")):
            command = [sys.argv[1], "compile", model, "-o", os.path.join(folder, name + ".so"), "--target", "cuda", "--mode", mode]
            subprocess.run(command, check=True, timeout=600)
        for test in (test_launches, test_replays, test_ranges, test_profiles, test_cupti):
            print(test.__name__)
            try:
                test(folder)
                passed += 1
            except (AssertionError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"FAIL {test.__name__}: {error}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
