"""Operators that the application computes (--ops, body `callback`): the topic `callbacks` of run.py, by the Python package."""

import json
import pathlib
import sys

import numpy as np
from onnx import helper

from operators import custom, model_of, one

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python"))
import stridec  # noqa: E402


def declaration(strides=None, reference=None, **more):
    body = {"callback": {"strides": strides} if strides else {}}
    return one(body, attributes={"scale": {"type": "float", "default": 2.0}, "shift": {"type": "int", "default": 1}},
               **({"reference": reference} if reference else {}), **more)


def scaled(inputs, outputs, attributes):
    outputs[0][...] = inputs[0] * attributes["scale"] + attributes["shift"]


def compiled(work, run, expect, nodes, ops, name="callback", weights=()):
    model, file, library = model_of(work / f"{name}.onnx", nodes, weights=weights), work / "callback.ops", work / f"{name}.so"
    file.write_text(json.dumps(ops))
    code, out, errors = run("compile", model, "-o", library, "--ops", file)
    expect(f"{name} compiles", code == 0, out + errors)
    return model, file, library


def results(model, *inputs):
    made = list(model(*inputs).values())
    return made[0] if len(made) == 1 else made


def error_of(call):
    try:
        call()
    except stridec.Error as error:
        return error
    return None


def check_commands(work, run, says, expect):
    """Commands compute an operator by its reference, and say so: of each type, of views, with two outputs, without rows."""
    says_so = "computed by the reference, interpreted, in place of the application's callback: acme::Op"
    x = np.random.default_rng(5).standard_normal((5, 8)).astype(np.float32)
    reference = {"formula": "y = cast(cast(x, f32) * scale + shift, T)", "relative": 1e-2, "absolute": 1e-2}
    types = {"types": {"T": ["f16", "bf16", "f32", "f64", "f8e4m3fn", "i8"]}}
    typed = {"inputs": [{"name": "x", "type": "T", "shape": ["...s"]}], "outputs": [{"name": "y", "type": "T", "shape": ["...s"]}]}
    numbers = {"f16": 10, "bf16": 16, "f32": 1, "f64": 11, "f8e4m3fn": 17, "i8": 3}
    for strides in (None, "any"):
        for dtype, number in numbers.items():
            name = f"reference {dtype} {strides or 'dense'}"
            nodes = [helper.make_node("Cast", ["x"], ["c"], to=number), helper.make_node("Transpose", ["c"], ["t"], perm=[1, 0]),
                     custom(("t",), ("a",), scale=2.0), helper.make_node("Concat", ["a", "t"], ["b"], axis=1),
                     helper.make_node("Cast", ["b"], ["y"], to=1)]
            model, file, library = compiled(work, run, expect, nodes, {"operators": [{**declaration(strides, reference)["operators"][0], **typed, **types}]})
            for rows in (5, 0):
                np.save(work / "x.npy", x[:rows])
                output = work / "y.npy"
                code, out, errors = run("run", library, "--ops", file, "--input", f"x={work / 'x.npy'}", "--output", f"y={output}")
                expect(f"{name} runs {rows}", code == 0 and says_so in errors, out + errors)
                y = np.load(output)
                wanted = x[:rows].T if dtype != "i8" else np.trunc(x[:rows].T)
                wanted = np.concatenate([wanted * 2 + 1, wanted], 1)
                expect(f"{name} {rows}", y.shape == wanted.shape and np.allclose(y, wanted, rtol=0.13, atol=0.1), f"{y} {wanted}")
            says(f"{name} verifies", ["verify", model, library, "--ops", file], 0, says_so, "ok")
    for command in (["bench", "--seconds=0.05"], ["profile", "--seconds=0.05"], ["run", "--random"]):
        says(f"reference of {command[0]}", [command[0], library, "--ops", file, *command[1:]], 0, says_so)
    code, _, errors = run("run", library, "--ops", file, "--random", "--quiet")
    expect("quiet", code == 0 and not errors, errors)
    # By the Python package.
    expect("verify of Python", stridec.verify(model, library, ops=file)["pass"])
    expect("bench of Python", stridec.bench(library, ops=[file], seconds=0.05)["median_seconds"] > 0)
    expect("profile of Python", stridec.profile(library, ops=file, seconds=0.05)["rows"])
    error = error_of(lambda: stridec.bench(library, seconds=0.05))
    expect("no reference in Python", error is not None and error.code == "no-reference" and error.exit_code == 5, error)
    made = stridec.compile(model, ops=file)
    made.set_callback("acme::Op", lambda inputs, outputs, attributes: np.copyto(outputs[0], inputs[0]))
    expect("compile of Python", results(made, x).shape == (8, 10))
    # Two outputs of other types and shapes; an input that the model leaves out.
    two = one({"callback": {}}, inputs=[{"name": "x", "type": "f32", "shape": ["n", "d"]}, {"name": "b", "type": "f32", "shape": ["d"], "default": 4}],
              outputs=[{"name": "y", "type": "f16", "shape": ["d", "n"]}, {"name": "z", "type": "i64", "shape": []}],
              reference={"formula": ["y = cast(transpose(x + b, first = 0, second = 1), f16)", "z = cast(reduce_sum(full_like(x, 1), dims = [0, 1]), i64)"]})
    nodes = [custom(("x",), ("a", "q")), *(helper.make_node("Cast", [a], [b], to=1) for a, b in (("a", "y"), ("q", "z")))]
    model, file, library = model_of(work / "two.onnx", nodes, outputs=("y", "z")), work / "two.ops", work / "two.so"
    file.write_text(json.dumps(two))
    code, out, errors = run("compile", model, "-o", library, "--ops", file)
    expect("two outputs with a reference compile", code == 0, out + errors)
    says("two outputs with a reference", ["verify", model, library, "--ops", file], 0, says_so)
    # A state whose sizes a context is created with: runs of several sizes take several contexts.
    nodes = [custom(("x",), ("a",)), helper.make_node("Add", ["state", "a"], ["next"]), helper.make_node("Neg", ["next"], ["y"])]
    model = model_of(work / "sized.onnx", nodes, inputs=[(name, ["n", 8]) for name in ("state", "x")], outputs=("y", "next"))
    file, library = work / "sized.ops", work / "sized.so"
    file.write_text(json.dumps(one({"callback": {}}, reference={"formula": "y = x * 2"})))
    code, out, errors = run("compile", model, "-o", library, "--ops", file, "--state", "state=next", "--dim", "n=1..4")
    expect("a sized state compiles", code == 0, out + errors)
    says("a sized state", ["verify", model, library, "--ops", file, "--state", "state=next", "--runs", "3"], 0, says_so)
    for n in (1, 3):
        says(f"a sized state of {n}", ["run", library, "--ops", file, "--random", "--dim", f"n={n}"], 0, says_so)
    # Another file than the artifact's, and one without the operator.
    other = {"operators": [{**two["operators"][0], "inputs": two["operators"][0]["inputs"][:1], "reference": {"formula": two["operators"][0]["reference"]["formula"][1:]
                            + ["y = cast(transpose(x, first = 0, second = 1), f16)"]}}]}
    wrong = work / "wrong.ops"
    wrong.write_text(json.dumps(other))
    says("another declaration", ["run", library, "--random", "--ops", wrong], 4, "another number of tensors", "that the artifact was compiled with")
    wrong.write_text(json.dumps({"operators": [{**two["operators"][0], "name": "Other"}]}))
    says("another operator", ["run", library, "--random", "--ops", wrong], 5, "no reference")
    says("no file", ["run", library, "--random", "--ops", work / "none.json"], 2, "none.json")


