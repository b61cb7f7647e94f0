"""Calls of a compiled graph: what torch.compile's guards promise is described once, so that a call writes data pointers, makes
results and runs. Sizes that are symbols get one description for each of their values."""

from __future__ import annotations

import ctypes as c
import operator
from array import array
from typing import Any, Callable, Dict, List, Optional, Tuple

import sympy
import torch

from . import _arrays, _capi, _generator
from ._context import Context, _copy, _words
from ._errors import Error
from ._graph import Program
from ._model import Model

_MOST_PLANS = 64
_FEW = 4  # up to so many pointers are faster written one by one
_MADE, _GIVEN, _VALUE = range(3)

# The function that Inductor's code calls: a third of the time of torch.empty_strided.
_empty_cpu = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "_empty_strided_cpu", None)


class _Output:
    """What an output of the graph is: an output of the artifact, an argument, or a value that follows from the sizes."""

    def __init__(self, kind: int, index: int = 0, value: Any = None) -> None:
        self.kind, self.index, self.value = kind, index, value


class _Plan:
    """The tensors of a call for given sizes."""

    __slots__ = ("given", "made", "given_words", "made_words", "given_at", "made_at", "makers", "blank", "finish",
                 "simple", "cells")  # fmt: skip


def make_call(program: Program, model: Model, threads: int) -> Callable[[List[Any]], List[Any]]:
    """The function that runs the graph. It takes one list of arguments, which it empties."""
    call = _Call(program, model, threads)
    if call.cuda or not call.static:

        def general(args: List[Any]) -> List[Any]:
            return call(args)

        general._boxed_call = True  # type: ignore[attr-defined]
        return general
    ready: List[Callable[[List[Any]], List[Any]]] = []  # one with each context
    pop, append, fresh = ready.pop, ready.append, call.fresh

    def boxed(args: List[Any]) -> List[Any]:
        try:
            run = pop()
        except IndexError:  # the first call, or all are in use by other threads
            run = fresh(args)
        found = run(args)
        args.clear()
        append(run)
        return found

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


