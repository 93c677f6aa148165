// OpenAI's JavaScript client: chat, streaming, errors.

import assert from 'node:assert';
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: process.env.BASE_URL + '/v1', apiKey: process.env.API_KEY, maxRetries: 0 });
const request = {
    model: 'model', max_tokens: 8, temperature: 0,
    messages: [{ role: 'user', content: 'Say hello.' }],
};
const answer = await client.chat.completions.create(request);
const text = answer.choices[0].message.content;
assert(text.length > 0);

let streamed = '';
for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    streamed += chunk.choices[0]?.delta.content ?? '';
}
assert.equal(streamed, text);

await assert.rejects(client.chat.completions.create({ ...request, messages: 1 }), { status: 400 });
