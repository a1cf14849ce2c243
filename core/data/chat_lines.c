/* Reads a chat template (Jinja as transformers sets it up: trim_blocks, lstrip_blocks) into lines in one spelling, so that chat_find.c can
 * compare them with those it knows. Nothing is evaluated, except conditions whose value is known before any record is read. */
#include "core/data/chat_impl.h"
#include "core/tokenizer/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64, TEXT_LIMIT = 16 << 10 };

/* Messages come without tools, and no answer is asked for. */
static const struct {
    const char *condition;
    bool value;
} known[] = {
    {"tools", false},
    {"tools is not none", false},
    {"tools is not none and not tools_in_user_message", false},
    {"tools_in_user_message and not tools is none", false},
    {"builtin_tools is defined", false},
    {"builtin_tools is defined or tools is not none", false},
    {"custom_tools is defined", false},
    {"message.tool_calls", false},
    {"'tool_calls' in message", false},
    {"for tool_call in message.tool_calls", false},
    {"message.reasoning_content is string", false},
    {"message.reasoning_content is defined and message.reasoning_content is not none", false},
    {"add_generation_prompt", false},
    {"add_generation_prompt and messages[-1].role!='assistant'", false},
    {"strftime_now is defined", false},
    {"false==true and not '<<SYS>>' in messages[0].content", false},
    {"not add_generation_prompt is defined", true},
    {"not tools is defined", true},
    {"not tools_in_user_message is defined", true},
    {"not date_string is defined", true},
    {"message.content is string", true},
};

enum frame_kind {
    LOOP,  /* for */
    NONE,  /* if: no branch so far can run */
    OPEN,  /* if: some may */
    LAST,  /* if: some may, and what follows cannot */
    ALWAYS /* if: one always runs, so it is no condition at all */
};

struct frame {
    enum frame_kind kind;
    bool outer, live;
    bool runs, turns; /* a loop: at least once; over the messages */
};

struct reading {
    const char *s;
    size_t size, at;
    zf_chat_take *take;
    void *context;
    struct zf_text line, out;         /* a line that is made; what is written since the last one */
    struct zf_text operand, literal;  /* of an expression: its spelling; its text where it is a single string */
    size_t tokens, strings, brackets; /* in the operand; open brackets */
    bool word;                        /* its last token is a word, a number or a string */
    struct frame stack[DEPTH];
    size_t depth;
    bool behind; /* the loop over the messages is over */
};

static enum zf_status not_understood(const char *text, size_t size, struct zf_err *e)
{
    char shown[300];
    zf_text_show(shown, sizeof shown, text, size);
    return zf_fail(e, ZF_USAGE, NULL, "`%s` is not understood", shown);
}

static bool is_live(const struct reading *r)
{
    return !r->depth || r->stack[r->depth - 1].live;
}

/* Hands on what was written, as a line. */
static enum zf_status flush(struct reading *r, struct zf_err *e)
{
    if (!r->out.size) return ZF_OK;
    bool last = r->behind;
    for (size_t i = 0; i < r->depth; i++) last = last && r->stack[i].kind == ALWAYS;
    if (r->out.size > TEXT_LIMIT || memchr(r->out.data, 0, r->out.size)) return not_understood(r->out.data, r->out.size, e);
    struct zf_text line = {0};
    enum zf_status s = zf_text_add(&line, "> ", 2, e);
    if (s == ZF_OK) s = zf_text_add(&line, r->out.data, r->out.size, e);
    if (s == ZF_OK) s = zf_text_add(&line, "", 1, e);
    if (s == ZF_OK) s = r->take(r->context, line.data, last, e);
    free(line.data);
    r->out.size = 0;
    return s;
}

static enum zf_status control(struct reading *r, const char *line, struct zf_err *e)
{
    ZF_TRY(flush(r, e));
    return r->take(r->context, line, false, e);
}

/* Text of the template's own, braces doubled. */
static enum zf_status write_text(struct reading *r, const char *s, size_t size, struct zf_err *e)
{
    if (!is_live(r)) return ZF_OK;
    for (size_t i = 0; i < size; i++) {
        if (s[i] == '{') ZF_TRY(zf_text_add(&r->out, "{", 1, e));
        ZF_TRY(zf_text_add(&r->out, s + i, 1, e));
    }
    return ZF_OK;
}

