// The npm package `openai` speaks to the server as any of its users would.
//   node tests/serve_openai.mjs PACKAGE_FOLDER URL KEY BUSY_URL
// At URL is a server that wants KEY, and lets pages of http://page.example in; at BUSY_URL one that generates one sequence
// at a time and lets none wait.
import assert from "node:assert/strict"
import { createRequire } from "node:module"

const [folder, url, key, busy] = process.argv.slice(2)
const { OpenAI } = createRequire(folder + "/")("openai")
const client = new OpenAI({ apiKey: key, baseURL: url + "/v1", maxRetries: 0, timeout: 60000 })
const prompt = "The nearest neighbours"
let checks = 0, failures = 0

async function check(name, question) {
    checks++
    try {
        await question()
    } catch (error) {
        failures++
        console.log(`FAILED: ${name}: ${error.message}\n${String(error.stack).split("\n").slice(1, 4).join("\n")}`)
    }
}
const pause = (ms) => new Promise((done) => setTimeout(done, ms))

async function refused(kind, status, request) {
    await assert.rejects(request, (error) => {
        assert.ok(error instanceof kind, `${error.constructor.name} (${error.status}), not ${kind.name}: ${error.message}`)
        assert.equal(error.status, status)
        assert.ok(error.message)
        return true
    })
}

async function metric(base, name) {
    const answer = await fetch(base + "/metrics", { headers: { authorization: "Bearer " + key } })
    const line = (await answer.text()).split("\n").find((line) => line.split(" ")[0] === name)
    assert.ok(line, "no metric is called " + name)
    return Number(line.split(" ").pop())
}
async function falls_idle(base) {
    for (let i = 0; i < 100; i++) {
        if ((await metric(base, "knnlm_active_tasks")) === 0 && (await metric(base, "knnlm_queue_length")) === 0) return
        await pause(50)
    }
    assert.fail("tasks are still active after five seconds")
}

await check("plain", async () => {
    const answer = await client.completions.create({ model: "any", prompt, max_tokens: 5, temperature: 0 })
    assert.equal(answer.object, "text_completion")
    assert.equal(answer.choices.length, 1)
    assert.ok(answer.choices[0].text.length > 0)
    assert.equal(answer.choices[0].finish_reason, "length")
    assert.equal(answer.usage.completion_tokens, 5)
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + 5)
})

await check("a stream is the plain answer in pieces", async () => {
    const request = { model: "any", prompt, max_tokens: 12, seed: 5, temperature: 1 }
    const plain = await client.completions.create(request)
    const stream = await client.completions.create({ ...request, stream: true, stream_options: { include_usage: true } })
    let text = "", reason = null, usage = null, chunks = 0
    for await (const chunk of stream) {
        chunks++
        for (const choice of chunk.choices) {
            assert.equal(reason, null, "a chunk after the last")
            text += choice.text
            reason = choice.finish_reason
        }
        usage = chunk.usage ?? usage
    }
    assert.equal(text, plain.choices[0].text)
    assert.equal(reason, plain.choices[0].finish_reason)
    assert.deepEqual(usage, plain.usage)
    assert.ok(chunks > 3, "all at once")
})

await check("n and several prompts", async () => {
    const answer = await client.completions.create({ model: "any", prompt: [prompt, "A store"], n: 3, max_tokens: 4, seed: 1 })
    assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1, 2, 3, 4, 5])
})

await check("echo with logprobs", async () => {
    const answer = await client.completions.create({ model: "any", prompt, echo: true, logprobs: 2, max_tokens: 2, temperature: 0 })
    const { tokens, token_logprobs, top_logprobs, text_offset } = answer.choices[0].logprobs
    assert.equal(tokens.join(""), answer.choices[0].text)
    assert.ok(answer.choices[0].text.startsWith(prompt))
    assert.equal(token_logprobs[0], null)
    assert.equal(top_logprobs[0], null)
    assert.equal(text_offset[0], 0)
    for (let i = 1; i < tokens.length; i++) assert.equal(top_logprobs[i][tokens[i]], token_logprobs[i])
    assert.equal(token_logprobs.at(-1), Math.max(...Object.values(top_logprobs.at(-1))))
})

