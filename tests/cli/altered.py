"""Artifacts, weights files and manifests that were cut short or altered: refused with a sentence, by the program and, where it
can tell, by the library itself."""

import json
import os
import random
import shutil
import struct
import subprocess
import sys

from harness import ROOT, SECONDS, expect, stridec

# Opens an artifact through the C API in a process of its own: "opened" or the library's sentence.
OPEN = """
import sys
sys.path.insert(0, sys.argv[1])
import stridec
try:
    stridec.Model(sys.argv[2]).context(threads=1)
    print("opened")
except stridec.Error as error:
    print(error)
"""


def refused(command, code):
    done = stridec(command)
    expect(done.returncode == code and done.stderr.startswith("error["), f"{command}: {done.returncode}: {done.stderr}")
    return done.stderr


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def opened(path):
    done = subprocess.run([sys.executable, "-c", OPEN, os.path.join(ROOT, "python"), path], capture_output=True,
                          text=True, timeout=SECONDS)  # fmt: skip
    expect(done.returncode == 0, f"{path}: status {done.returncode}: {done.stderr}")
    return done.stdout.strip()


def last_segment(library):
    """Where the payload begins in the file: what the loader itself writes to lies before it."""
    table, entry, count = struct.unpack_from("<Q", library, 32)[0], *struct.unpack_from("<HH", library, 54)
    headers = (struct.unpack_from("<IIQ", library, table + entry * i) for i in range(count))
    return max(offset for kind, _, offset in headers if kind == 1)


def test_cut_libraries():
    whole = read("mlp.so")
    size, rng = len(whole), random.Random(5)
    for at in [0, 1, 63, 64, 65, 4095, 4096, size - 4097, size - 1] + [rng.randrange(size) for _ in range(24)]:
        write("altered.so", whole[:at])
        refused("run altered.so --input x=good.npy", 3)
    refused("inspect altered.so", 3)
    refused("diff altered.so mlp.so", 3)
    # The loader maps what the headers promise; the library looks whether its payload is there before it touches it.
    write("altered.so", whole[: last_segment(whole)])
    expect("truncated" in opened("./altered.so"), "a library without its weights is opened")


def test_altered_libraries():
    """A bit anywhere: what the loader maps is sealed, and the rest (padding, the table of sections) says nothing to a run."""
    whole = bytearray(read("mlp.so"))
    stridec("run mlp.so --input x=good.npy --output y=whole.npy", 0)
    expected, rng = read("whole.npy"), random.Random(6)
    found = 0
    for at in list(range(0, 64, 7)) + list(range(64, 760, 37)) + [rng.randrange(len(whole)) for _ in range(60)]:
        whole[at] ^= 1 << rng.randrange(8)
        write("altered.so", whole)
        done = stridec("run altered.so --input x=good.npy --output y=altered.npy")
        expect(done.returncode in (0, 3), f"byte {at}: exit code {done.returncode}: {done.stderr}")
        expect(done.returncode != 0 or read("altered.npy") == expected, f"byte {at}: another result")
        found += done.returncode == 3
        whole[at] = read("mlp.so")[at]
    expect(found > 50, f"{found} alterations are found")


def test_altered_weights():
    os.makedirs("beside")
    stridec("compile external.onnx -o beside/external.so --dim batch=1..8 --weights external", 0)
    shutil.copy("beside/external.weights", "external.weights")
    good, rng = read("external.weights"), random.Random(7)
    changed = [good[:-1], good + b"\0", b"", bytes(len(good))]
    for at in [0, 1, len(good) - 1] + [rng.randrange(len(good)) for _ in range(12)]:
        changed.append(good[:at] + bytes([good[at] ^ 1 << rng.randrange(8)]) + good[at + 1 :])
    for data in changed:
        write("beside/external.weights", data)
        expect("external.weights" in refused("run beside/external.so --input x=good.npy", 2), "the file is not named")
    expect("hash differs" in opened("./beside/external.so"), "the library takes other weights")
    os.remove("beside/external.weights")
    refused("run beside/external.so --input x=good.npy", 2)
    os.symlink("../external.weights", "beside/external.weights")
    expect("symbolic link" in refused("run beside/external.so --input x=good.npy", 2), "a link is followed")


def test_altered_manifests():
    with open("mlp.json", encoding="utf-8") as file:
        good = json.load(file)
    for change in (
        {"schema_version": "2.0"},
        {"schema_version": 1},
        {"model": {}},
        {"kernels": [{}]},
        {"inputs": None},
        {"memory": {"weights_bytes": -1, "weights_file": None, "workspace_bytes": "0"}},
        {"symbols": [{"name": "n", "minimum": 0, "multiple": 0, "from": "data"}]},
    ):
        with open("altered.json", "w", encoding="utf-8") as file:
            json.dump({**good, **change}, file)
        for command in ("inspect altered.json", "diff altered.json mlp.json", "diff mlp.json altered.json"):
            expect("error[bad-manifest]" in refused(command, 3), f"{command} of {change}")
    for text in ('{"kernels": []}', "{}", '{"a": ' + "[" * 200000):
        write("altered.json", text.encode())
        expect("error[bad-manifest]" in refused("inspect altered.json", 3), text[:40])
