"""Drawings and the report: whole, the same bytes each time, with nothing in them that a model's names could run."""

import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import numpy as np
import onnx
from onnx import helper

from harness import expect, stridec
from models import model, value

HOSTILE = "</script><script>alert(1)</script>\"'&<b onmouseover=alert(1)>"


def hostile():
    """Names that end tags and attributes, where they are copied as they are."""
    nodes = [
        helper.make_node("MatMul", [HOSTILE, "w"], ["a"], HOSTILE + "1"),
        helper.make_node("Softmax", ["a"], [HOSTILE + "y"], HOSTILE + "2"),
    ]
    return model(nodes, [value(HOSTILE, ["n", 4])], [value(HOSTILE + "y", ["n", 4])], [("w", np.eye(4, dtype=np.float32))])


class Page(html.parser.HTMLParser):
    """The tags of a page, and what its data block holds."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.data, self.script = [], [], [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self.open.append((tag, dict(attributes).get("type")))

    def handle_endtag(self, tag):
        self.open.append((tag, "end"))

    def handle_data(self, data):
        if self.open and self.open[-1] == ("script", "application/json"):
            self.data += data
        elif self.open and self.open[-1] == ("script", None):
            self.script += data


def check_page(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    page = Page(text)
    expect(page.tags.count("script") == 2 and page.attributes.count(("type", "application/json")) == 1, f"scripts in {path}")
    # The policy allows the page's own script alone.
    allowed = base64.b64encode(hashlib.sha256(page.script.encode()).digest()).decode()
    expect(re.findall(r"script-src ([^;\"]*)", text) == [f"'sha256-{allowed}'"], f"the script of {path} is not the one that its policy allows")
    for name, given in page.attributes:
        expect(not name.startswith("on"), f"{name} in {path}")
        expect(name not in ("src", "href") or given.startswith("#"), f"{name}={given} in {path}")
    expect("url(" not in text and "@import" not in text and "default-src 'none'" in text, f"{path} may load something")
    return text, json.loads(page.data)


def test_drawings():
    for stage in ("graph", "fused", "schedule"):
        drawn = stridec(f"inspect fated.onnx --stage={stage} --format=svg", 0).stdout
        root = ElementTree.fromstring(drawn)
        expect(root.tag.endswith("svg") and len(root.findall(".//{*}rect")) > 5, drawn[:300])
        expect(drawn == stridec(f"inspect fated.onnx --stage={stage} --format=svg", 0).stdout, "another drawing")
        dot = stridec(f"inspect fated.onnx --stage={stage} --format=dot", 0).stdout
        expect(re.match(r"digraph ", dot) and dot.count("->") > 3 and dot.rstrip().endswith("}"), dot[:300])
        if shutil.which("dot"):
            subprocess.run(["dot", "-Tplain"], input=dot, check=True, capture_output=True, text=True, timeout=60)
    expect("topk" in stridec("inspect fated.onnx --stage=fused --format=dot", 0).stdout, "a routine is drawn")
    expect("cannot be drawn" in stridec("inspect fated.onnx --stage=loops --format=dot", 1).stderr, "a stage")
    expect("no graph to draw" in stridec("inspect mlp.so --format=svg", 1).stderr, "an artifact")
    onnx.save(hostile(), "hostile.onnx")
    for stage in ("graph", "fused"):
        drawn = stridec(f"inspect hostile.onnx --stage={stage} --format=svg", 0).stdout
        tags = {element.tag.split("}")[-1] for element in ElementTree.fromstring(drawn).iter()}
        expect(tags <= {"svg", "title", "style", "path", "g", "rect", "text"}, f"tags {tags}")


def test_report():
    """A page of a model and one of an artifact, which agree on nodes and kernels."""
    stridec("compile fated.onnx -o fated.so", 0)
    stridec("report fated.onnx -o report.html", 0)
    text, data = check_page("report.html")
    stridec("report fated.onnx -o again.html", 0)
    with open("again.html", encoding="utf-8") as file:
        expect(file.read() == text, "another page for the same model")
    for part in ("What to look at first", "Kernels", "Nodes", "Memory", "source", "add+exp+mul"):
        expect(part in text, f"the page lacks {part}")
    stridec("report fated.so -o of_artifact.html", 0)
    of_artifact = check_page("of_artifact.html")[1]
    nodes = [sorted(each["functions"][0]["nodes"], key=str) for each in (data, of_artifact)]
    expect(nodes[0] == nodes[1] and len(nodes[0]) == 15, f"nodes {nodes}")
    kernels = [[kernel["name"] for kernel in each["functions"][0]["kernels"]] for each in (data, of_artifact)]
    expect(kernels[0] == kernels[1], f"kernels {kernels}")
    memory = data["functions"][0]["memory"]
    for buffer in memory["buffers"]:
        expect(0 <= buffer["offset"] and buffer["offset"] + buffer["bytes"] <= memory["arena_bytes"], f"{buffer} of {memory}")
        expect(buffer["first_step"] <= buffer["last_step"], f"{buffer}")
    whole = json.loads(stridec("report fated.onnx --format=json", 0).stdout)
    expect(whole["functions"][0]["kernels"][0]["source"], "the JSON lacks sources")
    stridec("report fated.onnx --sources none -o short.html", 0)
    with open("short.html", encoding="utf-8") as file:
        short = file.read()
    check_page("short.html")
    expect(len(short) < len(text) and "stridec_abi" not in short, "a report without sources has some")
    onnx.save(hostile(), "hostile.onnx")
    stridec("report hostile.onnx -o hostile.html", 0)
    check_page("hostile.html")


def test_origins():
    """Statements name their nodes, kernels say what they do for each, and a node that is computed again is listed."""
    text = stridec("inspect counted.onnx --stage=fused", 0).stdout
    expect(" from 0.1" in text and " from 1." in text, text)
    line = next(line for line in stridec("inspect counted.onnx --stage=schedule", 0).stdout.splitlines() if line.startswith(" repeated"))
    expect("'mix/MatMul' (MatMul): 2 times as often as in the model, " in line and "(step 2)" in line, line)
    schedule = json.loads(stridec("inspect counted.onnx --stage=schedule --format=json", 0).stdout)
    data = json.loads(stridec("report counted.onnx -o counted.html --format=json", 0).stdout)["functions"][0]
    (again,) = data["repeated"]
    expect(schedule["repeated"] == [again] and again["times"] == 2 and again["more_operations"] > 0 and again["kernels"][0]["steps"] == [2], f"{again}")
    for kernel, scheduled in zip(data["kernels"], schedule["kernels"]):
        expect(kernel["work"] == scheduled["work"] and [work["node"] for work in kernel["work"]] == kernel["nodes"], f"{kernel['work']}")
        for work in kernel["work"]:
            expect((work["typical_operations"] > 0) <= bool(work["statements"]), f"{work}")
    page, shown = check_page("counted.html")
    expect("statements by node" in page and page.count("2 times as often as in the model") == 2 and shown["functions"][0]["repeated"] == [again], "the page")


def test_report_of_schedules():
    """Candidates, what was not fused, loops before fusion, times of passes; and the data beside the page."""
    stridec("compile fated.onnx -o fated.so", 0)
    with open("fated.json", encoding="utf-8") as file:
        manifest = file.read()
    stridec("report fated.onnx -o fated.html --time-passes", 0)
    with open("fated.json", encoding="utf-8") as file:
        expect(file.read() == manifest, "a report replaced the manifest")
    text, shown = check_page("fated.html")
    with open("fated.report.json", encoding="utf-8") as file:
        data = json.load(file)
    kernels = data["functions"][0]["kernels"]
    fused = max(kernels, key=lambda kernel: len(kernel["nodes"]))
    expect(len(fused["loops_before"]) > len(fused["loops"]) and "nodes" in fused["loops_before"][0], f"{fused}")
    expect({row["pass"] for row in data["passes"]} >= {"import", "lower"} and "Compile time" in text, "times of passes")
    expect("passes" in shown and "loops_before" not in shown["functions"][0]["kernels"][0], "the data in the page")
    for part in ("schedules</summary>", "cycles expected", "loops before fusion"):
        expect(part in text, f"the page lacks {part}")
    schedule = json.loads(stridec("inspect layers.onnx --stage=schedule --format=json", 0).stdout)
    stridec("report layers.onnx -o layers.html", 0)
    expect("not fused with" in check_page("layers.html")[0], "the page lacks what was not fused")
    with open("layers.report.json", encoding="utf-8") as file:
        layers = json.load(file)["functions"][0]["kernels"]
    expect([kernel["choices"] for kernel in layers] == [kernel["nests"] for kernel in schedule["kernels"]], "the candidates")
    pairs = {(pair["producer"], pair["consumer"], pair["typical_bytes"]) for pair in schedule["separate"]}
    told = {(kernel["name"], refusal["other"], refusal["typical_bytes"]) for kernel in layers for refusal in kernel.get("refusals", [])
            if refusal["other_is"] == "consumer"}
    expect(told == pairs and pairs, f"{told} of {pairs}")
    stridec("report fated.onnx -o my.report.html", 0)
    with open("my.report.json", encoding="utf-8") as file:
        expect("passes" not in json.load(file), "times that were not asked for")


def test_report_refusals():
    stridec("report missing.onnx -o r.html", 2)
    expect("-o" in stridec("report mlp.onnx", 1).stderr, "no file")
    stridec("report cut.so -o r.html", 3)
    stridec("report mlp.onnx -o /no/such/folder/r.html", 2)
    stridec("compile --function a=mlp.onnx --function b=fated.onnx -o both.so", 0)
    stridec("report both.so -o both.html", 0)
    expect([f["name"] for f in check_page("both.html")[1]["functions"]] == ["a", "b"], "functions")
    stridec("report both.so --function c -o r.html", 1)
