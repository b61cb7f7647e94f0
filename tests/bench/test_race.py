"""Tests that race.py takes any model: a small one of two inputs, sizes from the command line, and what quantisers make of it;
and that all timing programs answer a command line that makes no sense with a sentence.

    python tests/bench/test_race.py        the last line is "N passed, N failed"

Environment: stridec (the program, default build/stridec).
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from unittest import mock

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save, shape_inference

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
from net import Net  # noqa: E402
from networks import NETWORKS  # noqa: E402

# Parameters in millions, with what batch normalisation keeps: as published, but for CRNN, PointNet and the LSTM, where they
# are what the published sizes come to. Parts of networks (yolov8n, wav2vec2 ...) have none.
MILLIONS = {
    "efficientnet_b0": 5.3,
    "densenet_121": 8.0,
    "swin_t": 28.3,
    "mobilenet_v3_large": 5.5,
    "resnext_50": 25.0,
    "regnet_y_400mf": 4.3,
    "shufflenet_v2": 2.3,
    "inception_v3": 23.8,
    "vgg_11": 132.9,
    "deit_tiny": 5.7,
    "crnn": 8.3,
    "whisper_tiny": 8.2,
    "lstm_words": 19.8,
    "distilbert": 66.4,
    "pointnet": 3.5,
}


def write_model(path):
    """A row of a table for each id, added to a projection of x."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((64, 32)), "table": rng.standard_normal((10, 32))}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Gather", ["table", "ids"], ["row"]),
        helper.make_node("Add", ["p", "row"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])]
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    opset = [helper.make_opsetid("", 18)]
    save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, tensors), opset_imports=opset, ir_version=9), path)


