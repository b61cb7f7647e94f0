"""Rules whose replacements are operators of --ops, and rules that compare what their sides cost: the topics `yields` and `costs` of run.py."""

import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "samples/extend"
RULES, OPS = SAMPLES / "own.rules", SAMPLES / "own.ops.json"
F32 = TensorProto.FLOAT


def save(path, nodes, inputs, outputs, weights=()):
    value = lambda name, shape: helper.make_tensor_value_info(name, F32, shape)
    graph = helper.make_graph(nodes, path.stem, [value(*each) for each in inputs], [value(*each) for each in outputs],
                              [numpy_helper.from_array(np.asarray(array), key) for key, array in weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    return path


def norm_model(path):
    """y = x + r, and its normalisation, over a dynamic batch."""
    nodes = [helper.make_node("Add", ["x", "r"], ["y"], name="sum"),
             helper.make_node("RMSNormalization", ["y", "g"], ["z"], name="norm", axis=-1, epsilon=1e-5)]
    gain = np.linspace(0.5, 1.5, 8, dtype=np.float32)
    return save(path, nodes, [("x", ["n", 8]), ("r", ["n", 8])], [("y", ["n", 8]), ("z", ["n", 8])],
                [("g", gain)]), gain


def attention_model(path):
    nodes = [helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), helper.make_node("MatMul", ["q", "kt"], ["p"]),
             helper.make_node("Mul", ["p", "c"], ["pc"]), helper.make_node("Add", ["pc", "mask"], ["pm"]),
             helper.make_node("Softmax", ["pm"], ["w"], axis=-1), helper.make_node("MatMul", ["w", "v"], ["y"], name="weighted")]
    heads = lambda rows: [2, 3, rows, 64]
    return save(path, nodes, [("q", heads("s")), ("k", heads("t")), ("v", heads("t")), ("mask", [2, 1, "s", "t"])], [("y", heads("s"))],
                [("c", np.float32(0.125))])


def outputs(work, run, artifact, feeds, names):
    arguments = []
    for name, array in feeds.items():
        np.save(work / f"{name}.npy", array)
        arguments += ["--input", f"{name}={work / name}.npy"]
    for name in names:
        arguments += ["--output", f"{name}={work / name}.out.npy"]
    code, out, errors = run("run", artifact, *arguments)
    return ([np.load(work / f"{name}.out.npy") for name in names] if code == 0 else None), out + errors


def check_samples(work, run, expect):
    for seed in range(3):
        code, out, errors = run("rules", "check", RULES, "--ops", OPS, "--format=json", "--seed", seed)
        rules = json.loads(out)["rules"] if out else []
        expect(f"own rules, seed {seed}", code == 0 and all(r["accepted"] and r["fires"] for r in rules), rules or errors)
    model, gain = norm_model(work / "norm.onnx")
    flags = ["--rewrites", RULES, "--ops", OPS]
    code, out, errors = run("inspect", model, "--stage=graph", *flags)
    expect("the kernel replaces both results", code == 0 and "user_kernel" in out and " rsqrt " not in out, out + errors)
    code, _, errors = run("compile", model, "-o", work / "norm.so", *flags)
    expect("own operator compiles", code == 0, errors)
    for rows in (5, 1, 0):
        x, r = np.random.default_rng(rows).standard_normal((2, rows, 8)).astype(np.float32)
        got, said = outputs(work, run, work / "norm.so", {"x": x, "r": r}, ["y", "z"])
        y = x + r
        z = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) * gain
        expect(f"own operator, {rows} rows", got is not None and np.allclose(got[0], y) and np.allclose(got[1], z, 1e-5, 1e-6), said)
    record = json.loads((work / "norm.json").read_text())["extensions"]
    fired = {rule["name"]: rule["fired"] for rule in record["rules"][0]["rules"]}
    expect("manifest of own operators", fired["add_then_norm"] == 1 and len(record["operators"][0]["sha256"]) == 64, record)
    code, out, errors = run("verify", model, work / "norm.so", *flags)
    expect("own operator verifies", code == 0, out + errors)
    code, out, errors = run("inspect", attention_model(work / "attention.onnx"), "--stage=rewrites", *flags)
    expect("own attention", code == 0 and "rule attention" in out and "fired once" in out, out + errors)


