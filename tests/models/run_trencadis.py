#!/usr/bin/env python3
"""The program as a whole: its commands, their help, typos, and the other name that it goes by.

    run_trencadis.py PATH_TO_TRAIN_GPT [unittest arguments]
"""
import json
import os
import pathlib
import re
import unittest

from train_gpt_case import PROGRAM, SMALL, TrainGptCase, mpirun

TRENCADIS = os.path.join(os.path.dirname(PROGRAM), "trencadis")


class Trencadis(TrainGptCase):
    def command(self, *words, code=0, ranks=None):
        """(stdout, stderr) of trencadis WORDS."""
        start = [TRENCADIS] if ranks is None else [*mpirun(ranks)[:-1], TRENCADIS]
        result = self.run_command(start, words)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout, result.stderr

    def test_help_names_each_command_and_each_command_has_its_own(self):
        text = self.command("--help")[0]
        for name in ("train", "plan", "report", "export"):
            self.assertRegex(text, rf"\n  {name} +\w")
            for flag in ("--help", "-h"):
                out, err = self.command(name, flag)
                self.assertIn(f"trencadis {name}", out)
                self.assertEqual(err, "")
        self.assertEqual(self.command("help")[0], text)
        self.assertEqual(self.command(code=2)[0], text)  # nothing was asked for
        self.assertRegex(self.command("--version")[0], r"^trencadis \d+\.\d+\.\d+ ")
        self.assertRegex(self.command("train", "--version")[0], r"^trencadis train \d+\.\d+\.\d+ ")

    def test_typos_are_answered_with_the_nearest_word(self):
        for words, answer in ((["trian"], "there is no command 'trian'; did you mean train?"),
                              (["exprot", "out"], "did you mean export?"),
                              (["nonsense"], "there are train, plan, report, export"),
                              (["--preset", "tiny"], "trencadis train --preset"),
                              (["train", "--max-stps", "3"], "did you mean --max-steps?"),
                              (["plan", "--wrld", "3"], "did you mean --world?"),
                              (["report", "--ouput", "x"], "did you mean --output?"),
                              (["report"], "give the folders of the runs"),
                              (["export", "out", "--too", "x"], "did you mean --to?"),
                              (["export", "out"], "--to is missing"),
                              (["export", "--to", "x"], "give one checkpoint, not 0"),
                              (["export", "a", "b", "--to", "x"], "give one checkpoint, not 2"),
                              (["export", "out", "--to", "x", "--export-dtype", "f16"], "allowed: f32, bf16")):
            with self.subTest(words=words):
                out, err = self.command(*words, code=2)
                self.assertIn(answer, err)
                self.assertEqual(out, "")
                self.assertTrue(err.startswith("trencadis"), err)

    def test_the_other_name_is_train(self):
        flags = [*SMALL, "-i", self.text, "-x", 2, "--digest"]
        runs = [self.run_command([TRENCADIS, "train"], [*flags, "-o", "a"]), self.run_command([PROGRAM], [*flags, "-o", "b"])]
        digests = [re.search(r"digest [0-9A-F]{8}", run.stdout)[0] for run in runs]
        self.assertEqual(digests[0], digests[1])
        self.assertIn("train_gpt: unknown flag", self.run_command([PROGRAM], ["--no-such-flag"]).stderr)
        report = self.run_command([PROGRAM], ["report", "a", "b", "-o", "both.html"])
        self.assertEqual(report.returncode, 0, report.stderr)
        self.assertEqual(report.stdout, self.command("report", "a", "b", "-o", "both.html")[0])

    def test_plan_is_what_train_would_plan(self):
        # As a job's own flags, with the word plan in place of train.
        for flags in ([], ["--params", "7e9", "--world", 8], ["--preset", "gpt2", "--world", 4, "-b", 2, "--lr", "1e-3"]):
            planned = self.command("plan", *flags)[0]
            self.assertEqual(planned, self.command("train", "--plan", *flags)[0])
            self.assertEqual(planned, self.run_command([PROGRAM], ["--plan", *flags]).stdout)
        self.assertIn("4 ranks", self.command("plan", ranks=4)[0])
        shown = self.command("plan", "--help")[0]
        self.assertIn("--device-memory", shown)
        self.assertNotIn("--temperature", shown)

    def test_export_of_any_checkpoint(self):
        """The folder that a run exports at its end, later and from any number of ranks: the same bytes."""
        self.train("-x", 3, "-z", 2, "--export", "at_the_end", "-o", "out", ranks=3)
        expected = (self.folder / "at_the_end/model.safetensors").read_bytes()
        for at, ranks in (("out", None), ("out/step-00000003", 2), ("out", 4)):
            with self.subTest(at=at, ranks=ranks):
                out = self.command("export", at, "--to", "later", ranks=ranks)[0]
                self.assertIn("exported: later", out)
                self.assertEqual((self.folder / "later/model.safetensors").read_bytes(), expected)
                for name in ("later", "at_the_end"):
                    config = json.loads((self.folder / name / "config.json").read_text())
                    self.assertEqual((config["vocab_size"], config["n_embd"], config["model_type"]), (256, 20, "gpt2"))
        index = json.loads((self.folder / "out/step-00000003/index.json").read_text())
        self.assertEqual(dict(index["config"])["family"], "gpt2")  # what later families are told apart by
        self.command("export", "out", "--to", "half", "--export-dtype", "bf16")
        self.assertEqual(json.loads((self.folder / "half/config.json").read_text())["dtype"], "bfloat16")
        values = len(expected) - (8 + int.from_bytes(expected[:8], "little"))
        half = (self.folder / "half/model.safetensors").read_bytes()
        self.assertEqual(len(half) - (8 + int.from_bytes(half[:8], "little")), values // 2)

    def test_what_cannot_be_exported(self):
        self.train("-x", 1, "-o", "out")
        (self.folder / "full").mkdir()
        (self.folder / "full/letter").write_text("mine")
        for words, answer in ((["nowhere", "--to", "x"], "nowhere: there is no such folder"),
                              ([".", "--to", "x"], "there is no complete checkpoint"),
                              (["out", "--to", "full"], "holds letter")):
            for ranks in (None, 2):
                with self.subTest(words=words, ranks=ranks):
                    out, err = self.command("export", *words, code=3, ranks=ranks)
                    self.assertEqual((out + err).count(answer), 1, out + err)
        index = pathlib.Path(self.folder / "out/step-00000001/index.json")
        index.write_text(index.read_text()[:100])
        self.assertIn("out/step-00000001", self.command("export", "out", "--to", "x", code=3)[1])
        self.assertFalse((self.folder / "x").exists())


if __name__ == "__main__":
    unittest.main()
