"""No text ends the page: what exceeds a limit of rendering is shown as plain text."""

import pytest
from conftest import expect
from test_markdown import show  # noqa: F401 (a fixture)

# Texts that a Markdown library takes too deep or too long for, and what they still show.
HOSTILE = {
    "quotes": ">" * 3000 + " the end",
    "quotes-and-lists": "> - " * 3000 + "the end",
    "numbered-lists": "1. " * 3000 + "the end",
    "lists-by-lines": "\n".join("  " * depth + "- item" for depth in range(400)) + " the end",
    "emphasis": "*a " * 3000 + "the end" + " a*" * 3000,
    "strong": "**a *b " * 3000 + "the end" + " b* a**" * 3000,
    "brackets": "[" * 60_000 + "the end",
    "links": "[" * 3000 + "the end" + "](b)" * 3000,
    "exclamations": "!" * 60_000 + "the end",
    "mail": "a" * 60_000 + "@ the end",
    "paragraphs": ("*a **b ~~c `d [e ![f " * 100 + "\n\n") * 90 + "the end",
    "formulas-without-end": "\\[x\n" * 15_000 + "the end",
    "dollars-without-end": "$$x\n" * 15_000 + "the end",
    "environments-without-end": "\\begin{align}\n" * 5000 + "the end",
    "many-formulas": "$x$ $\\sqrt{x}$\n\n" * 10_000 + "the end",
    "long": "word " * 50_000 + "the end",
    "code": "```json\n" + "{" * 50_000 + "\n```\n\nthe end",
    "code-of-one-word": "```typescript\n" + "a" * 60_000 + "\n```\n\nthe end",
    "much-code": ("```csharp\n" + "a " * 200 + "\n```\n\n") * 300 + "the end",
    "table": "|a" * 2000 + "\n" + "|-" * 2000 + "\n" + ("|b" * 2000 + "\n") * 20 + "\nthe end",
    "definitions": "$" + "".join(f"\\def\\{chr(97 + n)}{{{(chr(92) + chr(98 + n)) * 40}}}" for n in range(24)) + "\\a$ the end",
    "nested-definitions": "$" + "\\def\\a{" * 600 + "x" + "}" * 600 + "$ the end",
    "new-commands": "$\\newcommand{\\a}[1]{#1#1#1#1}" + "\\a{" * 200 + "x" + "}" * 200 + "$ the end",
    "deep-formula": "$" + "\\sqrt{" * 600 + "x" + "}" * 600 + "$ the end",
    "braces": "$" + "{" * 1900 + "x" + "}" * 1900 + "$ the end",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_any_text_is_shown(show, name):  # noqa: F811
    answer = show(HOSTILE[name])
    expect(answer).to_contain_text("the end")
    # The page works, as after each reload.
    field = answer.page.get_by_label("Message", exact=True)
    field.fill("Still here")
    expect(field).to_have_value("Still here")
    depth = """(root) => {
        const depth = (node) => 1 + Math.max(0, ...[...node.children].slice(0, 1000).map(depth));
        return depth(root);
    }"""
    assert answer.evaluate(depth) < 150
    assert answer.locator("*").count() < 120_000


def test_what_exceeds_a_limit_is_plain_and_the_rest_is_not(show):  # noqa: F811
    long = "a *b* " * 4000
    code = "```rust\nfn main() {}\n```"
    much = "```rust\n" + "fn main() {}\n" * 2000 + "```"
    answer = show(f"*first* $x$\n\n{long}\n\n{'>' * 40}deep\n\n{code}\n\n{much}\n\n1. a\n\n   {code.replace(chr(10), chr(10) + '   ')}\n\n*last* $y$")
    expect(answer.locator("em")).to_have_text(["first", "last"])
    expect(answer.locator("math")).to_have_count(2)
    expect(answer.locator(".plain")).to_have_text(">" * 16 + "deep")
    # Code up to the limit is highlighted, in lists as well.
    assert answer.locator(".code").evaluate_all("all => all.map((code) => code.querySelectorAll('.hljs-keyword').length)") == [1, 0, 1]
    assert answer.locator(".code pre").last.inner_text() == "fn main() {}"


def test_formulas_of_a_text_have_a_limit(show):  # noqa: F811
    answer = show("$x_i$ $y_i$\n\n" * 2000)
    shown = answer.locator("math").count()
    assert 1000 < shown < 2000, shown
    # The others are their source.
    assert answer.inner_text().count("$x_i$ $y_i$") > 900


@pytest.mark.parametrize("line", ["$$x", "\\[x", "\\begin{align}"])
def test_formulas_without_end_do_not_cut_their_paragraph(show, line):  # noqa: F811
    page = show("A first one.").page
    counted = page.evaluate(
        """async (text) => {
            const { LimitedLexer } = await import('/page/lexer.js');
            const { Markdown } = await import('/page/markdown.js');
            const { permits } = LimitedLexer.prototype;
            let calls = 0;
            LimitedLexer.prototype.permits = function (work) {
                calls++;
                return permits.call(this, work);
            };
            const place = document.createElement('div');
            new Markdown(place).show(text);
            return [calls, place.children.length];
        }""",
        f"{line}\n" * 15_000,
    )
    # At most those in the longest formula are tried, and not each line.
    assert counted[0] < 3000 and counted[1] == 1, counted


def test_a_text_that_the_library_fails_for_is_shown(show):  # noqa: F811
    page = show("A first one.").page
    text = page.evaluate(
        """async () => {
            const { hljs } = await import('/page/vendor.js');
            const { Markdown } = await import('/page/markdown.js');
            hljs.getLanguage = () => { throw new RangeError('Maximum call stack size exceeded'); };
            const place = document.createElement('div');
            new Markdown(place).show('*a*\\n\\n```rust\\nfn\\n```');
            return place.textContent;
        }"""
    )
    assert text == "*a*\n\n```rust\nfn\n```"


@pytest.mark.parametrize("source", [r"\kern{-99999em}x", r"\hspace{-300em}x", r"\raisebox{-90em}{x}", r"\llap{" + "w" * 400 + "}"])
@pytest.mark.parametrize("marks", ["$", "$$"])
def test_formulas_draw_in_their_box(show, source, marks):  # noqa: F811
    answer = show(f"before {marks}{source}{marks} after" if marks == "$" else f"{marks}{source}{marks}")
    expect(answer.locator("math")).to_have_count(1)
    # What is drawn is within the formula, and the formula within the answer.
    boxes = answer.evaluate(
        """(answer) => {
            const formula = answer.querySelector('.formula');
            const { overflowX, overflowY } = getComputedStyle(formula);
            const box = formula.getBoundingClientRect();
            const around = answer.getBoundingClientRect();
            return [overflowX, overflowY, box.left >= around.left - 1, box.top >= around.top - 1];
        }"""
    )
    assert boxes[0] in ("clip", "auto") and boxes[1] in ("clip", "hidden"), boxes
    assert boxes[2:] == [True, True], boxes


def test_formulas_stay_on_their_line(show):  # noqa: F811
    answer = show("before $x_i^2 + \\frac{a}{b}$ after $\\vec{v}$")
    expect(answer.locator("math")).to_have_count(2)
    # The box that clips a formula does not move it off the line of the text.
    tops = """(answer) => {
        const base = (node) => {
            const mark = document.createElement('span');
            mark.style.cssText = 'display:inline-block;width:1px;height:1px';
            node.append(mark);
            return mark.getBoundingClientRect().bottom;
        };
        const variable = answer.querySelector('math mi').getBoundingClientRect().bottom;
        return [variable, base(answer.querySelector('p'))];
    }"""
    variable, line = answer.evaluate(tops)
    assert abs(variable - line) < 8, (variable, line)
