"""Weight clustering: stridec compile model.onnx --pass after=import 'python3 samples/extend/cluster_weights.py 16'

Each float weight of 1,024 elements or more keeps 16 different values: the centres that k-means finds (Lloyd 1982), begun at
quantiles. Such weights compress well, and show how a network reacts to a codebook.
"""

import sys

import numpy as np

import graph_text

LEAST_ELEMENTS, ROUNDS = 1024, 10


def clustered(weight, count):
    flat = weight.astype(np.float64).ravel()
    centres = np.unique(np.quantile(flat, (np.arange(count) + 0.5) / count))
    for _ in range(ROUNDS):
        borders = (centres[1:] + centres[:-1]) / 2
        nearest = np.searchsorted(borders, flat)
        sums, counts = np.bincount(nearest, flat, len(centres)), np.bincount(nearest, minlength=len(centres))
        centres = np.sort(np.where(counts > 0, sums / np.maximum(counts, 1), centres))
    return centres[np.searchsorted((centres[1:] + centres[:-1]) / 2, flat)].reshape(weight.shape)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    lines, changed = graph_text.read(), 0
    new = graph_text.NewContents("clustered.bin")
    for i, node in enumerate(lines):
        if not isinstance(node, graph_text.Node) or node.op != "constant" or node.dtype not in ("f16", "f32", "f64"):
            continue
        if node.shape is None or np.prod(node.shape) < LEAST_ELEMENTS or node.rest.startswith(" replaceable"):
            continue
        weight = graph_text.contents(node)
        if weight is None or not np.isfinite(weight).all():
            continue
        lines[i] = new.constant(node, clustered(weight, count))
        changed += 1
    new.file.close()
    graph_text.write(lines)
    print(f"{changed} weights clustered to {count} values", file=sys.stderr)


if __name__ == "__main__":
    main()
