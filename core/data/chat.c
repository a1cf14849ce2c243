/* Renders conversations as parts. What the families write is a table; how a template of a family differs is bits and texts that
 * chat_find.c has read from it. All that does not depend on a record is made once, at opening; rendering shares it between threads. */
#include "core/data/chat_impl.h"

#include "core/base/hash.h"
#include "core/tokenizer/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum text {
    TURN,    /* in front of a role */
    HEADER,  /* between role and content */
    END,     /* behind a content; trained behind an answer */
    AFTER,   /* behind that, never trained */
    BETWEEN, /* between turns */
    DEFAULT, /* the turn that is added where no system message stands first */
    BLOCK,   /* in front of the system message's content, in a turn that stands always */
    TAIL,    /* behind all turns */
    THINK,
    THOUGHT,
    TOOL, /* a turn of tool messages; what stands around each of them */
    TOOL_BEGIN,
    TOOL_END,
    INST, /* llama2 */
    INST_END,
    SYS,
    SYS_END,
    SPACE,
    TEXTS
};

enum roles { AS_IT_IS, TITLED, HIDDEN };

static const struct family {
    const char *name;
    const char *texts[TEXTS];
    const char *markers[3]; /* that ought to be tokens */
    enum roles roles;
    bool bos, trim; /* when chosen by name */
    bool eos;       /* behind an answer */
} families[] = {
    [ZF_CHAT_CHATML] = {.name = "chatml",
                        .texts = {[TURN] = "<|im_start|>", [HEADER] = "\n", [END] = "<|im_end|>", [AFTER] = "\n"},
                        .markers = {"<|im_start|>", "<|im_end|>"}},
    [ZF_CHAT_LLAMA2] =
        {.name = "llama2",
         .texts = {[INST] = "[INST] ", [INST_END] = " [/INST]", [SYS] = "<<SYS>>\n", [SYS_END] = "\n<</SYS>>", [SPACE] = " "},
         .bos = true,
         .trim = true,
         .eos = true},
    [ZF_CHAT_LLAMA3] = {.name = "llama3",
                        .texts = {[TURN] = "<|start_header_id|>", [HEADER] = "<|end_header_id|>\n\n", [END] = "<|eot_id|>"},
                        .markers = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
                        .bos = true,
                        .trim = true},
    [ZF_CHAT_PLAIN] = {.name = "plain", .texts = {[TURN] = "### ", [HEADER] = ":\n", [BETWEEN] = "\n\n"}, .roles = TITLED, .eos = true},
    [ZF_CHAT_NONE] = {.name = "none", .texts = {[BETWEEN] = "\n\n"}, .roles = HIDDEN, .eos = true},
};

static const char *const titles[][2] = {{"system", "System"}, {"user", "User"}, {"assistant", "Assistant"}, {"tool", "Tool"}};

struct piece {
    const char *text;
    size_t size;
};

struct zf_chat {
    struct zf_arena arena;
    enum zf_chat_kind kind;
    const struct family *family;
    unsigned bits;
    int32_t bos, eos; /* -1: none */
    struct piece texts[TEXTS];
    const char *describe;
    unsigned char hash[16];
};

static enum zf_status make_texts(struct zf_chat *c, const struct zf_chat_found *found, struct zf_err *e)
{
    const char *texts[TEXTS];
    memcpy(texts, c->family->texts, sizeof texts);
    if (c->bits & ZF_CHAT_DEFAULT) {
        texts[DEFAULT] = zf_arena_printf(&c->arena, "<|im_start|>system\n%s<|im_end|>\n", found->system);
        if (!texts[DEFAULT]) return zf_fail_memory(e, "a chat template");
    }
    if (c->bits & ZF_CHAT_BLOCK) {
        texts[BLOCK] = zf_arena_printf(&c->arena, "<|start_header_id|>system<|end_header_id|>\n\n%s", found->block);
        if (!texts[BLOCK]) return zf_fail_memory(e, "a chat template");
    }
    if (found->tail) texts[TAIL] = found->tail;
    if (c->bits & ZF_CHAT_THINK) {
        texts[THINK] = "<think>\n";
        texts[THOUGHT] = "\n</think>\n\n";
    }
    if (c->bits & ZF_CHAT_TOOL) {
        texts[TOOL] = "<|im_start|>user";
        texts[TOOL_BEGIN] = "\n<tool_response>\n";
        texts[TOOL_END] = "\n</tool_response>";
    }
    for (int i = 0; i < TEXTS; i++) {
        const char *kept = texts[i] ? zf_arena_strdup(&c->arena, texts[i]) : "";
        if (!kept) return zf_fail_memory(e, "a chat template");
        c->texts[i] = (struct piece){kept, strlen(kept)};
    }
    return ZF_OK;
}

