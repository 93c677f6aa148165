// Conversations are kept in the browser's IndexedDB, and settings in its localStorage.

import { openTable } from './table.js';
import { tellKept } from './tabs.js';
import { merged } from './tree.js';

let act = null;

/** Opens the database. Returns whether the browser keeps anything. */
export async function open() {
    act = await openTable('rope-cpu', 'conversations').catch(() => null);
    return act !== null;
}

/** Returns all conversations, the latest first. */
export async function all() {
    const found = act ? await act('readonly', (store) => store.getAll()) : [];
    return found.sort((a, b) => b.changed - a.changed);
}

/** Returns a conversation as it is kept, undefined if it is not. */
export async function one(id) {
    return act ? act('readonly', (store) => store.get(id)) : undefined;
}

/** Keeps a conversation. Its nodes are kept as another tab may have written them, but `own` as they are here. */
export async function keep(conversation, own) {
    if (!act) return;
    await act('readwrite', (store) => {
        const request = store.get(conversation.id);
        request.onsuccess = () => store.put(merged(request.result, conversation, own));
        return request;
    });
    tellKept(conversation.id);
}

/** Removes a conversation. */
export async function remove(id) {
    if (!act) return;
    await act('readwrite', (store) => store.delete(id));
    tellKept(id);
}

/** Returns a setting, or `otherwise` if it was never set. */
export function setting(name, otherwise = null) {
    try {
        return JSON.parse(localStorage.getItem(`rope-cpu.${name}`)) ?? otherwise;
    } catch {
        return otherwise;
    }
}

/** Keeps a setting; `null` removes it. */
export function set(name, value) {
    try {
        if (value === null) localStorage.removeItem(`rope-cpu.${name}`);
        else localStorage.setItem(`rope-cpu.${name}`, JSON.stringify(value));
    } catch {
        // A browser that keeps nothing has the setting until the page is left.
    }
}
