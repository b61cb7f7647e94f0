"""What artifacts compute, and how verify finds the node that differs."""

import json
import os
import sys

import numpy as np

import models
from harness import ROOT, expect, stridec


def test_run_and_verify():
    stridec("run mlp.so --input x=good.npy --output y=y.npy", 0)
    weights = {tensor.name: models.numpy_helper.to_array(tensor) for tensor in models.mlp().graph.initializer}
    expected = np.maximum(np.load("good.npy") @ weights["w"] + weights["b"], 0)
    np.testing.assert_allclose(np.load("y.npy"), expected, rtol=1e-5, atol=1e-6)
    stridec("verify mlp.onnx mlp.so --dim batch=3", 0)
    stridec("verify mlp.onnx", 0)
    # Sizes are the artifact's, whether --dim gave a range or a number; what it cannot have is refused.
    for dims, ask, code in (
        ("batch=6..9", "", 0),
        ("batch=7", "", 0),
        ("batch=7", "--dim batch=7", 0),
        ("batch=7", "--dim batch=8", 4),
        ("batch=6..9", "--dim colour=8", 1),
    ):
        stridec(f"compile mlp.onnx -o few.so --dim {dims}", 0)
        stridec(f"verify mlp.onnx few.so {ask}", code)
        stridec("bench few.so --seconds 0.01", 0)
    stridec("compile mlp.onnx -o few.so --precision bf16", 0)
    verified = json.loads(stridec("verify mlp.onnx few.so --format=json", 0).stdout)
    expect(verified["precision"] == "bf16" and verified["variant"], verified)
    expect("tolerance 0.05" in stridec("verify mlp.onnx few.so", 0).stdout, "not the artifact's precision")
    stridec("verify frames.onnx --dim frames=3", 0)
    stridec("verify frames.onnx", 5)
    stridec("compile frames.onnx -o frames.so --dim frames=3", 0)
    stridec("verify frames.onnx frames.so", 0)
    stridec("verify repeated.onnx --runs 2", 0)
    sizes = json.loads(stridec("verify gather.onnx --format=json", 0).stdout)["runs"]  # no size, no index is given
    expect(len(sizes) == 3 and all(run["sizes"]["n"] == run["sizes"]["m"] or 1 in run["sizes"].values() for run in sizes), sizes)
    stridec("compile counting.onnx -o counting.so --state past=present", 0)
    stridec("verify counting.onnx counting.so --state past=present --runs 3", 0)
    np.save("wrong.npy", expected + 1)
    done = stridec("verify mlp.onnx mlp.so --input x=good.npy --expect y=wrong.npy", 8)
    expect("FAIL  output 'y'" in done.stdout, done.stdout)
    stridec("run external.so --input x=good.npy --output y=y.npy", 0)
    np.testing.assert_allclose(np.load("y.npy"), expected, rtol=1e-5, atol=1e-6)


