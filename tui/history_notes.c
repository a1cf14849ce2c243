/* Words of a run: what was changed, saved, said. Texts are as they came: whoever draws them makes them harmless. */
#include "tui/format.h"
#include "tui/history_impl.h"

#include "core/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_MOST = 4096,     /* bytes of a note */
    LIST_BYTES = 4 << 20, /* of all texts of a list */
    DROPPED = 256         /* at once, when there are too many */
};

const char *const zf_note_names[ZF_NOTE_KINDS] = {"change", "checkpoint", "mark",   "note", "warning",
                                                  "error",  "sample",     "resume", "end",  "valid"};

/* A copy of at most TEXT_MOST bytes that ends with a whole character. */
static char *shortened(const char *text, size_t *size)
{
    size_t n = strnlen(text, TEXT_MOST + 1);
    if (n > TEXT_MOST) {
        n = TEXT_MOST;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    }
    *size = n + 1;
    return strndup(text, n);
}

static void drop(struct zf_notes *l, size_t from, size_t n, size_t *bytes)
{
    for (size_t i = from; i < from + n; i++) {
        *bytes -= strlen(l->list[i].text) + 1;
        free(l->list[i].text);
    }
    memmove(l->list + from, l->list + from + n, (l->count - from - n) * sizeof *l->list);
    l->count -= n;
}

/* Room for one more: without the oldest validations if there are many of them, else without the oldest of all. */
static void make_room(struct zf_notes *l, size_t *bytes)
{
    size_t valid = 0, kept = 0, dropped = 0;
    for (size_t i = 0; i < l->count; i++) valid += l->list[i].kind == ZF_NOTE_VALID;
    if (valid < DROPPED) {
        drop(l, 0, l->count < DROPPED ? l->count : DROPPED, bytes);
        return;
    }
    for (size_t i = 0; i < l->count; i++) {
        if (l->list[i].kind != ZF_NOTE_VALID || dropped == DROPPED) {
            l->list[kept++] = l->list[i];
            continue;
        }
        dropped++;
        *bytes -= strlen(l->list[i].text) + 1;
        free(l->list[i].text);
    }
    l->count = kept;
}

bool zf_history_note(struct zf_history *h, enum zf_note_kind kind, const json_t *line, const char *text)
{
    bool sample = kind == ZF_NOTE_SAMPLE;
    struct zf_notes *l = sample ? &h->samples : &h->notes;
    size_t *bytes = sample ? &h->own.bytes_of_samples : &h->own.bytes_of_notes, size;
    if (!text) return false;
    if (!l->list) l->list = malloc(ZF_NOTES_MOST * sizeof *l->list);
    char *copy = l->list ? shortened(text, &size) : NULL;
    if (!copy) return false;
    while (l->count == ZF_NOTES_MOST || (l->count && *bytes + size > LIST_BYTES)) make_room(l, bytes);
    *bytes += size;
    l->added++;
    uint64_t step = zf_history_count(json_object_get(line, kind == ZF_NOTE_CHANGE ? "from_step" : "step"), h->step);
    double time = zf_history_number(json_object_get(line, "time"), (double)NAN);
    l->list[l->count++] = (struct zf_note){.step = step,
                                           .time = time >= 0 && time < 1e12 ? time
                                                   : h->step                ? h->time
                                                                            : -1,
                                           .kind = kind,
                                           .text = copy};
    return true;
}

