// Elements from a name, attributes and children; icons; numbers as text.

/** Returns an element. Attributes that begin with `on` are listeners; `false` and `null` leave one out. */
export function element(name, attributes = {}, ...children) {
    return filled(document.createElement(name), attributes, children);
}

/** Returns an element of SVG. */
export function svg(name, attributes = {}, ...children) {
    return filled(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

function filled(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (value === false || value === null || value === undefined) continue;
        if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
        else node.setAttribute(name, value === true ? '' : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return node;
}

const PATHS = {
    check: 'M5 13l4.5 4.5L19 7.5',
    copy: 'M9 9h11v11H9zM15 9V4H4v11h5',
    edit: 'M4 20h4L19.5 8.5l-4-4L4 16zM13 7l4 4',
    file: 'M6 3h8l4 4v14H6zM14 3v5h4',
    left: 'M14.5 6l-6 6 6 6',
    remove: 'M6 6l12 12M18 6L6 18',
    trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5',
    retry: 'M5 12a7 7 0 0 1 12-5l2 2M19 4v5h-5M19 12a7 7 0 0 1-12 5l-2-2M5 20v-5h5',
    right: 'M9.5 6l6 6-6 6',
    send: 'M12 19V6m-6 6l6-6 6 6',
    stop: 'M7 7h10v10H7z',
    unfold: 'M6 9.5l6 6 6-6',
};

/** Returns an icon, which screen readers pass over. */
export function icon(name) {
    const attributes = { class: `icon icon-${name}`, viewBox: '0 0 24 24', 'aria-hidden': 'true' };
    return svg('svg', attributes, svg('path', { d: PATHS[name] }));
}

/** Returns a button with an icon, whose label screen readers and tooltips show. */
export function iconButton(name, label, onclick, attributes = {}) {
    const button = { type: 'button', class: 'icon-button', 'aria-label': label, title: label, onclick };
    return element('button', { ...button, ...attributes }, icon(name));
}

/** Returns a whole number with separators. */
export function whole(number) {
    return Math.round(number).toLocaleString('en-US');
}

/** Returns a number with three significant digits. */
export function short(number) {
    if (number === 0 || !Number.isFinite(number)) return String(number);
    if (Math.abs(number) >= 1000) return whole(number);
    return String(Number(number.toPrecision(3)));
}

/** Returns a number of bytes with its unit. */
export function bytes(number) {
    const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    for (; number >= 1024 && unit < units.length - 1; unit++) number /= 1024;
    return `${short(number)} ${units[unit]}`;
}

/** Returns a time in words. */
export function duration(seconds) {
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    if (seconds < 90) return `${Math.round(seconds)} s`;
    const minutes = Math.round(seconds / 60);
    return minutes < 90 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}

/** Has screen readers announce a sentence. */
export function announce(text) {
    document.getElementById('announcements').textContent = text;
}

/** Sends a file to the user's downloads. */
export function download(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    element('a', { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
