"""Checks the form of C++ sources: no line is longer than 110 columns, but for lines of raw string literals (generated text),
and no private type or function has the name of a public one of its namespace: a reader who searches for a name finds one
meaning.

A public name is one that a header declares in a namespace; a private one stands in an unnamed namespace. A file may overload a
public function privately, for a template that needs both, if it says so: `using ops::each;`. Samples and tests are programs of their own and may reuse
names.

Prints a line for each line and name that breaks a rule, then "N passed, N failed" (files).
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = 110
SUFFIXES = (".cpp", ".h", ".c", ".def")
LIBRARIES = ("cli", "compiler", "runtime")
RAW = re.compile(r'R"([^\s()\\]{0,16})\((.*?)\)\1"', re.S)

# What declares no names: strings, characters, comments, lines of the preprocessor.
SILENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?<!\w)\'(?:[^\'\\\n]|\\.)+\'|//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
NAMESPACE = re.compile(r"(?:inline\s+)?namespace\s*([\w:]*)$")
TEMPLATE = re.compile(r"template\s*<(?:[^<>]|<[^<>]*>)*>\s*")
TYPE = re.compile(r"(?:struct|class|union|enum(?:\s+class)?)\s+(\w+)(?:\s+final)?\s*(?::[^:].*)?$|using\s+(\w+)\s*=", re.S)
FUNCTION = re.compile(r"(?!using|typedef|extern|friend)[^=(]*[\s&*>](\w+)\s*\(")


def long_lines(text):
    """Numbers of the lines that are too long and not part of a raw string."""
    raw = set()
    for match in RAW.finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        raw.update(range(first, first + match[0].count("\n") + 1))
    return [n for n, line in enumerate(text.splitlines(), 1) if len(line) > COLUMNS and n not in raw]


def blank(match):
    """As many lines as the match has, without its text."""
    return "\n" * match[0].count("\n")


def declarations(text):
    """The types and functions that stand directly in namespaces: (namespace, whether an unnamed one is in it, name, line)."""
    code = SILENT.sub(blank, RAW.sub(blank, text))
    blocks, start = [], 0  # of the enclosing blocks: the namespace's name; None: another block
    for token in re.finditer(r"[;{}]", code):
        head = code[start:token.start()].strip()
        in_namespaces = None not in blocks
        if in_namespaces and token[0] != "}":
            declared = TEMPLATE.sub("", head, count=1)
            if name := TYPE.match(declared) or FUNCTION.match(declared):
                line = code.count("\n", 0, token.start() - len(code[start:token.start()].lstrip())) + 1
                yield "::".join(filter(None, blocks)), "" in blocks, next(filter(None, name.groups())), line
        if token[0] == "{":
            space = NAMESPACE.match(head) if in_namespaces else None
            blocks.append(space[1] if space else None)
        elif token[0] == "}" and blocks:
            blocks.pop()
        if None not in blocks:
            start = token.end()


def repeated_names(texts):
    """{file: [(line, name, the header that declares the public one)]} of {file: text}."""
    public, private = {}, []
    for file, text in texts.items():
        for space, unnamed, name, line in declarations(text):
            if unnamed:
                private.append((file, line, space, name))
            elif file.suffix == ".h":
                public.setdefault((space, name), file)
    found = {}
    for file, line, space, name in private:
        header = public.get((space, name))
        if header and not re.search(rf"\busing [\w:]+::{name};", texts[file]):
            found.setdefault(file, []).append((line, name, header))
    return found


def main():
    passed = failed = 0
    texts = {file: file.read_text(errors="replace") for top in LIBRARIES + ("samples", "tests")
             for file in sorted((ROOT / top).rglob("*")) if file.suffix in SUFFIXES}
    repeated = repeated_names({file: text for file, text in texts.items()
                               if file.suffix in (".cpp", ".h") and file.relative_to(ROOT).parts[0] in LIBRARIES})
    for file, text in texts.items():
        problems = [f"{number}: longer than {COLUMNS} columns" for number in long_lines(text)]
        problems += [f"{number}: {name} is also a public name of {header.relative_to(ROOT)}; say what the private one is"
                     for number, name, header in repeated.get(file, [])]
        for problem in problems:
            print(f"{file.relative_to(ROOT)}:{problem}")
        passed, failed = passed + (not problems), failed + bool(problems)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
