"""Artifacts of several functions: one cache and one weight behind two entry points."""

import json
import lzma
import os
import re
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness import HERE, ROOT, STRIDEC, expect, nvrtc, stridec
from models import model, value

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
PLACES, WIDTH = 8, 64  # of the cache
WEIGHT = np.random.default_rng(11).standard_normal((WIDTH, WIDTH)).astype(np.float32)


def step(rows, places=PLACES, weight=WEIGHT):
    """present = past with x @ w at `at`; y = the sums of its rows. `rows`: how many rows x has."""
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["k"], "keys"),
            helper.make_node("ScatterND", ["past", "at", "k"], ["present"], "cache"),
            helper.make_node("ReduceSum", ["present", "axis"], ["y"], "sums", keepdims=0),
        ],
        [value("x", [rows, WIDTH]), value("at", [rows, 1], I64), value("past", [places, WIDTH])],
        [value("y", [places]), value("present", [places, WIDTH])],
        [("w", weight), ("axis", np.array([1]))],
    )


def write(**models):
    for name, one in models.items():
        onnx.save(one, name + ".onnx")


FUNCTIONS = "--function prefill=prefill.onnx --function decode=decode.onnx --state past=present"


def prepare():
    """both.so, once."""
    if os.path.exists("both.so"):
        return
    write(prefill=step("n"), decode=step(1))
    stridec(f"compile {FUNCTIONS} -o both.so --dim n=1..8", 0)


def sample():
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import stridec as module

    return module


