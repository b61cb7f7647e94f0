"""Tree ensembles in which not every class or target has weights, for contrib.py."""

import numpy as np
from onnx import helper

ML = "ai.onnx.ml"


def stumps(rng, kind, column, positive=False, weighted=lambda tree, node: True):
    """Trees of one question about one of three features each; leaf `node` of `tree` has a weight for column(tree, node)."""
    trees = 6
    nodes = dict(
        nodes_treeids=np.repeat(range(trees), 3).tolist(),
        nodes_nodeids=[0, 1, 2] * trees,
        nodes_featureids=sum(([t % 3, 0, 0] for t in range(trees)), []),
        nodes_values=sum(([float(np.float32(rng.standard_normal())), 0.0, 0.0] for t in range(trees)), []),
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * trees,
        nodes_truenodeids=[1, 0, 0] * trees,
        nodes_falsenodeids=[2, 0, 0] * trees,
        nodes_missing_value_tracks_true=sum(([t % 2, 0, 0] for t in range(trees)), []),
    )
    leaves = [(t, n) for t in range(trees) for n in (1, 2) if weighted(t, n)]
    weights = [float(np.float32(rng.standard_normal() / 4)) for _ in leaves]
    return nodes | {
        f"{kind}_treeids": [t for t, _ in leaves],
        f"{kind}_nodeids": [n for _, n in leaves],
        f"{kind}_ids": [column(t, n) for t, n in leaves],
        f"{kind}_weights": [abs(w) for w in weights] if positive else weights,
    }


def cases(case, rng):
    x = rng.standard_normal((9, 3)).astype(np.float32)
    x[2, 1], x[5] = np.nan, np.nan
    sometimes = lambda tree, node: node == 1  # noqa: E731: rows may end at leaves without weights alone

    def many(name, op, all_attributes, types, x=x):
        """One model of a node for each set of attributes."""
        outputs = len(types)

        def nodes(names, results):
            return [helper.make_node(op, names, results[outputs * i : outputs * (i + 1)], domain=ML, **a) for i, a in enumerate(all_attributes)]

        case(name, op, [x], outputs * len(all_attributes), domain=ML, version=3, nodes=nodes)

    for known in (0, 1):
        for base in ([], [0.25], [0.25, -0.125]):
            rows = []
            for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"):
                if transform == "PROBIT" and known == 0 and len(base) < 2:
                    continue  # onnxruntime leaves the second column as its memory was
                for positive in (False, True):
                    for weighted in (lambda tree, node: True, sometimes):
                        labels = dict(classlabels_strings=["no", "yes"]) if positive else dict(classlabels_int64s=[10, 20])
                        more = dict(base_values=base) if base else {}
                        rows.append(stumps(rng, "class", lambda t, n, k=known: k, positive, weighted) | labels | more | dict(post_transform=transform))
            for x_type in (np.float32, np.float64):
                many(f"binary_{known}_{len(base)}_{x_type.__name__}", "TreeEnsembleClassifier", rows, "ls", x.astype(x_type))
                for batch in (1, 40):
                    many(f"binary_{known}_{len(base)}_{x_type.__name__}_{batch}", "TreeEnsembleClassifier", rows[:4], "ls",
                         rng.standard_normal((batch, 3)).astype(x_type))  # fmt: skip
    # Three classes, of which one has no weights, or not at every leaf: it is not chosen where it has none.
    for name, column in (("two", lambda t, n: t % 2), ("spread", lambda t, n: (t + n) % 3)):
        rows = [stumps(rng, "class", column, False, lambda t, n: t == 0 or n == 1) | dict(classlabels_int64s=[5, 7, 9], post_transform=transform) | base
                for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO") for base in ({}, dict(base_values=[0.1, -0.2, 0.3]))]  # fmt: skip
        many(f"classes_{name}_of_three", "TreeEnsembleClassifier", rows, "ls", rng.standard_normal((12, 3)).astype(np.float32))
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        rows = [stumps(rng, "target", lambda t, n, k=known: k, False, weighted) | dict(n_targets=2, aggregate_function=aggregate) | base
                for known in (0, 1) for weighted in (lambda tree, node: True, sometimes) for base in ({}, dict(base_values=[0.25, -0.125]))]  # fmt: skip
        many(f"targets_one_{aggregate}", "TreeEnsembleRegressor", rows, "s")
