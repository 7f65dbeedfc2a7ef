// Requests to the server (docs/protocol.md): its errors, its key, and patience while it is busy.
import {$} from './dom.js';
import {note} from './notice.js';

const PATIENCE = 3, LONGEST_WAIT = 30;
const KEY = 'knnlm-key';

class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

// ---------------------------------------------------------------- the key

let asking = null;

// Resolves when a key was given; those who ask meanwhile wait for the same one.
function askForKey(said) {
  $('key-form').hidden = false;
  $('key-said').textContent = said;
  if (asking) return asking;
  $('key').focus();
  asking = new Promise(resolve => $('key-form').addEventListener('submit', event => {
    event.preventDefault();
    sessionStorage.setItem(KEY, $('key').value);
    $('key').value = '';
    $('key-form').hidden = true;
    asking = null;
    resolve();
  }, {once: true}));
  return asking;
}

// ---------------------------------------------------------------- requests

function headersOf(key, body, type) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers['Content-Type'] = type;
  return headers;
}

// A body is JSON, or a string of the type that is given.
async function attempt(method, path, {body, type, signal, key}) {
  try {
    const text = type ? body : body === undefined ? undefined : JSON.stringify(body);
    return await fetch(path, {method, signal, headers: headersOf(key, body, type ?? 'application/json'), body: text});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServerError('The server cannot be reached.');
  }
}

async function errorOf(response) {
  const answer = await response.json().catch(() => null);
  const message = answer?.error?.message ?? response.statusText;
  return new ServerError(`${sentence(message || 'The server refused')} (${response.status})`, response.status);
}
const sentence = text => text[0].toUpperCase() + text.slice(1);

const pause = (seconds, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, seconds * 1000);
  signal?.addEventListener('abort', () => {
    clearTimeout(timer);
    reject(new DOMException('stopped', 'AbortError'));
  }, {once: true});
});

async function waitFor(response, tried, signal) {
  const asked = Number(response.headers.get('Retry-After'));
  const seconds = Math.min(LONGEST_WAIT, asked > 0 ? asked : 1);
  note(`The server is busy: trying again in ${seconds} s (${tried} of ${PATIENCE}).`);
  try {
    await pause(seconds, signal);
  } finally {
    note('');
  }
}

async function send(method, path, {body, type, signal} = {}) {
  for (let tried = 1;;) {
    const key = sessionStorage.getItem(KEY);
    const response = await attempt(method, path, {body, type, signal, key});
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status === 401) {
      // Another request may have brought a newer key meanwhile.
      if (sessionStorage.getItem(KEY) === key) await askForKey(key ? error.message : '');
    } else if ((response.status === 429 || response.status === 503) && tried <= PATIENCE) {
      await waitFor(response, tried++, signal);
    } else {
      throw error;
    }
  }
}

const json = async (...request) => (await send(...request)).json();

// ---------------------------------------------------------------- what can be asked

let model; // of a server that has several, the one that is meant; undefined: its first
export const useModel = id => { model = id; };
const meant = body => model === undefined ? body : {...body, model};

const storePath = name => `v1/stores/${encodeURIComponent(name)}`;

export const models = () => json('GET', 'v1/models');
export const stores = () => json('GET', 'v1/stores');
export const tokenizer = () => json('GET', `tokenizer_info${model === undefined ? '' : `?${new URLSearchParams({model})}`}`);
export const tokenize = (prompt, signal) => json('POST', 'tokenize', {body: meant({prompt}), signal});
export const score = (body, signal) => json('POST', 'v1/score', {body: meant(body), signal});
export const explain = (body, signal) => json('POST', 'v1/explain', {body: meant(body), signal});
export const passage = (store, entry, {around, tokens = 1}, signal) =>
  json('GET', `${storePath(store)}/entries/${entry}?${new URLSearchParams({around, tokens})}`, {signal});
export const documents = (store, {offset, limit, q}, signal) =>
  json('GET', `${storePath(store)}/documents?${new URLSearchParams({offset, limit, q})}`, {signal});
export const map = store => json('GET', `${storePath(store)}/map`);
export const mapPlace = (store, body) => json('POST', `${storePath(store)}/map`, {body});
export const addDocument = (store, name, text) => json('POST', `${storePath(store)}/documents`, {body: {name, text}});
// {name, text} of each: a job.
export const addDocuments = (store, all) =>
  json('POST', `${storePath(store)}/documents`, {body: all.map(one => JSON.stringify(one)).join('\n'), type: 'application/x-ndjson'});
export const upkeep = (store, verb) => json('POST', `${storePath(store)}/${verb}`, verb === 'tune' ? {body: {}} : {});
export const jobs = () => json('GET', 'v1/jobs');
export const job = id => json('GET', `v1/jobs/${encodeURIComponent(id)}`);
export const cancelJob = id => json('DELETE', `v1/jobs/${encodeURIComponent(id)}`);
export const removeDocument = (store, name) => json('DELETE', `${storePath(store)}/documents/${encodeURIComponent(name)}`);

// The chunks of a completion as they come: the first choice of each. Those of a chat have their text as those of a
// completion do.
export async function* complete(body, signal) {
  for await (const {choices} of stream('v1/completions', body, signal)) if (choices.length) yield choices[0];
}
export async function* chat(body, signal) {
  for await (const {choices} of stream('v1/chat/completions', body, signal)) if (choices.length) yield {...choices[0], text: choices[0].delta.content ?? ''};
}

async function* stream(path, body, signal) {
  const response = await send('POST', path, {body: {...meant(body), stream: true}, signal});
  for await (const data of events(response.body)) {
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(sentence(chunk.error.message));
    yield chunk;
  }
  throw new ServerError('The server ended the stream before its end.');
}

// The data of server-sent events.
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (rest + value).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split(/\r?\n/).filter(line => line.startsWith('data:')).map(line => line.slice(5).trimStart());
      if (data.length) yield data.join('\n');
    }
  }
}
