"""Operators of users (--ops): the topic `ops` of run.py.

One matrix of cases over the forms of a body: each case is an operator, written as a formula and as a point in C where it has
both, a model that has it, and NumPy's value. Every case is compiled, run at several sizes and verified against the interpreter.
"""

import dataclasses
import json
import pathlib
import re
import typing

import jsonschema
import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "i8": np.int8,
         "u8": np.uint8, "i64": np.int64, "bool": np.bool_}


def onnx_type(name):
    return TensorProto.BFLOAT16 if name == "bf16" else helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[name]))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@dataclasses.dataclass
class Case:
    """An operator acme::Op, and what it computes. `shapes`: for each instance the shapes of the inputs."""
    name: str
    inputs: list  # (name, type, dims of the declaration)
    outputs: list
    bodies: dict  # form -> text
    value: typing.Callable
    shapes: list
    attributes: dict = dataclasses.field(default_factory=dict)
    types: dict = dataclasses.field(default_factory=dict)
    declared: dict = dataclasses.field(default_factory=dict)  # further members of the declaration
    dims: list = None  # of the model's inputs: names, for sizes that stay open
    tolerance: float = 2e-6
    low: float = -2.0


def cases():
    f32 = [("x", "f32", ["...s"])]
    y = [("y", "f32", ["...s"])]
    swiglu = {"formula": "y = x * sigmoid(x) * z",
              "point": "float f(float x, float z) { return x / (1 + expf(-x)) * z; }"}
    two = [("x", "f32", ["...s"]), ("z", "f32", ["...s"])]
    yield Case("swiglu", two, y, swiglu, lambda x, z: x * sigmoid(x) * z, [((2, 3), (2, 3)), ((5, 1), (5, 1)), ((0, 4), (0, 4))],
               dims=[["a", "b"], ["a", "b"]])
    yield Case("rank 0", two, y, swiglu, lambda x, z: x * sigmoid(x) * z, [((), ())])
    yield Case("broadcast", [("x", "f32", ["n", "d"]), ("z", "f32", ["d"])], [("y", "f32", ["n", "d"])], swiglu,
               lambda x, z: x * sigmoid(x) * z, [((3, 4), (4,)), ((1, 4), (4,)), ((0, 4), (4,))], dims=[["n", 4], [4]])
    scale = {"formula": "y = x * scale + shift",
             "point": "T f(T x, float scale, float shift) { return x * scale + shift; }"}
    for dtype, tolerance in (("f32", 2e-6), ("f64", 1e-12), ("f16", 2e-3), ("bf16", 2e-2)):
        typed = [("x", "T", ["n", "d"])]
        yield Case(f"types {dtype}", typed, [("y", "T", ["n", "d"])], {"formula": "y = cast(cast(x, f64) * scale + shift, T)",
                                                                     **{k: v for k, v in scale.items() if k == "point"}},
                   lambda x, t=dtype: (x.astype(np.float64) * 0.5 + 3).astype(TYPES[t]), [((2, 3),), ((7, 1),)], {"scale": 0.5},
                   {"T": ["f32", "f64", "f16", "bf16"]},
                   {"attributes": {"scale": {"type": "float"}, "shift": {"type": "float", "default": 3}}}, [["n", "d"]],
                   tolerance, low=dtype)
    integer = {"formula": "y = rem(x * 3 + 7, 5)", "point": "int f(int x) { return (x * 3 + 7) % 5; }"}
    yield Case("integers", [("x", "i32", ["n"])], [("y", "i32", ["n"])], integer, lambda x: np.fmod(x * 3 + 7, 5),
               [((9,),), ((0,),)], dims=[["n"]])
    yield Case("two outputs", f32, [("si", "f32", ["...s"]), ("co", "f32", ["...s"])],
               {"formula": ["si = sin(x)", "co = cos(x)"], "point": "void f(float x, float* si, float* co) { *si = sinf(x); *co = cosf(x); }"},
               lambda x: (np.sin(x), np.cos(x)), [((2, 3),), ((4, 1),)], dims=[["a", "b"]])
    yield Case("rotary", [("x", "f32", ["b", "h", "s", "d"]), ("angle", "f32", ["s", "d / 2"])], [("y", "f32", ["b", "h", "s", "d"])],
               {"formula": ["a = slice(x, starts = [0, 0, 0, 0], extents = [b, h, s, d / 2], steps = [1, 1, 1, 1])",
                            "e = slice(x, starts = [0, 0, 0, d / 2], extents = [b, h, s, d / 2], steps = [1, 1, 1, 1])",
                            "co = cos(angle); si = sin(angle)",
                            "y = concat(a * co - e * si, a * si + e * co, dim = -1)"]},
               lambda x, angle: np.concatenate([x[..., :4] * np.cos(angle) - x[..., 4:] * np.sin(angle),
                                                x[..., :4] * np.sin(angle) + x[..., 4:] * np.cos(angle)], -1),
               [((2, 3, 5, 8), (5, 4)), ((1, 3, 1, 8), (1, 4))], dims=[["b", 3, "s", 8], ["s", 4]],
               declared={"require": [{"condition": "d % 2 == 0", "sentence": "the last dim is {0}; it has to be even"}]})
    yield Case("softmax with size", [("x", "f32", ["n", "d"])], [("y", "f32", ["n"])],
               {"formula": ["p = softmax(x / sqrt(d), dims = -1)", "y = reduce_sum(p * x, dims = 1) + 1 / d"]},
               lambda x: (np.exp(x / np.sqrt(x.shape[1])) / np.exp(x / np.sqrt(x.shape[1])).sum(1, keepdims=True) * x).sum(1) + 1 / x.shape[1],
               [((2, 3),), ((5, 9),)], dims=[["n", "d"]], tolerance=1e-5)
    branches = ["float f(float x, int k) {", "  // a polynomial, and early returns", "  if (x < -1) return 0;",
                "  float s = 0, p = 1;", "  for (int i = 0; i < k; ++i) { s += p / (i + 1); p *= x; }",
                "  if (x > 1.0f && s > 2) { s = fmin(s, 10.0); return -s; } else if (x > 0.5) s *= 2;",
                "  return x == 0 ? 0.25 : s;", "}"]

    def series(x):
        s = sum(x.astype(np.float64) ** i / (i + 1) for i in range(4))
        out = np.where(x > 0.5, 2 * s, s)
        out = np.where((x > 1) & (s > 2), -np.minimum(s, 10), out)
        return np.where(x < -1, 0, np.where(x == 0, 0.25, out)).astype(np.float32)

    yield Case("control flow", f32, y, {"point": branches}, series, [((20, 3),), ((0, 3),)], {"k": 4},
               declared={"attributes": {"k": {"type": "int"}}}, dims=[["a", "b"]], tolerance=1e-5)
    bits = "float f(float x) { uint32_t u = __float_as_uint(x); return __uint_as_float((u & 0x7fffffffu) >> 1 << 1); }"
    yield Case("bits", f32, y, {"point": bits},
               lambda x: ((x.view(np.uint32) & np.uint32(0x7fffffff)) >> np.uint32(1) << np.uint32(1)).view(np.float32),
               [((3, 5),)], tolerance=0)
    yield Case("constant output", two, y, {"point": "float f(float x, float z) { return 7; }"},
               lambda x, z: np.full_like(x, 7), [((2, 3), (2, 3)), ((0, 3), (0, 3))], dims=[["a", "b"], ["a", "b"]])


    # What distinguishes the types of literals: hexadecimal and octal ones may be unsigned, decimal ones are signed.
    literals = ["float f(float x) {", "  int a = (0xFFFFFFFF > -1) + 2 * (037777777777 > -1) + 4 * (4294967295 > -1) + 8 * (0xFFFFFFFF + 1 == 0);",
                "  int b = (0x8000000000000000 > -1) + 2 * (2147483648 > -1) + 4 * (0x80000000 > -1) + 8 * (9223372036854775808u > 1);",
                "  return x + a + 16 * b;", "}"]
    yield Case("literals", f32, y, {"point": literals}, lambda x: x + np.float32(4 + 8 + 16 * (2 + 8)), [((2, 3),)], dims=[["a", "b"]])
    exact = {"formula": "y = x + (a - 9007199254740992)", "point": "int64_t f(int64_t x, int64_t a) { return x + (a - 9007199254740992); }"}
    yield Case("attribute above 2^53", [("x", "i64", ["n"])], [("y", "i64", ["n"])], exact, lambda x: x + 1, [((5,),)], dims=[["n"]],
               declared={"attributes": {"a": {"type": "int", "default": 9007199254740993}}})


