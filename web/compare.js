// Two settings side by side: one that was kept, whose colours stand still, beside the one that is being turned.
import {$, el, leadingSpace, shown} from './dom.js';
import {digits, signedPercent} from './format.js';
import {levelClass, levelOf} from './mixture.js';

// onpick(i): a token of the kept text was clicked.
export function comparison(onpick) {
  let kept = null; // {ids, name, perplexity}

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
    if (item && getSelection().isCollapsed) onpick(Number(item.dataset.i));
  });
  // Of the one that is being turned; another text has nothing to be compared with.
  function update({ids, perplexity, name}) {
    if (!kept) return;
    if (ids.join() !== kept.ids) return close();
    $('now-name').textContent = name;
    $('now-ppl').textContent = `perplexity ${digits(perplexity)} (${signedPercent(perplexity / kept.perplexity - 1)})`;
  }

  return {
    update,
    // What is now is kept: `name` tells its settings.
    keep(now) {
      const {ids, texts, gain, perplexity, name} = now;
      kept = {ids: ids.join(), perplexity};
      draw(texts, gain);
      $('kept-name').textContent = name;
      $('kept-ppl').textContent = `perplexity ${digits(perplexity)}`;
      $('kept').hidden = false;
      $('reading').classList.add('comparing');
      update(now);
    },
  };
}
