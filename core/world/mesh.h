/* A connection from each rank to each other one, over which ranks without a GPU exchange where there is no MPI: kernels/comm/wire.h over
 * TCP. */
#ifndef ZF_WORLD_MESH_H
#define ZF_WORLD_MESH_H

#include "core/world/world.h"
#include "kernels/comm/wire.h"

/* All ranks, at about the same time. The wire is the caller's. */
enum zf_status zf_mesh_open(struct zf_wire **out, struct zf_world *w, struct zf_err *e);

#endif
