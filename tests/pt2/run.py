"""PyTorch programs: python tests/pt2/run.py [name...]

The programs of tests/pt2/programs against PyTorch's results, in both forms; states over several runs; conditions that are
checked at run time; and damaged or foreign archives, each refused with a sentence and its exit code. Needs no PyTorch.
The last line is "N passed, N failed".
"""

import io
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

import compare
import old_archives
import operators
from samples import Samples

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
sys.path.insert(0, str(compare.ROOT / "python"))
import stridec  # noqa: E402

results = []


def expect(name, condition, detail=""):
    results.append(condition)
    if not condition:
        print(f"FAILED {name}: {detail}", flush=True)


def agree_with_pytorch(names, work):
    for path in sorted(PROGRAMS.glob("*.pt2")):
        name = path.name.removesuffix(".pt2")
        if name.removesuffix(".core") not in (names or [name.removesuffix(".core")]) or name.startswith("draws"):
            continue
        verdict, detail = compare.compare(path, PROGRAMS / (name.removesuffix(".core") + ".npz"), work / "model.so")
        expect(name, verdict == "agrees", f"{verdict} {detail}")


def build(work, name):
    artifact = work / f"{name}.so"
    reason = compare.compiled(PROGRAMS / f"{name}.pt2", artifact)
    expect(f"{name} compiles", reason is None, reason)
    return stridec.Model(str(artifact))


def keep_states(work):
    """buf_mut counts its runs in a buffer, writes rows of another one and its input."""
    for name in ("buf_mut", "buf_mut.core"):
        model = build(work, name)
        expect(f"{name} states", sorted(s.name for s in model.states) == ["hist", "n"], str(model.states))
        names = [o.name for o in model.outputs]
        expect(f"{name} outputs", names == ["output", "x.updated"], str(names))
        context = model.context(threads=1)
        hist, count = np.zeros((8, 4), np.float32), 0.0
        for step in range(4):
            x = np.full((2, 4), step + 1, np.float32)
            rows = np.array([step, step + 2])
            y, updated = (np.array(a) for a in context.run(x, rows))
            count += 1
            hist[rows] = x
            hist[:2] = np.arange(4)
            wanted = hist.sum(0) * [1, 2, 3, 4] + count + [5, 6, 7, 8]
            expect(f"{name} step {step}", np.array_equal(y, wanted.astype(np.float32)), f"{y} {wanted}")
            expect(f"{name} input of step {step}", np.array_equal(updated, 2 * x), str(updated))


def share_states(work):
    """A buffer that is a part of another one sees what is written through it, and the reverse, in later runs too."""
    model = build(work, "shared_buffers")
    expect("shared states", [s.name for s in model.states] == ["whole"], str(model.states))
    context = model.context(threads=1)
    x, wanted = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((4, 3), np.float32)
    for step in range(3):
        whole, rows = (np.array(a) for a in context.run(x))
        wanted[1:3] += x
        wanted[0] += 1
        expect(f"shared states in step {step}", np.array_equal(whole, wanted) and np.array_equal(rows, wanted[1:3]), f"{whole} {rows}")


