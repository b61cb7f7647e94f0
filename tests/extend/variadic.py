"""Operators with any number of inputs or outputs, costs, units in the last place, states and sizes that depend on data (--ops): the
topic `variadic` of run.py.

Each case in the forms that it has, at 1 to 5 tensors: compiled, run, verified, and compared with NumPy.
"""

import dataclasses
import json
import re
import typing

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, save

from operators import TYPES, custom, model_of, onnx_type


def t(name, shape, dtype="T", **more):
    return {"name": name, "type": dtype, "shape": shape, **more}


@dataclasses.dataclass
class Many:
    """An operator acme::Op; `value` gets the list of inputs. `outputs`: of the node, from the number of inputs."""
    name: str
    inputs: list
    outputs: list
    bodies: dict
    reference: str
    value: typing.Callable
    shapes: typing.Callable  # number of tensors, instance -> shapes
    counts: tuple = (1, 2, 5)
    fixed: int = 0  # inputs before the variadic ones
    results: typing.Callable = lambda n: 1
    types: tuple = ("f32",)
    declared: dict = dataclasses.field(default_factory=dict)
    dims: typing.Callable = None


LOOP = ["  for (int64_t i = 0; i < n; ++i)", "    for (int64_t j = 0; j < d; ++j) {"]


def cases():
    xs = t("xs", ["n", "d"], variadic=True)
    same = lambda n, k: [(3, 4), (1, 5), (0, 4), (2, 0)][k:k + 1] * n
    yield Many("sum", [xs], [t("y", ["n", "d"])], {
        "formula": "y = (xs@ + ...) * xs_count",
        "point": "T f(T xs@...) { return (xs@ + ...) * xs_count; }",
        "nest": "T f(int i, int j, const T xs@[n][d]...) { return (xs@[i][j] + ...) * xs_count; }",
        "kernel": {"c": ["void f(const T* xs@..., const int64_t* xs@_strides...,", "       T* y, const int64_t* y_strides, int64_t n, int64_t d) {",
                         "  const T* all[] = {xs@...};", "  const int64_t* strides[] = {xs@_strides...};", *LOOP, "      double s = 0;",
                         "      for (int k = 0; k < xs_count; ++k) s += all[k][i * strides[k][0] + j * strides[k][1]];",
                         "      y[i * y_strides[0] + j * y_strides[1]] = s * xs_count; }", "}"], "strides": {"xs": "any", "y": "any"}},
        "callback": {"strides": {"xs": "any"}}}, "y = (xs@ + ...) * xs_count",
        lambda x: sum(a.astype(np.float64) for a in x) * len(x), same, types=("f32", "f16", "bf16", "f64"),
        dims=lambda n: [["n", "d"]] * n)
    yield Many("largest, and one before", [t("a", ["n", "d"]), xs], [t("y", ["n", "d"])], {
        "formula": "y = max(xs@, ...) - a", "point": "T f(T a, T xs@...) { return max(xs@, ...) - a; }",
        "kernel": {"c": ["void f(const T* a, const T* xs@..., T* y, int64_t n, int64_t d) {", "  for (int64_t i = 0; i < n * d; ++i) {",
                         "    T most = xs_0[i];", "    if (xs@[i] > most) most = xs@[i];", "    y[i] = most - a[i];", "  }", "}"]},
        "callback": {}}, "y = max(xs@, ...) - a", lambda x: np.maximum.reduce(x[1:]) - x[0], lambda n, k: same(n + 1, k), fixed=1,
        dims=lambda n: [["n", "d"]] * (n + 1))
    wide = t("xs", ["n", "d@"], variadic=True)
    ragged = lambda n, k: [((3, 1, 0)[k], 2 + i) for i in range(n)]
    yield Many("concat", [wide], [t("y", ["n", "(d@ + ...)"])], {
        "formula": "y = concat(xs@..., dim = -1)",
        "kernel": {"c": ["void f(const T* xs@..., int64_t n, int64_t d@..., T* y) {", "  const T* all[] = {xs@...};", "  const int64_t d[] = {d@...};",
                         "  int64_t at = 0;", "  for (int64_t i = 0; i < n; ++i)",
                         "    for (int k = 0; k < xs_count; ++k)", "      for (int64_t j = 0; j < d[k]; ++j) y[at++] = all[k][i * d[k] + j];", "}"]},
        "callback": {}}, "y = concat(xs@..., dim = -1)", lambda x: np.concatenate(x, -1), ragged, types=("f32", "i8"),
        dims=lambda n: [["n", f"d{i}"] for i in range(n)])
    yield Many("each", [wide], [t("ys", ["n", "d@"], variadic=True)], {
        "formula": "ys@ = xs@ * xs_count + ys_index",
        "kernel": {"c": ["void f(const T* xs@..., T* ys@..., int64_t n, int64_t d@...) {",
                         "  for (int64_t i = 0; i < n * d@; ++i) ys@[i] = xs@[i] * xs_count + ys_index;", "}"]},
        "callback": {}}, "ys@ = xs@ * xs_count + ys_index", lambda x: tuple(a * len(x) + i for i, a in enumerate(x)), ragged,
        results=lambda n: n, dims=lambda n: [["n", f"d{i}"] for i in range(n)])
    yield Many("outputs of a point", [t("x", ["n", "d"])], [t("ys", ["n", "d"], variadic=True)], {
        "formula": "ys@ = x * ys_index", "point": ["void f(T x, T* ys@...) {", "  *ys@ = x * ys_index;", "}"],
        "nest": "void f(int i, int j, const T x[n][d], T* ys@...) { *ys@ = x[i][j] * ys_index; }"},
        "ys@ = x * ys_index", lambda x: None, lambda n, k: same(1, k), fixed=1, results=lambda n: n, dims=lambda n: [["n", "d"]])
    yield Many("split", [t("x", ["n", "d"])], [t("ys", ["n", "d / ys_count"], variadic=True)], {
        "formula": "ys@ = slice(x, starts = [0, d / ys_count * ys_index], extents = [n, d / ys_count], steps = [1, 1])"},
        "", lambda x: None, lambda n, k: [((3, 1, 0)[k], 6 * n)], fixed=1, results=lambda n: n,
        declared={"require": [{"condition": "d % ys_count == 0", "sentence": "{0} is not a multiple"}]}, dims=lambda n: [["n", "d"]])


