/* Any bytes as lines of a run: read by the reader of our own or by the parser for JSON to the same effect, in any mode; questions about
 * what came of it are answered. */
#include "tui/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char start[] =
    "{\"type\":\"start\",\"options\":{\"steps\":9},\"matrices\":[{\"name\":\"q\",\"channels\":9,\"length\":4},{\"name\":\"k\"}]}";

static void ask(const struct zf_history *h)
{
    double least, most, out[5], value;
    uint64_t at;
    char text[40];
    for (int i = 0; i < ZF_SERIES_COUNT; i++) {
        const struct zf_series *s = zf_history_series(h, (enum zf_series_id)i);
        struct zf_bucket b = zf_series_between(s, 0, UINT64_MAX);
        if (b.count && (!(b.least <= b.most) || !zf_series_range(s, 0, UINT64_MAX, true, &least, &most) || !(least <= most))) abort();
        zf_series_smooth(s, 10, 0, h->step, out, 5);
        if (s->used && !zf_series_at(s, UINT64_MAX, &at, &value)) abort();
        if (s->used > ZF_SERIES_BUCKETS || s->recent_used > ZF_SERIES_RECENT) abort();
    }
    if (h->buffers.groups > ZF_GROUPS_MOST || h->heat.used > ZF_HEAT_COLUMNS || h->map.used > ZF_CHANNEL_COLUMNS) abort();
    if (h->notes.count > ZF_NOTES_MOST || h->lane_steps > ZF_LANE_STEPS) abort();
    for (size_t i = 0; i < h->notes.count; i++)
        if (strlen(h->notes.list[i].text) > 4096) abort();
    zf_history_eta(h);
    zf_history_option(h, "steps", text, sizeof text);
}

static void same(const struct zf_history *a, const struct zf_history *b)
{
    if (a->step != b->step || a->notes.count != b->notes.count || a->heat.used != b->heat.used) abort();
    for (int i = 0; i < ZF_SERIES_COUNT; i++)
        if (a->series[i].used != b->series[i].used ||
            (a->series[i].used && memcmp(&a->series[i].last, &b->series[i].last, sizeof(double)) != 0))
            abort();
}

/* The reader of our own passes over types that it does not know, without asking whether they are JSON, or say another type again. */
static bool told_apart(const char *line, size_t size)
{
    const char *first = memmem(line, size, "\"type\"", 6);
    size_t left = first ? size - (size_t)(first - line) - 6 : 0;
    return left && (memmem(first + 6, left, "type", 4) || memmem(first + 6, left, "\\u", 2));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zf_history a, b;
    uint8_t mode = size ? data[0] : 0;
    const char *at = (const char *)data + (size > 0), *end = (const char *)data + size;
    bool comparable = !(mode & 1);
    zf_history_open(&a);
    zf_history_open(&b);
    zf_history_text(&a, start, sizeof start - 1);
    zf_history_text(&b, start, sizeof start - 1);
    if (mode & 2) zf_history_watch(&a, 0);
    zf_history_brief(&a, mode & 1);
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((newline ? newline : end) - at);
        char *line = malloc(n ? n : 1); /* exactly as long, so that reading behind it is seen */
        if (!line) break;
        memcpy(line, at, n);
        zf_history_text(&a, line, n);
        comparable = comparable && !told_apart(line, n);
        json_t *o = comparable ? json_loadb(line, n, JSON_ALLOW_NUL, NULL) : NULL;
        if (json_is_object(o)) zf_history_take(&b, o);
        json_decref(o);
        free(line);
        at += n + 1;
    }
    zf_history_brief(&a, false);
    if (comparable) same(&a, &b);
    ask(&a);
    zf_history_watch(&a, 1);
    zf_history_close(&a);
    zf_history_close(&b);
    return 0;
}
