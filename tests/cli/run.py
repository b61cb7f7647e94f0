"""Tests what a user of the command line sees: messages, exit codes, JSON, and what is left on disk.

    python tests/cli/run.py [--update] [name...]

Transcripts of refused commands are compared with tests/golden/cli/*.txt; --update writes those anew. Commands run in a
temporary folder that tests/cli/models.py fills. After every command that fails the folder is as before. The last line is
"N passed, N failed". Environment: stridec (the program, default build/stridec).
"""

import difflib
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import models

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GOLDEN = os.path.join(ROOT, "tests", "golden", "cli")
STRIDEC = os.path.abspath(os.environ.get("stridec", "build/stridec"))
SECONDS = 60

# Name of the golden file, what it is about, and (command, exit code) of its transcript.
TRANSCRIPTS = {
    "files": [
        ("check missing.onnx", 2),
        ("check folder.onnx", 2),
        ("check empty.onnx", 3),
        ("check truncated.onnx", 3),
        ("check random.onnx", 3),
        ("check zeros.onnx", 3),
        ("check text.onnx", 3),
        ("check picture.onnx", 3),
        ("check archive.onnx", 3),
        ("check program.onnx", 3),
        ("check html.onnx", 3),
        ("check lfs.onnx", 3),
        ("check pickle.onnx", 3),
        ("compile truncated.onnx -o out.so", 3),
    ],
    "weights": [
        ("compile outside_folder.onnx -o out.so", 3),
        ("compile absolute_path.onnx -o out.so", 3),
        ("compile symlink.onnx -o out.so", 3),
        ("compile data_cut_short.onnx -o out.so", 3),
        ("compile data_of_wrong_length.onnx -o out.so", 3),
        ("compile data_missing.onnx -o out.so", 2),
        ("compile weight_cut_short.onnx -o out.so", 3),
        ("compile weight_of_negative_size.onnx -o out.so", 3),
        ("compile weight_of_huge_size.onnx -o out.so", 3),
    ],
    "graphs": [
        ("compile unknown_op.onnx -o out.so", 5),
        ("compile two_unknown.onnx -o out.so", 5),
        ("check two_unknown.onnx", 5),
        ("check two_unknown.onnx --format=json", 5),
        ("check names_that_act.onnx", 5),
        ("compile names_that_act.onnx -o out.so", 5),
        ("compile cyclic.onnx -o out.so", 3),
        ("compile undefined_input.onnx -o out.so", 3),
        ("compile defined_twice.onnx -o out.so", 3),
        ("compile output_not_made.onnx -o out.so", 3),
        ("compile opset_of_the_future.onnx -o out.so", 5),
        ("compile unknown_op.onnx -o out.so --format=json", 5),
    ],
    "shapes": [
        ("compile matmul_mismatch.onnx -o out.so", 4),
        ("compile add_mismatch.onnx -o out.so", 4),
        ("compile wrong_declared_output.onnx -o out.so", 4),
        ("compile type_mismatch.onnx -o out.so", 4),
        ("compile overflowing_dims.onnx -o out.so", 4),
        ("compile overflowing_product.onnx -o out.so", 4),
        ("compile axis_outside.onnx -o out.so", 4),
        ("compile step_of_zero.onnx -o out.so", 4),
        ("compile ranks_of_branches.onnx -o out.so", 5),
    ],
    "sizes": [(f"compile {name}.onnx -o out.so", 5 if name.startswith("rank") else 4) for name in models.overflowing_models()],
    "attributes": [
        ("compile missing_attribute.onnx -o out.so", 3),
        ("compile wrong_attribute.onnx -o out.so", 3),
        ("compile too_few_inputs.onnx -o out.so", 3),
    ],
    "usage": [
        ("", 1),
        ("frobnicate", 1),
        ("compile", 1),
        ("compile mlp.onnx -o out.so --dim batch", 1),
        ("compile mlp.onnx -o out.so --dim batch=8..2", 1),
        ("compile mlp.onnx -o out.so --dim batch=1..99999999999999999999", 1),
        ("compile mlp.onnx -o out.so --dim colour=1..2", 1),
        ("compile mlp.onnx -o out.so --dim batch=3..4%5", 1),
        ("compile mlp.onnx -o out.so --dim batch=1..8,batch=3", 1),
        ("compile mlp.onnx -o out.so --mode turbo", 1),
        ("compile mlp.onnx -o out.so -O frobnication=7", 1),
        ("compile mlp.onnx -o out.so -O winograd=maybe", 1),
        ("options", 0),
        ("compile mlp.onnx -o out.so --cpu i8086", 1),
        ("compile mlp.onnx -o nowhere/out.so", 2),
        ("compile mlp.onnx -o taken.so", 2),
        ("compile mlp.onnx -o mlp.onnx", 1),
        ("compile mlp.onnx -o out.json", 1),
        ("compile mlp.onnx -o out.so --max-seconds -1", 1),
        ("verify mlp.onnx --tolerance nan", 1),
        ("verify mlp.onnx --runs 0", 1),
        ("verify mlp.onnx --dim colour=3", 1),
        ("verify mlp.onnx --input z=good.npy", 1),
        ("bench mlp.so --dim colour=3", 1),
        ("bench mlp.so --input z=good.npy", 1),
        ("inspect mlp.onnx --stage=source --kernel 9", 1),
        ("inspect mlp.onnx --stage=dreams", 1),
        ("run missing.so", 2),
        ("run text.onnx", 3),
        ("inspect program.onnx", 3),
        ("inspect taken.so", 2),
    ],
    "passes": [
        ("passes", 0),
        ("compile scaled.onnx -o out.so -q --dump-after=import,affine,fusion --stop-after=fusion", 0),
        ("compile scaled.onnx -o out.so --progress=none --dump-after=affine --stop-after=import", 0),
        ("compile mlp.onnx -o out.so --dump-after=fission", 1),
        ("compile mlp.onnx -o out.so --stop-after=all", 1),
        ("compile mlp.onnx -o out.so --dump-dir .", 1),
        ("compile mlp.onnx -o out.so --dump-after=all --dump-dir nowhere", 2),
    ],
    "tune": [
        ("tune", 1),
        ("tune show missing.txt", 2),
        ("tune show text.onnx", 3),
        ("tune merge missing.txt -o merged.txt", 2),
        ("tune mlp.onnx --tune-db untuned.txt --tune-shape colour=1", 1),
        ("tune mlp.onnx --tune-db untuned.txt --tune-shape batch", 1),
        ("compile mlp.onnx -o out.so --tune-db missing.txt --frozen", 2),
        ("compile mlp.onnx -o out.so --tune-db text.onnx", 3),
        ("compile mlp.onnx -o out.so --specialize batch", 1),
        ("compile mlp.onnx -o out.so --specialize colour=3", 1),
        ("compile mlp.onnx -o out.so --specialize batch=1 --specialize batch=2", 1),
    ],
    "run": [
        ("run mlp.so", 1),
        ("run mlp.so --input x=flat.npy", 4),
        ("run mlp.so --input x=integers.npy", 4),
        ("run mlp.so --input x=wide.npy", 4),
        ("run mlp.so --input x=many.npy", 4),
        ("run mlp.so --input z=good.npy", 1),
        ("run mlp.so --random --dim colour=3", 1),
        ("run mlp.so --input x=good.npy --output z=out.npy", 1),
        ("run mlp.so --input x=missing.npy", 2),
        ("run mlp.so --input x=text.onnx", 3),
        ("run mlp.so --input x=short.npy", 3),
        ("run mlp.so --input x=good.npy --output y=nowhere/out.npy", 2),
        ("run mlp.so --input x=good.npy", 0),
        ("run mlp.so --input x=good.npy --format=json", 0),
        ("run gather.so --input table=table.npy --input index=outside.npy --input left=two.npy --input right=two.npy", 4),
        ("run gather.so --input table=table.npy --input index=inside.npy --input left=two.npy --input right=three.npy", 4),
        ("run damaged.so --input x=good.npy", 3),
        ("run cut.so --input x=good.npy", 3),
    ],
}


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def stridec(arguments, check=None, **more):
    """The finished process; asserts on its exit code where `check` gives one."""
    words = shlex.split(arguments) if isinstance(arguments, str) else arguments
    done = subprocess.run([STRIDEC, *words], capture_output=True, text=True, errors="replace", timeout=SECONDS, **more)
    if check is not None:
        expect(done.returncode == check, f"exit code {done.returncode} instead of {check}: {done.stdout}{done.stderr}")
    return done


