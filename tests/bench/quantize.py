"""Makes quantised models out of float ones with onnxruntime's quantiser, for tests/bench/race.py.

    python tests/bench/quantize.py NAME OUT.onnx [--activations u8|s8] [--weights s8|u8] [--tensor] [--dynamic | --int4]

NAME is one of the ten models (tests/models). Static by default: QuantizeLinear and DequantizeLinear around matrix
products and convolutions and what lies between them (QDQ), scales from the values that two inputs give, one scale a
channel of the weights (--tensor: one a weight). --dynamic: DynamicQuantizeLinear and MatMulInteger. --int4: MatMulNBits, weights
of four bits in blocks of 32 with a scale and a zero point each (wants onnx_ir, which .ci/setup --bench installs).
"""

import argparse
import logging
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import models  # noqa: E402


TYPES = {"u8": "QUInt8", "s8": "QInt8"}
BLOCK = 32


def static(source, target, cases, activations="u8", weights="s8", per_channel=True, ops=None):
    """`cases`: the arrays by input that scales are taken from."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Inputs(CalibrationDataReader):
        def __init__(self):
            session = models.reference_session(source)
            self.left = iter([models.feed(session, arrays) for arrays in cases])

        def get_next(self):
            return next(self.left, None)

    quantize_static(
        source,
        target,
        Inputs(),
        quant_format=QuantFormat.QDQ,
        per_channel=per_channel,
        activation_type=QuantType[TYPES[activations]],
        weight_type=QuantType[TYPES[weights]],
        op_types_to_quantize=ops,
    )


def dynamic(source, target, weights="s8"):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType[TYPES[weights]])


def int4(source, target):
    logging.getLogger("onnxruntime").setLevel(logging.WARNING)  # a line a node otherwise
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(source, bits=4, block_size=BLOCK, is_symmetric=False)
    quantizer.process()
    quantizer.model.save_model_to_file(target, use_external_data_format=False)


def prepare(source, target):
    """The model as quantisers want it: shapes inferred, simplified."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(source, target, skip_symbolic_shape=True)


def quantise(kind, source, target, cases):
    """`kind`: int8 (static) or int4, as the race has them."""
    if kind == "int4":  # which looks for MatMul, and not for the Gemm that simplifying makes of it
        int4(source, target)
        return
    with tempfile.TemporaryDirectory() as folder:
        prepared = os.path.join(folder, "prepared.onnx")
        prepare(source, prepared)
        static(prepared, target, cases)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(models.MODELS))
    parser.add_argument("target")
    parser.add_argument("--activations", choices=["u8", "s8"], default="u8")
    parser.add_argument("--weights", choices=["u8", "s8"], default="s8")
    parser.add_argument("--tensor", action="store_true")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--int4", action="store_true")
    parser.add_argument("--ops", help="operators to quantise, comma-separated (default: all that can be)")
    parser.add_argument("--cases", type=int, default=2, help="inputs for calibration")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        filled, source = models.fill_model(flags.name, folder), os.path.join(folder, "prepared.onnx")
        cases = [arrays for _, arrays in models.cases(flags.name)][: flags.cases]
        if flags.int4:
            quantise("int4", filled, flags.target, cases)
            return
        prepare(filled, source)
        if flags.dynamic:
            dynamic(source, flags.target, flags.weights)
        else:
            ops = flags.ops.split(",") if flags.ops else None
            static(source, flags.target, cases, flags.activations, flags.weights, not flags.tensor, ops)


if __name__ == "__main__":
    main()
