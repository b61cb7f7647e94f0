"""Kernels of users (--ops, body `kernel`): the topic `kernels` of run.py.

The matrix: dynamic sizes, rank 0, zero sizes, narrow types, strides, several outputs, scratch memory and parallel domains,
each compiled, run at several sizes, verified, and run on drawn inputs by --check-ops.
"""

import json
import re

import jsonschema
import numpy as np
from onnx import helper

from operators import ROOT, Case, check_case, custom, declaration, model_of, one

STRIDED = ["void f(const T* x, const int64_t* x_strides, T* y, const int64_t* y_strides, int64_t n, int64_t d) {",
           "  for (int64_t i = 0; i < n; ++i)",
           "    for (int64_t j = 0; j < d; ++j)",
           "      y[i * y_strides[0] + j * y_strides[1]] = x[i * x_strides[0] + j * x_strides[1]] * 2;", "}"]


def cases():
    matrix = [("x", "T", ["n", "d"])], [("y", "T", ["n", "d"])]
    for dtype, tolerance in (("f32", 0), ("f64", 0), ("f16", 0), ("bf16", 0), ("i8", 0), ("u8", 0), ("i32", 0), ("i64", 0)):
        yield Case(f"types {dtype}", *matrix, {"kernel": {"c": STRIDED, "strides": "any"}}, lambda x: x + x,
                   [((2, 3),), ((7, 1),), ((0, 4),), ((4, 0),)], types={"T": ["f32", "f64", "f16", "bf16", "int"]}, dims=[["n", "d"]],
                   tolerance=tolerance, low=dtype)
    yield Case("bool", [("x", "bool", ["n"])], [("y", "bool", ["n"])],
               {"kernel": {"c": "void f(const bool* x, bool* y, int64_t n) { for (int64_t i = 0; i < n; ++i) y[i] = !x[i]; }"}},
               lambda x: ~x, [((9,),), ((0,),)], dims=[["n"]])
    total = ["// the sum of a tensor of any rank", "static float add(float a, float b) { return a + b; }",
             "void total(const float* x, const int64_t* x_dims, int64_t x_rank, float* y) {", "  int64_t count = 1;",
             "  for (int64_t d = 0; d < x_rank; ++d) count *= x_dims[d];", "  float s = 0;",
             "  for (int64_t i = 0; i < count; ++i) s = add(s, x[i]);", "  *y = s;", "}"]
    for shapes, dims in (([((2, 3, 4),), ((1, 1, 0),)], [["a", "b", "c"]]), ([((),)], None)):
        yield Case(f"any rank, {len(shapes)}", [("x", "f32", ["...s"])], [("y", "f32", [])], {"kernel": {"c": total}},
                   lambda x: np.asarray(x.sum(dtype=np.float64)).astype(np.float32), shapes, dims=dims, tolerance=1e-5)
    yield Case("two outputs", [("x", "f32", ["...s"])], [("si", "f32", ["...s"]), ("co", "f64", ["...s"])],
               {"kernel": {"c": ["void f(const float* x, const int64_t* x_dims, int64_t x_rank, float* si, double* co) {",
                                 "  int64_t count = 1;", "  for (int64_t d = 0; d < x_rank; ++d) count *= x_dims[d];",
                                 "  for (int64_t i = 0; i < count; ++i) { si[i] = sinf(x[i]); co[i] = cos((double)x[i]); }", "}"]}},
               lambda x: (np.sin(x), np.cos(x.astype(np.float64))), [((2, 3),), ((4, 1),), ((0, 2),)], dims=[["a", "b"]])
    rows = ["void f(const float* x, const int64_t* x_strides, float* y, int64_t d, int64_t begin, int64_t end, void* scratch, double eps) {",
            "  float* sums = scratch;", "  for (int64_t i = begin; i < end; ++i) {", "    float s = 0;",
            "    for (int64_t j = 0; j < d; ++j) s += sums[j] = x[i * x_strides[0] + j] * x[i * x_strides[0] + j];",
            "    const float scale = 1 / sqrtf(s / d + (float)eps);",
            "    for (int64_t j = 0; j < d; ++j) y[i * d + j] = x[i * x_strides[0] + j] * scale + sums[j] * 0;", "  }", "}"]
    yield Case("rms norm", [("x", "f32", ["n", "d"])], [("y", "f32", ["n", "d"])],
               {"kernel": {"c": rows, "strides": {"x": "rows"}, "parallel": "n", "scratch": "d * 4"}},
               lambda x: (x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 0.25)).astype(np.float32),
               [((5, 8),), ((3000, 16),), ((0, 8),)], attributes={"eps": 0.25},
               declared={"attributes": {"eps": {"type": "float", "default": 1e-5}}}, dims=[["n", "d"]], tolerance=1e-5)
    sizes = ["void f(const float* x, int64_t n, const int64_t* steps, int64_t steps_count, const double* weights, int64_t shift, float* y) {",
             "  for (int64_t i = 0; i < n * steps_count; ++i) y[i] = x[i / steps_count] * steps[i % steps_count] * weights[0] + shift;", "}"]
    yield Case("attributes", [("x", "f32", ["n"])], [("y", "f32", ["n * 3"])], {"kernel": {"c": sizes}},
               lambda x: (x[:, None] * np.array([1, 2, -3]) * 0.5 + 7).astype(np.float32).reshape(-1), [((4,),), ((0,),)],
               {"steps": [1, 2, -3], "weights": [0.5], "shift": 7},
               declared={"attributes": {"steps": {"type": "ints", "default": [1, 2, -3]}, "weights": {"type": "floats", "default": [0.5]},
                                       "shift": {"type": "int"}}},
               dims=[["n"]], tolerance=1e-6)
    reference = {"reference": {"formula": "y = x + x"}}
    yield Case("with reference", *matrix, {"kernel": {"c": STRIDED, "strides": {"x": "any", "y": "any"}}}, lambda x: x + x,
               [((2, 3),), ((0, 3),)], types={"T": ["f32", "f16"]}, low="f32", declared=reference, dims=[["n", "d"]])


