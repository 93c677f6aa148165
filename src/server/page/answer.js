// An answer, from the request to its end: the text, the progress of reading, the speed.

import { Fault, events, fault, send } from './server.js';

/** The time over which the present speed is taken, in milliseconds. */
const RECENT = 3000;

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
    try {
        for await (const event of events(await send('v1/chat/completions', { body, signal }))) {
            if (event.error) throw fault(event.error.code, event);
            const delta = event.choices?.[0]?.delta ?? {};
            node.reasoning = joined(node.reasoning, delta.reasoning_content);
            node.content += delta.content ?? '';
            state.finish = event.choices?.[0]?.finish_reason ?? state.finish;
            const reading = event.prompt_progress;
            if (event.timings) state.timings = event.timings;
            if (reading && reading.processed < reading.total) {
                changed(progress(reading, speed));
                continue;
            }
            if (event.timings?.predicted_n > 0) {
                if (!began) speed.restart();
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
        delete state.now;
    }

    function progress(reading) {
        const { total, cache, processed, time_ms } = reading;
        speed.add(time_ms, processed - cache);
        const perSecond = speed.perSecond();
        if (perSecond) sample(state.samples, 'read', processed, perSecond);
        return { total, cache, processed, perSecond, left: perSecond ? (total - processed) / perSecond : null };
    }
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
