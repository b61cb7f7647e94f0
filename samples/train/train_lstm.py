"""Trains a recurrent network in Python: it has to remember the number that a flag marks, out of 32.

stridec compile lstm.onnx -o lstm.so --train loss=mse,output=y,target=t,optimizer=adamw,lr=3e-3,clip_norm=1
python train_lstm.py lstm.so 300
"""

import sys
import time

import numpy as np

import stridec


def draw(random, rows=64, length=32):
    numbers, flags = random.uniform(-1, 1, (rows, length)), np.zeros((rows, length))
    at = random.integers(0, length, rows)
    flags[np.arange(rows), at] = 1
    return np.stack([numbers, flags], 2).astype(np.float32), numbers[np.arange(rows), at, None].astype(np.float32)


def main():
    context, steps, random = stridec.load(sys.argv[1]).context(), int(sys.argv[2]), np.random.default_rng(0)
    start = time.perf_counter()
    for step in range(steps):
        loss, norm = context.run(*draw(random), function="train_step")
        if step == 0 or (step + 1) % 100 == 0:
            print(f"step {step + 1:4}: loss {float(loss):.4f}, gradient norm {float(norm):.3f}, {time.perf_counter() - start:.1f} s")
    x, t = draw(random, rows=1000)
    error = np.mean((np.asarray(context.run(x, function="predict")[0]) - t) ** 2)
    print(f"{steps * 64 / (time.perf_counter() - start):.0f} sequences a second")
    print(f"held-out loss {error:.4f}")


main()
