"""What needs PyTorch: modules, tensors, torch.compile."""

import functools
import os
import subprocess
import sys
import warnings
from typing import NamedTuple

import numpy as np
import torch

import harness
import stridec
import stridec.torch_backend
from stridec import _generator
from harness import expect, refused

Dim = torch.export.Dim


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Everything(torch.nn.Module):
    """Nested arguments and results, a buffer and an argument that are written."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, d, *, scale=None, flag=True):
        self.calls.add_(1)
        y = self.linear(x) + d["u"][0]
        d["w"].mul_(2)
        if scale is not None:
            y = y * scale
        return Pair(y, x.sum()), {"calls": self.calls.clone(), "none": None, "rows": x.shape[0], "max": torch.max(y, 1),
                                  "complex": torch.complex(y, y)}


def same(actual, expected, where="result", tolerance=1e-5):
    if isinstance(expected, torch.Tensor):
        expect(isinstance(actual, torch.Tensor) and actual.dtype == expected.dtype, f"{where}: {actual}")
        expect(actual.shape == expected.shape, f"{where}: {actual.shape} instead of {expected.shape}")
        if expected.is_floating_point() or expected.is_complex():
            good = torch.allclose(actual, expected.detach(), rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            good = torch.equal(actual, expected)
        expect(good, f"{where}: {actual} instead of {expected}")
        return
    expect(type(actual) is type(expected), f"{where}: {type(actual)} instead of {type(expected)}")
    if isinstance(expected, dict):
        expect(list(actual) == list(expected), f"{where}: {list(actual)}")
        for key in expected:
            same(actual[key], expected[key], f"{where}.{key}", tolerance)
    elif isinstance(expected, (tuple, list)):
        expect(len(actual) == len(expected), f"{where}: {len(actual)} elements")
        for at, (a, e) in enumerate(zip(actual, expected)):
            same(a, e, f"{where}.{at}", tolerance)
    else:
        expect(actual == expected, f"{where}: {actual} instead of {expected}")


# ---- modules


def test_calling_convention_of_a_module():
    torch.manual_seed(0)
    module = Everything().eval()
    shapes = {"x": {0: Dim("batch", max=64)}, "d": {"u": [None], "w": None}, "scale": None}
    example = torch.ones(1, 4), {"u": [torch.ones(3)], "w": torch.ones(2)}
    compiled = stridec.compile(module, example, kwargs={"scale": torch.tensor(2.0)}, dynamic_shapes=shapes,
                               dims={"batch": (1, 32)}, output="everything.so")
    expect(compiled.symbols == {"x.0": (1, 32, 1)}, str(compiled.symbols))
    module.calls.zero_()
    for rows, model in ((1, compiled), (5, stridec.load("everything.so"))):
        model.reset_state()
        module.calls.zero_()
        x, u = torch.randn(rows, 4), torch.randn(3)
        mine, theirs = ({"u": [u], "w": torch.ones(2)} for _ in range(2))
        same(model(x, mine, scale=torch.tensor(3.0)), module(x, theirs, scale=torch.tensor(3.0)))
        same(mine, theirs, "arguments")
    refused(lambda: compiled(torch.ones(40, 4), mine, scale=torch.tensor(3.0)), "STRIDEC_WRONG_SHAPE", "1..32")


def test_examples_of_size_one():
    class Scaled(torch.nn.Module):
        def forward(self, x, ys):
            return x * 2, ys[0].sum(1), ys[1] + 1

    half = Dim("half", max=8)
    for shapes in (({0: Dim("n"), 1: 2 * half}, [{0: Dim("n")}, {0: half}]),
                   ({0: Dim.DYNAMIC, 1: Dim.AUTO}, [{0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}])):
        example = torch.ones(1, 2), [torch.ones(1, 3), torch.ones(1)]
        compiled = stridec.compile(Scaled(), example, dynamic_shapes=shapes, threads=1)
        for n, h in ((1, 1), (4, 3)):
            given = torch.randn(n, 2 * h), [torch.randn(n, 3), torch.randn(h)]
            same(compiled(*given), Scaled()(*given))


def test_recurrent_layers_over_a_dynamic_time():
    for layer, options in ((torch.nn.LSTM, {"proj_size": 2}), (torch.nn.GRU, {"bidirectional": True}), (torch.nn.RNN, {})):
        module = layer(3, 4, num_layers=2, batch_first=layer is not torch.nn.RNN, **options).eval()
        shapes = {"input": {0: Dim("first"), 1: Dim("second", max=20)}}
        for strict in (False, True):
            compiled = stridec.compile(module, (torch.ones(1, 5, 3),), dynamic_shapes=shapes, strict=strict, threads=1)
            for sizes in ((1, 1), (2, 7), (5, 3)):
                x = torch.randn(*sizes, 3)
                with torch.no_grad():
                    same(compiled(x), module(x))
    expect("lstm" not in vars(torch._VF), "the export leaves PyTorch's functions replaced")


class Coder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        return x

    @torch.jit.export
    def encode(self, x, scale: float = 1.0):
        self.calls.add_(1)
        return {"code": self.linear(x) * scale, "calls": self.calls.clone()}


def test_another_method_of_a_module():
    module = Coder().eval()
    compiled = stridec.compile(module, (torch.ones(2, 4),), kwargs={"scale": 2.0}, method="encode", dynamic_shapes={
        "x": {0: Dim("batch")}, "scale": None})  # fmt: skip
    expect([state.name for state in compiled.states] == ["calls"], str(compiled.states))
    module.calls.zero_()
    x = torch.randn(5, 4)
    same(compiled(x, scale=2.0), module.encode(x, scale=2.0))
    same(module(x), x)
    refused(lambda: stridec.compile(module, (x,), method="decode"), "STRIDEC_INVALID_ARGUMENT", "no method 'decode'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.calls.zero_()
        torch.jit.script(module).save("coder.pt")
    refused(lambda: stridec.compile("coder.pt", method="decode", shapes={"x": "n,4"}), "no-method", "decode")
    same(stridec.compile("coder.pt", method="encode", shapes={"x": "n,4"})(x), module.encode(x))
    program = torch.export.export(net(), (x,))
    refused(lambda: stridec.compile(program, method="encode"), "STRIDEC_INVALID_ARGUMENT", "one method")


def test_vmap():
    class Rows(torch.nn.Module):
        def forward(self, x, w):
            return torch.vmap(lambda row: (w @ row).softmax(0))(x)

    given = torch.randn(3, 4), torch.randn(5, 4)
    same(stridec.compile(Rows(), given)(*given), Rows()(*given))


class Sides:
    """A class that its owner registers without a name for files."""

    def __init__(self, left, right):
        self.left, self.right = left, right


torch.utils._pytree.register_pytree_node(Sides, lambda s: ([s.left, s.right], ["left", "right"]),
                                         lambda values, context: Sides(*values))


def test_classes_that_are_registered_without_a_name():
    class Several(torch.nn.Module):
        def forward(self, x):
            matrix = x.T @ x + torch.eye(3)
            return Sides(x + 1, [torch.sort(x), torch.aminmax(x), torch.linalg.slogdet(matrix), torch.linalg.qr(x),
                                 torch.frexp(x), torch.linalg.svd(x, full_matrices=False)])

    x = torch.randn(5, 3)
    compiled, expected = stridec.compile(Several(), (x,), output="sides.so"), Several()(x)
    for model in (compiled, stridec.load("sides.so")):
        actual = model(x)
        expect(isinstance(actual, Sides), f"{type(actual)}")
        same(actual.left, expected.left)
        same(list(actual.right[:5]), list(expected.right[:5]), tolerance=1e-4)
        expect(type(actual.right[5]) is torch.return_types.linalg_svd, str(type(actual.right[5])))
    text = [output.name for output in compiled.outputs]
    for name in ("left", "right.0.values", "right.1.min", "right.2.logabsdet", "right.3.R", "right.4.exponent", "right.5.Vh"):
        expect(name in text, f"{name} is not in {text}")
    for cls in torch.return_types.all_return_types:
        members = {name for name, value in vars(cls).items() if type(value).__name__ == "member_descriptor"}
        names = stridec._pt2._result_names(f"torch.return_types.{cls.__name__}")
        expect(set(names) == members and len(names) == cls.n_fields, f"{cls}: {names}")


def test_errors_of_the_export_and_the_compiler():
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    refused(lambda: stridec.compile(Branching(), (torch.ones(3),)), "export", "torch.export")

    class Dropping(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    error = refused(lambda: stridec.compile(Dropping(), (torch.ones(1, 2, 3, 4),)), "unsupported-op", "eval")
    expect(error.exit_code == 5, str(error.exit_code))
    refused(lambda: stridec.compile(torch.nn.ReLU()), "STRIDEC_INVALID_ARGUMENT", "example inputs")


def test_tensors_of_every_kind():
    class Same(torch.nn.Module):
        def forward(self, *xs):
            return tuple(x.t().contiguous() for x in xs)

    types = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32,
             torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]
    given = [torch.randint(0, 2, (2, 3)).to(dtype) for dtype in types]
    compiled = stridec.compile(Same(), tuple(given), threads=1)
    for inputs in (given, [x.t().contiguous().t() for x in given]):
        for dtype, x, y in zip(types, inputs, compiled(*inputs)):
            expect(y.dtype == dtype and y.shape == (3, 2), f"{dtype}: {y}")
            expect(torch.equal(y.to(torch.complex128), x.t().to(torch.complex128)), f"{dtype}: {y}")
    double = stridec.compile(torch.nn.ReLU(), (torch.ones(3),), threads=1)
    imaginary = torch.complex(torch.ones(3), torch.ones(3)).conj().imag
    expect(imaginary.is_neg(), "a tensor with the bit of negation")
    same(double(imaginary), torch.zeros(3))
    same(double(torch.nn.Parameter(torch.ones(3))), torch.ones(3))
    refused(lambda: double(torch.ones(3).to_sparse()), "STRIDEC_WRONG_TYPE", "sparse")
    refused(lambda: double(torch.ones(3, device="meta")), "STRIDEC_WRONG_TYPE", "meta")
    out = torch.zeros(6)[::2]
    double(torch.ones(3), out=[out])
    same(out, torch.ones(3))
    mixed = double(np.ones(3, np.float32))
    expect(isinstance(mixed, np.ndarray), "NumPy in, NumPy out")


# ---- torch.compile


@functools.lru_cache(maxsize=None)
def count_runs():
    """A list that has one element for each run of the program."""
    runs, own = [], stridec._program.run

    def run(*arguments, **options):
        runs.append(arguments[0])
        return own(*arguments, **options)

    stridec._program.run = run
    return runs


def compare(function, *calls, options=None, dynamic=None):
    """Results of torch.compile and of eager PyTorch: values, types and strides; then the function."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="stridec", options=options or {}, dynamic=dynamic)
    with torch.no_grad():
        for call in calls:
            copies = [torch.empty_strided(a.shape, a.stride(), dtype=a.dtype).copy_(a) if isinstance(a, torch.Tensor) else a
                      for a in call]
            expected, actual = function(*copies), compiled(*call)
            same(actual, expected)
            same(list(call), copies, "arguments")
            for a, e in zip(*([x] if isinstance(x, torch.Tensor) else x for x in (actual, expected))):
                if isinstance(e, torch.Tensor):
                    expect(a.stride() == e.stride(), f"strides {a.stride()} instead of {e.stride()}")
    return compiled


