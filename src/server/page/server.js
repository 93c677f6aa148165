// Requests to the server, and its errors as sentences that tell what to do.

import { whole } from './dom.js';
import { set, setting } from './store.js';

/** An error that is shown on the page. */
export class Fault extends Error {
    /** `kind` is one of key, loading, full, busy, gone, stopped, forbidden, other; `reason` is the server's message. */
    constructor(kind, sentence, reason = sentence) {
        super(sentence);
        this.kind = kind;
        this.reason = reason;
    }
}

/** The model of requests, null if the server has one. */
let model = null;

/** Sets the model of requests. */
export function useModel(name) {
    model = name;
}

/** Returns a path with the model of requests. */
export function ofModel(path) {
    const separator = path.includes('?') ? '&' : '?';
    return model === null ? path : `${path}${separator}model=${encodeURIComponent(model)}`;
}

/** Keeps the key that requests have. */
export function setKey(key) {
    set('key', key || null);
}

/**
 * Sends a request, by POST if it has a body. With `manages`, it has the key for changing models. Throws a `Fault` unless the
 * server accepts it.
 */
export async function send(path, { body, signal, manages = false } = {}) {
    const headers = { Accept: 'application/json' };
    const key = setting('key');
    if (key) headers.Authorization = `Bearer ${key}`;
    const manageKey = manages && setting('manage-key');
    if (manageKey) headers['X-Manage-Key'] = manageKey;
    const options = { headers, signal, cache: 'no-store' };
    if (body) {
        Object.assign(options, { method: 'POST', body: JSON.stringify(model === null ? body : { model, ...body }) });
        headers['Content-Type'] = 'application/json';
    }
    let response;
    try {
        response = await fetch(path, options);
    } catch (error) {
        if (error.name === 'AbortError') throw error;
        throw new Fault('gone', 'The server cannot be reached: start it again with rope-cpu serve, then try again.');
    }
    if (!response.ok) throw fault(response.status, await response.json().catch(() => null));
    return response;
}

/** Returns the JSON of an answer. */
export async function get(path, options) {
    return (await send(path, options)).json();
}

/** Returns the fault of an error that the server answers with. */
export function fault(status, body) {
    // An error of ollama's interface is a text.
    const error = typeof body?.error === 'string' ? { message: body.error } : (body?.error ?? {});
    const message = error.message ?? `the server answered with the status ${status}`;
    if (error.type === 'exceed_context_size_error') {
        return new Fault(
            'full',
            `The context is full: the conversation has ${whole(error.n_prompt_tokens)} tokens, and ` +
                `${whole(error.n_ctx)} fit. Shorten the message, begin a new conversation, or restart the ` +
                `server with ${error.options ?? 'a larger context (-c)'}.`,
        );
    }
    if (status === 401) return new Fault('key', 'The server requires an API key: enter one that was given to it with --api-key.');
    if (status === 429) return new Fault('busy', 'The server is busy, and no more requests may wait: try again in a moment.', message);
    if (status === 503 && /loading/i.test(message)) {
        return new Fault('loading', 'The server is still loading the model: try again when it is ready.');
    }
    if (status === 503) return new Fault('stopped', `The server takes no requests (${message}): start it again, then try again.`);
    return new Fault(status === 403 ? 'forbidden' : 'other', `The server refused the request: ${message}.`, message);
}

/** Returns the number of tokens of a text. */
export async function count(text, signal) {
    const { tokens } = await get('tokenize', { body: { content: text }, signal });
    return tokens.length;
}

/** Yields the JSON of the events of a response as they come. Throws if it ends before `[DONE]`. */
export async function* events(response) {
    for await (const line of lines(response)) {
        const data = line.startsWith('data: ') ? line.slice(6).trim() : null;
        if (data === '[DONE]') return;
        if (data) yield JSON.parse(data);
    }
    throw new Fault('gone', '');
}

/** Yields the lines of a response as they come, until it ends or breaks. */
export async function* lines(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
        const { done, value } = await reader.read().catch((error) => {
            if (error.name === 'AbortError') throw error;
            return { done: true };
        });
        if (done) return;
        const complete = (rest + value).split('\n');
        rest = complete.pop();
        yield* complete;
    }
}
