"""What the script of a report's page does: sizes, roofline, time line, tabs and search."""

import json
import os
import pathlib
import random
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
STRIDEC = os.environ.get("stridec", str(ROOT / "build" / "stridec"))

SET = """((name, value) => { const slider = [...document.querySelectorAll('input[data-symbol]')].find(i => i.dataset.symbol === name);
  const number = slider.nextElementSibling; number.value = value; number.dispatchEvent(new Event('input')); return Number(slider.value) === value ||
  Number(slider.max) < value; })"""
TAB = "(name => { [...document.querySelectorAll('#tabs button')].find(b => b.textContent === name).click(); " \
      "return [...document.querySelectorAll('section')].filter(s => !s.hidden).map(s => s.dataset.tab); })"


def run(*arguments):
    done = subprocess.run([STRIDEC, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{arguments}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def model(path):
    """Two products around a softmax, with two sizes."""
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "/a/product"), helper.make_node("Relu", ["p"], ["r"], "/a/act"),
             helper.make_node("Softmax", ["r"], ["s"], "/b/soft"), helper.make_node("MatMul", ["s", "v"], ["q"], "/b/second"),
             helper.make_node("Concat", ["q", "q"], ["c"], "/b/twice", axis=1),
             helper.make_node("ReduceMax", ["c"], ["m"], "/c/max", keepdims=0, axes=[1]), helper.make_node("Sigmoid", ["m"], ["y"], "/c/sigmoid")]
    weights = [numpy_helper.from_array(np.random.default_rng(0).standard_normal((96, 32), np.float32), "v")]
    graph = helper.make_graph(nodes, "two", [value("x", ["n", 64, "k"]), value("w", ["k", 96])], [value("y", ["n", 32])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9), path)


def check(browser, work, report, expect, canaries):
    model(work / "two.onnx")
    run("compile", work / "two.onnx", "-o", work / "two.so")
    profile = json.loads(run("profile", work / "two.so", "--dim", "n=8,k=64", "--threads", "2", "--seconds", "0.3", "--trace",
                             work / "trace.json", "--format=json"))
    (work / "profile.json").write_text(json.dumps(profile))
    bench = run("bench", work / "two.so", "--dim", "n=8,k=64", "--threads", "2", "--seconds", "0.3", "--format=json")
    (work / "bench.json").write_text(bench)
    sizes(browser, work, report, expect)
    expressions(browser, expect)
    rooflines(browser, work, report, expect, profile, json.loads(bench))
    time_line(browser, work, report, expect)
    names(browser, work, report, expect, canaries, profile)
    refusals(work, expect, profile)


def sizes(browser, work, report, expect):
    """The peak is what context_memory tells, and costs are those of `profile`, at any sizes."""
    import stridec
    for source in ("two.onnx", "two.so"):
        report(work / source, work / "sizes.html")
        browser.open(work / "sizes.html")
        for n, k, threads in ((1, 1, 1), (3, 5, 2), (64, 128, 1), (7, 1000, 2), (200, 33, 1)):
            context = stridec.load(str(work / "two.so")).context(threads=threads)
            context.run({"x": np.zeros((n, 64, k), np.float32), "w": np.zeros((k, 96), np.float32)})
            arena = context.memory()["arena_bytes"]
            moved = [browser.value(f"{SET}({json.dumps(name)}, {size})") for name, size in (("n", n), ("k", k), ("threads", threads))]
            peak = int(browser.value("document.getElementById('f0peak').dataset.bytes"))
            expect(f"{source}: arena at {n}, {k}, {threads} threads", peak == arena and all(moved), (peak, arena, moved))
    told = report(work / "two.onnx", work / "sizes.html")
    browser.open(work / "sizes.html")
    browser.value(f"{SET}('n', 8)"), browser.value(f"{SET}('k', 64)")
    rows = {row["name"]: row for row in json.loads(run("profile", work / "two.so", "--dim", "n=8,k=64", "--runs", "2", "--format=json"))["rows"]}
    for i, kernel in enumerate(told["functions"][0]["kernels"]):
        for letter, key in (("f", "flops"), ("b", "bytes")):
            shown = float(browser.value(f"document.getElementById('f0k{i}{letter}').dataset.value"))
            expect(f"{key} of {kernel['name']}", shown == rows[kernel["name"]][key] / 2, (shown, rows[kernel["name"]][key]))
    drawn = browser.value("[...document.querySelectorAll('#f0m rect')].map(r => [Number(r.dataset.offset), Number(r.dataset.bytes)])")
    arena = int(browser.value("document.getElementById('f0peak').dataset.bytes"))
    alive = int(browser.value("document.getElementById('f0alive').dataset.bytes"))
    expect("buffers lie in the arena", all(a >= 0 and a + b <= arena for a, b in drawn) and drawn, (drawn, arena))
    expect("what is alive fits into the arena", 0 < alive <= arena, (alive, arena))
    expect("invalid sizes change nothing", browser.value(f"({SET}('n', -5), document.getElementById('f0peak').dataset.bytes)") == str(arena))


