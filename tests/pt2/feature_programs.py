"""Small programs, each for a feature of torch.export: PROGRAMS by name.

A maker returns (module, positional arguments, keyword arguments, dynamic_shapes).
"""

import collections

import torch
from torch.export import Dim
from torch.nn import functional

D = Dim.DYNAMIC
PROGRAMS = {}


def program(make):
    PROGRAMS[make.__name__] = make
    return make


@program
def cond():

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 4)
            self.b = torch.nn.Linear(4, 4)

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: self.a(x).relu(), lambda x: self.b(x) - 1, (x,))

    return (M(), (torch.randn(3, 4),), {}, {"x": {0: D}})


@program
def cond_shape():

    class M(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.shape[0] > 4, lambda x: x.sin(), lambda x: x.cos(), (x,))

    return (M(), (torch.randn(3, 4),), {}, {"x": {0: D}})


@program
def while_loop():
    from torch._higher_order_ops.while_loop import while_loop as wl

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 4)

        def forward(self, i, x):
            return wl(lambda i, x: i < 5, lambda i, x: (i + 1, self.a(x).tanh()), (i, x))

    return (M(), (torch.tensor(0), torch.randn(3, 4)), {}, {"i": None, "x": {0: D}})


@program
def scan():
    from torch._higher_order_ops.scan import scan as sc

    class M(torch.nn.Module):
        def forward(self, init, xs):
            def comb(c, x):
                n = c * 0.5 + x
                return (n, n.sin())

            return sc(comb, init, xs, dim=0)

    return (M(), (torch.randn(4), torch.randn(6, 4)), {}, {"init": None, "xs": {0: D}})


@program
def assoc_scan():
    from torch._higher_order_ops.associative_scan import associative_scan

    class M(torch.nn.Module):
        def forward(self, xs):
            return associative_scan(lambda a, b: a * b + b, xs, 0, combine_mode="generic")

    return (M(), (torch.randn(6, 4),), {}, None)


@program
def hop_map():
    from torch._higher_order_ops.map import map as m_

    class M(torch.nn.Module):
        def forward(self, xs, y):
            return m_(lambda x, y: (x + y).relu(), xs, y)

    return (M(), (torch.randn(6, 4), torch.randn(4)), {}, {"xs": {0: D}, "y": None})


class BatchNorm(torch.nn.Module):
    """Results are also the running statistics, which the call moves."""

    def __init__(self, dropout):
        super().__init__()
        self.conv, self.norm, self.dropout = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout(dropout)

    def forward(self, x):
        y = self.dropout(self.norm(self.conv(x)).relu())
        return y, self.norm.running_mean, self.norm.running_var, self.norm.num_batches_tracked


@program
def bn_train():
    return BatchNorm(0.0).train(), (torch.randn(2, 3, 8, 8),), {}, {"x": {0: D}}


@program
def bn_dropout():
    return BatchNorm(0.1).train(), (torch.randn(2, 3, 8, 8),), {}, {"x": {0: D}}


@program
def buf_mut():

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(()))
            self.register_buffer("hist", torch.zeros(8, 4))
            self.register_buffer("np", torch.arange(4.0), persistent=False)
            self.k = torch.tensor([1.0, 2.0, 3.0, 4.0])

        def forward(self, x, pos):
            self.n.add_(1)
            self.hist[pos] = x
            x.mul_(2)
            self.hist.narrow(0, 0, 2).copy_(self.np.expand(2, 4))
            return self.hist.sum(0) * self.k + self.n + torch.tensor([5.0, 6.0, 7.0, 8.0])

    return (M(), (torch.randn(2, 4), torch.tensor([1, 3])), {}, None)


@program
def nonzero_item():

    class M(torch.nn.Module):
        def forward(self, x, n):
            i = x.nonzero()
            k = n.item()
            torch._check(k >= 1)
            torch._check(k <= x.shape[0])
            y = x[:k]
            m = torch.masked_select(x, x > 0)
            return (i, y.sum(), m * 2, torch.zeros(k, 3), i.shape[0] + k)

    return (M(), (torch.randn(5), torch.tensor(3)), {}, {"x": {0: D}, "n": None})


@program
def item_float():

    class M(torch.nn.Module):
        def forward(self, x):
            f = x.max().item()
            return (x * f, x / (f + 1), torch.full((2,), f))

    return (M(), (torch.randn(5),), {}, None)


