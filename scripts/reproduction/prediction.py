"""Does disturbance predict quality? Every static method that docs/results has, with its disturbance."""

import math
import re
from dataclasses import dataclass, field

import ranks
import records
from program import model, plans

# The rotated dimensions of a head; a record has the base and the trained length.
DIMENSIONS = {"SmolLM2": 64, "gemma-3": 256, "qwen2.5-coder-0.5b": 64}
# One set of frequencies for all tokens, and attention as trained except for YaRN's scale.
STATIC = re.compile(r"(none|linear|ntk|ntk-mixed|yarn|llama3|dprope)(:(rope-scale|yarn-|dprope-|ntk-)[^:]*)*")
# Texts that are another one with errors.
DERIVED = {"noisy": "jargon"}
DIRECTIONS = ("code", "paper")
# Methods that are left out of all perplexities.
SUBSETS = (("all", ()), ("without `none`", ("none",)), ("without `none`, `linear` and `dprope`", ("none", "linear", "dprope")))
# The analogue of DPRoPE's figure 5.
DIMENSIONS_ALONE = re.compile(r"dprope:dprope-dims=(\d+)")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 800, 400, 60, 350, 20, 560
COLORS = ["#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"]


@dataclass
class Group:
    """Methods of one model at one length, by one measure; a larger value is worse."""

    name: str
    unit: str
    plan: str
    length: int
    path: object
    source: tuple
    quality: dict = field(default_factory=dict)

    def points(self, direction):
        """{method: (disturbance, quality)}."""
        found = plans(self.length, list(self.quality), self.path)
        return {method: (found[method][f"disturbance_{direction}"], value) for method, value in self.quality.items()}

    def different(self, direction, without=()):
        """The points without some methods, and equal points once: settings with the same frequencies."""
        points = {}
        for method, point in self.points(direction).items():
            if method.partition(":")[0] not in without and point not in points.values():
                points[method] = point
        return points


def dimensions(name):
    return next((size for start, size in DIMENSIONS.items() if name.startswith(start)), None)


def groups():
    """Each measure of a model at a length beyond the trained one, with at least three methods."""
    found = {}
    for path in sorted(records.RESULTS.glob("*.jsonl")):
        for record in records.lines(path.stem):
            size = dimensions(record.get("model", ""))
            if size is None or not STATIC.fullmatch(record.get("method", "")):
                continue
            plan = record["rope"]
            base = float(re.search(r"base ([\d.]+)", plan)[1])
            trained = int(re.search(r"trained context (\d+)", plan)[1])
            windows = record.get("windows", {}).get("Sliding")
            length = windows["window"] if windows else record.get("length", 0)
            if length <= trained:
                continue
            model_name = re.split(r"-Instruct|-instruct|-q4", record["model"])[0]
            source = (model_name, None)
            if windows:
                text = record["text"].removesuffix(".txt")
                source = (model_name, DERIVED.get(text, text))
                key = (model_name, f"perplexity, {text}, windows of {length:,} by {windows['stride']:,}")
                value = records.perplexity(record, trained, length)
            elif "found" in record:
                key = (model_name, f"passkeys missed at {length:,} tokens")
                value = not record["found"]
            else:
                continue
            group = found.setdefault(key, Group(": ".join(key), key[1], plan, length, model(trained, size, base), source))
            group.quality.setdefault(record["method"], []).append(value)
    for group in found.values():
        group.quality = {method: sum(values) / len(values) for method, values in group.quality.items()}
    return [group for group in found.values() if len(group.quality) >= 3]


def between(interval):
    return "{:.2f} to {:.2f}".format(*interval)


def together(found, direction, without):
    """The correlation, its number of points and of sources, and its cell of the table."""
    sources = {}
    for group in found:
        points = list(group.different(direction, without).values())
        if len(points) > 1:
            sources.setdefault(group.source, []).append(points)
    groups = [points for each in sources.values() for points in each]
    rho = ranks.spearman(groups)
    cell = f"{rho:.2f} ({between(ranks.interval(groups))}; {between(ranks.interval_of_sources(list(sources.values())))})"
    return rho, sum(map(len, groups)), len(sources), cell


def correlated(points):
    """A correlation with its p value."""
    rho = ranks.spearman([points])
    return "all alike" if rho is None else f"{rho:.2f} (p {ranks.significance(points):.2g})"


def alone(found):
    """{DPRoPE's number of dimensions: (disturbance, quality)}, of the group that has most of them."""
    points = [{match[1]: point for method, point in group.points("code").items()
               if (match := DIMENSIONS_ALONE.fullmatch(method))} for group in found]
    return max(points, key=len)


