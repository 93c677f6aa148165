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
# Fewer points have no interval worth printing.
LEAST = 5
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
    quality: dict = field(default_factory=dict)

    def points(self, direction):
        """{method: (disturbance, quality)}."""
        found = plans(self.length, list(self.quality), self.path)
        return {method: (found[method][f"disturbance_{direction}"], value) for method, value in self.quality.items()}


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
            if windows:
                text = record["text"].removesuffix(".txt")
                key = (model_name, f"perplexity, {text}, windows of {length:,} by {windows['stride']:,}")
                value = records.perplexity(record, trained, length)
            elif "found" in record:
                key = (model_name, f"passkeys missed at {length:,} tokens")
                value = not record["found"]
            else:
                continue
            group = found.setdefault(key, Group(": ".join(key), key[1], plan, length, model(trained, size, base)))
            group.quality.setdefault(record["method"], []).append(value)
    for group in found.values():
        group.quality = {method: sum(values) / len(values) for method, values in group.quality.items()}
    return [group for group in found.values() if len(group.quality) >= 3]


def shown(name, points):
    """A row of the table."""
    rho = ranks.spearman(points)
    count = sum(map(len, points))
    if rho is None:
        return f"| {name} | {count} | all alike | |"
    low, high = ranks.interval(points)
    between = f"{low:.2f} to {high:.2f}" if count >= LEAST else "too few points"
    return f"| {name} | {count} | {rho:.2f} | {between} |"


def section():
    """Markdown of the tables, and the drawing."""
    found = groups()
    text = []
    for direction, means in (("code", "as the authors' program measures it"), ("paper", "as equation 8 defines it")):
        each = [(group.name, list(group.points(direction).values())) for group in found]
        perplexities = [points for (_, points), group in zip(each, found) if "perplexity" in group.unit]
        text += [f"Disturbance {means} (`--direction {direction}`):", "",
                 "| quality | points | rank correlation | 95 % interval |", "|---|--:|--:|--:|",
                 *(shown(name, [points]) for name, points in each),
                 shown("all perplexities, ranked in each group", perplexities), ""]
        low, high = ranks.interval(perplexities)
        text += ["All perplexities together: " + (
            "the interval contains 0, so these points do not show that disturbance predicts quality."
            if low <= 0 <= high else "the interval does not contain 0, so disturbance and perplexity go together."), ""]
    return "\n".join(text), drawing([group for group in found if "perplexity" in group.unit])


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