class _Call:
    def __init__(self, program: Program, model: Model, threads: int) -> None:
        self.model, self.threads = model, threads
        self.values = [node.meta["val"] for node in program.placeholders]
        self.positions = [p for p in program.input_positions if isinstance(self.values[p], torch.Tensor)]
        self.integers = program.input_positions[len(self.positions):]
        self.pick = _picker(self.positions, len(self.values))
        self.count, self.results = len(program.input_positions), len(model.outputs)
        self.made_end = _capi.TENSOR_WORDS * self.results
        self.symbols = _symbols(self.values)
        self.sizes = _picker([where[0] for where in self.symbols.values() if len(where) == 1], -1)
        self.dims = [where for where in self.symbols.values() if len(where) == 2]
        self.strides = _free_strides(self.values, self.positions, self.symbols)
        names = {node.name: i for i, node in enumerate(program.placeholders)}
        self.updates = [(i, names[value.name[: -len(".updated")]]) for i, value in enumerate(model.outputs)
                        if i >= len(program.returned)]
        self.made = [program.returned_values[name] for name in program.returned]
        self.made += [self.values[position] for _, position in self.updates]
        self.outputs = [_output(o, program.returned, names) for o in program.outputs]
        for output in self.outputs:
            if not _is_known(output.value, self.symbols):
                raise Error(f"the graph returns {output.value}, a number that the data decides", "unsupported", 5)
        self.run = model._api.context_run
        self.free: Dict[Optional[int], List[Any]] = {}  # contexts by stream, each with its calls by size
        self.cuda = model.device == "cuda"
        self.draws = _generator.draws(model)
        self.static = not self.symbols and not self.strides

    def __call__(self, args: List[Any]) -> List[Any]:
        stream = torch.cuda.current_stream(self.model._device_index).cuda_stream if self.cuda else None
        free = self.free.get(stream)
        if free is None:
            free = self.free.setdefault(stream, [])
        try:
            slot = free.pop()
        except IndexError:
            slot = (self.model.context(self.threads, stream), {})
        runs = slot[1]
        try:
            key = () if self.static else self._key(args)
            run = runs.get(key)
            if run is None:
                if len(runs) >= _MOST_PLANS:
                    runs.clear()
                run = runs[key] = self._runner(slot[0], self._plan(args))
            return run(args)
        finally:
            args.clear()
            free.append(slot)

    def fresh(self, args: List[Any]) -> Callable[[List[Any]], List[Any]]:
        return self._runner(self.model.context(self.threads), self._plan(args))

    def _key(self, args: List[Any]) -> Tuple[Any, ...]:
        key = self.sizes(args)
        if self.dims:
            key = (*key, *(args[p].shape[d] for p, d in self.dims))
        return (*key, *(args[p].stride(d) for p, d in self.strides)) if self.strides else key

    def _runner(self, context: Context, plan: _Plan) -> Callable[[List[Any]], List[Any]]:
        """A call for these sizes: pointers, results, run."""
        given, made, count, results = plan.given_words, plan.made_words, self.count, self.results
        given_end, made_end, words = _capi.TENSOR_WORDS * len(self.positions), self.made_end, _capi.TENSOR_WORDS
        given_at, made_at, address = plan.given_at, plan.made_at, context._address
        pick, native, fail, makers, blank = self.pick, self.run, context._fail, plan.makers, plan.blank
        simple, many = plan.simple, len(self.positions) > _FEW

        def run(args: List[Any]) -> List[Any]:
            if many:
                given[:given_end:words] = array("q", [value.data_ptr() for value in pick(args)])
            else:
                at = 0
                for value in pick(args):
                    given[at] = value.data_ptr()
                    at += words
            if results == 1:
                make, size, stride, dtype = makers[0]
                value = make(size, stride, dtype)
                made[0] = value.data_ptr()
                outputs = [value]
            else:
                outputs = [make(size, stride, dtype) for make, size, stride, dtype in makers]
                at = 0
                for value in outputs:
                    made[at] = value.data_ptr()
                    at += words
            status = native(address, given_at, count, made_at, results)
            if status:
                fail(status)
            return outputs if simple else self._finish(plan, outputs, args)

        def run_unknown(args: List[Any]) -> List[Any]:
            """Some outputs have shapes that the data decides: the context has their memory."""
            c.memmove(made_at, blank, len(blank))
            given[:given_end:words] = array("q", [value.data_ptr() for value in pick(args)])
            outputs = [make(size, stride, dtype) for make, size, stride, dtype in makers]
            made[:made_end:words] = array("q", [0 if value is None else value.data_ptr() for value in outputs])
            status = native(address, given_at, count, made_at, results)
            if status:
                fail(status)
            return self._finish(plan, outputs, args)

        chosen = run if blank is None else run_unknown
        return _drawing(chosen, context) if self.draws else chosen

    def _finish(self, plan: _Plan, results: List[Any], args: List[Any]) -> List[Any]:
        for index, finish in plan.finish:
            results[index] = finish(results[index], plan.made[index])
        with torch.no_grad():
            for index, position in self.updates:
                args[position].copy_(results[index])
        found = []
        for output in self.outputs:
            if output.kind == _MADE:
                found.append(results[output.index])
            elif output.kind == _GIVEN:
                found.append(args[output.index])
            else:
                found.append(self._evaluate(output.value, args))
        return found

    def _substitution(self, args: List[Any]) -> Dict[Any, int]:
        return {symbol: args[where[0]] if len(where) == 1 else args[where[0]].shape[where[1]]
                for symbol, where in self.symbols.items()}

    def _evaluate(self, value: Any, args: List[Any]) -> Any:
        return _number(value, self._substitution(args)) if isinstance(value, torch.SymInt) else value

    def _plan(self, args: List[Any]) -> _Plan:
        sizes = self._substitution(args)
        plan = _Plan()
        plan.finish, plan.makers, plan.cells = [], [], []
        plan.given, plan.made = (_capi.Tensor * max(self.count, 1))(), (_capi.Tensor * max(self.results, 1))()
        for tensor, position in zip(plan.given, self.positions):
            value = args[position]
            _describe(tensor, value.dtype, value.device, tuple(value.shape), tuple(value.stride()))
        for tensor, position in zip(plan.given[len(self.positions):], self.integers):
            cell = torch.tensor(args[position])
            plan.cells.append(cell)
            _describe(tensor, cell.dtype, cell.device, (), ())
            tensor.data = cell.data_ptr()
        for index, (tensor, value) in enumerate(zip(plan.made, self.made)):
            shape, strides = (_numbers(part, sizes) for part in (value.shape, value.stride()))
            if shape is None or strides is None:  # the data decides
                plan.makers.append((_nothing, None, None, None))
                plan.finish.append((index, self._copier(index, sizes)))
                continue
            wanted = strides
            if _arrays.overlaps(shape, strides):
                strides = _arrays.compact(shape)
                plan.finish.append((index, _expander(wanted)))
            _describe(tensor, value.dtype, value.device, shape, strides)
            plan.makers.append((_maker(value), shape, strides, value.dtype))
        known = all(maker[0] is not _nothing for maker in plan.makers)
        plan.blank = None if known else bytes(memoryview(plan.made).cast("B"))
        plan.given_words, plan.made_words = _words(plan.given), _words(plan.made)
        plan.given_at, plan.made_at = c.addressof(plan.given), c.addressof(plan.made)
        in_order = [output.index for output in self.outputs if output.kind == _MADE] == list(range(self.results))
        plan.simple = not plan.finish and not self.updates and in_order and len(self.outputs) == self.results
        return plan

    def _copier(self, index: int, sizes: Dict[Any, int]) -> Callable[[Any, Any], Any]:
        value, made = self.model.outputs[index], self.made[index]
        finish = torch.view_as_complex if made.is_complex() else lambda result: result

        def copy(_: Any, tensor: Any) -> Any:
            result = finish(_copy(tensor, value, True)).to(made.device)
            own = {size.node.expr: n for size, n in zip(made.shape, result.shape) if isinstance(size, torch.SymInt)}
            strides = _numbers(made.stride(), {**sizes, **own})
            if strides is None or strides == result.stride() or 0 in strides:
                return result
            return result.new_empty_strided(result.shape, strides).copy_(result)

        return copy


