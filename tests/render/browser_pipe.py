"""A real browser for tests: the system's Chromium, driven over its debugging pipe, without any package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_browser() -> str | None:
    """The path of a browser, if this machine has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab; `errors` collects what the page's console complains about, refused scripts and loads included."""

    def __init__(self, program: str, profile: Path):
        (read, self.write), (self.read, write) = os.pipe(), os.pipe()
        shell = f'exec "$@" 3<&{read} 4>&{write}'
        command = ["bash", "-c", shell, "bash", program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, pass_fds=(read, write), **quiet)
        os.close(read)
        os.close(write)
        self.number, self.rest, self.errors, self.requests = 0, b"", [], []
        self.session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        """Call a method and return its result; events that come before it are noted."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _message(self, seconds: float = 20.0) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(end - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            part = os.read(self.read, 1 << 16)
            assert part, "the browser has ended"
            self.rest += part
        first, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(first)
        kind, params = message.get("method", ""), message.get("params", {})
        if kind == "Runtime.exceptionThrown" or (kind == "Log.entryAdded" and params["entry"]["level"] == "error"):
            self.errors.append(params)
        if kind == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message

    def open(self, path: Path, width: int = 1000, height: int = 900) -> None:
        """Show a file and wait until it is drawn."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Page.navigate", url=path.as_uri())
        end = time.monotonic() + 15
        while self.run("document.readyState") != "complete" or self.run("location.protocol") != "file:":
            assert time.monotonic() < end, "the page does not load"
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, code: str) -> Any:
        """Evaluate an expression in the page."""
        found = self.send("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send a mouse event: Moved, Pressed, Released or Wheel."""
        kind = f"mouse{kind}"
        button = {"button": "left", "clickCount": 1} if kind in ("mousePressed", "mouseReleased") else {}
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **{**button, **more})

    def key(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Keep a picture of the page."""
        found = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """End the browser, gently if it lets itself."""
        try:
            self.session = None
            self.send("Browser.close")
            self.process.wait(5)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        for end in (self.read, self.write):
            os.close(end)
