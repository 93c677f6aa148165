// The field for a message, its files, and the messages that wait for the present answer.

import { Attachments } from './attachments.js';
import { announce, element, icon, iconButton } from './dom.js';
import { withdrawn } from './drafts.js';
import { showNotice } from './notice.js';
import { count } from './server.js';

/** The time without a key press after which the tokens of a message are counted. */
const COUNT_AFTER = 300;

export class Composer {
    #waiting = [];
    #counting = null;
    #check = null;
    #typed = 0;
    /** The number of tokens of the message that is being written. */
    tokens = 0;

    /**
     * `actions` has send(message), refusal(message), stop, editLast, and changed, which is called when the draft or its
     * number of tokens has changed.
     */
    constructor(form, actions) {
        this.form = form;
        this.actions = actions;
        this.field = form.querySelector('textarea');
        this.notice = form.querySelector('.notice');
        this.list = form.querySelector('.waiting');
        this.button = form.querySelector('.send');
        this.later = form.querySelector('.later');
        this.busy = false;
        this.attachments = new Attachments(form.querySelector('.files'), {
            say: (sentence) => this.say(sentence),
            insert: (text) => this.#insert(text),
            changed: () => this.#changed(),
        });
        const chooser = form.querySelector('input[type=file]');
        form.querySelector('.attach').addEventListener('click', () => chooser.click());
        chooser.addEventListener('change', () => this.attach([...chooser.files]).then(() => (chooser.value = '')));
        this.field.addEventListener('input', () => {
            // What was said of the message before is not true of another.
            this.say('');
            this.#edited();
        });
        this.field.addEventListener('keydown', (event) => this.#key(event));
        this.field.addEventListener('paste', (event) => {
            if (this.attachments.paste(event.clipboardData)) event.preventDefault();
        });
        form.addEventListener('submit', (event) => {
            event.preventDefault();
            this.#submit();
        });
        this.button.addEventListener('click', () => (this.busy ? actions.stop() : this.#submit()));
        this.later.addEventListener('click', () => this.#submit());
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
        this.later.hidden = !busy || this.#empty();
    }

    /** What is being written. */
    get draft() {
        return { content: this.field.value, files: this.attachments.files, waiting: this.#waiting };
    }

    /** Shows what is being written to another conversation. */
    show({ content, files, waiting }) {
        this.#endCheck();
        this.say('');
        this.#waiting = waiting;
        this.field.value = content;
        this.attachments.set(files);
        this.#showWaiting();
        this.#edited();
    }

    /** Adds files. */
    attach(files) {
        return this.attachments.attach(files);
    }

    /** Shows a notice above the field; an empty one removes it. */
    say(notice) {
        showNotice(this.notice, notice);
    }

    /** Puts a text where the cursor is. */
    #insert(text) {
        this.field.focus();
        this.field.setRangeText(text, this.field.selectionStart, this.field.selectionEnd, 'end');
        this.#edited();
    }

    #empty() {
        return this.field.value.trim() === '' && this.attachments.files.length === 0;
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
        if (this.#check || this.#empty()) return;
        const message = { content: this.field.value, files: this.attachments.files };
        if (this.busy) {
            this.show({ content: '', files: [], waiting: [...this.#waiting, message] });
            announce('The message is sent after this answer.');
            return;
        }
        const refusal = this.actions.refusal(message);
        if (refusal) this.#sendUnless(refusal, message);
        else this.#send(message);
    }

    /** Sends a message if its refusal turns out to be none, and no other conversation is shown meanwhile. */
    async #sendUnless(refusal, message) {
        const check = (this.#check = {});
        this.say('');
        this.field.readOnly = true;
        const notice = await refusal;
        if (this.#check !== check) return;
        this.#endCheck();
        if (notice) this.say(notice);
        else this.#send(message);
    }

    #endCheck() {
        this.#check = null;
        this.field.readOnly = false;
    }

    #send(message) {
        this.show({ content: '', files: [], waiting: this.#waiting });
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

    #changed(typed = this.field.value ? this.#typed : 0) {
        this.#typed = typed;
        const files = this.attachments.files.reduce((sum, file) => sum + (file.tokens ?? 0), 0);
        this.tokens = this.#typed + files;
        this.setBusy(this.busy);
        this.actions.changed();
    }

    #showWaiting() {
        this.list.hidden = this.#waiting.length === 0;
        const withdraw = () => {
            this.show(withdrawn(this.draft));
            this.field.focus();
        };
        const row = ({ content, files }) => element(
            'li',
            { class: 'chip' },
            element('span', { class: 'muted' }, 'After this answer:'),
            element('span', { class: 'name', dir: 'auto' }, content || files.map(({ name }) => name).join(', ')),
        );
        const rows = this.#waiting.map(row);
        rows[0]?.append(iconButton('edit', 'Take back the messages that wait', withdraw));
        this.list.replaceChildren(...rows);
    }
}
