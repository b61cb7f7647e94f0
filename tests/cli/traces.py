"""What a compilation leaves for people: the folder of a trace, symbols for perf and gdb, memory at sizes."""

import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

from harness import STRIDEC, expect, stridec

STAGES = ("graph", "loops", "schedule", "fused", "nodes", "memory", "source", "manifest")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def unplaced(text):
    """Without weights, which get their places and packed contents at the end of a compilation."""
    return re.sub(r"^ weights [^;\n]*; ", " ", re.sub(r"^ +weight(_bytes)? .*\n", "", text, flags=re.M), flags=re.M)


def artifact_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def functions_of(path):
    """Names of the functions in the table of symbols."""
    listing = subprocess.run(["readelf", "-sW", path], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listing.splitlines()]
    return [row[7] for row in rows if len(row) == 8 and row[3] == "FUNC" and row[6] != "UND"]


def test_trace_folder():
    stridec("compile tower.onnx -o plain.so", 0)
    made = stridec("compile tower.onnx -o traced.so -O trace.enabled=true -O trace.graph_diagram=true", 0)
    expect("traced.trace" in made.stderr, made.stderr)
    files = sorted(os.listdir("traced.trace"))
    expect(files == sorted([f"{stage}.txt" for stage in STAGES] + ["report.html", "report.json", "command.sh", "graph.svg"]), files)
    for stage in STAGES:
        shown = stridec(f"inspect tower.onnx --stage={stage}", 0).stdout
        expect(unplaced(read(f"traced.trace/{stage}.txt")) == unplaced(shown), f"{stage} differs from what inspect prints")
    expect(read("traced.trace/graph.svg") == stridec("inspect tower.onnx --stage=graph --format=svg", 0).stdout, "graph.svg")
    expect("trace." not in read("traced.json"), "the manifest has the options of the trace")
    expect(artifact_bytes("traced.so") == artifact_bytes("plain.so"), "a trace changes the artifact")
    stridec("report tower.onnx -o own.html", 0)
    for own, traced in (("own.html", "report.html"), ("own.report.json", "report.json")):
        expect(read(own) == read(f"traced.trace/{traced}"), f"{traced} differs from what report writes")

    before = artifact_bytes("traced.so")
    os.remove("traced.so")
    os.makedirs("path", exist_ok=True)
    if not os.path.exists("path/stridec"):
        os.symlink(STRIDEC, "path/stridec")
    again = {**os.environ, "PATH": f"{os.path.abspath('path')}:{os.environ['PATH']}"}
    subprocess.run(["sh", os.path.abspath("traced.trace/command.sh")], cwd="/", env=again, check=True, capture_output=True, timeout=60)
    expect(artifact_bytes("traced.so") == before, "command.sh makes another artifact")


def test_trace_folder_of_other_commands():
    """Beside the model, with the stages that the command reaches; files of an earlier trace go, others stay."""
    os.makedirs("mlp.trace/graph-folder.svg", exist_ok=True)
    for name in ("source.txt", "notes.txt", "graphics.svg"):
        with open(f"mlp.trace/{name}", "w", encoding="utf-8") as file:
            file.write("older")
    refused = stridec("inspect mlp.onnx --stage=fused -O trace.enabled=true", 2).stderr
    expect("error[other-folder]" in refused and "mlp.trace" in refused and os.path.exists("mlp.trace/source.txt"), refused)
    with open("mlp.trace/command.sh", "w", encoding="utf-8"):
        pass
    stridec("inspect mlp.onnx --stage=fused -O trace.enabled=true", 0)
    expect(set(os.listdir("mlp.trace")) == {"graph.txt", "loops.txt", "schedule.txt", "fused.txt", "nodes.txt", "memory.txt", "report.html", "report.json",
                                            "command.sh", "notes.txt", "graphics.svg", "graph-folder.svg"}, os.listdir("mlp.trace"))  # fmt: skip
    shutil.rmtree("mlp.trace")
    stridec("verify mlp.onnx -O trace.graph_diagram=true", 0)
    expect(sorted(os.listdir("mlp.trace")) == ["command.sh", "graph.svg"], os.listdir("mlp.trace"))
    shutil.rmtree("mlp.trace")
    with open("occupied.trace", "w", encoding="utf-8"):
        pass
    refused = stridec("compile mlp.onnx -o occupied.so -O trace.enabled=true", 2).stderr
    expect("occupied.trace" in refused, refused)
    expect(not os.path.exists("occupied.so"), "an artifact was written")
    for option in ("trace.enabled=true", "symbols=lines"):
        end = ".trace" if "trace" in option else ".kernels"
        refused = stridec(f"compile mlp.onnx -o itself{end} -O {option}", 1).stderr
        expect("which the output is" in refused and not os.path.exists(f"itself{end}"), refused)


