"""A context: memory, threads and state of one artifact, and the fast path of a call.

What follows from the metadata of the inputs alone (the tensors of the call but for their data pointers, and the shapes of
the outputs) is kept as a plan. A later call with equal metadata writes pointers and runs.
"""

from __future__ import annotations

import ctypes as c
import sys
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import _arrays, _capi
from ._callback import Operator, Registered
from ._errors import Error

_MOST_PLANS = 256
_HOST = (_capi.CPU, 0)


class _Plan:
    __slots__ = ("key", "entry", "run", "given", "given_words", "made", "blank", "pointers", "makers", "torch", "orders")


def _words(tensors: Any) -> memoryview:
    """The tensors of a ctypes array as 64-bit words; those at 0, 6, 12 ... are the data pointers."""
    return memoryview(tensors).cast("B").cast("q")


class Context:
    """Memory, threads and state to run a model in. One thread at a time may use it.

    Inputs are given in the order of the function's inputs, outputs come in that of its outputs. Results are PyTorch tensors
    if an input is one, NumPy arrays otherwise, and belong to the caller.
    """

    def __init__(self, model: Any, threads: int = 0, stream: Optional[int] = None, sizes: Optional[Mapping[str, int]] = None) -> None:
        self.model = model
        self._api = model._api
        self._handle = c.c_void_p()
        flags = _capi.CONTEXT_ASYNC if stream is not None and model.device == "cuda" else 0
        given = [(name.encode(), int(value)) for name, value in (sizes or {}).items()]
        options = _capi.ContextOptions(threads=threads, stream=stream or None, flags=flags)
        if given:  # a runtime from before there were such sizes refuses them
            options.sizes, options.size_count = (_capi.Size * len(given))(*given), len(given)
        message = c.create_string_buffer(512)
        status = self._api.context_create(model._handle, options, self._handle, message, len(message))
        if status:
            raise Error(message.value.decode(), self._name(status))
        self._address = self._handle.value
        self._first = model.function()
        self._plans: Dict[tuple, _Plan] = {}
        self._plan: Optional[_Plan] = None
        self._lock = threading.Lock()
        self._operators: Dict[str, Registered] = {}
        for name, function in model._operators.items():
            self.set_callback(name, function)

    def set_callback(self, name: str, function: Optional[Operator]) -> None:
        """Computes the operator `name` ("acme::Op") of this context's runs by a function of its inputs and outputs, two lists of
        arrays, of which it writes the second, and of its attributes, a dict. None removes it."""
        made = Registered(function) if function else None
        self._check(self._api.context_set_callback(self._handle, name.encode(), made.callback if made else _capi.Callback(), None))
        self._operators.pop(name, None)
        if made:
            self._operators[name] = made

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and self._handle:
            self._api.context_destroy(self._handle)
            self._handle = c.c_void_p()

    @property
    def threads(self) -> int:
        return self._api.context_threads(self._handle)

    def run(self, *inputs: Any, out: Optional[Sequence[Any]] = None, function: Optional[str] = None) -> List[Any]:
        """Runs a function of the model, by default the first, on inputs in order or on one dict by name. out: arrays to
        write to, one for each output; None among them, or no out at all, makes new ones."""
        entry = self.model.function(function)
        return self.run_flat(entry.by_name(inputs), out, entry)

    def run_flat(self, inputs: Sequence[Any], out: Optional[Sequence[Any]] = None, entry: Any = None) -> List[Any]:
        if not self._lock.acquire(False):
            raise Error("another thread is using the context", "STRIDEC_BUSY")
        try:
            return self.call(inputs, entry) if out is None else self._run_into(inputs, out, entry or self._first)
        finally:
            self._lock.release()

    def call(self, inputs: Sequence[Any], entry: Any = None) -> List[Any]:
        """run_flat for a caller that has the context to itself."""
        entry = entry or self._first
        key = self._key(inputs, entry.index)
        plan = self._plan
        if plan is None or plan.key != key:
            inputs, plan = self._find_plan(inputs, key, entry)
        return plan.run(inputs)

    def cancel(self) -> None:
        """Ends the run that another thread has in progress, before its next step."""
        self._api.context_cancel(self._handle)

    # ---- plans

    def _key(self, inputs: Sequence[Any], function: int) -> Optional[tuple]:
        key: List[Any] = [function]
        for value in inputs:
            kind = type(value)
            if kind is np.ndarray:
                key.append((value.shape, value.strides, value.dtype))
            elif kind in (_plain or _find_plain()) and not value.is_neg():
                key.append((value.shape, value.stride(), value.dtype, value.get_device()))
            else:
                return None
        return tuple(key)

    def _find_plan(self, inputs: Sequence[Any], key: Optional[tuple], entry: Any) -> Tuple[Sequence[Any], _Plan]:
        plan = self._plans.get(key) if key is not None else None
        if plan is None:
            if len(inputs) != len(entry.inputs):
                raise Error(f"the model takes {len(entry.inputs)} inputs, but is given {len(inputs)}")
            like = next((v for v in inputs if _arrays.is_torch(v)), None)
            inputs = [_arrays.normalized(v, i.dtype, i.name) for v, i in zip(inputs, entry.inputs)]
            plan = self._make_plan(inputs, like, entry)
            if key is not None and key == self._key(inputs, entry.index):
                if len(self._plans) >= _MOST_PLANS:
                    self._plans.clear()
                self._plans[key] = plan
                plan.key = key
        if plan.key is not None:
            self._plan = plan
        return inputs, plan  # a plan without a key is for this call alone

    def _make_plan(self, inputs: Sequence[Any], like: Any, entry: Any) -> _Plan:
        plan = _Plan()
        plan.key, plan.torch, plan.entry = None, like is not None, entry
        plan.given = (_capi.Tensor * max(len(inputs), 1))()
        plan.made = (_capi.Tensor * max(len(entry.outputs), 1))()
        for tensor, value in zip(plan.given, inputs):
            _arrays.describe(tensor, value)
        plan.given_words = _words(plan.given)
        plan.pointers = [_arrays.pointer_function(value) for value in inputs]
        shapes = self._output_shapes(plan)
        on_gpu = self.model.device == "cuda"
        cuda = next((v for v in inputs if _arrays.is_torch(v) and v.is_cuda), None) if on_gpu else None
        plan.makers = []
        plan.orders = self.model.convention.orders if plan.torch and entry.index == 0 else {}
        for at, (tensor, value, shape) in enumerate(zip(plan.made, entry.outputs, shapes)):
            order = plan.orders.get(at, value.memory_order)
            plan.makers.append(_nothing if shape is None else _maker(value, shape, order, plan.torch, cuda))
            if shape is not None:
                strides = None if order is None else _arrays.compact(shape, order)
                _arrays.describe_layout(tensor, shape, strides, value.code, _HOST if cuda is None else _arrays.device_of(cuda))
        plan.blank = bytes(memoryview(plan.made).cast("B")) if None in shapes else None
        plan.run = self._runner(plan)
        return plan

    def _runner(self, plan: _Plan) -> Callable[[Sequence[Any]], List[Any]]:
        """The call: pointers, results, run."""
        given, made, words = plan.given_words, _words(plan.made), _capi.TENSOR_WORDS
        given_at, made_at, address, native = c.addressof(plan.given), c.addressof(plan.made), self._address, self._native(plan.entry)
        count, outputs = len(plan.entry.inputs), len(plan.entry.outputs)
        pointers, makers, blank = plan.pointers, plan.makers, plan.blank
        read = _data_ptr() if plan.torch else _arrays.numpy_pointer
        fail, collect, keep = self._fail, self._collect, plan

        def run(inputs: Sequence[Any]) -> List[Any]:
            at = 0
            for pointer, value in zip(pointers, inputs):
                given[at] = pointer(value)
                at += words
            results = []
            at = 0
            for make in makers:
                value = make()
                made[at] = read(value)
                results.append(value)
                at += words
            status = native(address, given_at, count, made_at, outputs)
            if status:
                fail(status)
            return results

        def run_unknown(inputs: Sequence[Any]) -> List[Any]:
            """Some outputs have shapes that the run decides: their memory is the context's, and is copied."""
            c.memmove(made_at, blank, len(blank))
            for at, (pointer, value) in enumerate(zip(pointers, inputs)):
                given[at * words] = pointer(value)
            results = [make() for make in makers]
            for at, value in enumerate(results):
                if value is not None:
                    made[at * words] = read(value)
            status = native(address, given_at, count, made_at, outputs)
            if status:
                fail(status)
            return collect(keep, results)

        return run if blank is None else run_unknown

    def _output_shapes(self, plan: _Plan) -> List[Optional[Tuple[int, ...]]]:
        """None for shapes that depend on what is in the inputs."""
        entry = plan.entry
        outputs = (_capi.Tensor * max(len(entry.outputs), 1))()
        dims = [(c.c_int64 * value.rank)(*[-1] * value.rank) for value in entry.outputs]
        for tensor, own in zip(outputs, dims):
            tensor.shape = own
        end = _capi.TENSOR_WORDS * len(entry.inputs)
        pointers = plan.given_words[: end : _capi.TENSOR_WORDS].tolist()
        for at in range(len(entry.inputs)):
            plan.given_words[at * _capi.TENSOR_WORDS] = 0
        self._check(self._named("output_shapes", entry)(
            self._handle, c.addressof(plan.given), len(entry.inputs), c.addressof(outputs), len(entry.outputs)))
        for at, pointer in enumerate(pointers):
            plan.given_words[at * _capi.TENSOR_WORDS] = pointer
        return [tuple(own) if all(size >= 0 for size in own) else None for own in dims]

    def _collect(self, plan: _Plan, results: List[Any]) -> List[Any]:
        return [_in_order(_copy(tensor, value, plan.torch), plan.orders.get(at)) if r is None else r
                for at, (r, tensor, value) in enumerate(zip(results, plan.made, plan.entry.outputs))]

    def prepare(self, *inputs: Any, out: Optional[Sequence[Any]] = None) -> Callable[[], List[Any]]:
        """A function that runs the model on these inputs, whose memory it reads anew each time. Its results are those of
        `out`, or made once; they are written anew, or are None where the run decides a shape: for loops that measure."""
        entry = self._first
        values = [_arrays.normalized(v, i.dtype, i.name) for v, i in zip(entry.by_name(inputs), entry.inputs)]
        plan = self._make_plan(values, next((v for v in values if _arrays.is_torch(v)), None), entry)
        given = self._given_outputs(out or [None] * len(entry.outputs), values, entry)
        results = [value if value is not None else make() for value, make in zip(given, plan.makers)]
        for tensor, value in zip(plan.made, results):
            if value is not None:
                _arrays.describe(tensor, value)
        made, blank = c.addressof(plan.made), bytes(memoryview(plan.made).cast("B"))
        given, native, address = c.addressof(plan.given), self._native(entry), self._address
        count, outputs = len(entry.inputs), len(entry.outputs)
        keep = values, plan, results

        def run() -> List[Any]:
            c.memmove(made, blank, len(blank))
            status = native(address, given, count, made, outputs)
            if status:
                self._fail(status)
            return keep[2]

        return run

    # ---- into memory of the caller's

    @staticmethod
    def _given_outputs(out: Sequence[Any], inputs: Sequence[Any], entry: Any) -> List[Any]:
        if len(out) != len(entry.outputs):
            raise Error(f"the model has {len(entry.outputs)} outputs, but out has {len(out)}")
        return _arrays.check_outputs(list(out), list(inputs))

    def _run_into(self, inputs: Sequence[Any], out: Sequence[Any], entry: Any) -> List[Any]:
        if len(inputs) != len(entry.inputs):
            raise Error(f"the model takes {len(entry.inputs)} inputs, but is given {len(inputs)}")
        like = next((v for v in inputs if _arrays.is_torch(v)), None)
        inputs = [_arrays.normalized(v, i.dtype, i.name) for v, i in zip(inputs, entry.inputs)]
        given = self._given_outputs(out, inputs, entry)
        plan = self._make_plan(inputs, like, entry)
        results = [value if value is not None else make() for value, make in zip(given, plan.makers)]
        for tensor, value in zip(plan.made, results):
            if value is not None:
                _arrays.describe(tensor, value)
        self._check(self._native(entry)(self._address, c.addressof(plan.given), len(inputs), c.addressof(plan.made), len(out)))
        found = []
        for tensor, value, asked, result in zip(plan.made, entry.outputs, out, results):
            if result is None:
                found.append(_copy(tensor, value, plan.torch))
                continue
            result = result if asked is None else asked
            actual = tuple(tensor.shape[i] for i in range(tensor.ndim))
            # An output may be smaller than the memory for it. What lends memory by DLPack alone has no slices.
            if hasattr(result, "shape") and tuple(result.shape) != actual:
                result = result[tuple(slice(size) for size in actual)]
            found.append(result)
        return found

    # ---- the rest of the C API

    def _named(self, call: str, entry: Any) -> Any:
        """context_run, context_warm_up or context_output_shapes of a function; of the first by the calls that every
        artifact has."""
        if entry.index == 0:
            return getattr(self._api, "context_" + call)
        name = "context_function_output_shapes" if call == "output_shapes" else f"context_{call}_function"
        native, index = getattr(self._api, name), entry.index
        return lambda handle, *arguments: native(handle, index, *arguments)

    def _native(self, entry: Any) -> Any:
        return self._named("run", entry)

    def warm_up(self, *inputs: Any, function: Optional[str] = None) -> None:
        """Makes the first run with inputs of these shapes as fast as later ones. Their contents do not matter."""
        entry = self.model.function(function)
        values = [_arrays.normalized(v, i.dtype, i.name) for v, i in zip(entry.by_name(inputs), entry.inputs)]
        plan = self._make_plan(values, None, entry)
        self._check(self._named("warm_up", entry)(self._handle, c.addressof(plan.given), len(values), None, 0))

    def state(self, name: str) -> np.ndarray:
        """A copy of a state, or of a parameter that may be replaced."""
        value = self.model._state(name)
        tensor = _capi.Tensor()
        result = np.empty(self._shape_of(value, tensor), value.dtype)
        _arrays.describe(tensor, result)
        self._check(self._api.context_read_state(self._handle, name.encode(), c.addressof(tensor)))
        return result

    def _shape_of(self, value: Any, view: Any) -> Tuple[int, ...]:
        """Of a state or a parameter, with the sizes of this context."""
        if all(isinstance(size, int) for size in value.shape):
            return value.shape
        self._check(self._api.context_state(self._handle, self.model.states.index(value), c.addressof(view)))
        return tuple(view.shape[: view.ndim])

    def write_state(self, name: str, value: Any) -> None:
        tensor, given = _capi.Tensor(), _arrays.normalized(value, self.model._state(name).dtype, name)
        _arrays.describe(tensor, given)
        self._check(self._api.context_write_state(self._handle, name.encode(), c.addressof(tensor)))

    def reset_state(self, name: Optional[str] = None) -> None:
        """Back to the initial value: one state, or all."""
        index = -1 if name is None else [value.name for value in self.model.states].index(self.model._state(name).name)
        self._check(self._api.context_reset_state(self._handle, index))

    def profile(self, enable: bool = True) -> None:
        """Starts to time every step, from zero, or stops."""
        self._check(self._api.context_profile(self._handle, int(enable)))

    def steps(self, function: Optional[str] = None) -> List[Tuple[str, int, float]]:
        """(name, calls, seconds) of every step of a function, by default the first, since profile()."""
        found = []
        entry = self.model.function(function)
        for index in range(entry.steps):
            step = _capi.StepProfile()
            if entry.index:
                self._check(self._api.context_function_step(self._handle, entry.index, index, step))
            else:
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
        error = Error(self._api.context_error(self._handle).decode() or self._name(status), self._name(status))
        for each in self._operators.values():
            if each.raised is not None:
                raised, each.raised = each.raised, None
                raise error from raised
        raise error


