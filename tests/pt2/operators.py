"""Samples of PyTorch's operators against PyTorch's results: python tests/pt2/operators.py DIR [REGEX] [--names FILE] [--check]

DIR holds NAME.pt2 with many samples and NAME.npz with inputs and PyTorch's results. A sample agrees, is refused with a
sentence, or is wrong. Prints the wrong ones, what is refused by operator, most frequent first, and "N passed, N failed";
a refused sample counts as neither. --names counts only samples whose every overload is in a list, one a line.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

import compare
from samples import Samples

sys.path.insert(0, str(compare.ROOT / "python"))
import stridec  # noqa: E402


def refusal(path):
    """None, or why the program is not supported."""
    run = subprocess.run([compare.STRIDEC, "check", "--format=json", str(path)], capture_output=True, text=True, timeout=100)
    if run.returncode == 0:
        return None
    try:
        problem = json.loads(run.stdout)["problems"][0]
        return f"{problem.get('op') or problem.get('code')}: {problem['message']}"
    except (ValueError, KeyError, IndexError):
        return f"exit {run.returncode}: {(run.stdout + run.stderr).strip()[-200:]}"


def tolerance(dtype):
    return {"bf16": 2e-2, "f16": 5e-3}.get(dtype, compare.TOLERANCE)


def supported(samples, chosen, work, refused):
    """Those of the samples that are not refused; `refused` gets the others' reasons."""
    if not chosen:
        return []
    samples.write(chosen, work / "part.pt2")
    reason = refusal(work / "part.pt2")
    if reason is None:
        return chosen
    if len(chosen) == 1:
        refused.append((chosen[0], reason))
        return []
    half = len(chosen) // 2
    return supported(samples, chosen[:half], work, refused) + supported(samples, chosen[half:], work, refused)


def wrong_results(samples, chosen, arrays, work):
    """Pairs of a sample and what is wrong with it, of samples that are all supported."""
    if not chosen:
        return []
    program, artifact = work / "samples.pt2", work / "samples.so"
    samples.write(chosen, program)
    reason = compare.compiled(program, artifact)
    if not reason:
        run = subprocess.run([sys.executable, __file__, "--worker", str(program), str(arrays), str(artifact),
                              json.dumps([sample.outputs for sample in chosen])], capture_output=True, text=True)
        if run.returncode == 0:
            return [(chosen[i], why) for i, why in json.loads(run.stdout.splitlines()[-1])]
        reason = (run.stderr.strip().splitlines() or [f"signal {-run.returncode}"])[-1]
    if len(chosen) == 1:
        return [(chosen[0], reason)]
    half = len(chosen) // 2
    return wrong_results(samples, chosen[:half], arrays, work) + wrong_results(samples, chosen[half:], arrays, work)


def worker(program, arrays, artifact, outputs):
    data = np.load(arrays)
    inputs = [data[f"i{k}"] for k in range(sum(n[0] == "i" for n in data))]
    model = stridec.Model(artifact)
    results = model.context(threads=1).run(*compare.arguments(program, inputs))
    places, at, out = compare.tensor_outputs(program), 0, []
    for i, mine in enumerate(json.loads(outputs)):
        why = ""
        for o in mine:
            place, at = places[at], at + 1
            expected, got, dtype = data[f"o{o}"], np.asarray(results[place]), model.outputs[place].dtype_name
            d = compare.difference(expected, got, dtype)
            if not d <= tolerance(dtype):
                why = f"{d:.1e}, expected {expected.ravel()[:4]} {expected.shape}, got {got.ravel()[:4]} {got.shape}"
        if why:
            out.append((i, why))
    print(json.dumps(out))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--names", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="count what is refused, compile nothing")
    parser.add_argument("--every", action="store_true", help="print every refused sample")
    options = parser.parse_args()
    names = set(options.names.read_text().split()) if options.names else None

    def wanted(sample):
        overloads = [n.removeprefix("aten.") for n in sample.overloads()]
        known = names is None or all(n in names or n.removesuffix(".default") in names for n in overloads)
        return known and re.search(options.pattern, sample.operator())

    counts, reasons = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for path in sorted(options.folder.glob("*.pt2")):
            if not path.with_suffix(".npz").exists():
                continue
            samples, refused = Samples(path), []
            chosen = supported(samples, [s for s in samples.all if wanted(s)], work, refused)
            for sample, reason in refused:
                reasons[f"{sample.operator()} -> {reason}"] += 1
                if options.every:
                    print(f"refused {sample.operator():30} {reason}  {sample.arguments()}")
            wrong = [] if options.check else wrong_results(samples, chosen, path.with_suffix(".npz"), work)
            for sample, why in wrong:
                print(f"{path.name} {sample.operator():40} {why}\n      {sample.arguments()}", flush=True)
            counts.update(refused=len(refused), failed=len(wrong), passed=len(chosen) - len(wrong))
    for reason, count in reasons.most_common():
        print(f"{count:5} {reason}")
    total = sum(counts.values())
    print(f"{total} samples: {counts['refused']} refused ({100 * counts['refused'] / max(total, 1):.1f} %)")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:6])
    else:
        main()
