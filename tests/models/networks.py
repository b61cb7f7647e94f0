"""Networks of the widths and depths that are published, with symbolic sizes, as functions that answer with a Net; the table
is at the end. Their weights are drawn from a seed. tests/bench/race.py times them: nothing is tuned on them.
"""

import numpy as np
from architectures import densenet, efficientnet, inverted_residual, pooling_pyramid, split_stage, swin, twice_as_large
from net import Net, onnx
from sequence_architectures import causal_bias, rotary_angles, rotary_layer, t5, whisper_encoder

# ---- images ----


def image_of(net):
    """An input of any size that is a multiple of 32."""
    return net.input("image", ["batch", 3, "32*h", "32*w"])


def classify(net, x, width, classes=1000):
    """The classes of an image by the means of its channels."""
    net.output(net.Gemm(net.Flatten(net.GlobalAveragePool(x)), net.weight(width, classes), net.weight(classes)), "logits")
    return net


def repeated(stages):
    """Blocks of stages (channels, expansion, kernel, stride, blocks): the first of a stage has its stride."""
    return [(*block, stride if i == 0 else 1) for *block, stride, count in stages for i in range(count)]


def efficientnet_b0():
    """Tan and Le, EfficientNet (2019), table 1."""
    stages = [(16, 1, 3, 1, 1), (24, 6, 3, 2, 2), (40, 6, 5, 2, 2), (80, 6, 3, 2, 3), (112, 6, 5, 1, 3), (192, 6, 5, 2, 4),
              (320, 6, 3, 1, 1)]  # fmt: skip
    return efficientnet("efficientnet_b0", 32, 32, repeated(stages), 1280, 1000)


def densenet_121():
    """Huang et al., Densely connected convolutional networks (2017), table 1."""
    return densenet("densenet_121", 32, 64, (6, 12, 24, 16), 32, 128, 1000)


def swin_t():
    """Liu et al., Swin transformer (2021), section 3.3. The last stage is one window, which nothing shifts."""
    stages = ((2, 3, 3), (2, 6, 3), (6, 12, 3), (2, 24, 0))
    return swin("swin_t", (224, 224), 7, 96, stages, 4, merged=3, classes=1000)


def mobilenet_v3_large():
    """Howard et al., Searching for MobileNetV3 (2019), table 1; channels of squeezes as torchvision rounds them."""
    net = Net("mobilenet_v3_large")
    x = net.conv_norm(image_of(net), 3, 16, 3, net.HardSwish, 2)
    width = 16
    for kernel, inner, out, squeeze, act, stride in [
        (3, 16, 16, 0, net.Relu, 1), (3, 64, 24, 0, net.Relu, 2), (3, 72, 24, 0, net.Relu, 1),
        (5, 72, 40, 24, net.Relu, 2), (5, 120, 40, 32, net.Relu, 1), (5, 120, 40, 32, net.Relu, 1),
        (3, 240, 80, 0, net.HardSwish, 2), (3, 200, 80, 0, net.HardSwish, 1), (3, 184, 80, 0, net.HardSwish, 1),
        (3, 184, 80, 0, net.HardSwish, 1), (3, 480, 112, 120, net.HardSwish, 1), (3, 672, 112, 168, net.HardSwish, 1),
        (5, 672, 160, 168, net.HardSwish, 2), (5, 960, 160, 240, net.HardSwish, 1), (5, 960, 160, 240, net.HardSwish, 1),
    ]:  # fmt: skip
        gate = squeeze and (squeeze, net.Relu, lambda y: net.HardSigmoid(y, alpha=1 / 6))
        x = inverted_residual(net, x, width, inner, out, kernel, stride, act, gate, gain=0.5)
        width = out
    x = net.Flatten(net.GlobalAveragePool(net.conv_norm(x, width, 960, 1, net.HardSwish)))
    x = net.HardSwish(net.Gemm(x, net.weight(960, 1280), net.weight(1280)))
    net.output(net.Gemm(x, net.weight(1280, 1000), net.weight(1000)), "logits")
    return net


