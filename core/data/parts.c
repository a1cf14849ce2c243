/* The list of parts of one document and the storage of the texts that had to be made for it. Owned by one thread, reused from record to
 * record: clear keeps the memory, but not what a single huge record needed. */
#include "core/data/parts.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 << 10, KEPT = 1 << 20 }; /* bytes: a block at least; a block that is kept for the next record at most */

enum zf_status zf_parts_add(struct zf_parts *p, const struct zf_part *part, struct zf_err *e)
{
    if (part->id < 0 && !part->size) return ZF_OK;
    void *list = p->list;
    enum zf_status s = zf_grow(&list, &p->room, p->count + 1, sizeof *p->list, e);
    p->list = list;
    if (s != ZF_OK) return s;
    p->list[p->count++] = *part;
    return ZF_OK;
}

/* A further block; its memory may be there already, from an earlier record. */
static enum zf_status next_block(struct zf_parts *p, size_t size, struct zf_err *e)
{
    if (p->text_count == p->text_room) {
        size_t room = p->text_room;
        void *list = p->texts;
        enum zf_status s = zf_grow(&list, &p->text_room, room + 1, sizeof *p->texts, e);
        p->texts = list;
        if (s != ZF_OK) return s;
        memset(p->texts + room, 0, (p->text_room - room) * sizeof *p->texts);
    }
    struct zf_text *t = &p->texts[p->text_count];
    void *data = t->data;
    enum zf_status s = zf_grow(&data, &t->room, size < BLOCK ? BLOCK : size, 1, e);
    t->data = data;
    if (s != ZF_OK) return s;
    t->size = 0;
    p->text_count++;
    return ZF_OK;
}

enum zf_status zf_parts_text(struct zf_parts *p, size_t size, char **out, struct zf_err *e)
{
    struct zf_text *t = p->text_count ? &p->texts[p->text_count - 1] : NULL;
    if (!t || size > t->room - t->size) {
        ZF_TRY(next_block(p, size, e));
        t = &p->texts[p->text_count - 1];
    }
    *out = t->data + t->size;
    t->size += size;
    return ZF_OK;
}

void *zf_parts_array(struct zf_parts *p, size_t count, size_t element)
{
    struct zf_err e;
    char *at;
    size_t bytes;
    if (__builtin_mul_overflow(count, element, &bytes) || __builtin_add_overflow(bytes, alignof(max_align_t), &bytes)) return NULL;
    if (zf_parts_text(p, bytes, &at, &e) != ZF_OK) return NULL;
    return at + (-(uintptr_t)at & (alignof(max_align_t) - 1));
}

void zf_parts_clear(struct zf_parts *p)
{
    for (size_t i = 0; i < p->text_count; i++) {
        if (p->texts[i].room <= KEPT) continue;
        free(p->texts[i].data);
        p->texts[i] = (struct zf_text){0};
    }
    p->text_count = 0;
    p->count = 0;
    json_decref(p->json);
    p->json = NULL;
}

void zf_parts_free(struct zf_parts *p)
{
    for (size_t i = 0; i < p->text_room; i++) free(p->texts[i].data);
    free(p->texts);
    free(p->list);
    json_decref(p->json);
    *p = (struct zf_parts){0};
}