const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: "Who has a say?" }]

await check("chat, whole and as a stream", async () => {
    const request = { model: "any", messages, max_completion_tokens: 8, temperature: 0, knn: { explain: true } }
    const whole = await client.chat.completions.create(request)
    assert.equal(whole.object, "chat.completion")
    assert.equal(whole.choices[0].message.role, "assistant")
    assert.ok(whole.usage.completion_tokens <= 8)
    assert.ok(whole.choices[0].knn.tokens.length > 0)
    const stream = await client.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } })
    let text = "", usage = null, role = null, reason = null
    for await (const chunk of stream) {
        text += chunk.choices[0]?.delta.content ?? ""
        role ??= chunk.choices[0]?.delta.role ?? null
        reason = chunk.choices[0]?.finish_reason ?? reason
        usage = chunk.usage ?? usage
    }
    assert.equal(text, whole.choices[0].message.content)
    assert.equal(role, "assistant")
    assert.equal(reason, whole.choices[0].finish_reason)
    assert.deepEqual(usage, whole.usage)
})

await check("the package's own way to stream chat", async () => {
    const runner = client.chat.completions.stream({ model: "any", messages, max_completion_tokens: 6, temperature: 0 })
    const final = await runner.finalChatCompletion()
    assert.equal(final.choices[0].message.role, "assistant")
    assert.equal(await runner.finalContent(), final.choices[0].message.content)
})

await check("logprobs of chat", async () => {
    const answer = await client.chat.completions.create({ model: "any", messages, max_tokens: 3, logprobs: true, top_logprobs: 2, temperature: 0 })
    const { content } = answer.choices[0].logprobs
    assert.equal(content[0].top_logprobs.length, 2)
    assert.equal(content[0].logprob, content[0].top_logprobs[0].logprob)
    assert.equal(Buffer.from(content[0].bytes).toString(), content[0].token)
})

await check("embeddings, which the package asks for in base64 and unpacks", async () => {
    const input = ["The nearest neighbours", "of a word"]
    const packed = await client.embeddings.create({ model: "any", input })
    const plain = await client.embeddings.create({ model: "any", input, encoding_format: "float" })
    assert.equal(packed.data.length, 2)
    assert.deepEqual(packed.data[1].embedding.map(Math.fround), plain.data[1].embedding.map(Math.fround))
    const length = Math.hypot(...packed.data[0].embedding)
    assert.ok(Math.abs(length - 1) < 1e-5, String(length))
})

await check("logit_bias and best_of", async () => {
    const banned = await client.completions.create({ model: "any", prompt, max_tokens: 4, temperature: 0, logit_bias: { 5: -100 } })
    assert.equal(banned.choices.length, 1)
    const best = await client.completions.create({ model: "any", prompt, max_tokens: 4, n: 1, best_of: 3, seed: 1 })
    assert.equal(best.choices.length, 1)
    assert.ok(best.usage.completion_tokens > 4)
})

await check("members of our own go through", async () => {
    const answer = await client.completions.create({ model: "any", prompt, max_tokens: 3, knn: { explain: true, lambda: 0.5 } })
    assert.equal(answer.choices[0].knn.tokens.length, 3)
})

await check("models", async () => {
    const models = []
    for await (const model of client.models.list()) models.push(model)
    assert.equal(models.length, 1)
    assert.equal((await client.models.retrieve(models[0].id)).id, models[0].id)
    await refused(OpenAI.NotFoundError, 404, client.models.retrieve("nowhere"))
})

await check("errors are those of the package", async () => {
    await refused(OpenAI.BadRequestError, 400, client.completions.create({ model: "any", prompt, max_tokens: -1 }))
    await refused(OpenAI.BadRequestError, 400, client.completions.create({ model: "any", prompt, stream: true, logprobs: 99 }))
    await refused(OpenAI.BadRequestError, 400, client.chat.completions.create({ model: "any", messages: [] }))
    await refused(OpenAI.NotFoundError, 404, client.images.generate({ model: "any", prompt }))
    const stranger = new OpenAI({ apiKey: "wrong", baseURL: url + "/v1", maxRetries: 0 })
    await refused(OpenAI.AuthenticationError, 401, stranger.models.list())
    const error = await client.completions.create({ model: "any", prompt, temperature: -1 }).catch((error) => error)
    assert.equal(error.param, "temperature")
    assert.equal(error.type, "invalid_request_error")
})

