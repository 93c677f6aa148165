// The context gauge: used, trained and extended.

import { element, whole } from './dom.js';

export class Gauge {
    constructor(place) {
        this.trained = element('div', { class: 'part trained' });
        this.extended = element('div', { class: 'part extended' });
        this.pending = element('div', { class: 'part pending' });
        this.tick = element('div', { class: 'tick' });
        this.bar = element(
            'div',
            { class: 'gauge', role: 'meter', 'aria-label': 'Context', 'aria-valuemin': 0 },
            this.trained,
            this.extended,
            this.pending,
            this.tick,
        );
        this.text = element('div', { class: 'gauge-text' });
        place.replaceChildren(this.bar, this.text);
    }

    /** Shows `used` tokens, and those of a message that is being written, or read, in a context. */
    show({ used, pending, reading, context, trained }) {
        const share = (tokens) => `${Math.min(100, (100 * tokens) / context)}%`;
        const within = Math.min(used, trained);
        this.trained.style.width = share(within);
        this.extended.style.left = share(within);
        this.extended.style.width = share(Math.max(0, Math.min(used, context) - within));
        this.pending.style.left = share(used);
        this.pending.style.width = share(Math.max(0, Math.min(pending, context - used)));
        this.tick.style.left = share(trained);
        this.tick.hidden = trained >= context;
        const beyond = used + pending > context;
        this.bar.classList.toggle('beyond', beyond);

        const parts = [`${whole(used)} of ${whole(context)} tokens used`];
        if (reading) parts.push(`${whole(pending)} more to be read`);
        else if (pending > 0) parts.push(`about ${whole(pending)} more in this message`);
        if (trained < context) parts.push(`trained for ${whole(trained)}, extended to ${whole(context)}`);
        else if (trained > context) parts.push(`trained for ${whole(trained)}`);
        else parts.push('as trained');
        if (beyond) parts.push(`about ${whole(used + pending - context)} too many: the message does not fit`);
        const text = parts.join(' · ');
        this.bar.setAttribute('aria-valuemax', context);
        this.bar.setAttribute('aria-valuenow', Math.min(used, context));
        this.bar.setAttribute('aria-valuetext', text);
        this.text.textContent = text;
    }
}
