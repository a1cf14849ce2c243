"""Writes tests/golden/prompt_rows: tiny tokenizers, and what transformers makes of records with prompt and response, templates and texts.

    prompt_rows.py [--out FOLDER] [--tokenizer FOLDER]... [--records FILE.jsonl]...

Run by hand; needs transformers. Without options it makes the set that test_document.c compares with. With --tokenizer and --records it writes a set of
the same form for real ones into --out; test_document reads it if ZF_PROMPT_ROWS names that folder.

Ids are those of the whole text, as tokenizer(prompt + response) gives them, and one end token behind. A token is trained if its offsets overlap the
response, and never because the answer's text was found somewhere: it may stand in the prompt, too."""
import argparse
import json
import os
import re

from tokenizers import AddedToken, Regex, Tokenizer as Raw, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXT = ["the answer is yes", "the answer is no", "answer: yes", "un believable", "unbelievable unanswered", "review: it is great", "label: positive",
        "label: negative", "\n\n### Response:\n", "café", "1234 5678", "  two  spaces  "]
PAIRS = [
    ("The answer is", " yes"),
    ("answer: ", "yes"),  # " yes" lies across the border
    ("un", "believable"),
    ("it is un", "believable"),
    ("Is the answer yes or no? The answer is yes", "yes"),  # P52
    ("review: it is great\nlabel:", " positive"),
    ("", "all of it is trained"),
    ("nothing is trained but the end", ""),
    ("spaces  ", "  spaces"),
    ("cafe", "\u0301 is composed"),
    ("\U0001f468\u200d", "\U0001f469\u200d\U0001f467 zero width"),
    ("line\n", "\nline\r\n\ttab"),
    ("123", "45678"),
    ("a" * 40, "a" * 41),
    ("\u00a0\u3000", "\u00a0"),
    (" ", " "),
    ("it'", "s"),
    ("\u4e2d\u6587", "\u65e5\u672c\u8a9e"),
]
# Control tokens that a record spells stay text.
SPELLED = [("what is <sep>?", "<sep> parts"), ("</s>", "</s></s>"), ("<s>one", "two<s>"), ("<se", "p><sep>")]
TEMPLATES = [("<sep>{a}<sep>\n", "{b}"), ("{a} <pad> ", "<pad>{b}<sep>"), ("Review: {a}\nLabel:", " {b}"), ("{{{a}}}", "{{}}{b}"), ("<s>{a}", "{b}"), (None, "{a}<sep>{b}")]
TEXTS = ["one <sep> two", "<sep>", "<s>begins so", "the answer is yes</s>", "no <pad>  yes"]


def bare(raw):
    """Offsets as they are: the post_processor of ByteLevel may take white space from them."""
    raw.no_truncation()
    raw.no_padding()
    front = raw.encode("").ids
    copy = Raw.from_str(raw.to_str())
    copy.post_processor = processors.ByteLevel(trim_offsets=False)
    return copy, front


class Reference:
    def __init__(self, folder, eos=None):
        self.folder = folder
        config = json.load(open(os.path.join(folder, "tokenizer_config.json"))) if os.path.exists(os.path.join(folder, "tokenizer_config.json")) else {}
        name = config.get("eos_token")
        name = name["content"] if isinstance(name, dict) else name
        hf = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), clean_up_tokenization_spaces=False)
        self.raw, self.front = bare(hf.backend_tokenizer)
        self.hf = hf
        self.eos = self.raw.token_to_id(name) if name else max(self.raw.get_vocab().values())
        self.bos = self.raw.id_to_token(self.front[0]) if self.front else None

    def encode(self, text, specials):
        self.raw.encode_special_tokens = not specials
        e = self.raw.encode(text, add_special_tokens=False)
        whole = self.hf(text, split_special_tokens=not specials).input_ids
        assert whole[len(self.front):] == e.ids or not text, (self.folder, text)
        return e

    def row(self, spans, specials, front):
        """spans: (text, trained), one behind the other."""
        text = "".join(t for t, _ in spans)
        e = self.encode(text, specials)
        # What the normalizer joined to the character before it (NFC) has no offset of its own, but is in that token.
        starts = [a for a, _ in e.offsets][1:] + [len(text)]
        offsets = [(a, max(b, s)) for (a, b), s in zip(e.offsets, starts)]
        trained, begin = [0] * len(e.ids), 0
        for t, on in spans:
            for i, (a, b) in enumerate(offsets):
                if on and b > begin and a < begin + len(t) and b > a:
                    trained[i] = 1
            begin += len(t)
        lead = [] if not front or (specials and self.bos and text.startswith(self.bos)) else self.front
        ids = lead + e.ids + [self.eos]
        marks = [0] * len(lead) + trained + [1]
        if marks:
            marks[0] = 0
        return {"ids": ids, "trained": "".join(map(str, marks))}


