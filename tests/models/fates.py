"""Every node of every test model ends in exactly one fate: python tests/models/fates.py [--sample N]

A model with subgraphs and a function, the ten light models, the networks of architectures.py, and one in N (default: all) of the
models of the public ONNX suite. The nodes that `inspect --stage=nodes` lists are those of the file, which this script numbers
itself, subgraphs and the bodies of functions included. Models that the compiler refuses are left out. The last line is "N passed, N failed".

Environment: stridec (the program, default build/stridec).
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

import models
import onnx
from architectures import ARCHITECTURES
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRIDEC = os.environ.get("stridec", str(ROOT / "build" / "stridec"))
SUITE = ROOT / "tests/conformance/onnx-backend-1.22.0.tar.xz"
LIGHT = sorted(path.stem for path in (ROOT / "tests/models").glob("*.onnx"))
FATES = {"kernel", "routine", "control", "constant", "view", "size", "rewritten", "dead"}


def places(nodes, functions, prefix=""):
    """The place of each node, as ids have it. A call of a function of the model becomes the nodes of its body."""
    for i, node in enumerate(nodes):
        place = f"{prefix}{i}"
        body = functions.get((node.domain, node.op_type))
        if body is not None:
            yield from places(body.node, functions, place + ".")
            continue
        yield place
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from places(attribute.g.node, functions, f"{place}.{attribute.name}.")


def problems(path):
    """What is wrong with the fates of a model; None: the compiler refuses the model."""
    done = subprocess.run([STRIDEC, "inspect", str(path), "--stage=nodes", "--format=json"], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return None if done.returncode < 9 else [f"exit code {done.returncode}: {done.stderr[:300]}"]
    listed = json.loads(done.stdout)["nodes"]
    model = onnx.load(path, load_external_data=False)
    functions = {(f.domain, f.name): f for f in model.functions}
    wanted = list(places(model.graph.node, functions))
    found = [re.match(r"node ([\w.]+)", row["node"])[1] for row in listed]
    # A function's output that is one of its inputs is copied by a node that the file does not have.
    wrong = [f"not listed: {place}" for place in set(wanted) - set(found)]
    wrong += [f"not in the file: {place}" for place in set(found) - set(wanted)] if not functions else []
    wrong += [f"listed {count} times: {place}" for place, count in collections.Counter(found).items() if count > 1]
    for row in listed:
        computed = row["fate"] in ("kernel", "routine")
        if row["fate"] not in FATES or computed != bool(row.get("kernels")) or (row["fate"] == "rewritten" and not (row.get("by") or row.get("with"))):
            wrong.append(f"{row}")
    return wrong


def nested(path):
    """A branch with two nodes of one type in each arm, and a function with two such nodes: none has a name."""
    value = lambda name, dtype, dims: helper.make_tensor_value_info(name, dtype, dims)
    arm = lambda op, y: helper.make_graph([helper.make_node(op, ["x"], [y + "0"]), helper.make_node(op, [y + "0"], [y])], y, [], [value(y, TensorProto.FLOAT, ["n"])])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=arm("Exp", "a"), else_branch=arm("Sin", "b")),
             helper.make_node("Twice", ["y"], ["z"], domain="f")]
    body = [helper.make_node("Abs", ["p"], ["r"]), helper.make_node("Abs", ["r"], ["q"])]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    graph = helper.make_graph(nodes, "nested", [value("x", TensorProto.FLOAT, ["n"]), value("c", TensorProto.BOOL, [])], [value("z", TensorProto.FLOAT, ["n"])])
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=[helper.make_function("f", "Twice", ["p"], ["q"], body, opsets[:1])], ir_version=9), path)
    return path


def check(name, path, counts):
    wrong = problems(path)
    counts["refused" if wrong is None else "failed" if wrong else "passed"] += 1
    if wrong:
        print(f"FAILED {name}: {'; '.join(wrong[:5])}", flush=True)


def main():
    sample = int(sys.argv[sys.argv.index("--sample") + 1]) if "--sample" in sys.argv else 1
    counts = {"passed": 0, "failed": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as folder:
        check("nested", nested(os.path.join(folder, "nested.onnx")), counts)
        for name in LIGHT:
            check(name, models.fill_model(name, folder), counts)
        for name, (function, _, _) in ARCHITECTURES.items():
            path = os.path.join(folder, name + ".onnx")
            onnx.save(function().model(), path)
            check(name, path, counts)
        with tarfile.open(SUITE) as archive:
            names = sorted(name for name in archive.getnames() if name.endswith("/model.onnx"))[::sample]
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2, of Debian 12, has none
            archive.extractall(folder, members=[archive.getmember(name) for name in names])
        for name in names:
            check(name, os.path.join(folder, name), counts)
    print(f"{counts['refused']} models are refused\n{counts['passed']} passed, {counts['failed']} failed")
    sys.exit(counts["failed"] > 0)


if __name__ == "__main__":
    main()
