"""Rules and passes of users: python tests/extend/run.py [--nightly] [topic...]

Topics: wrong, right, loops, conditions, errors, models, fates, guards, passes, plugins, samples, frozen, ops, variadic, kernels, callbacks,
own, yields. Rules that do not hold are refused with a counterexample, rules that hold are accepted, and loops are named; rules that fire keep a model's
results; a pass that copies its input gives the same artifact; what a pass breaks is refused with a sentence. The last line is
"N passed, N failed".
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import callbacks as user_callbacks
import kernels as user_kernels
import operators as user_operators
import own as own_kernels
import variadic as user_variadic
import yields as user_yields

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "models"))
import models as light_models  # noqa: E402
from architectures import ARCHITECTURES  # noqa: E402

STRIDEC = os.environ.get("stridec", str(ROOT / "build" / "stridec"))
NIGHTLY = "--nightly" in sys.argv
SLOW_FACTOR = 4  # of times that others' work on the machine may add
results = []


def expect(name, condition, detail=""):
    results.append(bool(condition))
    if not condition:
        print(f"FAILED {name}: {detail}", flush=True)


def run(*arguments, seconds=200, env=None):
    done = subprocess.run([STRIDEC, *map(str, arguments)], capture_output=True, text=True, timeout=seconds,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


def says(name, arguments, code, *words):
    found, out, errors = run(*arguments)
    text = re.sub(r"\s+", " ", out + errors)
    expect(name, found == code and all(w in text for w in words), f"exit {found}: {text[:600]}")
    return text


def checked(path, *more):
    code, out, errors = run("rules", "check", path, "--format=json", *more)
    if not out:
        sys.exit(f"{path}: exit {code}: {errors}")
    return json.loads(out)


def split_rules(path):
    """The rules of a file, each as a text of its own."""
    text = path.read_text()
    return {m[1]: m[0] for m in re.finditer(r"^rule (\w+).*?(?=^rule |\Z)", text, re.M | re.S)}


# ---- checking rules --------------------------------------------------------------------------------------


def wrong(work):
    files = [HERE / name for name in ("wrong.rules", "wrong_rarely.rules", "wrong_models.rules")]
    for path in files:
        for seed in range(60 if NIGHTLY else 8):
            for rule in checked(path, "--seed", seed)["rules"]:
                expect(f"wrong {rule['rule']} seed {seed}", not rule["accepted"] and any(" = " in note for note in rule["counterexample"]), rule)
    for name, text in (each for path in files for each in split_rules(path).items()):
        file = work / "one.rules"
        file.write_text(text)
        start = time.process_time_ns(), time.monotonic()
        rule = checked(file)["rules"][0]
        took = time.monotonic() - start[1]
        expect(f"wrong {name}", not rule["accepted"] and rule["problem"], rule)
        expect(f"wrong {name}: counterexample", any(" = " in note for note in rule["counterexample"]), rule)
        expect(f"wrong {name}: in a second", took < SLOW_FACTOR, f"{took:.1f} s")


# Rules that the compiler knows itself, so that they have nothing to do.
KNOWN = {"cast_back", "transpose_twice", "bytes_in_half", "bytes_in_bf16", "integers_in_double", "half_by_way_of_single",
         "single_by_way_of_double", "both_parts", "permute_composed", "flatten_of_sum", "slice_of_concat_part"}


def right(work):
    for seed in range(10 if NIGHTLY else 2):
        for path in (HERE / "right.rules", HERE / "right_rarely.rules", HERE / "right_models.rules", ROOT / "samples/extend/examples.rules"):
            for rule in checked(path, "--seed", seed)["rules"]:
                expect(f"right {rule['rule']} seed {seed}", rule["accepted"], rule)
                expect(f"right {rule['rule']} fires", rule["fires"] or rule["rule"] in KNOWN, rule)


def loops(work):
    text = (HERE / "loops.txt").read_text()
    for names, rules in re.findall(r"^== (.*?)\n(.*?)(?=^== |\Z)", text, re.M | re.S):
        file = work / "loop.rules"
        file.write_text(rules)
        found = checked(file)
        said = found["loop"] + " ".join(rule["problem"] for rule in found["rules"])
        expect(f"loop {names}", "without end" in said and all(n in said for n in names.split()), said)


def conditions(work):
    """A condition that nothing meets is named; of conditions that only exclude each other, all are."""
    for where, named in (("m > 4, m < 3", ("together", "(m > 4)", "(m < 3)")), ("m > 1, m < 0", ("satisfies where (m < 0)",))):
        file = work / "unmet.rules"
        file.write_text(f"rule unmet:\n  let x: float[n, m]\n  match x + x\n  where {where}\n  yield x * 2\n  check exact\n")
        code, out, text = run("rules", "check", file)
        expect(f"where {where}", code != 0 and all(part in out + text for part in named), out + text)


def errors(work):
    cases = {
        "no colon": ("rule a\n match x", "2:2", "expected ':'"),
        "unknown operator": ("rule a:\n let x: float[...]\n match frob(x)\n yield x", "3:8", "no operator 'frob'"),
        "undeclared": ("rule a:\n match relu(x)\n yield x", "2:13", "'x' is not declared"),
        "unbound": ("rule a:\n let x: float[n]\n match relu(x)\n where m > 1\n yield x", "4:8", "'m' is not bound"),
        "type": ("rule a:\n let x: f31[n]\n match relu(x)\n yield x", "2:9", "'f31' is neither"),
        "no yield": ("rule a:\n let x: float[n]\n match relu(x)\n", "1:6", "has no yield"),
        "text": ("rule a:\n let x: float[n]\n match relu(x)\n require n > 1\n yield x", "5:2", "in quotes"),
        "function": ("rule a:\n let x: float[n]\n match relu(x)\n where prime(n)\n yield x", "4:8", "'prime' is not a function"),
        "no root": ("rule a:\n let x: float[n]\n match x\n yield x", "3:8", "must begin with an operation"),
        "effect": ("rule a:\n let x: float[n]\n match update_state(x, x)\n yield x", "3:8", "cannot be in a rule"),
        "twice": ("rule a:\n let x: float[n], x: float[n]\n match relu(x)\n yield x", "2:19", "declared twice"),
        "check": ("rule a:\n let x: float[n]\n match relu(x)\n yield x\n check roughly", "5:8", "exact, ulp, close or trusted"),
        "attribute of the match": ("rule a:\n let x: float[n]\n match exp(x){frob = 3}\n yield x", "3:22", "'exp' has no attribute 'frob'"),
        "attribute of the replacement": ("rule a:\n let x: float[n]\n match exp(x)\n yield reduce_sum(x, dims = [0], keeep = 1)", "4:42",
                                         "'reduce_sum' has no attribute 'keeep'"),
        "dim as operand": ("rule a:\n let x: float[n]\n match exp(x) * n\n yield x", "3:17", "cannot be an operand of a match"),
        "tolerance": ("rule a:\n let x: float[n]\n match exp(x)\n yield x\n check close -1", "5:14", "a relative error from 0 to 1"),
        "range": ("rule a:\n let x: float[n]\n match exp(x)\n yield x\n check close 1e-3 assume in [2, 1]", "5:30", "low must be below high"),
        "pass": ("rule a at nowhere:\n let x: float[n]\n match relu(x)\n yield relu(x)\n check trusted \"t\"", "", ""),
        "deep": ("rule a:\n let x: float[n]\n match " + "-(" * 500 + "x" + ")" * 500 + "\n yield x", "3:", "too deeply"),
    }
    for name, (text, place, sentence) in cases.items():
        file = work / "bad.rules"
        file.write_text(text + "\n")
        if name == "pass":
            says("error pass", ["inspect", model(work), "--rewrites", file, "--stage=graph"], 1, "not a pass on the graph", "import")
            continue
        says(f"error {name}", ["rules", "check", file], 3, f"bad.rules:{place}", sentence, "^")


# ---- models ----------------------------------------------------------------------------------------------


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def saved(work, name, nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, name, inputs, outputs,
                              [numpy_helper.from_array(array, key) for key, array in weights])
    path = work / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def model(work):
    """x / 4, then a padded convolution, a softmax over products, and two chained products."""
    rng = np.random.default_rng(1)
    f32 = TensorProto.FLOAT
    nodes = [
        helper.make_node("Div", ["x", "four"], ["scaled"], name="scale"),
        helper.make_node("MatMul", ["scaled", "w1"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "w2"], ["p"], name="second"),
        helper.make_node("Relu", ["p"], ["r"], name="act"),
        helper.make_node("Add", ["r", "r"], ["y"], name="twice"),
    ]
    weights = [("four", np.float32(4)), ("w1", rng.standard_normal((16, 24), np.float32)),
               ("w2", rng.standard_normal((24, 2), np.float32))]
    return saved(work, "chain", nodes, [value("x", f32, ["n", 16])], [value("y", f32, ["n", 2])], weights)


RULES = """
rules "tests.models" version 3
rule divide_by_power_of_two:
  let x: float[...], c: const float[]
  match x / c
  where is_power_of_two(c), normal(1 / c)
  yield x * (1 / c)
  check exact
