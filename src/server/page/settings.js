// Settings of answers: the system prompt of a conversation, and the sampler's settings of all.

import { element } from './dom.js';
import { set, setting } from './store.js';

/** The fields: name, label, step, what it does. */
const FIELDS = [
    ['temperature', 'Temperature', 0.05, '0 always takes the most likely token; higher is more random.'],
    ['top_k', 'Top k', 1, 'Only the k most likely tokens may follow; 0 for all.'],
    ['top_p', 'Top p', 0.01, 'Only the most likely tokens with this probability together may follow.'],
    ['min_p', 'Min p', 0.01, 'Only tokens with this share of the highest probability may follow.'],
    ['repeat_penalty', 'Repeat penalty', 0.01, 'Above 1, tokens of the last text become less likely.'],
    ['presence_penalty', 'Presence penalty', 0.05, 'Above 0, tokens that are in the text become less likely.'],
    ['max_tokens', 'Most tokens', 1, 'The longest answer; empty for no limit but the context.'],
    ['seed', 'Seed', 1, 'The same seed gives the same answer; empty for another each time.'],
];

/** Returns the settings that differ from the server's, as requests have them. */
export function given() {
    return setting('sampling', {});
}

/** Builds the form of the sampler's settings. `defaults` are the server's. */
export function showSampling(place, defaults) {
    const rows = FIELDS.map(([name, label, step, help]) => {
        const otherwise = name === 'max_tokens' ? 'no limit' : name === 'seed' ? 'random' : String(round(defaults[name] ?? ''));
        const input = element('input', {
            id: `setting-${name}`,
            type: 'number',
            step: 'any',
            'data-step': step,
            placeholder: otherwise,
            value: given()[name] ?? '',
            'aria-describedby': `help-${name}`,
            oninput: () => change(name, input),
        });
        return element(
            'div',
            { class: 'field' },
            element('label', { for: `setting-${name}` }, label),
            input,
            element('p', { id: `help-${name}`, class: 'hint' }, help),
        );
    });
    const reset = element('button', {
        type: 'button',
        class: 'button',
        onclick: () => {
            set('sampling', null);
            showSampling(place, defaults);
        },
    }, 'Take the server’s settings');
    place.replaceChildren(...rows, reset);
}

/** Returns a number as it was written: the server has 32-bit ones. */
function round(number) {
    return typeof number === 'number' ? Number(number.toPrecision(6)) : number;
}

function change(name, input) {
    const settings = { ...given() };
    if (input.value === '' || !Number.isFinite(input.valueAsNumber)) delete settings[name];
    else settings[name] = input.valueAsNumber;
    set('sampling', Object.keys(settings).length > 0 ? settings : null);
}

/** Applies the theme that was chosen: system, light or dark. Returns its name. */
export function applyTheme(name = setting('theme', 'system')) {
    document.documentElement.dataset.theme = name;
    return name;
}

/** Takes the next theme. Returns its name. */
export function nextTheme() {
    const names = ['system', 'light', 'dark'];
    const next = names[(names.indexOf(setting('theme', 'system')) + 1) % names.length];
    set('theme', next === 'system' ? null : next);
    return applyTheme(next);
}
