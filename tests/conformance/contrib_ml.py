"""Cases of ai.onnx.ml, for contrib.py."""

import numpy as np
from contrib_case import ML, case, integers, normal, rng
from onnx import TensorProto

# ---- ai.onnx.ml ---------------------------------------------------------------------------------------------


def forest(trees, depth, features, targets, leaf, mode="BRANCH_LEQ", positive=False):
    """Complete trees: attributes as TreeEnsembleRegressor and -Classifier of versions 1 to 4 have them."""
    out = {k: [] for k in ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids",
                           "nodes_falsenodeids", "nodes_missing_value_tracks_true")}  # fmt: skip
    leaves = {f"{leaf}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    inner = 2**depth - 1
    for tree in range(trees):
        for node in range(2 * inner + 1):
            is_leaf = node >= inner
            row = (tree, node, 0 if is_leaf else int(rng.integers(features)), 0.0 if is_leaf else float(np.float32(rng.standard_normal())),
                   "LEAF" if is_leaf else mode, 0 if is_leaf else 2 * node + 1, 0 if is_leaf else 2 * node + 2, int(rng.integers(2)))  # fmt: skip
            for key, value in zip(out, row):
                out[key].append(value)
            if is_leaf:
                weight = float(np.float32(rng.standard_normal()))
                for key, value in zip(leaves, (tree, node, int(rng.integers(targets)), abs(weight) if positive else weight)):
                    leaves[key].append(value)
    return out | leaves


def trees():
    # Trees enough that every target is spoken about: onnxruntime leaves base values and unscored classes out where none does.
    x = normal(7, 5)
    x[2, 1] = np.nan
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        for targets in (1, 3):
            case(f"trees_{aggregate}_{targets}", "TreeEnsembleRegressor", [x], domain=ML, version=3, n_targets=targets, aggregate_function=aggregate,
                 base_values=[0.5] * targets, **forest(40, 3, 5, targets, "target"))  # fmt: skip
    for mode in ("BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"):
        case(f"trees_{mode}", "TreeEnsembleRegressor", [np.round(x)], domain=ML, version=3, n_targets=1, **forest(3, 3, 5, 1, "target", mode))
    # Rows for whole vectors and some more, on thresholds as often as not.
    many = np.round(normal(75, 5))
    many[::9, 1], many[5, 2], many[6, 3] = np.nan, np.inf, -np.inf
    for mode in ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "mixed"):
        nodes = forest(9, 4, 5, 2, "target", mode)
        nodes["nodes_values"] = np.round(nodes["nodes_values"]).tolist()
        if mode == "mixed":
            modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
            nodes["nodes_modes"] = [m if m == "LEAF" else modes[rng.integers(6)] for m in nodes["nodes_modes"]]
        for x_type in (np.float32, np.float64):
            case(f"trees_rows_{mode}_{x_type.__name__}", "TreeEnsembleRegressor", [many.astype(x_type)], domain=ML, version=3, n_targets=2, **nodes)
    for transform in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        case(f"classes_{transform}", "TreeEnsembleClassifier", [x], 2, domain=ML, version=3, post_transform=transform,
             classlabels_int64s=[4, 7, 9], **forest(40, 3, 5, 3, "class"))  # fmt: skip
        for positive in (False, True):
            case(f"classes_one_{transform}_{positive}", "TreeEnsembleClassifier", [x], 2, domain=ML, version=3, post_transform=transform,
                 classlabels_int64s=[4, 7], **forest(5, 2, 5, 1, "class", positive=positive))  # fmt: skip
    case("classes_strings", "TreeEnsembleClassifier", [x], 2, domain=ML, version=3, classlabels_strings=["a", "bc", "def"], **forest(40, 3, 5, 3, "class"))


