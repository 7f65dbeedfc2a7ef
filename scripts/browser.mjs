// Debian's Chromium by playwright-core (scripts/get-node), as the tests of the page, bench/colours.mjs and scripts/picture.mjs start it.
// Environment: CHROMIUM (/usr/bin/chromium), KNNLM_NODE (third_party/node: where the npm packages are)
import {createRequire} from 'node:module';
import path from 'node:path';

export const node = path.resolve(process.env.KNNLM_NODE ?? 'third_party/node');
const {chromium} = createRequire(`${node}/`)('playwright-core');

export const launch = () =>
  chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage']});

// The page of a server, when the text that it begins with has its colours.
export async function openPage(browser, url, viewport) {
  const page = await browser.newPage({viewport});
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector('#tokens .t') && document.getElementById('reading').getAttribute('aria-busy') === 'false');
  return page;
}
