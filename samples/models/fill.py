"""Gives the light models of this project their weights.

    python fill.py LIGHT.onnx FULL.onnx

A light model is a real architecture whose large weights are described instead of stored: such a tensor carries dims
and dtype and, in doc_string, one of

    fill normal MEAN STD
    fill uniform MIN MAX
    fill safetensors PACKAGE PATH KEY [T]     a tensor of a file in an installed Python package; T: transposed

Draws are seeded by the tensor's name: the same bytes each time.
"""

import importlib.util
import os
import sys
import zlib

import numpy as np
import onnx
from onnx import numpy_helper


def _packaged(package, path, key, transposed=None):
    from safetensors import safe_open

    spec = importlib.util.find_spec(package)
    if spec is None:
        sys.exit(f"the Python package {package}, which holds the weights, is not installed (.ci/setup does it)")
    with safe_open(os.path.join(os.path.dirname(spec.origin), path), framework="numpy") as tensors:
        weight = tensors.get_tensor(key)
    return np.ascontiguousarray(weight.T if transposed else weight)


def _drawn(kind, first, second, name, dims):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    a, b = float(first), float(second)
    if kind == "normal":
        return (rng.standard_normal(dims, np.float32) * b + a).astype(np.float32)
    return (rng.random(dims, np.float32) * (b - a) + a).astype(np.float32)


def fill(source, target):
    """Writes the model of file `source` with all its weights to `target`, whole or not at all."""
    model = onnx.load(source)
    for tensor in model.graph.initializer:
        if not tensor.doc_string.startswith("fill "):
            continue
        kind, *arguments = tensor.doc_string.split()[1:]
        dims = tuple(tensor.dims)
        weight = _packaged(*arguments) if kind == "safetensors" else _drawn(kind, *arguments, tensor.name, dims)
        if weight.shape != dims:
            sys.exit(f"{tensor.name} is {weight.shape} in its package and {dims} in the model")
        tensor.CopyFrom(numpy_helper.from_array(weight, tensor.name))
    partial = f"{target}.{os.getpid()}.part"
    onnx.save(model, partial)
    os.replace(partial, target)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    fill(*sys.argv[1:])
