// Conversations are kept in the browser's IndexedDB, and settings in its localStorage.

import { merged } from './tree.js';

const STORE = 'conversations';
let opened = null;

/** The page in the other tabs. */
const others = new BroadcastChannel('rope-cpu');

/** Opens the database. Returns whether the browser keeps anything. */
export async function open() {
    try {
        opened = await new Promise((resolve, reject) => {
            const request = indexedDB.open('rope-cpu', 1);
            request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: 'id' });
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => reject(request.error);
            request.onblocked = () => reject(new Error('another tab holds an older version'));
        });
    } catch {
        opened = null;
    }
    return opened !== null;
}

/** Returns all conversations, the latest first. */
export async function all() {
    const found = opened ? await act('readonly', (store) => store.getAll()) : [];
    return found.sort((a, b) => b.changed - a.changed);
}

/** Returns a conversation as it is kept, undefined if it is not. */
export async function one(id) {
    return opened ? act('readonly', (store) => store.get(id)) : undefined;
}

/** Keeps a conversation. Its nodes are kept as another tab may have written them, but `own` as they are here. */
export async function keep(conversation, own) {
    if (!opened) return;
    await act('readwrite', (store) => {
        const request = store.get(conversation.id);
        request.onsuccess = () => store.put(merged(request.result, conversation, own));
        return request;
    });
    others.postMessage(conversation.id);
}

/** Removes a conversation. */
export async function remove(id) {
    if (!opened) return;
    await act('readwrite', (store) => store.delete(id));
    others.postMessage(id);
}

/** Calls `changed` with the identifier of each conversation that another tab keeps or removes. */
export function follow(changed) {
    others.onmessage = (event) => changed(event.data);
}

function act(mode, work) {
    return new Promise((resolve, reject) => {
        const transaction = opened.transaction(STORE, mode);
        const request = work(transaction.objectStore(STORE));
        transaction.oncomplete = () => resolve(request.result);
        transaction.onabort = () => reject(transaction.error);
    });
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
