/* Lines as our own writer makes them (core/telemetry/jsonl.c: no blanks, shortest numbers) read without a parser for JSON: a day of steps
 * is in memory in a fraction of a second. Strict: whatever else is found, the line is left to the parser, so that both always agree. */
#include "tui/history_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The last byte is '}' or ']', so runs of digits end before `end`. */
struct scan {
    const char *at, *end;
};

static bool here(const struct scan *s, const char *word, size_t n)
{
    return (size_t)(s->end - s->at) >= n && !memcmp(s->at, word, n);
}

static bool word(struct scan *s, const char *text, size_t n)
{
    if (!here(s, text, n)) return false;
    s->at += n;
    return true;
}
#define WORD(s, literal) word(s, literal, sizeof literal - 1)

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* mantissa * 10^exponent, rounded as strtod does, or false. */
static bool scaled(uint64_t mantissa, int exponent, double *out)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (!mantissa) {
        *out = 0;
        return true;
    }
    if (mantissa <= (uint64_t)1 << 53 && exponent >= -22 && exponent <= 22) { /* both are exact */
        *out = exponent < 0 ? (double)mantissa / tens[-exponent] : (double)mantissa * tens[exponent];
        return true;
    }
#if LDBL_MANT_DIG == 64
    /* Both are exact in 64 bits; what is rounded twice is right unless the first result lies halfway between two doubles. */
    static const long double long_tens[] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,
                                            1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L,
                                            1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    if (exponent < -27 || exponent > 27) return false;
    long double x = exponent < 0 ? (long double)mantissa / long_tens[-exponent] : (long double)mantissa * long_tens[exponent];
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7ff) == 0x400) return false;
    *out = (double)x;
    return true;
#else
    return false;
#endif
}

/* A number as JSON has it. *whole: without point and exponent. */
static bool number(struct scan *s, double *out, bool *whole)
{
    const char *p = s->at, *first;
    bool negative = *p == '-', real = false;
    p += negative;
    uint64_t m = 0;
    int digits = 0, exponent = 0;
    if (!digit(*p) || (*p == '0' && digit(p[1]))) return false;
    for (first = p; digit(*p); p++) m = m * 10 + (uint64_t)(*p - '0');
    digits = *first == '0' ? 0 : p - first > 19 ? 20 : (int)(p - first);
    if (*p == '.') {
        real = true;
        first = ++p;
        if (!digit(*p)) return false;
        if (!digits)
            while (*p == '0') p++;
        const char *significant = p;
        for (; digit(*p); p++) m = m * 10 + (uint64_t)(*p - '0');
        if (p - first > 40) return false;
        digits += (int)(p - significant);
        exponent = -(int)(p - first);
    }
    if (*p == 'e' || *p == 'E') {
        real = true;
        bool down = *++p == '-';
        p += down || *p == '+';
        int e = 0;
        for (first = p; digit(*p); p++) e = e < 1000 ? e * 10 + (*p - '0') : e;
        if (p == first) return false;
        exponent += down ? -e : e;
    }
    if (digits > (real ? 19 : 18) || !scaled(m, exponent, out)) return false;
    if (negative) *out = real ? -*out : 0 - *out; /* no integer is -0 */
    *whole = !real;
    s->at = p;
    return true;
}

static bool value(struct scan *s, double *out)
{
    bool whole;
    if (*s->at != '"') return number(s, out, &whole);
    if (WORD(s, "\"nan\""))
        *out = (double)NAN;
    else if (WORD(s, "\"inf\""))
        *out = (double)INFINITY;
    else if (WORD(s, "\"-inf\""))
        *out = -(double)INFINITY;
    else
        return false;
    return true;
}

/* A whole number as steps and sizes are. */
static bool count(struct scan *s, uint64_t *out)
{
    double x;
    bool whole;
    if (!number(s, &x, &whole) || !whole || !(x >= 0) || x > (double)ZF_STEP_MOST) return false;
    *out = (uint64_t)x;
    return true;
}

/* ---- numbers ---- */

enum kind { VALUE, IGNORED, IGNORED_LIST, STEP, INDEX, GROUPS, BUSY };

struct field {
    const char *key;
    size_t size;
    enum kind kind;
    enum zf_series_id id;
};

#define FIELD(name, kind, id) \
    { \
        "\"" name "\":", sizeof name + 2, kind, id \
    }
#define SERIES(name, id) FIELD(name, VALUE, ZF_SERIES_##id)
#define OTHER(name, kind) FIELD(name, kind, ZF_SERIES_COUNT)

