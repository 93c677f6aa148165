// Pulling a model from the Hugging Face Hub: its dialog, its progress, and what to try first.

import { announce, bytes, duration, element } from './dom.js';
import { showNotice } from './notice.js';
import { Fault, lines, send } from './server.js';
import { set, setting } from './store.js';

/** The time over which the speed is measured, in milliseconds. */
const SPEED_OVER = 10_000;

/** The name of a repository, as the server takes it. */
const NAME = /^[\w.-]+\/[\w.-]+(:[\w.-]+)?$/;

/** What may stand before a name that was copied from a browser. */
const BEFORE = /^(https?:\/\/)?(huggingface\.co|hf\.co)\//;

const WITHOUT_KEY =
    'The server lets only its owner pull models: enter the key that was given to it with --manage-key. If it has none, use a ' +
    'browser on its own machine, or start it again with --manage-key KEY.';
const WRONG_KEY = 'The server does not accept this management key: enter the one that was given to it with --manage-key.';

export class Pull {
    /** Stops the pull that runs, null if none does. */
    #abort = null;

    /**
     * `pulled(named, isWatched)` is called when a model is there: `named(names)` is its name in a list, and `isWatched` if the
     * dialog was open. `failed(sentence)` is called if it was closed.
     */
    constructor({ open, dialog, first, picker, pulled, failed }) {
        const find = (selector) => dialog.querySelector(selector);
        Object.assign(this, { open, dialog, first, picker, pulled, failed });
        this.name = find('#pull-name');
        this.key = find('#pull-key');
        this.progress = find('progress');
        this.text = find('.pulling .muted');
        this.label = find('.pulling .label');
        open.addEventListener('click', () => this.ask());
        first.querySelector('.other').addEventListener('click', () => this.ask());
        find('.stop').addEventListener('click', () => this.#abort?.abort());
        find('form').addEventListener('submit', (event) => {
            event.preventDefault();
            this.#start(this.name.value);
        });
    }

    /** Shows the models to start with, if the server has none yet. */
    show() {
        const { names, suggestions } = this.picker;
        const isEmpty = names?.length === 0;
        this.open.parentElement.hidden = names === null;
        this.first.hidden = !isEmpty;
        this.first.previousElementSibling.hidden = isEmpty;
        if (isEmpty) this.#offer(this.first.querySelector('.suggestions'), suggestions);
    }

    /** Opens the dialog. */
    ask() {
        const { names, suggestions } = this.picker;
        const isNew = ({ name }) => !names?.some((known) => isOf(known, name));
        this.#offer(this.dialog.querySelector('.suggestions'), suggestions.filter(isNew));
        if (!this.#abort) this.#say('');
        this.dialog.showModal();
        this.name.select();
    }

    #offer(place, models) {
        place.hidden = models.length === 0;
        const offer = ({ name, bytes: size }) => {
            const pull = () => {
                if (!this.dialog.open) this.ask();
                this.name.value = name;
                this.#start(name);
            };
            return element('button', { type: 'button', class: 'button', onclick: pull }, element('span', {}, name), element('span', { class: 'muted' }, bytes(size)));
        };
        // A list that is the same must not change under the pointer.
        const shown = [...place.querySelectorAll('button > span:first-child')].map((span) => span.textContent);
        if (shown.join() !== models.map(({ name }) => name).join()) place.replaceChildren(...models.map(offer));
        this.#disable();
    }

    async #start(typed) {
        const name = typed.trim().replace(BEFORE, '').replace(/\/+$/, '');
        if (this.#abort) return;
        if (!NAME.test(name)) {
            this.#say(name ? `“${name}” is no repository of the Hub: write USER/MODEL, or USER/MODEL:QUANT.` : 'Write the name of a repository: USER/MODEL, or USER/MODEL:QUANT.');
            return this.name.focus();
        }
        const key = this.key.value.trim();
        if (key) set('manage-key', key);
        const before = this.picker.names ?? [];
        this.#abort = new AbortController();
        this.#run(true);
        this.#say('');
        try {
            await this.#follow(name, this.#abort.signal);
            this.picker.renew();
            this.#end();
            const isWatched = this.dialog.open;
            this.dialog.close();
            announce(`${name} is on the server’s disk.`);
            await this.pulled((names) => found(names, name, before), isWatched);
        } catch (error) {
            this.#end();
            const sentence = this.#sentence(error, name);
            this.#say(sentence);
            if (!this.dialog.open) return this.failed(sentence);
            if (error.kind === 'forbidden') {
                this.key.closest('.right').hidden = false;
                this.key.focus();
            } else this.name.focus();
        }
    }

    /** Downloads a model, and shows the progress. */
    async #follow(name, signal) {
        this.#tell(`Looking for ${name} …`, null);
        const response = await send('api/pull', { body: { model: name }, signal, manages: true });
        let samples = [];
        let tenth = null;
        for await (const line of lines(response)) {
            const { status, error, digest: file, total, completed } = JSON.parse(line);
            if (error) throw new Fault('other', `${name} was not pulled: ${error}.`, error);
            if (status === 'success') return;
            if (!file) continue;
            if (samples[0]?.file !== file) samples = [];
            const now = performance.now();
            samples.push({ file, now, completed });
            samples = samples.filter((sample) => now - sample.now <= SPEED_OVER);
            const share = total > 0 ? completed / total : 1;
            this.#tell(`Pulling ${file}`, share, progressOf(samples, completed, total, share));
            if (Math.floor(share * 10) === tenth) continue;
            tenth = Math.floor(share * 10);
            this.#announce(`${tenth * 10} % of ${file}`);
        }
        throw new Fault('gone', 'The server ended the pull before the model was complete: pull it again to go on from there.');
    }

