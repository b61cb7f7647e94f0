"""What the program says of itself: --help, tables that fit a terminal, completion, manual pages, schemas, colours."""

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import termios

from harness import ROOT, STRIDEC, expect, stridec

COMMANDS = re.compile(r"^  ([a-z][a-z-]*) {2,}\S", re.M)


def commands():
    text = stridec("--help", 0).stdout
    return COMMANDS.findall(text)


def widest(text):
    return max(len(line) for line in text.splitlines())


def test_help_pages():
    text = stridec("--help", 0).stdout
    expect(widest(text) <= 100 and "Environment variables:" in text and "Models:" in text, text)
    with open(os.path.join(ROOT, "docs", "commands.md"), encoding="utf-8") as file:
        page = file.read()
    for variable in re.findall(r"^  ([A-Z_]{4,}) ", text, re.M):
        expect(f"| `{variable}` |" in page, f"docs/commands.md lacks {variable}")
    for command in commands():
        page = stridec(f"{command} --help", 0).stdout
        expect(widest(page) <= 100 and page.count("Usage: stridec " + command) == 1, page)
        expect("TEXT" not in page and "UINT" not in page and "FLOAT" not in page, f"a value without a name: {page}")
    expect("\nSubcommands:\n  show " in stridec("cache --help", 0).stdout, "subcommands")
    expect("Examples" not in stridec("tune show --help", 0).stdout, "examples of another command")
    page = stridec("compile --help", 0).stdout
    for group in ("Arguments", "Files", "Targets", "Sizes, values and states", "Code", "Tuning", "Limits", "Passes", "Output", "Examples"):
        expect(f"\n{group}:\n" in page, f"no group {group}: {page}")
    for default in ("--mode {default,reduce-overhead", "(default: fp32)", "(default: embed)", "(default: this machine's)"):
        expect(default in " ".join(page.split()) or default in page, f"{default}: {page}")
    expect(widest(stridec("compile --help", 0, env={**os.environ, "COLUMNS": "80"}).stdout) <= 80, "narrow help")


def test_tables_fit():
    for command in ("ops", "gradients", "modes", "options", "passes", "precisions", "backends", "exit-codes", "schema", "inspect mlp.so", "inspect tower.onnx --stage=memory",
                    "check ranged.onnx", "check missing_attribute.onnx", "cache"):  # fmt: skip
        for columns in (100, 72):
            done = stridec(command, env={**os.environ, "COLUMNS": str(columns)})
            lines = [line for line in done.stdout.splitlines() if len(line) > columns]
            expect(not lines, f"{command} is wider than {columns}: {lines[:2]}")
    whole = json.loads(stridec("ops --format=json", 0).stdout)
    conv = [row for row in whole if row["operator"] == "Conv"]
    expect(conv and conv[0]["types"] == "T: f32 f16 f64 bf16", conv)
    text = stridec("ops Conv Abs", 0).stdout
    expect("T: floats" in text and "T: floats ints uints" in text and text.count("\n") == 3, text)
    expect("did you mean 'Conv'?" in stridec("ops Conf", 1).stderr, "a misspelt operator")


def test_completion():
    for shell in ("bash", "zsh", "fish"):
        text = stridec(f"completion {shell}", 0).stdout
        expect("max-autotune" in text and "tune-db" in text and "exit-codes" in text, text[:500])
        if shutil.which(shell):
            subprocess.run([shell, "-n"] + (["-c", text] if shell == "bash" else ["/dev/stdin"]), input=text, text=True, check=True, timeout=30)
    script = stridec("completion bash", 0).stdout + """
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _stridec; echo "${COMPREPLY[*]}"; }
complete_words stridec ver
complete_words stridec compile --tune
complete_words stridec compile m.onnx --mode max
complete_words stridec completion ba
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    expect(done.stdout.splitlines() == ["verify", "--tune-db --tune-shape --tune-seconds", "max-autotune max-autotune-no-cudagraphs", "bash"],
           done.stdout + done.stderr)  # fmt: skip


def test_manual_pages():
    page = stridec("man", 0).stdout
    expect(page.startswith(".TH stridec 1") and all(f"\\fB{name.replace('-', chr(92) + '-')}\\fR" in page for name in commands()), page)
    page = stridec("man compile", 0).stdout
    for option in re.findall(r"^  (?:-\w, )?(--[\w-]+)", stridec("compile --help", 0).stdout, re.M):
        expect(option.replace("-", "\\-") in page, f"{option} is not in {page}")
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-z"], input=page, capture_output=True, text=True, timeout=30, check=True)
        expect(not done.stderr, done.stderr)
    expect("did you mean 'compile'?" in stridec("man compil", 1).stderr, "a misspelt command")


def test_schema():
    with open(os.path.join(ROOT, "schemas", "manifest.schema.json"), encoding="utf-8") as file:
        expect(stridec("schema manifest", 0).stdout == file.read(), "another schema")
    names = [row["schema"] for row in json.loads(stridec("schema --format=json", 0).stdout)]
    expect(names == ["manifest", "refused", "train", "ops", "report", "graph"] and all(stridec(f"schema {name}", 0).stdout for name in names), names)
    expect("did you mean 'manifest'?" in stridec("schema manifst", 1).stderr, "a misspelt name")


def on_terminal(words, **environment):
    """What a command prints where stdout and stderr are a terminal."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {**{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}, **environment}
    process = subprocess.Popen([STRIDEC, *words.split()], stdout=child, stderr=child, stdin=child, env=env)
    os.close(child)
    text = b""
    while True:
        try:
            part = os.read(parent, 4096)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(parent)
    process.wait(timeout=60)
    return text.decode(errors="replace")


def test_schedule_on_a_terminal():
    """Lines are whole for other programs, and wrapped on a terminal."""
    whole = stridec("inspect tower.onnx --stage=schedule", 0).stdout
    seen = on_terminal("inspect tower.onnx --stage=schedule", TERM="dumb").replace("\r\n", "\n")
    expect(widest(whole) > 100 and widest(seen) <= 80, widest(seen))
    expect("".join(whole.split()) == "".join(seen.split()), "other words on a terminal")


def test_colours():
    coloured = on_terminal("check missing.onnx", TERM="xterm")
    expect("\x1b[1;31merror" in coloured, coloured)
    for environment in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}, {}):
        expect("\x1b" not in on_terminal("check missing.onnx", **environment), f"colours with {environment}")
    expect("\x1b" in on_terminal("compile mlp.onnx -o seen.so", TERM="xterm"), "no bar on a terminal")
    for environment in ({"TERM": "dumb"}, {}):
        text = on_terminal("compile mlp.onnx -o seen.so", **environment)
        expect("\x1b" not in text and "wrote" in text, text)
    expect("\x1b[1;31m" not in on_terminal("check missing.onnx", TERM="xterm", NO_COLOR="1"), "NO_COLOR")
