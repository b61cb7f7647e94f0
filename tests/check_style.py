"""Checks the form of C++ sources: no line is longer than 110 columns, but for lines of raw string literals (generated text).

Prints a line for each that is, then "N passed, N failed" (files).
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = 110
SUFFIXES = (".cpp", ".h", ".c", ".def")
RAW = re.compile(r'R"([^\s()\\]{0,16})\((.*?)\)\1"', re.S)


def long_lines(text):
    """Numbers of the lines that are too long and not part of a raw string."""
    raw = set()
    for match in RAW.finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        raw.update(range(first, first + match[0].count("\n") + 1))
    return [n for n, line in enumerate(text.splitlines(), 1) if len(line) > COLUMNS and n not in raw]


def main():
    passed = failed = 0
    for top in ("cli", "compiler", "runtime", "samples", "tests"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            found = long_lines(file.read_text(errors="replace"))
            for number in found:
                print(f"{file.relative_to(ROOT)}:{number}: longer than {COLUMNS} columns")
            passed, failed = passed + (not found), failed + bool(found)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
