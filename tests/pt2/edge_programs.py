"""Small programs of numbers where functions have edges: zeros of both signs, infinities, NaN, the bounds of types, poles.

They are among PROGRAMS of feature_programs.py, in the same form.
"""

import torch
from feature_programs import D, program
from torch.nn import functional


@program
def infnan():

    class M(torch.nn.Module):
        def forward(self, x):
            return (
                x.masked_fill(x > 0, float("-inf")),
                torch.where(x > 0, x, float("inf")),
                x.clamp(min=-1e30),
                torch.full((2,), float("nan")),
                x.nan_to_num(nan=0.5),
                x + True,
                x * 3,
            )

    return (M(), (torch.randn(3, 4),), {}, None)


@program
def zeros_and_infinities():
    """Quotients show the signs of zeros."""

    class M(torch.nn.Module):
        def forward(self, x, y):
            f = torch.nn.functional
            return (1 / torch.sign(x), 1 / torch.sgn(x), f.gelu(x), f.gelu(x, approximate="tanh"), f.silu(x), f.mish(x),
                    torch.hypot(x, y), torch.hypot(y, x))  # fmt: skip

    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, inf, -inf, nan, 1.0, -2.0, 0.3, -0.3, inf, -inf, nan])
    return (M(), (x, x.flip(0)), {}, {"x": {0: D}, "y": {0: D}})


@program
def neighbours():

    class M(torch.nn.Module):
        def forward(self, x, y):
            types = ((torch.float32, torch.int32), (torch.float64, torch.int64), (torch.bfloat16, torch.int16))
            return tuple(torch.nextafter(x.to(t), y.to(t)).view(bits) for t, bits in types)

    inf = float("inf")
    x = torch.tensor([0.0, -0.0, inf, -inf, 3.4e38, 1.0, -2.0, 1e-40, -1e-45, 7.0, 0.0])
    y = torch.tensor([1.0, -1.0, 0.0, inf, inf, 2.0, -1.0, -inf, 0.0, 7.0, -0.0])
    return (M(), (x, y), {}, {"x": {0: D}, "y": {0: D}})


@program
def floor_division():
    """Near the bounds of every type."""

    class M(torch.nn.Module):
        def forward(self, *tensors):
            divided, mean = [], []
            for x in tensors:
                least = [7, 100] if x.dtype == torch.uint8 else [7, 100, -7, -100]
                divided += [x // n for n in least] + [torch.div(x, x.new_tensor([n]), rounding_mode="floor") for n in least]
                mean.append(torch.zeros_like(x).scatter_reduce(0, torch.zeros_like(x, dtype=torch.int64), x // 9, "mean"))
            return divided, mean

    def values(dtype):
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        return torch.tensor([low, low + 1, low + 6, low // 2, 0, 1, 6, 7, 99, 100, 101, high // 2, high - 1, high], dtype=dtype)

    inputs = tuple(values(t) for t in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64))
    return (M(), inputs, {}, {"tensors": tuple({0: D} for _ in inputs)})


@program
def special_edges():
    """Special functions near their poles, and near 0."""

    class M(torch.nn.Module):
        def forward(self, x, q, y):
            polygamma = [torch.polygamma(n, q) for n in (1, 2, 3)]
            return (torch.lgamma(x), torch.digamma(x), polygamma, torch.special.zeta(torch.full_like(q, 3), q),
                    torch.erfinv(y) * 1e25, torch.special.log_ndtr(y * 12) * 1e6)

    x = [-1e-5, -1e-10, -1e-15, -1e-17, -1e-20, -1e-30, -1e-38, -1e-45, -0.5, -1.0000001, -2.0000002, 1e-20, 1e-38, 0.3, 2.5]
    q = [-100.3, -33.25, -2.5, -0.75, -0.25, 0.25, 0.75, 3.5, 40.0]
    y = [-1 + 6e-8, -0.9, -1e-20, -1e-25, 0.0, 1e-25, 1e-17, 0.5, 0.9, 1 - 6e-8, 1.0, 1.5, float("nan")]
    inputs = torch.tensor(x), torch.tensor(q, dtype=torch.float64), torch.tensor(y)  # PyTorch's f32 polygamma is off by 3e-5
    return (M(), inputs, {}, {"x": {0: D}, "q": {0: D}, "y": {0: D}})


@program
def infinite_sizes():
    """The size of a pair with an infinite part is infinite, even beside NaN."""

    class M(torch.nn.Module):
        def forward(self, x, y):
            return torch.hypot(x, y), torch.hypot(x[:, None], y), torch.complex(x, y).abs()

    inf, nan = float("inf"), float("nan")
    x = torch.tensor([nan, inf, -inf, nan, nan, inf, 3e38, 1e-40, 0.0])
    return (M(), (x, torch.tensor([inf, nan, nan, -inf, 1.0, 2.0, 3e37, 1e-40, 0.0])), {}, {"x": {0: D}, "y": {0: D}})


@program
def grid_of_nan():
    """PyTorch takes NaN in a grid as -1 where it clips positions."""

    class M(torch.nn.Module):
        def forward(self, x, g):
            return [functional.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=align)
                    for mode in ("bilinear", "nearest", "bicubic") for padding in ("border", "reflection", "zeros")
                    for align in (True, False)]  # fmt: skip

    nan = float("nan")
    grid = torch.tensor([[[[nan, 0.3], [0.5, nan], [nan, nan], [0.2, -0.4]]]])
    return (M(), (torch.randn(1, 3, 4, 4), grid), {}, {"x": {2: D, 3: D}, "g": {2: D}})
