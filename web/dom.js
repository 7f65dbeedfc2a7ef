// Elements, and text that is shown as it is.

export const $ = id => document.getElementById(id);

// el('p.small', {title: 'x'}, 'text', node, null): strings become text nodes; functions listen ({click: f}).
export function el(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split('.');
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(' ');
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return element;
}

// The same of SVG: its attributes are set as they are.
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A bar of `part` (0 to 1) of its width.
export function meter(part) {
  const bar = el('span');
  bar.style.setProperty('width', `${(100 * Math.min(1, Math.max(0, part || 0))).toFixed(1)}%`);
  return el('span.meter', {'aria-hidden': 'true'}, bar);
}

export const mark = text => el('i.m', {}, text);

// What cannot be seen, or would turn the text around it, is shown by a quiet mark instead.
const unseen = /[\p{Cc}\p{Bidi_Control}\p{Noncharacter_Code_Point}\u2028\u2029\ufeff]/gu;

function markOf(character, as) {
  const code = character.codePointAt(0);
  if (as === 'text' && (character === '\n' || character === '\t')) return [character];
  if (character === '\n') return [mark('↵'), as === 'token' ? '\n' : ' '];
  if (character === '\t') return [mark('⇥'), as === 'token' ? '\t' : ' '];
  if (code < 0x20) return [mark(String.fromCodePoint(0x2400 + code))];
  return [mark(code === 0x7f ? '␡' : 'U+' + code.toString(16).toUpperCase().padStart(4, '0'))];
}

// The text as nodes. Line ends and tabs are marked on one 'line', marked and kept in a 'token', kept in a 'text'.
export function shown(text, as = 'line') {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(unseen)) {
    if (match.index > end) nodes.push(text.slice(end, match.index));
    nodes.push(...markOf(match[0], as));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

// A word that stands alone: a space is shown when there is nothing else.
export function shownWord(text) {
  if (text === '') return [mark('part of a character')];
  return /^ +$/.test(text) ? [mark('␣'.repeat(text.length))] : shown(text);
}

// Without marks, on one line: for attributes and options.
export const plain = text => text.replace(unseen, c => /\s/.test(c) ? ' ' : '·');

// The space before a word is not part of its mark: words are easier to tell apart.
export const leadingSpace = text => text.length > 1 && text[0] === ' ' && text[1] !== ' ' ? ' ' : '';

const bytePattern = /^bytes:((?:\\x[0-9a-f]{2})+)$/i;
const bytesOf = text => {
  const match = bytePattern.exec(text);
  return match && Uint8Array.from(match[1].split('\\x').slice(1), hex => parseInt(hex, 16));
};

// Texts of tokens, those that are bytes put together: a character is given to the token that completes it, the others
// of it are empty.
export function readable(texts) {
  const out = [];
  let decoder = null;
  const flush = () => {
    if (decoder) out[out.length - 1] += decoder.decode();
    decoder = null;
  };
  for (const text of texts) {
    const bytes = bytesOf(text);
    if (!bytes) flush();
    else decoder ??= new TextDecoder();
    out.push(bytes ? decoder.decode(bytes, {stream: true}) : text);
  }
  flush();
  return out;
}
