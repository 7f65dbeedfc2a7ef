// What the scripts that look at the page of `knnlm serve` in a browser share (tests/test_page.sh runs them):
//   node page_NAME.mjs URL LOCKED_URL KEY [FOLDER]     FOLDER: screenshots are left there
// URL has the stores told (of told.txt and a document that would like to run) and letters (25 of them); LOCKED_URL is
// read-only and wants KEY. PART: only parts whose name has it; VERBOSE: how long each takes.
import {readFile} from 'node:fs/promises';
import {launch, node} from '../scripts/browser.mjs';

export const [url, locked, key, folder] = process.argv.slice(2);
export const TEXT = 'The nearest neighbours of the context of a word have their say.\nEvery word of it.';
export const NASTY = '<img src=x onerror="window.pwned=1">';

const PATIENCE = 60000; // ms: more than any neighbour on the machine takes; only a failure waits so long
let asked = 0, failures = 0, wrong = null; // wrong: of the part that is asked now; between parts there is none

// What must never happen, not even once: it is not tried again.
function never(what) {
  failures++;
  console.log(`FAILED: ${what}`);
}
export function ok(holds, what) {
  asked++;
  if (holds) return;
  if (wrong) wrong.push(what);
  else never(what);
}
export const is = (got, expected, what) => ok(Object.is(got, expected), `${what}: ${JSON.stringify(got)}, not ${JSON.stringify(expected)}`);
export const isNear = (expected, part = 2e-3) => got => Math.abs(got - expected) <= part * Math.abs(expected);
export const near = (got, expected, what, part = 2e-3) => ok(isNear(expected, part)(got), `${what}: ${got}, not ${expected}`);

// What the page will show in a moment, on a busy machine in some more: asked again until it holds. Gives what was got last.
export async function becomes(get, holds, what) {
  const wanted = typeof holds === 'function' ? holds : got => Object.is(got, holds), end = Date.now() + PATIENCE;
  let got = await get();
  while (!wanted(got) && Date.now() < end) {
    await new Promise(done => setTimeout(done, 20));
    got = await get();
  }
  ok(wanted(got), `${what}: ${JSON.stringify(got)}${typeof holds === 'function' ? '' : `, not ${JSON.stringify(holds)}`}`);
  return got;
}

export async function api(method, where, body, base = url) {
  const response = await fetch(new URL(where, base), {method, body: body && JSON.stringify(body), headers: {'Content-Type': 'application/json', Authorization: `Bearer ${key}`}});
  if (!response.ok) throw new Error(`${method} ${where}: ${response.status} ${await response.text()}`);
  return response.json();
}

// A part that gave up leaves what it waited for behind.
process.on('unhandledRejection', error => ok(false, error.message.split('\n')[0]));

// ---------------------------------------------------------------- a page, and what it may not do

export const browser = await launch().catch(error => {
  console.log(`Chromium does not run here: skipped: ${error.message.split('\n')[0]}`);
  process.exit(77);
});

export async function open(options = {}, base = url) {
  const context = await browser.newContext({viewport: {width: 1280, height: 900}, ...options});
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.requests = [];
  page.on('request', request => {
    page.requests.push(request);
    const own = request.url().startsWith(base) || /^(data|blob):/.test(request.url());
    if (!own) never(`a request to ${request.url()}`);
  });
  page.on('pageerror', error => never(`an error in the page: ${error.message}`));
  page.on('console', message => { if (/Content Security Policy/i.test(message.text())) never(message.text()); });
  await page.addInitScript(() => addEventListener('securitypolicyviolation', event => console.error(`Content Security Policy: ${event.violatedDirective} ${event.blockedURI}`)));
  return page;
}

export async function close(page) {
  asked += 2;
  if (await page.evaluate(() => typeof window.pwned) !== 'undefined') never('a script of a document ran');
  if (await page.evaluate(() => document.querySelectorAll('body img, body script, body iframe, body [style*="url"]').length)) never('elements of a document');
  await page.context().close();
}

// What is wrong with a part: nothing, if all is well.
async function faults(questions) {
  wrong = [];
  try {
    await questions();
  } catch (error) {
    ok(false, `${error.message.split('\n').slice(0, 3).join(' ')} ${error.stack.split('\n').find(line => /\/page\w*\.mjs/.test(line))?.trim() ?? ''}`);
  }
  const found = wrong;
  wrong = null;
  return found;
}

