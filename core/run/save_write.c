/* See save_write.h. */
#include "core/run/save_write.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/plan/memory.h"
#include "core/run/saves.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum zf_ckpt_type zf_save_type(enum zf_state_type t)
{
    static const enum zf_ckpt_type types[] = {[ZF_STATE_F32] = ZF_CKPT_F32,
                                              [ZF_STATE_BF16] = ZF_CKPT_BF16,
                                              [ZF_STATE_U32] = ZF_CKPT_U32,
                                              [ZF_STATE_I16] = ZF_CKPT_I16,
                                              [ZF_STATE_I32] = ZF_CKPT_I32};
    return types[t];
}

enum zf_status zf_save_room(const struct zf_state_piece *x, struct zf_save_buffer *b, struct zf_err *e)
{
    enum { BYTES = 4 << 20 };
    b->row = x->cols * zf_state_type_bytes(x->type);
    b->rows = b->row < BYTES ? BYTES / b->row : 1;
    if (b->rows * b->row <= b->room) return ZF_OK;
    void *grown = realloc(b->bytes, b->rows * b->row);
    if (!grown) return zf_fail_memory(e, "a checkpoint");
    b->bytes = grown;
    b->room = b->rows * b->row;
    return ZF_OK;
}

struct writer {
    struct zf_saving *s;
    struct zf_ckpt_writer *file;
    struct zf_pool *pool;
    struct zf_save_buffer buffer;
};

static enum zf_status put_piece(struct writer *w, const struct zf_state_piece *x, struct zf_err *e)
{
    const uint64_t shape[2] = {x->rows, x->cols};
    struct zf_save_buffer *b = &w->buffer;
    ZF_TRY(zf_save_room(x, b, e));
    ZF_TRY(zf_ckpt_begin(w->file, x->name, zf_save_type(x->type), 2, shape, e));
    for (size_t first = 0; first < x->rows; first += b->rows) {
        size_t n = x->rows - first < b->rows ? x->rows - first : b->rows;
        ZF_TRY(zf_state_read(&w->s->state, x, first, n, b->bytes, e));
        ZF_TRY(zf_ckpt_put(w->file, b->bytes, n * b->row, e));
        if (w->s->between) ZF_TRY(w->s->between(w->s->ctx, e)); /* signals are heard when it is written */
        if (w->s->cancelled) return zf_fail(e, ZF_STOPPED, w->s->path, "it is not written to its end");
    }
    return ZF_OK;
}

/* Training waits: as they are listed. */
static enum zf_status put_list(struct writer *w, struct zf_err *e)
{
    struct zf_state *s = &w->s->state;
    for (size_t i = 0; i < s->count; i++) ZF_TRY(put_piece(w, &s->list[i], e));
    return ZF_OK;
}

/* Training goes on: in the order in which the CPU will come to them. */
static enum zf_status put_parts(struct writer *w, struct zf_err *e)
{
    struct zf_state *s = &w->s->state;
    enum zf_status failed = ZF_OK;
    for (struct zf_state_part *x; !failed && (x = zf_state_next(s));) {
        for (size_t i = 0; !failed && i < x->pieces; i++) failed = put_piece(w, &x->first[i], e);
        zf_state_done(s, x);
    }
    return failed;
}

/* As many bytes as the last one and an eighth, or all that the first one could take: a disk that is nearly full is told before minutes of
 * compressing. */
static enum zf_status check_disk(const struct zf_saving *s, struct zf_err *e)
{
    uint64_t wanted = s->likely + s->likely / 8;
    for (size_t i = 0; i < s->state.count && !s->likely; i++)
        wanted += (uint64_t)s->state.list[i].rows * s->state.list[i].cols * zf_state_type_bytes(s->state.list[i].type);
    char need[32], have[32];
    uint64_t room = zf_file_room(s->path);
    if (wanted <= room) return ZF_OK;
    return zf_fail(e, ZF_IO, s->path, "about %s are needed, and %s are free there; make room, or lower `keep`",
                   zf_bytes_text(wanted, need, sizeof need), zf_bytes_text(room, have, sizeof have));
}

static enum zf_status write_file(struct writer *w, struct zf_err *e)
{
    struct zf_saving *s = w->s;
    ZF_TRY(check_disk(s, e));
    ZF_TRY(zf_pool_new(&w->pool, s->threads, e));
    struct zf_ckpt_options o = {.level = s->level, .pool = w->pool, .finite = true, .drop_pages = true, .counts = &s->counts};
    ZF_TRY(zf_ckpt_create(&w->file, s->path, &o, e));
    enum zf_status failed = s->state.gate ? put_parts(w, e) : put_list(w, e);
    if (failed) {
        zf_ckpt_abandon(w->file);
        return failed;
    }
    json_t *info = s->info;
    s->info = NULL;
    return zf_ckpt_finish(w->file, info, e);
}

json_t *zf_saving_entry(const struct zf_saving *s)
{
    return json_pack("{s:s s:I s:s s:I s:I s:f s:f}", "type", "checkpoint", "step", (json_int_t)s->step, "file", s->path, "bytes",
                     (json_int_t)s->counts.stored, "raw_bytes", (json_int_t)s->counts.raw, "stall_ms", 1e3 * s->stalled, "seconds",
                     s->ended - s->began);
}

void zf_saving_run(struct zf_saving *s)
{
    struct writer w = {.s = s};
    bool copy = s->state.gate != NULL;
    s->status = copy ? zf_state_ready(&s->state, &s->err) : ZF_OK;
    if (!s->status) s->status = write_file(&w, &s->err);
    if (copy) s->stalled += zf_state_waited(&s->state);
    if (copy) zf_state_over(&s->state);
    zf_pool_free(w.pool);
    free(w.buffer.bytes);
    s->ended = zf_clock();
    if (!copy) s->stalled = s->ended - s->began;
    if (!s->status) {
        s->unwritten = zf_journal_append(s->journal, zf_saving_entry(s), &s->err) != ZF_OK;
        zf_saves_keep(s->run, s->keep, s->keep_weights);
    }
    s->done = true;
}

static void *write_in_background(void *arg)
{
    enum { NICE = 10 };
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* of this thread and those that it starts; a wish */
    zf_saving_run(arg);
    return NULL;
}

enum zf_status zf_saving_start(struct zf_saving *s, struct zf_err *e)
{
    if (zf_thread_start(&s->thread, write_in_background, s)) return zf_fail(e, ZF_MEMORY, s->path, "the system refused a thread for it");
    pthread_setname_np(s->thread, "checkpoint");
    return ZF_OK;
}

void zf_saving_free(struct zf_saving *s)
{
    if (!s) return;
    zf_state_close(&s->state);
    json_decref(s->info);
    free(s->run);
    free(s->path);
    free(s);
}