def bottlenecks(net, x, width, stages, squeeze=0):
    """Residual blocks around a convolution in groups. A stage is (blocks, channels within, groups, channels out, stride);
    squeeze is the share of a block's channels that squeeze and excitation keeps."""
    for blocks, inner, groups, out, first in stages:
        for number in range(blocks):
            stride = first if number == 0 else 1
            y = net.conv_norm(x, width, inner, 1, net.Relu)
            y = net.conv_norm(y, inner, inner, 3, net.Relu, stride, group=groups)
            if squeeze:
                y = net.squeeze_excite(y, inner, round(squeeze * width), net.Relu, net.Sigmoid)
            y = net.conv_norm(y, inner, out, 1, gain=0.5)
            x = net.Relu(net.Add(y, x if number else net.conv_norm(x, width, out, 1, None, stride)))
            width = out
    return classify(net, x, width)


def resnext_50():
    """32 groups of 4 channels: Xie et al., Aggregated residual transformations (2017), table 1."""
    net = Net("resnext_50")
    x = net.conv_norm(image_of(net), 3, 64, 7, net.Relu, 2)
    x = net.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    stages = [(3, 128, 32, 256, 1), (4, 256, 32, 512, 2), (6, 512, 32, 1024, 2), (3, 1024, 32, 2048, 2)]
    return bottlenecks(net, x, 64, stages)


def regnet_y_400mf():
    """Radosavovic et al., Designing network design spaces (2020), as torchvision has its widths."""
    net = Net("regnet_y_400mf")
    x = net.conv_norm(image_of(net), 3, 32, 3, net.Relu, 2)
    stages = [(1, 48, 6, 48, 2), (3, 104, 13, 104, 2), (6, 208, 26, 208, 2), (6, 440, 55, 440, 2)]
    return bottlenecks(net, x, 32, stages, squeeze=0.25)


def shufflenet_v2():
    """Ma et al., ShuffleNet V2 (2018), table 5, one time the width."""
    net = Net("shufflenet_v2")
    x = net.conv_norm(image_of(net), 3, 24, 3, net.Relu, 2)
    x = net.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 24

    def branch(y, width_in, half, stride):
        y = net.conv_norm(y, width_in, half, 1, net.Relu)
        return net.conv_norm(net.conv_norm(y, half, half, 3, None, stride, group=half), half, half, 1, net.Relu)

    for out, blocks in ((116, 4), (232, 8), (464, 4)):
        half = out // 2
        for number in range(blocks):
            if number == 0:
                left = net.conv_norm(net.conv_norm(x, width, width, 3, None, 2, group=width), width, half, 1, net.Relu)
                right = branch(x, width, half, 2)
            else:
                left, right = net.Split(x, [half, half], count=2, axis=1)
                right = branch(right, half, half, 1)
            x = net.Concat(left, right, axis=1)
            batch, rows, columns = (net.size(x, axis) for axis in (0, 2, 3))
            x = net.Transpose(net.Reshape(x, net.Concat(batch, [2, half], rows, columns, axis=0)), perm=[0, 2, 1, 3, 4])
            x = net.Reshape(x, net.Concat(batch, [out], rows, columns, axis=0))
        width = out
    return classify(net, net.conv_norm(x, width, 1024, 1, net.Relu), 1024)