static enum zf_status hash(struct zf_chat *c, struct zf_err *e)
{
    const int64_t head[] = {(int64_t)c->kind, (int64_t)c->bits, c->bos, c->eos};
    struct zf_hash h;
    ZF_TRY(zf_hash_begin(&h, e));
    zf_hash_add(&h, head, sizeof head);
    for (int i = 0; i < TEXTS; i++) zf_hash_add(&h, c->texts[i].text, c->texts[i].size);
    zf_hash_end(&h, c->hash);
    return ZF_OK;
}

static void quote(FILE *f, const char *before, const char *text)
{
    char shown[200];
    if (!text) return;
    zf_text_show(shown, sizeof shown, text, strlen(text));
    fprintf(f, "%s \"%s\"", before, shown);
}

static enum zf_status describe(struct zf_chat *c, const struct zf_chat_found *found, const struct zf_tokenizer *t, struct zf_err *e)
{
    char *line = NULL;
    size_t size;
    FILE *f = open_memstream(&line, &size);
    if (!f) return zf_fail_memory(e, "a description");
    fputs(c->family->name, f);
    if (found->file) fprintf(f, ", recognised in %s by %s", found->file, found->marker);
    quote(f, "; without a system message it adds", found->system);
    quote(f, "; a system turn always stands first, with", found->block);
    if (found->today) fputs(", where the template itself writes today's date", f);
    if ((c->bits & ZF_CHAT_TRIM) && c->kind != ZF_CHAT_LLAMA2) fputs("; white space around contents is removed", f);
    if (c->bits & ZF_CHAT_THINK)
        fputs("; <think> is kept only behind the last question, and the last answer there always has one (it may be empty)", f);
    if (c->bits & ZF_CHAT_TOOL) fputs("; tool messages become <tool_response> in user turns", f);
    quote(f, "; it ends with", found->tail);
    const char *list = "; not tokens of this tokenizer, so ordinary text: ";
    for (size_t i = 0; i < 3 && c->family->markers[i]; i++) {
        if (zf_tokenizer_added(t, c->family->markers[i], strlen(c->family->markers[i])) >= 0) continue;
        fprintf(f, "%s%s", list, c->family->markers[i]);
        list = ", ";
    }
    if ((c->bits & ZF_CHAT_BOS) && c->bos < 0) fputs("; the tokenizer has no BOS, so nothing is put there", f);
    if (c->family->eos && c->eos < 0) fputs("; the tokenizer has no EOS, so nothing ends an answer", f);
    bool bad = fclose(f) != 0;
    c->describe = bad ? NULL : zf_arena_strndup(&c->arena, line, size);
    free(line);
    return c->describe ? ZF_OK : zf_fail_memory(e, "a description");
}

static enum zf_status make(struct zf_chat *c, const struct zf_chat_found *found, const struct zf_tokenizer *t, struct zf_err *e)
{
    static const char begin[] = "<|begin_of_text|>";
    c->kind = found->kind;
    c->family = &families[found->kind];
    c->bits = found->bits;
    /* A recognised template says itself what it does; one that is chosen by name does what its family does. */
    if (!found->marker) c->bits |= (c->family->bos ? ZF_CHAT_BOS : 0u) | (c->family->trim ? ZF_CHAT_TRIM : 0u);
    c->bos = zf_tokenizer_bos(t);
    c->eos = zf_tokenizer_eos(t);
    if (c->bos < 0 && c->kind == ZF_CHAT_LLAMA3) c->bos = zf_tokenizer_added(t, begin, sizeof begin - 1);
    ZF_TRY(make_texts(c, found, e));
    ZF_TRY(describe(c, found, t, e));
    return hash(c, e);
}

