// Messages that are being written, by conversation. They survive a reload.
//
// A draft: { content, files, waiting }, where `waiting` has the messages that are sent after the present answer.

import { set, setting } from './store.js';
import { openTable } from './table.js';

/** The time after a change of the text until it is kept, in milliseconds. */
const KEEP_AFTER = 300;

const EMPTY = { content: '', files: [], waiting: [] };

/** The draft of a conversation that has no message yet. */
const NEW = 'new';

export class Drafts {
    #act = null;
    #drafts = new Map();
    #changed = new Set();
    #timer = null;

    constructor() {
        // The database is too slow for a page that is left, so the texts of the last moment are kept as a setting.
        addEventListener('pagehide', () => {
            const texts = [...this.#changed].map((id) => ({ id, content: this.#drafts.get(id).content }));
            set('left', texts.length > 0 ? texts : null);
        });
    }

    /** Loads what the browser keeps. Messages that waited for an answer are drafts again, as no answer is awaited now. */
    async open() {
        this.#act = await openTable('rope-cpu-drafts', 'drafts').catch(() => null);
        const kept = this.#act ? await this.#act('readonly', (table) => table.getAll()) : [];
        for (const { id, ...draft } of kept) this.#drafts.set(id, draft);
        for (const { id, content } of setting('left', [])) {
            this.#drafts.set(id, { ...(this.#drafts.get(id) ?? EMPTY), content });
            this.#changed.add(id);
        }
        this.#keep();
        set('left', null);
        for (const [id, draft] of this.#drafts) this.#drafts.set(id, withdrawn(draft));
    }

    of(conversation) {
        return this.#drafts.get(key(conversation)) ?? EMPTY;
    }

    set(conversation, draft) {
        const id = key(conversation);
        const { files, waiting } = this.#drafts.get(id) ?? EMPTY;
        this.#drafts.set(id, draft);
        this.#changed.add(id);
        clearTimeout(this.#timer);
        if (draft.files !== files || draft.waiting !== waiting) this.#keep();
        else this.#timer = setTimeout(() => this.#keep(), KEEP_AFTER);
    }

    remove(conversation) {
        this.set(conversation, EMPTY);
    }

    #keep() {
        const changed = [...this.#changed];
        this.#changed.clear();
        if (!this.#act || changed.length === 0) return;
        const write = (table) => changed.map((id) => {
            const draft = this.#drafts.get(id);
            const isEmpty = !draft.content && draft.files.length === 0 && draft.waiting.length === 0;
            return isEmpty ? table.delete(id) : table.put({ id, ...draft });
        }).at(-1);
        // A draft that the browser cannot keep is there until the page is left.
        this.#act('readwrite', write).catch(() => {});
    }
}

function key({ id, nodes }) {
    return nodes.length > 0 ? id : NEW;
}

/** Returns a draft with the messages that wait put before its own text. */
export function withdrawn({ content, files, waiting }) {
    const all = [...waiting, { content, files }];
    return {
        content: all.map((message) => message.content).filter(Boolean).join('\n\n'),
        files: all.flatMap((message) => message.files),
        waiting: [],
    };
}
