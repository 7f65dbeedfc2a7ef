// Links that hold what is read and how: #/read?z=TEXT&lambda=0.3&temperature=2&stores=a&stores=b&model=c. The text is deflated,
// in base64 as addresses have it: it never reaches the server by the address.

const through = async (bytes, stream) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());

async function packed(text) {
  const bytes = await through(new TextEncoder().encode(text), new CompressionStream('deflate-raw'));
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

async function unpacked(packed) {
  const binary = atob(packed.replaceAll('-', '+').replaceAll('_', '/'));
  const bytes = await through(Uint8Array.from(binary, c => c.charCodeAt(0)), new DecompressionStream('deflate-raw'));
  return new TextDecoder('utf-8', {fatal: true}).decode(bytes);
}

// {text, lambda, temperature, stores, model}: null or undefined are left out (as tuned, all of them, the first).
export async function fragmentOf({text, lambda, temperature, stores, model}) {
  const query = new URLSearchParams({z: await packed(text)});
  if (lambda !== null) query.set('lambda', lambda);
  if (temperature !== null) query.set('temperature', Number(temperature.toPrecision(6)));
  for (const name of stores ?? []) query.append('stores', name);
  if (stores && !stores.length) query.set('stores', '');
  if (model) query.set('model', model);
  return `#/read?${query}`;
}

const number = (query, name, min, max) => {
  if (!query.has(name)) return null;
  const value = Number(query.get(name));
  if (!(value >= min && value <= max)) throw new Error(`The link is damaged: its ${name} is no number from ${min} to ${max}.`);
  return value;
};

// What a fragment holds; null: no text.
export async function readFragment(fragment) {
  const query = new URLSearchParams(/^#\/read\?(.*)$/.exec(fragment)?.[1] ?? '');
  if (!query.has('z')) return null;
  const found = {lambda: number(query, 'lambda', 0, 1), temperature: number(query, 'temperature', 1e-9, 1e9),
    stores: query.has('stores') ? query.getAll('stores').filter(Boolean) : null, model: query.get('model')};
  try {
    return {...found, text: await unpacked(query.get('z'))};
  } catch {
    throw new Error('The link is damaged: its text cannot be unpacked. Was it copied whole?');
  }
}
