// The page of `knnlm serve`: chat, what is dropped, and a server of two models. As tests/page.mjs; TWO_URL is a server of the
// models small (with the store again) and shared.model (with bytes).
import {mkdir, mkdtemp, rm, writeFile} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {TEXT, ok, is, near, api, open, close, part, shot, textOf, answered, sent, start, read, shelf, audit, finish} from './page_kit.mjs';

const two = process.env.TWO_URL;
const idle = page => page.waitForFunction(() => !document.getElementById('chat-go').disabled);

async function say(page, text) {
  await page.fill('#message', text);
  await page.keyboard.press('Enter');
  await idle(page);
}

// ---------------------------------------------------------------- chat

const bodies = page => page.locator('#talk .body').evaluateAll(all => all.map(body => {
  const copy = body.cloneNode(true);
  for (const sup of copy.querySelectorAll('sup')) sup.remove();
  return copy.textContent;
}));

await part('chat', async () => {
  const page = await open({permissions: ['clipboard-read', 'clipboard-write']});
  await start(page);
  await page.click('#chat-tab');
  await page.waitForFunction(() => document.getElementById('chat-kind').textContent.includes('not taught to chat'));
  await page.locator('#chat .more summary').click();
  for (const [id, value] of Object.entries({'chat-length': 24, 'chat-heat': 0, 'chat-seed': 3, 'chat-knn-lambda': .9, 'chat-knn-k': 12, system: 'On words.'})) await page.fill(`#${id}`, String(value));
  await page.locator('#chat-stores [value=letters]').click();
  await say(page, 'The nearest neighbours of a context?');
  const [first] = sent(page, '/v1/chat/completions');
  is(JSON.stringify(first.messages), JSON.stringify([{role: 'system', content: 'On words.'}, {role: 'user', content: 'The nearest neighbours of a context?'}]), 'instructions and question');
  is(`${first.max_tokens} ${first.temperature} ${first.top_p} ${first.seed} ${JSON.stringify(first.knn)}`, '24 0 0.95 3 {"stores":["told"],"explain":true,"lambda":0.9,"k":12}', 'what was asked for');
  const direct = (await api('POST', '/v1/chat/completions', {...first, stream: false})).choices[0];
  is((await bodies(page))[0].trim(), direct.message.content.trim(), 'the words of the answer');
  const numbered = direct.knn.sources.filter(source => source.footnote);
  ok(numbered.length > 0, 'the answer has sources');
  is((await page.locator('#talk .run sup').allTextContents()).filter(Boolean).join(), numbered.map(source => source.footnote).join(), 'their numbers in the text');
  await page.waitForFunction(n => document.querySelectorAll('#chat-sources li').length === n, numbered.length);
  ok((await textOf(page, '#chat-sources')).includes(numbered[0].document), 'the list of sources');
  ok(/^wrote 24 tokens, [\d.]+\u202f% of them in \d+ passages? of the stores$/.test(await textOf(page, '#chat-count')), `how much: ${await textOf(page, '#chat-count')}`);
  await page.locator('#talk .run').first().click();
  await page.waitForSelector('#chat-passage mark');
  is(await page.locator('#passage').isHidden(), true, 'the passage is that of the chat');
  await page.locator('#chat-passage-title button').click();
  await page.waitForSelector('#document[open] mark');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  is(await page.locator('#chat-passage').isHidden(), true, 'Escape closes the passage');

  await say(page, 'And every word?');
  const second = sent(page, '/v1/chat/completions')[1];
  is(second.messages.map(({role}) => role).join(), 'system,user,assistant,user', 'what was said before goes along');
  is(second.messages[2].content, direct.message.content.trim(), 'the answer, without marks');
  is(await page.locator('#talk .turn').count(), 2, 'turns of the conversation');
  if (await page.locator('#talk .turn-sources').count() === 2) is(await textOf(page, '#chat-sources-card h2'), 'Sources of answer 2', 'those of the last answer');
  await page.locator('#talk .turn-sources').first().click();
  is(await textOf(page, '#chat-sources-card h2'), 'Sources of answer 1', 'an earlier answer has its sources, too');
  await shot(page, 'wide-chat');
  await page.click('#chat-copy');
  await page.waitForFunction(() => document.getElementById('chat-count').textContent.startsWith('copied'));
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  ok(copied.startsWith('You: The nearest neighbours of a context?\n\nsmall: ') && copied.includes('\n\nYou: And every word?') && copied.includes(`[1] ${numbered[0].document} (told, token ${numbered[0].position})`), `the copy: ${copied}`);
  await page.click('#chat-new');
  is(`${await page.locator('#talk .turn').count()} ${await page.locator('#chat-sources-card').isHidden()} ${await page.locator('#chat-copy').isDisabled()}`, '0 true true', 'a new conversation');
  is(await page.evaluate(() => document.activeElement.id), 'message', 'one can write at once');
  await close(page);
});