def fill(template, a, b):
    values = {"{{": "{", "}}": "}", "{a}": a, "{b}": b}
    return re.sub(r"\{\{|\}\}|\{[ab]\}", lambda m: values[m.group()], template)


def cases(r, pairs, small):
    out = []
    for p, a in pairs:
        out.append({"record": {"prompt": p, "completion": a}, **r.row([(p, 0), (a, 1)], False, True)})
    if not small:
        return out
    for p, a in SPELLED:
        out.append({"record": {"prompt": p, "completion": a}, **r.row([(p, 0), (a, 1)], False, True)})
    for p, q in TEMPLATES:
        for a, b in (("it is great", "yes"), ("x", "un")):
            spans = ([(fill(p, a, b), 0)] if p else []) + [(fill(q, a, b), 1)]
            out.append({"record": {"a": a, "b": b}, "prompt": p, "response": q, **r.row(spans, True, True)})
    for t in TEXTS:
        out.append({"record": {"text": t}, **r.row([(t, 1)], True, False)})
    return out


def train(raw, vocab, specials):
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if "<0x00>" not in specials else [])
    raw.train_from_iterator(TEXT, trainer)


def save(raw, folder, bos):
    os.makedirs(folder, exist_ok=True)
    j = json.loads(raw.to_str())
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(j, f, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"eos_token": "</s>", **({"bos_token": "<s>"} if bos else {})}, f)


def byte_level(folder):
    raw = Raw(models.BPE())
    raw.normalizer = normalizers.NFC()
    raw.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raw.decoder = decoders.ByteLevel()
    raw.post_processor = processors.ByteLevel(trim_offsets=False)
    train(raw, 330, ["</s>"])
    # One that is searched for behind the normalizer, one that takes the white space around it.
    raw.add_special_tokens([AddedToken("<s>"), AddedToken("<sep>", normalized=True), AddedToken("<pad>", lstrip=True, rstrip=True, normalized=False)])
    save(raw, folder, False)


def pieces(folder, metaspace):
    raw = Raw(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if metaspace:
        raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        raw.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    raw.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    train(raw, 380, ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])
    j = json.loads(raw.to_str())
    j["added_tokens"] = [t for t in j["added_tokens"] if not t["content"].startswith("<0x")]
    raw = Raw.from_str(json.dumps(j))
    raw.add_special_tokens([AddedToken("<sep>", normalized=False), AddedToken("<pad>", normalized=False)])
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    save(raw, folder, True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", default=os.path.join(HERE, "prompt_rows"))
    p.add_argument("--tokenizer", action="append", default=[])
    p.add_argument("--records", action="append", default=[])
    p.add_argument("--most", type=int, default=200)
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    pairs = list(PAIRS)
    for path in a.records:
        for i, line in enumerate(open(path, encoding="utf-8")):
            if i < a.most:
                pairs.append(tuple(list(json.loads(line).values())[:2]))
    sets = []
    if a.tokenizer:
        for folder in a.tokenizer:
            sets.append({"tokenizer": os.path.abspath(folder), "rows": Reference(folder)})
    else:
        for name, make in (("bytes-nfc", byte_level), ("prepend", lambda f: pieces(f, False)), ("first", lambda f: pieces(f, True))):
            make(os.path.join(a.out, name))
            sets.append({"tokenizer": name, "rows": Reference(os.path.join(a.out, name))})
    for s in sets:
        r = s["rows"]
        s["eos"], s["rows"] = r.eos, cases(r, pairs, not a.tokenizer)
    with open(os.path.join(a.out, "rows.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(
            json.dumps({k: v for k, v in s.items() if k != "rows"})[:-1] + ', "rows": [\n' +
            ",\n".join(json.dumps(row, separators=(",", ":")) for row in s["rows"]) + "]}" for s in sets) + "]\n")


main()
