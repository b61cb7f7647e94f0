"""Whole programs against PyTorch, in both forms and at several sizes: python tests/pt2/exports.py [NAME...]

Every program of feature_programs.py, edge_programs.py and network_programs.py, as torch.export writes it and after
run_decompositions(): at the sizes of the example, with every symbol one larger, and with every symbol 1 where PyTorch itself runs
with that. Of a program that draws random numbers, shapes alone are compared. Prints a line for each that does not agree with
PyTorch, with the reason, then "N passed, N failed". Without PyTorch it prints that it is skipped.

--all prints every line. --folder DIR keeps programs and arrays there, and takes those that are there from it.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np

import compare

FORMS = ("", ".core")
SIZES = {"": None, "one larger": lambda n: n + 1, "size 1": lambda n: 1}
# What is refused, and the word of the sentence that says why.
REFUSED = {"custom_op": "mylib.foo.default", "custom_op.core": "mylib.foo.default", "assoc_scan": "_add_batch_dim"}
# Compared with PyTorch's own kernels: oneDNN's GELU of an infinity, which AVX-512 processors take, is NaN.
WITHOUT_ONEDNN = ("zeros_and_infinities",)
FLOOR = 1e-30  # random weights may shrink results to any size


def compared(path, arrays, artifact):
    """Pairs of a label of sizes and (verdict, detail)."""
    import torch

    import sizes

    reason = compare.compiled(path, artifact, seconds=500)
    expected = REFUSED.get(path.stem)
    if reason or expected:
        refused = reason or "it compiles"
        yield "", ("agrees" if expected and expected in refused else "refused", refused)
        return
    tolerance = compare.tolerance_of(path)
    yield "", compare.compared(path, arrays, artifact, tolerance, FLOOR)
    if not compare.program(path)["range_constraints"]:
        return
    data = np.load(arrays)
    example = [data[f"i{k}"] for k in range(sum(n[0] == "i" for n in data))]
    try:
        module = torch.export.load(path).module()
    except RuntimeError as error:  # a result of a class that is not registered here
        yield "", ("skipped", str(error).splitlines()[0][:100])
        return
    for label, change in SIZES.items():
        own = sizes.resized(path, example, change) if change else None
        if own is None:
            continue
        try:
            expected = sizes.run_pytorch(module, path, own)
        except Exception as error:  # PyTorch refuses the size
            yield label, ("skipped", str(error).splitlines()[0][:100])
            continue
        changed = artifact.with_suffix(".npz")
        np.savez(changed, **{f"i{k}": a for k, a in enumerate(own)}, **{f"o{k}": a for k, a in enumerate(expected)})
        yield label, compare.compared(path, changed, artifact, tolerance, FLOOR)


def compared_forms(name, folder, artifact):
    """Pairs of a line to print and the verdict, of each form that PyTorch exports and each label of sizes."""
    import export_programs

    reason = export_programs.export(name, folder)
    if reason:
        return [(f"{name:34} not exported: {reason}", "skipped")]
    out = []
    for form in FORMS:
        path = folder / f"{name}{form}.pt2"
        if path.exists():  # else PyTorch does not decompose it
            for label, (verdict, detail) in compared(path, folder / f"{name}.npz", artifact):
                out.append((f"{name + form:34} {verdict:8} {label} {detail}", verdict))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: PyTorch is not installed\n0 passed, 0 failed")
        return 0
    import export_programs

    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as work:
        for name in options.names or export_programs.names():
            folder = options.folder or pathlib.Path(work)
            with torch.backends.mkldnn.flags(enabled=name not in WITHOUT_ONEDNN):
                verdicts = compared_forms(name, folder, pathlib.Path(work) / "model.so")
            for line, verdict in verdicts:
                passed, failed = passed + (verdict == "agrees"), failed + (verdict not in ("agrees", "skipped"))
                skipped += verdict == "skipped"
                if verdict not in ("agrees", "skipped") or options.all or "not exported" in line:
                    print(line, flush=True)
            if not options.folder:
                for path in folder.iterdir():
                    path.unlink()
    print(f"{skipped} skipped")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
