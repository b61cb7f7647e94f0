"""A network written down as calls: net.Conv(x, w, strides=[2, 2]) adds a node and answers with its output's name."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

TYPES = {"f32": onnx.TensorProto.FLOAT, "i64": onnx.TensorProto.INT64, "bool": onnx.TensorProto.BOOL}


class Net:
    """Weights come from a seed. An argument of a node is a name, a number or list (an i64 constant), an array or None."""

    def __init__(self, name, opset=18):
        self.name, self.opset = name, opset
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.rng = np.random.default_rng(len(name))
        self.scope = ""
        self.below = {}  # of inputs that are integers

    def input(self, name, shape, dtype="f32", below=2):
        """Sizes are numbers, names, or products such as "8*h". Cases draw integers from 0 up to `below`."""
        self.below[name] = below
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))
        return name

    def output(self, value, name, dtype="f32"):
        """Its shape is the importer's business."""
        self.nodes.append(helper.make_node("Identity", [value], [name], "out/" + name))
        self.outputs.append(helper.make_tensor_value_info(name, TYPES[dtype], None))

    def const(self, array):
        name = f"{self.scope}c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape, fan_in=None):
        """Normal. Factors keep magnitudes, those of convolutions also where half of what they make is cut off; what has one dim
        is added, and small: else a deep network says the same of all inputs."""
        if fan_in is None:
            fan_in = shape[0] if len(shape) == 2 else np.prod(shape[1:]) / 2 if len(shape) > 2 else 100
        return self.const(self.rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(fan_in)))

    def positive(self, *shape, mean=1.0):
        return self.const((mean * self.rng.uniform(0.5, 1.5, shape)).astype(np.float32))

    def add(self, kind, *arguments, count=1, domain="", **attributes):
        """The output's name; a list of names where count is not 1."""
        number = len(self.nodes)
        names = []
        for argument in arguments:
            if argument is None:
                names.append("")
            elif isinstance(argument, str):
                names.append(argument)
            elif isinstance(argument, np.ndarray | np.generic):
                names.append(self.const(argument))
            elif isinstance(argument, float):
                names.append(self.const(np.float32(argument)))
            else:
                names.append(self.const(np.asarray(argument, np.int64)))
        made = [f"{self.scope}{kind}_{number}" + (f".{i}" if count != 1 else "") for i in range(count)]
        self.nodes.append(helper.make_node(kind, names, made, f"{self.scope}{kind}_{number}", domain=domain, **attributes))
        return made[0] if count == 1 else made

    def __getattr__(self, kind):
        if not kind[0].isupper():
            raise AttributeError(kind)
        return lambda *arguments, **more: self.add(kind, *arguments, **more)

    def graph(self):
        return helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)

    def model(self):
        return helper.make_model(self.graph(), opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    # ---- what many networks have ----

    def linear(self, x, width_in, width_out, bias=True):
        y = self.MatMul(x, self.weight(width_in, width_out))
        return self.Add(y, self.weight(width_out)) if bias else y

    def conv(self, x, channels_in, channels_out, kernel, group=1, **attributes):
        """kernel is a list; padding keeps sizes unless told otherwise."""
        attributes.setdefault("pads", [k // 2 for k in kernel] * 2)
        w = self.weight(channels_out, channels_in // group, *kernel)
        return self.Conv(x, w, self.weight(channels_out), kernel_shape=kernel, group=group, **attributes)

    def batch_norm(self, x, channels, gain=1.0):
        return self.BatchNormalization(
            x, self.positive(channels, mean=gain), self.weight(channels), self.weight(channels), self.positive(channels)
        )

    def conv_norm(self, x, channels_in, channels_out, kernel, act=None, stride=1, gain=1.0, **attributes):
        """With batch normalisation and an activation, which is a function. kernel is a list, or one number for a square.
        A gain below 1 is for ends of residual branches: sums of many would grow until gates behind them are steps."""
        kernel = [kernel] * 2 if isinstance(kernel, int) else kernel
        y = self.conv(x, channels_in, channels_out, kernel, strides=[stride] * len(kernel), **attributes)
        y = self.batch_norm(y, channels_out, gain)
        return act(y) if act else y

    def squeeze_excite(self, x, channels, inner, act, gate):
        """Channels times what the means of all of them say. act and gate are functions."""
        y = act(self.conv(self.GlobalAveragePool(x), channels, inner, [1, 1]))
        return self.Mul(x, gate(self.conv(y, inner, channels, [1, 1])))

    def silu(self, x):
        return self.Mul(x, self.Sigmoid(x))

    def gelu(self, x):
        return self.Mul(self.Mul(x, 0.5), self.Add(self.Erf(self.Div(x, float(np.sqrt(2)))), 1.0))

    def layer_norm(self, x, width):
        return self.LayerNormalization(x, self.positive(width), self.weight(width), axis=-1)

    def rms_norm(self, x, width):
        mean = self.ReduceMean(self.Mul(x, x), [-1], keepdims=1)
        return self.Mul(self.Mul(x, self.Reciprocal(self.Sqrt(self.Add(mean, 1e-6)))), self.positive(width))

    def size(self, x, axis):
        """One size of x, as a tensor of one element."""
        return self.Gather(self.Shape(x), [axis], axis=0)

    def heads(self, x, count, width):
        """[batch, length, count * width] -> [batch, count, length, width]"""
        return self.Transpose(self.Reshape(x, [0, 0, count, width]), perm=[0, 2, 1, 3])

    def joined(self, x, width):
        """The way back from heads."""
        return self.Reshape(self.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, width])

    def attention(self, q, k, v, width, bias=None):
        """Of heads; bias is added to the scores."""
        scores = self.MatMul(self.Mul(q, float(width**-0.5)), self.Transpose(k, perm=[0, 1, 3, 2]))
        return self.MatMul(self.Softmax(self.Add(scores, bias) if bias else scores, axis=-1), v)

    def self_attention(self, x, width, heads, bias=None, key_bias=True):
        q, k, v = (self.heads(self.linear(x, width, width, b), heads, width // heads) for b in (True, key_bias, True))
        return self.linear(self.joined(self.attention(q, k, v, width // heads, bias), width), width, width)

    def feed_forward(self, x, width, inner):
        return self.linear(self.gelu(self.linear(x, width, inner)), inner, width)

    def pre_norm_layer(self, x, width, heads, inner, key_bias=True):
        """Of a transformer, as vision transformers and Whisper have it."""
        x = self.Add(x, self.self_attention(self.layer_norm(x, width), width, heads, key_bias=key_bias))
        return self.Add(x, self.feed_forward(self.layer_norm(x, width), width, inner))

    def post_norm_layer(self, x, width, heads, inner, bias=None):
        """Of a transformer, as BERT has it."""
        x = self.layer_norm(self.Add(x, self.self_attention(x, width, heads, bias)), width)
        return self.layer_norm(self.Add(x, self.feed_forward(x, width, inner)), width)