await part('chat that is stopped, refused, or full of tags', async () => {
  const page = await open();
  await start(page);
  await page.click('#chat-tab');
  await page.fill('#message', 'First\nline <img src=x onerror="window.pwned=1">');
  await page.locator('#message').press('Shift+Enter');
  is(await page.locator('#talk .turn').count(), 0, 'Shift and Enter begin a line');
  await page.locator('#chat .more summary').click();
  await page.fill('#chat-length', '2000');
  await page.click('#chat-go');
  await page.waitForFunction(() => /^\d+ tokens…$/.test(document.getElementById('chat-count').textContent));
  await page.click('#chat-stop');
  await idle(page);
  ok((await textOf(page, '#chat-count')).startsWith('stopped after'), 'it stops');
  const said = (await bodies(page))[0];
  ok(said.length > 0, 'what came stays');
  is(await textOf(page, '#problem'), '', 'to stop is no error');
  ok((await textOf(page, '#talk .asked')).includes('<img src=x'), 'a question is text');
  await page.fill('#chat-length', '8');
  await page.route('**/v1/chat/completions', route => route.fulfill({status: 400, json: {error: {message: 'too many tokens'}}}));
  await say(page, 'Lost?');
  ok((await textOf(page, '#problem')).includes('Too many tokens'), 'what is wrong is told');
  is(`${await page.locator('#talk .turn').count()} ${await page.inputValue('#message')}`, '1 Lost?', 'the question goes back to where it was written');
  await page.unroute('**/v1/chat/completions');
  await page.click('#chat-go');
  await idle(page);
  is(await page.locator('#talk .turn').count(), 2, 'and can be sent again');
  is(sent(page, '/v1/chat/completions').at(-1).messages[1].content, said.trim(), 'what was stopped is part of the conversation');
  await close(page);
});

// ---------------------------------------------------------------- files and folders

// As a hand drops them: the browser itself reads the folder.
async function drop(page, selector, files) {
  await page.locator(selector).scrollIntoViewIfNeeded();
  const session = await page.context().newCDPSession(page), box = await page.locator(selector).boundingBox();
  const data = {items: [], files, dragOperationsMask: 1}, at = {x: box.x + box.width / 2, y: box.y + box.height / 2};
  for (const type of ['dragEnter', 'dragOver']) await session.send('Input.dispatchDragEvent', {type, ...at, data});
  is(await page.locator(selector).evaluate(zone => zone.classList.contains('over')), true, 'the zone is marked');
  await session.send('Input.dispatchDragEvent', {type: 'drop', ...at, data});
  is(await page.locator(selector).evaluate(zone => zone.classList.contains('over')), false, 'and no more');
}

const remove = async pattern => {
  for (const {name} of (await api('GET', `/v1/stores/told/documents?q=${encodeURIComponent(pattern)}`)).data) await api('DELETE', `/v1/stores/told/documents/${encodeURIComponent(name)}`);
};