def draw_numbers(work):
    """Distributions of random draws; runs differ, and a reset state repeats them."""
    for name in ("draws", "draws.core"):
        model = build(work, name)
        expect(f"{name} states", [s.name for s in model.states] == ["generator"], str(model.states))
        context = model.context(threads=1)
        x, p = np.ones((200, 100), np.float32), np.tile(np.linspace(0, 1, 100, dtype=np.float32), (200, 1))

        def run():
            return {o.name: np.array(v) for o, v in zip(model.outputs, context.run(x, p))}

        first, second = run(), run()
        context.reset_state()
        again = run()
        for output, value in first.items():
            expect(f"{name} {output} differs", not np.array_equal(value, second[output]))
            expect(f"{name} {output} repeats", np.array_equal(value, again[output]))

        # Mean, deviation and bounds. 20,000 draws: five standard errors are about 0.04 deviations.
        wanted = {"rand": (0.5, 0.2887, 0, 1), "randn": (0, 1, -6, 6), "randint": (0.5, 2.291, -3, 4),
                  "dropout": (1, 0.5774, 0, 1.334), "dropout_": (1, 0.5774, 0, 1.334), "channels": (1, 1, 0, 2),
                  "alpha": (0, 1, -9, 9), "normal_": (2, 3, -16, 20), "uniform_": (0, 0.5774, -1, 1),
                  "exponential_": (0.5, 0.5, 0, 9), "normal": (1, 0.5, -2, 4), "half": (0.5, 0.2887, 0, 1)}
        for output, (mean, deviation, low, high) in wanted.items():
            value = first[output].astype(np.float64)
            good = (abs(value.mean() - mean) < 0.04 * deviation and abs(value.std() - deviation) < 0.04 * deviation
                    and low <= value.min() and value.max() <= high)
            expect(f"{name} {output}", good, f"{value.mean()} {value.std()} {value.min()} {value.max()}")
        expect(f"{name} bernoulli", np.abs(first["bernoulli"].mean(0) - p[0]).max() < 0.2 and
               set(np.unique(first["bernoulli"])) == {0, 1})
        expect(f"{name} randperm", sorted(first["randperm"]) == list(range(50)), str(first["randperm"]))
        expect(f"{name} channels are whole", np.ptp(first["channels"].reshape(-1, 3), 1).max() == 0)
        expect(f"{name} one_of", abs(first["one_of"].mean() - 66) < 5, str(first["one_of"].mean()))
        four = first["four_of"]
        nines = (four == 9).mean()
        expect(f"{name} four_of", all(len(set(row)) == 4 for row in four) and abs(nines - 0.16) < 0.04, str(nines))


def draw_as_pytorch(work):
    """-O fallback_random gives the bits of PyTorch's generator, through several runs and sizes, and again after a new seed."""
    name, artifact, seed = "draws_of_torch", work / "torch.so", 20261130
    reason = compare.compiled(PROGRAMS / f"{name}.pt2", artifact, ["-O", "fallback_random=true"])
    expect(f"{name} compiles", reason is None, reason)
    if reason:
        return
    data, model = np.load(PROGRAMS / f"{name}.npz"), stridec.Model(str(artifact))
    for turn in ("first", "again"):
        model.manual_seed(seed)
        for call in range(3):
            results = model(data[f"i{call}_0"], data[f"i{call}_1"])
            results = list(results.values()) if isinstance(results, dict) else list(results)
            wrong = []
            for k, result in enumerate(results):
                expected = data[f"o{call}_{k}"]
                result = np.asarray(result).view(np.uint16) if expected.dtype == np.uint16 else np.asarray(result)
                # Numbers of f64 may differ in the last places of a logarithm or a cosine.
                same = np.allclose if expected.dtype == np.float64 else np.array_equal
                if result.dtype != expected.dtype or result.shape != expected.shape or not same(result, expected, **(
                        {"rtol": 1e-14, "atol": 1e-15} if expected.dtype == np.float64 else {})):
                    wrong.append(k)
            expect(f"{name}: call {call} {turn}", not wrong, f"results {wrong} are not PyTorch's")
    model.write_state("generator", np.full(628, -1))  # a seed of -1


def draw_for_gpus(_work):
    """For a GPU alone draws are those of PyTorch's generator there (tests/gpu/random_draws.py), except what is refused."""
    flags = ["-O", "fallback_random=true", "--gpu", "sm_90a", "--format=json"]
    code, text = check(PROGRAMS / "draws_of_torch.pt2", "--target", "cuda", *flags)
    problems = json.loads(text)["problems"] if code == 5 else []
    refused = sorted(p["message"].partition(",")[0] for p in problems)
    wanted = ["multinomial with replacement on a GPU"]
    expect("draws on a GPU", refused == wanted, f"exit {code}: {text[-300:]}")
    code, text = check(PROGRAMS / "draws_of_torch.pt2", "--target", "cpu,cuda", *flags)
    expect("draws on a CPU and a GPU", code == 5 and "'mersenne_draw' does not run on GPUs" in text, f"exit {code}: {text[-300:]}")


