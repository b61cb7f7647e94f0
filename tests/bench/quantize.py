"""Makes quantised models out of float ones with onnxruntime's quantiser, for tests/bench/race.py --model.

    python tests/bench/quantize.py NAME OUT.onnx [--activations u8|s8] [--weights s8|u8] [--tensor] [--dynamic]

NAME is one of the ten models (tests/models). Static by default: QuantizeLinear and DequantizeLinear around matrix
products and convolutions and what lies between them (QDQ), scales from the values that two inputs give, one scale a
channel of the weights (--tensor: one a weight). --dynamic: DynamicQuantizeLinear and MatMulInteger.
"""

import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import models  # noqa: E402


def static(source, target, name, flags):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    types = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}

    class Inputs(CalibrationDataReader):
        def __init__(self):
            names = [value.name for value in models.reference_session(source).get_inputs()]
            cases = [arrays for _, arrays in models.cases(name)][: flags.cases]
            self.left = iter([dict(zip(names, (arrays[key] for key in names))) for arrays in cases])

        def get_next(self):
            return next(self.left, None)

    quantize_static(
        source,
        target,
        Inputs(),
        quant_format=QuantFormat.QDQ,
        per_channel=not flags.tensor,
        activation_type=types[flags.activations],
        weight_type=types[flags.weights],
        op_types_to_quantize=flags.ops.split(",") if flags.ops else None,
    )


def dynamic(source, target, flags):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QInt8 if flags.weights == "s8" else QuantType.QUInt8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(models.MODELS))
    parser.add_argument("target")
    parser.add_argument("--activations", choices=["u8", "s8"], default="u8")
    parser.add_argument("--weights", choices=["u8", "s8"], default="s8")
    parser.add_argument("--tensor", action="store_true")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--ops", help="operators to quantise, comma-separated (default: all that can be)")
    parser.add_argument("--cases", type=int, default=2, help="inputs for calibration")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        from onnxruntime.quantization.shape_inference import quant_pre_process

        filled = models.fill_model(flags.name, folder)
        source = os.path.join(folder, "prepared.onnx")
        quant_pre_process(filled, source, skip_symbolic_shape=True)
        if flags.dynamic:
            dynamic(source, flags.target, flags)
        else:
            static(source, flags.target, flags.name, flags)


if __name__ == "__main__":
    main()