FUNCTIONS = ["exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
             "tanh", "asinh", "acosh", "atanh", "floor", "ceil", "trunc", "rint", "nearbyint", "round", "fabs"]
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "nearbyint": "rint",
         "round": None}


def functions():
    """Functions of math.h, in both precisions, and of two and three operands."""
    def value(name, x):
        if NUMPY.get(name, name) is None:
            return np.copysign(np.floor(np.abs(x) + 0.5), x)
        return getattr(np, NUMPY.get(name, name))(x)
    for dtype, c, suffix in (("f32", "float", "f"), ("f64", "double", "")):
        body = [f"void f(const {c}* x, {c}* y, int64_t n) {{", f"  for (int64_t i = 0; i < n; ++i) {{ const {c} v = x[i] / 4 + ({c})1.5;"]
        body += [f"    y[{k} * n + i] = {name}{suffix}({'v / 3' if name in ('asin', 'acos', 'atanh') else 'v'});" for k, name in enumerate(FUNCTIONS)]
        k = len(FUNCTIONS)
        more = [f"pow{suffix}(v, x[i])", f"atan2{suffix}(x[i], v)", f"fmod{suffix}(x[i], v)", f"fmin{suffix}(x[i], NAN)", f"fmax{suffix}(x[i], v)",
                f"copysign{suffix}(v, x[i])", f"fma{suffix}(v, x[i], v)", f"erf{suffix}(v)", f"1 / rsqrt{suffix}(v)",
                "isnan(v) + 2 * isinf(v) + 4 * isfinite(v)"]
        body += [f"    y[{k + i} * n + i] = {text};".replace(f"{k + i} * n + i]", f"{k + i} * n + i]") for i, text in enumerate(more)] + ["  }", "}"]

        def every(x):
            v = x / 4 + x.dtype.type(1.5)
            out = [value(name, v / 3 if name in ("asin", "acos", "atanh") else v) for name in FUNCTIONS]
            erf = np.vectorize(__import__("math").erf)
            out += [v ** x, np.arctan2(x, v), np.fmod(x, v), x, np.maximum(x, v), np.copysign(v, x), v * x + v, erf(v).astype(x.dtype), np.sqrt(v),
                    np.full_like(x, 4)]
            return np.concatenate(out).astype(x.dtype)
        yield Case(f"functions {dtype}", [("x", dtype, ["n"])], [("y", dtype, [f"n * {k + len(more)}"])], {"kernel": {"c": body}}, every, [((40,),)],
                   dims=[["n"]], tolerance=3e-6 if dtype == "f32" else 1e-12)