@program
def nested_kwargs():

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.l = torch.nn.Linear(4, 4)

        def forward(self, a, d, *, flag=True, scale=2.0, name="q", n=3, opt=None, lst=()):
            return {
                "y": self.l(a) + d["u"]["v"] * scale,
                "z": [d["w"][0], (d["w"][1], a.sum())],
                "n": a.shape[0] * n,
                "none": opt,
            }

    return (
        M(),
        (torch.randn(3, 4), {"u": {"v": torch.randn(3, 4)}, "w": [torch.randn(2), torch.randn(2)]}),
        {"scale": 1.5, "n": 7, "flag": False, "name": "zz", "opt": None, "lst": (1, 2)},
        None,
    )


@program
def int_input():

    class M(torch.nn.Module):
        def forward(self, x, n, f):
            return (x[:, :n] * f, n + 1, n * 2.5)

    return (M(), (torch.randn(3, 8), 4, 0.5), {}, {"x": {0: D}, "n": D, "f": None})


@program
def symexpr():

    class M(torch.nn.Module):
        def forward(self, x, y):
            b, t, c = x.shape
            z = x.reshape(b, t // 2, 2 * c) if t % 2 == 0 else x
            w = torch.cat([x.flatten(), y], 0)
            p = functional.pad(x, (0, (4 - c % 4) % 4))
            q = functional.interpolate(x, scale_factor=2.5, mode="nearest")
            r = functional.avg_pool1d(x, 3, stride=2, padding=1, ceil_mode=True)
            u = torch.arange(0, t * 3 // 2)
            v = x.unfold(1, 4, 2)
            return (z, w, p, q, r, u, v, max(b, c), b**2, t / 2)

    return (M(), (torch.randn(3, 8, 6), torch.randn(5)), {}, {"x": {0: D, 1: 2 * Dim("half", min=2, max=100), 2: D}, "y": {0: D}})


@program
def complex_():

    class M(torch.nn.Module):
        def forward(self, x, c):
            f = torch.fft.rfft(x, dim=-1)
            z = torch.view_as_complex(x.reshape(3, 4, 2))
            p = torch.polar(x.abs(), x)
            return (
                f.abs(),
                (z * c).real,
                torch.view_as_real(z * (1 + 2j)),
                p,
                torch.stft(x.flatten().repeat(4), 16, return_complex=True, window=torch.hann_window(16), center=False),
            )

    return (M(), (torch.randn(3, 8), torch.randn(4, dtype=torch.complex64)), {}, None)


@program
def fourier_operator():
    """A layer of a Fourier neural operator: products of complex weights with low frequencies, written into zeros."""

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.low = torch.nn.Parameter(torch.randn(3, 5, 4, 4, dtype=torch.complex64))
            self.high = torch.nn.Parameter(torch.randn(3, 5, 4, 4, dtype=torch.complex64))

        def forward(self, x):
            f = torch.fft.rfft2(x)
            y = torch.zeros(x.shape[0], 5, x.shape[2], x.shape[3] // 2 + 1, dtype=torch.cfloat)
            y[:, :, :4, :4] = torch.einsum("bixy,ioxy->boxy", f[:, :, :4, :4], self.low)
            y[:, :, -4:, :4] = torch.einsum("bixy,ioxy->boxy", f[:, :, -4:, :4], self.high)
            return torch.fft.irfft2(y, s=(x.shape[2], x.shape[3]))

    return (M(), (torch.randn(2, 3, 16, 12),), {}, {"x": {0: D}})


@program
def complex_rotation():
    """Rotary embeddings by complex numbers, with the table indexed by positions."""

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            angles = torch.outer(torch.arange(32.0), 1 / 100 ** (torch.arange(0, 8, 2) / 8))
            self.register_buffer("table", torch.polar(torch.ones_like(angles), angles))

        def forward(self, x, position):
            turn = self.table[position][:, None]
            pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            y = torch.view_as_real(pairs * turn).flatten(-2)
            other = torch.cat([pairs, turn.conj().expand_as(pairs)], -1)
            return y, other.sum(0).abs(), torch.exp(1j * x), (other @ other.mH).real, torch.where(x > 0, 1j * x, 2.0)

    inputs = torch.randn(6, 3, 8), torch.arange(6)
    return (M(), inputs, {}, {"x": {0: D}, "position": {0: D}})


@program
def complex_algebra():
    """Systems of complex equations of an open number, in both precisions, and functions with branch cuts."""

    class M(torch.nn.Module):
        def forward(self, a, b):
            z = torch.view_as_complex(a)
            w = z.to(torch.complex128) * (0.1 + 0.3j)
            spread = z @ z.mH + 3 * torch.eye(z.shape[-1])
            lower = torch.linalg.cholesky(spread)
            sign, log = torch.linalg.slogdet(z)
            return (
                torch.linalg.inv(z), torch.linalg.solve(w, torch.view_as_complex(b)), torch.linalg.det(w), sign, log, lower,
                torch.cholesky_solve(z, lower), z.prod(0), w.cumprod(1), z.float_power(1.5), w.asin(), z.atanh(), z.diagonal(0, 1, 2),
                torch.linalg.matrix_norm(z), functional.l1_loss(z, z.mT), torch.isclose(w, w.mT), torch.masked_select(z, z.real > 0),
            )  # fmt: skip

    inputs = torch.randn(2, 3, 3, 2), torch.randn(2, 3, 2, 2, dtype=torch.float64)
    return (M(), inputs, {}, {"a": {0: D}, "b": {0: D}})


@program
def spectrum_and_back():

    class M(torch.nn.Module):
        def forward(self, x):
            window = torch.hann_window(16)
            f = torch.stft(x, 16, 4, window=window, return_complex=True)
            phase = f / (f.abs() + 1e-6)
            y = torch.istft(f.abs().clamp(max=2) * phase, 16, 4, window=window)
            return y, torch.istft(f, 16, 4, window=window, length=x.shape[1]), torch.log1p(f + 0.5j), torch.sqrt(f - 0.5j)

    return (M(), (torch.randn(2, 64),), {}, {"x": {0: D}})


@program
def random_():

    class M(torch.nn.Module):
        def forward(self, x):
            a = torch.rand(2, 3)
            b = torch.randn_like(x)
            c = torch.bernoulli(x.sigmoid())
            d = functional.dropout(x, 0.3, True)
            e = torch.randint(0, 5, (3,))
            g = torch.multinomial(x.softmax(-1), 2)
            h = torch.randperm(4)
            n = torch.normal(0.0, 1.0, (2,))
            u = torch.empty(3).uniform_(-1, 1)
            return (a, b, c, d, e, g, h, n, u)

    return (M(), (torch.randn(3, 8),), {}, None)


@program
def tied():

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.e = torch.nn.Embedding(20, 8)
            self.o = torch.nn.Linear(8, 20, bias=False)
            self.o.weight = self.e.weight
            base = torch.randn(4, 8)
            self.v1 = torch.nn.Parameter(base[1:3].t())
            self.register_buffer("v2", base[::2])
            self.register_buffer("emp", torch.empty(0, 3))
            self.register_buffer("bf", torch.randn(3).bfloat16())
            self.register_buffer("i8", torch.ones(3, dtype=torch.int8))
            self.register_buffer("bo", torch.tensor([True, False]))

        def forward(self, i):
            return self.o(self.e(i)) + (
                self.v1.sum() + self.v2.sum() + self.emp.sum() + self.bf.sum() + self.i8.sum() + self.bo.sum()
            )

    return (M(), (torch.randint(0, 20, (3,)),), {}, None)


@program
def sdpa():

    class M(torch.nn.Module):
        def forward(self, q, k, v, m):
            return (
                functional.scaled_dot_product_attention(q, k, v, attn_mask=m),
                functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
                functional.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
                functional.scaled_dot_product_attention(q[..., :0], k[..., :0], v),
            )

    return (
        M(),
        (torch.randn(2, 4, 8, 16), torch.randn(2, 4, 8, 16), torch.randn(2, 4, 8, 16), torch.ones(8, 8).bool()),
        {},
        None,
    )


@program
def inplace_views():

    class M(torch.nn.Module):
        def forward(self, x):
            y = x.clone()
            y[:, 0] = 1
            y[1:].add_(2)
            y.t()[0].mul_(3)
            z = y.view(-1)
            z[::2] = 0
            y[y > 1] = -1
            functional.relu(y, inplace=True)
            y.index_add_(0, torch.tensor([0]), torch.ones(1, 4))
            y.scatter_(1, torch.zeros(3, 1, dtype=torch.long), 2.0)
            y.masked_fill_(y < 0, 5.0)
            o = torch.empty(3, 4)
            torch.add(x, y, out=o)
            return (y, o)

    return (M(), (torch.randn(3, 4),), {}, None)


@program
def autocast_():

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.l = torch.nn.Linear(4, 4)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.l(x)
            with torch.no_grad():
                z = y * 2
            return z.float()

    return (M(), (torch.randn(3, 4),), {}, {"x": {0: D}})


@program
def custom_op():
    @torch.library.custom_op("mylib::foo", mutates_args=())
    def foo(x: torch.Tensor, s: float) -> torch.Tensor:
        return x * s

    @foo.register_fake
    def _(x, s):
        return torch.empty_like(x)

    class M(torch.nn.Module):
        def forward(self, x):
            return foo(x, 2.0) + 1

    return (M(), (torch.randn(3, 4),), {}, None)


@program
def checkpoint():
    from torch.utils.checkpoint import checkpoint as cp

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.l = torch.nn.Linear(4, 4)

        def forward(self, x):
            return cp(lambda y: self.l(y).relu(), x, use_reentrant=False)

    return (M(), (torch.randn(3, 4),), {}, None)


@program
def namedtuple_out():
    P = collections.namedtuple("P", "a b")
    torch.utils._pytree._register_namedtuple(P, serialized_type_name="my.P")

    class M(torch.nn.Module):
        def forward(self, x):
            return (P(x + 1, x.max(1)), x.sort(-1), torch.split(x, 2, 1), torch.unbind(x), torch.topk(x, 2))

    return (M(), (torch.randn(3, 4),), {}, None)


@program
def resnet18_names():

    class M(torch.nn.Module):
        def forward(self, image, mask):
            return (image * mask).sum(1)

    b = Dim("batch", min=1, max=64)
    return (
        M(),
        (torch.randn(2, 3), torch.randn(2, 3)),
        {},
        {"image": {0: b, 1: Dim("w", min=3, max=9)}, "mask": {0: b, 1: Dim("w", min=3, max=9)}},
    )


@program
def gelu_conv_misc():

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.c1 = torch.nn.Conv1d(3, 4, 3, padding="same")
            self.ct = torch.nn.ConvTranspose2d(4, 3, 3, 2)
            self.gn = torch.nn.GroupNorm(2, 4)
            self.inn = torch.nn.InstanceNorm1d(4, affine=True)
            self.pr = torch.nn.PReLU()
            self.rms = torch.nn.RMSNorm(8)

        def forward(self, x):
            y = self.inn(self.gn(self.c1(x)))
            z = self.ct(y.unsqueeze(-1).expand(-1, -1, -1, 5))
            a, b = functional.adaptive_max_pool1d(self.pr(y), 3, return_indices=True)
            return (
                self.rms(y),
                z,
                a,
                b,
                functional.grid_sample(z, torch.zeros(2, 4, 4, 2)),
                functional.pixel_shuffle(torch.cat([z, z, z, z], 1), 2),
                functional.unfold(z, 3),
                torch.einsum("bct,bdt->bcd", y, y),
                functional.cross_entropy(y.flatten(1), torch.zeros(2, dtype=torch.long)),
                functional.interpolate(z, size=(7, 9), mode="bicubic", antialias=True),
                torch.cdist(y, y),
                y.std(-1),
                torch.linalg.norm(y),
                torch.linalg.inv(torch.eye(3) + x[0, :, :3]),
            )

    return (M().eval(), (torch.randn(2, 3, 8),), {}, None)


@program
def quant_pt2e():
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  It registers the operators

    class M(torch.nn.Module):
        def forward(self, x, w):
            q = torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8)
            return torch.ops.quantized_decomposed.dequantize_per_tensor(q, 0.1, 0, -128, 127, torch.int8)

    return (M(), (torch.randn(3, 4), torch.randn(3)), {}, None)


@program
def lstm_projected():
    lstm = torch.nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True, proj_size=3)
    return lstm, (torch.randn(3, 7, 5),), {}, {"input": {0: D}}


@program
def dims_in_place():

    class M(torch.nn.Module):
        def forward(self, x):
            y, z = x.clone(), x.clone()
            first = y[0]
            y.t_()
            y.unsqueeze_(0)
            z.as_strided_((2, 2), (4, 1), 2)
            return y * 2, first, z + 1

    return (M(), (torch.randn(4, 4),), {}, None)


@program
def matrix_factors():

    class M(torch.nn.Module):
        def forward(self, x, y):
            linalg = torch.linalg
            q, r = linalg.qr(x)
            p, lower, upper = linalg.lu(x)
            u, s, v = linalg.svd(x, full_matrices=False)
            symmetric = x @ x.transpose(1, 2)
            values, vectors = linalg.eigh(symmetric)
            product, sum_of = u @ torch.diag_embed(s) @ v, vectors @ torch.diag_embed(values) @ vectors.transpose(1, 2)
            return (q, r, p, lower, upper, product, sum_of, linalg.pinv(x), linalg.svdvals(x), values, linalg.matrix_exp(symmetric / 4),
                    linalg.matrix_norm(x, "nuc"), linalg.cond(x), linalg.matrix_rank(x), *torch._lu_with_info(x),
                    linalg.tensorinv(y), linalg.tensorsolve(y, y[..., 0, 0]), linalg.tensorsolve(y, y[0, 0], (0, 1)),
                    torch.nextafter(x[0], x[1]))  # fmt: skip

    return (M(), (torch.randn(3, 3, 5), torch.randn(2, 3, 2, 3)), {}, {"x": {0: torch.export.Dim("n", min=2)}, "y": None})


@program
def complex_factors():

    class M(torch.nn.Module):
        def forward(self, x):
            linalg = torch.linalg
            factor = linalg.cholesky(x @ x.mH + torch.eye(3))
            return (linalg.svdvals(x), linalg.eigvalsh(x[..., :3]), linalg.eigvalsh(x[..., :3], UPLO="U"), linalg.matrix_exp(x[..., :3]),
                    torch.cholesky_inverse(factor), torch.cholesky_inverse(factor.mH, upper=True), torch.logsumexp(x, -1),
                    torch.logsumexp(x, (0, 2), keepdim=True), torch.logsumexp(x[0, 0, 0], 0))  # fmt: skip

    return (M(), (torch.randn(3, 3, 5, dtype=torch.complex64),), {}, {"x": {0: D}})


@program
def complex_vectors():
    """Vectors are determined up to a phase: their products are compared."""

    class M(torch.nn.Module):
        def forward(self, x):
            linalg = torch.linalg
            q, r = linalg.qr(x, mode="complete")
            u, s, vh = linalg.svd(x)
            a, b, c = torch.svd(x)
            values, vectors = linalg.eigh(x[..., :3], UPLO="U")
            return (q, r, u.mH @ u, u * s.unsqueeze(1) @ vh[:, :3], vh @ vh.mH, s, a * b.unsqueeze(1) @ c.mH, values, vectors.mH @ vectors,
                    vectors * values.unsqueeze(1) @ vectors.mH)  # fmt: skip

    return (M(), (torch.randn(2, 3, 5, dtype=torch.complex64),), {}, {"x": {0: D}})


@program
def general_eigenvalues():
    """Values are in no order and vectors determined up to a phase: what they multiply to is compared."""

    class M(torch.nn.Module):
        def forward(self, x):
            linalg, results = torch.linalg, []
            for matrix in (x, torch.complex(x, x.flip(-1)), (2 * x[0] - x[0].mT).double()):
                values, vectors = linalg.eig(matrix)
                alone = linalg.eigvals(matrix)
                rebuilt = vectors @ torch.diag_embed(values) @ linalg.inv(vectors)
                results += [rebuilt, linalg.vector_norm(vectors, dim=-2), (values + 3).prod(-1), alone.prod(-1),
                            alone.abs().sort(-1)[0]]  # fmt: skip
            return results

    return (M(), (torch.randn(3, 5, 5),), {}, {"x": {0: D}})


@program
def strided_views():
    """Views without an offset of their own, which start where the view that they are of starts."""

    class M(torch.nn.Module):
        def forward(self, x):
            y = x.clone()
            y[1].as_strided((2,), (2,)).mul_(10)
            return (x[1].as_strided((2, 2), (2, 1)), x[:, 1:].as_strided((2, 3), (4, 1)), x.t()[2].as_strided((2,), (4,)),
                    x[1:, 2:][1:].as_strided((2,), (1,)), x.diagonal(1).as_strided((2,), (5,)), y)  # fmt: skip

    return (M(), (torch.randn(4, 4),), {}, None)
