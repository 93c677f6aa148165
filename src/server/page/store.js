// Conversations are kept in the browser's IndexedDB, and settings in its localStorage.

const STORE = 'conversations';
let opened = null;

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

/** Keeps a conversation as it is now. */
export async function keep(conversation) {
    if (opened) await act('readwrite', (store) => store.put(conversation));
}

/** Removes a conversation. */
export async function remove(id) {
    if (opened) await act('readwrite', (store) => store.delete(id));
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
