"""PyTorch's generators, and the state `generator` of artifacts that draw from one (-O fallback_random)."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

NAME = "generator"
SIZE = 628  # on CPUs: taken words, kind of the kept normal, its two words, the block of 624
CUDA_SIZE = 3  # on GPUs: the seed, the offset, how many threads the device holds at once
_PAIR, _VALUE = 1, 2  # kinds of a kept normal: two uniforms of 53 bits, the bits of the value
# at::CPUGeneratorImplState: seed, left, seeded, next, the block, the kept normal (x, value, rho, whether there is one).
_LAYOUT = struct.Struct("<QiiQ624Qdddi")


def draws(model: Any) -> bool:
    return any(state.name == NAME and tuple(state.shape) in ((SIZE,), (CUDA_SIZE,)) for state in model.states)


def seeded(seed: int, like: np.ndarray) -> np.ndarray:
    """The state of the kind of `like` after torch.manual_seed(seed)."""
    state, number = np.zeros(like.size, np.int64), np.uint64(seed % 2**64).astype(np.int64)
    state[: 3 if like.size == CUDA_SIZE else 2] = (number, 0, like[2]) if like.size == CUDA_SIZE else (-1, number)
    return state


def from_torch(device: int, like: np.ndarray) -> np.ndarray:
    """The state of PyTorch's default generator: of the GPU of this number, or of CPUs if `like` is of that kind."""
    import torch

    if like.size == CUDA_SIZE:
        seed, offset = struct.unpack("<Qq", torch.cuda.get_rng_state(device).numpy().tobytes())
        found = torch.cuda.get_device_properties(device)
        threads = found.multi_processor_count * (found.max_threads_per_multi_processor // 256 * 256)
        return np.array([np.uint64(seed).astype(np.int64), offset, threads], np.int64)
    _, left, _, taken, *rest = _LAYOUT.unpack_from(torch.get_rng_state().numpy())
    state = np.empty(SIZE, np.int64)
    state[0] = 624 if left == 1 else taken
    state[1:4] = (_VALUE, np.float64(rest[625]).view(np.int64), 0) if rest[627] else 0
    state[4:] = rest[:624]
    return state


def to_torch(device: int, state: np.ndarray) -> None:
    """Makes it the state of PyTorch's default generator."""
    import torch

    if state.size == CUDA_SIZE:
        raw = np.frombuffer(struct.pack("<Qq", int(state[0]) % 2**64, int(state[1])), np.uint8).copy()
        return torch.cuda.set_rng_state(torch.from_numpy(raw), device)
    raw = torch.get_rng_state().numpy().copy()
    seed, _, seeded_before, *_ = _LAYOUT.unpack_from(raw)
    taken, kind, first, second = (int(n) for n in state[:4])
    value = _kept(kind, first, second)
    _LAYOUT.pack_into(raw, 0, seed, 625 - taken, seeded_before, taken, *state[4:].tolist(), 0.0, value, 0.0, int(kind != 0))
    torch.set_rng_state(torch.from_numpy(raw))


def _kept(kind: int, first: int, second: int) -> float:
    """The second normal of a pair, as PyTorch computes it."""
    if kind == _VALUE:
        return float(np.int64(first).view(np.float64))
    if kind != _PAIR:
        return 0.0
    return math.sqrt(-2.0 * math.log1p(-second * 2.0**-53)) * math.sin(2.0 * math.pi * (first * 2.0**-53))
