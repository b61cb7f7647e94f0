"""Tests what a user of the command line sees: messages, exit codes, JSON, and what is left on disk.

    python tests/cli/run.py [--update] [name...]

Transcripts of refused commands are compared with tests/golden/cli/*.txt; --update writes those anew. Commands run in a
temporary folder that harness.prepare fills. After every command that fails the folder is as before. The last line is
"N passed, N failed". Environment: stridec (the program, default build/stridec).
"""

import os
import subprocess
import sys
import tempfile

import altered
import compiling
import failures
import hostile
import information
import library
import results
import same_bytes
import transcripts
from harness import ROOT, prepare

TOPICS = (failures, hostile, information, compiling, same_bytes, results, altered)


def tests(update):
    """By name: every transcript, the library's sentences, the tests of the topics."""
    named = {name: lambda name=name: transcripts.check(name, update) for name in transcripts.TRANSCRIPTS}
    named["runtime"] = lambda: library.check(update)
    named["page_of_operators"] = lambda: information.page_of_operators(update)
    for test in (test for topic in TOPICS for test in topic.TESTS):
        name = test.__name__.removeprefix("test_")
        assert name not in named, f"two tests are named {name}"
        named[name] = test
    return named


def main(arguments):
    todo = tests("--update" in arguments)
    chosen = [argument for argument in arguments if not argument.startswith("--")] or list(todo)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="stridec-cli-") as parent:
        os.makedirs(os.path.join(parent, "work"))
        os.chdir(os.path.join(parent, "work"))
        os.environ["LC_ALL"] = "C"
        try:
            prepare()
        except AssertionError as error:
            print(f"FAIL preparing: {error}\n0 passed, {len(todo)} failed")
            return 1
        for name in chosen:
            try:
                todo[name]()
            except (AssertionError, subprocess.SubprocessError, ValueError, KeyError, OSError) as error:
                failed += 1
                print(f"FAIL {name}: {error}")
        os.chdir(ROOT)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