def manifest_of(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def test_functions_share_states_and_weights():
    """Rows that one function caches are there for the other; the weight is stored once."""
    import jsonschema

    prepare()
    context = sample().Model("both.so").context(threads=1)
    functions = context.model.functions
    expect(list(functions) == ["prefill", "decode"], list(functions))
    expect([v.shape for v in functions["decode"].inputs] == [(1, 64), (1, 1)], functions["decode"].inputs)
    rng = np.random.default_rng(3)
    cache = np.zeros((PLACES, WIDTH), np.float32)
    for name, rows, first in (("prefill", 3, 0), ("decode", 1, 3), ("decode", 1, 4), ("prefill", 2, 5), ("decode", 1, 0)):
        x = rng.standard_normal((rows, WIDTH)).astype(np.float32)
        at = np.arange(first, first + rows).reshape(rows, 1)
        cache[at[:, 0]] = x @ WEIGHT
        (y,) = context.run({"x": x, "at": at}, function=name)
        expect(np.allclose(y, cache.sum(1), atol=1e-3), f"{name}: {y} instead of {cache.sum(1)}")
        expect(np.allclose(context.state("past"), cache, atol=1e-4), "the state")
    manifest = manifest_of("both.json")
    with open(os.path.join(ROOT, "schemas", "manifest.schema.json"), encoding="utf-8") as file:
        jsonschema.validate(manifest, json.load(file))
    expect([f["name"] for f in manifest["functions"]] == ["prefill", "decode"], manifest["functions"])
    expect([s["name"] for s in manifest["states"]] == ["past"], manifest["states"])
    expect(manifest["inputs"] == manifest["functions"][0]["inputs"], "the first function is at the top")
    expect([f["dims"] for f in manifest["functions"]] == [{"n": "1..8"}, {}], "--dim goes where the name is")
    # Packed for products of many rows and of one, the weight is stored twice; three times would be one too many.
    expect(manifest["memory"]["weights_bytes"] < 2.5 * WEIGHT.nbytes, manifest["memory"])


def test_sample_of_functions():
    """samples/c/functions.c lists both functions, and runs the one whose sizes are fixed."""
    prepare()
    done = subprocess.run([os.path.join(os.path.dirname(STRIDEC), "sample_functions"), "./both.so"], capture_output=True, text=True, timeout=60)
    lines = [line.strip() for line in done.stdout.splitlines()]
    expect(lines[0] == "state past f32 [8, 64]", done.stdout + done.stderr)
    expect([line for line in lines if line.startswith("function")] == ["function prefill", "function decode"], lines)
    expect(lines.count("a run on zeros: done") == 1 and lines[-1] == "a run on zeros: done", lines)


def test_equal_functions_are_stored_once():
    """A second function of the same model adds neither weights nor kernels."""
    write(one=step(1), other=step(1))
    alone = json.loads(stridec("compile one.onnx -o one.so --state past=present --format=json", 0).stdout)
    twice = json.loads(stridec("compile --function a=one.onnx --function b=other.onnx -o twice.so --state past=present --format=json", 0).stdout)
    expect(twice["weight_bytes"] == alone["weight_bytes"], f"{twice['weight_bytes']} instead of {alone['weight_bytes']}")
    expect(twice["kernels"] == alone["kernels"], f"{twice['kernels']} instead of {alone['kernels']}")
    expect([p["function"] for p in twice["programs"]] == ["a", "b"], twice["programs"])
    expect("function" not in alone["programs"][0] and "functions" not in manifest_of("one.json"), "an artifact of one function")


def test_commands_of_functions():
    """run, inspect, verify, bench, diff and tune take a function's name, and refuse one that is not there."""
    prepare()
    np.save("x.npy", np.ones((1, WIDTH), np.float32))
    np.save("at.npy", np.zeros((1, 1), np.int64))
    files = "--input x=x.npy --input at=at.npy"
    stridec(f"run both.so --function decode {files} --output y=y.npy", 0)
    expect(np.allclose(np.load("y.npy")[0], WEIGHT.sum(), atol=1e-2), np.load("y.npy"))
    stridec(f"run both.so {files} --output y=first.npy", 0)
    expect(np.array_equal(np.load("first.npy"), np.load("y.npy")), "the first function")
    for command in (f"run both.so --function encode {files}", "bench both.so --function encode", "inspect both.so --function encode",
                    "inspect both.so --function encode --format=json", "verify decode.onnx both.so --function encode --state past=present"):
        done = stridec(command, 1)
        told = done.stderr + done.stdout
        expect("unknown-function" in told and "prefill, decode" in told, told)
    shown = stridec("inspect both.so", 0).stdout
    expect("functions prefill, decode" in shown and "function decode, from decode.onnx" in shown, shown)
    only = stridec("inspect both.so --function decode", 0).stdout
    expect("function decode" in only and "function prefill" not in only, only)
    only = json.loads(stridec("inspect both.so --function decode --format=json", 0).stdout)
    expect(only == {**manifest_of("both.json"), "functions": manifest_of("both.json")["functions"][1:]}, only)
    expect(re.search(r"^ ok ", stridec("verify decode.onnx both.so --function decode --state past=present", 0).stdout, re.M), "verify")
    for more in ("", " --steps 2"):
        told = stridec(f"verify decode.onnx both.so --function decode{more}", 1).stderr
        expect("error[missing-state]: the artifact keeps 'past' from run to run" in told, told)
        expect("--state past=OUTPUT, where OUTPUT is one of 'present'" in told, told)
    done = stridec(f"verify both.so {FUNCTIONS} --format=json", 0)
    told = json.loads(done.stdout)
    expect(told["pass"] and [f["function"] for f in told["functions"]] == ["prefill", "decode"], done.stdout)
    write(decode2=step(1, weight=WEIGHT + 1))
    wrong = json.loads(stridec(f"verify both.so {FUNCTIONS.replace('decode.onnx', 'decode2.onnx')} --format=json --runs 1", 8).stdout)
    expect(not wrong["pass"] and [f["pass"] for f in wrong["functions"]] == [True, False], wrong)
    timed = json.loads(stridec("bench both.so --function decode --seconds 0.1 --threads 1 --format=json", 0).stdout)
    expect(timed["function"] == "decode" and timed["kernels"], timed)
    stridec(f"compile {FUNCTIONS.replace('decode.onnx', 'decode2.onnx')} -o changed.so --dim n=1..8", 0)
    told = json.loads(stridec("diff both.so changed.so --format=json", 0).stdout)["changes"]
    expect({c["what"] for c in told} >= {"decode: model"} and not any(c["what"].startswith("prefill") for c in told), told)
    expect(json.loads(stridec("diff both.so both.so --format=json", 0).stdout)["changes"] == [], "no change")
    stridec(f"tune {FUNCTIONS} --dim n=1..8 --tune-db functions.txt --tune-shape n=4", 0)
    stridec(f"compile {FUNCTIONS} --dim n=1..8 --tune-db functions.txt --tune-shape n=4 --frozen -o tuned.so", 0)
    expect(all("tuning" in f for f in manifest_of("tuned.json")["functions"]), "tuning of each function")
    checked = json.loads(stridec(f"check {FUNCTIONS} --format=json", 0).stdout)["functions"]
    expect([c["function"] for c in checked] == ["prefill", "decode"], checked)
    for stage in ("graph", "loops", "schedule", "fused", "memory"):
        told = json.loads(stridec(f"inspect {FUNCTIONS} --stage={stage} --format=json", 0).stdout)["functions"]
        expect([f["function"] for f in told] == ["prefill", "decode"], f"{stage}: {told}")
        expect("// ==== decode" in stridec(f"inspect {FUNCTIONS} --stage={stage}", 0).stdout, stage)


def test_functions_that_do_not_fit():
    """Sentences for states that differ, and for flags that no function can use."""
    prepare()
    write(longer=step(1, places=9))

    def refused(flags, code, sentence, status=1):
        words = flags.split() if isinstance(flags, str) else flags
        done = stridec(["compile", *words, "-o", "misfit.so"], status)
        expect(f"error[{code}]" in done.stderr and sentence in done.stderr, done.stderr)
        expect(not os.path.exists("misfit.so"), "an artifact is left")

    differing = "--function prefill=prefill.onnx --function decode=longer.onnx --state past=present"
    refused(differing, "state-differs", "'past' is f32[8, 64] in function 'prefill' and f32[9, 64] in function 'decode'", 4)
    refused(f"{FUNCTIONS} --dim m=1..8", "unknown-name", "--dim: no function's model has 'm'")
    refused(f"{FUNCTIONS} --dim decode:n=1..8", "unknown-name", "no function's model has 'decode:n'")
    refused(f"{FUNCTIONS} --state a=b", "unknown-name", "--state: no function's model has 'a'")
    expect("no function's model has 'm'" in stridec(f"check {FUNCTIONS} --dim m=1..8", 1).stderr, "check")
    refused(f"{FUNCTIONS} --specialize m=1", "unknown-symbol", "'m' is not a size of a function")
    refused(f"prefill.onnx {FUNCTIONS}", "usage", "in addition to functions")
    refused("--function prefill.onnx", "bad-function", "not of the form name=model")
    refused("--function a=one.onnx --function a=one.onnx", "bad-function", "two functions are named 'a'")
    for name in ("a b", "a:b", "a,b", "a\nb", "größe", "../a"):
        refused(["--function", f"{name}=one.onnx"], "bad-function", "cannot be the name of a function")
    done = stridec(f"compile {FUNCTIONS}", 1)
    expect("needs a name" in done.stderr, done.stderr)


def test_flags_of_one_function():
    """A qualified name is for its function; sizes of --specialize go where they are."""
    prepare()
    stridec(f"compile {FUNCTIONS} --dim prefill:n=2..4 --specialize n=3 -o narrow.so", 0)
    prefill, decode = manifest_of("narrow.json")["functions"]
    expect(prefill["dims"] == {"n": "2..4"} and decode["dims"] == {}, (prefill["dims"], decode["dims"]))
    expect(len(prefill["specializations"]) == 1 and "specializations" not in decode, "specializations")
    context = sample().Model("narrow.so").context(threads=1)
    for rows in (2, 3):
        x, at = np.ones((rows, WIDTH), np.float32), np.arange(rows).reshape(rows, 1)
        (y,) = context.run({"x": x, "at": at}, function="prefill")
        expect(np.allclose(y[:rows], WEIGHT.sum(), atol=1e-2), y)
    try:
        context.run({"x": np.ones((5, WIDTH), np.float32), "at": np.zeros((5, 1), np.int64)}, function="prefill")
        raise AssertionError("five rows were taken")
    except sample().Error as error:
        expect("serves 2..4" in str(error), error)


def outputs(artifact, **options):
    """y of each function for one row of ones."""
    context = sample().Model(artifact, **options).context(threads=1)
    given = {"x": np.ones((1, WIDTH), np.float32), "at": np.zeros((1, 1), np.int64)}
    return [context.run(given, function=name)[0][0] for name in ("prefill", "decode")]


def test_refit_of_functions():
    """Functions share a replaceable weight of one name; `refit` derives what each of them and each variant reads."""
    prepare()
    new = WEIGHT + 1
    write(prefill_new=step("n", weight=new), decode_new=step(1, weight=new))
    flags = "--cpu x86-64-v2,x86-64-v3 --dim n=1..8"
    stridec(f"compile {FUNCTIONS} {flags} --refit w -o shared.so", 0)
    manifest = manifest_of("shared.json")
    expect([p["name"] for p in manifest["parameters"]] == ["w"], manifest["parameters"])
    expect([f["parameters"] for f in manifest["functions"]] == [["w"], ["w"]], manifest["functions"])
    stridec("refit shared.so --parameters decode_new.onnx -o refitted.so", 0)
    for variant in ("x86-64-v2", "x86-64-v3"):
        expect(np.allclose(outputs("shared.so", variant=variant), WEIGHT.sum(), atol=1e-2), variant)
        expect(np.allclose(outputs("refitted.so", variant=variant), new.sum(), atol=1e-2), variant)
    # What equal functions derive from one weight is stored once, and derived again for both.
    twice = FUNCTIONS.replace("decode.onnx", "prefill.onnx") + " --cpu x86-64-v3 --dim n=1..8"
    done = stridec(f"compile {twice} --refit w -o twice.so", 0)
    expect("of weights shared" in done.stderr + done.stdout and "alone" not in done.stderr + done.stdout, done.stderr + done.stdout)
    stridec("refit twice.so --parameters prefill_new.onnx -o twice_refitted.so", 0)
    expect(np.allclose(outputs("twice_refitted.so"), new.sum(), atol=1e-2), outputs("twice_refitted.so"))
    # Joined in another order, the same weights are others.
    random = np.random.default_rng(0)
    weights = [(name, random.standard_normal(shape).astype(np.float32)) for name, shape in (("c", (16, 16)), ("w1", (8, 24)), ("w2", (8, 24)))]
    for name, order in (("ahead", ["w1", "w2"]), ("behind", ["w2", "w1"])):
        nodes = [helper.make_node("Concat", order, ["k"], axis=0), helper.make_node("MatMul", ["c", "k"], ["p"]), helper.make_node("MatMul", ["x", "p"], ["y"])]
        write(**{name: model(nodes, [value("x", [4, 16])], [value("y", [4, 24])], weights)})
    stridec("compile --function ahead=ahead.onnx --function behind=behind.onnx --refit * -o orders.so", 0)
    (_, c), (_, w1), (_, w2) = weights
    x, context = random.standard_normal((4, 16)).astype(np.float32), sample().Model("orders.so").context(threads=1)
    for name, joined in (("ahead", [w1, w2]), ("behind", [w2, w1])):
        (y,) = context.run({"x": x}, function=name)
        expect(np.allclose(y, x @ (c @ np.concatenate(joined)), atol=1e-3), name)
    stridec(f"compile {FUNCTIONS} {flags} --refit decode:w -o one.so", 0)
    expect([f.get("parameters") for f in manifest_of("one.json")["functions"]] == [None, ["w"]], "of decode alone")
    stridec("refit one.so --parameters decode_new.onnx -o one_refitted.so", 0)
    expect(np.allclose(outputs("one_refitted.so"), [WEIGHT.sum(), new.sum()], atol=1e-2), outputs("one_refitted.so"))
    done = stridec(f"compile {FUNCTIONS.replace('decode.onnx', 'decode_new.onnx')} --refit w -o never.so", 4)
    expect("error[parameter-differs]" in done.stderr and "'w' is initialised differently" in done.stderr, done.stderr)
    for given in ("v", "decode:v"):
        done = stridec(f"compile {FUNCTIONS} --refit {given} -o never.so", 1)
        expect(f"--refit: no function's model has '{given}'" in done.stderr, done.stderr)
    # The exponent of a Pow decides what is computed.
    for name, op in (("product", "Mul"), ("power", "Pow")):
        write(**{name: model([helper.make_node(op, ["x", "e"], ["y"])], [value("x", [3])], [value("y", [3])], [("e", np.array([2], np.float32))])})
    both = "--function product=product.onnx --function power=power.onnx"
    done = stridec(f"compile {both} --refit e -o never.so", 4)
    expect("error[parameter-is-constant]" in done.stderr and "'e' of function 'power' cannot be replaced" in done.stderr, done.stderr)
    stridec(f"compile {both} --refit product:e -o one.so", 0)
    expect(not os.path.exists("never.so"), "an artifact is left")


def test_parameters_of_two_kinds():
    """A weight that differs between functions in dtype, shape or values cannot be one parameter of both."""
    weights = {
        "base": np.array([1, 2, 3], np.float32),
        "other": np.array([1, 2, 4], np.float32),
        "half": np.array([1, 2, 3], np.float16),
        "long": np.array([1, 2, 3, 4], np.float32),
        "whole": np.array([1, 2, 3], np.int8),
        "column": np.array([[1], [2], [3]], np.float32),
    }
    for name, weight in weights.items():
        kind = helper.np_dtype_to_tensor_dtype(weight.dtype)
        node = helper.make_node("Mul", ["x", "w"], ["y"])
        write(**{name: model([node], [value("x", weight.shape, kind)], [value("y", weight.shape, kind)], [("w", weight)])})
    differences = {
        "other": "is initialised differently in functions 'a' and 'b'",
        "half": "is f32[3] in function 'a' and f16[3] in function 'b'",
        "long": "is f32[3] in function 'a' and f32[4] in function 'b'",
        "whole": "is f32[3] in function 'a' and i8[3] in function 'b'",
        "column": "is f32[3] in function 'a' and f32[3, 1] in function 'b'",
    }
    for name, difference in differences.items():
        both = f"--function a=base.onnx --function b={name}.onnx"
        done = stridec(f"compile {both} --refit w -o never.so", 4)
        expect("error[parameter-differs]" in done.stderr and f"parameter 'w' {difference}" in done.stderr, done.stderr)
        expect("--refit a:w" in done.stderr, done.stderr)
    stridec("compile --function a=base.onnx --function b=half.onnx --refit a:w -o apart.so", 0)
    expect([p["dtype"] for p in manifest_of("apart.json")["parameters"]] == ["f32"], manifest_of("apart.json")["parameters"])
    expect(not os.path.exists("never.so"), "an artifact is left")


def test_variants_and_external_weights_of_functions():
    """Each function has code for each CPU, and all of them read one file of weights."""
    prepare()
    stridec(f"compile {FUNCTIONS} --cpu x86-64-v2,x86-64-v3 --weights external -o wide.so", 0)
    module = sample()
    for variant in ("x86-64-v2", "x86-64-v3"):
        context = module.Model("wide.so", variant=variant).context(threads=2)
        for name in ("prefill", "decode"):
            (y,) = context.run({"x": np.ones((1, WIDTH), np.float32), "at": np.zeros((1, 1), np.int64)}, function=name)
            expect(np.allclose(y[0], WEIGHT.sum(), atol=1e-2), y)


def test_functions_without_the_state():
    """A function beside one that has states is compiled, run and verified with the same flags."""
    prepare()
    write(plain=model([helper.make_node("Relu", ["x"], ["r"])], [value("x", ["m", 3])], [value("r", ["m", 3])]))
    flags = "--function plain=plain.onnx --function decode=decode.onnx --state"
    for state in ("past=present", "decode:past=present", "past=r --state decode:past=present"):
        stridec(f"compile {flags} {state} -o mixed.so", 0)
        told = json.loads(stridec(f"verify mixed.so {flags} {state} --format=json --runs 1", 0).stdout)
        expect(told["pass"] and len(told["functions"]) == 2, told)
    manifest = manifest_of("mixed.json")
    expect([len(f["states"]) for f in manifest["functions"]] == [0, 1] and len(manifest["states"]) == 1, manifest["states"])
    stridec("run mixed.so --function plain --random --dim m=2", 0)


def test_functions_for_gpus():
    """GPU code for both functions, where the compiler for it is at hand; equal kernels are stored once."""
    library = nvrtc()
    if not library:
        return
    prepare()
    write(one=step(1), other=step(1))
    flags = f"--target cpu,cuda --gpu sm_90a --nvrtc {library} --state past=present --format=json"
    twice = json.loads(stridec(f"compile --function a=one.onnx --function b=other.onnx -o gpu.so {flags}", 0).stdout)
    alone = json.loads(stridec(f"compile one.onnx -o gpu1.so {flags}", 0).stdout)
    expect(twice["kernels"] == alone["kernels"], f"{twice['kernels']} kernels instead of {alone['kernels']}")
    expect([(p["function"], p["target"]) for p in twice["programs"]][0] == ("a", "sm_90a"), twice["programs"])


def test_artifacts_of_other_formats():
    """An artifact of format 4, which had one function, works in every command; one of a later format is refused."""
    with lzma.open(os.path.join(HERE, "format4.so.xz")) as packed, open("format4.so", "wb") as file:
        library = packed.read()
        file.write(library)
    past = ["x", "past"]
    write(accumulate=model(
        [helper.make_node("Add", past, ["present"]), helper.make_node("Mul", ["present", "two"], ["y"])],
        [value(name, [1, 3]) for name in past],
        [value(name, [1, 3]) for name in ("y", "present")],
        [("two", np.array([2], np.float32))],
    ))
    np.save("x.npy", np.ones((1, 3), np.float32))
    stridec("run format4.so --input x=x.npy --output y=y.npy", 0)
    expect(np.array_equal(np.load("y.npy"), np.full((1, 3), 2)), np.load("y.npy"))
    stridec("run format4.so --random --function accumulate", 0)
    expect("its only function is accumulate" in stridec("run format4.so --random --function other", 1).stderr, "another function")
    stridec("verify accumulate.onnx format4.so --state past=present", 0)
    stridec("bench format4.so --seconds 0.05 --threads 1", 0)
    stridec("inspect format4.so", 0)
    stridec("compile accumulate.onnx -o accumulate.so --state past=present", 0)
    told = json.loads(stridec("diff format4.so accumulate.so --format=json", 0).stdout)["changes"]
    expect({c["what"] for c in told} <= {"schema_version", "target", "kernel", "size", "model", "requires"}, told)
    context = sample().Model("format4.so").context(threads=1)
    for runs in (1, 2):
        (y,) = context.run(np.ones((1, 3), np.float32), function="accumulate")
        expect(np.array_equal(y, np.full((1, 3), 2 * runs)), y)

    # The format is a field of the note, before its name.
    at = library.index(b"stridec.abi\0") - 4
    expect(library[at] == 4, f"format {library[at]}")
    with open(os.path.join(HERE, "../../runtime/include/stridec/abi.h")) as header:
        own = int(re.search(r"define STRIDEC_ABI_VERSION (\d+)u", header.read()).group(1))
    with open("later.so", "wb") as file:
        file.write(library[:at] + bytes([own + 1]) + library[at + 1 :])
    for command in ("run later.so --random", "inspect later.so", "diff later.so format4.so"):
        done = stridec(command, 3)
        expect(f"the artifact has format {own + 1}; this stridec reads formats 4 to {own}" in done.stderr, done.stderr)
