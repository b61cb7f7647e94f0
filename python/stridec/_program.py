"""The program: where it is, and its commands as functions that return data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._errors import Diagnostic, Error

Path = Union[str, "os.PathLike[str]"]
Size = Union[int, str, Tuple[int, int], range]

_UNSUPPORTED, _MISMATCH = 5, 8


def find_program() -> str:
    """STRIDEC_PROGRAM, the program of the wheel, that of a build beside this source tree, or the first one in PATH."""
    given = os.environ.get("STRIDEC_PROGRAM")
    if given:
        if not os.access(given, os.X_OK):
            raise Error(f"STRIDEC_PROGRAM is '{given}', which is not a program", "no-program")
        return given
    package = os.path.dirname(os.path.abspath(__file__))
    folders = [
        sysconfig.get_path("scripts"),
        os.path.join(os.path.dirname(package), "bin"),  # pip install --target
        sysconfig.get_path("scripts", f"{os.name}_user"),
        os.path.join(os.path.dirname(os.path.dirname(package)), os.environ.get("STRIDEC_BUILD", "build")),
    ]
    for folder in folders:
        path = os.path.join(folder, "stridec")
        if os.access(path, os.X_OK) and os.path.isfile(path) and _is_binary(path):
            return path
    found = shutil.which("stridec")
    if found:
        return found
    raise Error("the program 'stridec' was not found: install the wheel, or set STRIDEC_PROGRAM to its path", "no-program")


def _is_binary(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def main() -> None:
    """`python -m stridec`: the command line."""
    try:
        program = find_program()
    except Error as error:
        sys.exit(f"error[{error.code}]: {error}")
    os.execv(program, [program, *sys.argv[1:]])


def run(*arguments: str, accept: Sequence[int] = (0,)) -> Tuple[int, Dict[str, Any]]:
    """Exit code and JSON of a command; an exit code that is not accepted raises the command's own error."""
    done = subprocess.run([find_program(), *arguments, "--format=json", "--progress=none"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    try:
        data = json.loads(done.stdout) if done.stdout.strip() else {}
    except ValueError:
        data = {}
    if done.returncode in accept and "error" not in data:
        return done.returncode, data
    error = data.get("error")
    if error is None:
        text = done.stderr.strip() or done.stdout.strip() or f"the program ended with exit code {done.returncode}"
        raise Error(text, "internal", done.returncode)
    diagnostic = Diagnostic.of(error)
    raise Error(str(diagnostic), diagnostic.code, done.returncode, [diagnostic])


def flags(
    *,
    target: Optional[str] = None,
    cpu: Union[str, Sequence[str], None] = None,
    gpu: Union[str, Sequence[str], None] = None,
    dims: Optional[Mapping[str, Size]] = None,
    specialize: Optional[Mapping[str, Sequence[int]]] = None,
    shapes: Optional[Mapping[str, Union[str, Sequence[Union[str, int]]]]] = None,
    input_values: Optional[Mapping[str, Union[int, Sequence[int]]]] = None,
    refit: Union[str, Sequence[str]] = (),
    states: Optional[Mapping[str, str]] = None,
    layouts: Optional[Mapping[str, Union[str, Sequence[int]]]] = None,
    method: Optional[str] = None,
    mode: Optional[str] = None,
    precision: Optional[str] = None,
    options: Optional[Mapping[str, Any]] = None,
    weights: Optional[str] = None,
    weights_from: Union[Path, Sequence[Path]] = (),
    metadata: Optional[Mapping[str, str]] = None,
    tune_db: Optional[Path] = None,
    frozen: bool = False,
    tune_seconds: Optional[float] = None,
    max_seconds: Optional[float] = None,
    max_memory: Optional[str] = None,
    ops: Union[Path, Sequence[Path]] = (),
    check_ops: bool = False,
    rewrites: Union[Path, Sequence[Path]] = (),
    passes: Sequence[Tuple[str, str]] = (),
    plugins: Sequence[Tuple[str, Path]] = (),
    cache: bool = True,
) -> List[str]:
    """The flags that compile, check, inspect and verify share. `stridec compile --help` explains them. passes and plugins: pairs
    of the name of a pass ("import") and what runs after it."""
    found: List[str] = []
    texts = {"target": target, "cpu": _joined(cpu), "gpu": _joined(gpu), "method": method, "mode": mode, "precision": precision,
             "weights": weights, "tune-db": os.fspath(tune_db) if tune_db is not None else None,
             "tune-seconds": tune_seconds, "max-seconds": max_seconds, "max-memory": max_memory}  # fmt: skip
    found += [f"--{name}={value}" for name, value in texts.items() if value is not None]
    for name, size in (dims or {}).items():
        found += ["--dim", f"{name}={size_text(size)}"]
    for name, sizes in (specialize or {}).items():
        found += ["--specialize", f"{name}={','.join(map(str, sizes))}"]
    for name, shape in (shapes or {}).items():
        found += ["--shape", f"{name}={shape if isinstance(shape, str) else ','.join(map(str, shape)) or '[]'}"]
    for name, value in (input_values or {}).items():
        found += ["--input-value", f"{name}={_numbers(value)}"]
    for name in [refit] if isinstance(refit, str) else refit:
        found += ["--refit", name]
    for name, output in (states or {}).items():
        found += ["--state", f"{name}={output}"]
    for name, order in (layouts or {}).items():
        found += ["--layout", f"{name}={order if isinstance(order, str) else ','.join(map(str, order))}"]
    for name, value in (options or {}).items():
        found += ["-O", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    for name, value in (metadata or {}).items():
        found += ["--metadata", f"{name}={value}"]
    found += _files("--weights-from", weights_from) + _files("--ops", ops) + _files("--rewrites", rewrites)
    for flag, pairs in (("--pass", passes), ("--plugin", plugins)):
        for after, what in pairs:
            found += [flag, f"after={after}", os.fspath(what)]
    return found + (["--check-ops"] if check_ops else []) + (["--frozen"] if frozen else []) + ([] if cache else ["--no-cache"])


def size_text(size: Size) -> str:
    """8, (1, 64) and range(8, 65, 8) as the program writes them: 8, 1..64, 8..64%8."""
    if isinstance(size, range):
        last = size[-1]
        return f"{size[0]}..{last}" + (f"%{size.step}" if size.step > 1 else "")
    return f"{size[0]}..{size[1]}" if isinstance(size, tuple) else str(size)


def _files(flag: str, files: Union[Path, Sequence[Path]]) -> List[str]:
    listed = [files] if isinstance(files, (str, os.PathLike)) else files
    return [text for file in listed for text in (flag, os.fspath(file))]


def _numbers(value: Union[int, Sequence[int]]) -> str:
    return ",".join(str(int(each)) for each in (value if isinstance(value, (list, tuple)) else [value]))


def _joined(value: Union[str, Sequence[str], None]) -> Optional[str]:
    return value if value is None or isinstance(value, str) else ",".join(value)


# ---- commands


def check(model: Path, **options: Any) -> Dict[str, Any]:
    """What `stridec check` says: inputs, outputs, symbols, guards, and `problems`, everything that prevents compiling."""
    return run("check", os.fspath(model), *flags(**options), accept=(0, _UNSUPPORTED))[1]


def inspect(model: Path, *, stage: Optional[str] = None, **options: Any) -> Dict[str, Any]:
    """What `stridec inspect` says of a model, an artifact or a manifest. stage: graph, loops, schedule, fused, memory,
    source, manifest."""
    stages = [f"--stage={stage}"] if stage else []
    return run("inspect", os.fspath(model), *stages, *flags(**options))[1]


def verify(
    model: Path,
    artifact: Optional[Path] = None,
    *,
    inputs: Optional[Mapping[str, Any]] = None,
    expect: Optional[Mapping[str, Any]] = None,
    runs: Optional[int] = None,
    tolerance: Optional[float] = None,
    repro: Optional[Path] = None,
    **options: Any,
) -> Dict[str, Any]:
    """Compares an artifact with the reference interpreter, or with expected outputs. `pass` says whether they agree; a
    difference raises nothing. inputs and expect: arrays by name. repro: a folder for the smallest model that differs."""
    arguments = [os.fspath(model)] + ([os.fspath(artifact)] if artifact is not None else [])
    arguments += [f"--runs={runs}"] if runs is not None else []
    arguments += [f"--tolerance={tolerance}"] if tolerance is not None else []
    arguments += ["--no-repro"] if repro is None else [f"--repro={os.fspath(repro)}"]
    with tempfile.TemporaryDirectory(prefix="stridec-") as folder:
        arguments += _archives(folder, {"--input": inputs, "--expect": expect})
        return run("verify", *arguments, *flags(**options), accept=(0, _MISMATCH))[1]


def bench(
    artifact: Path,
    *,
    inputs: Optional[Mapping[str, Any]] = None,
    dims: Optional[Mapping[str, int]] = None,
    threads: Optional[int] = None,
    variant: Optional[str] = None,
    seconds: Optional[float] = None,
    compare: Optional[Path] = None,
    ops: Union[Path, Sequence[Path]] = (),
) -> Dict[str, Any]:
    """Times an artifact as a whole (`median_seconds`) and by kernel. ops: files that declare operators which the application
    computes; their references compute them here."""
    given = {"threads": threads, "variant": variant, "seconds": seconds, "compare": compare}
    arguments = [f"--{name}={value}" for name, value in given.items() if value is not None]
    arguments += [f"--dim={name}={size}" for name, size in (dims or {}).items()] + _files("--ops", ops)
    with tempfile.TemporaryDirectory(prefix="stridec-") as folder:
        return run("bench", os.fspath(artifact), *arguments, *_archives(folder, {"--input": inputs}))[1]


def profile(
    artifact: Path,
    *,
    inputs: Optional[Mapping[str, Any]] = None,
    dims: Optional[Mapping[str, int]] = None,
    threads: Optional[int] = None,
    variant: Optional[str] = None,
    function: Optional[str] = None,
    seconds: Optional[float] = None,
    runs: Optional[int] = None,
    group: str = "kernel",
    trace: Optional[Path] = None,
    ops: Union[Path, Sequence[Path]] = (),
) -> Dict[str, Any]:
    """Where the artifact's time goes: `rows` by `group` (kernel, step, node or scope), which add up to `nanoseconds`.

    `trace` is a file for trace events of the first runs. ops: as of bench()."""
    given = {"threads": threads, "variant": variant, "function": function, "seconds": seconds, "runs": runs, "group": group,
             "trace": None if trace is None else os.fspath(trace)}  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in given.items() if value is not None]
    arguments += [f"--dim={name}={size}" for name, size in (dims or {}).items()] + _files("--ops", ops)
    with tempfile.TemporaryDirectory(prefix="stridec-") as folder:
        return run("profile", os.fspath(artifact), *arguments, *_archives(folder, {"--input": inputs}))[1]


def _archives(folder: str, given: Mapping[str, Optional[Mapping[str, Any]]]) -> List[str]:
    found: List[str] = []
    for flag, arrays in given.items():
        if arrays is None:
            continue
        path = os.path.join(folder, flag.strip("-") + ".npz")
        np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})
        found += [flag, path]
    return found
