// Formulas: LaTeX in Markdown, shown as MathML. The library is loaded for the first formula.

/** The longest formula, in letters. */
const LENGTH_MAX = 4000;

/** The most formulas in each other, such as roots under roots. */
const DEPTH_MAX = 64;

/** The work of a formula, of a letter of it, and of a letter in which the end of one is sought. */
const FORMULA = 100_000;
const LETTER = 5000;
const SEARCHED = 40;

const any = `{1,${LENGTH_MAX}}?`;
const ENVIRONMENTS = 'equation|align|alignat|gather|multline|split';
const BLOCK = new RegExp(
    String.raw`^ {0,3}(?:\$\$(?:(?!\n\s*\n)[^])${any}\$\$|\\\[(?:(?!\n\s*\n)[^])${any}\\\]|` +
        String.raw`\\begin\{((?:${ENVIRONMENTS})\*?)\}[^]${any}\\end\{\1\})[ \t]*(?:\n+|$)`,
);
const BLOCK_START = new RegExp(String.raw`\n {0,3}(?:\$\$|\\\[|\\begin\{(?:${ENVIRONMENTS})\*?\})`, 'g');
const BLOCK_BEGIN = new RegExp(`^${BLOCK_START.source.slice(2)}`);

// Prices are no formulas: a dollar sign before a space opens none, and one after a space or before a digit closes none.
const INLINE = new RegExp(
    String.raw`^(?:\$\$(?:\\.|[^\\$])${any}\$\$|\$(?![\s$])(?:\\.|[^\\$\n]){0,${LENGTH_MAX}}?[^\s\\$]\$(?![\d$])|` +
        String.raw`\\\((?:(?!\n\s*\n)[^])${any}\\\)|\\\[(?:(?!\n\s*\n)[^])${any}\\\])`,
);
const INLINE_BEGIN = /^(?:\$|\\[([])/;

/** What Markdown has for formulas: `$…$` and `\(…\)` in a line; `$$…$$`, `\[…\]` and environments as a block. */
export const formulas = {
    extensions: [
        {
            name: 'formulaBlock',
            level: 'block',
            start(text) {
                // A block that is further from its paragraph's begin than a formula is long is found as one in a line.
                const starts = [...text.slice(0, LENGTH_MAX).matchAll(BLOCK_START)].map(({ index }) => index + 1);
                // One that has no end does not end the paragraph: the library would read the rest of it again and again.
                return starts.find((index) => find(text.slice(index), BLOCK_BEGIN, BLOCK, this.lexer)) ?? -1;
            },
            tokenizer(text) {
                return token('formulaBlock', text, BLOCK_BEGIN, BLOCK, this.lexer);
            },
            renderer: ({ text }) => `<p>${place(text, true)}</p>`,
        },
        {
            name: 'formula',
            level: 'inline',
            start: (text) => text.search(/\$|\\[([]/),
            tokenizer(text) {
                return token('formula', text, INLINE_BEGIN, INLINE, this.lexer);
            },
            renderer: ({ text }) => place(text, /^(?:\$\$|\\\[)/.test(text)),
        },
    ],
};

/** Returns the formula that a text begins with, undefined if it begins with none, or if that would be too much work. */
function token(type, text, begin, whole, lexer) {
    const raw = find(text, begin, whole, lexer);
    return raw && lexer.permits(FORMULA + LETTER * raw.length) ? { type, raw, text: raw.trim() } : undefined;
}

/** Returns the source of the formula that a text begins with, undefined as in `token`. */
function find(text, begin, whole, lexer) {
    const may = begin.test(text) && lexer.permits(SEARCHED * Math.min(text.length, LENGTH_MAX));
    return may ? whole.exec(text)?.[0] : undefined;
}

/** Returns the element of a formula, with its source until it is shown. */
function place(source, display) {
    const text = source.replace(/[&<>]/g, (letter) => `&#${letter.charCodeAt(0)};`);
    return `<span class="formula${display ? ' display' : ''}">${text}</span>`;
}

let loading = null;
let library = null;

/** What a formula may not do: define macros, as a few of them expand to any length. */
const DEFINITIONS = ['def', 'edef', 'gdef', 'xdef', 'let', 'futurelet', 'global', 'long', 'newcommand', 'renewcommand', 'providecommand'];

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
    const macros = Object.fromEntries(DEFINITIONS.map((name) => [`\\${name}`, refuse]));
    try {
        library.render(latex, shown, { displayMode, throwOnError: true, maxSize: [20, 400], macros });
    } catch {
        return;
    }
    if (![...shown.children].every((child) => isMath(child, DEPTH_MAX))) return;
    formula.replaceChildren(...shown.childNodes);
    if (!displayMode) return;
    // A wide one is scrolled.
    formula.tabIndex = 0;
    formula.role = 'group';
    formula.ariaLabel = 'Formula';
}

function refuse() {
    throw new Error('a definition');
}

/** Returns whether an element has nothing but MathML and the numbers of equations: no links, no pictures, not too deep. */
function isMath(node, depth) {
    const isOne = node.namespaceURI === 'http://www.w3.org/1998/Math/MathML' || node.localName === 'span';
    return depth > 0 && isOne && !node.hasAttribute('href') && [...node.children].every((child) => isMath(child, depth - 1));
}
