#!/usr/bin/env python3
"""Reads a tensor out of a checkpoint, in a page of Python without any library: all that the format asks for.

    read_checkpoint.py out/step-00000100                     lists the tensors
    read_checkpoint.py out/step-00000100 wte.weight          the first elements of its values
    read_checkpoint.py out/step-00000100 wte.weight exp_avg  of Adam's first moment
"""
import array
import json
import pathlib
import struct
import sys


def read_shard(path, name):
    """The f32 elements of one tensor of a safetensors file."""
    with open(path, "rb") as file:
        header_bytes = struct.unpack("<Q", file.read(8))[0]
        begin, end = json.loads(file.read(header_bytes))[name]["data_offsets"]
        file.seek(8 + header_bytes + begin)
        return array.array("f", file.read(end - begin))


def read_tensor(folder, name, kind="values"):
    """(shape, elements) of a whole parameter, or of an optimizer state of it, put together from its slices."""
    index = json.loads((folder / "index.json").read_text())
    tensor = next(tensor for tensor in index["tensors"] if tensor["name"] == name)
    elements = array.array("f")
    for file, first, count in tensor["slices"]:
        assert first == len(elements)  # slices ascend and cover the tensor
        elements += read_shard(folder / index["files"][file]["name"], f"{kind}/{name}")[:count]
    return tensor["shape"], elements


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    if len(sys.argv) == 2:
        for tensor in json.loads((folder / "index.json").read_text())["tensors"]:
            print(tensor["name"], tensor["shape"], "in", len(tensor["slices"]), "slices")
    else:
        shape, elements = read_tensor(folder, *sys.argv[2:])
        print(shape, *(f"{x:.6g}" for x in elements[:8]))
