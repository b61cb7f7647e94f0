"""What `verify` allows: it follows the types that a model computes in, and an artifact of another model is called so."""

import json
import os
import shlex

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from harness import expect, stridec
from models import model, value

ROWS = 2000


def quantized(seed=5, scale=1.0, layers=3, integers=False):
    """Matrix products between QuantizeLinear and DequantizeLinear, weights of 8 bits with a scale for each column."""
    rng, nodes, weights, size = np.random.default_rng(seed), [], [], 64

    def constant(name, array):
        weights.append((name, array))
        return name

    def through_bytes(name, step):
        where = [constant(name + "_scale", np.float32(step)), constant(name + "_zero", np.uint8(120))]
        nodes.append(helper.make_node("QuantizeLinear", [name, *where], [name + "_q"], name + "/Quantize"))
        nodes.append(helper.make_node("DequantizeLinear", [name + "_q", *where], [name + "_d"], name + "/Dequantize"))

    through_bytes("x", 0.027)
    last = "x"
    for i in range(layers):
        w = rng.integers(-127, 128, (size, size), np.int8)
        steps = (rng.uniform(0.5, 1.5, size) * 0.0017 * scale).astype(np.float32)
        column = [constant(f"w{i}", w), constant(f"w{i}_scale", steps), constant(f"w{i}_zero", np.zeros(size, np.int8))]
        nodes.append(helper.make_node("DequantizeLinear", column, [f"w{i}_d"], f"w{i}/Dequantize", axis=1))
        nodes.append(helper.make_node("MatMul", [last + "_d", f"w{i}_d"], [f"h{i}"], f"h{i}/MatMul"))
        through_bytes(f"h{i}", 0.03)
        last = f"h{i}"
    made = model(nodes, [value("x", ["n", size])], [value(last + ("_q" if integers else "_d"), ["n", size], TensorProto.UINT8 if integers else 1)], weights)
    made.graph.output[0].name = last + ("_q" if integers else "_d")
    return made


