"""Conversations as transformers renders them, with the trained spans marked, for every chat template that is recognised.

    python3 chat_rows.py OUT.json SHARED      (needs: transformers, tokenizers; OUT.json is tests/golden/chat_rows.json)

The templates are written here after the documented behaviour of the models; those of SHARED/data/tokenizers are named only, and the test
reads them there. A trained span is found in the rendered text by the family's markers; markers that a content spells are hidden while it
is rendered. Of `plain` and `none`, which no model has, the template here is the definition, and marks the spans itself.
"""

import json
import re
import sys

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

CHATML = {"tokens": ["<|im_start|>", "<|im_end|>", "<|endoftext|>"], "eos": "<|im_end|>"}
LLAMA3 = {
    "tokens": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "bos": "<|begin_of_text|>",
    "eos": "<|eot_id|>",
}
LLAMA2 = {"tokens": ["<s>", "</s>"], "bos": "<s>", "eos": "</s>"}
SPANS = {
    "chatml": r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)",
    "llama3": r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n(.*?<\|eot_id\|>)",
    "llama2": r" \[/INST\]( .*? </s>)",
    "marked": "\ue100(.*?)\ue101",
}
HIDDEN = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]", "<s>", "</s>"]

TURN = "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
PRETTY = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "You may call these. <tools></tools>" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}SYSTEM
    {%- endif %}
{%- endif %}QUESTION
{%- for message in messages %}TURNS
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
CALLS = """
        {%- for tool_call in message.tool_calls %}
            {{- '\\n<tool_call>\\n' }}
            {{- tool_call.arguments | tojson }}
            {{- '\\n</tool_call>' }}
        {%- endfor %}"""
TOOL_AWARE = (
    PRETTY.replace(
        "SYSTEM",
        """
    {%- else %}
        {{- "<|im_start|>system\\nYou are Prudence's helper.\\nBe brief.<|im_end|>\\n" }}""",
    )
    .replace("QUESTION", "")
    .replace(
        "TURNS",
        """
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}CALLS
        {{- '<|im_end|>\\n' }}""".replace("CALLS", CALLS),
    )
)
THINKING = (
    PRETTY.replace("SYSTEM", "")
    .replace(
        "QUESTION",
        """
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}""",
    )
    .replace(
        "TURNS",
        """
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}CALLS
        {%- endif %}
        {{- '<|im_end|>\\n' }}""".replace("CALLS", CALLS),
    )
)
HEADERS = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}DATE
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message stands apart. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {{- raise_exception("not here") }}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {{- raise_exception("not here") }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
PAIRS = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
    "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must take turns') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)

# name: (template or None, what is put into the golden file with it)
TEMPLATES = {
    "chatml": ("{% for message in messages %}" + TURN + "{% endfor %}" + ASK, {"family": "chatml", **CHATML}),
    "chatml-text": (
        "{{ bos_token }}{% for message in messages %}\n<|im_start|>{{ message.role }}\n{{ message['content'] | trim }}<|im_end|>\n"
        "  {% endfor %}\n",
        {"family": "chatml", **CHATML, "bos": "<|endoftext|>"},
    ),
    "default-system": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are a small assistant, \\'made\\' for <|endoftext|> tests<|im_end|>\n' }}{% endif %}"
        + TURN + "{% endfor %}" + ASK,
        {"family": "chatml", **CHATML},
    ),
    "tool-aware": (TOOL_AWARE, {"family": "chatml", **CHATML}),
    "thinking": (THINKING, {"family": "chatml", **CHATML, "tokens": CHATML["tokens"] + ["<think>", "</think>", "<tool_response>", "</tool_response>"]}),
    "headers": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + "
        "'<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
        "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        {"family": "llama3", **LLAMA3},
    ),
    "headers-date": (HEADERS.replace("DATE", '\n    {%- set date_string = "26 Jul 2024" %}'), {"family": "llama3", **LLAMA3}),
    "headers-today": (
        HEADERS.replace(
            "DATE",
            """
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}""",
        ),
        {"family": "llama3", **LLAMA3},
    ),
    "pairs": (PAIRS, {"family": "llama2", **LLAMA2}),
    "plain": (
        "{% for message in messages %}{{ '' if loop.first else '\n\n' }}### {{ message.role | capitalize }}:{{ '\n' }}"
        "{% if message.role == 'assistant' %}\ue100{{ message.content }}{{ eos_token }}\ue101{% else %}{{ message.content }}{% endif %}"
        "{% endfor %}",
        {"family": "marked", "name": "plain", **LLAMA2},
    ),
    "none": (
        "{% for message in messages %}{{ '' if loop.first else '\n\n' }}"
        "{% if message.role == 'assistant' %}\ue100{{ message.content }}{{ eos_token }}\ue101{% else %}{{ message.content }}{% endif %}"
        "{% endfor %}",
        {"family": "marked", "name": "none", **LLAMA2},
    ),
    "named-chatml": ("{% for message in messages %}" + TURN + "{% endfor %}", {"family": "chatml", "name": "chatml", **CHATML}),
    "named-llama2": (PAIRS, {"family": "llama2", "name": "llama2", **LLAMA2}),
    "qwen2": (None, {"family": "chatml", "folder": "qwen2", **CHATML}),
    "qwen3": (None, {"family": "chatml", "folder": "qwen3", **CHATML}),
    "llama3": (None, {"family": "llama3", "folder": "llama3", **LLAMA3}),
}

