"""How words become a command: any order of options and positionals, misspelt names, response files, closed pipes."""

import itertools
import os
import re
import subprocess

from harness import STRIDEC, expect, stridec

# Of every command with positionals: files that are missing or do not fit, so that it ends at once.
POSITIONALS = {
    "compile": ["missing.onnx"], "check": ["missing.onnx"], "inspect": ["missing.onnx"], "run": ["missing.so"],
    "verify": ["missing.onnx", "missing.so"], "bench": ["missing.so"], "profile": ["missing.so"], "tune": ["missing.onnx"],
    "diff": ["missing.so", "mlp.so"], "licenses": ["missing.so"], "report": ["missing.onnx"],
}  # fmt: skip

# Commands whole: options in parts that stay together, then positionals.
WHOLE = [
    ("compile", [["-O", "winograd=false"], ["-O", "tile_and_fuse=true"], ["-o", "order.so"]], ["mlp.onnx"]),
    ("compile", [["--specialize", "batch=2"], ["--tune-shape", "batch=2"], ["--output", "order.so"]], ["mlp.onnx"]),
    ("compile", [["--input-value", "n=3"], ["--dim", "batch=1..8"], ["-o", "order.so"]], ["sized.onnx"]),
    ("check", [["--state", "c=d"], ["-O", "winograd=false"]], ["stepping.onnx"]),
    ("inspect", [["-O", "winograd=false"], ["--stage", "loops"]], ["mlp.onnx"]),
    ("run", [["-i", "x=good.npy"], ["-o", "y=order.npy"]], ["mlp.so"]),
    ("verify", [["-i", "x=good.npy"], ["--expect", "y=expected.npy"]], ["mlp.onnx", "mlp.so"]),
    ("bench", [["--input", "x=good.npy"], ["--seconds", "0.01"], ["--format", "json"]], ["mlp.so"]),
    ("profile", [["--input", "x=good.npy"], ["--runs", "5"], ["--format", "json"]], ["mlp.so"]),
    ("diff", [["--format", "json"]], ["mlp.so", "gather.so"]),
]


def orders(options, positionals):
    """Every order of the options, with the positionals, which keep their own, at every place."""
    for arranged in itertools.permutations(options):
        for places in itertools.combinations_with_replacement(range(len(options) + 1), len(positionals)):
            words = []
            for at, option in enumerate([*arranged, []]):
                words += [word for word, place in zip(positionals, places) if place == at] + option
            yield words


def test_any_order():
    stridec("run mlp.so -i x=good.npy -o y=expected.npy", 0)
    for command, options, positionals in WHOLE:
        seen = set()
        for words in orders(options, positionals):
            done = stridec([command, *words])
            expect(done.returncode == 0, f"{command} {words}: {done.stdout}{done.stderr}")
            seen.add(done.stdout if command not in ("bench", "profile") else "")
        expect(len(seen) == 1, f"{command} depends on the order of its options: {seen}")


def options_of(command):
    """The options that a command lists, of those with a value one spelling each."""
    text = stridec(f"{command} --help", 0).stdout
    lines = re.findall(r"^  (?:-\w, ?)?(--?[\w-]+)( [^ ]+)?(?: \.\.\.)?(?:  |$)", text, re.M)
    return [(name, bool(value)) for name, value in lines if name not in ("--help", "--version")]


def test_no_option_takes_a_positional():
    """Each option of each command in front of the positionals: the error is never that one is missing."""
    for command, positionals in POSITIONALS.items():
        options = options_of(command)
        expect(len(options) >= 3, f"{command}: {options}")
        for name, has_value in options:
            done = stridec([command, name, *(["1"] if has_value else []), *positionals])
            expect(done.returncode != 0 and "required" not in done.stderr and "is needed" not in done.stderr
                   and "unexpected" not in done.stderr, f"{command} {name}: {done.stderr}")  # fmt: skip


def test_closed_pipe():
    """A reader that goes away is not an error, whatever the length of the output."""
    for command in ("ops", "inspect mlp.onnx --stage=source", "modes", "--help", "compile --help", "exit-codes --format=json"):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([STRIDEC, *command.split()], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
        os.close(write)
        expect((done.returncode, done.stderr) == (0, ""), f"{command}: exit code {done.returncode}, {done.stderr}")
    with open("/dev/full", "wb") as full:
        for command in ("ops", "modes", "compile --help"):
            done = subprocess.run([STRIDEC, *command.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            expect(done.returncode in (2, 6) and "standard output" in done.stderr, f"{command}: {done.returncode}")


def test_misspelt():
    for words, guess in (("compile mlp.onnx --outptu a.so", "--output"), ("cmpile mlp.onnx", "compile"), ("run mlp.so --inptu x=a", "--input"),
                         ("compile --tunedb=a mlp.onnx", "--tune-db"), ("compile --max-second 3", "--max-seconds")):  # fmt: skip
        error = stridec(words, 1).stderr
        expect(f"did you mean '{guess}'?" in error and ("unknown option" in error or "there is no command" in error), error)
    for words, guess in (("-O winogard=true", "winograd"), ("--mode max-autotone", "max-autotune"), ("--stop-after fusoin", "fusion")):
        error = stridec(f"compile mlp.onnx {words}", 1).stderr
        expect(f"did you mean '{guess}'?" in error, error)
    error = stridec("run mlp.so --tune-db x", 1).stderr
    expect("unknown option '--tune-db'" in error and "is an option of compile" in error, error)
    expect("did you mean" not in stridec("compile mlp.onnx --zzzzzz", 1).stderr, "a guess for anything")
    expect("unexpected argument 'b'" in stridec("compile mlp.onnx b", 1).stderr, "an argument too many")


def test_response_files():
    files = {"flags": "# for all models\n--dim batch=1..8   -o 'with space.so'\n@more", "more": '--quiet -O\n\twinograd="fal"se',
             "self": "@self", "open": "--dim 'batch"}  # fmt: skip
    for name, text in files.items():
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    done = stridec("compile @flags mlp.onnx", 0)
    expect(done.stderr == "" and os.path.getsize("with space.so"), done.stderr)
    manifest = stridec(["inspect", "with space.so", "--format=json"], 0).stdout
    expect('"winograd": "false"' in manifest and '"batch": "1..8"' in manifest, manifest)
    expect("nested" in stridec("compile @self", 1).stderr, "a file that names itself")
    expect("'open'" in stridec("compile @open", 1).stderr, "a quotation without an end")
    expect("missing" in stridec("compile @missing", 2).stderr, "a missing file")
    expect("missing" in stridec("inspect -- @missing", 2).stderr, "a file behind --")
    os.remove("with space.so")