# Loops of a known count whose rounds do not commute, or change the count: they run round by round.
ORDERED = ["void f(int i, const float x[n][12], float* a, float* b, float* c, float* d, float* e, float* g) {",
           "  float s = 0, t = 0, u = 0, v = 1, w = 0, z = 0;",
           "  int m = 12;",
           "  for (int k = 0; k < 12; ++k) { s *= 0.5f; s += x[i][k]; }",
           "  for (int k = 0; k < 12; ++k) { t += x[i][k]; t = fminf(t, 0.5f); }",
           "  for (int k = 0; k < 12; ++k) if (x[i][k] > 0) u += x[i][k]; else u *= 0.5f;",
           "  for (int k = 0; k < 12; ++k) { v *= 0.5f; for (int q = 0; q < 9; ++q) v += x[i][q]; }",
           "  for (int k = 0; k < m; ++k) { w += x[i][k]; m -= 1; }",
           "  for (int k = 0; k < 12; ++k) { z += x[i][k]; k += 1; }",
           "  *a = s; *b = t; *c = u; *d = v; *e = w; *g = z;",
           "}"]


def ordered(x):
    s, t, u, w, z = (np.zeros(len(x)) for _ in range(5))
    v = np.ones(len(x))
    for k in range(12):
        column = x[:, k].astype(np.float64)
        s = s * 0.5 + column
        t = np.minimum(t + column, 0.5)
        u = np.where(column > 0, u + column, u * 0.5)
        v = v * 0.5 + x[:, :9].sum(1)
        w = w + column * (k < 6)
        z = z + column * (k % 2 == 0)
    return tuple(r.astype(np.float32) for r in (s, t, u, v, w, z))


def fmax_of_roots(x):
    with np.errstate(invalid="ignore"):
        roots = np.sqrt(x)
    return np.fmax.reduce(roots, 1), np.fmin.reduce(roots, 1)


def neighbours(x):
    n, d = x.shape
    y, z = np.zeros_like(x), np.zeros_like(x)
    for i in range(n):
        for j in range(d):
            back = d - 1 - j
            y[i, j] = (x[i - 1, j] if i else 0) + (x[i + 1, j] if i + 1 < n else 0)
            z[i, j] = x[i, back if back < 2 or i > 3 else back - 2]
    return y, z


