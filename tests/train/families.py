"""Small models of ten families in PyTorch, for tests/train/models.py: each with what its inputs and its target are.

A row of FAMILIES makes a model. `inputs(generator)` draws one batch, `target(generator, output)` its target, `loss` is
PyTorch's and `train_text` the text of --train for it, where {y} is the output's name. No model has dropout.
"""

import torch
import torch.nn.functional as F
from torch import nn

WORDS = 61


def words(generator, *shape, below=WORDS):
    return torch.randint(0, below, shape, generator=generator)


def class_loss(y, t):
    return F.cross_entropy(y.flatten(0, -2), t.flatten())


class Classes:
    """Indices of classes along the output's last dim. `ignored`: the share of those that do not count."""

    train_text, ignored = "loss=cross_entropy,logits={y},labels=t", 0.0
    loss = staticmethod(class_loss)

    def target(self, generator, y):
        labels = torch.randint(0, y.shape[-1], y.shape[:-1], generator=generator)
        return torch.where(torch.rand(y.shape[:-1], generator=generator) < self.ignored, -100, labels)


class Bits:
    train_text = "loss=bce_with_logits,logits={y},target=t"
    loss = staticmethod(F.binary_cross_entropy_with_logits)

    def target(self, generator, y):
        return torch.randint(0, 2, y.shape, generator=generator).to(y.dtype)


class Attention(nn.Module):
    """Scaled dot products, with as many keys and values as `groups`."""

    def __init__(self, width, heads, groups=None, causal=False, bias=True):
        super().__init__()
        self.heads, self.groups, self.causal, self.size = heads, groups or heads, causal, width // heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key, self.value = (nn.Linear(width, self.groups * self.size, bias=bias) for _ in range(2))
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x, rotate=None, mask=None):
        b, s, _ = x.shape
        q = self.query(x).view(b, s, self.heads, self.size).transpose(1, 2)
        k, v = (m(x).view(b, s, self.groups, self.size).transpose(1, 2) for m in (self.key, self.value))
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, s, -1))


class Gpt(nn.Module, Classes):
    """GPT-2: positions are learned, norms come first, the head is the embedding."""

    ignored = 0.2

    def __init__(self, width=32, length=12, layers=2):
        super().__init__()
        self.length = length
        self.tokens, self.positions = nn.Embedding(WORDS, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"norm1": nn.LayerNorm(width), "attention": Attention(width, 4, causal=True), "norm2": nn.LayerNorm(width),
                           "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)}) for _ in range(layers))  # fmt: skip
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.08)

    def forward(self, x):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for b in self.blocks:
            h = h + b["attention"](b["norm1"](h))
            h = h + b["down"](F.gelu(b["up"](b["norm2"](h)), approximate="tanh"))
        return self.head(self.norm(h))

    def inputs(self, generator):
        return (words(generator, 4, self.length),)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5))


def rotary(size, length):
    angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, size, 2) / size))
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def rotate(x):
        first, second = x.chunk(2, -1)
        return x * cos.to(x.dtype) + torch.cat([-second, first], -1) * sin.to(x.dtype)

    return rotate


class Llama(nn.Module, Classes):
    """Rotary positions, two heads share keys and values, RMS norms, a gated MLP, a head of its own."""

    def __init__(self, width=32, length=10, layers=2):
        super().__init__()
        self.length, self.size = length, width // 4
        self.tokens, self.norm, self.head = nn.Embedding(WORDS, width), RmsNorm(width), nn.Linear(width, WORDS, bias=False)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"norm1": RmsNorm(width), "attention": Attention(width, 4, 2, causal=True, bias=False),
                           "norm2": RmsNorm(width), "gate": nn.Linear(width, 48, bias=False),
                           "up": nn.Linear(width, 48, bias=False), "down": nn.Linear(48, width, bias=False)})
            for _ in range(layers))  # fmt: skip

    def forward(self, x):
        h, rotate = self.tokens(x), rotary(self.size, self.length)
        for b in self.blocks:
            h = h + b["attention"](b["norm1"](h), rotate)
            n = b["norm2"](h)
            h = h + b["down"](F.silu(b["gate"](n)) * b["up"](n))
        return self.head(self.norm(h))

    def inputs(self, generator):
        return (words(generator, 4, self.length),)