/* x['name'] -> x.name, once the ] is there. */
static enum zf_status join_name(struct reading *r, struct zf_err *e)
{
    struct zf_text *t = &r->operand;
    size_t at = t->size;
    if (at < 4 || t->data[at - 1] != '\'') return zf_text_add(t, "]", 1, e);
    size_t end = at - 1, begin = end;
    while (begin && (isalnum((unsigned char)t->data[begin - 1]) || t->data[begin - 1] == '_')) begin--;
    bool name = begin > 2 && begin < end && t->data[begin - 1] == '\'' && t->data[begin - 2] == '[' &&
                (isalnum((unsigned char)t->data[begin - 3]) || strchr("_])", t->data[begin - 3]));
    if (!name) return zf_text_add(t, "]", 1, e);
    t->data[begin - 2] = '.';
    memmove(t->data + begin - 1, t->data + begin, end - begin);
    t->size = end - 1;
    return ZF_OK;
}

static enum zf_status add_token(struct reading *r, const char *s, size_t size, bool word, struct zf_err *e)
{
    r->tokens++;
    if (word && r->word) ZF_TRY(zf_text_add(&r->operand, " ", 1, e));
    r->word = word;
    if (size == 1 && *s == ']') return join_name(r, e);
    return zf_text_add(&r->operand, s, size, e);
}

/* A string: its text, and its spelling in single quotes with only quotes and backslashes escaped. */
static enum zf_status read_string(struct reading *r, struct zf_err *e)
{
    size_t begin = r->at;
    char quote = r->s[r->at++];
    r->literal.size = 0;
    r->strings++;
    ZF_TRY(add_token(r, "'", 1, true, e));
    while (r->at < r->size && r->s[r->at] != quote) {
        char c = r->s[r->at++];
        if (c == '\\') {
            static const char from[] = "nt\\'\"", to[] = "\n\t\\'\"";
            const char *p = r->at < r->size && r->s[r->at] ? strchr(from, r->s[r->at]) : NULL;
            if (!p) return not_understood(r->s + begin, r->at + 1 < r->size ? r->at + 1 - begin : r->size - begin, e);
            c = to[p - from];
            r->at++;
        }
        if (c == '\'' || c == '\\') ZF_TRY(zf_text_add(&r->operand, "\\", 1, e));
        ZF_TRY(zf_text_add(&r->operand, &c, 1, e));
        ZF_TRY(zf_text_add(&r->literal, &c, 1, e));
    }
    if (r->at == r->size) return not_understood(r->s + begin, r->size - begin, e);
    r->at++;
    return zf_text_add(&r->operand, "'", 1, e);
}

static size_t count_while(const char *s, size_t size, bool number)
{
    size_t n = 0;
    while (n < size && (number ? isdigit((unsigned char)s[n]) : isalnum((unsigned char)s[n]) || s[n] == '_')) n++;
    return n;
}

static enum zf_status read_token(struct reading *r, struct zf_err *e)
{
    const char *s = r->s + r->at;
    size_t left = r->size - r->at, n = 1;
    if (*s == '\'' || *s == '"') return read_string(r, e);
    bool word = isalnum((unsigned char)*s) || *s == '_';
    if (word) {
        n = count_while(s, left, isdigit((unsigned char)*s));
    } else if (left > 1 && s[1] == '=' && strchr("=!<>", *s)) {
        n = 2;
    }
    if (*s == '(' || *s == '[' || *s == '{') r->brackets++;
    if ((*s == ')' || *s == ']' || *s == '}') && !r->brackets--) return not_understood(s, left, e);
    r->at += n;
    return add_token(r, s, n, word, e);
}

/* An operand of what is written is over: a string's text, or an expression in braces. */
static enum zf_status end_operand(struct reading *r, struct zf_err *e)
{
    if (r->tokens == 1 && r->strings == 1) {
        ZF_TRY(write_text(r, r->literal.data, r->literal.size, e));
    } else if (is_live(r)) {
        ZF_TRY(zf_text_add(&r->out, "{", 1, e));
        ZF_TRY(zf_text_add(&r->out, r->operand.data, r->operand.size, e));
        ZF_TRY(zf_text_add(&r->out, "}", 1, e));
    }
    r->operand.size = r->tokens = r->strings = 0;
    r->word = false;
    return ZF_OK;
}

