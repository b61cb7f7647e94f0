"""Ten families of models against PyTorch, 100 steps each: python tests/train/models.py [name...] [--all] [--steps 100]

Each row of JOBS is a model of families.py, a format and an optimizer: exported by torch.export or to ONNX, compiled with
--train, and trained beside PyTorch with the same initial bytes and batches. The loss of each step is within 1e-4 of PyTorch's
(relative, or absolute below 1), and parameters and statistics at the end within 1e-3 of how far PyTorch's moved.

A job that exceeds the limits "amplifies" roundings, and is counted apart, if both hold: PyTorch goes at least half as far from
its own training in f32 in f64, or where each initial weight is moved by one rounding; and in f64 stridec is within the limits.
A ReLU whose argument is 0 but for roundings is enough for that.

Without --all a part runs that takes under a minute. Needs torch, onnx and onnxscript; without torch it prints that it is
skipped. The last line is "N passed, N failed".
"""

import argparse
import copy
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRIDEC = os.path.abspath(os.environ.get("stridec", ROOT / "build" / "stridec"))
sys.path.insert(0, str(ROOT / "python"))
OF_LOSS, OF_STATES = 1e-4, 1e-3
BATCHES, MOVED = 8, 4

# Model, format, the optimizer's text, and x for the sample. The biases of keys, and weights before a batch normalization, have
# gradients that are 0 but for roundings: a larger eps keeps optimizers that divide by a gradient's size from making steps of them.
JOBS = """
gpt2               pt2   adamw,lr=2e-3,eps=1e-6,weight_decay=0.1                        x
gpt2               onnx  sgd,lr=0.05,momentum=0.9
llama              onnx  lion,lr=5e-4,weight_decay=0.1
gpt2               pt2   muon,lr=5e-3,other_lr=0.3,eps=1e-6
llama              pt2   adamw,lr=2e-3,beta2=0.95,clip_norm=1
llama              onnx  adafactor,lr=1e-2
llama              pt2   nadam,lr=1e-3
bert               pt2   adam,lr=1e-3,eps=1e-6,amsgrad=1
bert               onnx  radam,lr=2e-3,eps=1e-6
vit                pt2   nadam,lr=1e-3,eps=1e-6                                         x
vit                onnx  adamw,lr=1e-3,eps=1e-6
vit                pt2   muon,lr=5e-3,other_lr=0.3,eps=1e-6
resnet             pt2   sgd,lr=0.01,momentum=0.9,weight_decay=1e-3
resnet             onnx  sgd,lr=0.01,momentum=0.9,nesterov=1                            x
resnet             pt2   rmsprop,lr=3e-5,eps=1e-3
resnet-bottleneck  pt2   adamw,lr=1e-3,eps=1e-4
resnet-bottleneck  onnx  adadelta,lr=0.1
mobilenet          pt2   rmsprop,lr=1e-4,momentum=0.5,eps=1e-3
mobilenet          onnx  sgd,lr=0.005,momentum=0.9
unet               pt2   adam,lr=1e-3                                                   x
unet               onnx  adagrad,lr=1e-3
unet               pt2   lion,lr=2e-4
lstm               pt2   adadelta,lr=1
lstm               onnx  adam,lr=5e-3
moe                pt2   adafactor,lr=1e-2
moe                onnx  radam,lr=2e-3
moe                pt2   adamw,lr=2e-3,clip_value=0.05                                  x
recommender        pt2   adagrad,lr=2e-2                                                x
recommender-sums   onnx  rmsprop,lr=2e-3,centered=1
"""
KEYS = {"beta1": None, "beta2": None, "other_lr": None, "clip_norm": None, "clip_value": None}


def settings_of(text):
    kind, *pairs = text.split(",")
    return kind, {key: float(value) for key, value in (pair.split("=") for pair in pairs)}


def optimizers(model, text):
    """PyTorch's of the text of --train; Muon's are two."""
    from torch import optim

    from torch_lion import Lion

    kind, given = settings_of(text)
    options = {key: bool(v) if key in ("nesterov", "amsgrad", "centered") else v for key, v in given.items() if key not in KEYS}
    if "beta1" in given or "beta2" in given:
        options["betas"] = (given.get("beta1", 0.9), given.get("beta2", 0.999))
    parameters = list(model.parameters())
    if kind == "muon":
        others = [p for p in parameters if p.ndim != 2]
        lr = options["lr"]
        return [optim.Muon([p for p in parameters if p.ndim == 2], lr, weight_decay=0.1),
                optim.AdamW(others, lr * given["other_lr"], eps=options["eps"], weight_decay=0.1)]  # fmt: skip
    names = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "nadam": "NAdam", "radam": "RAdam", "adagrad": "Adagrad",
             "adadelta": "Adadelta", "rmsprop": "RMSprop", "adafactor": "Adafactor"}  # fmt: skip
    return [Lion(parameters, **options) if kind == "lion" else getattr(optim, names[kind])(parameters, **options)]