class Bert(nn.Module, Classes):
    """Segments, a mask of the padding, norms come last, a pooled first token."""

    def __init__(self, width=32, length=9, layers=2):
        super().__init__()
        self.length = length
        self.tokens, self.segments, self.positions = nn.Embedding(WORDS, width, padding_idx=0), nn.Embedding(2, width), nn.Embedding(length, width)  # noqa: E501
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"attention": Attention(width, 4), "norm1": nn.LayerNorm(width, eps=1e-12),
                           "up": nn.Linear(width, 64), "down": nn.Linear(64, width),
                           "norm2": nn.LayerNorm(width, eps=1e-12)}) for _ in range(layers))  # fmt: skip
        self.pool, self.head = nn.Linear(width, width), nn.Linear(width, 5)

    def forward(self, x, segments):
        h = self.norm(self.tokens(x) + self.segments(segments) + self.positions.weight)
        mask = torch.where((x != 0)[:, None, None, :], 0.0, -1e4).to(h.dtype)
        for b in self.blocks:
            h = b["norm1"](h + b["attention"](h, mask=mask))
            h = b["norm2"](h + b["down"](F.gelu(b["up"](h))))
        return self.head(torch.tanh(self.pool(h[:, 0])))

    def inputs(self, generator):
        x = words(generator, 4, self.length)
        lengths = torch.randint(3, self.length + 1, (4, 1), generator=generator)
        return torch.where(torch.arange(self.length) < lengths, x, 0), words(generator, 4, self.length, below=2)


class Vit(nn.Module, Classes):
    """Patches by a convolution, a token for the class."""

    def __init__(self, width=32, layers=2):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, width) * 0.02), nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"norm1": nn.LayerNorm(width), "attention": Attention(width, 4), "norm2": nn.LayerNorm(width),
                           "up": nn.Linear(width, 64), "down": nn.Linear(64, width)}) for _ in range(layers))  # fmt: skip
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(h.shape[0], -1, -1), h], 1) + self.positions
        for b in self.blocks:
            h = h + b["attention"](b["norm1"](h))
            h = h + b["down"](F.gelu(b["up"](b["norm2"](h))))
        return self.head(self.norm(h)[:, 0])

    def inputs(self, generator):
        return (torch.randn(4, 3, 16, 16, generator=generator),)


def norm_conv(i, o, k, stride=1, groups=1):
    return nn.Sequential(nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o))


