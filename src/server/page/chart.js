// Line charts as SVG.

import { element, short, svg } from './dom.js';

const WIDTH = 320;
const HEIGHT = 176;
const FRAME = { left: 48, right: 20, top: 10, bottom: 34 };

/**
 * Returns a chart. `x` and `y` are axes: { label, from, to, log }; `lines` have a name, a class, and points
 * [x, y], where a y of null is a gap; `marks` are lines across the chart: { at, label, class }, with the
 * axis that `at` is on. The description is for screen readers.
 */
export function chart({ title, description, x, y, lines, marks = [] }) {
    const right = WIDTH - FRAME.right;
    const bottom = HEIGHT - FRAME.bottom;
    const across = scale(x, FRAME.left, right);
    const up = scale(y, bottom, FRAME.top);
    const parts = [];
    for (const value of ticks(y)) {
        const at = up(value);
        parts.push(
            svg('line', { class: 'grid', x1: FRAME.left, x2: right, y1: at, y2: at }),
            svg('text', { class: 'tick', x: FRAME.left - 6, y: at + 3.5, 'text-anchor': 'end' }, compact(value)),
        );
    }
    for (const value of ticks(x)) {
        const at = across(value);
        parts.push(svg('text', { class: 'tick', x: at, y: bottom + 14, 'text-anchor': 'middle' }, compact(value)));
    }
    parts.push(svg('text', { class: 'axis', x: (FRAME.left + right) / 2, y: HEIGHT - 5, 'text-anchor': 'middle' }, x.label));
    for (const { axis, at, label, name } of marks) {
        const place = axis === 'y' ? up(at) : across(at);
        if (!(place >= FRAME.top - 1 && place <= right + 1)) continue;
        const ends = axis === 'y' ? { x1: FRAME.left, x2: right, y1: place, y2: place } : { x1: place, x2: place, y1: FRAME.top, y2: bottom };
        const text = axis === 'y' ? { x: FRAME.left + 4, y: place - 4 } : { x: place - 4, y: FRAME.top + 9, 'text-anchor': 'end' };
        parts.push(svg('line', { class: `mark ${name}`, ...ends }), svg('text', { class: `mark-label ${name}`, ...text }, label));
    }
    for (const line of lines) {
        parts.push(svg('path', { class: `line ${line.class}`, d: trace(line.points, across, up) }));
        if (line.points.length === 1) {
            const [[px, py]] = line.points;
            parts.push(svg('circle', { class: `dot ${line.class}`, cx: across(px), cy: up(py), r: 3 }));
        }
    }
    const picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': `${title}. ${description}` }, parts);
    const names = lines.filter((line) => line.name).map((line) =>
        element('span', { class: `key ${line.class}` }, element('i', { 'aria-hidden': 'true' }), line.name));
    return element(
        'figure',
        { class: 'chart' },
        element('figcaption', {}, element('span', { class: 'chart-title' }, title), names.length > 0 && element('span', { class: 'legend' }, names)),
        picture,
    );
}

/** Returns a function from values of an axis to points of the drawing. */
function scale({ from, to, log }, low, high) {
    const of = log ? Math.log : (value) => value;
    const [first, last] = [of(from), of(to)];
    const range = last - first || 1;
    return (value) => low + ((of(value) - first) / range) * (high - low);
}

/** Returns the values that an axis names: 1, 2 and 5 times powers of ten, or steps of a power of two. */
function ticks({ from, to, log }) {
    const values = [];
    if (log) {
        const decades = Math.log10(to / from);
        const every = Math.max(1, Math.ceil(decades / 5));
        const factors = decades < 2 ? [1, 2, 5] : [1];
        for (let power = Math.floor(Math.log10(from)); 10 ** power <= to; power += every) {
            values.push(...factors.map((factor) => factor * 10 ** power).filter((value) => value >= from && value <= to));
        }
        return values;
    }
    const step = 2 ** Math.ceil(Math.log2((to - from) / 4 || 1));
    for (let value = Math.ceil(from / step) * step; value <= to; value += step) values.push(value);
    return values;
}

/** Returns the path of a line. */
function trace(points, across, up) {
    let pen = 'M';
    let path = '';
    for (const [px, py] of points) {
        if (py !== null) path += `${pen}${across(px).toFixed(1)} ${up(py).toFixed(1)}`;
        pen = py === null ? 'M' : 'L';
    }
    return path;
}

/** Returns a number in few letters: 8,192 stays, 1,048,576 is 1.05M. */
function compact(value) {
    if (value >= 1e6) return `${short(value / 1e6)}M`;
    return value >= 1e5 ? `${short(value / 1e3)}k` : short(value);
}