def _drawing(run: Callable[[List[Any]], List[Any]], context: Context) -> Callable[[List[Any]], List[Any]]:
    """The call with PyTorch's generator, which draws its numbers and stands where eager code would leave it."""

    device, kind = context.model._device_index, context.state(_generator.NAME)

    def call(args: List[Any]) -> List[Any]:
        context.write_state(_generator.NAME, _generator.from_torch(device, kind))
        found = run(args)
        _generator.to_torch(device, context.state(_generator.NAME))
        return found

    return call


def _picker(positions: List[int], count: int) -> Callable[[List[Any]], Any]:
    if positions == list(range(count)):
        return lambda args: args
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    return (lambda args: (args[positions[0]],)) if positions else (lambda args: ())


def _symbols(values: List[Any]) -> Dict[Any, Tuple[int, ...]]:
    """Where the value of each symbol stands: the position of an integer, or that of a tensor and a dim."""
    found: Dict[Any, Tuple[int, ...]] = {}
    for position, value in enumerate(values):
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            found.setdefault(value.node.expr, (position,))
    for position, value in enumerate(values):
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                found.setdefault(size.node.expr, (position, dim))
    return found


def _free_strides(values: List[Any], positions: List[int], symbols: Dict[Any, Any]) -> List[Tuple[int, int]]:
    """Strides of inputs that do not follow from the sizes."""
    return [(position, dim) for position in positions for dim, step in enumerate(values[position].stride())
            if isinstance(step, torch.SymInt) and not step.node.expr.free_symbols <= symbols.keys()]


def _output(value: Any, returned: Dict[str, int], names: Dict[str, int]) -> _Output:
    if not isinstance(value, torch.fx.Node):
        return _Output(_VALUE, value=value)
    if value.name in returned:
        return _Output(_MADE, returned[value.name])
    return _Output(_GIVEN, names[value.name]) if value.op == "placeholder" else _Output(_VALUE, value=value.meta["val"])


def _is_known(value: Any, symbols: Dict[Any, Any]) -> bool:
    if isinstance(value, torch.SymInt):
        return value.node.expr.free_symbols <= symbols.keys()
    return not isinstance(value, (torch.SymFloat, torch.SymBool))


def _number(value: Any, sizes: Dict[Any, int]) -> Optional[int]:
    if not isinstance(value, torch.SymInt):
        return int(value)
    expression = value.node.expr
    if not expression.free_symbols <= sizes.keys():
        return None
    return int(expression.xreplace({symbol: sympy.Integer(n) for symbol, n in sizes.items()}))


def _numbers(values: Any, sizes: Dict[Any, int]) -> Optional[Tuple[int, ...]]:
    found = tuple(_number(value, sizes) for value in values)
    return None if None in found else found  # type: ignore[return-value]


def _describe(tensor: _capi.Tensor, dtype: Any, device: Any, shape: Tuple[int, ...],
              strides: Tuple[int, ...]) -> None:
    code = _arrays.code_of(dtype)
    if code[0] == 5:  # complex numbers are pairs
        code = (2, code[1] // 2)
        shape, strides = (*shape, 2), (*(2 * s for s in strides), 1)
    _arrays.describe_layout(tensor, shape, strides, code, _arrays.device_of(device))


def _nothing(*_: Any) -> None:
    return None


def _maker(value: Any) -> Callable[..., Any]:
    if value.device.type == "cpu":
        return _empty_cpu or (lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype))
    device = value.device
    return lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device=device)


def _expander(strides: Tuple[int, ...]) -> Callable[[Any, Any], Any]:
    """A compact result as one whose elements share memory where the graph's do."""

    def expand(result: Any, _: Any) -> Any:
        reach = 1 + sum(s * (n - 1) for s, n in zip(strides, result.shape))
        memory = result.new_empty(reach)
        one = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
        sizes = tuple(1 if s == 0 else n for s, n in zip(strides, result.shape))
        memory.as_strided(sizes, strides).copy_(result[one])
        return memory.as_strided(result.shape, strides)

    return expand
