"""Gradients of PyTorch's operators against autograd: gradients.py [REGEX] [--samples 4] [--dtype float64] [--bounds] [--out FILE]

Every operator of PyTorch's OpInfo with samples that have gradients: the loss is the sum of its results, each times a fixed
number, and the tensors that are differentiated are parameters of the module. `compile --train` makes the function `accumulate`,
whose states are the gradients. A sample agrees, is wrong, or is skipped: PyTorch does not export it, or stridec refuses it with
a sentence. --out: a JSON file with the counts, the wrong samples, and every reason with how many samples it skips.
tests/train/gradients has a part, written with --keep, which tests/train/run.py runs without torch.

Needs torch and expecttest; without torch it prints that it is skipped. The last line is "N passed, N failed".
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRIDEC = os.path.abspath(os.environ.get("stridec", ROOT / "build" / "stridec"))
# Results that differ from run to run, or that are not a function of the inputs.
RANDOM = re.compile(
    r"^(bernoulli|cauchy|exponential|geometric|log_normal|multinomial|normal|rand|uniform|empty|new_empty|svd_lowrank|pca_lowrank|"
    r"nn\.functional\.((alpha_|feature_alpha_)?dropout|rrelu|fractional_max_pool)|torch_ops_aten__(flash|efficient))"
)
# The gradient of `self` is kept where src overwrites it, and dropped elsewhere; differences say the opposite.
WRONG_IN_PYTORCH = {"as_strided_scatter"}
TOLERANCE = {"float64": 1e-7, "float32": 1e-3}


def modules(torch):
    class Sample(torch.nn.Module):
        """One call of an operator. Its differentiated tensors are parameters, everything else is fixed."""

        def __init__(self, call, process, leaves, spec):
            super().__init__()
            self.call, self.process, self.spec, self.fixed = call, process, spec, list(leaves)
            self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.requires_grad]
            self.p = torch.nn.ParameterList([torch.nn.Parameter(leaves[i].detach().clone()) for i in self.places])
            others = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and not x.requires_grad]
            self.others = others
            for i in others:
                self.register_buffer(f"b{i}", leaves[i].detach().clone())
            for i in self.places + others:
                self.fixed[i] = None

        def forward(self):
            leaves = list(self.fixed)
            for place, parameter in zip(self.places, self.p):
                leaves[place] = parameter
            for i in self.others:
                leaves[i] = getattr(self, f"b{i}")
            x, args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self.spec)
            results = torch.utils._pytree.tree_leaves(self.process(self.call(x, *args, **kwargs)))
            total = 0
            for y in results:
                if isinstance(y, torch.Tensor) and y.is_complex() and y.requires_grad:
                    y = torch.view_as_real(y.resolve_conj())
                if isinstance(y, torch.Tensor) and y.is_floating_point() and y.requires_grad:
                    weights = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).reshape(y.shape)
                    total = total + (y * weights).sum()
            return total

    class Several(torch.nn.Module):
        def __init__(self, samples):
            super().__init__()
            self.s = torch.nn.ModuleList(samples)

        def forward(self, x):
            for sample in self.s:
                x = x + sample().to(x.dtype)
            return x

    return Sample, Several


def samples_of(torch, options, skip):
    from torch.testing._internal.common_methods_invocations import op_db

    Sample, _ = modules(torch)
    dtype = getattr(torch, options.dtype)
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if not re.search(options.pattern, name) or RANDOM.search(name):
            continue
        if name in WRONG_IN_PYTORCH:
            skip(name, "PyTorch's own gradient is wrong")
            continue
        if not op.supports_autograd or dtype not in op.supported_dtypes("cpu"):
            continue
        try:
            found = list(op.sample_inputs("cpu", dtype, requires_grad=True))
        except Exception as error:
            skip(name, f"sample_inputs: {type(error).__name__}")
            continue
        step = max(1, len(found) // options.samples) if options.samples else 1
        for sample in found[::step][: options.samples or None]:
            if sample.kwargs.get("dropout_p"):
                continue
            leaves, spec = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            if any(isinstance(x, torch.Tensor) and x.layout != torch.strided for x in leaves):
                skip(name, "a tensor that is not strided")
                continue

            def call(*args, op=op, **kwargs):
                return op.gradcheck_wrapper(op.op, *args, **kwargs)

            text = sample.summary()[:200] if hasattr(sample, "summary") else ""
            try:
                module = Sample(call, sample.output_process_fn_grad, leaves, spec)
                total = module()
                if not isinstance(total, torch.Tensor):
                    skip(name, "eager: no result has a gradient")
                    continue
                gradients = torch.autograd.grad(total, list(module.p), allow_unused=True)
            except Exception as error:
                skip(name, f"eager: {type(error).__name__}: {str(error)[:80]}")
                continue
            gradients = [np.zeros(p.shape) if g is None else g.detach().numpy(force=True) for g, p in zip(gradients, module.p)]
            yield name, text, module, gradients


def bounds_of(torch):
    """Functions at the arguments where their derivative jumps: (name, function, argument)."""
    F, one, zero = torch.nn.functional, torch.ones(1), torch.zeros(1)
    return [
        ("relu", F.relu, 0), ("relu6", F.relu6, 0), ("relu6", F.relu6, 6), ("hardtanh", F.hardtanh, -1), ("hardtanh", F.hardtanh, 1),
        ("clamp", lambda x: x.clamp(0, 1), 0), ("clamp", lambda x: x.clamp(0, 1), 1), ("clamp_min", lambda x: x.clamp(min=0), 0),
        ("clamp_max", lambda x: x.clamp(max=0), 0), ("clamp to a tensor", lambda x: x.clamp(min=zero[0]), 0),
        ("maximum", lambda x: torch.maximum(x, zero), 0), ("fmax", lambda x: torch.fmax(x, zero), 0),
        ("hardsigmoid", F.hardsigmoid, -3), ("hardsigmoid", F.hardsigmoid, 3), ("hardswish", F.hardswish, -3), ("hardswish", F.hardswish, 3),
        ("leaky_relu", F.leaky_relu, 0), ("elu", F.elu, 0), ("celu", F.celu, 0), ("selu", F.selu, 0), ("prelu", lambda x: F.prelu(x, one / 4), 0),
        ("threshold", lambda x: F.threshold(x, 0.0, 0.0), 0), ("softshrink", F.softshrink, 0.5), ("hardshrink", F.hardshrink, 0.5),
        ("softplus", F.softplus, 0), ("logsigmoid", F.logsigmoid, 0), ("abs", torch.abs, 0), ("logaddexp", lambda x: torch.logaddexp(x, zero), 0),
        ("smooth_l1", lambda x: F.smooth_l1_loss(x, zero), 1), ("huber", lambda x: F.huber_loss(x, zero), 1), ("l1", lambda x: F.l1_loss(x, zero), 0),
        ("margin_ranking", lambda x: F.margin_ranking_loss(x, one, one), 1), ("hinge", lambda x: F.hinge_embedding_loss(x, -one), 1),
        ("multi_margin", lambda x: F.multi_margin_loss(torch.cat([x, zero])[None], torch.tensor([0])), 1),
        ("multilabel_margin", lambda x: F.multilabel_margin_loss(torch.cat([x, zero])[None], torch.tensor([[0, -1]])), 1),
        ("triplet", lambda x: F.triplet_margin_loss(x[None], zero[None], 3 * one[None], eps=0.0), 1),
        ("cosine_embedding", lambda x: F.cosine_embedding_loss(torch.cat([x, zero])[None], torch.tensor([[0.0, 1.0]]), -one), 1),
        ("bce_with_logits", lambda x: F.binary_cross_entropy_with_logits(x, zero), 0),
        ("largest norm", lambda x: torch.cat([x, one]).norm(float("inf")), 1),
    ]  # fmt: skip


def samples_at_bounds(torch):
    Sample, _ = modules(torch)
    for name, function, at in bounds_of(torch):
        leaves, spec = torch.utils._pytree.tree_flatten((torch.full((1,), float(at), requires_grad=True), (), {}))
        module = Sample(function, lambda y: y, leaves, spec)
        yield f"{name} at {at}", "", module, [g.numpy() for g in torch.autograd.grad(module(), list(module.p))]


def arrays_of(items):
    """The expected gradients by the names of the parameters."""
    return {f"s.{i}.p.{k}": g for i, item in enumerate(items) for k, g in enumerate(item[3])}


def flags(names):
    return ["--train", "loss=output:output,optimizer=sgd,functions=accumulate", *(f"--trainable={n}" for n in names)]


class Runner:
    def __init__(self, torch, work, skip, keep):
        self.torch, self.work, self.skip, self.keep = torch, work, skip, keep
        self.wrong, self.passed, self.count = [], 0, 0

    def exported(self, items):
        _, Several = modules(self.torch)
        self.count += 1
        path = self.work / f"{self.count}.pt2"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = self.torch.export.export(Several([m for _, _, m, _ in items]), (self.torch.zeros((), dtype=self.torch.float64),),
                                               strict=False)  # fmt: skip
            self.torch.export.save(program, path)
        return path

    def run(self, items):
        """In halves, where the samples cannot be exported, compiled or run together."""
        if not items:
            return

        def halves(reason):
            if len(items) == 1:
                return self.skip(items[0][0], reason)
            self.run(items[: len(items) // 2])
            return self.run(items[len(items) // 2 :])

        try:
            path = self.exported(items)
        except Exception as error:
            return halves(f"PyTorch does not export it: {type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}")
        reason = self.refusal(path, items)
        if reason:
            return halves(reason)
        artifact = path.with_suffix(".so")
        done = subprocess.run([STRIDEC, "compile", str(path), "-o", str(artifact), "-q", *flags(arrays_of(items))], capture_output=True, text=True,
                              timeout=500)  # fmt: skip
        if done.returncode:
            return halves("compile: " + next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:])[:200])
        np.savez_compressed(path.with_suffix(".npz"), **arrays_of(items))
        done = subprocess.run([sys.executable, __file__, "--worker", str(artifact), str(path.with_suffix(".npz"))], capture_output=True,
                              text=True, timeout=100)  # fmt: skip
        if done.returncode:
            if len(items) > 1:
                return halves("")
            try:
                self.torch.export.load(path).module()(self.torch.zeros((), dtype=self.torch.float64))
            except Exception as error:
                return self.skip(items[0][0], f"PyTorch does not run its own program: {type(error).__name__}")
            self.report(items[0], (done.stderr.strip().splitlines() or [f"signal {-done.returncode}"])[-1])
            return None
        found = json.loads(done.stdout.splitlines()[-1])
        for i, item in enumerate(items):
            mine = [why for key, why in found.items() if key.startswith(f"s.{i}.")]
            if mine:
                self.report(item, "; ".join(mine))
            else:
                self.passed += 1
        if self.keep and not found:
            import write_programs

            write_programs.repack(path, self.keep / path.name)
            (self.keep / path.with_suffix(".npz").name).write_bytes(path.with_suffix(".npz").read_bytes())
        return None

    def report(self, item, why):
        self.wrong.append({"op": item[0], "sample": item[1], "why": why})
        print(f"{item[0]}: {why}\n      {item[1]}", flush=True)

    def refusal(self, path, items):
        done = subprocess.run([STRIDEC, "check", "--format=json", str(path), *flags(arrays_of(items))], capture_output=True, text=True, timeout=200)
        if done.returncode == 0:
            return None
        try:
            report = json.loads(done.stdout)
            problems = report.get("problems") or report.get("training", {}).get("problems") or [report["error"]]
            return f"{problems[0].get('op') or problems[0].get('code')}: {problems[0]['message']}"[:200]
        except (ValueError, KeyError, IndexError):
            return f"exit {done.returncode}: {(done.stdout + done.stderr).strip()[-200:]}"


def compared(artifact, arrays):
    """By name, what is wrong with the gradients that one run of the artifact accumulates."""
    sys.path.insert(0, str(ROOT / "python"))
    import stridec

    want = np.load(arrays)
    model = stridec.Model(artifact)
    context = model.context(threads=1)
    context.run(np.zeros((), np.float64))
    known = {s.name for s in model.states}
    wrong = {}
    for name in want.files:
        expected = want[name].astype(np.float64)
        got = np.asarray(context.state(f"gradient.{name}"), np.float64) if f"gradient.{name}" in known else np.zeros(expected.shape)
        tolerance = TOLERANCE[str(want[name].dtype)]
        finite = np.isfinite(expected)
        same = np.array_equal(np.nan_to_num(expected[~finite], nan=7), np.nan_to_num(got[~finite], nan=7))
        scale = max(1.0, np.abs(expected[finite]).max(initial=0))
        off = np.abs(np.where(finite, expected, 0) - np.where(finite, got, 0)).max(initial=0) / scale
        if got.shape != expected.shape or not same or not off <= tolerance:
            wrong[name] = f"{off:.1e}, expected {expected.ravel()[:4]} {expected.shape}, got {got.ravel()[:4]}"
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--samples", type=int, default=4, help="of each operator; 0: all")
    parser.add_argument("--per-file", type=int, default=24)
    parser.add_argument("--dtype", default="float64", choices=TOLERANCE)
    parser.add_argument("--bounds", action="store_true", help="instead of OpInfo's samples: functions where their derivative jumps")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path, help="write programs that agree and their gradients into this folder")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("skipped: there is no torch\n0 passed, 0 failed")
        return 0
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    skipped, operators = collections.Counter(), set()

    def skip(name, reason):
        skipped[f"{name}: {reason}"] += 1

    def report():
        counts = {"operators": len(operators), "passed": runner.passed, "wrong": len(runner.wrong), "skipped": sum(skipped.values())}
        if options.out:
            options.out.write_text(json.dumps({**counts, "wrong_samples": runner.wrong, "reasons": dict(sorted(skipped.items()))},
                                              indent=1) + "\n")  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(torch, pathlib.Path(folder), skip, options.keep)
        batch = []
        for item in samples_at_bounds(torch) if options.bounds else samples_of(torch, options, skip):
            operators.add(item[0])
            batch.append(item)
            if len(batch) == options.per_file:
                runner.run(batch)
                report()
                for path in pathlib.Path(folder).iterdir():
                    path.unlink()
                batch = []
        runner.run(batch)
    report()
    print(f"{len(operators)} operators; {sum(skipped.values())} samples are skipped for {len(skipped)} reasons")
    print(f"{runner.passed} passed, {len(runner.wrong)} failed")
    return 1 if runner.wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(compared(*sys.argv[2:4])))
    else:
        sys.exit(main())
