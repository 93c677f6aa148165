"""Screen readers, keyboards, themes, narrow screens."""

import pytest
from conftest import AXE, LONG, MODEL, Chat, drop, expect

# An answer with all that Markdown has.
ANSWER = """# Positions

Rotary embeddings turn **pairs** of dimensions; see [the paper](https://arxiv.org/abs/2104.09864).

| method | factor |
|---|---:|
| linear | 2 |
| yarn | 4 |

1. Scale
2. Rotate

- [x] Scale
- [ ] Measure

$$\\theta_i = b^{-2i/d}$$

> A quote with `code`.

```rust
/// Returns the angle.
fn angle(position: usize, frequency: f64) -> f64 {
    let text = "a string"; // 42
    position as f64 * frequency
}
```

<script>document.title = 'broken'</script><img src=x onerror="document.title = 'broken'">

![a picture](https://example.org/picture.png) [a script](javascript:alert(1))
"""


def with_answer(page, text=ANSWER):
    """Shows a conversation with an answer, without a model."""
    page.evaluate(
        """async (answer) => {
            const { add, newConversation } = await import('/page/tree.js');
            const store = await import('/page/store.js');
            const conversation = newConversation();
            conversation.title = 'Rotary embeddings';
            const asked = add(conversation, '', 'user', 'How are positions encoded?', {
                files: [{ name: 'notes.txt', text: 'Notes.', tokens: 2 }],
            });
            add(conversation, asked.id, 'assistant', 'A first version.');
            const timings = { cache_n: 5200, prompt_n: 900, prompt_ms: 4000, prompt_per_second: 225, predicted_n: 240, predicted_ms: 9000, predicted_per_second: 26.6 };
            const samples = [['read', 1024, 400], ['read', 3000, 310], ['read', 6100, 225], ['generate', 6110, 28], ['generate', 6340, 26]];
            add(conversation, asked.id, 'assistant', answer, {
                reasoning: 'The user asks about RoPE.',
                answer: { timings, finish: 'length', samples: samples.map(([kind, depth, perSecond]) => ({ kind, depth, perSecond })) },
            });
            await store.open();
            await store.keep(conversation);
            store.set('shown', conversation.id);
        }""",
        text,
    )
    page.reload()
    expect(page.locator(".message.assistant .body .block").first).to_be_visible()
    Chat(page).ready()


# What a finger cannot press well.
SMALL = """() => [...document.querySelectorAll('button, summary, input:not([type=checkbox]), textarea, select')]
    .filter((one) => one.checkVisibility())
    .map((one) => [one.ariaLabel ?? one.textContent.trim() ?? one.id, one.getBoundingClientRect()])
    .filter(([_, { width, height }]) => Math.min(width, height) < 44 && width > 1)
    .map(([name, { width, height }]) => `${name}: ${width} x ${height}`)"""


def violations(page):
    page.evaluate(AXE.read_text())
    result = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [(v["id"], [n["target"] for n in v["nodes"]], v["nodes"][0]["failureSummary"]) for v in result["violations"]]


@pytest.fixture(scope="module")
def long(browser):
    """A server whose context is extended."""
    from conftest import Server

    server = Server("--ctx", "16384", "--rope-scaling", "yarn")
    yield server
    server.kill()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1360, 390])
def test_axe_finds_no_violation(long, visit, scheme, width):
    page = visit(long.url, color_scheme=scheme, viewport={"width": width, "height": 844}, bypass_csp=True)
    Chat(page).ready()
    assert violations(page) == [], "an empty conversation"
    with_answer(page)
    page.locator("details:not([open]) > summary").evaluate_all("all => all.forEach((one) => one.click())")
    assert violations(page) == [], "a conversation"
    if width < 500:
        for name in ["Conversations", "Context and model"]:
            page.get_by_role("button", name=name).click()
            assert violations(page) == [], name
            page.keyboard.press("Escape")
    page.keyboard.press("Control+/")
    assert violations(page) == [], "a dialog"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_during_an_answer(long, visit, scheme):
    page = visit(long.url, color_scheme=scheme, viewport={"width": 390, "height": 844}, bypass_csp=True)
    chat = Chat(page).ready().limit(2000, temperature=0)
    chat.send(LONG)
    chat.send("Say yes.")
    drop(page, "notes.txt", "Notes.")
    expect(page.locator("#composer .files")).to_contain_text("tokens")
    expect(page.get_by_role("button", name="Send after this answer")).to_be_visible()
    expect(chat.answers.last.locator(".body")).not_to_be_empty()
    assert violations(page) == []
    page.get_by_role("button", name="Stop", exact=True).click()
    chat.complete()


def test_nothing_is_wider_than_a_narrow_screen(long, visit):
    page = visit(long.url, viewport={"width": 320, "height": 640})
    with_answer(page)
    for name in [None, "Conversations", "Context and model"]:
        if name:
            page.get_by_role("button", name=name).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, name
        assert page.evaluate("document.querySelector('#scroller').scrollWidth") <= 320, name
        if name:
            page.keyboard.press("Escape")


def test_answers_cannot_run_scripts_or_load_pictures(long, visit):
    page = visit(long.url)
    with_answer(page)
    answer = page.locator(".message.assistant .body").last
    assert answer.locator("script, img, iframe, style, form").count() == 0
    # HTML is text, a picture becomes a link, and a link to a script none.
    expect(answer).to_contain_text("<script>document.title")
    assert answer.get_by_role("link").evaluate_all("all => all.map((link) => link.href)") == [
        "https://arxiv.org/abs/2104.09864",
        "https://example.org/picture.png",
    ]
    assert "broken" not in page.title()
    expect(answer.locator("code .hljs-keyword").first).to_have_text("fn")


