"""Reads what scripts/results has measured, from docs/results."""

import json
import math
from functools import cache
from statistics import mean, median

from program import ROOT

RESULTS = ROOT / "docs/results"


@cache
def lines(part):
    """The records of a part; none if it was not measured yet."""
    path = RESULTS / f"{part}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def perplexity(record, start, end):
    """The exponential of the mean over all tokens at these positions."""
    buckets = [bucket["nll"] for bucket in record["scored"]["buckets"]
               if start <= bucket["positions"]["start"] and bucket["positions"]["end"] <= end]
    return math.exp(sum(nll["sum"] for nll in buckets) / sum(nll["count"] for nll in buckets))


def perplexities(part, start, end):
    """{method: perplexity}."""
    return {record["method"]: perplexity(record, start, end) for record in lines(part)}


def passkeys(part, length):
    """{method: [whether each number was found]}."""
    found = {}
    for record in lines(part):
        if record["length"] == length:
            found.setdefault(record["method"], []).append(record["found"])
    return found


def tasks(part):
    """{length: {task: mean score}}."""
    found = {}
    for record in lines(part):
        found.setdefault(record["length"], {}).setdefault(record["task"], []).append(record["scores"][0])
    return {length: {task: mean(scores) for task, scores in tasks.items()} for length, tasks in found.items()}


def times(part, what):
    """{method: time of a token relative to linear scaling}; `what` is n_prompt or n_gen."""
    seconds = {line["method"]: median(1 / speed for speed in line["samples_ts"]) for line in lines(part) if line[what]}
    return {method: time / seconds["linear"] for method, time in seconds.items()}


def attention(part, trained):
    """{method: [mean score within the trained length, mean score beyond it, share of attention beyond it]}."""
    def mean(bins):
        pairs = sum(one["pairs"] for one in bins)
        return sum(one["pairs"] * one["score"] for one in bins) / pairs

    found = {}
    for record in lines(part):
        heads = record["measured"]["heads"]
        bins = [one for head in heads for one in head["bins"]]
        within = [one for one in bins if one["distances"]["end"] <= trained]
        beyond = [one for one in bins if one["distances"]["start"] >= trained]
        found[record["method"]] = [mean(within), mean(beyond), sum(head["beyond"] for head in heads) / len(heads)]
    return found
