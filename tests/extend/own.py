"""Kernels of the user for operations that the compiler knows (--kernels): the topic `own` of run.py.

Kernels that win, that lose, that are wrong at once or at large sizes only, and that crash: each is a result, and the artifact
computes what the model says.
"""

import json

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

GEMM = ["void gemm(const float* x, const float* w, float* y, int64_t n, int64_t k, int64_t m, int64_t begin, int64_t end) {",
        "  for (int64_t i = begin; i < end; ++i)", "    for (int64_t j = 0; j < m; ++j) {", "      float s = 0;",
        "      for (int64_t c = 0; c < k; ++c) s += x[i * k + c] * w[c * m + j];", "      y[i * m + j] = s;", "    }", "}"]


def f32(name, shape, **more):
    return {"name": name, "type": "f32", "shape": shape, **more}


def gemm(text=None, **more):
    return {"name": "gemm", "inputs": [f32("x", ["n", "k"]), f32("w", ["k", "m"])], "outputs": [f32("y", ["n", "m"])],
            "computes": "y = matmul(x, w)", "body": {"kernel": {"c": text or GEMM, "parallel": "n"}}, "relative": 1e-4, **more}


def replaced(old, new):
    text = "\n".join(GEMM)
    assert old in text
    return text.replace(old, new)


# The sum of sorted numbers needs no sorting.
SORTED = {"name": "sum_of_sorted", "inputs": [f32("x", ["n", "d"])], "outputs": [f32("y", ["n"])],
          "computes": ["s, i = topk(x){dim = 1, k = d, largest = 0, sorted = 1}", "y = reduce_sum(s){dims = [1]}"], "relative": 1e-4,
          "body": {"kernel": {"c": ["void f(const float* x, const int64_t* x_strides, float* y, int64_t n, int64_t d) {",
                                    "  for (int64_t i = 0; i < n; ++i) {", "    float s = 0;",
                                    "    for (int64_t j = 0; j < d; ++j) s += x[i * x_strides[0] + j * x_strides[1]];", "    y[i] = s;", "  }", "}"],
                              "strides": {"x": "any"}}}}
CHAIN = {"name": "chain", "types": {"T": ["f16", "f32"]}, "inputs": [{"name": "x", "type": "T", "shape": ["...s"]}], "outputs": [{"name": "y", "type": "T", "shape": ["...s"]}],
         "computes": "y = tanh(x) * sigmoid(x)", "relative": 1e-2,
         "body": {"kernel": {"c": ["void f(const T* x, const int64_t* x_dims, int64_t x_rank, T* y) {", "  int64_t count = 1;",
                                   "  for (int64_t d = 0; d < x_rank; ++d) count *= x_dims[d];",
                                   "  for (int64_t i = 0; i < count; ++i) y[i] = tanhf(x[i]) / (1 + expf(-(float)x[i]));", "}"]}}}
CONVOLUTION = {"name": "convolution", "inputs": [f32("x", ["n", "c", "h", "w"]), f32("f", ["o", "c", 3, 3], const=True)],
               "outputs": [f32("y", ["n", "o", "h - 2", "w - 2"])], "require": [{"condition": "h >= 3", "sentence": "{0}"}, {"condition": "w >= 3", "sentence": "{0}"}],
               "computes": "y = conv(x, f){before = [0, 0], after = [0, 0], strides = [1, 1], dilations = [1, 1], groups = 1}", "relative": 1e-4,
               "body": {"kernel": {"c": ["void f3(const float* x, const float* f, float* y, int64_t n, int64_t c, int64_t h, int64_t w, int64_t o) {",
                                         "  for (int64_t i = 0; i < n * o; ++i)", "    for (int64_t p = 0; p < h - 2; ++p)", "      for (int64_t q = 0; q < w - 2; ++q) {",
                                         "        float s = 0;", "        for (int64_t a = 0; a < c; ++a)", "          for (int64_t r = 0; r < 9; ++r)",
                                         "            s += x[((i / o * c + a) * h + p + r / 3) * w + q + r % 3] * f[((i % o) * c + a) * 9 + r];",
                                         "        y[(i * (h - 2) + p) * (w - 2) + q] = s;", "      }", "}"]}}}


