// ollama's JavaScript client and a server of many models: list, show, ps, pull, copy, create, chat, embed, unload, delete.

import assert from 'node:assert';
import { Ollama } from 'ollama';

const client = new Ollama({
    host: process.env.BASE_URL, headers: { Authorization: `Bearer ${process.env.API_KEY}` },
});
const messages = [{ role: 'user', content: 'Say hello.' }];
const names = async () => (await client.list()).models.map(({ model }) => model).sort();
const running = async () => (await client.ps()).models.map(({ model }) => model).sort();

async function untilClosed(name) {
    for (let tries = 0; (await running()).includes(name); tries += 1) {
        assert(tries < 100, `${name} is still open`);
        await new Promise((done) => { setTimeout(done, 100); });
    }
}

assert.deepEqual(await names(), ['smollm2']);
assert.deepEqual(await running(), []);
assert.equal((await client.show({ model: 'smollm2' })).details.family, 'llama');

const steps = [];
for await (const step of await client.pull({ model: 'local/SmolLM2-GGUF', stream: true })) steps.push(step);
assert.equal(steps.at(-1).status, 'success');
assert(steps.some(({ total, completed }) => total > 0 && completed <= total));
const pulled = 'local/SmolLM2-GGUF:Q4_1';
assert((await names()).includes(pulled));

await client.copy({ source: pulled, destination: 'other' });
const created = await client.create({
    model: 'brief', from: 'smollm2', system: 'You answer briefly.', parameters: { num_predict: 4, temperature: 0 },
});
assert.equal(created.status, 'success');
assert.deepEqual(await names(), ['brief', pulled, 'other', 'smollm2'].sort());

const answer = await client.chat({ model: 'brief', messages });
assert(answer.message.content.length > 0 && answer.eval_count <= 4, JSON.stringify(answer));
let streamed = '';
for await (const part of await client.chat({ model: 'brief', messages, stream: true })) {
    streamed += part.message.content;
}
assert.equal(streamed, answer.message.content);
assert.equal((await client.embed({ model: 'smollm2', input: ['one', 'two'] })).embeddings.length, 2);
assert.deepEqual(await running(), ['brief', 'smollm2']);
assert.equal((await client.generate({ model: 'brief', keep_alive: 0 })).done_reason, 'unload');
await untilClosed('brief');
await client.chat({ model: 'smollm2', messages, options: { num_predict: 1 }, keep_alive: 0 });
await untilClosed('smollm2');

for (const model of ['other', 'brief', pulled]) await client.delete({ model });
assert.deepEqual(await names(), ['smollm2']);
await assert.rejects(client.chat({ model: 'none', messages }), { status_code: 404 });
await assert.rejects(client.delete({ model: 'none' }), { status_code: 404 });
