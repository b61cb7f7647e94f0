"""A context: memory, threads and state of one artifact, and the fast path of a call.

What follows from the metadata of the inputs alone (the tensors of the call but for their data pointers, and the shapes of
the outputs) is kept as a plan. A later call with equal metadata writes pointers and runs.
"""

from __future__ import annotations

import ctypes as c
import sys
import threading
from array import array
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import _arrays, _capi
from ._errors import Error

_MOST_PLANS = 256


class _Plan:
    __slots__ = ("key", "given", "given_words", "given_end", "made", "made_words", "made_end", "blank", "pointers", "makers",
                 "keep", "given_at", "made_at", "like")  # fmt: skip


def _words(tensors: Any) -> memoryview:
    """The tensors of a ctypes array as 64-bit words; those at 0, 6, 12 ... are the data pointers."""
    return memoryview(tensors).cast("B").cast("q")


class Context:
    """Memory, threads and state to run a model in. One thread at a time may use it.

    Inputs are given in the order of `model.inputs`, outputs come in that of `model.outputs`. Results are PyTorch tensors
    if an input is one, NumPy arrays otherwise, and belong to the caller.
    """

    def __init__(self, model: Any, threads: int = 0, stream: Optional[int] = None) -> None:
        self.model = model
        self._api = model._api
        self._handle = c.c_void_p()
        flags = _capi.CONTEXT_ASYNC if stream is not None and model.device == "cuda" else 0
        options = _capi.ContextOptions(threads=threads, stream=stream or None, flags=flags)
        message = c.create_string_buffer(512)
        status = self._api.context_create(model._handle, options, self._handle, message, len(message))
        if status:
            raise Error(message.value.decode(), self._name(status))
        self._address = self._handle.value
        self._run = self._api.context_run
        self._inputs, self._outputs = len(model.inputs), len(model.outputs)
        self._plans: Dict[tuple, _Plan] = {}
        self._plan: Optional[_Plan] = None
        self._lock = threading.Lock()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and self._handle:
            self._api.context_destroy(self._handle)
            self._handle = c.c_void_p()

    @property
    def threads(self) -> int:
        return self._api.context_threads(self._handle)

    def run(self, *inputs: Any, out: Optional[Sequence[Any]] = None) -> List[Any]:
        """Runs the model on inputs in order, or on one dict by name. out: arrays to write to, one for each output; None
        among them, or no out at all, makes new ones."""
        return self.run_flat(self.model._by_name(inputs), out)

    def run_flat(self, inputs: Sequence[Any], out: Optional[Sequence[Any]] = None) -> List[Any]:
        if not self._lock.acquire(False):
            raise Error("another thread is using the context", "STRIDEC_BUSY")
        try:
            if out is not None:
                return self._run_into(inputs, out)
            key = self._key(inputs)
            plan = self._plan
            if key is None or plan is None or plan.key != key:
                inputs, plan = self._find_plan(inputs, key)
            if plan.given_end:
                plan.given_words[: plan.given_end : 6] = array("q", [p(v) for p, v in zip(plan.pointers, inputs)])
            results = [make() for make in plan.makers]
            self._fill_outputs(plan, results)
            status = self._run(self._address, plan.given_at, self._inputs, plan.made_at, self._outputs)
            if status:
                self._fail(status)
            return results if plan.blank is None else self._collect(plan, results)
        finally:
            self._lock.release()

    # ---- plans

    def _key(self, inputs: Sequence[Any]) -> Optional[tuple]:
        key: List[Any] = []
        for value in inputs:
            kind = type(value)
            if kind is np.ndarray:
                key.append((value.shape, value.strides, value.dtype))
            elif kind in _torch_types() and not value.is_neg():
                key.append((value.shape, value.stride(), value.dtype, value.get_device()))
            else:
                return None
        return tuple(key)

    def _find_plan(self, inputs: Sequence[Any], key: Optional[tuple]) -> Tuple[Sequence[Any], _Plan]:
        plan = self._plans.get(key) if key is not None else None
        if plan is None:
            if len(inputs) != self._inputs:
                raise Error(f"the model takes {self._inputs} inputs, but is given {len(inputs)}")
            like = next((v for v in inputs if _arrays.is_torch(v)), None)
            inputs = [_arrays.normalized(v, i.dtype, i.name) for v, i in zip(inputs, self.model.inputs)]
            plan = self._make_plan(inputs, like)
            if key is not None and key == self._key(inputs):
                if len(self._plans) >= _MOST_PLANS:
                    self._plans.clear()
                self._plans[key] = plan
                plan.key = key
        if plan.key is not None:
            self._plan = plan
        return inputs, plan

    def _make_plan(self, inputs: Sequence[Any], like: Any) -> _Plan:
        plan = _Plan()
        plan.key, plan.keep, plan.like = None, [], like is not None
        plan.given = (_capi.Tensor * max(len(inputs), 1))()
        plan.made = (_capi.Tensor * max(self._outputs, 1))()
        memory: List[Any] = []
        for tensor, value in zip(plan.given, inputs):
            _arrays.describe(tensor, value, memory)
        plan.keep += [item for item in memory if isinstance(item, c.Array)]  # the shapes, not the caller's arrays
        plan.given_words, plan.made_words = _words(plan.given), _words(plan.made)
        plan.given_end, plan.made_end = 6 * len(inputs), 6 * self._outputs
        plan.given_at, plan.made_at = c.addressof(plan.given), c.addressof(plan.made)
        plan.pointers = [_arrays.numpy_pointer if isinstance(v, np.ndarray) else _arrays.pointer if
                         isinstance(v, _arrays.Foreign) else _data_ptr() for v in inputs]
        shapes = self._output_shapes(plan, inputs)
        cuda = next((v for v in inputs if _arrays.is_torch(v) and v.is_cuda), None) if self.model.device == "cuda" else None
        plan.makers = []
        for tensor, value, shape in zip(plan.made, self.model.outputs, shapes):
            if shape is None:  # the run decides the shape: its memory is the context's, and is copied
                plan.makers.append(_nothing)
                continue
            plan.makers.append(_maker(value, shape, like is not None, cuda))
            _describe_output(tensor, value.code, shape, cuda, plan.keep)
        plan.blank = bytes(memoryview(plan.made).cast("B")) if None in shapes else None
        return plan

    def _output_shapes(self, plan: _Plan, inputs: Sequence[Any]) -> List[Optional[Tuple[int, ...]]]:
        """None for shapes that depend on what is in the inputs."""
        outputs = (_capi.Tensor * max(self._outputs, 1))()
        dims = [(c.c_int64 * value.rank)(*[-1] * value.rank) for value in self.model.outputs]
        for tensor, own in zip(outputs, dims):
            tensor.shape = own
        pointers = plan.given_words[: plan.given_end : 6].tolist()
        plan.given_words[: plan.given_end : 6] = array("q", [0] * self._inputs)
        status = self._api.context_output_shapes(
            self._handle, plan.given_at, self._inputs, c.addressof(outputs), self._outputs
        )
        plan.given_words[: plan.given_end : 6] = array("q", pointers)
        if status:
            self._fail(status)
        return [tuple(own) if all(size >= 0 for size in own) else None for own in dims]

    def _fill_outputs(self, plan: _Plan, results: List[Any]) -> None:
        if plan.blank is not None:
            c.memmove(plan.made_at, plan.blank, len(plan.blank))
        read = _data_ptr() if plan.like else _arrays.numpy_pointer
        if plan.made_end:
            plan.made_words[: plan.made_end : 6] = array("q", [0 if r is None else read(r) for r in results])

    def _collect(self, plan: _Plan, results: List[Any]) -> List[Any]:
        return [_copy(tensor, value, plan.like) if r is None else r
                for r, tensor, value in zip(results, plan.made, self.model.outputs)]

    # ---- into memory of the caller's

    def _run_into(self, inputs: Sequence[Any], out: Sequence[Any]) -> List[Any]:
        if len(inputs) != self._inputs:
            raise Error(f"the model takes {self._inputs} inputs, but is given {len(inputs)}")
        if len(out) != self._outputs:
            raise Error(f"the model has {self._outputs} outputs, but out has {len(out)}")
        like = next((v for v in inputs if _arrays.is_torch(v)), None)
        inputs = [_arrays.normalized(v, i.dtype, i.name) for v, i in zip(inputs, self.model.inputs)]
        given = _arrays.check_outputs(list(out), list(inputs))
        plan = self._make_plan(inputs, like)
        results = [value if value is not None else make() for value, make in zip(given, plan.makers)]
        keep: List[Any] = []
        for tensor, value in zip(plan.made, results):
            if value is not None:
                _arrays.describe(tensor, value, keep)
        status = self._run(self._address, plan.given_at, self._inputs, plan.made_at, self._outputs)
        if status:
            self._fail(status)
        found = []
        for tensor, value, asked, result in zip(plan.made, self.model.outputs, out, results):
            if result is None:
                found.append(_copy(tensor, value, plan.like))
                continue
            result = result if asked is None else asked
            actual = tuple(tensor.shape[i] for i in range(tensor.ndim))
            if tuple(result.shape) != actual:  # an output that may be smaller than the memory for it
                result = result[tuple(slice(size) for size in actual)]
            found.append(result)
        return found

    # ---- the rest of the C API

    def warm_up(self, *inputs: Any) -> None:
        """Makes the first run with inputs of these shapes as fast as later ones. Their contents do not matter."""
        values = [_arrays.normalized(v, i.dtype, i.name) for v, i in zip(self.model._by_name(inputs), self.model.inputs)]
        plan = self._make_plan(values, None)
        self._check(self._api.context_warm_up(self._handle, plan.given_at, len(values), None, 0))

    def state(self, name: str) -> np.ndarray:
        """A copy of a state, or of a parameter that may be replaced."""
        value = self.model._state(name)
        result = np.empty(value.static_shape(), value.dtype)
        tensor, keep = _capi.Tensor(), []  # type: ignore[var-annotated]
        _arrays.describe(tensor, result, keep)
        self._check(self._api.context_read_state(self._handle, name.encode(), c.addressof(tensor)))
        return result

    def write_state(self, name: str, value: Any) -> None:
        tensor, keep = _capi.Tensor(), []  # type: ignore[var-annotated]
        _arrays.describe(tensor, _arrays.normalized(value, self.model._state(name).dtype, name), keep)
        self._check(self._api.context_write_state(self._handle, name.encode(), c.addressof(tensor)))

    def reset_state(self, name: Optional[str] = None) -> None:
        """Back to the initial value: one state, or all."""
        index = -1 if name is None else [value.name for value in self.model.states].index(self.model._state(name).name)
        self._check(self._api.context_reset_state(self._handle, index))

    def profile(self, enable: bool = True) -> None:
        """Starts to time every step, from zero, or stops."""
        self._check(self._api.context_profile(self._handle, int(enable)))

    def steps(self) -> List[Tuple[str, int, float]]:
        """(name, calls, seconds) of every step since profile()."""
        found = []
        for index in range(self.model._steps):
            step = _capi.StepProfile()
            self._check(self._api.context_step(self._handle, index, step))
            found.append((step.name.decode(), step.calls, step.nanoseconds * 1e-9))
        return found

    def memory(self) -> Dict[str, int]:
        """What the context holds, in bytes, and the number of its allocations so far."""
        info = _capi.MemoryInfo()
        self._check(self._api.context_memory(self._handle, info))
        return {name: getattr(info, name) for name, _ in _capi.MemoryInfo._fields_[1:]}

    def _name(self, status: int) -> str:
        return self._api.status_name(status).decode()

    def _check(self, status: int) -> None:
        if status:
            self._fail(status)

    def _fail(self, status: int) -> None:
        raise Error(self._api.context_error(self._handle).decode() or self._name(status), self._name(status))


