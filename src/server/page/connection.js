// Whether the server is there: its state in words, and the key that it requires.

import { announce } from './dom.js';
import { get, ofModel, setKey } from './server.js';

/** The time between two looks at a server that is ready, and at one that is not, in milliseconds. */
const READY_EVERY = 10_000;
const OTHERWISE_EVERY = 1500;

export class Connection {
    /** The answer of /props, null while the model is not open. */
    properties = null;
    #state = '';
    #timer = null;
    #asking = null;
    /** Whether the dialog was closed without a key: then only a message asks again. */
    #declined = false;

    /** `changed(properties)` is called when the server has become ready, or is ready and another. */
    constructor({ status, dialog, picker, changed }) {
        Object.assign(this, { status, dialog, picker, changed });
        document.addEventListener('visibilitychange', () => document.hidden || this.look());
    }

    /** Looks at the server now, and again and again. */
    async look() {
        clearTimeout(this.#timer);
        const ready = await this.#look();
        clearTimeout(this.#timer);
        if (!document.hidden) this.#timer = setTimeout(() => this.look(), ready ? READY_EVERY : OTHERWISE_EVERY);
    }

    async #look() {
        const before = this.#state;
        try {
            const { properties, name } = await this.#askModel();
            const isAnother = before !== 'ready' || !same(properties, this.properties);
            this.properties = properties;
            this.#show('ready', name);
            if (isAnother) this.changed(properties);
            return true;
        } catch (fault) {
            if (fault.kind === 'key' && this.#declined) this.#show('key', 'An API key is required.');
            else if (fault.kind === 'key') await this.askKey();
            else if (fault.kind === 'loading') this.#show('loading', 'The model is being loaded …');
            else if (before === 'loading' && fault.kind === 'gone') {
                this.#show('gone', 'The server ended while it loaded the model: its terminal has the reason.');
            } else if (before !== 'gone' || fault.kind !== 'gone') {
                this.#show('gone', fault.kind === 'gone' ? 'The server is gone: start it again with rope-cpu serve.' : fault.message);
            }
            return false;
        }
    }

    /** Returns the properties of the chosen model, and what is shown as its name. */
    async #askModel() {
        const properties = await get('props');
        const isMany = properties.role === 'router';
        const chosen = await this.picker.load(isMany);
        if (!isMany) return { properties, name: properties.model_alias };
        if (!chosen) return { properties: null, name: 'No model is on the server’s machine yet.' };
        if (!this.picker.isOpen) return { properties: null, name: 'opens with the next message' };
        return { properties: await get(ofModel('props')), name: 'open' };
    }

    #show(state, text) {
        if (this.#state !== state && this.#state !== '') announce(state === 'ready' ? 'The server is ready.' : text);
        this.#state = state;
        this.status.dataset.state = state;
        this.status.querySelector('.name').textContent = text;
    }

    /** Asks for the API key, once at a time. Returns whether one was entered. */
    askKey() {
        this.#asking ??= this.#ask().finally(() => (this.#asking = null));
        return this.#asking;
    }

    #ask() {
        this.#show('key', 'An API key is required.');
        const field = this.dialog.querySelector('input');
        field.value = '';
        this.dialog.returnValue = '';
        this.dialog.showModal();
        return new Promise((resolve) => {
            this.dialog.addEventListener('close', () => {
                const key = this.dialog.returnValue === 'enter' ? field.value.trim() : '';
                if (key) setKey(key);
                this.#declined = key === '';
                resolve(key !== '');
            }, { once: true });
        });
    }
}

/** Returns whether properties are those of the same model in the same context: a server may be started again between two looks. */
function same(one, other) {
    if (!one || !other) return one === other;
    const known = ({ model_path, default_generation_settings: { n_ctx } }) => `${n_ctx} ${model_path}`;
    return known(one) === known(other);
}