def expressions(browser, expect):
    """The page's arithmetic is that of compiler/sym: quotients round down, remainders have the sign of the divisor."""
    draws = random.Random(5)
    sizes = {"n": 7, "k": 13, "a.b": 0, "two words": 4}
    forms = [("{} + {}", lambda a, b: a + b), ("{} - ({})", lambda a, b: a - b), ("({})*({})", lambda a, b: a * b),
             ("({})//({})", lambda a, b: None if b == 0 else a // b), ("mod({}, {})", lambda a, b: None if b == 0 else a % b),
             ("min({}, {})", min), ("max({}, {})", max), ("ceildiv({}, {})", lambda a, b: None if b == 0 else -(-a // b)),
             ("select(({}) < ({}), 3, n)", lambda a, b: 3 if a < b else 7), ("({}) == ({})", lambda a, b: int(a == b)),
             ("({}) <= 2 && !(({}) > 1)", lambda a, b: int(a <= 2 and not b > 1)), ("-({}) || ({})", lambda a, b: int(a != 0 or b != 0)),
             ("abs({} - ({}))", lambda a, b: abs(a - b))]
    atoms = [("n", 7), ("k", 13), ("a.b", 0), ("`two words`", 4), ("3", 3), ("-2", -2), ("9007199254740993", 9007199254740993)]

    def made(depth):
        if depth == 0 or draws.random() < 0.2:
            return draws.choice(atoms)
        text, apply = draws.choice(forms)
        (x, a), (y, b) = made(depth - 1), made(depth - 1)
        if apply is forms[0][1]:  # of which the operands bind less
            x, y = f"({x})", f"({y})"
        if apply is forms[1][1] or apply is forms[12][1]:
            x = f"({x})"
        return text.format(x, y), None if a is None or b is None else apply(a, b)
    cases = [made(4) for _ in range(2000)]
    got = browser.value(f"{json.dumps([c[0] for c in cases])}.map(text => stridec.evaluate(text, {json.dumps(sizes)}))")
    wrong = [(text, value, out) for (text, value), out in zip(cases, got) if value is not None and out != str(value)]
    expect("expressions", not wrong, wrong[:3])
    for text in ("", "n +", "(n", "frob(n)", "absent", "n n", "1//0", "mod(n, 0)", "$", "constructor(1)"):
        expect(f"no value: {text}", browser.value(f"stridec.evaluate({json.dumps(text)}, {json.dumps(sizes)})") is None)


def rooflines(browser, work, report, expect, profile, bench):
    told = report(work / "two.onnx", work / "model.html")["functions"][0]
    expect("the cost model's roofline says so", told["roofline"]["from"] == "model" and "Not measured" in told["roofline"]["about"], told["roofline"]["about"])
    expect("its kernels are at most at their roof", all(0 <= k["share"] for k in told["roofline"]["kernels"]) and told["roofline"]["kernels"])
    browser.open(work / "model.html")
    dots = browser.value("document.querySelectorAll('#f0roof circle').length")
    expect("a dot for each kernel", dots == sum(k["flops"] > 0 for k in told["roofline"]["kernels"]), dots)
    expect("the page says that it is not measured", "Not measured" in browser.value("document.body.innerText"))
    expect("fusions that are missed are named", any("one kernel would save" in f for f in told["first"]), told["first"])
    expect("slow kernels are named", any("% of its roof" in f and f.endswith("by the cost model") for f in told["first"]), told["first"])
    for name, given, rows, per in (("profile", profile, profile["rows"], profile["runs"]), ("bench", bench, bench["kernels"], 1)):
        for source in ("two.onnx", "two.so"):
            told = report(work / source, work / "measured.html", "--profile", str(work / f"{name}.json"))["functions"][0]
            shown = {k["name"]: k for k in told["roofline"]["kernels"]}
            seconds = lambda row: row["nanoseconds"] * 1e-9 if name == "profile" else row["seconds"]
            same = all(np.isclose(shown[r["name"]][key], of / per, rtol=1e-12)
                       for r in rows for key, of in (("flops", r["flops"] if "flops" in r else 0), ("bytes", r["bytes"]), ("time", seconds(r)))
                       if [o["name"] for o in rows].count(r["name"]) == 1)
            expect(f"{source}: figures of {name}", same and told["roofline"]["from"] == name, told["roofline"])
            expect(f"{source}: shares of {name}", all(abs(shown[r["name"]]["share"] - r.get("roofline", 0)) < 1e-12 for r in rows), shown)
            peaks = {roof["name"]: roof.get("flops", roof.get("bytes")) for roof in told["roofline"]["roofs"]}
            expect(f"{source}: roofs of {name}", peaks["memory"] == given["peak"]["memory_bytes_per_second"], peaks)
            expect(f"{source}: what was measured comes first", "at its roof a run takes" in told["first"][0], told["first"])
            expect(f"{source}: nothing of the model", not any("cost model" in f for f in told["first"]), told["first"])
            browser.open(work / "measured.html")
            expect(f"{source}: dots of {name}", browser.value("document.querySelectorAll('#f0roof circle').length") == sum(r["flops"] > 0 and r["bytes"] > 0 for r in rows))
            expect(f"{source}: quiet", not browser.said and len(browser.asked) == 1, (browser.said, browser.asked))
    again = work / "again.html"
    report(work / "two.onnx", again, "--profile", str(work / "bench.json"), "--trace", str(work / "trace.json"))
    first = again.read_bytes()
    report(work / "two.onnx", again, "--profile", str(work / "bench.json"), "--trace", str(work / "trace.json"))
    expect("equal bytes", first == again.read_bytes())


def time_line(browser, work, report, expect):
    events = [e for e in json.loads((work / "trace.json").read_text()) if e["ph"] == "X"]
    told = report(work / "two.onnx", work / "trace.html", "--trace", str(work / "trace.json"))["trace"]
    by_kind = [sum(s[1] == kind for s in told["slices"]) for kind in range(3)]
    expect("every event is there", by_kind == [sum(e["cat"] == c for e in events) for c in ("run", "step", "part")] and told["left_out"] == 0, by_kind)
    lengths = sorted(s[4] for s in told["slices"])
    expect("with its length", np.allclose(lengths, sorted(e["dur"] for e in events)), lengths[:3])
    browser.open(work / "trace.html")
    runs = browser.value("document.querySelectorAll('#tracerun option').length - 1")
    expect("a choice for each run", runs == by_kind[0], runs)
    shown = browser.value("(() => { const c = document.getElementById('tracerun'); c.selectedIndex = 1; c.dispatchEvent(new Event('change'));"
                          "return [...document.querySelectorAll('.trace rect')].map(r => [r.textContent, r.getBoundingClientRect().width]) })()")
    steps = [text for text, _ in shown if ", step " in text]
    expect("one run fills the view", shown and max(width for _, width in shown) > 900, shown[:2])
    expect("steps have the model's nodes", any("/b/soft" in text for text in steps), steps[:3])
    clicked = browser.value("(() => { const r = [...document.querySelectorAll('.trace rect')].find(r => r.textContent.includes('/b/soft'));"
                            "r.dispatchEvent(new Event('click')); return document.getElementById('tracetold').textContent })()")
    expect("a click tells what it is", "/b/soft" in clicked, clicked)
    wide = browser.value("(() => { const count = () => document.querySelectorAll('.trace rect').length, before = document.querySelector('.trace text:last-child').textContent;"
                         "[...document.querySelectorAll('#trace button')].find(b => b.textContent === '+').click();"
                         "return [count(), before !== document.querySelector('.trace text:last-child').textContent] })()")
    expect("it zooms", wide[0] > 0 and wide[1], wide)
    for tab in ("summary", "graph", "roofline", "kernels", "nodes", "memory", "time line"):
        expect(f"tab {tab}", browser.value(f"{TAB}({json.dumps(tab)})") == [tab])
    expect("a link reaches into another tab", browser.value("new Promise(r => { location.hash = '#f0k0'; setTimeout(() => r(!document.getElementById('f0k0').closest('section').hidden), 200) })"))
    expect("everything", len(browser.value(f"{TAB}('everything')")) == 7)
    found = browser.value("(() => { const s = document.getElementById('f0search'); s.value = 'SOFT'; s.dispatchEvent(new Event('input'));"
                          "return [...document.querySelectorAll('#f0found li')].map(l => l.textContent) })()")
    expect("search", len(found) == 1 and "/b/soft" in found[0] and "kernel" in found[0], found)
    cut = work / "cut.json"
    text = (work / "trace.json").read_text().rsplit("\n]", 1)[0]
    cut.write_text(text[:-7])  # a process that was killed
    told = report(work / "two.onnx", work / "cut.html", "--trace", str(cut))["trace"]
    expect("a trace without its end", len(told["slices"]) == len(events) - 1, len(told["slices"]))


def names(browser, work, report, expect, canaries, profile):
    """Of files that are given."""
    for i, row in enumerate(profile["rows"]):
        row["name"] = canaries[i % len(canaries)]
    profile["variant"] = canaries[0]
    (work / "hostile.json").write_text(json.dumps(profile))
    events = [{"name": name, "cat": "step", "ph": "X", "ts": i, "dur": 0.7, "pid": 1, "tid": i % 3, "args": {"run": 0, "step": i, "nodes": name}}
              for i, name in enumerate(canaries)]
    events += [{"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": canaries[0]}}, {"name": 3, "cat": ["x"], "args": 5}, 7]
    (work / "events.json").write_text(json.dumps({"traceEvents": events}))
    report(work / "two.onnx", work / "names.html", "--profile", str(work / "hostile.json"), "--trace", str(work / "events.json"))
    browser.open(work / "names.html")
    browser.value("document.querySelectorAll('.trace rect').forEach(r => r.dispatchEvent(new Event('click')))")
    expect("names of traces and profiles run nothing", browser.value("window.canary === undefined"))
    expect("and say nothing", not browser.said and len(browser.asked) == 1, (browser.said[:3], browser.asked))
    expect("all of them are drawn", browser.value("document.querySelectorAll('.trace rect').length") == len(canaries))


def refusals(work, expect, profile):
    bad = work / "no.json"
    cases = [("[]", "--trace", 3, "has no events of runs"), ("hello", "--trace", 3, "has no events of runs"), ("{}", "--profile", 3, "is not a profile"),
             ("nothing", "--profile", 3, "is not a profile"), ('{"rows": [3], "peak": {}}', "--profile", 3, "is not a profile"),
             (json.dumps({"kernels": [], "peak": 5}), "--profile", 3, "is not a profile")]
    for text, flag, code, sentence in cases:
        bad.write_text(text)
        done = subprocess.run([STRIDEC, "report", str(work / "two.so"), "-o", str(work / "no.html"), flag, str(bad)], capture_output=True, text=True)
        expect(f"refused {flag} {text[:20]}", done.returncode == code and sentence in done.stderr, (done.returncode, done.stderr))
    done = subprocess.run([STRIDEC, "report", str(work / "two.so"), "-o", str(work / "no.html"), "--trace", str(work / "absent.json")], capture_output=True, text=True)
    expect("refused: no file", done.returncode == 2 and "absent.json" in done.stderr, done.stderr)