def kernel(text, **more):
    return {"kernel": {"c": text, **more}}


GOOD = "void f(const float* x, float* y, int64_t n, int64_t d) { for (int64_t i = 0; i < n * d; ++i) y[i] = x[i] * 2; }"


def check_names(work, run, says, expect):
    """Two operators whose texts have the same names of functions and variables."""
    text = "static float of(float v) {{ return v {0} 2; }}\nconst float table = {1};\nvoid f(const float* x, float* y, int64_t n, int64_t d) " \
           "{{ for (int64_t i = 0; i < n * d; ++i) y[i] = of(x[i]) + table; }}"
    first, second = one(kernel(text.format("*", 1)))["operators"][0], one(kernel(text.format("+", 3)))["operators"][0]
    model, file, library = work / "names.onnx", work / "names.ops", work / "names.so"
    model_of(model, [custom(("x",), ("h",)), helper.make_node("Other", ["h"], ["y"], name="other", domain="acme")])
    file.write_text(json.dumps({"operators": [first, {**second, "name": "Other"}]}))
    says("two texts with one name compile", ["compile", model, "-o", library, "--ops", file], 0)
    x = np.ones((3, 8), np.float32)
    np.save(work / "x.npy", x)
    says("two texts with one name run", ["run", library, "--input", f"x={work / 'x.npy'}", "--output", f"y={work / 'y.npy'}"], 0)
    expect("two texts with one name", np.array_equal(np.load(work / "y.npy"), (x * 2 + 1) + 2 + 3), np.load(work / "y.npy"))


