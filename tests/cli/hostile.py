"""Serialized graphs, tuning databases and models that no program wrote: each is refused with a sentence and the documented exit
code, and nothing is left behind."""

import os
import random
import resource
import struct

import models
import numpy as np
from harness import contents, expect, stridec


# ---- serialized graphs: a message of schemas/graph.proto behind a header


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, content):
    """One field: an int, text, bytes, or the fields of a message."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    if isinstance(content, list):
        content = b"".join(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def ids(number, *items):
    return field(number, b"".join(varint(i) for i in items))


def graph_value(name, *shape, dtype="f32", extra=()):
    return field(4, [field(1, name), field(2, dtype), *(field(3, d) for d in shape), *extra])


def node(op, inputs, outputs, *extra):
    return field(5, [field(1, op), ids(2, *inputs), ids(3, *outputs), *extra])


def top(parameters, nodes, results):
    return field(6, [ids(1, *parameters), ids(2, *nodes), ids(3, *results)])


def graph_file(fields, tail=b"", length=None):
    message = b"".join(fields)
    head = b"SDGRAPH\1" + struct.pack("<Q", len(message) if length is None else length)
    whole = head + message
    return whole + bytes(-len(whole) % 64) + tail


NAMES = [field(7, "x"), field(8, "y")]


def one_node(op="neg", shape=("4",), made=("4",), more=(), inputs=(0,), outputs=(1,), results=(1,)):
    return [field(1, "g"), graph_value("x", *shape), graph_value("y", *made), node(op, inputs, outputs, *more),
            top([0], [0], results), *NAMES]  # fmt: skip


def constant(offset, size, *shape, dtype="f32"):
    return [field(1, "g"), graph_value("x", "4"), graph_value("c", *shape, dtype=dtype, extra=[field(4, [field(1, offset), field(2, size)])]),
            graph_value("y", "4"), node("constant", [], [1]), node("add", [0, 1], [2]), top([0], [0, 1], [2]), *NAMES]  # fmt: skip


def nested(depth):
    """The top region's node holds a region in a region in a region, each of a node that names itself."""
    region = [ids(1, 0), ids(2, 0), ids(3, 1)]
    return one_node("if", more=[field(5, region)] * depth)


