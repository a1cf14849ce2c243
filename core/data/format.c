/* The format of a file: by its extension and, where people use the same one for two, by its first character. */
#include "core/data/reader_impl.h"

#include "core/base/file.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 4096 };

static const struct {
    const char *extension;
    enum zf_data_format format;
} extensions[] = {
    {".txt", ZF_DATA_TEXT},  {".text", ZF_DATA_TEXT}, {".md", ZF_DATA_TEXT}, {".jsonl", ZF_DATA_JSONL}, {".ndjson", ZF_DATA_JSONL},
    {".json", ZF_DATA_JSON}, {".tsv", ZF_DATA_TSV},   {".tab", ZF_DATA_TSV}, {".csv", ZF_DATA_CSV},     {".safetensors", ZF_DATA_TOKENS},
};

/* What people take for data by mistake. */
static const struct other {
    const char *extension; /* NULL: told by its bytes only */
    const char *magic;
    struct zf_other is;
} others[] = {
    {".gz", "\x1F\x8B", {"compressed by gzip", "unpack it first (gunzip)"}},
    {".zst", "\x28\xB5\x2F\xFD", {"compressed by zstd", "unpack it first (unzstd)"}},
    {".xz",
     "\xFD"
     "7zXZ",
     {"compressed by xz", "unpack it first (unxz)"}},
    {".bz2", "BZh91AY", {"compressed by bzip2", "unpack it first (bunzip2)"}},
    {".zip", "PK\3\4", {"a zip archive", "unpack it first (unzip)"}},
    {".parquet", "PAR1", {"a Parquet file", "write it as jsonl first (pandas: read_parquet, to_json(orient='records', lines=True))"}},
    {".arrow", "ARROW1", {"an Arrow file", "write it as jsonl first (datasets: to_json)"}},
    {NULL, "\xFF\xFE", {"UTF-16 text", "expected UTF-8: convert it (iconv -f UTF-16 -t UTF-8)"}},
    {NULL, "\xFE\xFF", {"UTF-16 text", "expected UTF-8: convert it (iconv -f UTF-16 -t UTF-8)"}},
};

const struct zf_other *zf_other_file(const char *head, size_t size)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t n = strlen(others[i].magic);
        if (size >= n && !memcmp(head, others[i].magic, n)) return &others[i].is;
    }
    return NULL;
}

const char *zf_data_format_name(enum zf_data_format f)
{
    static const char *const names[] = {"auto", "text", "jsonl", "json", "tsv", "csv", "tokens"};
    return (size_t)f < sizeof names / sizeof *names ? names[f] : "?";
}

static enum zf_status read_head(char head[HEAD], size_t *size, const char *file, struct zf_err *e)
{
    struct stat st;
    int fd;
    *size = 0;
    if (zf_file_open(&fd, &st, file, e)) return zf_unreadable(e);
    ssize_t n = 1;
    while (*size < HEAD && n) {
        n = read(fd, head + *size, HEAD - *size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            zf_fail_errno(e, file, "cannot read it");
            close(fd);
            return zf_unreadable(e);
        }
        *size += (size_t)n;
    }
    close(fd);
    return ZF_OK;
}

/* An array is json; objects are jsonl, unless the first one goes on in the next line (then json says that it is no array). */
static enum zf_data_format look(const char *s, size_t size, enum zf_data_format otherwise)
{
    size_t i = size >= 3 && !memcmp(s, "\xEF\xBB\xBF", 3) ? 3 : 0;
    while (i < size && zf_reader_white(s[i])) i++;
    if (i == size || (s[i] != '[' && s[i] != '{')) return otherwise;
    if (s[i++] == '[') return ZF_DATA_JSON;
    while (i < size && (s[i] == ' ' || s[i] == '\t' || s[i] == '\r')) i++;
    return otherwise == ZF_DATA_JSON && i < size && s[i] == '\n' ? ZF_DATA_JSON : ZF_DATA_JSONL;
}

/* Records under a name of text would be trained as they are written. What cannot be opened is said later, in its place. */
static enum zf_status check_text(const char *file, struct zf_err *e)
{
    char head[HEAD];
    size_t size, i;
    struct zf_err ignored;
    if (read_head(head, &size, file, &ignored)) return ZF_OK;
    if (!size || head[0] != '{') return ZF_OK;
    for (i = 1; i < size && head[i] == ' ';) i++;
    if (i == size || head[i] != '"') return ZF_OK;
    return zf_fail(e, ZF_USAGE, file,
                   "it looks like JSON lines; set format = jsonl, or format = text if it is to be learnt as it is written");
}

enum zf_status zf_data_format_find(enum zf_data_format *format, const char *file, struct zf_err *e)
{
    if (*format != ZF_DATA_AUTO) return ZF_OK;
    const char *name = strrchr(file, '/'), *dot = strrchr(name ? name + 1 : file, '.');
    for (size_t i = 0; dot && i < sizeof others / sizeof *others; i++) {
        if (!others[i].extension || strcasecmp(dot, others[i].extension)) continue;
        return zf_fail(e, ZF_USAGE, file, "%s files cannot be read; %s", dot, others[i].is.todo);
    }
    for (size_t i = 0; dot && i < sizeof extensions / sizeof *extensions; i++)
        if (!strcasecmp(dot, extensions[i].extension)) *format = extensions[i].format;
    if (*format == ZF_DATA_JSON || *format == ZF_DATA_JSONL) {
        char head[HEAD];
        size_t size;
        enum zf_status s = read_head(head, &size, file, e);
        *format = s ? ZF_DATA_AUTO : look(head, size, *format);
        return s;
    }
    if (*format == ZF_DATA_TEXT) return check_text(file, e);
    if (*format != ZF_DATA_AUTO) return ZF_OK;
    return zf_fail(e, ZF_USAGE, file,
                   "its format cannot be told from '%s'; expected .txt, .md, .jsonl, .json, .tsv, .csv or .safetensors: rename it or set "
                   "format = text, jsonl, json, tsv, csv or tokens",
                   dot ? dot : "a name without extension");
}