def check_conditions(work):
    def refused(model, sentence, *inputs):
        try:
            model.context(threads=1).run(*inputs)
            expect(sentence, False, "the run succeeds")
        except stridec.Error as error:
            expect(sentence, sentence in str(error), str(error))

    f32 = np.float32
    symexpr = build(work, "symexpr")
    good = symexpr.context(threads=1).run(np.ones((2, 10, 5), f32), np.ones(7, f32))
    expect("symexpr at other sizes", good[1].shape == (2 * 10 * 5 + 7,), str(good[1].shape))
    refused(symexpr, "x", np.ones((3, 9, 6), f32), np.ones(5, f32))  # an odd size for 2 * half
    nonzero = build(work, "nonzero_item")
    refused(nonzero, "Runtime assertion failed", np.ones(5, f32), np.int64(6))  # torch._check(k <= x.shape[0])
    sizes = nonzero.context(threads=1).run(np.array([1, -1, 0], f32), np.int64(2))
    expect("nonzero at another size", sizes[0].shape == (2, 1) and sizes[3].shape == (2, 3), str(sizes))
    plain = build(work, "plain")
    refused(plain, "image.1", np.ones((2, 10), f32), np.ones((2, 10), f32))  # Dim("w", min=3, max=9)
    expect("batch 1", plain.context(threads=1).run(np.ones((1, 3), f32), np.ones((1, 3), f32))[0].tolist() == [3.0])


def check_indices(work):
    """A row of the input is one operator's indices (write_programs.py). PyTorch refuses negative ones, save of the last five."""
    model = build(work, "indices")
    count = model.inputs[0].shape[0]
    for row in range(count):
        for index in (-1, 9):
            given = np.array([[0, 1]] * count)
            given[row] = [index, 1]
            error = ""
            try:
                model.context(threads=1).run(given)
            except stridec.Error as raised:
                error = str(raised)
            flat = row in (count - 4, count - 3)  # take and put, of 12 elements
            wanted = row < count - 5 if index < 0 else not flat
            good = bool(error) == wanted and (not error or f"index {index} is outside" in error)
            expect(f"index {index} in row {row}", good, error or "the run succeeds")