# ---- results


def _nothing() -> None:
    return None


def _torch_types() -> tuple:
    torch = sys.modules.get("torch")
    return (torch.Tensor, torch.nn.Parameter) if torch is not None and hasattr(torch, "nn") else ()


def _data_ptr() -> Any:
    return sys.modules["torch"].Tensor.data_ptr


def _maker(value: Any, shape: Tuple[int, ...], torch_wanted: bool, cuda: Any) -> Any:
    """A function that makes the memory of one output."""
    if not torch_wanted:
        dtype, empty = value.dtype, np.empty
        return lambda: empty(shape, dtype)
    torch = sys.modules["torch"]
    strides, own = _arrays.compact(shape), _arrays.torch_dtype(*value.code)
    make = torch.empty_strided
    if cuda is None:
        return lambda: make(shape, strides, dtype=own)
    device = cuda.device
    return lambda: make(shape, strides, dtype=own, device=device)


def _describe_output(tensor: _capi.Tensor, code: Tuple[int, int], shape: Tuple[int, ...], cuda: Any, keep: list) -> None:
    dims = (c.c_int64 * len(shape))(*shape)
    keep.append(dims)
    tensor.device = _capi.Device(_capi.CUDA, cuda.device.index) if cuda is not None else _capi.Device(_capi.CPU, 0)
    tensor.ndim = len(shape)
    tensor.dtype = _capi.DType(code[0], code[1], 1)
    tensor.shape = dims


def _copy(tensor: _capi.Tensor, value: Any, torch_wanted: bool) -> Any:
    """A copy of what a run left in the context's memory."""
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    size = int(np.prod(shape, dtype=np.int64)) * value.dtype.itemsize
    data = bytearray(size)
    if size:
        c.memmove((c.c_char * size).from_buffer(data), tensor.data + tensor.byte_offset, size)
    if not torch_wanted:
        return np.frombuffer(data, value.dtype).reshape(shape)
    torch = sys.modules["torch"]
    own = _arrays.torch_dtype(*value.code)
    return torch.frombuffer(data, dtype=own).reshape(shape) if size else torch.empty(shape, dtype=own)
