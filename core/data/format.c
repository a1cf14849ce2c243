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
    enum zf_data_format format; /* AUTO: none of ours; `todo` says what to do */
    const char *todo;
} extensions[] = {
    {".txt", ZF_DATA_TEXT},
    {".text", ZF_DATA_TEXT},
    {".md", ZF_DATA_TEXT},
    {".jsonl", ZF_DATA_JSONL},
    {".ndjson", ZF_DATA_JSONL},
    {".json", ZF_DATA_JSON},
    {".tsv", ZF_DATA_TSV},
    {".tab", ZF_DATA_TSV},
    {".csv", ZF_DATA_CSV},
    {".safetensors", ZF_DATA_TOKENS},
    {".gz", ZF_DATA_AUTO, "unpack it first (gunzip)"},
    {".zst", ZF_DATA_AUTO, "unpack it first (unzstd)"},
    {".xz", ZF_DATA_AUTO, "unpack it first (unxz)"},
    {".bz2", ZF_DATA_AUTO, "unpack it first (bunzip2)"},
    {".zip", ZF_DATA_AUTO, "unpack it first (unzip)"},
    {".parquet", ZF_DATA_AUTO, "write it as jsonl first (pandas: read_parquet, to_json(orient='records', lines=True))"},
    {".arrow", ZF_DATA_AUTO, "write it as jsonl first (datasets: to_json)"},
};

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

enum zf_status zf_data_format_find(enum zf_data_format *format, const char *file, struct zf_err *e)
{
    if (*format != ZF_DATA_AUTO) return ZF_OK;
    const char *name = strrchr(file, '/'), *dot = strrchr(name ? name + 1 : file, '.');
    for (size_t i = 0; dot && i < sizeof extensions / sizeof *extensions; i++) {
        if (strcasecmp(dot, extensions[i].extension)) continue;
        if (extensions[i].todo) return zf_fail(e, ZF_USAGE, file, "%s files cannot be read; %s", dot, extensions[i].todo);
        *format = extensions[i].format;
    }
    if (*format == ZF_DATA_JSON || *format == ZF_DATA_JSONL) {
        char head[HEAD];
        size_t size;
        enum zf_status s = read_head(head, &size, file, e);
        *format = s ? ZF_DATA_AUTO : look(head, size, *format);
        return s;
    }
    if (*format != ZF_DATA_AUTO) return ZF_OK;
    return zf_fail(e, ZF_USAGE, file,
                   "its format cannot be told from '%s'; expected .txt, .md, .jsonl, .json, .tsv, .csv or .safetensors: rename it or set "
                   "format = text, jsonl, json, tsv, csv or tokens",
                   dot ? dot : "a name without extension");
}