def test_names():
    """Inputs and outputs have the model's names, where they share one as well, in every form that a model takes."""
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import stridec as sample  # noqa: PLC0415

    inputs, outputs = ["x", "x_1"], ["x", "w", "x_1", *models.ODD_NAMES]
    stridec("inspect named.onnx --write-graph named.graph", 0)
    for source in ("named.onnx", "named.graph"):
        # A path that is open already gives the library that was there first.
        stridec(f"compile {source} -o {source}.so", 0)
        with open(f"{source}.json", encoding="utf-8") as file:
            manifest = json.load(file)
        model = sample.Model(f"{source}.so")
        for what, want in (("inputs", inputs), ("outputs", outputs)):
            expect([value["name"] for value in manifest[what]] == want, manifest[what])
            expect([value.name for value in getattr(model, what)] == want, getattr(model, what))
        expect(manifest["symbols"][0]["from"] == {"input": "x", "dim": 0}, manifest["symbols"])
    x, other = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.array([3, 4], np.float32)
    results = [x, np.array([5, 7], np.float32), other, np.maximum(x, 0), np.maximum(x, 0)]
    for i, array in enumerate([x, other, *results]):
        np.save(f"named{i}.npy", array)
    given = ["--input", "x=named0.npy", "--input", "x_1=named1.npy"]
    kept, expected = [], []
    for i, name in enumerate(outputs):
        kept += ["--output", f"{name}=kept{i}.npy"]
        expected += ["--expect", f"{name}=named{i + 2}.npy"]
    stridec("compile named.onnx -o named.so", 0)
    ran = json.loads(stridec(["run", "named.so", *given, *kept, "--format=json"], 0).stdout)
    expect([output["name"] for output in ran["outputs"]] == outputs, ran)
    for i, want in enumerate(results):
        np.testing.assert_array_equal(np.load(f"kept{i}.npy"), want)
    stridec(["verify", "named.onnx", "named.so", *given, *expected], 0)
    stridec(["bench", "named.so", *given, "--seconds", "0.01"], 0)
    stridec("compile named.onnx -o kept.so --state x_1=x_1", 0)
    model = sample.Model("kept.so")
    expect([value.name for value in model.states] == ["x_1"] and "x_1" not in [value.name for value in model.outputs], model.outputs)


def test_unpool():
    """Indices of MaxPool count in output_shape, whatever the sizes of the run."""
    stridec("compile unpooled.onnx -o unpooled.so --dim n=0..9 --dim h=3..64 --dim w=2..64", 0)
    for shape in ((1, 2, 5, 7), (3, 2, 6, 8), (2, 2, 9, 2), (0, 2, 5, 7)):
        x = np.random.default_rng(7).permutation(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape) + 1
        want = np.zeros_like(x)
        for h in range(0, shape[2], 2):
            for w in range(0, shape[3] - 1, 2):
                block = x[:, :, max(h - 1, 0) : h + 2, w : w + 2]
                best = block == block.max((2, 3), keepdims=True, initial=0)
                want[:, :, max(h - 1, 0) : h + 2, w : w + 2] += np.where(best, block, 0)
        np.save("x.npy", x)
        stridec("run unpooled.so --input x=x.npy --output y=y.npy", 0)
        np.testing.assert_array_equal(np.load("y.npy"), np.where(want > 0, x, 0))
    stridec("verify unpooled.onnx unpooled.so", 0)


def test_declared_shapes_give_way():
    """An output of another shape than the model declares: a warning, whether the size is fixed or not."""
    made = models.model([models.helper.make_node("Relu", ["x"], ["y"])], [models.value("x", ["n", 6])], [models.value("y", [1, 6])])
    models.onnx.save(made, "declared.onnx")
    for dims, computed in (("", "n"), ("--dim n=4", "4")):
        sentence = f"output 'y': the model declares f32[1, 6], but computes f32[{computed}, 6]; the artifact has the computed shape"
        done = stridec(f"compile declared.onnx -o declared.so {dims}", 0)
        expect(done.stderr.count(sentence) == 1, done.stderr)
        expect(sentence in stridec(f"check declared.onnx {dims}", 0).stdout, "check does not warn")
        np.save("x.npy", np.full((4, 6), 2, np.float32))
        stridec("run declared.so --input x=x.npy --output y=y.npy", 0)
        expect(np.load("y.npy").shape == (4, 6), np.load("y.npy").shape)
        report = json.loads(stridec(f"compile declared.onnx -o declared.so {dims} --format=json", 0).stdout)
        expect(report["warnings"] == [sentence], report)


