"""What the tests of train_gpt share: a folder and a text of their own, runs of a small model, and the processes of a
job. A script that uses it is called with the path of train_gpt, and then unittest's arguments.
"""
import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/release/bin/train_gpt"
SMALL = ["--n-layer", "2", "--n-head", "2", "--n-embd", "20", "--block-size", "16", "-b", "2", "--threads", "1",
         "--eval-steps", "0", "--sample-tokens", "0", "--progress", "plain"]
SECONDS = 120  # nothing here takes longer, unless it hangs


# Open MPI's jobs share a folder in /tmp, which the last one removes while the next is about to use it: jobs of tests that
# run beside each other would fail to start.
OF_MPI = tempfile.mkdtemp(prefix="mpi.")
atexit.register(shutil.rmtree, OF_MPI, ignore_errors=True)


def environment():
    env = dict(os.environ, OMPI_MCA_orte_tmpdir_base=OF_MPI)
    if os.geteuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return env


def mpirun(ranks, *more):
    return ["mpirun", "--oversubscribe", "--bind-to", "none", *more, "-np", str(ranks), PROGRAM]


class TrainGptCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="train_gpt."))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.text = self.folder / "text.txt"
        self.text.write_text("".join(f"line {i}: the quick brown fox, {i * i % 97} times\n" for i in range(400)))

    def run_command(self, command, flags=()):
        return subprocess.run([*command, *map(str, flags)], cwd=self.folder, env=environment(), capture_output=True,
                              text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)

    def train(self, *flags, ranks=None, code=0):
        """Output of a run on the small model; ranks None: without mpirun."""
        command = [PROGRAM] if ranks is None else mpirun(ranks)
        result = self.run_command(command, [*SMALL, "-i", self.text, *flags])
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def start(self, command, *flags):
        process = subprocess.Popen([*command, *SMALL, "-i", str(self.text), "-x", "1000000", *map(str, flags)],
                                   cwd=self.folder, env=environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if line.startswith("step 3/"):
                return process
        self.fail("the run ended before step 3")

    def finish(self, process, seconds):
        output = process.communicate(timeout=seconds)[0]
        return process.returncode, output

    def ranks_of(self, process):
        """Process ids of the job's ranks, by rank."""
        ranks = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                env = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
            except OSError:
                continue
            rank = [int(value.split(b"=")[1]) for value in env if value.startswith(b"OMPI_COMM_WORLD_RANK=")]
            if rank and parent == str(process.pid):
                ranks[rank[0]] = int(pid)
        return ranks

    def runs(self, pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"  # dead, not reaped
        except OSError:
            return False
