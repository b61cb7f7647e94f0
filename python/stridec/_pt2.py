"""The calling convention of an exported program, read from its file. Needs no PyTorch."""

from __future__ import annotations

import json
import zipfile
from typing import Any, Dict, Iterator, List, Optional

from ._convention import Convention, Node

_COMPLEX = (9, 10, 11)  # complex32, complex64, complex128 in the numbering of the format


def read_convention(path: str, name: Optional[str] = None) -> Optional[Convention]:
    """Of the program of the name, or the file's only one. None if there is no such program: the compiler says so then."""
    try:
        with zipfile.ZipFile(path) as archive:
            models = [member for member in archive.namelist() if "models/" in member and member.endswith(".json")
                      and (name is None or member.endswith(f"/models/{name}.json"))]
            program = json.loads(archive.read(models[0])) if len(models) == 1 else None
        return _convention(program) if program else None
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, zipfile.BadZipFile,
            NotImplementedError, StopIteration):
        return None


def _convention(program: Dict[str, Any]) -> Convention:
    module = program["graph_module"]
    signature = next(entry["signature"] for entry in module["module_call_graph"] if entry["fqn"] == "")
    fields = {name: entry["field_names"] for name, entry in module.get("treespec_namedtuple_fields", {}).items()}
    tensors = module["graph"]["tensor_values"]
    inputs = _tree(json.loads(signature["in_spec"])[1], _inputs(module["signature"]["input_specs"], tensors), fields)
    outputs = _outputs(module["signature"]["output_specs"], tensors)
    args, kwargs = inputs["tuple"]
    return Convention(signature.get("forward_arg_names") or [], args["tuple"], dict(kwargs["dict"]),
                      _tree(json.loads(signature["out_spec"])[1], outputs, fields),
                      _orders(module["signature"]["output_specs"], tensors))


def _inputs(specs: List[Any], tensors: Dict[str, Any]) -> Iterator[Node]:
    count = 0
    for spec in specs:
        if "constant_input" in spec:
            (value,) = spec["constant_input"]["value"].items()
            yield {"value": None if value[0] == "as_none" else value[1]}
        elif "user_input" in spec:
            ((kind, value),) = spec["user_input"]["arg"].items()
            if kind in ("as_tensor", "as_sym_int"):
                yield _leaf(kind, value, count, tensors)
                count += 1
            else:
                yield {"value": None if kind == "as_none" else value}


def _outputs(specs: List[Any], tensors: Dict[str, Any]) -> Iterator[Node]:
    count = 0
    for spec in specs:
        if "user_output" not in spec:
            continue
        ((kind, value),) = spec["user_output"]["arg"].items()
        if kind in ("as_none", "as_string"):
            yield {"value": None if kind == "as_none" else value}
            continue
        number = {"as_int": "int", "as_sym_int": "int", "as_float": "float", "as_sym_float": "float", "as_bool": "bool",
                  "as_sym_bool": "bool"}.get(kind)
        yield {number: count} if number else _leaf(kind, value, count, tensors)
        count += 1


def _orders(specs: List[Any], tensors: Dict[str, Any]) -> Dict[int, List[int]]:
    """Of the outputs that do not lie row by row in memory: the dims from the outermost to the innermost."""
    kept = [next(iter(spec["user_output"]["arg"].items())) for spec in specs if "user_output" in spec]
    found = {}
    for output, (kind, value) in enumerate(item for item in kept if item[0] not in ("as_none", "as_string")):
        order = _order(tensors[value["name"]]) if kind == "as_tensor" else None
        if order and order != sorted(order):
            found[output] = order
    return found


def _order(tensor: Dict[str, Any]) -> Optional[List[int]]:
    """By the strides of the example. None if elements share memory, or the file does not say."""
    sizes, strides = ([_hint(size) for size in tensor[key]] for key in ("sizes", "strides"))
    if None in sizes or None in strides or any(step == 0 and size > 1 for size, step in zip(sizes, strides)):
        return None
    order = sorted(range(len(sizes)), key=lambda dim: (-strides[dim], sizes[dim] == 1))
    return [*order, len(order)] if tensor["dtype"] in _COMPLEX else order  # pairs of numbers


def _hint(size: Dict[str, Any]) -> Optional[int]:
    if "as_int" in size:
        return size["as_int"]
    return ((size.get("as_expr") or {}).get("hint") or {}).get("as_int")


def _leaf(kind: str, value: Any, count: int, tensors: Dict[str, Any]) -> Node:
    return {"complex": count} if kind == "as_tensor" and tensors[value["name"]]["dtype"] in _COMPLEX else count


def _tree(spec: Any, leaves: Iterator[Node], fields: Dict[str, List[str]]) -> Node:
    kind = spec["type"]
    if kind is None:
        return next(leaves)
    children = [_tree(child, leaves, fields) for child in spec["children_spec"]]
    if kind in ("builtins.tuple", "builtins.list"):
        return {kind[len("builtins."):]: children}
    context = spec["context"]
    if kind in ("builtins.dict", "collections.OrderedDict"):
        return {"dict": [[key, child] for key, child in zip(json.loads(context), children)]}
    if kind == "collections.namedtuple":
        name = context if context in fields else json.loads(context)
        return {"class": name, "fields": fields.get(name), "context": context, "children": children}
    keys = _result_names(kind) if kind.startswith(_RETURN_TYPES) else _keys(context, len(children))
    return {"class": kind, "fields": keys, "context": context, "children": children}


_RETURN_TYPES = "torch.return_types."
_RESULT_NAMES = {
    "aminmax": "min max", "frexp": "mantissa exponent", "geqrf": "a tau", "histogram": "hist bin_edges",
    "histogramdd": "hist bin_edges", "linalg_cholesky_ex": "L info", "linalg_eig": "eigenvalues eigenvectors",
    "linalg_eigh": "eigenvalues eigenvectors", "linalg_inv_ex": "inverse info", "linalg_ldl_factor": "LD pivots",
    "linalg_ldl_factor_ex": "LD pivots info", "linalg_lstsq": "solution residuals rank singular_values", "linalg_lu": "P L U",
    "linalg_lu_factor": "LU pivots", "linalg_lu_factor_ex": "LU pivots info", "linalg_qr": "Q R",
    "linalg_slogdet": "sign logabsdet", "linalg_solve_ex": "result info", "linalg_svd": "U S Vh", "lu_unpack": "P L U",
    "qr": "Q R", "slogdet": "sign logabsdet", "svd": "U S V", "triangular_solve": "solution cloned_coefficient",
}  # fmt: skip


def _result_names(kind: str) -> List[str]:
    """Of an operator's own class of results: max, sort, topk ... have values and indices."""
    name = kind[len(_RETURN_TYPES):]
    return _RESULT_NAMES.get(name[: -len("_out")] if name.endswith("_out") else name, "values indices").split()


def _keys(context: Any, count: int) -> Optional[List[str]]:
    """The names of the children, where the context of a class is a list of them or begins with one."""
    try:
        parsed = json.loads(context)
    except (TypeError, ValueError):
        return None
    if isinstance(parsed, list) and parsed and isinstance(parsed[0], list):
        parsed = parsed[0]
    good = isinstance(parsed, list) and len(parsed) == count and all(isinstance(key, str) for key in parsed)
    return parsed if good else None
