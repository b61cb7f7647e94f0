"""A loaded artifact: what it takes and gives, and calls in the calling convention of the module that it was made from."""

from __future__ import annotations

import ctypes as c
import json
import os
import re
import sys
import threading
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays, _capi, _generator
from ._callback import Operator
from ._context import Context
from ._convention import Convention
from ._errors import Error


class Value:
    """An input, an output, a state or a parameter."""

    def __init__(self, info: Any) -> None:
        self.name: str = info.name.decode()
        self.dtype_name: str = info.dtype_name.decode()
        self.rank: int = info.rank
        self.code: Tuple[int, int] = (info.dtype.code, info.dtype.bits)
        self.dtype: np.dtype = _arrays.numpy_dtype(*self.code)
        self.shape: Tuple[Union[int, str], ...] = _dims(info.shape.decode())
        order = info.memory_order
        # Of the dims, outermost first. None: row-major.
        self.memory_order: Optional[Tuple[int, ...]] = tuple(order[: info.rank]) if order else None

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype_name}[{', '.join(map(str, self.shape))}]"


def _dims(text: str) -> Tuple[Union[int, str], ...]:
    """"[batch, 2*min(a, b), 3]" -> ("batch", "2*min(a, b)", 3)."""
    parts: List[str] = []
    depth, start = 0, 0
    inside = text.strip()[1:-1]
    for at, char in enumerate(inside + ","):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(inside[start:at].strip())
            start = at + 1
    return tuple(int(part) if re.fullmatch(r"-?\d+", part) else part for part in parts if part)


