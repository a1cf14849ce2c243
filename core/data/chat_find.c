/* Recognises a chat template: its lines (chat_lines.c), one after the other, must be those of a template that is known. So a template that
 * does anything else, however small, is refused instead of being rendered wrongly. Pure functions; texts go to the caller's arena. */
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/data/chat_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEMPLATE_LIMIT = 1 << 20, CONFIG_LIMIT = 64 << 20 };

enum capture { NOTHING, SYSTEM_TEXT, BLOCK_TEXT, BLOCK_REST, DATE_TEXT, CAPTURES };

/* A line of a known template, in which * stands for any text without braces. how: '.' it must be there, '?' it may, '|' it may stand
 * instead of the line before. */
struct step {
    char how;
    const char *line;
    unsigned sets;
    enum capture capture; /* what * stood for; of two, the next one as well */
};

/* A turn as it is, and of a tool. */
#define TURN(content) "> <|im_start|>{message.role}\n{" content "}<|im_end|>\n"
#define SYSTEM_TURN "> <|im_start|>system\n{messages[0].content}<|im_end|>\n"
#define PROMPT_IS_NO \
    { \
        '?', "set add_generation_prompt=false" \
    }
#define TOOL_TURNS \
    {'.', "elif message.role=='tool'"}, {'.', "if loop.first or(messages[loop.index0-1].role!='tool')"}, \
        {'|', "if (loop.index0==0)or(messages[loop.index0-1].role!='tool')"}, {'.', "> <|im_start|>user"}, {'.', "endif"}, \
        {'.', "> \n<tool_response>\n{message.content}\n</tool_response>"}, {'|', "> \n<tool_response>\n{content}\n</tool_response>"}, \
        {'.', "if loop.last or(messages[loop.index0+1].role!='tool')"}, {'.', "> <|im_end|>\n"}, {'.', "endif"}, {'.', "endif"}, \
    { \
        '.', "endfor", ZF_CHAT_TOOL | ZF_CHAT_STRICT \
    }

static const struct step chatml[] = {
    PROMPT_IS_NO,
    {'?', "> {bos_token}", ZF_CHAT_BOS},
    {'.', "for message in messages"},
    {'.', TURN("message.content")},
    {'|', TURN("message.content|trim"), ZF_CHAT_TRIM},
    {'.', "endfor"},
    {0},
};

/* Qwen1.5, SmolLM2 */
static const struct step chatml_default[] = {
    PROMPT_IS_NO,
    {'?', "> {bos_token}", ZF_CHAT_BOS},
    {'.', "for message in messages"},
    {'.', "if loop.first and messages[0].role!='system'"},
    {'.', "> <|im_start|>system\n*<|im_end|>\n", ZF_CHAT_DEFAULT, SYSTEM_TEXT},
    {'.', "endif"},
    {'.', TURN("message.content")},
    {'|', TURN("message.content|trim"), ZF_CHAT_TRIM},
    {'.', "endfor"},
    {0},
};

/* Qwen2.5; what an assistant writes in the second branch has tool calls */
static const struct step qwen25[] = {
    {'.', "if messages[0].role=='system'"},
    {'.', SYSTEM_TURN},
    {'.', "else"},
    {'.', "> <|im_start|>system\n*<|im_end|>\n", ZF_CHAT_DEFAULT, SYSTEM_TEXT},
    {'.', "endif"},
    {'.', "for message in messages"},
    {'.', "if (message.role=='user')or(message.role=='system' and not loop.first)or(message.role=='assistant' and not message.tool_calls)"},
    {'.', TURN("message.content")},
    {'.', "elif message.role=='assistant'"},
    {'.', "> <|im_start|>{message.role}"},
    {'.', "if message.content"},
    {'.', "> \n{message.content}"},
    {'.', "endif"},
    {'.', "> <|im_end|>\n"},
    TOOL_TURNS,
    {0},
};

