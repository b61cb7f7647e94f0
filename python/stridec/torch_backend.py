"""torch.compile(model, backend="stridec"), found by the entry point torch_dynamo_backends.

AOTAutograd traces the graph; graphs of inference are written as exported programs and compiled by the program, once for
each content (_artifacts). Parameters stay inputs, read where they lie at each call, or become constants with
options={"freeze": True}. Graphs that want gradients run eagerly.

Options: freeze; fallback ("eager": graphs with unsupported operators run eagerly); precision, mode, target, cpu, gpu,
options (a dict of the compiler's -O), threads.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext, detect_fake_mode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from functorch.compile import make_boxed_func

from . import _artifacts
from ._attention import lower_flex_attention
from ._call import make_call
from ._errors import Error
from ._graph import Program, Unserializable

_OPTIONS = ("freeze", "fallback", "precision", "mode", "target", "cpu", "gpu", "options", "threads")


class _Settings:
    def __init__(self, mode: Optional[str], options: Mapping[str, Any]) -> None:
        for name in options:
            if name not in _OPTIONS:
                raise Error(f"the backend stridec has no option '{name}': it has {', '.join(_OPTIONS)}")
        self.freeze = bool(options.get("freeze", False))
        self.fallback = options.get("fallback")
        if self.fallback not in (None, "eager"):
            raise Error(f"fallback is {self.fallback!r}: it may be 'eager'")
        self.threads = options.get("threads")
        self.flags: Dict[str, Any] = {key: options[key] for key in ("precision", "mode", "target", "cpu", "gpu", "options")
                                      if options.get(key) is not None}
        if mode is not None:
            self.flags["mode"] = mode


def backend(module: torch.fx.GraphModule, inputs: Sequence[Any], mode: Optional[str] = None,
            options: Optional[Mapping[str, Any]] = None) -> Callable[..., Any]:
    settings = _Settings(mode, options or {})
    wrapped = aot_autograd(
        fw_compiler=_eager_forward,
        bw_compiler=_eager,
        inference_compiler=lambda graph, examples: _compile(graph, settings),
        decompositions=_artifacts.decompositions,
        keep_inference_input_mutations=True,
    )
    return wrapped(module, inputs)


def _eager(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    return make_boxed_func(graph.forward)


_warned = False


def _eager_forward(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn("stridec compiles inference: graphs that want gradients run eagerly. Call the model under "
                      "torch.no_grad() or torch.inference_mode()", stacklevel=2)
    return _eager(graph, examples)


def _compile(graph: torch.fx.GraphModule, settings: _Settings) -> Callable[..., Any]:
    context = TracingContext.try_get()
    static = list(context.fw_metadata.static_input_indices) if context is not None and context.fw_metadata else []
    ranges = _ranges(graph)
    lower_flex_attention(graph, _artifacts.decompositions())

    def build(frozen: Dict[int, torch.Tensor]) -> Callable[[List[Any]], List[Any]]:
        try:
            devices = {n.meta["val"].device.type for n in graph.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)}
            with unset_fake_temporarily():  # constants are real tensors
                program = Program(graph, frozen, ranges)
                if not program.returned and not _written(graph):  # nothing to compute
                    return make_boxed_func(graph.forward)
                model = _artifacts.artifact(program, {"target": "cuda"} if "cuda" in devices else {}, settings.flags)
            threads = torch.get_num_threads() if settings.threads is None else settings.threads
            return make_call(program, model, threads)
        except Unserializable as error:
            return _unsupported(Error(f"the graph cannot be compiled: it has {error}", "unsupported", 5), graph, settings)
        except Error as error:
            return _unsupported(error, graph, settings)

    if settings.freeze and static:
        written = _written(graph)
        return _Frozen(build, [i for i in static if i not in written])
    return build({})


def _unsupported(error: Error, graph: torch.fx.GraphModule, settings: _Settings) -> Callable[..., Any]:
    if settings.fallback == "eager" and error.exit_code == 5:
        return make_boxed_func(graph.forward)
    raise error


def _ranges(graph: torch.fx.GraphModule) -> Dict[Any, Any]:
    """The range of each symbol, as integers."""
    mode = detect_fake_mode([n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"])
    environment = getattr(mode, "shape_env", None)
    if environment is None:
        return {}
    def number(value: Any, infinite: int) -> int:
        return int(value) if value.is_Integer else infinite

    return {symbol: (number(values.lower, 0), number(values.upper, 2**62))
            for symbol, values in environment.var_to_range.items()}


def _written(graph: torch.fx.GraphModule) -> List[int]:
    """Positions of the placeholders that the graph writes."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    targets = {node.args[0] for node in graph.graph.nodes if node.op == "call_function" and node.target is torch.ops.aten.copy_.default}
    return [i for i, node in enumerate(placeholders) if node in targets]


class _Frozen:
    """A program with parameters as constants. Each call compares where they lie and their versions with those that were
    compiled; others are compiled anew."""

    _boxed_call = True

    def __init__(self, build: Callable[[Dict[int, torch.Tensor]], Callable[..., Any]], static: List[int]) -> None:
        self.build, self.static = build, static
        self.key: Optional[List[Any]] = None
        self.call: Callable[..., Any] = build
        self.kept: List[torch.Tensor] = []

    def __call__(self, args: List[Any]) -> List[Any]:
        key = [(args[i].data_ptr(), args[i]._version) for i in self.static]
        if key != self.key:
            frozen = {i: args[i].detach() for i in self.static}
            self.call, self.key = self.build(frozen), key
            self.kept = list(frozen.values())  # so that no other tensor gets their memory
        return self.call(args)
