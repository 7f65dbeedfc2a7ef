// The clipboard, which browsers give to pages of a secure origin alone: this machine's, or by https.

// Whether the text is there.
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
