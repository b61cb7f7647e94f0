"""Transcripts of commands, most of them refused ones, against tests/golden/cli/*.txt."""

import difflib
import os
import re

import models
from harness import GOLDEN, contents, expect, stridec

# Name of the golden file, what it is about, and (command, exit code) of its transcript.
TRANSCRIPTS = {
    "files": [
        ("check missing.onnx", 2),
        ("check folder.onnx", 2),
        ("check empty.onnx", 3),
        ("check truncated.onnx", 3),
        ("check random.onnx", 3),
        ("check zeros.onnx", 3),
        ("check text.onnx", 3),
        ("check picture.onnx", 3),
        ("check archive.onnx", 3),
        ("check program.onnx", 3),
        ("check html.onnx", 3),
        ("check lfs.onnx", 3),
        ("check pickle.onnx", 3),
        ("compile truncated.onnx -o out.so", 3),
    ],
    "weights": [
        ("compile outside_folder.onnx -o out.so", 3),
        ("compile absolute_path.onnx -o out.so", 3),
        ("compile symlink.onnx -o out.so", 3),
        ("compile data_cut_short.onnx -o out.so", 3),
        ("compile data_of_wrong_length.onnx -o out.so", 3),
        ("compile data_missing.onnx -o out.so", 2),
        ("compile weight_cut_short.onnx -o out.so", 3),
        ("compile weight_of_negative_size.onnx -o out.so", 3),
        ("compile weight_of_huge_size.onnx -o out.so", 3),
    ],
    "graphs": [
        ("compile unknown_op.onnx -o out.so", 5),
        ("compile two_unknown.onnx -o out.so", 5),
        ("check two_unknown.onnx", 5),
        ("check two_unknown.onnx --format=json", 5),
        ("check names_that_act.onnx", 5),
        ("compile names_that_act.onnx -o out.so", 5),
        ("compile cyclic.onnx -o out.so", 3),
        ("compile undefined_input.onnx -o out.so", 3),
        ("compile defined_twice.onnx -o out.so", 3),
        ("compile output_not_made.onnx -o out.so", 3),
        ("compile opset_of_the_future.onnx -o out.so", 5),
        ("compile unknown_op.onnx -o out.so --format=json", 5),
    ],
    "shapes": [
        ("compile matmul_mismatch.onnx -o out.so", 4),
        ("compile add_mismatch.onnx -o out.so", 4),
        ("compile wrong_declared_output.onnx -o out.so", 4),
        ("compile type_mismatch.onnx -o out.so", 4),
        ("compile overflowing_dims.onnx -o out.so", 4),
        ("compile overflowing_product.onnx -o out.so", 4),
        ("compile axis_outside.onnx -o out.so", 4),
        ("compile step_of_zero.onnx -o out.so", 4),
        ("compile ranks_of_branches.onnx -o out.so", 5),
    ],
    "indices": [
        ("check indices_outside.onnx", 4),
        ("check indices_outside.onnx --format=json", 4),
        ("compile indices_outside.onnx -o out.so", 4),
    ],
    "targets": [
        ("check drawn.onnx", 0),
        ("check drawn.onnx --target cpu,cuda", 5),
        ("check drawn.onnx --target cuda --format=json", 5),
        ("compile drawn.onnx -o out.so --target cpu,cuda", 5),
        ("check drawn.onnx --target abacus", 1),
    ],
    "sizes": [(f"compile {name}.onnx -o out.so", 5 if name.startswith("rank") else 4) for name in models.overflowing_models()],
    "attributes": [
        ("compile missing_attribute.onnx -o out.so", 3),
        ("compile wrong_attribute.onnx -o out.so", 3),
        ("compile too_few_inputs.onnx -o out.so", 3),
    ],
    "usage": [
        ("", 1),
        ("frobnicate", 1),
        ("compile", 1),
        ("compile mlp.onnx -o out.so --dim batch", 1),
        ("compile mlp.onnx -o out.so --dim batch=8..2", 1),
        ("compile mlp.onnx -o out.so --dim batch=1..99999999999999999999", 1),
        ("compile mlp.onnx -o out.so --dim colour=1..2", 1),
        ("compile mlp.onnx -o out.so --dim batch=3..4%5", 1),
        ("compile mlp.onnx -o out.so --dim batch=1..8,batch=3", 1),
        ("compile mlp.onnx -o out.so --mode turbo", 1),
        ("compile mlp.onnx -o out.so -O frobnication=7", 1),
        ("compile mlp.onnx -o out.so -O autotune=true", 1),
        ("compile mlp.onnx -o out.so -O fallback_random=true", 1),
        ("compile mlp.onnx -o out.so -O winograd", 1),
        ("compile mlp.onnx -o out.so -O winograd=maybe", 1),
        ("options", 0),
        ("compile mlp.onnx -o out.so --cpu i8086", 1),
        ("compile mlp.onnx -o out.so --gpu sm_90a", 1),
        ("compile mlp.onnx -o out.so --target cuda --cpu native", 1),
        ("compile mlp.onnx -o out.so --target cuda --specialize batch=1", 1),
        ("verify mlp.onnx --target cuda", 1),
        ("compile mlp.onnx -o nowhere/out.so", 2),
        ("compile mlp.onnx -o taken.so", 2),
        ("compile mlp.onnx -o mlp.onnx", 1),
        ("compile mlp.onnx -o out.json", 1),
        ("compile mlp.onnx -o out.so --max-seconds -1", 1),
        ("verify mlp.onnx --tolerance nan", 1),
        ("verify mlp.onnx --runs 0", 1),
        ("verify mlp.onnx --dim colour=3", 1),
        ("verify mlp.onnx --input z=good.npy", 1),
        ("bench mlp.so --dim colour=3", 1),
        ("bench mlp.so --input z=good.npy", 1),
        ("inspect mlp.onnx --stage=source --kernel 9", 1),
        ("inspect mlp.onnx --stage=dreams", 1),
        ("compile mlp.onnx -o out.so --train", 1),
        ("compile mlp.onnx -o out.so --pass after=nothing", 1),
        ("train mlp.so --seed x", 1),
        ("train mlp.so --batch 1.5", 1),
        ("bench mlp.so --threads -1", 1),
        ("cache limit 2", 1),
        ("run missing.so", 2),
        ("run text.onnx", 3),
        ("inspect program.onnx", 3),
        ("inspect taken.so", 2),
    ],
    "passes": [
        ("passes", 0),
        ("compile scaled.onnx -o out.so -q --dump-after=import,affine,fusion --stop-after=fusion", 0),
        ("compile scaled.onnx -o out.so --progress=none --dump-after=affine --stop-after=import", 0),
        ("compile mlp.onnx -o out.so --dump-after=fission", 1),
        ("compile mlp.onnx -o out.so --stop-after=all", 1),
        ("compile mlp.onnx -o out.so --dump-dir .", 1),
        ("compile mlp.onnx -o out.so --dump-after=all --dump-dir nowhere", 2),
    ],
    "tune": [
        ("tune", 1),
        ("tune show missing.txt", 2),
        ("tune show text.onnx", 3),
        ("tune merge missing.txt -o merged.txt", 2),
        ("tune mlp.onnx --tune-db untuned.txt --tune-shape colour=1", 1),
        ("tune mlp.onnx --tune-db untuned.txt --tune-shape batch", 1),
        ("compile mlp.onnx -o out.so --dim batch=1..64 --tune-shape batch=100", 1),
        ("compile mlp.onnx -o out.so --tune-db missing.txt --frozen", 2),
        ("compile mlp.onnx -o out.so --tune-db text.onnx", 3),
        ("compile mlp.onnx -o out.so --specialize batch", 1),
        ("compile mlp.onnx -o out.so --specialize colour=3", 1),
        ("compile mlp.onnx -o out.so --specialize batch=1 --specialize batch=2", 1),
    ],
    "run": [
        ("run mlp.so", 1),
        ("run mlp.so --input x=flat.npy", 4),
        ("run mlp.so --input x=integers.npy", 4),
        ("run mlp.so --input x=wide.npy", 4),
        ("run mlp.so --input x=many.npy", 4),
        ("run mlp.so --input z=good.npy", 1),
        ("run mlp.so --random --dim colour=3", 1),
        ("run mlp.so --input x=good.npy --output z=out.npy", 1),
        ("run mlp.so --input x=missing.npy", 2),
        ("run mlp.so --input x=text.onnx", 3),
        ("run mlp.so --input x=short.npy", 3),
        ("run mlp.so --input x=good.npy --output y=nowhere/out.npy", 2),
        ("run mlp.so --input x=good.npy", 0),
        ("run mlp.so --input x=good.npy --format=json", 0),
        ("run gather.so --input table=table.npy --input index=outside.npy --input left=two.npy --input right=two.npy", 4),
        ("run gather.so --input table=table.npy --input index=inside.npy --input left=two.npy --input right=three.npy", 4),
        ("run damaged.so --input x=good.npy", 3),
        ("run cut.so --input x=good.npy", 3),
    ],
}


