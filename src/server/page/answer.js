// An answer, from the request to its end: the text, the progress of reading, the speed.

import { Fault, events, fault, send } from './server.js';
import { set, setting } from './store.js';

/** The time over which the present speed is taken, in milliseconds. */
const RECENT = 3000;

/** The time between two estimates of the time left, in milliseconds. */
const ESTIMATE_EVERY = 1000;

/** The fewest tokens with a speed of reading that later estimates take. */
const READ_MIN = 32;

/**
 * Requests an answer to `messages`, and writes it to `node`. `changed(progress)` is called after each
 * event, with the progress while the prompt is being read, else null. Returns when the answer has ended.
 */
export async function answer(node, messages, settings, signal, changed) {
    const body = { ...settings, messages, stream: true, return_progress: true, timings_per_token: true };
    delete node.answer?.fault;
    const state = (node.answer = { samples: node.answer?.samples ?? [] });
    const speed = new Speed();
    let began = false;
    let reading = null;
    // A batch can take many seconds, in which the time left goes down.
    const estimates = setInterval(() => reading && changed(reading()), ESTIMATE_EVERY);
    try {
        for await (const event of events(await send('v1/chat/completions', { body, signal }))) {
            if (event.error) throw fault(event.error.type === 'unavailable_error' ? 503 : 500, event);
            const delta = event.choices?.[0]?.delta ?? {};
            node.reasoning = joined(node.reasoning, delta.reasoning_content);
            node.content += delta.content ?? '';
            state.finish = event.choices?.[0]?.finish_reason ?? state.finish;
            state.model = event.model ?? state.model;
            if (event.timings) state.timings = event.timings;
            const { prompt_progress: read } = event;
            if (read) reading = read.processed < read.total ? progress(read, state.model) : null;
            // A keep-alive is an event without text. It comes while a batch is being read.
            const generates = event.timings?.predicted_n > 0;
            if (generates || state.finish) reading = null;
            if (reading) {
                changed(reading());
                continue;
            }
            if (generates) {
                if (!began) {
                    speed.restart();
                    remember(state.model, event.timings);
                }
                began = true;
                const { cache_n, prompt_n, predicted_n, predicted_ms } = event.timings;
                speed.add(predicted_ms, predicted_n);
                state.now = speed.perSecond();
                sample(state.samples, 'generate', cache_n + prompt_n + predicted_n, state.now);
            }
            changed(null);
        }
    } catch (error) {
        state.fault = sentence(error, node);
        if (error.name === 'AbortError') state.stopped = true;
        else throw Object.assign(error, { shown: state.fault });
    } finally {
        clearInterval(estimates);
        delete state.now;
    }

    /** Returns a function of the progress with the time left, which counts down. */
    function progress({ total, cache, processed, time_ms }, model) {
        speed.add(time_ms, processed - cache);
        const perSecond = speed.perSecond();
        if (perSecond) sample(state.samples, 'read', processed, perSecond);
        // In the first batch, the speed of the last prompt is all that is known.
        const assumed = perSecond ?? remembered(model);
        const at = performance.now();
        const left = () => Math.max(0, (total - processed) / assumed - (performance.now() - at) / 1000);
        return () => ({ total, cache, processed, perSecond, left: assumed ? left() : null });
    }
}

/** Keeps the speed of reading a prompt, for estimates. */
function remember(model, { prompt_n, prompt_per_second }) {
    if (prompt_n >= READ_MIN && prompt_per_second > 0) set('reading', { model, perSecond: prompt_per_second });
}

/** Returns the tokens per second with which the model read the last prompt, null if it is not known. */
function remembered(model) {
    const last = setting('reading');
    return last?.model === model ? last.perSecond : null;
}

/** Returns what is shown below an answer that did not end by itself, null if nothing. */
function sentence(error, node) {
    if (error.name === 'AbortError') return null;
    if (!(error instanceof Fault)) return `The page failed: ${error.message}. Reload it, then try again.`;
    if (error.kind !== 'gone' || !error.message) {
        if (error.kind !== 'gone') return error.message;
        return node.content
            ? 'The server went away in the middle of the answer. The text so far is kept: start the server again, then continue.'
            : 'The server went away before the answer began: start it again, then try again.';
    }
    return error.message;
}

function joined(before, more) {
    return more ? (before ?? '') + more : before;
}

/** Adds a speed at a depth, in tokens, unless one is near. */
function sample(samples, kind, depth, perSecond) {
    const last = samples.findLast((sample) => sample.kind === kind);
    const far = !last || Math.abs(depth - last.depth) >= Math.max(16, depth / 64);
    if (far && perSecond) samples.push({ kind, depth, perSecond });
}

/** The present speed, from counts of tokens at times in milliseconds. */
class Speed {
    #points = [];

    restart() {
        this.#points = [];
    }

    add(time, tokens) {
        this.#points.push({ time, tokens });
        while (this.#points.length > 2 && time - this.#points[1].time > RECENT) this.#points.shift();
    }

    /** Returns the tokens per second, null before it can be known. */
    perSecond() {
        const [first, last] = [this.#points[0], this.#points.at(-1)];
        const time = last ? last.time - first.time : 0;
        return time > 0 && last.tokens > first.tokens ? (1000 * (last.tokens - first.tokens)) / time : null;
    }
}
