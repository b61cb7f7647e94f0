"""Where time goes: groups that add up, trace files, the environment variable, and what is refused."""

import json
import lzma
import os
import resource
import shlex
import signal
import subprocess
import time

from harness import HERE, SECONDS, STRIDEC, expect, fake_gpu, stridec

QUICK = "--seconds 0.02 --threads 2 --format=json"


def events_of(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def slices(events, category):
    return [event for event in events if event.get("cat") == category]


def check_sums(done):
    rows = done["rows"]
    expect(sum(row["nanoseconds"] for row in rows) == done["nanoseconds"] > 0, f"rows do not add up: {done}")
    expect(sum(row["name"] == "between kernels" for row in rows) == 1, f"rows {rows}")
    steps = [step for row in rows for step in row["steps"]]
    expect(len(steps) == len(set(steps)), f"a step is in two rows: {rows}")
    for row in rows:
        expect(row["p50_nanoseconds"] <= row["p99_nanoseconds"], f"{row}")
        expect(row["calls"] == 0 or abs(row["mean_nanoseconds"] * row["calls"] - row["nanoseconds"]) < 1 + 1e-6 * row["nanoseconds"], f"{row}")


def test_profile_groups():
    """The rows of every group add up to the total, have the model's nodes, and are in the order that is asked for."""
    stridec("compile layers.onnx -o layers.so", 0)
    stridec("compile fated.onnx -o fated.so", 0)
    for artifact in ("layers.so", "fated.so", "mlp.so"):
        for group in ("kernel", "step", "node", "scope"):
            check_sums(json.loads(stridec(f"profile {artifact} --group {group} {QUICK}", 0).stdout))
    by_kernel = json.loads(stridec(f"profile layers.so --runs 7 {QUICK}", 0).stdout)
    kernels = [row for row in by_kernel["rows"] if row["steps"]]
    expect(len(kernels) == 1 and kernels[0]["calls"] == 3 * 7 and by_kernel["runs"] == 7, f"{by_kernel}")
    expect(len(kernels[0]["nodes"]) == 6 and kernels[0]["flops"] > 0 and 0 < kernels[0]["roofline"], f"{kernels}")
    nodes = {row["name"] for row in json.loads(stridec(f"profile layers.so --group node {QUICK}", 0).stdout)["rows"]}
    expect("node 2 'layer1/MatMul' (MatMul), node 3 'layer1/Tanh' (Tanh)" in nodes, f"rows {nodes}")
    scopes = {row["name"] for row in json.loads(stridec(f"profile layers.so --group scope {QUICK}", 0).stdout)["rows"]}
    expect(scopes == {"layer0", "layer1", "layer2", "between kernels"}, f"rows {scopes}")
    for sort in ("total", "calls", "mean", "p50", "p99", "flops", "bytes", "name"):
        rows = json.loads(stridec(f"profile fated.so --sort {sort} {QUICK}", 0).stdout)["rows"]
        if sort == "name":
            values = [row["name"] for row in rows]
            expect(values == sorted(values), f"by {sort}: {values}")
            continue
        values = [row[{"total": "nanoseconds"}.get(sort, sort if sort in ("calls", "flops", "bytes") else f"{sort}_nanoseconds")] for row in rows]
        expect(values == sorted(values, reverse=True), f"by {sort}: {values}")
    text = stridec("profile layers.so --seconds 0.02", 0).stdout
    expect("between kernels" in text and "a run without this profile" in text, text)


def test_profile_counters():
    """Rows have counts for each thread, of software events at least; hardware that is not there is a sentence."""
    stridec("compile layers.onnx -o layers.so", 0)
    software = {**os.environ, "STRIDEC_PERF_EVENTS": "software"}
    done = stridec(f"profile layers.so --counters --runs 3 {QUICK}", env=software)
    if done.returncode == 5:  # a container without perf_event_open
        expect("no-counters" in done.stdout + done.stderr and "--counters" in done.stdout + done.stderr, f"{done}")
        return
    expect(done.returncode == 0, f"{done}")
    profile = json.loads(done.stdout)
    check_sums(profile)
    expect(profile["counted_runs"] == 3, f"{profile}")
    for row in profile["rows"]:
        names = ["task_nanoseconds", "page_faults", "context_switches", "migrations"]
        counters = row["counters"]
        expect(list(counters) == [*names, "threads"], f"{row}")
        expect((counters["task_nanoseconds"] > 0) == bool(row["steps"]), f"{row}")
        for name in names:
            whole = sum(thread[name] for thread in counters["threads"])
            expect(abs(whole - counters[name]) <= len(counters["threads"]), f"{name} of {row}")
    text = stridec("profile layers.so --counters --seconds 0.02", 0, env=software).stdout
    expect("page faults" in text, text)
    done = stridec(f"profile layers.so --counters {QUICK}")
    expect(done.returncode in (0, 5), f"{done}")
    if done.returncode == 0:
        expect("instructions" in json.loads(done.stdout)["rows"][0]["counters"], done.stdout)
    else:
        expect("counters" in done.stdout + done.stderr, f"{done}")


def test_profile_of_nothing():
    """Sizes of zero, an artifact that only copies, a function of several."""
    stridec("compile mlp.onnx -o zero.so --dim batch=0..8", 0)
    check_sums(json.loads(stridec(f"profile zero.so --dim batch=0 {QUICK}", 0).stdout))
    stridec("compile named.onnx -o named.so", 0)
    check_sums(json.loads(stridec(f"profile named.so {QUICK}", 0).stdout))
    stridec("compile --function a=mlp.onnx --function b=layers.onnx -o both.so", 0)
    for function, kernel in (("a", "matmul+add+max"), ("b", "matmul+tanh")):
        done = json.loads(stridec(f"profile both.so --function {function} {QUICK} --trace both.trace", 0).stdout)
        check_sums(done)
        expect(done["function"] == function and any(row["name"] == kernel for row in done["rows"]), f"{done}")
        steps = slices(events_of("both.trace"), "step")
        expect({step["name"] for step in steps} == {kernel} and all("node" in step["args"]["nodes"] for step in steps), f"{steps[:2]}")


def test_trace_files():
    """A trace has the model's names and, where they change, its sizes."""
    stridec("compile fated.onnx -o fated.so", 0)
    stridec(f"profile fated.so --dim batch=3 --trace t.json {QUICK}", 0)
    events = events_of("t.json")
    runs, steps, parts = (slices(events, kind) for kind in ("run", "step", "part"))
    expect(runs and steps and parts and runs[0]["args"]["sizes"] == {"batch": 3}, f"{events[:4]}")
    expect(not any("sizes" in run["args"] for run in runs[1:]), f"sizes that did not change: {runs[1]}")
    with open("fated.json", encoding="utf-8") as file:
        manifest = json.load(file)
    names = {step: kernel["name"] for kernel in manifest["kernels"] for step in kernel["steps"]}
    for step in steps:
        number, nodes = step["args"]["step"], step["args"]["nodes"]
        if number in names:
            expect(step["name"] == names[number] and "kernel/" in nodes, f"{step}")
        else:
            expect("routine/TopK" in nodes, f"{step}")
    for run in runs:
        inside = [step for step in steps if step["args"]["run"] == run["args"]["run"]]
        expect(all(run["ts"] <= s["ts"] and s["ts"] + s["dur"] <= run["ts"] + run["dur"] + 0.002 for s in inside), f"{run}")


def test_measured_on_another_model():
    """Profiles, benchmarks and traces name the model that they are of, and a report of another one refuses them."""
    stridec("compile layers.onnx -o layers.so", 0)
    with open("layers.json", encoding="utf-8") as file:
        model = json.load(file)["model"]
    for command in ("profile", "bench"):
        done = stridec(f"{command} layers.so {QUICK}{' --trace layers.trace' if command == 'profile' else ''}", 0).stdout
        expect(json.loads(done)["model"] == model and model["sha256"], f"the model of {command}")
        with open(f"layers.{command}", "w", encoding="utf-8") as file:
            file.write(done)
    expect({run["args"]["model"] for run in slices(events_of("layers.trace"), "run")} == {model["sha256"]}, "the model of a trace")
    measured = (("--profile", "layers.profile"), ("--profile", "layers.bench"), ("--trace", "layers.trace"))
    for flag, name in measured:
        for source in ("layers.onnx", "layers.so"):
            stridec(f"report {source} -o measured.html --sources none {flag} {name}", 0)
        for source in ("mlp.onnx", "mlp.so"):
            done = stridec(f"report {source} -o measured.html --sources none {flag} {name}", 4)
            expect("another model" in done.stderr and model["sha256"][:12] in done.stderr and name in done.stderr, done.stderr)


def check_nesting(events, what):
    """Slices of a thread lie in each other or apart; parts and waits lie in their step, steps and copies in their run."""
    whole = [event for event in events if event["ph"] == "X"]
    times = lambda event: (round(1000 * event["ts"]), round(1000 * event["ts"]) + round(1000 * event["dur"]))
    for tid in {event["tid"] for event in whole}:
        ends = []
        for begin, end in sorted((times(event) for event in whole if event["tid"] == tid), key=lambda slice: (slice[0], -slice[1])):
            while ends and ends[-1] <= begin:
                ends.pop()
            expect(not ends or end <= ends[-1], f"{what}: slices of thread {tid} cross at {begin}")
            ends.append(end)
    runs = {event["args"]["run"]: times(event) for event in slices(whole, "run")}
    steps = {}  # a step of a loop's body is done several times
    for event in slices(whole, "step"):
        steps.setdefault((event["args"]["run"], event["args"]["step"]), []).append(times(event))
    for event in whole:
        args, category, (begin, end) = event["args"], event["cat"], times(event)
        if category == "run":
            continue
        outer = [runs[args["run"]]] if category in ("step", "copy") else steps[args["run"], args["step"]]
        expect(any(first <= begin and end <= last for first, last in outer), f"{what}: {event} is outside of {outer}")


# With the sizes that spread their work over threads.
NESTED = {
    "mlp": "batch=4096",
    "layers": "",
    "fated": "batch=4096",
    "named": "",
    "scaled": "batch=4096",
    "rounded": "batch=4096",
    "tower": "batch=4096",
    "softmax": "batch=4096",
    "windows": "",
    "counting": "",
}


def test_traces_nest():
    """Ten models on one, two and eight threads."""
    parts = 0
    for model, sizes in NESTED.items():
        stridec(f"compile {model}.onnx -o nested.so", 0)
        for threads in (1, 2, 8):
            environment = {**os.environ, "STRIDEC_PROFILE": "nested.trace"}
            stridec(f"run nested.so --random {sizes and '--dim ' + sizes}", 0, env={**environment, "STRIDEC_THREADS": str(threads)})
            events = events_of("nested.trace")
            expect(slices(events, "run"), f"{model}: no runs")
            check_nesting(events, f"{model} on {threads} threads")
            parts += len({event["tid"] for event in slices(events, "part")}) > 1
            for wait in slices(events, "wait"):
                expect(threads > 1, f"{model}: a thread waits for itself: {wait}")
    expect(parts > 0, "no trace has parts on several threads")


def test_profile_variable():
    """STRIDEC_PROFILE works in any program; the results are the same; the file parses after the process was killed."""
    stridec("run mlp.so -i x=good.npy -o y=plain.npy", 0)
    stridec("run mlp.so -i x=good.npy -o y=traced.npy", 0, env={**os.environ, "STRIDEC_PROFILE": "%m-%p.trace"})
    with open("plain.npy", "rb") as a, open("traced.npy", "rb") as b:
        expect(a.read() == b.read(), "a trace changes results")
    (name,) = [name for name in os.listdir(".") if name.endswith(".trace") and name.startswith("test-")]
    expect(len(slices(events_of(name), "run")) == 1, name)
    stridec("run mlp.so -i x=good.npy -o y=traced.npy", 0, env={**os.environ, "STRIDEC_PROFILE": "/no/such/folder/t.json"})
    environment, runs = {**os.environ, "STRIDEC_PROFILE": "killed.trace", "STRIDEC_PROFILE_RUNS": "0"}, 0
    for i in range(100):
        process = subprocess.Popen([STRIDEC, *"bench mlp.so --seconds 20".split()], stdout=subprocess.DEVNULL, env=environment)
        until = time.monotonic() + 20
        while not (os.path.exists("killed.trace") and os.path.getsize("killed.trace") > 400) and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(0.003 * (i % 20))
        process.send_signal(signal.SIGKILL)
        process.wait()
        runs += len(slices(events_of("killed.trace"), "run"))
        os.remove("killed.trace")
    expect(runs > 100, f"{runs} runs before the processes were killed")


ON_GPU = "--seconds 0.02 --format=json"


def steps_of(done):
    return {(row["name"], tuple(row["steps"])): row["calls"] / done["runs"] for row in done["rows"] if row["steps"]}


def test_profile_on_gpus():
    """Kernels take the device's time, launched one by one; the rows add up here too. A trace has each kernel in its run."""
    fake = fake_gpu()
    if not fake:
        print("profile_on_gpus: skipped, there is no NVRTC or no build of the tests")
        return
    flags, gpu = fake
    for mode in ("default", "reduce-overhead"):
        stridec(f"compile fated.onnx -o gpu.so {flags} --mode {mode}", 0)
        for group in ("kernel", "step", "node", "scope"):
            done = json.loads(stridec(f"profile gpu.so --dim batch=3 --group {group} {ON_GPU}", 0, **gpu).stdout)
            check_sums(done)
            expect(done["device"] == "Fake GPU" and "threads" not in done and done["variant"] == "sm_90a", f"{done}")
        rows = [row for row in done["rows"] if row["steps"]]
        expect(rows and all(row["p50_nanoseconds"] % 1000 == 0 and row["calls"] for row in rows), f"kernels of a microsecond: {rows}")
        stridec(f"profile gpu.so --dim batch=3 --trace gpu.trace {ON_GPU}", 0, **gpu)
        events = events_of("gpu.trace")
        kernels, runs = slices(events, "kernel"), slices(events, "run")
        expect(not slices(events, "replay") and runs and kernels, f"{mode}: {events[:5]}")
        for run in runs:
            inside = {event["args"]["step"] for event in kernels if event["args"]["run"] == run["args"]["run"]}
            expect(inside == {event["args"]["step"] for event in kernels}, f"{mode}: {run} has the steps {inside}")
        expect(all("node" in event["args"]["nodes"] for event in kernels), f"{kernels[:2]}")
        text = stridec("profile gpu.so --dim batch=3 --seconds 0.02", 0, **gpu).stdout
        expect("sm_90a, Fake GPU" in text and "launched one by one" in text, text)
    refused = stridec("profile gpu.so --dim batch=3 --counters", 5, **gpu).stderr
    expect("no-counters" in refused and "run on a GPU" in refused, refused)


def test_profile_by_cupti():
    """The kernels of replayed graphs have the steps and calls that they have when they are launched one by one."""
    fake = fake_gpu()
    if not fake or not os.path.exists(cupti := os.path.join(os.path.dirname(STRIDEC), "tests", "libcupti.so.13")):
        print("profile_by_cupti: skipped, there is no NVRTC or no build of the tests")
        return
    flags, gpu = fake
    with_cupti = {"env": gpu["env"] | {"STRIDEC_CUPTI": cupti}}
    for mode, graphs in (("max-autotune-no-cudagraphs", False), ("reduce-overhead", True)):
        stridec(f"compile layers.onnx -o gpu.so {flags} {'--mode ' + mode if graphs else ''}", 0)
        apart = json.loads(stridec(f"profile gpu.so --group step {ON_GPU}", 0, **gpu).stdout)
        done = json.loads(stridec(f"profile gpu.so --group step --cupti {ON_GPU}", 0, **with_cupti).stdout)
        check_sums(done)
        expect(steps_of(done) == steps_of(apart), f"{steps_of(done)} instead of {steps_of(apart)}")
        calls = sum(row["calls"] for row in done["rows"] if row["steps"])
        expect(done["kernels_in_graphs"] == (calls if graphs else 0), f"{mode}: {done['kernels_in_graphs']} of {calls}")
    stridec(f"profile gpu.so --cupti --trace replays.json {ON_GPU}", 0, **with_cupti)
    events = events_of("replays.json")
    replays, kernels = slices(events, "replay"), slices(events, "kernel")
    expect(len(replays) == len(slices(events, "run")) and len(kernels) == 3 * len(replays), f"{len(kernels)} kernels of {len(replays)} replays")
    expect(all(event["name"] == "matmul+tanh" and event["dur"] == 1 and "node" in event["args"]["nodes"] for event in kernels), f"{kernels[:2]}")
    expect({event["args"]["step"] for event in kernels if event["args"]["run"] == 0} == {0, 1, 2}, f"{kernels[:4]}")
    text = stridec("profile gpu.so --cupti --seconds 0.02", 0, **with_cupti).stdout
    expect("by CUPTI" in text and "were in recorded graphs" in text, text)
    for more, code, word in (({"STRIDEC_CUPTI": "/no/such/libcupti.so"}, 5, "is not a CUPTI library"), ({"STRIDEC_CUPTI": os.getcwd()}, 5, "not on this machine"),
                             ({"FAKE_CUPTI_STATUS": "35"}, 5, "does not let this user"), ({"FAKE_CUPTI_STATUS": "1"}, 7, "CUPTI_ERROR_OF_A_TEST"),
                             ({"FAKE_CUPTI_DROP": "1000000"}, 5, "are not those of the runs")):  # fmt: skip
        refused = stridec("profile gpu.so --cupti --seconds 0.02", code, env=with_cupti["env"] | more).stderr
        expect(word in refused, refused)
    expect("runs on the CPU" in stridec("profile mlp.so --cupti", 1, **with_cupti).stderr, "a CPU's artifact")


def test_trace_without_room():
    """A trace for which there is no room, at once or later, is an error, and nothing incomplete stays."""
    full = stridec("profile mlp.so --trace /dev/full", 6)
    expect("error[no-space]" in full.stderr and "/dev/full" in full.stderr, full.stderr)
    for limit in (0, 3000):
        done = stridec(f"profile mlp.so --trace cut.json {QUICK}", 6, preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        expect("no-space" in done.stdout, f"{done}")
        expect(not os.path.exists("cut.json"), "the incomplete trace stays")
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        print("trace_without_room: a part is skipped, this machine gives no mount namespaces")
        return
    os.makedirs("small", exist_ok=True)
    command = f"mount -t tmpfs -o size=8k none small && {{ {shlex.quote(STRIDEC)} profile layers.so --trace small/t.json {QUICK}; code=$?; ls -A small >&2; exit $code; }}"
    stridec("compile layers.onnx -o layers.so", 0)
    done = subprocess.run(["unshare", "-rm", "bash", "-c", command], capture_output=True, text=True, timeout=SECONDS)
    expect(done.returncode == 6 and "no-space" in done.stdout and done.stderr == "", f"{done}")


def test_profile_refusals():
    with lzma.open(os.path.join(HERE, "format4.so.xz")) as packed, open("format4.so", "wb") as file:
        file.write(packed.read())
    done = stridec("profile format4.so", 5)
    expect("runtime cannot trace runs" in done.stderr and "stridec bench" in done.stderr, done.stderr)
    stridec("profile missing.so", 2)
    stridec("profile cut.so", 3)
    expect("colour" in stridec("profile mlp.so --dim colour=3", 1).stderr, "an unknown size")
    expect("group" in stridec("profile mlp.so --group colour", 1).stderr, "an unknown group")
    done = stridec("profile mlp.so --trace /no/such/folder/t.json", 2)
    expect("/no/such/folder/t.json" in done.stderr, done.stderr)
    expect("its only function is" in stridec("profile mlp.so --function other", 1).stderr, "an unknown function")
