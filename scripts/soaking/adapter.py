"""Writes a LoRA adapter for the model of scripts/load. It has small random matrices for two projections."""
import array
import random
import struct

UINT32, FLOAT32, STRING = 4, 6, 8
# GGUF's type of tensors of floats, and the elements of a row of SmolLM2-135M.
F32, EMBEDDING = 0, 576
RANK = 8
ALIGNMENT = 32


def write(path):
    random_numbers = random.Random(1)
    infos, data = b"", b""
    for layer in (3, 17):
        for half, rows in (("a", RANK), ("b", EMBEDDING)):
            columns = EMBEDDING * RANK // rows
            infos += text(f"blk.{layer}.attn_q.weight.lora_{half}") + struct.pack("<IQQIQ", 2, columns, rows, F32, len(data))
            data += array.array("f", (random_numbers.gauss(0, 0.2) for _ in range(rows * columns))).tobytes()
            data += bytes(-len(data) % ALIGNMENT)
    keys = [
        text("general.architecture") + struct.pack("<I", STRING) + text("llama"),
        text("general.type") + struct.pack("<I", STRING) + text("adapter"),
        text("adapter.type") + struct.pack("<I", STRING) + text("lora"),
        text("adapter.lora.alpha") + struct.pack("<If", FLOAT32, 16),
        text("general.alignment") + struct.pack("<II", UINT32, ALIGNMENT),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, 4, len(keys)) + b"".join(keys) + infos
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)


def text(string):
    return struct.pack("<Q", len(string)) + string.encode()
