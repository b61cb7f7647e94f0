"""Artifacts whose weights are replaced without compiling: `compile --refit`, `refit`, the C API."""

import json
import os
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from harness import expect, nvrtc, stridec

GENERATOR = np.random.default_rng(20261128)


def network(scale=1.0):
    """Convolutions with batch norm, two siblings, a product with bias, a table: packed, folded, joined, looked up."""
    def weight(name, *shape):
        return numpy_helper.from_array((GENERATOR.standard_normal(shape) * scale / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32), name)

    channels = 24
    weights = [
        weight("conv.w", channels, 8, 3, 3), weight("conv.b", channels),
        weight("norm.scale", channels), weight("norm.bias", channels), weight("norm.mean", channels),
        numpy_helper.from_array((0.5 + GENERATOR.random(channels)).astype(np.float32), "norm.var"),
        weight("left.w", channels, 40), weight("right.w", channels, 40), weight("out.w", 40, 17), weight("out.b", 17),
        weight("table", 11, channels), numpy_helper.from_array(np.array([0.75], np.float32), "factor"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "conv.w", "conv.b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "norm.scale", "norm.bias", "norm.mean", "norm.var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gather", ["table", "row"], ["g"]),
        helper.make_node("Add", ["f", "g"], ["h"]),
        helper.make_node("MatMul", ["h", "left.w"], ["a"]),
        helper.make_node("MatMul", ["h", "right.w"], ["b"]),
        helper.make_node("Sigmoid", ["b"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["m"]),
        helper.make_node("Gemm", ["m", "out.w", "out.b"], ["o"]),
        helper.make_node("Mul", ["o", "factor"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "refitted",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8, 12, 12]), helper.make_tensor_value_info("row", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 17])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": {"float32": "F32", "float64": "F64"}[str(array.dtype)], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in tensors.values()))


def weights_of(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def run(artifact):
    stridec(f"run {artifact} --input x=refit_x.npy --input row=refit_row.npy --output y=refit_y.npy", 0)
    return np.load("refit_y.npy")


def prepare_models():
    first, second = network(), network(2.0)
    onnx.save(first, "first.onnx")
    onnx.save(second, "second.onnx")
    np.save("refit_x.npy", GENERATOR.standard_normal((3, 8, 12, 12)).astype(np.float32))
    np.save("refit_row.npy", np.array([0, 10, 4]))
    return first, second


def test_refit():
    first, second = prepare_models()
    stridec("compile second.onnx -o second.so", 0)
    stridec("compile first.onnx -o first.so --refit *", 0)
    stridec("compile first.onnx -o constant.so", 0)
    # Rounding differs where constants are folded in another order.
    np.testing.assert_allclose(run("first.so"), run("constant.so"), rtol=1e-4, atol=1e-5)
    manifest = json.loads(open("first.json").read())
    names = {parameter["name"] for parameter in manifest["parameters"]}
    expect(names == set(weights_of(first)) - {"factor"}, names)  # one element: a constant
    expect("parameters" not in json.loads(open("constant.json").read()), "constants are listed as parameters")
    # The same values give the same bytes.
    stridec("refit first.so --parameters first.onnx -o same.so", 0)
    expect(open("same.so", "rb").read() == open("first.so", "rb").read(), "equal parameters give another artifact")
    done = stridec("refit first.so --parameters second.onnx -o refitted.so --format=json", 0)
    expect(json.loads(done.stdout)["unused"] == ["factor"], done.stdout)
    np.testing.assert_allclose(run("refitted.so"), run("second.so"), rtol=1e-4, atol=1e-5)
    write_safetensors("second.safetensors", {name: value for name, value in weights_of(second).items() if name != "factor"})
    stridec("refit first.so --parameters second.safetensors -o tensors.so", 0)
    expect(open("tensors.so", "rb").read() == open("refitted.so", "rb").read(), "the two formats give different artifacts")
    stridec("verify first.onnx first.so", 0)


def test_refit_by_exact_name():
    first, second = prepare_models()
    stridec("compile first.onnx -o named.so --refit factor --refit out.*", 0)
    names = [parameter["name"] for parameter in json.loads(open("named.json").read())["parameters"]]
    expect(sorted(names) == ["factor", "out.b", "out.w"], names)
    old = run("named.so")
    write_safetensors("factor.safetensors", {"factor": weights_of(first)["factor"] * 3})
    stridec("refit named.so --parameters factor.safetensors --partial -o three.so", 0)
    np.testing.assert_allclose(run("three.so"), 3 * old, rtol=1e-5)


def test_refit_of_every_variant():
    """A variant that this machine does not run gets its derived parameters too."""
    prepare_models()
    stridec("compile first.onnx -o variants.so --refit * --cpu x86-64-v2,x86-64-v3,x86-64-v4", 0)
    stridec("compile second.onnx -o variants_second.so --refit * --cpu x86-64-v2,x86-64-v3,x86-64-v4", 0)
    stridec("refit variants.so --parameters second.onnx -o variants_refitted.so", 0)

    def region(path):  # its parameters and all that is derived from them
        manifest = json.loads(open(os.path.splitext(path)[0] + ".json").read())
        begin = min(parameter["offset"] for parameter in manifest["parameters"])
        end = manifest["memory"]["weights_bytes"]
        file = open(path, "rb").read()
        marker = weights_of(onnx.load("second.onnx"))["conv.w"].tobytes()
        at = file.index(marker) - next(p["offset"] for p in manifest["parameters"] if p["name"] == "conv.w")
        return file[at + begin : at + end]

    expect(region("variants_refitted.so") == region("variants_second.so"), "derived parameters differ from those of a compilation")


def test_refit_refused():
    prepare_models()
    stridec("compile first.onnx -o refused.so --refit out.*", 0)
    stridec("compile first.onnx -o plain.so", 0)
    good = {name: value for name, value in weights_of(network()).items() if name.startswith("out.")}
    cases = {
        "missing": ({"out.w": good["out.w"]}, "'out.b' is missing"),
        "shape": ({**good, "out.b": good["out.b"][:3]}, "'out.b' is f32[3], the artifact's is f32[17]"),
        "dtype": ({**good, "out.b": good["out.b"].astype(np.float64)}, "'out.b' is f64[17], the artifact's is f32[17]"),
    }
    for name, (tensors, sentence) in cases.items():
        write_safetensors(f"{name}.safetensors", tensors)
        done = stridec(f"refit refused.so --parameters {name}.safetensors -o never.so", 4)
        expect(sentence in done.stderr and not os.path.exists("never.so"), done.stderr)
    done = stridec("refit plain.so --parameters missing.safetensors -o never.so", 1)
    expect("has no replaceable parameters" in done.stderr, done.stderr)
    done = stridec("compile first.onnx -o never.so --refit nothing.*", 1)
    expect("no weight 'nothing.*'" in done.stderr, done.stderr)
    text = open("missing.safetensors", "rb").read()
    for name, damaged in (("cut", text[:100]), ("long", struct.pack("<Q", 1 << 60) + text[8:]), ("none", b""),
                          ("json", text[:8] + b"[" + text[9:]), ("far", text.replace(b'[0, 2720]', b'[0, 9999]'))):
        with open(f"{name}.safetensors", "wb") as file:
            file.write(damaged)
        done = stridec(f"refit refused.so --parameters {name}.safetensors -o never.so", 3)
        expect("bad-safetensors" in done.stderr and not os.path.exists("never.so"), f"{name}: {done.stderr}")


def test_refit_of_external_weights():
    """The new library names a new file of weights; the old artifact stays whole. The name may be longer or shorter."""
    prepare_models()
    os.makedirs("elsewhere", exist_ok=True)
    library = nvrtc()
    gpu = ["--target", "cpu,cuda", "--gpu", "sm_90a", "--nvrtc", library] if library else []
    for flags in ([], gpu):
        stridec(["compile", "first.onnx", "-o", "outside.so", "--refit", "*", "--weights", "external", *flags], 0)
        stridec(["compile", "second.onnx", "-o", "outside_second.so", "--refit", "*", "--weights", "external", *flags], 0)
        old = None if flags else run("outside.so")
        for name in ("outside_much_longer", "o", os.path.join("elsewhere", "outside")):
            stridec(f"refit outside.so --parameters second.onnx -o {name}.so", 0)
            expect(open(f"{name}.weights", "rb").read() == open("outside_second.weights", "rb").read(), name)
            manifest = open(f"{name}.json").read()
            expect(json.loads(manifest)["memory"]["weights_file"] == os.path.basename(name) + ".weights", manifest)
            expect(json.loads(stridec(f"inspect {name}.so --format=json", 0).stdout) == json.loads(manifest), "the manifest within")
            if flags:
                continue
            np.testing.assert_allclose(run(f"{name}.so"), run("outside_second.so"), rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(run("outside.so"), old)
        # In place, and twice: what is written is an artifact like any other.
        stridec("refit o.so --parameters first.onnx -o o.so", 0)
        expect(open("o.weights", "rb").read() == open("outside.weights", "rb").read(), "the weights of the first again")
        stridec("refit outside.so --parameters first.onnx -o outside.so", 0)
        stridec("inspect o.so", 0)