def check_errors(work, run, says, expect):
    model, file = model_of(work / "kernel.onnx", [custom()]), work / "kernel.json"
    wrong = {
        "no text": (one({"kernel": {}}), "/body/kernel: a kernel needs a text in C"),
        "member": (one(kernel(GOOD, grain=1)), "/body/kernel/grain: unknown member 'grain'"),
        "no function": (one(kernel("int x;")), "/body/kernel/c:1:1: the text defines no function"),
        "open": (one(kernel("void f(float* y) {")), "/body/kernel/c:1:18: no bracket closes this '{'"),
        "parameter": (one(kernel(["void f(const float* x,", "       float* y, int64_t m) { }"])),
                      "/body/kernel/c:2:26: parameter 'm' is not an input, output, attribute or dim"),
        "unnamed": (one(kernel("void f(const float*, float* y) { }")), "a parameter must have a type and a name"),
        "twice": (one(kernel("void f(float* y, float* y) { }")), "parameter 'y' occurs twice"),
        "no output": (one(kernel("void f(const float* x) { }")), "'f' has no parameter for output 'y'"),
        "result": (one(kernel("float f(const float* x, float* y) { return 1; }")), "'f' must return void, or an int"),
        "range": (one(kernel("void f(float* y, int64_t begin) { }")), "'begin' needs a 'parallel' domain"),
        "scratch": (one(kernel("void f(float* y, void* scratch) { }")), "'scratch' needs the bytes"),
        "text": (one(kernel("void f(float* y, const char* s) { }"), attributes={"s": {"type": "text"}}), "kernels cannot take texts"),
        "strides": (one(kernel(GOOD, strides="some")), "/body/kernel/strides: 'some' is not one of any, rows, dense"),
        "stride of": (one(kernel(GOOD, strides={"z": "any"})), "/body/kernel/strides/z: 'z' is neither an input nor an output"),
        "parallel": (one(kernel(GOOD, parallel="m")), "/body/kernel/parallel:1:1: 'm' is not bound"),
        "shape": (one(kernel(GOOD), outputs=[{"name": "y", "type": "f32"}]), "output 'y' of a kernel must declare a shape"),
        "grid": (one({"kernel": {"cuda": {"text": "__global__ void f(float* y) { }", "grid": []}}}), "a grid must have 1, 2 or 3 sizes"),
        "global": (one({"kernel": {"cuda": {"text": "void f(float* y) { }", "grid": [1]}}}), "'f' is not a '__global__ void'"),
        "threads": (one({"kernel": {"cuda": {"text": "__global__ void f(float* y) { }", "grid": [1], "threads": 2000}}}), "1 to 1024 threads"),
        "does not compile": (one(kernel(["void f(const float* x, float* y) {", "  y[0] = z;", "}"])), "the text does not compile",
                             "/body/kernel/c:2:10: error: use of undeclared identifier 'z'"),
        "not const": (one(kernel("void f(float* x, float* y) { y[0] = x[0]; }")), "the text does not compile", "discards qualifiers"),
        "other type": (one(kernel("void f(const double* x, float* y) { y[0] = x[0]; }")), "the text does not compile", "double"),
        "include": (one(kernel(["#include </etc/passwd>", GOOD])), "the text does not compile", "/body/kernel/c:1:10: fatal error"),
        "unknown function": (one(kernel("void f(float* y) { puts(\"\"); }")), "the text does not compile", "/body/kernel/c:1:20: error"),
        "constructor": (one(kernel("__attribute__((constructor)) void c(void) { *(volatile int*)0 = 1; } " + GOOD)), "runs when the library is loaded"),
        "destructor": (one(kernel("[[gnu::destructor]] void c(void) { *(volatile int*)0 = 1; } " + GOOD)), "runs when the library is loaded"),
        "static": (one(kernel("static int count; " + GOOD.replace("{", "{ ++count;", 1).replace("* 2", "* 2 + (count > 3)"))), "has a variable 'count'"),
        "static in a function": (one(kernel(GOOD.replace("{", "{ static int64_t last = 7; last += n;", 1).replace("* 2", "* last"))), "last'"),
        "thread": (one(kernel("_Thread_local int count; " + GOOD.replace("* 2", "* ++count"))), "has a variable 'count'"),
        "no range": (one(kernel(GOOD, parallel="n")), "/body/kernel/c:1:6: 'f' has no parameter 'begin'"),
        "no end": (one(kernel(GOOD.replace("int64_t d)", "int64_t d, int64_t begin)"), parallel="n")), "'f' has no parameter 'end'"),
        "extern": (one(kernel("int puts(const char*); void f(float* y) { puts(\"\"); }")), "refers to undefined names", "puts"),
    }
    for name, (content, *sentences) in wrong.items():
        file.write_text(json.dumps(content))
        says(f"kernel error: {name}", ["check", model, "--ops", file], 3, *sentences)
    only_cuda = {"kernel": {"cuda": {"text": "__global__ void f(float* y) { y[0] = 1; }", "grid": [1]}}}
    file.write_text(json.dumps(one(only_cuda)))
    says("no kernel for this target", ["compile", model, "-o", work / "none.so", "--ops", file], 5, "acme::Op has no kernel in C")
    # What --check-ops finds: each with the inputs.
    loop = "for (int64_t i = 0; i < n * d; ++i) y[i] = x[i];"
    head = "(const float* x, float* y, int64_t n, int64_t d)"
    found = {
        "reads behind": (kernel(f"void f{head} {{ {loop} y[0] += x[n * d]; }}"), "just past the end of input 'x' f32["),
        "reads far behind": (kernel(f"void f{head} {{ {loop} if (n * d) y[0] += x[n * d + 100000]; }}"), "400000 bytes past the end of input 'x' f32["),
        "reads far before": (kernel(f"void f{head} {{ {loop} if (n * d) y[0] += x[-100000]; }}"), "400000 bytes before the start of input 'x' f32["),
        "writes behind": (kernel(f"void f{head} {{ {loop} y[n * d + 1] = 1; }}"), "4 bytes past the end of output 'y' f32["),
        "writes before": (kernel(f"void f{head} {{ {loop} y[-1] = 1; }}"), "reads or writes 4 bytes before the start of output 'y'"),
        "writes an input": (kernel(f"void f{head} {{ {loop} if (n * d) ((float*)x)[0] = 1; }}"), "writes to input 'x'"),
        "wild": (kernel(f"void f{head} {{ {loop} *(volatile int*)64 = 1; }}"), "reads or writes memory outside of its tensors"),
        "divides": (kernel(f"void f{head} {{ {loop} volatile int z = 0; y[0] = 7 / z; }}"), "divides an integer by zero"),
        "endless": (kernel(f"void f{head} {{ {loop} for (volatile int i = 0; i < 1;) {{ }} }}"), "runs for more than 10 seconds"),
        "fails": (kernel(f"int f{head} {{ {loop} return n == 2 ? 7 : 0; }}"), "returned 7, which says that it failed"),
        "unwritten": (kernel(f"void f{head} {{ for (int64_t i = 1; i < n * d; ++i) y[i] = x[i]; }}"), "element 0 of output 'y' is not written there"),
        "strides": (kernel(f"void f{head} {{ {loop} }}", strides="any"), "f32["),
        "parts": (kernel("void f(const float* x, float* y, int64_t n, int64_t d, int64_t begin, int64_t end) { for (int64_t i = 0; i < n * d; ++i) y[i] = x[i] + begin; }",
                         parallel="n"), "depends on the number of calls"),
        "whole": (kernel(GOOD.replace("int64_t d)", "int64_t d, int64_t begin, int64_t end)"), parallel="n * d"),
                  "element 0 of output 'y' is written by two calls that share the parallel domain"),
        "overflows its stack": (kernel(f"static float g(float v, int64_t n) {{ volatile float a[4096]; a[n & 7] = v; return n > 1000000 ? v : g(v, n + 1) + a[n & 7]; }} "
                                       f"void f{head} {{ {loop} y[0] = g(x[0], n); }}"), "or its stack overflows"),
        "scratch": (kernel(["void f(const float* x, float* y, int64_t n, int64_t d, void* scratch) {",
                            f"  float* s = scratch; s[d + 16] = 1; {loop}", "}"], scratch="d * 4"), "bytes past the end of its scratch memory"),
    }
    for name, (body, *sentences) in found.items():
        file.write_text(json.dumps(one(body)))
        says(f"kernel check: {name}", ["check", model, "--ops", file, "--check-ops"], 4, "kernel.json#/operators/0: acme::Op: ", *sentences)
    file.write_text(json.dumps(one(kernel(GOOD))))
    says("a right kernel passes", ["check", model, "--ops", file, "--check-ops"], 0)
    file.write_text(json.dumps(one(kernel(GOOD), reference={"formula": "y = x * 3"})))
    says("a kernel that differs", ["check", model, "--ops", file], 4, "output 'y' differs from the reference")
    unusual = {  # right on small numbers and sizes
        "loses NaN": ("y[i] = x[i] > 0 ? x[i] : 0;", "relu(x)", "nan at element"),
        "overflows": ("y[i] = logf(1 + expf(x[i]));", "softplus(x)", ": inf and "),
        "clips": ("y[i] = x[i] > 100 ? 100 : x[i];", "x * 1", ": 100 and "),
        "stops": ("y[i] = i > 4096 ? 0 : x[i];", "x * 1", "at element 4097"),
    }
    for name, (statement, reference, sentence) in unusual.items():
        body = kernel(f"void f{head} {{ for (int64_t i = 0; i < n * d; ++i) {{ {statement} }} }}")
        file.write_text(json.dumps(one(body, reference={"formula": f"y = {reference}"})))
        says(f"a kernel that {name}", ["check", model, "--ops", file], 4, "output 'y' differs from the reference", sentence)
        if name != "stops":
            file.write_text(json.dumps(one(body, reference={"formula": f"y = {reference}", "assume": [-50, 50]})))
            says(f"a kernel that {name} elsewhere", ["check", model, "--ops", file, "--check-ops"], 0)
    # A run that fails says so.
    fails = "int f(const float* x, float* y, int64_t n, int64_t d) { for (int64_t i = 0; i < n * d; ++i) y[i] = x[i]; return x[0] < 0 ? 3 : 0; }"
    file.write_text(json.dumps(one(kernel(fails))))
    says("compiles", ["compile", model, "-o", work / "fails.so", "--ops", file], 0)
    for sign, code in ((1, 0), (-1, 4)):
        np.save(work / "x.npy", np.full((2, 8), sign, np.float32))
        got, out, errors = run("run", work / "fails.so", "--input", f"x={work / 'x.npy'}", "--output", f"y={work / 'o.npy'}")
        expect(f"a kernel that returns {code}", got == code and (code == 0 or "its kernel returned 3" in out + errors), f"{got} {out} {errors}")


