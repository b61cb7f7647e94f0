"""The entry point of torch.compile's backend, where the package is on the path but not installed, as in a checkout.

PyTorch looks for backends among the entry points of installed distributions. A finder of distributions adds the one that the
wheel would have, without importing PyTorch.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Iterator, Optional

from ._version import __version__

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FILES = {
    "METADATA": f"Metadata-Version: 2.1\nName: stridec\nVersion: {__version__}\n",
    "entry_points.txt": "[torch_dynamo_backends]\nstridec = stridec.torch_backend:backend\n",
}


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        return None

    @staticmethod
    def find_distributions(context: Any = None) -> Iterator[Any]:
        import importlib.metadata
        import pathlib

        class Checkout(importlib.metadata.Distribution):
            def read_text(self, filename: str) -> Optional[str]:
                return _FILES.get(filename)

            def locate_file(self, path: Any) -> pathlib.Path:
                return pathlib.Path(_FOLDER, path)

        if getattr(context, "name", None) in (None, "stridec"):
            yield Checkout()


def _backend(*args: Any, **kwargs: Any) -> Any:
    from .torch_backend import backend

    return backend(*args, **kwargs)


def offer() -> None:
    if any(name.startswith("stridec-") and name.endswith(".dist-info") for name in os.listdir(_FOLDER)):
        return
    sys.meta_path.append(_Finder())  # type: ignore[arg-type]
    registry = sys.modules.get("torch._dynamo.backends.registry")  # it may have looked for entry points before
    if registry is not None and "stridec" not in registry.list_backends():
        registry.register_backend(_backend, name="stridec")
