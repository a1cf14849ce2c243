/* What the files of this room share: formats, what is counted, where a record came from. */
#ifndef ZF_DATA_DATA_H
#define ZF_DATA_DATA_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order of the option `format`. */
enum zf_data_format { ZF_DATA_AUTO, ZF_DATA_TEXT, ZF_DATA_JSONL, ZF_DATA_JSON, ZF_DATA_TSV, ZF_DATA_CSV, ZF_DATA_TOKENS };
const char *zf_data_format_name(enum zf_data_format f);

/* A record or a document: which of the files, and where it begins there (line from 1; of `tokens`, the row from 0). */
struct zf_source {
    uint64_t line;
    uint32_t file;
    uint32_t tokens; /* of the document that stands in a row */
};

#define ZF_SOURCE_CHOSEN 0x80000000u /* in zf_source.file, of a dataset with every_choice: the record's own choice */

enum { ZF_LENGTH_BINS = 24 }; /* bin b: documents of 2^b .. 2^(b+1)-1 tokens */

/* Everything that is cut, dropped, left out or suspicious is counted, and shown before training. Numbers only, so that it can be stored as
 * it is. A document is what a record, or a text file's part, became. */
struct zf_data_stats {
    uint64_t records, documents, rows, tokens, label_tokens;
    uint64_t longest_row, longest_document; /* tokens; the document before long_rows acts */
    uint64_t empty;                         /* records without any text, left out */
    uint64_t bad;                           /* records that cannot be read, left out (skip_bad) */
    uint64_t empty_files;
    uint64_t truncated, split, dropped; /* documents longer than a row, by what was done to them */
    uint64_t cut_tokens;                /* lost by truncated and dropped */
    uint64_t duplicates;                /* documents equal, token for token, to an earlier one */
    uint64_t unlabelled;                /* documents without any token to train on */
    uint64_t unanswered;                /* records whose answers are all empty: only their end is trained */
    uint64_t spelled_specials;          /* records whose content spells a special token; it was taken as ordinary text */
    uint64_t recognised;                /* special tokens written in texts and taken as such */
    uint64_t lengths[ZF_LENGTH_BINS];
    struct zf_source first_long, first_bad, first_unlabelled; /* where the first of them is; file and line only */
};

/* The list of counters, from which notes, tables and JSON are made; ends with a name of NULL. */
struct zf_data_counter {
    const char *name, *meaning; /* of people's words: "NUMBER MEANING" */
    size_t offset, first;       /* in struct zf_data_stats: the number; the place of the first of them, 0 where it is not known */
    bool noted;                 /* told before training, unless it is 0 */
};
extern const struct zf_data_counter zf_data_counters[];
uint64_t zf_stats_count(const struct zf_data_stats *s, const struct zf_data_counter *c);

void zf_stats_document(struct zf_data_stats *s, uint64_t tokens);                                /* documents, lengths, longest */
void zf_stats_first(uint64_t *counter, struct zf_source *first, const struct zf_source *source); /* one more; where, if it is the first */

/* Where a record is, in words: "FILE:LINE", or "FILE row N" of tokens, in `to`, which it returns. file: "" to leave it out. */
const char *zf_source_place(char *to, size_t room, enum zf_data_format format, const char *file, uint64_t line);

#endif
