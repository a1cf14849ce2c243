/* safetensors, reading. The header is walked member by member: Jansson decodes each name and each entry, so that memory is bounded by one
 * entry and a finding can name the byte. The order of the checks is that of the reference reader; its names for the findings are in the
 * messages. Tensors point into the mapping, names into the arena: both live until zf_st_close. Reading from several threads is fine. */
#include "checkpoints/safetensors.h"

#include "core/base/floats.h"
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEADER_LIMIT 100000000u
#define ENTRY_LIMIT ((size_t)1 << 20) /* bytes of one entry's JSON: real ones have a hundred */
#define INTEGER_LIMIT ((uint64_t)1 << 53)
#define LENGTH_BYTES 8

static const struct {
    const char *name;
    unsigned bits;
} types[ZF_ST_TYPES] = {
    [ZF_ST_BOOL] = {"BOOL", 8},
    [ZF_ST_F4] = {"F4", 4},
    [ZF_ST_F6_E2M3] = {"F6_E2M3", 6},
    [ZF_ST_F6_E3M2] = {"F6_E3M2", 6},
    [ZF_ST_U8] = {"U8", 8},
    [ZF_ST_I8] = {"I8", 8},
    [ZF_ST_F8_E5M2] = {"F8_E5M2", 8},
    [ZF_ST_F8_E4M3] = {"F8_E4M3", 8},
    [ZF_ST_F8_E8M0] = {"F8_E8M0", 8},
    [ZF_ST_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [ZF_ST_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [ZF_ST_I16] = {"I16", 16},
    [ZF_ST_U16] = {"U16", 16},
    [ZF_ST_F16] = {"F16", 16},
    [ZF_ST_BF16] = {"BF16", 16},
    [ZF_ST_I32] = {"I32", 32},
    [ZF_ST_U32] = {"U32", 32},
    [ZF_ST_F32] = {"F32", 32},
    [ZF_ST_C64] = {"C64", 64},
    [ZF_ST_F64] = {"F64", 64},
    [ZF_ST_I64] = {"I64", 64},
    [ZF_ST_U64] = {"U64", 64},
};

struct reader {
    struct zf_safetensors *out;
    const unsigned char *data;
    size_t size;
    const char *path;
    const char *text; /* the header */
    size_t length, at;
    size_t tensor_room, metadata_room;
    bool has_metadata;
    struct zf_err *e;
};

const char *zf_st_type_name(enum zf_st_type t)
{
    return (unsigned)t < ZF_ST_TYPES ? types[t].name : "no type";
}

size_t zf_st_type_bits(enum zf_st_type t)
{
    return (unsigned)t < ZF_ST_TYPES ? types[t].bits : 0;
}

char *zf_st_escape(char *to, size_t room, const char *name)
{
    size_t n = 0;
    for (; *name && n + 8 < room; name++) {
        unsigned char c = (unsigned char)*name;
        if (c >= 0x20 && c < 0x7f && c != '\\')
            to[n++] = (char)c;
        else
            n += (size_t)sprintf(to + n, "\\x%02x", c);
    }
    strcpy(to + n, *name ? "..." : "");
    return to;
}

/* What the file is instead, as the end of a message; "" if there is no better idea. */
static const char *guess(const unsigned char *data, size_t size)
{
    static const struct {
        const char *start;
        size_t length;
        const char *text;
    } known[] = {
#define START(s, text) {s, sizeof s - 1, text}
        START("version https://git-lfs.github.com/spec/",
              ". It looks like a Git-LFS pointer, not the file itself: run `git lfs pull` in its repository, or download the file again"),
        START("PK\3\4",
              ". It looks like a zip or pickle as torch.save writes it (.bin, .pt, .ckpt): convert it to safetensors, or download the "
              "safetensors revision"),
        START("GGUF", ". It looks like a GGUF file: download the original model in safetensors"),
        START("\x1f\x8b", ". It looks like a gzip archive: unpack it"),
        START("\0\0\0\0\0\0\0\0", ". It begins with zeros, as an interrupted download leaves a file: download it again"),
        START("{", ". It looks like plain JSON, maybe the index of a sharded model"),
#undef START
    };
    if (size > LENGTH_BYTES && data[LENGTH_BYTES] == '{') return ""; /* a header is there: whatever is wrong, it is no other format */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (size >= known[i].length && !memcmp(data, known[i].start, known[i].length)) return known[i].text;
    if (size > 2 && data[0] == 0x80 && data[1] >= 2 && data[1] <= 5)
        return ". It looks like a pickle as older torch.save writes it (.bin, .pt, .ckpt): convert it to safetensors, or download the "
               "safetensors "
               "revision";
    size_t at = 0;
    while (at < size && at < 1024 && strchr(" \t\r\n", data[at]) && data[at]) at++;
    const char *text = (const char *)data + at;
    if ((size - at >= 9 && !strncasecmp(text, "<!doctype", 9)) || (size - at >= 5 && !strncasecmp(text, "<html", 5)))
        return ". It looks like an HTML page, as a download gets instead of a file (a login, an error): open it, then download again";
    return "";
}

static enum zf_status finding(struct reader *r, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static enum zf_status finding(struct reader *r, const char *name, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return zf_fail(r->e, ZF_FORMAT, r->path, "%s: %s", name, text);
}

/* Check 5 has many forms; each is one finding with a place. */
static enum zf_status not_as_expected(struct reader *r, size_t at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static enum zf_status not_as_expected(struct reader *r, size_t at, const char *fmt, ...)
{
    char text[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return finding(r, "InvalidHeaderDeserialization", "%s, at byte %zu of the file%s", text, LENGTH_BYTES + at, guess(r->data, r->size));
}

/* Index of the first byte that is not part of valid UTF-8; n if all is. */
static size_t utf8_end(const unsigned char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        unsigned c = s[i];
        size_t more = c < 0x80 ? 0 : c >= 0xc2 && c <= 0xdf ? 1 : (c & 0xf0) == 0xe0 ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : n;
        if (more >= n - i) return i;
        for (size_t k = 1; k <= more; k++) { /* the first one after these excludes overlong forms, surrogates, beyond 0x10ffff */
            unsigned low = k > 1       ? 0x80
                           : c == 0xe0 ? 0xa0
                           : c == 0xf0 ? 0x90
                                       : 0x80,
                     high = k > 1       ? 0xbf
                            : c == 0xed ? 0x9f
                            : c == 0xf4 ? 0x8f
                                        : 0xbf;
            if (s[i + k] < low || s[i + k] > high) return i;
        }
        i += more + 1;
    }
    return i;
}

/* The next byte after white space, 0 at the end. */
static char peek(struct reader *r)
{
    while (r->at < r->length && r->text[r->at] && strchr(" \t\r\n", r->text[r->at])) r->at++;
    return r->at < r->length ? r->text[r->at] : 0;
}

/* One value from the header, at most `limit` bytes of it. *wide: it has integers over 63 bits, which are reals in *out (and all others as
 * well). */
static enum zf_status decode(json_t **out, bool *wide, struct reader *r, size_t limit)
{
    size_t left = r->length - r->at, flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK;
    size_t span = left < limit ? left : limit;
    json_error_t at;
    *out = json_loadb(r->text + r->at, span, flags, &at);
    *wide = !*out && json_error_code(&at) == json_error_numeric_overflow;
    if (*wide) *out = json_loadb(r->text + r->at, span, flags | JSON_DECODE_INT_AS_REAL, &at);
    if (*out) {
        r->at += (size_t)at.position;
        return ZF_OK;
    }
    if (json_error_code(&at) == json_error_out_of_memory) return zf_fail_memory(r->e, r->path);
    if (span < left && (size_t)at.position >= span - 4) return not_as_expected(r, r->at, "an entry of more than %zu bytes", limit);
    char text[2 * sizeof at.text];
    return not_as_expected(r, r->at + (size_t)at.position, "no valid JSON: %s", zf_st_escape(text, sizeof text, at.text));
}

static enum zf_status decode_string(const char **out, struct reader *r, const char *what)
{
    json_t *v;
    bool wide;
    if (peek(r) != '"') return not_as_expected(r, r->at, "%s, a string in quotes, is expected", what);
    ZF_TRY(decode(&v, &wide, r, SIZE_MAX));
    *out = zf_arena_strndup(&r->out->arena, json_string_value(v), json_string_length(v));
    json_decref(v);
    return *out ? ZF_OK : zf_fail_memory(r->e, r->path);
}

typedef enum zf_status member(struct reader *r, const char *key);

static enum zf_status walk_object(struct reader *r, const char *what, member *each)
{
    if (peek(r) != '{') return not_as_expected(r, r->at, "%s, an object in braces, is expected", what);
    r->at++;
    bool first = true;
    while (!(first && peek(r) == '}')) {
        const char *key;
        ZF_TRY(decode_string(&key, r, "a name"));
        if (peek(r) != ':') return not_as_expected(r, r->at, "a colon is expected after a name");
        r->at++;
        ZF_TRY(each(r, key));
        if (peek(r) == '}') break;
        if (peek(r) != ',') return not_as_expected(r, r->at, "a comma or a closing brace is expected");
        r->at++;
        first = false;
    }
    r->at++;
    return ZF_OK;
}

/* Room for one more in *list. The counts are bounded by the bytes of the header. */
static bool grow(void **list, size_t *room, size_t count, size_t each)
{
    if (count < *room) return true;
    size_t want = *room ? 2 * *room : 64;
    void *p = realloc(*list, want * each);
    if (!p) return false;
    *list = p;
    *room = want;
    return true;
}

static enum zf_status read_metadata(struct reader *r, const char *key)
{
    struct zf_safetensors *o = r->out;
    const char *value;
    ZF_TRY(decode_string(&value, r, "a value of __metadata__"));
    void *list = o->metadata;
    bool ok = grow(&list, &r->metadata_room, o->metadata_count, 2 * sizeof *o->metadata);
    o->metadata = list;
    if (!ok) return zf_fail_memory(r->e, r->path);
    o->metadata[2 * o->metadata_count] = key;
    o->metadata[2 * o->metadata_count + 1] = value;
    o->metadata_count++;
    return ZF_OK;
}

/* A non-negative integer. With `wide` it may have passed through a double; then it ends as a finding of the later checks, as it is beyond
 * every file. */
static bool decode_integer(uint64_t *out, bool *huge, const json_t *v, bool wide)
{
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *out = (uint64_t)json_integer_value(v);
        return true;
    }
    double d = wide && json_is_real(v) ? json_real_value(v) : -1;
    if (!(d >= 0 && d <= 0x1p64) || d != floor(d)) return false;
    *out = d < 0x1p64 ? (uint64_t)d : UINT64_MAX;
    if (*out > INTEGER_LIMIT) *huge = true;
    return true;
}

/* Fills t from the entry; offset and bytes hold data_offsets until check_layout. Keys that nobody knows are ignored, as the reference does.
 */
static const char *decode_entry(struct zf_st_tensor *t, const json_t *v, bool wide)
{
    const json_t *type = json_object_get(v, "dtype"), *shape = json_object_get(v, "shape"), *offsets = json_object_get(v, "data_offsets");
    const char *name = json_string_value(type);
    bool huge = false;
    uint64_t x[2], d;
    if (!name || strlen(name) != json_string_length(type)) return "has no \"dtype\" that is a string";
    size_t k = 0;
    while (k < ZF_ST_TYPES && strcmp(types[k].name, name)) k++;
    if (k == ZF_ST_TYPES) return "has a \"dtype\" that is unknown";
    t->type = (enum zf_st_type)k;
    if (!json_is_array(shape)) return "has no \"shape\" that is an array";
    t->rank = json_array_size(shape);
    if (t->rank > ZF_ST_DIMENSIONS) return "has a \"shape\" of more than 16 dimensions";
    for (size_t i = 0; i < t->rank; i++) {
        if (!decode_integer(&d, &huge, json_array_get(shape, i), wide))
            return "has a \"shape\" with something that is no non-negative integer";
        t->shape[i] = d;
    }
    if (json_array_size(offsets) != 2) return "has no \"data_offsets\" of two integers";
    for (size_t i = 0; i < 2; i++)
        if (!decode_integer(&x[i], &huge, json_array_get(offsets, i), wide))
            return "has \"data_offsets\" with something that is no non-negative integer";
    if (wide && !huge) return "has a number that is too big";
    t->offset = x[0];
    t->bytes = x[1];
    return NULL;
}

static enum zf_status read_member(struct reader *r, const char *key)
{
    struct zf_safetensors *o = r->out;
    char shown[160];
    if (!strcmp(key, "__metadata__")) {
        if (r->has_metadata) return not_as_expected(r, r->at, "the key \"__metadata__\" is there twice");
        r->has_metadata = true;
        if (peek(r) == 'n' && r->length - r->at >= 4 && !memcmp(r->text + r->at, "null", 4)) {
            r->at += 4;
            return ZF_OK;
        }
        return walk_object(r, "__metadata__", read_metadata);
    }
    zf_st_escape(shown, sizeof shown, key);
    if (peek(r) != '{') return not_as_expected(r, r->at, "the entry of tensor \"%s\", an object in braces, is expected", shown);
    size_t start = r->at;
    json_t *v;
    bool wide;
    if (decode(&v, &wide, r, ENTRY_LIMIT)) {
        char why[sizeof r->e->message];
        memcpy(why, r->e->message, sizeof why);
        return zf_fail(r->e, r->e->code, r->path, "%.1200s; in the entry of tensor \"%s\"", why, shown);
    }
    struct zf_st_tensor t = {.name = key};
    const char *wrong = decode_entry(&t, v, wide);
    json_decref(v);
    if (wrong) return not_as_expected(r, start, "tensor \"%s\" %s", shown, wrong);
    void *list = o->list;
    bool ok = grow(&list, &r->tensor_room, o->count, sizeof t);
    o->list = list;
    if (!ok) return zf_fail_memory(r->e, r->path);
    o->list[o->count++] = t;
    return ZF_OK;
}

/* Checks 1 to 4: the eight bytes and the span of the header. */
static enum zf_status check_frame(struct reader *r)
{
    const char *is = guess(r->data, r->size);
    uint64_t n = 0;
    if (!r->size) return finding(r, "HeaderTooSmall", "the file is empty; the download or copy has not happened: repeat it");
    if (r->size < LENGTH_BYTES)
        return finding(r, "HeaderTooSmall", "the file has %zu bytes; a safetensors file has at least 8%s", r->size,
                       *is ? is : ". Download or copy it again");
    for (size_t i = 0; i < LENGTH_BYTES; i++) n |= (uint64_t)r->data[i] << (8 * i);
    if (n > HEADER_LIMIT)
        return finding(r, "HeaderTooLarge",
                       "its first 8 bytes announce a header of %llu bytes; the format allows %u, and the file has %zu%s",
                       (unsigned long long)n, HEADER_LIMIT, r->size, is);
    if (n > r->size - LENGTH_BYTES) {
        unsigned long long need = LENGTH_BYTES + n;
        return finding(r, "InvalidHeaderLength", "its header ends at byte %llu, the file at byte %zu: truncated by at least %llu bytes%s",
                       need, r->size, need - r->size, *is ? is : ". Download or copy it again");
    }
    r->text = (const char *)r->data + LENGTH_BYTES;
    r->length = (size_t)n;
    size_t valid = utf8_end(r->data + LENGTH_BYTES, r->length);
    if (valid < r->length)
        return finding(r, "InvalidHeader", "the header is not UTF-8 at byte %zu of the file%s", LENGTH_BYTES + valid, is);
    return ZF_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct zf_st_tensor *const *)a)->name, (*(struct zf_st_tensor *const *)b)->name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_offset(const void *a, const void *b)
{
    const struct zf_st_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Check 5: all of the header is decoded, and no name is there twice. */
static enum zf_status read_header(struct reader *r)
{
    struct zf_safetensors *o = r->out;
    char shown[160];
    ZF_TRY(walk_object(r, "the header", read_member));
    peek(r);
    if (r->at < r->length) return not_as_expected(r, r->at, "there is something after the header's closing brace");
    if (o->metadata_count) qsort(o->metadata, o->metadata_count, 2 * sizeof *o->metadata, by_key);
    for (size_t i = 1; i < o->metadata_count; i++)
        if (!strcmp(o->metadata[2 * i - 2], o->metadata[2 * i]))
            return finding(r, "InvalidHeaderDeserialization", "duplicate key: \"%s\" is there twice in __metadata__",
                           zf_st_escape(shown, sizeof shown, o->metadata[2 * i]));
    if (!o->count) return ZF_OK;
    qsort(o->list, o->count, sizeof *o->list, by_offset);
    o->sorted = zf_arena_alloc(&o->arena, o->count * sizeof *o->sorted);
    if (!o->sorted) return zf_fail_memory(r->e, r->path);
    for (size_t i = 0; i < o->count; i++) o->sorted[i] = &o->list[i];
    qsort(o->sorted, o->count, sizeof *o->sorted, by_name);
    for (size_t i = 1; i < o->count; i++)
        if (!strcmp(o->sorted[i - 1]->name, o->sorted[i]->name))
            return finding(r, "InvalidHeaderDeserialization",
                           "duplicate key: the header has two entries for tensor \"%s\"; one of them must go",
                           zf_st_escape(shown, sizeof shown, o->sorted[i]->name));
    return ZF_OK;
}

/* Checks 6 to 9 for one tensor, whose data must begin at `begin` of the data section. */
static enum zf_status check_tensor(struct reader *r, struct zf_st_tensor *t, uint64_t begin)
{
    char shown[160];
    unsigned long long b = t->offset, e = t->bytes, base = LENGTH_BYTES + r->length;
    uint64_t elements = 1, bits;
    zf_st_escape(shown, sizeof shown, t->name);
    if (b != begin || e < b)
        return finding(r, "InvalidOffset",
                       "tensor \"%s\": data_offsets [%llu, %llu], %s; %llu is where the data of the tensor before it ends (byte %llu "
                       "of the file)",
                       shown, b, e,
                       e < b       ? "the end is before the begin"
                       : b < begin ? "it overlaps the tensor before it"
                                   : "there is a hole before it",
                       (unsigned long long)begin, base + begin);
    bool over = false;
    for (size_t i = 0; i < t->rank; i++)
        over |= t->shape[i] > INTEGER_LIMIT || __builtin_mul_overflow(elements, (uint64_t)t->shape[i], &elements);
    if (over || __builtin_mul_overflow(elements, (uint64_t)types[t->type].bits, &bits))
        return finding(r, "ValidationOverflow",
                       "tensor \"%s\": the product of its shape does not fit into 64 bits or a dimension is over 2^53 "
                       "(data at byte %llu of the file)",
                       shown, base + b);
    if (bits % 8)
        return finding(r, "MisalignedSlice",
                       "tensor \"%s\": %llu elements of %u bits are no whole number of bytes (data at byte %llu of the file)", shown,
                       (unsigned long long)elements, types[t->type].bits, base + b);
    if (e - b != bits / 8)
        return finding(r, "TensorInvalidInfo",
                       "tensor \"%s\": data_offsets [%llu, %llu] are %llu bytes, its shape and type %s make %llu (data at byte %llu "
                       "of the file)",
                       shown, b, e, e - b, types[t->type].name, (unsigned long long)(bits / 8), base + b);
    t->elements = elements;
    return ZF_OK;
}

static enum zf_status check_layout(struct reader *r)
{
    struct zf_safetensors *o = r->out;
    uint64_t end = 0, room = r->size - LENGTH_BYTES - r->length;
    for (size_t i = 0; i < o->count; i++) {
        ZF_TRY(check_tensor(r, &o->list[i], end));
        end = o->list[i].bytes;
    }
    if (end > room) {
        char shown[160];
        size_t i = 0;
        while (o->list[i].bytes <= room) i++;
        return finding(r, "MetadataIncompleteBuffer",
                       "the file has %zu bytes and must have %llu more: truncated by %llu bytes; the first tensor cut is "
                       "\"%s\", whose data begins at byte %llu. Download or copy it again",
                       r->size, (unsigned long long)(end - room), (unsigned long long)(end - room),
                       zf_st_escape(shown, sizeof shown, o->list[i].name),
                       (unsigned long long)(LENGTH_BYTES + r->length + o->list[i].offset));
    }
    if (end < room)
        return finding(r, "MetadataIncompleteBuffer",
                       "the file has %zu bytes, %llu more than its tensors need: something follows the data at byte %llu", r->size,
                       (unsigned long long)(room - end), (unsigned long long)(r->size - (room - end)));
    const unsigned char *data = r->data + LENGTH_BYTES + r->length;
    for (size_t i = 0; i < o->count; i++) {
        struct zf_st_tensor *t = &o->list[i];
        t->bytes -= t->offset;
        t->data = data + t->offset;
        t->offset += LENGTH_BYTES + r->length;
    }
    return ZF_OK;
}

enum zf_status zf_st_parse(struct zf_safetensors *out, const unsigned char *data, size_t size, const char *path, struct zf_err *e)
{
    struct reader r = {.out = out, .data = data, .size = size, .path = path, .e = e};
    enum zf_status s;
    *out = (struct zf_safetensors){0};
    ZF_GOTO(failed, s, check_frame(&r));
    ZF_GOTO(failed, s, read_header(&r));
    ZF_GOTO(failed, s, check_layout(&r));
    return ZF_OK;
failed:
    zf_st_close(out);
    return s;
}

enum zf_status zf_st_open(struct zf_safetensors *out, const char *path, struct zf_err *e)
{
    struct zf_map map;
    *out = (struct zf_safetensors){0};
    if (zf_map_open(&map, path, e) != ZF_OK) return zf_unreadable(e);
    enum zf_status s = zf_st_parse(out, map.data, map.size, path, e);
    if (s)
        zf_map_close(&map);
    else
        out->map = map;
    return s;
}

void zf_st_close(struct zf_safetensors *s)
{
    free(s->list);
    free(s->metadata);
    zf_arena_free(&s->arena);
    zf_map_close(&s->map);
    *s = (struct zf_safetensors){0};
}

const struct zf_st_tensor *zf_st_find(const struct zf_safetensors *s, const char *name)
{
    struct zf_st_tensor key = {.name = name}, *at = &key;
    struct zf_st_tensor *const *found = s->count ? bsearch(&at, s->sorted, s->count, sizeof *s->sorted, by_name) : NULL;
    return found ? *found : NULL;
}

static enum zf_status check_range(const struct zf_st_tensor *t, size_t first, size_t n, struct zf_err *e)
{
    if (first <= t->elements && n <= t->elements - first) return ZF_OK;
    char shown[160];
    return zf_fail(e, ZF_FORMAT, NULL, "tensor \"%s\" has %zu elements; %zu from number %zu on are asked for",
                   zf_st_escape(shown, sizeof shown, t->name), t->elements, n, first);
}

/* A loop over elements of one type: x is the element, read without assuming alignment. */
#define EACH(type, expression) \
    for (size_t i = 0; i < n; i++) { \
        type x; \
        memcpy(&x, from + i * sizeof x, sizeof x); \
        to[i] = (expression); \
    } \
    return ZF_OK

enum zf_status zf_st_floats(float *to, const struct zf_st_tensor *t, size_t first, size_t n, struct zf_err *e)
{
    char shown[160];
    ZF_TRY(check_range(t, first, n, e));
    const unsigned char *from = t->data + first * (types[t->type].bits / 8);
    switch ((int)t->type) {
    case ZF_ST_F32: EACH(float, x);
    case ZF_ST_BF16: EACH(uint16_t, zf_bf16_to_f32(x));
    case ZF_ST_F16: EACH(uint16_t, zf_f16_to_f32(x));
    case ZF_ST_F64: EACH(double, (float)x);
    }
    return zf_fail(e, ZF_FORMAT, NULL, "tensor \"%s\" is %s; F32, BF16, F16 or F64 is needed here",
                   zf_st_escape(shown, sizeof shown, t->name), types[t->type].name);
}

enum zf_status zf_st_integers(int64_t *to, const struct zf_st_tensor *t, size_t first, size_t n, struct zf_err *e)
{
    char shown[160];
    ZF_TRY(check_range(t, first, n, e));
    const unsigned char *from = t->data + first * (types[t->type].bits / 8);
    switch ((int)t->type) {
    case ZF_ST_BOOL:
    case ZF_ST_U8: EACH(uint8_t, x);
    case ZF_ST_I8: EACH(int8_t, x);
    case ZF_ST_U16: EACH(uint16_t, x);
    case ZF_ST_I16: EACH(int16_t, x);
    case ZF_ST_U32: EACH(uint32_t, x);
    case ZF_ST_I32: EACH(int32_t, x);
    case ZF_ST_I64: EACH(int64_t, x);
    case ZF_ST_U64:
        for (size_t i = 0; i < n; i++) {
            uint64_t x;
            memcpy(&x, from + i * sizeof x, sizeof x);
            if (x > INT64_MAX)
                return zf_fail(e, ZF_FORMAT, NULL, "tensor \"%s\": element %zu is %llu, more than 2^63 - 1",
                               zf_st_escape(shown, sizeof shown, t->name), first + i, (unsigned long long)x);
            to[i] = (int64_t)x;
        }
        return ZF_OK;
    }
    return zf_fail(e, ZF_FORMAT, NULL, "tensor \"%s\" is %s; an integer type is needed here", zf_st_escape(shown, sizeof shown, t->name),
                   types[t->type].name);
}
