"""The GitHub workflow sample, as a runner would read and run it: python tests/package/workflow.py PACKAGES

PACKAGES is the folder that runtime/install/package.sh wrote; it stands for the release. The steps run in a new folder with
nothing of this build on PATH, each by `bash -e` as on a runner, with a model that compiles and with one that does not. The
last line is "N passed, N failed".
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import onnx
import yaml
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORKFLOW = ROOT / "samples/ci/github-actions.yml"
KNOWN_ACTIONS = {"actions/checkout", "actions/cache", "actions/upload-artifact"}
passed = failed = 0


def check(what, holds, detail=""):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    if not holds:
        print(f"FAILED {what}\n{detail}")


def write_model(path, operator):
    """y = operator(x, x) of f32 [batch]."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch"]) for n in "xy")
    node = helper.make_node(operator, ["x", "x"], ["y"], domain="" if operator == "Add" else "your.own")
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("your.own", 1)]
    onnx.save(helper.make_model(helper.make_graph([node], "model", [x], [y]), opset_imports=imports, ir_version=9), path)


class Runner:
    """A runner's machine: its folders and variables."""

    def __init__(self, folder, release, environment):
        self.temp = folder / "temp"
        self.workspace = folder / "workspace"
        self.path_file = folder / "path"
        for each in (self.temp, self.workspace, folder / "home"):
            each.mkdir()
        self.path_file.write_text("")
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder / "home"), "CI": "true",
                            "GITHUB_ACTIONS": "true", "GITHUB_PATH": str(self.path_file)}
        self.environment |= {key: str(value) for key, value in environment.items()}
        self.environment["STRIDEC_RELEASE"] = release.resolve().as_uri()

    def evaluated(self, text):
        return re.sub(r"\$\{\{ runner\.temp \}\}", str(self.temp), text)

    def run(self, step):
        path = ":".join([*reversed(self.path_file.read_text().split()), self.environment["PATH"]])
        return subprocess.run(["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", self.evaluated(step["run"])],
                              cwd=self.evaluated(step.get("working-directory", str(self.workspace))),
                              env=self.environment | {"PATH": path}, capture_output=True, text=True, timeout=300)


def runner_of(folder, release, environment, operator):
    runner = Runner(folder, release, environment)
    shutil.copytree(ROOT / "samples/ci", runner.workspace / "samples/ci")
    write_model(runner.workspace / "model.onnx", operator)
    return runner


def main():
    release = pathlib.Path(sys.argv[1])
    workflow = yaml.safe_load(WORKFLOW.read_text())
    check("keys", set(workflow) == {"name", "on", "permissions", "env", "jobs"}, sorted(map(str, workflow)))
    version = re.search(r"^project\(stridec VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    check("the version is this one's", str(workflow["env"]["STRIDEC_VERSION"]) == version)
    (job,) = workflow["jobs"].values()
    steps = job["steps"]
    check("each step is an action with a version, or a script", all(
        re.fullmatch(r"([\w-]+/[\w-]+)@v\d+", s["uses"])[1] in KNOWN_ACTIONS if "uses" in s else s.get("run") for s in steps))
    expressions = re.findall(r"\$\{\{ *(.*?) *\}\}", WORKFLOW.read_text())
    check("expressions", set(expressions) == {"runner.temp", "hashFiles('model.onnx')"}, expressions)
    scripts = [s for s in steps if "run" in s]

    with tempfile.TemporaryDirectory() as folder:
        runner = runner_of(pathlib.Path(folder), release, workflow["env"], "Add")
        for step in scripts:
            result = runner.run(step)
            check(step["name"], result.returncode == 0, result.stdout + result.stderr)
        upload = next(s for s in steps if s.get("uses", "").startswith("actions/upload-artifact"))
        for name in upload["with"]["path"].split():
            check(f"{name} is there to upload", (runner.workspace / name).stat().st_size > 0)

    with tempfile.TemporaryDirectory() as folder:
        runner = runner_of(pathlib.Path(folder), release, workflow["env"], "Nonsense")
        install, compile_step, *_ = scripts
        check(install["name"], runner.run(install).returncode == 0)
        result = runner.run(compile_step)
        check("exit code of a model that does not compile", result.returncode == 5, result.stdout + result.stderr)
        check("its annotation", "::error file=model.onnx,title=stridec: " in result.stdout, result.stdout)
        check("the operator's name", "Nonsense" in result.stdout)
        check("no library is left", not (runner.workspace / "model.so").exists())

    with tempfile.TemporaryDirectory() as folder:
        damaged = pathlib.Path(folder) / "release"
        shutil.copytree(release, damaged)
        with next(damaged.glob("*.tar.gz")).open("ab") as file:
            file.write(b"x")
        (pathlib.Path(folder) / "machine").mkdir()
        runner = runner_of(pathlib.Path(folder) / "machine", damaged, workflow["env"], "Add")
        check("a damaged release is refused", runner.run(scripts[0]).returncode != 0)
        check("and is not on PATH", not runner.path_file.read_text())

    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