def race(arguments, code):
    done = timed("race.py", *arguments, "--rounds", "1", "--seconds", "0.01")
    assert done.returncode == code, f"exit code {done.returncode} instead of {code}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def timed(program, *arguments, **environment):
    command = [sys.executable, os.path.join(HERE, program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def test_file():
    cases = ["--dim", "n=1..64", "--shape", "x=3x64,ids=3<10", "--shape", "ids=7<10,x=7x64"]
    text = race(["own.onnx", *cases, "--engines", "stridec,fixed,onnxruntime", "--json", "own.json"], 0)
    with open("own.json", encoding="utf-8") as file:
        found = json.load(file)["models"]["own"]
    assert [case["case"] for case in found] == ["x 3x64, ids 3", "x 7x64, ids 7"], found
    for case in found:
        entry = case["engines"]["stridec"]
        assert entry["differences"]["onnxruntime"] < 1e-5 and entry["ratios"]["fixed"] > 0, entry
    assert "own, x 3x64, ids 3" in text, text


def test_quantised():
    kinds = ["int8", *(["int4"] if importlib.util.find_spec("onnx_ir") else [])]
    engines = ["stridec", "onnxruntime", *(f"{name}-{kind}" for kind in kinds for name in ("stridec", "onnxruntime"))]
    flags = ["--dim", "n=1..64", "--shape", "x=5x64,ids=5<10", "--engines", ",".join(engines), "--json", "own.json"]
    text = race(["own.onnx", *flags], 0)
    with open("own.json", encoding="utf-8") as file:
        found = json.load(file)["models"]["own"][0]["engines"]
    table = text[text.index("largest and mean difference") :].splitlines()
    assert all(f"stridec-{kind}" in table[0] for kind in kinds) and len(table[1].split()) == 3 + 2 * len(kinds), table
    for kind in kinds:
        off = found[f"stridec-{kind}"]["differences"]
        assert 1e-4 < off["onnxruntime"] < 0.3, off  # rounding is seen, against the model as it was
        assert off[f"onnxruntime-{kind}"] < 0.05, off  # and the quantised one is computed right


def test_networks():
    """Weights are inputs here, so that none are drawn."""
    made = []

    def undrawn(net, *shape, **_):
        made.append(int(np.prod(shape)))
        return net.input(f"weight.{len(made)}", list(shape))

    for name, (function, dims, cases) in NETWORKS.items():
        made.clear()
        with mock.patch.multiple(Net, weight=undrawn, positive=undrawn):
            model = function().model()
        model = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        checker.check_model(model, full_check=True)
        if name in MILLIONS:
            assert 0.98 < sum(made) / 1e6 / MILLIONS[name] < 1.04, f"{name} has {sum(made)} parameters"
        save(model, f"{name}.onnx")
        done = subprocess.run([os.environ["stridec"], "check", f"{name}.onnx", "--dim", dims], capture_output=True, text=True)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        assert len(cases) == 2 and all(len(case) == len(dims.split(",")) for case in cases), name
    text = race(["networks", "crnn", "--case", "0", "--engines", "stridec,onnxruntime"], 0)
    assert "crnn, line 1x1x32x100" in text, text


def test_sentences():
    for shape, sentence in (
        ("x=3x64", "no sizes for the input 'ids'"),
        ("x=3x64,ids=3,z=1", "'z' is not an INPUT=SIZES"),
        ("x=3x65,ids=3", "the model's input is nx64"),
        ("x=3x64,ids=three", "ids=three: sizes are written"),
    ):
        assert sentence in race(["own.onnx", "--shape", shape], 2), sentence
    assert "give a --shape" in race(["own.onnx"], 2)
    assert "there is no file other.onnx" in race(["other.onnx", "--shape", "x=1"], 2)
    assert "for a FILE.onnx" in race(["tagger", "--dim", "n=1"], 2)


def test_arguments():
    """Nothing is printed but the usage and one sentence."""
    own = ["own.onnx", "--shape", "x=3x64,ids=3"]
    for program, arguments, sentence in (
        ("race.py", [*own, "--rounds", "0"], "argument --rounds: '0' is not a whole number from 1 on"),
        ("race.py", [*own, "--seconds", "-1"], "argument --seconds: '-1' is not a number above 0"),
        ("race.py", [*own, "--seconds", "nan"], "argument --seconds: 'nan' is not a number above 0"),
        ("race.py", [*own, "--threads", "0"], "argument --threads: '0' is not a whole number from 1 on"),
        ("race.py", [*own, "--case", "1"], "argument --case: own has no case 1; its cases are 0 to 0"),
        ("race.py", [*own, "--case", "-1"], "argument --case: '-1' is not a whole number from 0 on"),
        ("race.py", ["--case", "99"], "argument --case: recommender has no case 99"),
        ("race.py", ["swin", "nonsense"], "no model nonsense; there are "),
        ("race.py", ["stridec"], "no model stridec; there are "),
        ("race.py", [*own, "--engines", "stridec,resnet50"], "argument --engines: no engine resnet50; there are stridec,"),
        ("threads.py", ["nonsense"], "no model nonsense; there are "),
        ("threads.py", [], "name a model or more, or give --products"),
        ("threads.py", ["tagger", "--case", "99"], "argument --case: tagger has no case 99"),
        ("threads.py", ["tagger", "--threads", "0"], "argument --threads: '0' is not a whole number from 1 on"),
        ("threads.py", ["tagger", "--threads", "1000000"], "argument --threads: this machine has "),
        ("threads.py", ["tagger", "--precisions", "f32"], "argument --precisions: no precision f32; there are fp32,"),
        ("threads.py", ["--products", "--sizes", "3x4"], "argument --sizes: '3x4' is not a size of a product"),
        ("ops.py", ["nonsense"], "no case begins with nonsense; there are Abs,"),
        ("ops.py", ["Relu", "--rounds", "0"], "argument --rounds: '0' is not a whole number from 1 on"),
        ("ops.py", ["Relu", "--block", "0"], "argument --block: '0' is not a number above 0"),
        ("ops.py", ["--case", "99"], "unrecognized arguments: --case"),
        ("memory.py", ["tagger", "--case", "99"], "argument --case: tagger has no case 99"),
        ("weight_only.py", ["--layers", "0"], "argument --layers: '0' is not a whole number from 1 on"),
        ("weight_only.py", ["--engines", "nonsense"], "argument --engines: no engine nonsense; there are "),
    ):
        done = timed(program, *arguments)
        usage, _, said = done.stderr.partition(f"{program}: error: ")
        good = done.returncode == 2 and usage.startswith("usage: ") and said.startswith(sentence) and said.count("\n") == 1
        assert good and not done.stdout, f"{program} {arguments}: {done.returncode}, {done.stdout}{done.stderr}"


def test_no_program():
    for program, arguments in (("race.py", ["tagger"]), ("threads.py", ["tagger"]), ("ops.py", ["Relu"]), ("memory.py", [])):
        done = timed(program, *arguments, stridec="nowhere/stridec")
        assert done.returncode == 2 and "there is no program nowhere/stridec; build it" in done.stderr, done.stderr


def test_no_peak():
    """What stands for the machine's peak is a target of the build that nothing else needs."""
    done = timed("race.py", "tagger", "--engines", "stridec,peak", build="nowhere")
    assert done.returncode == 2 and not done.stdout, done
    said = done.stderr.partition("race.py: error: ")[2]
    assert said.startswith("argument --engines: peak needs ") and "'ninja -C nowhere bench_peak' builds it" in said, done.stderr


def main():
    os.environ["stridec"] = os.path.abspath(os.environ.get("stridec", "build/stridec"))
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="stridec-race-") as folder:
        os.chdir(folder)
        write_model("own.onnx")
        for name, test in [(name, test) for name, test in globals().items() if name.startswith("test_")]:
            try:
                test()
                passed += 1
            except (AssertionError, KeyError, ValueError) as error:
                failed += 1
                print(f"FAIL {name}: {error!r}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
