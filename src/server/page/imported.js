// A conversation from a file: what it has is checked, as anything may be in it.

import { newConversation } from './tree.js';

const isText = (value) => typeof value === 'string';
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Returns an exported conversation as a new one, null if it is of another form. */
export function read(exported) {
    const { title, system = '', nodes, chosen = {} } = isObject(exported) ? exported : {};
    if (![title, system].every(isText) || !Array.isArray(nodes) || nodes.length === 0 || !isObject(chosen)) return null;
    const known = new Set(['']);
    for (const node of nodes) {
        // Parents come first, so that there is no circle.
        if (!isNode(node) || known.has(node.id) || !known.has(node.parent)) return null;
        known.add(node.id);
    }
    return { ...newConversation(system), title, nodes: nodes.map(only), chosen };
}

function isNode(node) {
    return (
        isObject(node) &&
        [node.id, node.parent, node.content].every(isText) &&
        ['user', 'assistant'].includes(node.role) &&
        (node.files === undefined || (Array.isArray(node.files) && node.files.every(isFile))) &&
        (node.reasoning === undefined || isText(node.reasoning)) &&
        (node.answer === undefined || isAnswer(node.answer))
    );
}

function isFile(file) {
    return isObject(file) && isText(file.name) && isText(file.text);
}

function isAnswer(answer) {
    const { timings, samples = [], fault = null, finish = null, model = null } = isObject(answer) ? answer : { samples: null };
    const isSample = (sample) => isObject(sample) && isText(sample.kind) && [sample.depth, sample.perSecond].every(Number.isFinite);
    return (
        [fault, finish, model].every((text) => text === null || isText(text)) &&
        (timings === undefined || (isObject(timings) && isTimed(timings))) &&
        Array.isArray(samples) &&
        samples.every(isSample)
    );
}

function isTimed({ cache_n, prompt_n, prompt_ms, ...more }) {
    return [cache_n, prompt_n, prompt_ms, ...Object.values(more)].every(Number.isFinite);
}

/** Returns the fields of a node that the page has. */
function only({ id, parent, role, content, made, files, reasoning, answer }) {
    const all = Object.entries({ id, parent, role, content, made, files, reasoning, answer });
    return Object.fromEntries(all.filter(([, value]) => value !== undefined));
}
