#!/usr/bin/python3 -I
"""Makes a folder of texts as people have them, and what lies among them.
    make_awkward.py FOLDER EXPECTED
EXPECTED gets a JSON object: "texts", the documents' names below the folder and their texts as they are to be read, and
"skipped", what is to be passed over and why. All of it is made by Python's own modules, none by knnlm or its libraries."""

import bz2
import gzip
import io
import json
import lzma
import os
import pathlib
import socket
import subprocess
import sys
import tarfile
import zipfile

folder, expected = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
texts, skipped = {}, {}
DOCUMENT = '<?xml version="1.0" encoding="UTF-8"?>'


def write(name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def text(name, content, data=None, document=None):
    write(name, content if data is None else data)
    texts[document or name] = content


def skip(name, reason, data=None):
    if data is not None:
        write(name, data)
    skipped[name] = reason


def zipped(members, stored=()):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in members:
            z.writestr(name, data, zipfile.ZIP_STORED if name in stored else None)
    return out.getvalue()


def tarred(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "a.txt"
        t.addfile(link)
    return out.getvalue()


def pdf(lines):
    """One page of Helvetica, with the table of offsets that a reader asks for."""
    content = "BT /F1 12 Tf 72 720 Td 14 TL " + " T* ".join(f"({line}) Tj" for line in lines) + " ET"
    objects = [
        "<</Type /Catalog /Pages 2 0 R>>",
        "<</Type /Pages /Kids [3 0 R] /Count 1>>",
        "<</Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>>>>",
        f"<</Length {len(content)}>>\nstream\n{content}\nendstream",
        "<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 6\n0000000000 65535 f \n{table}trailer\n<</Size 6 /Root 1 0 R>>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + end.encode()


def epub(prologue="", title="A Small Book"):
    container = DOCUMENT + (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    package = DOCUMENT + prologue + (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{title}</dc:title></metadata><manifest>"
        '<item id="two" href="text/ch%202.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="one" href="text/ch1.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="cover" href="cover.png" media-type="image/png"/></manifest>'
        '<spine><itemref idref="one"/><itemref idref="cover"/><itemref idref="two"/></spine></package>'
    )
    page = DOCUMENT + '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body>{}</body></html>'
    return zipped(
        [
            ("mimetype", "application/epub+zip"),
            ("META-INF/container.xml", container),
            ("OEBPS/text/ch 2.xhtml", page.format("<h1>Two</h1><p>The end.</p>")),
            ("OEBPS/cover.png", b"\x89PNG\r\n\x1a\n\0\0"),
            ("OEBPS/book.opf", package),
            ("OEBPS/text/ch1.xhtml", page.format("<h1>One</h1><p>It began in Zürich.</p>")),
        ],
        stored=("mimetype",),
    )


HTML = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>Soup &amp; Bread</title>
<script>var hidden = "never <b>shown</b>";</script><style>p { color: red }</style></head>
<body><nav><a href="/">Home</a></nav><h1>How to  cook</h1>
<p>Caf&eacute;, 5&nbsp;&euro; &lt;cheap&gt;, &#x1F600;.<br>Next line</p>
<ul><li>salt<li>pepper<ul><li>black</li></ul></li></ul>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
<pre>
kept   as
  it is
</pre><p>Last<script>document.write("not this")</script> words.</body></html>
"""
HTML_TEXT = """Soup & Bread

How to cook

Café, 5 € <cheap>, 😀.
Next line

- salt
- pepper
  - black

a\tb
1\t2

kept   as
  it is

Last words.
"""
XHTML = (
    DOCUMENT + '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">'
    '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Strict</title><script src="x.js"/></head>'
    "<body><p>One<br/>two</p><hr/><p>three</p></body></html>"
)


def make_texts():
    words = "Grüße, Welt: 你好, мир\n"
    text("plain.txt", words)
    text("with mark.txt", words, b"\xef\xbb\xbf" + words.encode())
    text("utf16le.txt", words, b"\xff\xfe" + words.encode("utf-16-le"))
    text("utf16be.txt", words, b"\xfe\xff" + words.encode("utf-16-be"))
    text("utf32.txt", words, b"\xff\xfe\0\0" + words.encode("utf-32-le"))
    text("crlf.txt", "one\r\ntwo\r\n")
    text("notes.md", "# Title\n\n<b>as it is</b> &amp; so on\n")
    text("code.c", "int main(void) { return 0; } // <html>\n")
    text("talk.txt", "GIF89a is how an old picture begins, and ID3 how a song does.\n")
    text("a.txt.gz", words, gzip.compress(words.encode()))
    text("a.txt.xz", words, lzma.compress(words.encode()))
    text("a.txt.bz2", words, bz2.compress(words.encode()))
    text("a.txt.zst", words, subprocess.run(["zstd", "-c"], input=words.encode(), stdout=subprocess.PIPE, check=True).stdout)
    text("twice.gz", words, gzip.compress(gzip.compress(words.encode())))
    text("page.html", HTML_TEXT, HTML)
    text("fragment.html", "Only a part.\n", "Only <i>a</i> part.")
    text("strict.xhtml", "Strict\n\nOne\ntwo\n\nthree\n", XHTML)
    old = '<html><head><meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1"></head><body>caf\xe9 \x93q\x94'
    text("old.htm", "café “q”\n", old.encode("latin-1"))
    text("wide.html", "Wide\n\nwörds\n", "\ufeff<html><title>Wide</title><body>wörds</body></html>".encode("utf-16"))
    text("book.epub", "A Small Book\n\nOne\n\nIt began in Zürich.\n\nTwo\n\nThe end.\n", epub())
    text("lines.jsonl", '{"text": "plain here"}\n')
    text("with space and \nnewline.txt", "odd name\n")
    text("ünïcode/naïve.txt", "name\n")
    text("deep/" + "d/" * 40 + "leaf.txt", "deep\n")
    write("empty.txt", "")
    write("empty.gz", gzip.compress(b""))
    write("empty.zip", zipped([]))


def make_archives():
    tar = tarred([("./a.txt", b"in tar\n"), ("sub/b.txt", b"also\n"), ("sub/c.bin", b"\0\1"), (".hidden", b"no\n")])
    for name, data in (("t.tar", tar), ("t.tgz", gzip.compress(tar)), ("t.tar.xz", lzma.compress(tar))):
        write(name, data)
        texts[f"{name}/a.txt"], texts[f"{name}/sub/b.txt"] = "in tar\n", "also\n"
        skip(f"{name}/sub/c.bin", "binary")
        skip(f"{name}/link.txt", "link")
    inner = zipped([("leaf.txt", "inner\n")])
    members = [("deep/er/ü.txt", "nested\n"), ("x.html", "<p>page"), ("inner.zip", inner), ("bad.txt", b"caf\xe9")]
    write("z.zip", zipped(members + [("__MACOSX/._x", b"\0"), ("packed.txt.gz", gzip.compress(b"packed\n"))]))
    texts.update({"z.zip/deep/er/ü.txt": "nested\n", "z.zip/x.html": "page\n", "z.zip/inner.zip/leaf.txt": "inner\n"})
    texts["z.zip/packed.txt.gz"] = "packed\n"
    skip("z.zip/bad.txt", "not UTF-8")
    skip("cut.tar.gz", "damaged", gzip.compress(tarred([("big.txt", os.urandom(99999).hex().encode())]))[:50000])


def make_others(with_pdf):
    lines = ["A page of a PDF.", "Its second line."]
    if with_pdf:
        text("paper.pdf", "\n".join(lines) + "\n", pdf(lines))
        skip("scan.pdf", "PDF without text", pdf([""]))
    else:
        skip("paper.pdf", "unsupported: PDF (built without poppler)", pdf(lines))
    skip("latin1.txt", "not UTF-8", "café\n".encode("latin-1"))
    skip("odd16.txt", "wrong encoding", b"\xff\xfea\0\0\xd8b\0")
    skip("data.bin", "binary", bytes(range(256)))
    skip("image.png", "binary", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    skip("song.mp3", "binary", b"ID3\3\0\0\0")
    skip("base.sqlite", "binary", b"SQLite format 3\0" + bytes(84))
    skip("letter.docx", "unsupported: Word document", zipped([("[Content_Types].xml", "<x/>"), ("word/document.xml", "<x/>")]))
    odt = [("mimetype", "application/vnd.oasis.opendocument.text"), ("content.xml", "<x/>")]
    skip("letter.odt", "unsupported: LibreOffice document", zipped(odt, stored=("mimetype",)))
    skip("letter.rtf", "unsupported: RTF document", "{\\rtf1 hello}")
    skip("files.7z", "unsupported: 7z archive", b"7z\xbc\xaf\x27\x1c\0\4")
    skip("cut.gz", "damaged", gzip.compress(os.urandom(1000))[:500])
    skip("cut.xz", "damaged", lzma.compress(b"some text " * 1000)[:60])
    skip("cut.zip", "damaged", zipped([("a.txt", os.urandom(2000).hex())])[:1500])
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    skip("laughs.epub", "damaged", epub(f'<!DOCTYPE package [<!ENTITY l0 "ha">{laughs}]>', "&l9;"))
    skip("no.epub", "damaged", zipped([("mimetype", "application/epub+zip"), ("a.xhtml", "<p>x")], stored=("mimetype",)))


def make_nodes():
    os.symlink("plain.txt", folder / "linked.txt")
    skip("linked.txt", "link")
    os.symlink("nowhere", folder / "dangling")
    skip("dangling", "broken link")
    os.symlink("loop2", folder / "loop1")
    os.symlink("loop1", folder / "loop2")
    skip("loop1", "link loop")
    skip("loop2", "link loop")
    os.symlink("..", folder / "ünïcode" / "up")
    skip("ünïcode/up", "link")
    os.mkfifo(folder / "pipe")
    skip("pipe", "not a file")
    os.chdir(folder)  # a socket's path is short
    socket.socket(socket.AF_UNIX).bind("socket")
    skip("socket", "not a file")
    write(".hidden", b"\xff never read")
    write(".git/config", "never read")
    if os.getuid() != 0:
        write("secret.txt", "no").chmod(0)
        skip("secret.txt", "no permission")
        (folder / "closed").mkdir(mode=0)
        skip("closed", "no permission")


folder, expected = folder.absolute(), expected.absolute()
make_texts()
make_archives()
make_others(sys.argv[3:] == ["pdf"])
make_nodes()
expected.write_text(json.dumps({"texts": texts, "skipped": skipped}))
