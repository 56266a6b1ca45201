"""What the checks of this folder have in common: which files belong to the project, and how a check is run.

Invariant: a file counts because it lies in the tree, not because git knows it, so that the checks also work in an
unpacked archive and see a file before it is added.
"""

import os
import sys
import tempfile

CODE = (".h", ".cpp", ".cu", ".cuh")
SCRIPTS = (".py", ".sh", ".cmake")
# Folders of the root that hold what was built, fetched or trained, never sources (see .gitignore).
NOT_OURS = ("build", "out", "data", "shared")


def files(root):
    """Paths of all files of the project relative to root, with / between folders, sorted."""
    found = []
    for folder, folders, names in os.walk(root):
        at_root = os.path.samefile(folder, root)
        folders[:] = sorted(
            name for name in folders
            if name != "__pycache__" and (not name.startswith(".") or name == ".ci")
            and not (at_root and (name in NOT_OURS or name.startswith("build"))))
        found += [os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/") for name in sorted(names)]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def main(documentation, check, planted):
    """Runs a check script. check(root) returns complaints, one a line, each naming file and line.

    SCRIPT [ROOT]       checks the tree; exit code 1 if there are complaints
    SCRIPT --self-test  plants each violation in a temporary tree and demands that it is found. `planted` is a list of
                        (files {path: text}, words of the complaint); with words None the tree must pass.
    """
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        sys.exit(self_test(check, planted))
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        print(documentation.strip(), file=sys.stderr)
        sys.exit(2)
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    complaints = check(root)
    for complaint in complaints:
        print(complaint)
    count = len(files(root))
    if not count:
        complaints = ["there is no file to check"]
        print(complaints[0])
    print(f"{os.path.basename(sys.argv[0])}: {count} files, {len(complaints)} complaints")
    sys.exit(1 if complaints else 0)


def self_test(check, planted):
    failures = 0
    for number, (tree, expected) in enumerate(planted):
        with tempfile.TemporaryDirectory() as root:
            for path, text in tree.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            complaints = check(root)
        if expected is None:
            good = not complaints
        else:
            good = len(complaints) == 1 and all(word in complaints[0] for word in expected)
        if not good:
            failures += 1
            print(f"self-test {number} ({', '.join(tree)}): expected {expected or 'no complaint'}, got {complaints}")
    print(f"self-test: {len(planted) - failures} of {len(planted)} as expected")
    return 1 if failures else 0