def of_type(dtype):
    """A chain of operators in one float type."""
    weight = numpy_helper.from_array(np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32), "w")
    if dtype != TensorProto.FLOAT:
        weight = helper.make_tensor("w", dtype, [32, 32], numpy_helper.to_array(weight).ravel().tolist())
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Tanh", ["a"], ["b"]), helper.make_node("Softmax", ["b"], ["y"])]
    graph = helper.make_graph(nodes, "typed", [value("x", ["n", 32], dtype)], [value("y", ["n", 32], dtype)], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_verify_quantized():
    """Roundings of values halfway between two steps may go either way; weights that are one percent off are a difference."""
    for integers in (False, True):
        onnx.save(quantized(integers=integers), "quantized.onnx")
        told = json.loads(stridec(f"verify quantized.onnx --dim n={ROWS} --runs 2 --format=json", 0).stdout)
        expect(told["quantized"] and told["tolerance_of"] == "f32" and told["tolerance"] < 1e-3, told)
        over = [run for run in told["runs"] if run["difference"] > told["tolerance"]]
        expect(over and all(run["difference"] <= run["allowed"] < 0.1 and run["mean"] < 1e-4 for run in over), told)
        text = stridec(f"verify quantized.onnx --dim n={ROWS} --runs 2", 0).stdout
        expect("tolerance 0.0001 (f32; quantised" in text and "roundings can change" in text, text)
        # A tolerance that is given is all that is allowed.
        stridec(f"verify quantized.onnx --dim n={ROWS} --runs 2 --tolerance 1e-4", 8)

        # Given outputs are not a measure of what roundings can change.
        np.save("rows.npy", np.random.default_rng(9).standard_normal((ROWS, 64)).astype(np.float32))
        stridec("compile quantized.onnx -o quantized.so", 0)
        stridec("run quantized.so -i x=rows.npy -o rows_out.npy", 0)
        stridec("verify quantized.onnx -i x=rows.npy --expect rows_out.npy", 0)
        given = np.load("rows_out.npy")
        np.save("rows_out.npy", given[::-1])
        stridec("verify quantized.onnx -i x=rows.npy --expect rows_out.npy", 8)

        onnx.save(quantized(scale=1.01, integers=integers), "other.onnx")
        stridec("compile other.onnx -o other.so", 0)
        text = stridec(f"verify quantized.onnx other.so --dim n={ROWS}", 8).stdout
        expect("FAIL" in text and "allowed" in text and "was compiled from 'other.onnx'" in text, text)


def test_verify_types():
    """The verdict names the narrowest type that the model computes in."""
    for dtype, name, tolerance in ((TensorProto.FLOAT, "f32", 1e-4), (TensorProto.FLOAT16, "f16", 2.0**-8),
                                   (TensorProto.BFLOAT16, "bf16", 2.0**-5), (TensorProto.DOUBLE, "f64", 1e-9)):  # fmt: skip
        onnx.save(of_type(dtype), "typed.onnx")
        told = json.loads(stridec("verify typed.onnx --format=json", 0).stdout)
        expect((told["tolerance_of"], told["tolerance"], told["quantized"]) == (name, tolerance, False), told)
        expect(f"({name})" in stridec("verify typed.onnx", 0).stdout, name)
    # What is only moved is compared bit for bit.
    moved = [helper.make_node("Transpose", ["x"], ["t"], "turn"), helper.make_node("Flatten", ["t"], ["y"], "flatten", axis=0)]
    onnx.save(model(moved, [value("x", ["n", 3])], [value("y", None)]), "moved.onnx")
    told = json.loads(stridec("verify moved.onnx --format=json", 0).stdout)
    expect((told["tolerance_of"], told["tolerance"]) == ("no result is rounded", 0), told)
    expect("tolerance 0 (no result is rounded)" in stridec("verify moved.onnx", 0).stdout, "what is moved")
    onnx.save(of_type(TensorProto.FLOAT), "typed.onnx")
    told = json.loads(stridec("verify typed.onnx --precision bf16 --format=json", 0).stdout)
    expect(told["tolerance_of"] == "bf16" and told["tolerance"] >= 5e-3, told)
    expect(json.loads(stridec("verify typed.onnx --tolerance 1 --format=json", 0).stdout)["tolerance_of"] == "given", "given")


def test_verify_of_another_model():
    """Its interface may be the same, or another one: the message says which model the artifact was made from."""
    done = stridec("verify mlp.onnx gather.so")
    expect(done.returncode != 0 and "was compiled from 'gather.onnx'" in done.stderr, done.stderr)
    with open("mlp.onnx", "rb") as file, open("again.onnx", "wb") as copy:
        copy.write(file.read())
    expect("compiled from" not in stridec("verify again.onnx mlp.so --runs 1", 0).stderr, "the same model by another name")
    made = onnx.load("mlp.onnx")
    made.doc_string = "exported again"
    onnx.save(made, "again.onnx")
    done = stridec("verify again.onnx mlp.so --runs 1", 0)
    expect("warning[other-model]: 'mlp.so' was compiled from 'mlp.onnx'" in done.stderr, done.stderr)


def chain():
    """Sizes that stay open, a shape that is computed, a branch, constants: a product, tanh, a sum, a softmax, a reshape."""
    rng = np.random.default_rng(3)
    weights = [("w", rng.standard_normal((8, 8)).astype(np.float32)), ("last", np.array([-1], np.int64)), ("zero", np.int64(0))]
    yes = helper.make_graph([helper.make_node("Neg", ["soft"], ["yes"], "negate")], "yes", [], [value("yes", ["n", 8])])
    no = helper.make_graph([helper.make_node("Abs", ["soft"], ["no"], "absolute")], "no", [], [value("no", ["n", 8])])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("Tanh", ["h"], ["t"], "squash"),
             helper.make_node("Add", ["t", "z"], ["s"], "sum"), helper.make_node("Softmax", ["s"], ["soft"], "shares"),
             helper.make_node("ReduceSum", ["x"], ["all"], "total", keepdims=0), helper.make_node("Cast", ["zero"], ["edge"], "edge", to=1),
             helper.make_node("Greater", ["all", "edge"], ["positive"], "compare"),
             helper.make_node("If", ["positive"], ["chosen"], "choice", then_branch=yes, else_branch=no),
             helper.make_node("Reshape", ["chosen", "last"], ["flat"], "flatten"), helper.make_node("Exp", ["flat"], ["y"], "grow")]
    return model(nodes, [value("x", ["n", 8]), value("z", ["n", 8])], [value("y", None)], weights)


