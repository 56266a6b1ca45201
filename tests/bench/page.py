"""The part of a page that a script writes: what lies between two marks, each a line of its own."""


def between(text, begin, end):
    """(what is before, the lines between the marks, what is after)."""
    before, rest = text.split(begin)
    inside, after = rest.split(end, 1)
    return before, inside.strip("\n").split("\n"), after


def renew(text, begin, end, lines):
    """The text with these lines between the marks."""
    before, _, after = between(text, begin, end)
    return before + "\n".join([begin, *lines, end]) + after


def renew_file(path, begin, end, lines):
    with open(path, encoding="utf-8") as file:
        text = renew(file.read(), begin, end, lines)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
