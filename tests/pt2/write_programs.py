"""Writes tests/pt2/programs from what `exports.py --folder DIR` exported: write_programs.py DIR; without DIR, only `edges`, `bags`,
`indices`, `lstm_states`, `shared_buffers`, `memory_views`, `modules_in_eval`, `framed_spectra`, `narrow_rms_norm`, `draws` and `draws_of_torch`.

Every program is repacked: deflated, and without the metadata of nodes and the sample inputs. `plain` stays as torch.export.save
wrote it. The arrays lie beside each as NAME.npz, those of NAME.core.pt2 in the same file.
"""

import copy
import json
import pathlib
import shutil
import sys
import zipfile

NAMES = ("autocast_ buf_mut checkpoint cond cond_shape gru hop_map infnan inplace_views int_input item_float "
         "namedtuple_out nested_kwargs nonzero_item quant_pt2e scan sdpa symexpr tied while_loop complex_ gelu_conv_misc "
         "fourier_operator complex_rotation complex_algebra spectrum_and_back lstm_projected dims_in_place "
         "matrix_factors complex_factors complex_vectors general_eigenvalues strided_views zeros_and_infinities neighbours "
         "floor_division special_edges infinite_sizes grid_of_nan").split()
PLAIN = "resnet18_names"
HERE = pathlib.Path(__file__).resolve().parent / "programs"


def stripped(graph):
    for node in graph["nodes"]:
        node["metadata"] = {}
        for item in node["inputs"]:
            if "as_graph" in item["arg"]:
                stripped(item["arg"]["as_graph"]["graph"])


def repack(source, target):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in sorted(old.namelist()):
            data = old.read(name)
            if "/sample_inputs/" in name or "/.data/" in name:
                continue
            if "/models/" in name:
                program = json.loads(data)
                stripped(program["graph_module"]["graph"])
                data = json.dumps(program, separators=(",", ":")).encode()
            new.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)


def edges(torch):
    """Bounds in the wrong order, and norms of matrices without rows or columns."""

    class Edges(torch.nn.Module):
        def forward(self, x):
            norm = torch.linalg.matrix_norm
            none = x[:0]
            return (torch.logit(x, eps=0.6), torch.logit(x, eps=0.3), norm(none, 1), norm(none, float("inf")),
                    norm(none.t(), 1), norm(x, 1), norm(x, -1), norm(x, float("inf")), norm(none, "fro"))  # fmt: skip

    return Edges(), (torch.tensor([[0.2, 0.5, 0.8], [0.0, 1.0, float("nan")], [0.31, 0.69, 0.4]]),)