class Peer:
    """PyTorch's training of a copy of the model."""

    def __init__(self, model, text, dtype):
        self.model, self.dtype = copy.deepcopy(model).to(dtype).train(), dtype
        self.given = settings_of(text)[1]
        self.optimizers = optimizers(self.model, text)

    def step(self, inputs, target):
        from torch import nn

        def wide(t):
            return t.to(self.dtype) if t.is_floating_point() else t

        for each in self.optimizers:
            each.zero_grad()
        loss = self.model.loss(self.model(*map(wide, inputs)), wide(target))
        loss.backward()
        if "clip_norm" in self.given:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.given["clip_norm"])
        if "clip_value" in self.given:
            nn.utils.clip_grad_value_(self.model.parameters(), self.given["clip_value"])
        for each in self.optimizers:
            each.step()
        return loss.item()


def write_model(model, inputs, form, folder):
    """The file, and the name of its output."""
    import torch

    if form == "pt2":
        # Batch normalization is trained in the form in which a program was exported.
        torch.export.save(torch.export.export(copy.deepcopy(model).train(), inputs, strict=False), folder / "model.pt2")
        return folder / "model.pt2", "output"
    torch.onnx.export(copy.deepcopy(model).eval(), inputs, folder / "model.onnx", output_names=["y"], dynamo=True, optimize=False,
                      external_data=False, verbose=False)  # fmt: skip
    return folder / "model.onnx", "y"


def relative(a, b):
    return abs(a - b) / max(abs(b), 1) if np.isfinite(a) and np.isfinite(b) else float(not (np.isnan(a) and np.isnan(b)))


def tensors(model):
    """Parameters and statistics, by all of their names."""
    return {name: t.detach().double().numpy() for name, t in model.state_dict().items() if t.is_floating_point()}


def moved(got, want, before):
    """How far the tensors are from those of `want`, as a share of how far these moved."""
    off = sum(((got[name] - want[name]) ** 2).sum() for name in got)
    way = sum(((before[name] - want[name]) ** 2).sum() for name in got)
    return (off / way) ** 0.5


def states(context, model):
    """The artifact's states that are tensors of the model, and the names of those that no state has."""
    known, shared = {s.name for s in context.model.states}, {}
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            shared.setdefault(tensor.data_ptr(), []).append(name)
    found = {names[0]: [n for n in names if n in known] for names in shared.values()}
    return ({names[0]: context.state(names[0]).astype(np.float64) for names in found.values() if names},
            [name for name, names in found.items() if not names])  # fmt: skip


class Job:
    """A model, its batches, and PyTorch's trainings of it."""

    def __init__(self, name, form, text, steps):
        import families
        import torch

        torch.manual_seed(1)
        self.model, self.form, self.text, self.steps = families.FAMILIES[name](), form, text, steps
        generator = torch.Generator().manual_seed(2)
        self.batches = []
        for _ in range(BATCHES):
            inputs = self.model.inputs(generator)
            self.batches.append((inputs, self.model.target(generator, copy.deepcopy(self.model).eval()(*inputs).detach())))
        self.known = {}

    def peer(self, dtype, moved_by=None):
        """PyTorch's losses and tensors. `moved_by`: a seed that moves each initial weight by one rounding."""
        import torch

        if (dtype, moved_by) not in self.known:
            model = copy.deepcopy(self.model)
            if moved_by is not None:
                generator = torch.Generator().manual_seed(moved_by)
                with torch.no_grad():
                    for p in model.parameters():
                        p.mul_(1 + torch.sign(torch.randn(p.shape, generator=generator)) * 2**-23)
            peer = Peer(model, self.text, dtype)
            losses = [peer.step(*self.batches[step % BATCHES]) for step in range(self.steps)]
            self.known[dtype, moved_by] = losses, tensors(peer.model)
        return self.known[dtype, moved_by]

    def ours(self, dtype, folder):
        """The artifact's losses and tensors. Throws a sentence if there is none."""
        import stridec

        def wide(t):
            return (t.to(dtype) if t.is_floating_point() else t).numpy()

        model = copy.deepcopy(self.model).to(dtype)
        inputs = tuple(t.to(dtype) if t.is_floating_point() else t for t in self.batches[0][0])
        file, output = write_model(model, inputs, self.form, folder)
        library = folder / f"{str(dtype)[6:]}.so"  # a library of one name is loaded once
        command = [STRIDEC, "compile", str(file), "-o", str(library), "-q", "--train",
                   model.train_text.format(y=output) + f",optimizer={self.text},functions=train_step"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[:400]}")
        context = stridec.Model(str(library)).context(threads=1)
        losses = []
        for step in range(self.steps):
            inputs, target = self.batches[step % BATCHES]
            losses.append(float(context.run(*map(wide, inputs), wide(target))[0]))
        own, missing = states(context, self.model)
        if missing:
            raise RuntimeError(f"there is no state for {', '.join(missing)}")
        return losses, own


