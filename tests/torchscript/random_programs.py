"""Random scripted programs that branch, loop and write in place, against PyTorch: python tests/torchscript/random_programs.py
[--count N] [--seed S] [--first I] [--alias]

The number i and the seed S determine the program. It has tensors y and z, a row, a list and a number; names are bound anew, and
tensors written through views, in branches and loops that data decide. Half of the programs (with --alias: all) also give one tensor
several names; where the artifact cannot know which tensor a write changes, the compilation is refused, which counts as
passed. Another refusal, other values than PyTorch's, or more than half of a group refused, is a failure. Needs PyTorch; without it the
suite is skipped. The last line is "N passed, N failed".
"""

import argparse
import collections
import importlib.util
import pathlib
import random
import sys
import tempfile
import warnings

import numpy as np

import compare

TOLERANCE = 1e-4
REFUSALS = ("unsupported-alias", "in place under another name")


class Program:
    """The source of one program."""

    CONDITIONS = ["bool(y.sum() > 0)", "bool(z[0, 0] > 0)", "bool(x.max() > 1)", "bool((y + z).mean() < 2)", "k < int(y.sum()) % 3"]
    WRITES = ["y.add_(1)", "z.mul_(0.5)", "y[0] = z[1]", "z[1].add_(y[0])", "y[:, 1] = 3", "z.t()[0].sub_(1)", "y.copy_(z)", "y += z",
              "part.sub_(2)", "pair[0].add_(3)", "pair[1][0] = x[1]"]  # fmt: skip
    VALUES = ["y", "z", "y * 2", "z - 1", "y + z", "y.flip(0)", "z + k", "x * y", "part + z", "pair[0] - y"]

    def __init__(self, choices, alias):
        self.choices, self.alias, self.loops = choices, alias, 0
        views = ["part = y[1]", "pair = [y, z]"] if alias else ["part = y[1] * 1", "pair = [y * 1, z * 1]"]
        self.lines = ["y = x * 1", "z = x + 1", *views, "k = 0"]
        for _ in range(choices.randint(2, 4)):
            self.lines += self.statement(0)

    def value(self):
        value = self.choices.choice(self.VALUES)
        return value if self.alias else f"({value}) * 1"

    def block(self, depth):
        lines = [line for _ in range(self.choices.randint(1, 2)) for line in self.statement(depth + 1)]
        return [f"    {line}" for line in lines]

    def loop(self, depth):
        self.loops += 1
        lines = self.block(depth)
        self.loops -= 1
        return lines

    def statement(self, depth):
        kind = self.choices.random()
        if kind < 0.25:
            return [f"{self.choices.choice('yz')} = {self.value()}"]
        if kind < 0.3 and not self.loops:  # a list that such a loop changes is refused
            return [f"pair[{self.choices.randint(0, 1)}] = {self.value()}"]
        if kind < 0.55:
            return [self.choices.choice(self.WRITES)]
        if kind < 0.6:
            return ["k += 1"]
        if depth >= 2:
            return ["y = y + 1"]
        if kind < 0.85:
            lines = [f"if {self.choices.choice(self.CONDITIONS)}:", *self.block(depth)]
            return lines + (["else:", *self.block(depth)] if self.choices.random() < 0.6 else [])
        if kind < 0.93:
            return [f"for i{depth} in range(x.size(0)):", *self.loop(depth)]
        step = f"n{depth}"
        return [f"{step} = 0", f"while {step} < 3 and bool(z.sum() < 9.0):", f"    {step} += 1", *self.loop(depth)]

    def source(self):
        head = ["import torch", "", "", "class Program(torch.nn.Module):", "    def forward(self, x):"]
        return "\n".join(head + [f"        {line}" for line in [*self.lines, "return y, z, part, pair[0], pair[1]"]]) + "\n"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Program()


def inputs_of(torch, program, seed):
    """The runs that PyTorch accepts: pairs of input and results."""
    runs = []
    for k, rows in enumerate((2, 3, 3)):
        generator = torch.Generator().manual_seed(seed * 3 + k)
        x = torch.randn(rows, 2, generator=generator)
        runs.append((x.numpy(), [t.numpy() for t in program(x.clone())]))
    return runs


def verdict(torch, program, path, seed, work):
    """(passed, what happened)"""
    import stridec

    torch.jit.save(torch.jit.script(program), path)
    artifact = work / "program.so"
    code, _, errors = compare.command("compile", path, "--shape", "x=n,2", "-o", artifact)
    if code:
        first = next((line for line in errors.splitlines() if line.startswith("error")), errors.strip()[-200:])
        return any(r in errors for r in REFUSALS), f"refused: {first}"
    context = stridec.Model(str(artifact)).context(threads=1)
    for x, expected in inputs_of(torch, program, seed):
        try:
            results = context.run(x)
        except stridec.Error as error:
            return False, f"fails: {error}"
        worst = max(compare.difference(e, r) for e, r in zip(expected, results))
        if not worst <= TOLERANCE:
            return False, f"differs by {worst:.1e} for x = {np.array2string(x, precision=3)}"
    return True, "agrees"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--alias", action="store_true")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("skipped: there is no torch\n0 passed, 0 failed")
        return
    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(compare.ROOT / "python"))
    passed = failed = 0
    refused, of = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for i in range(options.first, options.first + options.count):
            alias = options.alias or i % 2 == 1
            source = Program(random.Random(f"{options.seed}/{i}"), alias).source()
            path = work / f"program{i}.py"
            path.write_text(source)
            good, what = verdict(torch, load(path), path.with_suffix(".pt"), i, work)
            passed, failed = passed + good, failed + (not good)
            of[alias] += 1
            refused[alias] += what.startswith("refused")
            if not good:
                print(f"FAILED program {i} of seed {options.seed}: {what}\n{source}", flush=True)
    for alias, what in ((False, "without"), (True, "with")):
        print(f"{of[alias]} programs {what} two names for a tensor, {refused[alias]} of them refused")
        if refused[alias] * 2 > of[alias]:
            print(f"FAILED most programs {what} two names for a tensor are refused")
            failed += 1
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