await part('dropped folders', async () => {
  const page = await open(), folder = await mkdtemp(`${tmpdir()}/knnlm-drop-`), zone = `${shelf('told')} .drop`, posts = [];
  await mkdir(`${folder}/letters/deep/er`, {recursive: true});
  for (const [name, text] of [['b.txt', 'A letter that was dropped.'], ['deep/a.txt', 'Another one, further down.'], ['deep/er/c.txt', Buffer.from('Caf\xe9', 'latin1')], ['picture.bin', 'a\0b'], ['empty', '']]) await writeFile(`${folder}/letters/${name}`, text);
  for (let i = 0; i < 150; i++) await writeFile(`${folder}/letters/deep/many-${i}.txt`, `Number ${i}.`);
  await start(page);
  await page.route('**/v1/stores/told/documents', async route => {
    if (route.request().method() === 'POST') posts.push(route.request());
    await route.continue();
  });
  await page.click('#stores-tab');
  await page.locator(`${shelf('told')} .add summary`).click();
  await drop(page, zone, [`${folder}/letters`]);
  await page.waitForSelector(`${shelf('told')} .job`);
  ok((await textOf(page, `${shelf('told')} .job`)).startsWith('Reading 155 files'), `the job: ${await textOf(page, `${shelf('told')} .job`)}`);
  await page.waitForFunction(() => /remembers 153 documents more/.test(document.getElementById('note').textContent), null, {timeout: 60000});
  ok((await textOf(page, '#note')).includes('2 files without text left out'), 'what is no text');
  is(posts.length, 1, 'one job for all of it');
  is(posts[0].headers()['content-type'], 'application/x-ndjson', 'as lines of JSON');
  const names = (await api('GET', '/v1/stores/told/documents?q=letters%2F&limit=1000')).data.map(d => d.name);
  ok(names.length === 153 && ['letters/b.txt', 'letters/deep/a.txt', 'letters/deep/er/c.txt', 'letters/deep/many-149.txt'].every(name => names.includes(name)), `names below the folder: ${names.slice(0, 5)}`);
  is((await api('GET', '/v1/stores/told/documents/letters%2Fdeep%2Fer%2Fc.txt')).text, 'Café', 'a text that is not UTF-8');
  // Again: it has them already. A single file, by hand.
  await drop(page, zone, [`${folder}/letters/b.txt`]);
  await page.waitForFunction(() => /remembers 1 document more/.test(document.getElementById('note').textContent));
  is((await api('GET', '/v1/stores/told/documents/b.txt')).text, 'A letter that was dropped.', 'a file that was dropped');
  await remove('letters/');
  await remove('b.txt');
  await page.locator(`${shelf('told')} .drop input:not([webkitdirectory])`).setInputFiles([{name: 'void.bin', mimeType: 'text/plain', buffer: Buffer.from('\0')}]);
  await page.waitForFunction(() => document.getElementById('problem').textContent.includes('There is no text'));
  await rm(folder, {recursive: true});
  await close(page);
});

await part('many megabytes', async () => {
  const page = await open(), posts = [], job = {object: 'job', id: 'big', kind: 'add', store: 'told', status: 'done', progress: null, result: {documents: 1, unchanged: 0, tokens: 7}, error: null};
  await start(page);
  await page.route('**/v1/stores/told/documents', route => {
    if (route.request().method() !== 'POST') return route.continue();
    posts.push(route.request().postData().split('\n').map(line => JSON.parse(line).name));
    return route.fulfill({status: 202, json: job});
  });
  await page.click('#stores-tab');
  await page.locator(`${shelf('told')} .add summary`).click();
  const file = (name, size) => ({name, mimeType: 'text/plain', buffer: Buffer.alloc(size, 'a ')});
  await page.locator(`${shelf('told')} .drop input:not([webkitdirectory])`).setInputFiles([file('1', 6e5), file('2', 3e5), file('3', 1.5e6), file('4', 10)]);
  await page.waitForFunction(() => /remembers 3 documents more/.test(document.getElementById('note').textContent));
  is(JSON.stringify(posts), '[["1","2"],["3"],["4"]]', 'requests of about a megabyte each');
  await close(page);
});

await part('jobs of others', async () => {
  const page = await open(), job = {object: 'job', id: 'theirs', kind: 'compact', store: 'told', status: 'running', progress: {phase: 'copying', done: 1000, total: 20000, unit: 'entries'}, result: null, error: null};
  await page.route('**/v1/jobs', route => route.fulfill({json: {object: 'list', data: [job, {...job, id: 'old', status: 'done'}]}}));
  await page.route('**/v1/jobs/theirs', route => route.fulfill({json: job}));
  await start(page);
  await page.click('#stores-tab');
  await page.waitForSelector('.job');
  is(await page.locator('.job').count(), 1, 'those that have not ended');
  is(await textOf(page, '.job .small'), 'copying: 1\u202f000 of 20\u202f000 entries', 'how far it is');
  await page.click('#read-tab');
  await page.click('#stores-tab');
  await page.waitForTimeout(200);
  is(await page.locator('.job').count(), 1, 'once');
  job.status = 'done';
  job.result = {};
  await page.waitForFunction(() => !document.querySelector('.job'));
  await close(page);
});