def declared(case, form, **more):
    made = {"domain": "acme", "name": "Op", "types": {"T": ["f32", "f64", "f16", "bf16", "int"]}, "inputs": case.inputs, "outputs": case.outputs,
            "body": {form: case.bodies[form]}, **case.declared, **more}
    if form == "callback" or (form == "kernel" and case.reference):
        # Kernels in C compare without regard to NaN, and sum in double precision.
        made["reference"] = {"formula": case.reference, "relative": 2e-2, "assume": [-100, 100]}
    return {"operators": [made]}


def check_case(case, form, work, run, expect):
    ops, path, library = work / "many.ops", work / "many.onnx", work / "many.so"
    ops.write_text(json.dumps(declared(case, form)))
    rng = np.random.default_rng(3)
    for dtype in case.types:
        for count in case.counts:
            label = f"variadic {case.name}, {form}, {dtype}, {count}"
            inputs = len(case.dims(count))
            names, outputs = [f"x{i}" for i in range(inputs)], [f"y{i}" for i in range(case.results(count))]
            # Every second input is a transposed view; what follows is a concatenation of the first output with itself.
            nodes = [helper.make_node("Transpose", [names[i]], [f"t{i}"], perm=[1, 0]) for i in range(0, inputs, 2)]
            fed = [f"t{i}" if i % 2 == 0 else names[i] for i in range(inputs)]
            nodes += [helper.make_node("Op", fed, outputs, name="custom", domain="acme"),
                      helper.make_node("Concat", [outputs[0], outputs[0]], ["twice"], axis=1)]
            dims = case.dims(count)
            dims = [d[::-1] if i % 2 == 0 else d for i, d in enumerate(dims)]
            graph = helper.make_graph(nodes, "many", [helper.make_tensor_value_info(n, onnx_type(dtype), d) for n, d in zip(names, dims)],
                                      [helper.make_tensor_value_info(n, onnx_type(dtype), None) for n in [*outputs, "twice"]])
            save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)], ir_version=9), path)
            code, out, errors = run("compile", path, "-o", library, "--ops", ops)
            expect(f"{label} compiles", code == 0, out + errors)
            if code != 0:
                continue
            for k in range(3):
                shapes = case.shapes(count, k)
                fed = [np.asarray(rng.integers(-5, 5, s) if dtype == "i8" else rng.uniform(-2, 2, s)).astype(TYPES[dtype]) for s in shapes]
                wanted = case.value(fed)
                if wanted is None and case.name == "split":
                    wanted = tuple(np.split(fed[0], count, -1))
                elif wanted is None:
                    wanted = tuple(fed[0] * i for i in range(count))
                wanted = wanted if isinstance(wanted, tuple) else (wanted,)
                arguments = ["--ops", ops]
                for i, (name, array) in enumerate(zip(names, fed)):
                    array = np.ascontiguousarray(array.T) if i % 2 == 0 else array
                    np.save(work / f"{name}.npy", array.view(np.uint16) if dtype == "bf16" else array)
                    arguments += ["--input", f"{name}={work / name}.npy"]
                for name in [*outputs, "twice"]:
                    arguments += ["--output", f"{name}={work / name}.npy"]
                code, out, errors = run("run", library, *arguments)
                expect(f"{label} runs {shapes}", code == 0, out + errors)
                if code != 0:
                    continue
                for name, value in [*zip(outputs, wanted), ("twice", np.concatenate([wanted[0]] * 2, 1))]:
                    found = np.load(work / f"{name}.npy")
                    found = found.view(ml_dtypes.bfloat16) if dtype == "bf16" else found
                    near = {"f32": 1e-5, "f64": 1e-12, "f16": 1e-2, "bf16": 1e-1, "i8": 0}[dtype]
                    same = found.shape == value.shape and np.allclose(found.astype(np.float64), value.astype(np.float64), rtol=near, atol=near)
                    expect(f"{label} {shapes}: {name}", same, f"{found} {value}")
            code, out, errors = run("verify", path, library, "--ops", ops, "--runs", "1")
            expect(f"{label} verifies", code == 0, out + errors)