class Function:
    """An entry point of a model: what it takes and gives."""

    def __init__(self, name: str, index: int, inputs: List[Value], outputs: List[Value], symbols: Dict[str, Tuple[int, int, int]],
                 steps: int) -> None:  # fmt: skip
        self.name, self.index, self.inputs, self.outputs = name, index, inputs, outputs
        self.symbols = symbols  # name: (minimum, maximum, multiple)
        self.steps = steps

    def by_name(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Inputs in order, or one dict by name."""
        if len(inputs) != 1 or not isinstance(inputs[0], dict):
            return inputs
        given = inputs[0]
        names = [value.name for value in self.inputs]
        for name in given:
            if name not in names:
                raise Error(f"the model has no input '{name}': it has {', '.join(names)}")
        missing = [name for name in names if name not in given]
        if missing:
            raise Error(f"the inputs {', '.join(missing)} are missing")
        return [given[name] for name in names]


class Model:
    """A compiled model, to be called like the module that it was made from. Threads may call it at the same time.

    `inputs`, `outputs` and `symbols` are those of the first function, which a call runs; contexts run the others.
    `context_sizes` are the symbols in the shapes of states: a context is created with them.
    A model that keeps state has one context, so its calls take turns. `with` gives memory and threads back at the end.
    """

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]"],
        *,
        threads: int = 0,
        device: Optional[str] = None,
        variant: Optional[str] = None,
        weights_dir: Optional[str] = None,
        copy_weights: bool = False,
        sizes: Optional[Mapping[str, int]] = None,
    ) -> None:
        self._handle = c.c_void_p()
        self.path = os.fspath(path)
        self._api = _capi.Api(self.path)
        self._threads = threads
        self._sizes = dict(sizes or {})
        kind, _, index = (device or "").partition(":")
        if kind not in ("", "cpu", "cuda"):
            raise Error(f"there is no device '{device}': cpu, cuda, cuda:1 ...")
        options = _capi.ModelOptions(
            variant=variant.encode() if variant else None,
            weights_dir=os.fsencode(weights_dir) if weights_dir else None,
            flags=_capi.MODEL_COPY_WEIGHTS if copy_weights else 0,
            device_type={"": 0, "cpu": _capi.CPU, "cuda": _capi.CUDA}[kind],
            device_id=int(index or 0),
        )
        message = c.create_string_buffer(512)
        status = self._api.model_open(options, self._handle, message, len(message))
        if status:
            raise Error(f"{self.path}: {message.value.decode()}", self._api.status_name(status).decode())
        info = _capi.ModelInfo()
        self._api.model_info(self._handle, info)
        self.name: str = info.name.decode()
        self.compiler: str = info.compiler.decode()
        self.variant: str = info.variant.decode()
        self.device: str = "cuda" if info.device.type == _capi.CUDA else "cpu"
        self._device_index: int = info.device.id
        self.functions: Dict[str, Function] = {}
        for index_ in range(info.function_count or 1):
            function = self._function(index_, info)
            self.functions[function.name] = function
        first = self.function()
        self.inputs, self.outputs, self.symbols = first.inputs, first.outputs, first.symbols
        self.states = self._values(self._api.model_state, info.state_count)
        self.context_sizes: Dict[str, Tuple[int, int, int]] = {}  # as symbols
        for at in range(info.context_size_count):
            size = _capi.SymbolInfo()
            self._api.model_context_size(self._handle, at, size)
            self.context_sizes[size.name.decode()] = (size.minimum, size.maximum, size.multiple)
        self.parameters = self._values(self._api.model_parameter, info.parameter_count) if info.parameter_count else []
        stored = self.metadata().get(Convention.KEY)
        names = [value.name for value in self.inputs], [value.name for value in self.outputs]
        self.convention = Convention.of_json(stored) if stored else Convention.of_names(*names)
        self.convention.find_updates(*names)
        self._flat = self.convention.flat or -1
        self._single = self.convention.single
        # Contexts of calls without state on a CPU, and by stream on a GPU. A call that fails drops its own.
        self._shared = self.device == "cpu" and not self.states and not self.parameters
        self._operators: Dict[str, Operator] = {}
        self._contexts: List[Context] = []
        self._by_stream: Dict[Optional[int], List[Context]] = {}
        self._own: Optional[Context] = None
        self._turn = threading.Lock()
        self._cleanup: Any = None

    # ---- calls

    def __call__(self, *args: Any, out: Optional[Sequence[Any]] = None, **kwargs: Any) -> Any:
        """Calls the model. Arguments and result have the structure of the module's. out: memory for the outputs, in the
        order of `outputs`."""
        values = args if not kwargs and len(args) == self._flat else self.convention.bind(args, kwargs)
        if self.convention.updates:
            self.convention.check_writable(values)
        if out is None and self._shared:
            try:
                context = self._contexts.pop()
            except IndexError:  # the first call, or other threads have them all
                context = self.context()
            results = context.call(values)
            self._contexts.append(context)
        else:
            results = self._run(values, out)
        return results[0] if self._single else self.convention.build(results, values)

    def _run(self, values: Sequence[Any], out: Optional[Sequence[Any]]) -> List[Any]:
        if self.states or self.parameters:
            with self._turn:
                return self._stateful().run_flat(values, out)
        stream = self._stream(values) if self.device == "cuda" else None
        free = self._contexts if self._shared else self._by_stream.setdefault(stream, [])
        try:
            context = free.pop()
        except IndexError:
            context = self.context(stream=stream)
        try:
            return context.run_flat(values, out)
        finally:
            free.append(context)

    def _stateful(self) -> Context:
        if self._own is None:
            self._own = self.context()
        return self._own

    def _stream(self, values: Sequence[Any]) -> Optional[int]:
        """PyTorch's current stream if all tensors are PyTorch's on the GPU: then the run is ordered by it."""
        torch = sys.modules.get("torch")
        if torch is None or not values or not all(isinstance(v, torch.Tensor) and v.is_cuda for v in values):
            return None
        return torch.cuda.current_stream(self._device_index).cuda_stream

    def context(
        self, threads: Optional[int] = None, stream: Optional[int] = None, sizes: Optional[Mapping[str, int]] = None
    ) -> Context:
        """A context of its own: memory, threads and states that calls of the model do not share. stream: of the GPU, by its
        address; calls then return before they have finished. sizes: of `context_sizes`, instead of those that load() was given."""
        if not self._handle:
            raise Error("the model is closed")
        return Context(self, self._threads if threads is None else threads, stream, {**self._sizes, **(sizes or {})})

    def operators(self) -> List[str]:
        """The operators that the application computes: set_callback() names their functions."""
        names: List[str] = []
        while self._api.has("model_callback") and (name := self._api.model_callback(self._handle, len(names))) is not None:
            names.append(name.decode())
        return names

    def set_callback(self, name: str, function: Operator) -> None:
        """Computes the operator `name` ("acme::Op") by a function of three arguments: its inputs, its outputs, which it writes
        (two lists of NumPy arrays with strides), and its attributes, a dict. For calls of the model and contexts made later."""
        if name not in self.operators():
            raise Error(f"the model has no operator '{name}' that the application computes: it has {', '.join(self.operators()) or 'none'}")
        self._operators[name] = function
        free = [*self._contexts, *(each for list_ in self._by_stream.values() for each in list_), *([self._own] if self._own else [])]
        for context in free:
            context.set_callback(name, function)

    # ---- state

    def state(self, name: str) -> np.ndarray:
        """A copy of a state, or of a weight that was compiled to be replaced."""
        with self._turn:
            return self._stateful().state(name)

    def write_state(self, name: str, value: Any) -> None:
        with self._turn:
            self._stateful().write_state(name, value)

    def reset_state(self, name: Optional[str] = None) -> None:
        """Sets one state, or all, to the initial value."""
        with self._turn:
            self._stateful().reset_state(name)

    def manual_seed(self, seed: int) -> None:
        """Of a model compiled with -O fallback_random: the numbers that follow are those after torch.manual_seed(seed)."""
        self.write_state(_generator.NAME, _generator.seeded(seed, self.state(_generator.NAME)))

    # ---- the artifact

    def manifest(self) -> Dict[str, Any]:
        data, size = c.c_void_p(), c.c_size_t()
        if self._api.model_manifest(self._handle, data, size):
            raise Error(f"'{self.path}' has no manifest", "STRIDEC_BAD_ARTIFACT")
        return json.loads(c.string_at(data, size.value).decode())

    def metadata(self) -> Dict[str, str]:
        """Text by key: what the model's file has, and what `compile --metadata` gave."""
        if not self._api.has("model_metadata"):
            return self.manifest().get("metadata", {})
        found, key, text = {}, c.c_char_p(), c.c_char_p()
        while not self._api.model_metadata(self._handle, len(found), c.byref(key), c.byref(text)):
            found[key.value.decode()] = text.value.decode()
        return found

    def close(self) -> None:
        """Gives memory and threads back. Later calls fail; contexts that were made by context() stay usable."""
        self._contexts.clear()
        self._by_stream.clear()
        self._own = None
        if self._handle:
            self._api.model_close(self._handle)
            self._handle = c.c_void_p()
        if self._cleanup is not None:
            self._cleanup()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and getattr(self, "_api", None) is not None:
            self._api.model_close(self._handle)
            self._handle = c.c_void_p()

    def __repr__(self) -> str:
        return f"<stridec.Model {self.name} ({self.variant}): {self.inputs} -> {self.outputs}>"

    def function(self, name: Optional[str] = None) -> Function:
        """The function of that name; None: the first."""
        if name is None:
            return next(iter(self.functions.values()))
        if name not in self.functions:
            raise Error(f"the model has no function '{name}': it has {', '.join(self.functions)}")
        return self.functions[name]

    def _function(self, index: int, model: Any) -> Function:
        """Of artifacts of earlier compilers, the model is the only function."""
        counts, name, which = model, self.name, ()
        api = [self._api.model_input, self._api.model_output, self._api.model_symbol]
        if self._api.has("model_function"):
            counts, which = _capi.FunctionInfo(), (index,)
            self._api.model_function(self._handle, index, counts)
            name = counts.name.decode()
            api = [self._api.model_function_input, self._api.model_function_output, self._api.model_function_symbol]
        symbols = {}
        for at in range(counts.symbol_count):
            symbol = _capi.SymbolInfo()
            api[2](self._handle, *which, at, symbol)
            symbols[symbol.name.decode()] = (symbol.minimum, symbol.maximum, symbol.multiple)
        inputs = self._values(api[0], counts.input_count, *which)
        outputs = self._values(api[1], counts.output_count, *which)
        return Function(name, index, inputs, outputs, symbols, counts.step_count)

    def _values(self, get: Any, count: int, *which: int) -> List[Value]:
        found = []
        for index in range(count):
            info = _capi.ValueInfo()
            get(self._handle, *which, index, info)
            found.append(Value(info))
        return found

    def _state(self, name: str) -> Value:
        for value in [*self.states, *self.parameters]:
            if value.name == name:
                return value
        names = ", ".join(value.name for value in [*self.states, *self.parameters])
        raise Error(f"the model has no state '{name}'" + (f": it has {names}" if names else ""))


def load(path: Union[str, "os.PathLike[str]"], **options: Any) -> Model:
    """Loads an artifact. Options are those of Model: threads, device ("cpu", "cuda:1"), variant, weights_dir,
    copy_weights (into huge pages of this process; decoders gain a few percent), and sizes: of states that the shapes of
    a run do not change, {"batch": 2, "max_len": 512}, where the model has such (Model.context_sizes)."""
    return Model(path, **options)
