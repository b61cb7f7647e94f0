"""Pages of `stridec report` in a browser: python tests/report/run.py [--screenshots FOLDER] [name...]

In a headless Chromium (Debian: apt-get install chromium), from file://: no message on the console, no request but
the page, no name of a model that runs; each kernel has its loops, source, candidates and refusals; what is folded opens and has what it is about; links reach what they name; the drawing and
the view of memory have sizes, and nothing in them lies outside. charts.py: sizes, roofline, time line, tabs. Pages of large models load in time. The data have the form of
`stridec schema report`; two artifacts are compared by nodes. memory.py needs no browser; without one the rest is left out, and a line says so. The last line is "N passed, N failed". Environment: stridec (the program, default build/stridec).
"""

import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import jsonschema
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import charts
import chromium
import memory

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "models"))
import models as light_models  # noqa: E402

STRIDEC = os.environ.get("stridec", str(ROOT / "build" / "stridec"))
SLOW_FACTOR = 4  # of seconds, since others may use the machine
SCHEMA = jsonschema.Draft202012Validator(json.loads(subprocess.run([STRIDEC, "schema", "report"], check=True, capture_output=True).stdout))
results = []

CANARIES = ["</script><script>window.canary=1</script>", "\"><img src=x onerror=window.canary=1>", "<svg onload=window.canary=1>", "javascript:window.canary=1",
            "&lt;script&gt;window.canary=1&lt;/script&gt;", "\u202egnp.exe", "a\u0000b", "'" * 40, "x" * 10000, "</style><style>*{display:none}", "{{7*7}}", "]]>",
            "<!--", "--><script>window.canary=1</script>", "\U0001f600"]


def expect(name, condition, detail=""):
    results.append(bool(condition))
    if not condition:
        print(f"FAILED {name}: {detail}", flush=True)


def report(model, page, *more):
    done = subprocess.run([STRIDEC, "report", str(model), "-o", str(page), "--format=json", *more], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"report of {model}: exit {done.returncode}: {done.stderr}")
    told = json.loads(done.stdout)
    problems = list(SCHEMA.iter_errors(told))
    expect(f"{pathlib.Path(page).stem}: its JSON has the form of the schema", not problems, [(list(p.absolute_path), p.message[:200]) for p in problems[:3]])
    return told