await check("work stops when a stream is left", async () => {
    const stream = await client.completions.create({ model: "any", prompt, max_tokens: 480, stream: true })
    let chunks = 0
    for await (const chunk of stream) {
        if (++chunks === 3) {
            assert.ok((await metric(url, "knnlm_active_tasks")) >= 1, "nothing is active while a stream runs")
            break
        }
    }
    await falls_idle(url)
    const abort = new AbortController()
    const second = await client.completions.create({ model: "any", prompt, max_tokens: 480, n: 4, stream: true }, { signal: abort.signal })
    const reading = (async () => { for await (const chunk of second) abort.abort() })().catch((error) => error)
    await reading
    await falls_idle(url)
})

await check("work stops when a plain request is left", async () => {
    const abort = new AbortController()
    const asked = client.completions.create({ model: "any", prompt, max_tokens: 480, n: 8 }, { signal: abort.signal })
    setTimeout(() => abort.abort(), 300)
    await assert.rejects(asked, OpenAI.APIUserAbortError)
    await falls_idle(url)
})

// What is long enough to be in the way of others: as many sequences as one request may have.
const long = { model: "any", prompt, max_tokens: 300, n: 16, temperature: 1 }

await check("a full queue is a RateLimitError, with the time to wait", async () => {
    const other = new OpenAI({ apiKey: key, baseURL: busy + "/v1", maxRetries: 0 })
    const abort = new AbortController()
    const running = Array.from({ length: 6 }, () => other.completions.create(long, { signal: abort.signal }).catch((error) => error))
    await pause(400)
    await refused(OpenAI.RateLimitError, 429, other.completions.create({ model: "any", prompt, max_tokens: 1 }))
    const error = await other.completions.create({ model: "any", prompt, max_tokens: 1 }).catch((error) => error)
    assert.ok(Number(error.headers?.get("retry-after")) >= 1, "no Retry-After")
    assert.equal(error.code, "queue_full")
    // Retries, told when by the server, get through once the others have gone.
    const patient = new OpenAI({ apiKey: key, baseURL: busy + "/v1", maxRetries: 8 })
    const waiting = patient.completions.create({ model: "any", prompt, max_tokens: 1 })
    await pause(300)
    abort.abort()
    await Promise.all(running)
    assert.equal((await waiting).choices.length, 1)
})

// What the package sends from a browser must pass the browser's preflight: its own headers are caught on their way out.
await check("a browser lets its requests through", async () => {
    const origin = "http://page.example"
    const sent = new Set()
    const caught = async (address, options) => {
        for (const name of new Headers(options.headers).keys()) sent.add(name)
        return fetch(address, options)
    }
    const inside = new OpenAI({ apiKey: key, baseURL: url + "/v1", maxRetries: 0, fetch: caught, dangerouslyAllowBrowser: true })
    await inside.completions.create({ model: "any", prompt, max_tokens: 1 })
    await inside.models.list()
    assert.ok([...sent].some((name) => name.startsWith("x-stainless-")), "the package has no headers of its own any more: " + [...sent])
    // Those that the Fetch standard has asked for; Content-Type because it is JSON's.
    const safe = new Set(["accept", "accept-language", "content-language", "content-length", "range"])
    const asked = [...sent].filter((name) => !safe.has(name)).sort()
    const answer = await fetch(url + "/v1/completions", {
        method: "OPTIONS",
        headers: { Origin: origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked.join(",") },
    })
    assert.ok(answer.ok, "the preflight is refused: " + answer.status)
    assert.equal(answer.headers.get("access-control-allow-origin"), origin)
    const allowed = new Set(answer.headers.get("access-control-allow-headers").toLowerCase().split(/, */))
    assert.deepEqual(asked.filter((name) => !allowed.has(name)), [], "not allowed")
})

console.log(`${checks} checks, ${failures} failed`)
process.exit(failures ? 1 : 0)
