"""A case of export.py and export_control.py: a module as TorchScript, its runs and their results as files."""

import io
import pathlib
import warnings
import zipfile

import numpy as np
import torch
from torch import Tensor


warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
CASES = []


def case(f):
    CASES.append(f)
    return f


def flat(prefix, value, to):
    """The leaves of a result, by the names that the artifact gives them."""
    join = lambda name: f"{prefix}.{name}" if prefix else str(name)  # noqa: E731
    if isinstance(value, Tensor):
        to[prefix or "output"] = value.detach().numpy().copy()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name in value._fields:
            flat(join(name), getattr(value, name), to)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            flat(join(i), item, to)
    elif isinstance(value, dict):
        for name, item in value.items():
            flat(join(name), item, to)
    elif isinstance(value, (bool, int)):
        to[prefix or "output"] = np.asarray(value)
    elif isinstance(value, float):
        to[prefix or "output"] = np.asarray(value)


def without_debug(data):
    """The archive without the members that hold paths of this machine."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if not name.endswith(".debug_pkl"):
                new.writestr(zipfile.ZipInfo(name), old.read(name))
    return out.getvalue()


def write(path, module, runs, flags=(), names=None, updated=()):
    """Saves a scripted module and its results; `names`: of the arguments of forward()."""
    stream = io.BytesIO()
    torch.jit.save(module, stream)
    path.write_bytes(without_debug(stream.getvalue()))
    stream.seek(0)
    module = torch.jit.load(stream)
    names = names or [a.name for a in module.forward.schema.arguments[1:]]
    arrays = {"flags": np.array(list(flags), dtype=str)}
    for k, args in enumerate(runs):
        inputs = {}
        for name, value in zip(names, args):
            flat(name, value, inputs)
        arrays.update({f"{k}/in/{n}": v for n, v in inputs.items()})
        with torch.no_grad():
            result = module(*args)
        outputs = {}
        flat("", result, outputs)
        for name, value in zip(names, args):
            if name in updated:
                outputs[f"{name}.updated"] = value.numpy()
        arrays.update({f"{k}/out/{n}": v for n, v in outputs.items()})
    np.savez_compressed(path.with_suffix(".npz"), **arrays)


def script(module, runs, *flags, **more):
    return torch.jit.script(module.eval()), runs, flags, more


def trace(module, args, runs=None, *flags, **more):
    return torch.jit.trace(module.eval(), args, check_trace=False), runs or [args], flags, more
