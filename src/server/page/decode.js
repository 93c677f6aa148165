// The text of a file of any common encoding.

/** What no text has: control characters, but tabs, ends of lines and pages, and escapes of terminals. */
// eslint-disable-next-line no-control-regex
const CONTROL = /[\0-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]/;

/** Returns a file's `text` and the name of its `encoding`, null for UTF-8. Returns null if it is not text. */
export function decode(data) {
    const wide = utf16(data);
    if (wide) return decoded(data, wide, 'UTF-16');
    // Latin-1 has a letter for each byte, and Windows' variant for all but five, so it is tried last.
    return decoded(data, 'utf-8', null) ?? (data.some((byte) => [0x81, 0x8d, 0x8f, 0x90, 0x9d].includes(byte)) ? null : decoded(data, 'windows-1252', 'Latin-1'));
}

function decoded(data, label, encoding) {
    try {
        const text = new TextDecoder(label, { fatal: true }).decode(data);
        return CONTROL.test(text) ? null : { text, encoding };
    } catch {
        return null;
    }
}

/** Returns the label of UTF-16, by its mark or its zeros, undefined for bytes of another encoding. */
function utf16(data) {
    if (data[0] === 0xff && data[1] === 0xfe) return 'utf-16le';
    if (data[0] === 0xfe && data[1] === 0xff) return 'utf-16be';
    // Without a mark: most letters of European languages have a zero as their higher byte.
    const zeros = [0, 0];
    data.forEach((byte, place) => byte === 0 && zeros[place % 2]++);
    const most = zeros.findIndex((count, side) => count > data.length / 4 && zeros[1 - side] < data.length / 100);
    return data.length % 2 === 0 ? ['utf-16be', 'utf-16le'][most] : undefined;
}
