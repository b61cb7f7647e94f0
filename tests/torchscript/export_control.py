"""Programs that write, keep states and branch on data, for export.py."""

from typing import List, Optional

import torch
from export_case import case, script
from torch import Tensor, nn

# ---- writes and states


class Writes(nn.Module):
    def forward(self, x: Tensor):
        y = torch.zeros(3, 4)
        y[1] = x[0]
        y[:, 1:3] += 2.0
        view = y.view(4, 3)
        view[0].fill_(7.0)
        t = x.t()
        t.mul_(2)
        c = x.transpose(0, 1).contiguous()
        c.add_(100)
        u = x.clone()
        u[u > 1] = 0.0
        return y, x + 0, c, u


@case
def writes():
    return script(Writes(), [(torch.randn(3, 4),)], "--shape", "x=3,4", updated=["x"])


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(3))
        self.register_buffer("last", torch.zeros(3))
        self.count = 0

    def forward(self, x: Tensor):
        self.sum += x
        previous = self.last
        self.last = x * 2
        self.count += 1
        return self.sum + 0, previous + self.count


@case
def states():
    return script(Stateful(), [(torch.randn(3),) for _ in range(3)], "--shape", "x=3")


class Lazy(nn.Module):
    """Its first run starts from nothing."""

    last: Optional[Tensor]

    def __init__(self):
        super().__init__()
        self.last = None
        self.context = torch.zeros(0)
        self.size = 0

    def forward(self, x: Tensor):
        if self.size != 0 and self.size != x.size(0):
            self.context = torch.zeros(0)
        if not len(self.context):
            self.context = torch.ones(2, 3)
        last = self.last
        if last is None:
            y = x * 10
        else:
            y = x + last
        self.context = self.context * 2
        self.last = x
        self.size = x.size(0)
        return y, self.context


@case
def first_run():
    return script(Lazy(), [(torch.randn(2, 3),) for _ in range(3)], "--shape", "x=2,3")


class Scratch(nn.Module):
    """An attribute that is set before it is read keeps nothing."""

    parts: List[Tensor]

    def __init__(self):
        super().__init__()
        self.parts = []

    def forward(self, x: Tensor):
        self.parts = [x]
        self.parts.append(x + 1)
        return torch.cat(self.parts)


@case
def scratch():
    return script(Scratch(), [(torch.randn(2, 3),) for _ in range(2)], "--shape", "x=n,3")


class Training(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor):
        return self.norm(x)


@case
def training():
    module = torch.jit.script(Training().train())
    return module, [(torch.randn(4, 3),) for _ in range(2)], ("--shape", "x=4,3"), {}


# ---- control flow that data decide


class Branches(nn.Module):
    def forward(self, x: Tensor):
        y = torch.zeros_like(x)
        n = 1
        scale = 0.5
        if bool(x.sum() > 0):
            y[0] = x[0] * 2
            n = 2
            scale = 2.0
            z = x + 1
        else:
            z = x - 1
        if x.size(0) > 3:
            z = z * 2
        return y, z * scale, n


@case
def branches():
    runs = [(torch.ones(2, 3),), (-torch.ones(2, 3),), (torch.ones(5, 3),)]
    return script(Branches(), runs, "--shape", "x=n,3")


class BranchWrites(nn.Module):
    """One side of a branch writes a tensor in place, the other binds its name anew."""

    def forward(self, x: Tensor):
        y = torch.zeros_like(x)
        row = y[0]
        if bool(x.sum() > 0):
            y = y + x
        elif bool(x.max() > -1):
            y.add_(5)
        else:
            y[0] = 1
        first = y * 1
        if bool(x.sum() > 0):
            first = first + x
        else:
            first.add_(2)
        z = torch.ones_like(x)
        part = z[0]
        if bool(x.sum() > 0):
            z.mul_(3)
            part = z[1]
        w = torch.ones_like(x)
        items = [w, x - 1]
        if bool(x.sum() > 0):
            items[0] = w + 4
        else:
            w.add_(1)
        return row, first, z, part, w, items


@case
def branch_writes():
    return script(BranchWrites(), [(torch.ones(2, 3),), (-torch.ones(2, 3) / 2,), (-torch.ones(2, 3) * 2,)], "--shape", "x=2,3")


class OneTensor(nn.Module):
    """Names that stand for one tensor on both sides of a branch still do so afterwards."""

    def forward(self, x: Tensor):
        y = x * 1
        z = x + 1
        if bool(x.sum() > 0):
            y = z
        else:
            y = x * 3
            z = y
        swapped = [x * 2, x * 4]
        if bool(x.sum() > 0):
            a, b = swapped[0], swapped[1]
        else:
            a, b = swapped[1], swapped[0]
        y.add_(1)
        a.mul_(-1)
        return y, z, a, b