SILU = {"domain": "acme", "name": "Silu", "inputs": [{"name": "x", "type": "f32", "shape": ["...r", "n"]}],
        "outputs": [{"name": "y", "type": "f32", "shape": ["...r", "n"]}], "attributes": {"beta": {"type": "float", "default": 1.0}}}


def check_wrong(work, run, says, expect):
    ops, rules = work / "own.ops.json", work / "own.rules"
    text = "rule own once:\n  let x: f32[..., n]\n  match x * sigmoid(x)\n  yield {}\n  check close 1e-5\n"
    kernel = ("void f(const float* x, const int64_t* x_dims, int64_t x_rank, float* y, double beta) {{ int64_t n = 1; for (int64_t d = 0; d < x_rank; ++d) "
              "n *= x_dims[d]; for (int64_t i = 0; i < n; ++i) y[i] = x[i] / (1 + expf(-(float)beta * x[i])){}; }}")
    declare = lambda body: ops.write_text(json.dumps({"operators": [{**SILU, **body}]}))
    cases = {
        "right formula": ({"body": {"formula": "y = x * sigmoid(beta * x)"}}, "acme.Silu(x)", 0, "close"),
        "right attribute": ({"body": {"formula": "y = x * sigmoid(beta * x)"}}, "acme.Silu(x * 1){beta = 1}", 0, "close"),
        "wrong attribute": ({"body": {"formula": "y = x * sigmoid(beta * x)"}}, "acme.Silu(x){beta = 2}", 4, "the sides differ"),
        "wrong kernel": ({"body": {"kernel": {"c": kernel.format(" + 1e-3f")}}}, "acme.Silu(x)", 4, "the sides differ"),
        "wrong shape": ({"outputs": [{"name": "y", "type": "f32", "shape": ["n"]}], "body": {"formula": "y = reduce_sum(x, dims = [0])"}},
                        "acme.Silu(x)", 4, "rule 'own': the"),
        "guard": ({"require": [{"condition": "n % 2 == 0", "sentence": "n is odd"}], "body": {"formula": "y = x * sigmoid(beta * x)"}},
                  "acme.Silu(x)", 4, "the replacement does not fit where the match does"),
        "no such operator": ({"body": {"formula": "y = x"}}, "acme.Gelu(x)", 3, "there is no operator 'acme.Gelu'"),
        "no such attribute": ({"body": {"formula": "y = x"}}, "acme.Silu(x){gamma = 1}", 3, "'acme.Silu' has no attribute 'gamma'"),
        "too many inputs": ({"body": {"formula": "y = x"}}, "acme.Silu(x, x)", 4, "more inputs than the operator"),
        "too many results": ({"body": {"formula": "y = x"}}, "a with a, b = acme.Silu(x)", 4, "has 2 outputs, but the operator has 1"),
        "measured replacement": ({"body": {"formula": "y = x"}}, "x * cost(match)", 3, "there is no operator 'cost'"),
    }
    for name, (body, replacement, code, sentence) in cases.items():
        declare(body)
        rules.write_text(text.format(replacement))
        says(f"own operator, {name}", ["rules", "check", rules, "--ops", ops], code, sentence)
    declare({"body": {"formula": "y = x * sigmoid(beta * x)"}})
    rules.write_text(text.format("acme.Silu(x)"))
    says("own operator without --ops", ["rules", "check", rules], 3, "there is no operator 'acme.Silu'", "--ops")
    rules.write_text("rule own once:\n  let x: f32[..., n]\n  match acme.Silu(x)\n  yield x * sigmoid(x)\n")
    says("own operator in a match", ["rules", "check", rules, "--ops", ops], 3, "'acme.Silu' can only be in a rule's replacement")
    # A guard of the operator that the rule's own `where` proves, and one that a model's sizes do not prove.
    declare({"require": [{"condition": "n % 2 == 0", "sentence": "n is odd"}], "body": {"formula": "y = x * sigmoid(beta * x)"}})
    rules.write_text(text.replace("  yield", "  where n % 2 == 0\n  yield").format("acme.Silu(x)"))
    says("own operator with a guard", ["rules", "check", rules, "--ops", ops], 0, "close")
    model = save(work / "silu.onnx", [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])],
                 [("x", [3, "n"])], [("y", [3, "n"])])
    says("the guard is not proved", ["inspect", model, "--stage=rewrites", "--rewrites", rules, "--ops", ops], 0, "did not fire", "not proved")
    says("the guard is proved", ["inspect", model, "--stage=rewrites", "--rewrites", rules, "--ops", ops, "--dim", "n=8"], 0, "fired once")


