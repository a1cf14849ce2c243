/* Rows for people (marked text) and for programs (JSON lines). One thread; everything is read through the dataset, so that what is shown is
 * what is trained on. */
#include "core/run/data.h"

#include "core/base/file.h"
#include "core/base/plural.h"
#include "core/run/setup.h"
#include "core/tokenizer/text.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONTEXT = 64,     /* tokens decoded around a run, so that it reads as it does in the whole */
    NAMED_PLACES = 6, /* documents of a row that its head line names */
};

struct show {
    const struct zf_data_view *view;
    const struct zf_tokenizer *tokenizer; /* NULL: ids only */
    const struct zf_dataset *data;
};

/* --- a row's tokens --- */

/* Position i is scored against target[i], so the token at i is trained if it is the target of the one before. */
static bool trained(const struct zf_row *r, size_t i)
{
    return i > 0 && r->target[i - 1] >= 0;
}

static bool special(const struct show *s, const struct zf_row *r, size_t i)
{
    return s->tokenizer && zf_tokenizer_is_special(s->tokenizer, r->ids[i]);
}

static bool same_document(const struct zf_row *r, size_t a, size_t b)
{
    return !r->document || r->document[a] == r->document[b];
}

static size_t document_end(const struct zf_row *r, size_t begin)
{
    size_t end = begin + 1;
    while (end < r->length && same_document(r, begin, end)) end++;
    return end;
}

/* Where the run of equally marked tokens that begins here ends. Brackets know trained or not, colours tell special tokens apart, too. */
static size_t run_end(const struct show *s, const struct zf_row *r, size_t begin, size_t end)
{
    bool t = trained(r, begin), c = s->view->color;
    size_t at = begin + 1;
    while (at < end && trained(r, at) == t && (!c || special(s, r, at) == special(s, r, begin))) at++;
    return at;
}

/* --- text that cannot drive a terminal --- */

/* What stands at s, or the escape that stands for it; returns how much of s that was. */
static size_t put_one(const char *s, size_t size)
{
    char shown[ZF_SHOWN];
    size_t used, n = zf_text_show_one(shown, s, size, &used);
    fwrite(shown, 1, n, stdout);
    return used;
}

/* A run's text between its marks. A newline shows as \n and is one; colours end before it and begin anew behind it, and a closing mark
 * stands before a run's last one. */
static void put_marked(const char *text, size_t size, const char *open, const char *close, bool color)
{
    fputs(open, stdout);
    for (size_t at = 0; at < size;) {
        bool newline = text[at] == '\n';
        if (text[at] == '\t')
            putchar(text[at++]);
        else
            at += put_one(text + at, size - at);
        if (!newline) continue;
        if (color || at == size) fputs(close, stdout);
        putchar('\n');
        if (at == size) return;
        if (color) fputs(open, stdout);
    }
    fputs(close, stdout);
}

/* --- runs of tokens -> their text --- */

static enum zf_status decode(const struct show *s, const struct zf_row *r, size_t begin, size_t end, struct zf_text *out, struct zf_err *e)
{
    char *raw;
    size_t size;
    out->size = 0;
    ZF_TRY(zf_tokenizer_decode(s->tokenizer, r->ids + begin, end - begin, false, &raw, &size, e));
    enum zf_status status = zf_text_add(out, raw, size, e);
    free(raw);
    return status;
}

/* How much of `whole` is the text of `part`, its first tokens: a character that is cut between them belongs to the later ones. */
static size_t common(const struct zf_text *part, const struct zf_text *whole)
{
    size_t n = 0, most = part->size < whole->size ? part->size : whole->size;
    while (n < most && part->data[n] == whole->data[n]) n++;
    for (size_t back = 0; back < 3 && n && n < whole->size && ((unsigned char)whole->data[n] & 0xC0) == 0x80; back++) n--;
    return n;
}

/* The text that tokens begin .. end have in their document, begin >= first, end <= last: decoded with neighbours, because a decoder may
 * treat the first token, or bytes of a character, by what stands beside them. Points into *whole. */
static enum zf_status run_text(const struct show *s, const struct zf_row *r, size_t first, size_t begin, size_t end, size_t last,
                               struct zf_text *part, struct zf_text *whole, const char **text, size_t *size, struct zf_err *e)
{
    size_t from = begin - first > CONTEXT ? begin - CONTEXT : first, to = last - end > CONTEXT ? end + CONTEXT : last;
    size_t left = 0, right;
    ZF_TRY(decode(s, r, from, to, whole, e));
    if (from < begin) {
        ZF_TRY(decode(s, r, from, begin, part, e));
        left = common(part, whole);
    }
    right = whole->size;
    if (end < to) {
        ZF_TRY(decode(s, r, from, end, part, e));
        right = common(part, whole);
    }
    *text = whole->data ? whole->data + left : "";
    *size = right > left ? right - left : 0;
    return ZF_OK;
}

/* --- for people --- */

static const char *const colors[2][2] = {{"", "\033[36;7m"}, {"\033[1;32m", "\033[1;32;7m"}}; /* [trained][special] */

