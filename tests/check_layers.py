"""Checks every #include against the table of layers, that no two folders and no two units include each other, and that
frontends leave computing to compiler/ops.

The table says which folder may include which other, and which files may include which foreign library. Within a layer any
order of folders and units (a header with its source files) will do, as long as there is one. Prints a line for each include
that breaks the table, a line for each cycle, then "N passed, N failed": files, the folders as one, the units as one.
"""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folder -> the folders that its files may include, besides itself. compiler/base and compiler/sym are open to every
# compiler folder above them. The longest matching folder counts: compiler/codegen/cpu is not compiler/codegen/cuda.
BASE, SYM, GRAPH, LOOP = "compiler/base", "compiler/sym", "compiler/graph", "compiler/loop"
OPS, KERNELS, SCHEDULE, CODEGEN = "compiler/ops", "compiler/kernels", "compiler/schedule", "compiler/codegen"
RUNTIME_API, SCHEMAS, IMAGE = "runtime/include", "schemas", "runtime/image"
TABLE = {
    RUNTIME_API: [],
    SCHEMAS: [],
    BASE: [],
    SYM: [BASE],
    "runtime": [RUNTIME_API],
    IMAGE: [],
    GRAPH: [BASE, SYM, SCHEMAS],
    LOOP: [BASE, SYM, IMAGE],
    OPS: [BASE, SYM, GRAPH, LOOP],
    KERNELS: [BASE, SYM, LOOP],
    "compiler/frontend": [BASE, SYM, GRAPH, OPS, SCHEMAS],
    "compiler/passes": [BASE, SYM, GRAPH, LOOP, OPS],
    "compiler/train": [BASE, SYM, GRAPH, OPS],
    "compiler/extend": [BASE, SYM, GRAPH, LOOP, OPS, RUNTIME_API],
    SCHEDULE: [BASE, SYM, LOOP, KERNELS],
    CODEGEN: [BASE, SYM, LOOP, KERNELS, SCHEDULE, RUNTIME_API, IMAGE],
    "compiler/tune": [BASE, SYM, LOOP, KERNELS, SCHEDULE, CODEGEN, RUNTIME_API, "runtime"],
    "compiler/package": [BASE, SYM, LOOP, SCHEDULE, CODEGEN, SCHEMAS, RUNTIME_API],
    "compiler": ["compiler", SCHEMAS, RUNTIME_API],
    "cli": ["compiler", RUNTIME_API],
}
# Backends, and frontends, do not include each other. Folders that several of them share are exempt.
SHARED = ["compiler/frontend/aten", "compiler/frontend/common", "compiler/frontend/pickle"]
SIBLINGS = [folder.relative_to(ROOT).as_posix() for parent in ("compiler/codegen", "compiler/frontend")
            for folder in sorted((ROOT / parent).iterdir())
            if folder.is_dir() and folder.relative_to(ROOT).as_posix() not in SHARED]

# A foreign library's header prefix -> where it may be included.
FOREIGN = {
    "clang/": ["compiler/codegen/cpu/clang.cpp"],
    "llvm/": ["compiler/codegen/cpu/clang.cpp", "compiler/codegen/cpu/jit.cpp", "compiler/codegen/cpu/link.cpp",
              "compiler/codegen/cpu/llvm.cpp"],
    "lld/": ["compiler/codegen/cpu/link.cpp"],
    "onnx/": ["compiler/frontend/onnx/", "cli/"],
    "google/protobuf": ["compiler/frontend/", "compiler/graph/serialize"],
    "schemas/": ["compiler/graph/serialize"],
    "CLI/": ["cli/"],
    "nlohmann/": ["compiler/package/", "compiler/tune/", "cli/", "compiler/frontend/pt2/json.h",
                  "compiler/extend/json_place.h", "compiler/extend/draft_operators.cpp"],
    "zlib.h": ["compiler/base/zip.cpp", "runtime/image/", "cli/npz.cpp"],
    "nvrtc": ["compiler/codegen/cuda/nvrtc.cpp"],
    "runtime/src/": ["compiler/tune/gpu_worker.cpp", "compiler/tune/gpu_device.cpp"],
}

# A frontend decodes names, versions, attributes and optional inputs; compiler/ops says what an operator means, for every
# frontend. So a frontend adds no primitives and does no arithmetic on values. Reshapes, permutations and casts, which lay out
# what it reads, are not counted. Exceptions: file -> (the most calls and operators that it may have, why).
DECODERS = "compiler/frontend/onnx/"
COMPUTES = {
    "contrib": (1, "tanh, an activation that an attribute names"),
    "contrib_attention": (4, "parts of packed rows, and keys and values that are one output"),
    "contrib_quantized": (4, "one primitive between dequantising and quantising"),
    "control_flow": (5, "rows of a loop's inputs and outputs, and the empty output of a loop that never runs"),
    "indexing": (3, "Gather, the two values of OneHot's input, and NonZero of a scalar"),
    "pointwise": (8, "rows that are one primitive each"),
    "recurrent": (2, "the weights of one direction"),
    "sequence": (2, "a tensor from a sequence and a sequence from a tensor"),
    "shape_ops": (1, "Concat"),
}
COMPUTATION = re.compile(
    r"\badd1?\(\s*OpKind|\bapply\(|(?<!sym::)(?<!std::)\b(?:exp|log|sqrt|rsqrt|rcp|abs|square|erf|tanh|pow|minimum|maximum|"
    r"less(?:_equal)?|greater(?:_equal)?|equal|logical_(?:not|and|or)|select|fma|subtract_from|divide_into|"
    r"reduce(?:_sum|_max|_min|_mean)?|index_along|filled|dot_general|gather|concat|slice)\(")