enum zf_status zf_chat_new(struct zf_chat **out, const struct zf_chat_found *found, const struct zf_tokenizer *t, struct zf_err *e)
{
    *out = NULL;
    struct zf_chat *c = calloc(1, sizeof *c);
    if (!c) return zf_fail_memory(e, "a chat template");
    enum zf_status s = make(c, found, t, e);
    if (s == ZF_OK) {
        *out = c;
    } else {
        zf_chat_close(c);
    }
    return s;
}

enum zf_status zf_chat_open(struct zf_chat **out, enum zf_chat_kind kind, const char *folder, const struct zf_tokenizer *t,
                            struct zf_err *e)
{
    struct zf_chat_found found = {.kind = kind};
    struct zf_arena texts = {0};
    *out = NULL;
    enum zf_status s = kind == ZF_CHAT_AUTO ? zf_chat_find(&found, &texts, folder, e) : ZF_OK;
    if (s == ZF_OK && found.kind != ZF_CHAT_AUTO) s = zf_chat_new(out, &found, t, e);
    zf_arena_free(&texts);
    return s;
}

void zf_chat_close(struct zf_chat *c)
{
    if (!c) return;
    zf_arena_free(&c->arena);
    free(c);
}

const char *zf_chat_describe(const struct zf_chat *c)
{
    return c->describe;
}

const unsigned char *zf_chat_hash(const struct zf_chat *c)
{
    return c->hash;
}

/* ---- rendering ---- */

struct rendering {
    const struct zf_chat *c;
    const struct zf_message *messages;
    size_t count;
    bool all; /* train all */
    struct zf_parts *out;
    struct zf_err *e;
};

/* White space as Python's str.strip takes it. */
static bool is_blank(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static struct piece trim_end(struct piece p)
{
    while (p.size) {
        size_t n = 1;
        while (n < 4 && n < p.size && ((unsigned char)p.text[p.size - n] & 0xC0) == 0x80) n++;
        const unsigned char *s = (const unsigned char *)p.text + p.size - n;
        if (zf_utf8_length(s, n, NULL) != n || !is_blank(zf_utf8_decode(s, n))) break;
        p.size -= n;
    }
    return p;
}

static struct piece trim(struct piece p)
{
    while (p.size) {
        const unsigned char *s = (const unsigned char *)p.text;
        size_t n = zf_utf8_length(s, p.size, NULL);
        if (!n || !is_blank(zf_utf8_decode(s, n))) break;
        p = (struct piece){p.text + n, p.size - n};
    }
    return trim_end(p);
}

static struct piece strip_lines(struct piece p, bool begin, bool end)
{
    while (begin && p.size && *p.text == '\n') p = (struct piece){p.text + 1, p.size - 1};
    while (end && p.size && p.text[p.size - 1] == '\n') p.size--;
    return p;
}

/* A text of the template's own: added tokens spelled in it are tokens, as they are where a rendered conversation is tokenised. */
static enum zf_status put(struct rendering *r, enum text which, bool trained)
{
    const struct piece *p = &r->c->texts[which];
    const struct zf_part part = {.text = p->text, .size = p->size, .id = -1, .trained = trained || r->all, .specials = true};
    return zf_parts_add(r->out, &part, r->e);
}

static enum zf_status put_text(struct rendering *r, struct piece p, bool trained, bool content)
{
    struct zf_part part = {.text = p.text, .size = p.size, .id = -1, .trained = trained || r->all, .content = content};
    return zf_parts_add(r->out, &part, r->e);
}

static enum zf_status put_eos(struct rendering *r, bool trained)
{
    const struct zf_part part = {.id = r->c->eos, .trained = trained || r->all};
    return part.id < 0 ? ZF_OK : zf_parts_add(r->out, &part, r->e);
}

/* Never trained: a model is always given it. */
static enum zf_status put_bos(struct rendering *r)
{
    const struct zf_part part = {.id = r->c->bos};
    return part.id < 0 ? ZF_OK : zf_parts_add(r->out, &part, r->e);
}

static bool is_role(const struct zf_message *m, const char *role)
{
    return !strcmp(m->role, role);
}

/* The role as it is written; a role of the record's own is content. */
static enum zf_status put_role(struct rendering *r, const struct zf_message *m)
{
    if (r->c->family->roles == HIDDEN) return ZF_OK;
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        const char *shown = titles[i][r->c->family->roles == TITLED];
        if (is_role(m, titles[i][0])) return put_text(r, (struct piece){shown, strlen(shown)}, false, false);
    }
    return put_text(r, (struct piece){m->role, strlen(m->role)}, false, true);
}

