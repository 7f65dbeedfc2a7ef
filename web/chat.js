// The panel that talks: a conversation, whose answers have their sources as texts of Generate do.
import {$, el, shown} from './dom.js';
import {calm, problem} from './notice.js';
import {carriedPart, copyText, knnOf, numberOf, takeTurns} from './sampling.js';
import {plural} from './format.js';
import {sourcePanel} from './sources.js';
import {storeChoice} from './choice.js';
import {writer} from './writer.js';
import * as api from './api.js';

let turns = []; // {asked, answer: a writer, node}
let request = null;

const choice = storeChoice($('chat-stores'), () => {});
const sources = sourcePanel({section: $('chat'), card: $('chat-sources-card'), list: $('chat-sources'), passage: $('chat-passage')});

// ---------------------------------------------------------------- the conversation

function begin(asked) {
  const output = el('div.body', {role: 'group', 'aria-label': 'Answer', lang: ''});
  const node = el('div.turn', {}, el('p.speaker', {}, 'You'), el('p.asked', {lang: ''}, shown(asked, 'text')), el('p.speaker', {}, `${$('model').textContent}, answer ${turns.length + 1}`), output);
  const turn = {asked, node, said: '', answer: writer(output, () => sources.changed(turn.answer))};
  $('talk').append(node);
  turn.answer.begin('');
  sources.add(turn.answer, output, `Sources of answer ${turns.length + 1}`);
  sources.turnTo(turn.answer);
  turns.push(turn);
  return turn;
}

// What came is kept, as far as it came; of an answer that never began the question goes back to where it was written.
function takeBack(turn) {
  turns.pop();
  turn.node.remove();
  sources.turnTo(turns.at(-1)?.answer ?? null);
  $('message').value = $('message').value || turn.asked;
}

function messages() {
  const system = $('system').value.trim(), all = system ? [{role: 'system', content: system}] : [];
  for (const {asked, said} of turns) all.push({role: 'user', content: asked}, ...said ? [{role: 'assistant', content: said.trim()}] : []);
  return all;
}

// Sources of an earlier answer are listed again by a button below it.
function close(turn) {
  const count = turn.answer.numbered().length;
  if (count) turn.node.append(el('button.turn-sources', {type: 'button', click: () => sources.turnTo(turn.answer)}, plural(count, 'source')));
}

// ---------------------------------------------------------------- a request

const say = text => { $('chat-count').textContent = text; };

async function follow(turn, signal) {
  const body = {messages: messages(), max_tokens: numberOf('chat-length'), temperature: numberOf('chat-heat'), top_p: numberOf('chat-top-p'), seed: numberOf('chat-seed'), knn: knnOf(choice, 'chat-')};
  for await (const piece of api.chat(body, signal)) {
    turn.answer.take(piece);
    turn.said += piece.text;
    say(`${plural(turn.answer.counts().count, 'token')}…`);
  }
}

async function send() {
  const asked = $('message').value.trim();
  if (!asked || request) return;
  calm();
  sources.close();
  const own = request = new AbortController(), turn = begin(asked);
  $('message').value = '';
  busy(true);
  say('reading the conversation…');
  let how = 'wrote';
  try {
    await follow(turn, own.signal);
  } catch (error) {
    how = 'stopped after';
    if (!own.signal.aborted) problem(error);
  }
  if (turns.includes(turn)) end(turn, how);
  if (request !== own) return;
  request = null;
  busy(false);
}

function end(turn, how) {
  if (!turn.said) {
    takeBack(turn);
    return say(how === 'wrote' ? 'The model said nothing.' : '');
  }
  close(turn);
  sources.refresh();
  $('chat-count').setAttribute('aria-live', 'polite');
  say(`${how} ${plural(turn.answer.counts().count, 'token')}${carriedPart(turn.answer)}`);
}

function busy(is) {
  takeTurns($('chat-go'), $('chat-stop'), is);
  $('talk').setAttribute('aria-busy', is);
  $('chat-copy').disabled = is || !turns.length;
  $('chat-new').disabled = !turns.length;
  if (is) $('chat-count').setAttribute('aria-live', 'off'); // not every token is said aloud
}

function forget() {
  request?.abort();
  request = null;
  turns = [];
  $('talk').replaceChildren();
  sources.clear();
  say('');
  busy(false);
  $('message').focus();
}

async function copyAll() {
  const text = turns.map(({asked, answer}) => `You: ${asked}\n\n${$('model').textContent}: ${answer.plain().trim()}`).join('\n\n');
  if (await copyText(text)) say('copied, with its sources');
}

// ---------------------------------------------------------------- listening

// A model that was not taught to chat only goes on with the text of a conversation.
async function tellKind() {
  const {chat_template: template} = await api.tokenizer();
  $('chat-kind').textContent = template ? '' : 'This model was not taught to chat: it writes on as a conversation might.';
}

export function startChat() {
  $('chat-form').addEventListener('submit', event => {
    event.preventDefault();
    send();
  });
  $('message').addEventListener('keydown', event => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $('chat-form').requestSubmit();
  });
  $('chat-stop').addEventListener('click', () => request?.abort());
  $('chat-copy').addEventListener('click', copyAll);
  $('chat-new').addEventListener('click', forget);
  let told = null; // of which model
  function show() {
    const model = $('model').dataset.id;
    if (!model || told === model) return;
    told = model;
    tellKind().catch(problem);
  }
  return {
    show,
    update(stores) {
      choice.update(stores);
      if (!$('chat').hidden) show();
    },
  };
}
