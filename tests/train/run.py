"""Training: python tests/train/run.py [case...] [command] [topic...]

Each case of tests/train/cases: compiled with --train, trained for 20 steps, and compared with PyTorch: the loss of each step
within 1e-4, parameters and statistics after the last step within 1e-3 of how far they moved. Needs no PyTorch. Then what
command.py and the topics say of the commands.
The last line is "N passed, N failed".
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import adapting
import budgeting
import command
import configuring
import exporting
import narrowing
import scaling
import spelling

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CASES = HERE / "cases"
STRIDEC = os.path.abspath(os.environ.get("stridec", ROOT / "build" / "stridec"))
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/pt2")]
import gradients  # noqa: E402
import stridec  # noqa: E402

TOPICS = (adapting, budgeting, configuring, exporting, narrowing, scaling, spelling)

results = []


def expect(name, condition, detail=""):
    results.append(condition)
    if not condition:
        print(f"FAILED {name}: {detail}", flush=True)


def compiled(model, artifact, *flags):
    command = [STRIDEC, "compile", str(model), "-o", str(artifact), "-q", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return None if done.returncode == 0 else done.stderr.strip()


def batches(case):
    inputs = [case[key] for key in case.files if key.startswith("in.")]
    return [[array[i] for array in inputs] for i in range(len(inputs[0]))]


def moved(context, before, case):
    """The distance from PyTorch's states, as a share of how far these moved."""
    off = way = 0.0
    for key in case.files:
        if not key.startswith("state."):
            continue
        want, name = case[key].astype(np.float64), key.removeprefix("state.")
        off += ((context.state(name) - want) ** 2).sum()
        way += ((before[name] - want) ** 2).sum()
    return (off / way) ** 0.5


def agree_with_pytorch(name, work):
    case = np.load(CASES / f"{name}.npz")
    artifact = work / f"{name}.so"
    reason = compiled(CASES / f"{case['model']}.onnx", artifact, "--train", str(case["train"]) + ",functions=train_step")
    if reason:
        return expect(name, False, reason)
    context = stridec.Model(str(artifact)).context(threads=1)
    for key in case.files:
        if key.startswith("initial."):
            context.write_state(key.removeprefix("initial."), case[key])
    before = {key.removeprefix("state."): context.state(key.removeprefix("state.")) for key in case.files
              if key.startswith("state.")}  # fmt: skip
    data, worst = batches(case), 0.0
    for step, want in enumerate(case["losses"]):
        loss = float(context.run(*data[step % len(data)])[0])
        worst = max(worst, abs(loss - want) / max(abs(want), 1e-3))
    far = moved(context, before, case)
    expect(name, worst < 1e-4 and far < 1e-3, f"loss {worst:.1e}, states {far:.1e}")
    if os.environ.get("VERBOSE"):
        print(f"{name}: loss {worst:.1e}, states {far:.1e}")


def agree_on_gradients(work):
    """Samples of PyTorch's operators; `python tests/pt2/gradients.py` takes them all from PyTorch."""
    for path in sorted((HERE / "gradients").glob("*.pt2")):
        names, artifact = np.load(path.with_suffix(".npz")).files, work / f"gradients{path.stem}.so"
        reason = compiled(path, artifact, *gradients.flags(names))
        if reason:
            expect(path.name, False, reason)
            continue
        wrong = gradients.compared(str(artifact), path.with_suffix(".npz"))
        for name in names:
            expect(f"{path.name} {name}", name not in wrong, wrong.get(name))


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for path in sorted(CASES.glob("*.npz")):
            if len(sys.argv) == 1 or path.stem in sys.argv[1:]:
                agree_with_pytorch(path.stem, work)
        if len(sys.argv) == 1 or "gradients" in sys.argv[1:]:
            agree_on_gradients(work)
        if len(sys.argv) == 1 or "command" in sys.argv[1:]:
            command.check(STRIDEC, work, expect, stridec)
        for topic in TOPICS:
            if len(sys.argv) == 1 or topic.__name__ in sys.argv[1:]:
                own = work / topic.__name__  # a process loads the library of a path once
                own.mkdir()
                topic.check(command.Commands(STRIDEC, own, expect, stridec))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


sys.exit(main())
