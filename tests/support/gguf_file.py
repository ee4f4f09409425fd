# SPDX-License-Identifier: Apache-2.0
"""Writes GGUF files: settings and float32 tensors."""

import struct

import numpy as np


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def setting(value):
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<I", 8) + text(value)


def write_gguf(path, settings, tensors):
    """{key: bool, int, float or str} and {name: array}."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(settings))
    head += b"".join(text(key) + setting(value) for key, value in settings.items())
    data = b""
    for name, values in tensors.items():
        array = np.ascontiguousarray(values, dtype=np.float32)
        head += text(name) + struct.pack("<I", array.ndim)
        head += b"".join(struct.pack("<Q", extent) for extent in reversed(array.shape))
        head += struct.pack("<IQ", 0, len(data))
        data += array.tobytes() + bytes(-array.nbytes % 32)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)
