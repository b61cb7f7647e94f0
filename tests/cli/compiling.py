"""Flags of compile: weights beside the library, tuning, specialisations, modes; the sample for CI."""

import ctypes
import json
import os
import re
import subprocess

import numpy as np

from harness import ROOT, SECONDS, STRIDEC, contents, expect, fake_gpu, stridec


def test_external_weights():
    """Both sizes are told; a target that is a folder is refused before anything is written."""
    done = stridec("compile mlp.onnx -o beside.so --weights external", 0)
    expect(re.search(r"beside\.so \(\d+\.\d KB\), beside\.weights \(\d+ B\)", done.stderr), done.stderr)
    for name in ("beside.so", "beside.weights", "beside.json"):
        os.remove(name)
    os.makedirs("beside.json")
    before = contents()
    stridec("compile mlp.onnx -o beside.so --weights external", 2)
    expect(contents() == before, f"left {sorted(contents().items() ^ before.items())}")


def test_weights_of_variants():
    """The last line says what each variant costs; a weight that both read as it is counts once."""
    plain = json.loads(stridec("compile mlp.onnx -o shares.so --cpu x86-64-v3 --format=json", 0).stdout)
    expect(plain["weight_shares"] is None, plain["weight_shares"])
    done = stridec("compile mlp.onnx -o shares.so --cpu x86-64-v4,x86-64-v2 --format=json", 0)
    told = json.loads(done.stdout)
    shares = told["weight_shares"]
    expect([own["target"] for own in shares["own"]] == ["x86-64-v4", "x86-64-v2"], shares)
    expect(shares["shared"] >= 8 * 4, f"the bias is shared: {shares}")
    expect(shares["shared"] + sum(own["bytes"] for own in shares["own"]) <= told["weight_bytes"], told)
    expect(" of weights shared" in done.stderr, done.stderr)


def test_growth_of_weights():
    """What is stored is compared with the model's weights: 3x3 convolutions in Winograd's form are larger, and compile says
    so with the option that leaves it out; little growth is not told."""
    said = r"note +(\d+\.\d) KB of weights are stored, (\d\.?\d?) times the model's 147\.5 KB; (\d+\.\d) KB of them are for Winograd's algorithm"
    done = stridec("compile windows.onnx -o windows.so --cpu x86-64-v3 --format=json", 0)
    told, note = json.loads(done.stdout), re.search(said, done.stderr)
    expect(note and "-O winograd=false" in done.stderr, done.stderr)
    expect(told["model_weight_bytes"] == 64 * 64 * 9 * 4, told)
    stored, times, winograd = (float(number) for number in note.groups())
    expect(abs(stored - told["weight_bytes"] / 1e3) < 0.1, f"{note[0]} and {told['weight_bytes']} bytes")
    expect(times > 1.5 and abs(times - stored / 147.456) < 0.06 and winograd <= stored, note[0])
    for command in ("windows.onnx -O winograd=false", "mlp.onnx"):  # as large as the model's; smaller than 64 KB
        done = stridec(f"compile {command} -o windows.so --cpu x86-64-v3 --format=json", 0)
        expect("weights are stored" not in done.stderr, done.stderr)
    few = json.loads(done.stdout)["model_weight_bytes"] - (4 * 8 + 8) * 4
    expect(0 <= few <= 4, f"w, b and the 0 of Relu: {done.stdout}")