def bags(torch):
    """Bags without a padding index, whose other results are empty or not by the backward pass that PyTorch expects."""

    class Bags(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bags = torch.nn.ModuleList(torch.nn.EmbeddingBag(9, 4, mode=mode) for mode in ("sum", "mean", "max"))

        def forward(self, x):
            i, j = torch.triu_indices(5, 4, 1)
            return (*(bag(x) for bag in self.bags), x[i, j % 3])

    torch.manual_seed(0)
    return Bags(), (torch.randint(0, 9, (5, 3)),)


def indices(torch):
    """One operator a row of the input, which has its indices; run.py makes them negative."""

    class Indices(torch.nn.Module):
        def forward(self, i):
            x, s = torch.arange(12.0).reshape(3, 4), torch.ones(2, 4)
            wide = [row[:, None].expand(2, 4) for row in i]
            return (x.index_add(0, i[0], s), x.index_copy(0, i[1], s), x.index_reduce(0, i[2], s, "amax"), x.index_select(0, i[3]),
                    x.gather(0, wide[4]), x.scatter(0, wide[5], s), x.scatter(0, wide[6], 1.5), x.scatter_add(0, wide[7], s),
                    x.scatter_reduce(0, wide[8], s, "mean", include_self=False), torch.nn.functional.embedding(i[9], x),
                    torch.nn.functional.embedding_bag(i[10][None], x, mode="sum"), torch.nn.functional.one_hot(i[11], 5),
                    torch.nn.functional.max_unpool1d(s[:1, None, :2], i[12][None, None], 2),
                    torch.nn.functional.multi_margin_loss(s, i[13]), torch.nn.functional.cross_entropy(s, i[14]),
                    x.index_fill(0, i[15], 2.0), x.take(i[16]), x.put(i[17], s[:, 0]), x[i[18]], x.index_put((i[19],), s))  # fmt: skip

    return Indices(), (torch.tensor([[0, 1]] * 20),)


def lstm_states(torch):
    """Last states, whose shapes PyTorch 2.11 states with a dim more than its kernels give them; decomposed, it gives them so."""

    class States(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True)
            self.linear = torch.nn.Linear(12, 3)

        def forward(self, x):
            _, (h, c) = self.lstm(x)
            return self.linear(torch.cat([h[-2], h[-1]], -1)), h, c

    torch.manual_seed(0)
    return States().eval(), (torch.randn(3, 7, 5),)


def shared_buffers(torch):
    """Two buffers of one storage in different layouts, both written. PyTorch decomposes them into two storages."""

    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            whole = torch.zeros(4, 3)
            self.register_buffer("rows", whole[1:3])
            self.register_buffer("whole", whole)

        def forward(self, x):
            self.rows.add_(x)
            self.whole[0] += 1
            return self.whole.clone(), self.rows * 1

    return Shared(), (torch.arange(6.0).reshape(2, 3),)


def memory_views(torch):
    """Views by strides of tensors that are not row-major, and as types of another width, read and written."""

    class Views(torch.nn.Module):
        def forward(self, x):
            turned = x.t().clone()
            turned.as_strided((3, 3), (2, 5), 1).add_(1)
            row = turned[1]
            halves, bytes_ = x.view(torch.int16), x.double().view(torch.uint8)
            cleared = x.clone()
            cleared.view(torch.int16)[..., 0] = 0
            return (turned, row.as_strided((2, 2), (4, 1)), halves, bytes_, cleared, (halves * 1).view(torch.float32),
                    (bytes_ * 1).view(torch.float64), halves.view(torch.int64))  # fmt: skip

    torch.manual_seed(0)
    return Views(), (torch.randn(4, 6),)


def modules_in_eval(torch):
    """Windows at places that samples decide, and modules whose decompositions have operators of their own."""
    functional = torch.nn.functional

    class Modules(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("planes", torch.rand(2, 3, 2))
            self.register_buffer("volumes", torch.rand(2, 3, 3, dtype=torch.float64))
            self.bilinear, self.plain = torch.nn.Bilinear(7, 6, 4), torch.nn.Bilinear(7, 5, 2, bias=False)
            self.rrelu = torch.nn.RReLU(0.1, 0.4)

        def forward(self, x):
            planes, volumes = x[:, :, 0], x.double()
            pool2d, pool3d = functional.fractional_max_pool2d, functional.fractional_max_pool3d
            return (
                *pool2d(planes, (2, 3), output_size=(3, 2), return_indices=True, _random_samples=self.planes),
                *pool2d(planes[0], 2, output_ratio=(0.9, 0.2), return_indices=True, _random_samples=self.planes[:1]),
                *pool3d(volumes, (1, 2, 3), output_size=(4, 3, 1), return_indices=True, _random_samples=self.volumes),
                self.bilinear(x, x[..., :6]), self.plain(x[0, 0, 0], x[1, 1, 1, :, :5]), self.rrelu(x),
            )  # fmt: skip

    torch.manual_seed(0)
    return Modules().eval(), (torch.randn(2, 3, 5, 6, 7),)


def framed_spectra(torch):
    """Fourier transforms of frames that are scaled, and under a window shorter than they are; frequencies."""

    class Spectra(torch.nn.Module):
        def forward(self, x):
            window = torch.linspace(0.5, 1.0, 7)
            short = torch.stft(x, 12, 5, 7, window, center=False, normalized=True, onesided=False, return_complex=True)
            centred = torch.stft(x[0], 9, 3, 7, window, normalized=True, return_complex=True)
            return (torch.view_as_real(short), torch.view_as_real(centred), torch.fft.fftfreq(7, 0.3), torch.fft.fftfreq(6),
                    torch.fft.rfftfreq(7, dtype=torch.float64), torch.fft.rfftfreq(6, 2.0))  # fmt: skip

    torch.manual_seed(0)
    return Spectra(), (torch.randn(2, 40),)


def narrow_rms_norm(torch):
    """The default of epsilon for narrow numbers, which is that of f32: rows of small numbers show it."""

    class Norms(torch.nn.Module):
        def forward(self, x):
            norm = torch.nn.functional.rms_norm
            return norm(x.half(), (4,)), norm(x.bfloat16(), (3, 4)).float(), norm(x.double(), (4,)), norm(x, (4,))

    torch.manual_seed(0)
    return Norms(), (torch.randn(2, 3, 4) * 0.02,)


def write_own(make, decomposed=True):
    import numpy as np
    import torch

    module, inputs = make(torch)
    program = torch.export.export(module, inputs)
    ran = copy.deepcopy(module)(*inputs)  # the file has the buffers as they are before a run
    results = {f"o{i}": value.detach().numpy() for i, value in enumerate(ran)}
    name = make.__name__
    np.savez_compressed(HERE / f"{name}.npz", i0=inputs[0].numpy(), **results)
    for form in ("", ".core") if decomposed else ("",):
        whole = HERE / "whole.pt2"
        torch.export.save(program.run_decompositions() if form else program, whole)
        repack(whole, HERE / f"{name}{form}.pt2")
        whole.unlink()


def write_draws():
    """Random draws, whose results are not a function of the inputs: run.py checks their distributions."""
    import torch

    class Draws(torch.nn.Module):
        def forward(self, x, p):
            shape, ones = (x.shape[0], 100), torch.ones_like(x)
            return {"rand": torch.rand(shape), "randn": torch.randn(shape), "randint": torch.randint(-3, 5, shape),
                    "dropout": torch.dropout(x, 0.25, True), "dropout_": torch.dropout_(x.clone(), 0.25, True),
                    "channels": torch.feature_dropout(ones[None, :, :, None].expand(1, -1, -1, 3).flatten(1, 2), 0.5, True),
                    "alpha": torch.alpha_dropout(torch.randn(shape), 0.3, True), "bernoulli": torch.bernoulli(p),
                    "randperm": torch.randperm(50), "normal_": torch.empty(shape).normal_(2.0, 3.0),
                    "uniform_": torch.empty(shape).uniform_(-1.0, 1.0), "exponential_": torch.empty(shape).exponential_(2.0),
                    "normal": torch.normal(x, 0.5), "one_of": torch.multinomial(p + 0.01, 1),
                    "four_of": torch.multinomial(p[:, :10] + 0.01, 4), "half": torch.rand_like(x, dtype=torch.float16)}  # fmt: skip

    dims = {"x": {0: torch.export.Dim.DYNAMIC}, "p": {0: torch.export.Dim.DYNAMIC}}
    inputs = (torch.ones(64, 100), torch.rand(64, 100))
    program = torch.export.export(Draws().train(), inputs, dynamic_shapes=dims)
    for name, each in (("draws", program), ("draws.core", program.run_decompositions())):
        whole = HERE / "whole.pt2"
        torch.export.save(each, whole)
        repack(whole, HERE / f"{name}.pt2")
        whole.unlink()


TORCH_SEED = 20261130


def torch_draws(torch):
    """Draws of all kinds: few and many elements, normals in odd numbers, types, and tensors in another order in memory."""
    kinds = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

    class TorchDraws(torch.nn.Module):
        def forward(self, x, p):
            n, functional = x.shape[0], torch.nn.functional
            turned = x.reshape(n, 4, 5, 5).contiguous(memory_format=torch.channels_last)
            torch.rand(3)  # nobody reads it
            few = [torch.randn(7, dtype=kind) for kind in kinds]
            many = [draw(37, n, dtype=kind) for kind in kinds for draw in (torch.rand, torch.randn)]
            return [
                *few, *many, torch.randn(n, 7), torch.randint(-3, 997, (50,)), torch.randint(2**40, (50,)),
                torch.randint(2**28, (50,), dtype=torch.int32), torch.randperm(100), torch.randperm(1),
                *(torch.empty(60, dtype=kind).random_() for kind in (torch.int64, torch.int32, torch.uint8, torch.bool, *kinds)),
                torch.randint_like(x, 5, 9), torch.empty(333).uniform_(0.1, 0.7), torch.empty(333).normal_(0.2, 3.3),
                torch.empty(9).normal_(0.2, 3.3), torch.normal(x, 0.5), torch.empty(333).exponential_(2.0),
                torch.empty(333).geometric_(0.2), torch.empty(333).cauchy_(0.2, 3.0), torch.empty(99).log_normal_(0.2, 0.7),
                torch.bernoulli(p), torch.bernoulli(p.double()), torch.empty_like(x).bernoulli_(0.3), torch.empty_like(x).bernoulli_(p),
                functional.dropout(x, 0.3), functional.dropout(turned, 0.3), functional.dropout2d(turned, 0.3),
                functional.alpha_dropout(x, 0.3), functional.dropout(x.bfloat16(), 0.3), torch.native_dropout(x, 0.3, True)[0],
                torch.rand_like(turned), torch.randn_like(turned), turned.clone().uniform_(-1.0, 1.0),
                torch.multinomial(p + 0.01, 1), torch.multinomial(p + 0.01, 5), torch.multinomial(p + 0.01, 7, replacement=True),
            ]  # fmt: skip

    return TorchDraws().train()


def write_torch_draws():
    """draws_of_torch.npz has the results of three calls one after the other, the last of another size."""
    import torch

    module, name, whole = torch_draws(torch), "draws_of_torch", HERE / "whole.pt2"
    calls = [(torch.randn(n, 100), torch.rand(n, 100)) for n in (6, 6, 1)]
    dims = {"x": {0: torch.export.Dim.DYNAMIC}, "p": {0: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(module, calls[0], dynamic_shapes=dims)
    torch.export.save(program, whole)
    repack(whole, HERE / f"{name}.pt2")
    whole.unlink()
    torch.manual_seed(TORCH_SEED)
    arrays = {}
    for call, inputs in enumerate(calls):
        arrays.update({f"i{call}_{k}": value.numpy() for k, value in enumerate(inputs)})
        for k, value in enumerate(module(*inputs)):
            arrays[f"o{call}_{k}"] = (value.view(torch.uint16) if value.dtype == torch.bfloat16 else value).numpy()
    np.savez_compressed(HERE / f"{name}.npz", **arrays)


def main():
    HERE.mkdir(exist_ok=True)
    for make in (edges, bags, indices, memory_views, modules_in_eval, framed_spectra, narrow_rms_norm):
        write_own(make)
    for make in (lstm_states, shared_buffers):
        write_own(make, decomposed=False)
    write_draws()
    write_torch_draws()
    if len(sys.argv) < 2:
        return
    folder = pathlib.Path(sys.argv[1])
    for name in NAMES:
        for form in ("", ".core"):
            if (folder / f"{name}{form}.pt2").exists():
                repack(folder / f"{name}{form}.pt2", HERE / f"{name}{form}.pt2")
        shutil.copy(folder / f"{name}.npz", HERE)
    shutil.copy(folder / f"{PLAIN}.pt2", HERE / "plain.pt2")
    shutil.copy(folder / f"{PLAIN}.npz", HERE / "plain.npz")


if __name__ == "__main__":
    main()
