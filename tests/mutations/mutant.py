"""Builds a test with one source file changed, beside the build folder: neither the sources nor the build folder change."""

import os
import re
import shlex
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("build", "build"))


class Test:
    """A unit executable of the build folder, by its name."""

    def __init__(self, name):
        lines = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", name], capture_output=True, text=True, check=True).stdout.splitlines()
        self.name = name
        self.compiles = {}  # by the source's path in the repository
        for line in lines:
            match = re.search(r" -c \S*?/(compiler/\S+\.cpp)$", line)
            if match:
                self.compiles[match.group(1)] = line
        self.link = [line for line in lines if f" -o {name} " in line][-1]

    def build(self, source, changed, text, folder):
        """The executable with `source` compiled where the file `changed` (itself, or one that it includes) has another text;
        None if that does not compile."""
        path = os.path.join(folder, changed)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        words = [word for word in shlex.split(self.compiles[source]) if not word.endswith("ccache")]
        made = os.path.join(folder, "mutant.o")
        words[words.index("-o") + 1] = made
        words[words.index("-MF") + 1] = os.path.join(folder, "mutant.d")
        if changed == source:
            words[-1] = path
        words[1:1] = ["-I" + folder]
        if subprocess.run(words, cwd=BUILD, capture_output=True, check=False).returncode:
            return None
        test = os.path.join(folder, self.name)
        command = self.link.replace(f" -o {self.name} ", f" {made} -o {test} ")
        subprocess.run(command, cwd=BUILD, shell=True, capture_output=True, check=True)
        return test
