/* Inside the reader: a buffer over the open file, and one scanner a format, which finds where the thing at the front of the buffer ends.
 * Scanners remember how far they looked, so that every byte is looked at once however it arrives. */
#ifndef ZF_DATA_READER_IMPL_H
#define ZF_DATA_READER_IMPL_H

#include "core/data/reader.h"

/* Bytes that tell what a file is, bytes of one read, ZF_RECORD_LIMIT, ZF_TEXT_PIECE: variables so that tests can make them small. */
extern size_t zf_reader_head, zf_reader_block, zf_reader_limit, zf_reader_piece;

enum { ZF_COLUMNS_MOST = 4096 };

enum zf_found {
    ZF_FOUND_MORE,   /* its end is not in the buffer; never said when the file has ended */
    ZF_FOUND_RECORD, /* `size` bytes; `next` bytes of the file with its end mark */
    ZF_FOUND_GAP,    /* `next` bytes between records */
    ZF_FOUND_BAD,    /* `next` bytes that are no record; the error says why */
    ZF_FOUND_END     /* nothing but the file's end */
};

struct zf_find {
    size_t size, next;
    bool last; /* of text: the document ends here; else true */
};

struct zf_json_scan {
    enum { ZF_JSON_START, ZF_JSON_FIRST, ZF_JSON_NEXT, ZF_JSON_ELEMENT, ZF_JSON_AFTER, ZF_JSON_ENDED } state;
    uint64_t depth;
    bool begun, string, escape; /* of the element */
};

struct zf_csv_scan {
    enum { ZF_CSV_FIELD, ZF_CSV_PLAIN, ZF_CSV_QUOTED, ZF_CSV_QUOTE, ZF_CSV_QUOTE_CR } state;
    size_t fields;       /* complete ones */
    size_t opened, text; /* where a quote was opened; where text follows a closed one + 1, 0: nowhere */
    size_t count;        /* fields of the record that was found */
    size_t bad;          /* `text` of it */
};

struct zf_text_scan {
    bool inside;       /* a piece of the document was delivered */
    bool found;        /* its end is known */
    size_t end, next;  /* found: as in zf_find; else the end of its last whole line */
    bool filled;       /* "blank": the line at `scan` is not blank */
    size_t blank_size; /* else its size so far */
    size_t aim;        /* bytes in which to look for a place to cut; 0: a piece */
};

enum zf_documents { ZF_DOCUMENTS_FILE, ZF_DOCUMENTS_BLANK, ZF_DOCUMENTS_SEPARATOR };

struct zf_reader {
    struct zf_reader_options o;
    enum zf_documents documents;
    size_t file; /* the open one, or the next to open */
    int fd;      /* -1: none is open */
    char *buffer;
    size_t begin, end, room;       /* of the buffer; begin..end are not consumed */
    uint64_t offset, line, column; /* of `begin` in the file */
    uint64_t bytes, empty_files;
    bool eof;
    bool skip;   /* the thing at the front is bad: drop it as it arrives */
    bool done;   /* the rest of the file is of no use */
    bool any;    /* the file has more than white space */
    size_t scan; /* bytes from `begin` that were looked at */
    struct zf_json_scan json;
    struct zf_csv_scan csv;
    struct zf_text_scan text;
    bool header;               /* tsv, csv: the next record is the header */
    struct zf_header *headers; /* of all files so far, the open one's first: records point to them */
};

static inline bool zf_reader_white(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static inline const char *zf_reader_front(const struct zf_reader *r, size_t *size)
{
    *size = r->end - r->begin;
    return r->buffer + r->begin;
}

/* ZF_FOUND_BAD, with FILE:LINE:COLUMN of the byte at `offset` from the front as the place; ZF_WHOLE: FILE:LINE of the front. */
#define ZF_WHOLE SIZE_MAX
enum zf_found zf_reader_bad(const struct zf_reader *r, size_t offset, struct zf_err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* A file that begins like something that is no data: what it is, and what to do about it; else NULL. */
struct zf_other {
    const char *what, *todo;
};
const struct zf_other *zf_other_file(const char *head, size_t size);

/* Scanners. *e is ZF_FORMAT where they find something bad; any other code is for good. */
enum zf_found zf_scan_line(struct zf_reader *r, struct zf_find *f, struct zf_err *e);
enum zf_found zf_scan_json(struct zf_reader *r, struct zf_find *f, struct zf_err *e);
enum zf_found zf_scan_csv(struct zf_reader *r, struct zf_find *f, struct zf_err *e);
enum zf_found zf_scan_text(struct zf_reader *r, struct zf_find *f, struct zf_err *e);

/* A record of tsv or csv that was found whole: GAP if it is the header, which is taken, or blank. */
enum zf_found zf_table_accept(struct zf_reader *r, struct zf_find *f, struct zf_err *e);
const struct zf_columns *zf_table_columns(const struct zf_reader *r); /* of the open file */
void zf_table_free(struct zf_reader *r);

#endif
