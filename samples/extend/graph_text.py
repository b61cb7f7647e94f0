"""Reads and writes the text that stridec gives to passes: docs/extending.md has the grammar.

A pass reads the lines of a graph from stdin and writes lines to stdout. This module finds the nodes among them and the contents
of constants; lines that a pass does not care about stay as they are.
"""

import os
import pathlib
import re
import sys

import numpy as np

DTYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32,
          "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64}
# %12 "name" : f32[2, 3] = op %1 %2 {attributes} from "node 4"
NODE = re.compile(r'^(?P<indent> *)%(?P<number>\d+)(?P<name> "(?:[^"\\]|\\.)*")? : (?P<dtype>\w+)\[(?P<shape>[^\]]*)\] '
                  r"= (?P<op>\w+)(?P<rest>.*)$")
FOLDER = pathlib.Path(os.environ.get("STRIDEC_PASS_DIR", "."))


class Node:
    """A line with one result whose elements are not known sizes."""

    def __init__(self, match):
        self.line, self.op, self.rest = match[0], match["op"], match["rest"]
        self.number, self.indent = int(match["number"]), len(match["indent"])
        self.head = match[0][:match.start("op")]  # up to the operator
        self.dtype = match["dtype"]
        sizes = [s.strip() for s in match["shape"].split(",") if s.strip()]
        self.shape = [int(s) for s in sizes] if all(s.isdigit() for s in sizes) else None  # None: sizes of the run
        operands = re.match(r"(?: %\d+)*", self.rest)[0]
        self.inputs = [int(n) for n in re.findall(r"%(\d+)", operands)]
        braces = re.match(r" \{(.*?)\}(?= from \"|$)", self.rest[len(operands):])
        self.attributes = dict(re.findall(r"(\w+)=(\$?#?\[[^\]]*\]|\$\(.*?\)|\"[^\"]*\"|[^,]+)", braces[1])) if braces else {}
        origin = re.search(r" from \"(?:[^\"\\]|\\.)*\"$", self.rest)
        self.origin = origin[0] if origin else ""


def read():
    """The lines of the graph; Node objects in place of the lines that are nodes."""
    lines = sys.stdin.read().splitlines()
    if not lines or lines[0] != "stridec-graph 1":
        sys.exit("this is not a text of version 1")
    return [Node(match) if (match := NODE.match(line)) else line for line in lines]


def contents(node):
    """The contents of a constant as an array, or None for types that NumPy does not have."""
    dtype = DTYPES.get(node.dtype)
    if dtype is None or node.shape is None:
        return None
    listed = re.match(r" (?:replaceable )?\[(.*?)\]", node.rest)
    if listed:
        numbers = [n.strip() for n in listed[1].split(",") if n.strip()]
        return np.array([float(n) if np.issubdtype(dtype, np.floating) else int(n) for n in numbers]).astype(dtype).reshape(node.shape)
    named = re.match(r" (?:replaceable )?\d+ bytes @(\S+)", node.rest)
    if not named:
        return None
    return np.fromfile(FOLDER / "weights" / named[1], dtype).reshape(node.shape)


class NewContents:
    """Contents of new constants, in one file of the folder."""

    def __init__(self, name):
        self.name, self.file = name, open(FOLDER / name, "wb")

    def constant(self, node, array):
        """The node as a constant."""
        data = np.ascontiguousarray(array, DTYPES[node.dtype]).tobytes()
        offset = self.file.tell()
        self.file.write(data)
        return f"{node.head}constant {len(data)} bytes @file:{self.name}+{offset}{node.origin}"


def write(lines):
    print("\n".join(line.line if isinstance(line, Node) else line for line in lines))
