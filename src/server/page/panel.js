// The panel: the context, the RoPE plan in force, the speed by depth, the memory.

import { chart } from './chart.js';
import { bytes, element, short, whole } from './dom.js';
import { get, ofModel } from './server.js';
import { depth } from './tree.js';

/** Returns a list of terms and values. */
function facts(rows) {
    const shown = rows.filter(([, value]) => value !== null && value !== undefined);
    return element('dl', { class: 'facts' }, shown.map(([term, value]) => element('div', {}, element('dt', {}, term), element('dd', {}, value))));
}

/** Shows how much of the context is used. */
export function showContext(place, { used, pending, reading, context, trained }) {
    const left = Math.max(0, context - used);
    place.replaceChildren(facts([
        ['Used', `${whole(used)} tokens`],
        pending > 0 ? [reading ? 'To be read' : 'This message', `${whole(pending)} tokens`] : ['', null],
        ['Left', `${whole(left)} tokens`],
        ['Trained', `${whole(trained)} tokens`],
        ['Context', `${whole(context)} tokens${context > trained ? ` (${short(context / trained)} × trained)` : ''}`],
    ]));
}

/** The RoPE plan, for the length of the conversation. */
export class Rope {
    #asked = 0;

    constructor(place) {
        this.place = place;
    }

    /** Shows the plan anew after an answer, if it depends on the length of the conversation. */
    async follow(tokens) {
        if (this.plan?.depends_on_length && tokens > 0) await this.load(tokens);
    }

