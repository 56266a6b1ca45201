#!/usr/bin/env python3
"""Makes the pictures that zero/README.md, models/report/README.md and the root README show, from runs made for them.

    tests/models/report/screenshots.py [PATH_TO_TRAIN_GPT]

Takes two minutes on an idle machine with two cores; look at the pictures before you commit them. It also notes in
screenshots.stamp which markup the page had: the test `report` fails when that has changed since.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import folders
from browser import Browser

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else str(ROOT / "build/release/bin/train_gpt")


def hide(page, selector):
    page.evaluate(f"document.querySelectorAll('{selector}').forEach(e => e.style.display = 'none')")


def tour(browser, folder):
    subprocess.run([ROOT / "zero/tour.sh", "--program", PROGRAM, "-o", folder], check=True)
    page = browser.open((folder / "tour.html").as_uri())
    hide(page, "#curves, #runs .note, #step .run:nth-of-type(2), #step .run:nth-of-type(3)")
    page.screenshot(ROOT / "zero/tour.png", "#runs", until="#step .run:nth-of-type(4)", margin=16)


def report(browser, folder):
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    subprocess.run(["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none", PROGRAM, "-z", "3", "-x", "400", "-v",
                    "50", "--eval-steps", "4", "-o", folder / "shakespeare"], check=True, env=env,
                   stdout=subprocess.DEVNULL)
    page = browser.open((folder / "shakespeare/report.html").as_uri())
    hide(page, "#runs .note")
    page.hover(".panel svg", across=0.55, down=0.04)
    page.screenshot(ROOT / "models/report/report.png", "header", until="#step figure.step", margin=16)


def main():
    with tempfile.TemporaryDirectory() as name, Browser() as browser:
        folder = pathlib.Path(name)
        tour(browser, folder / "tour")
        report(browser, folder)
        folders.write(folder / "fixed")
        subprocess.run([PROGRAM, "report", folder / "fixed"], check=True, stdout=subprocess.DEVNULL)
        stamp = folders.markup_stamp((folder / "fixed/report.html").read_text(), ROOT)
        pathlib.Path(__file__).with_name("screenshots.stamp").write_text(stamp + "\n")
    for image in ("zero/tour.png", "models/report/report.png"):
        print(f"{image}: {(ROOT / image).stat().st_size} bytes; look at it")


if __name__ == "__main__":
    main()
