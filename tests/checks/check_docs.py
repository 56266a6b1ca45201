#!/usr/bin/env python3
"""Proves that what the chapters show is there: quoted code equals its file, and links lead somewhere.

    check_docs.py [ROOT]        the tree to check; default: this project
    check_docs.py --update      writes the current code into the chapters
    check_docs.py --self-test   plants violations and demands that each is found

In any .md file (the last: in README.md files):
  <!-- include: zero/example_mlp.cpp -->           the fenced block that follows equals the whole file
  <!-- include: zero/stage3.cpp#before_forward --> ... equals the lines between `// [before_forward]` and `// [end]`
                                                   (`# [..]` in scripts), less their common indentation
  [text](path)                                     the file or folder exists; path#section: so does the heading
  MEASURED                                         never stands alone in a line: text that is still to be filled in
Paths in include comments start at the root, those in links at the folder of the .md file, as on any web page.
"""

import os
import re
import sys
import textwrap

from sources import files, main, read

INCLUDE = re.compile(r"^<!--\s*include:\s*([^\s#]+)(?:#([\w-]+))?\s*-->$")
FENCE = re.compile(r"^(`{3,}|~{3,})")
PLACEHOLDER = re.compile(r"\s*[A-Z]{2,}\s*")
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")


def region(text, name):
    """The lines of a region, or None if it is not there exactly once and closed."""
    lines = text.split("\n")
    begins = [i for i, line in enumerate(lines) if re.fullmatch(rf"\s*(//|#) \[{re.escape(name)}\]", line)]
    if len(begins) != 1:
        return None
    for end in range(begins[0] + 1, len(lines)):
        if re.fullmatch(r"\s*(//|#) \[end\]", lines[end]):
            return textwrap.dedent("\n".join(lines[begins[0] + 1:end]))
    return None


def quoted_source(root, path, name):
    """(text, None) or (None, what is wrong)."""
    if not os.path.isfile(os.path.join(root, path)):
        return None, f"included file {path} does not exist"
    text = read(root, path)
    if name:
        text = region(text, name)
        if text is None:
            return None, f"{path} has no single region `// [{name}]` ... `// [end]`"
    return text.strip("\n"), None


def blocks(lines):
    """(first line after the fence, line of the closing fence) of each fenced block."""
    begin, fence = None, ""
    for i, line in enumerate(lines):
        match = FENCE.match(line)
        if begin is None and match:
            begin, fence = i + 1, match.group(1)
        elif begin is not None and line.rstrip() == fence:
            yield begin, i
            begin = None


def anchors(text):
    """What headings are called in links: lower case, without punctuation, - for spaces; -1, -2 for repeated ones."""
    found = set()
    lines = text.split("\n")
    inside = {i for begin, end in blocks(lines) for i in range(begin, end)}
    for i, line in enumerate(lines):
        match = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if match and i not in inside:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1))
            name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            number = 0
            while name + (f"-{number}" if number else "") in found:
                number += 1
            found.add(name + (f"-{number}" if number else ""))
    return found


def check_includes(root, path, lines, update=False):
    """Complaints about quoted code; with update, `lines` is changed instead where it can be."""
    complaints = []
    fenced = list(blocks(lines))
    inside = {i for begin, end in fenced for i in range(begin, end)}
    for i in reversed(range(len(lines))):
        match = INCLUDE.match(lines[i])
        if not match or i in inside:
            continue
        text, wrong = quoted_source(root, *match.groups())
        block = next(((begin, end) for begin, end in fenced if begin > i), None)
        if wrong is None and (block is None or any(line.strip() for line in lines[i + 1:block[0] - 1])):
            wrong = "no fenced block follows the include comment"
        if wrong is None and "\n".join(lines[block[0]:block[1]]).strip("\n") != text:
            if update:
                lines[block[0]:block[1]] = text.split("\n")
            else:
                wrong = f"the quoted code differs from {match.group(1)} (tests/checks/check_docs.py --update)"
        if wrong:
            complaints.append(f"{path}:{i + 1}: {wrong}")
    return complaints[::-1]