def nests():
    """Nests alone: reductions, views, windows, gathers, and sizes that are terms."""
    yield Case("matmul", [("x", "f32", ["n", "k"]), ("w", "f32", ["k", "m"])], [("y", "f32", ["n", "m"])],
               {"nest": ["float f(int i, int j, const float x[n][k], const float w[k][m], int k) {", "  float s = 0;",
                         "  for (int c = 0; c < k; ++c) s += x[i][c] * w[c][j];", "  return s;", "}"]},
               lambda x, w: x @ w, [((4, 9), (9, 5)), ((1, 20), (20, 3)), ((0, 4), (4, 2))], dims=[["n", "k"], ["k", "m"]], tolerance=1e-4)
    yield Case("reversed and strided", [("x", "f32", ["n", "m"])], [("y", "f32", ["m / 2", "n"])],
               {"nest": "float f(int j, int i, const float x[n][m], int n) { return x[n - 1 - i][2 * j + 1] * 2; }"},
               lambda x: x[::-1, 1::2].T * 2, [((3, 8),), ((5, 4),)], dims=[["n", "m"]],
               declared={"require": [{"condition": "m % 2 == 0", "sentence": "{0} is odd"}]})
    yield Case("window", [("x", "f32", ["n"]), ("w", "f32", [3])], [("y", "f32", ["n - 2"])],
               {"nest": "float f(int i, const float x[], const float w[]) { float s = 0; for (int k = 0; k < 3; ++k) s += x[i + k] * w[k]; return s; }"},
               lambda x, w: np.convolve(x, w[::-1], "valid"), [((9,), (3,)), ((4,), (3,))], dims=[["n"], [3]],
               declared={"require": [{"condition": "n > 2", "sentence": "{0}"}]})
    yield Case("long window", [("x", "f32", ["n"]), ("w", "f32", ["k"])], [("y", "f32", ["n"])],
               {"nest": ["float f(int i, const float x[n], const float w[k], int n, int k) {", "  float s = 0;",
                         "  for (int t = 0; t < k; ++t) { int at = i + t - k / 2; if (at >= 0 && at < n) s += x[at] * w[t]; }", "  return s;", "}"]},
               lambda x, w: np.array([sum(x[i + t - len(w) // 2] * w[t] for t in range(len(w)) if 0 <= i + t - len(w) // 2 < len(x))
                                      for i in range(len(x))], np.float32),
               [((30,), (11,)), ((4,), (9,))], dims=[["n"], ["k"]], tolerance=1e-5)
    yield Case("gather", [("x", "f32", ["n", "d"]), ("at", "i64", ["m"])], [("y", "f32", ["m", "d"]), ("z", "f32", ["m", "d"])],
               {"nest": "void f(int i, int j, const float x[n][d], const int64_t at[m], float* y, float* z) { *y = x[at[i]][j]; *z = at[i] + j; }"},
               lambda x, at: (x[np.clip(at, 0, len(x) - 1)], (at[:, None] + np.arange(x.shape[1])[None]).astype(np.float32)),
               [((60, 3), (7,)), ((51, 1), (2,))], dims=[["n", "d"], ["m"]])
    yield Case("norm to rank 0", [("x", "T", ["n", "m"])], [("y", "T", [])],
               {"nest": ["T f(const float x[n][m], int n, int m) {", "  float s = 0, top = -INFINITY;",
                         "  for (int i = 0; i < n; ++i) for (int j = 0; j < m; ++j) { float v = x[i][j]; s += v * v; top = fmaxf(top, v); }",
                         "  return sqrtf(s) + top;", "}"]},
               lambda x: np.asarray(np.sqrt((x.astype(np.float64) ** 2).sum()) + x.astype(np.float64).max()).astype(x.dtype), [((5, 7),), ((1, 1),)], types={"T": ["f16", "f32"]}, low="f16",
               dims=[["n", "m"]], tolerance=4e-3)
    yield Case("triangle", [("x", "f32", ["n"])], [("y", "f32", ["n"])],
               {"nest": "float f(int i, const float x[n], int n) { float s = 0; for (int j = 0; j < n; ++j) if (j <= i) s += x[j]; else s -= 1; return s; }"},
               lambda x: np.cumsum(x) - (len(x) - 1 - np.arange(len(x), dtype=np.float32)), [((9,),), ((1,),)], dims=[["n"]], tolerance=1e-5)
    yield Case("halves", [("x", "T", ["b", "n", "d"]), ("c", "f32", ["n", "d / 2"])], [("y", "T", ["b", "n", "d"])],
               {"nest": ["T f(int p, int i, int l, const float x[b][n][d], const float c[n][h], int d) {", "  int middle = d / 2;",
                         "  if (l >= middle) return x[p][i][l - middle] * c[i][l - middle] + x[p][i][l];",
                         "  return x[p][i][l] * c[i][l] - x[p][i][l + middle];", "}"]},
               lambda x, c: np.concatenate([x[..., :c.shape[1]] * c - x[..., c.shape[1]:], x[..., :c.shape[1]] * c + x[..., c.shape[1]:]], -1).astype(x.dtype),
               [((2, 3, 8), (3, 4)), ((1, 5, 2), (5, 1)), ((0, 1, 4), (1, 2))], types={"T": ["f16", "f32"]}, low="f16",
               dims=[["b", "n", "d"], ["n", "h"]], tolerance=4e-3, declared={"require": [{"condition": "d % 2 == 0", "sentence": "{0} is odd"}]})
    nest = ["void f(int i, int j, const float x[n][d], int n, int d, float* y, float* z) {",
            "  *y = (i == 0 ? 0 : x[i - 1][j]) + (n - 1 != i ? x[i + 1][j] : 0);",
            "  int back = d - 1 - j; *z = back < 2 || i > 3 ? x[i][back] : x[i][back - 2]; }"]
    for name, shapes, require in (("neighbours", [((7, 5),), ((1, 2),), ((2, 1),), ((0, 3),)], []),
                                  ("neighbours of many", [((7, 5),), ((5, 3),)], [{"condition": "n > 4", "sentence": "{0}"}, {"condition": "d > 2", "sentence": "{0}"}])):
        yield Case(name, [("x", "f32", ["n", "d"])], [("y", "f32", ["n", "d"]), ("z", "f32", ["n", "d"])], {"nest": nest}, neighbours, shapes,
                   dims=[["n", "d"]], declared={"require": require})
    yield Case("wrapped index", [("x", "f32", ["n"])], [("y", "f32", ["n"])],
               {"nest": "float f(int i, const float x[n], int n) { unsigned k = i - 1; return k < n ? x[k] : -1; }"},
               lambda x: np.concatenate([np.full(min(len(x), 1), -1, x.dtype), x[:-1]]), [((4,),), ((1,),)], dims=[["n"]])
    yield Case("wrapped and widened index", [("x", "f32", ["n"])], [("y", "f32", ["n"])],
               {"nest": "float f(int i, const float x[n], int n) { int64_t k = (int64_t)(unsigned)(i - 1) + 1; return k == 0 ? 7 : x[i]; }"},
               lambda x: x, [((4,),), ((1,),)], dims=[["n"]])
    yield Case("ordered loops", [("x", "f32", ["n", 12])], [(name, "f32", ["n"]) for name in "abcdeg"], {"nest": ORDERED}, ordered,
               [((5, 12),), ((1, 12),)], dims=[["n", 12]], tolerance=1e-5)
    yield Case("fmax ignores NaN", [("x", "f32", ["n", "d"])], [("y", "f32", ["n"]), ("z", "f32", ["n"])],
               {"nest": ["void f(int i, const float x[n][d], int d, float* y, float* z) {", "  float most = -INFINITY, least = NAN;",
                         "  for (int k = 0; k < d; ++k) { most = fmaxf(most, sqrtf(x[i][k])); least = fmin(sqrtf(x[i][k]), least); }",
                         "  *y = most; *z = least;", "}"]},
               fmax_of_roots, [((3, 40),), ((1, 50),)], dims=[["n", "d"]])
    yield Case("integer sums", [("x", "i8", ["n"])], [("y", "i8", []), ("z", "i8", [])],
               {"nest": ["void f(const int8_t x[n], int n, int8_t* y, int8_t* z) {", "  int8_t s = 5, m = 100;",
                         "  for (int k = 0; k < n; ++k) { s += x[k] * 3; m = min(m, x[k]); }", "  *y = s; *z = m;", "}"]},
               lambda x: (np.asarray(5 + 3 * x.astype(np.int64).sum()).astype(np.int8), np.minimum(x.min(initial=100), 100)), [((40,),), ((0,),)],
               dims=[["n"]])


def declaration(case, form):
    def tensor(name, dtype, shape):
        return {"name": name, "type": dtype, "shape": shape}
    return {"operators": [{"domain": "acme", "name": "Op", "inputs": [tensor(*t) for t in case.inputs],
                           "outputs": [tensor(*t) for t in case.outputs], **({"types": case.types} if case.types else {}),
                           "body": {form: case.bodies[form]}, **case.declared}]}


def input_types(case):
    return [case.low if dtype == "T" else dtype for _, dtype, _ in case.inputs]


def write_model(case, path, shapes, variant):
    """x -> [slice] -> Op -> [concat]: `strided` gives the operator views, `fused` has elementwise operators around it."""
    types = input_types(case)
    dims = list(case.dims or [list(s) for s in shapes])
    names = [name for name, _, _ in case.inputs]
    outputs = [name for name, _, _ in case.outputs]
    result_types = [types[0] if dtype == "T" else dtype for _, dtype, _ in case.outputs]
    nodes, fed, weights = [], list(names), []
    if variant == "strided":  # every second row of a transposed tensor
        for i, name in enumerate(names):
            if len(shapes[i]) == 2:
                nodes.append(helper.make_node("Transpose", [name], [name + "_t"], perm=[1, 0]))
                fed[i] = name + "_t"
                dims[i] = dims[i][::-1]
    if variant == "fused":
        weights.append(numpy_helper.from_array(np.array(1, TYPES[types[0]]), "one"))
        nodes.append(helper.make_node("Add", [names[0], "one"], ["plus"]))
        fed[0] = "plus"
    nodes.append(helper.make_node("Op", fed, outputs, name="custom", domain="acme", **case.attributes))
    graph = helper.make_graph(nodes, "ops", [helper.make_tensor_value_info(n, onnx_type(t), d) for n, t, d in zip(names, types, dims)],
                              [helper.make_tensor_value_info(n, onnx_type(t), None) for n, t in zip(outputs, result_types)], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)], ir_version=9), path)