def check_errors(work, run, says, expect):
    model, file = model_of(work / "one.onnx", [custom(("x", "x"))]), work / "bad.json"
    xs, y = t("xs", ["n", "d"], "f32", variadic=True), t("y", ["n", "d"], "f32")

    def op(body, inputs=(xs,), outputs=(y,), **more):
        return {"operators": [{"domain": "acme", "name": "Op", "inputs": list(inputs), "outputs": list(outputs), "body": body, **more}]}
    good = {"formula": "y = (xs@ + ...)"}
    wrong = {
        "not the last": (op(good, (xs, t("a", ["n"], "f32"))), "/inputs/0/variadic: only the last one"),
        "default": (op(good, ({**xs, "default": 1},)), "a variadic input cannot have a default"),
        "no list": (op(good, ({**xs, "variadic": 2},)), "/inputs/0/variadic: expected true or false"),
        "unknown": (op({"formula": "y = (zs@ + ...)"}), "'zs@' is neither a variadic tensor nor a dim of one"),
        "the name alone": (op({"formula": "y = xs + 1"}), "'xs' is not declared"),
        "defined for each": (op({"formula": "y = xs@ * 2"}), "'y' is defined twice"),
        "syntax": (op({"formula": "y = (xs@ + ...) +"}), "expected an expression"),
        "no function": (op({"formula": "y = (xs@, ...)"}), "needs the name of a function"),
        "C": (op({"point": "float f(float xs@...) { return (xs@ + ...) + z; }"}), "'z' is not declared"),
        "taken": (op(good, (t("xs_0", ["n", "d"], "f32"), xs)), "'xs_0' is declared twice"),
        "cost of a formula": (op(good, cost={"flops": "n * d"}), "/cost: 'cost' is only for kernels and callbacks"),
        "cost": (op({"callback": {}}, cost={"flops": "q"}), "/cost/flops:1:1: 'q' is not bound"),
        "cost member": (op({"callback": {}}, cost={"loads": 1}), "unknown member 'loads'"),
        "ulp and relative": (op(good, reference={"formula": "y = (xs@ + ...)", "ulp": 1, "relative": 1}), "'ulp' cannot be combined with"),
        "ulp": (op(good, reference={"formula": "y = (xs@ + ...)", "ulp": -1}), "cannot be negative"),
    }
    for name, (content, sentence) in wrong.items():
        file.write_text(json.dumps(content))
        code, out, errors = run("check", model, "--ops", file)
        ends = (3, 4) if name == "C" else (3,)
        expect(f"variadic error: {name}", code in ends and sentence in " ".join((out + errors).split()), f"{code} {out} {errors}")
    file.write_text(json.dumps(op(good, (t("a", ["n", "d"], "f32"), xs))))
    says("variadic error: too few", ["check", model_of(work / "few.onnx", [custom(("x",))]), "--ops", file], 4, "has 1 inputs, but the operator takes 2 or more",
         "node 0 'custom'")
    two = op({"formula": "ys@ = xs@ * 2"}, outputs=(t("ys", ["n", "d"], "f32", variadic=True),))
    file.write_text(json.dumps(two))
    says("variadic error: two counts", ["check", model_of(work / "counts.onnx", [custom(("x", "x"), ("y", "u", "v"))]), "--ops", file], 4,
         "'ys@' stands for 3 tensors, and 'xs@' for 2")
    says("the table of operators", ["ops", "--ops", file], 0, "xs@...: f32[n,", "ys@...: f32[n,")


