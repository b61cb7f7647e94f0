"""The C API of stridec/runtime.h for ctypes. The structs and the order of the functions are those of the header."""

from __future__ import annotations

import ctypes as c
import os
import threading
from typing import Dict, Tuple

from ._errors import Error

API_VERSION = 1

CPU, CUDA = 1, 2
MODEL_SKIP_WEIGHTS_HASH, MODEL_COPY_WEIGHTS, MODEL_NO_RUN = 1, 2, 4
CONTEXT_NO_HUGE_PAGES, CONTEXT_ASYNC = 1, 2


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class DType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Tensor(c.Structure):
    """stridec_tensor, which is DLPack's DLTensor."""

    _fields_ = [
        ("data", c.c_void_p),
        ("device", Device),
        ("ndim", c.c_int32),
        ("dtype", DType),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


TENSOR_WORDS = c.sizeof(Tensor) // 8  # the data pointer is the first of them


class Sized(c.Structure):
    """A struct that begins with its own size."""

    def __init__(self, **fields):
        super().__init__(struct_size=c.sizeof(self), **fields)


class ModelOptions(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("variant", c.c_char_p),
        ("weights_dir", c.c_char_p),
        ("flags", c.c_uint32),
        ("device_type", c.c_int32),
        ("device_id", c.c_int32),
    ]


class Size(c.Structure):
    _fields_ = [("name", c.c_char_p), ("value", c.c_int64)]


class ContextOptions(Sized):
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
        ("stream", c.c_void_p),
        ("sizes", c.POINTER(Size)),
        ("size_count", c.c_size_t),
    ]


class ModelInfo(Sized):
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
        ("device", Device),
        ("parameter_count", c.c_int32),
        ("function_count", c.c_int32),
        ("context_size_count", c.c_int32),
    ]


class FunctionInfo(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("input_count", c.c_int32),
        ("output_count", c.c_int32),
        ("symbol_count", c.c_int32),
        ("step_count", c.c_int32),
    ]


class ValueInfo(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("dtype", DType),
        ("dtype_name", c.c_char_p),
        ("rank", c.c_int32),
        ("shape", c.c_char_p),
        ("dims", c.c_void_p),
        ("memory_order", c.POINTER(c.c_int32)),
    ]


class SymbolInfo(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("minimum", c.c_int64),
        ("maximum", c.c_int64),
        ("multiple", c.c_int64),
        ("from_data", c.c_int32),
        ("of_context", c.c_int32),
    ]


class StepProfile(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("calls", c.c_int64),
        ("nanoseconds", c.c_int64),
        ("minimum", c.c_int64),
    ]


class MemoryInfo(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("arena_bytes", c.c_uint64),
        ("scratch_bytes", c.c_uint64),
        ("staging_bytes", c.c_uint64),
        ("state_bytes", c.c_uint64),
        ("allocations", c.c_uint64),
    ]


class Attribute(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("real", c.c_int32),
        ("reserved", c.c_int32),
        ("integer", c.c_int64),
        ("number", c.c_double),
    ]


class Call(c.Structure):
    """stridec_call: an operator that the application computes."""

    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("inputs", c.POINTER(Tensor)),
        ("outputs", c.POINTER(Tensor)),
        ("attributes", c.POINTER(Attribute)),
        ("input_count", c.c_size_t),
        ("output_count", c.c_size_t),
        ("attribute_count", c.c_size_t),
        ("message", c.POINTER(c.c_char)),
        ("message_bytes", c.c_size_t),
    ]


Callback = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.POINTER(Call))

_P = c.c_void_p
_STATUS = c.c_int
_TENSORS = c.c_void_p  # an address: ctypes converts an integer faster than a pointer to a struct