def test_the_page_is_used_without_a_mouse(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(4)
    expect(chat.field).to_be_focused()
    page.keyboard.type("Say yes")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("please.")
    page.keyboard.press("Enter")
    expect(page.locator(".message.user .body")).to_have_text("Say yes\nplease.", use_inner_text=True)
    chat.complete()
    expect(page.get_by_role("status")).to_contain_text("The answer is complete")
    page.keyboard.press("Control+Shift+Enter")
    expect(chat.complete().locator(".versions")).to_contain_text("2 / 2")
    chat.field.focus()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_label("The edited message")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Edit the message")).to_be_focused()
    page.keyboard.press("/")
    expect(chat.field).to_be_focused()
    page.keyboard.press("Control+.")
    expect(page.get_by_role("complementary")).to_be_hidden()
    page.keyboard.press("Control+/")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_hidden()


def test_a_theme_is_chosen_and_kept(long, visit):
    page = visit(long.url, color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    for name in ["light", "dark"]:
        page.get_by_role("button", name="Theme").click()
        expect(page.get_by_role("button", name=f"Theme: {name}")).to_be_visible()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) == dark


def test_the_rope_plan_is_shown(long, visit):
    page = visit(long.url)
    Chat(page).ready()
    panel = page.locator("#rope")
    expect(panel).to_contain_text("yarn")
    for title in ["Effective distance", "Wavelength of each dimension pair"]:
        expect(panel.get_by_role("img", name=title)).to_be_visible()
    expect(panel.get_by_role("img", name="Effective distance")).to_have_accessible_name(
        "Effective distance. In 16,384 tokens, the largest distance has the angles of a distance of 8,192 in training "
        "in the slowest dimensions, and of 16,383 in the fastest; the model was trained for 8,192."
    )
    expect(page.locator("#context")).to_contain_text("16,384 tokens (2 × trained)")
    expect(page.locator("#memory")).to_contain_text("Weights")
    expect(page.locator("#memory")).to_contain_text(MODEL.name)


def test_a_plan_that_scales_nothing_is_folded(serve, visit):
    page = visit(serve("--ctx", "512").url)
    Chat(page).ready()
    heading = page.get_by_role("heading", name="RoPE plan")
    panel = page.locator("#rope")
    expect(page.locator("#memory")).to_contain_text("Weights")
    expect(panel.locator("dt").first).to_be_attached()
    expect(panel).to_be_hidden()
    heading.click()
    expect(panel).to_contain_text("none")


@pytest.mark.parametrize("width", [1360, 390])
def test_what_fingers_press_is_large_enough(long, visit, width):
    page = visit(long.url, viewport={"width": width, "height": 844}, has_touch=True, is_mobile=True)
    with_answer(page)
    drop(page, "notes.txt", "Notes.")
    expect(page.locator("#composer .chip")).to_contain_text("tokens")
    page.locator("details:not([open]) > summary").evaluate_all("all => all.forEach((one) => one.click())")
    assert page.evaluate(SMALL) == []
    page.get_by_role("button", name="Export").click()
    assert page.evaluate(SMALL) == [], "the menu"
    page.keyboard.press("Escape")
    for name in ["Conversations", "Context and model"] if width < 500 else []:
        page.get_by_role("button", name=name).click()
        assert page.evaluate(SMALL) == [], name
        page.keyboard.press("Escape")


@pytest.mark.parametrize("width", [1100, 390])
def test_the_panel_lies_over_the_conversation(long, visit, width):
    page = visit(long.url, viewport={"width": width, "height": 844})
    with_answer(page)
    before = page.locator("main").bounding_box()
    page.get_by_role("button", name="Context and model").click()
    expect(page.get_by_role("complementary")).to_be_visible()
    assert page.locator("main").bounding_box() == before
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("complementary")).to_be_hidden()
    expect(page.get_by_role("button", name="Context and model")).to_be_focused()


@pytest.mark.parametrize("width", [1360, 900, 390, 320])
def test_the_export_menu_is_below_its_button(long, visit, width):
    page = visit(long.url, viewport={"width": width, "height": 800})
    with_answer(page)
    button = page.get_by_role("button", name="Export")
    button.click()
    menu = page.locator("#export")
    expect(menu).to_be_visible()
    above, box = button.bounding_box(), menu.bounding_box()
    assert 0 <= box["y"] - above["y"] - above["height"] <= 10, (above, box)
    assert box["x"] <= above["x"] + above["width"] and above["x"] <= box["x"] + box["width"], (above, box)
    assert box["x"] >= 8 and box["x"] + box["width"] <= width - 8, box
    if width > 500:
        assert abs(box["x"] + box["width"] - above["x"] - above["width"]) < 1, (above, box)


def test_escape_closes_the_menu_first(long, visit):
    page = visit(long.url)
    with_answer(page)
    chat = Chat(page).limit(4000, temperature=0)
    chat.send("Count to a thousand.")
    expect(chat.answers.last.locator(".body")).not_to_be_empty()
    page.get_by_role("button", name="Export").click()
    page.keyboard.press("Escape")
    expect(page.locator("#export")).to_be_hidden()
    expect(page.get_by_role("button", name="Export")).to_be_focused()
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(chat.complete().locator(".notice")).to_contain_text("stopped")
    expect(chat.field).to_be_focused()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(chat.field).to_be_focused()