def check_ulps(work, run, says, expect):
    """A reference by units in the last place, of each type."""
    model, file = model_of(work / "ulp.onnx", [custom()]), work / "ulp.json"
    tensor = {"type": "f32", "shape": ["n", "d"]}
    for name, body, reference, ulps, code in (
            ("equal", "y = x + x", "y = x * 2", 0, 0), ("one", "y = x * (1 / 3)", "y = x / 3", 1, 0), ("none", "y = x * (1 / 3)", "y = x / 3", 0, 4),
            ("far", "y = x * 1.001", "y = x", 100, 4), ("farther", "y = x * 1.000001", "y = x", 100, 0)):
        file.write_text(json.dumps({"operators": [{"domain": "acme", "name": "Op", "inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}],
                                                   "body": {"formula": body}, "reference": {"formula": reference, "ulp": ulps}}]}))
        says(f"ulp of a reference: {name}", ["check", model, "--ops", file], code, *(["differs from the reference"] if code else []))
    rules = work / "ulp.rules"
    for name, clause, accepted in (("one", "ulp 1", True), ("none", "ulp 0", False), ("exact", "exact", False)):
        rules.write_text(f"rule third:\n  let x: {{f32, f64, f16, bf16}}[...]\n  match x / 3\n  yield x * 0.33333333333333333\n  check {clause}\n")
        if name != "one":
            says(f"rules by ulp: {name}", ["rules", "check", rules], 4, "the sides differ")
        else:
            code, out, errors = run("rules", "check", rules)
            expect("rules by ulp: one", code == 0, out + errors)
    rules.write_text("rule lost:\n  let x: float[...]\n  match x + 1\n  yield relu(x) + 1\n  check ulp 4\n")
    says("rules by ulp: refused", ["rules", "check", rules], 4, "the sides differ")
    rules.write_text("rule bad:\n  let x: float[...]\n  match x + 1\n  yield x + 1\n  check ulp 0.5\n")
    says("rules by ulp: half", ["rules", "check", rules], 3, "a number of units in the last place")


