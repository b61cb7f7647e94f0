"""torch.export with what it refuses and a compiler can take: sizes of 1 among the examples that are to be dynamic, recurrent
layers over a dynamic time, named tuples and caches that nobody registered."""

from __future__ import annotations

import contextlib
import inspect
import sys
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch
from torch.utils import _pytree

from ._attention import lower_flex_attention
from ._errors import Error
from ._recurrent import keep_time, restore


def export(module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], shapes: Any, strict: bool) -> Tuple[Any, Dict[str, str]]:
    """The exported program, and the artifact's names of the Dims: {"batch": "x.0"}."""
    names: Dict[str, str] = {}
    _register_caches((args, kwargs))
    if isinstance(shapes, (Mapping, tuple, list)):
        args, kwargs, names = _enlarged(module, args, kwargs, shapes)
    try:
        with keep_time():
            program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=strict)
    except Exception as error:  # whatever the module raises
        raise Error(f"torch.export cannot export the module: {type(error).__name__}: {error}", "export") from error
    restore(program)
    return program, names


@contextlib.contextmanager
def as_forward(module: Any, method: Optional[str]) -> Iterator[None]:
    """The module with another method in forward's place, so that the names of its parameters stay."""
    if method is None or method == "forward":
        yield
        return
    function = getattr(module, method, None)
    if not callable(function):
        raise Error(f"the module has no method '{method}'")
    before = vars(module).get("forward")
    module.forward = function
    try:
        yield
    finally:
        del module.forward
        if before is not None:
            module.forward = before


def save(program: Any, path: str) -> None:
    for spec in (program.call_spec.in_spec, program.call_spec.out_spec):
        _name_classes(spec)
    program = _without_vmap(program)
    lower_flex_attention(program.graph_module)
    try:
        torch.export.save(program, path)
    except Exception as error:
        raise Error(f"torch.export.save cannot save the program: {type(error).__name__}: {error}", "export") from error


def _without_vmap(program: Any) -> Any:
    """A program that vmap left in terms of its levels, in terms of operators."""
    nodes = [node for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes]
    levels = any(getattr(node.target, "__module__", None) == "torch._functorch.predispatch" for node in nodes)
    return program.run_decompositions({}) if levels else program


# ---- classes that torch.export does not know


def _name_classes(spec: Any) -> None:
    """Gives the classes of a tree the names that a file needs: of named tuples, of PyTorch's own results such as
    torch.return_types.max, and of those that were registered without one."""
    if spec is None or spec.is_leaf():
        return
    cls = spec.context if spec.type is _pytree.namedtuple else spec.type
    known = _pytree.SUPPORTED_SERIALIZED_TYPES.get(cls)
    if known is None or known.serialized_type_name == _pytree.NO_SERIALIZED_TYPE_NAME_FOUND:
        name = f"{cls.__module__}.{cls.__qualname__}"
        if spec.type is _pytree.namedtuple:
            _pytree._register_namedtuple(cls, serialized_type_name=name)
        elif known is not None:
            _pytree.SUPPORTED_SERIALIZED_TYPES[cls] = known._replace(serialized_type_name=name)
            _pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.setdefault(name, cls)
    for child in spec.children():
        _name_classes(child)


def _register_caches(values: Any) -> None:
    """transformers' caches as arguments, if there are any."""
    caches = sys.modules.get("transformers.cache_utils")
    if caches is None:
        return
    found: List[Any] = []
    _pytree.tree_map(lambda leaf: found.append(leaf), values)
    if any(isinstance(leaf, caches.Cache) for leaf in found):
        from transformers.integrations import executorch

        getattr(executorch, "register_dynamic_cache_export_support", lambda: None)()


# ---- example inputs whose dynamic sizes are 0 or 1


def _argument_names(module: Any, count: int) -> Tuple[List[str], Optional[str]]:
    """The names of `count` positional arguments, and the name of *args, which has the rest."""
    parameters = inspect.signature(module.forward).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    return positional[:count], variadic


def _enlarged(module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], shapes: Any) -> Tuple[Any, Any, Dict[str, str]]:
    """The arguments with two elements where a dynamic size is 0 or 1, which torch.export takes for constants; and the
    artifact's names of the Dims."""
    names, variadic = _argument_names(module, len(args))
    named: Dict[str, Any] = dict(zip(names, args))
    if variadic and len(args) > len(names):
        named[variadic] = tuple(args[len(names):])
    everything = {**named, **kwargs}
    specs = shapes if isinstance(shapes, Mapping) else dict(zip(everything, shapes))
    walk = _Walk()
    done = {name: walk.value(value, specs.get(name), name) for name, value in everything.items()}
    own = tuple(done[name] for name in names) + (done[variadic] if variadic in named else ())
    return own, {name: done[name] for name in kwargs}, walk.names


class _Walk:
    def __init__(self) -> None:
        self.names: Dict[str, str] = {}

    def value(self, value: Any, spec: Any, path: str) -> Any:
        if spec is None:
            return value
        if isinstance(value, torch.Tensor):
            sizes = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
            for dim, size in sizes:
                self.note(size, f"{path}.{dim}")
                value = _resized(value, dim, _example(size, value.shape[dim]))
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            self.note(spec, path)
            return _example(spec, value)
        if isinstance(value, Mapping) and isinstance(spec, Mapping) and type(value) is dict:
            return {key: self.value(item, spec.get(key), f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, (tuple, list)) and isinstance(spec, (tuple, list)) and len(spec) == len(value):
            fields = getattr(value, "_fields", range(len(value)))
            items = [self.value(item, part, f"{path}.{field}") for item, part, field in zip(value, spec, fields)]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return value

    def note(self, size: Any, path: str) -> None:
        name = getattr(size, "__name__", None)
        if name and not hasattr(size, "root"):
            self.names.setdefault(name, path)


def _example(size: Any, given: int) -> int:
    """The example's size where `size` says that it is dynamic."""
    if size is None or isinstance(size, (int, str)) or getattr(getattr(size, "type", None), "name", "") == "STATIC":
        return given
    root, function = getattr(size, "root", None), getattr(size, "fn", None)
    if root is not None and function is not None:  # 2 * half
        small = [r for r in (0, 1) if function(r) == given]
        return function(max(2, _lower(root))) if small else given
    upper = getattr(size, "max", None)
    if given > 1 or (upper is not None and upper < 2):
        return given
    return max(2, _lower(size))


def _lower(size: Any) -> int:
    return int(getattr(size, "min", None) or 0)


def _resized(tensor: Any, dim: int, size: int) -> Any:
    """The elements of a dim, repeated up to the size: their values stay valid ones."""
    old = tensor.shape[dim]
    if old == size:
        return tensor
    with torch.no_grad():
        if old == 0:
            shape: List[int] = list(tensor.shape)
            shape[dim] = size
            return tensor.new_zeros(shape)
        index = torch.arange(size, device=tensor.device) % old
        return tensor.detach().index_select(dim, index)