def check_frozen(work, run, says, expect):
    """Rules are recorded with the operators that they name."""
    ops, database = work / "frozen.ops.json", work / "own.txt"
    ops.write_text(OPS.read_text())
    model, _ = norm_model(work / "norm.onnx")
    compiling = ["compile", model, "-o", work / "f.so", "--tune-db", database, "--rewrites", RULES, "--ops", ops]
    code, _, errors = run(*compiling, "--mode", "max-autotune", "--tune-seconds", "1")
    expect("own operators are recorded", code == 0 and database.read_text().count("extension ") >= 2, errors)
    code, _, errors = run(*compiling, "--frozen")
    expect("frozen with own operators", code in (0, 8) and "is not recorded" not in errors, errors)
    ops.write_text(OPS.read_text() + " ")
    says("frozen refuses another file of operators", [*compiling, "--frozen"], 8, "the file of operators", "is not recorded in the tuning database")


def check_costs(work, run, says, expect):
    """(a b) c = a (b c), where it is cheaper."""
    nodes = [helper.make_node("MatMul", ["a", "b"], ["ab"]), helper.make_node("MatMul", ["ab", "c"], ["y"], name="last")]
    rules = work / "cost.rules"
    rule = RULES.read_text().split("rule associate_where_cheaper")[1]
    sizes = {"n, 64, 64, 1": True, "n, 64, 8, 64": False, "n, m, 64, 1": None}
    for measure in ("cost", "flops"):
        rules.write_text("rule associate_where_cheaper" + rule.replace("cost(", f"{measure}("))
        for text, fires in sizes.items():
            m, k, n, p = [int(s) if s.strip().isdigit() else s.strip() for s in text.split(",")]
            model = save(work / "chain.onnx", nodes, [("a", [m, k]), ("b", [k, n]), ("c", [n, p])], [("y", [m, p])])
            arguments = ["inspect", model, "--stage=rewrites", "--rewrites", rules]
            if fires is not True:
                says(f"{measure} of {text}", arguments, 0, "did not fire", f"where ({measure}(yield) < {measure}(match))")
            at = ["--dim", "n=64..128"] if fires else ["--dim", "n=1..4"]
            if fires is not None:
                says(f"{measure} of {text} at sizes", [*arguments, *at], 0, "fired once" if fires else "did not fire")
    for condition, accepted in (("bytes(yield) < bytes(match)", True), ("flops(yield) * 2 <= flops(match)", True), ("flops(yield) > flops(match)", False)):
        rules.write_text(f"rule twice:\n  let x: f32[..., n]\n  match x * 2 * 2\n  where {condition}\n  yield x * 4\n  check exact\n")
        code, out, errors = run("rules", "check", rules)
        expect(f"where {condition}", (code == 0) == accepted and (accepted or "no random instance satisfies where" in errors), out + errors)
    for condition, sentence in (("cost(x) < 3", "'cost' takes match or yield, not 'x'"), ("cost() < 3", "'cost' takes match or yield, not ')'")):
        rules.write_text(f"rule twice:\n  let x: f32[..., n]\n  match x * 2 * 2\n  where {condition}\n  yield x * 4\n")
        says(f"where {condition}", ["rules", "check", rules], 3, sentence)


def check(work, run, says, expect):
    check_samples(work, run, expect)
    check_wrong(work, run, says, expect)
    check_frozen(work, run, says, expect)
    check_costs(work, run, says, expect)
