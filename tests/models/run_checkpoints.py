#!/usr/bin/env python3
"""Checkpoints from outside: runs that stop and go on have the bits of one that did not, on any ranks and in any stage;
ranks killed while they save, disks that fill, folders that go: nothing is lost, and the error says what to do.

    run_checkpoints.py PATH_TO_TRAIN_GPT [unittest arguments]
"""
import array
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest

from train_gpt_case import PROGRAM, SMALL, TrainGptCase, environment, mpirun

BITS = ["--grad-clip", "0.5", "--dropout", "0.1", "-u", "8", "--digest"]


def digest_of(text):
    return re.search(r"digest ([0-9A-F]{8})", text)[1]


def tensors(folder):
    """name -> (type, shape, bytes) of a folder's model.safetensors."""
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[8 + size:][slice(*entry["data_offsets"])])
            for name, entry in header.items()}


class Checkpoints(TrainGptCase):
    def metrics(self, out):
        return [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]

    def checkpoints(self, out="out"):
        return sorted(path.name for path in (self.folder / out).glob("step-*"))

    def shard(self, out, step, rank=0, world=1):
        return self.folder / out / f"step-{step:08}" / f"rank-{rank:04}-of-{world:04}.safetensors"

    # -- the same bits ------------------------------------------------------------------------------------------------

    def test_five_and_five_steps_are_ten(self):
        # Inside the warm-up, with dropout, clipping and accumulation.
        for stage in range(4):
            with self.subTest(stage=stage):
                flags = [*BITS, "-z", stage, "--grad-accum", 2]
                whole = self.train("-x", 10, "-o", f"whole{stage}", *flags, ranks=2)
                self.train("-x", 10, "-n", 5, "--keep-last", 0, "-o", f"cut{stage}", *flags, ranks=2)
                shutil.rmtree(self.folder / f"cut{stage}/step-00000010")  # as if it had died on the way
                text = self.train("-x", 10, "-y", 1, "-o", f"cut{stage}", *flags, ranks=2)
                self.assertIn("step-00000005: step 5, 2 ranks", text)
                self.assertNotIn("settings that are not", text)
                self.assertEqual(digest_of(text), digest_of(whole))
                keys = ("step", "train/loss", "grad_norm", "lr", "tokens_seen")
                self.assertEqual([[s[k] for k in keys] for s in self.metrics(f"cut{stage}")],
                                 [[s[k] for k in keys] for s in self.metrics(f"whole{stage}")])

    def test_any_ranks_and_stage_go_on(self):
        # A chain of runs of 12 micro-batches a step, each on other ranks; stages 2, 3 and one process add in one order.
        whole = self.train("-x", 12, "-o", "whole", *BITS, "--grad-accum", 12)
        chain = [(4, 3), (3, 2), (12, 3), (1, 0), (2, 2), (2, 3)]
        for i, (world, stage) in enumerate(chain):
            steps = 2 * (i + 1)
            accum = ["--grad-accum", 3] if i == 0 else []  # the others are told nothing: the batch is kept
            text = self.train("-x", 12, "-n", steps, "--keep-last", 0, *BITS, "-z", stage, "--resume", "auto", *accum, ranks=world)
            if i + 1 < len(chain):  # the checkpoint of the end goes, and the next run begins at this one
                for name in self.checkpoints():
                    if name != f"step-{steps:08}":
                        shutil.rmtree(self.folder / "out" / name)
            self.assertIn(f"{12 // world} micro-batch", text)
            self.assertEqual(digest_of(text), digest_of(whole), f"{world} ranks, stage {stage}")

    def test_stages_0_and_1_go_on_at_their_own_world_size(self):
        for first, second in ((0, 1), (1, 0)):
            flags = ["-x", 8, *BITS, "--grad-accum", 2]
            whole = self.train("-o", "whole", *flags, "-z", first, ranks=2)
            self.train("-n", 3, "--keep-last", 0, *flags, "-z", first, ranks=2)
            text = self.train(*flags, "-z", second, "--resume", "out/step-00000003", ranks=2)
            self.assertEqual(digest_of(text), digest_of(whole))

    def test_a_longer_run_can_go_on_from_a_finished_one(self):
        self.train("-x", 4)
        text = self.train("-x", 4, "--resume", "auto")
        self.assertIn("nothing to train", text)
        text = self.train("-x", 6, "--resume", "out/step-00000004")
        self.assertIn("max-steps 4 -> 6", text)
        self.assertEqual([s["step"] for s in self.metrics("out")], list(range(1, 7)))

    # -- which checkpoint ---------------------------------------------------------------------------------------------

    def test_auto_starts_where_nothing_is_and_says_so(self):
        text = self.train("-x", 2, "--resume", "auto", ranks=2)
        self.assertIn("no checkpoint in out yet: starting at step 0", text)
        self.assertEqual((self.folder / "out/latest").read_text(), "step-00000002\n")

    def test_auto_takes_the_newest_that_is_whole_and_names_the_rest(self):
        self.train("-x", 8, "-n", 2, "--keep-last", 0, "-z", 3, ranks=2)
        with open(self.shard("out", 8, 1, 2), "r+b") as shard:
            shard.truncate(os.path.getsize(shard.name) - 1)
        (self.folder / "out/step-00000006/index.json").write_text("{}")
        (self.folder / "out/step-00000010.partial").mkdir()
        text = self.train("-x", 8, "--resume", "auto", "-z", 2, ranks=2)
        for words in ("step-00000008/rank-0001-of-0002.safetensors: is cut short", "step-00000006/index.json: is no index",
                      "step-00000010.partial: never finished", "resumed from out/step-00000004: step 4"):
            self.assertIn(words, text)
        self.assertEqual(self.checkpoints()[-1], "step-00000008")
        self.assertIn("nothing to train", self.train("-x", 8, "--resume", "auto"))

    def test_what_cannot_be_resumed(self):
        self.train("-x", 4, "-n", 2, "--keep-last", 0, "-z", 3, ranks=2)
        self.train("-x", 2, "-o", "other", "-z", 3, ranks=2)

        def error(words, *flags, code=3, at="out/step-00000004"):
            for ranks in (None, 2):
                text = self.train("-x", 6, "--resume", at, *flags, ranks=ranks, code=code)
                for word in words:
                    self.assertIn(word, text)
                self.assertEqual(text.count("train_gpt: "), 1, text)

        error(["nowhere", "no such folder"], at="nowhere")
        error(["no complete checkpoint"], at=".")
        # Another model: every difference at once.
        error(["wte.weight is (256, 20) in the checkpoint and (256, 24) in the model", "wpe.weight is (16, 20)",
               "h.2.ln_1.weight (24) is in the model only"], "--n-layer", 3, "--n-embd", 24)
        # The batch cannot be kept: 4 sequences a step, by ranks of 3.
        text = self.train("-x", 6, "--resume", "out/step-00000004", "-b", 3, ranks=2, code=2)
        self.assertIn("--batch-size 3 on 2 ranks makes micro-batches of 6 sequences", text)
        text = self.train("-x", 6, "--resume", "out/step-00000004", "-b", 3, "-d", 96, "-o", "wider", ranks=2)
        self.assertIn("a step has 6 sequences from here on; it had 4", text)

        shard, other = self.shard("out", 4, 1, 2), self.shard("other", 2, 1, 2)
        good = shard.read_bytes()
        shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        error(["rank-0001-of-0002.safetensors: is damaged"])
        shutil.copy(other, shard)
        error(["belongs to another save"])
        shard.unlink()
        error(["rank-0001-of-0002.safetensors: cannot be opened"])
        shard.write_bytes(good)
        self.train("-x", 6, "--resume", "out/step-00000004")

    def test_how_many_are_kept(self):
        self.train("-x", 10, "-n", 2)
        self.assertEqual(self.checkpoints(), ["step-00000008", "step-00000010"])
        # A new training in the same folder removes nothing of the first, and writes over nothing.
        text = self.train("-x", 8, "-n", 4, "--seed", 2)
        kept = self.checkpoints()
        self.assertEqual(len(kept), 4, kept)
        self.assertIn("step-00000010", kept)
        self.assertTrue(any(name.startswith("step-00000008.of-run-") for name in kept))
        self.assertIn("was a checkpoint of another training", text)
        # Nor does auto take the first one's step 10 for the newest.
        text = self.train("-x", 9, "--resume", "auto", "--seed", 2)
        self.assertIn("resumed from out/step-00000008", text)
        self.assertIn("also holds checkpoints of another training, the newest of them out/step-00000010", text)
        self.train("-x", 2, "-n", "off", "-o", "none")
        self.assertEqual(self.checkpoints("none"), [])
        self.train("-x", 5, "-n", 0, "-o", "end")
        self.assertEqual(self.checkpoints("end"), ["step-00000005"])

    def test_one_run_at_a_time(self):
        process = self.start([PROGRAM])
        text = self.train("-x", 2, code=3)
        self.assertIn("--out-dir 'out' is in use", text)
        self.train("-x", 2, "-o", "other")
        process.send_signal(signal.SIGUSR1)
        code, output = self.finish(process, 30)
        self.assertEqual(code, 0, output)
        self.assertGreater(len(self.metrics("out")), 2)  # the second run has not begun them anew
        self.assertEqual(len(self.checkpoints()), 1)

    def test_saving_by_time(self):
        process = self.start(mpirun(2), "-n", "0.005min", "--keep-last", 0, "-z", 2)
        time.sleep(2)
        process.send_signal(signal.SIGUSR1)
        code, output = self.finish(process, 30)
        self.assertEqual(code, 0, output)
        self.assertGreaterEqual(len(self.checkpoints()), 3, output)
        self.assertIn("nothing to train", self.train("-x", 1, "--resume", "auto"))

    # -- signals ------------------------------------------------------------------------------------------------------

    def test_signals_save(self):
        for command, number in (([PROGRAM], signal.SIGTERM), ([PROGRAM], signal.SIGINT), (mpirun(2), signal.SIGUSR1)):
            with self.subTest(command=command[0], number=number):
                shutil.rmtree(self.folder / "out", ignore_errors=True)
                constant = ["--lr-schedule", "constant", "-u", 0]
                process = self.start(command, "-z", 2, "--digest", *constant)
                process.send_signal(number)
                code, output = self.finish(process, 30)
                self.assertEqual(code, 0, output)
                steps = int(re.search(r"stopped by signal \d+ after step (\d+)", output)[1])
                self.assertEqual(self.checkpoints(), [f"step-{steps:08}"])
                # As far as an unbroken run of so many steps has come.
                whole = self.train("-x", steps, "-o", "whole", "--digest", "-z", 2, *constant,
                                   ranks=2 if command[0] == "mpirun" else None)
                self.assertEqual(digest_of(output), digest_of(whole))

    def test_a_second_signal_ends_at_once(self):
        process = self.start([PROGRAM])
        os.kill(process.pid, signal.SIGSTOP)  # both signals before a step can end
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        os.kill(process.pid, signal.SIGCONT)
        code, output = self.finish(process, 10)
        self.assertIn(code, (130, 143), output)

    # -- weights from elsewhere ---------------------------------------------------------------------------------------

    def test_hugging_face_in_and_out(self):
        golden = pathlib.Path(__file__).parent.parent / "golden/hugging_face/single"
        data = self.folder / "tokens.bin"
        data.write_bytes(struct.pack("<2000H", *(i * i % 37 for i in range(2000))))
        flags = ["-i", str(data), "--init-from", str(golden), "-b", "2", "--eval-steps", "0", "--sample-tokens", "0",
                 "--threads", "1", "--lr", "0", "--progress", "plain", "-z", "3"]
        result = self.run_command(mpirun(2), [*flags, "-x", 1, "--export", "exported"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        # A step at learning rate 0 changes nothing: what went in comes out, to the bit.
        self.assertEqual(tensors(self.folder / "exported"), tensors(golden))
        config = json.loads((self.folder / "exported/config.json").read_text())
        self.assertEqual((config["n_layer"], config["vocab_size"]), (2, 37))
        # Once there is a checkpoint of its own, a run goes on from that; the weights are only where it started.
        result = self.run_command(mpirun(2), [*flags, "-x", 2, "--lr", "1e-3", "--resume", "auto"])
        self.assertIn("resumed from out/step-00000001", result.stdout)
        # The weights of a checkpoint alone: another training, in which Adam begins.
        result = self.run_command(mpirun(2), [*flags, "-x", 1, "-o", "new", "--init-from", "out/step-00000001",
                                              "--export", "again"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(tensors(self.folder / "again"), tensors(golden))
        index = json.loads((self.folder / "new/step-00000001/index.json").read_text())
        self.assertEqual((index["step"], index["optimizer_steps"]), (1, 1))

    def test_the_format_is_a_page_of_python(self):
        self.train("-x", 2, "-z", 3, "--export", "exported", ranks=3)
        spec = importlib.util.spec_from_file_location(
            "read_checkpoint", pathlib.Path(__file__).parents[2] / "zero/checkpoint/read_checkpoint.py")
        reader = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(reader)
        for name, (_, shape, data) in tensors(self.folder / "exported").items():
            got_shape, got = reader.read_tensor(self.folder / "out/step-00000002", name.removeprefix("transformer."))
            if any(part in name for part in ("c_attn.weight", "c_proj.weight", "c_fc.weight")):  # (in, out) there
                rows, columns = got_shape
                got = array.array("f", (got[c * columns + r] for r in range(columns) for c in range(rows)))
                got_shape = got_shape[::-1]
            self.assertEqual((got_shape, got.tobytes()), (shape, data), name)
        moments = reader.read_tensor(self.folder / "out/step-00000002", "h.1.mlp.c_fc.weight", "exp_avg_sq")[1]
        self.assertEqual(len(moments), 80 * 20)
        self.assertGreater(min(moments), 0)

    def test_weights_that_do_not_fit(self):
        self.assertIn("no such folder", self.train("-x", 1, "--init-from", "nowhere", code=3))
        golden = pathlib.Path(__file__).parent.parent / "golden/hugging_face/single"
        (self.folder / "tokens.bin").write_bytes(struct.pack("<2000H", *(i * i % 37 for i in range(2000))))
        result = self.run_command(mpirun(2), ["-i", "tokens.bin", "-x", 1, "--init-from", golden, "--n-layer", 3])
        text = result.stdout + result.stderr
        self.assertEqual(result.returncode, 3, text)
        self.assertIn("h.2.", text)
        (self.folder / "full").mkdir()
        (self.folder / "full/thesis.tex").touch()
        text = self.train("-x", 1, "--export", "full", ranks=2, code=3)
        self.assertIn("full", text)
        self.assertNotIn("step 1/", text)  # said before training, not after it

    def test_values_that_are_not_finite(self):
        # Weights that are given: one NaN in one bias, which one of three ranks reads.
        golden = pathlib.Path(__file__).parent.parent / "golden/hugging_face/single"
        given = self.folder / "given"
        shutil.copytree(golden, given)
        path, name = given / "model.safetensors", "transformer.h.1.mlp.c_fc.bias"
        data = bytearray(path.read_bytes())
        size = struct.unpack("<Q", data[:8])[0]
        at = 8 + size + json.loads(data[8:8 + size])[name]["data_offsets"][0] + 4 * 7
        data[at:at + 4] = struct.pack("<f", float("nan"))
        path.chmod(0o600)
        path.write_bytes(data)
        (self.folder / "tokens.bin").write_bytes(struct.pack("<2000H", *(i * i % 37 for i in range(2000))))
        for command in [PROGRAM], mpirun(3):
            result = self.run_command(command, ["-i", "tokens.bin", "-x", 1, "-z", 3, "--init-from", "given"])
            text = result.stdout + result.stderr
            self.assertEqual(result.returncode, 3, text)
            self.assertIn(f"given/model.safetensors: {name}[7] is nan", text)
            self.assertNotIn("step 1/", text)

        # A run that has such values when it saves goes on with them, and starts no other one. At this rate the first
        # update overflows wherever the decay has the update's sign.
        flags = ["-z", 3, "--lr", 3.4e38, "--warmup-steps", 0, "--lr-schedule", "constant", "--keep-last", 0, "-n", 1]
        text = self.train(*flags, "-x", 2, ranks=2)
        said = re.search(r"saved out/step-00000001.*; (\d+) elements are NaN or infinite", text)
        self.assertTrue(said, text)
        index = json.loads((self.folder / "out/step-00000001/index.json").read_text())
        self.assertEqual(sum(file.get("not_finite", 0) for file in index["files"]), int(said[1]))
        resumed = self.train(*flags, "-x", 3, "--resume", "out/step-00000001", "-o", "on")
        self.assertIn(f"; {said[1]} elements are NaN or infinite", resumed)
        self.assertIn("step 3/", resumed)
        text = self.train("-x", 1, "-o", "new", "--init-from", "out/step-00000001", ranks=2, code=3)
        self.assertRegex(text, r"out/step-00000001/rank-000\d-of-0002.safetensors: values/\S+\[[\d,]+\] is -?inf, as it was")
        # What was saved can be looked at elsewhere, and is no start from there either.
        trencadis = pathlib.Path(PROGRAM).with_name("trencadis")
        result = self.run_command([trencadis, "export", "out/step-00000001", "--to", "exported"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn(f"; {said[1]} elements are NaN or infinite", result.stdout)
        self.assertIn("exported/model.safetensors: transformer.",
                      self.train("-x", 1, "-o", "new", "--init-from", "exported", code=3))

    # -- failures -----------------------------------------------------------------------------------------------------

    def test_killed_at_any_moment_and_resumed(self):
        """SIGKILL of some rank at 30 moments around saves: what was saved last is found, and in the end the bits are
        those of the run that nobody killed."""
        steps, draw = 1200, random.Random(5)
        flags = ["-x", steps, "-n", 5, "-z", 3, "--digest", "--report", "off", "--metrics", "off"]
        whole = digest_of(self.train(*flags, "-o", "whole", ranks=2))
        kills, last_saved = 0, 0
        for attempt in range(100):
            command = [*mpirun(2), *SMALL, "-i", str(self.text), *map(str, flags), "--resume", "auto"]
            process = subprocess.Popen(command, cwd=self.folder, env=environment(), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            output, kill_at = [], None
            for line in process.stdout:
                output.append(line)
                if line.startswith("resumed from"):
                    self.assertGreaterEqual(int(re.search(r": step (\d+)", line)[1]), last_saved, line)
                if line.startswith("saved "):
                    last_saved = int(re.search(r"step-(\d+)", line)[1])
                    if kills < 30 and kill_at is None:
                        kill_at = time.monotonic() + draw.uniform(0, 0.06)
                if kill_at is not None and time.monotonic() >= kill_at - 0.03:
                    time.sleep(max(0, kill_at - time.monotonic()))
                    victim = self.ranks_of(process).get(draw.randrange(2))
                    if victim:
                        os.kill(victim, signal.SIGKILL)
                        kills += 1
                    kill_at = float("inf")
            code = process.wait(timeout=30)
            process.stdout.close()
            if code == 0:
                break
            self.assertIn(code, (137, 9, 1, 143), "".join(output))
        self.assertEqual(kills, 30)
        self.assertEqual(digest_of("".join(output)), whole)
        self.assertEqual(list((self.folder / "out").glob("*.partial")), [])

    def test_stuck_collective_ends_the_job(self):
        process = self.start(mpirun(2), "-z", 3, "--timeout", 2)
        os.kill(self.ranks_of(process)[1], signal.SIGSTOP)
        begin = time.monotonic()
        while process.poll() is None and time.monotonic() - begin < 20:
            if time.monotonic() - begin > 4:  # mpirun waits for the one that sleeps, too
                for pid in self.ranks_of(process).values():
                    os.kill(pid, signal.SIGCONT)
            time.sleep(0.1)
        code, output = self.finish(process, 20)
        self.assertNotEqual(code, 0)
        self.assertRegex(output, r"(reduce_scatter|all_gather|all_reduce)")
        self.assertIn("2 s", output)

    def in_small_tmpfs(self, command, kilobytes, *flags):
        """Runs with out/ on a file system of its own, of that size; None where this machine does not allow it."""
        (self.folder / "out").mkdir(exist_ok=True)
        probe = subprocess.run(["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True)
        if probe.returncode != 0:
            return None
        inner = [*command, *SMALL, "-i", str(self.text), *map(str, flags)]
        script = f'mount -t tmpfs -o size={kilobytes}k none out && "$@"; code=$?; ls out; cat out/latest; exit $code'
        return subprocess.run(["unshare", "-rm", "sh", "-c", script, "sh", *inner], cwd=self.folder, env=environment(),
                              capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)

    def test_disk_full(self):
        # A checkpoint has 0.2 MB; the third does not fit beside the two that are kept.
        result = self.in_small_tmpfs(mpirun(2), 700, "-x", 40, "-n", 5, "--keep-last", 0, "-z", 3, "--report", "off",
                                     "--n-embd", 20)
        if result is None:
            self.skipTest("no user namespaces here")
        text = result.stdout + result.stderr
        self.assertEqual(result.returncode, 3, text)
        self.assertIn("No space left on device", text)
        saved = re.findall(r"saved out/(step-\d+)", text)
        self.assertTrue(saved, text)
        self.assertTrue(text.count(saved[-1] + "\n") >= 1, text)  # latest still names the last one that was saved
        self.assertNotIn(".partial", result.stdout.split("saved")[-1])

    def test_hosts_that_do_not_share_the_folder(self):
        # Rank 1 has an out/ of its own, as on another host.
        if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
            self.skipTest("no user namespaces here")
        script = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec unshare -rm sh -c \'mount -t tmpfs none out && exec "$@"\' sh "$@"; ' \
                 'else exec "$@"; fi'
        (self.folder / "out").mkdir()
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", "sh", "-c", script, "sh", PROGRAM]
        result = self.run_command(command, [*SMALL, "-i", self.text, "-x", 10, "-n", 5, "-z", 3, "--report", "off"])
        text = result.stdout + result.stderr
        self.assertEqual(result.returncode, 3, text)
        self.assertIn("on rank 1: ", text)
        self.assertIn("rank-0001-of-0002.safetensors", text)
        self.assertEqual(self.checkpoints(), [])

    def test_read_only_folder_is_an_error_before_training(self):
        (self.folder / "out").mkdir()
        if os.geteuid() == 0:  # whom no permission stops
            probe = subprocess.run(["unshare", "-rm", "true"], capture_output=True)
            if probe.returncode != 0:
                self.skipTest("no user namespaces here")
            script = 'mount --bind out out && mount -o remount,ro,bind out && exec "$@"'
            command = ["unshare", "-rm", "sh", "-c", script, "sh", PROGRAM]
        else:
            os.chmod(self.folder / "out", 0o500)
            command = [PROGRAM]
        result = self.run_command(command, [*SMALL, "-i", self.text, "-x", 2, "--metrics", "off", "--report", "off"])
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertIn("--out-dir 'out' cannot be written to", result.stderr)
        self.assertNotIn("step 1/", result.stdout)

    def test_folder_that_goes_while_a_run_uses_it(self):
        process = self.start(mpirun(2), "-n", 20000, "--report", "off", "--metrics", "off")
        time.sleep(1)  # timeline.json is written after step 4
        shutil.rmtree(self.folder / "out")
        process.send_signal(signal.SIGUSR1)
        code, output = self.finish(process, 60)
        self.assertEqual(code, 3, output)
        self.assertIn("the folder has gone", output)


if __name__ == "__main__":
    unittest.main()
