#!/usr/bin/env python3
"""Makes tokenizer_texts.json: small tokenizers, one for each component and its options, and the ids that Hugging Face's library finds for
texts that are easily got wrong. Everything is made here: the vocabularies are trained on the sentences below.

    python3 tests/golden/tokenizer_texts.py        (needs the package tokenizers; the tests do not)

The file has: texts; added tokens; models; and cases, each a model's name, a normalizer, a pre_tokenizer, and lines of ids, one for each
text: "ids" with the added tokens, "plain" without ("=": the same). Cases with "marks" have a line for the shorter texts, too: for each
place between their characters how many tokens end at or before it and how many begin before it, without added tokens. Characters newer
than Unicode 13 are not in the texts: the libraries know different versions.
"""
import json
import os

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

SENTENCES = """The quick brown fox jumps over the lazy dog, and the dog doesn't care; it's asleep.
Numbers such as 12345, 3.14159 and 2024 are cut into digits by some and kept whole by others.
We've seen that they're here, I'm sure he'll come, she'd say "yes" -- or perhaps 'no'!
Une phrase en français, où l'été est déjà passé. Größe, Straße, übermäßig.
Широка страна моя родная, много в ней лесов, полей и рек.
日本語のテキストには空白がありません。漢字とかなとカタカナ。
한국어 문장도 하나 있습니다.  Two  spaces   and	tabs.
if x == 0:\n    return [y * 2 for y in range(10)]\n\n\nelse:\n        pass
""".split("\n") * 4

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\t", "a", " a", "a ", "  a", "a  b", "a   b  ", "  leading and trailing  ",
    "Hello, world! I'm 12345 — naïve café\n\n  x", "cafe\u0301", "a \u180e b", "a\u0085\u0085 b", "x'\u017f y", "I'M HERE, it'S",
    "tab\tand\r\nCRLF", "1234567", "a\r\n\r\n b\n\r c", "x \n y  \n\n  z", "\u00a0nbsp\u3000ideographic\u2028line\u2029par", "日本語テキスト",
    "!\n\n\n?!\r\n", "...  !!!", "a.\n\nb.\r\n \n", "def f(x):\n    return x**2  # sq\n", "foo_bar fooBar __init__",
    "http://a.b/c?d=e&f=g#h",
    "don't DON'T we've WE'VE I'll you're it's he'd I'm 'S'T'RE 'Ll", "''s '''", "l'été d'Eté", "“quotes” ‘single’ «g»", "a;b:c,d (e) [f]",
    "1 22 333 4444 55555", "1,000.50", "½⅓²³ ⅣⅫ ①②", "٠١٢٣٤٥ १२३", "１２３ ＡＢＣ", "a1b22c333",
    "\0", "a\0b \0 c", "\x01\x7f\u0080", "\ufeffBOM", "\u200b\u200c\u200d", "\ue000\uf8ff\U000f0000", "\ufdd0\uffff\U0010ffff", "\ufffd",
    "😀 😀😀", "👨\u200d👩\u200d👧 x", "👍🏽", "🇩🇪🇫🇷", "1\ufe0f\u20e3", "❤\ufe0f\u200d🔥",
    "e\u0301\u0323 e\u0323\u0301", "\u0301abc", " \u0301x", "q\u0307\u0323", "\u212b\u2126", "\u0344", "\u0958\u09c7\u09be",
    "u\u0308" * 5,
    "か\u3099が", "ｶﾞﾊﾟ", "\u1112\u1161\u11ab\uac00\u11a8", "한국어 텍스트", "ㄱㄴㅏ", "ﬁ ﬂ ℌ ㎏ …", "İstanbul ΑΣ ΑΣ. ẞ Ǆ", "हिन्दी में",
    "שלום עולם مرحبا", "ไทยไม่มี", "Привет, мир!", "中文。下一句！\n新行",
    "a" * 40, " " * 40, "\n" * 30, "1" * 35, "." * 40, "é" * 20, "漢" * 9, "😀" * 9, " a" * 20, "\r\n" * 15, "\u0301" * 35,
    "▁", "▁a ▁b", "a▁b", "_x_ _", "Ġa Ċ", "<0x41><0x0A>",
    "<s>", "</s>", "a<s>b", "a <s> b", "<s><s>", "<s>  x", " <s>", "<s", "s>", "x<l>y", "x  \n <l> y", "x<r>  \n y", "<r>", "x <lr> y",
    "<w>", "a<w>", "<w>b", " <w> ", "é<w>", "_<w>.", "<l><r> <l>", "<n>", "a <n>", "a<n>b", "  <n>", "ÉX é", "a ÉX é", "E\u0301X e\u0301",
    "éx é", "\n\n\n\n", "a\n\n\nb", "<S>", "two  three", "x two  three y",
]  # fmt: skip

