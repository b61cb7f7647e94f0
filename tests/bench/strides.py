"""Times networks with tensors of images in other memory orders than the model's: channels last, broadcast, flipped.

    python tests/bench/strides.py [squeezenet] [mobilenet_v2] [segformer] [--batch 1,8] [--threads 2] [--rounds 9]

Tensors have the model's shape [n, c, h, w] and other strides. Rows of a table: the contiguous input; channels-last inputs and
outputs, inputs broadcast along n, and with descending rows, which the library copies; and libraries that were compiled for the
channels-last order (--layout image=nhwc), which do not copy. Cases run by turns in this process (of one thread, processor time is taken), each against the contiguous
one; a ratio is the case's time over that one's, the median over rounds. The bound of a copied case is 1.1 times the
contiguous time and a copy of the tensor at 0.9 of the rate at which this machine's threads copy memory; of a declared one 1.0
and the noise of the measurement, which the first row shows (the contiguous case against itself). Results are compared; the
status is 1 if they differ, or a bound does not hold.

Environment: stridec (the program, default build/stridec), build (for temporary files, default build).
"""

import argparse
import concurrent.futures
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import arguments
import ops

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import architectures  # noqa: E402
import models  # noqa: E402
import net as networks  # noqa: E402

SIZE = 224
NHWC = (0, 2, 3, 1)
COPIES, NOISE = 1.1, 1.05
RATE = 0.9  # of the rate of a copy


# ---- networks ----


def squeezenet():
    """Iandola et al., SqueezeNet (2016), version 1.1."""
    net = networks.Net("squeezenet")
    x = net.input("image", ["n", 3, SIZE, SIZE])
    pool = lambda x: net.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)  # noqa: E731
    x = pool(net.Relu(net.conv(x, 3, 64, [3, 3], strides=[2, 2])))
    width = 64
    for number, inner in enumerate((16, 16, 32, 32, 48, 48, 64, 64)):
        if number in (2, 4):
            x = pool(x)
        squeezed = net.Relu(net.conv(x, width, inner, [1, 1]))
        parts = [net.Relu(net.conv(squeezed, inner, 4 * inner, [kernel, kernel])) for kernel in (1, 3)]
        x, width = net.Concat(*parts, axis=1), 8 * inner
    net.output(net.GlobalAveragePool(net.Relu(net.conv(x, width, 1000, [1, 1]))), "classes")
    return net.model()


def mobilenet_v2():
    """Sandler et al., MobileNetV2 (2018), table 2."""
    net = networks.Net("mobilenet_v2")
    act = lambda x: net.Clip(x, 0.0, 6.0)  # noqa: E731
    x, width = net.conv_norm(net.input("image", ["n", 3, SIZE, SIZE]), 3, 32, 3, act, 2), 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expand, out, blocks, stride in stages:
        for block in range(blocks):
            step = stride if block == 0 else 1
            x = architectures.inverted_residual(net, x, width, expand * width, out, 3, step, act)
            width = out
    x = net.conv_norm(x, width, 1280, 1, act)
    net.output(net.linear(net.Flatten(net.GlobalAveragePool(x)), 1280, 1000), "classes")
    return net.model()


def segformer():
    """The first two stages of MiT-B0 without attention, and a head that says classes of pixels: Xie et al. (2021)."""
    net = networks.Net("segformer")
    x, width, maps = net.input("image", ["n", 3, SIZE, SIZE]), 3, []
    for kernel, stride, out in ((7, 4, 32), (3, 2, 64)):
        x = net.conv(x, width, out, [kernel, kernel], strides=[stride, stride])
        width = out
        for _ in range(2):
            y = net.Transpose(x, perm=[0, 2, 3, 1])
            y = net.linear(net.layer_norm(y, width), width, 4 * width)
            y = net.conv(net.Transpose(y, perm=[0, 3, 1, 2]), 4 * width, 4 * width, [3, 3], group=4 * width)
            y = net.linear(net.gelu(net.Transpose(y, perm=[0, 2, 3, 1])), 4 * width, width)
            x = net.Add(x, net.Transpose(y, perm=[0, 3, 1, 2]))
        maps.append(net.conv(x, width, 64, [1, 1]))
    small = net.Resize(maps[1], None, np.array([1, 1, 2, 2], np.float32), mode="linear")
    net.output(net.conv(net.Relu(net.Add(maps[0], small)), 64, 150, [1, 1]), "pixels")
    return net.model()


NETWORKS = {"squeezenet": squeezenet, "mobilenet_v2": mobilenet_v2, "segformer": segformer}


# ---- tensors ----


def last(array):
    """The same elements, channels last in memory."""
    return np.ascontiguousarray(array.transpose(NHWC)).transpose(0, 3, 1, 2)