def steps_of(run, model, file):
    """What runs: one line a step of the scheduled program."""
    code, out, errors = run("inspect", model, "--stage=fused", "--ops", file)
    lines = [line.strip() for line in out.splitlines()]
    return [line for line in lines if line.startswith(("call ", "nest ", "copy "))] if code == 0 else [out + errors]


def check_views(work, run, says, expect):
    """No copies around slices, transposes and concatenations where the declaration takes strides."""
    text = ["void f(const float* x, const int64_t* x_strides, float* y, const int64_t* y_strides, int64_t n, int64_t d) {",
            "  for (int64_t i = 0; i < n; ++i)",
            "    for (int64_t j = 0; j < d; ++j) y[i * y_strides[0] + j * y_strides[1]] = x[i * x_strides[0] + j * x_strides[1]] + 1;", "}"]
    file = work / "views.ops"
    ints = [("starts", np.array([1, 2])), ("ends", np.array([1 << 40, 6])), ("axes", np.array([0, 1])), ("steps", np.array([2, 1]))]
    models = {
        "slice and transpose": [helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["s"]),
                                helper.make_node("Transpose", ["s"], ["t"], perm=[1, 0]), custom(("t",), ("y",))],
        "concatenation": [custom(("x",), ("a",), "first"), custom(("a",), ("b",), "second"), helper.make_node("Concat", ["a", "b"], ["y"], axis=1)],
        "two parts": [custom(("x",), ("a",), "first"), helper.make_node("Neg", ["x"], ["m"]), custom(("m",), ("b",), "second"),
                      helper.make_node("Concat", ["b", "x", "b2"], ["y"], axis=0), ],
    }
    models["two parts"].insert(3, custom(("x",), ("b2",), "third"))
    values = {
        "slice and transpose": lambda x: x[1::2, 2:6].T + 1,
        "concatenation": lambda x: np.concatenate([x + 1, x + 2], 1),
        "two parts": lambda x: np.concatenate([-x + 1, x, x + 1], 0),
    }
    for name, nodes in models.items():
        model = model_of(work / "views.onnx", nodes, weights=ints if name.startswith("slice") else ())
        for strides, copies in (("any", {"slice and transpose": 0, "concatenation": 1, "two parts": 2}), ("dense", None)):
            file.write_text(json.dumps(one(kernel(text, strides=strides))))
            steps = steps_of(run, model, file)
            if copies is not None:  # a tensor that has other readers is copied; in 'two parts' there are a negation and x itself
                expect(f"{name}: copies", sum(s.startswith(("nest ", "copy ")) for s in steps) == copies[name], steps)
            says(f"{name} {strides} compiles", ["compile", model, "-o", work / "views.so", "--ops", file], 0)
            for rows in (5, 2, 1):
                x = np.random.default_rng(3).standard_normal((rows, 8)).astype(np.float32)
                np.save(work / "x.npy", x)
                code, out, errors = run("run", work / "views.so", "--input", f"x={work / 'x.npy'}", "--output", f"y={work / 'o.npy'}")
                same = code == 0 and np.array_equal(np.load(work / "o.npy"), values[name](x))
                expect(f"{name} {strides} of {rows} rows", same, out + errors)
            says(f"{name} {strides} verifies", ["verify", model, work / "views.so", "--ops", file], 0)


