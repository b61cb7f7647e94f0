"""Training on a GPU: python tests/gpu/training.py PROGRAM cases|steps|build [name...]

cases: the cases of tests/train, compiled for the GPU, against PyTorch's losses. Ends with "N passed, N failed".
steps: whole training steps (forward, backward, AdamW) of networks on random data, in mixed precision, against PyTorch: eager,
torch.compile, and its mode reduce-overhead. Prints ms, the losses, peak memory. Needs torch, torchvision, transformers.
build: compiles these steps into the folder $ARTIFACTS and runs nothing; `steps` takes an artifact that is there.
The networks are in training_networks.py; the default is its list MAIN.
    Environment: STEPS=N, the N slowest kernels of a step; PEERS, the modes of PyTorch; ONLY_PEERS=1, PyTorch alone;
    FLAGS, more flags of stridec compile.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "python"))
import stridec  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])


def build(model, artifact, *flags):
    command = [PROGRAM, "compile", str(model), "-o", str(artifact), "-q", "--target", "cuda", *flags]
    command += os.environ.get("FLAGS", "").split()
    start = time.time()
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    return done.stderr.strip() if done.returncode else None, time.time() - start


def cases(names):
    results = []
    folder = ROOT / "tests" / "train" / "cases"
    with tempfile.TemporaryDirectory() as work:
        for path in sorted(folder.glob("*.npz")):
            if names and path.stem not in names:
                continue
            case = np.load(path)
            artifact = pathlib.Path(work) / f"{path.stem}.so"
            reason, _ = build(folder / f"{case['model']}.onnx", artifact, "--train",
                              f"{case['train']},functions=train_step")  # fmt: skip
            if reason:
                results.append(False)
                print(f"FAILED {path.stem}: {reason}", flush=True)
                continue
            context = stridec.Model(str(artifact)).context()
            for key in case.files:
                if key.startswith("initial."):
                    context.write_state(key.removeprefix("initial."), case[key])
            inputs = [case[key] for key in case.files if key.startswith("in.")]
            worst = 0.0
            for step, want in enumerate(case["losses"]):
                loss = float(np.asarray(context.run(*(a[step % len(a)] for a in inputs))[0]))
                worst = max(worst, abs(loss - want) / max(abs(want), 1e-3))
            results.append(worst < (5e-3 if path.stem == "muon" else 1e-4))
            if not results[-1]:
                print(f"FAILED {path.stem}: loss differs by {worst:.1e}", flush=True)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed", flush=True)


def timed(step, rounds=20):
    import torch

    for _ in range(4):
        loss = step()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times), float(loss)


def build_step(name, model, x, work):
    """The artifact of a training step; why there is none; the seconds."""
    import torch

    artifact = pathlib.Path(os.environ.get("ARTIFACTS", work)) / f"{name}.so"
    if artifact.exists():
        return artifact, None, 0
    file = pathlib.Path(work) / f"{name}.pt2"
    torch.export.save(torch.export.export(model, (x,)), file)
    # PyTorch's step has no norm of the gradients either.
    train = "loss=cross_entropy,logits=output,labels=t,optimizer=adamw,lr=1e-5,grad_norm=false,functions=train_step"
    reason, seconds = build(file, artifact, "--train", train, "--precision", "bf16", "--mode", "reduce-overhead")
    return artifact, reason, seconds


def race(name, make, data):
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    model = make().train()
    x, t = data()
    with tempfile.TemporaryDirectory() as work:
        try:
            peers_alone = bool(os.environ.get("ONLY_PEERS"))
            artifact, reason, seconds = (None, "not run", 0) if peers_alone else build_step(name, model, x, work)
            if reason:
                print(f"{name}: stridec: {reason}", flush=True)
            else:
                context = stridec.Model(str(artifact)).context(stream=torch.cuda.current_stream().cuda_stream)
                a, b = x.cuda(), t.cuda()
                run = context.prepare(a, b)
                ms, loss = timed(lambda: run()[0])
                memory = context.memory()
                total = sum(v for k, v in memory.items() if k.endswith("bytes")) / 2**30
                print(f"{name}: stridec {ms:.2f} ms, loss {loss:.4f}, {total:.2f} GiB, compiled in {seconds:.0f} s", flush=True)
                if os.environ.get("STEPS"):
                    context.profile()
                    run()
                    torch.cuda.synchronize()
                    rows = sorted(enumerate(context.steps()), key=lambda row: -row[1][2])
                    print(f"   {len(rows)} kernels, {sum(1e3 * r[2] for _, r in rows):.2f} ms")
                    for at, row in rows[: int(os.environ["STEPS"])]:
                        print(f"   {1e3 * row[2]:.3f} ms  step {at}  {row[0]}", flush=True)
                del context, run
        except Exception as error:  # the peers still run
            print(f"{name}: stridec: {type(error).__name__}: {str(error)[:500]}", flush=True)
    del model  # PyTorch's peak has one set of weights
    x, t = x.cuda(), t.cuda()
    for mode in os.environ.get("PEERS", "eager default reduce-overhead").split():
        torch._dynamo.reset()
        torch.manual_seed(0)
        own = make().train().cuda()
        optimizer = torch.optim.AdamW(own.parameters(), lr=1e-5, fused=True)
        forward = own if mode == "eager" else torch.compile(own, mode=None if mode == "default" else mode)

        def step():
            torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast("cuda", torch.bfloat16):
                y = forward(x)
                y = y if isinstance(y, torch.Tensor) else y[0]
                loss = F.cross_entropy(y.flatten(0, -2).float(), t.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss

        torch.cuda.reset_peak_memory_stats()
        start = time.time()
        ms, loss = timed(step)
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"{name}: PyTorch {mode} {ms:.2f} ms, loss {loss:.4f}, {peak:.2f} GiB, {time.time() - start:.0f} s", flush=True)
        del own, optimizer, forward
        torch.cuda.empty_cache()


def main():
    warnings.simplefilter("ignore")
    if sys.argv[2] == "cases":
        return cases(sys.argv[3:])
    import torch
    from training_networks import MAIN, networks

    known = networks()
    for name in sys.argv[3:] or MAIN:
        make, data = known[name]
        if sys.argv[2] == "steps":
            race(name, make, data)
            continue
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as work:
            _, reason, seconds = build_step(name, make().train(), data()[0], work)
        print(f"{name}: {reason or 'compiled'}, {seconds:.0f} s", flush=True)


main()
