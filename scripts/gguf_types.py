"""Adds what version 0.19.0 of the `gguf` package lacks: the type Q2_0, and decoders of Q1_0 and Q2_0.

llama.cpp's shared library decodes them.
"""
import ctypes
from pathlib import Path

import llama_cpp
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType, quants


def add(kind, name, number):
    """Adds a member to an enumeration."""
    member = int.__new__(kind, number)
    member._name_, member._value_ = name, number
    setattr(kind, name, member)
    kind._member_map_[name] = kind._value2member_map_[number] = member
    kind._member_names_.append(name)
    return member


def add_decoder(kind):
    library = ctypes.CDLL(str(next(Path(llama_cpp.__file__).parent.glob("lib/libggml-base.so"))))
    decode = library[f"dequantize_row_{kind.name.lower()}"]
    decode.argtypes, decode.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None

    class Decoder(quants.__Quant, qtype=kind):
        @classmethod
        def dequantize_blocks(cls, blocks):
            blocks = np.ascontiguousarray(blocks)
            values = np.empty((len(blocks), cls.block_size), np.float32)
            decode(blocks.ctypes.data, values.ctypes.data, values.size)
            return values


add(LlamaFileType, "MOSTLY_Q2_0", 41)
GGML_QUANT_SIZES[add(GGMLQuantizationType, "Q2_0", 42)] = (64, 18)
for name in ("Q1_0", "Q2_0"):
    add_decoder(GGMLQuantizationType[name])