def cases_of(image, results):
    """Name: (library, input, output or None, bytes that are copied). Outputs of images alone have an order."""
    pixels = results.ndim == 4 and results.shape[2] > 1
    one = np.broadcast_to(image[:1], image.shape)
    found = {
        "contiguous": ("plain", image, None, 0),
        "channels-last input": ("plain", last(image), None, image.nbytes),
        "broadcast input": ("plain", one, None, image.nbytes),
        "input with descending rows": ("plain", image[:, :, ::-1], None, image.nbytes),
        "declared channels-last input": ("input", last(image), None, 0),
    }
    if pixels:
        found["channels-last output"] = ("plain", image, last(np.empty_like(results)), results.nbytes)
        found["declared channels-last output"] = ("output", image, last(np.empty_like(results)), 0)
    return found


# ---- measuring ----


def compile_libraries(program, folder, name, threads):
    import stridec

    path = os.path.join(folder, name + ".onnx")
    with open(path, "wb") as file:
        file.write(NETWORKS[name]().SerializeToString())
    output = "pixels" if name == "segformer" else None
    flags = {"plain": [], "input": ["--layout", "image=nhwc"], **({"output": ["--layout", "pixels=nhwc"]} if output else {})}

    def build(kind):
        library = os.path.join(folder, f"{name}-{kind}.so")
        subprocess.run([program, "compile", path, "-o", library, *flags[kind], "--quiet", "--progress=none"], check=True)
        return library

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        libraries = dict(zip(flags, pool.map(build, flags)))
    return {kind: stridec.Model(library).context(threads=threads) for kind, library in libraries.items()}


def seconds_of(run, count, clock=time.perf_counter):
    start = clock()
    for _ in range(count):
        run()
    return (clock() - start) / count


def copy_rate(threads):
    """Bytes per second that the threads copy, of memory larger than caches."""
    parts = [(np.zeros(16 << 20, np.uint8), np.ones(16 << 20, np.uint8)) for _ in range(threads)]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        copy = lambda: list(pool.map(lambda pair: np.copyto(*pair), parts))  # noqa: E731
        copy()
        return threads * (16 << 20) / min(seconds_of(copy, 3) for _ in range(5))


def measure(name, contexts, batch, rate, flags):
    """Prints the rows of a table; whether all bounds hold."""
    image = np.random.default_rng(0).standard_normal((batch, 3, SIZE, SIZE)).astype(np.float32)
    (results,) = (np.array(y) for y in contexts["plain"].run(image))
    held = True
    plain = contexts["plain"].prepare(image)
    clock = time.thread_time if flags.threads == 1 else time.perf_counter
    for case, (kind, given, out, copied) in cases_of(image, results).items():
        context = contexts[kind]
        (expected,) = contexts["plain"].run(np.ascontiguousarray(given))
        expected = np.array(expected)
        run = context.prepare(given, out=None if out is None else [out])
        (got,) = run()
        difference = abs(got - expected).max() / abs(expected).max()
        count = max(1, int(flags.block / seconds_of(plain, 1)))
        rounds = []
        for number in range(flags.rounds):
            time.sleep(ops.PAUSE)
            pair = [seconds_of(each, count, clock) for each in ((plain, run) if number % 2 else (run, plain))]
            rounds.append(pair if number % 2 else pair[::-1])
        contiguous = statistics.median(a for a, _ in rounds)
        ratio = statistics.median(b / a for a, b in rounds)
        bound = COPIES * (1 + copied / (RATE * rate) / contiguous) if copied else NOISE
        good = ratio <= bound and difference < 1e-4
        held &= good
        print(f"{name + ', ' + str(batch):18}{case:32}{contiguous * 1e3:9.3f}{ratio:8.3f}{bound:8.3f}{difference:9.1e}"
              f"{'' if good else '  FAIL'}", flush=True)  # fmt: skip
    return held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []], metavar="network", help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--batch", default="1,8", metavar="COUNT,...")
    parser.add_argument("--threads", type=arguments.count, default=2)
    parser.add_argument("--rounds", type=arguments.count, default=9)
    parser.add_argument("--block", type=arguments.positive, default=0.1, help="seconds of each case in each round")
    flags = parser.parse_args()
    try:
        batches = [arguments.count(text) for text in flags.batch.split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --batch: {error}")
    program = arguments.stridec_program(parser)
    parent = os.environ.get("build", "build")
    rate = copy_rate(flags.threads)
    print(f"{flags.threads} threads copy {rate / 1e9:.1f} GB/s (as many are read)")
    print(f"{'network, batch':18}{'case':32}{'plain ms':>9}{'ratio':>8}{'bound':>8}{'differs':>9}")
    held = True
    with tempfile.TemporaryDirectory(prefix="strides-", dir=parent if os.path.isdir(parent) else None) as folder:
        for name in flags.networks or NETWORKS:
            contexts = compile_libraries(program, folder, name, flags.threads)
            for batch in batches:
                held &= measure(name, contexts, batch, rate, flags)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
