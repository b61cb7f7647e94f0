"""Writes compiler/frontend/aten/schemas.txt from the installed PyTorch, or checks it: write_schemas.py [--check]

A line is an operator's schema as PyTorch prints it. Left out: operators without tensors, the backward formulas, which no
inference program has, and those of sparse, quantised and device-specific tensors.
"""

import importlib
import pathlib
import re
import sys

import torch

FILE = pathlib.Path(__file__).resolve().parent.parent.parent / "compiler/frontend/aten/schemas.txt"
LEFT_OUT = re.compile(r"_backward|sparse|mkldnn|_cudnn|miopen|_foreach|_fused_(?!rms)|_nested_|_cslt|_mps|qlinear|jagged|_amp_"
                      r"|aten::.*quantize")
# Backward formulas that programs call by name, and operators that PyTorch has dropped since 2.11.
KEPT = ("aten::_softmax_backward_data(", "aten::_log_softmax_backward_data(", "aten::native_dropout_backward(",
        "aten::max_pool2d_with_indices_backward(")
DROPPED = {"aten::cholesky(Tensor self, bool upper=False) -> Tensor", "aten::qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)"}
WITHOUT_TENSORS = ("aten::_assert_scalar", "aten::sym_constrain_range")
SPACES = ("aten::", "torchvision::", "quantized_decomposed::", "transformers::")
# Modules that register operators when they are imported.
EXTENSIONS = ("torchvision", "torch.ao.quantization.fx._decomposed", "transformers.integrations.moe")


def schemas():
    for name in EXTENSIONS:
        try:
            importlib.import_module(name)
        except ImportError:
            print(f"without the operators of {name}, which is not installed", file=sys.stderr)
    lines = DROPPED | {str(s) for s in torch._C._jit_get_all_schemas() if s.name.startswith(SPACES)}
    return sorted(line for line in lines
                  if ("Tensor" in line or line.startswith(WITHOUT_TENSORS)) and (line.startswith(KEPT) or not LEFT_OUT.search(line.split("(")[0])))


def main():
    text = f"# Operator schemas of PyTorch {torch.__version__.split('+')[0]}, by tests/pt2/write_schemas.py.\n"
    text += "".join(line + "\n" for line in schemas())
    if "--check" not in sys.argv:
        FILE.write_text(text)
        print(f"{len(text.splitlines()) - 1} schemas")
        return
    same = FILE.read_text().splitlines()[1:] == text.splitlines()[1:]
    print("1 passed, 0 failed" if same else "schemas.txt differs from the installed PyTorch's\n0 passed, 1 failed")
    sys.exit(0 if same else 1)


main()
