"""Operators that the application computes (docs/operators.md), as functions of NumPy arrays."""

from __future__ import annotations

import ctypes as c
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from . import _arrays, _capi

# inputs, outputs to write, attributes by name
Operator = Callable[[List[np.ndarray], List[np.ndarray], Dict[str, float]], None]


def _view(tensor: Any, writes: bool) -> np.ndarray:
    dtype = _arrays.numpy_dtype(tensor.dtype.code, tensor.dtype.bits)
    shape = [tensor.shape[d] for d in range(tensor.ndim)]
    strides = [tensor.strides[d] * dtype.itemsize for d in range(tensor.ndim)]
    if 0 in shape or not tensor.data:
        return np.empty(shape, dtype)
    first = tensor.data + tensor.byte_offset
    low = sum(min((n - 1) * s, 0) for n, s in zip(shape, strides))
    high = sum(max((n - 1) * s, 0) for n, s in zip(shape, strides)) + dtype.itemsize
    memory = (c.c_char * (high - low)).from_address(first + low)
    array = np.ndarray(shape, dtype, memory, -low, strides)
    array.flags.writeable = writes
    return array


class Registered:
    """A function of Python as the runtime calls it. What it raises is kept for the error of the run."""

    def __init__(self, function: Operator) -> None:
        self.function = function
        self.raised: Optional[BaseException] = None
        self.callback = _capi.Callback(self._call)

    def _call(self, _: Any, call: Any) -> int:
        given = call.contents
        try:
            inputs = [_view(given.inputs[i], False) for i in range(given.input_count)]
            outputs = [_view(given.outputs[i], True) for i in range(given.output_count)]
            attributes = {}
            for i in range(given.attribute_count):
                each = given.attributes[i]
                attributes[each.name.decode()] = each.number if each.real else each.integer
            self.function(inputs, outputs, attributes)
        except BaseException as error:  # it may not pass through the runtime
            self.raised = error
            text = f"{type(error).__name__}: {error}".encode()[: given.message_bytes - 1]
            c.memmove(given.message, text + b"\0", len(text) + 1)
            return 1
        return 0
