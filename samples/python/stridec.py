"""Compiled models from Python: the C API of stridec/runtime.h through ctypes, with NumPy arrays and no copies.

    model = stridec.Model("model.so")
    context = model.context(threads=2)
    context.warm_up(x)                    # optional: the first run becomes as fast as later ones
    y, = context.run(x)                   # arrays over the context's memory, valid until its next run
    context.run(x, out=[y])               # or into arrays of yours
    y, = context.run(x[:, ::-1].T)        # strides of every kind are fine
    y, = context.run(x, function="decode")  # another entry point, over the same weights and states

Any object with __array__ or __dlpack__ (PyTorch, JAX) will do as an input. A failure raises stridec.Error with the
model's own sentence. As a program, runs a model on .npy files or on zeros and prints what comes out:

    python stridec.py model.so [input=file.npy ...] [dim=value ...]
"""

import ctypes as c
import os
import sys

import numpy as np

API_VERSION = 1

# ---- stridec/runtime.h ----


class _Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class _DType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class _Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device", _Device),
        ("ndim", c.c_int32),
        ("dtype", _DType),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


class _Sized(c.Structure):
    """A struct that begins with its own size."""

    def __init__(self, **fields):
        super().__init__(struct_size=c.sizeof(self), **fields)


class _ModelOptions(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("variant", c.c_char_p),
        ("weights_dir", c.c_char_p),
        ("flags", c.c_uint32),
    ]


class _ContextOptions(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("threads", c.c_int32),
        ("spin_us", c.c_int32),
        ("parallel_for", c.c_void_p),
        ("parallel_user", c.c_void_p),
        ("allocate", c.c_void_p),
        ("release", c.c_void_p),
        ("memory_user", c.c_void_p),
        ("flags", c.c_uint32),
    ]


class _ModelInfo(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("compiler", c.c_char_p),
        ("variant", c.c_char_p),
        ("input_count", c.c_int32),
        ("output_count", c.c_int32),
        ("state_count", c.c_int32),
        ("symbol_count", c.c_int32),
        ("step_count", c.c_int32),
        ("weights_bytes", c.c_uint64),
        ("device", _Device),
        ("parameter_count", c.c_int32),
        ("function_count", c.c_int32),
    ]


class _FunctionInfo(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("input_count", c.c_int32),
        ("output_count", c.c_int32),
        ("symbol_count", c.c_int32),
        ("step_count", c.c_int32),
    ]


class _ValueInfo(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("dtype", _DType),
        ("dtype_name", c.c_char_p),
        ("rank", c.c_int32),
        ("shape", c.c_char_p),
    ]


class _SymbolInfo(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("minimum", c.c_int64),
        ("maximum", c.c_int64),
        ("multiple", c.c_int64),
        ("from_data", c.c_int32),
    ]


class _StepProfile(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("calls", c.c_int64),
        ("nanoseconds", c.c_int64),
        ("minimum", c.c_int64),
    ]


class _MemoryInfo(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("arena_bytes", c.c_uint64),
        ("scratch_bytes", c.c_uint64),
        ("staging_bytes", c.c_uint64),
        ("state_bytes", c.c_uint64),
        ("allocations", c.c_uint64),
    ]


_P = c.c_void_p
_STATUS = c.c_int
_TENSORS = c.POINTER(_Tensor)


