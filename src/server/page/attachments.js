// The files of a message that is being written.

import { decode } from './decode.js';
import { announce, bytes, element, icon, iconButton, whole } from './dom.js';
import { isPdf, textOf } from './pdf.js';
import { count } from './server.js';

/** The largest file of text in bytes: more than any context holds. */
const FILE_MAX = 8 << 20;

/** The largest PDF in bytes. The server may permit less. */
const PDF_MAX = 64 << 20;

/** The longest text, in letters, that is pasted into the field. A longer one becomes a file. */
const PASTE_MAX = 4000;

export class Attachments {
    /** Each has a name, a text, its number of tokens (null while they are counted), an `encoding` if that is no UTF-8, and whether it was pasted. */
    files = [];

    /** `actions` has changed, say(sentence), and insert(text), which puts a text into the field. */
    constructor(place, actions) {
        Object.assign(this, { place, actions });
    }

    /** Replaces the files. */
    set(files) {
        this.files = files;
        this.show();
        this.#count();
    }

    /** Adds the files that have text. Says why others are not added. */
    async attach(files) {
        const refusals = [];
        this.actions.say('');
        for (const file of files) {
            const { refusal, ...read } = await readFile(file);
            if (refusal) refusals.push(refusal);
            else this.#add({ name: file.name, tokens: null, ...read });
        }
        if (refusals.length > 0) this.actions.say(refusals.join(' '));
    }

    /** Takes what is pasted: files, and a long text, which becomes one. Returns whether it took it. */
    paste(data) {
        const files = [...data.files];
        const text = data.getData('text/plain');
        if (files.length > 0) this.attach(files);
        else if (text.length > PASTE_MAX) this.#add({ name: this.#pastedName(), text, tokens: null, pasted: true });
        else return false;
        return true;
    }

    #pastedName() {
        for (let number = 1; ; number++) {
            const name = `pasted-${number}.txt`;
            if (!this.files.some((file) => file.name === name)) return name;
        }
    }

    #add(file) {
        this.files = [...this.files, file];
        announce(`${file.name} is attached.`);
        this.show();
        this.#count();
    }

    async #count() {
        this.actions.changed();
        for (const file of this.files.filter((file) => file.tokens === null)) {
            // A text that the server does not take, or no server: its size is shown.
            file.tokens = await count(file.text).catch(() => undefined);
            this.show();
            this.actions.changed();
        }
    }

    #remove(file) {
        this.actions.say('');
        this.files = this.files.filter((other) => other !== file);
        this.show();
        this.actions.changed();
    }

    show() {
        this.place.replaceChildren(...this.files.map((file) => this.#chip(file)));
        this.place.hidden = this.files.length === 0;
    }

    #chip(file) {
        const insert = () => {
            this.#remove(file);
            this.actions.insert(file.text);
        };
        const remove = () => {
            this.#remove(file);
            this.actions.insert('');
        };
        const counted = () => (file.tokens === undefined ? bytes(file.text.length) : `${whole(file.tokens)} tokens`);
        const size = [file.tokens === null ? 'counting …' : counted(), file.encoding].filter(Boolean).join(' · ');
        return element(
            'span',
            { class: 'chip' },
            icon('file'),
            element('span', { class: 'name' }, file.name),
            element('span', { class: 'muted' }, size),
            file.pasted && iconButton('unfold', `Put ${file.name} into the message`, insert),
            iconButton('remove', `Remove ${file.name}`, remove),
        );
    }
}

/** Returns the `text` of a file and its `encoding`, or a `refusal`: a sentence. */
async function readFile(file) {
    const { name, size } = file;
    const start = new Uint8Array(await file.slice(0, 5).arrayBuffer());
    const most = isPdf(start) ? PDF_MAX : FILE_MAX;
    if (size > most) return { refusal: `${name} has ${bytes(size)}; it may have up to ${bytes(most)}: attach a part of it.` };
    if (isPdf(start)) return readPdf(file);
    const read = decode(new Uint8Array(await file.arrayBuffer()));
    if (!read) return { refusal: `${name} is not text: convert it to text in UTF-8, then attach that.` };
    if (read.text.trim() === '') return { refusal: `${name} is empty.` };
    return read.encoding ? read : { text: read.text };
}

async function readPdf(file) {
    try {
        announce(`The text of ${file.name} is being read.`);
        const text = await textOf(file);
        if (text.trim() !== '') return { text };
        return { refusal: `${file.name} has no text, only pictures: recognize its text with another program (OCR), then attach that.` };
    } catch (error) {
        return { refusal: `${file.name} was not attached. ${error.message}` };
    }
}
