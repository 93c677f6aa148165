// Formulas: LaTeX in Markdown, shown as MathML. The library is loaded for the first formula.

const ENVIRONMENTS = 'equation|align|alignat|gather|multline|split';
const BLOCK = new RegExp(
    String.raw`^ {0,3}(?:\$\$(?:(?!\n\s*\n)[^])+?\$\$|\\\[(?:(?!\n\s*\n)[^])+?\\\]|` +
        String.raw`\\begin\{((?:${ENVIRONMENTS})\*?)\}[^]+?\\end\{\1\})[ \t]*(?:\n+|$)`,
);
const BLOCK_START = new RegExp(String.raw`\n {0,3}(?:\$\$|\\\[|\\begin\{(?:${ENVIRONMENTS})\*?\})`);

// Prices are no formulas: a dollar sign before a space opens none, and one after a space or before a digit closes none.
const INLINE = /^(?:\$\$(?:\\.|[^\\$])+?\$\$|\$(?![\s$])(?:\\.|[^\\$\n])*?[^\s\\$]\$(?![\d$])|\\\((?:(?!\n\s*\n)[^])+?\\\)|\\\[(?:(?!\n\s*\n)[^])+?\\\])/;

/** What Markdown has for formulas: `$…$` and `\(…\)` in a line; `$$…$$`, `\[…\]` and environments as a block. */
export const formulas = {
    extensions: [
        {
            name: 'formulaBlock',
            level: 'block',
            start: (text) => {
                const found = BLOCK_START.exec(text);
                return found ? found.index + 1 : -1;
            },
            tokenizer: (text) => token('formulaBlock', BLOCK.exec(text)),
            renderer: ({ text }) => `<p>${place(text, true)}</p>`,
        },
        {
            name: 'formula',
            level: 'inline',
            start: (text) => text.search(/\$|\\[([]/),
            tokenizer: (text) => token('formula', INLINE.exec(text)),
            renderer: ({ text }) => place(text, /^(?:\$\$|\\\[)/.test(text)),
        },
    ],
};

function token(type, found) {
    return found ? { type, raw: found[0], text: found[0].trim() } : undefined;
}

/** Returns the element of a formula, with its source until it is shown. */
function place(source, display) {
    const text = source.replace(/[&<>]/g, (letter) => `&#${letter.charCodeAt(0)};`);
    return `<span class="formula${display ? ' display' : ''}">${text}</span>`;
}

let loading = null;
let library = null;

/** Shows the formulas in a fragment. One that is wrong, or that cannot be loaded, stays as its source. */
export function showFormulas(fragment) {
    for (const formula of fragment.querySelectorAll('.formula')) {
        formula.dir = 'ltr';
        if (library) {
            show(formula);
            continue;
        }
        loading ??= import('./vendor-math.js').then(({ temml }) => (library = temml));
        loading.then(() => show(formula), () => (loading = null));
    }
}

function show(formula) {
    const source = formula.textContent;
    const latex = source.replace(/^(?:\$\$?|\\[([])|(?:\$\$?|\\[)\]])$/g, '');
    const displayMode = formula.classList.contains('display');
    const shown = document.createElement('span');
    try {
        library.render(latex, shown, { displayMode, throwOnError: true, maxSize: [20, 400] });
    } catch {
        return;
    }
    // Nothing but MathML and the numbers of equations: no links, no pictures.
    const isMath = (node) =>
        (node.namespaceURI === 'http://www.w3.org/1998/Math/MathML' || node.localName === 'span') && !node.hasAttribute('href');
    if (![...shown.querySelectorAll('*')].every(isMath)) return;
    formula.replaceChildren(...shown.childNodes);
    if (!displayMode) return;
    // A wide one is scrolled.
    formula.tabIndex = 0;
    formula.role = 'group';
    formula.ariaLabel = 'Formula';
}
