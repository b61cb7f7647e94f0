"""Random ONNX graphs: onnxruntime against the interpreter and compiled code, with fixed and with symbolic sizes.

    python tests/fuzz/random_models.py [--count N] [--seed S] [--modes interpreter,compiled,dynamic] [--keep FOLDER]

Graph number i of seed S is always the same one. What differs is shrunk to few nodes and left in FOLDER/<name> (model.onnx
and its data). The last line is "N passed, N failed"; before it, how many graphs of which seed were compared.
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import generator  # noqa: E402

BUILD = pathlib.Path(os.environ.get("build", "build"))
onnxruntime.set_default_logger_severity(4)


def run_onnxruntime(model, inputs):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def write_case(folder, model, inputs, outputs):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "tolerance").write_text("1e-3 1e-7 1e-3\n")
    onnx.save(model, folder / "model.onnx")
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for i, array in enumerate(arrays):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(array)).SerializeToString())


def ordered(model, inputs):
    return [inputs[i.name] for i in model.graph.input]


def run_cases(folder, modes, jobs):
    """Runs the cases in folder/node; {(case, mode): reason} of those that differ."""
    failures = folder / "failures"
    ran = subprocess.run([BUILD / "onnx_backend", folder, "--engine", modes, "--failures", failures, "--jobs", str(jobs)],
                         capture_output=True, text=True)
    if ran.returncode not in (0, 1):
        sys.exit(f"onnx_backend ended with {ran.returncode}: {ran.stderr}")
    lines = (line.split("\t", 2) for line in failures.read_text().splitlines())
    return {(name.removeprefix("node/"), mode): reason for mode, name, reason in lines}


def generate(folder, seed, first, count, notes):
    """Cases first..first+count-1 of the seed; those that onnxruntime cannot run are left out and counted."""
    made = 0
    for i in range(first, first + count):
        g = generator.random_graph(f"{seed}/{i}")
        model, inputs = generator.to_model(g)
        if not model.graph.output:
            notes["empty graphs"] += 1
            continue
        try:
            want = run_onnxruntime(model, inputs)
        except Exception as e:  # noqa: BLE001: onnxruntime has an exception type for each of its statuses
            what = re.sub(r"\d+", "N", str(e))[:110]
            notes["onnxruntime: " + what] += 1
            continue
        write_case(folder / "node" / f"g{i}", model, ordered(model, inputs), want)
        made += 1
    return made


# ---- reducing

def values_of(model, inputs):
    """The type and value of every name at the top level."""
    everything = onnx.ModelProto()
    everything.CopyFrom(model)
    inferred = {}
    known = {v.name: v for v in list(model.graph.input) + list(model.graph.output)}
    del everything.graph.output[:]
    names = [o for n in model.graph.node for o in n.output if o]
    everything.graph.output.extend(known[n] if n in known and n not in inputs else onnx.ValueInfoProto(name=n) for n in names)
    values = dict(zip(names, run_onnxruntime(everything, inputs)))
    return values | inputs


def sub_model(model, nodes, values):
    """These nodes alone: what they read of the others is input, what nobody among them reads is output."""
    produced = [o for n in nodes for o in n.output if o]

    read = {name for n in nodes for name in generator.names_read(n)}
    initializers = [i for i in model.graph.initializer if i.name in read]
    fixed = {i.name for i in initializers}
    inputs = [n for n in values if n in read and n not in produced and n not in fixed]
    outputs = [n for n in produced if n not in read]
    info = lambda n: helper.make_tensor_value_info(  # noqa: E731
        n, helper.np_dtype_to_tensor_dtype(values[n].dtype), values[n].shape)
    graph = helper.make_graph(nodes, "reduced", [info(n) for n in inputs], [info(n) for n in outputs], initializers)
    small = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return small, [values[n] for n in inputs], [values[n] for n in outputs]


def reduce_case(case, mode, work):
    """The case with as few nodes as still differ in this mode: single nodes first, then without one node after another."""
    model = onnx.load(case / "model.onnx")
    data = case / "test_data_set_0"
    inputs = {v.name: numpy_helper.to_array(onnx.load_tensor(data / f"input_{i}.pb"))
              for i, v in enumerate(model.graph.input)}
    try:
        values = {k: np.asarray(v) for k, v in values_of(model, inputs).items()}
    except Exception as e:  # noqa: BLE001
        return model, f"not reduced: {e}"

    def first_failing(candidates):
        shutil.rmtree(work, ignore_errors=True)
        for i, nodes in enumerate(candidates):
            write_case(work / "node" / f"c{i:04}", *sub_model(model, nodes, values))
        failing = run_cases(work, mode, 1) if candidates else {}
        for i, nodes in enumerate(candidates):
            if (f"c{i:04}", mode) in failing:
                return nodes, failing[f"c{i:04}", mode]
        return None

    everything = list(model.graph.node)
    best = first_failing([[n] for n in everything])
    if not best:
        best = (everything, "")
        smaller = True
        while smaller:
            smaller = first_failing([[n for n in best[0] if n is not out] for out in best[0]]) if len(best[0]) > 1 else None
            best = smaller or best
    shutil.rmtree(case.parent / (case.name + ".reduced"), ignore_errors=True)
    write_case(case.parent / (case.name + ".reduced"), *sub_model(model, best[0], values))
    return sub_model(model, best[0], values)[0], best[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--modes", default="interpreter,compiled,dynamic")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=pathlib.Path, help="where what differs is left")
    parser.add_argument("--no-reduce", action="store_true")
    flags = parser.parse_args()
    notes, compared, failed = collections.Counter(), 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        for first in range(flags.first, flags.first + flags.count, flags.batch):
            work = pathlib.Path(temporary) / "batch"
            shutil.rmtree(work, ignore_errors=True)
            (work / "node").mkdir(parents=True)
            count = min(flags.batch, flags.first + flags.count - first)
            compared += generate(work, flags.seed, first, count, notes)
            failures = run_cases(work, flags.modes, flags.jobs)
            for case in sorted({name for name, _ in failures}):
                failed += 1
                mode, reason = next((m, r) for (n, m), r in failures.items() if n == case)
                print(f"{case} of seed {flags.seed}, {mode}: {reason}", flush=True)
                if not flags.no_reduce:
                    small, why = reduce_case(work / "node" / case, mode, pathlib.Path(temporary) / "reduce")
                    print("   ", why, "\n   ", onnx.printer.to_text(small.graph).replace("\n", "\n    "), flush=True)
                if flags.keep:
                    flags.keep.mkdir(parents=True, exist_ok=True)
                    for name in (case, case + ".reduced"):
                        if (work / "node" / name).exists():
                            shutil.copytree(work / "node" / name, flags.keep / name, dirs_exist_ok=True)
            done = first + count - flags.first
            if sys.stderr.isatty() or done % 1000 == 0:
                print(f"{done} graphs, {failed} differ", file=sys.stderr, flush=True)
    for note, n in notes.most_common(12):
        print(f"{n} left out: {note}")
    print(f"{compared} graphs of seed {flags.seed} compared with onnxruntime ({flags.modes})")
    print(f"{compared - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
