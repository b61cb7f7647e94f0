"""stridec.compile: a module, an exported program or a file becomes a loaded artifact."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from . import _program, _pt2
from ._errors import Diagnostic, Error
from ._model import Convention, Model

_LONGEST_ARGUMENT = 100_000  # Linux takes 128 KiB


def compile(
    model: Any,
    inputs: Union[Sequence[Any], Mapping[str, Any], None] = None,
    *,
    kwargs: Optional[Mapping[str, Any]] = None,
    dynamic_shapes: Any = None,
    method: Optional[str] = None,
    output: Optional[_program.Path] = None,
    strict: bool = False,
    threads: int = 0,
    device: Optional[str] = None,
    dims: Optional[Mapping[str, _program.Size]] = None,
    metadata: Optional[Mapping[str, str]] = None,
    **options: Any,
) -> Model:
    """Compiles a model and loads it.

    model: a path (.onnx, .pt2, .pt, .graph), a torch.nn.Module or a torch.export.ExportedProgram.
    inputs: of a module, example arguments: a tuple of positional ones, or a dict of keyword ones; `kwargs` for both.
    dynamic_shapes: of a module, as torch.export takes them. Sizes of 1 in the examples may be dynamic.
    method: of a module or a TorchScript file: the method to compile instead of forward. Of a .pt2 file of several programs: one.
    output: where the artifact goes, with its manifest beside it. Without, it lives as long as the model.
    dims: what holds for named sizes: {"batch": (1, 64), "x.1": 128, "seq": range(8, 513, 8)}. Names of a module's sizes
    are those of its Dims, or `x.0`: the first input that has the size, and the dim.
    threads, device: of the loaded model.
    options: target ("cpu", "cuda"), mode ("max-autotune"), precision ("bf16"), options ({"winograd": False}), cpu, gpu,
    specialize, refit, states, layouts ({"image": "nhwc"}), weights, tune_db ...; `stridec compile --help` explains them.
    """
    folder = tempfile.mkdtemp(prefix="stridec-")
    try:
        source, names = _source(model, inputs, kwargs, dynamic_shapes, strict, method, folder)
        artifact = os.fspath(output) if output is not None else os.path.join(folder, "model.so")
        own = dict(metadata or {})
        convention = _pt2.read_convention(source, method if isinstance(model, (str, os.PathLike)) else None)
        if convention is not None:
            own[Convention.KEY] = convention.json()
        own_dims = {names.get(name, name): size for name, size in (dims or {}).items()}
        if method is not None and isinstance(model, (str, os.PathLike)):
            options["method"] = method
        compile_file(source, artifact, dims=own_dims, metadata=own, **options)
        loaded = Model(artifact, threads=threads, device=device)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if output is not None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        for name in os.listdir(folder):
            if name.endswith(".pt2"):
                os.remove(os.path.join(folder, name))
        loaded._cleanup = weakref.finalize(loaded, shutil.rmtree, folder, True)
    return loaded


def compile_file(source: str, artifact: str, **options: Any) -> Dict[str, Any]:
    """The program's `compile`. An error lists all that is not supported, one diagnostic each."""
    arguments = _program.flags(**options)
    with tempfile.TemporaryDirectory(prefix="stridec-") as folder:
        if max(map(len, arguments), default=0) > _LONGEST_ARGUMENT:
            path = os.path.join(folder, "flags.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join('"' + a.replace("\\", "\\\\").replace('"', '\\"') + '"' for a in arguments))
            arguments = ["@" + path]
        try:
            return _program.run("compile", source, "-o", artifact, *arguments)[1]
        except Error as error:
            if error.exit_code != 5 or not any("problems in all" in note for d in error.diagnostics for note in d.notes):
                raise
            shared = {k: v for k, v in options.items() if k != "metadata"}
            problems = [Diagnostic.of(problem) for problem in _program.check(source, **shared)["problems"]]
            if not problems:
                raise
            text = f"{len(problems)} things in the model are not supported:\n" + "\n".join(map(str, problems))
            raise Error(text, error.code, error.exit_code, problems) from None


def _source(model: Any, inputs: Any, kwargs: Any, dynamic_shapes: Any, strict: bool, method: Optional[str], folder: str) -> Any:
    """The file to compile, and the names of its dims by the user's names of them."""
    if isinstance(model, (str, os.PathLike)):
        if inputs is not None or dynamic_shapes is not None:
            raise Error("example inputs and dynamic_shapes are for modules: a file has what it needs")
        return os.fspath(model), {}
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)):
        raise Error(f"a model is a path, a torch.nn.Module or an ExportedProgram, not a {type(model).__name__}")
    from . import _export

    path = os.path.join(folder, "model.pt2")
    if isinstance(model, torch.nn.Module):
        if inputs is None and kwargs is None:
            raise Error("a module needs example inputs: stridec.compile(module, (x,))")
        if isinstance(inputs, Mapping):
            inputs, kwargs = (), {**inputs, **(kwargs or {})}
        with _export.as_forward(model, method):
            program, names = _export.export(model, tuple(inputs or ()), dict(kwargs or {}), dynamic_shapes, strict)
    else:
        if method is not None:
            raise Error("an ExportedProgram has one method: export the other one")
        program, names = model, {}
    _export.save(program, path)
    return path, names
