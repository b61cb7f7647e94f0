"""The C interfaces keep their layout: python tests/abi/run.py [--update]

Compares runtime.h and plugin.h with tests/golden/abi.txt: each struct with the offset, size and declaration of its fields, each
constant with its value, each function type. What is there may not move, change or go; fields and functions are appended, and then
--update writes the file. The last line is "N passed, N failed".
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests/golden/abi.txt"
HEADERS = ["runtime.h", "plugin.h"]


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def one_line(text):
    return re.sub(r"\s+", " ", text).strip()


def field_names(declaration):
    """The names that `int a, b[3];` or `int (*f)(int)` declares."""
    function = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
    if function:
        return [function[1]]
    return [re.search(r"(\w+)\s*(?:\[[^\]]*\])*$", part.strip())[1] for part in declaration.split(",")]


def split_fields(body):
    fields, depth, start = [], 0, 0
    for i, c in enumerate(body):
        depth += (c in "({") - (c in ")}")
        if c == ";" and depth == 0:
            fields.append(one_line(body[start:i]))
            start = i + 1
    return [f for f in fields if f]


def described(header, work):
    """Lines that describe the header."""
    text = without_comments((ROOT / "runtime/include/stridec" / header).read_text())
    structs = re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, re.S)
    constants = [name for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", text, re.S)
                 for name in re.findall(r"\b(STRIDEC_\w+)\s*(?:=[^,}]*)?(?:,|$|\s*$)", body.strip())]
    constants += re.findall(r"#define (STRIDEC_\w+) [\d(]", text)
    program = ["#include <stddef.h>", "#include <stdio.h>", f'#include "stridec/{header}"', "int main(void) {"]
    for name in constants:
        program.append(f'  printf("{header} constant {name} = %lld\\n", (long long){name});')
    for name, body in structs:
        for field in split_fields(body):
            for each in field_names(field):
                program.append(f'  printf("{header} {name} offset %zu size %zu: %s\\n", offsetof({name}, {each}), '
                               f'sizeof((({name}*)0)->{each}), "{field}");')
    for alias in re.findall(r"^typedef [^{};]*\(\*?\s*\*?\w+\)\([^{};]*\);|^typedef [^{};]+;", text, re.M | re.S):
        program.append(f'  printf("{header} %s\\n", "{one_line(alias)}");')
    program += ["  return 0;", "}"]
    source = work / f"{header}.c"
    source.write_text("\n".join(program) + "\n")
    compiler = next(c for c in ("clang-19", "cc", "gcc") if shutil.which(c))
    subprocess.run([compiler, "-std=c99", f"-I{ROOT}/runtime/include", str(source), "-o", str(work / "layout")], check=True)
    return subprocess.run([str(work / "layout")], check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    with tempfile.TemporaryDirectory() as folder:
        found = [line for header in HEADERS for line in described(header, pathlib.Path(folder))]
    if "--update" in sys.argv:
        GOLDEN.write_text("\n".join(found) + "\n")
    golden = GOLDEN.read_text().splitlines()
    gone = [line for line in golden if line not in found]
    added = [line for line in found if line not in golden]
    for line in gone:
        print(f"FAILED moved, changed or gone: {line}")
    for line in added:
        print(f"FAILED not in {GOLDEN.relative_to(ROOT)}: {line}")
    if added and not gone:
        print("fields and functions may be appended: python tests/abi/run.py --update")
    failed = len(gone) + len(added)
    print(f"{len(golden) - len(gone)} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