def net():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)]
    return torch.nn.Sequential(*layers).eval()


def test_networks_with_dynamic_sizes():
    runs = count_runs()
    compare(net(), *[(torch.randn(n, 4),) for n in (5, 6, 7, 8)])
    before = len(runs)
    compare(net(), *[(torch.randn(n, 4),) for n in (5, 6, 9)])
    expect(len(runs) == before, "the same graphs are compiled again")


def test_results_of_every_kind():
    def function(x, y):
        z = y + 1
        return (x.expand(3, 4), x + 1, (x * y).t(), torch.arange(5), x.to(torch.bfloat16), 7, x, z, z, x[:0], torch.zeros(()),
                torch.view_as_complex(torch.stack([y, y], -1)), z[:, 1], torch.tensor([1.0, 2.0]), (x * 2).expand(3, 4))

    compare(function, (torch.randn(1, 4), torch.randn(3, 4)))


def test_the_backend_by_name():
    """The package is on the path, not installed: whichever is imported first, and after PyTorch has looked for backends."""
    call = "print(torch.compile(torch.nn.Linear(4, 2), backend='stridec')(torch.ones(3, 4)).shape)"
    look = "import torch; torch._dynamo.list_backends(); import stridec"
    for imports in ("import stridec, torch", "import torch, stridec", look):
        done = subprocess.run([sys.executable, "-c", f"{imports}; torch.set_grad_enabled(False); {call}"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(harness.ROOT / "python")})  # fmt: skip
        expect("torch.Size([3, 2])" in done.stdout, f"{imports}: {done.stdout} {done.stderr}")


