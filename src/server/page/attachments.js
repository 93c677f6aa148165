// The files of text of a message that is being written.

import { announce, bytes, element, icon, iconButton, whole } from './dom.js';
import { count } from './server.js';

/** The largest file in bytes: more than any context holds. */
const FILE_MAX = 8 << 20;

/** The longest text, in letters, that is pasted into the field. A longer one becomes a file. */
const PASTE_MAX = 4000;

export class Attachments {
    /** Each has a name, a text, its number of tokens (null while they are counted), and whether it was pasted. */
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

    /** Adds the files that are text. */
    async attach(files) {
        for (const file of files) {
            if (file.size > FILE_MAX) {
                this.actions.say(`${file.name} has ${bytes(file.size)}; files may have up to ${bytes(FILE_MAX)}: attach a part of it.`);
                continue;
            }
            const text = await read(file);
            if (text === null) {
                this.actions.say(`${file.name} is not text in UTF-8 or UTF-16: convert it to text, then attach that.`);
            } else if (text.trim() === '') {
                this.actions.say(`${file.name} is empty.`);
            } else {
                this.#add({ name: file.name, text, tokens: null });
            }
        }
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
        const size = file.tokens === null ? 'counting …' : counted();
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