bool zf_history_take_change(struct zf_history *h, const json_t *line)
{
    const char *option = json_string_value(json_object_get(line, "option"));
    const json_t *new = json_object_get(line, "new"), *old = json_object_get(line, "old");
    char from[64] = "?", to[64], text[512], when[48] = "";
    if (!option || !new) return false;
    if (h->options && json_object_get(h->options, option)) { /* no others: a run's options are known at its start */
        json_t *copy = json_deep_copy(new);
        if (copy) json_object_set_new_nocheck(h->options, option, copy);
    }
    if (!strcmp(option, "steps")) h->steps = zf_history_count(new, h->steps);
    if (old) zf_json_shown(old, from, sizeof from);
    zf_json_shown(new, to, sizeof to);
    uint64_t step = zf_history_count(json_object_get(line, "from_step"), UINT64_MAX);
    if (step != UINT64_MAX) snprintf(when, sizeof when, ", from step %" PRIu64, step);
    const char *user = json_string_value(json_object_get(line, "user")), *by = json_string_value(json_object_get(line, "by"));
    snprintf(text, sizeof text, "%.64s %s -> %s%s (%.40s%s%.20s)", option, from, to, when, user ? user : "",
             user && *user && by ? ", " : "", by ? by : "");
    return zf_history_note(h, ZF_NOTE_CHANGE, line, text);
}

bool zf_history_take_checkpoint(struct zf_history *h, const json_t *line)
{
    const char *file = json_string_value(json_object_get(line, "file"));
    uint64_t step = zf_history_count(json_object_get(line, "step"), UINT64_MAX);
    if (!file || step == UINT64_MAX) return false;
    size_t unused;
    char *copy = shortened(file, &unused), *text = NULL, bytes[ZF_FORMAT_ROOM] = "", seconds[40] = "";
    if (!copy) return false;
    free(h->saved.file);
    h->saved.file = copy;
    h->saved.step = step;
    h->saved.export = !strcmp(json_string_value(json_object_get(line, "type")), "export");
    h->saved.seconds = zf_history_number(json_object_get(line, "seconds"), (double)NAN);
    h->saved.bytes = zf_history_number(json_object_get(line, "bytes"), (double)NAN);
    if (h->saved.bytes >= 0 && h->saved.bytes < 1e18) zf_format_bytes(bytes, h->saved.bytes);
    if (h->saved.seconds >= 0 && h->saved.seconds < 1e9) snprintf(seconds, sizeof seconds, "%.1f s", h->saved.seconds);
    const char *sep = *bytes && *seconds ? ", " : "", *open = *bytes || *seconds ? " (" : "", *close = *open ? ")" : "";
    if (asprintf(&text, "%s step %" PRIu64 ": %s%s%s%s%s%s", h->saved.export ? "exported" : "saved", step, copy, open, bytes, sep, seconds,
                 close) < 0)
        return false;
    bool ok = zf_history_note(h, ZF_NOTE_CHECKPOINT, line, text);
    free(text);
    return ok;
}

static void cut(struct zf_notes *l, uint64_t step, size_t *bytes)
{
    size_t keep = 0;
    for (size_t i = 0; i < l->count; i++) {
        struct zf_note *n = &l->list[i];
        if (n->step <= step || n->kind == ZF_NOTE_ERROR || n->kind == ZF_NOTE_END) {
            l->list[keep++] = *n;
            continue;
        }
        *bytes -= strlen(n->text) + 1;
        free(n->text);
    }
    l->count = keep;
}

/* What was said about steps that did not happen; how they ended stays. */
void zf_history_cut_notes(struct zf_history *h, uint64_t step)
{
    cut(&h->notes, step, &h->own.bytes_of_notes);
    cut(&h->samples, step, &h->own.bytes_of_samples);
    if (h->saved.step > step) {
        free(h->saved.file);
        memset(&h->saved, 0, sizeof h->saved);
    }
}

static void free_list(struct zf_notes *l)
{
    for (size_t i = 0; i < l->count; i++) free(l->list[i].text);
    free(l->list);
    *l = (struct zf_notes){0};
}

void zf_history_free_notes(struct zf_history *h)
{
    free_list(&h->notes);
    free_list(&h->samples);
    free(h->saved.file);
    memset(&h->saved, 0, sizeof h->saved);
    h->own.bytes_of_notes = h->own.bytes_of_samples = 0;
}
