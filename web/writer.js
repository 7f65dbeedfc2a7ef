// Words as they come: each passage of a store among them is underlined and numbered, a single word that a store carried is
// marked quietly.
import {el, readable, shown} from './dom.js';

const STYLES = 6; // .s0 to .s5 of style.css

// The text of a chunk, cut where its tokens end: [[piece, token]]. Tokens that end within a character get its rest.
function piecesOf(chunk, tokens) {
  const words = readable(tokens.map(token => token.text)), pieces = [];
  let at = 0;
  tokens.forEach((token, i) => {
    const end = i === tokens.length - 1 ? chunk.length : chunk.startsWith(words[i], at) ? at + words[i].length : at;
    pieces.push([chunk.slice(at, end), token]);
    at = end;
  });
  return tokens.length ? pieces : [[chunk, null]];
}

export const styleOf = ({footnote}) => footnote ? `s${(footnote - 1) % STYLES}` : 'lone';

// Writes into `output`. `onsources()`: they have changed.
export function writer(output, onsources = () => {}) {
  let runs = [];           // elements of what stands in a source
  let last = null;         // the run that grows: {source, node}; null: what stands in none
  let space = '';          // white space that came after it
  let sources = new Map(); // by number
  let lengths = new Map(); // tokens of each that came
  let parts = [];          // [text, source] as they came
  let count = 0, carried = 0;

  function startRun(source) {
    const known = sources.get(source);
    const node = el('span', {role: 'button', tabindex: runs.length ? -1 : 0, 'data-i': runs.length, 'data-source': source, class: `run ${styleOf(known)}`},
      el('sup', {}, known.footnote));
    output.append(node);
    runs.push(node);
    return {source, node};
  }

  function extend(text) {
    const nodes = shown(text, 'text');
    if (last) last.node.lastChild.before(el('span', {}, nodes));
    else output.append(...nodes);
  }

  // White space around a run is not part of it; that between two words of it is.
  function write(text, source) {
    const words = text.trim(), before = space + text.slice(0, text.indexOf(words));
    parts.push([text, source]);
    if (!words) {
      space += text;
      return;
    }
    space = text.slice(text.indexOf(words) + words.length);
    if (last?.source === source) return extend(before + words);
    output.append(before);
    last = source === null ? null : startRun(source);
    extend(words);
  }

  // A source comes with its first tokens, and again when it has ended: until then it grows here.
  function tally(piece, source) {
    count++;
    if (!source) return;
    if (source.footnote) carried++;
    const taken = (lengths.get(source.number) ?? 0) + 1;
    lengths.set(source.number, taken);
    if (taken <= source.tokens) return;
    source.tokens = taken;
    source.text += piece;
  }

  const numbered = () => [...sources.values()].filter(source => source.footnote).sort((a, b) => a.footnote - b.footnote);

  return {
    numbered,
    runs: () => runs,
    source: number => sources.get(number),
    counts: () => ({count, carried}),
    begin(prompt) {
      [runs, last, space, sources, lengths, parts, count, carried] = [[], null, '', new Map(), new Map(), [], 0, 0];
      output.replaceChildren(el('span.prompt', {}, shown(prompt, 'text')));
      onsources();
    },
    // A choice of a chunk.
    take({text, knn}) {
      for (const source of knn?.sources ?? []) sources.set(source.number, source);
      for (const [piece, token] of piecesOf(text, knn?.tokens ?? [])) {
        write(piece, token?.source ?? null);
        if (token) tally(piece, sources.get(token.source));
      }
      if (knn?.tokens?.length || knn?.sources?.length) onsources();
    },
    // All of it as plain text: [1] after what stands in source 1, and what those are.
    plain() {
      let text = '';
      parts.forEach(([piece, source], i) => {
        const {footnote} = sources.get(source) ?? {}, next = parts.slice(i + 1).find(([other]) => other.trim());
        text += piece;
        if (footnote && piece.trim() && next?.[1] !== source) text = text.replace(/\s*$/, end => `[${footnote}]${end}`);
      });
      const notes = numbered().map(source => `[${source.footnote}] ${source.document} (${source.store}, token ${source.position}): ${source.text.trim()}`);
      return notes.length ? `${text}\n\nSources\n${notes.join('\n')}\n` : text;
    },
  };
}