def inception_v3():
    """Szegedy et al., Rethinking the inception architecture (2016), table 1, with torchvision's channels."""
    net = Net("inception_v3")

    def chain(x, width, *steps):
        """Steps are (channels, rows and columns of the kernel); with a stride of 2 behind them they have no padding."""
        for out, *kernel, stride in ((*step, 1) if len(step) == 3 else step for step in steps):
            more = {} if stride == 1 else {"pads": [0] * 4}
            x, width = net.conv_norm(x, width, out, kernel, net.Relu, stride, **more), out
        return x

    def smaller(x):
        return net.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2])

    def mean(x):
        return net.AveragePool(x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)

    def fork(x, width):
        return chain(x, width, (384, 1, 3)), chain(x, width, (384, 3, 1))

    x = chain(net.input("image", ["batch", 3, "h", "w"]), 3, (32, 3, 3, 2))
    x = net.conv_norm(x, 32, 32, 3, net.Relu, pads=[0] * 4)
    x = chain(smaller(chain(x, 32, (64, 3, 3))), 64, (80, 1, 1))
    x = smaller(net.conv_norm(x, 80, 192, 3, net.Relu, pads=[0] * 4))
    for width, pooled in ((192, 32), (256, 64), (288, 64)):
        x = net.Concat(chain(x, width, (64, 1, 1)), chain(x, width, (48, 1, 1), (64, 5, 5)),
                       chain(x, width, (64, 1, 1), (96, 3, 3), (96, 3, 3)), chain(mean(x), width, (pooled, 1, 1)),
                       axis=1)  # fmt: skip
    x = net.Concat(chain(x, 288, (384, 3, 3, 2)), chain(x, 288, (64, 1, 1), (96, 3, 3), (96, 3, 3, 2)), smaller(x), axis=1)
    for c in (128, 160, 160, 192):
        x = net.Concat(chain(x, 768, (192, 1, 1)), chain(x, 768, (c, 1, 1), (c, 1, 7), (192, 7, 1)),
                       chain(x, 768, (c, 1, 1), (c, 7, 1), (c, 1, 7), (c, 7, 1), (192, 1, 7)),
                       chain(mean(x), 768, (192, 1, 1)), axis=1)  # fmt: skip
    x = net.Concat(chain(x, 768, (192, 1, 1), (320, 3, 3, 2)),
                   chain(x, 768, (192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3, 2)), smaller(x), axis=1)  # fmt: skip
    for width in (1280, 2048):
        x = net.Concat(chain(x, width, (320, 1, 1)), *fork(chain(x, width, (384, 1, 1)), 384),
                       *fork(chain(x, width, (448, 1, 1), (384, 3, 3)), 384), chain(mean(x), width, (192, 1, 1)),
                       axis=1)  # fmt: skip
    return classify(net, x, 2048)


def vgg_11():
    """Simonyan and Zisserman, Very deep convolutional networks (2015), column A of table 1."""
    net = Net("vgg_11")
    x, width = net.input("image", ["batch", 3, 224, 224]), 3
    for stage in ([64], [128], [256, 256], [512, 512], [512, 512]):
        for out in stage:
            x, width = net.Relu(net.conv(x, width, out, [3, 3])), out
        x = net.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.Flatten(x)
    for width, out in ((512 * 49, 4096), (4096, 4096)):
        x = net.Relu(net.Gemm(x, net.weight(width, out), net.weight(out)))
    net.output(net.Gemm(x, net.weight(4096, 1000), net.weight(1000)), "logits")
    return net


def yolov8n():
    """Backbone and neck of Ultralytics' yolov8.yaml at scale n: a quarter of the width, a third of the depth."""
    net = Net("yolov8n")

    def smaller(x, width_in, width):
        return net.conv_norm(x, width_in, width, 3, net.silu, 2)

    x = split_stage(net, smaller(smaller(image_of(net), 3, 16), 16, 32), 32, 32)
    fine = split_stage(net, smaller(x, 32, 64), 64, 64, 2)
    middle = split_stage(net, smaller(fine, 64, 128), 128, 128, 2)
    coarse = pooling_pyramid(net, split_stage(net, smaller(middle, 128, 256), 256, 256), 256)
    middle = split_stage(net, net.Concat(twice_as_large(net, coarse), middle, axis=1), 384, 128, residual=False)
    fine = split_stage(net, net.Concat(twice_as_large(net, middle), fine, axis=1), 192, 64, residual=False)
    middle = split_stage(net, net.Concat(smaller(fine, 64, 64), middle, axis=1), 192, 128, residual=False)
    coarse = split_stage(net, net.Concat(smaller(middle, 128, 128), coarse, axis=1), 384, 256, residual=False)
    for level, name in ((fine, "fine"), (middle, "middle"), (coarse, "coarse")):
        net.output(level, name)
    return net