    /** Asks the server for the plan, at a length in tokens or for a full context, and shows it. */
    async load(tokens) {
        const asked = ++this.#asked;
        const plan = await get(ofModel(tokens ? `rope?tokens=${tokens}` : 'rope')).catch(() => null);
        if (plan && asked === this.#asked) this.show(plan);
    }

    show(plan) {
        // A plan that changes nothing is folded.
        if (plan.method !== this.plan?.method) this.place.closest('details').open = scales(plan);
        this.plan = plan;
        const warnings = plan.warnings.map((warning) => element('p', { class: 'notice' }, warning));
        this.place.replaceChildren(
            ...warnings,
            facts([
                ['Method', plan.method],
                ['Factor', plan.factor === 1 ? null : short(plan.factor)],
                ['Base', plan.base === plan.base_trained ? short(plan.base) : `${short(plan.base)} (trained ${short(plan.base_trained)})`],
                ['Attention scale', plan.attention_scale === 1 ? null : short(plan.attention_scale)],
                ['Position m becomes', other(plan.position_formula, 'm')],
                ['Frequency θᵢ becomes', other(plan.frequency_formula, 'θ_i')],
                ['Distance d becomes', plan.distance_formula],
            ]),
            distances(plan),
            wavelengths(plan),
            element('details', { class: 'origins' }, element('summary', {}, 'Settings and their origins'), element('p', {}, plan.plan.replace(/^RoPE: /, ''))),
        );
    }
}

/** Returns whether a plan changes positions or frequencies. */
function scales({ method, factor, base, base_trained: trained }) {
    return method !== 'none' || factor !== 1 || base !== trained;
}

/** Returns a formula, null if it changes nothing. */
function other(formula, same) {
    return formula === same ? null : formula.replaceAll('_i', 'ᵢ');
}

/** Returns the chart of effective distances. */
function distances(plan) {
    const { context_original: trained, tokens } = plan;
    const line = (at) => plan.distances.map((distance) => [distance[0], distance[at]]);
    const all = plan.distances.flatMap(([, least, most]) => [least ?? 0, most ?? 0]);
    const differ = plan.distances.some(([, least, most]) => Math.abs(least - most) > 1e-6 * most);
    const furthest = Math.max(...all);
    const lines = differ
        ? [
              { name: 'fastest dimensions', class: 'second', points: line(2) },
              { name: 'slowest dimensions', class: 'first', points: line(1) },
          ]
        : [{ name: null, class: 'first', points: line(1) }];
    const beyond = plan.distances.some(([, least]) => least > trained * (1 + 1e-6));
    const description =
        `In ${whole(tokens)} tokens, the largest distance has the angles of a distance of ${whole(Math.max(...plan.distances.map((d) => d[1] ?? 0)))} ` +
        `in training${differ ? ` in the slowest dimensions, and of ${whole(furthest)} in the fastest` : ''}; the model was trained for ${whole(trained)}.`;
    return element(
        'div',
        {},
        chart({
            title: 'Effective distance',
            description,
            x: { label: 'distance in tokens', from: 0, to: tokens },
            y: { from: 0, to: Math.max(trained, furthest) * 1.12 },
            lines,
            marks: [{ axis: 'y', at: trained, label: `trained: ${whole(trained)}`, name: 'trained' }],
        }),
        element(
            'p',
            { class: 'hint' },
            `Far tokens are at distances that the model was ${beyond ? 'not ' : ''}trained for` +
                (differ ? ' in the slowest dimensions; the fastest turn so often that no angle is new.' : '.'),
        ),
    );
}

/** Returns the chart of wavelengths. */
function wavelengths(plan) {
    const { wavelengths: now, trained_wavelengths: before } = plan;
    const all = [...now, ...before];
    const numbered = (values) => values.map((value, pair) => [pair, value]);
    const same = now.every((value, pair) => Math.abs(value / before[pair] - 1) < 1e-9);
    const lines = [{ name: 'in force', class: 'first', points: numbered(now) }];
    if (!same) lines.unshift({ name: 'as trained', class: 'quiet', points: numbered(before) });
    return chart({
        title: 'Wavelength of each dimension pair',
        description:
            `From ${short(Math.min(...now))} to ${short(Math.max(...now))} tokens in ${now.length} pairs` +
            (same ? ', as trained.' : `; as trained from ${short(Math.min(...before))} to ${short(Math.max(...before))}.`),
        x: { label: 'pair of dimensions', from: 0, to: Math.max(1, now.length - 1) },
        y: { from: Math.min(...all), to: Math.max(...all), log: true },
        lines,
        marks: [{ axis: 'y', at: plan.context_original, label: `trained: ${whole(plan.context_original)}`, name: 'trained' }],
    });
}

/** Shows the speed now, and by depth over all answers of a conversation. */
export function showSpeed(place, nodes, context) {
    const answers = nodes.map((node) => node.answer).filter((answer) => answer?.timings);
    const last = answers.at(-1);
    if (!last) {
        place.replaceChildren(element('p', { class: 'hint' }, 'The speed is shown here once the model has answered.'));
        return;
    }
    const { timings } = last;
    const samples = answers.flatMap((answer) => answer.samples ?? []);
    const points = (kind) => samples.filter((sample) => sample.kind === kind)
        .map(({ depth, perSecond }) => [depth, perSecond]).sort((a, b) => a[0] - b[0]);
    const lines = [
        { name: 'reading', class: 'second', points: points('read') },
        { name: 'generating', class: 'first', points: points('generate') },
    ].filter((line) => line.points.length > 0);
    const speed = last.now ?? timings.predicted_per_second;
    const rows = facts([
        [last.now ? 'Generating now' : 'Last answer', speed ? `${short(speed)} tokens/s` : null],
        ['at a depth of', `${whole(depth(timings))} tokens`],
        ['Reading', timings.prompt_n > 0 ? `${short(timings.prompt_per_second)} tokens/s` : null],
        ['From the cache', `${whole(timings.cache_n)} of ${whole(timings.cache_n + timings.prompt_n)} tokens`],
    ]);
    const all = samples.map((sample) => sample.perSecond);
    if (lines.length === 0) {
        place.replaceChildren(rows);
        return;
    }
    const deepest = Math.max(...samples.map((sample) => sample.depth));
    place.replaceChildren(rows, chart({
        title: 'Tokens per second by depth',
        description: lines.map(({ name, points }) => `${name}: ${short(points[0][1])} at ${whole(points[0][0])}, ${short(points.at(-1)[1])} at ${whole(points.at(-1)[0])} tokens`).join('; '),
        x: { label: 'tokens in the context', from: 0, to: Math.min(context, Math.max(256, deepest * 1.05)) },
        y: { from: Math.min(...all) / 1.5, to: Math.max(...all) * 1.5, log: true },
        lines,
    }));
}

/** Shows the model and its memory. */
export function showMemory(place, properties) {
    if (!properties?.memory) return;
    const { weights_bytes, context_bytes, cache_bytes, buffers_bytes } = properties.memory;
    place.replaceChildren(facts([
        ['Model', properties.model_alias],
        ['Weights', bytes(weights_bytes)],
        ['Keys and values', `${bytes(cache_bytes)} in use`],
        ['of a full context', bytes(context_bytes)],
        ['Buffers', bytes(buffers_bytes)],
    ]));
}
