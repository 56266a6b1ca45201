"""A headless Chromium, driven over its DevTools pipe with nothing but the standard library.

Why the pipe and not --dump-dom: a test wants the console's errors, to move the mouse, and to look again.

    with Browser() as browser:
        page = browser.open("file:///tmp/report.html", width=1160, height=900)
        page.evaluate("document.title"); page.hover(500, 300); page.screenshot("page.png"); page.errors
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find_chromium():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="chromium.")
        to_child, self.out = os.pipe()
        self.inn, from_child = os.pipe()

        def give_pipes():  # the browser reads commands from descriptor 3 and writes to 4
            os.dup2(to_child, 13)
            os.dup2(from_child, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        self.process = subprocess.Popen(
            [find_chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--no-first-run", f"--user-data-dir={self.profile}", "--remote-debugging-pipe",
             "about:blank"],
            preexec_fn=give_pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.buffer = b""
        self.number = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (OSError, RuntimeError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inn)
        shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self, seconds):
        """The next message, or None when none came in time."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.inn], [], [], left)[0]:
                return None
            data = os.read(self.inn, 1 << 16)
            if not data:
                raise RuntimeError("the browser ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, seconds=60, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            answer = self.receive(left)
            if answer is None:
                break
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)
        raise RuntimeError(f"{method}: no answer in {seconds} s")

    def open(self, url, width=1160, height=900):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, url, width, height)


class Page:
    def __init__(self, browser, session, url, width, height):
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.call("Page.navigate", url=url)
        end = time.monotonic() + 60
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.href") == "about:blank":
            if time.monotonic() > end:
                raise RuntimeError(f"{url} was not loaded")
            time.sleep(0.05)

    def call(self, method, **params):
        return self.browser.call(method, session=self.session, **params)

    def resize(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)

    def dark(self, on=True):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def box(self, selector):
        """(x, y, width, height) of an element in the page, after scrolling to it: in the window."""
        return self.evaluate(f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
                             "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
                             "return [b.x, b.y, b.width, b.height]; })()")

    def hover(self, selector, across=0.5, down=0.5):
        """Moves the mouse onto a point of an element."""
        x, y, width, height = self.box(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + across * width, y=y + down * height)

    def leave(self):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)

    def tip(self):
        return self.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")

    @property
    def errors(self):
        """What the console shows as an error, uncaught exceptions, and whatever else than the page was fetched."""
        self.evaluate("0")  # events that are on their way arrive before its answer
        found = []
        for event in self.browser.events:
            params = event["params"]
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(str(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(str(params["entry"]))
            elif event["method"] == "Network.requestWillBeSent" and params["type"] != "Document":
                found.append("fetched " + params["request"]["url"])
        return found

    def screenshot(self, path, selector=None, until=None, margin=0):
        """A PNG of the window, or of an element (up to the bottom of the element `until`)."""
        options = {}
        if selector:
            x, y, right, bottom = self.evaluate(
                f"(() => {{ const e = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                f"const u = document.querySelector({json.dumps(until or selector)}).getBoundingClientRect();"
                "return [e.x + scrollX, e.y + scrollY, e.right + scrollX, u.bottom + scrollY]; })()")
            options = {"captureBeyondViewport": True,
                       "clip": {"x": x - margin, "y": y - margin, "width": right - x + 2 * margin,
                                "height": bottom - y + 2 * margin, "scale": 1}}
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"])
        with open(path, "wb") as file:
            file.write(data)
        return data
