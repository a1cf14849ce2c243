/* What is counted of data: the one list of counters, how documents are counted, and where they come from in words. */
#include "core/data/data.h"

#include <stdio.h>
#include <string.h>

#define OF(member) offsetof(struct zf_data_stats, member)

const struct zf_data_counter zf_data_counters[] = {
    {"records", "read", OF(records)},
    {"documents", "made of them", OF(documents)},
    {"longest_document", "tokens", OF(longest_document)},
    {"empty", "records or documents without any text, left out", OF(empty), .noted = true},
    {"empty_files", "files without anything", OF(empty_files), .noted = true},
    {"bad", "records (of long text documents, the rest) that cannot be read, left out", OF(bad), OF(first_bad), true},
    {"truncated", "documents longer than a row, cut off", OF(truncated), OF(first_long), true},
    {"split", "documents longer than a row, made several", OF(split), OF(first_long), true},
    {"dropped", "documents longer than a row, left out", OF(dropped), OF(first_long), true},
    {"cut_tokens", "tokens lost by that", OF(cut_tokens), .noted = true},
    {"duplicates", "documents equal to an earlier one", OF(duplicates), .noted = true},
    {"unlabelled", "documents without a token to train on", OF(unlabelled), OF(first_unlabelled)},
    {"unanswered", "records with an empty answer: only its end is trained", OF(unanswered), .noted = true},
    {"spelled_specials", "records whose content spells a special token (taken as ordinary text)", OF(spelled_specials), .noted = true},
    {"recognised", "special tokens written in texts (taken as such)", OF(recognised), .noted = true},
    {NULL},
};

uint64_t zf_stats_count(const struct zf_data_stats *s, const struct zf_data_counter *c)
{
    uint64_t n;
    memcpy(&n, (const char *)s + c->offset, sizeof n);
    return n;
}

void zf_stats_document(struct zf_data_stats *s, uint64_t tokens)
{
    size_t bin = 63 - (size_t)__builtin_clzll(tokens | 1);
    s->documents++;
    s->lengths[bin < ZF_LENGTH_BINS ? bin : ZF_LENGTH_BINS - 1]++;
    if (tokens > s->longest_document) s->longest_document = tokens;
}

void zf_stats_first(uint64_t *counter, struct zf_source *first, const struct zf_source *source)
{
    if (!(*counter)++) *first = (struct zf_source){.line = source->line, .file = source->file & ~ZF_SOURCE_CHOSEN};
}

const char *zf_source_place(char *to, size_t room, enum zf_data_format format, const char *file, uint64_t line)
{
    char row[32];
    if (format != ZF_DATA_TOKENS) return zf_place(to, room, file, line, 0);
    int n = snprintf(row, sizeof row, "%srow %llu", *file ? " " : "", (unsigned long long)line);
    zf_place(to, room > (size_t)n ? room - (size_t)n : room, file, 0, 0);
    size_t used = strlen(to);
    snprintf(to + used, room - used, "%s", row);
    return to;
}
