/* How fast a tokenizer is: bench_tokenizer FOLDER|bytes FILE... prints, for each file, MB/s of one thread over the whole text, over its
 * lines one by one with one encoder, and how long opening took. A measurement, not a test. */
#include "core/base/file.h"
#include "core/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { AT_LEAST = 16 << 20 }; /* bytes, by repetition */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static enum zf_status encode_lines(struct zf_encoder *c, const char *text, size_t size, const struct zf_encode_options *o,
                                   struct zf_ids *ids, struct zf_err *e)
{
    for (size_t at = 0, n; at < size; at += n) {
        const char *end = memchr(text + at, '\n', size - at);
        n = end ? (size_t)(end - text) - at + 1 : size - at;
        ZF_TRY(zf_encode(c, text + at, n, o, ids, e));
    }
    return ZF_OK;
}

static enum zf_status measure(const struct zf_tokenizer *t, const char *path, struct zf_err *e)
{
    struct zf_encode_options o = {.specials_in_text = true};
    struct zf_encoder *c;
    struct zf_ids ids = {0};
    char *text;
    size_t size, done = 0, whole = 0;
    double spent[2] = {0};
    ZF_TRY(zf_file_read(&text, &size, path, (size_t)1 << 32, e));
    enum zf_status s = zf_encoder_new(&c, t, e);
    for (int lines = 0; s == ZF_OK && lines < 2; lines++) {
        double start = now();
        for (done = 0; s == ZF_OK && size && done < AT_LEAST; done += size) {
            ids.count = 0;
            s = lines ? encode_lines(c, text, size, &o, &ids, e) : zf_encode(c, text, size, &o, &ids, e);
            if (!lines) whole = ids.count;
        }
        spent[lines] = now() - start;
    }
    if (s == ZF_OK && size) {
        printf("  %-40s %9zu bytes %9zu tokens  whole %6.1f MB/s  lines %6.1f MB/s\n", path, size, whole, (double)done / spent[0] / 1e6,
               (double)done / spent[1] / 1e6);
    }
    zf_encoder_free(c);
    free(ids.ids);
    free(text);
    return s;
}

int main(int count, char **words)
{
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    if (count < 3) {
        fprintf(stderr, "usage: %s FOLDER|bytes FILE...\n", words[0]);
        return ZF_USAGE;
    }
    double start = now();
    enum zf_status s = zf_tokenizer_open(&t, words[1], &e);
    printf("%s: opened in %.3f s\n", words[1], now() - start);
    for (int i = 2; s == ZF_OK && i < count; i++) s = measure(t, words[i], &e);
    zf_tokenizer_close(t);
    if (s != ZF_OK) zf_err_print(NULL, &e);
    return s;
}