def deit_tiny():
    """Touvron et al., Training data-efficient image transformers (2021), table 1."""
    net, width = Net("deit_tiny"), 192
    x = net.conv(net.input("image", ["batch", 3, 224, 224]), 3, width, [16, 16], strides=[16, 16], pads=[0] * 4)
    x = net.Transpose(net.Reshape(x, [0, width, -1]), perm=[0, 2, 1])
    first = net.Expand(net.weight(1, 1, width), net.Concat(net.size(x, 0), [1, width], axis=0))
    x = net.Add(net.Concat(first, x, axis=1), net.weight(1, 197, width))
    for _ in range(12):
        x = net.pre_norm_layer(x, width, 3, 4 * width)
    net.output(net.linear(net.Gather(net.layer_norm(x, width), np.int64(0), axis=1), width, 1000), "logits")
    return net


def style_transfer():
    """Johnson et al., Perceptual losses (2016), as PyTorch's example fast_neural_style has it: resized, not transposed."""
    net = Net("style_transfer")

    def block(x, width_in, width, kernel, stride=1, act=net.Relu):
        p = kernel // 2
        x = net.Pad(x, [0, 0, p, p, 0, 0, p, p], mode="reflect")
        x = net.conv(x, width_in, width, [kernel] * 2, strides=[stride] * 2, pads=[0] * 4)
        x = net.InstanceNormalization(x, net.positive(width), net.weight(width))
        return act(x) if act else x

    x = block(net.input("image", ["batch", 3, "4*h", "4*w"]), 3, 32, 9)
    x = block(block(x, 32, 64, 3, 2), 64, 128, 3, 2)
    for _ in range(5):
        x = net.Add(x, block(block(x, 128, 128, 3), 128, 128, 3, act=None))
    x = block(twice_as_large(net, block(twice_as_large(net, x), 128, 64, 3)), 64, 32, 3)
    x = net.Pad(x, [0, 0, 4, 4, 0, 0, 4, 4], mode="reflect")
    net.output(net.conv(x, 32, 3, [9, 9], pads=[0] * 4), "styled")
    return net


def lstm_weights(net, width_in, width, directions=1):
    """Of factors of inputs and states, and biases."""
    gates = directions, 4 * width
    return (*(net.weight(*gates, size, fan_in=size) for size in (width_in, width)), net.weight(directions, 8 * width, fan_in=100))


def crnn():
    """Shi et al., An end-to-end trainable network for image-based sequence recognition (2015), table 1: lines of text."""
    net, width = Net("crnn"), 1
    x = net.input("line", ["batch", 1, 32, "4*w"])
    for out, norm, pool in ((64, False, [2, 2]), (128, False, [2, 2]), (256, True, None), (256, False, [2, 1]),
                            (512, True, None), (512, False, [2, 1])):  # fmt: skip
        x = net.conv_norm(x, width, out, 3, net.Relu) if norm else net.Relu(net.conv(x, width, out, [3, 3]))
        if pool:
            x = net.MaxPool(x, kernel_shape=[2, 2], strides=pool, pads=[0, 2 - pool[1], 0, 2 - pool[1]])
        width = out
    x = net.Squeeze(net.conv_norm(x, width, 512, 2, net.Relu, pads=[0] * 4), [2])
    x, width = net.Transpose(x, perm=[2, 0, 1]), 512
    for out in (256, 37):
        y, _, _ = net.LSTM(x, *lstm_weights(net, width, 256, 2), count=3, hidden_size=256, direction="bidirectional")
        x = net.linear(net.Reshape(net.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, 512]), 512, out)
        width = out
    net.output(net.LogSoftmax(x, axis=-1), "log_probability")
    return net


# ---- sequences ----


def t5_small():
    """The published t5-v1_1-small: gated units of 1024, 6 heads of 64, 8 layers on each side. Raffel et al. (2020)."""
    return t5("t5_small", 32128, 512, 6, 64, 1024, 8, 32)


