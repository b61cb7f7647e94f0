"""What artifacts compute, and how verify finds the node that differs."""

import json

import numpy as np

import models
from harness import expect, stridec


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
    expect("compile the artifact again" in done.stdout, done.stdout)
    stridec("verify other.onnx --dim batch=3", 0)