def test_integers_and_sizes():
    def function(x, n):
        return torch.nn.functional.pad(x, (0, n)).repeat(2, 1) + n, x.shape[0] * n, x.new_ones(x.shape[0] * 2)

    compare(function, *[(torch.randn(k, 3), n) for k, n in ((3, 4), (5, 2), (7, 3))], dynamic=True)


def test_strides_that_do_not_follow_from_sizes():
    def function(x):
        return x * 2, x.t()

    compare(function, *[(torch.randn(n, width)[:, 1:5],) for n, width in ((5, 8), (6, 9), (6, 7))], dynamic=True)
    transposed = torch.randn(4, 6).t()
    compare(function, (torch.randn(6, 4),), (transposed,))


class Orders(torch.nn.Module):
    """Results in several orders of dims in memory."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1).to(memory_format=torch.channels_last)

    def forward(self, x):
        y = self.conv(x.contiguous(memory_format=torch.channels_last))
        z = torch.relu(y).mean(1, keepdim=True)
        return {"image": y, "plain": x + 1, "mean": z, "turned": x.permute(2, 0, 3, 1) * 2, "rows": y.flatten(2).transpose(1, 2),
                "complex": torch.complex(y, y), "matrix": (x[0, 0] + 1).t()}  # fmt: skip


def strides_of(results):
    """Of dims of more than one element."""
    return {name: [step for step, size in zip(value.stride(), value.shape) if size > 1] for name, value in results.items()}


def test_results_lie_in_memory_as_pytorch_says():
    net, dynamic = Orders().eval(), {"x": {0: Dim("n", max=8), 2: Dim("h", max=64)}}
    model = stridec.compile(net, (torch.randn(2, 3, 6, 5),), dynamic_shapes=dynamic)
    frozen = torch.compile(net, backend="stridec", dynamic=True)
    with torch.no_grad():
        for shape in ((2, 3, 6, 5), (4, 3, 9, 5), (1, 3, 7, 5)):
            x = torch.randn(*shape)
            expected = net(x)
            for results in (model(x), frozen(x)):
                same(results, expected, tolerance=1e-4)
                expect(strides_of(results) == strides_of(expected), f"{strides_of(results)} instead of {strides_of(expected)}")
    expect(all(v.flags.c_contiguous for v in model(np.ones((2, 3, 6, 5), np.float32)).values() if v.dtype == np.float32),
           "NumPy arrays are row by row")


def test_sizes_that_the_data_decides_keep_the_order():
    def rows(x):
        return x.nonzero().t(), x[x > 0].reshape(-1, 1)

    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    compare(rows, (x,))


class Drawing(torch.nn.Module):
    def forward(self, x):
        y = torch.nn.functional.dropout(x, 0.4) + torch.randn(5) * torch.rand(x.shape[0], 1)
        return y, torch.randperm(20), torch.randint(9, (4,)), torch.normal(x, 0.5)


def test_random_draws_of_pytorch():
    """torch.compile draws from PyTorch's generator, between eager draws, and leaves it where eager code would."""
    torch._dynamo.reset()
    net = Drawing().train()
    fast = torch.compile(net, backend="stridec", options={"options": {"fallback_random": True}})
    found = []
    for function in (net, fast):
        torch.manual_seed(7)
        with torch.no_grad():
            results = [torch.randn(3), *function(torch.ones(6, 5)), torch.randn(1), *function(torch.ones(6, 5)), torch.randn(20)]
        found.append([*results, torch.get_rng_state()])
    for at, (expected, actual) in enumerate(zip(*found)):
        expect(torch.equal(expected, actual), f"draw {at}: {actual} instead of {expected}")


