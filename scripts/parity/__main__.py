"""Compares rope-cpu with llama.cpp on whole models: logits, long contexts, quantized files, greedy
text, files with a scaling baked in, weight formats, models in another format, perplexities, and
frequencies that follow the length. Checks 11 and 12, which take long, run only where they are asked for.

usage: $(scripts/python-tools) scripts/parity [--only 1,2,...] [--instead llama.cpp|wrong]
       (after scripts/fetch-models --all)

--instead tests the test: "llama.cpp" puts llama.cpp in rope-cpu's place, and everything must pass; "wrong"
does so with half the frequencies, and every check must fail.
"""
import argparse
import sys
import time

import llama
import stand_in
from checks import CHECKS, LONG_CHECKS, measure_drift
from measure import Report
from ours import RopeCpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CHECKS), help="check numbers, with commas")
    parser.add_argument("--instead", choices=["llama.cpp", "wrong"])
    parser.add_argument("--measure-drift", action="store_true", help="print the constants of check 2")
    arguments = parser.parse_args()
    if arguments.measure_drift:
        return measure_drift()

    print(llama.system_info(), flush=True)
    ours = stand_in.LlamaCpp(wrong=arguments.instead == "wrong") if arguments.instead else RopeCpu()
    report = Report()
    passed = []
    for number in arguments.only.split(","):
        failed, began = len(report.failures), time.monotonic()
        (CHECKS | LONG_CHECKS)[number](ours, report)
        print(f"       check {number} took {time.monotonic() - began:.0f} s", flush=True)
        if len(report.failures) == failed:
            passed.append(number)
    if arguments.instead == "wrong":
        sys.exit(f"these did not see wrong frequencies: {passed}" if passed else None)
    sys.exit("parity: " + "; ".join(report.failures) if report.failures else None)


main()
