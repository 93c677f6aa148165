// The text of a PDF, which the server takes out of it with pdftotext.

import { get } from './server.js';

/** Returns whether a file is a PDF. */
export function isPdf(data) {
    return String.fromCharCode(...data.subarray(0, 5)) === '%PDF-';
}

/** Returns the text of a PDF. Fails with a sentence if the server has no pdftotext, or if that cannot read it. */
export async function textOf(file) {
    const address = await new Promise((resolve, reject) => {
        const reader = new FileReader();
        reader.onload = () => resolve(reader.result);
        reader.onerror = () => reject(reader.error);
        reader.readAsDataURL(file);
    });
    const { text } = await get('pdf', { body: { data: address.slice(address.indexOf(',') + 1) } });
    return text;
}
