"""How words become a command: any order of options and positionals, misspelt names, response files, closed pipes."""

import itertools
import json
import os
import re
import shutil
import subprocess

import numpy as np
import onnx
from onnx import helper

from harness import ROOT, STRIDEC, expect, stridec
from models import model, value

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
        # The second write to a stream that failed says nothing of the first: whatever the length of the output.
        for command in ("ops", "ops --format=json", "modes", "man", "options", "passes", "schema manifest", "--help", "help", "--version",
                        "compile --help", "check mlp.onnx", "check mlp.onnx --format=json"):  # fmt: skip
            done = subprocess.run([STRIDEC, *command.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            reason = "standard output could not be written: No space left on device"
            expect(done.returncode == 6 and reason in done.stderr, f"{command}: {done.returncode} {done.stderr}")
        # An error that stdout cannot take is on stderr, with the code of the error.
        for command, code in (("check missing.onnx --format=json", 2), ("check tower.onnx --max-memory 1MB --format=json", 6)):
            done = subprocess.run([STRIDEC, *command.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            expect(done.returncode == code and json.loads(done.stderr)["error"]["exit_code"] == code, f"{command}: {done.stderr}")


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


def test_mark_of_positionals():
    """Behind '--' all words are positionals, also more of those that the last one takes."""
    shutil.copy("mlp.onnx", "-x.onnx")
    stridec("check -q -- -x.onnx", 0)
    stridec("ops -- Conv MatMul", 0)
    expect(stridec("ops Conv -- MatMul", 0).stdout == stridec("ops Conv MatMul", 0).stdout, "names on both sides")
    expect("unexpected argument '--dim'" in stridec("check -- mlp.onnx --dim", 1).stderr, "an option behind --")
    expect("unexpected argument 'show'" in stridec("cache -- show", 1).stderr, "a subcommand behind --")
    os.remove("-x.onnx")


def test_help_command():
    expect(stridec("help", 0).stdout == stridec("--help", 0).stdout, "help of the program")
    expect(stridec("help compile", 0).stdout == stridec("compile --help", 0).stdout, "help of a command")
    expect("did you mean 'compile'?" in stridec("help complie", 1).stderr, "a misspelt command")
    for words, guess in (("--versio", "--version"), ("--hlep", "--help")):
        expect(f"did you mean '{guess}'?" in stridec(words, 1).stderr, words)


def test_sizes_in_bytes():
    """One form of sizes: what is not one is refused with the form, negative ones too."""
    for words in ("cache limit abc", "cache limit -5", "cache limit -5MB", "cache limit 99999999999GB", "check mlp.onnx --max-memory abc",
                  "check mlp.onnx --max-memory -5", "check mlp.onnx --max-memory=-5MB", "check mlp.onnx --max-memory 2XB"):  # fmt: skip
        error = stridec(words, 1).stderr
        expect("is not a size: write 500MB, 2GB or 2GiB" in error, error)
    for size in ("500MB", "2gb", "1.5GiB", "4g", "3000000000"):
        stridec(f"check mlp.onnx -q --max-memory {size}", 0)


def test_files_of_another_kind():
    """A file in place of an artifact: what it is, and what to do."""
    compile_it = "it is an ONNX model: compile it first, as by 'stridec compile mlp.onnx -o mlp.so'"
    name_it = "it is the manifest of an artifact: name the library, 'mlp.so'"
    order = "the model comes first, the artifact second: stridec verify mlp.onnx mlp.so"
    shutil.copy(os.path.join(ROOT, "tests", "pt2", "programs", "nonzero_item.pt2"), "mlp.pt2")
    for words, help_of in (("run mlp.onnx --random", compile_it), ("bench mlp.onnx", compile_it), ("profile mlp.onnx", compile_it),
                           ("diff mlp.onnx mlp.so", compile_it), ("licenses mlp.onnx", compile_it), ("refit mlp.onnx --parameters p.npz -o r.so", compile_it),
                           ("run mlp.pt2", "it is a PyTorch program"), ("run mlp.json", name_it), ("bench mlp.json", name_it),
                           ("verify mlp.onnx mlp.json", name_it), ("verify mlp.so mlp.onnx", order), ("verify mlp.onnx mlp.onnx", compile_it)):  # fmt: skip
        error = stridec(words, 3).stderr
        expect("error[not-an-artifact]" in error and help_of in error, f"{words}: {error}")
    expect("help" not in stridec("run good.npy", 3).stderr, "an array")
    os.remove("mlp.pt2")


def test_dims_of_one_name():
    """Two dims of one name with other sizes: both are named, and --dim only where it was given."""
    twice = helper.make_node("Relu", ["x"], ["y"])
    onnx.save(model([twice], [value("x", ["dynamic", "dynamic"])], [value("y", None)]), "twice.onnx")
    stridec("compile twice.onnx -o twice.so", 0)
    np.save("two_three.npy", np.ones((2, 3), np.float32))
    error = stridec("run twice.so -i x=two_three.npy", 1).stderr
    expect("dim 1 of 'two_three.npy' gives dynamic 3, where dim 0 of 'two_three.npy' gives 2" in error, error)
    expect("--dim" not in error, error)
    error = stridec("run twice.so -i x=two_three.npy --dim dynamic=5", 1).stderr
    expect("dim 0 of 'two_three.npy' gives dynamic 2, where it is 5" in error and "leave it out of --dim" in error, error)


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
    error = stridec("run mlp.so -i @x=good.npy", 2).stderr
    expect("response file" in error and "--input='@x=good.npy'" in error, error)
    expect("no input '@x'" in stridec("run mlp.so --input=@x=good.npy", 1).stderr, "a value that begins with @")
    with open("lines", "w", encoding="utf-8", newline="") as file:
        file.write("--dim \\\n  ba\\\ntch=1..8 \\\r\n--quiet -o \"li\\\nnes.so\" 'mlp\\\n'\\\n")
    error = stridec("compile @lines", 2).stderr
    expect("mlp\\" in error, f"between single quotes a backslash is itself: {error}")
    with open("lines", "w", encoding="utf-8", newline="") as file:
        file.write("--dim \\\n  ba\\\ntch=1..8 \\\r\n--quiet -o \"li\\\nnes.so\" mlp.onnx \\\n")
    stridec("compile @lines", 0)
    os.remove("lines.so")
    os.remove("with space.so")
