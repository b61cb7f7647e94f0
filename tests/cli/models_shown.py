"""What commands show of a model and of a run: inputs, parameters, operators, flops, small outputs, .npz files, seeds."""

import json
import os
import resource
import zipfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from harness import expect, stridec
from models import model, value


def test_summary():
    """`check` and `inspect MODEL` begin with what the model takes and consists of."""
    for command in ("check mlp.onnx", "inspect mlp.onnx"):
        text = stridec(command, 0).stdout
        lines = [line.strip() for line in text.splitlines()]
        expect(lines[1:5] == ["inputs", "x  f32  [batch, 4]", "outputs", "y  f32  [batch, 8]"], text)
        expect("parameters 40 (160 B)" in lines and "operators  Add 1, MatMul 1, Relu 1" in lines, text)
        expect("flops      80 at batch 1" in lines, text)
    told = json.loads(stridec("check mlp.onnx --format=json", 0).stdout)["model"]
    expect(told["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["batch", 4]}] and told["parameters"] == 40, told)
    expect(told["operators"] == {"Add": 1, "MatMul": 1, "Relu": 1} and told["flops"] == {"count": 80, "sizes": "batch 1"}, told)
    told = json.loads(stridec("inspect mlp.onnx --format=json", 0).stdout)
    expect(told["model"]["parameter_bytes"] == 160 and "relu" in told["text"].lower() and told["stage"] == "graph", told)
    # At given sizes; values of an input that indexes.
    expect("flops      640\n" in stridec("check mlp.onnx --dim batch=8", 0).stdout, "fixed sizes")
    expect("0..rows - 1" in stridec("check gather.onnx", 0).stdout, "the range of an index")
    told = json.loads(stridec("check gather.onnx --format=json", 0).stdout)["model"]
    expect(told["inputs"][1]["range"] == {"minimum": 0, "maximum": "rows - 1"}, told)
    # Sizes that meet the guards: what two halvings and doublings need.
    nodes = [helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1], strides=[8, 8]),
             helper.make_node("Resize", ["p", "", "s"], ["u"], mode="nearest"), helper.make_node("Add", ["u", "x"], ["y"])]  # fmt: skip
    onnx.save(model(nodes, [value("x", [1, 1, "h", 8])], [value("y", None)], [("s", np.array([1, 1, 8, 8], np.float32))]), "halved.onnx")
    text = stridec("check halved.onnx", 0).stdout
    expect(" at h 1\n" in text and "h is a multiple of 8" in text and "h == 1" in text, text)
    # A model with problems has no flops, and says what it has.
    text = stridec("check missing_attribute.onnx", 3).stdout
    expect("inputs" in text and "flops" not in text and "Cast 1" in text, text)
    # A graph that was written counts its own operations.
    stridec("inspect mlp.onnx --write-graph shown.graph", 0)
    expect("dot_general 1" in stridec("check shown.graph", 0).stdout, "a serialized graph")


def test_weights_of_constant_nodes():
    """Weights are counted wherever they are: initializers, Constant nodes, branches."""
    weight = numpy_helper.from_array(np.ones((4, 8), np.float32))
    nodes = [helper.make_node("Constant", [], ["w"], value=weight), helper.make_node("MatMul", ["x", "w"], ["y"])]
    onnx.save(model(nodes, [value("x", ["n", 4])], [value("y", ["n", 8])]), "constants.onnx")
    expect("weights 128 B" in stridec("check constants.onnx", 0).stdout, stridec("check constants.onnx").stdout)
    branch = helper.make_graph([nodes[0], helper.make_node("MatMul", ["x", "w"], ["z"])], "b", [], [value("z", ["n", 8])])
    other = helper.make_graph([helper.make_node("MatMul", ["x", "v"], ["z"])], "c", [], [value("z", ["n", 8])], [numpy_helper.from_array(np.ones((4, 8), np.float32), "v")])
    made = model([helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)],
                 [value("x", ["n", 4]), value("c", [], TensorProto.BOOL)], [value("y", ["n", 8])])  # fmt: skip
    onnx.save(made, "constants.onnx")
    text = stridec("check constants.onnx", 0).stdout
    expect("weights 256 B" in text and "MatMul 2" in text, text)


