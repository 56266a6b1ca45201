#!/usr/bin/env python3
"""The report page in a real browser, the trace, the tour, and progress as a terminal and a file see it.

    run_report.py PATH_TO_TRAIN_GPT [unittest arguments]

Without Chromium the tests of the page are skipped, and say so. Screenshots that failed to please can be kept with
TRENCADIS_SCREENSHOTS=folder.
"""
import atexit
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

import folders
from browser import Browser, find_chromium

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else str(ROOT / "build/release/bin/train_gpt")
TRENCADIS = os.path.join(os.path.dirname(PROGRAM), "trencadis")
SMALL = ["--n-layer", "4", "--n-head", "2", "--n-embd", "32", "--block-size", "16", "-b", "2", "--threads", "1",
         "--warmup-steps", "2", "--eval-steps", "2", "-v", "5", "--sample-tokens", "40", "--progress", "plain"]
needs_browser = unittest.skipUnless(find_chromium(), "Chromium is not installed (apt-get install chromium)")


OF_MPI = tempfile.mkdtemp(prefix="mpi.")  # as in ../train_gpt_case.py
atexit.register(shutil.rmtree, OF_MPI, ignore_errors=True)


def environment(**more):
    env = dict(os.environ, OMPI_MCA_orte_tmpdir_base=OF_MPI, **more)
    if os.geteuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return env


def run(command, cwd, code=0):
    result = subprocess.run([*map(str, command)], cwd=cwd, env=environment(), capture_output=True, text=True,
                            timeout=120, stdin=subprocess.DEVNULL)
    if result.returncode != code:
        raise AssertionError(f"exit code {result.returncode}: {result.stdout}{result.stderr}")
    return result.stdout + result.stderr


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="report."))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.text = cls.folder / "text.txt"
        cls.text.write_text("".join(f"line {i}: the quick brown fox, {i * i % 97} times\n" for i in range(400)))

    def train(self, *flags, ranks=2, code=0):
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", ranks, PROGRAM]
        return run([*command, *SMALL, "-i", self.text, *flags], self.folder, code)

    def report(self, *arguments, code=0):
        return run([PROGRAM, "report", *arguments], self.folder, code)


def spans_by_lane(trace):
    lanes = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append(event)
    return lanes