// A browser, a server and a script on a busy machine can miss each other in more ways than one: what fails is tried once more,
// from a page and stores as they were, and only what fails twice counts. The price: a fault of ours that shows now and then
// passes as "tried again", which is printed.
export async function part(name, questions) {
  if (!name.includes(process.env.PART ?? '')) return;
  const start = Date.now();
  const first = await faults(questions);
  for (const fault of first) console.log(`tried again: ${name}: ${fault}`);
  if (first.length) {
    await tidy();
    const second = await faults(questions);
    for (const fault of second) never(`${name}: ${fault}`);
    if (second.length) await tidy();
  }
  if (process.env.VERBOSE) console.log(`${name}: ${Date.now() - start} ms`);
}

const documentsOf = async store => (await api('GET', `/v1/stores/${store}/documents?limit=1000`)).data.map(document => document.name);
const atFirst = {told: await documentsOf('told'), letters: await documentsOf('letters')};

async function tidy() {
  for (const context of browser.contexts()) await context.close();
  for (const [store, known] of Object.entries(atFirst)) {
    for (const name of await documentsOf(store)) if (!known.includes(name)) await api('DELETE', `/v1/stores/${store}/documents/${encodeURIComponent(name)}`);
  }
}

export const shot = (page, name) => folder ? page.screenshot({path: `${folder}/${name}.png`}) : null;
export const textOf = (page, selector) => page.locator(selector).first().textContent();
export const numberIn = text => Number(text.replace('−', '-').replace(/·10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)/, (_, e) => 'e' + [...e].map(c => c === '⁻' ? '-' : '⁰¹²³⁴⁵⁶⁷⁸⁹'.indexOf(c)).join('')).replace(/[\s\u202f%]/g, ''));
export const shownNumber = async (page, selector) => numberIn(await textOf(page, selector));
export const answered = (page, where) => page.waitForResponse(response => response.url().endsWith(where) && response.ok());
export const focused = page => page.evaluate(() => document.activeElement.id || document.activeElement.dataset.i || document.activeElement.className);
export const sent = (page, where) => page.requests.filter(request => request.url().endsWith(where)).map(request => request.postDataJSON());

// The text is read to its end.
export const settled = page => page.waitForFunction(() => document.getElementById('reading').getAttribute('aria-busy') === 'false');

export async function start(page, base = url) {
  await page.goto(base);
  await page.waitForSelector('#tokens .t');
  await settled(page);
}

// Gives what the server answered last: one that was asked before, of another text, may have come in between.
export async function read(page, text) {
  await page.fill('#read-text', text);
  await page.click('#read-go');
  await settled(page);
  const last = page.requests.filter(request => request.url().endsWith('/v1/score')).at(-1), body = await (await last.response()).json();
  await page.waitForFunction(count => document.querySelectorAll('#tokens .t').length === count, body.tokens.length);
  return body;
}

// As a hand does it: every step of the way is an input.
export const turn = (page, id, value) => page.locator(id).evaluate((knob, v) => {
  knob.value = v;
  knob.dispatchEvent(new Event('input', {bubbles: true}));
}, String(value)).then(() => page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))));

// The most probable words, nearly by the nearest entry of one store alone: a passage of its own, whatever the model, or a CPU's rounding.
export const COPYING = {heat: 0, 'knn-lambda': .9, 'knn-temperature': .01, 'knn-k': 12};

export async function generate(page, fields) {
  await page.click('#generate-tab');
  for (const [id, value] of Object.entries(fields)) await page.fill(`#${id}`, String(value));
  await page.click('#generate-go');
}

// Presses a button as soon as a line says how far a text is: a hand might come after a fast server's last word.
export const stopAtOnce = (page, button, line) => page.evaluate(([stop, count]) => {
  const told = document.getElementById(count);
  new MutationObserver((_, observer) => {
    if (!/^[1-9]/.test(told.textContent)) return;
    observer.disconnect();
    document.getElementById(stop).click();
  }).observe(told, {childList: true, characterData: true, subtree: true});
}, [button, line]);

// What WCAG 2.2 at level AA finds fault with, by axe-core.
const axe = await readFile(`${node}/node_modules/axe-core/axe.min.js`, 'utf8');
export async function audit(page, what) {
  await page.evaluate(axe);
  const {violations} = await page.evaluate(() => window.axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations']}));
  is(violations.map(v => `${v.id}: ${v.nodes.slice(0, 3).map(n => `${n.target} ${n.any[0]?.message ?? ''}`).join('; ')}`).join('\n'), '', `accessible: ${what}`);
}

export const shelf = name => `[data-store=${name}]`;

// At the end of a script: its status is whether all held.
export async function finish() {
  await browser.close();
  console.log(failures ? `${failures} of ${asked} questions failed` : `passed: ${asked} questions`);
  process.exit(failures ? 1 : 0);
}