def test_symbols():
    """Kernels have names of the model in the table of symbols, with the number of --stage=source; none: no table."""
    stridec("compile tower.onnx -o named.so", 0)
    names = functions_of("named.so")
    source = stridec("inspect tower.onnx --stage=source", 0).stdout
    kernels = re.findall(r"^// ---- (\d+): ([^,\n]+)", source, re.M)
    expect(kernels, source[:200])
    for number, nest in kernels:
        name = re.sub(r"[^A-Za-z0-9]", "_", nest[:80]) + "_" + number
        expect(names.count(name) == 1 or f"{name}.part" in names, f"no function {name} in {names}")
    nameless = [name for name in names if re.search("k_[0-9a-f]{16}", name)]
    expect(not nameless, f"functions of kernels without their name: {nameless}")
    stridec("compile tower.onnx -o named_again.so", 0)
    expect(artifact_bytes("named.so") == artifact_bytes("named_again.so"), "other bytes of the same model")
    stridec("compile tower.onnx -o bare.so -O symbols=none", 0)
    table = subprocess.run(["readelf", "-SW", "bare.so"], capture_output=True, text=True, check=True).stdout
    expect(".symtab" not in table and ".dynsym" in table, "symbols=none has a table of symbols")
    stridec("run named.so --random", 0)


def test_lines():
    stridec("compile tower.onnx -o lined.so -O symbols=lines", 0)
    texts = sorted(os.listdir("lined.kernels"))
    expect(texts and all(name.startswith("k_") for name in texts), texts)
    table = subprocess.run(["readelf", "--debug-dump=decodedline", "lined.so"], capture_output=True, text=True, check=True).stdout
    expect(any(name in table for name in texts), "no lines of kernels")
    expect(os.getcwd() not in table, "a folder of this machine")
    if shutil.which("gdb"):  # lists from the first line of the source that a function has
        kernel = next(name for name in functions_of("lined.so") if re.fullmatch(r"matmul_\w*_\d+", name))
        shown = subprocess.run(["gdb", "-batch", "-nx", "-ex", "directory lined.kernels", "-ex", f"list {kernel}", "lined.so"],
                               capture_output=True, text=True, timeout=60).stdout  # fmt: skip
        expect("KERNEL" in shown or "begin" in shown, shown)


def test_memory_at_sizes():
    """Offsets and bytes are numbers; each buffer has its first and last step; the arena holds all."""
    for threads in (1, 4):
        memory = json.loads(stridec(f"inspect tower.onnx --stage=memory --threads {threads} --format=json", 0).stdout)
        expect(memory["sizes"]["threads"] == threads, memory["sizes"])
        planned = [buffer for buffer in memory["buffers"] if buffer["offset"] is not None]
        expect(planned, memory)
        for buffer in planned:
            expect(buffer["offset"] + buffer["bytes"] <= memory["arena_bytes"] and buffer["first_step"] <= buffer["last_step"], buffer)
    text = stridec("inspect tower.onnx --stage=memory", 0).stdout
    expect(re.search(r"arena \d+ bytes at (\w+=\d+, )*1 thread\n", text), text)
    expect("steps" in text and "//" not in text and "floordiv" not in text, text)
    drawn = ElementTree.fromstring(stridec("inspect tower.onnx --stage=memory --format=svg", 0).stdout)
    expect(len(drawn.findall(".//{*}rect")) == len(planned), "a rectangle for each planned buffer")
    expect("not a graph" in stridec("inspect tower.onnx --stage=memory --format=dot", 1).stderr, "memory for Graphviz")


def test_pages_of_stages():
    for stage in ("graph", "fused", "schedule", "memory"):
        page = stridec(f"inspect tower.onnx --stage={stage} --format=html", 0).stdout
        expect(page.startswith("<!DOCTYPE html>") and "<svg" in page and "default-src 'none'" in page, page[:300])
        expect("<script" not in page and "href=" not in page and "src=" not in page.replace("default-src", ""), f"{stage} loads something")
        expect(page == stridec(f"inspect tower.onnx --stage={stage} --format=html", 0).stdout, "another page")
    expect("cannot be drawn" in stridec("inspect tower.onnx --stage=loops --format=html", 1).stderr, "a stage without a drawing")
