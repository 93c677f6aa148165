// The address of the page names the conversation that is shown: #c= and its identifier.

const MARK = '#c=';

/** Returns the address of a conversation, as a link has it. */
export function addressOf({ id }) {
    return MARK + id;
}

/** Returns the identifier in the page's address, null if it has none. */
export function named() {
    return location.hash.startsWith(MARK) ? location.hash.slice(MARK.length) : null;
}

/** Shows the address of a conversation, or that of none for null: as a new step of the history, or in the place of the last. */
export function setAddress(conversation, isNew) {
    if (named() === (conversation?.id ?? null)) return;
    const address = conversation ? addressOf(conversation) : location.pathname + location.search;
    if (isNew) history.pushState(null, '', address);
    else history.replaceState(null, '', address);
}

/** Calls `open(identifier)` when the user goes back or forward, or changes the address; null is a new conversation. */
export function followAddress(open) {
    addEventListener('popstate', () => (named() || location.hash === '') && open(named()));
}
