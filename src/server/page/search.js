// Where conversations have a text that is searched for.

/** The letters around a place that is found. */
const BEFORE = 24;
const AFTER = 72;

/** Returns the conversations that have a text, as { conversation, excerpt }: the excerpt is null if the title has it. */
export function found(conversations, query) {
    const wanted = plain(query);
    const all = conversations.map((conversation) => ({ conversation, excerpt: wanted ? excerpt(conversation, wanted) : null }));
    return all.filter(({ excerpt }) => excerpt !== undefined);
}

/** Returns the text around a place, null if it is in the title, undefined if there is none. */
function excerpt({ title, nodes }, wanted) {
    if (plain(title).includes(wanted)) return null;
    for (const { content, files = [] } of nodes) {
        for (const text of [content, ...files.map(({ name }) => name)].map(oneLine)) {
            const at = text.toLowerCase().indexOf(wanted);
            if (at < 0) continue;
            const start = Math.max(0, at - BEFORE);
            return `${start > 0 ? '… ' : ''}${text.slice(start, at + wanted.length + AFTER)}`;
        }
    }
    return undefined;
}

/** Returns a text without differences that a search ignores. */
function plain(text) {
    return oneLine(text).toLowerCase();
}

function oneLine(text) {
    return text.replace(/\s+/g, ' ').trim();
}
