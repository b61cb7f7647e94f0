"""A headless Chromium, driven over pipes by the protocol of its developer tools: JSON, each message ends with a zero byte."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find():
    """The program, or None: Debian has it in the packages chromium-headless-shell and chromium."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Chromium:
    """One page. `said`: messages of the console and of the log, and exceptions; `asked`: addresses that it requested."""

    def __init__(self, program, seconds=60):
        self.seconds, self.number, self.said, self.asked, self.session, self.rest = seconds, 0, [], [], None, b""
        self.folder = tempfile.mkdtemp(prefix="chromium-")
        ours_out, theirs_in = os.pipe()[::-1]
        theirs_out, ours_in = os.pipe()[::-1]
        self.write_to, self.read_from = ours_out, ours_in

        def pipes():  # the browser reads commands from 3 and writes to 4
            os.dup2(theirs_in, 200), os.dup2(theirs_out, 201)
            os.dup2(200, 3), os.dup2(201, 4)
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={self.folder}", "--disable-dev-shm-usage",
             "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=pipes, pass_fds=(3, 4, theirs_in, theirs_out))
        os.close(theirs_in), os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log", "Performance"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.write_to), os.close(self.read_from)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **({"sessionId": self.session} if self.session else {})}
        os.write(self.write_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def next(self):
        end = time.monotonic() + self.seconds
        while b"\0" not in self.rest:
            if not select.select([self.read_from], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser says nothing")
            more = os.read(self.read_from, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        self.note(message)
        return message

    def note(self, message):
        method, given = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.asked.append(given["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(each.get("value")) for each in given["args"]))
        elif method == "Runtime.exceptionThrown":
            self.said.append(given["exceptionDetails"]["text"])
        elif method == "Log.entryAdded":
            self.said.append(given["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.said.append(f"dialog: {given['message']}")

    def open(self, path):
        """Loads a file; returns the seconds until it is loaded."""
        self.said, self.asked = [], []
        start = time.monotonic()
        self.call("Page.navigate", url=f"file://{os.path.abspath(path)}")
        while self.next().get("method") != "Page.loadEventFired":
            pass
        return time.monotonic() - start

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["text"])
        return result["result"].get("value")

    def metric(self, name):
        return next(each["value"] for each in self.call("Performance.getMetrics")["metrics"] if each["name"] == name)