/* Which roles a template takes, if this is none of them; NULL: it is. */
static const char *roles_instead_of(const struct zf_chat *c, const char *role)
{
    bool titled = c->family->roles == TITLED, tool = titled || (c->bits & ZF_CHAT_TOOL);
    if (c->kind == ZF_CHAT_NONE) return NULL;
    if (!*role) return "none without a name";
    if (!titled && !(c->bits & ZF_CHAT_STRICT)) return NULL;
    if (c->kind == ZF_CHAT_LLAMA3) /* 3.1 writes any role but those of tools */
        return strcmp(role, "tool") && strcmp(role, "ipython") ? NULL : "no tools' roles";
    for (size_t i = 0; i < sizeof titles / sizeof *titles - !tool; i++) /* `tool` is the last one */
        if (!strcmp(titles[i][0], role)) return NULL;
    return tool ? "system, user, assistant and tool" : "system, user and assistant";
}

static enum zf_status refuse_role(const struct rendering *r, size_t index, const char *takes)
{
    char role[64];
    zf_text_show(role, sizeof role, r->messages[index].role, strlen(r->messages[index].role));
    return zf_fail(r->e, ZF_FORMAT, NULL, "message %zu has the role \"%s\", where the chat template %s takes %s", index + 1, role,
                   r->c->family->name, takes);
}

static struct piece content_of(const struct rendering *r, const struct zf_message *m)
{
    struct piece p = {m->content, m->size};
    return (r->c->bits & ZF_CHAT_TRIM) ? trim(p) : p;
}

static const char *find(struct piece p, const char *what)
{
    return p.size ? memmem(p.text, p.size, what, strlen(what)) : NULL;
}

/* Behind the last occurrence, or all of it. */
static struct piece behind(struct piece p, const char *what)
{
    size_t n = strlen(what);
    for (const char *at; (at = find(p, what));) p = (struct piece){at + n, p.size - (size_t)(at + n - p.text)};
    return p;
}

static bool is_tool_answer(const struct zf_message *m)
{
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";
    return m->size >= sizeof begin - 1 && !memcmp(m->content, begin, sizeof begin - 1) && m->size >= sizeof end - 1 &&
           !memcmp(m->content + m->size - (sizeof end - 1), end, sizeof end - 1);
}

/* The message behind which thoughts are kept. */
static size_t last_question(const struct rendering *r)
{
    for (size_t i = r->count; i-- > 0;)
        if (is_role(&r->messages[i], "user") && !is_tool_answer(&r->messages[i])) return i;
    return r->count - 1;
}

/* The content of an assistant's turn, with its thoughts where they stay. */
static enum zf_status put_answer(struct rendering *r, size_t index, size_t question, bool trained)
{
    struct piece content = content_of(r, &r->messages[index]), thought = {"", 0};
    if (!(r->c->bits & ZF_CHAT_THINK)) return put_text(r, content, trained, true);
    const char *end = find(content, "</think>");
    if (end) {
        thought = strip_lines((struct piece){content.text, (size_t)(end - content.text)}, false, true);
        thought = strip_lines(behind(thought, "<think>"), true, true);
        content = strip_lines(behind(content, "</think>"), true, false);
    }
    if (index > question && (index + 1 == r->count || thought.size)) {
        ZF_TRY(put(r, THINK, trained));
        ZF_TRY(put_text(r, thought, trained, true));
        ZF_TRY(put(r, THOUGHT, trained));
        content = strip_lines(content, true, false);
    }
    return put_text(r, content, trained, true);
}

static enum zf_status put_tool(struct rendering *r, size_t i)
{
    if (!i || !is_role(&r->messages[i - 1], "tool")) ZF_TRY(put(r, TOOL, false));
    ZF_TRY(put(r, TOOL_BEGIN, false));
    ZF_TRY(put_text(r, content_of(r, &r->messages[i]), false, true));
    ZF_TRY(put(r, TOOL_END, false));
    if (i + 1 < r->count && is_role(&r->messages[i + 1], "tool")) return ZF_OK;
    ZF_TRY(put(r, END, false));
    return put(r, AFTER, false);
}