def test_a_generator_of_a_seed():
    model = stridec.compile(Drawing().train(), (torch.ones(6, 5),), options={"fallback_random": True})
    torch.manual_seed(2**63 + 11)
    expected = Drawing().train()(torch.ones(6, 5))
    model.manual_seed(2**63 + 11)
    for at, (e, a) in enumerate(zip(expected, model(torch.ones(6, 5)))):
        expect(torch.equal(e, a), f"draw {at}: {a} instead of {e}")


def test_the_state_of_a_generator_on_gpus():
    """Seed, offset and threads, from and to what torch.cuda says of a device."""
    found = {}

    class Device:
        multi_processor_count, max_threads_per_multi_processor = 84, 1536

    names = ("get_rng_state", "set_rng_state", "get_device_properties")
    kept = [getattr(torch.cuda, name) for name in names]
    torch.cuda.get_rng_state = lambda device: torch.tensor([2**63 + 11 - 2**64, 40], dtype=torch.int64).view(torch.uint8)
    torch.cuda.set_rng_state = lambda state, device: found.update({device: state.view(torch.int64).tolist()})
    torch.cuda.get_device_properties = lambda device: Device
    try:
        state = _generator.from_torch(1, np.zeros(3, np.int64))
        expect(state.tolist() == [2**63 + 11 - 2**64, 40, 84 * 1536], str(state))
        _generator.to_torch(1, state + [0, 4, 0])
        expect(found == {1: [2**63 + 11 - 2**64, 44]}, str(found))
        expect(_generator.seeded(-3, state).tolist() == [-3, 0, 84 * 1536], "a seed")
    finally:
        for name, function in zip(names, kept):
            setattr(torch.cuda, name, function)


