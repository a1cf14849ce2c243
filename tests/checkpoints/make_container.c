/* Writes the standard checkpoint of the tests: make_container FILE. So tests/checkpoints/container-1.zfc was made; a new format version
 * gets a new file beside the old ones. */
#include "container_support.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct zf_err e;
    if (argc != 2) return fprintf(stderr, "usage: make_container FILE\n"), ZF_USAGE;
    enum zf_status s = write_standard(argv[1], &(struct zf_ckpt_options){.level = 1, .chunk = STANDARD_CHUNK}, 1 << 20, &e);
    if (s) zf_err_print(NULL, &e);
    return s;
}
