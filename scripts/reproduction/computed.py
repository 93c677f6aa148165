"""What follows from the papers' equations, computed by rope-cpu or from its frequencies.

Each function takes the paper's printed tables and returns an Outcome.
"""

import cmath
import math
from collections import Counter
from dataclasses import dataclass
from functools import cache

import ranks
from program import disturbances, plans, rope, zeros

TRAINED, INTERVALS = 4096, 360
LENGTHS = (8192, 16384)
LLAMA2 = "llama-2-7b.gguf"
PRINTED = {"PI": (24.08, 33.67), "YaRN": (25.55, 35.44), "DPRoPE": (6.71, 22.92)}


@dataclass
class Outcome:
    command: str
    result: str
    verdict: str
    detail: str = ""


def table3(_):
    cells = [(1e3 * found, 1e3 * printed) for row in rope("disturbance", "--table3") if row["arithmetic"] == "f32"
             for found, printed in zip(row["disturbance"], row["printed"])]
    equal = sum(f"{found:.2f}" == f"{printed:.2f}" for found, printed in cells)
    worst = max(abs(found / printed - 1) for found, printed in cells)
    return Outcome(
        "rope-cpu rope disturbance --table3",
        f"{equal} of {len(cells)} cells to the printed digit, with the authors' arithmetic; all within {100 * worst:.1f} %",
        "reproduced" if worst < 0.005 else "contradicted",
    )


@cache
def histogram(frequency, length):
    """The positions in each interval of the circle."""
    counts = [0] * INTERVALS
    scale = INTERVALS / math.tau
    for position in range(length):
        counts[int(position * frequency % math.tau * scale) % INTERVALS] += 1
    return counts


def terms(frequencies, length):
    """For each pair: how often a share of positions (new, trained) occurs."""
    trained = plans(LENGTHS[0], ["none"])["none"]["inv_freq"]
    return [Counter((new / length, old / TRAINED) for new, old
                    in zip(histogram(frequency, length), histogram(before, TRAINED)) if new)
            for frequency, before in zip(frequencies, trained)]


def printed_divergence(pair, epsilon):
    """Equation 8 for one pair, in nats."""
    return sum(n * new * math.log((new + epsilon) / (old + epsilon)) for (new, old), n in pair.items())


