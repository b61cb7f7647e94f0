"""Changes the gradient rules one at a time and demands that the tests of gradients fail.

    python tests/mutations/gradients.py [--sample N] [--seed S] [--only TEXT] [--list]

A mutant is one of: a row of compiler/ops/pointwise.def with the sign of a gradient flipped, or with the gradient
dropped; a function of compiler/ops that makes gradients with one operator exchanged (+ and -, * and /), one sign
dropped or one element of the returned list dropped. Each is compiled beside the build folder and linked into a test_ops
of its own, so neither the sources nor the build folder change. What does not compile is not counted.

Environment: build (the build folder with test_ops, default build). Survivors are printed; SAME lists those that compute
the same, with the reason. The last line is "N passed, N failed".
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile

from mutant import ROOT, Test

OPS = os.path.join(ROOT, "compiler", "ops")
SECONDS = 600  # for the tests of one mutant

# Functions that make gradients, besides those with "gradient" in their names.
HELPERS = ("share", "fold_period", "spread_slice", "of_type", "sum_to", "scattered", "at_updates", "scatter_sum", "reached", "row_of",
           "product_of_elements", "shifted", "transpose_axis", "window_spread_lower", "linear_scan_lower", "reach", "with_batch", "run")

# (file, text of the line, reason): mutants that compute the same.
SAME = [
    ("resize_transpose.cpp", "const sym::Expr most", "a bound: more results than necessary have weight 0"),
]


def functions(text):
    """(name, start, end) of the functions of a file, by their layout."""
    for match in re.finditer(r"^(?! )[\w:<>&*, ]+?\b(\w+)\([^;{}]*\)[^;{}]*\{$", text, re.M):
        end = re.compile(r"^\}", re.M).search(text, match.end())
        if end:
            yield match.group(1), match.end(), end.start()


def mutants_of_source(name, text):
    for function, start, end in functions(text):
        if "gradient" not in function and function not in HELPERS:
            continue
        for match in re.compile(r" [-+*/] (?=[\w(-])|(?<=[({, ])-(?=[a-z(])|!(?=[a-z])").finditer(text, start, end):
            line = text.count("\n", 0, match.start()) + 1
            source = text.splitlines()[line - 1].strip()
            if source.startswith("//") or any(name == file and part in source for file, part, _ in SAME):
                continue
            old = match.group()
            new = {" + ": " - ", " - ": " + ", " * ": " / ", " / ": " * "}.get(old, "")
            changed = text[: match.start()] + new + text[match.end() :]
            yield f"{name}:{line}: {function}: {old.strip()!r} becomes {new.strip()!r}: {source}", changed
        for match in re.compile(r"return \{(?=[\w(-])").finditer(text, start, end):
            line = text.count("\n", 0, match.start()) + 1
            changed = text[: match.end()] + "(" + "graph::ValueId()), " + text[match.end() :]
            yield f"{name}:{line}: {function}: the list of gradients moves by one", changed


def mutants_of_table(name, text):
    for match in re.finditer(r"^STRIDEC_(UNARY|BINARY)\((\w+),.*?\)\n(?=STRIDEC|\Z)", text, re.M | re.S):
        row = match.group()
        close = row.rindex(")")
        for what, define in (("has the other sign", "-({})"), ("is dropped", "(({}) * 0.0)")):
            for operand in range(1 if match.group(1) == "UNARY" else 2):
                start, end = argument(row, 4 + operand, close)
                changed = row[:start] + " " + define.format(row[start:end].strip()) + row[end:]
                label = f"{name}: {match.group(2)}: gradient {operand} {what}"
                yield label, text[: match.start()] + changed + text[match.end() :]


def argument(row, index, close):
    """Where the argument of a macro lies."""
    at = row.index("(") + 1
    start, depth, quoted, number = at, 0, False, 0
    for i in range(at, close + 1):
        c = row[i]
        if c == '"' and row[i - 1] != "\\":
            quoted = not quoted
        if quoted:
            continue
        if i == close or (c == "," and depth == 0):
            if number == index:
                return start, i
            number, start = number + 1, i + 1
        depth += (c in "({[") - (c in ")}]")
    raise ValueError(f"no argument {index}: {row}")


def mutants():
    for name in sorted(os.listdir(OPS)):
        if not name.endswith((".cpp", ".def")):
            continue
        with open(os.path.join(OPS, name), encoding="utf-8") as file:
            text = file.read()
        yield from ((name, *m) for m in (mutants_of_table if name.endswith(".def") else mutants_of_source)(name, text))


def run_mutant(test, name, text, folder):
    """None: it does not compile. Otherwise whether a test failed."""
    source = name if name.endswith(".cpp") else name.replace(".def", ".cpp")
    made = test.build(f"compiler/ops/{source}", f"compiler/ops/{name}", text, folder)
    if made is None:
        return None
    try:
        ran = subprocess.run([made, "-tc=gradients*", "--abort-after=1"], cwd=ROOT, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    return ran.returncode != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=0, help="as many mutants, chosen at random; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="mutants whose description contains this")
    parser.add_argument("--list", action="store_true", help="print the mutants")
    options = parser.parse_args()
    chosen = [m for m in mutants() if options.only in m[1]]
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    if options.list:
        print("\n".join(label for _, label, _ in chosen))
        return 0
    test = Test("test_ops")
    passed = failed = 0
    for name, label, text in chosen:
        with tempfile.TemporaryDirectory() as folder:
            result = run_mutant(test, name, text, folder)
        if result is None:
            print("does not compile:", label, flush=True)
            continue
        print("caught:" if result else "SURVIVED:", label, flush=True)
        passed, failed = passed + result, failed + (not result)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