class Block(nn.Module):
    """The basic block of ResNet, or its bottleneck."""

    def __init__(self, i, o, stride, bottleneck):
        super().__init__()
        if bottleneck:
            self.way = nn.Sequential(norm_conv(i, o // 4, 1), nn.ReLU(), norm_conv(o // 4, o // 4, 3, stride), nn.ReLU(),
                                     norm_conv(o // 4, o, 1))  # fmt: skip
        else:
            self.way = nn.Sequential(norm_conv(i, o, 3, stride), nn.ReLU(), norm_conv(o, o, 3))
        self.short = norm_conv(i, o, 1, stride) if stride > 1 or i != o else nn.Identity()

    def forward(self, x):
        return F.relu(self.way(x) + self.short(x))


class Resnet(nn.Module, Classes):
    """Batch statistics, whose running means are states, and a pooled stem."""

    def __init__(self, bottleneck=False):
        super().__init__()
        self.stem = nn.Sequential(norm_conv(3, 8, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Block(8, 16, 1, bottleneck), Block(16, 16, 1, bottleneck), Block(16, 32, 2, bottleneck))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))

    def inputs(self, generator):
        return (torch.randn(8, 3, 21, 21, generator=generator),)


class Inverted(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.way = nn.Sequential(norm_conv(i, 3 * i, 1), nn.ReLU6(), norm_conv(3 * i, 3 * i, 3, stride, 3 * i), nn.Hardswish())
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3 * i, 4, 1), nn.ReLU(), nn.Conv2d(4, 3 * i, 1), nn.Hardsigmoid())  # noqa: E501
        self.out, self.short = norm_conv(3 * i, o, 1), i == o and stride == 1

    def forward(self, x):
        h = self.way(x)
        h = self.out(h * self.squeeze(h))
        return x + h if self.short else h


class Mobilenet(nn.Module, Classes):
    """Depthwise convolutions between narrow layers, and gates of channels."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(norm_conv(3, 8, 3, 2), nn.Hardswish(), Inverted(8, 8, 1), Inverted(8, 12, 2), Inverted(12, 12, 1),
                                    norm_conv(12, 32, 1), nn.Hardswish())  # fmt: skip
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))

    def inputs(self, generator):
        return (torch.randn(8, 3, 19, 19, generator=generator),)


def double(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1), nn.SiLU())


class Unet(nn.Module, Bits):
    """Pooling down, transposed convolutions and a resize up, shortcuts by concatenation."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = double(3, 8), double(8, 12), double(12, 16)
        self.up2, self.up1 = nn.ConvTranspose2d(16, 12, 2, stride=2), nn.Upsample(scale_factor=2, mode="bilinear")
        self.join2, self.join1, self.out = double(24, 12), double(20, 8), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        h = self.bottom(F.avg_pool2d(b, 2))
        h = self.join2(torch.cat([self.up2(h), b], 1))
        return self.out(self.join1(torch.cat([self.up1(h), a], 1)))

    def inputs(self, generator):
        return (torch.randn(2, 3, 16, 16, generator=generator),)


class Lstm(nn.Module, Classes):
    """Two layers in both directions over embedded words."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(WORDS, 16), nn.Linear(40, 7)
        self.lstm = nn.LSTM(16, 20, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        return self.head(self.lstm(self.tokens(x))[0])

    def inputs(self, generator):
        return (words(generator, 4, 9),)


class Moe(nn.Module, Classes):
    """Each word goes to two of four experts, whose weights are one tensor each."""

    def __init__(self, width=24, experts=4):
        super().__init__()
        self.tokens, self.router, self.head = nn.Embedding(WORDS, width), nn.Linear(width, experts), nn.Linear(width, WORDS)
        self.up, self.down = (nn.Parameter(torch.randn(experts, *s) * 0.2) for s in ((width, 40), (40, width)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        h = self.tokens(x)
        n = self.norm(h).flatten(0, 1)
        shares, chosen = torch.softmax(self.router(n), -1).topk(2, -1)
        shares = shares / shares.sum(-1, keepdim=True)
        gates = torch.zeros_like(self.router(n)).scatter(1, chosen, shares)
        each = torch.einsum("neh,ehw->new", F.relu(torch.einsum("nw,ewh->neh", n, self.up)), self.down)
        return self.head(h + (gates.unsqueeze(-1) * each).sum(1).view_as(h))

    def inputs(self, generator):
        return (words(generator, 4, 8),)


class Sums(nn.Embedding):
    """Of the rows: a bag that PyTorch's exporter to ONNX does not write as a loop over a sequence."""

    def forward(self, x):
        return super().forward(x).sum(1)


class Recommender(nn.Module, Bits):
    """Bags of categories, dense features, and products of all pairs of them."""

    def __init__(self, bags=True, width=8):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(n, width, mode=m) if bags else Sums(n, width)
                                  for n, m in ((40, "sum"), (30, "mean"), (50, "max")))  # fmt: skip
        self.dense = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + 6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, *bags):
        d = self.dense(dense)
        rows = torch.stack([d, *(b(x) for b, x in zip(self.bags, bags))], 1)
        pairs = torch.bmm(rows, rows.transpose(1, 2))
        i, j = torch.triu_indices(4, 4, 1)
        return self.top(torch.cat([d, pairs[:, i, j]], 1)).squeeze(-1)

    def inputs(self, generator):
        return (torch.randn(16, 6, generator=generator), *(words(generator, 16, 3, below=n) for n in (40, 30, 50)))


FAMILIES = {
    "gpt2": Gpt, "llama": Llama, "bert": Bert, "vit": Vit, "resnet": Resnet, "resnet-bottleneck": lambda: Resnet(True),
    "mobilenet": Mobilenet, "unet": Unet, "lstm": Lstm, "moe": Moe, "recommender": Recommender, "recommender-sums": lambda: Recommender(False),
}  # fmt: skip
