/* What mpirun and srun say in the environment. */
#include "tests/world/support.h"

#include "core/world/launch.h"

struct variable {
    const char *name, *value;
};

static const char *value_of(void *ctx, const char *name)
{
    for (const struct variable *v = ctx; v->name; v++)
        if (!strcmp(v->name, name)) return v->value;
    return NULL;
}

static const struct row {
    struct variable variables[6];
    enum zf_status status;
    int rank, ranks;
    const char *launcher, *job;
} rows[] = {
    {{{NULL, NULL}}, ZF_OK, 0, 1, NULL, ""},
    {{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_NAMESPACE", "12@x"}}, ZF_OK, 3, 4, "mpirun", "mpirun.12-x"},
    {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}}, ZF_OK, 1, 2, "srun", "srun.77.0"},
    {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_ID", "77"}}, ZF_OK, 0, 1, NULL, ""},
    {{{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}}, ZF_OK, 0, 1, NULL, ""}, /* salloc's shell */
    /* mpirun in a batch script of Slurm */
    {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}},
     ZF_OK,
     5,
     8,
     "mpirun",
     "mpirun"},
    {{{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "2"}}, ZF_USAGE, 0, 0, NULL, NULL},
    {{{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "2"}}, ZF_USAGE, 0, 0, NULL, NULL},
    {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "100000"}}, ZF_USAGE, 0, 0, NULL, NULL},
};

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        struct zf_launch l;
        struct zf_err e = {0};
        assert_int_equal(zf_launch_read(&l, value_of, (void *)(uintptr_t)r->variables, &e), r->status);
        if (r->status) continue;
        assert_int_equal(l.rank, r->rank);
        assert_int_equal(l.ranks, r->ranks);
        assert_true(l.launcher == r->launcher || !strcmp(l.launcher, r->launcher));
        assert_string_equal(l.job, r->job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
