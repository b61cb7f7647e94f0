"""What constant folding, the sample pass in C and in Python, changes on the ten models of tests/models.

    python tests/extend/folding.py [model...]      prints the table of docs/extending.md

Of each model: the operations of its graph after import, and how many of them the plug-in (samples/extend/fold_constants.c) and the
pass (samples/extend/fold_constants.py) turn into constants, by operator. Both give graphs that the compiler has checked.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "models"))
import models as light_models  # noqa: E402

STRIDEC = os.environ.get("stridec", str(ROOT / "build" / "stridec"))
MODELS = ["bert_base", "convnext_tiny", "gpt2", "llama_cached", "mobilenet_v2", "recommender", "resnet50", "tagger", "unet", "vit_b_16"]
HEADER = ("model", "operations", "folded in C", "folded in Python", "which, in C")


def graph(path, *more):
    done = subprocess.run([STRIDEC, "inspect", path, "--stage=graph", *map(str, more)], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        sys.exit(f"{path}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def plugin(folder):
    made = pathlib.Path(folder) / "fold_constants.so"
    compiler = next(c for c in ("clang-19", "cc", "gcc") if subprocess.run(["which", c], capture_output=True).returncode == 0)
    subprocess.run([compiler, "-std=c99", "-O2", "-shared", "-fPIC", f"-I{ROOT}/runtime/include",
                    str(ROOT / "samples/extend/fold_constants.c"), "-o", str(made)], check=True)
    return made


def operations(text):
    """How many operations of each kind compute something."""
    return collections.Counter(op for op in re.findall(r" = (\w+)", text) if op != "constant")


def row(name, path, built):
    before = operations(graph(path))
    in_c = before - operations(graph(path, "--plugin", "after=import", built))
    in_python = before - operations(graph(path, "--pass", "after=import", f"{sys.executable} {ROOT}/samples/extend/fold_constants.py"))
    which = ", ".join(f"{count} {op}" for op, count in in_c.most_common()) or "none"
    return name, before.total(), in_c.total(), in_python.total(), which


def table(rows):
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in [HEADER, ["---"] * len(HEADER), *rows])


def main():
    with tempfile.TemporaryDirectory() as folder:
        built, rows = plugin(folder), []
        for name in sys.argv[1:] or MODELS:
            path = light_models.fill_model(name, folder)
            rows.append(row(name, path, built))
            os.remove(path)
        print(table(rows))


if __name__ == "__main__":
    main()