def check_costs(work, run, says, expect):
    """Declared costs are in the manifest, in bench and in profile; without one, the bytes of the tensors."""
    kernel = {"kernel": {"c": "void f(const float* x, float* y, int64_t n, int64_t d, int64_t begin, int64_t end) { for (int64_t i = begin * d; i < end * d; ++i) y[i] = x[i] * 2; }",
                         "parallel": "n"}}
    model, file, library = model_of(work / "cost.onnx", [custom()]), work / "cost.ops", work / "costs.so"
    tensor = {"type": "f32", "shape": ["n", "d"]}
    for name, cost, flops, size in (("declared", {"flops": "3 * n * d", "bytes": "1000 * n"}, 3 * 16 * 8, 16000), ("half", {"flops": "n"}, 16, 16 * 8 * 8),
                                    ("none", None, 0, 16 * 8 * 8), ("negative", {"flops": "n - 100", "bytes": "0 - n"}, 0, 0)):
        for form, body in (("kernel", kernel), ("callback", {"callback": {}})):
            file.write_text(json.dumps({"operators": [{"domain": "acme", "name": "Op", "inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}],
                                                       "body": body, "reference": {"formula": "y = x * 2"}, **({"cost": cost} if cost else {})}]}))
            code, out, errors = run("compile", model, "-o", library, "--ops", file)
            expect(f"cost {name} of a {form} compiles", code == 0, out + errors)
            rows = json.loads(library.with_suffix(".json").read_text())["routines"]
            expect(f"cost {name} of a {form}: manifest", len(rows) == 1 and rows[0]["name"] == "acme::Op" and rows[0]["nodes"] == ["node 0 'custom' (Op)"], rows)
            for command, key in (("bench", "kernels"), ("profile", "rows")):
                code, out, errors = run(command, library, "--dim", "n=16", "--seconds=0.05", "--ops", file, "--format=json")
                row = next((r for r in json.loads(out)[key] if r["name"] == "acme::Op"), None) if code == 0 else None
                times = row["calls"] if row and command == "profile" else 1
                got = None if row is None else (row["flops"] / times, row["bytes"] / times)
                expect(f"cost {name} of a {form}: {command}", got is not None and abs(got[0] - flops) <= flops * 1e-6 and
                       abs(got[1] - size) <= size * 1e-6, f"{row} {errors}")


def check_states(work, run, says, expect):
    """A state that an operator updates in place, in each form, over several runs."""
    forms = {"formula": "s = state * 0.5 + x", "point": "float f(float state, float x) { return state * 0.5f + x; }",
             "nest": "float f(int i, int j, const float state[n][d], const float x[n][d]) { return state[i][j] * 0.5f + x[i][j]; }",
             "kernel": {"c": "void f(const float* state, const float* x, float* s, int64_t n, int64_t d) { for (int64_t i = 0; i < n * d; ++i) s[i] = state[i] * 0.5f + x[i]; }"},
             "callback": {}}
    tensor = {"type": "f32", "shape": ["n", "d"]}
    graph = helper.make_graph([helper.make_node("Op", ["state", "x"], ["next"], name="custom", domain="acme"), helper.make_node("Neg", ["next"], ["y"])],
                              "state", [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 8]) for n in ("state", "x")],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 8]) for n in ("y", "next")])
    model, file, library = work / "state.onnx", work / "state.ops", work / "state.so"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)], ir_version=9), model)
    for form, body in forms.items():
        file.write_text(json.dumps({"operators": [{"domain": "acme", "name": "Op", "inputs": [{"name": "state", **tensor}, {"name": "x", **tensor}],
                                                   "outputs": [{"name": "s", **tensor}], "body": {form: body}, "reference": {"formula": "s = state * 0.5 + x"}}]}))
        code, out, errors = run("compile", model, "-o", library, "--ops", file, "--state", "state=next")
        expect(f"state, {form} compiles", code == 0, out + errors)
        code, out, errors = run("verify", model, library, "--ops", file, "--state", "state=next", "--steps", "4")
        expect(f"state, {form} verifies", code == 0 and "4 steps" in out, out + errors)


CACHE = {"domain": "acme", "name": "Op", "inputs": [t("cache", ["m", "d"], "f32"), t("row", ["d"], "f32"), t("at", [], "i64")],
         "outputs": [t("next", ["m", "d"], "f32")],
         "body": {"kernel": {"c": ["int write(float* next, const float* row, const int64_t* at, int64_t m, int64_t d) {",
                                   "  const int64_t place = *at < 0 ? *at + m : *at;", "  if (d > 0 && (place < 0 || place >= m)) return 1;",
                                   "  memcpy(next + place * d, row, d * 4);", "  return 0;", "}"],
                             "in_place": {"next": "cache"}}},
         "reference": {"formula": "next = scatter_nd(cache, reshape(at, [1, 1]), reshape(row, [1, d]))"}}


def copies(run, model, *more):
    """How many nests of the program copy a tensor to the one that a kernel changes, or to the state."""
    code, out, errors = run("inspect", model, "--stage=fused", *more)
    return len([line for line in out.splitlines() if re.search(r"\b(next|update_state)\w* ?(=|:|\()", line)]) if code == 0 else errors


