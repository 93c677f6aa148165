// What is done with conversations: sending, editing, regenerating, continuing, stopping.

import { answer } from './answer.js';
import { announce, whole } from './dom.js';
import { LARGER, longer } from './fit.js';
import { given } from './settings.js';
import * as store from './store.js';
import { Tabs } from './tabs.js';
import { absorb, add, choose, depth, messages, newConversation, path, titleOf } from './tree.js';

/** The time between two copies of an answer that is being written, in milliseconds. */
const KEEP_EVERY = 1000;

/** The time between two looks of other tabs at an answer that is being written, in milliseconds. */
const SHOW_EVERY = 200;

export class Chat {
    /** The conversations that the browser keeps, the latest first. */
    conversations = [];
    /** The conversation that is shown. */
    current = newConversation();
    #running = new Map();
    #tabs = new Tabs({
        kept: (id) => this.#follow(id),
        progress: (...written) => this.#progress(...written),
        ended: (id, node) => this.#ended(id, node),
        stop: (id) => this.#running.get(id)?.controller.abort(),
        writing: () => [...this.#running].map(([id, { node }]) => ({ id, node })),
    });

    /** `view` has show, progress(node, reading), sent, ended(conversation, node, fault) and say. `connection` gives the context. */
    constructor(view, connection) {
        Object.assign(this, { view, connection });
    }

    /** Loads what the browser keeps, and shows a conversation, or the one that was shown last. Returns whether it is the first. */
    async load(id) {
        this.conversations = await store.all();
        if (this.conversations.some(({ nodes }) => nodes.some(isUnfinished))) await this.#tabs.ask();
        for (const { id, nodes } of this.conversations) markLeft(nodes.filter((node) => node.id !== this.#tabs.writes(id)));
        const shown = id ?? store.setting('shown');
        const last = this.conversations.find((conversation) => conversation.id === shown);
        this.open(last ?? newConversation(store.setting('unsent-system') ?? store.setting('system', '')));
        return !id || last !== undefined;
    }

    /** Shows the conversation with an identifier, or a new one for null. Returns whether there is one. */
    openNamed(id) {
        const conversation = this.conversations.find((conversation) => conversation.id === id);
        if (conversation) this.open(conversation);
        else this.begin();
        return !id || conversation !== undefined;
    }

    /** Adds a conversation, and shows it. */
    add(conversation) {
        this.conversations.unshift(conversation);
        this.#keep(conversation, conversation.nodes);
        this.open(conversation);
    }

    /** Shows what another tab has done with a conversation. */
    async #follow(id) {
        const stored = await store.one(id);
        const known = this.conversations.find((conversation) => conversation.id === id);
        if (!stored && known) {
            this.#forget(known);
            return;
        }
        if (known) absorb(known, stored, [this.writing(known), this.writtenElsewhere(known)]);
        else if (stored) this.conversations.unshift(stored);
        this.view.show();
    }

    /** Shows what another tab has written of an answer. */
    #progress(id, written, reading, isNew) {
        const conversation = this.conversations.find((conversation) => conversation.id === id);
        const node = conversation?.nodes.find((node) => node.id === written.id);
        // A new one comes with its conversation.
        if (!node) return;
        Object.assign(node, written);
        if (isNew) this.view.show();
        if (conversation === this.current) this.view.progress(node, reading);
    }

    /** Shows that another tab writes an answer no more. If that was not its end, the tab was left. */
    async #ended(id, written) {
        await this.#follow(id);
        const conversation = this.conversations.find((conversation) => conversation.id === id);
        const node = conversation?.nodes.find((node) => node.id === written);
        if (!node) return;
        markLeft([node]);
        this.view.show();
        this.view.ended(conversation, node, null);
    }

    #forget(conversation) {
        this.#running.get(conversation.id)?.controller.abort();
        this.conversations = this.conversations.filter((other) => other !== conversation);
        if (this.current === conversation) this.begin();
        else this.view.show();
    }

    open(conversation) {
        this.current = conversation;
        store.set('shown', conversation.nodes.length > 0 ? conversation.id : null);
        this.view.show();
    }

    begin() {
        store.set('unsent-system', null);
        this.open(newConversation(store.setting('system', '')));
    }

    /** Returns the node of a conversation that is being written, null if none. */
    writing(conversation = this.current) {
        return this.#running.get(conversation.id)?.node ?? null;
    }

    /** Returns the shown node of a conversation that another tab is writing, null if none. */
    writtenElsewhere(conversation = this.current) {
        const written = this.#tabs.writes(conversation.id);
        return written ? (path(conversation).find(({ id }) => id === written) ?? null) : null;
    }

    send({ content, files }, conversation = this.current) {
        const parent = path(conversation).at(-1)?.id ?? '';
        const node = add(conversation, parent, 'user', content, files.length > 0 ? { files } : {});
        if (!this.conversations.includes(conversation)) this.conversations.unshift(conversation);
        if (parent === '') store.set('unsent-system', null);
        if (!conversation.title) conversation.title = titleOf(node);
        if (conversation === this.current) store.set('shown', conversation.id);
        this.#answer(node, conversation);
    }

    /** Returns what would be sent with a message, at the end of a conversation or in the place of a node. */
    asked(message, instead = null, conversation = this.current) {
        const nodes = path(conversation);
        const before = instead ? nodes.slice(0, nodes.indexOf(instead)) : nodes;
        return messages(conversation, [...before, { ...message, role: 'user' }]);
    }

    /** Sends a message again with another text, as a version of it. */
    edit(node, content) {
        const files = node.files ? { files: node.files } : {};
        this.#answer(add(this.current, node.parent, 'user', content, files));
    }

    /** Requests another answer, beside an earlier one or, if that one is empty, in its place. */
    regenerate(node, instead = false) {
        if (instead) {
            delete node.reasoning;
            this.#run(node);
        } else {
            this.#answer({ id: node.parent });
        }
    }

    /** Continues an answer that did not end by itself. */
    resume(node) {
        this.#run(node);
    }

    choose(node) {
        choose(this.current, node);
        this.#keep(this.current);
        this.view.show();
    }

    /** Sets the system prompt of the conversation that is shown. */
    setSystem(text) {
        this.current.system = text;
        if (this.current.nodes.length > 0) this.#keep(this.current);
        else store.set('unsent-system', text);
    }

    /** Sets the model of the conversation that is shown. */
    setModel(name) {
        this.current.model = name;
        if (this.current.nodes.length > 0) this.#keep(this.current);
    }

    /** Returns whether new conversations begin with the system prompt of the one that is shown. */
    get systemIsDefault() {
        return this.current.system === store.setting('system', '');
    }

    /** Lets new conversations begin with the system prompt of the one that is shown. */
    makeSystemDefault() {
        store.set('system', this.current.system || null);
    }

    rename(title) {
        this.current.title = title;
        this.#keep(this.current);
        this.view.show();
    }

    async remove(conversation) {
        this.#forget(conversation);
        await store.remove(conversation.id);
    }

    stop() {
        const own = this.#running.get(this.current.id);
        if (own) own.controller.abort();
        else if (this.writtenElsewhere()) this.#tabs.stop(this.current.id);
    }

    /** Returns why an answer ended early, if its length was the reason: a notice. */
    limit(node) {
        // Answers of earlier versions of the page do not tell.
        const { full = this.#isFull(node) ? { context: this.#context, text: LARGER } : null } = node.answer;
        if (!full) return 'The answer has reached the most tokens that the settings permit: continue it, or change them under Sampling.';
        const { context, text, options } = full;
        if (this.#context > context) return `The context of ${whole(context)} tokens was full. The server now has ${whole(this.#context)}: continue the answer.`;
        const sentence =
            `The context of ${whole(context)} tokens is full, and the answer ends here. Begin a new conversation, or ` +
            `restart the server with ${text}.`;
        return { sentence, options };
    }

    get #context() {
        return this.connection.properties?.default_generation_settings.n_ctx;
    }

    #isFull({ answer: { timings } }) {
        return this.#context && timings && depth(timings) >= this.#context;
    }

    #answer(asked, conversation = this.current) {
        const node = add(conversation, asked.id, 'assistant', '');
        this.#run(node, conversation);
    }

    async #run(node, conversation = this.current) {
        const controller = new AbortController();
        const nodes = path(conversation);
        const until = nodes.indexOf(node);
        const asked = messages(conversation, nodes.slice(0, until + (node.content ? 1 : 0)));
        const own = nodes.slice(Math.max(until - 1, 0), until + 1);
        // Later messages go to the same model.
        conversation.model ??= this.connection.picker.chosen?.id;
        const model = this.connection.picker.chosen ? { model: conversation.model } : {};
        this.#running.set(conversation.id, { node, controller });
        this.#keep(conversation, own);
        this.view.show();
        if (this.current === conversation) this.view.sent();
        announce('The model is answering.');
        // The beginning of the answer is kept at once.
        let kept = -Infinity;
        let shown = -Infinity;
        let failed = null;
        try {
            await answer(node, asked, { ...given(), ...model }, controller.signal, (reading) => {
                if (this.current === conversation) this.view.progress(node, reading);
                const now = performance.now();
                if (now - shown > SHOW_EVERY) {
                    shown = now;
                    this.#tabs.progress(conversation.id, node, reading);
                }
                if (now - kept > KEEP_EVERY) {
                    kept = now;
                    this.#keep(conversation, own);
                }
            });
        } catch (error) {
            failed = error;
        }
        const { answer: ended } = node;
        if (ended.finish === 'length') ended.full = this.#isFull(node) ? { context: this.#context, ...(await longer(this.#context + 1)) } : null;
        this.#running.delete(conversation.id);
        conversation.changed = Date.now();
        this.#keep(conversation, own).then(() => this.#tabs.ended(conversation.id, node));
        this.view.show();
        const words = node.answer.timings?.predicted_n ?? 0;
        announce(failed ? failed.shown : node.answer.stopped ? 'Stopped.' : `The answer is complete: ${whole(words)} tokens.`);
        this.view.ended(conversation, node, failed);
    }

    /** Keeps a conversation, whose nodes `own` were written here. */
    async #keep(conversation, own = []) {
        if (!this.conversations.includes(conversation)) return;
        await store.keep(conversation, own).catch(() => this.view.say('The browser cannot keep the conversation: its storage is full.'));
    }
}

/** Marks answers that were being written when the page was left. */
function markLeft(nodes) {
    for (const { answer } of nodes.filter(isUnfinished)) {
        answer.fault = 'The page was left before the answer was complete. The text so far is kept: continue it, or try again.';
    }
}

function isUnfinished({ answer }) {
    return answer && !answer.finish && !answer.fault && !answer.stopped;
}
