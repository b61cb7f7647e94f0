"""Programs at other sizes than those of the export: their inputs, and PyTorch's results. Needs PyTorch."""

import copy
import re

import numpy as np
import torch

import compare

try:
    # They register classes of results, and operators of mixtures of experts.
    import transformers.integrations.moe
    import transformers.modeling_outputs  # noqa: F401
except ImportError:
    pass


BFLOAT16 = 13  # the dtype in a program's JSON


def changed(symbolic, change):
    """A size or an integer input with its symbol's hint replaced by change(hint); None for other expressions than a multiple."""
    text, hint = symbolic["expr_str"], symbolic["hint"]["as_int"]
    factor = re.match(r"Mul\(Integer\((\d+)\), Symbol", text)
    if not factor and not text.startswith("Symbol"):
        return None
    k = int(factor[1]) if factor else 1
    return k * change(hint // k)


def resized(path, arrays, change):
    """The artifact's inputs with each symbol's hint replaced by change(hint): the example's elements, repeated.

    None if the program has no symbol, or a size is not a symbol or multiple of one.
    """
    graph = compare.program(path)["graph_module"]
    out, seen = [], False
    arrays = iter(arrays)
    for spec in graph["signature"]["input_specs"]:
        argument = spec.get("user_input", {}).get("arg", {})
        if "as_sym_int" in argument:
            value = changed(graph["graph"]["sym_int_values"][argument["as_sym_int"]["as_name"]]["as_expr"], change)
            if value is None:
                return None
            out.append(np.int64(value))
            seen = True
        if "as_tensor" not in argument:
            continue
        array, shape = next(arrays), []
        for size in graph["graph"]["tensor_values"][argument["as_tensor"]["name"]]["sizes"]:
            shape.append(size["as_int"] if "as_int" in size else changed(size["as_expr"], change))
            seen = seen or "as_expr" in size
        if None in shape:
            return None
        out.append(np.resize(array, shape))
    return out if seen else None


def run_pytorch(module, path, inputs):
    """The tensors among the results of an exported program's module for the artifact's inputs."""
    given = iter(inputs)
    graph = compare.program(path)["graph_module"]
    leaves = []
    for spec in graph["signature"]["input_specs"]:
        if "constant_input" in spec:
            value = next(iter(spec["constant_input"]["value"].values()))
            leaves.append(None if "as_none" in spec["constant_input"]["value"] else value)
        elif "as_tensor" in spec.get("user_input", {}).get("arg", {}):
            value = torch.from_numpy(next(given).copy())
            bits = graph["graph"]["tensor_values"][spec["user_input"]["arg"]["as_tensor"]["name"]]["dtype"] == BFLOAT16
            leaves.append(value.view(torch.bfloat16) if bits else value)
        elif "user_input" in spec:
            leaves.append(int(next(given)))
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, module._in_spec)
    with torch.no_grad():
        results = torch.utils._pytree.tree_leaves(copy.deepcopy(module)(*args, **kwargs))
    return [array(r) for r in results if isinstance(r, torch.Tensor)]


def array(tensor):
    """A tensor as an array; bfloat16 as the bits."""
    tensor = tensor.detach().contiguous().resolve_conj().resolve_neg()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