def check_in_place(work, run, says, expect):
    """A kernel that changes one row of a state touches no other; where the old state has another reader, it is copied."""
    model, file, library = work / "cache.onnx", work / "cache.ops", work / "cache.so"
    flags = ["--ops", file, "--state", "cache=next"]
    info = lambda name, dtype, shape: helper.make_tensor_value_info(name, dtype, shape)
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64

    def cached(nodes):
        graph = helper.make_graph([custom(("cache", "row", "at"), ("next",)), *nodes], "cache",
                                  [info("cache", f32, [6, 8]), info("row", f32, [8]), info("at", i64, [])],
                                  [info("y", f32, [8]), info("next", f32, [6, 8])])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)], ir_version=9), model)

    after = [helper.make_node("ReduceSum", ["next", "axes"], ["y"], keepdims=0)]
    axes = [helper.make_node("Constant", [], ["axes"], value_ints=[0])]
    before = [helper.make_node("Add", ["cache", "next"], ["both"]), helper.make_node("ReduceSum", ["both", "axes"], ["y"], keepdims=0)]
    file.write_text(json.dumps({"operators": [CACHE]}))
    cached(axes + after)
    says("in place, drawn inputs", ["check", model, *flags, "--check-ops"], 0)
    np.save(work / "at.npy", np.int64(3))
    bodies = {"kernel": CACHE["body"], "callback": {"callback": {"in_place": {"next": "cache"}}}}
    for form, body in bodies.items():
        file.write_text(json.dumps({"operators": [{**CACHE, "body": body}]}))
        for name, nodes, in_place in (("read after", axes + after, True), ("read before", axes + before, False)):
            cached(nodes)
            code, out, errors = run("compile", model, "-o", library, *flags)
            expect(f"in place, {form}, {name} compiles", code == 0, out + errors)
            found = copies(run, model, *flags)
            expect(f"in place, {form}, {name}: copies", (found == 0) if in_place else isinstance(found, int) and found > 0, found)
            says(f"in place, {form}, {name} verifies", ["verify", model, library, *flags, "--steps", "4", "--input", f"at={work / 'at.npy'}"], 0, "4 steps")
    # An input that is no state is copied first, and stays as it was.
    file.write_text(json.dumps({"operators": [CACHE]}))
    cached(axes + before)
    code, out, errors = run("compile", model, "-o", library, "--ops", file)
    feeds = {"cache": np.arange(48, dtype=np.float32).reshape(6, 8), "row": np.full(8, -1, np.float32), "at": np.int64(2)}
    for name, array in feeds.items():
        np.save(work / f"{name}.npy", array)
    inputs = [part for name in feeds for part in ("--input", f"{name}={work / name}.npy")]
    code, out, errors = run("run", library, *inputs, "--output", f"y={work / 'y.npy'}", "--output", f"next={work / 'next.npy'}")
    wanted = feeds["cache"].copy()
    wanted[2] = -1
    expect("in place of an input", code == 0 and np.array_equal(np.load(work / "next.npy"), wanted) and
           np.array_equal(np.load(work / "y.npy"), (feeds["cache"] + wanted).sum(0)), out + errors)
    np.save(work / "at.npy", np.int64(6))
    says("in place, the kernel fails", ["run", library, *inputs], 4, "acme::Op: its kernel returned 1")
    wrong = {"another type": ({"outputs": [t("next", ["m", "d"], "f16")]}, "both need the same type"),
             "another shape": ({"outputs": [t("next", ["d", "m"], "f32")]}, "the same declared shape"),
             "no input": ({"in_place": {"next": "frob"}}, "'frob' is not an input"),
             "no output": ({"in_place": {"frob": "cache"}}, "'frob' is not an output"),
             "two parameters": ({"c": "void f(float* next, const float* cache) {}"}, "input 'cache' is updated in place"),
             "its dims": ({"c": "void f(float* next, const int64_t* cache_dims) {}"}, "input 'cache' is updated in place"),
             "taken twice": ({"outputs": [t(n, ["m", "d"], "f32") for n in ("next", "other")], "c": "void f(float* next, float* other) {}",
                              "in_place": {"next": "cache", "other": "cache"}}, "two outputs take the memory of 'cache'")}
    for name, (changes, sentence) in wrong.items():
        kernel = {**CACHE["body"]["kernel"], **{k: v for k, v in changes.items() if k in ("c", "in_place")}}
        outputs = changes.get("outputs", CACHE["outputs"])
        file.write_text(json.dumps({"operators": [{**CACHE, "outputs": outputs, "body": {"kernel": kernel}, "reference": {"formula": "next = cache"}}]}))
        says(f"in place, {name}", ["check", model, "--ops", file], 3, sentence)
    shared = {**CACHE, "inputs": [t("x", ["n", "d"], "f32")], "outputs": [t("y", ["n", "d"], "f32")], "reference": {"formula": "y = x + 1"}}
    for name, loop, code in (("shared", "i = begin; i < end", 0), ("shared by all", "i = 0; i < n", 4)):
        text = f"void f(float* y, int64_t n, int64_t d, int64_t begin, int64_t end) {{ for (int64_t {loop}; ++i) for (int64_t j = 0; j < d; ++j) y[i * d + j] += 1; }}"
        file.write_text(json.dumps({"operators": [{**shared, "body": {"kernel": {"c": text, "in_place": {"y": "x"}, "parallel": "n"}}}]}))
        says(f"in place, {name}", ["check", model_of(work / "one.onnx", [custom()]), "--ops", file, "--check-ops"], code)


