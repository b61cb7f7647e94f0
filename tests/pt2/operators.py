"""Samples of PyTorch's operators against PyTorch's results: python tests/pt2/operators.py [REGEX] [--dtypes float32,int64]

PyTorch's own samples (OpInfo) of every operator, or of those whose name REGEX finds, at most --samples of each (4), spread over its
list or, with --seed, drawn at random. A sample agrees,
is refused with a sentence, or is wrong. Prints the wrong ones, what is refused by operator, most frequent first, what
operator_skips.txt leaves out, and "N passed, N failed"; a refused or skipped sample counts as neither. A result in half precision
agrees as well where it is no farther than PyTorch's from the result in float64, and an index where it finds an equal value.

--strided gives inputs whose dims lie in memory in the opposite order; --decomposed takes the programs after
run_decompositions().

--folder DIR keeps the programs there, DIR/float32 and so on, and takes those that are there from it. --check counts refusals and
compiles nothing. --every prints every refused sample. --names counts only samples whose every overload is in a file, one a line.
Needs torch and expecttest; without them it prints that it is skipped.
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
from samples import Samples, names_in

sys.path.insert(0, str(compare.ROOT / "python"))
import stridec  # noqa: E402


SKIPS = pathlib.Path(__file__).resolve().parent / "operator_skips.txt"


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


# Operators whose indices may differ where values are equal, and whether their `dim` defaults to the last one.
TIES = {"topk": True, "sort": True, "argsort": True, "kthvalue": True, "mode": True, "cummax": False, "cummin": False,
        "median": False, "nanmedian": False, "max": False, "min": False, "argmax": False, "argmin": False}  # fmt: skip


def same_values(cut, node, data, expected, got):
    """Whether indices find the values that the expected ones find, each of them once where PyTorch orders a whole dim."""
    given = {a["name"]: a["arg"] for a in node["inputs"]}
    operator = node["target"].split(".")[-2]
    if expected.shape != got.shape or operator not in TIES or given.get("stable", {}).get("as_bool"):
        return False
    specs = cut.program["graph_module"]["signature"]["input_specs"]
    user = [next(names_in(s["user_input"]["arg"])) for s in specs if "as_tensor" in s.get("user_input", {}).get("arg", {})]
    name = given["self"].get("as_tensor", {}).get("name")
    if name not in user:
        return False
    x = compare.widened(data[f"i{user.index(name)}"])
    dim = given.get("dim", {}).get("as_int", -1 if TIES[operator] else None)
    if dim is None or x.ndim == 0:
        x, expected, got, dim = x.reshape(-1), expected.reshape(-1), got.reshape(-1), 0
    elif expected.ndim < x.ndim:
        expected, got = np.expand_dims(expected, dim), np.expand_dims(got, dim)
    if got.size and (got.min() < 0 or got.max() >= x.shape[dim]):
        return False
    if operator in ("topk", "sort", "argsort") and np.any(np.diff(np.sort(got, dim), axis=dim) == 0):
        return False
    one, other = (np.take_along_axis(x, k.astype(np.int64), dim) for k in (expected, got))
    return np.array_equal(one, other, equal_nan=x.dtype.kind == "f")


# Operators whose vectors are determined only up to a sign, or to a rotation where values are equal: any that belong to the values do.
FACTORS = ("svd", "linalg_svd", "_linalg_svd", "linalg_eigh", "_linalg_eigh", "linalg_eig", "linalg_eigvals")


def same_eigenvalues(a, got):
    """Whether the values are those of the matrix, in any order, and the vectors, if there are any, unit vectors of the values."""
    joined = [g[..., 0] + 1j * g[..., 1] for g in got]
    values = joined[0].reshape(-1, a.shape[-1])
    allowed = 2 * compare.TOLERANCE * max(1, np.abs(a).max(initial=0))
    for own, known in zip(values, np.linalg.eigvals(a).reshape(values.shape)):
        left = list(known)
        for value in own:
            nearest = min(range(len(left)), key=lambda k: abs(left[k] - value))
            if abs(left.pop(nearest) - value) > allowed:
                return False
    if len(joined) == 1:
        return True
    vectors = joined[1]
    norms = np.abs(np.linalg.norm(vectors, axis=-2) - 1).max(initial=0)
    return norms <= allowed and np.abs(a @ vectors - vectors * joined[0][..., None, :]).max(initial=0) <= allowed


def same_factors(cut, node, data, got):
    """Whether the results of a decomposition are orthonormal vectors that give its matrix with the values."""
    given = {a["name"]: a["arg"] for a in node["inputs"]}
    operator = node["target"].split(".")[-2]
    specs = cut.program["graph_module"]["signature"]["input_specs"]
    user = [next(names_in(s["user_input"]["arg"])) for s in specs if "as_tensor" in s.get("user_input", {}).get("arg", {})]
    name = given.get("A", given.get("self", {})).get("as_tensor", {}).get("name")
    if name not in user:
        return False
    if operator in ("linalg_eig", "linalg_eigvals"):
        return same_eigenvalues(data[f"i{user.index(name)}"], got)
    a = data[f"i{user.index(name)}"]
    pairs = a.dtype.kind == "c"
    a = a.astype(np.complex128 if pairs else np.float64)
    t = lambda m: np.swapaxes(m, -1, -2).conj()  # noqa: E731
    whole = lambda m: m[..., 0] + 1j * m[..., 1] if pairs else m.astype(np.float64)  # noqa: E731
    if "eigh" in operator:
        s, u = got[0].astype(np.float64), whole(got[1])
        part = np.triu(a) if given.get("UPLO", {}).get("as_string") == "U" else np.tril(a)
        a, v = part + t(part) - part.real * np.eye(a.shape[-1]), u
        a = a - 1j * a.imag * np.eye(a.shape[-1]) if pairs else a  # the imaginary parts of the diagonal are not read
    else:
        u, s, v = whole(got[0]), got[1].astype(np.float64), whole(got[2])
        v = v if operator == "svd" else t(v)
    k = s.shape[-1]
    allowed = 2 * compare.TOLERANCE
    near = [np.abs(t(m) @ m - np.eye(m.shape[-1])).max(initial=0) <= allowed for m in (u, v)]
    error = np.abs((u[..., :k] * s[..., None, :]) @ t(v[..., :k]) - a).max(initial=0)
    return all(near) and error <= allowed * max(1, np.abs(a).max(initial=0))


def worker(program, arrays, artifact, outputs):
    data = np.load(arrays)
    inputs = [data[f"i{k}"] for k in range(sum(n[0] == "i" for n in data))]
    model, cut = stridec.Model(artifact), Samples(program)
    results = model.context(threads=1).run(*compare.arguments(program, inputs))
    places, at, out = compare.tensor_outputs(program), 0, []
    for i, mine in enumerate(json.loads(outputs)):
        why, first = "", at
        factors = next((n for n in cut.all[i].nodes if n["target"].split(".")[-2] in FACTORS), None)
        for o in mine:
            place, at = places[at], at + 1
            expected, got, dtype = data[f"o{o}"], np.asarray(results[place]), model.outputs[place].dtype_name
            d, allowed = compare.difference(expected, got, dtype), tolerance(dtype)
            if not d <= allowed and f"w{o}" in data:
                d = compare.difference(data[f"w{o}"], got, dtype)
                allowed = max(allowed, compare.difference(data[f"w{o}"], compare.widened(expected), dtype))
            if not d <= allowed and factors and compare.widened(expected).shape == got.shape and len(mine) == len(factors["outputs"]):
                own = [np.asarray(results[p]) for p in places[first : first + len(mine)]]
                d = 0.0 if same_factors(cut, factors, data, own) else d
            if not d <= allowed and expected.dtype == np.int64:
                node = next((n for n in cut.all[i].nodes if n["target"].endswith(cut.all[i].operator())), None)
                d = 0.0 if node and same_values(cut, node, data, expected, got) else d
            if not d <= allowed:
                why = f"{d:.1e}, expected {expected.ravel()[:4]} {expected.shape}, got {got.ravel()[:4]} {got.shape}"
        if why:
            out.append((i, why))
    print(json.dumps(out))


def skip_list():
    """(operator, dtype) to the reason why it is not compared."""
    lines = [line for line in SKIPS.read_text().splitlines() if line and not line.startswith("#")]
    return {tuple(line.split("|")[:2]): line.split("|")[2] for line in lines}


def compare_folder(folder, dtype, options, counts, reasons):
    """Compares the samples of every program of a folder."""
    names = set(options.names.read_text().split()) if options.names else None
    skips = skip_list()
    with tempfile.TemporaryDirectory() as work_name:
        work = pathlib.Path(work_name)
        for path in sorted(p for p in folder.glob("*.pt2") if p.with_suffix(".npz").exists()):
            samples, refused, chosen = Samples(path), [], []
            labels = json.loads(path.with_suffix(".json").read_text()) if path.with_suffix(".json").exists() else None
            for sample in samples.all:
                label = labels[sample.outputs[0]] if labels else sample.operator()
                overloads = [n.removeprefix("aten.") for n in sample.overloads()]
                known = names is None or all(n in names or n.removesuffix(".default") in names for n in overloads)
                skipped = {(label, dtype), (label, "*")} & set(skips)
                counts["skipped"] += bool(skipped)
                if known and not skipped and re.search(options.pattern, label):
                    chosen.append(sample)
            chosen = supported(samples, chosen, work, refused)
            for sample, reason in refused:
                reasons[f"{sample.operator()} -> {reason}"] += 1
                if options.every:
                    print(f"refused {sample.operator():30} {reason}  {sample.arguments()}")
            wrong = [] if options.check else wrong_results(samples, chosen, path.with_suffix(".npz"), work)
            for sample, why in wrong:
                print(f"{dtype} {path.name} {sample.operator():40} {why}\n      {sample.arguments()}", flush=True)
            counts.update(refused=len(refused), failed=len(wrong), passed=len(chosen) - len(wrong))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--dtypes", default="float32,int64,bool,bfloat16,float16,float64,complex64")
    parser.add_argument("--samples", type=int, default=4, help="of each operator; 0: all")
    parser.add_argument("--seed", type=int, help="draw the samples")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--names", type=pathlib.Path)
    parser.add_argument("--strided", action="store_true", help="inputs that are not row-major")
    parser.add_argument("--decomposed", action="store_true", help="programs after run_decompositions()")
    parser.add_argument("--check", action="store_true", help="count what is refused, compile nothing")
    parser.add_argument("--every", action="store_true", help="print every refused sample")
    options = parser.parse_args()
    try:
        import expecttest  # noqa: F401  PyTorch's samples need it
        import torch  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error.name} is not installed\n0 passed, 0 failed")
        return 0
    import operator_samples

    total, reasons = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as own:
        for dtype in options.dtypes.split(","):
            folder = (options.folder or pathlib.Path(own)) / dtype
            if not folder.exists():
                total["not exported"] += operator_samples.export(folder, dtype, options.pattern, options.samples, options.seed,
                                                                decomposed=options.decomposed, strided=options.strided)
            counts = collections.Counter()
            compare_folder(folder, dtype, options, counts, reasons)
            total.update(counts)
            print(f"{dtype}: " + ", ".join(f"{counts[k]} {k}" for k in ("passed", "failed", "refused", "skipped")), flush=True)
    for reason, count in reasons.most_common():
        print(f"{count:5} {reason}")
    print(f"{total['refused']} samples are refused, {total['not exported']} not exported by PyTorch, {total['skipped']} skipped by "
          f"{SKIPS.name}")  # fmt: skip
    print(f"{total['passed']} passed, {total['failed']} failed")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:6])
    else:
        sys.exit(main())
