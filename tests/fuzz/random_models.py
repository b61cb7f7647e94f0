"""Random ONNX graphs: onnxruntime against the interpreter and compiled code.

    python tests/fuzz/random_models.py [--count N] [--seed S] [--first I] [--keep FOLDER] [--record FILE] [--gpu | --emulated]
    python tests/fuzz/random_models.py --write FOLDER --gpu ...    for a machine that has no onnx: tests/gpu/run.sh

The number i and the seed S determine the graph, and the form in which it is compiled: with the sizes of the file,
several graphs as one model, or alone with a symbol for each size, run at its own and at other sizes; kernels as they are
for users (-O3) or, in half the time, without optimisation (-O0); with --gpu for the GPU of this machine, with --emulated for
a GPU whose kernels run on the CPU, with a check for races. Where onnxruntime cannot run a graph, compiled code is
compared with the interpreter. When a model of several graphs differs, each of them is tried alone. What differs is shrunk to few nodes and
left in FOLDER/<name> (model.onnx and its data). FILE gets a line for the record (record.py). The last line is "N passed, N failed";
before it, how many graphs of which seed were compared. --write runs nothing but onnxruntime and leaves the cases in FOLDER, a folder
for each form, as onnx_backend takes them.
"""
import argparse
import collections
import datetime
import itertools
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import onnx

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import generator  # noqa: E402
import reducer  # noqa: E402
from cases import Form, run_cases, run_onnxruntime, write_case  # noqa: E402

GRAPHS_IN_A_MODEL = 8


def form_of(seed, i, gpu):
    """A quarter with symbols, a quarter at -O3. gpu: "cuda", "emulated" or none."""
    choices = random.Random(f"{seed}/{i}/form")
    dynamic, optimize = choices.random() < 0.25, 3 if choices.random() < 0.25 else 0
    if gpu:
        return Form(f"{gpu}-dynamic" if dynamic else gpu, 3)
    return Form("dynamic" if dynamic else "compiled", optimize)


def expected(model, inputs, notes):
    """onnxruntime's results; None, with a note of why, where it has none."""
    try:
        return run_onnxruntime(model, inputs)
    except Exception as e:  # noqa: BLE001: onnxruntime has an exception type for each of its statuses
        notes["onnxruntime: " + re.sub(r"\d+", "N", str(e))[:110]] += 1
        return None


class Batch:
    """Graphs on their way: cases (several graphs each) by form, in folders of their own."""

    def __init__(self, work, jobs, notes):
        self.work, self.jobs, self.notes = work, jobs, notes

    def write(self, folder, name, graphs):
        model, inputs = generator.to_model(graphs)
        notes = self.notes if len(graphs) == 1 else collections.Counter()
        outputs = expected(model, inputs, notes)
        if outputs is None and len(graphs) > 1:
            return False
        write_case(folder / "node" / name, model, inputs, outputs)
        return True

    def write_alone(self, graphs, folder):
        for name, g in graphs:
            self.write(folder, name, [g])

    def alone(self, graphs, form, folder):
        """{name: (folder, reason)} of the graphs that differ, each in a model of its own."""
        self.write_alone(graphs, folder)
        return {name: (folder / "node" / name, mode, why)
                for (name, mode), why in run_cases(folder, form, self.jobs).items()}

    def write_all(self, graphs, form, folder):
        """graphs: (name, Graph) of one form. Those that could be written as models of several, by the models' names, and those
        that could not or should not."""
        together, singles = {}, []
        by_opset = sorted(graphs, key=lambda named: named[1].opset)
        for _, same in itertools.groupby(by_opset, key=lambda named: named[1].opset):
            same = list(same)
            size = 1 if form.mode.endswith("dynamic") else GRAPHS_IN_A_MODEL
            for members in (same[i:i + size] for i in range(0, len(same), size)):
                name = "+".join(n for n, _ in members)
                if len(members) > 1 and self.write(folder, name, [g for _, g in members]):
                    together[name] = members
                else:
                    singles += members
        return together, singles

    def run(self, graphs, form):
        """{name: (case folder, mode, reason)} of those that differ."""
        folder = self.work / str(form)
        together, singles = self.write_all(graphs, form, folder)
        failures = self.alone(singles, form, self.work / f"{form}-alone") if singles else {}
        if together:
            for (name, mode), why in run_cases(folder, form, self.jobs).items():
                one_by_one = self.alone(together[name], form, self.work / f"{form}-{len(failures)}-of-{together[name][0][0]}")
                # What only all of them together show is reported as such.
                failures |= one_by_one or {name: (folder / "node" / name, mode, why)}
        return failures


