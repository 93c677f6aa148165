// A conversation is a tree: a message that is edited and an answer that is regenerated get siblings.
//
// { id, title, created, changed, system, nodes, chosen }: nodes in the order in which they were made,
// each with its parent ('' for the first ones); `chosen` has the child that is shown for a parent.

/** Returns an empty conversation. */
export function newConversation(system = '') {
    const now = Date.now();
    return { id: identifier(), title: '', created: now, changed: now, system, nodes: [], chosen: {} };
}

/** Returns an identifier that no other node or conversation has. */
function identifier() {
    const numbers = crypto.getRandomValues(new Uint32Array(3));
    return Array.from(numbers, (number) => number.toString(36)).join('');
}

/** Adds a node and shows it. */
export function add(conversation, parent, role, content, more = {}) {
    const node = { id: identifier(), parent, role, content, made: Date.now(), ...more };
    conversation.nodes.push(node);
    conversation.chosen[parent] = node.id;
    conversation.changed = node.made;
    return node;
}

/** Returns the versions of the message after `parent`. */
export function versions(conversation, parent) {
    return conversation.nodes.filter((node) => node.parent === parent);
}

/** Returns the nodes that are shown, from the first to the last. */
export function path(conversation) {
    const nodes = [];
    for (let parent = ''; ; parent = nodes.at(-1).id) {
        const all = versions(conversation, parent);
        if (all.length === 0) return nodes;
        nodes.push(all.find((node) => node.id === conversation.chosen[parent]) ?? all.at(-1));
    }
}

/** Shows another version of a message. */
export function choose(conversation, node) {
    conversation.chosen[node.parent] = node.id;
}

/**
 * Returns the messages of `nodes` as the server reads them. The same nodes always give the same text, so
 * that the server finds it in its cache.
 */
export function messages(conversation, nodes) {
    const all = [];
    if (conversation.system) all.push({ role: 'system', content: conversation.system });
    for (const node of nodes) {
        const content = text(node);
        const last = all.at(-1);
        // An answer that failed before its first word is none.
        if (node.role === 'assistant' && content === '' && !node.reasoning) continue;
        if (last?.role === node.role && node.role === 'user') last.content += `\n\n${content}`;
        else if (node.reasoning) all.push({ role: node.role, reasoning_content: node.reasoning, content });
        else all.push({ role: node.role, content });
    }
    return all;
}

/**
 * Returns the text of a message: its files first, so that questions after them share their prefix. A file starts with
 * its text, so that the server finds it among the documents that `rope-cpu read` has written.
 */
export function text(node) {
    const files = (node.files ?? []).map(({ name, text }) => `${text}\n\n(The text above is ${name}.)\n\n`);
    return files.join('') + node.content;
}

/** Returns a conversation with the nodes that are stored, but `own` as they are here. `stored` is undefined if nothing is. */
export function merged(stored, conversation, own) {
    if (!stored) return conversation;
    const here = new Map(own.map((node) => [node.id, node]));
    const nodes = stored.nodes.map((node) => here.get(node.id) ?? node);
    return { ...conversation, nodes: [...new Set([...nodes, ...own])] };
}

/** Takes over what another tab has stored, but not which versions it shows, nor the nodes `newer`, which are newer here. */
export function absorb(conversation, { nodes, chosen, ...rest }, newer) {
    Object.assign(conversation, rest, { chosen: { ...chosen, ...conversation.chosen } });
    for (const node of nodes) {
        const known = conversation.nodes.find(({ id }) => id === node.id);
        if (!known) conversation.nodes.push(node);
        else if (!newer.includes(known)) Object.assign(known, node);
    }
}

/** Returns a title from the first words of a message. */
export function titleOf(node) {
    const words = (node.content || node.files?.[0]?.name || '').trim().replace(/\s+/g, ' ');
    return words.length <= 48 ? words : `${words.slice(0, 48).replace(/\s\S*$/, '')} …`;
}

/** Returns the number of tokens in the context after the last answer, 0 if there is none. */
export function used(nodes) {
    const last = nodes.findLast((node) => node.answer?.timings);
    return last ? depth(last.answer.timings) : 0;
}

/** Returns the number of tokens of a prompt and of its answer so far. */
export function depth({ cache_n, prompt_n, predicted_n = 0 }) {
    return cache_n + prompt_n + predicted_n;
}

/** Returns a conversation as Markdown. */
export function toMarkdown(conversation) {
    const parts = [`# ${conversation.title}`];
    if (conversation.system) parts.push(`## System\n\n${conversation.system}`);
    for (const node of path(conversation)) {
        parts.push(`## ${node.role === 'user' ? 'User' : 'Assistant'}\n\n${text(node)}`);
    }
    return `${parts.join('\n\n')}\n`;
}