def contents():
    """Names and sizes of all files of the folder."""
    return {entry.path: entry.stat(follow_symlinks=False).st_size for entry in os.scandir(".")}


# ---- transcripts ----


def transcript(cases):
    """What the commands print, as text, and complaints about codes and left-over files."""
    text, complaints = "", []
    for command, code in cases:
        before = contents()
        done = stridec(command)
        text += f"$ stridec {command}\n{done.stdout}{done.stderr}exit code {done.returncode}\n\n"
        if done.returncode != code:
            complaints.append(f"'stridec {command}': exit code {done.returncode} instead of {code}")
        if contents() != before:
            complaints.append(f"'stridec {command}' left {sorted(contents().items() ^ before.items())}")
    return re.sub(r"stridec \d+\.\d+\.\d+", "stridec VERSION", text), complaints


def check_transcript(name, update):
    got, complaints = transcript(TRANSCRIPTS[name])
    path = os.path.join(GOLDEN, name + ".txt")
    if update:
        os.makedirs(GOLDEN, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(got)
    expected = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            expected = file.read()
    if got != expected:
        lines = difflib.unified_diff(expected.splitlines(), got.splitlines(), f"golden/cli/{name}.txt", "now", "", "", 2, "")
        complaints.append("\n".join(lines))
    expect(not complaints, "\n".join(complaints))


# ---- the disk and interruptions ----


def test_full_disk():
    """A file system of 32 KB, which is less than any artifact. Needs a mount namespace; passes without one."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        print("full_disk: skipped, this machine gives no mount namespaces")
        return
    os.makedirs("disk")
    command = f"mount -t tmpfs -o size=32k none disk && {{ {shlex.quote(STRIDEC)} compile mlp.onnx -o disk/full.so; "
    command += "code=$?; ls -A disk; exit $code; }"
    done = subprocess.run(["unshare", "-rm", "bash", "-c", command], capture_output=True, text=True, timeout=SECONDS)
    expect(done.returncode == 6, f"exit code {done.returncode} instead of 6: {done.stderr}")
    expect("full.so" in done.stderr and "error[no-space]" in done.stderr, done.stderr)
    expect(done.stdout == "", f"left {done.stdout}")


def test_file_size_limit():
    """A quota that ends while linking, or in the middle of a file."""
    for flags, kilobytes in (("", 40), ("--weights external", 40), ("--weights external", 0)):
        before = contents()
        limit = kilobytes * 1024
        done = stridec(f"compile mlp.onnx -o quota.so --no-cache {flags}", preexec_fn=lambda limit=limit: resource.setrlimit(
            resource.RLIMIT_FSIZE, (limit, limit)))  # fmt: skip
        expect(done.returncode == 6, f"exit code {done.returncode} instead of 6: {done.stderr}")
        expect("error[no-space]" in done.stderr and "mlp.onnx" in done.stderr, done.stderr)
        expect(contents() == before, f"left {sorted(contents().items() ^ before.items())}")


def test_budgets():
    """Time and memory that run out are a sentence with the file and the stage, and a code of their own."""
    before = contents()
    for command, code in (
        ("compile tower.onnx -o budget.so --no-cache --max-seconds 0.05", "over-time"),
        ("compile tower.onnx -o budget.so --no-cache --max-memory 8MB", "over-memory"),
        ("check tower.onnx --max-memory 1MB", "over-memory"),
    ):
        done = stridec(command, 6)
        expect(f"error[{code}]" in done.stderr and "tower.onnx" in done.stderr and "while" in done.stderr, done.stderr)
        error = json.loads(stridec(command + " --format=json", 6).stdout)["error"]
        expect(error["code"] == code and error["file"] == "tower.onnx", error)
    stridec("check tower.onnx --max-seconds 50 --max-memory 2GB", 0)
    stridec("compile mlp.onnx --max-memory plenty", 1)
    expect(contents() == before, f"left {sorted(contents().items() ^ before.items())}")


def test_bombs():
    """Small files that ask for much are compiled for what they are, refused, or stopped by the budget."""
    for name, code, message in (
        ("growing", 0, ""),  # nothing that grows so is computed at compile time
        ("looping", 0, ""),  # a loop stays a loop
        ("splitting", 6, "error[over-"),
        ("calling", 6, "error[model-too-large]"),
    ):
        before = contents()
        done = stridec(f"compile {name}.onnx -o bomb.so --max-seconds 30 --max-memory 500MB")
        expect(done.returncode == code and message in done.stderr, f"{name}: exit code {done.returncode}: {done.stderr}")
        expect(code == 0 or f"{name}.onnx" in done.stderr, done.stderr)
        if code == 0:
            expect(os.path.getsize("bomb.so") < 1 << 20, f"{name}: {os.path.getsize('bomb.so')} bytes")
            os.remove("bomb.so")
            os.remove("bomb.json")
        expect(contents() == before, f"left {sorted(contents().items() ^ before.items())}")


def test_check():
    """Sizes that the caller chooses, conditions with expressions in the place of placeholders."""
    text = stridec("check gather.onnx", 0).stdout
    expect("{" not in text and "n == m" in text.replace("m == n", "n == m"), text)
    expect("sum/Add" in text and "rows  any size" in text, text)
    guards = json.loads(stridec("check gather.onnx --format=json", 0).stdout)["guards"]
    expect(len(guards) == 1 and "sum/Add" in guards[0]["node"] and "{" not in guards[0]["sentence"], guards)
    expect("{" not in stridec("inspect gather.so", 0).stdout, "inspect prints placeholders")


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


def test_outputs_take_no_inputs_place():
    """Neither the model, by any of its names, nor its weights, nor a pipe is replaced; the result of a check is."""
    shutil.copy("external.onnx", "model.onnx")
    shutil.copy("whole.bin", "model.weights")
    model = models.onnx.load("model.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "model.weights" if entry.key == "location" else entry.value
    models.onnx.save(model, "model.onnx")
    os.symlink("model.onnx", "linked.onnx")
    os.mkfifo("pipe.so")
    before = contents()
    for command, code in (
        ("compile model.onnx -o linked.onnx", 1),
        ("compile linked.onnx -o model.onnx", 1),
        ("compile model.onnx -o model.so --weights external", 1),
        ("compile model.onnx -o pipe.so", 2),
        ("run mlp.so --random --output y=pipe.so", 2),
        ("inspect mlp.onnx --write-graph pipe.so", 2),
    ):
        stridec(command, code)
        expect(contents() == before, f"'{command}' left {sorted(contents().items() ^ before.items())}")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([STRIDEC, "exit-codes"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
    expect(done.returncode == 6 and "error[no-space]" in done.stderr, f"exit code {done.returncode}: {done.stderr}")


def test_interruption():
    """SIGINT at four moments: the code is 130 and nothing is left, or the work was done by then."""
    for number, delay in enumerate([0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8]):
        before = contents()
        command = [STRIDEC, "compile", "tower.onnx", "-o", "broken.so", "--no-cache"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=SECONDS)
        if process.returncode == 0:
            expect(number > 0, "20 ms were enough to compile the tower")
            os.remove("broken.so")
            os.remove("broken.json")
            continue
        if process.returncode == -signal.SIGINT:  # before main began
            expect(number < 3 and contents() == before, messages)
            continue
        expect(process.returncode == 130, f"exit code {process.returncode} instead of 130: {messages}")
        expect("interrupted" in messages and "--> tower.onnx" in messages, messages)
        expect(contents() == before, f"left {sorted(contents().items() ^ before.items())}")


def test_existing_artifact_survives():
    """A compilation that fails does not touch what an earlier one wrote."""
    shutil.copy("mlp.so", "kept.so")
    with open("kept.so", "rb") as file:
        before = file.read()
    stridec("compile matmul_mismatch.onnx -o kept.so", 4)
    with open("kept.so", "rb") as file:
        expect(file.read() == before, "the artifact of an earlier compilation was changed")


def test_mutations():
    """Models with bytes changed, inserted or removed end with a documented code, never with a crash or a hang."""
    rng = random.Random(11)
    with open("gather.onnx", "rb") as file:
        good = file.read()
    for number in range(60):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at, kind = rng.randrange(len(data)), rng.randrange(3)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 8)))
            else:
                del data[at : at + rng.randint(1, 8)]
        with open("mutated.onnx", "wb") as file:
            file.write(data)
        done = stridec("check mutated.onnx")
        expect(done.returncode in (0, 2, 3, 4, 5, 6), f"mutation {number}: exit code {done.returncode}: {done.stderr}")
    os.remove("mutated.onnx")


# ---- what succeeds ----


def test_manifest():
    import jsonschema

    with open(os.path.join(ROOT, "schemas", "manifest.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    for name in ("mlp", "gather", "external"):
        with open(name + ".json", encoding="utf-8") as file:
            text = file.read()
        manifest = json.loads(text)
        jsonschema.validate(manifest, schema)
        expect(stridec(f"inspect {name}.so --format=json", 0).stdout == text, "the library carries another manifest")
        expect(stridec(f"inspect {name}.json --format=json", 0).stdout == text, "inspect changes the manifest")
    symbols = {row["name"]: row for row in manifest["symbols"]}
    expect((symbols["batch"]["minimum"], symbols["batch"]["maximum"]) == (1, 8), f"symbols {symbols}")


def test_inspect_by_content():
    """What a file is does not hang on its name."""
    shutil.copy("mlp.so", "library")
    text = stridec("inspect library", 0).stdout
    expect(text.replace("library", "mlp.so", 1) == stridec("inspect mlp.so", 0).stdout, text)
    with open("other.json", "w", encoding="utf-8") as file:
        file.write('{"kernels": []}')
    expect("bad-manifest" in stridec("inspect other.json", 3).stderr, "not refused as a manifest")


def test_inspect():
    for stage in ("graph", "loops", "schedule", "fused", "memory", "source", "manifest"):
        expect(stridec(f"inspect mlp.onnx --stage={stage}", 0).stdout, f"nothing is printed for {stage}")
        json.loads(stridec(f"inspect mlp.onnx --stage={stage} --format=json", 0).stdout)
    graph = stridec("inspect mlp.onnx --stage=graph", 0).stdout
    expect("batch" in graph and "relu" in graph.lower(), graph)


def test_pass_flags():
    """What --dump-after, --time-passes and --stop-after make beside the transcripts: files and JSON."""
    table = [row["pass"] for row in json.loads(stridec("passes --format=json", 0).stdout)]
    expect(len(set(table)) == len(table), f"names of passes are not unique: {table}")
    table = [name for name in table if not name.startswith("gpu ")]  # of another target
    os.makedirs("dumps")
    flags = "--cpu x86-64-v3,x86-64-v2 --verify-passes"
    stridec(f"compile mlp.onnx -o dumped.so --dump-after=all --dump-dir dumps {flags}", 0)
    files = sorted(os.listdir("dumps"))
    names = [re.match(r"(\d\d)-(\w+)(\.x86-64-v[23])?\.txt$", file).groups() for file in files]
    expect([number for number, _, _ in names] == [f"{i + 1:02}" for i in range(len(names))], f"dumps {files}")
    expect(list(dict.fromkeys(name for _, name, _ in names)) == table, f"dumps {files} of the passes {table}")
    expect({variant for _, name, variant in names if name == table[-1]} == {".x86-64-v2", ".x86-64-v3"}, f"dumps {files}")
    expect(all(os.path.getsize(os.path.join("dumps", file)) for file in files), "a dump is empty")

    report = json.loads(stridec(f"compile mlp.onnx -o dumped.so --time-passes --format=json {flags}", 0).stdout)
    rows = report["passes"]
    expect([row["pass"] for row in rows if row["pass"]] == table, f"times {rows}")
    expect([row["stage"] for row in rows if not row["pass"]] == ["packing", "building", "linking"], f"times {rows}")
    expect(all(row["seconds"] > 0 and row["runs"] == (2 if row["pass"] == table[-1] else row["runs"]) for row in rows), f"{rows}")
    expect(all((row["verifying_seconds"] > 0) == bool(row["pass"]) for row in rows), f"a pass is not verified: {rows}")
    text = stridec("compile mlp.onnx -o dumped.so --time-passes --quiet", 0).stdout
    for name in ["stage", *table, "packing", "all"]:
        expect(re.search(rf"\b{name}\b", text), f"{name} is not in {text}")

    stopped = json.loads(stridec("compile mlp.onnx -o none.so --stop-after=lower --dump-after=lower --format=json", 0).stdout)
    expect([dump["pass"] for dump in stopped["dumps"]] == ["lower"] and "artifact" not in stopped, f"{stopped}")
    expect(not os.path.exists("none.so"), "--stop-after left an artifact")


def test_json_everywhere():
    for command in ("ops", "modes", "options", "passes", "targets", "exit-codes", "check mlp.onnx", "inspect mlp.so",
                    "bench mlp.so --dim batch=2 --seconds 0.05", "compile mlp.onnx -o again.so"):  # fmt: skip
        done = stridec(f"{command} --format=json", 0)
        json.loads(done.stdout)
    for command in ("check missing.onnx", "compile empty.onnx -o out.so", "run missing.so", "bench missing.so",
                    "inspect missing.so", "verify missing.onnx"):  # fmt: skip
        done = stridec(f"{command} --format=json")
        error = json.loads(done.stdout)["error"]
        expect(error["exit_code"] == done.returncode != 0, f"{command}: {error}")


def test_progress():
    done = stridec("compile tower.onnx -o progress.so --no-cache --progress=json", 0)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    expect(lines and all({"stage", "done", "total"} <= set(line) for line in lines), done.stderr)
    expect(any(line["total"] > 1 for line in lines), "no stage counts")
    quiet = stridec("compile mlp.onnx -o progress.so --quiet", 0)
    expect(quiet.stderr == "" and quiet.stdout == "", f"--quiet prints {quiet.stderr}{quiet.stdout}")
    plain = stridec("compile mlp.onnx -o progress.so", 0)
    expect("\x1b" not in plain.stderr and "\r" not in plain.stderr, "control characters beside a terminal")
    expect("wrote" in plain.stderr, plain.stderr)


def test_same_bytes():
    files = []
    for flags in ("", "--no-cache"):
        stridec(f"compile mlp.onnx -o same.so {flags}", 0)
        with open("same.so", "rb") as file:
            files.append(file.read())
    expect(files[0] == files[1], "the same model and flags give other bytes")


def test_tuning():
    """What is measured is replayed bit for bit; what is not in the database is refused by name."""
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
    expect(not os.path.exists("lost.so"), "an artifact is left")

    with open("tuned.txt", encoding="utf-8") as file:
        lines = file.read()
    with open("twice.txt", "w", encoding="utf-8") as file:
        file.write(lines + lines)
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
    expect("0 of them measured now" in again.stderr, again.stderr)
    stridec("run tuned.so --input x=good.npy --output y=tuned.npy", 0)
    stridec("run mlp.so --input x=good.npy --output y=y.npy", 0)
    np.testing.assert_allclose(np.load("tuned.npy"), np.load("y.npy"), rtol=1e-5, atol=1e-6)


def test_schedule():
    """What was fused and saves, and what else each kernel could have run with, as text and as JSON."""
    told = json.loads(stridec("inspect mlp.onnx --stage=schedule --format=json", 0).stdout)
    fused = [decision for decision in told["decisions"] if decision["fused"]]
    expect(any(decision.get("typical_bytes", 0) > 0 for decision in fused), f"decisions {told['decisions']}")
    for kernel in told["kernels"]:
        expect(kernel["candidates"] > 0 and kernel["expected_cycles"] > 0, f"kernel {kernel}")
        expect(kernel["chosen_by"] == "model", f"kernel {kernel}")
    expect(any(kernel["others"] for kernel in told["kernels"]), f"kernels {told['kernels']}")
    text = stridec("inspect mlp.onnx --stage=schedule", 0).stdout
    expect("; saves " in text and "the model's choice; one of " in text, text)


def test_specialize():
    import jsonschema

    stridec("compile mlp.onnx -o special.so --specialize batch=1,3", 0)
    with open("special.json", encoding="utf-8") as file:
        manifest = json.load(file)
    with open(os.path.join(ROOT, "schemas", "manifest.schema.json"), encoding="utf-8") as file:
        jsonschema.validate(manifest, json.load(file))
    expect([row["when"] for row in manifest["specializations"]] == ["batch == 1", "batch == 3"], manifest)
    for batch in (1, 2, 3, 4):
        np.save("rows.npy", np.random.default_rng(batch).standard_normal((batch, 4)).astype(np.float32))
        stridec("run special.so --input x=rows.npy --output y=special.npy", 0)
        stridec("run mlp.so --input x=rows.npy --output y=y.npy", 0)
        np.testing.assert_allclose(np.load("special.npy"), np.load("y.npy"), rtol=1e-5, atol=1e-6)
    rows = json.loads(stridec("bench special.so --dim batch=3 --seconds 0.05 --format=json", 0).stdout)["kernels"]
    expect(rows and all(row["flops"] > 0 for row in rows), f"kernels {rows}")


def test_modes():
    for mode in ("reduce-overhead", "default"):
        stridec(f"compile mlp.onnx -o mode.so --mode {mode}", 0)
        stridec("run mode.so --input x=good.npy --output y=mode.npy", 0)
        stridec("run mlp.so --input x=good.npy --output y=y.npy", 0)
        np.testing.assert_allclose(np.load("mode.npy"), np.load("y.npy"), rtol=1e-5, atol=1e-6)


def test_run_and_verify():
    stridec("run mlp.so --input x=good.npy --output y=y.npy", 0)
    weights = {tensor.name: models.numpy_helper.to_array(tensor) for tensor in models.mlp().graph.initializer}
    expected = np.maximum(np.load("good.npy") @ weights["w"] + weights["b"], 0)
    np.testing.assert_allclose(np.load("y.npy"), expected, rtol=1e-5, atol=1e-6)
    stridec("verify mlp.onnx mlp.so --dim batch=3", 0)
    stridec("verify mlp.onnx", 0)
    # Sizes are the artifact's, whether --dim gave a range or a number; what it cannot have is refused.
    for dims, ask, code in (
        ("batch=6..9", "", 0),
        ("batch=7", "", 0),
        ("batch=7", "--dim batch=7", 0),
        ("batch=7", "--dim batch=8", 4),
        ("batch=6..9", "--dim colour=8", 1),
    ):
        stridec(f"compile mlp.onnx -o few.so --dim {dims}", 0)
        stridec(f"verify mlp.onnx few.so {ask}", code)
        stridec("bench few.so --seconds 0.01", 0)
    stridec("compile mlp.onnx -o few.so --precision bf16", 0)
    expect("tolerance 0.05" in stridec("verify mlp.onnx few.so", 0).stdout, "not the artifact's precision")
    stridec("verify frames.onnx --dim frames=3", 0)
    stridec("verify frames.onnx", 5)
    stridec("compile frames.onnx -o frames.so --dim frames=3", 0)
    stridec("verify frames.onnx frames.so", 0)
    stridec("verify repeated.onnx --runs 2", 0)
    sizes = json.loads(stridec("verify gather.onnx --format=json", 0).stdout)["runs"]  # no size, no index is given
    expect(len(sizes) == 3 and all(run["sizes"]["n"] == run["sizes"]["m"] or 1 in run["sizes"].values() for run in sizes), sizes)
    np.save("wrong.npy", expected + 1)
    done = stridec("verify mlp.onnx mlp.so --input x=good.npy --expect y=wrong.npy", 8)
    expect("FAIL  output 'y'" in done.stdout, done.stdout)
    stridec("run external.so --input x=good.npy --output y=y.npy", 0)
    np.testing.assert_allclose(np.load("y.npy"), expected, rtol=1e-5, atol=1e-6)


def test_verify_finds():
    """The node where rounding begins, an artifact of another model, and a weight that was changed in the file."""
    done = stridec("verify rounded.onnx --tolerance 0 --dim batch=9", 8)
    expect("FAIL  output 'y'" in done.stdout and "first difference at node 1 'rounds/Tanh'" in done.stdout, done.stdout)
    expect("in kernel" in done.stdout and "exact/Relu" in done.stdout, done.stdout)
    failure = json.loads(stridec("verify rounded.onnx --tolerance 0 --format=json", 8).stdout)
    expect(not failure["pass"] and "rounds/Tanh" in failure["failure"], failure)
    other = models.mlp()
    weight = models.numpy_helper.to_array(other.graph.initializer[0]).copy()
    weight[1, 2] += 0.5
    other.graph.initializer[0].raw_data = weight.tobytes()
    models.onnx.save(other, "other.onnx")
    done = stridec("verify other.onnx mlp.so --dim batch=3", 8)
    expect("compile the artifact again" in done.stdout, done.stdout)
    stridec("verify other.onnx --dim batch=3", 0)
    with open("mlp.so", "rb") as file:
        library = bytearray(file.read())
    bias = models.numpy_helper.to_array(models.mlp().graph.initializer[1]).tobytes()
    at = bytes(library).find(bias[:16])
    expect(at > 0, "the bias is not in the library")
    library[at : at + 4] = np.float32(77).tobytes()
    with open("spoiled.so", "wb") as file:
        file.write(library)
    done = stridec("verify mlp.onnx spoiled.so --dim batch=3", 8)
    expect("FAIL  output 'y'" in done.stdout and "compile the artifact again" in done.stdout, done.stdout)


def test_memory_of_the_run():
    """A buffer whose size is data is shown as allocated during the run, and after which node."""
    text = stridec("inspect counted.onnx --stage=memory", 0).stdout
    expect("allocated during the run, size known after" in text and "count/Range" in text, text)
    buffers = json.loads(stridec("inspect counted.onnx --stage=memory --format=json", 0).stdout)["buffers"]
    made = [buffer for buffer in buffers if buffer["offset"] is None]
    expect(made and all("count/Range" in buffer["allocated_after"] for buffer in made), buffers)


def test_libc_alone():
    listing = subprocess.run(["readelf", "-dW", "mlp.so"], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", listing)
    expect(needed == ["libc.so.6"], f"needs {needed}")


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


def test_readme_has_the_exit_codes():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        rows = re.findall(r"^\| (\d+) \| ([a-z-]+) \|", file.read(), re.M)
    printed = [(row["code"], row["name"]) for row in json.loads(stridec("exit-codes --format=json", 0).stdout)]
    expect(rows == printed, f"README has {rows}, the program {printed}")


# ---- the library given nonsense ----


def runtime_sentences():
    """What the library answers to bad arguments, one line each."""
    import ctypes

    import stridec as api

    def answer(what, call):
        try:
            call()
            return f"{what}: accepted\n"
        except api.Error as error:
            return f"{what}: {error}\n"

    mlp, gather = api.Model("mlp.so").context(threads=1), api.Model("gather.so").context(threads=1)
    x = np.ones((2, 4), np.float32)
    table, index = np.ones((3, 4), np.float32), np.array([0, 2])
    two, three = np.ones((2, 2), np.float32), np.ones((3, 2), np.float32)
    good = [table, index, two, two]

    def raw(change, inputs=1, outputs=1):
        """context_run with a tensor that `change` spoils."""
        given, made = (api._Tensor * 1)(api._tensor(x)), (api._Tensor * 1)()
        change(given[0], made[0])
        mlp._check(mlp._api.context_run(mlp._handle, given, inputs, made, outputs))

    def null_data(given, made):
        given.data = None

    def null_shape(given, made):
        given.shape = None

    def negative_size(given, made):
        given.shape = (ctypes.c_int64 * 2)(-2, 4)

    def other_device(given, made):
        given.device.type = 2

    def two_lanes(given, made):
        given.dtype.lanes = 2

    def far_strides(given, made):
        given.strides = (ctypes.c_int64 * 2)(2**62, 1)

    def nothing(given, made):
        pass

    run = mlp._api.context_run
    tensors = ctypes.POINTER(api._Tensor)
    text = "".join(
        [
            answer("rank 1", lambda: mlp.run(x[0])),
            answer("int64", lambda: mlp.run(x.astype(np.int64))),
            answer("f64", lambda: mlp.run(x.astype(np.float64))),
            answer("five columns", lambda: mlp.run(np.ones((2, 5), np.float32))),
            answer("batch 9", lambda: mlp.run(np.ones((9, 4), np.float32))),
            answer("batch 0", lambda: mlp.run(np.ones((0, 4), np.float32))),
            answer("an output too small", lambda: mlp.run(x, out=[np.zeros((1, 8), np.float32)])),
            answer("an output of another type", lambda: mlp.run(x, out=[np.zeros((2, 8), np.int32)])),
            answer("no inputs", lambda: raw(nothing, inputs=0)),
            answer("no outputs", lambda: raw(nothing, outputs=0)),
            answer("data null", lambda: raw(null_data)),
            answer("shape null", lambda: raw(null_shape)),
            answer("size -2", lambda: raw(negative_size)),
            answer("device 2", lambda: raw(other_device)),
            answer("two lanes", lambda: raw(two_lanes)),
            answer("strides too large", lambda: raw(far_strides)),
            answer("inputs null", lambda: mlp._check(run(mlp._handle, tensors(), 1, tensors(), 1))),
            answer("index outside", lambda: gather.run(table, np.array([0, 3]), two, two)),
            answer("index far outside", lambda: gather.run(table, np.array([-(2**62)]), two, two)),
            answer("rows that do not broadcast", lambda: gather.run(table, index, two, three)),
            answer("rows that broadcast", lambda: gather.run(table, index, two[:1], three)),
            answer("all good", lambda: gather.run(*good)),
        ]
    )
    library, given = mlp._api, (api._Tensor * 1)(api._tensor(x))
    text += answer("outputs null", lambda: mlp._check(run(mlp._handle, given, 1, tensors(), 1)))
    model, info = api.Model("mlp.so"), api._ValueInfo()
    handle = model._handle
    name = library.status_name
    for what, status in (
        ("context null", run(None, tensors(), 0, tensors(), 0)),
        ("model null", library.model_input(None, 0, ctypes.byref(info))),
        ("input 1 of 1", library.model_input(handle, 1, ctypes.byref(info))),
        ("output -1", library.model_output(handle, -1, ctypes.byref(info))),
        ("info null", library.model_input(handle, 0, None)),
        ("state 0 of none", library.context_state(mlp._handle, 0, ctypes.byref(given[0]))),
    ):
        text += f"{what}: {name(status).decode()}\n"
    return text


def check_runtime(update):
    """In a process of its own: a crash is a failure of this test alone."""
    done = subprocess.run([sys.executable, __file__, "--runtime-sentences"], capture_output=True, text=True, timeout=SECONDS)
    expect(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
    path = os.path.join(GOLDEN, "runtime.txt")
    if update:
        with open(path, "w", encoding="utf-8") as file:
            file.write(done.stdout)
    with open(path, encoding="utf-8") as file:
        expected = file.read()
    lines = difflib.unified_diff(expected.splitlines(), done.stdout.splitlines(), "golden/cli/runtime.txt", "now", "", "", 2, "")
    expect(done.stdout == expected, "\n".join(lines))


# ---- all of it ----


def prepare():
    """Models, artifacts and arrays for the tests, in the current folder."""
    models.write_all(".")
    with open(os.path.join("..", "outside.bin"), "wb") as file:
        file.write(bytes(128))
    stridec("compile mlp.onnx -o mlp.so --dim batch=1..8", 0)
    stridec("compile gather.onnx -o gather.so", 0)
    stridec("compile external.onnx -o external.so --dim batch=1..8", 0)
    with open("mlp.so", "rb") as file:
        library = file.read()
    with open("cut.so", "wb") as file:
        file.write(library[: len(library) // 2])
    with open("damaged.so", "wb") as file:
        file.write(bytes(64) + library[64:])
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    arrays = {
        "good": x,
        "flat": x.reshape(12),
        "integers": np.ones((3, 4), np.int64),
        "wide": np.ones((3, 5), np.float32),
        "many": np.ones((9, 4), np.float32),
        "table": x,
        "inside": np.array([0, 2]),
        "outside": np.array([0, 3]),
        "two": x[:2, :2],
        "three": x[:, :2],
    }
    for name, array in arrays.items():
        np.save(name + ".npy", array)
    with open("good.npy", "rb") as file, open("short.npy", "wb") as cut:
        cut.write(file.read()[:-8])


TESTS = [
    test_full_disk,
    test_file_size_limit,
    test_budgets,
    test_bombs,
    test_check,
    test_external_weights,
    test_outputs_take_no_inputs_place,
    test_interruption,
    test_existing_artifact_survives,
    test_mutations,
    test_manifest,
    test_inspect,
    test_inspect_by_content,
    test_pass_flags,
    test_json_everywhere,
    test_progress,
    test_same_bytes,
    test_tuning,
    test_schedule,
    test_specialize,
    test_modes,
    test_run_and_verify,
    test_verify_finds,
    test_memory_of_the_run,
    test_libc_alone,
    test_ci_sample,
    test_readme_has_the_exit_codes,
]


def main(arguments):
    update = "--update" in arguments
    names = [argument for argument in arguments if not argument.startswith("--")]
    todo = {name: lambda name=name: check_transcript(name, update) for name in TRANSCRIPTS}
    todo["runtime"] = lambda: check_runtime(update)
    todo |= {test.__name__.removeprefix("test_"): test for test in TESTS}
    failed = 0
    with tempfile.TemporaryDirectory(prefix="stridec-cli-") as parent:
        os.makedirs(os.path.join(parent, "work"))
        os.chdir(os.path.join(parent, "work"))
        os.environ["LC_ALL"] = "C"
        try:
            prepare()
        except AssertionError as error:
            print(f"FAIL preparing: {error}\n0 passed, {len(todo)} failed")
            return 1
        chosen = names or list(todo)
        for name in chosen:
            try:
                todo[name]()
            except (AssertionError, subprocess.SubprocessError, ValueError, KeyError, OSError) as error:
                failed += 1
                print(f"FAIL {name}: {error}")
        os.chdir(ROOT)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(ROOT, "samples", "python"))
    if sys.argv[1:] == ["--runtime-sentences"]:
        print(runtime_sentences(), end="")
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
