/* Any bytes as files of data. The first byte chooses the format, how documents are set apart, and the limits; what comes out must not
 * depend on the size of the reads. */
#include "tests/data/reader_log.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *read_with(const struct zf_reader_options *o, size_t block)
{
    struct zf_err e;
    zf_reader_block = block;
    zf_reader_head = 10; /* a BOM and the longest of what tells a kind */
    char *said = reader_log(o, &e);
    if (!said) abort();
    return said;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum zf_data_format formats[] = {ZF_DATA_TEXT, ZF_DATA_JSONL, ZF_DATA_JSON, ZF_DATA_TSV, ZF_DATA_CSV};
    static const char *const documents[] = {"file", "blank", "--"};
    static int fd = -1;
    static char path[64];
    const char *file = path;
    if (!size) return 0;
    if (fd < 0) {
        fd = memfd_create("data", 0);
        if (fd < 0) abort();
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) || pwrite(fd, data + 1, size - 1, 0) != (ssize_t)size - 1) abort();
    struct zf_reader_options o = {.files = &file,
                                  .file_count = 1,
                                  .format = formats[data[0] % 5],
                                  .documents = documents[data[0] / 5 % 3],
                                  .cut = cut_at_space,
                                  .any_bytes = data[0] / 15 % 8 == 7};
    zf_reader_limit = data[0] / 15 % 2 ? 32 : ZF_RECORD_LIMIT;
    zf_reader_piece = data[0] / 15 % 2 ? 8 : 256;
    char *whole = read_with(&o, 8192), *parts = read_with(&o, 1 + size % 7);
    if (strcmp(whole, parts)) abort();
    free(whole);
    free(parts);
    return 0;
}