/* In the writer's order (core/run/record.c). */
static const struct field step_fields[] = {
    OTHER("step", STEP),
    SERIES("time", TIME),
    SERIES("epoch", EPOCH),
    SERIES("loss", LOSS),
    SERIES("grad_norm", NORM),
    SERIES("clip", CLIP),
    SERIES("learning_rate", RATE),
    SERIES("tokens", TOKENS),
    OTHER("label_tokens", IGNORED),
    SERIES("tokens_per_s", TOKENS_PER_S),
    SERIES("step_ms", STEP_MS),
    OTHER("rows", IGNORED_LIST),
    SERIES("compute_ms", COMPUTE_MS),
    SERIES("stall_ms", STALL_MS),
    OTHER("busy", BUSY),
    SERIES("d2h_bytes", D2H_BYTES),
    SERIES("h2d_bytes", H2D_BYTES),
    OTHER("groups", GROUPS),
    SERIES("cpu_updates", CPU_UPDATES),
    SERIES("adam_gb_s", ADAM_GB_S),
    SERIES("skipped", SKIPPED),
    SERIES("memory_device", MEMORY_DEVICE),
    SERIES("memory_host", MEMORY_HOST),
};
static const struct field busy_fields[] = {
    SERIES("compute", BUSY_COMPUTE), SERIES("d2h", BUSY_D2H), SERIES("h2d", BUSY_H2D), SERIES("cpu", BUSY_CPU), SERIES("comm", BUSY_COMM),
};
static const struct field gpu_fields[] = {
    OTHER("index", INDEX),        SERIES("utilization", GPU_UTILIZATION),   SERIES("memory_used", GPU_MEMORY),
    SERIES("power_w", GPU_POWER), SERIES("temperature_c", GPU_TEMPERATURE), SERIES("pcie_rx", GPU_RX),
    SERIES("pcie_tx", GPU_TX),
};
enum { STEP_FIELDS = sizeof step_fields / sizeof *step_fields, BUSY_FIELDS = sizeof busy_fields / sizeof *busy_fields };

static bool ignored_list(struct scan *s)
{
    double x;
    if (!WORD(s, "[")) return false;
    if (WORD(s, "]")) return true;
    do
        if (!value(s, &x)) return false;
    while (WORD(s, ","));
    return WORD(s, "]");
}

static bool group(struct scan *s, struct zf_buffer *g)
{
    double fill;
    uint64_t staleness;
    if (!WORD(s, "{\"fill\":") || !value(s, &fill) || !WORD(s, ",\"phase\":\"")) return false;
    if (WORD(s, "ACC\""))
        g->phase = ZF_BUFFER_ACC;
    else if (WORD(s, "UP\""))
        g->phase = ZF_BUFFER_UP;
    else if (WORD(s, "UPLOAD\""))
        g->phase = ZF_BUFFER_UPLOAD;
    else
        return false;
    if (!WORD(s, ",\"staleness\":") || !count(s, &staleness) || !WORD(s, ",\"due\":") || !count(s, &g->due) || !WORD(s, "}")) return false;
    g->fill = zf_history_float(fill);
    g->staleness = staleness < UINT32_MAX ? (uint32_t)staleness : UINT32_MAX;
    return true;
}

static bool group_list(struct scan *s, struct zf_number_line *out)
{
    out->has_groups = true;
    if (!WORD(s, "[")) return false;
    if (WORD(s, "]")) return true;
    do {
        struct zf_buffer g;
        if (!group(s, &g)) return false;
        if (out->groups < ZF_GROUPS_MOST) out->group[out->groups++] = g;
    } while (WORD(s, ","));
    return WORD(s, "]");
}

static bool fields(struct scan *s, const struct field *table, size_t n, struct zf_number_line *out);

static bool one_field(struct scan *s, const struct field *f, struct zf_number_line *out)
{
    double x;
    switch (f->kind) {
    case VALUE: out->present |= (uint64_t)1 << f->id; return value(s, &out->value[f->id]);
    case IGNORED: return value(s, &x);
    case IGNORED_LIST: return ignored_list(s);
    case STEP: return out->has_step = count(s, &out->step);
    case INDEX: return count(s, &out->index);
    case GROUPS: return group_list(s, out);
    case BUSY: return WORD(s, "{") && (WORD(s, "}") || fields(s, busy_fields, BUSY_FIELDS, out));
    }
    return false;
}

/* The inside of an object and its brace. Of two fields with one name JSON's parser takes the last: left to it. */
static bool fields(struct scan *s, const struct field *table, size_t n, struct zf_number_line *out)
{
    uint32_t seen = 0;
    size_t next = 0;
    do {
        size_t i = next, tried = 0;
        for (; tried < n && !here(s, table[i].key, table[i].size); tried++) i = i + 1 == n ? 0 : i + 1;
        if (tried == n || seen & (uint32_t)1 << i) return false;
        seen |= (uint32_t)1 << i;
        s->at += table[i].size;
        if (!one_field(s, &table[i], out)) return false;
        next = i + 1 == n ? 0 : i + 1;
    } while (WORD(s, ","));
    return WORD(s, "}");
}

