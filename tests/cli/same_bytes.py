"""The same model and flags give the same bytes, whatever else differs."""

import os
import shutil
import subprocess

from harness import SECONDS, expect, nvrtc, stridec

# Two years later, for a program that asks libc what time it is.
CLOCK = """
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static const long kLater = 2 * 366 * 86400L;
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
int clock_gettime(clockid_t clock, struct timespec* out) {
  int (*real)(clockid_t, struct timespec*) = dlsym(RTLD_NEXT, "clock_gettime");
  const int status = real(clock, out);
  if (clock == CLOCK_REALTIME) out->tv_sec += kLater;
  return status;
}
int gettimeofday(struct timeval* out, void* zone) {
  int (*real)(struct timeval*, void*) = dlsym(RTLD_NEXT, "gettimeofday");
  const int status = real(out, zone);
  out->tv_sec += kLater;
  return status;
}
"""


def one_processor():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def built(folder, model, flags, **more):
    """The library, its manifest and its weights, compiled in the folder from a copy of the model made now."""
    os.makedirs(folder)
    for name in (model + ".onnx", "whole.bin"):
        shutil.copyfile(name, os.path.join(folder, name))
    os.utime(os.path.join(folder, model + ".onnx"), (more.pop("modified", 1e9),) * 2)
    stridec(f"compile {model}.onnx -o same.so {flags}", 0, cwd=folder, **more)
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("same."):
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = file.read()
    return found


def compare(name, model, flags):
    """In another folder, on another day, with one processor, another zone and language; from caches warm and cold."""
    parent = "same-" + name
    subprocess.run(["clang-19", "-shared", "-fPIC", "-w", "-D_GNU_SOURCE", "-x", "c", "-", "-o", "clock.so"], input=CLOCK,
                   text=True, check=True, timeout=SECONDS)  # fmt: skip
    first = built(f"{parent}/a", model, flags)
    elsewhere = {**os.environ, "STRIDEC_CACHE": os.path.abspath(f"{parent}/cache"), "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8",
                 "LD_PRELOAD": os.path.abspath("clock.so"), "STRIDEC_NVRTC": nvrtc() or ""}  # fmt: skip
    others = {
        "another folder, day, zone, one processor, cold cache":
            built(f"{parent}/a much longer name/b", model, flags, env=elsewhere, preexec_fn=one_processor, modified=1.7e9),
        "warm cache": built(f"{parent}/c", model, flags, env=elsewhere),
        "no cache": built(f"{parent}/d", model, flags + " --no-cache"),
    }  # fmt: skip
    for what, files in others.items():
        expect(files.keys() == first.keys(), f"{what}: {sorted(files)} instead of {sorted(first)}")
        for file, contents in files.items():
            expect(contents == first[file], f"{what}: other bytes in {file} of {model} {flags}")
    shutil.rmtree(parent)


def test_same_bytes():
    compare("mlp", "mlp", "--dim batch=1..8 --specialize batch=1,3")
    compare("variants", "gather", "--cpu x86-64-v2,x86-64-v3,x86-64-v4")
    compare("external", "external", "--weights external")


def test_same_bytes_for_gpus():
    if not nvrtc():
        print("same_bytes_for_gpus: skipped, there is no NVRTC")
        return
    compare("gpu", "mlp", f"--target cpu,cuda --gpu sm_90a,ptx --nvrtc {nvrtc()}")
