"""Tests what a user of the command line sees: messages, exit codes, JSON, and what is left on disk.

    python tests/cli/run.py [--update] [name...]

Transcripts of refused commands are compared with tests/golden/cli/*.txt; --update writes those anew. The tests of a topic
run in a temporary folder of their own, a copy of the one that harness.prepare fills, so that no topic sees the files of
another. After every command that fails the folder is as before. The last line is "N passed, N failed". Environment:
stridec (the program, default build/stridec).
"""

import ast
import collections
import os
import signal
import shutil
import subprocess
import sys
import tempfile

import altered
import command_line
import compiling
import failures
import functions
import help_pages
import hostile
import information
import layouts
import library
import models_shown
import profiling
import random_data
import ranks
import refit
import reports
import results
import same_bytes
import state_sizes
import traces
import transcripts
import verifying
import working
from harness import ROOT, prepare

# A test that waits longer for a process has failed; on a quiet machine the longest takes a minute.
SECONDS_OF_A_TEST = 600

TOPICS = (command_line, failures, hostile, information, compiling, same_bytes, results, ranks, random_data, altered, verifying, help_pages, models_shown, working, refit, functions, state_sizes, layouts, profiling, reports, traces)


def names_in(module):
    """Its functions test_*. Of two functions or cases of one name Python keeps the last, so that the other never runs."""
    with open(module.__file__, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    tables = [[key.value for key in node.keys if isinstance(key, ast.Constant)] for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    for names in (functions, *tables):
        twice = [name for name, count in collections.Counter(names).items() if count > 1]
        assert not twice, f"{os.path.basename(module.__file__)} has two of the name {twice[0]}"
    return [name for name in functions if name.startswith("test_")]


def tests(update):
    """By name, each with its topic: every transcript, the library's sentences, the tests of the topics."""
    names_in(transcripts)
    named = {name: ("transcripts", lambda name=name: transcripts.check(name, update)) for name in transcripts.TRANSCRIPTS}
    named["runtime"] = ("library", lambda: library.check(update))
    named["page_of_operators"] = ("information", lambda: information.page_of_operators(update))
    for topic in TOPICS:
        for function in names_in(topic):
            name = function.removeprefix("test_")
            assert name not in named, f"two tests are named {name}"
            named[name] = (topic.__name__, getattr(topic, function))
    return named


def too_long(number, frame):
    raise TimeoutError(f"not done after {SECONDS_OF_A_TEST} s")


def enter(topic):
    """Makes the topic's folder, a sibling of the prepared one, the current folder."""
    folder = os.path.join("..", topic)
    if not os.path.exists(folder):
        shutil.copytree(os.path.join("..", "prepared"), folder, symlinks=True)
    os.chdir(folder)


def main(arguments):
    todo = tests("--update" in arguments)
    chosen = [argument for argument in arguments if not argument.startswith("--")] or list(todo)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="stridec-cli-") as parent:
        os.makedirs(os.path.join(parent, "prepared"))
        os.chdir(os.path.join(parent, "prepared"))
        os.environ["LC_ALL"] = "C"
        try:
            prepare()
        except AssertionError as error:
            print(f"FAIL preparing: {error}\n0 passed, {len(todo)} failed")
            return 1
        signal.signal(signal.SIGALRM, too_long)
        for name in chosen:
            signal.alarm(SECONDS_OF_A_TEST)
            topic, test = todo[name]
            enter(topic)
            try:
                test()
            except (AssertionError, subprocess.SubprocessError, ValueError, KeyError, OSError) as error:
                failed += 1
                print(f"FAIL {name}: {error}")
        signal.alarm(0)
        os.chdir(ROOT)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