# ---- results


def _nothing() -> None:
    return None


_plain: tuple = ()  # PyTorch's own classes of tensors, once PyTorch is loaded


def _find_plain() -> tuple:
    global _plain
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "nn"):
        _plain = (torch.Tensor, torch.nn.Parameter)
    return _plain


def _data_ptr() -> Any:
    return sys.modules["torch"].Tensor.data_ptr


def _maker(value: Any, shape: Tuple[int, ...], order: Optional[Sequence[int]], torch_wanted: bool, cuda: Any) -> Any:
    """A function that makes the memory of one output, with its dims in this order (None: row-major)."""
    if not torch_wanted:
        dtype, empty = value.dtype, np.empty
        if order is None:
            return lambda: empty(shape, dtype)
        inside, back = tuple(shape[d] for d in order), np.argsort(order)
        return lambda: empty(inside, dtype).transpose(back)
    torch = sys.modules["torch"]
    strides, own = _arrays.compact(shape, order), _arrays.torch_dtype(*value.code)
    make = torch.empty_strided
    if cuda is None:
        return lambda: make(shape, strides, dtype=own)
    device = cuda.device
    return lambda: make(shape, strides, dtype=own, device=device)


def _in_order(result: Any, order: Optional[Sequence[int]]) -> Any:
    """A tensor of PyTorch with its dims in this order in memory; None: as it is."""
    if order is None:
        return result
    return result.new_empty_strided(result.shape, _arrays.compact(tuple(result.shape), order)).copy_(result)


def _copy(tensor: _capi.Tensor, value: Any, torch_wanted: bool) -> Any:
    """A copy of what a run left in the context's memory."""
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    size = int(np.prod(shape, dtype=np.int64)) * value.dtype.itemsize
    data = bytearray(size)
    if size:
        c.memmove((c.c_char * size).from_buffer(data), tensor.data + tensor.byte_offset, size)
    strides = _arrays.compact(shape, value.memory_order)
    if not torch_wanted:
        return np.ndarray(shape, value.dtype, data, strides=[step * value.dtype.itemsize for step in strides])
    torch = sys.modules["torch"]
    own = _arrays.torch_dtype(*value.code)
    return torch.frombuffer(data, dtype=own).as_strided(shape, strides) if size else torch.empty(shape, dtype=own)
