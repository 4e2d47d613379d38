"""Reads a checkpoint without trainctl: every logical tensor, whole, however it was cut.

docs/reference/checkpoint-format.md describes the files. Checksums are not verified; `trainctl checkpoint verify` does that.
"""
import dataclasses
import itertools
import json
import math
import os
import struct

# Pieces are ranges of the flattened tensor, or boxes.
RANGES, BOXES = "trainctl.checkpoint.v1", "trainctl.checkpoint.v2"
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2,
          "U8": 1, "BOOL": 1}


class UnknownFormat(Exception):
    """A manifest that this program does not know how to read."""


class Damaged(Exception):
    """Files that contradict one another."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """The box [start, start + length) of a tensor seen as an array of shape `view`, row-major in a file's data.

    A range of the flattened tensor is a box of the view that has one dimension.
    """
    view: tuple
    start: tuple
    length: tuple
    file: int
    offset_bytes: int

    def rows(self):
        """(first element in the tensor, first element in the piece, elements) of each contiguous row."""
        strides = [math.prod(self.view[d + 1:]) for d in range(len(self.view))]
        *outer, row = self.length
        for number, index in enumerate(itertools.product(*map(range, outer))):
            first = sum((s + i) * stride for s, i, stride in zip(self.start, (*index, 0), strides))
            yield first, number * row, row


@dataclasses.dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple
    data: bytes


def assemble(name, dtype, shape, pieces, files):
    """The whole tensor; `files[i]` are the bytes of file i's data."""
    if dtype not in WIDTHS:
        raise UnknownFormat(f"{name} has the dtype {dtype}")
    width, numel = WIDTHS[dtype], math.prod(shape)
    data, covered = bytearray(width * numel), bytearray(numel)
    for piece in pieces:
        for first, at, count in piece.rows():
            begin = piece.offset_bytes + at * width
            source = files[piece.file][begin:begin + count * width]
            if first + count > numel or len(source) != count * width or 1 in covered[first:first + count]:
                raise Damaged(f"{name}: elements from {first} on are out of range, missing or there twice")
            data[first * width:(first + count) * width] = source
            covered[first:first + count] = b"\1" * count
    if 0 in covered:
        raise Damaged(f"{name}: element {covered.index(0)} is in no file")
    return Tensor(dtype, tuple(shape), bytes(data))


def read_data(path, expected_offset):
    """The data of a safetensors file, without its header."""
    with open(path, "rb") as file:
        data = file.read()
    (header_bytes,) = struct.unpack_from("<Q", data)
    if 8 + header_bytes != expected_offset:
        raise Damaged(f"{path}: data begin at {8 + header_bytes}, by the manifest at {expected_offset}")
    return memoryview(data)[8 + header_bytes:]


def read_manifest(folder):
    path = os.path.join(folder, "manifest.json")
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    if manifest.get("format") not in (RANGES, BOXES):
        raise UnknownFormat(f"{path} has the format {manifest.get('format')}; read_checkpoint.py knows {RANGES} and "
                            f"{BOXES} alone: teach it the new one")
    return manifest


def range_piece(shape, file, begin, count, offset_bytes):
    return Piece((math.prod(shape),), (begin,), (count,), file, offset_bytes)


def box_piece(shape, file, offset_bytes, box):
    # A scalar is seen as a list of one.
    box = box or [[0, 1]]
    return Piece(tuple(shape) or (1,), tuple(b for b, _ in box), tuple(e - b for b, e in box), file, offset_bytes)


def pieces_of(manifest, entry):
    make_piece = range_piece if manifest["format"] == RANGES else box_piece
    return [make_piece(entry["shape"], *piece) for piece in entry["pieces"]]


def read_checkpoint(folder):
    """(manifest, {name: Tensor}) of a folder step-N. Raises UnknownFormat, Damaged, OSError or ValueError."""
    manifest = read_manifest(folder)
    files = [read_data(os.path.join(folder, file["name"]), file["data_offset"]) for file in manifest["files"]]
    tensors = {}
    for entry in manifest["tensors"]:
        tensors[entry["name"]] = assemble(entry["name"], entry["dtype"], entry["shape"],
                                          pieces_of(manifest, entry), files)
    return manifest, tensors
