"""Random draws on a GPU with the bits of PyTorch's: python tests/gpu/random_draws.py PROGRAM [name...]

PROGRAM is stridec. Each case is a small module that is exported, compiled with `--target cuda -O fallback_random=true`, and run
several times after a seed; PyTorch runs the module on the same GPU after the same seed, and all results have to be equal in
every bit. At the end the offset of both generators has to be the same. Needs a GPU and PyTorch. The last line is
"N passed, N failed".

--gpu NAME compiles for another GPU than sm_90a.
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SEED, RUNS = 20261201, 3
# Elements: less than a block, a remainder, more than the device holds threads, and several turns of all threads.
COUNTS = (1, 5, 255, 4097, 300_000, 3_000_001)
# Distributions of functions whose fast forms on GPUs are not reproduced: within this relative distance.
CLOSE = {"cauchy_": 0.1, "log_normal_": 1e-5, "geometric_": 1, "exponential_ f64": 1e-14, "normal f64": 1e-14,
         "randn f64": 1e-14}


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def short(dtype):
    return {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}.get(dtype, str(dtype)[6:])


def sized(make):
    """One result for each of COUNTS, drawn one after the other."""
    return lambda x: tuple(make(x, n) for n in COUNTS)


def empty(n, dtype, x):
    return torch.empty(n, dtype=dtype, device=x.device)


def cases():
    """Pairs of a name and a function of a f32 matrix [6, 100]."""
    for d in KINDS:
        yield f"rand {short(d)}", sized(lambda x, n, d=d: torch.rand(n, dtype=d, device=x.device))
        yield f"randn {short(d)}", sized(lambda x, n, d=d: torch.randn(n, dtype=d, device=x.device))
        yield f"uniform_ {short(d)}", sized(lambda x, n, d=d: empty(n, d, x).uniform_(-0.3, 1.7))
        yield f"normal_ {short(d)}", sized(lambda x, n, d=d: empty(n, d, x).normal_(0.2, 3.3))
        yield f"exponential_ {short(d)}", sized(lambda x, n, d=d: empty(n, d, x).exponential_(2.5))
        yield f"bernoulli_ {short(d)}", sized(lambda x, n, d=d: empty(n, d, x).bernoulli_(0.3))
        yield f"random_ {short(d)}", sized(lambda x, n, d=d: empty(n, d, x).random_())
        yield f"dropout {short(d)}", sized(lambda x, n, d=d: torch.nn.functional.dropout(torch.ones(n, dtype=d, device=x.device), 0.3))
        yield f"dropout_ {short(d)}", lambda x, d=d: torch.dropout_(torch.full((999,), 3.0, dtype=d, device=x.device), 0.4, True)
        yield f"cauchy_ {short(d)}", lambda x, d=d: empty(999, d, x).cauchy_(0.2, 3.0)
        yield f"log_normal_ {short(d)}", lambda x, d=d: empty(999, d, x).log_normal_(0.2, 0.7)
        yield f"geometric_ {short(d)}", lambda x, d=d: empty(999, d, x).geometric_(0.2)
        yield f"dropout of even numbers {short(d)}", lambda x, d=d: tuple(
            torch.nn.functional.dropout(x.reshape(-1)[:n].to(d), 0.5) for n in (2, 4, 6, 8, 12, 16, 600))
    for d in (torch.int64, torch.int32, torch.uint8, torch.bool):
        yield f"random_ {short(d)}", sized(lambda x, n, d=d: empty(n, d, x).random_())
    yield "randperm", lambda x: tuple(torch.randperm(n, device=x.device) for n in (1, 2, 10, 100, 300, 1000, 3000, 20_000, 40_000))
    yield "randperm again", lambda x: tuple(torch.randperm(n, device=x.device, dtype=torch.int32) for n in range(50, 80))
    yield "randint", sized(lambda x, n: torch.randint(-3, 997, (n,), device=x.device))
    yield "randint of 2^28", sized(lambda x, n: torch.randint(2**28, (n,), dtype=torch.int32, device=x.device))
    yield "randint of 2^40", sized(lambda x, n: torch.randint(2**40, (n,), device=x.device))
    yield "bernoulli of a tensor", lambda x: (torch.bernoulli(x.sigmoid()), torch.bernoulli(x.sigmoid().half()),
                                              torch.empty_like(x).bernoulli_(x.sigmoid()), torch.bernoulli(x.sigmoid().double()))
    yield "normal of a tensor", lambda x: (torch.normal(x, 0.5), torch.normal(0.5, x.abs()), torch.normal(x, x.abs()))
    yield "native_dropout", lambda x: torch.native_dropout(x, 0.3, True)
    yield "dropout of channels", lambda x: (torch.nn.functional.dropout2d(x.reshape(6, 4, 5, 5), 0.3),
                                            torch.nn.functional.alpha_dropout(x, 0.3))
    yield "like a transposed tensor", lambda x: (torch.rand_like(x.t()), torch.randn_like(x.t()), torch.nn.functional.dropout(x.t(), 0.3))
    yield "multinomial", lambda x: (torch.multinomial(x.abs() + 0.01, 1), torch.multinomial(x.abs() + 0.01, 5))
    yield "one after the other", lambda x: (torch.rand(3, device=x.device), torch.randn(500, device=x.device),
                                            torch.nn.functional.dropout(x, 0.1), torch.randint(9, (7,), device=x.device), torch.rand(3, device=x.device))


def flat(results):
    return [t.cpu() for t in (results if isinstance(results, (tuple, list)) else (results,))]


def bits(tensor):
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()]).numpy()


def as_tensor(value, like):
    array = np.array(value)
    if like.dtype == torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def apart(expected, actual):
    """The largest relative distance."""
    e, a = expected.double(), actual.double()
    return float(((e - a).abs() / e.abs().clamp(min=1e-3)).max())


def allowed(name):
    return next((limit for word, limit in CLOSE.items() if all(w in name for w in word.split())), 0)


def sample():
    return torch.from_numpy(np.random.default_rng(5).standard_normal((6, 100)).astype(np.float32)).cuda()


def export(function, path):
    """Why PyTorch does not export the case; None if it does."""
    try:
        torch.export.save(torch.export.export(Function(function).train(), (sample(),), strict=False), path)
    except Exception as error:  # the other cases still run
        return f"{type(error).__name__}: {str(error)[:300]}"
    return None


def build(program, gpu, path):
    """Why the case does not compile; None if it does."""
    run = subprocess.run([program, "compile", str(path), "-o", str(path.with_suffix(".so")), "--target", "cuda", "--gpu", gpu, "-O",
                          "fallback_random=true"], capture_output=True, text=True, timeout=300)
    return run.stderr.strip()[-300:] if run.returncode else None


def run_case(stridec, name, function, artifact):
    """Where the results differ; None if they do not."""
    module, x = Function(function).train(), sample()
    context = stridec.Model(str(artifact), device="cuda:0").context()
    found = torch.cuda.get_device_properties(0)
    threads = found.multi_processor_count * (found.max_threads_per_multi_processor // 256 * 256)
    context.write_state("generator", np.array([SEED, 0, threads], np.int64))
    torch.cuda.manual_seed(SEED)
    for turn in range(RUNS):
        with torch.no_grad():
            expected = flat(module(x))
        actual = [as_tensor(a, e) for a, e in zip(context.run(x.cpu().numpy()), expected)]
        for k, (e, a) in enumerate(zip(expected, actual)):
            if e.dtype != a.dtype or e.shape != a.shape:
                return f"run {turn}, result {k}: {a.dtype} {tuple(a.shape)} instead of {e.dtype} {tuple(e.shape)}"
            different = bits(e) != bits(a)
            if different.any() and apart(e, a) > allowed(name):
                at = int(np.flatnonzero(different.reshape(-1))[0])
                return (f"run {turn}, result {k} of {e.numel()}: {int(different.sum())} differ, the first at {at}: "
                        f"{a.reshape(-1)[at].item()} instead of {e.reshape(-1)[at].item()}; {apart(e, a):.1e} apart")
    offset = int(np.frombuffer(torch.cuda.get_rng_state(0).numpy().tobytes(), np.int64)[1])
    state = context.state("generator")
    return None if int(state[1]) == offset else f"the offset is {int(state[1])} instead of {offset}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--gpu", default="sm_90a")
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    os.environ.setdefault("STRIDEC_PROGRAM", program)
    sys.path.insert(0, str(ROOT / "python"))
    import stridec

    chosen = [(n, f) for n, f in cases() if not options.names or any(word in n for word in options.names)]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        paths = [pathlib.Path(work) / f"case{i}.pt2" for i in range(len(chosen))]
        exported = [export(function, path) for (_, function), path in zip(chosen, paths)]
        built = [reason or pool.submit(build, program, options.gpu, path) for reason, path in zip(exported, paths)]
        for (name, function), path, each in zip(chosen, paths, built):
            try:
                reason = each if isinstance(each, str) else each.result()
                reason = reason or run_case(stridec, name, function, path.with_suffix(".so"))
            except Exception as error:  # the other cases still run
                reason = f"{type(error).__name__}: {str(error)[:300]}"
            passed, failed = passed + (reason is None), failed + (reason is not None)
            if reason:
                print(f"FAILED {name}: {reason}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