def draw(rng, shape, dtype):
    if dtype in ("i32", "i64", "i8", "u8"):
        return rng.integers(-50, 50, shape).astype(TYPES[dtype])
    return np.asarray(rng.uniform(-2, 2, shape)).astype(TYPES[dtype])


def check_case(case, form, work, run, expect):
    ops, model, library = work / "ops.json", work / "ops.onnx", work / "case.so"
    ops.write_text(json.dumps(declaration(case, form)))
    for variant in ("plain", "strided", "fused"):
        label = f"ops {case.name}, {form}, {variant}"
        if variant == "fused" and any(t in ("bool",) for t in input_types(case)):
            continue
        write_model(case, model, case.shapes[0], variant)
        code, out, errors = run("compile", model, "-o", library, "--ops", ops)
        expect(f"{label} compiles", code == 0, out + errors)
        if code != 0:
            continue
        rng = np.random.default_rng(5)
        for shapes in case.shapes if case.dims else case.shapes[:1]:
            fed = [draw(rng, s, t) for s, t in zip(shapes, input_types(case))]
            given = list(fed)
            if variant == "fused":
                given[0] = (fed[0] + np.array(1, fed[0].dtype)).astype(fed[0].dtype)
            expected = case.value(*given)
            expected = expected if isinstance(expected, tuple) else (expected,)
            arguments = []
            for i, ((name, _, _), array) in enumerate(zip(case.inputs, fed)):
                if variant == "strided" and array.ndim == 2:
                    array = np.ascontiguousarray(array.T)
                np.save(work / f"{name}.npy", array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array)
                arguments += ["--input", f"{name}={work / name}.npy"]
            for name, _, _ in case.outputs:
                arguments += ["--output", f"{name}={work / name}_out.npy"]
            code, out, errors = run("run", library, *arguments)
            expect(f"{label} runs {shapes}", code == 0, out + errors)
            for (name, _, _), wanted in zip(case.outputs, expected):
                if code != 0:
                    break
                found = np.load(work / f"{name}_out.npy")
                if wanted.dtype == ml_dtypes.bfloat16:
                    found = found.view(ml_dtypes.bfloat16)
                same = found.shape == wanted.shape and np.allclose(found.astype(np.float64), wanted.astype(np.float64),
                                                                   rtol=case.tolerance, atol=case.tolerance)
                expect(f"{label} {shapes}: {name}", same, f"{found} {wanted}")
    code, out, errors = run("verify", model, library, "--ops", ops)
    expect(f"ops {case.name}, {form} verifies", code == 0, out + errors)


def one(body, **more):
    """A file with one operator acme::Op of x: f32[n, d] to y: f32[n, d]."""
    tensor = {"type": "f32", "shape": ["n", "d"]}
    return {"operators": [{"domain": "acme", "name": "Op", "inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}],
                           "body": body, **more}]}


def model_of(path, nodes, inputs=(("x", ["n", 8]),), weights=(), outputs=("y",)):
    graph = helper.make_graph(nodes, "ops", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
                              [numpy_helper.from_array(np.asarray(a), n) for n, a in weights])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)], ir_version=9), path)
    return path


def custom(inputs=("x",), outputs=("y",), name="custom", **attributes):
    return helper.make_node("Op", inputs, outputs, name=name, domain="acme", **attributes)