def test_small_outputs():
    np.save("one.npy", np.array([[1, -2, 0.5, 3]], np.float32))
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"]), helper.make_node("Cast", ["y"], ["i"], to=TensorProto.INT32),
             helper.make_node("Greater", ["x", "y"], ["b"]), helper.make_node("Log", ["x"], ["l"]), helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0)]  # fmt: skip
    outs = [value("y", ["n", 4]), value("i", ["n", 4], TensorProto.INT32), value("b", ["n", 4], TensorProto.BOOL), value("l", ["n", 4]), value("s", [])]
    onnx.save(model(nodes, [value("x", ["n", 4])], outs), "small.onnx")
    stridec("compile small.onnx -o small.so", 0)
    text = stridec("run small.so -i x=one.npy", 0).stdout
    for line in (" y  f32[1, 4] = [[1, 4, 0.25, 9]]", " i  i32[1, 4] = [[1, 4, 0, 9]]", " b  bool[1, 4] = [[0, 0, 1, 0]]", " s  f32[] = 2.5"):
        expect(line + "\n" in text, text)
    expect(" l  f32[1, 4] = [[0, " in text and "nan" in text, text)
    told = json.loads(stridec("run small.so -i x=one.npy --format=json", 0).stdout)["outputs"]
    expect(told[0]["values"] == [1, 4, 0.25, 9] and told[1]["values"] == [1, 4, 0, 9] and told[4]["values"] == [2.5], told)
    text = stridec("run mlp.so --random --dim batch=8", 0).stdout
    expect("=" not in text, f"a large output is printed: {text}")


