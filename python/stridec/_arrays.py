"""Arrays and tensors of other libraries as memory for the C API: NumPy, PyTorch, and anything with __dlpack__."""

from __future__ import annotations

import ctypes as c
import sys
from typing import Any, Optional, Sequence, Tuple

import numpy as np

from . import _capi
from ._errors import Error

# DLPack's (code, bits) -> the name that NumPy, ml_dtypes and PyTorch have for the type.
NAMES = {
    (0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64",
    (1, 8): "uint8", (1, 16): "uint16", (1, 32): "uint32", (1, 64): "uint64",
    (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
    (4, 16): "bfloat16", (5, 64): "complex64", (5, 128): "complex128", (6, 8): "bool",
    (10, 8): "float8_e4m3fn", (11, 8): "float8_e4m3fnuz", (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz", (14, 8): "float8_e8m0fnu",
}  # fmt: skip
CODES = {name: code for code, name in NAMES.items()}


def numpy_dtype(code: int, bits: int) -> np.dtype:
    """NumPy's type: of ml_dtypes, if that is installed, for bfloat16 and 8-bit floats; unsigned integers otherwise."""
    name = NAMES.get((code, bits), "")
    if code in (0, 1, 2, 5, 6) and name:
        return np.dtype(name)
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        return np.dtype(f"uint{bits}")


def torch_dtype(code: int, bits: int) -> Any:
    name = NAMES.get((code, bits), "")
    found = getattr(sys.modules["torch"], name, None)
    if found is None:
        raise Error(f"this version of PyTorch has no type {name or (code, bits)}", "STRIDEC_WRONG_TYPE")
    return found


def code_of(dtype: Any) -> Tuple[int, int]:
    """The (code, bits) of a dtype of NumPy or PyTorch."""
    if isinstance(dtype, np.dtype):
        if not dtype.isnative:
            raise Error(f"an array of {dtype.str} is big-endian: convert it with "
                        f"array.astype(array.dtype.newbyteorder('='))", "STRIDEC_WRONG_TYPE")
        name = dtype.name
    else:
        name = str(dtype).rpartition(".")[2]  # "torch.float32"
    if name not in CODES:
        raise Error(f"an array of {name} is not supported", "STRIDEC_WRONG_TYPE")
    return CODES[name]


def is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


# ---- DLPack ----


class _Managed(c.Structure):
    """The beginning of DLManagedTensor."""

    _fields_ = [("tensor", _capi.Tensor)]


class _Versioned(c.Structure):
    """The beginning of DLManagedTensorVersioned."""

    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("manager", c.c_void_p), ("deleter", c.c_void_p),
                ("flags", c.c_uint64), ("tensor", _capi.Tensor)]


_READ_ONLY = 1
_pointer = c.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
_is_valid = c.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = c.c_int, [c.py_object, c.c_char_p]


class Foreign:
    """Memory that another library lends by DLPack. The capsule keeps its name, so its destructor gives the memory back."""

    def __init__(self, value: Any) -> None:
        kind, index = value.__dlpack_device__()
        self.device = (int(kind), int(index))
        if self.device[0] not in (_capi.CPU, _capi.CUDA):
            raise Error(f"a tensor of DLPack's device type {kind} is not supported", "STRIDEC_WRONG_TYPE")
        options = {"stream": 1} if self.device[0] == _capi.CUDA else {}  # the default stream, which contexts use
        try:
            self.capsule = value.__dlpack__(max_version=(1, 0), **options)
        except TypeError:  # a producer of before DLPack 1.0
            self.capsule = value.__dlpack__(**options)
        except (BufferError, RuntimeError, ValueError) as error:
            raise Error(f"a {type(value).__name__} does not export its memory: {error}", "STRIDEC_WRONG_TYPE") from None
        self.read_only = False
        if _is_valid(self.capsule, b"dltensor_versioned"):
            managed = _Versioned.from_address(_pointer(self.capsule, b"dltensor_versioned"))
            if managed.major != 1:
                raise Error(f"DLPack {managed.major}.{managed.minor} is not supported", "STRIDEC_WRONG_TYPE")
            self.read_only = bool(managed.flags & _READ_ONLY)
        else:
            managed = _Managed.from_address(_pointer(self.capsule, b"dltensor"))
        tensor = managed.tensor
        self.shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        self.code = (tensor.dtype.code, tensor.dtype.bits)
        if tensor.dtype.lanes != 1:
            raise Error("vector types are not supported", "STRIDEC_WRONG_TYPE")
        self.strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else compact(self.shape)
        self.data = (tensor.data or 0) + tensor.byte_offset

    @property
    def __array_interface__(self) -> dict:
        """For NumPy: the memory of the CPU."""
        size = self.code[1] // 8
        kind = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}.get(self.code[0], "u")
        return {"version": 3, "data": (self.data, self.read_only), "shape": self.shape, "typestr": f"<{kind}{size}",
                "strides": tuple(s * size for s in self.strides)}


def compact(shape: Tuple[int, ...], order: Optional[Sequence[int]] = None) -> Tuple[int, ...]:
    """The strides of a dense array with its dims in this order in memory, outermost first (None: row-major), in elements."""
    strides, step = [1] * len(shape), 1
    for dim in reversed(order if order is not None else range(len(shape))):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


# ---- Inputs ----


def normalized(value: Any, declared: np.dtype, name: str) -> Any:
    """An ndarray, a plain torch.Tensor or a Foreign on a GPU, over the memory of `value`, whatever that is. What has no
    type of its own (Python's numbers and lists) gets the declared one. Complex numbers become pairs."""
    try:
        if is_torch(value):
            return _normalized_torch(value)
        if isinstance(value, (bool, int, float, list, tuple)):
            return np.asarray(value).astype(declared, casting="same_kind")
        if not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "__dlpack__"):
            foreign = Foreign(value)
            if foreign.device[0] != _capi.CPU:
                return foreign
            array = np.asarray(foreign)
            wanted = numpy_dtype(*foreign.code)
            value = array.view(wanted) if wanted != array.dtype else array
        array = np.asarray(value)
        code_of(array.dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise Error(f"input '{name}': {error}", "STRIDEC_WRONG_TYPE") from None
    except Error as error:
        raise Error(f"input '{name}': {error}", error.code) from None
    if array.dtype.kind == "c":
        pairs = np.ascontiguousarray(array).reshape(array.shape)
        return pairs.view(pairs.real.dtype).reshape(array.shape + (2,)) if array.ndim else \
            np.stack([pairs.real, pairs.imag])
    if any(step % array.dtype.itemsize for step in array.strides):  # a field of a record
        array = np.ascontiguousarray(array).reshape(array.shape)
    return array


def _normalized_torch(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise TypeError(f"a tensor of layout {tensor.layout} is not supported")
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"a tensor on device '{tensor.device}' is not supported")
    with torch.no_grad():
        tensor = tensor.detach().resolve_conj().resolve_neg()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        if type(tensor) is not torch.Tensor:
            tensor = tensor.as_subclass(torch.Tensor)
    if tensor.numel() and not tensor.data_ptr():
        raise TypeError(f"a {type(tensor).__name__} without memory is not supported")
    return tensor


_byte_of, _address = c.c_char.from_buffer, c.addressof


def numpy_pointer(array: np.ndarray) -> int:
    try:
        return _address(_byte_of(array))  # a fifth of the time of what follows
    except (TypeError, ValueError, BufferError):  # strided, read-only, empty, or of a type without a buffer
        return array.__array_interface__["data"][0]


def pointer(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return numpy_pointer(value)
    return value.data if isinstance(value, Foreign) else value.data_ptr()


def layout(value: Any) -> Tuple[Tuple[int, ...], Tuple[int, ...], Tuple[int, int], Tuple[int, int]]:
    """Shape, strides in elements, (code, bits) and device of a normalized value."""
    if isinstance(value, np.ndarray):
        size = value.dtype.itemsize
        return value.shape, tuple(s // size for s in value.strides), code_of(value.dtype), (_capi.CPU, 0)
    if isinstance(value, Foreign):
        return value.shape, value.strides, value.code, value.device
    return tuple(value.shape), tuple(value.stride()), code_of(value.dtype), device_of(value)


def pointer_function(value: Any) -> Any:
    """The function that gives the data pointer of this value, and of others of its class."""
    if isinstance(value, np.ndarray):
        return numpy_pointer
    return pointer if isinstance(value, Foreign) else sys.modules["torch"].Tensor.data_ptr


def describe(tensor: _capi.Tensor, value: Any) -> None:
    """Fills `tensor` for a normalized value. The tensor keeps its shape and strides alive, not the value's memory."""
    describe_layout(tensor, *layout(value))
    tensor.data = pointer(value)


def describe_layout(tensor: _capi.Tensor, shape: Tuple[int, ...], strides: Optional[Tuple[int, ...]], code: Tuple[int, int],
                    device: Tuple[int, int]) -> None:  # fmt: skip
    """Fills all of `tensor` but its memory. strides: None is row-major."""
    dims = c.c_int64 * len(shape)
    tensor.device = _capi.Device(*device)
    tensor.ndim = len(shape)
    tensor.dtype = _capi.DType(code[0], code[1], 1)
    tensor.shape = dims(*shape)
    if strides is not None:
        tensor.strides = dims(*strides)


def device_of(value: Any) -> Tuple[int, int]:
    """The device of a tensor or a device of PyTorch's, as the C API counts."""
    device = getattr(value, "device", value)
    return (_capi.CUDA, device.index or 0) if device.type == "cuda" else (_capi.CPU, 0)


# ---- Outputs of the caller's ----


def check_outputs(outputs: list, inputs: list) -> list:
    """The outputs, normalized; refuses those that cannot be written to or overlap another tensor of the call."""
    found = []
    for index, value in enumerate(outputs):
        if value is None:
            found.append(None)
            continue
        what = f"out[{index}]"
        if is_torch(value):
            if value.is_complex() or value.is_conj() or value.is_neg():
                raise Error(f"{what} is a tensor of {value.dtype} that cannot be written to as memory", "STRIDEC_WRONG_TYPE")
            if value.requires_grad and value.is_leaf and sys.modules["torch"].is_grad_enabled():
                raise Error(f"{what} requires a gradient: give out.detach()", "STRIDEC_WRONG_TYPE")
        elif isinstance(value, np.ndarray):
            if not value.flags.writeable:
                raise Error(f"{what} is read-only", "STRIDEC_INVALID_ARGUMENT")
            if any(step % value.dtype.itemsize for step in value.strides):
                raise Error(f"{what} has strides that are not multiples of its elements", "STRIDEC_WRONG_TYPE")
        elif hasattr(value, "__dlpack__"):
            value = Foreign(value)
            if value.read_only:
                raise Error(f"{what} is read-only", "STRIDEC_INVALID_ARGUMENT")
        else:
            raise Error(f"{what} is a {type(value).__name__}, not an array", "STRIDEC_WRONG_TYPE")
        shape, strides, _, _ = layout(value)
        if overlaps(shape, strides):
            raise Error(f"{what} has elements that share memory", "STRIDEC_INVALID_ARGUMENT")
        found.append(value)
    spans = []
    for index, value in enumerate(found):
        span = _span(value) if value is not None else None
        if span:
            spans.append((span, f"out[{index}]"))
    read = [(span, f"input {index}") for index, value in enumerate(inputs) for span in [_span(value)] if span]
    for number, (span, what) in enumerate(spans):
        for other, who in spans[:number] + read:
            if span[0] == other[0] and span[1] < other[2] and other[1] < span[2]:
                raise Error(f"{what} shares memory with {who}", "STRIDEC_INVALID_ARGUMENT")
    return found


def _span(value: Any) -> Optional[Tuple[Any, int, int]]:
    """Device, first byte and end of what the elements of a tensor span; None if it has no elements."""
    shape, strides, code, device = layout(value)
    if 0 in shape:
        return None
    size = max(code[1] // 8, 1)
    start = pointer(value)
    low = sum(min(s * (n - 1), 0) for n, s in zip(shape, strides))
    high = sum(max(s * (n - 1), 0) for n, s in zip(shape, strides))
    return device, start + low * size, start + (high + 1) * size


def overlaps(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> bool:
    """Whether two elements may share memory: a dim's step is shorter than what the dims inside it span."""
    if 0 in shape:
        return False
    reach = 1
    for step, size in sorted((abs(s), n) for s, n in zip(strides, shape) if n > 1):
        if step < reach:
            return True
        reach = step * (size - 1) + reach
    return False