def check_errors(work, run, says, expect):
    """Files that are wrong: exit code 3, and the place as a JSON pointer, with line and column inside a text."""
    model, file = model_of(work / "custom.onnx", [custom()]), work / "bad.json"
    formula = {"formula": "y = x"}
    wrong = {
        "no JSON": ("{", "bad.json#: not valid JSON"),
        "member": ({"operators": [], "kernels": 1}, "#/kernels: unknown member 'kernels'"),
        "missing": ({"operators": [{"domain": "acme"}]}, "#/operators/0: member 'inputs' is missing"),
        "type": (one(formula, inputs=[{"name": "x", "type": "f31"}]), "#/operators/0/inputs/0/type: 'f31' is neither a type"),
        "kind": (one(formula, attributes={"a": {"type": "double"}}), "#/operators/0/attributes/a/type: 'double' is not one of int,"),
        "default": (one(formula, attributes={"a": {"type": "int", "default": 1.5}}), "#/operators/0/attributes/a/default: expected an integer"),
        "twice": (one(formula, attributes={"x": {"type": "int"}}), "'x' is declared twice"),
        "word": (one(formula, attributes={"sum": {"type": "int"}}), "'sum' has a meaning in formulas"),
        "dim": (one(formula, outputs=[{"name": "y", "type": "f32", "shape": ["n", "e + 1"]}]), "/outputs/0/shape/1:1:1: 'e' is not bound"),
        "syntax": (one({"formula": "y = x +"}), "/body/formula:1:8: expected an expression"),
        "name": (one({"formula": ["a = x", "y = a * z"]}), "/body/formula/1:1:9: 'z' is not declared"),
        "order": (one({"formula": ["y = a", "a = x"]}), "/body/formula/0:1:5: 'a' is not declared"),
        "cycle": (one({"formula": ["y = y + 1"]}), "/body/formula/0:1:5: 'y' is not declared"),
        "output": (one({"formula": "z = x"}), "/body/formula: the formula does not define 'y'"),
        "operator": (one({"formula": "y = frobnicate(x)"}), "/body/formula:1:5: there is no operator 'frobnicate'"),
        "arity": (one({"formula": "y = matmul(x)"}), "'matmul' takes 2 tensors"),
        "effect": (one({"formula": "y = update_state(x, x)"}), "cannot be in a formula"),
        "form": (one({"formula": "y = x", "point": ""}), "/body: a body must have exactly one of"),
        "require": (one(formula, require=[{"condition": "e > 0", "sentence": ""}]), "/require/0/condition:1:1: 'e' is not bound"),
        "braces": (one(formula, require=[{"condition": "d > 0", "sentence": "{9}"}]), "/require/0/sentence: a sentence can name"),
        "C syntax": (one({"point": ["float f(float x) {", "  return x +;", "}"]}), "/body/point:2:13: expected a name"),
        "C array": (one({"point": "float f(float x) { float a[3]; return x; }"}), "arrays are not in the subset"),
        "C preprocessor": (one({"point": "#include <x.h>\nfloat f(float x) { return x; }"}), "/body/point:1:1: '#' is not in the subset"),
        "C while": (one({"point": "float f(float x) { while (1) x = 1; return x; }"}), "'while' is not in the subset"),
        "C parameter": (one({"point": "float f(float z) { return z; }"}), "parameter 'z' is not an input, attribute or dim"),
        "C outputs": (one({"point": "void f(float x) { }"}), "no parameter for output 'y'"),
        "C chain": (one({"point": "float f(float x) { return x" + " + x" * 20000 + "; }"}), "a statement has more than 1000 operators"),
        "formula chain": (one({"formula": "y = x" + " + x" * 20000}), "an expression has more than 1000 operators"),
        "nested chains": (one({"formula": "y = " + "(" * 15 + "x" + (" + x" * 100 + ")") * 15}), "an expression has more than 1000 operators"),
        "C literal": (one({"point": "float f(float x) { return x + 9223372036854775808; }"}), "not a signed integer of 64 bits"),
        "C depth": (one({"point": "float f(float x) { return " + "(" * 5000 + "x" + ")" * 5000 + "; }"}), "nested too deeply"),
    }
    for name, (content, sentence) in wrong.items():
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        says(f"ops error: {name}", ["check", model, "--ops", file], 3, sentence)
    def over(body, variables="float s = 0;"):
        """A nest with a loop over a size that stays open."""
        return one({"nest": f"float f(int i, int j, const float x[n][d], int n) {{ {variables} int m = n; {body} return s; }}"})
    # What is found where the operator is called: exit code 4, with the node.
    calls = {
        "loop to an index": (one({"nest": "float f(int i, int j, const float x[n][d]) { float s = 0; for (int c = 0; c <= j; ++c) s += x[i][c]; return s; }"}),
                             "or on an index of the result: let it run over a size"),
        "loop over data": (one({"point": "float f(float x) { float s = 0; for (int i = 0; i < x; ++i) s += i; return s; }"}), "the condition of a loop depends on data"),
        "endless loop": (one({"point": "float f(float x) { for (int i = 0; i < 1; i *= 2) x += 1; return x; }"}), "loops have more than"),
        "path": (one({"point": "float f(float x) { if (x > 0) return x; }"}), "does not return on every path"),
        "unset": (one({"point": "float f(float x) { float s; if (x > 0) s = x; return s; }"}), "'s' has no value on every path"),
        "function": (one({"point": "float f(float x) { return gamma(x); }"}), "there is no function 'gamma'"),
        "bits of float": (one({"point": "float f(float x) { return x & 1; }"}), "'&' takes integers"),
        "shape": (one({"formula": "y = reduce_sum(x, dims = 0)"}), "output 'y' has 1 dims, but the operator declares 2"),
        "result type": (one({"formula": "y = cast(x, f64)"}), "output 'y' is declared as f32, and the body makes f64"),
        "rank": (one(formula, inputs=[{"name": "x", "type": "f32", "shape": ["n"]}], outputs=[{"name": "y", "type": "f32"}]), "input 'x' has 2 dims"),
        "taken type": (one(formula, inputs=[{"name": "x", "type": "int"}], outputs=[{"name": "y", "type": "int"}]), "input 'x' is f32, but the operator takes"),
        "Horner": (over("for (int k = 0; k < n; ++k) { s *= 2; s += x[k][j]; }"), "changes 's' by '*' and by '+'"),
        "clamped sum": (over("for (int k = 0; k < n; ++k) { s += x[k][j]; s = fminf(s, 6); }"), "changes 's' by '+' and by 'fmin'"),
        "sum or product": (over("for (int k = 0; k < n; ++k) if (x[k][j] > 0) s -= 1; else s *= 2;"), "changes 's' by '+' and by '*'"),
        "sum of a sum": (over("for (int k = 0; k < n; ++k) { s *= 2; for (int q = 0; q < n; ++q) s += x[q][j]; }"), "changes 's' by '*' and by '+'"),
        "two maxima": (over("for (int k = 0; k < n; ++k) { s = fmax(s, 1); s = max(s, x[k][j]); }"), "changes 's' by 'fmax' and by 'max'"),
        "set in a loop": (over("for (int k = 0; k < n; ++k) { for (s = 0; s < 2; ) s += 1; }"), "'s' is read before the loop over sizes"),
        "no minimum": (over("for (int k = 0; k < n; ++k) s = fminimum(s, x[k][j]);"), "may change 's' by"),
        "limit": (over("for (int k = 0; k < m; ++k) { s += 1; m -= 1; }"), "the limit of a loop over sizes depends on 'm'"),
        "limit of the counter": (over("for (int k = 0; k < n - k; ++k) s += 1;"), "the limit of a loop over sizes depends on 'k'"),
        "counter": (over("for (int k = 0; k < n; ++k) { s += 1; k += 1; }"), "changes its counter 'k'"),
        "integer of floats": (over("for (int k = 0; k < n; ++k) s += x[k][j];", "int s = 0;"), "'s' is i32, and a loop over sizes changes it by f32"),
        "narrow minimum": (over("for (int k = 0; k < n; ++k) s = min(s, k);", "int8_t s = 0;"), "'s' is i8, and a loop over sizes changes it by i32"),
        "sum in a bool": (over("for (int k = 0; k < n; ++k) s += x[k][j] > 0;", "bool s = 0;"), "'s' is bool, and a loop"),
        "no attribute": (one(formula, attributes={"a": {"type": "int"}}), "attribute 'a' is missing"),
    }
    for name, (content, sentence) in calls.items():
        file.write_text(json.dumps(content))
        says(f"ops error: {name}", ["check", model, "--ops", file], 4, sentence, "node 0 'custom'")
    file.write_text(json.dumps(one(formula)))
    unwanted = model_of(work / "unwanted.onnx", [custom(beta=1.0)])
    says("ops error: unwanted attribute", ["check", unwanted, "--ops", file], 4, "attribute 'beta', which the operator does not declare")
    # A requirement that the run checks.
    odd = {"require": [{"condition": "n % 2 == 0", "sentence": "{0} rows are odd"}]}
    file.write_text(json.dumps(one(formula, **odd)))
    run("compile", model, "-o", work / "odd.so", "--ops", file)
    for rows, code in ((4, 0), (3, 4)):
        np.save(work / "x.npy", np.ones((rows, 8), np.float32))
        found, out, errors = run("run", work / "odd.so", "--input", f"x={work / 'x.npy'}", "--output", f"y={work / 'o.npy'}")
        expect(f"ops requirement of {rows} rows", found == code and (code == 0 or "multiples of 2" in errors + out), f"{found} {out} {errors}")
    file.write_text(json.dumps(one({"nest": "float f(int i, const float x[n][d]) { return x[2 * i - 5][0]; }"},
                                   outputs=[{"name": "y", "type": "f32", "shape": ["d"]}])))
    run("compile", model, "-o", work / "empty.so", "--ops", file)
    for rows, code in ((3, 0), (0, 4)):
        np.save(work / "x.npy", np.ones((rows, 8), np.float32))
        found, out, errors = run("run", work / "empty.so", "--input", f"x={work / 'x.npy'}", "--output", f"y={work / 'o.npy'}")
        expect(f"ops elements of {rows} rows", found == code and (code == 0 or "dim 0 (n) is 0" in errors + out), f"{found} {out} {errors}")


