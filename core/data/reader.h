/* Files -> records, in order, through a buffer: memory does not grow with a file.
 *
 * A record is raw bytes of one file: a line of jsonl, an element of a json array, a record of tsv or csv (without the header), a document
 * of text. A document of text that is longer than a piece comes in several records, cut where the tokenizer allows it. One reader, one
 * thread. */
#ifndef ZF_DATA_READER_H
#define ZF_DATA_READER_H

#include "core/data/data.h"
#include "core/tokenizer/text.h"

enum {
    ZF_RECORD_LIMIT = 64 << 20,
    ZF_TEXT_PIECE = 1 << 20
}; /* bytes: longest record (or uncuttable piece of text); aim of a piece of text */

struct zf_reader_options {
    const char *const *files;
    size_t file_count;
    enum zf_data_format format;                                        /* TEXT, JSONL, JSON, TSV or CSV */
    const char *documents;                                             /* text: "file" (or NULL), "blank", or a separator */
    size_t (*cut)(const void *context, const char *text, size_t size); /* text: as zf_tokenizer_cut */
    const void *context;
    bool any_bytes;           /* text: bytes need not be UTF-8 (the tokenizer `bytes`) */
    const volatile int *stop; /* may be NULL; ZF_STOPPED soon after it becomes true, in the longest run of empty lines, too */
};

/* The header of a tsv or csv file. Owned by the reader, until it is closed. */
struct zf_columns {
    const char *const *names; /* unquoted, NUL-terminated */
    size_t count;
};

struct zf_record {
    uint32_t file;
    uint64_t line, column;            /* where it begins, from 1; a column is a character */
    size_t begin, size;               /* its bytes in the text it was read into; UTF-8, without BOM and line end */
    bool first, last;                 /* of text: the piece begins, ends its document; else both true */
    bool lost;                        /* with ZF_FORMAT: nothing behind it in this file can be read */
    const struct zf_columns *columns; /* tsv, csv */
};

struct zf_reader;
/* What the options point to must stay. All files are looked for here: ZF_FORMAT if one cannot be read, ZF_USAGE if two are the same. */
enum zf_status zf_reader_open(struct zf_reader **out, const struct zf_reader_options *o, struct zf_err *e);
void zf_reader_close(struct zf_reader *r);

/* Appends the next record's bytes to *into (which may move) and describes it; *more = false: there is none. Blank lines of jsonl, tsv and
 * csv are no records; an empty document of text is one of size 0. ZF_FORMAT with FILE:LINE:COLUMN as the place: this record cannot be read
 * (bad UTF-8, too long, an unclosed quote, another number of fields than the header); *out says which, and the next call goes on behind it
 * (of text: behind its document; behind the file where nothing in it can be told apart). Any other error is for good. */
enum zf_status zf_reader_next(struct zf_reader *r, struct zf_text *into, struct zf_record *out, bool *more, struct zf_err *e);

uint64_t zf_reader_empty_files(const struct zf_reader *r);
uint64_t zf_reader_bytes(const struct zf_reader *r); /* read so far, for progress */

/* The fields of a record of tsv or csv, unquoted: texts[i] of sizes[i] bytes for column i, as many as the header has (the reader has
 * checked), in the record or in `room`, which is as large as the record. tsv: a quote means nothing. csv: RFC 4180, quotes may hold commas,
 * line ends, doubled quotes. */
enum zf_status zf_csv_fields(enum zf_data_format format, const char *record, size_t size, size_t count, const char **texts, size_t *sizes,
                             char *room, struct zf_err *e);

/* AUTO -> what the file is, by its extension and, of .json and .jsonl, its first character. Others stay. ZF_USAGE where it cannot be told.
 */
enum zf_status zf_data_format_find(enum zf_data_format *format, const char *file, struct zf_err *e);

#endif