def check_data_sizes(work, run, says, expect):
    """Sizes that depend on data: bodies that become operations take them as inputs and make them as outputs."""
    nodes = [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Cast", ["at"], ["f"], to=1), custom(("f",), ("y",))]
    model, file, library = model_of(work / "data.onnx", nodes), work / "data.ops", work / "data.so"
    bodies = {"formula": "y = x * 2 + d", "point": "float f(float x, int d) { return x * 2 + d; }",
              "nest": "float f(int i, int j, const float x[n][d], int d) { return x[i][j] * 2 + d; }",
              "kernel": {"c": "void f(const float* x, float* y, int64_t n, int64_t d) { for (int64_t i = 0; i < n * d; ++i) y[i] = x[i] * 2 + d; }"},
              "callback": {}}
    tensor = {"type": "f32", "shape": ["n", "d"]}
    x = np.random.default_rng(2).integers(-1, 2, (5, 8)).astype(np.float32)
    for form, body in bodies.items():
        file.write_text(json.dumps({"operators": [{"domain": "acme", "name": "Op", "inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}],
                                                   "body": {form: body}, "reference": {"formula": "y = x * 2 + d"}}]}))
        code, out, errors = run("compile", model, "-o", library, "--ops", file)
        expect(f"data sizes, {form} compiles", code == 0, out + errors)
        for name, given in (("some", x), ("none", x * 0), ("all", x * 0 + 1)):
            np.save(work / "x.npy", given)
            code, out, errors = run("run", library, "--ops", file, "--input", f"x={work / 'x.npy'}", "--output", f"y={work / 'y.npy'}")
            wanted = np.stack(np.nonzero(given)).astype(np.float32)
            wanted = wanted * 2 + wanted.shape[1]
            expect(f"data sizes, {form}, {name}", code == 0 and np.array_equal(np.load(work / "y.npy"), wanted), out + errors)
        says(f"data sizes, {form} verifies", ["verify", model, library, "--ops", file], 0)
    op = {"domain": "acme", "name": "Op", "inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", "type": "i64"}]}
    file.write_text(json.dumps({"operators": [{**op, "body": {"formula": "y = nonzero(x)"}}]}))
    graph = helper.make_graph([custom()], "made", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
                              [helper.make_tensor_value_info("y", TensorProto.INT64, None)])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)], ir_version=9), model)
    says("a formula makes a size", ["check", model, "--ops", file], 3, "'nonzero' cannot be in a formula")


def check(work, run, says, expect):
    for case in cases():
        for form in case.bodies:
            check_case(case, form, work, run, expect)
    for part in (check_errors, check_ulps, check_costs, check_states, check_in_place, check_data_sizes):
        part(work, run, says, expect)