def equation8(_):
    cells = {}
    for length in LENGTHS:
        found = plans(length, ["none", "linear", "yarn"])
        cells[length] = {name: terms(found[name]["inv_freq"], length) for name in found}

    @cache
    def row(epsilon):
        """PI, YaRN and DPRoPE with the threshold 0, at both lengths, in 10^-3 nats."""
        means = {name: [] for name in PRINTED}
        for length in LENGTHS:
            none, linear, yarn = ([printed_divergence(pair, epsilon) for pair in cells[length][name]]
                                  for name in ("none", "linear", "yarn"))
            for name, pairs in zip(PRINTED, (linear, yarn, map(min, none, linear))):
                means[name].append(1e3 * sum(pairs) / len(linear))
        return means

    def total(epsilon, unit):
        means = row(epsilon)
        return sum(abs(a * unit - b) for key in PRINTED for a, b in zip(means[key], PRINTED[key]))

    fits = []
    for name, unit in (("natural", 1), ("base 2", 1 / math.log(2)), ("base 10", 1 / math.log(10))):
        exponent = -5.0
        for step in (0.5, 0.05, 0.005):
            exponents = [exponent + step * i for i in range(-10, 11)]
            exponent = min(exponents, key=lambda e: total(10**e, unit))
        found = {key: [value * unit for value in values] for key, values in row(10**exponent).items()}
        fits.append((name, 10**exponent, found, total(10**exponent, unit)))
    code = {length: disturbances(length, ["linear", "yarn", "dprope"]) for length in LENGTHS}
    program = {name: [1e3 * code[length][method]["mean"] for length in LENGTHS]
               for name, method in zip(PRINTED, ("linear", "yarn", "dprope"))}

    reversed_order = all(found["PI"][0] > found["YaRN"][0] for found in [row(1e-6), *(fit[2] for fit in fits)])

    def line(name, values, digits):
        shown = [f"{value:.{digits}f}" for key in PRINTED for value in values[key]]
        return f"| {name} | " + " | ".join(shown) + " |"

    header = ["in 10^-3"] + [f"{name}, {length // 1024}k" for name in PRINTED for length in LENGTHS]
    detail = "\n".join([
        "Equation 8 is the divergence from the new distribution to the trained one. The program has the reverse, with",
        "natural logarithms, summed over the intervals. For each base of the logarithm, the last rows have the ε that fits best:",
        "",
        "| " + " | ".join(header) + " |", "|---" + "|--:" * 6 + "|",
        line("Table 3", PRINTED, 2), line("the program's direction", program, 2), line("ε = 10^-6", row(1e-6), 1),
        *(line(f"{name}, ε = {epsilon:.2g}", found, 2) for name, epsilon, found, _ in fits),
        "",
        "The errors of the six cells then add up to " + ", ".join(f"{error:.1f} ({name})" for name, _, _, error in fits)
        + "." + (" Each of these ε also reverses the order of PI and YaRN at 8,192 tokens." if reversed_order else ""),
    ])
    least = min(error for *_, error in fits)
    return Outcome(
        f"rope-cpu rope disturbance -m {LLAMA2} -c 8192 --methods linear,yarn,dprope --direction paper",
        f"no ε or base of the logarithm gives Table 3: the errors add up to at least {least:.1f}",
        "contradicted" if least > 1 else "reproduced", detail)


def equation4(_):
    method = "yarn:yarn-ramp=turns"
    found = [1e3 * disturbances(length, [method])[method]["mean"] for length in LENGTHS]
    agrees = all(abs(a / b - 1) < 0.005 for a, b in zip(found, PRINTED["YaRN"]))
    return Outcome(
        f"rope-cpu rope disturbance -m {LLAMA2} -c 8192 --methods {method}",
        f"gives {found[0]:.2f} and {found[1]:.2f}, where Table 3 has 25.55 and 35.44, from the ramp of YaRN's program",
        "reproduced" if agrees else "contradicted")


def figure5(tables):
    """The disturbance of each number of dimensions of Table 4, in 10^-3 nats, and the printed score."""
    methods = {f"dprope:dprope-dims={dims}": values[3] for dims, values in tables["Table 4"].items()}
    found = disturbances(LENGTHS[0], methods)
    return [(1e3 * found[method]["mean"], score) for method, score in methods.items()]


def table4(tables):
    rows, points = tables["Table 4"], figure5(tables)
    rho, p = ranks.spearman([points]), ranks.significance(points)
    lines = [f"| {dims} | {x:.3f} | {y:.2f} |" for dims, (x, y) in zip(rows, points)]
    spread = max(x for x, _ in points) / min(x for x, _ in points) - 1
    detail = "\n".join([
        "Llama 2 13B for 8,192 tokens: the disturbance of each number of dimensions, computed here, and the printed score.",
        "", "| dimensions divided | disturbance, 10^-3 | LongBench-E |", "|--:|--:|--:|", *lines, "",
        f"Spearman's rank correlation of these {len(points)} points is {rho:.2f}, with an exact two-sided p of {p:.3f}. "
        f"All disturbances are within {100 * spread:.0f} %. The best score is not at the smallest one."])
    return Outcome(
        f"rope-cpu rope disturbance -m {LLAMA2} -c 8192 --methods dprope:dprope-dims=80",
        f"the scores are the paper's; their rank correlation with the disturbance computed here is {rho:.2f} "
        f"({len(points)} points, exact p {p:.3f})",
        "consistent, not tested" if rho < 0 else "contradicted", detail)