def models():
    x = normal(4, 3)
    for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
        case(f"linear_regressor_{transform}", "LinearRegressor", [x], domain=ML, version=1, coefficients=normal(6).tolist(), intercepts=[0.1, 0.2],
             targets=2, post_transform=transform)  # fmt: skip
        case(f"linear_classifier_{transform}", "LinearClassifier", [x], 2, domain=ML, version=1, coefficients=normal(9).tolist(),
             intercepts=[0.1, 0.2, 0.3], classlabels_ints=[3, 5, 8], post_transform=transform)  # fmt: skip
        case(f"linear_binary_{transform}", "LinearClassifier", [x], 2, domain=ML, version=1, coefficients=normal(6).tolist(),
             intercepts=[0.1, 0.2], classlabels_ints=[3, 5], post_transform=transform)  # fmt: skip
    case("linear_strings", "LinearClassifier", [x], 2, domain=ML, version=1, coefficients=normal(9).tolist(), intercepts=[0.1, 0.2, 0.3],
         classlabels_strings=["x", "yy", "zzz"], post_transform="SOFTMAX")  # fmt: skip
    for kernel in ("LINEAR", "RBF", "POLY", "SIGMOID"):
        case(f"svm_regressor_{kernel}", "SVMRegressor", [x], domain=ML, version=1, coefficients=normal(5).tolist(), support_vectors=normal(15).tolist(),
             kernel_params=[0.5, 0.3, 2.0], kernel_type=kernel, n_supports=5, rho=[0.4])  # fmt: skip
    for kernel in ("LINEAR", "RBF", "POLY", "SIGMOID"):
        for classes in (2, 4):
            pairs, supports = classes * (classes - 1) // 2, [2, 3, 1, 2][:classes]
            machine = dict(kernel_type=kernel, kernel_params=[0.5, 0.3, 2.0], vectors_per_class=supports, rho=normal(pairs).tolist(),
                           support_vectors=normal(sum(supports) * 3).tolist(), coefficients=normal((classes - 1) * sum(supports)).tolist(),
                           classlabels_ints=[7, 3, 9, 4][:classes])  # fmt: skip
            case(f"svm_classifier_{kernel}_{classes}", "SVMClassifier", [normal(9, 3)], 2, domain=ML, version=1, **machine)
            case(f"svm_probabilities_{kernel}_{classes}", "SVMClassifier", [normal(9, 3)], 2, domain=ML, version=1,
                 prob_a=(-abs(normal(pairs)) - 0.5).tolist(), prob_b=normal(pairs, scale=0.3).tolist(), **machine)  # fmt: skip
    for transform in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        for classes in (2, 4):
            pairs, supports = classes * (classes - 1) // 2, [1] * classes
            case(f"svm_{transform}_{classes}", "SVMClassifier", [normal(5, 3).astype(np.float64)], 2, domain=ML, version=1, kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0],
                 vectors_per_class=supports, rho=normal(pairs).tolist(), support_vectors=normal(classes * 3).tolist(),
                 coefficients=normal((classes - 1) * classes).tolist(), classlabels_strings=["a", "bb", "c", "d"][:classes],
                 post_transform=transform)  # fmt: skip
    for classes in (2, 3):
        for sign in (1, -1):
            weights = abs(normal(classes * 3)) if sign > 0 else normal(classes * 3)
            case(f"svm_linear_{classes}_{sign}", "SVMClassifier", [integers(-3, 3, (7, 3), np.int64)], 2, domain=ML, version=1,
                 coefficients=weights.tolist(), kernel_params=[0.0, 0.0, 0.0], rho=[0.2], classlabels_ints=[5, 2, 8][:classes])  # fmt: skip
    case("dictionary_texts", "DictVectorizer", [{"b": np.float32(2.5), "zz": np.float32(1), "a": np.float32(-3)}], domain=ML, version=1,
         string_vocabulary=["a", "c", "b", "z", "a"])  # fmt: skip
    case("dictionary_numbers", "DictVectorizer", [{3: np.float32(2.5), -4: np.float32(1)}], domain=ML, version=1, int64_vocabulary=[3, 9, 5, 9, 1])
    texts = {9: "nine", 3: "three", 5: ""}
    case("dictionary_of_texts", "DictVectorizer", [texts], domain=ML, version=1, int64_vocabulary=[3, 1, 9, 5, 3],
         results=[np.array([["three", "", "nine", "", "three"]], object)])  # fmt: skip
    case("dictionary_of_doubles", "DictVectorizer", [{7: np.float64(0.1)}], domain=ML, version=1, int64_vocabulary=[3, 7], results=[np.array([[0, 0.1]])])
    for form, want in (("DENSE", ["three", "", "nine"]), ("SPARSE", ["0.f", "0.f", "0.f", "three"])):
        case(f"cast_map_{form}", "CastMap", [{5: np.float32(2.75), 0: np.float32(1), 3: np.float32(-3.5), 20: np.float32(8)}], domain=ML, version=1,
             cast_to="TO_INT64", map_form=form, max_map=8)  # fmt: skip
        case(f"cast_map_texts_{form}", "CastMap", [texts], domain=ML, version=1, cast_to="TO_STRING", map_form=form, max_map=4,
             results=[np.array([want], object)])  # fmt: skip
    # The generator is free: what can be compared is where one class alone can be drawn.
    certain = np.array([[-np.inf, 3, -np.inf], [0.5, -200, -np.inf], [-np.inf, -300, 40]], np.float32)
    case("multinomial", "Multinomial", [certain], domain="", sample_size=5, seed=1.0, dtype=TensorProto.INT64)
    for norm in ("MAX", "L1", "L2"):
        case(f"normalizer_{norm}", "Normalizer", [x], domain=ML, version=1, norm=norm)
    case("scaler", "Scaler", [x], domain=ML, version=1, offset=[0.1, 0.2, 0.3], scale=[2.0, 3.0, 4.0])
    y = x.copy()
    y[1, 1] = np.nan
    case("imputer", "Imputer", [y], domain=ML, version=1, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))
    case("features", "FeatureVectorizer", [x, normal(4, 2)], domain=ML, version=1, inputdimensions=[3, 2])
    words = np.array([["cat", "dog"], ["", "a long sentence, with umlauts: äöü"]], object)
    keys = ["dog", "cat", "a long sentence, with umlauts: äöü"]
    case("labels_strings_ints", "LabelEncoder", [words], domain=ML, version=2, keys_strings=keys, values_int64s=[5, 6, 7], default_int64=-9)
    case("labels_ints_strings", "LabelEncoder", [integers(0, 9, (3, 4), np.int64)], domain=ML, version=2, keys_int64s=[3, 1, 4], values_strings=["three", "", "four"])
    case("labels_strings", "LabelEncoder", [words], domain=ML, version=2, keys_strings=keys, values_strings=["hound", "feline", "x"], default_string="?")
    case("labels_floats", "LabelEncoder", [np.array([1, 2.5, np.nan, -0.0], np.float32)], domain=ML, version=4, keys_floats=[2.5, float("nan"), 0.0],
         values_floats=[1.0, 2.0, 3.0], default_float=7.0)  # fmt: skip
    case("labels_old", "LabelEncoder", [words], domain=ML, version=1, classes_strings=keys)
    case("categories", "CategoryMapper", [words], domain=ML, version=1, cats_strings=keys, cats_int64s=[1, 2, 3])
    case("one_hot_ints", "OneHotEncoder", [integers(0, 4, (3,), np.int64)], domain=ML, version=1, cats_int64s=[0, 2, 3], zeros=1)
    case("one_hot_strings", "OneHotEncoder", [words], domain=ML, version=1, cats_strings=keys, zeros=1)
    # So many strings that the 64-bit hashes of some are more than 2**63 apart.
    names = [f"name {i}" for i in range(40)]
    some = np.array([[names[i]] for i in range(0, 40, 7)] + [["no name"]], object)
    case("one_hot_many_strings", "OneHotEncoder", [some], domain=ML, version=1, cats_strings=names, zeros=1)
    case("labels_many_strings", "LabelEncoder", [some], domain=ML, version=2, keys_strings=names, values_int64s=list(range(40)))
