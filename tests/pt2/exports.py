"""Whole programs against PyTorch, in both forms: python tests/pt2/exports.py DIR [NAME...]

DIR is what pt2_exports.py wrote with --core: NAME.pt2, NAME.core.pt2 and NAME.npz. Prints a line for each program and form
that does not agree with PyTorch, with the reason, then "N passed, N failed": programs and forms. --all prints every line.
"""

import pathlib
import sys
import tempfile

import compare


def main():
    flags = [a for a in sys.argv[1:] if a.startswith("--")]
    folder, *names = [a for a in sys.argv[1:] if not a.startswith("--")]
    folder = pathlib.Path(folder)
    paths = sorted(p for p in folder.glob("*.pt2") if not names or p.name.removesuffix(".pt2").removesuffix(".core") in names)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as work:
        for path in paths:
            name = path.name.removesuffix(".pt2")
            arrays = folder / (name.removesuffix(".core") + ".npz")
            if not arrays.exists():
                continue  # PyTorch itself did not export or save it
            verdict, detail = compare.compare(path, arrays, pathlib.Path(work) / "model.so", floor=1e-30)
            passed, failed = passed + (verdict == "agrees"), failed + (verdict != "agrees")
            if verdict != "agrees" or "--all" in flags:
                print(f"{name:34} {verdict:8} {detail}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
