"""PyTorch's own samples of operators (OpInfo) as programs with inputs and results, many in each. Needs PyTorch and expecttest.

DIR/NNNN.pt2 holds samples one after the other: their tensors are inputs, everything else stands in the graph. DIR/NNNN.npz has i0,
... (inputs), o0, ... (PyTorch's results) and, of results in half precision, w0, ... (the results of the same inputs in float64).
DIR/NNNN.json names the operator of each output.
"""

import json
import random
import re
import warnings

import numpy as np
import torch

import sizes

# Results that differ from run to run, or that are not a function of the inputs.
RANDOM = re.compile(
    r"^(bernoulli|cauchy|exponential|geometric|log_normal|multinomial|normal|rand|uniform|empty|new_empty|svd_lowrank|pca_lowrank|"
    r"nn\.functional\.((alpha_|feature_alpha_)?dropout|rrelu|fractional_max_pool)|torch_ops_aten__(flash|efficient))"
)
NARROW = (torch.bfloat16, torch.float16)
pytree = torch.utils._pytree


def is_plain(t):
    return t.layout == torch.strided and not t.is_quantized and not t.is_nested and t.dtype != torch.complex32


class Sample(torch.nn.Module):
    """One call of an operator with everything but its tensors fixed."""

    def __init__(self, name, call, leaves, spec):
        super().__init__()
        self.name, self.call, self.spec = name, call, spec
        self.tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        self.fixed = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def forward(self, *tensors):
        leaves = list(self.fixed)
        for place, tensor in zip(self.places, tensors):
            leaves[place] = tensor
        x, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return tuple(t for t in pytree.tree_leaves(self.call(x, *args, **kwargs)) if isinstance(t, torch.Tensor))

    def wide(self, results):
        """The results in float64 by place, of those in half precision; none where the call does not allow it."""
        tensors = [t.double() if t.dtype in NARROW else t.clone() for t in self.tensors]
        fixed = self.fixed
        try:
            self.fixed = [torch.float64 if x in NARROW else x for x in fixed]
            wide = self.forward(*tensors)
        except Exception:  # an operator without this dtype
            return {}
        finally:
            self.fixed = fixed
        return {k: w for k, (w, r) in enumerate(zip(wide, results)) if r.dtype in NARROW and w.dtype == torch.float64}


class Several(torch.nn.Module):
    def __init__(self, samples):
        super().__init__()
        self.samples = list(samples)

    def forward(self, *tensors):
        outputs, at = [], 0
        for sample in self.samples:
            outputs.extend(sample.forward(*tensors[at : at + len(sample.places)]))
            at += len(sample.places)
        return tuple(outputs)


def samples_of(pattern, dtype, most, seed):
    """Samples with their results; at most so many of an operator, spread over its list, which goes from plain to odd, or drawn
    by the seed."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if not re.search(pattern, name) or RANDOM.search(name) or dtype not in op.supported_dtypes("cpu"):
            continue
        try:
            found = list(op.sample_inputs("cpu", dtype, requires_grad=False))
        except Exception:  # OpInfo's own
            continue
        step = max(1, len(found) // most) if most else 1
        chosen = found[::step][: most or None]
        if most and seed is not None:
            chosen = random.Random(f"{seed} {name}").sample(found, min(most, len(found)))
        for sample in chosen:
            leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            made = Sample(name, op.op, leaves, spec)
            if sample.kwargs.get("dropout_p") or any(not is_plain(t) for t in made.tensors):
                continue
            try:
                results = made.forward(*[t.clone() for t in made.tensors])
            except Exception:  # PyTorch refuses it
                continue
            if results and all(is_plain(t) for t in results):
                yield made, results


def turned(t):
    """The same elements with the dims in memory in the opposite order."""
    order = tuple(reversed(range(t.ndim)))
    return t.permute(order).contiguous().permute(order)


def write(batch, path, decomposed=False):
    """Raises what PyTorch raises where it cannot export, or cannot run what it exported."""
    tensors = [t for sample, _ in batch for t in sample.tensors]
    program = torch.export.export(Several(s for s, _ in batch), tuple(tensors), strict=False)
    if decomposed:
        program = program.run_decompositions()
    torch.export.save(program, path)
    expected = [t for _, results in batch for t in results]
    for got, wanted in zip(torch.export.load(path).module()(*[t.clone() for t in tensors]), expected):
        torch.testing.assert_close(got.to(wanted.dtype), wanted, equal_nan=True, check_stride=False)
    arrays = {f"i{k}": sizes.array(t) for k, t in enumerate(tensors)} | {f"o{k}": sizes.array(t) for k, t in enumerate(expected)}
    at = 0
    for sample, results in batch:
        arrays |= {f"w{at + k}": sizes.array(t) for k, t in sample.wide(results).items()}
        at += len(results)
    np.savez(path.with_suffix(".npz"), **arrays)
    path.with_suffix(".json").write_text(json.dumps([sample.name for sample, results in batch for _ in results]))


def export(folder, dtype, pattern="", most=4, seed=None, per_file=32, decomposed=False, strided=False):
    """Writes the programs; how many samples PyTorch itself does not export. `strided`: inputs that are not row-major."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    folder.mkdir(parents=True, exist_ok=True)
    batch, count, failed = [], 0, 0

    def put(items):
        """In halves, where PyTorch cannot export all of them together."""
        nonlocal count, failed
        if not items:
            return
        path = folder / f"{count:04d}.pt2"
        try:
            write(items, path, decomposed)
            count += 1
        except Exception:  # PyTorch's own limits
            path.unlink(missing_ok=True)
            if len(items) == 1:
                failed += 1
                return
            put(items[: len(items) // 2])
            put(items[len(items) // 2 :])

    for sample, results in samples_of(pattern, getattr(torch, dtype), most, seed):
        if strided:
            sample.tensors = [turned(t) for t in sample.tensors]
            try:
                results = sample.forward(*[t.clone() for t in sample.tensors])
            except Exception:  # a view that these strides do not allow
                continue
        batch.append((sample, results))
        if len(batch) == per_file:
            put(batch)
            batch = []
    put(batch)
    return failed