/* The inside of a tag, up to and with its end; *strip: it ends with -, *keep: with +. Where `writes`, a sum's terms go to r->out one by
 * one; else all is left in r->operand. */
static enum zf_status read_tag(struct reading *r, const char *end, bool writes, bool *strip, bool *keep, struct zf_err *e)
{
    size_t begin = r->at;
    r->operand.size = r->tokens = r->strings = r->brackets = 0;
    r->word = *strip = *keep = false;
    while (r->at < r->size) {
        const char *s = r->s + r->at;
        size_t left = r->size - r->at, sign = (*s == '-' || *s == '+') ? 1 : 0;
        if (left >= sign + 2 && s[sign] == end[0] && s[sign + 1] == end[1]) {
            *strip = *s == '-';
            *keep = *s == '+';
            r->at += sign + 2;
            return writes ? end_operand(r, e) : ZF_OK;
        }
        if (isspace((unsigned char)*s)) {
            r->at++;
        } else if (writes && !r->brackets && (*s == '+' || *s == '~')) {
            ZF_TRY(end_operand(r, e));
            r->at++;
        } else {
            ZF_TRY(read_token(r, e));
        }
    }
    return not_understood(r->s + begin, r->size - begin, e);
}

/* 1 true, 0 false, -1: it depends. */
static int value_of(const char *condition)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].condition, condition)) return known[i].value;
    return -1;
}

static enum zf_status push(struct reading *r, struct frame f, struct zf_err *e)
{
    if (r->depth == DEPTH) return zf_fail(e, ZF_USAGE, NULL, "more than %d statements lie in each other, which is not understood", DEPTH);
    r->stack[r->depth++] = f;
    return ZF_OK;
}

static enum zf_status branch(struct reading *r, struct frame *f, const char *condition, struct zf_err *e)
{
    if (!f->outer) return ZF_OK;
    int value = f->kind == ALWAYS || f->kind == LAST ? 0 : value_of(condition);
    bool first = f->kind == NONE;
    f->live = value != 0;
    if (value == 0) return ZF_OK;
    if (value == 1) {
        f->kind = first ? ALWAYS : LAST;
        return first ? ZF_OK : control(r, "else", e);
    }
    f->kind = OPEN;
    r->line.size = 0;
    ZF_TRY(zf_text_add(&r->line, first ? "if " : "elif ", first ? 3 : 5, e));
    ZF_TRY(zf_text_add(&r->line, condition, strlen(condition) + 1, e));
    return control(r, r->line.data, e);
}

/* else, endif, endfor */
static enum zf_status end_branch(struct reading *r, const char *word, struct zf_err *e)
{
    struct frame *f = r->depth ? &r->stack[r->depth - 1] : NULL;
    bool loop = !strcmp(word, "endfor");
    if (!f || loop != (f->kind == LOOP)) return not_understood(word, strlen(word), e);
    if (!strcmp(word, "else")) {
        f->live = f->outer && (f->kind == NONE || f->kind == OPEN);
        if (f->kind == OPEN && f->outer) ZF_TRY(control(r, word, e));
        f->kind = f->kind == NONE ? ALWAYS : f->kind == OPEN ? LAST : f->kind;
        return ZF_OK;
    }
    if (f->outer && (f->kind == OPEN || f->kind == LAST || f->runs)) ZF_TRY(control(r, word, e));
    r->behind = r->behind || (f->turns && r->depth == 1);
    r->depth--;
    return ZF_OK;
}