static void marks(const struct show *s, const struct zf_row *r, size_t i, const char **open, const char **close)
{
    bool t = trained(r, i);
    *open = s->view->color ? colors[t][special(s, r, i)] : t ? "[" : "";
    *close = !**open ? "" : s->view->color ? "\033[0m" : "]";
}

static enum zf_status print_text(const struct show *s, const struct zf_row *r, size_t first, size_t last, struct zf_err *e)
{
    struct zf_text part = {0}, whole = {0};
    enum zf_status status = ZF_OK;
    char ended = '\n';
    for (size_t at = first, end; !status && at < last; at = end) {
        const char *text, *open, *close;
        size_t size;
        end = run_end(s, r, at, last);
        status = run_text(s, r, first, at, end, last, &part, &whole, &text, &size, e);
        if (status) break;
        marks(s, r, at, &open, &close);
        put_marked(text, size, open, close, s->view->color);
        if (size || *close) ended = size ? text[size - 1] : *close;
    }
    if (ended != '\n') putchar('\n');
    free(part.data);
    free(whole.data);
    return status;
}

static void print_ids(const struct show *s, const struct zf_row *r, size_t first, size_t last)
{
    fputs("ids:", stdout);
    for (size_t at = first, end; at < last; at = end) {
        const char *open, *close;
        end = run_end(s, r, at, last);
        marks(s, r, at, &open, &close);
        printf(" %s", open);
        for (size_t i = at; i < end; i++) printf("%s%" PRId32, i > at ? " " : "", r->ids[i]);
        fputs(close, stdout);
    }
    putchar('\n');
}

static const char *file_name(const struct show *s, uint32_t file)
{
    if (file >= s->data->file_count) return "?";
    return zf_path_name(s->data->files[file]);
}

static void print_place(const struct show *s, const struct zf_source *place, const struct zf_source *before)
{
    char text[512];
    bool same = before && before->file == place->file;
    zf_show(stdout, zf_source_place(text, sizeof text, s->data->format, same ? "" : file_name(s, place->file), place->line));
}

static void print_head(const struct show *s, const struct zf_row *r, uint64_t row, uint64_t position)
{
    printf("row %" PRIu64 " (", row);
    size_t places = s->data->format == ZF_DATA_TOKENS ? 1 : r->documents; /* of a row of `tokens` all are the same */
    for (size_t i = 0; i < places && i < NAMED_PLACES; i++) {
        if (i) fputs(", ", stdout);
        print_place(s, &r->sources[i], i ? &r->sources[i - 1] : NULL);
    }
    if (places > NAMED_PLACES) fputs(", ...", stdout);
    printf("): %zu token%s, %zu trained, %zu document%s", r->length, zf_plural(r->length), r->label_tokens, r->documents,
           zf_plural(r->documents));
    if (position != row) printf(", at position %" PRIu64, position);
    putchar('\n');
}

static enum zf_status print_row(const struct show *s, const struct zf_row *r, uint64_t row, uint64_t position, struct zf_err *e)
{
    print_head(s, r, row, position);
    for (size_t at = 0, end, document = 0; at < r->length; at = end, document++) {
        end = document_end(r, at);
        if (document) {
            printf("--- document %zu", document + 1);
            if (document < r->documents) {
                fputs(" (", stdout);
                print_place(s, &r->sources[document], NULL);
                putchar(')');
            }
            putchar('\n');
        }
        if (s->tokenizer) ZF_TRY(print_text(s, r, at, end, e));
        if (s->view->ids || !s->tokenizer) print_ids(s, r, at, end);
    }
    putchar('\n');
    return ZF_OK;
}

static void print_summary(const struct show *s)
{
    const struct zf_dataset *d = s->data;
    printf("%-14s %" PRIu64 " row%s, %" PRIu64 " tokens, %" PRIu64 " of them trained\n", s->view->valid ? "valid" : "train", d->rows,
           zf_plural(d->rows), d->tokens, d->label_tokens);
    if (d->layout) {
        printf("%-14s ", "layout");
        zf_show(stdout, d->layout);
        putchar('\n');
    }
    if (!s->tokenizer) printf("%-14s there is no tokenizer; ids are shown\n", "note");
    printf("%-14s trained tokens are %s\n\n", "marks", s->view->color ? "green, special ones reversed" : "in [brackets]");
}

/* --- for programs --- */

static json_t *json_documents(const struct show *s, const struct zf_row *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->documents; i++) {
        const struct zf_source *p = &r->sources[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "file", p->file < s->data->file_count ? s->data->files[p->file] : "?",
                                              "line", (json_int_t)p->line, "tokens", (json_int_t)p->tokens));
    }
    return list;
}

static enum zf_status json_text(const struct show *s, const struct zf_row *r, json_t **out, struct zf_err *e)
{
    struct zf_text raw = {0}, text = {0};
    enum zf_status status = ZF_OK;
    *out = NULL;
    if (s->tokenizer) {
        status = decode(s, r, 0, r->length, &raw, e);
        if (!status) status = zf_utf8_lossy(&text, raw.data, raw.size, e);
        if (!status && !(*out = json_stringn(text.data ? text.data : "", text.size))) status = zf_fail_memory(e, "a row's text");
    }
    free(raw.data);
    free(text.data);
    return status;
}

