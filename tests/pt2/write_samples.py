"""Writes tests/pt2/samples from a folder that `operators.py --folder` wrote: write_samples.py DIR [--every N]

Takes every N-th file of DIR, and of it the samples of little data that agree with PyTorch. Programs are deflated and lose the metadata of
nodes, values that no sample has, and inputs that no sample reads.
"""

import json
import pathlib
import sys
import tempfile
import zipfile

import numpy as np

import operators
from samples import Samples, argument_names, names_in

LARGEST = 4096  # bytes of a sample's arrays
HERE = pathlib.Path(__file__).resolve().parent / "samples"


def size(samples, sample, data):
    """Bytes of the arrays that the sample reads and gives."""
    graph = samples.program["graph_module"]["graph"]
    specs = samples.program["graph_module"]["signature"]["input_specs"]
    read = {n for node in sample.nodes for n in argument_names(node)}
    tensors = [a for a, s in zip(graph["inputs"], specs) if "as_tensor" in s.get("user_input", {}).get("arg", {})]
    inputs = sum(data[f"i{k}"].nbytes for k, a in enumerate(tensors) if set(names_in(a)) & read)
    return inputs + sum(data[f"o{o}"].nbytes for o in sample.outputs)


def smaller(source, arrays, chosen, target):
    """Repacks a program of the chosen samples, and their arrays."""
    with zipfile.ZipFile(source) as old:
        members = {n: old.read(n) for n in old.namelist()}
    key = next(n for n in members if "/models/" in n)
    program = json.loads(members[key])
    module = program["graph_module"]
    graph, specs = module["graph"], module["signature"]["input_specs"]
    read = {n for node in graph["nodes"] for n in (*argument_names(node), *names_in(node["outputs"]))}
    read |= set(names_in(graph["outputs"]))
    for node in graph["nodes"]:
        node["metadata"] = {}
    user = [i for i, s in enumerate(specs) if "user_input" in s]
    kept = [i for i, a in enumerate(graph["inputs"]) if i not in user or set(names_in(a)) & read]
    tensors = [i for i in user if "as_tensor" in graph["inputs"][i]]
    inputs = [arrays[f"i{tensors.index(i)}"] for i in kept if i in tensors]
    outputs = [arrays[f"o{o}"] for sample in chosen for o in sample.outputs]
    graph["inputs"] = [graph["inputs"][i] for i in kept]
    module["signature"]["input_specs"] = [specs[i] for i in kept]
    module["module_call_graph"] = []
    read |= set(names_in(graph["inputs"]))
    graph["tensor_values"] = {n: v for n, v in graph["tensor_values"].items() if n in read}
    members[key] = json.dumps(program, separators=(",", ":"))
    with zipfile.ZipFile(target, "w") as new:
        for name, data in members.items():
            new.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)
    numbered = {f"i{k}": a for k, a in enumerate(inputs)} | {f"o{k}": a for k, a in enumerate(outputs)}
    np.savez_compressed(target.with_suffix(".npz"), **numbered)


def main():
    folder = pathlib.Path(sys.argv[1])
    every = int(sys.argv[3]) if sys.argv[2:3] == ["--every"] else 10
    HERE.mkdir(exist_ok=True)
    count = 0
    with tempfile.TemporaryDirectory() as place:
        work = pathlib.Path(place)
        for path in sorted(p for p in folder.glob("*.pt2") if p.with_suffix(".npz").exists())[::every]:
            samples, refused = Samples(path), []
            chosen = operators.supported(samples, samples.all, work, refused)
            wrong = {id(s) for s, _ in operators.wrong_results(samples, chosen, path.with_suffix(".npz"), work)}
            data = np.load(path.with_suffix(".npz"))
            chosen = [s for s in chosen if id(s) not in wrong and size(samples, s, data) <= LARGEST]
            if not chosen:
                continue
            samples.write(chosen, work / "chosen.pt2")
            smaller(work / "chosen.pt2", data, chosen, HERE / f"{folder.name}_{path.name}")
            count += len(chosen)
    print(f"{count} samples")


main()