@case
def one_tensor():
    return script(OneTensor(), [(torch.ones(2, 3),), (-torch.ones(2, 3),)], "--shape", "x=2,3")


class Kept(nn.Module):
    """Each side of a branch has a size of its own, that its data decide."""

    def forward(self, x: Tensor):
        found = x[torch.where(x > 0.2)[0]]
        if found.numel() > 10:
            kept = torch.where(found > 0.5)[0]
            kept = kept[torch.sort(found[kept])[1]]
        else:
            kept = torch.where(found <= 0.5)[0]
        kept = kept[:12]
        return found[kept], kept


def kept(n):
    return script(Kept(), [(torch.rand(27) * scale,) for scale in (1, 0.3, 0.1, 1)], "--shape", f"x={n}")


@case
def branch_sizes():
    return kept("n")


@case
def branch_sizes_bounded():
    return kept(27)


class Loops(nn.Module):
    def forward(self, x: Tensor):
        total = torch.zeros_like(x[0])
        rows = torch.zeros_like(x)
        count = 0
        for i in range(x.size(0)):
            total = total * 0.5 + x[i]
            rows[i] = total
            count += 2
        steps = 0
        while float(total.abs().max()) > 0.1:
            total = total / 2
            steps += 1
        return total, rows, count, steps


@case
def loops():
    return script(Loops(), [(torch.randn(4, 3),), (torch.randn(1, 3),)], "--shape", "x=n,3")


class LoopWrites(nn.Module):
    """A loop writes what it carries, and swaps names."""

    def forward(self, x: Tensor):
        y = torch.zeros_like(x)
        z = y
        rows: List[Tensor] = []
        h = x * 1
        total = torch.zeros_like(x[0])
        for i in range(x.size(0)):
            z = z + 1
            y.add_(x)
            h.mul_(0.5)
            h = h + y
            total += h[i]
            rows += [h[i] * 2]
        a, b = x * 1, x + 1
        k = 0
        while bool(a.sum() < 20.0) and k < 6:
            a, b = b, a
            b.add_(2.0)
            k += 1
        return y, z, h, total, torch.stack(rows), a, b


@case
def loop_writes():
    return script(LoopWrites(), [(torch.randn(3, 2),), (torch.randn(1, 2),)], "--shape", "x=n,2")


class Parts(nn.Module):
    """A number of parts is no list of sizes."""

    def forward(self, x: Tensor):
        some = torch.tensor_split(x, 3, 1), torch.hsplit(x, 2), torch.vsplit(x, 4), torch.tensor_split(x, [1, 4], 1)
        return some, torch.split(x, 4, 1), x.split(3, dim=0), torch.split(x, [1, 5], 1), x.sum(1), x.flip(0)


@case
def parts():
    return script(Parts(), [(torch.arange(24.0).view(4, 6),)], "--shape", "x=4,6")


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x: Tensor):
        h = torch.zeros(x.size(1), 4)
        outputs: List[Tensor] = []
        for i in range(x.size(0)):
            h = self.cell(x[i], h)
            outputs.append(h)
        return torch.stack(outputs), h


@case
def rows():
    return script(Rows(), [(torch.randn(5, 2, 3),), (torch.randn(1, 2, 3),)], "--shape", "x=time,2,3")


@case
def rows_unrolled():
    return script(Rows(), [(torch.randn(3, 2, 3),)], "--shape", "x=3,2,3")


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.tanh, self.relu = nn.LSTMCell(3, 4), nn.RNNCell(4, 4), nn.RNNCell(4, 2, nonlinearity="relu", bias=False)

    def forward(self, x: Tensor):
        h, c = self.lstm(x)
        h, c = self.lstm(x, (h, c))
        y = self.tanh(h, c)
        return self.relu(y), c, self.relu(y[0])


@case
def cells():
    return script(Cells(), [(torch.randn(2, 3),), (torch.randn(5, 3),)], "--shape", "x=n,3")


class Guards(nn.Module):
    def forward(self, x: Tensor):
        if x.size(0) % 2 != 0:
            raise RuntimeError(f"an even size is needed, not {x.size(0)}")
        return x.view(x.size(0) // 2, 2, -1).sum(1)


@case
def guards():
    return script(Guards(), [(torch.randn(4, 3),)], "--shape", "x=n,3")