def archive(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in members.items():
            z.writestr(name, data)
    return out.getvalue()


def members(name):
    with zipfile.ZipFile(PROGRAMS / f"{name}.pt2") as z:
        return {n: z.read(n) for n in z.namelist()}


def edited(name, edit):
    """The archive of a program after edit(program, members)."""
    own = members(name)
    key = next(n for n in own if "/models/" in n)
    program = json.loads(own[key])
    edit(program, own)
    own[key] = json.dumps(program)
    return archive(own)


def fix_inputs(work):
    """--input-value: an integer input, and a tensor of integers; other values are refused."""
    artifact = work / "fixed.so"
    reason = compare.compiled(PROGRAMS / "nonzero_item.pt2", artifact, ["--input-value", "n=2"])
    expect("a fixed integer", reason is None, reason)
    if not reason:
        model = stridec.Model(str(artifact))
        x = np.array([1, -1, 0], np.float32)
        results = model.context(threads=1).run(x, np.int64(2))
        expect("a fixed integer's results", results[0].shape == (2, 1) and results[3].shape == (2, 3), str(results))
        try:
            model.context(threads=1).run(x, np.int64(1))
            expect("another value", False, "the run succeeds")
        except stridec.Error as error:
            expect("another value", "--input-value" in str(error), str(error))
    reason = compare.compiled(PROGRAMS / "buf_mut.pt2", artifact, ["--input-value", "pos=0,2"])
    expect("fixed indices", reason is None, reason)
    for name, word in (("nothing", "no input"), ("x", "integers")):
        run = subprocess.run([compare.STRIDEC, "check", str(PROGRAMS / "buf_mut.pt2"), "--input-value", f"{name}=1"],
                             capture_output=True, text=True, timeout=100)
        expect(f"--input-value {name}", run.returncode == 1 and word in run.stderr, f"exit {run.returncode} {run.stderr}")


def agree_on_samples(work):
    """PyTorch's own samples of operators, a fixed part of them; `python tests/pt2/operators.py` runs all."""
    for path in sorted((HERE / "samples").glob("*.pt2")):
        samples = Samples(path)
        wrong = operators.wrong_results(samples, samples.all, path.with_suffix(".npz"), work)
        for sample, why in wrong:
            expect(f"{path.name} {sample.operator()}", False, f"{why} {sample.arguments()}")
        results.extend([True] * (len(samples.all) - len(wrong)))


def leave_out_what_nobody_reads(work):
    """An unsupported operator whose result is unused changes nothing; one that overwrites a value that is read does."""

    def add_node(target, of_input):
        def edit(program, _own):
            graph = program["graph_module"]["graph"]
            name = graph["inputs"][-1] if of_input else graph["nodes"][0]["outputs"][0]
            graph["nodes"].insert(1, {"target": target, "inputs": [{"name": "self", "arg": name}], "metadata": {},
                                      "outputs": [{"as_tensor": {"name": "unused"}}], "name": "unused"})
        return edit

    for target, of_input, code in (("torch.ops.aten._add_relu.Tensor", True, 0), ("torch.ops.aten._add_relu.Tensor", False, 0),
                                   ("torch.ops.aten._add_relu_.Tensor", False, 5), ("torch.ops.aten._add_relu_.Tensor", True, 5)):
        path = work / "unused.pt2"
        path.write_bytes(edited("tied", add_node(target, of_input)))
        run = subprocess.run([compare.STRIDEC, "check", str(path)], capture_output=True, text=True, timeout=100)
        expect(f"unused {target} {of_input}", run.returncode == code, f"exit {run.returncode}: {(run.stdout + run.stderr)[-300:]}")


def drop_payloads(_program, own):
    """All weights in one empty member, as torch.export.save writes fake tensors."""
    config = next(n for n in own if n.endswith("_weights_config.json"))
    stored = json.loads(own[config])
    for entry in stored["config"].values():
        entry["path_name"] = "weight_0"
    own[config] = json.dumps(stored)
    for n in list(own):
        if "/weight_" in n:
            own[n] = b""


def stored_weights(name):
    """The contiguous f32 parameters of a program, by name."""
    own = members(name)
    config = next(n for n in own if n.endswith("_weights_config.json"))
    found = {}
    for weight, entry in json.loads(own[config])["config"].items():
        shape = [size["as_int"] for size in entry["tensor_meta"]["sizes"]]
        data = own[config.rsplit("/", 1)[0] + "/" + entry["path_name"]]
        found[weight] = np.frombuffer(data, np.float32).reshape(shape)
    return found


def write_safetensors(path, arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def check(path, *flags):
    run = subprocess.run([compare.STRIDEC, "check", str(path), *flags], capture_output=True, text=True, timeout=100)
    return run.returncode, run.stdout + run.stderr


def refuse_unknown_storages(work):
    """Without values nothing says that one buffer is a part of the other, which the program writes."""
    fake, weights = work / "fake_shared.pt2", work / "shared.safetensors"
    fake.write_bytes(edited("shared_buffers", drop_payloads))
    write_safetensors(weights, {"whole": np.zeros((4, 3), np.float32), "rows": np.zeros((2, 3), np.float32)})
    code, text = check(fake, f"--weights-from={weights}")
    expect("a view of an unknown storage", code == 5 and "'rows' is a part of a larger storage" in text, f"exit {code}: {text}")


def take_weights_from_files(work):
    """A program of fake tensors takes its weights from safetensors files; wrong and superfluous ones are refused."""
    name, fake = "lstm_states", work / "fake.pt2"
    fake.write_bytes(edited(name, drop_payloads))
    weights = stored_weights(name)
    halves = [dict(list(weights.items())[i::2]) for i in (0, 1)]
    files = [work / "first.safetensors", work / "second.safetensors"]
    for path, half in zip(files, halves):
        write_safetensors(path, half)
    flags = [f"--weights-from={path}" for path in files]
    reason = compare.compiled(fake, work / "fake.so", flags)
    expect("weights of files", reason is None, reason)
    if not reason:
        data = np.load(PROGRAMS / f"{name}.npz")
        results = stridec.Model(str(work / "fake.so")).context(threads=1).run(data["i0"])
        expect("results with weights of files", all(np.allclose(r, data[f"o{i}"], atol=1e-5) for i, r in enumerate(results)))
    write_safetensors(work / "wrong.safetensors", {key: value.T.copy() for key, value in weights.items()})
    cases = {"half of the weights": (fake, flags[:1], "has no value for"), "none of the weights": (fake, [], "--weights-from"),
             "weights of other shapes": (fake, [f"--weights-from={work / 'wrong.safetensors'}"], "but the program's is"),
             "weights twice": (fake, flags[:1] * 2, "two files"),
             "weights that the file has": (PROGRAMS / f"{name}.pt2", flags, "has its weights itself")}  # fmt: skip
    for case, (path, given, word) in cases.items():
        code, text = check(path, *given)
        expect(case, code == (1 if given else 5) and word in text, f"exit {code}: {text}")


def choose_programs(work):
    """--method chooses one of several programs in a file; functions may be of several."""
    own = members("tied")
    root = next(iter(own)).split("/")[0]
    for n, data in members("plain").items():  # it has no weights
        kind, _, member = n.partition("/")[2].rpartition("/")
        if member.startswith("model"):
            own[f"{root}/{kind}/{member.replace('model', 'plain', 1)}"] = data
    path = work / "several.pt2"
    path.write_bytes(archive(own))
    for flags, word in (([], "holds 2 programs: model, plain"), (["--method", "third"], "no program 'third' but model, plain")):
        code, text = check(path, *flags)
        expect(f"several programs {flags}", code == 1 and word in text, f"exit {code}: {text}")
    functions = ["compile", "--function", f"a={path}", "--function", f"b={path}", "--method", "a:plain", "--method", "b:model"]
    for name, flags in (("plain", [str(path), "--method", "plain"]), ("several", functions[1:])):
        done = subprocess.run([compare.STRIDEC, "compile", *flags, "-o", str(work / "chosen.so")], capture_output=True, text=True)
        expect(f"compile {flags}", done.returncode == 0, done.stderr)
        if done.returncode == 0:
            model = stridec.Model(str(work / "chosen.so"))
            data = np.load(PROGRAMS / "plain.npz")
            (result,) = model.context(threads=1).run(data["i0"], data["i1"])
            expect(f"{name}'s result", np.allclose(result, data["o0"], atol=1e-5))
    model = stridec.compile(str(path), method="plain", output=str(work / "plain.so"))
    expect("the convention of a chosen program", model.inputs[0].name == "image", str(model.inputs))


def read_older_layouts(work):
    for name in ("tied", "symexpr", "buf_mut", "inplace_views.core"):
        for release in ("2.7", "2.8"):
            path = work / f"{name}.pt2"
            path.write_bytes(old_archives.rewritten(PROGRAMS / f"{name}.pt2", release))
            verdict, detail = compare.compare(path, PROGRAMS / (name.removesuffix(".core") + ".npz"), work / "model.so")
            expect(f"{name} as of PyTorch {release}", verdict == "agrees", f"{verdict} {detail}")


def refuse(work):
    whole = (PROGRAMS / "tied.pt2").read_bytes()
    root = next(iter(members("tied"))).split("/")[0]
    program = members("tied")[f"{root}/models/model.json"]

    def shorten_payload(_program, own):
        n = next(n for n in own if n.endswith("/weight_0"))
        own[n] = own[n][:8]

    def change(path, value):
        def edit(program, _own):
            at = program
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
        return edit

    node = ["graph_module", "graph", "nodes", 0]
    deep = "[" * 100_000
    cases = {
        "truncated": (whole[:-40], 3, "bad-archive"),
        "half": (whole[: len(whole) // 2], 3, "bad-archive"),
        "empty archive": (archive({}), 3, "malformed-model"),
        "a state dict": (archive({"archive/data.pkl": b"\x80\x02}.", "archive/version": b"3"}), 5, "checkpoint"),
        "an old archive without a program": (archive({"serialized_exported_program.json": b"{}"}), 3, "bad-program"),
        "a pickle of nothing": (archive({"serialized_exported_program.json": program,
                                         "serialized_state_dict.pt": archive({"a/data.pkl": b"\x80\x02."})}), 3, "bad-program"),
        "a pickle that runs code": (archive({"serialized_exported_program.json": program, "serialized_state_dict.pt":
                                             archive({"a/data.pkl": b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR."})}),
                                    3, "bad-program"),
        "a deep pickle": (archive({"serialized_exported_program.json": program, "serialized_state_dict.pt":
                                   archive({"a/data.pkl": b"\x80\x02)" + b"\x85" * 100_000 + b"."})}), 3, "bad-program"),
        "no program": (archive({f"{root}/archive_format": b"pt2"}), 3, "no-program"),
        "not JSON": (archive({**members("tied"), f"{root}/models/model.json": b"{"}), 3, "bad-program"),
        "deep JSON": (archive({**members("tied"), f"{root}/models/model.json": deep}), 3, "bad-program"),
        "two programs": (archive({**members("tied"), f"{root}/models/other.json": b"{}"}), 1, "model, other"),
        "big-endian": (archive({**members("tied"), f"{root}/byteorder": b"big"}), 5, "byte-order"),
        "no weights": (edited("tied", drop_payloads), 5, "no-weights"),
        "short weights": (edited("tied", shorten_payload), 3, "bad-program"),
        "major version": (edited("tied", change(["schema_version", "major"], 9)), 5, "schema-version"),
        "unknown operator": (edited("tied", change([*node, "target"], "torch.ops.aten.no_such.default")), 5, "unsupported-op"),
        "unknown name": (edited("tied", change([*node, "inputs", 0, "arg"], {"as_tensor": {"name": "?"}})), 3, "bad-program"),
        "nodes of another kind": (edited("tied", change(["graph_module", "graph", "nodes"], 7)), 3, "bad-program"),
        "a bomb": (archive({f"{root}/archive_format": b"pt2", f"{root}/models/model.json": b" " * 50_000_000},
                           zipfile.ZIP_DEFLATED), 3, "bad-program"),
    }
    for name, (data, code, word) in cases.items():
        path = work / "hostile.pt2"
        path.write_bytes(data)
        run = subprocess.run([compare.STRIDEC, "check", str(path)], capture_output=True, text=True, timeout=100)
        text = run.stdout + run.stderr
        expect(name, run.returncode == code and word in text, f"exit {run.returncode}: {text.strip()[:300]}")


def main():
    names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        agree_with_pytorch(names, work)
        if names == ["draws"]:
            draw_numbers(work)
            draw_as_pytorch(work)
            draw_for_gpus(work)
        if not names:
            keep_states(work)
            share_states(work)
            draw_numbers(work)
            draw_as_pytorch(work)
            draw_for_gpus(work)
            check_conditions(work)
            check_indices(work)
            read_older_layouts(work)
            agree_on_samples(work)
            fix_inputs(work)
            leave_out_what_nobody_reads(work)
            take_weights_from_files(work)
            refuse_unknown_storages(work)
            choose_programs(work)
            refuse(work)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


main()