class Trace(Case):
    def test_trace_of_a_run(self):
        output = self.train("-x", 12, "-z", 3, "--trace", "t/trace.json", "-o", "traced")
        self.assertIn("trace: t/trace.json", output)
        trace = json.loads((self.folder / "t/trace.json").read_text())
        names = {(e["pid"], e["args"]["name"]) for e in trace["traceEvents"] if e["ph"] == "M"}
        for rank in (0, 1):
            for lane in ("compute", "gather", "reduce"):
                self.assertIn((rank, lane), names)
        for (rank, _), spans in spans_by_lane(trace).items():
            open_ends = []
            for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
                while open_ends and open_ends[-1] <= span["ts"] + 0.0011:
                    open_ends.pop()
                end = span["ts"] + span["dur"]
                if open_ends:
                    self.assertLessEqual(end, open_ends[-1] + 0.0011, f"{span} crosses another span on rank {rank}")
                open_ends.append(end)
        for words in ("step 12", "h.3 forward", "h.3 backward", "h.3 optimizer", "all_gather parameters of h.3",
                      "reduce_scatter gradients of h.3", "validation", "sample", "gradient norm"):
            for rank in (0, 1):
                self.assertTrue(any(e["ph"] == "X" and e["name"] == words and e["pid"] == rank
                                    for e in trace["traceEvents"]), f"no '{words}' on rank {rank}")
        # The counters are the tracker's numbers: their largest sum within the last step is the peak that metrics have.
        step = next(e for e in trace["traceEvents"] if e["ph"] == "X" and e["name"] == "step 12" and e["pid"] == 0)
        inside = [sum(e["args"].values()) for e in trace["traceEvents"] if e["ph"] == "C" and e["pid"] == 0
                  and step["ts"] <= e["ts"] <= step["ts"] + step["dur"]]
        last = json.loads((self.folder / "traced/metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual(max(inside), last["mem_by_rank/peak_bytes"][0])

    def test_one_step_is_kept_without_trace(self):
        for steps, kept in ((1, 1), (2, 2), (3, 3), (9, 3)):
            self.train("-x", steps, "-z", 2, "--grad-accum", 2, "-o", f"kept{steps}", "--sample-tokens", 0,
                       "--warmup-steps", 0)
            timeline = json.loads((self.folder / f"kept{steps}/timeline.json").read_text())
            self.assertEqual((timeline["step"], len(timeline["ranks"])), (kept, 2))
            for rank in timeline["ranks"]:
                for name in (f"step {kept}", "micro-batch 1", "micro-batch 2", "h.0 forward", "gradient norm"):
                    self.assertIn(name, rank["names"])
                self.assertGreater(len(rank["memory"]), 70)

    def test_alone_and_off(self):
        run([PROGRAM, *SMALL, "-i", self.text, "-x", 5, "-o", "alone", "--report", "off", "--metrics", "off",
             "--save-interval", "off"], self.folder)
        self.assertEqual(sorted(p.name for p in (self.folder / "alone").iterdir()), ["run.json", "timeline.json"])
        text = self.report("alone")
        self.assertIn("--metrics off", text)
        self.assertTrue((self.folder / "alone/report.html").exists())


class Page(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if find_chromium():
            cls.browser = cls.enterClassContext(Browser()) if hasattr(cls, "enterClassContext") else Browser()
            if not hasattr(cls, "enterClassContext"):
                cls.addClassCleanup(cls.browser.__exit__)

    def open(self, file, **options):
        return self.browser.open((self.folder / file).as_uri(), **options)

    def look(self, page, name):
        """A screenshot that shows something: many different bytes of pixels, not one colour."""
        path = pathlib.Path(os.environ.get("TRENCADIS_SCREENSHOTS", self.folder)) / f"{name}.png"
        png = page.screenshot(path)
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        pixels, at = b"", 8
        while at < len(png):
            length, kind = struct.unpack(">I4s", png[at:at + 8])
            if kind == b"IDAT":
                pixels += png[at + 8:at + 8 + length]
            at += 12 + length
        self.assertGreater(len(set(zlib.decompress(pixels))), 60, f"{path} shows next to nothing")

    @needs_browser
    def test_a_run(self):
        output = self.train("-x", 20, "-z", 3, "--digest", "-o", "run")
        self.assertIn("report: run/report.html", output)
        text = (self.folder / "run/report.html").read_text()
        self.assertNotRegex(text.replace("http://www.w3.org/2000/svg", ""), r"https?://|@import|<link|src=")
        page = self.open("run/report.html")
        self.assertEqual(page.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)"),
                         ["Run", "Learning", "One step: memory and time", "Predicted and measured", "Configuration",
                          "Sample"])
        captions = page.evaluate("[...document.querySelectorAll('.chart figcaption')].map(h => h.textContent)")
        for words in ("training and validation loss nats per token", "gradient norm before clipping", "learning rate",
                      "time of a step milliseconds"):
            self.assertTrue(any(c.startswith(words) for c in captions), (words, captions))
        self.assertEqual(page.evaluate("document.querySelectorAll('.chart path.curve[d]').length"), 5 + 2)  # and keys
        self.assertGreaterEqual(page.evaluate("document.querySelectorAll('.panel:not([hidden]) path.area').length"), 4)
        lanes = page.evaluate("[...document.querySelectorAll('.panel:not([hidden]) .lanes rect')]"
                              ".map(r => r.dataset.title)")
        for words in ("h.1 forward", "h.1 backward", "all_gather parameters of h.1", "reduce_scatter gradients of h.1"):
            self.assertTrue(any(t.startswith(words + ": ") for t in lanes), words)
        self.assertEqual(page.evaluate("document.querySelectorAll('path.plan').length"), 2)  # a panel per rank
        self.assertIn("exact", page.evaluate("document.querySelector('table.plan').innerText"))

        # Numbers under the mouse: those of the metrics.
        page.hover("figure.chart svg", across=0.999 * (500 - 12) / 500)
        last = json.loads((self.folder / "run/metrics.jsonl").read_text().splitlines()[-1])
        tip = page.tip()
        self.assertTrue(tip.startswith("step 20"), tip)
        self.assertEqual(float(re.search(r"training loss\s+([\d.]+)", tip)[1]), float(f"{last['train/loss']:.5g}"))
        self.assertIn("validation loss", tip)
        page.hover(".panel:not([hidden]) svg", across=0.5, down=0.4)
        tip = page.tip()
        self.assertRegex(tip, r"^[\d.]+ ms")
        for words in ("parameters", "gradients", "optimizer state", "all"):
            self.assertRegex(tip, words + r"\s+[\d.]+ [KM]iB")
        page.evaluate("[...document.querySelectorAll('.panel:not([hidden]) .lanes rect.b')]"
                      ".sort((a, b) => b.getAttribute('width') - a.getAttribute('width'))[0].id = 'widest'")
        page.hover("#widest")
        self.assertRegex(page.tip(), r"(h\.\d|head|embedding) backward\s+[\d.]+ ms")
        page.leave()
        self.assertEqual(page.tip(), "")

        page.evaluate("(() => { const s = document.querySelector('select.rank'); s.value = '1';"
                      "s.dispatchEvent(new Event('change')); })()")
        self.assertEqual(page.evaluate("[...document.querySelectorAll('.panel')].map(p => p.hidden)"), [True, False])

        self.look(page, "light")
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.dark()
        self.assertNotEqual(page.evaluate("getComputedStyle(document.body).backgroundColor"), light)
        self.look(page, "dark")
        self.assertGreater(len(page.call("Page.printToPDF", printBackground=True)["data"]), 20_000)
        page.resize(420, 800)
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 470)
        self.assertEqual(page.errors, [])

    @needs_browser
    def test_several_runs(self):
        for name, stage in (("a/run", "1"), ("b/run", "3")):
            record = folders.run_record()
            record["config"]["zero-stage"] = stage
            folders.write(self.folder / name, record=record)
        text = self.report("a/run", "b/run", "-o", "both.html")
        self.assertIn("a/run", text)  # as much of the path as tells them apart
        page = self.open("both.html")
        names = page.evaluate("[...document.querySelectorAll('table.runs tbody th')].map(h => h.textContent)")
        self.assertEqual(names, ["a/run", "b/run"])
        self.assertIn("live memory of rank 0 within one step", page.evaluate("document.body.innerText"))
        page.hover("#step figure.chart svg", across=0.5)
        self.assertRegex(page.tip(), r"a/run\s+[\d.]+ MiB")
        self.assertRegex(page.tip(), r"b/run\s+[\d.]+ MiB")
        differs = page.evaluate("document.querySelector('#config table').innerText")
        self.assertIn("zero-stage", differs)
        self.assertNotIn("lr", differs)
        self.assertEqual(page.errors, [])

    @needs_browser
    def test_many_ranks_and_steps(self):
        folders.write(self.folder / "large", steps=100_000, world=64)
        begin = time.monotonic()
        self.report("large")
        seconds = time.monotonic() - begin
        size = (self.folder / "large/report.html").stat().st_size
        (self.folder / "large/metrics.jsonl").unlink()
        self.assertLess(seconds, 20)
        self.assertLess(size, 3_000_000)
        page = self.open("large/report.html")
        self.assertEqual(page.evaluate("document.querySelectorAll('.panel').length"), 64)
        self.assertEqual(page.evaluate("document.querySelectorAll('.peaks rect').length"), 64)
        page.hover("figure.chart svg", across=0.5)
        self.assertRegex(page.tip(), r"step 4\d\d\d\d|step 5\d\d\d\d")
        self.look(page, "large")
        self.assertEqual(page.errors, [])

    @needs_browser
    def test_markup_in_names_is_text(self):
        evil = '<script>window.hacked = 1</script><img src=x onerror="window.hacked=1">\'"&\u2028</pre></textarea>'
        record = folders.run_record(sample=evil + "\x00\x1b[31m", data=evil, model=evil, status=evil, digest=evil)
        record["config"][evil] = evil
        record["memory"][0]["name"] = evil
        name = "</script><b onclick=window.hacked=1>"
        folder = folders.write(self.folder / "evil" / name.replace("/", "_"), record=record)
        timeline = folder / "timeline.json"
        timeline.write_text(timeline.read_text().replace("h.0 forward", json.dumps(evil + " forward")[1:-1]))
        self.report(folder, "-o", "evil.html")
        page = self.open("evil.html")
        self.assertEqual(page.evaluate("document.querySelectorAll('img, b').length"), 0)
        self.assertTrue(page.evaluate("window.hacked === undefined"))
        self.assertTrue(page.evaluate("document.querySelector('pre').textContent").startswith(evil))
        for at in (0.1, 0.2, 0.3):
            page.hover(".panel svg", across=at, down=0.75)
            page.hover("figure.chart svg", across=at)
        self.assertTrue(page.evaluate("window.hacked === undefined && !document.querySelector('#tip img')"))
        self.assertEqual(page.errors, [])

    @needs_browser
    def test_a_run_that_was_killed(self):
        process = subprocess.Popen([PROGRAM, *SMALL, "-i", str(self.text), "-x", "1000000", "-o", "killed"],
                                   cwd=self.folder, env=environment(), stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("step 7/"):
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        text = self.report("killed")
        self.assertIn("did not end properly", text)
        self.assertIn("of 1000000", text)
        page = self.open("killed/report.html")
        self.assertIn("did not end properly", page.evaluate("document.querySelector('.missing').textContent"))
        self.assertGreater(page.evaluate("document.querySelectorAll('.chart path.curve').length"), 3)
        self.assertGreater(page.evaluate("document.querySelectorAll('.lanes rect').length"), 10)
        self.assertEqual(page.errors, [])

    @needs_browser
    def test_what_is_missing_is_said(self):
        cut = folders.write(self.folder / "cut", cut=True)
        self.assertIn("cut off", self.report(cut))
        page = self.open("cut/report.html")
        self.assertIn("cut off", page.evaluate("document.body.innerText"))
        page.hover("figure.chart svg", across=0.999 * (500 - 12) / 500)
        self.assertTrue(page.tip().startswith("step 100"), page.tip())
        self.assertEqual(page.errors, [])

        bare = folders.write(self.folder / "bare")
        (bare / "metrics.jsonl").unlink()
        (bare / "timeline.json").write_text('{"step":3,"ranks":[{"lanes":')
        self.report(bare)
        page = self.open("bare/report.html")
        shown = page.evaluate("document.body.innerText")
        self.assertIn("no metrics.jsonl", shown)
        self.assertIn("timeline.json cannot be read", shown)
        self.assertEqual(page.errors, [])

        empty = self.folder / "empty"
        empty.mkdir()
        self.assertIn("no run.json", self.report(empty))
        self.assertEqual(self.open("empty/report.html").errors, [])

    def test_errors(self):
        self.assertIn("nowhere is no folder", self.report("nowhere", code=3))
        self.assertIn("give the folders", self.report(code=2))
        self.assertIn("unknown flag --evil", self.report("--evil", code=2))
        self.assertIn("Usage", self.report("--help"))

    def test_divergence_leaves_a_page(self):
        self.train("-x", 60, "--lr", "1e30", "--warmup-steps", 0, "--grad-clip", 0, "--eval-steps", 0, "-o", "diverged",
                   code=4)
        self.assertEqual(json.loads((self.folder / "diverged/run.json").read_text())["status"], "diverged")
        self.assertIn("diverged", (self.folder / "diverged/report.html").read_text())


class Screenshots(Case):
    def test_screenshots_are_current(self):
        """tests/models/report/screenshots.py notes which markup it took its pictures of."""
        folders.write(self.folder / "fixed")
        self.report("fixed")
        stamp = folders.markup_stamp((self.folder / "fixed/report.html").read_text(), ROOT)
        noted = (ROOT / "tests/models/report/screenshots.stamp").read_text().strip()
        self.assertEqual(noted, stamp, "the report page has changed since its screenshots were taken: run "
                                       "tests/models/report/screenshots.py, and look at them")
        for image in ("zero/tour.png", "models/report/report.png"):
            png = (ROOT / image).read_bytes()
            self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
            self.assertLess(len(png), 300_000)


class Tour(Case):
    def test_tour(self):
        small = ["--n-layer", "2", "--n-head", "2", "--n-embd", "32", "--block-size", "16", "--sample-tokens", "10",
                 "--threads", "1", "-i", self.text]
        text = run([ROOT / "zero/tour.sh", "--program", TRENCADIS, "--steps", 4, "-o", self.folder / "tour", *small],
                   ROOT)
        self.assertIn("One digest", text)
        rows = re.findall(r"(?m)^stage(\d) .* ([0-9A-F]{8}) ", text)
        self.assertEqual([r[0] for r in rows], ["0", "1", "2", "3"])
        self.assertEqual(len({r[1] for r in rows}), 1)
        page = (self.folder / "tour/tour.html").read_text()
        self.assertIn("live memory of rank 0 within one step", page)
        self.assertIn("--np N", run([ROOT / "zero/tour.sh", "--help"], ROOT))


class Progress(Case):
    FLAGS = ["-x", "30", "-o", "progress", "--report", "off", "--sample-tokens", "0"]

    def on_a_terminal(self, *flags, **env):
        leader, follower = pty.openpty()
        os.set_blocking(leader, True)
        process = subprocess.Popen([PROGRAM, *[f for f in SMALL if f not in ("--progress", "plain")], "-i",
                                    str(self.text), *self.FLAGS, *flags], cwd=self.folder, env=environment(**env),
                                   stdin=subprocess.DEVNULL, stdout=follower, stderr=follower)
        os.close(follower)
        output = b""
        while True:
            try:
                data = os.read(leader, 4096)
            except OSError:
                break
            if not data:
                break
            output += data
        os.close(leader)
        self.assertEqual(process.wait(), 0, output)
        return output.decode()

    def test_a_terminal_gets_a_bar(self):
        output = self.on_a_terminal()
        self.assertRegex(output, r"\r\[=* *\] \d+/30 \| \d+:\d\d left \| loss")
        for piece in re.findall(r"\r(\[[^\r\n]*?)\x1b\[K", output):
            self.assertLess(len(piece), 80, "wider than the terminal: it would wrap")
        self.assertIn("step 30/30 | loss", output)

    def test_mpirun_and_files_get_lines(self):
        self.assertNotIn("\x1b", self.on_a_terminal(OMPI_COMM_WORLD_SIZE="1"))
        self.assertNotIn("\x1b", self.on_a_terminal("--progress", "plain"))
        command = [PROGRAM, *SMALL, "-i", self.text, *self.FLAGS, "--progress", "auto"]
        output = run(command, self.folder)
        self.assertNotRegex(output, r"[\x1b\r]")
        self.assertIn("step 30/30 | loss", output)
        self.assertNotRegex(self.train(*self.FLAGS, "--progress", "auto"), r"[\x1b\r]")


if __name__ == "__main__":
    unittest.main()
