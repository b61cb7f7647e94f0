"""flex_attention as operators that a program can hold: PyTorch's own definition of it, over all scores at once.

torch.export.save cannot write the operator, whose block mask is a tuple of numbers, tensors and a function.
"""

from __future__ import annotations

import operator
from typing import Any, Callable, List, Mapping, Optional

import torch
import torch.fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import unset_fake_temporarily


def lower_flex_attention(module: torch.fx.GraphModule,
                         decompositions: Optional[Mapping[Any, Callable[..., Any]]] = None) -> None:
    """Replaces each flex_attention of the graph, whose values have fake tensors."""
    graph = module.graph
    found = [node for node in graph.nodes if node.op == "call_function" and _is_flex_attention(node.target)]
    for node in found:
        _replace(module, node, decompositions)
    if found:
        graph.eliminate_dead_code()
        graph.lint()
        module.recompile()


def _is_flex_attention(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() == "flex_attention"


def _replace(module: torch.fx.GraphModule, node: torch.fx.Node, decompositions: Any) -> None:
    from torch._higher_order_ops.flex_attention import math_attention
    from torch.fx.experimental.proxy_tensor import make_fx

    operands: List[torch.fx.Node] = []

    def collect(value: torch.fx.Node) -> torch.fx.Node:
        is_function = value.op == "get_attr" and isinstance(_attribute(module, value.target), torch.nn.Module)
        if not is_function:
            operands.append(value)
        return value

    torch.fx.node.map_arg((node.args, node.kwargs), collect)
    operands = list(dict.fromkeys(operands))
    values = [_value(module, operand) for operand in operands]

    def dense(*given: Any) -> Any:
        own = dict(zip(operands, given))

        def filled(value: torch.fx.Node) -> Any:
            return own[value] if value in own else _attribute(module, value.target)

        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), filled)
        return math_attention(*args, **kwargs)

    mode = detect_fake_mode(values)
    if mode is None:
        return
    with torch.no_grad(), mode:
        traced = make_fx(dense, decomposition_table=decompositions, tracing_mode="real")(*values)
    traced.graph.eliminate_dead_code()
    mapped = dict(zip((n for n in traced.graph.nodes if n.op == "placeholder"), operands))
    results: Any = ()
    with module.graph.inserting_before(node):
        for inner in traced.graph.nodes:
            if inner.op == "placeholder":
                continue
            if inner.op == "output":
                results = torch.fx.node.map_arg(inner.args[0], mapped.__getitem__)
                continue
            if inner.op == "get_attr":  # the number of masked scores, which an exported program cannot have as an attribute
                number = _attribute(traced, inner.target)
                with unset_fake_temporarily():
                    value = number.item()
                mapped[inner] = module.graph.call_function(torch.ops.aten.full.default, ([], value),
                                                           {"dtype": number.dtype, "device": number.device})
            else:
                mapped[inner] = module.graph.node_copy(inner, mapped.__getitem__)
            mapped[inner].meta = {**inner.meta, "stack_trace": node.meta.get("stack_trace")}
    for user in list(node.users):
        if user.target is not operator.getitem:
            return
        result = results[user.args[1]]
        user.target, user.args = torch.ops.aten.alias.default, (result,)  # an exported program knows its results by name
    module.graph.erase_node(node)


def _value(module: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    value = node.meta.get("val")
    return _attribute(module, node.target) if value is None and node.op == "get_attr" else value


def _attribute(module: Any, target: Any) -> Any:
    for part in str(target).split("."):
        module = getattr(module, part)
    return module
