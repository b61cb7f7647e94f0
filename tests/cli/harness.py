"""What the tests of the command line share: the program, expectations, the folder that they run in."""

import glob
import os
import shlex
import subprocess

import numpy as np

import models

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GOLDEN = os.path.join(ROOT, "tests", "golden", "cli")
STRIDEC = os.path.abspath(os.environ.get("stridec", "build/stridec"))
SECONDS = 60


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


def nvrtc():
    """The library that builds GPU kernels, where there is one."""
    cache = os.environ.get("STRIDEC_CACHE", os.path.expanduser("~/.cache/stridec"))
    found = glob.glob(f"{cache}/*/lib/python*/site-packages/nvidia/*/lib/libnvrtc.so.*")
    found += glob.glob("/usr/local/cuda*/lib*/libnvrtc.so*")
    return next((path for path in sorted(found) if "builtins" not in path), None)


def fake_gpu():
    """Flags for a GPU and an environment with a driver without one, whose kernels take a microsecond; or None."""
    fake = os.path.join(os.path.dirname(STRIDEC), "tests")
    if not nvrtc() or not os.path.exists(os.path.join(fake, "libcuda.so.1")):
        return None
    return f"--target cuda --gpu sm_90a --nvrtc {nvrtc()}", {"env": os.environ | {"LD_LIBRARY_PATH": fake}}


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
