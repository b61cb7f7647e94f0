"""The Python package: python tests/python/run.py [name...]

Needs NumPy and ONNX; with PyTorch also the tests of with_torch.py. The last line is "N passed, N failed".
"""

import os
import sys
import tempfile
import traceback

import harness
import installing
import loading
import tensors
import tutorial

try:
    import torch  # noqa: F401
    import with_torch
except ImportError:
    with_torch = None


def main():
    modules = [loading, tensors, installing, tutorial] + ([with_torch] if with_torch else [])
    tests = [test for module in modules for test in harness.own_tests(module)]
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
    if with_torch is None:
        source = (harness.ROOT / "tests/python/with_torch.py").read_text()
        print(f"skipped: {source.count(chr(10) + 'def test_')} tests need PyTorch")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
