"""Artifacts of graphs, cached by content in the folder of the program's cache: a second process compiles nothing."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping

import torch

from . import _program
from ._compile import compile_file
from ._errors import Error
from ._graph import Program, target_name
from ._model import Model
from ._version import __version__

_MOST_BYTES = 4 << 30  # of the folder; the artifacts that were used the longest ago go first


def folder() -> str:
    base = os.environ.get("STRIDEC_CACHE")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME", "")
        base = os.path.join(home if os.path.isabs(home) else os.path.expanduser("~/.cache"), "stridec")
    path = os.path.join(base, "torch")
    try:
        os.makedirs(path, exist_ok=True)
        if os.access(path, os.W_OK):
            return path
    except OSError:
        pass
    if not _own_folder:
        _own_folder.append(tempfile.TemporaryDirectory(prefix="stridec-"))
    return _own_folder[0].name


_own_folder: List[Any] = []  # of this process, if the cache cannot be written


@functools.lru_cache(maxsize=None)
def identity(program: str) -> str:
    """A hash of the program, by the start of its file (which has the linker's hash of all of it) and its size, and of what
    the processor can do, since the default target is this machine."""
    with open(program, "rb") as file:
        start = file.read(1 << 16)
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = file.read().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    cpu = [line for line in lines if line.startswith(("model", "flags", "cpu family", "stepping", "vendor_id"))]
    return hashlib.sha256(start + f"{os.path.getsize(program)} {__version__} {sorted(cpu)}".encode()).hexdigest()


def artifact(program: Program, defaults: Mapping[str, Any], flags: Mapping[str, Any]) -> Model:
    options = {**defaults, **flags}
    if "cuda" in options.get("target", "") and "gpu" not in options and torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        options["gpu"] = f"sm_{major}{minor}" + ("a" if major == 9 else "")
    key = hashlib.sha256(json.dumps([program.digest(), identity(_program.find_program()), options], sort_keys=True).encode())
    path = os.path.join(folder(), key.hexdigest()[:40] + ".so")
    device = "cuda" if "cuda" in options.get("target", "") else "cpu"
    if os.path.exists(path):
        try:
            _note_use(path)
            return Model(path, device=device)
        except (Error, OSError):  # damaged, or for another machine
            pass
    _build(program, path, options)
    return Model(path, device=device)


def _build(program: Program, path: str, options: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="stridec-", dir=os.path.dirname(path)) as work:
        source, made = os.path.join(work, "graph.pt2"), os.path.join(work, "graph.so")
        program.save(source)
        compile_file(source, made, **options)
        os.replace(made, path)
    _prune(path)


def _note_use(path: str) -> None:
    """By the time of access: another time of modification says that a file, which processes may have loaded, was written over."""
    os.utime(path, ns=(time.time_ns(), os.stat(path).st_mtime_ns))


def _prune(newest: str) -> None:
    """Keeps the folder below its limit."""
    entries = []
    for entry in os.scandir(os.path.dirname(newest)):
        if entry.name.endswith(".so"):
            try:
                entries.append((entry.stat().st_atime, entry.stat().st_size, entry.path))
            except OSError:  # another process removed it
                pass
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= _MOST_BYTES or path == newest:
            break
        try:
            os.remove(path)
        except OSError:
            pass
        total -= size


# ---- which operators the program takes


def decompositions() -> Dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions of the operators that the program does not take as they are."""
    table = torch._decomp.core_aten_decompositions()
    unknown = set(_unknown(_program.find_program(), tuple(sorted(target_name(op) for op in table))))
    return {op: function for op, function in table.items() if target_name(op) in unknown}


@functools.lru_cache(maxsize=None)
def _unknown(program: str, names: tuple) -> List[str]:
    key = hashlib.sha256(json.dumps([identity(program), names]).encode()).hexdigest()[:40]
    path = os.path.join(folder(), key + ".json")
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        pass
    found = _ask(names)
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False, encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(file.name, path)
    return found


def _ask(names: tuple) -> List[str]:
    """A program that has every operator, each reading the result of one that does not exist: checking it lists those that
    the program does not know, and evaluates none."""
    missing = "torch.ops.stridec.nothing.default"
    program = Program(torch.fx.symbolic_trace(_Nothing()), {}, {})
    nodes = program.json["graph_module"]["graph"]["nodes"]
    for index, name in enumerate([missing, *names]):
        inputs = [{"name": "self", "arg": {"as_tensor": {"name": "n0"}}, "kind": 1}] if index else []
        nodes.append({"target": name, "inputs": inputs, "outputs": [{"as_tensor": {"name": f"n{index}"}}], "metadata": {},
                      "is_hop_single_tensor_return": None, "name": f"n{index}"})  # fmt: skip
        program.traces.append(None)
    with tempfile.TemporaryDirectory(prefix="stridec-") as work:
        source = os.path.join(work, "operators.pt2")
        program.save(source)
        problems = _program.check(source)["problems"]
    unknown = {problem["op"] for problem in problems if problem["code"] == "unsupported-op"}
    return [name for name in names if name[len("torch.ops."):] in unknown]


class _Nothing(torch.nn.Module):
    def forward(self) -> tuple:
        return ()
