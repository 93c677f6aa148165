// Whether messages fit into the context, before they are sent.

import { whole } from './dom.js';
import { count, get, ofModel } from './server.js';

/** What a server needs, if its options are not known. */
export const LARGER = 'a larger context (-c)';

/** The most tokens that a template adds to a message, so that short ones need not be counted. */
const TEMPLATE_MAX = 64;

/**
 * Returns a notice of why messages cannot be sent, null if they fit or nobody knows: then the server decides. Messages that
 * certainly fit get their answer at once, others a promise of it. `properties` are the server's.
 */
export function refusal(messages, properties) {
    const context = properties?.default_generation_settings.n_ctx;
    // A token has at least a byte.
    const most = messages.reduce((sum, { content }) => sum + bytes(content) + TEMPLATE_MAX, 0);
    return !context || properties.context_rolls || most < context ? null : counted(messages, context);
}

async function counted(messages, context) {
    const tokens = await get('apply-template', { body: { messages } })
        .then(({ prompt }) => count(prompt))
        .catch(() => 0);
    // An answer needs a token.
    const excess = tokens + 1 - context;
    if (excess <= 0) return null;
    const { options, text } = await longer(tokens);
    const sentence =
        `The message was not sent: it has ${whole(excess)} ${excess === 1 ? 'token' : 'tokens'} too many for the context of ` +
        `${whole(context)}. Shorten it, begin a new conversation, or restart the server with ${text}.`;
    return { sentence, options };
}

/** Returns the options of a server in which a number of tokens fits, and a text about them. */
export async function longer(tokens) {
    // Without an answer, the text tells what is certain.
    const { prompt_options: options, prompt_options_text: text } = await get(ofModel(`rope?prompt=${tokens}`)).catch(() => ({}));
    return { options, text: text ?? LARGER };
}

function bytes(text) {
    return new TextEncoder().encode(text).length;
}
