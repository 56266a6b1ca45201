#!/usr/bin/env python3
"""Two hosts on one machine: the commands of models/trainer/several_machines.md, word for word, over a real network.

    run_two_hosts.py PATH_TO_TRAIN_GPT [unittest arguments]

A host is a network namespace with a host name of its own; a veth pair is the cable between alpha, where this script
runs, and beta. Both also have a docker0 of the same address, as machines with Docker do. Stand-ins for ssh, srun and
scontrol lie first in PATH. All is inside a user namespace, so no privilege is needed and nothing is left behind; where
the system forbids that, the script says why and ends with 77 (skipped).
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

INSIDE = "TRENCADIS_INSIDE_TWO_HOSTS"
NAMESPACES = ["unshare", "--map-root-user", "--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc",
              "--kill-child"]
SKIPPED = 77


def what_is_missing():
    for tool in ("unshare", "nsenter", "ip", "mpirun", "bash"):
        if not shutil.which(tool):
            return f"there is no {tool}"
    script = "ip link add cable0 type veth peer name cable1 && mount -t tmpfs none /mnt && hostname alpha"
    tried = subprocess.run([*NAMESPACES, "sh", "-c", script], capture_output=True, text=True, check=False)
    return f"namespaces are not permitted: {tried.stderr.strip()}" if tried.returncode else None


if __name__ == "__main__" and INSIDE not in os.environ:
    missing = what_is_missing()
    if missing:
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)
    os.environ[INSIDE] = "1"
    os.execvp(NAMESPACES[0], [*NAMESPACES, sys.executable, *sys.argv])

from train_gpt_case import PROGRAM, TrainGptCase, environment, mpirun  # noqa: E402: takes PROGRAM off sys.argv

PAGE = pathlib.Path(__file__).resolve().parents[2] / "models/trainer/several_machines.md"
STEPS = 600
CONFIG = f"""
n-layer = 2
n-head = 2
n-embd = 20
block-size = 16
batch-size = 2
zero-stage = 3
threads = 1
eval-steps = 0
sample-tokens = 0
progress = plain
report = off
metrics = off
digest = on
save-interval = 50
timeout = 30
max-steps = {STEPS}
train-data = text.txt
"""
SSH = """#!/bin/sh
# ssh [-x] HOST COMMAND: like a login, with an environment of its own.
[ "$1" = -x ] && shift
host=$1; shift
cd / && exec env -i PATH=/usr/local/bin:/usr/bin:/bin nsenter -t "$(cat {folder}/$host.pid)" -n -u sh -c "$*"
"""
SRUN = """#!/bin/sh
# srun --mpi=pmix COMMAND: a task on each of the job's two nodes.
[ "$1" = --mpi=pmix ] && shift
exec mpirun --hostfile hosts -np 2 --bind-to none --mca btl_tcp_if_include 10.7.0.0/24 "$@"
"""
SCONTROL = """#!/bin/sh
echo "$@" >> scontrol.calls
"""


def run(command):
    subprocess.run(command.split(), check=True)


def block(first_line):
    """The code block of the page that begins with this line."""
    found = re.findall(rf"^```\w*\n({re.escape(first_line)}.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(found) == 1, f"{PAGE} has {len(found)} blocks that begin with {first_line}"
    return found[0]


def processes_of(namespace):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/ns/net") == namespace:
                yield int(pid)
        except OSError:
            pass


class TwoHosts(TrainGptCase):
    def setUp(self):
        super().setUp()
        self.plug_in()
        self.addCleanup(self.unplug)
        for name, text in (("ssh", SSH.format(folder=self.folder)), ("srun", SRUN), ("scontrol", SCONTROL)):
            path = self.folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        program = self.folder / "build/release/bin/trencadis"
        program.parent.mkdir(parents=True)
        program.symlink_to(PROGRAM)
        (self.folder / "gpt.conf").write_text(CONFIG)
        (self.folder / "hosts").write_text(block("alpha slots="))
        (self.folder / "job.sh").write_text(block("#!/bin/bash"))
        self.env = environment() | {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "4711",
                                    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def plug_in(self):
        """Host beta, and the cable to it."""
        script = "hostname beta && echo up && exec sleep 1000"
        beta = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        self.host = beta
        self.assertEqual(beta.stdout.readline(), "up\n")
        self.beta = os.readlink(f"/proc/{beta.pid}/ns/net")
        (self.folder / "beta.pid").write_text(str(beta.pid))
        there = f"nsenter -t {beta.pid} -n "
        run("hostname alpha")
        run(f"ip link add eth0 type veth peer name eth0 netns {beta.pid}")
        for enter, address in (("", "10.7.0.1/24"), (there, "10.7.0.2/24")):
            run(f"{enter}ip address add {address} dev eth0")
            run(f"{enter}ip link add docker0 type veth peer name container0")
            run(f"{enter}ip address add 172.17.0.1/16 dev docker0")
            for interface in ("lo", "eth0", "docker0", "container0"):
                run(f"{enter}ip link set {interface} up")

    def unplug(self):
        self.kill_beta()
        self.host.wait()
        self.host.stdout.close()
        run("ip link delete docker0")
        subprocess.run(["ip", "link", "delete", "eth0"], capture_output=True, check=False)  # may be gone

    def kill_beta(self):
        for pid in processes_of(self.beta):
            os.kill(pid, signal.SIGKILL)

    def launch(self, script):
        process = subprocess.Popen(["bash", "-c", script] if "\n" in script else ["bash", script], cwd=self.folder,
                                   env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def wait_for(self, process, beginning):
        """Reads on to the first line that begins like this; returns all that was read."""
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith(beginning):
                return "".join(lines)
        self.fail(f"no line begins with '{beginning}':\n{''.join(lines)}")

    def digest(self, text):
        found = re.search(r"^digest ([0-9A-F]{8})$", text, re.M)
        self.assertTrue(found, text)
        return found[1]

    def digest_on_one_host(self):
        result = subprocess.run([*mpirun(2), "--config", "gpt.conf", "--out-dir", "one", "--save-interval", "off"],
                                cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return self.digest(result.stdout)

    # A host that dies says so: its kernel closes the connections. The same command then goes on, to the same bits.
    def test_mpirun_and_a_host_that_dies(self):
        command = block("mpirun --hostfile")
        process = self.launch(command)
        text = self.wait_for(process, "saved ")
        self.assertIn("run: 2 ranks, ZeRO stage 3", text)
        self.assertGreater(len(list(processes_of(self.beta))), 2)  # sleep, orted, rank 1
        self.kill_beta()
        begin = time.monotonic()
        code, text = self.finish(process, 30)
        self.assertNotEqual(code, 0, text)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertNotIn("digest", text)

        self.unplug()
        self.plug_in()  # another host of the same name
        code, text = self.finish(self.launch(command), 60)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"resumed from out/step-\d+: step \d+, 2 ranks")
        self.assertEqual(self.digest(text), self.digest_on_one_host())

    # A pulled cable says nothing. The page's command with a shorter patience: 2 + 2 x 1 s.
    def test_a_host_that_falls_silent(self):
        command = block("mpirun --hostfile")
        for name, value in (("time", 2), ("intvl", 1), ("probes", 2)):
            command, count = re.subn(rf"(oob_tcp_keepalive_{name}) \d+", rf"\1 {value}", command)
            self.assertEqual(count, 1)
        (self.folder / "gpt.conf").write_text(CONFIG.replace(str(STEPS), "100000000"))
        process = self.launch(command)
        self.wait_for(process, "saved ")
        run("ip link set eth0 down")
        begin = time.monotonic()
        code, text = self.finish(process, 25)
        self.assertNotEqual(code, 0, text)
        self.assertIn("lost communication with a remote daemon", text)
        self.assertIn("node beta", text)

    # The time is over once; the job is queued again and ends with the bits of a run that nobody stopped.
    def test_the_job_script(self):
        process = self.launch("job.sh")
        self.wait_for(process, "saved ")
        process.send_signal(signal.SIGUSR1)
        code, text = self.finish(process, 30)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"stopped by signal 10 after step \d+")
        calls = self.folder / "scontrol.calls"
        self.assertEqual(calls.read_text(), "requeue 4711\n")
        calls.unlink()
        code, text = self.finish(self.launch("job.sh"), 60)
        self.assertEqual(code, 0, text)
        self.assertIn("resumed from", text)
        self.assertFalse(calls.exists(), "a run that came to its end was queued again")
        self.assertEqual(self.digest(text), self.digest_on_one_host())
        # An error is not queued again.
        (self.folder / "gpt.conf").write_text(CONFIG + "n-head = 3\n")
        code, text = self.finish(self.launch("job.sh"), 60)
        self.assertEqual(code, 2, text)
        self.assertFalse(calls.exists())


if __name__ == "__main__":
    unittest.main()
