"""Compares how models are scheduled with constant weights and with replaceable ones (compile --refit '*').

    python tests/models/parameters.py [name...] [--all]

A replaceable weight gets what a constant gets: packed panels, Winograd's transforms, joined products, folded batch norms.
The program for each target must have the same kernels in the same order; tests/models/parameters.txt lists exceptions
with their reasons. Environment: stridec (default build/stridec). The last line is "N passed, N failed".
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from models import MODELS  # noqa: E402
from replay import OTHERS, model_of  # noqa: E402

STRIDEC = os.path.abspath(os.environ.get("stridec", "build/stridec"))
TARGETS = {
    "x86-64-v3": ["--cpu", "x86-64-v3"],
    "x86-64-v4": ["--cpu", "x86-64-v4"],
    "sm_90a": ["--target", "cuda", "--gpu", "sm_90a"],
}
FEW = ["mobilenet_v2", "tagger", "unet", "llama_cached", "efficientnet", "quantised"]  # in CI; the others nightly
SECONDS = 120


def kernels(path, dims, flags):
    """The schedule of each step, without names of nests and of buffers."""
    command = [STRIDEC, "inspect", path, "--stage=fused", "--dim", dims, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise AssertionError(done.stderr.strip())
    steps = done.stdout.split("\n  steps\n", 1)[1]
    return re.findall(r"^ *schedule (.*)$", steps, re.MULTILINE)


def exceptions():
    """(model, target): how many lines differ, and why."""
    listed = {}
    with open(os.path.join(HERE, "parameters.txt"), encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                model, target, count, _ = line.rstrip("\n").split("|")
                listed[model, target] = int(count)
    return listed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="all models of the replay")
    given = parser.parse_args()
    names = given.names or ([*MODELS, *OTHERS] if given.all else FEW)
    listed, passed, failed = exceptions(), 0, 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path, dims = model_of(name, folder)
            for target, flags in TARGETS.items():
                constant, replaceable = (kernels(path, dims, [*flags, *more]) for more in ([], ["--refit", "*"]))
                differing = [line for line in difflib.unified_diff(constant, replaceable, "constant", "replaceable", n=0, lineterm="")]
                changed = sum(line[0] in "+-" for line in differing[2:])
                expected = listed.get((name, target), 0)
                if changed == expected:
                    passed += 1
                else:
                    failed += 1
                    print("\n".join(differing[:40]))
                print(f"{name:16} {target:10} {len(constant):4} kernels, {changed} lines of schedules differ ({expected} listed)", flush=True)
    print(f"{len(listed)} exceptions are listed in tests/models/parameters.txt")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
