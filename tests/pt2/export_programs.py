"""Programs that torch.export writes, by name: those for a feature, and whole networks. Needs PyTorch."""

import warnings

import numpy as np
import torch

import sizes
import edge_programs  # noqa: F401 (registers its programs)
from feature_programs import PROGRAMS
from network_programs import NETWORKS

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


def names():
    return [*PROGRAMS, *NETWORKS]


def tensors(tree):
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def arrays(args, kwargs, results):
    inputs = {f"i{k}": sizes.array(t) for k, t in enumerate(tensors((args, kwargs)))}
    return {**inputs, **{f"o{k}": sizes.array(t) for k, t in enumerate(tensors(results))}}


def export(name, folder):
    """Writes NAME.pt2, NAME.core.pt2 and NAME.npz, which has PyTorch's results; None, or why PyTorch does not export it.

    NAME.core.pt2 is the program after run_decompositions(), missing where PyTorch does not decompose it. What is there is kept.
    """
    path = folder / f"{name}.pt2"
    if path.with_suffix(".npz").exists():
        return None
    torch.manual_seed(0)
    try:
        module, args, kwargs, dims = {**PROGRAMS, **NETWORKS}[name]()
        program = torch.export.export(module, args, kwargs, dynamic_shapes=dims, strict=False)
        torch.export.save(program, path)
        before = [t.clone() for t in tensors((args, kwargs))]  # the call may write its inputs
        with torch.no_grad():
            results = torch.export.load(path).module()(*args, **kwargs)
        np.savez(path.with_suffix(".npz"), **arrays(before, {}, results))
    except ImportError as error:
        return str(error)
    except Exception as error:  # PyTorch's own limits
        return f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    try:
        torch.export.save(program.run_decompositions(), folder / f"{name}.core.pt2")
    except Exception as error:  # likewise
        print(f"{name + '.core':34} not exported: {str(error).splitlines()[0][:100]}")
    return None
