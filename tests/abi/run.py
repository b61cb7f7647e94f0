"""The C interfaces keep their layout: python tests/abi/run.py [--update]

Compares the headers with tests/golden/abi.txt: each struct with the offset, size and declaration of its fields, each constant with its
value, each function type, each function. What runtime.h and plugin.h have may not move, change or go unless STRIDEC_API_VERSION is
raised; fields and functions are appended. Of abi.h, by which artifacts and the program agree, only
constants are appended unless STRIDEC_ABI_VERSION is raised. --update writes the file where these rules allow it. An artifact ($stridec compiles one) exports the
functions of runtime.h and nothing else. Headers that are changed in each of these ways show that the rules are kept. The last line is
"N passed, N failed".
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests/golden/abi.txt"
INCLUDE = ROOT / "runtime/include/stridec"
# Which constant must be raised for a change of a header, and whether fields and functions may be appended without.
RULES = {"runtime.h": ("runtime.h", "STRIDEC_API_VERSION", True), "plugin.h": ("runtime.h", "STRIDEC_API_VERSION", True),
         "abi.h": ("abi.h", "STRIDEC_ABI_VERSION", False)}


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def one_line(text):
    return re.sub(r"\s+", " ", text).strip()


def field_names(declaration):
    """The names that `int a, b[3];` or `int (*f)(int)` declares."""
    declaration = re.sub(r"\{.*\}", "", declaration)
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


def described(header, folder, work):
    """Lines that describe the header of this folder."""
    text = without_comments((folder / header).read_text())
    structs = re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, re.S)
    constants = [name for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", text, re.S)
                 for name in re.findall(r"\b(STRIDEC_\w+)\s*(?:=[^,}]*)?(?:,|$|\s*$)", body.strip())]
    constants += re.findall(r"#define (STRIDEC_\w+) [\d(]", text)
    program = ["#include <stddef.h>", "#include <stdio.h>", f'#include "{header}"', "int main(void) {"]
    for name in constants:
        program.append(f'  printf("{header} constant {name} = %lld\\n", (long long){name});')
    for name, body in structs:
        for field in split_fields(body):
            for each in field_names(field):
                # An array without a length has the size of its elements.
                first = "[0]" if re.search(rf"\b{each}\[\]", field) else ""
                program.append(f'  printf("{header} {name} offset %zu size %zu: %s\\n", offsetof({name}, {each}), '
                               f'sizeof((({name}*)0)->{each}{first}), "{field}");')
    for alias in re.findall(r"^typedef [^{};]+;|^(?:const )?\w+\*? \w+\([^{};]*\);", text, re.M | re.S):
        program.append(f'  printf("{header} %s\\n", "{one_line(alias)}");')
    program += ["  return 0;", "}"]
    source = work / f"{header}.c"
    source.write_text("\n".join(program) + "\n")
    compiler = next(c for c in ("clang-19", "cc", "gcc") if shutil.which(c))
    subprocess.run([compiler, "-std=c99", f"-I{folder}", str(source), "-o", str(work / "layout")], check=True)
    return subprocess.run([str(work / "layout")], check=True, capture_output=True, text=True).stdout.splitlines()


def description(folder):
    with tempfile.TemporaryDirectory() as work:
        return [line for header in RULES for line in described(header, folder, pathlib.Path(work))]


def version_in(lines, header):
    where, constant, _ = RULES[header]
    return int(next(line for line in lines if line.startswith(f"{where} constant {constant} = ")).rsplit(" ", 1)[1])


def refused(golden, found):
    """What the versions do not allow, as sentences."""
    out = []
    for header, (_, constant, may_append) in RULES.items():
        if version_in(found, header) > version_in(golden, header):
            continue
        of_header = lambda lines: {line for line in lines if line.startswith(header + " ")}
        reason = f"without a higher {constant}"
        out += [f"moved, changed or gone {reason}: {line}" for line in golden if line in of_header(golden) - of_header(found)]
        if not may_append:
            out += [f"new {reason}: {line}" for line in found if line in of_header(found) - of_header(golden) and " constant " not in line]
    return out


def exported():
    """The names that an artifact exports."""
    import onnx
    from onnx import TensorProto, helper
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
    model = helper.make_model(helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "neg", [x], [y]),
                              opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with tempfile.TemporaryDirectory() as work:
        onnx.save(model, f"{work}/neg.onnx")
        program = os.environ.get("stridec", str(ROOT / "build/stridec"))
        subprocess.run([program, "compile", "-q", f"{work}/neg.onnx", "-o", f"{work}/neg.so"], check=True)
        names = subprocess.run(["nm", "-D", "--defined-only", f"{work}/neg.so"], check=True, capture_output=True, text=True).stdout
    return sorted(line.split()[-1] for line in names.splitlines())


# A change of a header (file, pattern, replacement, how often) and whether the rules allow it.
CHANGES = [
    ("a field is appended", "runtime.h", r"(\(\*model_context_size\)\([^;]*\);)", r"\1\n  void* more;", True),
    ("a field's type changes", "runtime.h", r"int32_t ndim;", "int64_t ndim;", False),
    ("a field goes", "runtime.h", r"  int32_t spin_us;[^\n]*\n", "", False),
    ("two fields change places", "runtime.h", r"  int64_t\* shape;([^\n]*)\n  int64_t\* strides;",
     r"  int64_t* strides;\1\n  int64_t* shape;", False),
    ("a status gets another number", "runtime.h", r"STRIDEC_BUSY = 9", "STRIDEC_BUSY = 19", False),
    ("a function type gets an argument", "runtime.h", r"\(\*stridec_log\)\(void\* user,", "(*stridec_log)(void* user, int level,", False),
    ("the exported function changes", "runtime.h", r"stridec_get_api\(uint32_t version\);", "stridec_get_api(uint64_t version);", False),
    ("a plug-in's field is inserted", "plugin.h", r"(typedef struct stridec_plugin \{\s+size_t struct_size;)", r"\1\n  int more;", False),
    ("a field of artifacts is added", "abi.h", r"(int64_t padding\[3\];)", r"\1 int64_t more;", False),
]


def check_rules(before):
    """Runs the rules on changed headers, without and with a higher version."""
    passed, failed = 0, 0
    for what, header, pattern, replacement, allowed in CHANGES:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for file in INCLUDE.iterdir():
                shutil.copy(file, folder)
            text, count = re.subn(pattern, replacement, (folder / header).read_text(), count=1, flags=re.S)
            assert count == 1, f"{header} has nothing like {pattern}"
            (folder / header).write_text(text)
            verdicts = [not refused(before, description(folder))]
            where, constant, _ = RULES[header]
            raised, count = re.subn(rf"(#define {constant}) (\d+)u", lambda m: f"{m[1]} {int(m[2]) + 1}u", (folder / where).read_text())
            assert count == 1
            (folder / where).write_text(raised)
            verdicts.append(not refused(before, description(folder)))
        right = verdicts == [allowed, True]
        passed, failed = passed + right, failed + (not right)
        if not right:
            print(f"FAILED {what}: allowed {verdicts[0]}, with a higher {constant} {verdicts[1]}")
    return passed, failed


def main():
    found = description(INCLUDE)
    golden = GOLDEN.read_text().splitlines()
    problems = refused(golden, found)
    if "--update" in sys.argv and not problems:
        GOLDEN.write_text("\n".join(found) + "\n")
        golden = found
    if not problems and golden != found:
        problems = [f"not in {GOLDEN.relative_to(ROOT)}; --update writes it: {line}" for line in found if line not in golden] or [
            f"{GOLDEN.relative_to(ROOT)} has another order or more; --update writes it"]
    names = exported()
    declared = sorted(re.findall(r"(\w+)\(", " ".join(line for line in found if re.match(r"runtime\.h (const )?stridec_\w+\*? \w+\(", line))))
    if names != declared:
        problems.append(f"an artifact exports {names}, runtime.h declares {declared}")
    for problem in problems:
        print(f"FAILED {problem}")
    passed, failed = check_rules(found)
    print(f"{passed + len(set(golden) & set(found)) + (names == declared)} passed, {failed + len(problems)} failed")
    sys.exit(1 if failed or problems else 0)


if __name__ == "__main__":
    main()
