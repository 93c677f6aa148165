"""An answer: who wrote it, and how long reading takes."""

from conftest import MODEL, Chat, document, drop, expect

# Answers by a server of its own, in steps of 300 ms.
READING = """async ({ model, times }) => {
    const { answer } = await import('/page/answer.js');
    const event = (data) => `data: ${JSON.stringify({ model, choices: [{ delta: {} }], ...data })}\\n\\n`;
    const read = times.map((time_ms, batch) => event({ prompt_progress: { total: 1000, cache: 0, processed: 500 * batch, time_ms } }));
    const timings = { cache_n: 0, prompt_n: 1000, prompt_ms: 40000, prompt_per_second: 25, predicted_n: 1, predicted_ms: 10, predicted_per_second: 100 };
    const parts = [...read, event({ timings, choices: [{ delta: { content: 'Yes.' } }] }), 'data: [DONE]\\n\\n'];
    window.fetch = async () => new Response(new ReadableStream({
        async pull(controller) {
            if (parts.length === 0) return controller.close();
            controller.enqueue(new TextEncoder().encode(parts.shift()));
            await new Promise((resolve) => setTimeout(resolve, 300));
        },
    }));
    const seen = [];
    await answer({ content: '' }, [], {}, undefined, (reading) => reading && seen.push(reading.left));
    return seen;
}"""


def test_the_time_left_is_estimated_from_the_first_batch(serve, visit):
    page = visit(serve("--ctx", "512").url)
    Chat(page).ready()
    read = lambda model, times: page.evaluate(READING, {"model": model, "times": times})
    # Nothing is known before the first batch of the first prompt; then half of the prompt took 20 s.
    first, second = read("a", [0, 20_000])
    assert first is None and 19.9 < second <= 20
    # The last prompt was read with 25 tokens per second.
    first, second = read("a", [0, 10_000])
    assert 39.9 < first <= 40 and 9.9 < second <= 10
    assert read("b", [0, 20_000])[0] is None, "another model"


def test_the_time_left_goes_down_within_a_batch(serve, visit):
    page = visit(serve("--ctx", "512").url)
    Chat(page).ready()
    page.evaluate("localStorage.setItem('rope-cpu.reading', JSON.stringify({ model: 'a', perSecond: 25 }))")
    slow = READING.replace("setTimeout(resolve, 300)", "setTimeout(resolve, 2500)")
    seen = page.evaluate(slow, {"model": "a", "times": [0]})
    assert len(seen) >= 3 and seen == sorted(seen, reverse=True) and 37 < seen[-1] < 39.2, seen


def test_keep_alives_do_not_hide_the_progress_of_reading(serve, visit):
    # A batch takes a few seconds, in which the server sends an event without text each second.
    page = visit(serve("--ctx", "4096", "--power", "10", "--sse-ping-interval", "1").url)
    chat = Chat(page).ready().limit(2)
    file = document(800)
    drop(page, file["name"], file["text"])
    expect(page.locator("#composer .chip")).to_contain_text("tokens")
    page.evaluate(
        """() => {
            window.seen = [];
            const look = () => {
                const status = document.querySelector('.message.assistant .reading');
                const text = status?.hidden === false ? status.innerText.split(' ')[0] : '';
                if (text && window.seen.at(-1) !== text) window.seen.push(text);
            };
            new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true, attributes: true });
        }"""
    )
    chat.send("Summarise.")
    chat.complete()
    assert page.evaluate("window.seen") in (["Waiting", "Reading"], ["Reading"])


def test_an_answer_has_the_name_of_its_model(serve, visit):
    page = visit(serve("--ctx", "512").url)
    chat = Chat(page).ready().limit(4)
    answer = chat.ask("Say yes.")
    name = MODEL.name.removesuffix(".gguf")
    expect(answer.get_by_role("heading", name=name)).to_be_visible()
    page.reload()
    expect(chat.answers.last.get_by_role("heading", name=name)).to_be_visible()
