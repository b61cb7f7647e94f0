"""Writes tests/torchscript/programs with an installed PyTorch: export.py [name...]

One small module for each feature of the language, saved by torch.jit.save, and PyTorch's results for it (compare.py);
those for writes, states and branches on data are in export_control.py.
"""

import sys
from enum import Enum
from typing import Dict, List, NamedTuple, Optional, Tuple

import export_control  # noqa: F401: adds its cases
import torch
import torchvision
from export_case import CASES, PROGRAMS, case, script, trace, write
from torch import Tensor, nn

# ---- whole small networks


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.ReLU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.out = nn.Linear(8, 4)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, image):
        y = self.act(self.norm(self.conv(image)))
        y = y + self.act(self.norm(y.clone()))
        return self.out(torch.flatten(self.pool(y), 1))


@case
def traced():
    return trace(Block(), (torch.randn(1, 3, 8, 8),))


@case
def scripted():
    return script(Block(), [(torch.randn(2, 3, 8, 8),), (torch.randn(1, 3, 7, 9),)], "--shape", "image=batch,3,h,w")


@case
def frozen():
    module = torch.jit.freeze(torch.jit.script(Block().eval()))
    return module, [(torch.randn(2, 3, 8, 8),)], ("--shape", "image=2x3x8x8"), {}


class LeastSquares(nn.Module):
    """Solutions of all drivers, of systems with too many and too few equations; the rank of a third of the matrices is not full."""

    def forward(self, a, b):
        lstsq, wide = torch.linalg.lstsq, a.transpose(1, 2)
        deficient = torch.cat([a[..., :2], a[..., :1]], -1)
        z, w = torch.view_as_complex(torch.stack([a, a.flip(1)], -1)), torch.view_as_complex(torch.stack([b, b.flip(1)], -1))
        results = [lstsq(deficient, b, 1e-4), lstsq(a, b[..., 0]), lstsq(a[:1], b)]
        for driver in ("gels", "gelsy", "gelsd", "gelss"):
            results += [lstsq(a, b, driver=driver), lstsq(wide, b[:, :3], driver=driver), lstsq(z, w, driver=driver)]
        return [torch.view_as_real(t) if t.is_complex() else t for r in results for t in r]


@case
def least_squares():
    return trace(LeastSquares(), (torch.randn(3, 5, 3), torch.randn(3, 5, 2)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(10, 3)

    def forward(self, ids: Tensor, state: Optional[Tuple[Tensor, Tensor]] = None):
        y, state = self.lstm(self.embed(ids), state)
        return torch.log_softmax(self.out(y), -1), state


@case
def lstm():
    runs = [(torch.randint(20, (2, 7)),), (torch.randint(20, (1, 3)),)]
    return script(Tagger(), runs, "--shape", "ids=i64[batch,time]", names=["ids"])


@case
def lstm_with_state():
    runs = [(torch.randint(20, (2, 7)), (torch.randn(4, 2, 5), torch.randn(4, 2, 5)))]
    flags = ("--shape", "ids=i64[batch,time]", "--shape", "state.0=4,batch,5", "--shape", "state.1=4,batch,5")
    return script(Tagger(), runs, *flags)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layer.enable_nested_tensor = False

    def forward(self, x):
        return self.layer(x)


@case
def traced_transformer():
    torch.backends.mha.set_fastpath_enabled(False)
    return trace(Attention(), (torch.randn(2, 5, 8),))


# ---- Python's values


class Masked(nn.Module):
    """Masks of keys and of pairs; weights of each head, and none."""

    def __init__(self):
        super().__init__()
        self.keys = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.pairs = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True, activation="gelu")
        self.heads = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x, padding, causal):
        x = self.pairs(self.keys(x, src_key_padding_mask=padding), src_mask=causal)
        y, mean = self.heads(x, x, x, key_padding_mask=padding)
        z, each = self.heads(x, x, x, average_attn_weights=False)
        return x, y, mean, z, each, self.heads(x, x, x, need_weights=False)[0]


@case
@torch.no_grad()
def attention_operators():
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 5:] = True
    causal = torch.triu(torch.ones(7, 7, dtype=torch.bool), 1)
    return trace(Masked().eval(), (torch.randn(2, 7, 16), padding, causal))


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False))

    def forward(self, x: Tensor):
        return self.layers(x)


def quantized(**how):
    module = torch.ao.quantization.quantize_dynamic(Quantized().eval(), **how)
    runs = [(torch.randn(2, 5, 8),), (torch.rand(1, 3, 8) * 4,), (-torch.rand(2, 1, 8),), (torch.zeros(1, 2, 8),)]
    return script(module, runs, "--shape", "x=n,t,8")


@case
def quantized_linear():
    return quantized(qconfig_spec={nn.Linear})


@case
def quantized_channels():
    return quantized(qconfig_spec={nn.Linear: torch.ao.quantization.per_channel_dynamic_qconfig})


@case
def quantized_half():
    return quantized(qconfig_spec={nn.Linear}, dtype=torch.float16)


class Numbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 3
        self.eps = 0.5

    def forward(self, x: Tensor):
        n = x.size(0)
        a = self.factor // 2 + (-7) % 4 + (-7) // 2 + int(2**3)
        b = float(a) / 4 - self.eps
        c = max(a, 2) * min(3, 5) + abs(-2) + int(2.75) + int(round(2.5))
        ok = a > 2 and not b < 0 or n == 0
        return x * a + b, x[:, :2] * c, a, ok, torch.tensor([a, n, 3]), torch.tensor([[b, 1.0]])


@case
def numbers():
    return script(Numbers(), [(torch.randn(2, 3),), (torch.randn(4, 3),)], "--shape", "x=n,3")


class Containers(nn.Module):
    def forward(self, x: Tensor):
        items: List[Tensor] = []
        for i in range(4):
            items.append(x * i)
        items[1] = items[1] + 1
        items.reverse()
        last = items.pop()
        items.insert(0, last)
        table: Dict[str, Tensor] = {"a": x, "b": x + 1}
        table["c"] = table["a"] * table["b"]
        total = x
        for name, value in table.items():
            if name != "b":
                total = total + value
        numbers = [3, 1, 2]
        numbers.sort()
        numbers += [5]
        words = "a,b".split(",")
        if "c" in table and "z" not in table and words[1] == "b" and len(words) == 2:
            total = total + float(sum(numbers))
        return torch.cat(items[:3], 0), {"total": total, "last": items[-1]}, (numbers[0], [x])


@case
def containers():
    return script(Containers(), [(torch.randn(2, 3),)], "--shape", "x=2,3")


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class Kind(Enum):
    ADD = 1
    SUB = 2


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.kind = Kind.SUB

    def forward(self, pair: Pair) -> Pair:
        if self.kind == Kind.ADD:
            return Pair(pair.left + pair.right, pair.left)
        return Pair(pair.left - pair.right, pair.left)


@case
def named_tuples():
    return script(Named(), [(Pair(torch.randn(2), torch.randn(2)),)], "--shape", "pair.left=2", "--shape", "pair.right=2")


class Structures(nn.Module):
    def forward(self, images: List[Tensor], targets: Dict[str, Tensor], scale: float, times: int, flag: bool = True):
        out = targets["a"] * scale
        for image in images:
            out = out + image
        if flag:
            out = out + times
        return out, targets["b"] + times * 2


@case
def structures():
    images, targets = [torch.randn(3), torch.randn(3)], {"a": torch.randn(3), "b": torch.arange(4)}
    flags = ["images.0=3", "images.1=3", "targets.a=3", "targets.b=i64[4]"]
    return script(Structures(), [(images, targets, 0.5, 3)], *(f for s in flags for f in ("--shape", s)),
                  names=["images", "targets", "scale", "times"])


@torch.jit.script
class Accumulator:
    def __init__(self, start: Tensor):
        self.total = start
        self.count = 0

    def add(self, x: Tensor):
        self.total = self.total + x
        self.count += 1


class Objects(nn.Module):
    def forward(self, x: Tensor):
        acc = Accumulator(x)
        for i in range(3):
            acc.add(x * i)
        return acc.total, acc.count


@case
def objects():
    return script(Objects(), [(torch.randn(3),)], "--shape", "x=3")


class Optionals(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias: Optional[Tensor] = None
        self.names = ["p", "q"]

    def forward(self, x: Tensor, mask: Optional[Tensor] = None, mode: str = "mean"):
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
        if self.bias is not None:
            x = x + self.bias
        assert x.dim() == 2, f"expected two dims, got {x.dim()}"
        if mode == "mean":
            return x.mean(1)
        elif mode == "sum":
            return x.sum(1)
        else:
            raise ValueError("unknown mode " + mode)


@case
def optionals():
    return script(Optionals(), [(torch.randn(2, 3),)], "--shape", "x=n,3", names=["x"])


@case
def optional_given():
    return script(Optionals(), [(torch.randn(2, 3), torch.rand(2, 3) > 0.5)], "--shape", "x=n,3", "--shape",
                  "mask=bool[n,3]", names=["x", "mask"])


class Boxes(nn.Module):
    def forward(self, boxes: Tensor, scores: Tensor):
        kept = torchvision.ops.nms(boxes, scores, 0.5)
        rows, columns = torch.where(boxes > 2.0)
        return kept, boxes[kept], rows, columns


@case
def boxes():
    runs = []
    for n in (12, 3):
        corner = torch.rand(n, 2) * 3
        runs.append((torch.cat([corner, corner + torch.rand(n, 2) * 3], 1), torch.rand(n)))
    return script(Boxes(), runs, "--shape", "boxes=n,4", "--shape", "scores=n")


def main():
    PROGRAMS.mkdir(exist_ok=True)
    for make in CASES:
        if sys.argv[1:] and make.__name__ not in sys.argv[1:]:
            continue
        torch.manual_seed(7)
        module, runs, flags, more = make()
        write(PROGRAMS / f"{make.__name__}.pt", module, runs, flags, **more)
    print(f"{len(CASES)} programs")


main()
