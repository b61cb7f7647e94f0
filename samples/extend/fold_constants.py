"""Constant folding: stridec compile model.onnx --pass after=import 'python3 samples/extend/fold_constants.py'

Each node whose operands are constants becomes a constant, if its result is at most 1 MiB and not much larger than its operands.
fold_constants.c is the same pass as a plug-in, where the compiler's interpreter computes the values of any operator.
"""

import sys

import numpy as np

import graph_text

MOST_BYTES, MOST_GROWTH = 1 << 20, 4


def integers(text):
    return [int(n) for n in text.strip("$#[]").split(",") if n.strip()]


def sliced(a, x):
    starts, extents, steps = (integers(a[name]) for name in ("starts", "extents", "steps"))
    return x[np.ix_(*[start + step * np.arange(extent) for start, extent, step in zip(starts, extents, steps)])]


OPERATORS = {
    "add": lambda a, x, y: x + y,
    "sub": lambda a, x, y: x - y,
    "mul": lambda a, x, y: x * y,
    "neg": lambda a, x: -x,
    "abs": lambda a, x: np.abs(x),
    "sqrt": lambda a, x: np.sqrt(x),
    "rsqrt": lambda a, x: (1 / np.sqrt(x.astype(np.float64))),
    "exp": lambda a, x: np.exp(x.astype(np.float64)),
    "div": lambda a, x, y: x / y if np.issubdtype(x.dtype, np.floating) else None,
    "reshape": lambda a, x: x.reshape(integers(a["shape"])),
    "permute": lambda a, x: x.transpose(integers(a["order"])),
    "slice": sliced,
    "concat": lambda a, *parts: np.concatenate(parts, int(a["dim"])),
    "expand": lambda a, x: np.broadcast_to(x, integers(a["shape"])),
    "cast": lambda a, x: x.astype(graph_text.DTYPES[a["to"]]) if np.issubdtype(graph_text.DTYPES[a["to"]], np.floating) else None,
}


def folded(node, constants, new):
    """The line of the constant, or None."""
    if node.op not in OPERATORS or node.shape is None or node.dtype not in graph_text.DTYPES:
        return None
    if not node.inputs or not all(n in constants for n in node.inputs):
        return None
    operands = [constants[n] for n in node.inputs]
    size = int(np.prod(node.shape)) * np.dtype(graph_text.DTYPES[node.dtype]).itemsize
    if size > MOST_BYTES or size > MOST_GROWTH * sum(x.nbytes for x in operands):
        return None
    with np.errstate(all="ignore"):
        value = OPERATORS[node.op](node.attributes, *operands)
    if value is None:
        return None
    constants[node.number] = np.asarray(value).astype(graph_text.DTYPES[node.dtype])
    return new.constant(node, constants[node.number])


def main():
    lines, constants, count = graph_text.read(), {}, 0
    new = graph_text.NewContents("folded.bin")
    for i, node in enumerate(lines):
        if not isinstance(node, graph_text.Node):
            continue
        if node.op == "constant":
            array = None if node.rest.startswith(" replaceable") else graph_text.contents(node)
            if array is not None:
                constants[node.number] = array
        elif line := folded(node, constants, new):
            lines[i] = line
            count += 1
    new.file.close()
    graph_text.write(lines)
    print(f"{count} nodes folded", file=sys.stderr)


if __name__ == "__main__":
    main()