class Distance:
    """Of two trainings: the largest difference of a loss, the first step beyond the limit, and of the tensors."""

    def __init__(self, got, want, before):
        each = [relative(a, b) for a, b in zip(got[0], want[0])]
        self.loss, self.states = max(each), moved(got[1], want[1], before)
        self.step = next((i + 1 for i, off in enumerate(each) if not off <= OF_LOSS), None)
        self.within = self.step is None and self.states <= OF_STATES

    def __str__(self):
        beyond = f" (step {self.step} is the first beyond)" if self.step else ""
        return f"loss {self.loss:.1e}{beyond}, states {self.states:.1e}"


def amplifies(job, found, before, folder):
    """(whether PyTorch moves as far by roundings alone, and in f64 stridec is within the limits; what was found)"""
    import torch

    theirs = job.peer(torch.float32)
    peers = [job.peer(torch.float64)] + [job.peer(torch.float32, seed) for seed in range(MOVED)]
    spread = [Distance(peer, theirs, before) for peer in peers]
    text = f"; PyTorch by roundings: {'; '.join(map(str, spread))}"
    far = max(d.loss for d in spread) >= found.loss / 2 and max(d.states for d in spread) >= found.states / 2
    if job.text.startswith("muon"):  # it iterates in bf16, which f64 does not make exact
        return far, text
    exact = Distance(job.ours(torch.float64, folder), job.peer(torch.float64), before)
    return far and exact.loss <= OF_LOSS and exact.states <= OF_STATES, text + f"; in f64: {exact}"


def train(name, form, text, steps, folder):
    """(verdict, detail)"""
    import torch

    job = Job(name, form, text, steps)
    start = time.time()
    try:
        got = job.ours(torch.float32, folder)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return "failed", str(error)
    seconds = time.time() - start
    before, theirs = tensors(job.model), job.peer(torch.float32)
    found = Distance(got, theirs, before)
    detail = f"{found}; {theirs[0][0]:.3f} -> {theirs[0][-1]:.3f}, {seconds:.0f} s"
    if found.within:
        return "passed", detail
    chaotic, why = amplifies(job, found, before, folder)
    return ("amplifies" if chaotic else "failed"), detail + why


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("skipped: there is no torch\n0 passed, 0 failed")
        return 0
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts = {"passed": 0, "amplifies": 0, "failed": 0}
    used = set()
    for row in JOBS.strip().splitlines():
        name, form, text, *sample = row.split()
        if options.names and not set(options.names) & {name, form, text.split(",")[0], f"{name}:{form}:{text.split(',')[0]}"}:
            continue
        if not (options.all or options.names or sample):
            continue
        used.add((name, text.split(",")[0]))
        with tempfile.TemporaryDirectory() as folder:
            try:
                verdict, detail = train(name, form, text, options.steps, pathlib.Path(folder))
            except Exception as error:  # the others still run
                verdict, detail = "failed", f"{type(error).__name__}: {str(error)[:400]}"
        counts[verdict] += 1
        print(f"{verdict:9} {name} {form} {text}: {detail}", flush=True)
    print(f"{len({m for m, _ in used})} models, {len({o for _, o in used})} optimizers, {options.steps} steps; "
          f"{counts['amplifies']} amplify roundings beyond the limits")  # fmt: skip
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
