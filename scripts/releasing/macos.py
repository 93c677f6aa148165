"""Checks a program or a Python module for macOS, which run on no other system: its processor, the oldest macOS, its
libraries and its signature. Apple silicon kills a program without a signature, and one that was changed after it was
signed.

usage: python3 scripts/releasing/macos.py PROGRAM TARGET

The layouts: mach-o/loader.h and kern/cs_blobs.h of Apple's xnu.
"""
import hashlib
import pathlib
import struct
import sys

PROCESSORS = {"aarch64": 0x0100000C, "x86_64": 0x01000007}
MH_EXECUTE, MH_DYLIB = 2, 6
OLDEST = 11
LC_LOAD_DYLIB, LC_SEGMENT_64, LC_CODE_SIGNATURE, LC_BUILD_VERSION = 0xC, 0x19, 0x1D, 0x32
MACOS = 1
SIGNATURES, DIRECTORY, SHA256, AD_HOC = 0xFADE0CC0, 0xFADE0C02, 2, 2


def die(message):
    sys.exit(f"releasing/macos.py: {message}")


def main(path, target):
    data = pathlib.Path(path).read_bytes()
    magic, processor, _, kind, count, _, _, _ = struct.unpack_from("<8I", data)
    if magic != 0xFEEDFACF or kind not in (MH_EXECUTE, MH_DYLIB):
        die(f"{path} is no Mach-O program or library of 64 bits")
    if processor != PROCESSORS[target.split("-")[0]]:
        die(f"{path} is for the processor {processor:#x}, not for {target}")

    commands, at = {}, 32
    for _ in range(count):
        command, size = struct.unpack_from("<2I", data, at)
        commands.setdefault(command, []).append(data[at : at + size])
        at += size

    for needed in (LC_LOAD_DYLIB, LC_BUILD_VERSION):
        if needed not in commands:
            die(f"{path} has no load command {needed:#x}")
    libraries = [text(command, struct.unpack_from("<I", command, 8)[0]) for command in commands[LC_LOAD_DYLIB]]
    for library in libraries:
        if not library.startswith(("/usr/lib/", "/System/Library/")):
            die(f"{path} needs {library}, which is not part of macOS")
    platform, oldest = struct.unpack_from("<2I", commands[LC_BUILD_VERSION][0], 8)
    if platform != MACOS or oldest != OLDEST << 16:
        die(f"{path} is for platform {platform} from {oldest >> 16}.{oldest >> 8 & 255}, not for macOS {OLDEST}.0")

    signed = signature(path, data, commands, target.startswith("aarch64"))
    print(f"checked: {target}, macOS {OLDEST} or later, {', '.join(libraries)}, {signed}")


def signature(path, data, commands, apple_silicon):
    """Checks the hash of each page; returns what the signature is."""
    if LC_CODE_SIGNATURE not in commands:
        if apple_silicon:
            die(f"{path} has no signature; Apple silicon would not start it")
        return "no signature, which Intel's processors do not need"
    start, size = struct.unpack_from("<2I", commands[LC_CODE_SIGNATURE][0], 8)
    if start + size != len(data):
        die(f"the signature of {path} does not end the file")
    magic, _, count = struct.unpack_from(">3I", data, start)
    blobs = dict(struct.unpack_from(">2I", data, start + 12 + 8 * i) for i in range(count))
    if magic != SIGNATURES or 0 not in blobs:
        die(f"the signature of {path} has no directory of its pages")
    at = start + blobs[0]
    magic, _, _, flags, hashes, name, _, pages, limit = struct.unpack_from(">9I", data, at)
    length, algorithm, _, page = struct.unpack_from("4B", data, at + 36)
    if (magic, length, algorithm) != (DIRECTORY, 32, SHA256) or not flags & AD_HOC:
        die(f"the signature of {path} is no ad hoc one with SHA-256")
    if limit != start or pages != -(-limit >> page):
        die(f"the signature of {path} covers {limit} of {start} bytes in {pages} pages")
    for i in range(pages):
        of_page = data[i << page : min(i + 1 << page, limit)]
        if hashlib.sha256(of_page).digest() != data[at + hashes + 32 * i :][:32]:
            die(f"page {i} of {path} was changed after the signature")
    return f"an ad hoc signature of {pages} pages as {text(data, at + name)}"


def text(data, at):
    return data[at : data.index(b"\0", at)].decode()


main(*sys.argv[1:])
