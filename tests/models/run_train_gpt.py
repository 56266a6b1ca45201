#!/usr/bin/env python3
"""The trainer as its users meet it: flags, files, exit codes, ranks that die or disagree, and the same bits at any W.

    run_train_gpt.py PATH_TO_TRAIN_GPT [unittest arguments]
"""
import json
import os
import re
import signal
import struct
import sys
import time
import unittest

from train_gpt_case import PROGRAM, SMALL, TrainGptCase, mpirun


class TrainGpt(TrainGptCase):
    def outcome(self, *flags, ranks=None):
        """(digest, losses and norms) of five steps with clipping."""
        out = self.folder / "bits"
        text = self.train("-x", 5, "--grad-clip", "0.5", "--digest", "-o", out, *flags, ranks=ranks)
        steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(len(steps), 5)
        return re.search(r"digest ([0-9A-F]{8})", text)[1], [(s["train/loss"], s["grad_norm"]) for s in steps]

    # -- the same bits --------------------------------------------------------------------------------------------------

    def test_ranks_equal_one_process_with_the_same_micro_batches(self):
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                one = self.outcome("--grad-accum", ranks)
                for stage in range(4) if ranks == 2 else (0,):
                    self.assertEqual(self.outcome("-z", stage, ranks=ranks), one, f"stage {stage}")

    def test_uneven_data(self):
        # 17 windows to train on and 7 to validate: 3 ranks x 2 sequences divide neither.
        text = self.text.read_text()
        train, val = self.folder / "train.txt", self.folder / "val.txt"
        train.write_text(text[:17 * 16 + 4])
        val.write_text(text[1000:1000 + 7 * 16 + 1])
        flags = ["-i", train, "-j", val, "--eval-steps", 1000, "-v", 2]

        def losses(*more, ranks=None):
            out = self.folder / "uneven"
            self.train("-x", 10, "-o", out, *flags, *more, ranks=ranks)  # three epochs and a bit
            steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([s["step"] for s in steps], list(range(1, 11)))
            return [s["train/loss"] for s in steps], [s["val/loss"] for s in steps if "val/loss" in s]

        one = losses("--grad-accum", 3)
        self.assertEqual(len(one[1]), 5)
        for stage in range(4):
            with self.subTest(stage=stage):
                three = losses("-z", stage, ranks=3)
                self.assertEqual(three[0], one[0])
                for got, expected in zip(three[1], one[1], strict=True):
                    self.assertAlmostEqual(got, expected, delta=1e-6)
        # Windows that no batch has to be filled up for.
        still = losses("--lr", 0, "-b", 1)[1]
        for got, expected in zip(losses("--lr", 0, ranks=3)[1], still, strict=True):
            self.assertAlmostEqual(got, expected, delta=1e-6)

    def test_accumulation_adds_in_the_promised_order(self):
        one = self.outcome("--grad-accum", 6)
        for stage in (2, 3):
            self.assertEqual(self.outcome("-z", stage, "--grad-accum", 3, ranks=2), one, f"stage {stage}")
        ddp = self.outcome("-z", 0, "--grad-accum", 3, ranks=2)
        self.assertEqual(self.outcome("-z", 1, "--grad-accum", 3, ranks=2), ddp)
        # Another order of sums: the first step's numbers agree as far as rounding lets them.
        for got, expected in zip(ddp[1][0], one[1][0]):
            self.assertAlmostEqual(got, expected, delta=1e-5 * abs(expected))

    def test_bits_do_not_depend_on_threads_prefetch_checkpointing(self):
        plain = self.outcome("-z", 3, "--dropout", "0.2", ranks=2)
        for flags in (["--threads", 3], ["--prefetch", 0], ["--prefetch", 2], ["-r"], ["--reshard-after-forward", "off"]):
            with self.subTest(flags=flags):
                self.assertEqual(self.outcome("-z", 3, "--dropout", "0.2", *flags, ranks=2), plain)

    # -- what it writes -------------------------------------------------------------------------------------------------

    def test_metrics_and_constant_memory(self):
        self.train("-x", 50, "--val-data", self.text, "--eval-steps", 2, "-v", 25, "-z", 2, ranks=2)
        steps = [json.loads(line) for line in (self.folder / "out/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([s["step"] for s in steps], list(range(1, 51)))
        keys = {"train/loss", "lr", "grad_norm", "tokens_per_sec", "step_ms", "tokens_seen", "mem/peak_bytes",
                "mem/parameter_bytes", "mem_by_rank/gradient_bytes", "comm/reduce_scatter_calls", "comm/all_gather_bytes"}
        self.assertLessEqual(keys, steps[0].keys())
        self.assertEqual([s["step"] for s in steps if "val/loss" in s], [25, 50])
        self.assertEqual(len(steps[0]["mem_by_rank/peak_bytes"]), 2)
        self.assertEqual(len({s["mem/peak_bytes"] for s in steps[2:]}), 1, "memory changes from step to step")
        self.assertLess(steps[-1]["train/loss"], steps[0]["train/loss"])

    def test_end_of_run_table_and_sample(self):
        text = self.train("-x", 3, "--sample-tokens", 20, "--prompt", "line ", "-z", 3, ranks=2)
        for words in ("predicted", "measured", "--- sample\nline ", "metrics: out/metrics.jsonl", "all_gather"):
            self.assertIn(words, text)

    def test_profile_accounts_for_the_whole_step(self):
        plain = self.train("-x", 6, "--digest", ranks=2)
        text = self.train("-x", 6, "--digest", "--profile", ranks=2)
        digest = re.compile(r"digest ([0-9A-F]{8})")
        self.assertEqual(digest.search(text)[1], digest.search(plain)[1])
        rows = dict(re.findall(r"(?m)^  (linear|matmul|attention|adamw|everything else|the step .*?) +.*? ([\d.]+)%", text))
        self.assertLessEqual({"linear", "matmul", "attention", "adamw", "everything else"}, rows.keys(), text)
        shares = [float(share) for share in re.findall(r" ([\d.]+)%", text)]
        self.assertAlmostEqual(sum(shares[:-1]), 100, delta=1.5)  # each is rounded
        self.assertEqual(shares[-1], 100)

    def test_planned_memory_is_measured_memory(self):
        unit = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
        flags = ["--n-layer", 3, "--n-head", 4, "--n-embd", 128, "--block-size", 64, "-b", 8, "-x", 3, "--grad-accum", 2]
        for more in (["-z", 0], ["-z", 1], ["-z", 2, "--untied"], ["-z", 3], ["-z", 3, "-r", "--dropout", "0.1"]):
            text = self.train(*flags, *more, ranks=2)
            rows = {name.strip(): (float(p) * unit[pu], float(m) * unit[mu]) for name, p, pu, m, mu in
                    re.findall(r"(?m)^  (\S[^\d\n]*?) +([\d.]+) (\w+) +([\d.]+) (\w+)$", text)}
            with self.subTest(flags=more):
                for name in ("parameters", "gradients", "optimizer state"):
                    self.assertEqual(*rows[name], name)
                predicted, measured = rows["activations"]
                self.assertLess(abs(measured - predicted), 0.08 * predicted, rows)
                # Promise 2: 10 % and 16 MiB of the whole plan.
                predicted, measured = rows["resident, above start"]
                self.assertLess(abs(measured - predicted), 0.1 * predicted + 16 * 2**20, rows)

    def test_help_version_and_config_round_trip(self):
        self.assertIn("--zero-stage", self.run_command([PROGRAM, "--help"]).stdout)
        self.assertRegex(self.run_command([PROGRAM, "--version"]).stdout, r"\d+\.\d+\.\d+")
        config = self.run_command([PROGRAM, "--lr", "0.004", "--print-config"]).stdout
        (self.folder / "run.cfg").write_text(config)
        self.assertEqual(self.run_command([PROGRAM, "--config", "run.cfg", "--print-config"]).stdout, config)

    def test_plan(self):
        result = self.run_command([PROGRAM, "--plan", "--params", "7e9", "--world", "8"])
        self.assertEqual(result.returncode, 0, result.stderr)
        for stage, size in enumerate(("112 GB", "63 GB", "38.5 GB", "14 GB")):
            self.assertRegex(result.stdout, rf"(?m)^{stage} .*\b{re.escape(size)}\b")
        result = self.run_command([PROGRAM, "--plan", "--preset", "gpt2", "--world", "8", "--grad-accum", "16",
                                   "--device-memory", "4GB"])
        self.assertIn("Smallest stage that fits 4 GB", result.stdout)
        self.assertIn("17 Psi", result.stdout)

    # -- errors ---------------------------------------------------------------------------------------------------------

    def expect_error(self, code, words, *flags):
        for ranks in (None, 2):
            result = self.run_command([PROGRAM] if ranks is None else mpirun(ranks), [*SMALL, "-x", 1, *flags])
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            for word in words:
                self.assertIn(str(word), result.stderr)
            self.assertEqual(result.stderr.count("train_gpt: "), 1, "said once, not by every rank:\n" + result.stderr)

    def test_usage_errors(self):
        self.expect_error(2, ["--n-embd", "20", "--n-head", "3"], "-i", self.text, "--n-head", 3)
        self.expect_error(2, ["max-stps", "max-steps"], "-i", self.text, "--max-stps", 7)
        self.expect_error(2, ["lr", "fast"], "-i", self.text, "--lr", "fast")
        (self.folder / "bad.cfg").write_text("batch-sise = 3\n")
        self.expect_error(2, ["batch-sise", "batch-size"], "-i", self.text, "--config", "bad.cfg")

    def test_data_errors(self):
        self.expect_error(3, ["nowhere.txt"], "-i", "nowhere.txt")
        (self.folder / "empty.txt").touch()
        self.expect_error(3, ["empty.txt"], "-i", "empty.txt")
        (self.folder / "short.txt").write_text("short")
        self.expect_error(3, ["short.txt", "block-size"], "-i", "short.txt")
        (self.folder / "header.bin").write_bytes(struct.pack("<256i", 20240520, 9, 100, *[0] * 253) + bytes(200))
        self.expect_error(3, ["header.bin", "9"], "-i", "header.bin")
        tokens = struct.pack("<256i", 20240520, 1, 400, *[0] * 253) + struct.pack("<400H", *range(400))
        (self.folder / "large.bin").write_bytes(tokens)
        self.expect_error(3, ["large.bin", "300"], "-i", "large.bin", "--vocab-size", 300)

    def test_tokens_without_a_header_are_as_wide_as_they_are(self):
        ids = [i * i % 299 for i in range(3000)]
        (self.folder / "narrow.bin").write_bytes(struct.pack("<3000H", *ids))
        (self.folder / "wide.bin").write_bytes(struct.pack("<3000I", *ids))
        (self.folder / "int64.bin").write_bytes(struct.pack("<3000Q", *ids))
        self.expect_error(3, ["wide.bin", "32 bits", "--token-bytes 4"], "-i", "wide.bin")
        self.expect_error(3, ["int64.bin", "64 bits", "uint16"], "-i", "int64.bin")
        self.expect_error(3, ["narrow.bin", "vocabulary of 70000", "uint32"], "-i", "narrow.bin", "--vocab-size", 70000)
        self.expect_error(2, ["--token-bytes 2", "70000"], "-i", "narrow.bin", "--vocab-size", 70000, "--token-bytes", 2)
        self.expect_error(2, ["token-bytes", "3", "auto, 2, 4"], "-i", "narrow.bin", "--token-bytes", 3)
        flags = ["--vocab-size", 300]
        narrow = self.outcome(*flags, "-i", "narrow.bin")
        self.assertEqual(self.outcome(*flags, "-i", "wide.bin", "--token-bytes", 4), narrow)
        self.assertEqual(self.outcome(*flags, "-i", "narrow.bin", "--token-bytes", 2), narrow)
        # The vocabulary says it too; its size changes the model, not the tokens.
        big = ["--vocab-size", 70000, "-x", 1, "--n-layer", 1, "--n-head", 1, "--n-embd", 4]
        losses = []
        for more in ([], ["--token-bytes", 4]):
            self.train(*big, "-i", "wide.bin", *more)
            losses.append(json.loads((self.folder / "out/metrics.jsonl").read_text().splitlines()[0])["train/loss"])
        self.assertEqual(*losses)

    def test_unwritable_folder_is_an_error_before_training(self):
        (self.folder / "file").touch()
        self.expect_error(3, ["file/out"], "-i", self.text, "-o", "file/out")

    def test_divergence_has_its_own_exit_code(self):
        text = self.train("-x", 60, "--lr", "1e30", "--warmup-steps", 0, "--grad-clip", 0, ranks=2, code=4)
        self.assertIn("in a row", text)

    def test_ranks_with_other_flags_are_told_the_difference(self):
        for key, more in (("n-embd", ["--n-embd", "40"]), ("plan", ["--plan"]), ("prints-and-exits", ["--help"])):
            with self.subTest(key=key):
                flags = [*SMALL, "-i", str(self.text)]
                begin = time.monotonic()
                result = self.run_command([*mpirun(1), *flags, ":", "-np", "1", PROGRAM, *flags, *more])
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(f"{key} is ", result.stderr)
                self.assertLess(time.monotonic() - begin, 30)

    # -- signals and deaths ---------------------------------------------------------------------------------------------

    def test_signals_end_the_run_after_a_step(self):
        for command, number in (([PROGRAM], signal.SIGTERM), ([PROGRAM], signal.SIGINT), (mpirun(2), signal.SIGUSR1)):
            with self.subTest(command=command[0], number=number):
                process = self.start(command)
                process.send_signal(number)
                code, output = self.finish(process, 30)
                self.assertEqual(code, 0, output)
                self.assertIn("stopped by signal", output)

    def test_sigterm_ends_a_job(self):
        process = self.start(mpirun(2), "-z", 3)
        ranks = self.ranks_of(process)
        self.assertEqual(sorted(ranks), [0, 1])
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.finish(process, 30)
        while time.monotonic() - begin < 15 and any(map(self.runs, ranks.values())):
            time.sleep(0.1)
        self.assertLess(time.monotonic() - begin, 15, "the job or one of its ranks goes on")

    def test_a_rank_that_dies_ends_the_job(self):
        process = self.start(mpirun(2), "-z", 3)
        victim = self.ranks_of(process).get(1)
        self.assertIsNotNone(victim, "rank 1 was not found")
        begin = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        code, output = self.finish(process, 30)
        self.assertNotEqual(code, 0, output)
        self.assertLess(time.monotonic() - begin, 15)

    # -- cores ----------------------------------------------------------------------------------------------------------

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs two cores")
    def test_idle_cores_are_named(self):
        bound = self.run_command(["mpirun", "-np", "1", "--bind-to", "core", PROGRAM],
                                 [*SMALL, "-i", self.text, "-x", 1])
        self.assertEqual(bound.returncode, 0, bound.stdout + bound.stderr)
        self.assertIn("--bind-to none", bound.stdout)
        self.assertNotIn("warning", self.train("-x", 1, ranks=1))

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs two cores")
    def test_ranks_share_the_cores_they_may_use(self):
        show = "import os; print(os.environ['OMPI_COMM_WORLD_RANK'], *os.sched_getaffinity(0))"
        for ranks in (1, 2):
            for bound in ("core", "none"):
                command = ["mpirun", "--oversubscribe", "--bind-to", bound, "-np", str(ranks)]
                masks = {}
                for line in self.run_command([*command, sys.executable, "-c", show]).stdout.splitlines():
                    rank, *cores = map(int, line.split())
                    masks[rank] = set(cores)
                sharing = sum(bool(masks[0] & mask) for mask in masks.values())
                threads = max(1, len(masks[0]) // sharing)
                with self.subTest(ranks=ranks, bound=bound, threads=threads):
                    result = self.run_command([*command, PROGRAM],
                                              [*SMALL, "-i", self.text, "-x", 1, "--threads", 0])
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    self.assertRegex(result.stdout, rf"cpu: {threads} thread")


if __name__ == "__main__":
    unittest.main()