def hostile_graphs():
    """what it is: (bytes, exit code of check, of compile, part of the sentence)."""
    big = str(2**63 - 1)

    def symbol(*more, name="n", input=0, dim=0, multiple=1):
        return field(2, [field(1, name), field(5, 1), field(6, input), field(7, dim), field(8, multiple), *more])

    def sized(text, *before):
        return graph_file([*before, *one_node(shape=(text,), made=(text,))])

    refused = {
        "a length beyond the file": (graph_file(one_node(), length=1 << 40), "it is truncated"),
        "a length of 2^64 - 1": (graph_file(one_node(), length=2**64 - 1), "it is truncated"),
        "a message of noise": (graph_file([random.Random(3).randbytes(500)]), "the message is damaged"),
        "another version": (b"SDGRAPH\2" + graph_file(one_node())[8:], "version 2, this build reads 1"),
        "an op of another build": (graph_file(one_node("fly")), "'fly' is not an op of this build"),
        "an input that is not there": (graph_file(one_node(inputs=(7,))), "id 7 is out of range"),
        "an output that is not there": (graph_file(one_node(outputs=(2**32 - 1,))), "id 4294967295 is out of range"),
        "a result that is not there": (graph_file(one_node(results=(9,))), "id 9 is out of range"),
        "a node that reads itself": (graph_file(one_node(inputs=(1,))), "node 0 (neg) uses %1 before it is made"),
        "too few inputs": (graph_file(one_node("add")), "node 0 (add): node.inputs.size() >= low"),
        "another shape than the op makes": (graph_file(one_node(made=("5",))), "has results f32[5] where f32[4] follows"),
        "a dtype that is none": (graph_file([graph_value("x", dtype="f33")]), "'f33' is not a dtype"),
        "a negative dim": (sized("-4"), "value %0 has a dim of size -4"),
        "a dim of 2^63": (sized(str(2**63)), "the number does not fit in 64 bits"),
        "a dim that is not an expression": (sized("4 +"), "the expression ends too early"),
        "a dim of a symbol that is not declared": (sized("n"), "the shape of %0 mentions n, which is not a symbol of the graph"),
        "a dim in 100,000 brackets": (sized("(" * 100000 + "4" + ")" * 100000), "the expression is longer than 64 KiB"),
        "a dim in 30,000 brackets": (sized("(" * 30000 + "4" + ")" * 30000), "nested"),
        "a rank of 100,000": (graph_file(one_node(shape=("1",) * 100000, made=("1",) * 100000)), "this build knows up to 256"),
        "a symbol without a name": (sized("4", field(2, [field(3, 4)])), "a symbol without a name"),
        "a symbol whose bounds cross": (sized("n", symbol(field(2, 9), field(3, 1))), "symbol n lies between 9 and 1"),
        "a symbol of another input": (sized("n", symbol(input=5)), "symbol n comes from no dim of an input"),
        "a symbol of the dim -1": (sized("n", symbol(dim=-1)), "symbol n comes from no dim of an input"),
        "a symbol in steps of zero": (sized("n", symbol(multiple=0)), "symbol n comes from no dim of an input"),
        "a guard that cannot hold": (sized("4", field(3, [field(1, "0"), field(2, "x is odd")])), "a guard never holds: x is odd"),
        "a guard that says nothing": (sized("4", field(3, [field(2, "?")])), "the expression ends too early"),
        "a constant beyond the file": (graph_file(constant(1 << 40, 16, "4")), "a constant is outside the file"),
        "a constant whose end wraps around": (graph_file(constant(64, 2**64 - 64, "4"), bytes(128)), "outside the file"),
        "a constant between two places": (graph_file(constant(4, 16, "4"), bytes(128)), "a constant is outside the file"),
        "a constant shorter than its shape": (graph_file(constant(0, 4, "4"), bytes(64)), "a constant of f32[4] has 4 bytes"),
        "a constant of 2^62 elements": (graph_file(constant(0, 16, str(1 << 62)), bytes(64)), "has 16 bytes"),
        "a constant of 2^65 bytes": (graph_file(constant(0, 0, *[str(1 << 31)] * 2, dtype="f64"), bytes(64)), "has 0 bytes"),
        "an attribute without a value": (graph_file(one_node(more=[field(4, [field(1, "a")])])), "attribute 'a' has no value"),
        "10,000 regions of the node itself": (graph_file(nested(10000)), "node 0, which does not exist or stands elsewhere"),
        "a state that is not there": (graph_file(one_node() + [field(9, [field(1, "s"), field(2, 77)])]), "out of range"),
        "more names than inputs": (graph_file(one_node() + [field(7, "z")] * 1000), "parameters are not the inputs"),
    }  # fmt: skip
    return {what: (data, 3, 3, sentence) for what, (data, sentence) in refused.items()} | {
        # Of a size that no memory holds, but of a form that is right.
        "a dim of 2^63 - 1": (graph_file(one_node(shape=(big, big), made=(big, big))), 4, 4, "does not fit in 64 bits"),
        "a symbol in steps of 2^62": (sized("n * 4611686018427387904", symbol(multiple=1 << 62)), 4, 4, "does not fit in 64 bits"),
        "nothing at all": (graph_file([]), 0, 0, ""),
    }


def test_serialized_graphs():
    for what, (data, checked, compiled, sentence) in hostile_graphs().items():
        with open("hostile.graph", "wb") as file:
            file.write(data)
        before = contents()
        done = stridec("check hostile.graph")
        expect(done.returncode == checked, f"{what}: check: exit code {done.returncode}: {done.stderr}")
        expect(checked == 0 or sentence in done.stderr and done.stderr.startswith("error["), f"{what}: {done.stderr}")
        expect("defect" not in done.stderr and len(done.stderr) < 6000, f"{what}: {done.stderr}")
        done = stridec("compile hostile.graph -o hostile.so --max-seconds 20 --max-memory 1GB")
        expect(done.returncode == compiled and sentence in done.stderr, f"{what}: compile: {done.returncode}: {done.stderr}")
        if compiled == 0:
            os.remove("hostile.so")
            os.remove("hostile.json")
        expect(contents() == before, f"{what}: left {sorted(contents().items() ^ before.items())}")
    os.remove("hostile.graph")


def test_altered_graphs():
    """A serialized graph with bytes changed, removed or repeated, header included."""
    rng = random.Random(12)
    for model in ("mlp", "gather", "repeated"):
        stridec(f"inspect {model}.onnx --write-graph good.graph", 0)
        with open("good.graph", "rb") as file:
            good = file.read()
        for number in range(40):
            data = bytearray(good)
            for _ in range(rng.randint(1, 3)):
                at, kind = rng.randrange(min(len(data), 1500)), rng.randrange(3)
                if kind == 0:
                    data[at] ^= 1 << rng.randrange(8)
                elif kind == 1:
                    del data[at : at + rng.randint(1, 8)]
                else:
                    data[at:at] = data[at : at + rng.randint(1, 64)]
            with open("altered.graph", "wb") as file:
                file.write(data)
            done = stridec("check altered.graph")
            expect(done.returncode in (0, 3, 4, 5), f"{model} {number}: exit code {done.returncode}: {done.stderr}")
    os.remove("good.graph")
    os.remove("altered.graph")


