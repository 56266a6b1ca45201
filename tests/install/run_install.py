#!/usr/bin/env python3
"""Trencadís as somebody else's library: installs it into a folder that is then moved, and configures, builds and runs
there the project that stands beside this file, as its chapter (README.md) says.

    run_install.py BUILD_FOLDER GENERATOR [unittest arguments]

One compilation: of main.cpp.
"""
import atexit
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, GENERATOR = sys.argv[1:3]
HERE = pathlib.Path(__file__).resolve().parent
OF_MPI = tempfile.mkdtemp(prefix="mpi.")  # as in ../models/train_gpt_case.py
atexit.register(shutil.rmtree, OF_MPI, ignore_errors=True)
ENVIRONMENT = {**os.environ, "OMPI_MCA_orte_tmpdir_base": OF_MPI,
               "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "NO_COLOR": "1"}
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np"]
STEPS = 200


def run(*command, cwd=None):
    return subprocess.run([str(word) for word in command], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory(prefix="trencadis-install-")
        cls.folder = pathlib.Path(cls.temp.name)
        first = cls.folder / "first place"
        cls.prefix = cls.folder / "second place"
        cls.check(run("cmake", "--install", BUILD, "--prefix", first))
        first.rename(cls.prefix)
        cls.check(cls.configure("Release"))
        cls.check(run("cmake", "--build", cls.folder / "Release"))
        cls.program = cls.folder / "Release" / "spirals"

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    @staticmethod
    def check(result):
        if result.returncode != 0:
            raise AssertionError(f"{' '.join(result.args)}\n{result.stdout}{result.stderr}")
        return result.stdout

    @classmethod
    def configure(cls, build_type, *flags, name=None):
        return run("cmake", "-G", GENERATOR, "-S", HERE, "-B", cls.folder / (name or build_type),
                   f"-DCMAKE_PREFIX_PATH={cls.prefix}", f"-DCMAKE_BUILD_TYPE={build_type}", *flags)

    def digest(self, text):
        return re.search(r"^digest ([0-9A-F]{8})$", text, re.MULTILINE).group(1)

    def test_every_stage_on_threads_and_processes_resumed_or_not_has_the_same_bits(self):
        """ga is 1, so promise 1 holds among all stages; where training stopped, another stage goes on, on the other kind
        of ranks."""
        digests = {}
        for stage in range(4):
            out = self.folder / f"whole-{stage}"
            text = self.check(run(self.program, stage, STEPS, out, 2))
            digests[f"stage {stage}, threads"] = self.digest(text)
            losses = [float(x) for x in re.findall(r"loss ([\d.]+)", text)]
            self.assertEqual(len(losses), STEPS // 100)
            self.assertLess(losses[-1], 0.15)  # ln 3 = 1.10 knows nothing; that it learns is the point
            parts = self.folder / f"parts-{stage}"
            first = self.check(run(*MPIRUN, 2, self.program, stage, STEPS // 2, parts))
            self.assertNotEqual(self.digest(first), self.digest(text))
            second = self.check(run(self.program, 3 - stage, STEPS, parts, 2))
            self.assertNotIn(f"step {STEPS // 2} ", second)  # it went on, not from the start
            digests[f"stage {stage} under mpirun, then {3 - stage}"] = self.digest(second)
        text = self.check(run(*MPIRUN, 2, self.program, 3, STEPS, self.folder / "whole-mpi"))
        digests["stage 3, mpirun"] = self.digest(text)
        self.assertEqual(len(set(digests.values())), 1, digests)

    def test_the_commands_of_the_chapter_print_what_it_shows(self):
        """Digests and the last digits of losses are those of the processor that wrote the chapter."""
        place = self.folder / "chapter"
        place.mkdir()
        (place / "build").symlink_to(self.folder / "Release")
        text = (HERE / "README.md").read_text()
        session = next(block for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S) if block.startswith("$ "))
        self.assertEqual(session.count("$ "), 2)
        for part in session.split("$ ")[1:]:
            command, shown = part.split("\n", 1)
            words = command.replace("mpirun -np", " ".join(MPIRUN)).split()
            printed = self.check(run(*words, cwd=place))
            self.assertEqual(*(re.sub(r"(loss \d\.\d\d|digest )\w+", r"\1", lines) for lines in (printed, shown)))

    def test_errors_are_said_once_and_end_every_rank(self):
        file = self.folder / "a file"
        file.write_text("")
        for start in ([self.program, 0, 1, file, 2], [*MPIRUN, 2, self.program, 0, 1, file]):
            result = run(*start)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(f"the folder of the checkpoints '{file}' cannot be written to", result.stderr)
        for start in ([self.program, 7, 1, self.folder / "x", 2], [*MPIRUN, 2, self.program, 7, 1, self.folder / "x"]):
            result = run(*start)
            self.assertNotEqual(result.returncode, 0)
            self.assertRegex(result.stderr, r"(spirals|rank \d): .*stage")

    def test_debug_and_release_do_not_mix_unseen(self):
        result = self.configure("Debug")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("this project is built as 'Debug' (debug), and of Trencadís there is in", plain(result.stderr))
        self.assertIn("RELEASE. The two would not go together", plain(result.stderr))
        mixed = self.configure("Debug", "-DTRENCADIS_MIX_BUILDS=ON")
        self.check(mixed)
        self.assertIn("TRENCADIS_MIX_BUILDS is on: RELEASE is taken", plain(mixed.stderr))

    def test_what_cannot_be_linked_together_is_refused(self):
        for flag, trait in (("-fsanitize=thread", "thread"), ("-D_GLIBCXX_DEBUG", "_GLIBCXX_DEBUG"),
                            ("-D_GLIBCXX_USE_CXX11_ABI=0", "old std::string")):
            result = self.configure("Release", f"-DCMAKE_CXX_FLAGS={flag}", name=trait)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(f"this project is built as 'Release' ({trait})", plain(result.stderr))
        fast = self.configure("Release", "-DCMAKE_CXX_FLAGS=-ffast-math", name="fast")
        self.check(fast)
        self.assertIn("compiled with fast-math", plain(fast.stderr))

    def test_optimised_build_types_and_none_take_the_release_build(self):
        for build_type in ("RelWithDebInfo", ""):
            self.check(self.configure(build_type, name="type" + build_type))
            self.assertIn("lib/trencadis/Release/libzero.a", commands_of(self.folder / ("type" + build_type)))

    def test_users_get_no_flags_of_ours_but_one(self):
        commands = commands_of(self.folder / "Release")
        self.assertIn("-ffp-contract=off", commands)
        self.assertNotRegex(commands, "-march|-Werror|-Wall")

    def test_another_version_is_not_taken(self):
        project = self.folder / "newer"
        project.mkdir()
        (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(newer CXX)\n"
                                                "find_package(Trencadis 0.2 CONFIG REQUIRED)\n")
        result = run("cmake", "-G", GENERATOR, "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn('compatible with requested version "0.2"', plain(result.stderr))

    def test_programs_run_from_the_prefix(self):
        for name in ("trencadis", "train_gpt"):
            text = self.check(run(self.prefix / "bin" / name, "--version"))
            self.assertRegex(text, r"\d+\.\d+\.\d+")
        self.assertIn("MIT", (self.prefix / "share/doc/trencadis/LICENSE").read_text())


def plain(text):
    """CMake's messages without their line breaks."""
    return " ".join(text.split())


def commands_of(folder):
    """What Ninja or Make would run."""
    return "\n".join(path.read_text() for name in ("build.ninja", "link.txt", "flags.make") for path in folder.rglob(name))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