static bool begin(struct scan *s, const char *line, size_t size, const char *start, size_t n)
{
    *s = (struct scan){line, line + size};
    return size > n && line[size - 1] == '}' && word(s, start, n);
}
#define BEGIN(s, line, size, literal) begin(s, line, size, literal, sizeof literal - 1)

bool zf_scan_step(struct zf_number_line *out, const char *line, size_t size)
{
    struct scan s;
    out->present = out->groups = 0;
    out->has_step = out->has_groups = false;
    return BEGIN(&s, line, size, "{\"type\":\"step\",") && fields(&s, step_fields, STEP_FIELDS, out) && s.at == s.end;
}

bool zf_scan_gpu(struct zf_number_line *out, const char *line, size_t size)
{
    struct scan s;
    out->present = out->groups = out->index = 0;
    out->has_step = out->has_groups = false;
    return BEGIN(&s, line, size, "{\"type\":\"gpu\",") && fields(&s, gpu_fields, sizeof gpu_fields / sizeof *gpu_fields, out) &&
           s.at == s.end;
}

/* ---- channels ---- */

/* Of plain ASCII without escapes. */
static bool name(struct scan *s, const char **text, size_t *size)
{
    if (!WORD(s, "\"")) return false;
    const char *p = s->at;
    while (p < s->end && *p >= ' ' && *p < 127 && *p != '"' && *p != '\\') p++;
    *text = s->at;
    *size = (size_t)(p - s->at);
    s->at = p;
    return WORD(s, "\"");
}

static bool floats(struct scan *s, float *to, size_t most, size_t *n)
{
    double x;
    *n = 0;
    if (!WORD(s, "[")) return false;
    if (WORD(s, "]")) return true;
    do {
        if (!value(s, &x)) return false;
        if (*n < most) to[(*n)++] = zf_history_float(x);
    } while (WORD(s, ","));
    return WORD(s, "]");
}

static bool pass_list(struct scan *s)
{
    const char *end = memchr(s->at, ']', (size_t)(s->end - s->at));
    if (!end || *s->at != '[') return false;
    s->at = end + 1;
    return true;
}

static bool score_rest(struct zf_history *h, struct scan *s, struct zf_channel_entry *x)
{
    bool pass = h->brief && x->matrix != h->map.matrix;
    if (!WORD(s, ",\"bins\":") || !(pass ? pass_list(s) : floats(s, x->bin, ZF_BINS_MOST, &x->bins)) || !WORD(s, ",\"top\":")) return false;
    return floats(s, x->top, ZF_TOPS_MOST, &x->tops) && WORD(s, ",\"selected_energy\":") && value(s, &x->energy) && WORD(s, "}");
}

static bool select_rest(struct zf_history *h, struct scan *s, struct zf_channel_entry *x, size_t *channels)
{
    uint64_t c;
    if (!WORD(s, ",\"selected\":") || !count(s, &x->selected) || !WORD(s, ",\"kept\":") || !value(s, &x->kept)) return false;
    if (!WORD(s, ",\"energy\":") || !value(s, &x->energy)) return false;
    if (WORD(s, "}")) return true;
    if (!WORD(s, ",\"channels\":[")) return false;
    x->has_channels = true;
    if (!WORD(s, "]")) {
        do {
            if (!count(s, &c) || c > UINT32_MAX || !zf_history_channel(h, *channels, (uint32_t)c)) return false;
            (*channels)++;
            x->channels++;
        } while (WORD(s, ","));
        if (!WORD(s, "]")) return false;
    }
    return WORD(s, "}");
}

bool zf_scan_channels(struct zf_history *h, struct zf_channel_line *out, const char *line, size_t size)
{
    struct scan s;
    size_t hint = 0, channels = 0, length;
    const char *text;
    *out = (struct zf_channel_line){.score = BEGIN(&s, line, size, "{\"type\":\"score\",\"step\":")};
    if (!out->score && !BEGIN(&s, line, size, "{\"type\":\"select\",\"step\":")) return false;
    if (!count(&s, &out->step) || !WORD(&s, ",\"matrices\":[")) return false;
    do {
        struct zf_channel_entry *x = zf_history_entry(h, out->entries);
        if (!x || !WORD(&s, "{\"name\":") || !name(&s, &text, &length)) return false;
        x->matrix = zf_history_matrix(h, text, length, &hint);
        x->channel_at = channels;
        if (!(out->score ? score_rest(h, &s, x) : select_rest(h, &s, x, &channels))) return false;
        out->entries++;
    } while (WORD(&s, ","));
    return WORD(&s, "]}") && s.at == s.end;
}
