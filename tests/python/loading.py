"""Compiling, loading and calling: calling conventions, state, threads, commands as data."""

import functools
import os
import shutil
import subprocess
import sys
import threading

import numpy as np

import harness
import stridec
from harness import PROGRAMS, arrays, equal, expect, refused
from stridec import _program


@functools.lru_cache(maxsize=None)
def program(name):
    return stridec.compile(PROGRAMS / f"{name}.pt2", threads=1)


def close(actual, expected, message):
    good = np.shape(actual) == np.shape(expected) and np.allclose(actual, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    expect(good, f"{message}: {actual} instead of {expected}")


def test_nested_arguments_and_results():
    (a, v, w0, w1), expected = arrays("nested_kwargs")
    model = program("nested_kwargs")
    options = {"scale": 1.5, "n": 7, "flag": False, "name": "zz", "opt": None, "lst": (1, 2)}
    for result in (model(a, {"u": {"v": v}, "w": [w0, w1]}, **options),
                   model(d={"w": (w0, w1), "u": {"v": v}}, a=a)):  # constants may be left out
        expect(list(result) == ["y", "z", "n", "none"] and result["none"] is None, str(result))
        expect(isinstance(result["n"], int) and isinstance(result["z"], list) and isinstance(result["z"][1], tuple), str(result))
        for actual, wanted in zip([result["y"], result["z"][0], *result["z"][1]], expected):
            close(actual, wanted, "nested_kwargs")
    nested = {"u": {"v": v}, "w": [w0, w1]}
    refused(lambda: model(a, nested, n=8), "STRIDEC_INVALID_ARGUMENT", "'n' is a constant", "7")
    refused(lambda: model(a, {"u": {"v": v}}), "STRIDEC_INVALID_ARGUMENT", "'d' has the keys")
    refused(lambda: model(a, {"u": v, "w": [w0, w1]}), "STRIDEC_INVALID_ARGUMENT", "'d.u' is a dict")
    refused(lambda: model(a, {"u": {"v": v}, "w": [w0]}), "STRIDEC_INVALID_ARGUMENT", "'d.w' has 2 elements")
    refused(lambda: model(a), "STRIDEC_INVALID_ARGUMENT", "'d' is missing")


def test_named_tuples():
    (x,), expected = arrays("namedtuple_out")
    result = program("namedtuple_out")(x)
    expect(type(result[0]).__name__ == "P" and result[0]._fields == ("a", "b"), str(type(result[0])))
    close(result[0].a, expected[0], "a")
    close(result[0].b[0], expected[1], "b")
    equal(result[0].b[1], expected[2], "indices")


def test_integers_and_complex_numbers():
    given, expected = arrays("int_input")
    result = program("int_input")(given[0], 5, 0.5)
    expect(isinstance(result[1], int) and isinstance(result[2], float), str(result))
    refused(lambda: program("int_input")(given[0], 5, 0.25), "STRIDEC_INVALID_ARGUMENT", "constant")
    given, expected = arrays("complex_")
    for actual, wanted in zip(program("complex_")(*given), expected):
        expect(actual.dtype.kind == wanted.dtype.kind, f"{actual.dtype} instead of {wanted.dtype}")
        close(actual, wanted, "complex_")


def test_shapes_that_the_data_decides():
    model = program("nonzero_item")
    for values in ([1, -1, 0, 2], [1, 1, 1, 1], [1, 0, 0, 0]):
        x = np.array(values, np.float32)
        result = model(x, np.int64(1))
        equal(result[0], np.argwhere(x), "nonzero")
    kept = model(np.array([1, 0], np.float32), np.int64(1))[0]
    model(np.array([0, 1], np.float32), np.int64(1))
    equal(kept, [[0]], "an earlier result")
    refused(lambda: model(np.ones(5, np.float32), np.int64(6)), "STRIDEC_BAD_DATA", "Runtime assertion failed")


def test_state():
    model = stridec.compile(PROGRAMS / "buf_mut.pt2", threads=1)
    expect(sorted(s.name for s in model.states) == ["hist", "n"], str(model.states))
    x, rows = np.ones((2, 4), np.float32), np.array([0, 2])
    first = model(x.copy(), rows)
    expect(model.state("n") == 1, str(model.state("n")))
    mine = x.copy()
    model(mine, rows)
    equal(mine, 2 * x, "an argument that the module writes")
    model.write_state("hist", np.full((8, 4), 3, np.float32))
    equal(model.state("hist"), np.full((8, 4), 3), "hist")
    model.reset_state()
    equal(model(x.copy(), rows), first, "after a reset")
    own = model.context()
    equal(own.run(x, rows)[0], first, "a context of its own")
    refused(lambda: model.state("m"), "STRIDEC_INVALID_ARGUMENT", "hist")
    locked = x.copy()
    locked.flags.writeable = False
    refused(lambda: model(locked, rows), "STRIDEC_INVALID_ARGUMENT", "read-only")
    expect(model.state("n") == 1, "a refused call changes the state")


def test_threads():
    model = program("plain")
    problems = []

    def call(number):
        x = np.full((number, 5), number, np.float32)
        for _ in range(200):
            if not np.array_equal(model(x, np.ones_like(x)), np.full(number, 5.0 * number, np.float32)):
                problems.append(number)

    # plain multiplies by the mask and sums, up to rounding of small integers
    threads = [threading.Thread(target=call, args=(n,)) for n in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not problems, f"wrong results in {len(problems)} of 800 calls")


def test_context_functions():
    model = program("plain")
    context = model.context(threads=1)
    x = np.ones((2, 3), np.float32)
    context.warm_up(x, x)
    context.profile()
    by_name = context.run({"mask": x, "image": 2 * x})
    equal(by_name[0], model(2 * x, x), "inputs by name")
    expect(context.steps()[0][1] == 1 and context.memory()["allocations"] >= 0, str(context.steps()))
    refused(lambda: context.run({"image": x}), "STRIDEC_INVALID_ARGUMENT", "mask")


def test_save_load_and_close():
    path = os.path.join(os.getcwd(), "kept.so")
    stridec.compile(PROGRAMS / "plain.pt2", output=path, dims={"image.0": (1, 8)}, metadata={"version": "1.4"}).close()
    x = np.ones((2, 3), np.float32)
    with stridec.load(path, threads=1) as model:
        expect(model.manifest()["metadata"]["version"] == "1.4", "metadata")
        expect(model.symbols["image.0"][:2] == (1, 8), str(model.symbols))
        expect(model.inputs[0].shape == ("image.0", "image.1"), str(model.inputs))
        model(mask=x, image=x)
        refused(lambda: model(np.ones((9, 3), np.float32), np.ones((9, 3), np.float32)), "STRIDEC_WRONG_SHAPE", "1..8")
    refused(lambda: model(x, x), "STRIDEC_INVALID_ARGUMENT", "closed")
    temporary = stridec.compile(PROGRAMS / "plain.pt2")
    folder = os.path.dirname(temporary.path)
    expect(os.path.exists(temporary.path), "the artifact is not there")
    temporary.close()
    expect(not os.path.exists(folder), "the artifact without a name stays")


def test_a_path_that_is_compiled_again():
    x = np.ones(2, np.float32)
    held = []
    for factor in (2, 3, 4):
        harness.write_onnx("again.onnx", [("Mul", ["x", "c"], ["y"], {})], [("x", 1, ["n"])], [("y", 1, ["n"])],
                           {"c": np.float32(factor)})  # fmt: skip
        held.append(stridec.compile("again.onnx", output="again.so"))
        equal(held[-1](x)["y"], factor * x, "compiled")
        equal(stridec.load("again.so")(x)["y"], factor * x, "loaded")
    for factor, model in zip((2, 3, 4), held):
        equal(model(x)["y"], factor * x, "an earlier model")
    shutil.copy("again.so", "overwritten.so")
    stridec.load("overwritten.so")
    with open("overwritten.so", "r+b") as file:  # the same file
        os.utime(file.fileno(), (1, 1))
    refused(lambda: stridec.load("overwritten.so"), "STRIDEC_BAD_ARTIFACT", "written over in place")


def test_names_give_the_structure():
    """Without a stored convention: an artifact of the command line."""
    subprocess.run([os.environ["STRIDEC_PROGRAM"], "compile", str(PROGRAMS / "nested_kwargs.pt2"), "-o", "plain.so", "--quiet"],
                   check=True)
    (a, v, w0, w1), expected = arrays("nested_kwargs")
    result = stridec.load("plain.so", threads=1)(a, d={"u": {"v": v}, "w": (w0, w1)})
    close(result["z"][1][0], expected[2], "z.1.0")


def test_files_that_are_no_artifacts():
    refused(lambda: stridec.load("missing.so"), "STRIDEC_BAD_ARTIFACT", "missing.so")
    with open("text.so", "w") as file:
        file.write("text")
    refused(lambda: stridec.load("text.so"), "STRIDEC_BAD_ARTIFACT")
    error = refused(lambda: stridec.compile("missing.onnx"), "unreadable", "missing.onnx")
    expect(error.exit_code == 2 and error.diagnostics[0].code == error.code, str(error.exit_code))
    refused(lambda: stridec.compile(3), "STRIDEC_INVALID_ARGUMENT", "int")
    refused(lambda: stridec.compile(PROGRAMS / "plain.pt2", dims={"w": 3}), "unknown-dim", "image.0")


def test_commands_as_data():
    model = str(PROGRAMS / "plain.pt2")
    expect(stridec.check(model)["problems"] == [], "check")
    expect("reduce_sum" in stridec.inspect(model, stage="graph")["text"], "inspect")
    artifact = stridec.compile(model)
    inputs = {"image": np.ones((2, 3), np.float32), "mask": np.ones((2, 3), np.float32)}
    verified = stridec.verify(model, artifact.path, inputs=inputs, expect={"output": np.array([3, 3], np.float32)})
    expect(verified["pass"] is True, str(verified))
    expect(stridec.verify(model, artifact.path, inputs=inputs, expect={"output": np.zeros(2, np.float32)})["pass"] is False,
           "a difference passes")
    timed = stridec.bench(artifact.path, inputs=inputs, seconds=0.05, threads=1)
    expect(timed["median_seconds"] > 0 and timed["kernels"], str(timed))
    profiled = stridec.profile(artifact.path, inputs=inputs, runs=3, threads=1, group="node")
    expect(sum(row["nanoseconds"] for row in profiled["rows"]) == profiled["nanoseconds"] > 0, str(profiled))


def test_values_of_inputs_as_flags():
    given = _program.flags(input_values={"rate": 3, "fast": True, "size": (3, 2)})
    expect([word for word in given if word != "--input-value"] == ["rate=3", "fast=1", "size=3,2"], str(given))


def test_unsupported_operators_are_all_listed():
    import json
    import zipfile

    with zipfile.ZipFile(PROGRAMS / "plain.pt2") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    key = next(name for name in members if "/models/" in name)
    whole = json.loads(members[key])
    for number, node in enumerate(whole["graph_module"]["graph"]["nodes"]):
        node["target"] = f"torch.ops.aten.no_such_{number}.default"
    members[key] = json.dumps(whole).encode()
    with zipfile.ZipFile("unsupported.pt2", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    error = refused(lambda: stridec.compile("unsupported.pt2"), "unsupported-op", "no_such_0", "no_such_1")
    expect(error.exit_code == 5 and len(error.diagnostics) == 2, str(error.diagnostics))
    expect(len(stridec.check("unsupported.pt2")["problems"]) == 2, "check")


def test_the_command_line():
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "python")}
    done = subprocess.run([sys.executable, "-m", "stridec", "--version"], env=environment, capture_output=True, text=True)
    expect(done.returncode == 0 and done.stdout.split()[:2] == ["stridec", stridec.__version__], done.stdout + done.stderr)
    done = subprocess.run([sys.executable, "-m", "stridec", "compile"], env=environment, capture_output=True, text=True)
    expect(done.returncode == 1, f"exit code {done.returncode}")
    environment["STRIDEC_PROGRAM"] = "/nothing"
    done = subprocess.run([sys.executable, "-m", "stridec"], env=environment, capture_output=True, text=True)
    expect(done.returncode == 1 and "STRIDEC_PROGRAM" in done.stderr, done.stderr)