def check_draft(work, run, says, expect):
    """check drafts the declarations; with bodies the draft is a file that compiles. No text of the model reaches a compiler."""
    evil = 'x"; system("touch /tmp/evil"); //'
    model = model_of(work / "unknown.onnx", [
        helper.make_node("MatMul", ["x", "w"], ["h"]), custom(("h", "x"), ("u", "v"), "first", beta=0.5, axes=[1, 2], text=evil),
        custom(("u", "x"), ("y", "q"), "second", beta=0.5, axes=[1, 2], text=evil)],
        weights=[("w", np.ones((8, 8), np.float32))], outputs=("y", "v"))
    text = says("unknown operators", ["check", model], 5, "operator 'acme.Op' is unknown", "--ops", "draft of --ops FILE")
    expect("the draft is in the text", '"domain": "acme"' in text, text)
    many = model_of(work / "many.onnx", [helper.make_node(f"Op{i}", ["x"], [f"y{i}"], domain="acme") for i in range(150)], outputs=("y149",))
    drafted = json.loads(run("check", many, "--format=json")[1])["ops_draft"]["operators"]
    expect("the draft of many operators", [o["name"] for o in drafted] == [f"Op{i}" for i in range(100)], len(drafted))
    code, out, errors = run("check", model, "--format=json")
    draft = json.loads(out)["ops_draft"]
    declared = draft["operators"][0]
    expect("draft", code == 5 and len(draft["operators"]) == 1 and [i["shape"] for i in declared["inputs"]][0][0] == "n" and
           declared["inputs"][0]["type"] == "f32" and declared["attributes"]["beta"] == {"type": "float", "default": 0.5} and
           declared["attributes"]["axes"] == {"type": "ints", "default": [1, 2]} and declared["attributes"]["text"]["default"] == evil and
           len(declared["outputs"]) == 2, out + errors)
    declared["body"] = {"point": "void f(float x0, float x1, float beta, float* y0, float* y1) { *y0 = x0 * beta; *y1 = x1 + x0; }"}
    file = work / "drafted.json"
    file.write_text(json.dumps(draft))
    says("the draft compiles", ["compile", model, "-o", work / "draft.so", "--ops", file], 0)
    code, out, _ = run("inspect", model, "--stage=source", "--ops", file)
    expect("no text of the model in sources", code == 0 and "system(" not in out, out[:300])
    manifest = json.loads((work / "draft.json").read_text())
    listed = manifest["extensions"]["operators"][0]
    expect("manifest", listed["file"] == "drafted.json" and listed["operators"] == ["acme::Op"] and len(listed["sha256"]) == 64, listed)
    says("the manifest does not replace the file", ["compile", model, "-o", work / "drafted.so", "--ops", file], 1, "would overwrite")
    says("two files of one operator", ["check", model, "--ops", file, "--ops", file], 1, "two files of --ops declare acme::Op")