/* Qwen3 without thinking */
static const struct step qwen3_instruct[] = {
    {'.', "if messages[0].role=='system'"},
    {'.', SYSTEM_TURN},
    {'.', "endif"},
    {'.', "for message in messages"},
    {'.', "set content=message.content"},
    {'.', "if (message.role=='user')or(message.role=='system' and not loop.first)"},
    {'.', TURN("content")},
    {'.', "elif message.role=='assistant'"},
    {'.', TURN("content")},
    TOOL_TURNS,
    {0},
};

#define QUESTION(is_string) \
    "if ns.multi_step_tool and message.role=='user' and " is_string \
    "not(message.content.startswith('<tool_response>')and message.content.endswith('</tool_response>'))"
#define THINKING_BEGIN \
    {'.', "if messages[0].role=='system'"}, {'.', SYSTEM_TURN}, {'.', "endif"}, \
        {'.', "set ns=namespace(multi_step_tool=true,last_query_index=messages|length-1)"}, {'.', "for message in messages[::-1]"}, \
        {'.', "set index=(messages|length-1)-loop.index0"}, {'.', QUESTION("")}, {'|', QUESTION("message.content is string and ")}, \
        {'.', "set ns.multi_step_tool=false"}, {'.', "set ns.last_query_index=index"}, {'.', "endif"}, {'.', "endfor"}, \
    { \
        '.', "for message in messages" \
    }
#define THINKING_END \
    {'.', "endif"}, {'.', "if loop.index0>ns.last_query_index"}, {'.', "if loop.last or(not loop.last and reasoning_content)"}, \
        {'.', "> <|im_start|>{message.role}\n<think>\n{reasoning_content.strip('\n')}\n</think>\n\n{content.lstrip('\n')}", \
         ZF_CHAT_THINK}, \
        {'.', "else"}, {'.', "> <|im_start|>{message.role}\n{content}"}, {'.', "endif"}, {'.', "else"}, \
        {'.', "> <|im_start|>{message.role}\n{content}"}, {'.', "endif"}, {'.', "> <|im_end|>\n"}, TOOL_TURNS

/* Qwen3 as it came out, and as it is now */
static const struct step qwen3_first[] = {
    THINKING_BEGIN,
    {'.', "if (message.role=='user')or(message.role=='system' and not loop.first)"},
    {'.', TURN("message.content")},
    {'.', "elif message.role=='assistant'"},
    {'.', "set content=message.content"},
    {'.', "set reasoning_content=''"},
    {'.', "if '</think>' in message.content"},
    {'.', "set content=message.content.split('</think>')[-1].lstrip('\n')"},
    {'.', "set reasoning_content=message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n')"},
    THINKING_END,
    {0},
};
static const struct step qwen3_now[] = {
    THINKING_BEGIN,
    {'.', "set content=message.content"},
    {'.', "if (message.role=='user')or(message.role=='system' and not loop.first)"},
    {'.', TURN("content")},
    {'.', "elif message.role=='assistant'"},
    {'.', "set reasoning_content=''"},
    {'.', "if '</think>' in content"},
    {'.', "set reasoning_content=content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n')"},
    {'.', "set content=content.split('</think>')[-1].lstrip('\n')"},
    THINKING_END,
    {0},
};

#define HEADERS "> <|start_header_id|>{message.role}<|end_header_id|>\n\n{message.content"
static const struct step llama3[] = {
    PROMPT_IS_NO,
    {'?', "> {bos_token}", ZF_CHAT_BOS},
    {'.', "for message in messages"},
    {'.', HEADERS "}<|eot_id|>"},
    {'|', HEADERS "|trim}<|eot_id|>", ZF_CHAT_TRIM},
    {'.', "endfor"},
    {0},
};
static const struct step llama3_first[] = {
    PROMPT_IS_NO,
    {'.', "set loop_messages=messages"},
    {'.', "for message in loop_messages"},
    {'.', "set content='<|start_header_id|>'+message.role+'<|end_header_id|>\n\n'+message.content|trim+'<|eot_id|>'"},
    {'.', "if loop.index0==0"},
    {'.', "set content=bos_token+content"},
    {'.', "endif"},
    {'.', "> {content}", ZF_CHAT_BOS | ZF_CHAT_TRIM},
    {'.', "endfor"},
    {0},
};

