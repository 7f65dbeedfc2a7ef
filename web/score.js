// Scoring a text: a short one at once, a long one by beginnings of it that grow, so that the first colours come early.
// A beginning has the numbers that it has in the whole: the model never looks ahead.
import {$} from './dom.js';
import {whole} from './format.js';
import * as api from './api.js';

const AT_ONCE = 2000, FIRST = 256, GROWTH = 4; // characters; tokens; each is read again a third of a time
const TICK = 100;

// How far a reading is: between answers by the rate of the one before.
export function progressBar() {
  let timer = 0;
  const bar = $('read-progress');
  function stop() {
    clearInterval(timer);
    bar.hidden = $('read-cancel').hidden = true;
  }
  return {
    stop,
    // `done` tokens of `all` have come, at `rate` a millisecond; the next answer brings it to `next`.
    show({done, next, all, rate}) {
      clearInterval(timer);
      bar.hidden = $('read-cancel').hidden = false;
      bar.max = all;
      bar.value = done;
      $('read-count').textContent = `${whole(done)} of ${whole(all)} tokens`;
      const began = performance.now();
      timer = setInterval(() => { bar.value = Math.min(done + rate * (performance.now() - began), next); }, TICK);
    },
  };
}

async function inParts({text, knn, signal, onpart, onprogress}) {
  const {tokens} = await api.tokenize(text, signal), all = tokens.length;
  for (let done = 0, next = Math.min(FIRST, all), rate = 0; done < all; [done, next] = [next, Math.min(next * GROWTH, all)]) {
    onprogress({done, next, all, rate});
    const began = performance.now();
    onpart(await api.score({tokens: tokens.slice(0, next), knn}, signal));
    rate = next / (performance.now() - began);
  }
}

// onpart(answer) for each answer of /v1/score, the last of which is of the whole text; onprogress as progressBar.show.
export async function score(request) {
  const {text, knn, signal, onpart} = request;
  if (text.length > AT_ONCE) return inParts(request);
  onpart(await api.score({text, knn}, signal));
}
