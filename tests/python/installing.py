"""The wheel, and what an installation relies on."""

import ast
import base64
import csv
import hashlib
import io
import os
import runpy
import subprocess
import sys
import zipfile

import harness
import stridec
from harness import ROOT, expect

BUILD_WHEEL = str(ROOT / "python/build_wheel")


def test_the_program_runs_on_the_glibc_that_the_wheel_promises():
    tool = runpy.run_path(BUILD_WHEEL)
    with open(os.environ["STRIDEC_PROGRAM"], "rb") as file:
        newest = tool["glibc_of"](file.read())
    expect((2, 14) <= newest <= (2, 28), f"the program needs glibc {newest}")


def test_wheel():
    """With a small file for the program, since compressing it takes seconds."""
    with open("program", "wb") as file:
        file.write(b"\x7fELF\0GLIBC_2.17\0")
    made = []
    for folder in ("one", "two"):
        subprocess.run([sys.executable, BUILD_WHEEL, "--program", "program", "--output", folder], check=True, capture_output=True)
        (name,) = os.listdir(folder)
        expect(name == f"stridec-{stridec.__version__}-py3-none-manylinux_2_28_x86_64.whl", name)
        with open(os.path.join(folder, name), "rb") as file:
            made.append(file.read())
    expect(made[0] == made[1], "two wheels of the same program differ")
    with zipfile.ZipFile(io.BytesIO(made[0])) as wheel:
        entries = {entry.filename: entry for entry in wheel.infolist()}
        script = entries[f"stridec-{stridec.__version__}.data/scripts/stridec"]
        expect(script.external_attr >> 16 & 0o111 == 0o111, "the script is not executable")
        info = f"stridec-{stridec.__version__}.dist-info"
        points = wheel.read(f"{info}/entry_points.txt").decode()
        expect(points == "[torch_dynamo_backends]\nstridec = stridec.torch_backend:backend\n", points)
        for name, digest, size in csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode())):
            if name == f"{info}/RECORD":
                continue
            data = wheel.read(name)
            own = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            expect(digest == f"sha256={own}" and int(size) == len(data), name)
            del entries[name]
        expect(list(entries) == [f"{info}/RECORD"], f"not in RECORD: {list(entries)}")
    with open("program", "wb") as file:
        file.write(b"\x7fELF\0GLIBC_2.17\0GLIBC_2.34\0")
    done = subprocess.run([sys.executable, BUILD_WHEEL, "--program", "program", "--output", "three"], capture_output=True, text=True)
    expect(done.returncode == 1 and "2.34" in done.stderr, done.stderr)


def test_versions_agree():
    with open(ROOT / "CMakeLists.txt", encoding="utf-8") as file:
        expect(f"project(stridec VERSION {stridec.__version__} " in file.read(), "CMakeLists.txt has another version")


def test_sources_parse_with_the_oldest_python():
    for path in sorted((ROOT / "python/stridec").glob("*.py")):
        ast.parse(path.read_text(), feature_version=(3, 8))


def test_nothing_imports_torch_before_it_is_used():
    code = "import sys, stridec; assert 'torch' not in sys.modules and 'ml_dtypes' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "python")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
