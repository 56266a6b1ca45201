#!/usr/bin/env python3
"""The trainer on GPUs, which are simulated, from outside: the CPU's losses in every stage, checkpoints and exports that
move between CPUs and GPUs, exit codes, and ranks that die.

    run_cudasim.py PATH_TO_TRAIN_GPT PATH_TO_TRAIN_GPT_CUDASIM [unittest arguments]
"""
import json
import os
import re
import shutil
import signal
import sys
import time
import unittest

from train_gpt_case import PROGRAM as CPU
from train_gpt_case import SMALL, TrainGptCase, mpirun

GPU = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/release/bin/train_gpt_cudasim"
TINY = ["--n-embd", "8", "--block-size", "6", "-b", "1", "--grad-clip", "0.5", "--report", "off"]


def ranks(count, program, *more):
    return [*mpirun(count, *more)[:-1], program]


class Cudasim(TrainGptCase):
    def run_model(self, program, *flags, world=2, code=0, mpi=()):
        """Output of a run on the tiny model."""
        result = self.run_command(ranks(world, program, *mpi), [*SMALL, *TINY, "-i", self.text, *flags])
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def losses(self, out):
        lines = (self.folder / out / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["train/loss"] for line in lines]

    def assert_close(self, got, expected):
        self.assertEqual(len(got), len(expected))
        for g, e in zip(got, expected):
            self.assertAlmostEqual(g, e, delta=1e-4)

    def digest(self, text):
        return re.search(r"digest ([0-9A-F]{8})", text)[1]

    def weights(self, folder):
        return (self.folder / folder / "model.safetensors").read_bytes()

    # -- numbers ------------------------------------------------------------------------------------------------------

    def test_ten_steps_have_the_losses_of_the_cpu(self):
        self.run_model(CPU, "-x", 10, "-z", 3, "-o", "cpu")
        expected = self.losses("cpu")
        self.assertEqual(len(expected), 10)
        self.assertLess(expected[-1], expected[0])
        digests = set()
        for stage in range(4):
            with self.subTest(stage=stage):
                text = self.run_model(GPU, "-x", 10, "-z", stage, "-o", "gpu", "--digest")
                self.assertIn("cuda: cudasim, one GPU a rank", text)
                self.assert_close(self.losses("gpu"), expected)
                digests.add(self.digest(text))
                shutil.rmtree(self.folder / "gpu")
        self.assertEqual(len(digests), 1, "one micro-batch a step: all stages have the same bits")

    def test_planned_memory_is_measured_memory(self):
        text = self.run_model(GPU, "-x", 3, "-z", 3, "--grad-accum", 2)
        rows = {name.strip(): (planned, measured) for name, planned, measured in
                re.findall(r"(?m)^  (\S[^\d\n]*?) +([\d.]+ \w+) +([\d.]+ \w+)$", text)}
        for name in ("parameters", "gradients", "optimizer state", "reduce_scatter", "all_gather"):
            self.assertEqual(*rows[name], name)
        # Of the process, whose memory is not the GPU's.
        self.assertNotIn("resident, above start", text)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def test_checkpoints_and_exports_move_both_ways(self):
        for first, second, stages, worlds in ((CPU, GPU, (2, 3), (2, 2)), (GPU, CPU, (3, 0), (2, 1))):
            with self.subTest(first=os.path.basename(first)):
                out = "from_" + os.path.basename(first)
                saved = self.run_model(first, "-x", 3, "-z", stages[0], "-o", out, "--digest", "--export", out + "/a",
                                       world=worlds[0])
                loaded = self.run_model(second, "-x", 3, "-z", stages[1], "-o", out, "--digest", "--export", out + "/b",
                                        "--resume", f"{out}/step-00000003", world=worlds[1])
                self.assertIn("nothing to train", loaded)
                self.assertEqual(self.digest(loaded), self.digest(saved))
                self.assertEqual(self.weights(out + "/a"), self.weights(out + "/b"))
                # The optimizer's state has come along: the next steps are those of who goes on at home.
                shutil.copytree(self.folder / out, self.folder / "home")
                more = ["-x", 6, "--lr-schedule", "constant", "-z", stages[1], "--resume"]
                self.run_model(second, *more, f"{out}/step-00000003", "-o", out, world=worlds[1])
                self.run_model(first, *more, "home/step-00000003", "-o", "home", world=worlds[1])
                self.assert_close(self.losses(out)[3:], self.losses("home")[3:])
                shutil.rmtree(self.folder / "home")

    # -- errors -------------------------------------------------------------------------------------------------------

    def test_exit_codes(self):
        self.assertIn("max-steps", self.run_model(GPU, "--max-stps", 7, code=2))
        self.assertIn("nowhere.txt", self.run_model(GPU, "-i", "nowhere.txt", code=3))
        text = self.run_model(GPU, "-x", 60, "--lr", "1e30", "--warmup-steps", 0, "--grad-clip", 0, code=4)
        self.assertIn("in a row", text)

    def test_more_ranks_than_gpus(self):
        text = self.run_model(GPU, "-x", 1, code=2, mpi=["-x", "TRENCADIS_SIM_DEVICES=1"])
        self.assertIn("this host has 1 GPU, and rank 1 is its rank number 2", text)
        self.assertIn("start no more ranks a host than it has GPUs", text)
        self.assertEqual(text.count("train_gpt_cudasim: "), 1, text)

    @unittest.skipIf(os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg"), "there is a GPU")
    def test_without_a_gpu_device_cuda_is_refused_with_the_reason(self):
        for world in (1, 2):
            text = self.run_model(CPU, "-x", 1, "--device", "cuda", world=world, code=2)
            self.assertRegex(text, "--device cuda: (this build has no CUDA|there is no GPU|.*cannot be loaded)")
            self.assertIn("use --device cpu", text)

    def test_a_rank_that_dies_ends_the_job(self):
        process = self.start(ranks(2, GPU), *TINY, "-z", 3)
        victim = self.ranks_of(process).get(1)
        self.assertIsNotNone(victim, "rank 1 was not found")
        begin = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        code, output = self.finish(process, 30)
        self.assertNotEqual(code, 0, output)
        self.assertLess(time.monotonic() - begin, 15)

    def test_a_signal_ends_the_run_after_a_step(self):
        process = self.start(ranks(2, GPU), *TINY, "-z", 2)
        process.send_signal(signal.SIGUSR1)
        code, output = self.finish(process, 30)
        self.assertEqual(code, 0, output)
        self.assertIn("stopped by signal", output)


if __name__ == "__main__":
    unittest.main()
