"""stridec: an ahead-of-time model compiler.

    model = stridec.compile("model.onnx", output="model.so")      # or a torch.nn.Module and its example inputs
    with stridec.load("model.so") as model:
        y = model(x)

docs/python.md is the guide.
"""

from . import _entry_point
from ._compile import compile
from ._context import Context
from ._errors import Diagnostic, Error
from ._model import Model, Value, load
from ._program import bench, check, find_program, inspect, profile, verify
from ._version import __version__

__all__ = [
    "Context", "Diagnostic", "Error", "Model", "Value", "__version__", "bench", "check", "compile", "find_program",
    "inspect", "load", "profile", "verify",
]  # fmt: skip

_entry_point.offer()