def test_verify_leaves_the_smallest_model():
    """A pass that breaks one operation, or two that stand together: what is left has these alone, compiles, and differs again."""
    made = chain()
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    made.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(made, "chain.onnx")
    stridec("verify chain.onnx --runs 1", 0)
    with open("bad.rules", "w") as file:
        file.write('rule bad:\n  let x: float[...], y: float[...]\n  match tanh(x) + y\n  yield tanh(x) - y\n  check trusted "to be found"\n')
    cases = {"--pass after=import \"sed 's/= tanh /= sin /'\"": ("squash", "Tanh", {"tanh"}, ["h"]),
             "--rewrites bad.rules": ("sum", "Add", {"tanh", "add"}, ["h", "z"]),
             "--pass after=import \"sed 's/= abs /= exp /; s/= neg /= exp /'\"": ("choice", "If", {"if"}, None),
             "--pass after=import \"sed '/Exp/s/= exp /= neg /'\"": ("grow", "Exp", {"exp"}, None)}
    for flags, (name, op, kinds, inputs) in cases.items():
        told = json.loads(stridec(f"verify chain.onnx --runs 1 --dim n=5 {flags} --repro 'left over' --format=json", 8).stdout)
        what, left = told["difference"], told["repro"]
        expect(f"'{name}' ({op})" in what["node"] and what["type"].startswith("f32[") and what["element"] and what["expected"] != what["got"], told)
        # An If has no operands, and reads values of outside.
        expect((op == "If" or what["inputs"]) and all("type" in row or row["declared"] for row in what["inputs"]), what)
        files = set(os.listdir("left over"))
        expect(files == {"model.graph", "inputs.npz", "expected.npz", "repro.json"}, files)
        with open("left over/repro.json") as file:
            stored = json.load(file)
        expect({**stored, "folder": "left over"} == left, stored)
        text = stridec(["inspect", "left over/model.graph", "--stage=graph"], 0).stdout
        found = {word for word in ("dot_general", "tanh", "add", "exp", "if", "reduce_sum", "reshape") if f"= {word} " in text}
        expect(kinds <= found and len(found) <= len(kinds) + (1 if inputs is None else 0), f"{flags}: {text}")
        if inputs:
            expect(sorted(left["inputs"]) == sorted(inputs) and all(each == "f32[5, 8]" for each in left["inputs"].values()), left)
            expect(left["nodes"] == len(kinds), left)
        stridec(["compile", "left over/model.graph", "-o", "left.so"], 0)
        again = stridec(shlex.split(left["command"])[1:] + ["--no-repro", "--format=json"], 8)
        told = json.loads(again.stdout)
        expect(f"'{name}' ({op})" in told["difference"]["node"] and "repro" not in told, told)
        stridec(["verify", "left over/model.graph", "--input", "left over/inputs.npz"], 0)  # without what breaks it
        stridec(["run", "left.so", "-i", "left over/inputs.npz", "-o", "found.npz"], 0)
        wanted, found = np.load("left over/expected.npz"), np.load("found.npz")
        expect(all(np.allclose(wanted[key], found[key], rtol=1e-4, atol=1e-5) for key in wanted.files), "expected.npz")
    # An artifact that differs while this build's code does not: the inputs alone.
    stridec("compile chain.onnx -o chain.so --rewrites bad.rules", 0)
    os.rename("left over", "only inputs")  # whose model is of another failure
    with open("only inputs/notes.txt", "w"):
        pass
    done = stridec("verify chain.onnx chain.so --runs 1 --repro 'only inputs'", 8)
    expect("'only inputs' has its inputs: stridec verify chain.onnx chain.so --input 'only inputs/inputs.npz'" in done.stdout, done.stdout)
    expect(set(os.listdir("only inputs")) == {"inputs.npz", "repro.json", "notes.txt"}, os.listdir("only inputs"))
    stridec(["verify", "chain.onnx", "chain.so", "--input", "only inputs/inputs.npz", "--no-repro"], 8)
    with open("a file", "w"):
        pass
    expect("could not be written" in stridec("verify chain.onnx --runs 1 --rewrites bad.rules --repro 'a file'", 8).stdout, "a file in its place")