def check_rest(work, run, says, expect):
    """Manifest, --frozen, training, and what the interpreter does without a text in C."""
    model, file, library = model_of(work / "kernel.onnx", [custom()]), work / "kernel.ops", work / "kernel.so"
    file.write_text(json.dumps(one(kernel(GOOD))))
    says("compiles", ["compile", model, "-o", library, "--ops", file], 0)
    listed = json.loads((work / "kernel.json").read_text())["extensions"]["operators"][0]
    expect("the manifest lists it", listed["operators"] == ["acme::Op"] and len(listed["sha256"]) == 64, listed)
    (work / "empty.db").write_text("")
    says("frozen", ["compile", model, "-o", library, "--ops", file, "--frozen", "--tune-db", work / "empty.db"], 8, "is not recorded")
    says("the listing", ["ops", "--ops", file], 0, "acme::Op", "kernel (C)", "x: f32[n, d]", "y: f32[n, d]", "none")
    listed = json.loads(run("ops", "--ops", file, "acme::Op", "--format=json")[1])
    expect("the listing as JSON", len(listed) == 1 and listed[0]["operator"] == "acme::Op" and listed[0]["gradient"] == "none", listed)
    says("the listing of an unknown one", ["ops", "--ops", file, "acme::Oq"], 1, "declare no operator 'acme::Oq'", "acme::Op")
    graph = work / "kernel.stridec-graph"
    says("the graph", ["inspect", model, "--ops", file, "--write-graph", graph], 0)
    says("a graph brings no kernel", ["check", graph], 3, "no file of --ops declares the kernel 'user.acme..Op.")
    # Verify compares with the reference: a kernel that is wrong for large inputs alone, which its declaration leaves out.
    wrong = "void f(const float* x, float* y, int64_t n, int64_t d) { for (int64_t i = 0; i < n * d; ++i) y[i] = x[i] > 90 ? 0 : x[i] * 2; }"
    file.write_text(json.dumps(one(kernel(wrong), reference={"formula": "y = x * 2", "assume": [-90, 90]})))
    says("compiles", ["compile", model, "-o", work / "wrong.so", "--ops", file], 0)
    np.save(work / "x.npy", np.full((2, 8), 100, np.float32))
    says("verify compares with the reference", ["verify", model, work / "wrong.so", "--ops", file, "--input", f"x={work / 'x.npy'}"], 8, "custom")


