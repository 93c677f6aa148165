// Keys. The dialog in index.html lists them.

/** Calls `actions` by keys: new, sidebar, panel, search, regenerate, message, help, escape. */
export function shortcuts(actions) {
    addEventListener('keydown', (event) => {
        // What is open above the page closes by the browser's own keys.
        if (event.isComposing || document.querySelector('dialog[open], :popover-open')) return;
        const action = named(event);
        if (!action) return;
        event.preventDefault();
        actions[action]();
    });
}

function named(event) {
    const { key } = event;
    const writing = event.target.closest?.('input, textarea, select');
    if (event.ctrlKey || event.metaKey) {
        if (event.shiftKey) return { o: 'new', enter: 'regenerate' }[key.toLowerCase()];
        return { b: 'sidebar', k: 'search', '.': 'panel', '/': 'help' }[key.toLowerCase()];
    }
    if (event.altKey) return null;
    if (key === 'Escape') return 'escape';
    if (writing) return null;
    return { '/': 'message', '?': 'help' }[key];
}
