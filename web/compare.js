// Two settings, stores or models side by side: one that was kept, whose colours stand still, beside the one that is being
// turned.
import {$, el, leadingSpace, shown} from './dom.js';
import {digits, fixed, signedPercent} from './format.js';
import {levelClass, levelOf} from './mixture.js';

const bytesOf = text => new TextEncoder().encode(text).length;

// Of models that cut a text otherwise, perplexities are of other tokens: bits per byte are the same measure for all.
const bitsPerByte = ({perplexity, texts}) => texts.length * Math.log2(perplexity) / bytesOf(texts.join(''));

// The token that has the character at which token i of other ones begins.
function counterpart(from, i, to) {
  const at = from.slice(0, i).join('').length;
  let end = 0;
  return to.findIndex(text => (end += text.length) > at);
}

// onpick(i): a token of the kept text was clicked, i of the other one.
export function comparison(onpick) {
  let kept = null, now = null; // {ids, texts, perplexity, name}

  function close() {
    kept = null;
    $('kept').hidden = true;
    $('kept-tokens').replaceChildren();
    $('reading').classList.remove('comparing');
  }

  function draw(texts, gain) {
    const nodes = document.createDocumentFragment();
    texts.forEach((word, i) => {
      const space = leadingSpace(word);
      nodes.append(space, el('span', {class: `t${levelClass(levelOf(gain[i]))}`, 'data-i': i}, shown(word.slice(space.length), 'token')));
    });
    $('kept-tokens').replaceChildren(nodes);
  }

  $('kept-close').addEventListener('click', () => {
    close();
    $('keep').focus();
  });
  $('kept-tokens').addEventListener('click', event => {
    const item = event.target.closest('[data-i]');
    if (!item || !getSelection().isCollapsed) return;
    const i = counterpart(kept.texts, Number(item.dataset.i), now.texts);
    if (i >= 0) onpick(i);
  });

  const isLike = () => kept.ids.join() === now.ids.join();
  const measure = one => isLike() ? `perplexity ${digits(one.perplexity)}` : `perplexity ${digits(one.perplexity)} of its own tokens, ${fixed(bitsPerByte(one), 3)} bits per byte`;
  const change = () => isLike() ? now.perplexity / kept.perplexity - 1 : bitsPerByte(now) / bitsPerByte(kept) - 1;

  // Of the one that is being turned; another text has nothing to be compared with. Of the same one more may come.
  function update(other) {
    if (!kept) return;
    const [before, after] = [kept.texts.join(''), other.texts.join('')];
    if (before !== after) {
      if (!before.startsWith(after)) close();
      return;
    }
    now = other;
    $('now-name').textContent = now.name;
    $('kept-ppl').textContent = measure(kept);
    $('now-ppl').textContent = `${measure(now)} (${signedPercent(change())})`;
  }

  return {
    update,
    // What is now is kept: `name` tells its settings.
    keep(one) {
      kept = one;
      draw(one.texts, one.gain);
      $('kept-name').textContent = one.name;
      $('kept').hidden = false;
      $('reading').classList.add('comparing');
      update(one);
    },
  };
}