TRAIN = "loss=mse,output=y,target=t,optimizer=sgd,lr=0.05"


def check_training(work, run, says, expect):
    """A declared gradient trains as the built-in expression; `check` names operators that have none."""
    rng = np.random.default_rng(7)
    weights = [("w", rng.standard_normal((8, 8)).astype(np.float32)), ("v", rng.standard_normal((8, 4)).astype(np.float32))]
    before, after = helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["a", "v"], ["y"])
    plain = model_of(work / "plain.onnx", [before, helper.make_node("Sigmoid", ["h"], ["s"]), helper.make_node("Mul", ["h", "s"], ["a"]), after],
                     weights=weights)
    model = model_of(work / "custom.onnx", [before, custom(("h",), ("a",)), after], weights=weights)
    np.save(work / "x.npy", rng.standard_normal((4, 8)).astype(np.float32))
    np.save(work / "t.npy", np.ones((4, 4), np.float32))

    def trained(label, path, *more):
        code, out, errors = run("compile", path, "-o", work / "net.so", "--train", TRAIN, *more)
        if code == 0:
            code, out, errors = run("train", work / "net.so", "--data", f"x={work / 'x.npy'}", "--data", f"t={work / 't.npy'}", "--steps", "5",
                                    "--batch", "4", "--save", work / "state.safetensors")
        expect(f"{label} trains", code == 0, out + errors)
        raw = (work / "state.safetensors").read_bytes() if code == 0 else bytes(8)
        return np.frombuffer(raw[8 + int.from_bytes(raw[:8], "little"):], np.uint8)

    expected = trained("built in", plain)
    gradient = ["s = sigmoid(x)", "grad_x = grad_y * (s + y * (1 - s))"]
    silu = "void f(const float* x, float* y, int64_t n, int64_t d) { for (int64_t i = 0; i < n * d; ++i) y[i] = x[i] / (1 + expf(-x[i])); }"
    bodies = {"kernel": kernel(silu), "formula": {"formula": "y = x * sigmoid(x)"},
              "step": {"formula": "y = x * sigmoid(x) + floor(x) * 0"}}
    file = work / "silu.json"
    for name, body in bodies.items():
        file.write_text(json.dumps(one(body, gradient=gradient)))
        found = trained(f"gradient of a {name}", model, "--ops", file)
        near = found.size == expected.size and found.size % 4 == 0 and np.allclose(found.view(np.float32), expected.view(np.float32), rtol=1e-4,
                                                                                   atol=1e-5, equal_nan=True)
        expect(f"gradient of a {name} is that of the built-in expression", near, f"{found.size} {expected.size}")
    # A declared gradient replaces the derived one: of zero, the first weights stay.
    file.write_text(json.dumps(one({"formula": "y = x * sigmoid(x)"}, gradient="grad_x = grad_y * 0")))
    found = trained("gradient of zero", model, "--ops", file)
    expect("a declared gradient replaces the derived one", found.size == expected.size and not np.array_equal(found, expected), found.size)
    file.write_text(json.dumps(one(kernel(silu))))
    says("check names what has no gradient", ["check", model, "--ops", file, "--train", TRAIN], 5, "acme::Op has a kernel, which has no gradient", "custom")
    wrong = {
        "undefined": ("g = grad_y", 3, "/gradient: the formulas must define a gradient, such as 'grad_x'"),
        "name": ("grad_x = grad_z", 3, "/gradient:1:10: 'grad_z' is not declared"),
        "shape": ("grad_x = reduce_sum(grad_y, dims = 0)", 4, "the gradient of 'x' is f32"),
        "dims": ("grad_x = reduce_sum(grad_y, dims = 0, keep = 1)", 4, "the gradient of 'x' is f32[1, 8], and the input f32["),
        "no input": ("grad_x = grad_y; grad_w = x", 3, "'grad_w' is the gradient of no input"),
        "type": ("grad_x = cast(grad_y, i32)", 4, "the gradient of 'x' is i32"),
    }
    for name, (text, code, sentence) in wrong.items():
        file.write_text(json.dumps(one(kernel(silu), gradient=text)))
        says(f"gradient error: {name}", ["check", model, "--ops", file, "--train", TRAIN], code, sentence)
    file.write_text(json.dumps(one(kernel(silu), gradient=gradient)))
    says("a gradient does not change inference", ["compile", model, "-o", work / "net.so", "--ops", file], 0)
    says("a gradient does not change inference", ["verify", model, work / "net.so", "--ops", file], 0)


