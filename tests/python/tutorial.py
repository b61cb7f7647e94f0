"""The code of docs/python.md, block by block, in one namespace and an empty folder with model.onnx."""

import os
import re

from onnx import TensorProto

import harness

try:
    import torch  # noqa: F401

    HAS_TORCH = True
except ImportError:
    HAS_TORCH = False


def blocks():
    """Indented blocks that begin with Python code. Commands of the shell begin with `$ `."""
    text = (harness.ROOT / "docs/python.md").read_text()
    found = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", text, re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found if not block.startswith("    $ ")]


def test_the_tutorial_runs():
    os.makedirs("tutorial", exist_ok=True)
    here = os.getcwd()
    os.chdir("tutorial")
    try:
        x, y = (("x", TensorProto.FLOAT, ["batch", 4]), ("y", TensorProto.FLOAT, ["batch", 4]))
        harness.write_onnx("model.onnx", [("Relu", ["x"], ["y"], {})], [x], [y])
        names = {"__name__": "tutorial"}
        all_blocks = blocks()
        harness.expect(len(all_blocks) >= 6, f"only {len(all_blocks)} blocks of code are found")
        for block in all_blocks:
            if HAS_TORCH or "torch" not in block and not names.get("needs_torch"):
                exec(compile(block, "docs/python.md", "exec"), names)
            else:
                names["needs_torch"] = True  # what follows uses what this block defines
    finally:
        os.chdir(here)
