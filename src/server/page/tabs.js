// The page in other tabs: what they keep, and the answers that they write.

const channel = new BroadcastChannel('rope-cpu');

/** The time in which a tab says what it writes, in milliseconds. */
const REPLY_WITHIN = 300;

/** The time without progress after which a tab is asked whether it still writes, in milliseconds. */
const SILENCE_MAX = 10_000;

/** Tells the other tabs that a conversation was kept or removed. */
export function tellKept(id) {
    channel.postMessage({ kind: 'kept', id });
}

/** The answers that other tabs write, and those of this one for them. */
export class Tabs {
    // By conversation: { node, timer }.
    #answers = new Map();

    /**
     * `actions` has kept(id), progress(id, node, reading, isNew), ended(id, node), stop(id), and writing(), which returns what
     * this tab writes as [{ id, node }].
     */
    constructor(actions) {
        this.actions = actions;
        channel.onmessage = ({ data }) => this.#receive(data);
        addEventListener('pagehide', () => actions.writing().forEach(({ id, node }) => this.ended(id, node)));
    }

    /** Returns the identifier of the node that another tab writes in a conversation, null if none. */
    writes(id) {
        return this.#answers.get(id)?.node ?? null;
    }

    /** Shows the other tabs what was written. */
    progress(id, node, reading) {
        channel.postMessage({ kind: 'progress', id, node, reading });
    }

    ended(id, node) {
        channel.postMessage({ kind: 'ended', id, node: node.id });
    }

    /** Has the tab that writes in a conversation stop. */
    stop(id) {
        channel.postMessage({ kind: 'stop', id });
    }

    /** Asks the other tabs what they write. */
    async ask() {
        channel.postMessage({ kind: 'ask' });
        await new Promise((resolve) => setTimeout(resolve, REPLY_WITHIN));
    }

    #receive({ kind, id, node, reading }) {
        const { actions } = this;
        if (kind === 'kept') actions.kept(id);
        if (kind === 'ask') actions.writing().forEach(({ id, node }) => this.progress(id, node, null));
        if (kind === 'stop') actions.stop(id);
        if (kind === 'progress') {
            const isNew = this.writes(id) !== node.id;
            this.#heard(id, node.id);
            actions.progress(id, node, reading, isNew);
        }
        if (kind === 'ended' && this.#forget(id)) actions.ended(id, node);
    }

    #heard(id, node) {
        this.#forget(id);
        this.#answers.set(id, { node, timer: setTimeout(() => this.#silent(id, node), SILENCE_MAX) });
    }

    #forget(id) {
        clearTimeout(this.#answers.get(id)?.timer);
        return this.#answers.delete(id);
    }

    /** A tab that ended without a word writes no more. */
    async #silent(id, node) {
        const before = this.#answers.get(id);
        await this.ask();
        if (this.#answers.get(id) === before && this.#forget(id)) this.actions.ended(id, node);
    }
}