def check_links(root, path, lines):
    complaints = []
    inside = {i for begin, end in blocks(lines) for i in range(begin, end)}
    for i, line in enumerate(lines):
        if i in inside:
            continue
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue  # another site: not looked up
            file, _, section = target.partition("#")
            folder = os.path.dirname(path)
            place = os.path.normpath(os.path.join(root, folder, file)) if file else os.path.join(root, path)
            if not os.path.exists(place):
                complaints.append(f"{path}:{i + 1}: the link to {target} leads nowhere")
            elif section and place.endswith(".md"):
                with open(place, encoding="utf-8") as other:
                    if section not in anchors(other.read()):
                        complaints.append(f"{path}:{i + 1}: {file or path} has no heading for #{section}")
    return complaints


def check_placeholders(path, lines):
    return [f"{path}:{i + 1}: {line.strip()} looks like a placeholder that was to be filled in"
            for i, line in enumerate(lines) if os.path.basename(path) == "README.md" and PLACEHOLDER.fullmatch(line)]


def check(root):
    complaints = []
    for path in files(root):
        if path.endswith(".md"):
            lines = read(root, path).split("\n")
            complaints += check_includes(root, path, lines) + check_links(root, path, lines)
            complaints += check_placeholders(path, lines)
    return complaints


def update(root):
    for path in files(root):
        if path.endswith(".md"):
            before = read(root, path)
            lines = before.split("\n")
            for complaint in check_includes(root, path, lines, update=True):
                print(complaint)
            if "\n".join(lines) != before:
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write("\n".join(lines))
                print(f"updated {path}")


def planted():
    code = "// c\nint a;\n  // [part]\n  int b;\n\n    int c;\n  // [end]\n"

    def page(text, **more):
        return {"zero/code.cpp": code, "README.md": "# Top\n", "zero/README.md": text, **more}

    def quote(reference, text, before=""):
        return page(f"# Z\n<!-- include: {reference} -->\n{before}```cpp\n{text}```\nmore\n")

    part = "int b;\n\n  int c;\n"
    return [
        (quote("zero/code.cpp", code), None),
        (quote("zero/code.cpp#part", part, before="\n"), None),
        (page("```\n<!-- include: nowhere.cpp -->\n[a](nowhere.md)\n```\nand `[b](nowhere.md)`\n"), None),
        (page("[a](code.cpp) [b](../README.md#top) [c](#z) [d](https://example.org/x)\n# Z\n"), None),
        (quote("zero/code.cpp", code.replace("int a", "int x")), ["zero/README.md:2", "differs"]),
        (quote("zero/code.cpp#part", part.replace("int c", "int x")), ["zero/README.md:2", "differs"]),
        (quote("zero/code.cpp#other", part), ["zero/README.md:2", "no single region"]),
        (quote("zero/gone.cpp", code), ["zero/README.md:2", "does not exist"]),
        (quote("zero/code.cpp", code, before="words\n"), ["zero/README.md:2", "no fenced block"]),
        (page("a\n[a](gone.cpp)\n"), ["zero/README.md:2", "nowhere"]),
        (page("![a](picture.svg)\n"), ["zero/README.md:1", "nowhere"]),
        (page("[b](../README.md#bottom)\n"), ["zero/README.md:1", "no heading"]),
        (page("[b](#bottom)\n# Z\n"), ["zero/README.md:1", "no heading"]),
        (page("# Z\nMEASURED\n"), ["zero/README.md:2", "placeholder"]),
        (page("```\nQUICKSTART\n```\n"), ["zero/README.md:2", "placeholder"]),
        (page("# ZERO\nTwo WORDS\nA\nM8\n"), None),
    ]


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    else:
        main(__doc__, check, planted())
