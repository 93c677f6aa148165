// Markdown as elements, while it is being written: blocks that did not change stay.

import { DOMPurify, Marked, hljs } from './vendor.js';
import { announce, element, icon } from './dom.js';
import { LimitedLexer, plain } from './lexer.js';
import { formulas, showFormulas } from './math.js';

const marked = new Marked({
    gfm: true,
    renderer: {
        // HTML in an answer is shown as text.
        html: ({ text }) => escaped(text),
        code: ({ text, lang, highlighted }) =>
            `<pre><code class="${highlighted ? 'highlighted' : ''} language-${escaped(language(lang))}">${escaped(text)}</code></pre>`,
        image: ({ text, href }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
        checkbox: ({ checked }) => `<span class="task-box${checked ? ' done' : ''}"></span> `,
    },
});
marked.use(formulas);
marked.use({ extensions: [{ name: 'plain', renderer: ({ text }) => `<p class="plain">${escaped(text)}</p>` }] });

// What answers may consist of. Nothing loads from elsewhere, and nothing looks like a part of the page.
const PERMITTED = {
    ALLOWED_TAGS: [
        ...['a', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'li', 'ol'],
        ...['p', 'pre', 'span', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul'],
    ],
    ALLOWED_ATTR: ['align', 'class', 'href', 'start'],
    ADD_URI_SAFE_ATTR: ['align', 'start'],
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    RETURN_DOM_FRAGMENT: true,
};

/** Text as it grows, shown as Markdown in an element. */
export class Markdown {
    #blocks = [];

    constructor(target) {
        this.target = target;
    }

    /** Shows a text. Whatever it is, the page goes on: a text that a library fails for is shown as it is. */
    show(text) {
        try {
            this.#show(new LimitedLexer(marked.defaults).lex(text));
        } catch (error) {
            console.warn(error);
            this.#show([plain(text)]);
        }
    }

    #show(tokens) {
        const blocks = tokens.filter((token) => token.type !== 'space');
        let same = 0;
        while (same < this.#blocks.length && this.#blocks[same].raw === blocks[same]?.raw) same++;
        for (const { node } of this.#blocks.splice(same)) node.remove();
        for (const token of blocks.slice(same)) {
            const node = element('div', { class: `block block-${token.type}` }, block(token, tokens.links));
            this.#blocks.push({ raw: token.raw, node });
            this.target.append(node);
        }
    }
}

function block(token, links) {
    if (token.type === 'plain') return element('p', { class: 'plain', dir: 'auto' }, token.text);
    if (token.type === 'code') return code(token);
    const tokens = Object.assign([token], { links });
    const fragment = DOMPurify.sanitize(marked.parser(tokens), PERMITTED);
    for (const link of fragment.querySelectorAll('a[href]')) {
        link.target = '_blank';
        link.rel = 'noopener noreferrer';
    }
    // Headings of an answer are below those of the page.
    for (const heading of fragment.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
        const level = Math.min(6, Number(heading.tagName[1]) + 2);
        const lower = element(`h${level}`, { class: `h${heading.tagName[1]}` });
        lower.append(...heading.childNodes);
        heading.replaceWith(lower);
    }
    for (const table of fragment.querySelectorAll('table')) {
        const scroll = element('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Table' });
        table.replaceWith(scroll);
        scroll.append(table);
    }
    for (const nested of fragment.querySelectorAll('pre > code')) {
        const [, lang] = /language-(\S*)/.exec(nested.className);
        const highlighted = nested.classList.contains('highlighted');
        nested.parentElement.replaceWith(code({ text: nested.textContent, lang, highlighted }));
    }
    for (const box of fragment.querySelectorAll('.task-box')) {
        const done = box.classList.contains('done');
        box.closest('li')?.classList.add('task');
        box.replaceWith(element('input', { type: 'checkbox', disabled: true, checked: done, 'aria-label': done ? 'Done' : 'To do' }));
    }
    showFormulas(fragment);
    // Each block has the direction of its text, right to left in Arabic or Hebrew.
    for (const part of fragment.children) if (!part.matches('.code')) part.dir = 'auto';
    return fragment;
}

/** Returns a block of code, highlighted, with a button that copies it. */
function code({ text, lang, highlighted }) {
    const name = language(lang);
    const shown = element('code');
    if (highlighted && hljs.getLanguage(name)) {
        const { value } = hljs.highlight(text, { language: name, ignoreIllegals: true });
        shown.append(DOMPurify.sanitize(value, PERMITTED));
    } else {
        shown.textContent = text;
    }
    const label = `Code${name ? ` in ${name}` : ''}`;
    return element(
        'div',
        { class: 'code' },
        element('div', { class: 'code-head' }, element('span', {}, name || 'text'), copyButton(() => text, 'Copy code')),
        element('pre', { tabindex: 0, role: 'group', 'aria-label': label }, shown),
    );
}

/** Returns the name of a language, as a block of code has it. */
function language(name = '') {
    return name.match(/^[\w+#-]*/)[0].toLowerCase();
}

/** Returns a button that copies a text. */
export function copyButton(text, label) {
    const button = element('button', { type: 'button', class: 'icon-button', 'aria-label': label, title: label }, icon('copy'));
    button.addEventListener('click', async () => {
        try {
            await navigator.clipboard.writeText(text());
        } catch {
            announce('The browser does not permit copying: select the text and copy it.');
            return;
        }
        announce('Copied');
        button.replaceChildren(icon('check'));
        setTimeout(() => button.replaceChildren(icon('copy')), 1500);
    });
    return button;
}

function escaped(text) {
    return text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