def table6(tables):
    divided = {}
    for intervals in tables["Table 6"]:
        method = f"dprope:dprope-intervals={intervals}"
        found = plans(LENGTHS[0], ["none", method])
        pairs = zip(found["none"]["inv_freq"], found[method]["inv_freq"])
        divided[intervals] = {i for i, (before, after) in enumerate(pairs) if before != after}
    counts = ", ".join(str(2 * len(pairs)) for pairs in divided.values())
    moved = max(len(pairs ^ divided["360"]) for pairs in divided.values())
    return Outcome(
        f"rope-cpu rope compare -m {LLAMA2} -c 8192 --methods dprope:dprope-intervals=720",
        f"needs a fine-tuned 13B model; the threshold 0 divides {counts} of 128 dimensions with 90, 180, 360 and 720 "
        f"intervals, and at most {moved} of 64 pairs differ from 360", "not possible")


def figure3(_):
    found = plans(LENGTHS[0], ["none", "linear"])
    measured = disturbances(LENGTHS[0], ["none", "linear"])
    six, other = ([measured[method]["pairs"][pair] for method in ("none", "linear")] for pair in (6, 22))
    trained = histogram(found["none"]["inv_freq"][22], TRAINED)
    new = histogram(found["linear"]["inv_freq"][22], LENGTHS[0])
    unseen = sum(count for count, before in zip(new, trained) if not before) / LENGTHS[0]
    detail = "\n".join([
        "Pairs 6 and 22 of Llama 2 at 8,192 tokens, 360 intervals (second chart of each):", "",
        "![Pair 6](reproduction/pair-6.svg)", "", "![Pair 22](reproduction/pair-22.svg)"])
    return Outcome(
        f"rope-cpu rope compare -m {LLAMA2} -c 8192 --methods none,linear --pair 22 --intervals 360 --plot FILE",
        f"pair 6: {six[0]:.3f} nats by extrapolation, {six[1]:.3f} by interpolation; pair 22: {other[0]:.3f} and "
        f"{other[1]:.3f}. Interpolation puts {100 * unseen:.0f} % of the positions of pair 22 at untrained angles",
        "reproduced" if six[0] > six[1] and other[0] < other[1] else "contradicted", detail)


def figure7(_):
    better = []
    for length in LENGTHS:
        found = disturbances(length, ["none", "linear"])
        better.append(sum(a < b for a, b in zip(found["none"]["pairs"], found["linear"]["pairs"])))
    detail = "\n".join([
        "Extrapolation (none), PI (linear), YaRN and DPRoPE (threshold 0) on Llama 2:", "",
        *(f"![{length} tokens](reproduction/disturbance-{length}.svg)\n" for length in LENGTHS)])
    return Outcome(
        f"rope-cpu rope disturbance -m {LLAMA2} -c 8192 --methods none,linear,yarn,dprope --plot FILE",
        f"extrapolation disturbs {better[0]} of 64 pairs less at 8,192 tokens and {better[1]} at 16,384, "
        "interpolation the others; the means of figure 8 are Table 3", "reproduced", detail.rstrip())


@cache
def sums():
    """For each distance, the mean over dimensions of the absolute values of the sums of rotations: B(s) / d."""
    pairs = plans(LENGTHS[0], ["none"])["none"]["inv_freq"]

    def one(distance):
        total, size = 0, 0.0
        for frequency in pairs:
            total += cmath.exp(1j * distance * frequency)
            size += abs(total)
        return size / (2 * len(pairs))

    return [one(distance) for distance in range(TRAINED + 1)]


def decay(_):
    bound = [2 * value for value in sums()]  # a mean over pairs
    highest = max(range(251, TRAINED + 1), key=bound.__getitem__)
    return Outcome(
        "python3 scripts/reproduction --write",
        f"for 128 dimensions, the bound falls from {bound[0]:.1f} at distance 0 to {bound[250]:.1f} at 250. It does not keep "
        f"falling: it is {bound[highest]:.1f} at {highest:,}",
        "reproduced" if bound[250] < bound[0] / 2 else "contradicted")


