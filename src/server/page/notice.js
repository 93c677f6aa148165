// A sentence that tells what to do, with a button for options that the server can be started with.

import { element } from './dom.js';
import { copyButton } from './markdown.js';

/** Shows a notice: a sentence, or a `sentence` with `options`. An empty one, or null, removes it. */
export function showNotice(place, notice) {
    const { sentence, options } = typeof notice === 'string' ? { sentence: notice } : (notice ?? {});
    place.hidden = !sentence;
    const copy = options && copyButton(() => options, `Copy ${options}`);
    place.replaceChildren(...[sentence && element('span', {}, sentence), copy].filter(Boolean));
}