def check_reference(work, run, says, expect):
    """A body that differs from its reference is refused with the inputs; what is declared comes before functions of the model."""
    model, file = model_of(work / "custom.onnx", [custom()]), work / "reference.json"
    references = {
        "equal": ({"formula": "y = x * x"}, {"point": "float f(float x) { return x * x; }"}, 0, ""),
        "nest": ({"formula": "y = x + reduce_sum(x, dims = 1, keep = 1)"},
                 {"nest": "float f(int i, int j, const float x[n][d], int d) { float s = 0; for (int k = 0; k < d; ++k) s += x[i][k]; return x[i][j] + s; }"}, 0, ""),
        "near": ({"formula": "y = x * 1.001"}, {"formula": "y = x", "relative": 0.01}, 0, ""),
        "far": ({"formula": "y = x * 1.001"}, {"formula": "y = x"}, 4, "reference.json#/operators/0: acme::Op: output 'y' differs from the reference"),
        "zero size": ({"formula": "y = x + reduce_max(x, dims = [0, 1]) * 0"}, {"formula": "y = x", "absolute": 1, "assume": "finite"}, 0, ""),
        "bad": ({"formula": "y = x"}, {"formula": "y = q"}, 3, "/operators/0/reference/formula:1:5: 'q' is not declared"),
        "never": ({"formula": "y = x"}, {"formula": "y = reshape(x, shape = [d + 1, n])"}, 4, "the reference does not fit where the declaration does"),
        "another shape": ({"formula": "y = x * 2"}, {"formula": "y = reduce_sum(x, dims = 0, keep = 1)"}, 4, "dim 0 of output 'y' is 1"),
        "another shape of a point": ({"point": "float f(float x) { return x; }"}, {"formula": "y = concat(x, x, dim = 0)"}, 4, "dim 0 of output 'y' is "),
        "shape of a kernel": ({"kernel": {"c": "void f(const float* x, float* y, int64_t n, int64_t d) { for (int64_t i = 0; i < n * d; ++i) y[i] = x[i]; }"}},
                              {"formula": "y = x + concat(x, x, dim = 0)"}, 4, "the reference does not fit where the declaration does"),
        "infinite reference": ({"formula": "y = x * 2"}, {"formula": "y = exp(x * 0 + 1000)"}, 4, "differs from the reference"),
        "infinite body": ({"formula": "y = exp(x * 0 + 1000)"}, {"formula": "y = x", "relative": 0.5}, 4, "differs from the reference"),
        "infinities of both signs": ({"formula": "y = -exp(x * 0 + 1000)"}, {"formula": "y = exp(x * 0 + 1000)"}, 4, "-inf and inf"),
        "equal infinities": ({"formula": "y = exp(x * 0 + 1000)"}, {"formula": "y = exp(x * 0 + 2000)"}, 0, ""),
        "infinite kernel": ({"kernel": {"c": "void f(const float* x, float* y, int64_t n, int64_t d) { for (int64_t i = 0; i < n * d; ++i) y[i] = INFINITY; }"}},
                            {"formula": "y = x"}, 4, "differs from the reference"),
        "negative tolerance": ({"formula": "y = x"}, {"formula": "y = x", "relative": -1}, 3, "/reference/relative: a tolerance must be finite"),
        "negative absolute": ({"formula": "y = x"}, {"formula": "y = x", "absolute": -1e-9}, 3, "/reference/absolute: a tolerance must be finite"),
        "range": ({"formula": "y = min(x, 100)"}, {"formula": "y = x", "assume": [-100, 100]}, 0, ""),
        "finite": ({"formula": "y = select(x > 0, x, 0)"}, {"formula": "y = relu(x)", "assume": "finite"}, 0, ""),
        "no NaN": ({"formula": "y = select(x > 0, x, 0)"}, {"formula": "y = relu(x)"}, 4, "nan at element"),
        "overflow": ({"formula": "y = log(1 + exp(x))"}, {"formula": "y = softplus(x)"}, 4, ": inf and "),
        "clipped": ({"formula": "y = min(x, 100)"}, {"formula": "y = x"}, 4, ": 100 and "),
        "clipped far": ({"formula": "y = max(x, -1000000)"}, {"formula": "y = x", "assume": "finite"}, 4, "differs from the reference"),
        "turned range": ({"formula": "y = x"}, {"formula": "y = x", "assume": [1, 0]}, 3, "/reference/assume: a range must have two numbers"),
        "no range": ({"formula": "y = x"}, {"formula": "y = x", "assume": "small"}, 3, "/reference/assume: expected \"finite\""),
        "no text": ({"formula": 3}, {"formula": "y = x"}, 3, "expected a text or an array of texts"),
    }
    for name, (body, reference, code, sentence) in references.items():
        file.write_text(json.dumps(one(body, reference=reference)))
        says(f"ops reference: {name}", ["check", model, "--ops", file], code, sentence)
    # Declarations that few drawn sizes meet, or none.
    shapes = {"negative size": (["n", "n - 1"], 0, ""), "no size": (["n", "scale * 2"], 4, "no random inputs satisfy its declaration"),
              "huge size": (["count * 1000000000", "n"], 4, "no random inputs satisfy its declaration")}
    for name, (shape, code, sentence) in shapes.items():
        tensor = {"type": "f32", "shape": shape}
        file.write_text(json.dumps(one({"formula": "y = x * x"}, reference={"point": "float f(float x) { return x * x; }"},
                                       inputs=[{"name": "x", **tensor}], outputs=[{"name": "y", **tensor}],
                                       attributes={"scale": {"type": "float", "default": 4.0}, "count": {"type": "int", "default": 9}})))
        says(f"ops reference: {name}", ["check", model, "--ops", file], code, sentence)
    # Conditions that few of the usual sizes meet are met by what is drawn; their sentences have numbers where sizes are known.
    for name, condition in (("multiple", "n % 48 == 0"), ("equal", "n == 100"), ("several", "n == 64 and d == 96"), ("sizes", "n - d == 31")):
        file.write_text(json.dumps(one({"formula": "y = x * x"}, reference={"formula": "y = x * x"}, require=[{"condition": condition, "sentence": "{0}"}])))
        code, out, errors = run("check", model, "--ops", file)
        expect(f"ops reference: require {name}", "no random inputs" not in out + errors, out + errors)
    file.write_text(json.dumps(one({"formula": "y = x"}, require=[{"condition": "d == n * 0 + 7", "sentence": "{0} columns, not {1}"}])))
    says("ops: a sentence with sizes", ["check", model, "--ops", file], 4, "8 columns, not 7")
    function = helper.make_function("acme", "Op", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 18)])
    graph = helper.make_graph([custom()], "f", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    save(helper.make_model(graph, functions=[function], opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)], ir_version=9), model)
    file.write_text(json.dumps(one({"formula": "y = exp(x)"})))
    for more, has in (([], "neg"), (["--ops", file], "exp")):
        code, out, errors = run("inspect", model, "--stage=graph", *more)
        expect(f"ops before functions: {has}", code == 0 and f"= {has} " in out, out + errors)


