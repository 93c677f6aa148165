// Markdown's lexer within limits, so that no text ends the page or blocks it for long. What exceeds them is plain text.
//
// Work is counted, not timed: the same text always looks the same. A unit is about a nanosecond or two.

import { Lexer } from './vendor.js';

/** The longest text, in letters, that is read as Markdown: several times the longest answers. */
const TEXT_MAX = 200_000;

/** The most levels of quotes and lists in each other, and of marks within a line. */
const DEPTH_MAX = 24;

/** The most work for a text. */
const WORK_MAX = 200_000_000;

/** The work of any part: its tokens and elements. */
const PART = 5000;

/** The most code that is highlighted in a text, and the longest line of it, in letters: the work grows with their squares. */
const HIGHLIGHTED_MAX = 20_000;
const LINE_MAX = 500;

export class LimitedLexer extends Lexer {
    #depth = 0;
    #work = 0;
    #highlighted = 0;

    lex(text) {
        if (text.length <= TEXT_MAX) return super.lex(text);
        this.tokens.push(plain(text));
        return this.tokens;
    }

    blockTokens(text, tokens = [], ...more) {
        const permitted = this.#depth < DEPTH_MAX && this.permits(PART + text.length);
        if (permitted) {
            this.#within(() => super.blockTokens(text, tokens, ...more));
            for (const token of tokens) if (token.type === 'code') token.highlighted ??= this.#highlights(token.text);
            return tokens;
        }
        // As at the end of the method that this replaces.
        this.state.top = true;
        tokens.push(plain(text));
        return tokens;
    }

    inlineTokens(text, tokens = []) {
        // Each mark may search all of the text for its end.
        const permitted = this.#depth < DEPTH_MAX && this.permits(PART + text.length ** 2);
        if (permitted) return this.#within(() => super.inlineTokens(text, tokens));
        tokens.push({ type: 'text', raw: text, text, escaped: false });
        return tokens;
    }

    /** Counts work. Returns whether it may be done. Work that may not leaves room for less. */
    permits(work) {
        if (this.#work + work > WORK_MAX) return false;
        this.#work += work;
        return true;
    }

    #highlights(code) {
        const permitted = this.#highlighted + code.length <= HIGHLIGHTED_MAX && code.split('\n').every((line) => line.length <= LINE_MAX);
        if (permitted) this.#highlighted += code.length;
        return permitted;
    }

    #within(read) {
        this.#depth++;
        try {
            return read();
        } finally {
            this.#depth--;
        }
    }
}

/** Returns the block of a text that is shown as it is. */
export function plain(text) {
    return { type: 'plain', raw: text, text };
}
