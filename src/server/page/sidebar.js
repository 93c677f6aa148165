// The list of conversations, and renaming, exporting and deleting them.

import { addressOf } from './address.js';
import { announce, download, element, iconButton } from './dom.js';
import { read } from './imported.js';
import { found } from './search.js';
import { toMarkdown } from './tree.js';

/** Shows the conversations that have what is searched for. Returns how many. */
export function showList(list, conversations, query, { current, running, open, remove }) {
    const all = found(conversations, query);
    const days = new Map();
    for (const one of all) {
        const day = dayOf(one.conversation.changed);
        days.set(day, [...(days.get(day) ?? []), one]);
    }
    const row = ({ conversation, excerpt }) => {
        const title = conversation.title || 'New conversation';
        const link = {
            class: 'conversation',
            href: addressOf(conversation),
            'aria-current': conversation === current ? 'page' : null,
            onclick: (event) => {
                // With such a key, the browser opens another tab or window.
                if (event.ctrlKey || event.metaKey || event.shiftKey) return;
                event.preventDefault();
                open(conversation);
            },
        };
        return element(
            'li',
            {},
            element(
                'a',
                link,
                element('span', { class: 'title', dir: 'auto' }, title, excerpt && element('span', { class: 'excerpt' }, excerpt)),
                running(conversation) && element('span', { class: 'pulse', role: 'img', 'aria-label': 'is being answered' }),
            ),
            iconButton('trash', `Delete “${title}”`, () => remove(conversation)),
        );
    };
    list.replaceChildren(...[...days].map(([day, all]) => element(
        'section', { 'aria-label': day }, element('h3', {}, day), element('ul', {}, all.map(row)),
    )));
    const hint = conversations.length === 0 ? 'Conversations are kept in this browser alone.' : `No conversation has “${query.trim()}”.`;
    if (all.length === 0) list.append(element('p', { class: 'hint' }, hint));
    return all.length;
}

function dayOf(time) {
    const midnight = new Date().setHours(0, 0, 0, 0);
    const days = Math.ceil((midnight - time) / 86_400_000);
    if (days <= 0) return 'Today';
    if (days === 1) return 'Yesterday';
    return days <= 7 ? 'Last 7 days' : 'Earlier';
}

/** Asks for a title. Returns null if it is to stay. */
export function askTitle(dialog, title) {
    const field = dialog.querySelector('input');
    field.value = title;
    return answered(dialog, field).then((entered) => (entered ? field.value.trim() || null : null));
}

/** Asks whether a conversation is to be deleted. */
export function askDeletion(dialog, title) {
    dialog.querySelector('.name').textContent = title;
    return answered(dialog);
}

function answered(dialog, field) {
    dialog.returnValue = '';
    dialog.showModal();
    field?.select();
    return new Promise((resolve) => {
        dialog.addEventListener('close', () => resolve(dialog.returnValue === 'enter'), { once: true });
    });
}

/** Returns the conversation of a file that was exported as JSON. Fails with a sentence if it is of another form. */
export async function importConversation(file) {
    let exported = null;
    try {
        exported = JSON.parse(await file.text());
    } catch {
        // The sentence below is for what is not JSON, too.
    }
    const conversation = read(exported);
    if (!conversation) throw new Error(`${file.name} is not a conversation: choose a file that this page has exported as JSON.`);
    announce(`Imported ${conversation.title}`);
    return conversation;
}

/** Sends a conversation to the user's downloads: what is shown as Markdown, or all of it as JSON. */
export function exportConversation(conversation, form) {
    const name = conversation.title.replace(/[^\p{L}\p{N} _-]/gu, '').trim() || 'conversation';
    if (form === 'json') download(`${name}.json`, 'application/json', JSON.stringify(conversation, null, 2));
    else download(`${name}.md`, 'text/markdown', toMarkdown(conversation));
    announce(`Exported as ${name}.${form}`);
}