def test_graphs_with_nothing_to_compute():
    compare(lambda x: (x, 3), (torch.ones(2),))


def test_arguments_and_buffers_that_are_written():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x):
            self.count.add_(1)
            x.mul_(2)
            return x + self.count

    module, other = Counter(), Counter()
    compiled = torch.compile(module, backend="stridec")
    with torch.no_grad():
        for _ in range(3):
            x, y = torch.ones(3, 2), torch.ones(3, 2)
            same(compiled(x), other(y))
            same(x, y)
            same(module.count, other.count)


def test_attention_with_groups_of_heads():
    def attend(q, k, v):
        return (torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),)

    compare(attend, (torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)))


def test_flex_attention():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.manual_seed(0)
    bias = torch.randn(4)

    class Attention(torch.nn.Module):
        """Scores with a bias by head and distance; the first three rows see nothing."""

        def forward(self, q, k, v, mask):
            y = flex_attention(q, k, v, lambda s, b, h, i, j: s + bias[h] * (i - j), mask, enable_gqa=True)
            return y, flex_attention(q, k, v, lambda s, b, h, i, j: torch.tanh(s), scale=0.3, enable_gqa=True)

    def make(rows):
        mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i > 2), None, None, rows, 48, "cpu")
        return torch.randn(2, 4, rows, 8), torch.randn(2, 2, 48, 8), torch.randn(2, 2, 48, 8), mask

    module, calls = Attention(), [make(rows) for rows in (32, 40, 48)]
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="stridec")
    with torch.no_grad():
        for call in calls:
            same(compiled(*call), module(*call))
        fixed = type("Fixed", (torch.nn.Module,), {"forward": lambda self, q, k, v: module(q, k, v, calls[0][3])})()
        same(stridec.compile(fixed, calls[0][:3])(*calls[0][:3]), module(*calls[0]))


