"""What the Markdown files of the tree refer to: files by link or by name in backticks, headings, and on the pages of docs/
C++ names with ::.

Prints one line per reference that leads nowhere, then "N passed, N failed" (files).
"""

import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")
# A path of the tree as it stands in a sentence: a top folder, then names. With <name>, * or { it is a pattern.
PATH = re.compile(r"(?:cli|compiler|docs|runtime|samples|schemas|tests|\.ci)(?:/[\w.+-]+)+")
# What is not in the tree but made by a build or a test.
MADE = re.compile(r"\.(so|json|o|log)$")

# The names that the pages of docs/ may have in backticks: a source file without its top folder, and a C++ name with ::.
SOURCE = re.compile(r"[\w./-]+\.(?:cpp|h|def|py)")
QUALIFIED = re.compile(r"\w+(?:::\w+)+")
# Names of the pages' own examples, and a header of C that the tree does not include.
EXAMPLE = re.compile(r"foo|acme|tgmath", re.I)
CODE_FOLDERS = ("cli", "compiler", "runtime")


def list_files(*patterns):
    """The files of the tree that match the patterns of git, as paths from the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [name for name in listed if name and (ROOT / name).exists()]


@functools.cache
def sources():
    """All source files, each with a slash before its path, so that the end of a path can be looked up."""
    return ["/" + name for name in list_files("*.cpp", "*.h", "*.def", "*.py")]


@functools.cache
def code_words():
    """All words of the C++ sources, and the headers of libraries that they include."""
    words = set()
    for name in sources():
        if name.split("/")[1] in CODE_FOLDERS and not name.endswith(".py"):
            text = (ROOT / name[1:]).read_text(encoding="utf-8", errors="replace")
            words.update(re.findall(r"(?<=[<\"])[\w./]+\.h(?=[>\"])|\w+", text))
    return words


def problem_of_name(word):
    """Why a word in backticks names no source file or C++ name of the tree; None if it does, or is no such name."""
    word = re.sub(r"(?:\(\)|:\d*:?)?[,;:]?$", "", word)
    if EXAMPLE.search(word):
        return None
    if SOURCE.fullmatch(word):
        known = word in code_words() or any(name.endswith("/" + word) for name in sources())
        return None if known else f"no source file is named {word}"
    if QUALIFIED.fullmatch(word):
        unknown = [part for part in word.split("::") if part not in code_words()]
        return f"{word}: the sources have no {unknown[0]}" if unknown else None
    return None


def anchors(file):
    """The names by which a page's headings are linked to."""
    text = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def problem(file, target):
    """Why a link leads nowhere; None if it does not."""
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    found = (file.parent / path).resolve() if path else file
    if not found.exists() or ROOT not in (found, *found.parents):
        return f"{target} does not exist"
    if anchor and found.suffix == ".md" and anchor not in anchors(found):
        return f"{found.relative_to(ROOT)} has no heading #{anchor}"
    return None


def problems_of(file):
    # Indented blocks are commands and code, where backticks mean something else.
    lines = file.read_text(encoding="utf-8").splitlines()
    text = "\n".join("" if line.startswith("    ") else line for line in lines)
    found = [(match.start(), problem(file, match[1])) for match in LINK.finditer(text)]
    for match in CODE.finditer(text):
        for word in match[1].split():
            if PATH.fullmatch(word) and not MADE.search(word) and not (ROOT / word).exists():
                found.append((match.start(), f"{word} does not exist"))
            elif file.parent == ROOT / "docs":
                found.append((match.start(), problem_of_name(word)))
    for at, reason in sorted(found, key=lambda pair: pair[0]):
        if reason:
            yield f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, at) + 1}: {reason}"


def main():
    passed = failed = 0
    for file in [ROOT / name for name in list_files("*.md")]:
        problems = list(problems_of(file))
        print("\n".join(problems), end="\n" if problems else "")
        passed, failed = passed + (not problems), failed + bool(problems)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
