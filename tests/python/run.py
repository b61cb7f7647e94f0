"""The Python package: python tests/python/run.py [name...]

Needs NumPy and ONNX; with PyTorch also the tests of with_torch.py. Tests that lack a package are skipped and counted. The last line is "N passed, N failed".
"""

import importlib
import os
import sys
import tempfile
import traceback

import harness

MODULES = ["loading", "tensors", "installing", "tutorial", "with_torch"]


def load_tests():
    """The tests, and a line for each module that lacks a package."""
    tests, skipped = [], []
    for name in MODULES:
        try:
            tests += harness.own_tests(importlib.import_module(name))
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "onnx"):
                raise
            count = (harness.ROOT / f"tests/python/{name}.py").read_text().count("\ndef test_")
            skipped.append(f"skipped: {count} tests of {name}.py need the package {error.name}")
    return tests, skipped


def main():
    tests, skipped = load_tests()
    names = sys.argv[1:]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STRIDEC_CACHE"] = os.path.join(folder, "cache")
        os.chdir(folder)
        for test in tests:
            if names and not any(name in test.__name__ for name in names):
                continue
            try:
                test()
                passed += 1
            except Exception:
                failed += 1
                print(f"FAILED {test.__name__}")
                traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
        os.chdir("/")
    print("\n".join(skipped), end="\n" if skipped else "")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
