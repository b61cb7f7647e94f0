"""What commands print of models and artifacts: check, inspect, JSON, progress, passes, tables."""

import json
import os
import re
import shutil
import subprocess

from harness import ROOT, expect, nvrtc, stridec


def test_check():
    """Sizes that the caller chooses, conditions with expressions in the place of placeholders."""
    text = stridec("check gather.onnx", 0).stdout
    expect("{" not in text and "n == m" in text.replace("m == n", "n == m"), text)
    expect("sum/Add" in text and "rows  any size" in text, text)
    guards = json.loads(stridec("check gather.onnx --format=json", 0).stdout)["guards"]
    expect(len(guards) == 1 and "sum/Add" in guards[0]["node"] and "{" not in guards[0]["sentence"], guards)
    expect("{" not in stridec("inspect gather.so", 0).stdout, "inspect prints placeholders")


def test_manifest():
    import jsonschema

    with open(os.path.join(ROOT, "schemas", "manifest.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    for name in ("mlp", "gather", "external"):
        with open(name + ".json", encoding="utf-8") as file:
            text = file.read()
        manifest = json.loads(text)
        jsonschema.validate(manifest, schema)
        expect(stridec(f"inspect {name}.so --format=json", 0).stdout == text, "the library carries another manifest")
        expect(stridec(f"inspect {name}.json --format=json", 0).stdout == text, "inspect changes the manifest")
    symbols = {row["name"]: row for row in manifest["symbols"]}
    expect((symbols["batch"]["minimum"], symbols["batch"]["maximum"]) == (1, 8), f"symbols {symbols}")


def test_inspect():
    for stage in ("graph", "loops", "schedule", "fused", "nodes", "memory", "source", "manifest"):
        expect(stridec(f"inspect mlp.onnx --stage={stage}", 0).stdout, f"nothing is printed for {stage}")
        json.loads(stridec(f"inspect mlp.onnx --stage={stage} --format=json", 0).stdout)
    graph = stridec("inspect mlp.onnx --stage=graph", 0).stdout
    expect("batch" in graph and "relu" in graph.lower(), graph)
    if not nvrtc():
        print("inspect of a GPU's kernels: left out, there is no NVRTC")
        return
    kernels = stridec(f"inspect mlp.onnx --stage=source --target cuda --gpu sm_90a --nvrtc {nvrtc()}", 0).stdout
    told = re.findall(r"^// sm_90a: \d+ registers, .* bytes of shared memory, \d+ of stack.*, \d+ of code; \d+ threads, "
                      r"\d+ blocks? a multiprocessor, \d+ % of its threads$", kernels, re.M)  # fmt: skip
    expect(told and len(told) == len(re.findall(r"^// ---- ", kernels, re.M)), kernels[:2000])


def test_node_fates():
    """Each node has the fate after which it is named, in the model, the artifact and the manifest."""
    stridec("compile fated.onnx -o fated.so", 0)
    of_model = json.loads(stridec("inspect fated.onnx --stage=nodes --format=json", 0).stdout)
    rows = {row["node"]: row for row in of_model["nodes"]}
    expect(len(rows) == len(of_model["nodes"]) == 15, f"nodes {list(rows)}")
    for node, row in rows.items():
        expect(f"'{row['fate']}/" in node, f"{node} is {row}")
        expect(("kernels" in row) == (row["fate"] in ("kernel", "routine")), f"{node} is {row}")
    same = next(row for node, row in rows.items() if "rewritten/Exp" in node)
    expect("kernel/Exp" in same["with"], f"a repeated node is {same}")
    for source in ("so", "json"):
        of_file = json.loads(stridec(f"inspect fated.{source} --stage=nodes --format=json", 0).stdout)
        expect(sorted(of_file["nodes"], key=str) == sorted(of_model["nodes"], key=str), f"the {source} says {of_file}, the model {of_model}")
    with open("fated.json", encoding="utf-8") as file:
        manifest = json.load(file)
    kernels = {node for kernel in manifest["kernels"] for node in kernel["nodes"]}
    others = [node for group in manifest["nodes"]["without_kernel"] for node in group["nodes"]]
    expect(kernels | set(others) == set(rows) and len(kernels) + len(others) == manifest["nodes"]["count"], manifest["nodes"])
    steps = {step for kernel in manifest["kernels"] for step in kernel["steps"]}
    for row in rows.values():
        for kernel in row.get("kernels", []):
            expect(row["fate"] == "routine" or set(kernel["steps"]) <= steps, f"{row} has a step that no kernel has")
    text = stridec("inspect fated.so --stage=nodes", 0).stdout
    expect("rewritten: same as node" in text and "15 nodes: " in text, text)
    expect("15 nodes: " in stridec("inspect fated.so", 0).stdout, "the summary of an artifact lacks its nodes")


def test_nodes_of_launches():
    """A kernel that is launched several times says which nodes each launch computes."""
    stridec("compile layers.onnx -o layers.so", 0)
    with open("layers.json", encoding="utf-8") as file:
        manifest = json.load(file)
    repeated = [kernel for kernel in manifest["kernels"] if kernel["launches"] > 1]
    expect(repeated, f"kernels {manifest['kernels']}")
    for kernel in manifest["kernels"]:
        launches = kernel.get("launch_nodes")
        expect((launches is None) == (kernel["launches"] == 1), f"kernel {kernel}")
        if launches is None:
            continue
        expect(len(launches) == len(kernel["steps"]), f"kernel {kernel}")
        expect(sorted({at for launch in launches for at in launch}) == list(range(len(kernel["nodes"]))), f"kernel {kernel}")


def test_nodes_of_old_manifests():
    """A manifest before 1.4 has the nodes of kernels alone, and a hostile one is refused or printed, never more."""
    with open("mlp.json", encoding="utf-8") as file:
        old = json.load(file)
    del old["nodes"]
    old["schema_version"] = "1.3"
    with open("old.json", "w", encoding="utf-8") as file:
        json.dump(old, file)
    rows = json.loads(stridec("inspect old.json --stage=nodes --format=json", 0).stdout)["nodes"]
    expect(rows and all(row["fate"] == "kernel" for row in rows), f"rows {rows}")
    old["kernels"][0]["launch_nodes"] = [[99, 0]]
    with open("old.json", "w", encoding="utf-8") as file:
        json.dump(old, file)
    stridec("inspect old.json --stage=nodes", 0)
    old["kernels"][0]["launch_nodes"] = [["a"]]
    with open("old.json", "w", encoding="utf-8") as file:
        json.dump(old, file)
    stridec("inspect old.json --stage=nodes", 3)


def test_schedule():
    """What was fused and saves, and what else each kernel could have run with, as text and as JSON."""
    told = json.loads(stridec("inspect mlp.onnx --stage=schedule --format=json", 0).stdout)
    fused = [decision for decision in told["decisions"] if decision["fused"]]
    expect(any(decision.get("typical_bytes", 0) > 0 for decision in fused), f"decisions {told['decisions']}")
    for kernel in told["kernels"]:
        for nest in kernel["nests"]:
            expect(nest["candidates"] > 0 and nest["expected_cycles"] > 0 and nest["chosen_by"] == "model", f"kernel {kernel}")
    expect(any(nest["others"] for kernel in told["kernels"] for nest in kernel["nests"]), f"kernels {told['kernels']}")
    text = stridec("inspect mlp.onnx --stage=schedule", 0).stdout
    expect("; saves " in text and "the cost model's choice; one of " in text, text)


def test_separate_kernels():
    """Two kernels that stayed separate are one line, whatever rules were tried on what went into them; what became one is none."""
    command = "inspect tower.onnx --stage=schedule --dim batch=1..8"
    told = json.loads(stridec(command + " --format=json", 0).stdout)
    text = stridec(command, 0).stdout
    expect(told["typical_sizes"] == {"batch": 4} and re.search(r"^ sizes .* 128 at most: batch=4$", text, re.M), text)
    pairs = re.findall(r"^ separate  (\S+) of (node .*) -> (\S+) of (node .*?): not inlined: .*; not merged: ", text, re.M)
    expect(pairs and len(set(pairs)) == len(pairs) == text.count("\n separate "), text)
    kernels = {kernel["name"] for kernel in told["kernels"]}
    expect(all({producer, consumer} <= kernels for producer, _, consumer, _ in pairs), f"{pairs}, {kernels}")
    keys = ("producer", "producer_nodes", "consumer", "consumer_nodes")
    expect([tuple(one[key] for key in keys) for one in told["separate"]] == pairs, told["separate"])
    refused = [decision for decision in told["decisions"] if not decision["fused"]]
    expect(sum(decision["times"] for decision in refused) > sum(one["times"] for one in told["separate"]), f"{refused}")

    softmax = stridec("inspect softmax.onnx --stage=schedule", 0).stdout
    expect(softmax.count("\n kernel ") == 1 and " merged" in softmax and "separate" not in softmax, softmax)

    # Kernels are those of the manifest, by the same names and of the same nodes, in the model's order.
    shown = json.loads(stridec("inspect tower.onnx --stage=manifest --dim batch=1..8 --format=json", 0).stdout)
    keys = ("name", "launches", "schedule", "nodes")
    rows = [[kernel[key] for key in keys] for kernel in told["kernels"]]
    expect(rows == [[kernel[key] for key in keys] for kernel in json.loads(shown["text"])["kernels"]], f"{rows}")
    expect(text.count("\n           of node ") == len(rows), text)

    # Many nests of one operator, which its node does not tell apart.
    text = stridec("inspect bytes.onnx --stage=schedule", 0).stdout
    pairs = re.findall(r"^ separate  (\S+) of .* -> (\S+) of ", text, re.M)
    kernels = set(re.findall(r"^ kernel    (\S+): ", text, re.M))
    expect(len(kernels) == 2 and all(set(pair) <= kernels for pair in pairs), text)


def test_inspect_by_content():
    """What a file is does not hang on its name."""
    shutil.copy("mlp.so", "library")
    text = stridec("inspect library", 0).stdout
    expect(text.replace("library", "mlp.so", 1) == stridec("inspect mlp.so", 0).stdout, text)
    with open("other.json", "w", encoding="utf-8") as file:
        file.write('{"kernels": []}')
    expect("bad-manifest" in stridec("inspect other.json", 3).stderr, "not refused as a manifest")


def page_of_operators(update):
    """compiler/frontend/onnx/OPERATORS.md is what this build prints."""
    page = stridec("ops --format=md", 0).stdout
    path = os.path.join(ROOT, "compiler", "frontend", "onnx", "OPERATORS.md")
    if update:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
    with open(path, encoding="utf-8") as file:
        expect(file.read() == page, "OPERATORS.md is not current: tests/cli/run.py --update writes it")


def test_pass_flags():
    """What --dump-after, --time-passes and --stop-after make beside the transcripts: files and JSON."""
    rows = json.loads(stridec("passes --format=json", 0).stdout)
    table = [row["pass"] for row in rows]
    expect(len(set(table)) == len(table), f"names of passes are not unique: {table}")
    table = [row["pass"] for row in rows if not row["pass"].startswith("gpu ")]  # of another target
    # The last rows work on kernels and files, and have no program to print or to verify.
    shown = [row["pass"] for row in rows if row["pass"] in table and row["stage"] not in ("packing", "building", "linking")]
    os.makedirs("dumps")
    flags = "--cpu x86-64-v3,x86-64-v2 --verify-passes"
    stridec(f"compile mlp.onnx -o dumped.so --dump-after=all --dump-dir dumps {flags}", 0)
    files = sorted(os.listdir("dumps"))
    names = [re.match(r"(\d\d)-(\w+)(\.x86-64-v[23])?\.txt$", file).groups() for file in files]
    expect(list(dict.fromkeys(name for _, name, _ in names)) == shown, f"dumps {files} of the passes {shown}")
    expect(len({number for number, _, _ in names}) == len(shown), f"a number for each pass: {files}")
    expect({variant for _, name, variant in names if name == shown[-1]} == {".x86-64-v2", ".x86-64-v3"}, f"dumps {files}")
    expect(all(os.path.getsize(os.path.join("dumps", file)) for file in files), "a dump is empty")

    report = json.loads(stridec(f"compile mlp.onnx -o dumped.so --time-passes --format=json {flags}", 0).stdout)
    rows = report["passes"]
    expect([row["pass"] for row in rows] == [name for name in table], f"times {rows}")
    expect(all(row["seconds"] > 0 and row["runs"] == (2 if row["pass"] == shown[-1] else row["runs"]) for row in rows), f"{rows}")
    expect(all((row["verifying_seconds"] > 0) == (row["pass"] in shown) for row in rows), f"a pass is not verified: {rows}")
    text = stridec("compile mlp.onnx -o dumped.so --time-passes --quiet", 0).stdout
    for name in ["stage", *table, "packing", "all"]:
        expect(re.search(rf"\b{name}\b", text), f"{name} is not in {text}")

    stopped = json.loads(stridec("compile mlp.onnx -o none.so --stop-after=lower --dump-after=lower --format=json", 0).stdout)
    expect([dump["pass"] for dump in stopped["dumps"]] == ["lower"] and "artifact" not in stopped, f"{stopped}")
    expect(not os.path.exists("none.so"), "--stop-after left an artifact")


def test_json_everywhere():
    for command in ("ops", "gradients", "modes", "options", "passes", "precisions", "targets", "backends", "exit-codes", "licenses", "licenses mlp.so", "check mlp.onnx", "inspect mlp.so",
                    "bench mlp.so --dim batch=2 --seconds 0.05", "compile mlp.onnx -o again.so"):  # fmt: skip
        done = stridec(f"{command} --format=json", 0)
        json.loads(done.stdout)
    for command in ("check missing.onnx", "compile empty.onnx -o out.so", "run missing.so", "bench missing.so",
                    "inspect missing.so", "verify missing.onnx"):  # fmt: skip
        done = stridec(f"{command} --format=json")
        error = json.loads(done.stdout)["error"]
        expect(error["exit_code"] == done.returncode != 0, f"{command}: {error}")


def test_progress():
    done = stridec("compile tower.onnx -o progress.so --no-cache --progress=json", 0)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    expect(lines and all({"stage", "done", "total"} <= set(line) for line in lines), done.stderr)
    expect(any(line["total"] > 1 for line in lines), "no stage counts")
    quiet = stridec("compile mlp.onnx -o progress.so --quiet", 0)
    expect(quiet.stderr == "" and quiet.stdout == "", f"--quiet prints {quiet.stderr}{quiet.stdout}")
    plain = stridec("compile mlp.onnx -o progress.so", 0)
    expect("\x1b" not in plain.stderr and "\r" not in plain.stderr, "control characters beside a terminal")
    expect("wrote" in plain.stderr, plain.stderr)


def test_memory_of_the_run():
    """A buffer whose size is data is shown as allocated during the run, and after which node."""
    text = stridec("inspect counted.onnx --stage=memory", 0).stdout
    expect("allocated during the run, size known after" in text and "count/Range" in text, text)
    buffers = json.loads(stridec("inspect counted.onnx --stage=memory --format=json", 0).stdout)["buffers"]
    made = [buffer for buffer in buffers if buffer["offset"] is None]
    expect(made and all("count/Range" in buffer["allocated_after"] for buffer in made), buffers)


def test_libc_alone():
    listing = subprocess.run(["readelf", "-dW", "mlp.so"], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", listing)
    expect(needed == ["libc.so.6"], f"needs {needed}")


def test_precisions():
    rows = {row["operation"]: row for row in json.loads(stridec("precisions --format=json", 0).stdout)}
    expect(rows["dot_general"] == {"operation": "dot_general", "fp32": "f32 factors, f32 sum", "tf32": "tf32 factors, f32 sum",
                                   "bf16": "bf16 factors, f32 sum", "fp16": "f16 factors, f32 sum"}, rows["dot_general"])
    expect(set(rows["exp"].values()) == {"exp", "f32"}, rows["exp"])
    expect(rows["reshape"]["bf16"] == "as its reader" and rows["reshape"]["fp32"] == "f32", rows["reshape"])


def test_gradients():
    rows = {row["operation"]: row for row in json.loads(stridec("gradients --format=json", 0).stdout)}
    expect(rows["sin"] == {"operation": "sin", "gradient": "x: g cos(x)", "note": ""}, rows["sin"])
    expect(rows["floor"] == {"operation": "floor", "gradient": "0", "note": "piecewise constant"}, rows["floor"])
    expect(all(row["gradient"] for row in rows.values()), rows)
    text = stridec("gradients max conv", 0).stdout
    expect(text.count("equal operands") == 1 and "conv_transpose(g, w)" in text and "softplus" not in text, text)
    page = stridec("gradients --format=md", 0).stdout
    expect(page.startswith("# Gradients\n") and page.count("\n| ") == len(rows) + 1, page[:200])
    expect("did you mean 'conv'?" in stridec("gradients conf", 1).stderr, "a misspelt operation")


def test_page_has_the_exit_codes():
    with open(os.path.join(ROOT, "docs", "commands.md"), encoding="utf-8") as file:
        rows = re.findall(r"^\| (\d+) \| ([a-z-]+) \|", file.read(), re.M)
    printed = [(row["code"], row["name"]) for row in json.loads(stridec("exit-codes --format=json", 0).stdout)]
    expect(rows == printed, f"docs/commands.md has {rows}, the program {printed}")


def test_version():
    """The first line is the program's; scripts read it."""
    lines = stridec("--version", 0).stdout.splitlines()
    expect(re.fullmatch(r"stridec \d+\.\d+\.\d+", lines[0]), lines)
    expect(re.fullmatch(r"revision \S+, LLVM 19\.\S+, ONNX \d+\.\d+\.\d+", lines[1]), lines)
    expect(re.fullmatch(r"C API \d+, artifact format \d+, manifest \d+\.\d+", lines[2]) and len(lines) == 3, lines)


def test_licenses():
    """Of the program all of LICENSE and NOTICE; of an artifact what it contains, as its manifest says."""
    text = stridec("licenses", 0).stdout
    for name in ("LICENSE", "NOTICE"):
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            expect(file.read() in text, f"{name} is not printed")
    everything = json.loads(stridec("licenses --format=json", 0).stdout)["licenses"]
    expect(all(len(row["text"]) > 60 and row["license"] and row["part_of"] for row in everything), everything)

    codecs = {"libjpeg-turbo", "libwebp", "OpenJPEG", "zlib"}
    always = {"stridec", "XXH64", "DLPack"}
    more = {"pocketfft", "Mersenne Twister"}
    expect(codecs | always | more < {row["name"] for row in everything}, everything)
    stridec("compile parts.onnx -o parts.so", 0)
    for name, parts, wanted in (("mlp", ["runtime"], always),
                                ("parts", ["fourier", "image", "mersenne", "runtime"], always | codecs | more)):  # fmt: skip
        for file in (name + ".so", name + ".json"):
            found = json.loads(stridec(f"licenses {file} --format=json", 0).stdout)
            expect(found["contains"] == parts and {row["name"] for row in found["licenses"]} == wanted, found)
        text = stridec(f"licenses {name}.so", 0).stdout
        expect(all(("Independent JPEG" in text) == (part in parts) for part in ["image"]), text)

    with open("mlp.json", encoding="utf-8") as file:
        manifest = json.load(file)
    del manifest["contains"]  # as manifests were before 1.1
    with open("older.json", "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    found = json.loads(stridec("licenses older.json --format=json", 0).stdout)
    expect(found["contains"] is None and codecs | always | more < {row["name"] for row in found["licenses"]}, found)
    expect("bad-manifest" in stridec("licenses text.onnx", 3).stderr, "not refused")
    expect(stridec("licenses missing.so").returncode == 2, "not refused")


def test_backends():
    rows = {(row["operation"], row["types"]): row["devices"] for row in json.loads(stridec("backends --format=json", 0).stdout)}
    listed = {row["target"] for row in json.loads(stridec("targets --format=json", 0).stdout)}
    expect(all(set(devices) == listed for devices in rows.values()), "a device is missing")
    primitives = {row["operation"] for row in json.loads(stridec("precisions --format=json", 0).stdout)} - {"call"}
    expect(primitives <= {operation for operation, _ in rows}, primitives - {operation for operation, _ in rows})
    expect(rows["add", ""]["x86-64-v2"] == {"by": "loops", "why_not_faster": ""}, rows["add", ""])
    expect(rows["image_decode", ""]["sm_90a"]["by"] == "refused" and rows["image_decode", ""]["sm_90a"]["why_not_faster"], rows["image_decode", ""])
    expect(rows["image_decode", ""]["x86-64-v3"]["by"] == "routine", rows["image_decode", ""])
    product = rows["dot_general", "bf16 x bf16 -> f32"]
    expect(product["sapphirerapids"] == {"by": "gemm.bf16", "why_not_faster": ""}, product)
    expect(product["x86-64-v3"]["by"] == "gemm.f32" and "read as f32" in product["x86-64-v3"]["why_not_faster"], product)
    expect(product["sm_90a"]["by"] == "wgmma" and product["sm_80"]["by"] == "mma", product)
    text = stridec("backends dot_general sort", 0).stdout
    expect("dot_general" in text and "sort" in text and "reshape" not in text, text)
    expect("did you mean 'sort'?" in stridec("backends sorte", 1).stderr, "a misspelt operation")
