"""What answers may consist of: lists of tasks, formulas, text from right to left."""

import pytest
from conftest import expect
from test_accessibility import with_answer


@pytest.fixture
def show(serve, visit):
    """Shows an answer. Returns its element."""
    url = serve("--ctx", "512").url

    def show(text):
        page = visit(url)
        with_answer(page, text)
        return page.locator(".message.assistant .body").last

    return show


def test_tasks_have_boxes(show):
    answer = show("- [x] Scale\n- [ ] Measure\n\n1. [x] Loose\n\n2. Plain")
    boxes = answer.get_by_role("checkbox")
    assert boxes.evaluate_all("all => all.map((box) => [box.ariaLabel, box.checked, box.disabled])") == [
        ["Done", True, True],
        ["To do", False, True],
        ["Done", True, True],
    ]
    expect(answer.get_by_role("listitem").first).to_have_text("Scale")


FORMULAS = r"""The angle of $m$ is \(m\theta_i\), where

$$
\theta_i = b^{-2i/d}
$$

and
\[
\begin{aligned} x' &= x \cos m\theta \\ y' &= y \sin m\theta \end{aligned}
\]

\begin{align}
a &= b
\end{align}

- in a list: $\sqrt{2}$
"""


def test_formulas_are_shown(show):
    answer = show(FORMULAS)
    expect(answer.locator("math")).to_have_count(6)
    expect(answer.locator("math[display=block]")).to_have_count(3)
    expect(answer.locator("math mtable")).to_have_count(2)
    expect(answer.locator("li math msqrt")).to_have_count(1)
    text = answer.inner_text()
    assert "$" not in text and "\\" not in text, text


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5, or $10 for two.",
        "From $5-$10 to US$3.",
        "In `$HOME and $PATH` only.",
        r"A wrong one: $\frac{a$ stays.",
        r"\[ x = 1 and no end",
        r"$\href{javascript:alert(1)}{x}",
        r"$\def\a{x}\a$",
        r"$\newcommand{\a}{x}\a$",
        r"$\let\a=x\a$",
    ],
)
def test_what_is_no_formula_stays_text(show, text):
    answer = show(f"{text}\n\n$x$")
    expect(answer.locator("math")).to_have_count(1)
    expect(answer.locator(".block").first).to_have_text(text.replace("`", "").replace("\\[", "["))


def test_formulas_have_no_links_or_pictures(show):
    answer = show(r"$\href{https://example.org}{x}$ $\includegraphics{https://example.org/a.png}$ $x$")
    expect(answer.locator("math").last).to_have_text("x")
    assert answer.locator("a, img, [href], [src]").count() == 0


def test_each_block_has_its_own_direction(show):
    answer = show(
        "An English paragraph.\n\nفقرة بالعربية مع `code` و $x+1$.\n\n- שלום\n- עולם\n\n> اقتباس\n\n"
        "| אחד | שניים |\n|---|---|\n| 1 | 2 |\n\n```\nشيفرة\n```"
    )
    direction = "all => all.map((node) => getComputedStyle(node).direction)"
    assert answer.locator("p, ul, blockquote, table").evaluate_all(direction) == ["ltr", "rtl", "rtl", "rtl", "rtl", "rtl"]
    assert answer.locator("pre, p code, .formula").evaluate_all(direction) == ["ltr"] * 3
    # The bullets of a list are on its side.
    side = "list => getComputedStyle(list).paddingRight"
    assert answer.locator("ul").evaluate(side) == "24px"
    page = answer.page
    field = page.get_by_label("Message", exact=True)
    field.fill("مرحبا")
    assert field.evaluate("field => getComputedStyle(field).direction") == "rtl"
