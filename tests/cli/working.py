"""Long work: progress while it lasts, what tuning found and its time, the cache, signals, and --quiet."""

import json
import os
import re
import signal
import subprocess
import time

from harness import STRIDEC, contents, expect, stridec


def test_plain_progress():
    """Lines come when a part of the work is done, and stages that take long are reported meanwhile."""
    process = subprocess.Popen([STRIDEC, *"tune tower.onnx --tune-db progress.txt --tune-seconds 6 --progress=plain".split()],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    times = []
    for line in process.stderr:
        times.append((time.monotonic(), line))
    ended = time.monotonic()
    expect(process.wait(timeout=60) == 0, times)
    seen = [line for _, line in times]
    early = [line for at, line in times if ended - at > 1]
    expect(any(re.match(r" tuning +\.\.\. \d+ of \d+ ", line) for line in early), f"nothing while it tunes: {seen}")
    expect("\x1b" not in "".join(seen) and "\r" not in "".join(seen), "control characters")
    os.remove("progress.txt")
    # One line for each part, in the order of the work.
    text = stridec("compile tower.onnx -o progress.so", 0).stderr
    stages = [line.split()[0] for line in text.splitlines() if line.startswith(" ") and " ... " not in line]
    expect([stage for stage in stages if stage != "note"] == ["reading", "fusing", "packing", "building", "wrote"], text)
    text = stridec("compile missing_attribute.onnx -o progress.so").stderr
    expect("building" not in text, text)


def test_tuning_says_what_it_found():
    done = stridec("compile mlp.onnx -o tuned.so --mode max-autotune --tune-db found.txt --tune-seconds 5", 0)
    line = next((line for line in done.stderr.splitlines() if line.startswith(" tuning ") and " ... " not in line), "")
    expect(re.search(r"\d+ kernels?: \d+ measured in [\d.]+ m?s; (the default|[\d.]+ times as fast).*; database found.txt$", line), done.stderr)
    told = json.loads(stridec("compile mlp.onnx -o tuned.so --tune-db found.txt --format=json", 0).stdout)["tuning"]
    expect(told["from_database"] > 0 and told["measured"] == 0 and told["speedup"] >= 1, told)
    expect(json.loads(stridec("compile mlp.onnx -o tuned.so --format=json", 0).stdout)["tuning"] is None, "nothing was tuned")
    done = stridec("tune mlp.onnx --tune-db found.txt", 0)
    expect(re.search(r"^ tuned +\d+ kernels?: \d+ from the database;", done.stderr, re.M), done.stderr)
    os.remove("found.txt")


def test_limits_of_tuning():
    """A time limit ends measuring in time, and what was measured is in the database."""
    for flag, most in (("--tune-seconds 2", 30), ("--max-seconds 25", 25)):
        start = time.monotonic()
        done = stridec(f"tune tower.onnx --tune-db limited.txt {flag} --format=json", 0)
        expect(time.monotonic() - start < most, f"{flag} took {time.monotonic() - start:.1f} s")
        # On a busy machine two seconds may be too short to measure anything.
        measured = json.loads(done.stdout)
        expect(measured or most == 30, f"{flag}: nothing was measured")
        expect(bool(measured) == os.path.exists("limited.txt"), f"{flag}: a database of {len(measured)} entries")
        if measured:
            entries = json.loads(stridec("tune show limited.txt --format=json", 0).stdout)
            expect(len(entries) == len(measured), f"{flag}: {len(entries)} entries")
            os.remove("limited.txt")
    # A process that is ended has kept what it had measured.
    stridec("tune tower.onnx --tune-db limited.txt --max-seconds 0.3")
    if os.path.exists("limited.txt"):
        stridec("tune show limited.txt", 0)
        os.remove("limited.txt")


def test_cache():
    env = {**os.environ, "STRIDEC_CACHE": os.path.abspath("cache")}
    stridec("compile mlp.onnx -o cached.so", 0, env=env)
    told = json.loads(stridec("cache show --format=json", 0, env=env).stdout)
    expect(told["folder"] == os.path.abspath("cache/kernels") and told["kernels"] > 0 and told["bytes"] > 0, told)
    expect(told["limit_bytes"] == 0 and told["database"] == os.path.abspath("cache/tuning.txt"), told)
    expect(str(told["kernels"]) in stridec("cache", 0, env=env).stdout, "cache is cache show")
    text = stridec("cache limit 1KB", 0, env=env).stdout
    told = json.loads(stridec("cache --format=json", 0, env=env).stdout)
    expect(told["limit_bytes"] in (1000, 1024) and told["bytes"] <= 1024, f"{text} {told}")
    stridec("cache limit 0", 0, env=env)
    stridec("compile mlp.onnx -o cached.so", 0, env=env)
    expect("kernels removed" in stridec("cache clear", 0, env=env).stderr, "clear")
    told = json.loads(stridec("cache --format=json", 0, env=env).stdout)
    expect((told["kernels"], told["bytes"], told["limit_bytes"]) == (0, 0, 0), told)
    # Where the cache is: this variable, then the base directory specification's, then the home folder.
    env = {name: value for name, value in os.environ.items() if name not in ("STRIDEC_CACHE", "XDG_CACHE_HOME")}
    for more, folder in (({"XDG_CACHE_HOME": os.path.abspath("xdg")}, "xdg/stridec"), ({"XDG_CACHE_HOME": "relative"}, "home/.cache/stridec"),
                         ({}, "home/.cache/stridec")):  # fmt: skip
        told = json.loads(stridec("cache --format=json", 0, env={**env, "HOME": os.path.abspath("home"), **more}).stdout)
        expect(told["folder"] == os.path.abspath(folder) + "/kernels", f"{more}: {told}")
    stridec("cache show", 2, env={name: value for name, value in env.items() if name != "HOME"})
    stridec("cache limit lots", 1)


def test_hangup():
    """A terminal that closes ends the work like Ctrl-C, unless nohup started it."""
    before = contents()
    for ignored in (False, True):
        process = subprocess.Popen([STRIDEC, *"tune tower.onnx --tune-db hung.txt --tune-seconds 4 --progress=json".split()], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL))  # fmt: skip
        expect("stage" in process.stderr.readline(), "no progress")  # it works, so that signals have their handlers
        process.send_signal(signal.SIGHUP)
        _, error = process.communicate(timeout=60)
        expect(process.returncode == (0 if ignored else 130) and ("error[interrupted]" in error) != ignored, f"{ignored}: {error}")
    if os.path.exists("hung.txt"):
        os.remove("hung.txt")
    expect(contents() == before, f"left {contents().items() ^ before.items()}")


def test_quiet_everywhere():
    for command in ("compile mlp.onnx -o quiet.so", "check mlp.onnx", "verify mlp.onnx mlp.so --runs 1", "run mlp.so --random",
                    "tune mlp.onnx --tune-db quiet.txt --tune-seconds 1", "cache limit 0"):  # fmt: skip
        for flag in ("-q", "--quiet"):
            done = stridec(f"{command} {flag}", 0)
            expect((done.stdout, done.stderr) == ("", ""), f"{command} {flag}: {done.stdout}{done.stderr}")
    for command, words in (("check missing_attribute.onnx", "required attribute"), ("run mlp.so -i x=wide.npy", "error["),
                           ("verify mlp.onnx --tolerance 0 --precision bf16 --runs 1 --dim batch=8", "")):  # fmt: skip
        done = stridec(f"{command} -q")
        expect(done.stdout == "" and words in done.stderr, f"{command}: {done.stdout}{done.stderr}")
    expect(json.loads(stridec("check mlp.onnx -q --format=json", 0).stdout)["problems"] == [], "JSON that is asked for")
    os.remove("quiet.txt")