def report(seed, name, form, failure, keep):
    case, mode, why = failure
    print(f"{name} of seed {seed}, {mode} -O{form.optimize}: {why}", flush=True)
    small, why = reducer.reduce_case(case, Form(mode, form.optimize), why)
    print("   ", why, "\n   ", onnx.printer.to_text(small.graph).replace("\n", "\n    "), flush=True)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        for folder in (case, case.parent / (case.name + ".reduced")):
            if folder.exists():
                shutil.copytree(folder, keep / folder.name, dirs_exist_ok=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=pathlib.Path, help="where what differs is left")
    gpus = parser.add_mutually_exclusive_group()
    gpus.add_argument("--gpu", action="store_const", const="cuda", help="compiled for the GPU of this machine")
    gpus.add_argument("--emulated", action="store_const", const="emulated", dest="gpu", help="compiled for a GPU, emulated")
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER", help="write the cases, run none")
    parser.add_argument("--record", type=pathlib.Path, help="a file that gets a line: date, commit, seed, graphs")
    flags = parser.parse_args()
    if flags.write and flags.write.exists():
        parser.error(f"{flags.write} is there already")
    notes, compared, failed = collections.Counter(), 0, 0
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["STRIDEC_CACHE"] = temporary + "/cache"  # random kernels are of no use later
        if flags.gpu == "emulated":
            os.environ.setdefault("STRIDEC_NVRTC", "none")  # the public suite tests NVRTC's builds
        for first in range(flags.first, flags.first + flags.count, flags.batch):
            work = pathlib.Path(temporary) / "batch"
            shutil.rmtree(work, ignore_errors=True)
            forms = collections.defaultdict(list)
            last = min(first + flags.batch, flags.first + flags.count)
            for i in range(first, last):
                g = generator.random_graph(f"{flags.seed}/{i}", prefix=f"g{i}_")
                if g.outputs:
                    forms[form_of(flags.seed, i, flags.gpu)].append((f"g{i}", g))
                else:
                    notes["graphs without nodes"] += 1
            batch = Batch(work, flags.jobs, notes)
            for form, graphs in sorted(forms.items()):
                compared += len(graphs)
                if flags.write:
                    _, singles = batch.write_all(graphs, form, flags.write / str(form))
                    batch.write_alone(singles, flags.write / str(form))
                    continue
                failures = batch.run(graphs, form)
                failed += len(failures)
                for name, failure in failures.items():
                    report(flags.seed, name, form, failure, flags.keep)
            if sys.stderr.isatty() or (last - flags.first) % 1000 == 0:
                print(f"{last - flags.first} graphs, {failed} differ", file=sys.stderr, flush=True)
    for note, n in notes.most_common(12):
        print(f"{n} graphs: {note}")
    if flags.write:
        print(f"{compared} graphs of seed {flags.seed} written, from {flags.first} on")
        return 0
    print(f"{compared} graphs {f'for a GPU ({flags.gpu}) ' if flags.gpu else ''}of seed {flags.seed} compared, from {flags.first} on")
    print(f"{compared - failed} passed, {failed} failed")
    if flags.record:
        with flags.record.open("a") as file:
            file.write(f"{datetime.date.today()} {commit} seed {flags.seed} from {flags.first}: {compared} compared, "
                       f"{failed} differ\n")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