# The names that a file gives to Terms: one declaration may have several.
TERM = re.compile(r"\bTerm&? (\w+)")
MORE_TERMS = re.compile(r"\bTerm \w+ = ([^;]*);")
DECLARATOR = re.compile(r",\s+(\w+) = ")

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')


def longest_match(path, folders):
    """The longest of `folders` that contains `path`, or None."""
    return max((f for f in folders if path.startswith(f + "/")), key=len, default=None)


def project_path(include, source):
    """The included file as a path from the root, or None if it is a system or foreign header."""
    if include.startswith("stridec/"):
        return "runtime/include/" + include
    if include.split("/")[0] in ("compiler", "runtime", "cli", "schemas"):
        return include
    if "/" not in include and (ROOT / source).parent.joinpath(include).exists():
        return str(pathlib.PurePosixPath(source).parent / include)
    return None


def problem(source, include):
    """Why `source` may not include `include`; None if it may."""
    for prefix, places in FOREIGN.items():
        if include.startswith(prefix) and not any(source.startswith(p) for p in places):
            return f"{include} belongs in {', '.join(places)} alone"
    target = project_path(include, source)
    if target is None:
        return None
    here = longest_match(source, TABLE)
    allowed = [here] + TABLE[here]
    there = longest_match(target, TABLE)
    if there is None:
        return f"{include} is in no layer"
    # A parent folder in the list opens all of its folders; its own row ("compiler") means the files beside compile.cpp.
    opened = any(there == a or (a == "compiler" and there.startswith("compiler")) for a in allowed)
    if not opened:
        return f"{here} may not include {there} (allowed: {', '.join(allowed)})"
    mine, theirs = longest_match(source, SIBLINGS), longest_match(target, SIBLINGS)
    if mine and theirs and mine != theirs:
        return f"{mine} may not include {theirs}: frontends do not include each other, nor do backends"
    return None


def term_operators(code):
    """The number of arithmetic operators on inputs and on names declared as Terms. The formatter sets binary ones in blanks."""
    names = set(TERM.findall(code))
    for rest in MORE_TERMS.findall(code):
        names.update(DECLARATOR.findall(rest))
    term = rf"(?:\w+\.in\(\w+\)|{'|'.join(sorted(names) or ['$^'])})"
    left, right = re.compile(rf"(?<![\w.]){term}$"), re.compile(rf"\*?{term}(?![\w.(\[]|->)")
    binary = sum(bool(left.search(code[max(0, m.start() - 80):m.start()]) or right.match(code, m.end()))
                 for m in re.finditer(r"(?<=[\w)\]]) [-+*/]=?\s", code))
    return binary + len(re.findall(rf"(?:[({{]|[,?:=] |return )-{term}(?![\w.(\[]|->)", code))


def computing(source, text):
    """Why the file of a frontend computes too much on values; None if it does not."""
    if not source.startswith(DECODERS) or not source.endswith(".cpp"):
        return None
    code = re.sub(r"//.*", "", re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text))
    most, _ = COMPUTES.get(pathlib.PurePosixPath(source).stem, (0, ""))
    count = len(COMPUTATION.findall(code)) + term_operators(code)
    if count <= most:
        return None
    return f"{count} computations on values, {most} are allowed: what an operator means belongs in compiler/ops/composite"


def cycles(edges):
    """Groups of nodes that reach each other: strongly connected components of more than one node (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            component = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def report_cycles(what, reasons):
    """Prints the cycles among pairs {(from, to): an include that makes it}; whether there are none."""
    edges = {}
    for here, there in reasons:
        edges.setdefault(here, set()).add(there)
        edges.setdefault(there, set())
    found = cycles(edges)
    for group in found:
        print(f"{what} include each other: {', '.join(group)}")
        for (here, there), reason in sorted(reasons.items()):
            if here in group and there in group:
                print(f"    {reason}")
    return not found


def main():
    passed = failed = 0
    units, folders = {}, {}
    files = [p for top in ("compiler", "runtime", "cli") for p in sorted((ROOT / top).rglob("*"))
             if p.suffix in (".cpp", ".h", ".c", ".def")]
    for file in files:
        source = file.relative_to(ROOT).as_posix()
        text = file.read_text(errors="replace")
        problems = [f"{source}: {reason}"] if (reason := computing(source, text)) else []
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            if reason := problem(source, match[1]):
                problems.append(f"{source}:{number}: {reason}")
            target = project_path(match[1], source)
            if not target or not (ROOT / target).exists():
                continue
            here, there = source.rsplit(".", 1)[0], target.rsplit(".", 1)[0]
            if here != there:
                units.setdefault((here, there), f"{source}:{number} {match[1]}")
            here, there = os.path.dirname(here), os.path.dirname(there)
            if here != there:
                folders.setdefault((here, there), f"{source}:{number} {match[1]}")
        print("\n".join(problems), end="\n" if problems else "")
        passed, failed = passed + (not problems), failed + bool(problems)
    for good in (report_cycles("folders", folders), report_cycles("units", units)):
        passed, failed = passed + good, failed + (not good)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
