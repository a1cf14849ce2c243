/* What a save takes from the machine that trains: memory of the writer, which does not grow, and the page cache, which is left alone. */
#include "support.h"

#include "checkpoints/container_file.h"
#include "core/base/rng.h"
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>

enum { MIB = 1 << 20, THREADS = 3 };

/* `pieces` pieces of a mebibyte, each another one; `at` is called after each. */
static void write_pieces(const char *path, const struct zf_ckpt_options *o, size_t pieces, void (*at)(void *ctx, size_t piece), void *ctx)
{
    struct zf_ckpt_writer *w;
    struct zf_err e;
    uint64_t shape = MIB / sizeof(float) * pieces;
    float *data = malloc(MIB);
    assert_non_null(data);
    for (size_t i = 0; i < MIB / sizeof *data; i++) data[i] = (float)zf_normal(1, ZF_STREAM_INIT, 0, i);
    if (zf_ckpt_create(&w, path, o, &e) || zf_ckpt_begin(w, "master", ZF_CKPT_F32, 1, &shape, &e)) fail_msg("%s", e.message);
    for (size_t i = 0; i < pieces; i++) {
        data[0] = (float)i;
        if (zf_ckpt_put(w, data, MIB, &e)) fail_msg("%s", e.message);
        if (at) at(ctx, i);
    }
    if (zf_ckpt_finish(w, NULL, &e)) fail_msg("%s", e.message);
    free(data);
}

/* ---- page cache ---- */

static size_t cached_bytes(const char *path, size_t *size)
{
    struct zf_map m;
    struct zf_err e;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
    if (zf_map_open(&m, path, &e)) fail_msg("%s", e.message);
    size_t pages = (m.size + page - 1) / page;
    unsigned char *in = malloc(pages);
    assert_non_null(in);
    assert_int_equal(mincore((void *)(uintptr_t)m.data, m.size, in), 0);
    for (size_t i = 0; i < pages; i++) count += in[i] & 1;
    *size = m.size;
    free(in);
    zf_map_close(&m);
    return count * page;
}

static void test_page_cache(void **state)
{
    (void)state;
    const char *few = in_folder("few.zfc"), *many = in_folder("many.zfc");
    size_t size;
    write_pieces(few, &(struct zf_ckpt_options){0}, 8, NULL, NULL);
    write_pieces(many, &(struct zf_ckpt_options){.drop_pages = true}, 256, NULL, NULL);
    size_t left = cached_bytes(many, &size);
    assert_true(size > (size_t)256 * MIB);
    if (left > (size_t)128 * MIB) { /* a file system in memory keeps all, and there may be ones that do not tell */
        int fd = open(few, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(fsync(fd), 0);
        assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        close(fd);
        size_t stay = cached_bytes(few, &size);
        print_message("%zu MiB are left in the page cache; here %zu of %zu KiB stay in it whatever one asks for\n", left / MIB, stay >> 10,
                      size >> 10);
        if (stay > size / 2) skip();
        fail_msg("%zu MiB of a save are left in the page cache", left / MIB);
    }
    print_message("%zu of %zu MiB are left in the page cache\n", left / MIB, size / MIB);
}

/* ---- memory ---- */

static size_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

struct growth {
    size_t before, early, late;
};

static void look(void *ctx, size_t piece)
{
    struct growth *g = ctx;
    if (piece == 2 * THREADS) g->early = allocated();
    if (piece > 2 * THREADS) g->late = allocated();
}

static void test_memory(void **state)
{
    (void)state;
    struct growth g = {0};
    struct zf_pool *pool;
    struct zf_err e;
    mallopt(M_MMAP_THRESHOLD, 64 << 10); /* so that what other threads allocate is counted, too */
    g.before = allocated();
    void *block = malloc(MIB);
    bool told = block && allocated() >= g.before + MIB;
    free(block);
    if (!told) { /* a sanitizer's */
        print_message("the allocator does not say how much it has given out\n");
        skip();
    }
    assert_int_equal(zf_pool_new(&pool, THREADS, &e), ZF_OK);
    g.before = allocated() + MIB; /* the pieces' own buffer */
    write_pieces(in_folder("memory.zfc"), &(struct zf_ckpt_options){.level = 1, .pool = pool, .finite = true}, 96, look, &g);
    zf_pool_free(pool);
    size_t chunks = THREADS * 2 * zf_zfc_room(ZF_ZFC_CHUNK), tables = (size_t)THREADS * MIB;
    print_message("%zu KiB, of them %zu chunks; 90 MiB later %+ld KiB\n", (g.early - g.before) >> 10, chunks >> 10,
                  (long)(g.late - g.early) / 1024);
    assert_true(g.early - g.before <= chunks + tables);
    assert_true(g.late <= g.early + (64 << 10)); /* the index: a hundred bytes a chunk */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory), cmocka_unit_test(test_page_cache)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
