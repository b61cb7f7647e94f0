"""What is left on disk when something goes wrong: no room, a budget that runs out, an interruption, hostile models."""

import json
import os
import pathlib
import random
import resource
import shlex
import shutil
import signal
import subprocess
import time

import models
from harness import SECONDS, STRIDEC, contents, expect, stridec


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


def test_without_proc():
    """The linker's files have no paths in memory then. Needs a mount namespace; passes without one."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        print("without_proc: skipped, this machine gives no mount namespaces")
        return
    os.makedirs("scratch")
    stridec("compile mlp.onnx -o with.so --no-cache", 0)
    command = f"mount -t tmpfs none /proc && TMPDIR=$PWD/scratch {shlex.quote(STRIDEC)} compile mlp.onnx -o without.so --no-cache -q"
    done = subprocess.run(["unshare", "-rm", "bash", "-c", command], capture_output=True, text=True, timeout=SECONDS)
    expect(done.returncode == 0, done.stderr)
    same = pathlib.Path("with.so").read_bytes() == pathlib.Path("without.so").read_bytes()
    expect(same and not os.listdir("scratch"), f"the same bytes: {same}; left {os.listdir('scratch')}")


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
        ("looping", 5, "error[unbounded-loop]"),
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
        if process.returncode == -signal.SIGINT:  # before main began, which a busy machine puts off
            start = time.perf_counter()
            stridec("--version")
            expect((number < 3 or delay < 4 * (time.perf_counter() - start)) and contents() == before, messages)
            continue
        expect(process.returncode == 130, f"exit code {process.returncode} instead of 130: {messages}")
        # A busy machine may not have read the arguments yet, which name the file.
        expect("interrupted" in messages and ("--> tower.onnx" in messages or "reading" not in messages), messages)
        expect(contents() == before, f"left {sorted(contents().items() ^ before.items())}")
    for _ in range(10):  # once files take their names it is too late
        process = subprocess.Popen([STRIDEC, "compile", "tower.onnx", "-o", "broken.so"], stderr=subprocess.PIPE, text=True)
        while not os.path.exists("broken.so") and process.poll() is None:
            pass
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=SECONDS)
        expect(process.returncode == 0, f"exit code {process.returncode} with the library in place: {messages}")
        stridec("run broken.so --random")
        os.remove("broken.so")
        os.remove("broken.json")


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
