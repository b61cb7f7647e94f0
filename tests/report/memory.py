"""The memory view: its buffers share memory only where they are written in place, and its arena is what a context reserves."""

import pathlib
import re
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

FUNCTIONS = {"mod": lambda a, b: a % b, "min": min, "max": max, "floordiv": lambda a, b: a // b, "ceildiv": lambda a, b: -(-a // b),
             "align_up": lambda a, b: -(-a // b) * b, "abs": abs, "select": lambda c, a, b: a if c else b}


def value(expression, sizes):
    """Of an expression of compiler/sym at sizes. Quotients round down there as in Python."""
    text = re.sub(r"!(?!=)", " not ", str(expression).replace("&&", " and ").replace("||", " or ")).replace("`", "")
    return int(eval(text, {"__builtins__": {}}, {**FUNCTIONS, **sizes}))


def overlaps(memory, sizes):
    """Pairs of buffers that are alive at one step and share bytes, but for those that are written in place."""
    places = []
    for buffer in memory["buffers"]:
        begin = value(buffer.get("offset_expression", buffer["offset"]), sizes)
        places.append((begin, begin + value(buffer.get("bytes_expression", buffer["bytes"]), sizes), buffer))
    found = []
    for i, (begin, end, a) in enumerate(places):
        for other_begin, other_end, b in places[:i]:
            steps = min(a["last_step"], b["last_step"]) - max(a["first_step"], b["first_step"]) + 1
            if steps <= 0 or min(end, other_end) <= max(begin, other_begin):
                continue
            in_place = steps == 1 and any(x.get("in_place_of") == y["name"] and x["first_step"] == y["last_step"] for x, y in ((a, b), (b, a)))
            if not in_place:
                found.append((a["name"], b["name"]))
    return found


def check(program, work, report, expect, models):
    """`models`: by name, the file, its inputs at sizes, and five choices of the sizes."""
    import stridec
    marked = False
    for name, (path, inputs_at, choices) in models.items():
        artifact = work / f"{name}.memory.so"
        subprocess.run([program, "compile", str(path), "-o", str(artifact)], check=True, capture_output=True)
        memory = report(path, work / f"{name}.memory.html", "--sources", "none")["functions"][0]["memory"]
        marked = marked or any("in_place_of" in buffer for buffer in memory["buffers"])
        for sizes in choices:
            for threads in (1, 2):
                context = stridec.load(str(artifact)).context(threads=threads)
                context.run(inputs_at(sizes))
                arena, shown = context.memory()["arena_bytes"], value(memory["arena"], {**sizes, "threads": threads})
                expect(f"{name}: arena at {sizes}, {threads} threads", arena == shown, (arena, shown))
                found = overlaps(memory, {**sizes, "threads": threads})
                expect(f"{name}: no two live buffers overlap at {sizes}, {threads} threads", not found, found[:5])
    expect("a model has a buffer that is written in place", marked)


def inputs_of_two(sizes):
    return {"x": np.zeros((sizes["n"], 64, sizes["k"]), np.float32), "w": np.zeros((sizes["k"], 96), np.float32)}


def inputs_of_tagger(sizes):
    return {"ids": np.zeros((sizes["batch"], sizes["sequence"]), np.int64)}


SIZES_OF_TWO = [{"n": n, "k": k} for n, k in ((1, 1), (3, 5), (64, 128), (7, 1000), (200, 33))]
SIZES_OF_TAGGER = [{"batch": b, "sequence": s} for b, s in ((1, 1), (2, 7), (1, 64), (8, 16), (5, 100))]