def model_of(path):
    """A product, the sum of what TopK sorts, a chain, a convolution; sizes stay open."""
    rng = np.random.default_rng(2)
    weights = {"w": rng.standard_normal((64, 48)), "f": rng.standard_normal((4, 3, 3, 3)), "axis": np.array([1]), "all": np.array([48])}
    weights = [numpy_helper.from_array(a.astype(np.int64 if a.dtype.kind == "i" else np.float32), n) for n, a in weights.items()]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("TopK", ["h", "all"], ["s", "i"], "order", axis=1, largest=0),
             helper.make_node("ReduceSum", ["s", "axis"], ["total"], "total", keepdims=0), helper.make_node("Tanh", ["h"], ["t"], "tanh"),
             helper.make_node("Sigmoid", ["h"], ["g"], "gate"), helper.make_node("Mul", ["t", "g"], ["gated"], "gated"),
             helper.make_node("Conv", ["image", "f"], ["c"], "conv")]
    graph = helper.make_graph(nodes, "own", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64]),
                                             helper.make_tensor_value_info("image", TensorProto.FLOAT, ["b", 3, 12, 12])],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("total", "gated", "c")], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def check(work, run, says, expect):
    folder, model, library = work / "kernels", model_of(work / "own.onnx"), work / "own.so"
    folder.mkdir()
    file = folder / "mine.json"

    def declare(*kernels):
        file.write_text(json.dumps({"name": "mine", "kernels": list(kernels)}))

    def choices(*more):
        code, out, errors = run("inspect", model, "--stage=kernels", "--kernels", folder, "--format=json", *more)
        expect("inspect", code == 0, out + errors)
        return {row["kernel"]: row for row in json.loads(out)["kernels"]} if code == 0 else {}

    declare(gemm(), SORTED, CHAIN, CONVOLUTION)
    found = choices()
    expect("all places are found", set(found) >= {"gemm", "chain", "convolution"}, found)
    expect("each has two times", all(row["seconds"] > 0 and row["own_seconds"] > 0 for row in found.values()), found)
    expect("a plain loop loses to ours", found["gemm"]["choice"] == "slower" and found["gemm"]["node"] == "node 0 'product' (MatMul)", found["gemm"])
    expect("what needs no sorting wins", found.get("sum_of_sorted", {}).get("choice") == "chosen", found)
    says("as text", ["inspect", model, "--stage=kernels", "--kernels", folder], 0, "gemm at node 0 'product' (MatMul): slower,", "against", "and it is chosen below 98 %")
    code, out, errors = run("compile", model, "-o", library, "--kernels", folder)
    expect("compiles", code == 0, out + errors)
    manifest = json.loads(library.with_suffix(".json").read_text())
    listed = manifest["extensions"]["kernels"][0]
    chosen = {each["name"]: each["chosen"] for each in listed["kernels"]}
    expect("manifest", listed["name"] == "mine" and len(listed["sha256"]) == 64 and chosen["gemm"] == 0 and chosen["sum_of_sorted"] == 1, listed)
    says("verify", ["verify", model, library, "--kernels", folder, "--no-repro"], 0)
    for rows in (7, 1, 0):
        says(f"runs with {rows}", ["run", library, "--random", "--dim", f"n={rows},b=2"] if rows else ["verify", model, library, "--dim", "n=0,b=1", "--no-repro"], 0)
    plain = work / "plain.so"
    run("compile", model, "-o", plain)
    expect("no extensions without kernels", "extensions" not in json.loads(plain.with_suffix(".json").read_text()))

    # Wrong at once, wrong at the model's size alone, which is not drawn, a crash, an error code: results with a reason; the compiler's kernels stay.
    cases = {
        "wrong": (gemm(replaced("s += x", "s -= x")), "wrong", "output 'y' differs from the reference"),
        "reads behind": (gemm(replaced("y[i * m + j] = s;", "y[i * m + j] = s + 0 * x[n * k];")), "wrong", "past the end of input 'x'"),
        "wrong when long": (gemm(replaced("c < k", "c < (k > 100 ? 100 : k)")), "wrong", "output 'y' differs from the reference"),
        "wrong when large": (gemm(replaced("c < k", "c < (k == 64 ? 20 : k)")), "wrong", "of output 'y' is"),
        "crashes when large": (gemm(replaced("float s = 0;", "float s = 0; if (k == 64) *(volatile int*)8 = 1;")), "failed", "signal 11"),
        "aborts when large": (gemm(replaced("float s = 0;", "float s = 0; if (k == 64) __builtin_trap();")), "failed", "signal"),
    }
    loses = "  for (int64_t i = 0; i < count; ++i) y[i] = x[i] != x[i] ? 0 : tanhf(x[i]) / (1 + expf(-(float)x[i]));"
    text = [*CHAIN["body"]["kernel"]["c"][:3], loses, "}"]
    declare({**CHAIN, "body": {"kernel": {"c": text}}})
    row = choices()["chain"]
    expect("loses NaN: a result", row["choice"] == "wrong" and "nan at element" in row["reason"], row)
    for name, (kernel, choice, reason) in cases.items():
        declare(kernel)
        row = choices()["gemm"]
        expect(f"{name}: a result", row["choice"] == choice and reason in row["reason"], row)
        code, out, errors = run("compile", model, "-o", library, "--kernels", folder)
        expect(f"{name}: compiles, with a warning", code == 0 and "kernel 'gemm' is not used" in errors and reason in errors, out + errors)
        says(f"{name}: verifies", ["verify", model, library, "--runs", "1", "--no-repro"], 0)

    # What keeps a kernel from being tried.
    declare(gemm(cpu="x86-64-v4"))
    row = choices("--cpu", "x86-64-v3")["gemm"]
    expect("another processor", row["choice"] == "untried" and "it needs x86-64-v4, and x86-64-v3 is a target" in row["reason"], row)
    declare(gemm(where=["n > 1000000"]))
    row = choices()["gemm"]
    expect("a condition that is not proved", row["choice"] == "untried" and row["node"] == "" and "no part of the graph" in row["reason"], row)
    declare(gemm(where=["m == 48", "k % 8 == 0"]))
    expect("conditions that are", choices()["gemm"]["node"] != "", "")
    declare(gemm(), gemm(where=["n > 1000000"], name="huge"))
    found = choices()
    expect("one kernel without a place beside one with", found["huge"]["node"] == "" and found["gemm"]["node"] != "", found)
    # A kernel that is right only where its conditions hold is called with nothing else.
    blocks = replaced("for (int64_t c = 0; c < k; ++c) s +=", "for (int64_t b = 0; b < k; b += 16) for (int64_t c = b; c < b + 16; ++c) s +=")
    for where in (["k % 16 == 0"], ["k == 64", "m == 48"], ["k >= 16 and k % 16 == 0"], ["k - m == 16", "k == 64"]):
        declare(gemm(blocks, where=where))
        row = choices()["gemm"]
        expect(f"drawn inputs meet {where}", row["choice"] in ("slower", "chosen"), row)
    declare(gemm(require=[{"condition": "m == 47", "sentence": "{0} columns"}]))
    row = choices()["gemm"]
    expect("a requirement that the place does not meet", row["choice"] == "failed" and "48 columns" in row["reason"], row)
    declare(gemm(require=[{"condition": "m * 0 == 47", "sentence": "{0}"}]))
    row = choices()["gemm"]
    expect("a requirement that no drawn sizes meet", row["choice"] == "wrong" and "no random inputs satisfy its declaration" in row["reason"], row)

    # The database: recorded, and repeated without measuring.
    declare(SORTED, gemm())
    database = work / "own.txt"
    arguments = ["compile", model, "-o", library, "--kernels", folder, "--tune-db", database]
    code, out, errors = run(*arguments, "--mode", "max-autotune", "--tune-seconds", "1")
    text = database.read_text()
    expect("recorded", code == 0 and "kernel sum_of_sorted chosen" in text and "kernel gemm slower" in text, text + errors)
    code, out, errors = run(*arguments, "--frozen")
    expect("frozen", code in (0, 8) and "--kernels" not in errors and "is not recorded" not in errors, errors)
    says("frozen asks for what is not there", [*arguments, "--frozen", "--tune-shape", "n=77,b=3"], 8, "does not say whether a kernel of --kernels is faster")
    declare(SORTED, gemm(replaced("float s = 0;", "float s = 0.0f;")))
    says("frozen refuses another file", [*arguments, "--frozen"], 8, "the file of kernels", "is not recorded in the tuning database")

    # Files that are wrong.
    wrong = {
        "no JSON": ("{", "not valid JSON"),
        "member": ({"kernels": [], "operators": []}, "unknown member 'operators'"),
        "no pattern": ({"kernels": [{k: v for k, v in gemm().items() if k != "computes"}]}, "member 'computes' is missing"),
        "no kernel": ({"kernels": [{**gemm(), "body": {"formula": "y = matmul(x, w)"}}]}, "the body must be a kernel"),
        "pattern": ({"kernels": [gemm(computes="y = matmul(x, z)")]}, "'z' is not declared"),
        "no operation": ({"kernels": [{**CHAIN, "computes": "y = x"}]}, "a result must be an operation"),
        "dims": ({"kernels": [{**SORTED, "inputs": [f32("x", ["n", "d"]), f32("z", ["2 * n"])]}]}, "a dim of an input of a kernel must be a name"),
        "cpu": ({"kernels": [gemm(cpu="pentium")]}, "'pentium' is not one of"),
        "text": ({"kernels": [gemm(replaced("float s = 0;", "float s = z;"))]}, "does not compile"),
        "tolerance": ({"kernels": [gemm(relative=-1)]}, "/kernels/0/relative: a tolerance must be finite, and cannot be negative"),
        "const": ({"kernels": [{**CHAIN, "inputs": [{**CHAIN["inputs"][0], "const": 1}]}]}, "expected true or false"),
    }
    for name, (content, sentence) in wrong.items():
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        says(f"own error: {name}", ["compile", model, "-o", library, "--kernels", folder], 3, sentence, "mine.json#")
    file.unlink()
    says("own error: an empty folder", ["compile", model, "-o", library, "--kernels", folder], 1, "has no .json files")
    says("own error: no folder", ["compile", model, "-o", library, "--kernels", work / "nowhere"], 2, "nowhere")