def whisper_tiny():
    """The encoder. Radford et al., Robust speech recognition (2022), table 1."""
    net = Net("whisper_tiny")
    audio = net.input("mel", ["batch", 80, "frames"])
    net.output(whisper_encoder(net, audio, 80, 384, 6, 1536, 4, 1500), "memory")
    return net


def wav2vec2():
    """Four of the twelve layers of the base model, and letters. Baevski et al., wav2vec 2.0 (2020), section 4.2."""
    net, width = Net("wav2vec2"), 768
    x, channels = net.Unsqueeze(net.input("audio", ["batch", "samples"]), [1]), 1
    for number, (kernel, stride) in enumerate([(10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)]):
        x = net.conv(x, channels, 512, [kernel], strides=[stride], pads=[0, 0])
        if number == 0:  # one group a channel
            x = net.InstanceNormalization(x, net.positive(512), net.weight(512))
        x, channels = net.gelu(x), 512
    x = net.linear(net.layer_norm(net.Transpose(x, perm=[0, 2, 1]), 512), 512, width)
    places = net.conv(net.Transpose(x, perm=[0, 2, 1]), width, width, [128], group=16)
    places = net.gelu(net.Slice(places, [0], [-1], [2]))
    x = net.layer_norm(net.Add(x, net.Transpose(places, perm=[0, 2, 1])), width)
    for _ in range(4):
        x = net.post_norm_layer(x, width, 12, 3072)
    net.output(net.linear(x, width, 32), "logits")
    return net


def lstm_words():
    """A language model of two layers. Zaremba et al., Recurrent neural network regularization (2014), the medium one."""
    net, width, words = Net("lstm_words"), 650, 10000
    x = net.Gather(net.weight(words, width), net.input("words", ["time", "batch"], "i64", below=words))
    for layer in range(2):
        states = [net.input(f"{state}.{layer}", [1, "batch", width]) for state in "hc"]
        x, h, c = net.LSTM(x, *lstm_weights(net, width, width), None, *states, count=3, hidden_size=width)
        x = net.Squeeze(x, [1])
        net.output(h, f"h.{layer}.next")
        net.output(c, f"c.{layer}.next")
    net.output(net.linear(x, width, words), "logits")
    return net


def smollm():
    """Four of the 32 layers of SmolLM-360M (its config.json), with keys and values of what was before as inputs."""
    net, width, heads, groups, depth, words, layers = Net("smollm"), 960, 15, 5, 64, 49152, 4
    tokens = net.input("tokens", ["batch", "new"], "i64", below=words)
    angles = rotary_angles(net, net.input("positions", ["batch", "new"], "i64", below=2048), depth)
    past = [[net.input(f"past.{i}.{part}", ["batch", groups, "past", depth]) for part in ("key", "value")] for i in range(layers)]
    bias = causal_bias(net, net.size(past[0][0], 2), net.size(tokens, 1))
    table = net.weight(words, width)
    x = net.Gather(table, tokens)
    for i in range(layers):
        x, keys, values = rotary_layer(net, x, width, heads, groups, depth, 2560, angles, bias, past[i])
        net.output(keys, f"present.{i}.key")
        net.output(values, f"present.{i}.value")
    net.output(net.MatMul(net.rms_norm(x, width), net.Transpose(table, perm=[1, 0])), "logits")
    return net


def distilbert():
    """Sanh et al., DistilBERT (2019): BERT-base with half of its layers, and without types of tokens."""
    net, width = Net("distilbert"), 768
    ids = net.input("ids", ["batch", "length"], "i64", below=30522)
    mask = net.Cast(net.input("mask", ["batch", "length"], "i64"), to=onnx.TensorProto.FLOAT)
    bias = net.Unsqueeze(net.Mul(net.Sub(1.0, mask), float(np.finfo(np.float32).min)), [1, 2])
    x = net.Gather(net.weight(30522, width), ids)
    x = net.layer_norm(net.Add(x, net.Slice(net.weight(512, width), [0], net.size(ids, 1), [0])), width)
    for _ in range(6):
        x = net.post_norm_layer(x, width, 12, 3072, bias)
    net.output(x, "hidden")
    return net