def test_replaced_weights():
    runs = count_runs()
    for freeze in (False, True):
        torch._dynamo.reset()
        module, x = net(), torch.randn(5, 4)
        compiled = torch.compile(module, backend="stridec", options={"freeze": freeze})
        with torch.no_grad():
            same(compiled(x), module(x))
            before = len(runs)
            module[0].weight.mul_(2)
            same(compiled(x), module(x))
            module[0].weight.data = torch.randn(8, 4)
            same(compiled(x), module(x))
            module[3].weight = torch.nn.Parameter(torch.randn(3, 8))
            same(compiled(x), module(x))
            expect(len(runs) - before == (3 if freeze else 0), f"freeze {freeze}: {len(runs) - before} programs are compiled")


def test_gradients_run_eagerly_with_one_warning():
    torch._dynamo.reset()
    stridec.torch_backend._warned = False
    module, x = net(), torch.randn(5, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for function in (torch.compile(module, backend="stridec"), torch.compile(lambda x: module(x) * 2, backend="stridec")):
            function(x).sum().backward()
    found = [str(w.message) for w in caught if "stridec" in str(w.message)]
    expect(len(found) == 1 and "no_grad" in found[0], str(found))
    expect(module[0].weight.grad is not None, "no gradient")


def test_unsupported_operators():
    def function(x):
        return torch.linalg.ldl_factor(torch._dirichlet_grad(x, x, x) + x.expand(3, 3)).LD

    torch._dynamo.reset()
    try:
        torch.compile(function, backend="stridec")(torch.ones(3))
        expect(False, "nothing is refused")
    except torch._dynamo.exc.BackendCompilerFailed as error:
        text = str(error)
        expect("linalg_ldl" in text and "_dirichlet_grad" in text and "with_torch.py" in text, text)
    eager = torch.compile(function, backend="stridec", options={"fallback": "eager"})
    expect(eager(torch.ones(3)).shape == (3, 3), "eager")
    torch._dynamo.reset()
    try:
        torch.compile(function, backend="stridec", options={"frezee": True})(torch.ones(3))
        expect(False, "an unknown option is taken")
    except torch._dynamo.exc.BackendCompilerFailed as error:
        expect("no option 'frezee'" in str(error), str(error))


def test_a_second_process_compiles_nothing():
    code = ("import torch, stridec, stridec.torch_backend as b, stridec._program as p, with_torch\n"
            "runs = with_torch.count_runs()\n"
            "with torch.no_grad(): torch.compile(with_torch.net(), backend=b.backend)(torch.ones(6, 4))\n"
            "print(len(runs))")
    path = os.pathsep.join([str(harness.ROOT / "python"), str(harness.ROOT / "tests/python")])
    counts = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
        expect(done.returncode == 0, done.stderr)
        counts.append(int(done.stdout.split()[-1]))
    expect(counts[1] == 0, f"the program runs {counts} times")