static enum zf_status statement(struct reading *r, struct zf_err *e)
{
    struct zf_text *t = &r->operand;
    if (memchr(t->data ? t->data : "", 0, t->size)) return not_understood(t->data, t->size, e);
    ZF_TRY(zf_text_add(t, "", 1, e));
    const char *line = t->data;
    size_t word = count_while(line, t->size, false);
    bool is_if = word == 2 && !strncmp(line, "if", 2), is_elif = word == 4 && !strncmp(line, "elif", 4);
    if (is_if || is_elif) {
        const char *condition = line + word + (line[word] == ' ');
        if (is_if) ZF_TRY(push(r, (struct frame){.kind = NONE, .outer = is_live(r)}, e));
        if (!r->depth || r->stack[r->depth - 1].kind == LOOP) return not_understood(line, strlen(line), e);
        return branch(r, &r->stack[r->depth - 1], condition, e);
    }
    if (!strcmp(line, "else") || !strcmp(line, "endif") || !strcmp(line, "endfor")) return end_branch(r, line, e);
    if (word == 3 && !strncmp(line, "for", 3)) {
        bool turns = !strcmp(line, "for message in messages") || !strcmp(line, "for message in loop_messages"), outer = is_live(r);
        bool runs = value_of(line) != 0;
        ZF_TRY(push(r, (struct frame){.kind = LOOP, .outer = outer, .live = outer && runs, .runs = runs, .turns = turns}, e));
        return outer && runs ? control(r, line, e) : ZF_OK;
    }
    return is_live(r) ? control(r, line, e) : ZF_OK;
}

/* Text up to the next tag, as Jinja leaves it. before: what the tag before it takes away: '-' all white space, 'n' one line end. */
static enum zf_status read_text(struct reading *r, char before, struct zf_err *e)
{
    size_t begin = r->at, end = begin;
    while (end < r->size && !(r->s[end] == '{' && end + 1 < r->size && r->s[end + 1] && strchr("{%#", r->s[end + 1]))) end++;
    r->at = end;
    bool tag = end < r->size, block = tag && r->s[end + 1] != '{';
    char sign = tag && end + 2 < r->size ? r->s[end + 2] : 0;
    if (before == 'n' && begin < end && r->s[begin] == '\n') begin++;
    while (before == '-' && begin < end && isspace((unsigned char)r->s[begin])) begin++;
    if (sign == '-') {
        while (end > begin && isspace((unsigned char)r->s[end - 1])) end--;
    } else if (block && sign != '+') {
        size_t blank = end;
        while (blank > begin && (r->s[blank - 1] == ' ' || r->s[blank - 1] == '\t')) blank--;
        /* Only white space between the line's begin and the tag; a tag before it on the line is not white space. */
        if (!blank || r->s[blank - 1] == '\n') end = blank;
    }
    return write_text(r, r->s + begin, end - begin, e);
}

static enum zf_status read_template(struct reading *r, struct zf_err *e)
{
    char before = 0;
    while (r->at < r->size) {
        ZF_TRY(read_text(r, before, e));
        if (r->at == r->size) break;
        char kind = r->s[r->at + 1];
        bool strip, keep;
        r->at += 2;
        if (kind == '#') {
            const char *end = memmem(r->s + r->at, r->size - r->at, "#}", 2);
            if (!end) return not_understood(r->s + r->at - 2, r->size - r->at + 2, e);
            strip = end > r->s + r->at && end[-1] == '-';
            keep = end > r->s + r->at && end[-1] == '+';
            r->at = (size_t)(end - r->s) + 2;
        } else {
            if (r->at < r->size && (r->s[r->at] == '-' || (kind == '%' && r->s[r->at] == '+'))) r->at++;
            ZF_TRY(read_tag(r, kind == '%' ? "%}" : "}}", kind == '{', &strip, &keep, e));
            if (kind == '%') ZF_TRY(statement(r, e));
        }
        before = strip ? '-' : kind != '{' && !keep ? 'n' : 0;
    }
    if (r->depth) return zf_fail(e, ZF_USAGE, NULL, "it ends inside of an if or a for, which is not understood");
    return flush(r, e);
}

enum zf_status zf_chat_lines(const char *text, size_t size, zf_chat_take *take, void *context, struct zf_err *e)
{
    char *plain = malloc(size + 1);
    if (!plain) return zf_fail_memory(e, "a chat template");
    size_t n = 0;
    for (size_t i = 0; i < size; i++) { /* Jinja knows one line end, and drops the last one */
        if (text[i] == '\r' && i + 1 < size && text[i + 1] == '\n') continue;
        plain[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (n && plain[n - 1] == '\n') n--;
    struct reading r = {.s = plain, .size = n, .take = take, .context = context};
    enum zf_status s = read_template(&r, e);
    free(r.line.data);
    free(r.out.data);
    free(r.operand.data);
    free(r.literal.data);
    free(plain);
    return s;
}