    #sentence(error, name) {
        if (error.name === 'AbortError') return `The pull of ${name} was cancelled. What has come is kept: the next pull goes on from there.`;
        if (error.kind === 'forbidden') return setting('manage-key') ? WRONG_KEY : WITHOUT_KEY;
        if (error.kind === 'busy') return `The server pulls nothing more now: ${error.reason}.`;
        return error.message;
    }

    /** Shows a step, and its share of the whole; null if that is unknown. */
    #tell(label, share, text = '') {
        const percent = share === null ? '' : `${Math.floor(share * 100)} %`;
        this.label.textContent = label;
        this.text.textContent = text;
        if (share === null) this.progress.removeAttribute('value');
        else this.progress.value = share;
        this.open.lastElementChild.textContent = percent || '…';
        this.open.setAttribute('aria-label', `Pull a model: ${percent || '…'}`);
    }

    #end() {
        this.#abort = null;
        this.#run(false);
        this.open.lastElementChild.textContent = 'Pull';
        this.open.setAttribute('aria-label', 'Pull a model');
    }

    #run(isRunning) {
        const find = (selector) => this.dialog.querySelector(selector);
        find('.pulling').hidden = !isRunning;
        find('.stop').hidden = !isRunning;
        find('.primary').hidden = isRunning;
        this.name.readOnly = isRunning;
        this.#disable();
        // The button that was pressed is gone.
        if (isRunning && this.dialog.open) find('.stop').focus();
    }

    /** Models can be offered while none is pulled. */
    #disable() {
        for (const button of document.querySelectorAll('.suggestions .button')) button.disabled = this.#abort !== null;
    }

    /** Has screen readers announce a sentence: what is outside of an open dialog is silent. */
    #announce(text) {
        if (this.dialog.open) this.dialog.querySelector('[role=status]').textContent = text;
        else announce(text);
    }

    #say(sentence) {
        showNotice(this.dialog.querySelector('.notice'), sentence);
    }
}

/** Returns the progress in words: bytes, share, speed and the time left. */
function progressOf(samples, completed, total, share) {
    const [first, last] = [samples[0], samples.at(-1)];
    const perSecond = (1000 * (last.completed - first.completed)) / (last.now - first.now);
    const speed = perSecond > 0 ? `, ${bytes(perSecond)} per second, ${duration((total - completed) / perSecond)} left` : '';
    return `${bytes(completed)} of ${bytes(total)} (${Math.floor(share * 100)} %)${speed}`;
}

/** Returns whether a model's name is a repository's, or one of its quants. */
function isOf(model, name) {
    const [long, short] = [model.toLowerCase(), name.toLowerCase()];
    return long === short || long.startsWith(`${short}:`);
}

/** Returns the name of the model that was pulled: of several, one that was not there before. */
function found(names, name, before) {
    const models = (names ?? []).filter((model) => isOf(model, name));
    return models.find((model) => !before.includes(model)) ?? models[0] ?? null;
}
