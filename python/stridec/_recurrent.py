"""LSTM, GRU and RNN layers in torch.export.

PyTorch's fake kernels of these layers loop over the time, which makes a dynamic time a constant. During an export, operators with
other fake kernels stand for them; afterwards the program has PyTorch's operators again."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator, Tuple

import torch

_SETTINGS = "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _sequence(x: Any, hidden: Any, bidirectional: bool, batch_first: bool) -> Any:
    """The output of all steps, with the strides that PyTorch's kernels give it."""
    time, batch = (1, 0) if batch_first else (0, 1)
    out = x.new_empty((x.shape[time], x.shape[batch], hidden.shape[2] * (2 if bidirectional else 1)))
    return out.transpose(0, 1) if batch_first else out


def _lstm(x: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
          bidirectional: bool, batch_first: bool) -> Tuple[Any, Any, Any]:  # fmt: skip
    return _sequence(x, hx[0], bidirectional, batch_first), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _one_state(x: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
               bidirectional: bool, batch_first: bool) -> Tuple[Any, Any]:  # fmt: skip
    return _sequence(x, hx, bidirectional, batch_first), torch.empty_like(hx)


@functools.lru_cache(maxsize=None)
def _library() -> Any:
    """The operators that stand for the layers; they exist as long as the library does."""
    library = torch.library.Library("stridec", "FRAGMENT")
    for name in _LAYERS:
        state, results = ("Tensor[]", "Tensor, Tensor, Tensor") if name == "lstm" else ("Tensor", "Tensor, Tensor")
        library.define(f"{name}(Tensor input, {state} hx, {_SETTINGS}) -> ({results})")
        torch.library.register_fake(f"stridec::{name}", _lstm if name == "lstm" else _one_state, lib=library)
    return library


def _replaced(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    stand_in = getattr(torch.ops.stridec, name).default

    def layer(*args: Any) -> Any:
        packed = isinstance(args[1 if name == "lstm" else 2], torch.Tensor)  # (data, batch_sizes, hx, params, ...)
        return own(*args) if packed else stand_in(*args)

    return layer


@contextlib.contextmanager
def keep_time() -> Iterator[None]:
    """The layers of torch.nn call the operators that stand for PyTorch's."""
    _library()
    layers: Any = torch._VF
    before = {name: vars(layers)[name] for name in _LAYERS if name in vars(layers)}
    for name in _LAYERS:
        setattr(layers, name, _replaced(name, getattr(layers, name)))
    try:
        yield
    finally:
        for name in _LAYERS:
            delattr(layers, name)
        vars(layers).update(before)


def restore(program: Any) -> None:
    """PyTorch's operators in the places of those that stand for them."""
    own = {getattr(torch.ops.stridec, name).default: getattr(torch.ops.aten, name).input for name in _LAYERS}
    for part in program.graph_module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in part.graph.nodes:
            if node.op == "call_function" and node.target in own:
                node.target = own[node.target]
        part.recompile()