// ---------------------------------------------------------------- two models

await part('two models', async () => {
  const page = await open({permissions: ['clipboard-read', 'clipboard-write']}, two);
  await start(page, two);
  is(await page.locator('#models').isVisible(), true, 'there is a choice');
  is((await page.locator('#model-choice option').allTextContents()).join(), 'small,shared.model', 'of the models');
  const first = await read(page, TEXT);
  is(sent(page, '/v1/score').at(-1).model, 'small', 'the first is meant');
  await page.click('#keep');
  const again = answered(page, '/v1/score');
  await page.selectOption('#model-choice', 'shared.model');
  const other = await (await again).json();
  await page.waitForFunction(n => document.querySelectorAll('#tokens .t').length === n, other.tokens.length);
  is(other.model, 'shared.model', 'the same text, by the other one');
  is(`${await textOf(page, '#model')} ${(await page.locator('#read-stores input').evaluateAll(all => all.map(box => box.value))).join()}`, 'shared.model bytes', 'its name, and its stores');
  ok(other.tokens.length > first.tokens.length, 'tokens of its own');
  ok((await textOf(page, '#kept-name')).startsWith('small, λ') && (await textOf(page, '#now-name')).startsWith('shared.model, λ'), 'models side by side');
  const bits = answer => answer.tokens.reduce((all, t) => all - t.logprob, 0) / Math.LN2 / Buffer.byteLength(TEXT);
  const told = async id => Number(/([\d.]+) bits per byte/.exec(await textOf(page, id))[1]);
  near(await told('#kept-ppl'), bits(first), 'bits per byte of one');
  near(await told('#now-ppl'), bits(other), 'and of the other');
  await page.locator('#kept-tokens .t').nth(2).click();
  const opened = Number(await page.locator('#tokens .open').getAttribute('data-i')), at = first.tokens[2].offset;
  ok(other.tokens[opened].offset <= at && (other.tokens[opened + 1]?.offset ?? Infinity) > at, 'a token opens the one that stands at its place');
  await page.waitForSelector('#token .words');
  is(sent(page, '/v1/explain').at(-1).model, 'shared.model', 'which is explained by its model');
  await shot(page, 'wide-models');
  await page.keyboard.press('Escape');
  await page.click('#link');
  await page.waitForFunction(() => document.getElementById('said').textContent.startsWith('The link'));
  const link = await page.evaluate(() => navigator.clipboard.readText()), there = await open({}, two);
  await there.goto(link);
  await there.waitForFunction(n => document.querySelectorAll('#tokens .t').length === n, other.tokens.length);
  is(await textOf(there, '#model'), 'shared.model', 'a link names its model');
  await there.click('#chat-tab');
  await there.fill('#message', 'who');
  await there.locator('#chat .more summary').click();
  await there.fill('#chat-length', '3');
  await there.click('#chat-go');
  await idle(there);
  is(sent(there, '/v1/chat/completions').at(-1).model, 'shared.model', 'that one is spoken with');
  await there.click('#stores-tab');
  await there.waitForSelector(`${shelf('bytes')} tbody tr`);
  ok((await there.locator('.store').count()) === 2, 'stores of all models');
  await close(there);
  await close(page);
});

// ---------------------------------------------------------------- all can use it

await part('accessible chat', async () => {
  for (const [colorScheme, width] of [['light', 1280], ['dark', 400]]) {
    const page = await open({colorScheme, viewport: {width, height: 900}, reducedMotion: 'reduce'}), where = `${colorScheme}, ${width} px`;
    await start(page);
    await page.click('#chat-tab');
    await page.locator('#chat .more summary').click();
    await page.fill('#chat-knn-lambda', '.9');
    await page.fill('#chat-heat', '0');
    await page.fill('#chat-length', '24');
    await say(page, 'The nearest neighbours of a context?');
    await page.waitForTimeout(250);
    await audit(page, `chat, ${where}`);
    await shot(page, `${colorScheme}-${width}-chat`);
    await page.locator('#talk .run').first().click();
    await page.waitForSelector('#chat-passage mark');
    await audit(page, `a passage of chat, ${where}`);
    await shot(page, `${colorScheme}-${width}-chat-passage`);
    is(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `chat fits, ${where}`);
    await close(page);
  }
});

await finish();
