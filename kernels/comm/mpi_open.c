/* Finds the module for MPI: beside the program, where it was installed, or where the system looks for libraries. */
#include "kernels/comm/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *open_beside(char *why, size_t size)
{
    char self[PATH_MAX], path[PATH_MAX + sizeof ZF_MPI_MODULE + 1];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    const char *const folders[] = {self, ZF_LIBDIR, ""};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s%s%s", folders[i], *folders[i] ? "/" : "", ZF_MPI_MODULE);
        if (*folders[i] && access(path, F_OK)) continue;
        void *found = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* plug-ins of MPI libraries look for their symbols everywhere */
        if (found) return found;
        const char *text = dlerror();
        snprintf(why, size, "%.400s", text ? text : path);
        if (*folders[i]) return NULL; /* it is there, and what it needs is not */
    }
    return NULL;
}

enum zf_status zf_mpi_comm_open(struct zf_comm **out, struct zf_device *d, const struct zf_comm_world *world, struct zf_err *e)
{
    char why[512] = "";
    struct zf_wire *wire;
    void *module = open_beside(why, sizeof why); /* stays open: MPI libraries do not like to be closed */
    const struct zf_mpi *mpi = module ? dlsym(module, "zf_mpi") : NULL;
    if (!mpi)
        return zf_fail(e, ZF_IO, ZF_MPI_MODULE,
                       "%s; ranks without a GPU exchange over MPI: install OpenMPI (package libopenmpi3 or libopenmpi-dev), and build with "
                       "-Dmpi=enabled",
                       why);
    if (mpi->abi != ZF_MPI_ABI)
        return zf_fail(e, ZF_USAGE, ZF_MPI_MODULE, "it is of another build (interface %u, not %d); install both anew", (unsigned)mpi->abi,
                       (int)ZF_MPI_ABI);
    ZF_TRY(mpi->open(&wire, world->rank, world->ranks, e));
    return zf_comm_over_wire(out, "MPI", d, wire, e);
}
