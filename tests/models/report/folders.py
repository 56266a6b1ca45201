"""Run folders that nobody trained: as large, and as broken, as a test wants them. Everything in them is fixed, so that
the page made of them changes only when the page does (markup_stamp)."""
import hashlib
import html.parser
import json
import math
import pathlib

CATEGORIES = ("parameter", "gradient", "optimizer", "activation", "communication", "workspace")
MIB = 1 << 20


def timeline(layers=6, ms=40.0):
    """One rank's step 3 as timeline.json has it: forward, backward, optimizer, with gathers one unit ahead."""
    lanes, names, spans, memory = ["compute", "gather", "reduce"], [], [], []
    live = [2 * MIB, 2 * MIB, 4 * MIB, 0, MIB, 1000]

    def span(lane, name, begin, end):
        if name not in names:
            names.append(name)
        spans.extend([lane, names.index(name), int(begin * 1e6), int(end * 1e6)])

    def change(at, category, by):
        live[category] += int(by)
        memory.extend([int(at * 1e6), *live])

    each = ms / (3 * layers + 1)
    at = 100.0
    begin = at
    for i in range(layers):
        span(1, f"all_gather parameters of h.{i}", max(begin, at - each * 0.9), at - each * 0.1)
        change(at, 0, MIB)
        span(0, f"h.{i} forward", at, at + each)
        change(at + each * 0.5, 3, 2 * MIB)
        at += each
        change(at, 0, -MIB)
    for i in reversed(range(layers)):
        span(0, f"h.{i} backward", at, at + 2 * each)
        change(at, 1, MIB)
        at += 2 * each
        span(2, f"reduce_scatter gradients of h.{i}", at, at + 0.8 * each)
        change(at, 3, -2 * MIB)
        change(at, 1, -MIB)
    span(0, "micro-batch 1", begin, at)
    span(0, "root optimizer", at, at + each)
    span(0, "step 3", begin, at + each)
    return {"lanes": lanes, "names": names, "spans": spans, "memory": memory}


def run_record(world=2, steps=100, **more):
    rows = [("parameters", 3 * MIB), ("gradients", 3 * MIB), ("optimizer state", 4 * MIB), ("activations", 12 * MIB),
            ("communication", -1), ("resident, above start", 23 * MIB), ("all", -1)]
    record = {
        "status": "finished", "version": "Trencadís test", "started": "2026-01-01 00:00:00 UTC", "data": "data: none",
        "model": "6 layers", "metrics": "out/metrics.jsonl", "world": world, "parameters": 1000, "max_steps": steps,
        "steps_done": steps, "seconds": 12.5, "digest": "0123ABCD", "sample": "To be, or not",
        "memory": [{"name": n, "predicted": p, "measured": MIB if p < 0 else p} for n, p in rows],
        "traffic": [{"name": "all_gather", "predicted": 4000, "measured": 4000}],
        "config": {"zero-stage": "3", "lr": "0.001", "out-dir": "out"}}
    record.update(more)
    return record


def write(folder, steps=100, world=2, record=None, cut=False, by_rank=True):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(record or run_record(world, steps)))
    ranks = ",\n".join([json.dumps(timeline())] * world)
    (folder / "timeline.json").write_text('{"step":3,"ranks":[\n' + ranks + "\n]}\n")
    lists = {}
    for name in ("peak", *CATEGORIES):
        lists[f"mem/{name}_bytes"] = 4096
        if by_rank:
            lists[f"mem_by_rank/{name}_bytes"] = [4096 + r for r in range(world)]
    tail = json.dumps(lists)[1:]
    with open(folder / "metrics.jsonl", "w", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            loss = 1.5 + 4 * math.exp(-step / (0.2 * steps)) + 0.1 * math.sin(step * 1.7)
            validation = f'"val/loss": {loss + 0.1:.4f}, ' if step % max(1, steps // 10) == 0 else ""
            file.write(f'{{"step": {step}, "train/loss": {loss:.4f}, {validation}"lr": {1e-3 * (1 - step / (steps + 1)):.6g}, '
                       f'"grad_norm": {1 + 20 / step:.4f}, "tokens_per_sec": 1000, "step_ms": {40 + step % 7}, '
                       f'"tokens_seen": {step * 100}, {tail}\n')
        if cut:
            file.write('{"step": 101, "train/lo')
    return folder


class Skeleton(html.parser.HTMLParser):
    """Which elements, of which class, in which order: what a page looks like, without its numbers."""

    def __init__(self):
        super().__init__()
        self.parts = []

    def handle_starttag(self, tag, attributes):
        self.parts.append((tag, dict(attributes).get("class", "")))


def markup_stamp(page, sources):
    """A short text that changes when the page's elements, style sheet or script do."""
    skeleton = Skeleton()
    skeleton.feed(page)
    digest = hashlib.sha256(json.dumps(skeleton.parts).encode())
    for name in ("report.css", "report.js"):
        digest.update((pathlib.Path(sources) / "models/report" / name).read_bytes())
    return digest.hexdigest()[:16]