def value(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def hostile(path):
    """Names of nodes, values, sizes and weights that are not names."""
    nodes, last = [], CANARIES[1]
    for i, name in enumerate(CANARIES):
        clean = name.replace("\x00", "0")
        nodes.append(helper.make_node("MatMul" if i % 4 == 0 else "Tanh", [last, "</title>w"] if i % 4 == 0 else [last], [f"{clean}{i}"], clean))
        last = f"{clean}{i}"
    graph = helper.make_graph(nodes, "</h1><script>window.canary=1</script>", [value(CANARIES[1], ["<b>n", 4])], [value(last, ["<b>n", 4])],
                              [numpy_helper.from_array(np.eye(4, dtype=np.float32), "</title>w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def chain(path, count):
    """A model of so many nodes, in scopes."""
    ops = [("Relu", 1), ("Add", 2), ("Tanh", 1), ("Mul", 2), ("Softmax", 1)]
    nodes, last = [], "x"
    for i in range(count):
        op, arity = ops[i % len(ops)]
        nodes.append(helper.make_node(op, [last, "w"][:arity], [f"v{i}"], name=f"/layer{i // 100}/block{i // 10 % 10}/{op}_{i}"))
        last = f"v{i}"
    graph = helper.make_graph(nodes, "chain", [value("x", ["n", 8])], [value(last, ["n", 8])], [numpy_helper.from_array(np.ones(8, np.float32), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


FOLDED = """(() => { const all = [...document.querySelectorAll('details')];
  all.forEach(d => d.open = true);
  return all.map(d => [d.querySelector('summary').textContent, d.getBoundingClientRect().height - d.querySelector('summary').getBoundingClientRect().height,
                       d.textContent.length]); })()"""
LINKS = "[...document.querySelectorAll('a')].map(a => [a.getAttribute('href'), !!document.querySelector(a.getAttribute('href'))])"
KERNELS = """[...document.querySelectorAll('tr[id]')].filter(row => /^f[0-9]+k[0-9]+$/.test(row.id)).map(row => {
  const parts = [...row.querySelectorAll('details')], under = start => parts.filter(d => d.querySelector('summary').textContent.startsWith(start));
  return {texts: [...row.querySelectorAll('pre')].map(pre => pre.textContent),
          schedules: under('one of').map(d => d.querySelectorAll('tr').length - 1), refusals: under('not fused with').map(d => d.querySelectorAll('li').length)}; })"""
BOXES = """[...document.querySelectorAll('#f0graph g')].map(box => [/^step ([0-9]+):/.exec(box.querySelector('title').textContent), box])
  .filter(([step]) => step).slice(0, 40).map(([step, box]) => { box.querySelector('rect').dispatchEvent(new Event('click', {bubbles: true}));
    return [Number(step[1]), [...document.querySelectorAll('#f0box li')].map(item => item.textContent)]; })"""
OUTSIDE = """[...document.querySelectorAll('svg')].map(svg => { const all = svg.getBoundingClientRect();
  return [all.width, all.height, [...svg.querySelectorAll('rect')].filter(r => { const b = r.getBoundingClientRect();
    return b.left < all.left - 1 || b.top < all.top - 1 || b.right > all.right + 1 || b.bottom > all.bottom + 1; }).length] })"""


def seeded(path):
    """A product with an epilogue, and nodes that have nothing to do with it."""
    rng = np.random.default_rng(3)
    weights = [numpy_helper.from_array(rng.standard_normal((256, 256), np.float32), "w")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "product"), helper.make_node("Relu", ["p"], ["y"], "epilogue"),
             helper.make_node("ReduceMax", ["z"], ["m"], "far", keepdims=0), helper.make_node("Tanh", ["m"], ["t"], "farther")]
    graph = helper.make_graph(nodes, "seeded", [value("x", [128, 256]), value("z", [64, 64])], [value("y", [128, 256]), value("t", [])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9), path)


def compare(browser, work):
    """Two artifacts, joined on the model's nodes: what one option changes is all that differs; names run nothing here either."""
    seeded(work / "seeded.onnx")
    for name, more in (("fused", []), ("apart", ["-O", "epilogue_fusion=false"])):
        subprocess.run([STRIDEC, "compile", str(work / "seeded.onnx"), "-o", str(work / f"{name}.so"), *more], check=True, capture_output=True)
    told = report(work / "fused.so", work / "compare.html", "--compare", str(work / "apart.so"))
    found = {row["node"].split("'")[1]: (row["change"], row["here"], row["there"]) for row in told["compare"]["functions"][0]["nodes"]}
    expect("compare: the nodes whose fusion is turned off", set(found) == {"product", "epilogue"} and {c for c, _, _ in found.values()} == {"fused differently"}, found)
    look(browser, "compare", work / "compare.html", told, 1, None)
    rows = browser.value("[...document.querySelectorAll('#compare ~ table')][0].innerText")
    expect("compare: the page has them", "product" in rows and "epilogue" in rows and "far" not in rows, rows[:300])
    same = report(work / "fused.so", work / "same.html", "--compare", str(work / "fused.json"))
    expect("compare: an artifact with itself", same["compare"]["functions"][0]["nodes"] == [], same["compare"])
    again = work / "again.html"
    report(work / "fused.so", again, "--compare", str(work / "apart.so"))
    expect("compare: equal bytes", again.read_bytes() == (work / "compare.html").read_bytes())
    other = report(work / "hostile.onnx", work / "other.html", "--sources", "none")
    for node in other["functions"][0]["nodes"]:
        node["fate"] = "<script>window.canary=1</script>"
        node.pop("kernels", None)
    other["title"] = "</h2><img src=x onerror=window.canary=1>"
    (work / "other.json").write_text(json.dumps(other))
    told = report(work / "hostile.onnx", work / "hostile.html", "--compare", str(work / "other.json"))
    expect("compare: every node differs", len(told["compare"]["functions"][0]["nodes"]) == len(told["functions"][0]["nodes"]))
    look(browser, "hostile compare", work / "hostile.html", told, 1, None)
    (work / "bad.json").write_text('{"title": "x", "functions": [{"name": 1}]}')
    done = subprocess.run([STRIDEC, "report", str(work / "fused.so"), "-o", str(again), "--compare", str(work / "bad.json")], capture_output=True, text=True)
    expect("compare: what is not a report", done.returncode == 3 and "is not a report" in done.stderr, (done.returncode, done.stderr))


def kernels(browser, name, told):
    """Loops before and after fusion, sources, candidates and refusals of each kernel, as the data have them."""
    shown = browser.value(KERNELS)
    all_kernels = [kernel for function in told["functions"] for kernel in function["kernels"]]
    expect(f"{name}: a row for each kernel", len(shown) == len(all_kernels), (len(shown), len(all_kernels)))
    for row, kernel in zip(shown, all_kernels):
        texts = [text for key in ("loops_before", "loops", "source") for text in kernel.get(key, [])]
        same = len(row["texts"]) == len(texts) if "hostile" in name else row["texts"] == texts
        candidates = [1 + len(nest["others"]) for nest in kernel.get("choices", [])] if sum(nest["candidates"] for nest in kernel.get("choices", [])) else []
        refusals = [len(kernel["refusals"])] if "refusals" in kernel else []
        if not same or row["schedules"] != ([sum(candidates)] if candidates else []) or row["refusals"] != refusals:
            expect(f"{name}: kernel {kernel['name']} as in the data", False, (len(row["texts"]), len(texts), row["schedules"], candidates, row["refusals"], refusals))


def boxes(browser, name, function):
    """A click on a kernel of the graph lists its nodes."""
    listed = {}
    for node in function["nodes"]:
        for kernel in node.get("kernels", []):
            for step in kernel["steps"]:
                listed.setdefault(step, []).append(node["node"])
    clicked = browser.value(BOXES)
    wrong = [(step, nodes, listed.get(step)) for step, nodes in clicked if len(nodes) != len(listed.get(step, [])) or ("hostile" not in name and nodes != listed.get(step, []))]
    expect(f"{name}: kernels of the graph open to their nodes", clicked and not wrong, wrong[:2])


def look(browser, name, page, told, seconds, shots):
    took = browser.open(page)
    expect(f"{name}: loads", took < seconds * SLOW_FACTOR, f"{took:.1f} s")
    expect(f"{name}: no request but the page", len(browser.asked) == 1 and browser.asked[0].startswith("file://"), browser.asked[:3])
    expect(f"{name}: nothing on the console", not browser.said, browser.said[:3])
    expect(f"{name}: no name runs", browser.value("window.canary === undefined"), "a canary ran")
    elements = browser.value("document.getElementsByTagName('*').length")
    text = browser.value("document.body.innerText")
    for function in told["functions"]:
        for kernel in function["kernels"]:
            if kernel["name"] not in text:
                expect(f"{name}: kernel {kernel['name']}", False, text[:200])
    kernels(browser, name, told)
    if "drawing" in told["functions"][0]:
        boxes(browser, name, told["functions"][0])
    start = time.monotonic()
    nodes = sum(len(function["nodes"]) for function in told["functions"])
    folded = browser.value(FOLDED) if nodes < 10000 else []
    # A kernel's loops, for example, may be empty text for none.
    closed = [summary for summary, height, length in folded if height <= 0 and length > len(summary)]
    expect(f"{name}: what is folded opens", not closed, closed[:5])
    expect(f"{name}: opens in time", time.monotonic() - start < 10 * SLOW_FACTOR, f"{time.monotonic() - start:.1f} s")
    lost = [href for href, there in browser.value(LINKS) if not there]
    expect(f"{name}: links reach what they name", not lost, lost[:3])
    drawings = browser.value(OUTSIDE)
    expect(f"{name}: drawings have sizes, and all of them inside", all(w > 0 and h > 0 and outside == 0 for w, h, outside in drawings), drawings)
    stored = browser.value("JSON.parse(document.getElementById('report').textContent).functions.length")
    expect(f"{name}: its data are those of JSON", stored == len(told["functions"]), stored)
    expect(f"{name}: stays quiet", not browser.said and len(browser.asked) == 1, (browser.said[:3], browser.asked[:3]))
    if shots:
        browser.open(page)
        picture = browser.call("Page.captureScreenshot", format="png")["data"]
        (pathlib.Path(shots) / f"{name}.png").write_bytes(base64.b64decode(picture))
    return elements


def main():
    arguments = sys.argv[1:]
    shots = arguments.pop(arguments.index("--screenshots") + 1) if "--screenshots" in arguments else None
    names = [a for a in arguments if not a.startswith("-")]
    if not names or "memory" in names:
        check_memory()
    program = chromium.find()
    if not program:
        print("without the pages: there is no Chromium (apt-get install chromium)")
    elif names != ["memory"]:
        check_pages(program, names, shots)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


def check_memory():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        charts.model(work / "two.onnx")
        memory.check(STRIDEC, work, report, expect,
                     {"two": (work / "two.onnx", memory.inputs_of_two, memory.SIZES_OF_TWO),
                      "tagger": (light_models.fill_model("tagger", folder), memory.inputs_of_tagger, memory.SIZES_OF_TAGGER)})


def check_pages(program, names, shots):
    with tempfile.TemporaryDirectory() as folder, chromium.Chromium(program) as browser:
        work = pathlib.Path(folder)
        hostile(work / "hostile.onnx")
        chain(work / "nodes5000.onnx", 5000)
        if os.environ.get("STRIDEC_NIGHTLY"):
            chain(work / "nodes20000.onnx", 20000)
        filled = lambda name: lambda: light_models.fill_model(name, folder)
        models = {"hostile": (work / "hostile.onnx", 1, None), "mobilenet": (filled("mobilenet_v2"), 2, 1.5e6), "tagger": (filled("tagger"), 2, 1.5e6),
                  "bert": (filled("bert_base"), 2, 1e6), "unet": (filled("unet"), 2, None), "nodes5000": (work / "nodes5000.onnx", 2, None),
                  **({"nodes20000": (work / "nodes20000.onnx", 4, 10e6)} if os.environ.get("STRIDEC_NIGHTLY") else {})}
        if not names or "compare" in names:
            compare(browser, work)
        if not names or "charts" in names:
            charts.check(browser, work, report, expect, CANARIES)
        for name, (model, seconds, most) in models.items():
            if names and name not in names:
                continue
            model = model() if callable(model) else model
            page = work / f"{name}.html"
            told = report(model, page, *(["--sources", "none"] if name.startswith("nodes") else []))
            size = page.stat().st_size
            expect(f"{name}: size", most is None or size < most, f"{size} bytes")
            elements = look(browser, name, page, told, seconds, shots)
            print(f" {name}: {size / 1e6:.2f} MB, {elements} elements", flush=True)
            if name == "mobilenet":  # of the artifact, from its manifest
                subprocess.run([STRIDEC, "compile", str(model), "-o", str(work / "m.so")], check=True, capture_output=True)
                told = report(work / "m.so", work / "artifact.html")
                look(browser, "artifact", work / "artifact.html", told, seconds, shots)


if __name__ == "__main__":
    main()
