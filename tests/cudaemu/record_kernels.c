/* Prints how the product's kernels touch memory: per kernel and line. Shapes are small, but whole: rows of whole sectors, heads of 64. The
 * last column says what is worth a look; what a line is allowed is a matter for who reads the kernel.
 * usage: record_kernels [OP] */
#include "core/base/floats.h"
#include "kernels/ops.h"
#include "tests/cudaemu/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct zf_device_type zf_cuda_device;

enum { ROWS = 64, COLS = 512, HEADS = 2, HEAD_DIM = 64, WIDE = HEADS * HEAD_DIM, SIZE = ROWS * COLS };

static struct zf_device *device;
static struct zf_lane *lane;

static void check(enum zf_status s, struct zf_err *e, const char *what)
{
    if (!s) return;
    fprintf(stderr, "%s: %s\n", what, e->message);
    exit(1);
}

static void *take(size_t bytes)
{
    struct zf_err e;
    void *p;
    check(device->type->alloc(device, ZF_MEM_DEVICE, ZF_TAG_OTHER, bytes, &p, &e), &e, "memory");
    return p;
}

static void *put(const void *from, size_t bytes)
{
    struct zf_err e;
    void *p = take(bytes);
    device->type->copy(lane, p, from, bytes);
    check(device->type->lane_sync(lane, &e), &e, "a copy");
    return p;
}

/* Small numbers of either sign; what they are does not matter. */
static void *numbers(enum zf_dtype type)
{
    static float f[SIZE];
    static uint16_t h[SIZE];
    for (int i = 0; i < SIZE; i++) {
        f[i] = (float)(i * 37 % 101 - 50) / 100;
        h[i] = zf_f32_to_bf16(f[i]);
    }
    return type == ZF_BF16 ? put(h, sizeof h) : put(f, sizeof f);
}

static int32_t *places(int below)
{
    int32_t p[ROWS];
    for (int i = 0; i < ROWS; i++) p[i] = i * 7 % below;
    return put(p, sizeof p);
}

/* ---- ops ---- */

