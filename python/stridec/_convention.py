"""The calling convention of a module: how arguments become the inputs of an artifact, and outputs the result.

A tree is JSON. Its nodes:

    3                                                        input or output 3
    {"complex": 3}, {"int": 3}, {"float": 3}, {"bool": 3}    the same, as complex numbers, or as a Python number
    {"value": null}                                          a constant of the program: None, a number, a string
    {"tuple": [...]}, {"list": [...]}
    {"dict": [[key, node], ...]}
    {"class": name, "fields": [...] or null, "context": text, "children": [...]}     a named tuple, or a class of PyTorch's
                                                             registry of trees
"""

from __future__ import annotations

import collections
import json
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import _arrays
from ._errors import Error

Node = Any


class Convention:
    KEY = "calling_convention"  # of the manifest's metadata

    def __init__(self, names: List[str], args: List[Node], kwargs: Dict[str, Node], result: Node,
                 orders: Optional[Mapping[int, Sequence[int]]] = None) -> None:
        """names: of the positional arguments, as far as they have one. orders: the dims of outputs that do not lie row by row
        in memory, from the outermost to the innermost."""
        self.names, self.args, self.kwargs, self.result = names, args, kwargs, result
        self.orders = {int(output): tuple(order) for output, order in (orders or {}).items()}
        self.updates: List[Tuple[int, int]] = []
        self.count = 1 + max(_leaves([args, list(kwargs.values())]), default=-1)
        # The number of arguments, if they are tensors in order: what most modules take.
        self.flat = len(args) if args == list(range(len(args))) and not kwargs else 0
        self.single = result == 0

    @staticmethod
    def of_names(inputs: Sequence[str], outputs: Sequence[str]) -> "Convention":
        """What the names of inputs and outputs say: `past.0.key` is the key of the first element of `past`."""
        args = _tree([(name.split("."), i) for i, name in enumerate(inputs)])
        kept = [(name.split("."), i) for i, name in enumerate(outputs) if _updated(name, inputs) is None]
        single = len(kept) == 1 and kept[0][0] == ["output"]
        result: Node = kept[0][1] if single else _node_of(_tree(kept))
        return Convention(list(args), list(args.values()), {}, result)

    @staticmethod
    def of_json(text: str) -> "Convention":
        try:
            j = json.loads(text)
            return Convention(j["names"], j["args"], j["kwargs"], j["result"], j.get("orders"))
        except (ValueError, KeyError, TypeError) as error:
            raise Error(f"the manifest's calling convention is damaged: {error}", "STRIDEC_BAD_ARTIFACT") from None

    def json(self) -> str:
        orders = {"orders": self.orders} if self.orders else {}
        return json.dumps({"names": self.names, "args": self.args, "kwargs": self.kwargs, "result": self.result, **orders})

    def find_updates(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Outputs that are not in the result are new values of inputs that the module writes: `x.updated` is that of `x`."""
        kept = set(_leaves(self.result))
        pairs = [(i, _updated(name, inputs)) for i, name in enumerate(outputs) if i not in kept]
        self.updates = [(i, given) for i, given in pairs if given is not None]
        self.single = self.result == 0 and not self.updates

    # ---- arguments

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> List[Any]:
        """The inputs, in order."""
        keywords = list(self.kwargs)
        expected = [*self.names[: len(self.args)], *(str(i) for i in range(len(self.names), len(self.args))), *keywords]
        nodes = dict(zip(expected, [*self.args, *self.kwargs.values()]))
        if len(args) > len(expected):
            raise Error(f"the model takes {len(expected)} arguments, but is given {len(args)}")
        given = dict(zip(expected, args))
        for name, value in kwargs.items():
            if name not in nodes:
                raise Error(f"the model has no argument '{name}': it has {', '.join(expected) or 'none'}")
            if name in given:
                raise Error(f"the argument '{name}' is given twice")
            given[name] = value
        values: List[Any] = [None] * self.count
        for name, node in nodes.items():
            if name in given:
                _flatten(node, given[name], name, values)
            elif _leaves(node):
                raise Error(f"the argument '{name}' is missing")
        return values

    def check_writable(self, values: Sequence[Any]) -> None:
        """Refuses arguments that the module writes and the call cannot."""
        for _, given in self.updates:
            value = values[given]
            if not _arrays.is_torch(value) and not (isinstance(value, np.ndarray) and value.flags.writeable):
                what = "a read-only array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
                raise Error(f"the model writes input {given}, but the call gives {what}")

    # ---- results

    def build(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> Any:
        for output, given in self.updates:
            _write(inputs[given], outputs[output])
        return _unflatten(self.result, outputs)


def _updated(name: str, inputs: Sequence[str]) -> Optional[int]:
    """The input whose new value an output of this name is."""
    plain = name[: -len(".updated")] if name.endswith(".updated") else None
    return list(inputs).index(plain) if plain in inputs else None


def _leaves(node: Node) -> List[int]:
    if isinstance(node, bool) or node is None or isinstance(node, str):
        return []
    if isinstance(node, int):
        return [node]
    if isinstance(node, list):
        return [leaf for child in node for leaf in _leaves(child)]
    if "value" in node:
        return []
    if "dict" in node:
        return [leaf for _, child in node["dict"] for leaf in _leaves(child)]
    return _leaves(next(node[key] for key in ("complex", "int", "float", "bool", "tuple", "list", "children") if key in node))


def _flatten(node: Node, value: Any, path: str, out: List[Any]) -> None:
    if isinstance(node, int):
        out[node] = value
        return
    (kind, inner), = [(k, v) for k, v in node.items() if k not in ("fields", "context", "children")]
    if kind in ("complex", "int", "float", "bool"):
        out[inner] = value
    elif kind == "value":
        if value is not inner and not (type(value) is type(inner) and value == inner):
            raise Error(f"'{path}' is a constant of the program: it is {inner!r}, but the call gives {value!r}")
    elif kind == "dict":
        if not isinstance(value, Mapping):
            raise Error(f"'{path}' is a dict in the module, but the call gives a {type(value).__name__}")
        keys = [key for key, _ in inner]
        if set(keys) != set(value):
            raise Error(f"'{path}' has the keys {keys}, but the call gives {list(value)}")
        for key, child in inner:
            _flatten(child, value[key], f"{path}.{key}", out)
    else:
        children = node["children"] if kind == "class" else inner
        parts = _parts(node, value) if kind == "class" else value
        if not isinstance(parts, (tuple, list)) or len(parts) != len(children):
            raise Error(f"'{path}' has {len(children)} elements, but the call gives " + (
                str(len(parts)) if isinstance(parts, (tuple, list)) else f"a {type(value).__name__}"))
        for at, (child, part) in enumerate(zip(children, parts)):
            _flatten(child, part, f"{path}.{at}", out)


def _parts(node: Node, value: Any) -> Any:
    """The children of an object of a class: by PyTorch's registry, by field or in order."""
    fields = node["fields"]
    if isinstance(value, tuple):
        return value
    if fields and isinstance(value, Mapping):
        return [value.get(field) for field in fields]
    registered = _registered(node["class"])
    if registered and isinstance(value, registered[0]):
        return list(registered[1].flatten_fn(value)[0])
    if fields and all(hasattr(value, field) for field in fields):
        return [getattr(value, field) for field in fields]
    return value


def _unflatten(node: Node, outputs: Sequence[Any]) -> Any:
    if isinstance(node, int):
        return outputs[node]
    (kind, inner), = [(k, v) for k, v in node.items() if k not in ("fields", "context", "children")]
    if kind == "value":
        return inner
    if kind in ("int", "float", "bool"):
        return {"int": int, "float": float, "bool": bool}[kind](outputs[inner].item())
    if kind == "complex":
        return _as_complex(outputs[inner])
    if kind == "dict":
        return {key: _unflatten(child, outputs) for key, child in inner}
    children = [_unflatten(child, outputs) for child in (node["children"] if kind == "class" else inner)]
    if kind == "list":
        return children
    return tuple(children) if kind == "tuple" else _object(node, children)


def _object(node: Node, children: List[Any]) -> Any:
    """An object of the class that the module returns, if the process has it; a named tuple with its fields otherwise."""
    registered = _registered(node["class"])
    if registered:
        cls, functions, read_context = registered
        return functions.unflatten_fn(children, read_context(node["context"]))
    module, _, name = node["class"].rpartition(".")
    cls = getattr(sys.modules.get(module), name, None)
    fields = node["fields"]
    if isinstance(cls, type) and issubclass(cls, tuple):
        if module == "torch.return_types":
            return cls(children)
        if hasattr(cls, "_fields") and len(cls._fields) == len(children):
            return cls(*children)
    if fields:
        return collections.namedtuple(name or "Result", fields, rename=True)(*children)  # type: ignore[misc]
    return tuple(children)


def _registered(name: str) -> Optional[Tuple[type, Any, Any]]:
    """A class of PyTorch's registry, its functions, and the function that reads its context; None without PyTorch."""
    pytree = sys.modules.get("torch.utils._pytree")
    if pytree is None:
        return None
    cls = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    if cls is None or cls not in pytree.SUPPORTED_NODES or issubclass(cls, tuple):
        return None
    read = pytree.SUPPORTED_SERIALIZED_TYPES[cls].from_dumpable_context
    return cls, pytree.SUPPORTED_NODES[cls], lambda text: (read or (lambda j: j))(json.loads(text))


def _as_complex(pairs: Any) -> Any:
    if _arrays.is_torch(pairs):
        return sys.modules["torch"].view_as_complex(pairs)
    return pairs.view(np.dtype(f"complex{16 * pairs.dtype.itemsize}"))[..., 0]


def _write(target: Any, value: Any) -> None:
    """The module writes its argument; so does the call."""
    if _arrays.is_torch(target):
        torch = sys.modules["torch"]
        with torch.no_grad():
            target.copy_(value if _arrays.is_torch(value) else torch.from_numpy(value))
    else:
        target[...] = value.numpy() if _arrays.is_torch(value) else value


# ---- from names


def _tree(paths: List[Tuple[List[str], int]]) -> Dict[str, Node]:
    """The children by name of a node whose leaves have these paths."""
    groups: Dict[str, List[Tuple[List[str], int]]] = {}
    for path, leaf in paths:
        groups.setdefault(path[0], []).append((path[1:], leaf))
    found: Dict[str, Node] = {}
    for name, inner in groups.items():
        if any(not path for path, _ in inner):  # `x` and `x.0`: names with dots, not paths
            for path, leaf in inner:
                found[".".join([name, *path])] = leaf
        else:
            found[name] = _node_of(_tree(inner))
    return found


def _node_of(children: Dict[str, Node]) -> Node:
    if list(children) == [str(i) for i in range(len(children))]:
        return {"tuple": list(children.values())}
    return {"dict": [[name, node] for name, node in children.items()]}