def transcript(cases):
    """What the commands print, as text, and complaints about codes and left-over files."""
    text, complaints = "", []
    for command, code in cases:
        before = contents()
        done = stridec(command)
        text += f"$ stridec {command}\n{done.stdout}{done.stderr}exit code {done.returncode}\n\n"
        if done.returncode != code:
            complaints.append(f"'stridec {command}': exit code {done.returncode} instead of {code}")
        if contents() != before:
            complaints.append(f"'stridec {command}' left {sorted(contents().items() ^ before.items())}")
    return normal(text), complaints


def normal(text):
    """The text without what differs between releases and machines."""
    text = re.sub(r"stridec \d+\.\d+\.\d+", "stridec VERSION", text)
    return re.sub(r"(for this machine's CPU, )[^;]+;", r"\1NAME;", text)


def check(name, update):
    got, complaints = transcript(TRANSCRIPTS[name])
    path = os.path.join(GOLDEN, name + ".txt")
    if update:
        os.makedirs(GOLDEN, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(got)
    expected = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            expected = file.read()
    if got != expected:
        lines = difflib.unified_diff(expected.splitlines(), got.splitlines(), f"golden/cli/{name}.txt", "now", "", "", 2, "")
        complaints.append("\n".join(lines))
    expect(not complaints, "\n".join(complaints))