rule double:
  let x: float[...]
  match x + x
  yield x * 2
  check exact
rule associate_right:
  let a: float[m, k], b: float[k, n], c: float[n, p]
  match matmul(matmul(a, b), c)
  where m > 3
  yield matmul(a, matmul(b, c))
  check close 1e-4 assume in [-4, 4]
"""


def outputs_of(work, artifact, feeds, output="y"):
    arguments = []
    for name, array in feeds.items():
        np.save(work / f"{name}.npy", array)
        arguments += ["--input", f"{name}={work / name}.npy"]
    code, out, errors = run("run", artifact, *arguments, "--output", f"{output}={work / 'out.npy'}")
    return (np.load(work / "out.npy") if code == 0 else None), out + errors


def models(work):
    path, rules = model(work), work / "m.rules"
    rules.write_text(RULES)
    says("report", ["inspect", path, "--rewrites", rules, "--stage=rewrites"], 0, "rule divide_by_power_of_two", "fired once",
         "near miss node 2 'second' (MatMul): where (m > 3): not proved", "rule double")
    code, out, _ = run("inspect", path, "--rewrites", rules, "--stage=graph")
    expect("graph", code == 0 and " div " not in out and " mul " in out, out)
    plain, ruled = work / "plain.so", work / "ruled.so"
    run("compile", path, "-o", plain)
    code, _, text = run("compile", path, "-o", ruled, "--rewrites", rules)
    expect("compiles", code == 0, text)
    x = np.random.default_rng(2).standard_normal((5, 16), np.float32)
    a, _ = outputs_of(work, plain, {"x": x})
    b, said = outputs_of(work, ruled, {"x": x})
    expect("same results", b is not None and np.allclose(a, b, rtol=1e-5, atol=1e-5), said)
    manifest = json.loads(ruled.with_suffix(".json").read_text())
    file = manifest["extensions"]["rules"][0]
    expect("manifest", file["name"] == "tests.models" and file["version"] == 3 and len(file["sha256"]) == 64 and
           [r["fired"] for r in file["rules"]] == [1, 1, 0], file)
    expect("no extensions", "extensions" not in json.loads(plain.with_suffix(".json").read_text()))
    says("check", ["check", path, "--rewrites", rules], 0, "problems none")
    wrong_rules = work / "w.rules"
    wrong_rules.write_text(split_rules(HERE / "wrong.rules")["log_exp"])
    says("wrong rules are refused before", ["compile", path, "-o", ruled, "--rewrites", wrong_rules], 4, "log_exp", "the sides differ")
    many = work / "many.rules"
    one = split_rules(HERE / "right.rules")["double"]
    many.write_text("\n".join(one.replace("rule double", f"rule double{i}") for i in range(100)))
    code, _, text = run("inspect", path, "--rewrites", many, "--stage=graph")
    expect("a hundred rules", code == 0, text)


def fates(work):
    path, rules = model(work), work / "m.rules"
    rules.write_text(RULES)
    artifact = work / "fates.so"
    run("compile", path, "-o", artifact, "--rewrites", rules)
    for file, more in ((path, ["--rewrites", rules]), (artifact, [])):
        code, out, said = run("inspect", file, "--stage=nodes", *more)
        lines = {line.split("  ")[0].strip(): line for line in out.splitlines()}
        for node, rule in (("node 0 'scale' (Div)", "divide_by_power_of_two"), ("node 4 'twice' (Add)", "double")):
            line = next((l for l in out.splitlines() if node in l), "")
            expect(f"fate of {node} in {file.name}", rule in line, f"{line} {said} {list(lines)[:3]}")


    renamed(work, path)


def renamed(work, path):
    """A pass that renames nodes leaves as many of them, each with the fate that it had."""
    def listed(*more):
        code, out, said = run("inspect", path, "--stage=nodes", "--format=json", *more)
        expect("nodes of a pass", code == 0, said)
        return {row["node"]: row["fate"] for row in json.loads(out)["nodes"]} if code == 0 else {}
    script = work / "rename.sed"
    plain = listed()
    # By the number, as one operation is another one, and by the place.
    cases = {"s/\\(Add\\)/(Sum)/; s/= mul (.*) from/= add \\1 from/": lambda node: node.replace("(Add)", "(Sum)"),
             "s/from \"node [0-9]+ '([a-z]+)' [^\"]*\"/from \"the \\1\"/": lambda node: re.sub(r"node \d+ '(\w+)' .*", r"the \1", node)}
    for text, name_of in cases.items():
        script.write_text(text)
        found = listed("--pass", "after=import", f"sed -E -f {script}")
        expect(f"renamed by {text}", found == {name_of(node): fate for node, fate in plain.items()}, found)
    script.write_text('s/from "[^"]*"/from "the model"/')
    found = listed("--pass", "after=import", f"sed -E -f {script}")
    expect("nodes of one name share one fate", list(found) == ["the model"], found)


def guards(work):
    f32 = TensorProto.FLOAT
    path = saved(work, "rows", [helper.make_node("ReduceSum", ["x", "axes"], ["s"], keepdims=0, name="sum"),
                                helper.make_node("Div", ["s", "eight"], ["y"], name="over")],
                 [value("x", f32, ["n", "k"])], [value("y", f32, ["n"])], [("axes", np.array([1], np.int64)), ("eight", np.float32(8))])
    rules = work / "guard.rules"
    rules.write_text(split_rules(ROOT / "samples/extend/examples.rules")["mean_over_eight"])
    artifact = work / "guard.so"
    code, _, text = run("compile", path, "-o", artifact, "--rewrites", rules)
    expect("require compiles", code == 0, text)
    x = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    y, said = outputs_of(work, artifact, {"x": x})
    expect("require holds", y is not None and np.allclose(y, x.mean(1), atol=1e-6), said)
    y, said = outputs_of(work, artifact, {"x": x[:, :7]})
    # A requirement on one size narrows the sizes that the artifact serves, which are checked first.
    expect("require is a guard", y is None and "dim 1 (k) is 7; this artifact serves 8..8" in said, said)


# ---- passes ----------------------------------------------------------------------------------------------


def equal_but_for_record(one, two):
    """Whether two artifacts differ in the record of their extensions, and in the numbers that tell how long the manifest is, alone."""
    texts, libraries = [p.with_suffix(".json").read_bytes() for p in (one, two)], [p.read_bytes() for p in (one, two)]
    manifests = [json.loads(text) for text in texts]
    for manifest in manifests:
        manifest.pop("extensions", None)
    begin = [library.rfind(text) for library, text in zip(libraries, texts)]
    if manifests[0] != manifests[1] or begin[0] != begin[1] or begin[0] < 0:
        return False
    words = [np.frombuffer(library[:begin[0] // 8 * 8], np.int64) for library in libraries]
    lengths = {len(b) - len(a) for a, b in (texts, libraries)}
    changes = (words[1] - words[0])[words[0] != words[1]]
    # The note, the segment and the section of what is appended.
    return len(changes) <= 4 and set(changes.tolist()) <= lengths


def same_bytes(work, name, path, *more):
    one, two = work / "one.so", work / "two.so"
    code, _, text = run("compile", path, "-o", one, "--cpu", "x86-64-v3", *more)
    if code != 0:
        expect(f"cat {name}", False, text)
        return
    code, _, text = run("compile", path, "-o", two, "--cpu", "x86-64-v3", "--pass", "after=import", "cat", *more)
    expect(f"cat {name}", code == 0 and equal_but_for_record(one, two), text)
    code, a, _ = run("inspect", path, "--stage=source", "--cpu", "x86-64-v3", *more)
    code, b, text = run("inspect", path, "--stage=source", "--cpu", "x86-64-v3", "--pass", "after=import", "cat", *more)
    expect(f"cat {name}: same kernels", a == b and a, text[:300])


def passes(work):
    path = model(work)
    out = work / "p.so"
    same_bytes(work, "chain", path)
    light = ["bert_base", "convnext_tiny", "gpt2", "llama_cached", "mobilenet_v2", "recommender", "resnet50", "tagger", "unet", "vit_b_16"]
    for name in light if NIGHTLY else ["recommender", "tagger"]:
        same_bytes(work, name, light_models.fill_model(name, work))
    for name, (network, _, _) in ARCHITECTURES.items() if NIGHTLY else []:
        onnx.save(network().model(), work / f"{name}.onnx")
        same_bytes(work, name, work / f"{name}.onnx")
    for case in sorted((ROOT / "tests/torchscript/programs").glob("*.pt"))[:3 if not NIGHTLY else 99]:
        code, _, _ = run("check", case)
        if code == 0:
            same_bytes(work, case.stem, case)
    for case in sorted(p for p in (ROOT / "tests/pt2/programs").glob("*.pt2") if ".core" not in p.name)[:2 if not NIGHTLY else None]:
        code, _, _ = run("check", case)
        if code == 0:
            same_bytes(work, case.stem, case)
    compile_with = lambda command, *more: ["compile", path, "-o", out, "--pass", "after=import", command, *more]
    says("fails", compile_with("echo oops >&2; exit 3"), 7, "exit code 3", "oops")
    says("is not found", compile_with("/no/such/program"), 7, "exit code 127")
    says("dies", compile_with("kill -SEGV $$"), 7, "signal 11")
    says("writes nothing", compile_with("true"), 3, "wrote nothing")
    says("writes something else", compile_with("echo hello"), 3, "the first line is not 'stridec-graph 1'")
    says("unknown operator", compile_with("sed 's/= mul /= frobnicate /; s/= div /= frobnicate /'"), 3, "'frobnicate' is not an op")
    says("renames an output", compile_with("sed 's/output \"y\"/output \"z\"/'"), 3, "outputs were removed, renamed or moved")
    says("drops an output", compile_with("grep -v '^  output'"), 3, "outputs were removed, renamed or moved")
    says("names two outputs alike", compile_with("sed '/^  output/{p}'"), 3, "two outputs are named 'y'")
    says("changes an input", compile_with("sed 's/f32\\[n, 16\\]/f64[n, 16]/'"), 3, "was f32[n, 16] and is f64[n, 16]")
    says("drops a guard or symbol", compile_with("grep -v symbol"), 3, "symbols were added, removed or changed")
    says("wrong type", compile_with("sed 's/f32\\[n, 24\\]/f32[n, 23]/'"), 3, "breaks the rules of graphs", "f32[n, 24]")
    says("weights that are not there", compile_with("sed 's/@sha256:./@sha256:x/'"), 3, "there are no contents")
    says("takes too long", compile_with("sleep 60", "--max-seconds", "2"), 6)
    says("takes too much memory", compile_with("python3 -c 'x = bytearray(1 << 31)'", "--max-memory", "1GB"), 7, "exit code 1", "MemoryError")
    says("stands nowhere", ["compile", path, "--pass", "after=nowhere", "cat"], 1, "'nowhere', which is not a pass on the graph")
    says("needs a place", ["compile", path, "--pass", "import", "cat"], 1, "after which pass")
    guard = lambda text: compile_with(f"sed '/^  symbol/a \\  guard {text}'")
    for braces in ("{x}", "{ }", "{1}", "{99999999999999999999}", "{"):
        says(f"a guard's sentence with {braces}", guard(f"$(n <= 9): \"bad {braces}\" $[n]"), 3, "bad-pass", "the sentence of a guard", "line 4")
    says("a guard that never holds", guard('$(1 == 2): "never" $[]'), 3, "bad-pass", "a guard never holds: never")
    says("a guard that no size meets", guard('$(n < 0): "negative" $[n]'), 3, "bad-pass", "no run meets the guard 'negative'")
    says("a guard", guard('$(n <= 9): "{{n}} is {0}" $[n]'), 0)
    says("a guard is checked", ["run", out, "--random", "--dim", "n=10"], 4, "9")
    says("places count the first line", compile_with("echo stridec-graph 1; echo frob"), 3, "line 2: 'graph' expected")
    code, _, text = run(*compile_with("sed 's/= add /= mul /'"))
    y, said = outputs_of(work, out, {"x": np.full((1, 16), 0.25, np.float32)})
    run("compile", path, "-o", work / "q.so")
    plain, _ = outputs_of(work, work / "q.so", {"x": np.full((1, 16), 0.25, np.float32)})
    expect("changes the result", code == 0 and y is not None and np.allclose(y, (plain / 2) ** 2, rtol=1e-4), text + said)
    manifest = json.loads(out.with_suffix(".json").read_text())["extensions"]["passes"]
    expect("pass in the manifest", manifest[0]["after"] == "import" and len(manifest[0]["sha256"]) == 64, manifest)
    says("two passes in order", ["compile", path, "-o", out, "--pass", "after=import", "cat", "--pass", "after=affine", "cat",
                                 "--time-passes"], 0, "pass 1", "pass 2")


def plugin(work, source, name, *flags):
    made = work / f"{name}.so"
    compiler = next(c for c in ("clang-19", "cc", "gcc") if subprocess.run(["which", c], capture_output=True).returncode == 0)
    done = subprocess.run([compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", f"-I{ROOT}/runtime/include",
                           *flags, str(source), "-o", str(made)], capture_output=True, text=True)
    expect(f"{name} builds", done.returncode == 0, done.stderr)
    return made


def frozen(work):
    """The database records the hashes that the manifest lists; --frozen refuses whatever has another one."""
    path, rules, database = model(work), work / "m.rules", work / "tuned.txt"
    rules.write_text(RULES)
    fold = plugin(work, ROOT / "samples/extend/fold_constants.c", "frozen_plugin")
    declared = work / "frozen.ops.json"
    declared.write_text(json.dumps({"operators": [{"domain": "acme", "name": "Twice", "inputs": [{"name": "x", "type": "f32"}],
                                                   "outputs": [{"name": "y", "type": "f32"}], "body": {"formula": "y = x * 2"}}]}))
    base = ["compile", path, "-o", work / "f.so", "--tune-db", database]
    extensions = {"rules": ["--rewrites", rules], "pass": ["--pass", "after=import", "cat"], "plug-in": ["--plugin", "after=import", fold],
                  "operators": ["--ops", declared]}
    everything = [flag for flags in extensions.values() for flag in flags]
    code, _, text = run(*base, *everything, "--mode", "max-autotune", "--tune-seconds", "1")
    recorded = set(re.findall(r"^extension .*?([0-9a-f]{64})", database.read_text(), re.M)) if code == 0 else set()
    expect("tunes", code == 0 and len(recorded) == 4, text)
    code, _, text = run(*base, *everything, "--frozen")
    expect("frozen", code in (0, 8) and "not recorded in the tuning" not in text, text)
    listed = json.loads((work / "f.json").read_text())["extensions"]
    hashes = {each["sha256"] for kind in ("rules", "operators", "passes") for each in listed[kind]}
    digest = lambda data: hashlib.sha256(data).hexdigest()
    expect("the manifest's hashes", hashes == {digest(rules.read_bytes()), digest(declared.read_bytes()), digest(b"cat"), digest(fold.read_bytes())} == recorded,
           f"{listed} {recorded}")
    rules.write_text(RULES.replace("version 3", "version 4"))
    says("frozen refuses other rules", [*base, *extensions["rules"], "--frozen"], 8, "the file of rules", "is not recorded in the tuning database")
    rules.write_text(RULES)
    declared.write_text(declared.read_text().replace("x * 2", "x * 3"))
    says("frozen refuses other operators", [*base, *extensions["operators"], "--frozen"], 8, "the file of operators", "is not recorded in the tuning database")
    says("frozen refuses another pass", [*base, "--frozen", "--pass", "after=import", "cat -u"], 8, "the pass 'cat -u'", "leave out --frozen, or record it")
    fold.write_bytes(fold.read_bytes() + b"x")
    says("frozen refuses another plug-in", [*base, *extensions["plug-in"], "--frozen"], 8, "the pass", "is not recorded in the tuning database")


def foldable(work):
    """Products of constants, and weights that are transposed and scaled: what exporters leave behind."""
    rng, f32 = np.random.default_rng(3), TensorProto.FLOAT
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["ab"], name="scale"),
        helper.make_node("Transpose", ["w"], ["wt"], name="turn", perm=[1, 0]),
        helper.make_node("Mul", ["wt", "ab"], ["ws"], name="weights"),
        helper.make_node("MatMul", ["x", "ws"], ["h"], name="product"),
        helper.make_node("Erf", ["h"], ["y"], name="erf"),
    ]
    weights = [("a", np.float32(0.5)), ("b", np.float32(0.25)), ("w", rng.standard_normal((32, 64), np.float32))]
    return saved(work, "foldable", nodes, [value("x", f32, ["n", 64])], [value("y", f32, ["n", 32])], weights)


def operators(path, *more):
    """How many nodes of each operator the graph has."""
    code, out, said = run("inspect", path, "--stage=graph", *more)
    counts = {}
    for op in re.findall(r" = (\w+)", out):
        counts[op] = counts.get(op, 0) + 1
    return counts if code == 0 else said


def plugins(work):
    path, fold = foldable(work), plugin(work, ROOT / "samples/extend/fold_constants.c", "fold_constants")
    counts = operators(path, "--plugin", "after=import", fold)
    expect("plug-in folds", "mul" not in counts and "permute" not in counts and operators(path).get("mul") == 2, counts)
    x = np.random.default_rng(4).standard_normal((3, 64), np.float32)
    run("compile", path, "-o", work / "a.so")
    code, _, text = run("compile", path, "-o", work / "b.so", "--plugin", "after=import", fold)
    a, _ = outputs_of(work, work / "a.so", {"x": x})
    b, said = outputs_of(work, work / "b.so", {"x": x})
    expect("plug-in keeps the result", b is not None and np.allclose(a, b, rtol=1e-5, atol=1e-6), text + said)
    body = lambda code: f'#include "stridec/plugin.h"\n{code}\n'
    source = work / "p.c"
    cases = {
        "fails": ('static const char* run(const stridec_host* h, stridec_graph* g) { (void)h; (void)g; return "not today"; }', 7, "not today"),
        "writes nonsense": ('static const char* run(const stridec_host* h, stridec_graph* g) { h->set_text(g, "nonsense"); return 0; }', 3,
                            "the first line is not 'stridec-graph 1'"),
        "asks for what is not there": ("static const char* run(const stridec_host* h, stridec_graph* g) { const void* b; size_t n; "
                                       'return h->contents(g, "sha256:0", &b, &n) ? h->message(g) : 0; }', 7, "there are no contents"),
        "evaluates an input": ("static const char* run(const stridec_host* h, stridec_graph* g) { const void* b; size_t n; "
                               "return h->evaluate(g, 0, 100, &b, &n) ? h->message(g) : 0; }", 7, "depends on an input"),
        "evaluates a large constant": ("static const char* run(const stridec_host* h, stridec_graph* g) { const void* b; size_t n; long i; "
                                       "for (i = 0; i < 9; ++i) if (!h->evaluate(g, i, 100, &b, &n) && n > 100) return \"too large\"; "
                                       "for (i = 0; i < 9; ++i) if (!h->evaluate(g, i, (size_t)-1, &b, &n) && n > 100) return \"whole\"; "
                                       "return \"none\"; }", 7, "whole"),
        "proves": ('static const char* run(const stridec_host* h, stridec_graph* g) { return h->prove(g, "n >= 0") == 1 && '
                   'h->prove(g, "n == 3") == -1 && h->prove(g, "n < 0") == 0 ? "proved" : "not proved"; }', 7, "proved"),
    }
    entry = ("const stridec_plugin* stridec_plugin_v1(const stridec_host* host) { static const stridec_plugin p = "
             '{sizeof p, "t", "1", run}; (void)host; return &p; }')
    for name, (code, exit_code, sentence) in cases.items():
        source.write_text(body(code + "\n" + entry))
        says(f"plug-in {name}", ["compile", path, "--plugin", "after=import", plugin(work, source, name.replace(" ", "_"))], exit_code, sentence)
    source.write_text("int x;\n")
    says("plug-in without entry", ["compile", path, "--plugin", "after=import", plugin(work, source, "no_entry")], 3, "no function stridec_plugin_v1")
    says("plug-in that is not there", ["compile", path, "--plugin", "after=import", work / "absent.so"], 2, "absent.so")
    # A plug-in of the first header, whose table ended with message(), loads with a longer table, too.
    header = (ROOT / "runtime/include/stridec/plugin.h").read_text()
    fields = re.findall(r"\(\*(\w+)\)\(", header.split("struct stridec_host {")[1].split("} stridec_host;")[0])
    expect("the host's table only grows", fields[:8] == ["text", "set_text", "contents", "add_contents", "evaluate", "prove", "message"][:8], fields)


def samples(work):
    path = foldable(work)
    x = np.random.default_rng(4).standard_normal((3, 64), np.float32)
    run("compile", path, "-o", work / "plain.so")
    plain, _ = outputs_of(work, work / "plain.so", {"x": x})
    for script, tolerance, changes in (("fold_constants.py", 1e-6, lambda c: "mul" not in c and "permute" not in c),
                                       ("cluster_weights.py 16", 0.5, lambda c: c.get("erf") == 1),
                                       ("replace_operator.py", 1e-3, lambda c: "erf" not in c and c.get("tanh") == 1)):
        command = f"{sys.executable} {ROOT}/samples/extend/{script}"
        counts = operators(path, "--pass", "after=import", command)
        expect(f"{script} changes the graph", isinstance(counts, dict) and changes(counts), counts)
        code, _, text = run("compile", path, "-o", work / "changed.so", "--pass", "after=import", command)
        y, said = outputs_of(work, work / "changed.so", {"x": x})
        expect(f"{script} keeps the result", y is not None and np.abs(y - plain).max() <= tolerance, text + said)
    code, _, text = run("compile", path, "-o", work / "layers.so", "--pass", "after=import",
                        f"{sys.executable} {ROOT}/samples/extend/debug_outputs.py dot_general")
    layers, said = outputs_of(work, work / "layers.so", {"x": x}, "product")
    expect("an appended output", code == 0 and layers is not None and layers.shape == plain.shape, text + said)
    y, said = outputs_of(work, work / "layers.so", {"x": x})
    expect("an appended output leaves the others", y is not None and np.allclose(y, plain, rtol=1e-5, atol=1e-6), said)
    clustered = work / "graph.txt"
    run("inspect", path, "--stage=graph", "--pass", "after=import",
        f"{sys.executable} {ROOT}/samples/extend/cluster_weights.py 16 | tee {clustered}")
    expect("weights are clustered", "@file:clustered.bin+0" in clustered.read_text(), clustered.read_text())


def ops(work):
    user_operators.check(work, run, says, expect)


def variadic(work):
    user_variadic.check(work, run, says, expect)


def yields(work):
    user_yields.check(work, run, says, expect)


def own(work):
    own_kernels.check(work, run, says, expect)


def kernels(work):
    user_kernels.check(work, run, says, expect)


def callbacks(work):
    user_callbacks.check(work, run, says, expect)


TOPICS = {f.__name__: f for f in (wrong, right, loops, conditions, errors, models, fates, guards, passes, plugins, samples, frozen, ops, variadic, kernels, callbacks, own, yields)}


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")] or list(TOPICS)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            TOPICS[name](pathlib.Path(folder))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