class _Api(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("version", c.c_uint32)] + [
        (name, c.CFUNCTYPE(result, *arguments))
        for name, result, *arguments in [
            ("status_name", c.c_char_p, c.c_int32),
            ("model_open", _STATUS, c.POINTER(_ModelOptions), c.POINTER(_P), c.c_char_p, c.c_size_t),
            ("model_close", None, _P),
            ("model_info", _STATUS, _P, c.POINTER(_ModelInfo)),
            ("model_input", _STATUS, _P, c.c_int32, c.POINTER(_ValueInfo)),
            ("model_output", _STATUS, _P, c.c_int32, c.POINTER(_ValueInfo)),
            ("model_state", _STATUS, _P, c.c_int32, c.POINTER(_ValueInfo)),
            ("model_symbol", _STATUS, _P, c.c_int32, c.POINTER(_SymbolInfo)),
            ("model_manifest", _STATUS, _P, c.POINTER(_P), c.POINTER(c.c_size_t)),
            ("model_variant", c.c_char_p, _P, c.c_int32, c.POINTER(c.c_int32)),
            ("pool_create", _STATUS, _P, c.POINTER(_P), c.c_char_p, c.c_size_t),
            ("pool_destroy", None, _P),
            ("pool_threads", c.c_int32, _P),
            ("pool_parallel_for", None, _P, c.c_int32, _P, _P),
            ("context_create", _STATUS, _P, c.POINTER(_ContextOptions), c.POINTER(_P), c.c_char_p, c.c_size_t),
            ("context_destroy", None, _P),
            ("context_error", c.c_char_p, _P),
            ("context_threads", c.c_int32, _P),
            ("context_output_shapes", _STATUS, _P, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
            ("context_reserve", _STATUS, _P, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
            ("context_run", _STATUS, _P, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
            ("context_state", _STATUS, _P, c.c_int32, _TENSORS),
            ("context_reset_state", _STATUS, _P, c.c_int32),
            ("context_profile", _STATUS, _P, c.c_int32),
            ("context_step", _STATUS, _P, c.c_int32, c.POINTER(_StepProfile)),
            ("context_memory", _STATUS, _P, c.POINTER(_MemoryInfo)),
            ("context_warm_up", _STATUS, _P, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
            ("model_parameter", _STATUS, _P, c.c_int32, c.POINTER(_ValueInfo)),
            ("context_write_state", _STATUS, _P, c.c_char_p, _TENSORS),
            ("context_read_state", _STATUS, _P, c.c_char_p, _TENSORS),
            ("context_parameters", _STATUS, _P, c.POINTER(c.c_uint64), c.POINTER(c.c_void_p), c.POINTER(c.c_uint64)),
            ("model_function", _STATUS, _P, c.c_int32, c.POINTER(_FunctionInfo)),
            ("model_function_input", _STATUS, _P, c.c_int32, c.c_int32, c.POINTER(_ValueInfo)),
            ("model_function_output", _STATUS, _P, c.c_int32, c.c_int32, c.POINTER(_ValueInfo)),
            ("model_function_symbol", _STATUS, _P, c.c_int32, c.c_int32, c.POINTER(_SymbolInfo)),
            ("context_function_output_shapes", _STATUS, _P, c.c_int32, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
            ("context_reserve_function", _STATUS, _P, c.c_int32, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
            ("context_warm_up_function", _STATUS, _P, c.c_int32, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
            ("context_run_function", _STATUS, _P, c.c_int32, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
            ("context_function_step", _STATUS, _P, c.c_int32, c.c_int32, c.POINTER(_StepProfile)),
        ]
    ]


def _has(api, name):
    """Whether the table has the function; artifacts of earlier compilers end before some."""
    field = getattr(_Api, name)
    return api.struct_size >= field.offset + field.size


# ---- Arrays and tensors ----

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}


def _numpy_dtype(dtype):
    """NumPy's dtype for memory of this type: types that NumPy lacks (bfloat16, 8-bit floats) as unsigned integers."""
    return np.dtype(_KINDS.get(dtype.code, "u") + str(dtype.bits // 8))


def _tensor(array):
    """A tensor over the array's memory, which the caller keeps alive."""
    size = array.dtype.itemsize
    if array.dtype.kind not in _CODES or any(s % size for s in array.strides):
        raise Error(f"an array of {array.dtype} with strides {array.strides} has no tensor")
    dims = c.c_int64 * array.ndim
    return _Tensor(
        data=array.ctypes.data,
        device=_Device(1, 0),
        ndim=array.ndim,
        dtype=_DType(_CODES[array.dtype.kind], size * 8, 1),
        shape=dims(*array.shape),
        strides=dims(*(s // size for s in array.strides)),
    )


def _array(tensor, owner):
    """An array over a compact tensor's memory; owner lives as long as the array."""
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    dtype = _numpy_dtype(tensor.dtype)
    count = int(np.prod(shape, dtype=np.int64))
    memory = (c.c_char * max(count * dtype.itemsize, 1)).from_address(tensor.data + tensor.byte_offset)
    memory.owner = owner
    return np.frombuffer(memory, dtype=dtype, count=count).reshape(shape)


def _as_array(value):
    if isinstance(value, np.ndarray):
        return value
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)


# ---- What one works with ----


class Error(Exception):
    pass


class Value:
    def __init__(self, info):
        self.name = info.name.decode()
        self.dtype = _numpy_dtype(info.dtype)
        self.dtype_name = info.dtype_name.decode()
        self.shape = info.shape.decode()  # "[batch, 768]"

    def __repr__(self):
        return f"{self.name} {self.dtype_name} {self.shape}"


class Function:
    """An entry point of a model: what it takes and returns."""

    def __init__(self, name, index, inputs, outputs, symbols, steps):
        self.name, self.index, self.inputs, self.outputs = name, index, inputs, outputs
        self.symbols = symbols  # name: (minimum, maximum, multiple)
        self.steps = steps

    def arrange(self, inputs):
        """The inputs in order, of one dict by name."""
        if len(inputs) == 1 and isinstance(inputs[0], dict):
            return [inputs[0][value.name] for value in self.inputs]
        return inputs


class Model:
    """A compiled model; immutable, and may be shared between threads. `inputs`, `outputs`, `symbols` and `steps` are
    those of its first function."""

    def __init__(self, path, variant=None, weights_dir=None, copy_weights=False):
        """copy_weights: into huge pages of the process's own, which runs that read each weight once gain from."""
        library = c.CDLL(os.path.abspath(path))
        get_api = library.stridec_get_api
        get_api.restype = c.POINTER(_Api)
        table = get_api(c.c_uint32(API_VERSION))
        if not table:
            raise Error(f"{path} does not speak version {API_VERSION} of the API")
        self._library, self._api, self._handle = library, table.contents, _P()
        options = _ModelOptions(
            variant=variant and variant.encode(),
            weights_dir=weights_dir and os.fsencode(weights_dir),
            flags=2 if copy_weights else 0,
        )
        message = c.create_string_buffer(512)
        if self._api.model_open(options, self._handle, message, len(message)):
            raise Error(f"{path}: {message.value.decode()}")
        info = _ModelInfo()
        self._api.model_info(self._handle, info)
        self.name, self.variant = info.name.decode(), info.variant.decode()
        self.states = self._values(self._api.model_state, info.state_count)
        self.functions = {}  # by name
        if _has(self._api, "context_function_step"):
            for i in range(info.function_count):
                function = _FunctionInfo()
                self._api.model_function(self._handle, i, function)
                self._add(function.name.decode(), i, function)
        else:
            self._add(self.name, 0, info)
        first = next(iter(self.functions.values()))
        self.inputs, self.outputs, self.symbols, self.steps = first.inputs, first.outputs, first.symbols, first.steps

    def __del__(self):
        if getattr(self, "_handle", None):
            self._api.model_close(self._handle)

    def _add(self, name, index, counts):
        """A function; `counts` is the struct with the lengths of its lists."""
        several = _has(self._api, "context_function_step")
        which = (index,) if several else ()
        api = [getattr(self._api, ("model_function_" if several else "model_") + kind) for kind in ("input", "output", "symbol")]
        symbols = {}
        for i in range(counts.symbol_count):
            symbol = _SymbolInfo()
            api[2](self._handle, *which, i, symbol)
            symbols[symbol.name.decode()] = (symbol.minimum, symbol.maximum, symbol.multiple)
        inputs = self._values(api[0], counts.input_count, *which)
        outputs = self._values(api[1], counts.output_count, *which)
        self.functions[name] = Function(name, index, inputs, outputs, symbols, counts.step_count)

    def function(self, name=None):
        """The function of that name; None: the first."""
        if name is None:
            return next(iter(self.functions.values()))
        if name not in self.functions:
            raise Error(f"there is no function {name!r}; there are {', '.join(self.functions)}")
        return self.functions[name]

    def _values(self, get, count, *which):
        values = []
        for i in range(count):
            info = _ValueInfo()
            get(self._handle, *which, i, info)
            values.append(Value(info))
        return values

    def manifest(self):
        """The manifest's JSON text."""
        data, size = _P(), c.c_size_t()
        if self._api.model_manifest(self._handle, data, size):
            raise Error("the artifact carries no manifest")
        return c.string_at(data, size.value).decode()

    def context(self, threads=0):
        return Context(self, threads)


class Context:
    """Memory, threads and state to run a model in. One thread at a time uses it."""

    def __init__(self, model, threads=0):
        self.model, self._api, self._handle = model, model._api, _P()
        message = c.create_string_buffer(512)
        options = _ContextOptions(threads=threads)
        if self._api.context_create(model._handle, options, self._handle, message, len(message)):
            raise Error(message.value.decode())

    def __del__(self):
        if getattr(self, "_handle", None):
            self._api.context_destroy(self._handle)

    def _check(self, status):
        if status:
            raise Error(self._api.context_error(self._handle).decode() or self._api.status_name(status).decode())

    def _call(self, name, function, *arguments):
        """context_run or context_warm_up of a function; of the first by the calls that every artifact has."""
        if function.index == 0:
            return self._check(getattr(self._api, name)(self._handle, *arguments))
        return self._check(getattr(self._api, name + "_function")(self._handle, function.index, *arguments))

    def run(self, *inputs, out=None, function=None):
        """Inputs in order, or one dict by name. out: arrays to write to, one per output (None: the context's memory,
        valid until the next run of the function). function: the name of an entry point; None: the first."""
        entry = self.model.function(function)
        arrays = [_as_array(x) for x in entry.arrange(inputs)]
        given = (_Tensor * max(len(arrays), 1))(*map(_tensor, arrays))
        out = list(out) if out is not None else [None] * len(entry.outputs)
        made = (_Tensor * max(len(out), 1))(*(_Tensor() if a is None else _tensor(a) for a in out))
        self._call("context_run", entry, given, len(arrays), made, len(out))
        return [
            _array(t, self) if a is None else a[tuple(slice(t.shape[i]) for i in range(t.ndim))]
            for a, t in zip(out, made)
        ]

    def warm_up(self, *inputs, function=None):
        """Makes the first run with arrays of these shapes as fast as later ones; what they hold does not matter."""
        if not _has(self._api, "context_warm_up"):
            return  # compiled before there was such a function
        entry = self.model.function(function)
        arrays = [_as_array(x) for x in entry.arrange(inputs)]
        given = (_Tensor * max(len(arrays), 1))(*map(_tensor, arrays))
        made = (_Tensor * max(len(entry.outputs), 1))()
        self._call("context_warm_up", entry, given, len(arrays), made, len(entry.outputs))

    def prepare(self, *inputs, function=None):
        """A function that runs the model on these arrays, whose memory it reads anew each time; outputs stay in the
        context's memory. For loops in which ctypes' own work would count."""
        entry = self.model.function(function)
        arrays = [_as_array(x) for x in inputs]
        given = (_Tensor * max(len(arrays), 1))(*map(_tensor, arrays))
        blank = (_Tensor * max(len(entry.outputs), 1))()
        made = type(blank)()

        def run():
            c.memmove(made, blank, c.sizeof(made))
            self._call("context_run", entry, given, len(arrays), made, len(entry.outputs))

        run.arrays = arrays
        return run

    def state(self, name):
        """An array over a state's memory: read it to save, assign to it to restore."""
        index = [value.name for value in self.model.states].index(name)
        tensor = _Tensor()
        self._check(self._api.context_state(self._handle, index, tensor))
        return _array(tensor, self)

    def reset_state(self):
        self._check(self._api.context_reset_state(self._handle, -1))

    def profile(self, enable=True):
        self._check(self._api.context_profile(self._handle, int(enable)))

    def steps(self, function=None):
        """(name, calls, seconds) of every step of a function since profile()."""
        found, entry = [], self.model.function(function)
        for i in range(entry.steps):
            step = _StepProfile()
            if entry.index == 0:
                self._check(self._api.context_step(self._handle, i, step))
            else:
                self._check(self._api.context_function_step(self._handle, entry.index, i, step))
            found.append((step.name.decode(), step.calls, step.nanoseconds * 1e-9))
        return found

    def memory(self):
        """What the context holds now, as runtime.h's stridec_memory_info names it."""
        info = _MemoryInfo()
        self._check(self._api.context_memory(self._handle, info))
        return {name: getattr(info, name) for name, _ in _MemoryInfo._fields_[1:]}


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    model = Model(arguments[0])
    given = dict(argument.split("=", 1) for argument in arguments[1:])
    dims = {name: int(given.get(name, max(low, 1))) for name, (low, _, _) in model.symbols.items()}
    arrays = []
    for value in model.inputs:
        if value.name in given:
            arrays.append(np.load(given[value.name]))
            continue
        texts = [t.strip() for t in value.shape.strip("[]").split(",") if t.strip()]
        arrays.append(np.zeros([dims[t] if t in dims else int(t) for t in texts], value.dtype))
    print(f"{model.name} ({model.variant})")
    for value, array in zip(model.outputs, model.context().run(*arrays)):
        print(f"{value.name} {value.dtype_name} {list(array.shape)}\n{array}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Error, OSError) as error:
        sys.exit(f"{error}")