/* Llama 3.1 and later: a system turn that stands always. Roles of tools are not rendered here. */
static const struct step llama31[] = {
    {'.', "> {bos_token}", ZF_CHAT_BOS | ZF_CHAT_TRIM | ZF_CHAT_STRICT},
    {'.', "set tools_in_user_message=true"},
    {'.', "set date_string='*'", 0, DATE_TEXT},
    {'.', "set tools=none"},
    {'.', "if messages[0].role=='system'"},
    {'.', "set system_message=messages[0].content|trim"},
    {'.', "set messages=messages[1:]"},
    {'.', "else"},
    {'.', "set system_message=''"},
    {'.', "endif"},
    {'.', "> <|start_header_id|>system<|end_header_id|>\n\n*{date_string}*{system_message}<|eot_id|>", ZF_CHAT_BLOCK, BLOCK_TEXT},
    {'.', "for message in messages"},
    {'.', "if not(message.role=='ipython' or message.role=='tool' or 'tool_calls' in message)"},
    {'.', HEADERS "|trim}<|eot_id|>"},
    {'.', "elif message.role=='tool' or message.role=='ipython'"},
    {'.', "> <|start_header_id|>ipython<|end_header_id|>\n\n"},
    {'.', "if message.content is mapping or message.content is iterable"},
    {'.', "> {message.content|tojson}"},
    {'.', "else"},
    {'.', "> {message.content}"},
    {'.', "endif"},
    {'.', "> <|eot_id|>"},
    {'.', "endif"},
    {'.', "endfor"},
    {0},
};

static const struct step llama2[] = {
    {'.', "if messages[0].role=='system'"},
    {'.', "set loop_messages=messages[1:]"},
    {'.', "set system_message=messages[0].content"},
    {'.', "else"},
    {'.', "set loop_messages=messages"},
    {'.', "set system_message=false"},
    {'.', "endif"},
    {'.', "for message in loop_messages"},
    {'.', "if (message.role=='user')!=(loop.index0%2==0)"},
    {'.', "> {raise_exception('*')}"},
    {'.', "endif"},
    {'.', "if loop.index0==0 and system_message!=false"},
    {'.', "set content='<<SYS>>\n'+system_message+'\n<</SYS>>\n\n'+message.content"},
    {'.', "else"},
    {'.', "set content=message.content"},
    {'.', "endif"},
    {'.', "if message.role=='user'"},
    {'.', "> {bos_token}[INST] {content.strip()} [/INST]"},
    {'?', "elif message.role=='system'"}, /* never, after the first message */
    {'?', "> <<SYS>>\n{content.strip()}\n<</SYS>>\n\n"},
    {'.', "elif message.role=='assistant'"},
    {'.', ">  {content.strip()} {eos_token}", ZF_CHAT_BOS | ZF_CHAT_TRIM},
    {'.', "endif"},
    {'.', "endfor"},
    {0},
};

static const struct family {
    const char *marker, *also; /* in the template's text */
    enum zf_chat_kind kind;
    const struct step *templates[8];
} families[] = {
    {"<|im_start|>", NULL, ZF_CHAT_CHATML, {chatml, chatml_default, qwen25, qwen3_instruct, qwen3_first, qwen3_now}},
    {"<|start_header_id|>", NULL, ZF_CHAT_LLAMA3, {llama3, llama3_first, llama31}},
    {"[INST]", "<<SYS>>", ZF_CHAT_LLAMA2, {llama2}},
};

struct matching {
    const struct step *at;
    struct zf_arena *arena;
    size_t lines; /* that fitted */
    unsigned bits;
    const char *captures[CAPTURES];
    const char *tail;
};

