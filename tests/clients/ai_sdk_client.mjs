// The `ai` SDK with its provider for OpenAI-compatible servers: text, objects, an agent that calls a tool, streams, errors.

import assert from 'node:assert';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, Output, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

const provider = createOpenAICompatible({
    name: 'rope', baseURL: process.env.BASE_URL + '/v1', apiKey: process.env.API_KEY,
    includeUsage: true, supportsStructuredOutputs: true,
});
const question = {
    model: provider('model'), temperature: 0, maxOutputTokens: 60, maxRetries: 0, prompt: 'How warm is it in Rome?',
};

const answer = await generateText(question);
const stream = streamText(question);
let streamed = '';
for await (const text of stream.textStream) streamed += text;
assert(answer.text.length > 0);
assert.equal(streamed, answer.text);
const usage = await stream.usage;
assert(usage.inputTokens > 0 && usage.outputTokens > 0);
assert.deepEqual([usage.inputTokens, usage.outputTokens], [answer.usage.inputTokens, answer.usage.outputTokens]);

const schema = z.object({ city: z.enum(['Paris', 'Rome']), degrees: z.number().int() });
const structured = { ...question, output: Output.object({ schema }) };
const { output } = await generateText(structured);
assert.equal(output.city, 'Rome');
assert.deepEqual(await streamText(structured).output, output);

const temperature = tool({
    description: 'The temperature of a city.',
    inputSchema: z.object({ city: z.enum(['Paris', 'Rome']) }),
    execute: async ({ city }) => `28 degrees in ${city}`,
});
const agent = {
    ...question, tools: { temperature }, stopWhen: stepCountIs(2),
    // So small a model would call a tool for ever: after its call, the answer's form is given.
    prepareStep: ({ stepNumber }) => stepNumber === 0 ? { toolChoice: 'required' } : {
        toolChoice: 'none',
        providerOptions: { rope: { regex: 'It is [0-9]+ degrees in (Paris|Rome)\\.' } },
    },
};
const run = streamText(agent);
for (const { text, steps } of [await generateText(agent), { text: await run.text, steps: await run.steps }]) {
    assert.deepEqual(steps[0].toolResults.map(({ output }) => output), ['28 degrees in Rome']);
    assert.equal(text, 'It is 28 degrees in Rome.');
}

await assert.rejects(generateText({ ...question, topP: 7 }), (error) => {
    assert(APICallError.isInstance(error), error);
    assert.equal(error.statusCode, 400);
    assert.match(error.message, /top_p/);
    return true;
});
