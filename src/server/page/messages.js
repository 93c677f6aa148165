// The conversation: its messages, their versions, and what can be done with them.

import { bytes, duration, element, icon, iconButton, short, whole } from './dom.js';
import { Markdown, copyButton } from './markdown.js';
import { showNotice } from './notice.js';
import { path, versions } from './tree.js';

/** The view of a conversation. `actions` has choose, edit, refusal, regenerate, resume and limit. */
export class Messages {
    #views = new Map();
    #pending = new Set();

    constructor(list, scroller, actions) {
        Object.assign(this, { list, scroller, actions });
    }

    /** Shows a conversation. `writing` has the nodes that are being written; `idle` is whether none is by this tab. */
    show(conversation, writing, idle) {
        const follows = this.#atEnd();
        const nodes = path(conversation);
        const views = nodes.map((node) => this.#views.get(node.id)?.of(node) ?? new Message(node, this.actions));
        this.#views = new Map(views.map((view) => [view.node.id, view]));
        views.forEach((view, index) => {
            const all = versions(conversation, view.node.parent);
            view.update({ all, busy: writing.includes(view.node), last: index === views.length - 1, idle });
        });
        const shown = views.map((view) => view.article);
        if (shown.length !== this.list.children.length || shown.some((a, i) => a !== this.list.children[i])) {
            this.list.replaceChildren(...shown);
        }
        this.list.parentElement.classList.toggle('empty', nodes.length === 0);
        if (follows) this.toEnd();
    }

    /** Shows the present text of the node that is being written, at most once a frame. */
    progress(node, reading) {
        const view = this.#views.get(node.id);
        if (!view) return;
        view.reading = reading;
        if (this.#pending.size === 0) {
            requestAnimationFrame(() => {
                const follows = this.#atEnd();
                for (const view of this.#pending) view.write();
                this.#pending.clear();
                if (follows) this.toEnd();
            });
        }
        this.#pending.add(view);
    }

    /** Moves the focus to a button of another version, where it was in the one before. */
    focus(node, label) {
        const buttons = [...this.#views.get(node.id).foot.querySelectorAll('.versions button:not(:disabled)')];
        (buttons.find((button) => button.title === label) ?? buttons[0])?.focus();
    }

    /** Scrolls to the last message. */
    toEnd() {
        this.scroller.scrollTop = this.scroller.scrollHeight;
    }

    #atEnd() {
        const { scrollTop, scrollHeight, clientHeight } = this.scroller;
        return scrollHeight - scrollTop - clientHeight < 80;
    }
}

/** The view of a message. */
class Message {
    constructor(node, actions) {
        Object.assign(this, { node, actions, reading: null, state: { busy: false } });
        const user = node.role === 'user';
        this.body = element('div', { class: user ? 'body' : 'body markdown' });
        this.reasoning = element('div', { class: 'markdown' });
        this.thought = element('details', { class: 'reasoning', hidden: true }, element('summary', {}, 'Reasoning'), this.reasoning);
        this.status = element('div', { class: 'reading', hidden: true });
        this.foot = element('div', { class: 'foot' });
        const name = user ? 'You' : 'Model';
        this.author = element('h2', { class: 'visually-hidden' }, name);
        this.article = element(
            'article',
            { class: `message ${node.role}`, 'aria-label': `${name}`, 'data-role': node.role },
            this.author,
            files(node),
            !user && [this.thought, this.status],
            this.body,
            this.foot,
        );
        this.markdown = user ? null : new Markdown(this.body);
        this.thinking = user ? null : new Markdown(this.reasoning);
    }

    /** Returns this view if it shows the node, null if the node was loaded anew. */
    of(node) {
        return node === this.node ? this : null;
    }

    update(state) {
        this.state = state;
        this.article.setAttribute('aria-busy', state.busy);
        if (!state.busy) this.reading = null;
        this.write();
        this.foot.replaceChildren(...this.#foot());
    }

    /** Shows the present text. */
    write() {
        const { node, state, reading } = this;
        this.body.hidden = node.content === '';
        if (!this.markdown) {
            this.body.textContent = node.content;
            return;
        }
        const { model } = node.answer ?? {};
        this.author.className = model ? 'author' : 'visually-hidden';
        if (model) this.author.textContent = modelName(model);
        this.markdown.show(node.content);
        this.thought.hidden = !node.reasoning;
        if (node.reasoning) this.thinking.show(node.reasoning);
        const waiting = state.busy && !node.content && !node.reasoning;
        this.status.hidden = !waiting;
        if (waiting) this.#showReading(reading);
    }

    #showReading(reading) {
        if (!reading) {
            this.status.replaceChildren(element('span', { class: 'pulse' }), element('span', {}, 'Waiting for the server'));
            return;
        }
        const { total, cache, processed, perSecond, left } = reading;
        const label = `Reading ${whole(processed)} of ${whole(total)} tokens`;
        const details = [
            cache > 0 && `${whole(cache)} from the cache`,
            perSecond && `${short(perSecond)} tokens/s`,
            left !== null && `about ${duration(left)} left`,
        ];
        let bar = this.status.querySelector('progress');
        if (!bar) {
            bar = element('progress', { 'aria-label': 'Reading the prompt' });
            this.status.replaceChildren(element('span', { class: 'label' }), bar, element('span', { class: 'muted' }));
        }
        bar.max = total;
        bar.value = processed;
        this.status.firstChild.textContent = label;
        this.status.lastChild.textContent = details.filter(Boolean).join(' · ');
    }

    #foot() {
        const { node, state, actions } = this;
        const { all, busy, last, idle } = state;
        if (busy) return [];
        const at = all.indexOf(node);
        const step = (to, name, label) =>
            iconButton(name, label, () => actions.choose(all[to], label), { disabled: !idle || !all[to] });
        const switcher = all.length > 1 && element(
            'span',
            { class: 'versions', role: 'group', 'aria-label': 'Versions' },
            step(at - 1, 'left', 'Previous version'),
            element('span', {}, `${at + 1} / ${all.length}`),
            step(at + 1, 'right', 'Next version'),
        );
        const disabled = !idle;
        const buttons = [copyButton(() => node.content, 'Copy the message')];
        if (node.role === 'user') {
            buttons.push(iconButton('edit', 'Edit the message', () => this.#edit(), { disabled }));
        } else {
            buttons.push(iconButton('retry', 'Regenerate the answer', () => actions.regenerate(node), { disabled }));
        }
        const row = [element('span', { class: 'buttons' }, buttons), switcher, statistics(node.answer, last)];
        return [...(last ? this.#notices(idle) : []), element('div', { class: 'row' }, row)].filter(Boolean);
    }

    /** Returns why an answer did not end by itself, with what can be done about it. */
    #notices(open) {
        const { node, actions } = this;
        const { fault, stopped, finish } = node.answer ?? {};
        const reason = fault ?? (stopped ? 'The answer was stopped.' : finish === 'length' ? actions.limit(node) : null);
        if (!reason) return [];
        const action = node.content
            ? element('button', { type: 'button', class: 'button', onclick: () => actions.resume(node) }, 'Continue')
            : element('button', { type: 'button', class: 'button', onclick: () => actions.regenerate(node, true) }, 'Try again');
        const notice = { class: fault ? 'notice fault' : 'notice', role: fault ? 'alert' : null };
        const shown = element('div', notice);
        showNotice(shown, reason);
        if (open) shown.append(action);
        return [shown];
    }

    #edit() {
        const { node, actions } = this;
        const notice = element('p', { class: 'notice', role: 'alert', hidden: true });
        const oninput = () => showNotice(notice, null);
        const field = element('textarea', { 'aria-label': 'The edited message', rows: 1, dir: 'auto', oninput });
        field.value = node.content;
        const close = () => {
            form.replaceWith(this.body);
            this.foot.hidden = false;
            this.foot.querySelector('[aria-label="Edit the message"]')?.focus();
        };
        const form = element(
            'form',
            {
                class: 'edit',
                onsubmit: async (event) => {
                    event.preventDefault();
                    const refusal = await actions.refusal(node, field.value);
                    // Another conversation may be shown meanwhile.
                    if (!form.isConnected) return;
                    showNotice(notice, refusal);
                    if (refusal) return;
                    close();
                    actions.edit(node, field.value);
                },
                onkeydown: (event) => {
                    if (event.key === 'Escape') {
                        event.stopPropagation();
                        close();
                    } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
                        event.preventDefault();
                        form.requestSubmit();
                    }
                },
            },
            field,
            notice,
            element(
                'div',
                { class: 'row' },
                element('button', { type: 'button', class: 'button', onclick: close }, 'Cancel'),
                element('button', { type: 'submit', class: 'button primary' }, 'Send as a new version'),
            ),
        );
        this.body.hidden = false;
        this.body.replaceWith(form);
        this.foot.hidden = true;
        field.focus();
    }
}

/** Returns the files of a message, whose text can be unfolded. */
function files(node) {
    if (!node.files?.length) return null;
    const file = ({ name, text, tokens }) =>
        element(
            'details',
            { class: 'file' },
            element(
                'summary',
                {},
                icon('file'),
                element('span', { class: 'name' }, name),
                element('span', { class: 'muted' }, tokens ? `${whole(tokens)} tokens` : bytes(text.length)),
            ),
            element('pre', { tabindex: 0, role: 'group', 'aria-label': `Text of ${name}` }, text),
        );
    return element('div', { class: 'files' }, node.files.map(file));
}

/** Returns a model's name without the ending of its file. */
function modelName(model) {
    return model.replace(/\.gguf$/i, '');
}

/** Returns what an answer cost. That an earlier one is not complete is said here, as nothing is to be done about it. */
function statistics(answer, last) {
    const { timings, fault, stopped, finish } = answer ?? {};
    const state = last ? null : fault ? 'not complete' : stopped ? 'stopped' : finish === 'length' ? 'cut off' : null;
    if (!timings) return state && element('span', { class: 'statistics' }, state);
    const { cache_n, prompt_n, prompt_ms, predicted_n = 0, predicted_per_second = 0 } = timings;
    const parts = [
        state,
        predicted_n > 0 && `${whole(predicted_n)} tokens`,
        predicted_n > 1 && `${short(predicted_per_second)} tokens/s`,
        `${whole(prompt_n)} read in ${duration(prompt_ms / 1000)}`,
        cache_n > 0 && `${whole(cache_n)} from the cache`,
    ];
    return element('span', { class: 'statistics' }, parts.filter(Boolean).join(' · '));
}