def check_documents(work, run, says, expect):
    """Declarations meet the schema, and the example of the documentation compiles."""
    schema = json.loads(run("schema", "ops")[1])
    example = json.loads(re.search(r'^    (\{"operators": \[\{.*?^    \}\]\})', (ROOT / "docs/operators.md").read_text(), re.S | re.M)[1])
    for name, document in [("docs", example), *((f"{c.name}, {form}", declaration(c, form)) for c in [*cases(), *nests()] for form in c.bodies)]:
        problems = list(jsonschema.Draft202012Validator(schema).iter_errors(document))
        expect(f"ops schema: {name}", not problems, problems[:1])
    node = helper.make_node("RotaryHalf", ["x", "angle"], ["y"], domain="acme", scale=2.0)
    model = model_of(work / "rotary.onnx", [node], (("x", ["b", 2, "s", 8]), ("angle", ["s", 4])))
    file = work / "docs.json"
    file.write_text(json.dumps(example))
    says("ops of the documentation", ["check", model, "--ops", file], 0, "problems none")


def kernels_of(run, model, *more):
    code, out, errors = run("inspect", model, "--stage=schedule", "--format=json", *more)
    return len(json.loads(out)["kernels"]) if code == 0 else out + errors


def check_views(work, run, says, expect):
    """Between the boundaries of comparisons, elements of an array are views: nothing is gathered, also where sizes are symbols."""
    for case in nests():
        if case.name not in ("halves", "neighbours of many"):
            continue
        ops, model = work / "views.json", work / "views.onnx"
        ops.write_text(json.dumps(declaration(case, "nest")))
        write_model(case, model, case.shapes[0], "plain")
        code, out, errors = run("inspect", model, "--stage=loops", "--ops", ops)
        expect(f"{case.name}: views", code == 0 and "store y" in out and "gather" not in out, errors or [r for r in out.splitlines() if "gather" in r])


def check_fusion(work, run, says, expect):
    """As many kernels as the built-in expression, and the same weights after steps of training: the gradient is derived."""
    rng = np.random.default_rng(7)
    weights = [("w", rng.standard_normal((8, 8)).astype(np.float32)), ("v", rng.standard_normal((8, 4)).astype(np.float32))]
    before, after = helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["a", "v"], ["y"])
    plain = model_of(work / "plain.onnx", [before, helper.make_node("Sigmoid", ["h"], ["s"]), helper.make_node("Mul", ["h", "s"], ["a"]), after],
                     weights=weights)
    model = model_of(work / "custom.onnx", [before, custom(("h",), ("a",)), after], weights=weights)
    for form, body in (("formula", "y = x * sigmoid(x)"), ("point", "float f(float x) { return x / (1 + expf(-x)); }")):
        file = work / "silu.json"
        file.write_text(json.dumps(one({form: body})))
        a, b = kernels_of(run, plain), kernels_of(run, model, "--ops", file)
        expect(f"{form} fuses", isinstance(a, int) and a == b, f"{a} {b}")
        trained = []
        for path, more in ((plain, []), (model, ["--ops", file])):
            code, out, errors = run("compile", path, "-o", work / "net.so", "--train", "loss=mse,output=y,target=t,optimizer=sgd,lr=0.05", *more)
            np.save(work / "x.npy", rng.standard_normal((4, 8)).astype(np.float32) if not trained else np.load(work / "x.npy"))
            np.save(work / "t.npy", np.ones((4, 4), np.float32))
            if code == 0:
                code, out, errors = run("train", work / "net.so", "--data", f"x={work / 'x.npy'}", "--data", f"t={work / 't.npy'}", "--steps", "5",
                                        "--batch", "4", "--save", work / "state.safetensors")
            expect(f"{form} trains", code == 0, out + errors)
            trained.append((work / "state.safetensors").read_bytes() if code == 0 else b"")
        a, b = (np.frombuffer(t[8 + int.from_bytes(t[:8], "little"):], np.uint8) for t in trained)
        near = a.size == b.size and a.size % 4 == 0 and np.allclose(a.view(np.float32), b.view(np.float32), rtol=1e-4, atol=1e-5, equal_nan=True)
        expect(f"{form} has the gradient of the built-in expression", near, f"{a.size} {b.size}")


def check(work, run, says, expect):
    for case in [*cases(), *nests()]:
        for form in case.bodies:
            check_case(case, form, work, run, expect)
    for part in (check_errors, check_draft, check_reference, check_documents, check_views, check_fusion):
        part(work, run, says, expect)