def pi_decay(_):
    found = sums()
    lowest = min(range(TRAINED + 1), key=found.__getitem__)
    rises = sum(after > before for before, after in zip(found, found[1:]))
    return Outcome(
        "python3 scripts/reproduction --write",
        f"B(s) / d falls from {found[0]:.2f} at distance 0 to {found[lowest]:.2f} at {lowest:,} and is "
        f"{found[-1]:.2f} at {TRAINED:,}. It rises at {rises:,} of {TRAINED:,} steps",
        "reproduced" if min(found) > 1 else "contradicted")


def pi_bounds(_):
    found = sums()
    ratio = 2 * min(found) * 32 * math.log(10000)
    return Outcome(
        "python3 scripts/reproduction --write",
        f"B(s) is from {min(found):.2f} d to {max(found):.1f} d for distances up to 4,096, so it exceeds d. "
        f"The bounds differ by at least {ratio:.0f} times, where the paper has about 600",
        "reproduced" if min(found) > 1 else "contradicted")


def difference(found, one, other):
    """The largest relative difference of two methods' frequencies."""
    return max(abs(a / b - 1) for a, b in zip(found[one]["inv_freq"], found[other]["inv_freq"]))


def dynamic(_):
    lengths = (TRAINED, *LENGTHS)
    pairs = (("dynamic", "ntk"), ("dynamic-yarn", "yarn"), ("dynamic-linear", "linear"))
    worst = max(difference(plans(length, [name for pair in pairs for name in pair]), *pair)
                for length in lengths for pair in pairs)
    return Outcome(
        f"rope-cpu rope compare -m {LLAMA2} -c 8192 --methods dynamic,ntk --json",
        f"at {', '.join(f'{length:,}' for length in lengths)} tokens, dynamic NTK, dynamic YaRN and dynamic linear scaling "
        f"have {'exactly ' if worst == 0 else ''}the frequencies of NTK, YaRN and linear scaling by the factor of that length",
        "reproduced" if worst < 1e-12 else "contradicted")


def clex(_):
    path = zeros(64)
    found = plans(LENGTHS[0], [f"clex:clex-weights={path}", "ntk:rope-scale=3"])
    worst = difference(found, *found)
    return Outcome(
        f"rope-cpu rope compare -m {LLAMA2} -c 8192 --methods clex:clex-weights=zeros.safetensors,ntk:rope-scale=3 --json",
        f"with weights of zero, the equation has NTK's frequencies with α = 2t - 1 as solution. At t = 2, the largest "
        f"relative difference is {worst:.0e}, from the steps of the solver",
        "reproduced" if worst < 1e-8 else "contradicted")


def yarn_scale(_):
    found = plans(8 * TRAINED, ["yarn"])["yarn"]["attention_scale"]
    return Outcome(f"rope-cpu rope compare -m {LLAMA2} -c 32768 --methods yarn", f"{found:.4f}",
                   "reproduced" if f"{found:.3f}" == "1.208" else "contradicted")


def ntk_base(_):
    found = plans(LENGTHS[0], ["none", "ntk"])
    slowest = found["none"]["inv_freq"][-1] / found["ntk"]["inv_freq"][-1]
    base = found["ntk"]["inv_freq"][1] ** -64
    expected = 10000 * 2 ** (128 / 126)
    return Outcome(f"rope-cpu rope compare -m {LLAMA2} -c 8192 --methods none,ntk --json",
                   f"base {base:.0f} for twice the length; the slowest pair is stretched {slowest:.4f} times",
                   "reproduced" if abs(base / expected - 1) < 1e-9 and abs(slowest / 2 - 1) < 1e-9 else "contradicted")
