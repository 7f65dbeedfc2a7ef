// The peers of `bench/run tokenize`, from npm: `tokenizers` (Hugging Face's, native Rust) and `tiktoken` (OpenAI's Rust
// as WebAssembly). Run with NODE_PATH at the folder that holds them.
//     peer_tokenize.js vocabulary OUT                         GPT-2's vocabulary as a tokenizer.json
//     peer_tokenize.js tokenizers|tiktoken TOKENIZER FILE N   encodes N times: a line each, MB/s; last the tokens
//     peer_tokenize.js train FILE                             seconds to train 30,000 tokens of byte-level BPE
'use strict'
const fs = require('fs')

// ---- GPT-2's vocabulary, from what tiktoken carries: token bytes in order of rank, from which the merges follow

function rankedTokens() {
  const lines = require('tiktoken/encoders/gpt2.json').bpe_ranks.split('\n')
  const tokens = []
  for (const line of lines) {
    const [, first, ...encoded] = line.split(' ')
    encoded.forEach((text, i) => (tokens[Number(first) + i] = Buffer.from(text, 'base64').toString('latin1')))
  }
  return tokens
}

// Joins the pair of lowest rank again and again, as long as it ranks below `limit`.
function joined(token, ranks, limit) {
  const parts = token.split('')
  for (;;) {
    let best = -1
    let bestRank = limit
    for (let i = 0; i + 1 < parts.length; i++) {
      const rank = ranks.get(parts[i] + parts[i + 1])
      if (rank !== undefined && rank < bestRank) [best, bestRank] = [i, rank]
    }
    if (best < 0) return parts
    parts.splice(best, 2, parts[best] + parts[best + 1])
  }
}

// Bytes that print stand for themselves, the others for the characters from U+0100 on.
function alphabet() {
  const prints = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174
  let next = 256
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(prints(b) ? b : next++))
}

function writeVocabulary(path) {
  const tokens = rankedTokens()
  const ranks = new Map(tokens.map((token, rank) => [token, rank]))
  const letters = alphabet()
  const spelled = (token) => Array.from(token, (c) => letters[c.charCodeAt(0)]).join('')
  const merges = []
  tokens.forEach((token, rank) => {
    if (token.length > 1) merges.push(joined(token, ranks, rank).map(spelled).join(' '))
  })
  const end = '<|endoftext|>'
  const vocab = Object.fromEntries(tokens.map((token, rank) => [spelled(token), rank]))
  vocab[end] = tokens.length
  const special = { id: tokens.length, content: end, special: true, normalized: false }
  const flags = { single_word: false, lstrip: false, rstrip: false }
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true }
  const file = {
    version: '1.0',
    added_tokens: [{ ...special, ...flags }],
    normalizer: null,
    pre_tokenizer: byteLevel,
    post_processor: null,
    decoder: byteLevel,
    model: { type: 'BPE', vocab, merges },
  }
  fs.writeFileSync(path, JSON.stringify(file))
}

// ---- encoding

// Pieces of about `size` characters, cut before a line end that text follows: there no token of GPT-2's ever crosses.
function pieces(text, size) {
  const cut = /\n(?=\S)/g
  const out = []
  for (let start = 0; start < text.length; ) {
    cut.lastIndex = start + size
    const match = start + size < text.length ? cut.exec(text) : null
    const end = match ? match.index : text.length
    out.push(text.slice(start, end))
    start = end
  }
  return out
}

function encoderOf(peer, vocabulary) {
  if (peer === 'tiktoken') {
    const encoding = require('tiktoken').get_encoding('gpt2')
    return async (piece) => encoding.encode_ordinary(piece).length
  }
  const tokenizer = require('tokenizers').Tokenizer.fromFile(vocabulary)
  return async (piece) => (await tokenizer.encode(piece)).getLength()
}

async function encodeAll(encode, parts, bytes) {
  const start = process.hrtime.bigint()
  let tokens = 0
  for (const part of parts) tokens += await encode(part)
  const seconds = Number(process.hrtime.bigint() - start) * 1e-9
  return { tokens, rate: (bytes * 1e-6) / seconds }
}

// The whole text at once, or in pieces: whichever suits the peer.
async function bestPieces(encode, text, bytes) {
  let best = null
  for (const size of [text.length, 1 << 16, 1 << 12]) {
    const parts = pieces(text, size)
    await encodeAll(encode, parts, bytes)
    const { rate } = await encodeAll(encode, parts, bytes)
    if (!best || rate > best.rate) best = { parts, rate }
  }
  return best.parts
}

async function measure(peer, vocabulary, path, repeats) {
  const text = fs.readFileSync(path, 'utf8')
  const bytes = fs.statSync(path).size
  const encode = encoderOf(peer, vocabulary)
  const parts = await bestPieces(encode, text, bytes)
  let result
  for (let i = 0; i < repeats; i++) {
    result = await encodeAll(encode, parts, bytes)
    console.log(result.rate.toFixed(2))
  }
  console.log(`tokens ${result.tokens}`)
}

// ---- training

function train(path) {
  const { Tokenizer, BPE, byteLevelPreTokenizer } = require('tokenizers')
  const tokenizer = new Tokenizer(BPE.empty())
  tokenizer.setPreTokenizer(byteLevelPreTokenizer(false))
  const start = process.hrtime.bigint()
  tokenizer.train([path])
  console.log((Number(process.hrtime.bigint() - start) * 1e-9).toFixed(3))
}

const [verb, ...rest] = process.argv.slice(2)
if (verb === 'vocabulary') writeVocabulary(rest[0])
else if (verb === 'train') train(rest[0])
else measure(verb, rest[0], rest[1], Number(rest[2]))