def test_archives():
    """.npz files of numpy.savez and savez_compressed hold inputs by name; all outputs go into one."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    stridec("run mlp.so -i x=good.npy -o y=plain.npy", 0)
    np.savez("stored.npz", x=np.load("good.npy"))
    np.savez_compressed("deflated.npz", x=np.load("good.npy"), y=np.load("plain.npy"))
    for name in ("stored", "x=stored.npz:x", "x=deflated.npz:x"):
        flag = name if "=" in name else name + ".npz"
        stridec(["run", "mlp.so", "-i", flag, "-o", "all.npz"], 0)
        with np.load("all.npz") as results:
            expect(results.files == ["y"] and np.array_equal(results["y"], np.load("plain.npy")), flag)
    with zipfile.ZipFile("all.npz") as archive:
        expect(archive.testzip() is None, "damaged")
    first = open("all.npz", "rb").read()
    stridec("run mlp.so -i stored.npz -o all.npz", 0)
    expect(open("all.npz", "rb").read() == first, "the same run gives other bytes")
    stridec("verify mlp.onnx mlp.so -i stored.npz --expect all.npz", 0)
    expect("no input 'y'" in stridec("run mlp.so -i deflated.npz", 1).stderr, "an array that is not an input")
    expect("has no array 'z'" in stridec("run mlp.so -i x=stored.npz:z", 1).stderr, "a missing array")
    # Many arrays, large ones, other types.
    arrays = {"table": x.astype(np.float32)[:3, :4], "index": np.array([0, 2]), "left": x[:2, :2], "right": x[:2, :2]}
    np.savez_compressed("many.npz", **arrays)
    stridec("run gather.so -i many.npz -o all.npz", 0)
    # Damage at every byte is refused or harmless; nothing crashes.
    whole = open("stored.npz", "rb").read()
    packed = open("deflated.npz", "rb").read()
    for data in (whole, packed):
        for cut in (0, 1, 21, 22, len(data) // 2, len(data) - 1):
            with open("cut.npz", "wb") as file:
                file.write(data[:cut])
            expect(stridec("run mlp.so -i x=cut.npz:x").returncode == 3, f"cut at {cut}")
        for at in range(0, len(data), 7):
            with open("cut.npz", "wb") as file:
                file.write(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
            code = stridec("run mlp.so -i x=cut.npz:x").returncode
            expect(code in (0, 1, 3, 4, 5), f"byte {at}: exit code {code}")


def test_seeds():
    def drawn(*flags):
        return stridec(["run", "mlp.so", "--random", "--dim", "batch=1", *flags], 0).stdout

    expect(drawn() == drawn() == drawn("--seed", "0"), "the same seed")
    expect(drawn("--seed", "1") == drawn("--seed", "1") != drawn("--seed", "2") != drawn(), "other seeds")
    expect("f32[1, 8] = [[" in drawn("--seed", "1"), "values")

    def verified(*flags):
        runs = json.loads(stridec(["verify", "mlp.onnx", "--runs", "1", "--format=json", *flags], 0).stdout)["runs"]
        return runs[0]["difference"], runs[0]["mean"]

    expect(verified() == verified("--seed", "0") != verified("--seed", "1"), "verify")


def test_names_and_metadata():
    """A model is called after its file where exporters give its name to every model; text of the caller is in the manifest."""
    for own, shown in (("main_graph", "encoder.v2"), ("", "encoder.v2"), ("torch-jit-export", "encoder.v2"), ("detector", "detector")):
        made = onnx.load("mlp.onnx")
        made.graph.name = own
        onnx.save(made, "encoder.v2.onnx")
        stridec(["compile", "encoder.v2.onnx", "-o", "named.so", "--metadata", "version=1.4", "--metadata", "who=a = b, ü"], 0)
        manifest = json.loads(stridec("inspect named.so --format=json", 0).stdout)
        expect(manifest["name"] == shown and manifest["metadata"] == {"version": "1.4", "who": "a = b, ü"}, manifest["name"])
    expect("metadata   version = 1.4" in stridec("inspect named.so", 0).stdout, "the text")
    stridec("verify encoder.v2.onnx named.so --runs 1", 0)
    expect("metadata" not in json.loads(stridec("inspect mlp.so --format=json", 0).stdout), "metadata of nobody")
    for flag in ("version", "=1", "a=1 --metadata a=2"):
        expect("bad-metadata" in stridec(f"compile mlp.onnx -o named.so --metadata {flag}", 1).stderr, flag)


def test_messages():
    """Each names the file or the size that is at fault, and what to do about it."""
    error = stridec("compile mlp.onnx -o said.so --tune-db missing.txt --frozen", 2).stderr
    expect("--> missing.txt" in error and "--> mlp.onnx" not in error and "stridec tune --tune-db missing.txt" in error, error)
    made = model([helper.make_node("Add", ["c", "x"], ["d"])], [value("c", ["batch", 4]), value("x", ["batch", 4])], [value("d", ["batch", 4])])
    onnx.save(made, "states.onnx")
    made = model([helper.make_node("Concat", ["c", "x"], ["d"], axis=0)], [value("c", ["old", 4]), value("x", ["n", 4])], [value("d", ["new", 4])])
    onnx.save(made, "growing.onnx")
    error = stridec("compile growing.onnx -o said.so --state c=d", 1).stderr
    expect("dim 0 of 'c' is old, of 'd' n + old" in error and "a state must have one size" in error, error)
    with zipfile.ZipFile("program.pt2", "w") as archive:
        archive.writestr("program/archive_format", "pt2")
        archive.writestr("program/models/model.json", "{}")
    error = stridec("compile program.pt2 -o said.so").stderr
    expect("ending" not in error, error)
    text = stridec("compile mlp.onnx -o said.so", 0).stderr
    expect("for this machine's CPU, " in text and "--cpu x86-64-v2" in text, text)
    expect("this machine's CPU" not in stridec("compile mlp.onnx -o said.so --cpu x86-64-v3", 0).stderr, "a CPU that is named")


def test_memory_of_inspect():
    """An artifact is mapped: what commands show of it takes no memory for its weights."""
    weights = np.random.default_rng(3).standard_normal((4096, 8192)).astype(np.float32)
    onnx.save(model([helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", ["n", 4096])], [value("y", ["n", 8192])], [("w", weights)]), "heavy.onnx")
    stridec("compile heavy.onnx -o heavy.so", 0)
    size = os.path.getsize("heavy.so")
    expect(size > 128 << 20, size)

    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (96 << 20, 96 << 20))

    for command in ("inspect heavy.so", "licenses heavy.so", "diff heavy.so mlp.so"):
        stridec(command, 0, preexec_fn=limit)
    for name in ("heavy.onnx", "heavy.so", "heavy.json"):
        os.remove(name)