def test_zeros_are_quantised():
    """Nothing but zeros has the scale 1, as in onnxruntime, and what divides by it stays finite."""
    stridec("compile ranged.onnx -o ranged.so", 0)
    for x, scale in ((np.zeros((3, 4)), 1), (np.full((3, 4), 51), 0.2), (np.full((3, 4), -51), 0.2)):
        np.save("x.npy", x.astype(np.float32))
        stridec("run ranged.so --input x=x.npy --output bytes=bytes.npy --output scale=scale.npy --output steps=steps.npy", 0)
        np.testing.assert_allclose([np.load("scale.npy"), np.load("steps.npy")], [scale, 1 / scale], rtol=1e-6)
        expect((np.load("bytes.npy") == (255 if x[0, 0] > 0 else 0)).all(), np.load("bytes.npy"))


def test_verify_finds():
    """The node where rounding begins, and an artifact of another model. Altered files do not get so far (altered.py)."""
    done = stridec("verify rounded.onnx --tolerance 0 --dim batch=9", 8)
    expect("FAIL  output 'y'" in done.stdout and "first difference at node 1 'rounds/Tanh'" in done.stdout, done.stdout)
    expect("in kernel" in done.stdout and "exact/Relu" in done.stdout, done.stdout)
    failure = json.loads(stridec("verify rounded.onnx --tolerance 0 --format=json", 8).stdout)
    expect(not failure["pass"] and "rounds/Tanh" in failure["failure"], failure)
    other = models.mlp()
    weight = models.numpy_helper.to_array(other.graph.initializer[0]).copy()
    weight[1, 2] += 0.5
    other.graph.initializer[0].raw_data = weight.tobytes()
    models.onnx.save(other, "other.onnx")
    done = stridec("verify other.onnx mlp.so --dim batch=3", 8)
    expect("give that model, or compile this one" in done.stdout and "compile the artifact again" not in done.stdout, done.stdout)
    stridec("verify other.onnx --dim batch=3", 0)


def test_long_sums():
    """The rounding errors of sums do not grow with their length: within 1e-5 of f64, where a single chain of additions in
    f32 is 1e-2 off."""
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import stridec as sample  # noqa: PLC0415

    onnx, helper = models.onnx, models.helper
    float_, values = onnx.TensorProto.FLOAT, np.abs(np.random.default_rng(0).standard_normal(6_000_000)).astype(np.float32)

    def save(name, shape):
        nodes = [helper.make_node(op, ["x", axes], [op + axes], keepdims=0)
                 for op in ("ReduceSum", "ReduceSumSquare", "ReduceMean") for axes in ("0", "01")]  # fmt: skip
        nodes += [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("MatMul", ["t", "x"], ["gram"])]
        outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes if node.output[0] != "t"]
        axes = [models.numpy_helper.from_array(np.array(list(map(int, name)), np.int64), name) for name in ("0", "01")]
        graph = helper.make_graph(nodes, "sums", [helper.make_tensor_value_info("x", float_, shape)], outputs, axes)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), name)

    outputs = 0
    for level in ("", "--cpu x86-64-v2"):
        for columns in (1, 3, 8, 31):
            x = values[: len(values) // columns * columns].reshape(-1, columns)
            exact = x.astype(np.float64)
            squares = exact * exact
            expected = {"ReduceSum0": exact.sum(0), "ReduceMean0": exact.mean(0), "ReduceSumSquare0": squares.sum(0),
                        "ReduceSum01": exact.sum(), "ReduceMean01": exact.mean(), "ReduceSumSquare01": squares.sum(),
                        "gram": exact.T @ exact}  # fmt: skip
            for shape in (["n", "m"], list(x.shape)):
                save("sums.onnx", shape)
                name = f"sums{outputs}.so"  # a path that is open already gives the library that was there first
                stridec(f"compile sums.onnx -o {name} {level}", 0)
                for output, value in sample.load(name, threads=2)(x=x).items():
                    off = float(np.abs(value / expected[output] - 1).max())
                    expect(off < 1e-5, f"{output} of {shape} {level}: {off:.1e} off")
                    outputs += 1
    expect(outputs == 2 * 4 * 2 * 7, outputs)
