// The choice of a model, if the server has many: how large each is, and whether it fits and is open.

import { bytes, element, whole } from './dom.js';
import { get, useModel } from './server.js';
import { set, setting } from './store.js';

export class Picker {
    /** The models of the server, null if it has one. */
    #models = null;
    /** What fits in memory, by the name of the model: it is asked for once. */
    #fits = new Map();
    /** Models of the hub that fit in the server's memory: their names and sizes. */
    suggestions = [];
    /** The model of the conversation that is shown, null if it has none. */
    #wanted = null;

    /** `chosen(name)` is called when the user has chosen a model, and `loaded()` after each look at the models. */
    constructor(select, { chosen, loaded }) {
        Object.assign(this, { select, told: chosen, loaded });
        select.addEventListener('change', () => this.choose(select.value));
    }

    /** Chooses a model for the conversation that is shown, and for later ones. */
    choose(name) {
        this.#wanted = name;
        set('model', name);
        useModel(name);
        this.#show();
        this.told(name);
    }

    /** Reads the models of the server, or none if it has one. Returns the chosen one, null if there is none. */
    async load(isMany) {
        const list = isMany ? await get(this.#fits.size > 0 ? 'models' : 'models?fit=1') : {};
        this.#models = list.data ?? null;
        this.suggestions = list.suggestions ?? this.suggestions;
        for (const { id, fit } of this.#models ?? []) if (fit) this.#fits.set(id, fit);
        const chosen = this.#show();
        this.loaded();
        return chosen;
    }

    /** Has the next look find new models, and how they fit. */
    renew() {
        this.#fits.clear();
    }

    /** The names of the server's models, null if it has one. */
    get names() {
        return this.#models && this.#models.map(({ id }) => id);
    }

    /** Chooses the model of a conversation. Returns whether another one is chosen now. */
    open({ model }) {
        const before = this.chosen?.id;
        this.#wanted = model ?? null;
        return this.#show()?.id !== before;
    }

    /** The model that is chosen: the conversation's, the one that was chosen last, an open one, or one that fits. */
    get chosen() {
        const models = this.#models ?? [];
        const named = (name) => models.find(({ id }) => id === name);
        const open = models.find(isOpen);
        return named(this.#wanted) ?? named(setting('model')) ?? open ?? models.find(({ id }) => this.#fits.get(id)?.fits) ?? models[0] ?? null;
    }

    /** Returns whether the chosen model is open. */
    get isOpen() {
        return this.chosen !== null && isOpen(this.chosen);
    }

    #show() {
        const { chosen } = this;
        this.select.hidden = !this.#models?.length;
        useModel(chosen?.id ?? null);
        // An open list must not change under the pointer.
        if (this.select === document.activeElement && this.select.options.length === (this.#models ?? []).length) return chosen;
        this.select.replaceChildren(...(this.#models ?? []).map((model) => element('option', { value: model.id }, this.#line(model))));
        if (chosen) this.select.value = chosen.id;
        return chosen;
    }

    /** Returns a model in the list: its name, size, context and state. */
    #line({ id, meta, status }) {
        const fit = this.#fits.get(id);
        const fits = fit && (fit.fits ? `context ${whole(fit.context)}` : 'does not fit in memory');
        return [id, bytes(meta.size), fits, status.failed ? 'failed' : status.value].filter(Boolean).join(' · ');
    }
}

function isOpen({ status }) {
    return status.value === 'loaded';
}