/* Does the line fit the pattern? Up to two * are cut out. */
static bool fits(const char *pattern, const char *line, const char *cut[2], size_t sizes[2])
{
    size_t n = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*line++ != *pattern) return false;
            continue;
        }
        /* Behind a * stands a brace, or text up to the end: it takes all but that. */
        size_t rest = pattern[1] == '{' ? 0 : strlen(pattern + 1), length = strcspn(line, "{");
        if (rest && (line[length] || length < rest)) return false;
        cut[n] = line;
        sizes[n++] = length - rest;
        line += length - rest;
    }
    return !*line;
}

static enum zf_status keep(const char **to, struct zf_arena *a, const char *text, size_t size, struct zf_err *e)
{
    *to = zf_arena_strndup(a, text, size);
    return *to ? ZF_OK : zf_fail_memory(e, "a chat template");
}

static enum zf_status take(void *context, const char *line, bool last, struct zf_err *e)
{
    struct matching *m = context;
    const char *cut[2] = {NULL, NULL};
    size_t sizes[2];
    for (const struct step *k = m->at; k->line; k++) {
        if (fits(k->line, line, cut, sizes)) {
            for (size_t i = 0; k->capture != NOTHING && i < 2 && cut[i]; i++)
                ZF_TRY(keep(&m->captures[k->capture + i], m->arena, cut[i], sizes[i], e));
            m->bits |= k->sets;
            m->lines++;
            for (k++; k->how == '|';) k++;
            m->at = k;
            return ZF_OK;
        }
        cut[0] = cut[1] = NULL;
        if (k->how != '?' && k[1].how != '|') break;
    }
    /* Text behind all messages, a generation prompt that is always there among it. */
    if (last && !m->at->line && !m->tail && !strchr(line, '{')) return keep(&m->tail, m->arena, line + 2, strlen(line + 2), e);
    char shown[400];
    zf_text_show(shown, sizeof shown, line, strlen(line));
    return zf_fail(e, ZF_USAGE, NULL, "`%s` is not understood", shown);
}

static enum zf_status match(struct matching *m, const char *text, size_t size, struct zf_err *e)
{
    ZF_TRY(zf_chat_lines(text, size, take, m, e));
    while (m->at->how == '?') m->at++;
    if (!m->at->line) return ZF_OK;
    char shown[400];
    zf_text_show(shown, sizeof shown, m->at->line, strlen(m->at->line));
    return zf_fail(e, ZF_USAGE, NULL, "it ends where `%s` was expected", shown);
}

static enum zf_status fill(struct zf_chat_found *out, const struct family *f, const struct matching *m, bool today, struct zf_err *e)
{
    *out = (struct zf_chat_found){
        .kind = f->kind, .bits = m->bits, .marker = f->marker, .system = m->captures[SYSTEM_TEXT], .tail = m->tail, .today = today};
    if (!(m->bits & ZF_CHAT_BLOCK)) return ZF_OK;
    out->block = zf_arena_printf(m->arena, "%s%s%s", m->captures[BLOCK_TEXT], m->captures[DATE_TEXT], m->captures[BLOCK_REST]);
    return out->block ? ZF_OK : zf_fail_memory(e, "a chat template");
}

static enum zf_status refuse(const char *text, size_t size, const char *path, struct zf_err *e)
{
    char shown[500];
    zf_text_show(shown, sizeof shown, text, size);
    return zf_fail(
        e, ZF_USAGE, path,
        "the chat template here is none of those known: %s; set chat_template = chatml, llama2, llama3, plain or none, or render "
        "the conversations beforehand into a `text` field; the template: %s",
        e->message, shown);
}