def check(work, run, says, expect):
    x = np.random.default_rng(3).standard_normal((5, 8)).astype(np.float32)
    _, file, library = compiled(work, run, expect, [custom(scale=3.0)], declaration())
    model = stridec.load(library)
    says("inspect names the callback", ["inspect", library], 0, "acme::Op the application's callback", "a callback 'acme::Op', which the application registers")
    expect("names of operators", model.operators() == ["acme::Op"], model.operators())
    error = error_of(lambda: model(x))
    expect("a missing callback", error is not None and error.code == "STRIDEC_INVALID_ARGUMENT" and "'acme::Op' is computed by the application" in str(error),
           error)
    for command in (["run", "--random"], ["bench"], ["profile"]):
        says(f"a missing callback of {command[0]}", [command[0], library, *command[1:]], 5, "'acme::Op' is computed by the application",
             "with a 'reference': --ops FILE.json")
    error = error_of(lambda: model.set_callback("acme::Other", scaled))
    expect("an unknown name", error is not None and "it has acme::Op" in str(error), error)
    error = error_of(lambda: model.context().set_callback("acme::Other", scaled))
    expect("an unknown name of a context", error is not None and "'acme::Op'" in str(error), error)
    model.set_callback("acme::Op", scaled)
    for rows in (5, 1, 0):
        y = results(model, x[:rows])
        expect(f"a callback of {rows} rows", y.shape == (rows, 8) and np.allclose(y, x[:rows] * 3 + 1), y)

    def broken(inputs, outputs, attributes):
        raise ValueError("no license")
    model.set_callback("acme::Op", broken)
    error = error_of(lambda: model(x))
    expect("a callback that raises", error is not None and error.code == "STRIDEC_BAD_DATA" and "ValueError: no license" in str(error) and
           isinstance(error.__cause__, ValueError), error)

    def writes_input(inputs, outputs, attributes):
        inputs[0][...] = 0
    model.set_callback("acme::Op", writes_input)
    error = error_of(lambda: model(x))
    expect("inputs are read only", error is not None and "read-only" in str(error), error)
    model.set_callback("acme::Op", scaled)
    expect("it works again", np.allclose(results(model, x), x * 3 + 1), "")
    context = model.context()
    context.profile()
    context.run(x)
    expect("the profile counts it", any(name == "acme::Op" and calls == 1 for name, calls, _ in context.steps()), context.steps())
    context.set_callback("acme::Op", None)
    expect("a callback that is removed", error_of(lambda: context.run(x)) is not None, "")

    # Views, several calls, other operations around them, two outputs of other types.
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]), custom(("t",), ("a",), "first"), helper.make_node("Neg", ["a"], ["b"]),
             custom(("b",), ("c",), "second", scale=0.5), helper.make_node("Concat", ["c", "a"], ["y"], axis=0)]
    _, _, library = compiled(work, run, expect, nodes, declaration("any"), "views")
    model = stridec.load(library)
    seen = []

    def watched(inputs, outputs, attributes):
        seen.append((inputs[0].strides, outputs[0].shape))
        scaled(inputs, outputs, attributes)
    model.set_callback("acme::Op", watched)
    a = x.T * 2 + 1
    expect("views and several calls", np.allclose(results(model, x), np.concatenate([-a * 0.5 + 1, a], 0)), "")
    expect("a transposed view is not copied", seen[0][0] == (4, 32), seen)
    two = one({"callback": {}}, outputs=[{"name": "y", "type": "f16", "shape": ["d", "n"]}, {"name": "z", "type": "i64", "shape": []}])
    nodes = [custom(("x",), ("a", "b")), *(helper.make_node("Cast", [a], [b], to=1) for a, b in (("a", "y"), ("b", "z")))]
    model_path = model_of(work / "two.onnx", nodes, outputs=("y", "z"))
    file.write_text(json.dumps(two))
    code, out, errors = run("compile", model_path, "-o", work / "two.so", "--ops", file)
    expect("two outputs compile", code == 0, out + errors)

    def both(inputs, outputs, attributes):
        outputs[0][...] = inputs[0].T
        outputs[1][...] = inputs[0].size
    model = stridec.load(work / "two.so")
    model.set_callback("acme::Op", both)
    y, z = results(model, x)
    expect("two outputs", np.array_equal(y, x.T.astype(np.float16).astype(np.float32)) and z == 40, z)

    check_commands(work, run, says, expect)

    # The interpreter needs a reference; errors of the file.
    model_path, file, library = compiled(work, run, expect, [custom(scale=3.0)], declaration(), "plain")
    says("no reference", ["verify", model_path, "--ops", file], 5, "acme::Op has neither a reference")
    file.write_text(json.dumps(declaration(reference={"formula": "y = x * scale + shift"})))
    says("verify runs the reference", ["verify", model_path, "--ops", file], 0)
    says("not on GPUs", ["compile", model_path, "-o", work / "gpu.so", "--ops", file, "--target", "cuda"], 5, "'acme::Op' does not run on GPUs")
    for name, (body, sentence) in {
            "member": ({"callback": {"grain": 1}}, "unknown member 'grain'"),
            "strides": ({"callback": {"strides": "most"}}, "'most' is not one of any, rows, dense"),
            "both": ({"callback": {}, "formula": "y = x"}, "a body must have exactly one of")}.items():
        file.write_text(json.dumps(one(body)))
        says(f"callback error: {name}", ["check", model_path, "--ops", file], 3, sentence)
    file.write_text(json.dumps(one({"callback": {}}, attributes={"s": {"type": "text", "default": ""}})))
    says("callback error: text", ["check", model_path, "--ops", file], 3, "attribute 's' is not a number")