def test_tuning():
    """What is measured is replayed bit for bit; what is not in the database is refused by name."""
    import jsonschema

    flags = "--mode max-autotune --tune-db tuned.txt --tune-shape batch=8"
    stridec(f"compile mlp.onnx -o tuned.so {flags}", 0)
    entries = json.loads(stridec("tune show tuned.txt --format=json", 0).stdout)
    expect(entries and all(entry["microseconds"] > 0 for entry in entries), f"entries {entries}")
    stridec(f"compile mlp.onnx -o replayed.so {flags} --frozen", 0)
    for ending in (".so", ".json"):
        with open("tuned" + ending, "rb") as first, open("replayed" + ending, "rb") as second:
            expect(first.read() == second.read(), f"the replayed {ending} has other bytes")
    with open("tuned.json", encoding="utf-8") as file:
        manifest = json.load(file)
    expect(manifest["tuning"]["entries"] == len(entries), f"tuning {manifest['tuning']}")
    expect(all("measured" in kernel for kernel in manifest["kernels"]), f"kernels {manifest['kernels']}")
    done = stridec("compile mlp.onnx -o lost.so --tune-db tuned.txt --frozen --tune-shape batch=4000", 8)
    expect("error[not-tuned]" in done.stderr and f"'{entries[0]['kernel']}'" in done.stderr, done.stderr)
    expect("it has one for sizes up to batch=8, but needs one for sizes up to batch=4096" in done.stderr, done.stderr)
    expect(not os.path.exists("lost.so"), "an artifact is left")

    # A schedule written by hand that the kernel cannot have: the error and `inspect` say where it differs.
    with open("tuned.txt", encoding="utf-8") as file:
        lines = [line.split(" | ") for line in file]
    with open("hand.txt", "w", encoding="utf-8") as file:
        file.writelines(" | ".join([*parts[:2], parts[2] + "; unroll %i0 4", *parts[3:]]) if len(parts) == 4 and "%" in parts[2]
                        else " | ".join(parts) for parts in lines)
    hand = flags.replace("tuned.txt", "hand.txt")
    why = "'unroll %i0 4'"
    done = stridec(f"compile mlp.onnx -o lost.so {hand} --frozen", 8).stderr
    expect("error[schedule-refused]" in done and done.index(why) < done.index("key "), done)
    unfrozen = hand.replace("--mode max-autotune ", "")
    done = stridec(f"compile mlp.onnx -o hand.so {unfrozen}", 0).stderr
    expect(" warning    kernel '" in done and "(node " in done and why in done, done)
    expect("warning" not in stridec("compile mlp.onnx -o hand.so --tune-db tuned.txt --tune-shape batch=8", 0).stderr, "a warning about nothing")
    with open(os.path.join(ROOT, "schemas", "refused.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    of_hand = "mlp.onnx --tune-db {} --tune-shape batch=8 --format=json"
    for database, some in (("hand.txt", True), ("tuned.txt", False)):
        flags_of = of_hand.format(database)
        told = json.loads(stridec(f"compile -o hand.so {flags_of}", 0).stdout)["refused"]
        jsonschema.validate(told, schema)
        expect(bool(told) == some and all(why in kernel["reason"] and kernel["nodes"] for kernel in told), told)
        shown = json.loads(stridec(f"inspect --stage=schedule {flags_of}", 0).stdout)["refused"]
        expect(shown == told, f"inspect has {shown}, compile {told}")
    shown = stridec("inspect mlp.onnx --stage=schedule --tune-db hand.txt --tune-shape batch=8", 0).stdout
    expect(" refused " in shown and why in shown, shown)

    # A program for one size is tuned at that one, whatever the shapes are.
    stridec("tune mlp.onnx --tune-db special.txt --specialize batch=1 --tune-shape batch=8", 0)
    special = json.loads(stridec("tune show special.txt --format=json", 0).stdout)
    expect({entry["shape"] for entry in special} >= {"8"} and len(special) > len(entries), f"entries {special}")

    with open("tuned.txt", encoding="utf-8") as file:
        lines = file.read()
    with open("twice.txt", "w", encoding="utf-8") as file:
        file.write(lines + lines)
    shown = json.loads(stridec("tune show twice.txt --format=json", 0).stdout)
    expect(shown == entries, f"of entries with one key the last alone is shown: {shown}")
    stridec("tune merge tuned.txt twice.txt -o merged.txt", 0)
    stridec("tune prune twice.txt", 0)
    for name in ("merged.txt", "twice.txt"):
        kept = json.loads(stridec(f"tune show {name} --format=json", 0).stdout)
        expect(kept == entries, f"{name} has {kept}")
    done = stridec("tune mlp.onnx --tune-db two.txt --format=json", 0)
    measured = json.loads(done.stdout)
    expect(any("," in entry["shape"] for entry in measured), f"no schedule was judged at two shapes: {measured}")
    trials = [trial for entry in measured for trial in entry["trials"]]
    expect(all(trial["ratios"] or trial["problem"] for trial in trials), f"trials {trials}")
    again = stridec(f"tune mlp.onnx {flags.split(maxsplit=2)[2]}", 0)
    expect("from the database" in again.stderr and "measured in" not in again.stderr, again.stderr)
    stridec("run tuned.so --input x=good.npy --output y=tuned.npy", 0)
    stridec("run mlp.so --input x=good.npy --output y=y.npy", 0)
    np.testing.assert_allclose(np.load("tuned.npy"), np.load("y.npy"), rtol=1e-5, atol=1e-6)


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def test_bench_on_gpus():
    """Times are the device's, of rows of runs; shares are of what that device can do."""
    fake = fake_gpu()
    if not fake:
        print("bench_on_gpus: skipped, there is no NVRTC or no build of the tests")
        return
    flags, gpu = fake
    stridec(f"compile mlp.onnx -o gpu.so {flags}", 0)
    done = json.loads(stridec("bench gpu.so --dim batch=8 --seconds 0.02 --format=json", 0, **gpu).stdout)
    calls = sum(kernel["calls"] for kernel in done["kernels"])
    expect(done["device"] == "Fake GPU" and done["variant"] == "sm_90a" and "threads" not in done, f"{done}")
    expect(calls and abs(done["median_seconds"] - calls * 1e-6) < 1e-7, f"{calls} calls of a microsecond: {done}")
    for kernel in done["kernels"]:
        expect(abs(kernel["seconds"] - kernel["calls"] * 1e-6) < 1e-7, f"{kernel}")
    expect(done["peak"]["tensor_flops_per_second"] == 4 * 1e9 * 4096 and done["peak"]["flops_per_second"] == 4 * 1e9 * 256,
           f"peaks {done['peak']}")  # of 4 multiprocessors at 1 GHz
    text = stridec("bench gpu.so --compare gpu.so --dim batch=8 --seconds 0.02", 0, **gpu).stdout
    expect("sm_90a on Fake GPU" in text and "enqueues a run" in text and "1.000x of the first" in text, text)
    needs = stridec("inspect gpu.so", 0).stdout
    expect(re.search(r"on a GPU NVIDIA's driver >= \d+\.\d+", needs), needs)
    if not has_driver():
        for command in ("bench gpu.so --dim batch=8", "run gpu.so --random"):
            refused = stridec(command, 7).stderr
            expect("no GPU runs this artifact: there is no NVIDIA driver" in refused, refused)


def test_tuning_for_gpus():
    """What is measured on a GPU (a driver without one, whose kernels take a microsecond) is replayed bit for bit where there
    is none; without one nothing is measured, in a sentence."""
    fake = fake_gpu()
    if not fake:
        print("tuning_for_gpus: skipped, there is no NVRTC or no build of the tests")
        return
    flags, gpu = fake
    flags = f"{flags} --mode max-autotune --tune-shape batch=8"
    stridec(f"compile mlp.onnx -o measured.so {flags} --tune-db gpu.txt", 0, **gpu)
    stridec(f"compile mlp.onnx -o frozen.so {flags} --tune-db gpu.txt --frozen", 0)
    for ending in (".so", ".json"):
        with open("measured" + ending, "rb") as first, open("frozen" + ending, "rb") as second:
            expect(first.read() == second.read(), f"the replayed {ending} has other bytes")
    entries = json.loads(stridec("tune show gpu.txt --format=json", 0).stdout)
    expect(entries and all(entry["target"] == "sm_90a" and entry["device"] == "Fake_GPU" for entry in entries), f"entries {entries}")
    with open("measured.json", encoding="utf-8") as file:
        expect(all("measured" in kernel for kernel in json.load(file)["kernels"]), "kernels without their times")
    stridec("tune merge gpu.txt -o together.txt", 0)
    stridec("tune prune gpu.txt", 0)
    for name in ("together.txt", "gpu.txt"):
        kept = json.loads(stridec(f"tune show {name} --format=json", 0).stdout)
        expect(kept == entries, f"{name} has {kept}")
    again = stridec(f"tune mlp.onnx {flags} --tune-db gpu.txt", 0, **gpu)
    expect("from the database" in again.stderr and "measured in" not in again.stderr, again.stderr)
    other = flags.replace("sm_90a", "sm_80")
    lost = stridec(f"compile mlp.onnx -o lost.so {other} --tune-db gpu.txt --frozen", 8)
    expect("error[not-tuned]" in lost.stderr and "sm_80" in lost.stderr, lost.stderr)
    if has_driver():
        return
    none = stridec(f"tune mlp.onnx {flags} --tune-db none.txt", 7)
    expect("error[no-gpu]: nothing was measured for --target cuda: there is no NVIDIA driver" in none.stderr, none.stderr)
    stridec(f"tune mlp.onnx {flags} --tune-db gpu.txt", 0)
    done = stridec(f"compile mlp.onnx -o model.so {flags} --tune-db none.txt", 0)
    expect("nothing was measured for GPUs: there is no NVIDIA driver" in done.stderr, done.stderr)


def test_specialize():
    import jsonschema

    stridec("compile mlp.onnx -o special.so --specialize batch=1,3", 0)
    with open("special.json", encoding="utf-8") as file:
        manifest = json.load(file)
    with open(os.path.join(ROOT, "schemas", "manifest.schema.json"), encoding="utf-8") as file:
        jsonschema.validate(manifest, json.load(file))
    expect([row["when"] for row in manifest["specializations"]] == ["batch == 1", "batch == 3"], manifest)
    done = stridec("compile mlp.onnx -o special.so --specialize batch=1 --cpu x86-64-v3,x86-64-v2", 0).stderr
    expect(re.findall(r"^ *fusing +\d+ operations -> \d+ kernel launch(?:es)? a run on (.*)$", done, re.M)
           == ["x86-64-v3", "x86-64-v3 where batch == 1", "x86-64-v2", "x86-64-v2 where batch == 1"], done)  # fmt: skip
    expect(re.search(r"^ *building +\d+ kernels for all of these programs; equal ones are built once$", done, re.M), done)
    told = json.loads(stridec("compile mlp.onnx -o special.so --specialize batch=1,3 --format=json", 0).stdout)
    expect([program["sizes"] for program in told["programs"]] == [None, "batch == 1", "batch == 3"], told)
    expect(all(program["launches"] > 0 for program in told["programs"]), told)
    for batch in (1, 2, 3, 4):
        np.save("rows.npy", np.random.default_rng(batch).standard_normal((batch, 4)).astype(np.float32))
        stridec("run special.so --input x=rows.npy --output y=special.npy", 0)
        stridec("run mlp.so --input x=rows.npy --output y=y.npy", 0)
        np.testing.assert_allclose(np.load("special.npy"), np.load("y.npy"), rtol=1e-5, atol=1e-6)
    rows = json.loads(stridec("bench special.so --dim batch=3 --seconds 0.05 --format=json", 0).stdout)["kernels"]
    expect(rows and all(row["flops"] > 0 for row in rows), f"kernels {rows}")


def test_repeated_flags():
    """Lists may be given as one flag or as several; a size that is given twice is refused."""
    stridec("compile gather.onnx -o one.so --dim rows=3,k=1..4,n=1..9 --cpu x86-64-v3,x86-64-v4", 0)
    stridec("compile gather.onnx -o several.so --dim rows=3 --dim k=1..4,n=1..9 --cpu x86-64-v3 --cpu x86-64-v4", 0)
    with open("one.so", "rb") as one, open("several.so", "rb") as several:
        expect(one.read() == several.read(), "other bytes")
    stridec("compile gather.onnx -o twice.so --dim rows=3 --dim rows=4", 1)
    sizes = json.loads(stridec("bench gather.so --dim rows=3 --dim k=4 --seconds 0.01 --format=json", 0).stdout)["sizes"]
    expect(sizes["rows"] == 3 and sizes["k"] == 4, sizes)


def test_bench_takes_sizes_from_files():
    """Of files that are given, also for the kernels' flops; a size that one of two libraries is fixed to is the other's."""
    np.save("five.npy", np.ones((5, 4), np.float32))
    given = json.loads(stridec("bench mlp.so --input x=five.npy --seconds 0.02 --format=json", 0).stdout)
    named = json.loads(stridec("bench mlp.so --dim batch=5 --seconds 0.02 --format=json", 0).stdout)
    expect(given["sizes"] == {"batch": 5} and given["flops"] == named["flops"] > 0, f"{given['sizes']}, {given['flops']} flops")
    done = stridec("bench mlp.so --input x=five.npy --dim batch=4", 1)
    expect("'five.npy' gives batch 5, where it is 4" in done.stderr, done.stderr)
    stridec("compile mlp.onnx -o fixed.so --dim batch=5", 0)
    compared = json.loads(stridec("bench mlp.so --compare fixed.so --dim batch=5 --seconds 0.02 --format=json", 0).stdout)
    expect(compared["compare"]["median_seconds"] > 0, compared)
    joined = compared["compare"]["kernels"]
    expect(sorted(name for row in joined for name in row["here"]["kernels"]) == sorted({row["name"] for row in compared["kernels"]}), joined)
    expect(abs(sum(row["here"]["seconds"] for row in joined) - sum(row["seconds"] for row in compared["kernels"])) < 1e-9, joined)
    expect(all(row["nodes"] and row["there"]["kernels"] for row in joined), "nodes of one artifact alone")
    text = stridec("bench mlp.so --compare fixed.so --dim batch=5 --seconds 0.02", 0).stdout
    expect("kernels there" in text and "the same" in text, text)


def test_bench_names_the_level():
    """Bytes a second are a share of what the level reaches that holds them: a cache for small tensors, not memory."""
    told = json.loads(stridec("bench mlp.so --dim batch=8 --seconds 0.02 --format=json", 0).stdout)
    expect(all(kernel["level"] == "L1" for kernel in told["kernels"] if kernel["bytes"]), told["kernels"])
    text = stridec("bench mlp.so --dim batch=8 --seconds 0.02", 0).stdout
    found = re.search(r" GB/s \((\d+) % of \d+\.\d that L1 reaches\)$", text, re.M)
    expect(found and int(found[1]) <= 100, text)


def test_bench_rows():
    """Each names the nodes that it computes; kernels of a run are no more than all of it."""
    told = json.loads(stridec("bench mlp.so --dim batch=8 --seconds 0.02 --format=json", 0).stdout)
    expect(any("MatMul" in node for kernel in told["kernels"] for node in kernel["nodes"]), told["kernels"])
    text = stridec("bench mlp.so --dim batch=8 --seconds 0.02", 0).stdout
    shares = re.findall(r"^ +\S+ \S+ +(\d+) % .* node \d+ ", text, re.M)
    expect(shares and sum(map(int, shares)) <= 100 + len(shares), text)


def test_bench_on_one_processor():
    """The peak is what the processors reach that the process may use, however many threads take turns on them."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        one, four = (json.loads(stridec(f"bench mlp.so --threads {threads} --seconds 0.02 --format=json", 0).stdout)["peak"]
                     for threads in (1, 4))  # fmt: skip
    finally:
        os.sched_setaffinity(0, allowed)
    for rate in ("flops_per_second", "l1_bytes_per_second"):
        expect(four[rate] < 2 * one[rate], f"{one}, {four}")


def test_modes():
    for mode in ("reduce-overhead", "default"):
        stridec(f"compile mlp.onnx -o mode.so --mode {mode}", 0)
        stridec("run mode.so --input x=good.npy --output y=mode.npy", 0)
        stridec("run mlp.so --input x=good.npy --output y=y.npy", 0)
        np.testing.assert_allclose(np.load("mode.npy"), np.load("y.npy"), rtol=1e-5, atol=1e-6)


def test_ci_sample():
    script = os.path.join(ROOT, "samples", "ci", "compile_model.sh")
    settings = {**os.environ, "STRIDEC": STRIDEC}
    settings.pop("GITHUB_ACTIONS", None)

    def step(name, **more):
        command = ["bash", script, name + ".onnx", "ci.so"]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env={**settings, **more})

    good, bad, annotated = step("mlp"), step("two_unknown"), step("two_unknown", GITHUB_ACTIONS="true")
    expect(good.returncode == 0 and "mlp.onnx -> ci.so" in good.stdout, good.stdout + good.stderr)
    expect(bad.returncode == 5, f"exit code {bad.returncode}")
    expect("two_unknown.onnx does not compile: " in bad.stderr and "RotatedNMS" in bad.stdout, bad.stderr + bad.stdout)
    expect("::error file=two_unknown.onnx,title=stridec: unsupported-op::" in annotated.stdout, annotated.stdout)