_FUNCTIONS = [
    ("status_name", c.c_char_p, c.c_int32),
    ("model_open", _STATUS, c.POINTER(ModelOptions), c.POINTER(_P), c.c_char_p, c.c_size_t),
    ("model_close", None, _P),
    ("model_info", _STATUS, _P, c.POINTER(ModelInfo)),
    ("model_input", _STATUS, _P, c.c_int32, c.POINTER(ValueInfo)),
    ("model_output", _STATUS, _P, c.c_int32, c.POINTER(ValueInfo)),
    ("model_state", _STATUS, _P, c.c_int32, c.POINTER(ValueInfo)),
    ("model_symbol", _STATUS, _P, c.c_int32, c.POINTER(SymbolInfo)),
    ("model_manifest", _STATUS, _P, c.POINTER(_P), c.POINTER(c.c_size_t)),
    ("model_variant", c.c_char_p, _P, c.c_int32, c.POINTER(c.c_int32)),
    ("pool_create", _STATUS, _P, c.POINTER(_P), c.c_char_p, c.c_size_t),
    ("pool_destroy", None, _P),
    ("pool_threads", c.c_int32, _P),
    ("pool_parallel_for", None, _P, c.c_int32, _P, _P),
    ("context_create", _STATUS, _P, c.POINTER(ContextOptions), c.POINTER(_P), c.c_char_p, c.c_size_t),
    ("context_destroy", None, _P),
    ("context_error", c.c_char_p, _P),
    ("context_threads", c.c_int32, _P),
    ("context_output_shapes", _STATUS, _P, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
    ("context_reserve", _STATUS, _P, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
    ("context_run", _STATUS, _P, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
    ("context_state", _STATUS, _P, c.c_int32, _TENSORS),
    ("context_reset_state", _STATUS, _P, c.c_int32),
    ("context_profile", _STATUS, _P, c.c_int32),
    ("context_step", _STATUS, _P, c.c_int32, c.POINTER(StepProfile)),
    ("context_memory", _STATUS, _P, c.POINTER(MemoryInfo)),
    ("context_warm_up", _STATUS, _P, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
    ("model_parameter", _STATUS, _P, c.c_int32, c.POINTER(ValueInfo)),
    ("context_write_state", _STATUS, _P, c.c_char_p, _TENSORS),
    ("context_read_state", _STATUS, _P, c.c_char_p, _TENSORS),
    ("context_parameters", _STATUS, _P, c.POINTER(c.c_uint64), c.POINTER(_P), c.POINTER(c.c_uint64)),
    ("model_function", _STATUS, _P, c.c_int32, c.POINTER(FunctionInfo)),
    ("model_function_input", _STATUS, _P, c.c_int32, c.c_int32, c.POINTER(ValueInfo)),
    ("model_function_output", _STATUS, _P, c.c_int32, c.c_int32, c.POINTER(ValueInfo)),
    ("model_function_symbol", _STATUS, _P, c.c_int32, c.c_int32, c.POINTER(SymbolInfo)),
    ("context_function_output_shapes", _STATUS, _P, c.c_int32, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
    ("context_reserve_function", _STATUS, _P, c.c_int32, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
    ("context_warm_up_function", _STATUS, _P, c.c_int32, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
    ("context_run_function", _STATUS, _P, c.c_int32, _TENSORS, c.c_size_t, _TENSORS, c.c_size_t),
    ("context_function_step", _STATUS, _P, c.c_int32, c.c_int32, c.POINTER(StepProfile)),
    ("model_find_input", c.c_int32, _P, c.c_int32, c.c_char_p),
    ("model_find_output", c.c_int32, _P, c.c_int32, c.c_char_p),
    ("model_metadata", _STATUS, _P, c.c_int32, c.POINTER(c.c_char_p), c.POINTER(c.c_char_p)),
    ("context_cancel", None, _P),
    ("context_trace", _STATUS, _P, _P),
    ("model_callback", c.c_char_p, _P, c.c_int32),
    ("context_set_callback", _STATUS, _P, c.c_char_p, Callback, _P),
    ("model_context_size", _STATUS, _P, c.c_int32, c.POINTER(SymbolInfo)),
]


class _Table(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("version", c.c_uint32)] + [
        (name, c.CFUNCTYPE(result, *arguments)) for name, result, *arguments in _FUNCTIONS
    ]


_opened: Dict[Tuple[int, int], Tuple[str, int, int]] = {}  # what the process has loaded: its name, time and size, by inode
_opening = threading.Lock()


def _load(path: str) -> c.CDLL:
    """The library at the path as the file is now.

    The dynamic loader never gives a library back, and knows it by the text of its path: a file that replaced an earlier one there
    needs another text. A file that was written over in place is still the earlier one to it.
    """
    name = os.path.abspath(path)
    with _opening:
        status = os.stat(path)
        file, stamp = (status.st_dev, status.st_ino), (status.st_mtime_ns, status.st_size)
        if file in _opened and _opened[file][1:] != stamp:
            raise Error(f"'{path}' was written over in place after this process had loaded it: write a new file and rename it to that "
                        "path, as 'stridec compile' does, or load it in another process", "STRIDEC_BAD_ARTIFACT")
        if file in _opened:
            name = _opened[file][0]
        else:
            taken = {known for known, *_ in _opened.values()}
            while name in taken:
                name = os.path.join(os.path.dirname(name), ".", os.path.basename(name))
        library = c.CDLL(name)
        _opened[file] = (name, *stamp)
    return library


class Api:
    """The functions of one artifact as attributes. Artifacts of earlier compilers may lack the last ones."""

    def __init__(self, path: str) -> None:
        try:
            self.library = _load(path)
            get_api = self.library.stridec_get_api
        except OSError as error:
            raise Error(f"cannot load '{path}': {error}", "STRIDEC_BAD_ARTIFACT") from None
        except AttributeError:
            raise Error(f"'{path}' is a library, but not an artifact of stridec", "STRIDEC_BAD_ARTIFACT") from None
        get_api.restype = c.POINTER(_Table)
        table = get_api(c.c_uint32(API_VERSION))
        if not table:
            raise Error(f"'{path}' has no version {API_VERSION} of the C API", "STRIDEC_BAD_ARTIFACT")
        self._table = table.contents
        for field, kind in _Table._fields_[2:]:
            if getattr(_Table, field).offset + c.sizeof(kind) <= self._table.struct_size:
                setattr(self, field, getattr(self._table, field))

    def has(self, name: str) -> bool:
        return name in self.__dict__

    def __getattr__(self, name: str):
        if name not in [function[0] for function in _FUNCTIONS]:
            raise AttributeError(name)
        raise Error(f"the artifact was compiled before there was '{name}': compile it again", "STRIDEC_BAD_ARTIFACT")
