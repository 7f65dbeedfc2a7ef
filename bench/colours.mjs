// How soon the page of `knnlm serve` colours a text, from the click to the first colours and to the last, in Chromium.
//   node bench/colours.mjs URL TEXT WORDS ROUNDS
// Prints one JSON object: medians in milliseconds, and the tokens that have colours by then. The text is cut from TEXT, in each
// round from another place.
import {readFile} from 'node:fs/promises';
import {launch, openPage} from '../scripts/browser.mjs';

const [url, file, words, rounds] = process.argv.slice(2);
const all = (await readFile(file, 'utf8')).split(/\s+/), median = values => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
const browser = await launch(), page = await openPage(browser, url, {width: 1280, height: 900});

const times = [];
for (let round = 0; round < Number(rounds); round++) {
  const from = round * Number(words) % Math.max(1, all.length - Number(words));
  await page.fill('#read-text', all.slice(from, from + Number(words)).join(' '));
  times.push(await page.evaluate(async () => {
    const reading = document.getElementById('reading'), before = document.querySelector('#tokens .t'), began = performance.now();
    const frame = () => new Promise(requestAnimationFrame);
    const until = async holds => {
      while (!holds()) await frame();
      await frame(); // it has been drawn
      return performance.now() - began;
    };
    document.getElementById('read-go').click();
    const first = await until(() => document.querySelector('#tokens .t') !== before && document.querySelector('#tokens .p, #tokens .n')), some = document.querySelectorAll('#tokens .t').length;
    const last = await until(() => reading.getAttribute('aria-busy') === 'false');
    return {first, some, last, tokens: document.querySelectorAll('#tokens .t').length};
  }));
}
await browser.close();
const of = name => median(times.map(time => Math.round(time[name])));
console.log(JSON.stringify({words: Number(words), tokens: of('tokens'), first_ms: of('first'), first_tokens: of('some'), all_ms: of('last'), rounds: times.length}));