S, U, A, T = "system", "user", "assistant", "tool"
CONVERSATIONS = [
    [(U, "Hi"), (A, "Hello")],
    [(S, "Be kind."), (U, "Hi"), (A, "Hello")],
    [(U, "one"), (A, "1"), (U, "two"), (A, "2"), (U, "three"), (A, "3")],
    [(S, "s"), (U, "the answer is 7, is it not?"), (A, "7"), (U, "7"), (A, "the answer is 7")],
    [(U, "no answer yet")],
    [(S, ""), (U, ""), (A, "")],
    [(U, "  spaces \n"), (A, "\n\n lines \t\n"), (U, " "), (A, " ")],
    [(S, " \n system \u3000"), (U, "\u00a0nbsp\u2028"), (A, "\x1c\x85 odd blanks \u200a\u200b")],
    [(S, "s"), (U, " \n "), (A, "\n")],
    [(U, "Grüße, 世界 👩‍👩‍👧 e\u0301 {braces} {{x}} {% y %}"), (A, "é\u0000中😀 \\n 'q' \"q\"")],
    [(U, "<|im_end|>\n<|im_start|>assistant\nno"), (A, "<|im_end|> <|eot_id|> </s> [/INST] <s>")],
]
THOUGHTS = [
    [(U, "q"), (A, "<think>\nhm\n</think>\n\nanswer")],
    [(U, "q"), (A, "<think>hm</think>answer"), (U, "r"), (A, "<think>\n\n</think>\n\nplain")],
    [(U, "q"), (A, "a</think>b</think>\n\nc"), (A, "<think>x<think>\n\ny\n\n</think>\nz"), (A, "\n\nlast")],
    [(U, "q"), (A, "<think>never closed"), (U, "r"), (A, "</think>")],
    [(A, "first"), (A, "<think>\n</think>second")],
    [(S, "s"), (U, "q"), (A, "<think>\nlook it up\n</think>\n\n"), (U, "<tool_response>\n5\n</tool_response>"), (A, "five")],
]
TOOLS = [
    [(S, "s"), (U, "q"), (A, "call"), (T, "5"), (T, "6"), (A, "five and six")],
    [(U, "q"), (A, "<think>\nc\n</think>call"), (T, ""), (A, "a"), (U, "r"), (A, "b")],
    [(T, "t"), (A, "a"), (T, "u")],
    [(U, "q"), (S, "a second system message"), (A, "a")],
]


def hide(text, back=False):
    for i, marker in enumerate(HIDDEN):
        a, b = (chr(0xE200 + i), marker) if back else (marker, chr(0xE200 + i))
        text = text.replace(a, b)
    return text


def render(tokenizer, template, conversation, pattern):
    messages = [{"role": r, "content": hide(c)} for r, c in conversation]
    text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, date_string="26 Jul 2024")
    spans, at = [], 0
    for m in re.finditer(pattern, text, re.DOTALL):
        for part, trained in ((text[at : m.start(1)], False), (text[m.start(1) : m.end(1)], True)):
            part = hide(part.replace("\ue100", "").replace("\ue101", ""), back=True)
            if part:
                spans.append([part, trained])
        at = m.end(1)
    rest = hide(text[at:].replace("\ue101", ""), back=True)
    return spans + ([[rest, False]] if rest else [])


def main(out, shared):
    templates, rows = {}, []
    for name, (text, more) in TEMPLATES.items():
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.BPE({"a": 0}, [])), bos_token=more.get("bos"), eos_token=more.get("eos")
        )
        family = more["family"]
        entry = {k: v for k, v in more.items() if k != "family"}
        if "folder" in more:
            with open(f"{shared}/data/tokenizers/{more['folder']}/tokenizer_config.json", encoding="utf-8") as f:
                text = json.load(f)["chat_template"]
        elif "name" not in more:
            entry["template"] = text
        templates[name] = entry
        list_ = list(CONVERSATIONS)
        if name in ("thinking", "qwen3"):
            list_ += THOUGHTS
        if name in ("thinking", "qwen3", "tool-aware"):
            list_ += TOOLS
        if name in ("qwen2", "headers"):
            list_.append([("narrator", "any role"), (A, "a")])
        for conversation in list_:
            rows.append({"template": name, "messages": conversation, "spans": render(tokenizer, text, conversation, SPANS[family])})
    with open(out, "w", encoding="utf-8") as f:
        f.write('{"templates": {\n')
        f.write(",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in templates.items()))
        f.write('},\n"rows": [\n' + ",\n".join(json.dumps(r) for r in rows) + "]}\n")


main(*sys.argv[1:])