enum zf_status zf_chat_recognise(struct zf_chat_found *out, struct zf_arena *a, const char *text, size_t size, const char *path,
                                 struct zf_err *e)
{
    *out = (struct zf_chat_found){0};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *f = &families[i];
        if (!memmem(text, size, f->marker, strlen(f->marker)) || (f->also && !memmem(text, size, f->also, strlen(f->also)))) continue;
        struct zf_err best = {0};
        size_t lines = 0;
        for (size_t k = 0; f->templates[k]; k++) {
            struct matching m = {.at = f->templates[k], .arena = a};
            enum zf_status s = match(&m, text, size, e);
            if (s == ZF_OK) return fill(out, f, &m, memmem(text, size, "strftime_now", 12), e);
            if (s != ZF_USAGE) return s;
            if (!k || m.lines > lines) best = *e; /* the one it resembles most says what is strange */
            if (m.lines > lines) lines = m.lines;
        }
        *e = best;
        return refuse(text, size, path, e);
    }
    zf_fail(e, ZF_USAGE, NULL, "neither <|im_start|>, nor <|start_header_id|>, nor [INST] with <<SYS>> is in it");
    return refuse(text, size, path, e);
}

/* chat_template of a JSON file: a string, or a list of named ones, of which "default" counts. *text = NULL: none. */
static enum zf_status read_config(json_t **root, const char **text, size_t *size, const char *path, struct zf_err *e)
{
    *text = NULL;
    ZF_TRY(zf_json_file(root, path, CONFIG_LIMIT, e));
    const json_t *t = json_object_get(*root, "chat_template"), *one;
    size_t i;
    if (json_is_array(t)) {
        const json_t *list = t;
        t = NULL;
        json_array_foreach(list, i, one)
        {
            const char *name = json_string_value(json_object_get(one, "name"));
            if (name && !strcmp(name, "default")) t = json_object_get(one, "template");
        }
        if (!t && json_array_size(list))
            return zf_fail(
                e, ZF_USAGE, path,
                "chat_template is a list of templates without one called \"default\"; set chat_template = chatml, llama2, llama3, "
                "plain or none");
    }
    if (!t || json_is_null(t)) return ZF_OK;
    if (!json_is_string(t)) return zf_fail(e, ZF_FORMAT, path, "chat_template is no text; expected a string or a list of {name, template}");
    *text = json_string_value(t);
    *size = json_string_length(t);
    return ZF_OK;
}

static enum zf_status find_in(struct zf_chat_found *out, struct zf_arena *a, const char *name, const char *path, struct zf_err *e)
{
    json_t *root = NULL;
    char *file = NULL;
    const char *text = NULL;
    size_t size = 0, n = strlen(name);
    bool is_json = n > 5 && !strcmp(name + n - 5, ".json");
    enum zf_status s = is_json ? read_config(&root, &text, &size, path, e) : zf_file_read(&file, &size, path, TEMPLATE_LIMIT, e);
    if (s == ZF_OK && file) text = file;
    if (s == ZF_OK && text && size > TEMPLATE_LIMIT) {
        s = zf_fail(e, ZF_FORMAT, path, "the chat template has %zu bytes; expected %d at most", size, TEMPLATE_LIMIT);
    } else if (s == ZF_OK && text) {
        s = zf_chat_recognise(out, a, text, size, path, e);
        out->file = name;
    }
    json_decref(root);
    free(file);
    return s == ZF_IO ? zf_unreadable(e) : s;
}

enum zf_status zf_chat_find(struct zf_chat_found *out, struct zf_arena *a, const char *folder, struct zf_err *e)
{
    /* In the order in which transformers looks. */
    static const char *const files[] = {"chat_template.jinja", "chat_template.json", "tokenizer_config.json"};
    *out = (struct zf_chat_found){0};
    for (size_t i = 0; folder && i < sizeof files / sizeof *files && out->kind == ZF_CHAT_AUTO; i++) {
        char *path = zf_path_join(folder, files[i]);
        if (!path) return zf_fail_memory(e, "a path");
        enum zf_status s = zf_file_exists(path) ? find_in(out, a, files[i], path, e) : ZF_OK;
        free(path);
        ZF_TRY(s);
    }
    return ZF_OK;
}