def section(implied):
    """Findings, Markdown of the tables, and the drawing. `implied`: the correlation that the paper's Table 4 implies."""
    found = groups()
    perplexities = [group for group in found if "perplexity" in group.unit]
    text = ["| methods | points | models and texts | the program's disturbance | equation 8 |", "|---|--:|--:|--:|--:|"]
    pooled = []
    for name, without in SUBSETS:
        cells = [together(perplexities, direction, without) for direction in DIRECTIONS]
        pooled.append(cells[0])
        text.append(f"| {name} | {cells[0][1]} | {cells[0][2]} | {cells[0][3]} | {cells[1][3]} |")
    text += ["", f"In parentheses are two intervals of 95 %, from {ranks.RESAMPLES:,} bootstrap samples with a fixed seed. "
             "The first draws the points of each group again, as if they were independent. The second draws models and "
             "texts again, since the points of one depend on each other. So few models and texts make it too narrow. The "
             "noisy text counts as the Jargon File, and settings with equal frequencies count once.", "", "The same for each group, without `none`. The last column is the quality of the least "
             "disturbing method, relative to the best:", "",
             "| quality | points | the program's disturbance | equation 8 | least disturbing | best | times the best |",
             "|---|--:|--:|--:|---|---|--:|"]
    worse = []
    for group in found:
        points = [group.different(direction, ("none",)) for direction in DIRECTIONS]
        least, best = (min(points[0], key=lambda method: points[0][method][axis]) for axis in (0, 1))
        times = points[0][least][1] / points[0][best][1]
        if group in perplexities:
            worse.append(times)
        cells = [correlated(list(each.values())) for each in points]
        text.append(f"| {group.name} | {len(points[0])} | {cells[0]} | {cells[1]} | {least} | {best} | {times:.2f} |")
    text += ["", f"p is two-sided and exact up to {ranks.EXACT} points, else of {ranks.ORDERS:,} random orders.", ""]

    clearly = [times for times in worse if times > 1.01]
    points = alone(perplexities)
    least, best = (min(points, key=lambda dimensions: points[dimensions][axis]) for axis in (0, 1))
    loss = points[least][1] / points[best][1] - 1
    findings = [
        f"**The least disturbing method is rarely the best.** In {len(clearly)} of {len(worse)} groups of perplexities, "
        f"its perplexity is {min(clearly):.2f} to {max(clearly):.1f} times the best.",
        "**The sign of the correlation depends on the methods.** `none` disturbs much and fails. Without it, the "
        f"correlation is {pooled[1][0]:.2f}, since linear scaling and DPRoPE disturb least and have the highest "
        f"perplexities on SmolLM2. Without these two as well it is {pooled[2][0]:.2f}, of {pooled[2][1]} points.",
        "**DPRoPE's number of dimensions alone**, which figure 5 varies, has a correlation of "
        f"{correlated(list(points.values()))} in {len(points)} points of `dprope-16k`. Table 4 implies {implied:.2f}. The "
        f"least disturbing number, {least} of 64, is {100 * loss:.0f} % worse than {best}.",
    ]
    return findings, "\n".join(text), drawing(perplexities)


def drawing(found):
    """Perplexity relative to the best of its group, by disturbance, both logarithmic."""
    dots = []
    for i, group in enumerate(found):
        best = min(group.quality.values())
        dots += [(i, method, x, y / best) for method, (x, y) in group.points("code").items() if x > 0]
    if not dots:
        return None

    def scale(values, start, end):
        low, high = math.log(min(values)), math.log(max(values))
        return lambda value: start + (end - start) * (math.log(value) - low) / ((high - low) or 1)

    x = scale([dot[2] for dot in dots], LEFT + 10, RIGHT - 90)
    y = scale([dot[3] for dot in dots], BOTTOM - 10, TOP + 10)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
             'font-size="11">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="black"/>',
             f'<text x="{(LEFT + RIGHT) // 2}" y="{HEIGHT - 10}" text-anchor="middle">disturbance in nats</text>',
             f'<text transform="translate(16 {(TOP + BOTTOM) // 2}) rotate(-90)" text-anchor="middle">'
             'perplexity beyond the trained length, times the best</text>']
    for exponent in range(-6, 2):
        at = 10.0**exponent
        if min(dot[2] for dot in dots) <= at <= max(dot[2] for dot in dots):
            lines.append(f'<text x="{x(at):.0f}" y="{BOTTOM + 16}" text-anchor="middle">{at:g}</text>')
    for at in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        if at <= max(dot[3] for dot in dots):
            lines.append(f'<text x="{LEFT - 6}" y="{y(at) + 4:.0f}" text-anchor="end">{at}</text>')
    # A label is right of its dot, or as far above that as it needs to be free of other dots and labels. Dots of a method
    # that are near each other have one.
    taken = [(x(disturbance) - 5, x(disturbance) + 5, y(quality)) for _, _, disturbance, quality in dots]
    labels = []
    for i, method, disturbance, quality in sorted(dots, key=lambda dot: dot[2]):
        across, down = round(x(disturbance)), round(y(quality))
        lines.append(f'<circle cx="{across}" cy="{down}" r="4" fill="{COLORS[i % len(COLORS)]}"/>')
        name = method.partition(":")[0]
        if any(name == other and math.dist((across, down), place) < 40 for other, *place in labels):
            continue
        labels.append((name, across, down))
        left, right, at = across + 6, across + 6 + 7 * len(name), down
        while any(left < end and start < right and abs(at - middle) < 12 for start, end, middle in taken):
            at -= 6
        taken.append((left, right, at))
        lines.append(f'<text x="{left}" y="{at + 4}">{name}</text>')
    for i, group in enumerate(found):
        model_name, unit = group.name.split(": ")
        at = TOP + 10 + 34 * i
        lines.append(f'<circle cx="{RIGHT + 14}" cy="{at}" r="4" fill="{COLORS[i % len(COLORS)]}"/>')
        lines.append(f'<text x="{RIGHT + 24}" y="{at + 4}">{model_name}</text>')
        lines.append(f'<text x="{RIGHT + 24}" y="{at + 17}">{unit.removeprefix("perplexity, ")}</text>')
    return "\n".join(lines) + "\n</svg>\n"
