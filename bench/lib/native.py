# SPDX-License-Identifier: Apache-2.0
"""libregard_bench through ctypes, and tensors in memory that every contestant shares."""

import ctypes
import math
import os
import pathlib
import sys

FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
TYPE_BYTES = {FLOAT32: 4, BFLOAT16: 2, FLOAT16: 2}
MASKS = {"none": 0, "causal": 1, "window": 2, "dense": 3}


class NativeError(Exception):
    """The library refused; the text is its own."""


class Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * 4),
        ("strides", ctypes.c_int64 * 4),
    ]


class AttentionCase(ctypes.Structure):
    """Mirrors AttentionCase of bench/native/bench.h."""

    _fields_ = [
        ("q", Array),
        ("k", Array),
        ("v", Array),
        ("out", Array),
        ("dense", ctypes.c_void_p),
        ("window", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("mask", ctypes.c_int32),
        ("dropout_seed", ctypes.c_uint64),
        ("dropout_rate", ctypes.c_float),
        ("threads", ctypes.c_int32),
        ("in_bf16", ctypes.c_int32),
    ]


class Comparison(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("error", "magnitude", "noise")]


_I32, _I64, _U64, _F64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_double
_TEXT, _DATA = ctypes.c_char_p, ctypes.c_void_p
_CASE = ctypes.POINTER(AttentionCase)
_SIGNATURES = {
    "error": (_TEXT, []),
    "version": (_TEXT, []),
    "simd": (_TEXT, []),
    "openblas": (_TEXT, []),
    "set_clock": (None, [_I32]),
    "allocate": (_DATA, [_I64]),
    "release": (None, [_DATA]),
    "fill": (None, [_DATA, _I64, _I32, _U64]),
    "fill_mask": (None, [_DATA, _I64, _I64, _I32, _I64]),
    "force_simd": (_F64, [_TEXT]),
    "peak": (_F64, [_I32, _F64]),
    "attention": (_F64, [_CASE, _I64]),
    "openblas_attention": (_F64, [_CASE, _I64]),
    "compare": (_F64, [_CASE, _I64, _U64, ctypes.POINTER(Comparison)]),
}


class Library:
    """The functions of libregard_bench without their prefix, by name.

    A function that answers with a negative number has failed and raises NativeError. A later
    benchmark declares its own functions with declare().
    """

    def __init__(self, path):
        self._library = ctypes.CDLL(os.fspath(path))
        for name, (result, arguments) in _SIGNATURES.items():
            self.declare(name, result, arguments)

    def declare(self, name, result, arguments):
        try:
            function = getattr(self._library, "regard_bench_" + name)
        except AttributeError as error:
            sys.exit(f"bench: {self._library._name} is older than bench/: build again ({error})")
        function.restype, function.argtypes = result, arguments
        if result is _F64:
            setattr(self, name, lambda *values: self._checked(function, values))
        elif result is _TEXT:
            setattr(self, name, lambda *values: (function(*values) or b"").decode())
        else:
            setattr(self, name, function)

    def _checked(self, function, values):
        answer = function(*values)
        if answer < 0:
            raise NativeError(self.error())
        return answer


def load(build_dir):
    """The library of a build folder."""
    for folder in ("bench", "lib", "."):
        path = pathlib.Path(build_dir) / folder / "libregard_bench.so"
        if path.exists():
            return Library(path.resolve())
    raise FileNotFoundError(f"no libregard_bench.so below {build_dir}: build with -DREGARD_BUILD_BENCH=ON")


class Tensor:
    """Elements [batch, heads, length, width], in the memory order that `layout` names.

    "bhld" is contiguous; "blhd" keeps the heads of a token together, as a projection leaves them.
    """

    def __init__(self, library, shape, element_type=FLOAT32, layout="bhld"):
        self._library = library
        self.shape, self.type, self.layout = tuple(shape), element_type, layout
        self.count = math.prod(shape)
        self.bytes = self.count * TYPE_BYTES[element_type]
        _, heads, length, width = shape
        self.strides = {
            "bhld": (heads * length * width, length * width, width, 1),
            "blhd": (length * heads * width, width, heads * width, 1),
        }[layout]
        self.data = library.allocate(self.bytes)
        if not self.data:
            raise MemoryError(f"no {self.bytes} bytes for a tensor")

    def __del__(self):
        if getattr(self, "data", None):
            self._library.release(self.data)

    def fill(self, seed):
        self._library.fill(self.data, self.count, self.type, seed)
        return self

    def array(self):
        return Array(self.data, (_I64 * 4)(*self.shape), (_I64 * 4)(*self.strides))

    def torch(self):
        """The same memory as a torch tensor of the same shape."""
        import torch

        kind = {FLOAT32: torch.float32, BFLOAT16: torch.bfloat16, FLOAT16: torch.float16}[self.type]
        flat = torch.frombuffer(self._memory(), dtype=kind)
        return flat.as_strided(self.shape, self.strides)

    def numpy(self):
        """The same memory as a NumPy array of the same shape; bf16 as its bits."""
        import numpy

        kind = {FLOAT32: numpy.float32, BFLOAT16: numpy.uint16, FLOAT16: numpy.float16}[self.type]
        flat = numpy.frombuffer(self._memory(), dtype=kind)
        strides = [stride * TYPE_BYTES[self.type] for stride in self.strides]
        return numpy.lib.stride_tricks.as_strided(flat, self.shape, strides)

    def _memory(self):
        return (ctypes.c_char * self.bytes).from_address(self.data)


class DenseMask:
    """[q_len, kv_len] bools, true is visible: a built-in mask written out."""

    def __init__(self, library, q_len, kv_len, mask, window):
        self._library = library
        self.shape = (q_len, kv_len)
        self.data = library.allocate(q_len * kv_len)
        library.fill_mask(self.data, q_len, kv_len, MASKS[mask], window)

    def __del__(self):
        if getattr(self, "data", None):
            self._library.release(self.data)

    def torch(self):
        import torch

        memory = (ctypes.c_char * (self.shape[0] * self.shape[1])).from_address(self.data)
        return torch.frombuffer(memory, dtype=torch.bool).reshape(1, 1, *self.shape)

    def numpy(self):
        import numpy

        memory = (ctypes.c_char * (self.shape[0] * self.shape[1])).from_address(self.data)
        return numpy.frombuffer(memory, dtype=numpy.bool_).reshape(self.shape)