# ---- tuning databases


def test_tuning_databases():
    """Lines that were not written by a tuner: refused with file and line, by whoever reads them, and the file stays as it is."""
    stridec("tune mlp.onnx --tune-db hostile.txt", 0)
    with open("hostile.txt", encoding="utf-8") as file:
        good = file.read()
    line = next(line for line in good.splitlines() if " us" not in line and "us " in line)
    fields = line.split(" | ")
    key, times = fields[0].split(" "), fields[1].split(" ")

    def other(at, text):
        return " | ".join([" ".join(key[:at] + [text] + key[at + 1 :])] + fields[1:])

    def timed(at, text):
        return " | ".join([fields[0], " ".join(times[:at] + [text] + times[at + 1 :])] + fields[2:])

    bad = {
        "cut short": line[: len(line) // 3],
        "no fields": " | ".join(["", "", "", ""]),
        "one field more": line.replace(" | ", " | | ", 1),
        "no threads": other(3, "none"),
        "-1 threads": other(3, "-1"),
        "2^64 threads": other(3, str(2**64)),
        "a time that is none": timed(0, "soonus"),
        "a negative time": timed(0, "-3us"),
        "an endless time": timed(0, "infus"),
        "a time of NaN": timed(1, "nanus"),
        "-5 tries": timed(3, "-5"),
        "a million characters": "x" * 1000000,
        "a zero byte": line.replace(" ", "\0", 1),
        "another language": "{\"kernels\": []}",
        "a lesson without numbers": "learned znver5 2 0.1.0-1b4f0e98 | | gemm",
        "a lesson of NaN": "learned znver5 2 0.1.0-1b4f0e98 | 1 nan 1 | gemm",
    }  # fmt: skip
    for what, text in bad.items():
        with open("hostile.txt", "w", encoding="utf-8") as file:
            file.write(good + text + "\n")
        before = contents()
        number = len(good.splitlines()) + 1
        for command in ("tune show hostile.txt", "tune prune hostile.txt", "tune merge hostile.txt -o merged.txt",
                        "compile mlp.onnx -o hostile.so --tune-db hostile.txt"):  # fmt: skip
            done = stridec(command)
            expect(done.returncode == 3 and "error[bad-tuning]" in done.stderr, f"{what}: {command}: {done.returncode}: {done.stderr}")
            expect(f"hostile.txt:{number}" in done.stderr or f"line {number}" in done.stderr, f"{what}: {done.stderr}")
            expect(len(done.stderr) < 3000, f"{what}: a message of {len(done.stderr)} characters")
            expect(contents() == before, f"{what}: {command} left {sorted(contents().items() ^ before.items())}")
    # A schedule that this kernel cannot have: it gets the default one.
    with open("hostile.txt", "w", encoding="utf-8") as file:
        file.write(good.replace(line, " | ".join([*fields[:2], "tasks %i0; chunk 0; grain -5; vectorize %i9 3", fields[3]])))
    stridec("compile mlp.onnx -o hostile.so --tune-db hostile.txt", 0)
    stridec("run hostile.so --input x=good.npy --output y=hostile.npy", 0)
    for left in ("hostile.so", "hostile.json", "hostile.npy"):
        os.remove(left)
    os.remove("hostile.txt")


# ---- models


def branches(depth):
    """A model of one If, whose branch holds an If, and so on: what no library for models would write."""
    identity = field(1, [field(1, "x"), field(2, "y"), field(4, "Identity")])

    def body(node):
        return [node, field(2, "body"), field(12, [field(1, "y")])]

    graph = body(identity)
    for _ in range(depth):
        attributes = [field(5, [field(1, name), field(6, inner), field(20, 5)])
                      for name, inner in (("then_branch", graph), ("else_branch", body(identity)))]  # fmt: skip
        graph = body(field(1, [field(1, "c"), field(2, "y"), field(4, "If"), *attributes]))
    inputs = [field(11, [field(1, name), field(2, [field(1, [field(1, kind), field(2, shape)])])])
              for name, kind, shape in (("x", 1, [field(1, [field(1, 4)])]), ("c", 9, b""))]  # fmt: skip
    return b"".join([field(1, 9), field(8, [field(2, 18)]), field(7, graph + inputs)])


def test_nested_branches():
    for depth, code, sentence in ((10, 0, ""), (100, 3, "nested more than 100 deep"), (3000, 3, "nested more than 100 deep")):
        with open("nested.onnx", "wb") as file:
            file.write(branches(depth))
        done = stridec("check nested.onnx", code)
        expect(sentence in done.stderr, f"{depth}: {done.stderr}")
    os.remove("nested.onnx")


def test_sizes_of_inputs():
    """Inputs of sizes that 64 bits do not hold."""
    for dims in ([2**63 - 1], [2**62, 4], [2**31] * 3, [2**40, 0, 2**40]):
        made = models.model([models.helper.make_node("Neg", ["x"], ["y"])], [models.value("x", dims)], [models.value("y", None)])
        with open("sized.onnx", "wb") as file:
            file.write(made.SerializeToString())
        done = stridec("compile sized.onnx -o sized.so")
        expect(done.returncode == 4 and "error[size-overflow]" in done.stderr, f"{dims}: {done.returncode}: {done.stderr}")
        stridec("check sized.onnx", 4)
    os.remove("sized.onnx")


def test_large_attributes():
    """Windows, constants and counts that are huge and right: what passes the check is compiled, without computing them."""
    make, big = models.helper.make_node, 1 << 40
    cases = {
        "pool": ([make("AveragePool", ["x"], ["y"], kernel_shape=[big])], {}),
        "stride": ([make("MaxPool", ["x"], ["y"], kernel_shape=[3], strides=[big])], {}),
        "dilation": ([make("MaxPool", ["x"], ["y"], kernel_shape=[3], dilations=[big])], {}),
        "sum": ([make("ConstantOfShape", ["s"], ["t"]), make("ReduceSum", ["t"], ["u"]), make("Add", ["x", "u"], ["y"])], {"s": [big]}),
        "range": ([make("Expand", ["x", "s"], ["t"]), make("ReduceMax", ["t"], ["y"])], {"s": [big, 1, 1]}),
    }
    for what, (nodes, constants) in cases.items():
        weights = [(name, np.array(data)) for name, data in constants.items()]
        made = models.model(nodes, [models.value("x", [1, 1, "n"])], [models.value("y", None)], weights)
        with open("large.onnx", "wb") as file:
            file.write(made.SerializeToString())
        for dims in ("", " --dim n=0..9223372036854775807"):
            codes = [stridec(command + dims).returncode for command in ("check large.onnx", "compile large.onnx -o large.so --max-seconds 50")]
            expect(codes == [0, 0], f"{what}{dims}: check ends with {codes[0]}, compile with {codes[1]}")
    for name in ("large.onnx", "large.so", "large.json"):
        os.remove(name)


def seconds_of(arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    stridec(arguments, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_time_of_check():
    """A second of processor time, reading included, whatever the nodes and the weights."""
    make = models.helper.make_node
    matrix = np.zeros((4, 4), np.float32)
    kinds = (lambda a, b: make("MatMul", [a, "w"], [b]), lambda a, b: make("Softmax", [a], [b]), lambda a, b: make("Add", [a, "x"], [b]),
             lambda a, b: make("Transpose", [a], [b], perm=[1, 0, 2]))  # fmt: skip
    nodes = [kinds[i % 4](f"t{i}" if i else "x", f"t{i + 1}") for i in range(20000)]
    long = models.model(nodes, [models.value("x", ["n", "n", 4])], [models.value("t20000", None)], [("w", matrix)])
    names = [f"w{i}" for i in range(16)]
    nodes = [make("MatMul", [f"t{i}" if i else "x", name], [f"t{i + 1}"]) for i, name in enumerate(names)]
    heavy = models.model(nodes, [models.value("x", ["n", 8192])], [models.value("t16", None)])
    for i, name in enumerate(names):  # 4 GiB in a file without blocks
        tensor = heavy.graph.initializer.add(name=name, data_type=models.F32, dims=[8192, 8192], data_location=1)
        for key, value in (("location", "heavy.bin"), ("offset", str(i << 28)), ("length", str(1 << 28))):
            tensor.external_data.add(key=key, value=value)
    with open("heavy.bin", "wb") as file:
        file.truncate(16 << 28)
    for name, made in (("long", long), ("heavy", heavy)):
        with open(f"{name}.onnx", "wb") as file:
            file.write(made.SerializeToString())
        seconds = seconds_of(f"check {name}.onnx")
        expect(seconds < 1, f"check of the {name} model takes {seconds:.2f} s")
        os.remove(f"{name}.onnx")
    os.remove("heavy.bin")