static enum zf_status op_add(enum zf_dtype t)
{
    struct zf_add_args a = {t, numbers(t), numbers(t), take(SIZE * 4), SIZE};
    return device->type->ops->add(lane, &a);
}
static enum zf_status op_embed(enum zf_dtype t)
{
    struct zf_embed_args a = {.type = t, .table = numbers(t), .index = places(ROWS), .y = take(SIZE * 4), .rows = ROWS, .cols = COLS};
    return device->type->ops->embed(lane, &a);
}
static enum zf_status op_norm(enum zf_dtype t)
{
    struct zf_norm_args a = {t,    ZF_RMSNORM, numbers(t), numbers(t), numbers(t), NULL, take(SIZE * 4), take(SIZE * 4), take(ROWS * 8),
                             ROWS, 1,          COLS,       COLS,       COLS,       1e-5f};
    return device->type->ops->norm(lane, &a);
}
static enum zf_status op_norm_backward(enum zf_dtype t)
{
    struct zf_norm_backward_args a = {t,    ZF_RMSNORM, numbers(t), numbers(t), numbers(t), numbers(ZF_F32), take(SIZE * 4), ROWS, 1,
                                      COLS, COLS,       COLS,       COLS,       false};
    return device->type->ops->norm_backward(lane, &a);
}
static enum zf_status op_norm_backward_weight(enum zf_dtype t)
{
    struct zf_norm_backward_weight_args a = {t, ZF_RMSNORM, numbers(t), numbers(t), numbers(ZF_F32), take(COLS * 4), NULL, ROWS,
                                             1, COLS,       COLS,       COLS};
    return device->type->ops->norm_backward_weight(lane, &a);
}
static enum zf_status op_rope(enum zf_dtype t)
{
    struct zf_rope_args a = {t, numbers(t), numbers(ZF_F32), places(ROWS), ROWS, COLS / HEAD_DIM, HEAD_DIM, COLS, false};
    return device->type->ops->rope(lane, &a);
}
static enum zf_status op_activation(enum zf_dtype t)
{
    struct zf_activation_args a = {t, ZF_SWIGLU, numbers(t), numbers(t), take(SIZE * 4), ROWS, COLS, COLS, COLS};
    return device->type->ops->activation(lane, &a);
}
static enum zf_status op_activation_backward(enum zf_dtype t)
{
    struct zf_activation_backward_args a = {t,    ZF_SWIGLU, numbers(t), numbers(t), numbers(t), take(SIZE * 4), take(SIZE * 4),
                                            ROWS, COLS,      COLS,       COLS,       COLS};
    return device->type->ops->activation_backward(lane, &a);
}
static enum zf_status op_attention(enum zf_dtype t)
{
    static const struct zf_segment s = {0, ROWS, 0, ROWS};
    struct zf_attention_args a = {t,        numbers(t), numbers(t), numbers(t), take(SIZE * 4), take(ROWS * HEADS * 4),
                                  &s,       1,          ROWS,       ROWS,       HEADS,          HEADS,
                                  HEAD_DIM, WIDE,       WIDE,       WIDE,       0.125f};
    return device->type->ops->attention(lane, &a);
}
static enum zf_status op_attention_backward(enum zf_dtype t)
{
    static const struct zf_segment s = {0, ROWS, 0, ROWS};
    struct zf_attention_backward_args a = {t,
                                           numbers(t),
                                           numbers(t),
                                           numbers(t),
                                           numbers(t),
                                           numbers(t),
                                           numbers(ZF_F32),
                                           take(SIZE * 4),
                                           take(SIZE * 4),
                                           take(SIZE * 4),
                                           take(ROWS * HEADS * 4),
                                           &s,
                                           1,
                                           ROWS,
                                           ROWS,
                                           HEADS,
                                           HEADS,
                                           HEAD_DIM,
                                           WIDE,
                                           WIDE,
                                           WIDE,
                                           WIDE,
                                           WIDE,
                                           WIDE,
                                           0.125f};
    return device->type->ops->attention_backward(lane, &a);
}
static enum zf_status op_cross_entropy(enum zf_dtype t)
{
    struct zf_cross_entropy_args a = {t, numbers(ZF_F32), places(COLS), take(ROWS * 4), ROWS, COLS, COLS, 0.01f, true};
    return device->type->ops->cross_entropy(lane, &a);
}
static enum zf_status op_sum_squares(enum zf_dtype t)
{
    struct zf_sum_squares_args a = {numbers(ZF_F32), take(64), SIZE};
    (void)t;
    return device->type->ops->sum_squares(lane, &a);
}
static enum zf_status op_adamw(enum zf_dtype t)
{
    struct zf_adamw_args a = {.type = t,
                              .weights = t == ZF_BF16 ? take(SIZE * 2) : NULL,
                              .master = take(SIZE * 4),
                              .m = take(SIZE * 4),
                              .v = take(SIZE * 4),
                              .g = numbers(ZF_F32),
                              .n = SIZE,
                              .t = 1,
                              .lr = 1e-3,
                              .beta1 = 0.9,
                              .beta2 = 0.99,
                              .eps = 1e-8,
                              .stochastic = t == ZF_BF16};
    return device->type->ops->adamw(lane, &a);
}
static enum zf_status op_row_sums(enum zf_dtype t)
{
    struct zf_row_sums_args a = {numbers(ZF_F32), take(ROWS * 16), ROWS, COLS, NULL};
    (void)t;
    return device->type->ops->row_sums(lane, &a);
}
static enum zf_status op_move_rows(enum zf_dtype t)
{
    struct zf_move_rows_args a = {t, ZF_F32, take(SIZE * 4), numbers(ZF_F32), NULL, (uint32_t *)(void *)places(ROWS), ROWS, COLS};
    return device->type->ops->move_rows(lane, &a);
}
static enum zf_status op_hand_over(enum zf_dtype t)
{
    struct zf_hand_over_args a = {.type = t,
                                  .bus_type = ZF_BF16,
                                  .g = numbers(ZF_F32),
                                  .list = (uint32_t *)(void *)places(ROWS),
                                  .packed = take(SIZE * 2),
                                  .rows = ROWS,
                                  .cols = COLS};
    return device->type->ops->hand_over(lane, &a);
}
static enum zf_status op_adamw_rows(enum zf_dtype t)
{
    struct zf_adamw_rows_args a = {.type = t,
                                   .bus_type = ZF_BF16,
                                   .weights = take(SIZE * 4),
                                   .master = take(SIZE * 4),
                                   .m = take(SIZE * 4),
                                   .v = take(SIZE * 4),
                                   .t = take(ROWS * 4),
                                   .list = (uint32_t *)(void *)places(ROWS),
                                   .g = numbers(ZF_F32),
                                   .rows = ROWS,
                                   .cols = COLS,
                                   .clip = 1,
                                   .lr = 1e-3,
                                   .beta1 = 0.9,
                                   .beta2 = 0.99,
                                   .eps = 1e-8,
                                   .stochastic = t == ZF_BF16};
    return device->type->ops->adamw_rows(lane, &a);
}

static const struct {
    const char *name;
    enum zf_status (*issue)(enum zf_dtype t);
} ops[] = {
#define OP(name) \
    { \
#name, op_##name \
    }
    OP(add),
    OP(embed),
    OP(norm),
    OP(norm_backward),
    OP(norm_backward_weight),
    OP(rope),
    OP(activation),
    OP(activation_backward),
    OP(attention),
    OP(attention_backward),
    OP(cross_entropy),
    OP(sum_squares),
    OP(adamw),
    OP(row_sums),
    OP(move_rows),
    OP(hand_over),
    OP(adamw_rows),
};

int main(int argc, char **argv)
{
    static const enum zf_dtype types[] = {ZF_F32, ZF_BF16};
    struct zf_err e = {0};
    int found = 0;
    setenv("CUDAEMU_SMS", "1", 1);
    check(zf_cuda_device.open(&device, &(struct zf_device_options){0}, &e), &e, "the device");
    check(device->type->lane_new(device, "record", &lane, &e), &e, "a lane");
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (int t = 0; t < 2 && (argc < 2 || !strcmp(argv[1], ops[i].name)); t++) {
            printf("%s, %s\n", ops[i].name, zf_dtype_name(types[t]));
            record_start();
            check(ops[i].issue(types[t]), &e, ops[i].name);
            check(device->type->lane_sync(lane, &e), &e, ops[i].name);
            record_stop();
            record_print(stdout);
            found++;
        }
    if (!found) {
        fprintf(stderr, "usage: record_kernels [OP]; there is no op '%s'\n", argv[1]);
        return 2;
    }
    return 0; /* the device's memory goes with the process */
}
