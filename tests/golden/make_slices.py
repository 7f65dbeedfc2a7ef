#!/usr/bin/python3
"""Cuts the slices of vocabularies and texts that the tests read:  make_slices.py DATA   (the data folder, see docs/data.md)

    gpt2.json, gpt2.inp, gpt2.out     GPT-2's byte-level BPE with llama.cpp's test vectors for it (both MIT)
    bert.txt, bert.inp, bert.out      BERT's WordPiece with test vectors (Apache-2.0; the vectors MIT)
    wiki.txt                          whole articles of the English Wikipedia (CC BY-SA)
    books.txt                         beginnings of books from before 1930 (public domain)

A vocabulary keeps its special tokens and what could become part of the vectors' words: of a BPE the merges whose both
sides and result occur in a vector, of a WordPiece the pieces that do. Whatever the whole one does to the vectors, the
slice does too. Ids are counted anew, in the old order, also in the vectors' answers.
"""

import json
import os
import re
import sys
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
ARTICLES, ARTICLE_BYTES, BOOK_BYTES = 4, 12000, 16000


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def write(name, text):
    with open(os.path.join(HERE, name), "w", encoding="utf-8", newline="") as file:
        file.write(text)


def write_vectors(data, name, ids):
    """The inputs as they are, and the answers in the slice's ids."""
    write(name + ".inp", read(f"{data}/tokenizers/{name}.inp"))
    answers = read(f"{data}/tokenizers/{name}.out")
    write(name + ".out", re.sub(r"\d+", lambda match: str(ids[int(match[0])]), answers))


def letters_of_bytes():
    """The letter that stands for each byte in the vocabulary: itself where it can be seen, else one from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}


def cut_gpt2(data):
    whole = json.loads(read(f"{data}/tokenizers/gpt2-tokenizer.json"))
    vocabulary, letters = whole["model"]["vocab"], letters_of_bytes()
    text = "".join(letters[byte] for byte in read(f"{data}/tokenizers/gpt2.inp").encode())
    merges, kept = [], set(letters.values()) | {token["content"] for token in whole["added_tokens"]}
    for merge in whole["model"]["merges"]:
        left, right = merge.split(" ")
        if left in kept and right in kept and left + right in text:
            merges.append(merge)
            kept.add(left + right)
    tokens = sorted(kept, key=vocabulary.get)
    number = {token: n for n, token in enumerate(tokens)}
    whole["model"]["vocab"], whole["model"]["merges"] = number, merges
    for token in whole["added_tokens"]:
        token["id"] = number[token["content"]]
    write("gpt2.json", json.dumps(whole, ensure_ascii=False, indent=0) + "\n")
    write_vectors(data, "gpt2", {vocabulary[token]: n for token, n in number.items()})


def cut_bert(data):
    vocabulary = read(f"{data}/tokenizers/bert-uncased-vocab.txt").split("\n")[:-1]
    text = unicodedata.normalize("NFD", read(f"{data}/tokenizers/bert.inp").lower())
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Mn")
    kept = [
        n
        for n, piece in enumerate(vocabulary)
        if re.fullmatch(r"\[(PAD|UNK|CLS|SEP|MASK)\]", piece) or piece.removeprefix("##") in text or piece in text
    ]
    write("bert.txt", "".join(vocabulary[n] + "\n" for n in kept))
    write_vectors(data, "bert", {old: n for n, old in enumerate(kept)})


def documents(path):
    return re.split(r"(?m)^(?== [^=].* =$)", read(path))[1:]


def cut_texts(data):
    articles = [text for text in documents(f"{data}/data/wiki/valid.txt") if len(text.encode()) < ARTICLE_BYTES]
    write("wiki.txt", "".join(articles[:ARTICLES]))
    books = documents(f"{data}/data/books/valid.txt")[:2]
    write("books.txt", "".join(book[: book.rindex("\n", 0, BOOK_BYTES) + 1] + "\n" for book in books))


if __name__ == "__main__":
    cut_gpt2(sys.argv[1])
    cut_bert(sys.argv[1])
    cut_texts(sys.argv[1])
