#!/usr/bin/env python3
"""Every command of the program that a page shows, run as it stands.

    run_pages.py PATH_TO_TRAIN_GPT [unittest arguments]

Commands are the lines of code blocks that call build/release/bin/trencadis; they run in the order of their page, in an
empty folder where that path leads to the program, and end with exit code 0. Runs are made small by flags that are put
behind theirs (the last one counts); my.txt, tokens.bin and gpt2/ are small ones.
"""
import pathlib
import re
import shlex
import shutil
import unittest

from train_gpt_case import PROGRAM, TrainGptCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORD = "build/release/bin/trencadis"
# The pages whose commands need more than one machine, a GPU or minutes; several_machines.md has a test of its own.
ELSEWHERE = ["models/trainer/several_machines.md", "dist/gpus.md"]
SHORT = ["--n-layer", "2", "--n-head", "2", "--n-embd", "20", "--block-size", "16", "-b", "2"]


def commands_of(text):
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(rf"(mpirun .*)?{re.escape(WORD)}(_cudasim)? ", line):
                yield line


def shortened(line):
    words = shlex.split(line, comments=True)
    program = next(i for i, word in enumerate(words) if word.startswith(WORD))
    if words[program + 1] != "train" or "--help" in words:
        return words
    short = ["-x", "6"] if "--resume" in words else ["-x", "3"]
    # The sizes of weights to start from are theirs.
    short += SHORT if "--init-from" not in words else []
    if words[0] == "mpirun":
        words[1:1] = ["--oversubscribe"]
    return [*words, *short, "--threads", "1", "--eval-steps", "1", "--sample-tokens", "2"]


class Pages(TrainGptCase):
    def setUp(self):
        super().setUp()
        (self.folder / "build/release/bin").mkdir(parents=True)
        for program in pathlib.Path(PROGRAM).parent.glob("trencadis*"):
            (self.folder / "build/release/bin" / program.name).symlink_to(program)
        shutil.copy(self.text, self.folder / "my.txt")
        (self.folder / "tokens.bin").write_bytes(bytes(i * i % 37 if i % 2 == 0 else 0 for i in range(4000)))  # uint16
        shutil.copytree(ROOT / "tests/golden/hugging_face/single", self.folder / "gpt2")

    def test_commands(self):
        seen = 0
        for page in sorted(ROOT.glob("**/*.md")):
            name = str(page.relative_to(ROOT))
            if name.startswith(("build", "out", "data")) or name in ELSEWHERE:
                continue
            for line in commands_of(page.read_text()):
                seen += 1
                with self.subTest(page=name, command=line):
                    result = self.run_command(shortened(line))
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertGreater(seen, 10)


if __name__ == "__main__":
    unittest.main()
