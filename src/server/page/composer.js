// The field for a message, with files of text.

import { announce, bytes, element, icon, iconButton, whole } from './dom.js';
import { count } from './server.js';

/** The largest file in bytes: more than any context holds. */
const FILE_MAX = 8 << 20;

/** The time without a key press after which the tokens of a message are counted. */
const COUNT_AFTER = 300;

export class Composer {
    #files = [];
    #counting = null;
    /** The number of tokens of the message that is being written. */
    tokens = 0;

    /** `actions` has send, stop, and changed, which is called when the number of tokens has changed. */
    constructor(form, actions) {
        this.form = form;
        this.actions = actions;
        this.field = form.querySelector('textarea');
        this.chips = form.querySelector('.files');
        this.notice = form.querySelector('.notice');
        this.button = form.querySelector('.send');
        this.busy = false;
        const chooser = form.querySelector('input[type=file]');
        form.querySelector('.attach').addEventListener('click', () => chooser.click());
        chooser.addEventListener('change', () => this.attach([...chooser.files]).then(() => (chooser.value = '')));
        this.field.addEventListener('input', () => this.#edited());
        this.field.addEventListener('keydown', (event) => this.#key(event));
        this.field.addEventListener('paste', (event) => {
            const files = [...event.clipboardData.files];
            if (files.length === 0) return;
            event.preventDefault();
            this.attach(files);
        });
        form.addEventListener('submit', (event) => {
            event.preventDefault();
            this.#submit();
        });
        this.button.addEventListener('click', () => (this.busy ? actions.stop() : this.#submit()));
        this.setBusy(false);
    }

    /** Shows whether an answer is being written, which the button then stops. */
    setBusy(busy) {
        this.busy = busy;
        const label = busy ? 'Stop' : 'Send';
        this.button.replaceChildren(icon(busy ? 'stop' : 'send'));
        this.button.setAttribute('aria-label', label);
        this.button.title = busy ? 'Stop (Esc)' : 'Send (Enter)';
        this.button.disabled = !busy && this.#empty();
    }

    /** Adds the files that are text. */
    async attach(files) {
        for (const file of files) {
            if (file.size > FILE_MAX) {
                this.say(`${file.name} has ${bytes(file.size)}; files may have up to ${bytes(FILE_MAX)}: attach a part of it.`);
                continue;
            }
            const text = await read(file);
            if (text === null) {
                this.say(`${file.name} is not text in UTF-8 or UTF-16: convert it to text, then attach that.`);
                continue;
            }
            if (text.trim() === '') {
                this.say(`${file.name} is empty.`);
                continue;
            }
            this.#files.push({ name: file.name, text, tokens: null });
            announce(`${file.name} is attached.`);
        }
        this.#changed();
        for (const file of this.#files.filter((file) => file.tokens === null)) {
            file.tokens = await count(file.text).catch(() => null);
            this.#changed();
        }
    }

    /** Shows a sentence above the field; an empty one removes it. */
    say(sentence) {
        this.notice.textContent = sentence;
        this.notice.hidden = !sentence;
    }

    /** Puts a message into the field. */
    fill(text) {
        this.field.value = text;
        this.#edited();
        this.field.focus();
    }

    #empty() {
        return this.field.value.trim() === '' && this.#files.length === 0;
    }

    #key(event) {
        if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            this.#submit();
        } else if (event.key === 'ArrowUp' && this.field.value === '') {
            event.preventDefault();
            this.actions.editLast();
        }
    }

    #submit() {
        if (this.busy || this.#empty()) return;
        const message = { content: this.field.value, files: this.#files };
        this.#files = [];
        this.field.value = '';
        this.say('');
        this.#edited();
        this.actions.send(message);
    }

    #edited() {
        this.#changed();
        clearTimeout(this.#counting);
        this.#counting = setTimeout(async () => {
            const text = this.field.value;
            const tokens = text ? await count(text).catch(() => 0) : 0;
            if (text === this.field.value) this.#changed(tokens);
        }, COUNT_AFTER);
    }

    #changed(typed = this.field.value ? this.typed : 0) {
        this.typed = typed ?? 0;
        const files = this.#files.reduce((sum, file) => sum + (file.tokens ?? 0), 0);
        this.tokens = this.typed + files;
        this.chips.replaceChildren(...this.#files.map((file) => this.#chip(file)));
        this.chips.hidden = this.#files.length === 0;
        this.setBusy(this.busy);
        this.actions.changed();
    }

    #chip(file) {
        const remove = () => {
            this.#files = this.#files.filter((other) => other !== file);
            this.#changed();
            this.field.focus();
        };
        const size = file.tokens === null ? 'counting …' : `${whole(file.tokens)} tokens`;
        return element(
            'span',
            { class: 'chip' },
            icon('file'),
            element('span', { class: 'name' }, file.name),
            element('span', { class: 'muted' }, size),
            iconButton('remove', `Remove ${file.name}`, remove),
        );
    }
}

/** Returns the text of a file, null if it is none. */
async function read(file) {
    const data = new Uint8Array(await file.arrayBuffer());
    const encoding = data[0] === 0xff && data[1] === 0xfe ? 'utf-16le' : data[0] === 0xfe && data[1] === 0xff ? 'utf-16be' : 'utf-8';
    try {
        const text = new TextDecoder(encoding, { fatal: true }).decode(data);
        return text.includes('\0') ? null : text;
    } catch {
        return null;
    }
}