# ---- others ----


def pointnet():
    """Classes of a cloud of points. Qi et al., PointNet (2017), figure 2 and supplementary section C."""
    net = Net("pointnet")
    x = net.input("points", ["batch", 3, "n"])

    def pointwise(x, *widths):
        for width_in, width in zip(widths, widths[1:]):
            x = net.conv_norm(x, width_in, width, [1], net.Relu)
        return x

    def dense(x, *widths):
        for width_in, width in zip(widths, widths[1:]):
            x = net.Relu(net.batch_norm(net.Gemm(x, net.weight(width_in, width), net.weight(width)), width))
        return x

    def whole(x, *widths):
        return dense(net.ReduceMax(pointwise(x, *widths), [2], keepdims=0), 1024, 512, 256)

    def turned(x, width):
        """By a matrix that depends on all points, and is the identity where they say nothing."""
        matrix = net.Gemm(whole(x, width, 64, 128, 1024), net.weight(256, width * width), np.eye(width, dtype=np.float32).ravel())
        y = net.MatMul(net.Transpose(x, perm=[0, 2, 1]), net.Reshape(matrix, [-1, width, width]))
        return net.Transpose(y, perm=[0, 2, 1])

    x = turned(pointwise(turned(x, 3), 3, 64, 64), 64)
    net.output(net.Gemm(whole(x, 64, 64, 128, 1024), net.weight(256, 40), net.weight(40)), "logits")
    return net


IMAGES, TEXT = "batch=1..64,h=1..32,w=1..32", "batch=1..64,length=1..512"

# name: (function, --dim, sizes of the cases)
NETWORKS = {
    "efficientnet_b0": (efficientnet_b0, IMAGES, [(1, 7, 7), (3, 7, 7)]),
    "densenet_121": (densenet_121, IMAGES, [(1, 7, 7), (3, 7, 7)]),
    "swin_t": (swin_t, "batch=1..64", [(1,), (3,)]),
    "mobilenet_v3_large": (mobilenet_v3_large, IMAGES, [(1, 7, 7), (3, 7, 7)]),
    "resnext_50": (resnext_50, IMAGES, [(1, 7, 7), (3, 7, 7)]),
    "regnet_y_400mf": (regnet_y_400mf, IMAGES, [(1, 7, 7), (3, 7, 7)]),
    "shufflenet_v2": (shufflenet_v2, IMAGES, [(1, 7, 7), (3, 7, 7)]),
    "inception_v3": (inception_v3, "batch=1..64,h=75..600,w=75..600", [(1, 299, 299), (2, 299, 299)]),
    "vgg_11": (vgg_11, "batch=1..64", [(1,), (2,)]),
    "yolov8n": (yolov8n, IMAGES, [(1, 20, 20), (2, 12, 20)]),
    "deit_tiny": (deit_tiny, "batch=1..64", [(1,), (3,)]),
    "style_transfer": (style_transfer, "batch=1..16,h=2..256,w=2..256", [(1, 64, 64), (2, 56, 40)]),
    "crnn": (crnn, "batch=1..64,w=1..128", [(1, 25), (4, 40)]),
    "t5_small": (t5_small, TEXT + ",words=1..512", [(1, 64, 1), (4, 33, 40)]),
    "whisper_tiny": (whisper_tiny, "batch=1..8,frames=1..3000", [(1, 3000), (2, 1000)]),
    "wav2vec2": (wav2vec2, "batch=1..8,samples=400..480000", [(1, 16000), (2, 40000)]),
    "lstm_words": (lstm_words, "time=1..512,batch=1..64", [(35, 1), (35, 4)]),
    "smollm": (smollm, "batch=1..16,new=1..512,past=0..2048", [(1, 1, 128), (2, 32, 64)]),
    "distilbert": (distilbert, TEXT, [(1, 128), (4, 37)]),
    "pointnet": (pointnet, "batch=1..64,n=1..8192", [(1, 1024), (4, 1024)]),
}