ADDED = [
    ("<s>", {"special": True}), ("<l>", {"lstrip": True}), ("<r>", {"rstrip": True}), ("<lr>", {"lstrip": True, "rstrip": True}),
    ("<w>", {"single_word": True}), ("<n>", {"normalized": True}), ("ÉX é", {"normalized": True}), ("two  three", {"normalized": True}),
    ("\n\n\n", {}),
]  # fmt: skip

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LATER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train(pre_tokenizer, alphabet, specials):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + len(specials) + 380, initial_alphabet=alphabet, special_tokens=specials, show_progress=False
    )
    t.train_from_iterator(SENTENCES, trainer)
    return json.loads(t.to_str())["model"]


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme="always", cuts=True, replacement="▁"):
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": cuts}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def cases():
    """model, normalizer's steps, pre_tokenizer's steps, marks"""
    llama2 = [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")]
    yield "bytes", [], [byte_level()], True
    yield "bytes", [], [byte_level(True)], True
    yield "bytes", [], [byte_level(False, False)], True
    yield "bytes", [{"type": "NFC"}], [split(LATER % r"\p{N}"), byte_level(False, False)], False
    yield "bytes", [], [split(LATER % r"\p{N}{1,3}"), byte_level(False, False)], True
    yield "whole", [], [split(LATER % r"\p{N}{1,3}"), byte_level(False, False)], True
    yield "bytes", [], [digits(True), byte_level()], True
    yield "bytes", [], [digits(False), byte_level(True)], True
    yield "bytes", [], [split(r"\w+|[^\w\s]+", "Removed", True), byte_level(False, False)], False
    for behavior in ("Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield "bytes", [], [{"type": "Punctuation", "behavior": behavior}, byte_level()], True
        yield "characters", [], [split(" ", behavior, False, "String")], False
        yield "characters", [], [split(r"[a-z]|\s", behavior, True)], False
    yield "bytes", [], [byte_level(), digits(False), split("[0-9][0-9][0-9]")], False
    yield "characters", llama2, [], True
    yield "characters", [replace(" ", "▁")], [split("▁", "MergedWithPrevious", False, "String")], True
    for scheme in ("always", "first", "never"):
        yield "characters", [], [metaspace(scheme)], True
        yield "characters", [], [metaspace(scheme, False)], True
    yield "characters", [], [{"type": "WhitespaceSplit"}, metaspace("always", True, "_")], False
    yield "unknown", [], [metaspace("first")], False
    yield "nothing", [], [metaspace("first")], False
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield "characters", [{"type": form}] + llama2, [], False
    yield "characters", [{"type": "StripAccents"}], [metaspace("first")], False
    yield "bytes", [{"type": "Strip", "strip_left": True, "strip_right": False}], [byte_level()], False
    yield "bytes", [{"type": "Strip", "strip_left": False, "strip_right": True}], [byte_level()], False
    yield "bytes", [replace(r"\s+", " ", "Regex"), replace(r"(?<=a)b|x+", "-", "Regex")], [byte_level()], False


def sequence(kind, steps):
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}[kind]: steps}


def tokenizer_json(model, normalizer, pre_tokenizer):
    base = max(model["vocab"].values()) + 1
    added = []
    for i, (content, flags) in enumerate(ADDED):
        entry = {"id": base + i, "content": content, "special": False, "normalized": False, "single_word": False, "lstrip": False,
        "rstrip": False}
        added.append({**entry, **flags})
    return {
        "version": "1.0", "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
        "decoder": None, "model": model,
    }  # fmt: skip


def line(ids):
    return " ".join(map(str, ids))


def marks(text, offsets):
    """for each character, in bytes: tokens that end at or before it, tokens that begin before it"""
    return " ".join(f"{sum(e <= i for _, e in offsets)}/{sum(b < i for b, _ in offsets)}" for i in range(len(text) + 1))


def main():
    byte_model = train(pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.ByteLevel.alphabet(), [])
    pieces = train(pre_tokenizers.Metaspace(), ["▁"], ["<unk>"] + [f"<0x{i:02X}>" for i in range(256)])
    common = {"type": "BPE", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    ours = {
        "bytes": {**byte_model, **common},
        "whole": {**byte_model, **common, "ignore_merges": True},
        "characters": {**pieces, **common, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
        "unknown": {**pieces, **common, "unk_token": "<unk>", "fuse_unk": False, "byte_fallback": False},
        "nothing": {**pieces, **common, "unk_token": None, "fuse_unk": False, "byte_fallback": False},
    }
    out = []
    for name, normalizer, pre_tokenizer, with_marks in cases():
        normalizer, pre_tokenizer = sequence("normalizer", normalizer), sequence("pre_tokenizer", pre_tokenizer)
        t = Tokenizer.from_str(json.dumps(tokenizer_json(ours[name], normalizer, pre_tokenizer)))
        plain = json.loads(t.to_str())
        plain["added_tokens"] = []
        bare = Tokenizer.from_str(json.dumps(plain))
        case = {"model": name, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
        case["ids"] = [line(t.encode(x).ids) for x in TEXTS]
        found = [bare.encode(x) for x in TEXTS]
        case["plain"] = ["=" if same == line(f.ids) else line(f.ids) for f, same in zip(found, case["ids"])]
        if with_marks:
            case["marks"] = [marks(x, f.offsets) if len(x) < 30 and "<" not in x else "" for x, f in zip(TEXTS, found)]
        out.append(case)
    # Models share their vocabularies.
    for name, of in (("whole", "bytes"), ("unknown", "characters"), ("nothing", "characters")):
        ours[name] = {**ours[name], "vocab": of, "merges": of}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer_texts.json")
    added = tokenizer_json({"vocab": byte_model["vocab"]}, None, None)["added_tokens"]
    with open(path, "w") as f:
        f.write('{"texts":' + json.dumps(TEXTS) + ',\n"added":' + json.dumps(added) + ',\n"models":{')
        f.write(",\n".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in ours.items()))
        f.write('},\n"cases":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in out) + "]}\n")


if __name__ == "__main__":
    main()
