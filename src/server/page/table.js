// A table of objects with an `id` in the browser's IndexedDB.

/** Opens a table in a database of its own. Fails if the browser keeps nothing. */
export async function openTable(database, table) {
    const opened = await new Promise((resolve, reject) => {
        const request = indexedDB.open(database, 1);
        request.onupgradeneeded = () => request.result.createObjectStore(table, { keyPath: 'id' });
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
        request.onblocked = () => reject(new Error('another tab holds an older version'));
    });
    /** Acts in a transaction: `work` gets the table and returns a request. Returns its result. */
    return (mode, work) =>
        new Promise((resolve, reject) => {
            const transaction = opened.transaction(table, mode);
            const request = work(transaction.objectStore(table));
            transaction.oncomplete = () => resolve(request.result);
            transaction.onabort = () => reject(transaction.error);
        });
}