/* labels as transformers has them: labels[t] is the id at t where that is a target, else -100. */
static enum zf_status print_json(const struct show *s, const struct zf_row *r, uint64_t row, uint64_t position, struct zf_err *e)
{
    json_t *ids = json_array(), *labels = json_array(), *positions = json_array(), *text;
    for (size_t i = 0, first = 0; i < r->length; i++) {
        if (!same_document(r, first, i)) first = i;
        json_array_append_new(ids, json_integer(r->ids[i]));
        json_array_append_new(labels, json_integer(trained(r, i) ? r->target[i - 1] : -100));
        json_array_append_new(positions, json_integer((json_int_t)(i - first)));
    }
    json_t *object = json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "position", (json_int_t)position, "row", (json_int_t)row,
                               "tokens", (json_int_t)r->length, "trained", (json_int_t)r->label_tokens, "ids", ids, "labels", labels,
                               "positions", positions, "documents", json_documents(s, r));
    enum zf_status status = object ? json_text(s, r, &text, e) : zf_fail_memory(e, "a row");
    if (!status && text) json_object_set_new(object, "text", text);
    /* In ASCII, so that any reader's idea of a line is ours. */
    char *line = status ? NULL : json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (line)
        puts(line);
    else if (!status)
        status = zf_fail_memory(e, "a row");
    free(line);
    json_decref(object);
    return status;
}

/* --- which rows --- */

/* From `from` on, not over the end of an epoch. */
static uint64_t count_rows(const struct show *s)
{
    uint64_t from = (uint64_t)s->view->from, rows = s->data->rows, wanted = (uint64_t)s->view->rows;
    if (!rows || (s->view->valid && from >= rows)) return 0;
    uint64_t left = rows - from % rows;
    return wanted < left ? wanted : left;
}

/* Rows of `tokens` may have ids that only the model knows. */
static bool has_text(const struct zf_tokenizer *t, const struct zf_row *r)
{
    size_t i = 0;
    while (t && i < r->length && r->ids[i] >= 0 && (size_t)r->ids[i] < zf_tokenizer_size(t)) i++;
    return i == r->length;
}

static enum zf_status show_rows(const struct show *s, const struct zf_order *order, const volatile int *stop, struct zf_err *e)
{
    struct zf_row_buffer buffer = {0};
    enum zf_status status = ZF_OK;
    uint64_t count = count_rows(s), from = (uint64_t)s->view->from;
    for (uint64_t i = 0; !status && i < count; i++) {
        struct zf_row r;
        uint64_t row = zf_order_row(order, from + i);
        if (stop && *stop) status = zf_fail(e, ZF_STOPPED, NULL, "stopped while showing rows");
        if (!status) status = zf_dataset_read(s->data, row, &buffer, &r, e);
        if (status) break;
        struct show this = *s;
        if (!has_text(s->tokenizer, &r)) this.tokenizer = NULL;
        status = s->view->json ? print_json(&this, &r, row, from + i, e) : print_row(&this, &r, row, from + i, e);
        if (!status && ferror(stdout)) status = zf_fail_errno(e, "stdout", "cannot write the rows");
    }
    zf_row_buffer_free(&buffer);
    return status;
}

enum zf_status zf_data_run(const struct zf_options *o, const struct zf_data_view *v, const volatile int *stop, struct zf_err *e)
{
    struct zf_setup setup = {0};
    enum zf_status status = zf_setup_model(&setup, o, e);
    setup.rows_only = true;
    if (!status) status = zf_setup_data(&setup, stop, e);
    struct show s = {.view = v, .tokenizer = setup.tokenizer, .data = v->valid ? &setup.valid : &setup.train};
    struct zf_order order = {.seed = (uint64_t)o->seed, .rows = s.data->rows, .shuffle = o->shuffle && !v->valid};
    if (!status && !s.data->rows)
        status = zf_fail(e, ZF_USAGE, v->valid ? "--valid" : "train",
                         v->valid ? "there are no validation rows; `valid` or `valid_split` makes some" : "there are no rows; set `train`");
    if (!status && v->valid && (uint64_t)v->from >= s.data->rows)
        status = zf_fail(e, ZF_USAGE, "--from", "%" PRId64 ": the validation rows are 0 to %" PRIu64, v->from, s.data->rows - 1);
    if (!status && !v->json) print_summary(&s);
    if (!status && o->long_rows == ZF_LONG_ROWS_ERROR && s.data->store->stats.dropped)
        fprintf(stderr,
                "zenflow-console: note: %" PRIu64 " records longer than sequence_length are left out here; a run stops at them, unless "
                "long_rows says otherwise\n",
                s.data->store->stats.dropped);
    if (!status) signal(SIGPIPE, SIG_DFL); /* all is read: `data | head` ends here */
    if (!status) status = show_rows(&s, &order, stop, e);
    zf_setup_free(&setup);
    return status;
}
