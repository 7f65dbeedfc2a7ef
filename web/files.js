// Files and folders, dropped or picked, as texts with names.

// All entries of a folder: they come by the hundred.
async function entriesOf(folder) {
  const reader = folder.createReader(), all = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return all;
    all.push(...some);
  }
}

async function* walk(entry) {
  if (entry.isDirectory) for (const inner of (await entriesOf(entry)).sort((a, b) => a.name < b.name ? -1 : 1)) yield* walk(inner);
  else yield {name: entry.fullPath.replace(/^\//, ''), file: await new Promise((resolve, reject) => entry.file(resolve, reject))};
}

// What was dropped: {name, file} of each file, those of folders under their path. The items of an event are to be asked
// before anything is waited for.
export async function dropped(transfer) {
  const entries = [...transfer.items].filter(item => item.kind === 'file').map(item => item.webkitGetAsEntry()).filter(Boolean), all = [];
  for (const entry of entries) for await (const found of walk(entry)) all.push(found);
  return all;
}

// What an input of files has, or one of a folder.
export const picked = input => [...input.files].map(file => ({name: file.webkitRelativePath || file.name, file}));

// As UTF-8, else as Windows-1252, which most other texts are. Null: no text, or an empty one.
export async function textOf(file) {
  const bytes = await file.arrayBuffer();
  if (!bytes.byteLength || new Uint8Array(bytes).includes(0)) return null;
  try {
    return new TextDecoder('utf-8', {fatal: true}).decode(bytes);
  } catch {
    return new TextDecoder('windows-1252').decode(bytes);
  }
}

// Their texts, so many bytes of them at a time: {texts: [{name, text}], seen: files so far, left: those without a text}.
export async function* batches(files, most) {
  let texts = [], size = 0, left = 0;
  for (const [i, {name, file}] of files.entries()) {
    const text = await textOf(file);
    if (text === null) left++;
    else {
      if (texts.length && size + file.size > most) {
        yield {texts, seen: i, left};
        [texts, size] = [[], 0];
      }
      texts.push({name, text});
      size += file.size;
    }
  }
  yield {texts, seen: files.length, left};
}
