"""Puts `rope-cpu serve` with SmolLM2 under load, and checks what must hold then.

1. Four slots generate at least twice as many tokens in a second as one.
2. While a long prompt is processed, a short one gets its first token within two micro-batches.
3. Clients send short and long prompts without pause. Some disconnect early, and one more client is hostile. No well-formed
   request fails, hostile requests are refused, and memory does not grow after the warm-up.
4. A closed connection frees its slot.
5. Two models answer side by side at the speed of one, and an embedding waits for a step of an answer.

usage: python3 scripts/load [--seconds N] [--long N] [--only 1,2,...]          (some minutes; --seconds 20 --long 1024: short)
       python3 scripts/load --compare [--seconds N] [--rounds N] [--write]   (the same load for llama-server, in turns)

ROPE_CPU=FILE measures this program, instead of a new build. --compare needs llama-server, which scripts/llama-server
builds; --write puts its table into docs/performance.md.
"""
import argparse
import sys

import checks
import comparison

parser = argparse.ArgumentParser(prog="scripts/load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--seconds", type=int, default=300, help="of the load, or of a round of --compare (300)")
parser.add_argument("--clients", type=int, default=8, help="that ask at a time (8)")
parser.add_argument("--long", type=int, default=4000, help="tokens of long prompts (4000)")
parser.add_argument("--only", default="1,2,3,4,5", help="the checks")
parser.add_argument("--compare", action="store_true", help="measure llama-server, too")
parser.add_argument("--rounds", type=int, default=3, help="of each server with --compare (3)")
parser.add_argument("--write", action="store_true", help="write the table of --compare into the documentation")
arguments = parser.parse_args()
if arguments.compare:
    comparison.run(arguments)
else:
    sys.exit(checks.run(arguments))