def check_documents(work, run, says, expect):
    """Declarations meet the schema, and the example of the documentation passes its checks."""
    schema = jsonschema.Draft202012Validator(json.loads(run("schema", "ops")[1]))
    section = (ROOT / "docs/operators.md").read_text().split("## A kernel in C or CUDA")[1]
    example = json.loads("{" + re.search(r"\n((?:    .*\n)+)", section)[1] + "}")
    document = {"operators": [{"domain": "acme", "name": "Op", "types": {"T": ["f32", "f16", "bf16"]}, **example}]}
    trained = one(kernel(GOOD), gradient="grad_x = grad_y * 2", reference={"formula": "y = x * 2", "relative": 1e-6})
    for name, each in [("docs", document), ("gradient", trained), *((c.name, declaration(c, "kernel")) for c in [*cases(), *functions()])]:
        problems = list(schema.iter_errors(each))
        expect(f"kernel schema: {name}", not problems, problems[:1])
    file = work / "docs.ops"
    file.write_text(json.dumps(document))
    says("the kernel of the documentation", ["check", model_of(work / "docs.onnx", [custom()]), "--ops", file, "--check-ops"], 0, "problems none")


def check(work, run, says, expect):
    for case in [*cases(), *functions()]:
        check_case(case, "kernel", work, run, expect)
        (work / "ops.json").write_text(json.dumps(declaration(case, "kernel")))
        code, out, errors = run("check", work / "ops.onnx", "--ops", work / "ops.json", "--check-ops")
        expect(f"ops {case.name}, kernel passes --check-ops", code == 0, out + errors)
    for part in (check_names, check_errors, check_views, check_training, check_rest, check_documents):
        part(work, run, says, expect)