static enum zf_status put_turn(struct rendering *r, size_t i, size_t question)
{
    const struct zf_message *m = &r->messages[i];
    bool answer = is_role(m, "assistant"), trained = answer && !m->untrained;
    ZF_TRY(put(r, TURN, false));
    ZF_TRY(put_role(r, m));
    ZF_TRY(put(r, HEADER, false));
    ZF_TRY(answer ? put_answer(r, i, question, trained) : put_text(r, content_of(r, m), false, true));
    ZF_TRY(put(r, END, trained));
    if (answer && r->c->family->eos) ZF_TRY(put_eos(r, trained));
    return put(r, AFTER, false);
}

static enum zf_status render_turns(struct rendering *r)
{
    const struct zf_chat *c = r->c;
    bool system = is_role(&r->messages[0], "system");
    size_t question = (c->bits & ZF_CHAT_THINK) ? last_question(r) : 0, first = 0;
    if (c->bits & ZF_CHAT_BOS) ZF_TRY(put_bos(r));
    if (c->bits & ZF_CHAT_BLOCK) {
        ZF_TRY(put(r, BLOCK, false));
        if (system) ZF_TRY(put_text(r, content_of(r, &r->messages[first++]), false, true));
        ZF_TRY(put(r, END, false));
    } else if (!system) {
        ZF_TRY(put(r, DEFAULT, false));
    }
    for (size_t i = first; i < r->count; i++) {
        const char *instead = roles_instead_of(c, r->messages[i].role);
        if (instead) return refuse_role(r, i, instead);
        if (i) ZF_TRY(put(r, BETWEEN, false));
        ZF_TRY((c->bits & ZF_CHAT_TOOL) && is_role(&r->messages[i], "tool") ? put_tool(r, i) : put_turn(r, i, question));
    }
    return put(r, TAIL, false);
}

/* <s>[INST] <<SYS>>\nsystem\n<</SYS>>\n\nuser [/INST] assistant </s> */
static enum zf_status render_pairs(struct rendering *r)
{
    size_t first = is_role(&r->messages[0], "system");
    if (first == r->count)
        return zf_fail(r->e, ZF_FORMAT, NULL, "there is only a system message; the chat template llama2 writes it into the first question");
    for (size_t i = first; i < r->count; i++) {
        const struct zf_message *m = &r->messages[i];
        struct piece content = {m->content, m->size};
        bool question = (i - first) % 2 == 0, trained = !question && !m->untrained;
        if (!is_role(m, question ? "user" : "assistant"))
            return refuse_role(r, i, question ? "user (user and assistant take turns)" : "assistant (user and assistant take turns)");
        if (!question) {
            ZF_TRY(put(r, SPACE, trained));
            ZF_TRY(put_text(r, trim(content), trained, true));
            ZF_TRY(put(r, SPACE, trained));
            ZF_TRY(put_eos(r, trained));
            continue;
        }
        ZF_TRY(put_bos(r));
        ZF_TRY(put(r, INST, false));
        if (i == 1) {
            /* The template strips both together: the question keeps the white space in front of it. */
            static const char gap[] = "\n\n";
            content = trim_end(content);
            ZF_TRY(put(r, SYS, false));
            ZF_TRY(put_text(r, (struct piece){r->messages[0].content, r->messages[0].size}, false, true));
            ZF_TRY(put(r, SYS_END, false));
            if (content.size) ZF_TRY(put_text(r, (struct piece){gap, 2}, false, false));
        } else {
            content = trim(content);
        }
        ZF_TRY(put_text(r, content, false, true));
        ZF_TRY(put(r, INST_END, false));
    }
    return put(r, TAIL, false);
}

enum zf_status zf_chat_render(const struct zf_chat *c, const struct zf_message *messages, size_t count, bool train_all,
                              struct zf_parts *out, struct zf_err *e)
{
    struct rendering r = {.c = c, .messages = messages, .count = count, .all = train_all, .out = out, .e = e};
    if (!count) return ZF_OK;
    return c->kind == ZF_CHAT_LLAMA2 ? render_pairs(&r) : render_turns(&r);
}
